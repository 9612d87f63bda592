use super::*;

fn parse(text: &str) -> Option<(String, String)> {
    Target::parse(OsStr::new(text)).map(|t| (t.dataset, String::from_utf8(t.path).unwrap()))
}

fn some(dataset: &str, path: &str) -> Option<(String, String)> {
    Some((dataset.into(), path.into()))
}

#[test]
fn the_first_colon_and_slash_end_the_datasets_name() {
    assert_eq!(parse("tank/a:/b/c"), some("tank/a", "b/c"));
    assert_eq!(parse("tank/a@mon:/"), some("tank/a@mon", ""));
    assert_eq!(parse("tank/a@mon:"), some("tank/a@mon", ""));
    assert_eq!(parse("tank/x:y:/z"), some("tank/x:y", "z"));
    assert_eq!(parse("tank://b//c/./d/"), some("tank", "b/c/d"));
}

#[test]
fn paths_of_the_host_are_no_targets() {
    for path in ["/etc/x:/y", "./tank:/x", "notes.txt", "a/b", ":/x"] {
        assert_eq!(parse(path), None, "{path}");
    }
}

#[test]
fn a_bare_name_is_a_datasets_root_where_a_dataset_is_wanted() {
    let target = Target::parse_dataset(OsStr::new("tank/a@b")).unwrap();
    assert_eq!(
        (target.dataset.as_str(), target.path.len()),
        ("tank/a@b", 0)
    );
    assert_eq!(pool_of("tank/a@b"), "tank");
}

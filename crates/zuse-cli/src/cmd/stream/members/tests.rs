use super::*;

fn received(from: &str) -> ReceivedSnapshot {
    let mut snapshot = ReceivedSnapshot::default();
    snapshot.from = from.to_owned();
    snapshot.to = from.replacen("tank/p", "stream/s", 1);
    snapshot.bytes = Some(1);
    snapshot
}

fn members(choice: &str) -> Option<Members> {
    let names = ["", "/c", "/c/d", "/c.x", "/v"].map(|b| format!("tank/p{b}@1"));
    let mut all: Vec<ReceivedSnapshot> = names.iter().map(|n| received(n)).collect();
    all.push(received("tank/p/c@2"));
    let is_volume = |name: &str| name == "stream/s/v@1";
    Members::of("stream/s", &all, &Choice::parse(choice), is_volume)
}

/// Dataset and path of each place, and its path below the one asked for.
fn tree(choice: &str, path: &str) -> Vec<(String, String)> {
    let places = members(choice).unwrap().tree(path).unwrap();
    let text = |p: Place| (p.target.to_string(), p.below);
    places.into_iter().map(text).collect()
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter()
        .map(|(a, b)| (a.to_string(), b.to_string()))
        .collect()
}

#[test]
fn all_datasets_make_one_tree_each_at_its_last_snapshot() {
    let all = [
        ("tank/p@1:/", ""),
        ("tank/p/c@2:/", "c"),
        ("tank/p/c/d@1:/", "c/d"),
        ("tank/p/c.x@1:/", "c.x"),
        ("tank/p/v@1:/", "v"),
    ];
    assert_eq!(tree("", "/"), pairs(&all));
    let below = [("tank/p/c@2:/", "c"), ("tank/p/c/d@1:/", "c/d")];
    assert_eq!(tree("", "/c/"), pairs(&below));
    assert_eq!(tree("", "c/d/./e"), pairs(&[("tank/p/c/d@1:/e", "e")]));
    assert_eq!(tree("", "cd"), pairs(&[("tank/p@1:/cd", "cd")]));
}

#[test]
fn one_dataset_is_chosen_by_its_name_or_its_place() {
    for choice in ["/c", "c", "tank/p/c", "/c@2"] {
        assert_eq!(
            tree(choice, "/f"),
            pairs(&[("tank/p/c@2:/f", "f")]),
            "{choice}"
        );
    }
    assert_eq!(tree("tank/p/c@1", "/"), pairs(&[("tank/p/c@1:/", "")]));
    assert_eq!(tree("/", "/c"), pairs(&[("tank/p@1:/c", "c")]));
    assert!(members("/x").is_none() && members("c@3").is_none());
}

#[test]
fn a_snapshot_alone_chooses_the_datasets_that_have_it() {
    assert_eq!(
        tree("@1", "/c"),
        pairs(&[("tank/p/c@1:/", "c"), ("tank/p/c/d@1:/", "c/d")])
    );
    let later = members("@2").unwrap();
    assert_eq!(later.all().len(), 1);
    assert!(
        later.tree("/x").is_err(),
        "what has no such snapshot is not there"
    );
}

use super::{TUNABLES, Unit, tunable};
use crate::Limits;

#[test]
fn every_tunable_takes_both_ends_of_its_range_and_nothing_beyond() {
    for t in TUNABLES {
        let mut limits = Limits::default();
        let default = t.value(&limits);
        for end in [t.range.0, t.range.1] {
            t.set(&mut limits, &t.text(Some(end))).expect(t.name);
            assert_eq!(t.value(&limits), Some(end), "{}", t.name);
        }
        let before = limits;
        if t.unit != Unit::Property {
            let beyond = t.range.1 + 1;
            assert!(
                t.set(&mut limits, &beyond.to_string()).is_err(),
                "{}",
                t.name
            );
        }
        assert!(t.set(&mut limits, "much").is_err(), "{}", t.name);
        assert_eq!(limits, before, "a refused value changes nothing");
        t.set(&mut limits, "default").expect(t.name);
        assert_eq!(t.value(&limits), default, "{}", t.name);
    }
}

#[test]
fn values_are_written_as_users_write_them() {
    let mut limits = Limits::default();
    let mut set = |name: &str, text: &str| {
        tunable(name)
            .expect(name)
            .set(&mut limits, text)
            .map(|()| limits)
    };
    assert_eq!(set("zfs_arc_max", "128M").expect("set").cache, 128 << 20);
    assert!(set("xattr_compat", "on").expect("set").xattr_bare);
    assert_eq!(
        set("recordsize", "1M").expect("set").record_size,
        Some(1 << 20)
    );
    assert!(set("recordsize", "1000000").is_err());
    assert_eq!(
        set("primarycache", "metadata").expect("set").primary_cache,
        Some(1)
    );
    assert_eq!(set("atime", "off").expect("set").atime, Some(false));
    assert_eq!(set("atime", "-").expect("set").atime, None);
    assert!(tunable("zfs_arc_maximum").is_none());
}

#[test]
fn names_are_there_once() {
    let mut names: Vec<_> = TUNABLES
        .iter()
        .flat_map(|t| [Some(t.name), t.alias])
        .flatten()
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

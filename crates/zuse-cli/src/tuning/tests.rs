use super::{Origin, Places, Tuning, known};

fn pairs(text: &[(&str, &str)]) -> Vec<(String, String)> {
    text.iter()
        .map(|(n, v)| (n.to_string(), v.to_string()))
        .collect()
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let all = "# for everybody\nzfs_arc_max = 1G\nzfs_txg_timeout=9 # seconds\nzap_micro_max_size=64K\nzfs_default_ibs=12\n";
    let mine = "zfs_txg_timeout=8\nzap_micro_max_size=32K\nzfs_default_ibs=13\n";
    let places = Places {
        files: vec![
            file("all", all),
            file("mine", mine),
            dir.path().join("none"),
        ],
        variables: pairs(&[
            ("ZUSE_ZAP_MICRO_MAX_SIZE", "16K"),
            ("ZUSE_ZFS_DEFAULT_IBS", "14"),
            ("ZUSE_THREADS", "3"),
        ]),
    };
    let tuning = Tuning::load(&places, &pairs(&[("zfs_default_ibs", "15")])).unwrap();
    let l = tuning.limits;
    assert_eq!(l.cache, 1 << 30);
    assert_eq!(l.txg_timeout.as_secs(), 8);
    assert_eq!(l.micro_zap_max, 16 << 10);
    assert_eq!((l.indirect_shift, l.threads), (15, 3));
    let origin = |name: &str| tuning.origin(known(name, "").unwrap()).clone();
    assert_eq!(origin("zfs_arc_max"), Origin::File(places.files[0].clone()));
    assert_eq!(
        origin("zfs_txg_timeout"),
        Origin::File(places.files[1].clone())
    );
    assert_eq!(origin("zap_micro_max_size"), Origin::Environment);
    assert_eq!(origin("zfs_default_ibs"), Origin::Option);
    assert_eq!(origin("recordsize"), Origin::Default);
}

#[test]
fn what_is_refused_says_where_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tunables");
    let say = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let places = Places {
            files: vec![path.clone()],
            variables: Vec::new(),
        };
        match Tuning::load(&places, &[]) {
            Err(crate::error::Stop::Failed(e)) => (e.code, e.message),
            other => panic!("{other:?}"),
        }
    };
    let here = path.display();
    assert_eq!(
        say("\nzfs_arc_maximum=1\n"),
        (2, format!("{here}:2: no tunable 'zfs_arc_maximum'"))
    );
    assert_eq!(
        say("zfs_default_ibs=99"),
        (
            2,
            format!("{here}:1: zfs_default_ibs: 99 is not in 12 to 17")
        )
    );
    assert_eq!(
        say("fast"),
        (2, format!("{here}:1: 'fast' is not NAME=VALUE"))
    );
    let places = Places {
        files: Vec::new(),
        variables: pairs(&[("ZUSE_ATIME", "sometimes")]),
    };
    let Err(crate::error::Stop::Failed(e)) = Tuning::load(&places, &[]) else {
        panic!("taken")
    };
    assert!(
        e.message.starts_with("$ZUSE_ATIME: atime: "),
        "{}",
        e.message
    );
}

//! `.zfs/snapshot` and rollback.

use std::fs;
use std::os::unix::fs::MetadataExt;
use zuse::DestroyOptions;
use zuse::NewerSnapshots;

use crate::{errno, fixture};

fn names(path: impl AsRef<std::path::Path>) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    all.sort();
    all
}

#[test]
fn snapshots_are_read_through_dot_zfs() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("x"), "first").unwrap();
    f.snapshot("tank@one");
    fs::write(f.path("x"), "second").unwrap();
    fs::write(f.path("y"), "y").unwrap();
    f.snapshot("tank@two");
    assert_eq!(names(f.path(".zfs")), ["snapshot"]);
    assert_eq!(names(f.path(".zfs/snapshot")), ["one", "two"]);
    assert_eq!(fs::read(f.path(".zfs/snapshot/one/x")).unwrap(), b"first");
    assert_eq!(fs::read(f.path(".zfs/snapshot/two/x")).unwrap(), b"second");
    assert_eq!(names(f.path(".zfs/snapshot/one")), ["x"]);
    assert_eq!(
        fs::metadata(f.path(".zfs")).unwrap().ino(),
        0xffff_ffff_ffff
    );
    assert_eq!(
        fs::metadata(f.path(".zfs/snapshot")).unwrap().ino(),
        0xffff_ffff_fffd
    );
    assert_eq!(errno(fs::metadata(f.path(".zfs/snapshot/none"))), 2);
    assert_eq!(errno(fs::create_dir(f.path(".zfs/snapshot/one/d"))), 30);
    assert_eq!(errno(fs::remove_file(f.path(".zfs/snapshot/one/x"))), 30);
    assert!(fs::create_dir(f.path(".zfs/d")).is_err());
    assert_eq!(fs::read(f.path("x")).unwrap(), b"second");
}

#[test]
fn snapshots_come_and_go_while_dot_zfs_is_in_use() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("x"), "x").unwrap();
    assert_eq!(errno(fs::metadata(f.path(".zfs/snapshot/s"))), 2);
    f.snapshot("tank@s");
    assert_eq!(fs::read(f.path(".zfs/snapshot/s/x")).unwrap(), b"x");
    f.pool()
        .destroy_dataset("tank@s", DestroyOptions::ONE)
        .unwrap();
    f.wait_for_notices();
    assert_eq!(errno(fs::metadata(f.path(".zfs/snapshot/s"))), 2);
    assert!(names(f.path(".zfs/snapshot")).is_empty());
}

#[test]
fn snapdir_decides_who_finds_dot_zfs() {
    let Some(f) = fixture() else { return };
    assert!(names(f.root()).is_empty(), "hidden: not listed");
    fs::metadata(f.path(".zfs")).unwrap();
    f.set("tank", "snapdir", "visible");
    assert_eq!(names(f.root()), [".zfs"]);
    assert!(fs::create_dir(f.path(".zfs")).is_err());
    f.set("tank", "snapdir", "disabled");
    assert_eq!(errno(fs::metadata(f.path(".zfs"))), 2);
    assert!(names(f.root()).is_empty());
}

#[test]
fn children_have_snapshots_of_their_own() {
    let Some(f) = fixture() else { return };
    f.create("tank/c", &[]);
    fs::write(f.path("c/x"), "x").unwrap();
    f.snapshot("tank/c@s");
    assert_eq!(fs::read(f.path("c/.zfs/snapshot/s/x")).unwrap(), b"x");
    assert!(names(f.path(".zfs/snapshot")).is_empty());
}

#[test]
fn after_a_rollback_the_mount_shows_the_old_content() {
    let Some(f) = fixture() else { return };
    f.create("tank/c", &[]);
    for dir in ["", "c/"] {
        fs::write(f.path(&format!("{dir}x")), "old").unwrap();
        fs::create_dir(f.path(&format!("{dir}d"))).unwrap();
        fs::write(f.path(&format!("{dir}d/deep")), "old and deep").unwrap();
    }
    f.snapshot("tank@s");
    f.snapshot("tank/c@s");
    for dir in ["", "c/"] {
        fs::write(f.path(&format!("{dir}x")), "new, and longer").unwrap();
        fs::write(f.path(&format!("{dir}d/deep")), "n").unwrap();
        fs::write(f.path(&format!("{dir}y")), "new").unwrap();
        fs::remove_dir_all(f.path(&format!("{dir}d"))).unwrap();
    }
    f.pool().rollback("tank@s", NewerSnapshots::Refuse).unwrap();
    f.pool()
        .rollback("tank/c@s", NewerSnapshots::Refuse)
        .unwrap();
    f.wait_for_notices();
    for dir in ["", "c/"] {
        assert_eq!(
            fs::read(f.path(&format!("{dir}x"))).unwrap(),
            b"old",
            "{dir}"
        );
        assert_eq!(
            fs::read(f.path(&format!("{dir}d/deep"))).unwrap(),
            b"old and deep"
        );
        assert_eq!(errno(fs::metadata(f.path(&format!("{dir}y")))), 2);
        fs::write(f.path(&format!("{dir}y")), "again").unwrap();
    }
    assert_eq!(names(f.root()), ["c", "d", "x", "y"]);
}

/// Opening a directory does not ask this program: a name cached by the kernel shows a stale one.
#[test]
fn snapshots_that_were_listed_are_listed_after_a_rollback() {
    let Some(f) = fixture() else { return };
    f.create("tank/c", &[]);
    for (dataset, dir) in [("tank", ""), ("tank/c", "c/")] {
        let snapshot = |name: &str| f.path(&format!("{dir}.zfs/snapshot/{name}"));
        fs::write(f.path(&format!("{dir}x")), "x").unwrap();
        f.snapshot(&format!("{dataset}@one"));
        f.snapshot(&format!("{dataset}@two"));
        assert!(names(snapshot("two")).contains(&"x".to_owned()));
        f.pool()
            .rollback(&format!("{dataset}@two"), NewerSnapshots::Refuse)
            .unwrap();
        f.wait_for_notices();
        for name in ["one", "two"] {
            assert!(names(snapshot(name)).contains(&"x".to_owned()), "{name}");
        }
    }
}

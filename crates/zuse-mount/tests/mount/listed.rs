//! Objects that the kernel knows only from a listing are not in memory until they are used or lose
//! their name.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use zuse::NewerSnapshots;

use crate::{Fixture, fixture};

/// Names with numbers of `stat`, in order.
type Listing = Vec<(String, [u64; 8])>;

/// All data of a listing's entries, by name.
fn list(dir: &Path) -> Listing {
    let mut all: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let m = entry.metadata().unwrap();
            let facts = [
                m.ino(),
                u64::from(m.mode()),
                m.nlink(),
                u64::from(m.uid()),
                u64::from(m.gid()),
                m.size(),
                m.mtime() as u64 * 1_000_000_000 + m.mtime_nsec() as u64,
                m.ctime() as u64 * 1_000_000_000 + m.ctime_nsec() as u64,
            ];
            (entry.file_name().into_string().unwrap(), facts)
        })
        .collect();
    all.sort();
    all
}

/// A directory of 300 files and one of each other kind, of which nothing is in memory.
fn stored() -> Option<(Fixture, Listing)> {
    let mut f = fixture()?;
    fs::create_dir(f.path("d")).unwrap();
    for i in 0..300u32 {
        fs::write(f.path(&format!("d/{i:03}")), format!("content {i}")).unwrap();
    }
    fs::set_permissions(f.path("d/007"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(f.path("d/008"), f.path("d/other")).unwrap();
    fs::create_dir(f.path("d/sub")).unwrap();
    symlink("007", f.path("d/link")).unwrap();
    let before = list(&f.path("d"));
    f.again();
    Some((f, before))
}

#[test]
fn a_listing_of_what_is_not_in_memory_tells_the_same() {
    let Some((mut f, before)) = stored() else {
        return;
    };
    let first = list(&f.path("d"));
    assert_eq!(first, before);
    // Changed in memory, and not yet on disk.
    let mut file = OpenOptions::new()
        .append(true)
        .open(f.path("d/100"))
        .unwrap();
    file.write_all(b" and more").unwrap();
    fs::set_permissions(f.path("d/101"), fs::Permissions::from_mode(0o600)).unwrap();
    drop(file);
    let now = list(&f.path("d"));
    for (old, new) in before.iter().zip(&now) {
        let changed = matches!(old.0.as_str(), "100" | "101");
        assert_eq!(old == new, !changed, "{}", old.0);
    }
    assert_eq!(
        fs::read(f.path("d/100")).unwrap(),
        b"content 100 and more".as_slice()
    );
    f.again();
    assert_eq!(list(&f.path("d")), now);
}

#[test]
fn what_was_listed_can_be_used_when_its_name_is_gone() {
    let Some((mut f, _)) = stored() else { return };
    list(&f.path("d"));
    let known = f.server().known_inodes();
    assert!(known >= 303, "{known}");
    let text = |file: &mut File| {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    };
    // Opening sends no message: the server learns of these files when they lose their names.
    let mut gone = File::open(f.path("d/001")).unwrap();
    fs::remove_file(f.path("d/001")).unwrap();
    let mut replaced = File::open(f.path("d/002")).unwrap();
    fs::rename(f.path("d/003"), f.path("d/002")).unwrap();
    let sub = File::open(f.path("d/sub")).unwrap();
    fs::remove_dir(f.path("d/sub")).unwrap();
    fs::write(f.path("d/001"), "another").unwrap();
    assert_eq!(text(&mut gone), "content 1");
    assert_eq!(gone.metadata().unwrap().nlink(), 0);
    assert_eq!(text(&mut replaced), "content 2");
    assert_eq!(sub.metadata().unwrap().nlink(), 0);
    assert_ne!(
        gone.metadata().unwrap().ino(),
        fs::metadata(f.path("d/001")).unwrap().ino()
    );
    drop((gone, replaced, sub));
    // One of two names is removed: nothing is held, nothing is lost.
    fs::remove_file(f.path("d/008")).unwrap();
    assert_eq!(fs::read(f.path("d/other")).unwrap(), b"content 8");
    assert_eq!(fs::metadata(f.path("d/other")).unwrap().nlink(), 1);
    f.again();
    assert_eq!(fs::read(f.path("d/001")).unwrap(), b"another");
    assert_eq!(fs::read(f.path("d/002")).unwrap(), b"content 3");
    assert_eq!(list(&f.path("d")).len(), 300 + 2 - 2);
}

#[test]
fn what_was_listed_of_a_file_system_that_was_rolled_back_is_stale() {
    let Some(mut f) = fixture() else { return };
    f.create("tank/child", &[]);
    fs::write(f.path("child/a"), "old").unwrap();
    f.snapshot("tank/child@s");
    fs::write(f.path("child/b"), "new").unwrap();
    f.again();
    list(&f.path("child"));
    let mut held = File::open(f.path("child/b")).unwrap();
    f.pool()
        .rollback("tank/child@s", NewerSnapshots::Refuse)
        .unwrap();
    f.wait_for_notices();
    assert_eq!(crate::errno(held.read(&mut [0; 8])), 116);
    drop(held);
    assert_eq!(fs::read(f.path("child/a")).unwrap(), b"old");
    assert!(!f.path("child/b").exists());
}

use std::sync::Arc;

use zuse_base::Timestamp;

use super::*;
use crate::credentials::Credentials;
use crate::file_system::tests::pool::TestFs;
use crate::setattr::SetAttr;

const FILES: usize = 60;

fn root() -> Credentials {
    Credentials::root()
}

/// A directory of some files, none of them in memory.
fn directory() -> (TestFs, Arc<Znode>) {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let dir = t.fs.mkdir(&root(), &top, b"dir", 0o755).expect("made");
    for i in 0..FILES {
        let name = format!("file {i}");
        t.fs.create(&root(), &dir, name.as_bytes(), 0o644)
            .expect("made");
    }
    drop((top, dir));
    let t = t.remount();
    let top = t.fs.root().expect("root");
    let dir = t.fs.lookup(&root(), &top, b"dir").expect("found");
    (t, dir)
}

/// At most `some` entries from a position on, as name and mode (0 if unknown), and the position
/// after them.
fn piece(t: &TestFs, dir: &Arc<Znode>, from: u64, some: usize) -> (Vec<(Vec<u8>, u32)>, u64) {
    let (mut found, mut last) = (Vec::new(), from);
    t.fs.readdir_some(
        dir,
        from,
        Wanted::Attributes,
        (some, usize::MAX),
        &mut |e| {
            if found.len() == some {
                return false;
            }
            let mode = match (e.znode, e.attr) {
                (Some(znode), _) => znode.read().attrs.mode,
                (None, Some(attr)) => attr.attributes.mode,
                (None, None) => 0,
            };
            found.push((e.name.to_vec(), mode & 0o7777));
            last = e.next;
            true
        },
    )
    .expect("listed");
    (found, last)
}

fn ready(t: &TestFs) -> usize {
    t.fs.ready.prepared.lock().len()
}

#[test]
fn what_was_made_ready_is_what_would_have_been_read() {
    let (t, dir) = directory();
    let (_, last) = piece(&t, &dir, 0, 20);
    let plain = piece(&t, &dir, last, 20);
    assert_eq!(plain.0.len(), 20);
    assert!(plain.0.iter().all(|e| e.1 == 0o644), "{plain:?}");
    for (wanted, some) in [
        (Wanted::Attributes, 20),
        (Wanted::Attributes, 5),
        (Wanted::Names, usize::MAX),
    ] {
        t.fs.expect_listing(&dir, last, wanted, some);
        assert!(t.fs.prefetch_listing());
        assert!(!t.fs.prefetch_listing(), "there was one wish");
        assert_eq!(ready(&t), 1);
        assert_eq!(piece(&t, &dir, last, 20), plain, "{wanted:?} {some}");
        assert_eq!(ready(&t), 0, "it was not used");
    }
}

#[test]
fn what_has_changed_since_is_read_again() {
    let (t, dir) = directory();
    let (_, last) = piece(&t, &dir, 0, 20);
    let plain = piece(&t, &dir, last, 20).0;
    let (first, second) = (&plain[0].0, &plain[1].0);
    t.fs.expect_listing(&dir, last, Wanted::Attributes, 20);
    assert!(t.fs.prefetch_listing());
    let file = t.fs.lookup(&root(), &dir, first).expect("found");
    let set = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    t.fs.setattr(&root(), &file, &set).expect("set");
    t.fs.unlink(&root(), &dir, second).expect("removed");
    let now = piece(&t, &dir, last, 19).0;
    assert_eq!(now[0], (first.clone(), 0o600));
    assert_eq!(now[1..], plain[2..]);
}

#[test]
fn a_change_that_was_begun_before_counts() {
    let (t, dir) = directory();
    let (_, last) = piece(&t, &dir, 0, 20);
    let change = t.fs.begin(1 << 20).expect("begun");
    t.fs.expect_listing(&dir, last, Wanted::Attributes, 20);
    assert!(t.fs.prefetch_listing());
    drop(change);
    assert!(t.fs.take_ready(dir.object(), last).is_none());
}

/// The access time that a listing gives for its entry behind a position.
fn access_time(t: &TestFs, dir: &Arc<Znode>, from: u64) -> Timestamp {
    let mut found = None;
    let limits = (1, usize::MAX);
    t.fs.readdir_some(dir, from, Wanted::Attributes, limits, &mut |e| {
        found.get_or_insert(match (e.znode, e.attr) {
            (Some(znode), _) => znode.attributes().atime,
            (None, attr) => attr.expect("known").attributes.atime,
        });
        false
    })
    .expect("listed");
    found.expect("an entry")
}

#[test]
fn an_access_time_that_waits_to_be_written_is_the_one_that_is_shown() {
    for written in [false, true] {
        let (t, dir) = directory();
        let (_, last) = piece(&t, &dir, 0, 20);
        let next = piece(&t, &dir, last, 1).0;
        let before = access_time(&t, &dir, last);
        t.fs.expect_listing(&dir, last, Wanted::Attributes, 20);
        assert!(t.fs.prefetch_listing());
        let day = std::time::Duration::from_secs(100_000);
        t.backing.clock.advance(day);
        let file = t.fs.lookup(&root(), &dir, &next[0].0).expect("found");
        t.fs.read(&file, 0, &mut [0; 16]).expect("read");
        let now = file.attributes().atime;
        assert!(now > before);
        drop(file);
        if written {
            t.fs.write_atimes().expect("written");
        }
        assert_eq!(access_time(&t, &dir, last), now, "written: {written}");
    }
}

#[test]
fn what_was_made_ready_holds_no_objects() {
    let (t, dir) = directory();
    let (_, last) = piece(&t, &dir, 0, 20);
    let next = piece(&t, &dir, last, 1).0;
    let file = t.fs.lookup(&root(), &dir, &next[0].0).expect("found");
    let held = Arc::strong_count(&file);
    t.fs.expect_listing(&dir, last, Wanted::Attributes, 20);
    assert!(t.fs.prefetch_listing());
    assert_eq!(ready(&t), 1);
    assert_eq!(Arc::strong_count(&file), held);
    assert_eq!(piece(&t, &dir, last, 1).0, next);
}

#[test]
fn no_more_than_a_few_listings_are_kept() {
    let (t, dir) = directory();
    let (_, last) = piece(&t, &dir, 0, 20);
    for _ in 0..100 {
        t.fs.expect_listing(&dir, last, Wanted::Names, 20);
    }
    let mut made = 0;
    while t.fs.prefetch_listing() {
        made += 1;
    }
    assert_eq!(made, PREPARED);
    assert_eq!(ready(&t), PREPARED);
}

#[test]
fn who_wants_what_is_cached_has_nothing_read() {
    let (t, dir) = directory();
    t.backing.forget_cache();
    let names = |wanted| {
        let mut known = Vec::new();
        t.fs.readdir_some(&dir, 0, wanted, (FILES, FILES), &mut |e| {
            if !e.name.starts_with(b".") {
                known.push((e.name.to_vec(), e.znode.is_some() || e.attr.is_some()));
            }
            true
        })
        .expect("listed");
        known
    };
    // The directory's own blocks.
    let all = names(Wanted::Names);
    assert_eq!(all.len(), FILES);
    let misses = || t.fs.objset.io().cache().stats().misses;
    let before = misses();
    let some = names(Wanted::Cached);
    assert_eq!(misses(), before);
    assert!(some.iter().any(|e| !e.1), "everything was at hand");
    assert!(some.iter().zip(&all).all(|(a, b)| a.0 == b.0));
    assert!(names(Wanted::Attributes).iter().all(|e| e.1));
    assert!(misses() > before);
    assert!(names(Wanted::Cached).iter().all(|e| e.1));
}

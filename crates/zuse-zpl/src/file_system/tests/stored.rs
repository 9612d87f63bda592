//! Files that are not in memory: look-ups by name, and reads of extended attributes from their
//! stored blocks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::clean;
use super::pool::TestFs;
use crate::attributes::XATTR_UNREAD;
use crate::backing::{Backing, XattrPlace};
use crate::credentials::Credentials;
use crate::xattr::XattrMode;
use crate::{Attr, LookedUp, mode};
use zuse_base::{Errno, Result};

/// In the dnode, in the spill block, in the hidden directory.
const SIZES: [usize; 5] = [1, 89, 5000, 30_000, 60_000];

fn root() -> Credentials {
    Credentials::root()
}

/// The target of a name, if it is a file that is not in memory.
fn stored(t: &TestFs, name: &[u8]) -> Option<Attr> {
    let top = t.fs.root().expect("root");
    match t.fs.lookup_stat(&root(), &top, name).expect("there") {
        LookedUp::Stored(attr) => Some(attr),
        LookedUp::Object(_) => None,
    }
}

/// The stored value; `None` if the object has to be used.
fn ask(t: &TestFs, file: &Attr, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let which = (file.object, file.attributes.generation);
    t.fs.get_stored_xattr(&root(), which, name, <[u8]>::to_vec)
}

/// The same, for a file that a thread of the pool may hold for a moment, to prefetch its blocks.
fn ask_soon(t: &TestFs, file: &Attr, name: &[u8]) -> Result<Option<Vec<u8>>> {
    for _ in 0..5000 {
        let answer = ask(t, file, name);
        if !matches!(answer, Ok(None)) {
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(None)
}

fn stored_soon(t: &TestFs, name: &[u8]) -> Option<Attr> {
    (0..5000).find_map(|_| {
        let found = stored(t, name);
        if found.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        found
    })
}

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ len as u8).collect()
}

fn set(t: &TestFs, file: &[u8], name: &str, value: &[u8]) {
    let file = t.fs.resolve(&root(), file).expect("there");
    t.fs.set_xattr(&root(), &file, name.as_bytes(), value, XattrMode::Any)
        .expect("set");
}

fn written(t: &TestFs) {
    t.backing
        .wait_synced(t.backing.open_txg())
        .expect("written");
}

#[test]
fn values_are_found_wherever_they_are_stored_without_an_object_in_memory() {
    for place in [XattrPlace::Sa, XattrPlace::Dir] {
        for bare in [false, true] {
            let t = TestFs::new();
            t.backing.set_props(|p| {
                p.xattr = place;
                p.xattr_bare = bare;
            });
            let top = t.fs.root().expect("root");
            for len in SIZES {
                let name = format!("f{len}").into_bytes();
                t.fs.create(&root(), &top, &name, 0o640).expect("made");
                set(&t, &name, "user.x", &value(len));
                set(&t, &name, "trusted.other", b"another one");
            }
            drop(top);
            let t = t.remount();
            for len in SIZES {
                let name = format!("f{len}").into_bytes();
                let file = stored_soon(&t, &name).expect("not in memory");
                let found = ask_soon(&t, &file, b"user.x").expect("no error");
                assert_eq!(found, Some(value(len)), "{place:?} {bare} {len}");
                let other = ask_soon(&t, &file, b"trusted.other").expect("no error");
                assert_eq!(other, Some(b"another one".to_vec()));
                for missing in [&b"user.y"[..], b"security.capability"] {
                    let none = ask_soon(&t, &file, missing);
                    assert!(none.is_err_and(|e| e.is(Errno::NODATA)), "{len}");
                }
                assert!(stored_soon(&t, &name).is_some(), "asking made an object");
                // The same attributes as those of the object.
                let object = t.fs.resolve(&root(), &name).expect("there");
                assert_eq!(t.fs.getattr(&object).attributes.mode, mode::REGULAR | 0o640);
                let (seen, known) = (file.attributes, object.attributes());
                assert_eq!((seen.size, seen.ctime), (known.size, known.ctime));
                assert_eq!(
                    (seen.generation, seen.links),
                    (known.generation, known.links)
                );
                let space = t.fs.attribute_space_of(&object).expect("reads");
                assert!([space, XATTR_UNREAD].contains(&seen.xattr), "{seen:?}");
                // Objects in memory are used.
                assert!(stored(&t, &name).is_none());
                assert_eq!(ask(&t, &file, b"user.x").expect("no error"), None);
            }
        }
    }
}

#[test]
fn what_is_not_a_plain_question_is_left_to_the_object() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    t.fs.create(&root(), &top, b"f", 0o600).expect("made");
    t.fs.mkdir(&root(), &top, b"d", 0o700).expect("made");
    t.fs.symlink(&root(), &top, b"l", b"target").expect("made");
    set(&t, b"f", "user.x", b"1");
    drop(top);
    let t = t.remount();
    assert!(stored(&t, b"d").is_none(), "a directory is used at once");
    assert!(stored(&t, b"l").is_none());
    let top = t.fs.root().expect("root");
    for name in [&b"."[..], b".."] {
        let found = t.fs.lookup_stat(&root(), &top, name).expect("there");
        assert!(matches!(found, LookedUp::Object(dir) if dir.object() == top.object()));
    }
    let none = t.fs.lookup_stat(&root(), &top, b"none");
    assert!(none.is_err_and(|e| e.is(Errno::NOENT)));
    let file = stored(&t, b"f").expect("not in memory");
    assert_eq!(
        ask(&t, &file, b"system.posix_acl_access").expect("no error"),
        None
    );
    let stranger = Credentials::enforced(1000, 1000, &[]);
    let which = (file.object, file.attributes.generation);
    let asked =
        t.fs.get_stored_xattr(&stranger, which, b"user.x", <[u8]>::to_vec);
    assert_eq!(asked.expect("no error"), None, "who may is not known here");
    let other = (file.object, file.attributes.generation + 1);
    let asked =
        t.fs.get_stored_xattr(&root(), other, b"user.x", <[u8]>::to_vec);
    assert_eq!(
        asked.expect("no error"),
        None,
        "another file had that number"
    );
    t.backing.set_props(|p| p.xattr = XattrPlace::Off);
    assert!(ask(&t, &file, b"user.x").is_err_and(|e| e.is(Errno::NOTSUP)));
}

#[test]
fn a_change_that_is_not_yet_written_is_not_missed() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    t.fs.create(&root(), &top, b"f", 0o600).expect("made");
    drop(top);
    for len in SIZES {
        let t = &t;
        set(t, b"f", "user.x", &value(len));
        // Nobody holds the object, but its dnode in memory is newer than the stored one.
        assert!(stored(t, b"f").is_none(), "{len}");
        written(t);
        let file = stored_soon(t, b"f").expect("not in memory");
        assert_eq!(
            ask_soon(t, &file, b"user.x").expect("no error"),
            Some(value(len))
        );
    }
    let file = stored_soon(&t, b"f").expect("not in memory");
    let top = t.fs.root().expect("root");
    t.fs.unlink(&root(), &top, b"f").expect("removed");
    t.fs.reap().expect("fine");
    assert_eq!(ask(&t, &file, b"user.x").expect("no error"), None);
    written(&t);
    assert_eq!(ask(&t, &file, b"user.x").expect("no error"), None);
    drop(top);
    clean::check(&t.fs);
}

/// One thread sets values in all places, removes the file and creates it again, while txgs are
/// written; others read.
#[test]
fn a_value_is_whole_whoever_changes_it_meanwhile() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let (over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let Ok(LookedUp::Stored(file)) = t.fs.lookup_stat(&root(), &top, b"f") else {
                        std::thread::yield_now();
                        continue;
                    };
                    match ask(&t, &file, b"user.x") {
                        Ok(Some(found)) => {
                            assert!(SIZES.contains(&found.len()), "{} bytes", found.len());
                            assert_eq!(found, value(found.len()));
                            answers.fetch_add(1, Relaxed);
                        }
                        Ok(None) => {}
                        Err(error) => assert!(error.is(Errno::NODATA), "{error}"),
                    }
                }
            });
        }
        for round in 0..300 {
            if round % 7 == 0 {
                let _ = t.fs.unlink(&root(), &top, b"f");
                t.fs.reap().expect("fine");
                t.fs.create(&root(), &top, b"f", 0o600).expect("made");
            }
            set(&t, b"f", "user.x", &value(SIZES[round % SIZES.len()]));
            written(&t);
            // Waits until some reader has read it.
            let before = answers.load(Relaxed);
            let until = std::time::Instant::now() + std::time::Duration::from_millis(20);
            while answers.load(Relaxed) == before && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
        }
        over.store(true, Relaxed);
    });
    let seen = answers.load(Relaxed);
    assert!(seen >= 10, "{seen} answers");
    drop(top);
    clean::check(&t.fs);
}

//! Directories with forged content.

use super::pool::TestFs;
use crate::Credentials;
use crate::backing::Backing;
use crate::dirent;
use crate::znode::Znode;
use zuse_base::ObjectId;

fn root() -> Credentials {
    Credentials::root()
}

/// Adds an entry to a directory that no operation would add.
fn forge(t: &TestFs, dir: &Znode, name: &[u8], object: ObjectId, mode: u32) {
    let tx = t.backing.begin(1 << 20, false).expect("begins");
    let value = dirent::pack(object, mode, 5);
    let entries = dir.entries().expect("a directory");
    entries.add_u64(&tx, name, value).expect("forged");
}

/// Paths of a walk, and those where it could not continue.
fn walked(t: &TestFs, from: &std::sync::Arc<Znode>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut paths, mut unlisted) = (Vec::new(), Vec::new());
    let mut walk = t.fs.walk(from);
    loop {
        assert!(paths.len() + unlisted.len() < 1000, "it does not end");
        match walk.next().map(|e| e.map(|e| e.path.to_vec())) {
            Ok(Some(path)) => paths.push(path),
            Ok(None) => return (paths, unlisted),
            Err(_) => unlisted.push(walk.unlisted().to_vec()),
        }
    }
}

#[test]
fn names_that_no_file_may_have_are_left_out_and_said() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let good = t.fs.create(&root(), &top, b"good", 0o644).expect("made");
    for name in [&b".."[..], b".", b"a/b", b"/etc/x"] {
        forge(&t, &top, name, good.object(), 0o100_644);
    }
    let mut seen = Vec::new();
    let listed = t.fs.readdir(&top, 2, false, &mut |e| {
        seen.push(e.name.to_vec());
        true
    });
    assert!(listed.is_err());
    assert_eq!(seen, [b"good"]);
    // In parts: the request after the last entry gets the error.
    let (mut last, mut pieces) = (2, Vec::new());
    let listed = loop {
        let mut some = 0;
        let listed = t.fs.readdir_some(
            &top,
            last,
            crate::Wanted::Names,
            (8, usize::MAX),
            &mut |e| {
                (last, some) = (e.next, some + 1);
                pieces.push(e.name.to_vec());
                true
            },
        );
        if listed.is_err() || some == 0 {
            break listed;
        }
    };
    assert!(listed.is_err());
    assert_eq!(pieces, [b"good"]);
    assert_eq!(
        walked(&t, &top),
        (vec![b"".to_vec(), b"good".to_vec()], vec![b"".to_vec()])
    );
}

#[test]
fn a_walk_through_directories_that_hold_each_other_ends() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let a = t.fs.mkdir(&root(), &top, b"a", 0o755).expect("made");
    let b = t.fs.mkdir(&root(), &a, b"b", 0o755).expect("made");
    t.fs.create(&root(), &b, b"file", 0o644).expect("made");
    forge(&t, &b, b"up", a.object(), 0o040_755);
    forge(&t, &b, b"top", top.object(), 0o040_755);
    forge(&t, &top, b"twice", a.object(), 0o040_755);
    forge(&t, &top, b"wrong", a.object(), 0o100_644);
    let (paths, unlisted) = walked(&t, &top);
    assert!(paths.contains(&b"a/b/file".to_vec()) || paths.contains(&b"twice/b/file".to_vec()));
    assert!(
        unlisted.iter().any(|p| p.ends_with(b"b/up")),
        "{unlisted:?}"
    );
    assert!(unlisted.iter().any(|p| p.ends_with(b"b/top")));
    // A start in the cycle is not entered again.
    let (paths, unlisted) = walked(&t, &a);
    assert_eq!(paths.len(), 5, "{paths:?}");
    assert_eq!(unlisted.len(), 2);
    let (mut good, mut bad) = (0, Vec::new());
    crate::each_line(&t.fs, crate::Hashing::None, &mut |line| {
        match line {
            Ok(_) => good += 1,
            Err(unread) => bad.push(unread.path),
        }
        Ok(())
    })
    .expect("goes on");
    assert!(bad.contains(&b"wrong".to_vec()), "{bad:?}");
    assert!(good >= 4);
}

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering::Relaxed;

use super::{Below, Replace, is_name};

/// Both ways of resolving paths: the system's, and the one for sandboxes that refuse it.
fn both(check: impl Fn(&Below, &std::path::Path)) {
    for at_once in [true, false] {
        let folder = tempfile::tempdir().expect("made");
        fs::create_dir_all(folder.path().join("in/a/b")).expect("made");
        fs::create_dir(folder.path().join("out")).expect("made");
        let below = Below::open(&folder.path().join("in")).expect("opens");
        below.at_once.store(at_once, Relaxed);
        check(&below, folder.path());
        assert_eq!(below.at_once.load(Relaxed), at_once);
    }
}

#[test]
fn no_link_is_followed_on_the_way_down() {
    both(|below, folder| {
        assert!(below.dir(b"").is_ok() && below.dir(b"a/b").is_ok());
        symlink(folder.join("out"), folder.join("in/away")).expect("made");
        symlink("a", folder.join("in/near")).expect("made");
        for path in [
            &b"away"[..],
            b"near/b",
            b"../out",
            b"a/../a",
            b"/etc",
            b"a//b",
        ] {
            assert!(below.dir(path).is_err(), "{}", path.escape_ascii());
        }
        let top = below.dir(b"").expect("opens");
        assert!(below.make_dir(&top, b"away").is_err());
        assert!(!below.make_dir(&top, b"a").expect("is there"));
        assert!(below.make_dir(&top, b"..").is_err());
    });
}

#[test]
fn nothing_that_is_there_is_written_through_or_replaced_unless_it_is_asked_for() {
    both(|below, folder| {
        let precious = folder.join("out/precious");
        fs::write(&precious, "old").expect("written");
        symlink(&precious, folder.join("in/link")).expect("made");
        fs::write(folder.join("in/file"), "old").expect("written");
        let top = below.dir(b"").expect("opens");
        for name in [&b"link"[..], b"file", b"a"] {
            let place = below.place(&top, name, Replace::Nothing);
            assert!(place.file().is_err() && place.symlink(b"x").is_err());
        }
        assert!(below.place(&top, b"link", Replace::File).file().is_err());
        assert!(
            below
                .place(&top, b"a", Replace::FilesAndLinks)
                .file()
                .is_err()
        );
        for name in [&b"link"[..], b"file"] {
            let place = below.place(&top, name, Replace::FilesAndLinks);
            let (_, made) = place.file().expect("made beside");
            let path = folder
                .join("in")
                .join(String::from_utf8_lossy(name).as_ref());
            assert_eq!(fs::read(&path).expect("old"), b"old");
            made.keep().expect("replaces");
            assert_eq!(fs::read(&path).expect("new"), b"");
        }
        assert_eq!(fs::read(&precious).expect("there"), b"old");
        assert_eq!(fs::read_dir(folder.join("in")).expect("listed").count(), 3);
    });
}

#[test]
fn a_link_is_made_to_what_was_made_and_to_nothing_else() {
    both(|below, folder| {
        let top = below.dir(b"").expect("opens");
        let place = below.place(&top, b"one", Replace::Nothing);
        let (_, one) = place.file().expect("made");
        let identity = one.identity;
        let two = below.place(&top, b"two", Replace::Nothing);
        assert!(two.link(&top, b"one", identity).is_ok());
        fs::remove_file(folder.join("in/one")).expect("removed");
        symlink(folder.join("out"), folder.join("in/one")).expect("made");
        let three = below.place(&top, b"three", Replace::Nothing);
        assert!(three.link(&top, b"one", identity).is_err());
        assert!(!folder.join("in/three").exists());
        // The object that has taken its name is kept.
        one.drop_it();
        assert!(folder.join("in/one").is_symlink());
    });
}

#[test]
fn a_deep_tree_is_reached() {
    both(|below, _| {
        let name = [b'n'; 200];
        let mut path = Vec::new();
        for _ in 0..60 {
            let dir = below.dir(&path).expect("opens");
            assert!(below.make_dir(&dir, &name).expect("made"));
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
        }
        assert!(below.dir_itself(&path).is_ok());
    });
}

#[test]
fn names_that_lead_elsewhere_are_none() {
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0"] {
        assert!(!is_name(name));
    }
    assert!(is_name(b"...") && is_name(b"\xff"));
}

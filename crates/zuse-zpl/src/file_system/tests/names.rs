use super::clean;
use super::pool::TestFs;
use crate::credentials::Credentials;
use crate::file_system::{CaseSensitivity, device_number};
use crate::format_new::FormatOptions;
use crate::rename::RenameFlags;
use crate::setattr::{SetAttr, TimeSet};
use crate::{flags, mode};
use zuse_base::{Errno, Timestamp};

fn root() -> Credentials {
    Credentials::root()
}

// The bonus that OpenZFS 2.4 gave the root directory of a new file system, except its object
// number, txg and times.
#[test]
fn a_new_root_directory_has_the_bytes_of_openzfs() {
    let t = TestFs::new();
    let bonus = t.fs.root().expect("root").dnode().bonus_vec();
    let hex: String = bonus.iter().map(|b| format!("{b:02x}")).collect();
    let number = format!("{:02x}", t.fs.root_id().0);
    let time = format!("{}{}", "00105e5f00000000", "0300000000000000");
    let expected = format!(
        "5a502f0002041800ed4100000000000002000000000000000700000000000000\
         00000000000000000000000000000000{number}000000000000004401000008840000\
         {time}{time}{time}{time}\
         02000000000000000000000000000000030000000000000000000010ff011e00\
         00004020a900120000000040a9001200"
    );
    assert_eq!(hex, expected);
    assert_eq!(t.fs.objset().flags(), 7);
    clean::check(&t.fs);
}

#[test]
fn objects_made_are_there_after_a_remount() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let dir = t.fs.mkdir(&root(), &top, b"dir", 0o755).expect("made");
    let file = t.fs.create(&root(), &dir, b"file", 0o644).expect("made");
    t.fs.symlink(&root(), &dir, b"link", b"../target")
        .expect("made");
    t.fs.symlink(&root(), &dir, b"long", &[b'x'; 1000])
        .expect("made");
    t.fs.mknod(
        &root(),
        &dir,
        b"disk",
        mode::BLOCK | 0o660,
        device_number(8, 16),
    )
    .expect("made");
    t.fs.mknod(&root(), &dir, b"pipe", mode::FIFO | 0o600, 0)
        .expect("made");
    t.fs.link(&root(), &file, &top, b"second").expect("linked");
    assert!(
        t.fs.create(&root(), &dir, b"file", 0o644)
            .is_err_and(|e| e.is(Errno::EXIST))
    );
    drop((top, dir, file));
    let t = t.remount();
    clean::check(&t.fs);
    let at = |p: &[u8]| t.fs.resolve(&root(), p).expect("there");
    assert_eq!(
        t.fs.readlink(&at(b"dir/link")).expect("a link"),
        b"../target"
    );
    assert_eq!(
        t.fs.readlink(&at(b"dir/long")).expect("a link"),
        [b'x'; 1000]
    );
    assert_eq!(t.fs.getattr(&at(b"dir/disk")).device(), (8, 16));
    assert_eq!(at(b"dir/pipe").kind(), mode::FIFO);
    assert_eq!(at(b"second").attributes().links, 2);
    assert_eq!(at(b"second").object(), at(b"dir/file").object());
    assert_eq!(at(b"dir/file").attributes().flags, 0x8408_0000_0004);
    assert_eq!(at(b"dir/link").attributes().flags, 0x408_0000_0104);
    assert_eq!(at(b"dir/..").object(), t.fs.root_id());
    assert!(
        t.fs.resolve(&root(), b"none")
            .is_err_and(|e| e.is(Errno::NOENT))
    );
    assert!(
        t.fs.resolve(&root(), b"second/x")
            .is_err_and(|e| e.is(Errno::NOTDIR))
    );
}

#[test]
fn a_listing_continues_where_it_stopped_whatever_happens_between() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    for i in 0..3000 {
        t.fs.create(&root(), &top, format!("name-{i}").as_bytes(), 0o644)
            .expect("made");
    }
    let mut seen = Vec::new();
    let mut at = 0;
    loop {
        let before = seen.len();
        let mut room = 100;
        t.fs.readdir(&top, at, seen.len() % 200 == 0, &mut |e| {
            if room == 0 {
                return false;
            }
            room -= 1;
            at = e.next;
            seen.push(e.name.to_vec());
            true
        })
        .expect("lists");
        if seen.len() == before {
            break;
        }
        let name = seen[seen.len() - 1].clone();
        if name.len() > 2 {
            t.fs.unlink(&root(), &top, &name).expect("removed");
        }
    }
    assert_eq!(seen[0], b".");
    assert_eq!(seen[1], b"..");
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((all, seen.len()), (3002, 3002));
    clean::check(&t.fs);
}

#[test]
fn an_unlinked_file_lives_as_long_as_it_is_held() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let object = file.object();
    t.fs.write(&file, 0, b"still here", Default::default())
        .expect("written");
    t.fs.unlink(&root(), &top, b"f").expect("removed");
    clean::check(&t.fs);
    let mut buf = [0; 20];
    assert_eq!(t.fs.read(&file, 0, &mut buf).expect("read"), 10);
    assert_eq!(file.attributes().links, 0);
    t.fs.release(file).expect("released");
    assert!(t.fs.znode(object).is_err_and(|e| e.is(Errno::NOENT)));
    assert_eq!(t.fs.unlinked_set().expect("set").count().expect("count"), 0);
    clean::check(&t.fs);
}

#[test]
fn who_is_let_go_in_the_same_txg_was_never_in_the_set() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let files: Vec<_> = (0..3)
        .map(|i| {
            let name = format!("f{i}");
            t.fs.create(&root(), &top, name.as_bytes(), 0o644)
                .expect("made")
        })
        .collect();
    t.fs.sync().expect("synced");
    let set = t.fs.unlinked_set().expect("set");
    let changed = || set.dnode().newest_dirty();
    for name in [b"f0", b"f1", b"f2"] {
        t.fs.unlink(&root(), &top, name).expect("removed");
    }
    let mut files = files.into_iter();
    t.fs.release(files.next().expect("f0")).expect("released");
    assert_eq!((changed(), set.count().expect("count")), (None, 0));
    t.fs.sync().expect("synced");
    assert_eq!(set.count().expect("count"), 2, "f1 and f2 are held");
    t.fs.release(files.next().expect("f1")).expect("released");
    assert_eq!(set.count().expect("count"), 1);
    drop(files);
    t.fs.sync().expect("synced");
    assert_eq!(set.count().expect("count"), 0);
    clean::check(&t.fs);
}

#[test]
fn what_was_open_at_a_crash_is_freed_at_the_next_mount() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    t.fs.write(&file, 0, &[7; 300_000], Default::default())
        .expect("written");
    t.fs.set_xattr(
        &root(),
        &file,
        b"user.big",
        &[1; 60_000],
        crate::XattrMode::Any,
    )
    .expect("set");
    let dir = t.fs.mkdir(&root(), &top, b"d", 0o755).expect("made");
    let unlinked = t.fs.tmpfile(&root(), &top, 0o600).expect("made");
    t.fs.unlink(&root(), &top, b"f").expect("removed");
    t.fs.rmdir(&root(), &top, b"d").expect("removed");
    assert!(
        t.fs.create(&root(), &dir, b"x", 0o644)
            .is_err_and(|e| e.is(Errno::NOENT))
    );
    let waiting = || t.fs.unlinked_set().expect("set").count().expect("count");
    assert_eq!(waiting(), 1, "made without a name");
    let numbers = [file.object(), dir.object(), unlinked.object()];
    t.fs.sync().expect("synced");
    assert_eq!(waiting(), 3);
    let backing = t.backing.reopen();
    std::mem::forget((file, dir, unlinked));
    let fs = crate::FileSystem::open(backing).expect("opens");
    for n in numbers {
        assert!(fs.znode(n).is_err_and(|e| e.is(Errno::NOENT)));
    }
    assert_eq!(fs.unlinked_set().expect("set").count().expect("count"), 0);
    fs.sync().expect("synced");
    clean::check(&fs);
}

#[test]
fn an_unnamed_file_can_be_given_a_name() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.tmpfile(&root(), &top, 0o600).expect("made");
    t.fs.link(&root(), &file, &top, b"now").expect("linked");
    drop(file);
    t.fs.reap().expect("fine");
    assert_eq!(
        t.fs.resolve(&root(), b"now")
            .expect("there")
            .attributes()
            .links,
        1
    );
    clean::check(&t.fs);
}

#[test]
fn renames_move_replace_swap_and_refuse() {
    let t = TestFs::new();
    let who = root();
    let top = t.fs.root().expect("root");
    let a = t.fs.mkdir(&who, &top, b"a", 0o755).expect("made");
    let b = t.fs.mkdir(&who, &a, b"b", 0o755).expect("made");
    let file = t.fs.create(&who, &a, b"f", 0o644).expect("made");
    let other = t.fs.create(&who, &b, b"g", 0o644).expect("made");
    let plain = RenameFlags::default();
    let (mut keep, mut swap, mut hole) = (plain, plain, plain);
    (keep.no_replace, swap.exchange, hole.whiteout) = (true, true, true);
    let no = |r: zuse_base::Result<()>, errno| assert!(r.is_err_and(|e| e.is(errno)));
    no(
        t.fs.rename(&who, &top, b"a", &b, b"inside", plain),
        Errno::INVAL,
    );
    no(t.fs.rename(&who, &a, b"f", &a, b"b", plain), Errno::ISDIR);
    no(t.fs.rename(&who, &a, b"b", &a, b"f", plain), Errno::NOTDIR);
    no(t.fs.rename(&who, &a, b"f", &b, b"g", keep), Errno::EXIST);
    t.fs.mkdir(&who, &top, b"empty", 0o755).expect("made");
    no(
        t.fs.rename(&who, &top, b"empty", &top, b"a", plain),
        Errno::NOTEMPTY,
    );
    t.fs.rename(&who, &a, b"f", &b, b"g", swap)
        .expect("swapped");
    assert_eq!(
        t.fs.lookup(&who, &a, b"f").expect("there").object(),
        other.object()
    );
    assert_eq!(file.attributes().parent, b.object().0);
    t.fs.rename(&who, &a, b"b", &top, b"empty", plain)
        .expect("over an empty directory");
    assert_eq!((top.attributes().links, a.attributes().links), (4, 2));
    t.fs.rename(&who, &top, b"empty", &top, b"b", plain)
        .expect("moved");
    t.fs.rename(&who, &a, b"f", &top, b"f", hole)
        .expect("moved");
    let left = t.fs.lookup(&who, &a, b"f").expect("a whiteout");
    assert_eq!((left.kind(), left.attributes().rdev), (mode::CHARACTER, 0));
    // A directory and a file in different directories change places.
    t.fs.rename(&who, &top, b"b", &a, b"f", swap)
        .expect("swapped");
    drop((file, other, left, b));
    t.fs.reap().expect("fine");
    clean::check(&t.fs);
    let t = {
        drop((top, a));
        t.remount()
    };
    clean::check(&t.fs);
}

#[test]
fn case_and_normalisation_are_the_datasets() {
    let insensitive = FormatOptions {
        case: CaseSensitivity::Insensitive,
        normalization: 0x50,
        ..FormatOptions::default()
    };
    let t = TestFs::with(&insensitive);
    let who = root();
    let top = t.fs.root().expect("root");
    let file =
        t.fs.create(&who, &top, "Café".as_bytes(), 0o644)
            .expect("made");
    assert_eq!(
        t.fs.lookup(&who, &top, "CAFE\u{301}".as_bytes())
            .expect("there")
            .object(),
        file.object()
    );
    assert!(
        t.fs.create(&who, &top, "cafÉ".as_bytes(), 0o644)
            .is_err_and(|e| e.is(Errno::EXIST))
    );
    assert!(
        t.fs.create(&who, &top, b"\xff", 0o644)
            .is_err_and(|e| e.is(Errno::ILSEQ))
    );
    t.fs.rename(
        &who,
        &top,
        "café".as_bytes(),
        &top,
        "CAFÉ".as_bytes(),
        RenameFlags::default(),
    )
    .expect("respelled");
    let mut names = Vec::new();
    t.fs.readdir(&top, 2, false, &mut |e| {
        names.push(e.name.to_vec());
        true
    })
    .expect("lists");
    assert_eq!(names, ["CAFÉ".as_bytes().to_vec()]);
    drop(file);
    t.fs.unlink(&who, &top, "cafe\u{301}".as_bytes())
        .expect("removed");
    clean::check(&t.fs);
}

#[test]
fn mode_and_acl_change_together() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let set = SetAttr {
        mode: Some(0o4604),
        uid: Some(12),
        gid: Some(34),
        ..SetAttr::default()
    };
    t.fs.setattr(&root(), &file, &set).expect("set");
    let a = file.attributes();
    // The owner changes in the same call: set-user-id is cleared, as with chown.
    assert_eq!((a.mode, a.uid, a.gid), (mode::REGULAR | 0o604, 12, 34));
    let aces =
        t.fs.store
            .bytes(file.dnode(), zuse_dmu::sa::Attr::DaclAces)
            .expect("read")
            .expect("there");
    assert_eq!(aces.len(), 40);
    t.fs.setattr(
        &root(),
        &file,
        &SetAttr {
            mode: Some(0o755),
            ..SetAttr::default()
        },
    )
    .expect("set");
    assert_ne!(file.attributes().flags & flags::NO_EXECS_DENIED, 0);
    let at = Timestamp::new(-5, 9);
    let set = SetAttr {
        mtime: Some(TimeSet::At(at)),
        atime: Some(TimeSet::Now),
        ..SetAttr::default()
    };
    assert_eq!(
        t.fs.setattr(&root(), &file, &set)
            .expect("set")
            .attributes
            .mtime,
        at
    );
    drop((file, top));
    let t = t.remount();
    let file = t.fs.resolve(&root(), b"f").expect("there");
    assert_eq!(
        (file.attributes().mtime, file.attributes().mode),
        (at, mode::REGULAR | 0o755)
    );
    drop(file);
    clean::check(&t.fs);
}

#[test]
fn an_enforced_caller_is_checked_by_mode_and_sticky_bit() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let tmp = t.fs.mkdir(&root(), &top, b"tmp", 0o1777).expect("made");
    let (me, you) = (
        Credentials::enforced(1, 1, &[]),
        Credentials::enforced(2, 2, &[]),
    );
    let mine = t.fs.create(&me, &tmp, b"mine", 0o600).expect("made");
    assert!(
        t.fs.create(&me, &top, b"no", 0o600)
            .is_err_and(|e| e.is(Errno::ACCES))
    );
    assert!(
        t.fs.unlink(&you, &tmp, b"mine")
            .is_err_and(|e| e.is(Errno::PERM))
    );
    assert!(
        t.fs.access(&you, &mine, 4)
            .is_err_and(|e| e.is(Errno::ACCES))
    );
    assert!(
        t.fs.setattr(
            &you,
            &mine,
            &SetAttr {
                mode: Some(0o777),
                ..SetAttr::default()
            }
        )
        .is_err_and(|e| e.is(Errno::PERM))
    );
    t.fs.access(&me, &mine, 6).expect("the owner may");
}

#[test]
fn a_file_system_of_an_old_version_is_written_in_its_own_form() {
    for version in 1..=4 {
        let t = TestFs::with(&FormatOptions {
            version,
            ..FormatOptions::default()
        });
        let top = t.fs.root().expect("root");
        let dir = t.fs.mkdir(&root(), &top, b"d", 0o755).expect("made");
        let file = t.fs.create(&root(), &dir, b"f", 0o640).expect("made");
        t.fs.symlink(&root(), &dir, b"short", b"x").expect("made");
        t.fs.symlink(&root(), &dir, b"long", &[b'y'; 500])
            .expect("made");
        t.fs.write(&file, 0, b"old but good", Default::default())
            .expect("written");
        t.fs.set_xattr(&root(), &file, b"user.k", b"v", crate::XattrMode::Create)
            .expect("set");
        t.fs.setattr(
            &root(),
            &file,
            &SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            },
        )
        .expect("set");
        assert_eq!(file.dnode().bonus_type(), 17);
        drop((top, dir, file));
        let t = t.remount();
        clean::check(&t.fs);
        let file = t.fs.resolve(&root(), b"d/f").expect("there");
        assert_eq!(
            t.fs.get_xattr(&root(), &file, b"user.k").expect("there"),
            b"v"
        );
        let long = t.fs.resolve(&root(), b"d/long").expect("there");
        assert_eq!(t.fs.readlink(&long).expect("a link"), [b'y'; 500]);
        let short = t.fs.resolve(&root(), b"d/short").expect("there");
        assert_eq!(t.fs.readlink(&short).expect("a link"), b"x");
        let dir = t.fs.resolve(&root(), b"d").expect("there");
        drop((file, long, short));
        for name in [&b"f"[..], b"short", b"long"] {
            t.fs.unlink(&root(), &dir, name).expect("removed");
        }
        clean::check(&t.fs);
    }
}

#[test]
fn a_walk_goes_in_the_byte_order_of_paths() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    for name in [&b"a"[..], b"a.d", b"b"] {
        let dir = t.fs.mkdir(&root(), &top, name, 0o755).expect("made");
        t.fs.create(&root(), &dir, b"x", 0o644).expect("made");
        t.fs.create(&root(), &dir, b"-", 0o644).expect("made");
    }
    for name in [&b"a-b"[..], b"a0", b"a\xff", b"ab"] {
        t.fs.create(&root(), &top, name, 0o644).expect("made");
    }
    let mut paths = Vec::new();
    let mut walk = t.fs.walk(&top);
    while let Some(entry) = walk.next().expect("walks") {
        paths.push(entry.path.to_vec());
    }
    assert_eq!(paths.len(), 14);
    assert!(paths.is_sorted(), "{paths:?}");
    let mut entries = Vec::new();
    crate::manifest(&t.fs, crate::Hashing::Default, &mut |e| {
        entries.push(e.path);
        Ok(())
    })
    .expect("lists");
    assert_eq!(entries[0], b".");
    assert_eq!(entries[1..], paths[1..]);
}

#[test]
fn attributes_of_common_files_are_read_without_the_registry_after_a_mount() {
    for project_quota in [true, false] {
        let mut options = FormatOptions::default();
        options.features.project_quota = project_quota;
        let t = TestFs::with(&options);
        assert_eq!(t.fs.has_projects(), project_quota);
        let top = t.fs.root().expect("root");
        let file = t.fs.create(&root(), &top, b"f", 0o640).expect("made");
        let (object, made) = (file.object(), file.attributes());
        drop((file, top));
        t.fs.sync().expect("synced");
        let t = t.remount();
        let dnode = t.fs.objset.dnode(object).expect("there");
        assert_eq!(t.fs.store.load_now(&dnode), Some(made));
        assert_eq!(t.fs.store.load(&dnode).expect("whole"), made);
    }
}

#[test]
fn what_another_process_has_open_is_freed_by_the_one_that_goes_on_with_it() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    t.fs.write(&file, 0, &[7; 300_000], Default::default())
        .expect("written");
    let made = t.fs.tmpfile(&root(), &top, 0o600).expect("made");
    let left = t.fs.create(&root(), &top, b"g", 0o644).expect("made");
    for name in [b"f", b"g"] {
        t.fs.unlink(&root(), &top, name).expect("removed");
    }
    let known = [&file, &made].map(|z| (z.object(), z.generation(), z.is_linkable()));
    t.fs.keep_unlinked_objects();
    drop((file, made, left, top));
    t.fs.close().expect("closed");

    // A process that fails before it has taken them over frees nothing; only objects that nobody
    // takes over are freed.
    let mut backing = t.backing.clone();
    for _ in 0..2 {
        backing = backing.reopen();
        let in_use = known.iter().map(|(object, ..)| object.0).collect();
        *backing.in_use.lock() = Some(std::sync::Arc::new(in_use));
        let fs = crate::FileSystem::open(backing.clone()).expect("opens");
        let taken =
            known.map(|(o, g, named)| fs.take_over_unlinked(o, g, named).expect("is there"));
        drop(taken);
        fs.close().expect("closed");
        assert_eq!(fs.unlinked_set().expect("set").count().expect("count"), 2);
    }
    let backing = backing.reopen();
    let in_use = known.iter().map(|(object, ..)| object.0).collect();
    *backing.in_use.lock() = Some(std::sync::Arc::new(in_use));
    let fs = crate::FileSystem::open(backing).expect("opens");
    let [file, made] =
        known.map(|(o, g, named)| fs.take_over_unlinked(o, g, named).expect("is there"));
    fs.free_unlinked_again();
    assert_eq!(file.size(), 300_000);
    let wrong = fs.take_over_unlinked(known[0].0, known[0].1 + 1, false);
    assert!(wrong.is_err_and(|e| e.is(Errno::NOENT)));
    let top = fs.root().expect("root");
    fs.link(&root(), &made, &top, b"named")
        .expect("gets a name");
    assert!(fs.link(&root(), &file, &top, b"again").is_err());
    fs.release(file).expect("released");
    fs.sync().expect("synced");
    assert_eq!(fs.unlinked_set().expect("set").count().expect("count"), 0);
    clean::check(&fs);
}

use super::clean;
use super::pool::TestFs;
use crate::backing::XattrPlace;
use crate::credentials::Credentials;
use crate::xattr::XattrMode;
use crate::{FileSystem, WriteOptions, mode, posix_acl};
use zuse_base::Errno;

fn root() -> Credentials {
    Credentials::root()
}

#[test]
fn values_go_inline_to_the_spill_block_or_to_a_directory_by_size() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let set = |name: &[u8], len: usize, fill: u8| {
        t.fs.set_xattr(&root(), &file, name, &vec![fill; len], XattrMode::Any)
            .expect("set");
    };
    set(b"user.foo", 88, 1);
    assert!(!file.dnode().has_spill());
    set(b"user.foo", 89, 1);
    assert!(file.dnode().has_spill());
    set(b"user.big", 30_000, 2);
    assert_eq!(file.attributes().xattr, 0);
    set(b"user.huge", 60_000, 3);
    assert_ne!(file.attributes().xattr, 0);
    let get = |name: &[u8]| t.fs.get_xattr(&root(), &file, name).expect("there");
    assert_eq!(get(b"user.foo"), [1; 89]);
    assert_eq!(get(b"user.big"), vec![2; 30_000]);
    assert_eq!(get(b"user.huge"), vec![3; 60_000]);
    let names = t.fs.list_xattrs(&root(), &file).expect("lists");
    assert_eq!(
        names,
        [
            b"user.foo".to_vec(),
            b"user.big".to_vec(),
            b"user.huge".to_vec()
        ]
    );
    // A value that shrinks moves back from the directory.
    set(b"user.huge", 10, 4);
    assert_eq!(get(b"user.huge"), [4; 10]);
    assert_eq!(t.fs.list_xattrs(&root(), &file).expect("lists").len(), 3);
    drop((top, file));
    let t = t.remount();
    clean::check(&t.fs);
    let top = t.fs.root().expect("root");
    let file = t.fs.resolve(&root(), b"f").expect("there");
    assert_eq!(
        t.fs.get_xattr(&root(), &file, b"user.big").expect("there"),
        vec![2; 30_000]
    );
    t.fs.remove_xattr(&root(), &file, b"user.big")
        .expect("removed");
    t.fs.remove_xattr(&root(), &file, b"user.foo")
        .expect("removed");
    assert!(!file.dnode().has_spill());
    drop(file);
    t.fs.unlink(&root(), &top, b"f").expect("removed");
    t.fs.reap().expect("fine");
    clean::check(&t.fs);
}

#[test]
fn with_xattr_dir_values_are_files_that_follow_their_owner() {
    let t = TestFs::new();
    t.backing.set_props(|p| p.xattr = XattrPlace::Dir);
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    t.fs.set_xattr(&root(), &file, b"user.a", b"1", XattrMode::Create)
        .expect("set");
    t.fs.set_xattr(
        &root(),
        &file,
        b"user.a",
        b"a longer value",
        XattrMode::Replace,
    )
    .expect("set");
    t.fs.set_xattr(&root(), &file, b"user.a", b"short", XattrMode::Any)
        .expect("set");
    let again =
        t.fs.set_xattr(&root(), &file, b"user.a", b"1", XattrMode::Create);
    assert!(again.is_err_and(|e| e.is(Errno::EXIST)));
    let missing =
        t.fs.set_xattr(&root(), &file, b"user.b", b"1", XattrMode::Replace);
    assert!(missing.is_err_and(|e| e.is(Errno::NODATA)));
    let set = crate::SetAttr {
        uid: Some(55),
        ..Default::default()
    };
    t.fs.setattr(&root(), &file, &set).expect("given away");
    let objects = t.fs.attribute_objects(&file).expect("there");
    assert_eq!(objects.len(), 2);
    assert!(
        objects
            .iter()
            .all(|o| o.attributes().uid == 55 && o.attributes().flags & 1 == 1)
    );
    assert_eq!(objects[0].attributes().mode, mode::DIRECTORY | 0o1777);
    drop(objects);
    assert_eq!(
        t.fs.get_xattr(&root(), &file, b"user.a").expect("there"),
        b"short"
    );
    drop((top, file));
    let t = t.remount();
    clean::check(&t.fs);
    let top = t.fs.root().expect("root");
    t.fs.unlink(&root(), &top, b"f").expect("removed");
    t.fs.reap().expect("fine");
    clean::check(&t.fs);
    let mut objects = 0;
    let mut at = zuse_base::ObjectId(0);
    while let Some(o) = t.fs.objset().next_object(at).expect("readable") {
        at = o;
        objects += u64::from(t.fs.objset().dnode(o).expect("there").bonus_type() == 44);
    }
    assert_eq!(objects, 1, "only the root is left");
}

#[test]
fn the_block_of_a_long_value_is_as_long_as_the_value() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    for len in [33_000, 65_535, 65_536usize] {
        let name = len.to_string();
        let file = t.fs.create(&root(), &top, name.as_bytes(), 0o644);
        let file = file.expect("made");
        let value: Vec<u8> = (0..len).map(|i| (i % 249) as u8).collect();
        t.fs.set_xattr(&root(), &file, b"user.a", &value, XattrMode::Any)
            .expect("set");
        let found = t.fs.get_xattr(&root(), &file, b"user.a");
        assert!(found.expect("there") == value, "{len}");
        // Once written, it is a cached block.
        t.fs.sync().expect("synced");
        let hidden = t.fs.attribute_objects(&file).expect("there").pop();
        let mut blocks = Vec::new();
        hidden
            .expect("a file")
            .dnode()
            .read_slices(0, len as u64, &mut |slice| {
                if let zuse_dmu::SharedSlice::Block(block, _) = slice {
                    blocks.push(block.bytes().len());
                }
            })
            .expect("reads");
        assert_eq!(blocks, [len.next_multiple_of(512)]);
    }
    drop(top);
    let t = t.remount();
    clean::check(&t.fs);
}

/// Other systems write attribute files like any file: in any number of blocks, with holes between.
#[test]
fn a_value_of_several_blocks_is_one_value() {
    let t = TestFs::new();
    t.backing.set_props(|p| {
        p.xattr = XattrPlace::Dir;
        p.record_size = 1024;
    });
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let mut value: Vec<u8> = (0..700).map(|i| (i % 251) as u8).collect();
    t.fs.set_xattr(&root(), &file, b"user.a", &value, XattrMode::Any)
        .expect("set");
    let space = t.fs.attribute_space(&file).expect("reads").expect("there");
    let found = t.fs.find(&space, b"user.a").expect("reads");
    let hidden = t.fs.znode(found.expect("there").0).expect("a file");
    let rest: Vec<u8> = (0..1500).map(|i| (i % 241) as u8).collect();
    t.fs.write(&hidden, 3000, &rest, WriteOptions::default())
        .expect("written");
    assert!(hidden.dnode().max_block() > 2);
    value.resize(3000, 0);
    value.extend_from_slice(&rest);
    let get = |fs: &FileSystem| {
        let file = fs.resolve(&root(), b"f").expect("there");
        fs.get_xattr(&root(), &file, b"user.a").expect("there")
    };
    assert_eq!(get(&t.fs), value);
    drop((top, file, space, hidden));
    assert_eq!(get(&t.remount().fs), value);
}

#[test]
fn name_spaces_have_their_rules() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o666).expect("made");
    let me = Credentials::enforced(5, 5, &[]);
    let any = XattrMode::Any;
    t.fs.set_xattr(&me, &file, b"user.x", b"", any)
        .expect("set");
    assert!(
        t.fs.set_xattr(&me, &file, b"trusted.x", b"", any)
            .is_err_and(|e| e.is(Errno::PERM))
    );
    t.fs.set_xattr(&root(), &file, b"trusted.x", b"t", any)
        .expect("set");
    assert_eq!(
        t.fs.list_xattrs(&me, &file).expect("lists"),
        [b"user.x".to_vec()]
    );
    assert_eq!(t.fs.list_xattrs(&root(), &file).expect("lists").len(), 2);
    assert!(
        t.fs.set_xattr(&root(), &file, b"other.x", b"", any)
            .is_err_and(|e| e.is(Errno::NOTSUP))
    );
    assert!(
        t.fs.set_xattr(&root(), &file, b"user.", b"", any)
            .is_err_and(|e| e.is(Errno::INVAL))
    );
    assert!(
        t.fs.set_xattr(&root(), &file, posix_acl::ACCESS, b"", any)
            .is_err_and(|e| e.is(Errno::NOTSUP))
    );
    // The kernel asks for the ACL before it checks access: without ACLs there is none.
    assert!(
        t.fs.get_xattr(&root(), &file, posix_acl::ACCESS)
            .is_err_and(|e| e.is(Errno::NODATA))
    );
    t.backing.set_props(|p| p.xattr = XattrPlace::Off);
    assert!(
        t.fs.get_xattr(&root(), &file, b"user.x")
            .is_err_and(|e| e.is(Errno::NOTSUP))
    );
}

#[test]
fn posix_acls_rule_modes_and_are_inherited() {
    let t = TestFs::new();
    t.backing.set_props(|p| p.posix_acl = true);
    let top = t.fs.root().expect("root");
    let dir = t.fs.mkdir(&root(), &top, b"d", 0o755).expect("made");
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, p, id) in [
        (1u16, 7u16, u32::MAX),
        (2, 7, 1000),
        (4, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 5, u32::MAX),
    ] {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&p.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    t.fs.set_xattr(&root(), &dir, posix_acl::DEFAULT, &acl, XattrMode::Any)
        .expect("set");
    let who = Credentials {
        umask: 0o077,
        ..root()
    };
    let sub = t.fs.mkdir(&who, &dir, b"sub", 0o777).expect("made");
    let file = t.fs.create(&who, &dir, b"f", 0o666).expect("made");
    assert_eq!(
        t.fs.get_xattr(&root(), &sub, posix_acl::DEFAULT)
            .expect("inherited"),
        acl
    );
    assert_eq!(file.attributes().mode & 0o777, 0o664);
    assert!(
        t.fs.access(&Credentials::enforced(1000, 1, &[]), &file, 2)
            .is_ok()
    );
    t.fs.setattr(
        &root(),
        &file,
        &crate::SetAttr {
            mode: Some(0o644),
            ..Default::default()
        },
    )
    .expect("set");
    assert!(
        t.fs.access(&Credentials::enforced(1000, 1, &[]), &file, 2)
            .is_err()
    );
    // An ACL equivalent to the mode is not stored.
    let mut plain = 2u32.to_le_bytes().to_vec();
    for (tag, p) in [(1u16, 6u16), (4, 4), (0x20, 0)] {
        plain.extend_from_slice(&tag.to_le_bytes());
        plain.extend_from_slice(&p.to_le_bytes());
        plain.extend_from_slice(&u32::MAX.to_le_bytes());
    }
    t.fs.set_xattr(&root(), &file, posix_acl::ACCESS, &plain, XattrMode::Any)
        .expect("set");
    assert_eq!(file.attributes().mode & 0o777, 0o640);
    assert!(
        t.fs.get_xattr(&root(), &file, posix_acl::ACCESS)
            .is_err_and(|e| e.is(Errno::NODATA))
    );
    drop((top, dir, sub, file));
    let t = t.remount();
    clean::check(&t.fs);
}

#[test]
fn concurrent_sets_of_one_name_are_seen_whole_wherever_they_go() {
    // Inline, spill block, directory.
    const SIZES: [usize; 4] = [20, 3_000, 40_000, 65_536];
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    t.fs.set_xattr(&root(), &file, b"user.k", &[0; 20], XattrMode::Any)
        .expect("set");
    std::thread::scope(|scope| {
        for writer in 0..3u8 {
            let (t, file) = (&t, &file);
            scope.spawn(move || {
                for round in 0..60 {
                    let value = vec![writer; SIZES[(round + usize::from(writer)) % SIZES.len()]];
                    t.fs.set_xattr(&root(), file, b"user.k", &value, XattrMode::Any)
                        .expect("set");
                    let own = format!("user.own{writer}");
                    t.fs.set_xattr(&root(), file, own.as_bytes(), &[writer], XattrMode::Any)
                        .expect("set");
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let value =
                        t.fs.get_xattr(&root(), &file, b"user.k")
                            .expect("always there");
                    let first = value[0];
                    assert!(value.iter().all(|b| *b == first) && SIZES.contains(&value.len()));
                }
            });
        }
    });
    let mut names = t.fs.list_xattrs(&root(), &file).expect("lists");
    names.sort();
    assert_eq!(
        names,
        [&b"user.k"[..], b"user.own0", b"user.own1", b"user.own2"],
        "none lost, none twice"
    );
    drop((top, file));
    let t = t.remount();
    clean::check(&t.fs);
}

#[test]
fn names_and_values_have_the_limits_of_linux() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let set = |name: &[u8], len: usize| {
        t.fs.set_xattr(&root(), &file, name, &vec![7; len], XattrMode::Any)
    };
    let longest = [&b"user."[..], &[b'n'; 250]].concat();
    set(&longest, 1).expect("255 bytes");
    let longer = [&longest[..], b"n"].concat();
    assert!(set(&longer, 1).is_err_and(|e| e.is(Errno::RANGE)));
    assert!(set(b"", 1).is_err_and(|e| e.is(Errno::RANGE)));
    set(b"user.v", 65_536).expect("64K");
    assert!(set(b"user.v", 65_537).is_err_and(|e| e.is(zuse_dmu::zap::TOO_BIG)));
    assert_eq!(
        t.fs.get_xattr(&root(), &file, b"user.v")
            .expect("the old")
            .len(),
        65_536
    );
    // More than the list can take: the others go to the directory, and the listed order is list
    // first.
    for n in 0..3u8 {
        set(&[b"user.big", &[b'0' + n][..]].concat(), 30_000).expect("set");
    }
    assert_ne!(file.attributes().xattr, 0);
    let names = t.fs.list_xattrs(&root(), &file).expect("lists");
    assert_eq!(names.len(), 5);
    assert_eq!(&names[1..3], [b"user.big0".to_vec(), b"user.big1".to_vec()]);
    // A value that fits again after others were removed moves back into the list.
    for name in [&b"user.big0"[..], b"user.big1"] {
        t.fs.remove_xattr(&root(), &file, name).expect("removed");
    }
    set(b"user.big2", 30_000).expect("set");
    let names = t.fs.list_xattrs(&root(), &file).expect("lists");
    assert_eq!(names, [longest, b"user.big2".to_vec(), b"user.v".to_vec()]);
    drop((top, file));
    clean::check(&t.remount().fs);
}

#[test]
fn larger_dnodes_hold_larger_values_and_without_xattrs_only_user_names_are_refused() {
    let t = TestFs::new();
    t.backing.set_props(|p| p.dnode_slots = 2);
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let set = |name: &[u8], len: usize| {
        t.fs.set_xattr(&root(), &file, name, &vec![7; len], XattrMode::Any)
    };
    set(b"user.foo", 600).expect("set");
    assert!(!file.dnode().has_spill(), "dnodesize=auto: 1K");
    set(b"user.foo", 601).expect("set");
    assert!(file.dnode().has_spill());
    t.backing.set_props(|p| p.xattr = XattrPlace::Off);
    assert!(set(b"user.foo", 1).is_err_and(|e| e.is(Errno::NOTSUP)));
    let got = t.fs.get_xattr(&root(), &file, b"user.foo");
    assert!(got.is_err_and(|e| e.is(Errno::NOTSUP)));
    set(b"trusted.t", 5).expect("set");
    let got = t.fs.get_xattr(&root(), &file, b"trusted.t").expect("there");
    assert_eq!(got, [7; 5]);
    drop((top, file));
    clean::check(&t.remount().fs);
}

#[test]
fn bare_names_of_other_systems_are_found_and_replaced() {
    let t = TestFs::new();
    t.backing.set_props(|p| p.xattr_bare = true);
    let top = t.fs.root().expect("root");
    for place in [XattrPlace::Sa, XattrPlace::Dir] {
        let file =
            t.fs.create(&root(), &top, format!("{place:?}").as_bytes(), 0o644);
        let file = file.expect("made");
        t.backing
            .set_props(|p| (p.xattr, p.xattr_bare) = (place, true));
        let set = |value: &[u8]| {
            t.fs.set_xattr(&root(), &file, b"user.x", value, XattrMode::Any)
                .expect("set");
        };
        let seen = |value: &[u8]| {
            assert_eq!(
                t.fs.list_xattrs(&root(), &file).expect("lists"),
                [b"user.x".to_vec()]
            );
            assert_eq!(
                t.fs.get_xattr(&root(), &file, b"user.x").expect("there"),
                value
            );
            let mut stored = Vec::new();
            t.fs.stored_names(&file, &mut |n| stored.push(n.to_vec()));
            stored
        };
        set(b"bare");
        assert_eq!(seen(b"bare"), [b"x".to_vec()]);
        t.backing.set_props(|p| p.xattr_bare = false);
        set(b"with its prefix");
        assert_eq!(seen(b"with its prefix"), [b"user.x".to_vec()]);
        t.backing.set_props(|p| p.xattr_bare = true);
        set(b"bare again");
        assert_eq!(seen(b"bare again"), [b"x".to_vec()]);
        t.fs.remove_xattr(&root(), &file, b"user.x")
            .expect("removed");
        assert!(t.fs.list_xattrs(&root(), &file).expect("lists").is_empty());
    }
    drop(top);
    clean::check(&t.remount().fs);
}

#[test]
fn a_spill_block_is_read_by_who_wants_attributes_that_are_there() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    for name in [&b"one"[..], b"two"] {
        let file = t.fs.create(&root(), &top, name, 0o644).expect("made");
        for n in 0..3u8 {
            let attribute = [&b"user.v"[..], &[b'0' + n]].concat();
            t.fs.set_xattr(&root(), &file, &attribute, &[n; 30_000], XattrMode::Any)
                .expect("set");
        }
        assert_ne!(
            file.attributes().xattr,
            0,
            "one of them is in the directory"
        );
    }
    drop(top);
    let t = t.remount();
    t.backing.forget_cache();
    let top = t.fs.root().expect("root");
    let misses = || t.fs.objset.io().cache().stats().misses;
    let file = t.fs.lookup(&root(), &top, b"one").expect("found");
    let before = misses();
    assert_eq!(t.fs.getattr(&file).attributes.size, 0);
    // Its neighbour is in the same dnode block.
    let other = t.fs.lookup(&root(), &top, b"two").expect("found");
    assert_eq!(misses(), before);
    for n in 0..3u8 {
        let attribute = [&b"user.v"[..], &[b'0' + n]].concat();
        let value = t.fs.get_xattr(&root(), &file, &attribute).expect("there");
        assert_eq!(value, [n; 30_000]);
    }
    assert!(misses() > before);
    drop((file, other));
    // Files in the hidden directory are freed with their file, whether they were looked up before
    // or not.
    for name in [&b"one"[..], b"two"] {
        t.fs.unlink(&root(), &top, name).expect("removed");
    }
    drop(top);
    let t = t.remount();
    clean::check(&t.fs);
    let mut left = Vec::new();
    let mut at = zuse_base::ObjectId(0);
    while let Some(object) = t.fs.objset.next_object(at).expect("read") {
        at = object;
        let dnode = t.fs.objset.dnode(object).expect("there");
        left.extend((dnode.bonus_type() == 44).then_some(object));
    }
    assert_eq!(left, [t.fs.root_id()]);
}

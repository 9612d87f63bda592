//! One operation is one unit in the log: no power cut leaves half of it.

use super::*;

/// In which order the log would write operations: as they came, and all names before what else was
/// done to objects.
fn orders(noted: Vec<Note>) -> [Vec<Vec<Intent>>; 2] {
    let (mut came, mut names) = (Vec::new(), Vec::new());
    let mut objects: HashMap<ObjectId, Vec<Vec<Intent>>> = HashMap::new();
    for note in noted {
        match note {
            Note::Done(operation) => {
                match operation[0].order {
                    Order::Names => names.push(operation.clone()),
                    Order::Object(o) => objects.entry(o).or_default().push(operation.clone()),
                }
                came.push(operation);
            }
            Note::Staged(object) => names.extend(objects.remove(&object).unwrap_or_default()),
        }
    }
    names.extend(objects.into_values().flatten());
    [came, names]
}

/// Does an operation, and gives what a cut may leave of it. Another thread's commit comes between
/// two notes, or the power goes between two blocks.
fn cuts_within(
    work: &Work,
    log: &Noted,
    op: impl FnOnce(&Arc<FileSystem>),
) -> Vec<Arc<FileSystem>> {
    let backing = &work.t.backing;
    backing.wait_synced(backing.open_txg()).expect("written");
    log.noted.lock().clear();
    op(&work.t.fs);
    let mut trees = Vec::new();
    for order in orders(std::mem::take(&mut *log.noted.lock())) {
        let mut records = Vec::new();
        for operation in order.iter().take_while(|o| !o[0].record.is_empty()) {
            for intent in operation {
                records.extend(log.whole(intent.clone()).expect("read"));
            }
            let again = replayed(&work.t, &records, 0).expect("replayed");
            trees.push(again);
        }
    }
    trees
}

#[test]
fn no_cut_finds_half_of_what_an_object_has_of_its_directory() {
    const ACL: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x05\0\0\0\
        \x04\0\x04\0\xff\xff\xff\xff\x10\0\x06\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
    for place in [XattrPlace::Sa, XattrPlace::Dir] {
        let (work, log) = work(1);
        work.t.backing.set_props(|p| p.xattr = place);
        let (fs, who, top) = (
            &work.t.fs,
            Credentials::root(),
            work.t.fs.root().expect("root"),
        );
        let dir = fs.mkdir(&who, &top, b"d", 0o777).expect("made");
        let name = crate::posix_acl::DEFAULT;
        fs.set_xattr(&who, &dir, name, ACL, XattrMode::Any)
            .expect("set");
        fs.set_project(&who, &dir, 3).expect("set");
        fs.set_flags(&who, &dir, flags::PROJINHERIT).expect("set");
        let before = lines(fs).expect("read");
        let trees = cuts_within(&work, &log, |fs| {
            fs.mkdir(&who, &dir, b"e", 0o777).expect("made");
        });
        let after = lines(fs).expect("read");
        assert_eq!(after[2].project, 3);
        assert_eq!(after[2].entry.xattrs.len(), 2, "its ACLs");
        for tree in &trees {
            let tree = lines(tree).expect("read");
            assert!(tree == before || tree == after, "{place:?}: {tree:#?}");
        }
        // Files of hidden directories would be operations of their own: that is for the txg.
        assert_eq!(trees.is_empty(), place == XattrPlace::Dir, "{place:?}");
    }
}

#[test]
fn no_cut_finds_an_attribute_neither_with_its_old_value_nor_with_the_new_one() {
    let (work, log) = work(1);
    let (fs, who, top) = (
        &work.t.fs,
        Credentials::root(),
        work.t.fs.root().expect("root"),
    );
    let file = fs.create(&who, &top, b"a", 0o644).expect("made");
    let places = [
        XattrPlace::Dir,
        XattrPlace::Dir,
        XattrPlace::Sa,
        XattrPlace::Sa,
        XattrPlace::Dir,
    ];
    let mut checked = 0;
    for (i, place) in (1u8..).zip(places) {
        work.t.backing.set_props(|p| p.xattr = place);
        let trees = cuts_within(&work, &log, |fs| {
            fs.set_xattr(&who, &file, b"user.a", &[i; 3000], XattrMode::Any)
                .expect("set");
        });
        for tree in trees {
            checked += 1;
            let top = tree.root().expect("root");
            let file = tree.lookup(&who, &top, b"a").expect("there");
            let found = tree.get_xattr(&who, &file, b"user.a").ok();
            let is = |n: u8| found.as_deref() == Some(&[n; 3000]);
            assert!(
                is(i) || is(i - 1) || i == 1 && found.is_none(),
                "{i}, {place:?}"
            );
        }
    }
    assert!(checked > 10, "{checked}");
}

type Change<'a> = &'a dyn Fn(&Arc<FileSystem>);

/// Modes, owners, and the ACLs that say the same.
#[test]
fn no_cut_finds_a_mode_without_the_acl_that_says_the_same() {
    const ACL: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x06\0\x05\0\0\0\
        \x04\0\x04\0\xff\xff\xff\xff\x10\0\x06\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
    const PLAIN: &[u8] = b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\
        \x04\0\x05\0\xff\xff\xff\xff\x20\0\x05\0\xff\xff\xff\xff";
    let access = crate::posix_acl::ACCESS;
    for place in [XattrPlace::Sa, XattrPlace::Dir] {
        let (work, log) = work(1);
        work.t.backing.set_props(|p| p.xattr = place);
        let (who, top) = (Credentials::root(), work.t.fs.root().expect("root"));
        let file = work.t.fs.create(&who, &top, b"a", 0o600).expect("made");
        let set_acl = |fs: &Arc<FileSystem>, acl: &[u8]| {
            fs.set_xattr(&who, &file, access, acl, XattrMode::Any)
                .expect("set");
        };
        let change = |fs: &Arc<FileSystem>, mode: Option<u32>, uid: Option<u32>| {
            let set = SetAttr {
                mode,
                uid,
                ..SetAttr::default()
            };
            fs.setattr(&who, &file, &set).expect("set");
        };
        let operations: [Change<'_>; 8] = [
            &|fs| set_acl(fs, ACL),
            &|fs| change(fs, Some(0o604), None),
            &|fs| change(fs, Some(0o4670), Some(7)),
            &|fs| change(fs, None, Some(8)),
            &|fs| set_acl(fs, PLAIN),
            &|fs| set_acl(fs, ACL),
            &|fs| fs.remove_xattr(&who, &file, access).expect("removed"),
            &|fs| change(fs, Some(0o4711), Some(9)),
        ];
        for (i, operation) in operations.into_iter().enumerate() {
            let before = lines(&work.t.fs).expect("read");
            let trees = cuts_within(&work, &log, operation);
            let after = lines(&work.t.fs).expect("read");
            assert_ne!(before, after, "{i}");
            assert!(!trees.is_empty(), "{i}: nothing was noted");
            for tree in &trees {
                let tree = lines(tree).expect("read");
                let whole = tree == before || tree == after;
                assert!(whole, "{place:?}, {i}: {tree:#?}, wanted {after:#?}");
            }
        }
    }
}

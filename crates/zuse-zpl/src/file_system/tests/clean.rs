//! The rules of a clean file system (chapter 03c §10 of the format notes), checked over all
//! objects.

use std::collections::{BTreeMap, BTreeSet};

use zuse_base::ObjectId;
use zuse_dmu::Dnode;
use zuse_dmu::sa::Attr;
use zuse_dmu::zap::Zap;
use zuse_format::object_type;

use crate::attributes::{Attributes, XATTR_UNREAD};
use crate::file_system::FileSystem;
use crate::{dirent, flags, mode};

/// Panics with the first broken rule. Nothing may be open.
pub(crate) fn check(fs: &FileSystem) {
    // Usage is counted when a txg is written.
    fs.backing
        .wait_synced(fs.backing.open_txg())
        .expect("written");
    let os = &fs.objset;
    let znodes = attributes_of_all(fs);
    let root = znodes[&fs.root_id().0];
    assert!(
        root.is_dir() && root.parent == fs.root_id().0 && root.links >= 2,
        "root {root:?}"
    );
    let mut names: BTreeMap<u64, u64> = BTreeMap::new();
    let mut owned = BTreeSet::new();
    for (object, a) in &znodes {
        if a.xattr != 0 {
            assert!(
                znodes[&a.xattr].flags & flags::XATTR != 0,
                "attribute space of {object}"
            );
            assert_eq!(znodes[&a.xattr].parent, *object);
            assert!(owned.insert(a.xattr), "two owners of {}", a.xattr);
        }
        let dnode = os.dnode(ObjectId(*object)).expect("there");
        if !a.is_dir() {
            assert_eq!(dnode.object_type(), object_type::PLAIN_FILE_CONTENTS);
            check_end(*object, a, &dnode);
            continue;
        }
        check_directory(fs, *object, &znodes, &mut names);
    }
    fs.store_unlinked().expect("written");
    let mut unlinked = BTreeSet::new();
    fs.unlinked_set()
        .expect("there")
        .list(0, &mut |_, value, _| unlinked.insert(value))
        .expect("readable");
    for (object, a) in &znodes {
        let named = names.get(object).copied().unwrap_or(0);
        assert_eq!(
            a.links == 0,
            unlinked.contains(object),
            "object {object} in the unlinked set"
        );
        if *object == fs.root_id().0 || owned.contains(object) || a.links == 0 {
            continue;
        }
        assert_eq!(
            named,
            if a.is_dir() { 1 } else { a.links },
            "names of object {object}"
        );
    }
    for object in unlinked {
        assert!(
            znodes.contains_key(&object),
            "the unlinked set names {object}"
        );
    }
    check_usage(fs, &znodes);
}

/// A directory's counts match its entries, which are added to `names`.
fn check_directory(
    fs: &FileSystem,
    object: u64,
    znodes: &BTreeMap<u64, Attributes>,
    names: &mut BTreeMap<u64, u64>,
) {
    let a = &znodes[&object];
    let dnode = fs.objset.dnode(ObjectId(object)).expect("there");
    let (mut entries, mut subdirs) = (0, 0);
    Zap::open(&dnode)
        .expect("a directory")
        .list(0, &mut |name, value, _| {
            let child = dirent::object(value).0;
            let c = znodes
                .get(&child)
                .unwrap_or_else(|| panic!("{} leads nowhere", String::from_utf8_lossy(name)));
            if fs.version >= 2 {
                assert_eq!(dirent::kind(value), c.kind(), "type of {child}");
            }
            entries += 1;
            if c.is_dir() {
                subdirs += 1;
                assert_eq!(c.parent, object, "parent of {child}");
            }
            *names.entry(child).or_default() += 1;
            true
        })
        .expect("readable");
    assert_eq!(a.size, entries + 2, "size of directory {object}");
    if a.links != 0 {
        assert_eq!(a.links, subdirs + 2, "links of directory {object}");
    }
}

/// The attributes of each object that has some.
fn attributes_of_all(fs: &FileSystem) -> BTreeMap<u64, Attributes> {
    let os = &fs.objset;
    let mut znodes = BTreeMap::new();
    let mut at = ObjectId(0);
    while let Some(object) = os.next_object(at).expect("readable") {
        at = object;
        let dnode = os.dnode(object).expect("there");
        if matches!(dnode.bonus_type(), 44 | 17) {
            let mut attributes = fs.store.load(&dnode).expect("attributes");
            if attributes.xattr == XATTR_UNREAD {
                let view = fs.store.table().view(&dnode).expect("a view");
                attributes.xattr = view.u64(Attr::Xattr).expect("a spill block").unwrap_or(0);
            }
            znodes.insert(object.0, attributes);
        }
    }
    znodes
}

/// Nothing but zeros is behind the end of a file.
fn check_end(object: u64, a: &Attributes, dnode: &Dnode) {
    if a.kind() != mode::REGULAR {
        return;
    }
    let block = u64::from(dnode.block_size());
    assert!(
        dnode.max_block() == 0 || block.is_power_of_two(),
        "object {object}"
    );
    assert!(
        dnode.max_block() * block < a.size.max(1),
        "object {object}: block behind the end"
    );
    let end = (dnode.max_block() + 1) * block;
    if end > a.size {
        let mut rest = vec![1; (end - a.size) as usize];
        dnode.read_at(a.size, &mut rest).expect("readable");
        assert!(
            rest.iter().all(|b| *b == 0),
            "object {object}: data behind the end"
        );
    }
}

/// The objects of each owner are counted right.
fn check_usage(fs: &FileSystem, znodes: &BTreeMap<u64, Attributes>) {
    let os = &fs.objset;
    for which in 0..3 {
        let Some(dnode) = os.accounting_object(which) else {
            continue;
        };
        let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
        for a in znodes.values() {
            *counted.entry([a.uid, a.gid, a.projid][which]).or_default() += 1;
        }
        let mut stored = BTreeMap::new();
        Zap::open(&dnode)
            .expect("a ZAP")
            .list(0, &mut |name, value, _| {
                if let Some(id) = name.strip_prefix(b"obj-") {
                    let id = u64::from_str_radix(std::str::from_utf8(id).expect("hex"), 16)
                        .expect("hex");
                    stored.insert(id, value);
                }
                true
            })
            .expect("readable");
        assert_eq!(stored, counted, "objects by id, table {which}");
    }
}

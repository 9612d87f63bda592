//! Attributes of objects in an object set in memory.

use super::*;
use crate::Settings;
use crate::dnode::{Dnode, DnodeSpec};
use crate::sa::dxattr::{Dxattr, List};
use crate::zap::tests::pool::TestPool;
use crate::zap::{Zap, ZapValue};
use std::sync::Arc;
use zuse_base::{Errno, ObjectId};

const TIME: [u8; 16] = [
    0x00, 0xf1, 0x53, 0x65, 0, 0, 0, 0, 0x15, 0xcd, 0x5b, 0x07, 0, 0, 0, 0,
];

fn file_set() -> Vec<(Attr, Vec<u8>)> {
    let n = |v: u64| v.to_le_bytes().to_vec();
    let aces = hex("000000109f011e00 0000402089001200 0000004089001200");
    // In no particular order.
    vec![
        (Attr::DaclAces, aces),
        (Attr::Atime, TIME.to_vec()),
        (Attr::Mtime, TIME.to_vec()),
        (Attr::Ctime, TIME.to_vec()),
        (Attr::Crtime, TIME.to_vec()),
        (Attr::Mode, n(0o100_644)),
        (Attr::Size, n(0)),
        (Attr::Gen, n(12)),
        (Attr::Uid, n(1000)),
        (Attr::Gid, n(100)),
        (Attr::Parent, n(34)),
        (Attr::Flags, n(0x8408_0000_0004)),
        (Attr::Links, n(1)),
        (Attr::Projid, n(0)),
        (Attr::DaclCount, n(3)),
    ]
}

fn borrowed(set: &[(Attr, Vec<u8>)]) -> Vec<(Attr, &[u8])> {
    set.iter().map(|(a, v)| (*a, v.as_slice())).collect()
}

fn new_object(pool: &TestPool, slots: u8) -> Arc<Dnode> {
    pool.os
        .allocate(
            &pool.tx(),
            &DnodeSpec::new(19).bonus(SA_BONUS, 0).slots(slots),
        )
        .unwrap()
}

fn blob(len: usize) -> Vec<u8> {
    let mut set = Dxattr::default();
    let mut left = len - 48;
    if left > 30_000 {
        set.set(b"user.bar", &vec![8; 30_000]).unwrap();
        left -= 30_028;
    }
    set.set(b"user.foo", &vec![7; left]).unwrap();
    assert_eq!(set.encoded_len(), len);
    set.encode()
}

#[test]
fn a_new_file_system_gets_its_tables_with_the_first_file() {
    let mut pool = TestPool::new(Settings::default());
    let (master, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let zap = Zap::open(&pool.os.dnode(master).unwrap()).unwrap();
    assert_eq!(zap.count().unwrap(), 0);
    let file = new_object(&pool, 1);
    table
        .init(&pool.tx(), &file, &borrowed(&file_set()))
        .unwrap();
    assert_eq!(file.bonus_vec(), hex(FILE_BYTES));

    let registry = ObjectId(zap.lookup_u64(b"REGISTRY").unwrap().unwrap());
    let layouts = ObjectId(zap.lookup_u64(b"LAYOUTS").unwrap().unwrap());
    let registry = Zap::open(&pool.os.dnode(registry).unwrap()).unwrap();
    assert_eq!(
        (
            registry.count().unwrap(),
            registry.dnode().block_size(),
            registry.dnode().object_type()
        ),
        (22, 1536, 46)
    );
    assert_eq!(
        registry.lookup_u64(b"ZPL_ZNODE_ACL").unwrap(),
        Some(0x5803_000f)
    );
    assert_eq!(
        registry.lookup_u64(b"ZPL_PROJID").unwrap(),
        Some(0x800_0015)
    );
    let layouts = Zap::open(&pool.os.dnode(layouts).unwrap()).unwrap();
    assert!(layouts.is_fat().unwrap() && layouts.dnode().object_type() == 47);
    assert_eq!(layouts.lookup(b"2").unwrap(), Some(ZapValue::u16s(&FILE)));
    assert_eq!(layouts.count().unwrap(), 1);

    let object = file.object();
    drop((file, zap, registry, layouts, table));
    pool.reopen();
    let table = SaTable::open(&pool.os, master).unwrap();
    let file = pool.os.dnode(object).unwrap();
    let view = table.view(&file).unwrap();
    assert_eq!(view.u64(Attr::Uid).unwrap(), Some(1000));
    assert_eq!(
        view.time(Attr::Mtime).unwrap(),
        Some((1_700_000_000, 123_456_789))
    );
    assert_eq!(view.get(Attr::DaclAces).unwrap().map(<[u8]>::len), Some(24));
    assert_eq!(view.get(Attr::Dxattr).unwrap(), None);
    let same = new_object(&pool, 1);
    table
        .init(&pool.tx(), &same, &borrowed(&file_set()))
        .unwrap();
    assert_eq!(
        same.bonus_vec(),
        file.bonus_vec(),
        "the layout is found again"
    );
}

#[test]
fn values_of_the_same_length_are_overwritten_in_place() {
    let pool = TestPool::new(Settings::default());
    let (_, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let file = new_object(&pool, 1);
    table
        .init(&pool.tx(), &file, &borrowed(&file_set()))
        .unwrap();
    let (size, time) = (4096u64.to_le_bytes(), [1u8; 16]);
    table
        .update(
            &pool.tx(),
            &file,
            &[
                (Attr::Size, &size),
                (Attr::Mtime, &time),
                (Attr::Ctime, &time),
            ],
        )
        .unwrap();
    let mut want = hex(FILE_BYTES);
    want[0x10..0x18].copy_from_slice(&size);
    want[0x50..0x60].fill(1);
    want[0x60..0x70].fill(1);
    assert_eq!(file.bonus_vec(), want);
    assert!(
        table
            .update(&pool.tx(), &file, &[(Attr::Size, &[1, 2])])
            .unwrap_err()
            .is(Errno::INVAL)
    );
    assert_eq!(file.bonus_vec(), want);
}

fn put(pool: &TestPool, table: &SaTable, file: &Arc<Dnode>, attr: Attr, value: &[u8]) {
    table.update(&pool.tx(), file, &[(attr, value)]).unwrap();
}

/// The table of layouts.
fn layouts(pool: &TestPool, master: ObjectId) -> Zap {
    let zap = Zap::open(&pool.os.dnode(master).unwrap()).unwrap();
    let object = ObjectId(zap.lookup_u64(b"LAYOUTS").unwrap().unwrap());
    Zap::open(&pool.os.dnode(object).unwrap()).unwrap()
}

#[test]
fn extended_attributes_grow_into_the_spill_block_and_come_back() {
    let mut pool = TestPool::new(Settings::default());
    let (master, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let file = new_object(&pool, 1);
    table
        .init(&pool.tx(), &file, &borrowed(&file_set()))
        .unwrap();
    put(&pool, &table, &file, Attr::Dxattr, &blob(52));
    let bonus = file.bonus_vec();
    assert_eq!((bonus.len(), &bonus[..6]), (236, &hex("5a502f00 0308")[..]));
    assert_eq!(&bonus[6..18], &hex("1800 3400 0000 0000 0000 a481")[..]);
    assert_eq!(&bonus[0xb8..], &blob(52)[..]);

    put(&pool, &table, &file, Attr::Dxattr, &blob(196));
    let (bonus, spill) = (file.bonus_vec(), file.spill().unwrap().unwrap());
    assert_eq!((bonus.len(), &bonus[4..8]), (192, &hex("0204 1800")[..]));
    assert_eq!(spill.len(), 512);
    assert_eq!(&spill[..8], &hex("5a502f000404c400")[..]);
    assert_eq!(&spill[8..8 + 196], &blob(196)[..]);

    put(&pool, &table, &file, Attr::Xattr, &99u64.to_le_bytes());
    let spill = file.spill().unwrap().unwrap();
    assert_eq!(&spill[..8], &hex("5a502f000504c400")[..]);
    assert_eq!(&spill[0xd0..0xd8], &99u64.to_le_bytes());
    let object = file.object();
    drop((file, table));
    pool.reopen();
    let table = SaTable::open(&pool.os, master).unwrap();
    let file = pool.os.dnode(object).unwrap();
    let view = table.view(&file).unwrap();
    assert_eq!(view.u64(Attr::Xattr).unwrap(), Some(99));
    assert_eq!(view.get(Attr::Dxattr).unwrap(), Some(&blob(196)[..]));
    assert_eq!(view.u64(Attr::Mode).unwrap(), Some(0o100_644));

    // An attribute of the bonus is changed in place while the spill stays.
    put(&pool, &table, &file, Attr::Links, &2u64.to_le_bytes());
    assert_eq!(
        table.view(&file).unwrap().u64(Attr::Xattr).unwrap(),
        Some(99)
    );

    put(&pool, &table, &file, Attr::Dxattr, &blob(60_000));
    let large = file.spill().unwrap().unwrap().len();
    assert_eq!(large, 60_416);
    put(&pool, &table, &file, Attr::Dxattr, &blob(600));
    assert_eq!(
        file.spill().unwrap().unwrap().len(),
        large,
        "it does not shrink while it is there"
    );

    put(&pool, &table, &file, Attr::Dxattr, &blob(52));
    assert!(file.spill().unwrap().is_none());
    let view = table.view(&file).unwrap();
    assert_eq!(view.u64(Attr::Xattr).unwrap(), Some(99));
    assert_eq!(view.u64(Attr::Links).unwrap(), Some(2));
    assert!(table.remove(&pool.tx(), &file, Attr::Xattr).unwrap());
    assert!(!table.remove(&pool.tx(), &file, Attr::Xattr).unwrap());
    assert_eq!(
        &file.bonus_vec()[4..6],
        &hex("0308")[..],
        "the layout with DXATTR alone"
    );
    let layouts = layouts(&pool, master);
    assert_eq!(layouts.lookup(b"4").unwrap(), Some(ZapValue::u16s(&[20])));
    assert_eq!(
        layouts.lookup(b"5").unwrap(),
        Some(ZapValue::u16s(&[20, 9]))
    );
}

#[test]
fn a_list_put_behind_the_other_attributes_is_as_in_a_set_that_is_rewritten() {
    let pool = TestPool::new(Settings::default());
    let (_, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let ctime = [9u8; 16];
    let mut forms = [0; 2];
    // With many entries the other attributes do not fit the bonus beside a spill pointer.
    for (slots, aces) in [(1, 24), (2, 24), (1, 56), (1, 88)] {
        for len in (48..180).chain([504, 505, 540, 560, 580, 600, 640, 700, 20_000]) {
            let [behind, rewritten, given] = [(); 3].map(|()| {
                let file = new_object(&pool, slots);
                let mut set = file_set();
                set[0].1.resize(aces, 3);
                table.init(&pool.tx(), &file, &borrowed(&set)).unwrap();
                file
            });
            let list = vec![len as u8; len];
            let mut changes = [(Attr::Ctime, &ctime[..]), (Attr::Dxattr, &list[..])];
            let owned = List::holding(&list);
            table
                .update_listed(&pool.tx(), &given, &changes[..1], owned)
                .unwrap();
            table.update(&pool.tx(), &behind, &changes).unwrap();
            // The list is not the last of the changes: the whole set is rewritten.
            changes.reverse();
            table.update(&pool.tx(), &rewritten, &changes).unwrap();
            assert_eq!(behind.bonus_vec(), rewritten.bonus_vec(), "{slots}, {len}");
            assert_eq!(given.bonus_vec(), rewritten.bonus_vec(), "{slots}, {len}");
            let spill = |file: &Dnode| file.spill().unwrap().map(|b| b.bytes().to_vec());
            assert_eq!(spill(&behind), spill(&rewritten), "{slots}, {len}");
            assert_eq!(spill(&given), spill(&rewritten), "{slots}, {len}");
            forms[usize::from(behind.has_spill())] += 1;
            let view = table.view(&behind).unwrap();
            assert_eq!(view.get(Attr::Dxattr).unwrap(), Some(&list[..]));
            assert_eq!(view.get(Attr::Ctime).unwrap(), Some(&ctime[..]));
        }
    }
    assert_eq!(forms, [310, 254], "in the bonus, in a spill block");
}

#[test]
fn a_list_goes_to_a_spill_block_as_it_is_where_none_was_ever_in_a_bonus() {
    let pool = TestPool::new(Settings::default());
    let (_, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let ctime = [9u8; 16];
    let mut as_it_is = Vec::new();
    // Whether it is the object's first list. Otherwise it replaces one in the bonus (if that has
    // room for both) or in a spill block.
    for (slots, before) in [(1, 0), (1, 64), (2, 64), (1, 2000)] {
        for len in [900, 1024, 20_000] {
            let [rewritten, given] = [(); 2].map(|()| {
                let file = new_object(&pool, slots);
                table
                    .init(&pool.tx(), &file, &borrowed(&file_set()))
                    .unwrap();
                if before > 0 {
                    let old = [(Attr::Dxattr, &blob(before)[..])];
                    table.update(&pool.tx(), &file, &old).unwrap();
                }
                file
            });
            let list = blob(len);
            let changes = [(Attr::Dxattr, &list[..]), (Attr::Ctime, &ctime[..])];
            // The list is not the last of the changes: the whole set is rewritten.
            table.update(&pool.tx(), &rewritten, &changes).unwrap();
            let owned = List::holding(&list);
            let there = owned.as_ptr();
            table
                .update_listed(&pool.tx(), &given, &changes[1..], owned)
                .unwrap();
            assert_eq!(
                given.bonus_vec(),
                rewritten.bonus_vec(),
                "{slots}, {before}, {len}"
            );
            let [ours, theirs] = [&given, &rewritten].map(|f| f.spill().unwrap().unwrap());
            assert_eq!(ours.bytes(), theirs.bytes(), "{slots}, {before}, {len}");
            let view = table.view(&given).unwrap();
            assert_eq!(view.get(Attr::Dxattr).unwrap(), Some(&list[..]));
            assert_eq!(view.get(Attr::Ctime).unwrap(), Some(&ctime[..]));
            as_it_is.push(ours.bytes().as_ptr_range().contains(&there));
        }
    }
    assert_eq!(
        as_it_is,
        [[true; 3], [false; 3], [false; 3], [false; 3]].concat()
    );
}

#[test]
fn a_directory_put_behind_the_other_attributes_is_as_in_a_set_that_is_rewritten() {
    let pool = TestPool::new(Settings::default());
    let (_, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let (ctime, space) = ([9u8; 16], 99u64.to_le_bytes());
    let mut forms = [0; 2];
    let mut was_known = 0;
    for (slots, aces) in [(1, 24), (2, 24), (1, 56), (1, 88)] {
        // Alone, and after a list that leaves less and less room.
        for len in [0].into_iter().chain((48..180).step_by(4)) {
            let list = vec![len as u8; len];
            let [behind, rewritten] = [(); 2].map(|()| {
                let file = new_object(&pool, slots);
                let mut set = file_set();
                set[0].1.resize(aces, 3);
                table.init(&pool.tx(), &file, &borrowed(&set)).unwrap();
                if len > 0 {
                    table
                        .update(&pool.tx(), &file, &[(Attr::Dxattr, &list)])
                        .unwrap();
                }
                file
            });
            let info = u16::from_le_bytes(behind.bonus_vec()[4..6].try_into().unwrap());
            let tables = table.tables();
            was_known += usize::from(tables.longer(info & 0x3ff, Attr::Xattr).is_some());
            let mut changes = [(Attr::Ctime, &ctime[..]), (Attr::Xattr, &space[..])];
            table.update(&pool.tx(), &behind, &changes).unwrap();
            // It is not the last of the changes: the whole set is rewritten.
            changes.reverse();
            table.update(&pool.tx(), &rewritten, &changes).unwrap();
            assert_eq!(behind.bonus_vec(), rewritten.bonus_vec(), "{slots}, {len}");
            let spill = |file: &Dnode| file.spill().unwrap().map(|b| b.bytes().to_vec());
            assert_eq!(spill(&behind), spill(&rewritten), "{slots}, {len}");
            forms[usize::from(behind.has_spill())] += 1;
            let view = table.view(&behind).unwrap();
            assert_eq!(view.u64(Attr::Xattr).unwrap(), Some(99));
            assert_eq!(view.get(Attr::Ctime).unwrap(), Some(&ctime[..]));
            let there = view.get(Attr::Dxattr).unwrap();
            assert_eq!(there.unwrap_or_default(), list);
        }
    }
    assert_eq!(forms, [76, 60], "in the bonus, with a spill block");
    assert_eq!(was_known, 90);
}

#[test]
fn a_project_id_moves_an_older_set_into_canonical_order() {
    let pool = TestPool::new(Settings::default());
    let (_, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let file = new_object(&pool, 2);
    let set: Vec<_> = file_set()
        .into_iter()
        .filter(|(a, _)| *a != Attr::Projid)
        .collect();
    table.init(&pool.tx(), &file, &borrowed(&set)).unwrap();
    assert_eq!(file.bonus_vec().len(), 168);
    table
        .update(&pool.tx(), &file, &[(Attr::Dxattr, &blob(52))])
        .unwrap();
    table
        .update(
            &pool.tx(),
            &file,
            &[
                (Attr::Xattr, &5u64.to_le_bytes()),
                (Attr::Projid, &77u64.to_le_bytes()),
            ],
        )
        .unwrap();
    let all: Vec<u16> = table
        .view(&file)
        .unwrap()
        .all()
        .unwrap()
        .into_iter()
        .map(|(n, _)| n)
        .collect();
    assert_eq!(
        all,
        [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19, 9, 20]
    );
    assert_eq!(owner_ids(SA_BONUS, &file.bonus_vec()).unwrap().projid, 77);
}

#[test]
fn a_bonus_of_the_other_byte_order_is_turned_when_it_is_changed() {
    let pool = TestPool::new(Settings::default());
    let (_, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let file = new_object(&pool, 1);
    table
        .init(&pool.tx(), &file, &borrowed(&file_set()))
        .unwrap();
    let little = file.bonus_vec();
    let mut big = little.clone();
    big[..4].reverse();
    big[4..6].reverse();
    big[6..8].reverse();
    big[8..0x98].chunks_mut(8).for_each(<[u8]>::reverse);
    for ace in big[0x98..].chunks_mut(8) {
        ace[..2].reverse();
        ace[2..4].reverse();
        ace[4..].reverse();
    }
    file.set_bonus(&pool.tx(), &big).unwrap();
    assert_eq!(table.view(&file).unwrap().u64(Attr::Gen).unwrap(), Some(12));
    table
        .update(&pool.tx(), &file, &[(Attr::Links, &1u64.to_le_bytes())])
        .unwrap();
    assert_eq!(file.bonus_vec(), little);
}

#[test]
fn a_legacy_znode_is_changed_in_place_and_keeps_its_form() {
    let pool = TestPool::new(Settings::default());
    let table = SaTable::legacy(&pool.os);
    let file = pool
        .os
        .allocate(&pool.tx(), &DnodeSpec::new(19).bonus(ZNODE_BONUS, 264))
        .unwrap();
    table
        .update(
            &pool.tx(),
            &file,
            &[(Attr::Uid, &9u64.to_le_bytes()), (Attr::Mtime, &TIME)],
        )
        .unwrap();
    let view = table.view(&file).unwrap();
    assert!(view.is_legacy());
    assert_eq!(view.u64(Attr::Uid).unwrap(), Some(9));
    assert_eq!(&file.bonus_vec()[16..32], &TIME);
    let refused = table.update(&pool.tx(), &file, &[(Attr::Dxattr, b"x")]);
    assert!(refused.unwrap_err().is(Errno::NOTSUP));
    assert_eq!(file.bonus_vec().len(), 264);
    let other = pool.os.allocate(&pool.tx(), &DnodeSpec::new(19)).unwrap();
    assert!(table.view(&other).err().unwrap().is(Errno::INVAL));
}

#[test]
fn two_layouts_of_one_number_are_corrupt() {
    let pool = TestPool::new(Settings::default());
    let (master, table) = SaTable::create(&pool.os, &pool.tx()).unwrap();
    let file = new_object(&pool, 1);
    table
        .init(&pool.tx(), &file, &borrowed(&file_set()))
        .unwrap();
    assert!(SaTable::open(&pool.os, master).is_ok());
    let again = ZapValue::u16s(&[5, 6]);
    layouts(&pool, master)
        .add(&pool.tx(), b"02", &again)
        .unwrap();
    let said = SaTable::open(&pool.os, master).map(|_| ()).unwrap_err();
    assert!(said.to_string().contains("two layouts of one number"));
}

use super::*;
use crate::Settings;
use crate::zap::ZapOptions;
use crate::zap::tests::pool::TestPool;
use std::collections::BTreeMap;
use zuse_base::Errno;

const DIRECTORY: u8 = 20;

fn name(i: u64) -> Vec<u8> {
    format!("file-{i:08}").into_bytes()
}

fn new_zap(pool: &TestPool) -> Zap {
    Zap::create(&pool.os, &pool.tx(), DIRECTORY, &ZapOptions::default()).unwrap()
}

/// Between the expectation and the add comes what makes it hold no longer: another name's split of the leaf, a sync, a removal, the same name.
#[test]
fn an_expected_name_is_added_as_any_other_whatever_came_between() {
    let mut pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    let mut model = BTreeMap::new();
    let add = |model: &mut BTreeMap<u64, u64>, zap: &Zap, tx: &Tx, i: u64, e: &Expected| {
        let added = zap.add_expected(tx, &name(i), i * 3, e);
        if model.insert(i, i * 3).is_none() {
            added.unwrap();
        } else {
            assert!(added.is_err_and(|e| e.is(Errno::EXIST)), "{i}");
        }
    };
    let mut used = 0;
    for i in 0..12_000u64 {
        let wanted = name(i);
        let mut expected = zap.expect(&wanted);
        if i % 701 == 0 {
            pool.sync();
        }
        let tx = pool.tx();
        if i % 2 == 0 {
            zap.expect_version(&expected);
        }
        if i % 3 == 0 {
            zap.expect_leaf(&tx, &mut expected);
        }
        match i % 11 {
            1 => add(&mut model, &zap, &tx, i + 1_000_000, &Expected::default()),
            2 if i > 10 => {
                zap.remove(&tx, &name(i - 2)).unwrap();
                model.remove(&(i - 2));
            }
            3 => add(&mut model, &zap, &tx, i, &Expected::default()),
            // Of another name.
            6 => add(&mut model, &zap, &tx, i + 2_000_000, &expected),
            _ => {}
        }
        used += u64::from(expected.holds(zap.dnode()) && expected.own(tx.txg()).is_some());
        add(&mut model, &zap, &tx, i, &expected);
        if i % 7 == 0 {
            add(&mut model, &zap, &tx, i, &expected);
        }
    }
    assert!(zap.is_fat().unwrap());
    assert!(used > 1_000, "{used} of 12,000 were any use");
    for _ in 0..2 {
        assert_eq!(zap.count().unwrap(), model.len() as u64);
        for (i, v) in &model {
            assert_eq!(zap.lookup_u64(&name(*i)).unwrap(), Some(*v), "{i}");
        }
        pool.sync();
        pool.drop_cache();
    }
}

/// A name in a directory changes the directory's bonus too, and what is known of the ZAP must not go by that.
#[test]
fn a_changed_bonus_leaves_what_is_known() {
    let pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    for i in 0..3_000 {
        zap.add_u64(&pool.tx(), &name(i), i).unwrap();
    }
    let tx = pool.tx();
    zap.dnode().set_bonus(&tx, &[7; 16]).unwrap();
    zap.dnode().edit_bonus(&tx, |b| b[0] = 8).unwrap();
    assert!(zap.expect(&name(5_000)).holds(zap.dnode()));
    zap.dnode().touch(&tx).unwrap();
    assert!(!zap.expect(&name(5_000)).holds(zap.dnode()));
}

fn wanted(zap: &Zap, i: u64) -> bool {
    zap.lookup_u64(&name(i)).unwrap() == Some(i)
}

/// Adds a name as who makes a file does; whether a way led to its leaf.
fn add(zap: &Zap, tx: &Tx, i: u64) -> bool {
    let name = name(i);
    let mut expected = zap.expect(&name);
    zap.expect_version(&expected);
    zap.expect_leaf(tx, &mut expected);
    zap.add_expected(tx, &name, i, &expected).unwrap();
    expected.came_by_way()
}

/// Leaves split and txgs end while ways lead to them.
#[test]
fn ways_lead_to_leaves_that_own_the_name() {
    let mut pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    let mut by_way = 0;
    for i in 0..20_000 {
        if i % 6_000 == 5_999 {
            pool.sync();
        }
        by_way += u64::from(add(&zap, &pool.tx(), i));
    }
    assert!(by_way > 10_000, "{by_way} of 20,000 came by a way");
    // A txg ends between the ways and who goes one.
    let next = name(20_000);
    let mut expected = zap.expect(&next);
    pool.sync();
    let tx = pool.tx();
    zap.expect_leaf(&tx, &mut expected);
    assert!(!expected.came_by_way());
    zap.add_expected(&tx, &next, 20_000, &expected).unwrap();
    assert!((0..=20_000).all(|i| wanted(&zap, i)));
}

/// What a way leads to may be held by others, and stay in memory, when the leaf is gone or the object is another.
#[test]
fn ways_end_with_a_removal_and_with_a_change_by_others() {
    let pool = TestPool::new(Settings::default());
    let zap = new_zap(&pool);
    let tx = pool.tx();
    for i in 0..6_000 {
        add(&zap, &tx, i);
    }
    let names: Vec<_> = (6_000..8_000).map(name).collect();
    let held: Vec<_> = names
        .iter()
        .map(|name| {
            let mut expected = zap.expect(name);
            zap.expect_leaf(&tx, &mut expected);
            expected
        })
        .collect();
    assert!(held.iter().filter(|e| e.own(tx.txg()).is_some()).count() > 1_500);
    // Most leaves become one with their siblings.
    for i in 300..6_000 {
        zap.remove(&tx, &name(i)).unwrap();
    }
    for i in 6_000..8_000 {
        add(&zap, &tx, i);
    }
    drop(held);
    assert!((0..300).chain(6_000..8_000).all(|i| wanted(&zap, i)));
    assert_eq!(zap.count().unwrap(), 2_300);

    let mut i = 8_000;
    while zap.read_lock().ways.is_none() {
        add(&zap, &tx, i);
        i += 1;
    }
    zap.dnode().touch(&tx).unwrap();
    zap.add_u64(&tx, &name(i), i).unwrap();
    assert!(zap.read_lock().ways.is_none());
}

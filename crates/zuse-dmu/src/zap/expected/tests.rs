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

/// An event between the expectation and the add makes the expectation invalid. A split of the leaf
/// by another name, a sync, a removal, the same name.
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

/// A new name in a directory also changes the directory's bonus, but the facts about the ZAP stay
/// valid.
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

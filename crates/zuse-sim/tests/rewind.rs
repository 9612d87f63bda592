//! Older states of pools: checkpoints and txgs whose uberblock still exists.

use std::collections::BTreeMap;

use serde_json::Value;
use zuse::tools::Layers as _;
use zuse::{Errno, ListedKinds, PoolAccess, Txg};
use zuse_check::{Depth, check};
use zuse_device::BlockDevice;
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::manifests::of_dataset;

type Content = BTreeMap<String, BTreeMap<String, Value>>;

/// All file systems of a pool as of a state.
fn content(golden: &Golden, access: &PoolAccess) -> Content {
    let pool = open_whole(Environment::default(), &golden.block_devices(), access).expect("open");
    let mut all = Content::new();
    for found in pool
        .list(&pool.name(), None, ListedKinds::WITH_SNAPSHOTS)
        .expect("list")
    {
        if let Ok(entries) = of_dataset(&pool, &found.name) {
            all.insert(found.name, entries);
        }
    }
    pool.close().expect("close");
    all
}

fn bytes(golden: &Golden) -> Vec<u8> {
    let device = &golden.devices[0];
    let mut all = vec![0; device.size() as usize];
    device.read_at(&mut all, 0).expect("read");
    all
}

/// Opens a state read-only, then rewinds to it. The content must be the same, without leaks.
fn goes_back(golden: &Golden, older: &PoolAccess) -> Content {
    let before = bytes(golden);
    let seen = content(golden, older);
    assert!(bytes(golden) == before, "looking has written");
    let back = PoolAccess {
        writable: true,
        force: true,
        ..older.clone()
    };
    let pool = open_whole(Environment::default(), &golden.block_devices(), &back).expect("go back");
    pool.sync().expect("sync");
    pool.export().expect("export");
    drop(pool);
    let pool = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &PoolAccess::default(),
    )
    .expect("open");
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
    pool.close().expect("close");
    drop(pool);
    assert_eq!(content(golden, &PoolAccess::default()), seen);
    seen
}

#[test]
fn a_checkpoint_is_looked_at_and_gone_back_to() {
    let golden = Golden::load("checkpoint");
    let now = content(&golden, &PoolAccess::default());
    let older = PoolAccess {
        checkpoint: true,
        ..PoolAccess::default()
    };
    let then = goes_back(&golden, &older);
    assert!(!then.is_empty());
    assert_ne!(then, now);
    let again = open_whole(Environment::default(), &golden.block_devices(), &older);
    assert!(again.is_err_and(|e| e.is(Errno::NOENT)), "it is gone");
}

#[test]
fn an_older_txg_is_looked_at_and_gone_back_to() {
    let golden = Golden::load("stripe");
    let pool = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &PoolAccess::default(),
    )
    .expect("open");
    let newest = pool.uberblock().txg;
    let older = pool.spa().vdevs().rings().into_iter();
    let older = older.map(|r| r.uberblock.txg).filter(|t| *t < newest).max();
    pool.close().expect("close");
    drop(pool);
    let older = PoolAccess {
        rewind_to: older.map(Txg),
        ..PoolAccess::default()
    };
    assert!(older.rewind_to.is_some());
    goes_back(&golden, &older);
}

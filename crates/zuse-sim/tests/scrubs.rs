//! Scrubs of pools that OpenZFS made, of every layout. What is whole is found whole, and what is
//! wrong is repaired. Among the blocks are gang blocks, blocks on removed vdevs, encrypted,
//! deduplicated and cloned ones, and logs.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{LastScan, Pool, PoolAccess, Txg};
use zuse_base::{Entropy, SeededPrng};
use zuse_check::{Depth, check};
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, open_whole};

use super::degraded::{POOLS, spoil};

/// Pools that are whole: gang blocks, encryption, a removed vdev, cloned and deduplicated blocks, a
/// log, dRAID.
const WHOLE: [&str; 8] = [
    "features", "gang", "crypt", "removed", "brt", "dedup", "zil", "draid",
];

fn open(golden: &Golden) -> Arc<Pool> {
    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    // No txg comes by itself: a scrub goes on when a test says so.
    let mut env = Environment::default();
    env.limits.txg_timeout = std::time::Duration::from_secs(3600);
    open_whole(env, &golden.block_devices(), &access).unwrap_or_else(|e| panic!("{e}"))
}

fn scrub(pool: &Arc<Pool>) -> LastScan {
    pool.scrub(Txg::ZERO, None).expect("begun");
    pool.finish_scan().expect("done");
    let scan = pool.scan().expect("there was one");
    assert_eq!(scan.state, 2, "{scan:?}");
    scan
}

#[test]
fn a_scrub_of_a_whole_pool_meets_all_of_it_and_changes_nothing() {
    for name in WHOLE {
        let pool = open(&Golden::load(name).copy());
        let scan = scrub(&pool);
        assert_eq!((scan.processed, scan.errors), (0, 0), "{name}: {scan:?}");
        assert!(!pool.vdev_status().has_errors(), "{name}");
        // Cloned and deduplicated blocks are met more than once.
        let shared = matches!(name, "brt" | "dedup" | "dedup-legacy");
        let (seen, all) = (scan.examined, scan.to_examine);
        assert!(
            seen * 100 >= all * 95 && (shared || seen * 100 <= all * 110),
            "{name}: {scan:?}"
        );
        pool.close().expect("closed");
    }
}

#[test]
fn one_scrub_repairs_all_that_a_layout_can_bear() {
    // Of parity and mirrors two each are enough here.
    let some = [
        "raidz1", "raidz3", "expanded", "draid", "mirrors", "classes",
    ];
    for (name, layout) in POOLS.into_iter().filter(|(name, _)| some.contains(name)) {
        let golden = Golden::load(name).copy();
        let prng = SeededPrng::new(11);
        let mut wrong = Vec::new();
        for (disks, spare) in layout {
            let mut left: Vec<usize> = disks.to_vec();
            for _ in 0..*spare {
                let disk = left.swap_remove(prng.below(left.len() as u64) as usize);
                spoil(&golden.devices[disk], &prng);
                wrong.push(disk);
            }
        }
        let pool = open(&golden);
        let first = scrub(&pool);
        assert!(
            first.processed > 0 && first.errors == 0,
            "{name} without {wrong:?}: {first:?}"
        );
        let second = scrub(&pool);
        assert_eq!(
            (second.processed, second.errors),
            (0, 0),
            "{name}: {second:?}"
        );
        let report = check(pool.spa(), Depth::All).expect("check");
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
        pool.close().expect("closed");
    }
}

//! A test of the checker: it finds nothing in pools that OpenZFS wrote and `zdb` found sound.

use std::sync::Arc;

use zuse_check::{Depth, check};
use zuse_pool::{Environment, OpenOptions};
use zuse_sim::golden::{self, Golden, NAMES};
use zuse_sim::no_datasets::NoDatasets;
use zuse_vdev::PoolState;

#[test]
fn golden_pools_are_clean() {
    let mut failures = Vec::new();
    for name in NAMES {
        let golden = Golden::load(name);
        let pool = golden::open(
            Environment::default(),
            &golden.block_devices(),
            &OpenOptions::default(),
            Arc::new(NoDatasets),
        );
        let pool = match pool {
            Ok(pool) => pool,
            Err(e) => {
                failures.push(format!("{name}: {e}"));
                continue;
            }
        };
        let report = check(&pool, Depth::All).expect("check");
        println!(
            "{name}: {} objects, {} datasets, {} blocks, {} gangs, {} claimed, {} allocated, {} shared",
            report.objects,
            report.datasets,
            report.blocks,
            report.gangs,
            report.claimed,
            report.allocated,
            report.shared
        );
        assert!(
            report.datasets > 2 && report.objects > 50 && report.claimed > 1 << 20,
            "{name}: too little was seen"
        );
        failures.extend(
            report
                .problems
                .iter()
                .take(15)
                .map(|p| format!("{name}: {p}")),
        );
        pool.close(PoolState::Active).expect("close");
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

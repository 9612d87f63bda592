//! Keys are never lost by creating, cloning, promoting, renaming, receiving and changing keys.
//! Every dataset opens with exactly the key of its encryption root. `ZUSE_SIM_SEED` and
//! `ZUSE_SIM_STEPS` make longer runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::PoolAccess;
use zuse::tools::Layers as _;
use zuse_check::{Depth, check};
use zuse_device::BlockDevice;
use zuse_pool::{Environment, Limits};
use zuse_sim::golden::open_whole;
use zuse_sim::keys::Keys;
use zuse_sim::memory_pool::memory_pool;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

#[test]
fn every_dataset_opens_with_the_key_of_its_root_after_each_export() {
    let steps = number("ZUSE_SIM_STEPS", 60);
    let first = number("ZUSE_SIM_SEED", 1);
    let mut kinds: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for seed in first..first + 8 {
        let (mut pool, device) =
            memory_pool("tank", 256 << 20, 12, Limits::default()).expect("create");
        let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
        let access = PoolAccess {
            writable: true,
            force: true,
            ..PoolAccess::default()
        };
        let mut keys = Keys::new("tank", seed);
        for _ in 0..steps / 10 {
            keys.run(&pool, 10)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            pool.export().expect("export");
            drop(pool);
            pool = open_whole(Environment::default(), &devices, &access).expect("open");
            keys.check_reopened(&pool)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        let report = check(pool.spa(), Depth::All).expect("check");
        assert!(report.is_clean(), "seed {seed}: {:#?}", report.problems);
        pool.export().expect("export");
        for (kind, [done, refused]) in keys.counts() {
            let all = kinds.entry(kind).or_default();
            *all = [all[0] + done, all[1] + refused];
        }
    }
    println!("{kinds:?}");
    for (kind, times) in [
        ("create", 20),
        ("clone", 20),
        ("promote", 10),
        ("rename", 10),
        ("change-key", 10),
        ("change-key -i", 5),
        ("receive", 10),
        ("receive more", 10),
    ] {
        let [done, _] = kinds.get(kind).copied().unwrap_or_default();
        assert!(done >= times, "{kind}: {kinds:?}");
    }
}

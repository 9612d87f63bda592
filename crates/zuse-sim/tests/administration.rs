//! Random sequences of administration: after each step the accounting equals a full recount. Make
//! `ZUSE_SIM_SEED` and `ZUSE_SIM_STEPS` larger for longer runs; the suite `zdb` lets OpenZFS check
//! such a pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Shape, TopSpec, VdevClass};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::administration::Administration;
use zuse_sim::limits::Limits;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

fn new_pool() -> Arc<zuse::Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/d/0", 256 << 20));
    let spec = VdevSpec {
        device,
        is_disk: false,
        ashift: Some(9),
    };
    let top = TopSpec {
        shape: Shape::Single,
        devices: 1,
        class: VdevClass::Normal,
    };
    zuse::Pool::create_with_layout(Environment::default(), "tank", vec![spec], &[top], &[])
        .expect("create")
}

fn run(seed: u64, steps: u64) {
    let pool = new_pool();
    if let Err(e) = Administration::new(&pool, seed).run(steps) {
        panic!("seed {seed}: {e}");
    }
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(
        report.problems.is_empty(),
        "seed {seed}: {:?}",
        report.problems
    );
    pool.export().expect("export");
}

#[test]
fn the_books_equal_a_recount_after_each_step() {
    let steps = number("ZUSE_SIM_STEPS", 80);
    match std::env::var_os("ZUSE_SIM_SEED") {
        Some(_) => run(number("ZUSE_SIM_SEED", 1), steps),
        None => (1..=4).for_each(|seed| run(seed, steps)),
    }
}

#[test]
fn quotas_and_reservations_are_what_a_model_says() {
    let steps = number("ZUSE_SIM_STEPS", 100);
    let first = number("ZUSE_SIM_SEED", 401);
    let mut refused = 0;
    let mut kinds = BTreeMap::new();
    for seed in first..first + 6 {
        let pool = new_pool();
        let mut limits = Limits::new(&pool, seed);
        match limits.run(steps) {
            Ok(n) => refused += n,
            Err(e) => panic!("seed {seed}: {e}"),
        }
        for (kind, [done, refused]) in limits.kinds() {
            let all = kinds.entry(kind.clone()).or_insert([0; 2]);
            *all = [all[0] + done, all[1] + refused];
        }
        pool.export().expect("export");
    }
    assert!(refused > steps / 4, "limits were reached: {refused} times");
    for (kind, times) in [("promote", 2), ("rename", 4), ("rollback", 4)] {
        let [done, _]: [u64; 2] = kinds.get(kind).copied().unwrap_or_default();
        assert!(done >= times, "{kind}: {kinds:?}");
    }
    // Each kind of change that a limit can refuse was refused by one.
    for kind in [
        "create", "clone", "snapshot", "rename", "promote", "rollback",
    ] {
        let [_, refused] = kinds.get(kind).copied().unwrap_or_default();
        assert!(refused >= 1, "no {kind} was refused: {kinds:?}");
    }
}

//! Pools of the versions before features are written in their own form. Random administration, with
//! a recount after each step, and the same with upgrades in between.

use std::sync::Arc;
use std::time::Duration;

use zuse::compatibility::Compatibility;
use zuse::tools::Layers as _;
use zuse::{Pool, PoolAccess, SPA_VERSION};
use zuse_base::{ObjectId, Txg};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_format::dnode::FLAG_USED_BYTES;
use zuse_pool::{Environment, Limits, Shape, TopSpec, VdevSpec};
use zuse_sim::administration::Administration;
use zuse_sim::golden::open_whole;
use zuse_sim::seeds::seeds;
use zuse_vdev::PoolState;

/// Each is the first of a kind, or the last before one.
const VERSIONS: [u64; 13] = [1, 2, 3, 8, 9, 10, 11, 12, 14, 17, 21, 25, 28];

fn env() -> Environment {
    Environment {
        limits: Limits {
            threads: 1,
            // No txg ends during a recount.
            txg_timeout: Duration::from_secs(3600),
            ..Limits::default()
        },
        ..Environment::default()
    }
}

/// A new pool of a version, and the disks that it is on.
fn made(version: u64, disks: usize) -> (Arc<Pool>, Vec<Arc<dyn BlockDevice>>) {
    let devices: Vec<Arc<dyn BlockDevice>> = (0..disks)
        .map(|n| Arc::new(MemDevice::new(format!("sim{n}"), 256 << 20)) as _)
        .collect();
    let vdevs = devices.iter().map(|device| VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(9),
    });
    let layout = match disks {
        1 => vec![],
        _ => vec![TopSpec {
            shape: Shape::Raidz { nparity: 1 },
            devices: disks,
            ..TopSpec::SINGLE
        }],
    };
    let vdevs = (vdevs.collect(), &layout[..]);
    let pool = Pool::create_of_version(env(), "tank", vdevs, version);
    (pool.expect("create"), devices)
}

fn sound(pool: &Pool, when: &str) {
    pool.sync().expect("sync");
    let report = check(pool.spa(), Depth::Metadata).expect("check");
    assert!(report.is_clean(), "{when}: {:#?}", report.problems);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{when}: {flaws:?}");
}

fn again(pool: Arc<Pool>, devices: &[Arc<dyn BlockDevice>]) -> Arc<Pool> {
    pool.spa().close(PoolState::Exported).expect("export");
    drop(pool);
    keep(devices);
    let access = PoolAccess {
        writable: true,
        ..PoolAccess::default()
    };
    open_whole(env(), devices, &access).expect("open")
}

/// Saves an image for other checkers, in the directory of `ZUSE_KEEP_POOL`.
fn keep(devices: &[Arc<dyn BlockDevice>]) {
    let Ok(dir) = std::env::var("ZUSE_KEEP_POOL") else {
        return;
    };
    for (n, device) in devices.iter().enumerate() {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(&mut bytes, 0).expect("read");
        std::fs::write(format!("{dir}/old{n}.img"), bytes).expect("image");
    }
}

#[test]
fn a_pool_of_any_version_stays_one_and_its_books_are_right() {
    for seed in seeds(7) {
        let version = VERSIONS[seed as usize * 2 % VERSIONS.len()];
        let disks = if seed % 4 == 0 { 3 } else { 1 };
        let when = format!("seed {seed}, version {version}");
        let (pool, devices) = made(version, disks);
        let mut history = Administration::new(&pool, 3000 + seed);
        history.run(20).unwrap_or_else(|e| panic!("{when}: {e}"));
        drop(history);
        sound(&pool, &when);
        let pool = again(pool, &devices);
        assert_eq!(pool.spa().version(), version, "{when}");
        assert_eq!(pool.spa().uberblock().version, version, "{when}");
        assert!(pool.spa().features().all().is_empty(), "{when}");
        sound(&pool, &when);
        scrub_meets_all(&pool, &when);
        pool.export().expect("export");
    }
}

/// Versions before 11 have no origin snapshot.
fn scrub_meets_all(pool: &Pool, when: &str) {
    pool.scrub(Txg(0), None).expect("scrub");
    pool.finish_scan().expect("scrub");
    let scan = pool.scan().expect("a scan");
    assert_eq!(scan.errors, 0, "{when}: {scan:?}");
    // Blocks freed since the start of the scrub are not found.
    let met = scan.examined * 10 >= scan.to_examine * 8;
    assert!(met, "{when}: {scan:?}");
}

#[test]
fn a_pool_is_upgraded_in_the_middle_of_its_life() {
    for seed in seeds(2) {
        let version = VERSIONS[(seed * 5) as usize % VERSIONS.len()];
        let (mut pool, devices) = made(version, 1);
        let mut model = Administration::new(&pool, 4000 + seed).into_model();
        let steps = [version, 10, 12, 25, 26, SPA_VERSION];
        for to in steps.into_iter().filter(|to| *to >= version) {
            let when = format!("seed {seed}, version {version}, then {to}");
            let features = match to {
                SPA_VERSION => {
                    let all = Compatibility::Off;
                    pool.features_to_enable(&all).expect("features")
                }
                _ => Vec::new(),
            };
            pool.upgrade_version(to, features).expect("upgrade");
            sound(&pool, &when);
            let mut history = Administration::of(&pool, 5000 + seed + to, model);
            history.run(10).unwrap_or_else(|e| panic!("{when}: {e}"));
            model = history.into_model();
            sound(&pool, &when);
            pool = again(pool, &devices);
            assert_eq!(pool.spa().version(), to, "{when}");
        }
        pool.export().expect("export");
    }
}

/// OpenZFS counts sectors of 512 bytes before version 3, whatever the flag of a dnode says.
#[test]
fn the_space_of_an_object_has_the_form_of_its_pool() {
    let in_bytes = |pool: &Pool| {
        let mos = pool.spa().mos();
        let mut found = Vec::new();
        let mut at = ObjectId(0);
        while let Some(object) = mos.next_object(at).expect("objects") {
            let dnode = mos.dnode(object).expect("dnode");
            found.push(dnode.flags() & FLAG_USED_BYTES != 0);
            at = object;
        }
        found.push(mos.meta().flags() & FLAG_USED_BYTES != 0);
        found
    };
    for version in [1, 2, 3] {
        let (pool, devices) = made(version, 1);
        let pool = again(pool, &devices);
        let all = in_bytes(&pool);
        assert!(all.len() > 10, "version {version}: {all:?}");
        assert!(
            all.iter().all(|bytes| *bytes == (version >= 3)),
            "version {version}: {all:?}"
        );
        sound(&pool, &format!("version {version}"));
        pool.export().expect("export");
    }
}

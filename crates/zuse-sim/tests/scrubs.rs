//! Scrubs of OpenZFS's pools, of every layout. Intact pools have no errors, and corrupted blocks
//! are repaired. Among the blocks are gang blocks, blocks on removed vdevs, encrypted, deduplicated
//! and cloned ones, and logs.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Credentials, LastScan, Pool, PoolAccess, Txg};
use zuse_base::{Entropy, SeededPrng};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_dsl::NewScan;
use zuse_format::feature::FEATURES;
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::memory_pool::narrow;
use zuse_zpl::WriteOptions;

use super::degraded::{POOLS, spoil};

/// Intact pools: gang blocks, encryption, a removed vdev, cloned and deduplicated blocks, a log,
/// dRAID.
const WHOLE: [&str; 9] = [
    "features",
    "gang",
    "crypt",
    "removed",
    "brt",
    "dedup",
    "dedup-legacy",
    "zil",
    "draid",
];

fn open(golden: &Golden) -> Arc<Pool> {
    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    // No txg closes by itself: a scrub continues only when a test requests it.
    let mut env = Environment::default();
    env.limits.txg_timeout = std::time::Duration::from_secs(3600);
    open_whole(env, &golden.block_devices(), &access).unwrap_or_else(|e| panic!("{e}"))
}

fn scrub(pool: &Arc<Pool>) -> LastScan {
    pool.scrub(Txg::ZERO, None).expect("begun");
    pool.finish_scan().expect("done");
    let scan = pool.scan().expect("there was one");
    assert_eq!(scan.state, zuse::ScanState::Finished, "{scan:?}");
    scan
}

#[test]
fn a_scrub_of_a_whole_pool_meets_all_of_it_and_changes_nothing() {
    for name in WHOLE {
        let pool = open(&Golden::load(name).copy());
        let scan = scrub(&pool);
        assert_eq!((scan.processed, scan.errors), (0, 0), "{name}: {scan:?}");
        assert!(!pool.vdev_status().has_errors(), "{name}");
        // Cloned blocks are met more than once.
        let shared = name == "brt";
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
    // Two layouts each of parity and mirrors are enough here.
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

const RECORD: usize = 4096;

/// Writes blocks of noise; those of the same seed are shared.
fn noise(pool: &Arc<Pool>, name: &str, seed: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0; blocks * RECORD];
    SeededPrng::new(seed).fill(&mut bytes);
    let (root, fs) = (Credentials::root(), pool.file_system("tank/f"));
    let fs = fs.expect("a file system");
    let dir = fs.root().expect("root");
    let file = fs.create(&root, &dir, name.as_bytes(), 0o644);
    fs.write(&file.expect("create"), 0, &bytes, WriteOptions::default())
        .expect("write");
    pool.sync().expect("sync");
    bytes
}

/// A pool with dedup tables. In the old form all entries are in their stores.
fn with_dedup(old: bool) -> (Arc<Pool>, Arc<MemDevice>) {
    let device = Arc::new(MemDevice::new("/sim/tank", 128 << 20));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let env = Environment {
        limits: narrow(16 << 20),
        ..Environment::default()
    };
    let features = FEATURES.iter();
    let features = features.filter(|f| !old || f.guid != "com.klarasystems:fast_dedup");
    let pool = Pool::create_on_devices(env, "tank", vec![spec], Some(features.collect()), &[]);
    let pool = pool.expect("create");
    let properties = [
        ("dedup", "on"),
        ("recordsize", "4k"),
        ("compression", "off"),
    ];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pool.create_filesystem("tank/f", &properties, (0, 0))
        .expect("create");
    (pool, device)
}

/// Rots the place where bytes are stored.
fn rot(device: &MemDevice, bytes: &[u8]) {
    let mut all = vec![0; usize::try_from(device.size()).expect("small")];
    device.read_at(&mut all, 0).expect("read");
    let mut sectors = all.chunks_exact(RECORD);
    let at = sectors.position(|sector| sector == bytes).expect("stored");
    let junk = vec![0x5a; RECORD];
    device.write_at(&junk, (at * RECORD) as u64).expect("write");
}

/// The stored state of the scan. 14 is the last class of tables that it skips in the trees; 15 is
/// its position.
fn words(pool: &Arc<Pool>) -> Vec<u64> {
    let directory = pool.spa().directory().expect("directory");
    let scan = directory.lookup(b"scan").expect("lookup");
    scan.expect("a scan").ints()
}

fn begin(pool: &Arc<Pool>) {
    let new = NewScan::Scrub(Txg::ZERO, None);
    pool.dsl().begin_scan(new).expect("begun");
}

#[test]
fn shared_blocks_are_verified_once_and_all_pointers_to_a_lost_one_are_told() {
    let (pool, device) = with_dedup(false);
    let bytes = noise(&pool, "a", 1, 1000);
    for name in ["b", "c", "d", "e"] {
        noise(&pool, name, 1, 1000);
    }
    let whole = scrub(&pool);
    assert!(
        whole.examined * 100 <= whole.to_examine * 110,
        "each is met once: {whole:?}"
    );
    assert_eq!(whole.errors, 0);
    begin(&pool);
    assert_eq!(words(&pool)[14], 1);
    rot(&device, &bytes[7 * RECORD..8 * RECORD]);
    pool.dsl().scan_batches(1).expect("the tables");
    pool.sync().expect("sync");
    assert_eq!(words(&pool)[14], 0, "another host would pass over it");
    pool.finish_scan().expect("done");
    assert_eq!(pool.scan().expect("a scan").errors, 5);
    assert_eq!(pool.damage().expect("the error log").len(), 5);
    pool.close().expect("closed");
}

#[test]
fn what_comes_to_be_shared_during_a_scrub_is_not_passed_over() {
    let (pool, device) = with_dedup(false);
    let alone = noise(&pool, "alone", 1, 8);
    noise(&pool, "one", 2, 8);
    noise(&pool, "two", 2, 8);
    begin(&pool);
    pool.dsl().scan_batches(1).expect("the tables");
    assert_eq!(words(&pool)[14], 1);
    // So far it had one pointer, and was in no class that was walked.
    noise(&pool, "twin", 1, 8);
    assert_eq!(words(&pool)[14], 0);
    rot(&device, &alone[..RECORD]);
    pool.finish_scan().expect("done");
    let errors = pool.scan().expect("a scan").errors;
    assert_eq!(errors, 2, "the block was born before the scrub");
    pool.close().expect("closed");
}

#[test]
fn a_scrub_that_goes_on_after_an_import_passes_over_no_more_than_was_verified() {
    let (pool, device) = with_dedup(true);
    noise(&pool, "one", 2, 9000);
    let two = noise(&pool, "two", 2, 9000);
    begin(&pool);
    // Not all of the table.
    pool.dsl().scan_batches(1).expect("some");
    assert_eq!(words(&pool)[14..16], [1, 1], "among what is shared");
    pool.export().expect("exported");
    drop(pool);
    rot(&device, &two[..RECORD]);
    rot(&device, &two[8999 * RECORD..]);
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device.clone()];
    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    let pool = open_whole(Environment::default(), &devices, &access).expect("open");
    pool.finish_scan().expect("done");
    assert_eq!(pool.scan().expect("a scan").errors, 4);
    pool.close().expect("closed");
}

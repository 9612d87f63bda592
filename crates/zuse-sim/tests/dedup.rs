//! Dedup tables of both forms: kept while files share blocks through them, and gone with the last
//! pointer.

use std::sync::Arc;

use zuse::PoolAccess;
use zuse_device::{BlockDevice, MemDevice};
use zuse_format::feature::{FEATURES, Feature};
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::check::{Depth, check};
use zuse_sim::clones;
use zuse_sim::files::Files;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::power::{Rules, chain, create};
use zuse_zpl::WriteOptions;

const FAST: &str = "com.klarasystems:fast_dedup";

fn features(fast: bool) -> Vec<&'static Feature> {
    let all = FEATURES.iter();
    all.filter(|f| fast || f.guid != FAST).collect()
}

fn new_pool(fast: bool) -> (Arc<zuse::Pool>, Arc<MemDevice>) {
    let device = Arc::new(MemDevice::new("sim", 256 << 20));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let env = Environment::default();
    let features = Some(features(fast));
    let pool = zuse::Pool::create_on_devices(env, "tank", vec![spec], features, &[]);
    (pool.expect("create"), device)
}

fn open(device: &Arc<MemDevice>) -> Arc<zuse::Pool> {
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device.clone()];
    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    open_whole(Environment::default(), &devices, &access).expect("open")
}

fn sound(pool: &zuse::Pool, when: &str) -> u64 {
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{when}: {:#?}", report.problems);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{when}: {flaws:?}");
    report.shared
}

/// Txgs until logs are in their stores, and what was freed is free.
fn settle(pool: &Arc<zuse::Pool>) {
    for i in 0..24 {
        let set = [("org.example:n".to_owned(), i.to_string())];
        let root = pool.dataset("tank");
        // Logs are flushed by txgs that write something.
        if let Ok(root) = root {
            root.set(&set).expect("set");
        }
        pool.sync().expect("sync");
    }
}

fn tables(pool: &zuse::Pool) -> usize {
    let tables = zuse_pool::dedup::tables(pool.spa()).expect("tables");
    tables.len()
}

#[test]
fn tables_count_what_is_there_whatever_happens_to_the_files() {
    for (fast, seed) in [(true, 1), (false, 2), (true, 3), (false, 4)] {
        let (pool, device) = new_pool(fast);
        let told = format!("fast {fast}, seed {seed}");
        clones::run_with_dedup(&pool, "tank", seed, 120).expect("run");
        assert!(sound(&pool, &told) > 0, "{told}: nothing was shared");
        assert!(tables(&pool) > 1, "{told}");
        pool.export().expect("export");
        drop(pool);
        let pool = open(&device);
        sound(&pool, &told);
        clones::clear(&pool, "tank").expect("clear");
        settle(&pool);
        assert_eq!(sound(&pool, &told), 0);
        assert_eq!(tables(&pool), 0, "{told}");
        assert_eq!(pool.spa().features().refcount(FAST), 0);
        assert_eq!(pool.spa().space().deduped, 0);
        pool.export().expect("export");
    }
}

#[test]
fn a_power_cut_leaves_pointers_and_counts_of_one_txg() {
    let rules = Rules {
        size: 256 << 20,
        cuts: 6,
        ..Rules::default()
    };
    for (fast, kind) in [(true, "on"), (false, "verify")] {
        let mut workload = Files::that_share();
        workload.features = Some(features(fast));
        let dedup = ("dedup".to_owned(), kind.to_owned());
        workload.properties.push(dedup);
        for seed in 0..3 {
            let start = create(&workload, &rules, seed).expect("create");
            let done = chain(&workload, &rules, &start, seed);
            assert!(done.is_ok(), "fast {fast}, seed {seed}: {done:?}");
        }
    }
}

#[test]
fn pools_that_openzfs_deduplicated_in_are_written_until_nothing_is_left() {
    for name in ["dedup", "dedup-legacy"] {
        let golden = Golden::load(name);
        let devices = golden.block_devices();
        let access = PoolAccess {
            writable: true,
            force: true,
            ..PoolAccess::default()
        };
        let pool = open_whole(Environment::default(), &devices, &access).expect("open");
        sound_tables(&pool, name);
        let before = tables(&pool);
        let datasets = pool.list(&pool.name(), None, false).expect("list");
        for dataset in &datasets {
            let Ok(fs) = pool.file_system(&dataset.name) else {
                continue;
            };
            empty(&pool, &fs, name);
        }
        let snapshots: Vec<String> = (pool.list(&pool.name(), None, true).expect("list"))
            .into_iter()
            .filter(|l| l.name.contains('@'))
            .map(|l| l.name)
            .collect();
        if !snapshots.is_empty() {
            let gone = pool.destroy_snapshots(&snapshots, false, false);
            gone.expect("destroyed");
        }
        (0..4).for_each(|_| pool.sync().expect("sync"));
        sound_tables(&pool, name);
        assert!(before > 0 && tables(&pool) <= before, "{name}");
        pool.export().expect("export");
    }
}

fn sound_tables(pool: &zuse::Pool, name: &str) {
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{name}: {:#?}", report.problems);
}

/// Writes over the first block of each file of the root, and removes every second one.
fn empty(pool: &zuse::Pool, fs: &zuse::FileSystem, name: &str) {
    let (who, root) = (zuse::Credentials::root(), fs.root().expect("root"));
    let mut names: Vec<Vec<u8>> = Vec::new();
    fs.readdir(&root, 0, false, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .expect("list");
    for (i, entry) in names.into_iter().enumerate() {
        let Ok(file) = fs.lookup(&who, &root, &entry) else {
            continue;
        };
        if !file.is_file() {
            continue;
        }
        let written = fs.write(&file, 0, b"mine", WriteOptions::default());
        written.expect("write");
        if i % 2 == 0 {
            fs.unlink(&who, &root, &entry).expect("unlink");
        }
        pool.sync().expect("sync");
    }
    sound_tables(pool, name);
}

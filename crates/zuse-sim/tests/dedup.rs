//! Dedup tables of both forms: kept while files share blocks through them, and removed with the
//! last pointer.

use std::sync::Arc;
use std::time::Duration;

use zuse::dedup::Prune;
use zuse::tools::{FileSystem, Layers as _, Zap, ZapValue};
use zuse::{Credentials, DestroyOptions, Errno, ListedKinds, PoolAccess};
use zuse_base::{Entropy, ManualClock, ObjectId, SeededPrng, Timestamp};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, MemImage};
use zuse_format::feature::{FEATURES, Feature};
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::clones;
use zuse_sim::files::Files;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::power::{Rules, chain, create};
use zuse_sim::seeds::seeds;
use zuse_zpl::WriteOptions;

const FAST: &str = "com.klarasystems:fast_dedup";

fn features(fast: bool) -> Vec<&'static Feature> {
    let all = FEATURES.iter();
    all.filter(|f| fast || f.guid != FAST).collect()
}

fn new_pool(fast: bool) -> (Arc<zuse::Pool>, Arc<MemDevice>) {
    new_pool_with(fast, Environment::default())
}

fn new_pool_with(fast: bool, mut env: Environment) -> (Arc<zuse::Pool>, Arc<MemDevice>) {
    let device = Arc::new(MemDevice::new("sim", 256 << 20));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    // No txg ends during a recount.
    env.limits.txg_timeout = Duration::from_secs(3600);
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
    let wrong = report.not_of_labels();
    assert!(wrong.is_empty(), "{when}: {wrong:#?}");
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{when}: {flaws:?}");
    report.shared
}

/// Txgs until logs are flushed to their stores, and freed blocks are free.
fn wait_until_idle(pool: &Arc<zuse::Pool>) {
    (0..24).for_each(|i| touch(pool, i));
}

/// A txg that writes something: only such txgs flush logs.
fn touch(pool: &Arc<zuse::Pool>, i: u32) {
    let set = [("org.example:n".to_owned(), i.to_string())];
    pool.dataset("tank").expect("root").set(&set).expect("set");
    pool.sync().expect("sync");
}

fn tables(pool: &zuse::Pool) -> usize {
    let tables = zuse_pool::dedup::tables(pool.spa()).expect("tables");
    tables.len()
}

#[test]
fn tables_count_what_is_there_whatever_happens_to_the_files() {
    let mut several = 0;
    for seed in seeds(2) {
        let fast = seed % 2 == 0;
        let (pool, device) = new_pool(fast);
        let told = format!("fast {fast}, seed {seed}");
        clones::run_with_dedup(&pool, "tank", seed, 90).expect("run");
        assert!(sound(&pool, &told) > 0, "{told}: nothing was shared");
        several += u64::from(tables(&pool) > 1);
        pool.export().expect("export");
        drop(pool);
        let pool = open(&device);
        sound(&pool, &told);
        clones::clear(&pool, "tank").expect("clear");
        wait_until_idle(&pool);
        assert_eq!(sound(&pool, &told), 0);
        assert_eq!(tables(&pool), 0, "{told}");
        assert_eq!(pool.spa().features().refcount(FAST), 0);
        assert_eq!(pool.spa().space().deduped, 0);
        pool.export().expect("export");
    }
    assert!(several > 0, "no pool had tables of several checksums");
}

/// Length of each log, and its entries.
fn logs(pool: &zuse::Pool) -> [(u64, usize); 2] {
    let tables = zuse_pool::dedup::tables(pool.spa()).expect("tables");
    let logs: Vec<_> = (tables.iter().flat_map(|t| &t.logs))
        .map(|log| (log.length, log.entries.len()))
        .collect();
    logs.try_into().expect("one table with two logs")
}

const BLOCK: usize = 4 << 10;
const BLOCKS: usize = 3000;

fn set(pool: &Arc<zuse::Pool>, properties: [(&str, &str); 2]) {
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let root = pool.dataset("tank").expect("root");
    root.set(&properties).expect("set");
}

fn write(fs: &FileSystem, name: &str, data: &[u8]) {
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let file = fs.create(&who, &root, name.as_bytes(), 0o644);
    fs.write(&file.expect("create"), 0, data, WriteOptions::default())
        .expect("write");
}

fn remove(fs: &FileSystem, name: &str) {
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    fs.unlink(&who, &root, name.as_bytes()).expect("unlink");
}

fn has(fs: &FileSystem, name: &str, want: &[u8]) -> bool {
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let file = fs.lookup(&who, &root, name.as_bytes()).expect("lookup");
    let mut have = vec![0; want.len() + 1];
    let n = fs.read(&file, 0, &mut have).expect("read");
    have[..n] == *want
}

fn noise(len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    SeededPrng::new(1).fill(&mut data);
    data
}

/// A pool with both logs in use. Part of the flushing one has reached the stores; the active one
/// has newer values of some of its keys. `before` says which of the two is active.
fn with_logs_flushed_by_half(before: u32, data: &[u8]) -> MemImage {
    let (pool, device) = new_pool(true);
    set(&pool, [("dedup", "on"), ("recordsize", "4k")]);
    let fs = pool.file_system("tank").expect("file system");
    for round in 0..before {
        write(&fs, &format!("first{round}"), &data[..BLOCK]);
        (0..12).for_each(|i| touch(&pool, i));
    }
    write(&fs, "a", data);
    pool.sync().expect("sync");
    let waiting = |logs: [(u64, usize); 2]| logs[0].1 + logs[1].1;
    for i in 0.. {
        assert!(i < 20, "nothing was flushed: {:?}", logs(&pool));
        if waiting(logs(&pool)) < BLOCKS {
            break;
        }
        touch(&pool, i);
    }
    // More pointers to a part of the blocks, and fewer to others.
    write(&fs, "b", &data[..data.len() / 10]);
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let a = fs.lookup(&who, &root, b"a").expect("lookup");
    let (half, other) = (data.len() as u64 / 2, vec![5; data.len() / 10]);
    fs.write(&a, half, &other, WriteOptions::default())
        .expect("write");
    pool.sync().expect("sync");
    let both = logs(&pool);
    assert!(both.iter().all(|(length, _)| *length > 0), "{both:?}");
    sound(&pool, "flushed by half");
    let image = device.snapshot();
    drop((a, root, fs));
    pool.close().expect("close");
    image
}

/// The newer entry counts, whichever log is read first.
#[test]
fn logs_that_are_flushed_by_half_are_loaded_and_go_on() {
    let data = noise(BLOCKS * BLOCK);
    for before in [0, 1] {
        let image = with_logs_flushed_by_half(before, &data);
        let pool = open(&Arc::new(MemDevice::from_image("sim", &image)));
        sound(&pool, "opened");
        let fs = pool.file_system("tank").expect("file system");
        assert!(has(&fs, "b", &data[..data.len() / 10]));
        for name in ["a", "b"] {
            remove(&fs, name);
            pool.sync().expect("sync");
            sound(&pool, name);
        }
        (0..before).for_each(|round| remove(&fs, &format!("first{round}")));
        drop(fs);
        (0..2).for_each(|_| wait_until_idle(&pool));
        sound(&pool, "at the end");
        assert_eq!(tables(&pool), 0);
        pool.export().expect("export");
    }
}

/// Removes all entries for blocks with one pointer from their store, as `zpool ddtprune` does.
fn prune(pool: &zuse::Pool) {
    let tables = zuse_pool::dedup::tables(pool.spa()).expect("tables");
    let unique = (tables
        .iter()
        .flat_map(|t| t.stores.iter().map(move |s| (t, s))))
    .find(|(_, store)| store.class == 2);
    let (table, store) = unique.expect("a store");
    let mut keys = Vec::new();
    table
        .each_entry(pool.spa(), store, &mut |_, key, _| {
            keys.push(key.words());
            Ok(())
        })
        .expect("entries");
    assert!(!keys.is_empty());
    let (object, name) = (ObjectId(store.object), store.name.clone());
    let take_out = move |ctx: &zuse_pool::SyncCtx<'_>| {
        let mos = ctx.pool.mos();
        let zap = Zap::open(&mos.dnode(object)?)?;
        (keys.iter()).try_for_each(|key| zap.remove_words(ctx.tx, key))?;
        let all = ctx.pool.directory()?.lookup_u64(b"DDT-statistics")?;
        let all = Zap::open(&mos.dnode(ObjectId(all.unwrap_or(0)))?)?;
        all.update(ctx.tx, name.as_bytes(), &ZapValue::u64s(&[0; 512]))
    };
    pool.spa().sync_task(|_| Ok(()), take_out).expect("pruned");
}

/// Its pointer keeps the dedup flag, but no table has an entry. It is freed like a block without
/// dedup, even if a younger block has the same content.
#[test]
fn a_block_that_was_pruned_from_its_table_is_freed_once() {
    for fast in [true, false] {
        let (pool, device) = new_pool(fast);
        set(&pool, [("dedup", "on"), ("compression", "off")]);
        let data = noise(1 << 20);
        let fs = pool.file_system("tank").expect("file system");
        write(&fs, "a", &data);
        drop(fs);
        wait_until_idle(&pool);
        prune(&pool);
        sound(&pool, "pruned");
        pool.export().expect("export");
        drop(pool);
        let pool = open(&device);
        let fs = pool.file_system("tank").expect("file system");
        for name in ["b", "c"] {
            write(&fs, name, &data);
            pool.sync().expect("sync");
        }
        sound(&pool, "written again");
        for name in ["a", "b"] {
            remove(&fs, name);
            (0..4).for_each(|i| touch(&pool, i));
            sound(&pool, name);
        }
        assert!(has(&fs, "c", &data));
        remove(&fs, "c");
        drop(fs);
        wait_until_idle(&pool);
        sound(&pool, "at the end");
        assert_eq!(tables(&pool), 0);
        pool.export().expect("export");
    }
}

/// Entries of blocks with one pointer in the stores of the tables.
fn unique(pool: &zuse::Pool) -> u64 {
    let tables = zuse_pool::dedup::tables(pool.spa()).expect("tables");
    let stores = tables.iter().flat_map(|t| &t.stores);
    stores.filter(|s| s.class == 2).map(|s| s.entries).sum()
}

#[test]
fn a_table_is_pruned_of_its_oldest_blocks_that_came_once() {
    let clock = Arc::new(ManualClock::new(Timestamp::new(1_700_000_000, 0)));
    let env = Environment {
        clock: clock.clone(),
        ..Environment::default()
    };
    let (pool, device) = new_pool_with(true, env);
    set(&pool, [("dedup", "on"), ("compression", "off")]);
    set(&pool, [("recordsize", "4K"), ("copies", "1")]);
    let (old, young, twice) = (noise(100 * 4096), noise(80 * 4096), noise(50 * 4096));
    let young: Vec<u8> = young.iter().map(|b| !b).collect();
    let twice: Vec<u8> = twice.iter().map(|b| b ^ 0x55).collect();
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, "old", &old);
    for name in ["twice", "again"] {
        write(&fs, name, &twice);
    }
    wait_until_idle(&pool);
    clock.advance(Duration::from_secs(10));
    write(&fs, "young", &young);
    wait_until_idle(&pool);
    assert_eq!(unique(&pool), 180);
    let (count, saved) = (sound(&pool, "before"), pool.spa().space().deduped);
    let pruned = pool.prune_dedup(Prune::Percent(50)).expect("half");
    assert_eq!((pruned, unique(&pool)), (90, 90));
    assert_eq!(pool.prune_dedup(Prune::Older(3600)).expect("none"), 0);
    assert_eq!(sound(&pool, "half of it"), count);
    // The remaining older entries are pruned before the younger.
    let pruned = pool.prune_dedup(Prune::Percent(12)).expect("more");
    assert_eq!((pruned, unique(&pool)), (10, 80));
    let before = pool.spa().space().allocated;
    write(&fs, "young too", &young);
    pool.sync().expect("sync");
    assert!(pool.spa().space().allocated < before + 80 * 4096, "found");
    write(&fs, "old too", &old);
    pool.sync().expect("sync");
    assert!(pool.spa().space().allocated >= before + 100 * 4096, "not");
    wait_until_idle(&pool);
    sound(&pool, "written again");
    assert!(pool.spa().space().deduped > saved);
    for (name, data) in [("old", &old), ("young", &young), ("again", &twice)] {
        assert!(has(&fs, name, data), "{name}");
        remove(&fs, name);
    }
    wait_until_idle(&pool);
    pool.prune_dedup(Prune::Percent(100)).expect("all");
    sound(&pool, "pruned of all");
    assert_eq!(unique(&pool), 0);
    for name in ["old too", "young too", "twice"] {
        remove(&fs, name);
    }
    drop(fs);
    wait_until_idle(&pool);
    sound(&pool, "at the end");
    assert_eq!(tables(&pool), 0);
    pool.export().expect("export");
    drop(pool);
    sound(&open(&device), "opened again");
    let (pool, _device) = new_pool(false);
    set(&pool, [("dedup", "on"), ("compression", "off")]);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, "a", &old);
    pool.sync().expect("sync");
    let refused = pool.prune_dedup(Prune::Percent(50));
    assert!(refused.is_err_and(|e| e.is(Errno::NOTSUP)));
}

/// No new pointer to a corrupted block is created: the comparison detects it.
#[test]
fn what_is_compared_and_cannot_be_read_is_written_again() {
    {
        let (pool, device) = new_pool(true);
        set(&pool, [("dedup", "verify"), ("compression", "off")]);
        let fs = pool.file_system("tank").expect("file system");
        let data = noise(256 << 10);
        write(&fs, "a", &data);
        pool.sync().expect("sync");
        let (who, root) = (Credentials::root(), fs.root().expect("root"));
        let file = fs.lookup(&who, &root, b"a").expect("lookup");
        let first = file.dnode().stored_pointer(0).expect("pointer");
        let first = first.expect("a block");
        assert!(first.dedup());
        drop((file, root, fs));
        pool.export().expect("export");
        drop(pool);
        let at = first.dva(0).offset() + (4 << 20);
        device.write_at(&[9; 4096], at).expect("rot");
        let pool = open(&device);
        let fs = pool.file_system("tank").expect("file system");
        write(&fs, "b", &data);
        pool.sync().expect("sync");
        drop(fs);
        pool.export().expect("export");
        drop(pool);
        let pool = open(&device);
        let fs = pool.file_system("tank").expect("file system");
        assert!(has(&fs, "b", &data));
        drop(fs);
        pool.export().expect("export");
    }
}

#[test]
fn a_power_cut_leaves_pointers_and_counts_of_one_txg() {
    let rules = Rules {
        size: 256 << 20,
        cuts: 5,
        ..Rules::default()
    };
    for (fast, kind) in [(true, "on"), (false, "verify")] {
        let mut workload = Files::that_share();
        workload.features = Some(features(fast));
        let dedup = ("dedup".to_owned(), kind.to_owned());
        workload.properties.push(dedup);
        for seed in seeds(1) {
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
        let datasets = pool
            .list(&pool.name(), None, ListedKinds::HEADS)
            .expect("list");
        for dataset in &datasets {
            let Ok(fs) = pool.file_system(&dataset.name) else {
                continue;
            };
            empty(&pool, &fs, name);
        }
        let snapshots: Vec<String> = (pool
            .list(&pool.name(), None, ListedKinds::WITH_SNAPSHOTS)
            .expect("list"))
        .into_iter()
        .filter(|l| l.name.contains('@'))
        .map(|l| l.name)
        .collect();
        if !snapshots.is_empty() {
            let gone = pool.destroy_snapshots(&snapshots, DestroyOptions::ONE);
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

/// Overwrites the first block of each file of the root, and removes every second file.
fn empty(pool: &zuse::Pool, fs: &FileSystem, name: &str) {
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
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

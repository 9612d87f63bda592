//! Livelists of clones. After any change of a clone, its list contains the blocks that a walk of
//! its head finds. A destroyed clone is freed by its list. `ZUSE_SIM_SEEDS` asks for more
//! histories.

use std::sync::Arc;
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::tools::{Zap, ZapValue};
use zuse::{Credentials, DestroyOptions, ListedKinds, NewerSnapshots, Pool, PoolAccess, Recursion};
use zuse_base::{Entropy, ObjectId, SeededPrng};
use zuse_check::{Depth, Finding, Report, check};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_pool::{Environment, Limits};
use zuse_sim::administration::Administration;
use zuse_sim::clones;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::memory_pool::memory_pool;
use zuse_sim::seeds::seeds;
use zuse_vdev::PoolState;
use zuse_zpl::WriteOptions;

const FEATURE: &str = "com.delphix:livelist";
const DELETED: &[u8] = b"com.delphix:deleted_clones";
const RECORD: u64 = 4096;
const SIZE: u64 = 128 << 20;

/// Sublists are short, and a list is kept as long as any block is shared.
fn short_parts() -> Limits {
    Limits {
        livelist_entries: 30,
        livelist_least_shared: 0,
        threads: 1,
        // No txg ends during a recount.
        txg_timeout: Duration::from_secs(3600),
        ..Limits::default()
    }
}

fn open(device: Arc<dyn BlockDevice>, limits: Limits) -> zuse::Result<Arc<Pool>> {
    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    let env = Environment {
        limits,
        ..Environment::default()
    };
    open_whole(env, &[device], &access)
}

fn again(pool: Arc<Pool>, device: &Arc<MemDevice>) -> Arc<Pool> {
    pool.export().expect("export");
    drop(pool);
    open(device.clone(), short_parts()).expect("open")
}

fn sound(pool: &Pool, when: &str) -> Report {
    pool.sync().expect("sync");
    let report = check(pool.spa(), Depth::Metadata).expect("check");
    assert!(report.is_clean(), "{when}: {:#?}", report.problems);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{when}: {flaws:?}");
    report
}

/// The pool after a crash at this moment, examined without changing it.
fn look(image: &MemImage, when: &str) -> Report {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::from_image("sim", image));
    let pool = open_whole(Environment::default(), &[device], &PoolAccess::default());
    let pool = pool.unwrap_or_else(|e| panic!("{when}: {e}"));
    let report = check(pool.spa(), Depth::Metadata).expect("check");
    let wrong = report.not_of_labels();
    if !wrong.is_empty() {
        keep(image);
    }
    assert!(wrong.is_empty(), "{when}: {wrong:#?}");
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{when}: {flaws:?}");
    pool.close().expect("close");
    report
}

fn count(pool: &Pool) -> u64 {
    pool.spa().features().refcount(FEATURE)
}

/// Writes records of a file, each with different, incompressible bytes.
fn write(pool: &Pool, dataset: &str, records: std::ops::Range<u64>, salt: u64) {
    let fs = pool.file_system(dataset).expect(dataset);
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let file = fs
        .lookup(&who, &root, b"file")
        .or_else(|_| fs.create(&who, &root, b"file", 0o644))
        .expect("file");
    for record in records {
        let mut bytes = [0; RECORD as usize];
        SeededPrng::new(salt << 32 | record).fill(&mut bytes);
        fs.write(&file, record * RECORD, &bytes, WriteOptions::default())
            .expect("write");
    }
    pool.sync().expect("sync");
}

/// Saves an image for other checkers, in the directory of `ZUSE_KEEP_POOL`.
fn keep(image: &MemImage) {
    let Ok(dir) = std::env::var("ZUSE_KEEP_POOL") else {
        return;
    };
    let device = MemDevice::from_image("sim", image);
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(&mut bytes, 0).expect("read");
    std::fs::write(format!("{dir}/livelist.img"), bytes).expect("image");
}

/// A file system of 400 records with a snapshot, and a clone of that.
fn with_clone(limits: Limits) -> (Arc<Pool>, Arc<MemDevice>) {
    let (pool, device) = memory_pool("tank", SIZE, 12, limits).expect("create");
    let properties = [("recordsize".to_owned(), "4K".to_owned())];
    pool.create_filesystem("tank/a", &properties, (0, 0))
        .expect("file system");
    write(&pool, "tank/a", 0..400, 1);
    pool.snapshot(&["tank/a@s".into()], Recursion::One, &[])
        .expect("snapshot");
    pool.clone_snapshot("tank/a@s", "tank/c", &[])
        .expect("clone");
    assert_eq!(count(&pool), 1);
    (pool, device)
}

/// Many txgs of new and overwritten records.
fn overwrite(pool: &Pool, dataset: &str) {
    for txg in 0..12 {
        write(pool, dataset, txg * 8..txg * 8 + 20, 2 + txg);
    }
}

fn destroy(pool: &Pool, dataset: &str) {
    pool.destroy_dataset(dataset, DestroyOptions::ONE)
        .expect(dataset);
}

fn wait_until_idle(pool: &Pool) {
    pool.dsl().set_frees_per_txg(100_000);
    for _ in 0..8 {
        pool.spa().note_frees();
        pool.sync().expect("sync");
    }
    assert!(pool.dsl().stuck().is_none(), "{:?}", pool.dsl().stuck());
}

#[test]
fn a_list_is_the_clones_own_blocks_after_every_step() {
    let (mut lists, mut waiting) = (0, 0);
    for seed in seeds(2) {
        let limits = Limits {
            livelist_least_shared: if seed % 3 == 2 { 75 } else { 0 },
            ..short_parts()
        };
        let (pool, device) = memory_pool("tank", 256 << 20, 9, limits).expect("create");
        pool.dsl().set_frees_per_txg(1);
        let mut history = Administration::new(&pool, 7000 + seed);
        let mut step = 0;
        let result = history.run_with(24, &mut |pool| {
            step += 1;
            write_to_a_clone(pool, step)?;
            let report = check(pool.spa(), Depth::Metadata)?;
            lists += report.livelists;
            waiting += report.waiting_livelists;
            match report.problems.first() {
                Some(first) => Err(zuse_base::Error::corrupt("check", first)),
                None => Ok(()),
            }
        });
        result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        drop(history);
        let pool = again(pool, &device);
        wait_until_idle(&pool);
        sound(&pool, "after all");
    }
    assert!(lists > 20, "{lists} lists");
    println!("{lists} lists, {waiting} waited");
}

#[test]
fn lists_come_back_whole_after_every_cut_of_the_power() {
    let (mut lists, mut waiting) = (0, 0);
    let (pool, device) = with_clone(short_parts());
    for name in ["tank/d", "tank/e"] {
        pool.clone_snapshot("tank/a@s", name, &[]).expect("clone");
    }
    for (salt, name) in (10..).zip(["tank/c", "tank/d", "tank/e", "tank/c"]) {
        write(&pool, name, 0..30, salt);
    }
    pool.export().expect("export");
    drop(pool);
    let range = seeds(3);
    let few = range.end - range.start < 3;
    for seed in range {
        let prng = SeededPrng::new(seed);
        let mut image = device.snapshot();
        for cut in 0..3u64 {
            let power = PowerSupply::new();
            let disk = Arc::new(SimDisk::with_content("sim", &image, power.clone()));
            let Ok(pool) = open(disk.clone(), short_parts()) else {
                panic!("seed {seed}, cut {cut}: it does not open");
            };
            pool.dsl().set_frees_per_txg(1);
            power.cut_after(prng.below(200));
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    change_until_dark(&pool, seed * 10 + cut);
                    power.cut();
                    let _ = pool.spa().sync_now();
                });
                // A writer to a suspended pool waits until it is closed.
                while !worker.is_finished() && pool.spa().suspended().is_none() {
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
                let _ = pool.spa().close(PoolState::Active);
            });
            drop(pool);
            image = disk.crash(&prng).snapshot();
            let report = look(&image, &format!("seed {seed}, cut {cut}"));
            lists += report.livelists;
            waiting += report.waiting_livelists;
        }
    }
    let met = lists > 5 && waiting > 0;
    assert!(few || met, "{lists} lists, {waiting} waited");
}

/// Changes and destroys existing data until the pool gives up.
fn change_until_dark(pool: &Arc<Pool>, seed: u64) {
    let prng = SeededPrng::new(seed);
    for round in 0..40 {
        let Ok(all) = pool.list("tank", None, ListedKinds::WITH_SNAPSHOTS) else {
            return;
        };
        let heads: Vec<String> = all.into_iter().map(|l| l.name).collect();
        let heads: Vec<String> = heads
            .into_iter()
            .filter(|n| n.contains('/') && !n.contains('@'))
            .collect();
        let Some(name) = prng.pick(&heads) else {
            return;
        };
        let done = match prng.below(8) {
            0 => pool.destroy_dataset(name, DestroyOptions::ONE),
            1 if round % 8 == 7 => pool.promote(name),
            3 if round % 4 == 0 => {
                pool.snapshot(&[format!("{name}@r{seed}-{round}")], Recursion::One, &[])
            }
            _ => write_some(pool, name, round),
        };
        if done.is_err() && pool.sync().is_err() {
            return;
        }
    }
}

/// A file beside those of the history, new or overwritten.
fn write_to_a_clone(pool: &Arc<Pool>, step: u64) -> zuse::Result<()> {
    let mut clones = Vec::new();
    for listed in pool.list("tank", None, ListedKinds::WITH_SNAPSHOTS)? {
        let name = listed.name;
        if !name.contains('@') && pool.dataset(&name)?.stat()?.origin.is_some() {
            clones.push(name);
        }
    }
    match clones.get(step as usize % clones.len().max(1)) {
        Some(name) => write_some(pool, name, 3 * step),
        None => Ok(()),
    }
}

fn write_some(pool: &Pool, name: &str, salt: u64) -> zuse::Result<()> {
    let fs = pool.file_system(name)?;
    let (who, root) = (Credentials::root(), fs.root()?);
    let file = format!("w{}", salt % 3);
    let file = fs
        .lookup(&who, &root, file.as_bytes())
        .or_else(|_| fs.create(&who, &root, file.as_bytes(), 0o644))?;
    let bytes = salt.to_le_bytes().repeat(3000);
    fs.write(&file, 0, &bytes, WriteOptions::default())?;
    pool.sync()
}

#[test]
fn blocks_that_files_of_a_clone_share_are_freed_once_for_each_pointer() {
    let mut lists = 0;
    for seed in 0..2 {
        let (pool, device) = with_clone(short_parts());
        clones::run(&pool, "tank/c", seed, 60).expect("run");
        lists += sound(&pool, "after copies").livelists;
        let pool = again(pool, &device);
        lists += sound(&pool, "after an export").livelists;
        for snapshot in pool.snapshots("tank/c").expect("snapshots") {
            let name = match snapshot.contains('@') {
                true => snapshot,
                false => format!("tank/c@{snapshot}"),
            };
            pool.destroy_snapshots(&[name], DestroyOptions::ONE)
                .expect("snapshot");
        }
        sound(&pool, "without snapshots");
        destroy(&pool, "tank/c");
        wait_until_idle(&pool);
        let report = sound(&pool, "without the clone");
        assert_eq!((report.shared, count(&pool)), (0, 0), "seed {seed}");
    }
    assert!(lists > 0, "no list came through");
}

#[test]
fn a_destroyed_clone_is_worked_off_in_small_steps_over_crashes() {
    let (mut pool, mut device) = with_clone(short_parts());
    let before = sound(&pool, "a new clone").claimed;
    overwrite(&pool, "tank/c");
    assert_eq!(sound(&pool, "written").livelists, 1);
    let full = pool.spa().space().allocated;
    pool.dsl().set_frees_per_txg(1);
    destroy(&pool, "tank/c");
    let mut waited = Vec::new();
    for step in 0..400 {
        pool.spa().note_frees();
        pool.sync().expect("sync");
        let image = device.snapshot();
        let report = look(&image, "a step");
        assert_eq!(report.livelists, 0);
        if report.waiting_livelists == 0 {
            break;
        }
        waited.push(report.claimed);
        if waited.len() == 2 {
            keep(&image);
        }
        if step % 3 == 2 {
            let _ = pool.close();
            drop(pool);
            device = Arc::new(MemDevice::from_image("sim", &image));
            pool = open(device.clone(), short_parts()).expect("open");
        }
        pool.dsl().set_frees_per_txg(1);
    }
    assert!(waited.len() > 2, "{waited:?}: a txg is not bounded");
    assert!(waited[1] > before + (full - before) / 2, "{waited:?}");
    wait_until_idle(&pool);
    assert_eq!(count(&pool), 0);
    let directory = pool.spa().directory().expect("directory");
    assert_eq!(directory.lookup_u64(DELETED).expect("lookup"), None);
    let after = sound(&pool, "after all").claimed;
    assert!(after < before + (256 << 10), "{before} became {after}");
}

#[test]
fn a_list_stays_short_however_often_blocks_are_overwritten() {
    let (pool, _device) = with_clone(short_parts());
    for round in 0..40 {
        write(&pool, "tank/c", 0..20, 100 + round);
    }
    let report = sound(&pool, "overwritten");
    assert_eq!(report.livelists, 1);
    let (parts, entries) = shape(&pool);
    // 40 txgs wrote about 30 entries each, and as many frees.
    assert!(parts > 1 && parts < 8, "{parts} parts");
    assert!(entries < 500, "{entries} entries");
}

/// Directory of the clone, its list.
fn list_of(pool: &Pool) -> (u64, u64) {
    let head = pool.dsl().dataset("tank/c").expect("clone");
    let dir = head.phys().expect("phys").dir;
    let table = Zap::open(&pool.spa().mos().dnode(ObjectId(dir)).expect("dir")).expect("table");
    let list = table.lookup_u64(FEATURE.as_bytes()).expect("lookup");
    (dir, list.expect("a list"))
}

fn parts_of(pool: &Pool, list: u64) -> Vec<(Vec<u8>, u64)> {
    let list = pool.spa().mos().dnode(ObjectId(list)).expect("list");
    let mut parts = Vec::new();
    let mut cursor = Zap::open(&list).expect("zap").cursor(0);
    while let Some(entry) = cursor.next().expect("walk") {
        parts.push((entry.name.clone(), entry.value.first().expect("a number")));
    }
    parts.sort_by_key(|(_, part)| *part);
    parts
}

/// Sublists of the clone's list, and entries in all.
fn shape(pool: &Pool) -> (usize, u64) {
    let parts = parts_of(pool, list_of(pool).1);
    let entries = parts.iter().map(|(_, part)| {
        let dnode = pool.spa().mos().dnode(ObjectId(*part)).expect("part");
        zuse_format::field::u64_at(&dnode.bonus_vec(), 0)
    });
    (parts.len(), entries.sum())
}

#[test]
fn a_list_goes_when_little_is_shared_and_with_a_promotion() {
    let limits = Limits {
        livelist_least_shared: 75,
        ..short_parts()
    };
    let (pool, _device) = with_clone(limits);
    write(&pool, "tank/c", 0..40, 5);
    assert_eq!(sound(&pool, "a tenth is its own").livelists, 1);
    pool.rename("tank/c", "tank/d", Recursion::One)
        .expect("rename");
    assert_eq!(sound(&pool, "renamed").livelists, 1);
    write(&pool, "tank/d", 0..200, 6);
    assert_eq!(sound(&pool, "half is its own").livelists, 0);
    assert_eq!(count(&pool), 0);

    pool.clone_snapshot("tank/a@s", "tank/e", &[])
        .expect("clone");
    write(&pool, "tank/e", 0..10, 5);
    assert_eq!(sound(&pool, "another clone").livelists, 1);
    pool.promote("tank/e").expect("promote");
    assert_eq!(sound(&pool, "promoted").livelists, 0);
    assert_eq!(count(&pool), 0);
}

#[test]
fn a_rolled_back_clone_has_no_list_and_one_with_snapshots_keeps_it() {
    let (pool, _device) = with_clone(short_parts());
    write(&pool, "tank/c", 0..20, 5);
    pool.snapshot(&["tank/c@x".into()], Recursion::One, &[])
        .expect("snapshot");
    write(&pool, "tank/c", 10..30, 6);
    assert_eq!(sound(&pool, "with a snapshot").livelists, 1);
    pool.destroy_snapshots(&["tank/c@x".into()], DestroyOptions::ONE)
        .expect("destroy");
    assert_eq!(sound(&pool, "without").livelists, 1);
    pool.snapshot(&["tank/c@y".into()], Recursion::One, &[])
        .expect("snapshot");
    write(&pool, "tank/c", 0..5, 7);
    pool.rollback("tank/c@y", NewerSnapshots::Refuse)
        .expect("rollback");
    assert_eq!(sound(&pool, "rolled back").livelists, 0);
    pool.destroy_dataset("tank/c", DestroyOptions::RECURSIVE)
        .expect("destroy");
    wait_until_idle(&pool);
    sound(&pool, "destroyed");
}

#[test]
fn the_list_of_a_clone_that_openzfs_made_goes_on_and_is_used() {
    let golden = Golden::load("livelist");
    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    let devices = golden.block_devices();
    let pool = open_whole(Environment::default(), &devices, &access).expect("open");
    let lists = sound(&pool, "as it came").livelists;
    assert!(lists > 0);
    pool.dsl().set_frees_per_txg(1);
    write_some(&pool, "kern/c", 1).expect("write");
    write_some(&pool, "kern/c", 4).expect("write again");
    assert_eq!(sound(&pool, "written").livelists, lists);
    pool.destroy_dataset("kern/c", DestroyOptions::RECURSIVE)
        .expect("destroy");
    wait_until_idle(&pool);
    assert_eq!(sound(&pool, "destroyed").livelists, lists - 1);
    assert_eq!(count(&pool), lists - 1);
}

/// Changes an object of the MOS without updating any accounting.
fn forge(
    pool: &Pool,
    change: impl Fn(&zuse_pool::SyncCtx<'_>) -> zuse::Result<()> + Send + 'static,
) {
    let done = pool.spa().sync_task(|_| Ok(()), move |ctx| change(ctx));
    done.expect("forged");
}

#[test]
fn the_checker_misses_entries_that_are_not_there() {
    let (pool, _device) = with_clone(short_parts());
    write(&pool, "tank/c", 0..4, 5);
    write(&pool, "tank/c", 0..4, 6);
    sound(&pool, "written");
    let (_, part) = parts_of(&pool, list_of(&pool).1).remove(0);
    // The newest entry is a free; a second one is appended.
    forge(&pool, move |ctx| {
        let dnode = ctx.pool.mos().dnode(ObjectId(part))?;
        let mut bonus = dnode.bonus_vec();
        bonus[0] -= 1;
        bonus[48] -= 1;
        dnode.set_bonus(ctx.tx, &bonus)
    });
    pool.sync().expect("sync");
    let report = check(pool.spa(), Depth::Metadata).expect("check");
    let found: Vec<Finding> = report.problems.iter().map(|p| p.finding).collect();
    let wrong = [Finding::ListSum, Finding::Livelist];
    assert_eq!(found, wrong, "{:#?}", report.problems);
}

#[test]
fn a_damaged_list_costs_the_list_and_neither_the_clone_nor_the_pool() {
    for destroyed_first in [false, true] {
        let (pool, _device) = with_clone(short_parts());
        write(&pool, "tank/c", 0..10, 5);
        let list = list_of(&pool).1;
        let name = parts_of(&pool, list).remove(0).0;
        forge(&pool, move |ctx| {
            let table = Zap::open(&ctx.pool.mos().dnode(ObjectId(list))?)?;
            table.update(ctx.tx, &name, &ZapValue::U64(0xdead))
        });
        if !destroyed_first {
            write(&pool, "tank/c", 0..10, 6);
            assert_eq!(count(&pool), 0, "the list is still there");
        }
        destroy(&pool, "tank/c");
        for _ in 0..4 {
            pool.spa().note_frees();
            pool.sync().expect("sync");
        }
        // A list that has become ambiguous is kept, and the pool continues.
        assert_eq!(pool.dsl().stuck().is_some(), destroyed_first);
        write(&pool, "tank/a", 0..10, 7);
    }
}

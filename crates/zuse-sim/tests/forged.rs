//! Pools with forged accounting and valid checksums. A contradiction suspends the pool before its
//! next uberblock, and another process can read it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{Credentials, DestroyOptions, ListedKinds, PoolAccess};
use zuse_base::{Error, Result, SeededPrng};
use zuse_check::{Depth, Finding, Problem, check};
use zuse_device::BlockDevice;
use zuse_format::dnode::DNODE_SLOT;
use zuse_pool::{Environment, Limits};
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::manifests::of_dataset;
use zuse_sim::rewrite::{Atlas, Place, Rewriter, Structure, aim, scramble};

/// Bonus type of directories of the MOS, and where their used bytes stand.
const DSL_DIR: u8 = 12;
const USED: usize = 40;
/// Their first part there: the head's.
const BREAKDOWN: usize = 104;

fn environment() -> Environment {
    let limits = Limits {
        cache: 64 << 20,
        dirty: 32 << 20,
        dirty_metadata: 32 << 20,
        threads: 1,
        txg_timeout: Duration::from_secs(3600),
        ..Limits::default()
    };
    Environment {
        limits,
        ..Environment::default()
    }
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn watch_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            if thread.name().is_some_and(|n| n.starts_with("forged_")) {
                // The test's own verdict.
                return usual(info);
            }
            PANICS.lock().expect("panics").push(info.to_string());
        }));
    });
}

/// The labels at both ends of all devices, with the rings of uberblocks.
fn labels(golden: &Golden) -> Vec<u8> {
    let mut all = Vec::new();
    for device in golden.block_devices() {
        let mut bytes = vec![0; 1 << 20];
        let (front, back) = bytes.split_at_mut(512 << 10);
        device.read_at(front, 0).expect("read");
        let end = device.size() / (256 << 10) * (256 << 10);
        device.read_at(back, end - (512 << 10)).expect("read");
        all.extend(bytes);
    }
    all
}

/// Writes, removes existing data, destroys snapshots and file systems. Returns the first failure
/// that is not a refusal.
fn change(pool: &Arc<zuse::Pool>) -> Result<()> {
    let root = Credentials::root();
    let fine = |result: Result<()>| match result {
        Err(Error::Refused { .. } | Error::Unsupported { .. }) => Ok(()),
        other => other,
    };
    let all = pool.list(&pool.name(), None, ListedKinds::WITH_SNAPSHOTS)?;
    for item in all.iter().filter(|i| !i.name.contains(['@', '#'])) {
        let Ok(tree) = of_dataset(pool, &item.name) else {
            continue;
        };
        let fs = pool.file_system(&item.name)?;
        fine((|| {
            let file = fs.create(&root, &fs.root()?, b"made new", 0o644)?;
            fs.write(&file, 0, &[7; 300_000], Default::default())
                .map(drop)
        })())?;
        for path in tree.keys() {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
            let removed = fs
                .resolve(&root, dir.as_bytes())
                .and_then(|dir| fs.unlink(&root, &dir, name.as_bytes()));
            fine(removed)?;
        }
        fine(fs.sync())?;
    }
    for item in all.iter().rev().filter(|i| i.name.contains('@')) {
        fine(pool.destroy_dataset(&item.name, DestroyOptions::ONE))?;
    }
    for _ in 0..4 {
        pool.sync()?;
    }
    Ok(())
}

/// How often the pool reports that a block has two owners, or is both in use and free.
fn doubles(golden: &Golden) -> Option<usize> {
    let devices = golden.block_devices();
    let pool = open_whole(environment(), &devices, &PoolAccess::default()).ok()?;
    let report = check(pool.spa(), Depth::Metadata).ok();
    let _ = pool.close();
    let bad = |p: &&Problem| matches!(p.finding, Finding::Double | Finding::FreeInUse);
    report.map(|r| r.problems.iter().filter(bad).count())
}

/// Opens it for writing, uses it, closes it. Returns the result, or a result that is not allowed.
fn run(golden: &Golden) -> std::result::Result<Option<Error>, String> {
    PANICS.lock().expect("panics").clear();
    let before = doubles(golden);
    let access = PoolAccess {
        writable: true,
        force: true,
        ..Default::default()
    };
    let (copy, (send, receive)) = (golden.block_devices(), mpsc::channel());
    std::thread::spawn(move || {
        let done = catch_unwind(AssertUnwindSafe(|| {
            let pool = open_whole(environment(), &copy, &access)?;
            let changed = change(&pool);
            let suspended = pool.suspended();
            let closed = pool.close();
            suspended.map_or(Ok(()), Err).and(changed).and(closed)
        }));
        let _ = send.send(done.map(Result::err));
    });
    let done = receive.recv_timeout(Duration::from_secs(120));
    let panics = std::mem::take(&mut *PANICS.lock().expect("panics"));
    if !panics.is_empty() {
        return Err(format!("panic: {}", panics.join("; ")));
    }
    let Ok(Ok(ended)) = done else {
        return Err("it does not end".into());
    };
    let after = doubles(golden);
    match (before, after) {
        (Some(before), None) => Err(format!(
            "not to be opened any more, {before} doubles before"
        )),
        (Some(before), Some(after)) if after > before => {
            Err(format!("{after} doubles, {before} before; {ended:?}"))
        }
        _ => Ok(ended),
    }
}

fn content(atlas: &Atlas, golden: &Golden, place: &Place) -> Vec<u8> {
    let copy = golden.copy();
    let mut bytes = Vec::new();
    let mut rewriter = Rewriter::new(atlas, &copy).expect("rewriter");
    rewriter
        .edit(place, &mut |b| bytes.clone_from(b))
        .expect("read");
    bytes
}

fn places(atlas: &Atlas, structure: Structure) -> Vec<Rc<Place>> {
    let of = |p: &&(Structure, Rc<Place>)| p.0 == structure;
    atlas
        .places
        .iter()
        .filter(of)
        .map(|p| p.1.clone())
        .collect()
}

/// Applies `find` to the block of a structure that has the most candidates.
fn forge(
    name: &'static str,
    structure: Structure,
    find: &dyn Fn(&[u8]) -> Vec<usize>,
    edit: &dyn Fn(&mut [u8], &[usize]),
) -> Golden {
    let golden = Golden::load(name);
    let atlas = Atlas::survey(&golden).expect("survey");
    let most = places(&atlas, structure)
        .into_iter()
        .take(12)
        .map(|place| (find(&content(&atlas, &golden, &place)), place))
        .max_by_key(|(found, _)| found.len());
    let (found, place) = most.expect("a block of the structure");
    assert!(!found.is_empty(), "{name}: nothing to forge");
    let mut rewriter = Rewriter::new(&atlas, &golden).expect("rewriter");
    rewriter
        .edit(&place, &mut |bytes| edit(bytes, &found))
        .expect("forged");
    drop(rewriter);
    golden
}

/// Slots of a block of dnodes that `wanted` takes.
fn slots(bytes: &[u8], wanted: &dyn Fn(&[u8]) -> bool) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(dnode) = bytes.get(at..at + DNODE_SLOT) {
        if dnode[0] != 0 && wanted(dnode) {
            found.push(at);
        }
        at += DNODE_SLOT
            * (1 + if dnode[0] == 0 {
                0
            } else {
                usize::from(dnode[12])
            });
    }
    found
}

/// The pool is suspended for that reason, wrote no uberblock, and can be read.
fn ends_with(golden: &Golden, why: &str) {
    let access = PoolAccess {
        writable: true,
        force: true,
        ..Default::default()
    };
    let devices = golden.block_devices();
    let before = labels(golden);
    // The first txg is written during the open.
    let ended = match open_whole(environment(), &devices, &access) {
        Err(e) => e,
        Ok(pool) => {
            let failed = change(&pool).expect_err("it goes on");
            let suspended = pool.suspended();
            assert!(pool.sync().is_err() && pool.close().is_err());
            suspended.unwrap_or_else(|| panic!("not suspended: {failed}"))
        }
    };
    assert!(matches!(ended, Error::Suspended { .. }), "{ended:?}");
    assert!(ended.to_string().contains(why), "{ended}");
    assert!(labels(golden) == before, "an uberblock came");
    let panics = std::mem::take(&mut *PANICS.lock().expect("panics"));
    assert!(panics.is_empty(), "{panics:?}");
    let pool = open_whole(environment(), &devices, &PoolAccess::default()).expect("read-only");
    of_dataset(&pool, &pool.name()).expect("it can be read");
    pool.close().expect("close");
}

/// Sets a number in the bonuses of all objects of a type that have another there. Then checks how
/// the pool ends.
fn forged_count_ends(golden: &'static str, kind: u8, at: usize, value: u64, why: &str) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    watch_panics();
    let place = move |dnode: &[u8]| 64 + 128 * usize::from(dnode[3]) + at;
    let golden = forge(
        golden,
        Structure::MosBonus,
        &|bytes| slots(bytes, &|d| d[4] == kind && d[place(d)..][..8] != [0; 8]),
        &|bytes, found| {
            for slot in found {
                let at = slot + place(&bytes[*slot..]);
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        },
    );
    ends_with(&golden, why);
}

#[test]
fn forged_used_bytes_do_not_become_less_than_nothing() {
    forged_count_ends("stripe", DSL_DIR, USED, 4096, "used bytes");
}

#[test]
fn forged_parts_of_used_bytes_do_not_become_less_than_nothing() {
    forged_count_ends("stripe", DSL_DIR, BREAKDOWN, 512, "in part 0");
}

#[test]
fn a_block_that_the_space_maps_have_free_is_not_freed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    watch_panics();
    // The rewriter writes blocks to free space of the maps, and does not change the maps.
    let golden = forge("stripe", Structure::MosBonus, &|_| vec![0], &|_, _| {});
    ends_with(&golden, "contradicts itself");
}

/// `ZUSE_SIM_MUTATIONS=FROM..TO` for long runs.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("ZUSE_SIM_MUTATIONS").unwrap_or_else(|_| "0..40".into());
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn forged_books_bring_errors_and_never_a_panic_or_a_second_owner() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    watch_panics();
    let goldens = ["dsl", "features", "stripe", "brt", "classes", "gang"].map(Golden::load);
    let atlases: Vec<Atlas> = goldens
        .iter()
        .map(|g| Atlas::survey(g).expect("survey"))
        .collect();
    let books = [
        Structure::SpaceMap,
        Structure::MosBonus,
        Structure::Bpobj,
        Structure::MosZap,
        Structure::Other,
    ];
    let (mut failures, mut ends) = (Vec::new(), BTreeMap::<String, u32>::new());
    for seed in seeds() {
        let prng = SeededPrng::new(seed ^ 0x24);
        let which = (seed % goldens.len() as u64) as usize;
        let structure = books[(seed / goldens.len() as u64) as usize % books.len()];
        let all = places(&atlases[which], structure);
        let Some(place) = prng.pick(&all) else {
            continue;
        };
        let golden = goldens[which].copy();
        let mut changed = String::new();
        let mut rewriter = Rewriter::new(&atlases[which], &golden).expect("rewriter");
        let edited = rewriter.edit(place, &mut |bytes| {
            let (from, to) = aim(&prng, structure, bytes);
            changed = scramble(&prng, bytes, from, to);
        });
        drop(rewriter);
        if edited.is_err() {
            continue;
        }
        match run(&golden) {
            Err(why) => failures.push(format!(
                "seed {seed}, {}, {}: {changed}: {why}",
                golden.name, place.what
            )),
            Ok(ended) => {
                let kind = ended.map_or("fine".into(), |e| {
                    let text = format!("{e:?}");
                    text.split([' ', '(']).next().unwrap_or_default().to_owned()
                });
                *ends.entry(kind).or_default() += 1;
            }
        }
    }
    println!("{ends:?}");
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

//! Damaged input. Each case ends with the right data or an error that names the place. There is no
//! panic, no hang, and no allocation above 1 GiB.

#[path = "support/counting.rs"]
mod counting;

use std::collections::BTreeMap;
use std::sync::{Mutex, mpsc};
use std::time::Duration;
use zuse::Recursion;
use zuse::tools::Layers as _;
use zuse::{DestroyOptions, ListedKinds};

use counting::{Counting, processor_seconds};
use serde_json::Value;
use zuse_base::{Error, SeededPrng};
use zuse_pool::{Environment, Limits};
use zuse_sim::golden::{Golden, NAMES, READ_ONLY, REDUNDANT, open_whole};
use zuse_sim::manifests::{differences, expected, of_dataset, of_volume};
use zuse_sim::rewrite::{Atlas, damage, mutate};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn watch_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current()
                .name()
                .is_some_and(|n| n.contains("damage"))
            {
                // The test's own verdict.
                return usual(info);
            }
            let mut panics = PANICS.lock().unwrap_or_else(|e| e.into_inner());
            let text = info.payload().downcast_ref::<String>().cloned();
            let text = text.or_else(|| {
                info.payload()
                    .downcast_ref::<&str>()
                    .map(|s| (*s).to_owned())
            });
            panics.push(format!(
                "{} at {}",
                text.unwrap_or_default(),
                info.location().map_or(String::new(), ToString::to_string)
            ));
        }));
    });
}

/// The result of reading everything.
#[derive(Default)]
struct Outcome {
    errors: Vec<Error>,
    trees: BTreeMap<String, BTreeMap<String, Value>>,
    volumes: BTreeMap<String, String>,
}

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

/// Opens, lists, reads everything; then, where asked, opens for writing and writes something.
fn everything(golden: &Golden, write: bool) -> Outcome {
    let mut out = Outcome::default();
    let pool = match open_whole(
        environment(),
        &golden.block_devices(),
        &zuse::PoolAccess::default(),
    ) {
        Ok(pool) => pool,
        Err(e) => {
            out.errors.push(e);
            return out;
        }
    };
    let name = pool.name();
    // Not the passphrase: its hundred thousand rounds would take longer than all the rest.
    let keys = golden.keys();
    if let Err(e) = pool.try_keys(keys.get(..2).unwrap_or_default()) {
        out.errors.push(e);
    }
    match pool.list(&name, None, ListedKinds::WITH_SNAPSHOTS) {
        Err(e) => out.errors.push(e),
        Ok(list) => {
            for item in list {
                let dataset = pool.dataset(&item.name);
                let stat = dataset.and_then(|d| {
                    d.stat()?;
                    d.properties()?;
                    pool.dsl().dataset(&item.name)?.is_volume()
                });
                match stat {
                    Err(e) => out.errors.push(e),
                    Ok(true) => match of_volume(&pool, &item.name) {
                        Ok(sum) => drop(out.volumes.insert(item.name, sum)),
                        Err(e) => out.errors.push(e),
                    },
                    Ok(false) => match of_dataset(&pool, &item.name) {
                        Ok(tree) => drop(out.trees.insert(item.name, tree)),
                        Err(e) => out.errors.push(e),
                    },
                }
            }
        }
    }
    if let Err(e) = pool.figures() {
        out.errors.push(e);
    }
    let _ = zuse_check::check(pool.spa(), zuse_check::Depth::Metadata);
    let _ = pool.close();
    if write {
        let access = zuse::PoolAccess {
            writable: true,
            force: true,
            ..Default::default()
        };
        match open_whole(environment(), &golden.block_devices(), &access) {
            Err(e) => out.errors.push(e),
            Ok(pool) => {
                if let Err(e) = change(&pool) {
                    out.errors.push(e);
                }
                let _ = pool.close();
            }
        }
    }
    out
}

fn change(pool: &std::sync::Arc<zuse::Pool>) -> zuse_base::Result<()> {
    let name = pool.name();
    let root = zuse::Credentials::root();
    {
        let fs = pool.file_system(&name)?;
        let file = fs.create(&root, &fs.root()?, b"new file", 0o644)?;
        fs.write(&file, 0, &[7; 300_000], zuse_zpl::WriteOptions::default())?;
        fs.sync()?;
    }
    pool.snapshot(&[format!("{name}@new")], Recursion::Below, &[])?;
    pool.create_filesystem(&format!("{name}/new"), &[], (0, 0))?;
    pool.destroy_dataset(&format!("{name}@new"), DestroyOptions::RECURSIVE)?;
    pool.sync()
}

/// Runs one case in its own thread. Returns its findings, or why it fails.
fn run(golden: Golden, write: bool) -> Result<Outcome, String> {
    let before = counting::start();
    PANICS.lock().unwrap_or_else(|e| e.into_inner()).clear();
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let done =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| everything(&golden, write)));
        let _ = send.send(done.ok());
    });
    // CPU time counts, because the machine may be busy. A deadlock uses none.
    let (mut done, from) = (None, processor_seconds());
    for _ in 0..120 {
        done = receive.recv_timeout(Duration::from_secs(1)).ok();
        if done.is_some() || processor_seconds() - from > 20.0 {
            break;
        }
    }
    let panics = std::mem::take(&mut *PANICS.lock().unwrap_or_else(|e| e.into_inner()));
    if !panics.is_empty() {
        return Err(format!("panic: {}", panics.join("; ")));
    }
    let Some(Some(outcome)) = done else {
        return Err("hang: no end after 20 s of processor time or 120 s".into());
    };
    let _ = thread.join();
    let peak = counting::peak().saturating_sub(before);
    if peak > 1 << 30 {
        return Err(format!("{peak} bytes of memory"));
    }
    for e in &outcome.errors {
        if e.to_string().len() < 8
            || matches!(e, Error::Corrupt { place, .. } if place.to_string().is_empty())
        {
            return Err(format!("an error without a place: {e}"));
        }
    }
    Ok(outcome)
}

/// All golden pools.
fn every_pool() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain(REDUNDANT).chain(READ_ONLY)
}

/// Prints the progress of a long run.
fn tell(kind: &str, seed: u64, failures: &[String]) {
    if seeds().end - seeds().start > 1000 && seed % 100 == 99 {
        let last = failures.last().map_or("", String::as_str);
        println!(
            "{kind} damage, up to seed {seed}: {} failures; {last}",
            failures.len()
        );
    }
}

/// The cases of each of the two kinds: `ZUSE_SIM_MUTATIONS=FROM..TO`; the long run is `0..20000`.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("ZUSE_SIM_MUTATIONS").unwrap_or_else(|_| "0..50".into());
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn raw_damage_gives_the_right_data_or_an_error() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    watch_panics();
    let goldens: Vec<Golden> = every_pool().map(Golden::load).collect();
    let wanted: Vec<_> = goldens.iter().map(|g| expected(&g.manifest())).collect();
    let mut failures = Vec::new();
    let (mut clean, mut refused) = (0, 0);
    for seed in seeds() {
        let which = (seed % goldens.len() as u64) as usize;
        let prng = SeededPrng::new(seed);
        let mut golden = goldens[which].copy();
        let what = damage(&mut golden, &prng);
        tell("raw", seed, &failures);
        match run(golden, seed % 4 == 0) {
            Err(why) => failures.push(format!("seed {seed}: {what}: {why}")),
            Ok(outcome) => {
                if outcome.errors.is_empty() {
                    clean += 1
                } else {
                    refused += 1
                }
                for (name, have) in &outcome.trees {
                    // Without checksums nothing is guaranteed; snapshots' roots have other numbers
                    // in manifests.
                    let Some(want) = wanted[which]
                        .get(name)
                        .filter(|_| name != "codecs/k-off" && !name.contains('@'))
                        // Damage to a log ends it.
                        .filter(|_| !matches!(goldens[which].name, "zil" | "zil-slog"))
                    else {
                        continue;
                    };
                    let points: Vec<String> = have.keys().map(|p| format!("{name}/{p}")).collect();
                    let wrong = differences(name, want, have, &points);
                    if !wrong.is_empty() {
                        failures.push(format!("seed {seed}: {what}: wrong data: {}", wrong[0]));
                    }
                }
            }
        }
    }
    println!("{clean} with all data, {refused} with errors");
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(clean > 0 && refused > 0, "both must happen");
}

#[test]
fn sealed_damage_is_met_by_the_parsers() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    watch_panics();
    let goldens: Vec<Golden> = every_pool().map(Golden::load).collect();
    let atlases: Vec<Atlas> = goldens
        .iter()
        .map(|g| Atlas::survey(g).expect("survey"))
        .collect();
    let mut failures = Vec::new();
    let mut structures = BTreeMap::<String, (u64, u64)>::new();
    for seed in seeds() {
        let which = (seed % goldens.len() as u64) as usize;
        let prng = SeededPrng::new(seed);
        let golden = goldens[which].copy();
        let what = match mutate(&atlases[which], &golden, &prng) {
            Ok(what) => what,
            Err(e) => {
                failures.push(format!("seed {seed}: the rewriter: {e}"));
                continue;
            }
        };
        let count = structures
            .entry(what.split(' ').next().unwrap_or_default().to_owned())
            .or_default();
        tell("sealed", seed, &failures);
        match run(golden, seed % 2 == 0) {
            Err(why) => failures.push(format!("seed {seed}: {what}: {why}")),
            Ok(outcome) => {
                count.0 += 1;
                // No parser has seen a changed block with a wrong checksum. So the rewriter is
                // broken.
                if let Some(e) = outcome
                    .errors
                    .iter()
                    .find(|e| e.to_string().contains("checksum mismatch"))
                {
                    count.1 += 1;
                    if !matches!(
                        what.split(' ').next(),
                        Some(
                            "Indirect"
                                | "Dnode"
                                | "MosDnode"
                                | "Objset"
                                | "Gang"
                                | "MosBonus"
                                | "Uberblock"
                                | "Label"
                        )
                    ) {
                        println!("seed {seed}: {what}: {e}");
                    }
                }
            }
        }
    }
    println!("{structures:?}");
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn a_rewritten_path_reads_as_before() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    for name in every_pool() {
        let golden = Golden::load(name);
        let atlas = Atlas::survey(&golden).expect("survey");
        let want = expected(&golden.manifest());
        let prng = SeededPrng::new(5);
        for _ in 0..2 {
            let copy = golden.copy();
            let (_, place) = prng.pick(&atlas.places).expect("a place");
            let mut rewriter = zuse_sim::rewrite::Rewriter::new(&atlas, &copy).expect("rewriter");
            rewriter.edit(place, &mut |_| {}).expect("edit");
            let mut outcome = everything(&copy, false);
            // Errors of keys that are not tried here.
            outcome.errors.retain(|e| !e.is(zuse_base::Errno::ACCES));
            assert!(
                outcome.errors.is_empty(),
                "{}: {:?}",
                place.what,
                outcome.errors
            );
            for (dataset, have) in outcome.trees.iter().filter(|(d, _)| !d.contains('@')) {
                let points: Vec<String> = have.keys().map(|p| format!("{dataset}/{p}")).collect();
                let Some(want) = want.get(dataset).filter(|_| !name.starts_with("zil")) else {
                    continue;
                };
                let wrong = differences(dataset, want, have, &points);
                assert!(wrong.is_empty(), "{}: {wrong:?}", place.what);
            }
        }
    }
}

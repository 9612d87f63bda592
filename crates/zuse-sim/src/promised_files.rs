//! Cuts the power under file systems with changes that `fsync` has acknowledged ("promises"). All
//! of them must be there after replay.
//!
//! ```text
//!   images ─► SimDisks ─► pool ─► threads change files, fsync … cut ─► crash ─► images
//!     ▲                                                                      │
//!     └── what was promised is there ◄── replayed in memory, claimed, for real ┘
//! ```
//! Each thread has a directory in one of the file systems. Every object there contains the number
//! of the change that made it. After a cut
//! - every object has the state of the last promised change, or of a later attempted one;
//! - the tree is the same after a replay in memory and after a real one;
//! - the checker finds nothing before the log is claimed, with it claimed, and after replay.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{KeyMaterial, Pool, PoolAccess};
use zuse_base::{Entropy, ManualClock, Result, SeededPrng, Timestamp};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_pool::{Environment, VdevSpec};
use zuse_zpl::{Credentials, FileSystem, Hashing, Znode, manifest};

use crate::golden::open_whole;
use crate::power::environment;
use crate::promises::Pace;

mod worker;

use worker::{PossibleStates, Worker, found};

const POOL: &str = "promises";

/// How cuts are done.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Cuts in the chain.
    pub cuts: u32,
    /// The number of disk operations within which the power is cut.
    pub within: u64,
    /// Threads.
    pub threads: u64,
    /// File systems that they are in.
    pub systems: u64,
    /// The file systems are encrypted.
    pub encrypted: bool,
    /// Extended attributes are files of hidden directories.
    pub hidden: bool,
    /// `logbias=throughput`: blocks of which most was written are written to their final place at
    /// once.
    pub throughput: bool,
    /// Blocks are stored as they are.
    pub plain: bool,
    /// Bytes of the blocks of files.
    pub record_size: u32,
    /// The disk lies about flushes.
    pub ignore_flushes: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            cuts: 4,
            within: 150,
            threads: 3,
            systems: 1,
            encrypted: false,
            hidden: false,
            throughput: false,
            plain: false,
            record_size: 128 << 10,
            ignore_flushes: false,
        }
    }
}

impl Rules {
    /// The rules of a seed: each variant in turn.
    pub fn of_seed(seed: u64) -> Self {
        Self {
            threads: 1 + seed % 4,
            systems: 1 + seed / 4 % 2,
            encrypted: seed % 3 == 1,
            hidden: seed % 2 == 1,
            throughput: matches!(seed % 5, 0 | 3),
            plain: seed % 7 < 3,
            record_size: [128 << 10, 16 << 10, 8 << 10][(seed / 2 % 3) as usize],
            within: [40, 150, 600][(seed % 3) as usize],
            ..Self::default()
        }
    }
}

/// Results of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Cuts.
    pub cuts: u64,
    /// Promises that were given.
    pub promises: u64,
    /// Promises given by a flush of log blocks.
    pub by_flush: u64,
    /// Data blocks written to their final place before their txg.
    pub placed: u64,
}

/// The known state of one thread's directory.
#[derive(Clone, Debug, Default)]
struct Known {
    next: u64,
    objects: BTreeMap<String, PossibleStates>,
}

fn top(i: u64) -> Vec<u8> {
    format!("t{i}").into_bytes()
}

fn system(i: u64) -> String {
    format!("{POOL}/f{i}")
}

/// The directory of a thread, with its file system.
fn place(pool: &Arc<Pool>, rules: &Rules, i: u64) -> Result<(Arc<FileSystem>, Arc<Znode>)> {
    let fs = pool.file_system(&system(i % rules.systems))?;
    let dir = fs.lookup(&Credentials::root(), &fs.root()?, &top(i))?;
    Ok((fs, dir))
}

fn env(prng: &SeededPrng, clock: &Arc<ManualClock>) -> Environment {
    let mut env = environment(prng, clock);
    env.limits.clone_blocks = true;
    env.limits.log_indirect = true;
    env
}

fn key() -> KeyMaterial {
    KeyMaterial::new(vec![7; 32])
}

/// A new disk with a pool, its file system and the directories.
fn create(rules: &Rules, seed: u64) -> Result<MemImage> {
    let prng = SeededPrng::new(seed);
    let clock = Arc::new(ManualClock::new(Timestamp::new(1_700_000_000, 0)));
    let disk = Arc::new(MemDevice::new("sim", 128 << 20));
    let vdev = VdevSpec {
        device: disk.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let pool = Pool::create_on_devices(env(&prng, &clock), POOL, vec![vdev], None, &[])?;
    let mut properties = Vec::new();
    let mut set = |name: &str, value: &str| properties.push((name.to_owned(), value.to_owned()));
    if rules.encrypted {
        set("encryption", "on");
        set("keyformat", "raw");
        set("keylocation", "prompt");
    }
    set("xattr", if rules.hidden { "dir" } else { "sa" });
    set("recordsize", &rules.record_size.to_string());
    if rules.throughput {
        set("logbias", "throughput");
    }
    if rules.plain {
        set("compression", "off");
    }
    let key = rules.encrypted.then(key);
    for i in 0..rules.systems {
        pool.create_filesystem_with_key(&system(i), &properties, (0, 0), key.as_ref())?;
    }
    for i in 0..rules.threads {
        let fs = pool.file_system(&system(i % rules.systems))?;
        fs.mkdir(&Credentials::root(), &fs.root()?, &top(i), 0o755)?;
    }
    pool.sync()?;
    pool.close()?;
    Ok(disk.snapshot())
}

fn open(
    rules: &Rules,
    env: Environment,
    device: Arc<dyn BlockDevice>,
    writable: bool,
) -> Result<Arc<Pool>> {
    let access = PoolAccess {
        writable,
        force: true,
        ..PoolAccess::default()
    };
    let pool = open_whole(env, &[device], &access)?;
    for i in 0..rules.systems {
        if rules.encrypted {
            pool.load_key(&system(i), &key())?;
        }
    }
    Ok(pool)
}

/// Works until the power fails.
fn run(
    rules: &Rules,
    pool: &Arc<Pool>,
    known: &mut [Known],
    prng: &SeededPrng,
    power: &Arc<PowerSupply>,
    counts: &mut Counts,
) {
    let (kept, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) && pool.spa().suspended().is_none() {
                std::thread::sleep(Duration::from_micros(300));
            }
            power.cut();
            pool.spa().give_up();
        });
        let pace = Pace::of(prng, rules.throughput);
        let (kept_too, done_too) = (&kept, &done);
        scope.spawn(move || {
            let spa = pool.spa();
            loop {
                pace.wait(kept_too, done_too);
                if spa.wait_synced(spa.synced_txg().next()).is_err() {
                    return;
                }
            }
        });
        // Errors caused by the power cut are no failure.
        let _ = work(rules, pool, known, prng, &kept);
        done.store(true, Ordering::Release);
    });
    let _ = pool.close();
    let figures = &pool.spa().logs().figures;
    counts.by_flush += figures.by_flush.get();
    counts.placed += figures.placed.get();
    counts.promises += kept.load(Ordering::Relaxed);
}

/// Runs all threads until they fail.
fn work(
    rules: &Rules,
    pool: &Arc<Pool>,
    known: &mut [Known],
    prng: &SeededPrng,
    kept: &AtomicU64,
) -> Result<()> {
    let places = (0..known.len() as u64)
        .map(|i| place(pool, rules, i))
        .collect::<Result<Vec<_>>>()?;
    let shared: Vec<Mutex<Known>> = known.iter().cloned().map(Mutex::new).collect();
    std::thread::scope(|scope| {
        for ((fs, dir), known) in places.iter().cloned().zip(&shared) {
            let worker = Worker {
                fs,
                dir,
                known,
                prng: prng.fork(),
                kept,
            };
            scope.spawn(move || {
                let _ = (0..300).try_for_each(|_| worker.one());
            });
        }
    });
    for (known, shared) in known.iter_mut().zip(shared) {
        *known = shared.into_inner().expect("whole");
    }
    Ok(())
}

/// The present state of every known file, and the whole tree.
type Seen = (Vec<BTreeMap<String, Option<u64>>>, Vec<String>);

fn look(rules: &Rules, pool: &Arc<Pool>, known: &[Known]) -> Result<Seen> {
    let mut all = Vec::new();
    for (i, known) in known.iter().enumerate() {
        let (fs, dir) = place(pool, rules, i as u64)?;
        let each = known.objects.keys();
        let there = each.map(|name| Ok((name.clone(), found(&fs, &dir, name)?)));
        all.push(there.collect::<Result<_>>()?);
    }
    let mut tree = Vec::new();
    for i in 0..rules.systems {
        let fs = pool.file_system(&system(i))?;
        manifest(&fs, Hashing::All, &mut |entry| {
            let file = entry.file.map(|(size, sum, _)| (size, sum));
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            let facts = (entry.mode, entry.nlink, entry.ino, file, entry.xattrs);
            tree.push(format!("{i} {path} {facts:?}"));
            Ok(())
        })?;
    }
    Ok((all, tree))
}

fn silent(pool: &Arc<Pool>, when: &str) -> std::result::Result<(), String> {
    let report = check(pool.spa(), Depth::Metadata).map_err(|e| format!("{when}: {e}"))?;
    let problems: Vec<String> = (report.not_of_labels().iter())
        .map(ToString::to_string)
        .collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{when}: {}", problems.join("\n  "))),
    }
}

/// Examines the disk after a cut, in every state of the log.
fn check_image(
    rules: &Rules,
    image: &MemImage,
    known: &mut [Known],
    env: &dyn Fn() -> Environment,
    show: Show<'_>,
) -> std::result::Result<(), String> {
    let say = |what: &'static str| move |e: zuse_base::Error| format!("{what}: {e}");
    let device = || Arc::new(MemDevice::from_image("sim", image));
    let pool = open(rules, env(), device(), false).map_err(say("the pool does not open"))?;
    show("unclaimed", image);
    silent(&pool, "unclaimed")?;
    let seen = look(rules, &pool, known).map_err(say("it cannot be read"))?;
    let txg = pool.spa().uberblock().txg;
    let _ = pool.close();
    drop(pool);
    for (i, (known, there)) in known.iter_mut().zip(&seen.0).enumerate() {
        for (name, states) in &mut known.objects {
            let now = there.get(name).copied().flatten();
            if now != states.promised && !states.tried.contains(&now) {
                return Err(format!(
                    "txg {txg}: t{i}/{name}: {now:?} is there, {states:?}"
                ));
            }
            *states = PossibleStates {
                promised: now,
                tried: Vec::new(),
            };
        }
    }
    let claimed = device();
    for when in ["claimed", "replayed"] {
        let pool = open(rules, env(), claimed.clone(), true)
            .map_err(say("the pool does not open for writing"))?;
        if when == "replayed" {
            let again = look(rules, &pool, known).map_err(say("it cannot be replayed"))?;
            if again != seen {
                return Err(format!(
                    "the tree differs when it is replayed: {seen:?} {again:?}"
                ));
            }
        }
        pool.sync().map_err(say("sync"))?;
        silent(&pool, when)?;
        let _ = pool.close();
        show(when, &claimed.snapshot());
    }
    Ok(())
}

/// One chain of cuts.
///
/// # Errors
/// The first violation, as text with the cut's number.
pub fn chain(rules: &Rules, seed: u64) -> std::result::Result<Counts, String> {
    chain_shown(rules, seed, &mut |_, _| {})
}

/// Called with the content of the disk after each cut: `unclaimed`, `claimed` and `replayed`.
pub type Show<'a> = &'a mut dyn FnMut(&str, &MemImage);

/// As [`chain`], with an observer.
///
/// # Errors
/// As [`chain`].
pub fn chain_shown(
    rules: &Rules,
    seed: u64,
    show: Show<'_>,
) -> std::result::Result<Counts, String> {
    let prng = SeededPrng::new(seed);
    let clock = Arc::new(ManualClock::new(Timestamp::new(1_700_000_100, 0)));
    let mut image = create(rules, seed).map_err(|e| format!("create: {e}"))?;
    let mut known = vec![Known::default(); rules.threads as usize];
    let mut counts = Counts::default();
    for cut in 0..rules.cuts {
        clock.advance(Duration::from_secs(1));
        let power = PowerSupply::new();
        let disk = SimDisk::with_content("sim", &image, power.clone());
        disk.ignore_flushes(rules.ignore_flushes);
        let disk = Arc::new(disk);
        let (early, ops) = (prng.below(5) == 0, prng.below(rules.within));
        if early {
            power.cut_after(ops);
        }
        if let Ok(pool) = open(rules, env(&prng, &clock), disk.clone(), true) {
            if !early {
                // Writes of the open are not counted.
                power.cut_after(10 + ops);
            }
            run(rules, &pool, &mut known, &prng, &power, &mut counts);
        }
        power.cut();
        counts.cuts += 1;
        image = disk.crash(&prng).snapshot();
        check_image(rules, &image, &mut known, &|| env(&prng, &clock), show)
            .map_err(|e| format!("seed {seed}, cut {cut}: {e}"))?;
    }
    Ok(counts)
}

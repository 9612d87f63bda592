//! Cuts the power under a pool repeatedly, and compares the result with a model.
//!
//! ```text
//!   image ─► SimDisks ─► pool ─► workload … cut ─► crash: any subset of unflushed writes ─► image
//!     ▲                                                                                       │
//!     └── model at that txg ◄── uberblock's txg ◄── reopened: model equal, checker clean ◄─────┘
//! ```
//! What must be true after every cut:
//! - the pool opens;
//! - its content is the model at the end of its uberblock's txg, byte for byte. If a newer txg was
//!   acknowledged, nothing changed between the two;
//! - [`zuse_check::check`] finds nothing.
//!
//! The seed chooses the operation at which the power fails, and the writes that the disks keep.
//! Cuts are done in chains, each on the result of the one before, because damage may become visible
//! late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zuse_base::{Entropy, ManualClock, Result, SeededPrng, Timestamp};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_pool::{Environment, Host, Limits, Pool, VdevSpec};
use zuse_vdev::PoolState;

use zuse_check::{Depth, check};

/// A workload for a pool, and the expected content.
pub trait Workload: Sync {
    /// What the pool should hold.
    type Model: Clone + Send + Sync + 'static;
    /// An open pool with the layers that the workload needs.
    type Pool: Send + Sync;

    /// Makes a pool.
    ///
    /// # Errors
    /// The pool's.
    fn create(&self, env: Environment, vdevs: Vec<VdevSpec>) -> Result<Self::Pool>;
    /// Opens the only pool on some devices.
    ///
    /// # Errors
    /// The pool's.
    fn open(
        &self,
        env: Environment,
        devices: &[Arc<dyn BlockDevice>],
        writable: bool,
    ) -> Result<Self::Pool>;
    /// The storage pool below.
    fn spa(pool: &Self::Pool) -> &Arc<Pool>;
    /// Makes the first content of a new pool.
    ///
    /// # Errors
    /// The pool's.
    fn prepare(&self, pool: &Self::Pool) -> Result<Self::Model>;
    /// Changes the pool until an error occurs or `steps` are done, and records the history.
    fn run(&self, pool: &Self::Pool, steps: u64, prng: &SeededPrng, history: &History<Self::Model>);
    /// Compares the pool (open read-only) with the model; the differences.
    fn compare(&self, pool: &Self::Pool, model: &Self::Model) -> Vec<String>;
}

/// The model at the end of each txg, and the promised txgs.
#[derive(Clone)]
pub struct History<M>(Arc<zuse_base::sync::Mutex<Past<M>>>);

struct Past<M> {
    states: std::collections::BTreeMap<u64, M>,
    promised: u64,
    /// A global change without an answer so far. It may be in any txg from this one on.
    asked: Option<(u64, M)>,
}

impl<M: Clone> History<M> {
    fn new(txg: u64, model: M) -> Self {
        Self(Arc::new(zuse_base::sync::Mutex::new(Past {
            states: [(txg, model)].into(),
            promised: txg,
            asked: None,
        })))
    }

    fn past(&self) -> zuse_base::sync::MutexGuard<'_, Past<M>> {
        self.0.lock()
    }

    /// The newest model.
    pub fn latest(&self) -> M {
        match self.past().states.last_key_value() {
            Some((_, model)) => model.clone(),
            None => unreachable!("a history has a beginning"),
        }
    }

    /// The model changed in a txg.
    pub fn set(&self, txg: u64, model: M) {
        self.past().states.insert(txg, model);
    }

    /// An administrative change begins, whose txg is not known before it is done.
    pub fn ask(&self, from_txg: u64, after: M) {
        self.past().asked = Some((from_txg, after));
    }

    /// The change asked for is done, and on disk.
    pub fn answered(&self, txg: u64) {
        let mut past = self.past();
        if let Some((_, after)) = past.asked.take() {
            past.states.insert(txg, after);
        }
        past.promised = past.promised.max(txg);
    }

    /// The change asked for was refused.
    pub fn refused(&self) {
        self.past().asked = None;
    }

    fn asked_at(&self, txg: u64) -> Option<M> {
        self.past()
            .asked
            .as_ref()
            .filter(|(from, _)| txg >= *from)
            .map(|(_, m)| m.clone())
    }

    /// The pool reported that everything up to this txg is safe.
    pub fn promise(&self, txg: u64) {
        let mut past = self.past();
        past.promised = past.promised.max(txg);
    }

    fn at(&self, txg: u64) -> Option<M> {
        self.past()
            .states
            .range(..=txg)
            .next_back()
            .map(|(_, m)| m.clone())
    }
}

/// How a chain of cuts is done.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Devices.
    pub disks: u32,
    /// Bytes of each.
    pub size: u64,
    /// Sector shift.
    pub ashift: u8,
    /// Cuts in the chain.
    pub cuts: u32,
    /// The number of operations (writes, flushes) within which the power is cut. A write may hold
    /// many blocks: small neighbours are joined.
    pub within: u64,
    /// Steps of the workload, more than fit before the cut.
    pub steps: u64,
    /// The disks lie about flushes.
    pub ignore_flushes: bool,
    /// The number of cuts between two runs of the checker (the model is always compared).
    pub check_every: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            disks: 1,
            size: 1 << 30,
            ashift: 12,
            cuts: 10,
            within: 100,
            steps: 40,
            ignore_flushes: false,
            check_every: 1,
        }
    }
}

/// The content of the disks, and its model.
pub type Start<M> = (Vec<MemImage>, M);

/// Results of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Cuts.
    pub cuts: u32,
    /// Cuts after which a txg newer than the one opened was found.
    pub advanced: u32,
    /// Cuts that hit the pool while it was being opened.
    pub opening: u32,
}

pub(crate) fn environment(prng: &SeededPrng, clock: &Arc<ManualClock>) -> Environment {
    Environment {
        clock: clock.clone(),
        entropy: Arc::new(prng.fork()),
        host: Host {
            id: 7,
            name: "sim".into(),
            ..Host::default()
        },
        limits: Limits {
            cache: 32 << 20,
            dirty: 256 << 20,
            dirty_metadata: 256 << 20,
            txg_timeout: Duration::from_secs(3600),
            threads: 1,
            ..Limits::default()
        },
    }
}

/// A new pool with the workload's first content, and its model.
///
/// # Errors
/// The pool's: creation on good disks must not fail.
pub fn create<W: Workload>(
    workload: &W,
    rules: &Rules,
    seed: u64,
) -> Result<(Vec<MemImage>, W::Model)> {
    let prng = SeededPrng::new(seed);
    let clock = Arc::new(ManualClock::new(Timestamp::new(1_700_000_000, 0)));
    let disks: Vec<Arc<MemDevice>> = (0..rules.disks)
        .map(|i| Arc::new(MemDevice::new(format!("sim{i}"), rules.size)))
        .collect();
    let vdevs = disks
        .iter()
        .map(|d| VdevSpec {
            device: d.clone(),
            is_disk: false,
            ashift: Some(rules.ashift),
        })
        .collect();
    let pool = workload.create(environment(&prng, &clock), vdevs)?;
    let model = workload.prepare(&pool)?;
    W::spa(&pool).sync_now()?;
    W::spa(&pool).close(PoolState::Active)?;
    Ok((disks.iter().map(|d| d.snapshot()).collect(), model))
}

/// One chain of cuts.
///
/// # Errors
/// The first violation, as text with the cut's number.
pub fn chain<W: Workload>(
    workload: &W,
    rules: &Rules,
    start: &(Vec<MemImage>, W::Model),
    seed: u64,
) -> std::result::Result<Counts, String> {
    chain_to(workload, rules, start, seed).map(|(counts, _)| counts)
}

/// As [`chain`]. Also returns the content of the disks after the last cut, with its model.
///
/// # Errors
/// As [`chain`].
pub fn chain_to<W: Workload>(
    workload: &W,
    rules: &Rules,
    start: &Start<W::Model>,
    seed: u64,
) -> std::result::Result<(Counts, Start<W::Model>), String> {
    let prng = SeededPrng::new(seed);
    let clock = Arc::new(ManualClock::new(Timestamp::new(1_700_000_100, 0)));
    let mut images = start.0.clone();
    let mut model = start.1.clone();
    let mut counts = Counts::default();
    for cut in 0..rules.cuts {
        clock.advance(Duration::from_secs(1));
        let power = PowerSupply::new();
        let disks: Vec<Arc<SimDisk>> = images
            .iter()
            .enumerate()
            .map(|(i, image)| {
                let disk = Arc::new(SimDisk::with_content(
                    format!("sim{i}"),
                    image,
                    power.clone(),
                ));
                disk.ignore_flushes(rules.ignore_flushes);
                disk
            })
            .collect();
        let devices: Vec<Arc<dyn BlockDevice>> = disks
            .iter()
            .map(|d| d.clone() as Arc<dyn BlockDevice>)
            .collect();
        power.cut_after(prng.below(rules.within));
        let history = match workload.open(environment(&prng, &clock), &devices, true) {
            Ok(pool) => {
                let history = History::new(W::spa(&pool).synced_txg().0, model.clone());
                run_until_dark(workload, rules, &pool, &prng, &history, &power);
                history
            }
            Err(_) => {
                counts.opening += 1;
                History::new(0, model.clone())
            }
        };
        power.cut();
        counts.cuts += 1;
        let at = |what: String| format!("seed {seed}, cut {cut}: {what}");
        images = disks.iter().map(|d| d.crash(&prng).snapshot()).collect();
        let found =
            check_images(workload, rules, &images, &history, &prng, &clock, cut).map_err(at)?;
        if found.1 > history.past().promised {
            counts.advanced += 1;
        }
        model = found.0;
    }
    Ok((counts, (images, model)))
}

fn run_until_dark<W: Workload>(
    workload: &W,
    rules: &Rules,
    pool: &W::Pool,
    prng: &SeededPrng,
    history: &History<W::Model>,
    power: &Arc<PowerSupply>,
) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            workload.run(pool, rules.steps, prng, history);
            // Objects that are still open must see the cut too.
            power.cut();
            let _ = W::spa(pool).sync_now();
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) && W::spa(pool).suspended().is_none() {
            std::thread::sleep(Duration::from_micros(300));
        }
        let _ = W::spa(pool).close(PoolState::Active);
    });
}

fn check_images<W: Workload>(
    workload: &W,
    rules: &Rules,
    images: &[MemImage],
    history: &History<W::Model>,
    prng: &SeededPrng,
    clock: &Arc<ManualClock>,
    cut: u32,
) -> std::result::Result<(W::Model, u64), String> {
    let devices: Vec<Arc<dyn BlockDevice>> = images
        .iter()
        .enumerate()
        .map(|(i, image)| Arc::new(MemDevice::from_image(format!("sim{i}"), image)) as _)
        .collect();
    let pool = workload
        .open(environment(prng, clock), &devices, false)
        .map_err(|e| format!("the pool does not open: {e}"))?;
    let spa = W::spa(&pool);
    let txg = spa.uberblock().txg;
    let promised = history.past().promised;
    // A txg without changes writes no uberblock. What was promised up to it must be there all the
    // same.
    let Some(mut model) = history.at(txg.max(promised)) else {
        return Err(format!(
            "the pool is at txg {txg}, of which nothing is known"
        ));
    };
    let mut wrong = workload.compare(&pool, &model);
    if let (false, Some(other)) = (wrong.is_empty(), history.asked_at(txg)) {
        let wrong_too = workload.compare(&pool, &other);
        if wrong_too.len() < wrong.len() {
            (wrong, model) = (wrong_too, other);
        }
    }
    if cut.is_multiple_of(rules.check_every) {
        match check(spa, Depth::Metadata) {
            Ok(report) => wrong.extend(report.not_of_labels().iter().map(ToString::to_string)),
            Err(e) => wrong.push(e.to_string()),
        }
    }
    let _ = spa.close(PoolState::Active);
    if wrong.is_empty() {
        return Ok((model, txg));
    }
    let count = wrong.len();
    wrong.truncate(12);
    Err(format!(
        "txg {txg} (promised {promised}), {count} differences:\n  {}",
        wrong.join("\n  ")
    ))
}

/// Runs chains for many seeds on two threads; the counts and failures.
///
/// # Panics
/// If a pool on good disks cannot be made.
pub fn run_chains<W: Workload>(
    workload: &W,
    rules: &[Rules],
    seeds: std::ops::Range<u64>,
) -> (Counts, Vec<String>) {
    let starts: Vec<_> = rules
        .iter()
        .enumerate()
        .map(|(i, r)| {
            create(workload, r, 1000 + i as u64).unwrap_or_else(|e| panic!("create {r:?}: {e}"))
        })
        .collect();
    let all = zuse_base::sync::Mutex::new((Counts::default(), Vec::new()));
    crate::seeds::each(seeds, 2, |seed| {
        let which = (seed % rules.len() as u64) as usize;
        let result = chain(workload, &rules[which], &starts[which], seed);
        let mut all = all.lock();
        match result {
            Ok(t) => {
                all.0.cuts += t.cuts;
                all.0.advanced += t.advanced;
                all.0.opening += t.opening;
            }
            Err(e) => all.1.push(e),
        }
    });
    all.into_inner()
}

//! Cuts the power under volumes with writes that a commit of the log has acknowledged ("promises").
//! All of them must be there after replay.
//!
//! ```text
//!   images ─► SimDisks ─► pool ─► threads write, commit, sync … cut ─► crash ─► images
//!     ▲                                                                          │
//!     └──── what was promised is there ◄── replayed in memory, claimed, for real ┘
//! ```
//! Each sector of a volume contains the number of the write that made it. After a cut
//! - a sector has the number of the last promised write to it, or of a later attempted one;
//! - if all data is in log records, the surviving writes are the first ones of the volume, without
//!   a gap;
//! - the checker finds nothing before the logs are claimed, with them claimed, and after replay.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{KeyMaterial, NewVolume, Pool, PoolAccess};
use zuse_base::sync::Mutex;
use zuse_base::{Entropy, ManualClock, ObjectId, Result, SeededPrng, Timestamp};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_dmu::{Intent, IntentData, IntentLog, Order, WriteState};
use zuse_dsl::{Dataset, Estimate};
use zuse_pool::{Environment, VdevSpec};

use crate::golden::open_whole;
use crate::power::environment;

/// The smallest atomic write.
const SECTOR: u64 = 4096;
const POOL: &str = "promises";
const DATA: ObjectId = ObjectId(1);

/// How cuts are done.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Devices.
    pub disks: u32,
    /// Sector shift.
    pub ashift: u8,
    /// Cuts in the chain.
    pub cuts: u32,
    /// The number of operations within which the power is cut.
    pub within: u64,
    /// Threads that write, each on its own volume or all on one.
    pub threads: u32,
    /// All write to the same volume.
    pub shared: bool,
    /// The data of writes is stored in their records.
    pub copied: bool,
    /// Volumes are encrypted.
    pub encrypted: bool,
    /// Bytes of a volume.
    pub size: u64,
    /// Bytes of its blocks.
    pub block_size: u64,
    /// `logbias=throughput`: blocks of which most was written are written to their final place at
    /// once.
    pub throughput: bool,
    /// The disks lie about flushes.
    pub ignore_flushes: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            disks: 1,
            ashift: 12,
            cuts: 5,
            within: 120,
            threads: 3,
            shared: false,
            copied: false,
            encrypted: false,
            size: 256 << 10,
            block_size: 16384,
            throughput: false,
            ignore_flushes: false,
        }
    }
}

/// Results of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Cuts.
    pub cuts: u64,
    /// Promises that were kept.
    pub promises: u64,
    /// Of them, those that were not in a txg yet.
    pub replayed: u64,
    /// Log blocks written.
    pub blocks: u64,
    /// Flushes of log blocks.
    pub flushes: u64,
    /// Promises given by a flush of log blocks.
    pub by_flush: u64,
    /// Data blocks written to their final place before their txg.
    pub placed: u64,
}

/// The known state of a volume.
#[derive(Clone, Default)]
struct Known {
    /// The numbers of its sectors after the last cut.
    base: Vec<u64>,
    next: u64,
    /// Write → its first sector and how many.
    tried: BTreeMap<u64, (u64, u64)>,
    /// All writes up to this one are promised.
    promised: u64,
}

impl Known {
    fn new(rules: &Rules) -> Self {
        Self {
            base: vec![0; (rules.size / SECTOR) as usize],
            ..Self::default()
        }
    }

    /// Whether a sector may carry a number: that of the last promised write, or a later one's.
    fn allows(&self, sector: u64, number: u64) -> bool {
        let least = self.at(sector, self.promised);
        let covers = |&(first, count): &(u64, u64)| (first..first + count).contains(&sector);
        number == least || number > least && self.tried.get(&number).is_some_and(covers)
    }

    /// The number that a sector has if exactly the writes up to `last` are there.
    fn at(&self, sector: u64, last: u64) -> u64 {
        let covers = |&(first, count): &(u64, u64)| (first..first + count).contains(&sector);
        let mut all = self.tried.range(..=last).rev();
        let found = all.find(|(_, write)| covers(write)).map(|(n, _)| *n);
        found.unwrap_or_else(|| self.base[sector as usize])
    }

    /// Continues with the sectors that were found: the other attempted writes are lost.
    fn continue_from(&mut self, found: &[u64]) {
        self.base = found.to_vec();
        self.tried.clear();
        self.promised = self.next;
    }
}

struct Volume {
    dataset: Arc<Dataset>,
    log: Arc<dyn IntentLog>,
    known: Mutex<Known>,
}

struct Size(u64);

impl IntentData for Size {
    fn size(&self, _: ObjectId) -> Result<Option<u64>> {
        Ok(Some(self.0))
    }
}

fn key() -> KeyMaterial {
    KeyMaterial::new(vec![7; 32])
}

fn name(i: u32) -> String {
    format!("{POOL}/v{i}")
}

fn env(prng: &SeededPrng, clock: &Arc<ManualClock>) -> Environment {
    let mut env = environment(prng, clock);
    env.limits.intent_log = true;
    env.limits.log_indirect = true;
    env
}

fn volumes(rules: &Rules) -> u32 {
    if rules.shared { 1 } else { rules.threads }
}

/// New disks with a pool, and the known state of its volumes.
fn create(rules: &Rules, seed: u64) -> Result<Vec<MemImage>> {
    let prng = SeededPrng::new(seed);
    let clock = Arc::new(ManualClock::new(Timestamp::new(1_700_000_000, 0)));
    let disks: Vec<Arc<MemDevice>> = (0..rules.disks)
        .map(|i| Arc::new(MemDevice::new(format!("sim{i}"), 64 << 20)))
        .collect();
    let vdevs = disks
        .iter()
        .map(|d| VdevSpec {
            device: d.clone(),
            is_disk: false,
            ashift: Some(rules.ashift),
        })
        .collect();
    let pool = Pool::create_on_devices(env(&prng, &clock), POOL, vdevs, None, &[])?;
    let mut properties = vec![("compression".to_owned(), "off".to_owned())];
    if rules.throughput {
        properties.push(("logbias".to_owned(), "throughput".to_owned()));
    }
    if rules.encrypted {
        properties.push(("encryption".to_owned(), "on".to_owned()));
        properties.push(("keyformat".to_owned(), "raw".to_owned()));
        properties.push(("keylocation".to_owned(), "prompt".to_owned()));
    }
    for i in 0..volumes(rules) {
        let new = NewVolume {
            size: rules.size,
            block_size: rules.block_size,
            sparse: true,
            properties: properties.clone(),
        };
        let key = rules.encrypted.then(key);
        pool.create_volume_with_key(&name(i), &new, key.as_ref())?;
    }
    pool.sync()?;
    pool.close()?;
    Ok(disks.iter().map(|d| d.snapshot()).collect())
}

/// A record of a write, as the log takes it.
fn record(offset: u64, data: &[u8], copied: bool) -> Intent {
    let mut record = vec![0; 192];
    let mut put = |at: usize, value: u64| record[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, 9);
    put(8, 192 + if copied { data.len() as u64 } else { 0 });
    put(32, DATA.0);
    put(40, offset);
    put(48, data.len() as u64);
    if copied {
        record.extend_from_slice(data);
    }
    Intent {
        order: Order::Names,
        record,
        write: Some(match copied {
            true => WriteState::Copied,
            false => WriteState::NeedCopy,
        }),
    }
}

fn content(number: u64, sector: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(SECTOR as usize);
    while out.len() < SECTOR as usize {
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&sector.to_le_bytes());
    }
    out
}

impl Volume {
    fn open(pool: &Arc<Pool>, i: u32, known: &Known, data: &Weak<dyn IntentData>) -> Result<Self> {
        // Replays what is in its log.
        drop(pool.volume(&name(i))?);
        let dataset = pool.dsl().dataset(&name(i))?;
        let log = dataset.open_log(data.clone())?;
        Ok(Self {
            dataset,
            log,
            known: Mutex::new(known.clone()),
        })
    }

    fn write(&self, rules: &Rules, prng: &SeededPrng) -> Result<u64> {
        let of_block = rules.block_size / SECTOR;
        let longest = match rules.copied {
            true => 4,
            false if prng.below(16) == 0 => 40,
            false => of_block.max(4) + 2,
        };
        let count = 1 + prng.below(longest);
        let mut first = prng.below(rules.size / SECTOR - count);
        if !rules.copied && prng.below(2) == 0 {
            first -= first % of_block;
        }
        let copied = rules.copied;
        let dnode = self.dataset.objset()?.dnode(DATA)?;
        // Writes of a volume are in the order of their numbers.
        let mut known = self.known.lock();
        let tx = self.dataset.begin(Estimate {
            write_bytes: count * SECTOR + (64 << 10),
            frees: false,
        })?;
        known.next += 1;
        let number = known.next;
        known.tried.insert(number, (first, count));
        let data: Vec<u8> = (first..first + count)
            .flat_map(|sector| content(number, sector))
            .collect();
        dnode.write_at(&tx, first * SECTOR, &data)?;
        if self.log.is_on() {
            for (i, piece) in data.chunks(16384).enumerate() {
                let at = first * SECTOR + i as u64 * 16384;
                self.log.add(&tx, record(at, piece, copied));
            }
        }
        Ok(number)
    }

    fn commit(&self) -> Result<()> {
        let number = self.known.lock().next;
        self.log.commit(None)?;
        let mut known = self.known.lock();
        known.promised = known.promised.max(number);
        Ok(())
    }
}

/// When a txg ends.
pub(crate) enum Pace {
    /// After some time: also while the promised writes are running.
    Time(Duration),
    /// After a number of promises: even on a slow machine several are in one open txg.
    Promises(u64),
}

impl Pace {
    pub fn of(prng: &SeededPrng, by_promises: bool) -> Self {
        let micros = 500 + prng.below(20_000);
        match by_promises {
            true => Self::Promises(2 + micros % 7),
            false => Self::Time(Duration::from_micros(micros)),
        }
    }

    pub fn wait(&self, kept: &AtomicU64, done: &AtomicBool) {
        let until = match self {
            Self::Time(pace) => return std::thread::sleep(*pace),
            Self::Promises(many) => kept.load(Ordering::Acquire) + many,
        };
        while kept.load(Ordering::Acquire) < until && !done.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn work(rules: &Rules, volume: &Volume, prng: &SeededPrng, kept: &AtomicU64) -> Result<()> {
    for _ in 0..400 {
        for _ in 0..=prng.below(3) {
            volume.write(rules, prng)?;
        }
        if prng.below(4) > 0 {
            volume.commit()?;
            kept.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
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
    // No administrator can clear an error here.
    pool.spa().set_wait_for_clear(false);
    let data: Arc<dyn IntentData> = Arc::new(Size(rules.size));
    let weak = Arc::downgrade(&data);
    let opened: Result<Vec<Volume>> = (0..volumes(rules))
        .map(|i| Volume::open(pool, i, &known[i as usize], &weak))
        .collect();
    let kept = AtomicU64::new(0);
    let Ok(volumes) = opened else {
        power.cut();
        let _ = pool.close();
        return;
    };
    let done = AtomicBool::new(false);
    let left = AtomicU64::new(u64::from(rules.threads));
    std::thread::scope(|scope| {
        for t in 0..rules.threads {
            let volume = &volumes[t as usize % volumes.len()];
            let prng = prng.fork();
            let (kept, left, done) = (&kept, &left, &done);
            scope.spawn(move || {
                let _ = work(rules, volume, &prng, kept);
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    power.cut();
                    let _ = pool.sync();
                    done.store(true, Ordering::Release);
                }
            });
        }
        let pace = Pace::of(prng, rules.throughput || rules.block_size > 16384);
        let (done_too, kept) = (&done, &kept);
        scope.spawn(move || {
            let done = done_too;
            while !done.load(Ordering::Acquire) {
                pace.wait(kept, done);
                let spa = pool.spa();
                if spa.wait_synced(spa.synced_txg().next()).is_err() {
                    return;
                }
            }
        });
        while !done.load(Ordering::Acquire) && pool.spa().suspended().is_none() {
            std::thread::sleep(Duration::from_micros(300));
        }
        power.cut();
        pool.spa().give_up();
        let _ = pool.close();
    });
    let figures = &pool.spa().logs().figures;
    counts.blocks += figures.blocks.get();
    counts.flushes += figures.flushes.get();
    counts.by_flush += figures.by_flush.get();
    counts.placed += figures.placed.get();
    counts.promises += kept.load(Ordering::Relaxed);
    for (known, volume) in known.iter_mut().zip(&volumes) {
        *known = volume.known.lock().clone();
    }
}

/// The numbers that a volume's sectors have.
fn numbers(pool: &Arc<Pool>, size: u64, i: u32) -> std::result::Result<Vec<u64>, String> {
    let volume = pool
        .volume(&name(i))
        .map_err(|e| format!("volume {i}: {e}"))?;
    let mut all = vec![0; size as usize];
    volume
        .read(0, &mut all)
        .map_err(|e| format!("volume {i}: {e}"))?;
    let mut out = Vec::new();
    for (sector, bytes) in all.chunks(SECTOR as usize).enumerate() {
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default());
        let whole = match number {
            0 => bytes.iter().all(|b| *b == 0),
            _ => bytes == content(number, sector as u64),
        };
        // Sectors from before an earlier cut have other numbers now: only whole writes count.
        if !whole {
            return Err(format!("volume {i}, sector {sector} is torn"));
        }
        out.push(number);
    }
    Ok(out)
}

fn compare(rules: &Rules, known: &Known, found: &[u64], i: u32) -> Vec<String> {
    let mut wrong = Vec::new();
    for (sector, number) in found.iter().enumerate() {
        if !known.allows(sector as u64, *number) {
            let least = known.at(sector as u64, known.promised);
            wrong.push(format!(
                "volume {i}, sector {sector}: write {number} is there, {least} was promised"
            ));
        }
    }
    if rules.copied && wrong.is_empty() {
        let last = found.iter().max().copied().unwrap_or(0).max(known.promised);
        for (sector, number) in found.iter().enumerate() {
            let want = known.at(sector as u64, last);
            if *number != want {
                wrong.push(format!(
                    "volume {i}, sector {sector}: write {number} is there beside {last}, not {want}"
                ));
            }
        }
    }
    wrong
}

fn devices(images: &[MemImage]) -> (Vec<Arc<MemDevice>>, Vec<Arc<dyn BlockDevice>>) {
    let disks: Vec<Arc<MemDevice>> = images
        .iter()
        .enumerate()
        .map(|(i, image)| Arc::new(MemDevice::from_image(format!("sim{i}"), image)))
        .collect();
    let devices = disks.iter().map(|d| d.clone() as _).collect();
    (disks, devices)
}

fn silent(pool: &Arc<Pool>, when: &str) -> std::result::Result<(), String> {
    let report = check(pool.spa(), Depth::Metadata).map_err(|e| format!("{when}: {e}"))?;
    let problems: Vec<String> = report
        .not_of_labels()
        .iter()
        .map(ToString::to_string)
        .collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{when}: {}", problems.join("\n  "))),
    }
}

fn open(
    rules: &Rules,
    env: Environment,
    devices: &[Arc<dyn BlockDevice>],
    writable: bool,
) -> Result<Arc<Pool>> {
    let access = PoolAccess {
        writable,
        force: true,
        ..PoolAccess::default()
    };
    let pool = open_whole(env, devices, &access)?;
    if rules.encrypted {
        for i in 0..volumes(rules) {
            pool.load_key(&name(i), &key())?;
        }
    }
    Ok(pool)
}

/// Examines the disks after a cut, in every state of the logs.
fn check_images(
    rules: &Rules,
    images: &[MemImage],
    known: &mut [Known],
    (prng, clock): (&SeededPrng, &Arc<ManualClock>),
) -> std::result::Result<(), String> {
    let say = |what: &str, e: zuse_base::Error| format!("{what}: {e}");
    let (_, read) = devices(images);
    let pool = open(rules, env(prng, clock), &read, false)
        .map_err(|e| say("the pool does not open", e))?;
    silent(&pool, "unclaimed")?;
    let mut all = Vec::new();
    for (i, known) in known.iter().enumerate() {
        let found = numbers(&pool, rules.size, i as u32)?;
        let wrong = compare(rules, known, &found, i as u32);
        if !wrong.is_empty() {
            let txg = pool.spa().uberblock().txg;
            let few = wrong
                .iter()
                .take(8)
                .cloned()
                .collect::<Vec<_>>()
                .join("\n  ");
            return Err(format!("txg {txg}, {} differences:\n  {few}", wrong.len()));
        }
        all.push(found);
    }
    let _ = pool.close();
    drop(pool);

    for (known, found) in known.iter_mut().zip(&all) {
        known.continue_from(found);
    }
    if prng.below(3) > 0 {
        return Ok(());
    }
    let (_, claimed) = devices(images);
    for when in ["claimed", "replayed"] {
        let pool = open(rules, env(prng, clock), &claimed, true)
            .map_err(|e| say("the pool does not open for writing", e))?;
        if when == "replayed" {
            for (i, found) in all.iter().enumerate() {
                if numbers(&pool, rules.size, i as u32)? != *found {
                    return Err(format!(
                        "volume {i} is another when it is replayed for real"
                    ));
                }
            }
        }
        pool.sync().map_err(|e| say("sync", e))?;
        silent(&pool, when)?;
        let _ = pool.close();
    }
    Ok(())
}

/// One chain of cuts.
///
/// # Errors
/// The first violation, as text with the cut's number.
pub fn chain(rules: &Rules, seed: u64) -> std::result::Result<Counts, String> {
    let prng = SeededPrng::new(seed);
    let clock = Arc::new(ManualClock::new(Timestamp::new(1_700_000_100, 0)));
    let mut images = create(rules, seed).map_err(|e| format!("create: {e}"))?;
    let mut known = vec![Known::new(rules); volumes(rules) as usize];
    let mut counts = Counts::default();
    for cut in 0..rules.cuts {
        clock.advance(Duration::from_secs(1));
        let power = PowerSupply::new();
        let disks: Vec<Arc<SimDisk>> = images
            .iter()
            .enumerate()
            .map(|(i, image)| {
                let disk = SimDisk::with_content(format!("sim{i}"), image, power.clone());
                disk.ignore_flushes(rules.ignore_flushes);
                Arc::new(disk)
            })
            .collect();
        let all: Vec<Arc<dyn BlockDevice>> = disks.iter().map(|d| d.clone() as _).collect();
        let early = prng.below(5) == 0;
        let ops = prng.below(rules.within);
        if early {
            power.cut_after(ops);
        }
        if let Ok(pool) = open(rules, env(&prng, &clock), &all, true) {
            if !early {
                // Writes of the open are not counted.
                power.cut_after(10 + ops);
            }
            run(rules, &pool, &mut known, &prng, &power, &mut counts);
        }
        power.cut();
        counts.cuts += 1;
        images = disks.iter().map(|d| d.crash(&prng).snapshot()).collect();
        check_images(rules, &images, &mut known, (&prng, &clock))
            .map_err(|e| format!("seed {seed}, cut {cut}: {e}"))?;
    }
    Ok(counts)
}

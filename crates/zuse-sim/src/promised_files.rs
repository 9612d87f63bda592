//! Cutting the power under file systems whose changes were promised durable: everything promised is
//! there after replay.
//!
//! ```text
//!   images ─► SimDisks ─► pool ─► threads change files, fsync … cut ─► crash ─► images
//!     ▲                                                                      │
//!     └── what was promised is there ◄── replayed in memory, claimed, for real ┘
//! ```
//! Each thread has a directory, all in one file system. A file is made of the number of the change
//! that made it. After a cut
//! - a file is what the last promised change made of it, or a later one that was tried;
//! - replayed in memory and replayed for real the tree is the same;
//! - the checker is silent before the log is claimed, with it claimed, and after replay.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{KeyMaterial, Pool, PoolAccess};
use zuse_base::{Entropy, Errno, ManualClock, Result, SeededPrng, Timestamp};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_pool::{Environment, VdevSpec};
use zuse_zpl::{
    Credentials, FileSystem, Hashing, RenameFlags, WriteOptions, XattrMode, Znode, manifest,
};

use crate::golden::open_whole;
use crate::power::environment;

const POOL: &str = "promises";
const NAME: &str = "promises/files";
const FILES: u64 = 5;
/// Bytes of a record of the log that each thread keeps.
const RECORD: usize = 1200;

/// How cuts are done.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Cuts in the chain.
    pub cuts: u32,
    /// Operations of the disk within which a cut comes.
    pub within: u64,
    /// Threads.
    pub threads: u64,
    /// The file system is encrypted.
    pub encrypted: bool,
    /// Extended attributes are files of hidden directories.
    pub hidden: bool,
    /// The disk lies about flushes.
    pub ignore_flushes: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            cuts: 4,
            within: 150,
            threads: 3,
            encrypted: false,
            hidden: false,
            ignore_flushes: false,
        }
    }
}

/// What a chain did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Cuts.
    pub cuts: u64,
    /// Promises that were given.
    pub promises: u64,
    /// Promises given by a flush of log blocks.
    pub by_flush: u64,
}

/// What may be there of a file: what was promised, and what was tried since.
#[derive(Clone, Debug, Default)]
struct Fate {
    promised: Option<u64>,
    tried: Vec<Option<u64>>,
}

/// What is known of one thread's directory.
#[derive(Clone, Debug, Default)]
struct Known {
    next: u64,
    fates: BTreeMap<String, Fate>,
}

fn content(number: u64) -> Vec<u8> {
    let words = (1 + number % 37) * 90;
    (0..words).flat_map(|_| number.to_le_bytes()).collect()
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    (bytes == content(number)).then_some(number)
}

/// A thread at work in its directory.
struct Worker<'a> {
    fs: &'a Arc<FileSystem>,
    dir: Arc<Znode>,
    known: &'a Mutex<Known>,
    prng: SeededPrng,
    kept: &'a AtomicU64,
}

impl Worker<'_> {
    fn name(&self) -> String {
        let many = ["log", "log", "place", "xattr"];
        match self.prng.pick(&many) {
            Some(one) if self.prng.chance(1, 2) => (*one).to_owned(),
            _ => format!("f{}", self.prng.below(FILES)),
        }
    }

    /// One change and its promise.
    fn one(&self) -> Result<()> {
        let name = self.name();
        let removes = name.starts_with('f') && self.prng.chance(1, 4);
        let number = {
            let mut known = self.known.lock().expect("whole");
            known.next += 1;
            let number = known.next;
            let fate = known.fates.entry(name.clone()).or_default();
            fate.tried.push((!removes).then_some(number));
            number
        };
        let who = Credentials::root();
        match &*name {
            "log" => self.append(number)?,
            "place" => self.in_place(number)?,
            "xattr" => {
                let file = self.open(b"xattr")?;
                let value = vec![number.to_le_bytes(); 1 + (number % 5 * 900) as usize].concat();
                let name = b"user.number";
                self.fs
                    .set_xattr(&who, &file, name, &value, XattrMode::Any)?;
                self.fs.fsync(&file)?;
            }
            f if removes => {
                match self.fs.unlink(&who, &self.dir, f.as_bytes()) {
                    Err(e) if !e.is(Errno::NOENT) => return Err(e),
                    _ => {}
                }
                self.fs.fsync(&self.dir)?;
            }
            f => self.replace(f.as_bytes(), number)?,
        }
        let mut known = self.known.lock().expect("whole");
        let fate = known.fates.entry(name).or_default();
        *fate = Fate {
            promised: (!removes).then_some(number),
            tried: Vec::new(),
        };
        self.kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn open(&self, name: &[u8]) -> Result<Arc<Znode>> {
        let who = Credentials::root();
        match self.fs.lookup(&who, &self.dir, name) {
            Err(e) if e.is(Errno::NOENT) => self.fs.create(&who, &self.dir, name, 0o644),
            other => other,
        }
    }

    fn append(&self, number: u64) -> Result<()> {
        let file = self.open(b"log")?;
        let options = WriteOptions {
            append: true,
            sync: self.prng.chance(1, 3),
            ..WriteOptions::default()
        };
        let record = [number.to_le_bytes(); RECORD / 8].concat();
        self.fs.write(&file, 0, &record, options)?;
        if options.sync {
            return Ok(());
        }
        self.fs.fsync(&file)
    }

    fn in_place(&self, number: u64) -> Result<()> {
        let file = self.open(b"place")?;
        let bytes = number.to_le_bytes();
        self.fs
            .write(&file, 70_000, &bytes, WriteOptions::default())?;
        if self.prng.chance(1, 3) {
            // Something beside it, which nobody is promised.
            self.fs
                .fallocate(&file, 3, self.prng.below(60_000), 5_000)?;
        }
        self.fs.fsync(&file)
    }

    /// As careful programs replace a file; a name is never durable before the data, so that the
    /// file need not be made so by itself.
    fn replace(&self, name: &[u8], number: u64) -> Result<()> {
        let who = Credentials::root();
        let new = [name, b".new"].concat();
        match self.fs.unlink(&who, &self.dir, &new) {
            Err(e) if !e.is(Errno::NOENT) => return Err(e),
            _ => {}
        }
        let file = self.fs.create(&who, &self.dir, &new, 0o600)?;
        self.fs
            .write(&file, 0, &content(number), WriteOptions::default())?;
        if self.prng.chance(1, 2) {
            self.fs.fsync(&file)?;
        }
        let how = RenameFlags::default();
        self.fs
            .rename(&who, &self.dir, &new, &self.dir, name, how)?;
        self.fs.fsync(&self.dir)
    }
}

/// What is there of a file.
fn found(fs: &Arc<FileSystem>, dir: &Arc<Znode>, name: &str) -> Result<Option<u64>> {
    let who = Credentials::root();
    let file = match fs.lookup(&who, dir, name.as_bytes()) {
        Err(e) if e.is(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    if name == "xattr" {
        let value = match fs.get_xattr(&who, &file, b"user.number") {
            Err(e) if e.is(Errno::NODATA) => return Ok(None),
            other => other?,
        };
        let number = value.first_chunk().map(|b| u64::from_le_bytes(*b));
        return Ok(number);
    }
    let mut bytes = vec![0; file.size() as usize];
    fs.read(&file, 0, &mut bytes)?;
    Ok(match name {
        "place" => {
            let at = bytes.get(70_000..).and_then(|b| b.first_chunk());
            at.map(|b| u64::from_le_bytes(*b)).filter(|n| *n != 0)
        }
        // What is behind the last promise may be torn.
        "log" => (bytes.chunks_exact(RECORD))
            .filter(|r| r.chunks(8).all(|word| word == &r[..8]))
            .filter_map(|r| r.first_chunk().map(|b| u64::from_le_bytes(*b)))
            .max(),
        // One that is none of ours is no number that was ever tried.
        _ => Some(number_of(&bytes).unwrap_or(u64::MAX)),
    })
}

fn top(i: u64) -> Vec<u8> {
    format!("t{i}").into_bytes()
}

fn env(prng: &SeededPrng, clock: &Arc<ManualClock>) -> Environment {
    let mut env = environment(prng, clock);
    env.limits.intent_log = true;
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
    let key = rules.encrypted.then(key);
    pool.create_filesystem_with_key(NAME, &properties, (0, 0), key.as_ref())?;
    let fs = pool.file_system(NAME)?;
    for i in 0..rules.threads {
        fs.mkdir(&Credentials::root(), &fs.root()?, &top(i), 0o755)?;
    }
    fs.sync()?;
    fs.close()?;
    drop(fs);
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
    if rules.encrypted {
        pool.load_key(NAME, &key(), false)?;
    }
    Ok(pool)
}

/// Works until the power goes.
fn run(
    pool: &Arc<Pool>,
    known: &mut [Known],
    prng: &SeededPrng,
    power: &Arc<PowerSupply>,
    tally: &mut Tally,
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
        let pace = Duration::from_micros(500 + prng.below(20_000));
        scope.spawn(move || {
            let spa = pool.spa();
            loop {
                std::thread::sleep(pace);
                if spa.wait_synced(spa.synced_txg().next()).is_err() {
                    return;
                }
            }
        });
        // What the power ends is no failure.
        let _ = work(pool, known, prng, &kept);
        done.store(true, Ordering::Release);
    });
    let _ = pool.close();
    tally.by_flush += pool.spa().logs().figures.by_flush.get();
    tally.promises += kept.load(Ordering::Relaxed);
}

/// All threads at work, until they fail.
fn work(pool: &Arc<Pool>, known: &mut [Known], prng: &SeededPrng, kept: &AtomicU64) -> Result<()> {
    let fs = pool.file_system(NAME)?;
    let root = fs.root()?;
    let dirs = (0..known.len() as u64)
        .map(|i| fs.lookup(&Credentials::root(), &root, &top(i)))
        .collect::<Result<Vec<_>>>()?;
    let shared: Vec<Mutex<Known>> = known.iter().cloned().map(Mutex::new).collect();
    std::thread::scope(|scope| {
        for (dir, known) in dirs.into_iter().zip(&shared) {
            let worker = Worker {
                fs: &fs,
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

/// What is there of every file that anything is known of, and the whole tree.
type Seen = (Vec<BTreeMap<String, Option<u64>>>, Vec<String>);

fn look(pool: &Arc<Pool>, known: &[Known]) -> Result<Seen> {
    let fs = pool.file_system(NAME)?;
    let root = fs.root()?;
    let mut all = Vec::new();
    for (i, known) in known.iter().enumerate() {
        let dir = fs.lookup(&Credentials::root(), &root, &top(i as u64))?;
        let each = known.fates.keys();
        let there = each.map(|name| Ok((name.clone(), found(&fs, &dir, name)?)));
        all.push(there.collect::<Result<_>>()?);
    }
    let mut tree = Vec::new();
    manifest(&fs, Hashing::All, &mut |entry| {
        let file = entry.file.map(|(size, sum, _)| (size, sum));
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        let facts = (entry.mode, entry.nlink, entry.ino, file, entry.xattrs);
        tree.push(format!("{path} {facts:?}"));
        Ok(())
    })?;
    Ok((all, tree))
}

fn silent(pool: &Arc<Pool>, when: &str) -> std::result::Result<(), String> {
    let report = check(pool.spa(), Depth::Metadata).map_err(|e| format!("{when}: {e}"))?;
    let said: Vec<String> = (report.not_of_labels().iter())
        .map(ToString::to_string)
        .collect();
    match said.is_empty() {
        true => Ok(()),
        false => Err(format!("{when}: {}", said.join("\n  "))),
    }
}

/// Looks at what the disk holds after a cut, in every state of the log.
fn judge(
    rules: &Rules,
    image: &MemImage,
    known: &mut [Known],
    env: &dyn Fn() -> Environment,
) -> std::result::Result<(), String> {
    let say = |what: &'static str| move |e: zuse_base::Error| format!("{what}: {e}");
    let device = || Arc::new(MemDevice::from_image("sim", image));
    let pool = open(rules, env(), device(), false).map_err(say("the pool does not open"))?;
    silent(&pool, "unclaimed")?;
    let seen = look(&pool, known).map_err(say("it cannot be read"))?;
    let txg = pool.spa().uberblock().txg;
    let _ = pool.close();
    drop(pool);
    for (i, (known, there)) in known.iter_mut().zip(&seen.0).enumerate() {
        for (name, fate) in &mut known.fates {
            let now = there.get(name).copied().flatten();
            if now != fate.promised && !fate.tried.contains(&now) {
                return Err(format!(
                    "txg {txg}: t{i}/{name}: {now:?} is there, {fate:?}"
                ));
            }
            *fate = Fate {
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
            let again = look(&pool, known).map_err(say("it cannot be replayed"))?;
            if again != seen {
                return Err(format!(
                    "the tree differs when it is replayed: {seen:?} {again:?}"
                ));
            }
        }
        pool.sync().map_err(say("sync"))?;
        silent(&pool, when)?;
        let _ = pool.close();
    }
    Ok(())
}

/// One chain of cuts.
///
/// # Errors
/// The first thing that does not hold, as text with the cut's number.
pub fn chain(rules: &Rules, seed: u64) -> std::result::Result<Tally, String> {
    let prng = SeededPrng::new(seed);
    let clock = Arc::new(ManualClock::new(Timestamp::new(1_700_000_100, 0)));
    let mut image = create(rules, seed).map_err(|e| format!("create: {e}"))?;
    let mut known = vec![Known::default(); rules.threads as usize];
    let mut tally = Tally::default();
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
                // What opening wrote is not counted.
                power.cut_after(10 + ops);
            }
            run(&pool, &mut known, &prng, &power, &mut tally);
        }
        power.cut();
        tally.cuts += 1;
        image = disk.crash(&prng).snapshot();
        judge(rules, &image, &mut known, &|| env(&prng, &clock))
            .map_err(|e| format!("seed {seed}, cut {cut}: {e}"))?;
    }
    Ok(tally)
}

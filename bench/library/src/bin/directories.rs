//! Rates of directories, by the library alone: no mount, no system call but those of the devices.
//!
//! ```text
//! directories zap-open [N]                   the order of full blocks of N (2047) names, and a
//! B-tree of the same by insertion directories zap-add IMAGE TOTAL N [SETTINGS] TOTAL names into
//! ZAPs of N names each, with the syncs of their txgs directories zap-lookup IMAGE N [SETTINGS]
//! random look-ups of names in a ZAP of N, warm directories tree-make IMAGE D F [SETTINGS] a pool
//! with D directories of F empty files directories walk IMAGE [SETTINGS]          all names of an
//! existing image's tree, cold directories lookup IMAGE [SETTINGS]        the same with each
//! object's attributes (as ftw does), then random names, warm directories create IMAGE TOTAL N
//! [SETTINGS] TOTAL empty files, N to a directory, with the syncs of their txgs directories churn
//! IMAGE N [SETTINGS]       N files made and (all but --keep) removed in one directory, then a
//! listing of it
//!
//! SETTINGS: --micro-max BYTES  --ibs SHIFT  --cache MIB  --dirty MIB (metadata)  --size MIB (of a
//! new image)  --lookups COUNT  --keep COUNT
//! ```
//! Each prints one line of JSON: what, count, seconds (of the clock), cpu (seconds of all threads),
//! rate, reads and writes (of the device, while measured), peak_kib (of the process). Files are
//! `dNNNN/file-NNNNNNNN`. `walk` and `lookup` begin with an empty cache of their own; the host's
//! page cache is the caller's business.

use std::collections::BTreeSet;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zuse::tools::{Layers as _, FileSystem};
use zuse::{Credentials, DeviceAccess, Environment, FileDevice, Limits, ObjectId, Pool, PoolAccess, Search};
use zuse_device::RecordingDevice;
use zuse_dmu::zap::{Zap, ZapOptions, measure};
use zuse_pool::VdevSpec;

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// DMU type of a directory's object, and the type bits of its mode.
const DIRECTORY: u8 = 20;
const KIND_DIRECTORY: u32 = 0o040_000;

fn main() -> Done {
    let mut settings = Settings::default();
    let mut words = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> Done<u64> {
            let text = args.next().ok_or(format!("{arg} wants a number"))?;
            Ok(text.parse()?)
        };
        match arg.as_str() {
            "--micro-max" => settings.micro_max = number()?.try_into()?,
            "--ibs" => settings.ibs = number()?.try_into()?,
            "--cache" => settings.cache = number()? << 20,
            "--dirty" => settings.dirty = number()? << 20,
            "--size" => settings.size = number()? << 20,
            "--lookups" => settings.lookups = number()?,
            "--keep" => settings.keep = number()?,
            _ => words.push(arg),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["zap-open"] => zap_open(2047),
        ["zap-open", n] => zap_open(n.parse()?),
        ["zap-add", image, total, n] => zap_add(&settings, image, total.parse()?, n.parse()?),
        ["zap-lookup", image, n] => zap_lookup(&settings, image, n.parse()?),
        ["tree-make", image, d, f] => tree_make(&settings, image, d.parse()?, f.parse()?),
        ["walk", image] => walk(&settings, image),
        ["lookup", image] => lookup(&settings, image),
        ["create", image, total, n] => create(&settings, image, total.parse()?, n.parse()?),
        ["churn", image, n] => churn(&settings, image, n.parse()?),
        _ => Err("usage: see the head of bench/library/src/bin/directories.rs".into()),
    }
}

struct Settings {
    micro_max: u32,
    ibs: u8,
    cache: u64,
    dirty: u64,
    size: u64,
    lookups: u64,
    keep: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            micro_max: 128 << 10,
            ibs: 17,
            cache: 128 << 20,
            dirty: Limits::default().dirty_metadata,
            size: 8 << 30,
            lookups: 2_000_000,
            keep: 0,
        }
    }
}

/// An open pool over a device that counts.
struct Bench {
    pool: Arc<Pool>,
    device: Arc<RecordingDevice>,
    fs: Arc<FileSystem>,
}

impl Settings {
    fn environment(&self) -> Done<Environment> {
        let mut env = Environment::default();
        env.limits.cache = usize::try_from(self.cache)?;
        env.limits.dirty_metadata = self.dirty;
        Ok(env)
    }

    fn create(&self, image: &str) -> Done<Bench> {
        let _ = std::fs::remove_file(image);
        let device = count(Arc::new(FileDevice::create(image, self.size)?));
        let vdev = VdevSpec {
            device: device.clone(),
            is_disk: false,
            ashift: Some(12),
        };
        let pool = Pool::create_on_devices(self.environment()?, "tank", vec![vdev], None, &[])?;
        self.bench(pool, device)
    }

    fn open(&self, image: &str) -> Done<Bench> {
        let scan = Search::new([image]).run();
        let found = scan.pools.first().ok_or("no pool on that image")?;
        let (guid, path) = found.devices.iter().next().ok_or("no device")?;
        let device = count(Arc::new(FileDevice::open(path, DeviceAccess::Read)?));
        let devices = [(*guid, device.clone() as Arc<dyn zuse::BlockDevice>)].into();
        let access = PoolAccess {
            force: true,
            ..PoolAccess::default()
        };
        let pool = Pool::open_on(self.environment()?, &found.config, &devices, &access)?;
        self.bench(pool, device)
    }

    fn bench(&self, pool: Arc<Pool>, device: Arc<RecordingDevice>) -> Done<Bench> {
        let fs = pool.file_system("tank")?;
        let os = fs.objset();
        let mut settings = (*os.settings()).clone();
        settings.micro_zap_max = self.micro_max;
        settings.indirect_shift = self.ibs;
        os.set_settings(settings);
        Ok(Bench { pool, device, fs })
    }
}

fn count(device: Arc<dyn zuse::BlockDevice>) -> Arc<RecordingDevice> {
    let device = Arc::new(RecordingDevice::new(device));
    device.record(false);
    device
}

/// What is measured from now on.
struct Watch {
    at: Instant,
    cpu: Duration,
}

impl Watch {
    fn start(device: &RecordingDevice) -> Self {
        device.reset();
        Self {
            cpu: cpu(),
            at: Instant::now(),
        }
    }

    /// Prints the line.
    fn tell(&self, what: &str, count: u64, device: &RecordingDevice, more: &str) {
        let seconds = self.at.elapsed().as_secs_f64();
        let cpu = (cpu() - self.cpu).as_secs_f64();
        let rate = count as f64 / seconds;
        let t = device.counts();
        println!(
            "{{\"what\": \"{what}\", \"count\": {count}, \"seconds\": {seconds:.6}, \"cpu\": {cpu:.6}, \"rate\": {rate:.0}, \
             \"reads\": {}, \"read_bytes\": {}, \"writes\": {}, \"written_bytes\": {}, \"peak_kib\": {}{more}}}",
            t.reads,
            t.read_bytes,
            t.writes,
            t.written_bytes,
            peak(),
        );
    }
}

fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    let word = line.and_then(|l| l.split_whitespace().nth(1));
    word.and_then(|w| w.parse().ok()).unwrap_or(0)
}

/// Processor time of all threads so far.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Room for one name.
type Name = [u8; 13];

/// `file-NNNNNNNN`, without the formatting machinery: it would be a tenth of what is measured.
fn name(buffer: &mut Name, number: u64) -> &[u8] {
    *buffer = *b"file-00000000";
    let mut rest = number;
    for digit in buffer[5..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    buffer
}

fn dir_name(number: u64) -> String {
    format!("d{number:04}")
}

/// A step without a divisor in common with `n`: visits each once, far from the last one.
fn stride(n: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (n * 5 / 8 + 1..).find(|s| gcd(*s, n) == 1).unwrap_or(1)
}

/// The best of some rounds: what the machine does when nobody disturbs it.
fn best(rounds: u32, mut f: impl FnMut()) -> Duration {
    let one = |_| {
        let at = Instant::now();
        f();
        at.elapsed()
    };
    (0..rounds).map(one).min().unwrap_or_default()
}

/// Blocks of different names, one after the other: what is measured must not be the processor's
/// memory of one block's branches, which is good for two thousand names that come five hundred
/// times.
const BLOCKS: u64 = 16;

fn zap_open(n: u64) -> Done {
    let mut buffer = Name::default();
    let blocks: Vec<Vec<u8>> = (0..BLOCKS)
        .map(|k| measure::micro_block((k * n..(k + 1) * n).map(|i| name(&mut buffer, i).to_vec())))
        .collect();
    let mut bytes = 0;
    let index = best(200, || {
        for block in &blocks {
            bytes = measure::index(black_box(block)).footprint();
        }
    }) / BLOCKS as u32;
    let tree = best(50, || {
        for block in &blocks {
            let mut tree = BTreeSet::new();
            measure::records(black_box(block), &mut |r| {
                tree.insert(r);
            });
            black_box(&tree);
        }
    }) / BLOCKS as u32;
    let more = format!(
        ", \"btree_seconds\": {:.9}, \"btree_ratio\": {:.2}, \"bytes_per_entry\": {:.3}",
        tree.as_secs_f64(),
        tree.as_secs_f64() / index.as_secs_f64(),
        bytes as f64 / n as f64
    );
    println!(
        "{{\"what\": \"zap-open\", \"count\": {n}, \"seconds\": {:.9}{more}, \"peak_kib\": {}}}",
        index.as_secs_f64(),
        peak()
    );
    Ok(())
}

impl Bench {
    fn new_zap(&self) -> Done<Zap> {
        let tx = self.fs.backing().begin(0, false)?;
        Ok(Zap::create(
            self.fs.objset(),
            &tx,
            DIRECTORY,
            &ZapOptions::default(),
        )?)
    }

    fn fill(&self, zap: &Zap, n: u64) -> Done {
        let mut buffer = Name::default();
        for i in 0..n {
            let tx = self.fs.backing().begin(0, false)?;
            zap.add_u64(&tx, name(&mut buffer, i), i)?;
        }
        Ok(())
    }
}

fn zap_add(settings: &Settings, image: &str, total: u64, n: u64) -> Done {
    let bench = settings.create(image)?;
    let watch = Watch::start(&bench.device);
    let (mut added, mut fat) = (0, false);
    while added < total {
        let zap = bench.new_zap()?;
        let here = n.min(total - added);
        bench.fill(&zap, here)?;
        added += here;
        fat = zap.is_fat()?;
    }
    bench.pool.sync()?;
    let more = format!(
        ", \"names_per_zap\": {n}, \"micro_max\": {}, \"ibs\": {}, \"fat\": {fat}",
        settings.micro_max, settings.ibs
    );
    watch.tell("zap-add", total, &bench.device, &more);
    bench.pool.close()?;
    Ok(())
}

fn zap_lookup(settings: &Settings, image: &str, n: u64) -> Done {
    let bench = settings.create(image)?;
    let zap = bench.new_zap()?;
    bench.fill(&zap, n)?;
    bench.pool.sync()?;
    let step = stride(n);
    let mut buffer = Name::default();
    let mut run = |count: u64| -> Done {
        let mut at = 0;
        for _ in 0..count {
            if zap.lookup_u64(name(&mut buffer, at))? != Some(at) {
                return Err(format!("file {at} is not there").into());
            }
            at = (at + step) % n;
        }
        Ok(())
    };
    run(n)?;
    let watch = Watch::start(&bench.device);
    run(settings.lookups)?;
    let more = format!(", \"fat\": {}", zap.is_fat()?);
    watch.tell("zap-lookup", settings.lookups, &bench.device, &more);
    bench.pool.close()?;
    Ok(())
}

impl Bench {
    /// Files `from..from + n` in a new directory of the root.
    fn make_dir(&self, number: u64, from: u64, n: u64) -> Done {
        let who = Credentials::root();
        let root = self.fs.root()?;
        let dir = self
            .fs
            .mkdir(&who, &root, dir_name(number).as_bytes(), 0o755)?;
        let mut buffer = Name::default();
        for i in from..from + n {
            self.fs.create(&who, &dir, name(&mut buffer, i), 0o644)?;
        }
        Ok(())
    }
}

fn tree_make(settings: &Settings, image: &str, dirs: u64, files: u64) -> Done {
    let bench = settings.create(image)?;
    let watch = Watch::start(&bench.device);
    for d in 0..dirs {
        bench.make_dir(d, d * files, files)?;
    }
    bench.pool.sync()?;
    watch.tell("tree-make", dirs * (files + 1), &bench.device, "");
    bench.pool.export()?;
    Ok(())
}

fn create(settings: &Settings, image: &str, total: u64, files: u64) -> Done {
    let bench = settings.create(image)?;
    let watch = Watch::start(&bench.device);
    let (mut made, mut dirs) = (0, 0);
    while made < total {
        let n = files.min(total - made);
        bench.make_dir(dirs, made, n)?;
        made += n;
        dirs += 1;
    }
    bench.pool.sync()?;
    let more = format!(
        ", \"files_per_directory\": {files}, \"micro_max\": {}, \"ibs\": {}",
        settings.micro_max, settings.ibs
    );
    watch.tell("create", total, &bench.device, &more);
    bench.pool.export()?;
    Ok(())
}

/// Lists everything below the root; with `plus` every object comes into memory. Returns entries and
/// directories.
fn list_all(fs: &FileSystem, plus: bool) -> Done<(u64, Vec<ObjectId>)> {
    let mut waiting = vec![fs.root_id()];
    let (mut seen, mut dirs, mut sum) = (0u64, Vec::new(), 0u64);
    while let Some(object) = waiting.pop() {
        let dir = fs.znode(object)?;
        let first = waiting.len();
        fs.readdir(&dir, 2, plus, &mut |entry| {
            seen += 1;
            sum = sum.wrapping_add(entry.name.len() as u64 + entry.object.0);
            if let Some(znode) = entry.znode {
                sum = sum.wrapping_add(fs.getattr(znode).attributes.mtime.secs as u64);
            }
            if entry.kind == KIND_DIRECTORY {
                waiting.push(entry.object);
            }
            true
        })?;
        // In the order in which they were listed.
        waiting[first..].reverse();
        dirs.push(object);
    }
    black_box(sum);
    Ok((seen, dirs))
}

fn walk(settings: &Settings, image: &str) -> Done {
    let bench = settings.open(image)?;
    bench.pool.spa().io().cache().clear();
    let watch = Watch::start(&bench.device);
    let (seen, dirs) = list_all(&bench.fs, false)?;
    let more = format!(", \"directories\": {}", dirs.len());
    watch.tell("walk", seen, &bench.device, &more);
    bench.pool.close()?;
    Ok(())
}

fn lookup(settings: &Settings, image: &str) -> Done {
    let bench = settings.open(image)?;
    let fs = &bench.fs;
    bench.pool.spa().io().cache().clear();
    let watch = Watch::start(&bench.device);
    let (seen, dirs) = list_all(fs, true)?;
    watch.tell("ftw", seen, &bench.device, "");

    // The first directories, as many as the cache surely holds.
    let who = Credentials::root();
    let mut held = Vec::new();
    for object in dirs.into_iter().skip(1).take(64) {
        let dir = fs.znode(object)?;
        let mut names = Vec::new();
        fs.readdir(&dir, 2, false, &mut |entry| {
            names.push((entry.name.to_vec(), entry.object));
            true
        })?;
        if !names.is_empty() {
            held.push((dir, names));
        }
    }
    let mut x = 88_172_645_463_325_252u64;
    let mut random = move |n: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 20) as usize % n
    };
    let watch = Watch::start(&bench.device);
    for _ in 0..settings.lookups {
        let (dir, names) = &held[random(held.len())];
        let (name, object) = &names[random(names.len())];
        if fs.lookup(&who, dir, name)?.object() != *object {
            return Err("a name led to another object".into());
        }
    }
    watch.tell("lookup", settings.lookups, &bench.device, "");
    drop(held);
    bench.pool.close()?;
    Ok(())
}

fn churn(settings: &Settings, image: &str, n: u64) -> Done {
    let bench = settings.create(image)?;
    let who = Credentials::root();
    bench.make_dir(0, 0, n)?;
    bench.pool.sync()?;
    let fs = &bench.fs;
    let dir = fs.resolve(&who, dir_name(0).as_bytes())?;
    let full = dir.dnode().used_bytes();
    let mut buffer = Name::default();
    let watch = Watch::start(&bench.device);
    for i in 0..n.saturating_sub(settings.keep) {
        fs.unlink(&who, &dir, name(&mut buffer, i))?;
    }
    bench.pool.sync()?;
    watch.tell("remove", n.saturating_sub(settings.keep), &bench.device, "");
    // What was freed lately is free for good some txgs later.
    for _ in 0..3 {
        drop(fs.backing().begin(0, false)?);
        bench.pool.sync()?;
    }
    for _ in 0..5 {
        bench.pool.spa().io().cache().clear();
        let watch = Watch::start(&bench.device);
        let mut seen = 0;
        fs.readdir(&dir, 2, false, &mut |_| {
            seen += 1;
            true
        })?;
        let more = format!(
            ", \"used_full\": {full}, \"used_empty\": {}, \"block_size\": {}",
            dir.dnode().used_bytes(),
            dir.dnode().block_size()
        );
        watch.tell("list-empty", seen, &bench.device, &more);
    }
    drop(dir);
    bench.pool.export()?;
    Ok(())
}

//! Rates of extended attributes, by the library alone: no mount, no system call but those of the
//! device.
//!
//! ```text
//! xattrs make IMAGE FILES [SETTINGS]        a pool with FILES empty files, 1000 to a directory,
//! exported xattrs set IMAGE FILES BYTES [SETTINGS]   sets one attribute of BYTES bytes on each of
//! them, with the syncs of their txgs xattrs get IMAGE FILES BYTES [SETTINGS]   reads it from each
//! of them
//!
//! SETTINGS: --xattr sa|dir  --dnodesize legacy|auto|…  --cache MIB  --size MIB (of a new image)
//! --fill noise|text
//! ```
//! Each prints one line of JSON: what, count, bytes, seconds (of the clock, until the last call
//! returned), synced (until it is on disk; opening and closing the pool are not counted), cpu
//! (seconds of all threads), rate. Every file is found by its path each time, as a system call
//! would. The cache is empty at first; the host's page cache is the caller's business.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zuse::tools::{Layers as _, FileSystem, XattrMode};
use zuse::{Credentials, Environment, NewDevice, NewPool, Pool, PoolAccess, Search};

type Done<T = ()> = Result<T, Box<dyn Error>>;

const NAME: &[u8] = b"user.bench";
const PER_DIRECTORY: u64 = 1000;

struct Settings {
    xattr: String,
    dnodesize: String,
    cache: usize,
    size: u64,
    noise: bool,
}

fn main() -> Done {
    let mut settings = Settings {
        xattr: "sa".into(),
        dnodesize: "legacy".into(),
        cache: 512 << 20,
        size: 24 << 30,
        noise: true,
    };
    let mut words = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value"));
        match arg.as_str() {
            "--xattr" => settings.xattr = value()?,
            "--dnodesize" => settings.dnodesize = value()?,
            "--cache" => settings.cache = value()?.parse::<usize>()? << 20,
            "--size" => settings.size = value()?.parse::<u64>()? << 20,
            "--fill" => settings.noise = value()? == "noise",
            _ => words.push(arg),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["make", image, files] => make(&settings, image, files.parse()?),
        ["set", image, files, bytes] => set(&settings, image, files.parse()?, bytes.parse()?),
        ["get", image, files, bytes] => get(&settings, image, files.parse()?, bytes.parse()?),
        _ => Err("usage: see the head of bench/library/src/bin/xattrs.rs".into()),
    }
}

fn environment(settings: &Settings) -> Environment {
    let mut env = Environment::default();
    env.limits.cache = settings.cache;
    env
}

fn open(settings: &Settings, image: &str, writable: bool) -> Done<Arc<Pool>> {
    let scan = Search::new([image]).run();
    let found = scan.pools.first().ok_or("no pool on that image")?;
    let access = PoolAccess {
        writable,
        ..PoolAccess::default()
    };
    Ok(Pool::open(environment(settings), found, &access)?)
}

fn directory(n: u64) -> Vec<u8> {
    format!("d{n:04}").into_bytes()
}

fn file(n: u64) -> Vec<u8> {
    format!("file-{n:08}").into_bytes()
}

fn make(settings: &Settings, image: &str, files: u64) -> Done {
    let _ = std::fs::remove_file(image);
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let new = NewPool {
        name: "tank".into(),
        devices: vec![NewDevice {
            path: image.into(),
            make: Some(settings.size),
        }],
        root_properties: vec![
            own("xattr", &settings.xattr),
            own("dnodesize", &settings.dnodesize),
            own("atime", "off"),
        ],
        ..NewPool::default()
    };
    let pool = Pool::create(environment(settings), &new)?;
    let fs = pool.file_system("tank")?;
    let who = Credentials::root();
    let top = fs.root()?;
    let mut at = top.clone();
    for n in 0..files {
        if n % PER_DIRECTORY == 0 {
            at = fs.mkdir(&who, &top, &directory(n / PER_DIRECTORY), 0o755)?;
        }
        fs.create(&who, &at, &file(n), 0o644)?;
    }
    drop((at, top, fs));
    pool.export()?;
    Ok(())
}

/// Calls `f` with each file, found by its path.
fn each(
    fs: &Arc<FileSystem>,
    files: u64,
    mut f: impl FnMut(&Credentials, u64, &Arc<zuse_zpl::Znode>) -> Done,
) -> Done {
    let who = Credentials::root();
    for n in 0..files {
        let path = [directory(n / PER_DIRECTORY), file(n)].join(&b'/');
        f(&who, n, &fs.resolve(&who, &path)?)?;
    }
    Ok(())
}

/// The value of a file: different ones, so that nothing is found twice.
fn value(noise: bool, n: u64, out: &mut [u8]) {
    if noise {
        let mut state = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for chunk in out.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
        }
    } else {
        let text = format!("file {n} has an extended attribute. ");
        out.iter_mut()
            .zip(text.bytes().cycle())
            .for_each(|(to, from)| *to = from);
    }
}

fn set(settings: &Settings, image: &str, files: u64, bytes: usize) -> Done {
    let pool = open(settings, image, true)?;
    let fs = pool.file_system("tank")?;
    let mut buf = vec![0; bytes];
    let time = Stopwatch::start();
    each(&fs, files, |who, n, znode| {
        value(settings.noise, n, &mut buf);
        Ok(fs.set_xattr(who, znode, NAME, &buf, XattrMode::Any)?)
    })?;
    let set = time.clock.elapsed();
    pool.sync()?;
    time.report("set", files, bytes, settings, set);
    drop(fs);
    pool.export()?;
    Ok(())
}

fn get(settings: &Settings, image: &str, files: u64, bytes: usize) -> Done {
    let pool = open(settings, image, false)?;
    let fs = pool.file_system("tank")?;
    let mut buf = vec![0; bytes];
    let time = Stopwatch::start();
    each(&fs, files, |who, n, znode| {
        let got = fs.get_xattr(who, znode, NAME)?;
        if n % 1000 == 0 {
            value(settings.noise, n, &mut buf);
            if got != buf {
                return Err(format!("file {n} has another value").into());
            }
        }
        if got.len() == bytes {
            Ok(())
        } else {
            Err(format!("file {n}: {} bytes", got.len()).into())
        }
    })?;
    time.report("get", files, bytes, settings, time.clock.elapsed());
    Ok(())
}

struct Stopwatch {
    clock: Instant,
    cpu: Duration,
}

fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(t.tv_sec).unwrap_or(0),
        u32::try_from(t.tv_nsec).unwrap_or(0),
    )
}

impl Stopwatch {
    fn start() -> Self {
        Self {
            cpu: cpu(),
            clock: Instant::now(),
        }
    }

    /// `done`: when the last call returned; what was set is on disk now.
    fn report(&self, what: &str, count: u64, bytes: usize, settings: &Settings, done: Duration) {
        let synced = self.clock.elapsed().as_secs_f64();
        let seconds = done.as_secs_f64();
        let cpu = (cpu() - self.cpu).as_secs_f64();
        let (xattr, dnodesize) = (&settings.xattr, &settings.dnodesize);
        let rate = count as f64 / seconds.max(1e-9);
        println!(
            "{{\"what\":\"{what}\",\"xattr\":\"{xattr}\",\"dnodesize\":\"{dnodesize}\",\"count\":{count},\"bytes\":{bytes},\
             \"seconds\":{seconds:.4},\"synced\":{synced:.4},\"cpu\":{cpu:.4},\"rate\":{rate:.0}}}"
        );
    }
}

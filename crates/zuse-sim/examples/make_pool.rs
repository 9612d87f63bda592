//! Makes pools of many sorts, which zdb then checks: `make_pool SCENARIO DIR` writes
//! DIR/SCENARIO.img, exported (`cuts`: as the last of many power cuts left it).
//!
//! Without arguments it lists the scenarios. Each pool has the name of its scenario.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{
    Credentials, DestroyOptions, Environment, ListedKinds, NewDevice, NewPool, NewerSnapshots,
    Pool, PoolAccess, Recursion, Search,
};
use zuse_base::{Entropy, Errno, Error, Result, SeededPrng};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_format::compatibility::Compatibility;
use zuse_format::feature::{FEATURES, Feature};
use zuse_sim::administration::Administration;
use zuse_sim::files::Files;
use zuse_sim::power::{self, Rules};
use zuse_zpl::{WriteOptions, Znode};

type Fill = fn(&Arc<Pool>, &str) -> Result<()>;

struct Scenario {
    name: &'static str,
    size: u64,
    ashift: &'static str,
    /// No features, as `zpool create -d`.
    plain: bool,
    /// Features that are not enabled.
    without: &'static [&'static str],
    /// Some space is leaked, so it is not among the listed scenarios.
    leaks: bool,
    properties: &'static [(&'static str, &'static str)],
    /// None: it is the result of power cuts.
    fill: Option<Fill>,
}

const G: u64 = 1 << 30;

const fn scenario(name: &'static str, size: u64, ashift: &'static str, fill: Fill) -> Scenario {
    Scenario {
        name,
        size,
        ashift,
        plain: false,
        without: &[],
        leaks: false,
        properties: &[],
        fill: Some(fill),
    }
}

const SCENARIOS: &[Scenario] = &[
    scenario("empty", G, "12", |_, _| Ok(())),
    scenario("tree", 2 * G, "12", tree),
    scenario("many", 4 * G, "12", many),
    scenario("big", 8 * G, "12", big),
    scenario("cycles", G, "12", cycles),
    scenario("administration", G, "12", |pool, _| {
        Administration::new(pool, 11).run(250)
    }),
    scenario("received", G, "12", received),
    scenario("healed", G, "12", healed),
    scenario("full", 128 << 20, "12", full),
    scenario("ashift9", G, "9", mixed),
    scenario("ashift13", G, "13", mixed),
    scenario("gang", 128 << 20, "12", gang),
    Scenario {
        plain: true,
        ..scenario("plain", G, "12", mixed)
    },
    Scenario {
        plain: true,
        ..scenario("plain9", 256 << 20, "9", cycles)
    },
    Scenario {
        plain: true,
        ..scenario("upgraded", G, "12", upgraded)
    },
    Scenario {
        properties: &[("copies", "2")],
        ..scenario("copies2", G, "12", mixed)
    },
    Scenario {
        properties: &[
            ("compression", "zstd"),
            ("recordsize", "1M"),
            ("dnodesize", "auto"),
        ],
        ..scenario("zstd1m", G, "12", mixed)
    },
    Scenario {
        // zdb 2.3 knows counts of clones in one form only.
        without: &["com.truenas:block_cloning_endian"],
        ..scenario("clones", G, "12", |pool, name| {
            zuse_sim::clones::run(pool, name, 7, 400)
        })
    },
    Scenario {
        fill: None,
        without: &["com.truenas:block_cloning_endian"],
        ..scenario("cuts", G, "12", |_, _| Ok(()))
    },
    Scenario {
        leaks: true,
        ..scenario("leaks", 256 << 20, "9", |pool, name| {
            mixed(pool, name)?;
            zuse_sim::leak::leak(pool, zuse_sim::leak::SIZES).map(drop)
        })
    },
];

fn root() -> Credentials {
    Credentials::root()
}

fn put(fs: &Arc<FileSystem>, dir: &Arc<Znode>, name: &str, data: &[u8]) -> Result<Arc<Znode>> {
    let file = fs.create(&root(), dir, name.as_bytes(), 0o644)?;
    write(fs, &file, 0, data)?;
    Ok(file)
}

fn write(fs: &Arc<FileSystem>, file: &Arc<Znode>, mut at: u64, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        let done = fs.write(file, at, data, WriteOptions::default())?;
        at += done;
        data = &data[done as usize..];
    }
    Ok(())
}

fn noise(prng: &SeededPrng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    prng.fill(&mut bytes);
    bytes
}

/// Random datasets that came through streams with random flags, some of them interrupted and
/// resumed.
fn received(pool: &Arc<Pool>, _: &str) -> Result<()> {
    for seed in 0..12 {
        zuse_sim::round_trip::run(seed, pool)?;
    }
    Ok(())
}

/// Blocks that were corrupted, and then healed by streams of their snapshots.
fn healed(pool: &Arc<Pool>, name: &str) -> Result<()> {
    let prng = SeededPrng::new(1);
    mixed(pool, name)?;
    let top = format!("{name}@heal");
    pool.snapshot(std::slice::from_ref(&top), Recursion::Below, &[])?;
    for entry in pool.list(name, None, ListedKinds::WITH_SNAPSHOTS)? {
        if !entry.name.ends_with("@heal") {
            continue;
        }
        let request = zuse::SendRequest {
            to: entry.name.clone(),
            options: zuse::stream::SendOptions {
                large_blocks: true,
                compressed: true,
                ..Default::default()
            },
            ..Default::default()
        };
        let stream = zuse_sim::round_trip::sent(pool, &request)?;
        let spoilt = zuse_sim::rot::spoil(pool, &entry.name, 3, &prng)?;
        let done = pool.heal(&stream[..], &entry.name)?;
        if done.healed != spoilt || done.bad != 0 {
            return Err(Error::corrupt(entry.name, format!("{done:?} of {spoilt}")));
        }
    }
    Ok(())
}

/// What is in /usr/include, as a tree of text files.
fn tree(pool: &Arc<Pool>, name: &str) -> Result<()> {
    fn copy(fs: &Arc<FileSystem>, dir: &Arc<Znode>, from: &Path) -> Result<()> {
        let Ok(entries) = std::fs::read_dir(from) else {
            return Ok(());
        };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.as_encoded_bytes();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                let sub = fs.mkdir(&root(), dir, name, 0o755)?;
                copy(fs, &sub, &path)?;
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).unwrap_or_default();
                fs.symlink(&root(), dir, name, target.as_os_str().as_encoded_bytes())?;
            } else if let Ok(data) = std::fs::read(&path) {
                let file = fs.create(&root(), dir, name, 0o644)?;
                write(fs, &file, 0, &data)?;
            }
        }
        Ok(())
    }
    pool.create_filesystem(&format!("{name}/include"), &[], (0, 0))?;
    let fs = pool.file_system(&format!("{name}/include"))?;
    let top = fs.root()?;
    copy(&fs, &top, Path::new("/usr/include"))?;
    copy(&fs, &top, Path::new("/usr/share/perl5"))?;
    fs.sync()
}

/// 200 thousand small files.
fn many(pool: &Arc<Pool>, name: &str) -> Result<()> {
    let fs = pool.file_system(name)?;
    let top = fs.root()?;
    for d in 0..20 {
        let dir = fs.mkdir(&root(), &top, format!("d{d}").as_bytes(), 0o755)?;
        for i in 0..10_000 {
            put(
                &fs,
                &dir,
                &format!("file-{i}"),
                format!("{d} {i}").as_bytes(),
            )?;
        }
    }
    fs.sync()
}

/// 3 GiB in one file, then overwritten in places, with holes.
fn big(pool: &Arc<Pool>, name: &str) -> Result<()> {
    let fs = pool.file_system(name)?;
    let prng = SeededPrng::new(1);
    let file = fs.create(&root(), &fs.root()?, b"big", 0o644)?;
    let mut piece = noise(&prng, 4 << 20);
    for i in 0..768u64 {
        piece[..8].copy_from_slice(&i.to_le_bytes());
        write(&fs, &file, i * (4 << 20), &piece)?;
    }
    fs.sync()?;
    for _ in 0..300 {
        let at = prng.below(3 << 30);
        match prng.below(3) {
            0 => fs.fallocate(&file, 3, at, 1 + prng.below(3 << 20))?,
            _ => write(&fs, &file, at, &piece[..1 + prng.below(1 << 20) as usize])?,
        }
    }
    write(&fs, &file, 1 << 40, b"far away")?;
    fs.sync()
}

/// Snapshots made and destroyed in cycles, with changes between, and a rollback.
fn cycles(pool: &Arc<Pool>, name: &str) -> Result<()> {
    let prng = SeededPrng::new(2);
    let head = format!("{name}/work");
    pool.create_filesystem(&head, &[], (0, 0))?;
    let mut snapshots: Vec<String> = Vec::new();
    for round in 0..40 {
        {
            let fs = pool.file_system(&head)?;
            let top = fs.root()?;
            for i in 0..20 {
                let file = format!("f{}", prng.below(60));
                match fs.lookup(&root(), &top, file.as_bytes()) {
                    Ok(_) if prng.chance(1, 3) => fs.unlink(&root(), &top, file.as_bytes())?,
                    Ok(there) => write(&fs, &there, prng.below(300_000), &noise(&prng, 50_000))?,
                    Err(_) => drop(put(&fs, &top, &file, &noise(&prng, 1000 * i + 1))?),
                }
            }
            fs.sync()?;
        }
        let snapshot = format!("{head}@r{round}");
        pool.snapshot(std::slice::from_ref(&snapshot), Recursion::One, &[])?;
        snapshots.push(snapshot);
        if snapshots.len() > 6 {
            let gone = snapshots.remove(prng.below(6) as usize);
            pool.destroy_dataset(&gone, DestroyOptions::ONE)?;
        }
        if round % 13 == 12 {
            let newest = snapshots[snapshots.len() - 1].clone();
            pool.rollback(&newest, NewerSnapshots::Refuse)?;
        }
    }
    pool.create_filesystem(&format!("{name}/gone"), &[], (0, 0))?;
    {
        let fs = pool.file_system(&format!("{name}/gone"))?;
        put(&fs, &fs.root()?, "data", &noise(&prng, 5 << 20))?;
        fs.sync()?;
    }
    pool.destroy_dataset(&format!("{name}/gone"), DestroyOptions::RECURSIVE)?;
    for _ in 0..6 {
        pool.sync()?;
    }
    Ok(())
}

/// Filled until nothing fits, emptied, half filled again.
fn full(pool: &Arc<Pool>, name: &str) -> Result<()> {
    let fs = pool.file_system(name)?;
    let top = fs.root()?;
    let prng = SeededPrng::new(3);
    for round in 0..2 {
        let mut files = 0;
        loop {
            match put(
                &fs,
                &top,
                &format!("r{round}-{files}"),
                &noise(&prng, 1 << 20),
            ) {
                Ok(_) => files += 1,
                Err(e) if e.is(Errno::NOSPC) => break,
                Err(e) => return Err(e),
            }
            assert!(files < 1000, "a pool of 128 MiB took a gigabyte");
        }
        assert!(files > 40, "full after {files} MiB");
        fs.sync()?;
        let mut names = Vec::new();
        fs.readdir(&top, 0, false, &mut |e| {
            if e.name.starts_with(b"r") {
                names.push(e.name.to_vec());
            }
            true
        })?;
        for file in names.iter().skip(round * names.len() / 2) {
            fs.unlink(&root(), &top, file)?;
        }
        for _ in 0..6 {
            fs.sync()?;
            pool.sync()?;
        }
    }
    Ok(())
}

/// Free space too fragmented for the blocks that are written then. Some space is used in every
/// metaslab, then come blocks as large as a metaslab.
fn gang(pool: &Arc<Pool>, name: &str) -> Result<()> {
    let prng = SeededPrng::new(4);
    leave_gaps(pool, &prng, &format!("{name}/small"))?;
    let large = format!("{name}/large");
    pool.create_filesystem(
        &large,
        &[
            ("recordsize".into(), "16M".into()),
            ("copies".into(), "1".into()),
        ],
        (0, 0),
    )?;
    let fs = pool.file_system(&large)?;
    for i in 0..4 {
        match put(
            &fs,
            &fs.root()?,
            &format!("big{i}"),
            &noise(&prng, 16 << 20),
        ) {
            Err(e) if e.is(Errno::NOSPC) => break,
            other => drop(other?),
        }
        fs.sync()?;
    }
    let report = check(pool.spa(), Depth::Metadata)?;
    assert!(
        report.gangs > 0,
        "no gang block was made among {} blocks",
        report.blocks
    );
    // Some of the gang blocks are freed again, and others written in their place.
    for i in 0..3 {
        let _ = fs.unlink(&root(), &fs.root()?, b"big0");
        fs.sync()?;
        match put(
            &fs,
            &fs.root()?,
            "big0",
            &noise(&prng, (16 << 20) - i * 5000),
        ) {
            Err(e) if !e.is(Errno::NOSPC) => return Err(e),
            _ => {}
        }
        fs.sync()?;
    }
    Ok(())
}

/// Fills a file system and takes most of it away again, so that each metaslab has gaps.
fn leave_gaps(pool: &Arc<Pool>, prng: &SeededPrng, small: &str) -> Result<()> {
    pool.create_filesystem(small, &[("recordsize".into(), "1M".into())], (0, 0))?;
    let fs = pool.file_system(small)?;
    let top = fs.root()?;
    for round in 0..4 {
        let mut count = 0;
        loop {
            match put(
                &fs,
                &top,
                &format!("r{round}-{count}"),
                &noise(prng, 1 << 20),
            ) {
                Ok(_) => count += 1,
                Err(e) if e.is(Errno::NOSPC) => break,
                Err(e) => return Err(e),
            }
        }
        fs.sync()?;
        for i in (0..=count).filter(|i| i % 8 != 5) {
            match fs.unlink(&root(), &top, format!("r{round}-{i}").as_bytes()) {
                Err(e) if !e.is(Errno::NOENT) => return Err(e),
                _ => {}
            }
        }
        for _ in 0..6 {
            fs.sync()?;
            pool.sync()?;
        }
    }
    Ok(())
}

/// Files of all sizes, attributes, links, devices, several datasets and snapshots. All features are
/// enabled in a pool that was created without any and is in use. The old objects are used further
/// beside the new ones.
fn upgraded(pool: &Arc<Pool>, name: &str) -> Result<()> {
    mixed(pool, name)?;
    pool.dsl()
        .snapshot(&[format!("{name}/a@before")], false, &[])?;
    pool.enable_features(pool.features_to_enable(&Compatibility::Off)?)?;
    let head = format!("{name}/new");
    let properties = [
        ("compression", "zstd"),
        ("dnodesize", "auto"),
        ("recordsize", "1M"),
    ];
    let properties = properties.map(|(k, v)| (k.to_owned(), v.to_owned()));
    pool.create_filesystem(&head, &properties, (0, 0))?;
    pool.dsl()
        .clone_snapshot(&format!("{name}/a@before"), &format!("{name}/clone"), &[])?;
    let prng = SeededPrng::new(6);
    for head in ["a", "new", "clone"] {
        let fs = pool.file_system(&format!("{name}/{head}"))?;
        let top = fs.root()?;
        for i in 0..200u64 {
            put(
                &fs,
                &top,
                &format!("later {i}"),
                &noise(&prng, 1 << prng.range(4..19)),
            )?;
            if i % 50 == 0 {
                pool.sync()?;
            }
        }
    }
    pool.dsl()
        .snapshot(&[format!("{name}/a@after")], false, &[])?;
    Ok(())
}

fn mixed(pool: &Arc<Pool>, name: &str) -> Result<()> {
    let prng = SeededPrng::new(5);
    for child in ["a", "a/b", "c"] {
        let head = format!("{name}/{child}");
        pool.create_filesystem(&head, &[], (0, 0))?;
        let fs = pool.file_system(&head)?;
        let top = fs.root()?;
        let dir = fs.mkdir(&root(), &top, b"directory", 0o755)?;
        for i in 0..300u64 {
            let len = prng.below(1 << prng.range(4..21)) as usize;
            let data = if prng.chance(1, 2) {
                noise(&prng, len)
            } else {
                vec![i as u8; len]
            };
            let file = put(
                &fs,
                if i % 3 == 0 { &top } else { &dir },
                &format!("file {i}"),
                &data,
            )?;
            if i % 7 == 0 {
                let value = noise(&prng, prng.below(5000) as usize);
                fs.set_xattr(
                    &root(),
                    &file,
                    b"user.test",
                    &value,
                    zuse_zpl::XattrMode::Any,
                )?;
            }
            if i % 11 == 0 {
                fs.link(&root(), &file, &top, format!("link {i}").as_bytes())?;
                fs.truncate(&root(), &file, prng.below(1 << 20))?;
            }
            if i % 29 == 0 {
                fs.symlink(
                    &root(),
                    &top,
                    format!("symlink {i}").as_bytes(),
                    "t".repeat(i as usize + 1).as_bytes(),
                )?;
                fs.mknod(
                    &root(),
                    &top,
                    format!("device {i}").as_bytes(),
                    0o020_644,
                    259,
                )?;
            }
        }
        fs.sync()?;
        pool.snapshot(&[format!("{head}@first")], Recursion::One, &[])?;
        for i in (0..300).step_by(4) {
            let place = if i % 3 == 0 { &top } else { &dir };
            fs.unlink(&root(), place, format!("file {i}").as_bytes())?;
        }
        fs.sync()?;
    }
    Ok(())
}

/// Files that share blocks, as a chain of power cuts left them.
fn cuts(
    scenario: &'static Scenario,
    path: &Path,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let workload = Files {
        pool: scenario.name,
        features: Some(features_without(scenario.without)),
        ..Files::that_share()
    };
    let rules = Rules {
        size: scenario.size,
        within: 300,
        cuts: 25,
        ..Rules::default()
    };
    let start = power::create(&workload, &rules, 1)?;
    let (_, (images, _)) = power::chain_to(&workload, &rules, &start, 2)?;
    let file = File::create(path)?;
    file.set_len(scenario.size)?;
    let device = MemDevice::from_image(scenario.name, &images[0]);
    let mut piece = vec![0; 1 << 20];
    for at in (0..scenario.size).step_by(piece.len()) {
        device.read_at(&mut piece, at)?;
        if piece.iter().any(|b| *b != 0) {
            file.write_all_at(&piece, at)?;
        }
    }
    Ok(())
}

fn features_without(without: &[&str]) -> Vec<&'static Feature> {
    let all = FEATURES.iter();
    all.filter(|f| !without.contains(&f.guid)).collect()
}

/// A pool that is made, filled and exported.
fn filled(
    scenario: &Scenario,
    path: &Path,
    fill: Fill,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let new = NewPool {
        name: scenario.name.to_owned(),
        devices: vec![NewDevice {
            path: path.to_owned(),
            make: Some(scenario.size),
        }],
        features: match (scenario.plain, scenario.without) {
            (true, _) => Some(Vec::new()),
            (false, []) => None,
            (false, without) => Some(features_without(without)),
        },
        properties: vec![("ashift".into(), scenario.ashift.into())],
        root_properties: scenario
            .properties
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect(),
        ..NewPool::default()
    };
    let pool = Pool::create(Environment::default(), &new)?;
    fill(&pool, scenario.name)?;
    Ok(pool.export()?)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, dir] = args.as_slice() else {
        let sound = SCENARIOS.iter().filter(|s| !s.leaks);
        sound.for_each(|s| println!("{}", s.name));
        return Ok(());
    };
    let scenario = SCENARIOS
        .iter()
        .find(|s| s.name == name)
        .ok_or("no such scenario")?;
    let path = Path::new(dir).join(format!("{name}.img"));
    match scenario.fill {
        Some(fill) => filled(scenario, &path, fill)?,
        None => cuts(scenario, &path)?,
    }
    if scenario.leaks {
        return Ok(());
    }
    let found = Search::new([&path]).run();
    let pool = Pool::open(
        Environment::default(),
        &found.pools[0],
        &PoolAccess::default(),
    )?;
    let report = check(pool.spa(), Depth::Metadata)?;
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    pool.close()?;
    println!(
        "{name}: {} objects, {} blocks, {} gangs, {} bytes",
        report.objects, report.blocks, report.gangs, report.claimed
    );
    report
        .problems
        .iter()
        .map(ToString::to_string)
        .chain(flaws.iter().cloned())
        .for_each(|p| println!("{name}: {p}"));
    if report.is_clean() && flaws.is_empty() {
        Ok(())
    } else {
        Err("the pool is not sound".into())
    }
}

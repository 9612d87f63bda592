//! The datasets that are sent: made and changed at random, with a snapshot of all after each round.

use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, NewVolume, Pool, Recursion};
use zuse_base::{Entropy, Result, SeededPrng};
use zuse_zpl::{RenameFlags, SetAttr, WriteOptions, XattrMode, Znode, mode};

use super::{key, new_pool};

/// Root of what is sent.
pub(super) const TOP: &str = "src/top";

pub(super) struct Source {
    pub pool: Arc<Pool>,
    /// File systems and volumes, parents first.
    pub datasets: Vec<String>,
    /// The clone among them, and the number of the round whose snapshot is its origin.
    pub clone: Option<(String, usize)>,
    /// Rounds: each has a snapshot `@sN` of everything that was there.
    pub rounds: usize,
    /// Those with a bookmark `#sN` too.
    pub bookmarks: Vec<(String, usize)>,
    pub encrypted: bool,
    /// What was made, for messages.
    pub what: Vec<String>,
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    list.iter().map(own).collect()
}

fn word<'a>(prng: &SeededPrng, words: &[&'a str]) -> &'a str {
    prng.pick(words).copied().unwrap_or_default()
}

/// Random properties that shape blocks and dnodes.
fn shape(prng: &SeededPrng) -> Vec<(String, String)> {
    let sizes = ["512", "2K", "4K", "16K", "128K", "128K", "256K", "1M"];
    let codecs = ["off", "on", "lz4", "zstd", "gzip-1", "zle", "lzjb"];
    let nodes = ["legacy", "legacy", "auto", "1k", "4k", "16k"];
    pairs(&[
        ("recordsize", word(prng, &sizes)),
        ("compression", word(prng, &codecs)),
        ("dnodesize", word(prng, &nodes)),
        ("xattr", word(prng, &["sa", "on"])),
        (
            "checksum",
            word(prng, &["on", "sha256", "blake3", "fletcher2"]),
        ),
        ("copies", word(prng, &["1", "1", "1", "2"])),
    ])
}

impl Source {
    pub fn new(prng: &SeededPrng) -> Result<Self> {
        let ashift = if prng.chance(1, 2) { 9 } else { 12 };
        let pool = new_pool("src", ashift)?;
        let encrypted = prng.chance(1, 4);
        let mut properties = shape(prng);
        if encrypted {
            properties.extend(pairs(&[("encryption", "on"), ("keyformat", "raw")]));
        }
        let mut what = vec![format!("{TOP} {properties:?}")];
        pool.create_filesystem_with_key(TOP, &properties, (0, 0), encrypted.then(key).as_ref())?;
        let mut datasets = vec![TOP.to_owned()];
        if prng.chance(1, 2) {
            let name = format!("{TOP}/kid");
            let properties = shape(prng);
            what.push(format!("{name} {properties:?}"));
            pool.create_filesystem(&name, &properties, (0, 0))?;
            datasets.push(name);
        }
        if prng.chance(1, 3) {
            let name = format!("{TOP}/vol");
            let block_size = 512 << prng.below(10);
            what.push(format!("{name} of {block_size}"));
            pool.create_volume(
                &name,
                &NewVolume {
                    size: 2 << 20,
                    block_size,
                    sparse: true,
                    properties: pairs(&[("compression", word(prng, &["off", "lz4", "zstd"]))]),
                },
            )?;
            datasets.push(name);
        }
        Ok(Self {
            pool,
            datasets,
            clone: None,
            rounds: 0,
            bookmarks: Vec::new(),
            encrypted,
            what,
        })
    }

    /// Some rounds of changes.
    pub fn grow(&mut self, prng: &SeededPrng) -> Result<()> {
        let rounds = 2 + prng.below(3) as usize;
        for round in 0..rounds {
            for name in &self.datasets {
                // Some increments are empty.
                if round > 0 && prng.chance(1, 6) {
                    continue;
                }
                if self.pool.dsl().dataset(name)?.is_volume()? {
                    change_volume(&self.pool, name, prng)?;
                } else {
                    if prng.chance(1, 3) {
                        let new = shape(prng);
                        let _ = self.pool.dataset(name)?.set(&new[..3]);
                        self.what
                            .push(format!("round {round}: {name} {:?}", &new[..3]));
                    }
                    change(&self.pool.file_system(name)?, prng)?;
                }
                if prng.chance(1, 3) {
                    let pair = pairs(&[("my:round", &round.to_string())]);
                    self.pool.dataset(name)?.set(&pair)?;
                }
            }
            let snap = format!("{TOP}@s{round}");
            let note = pairs(&[("my:note", &format!("n{round}"))]);
            let note = if prng.chance(1, 2) { &note[..] } else { &[] };
            self.pool.snapshot(&[snap], Recursion::Below, note)?;
            self.rounds = round + 1;
            for name in &self.datasets {
                if prng.chance(1, 4) {
                    self.pool
                        .bookmark(&format!("{name}@s{round}"), &format!("{name}#s{round}"))?;
                    self.bookmarks.push((name.clone(), round));
                }
            }
            if self.clone.is_none() && round + 1 < rounds && prng.chance(1, 2) {
                let name = format!("{TOP}/twin");
                self.pool
                    .clone_snapshot(&format!("{TOP}@s{round}"), &name, &[])?;
                self.what.push(format!("{name} of @s{round}"));
                self.datasets.push(name.clone());
                self.clone = Some((name, round));
            }
        }
        self.pool.sync()
    }
}

fn noise(prng: &SeededPrng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    match prng.below(5) {
        0 | 1 => prng.fill(&mut bytes),
        2 => bytes.fill(prng.below(256) as u8),
        // Little enough for a block pointer.
        3 => {
            let n = len.min(30);
            prng.fill(&mut bytes[..n]);
        }
        _ => bytes.chunks_mut(512).for_each(|c| {
            let n = c.len().min(90);
            prng.fill(&mut c[..n]);
        }),
    }
    bytes
}

fn change_volume(pool: &Pool, name: &str, prng: &SeededPrng) -> Result<()> {
    let volume = pool.volume(name)?;
    for _ in 0..prng.range(1..8) {
        let at = prng.below(1 << 20) & !511;
        let len = (1 + prng.below(200)) * 512;
        if prng.chance(1, 4) {
            volume.discard(at, len)?;
        } else {
            volume.write(at, &noise(prng, len as usize))?;
        }
    }
    volume.sync()
}

struct Worker<'a> {
    fs: &'a Arc<FileSystem>,
    prng: &'a SeededPrng,
    root: Credentials,
}

fn change(fs: &Arc<FileSystem>, prng: &SeededPrng) -> Result<()> {
    let worker = Worker {
        fs,
        prng,
        root: Credentials::root(),
    };
    for _ in 0..prng.range(10..50) {
        worker.step()?;
    }
    if prng.chance(1, 4) {
        worker.crowd()?;
    }
    fs.sync()
}

impl Worker<'_> {
    fn dir(&self) -> Result<Arc<Znode>> {
        let top = self.fs.root()?;
        if self.prng.chance(1, 2) {
            return Ok(top);
        }
        let name = format!("d{}", self.prng.below(3));
        match self.fs.lookup(&self.root, &top, name.as_bytes()) {
            Ok(dir) => Ok(dir),
            Err(_) => self.fs.mkdir(&self.root, &top, name.as_bytes(), 0o755),
        }
    }

    /// Many small files at once, or their end: whole blocks of dnodes come and go.
    fn crowd(&self) -> Result<()> {
        let top = self.fs.root()?;
        let some = self.prng.range(1..100);
        for i in 0..self.prng.range(30..120) {
            let name = format!("crowd{i}");
            match self.fs.lookup(&self.root, &top, name.as_bytes()) {
                Ok(_) if i < some => self.fs.unlink(&self.root, &top, name.as_bytes())?,
                Ok(_) => {}
                Err(_) => {
                    let file = self.fs.create(&self.root, &top, name.as_bytes(), 0o600)?;
                    let data = noise(self.prng, self.prng.below(700) as usize);
                    self.fs.write(&file, 0, &data, WriteOptions::default())?;
                }
            }
        }
        Ok(())
    }

    fn make(&self, dir: &Arc<Znode>, name: &str) -> Result<()> {
        let name = name.as_bytes();
        match self.prng.below(12) {
            0 => {
                let target = "t".repeat(1 + self.prng.below(300) as usize);
                self.fs
                    .symlink(&self.root, dir, name, target.as_bytes())
                    .map(drop)
            }
            1 => {
                let kinds = [mode::FIFO, mode::SOCKET, mode::CHARACTER, mode::BLOCK];
                let kind = self.prng.pick(&kinds).copied().unwrap_or(mode::FIFO);
                let rdev = zuse_zpl::device_number(8, self.prng.below(100) as u32);
                self.fs
                    .mknod(&self.root, dir, name, kind | 0o640, rdev)
                    .map(drop)
            }
            _ => {
                let file = self.fs.create(&self.root, dir, name, 0o644)?;
                self.write(&file)
            }
        }
    }

    fn write(&self, file: &Arc<Znode>) -> Result<()> {
        let at = match self.prng.below(3) {
            0 => 0,
            1 => self.prng.below(5000),
            _ => self.prng.below(900_000),
        };
        let most = if self.prng.chance(1, 5) {
            300_000
        } else {
            9000
        };
        let data = noise(self.prng, 1 + self.prng.below(most) as usize);
        let mut done = 0;
        while done < data.len() {
            let options = WriteOptions::default();
            done += self
                .fs
                .write(file, at + done as u64, &data[done..], options)?
                as usize;
        }
        Ok(())
    }

    fn step(&self) -> Result<()> {
        let (fs, root, prng) = (self.fs, &self.root, self.prng);
        let dir = self.dir()?;
        let name = format!("f{}", prng.below(30));
        let Ok(node) = fs.lookup(root, &dir, name.as_bytes()) else {
            return self.make(&dir, &name);
        };
        let is_file = fs.getattr(&node).attributes.mode & mode::TYPE == mode::REGULAR;
        match prng.below(14) {
            0 | 1 => fs.unlink(root, &dir, name.as_bytes()),
            2 => fs.rename(
                root,
                &dir,
                name.as_bytes(),
                &self.dir()?,
                format!("f{}", prng.below(30)).as_bytes(),
                RenameFlags::default(),
            ),
            3 => match fs.link(
                root,
                &node,
                &dir,
                format!("l{}", prng.below(1000)).as_bytes(),
            ) {
                Err(e) if e.is(zuse::Errno::EXIST) => Ok(()),
                other => other,
            },
            4 => {
                let what = SetAttr {
                    mode: Some(prng.below(0o10000) as u32),
                    uid: Some(1000 + prng.below(4) as u32),
                    gid: Some(50 + prng.below(4) as u32),
                    ..SetAttr::default()
                };
                fs.setattr(root, &node, &what).map(drop)
            }
            5 | 6 if is_file => {
                let name = format!("user.a{}", prng.below(6));
                if prng.chance(1, 3) {
                    let _ = fs.remove_xattr(root, &node, name.as_bytes());
                    return Ok(());
                }
                let most = if prng.chance(1, 4) { 5000 } else { 80 };
                let value = noise(prng, prng.below(most) as usize);
                fs.set_xattr(root, &node, name.as_bytes(), &value, XattrMode::Any)
            }
            7 if is_file => fs.truncate(root, &node, prng.below(900_000)),
            8 if is_file => {
                let (at, len) = (prng.below(900_000), 1 + prng.below(300_000));
                fs.fallocate(&node, 3, at, len)
            }
            _ if is_file => self.write(&node),
            _ => Ok(()),
        }
    }
}

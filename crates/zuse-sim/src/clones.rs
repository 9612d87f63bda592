//! Files that share blocks, against a model of every byte. Random block clones, writes,
//! truncations, removals, snapshots and rollbacks, also with dedup switched on and off.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, DestroyOptions, NewerSnapshots, Pool, Recursion};
use zuse_base::{Entropy, Error, Result, SeededPrng};
use zuse_zpl::{WriteOptions, Znode};

/// Largest file.
const LARGEST: u64 = 2 << 20;
/// Files at most.
const FILES: u64 = 12;
/// Snapshots at most.
const SNAPSHOTS: usize = 4;

type Files = BTreeMap<String, Vec<u8>>;

fn wrong(what: String) -> Error {
    Error::corrupt("clones", what)
}

/// The state of a run.
struct Run<'a> {
    pool: &'a Arc<Pool>,
    dataset: String,
    /// None while it is rolled back.
    fs: Option<Arc<FileSystem>>,
    prng: SeededPrng,
    files: Files,
    snapshots: Vec<(String, Files)>,
    /// Contents are repeated, and the dedup property changes.
    dedup: bool,
}

/// Values of `dedup` that a run sets.
const DEDUP: [&str; 7] = [
    "off",
    "on",
    "verify",
    "sha512",
    "edonr,verify",
    "blake3,verify",
    "skein",
];
/// Contents of blocks that are repeated.
const CONTENTS: u64 = 24;

/// Switches clones on.
///
/// # Errors
/// The properties of a dataset cannot be read.
pub fn switch_on(pool: &Pool) -> Result<()> {
    let mut limits = pool.limits();
    limits.clone_blocks = true;
    pool.set_limits(limits)
}

/// Runs `steps` random steps in the root file system of a pool.
///
/// # Errors
/// Any difference from the model, as `Corrupt`.
pub fn run(pool: &Arc<Pool>, dataset: &str, seed: u64, steps: usize) -> Result<()> {
    run_with(pool, dataset, seed, steps, false)
}

/// As [`run`], with few contents that are often repeated, and a dedup property that changes.
///
/// # Errors
/// As [`run`].
pub fn run_with_dedup(pool: &Arc<Pool>, dataset: &str, seed: u64, steps: usize) -> Result<()> {
    pool.dataset(dataset)?
        .set(&[("dedup".to_owned(), "on".to_owned())])?;
    run_with(pool, dataset, seed, steps, true)
}

fn run_with(pool: &Arc<Pool>, dataset: &str, seed: u64, steps: usize, dedup: bool) -> Result<()> {
    switch_on(pool)?;
    let mut run = Run {
        pool,
        dataset: dataset.to_owned(),
        fs: Some(pool.file_system(dataset)?),
        prng: SeededPrng::new(seed),
        files: Files::new(),
        snapshots: Vec::new(),
        dedup,
    };
    for step in 0..steps {
        run.step(step)?;
    }
    run.compare()?;
    pool.sync()
}

/// Removes all files and snapshots of such a run: nothing is shared then.
///
/// # Errors
/// The pool cannot be changed.
pub fn clear(pool: &Arc<Pool>, dataset: &str) -> Result<()> {
    let names: Vec<String> = pool
        .snapshots(dataset)?
        .into_iter()
        .map(|s| {
            if s.contains('@') {
                s
            } else {
                format!("{dataset}@{s}")
            }
        })
        .collect();
    if !names.is_empty() {
        pool.destroy_snapshots(&names, DestroyOptions::ONE)?;
    }
    let fs = pool.file_system(dataset)?;
    let (who, root) = (Credentials::root(), fs.root()?);
    for n in 0..FILES {
        let name = format!("f{n}");
        if fs.lookup(&who, &root, name.as_bytes()).is_ok() {
            fs.unlink(&who, &root, name.as_bytes())?;
        }
    }
    drop((root, fs));
    // Freed blocks become available after a txg or two.
    for _ in 0..4 {
        pool.sync()?;
    }
    Ok(())
}

impl Run<'_> {
    fn fs(&self) -> Result<&FileSystem> {
        self.fs
            .as_deref()
            .ok_or_else(|| wrong("no file system is open".to_owned()))
    }

    fn below(&self, bound: u64) -> u64 {
        self.prng.below(bound.max(1))
    }

    fn open(&self, name: &str) -> Result<Arc<Znode>> {
        let root = self.fs()?.root()?;
        self.fs()?
            .lookup(&Credentials::root(), &root, name.as_bytes())
    }

    fn any(&self) -> Option<String> {
        let n = self.below(self.files.len() as u64) as usize;
        self.files.keys().nth(n).cloned()
    }

    /// Mostly a border of blocks.
    fn place(&self, size: u64) -> u64 {
        let at = self.below(size + 1);
        if self.below(8) == 0 {
            at
        } else {
            at & !((128 << 10) - 1)
        }
    }

    fn bytes(&self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        if self.dedup {
            for block in bytes.chunks_mut(128 << 10) {
                SeededPrng::new(self.below(CONTENTS)).fill(block);
            }
            return bytes;
        }
        match self.below(4) {
            0 => bytes.fill(self.below(255) as u8 + 1),
            // Part of it is a hole, or is embedded in the pointer.
            1 => self.prng.fill(&mut bytes[len as usize / 2..]),
            _ => self.prng.fill(&mut bytes),
        }
        bytes
    }

    /// Sets the dedup and copies properties for the next blocks.
    fn change_property(&self) -> Result<()> {
        let kind = DEDUP[self.below(DEDUP.len() as u64) as usize];
        let copies = self.below(3) + 1;
        let set = [("dedup", kind.to_owned()), ("copies", copies.to_string())];
        let set = set.map(|(name, value)| (name.to_owned(), value));
        self.pool.dataset(&self.dataset)?.set(&set)
    }

    fn step(&mut self, step: usize) -> Result<()> {
        if self.dedup && self.below(12) == 0 {
            return self.change_property();
        }
        match self.below(20) {
            0..4 => self.write()?,
            4..11 => self.copy()?,
            11 => self.truncate()?,
            12 => self.remove()?,
            13 => self.snapshot(step)?,
            14 => self.forget()?,
            15 if step.is_multiple_of(3) => self.roll_back()?,
            16 => self.compare()?,
            _ => self.pool.sync()?,
        }
        Ok(())
    }

    fn target(&mut self) -> Result<(String, Arc<Znode>)> {
        let name = format!("f{}", self.below(FILES));
        if self.files.contains_key(&name) {
            let file = self.open(&name)?;
            return Ok((name, file));
        }
        let root = self.fs()?.root()?;
        let who = Credentials::root();
        let file = self.fs()?.create(&who, &root, name.as_bytes(), 0o644)?;
        self.files.insert(name.clone(), Vec::new());
        Ok((name, file))
    }

    fn write(&mut self) -> Result<()> {
        let (name, file) = self.target()?;
        let at = self.place(self.files[&name].len() as u64);
        let len =
            (self.below(6) * (128 << 10) + self.below(70_000)).min(LARGEST.saturating_sub(at));
        let data = self.bytes(len);
        self.fs()?
            .write(&file, at, &data, WriteOptions::default())?;
        self.put(&name, at, &data);
        Ok(())
    }

    fn put(&mut self, name: &str, at: u64, data: &[u8]) {
        let Some(file) = self.files.get_mut(name).filter(|_| !data.is_empty()) else {
            return;
        };
        let end = at as usize + data.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[at as usize..end].copy_from_slice(data);
    }

    fn copy(&mut self) -> Result<()> {
        let Some(from) = self.any() else {
            return Ok(());
        };
        let (to, target) = self.target()?;
        let size = self.files[&from].len() as u64;
        let (from_at, to_at) = (self.place(size), self.place(self.files[&to].len() as u64));
        let len = if self.below(2) == 0 {
            size - from_at
        } else {
            self.below(size - from_at + 1)
        };
        let len = len.min(LARGEST.saturating_sub(to_at));
        if from == to && from_at < to_at + len && to_at < from_at + len {
            return Ok(());
        }
        let source = self.open(&from)?;
        let done = self
            .fs()?
            .copy_range(&source, from_at, &target, to_at, len)?;
        if done != len {
            return Err(wrong(format!("{done} bytes of {len} were copied")));
        }
        let data = self.files[&from][from_at as usize..(from_at + len) as usize].to_vec();
        self.put(&to, to_at, &data);
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        let Some(name) = self.any() else {
            return Ok(());
        };
        let size = self.place(self.files[&name].len() as u64);
        let file = self.open(&name)?;
        self.fs()?.truncate(&Credentials::root(), &file, size)?;
        self.files.entry(name).or_default().resize(size as usize, 0);
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let Some(name) = self.any() else {
            return Ok(());
        };
        let root = self.fs()?.root()?;
        self.fs()?
            .unlink(&Credentials::root(), &root, name.as_bytes())?;
        self.files.remove(&name);
        Ok(())
    }

    fn snapshot(&mut self, step: usize) -> Result<()> {
        if self.snapshots.len() < SNAPSHOTS {
            let name = format!("{}@s{step}", self.dataset);
            self.pool
                .snapshot(std::slice::from_ref(&name), Recursion::One, &[])?;
            self.snapshots.push((name, self.files.clone()));
        }
        Ok(())
    }

    fn forget(&mut self) -> Result<()> {
        if !self.snapshots.is_empty() {
            let n = self.below(self.snapshots.len() as u64) as usize;
            let (name, _) = self.snapshots.remove(n);
            self.pool.destroy_snapshots(&[name], DestroyOptions::ONE)?;
        }
        Ok(())
    }

    fn roll_back(&mut self) -> Result<()> {
        let Some((name, files)) = self.snapshots.last().cloned() else {
            return Ok(());
        };
        self.fs = None;
        self.pool.rollback(&name, NewerSnapshots::Refuse)?;
        self.fs = Some(self.pool.file_system(&self.dataset)?);
        self.files = files;
        Ok(())
    }

    fn compare(&self) -> Result<()> {
        for (name, want) in &self.files {
            let file = self.open(name)?;
            let mut have = vec![0; want.len() + 1];
            let got = self.fs()?.read(&file, 0, &mut have)?;
            if got != want.len() || have[..got] != want[..] {
                let at = have.iter().zip(want).position(|(a, b)| a != b);
                return Err(wrong(format!(
                    "{name}: {got} bytes of {}, the first that differs: {at:?}",
                    want.len()
                )));
            }
        }
        Ok(())
    }
}

//! Random changes of keys against a model: create, clone, promote, rename, new keys, inherited
//! keys, raw streams.
//!
//! ```text
//!   step ──► pool   what is asked of it
//!        └─► Model  dataset → the key that its wrapping was made with, and which datasets share a key object
//! ```
//! The model does not know the encryption root of a dataset. It asks the pool, and then requires
//! that the root's key is the one with which the dataset was wrapped. After an export every root
//! accepts its key and no other, and every file is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::stream::{SendOptions, SendProgress, StreamWriter};
use zuse::tools::Layers as _;
use zuse::{Credentials, Errno, KeyFormat, KeyMaterial, Pool, ReceiveRequest, Recursion, Result};
use zuse_base::{Entropy, Error, SeededPrng};
use zuse_zpl::WriteOptions;

/// Datasets at most.
const MOST: usize = 14;

const RAW: SendOptions = SendOptions {
    large_blocks: true,
    embed: true,
    compressed: true,
    raw: true,
    resume: None,
    saved: None,
    through_cache: false,
};

/// A key by number: its material comes from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    number: u64,
    format: KeyFormat,
}

#[derive(Clone, Debug)]
struct Dataset {
    /// The key that its key object is wrapped with.
    key: Key,
    /// Which key object that is.
    object: u64,
    /// Seed of its file.
    file: u64,
    snapshots: Vec<String>,
    /// Dataset that it was received from, and the last common snapshots there and here.
    source: Option<(String, String, String)>,
}

/// A pool in use, with its model.
pub struct Keys {
    top: String,
    prng: SeededPrng,
    datasets: BTreeMap<String, Dataset>,
    names: u64,
    done: Vec<String>,
    counts: BTreeMap<&'static str, [u64; 2]>,
}

impl Key {
    fn material(self) -> KeyMaterial {
        let mut bytes = vec![0; 32];
        SeededPrng::new(self.number).fill(&mut bytes);
        match self.format {
            KeyFormat::Raw => KeyMaterial::new(bytes),
            KeyFormat::Hex => {
                let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                KeyMaterial::new(hex.into_bytes())
            }
            KeyFormat::Passphrase => {
                KeyMaterial::new(format!("password {}", self.number).into_bytes())
            }
        }
    }

    fn rounds(self) -> Option<u64> {
        (self.format == KeyFormat::Passphrase).then_some(100_000)
    }

    fn format_name(self) -> &'static str {
        match self.format {
            KeyFormat::Raw => "raw",
            KeyFormat::Hex => "hex",
            KeyFormat::Passphrase => "passphrase",
        }
    }
}

fn wrong(what: String) -> Error {
    Error::corrupt("the workload", what)
}

fn bytes(seed: u64) -> Vec<u8> {
    let mut out = vec![0; 3000];
    SeededPrng::new(seed).fill(&mut out);
    out
}

impl Keys {
    /// A workload below a pool's own dataset, which has no children yet.
    pub fn new(top: &str, seed: u64) -> Self {
        Self {
            top: top.to_owned(),
            prng: SeededPrng::new(seed),
            datasets: BTreeMap::new(),
            names: 0,
            done: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    /// How often each kind of change was done, and refused.
    pub fn counts(&self) -> &BTreeMap<&'static str, [u64; 2]> {
        &self.counts
    }

    /// Does a number of steps.
    ///
    /// # Errors
    /// A sentence with the last changes, if pool and model differ.
    pub fn run(&mut self, pool: &Arc<Pool>, steps: u64) -> Result<()> {
        for _ in 0..steps {
            self.step(pool)
                .and_then(|()| self.compare(pool))
                .map_err(|e| self.story(&e))?;
        }
        Ok(())
    }

    fn story(&self, error: &Error) -> Error {
        wrong(format!("{error}; done:\n  {}", self.done.join("\n  ")))
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    fn any(&self) -> Option<String> {
        let names: Vec<&String> = self.datasets.keys().collect();
        self.prng.pick(&names).map(|n| (*n).clone())
    }

    fn a_key(&mut self) -> Key {
        self.names += 1;
        Key {
            number: self.names,
            format: match self.prng.below(6) {
                0 => KeyFormat::Passphrase,
                1 => KeyFormat::Hex,
                _ => KeyFormat::Raw,
            },
        }
    }

    /// Counts whether a change was done. A refusal changes nothing.
    fn tried(&mut self, kind: &'static str, what: String, result: Result<()>) -> Result<bool> {
        let refused = match &result {
            Ok(()) => false,
            Err(e) if e.is(Errno::ACCES) || e.is(Errno::INVAL) || e.is(Errno::EXIST) => true,
            Err(e) => return Err(wrong(format!("{what}: {e}"))),
        };
        self.counts.entry(kind).or_default()[usize::from(refused)] += 1;
        let note = result.err().map_or(String::new(), |e| format!(" ({e})"));
        self.done.push(format!("{what}{note}"));
        Ok(!refused)
    }

    fn step(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let full = self.datasets.len() >= MOST;
        match self.prng.below(16) {
            0..=2 if !full => self.create(pool),
            _ if self.datasets.is_empty() => Ok(()),
            3..=5 if !full => self.clone_one(pool),
            6 | 7 => self.promote(pool),
            8 | 9 => self.rename(pool),
            10 | 11 => self.change_key(pool),
            12 | 13 => self.inherit_key(pool),
            14 if !full => self.receive_new(pool),
            _ => self.receive_more(pool),
        }
    }

    fn create(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let parent = self.any().filter(|_| self.prng.chance(3, 4));
        let is_root = parent.is_none() || self.prng.chance(1, 4);
        let above = parent.clone().unwrap_or_else(|| self.top.clone());
        let name = format!("{above}/{}", self.fresh("d"));
        let key = match parent.and_then(|p| self.datasets.get(&p)) {
            Some(parent) if !is_root => parent.key,
            _ => self.a_key(),
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let properties = vec![
            pair("encryption", "on"),
            pair("keyformat", key.format_name()),
        ];
        let made = match is_root {
            true => {
                pool.create_filesystem_with_key(&name, &properties, (0, 0), Some(&key.material()))
            }
            false => pool.create_filesystem_with_key(&name, &[], (0, 0), None),
        };
        if self.tried("create", format!("create {name} root {is_root}"), made)? {
            let file = self.prng.u64();
            let fs = pool.file_system(&name)?;
            let (who, root) = (Credentials::root(), fs.root()?);
            let znode = fs.create(&who, &root, b"f", 0o644)?;
            fs.write(&znode, 0, &bytes(file), WriteOptions::default())?;
            let object = self.prng.u64();
            self.datasets.insert(
                name,
                Dataset {
                    key,
                    object,
                    file,
                    snapshots: Vec::new(),
                    source: None,
                },
            );
        }
        Ok(())
    }

    fn snapshot(&mut self, pool: &Arc<Pool>, of: &str) -> Result<String> {
        let snap = self.fresh("s");
        pool.snapshot(&[format!("{of}@{snap}")], Recursion::One, &[])?;
        if let Some(dataset) = self.datasets.get_mut(of) {
            dataset.snapshots.push(snap.clone());
        }
        Ok(snap)
    }

    fn clone_one(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let Some(of) = self.any() else { return Ok(()) };
        let snap = self.snapshot(pool, &of)?;
        let above = self.any().filter(|_| self.prng.chance(1, 2));
        let above = above.unwrap_or_else(|| self.top.clone());
        let name = format!("{above}/{}", self.fresh("c"));
        let made = pool.clone_snapshot(&format!("{of}@{snap}"), &name, &[]);
        if self.tried("clone", format!("clone {of}@{snap} {name}"), made)?
            && let Some(origin) = self.datasets.get(&of).cloned()
        {
            let dataset = Dataset {
                snapshots: Vec::new(),
                source: None,
                ..origin
            };
            self.datasets.insert(name, dataset);
        }
        Ok(())
    }

    fn promote(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let Some(name) = self.any() else {
            return Ok(());
        };
        let result = pool.promote(&name);
        self.tried("promote", format!("promote {name}"), result)?;
        Ok(())
    }

    fn rename(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let Some(from) = self.any() else {
            return Ok(());
        };
        let above = self.any().filter(|_| self.prng.chance(2, 3));
        let above = above.unwrap_or_else(|| self.top.clone());
        let to = format!("{above}/{}", self.fresh("r"));
        let result = pool.rename(&from, &to, Recursion::One);
        if !self.tried("rename", format!("rename {from} {to}"), result)? {
            return Ok(());
        }
        let below = format!("{from}/");
        let new = |name: &str| match name.strip_prefix(&below) {
            Some(rest) => format!("{to}/{rest}"),
            None if name == from => to.clone(),
            None => name.to_owned(),
        };
        let old = std::mem::take(&mut self.datasets);
        for (name, mut dataset) in old {
            if let Some((source, ..)) = &mut dataset.source {
                *source = new(source);
            }
            self.datasets.insert(new(&name), dataset);
        }
        Ok(())
    }

    fn root_of(pool: &Arc<Pool>, name: &str) -> Result<String> {
        let info = pool.dsl().encryption(name)?;
        Ok(info
            .ok_or_else(|| wrong(format!("{name} is not encrypted")))?
            .root)
    }

    fn change_key(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let (Some(name), key) = (self.any(), self.a_key()) else {
            return Ok(());
        };
        let material = key.material();
        let mut change = zuse::KeyChange::new(&material, key.format);
        change.rounds = key.rounds();
        let result = pool.change_key(&name, &change);
        let what = format!("change-key {name} {}", key.format_name());
        if !self.tried("change-key", what, result)? {
            return Ok(());
        }
        for (other, dataset) in &mut self.datasets {
            if Self::root_of(pool, other)? == name {
                dataset.key = key;
            }
        }
        Ok(())
    }

    fn inherit_key(&mut self, pool: &Arc<Pool>) -> Result<()> {
        // Mostly one that is a root.
        let mut name = String::new();
        for _ in 0..8 {
            name = self.any().unwrap_or_default();
            if Self::root_of(pool, &name)? == name && name.matches('/').count() > 1 {
                break;
            }
        }
        let mut followers = Vec::new();
        for other in self.datasets.keys() {
            if Self::root_of(pool, other)? == name {
                followers.push(other.clone());
            }
        }
        let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
        let key = self.datasets.get(parent).map(|parent| parent.key);
        let result = pool.inherit_key(&name);
        if self.tried("change-key -i", format!("change-key -i {name}"), result)? {
            let key = key.ok_or_else(|| wrong(format!("{name} inherited no key")))?;
            for other in followers {
                if let Some(dataset) = self.datasets.get_mut(&other) {
                    dataset.key = key;
                }
            }
        }
        Ok(())
    }

    fn send(pool: &Arc<Pool>, to: &str, from: Option<&str>) -> Result<Vec<u8>> {
        let mut out = StreamWriter::new(Vec::new());
        pool.send(to, from, RAW)?
            .run(&mut out, &SendProgress::default())?;
        Ok(out.into_inner()?)
    }

    fn receive_new(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let Some(of) = self.any() else { return Ok(()) };
        let snap = self.snapshot(pool, &of)?;
        let above = self.any().filter(|_| self.prng.chance(1, 2));
        let above = above.unwrap_or_else(|| self.top.clone());
        let name = format!("{above}/{}", self.fresh("w"));
        let stream = Self::send(pool, &format!("{of}@{snap}"), None)?;
        let request = ReceiveRequest {
            target: name.clone(),
            ..ReceiveRequest::default()
        };
        let result = pool.receive(&stream[..], &request, &mut |_| {});
        if self.tried("receive", format!("receive {of}@{snap} {name}"), result)?
            && let Some(source) = self.datasets.get(&of).cloned()
        {
            let dataset = Dataset {
                object: self.prng.u64(),
                snapshots: vec![snap.clone()],
                source: Some((of, snap.clone(), snap)),
                ..source
            };
            let key = dataset.key;
            self.datasets.insert(name.clone(), dataset);
            pool.load_key(&name, &key.material())?;
        }
        Ok(())
    }

    fn receive_more(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let mut found = None;
        for (name, dataset) in &self.datasets {
            if let Some((source, last, _)) = &dataset.source
                && self.datasets.contains_key(source)
                && self.prng.chance(1, 2)
            {
                found = Some((name.clone(), source.clone(), last.clone()));
            }
        }
        let Some((name, of, last)) = found else {
            return Ok(());
        };
        // A promotion may have removed it.
        if pool.dsl().dataset(&format!("{of}@{last}")).is_err() {
            return Ok(());
        }
        let snap = self.snapshot(pool, &of)?;
        let from = format!("{of}@{last}");
        let stream = Self::send(pool, &format!("{of}@{snap}"), Some(&from))?;
        let request = ReceiveRequest {
            target: name.clone(),
            force: true,
            ..ReceiveRequest::default()
        };
        // Force needs the newest snapshot to be the common one; clones of newer ones are in the
        // way.
        let result = pool.receive(&stream[..], &request, &mut |_| {});
        let result = match result {
            Err(e) if e.is(Errno::NODEV) || e.is(Errno::NOENT) || e.is(Errno::BUSY) => {
                Err(Error::refused(Errno::INVAL, e.to_string()))
            }
            other => other,
        };
        let what = format!("receive {from}..{snap} {name}");
        if !self.tried("receive more", what, result)? {
            return Ok(());
        }
        let (Some(key), Some(object)) = (
            self.datasets.get(&of).map(|d| d.key),
            self.datasets.get(&name).map(|d| d.object),
        ) else {
            return Ok(());
        };
        for (other, dataset) in &mut self.datasets {
            if dataset.object == object {
                dataset.key = key;
            }
            if *other == name {
                dataset.snapshots.push(snap.clone());
                dataset.source = Some((of.clone(), snap.clone(), snap.clone()));
            }
        }
        // Every new root, and every root with a new key, accepts its key again.
        for name in self.datasets.keys() {
            let root = Self::root_of(pool, name)?;
            let loaded = pool.dsl().encryption(&root)?.is_some_and(|i| i.loaded);
            if !loaded {
                self.load(pool, &root)?;
            }
        }
        Ok(())
    }

    fn load(&self, pool: &Arc<Pool>, root: &str) -> Result<()> {
        let key = self
            .datasets
            .get(root)
            .ok_or_else(|| wrong(format!("root {root} is no dataset of the model")))?
            .key;
        pool.load_key(root, &key.material())
            .map_err(|e| wrong(format!("{root} does not take its key: {e}")))
    }

    /// Every dataset has a root whose key is the one that it is wrapped with.
    fn compare(&self, pool: &Arc<Pool>) -> Result<()> {
        for (name, dataset) in &self.datasets {
            let root = Self::root_of(pool, name)?;
            if Self::root_of(pool, &root)? != root {
                return Err(wrong(format!("{name} has root {root}, which is none")));
            }
            let key = self.datasets.get(&root).map(|d| d.key);
            if key != Some(dataset.key) {
                return Err(wrong(format!(
                    "{name} is wrapped with {:?}, its root {root} has {key:?}",
                    dataset.key
                )));
            }
            for (other, second) in &self.datasets {
                if second.object == dataset.object && Self::root_of(pool, other)? != root {
                    return Err(wrong(format!("{name} and {other} share a key object")));
                }
            }
        }
        Ok(())
    }

    /// After an import: each root accepts its key and no other; the file of each dataset is read.
    ///
    /// # Errors
    /// A sentence with what was done, if it is not so.
    pub fn check_reopened(&self, pool: &Arc<Pool>) -> Result<()> {
        self.compare(pool)
            .and_then(|()| self.open_all(pool))
            .map_err(|e| self.story(&e))
    }

    fn open_all(&self, pool: &Arc<Pool>) -> Result<()> {
        for name in self.datasets.keys() {
            if Self::root_of(pool, name)? != *name {
                continue;
            }
            let other = Key {
                number: u64::MAX,
                format: KeyFormat::Raw,
            };
            if pool.load_key(name, &other.material()).is_ok() {
                return Err(wrong(format!("{name} takes any key")));
            }
            self.load(pool, name)?;
        }
        for (name, dataset) in &self.datasets {
            let read = || -> Result<Vec<u8>> {
                let fs = pool.file_system(name)?;
                let znode = fs.resolve(&Credentials::root(), b"f")?;
                let mut have = vec![0; 3000];
                fs.read(&znode, 0, &mut have)?;
                Ok(have)
            };
            let have = read().map_err(|e| wrong(format!("{name} cannot be read: {e}")))?;
            if have != bytes(dataset.file) {
                return Err(wrong(format!("{name} has other bytes")));
            }
        }
        Ok(())
    }
}

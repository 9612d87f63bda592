//! Random administration against a model: write, snapshot, clone, promote, rename, roll back,
//! destroy.
//!
//! ```text
//!   step ──► pool   what is asked of it, and whether it must refuse
//!        └─► Model  datasets → files (seed of the bytes), snapshots oldest first, origin
//! ```
//! After each step the accounting must equal a full recount, and the datasets those of the model.
//! The recount ([`zuse_dsl::check_accounting`]) covers used and its parts, referenced, unique,
//! compressed and logical bytes, and deadlists. Sometimes every byte is compared.

mod mixture;

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{
    Credentials, DestroyOptions, Errno, ListedKinds, NewerSnapshots, Pool, Recursion, Result,
};
use zuse_base::{Entropy, Error, SeededPrng};

/// Files by number.
type Files = BTreeMap<u64, Content>;

/// The origin of a file's bytes: the number of the file to which they were written, and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    number: u64,
    seed: u64,
}

#[derive(Clone, Debug, Default)]
struct Head {
    files: Files,
    /// Name and content, oldest first.
    snapshots: Vec<(String, Files)>,
    /// Dataset and snapshot that it is a clone of.
    origin: Option<(String, String)>,
    /// It is encrypted.
    sealed: bool,
    /// It came in a stream, a raw one or not, and was not promoted since.
    received: Option<bool>,
}

/// The result of a workload, from which it can be continued.
#[derive(Clone, Debug, Default)]
pub struct Administered {
    heads: BTreeMap<String, Head>,
    names: u64,
    /// The pool has a checkpoint of this state.
    kept: Option<Box<Administered>>,
}

/// A pool in use, with its model. The model gets a change before the pool does, because a change
/// without an answer may be on disk.
pub struct Administration<'a> {
    pool: &'a Arc<Pool>,
    top: String,
    prng: SeededPrng,
    heads: BTreeMap<String, Head>,
    /// For names that are never used twice.
    names: u64,
    /// See [`Administered`].
    kept: Option<Box<Administered>>,
    /// Everything that this simulation can do is done, not administration alone.
    mixed: bool,
    /// The states since the last one that is on disk for certain, and that one.
    trail: Vec<Administered>,
    /// The changes so far, for messages.
    done: Vec<String>,
}

/// Bytes of a file.
fn bytes(Content { number, seed }: Content) -> Vec<u8> {
    let mut out = vec![0; (number * 37_717 % 150_000) as usize + 1];
    // Half of it compresses.
    let noise = out.len() / 2;
    SeededPrng::new(seed).fill(&mut out[..noise]);
    out
}

fn wrong(what: String) -> Error {
    Error::corrupt("the workload", what)
}

impl<'a> Administration<'a> {
    /// A workload below the pool's own dataset, which has no children yet.
    pub fn new(pool: &'a Arc<Pool>, seed: u64) -> Self {
        Self {
            pool,
            top: pool.name(),
            prng: SeededPrng::new(seed),
            heads: BTreeMap::new(),
            names: 0,
            kept: None,
            mixed: false,
            trail: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The same workload with another seed, on a pool that it has used before.
    pub fn of(pool: &'a Arc<Pool>, seed: u64, model: Administered) -> Self {
        Self {
            heads: model.heads,
            names: model.names,
            kept: model.kept,
            ..Self::new(pool, seed)
        }
    }

    /// The present content of the pool, for [`Self::of`].
    pub fn into_model(self) -> Administered {
        self.model()
    }

    fn model(&self) -> Administered {
        Administered {
            heads: self.heads.clone(),
            names: self.names,
            kept: self.kept.clone(),
        }
    }

    /// Runs some steps, and checks the accounting after each.
    ///
    /// # Errors
    /// A sentence with the last changes, if the pool differs from the model or the recount.
    pub fn run(&mut self, steps: u64) -> Result<()> {
        self.run_with(steps, &mut |_| Ok(()))
    }

    /// As [`Self::run`], with a further check after each step.
    ///
    /// # Errors
    /// As [`Self::run`], and those of `more`.
    pub fn run_with(
        &mut self,
        steps: u64,
        more: &mut dyn FnMut(&Arc<Pool>) -> Result<()>,
    ) -> Result<()> {
        for step in 1..=steps {
            let result = self
                .step()
                .and_then(|()| self.check(step % 16 == 0 || step == steps))
                .and_then(|()| more(self.pool));
            if let Err(e) = result {
                let from = self.done.len().saturating_sub(8);
                return Err(wrong(format!(
                    "step {step}: {e}; done: {:?}",
                    &self.done[from..]
                )));
            }
        }
        Ok(())
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    fn a_head(&self) -> Option<String> {
        let names: Vec<&String> = self.heads.keys().collect();
        self.prng.pick(&names).map(|n| (*n).clone())
    }

    /// A dataset and the place of one of its snapshots.
    fn a_snapshot(&self) -> Option<(String, usize)> {
        let all: Vec<(&String, usize)> = self
            .heads
            .iter()
            .flat_map(|(name, head)| (0..head.snapshots.len()).map(move |i| (name, i)))
            .collect();
        self.prng.pick(&all).map(|(n, i)| ((*n).clone(), *i))
    }

    fn clones_of(&self, dataset: &str, snapshot: &str) -> bool {
        let of = |h: &Head| {
            h.origin
                .as_ref()
                .is_some_and(|(d, s)| d == dataset && s == snapshot)
        };
        self.heads.values().any(of)
    }

    fn head(&mut self, name: &str) -> &mut Head {
        self.heads.entry(name.to_owned()).or_default()
    }

    /// Checks that the pool refused or not, as it must.
    fn expect(&self, result: Result<()>, refused: Option<Errno>) -> Result<()> {
        match (result, refused) {
            (Err(e), Some(errno)) if e.is(errno) => Ok(()),
            (Ok(()), Some(errno)) => Err(wrong(format!("not refused with {errno:?}"))),
            (result, _) => result,
        }
    }

    fn step(&mut self) -> Result<()> {
        if self.heads.len() < 2 {
            return self.create();
        }
        if self.mixed && self.prng.chance(1, 2) {
            return self.mixed_step();
        }
        match self.prng.below(20) {
            0 if self.heads.len() < 9 => self.create(),
            0..=5 => self.write(),
            6..=9 => self.snapshot(),
            10..=11 if self.heads.len() < 9 => self.clone_one(),
            10..=12 => self.promote(),
            13 => self.rename_dataset(),
            14 => self.rename_snapshot(),
            15 => self.roll_back(),
            16..=18 => self.destroy_snapshot(),
            _ => self.destroy_head(),
        }
    }

    fn create(&mut self) -> Result<()> {
        let parent = self
            .a_head()
            .filter(|n| n.matches('/').count() < 3 && !self.heads[n].sealed)
            .filter(|_| self.prng.chance(1, 2));
        let parent = parent.unwrap_or_else(|| self.top.clone());
        let name = format!("{parent}/{}", self.fresh("d"));
        self.done.push(format!("create {name}"));
        self.heads.insert(name.clone(), Head::default());
        let properties = self.properties();
        self.pool.create_filesystem(&name, &properties, (0, 0))
    }

    fn write(&mut self) -> Result<()> {
        let Some(name) = self.a_head() else {
            return Ok(());
        };
        self.done.push(format!("write {name}"));
        let root = Credentials::root();
        let fs = self.pool.file_system(&name)?;
        let dir = fs.root()?;
        for _ in 0..=self.prng.below(3) {
            let (number, seed) = (self.prng.below(8), self.seed());
            let file = format!("f{number}");
            let there = self.head(&name).files.contains_key(&number);
            if there && self.prng.chance(1, 4) {
                fs.unlink(&root, &dir, file.as_bytes())?;
                self.head(&name).files.remove(&number);
                continue;
            }
            let znode = if there {
                fs.resolve(&root, file.as_bytes())?
            } else {
                fs.create(&root, &dir, file.as_bytes(), 0o644)?
            };
            let content = Content { number, seed };
            self.overwrite(&fs, &znode, content)?;
            self.head(&name).files.insert(number, content);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        let Some(name) = self.a_head() else {
            return Ok(());
        };
        let snap = self.fresh("s");
        self.done.push(format!("snapshot {name}@{snap}"));
        let full = format!("{name}@{snap}");
        let head = self.head(&name);
        let files = head.files.clone();
        head.snapshots.push((snap, files));
        self.pool.snapshot(&[full], Recursion::One, &[])
    }

    fn clone_one(&mut self) -> Result<()> {
        let Some((from, at)) = self.a_snapshot() else {
            return self.snapshot();
        };
        let (snap, files) = self.head(&from).snapshots[at].clone();
        let sealed = self.head(&from).sealed;
        let own = self.fresh("c");
        let name = format!("{}/{own}", self.top);
        self.done.push(format!("clone {from}@{snap} {name}"));
        let full = format!("{from}@{snap}");
        let head = Head {
            files,
            snapshots: Vec::new(),
            origin: Some((from, snap)),
            sealed,
            received: None,
        };
        self.heads.insert(name.clone(), head);
        self.pool.clone_snapshot(&full, &name, &[])
    }

    fn promote(&mut self) -> Result<()> {
        let Some(name) = self.a_head() else {
            return Ok(());
        };
        self.done.push(format!("promote {name}"));
        let Some((from, snap)) = self.head(&name).origin.clone() else {
            return self.expect(self.pool.promote(&name), Some(Errno::INVAL));
        };
        let other = self.head(&from);
        let upto = other
            .snapshots
            .iter()
            .position(|(s, _)| *s == snap)
            .map_or(0, |i| i + 1);
        let moved: Vec<_> = other.snapshots.drain(..upto).collect();
        let above = other.origin.replace((name.clone(), snap));
        for head in self.heads.values_mut() {
            if let Some((dataset, s)) = &mut head.origin
                && *dataset == from
                && moved.iter().any(|(m, _)| m == s)
            {
                dataset.clone_from(&name);
            }
        }
        self.head(&from).received = None;
        let head = self.head(&name);
        head.received = None;
        head.snapshots.splice(0..0, moved);
        head.origin = above;
        self.pool.promote(&name)
    }

    fn rename_dataset(&mut self) -> Result<()> {
        // One that is encrypted cannot leave its encryption root.
        let Some(from) = self.a_head().filter(|n| !self.heads[n].sealed) else {
            return Ok(());
        };
        let own = self.fresh("r");
        let to = format!("{}/{own}", self.top);
        self.done.push(format!("rename {from} {to}"));
        let below = format!("{from}/");
        let new = |name: &str| match name.strip_prefix(&below) {
            Some(rest) => format!("{to}/{rest}"),
            None if name == from => to.clone(),
            None => name.to_owned(),
        };
        let old = std::mem::take(&mut self.heads);
        for (name, mut head) in old {
            head.origin = head.origin.map(|(dataset, snap)| (new(&dataset), snap));
            self.heads.insert(new(&name), head);
        }
        self.pool.rename(&from, &to, Recursion::One)
    }

    fn rename_snapshot(&mut self) -> Result<()> {
        let Some((name, at)) = self.a_snapshot() else {
            return self.snapshot();
        };
        let (old, new) = (self.head(&name).snapshots[at].0.clone(), self.fresh("n"));
        self.done.push(format!("rename {name}@{old} @{new}"));
        let (from, to) = (format!("{name}@{old}"), format!("{name}@{new}"));
        for head in self.heads.values_mut() {
            if let Some((dataset, snap)) = &mut head.origin
                && *dataset == name
                && *snap == old
            {
                snap.clone_from(&new);
            }
        }
        self.head(&name).snapshots[at].0 = new;
        self.pool.rename(&from, &to, Recursion::One)
    }

    fn roll_back(&mut self) -> Result<()> {
        let Some((name, at)) = self.a_snapshot() else {
            return self.snapshot();
        };
        let all = self.head(&name).snapshots.clone();
        let (snap, files) = all[at].clone();
        let newer = &all[at + 1..];
        let cloned = newer.iter().any(|(s, _)| self.clones_of(&name, s));
        let full = format!("{name}@{snap}");
        self.done.push(format!("rollback -r {full}"));
        if !newer.is_empty() {
            self.expect(
                self.pool.rollback(&full, NewerSnapshots::Refuse),
                Some(Errno::EXIST),
            )?;
        }
        if cloned {
            return self.expect(
                self.pool.rollback(&full, NewerSnapshots::Destroy),
                Some(Errno::EXIST),
            );
        }
        let head = self.head(&name);
        head.snapshots.truncate(at + 1);
        head.files = files;
        self.pool.rollback(&full, NewerSnapshots::Destroy)
    }

    fn destroy_snapshot(&mut self) -> Result<()> {
        let Some((name, at)) = self.a_snapshot() else {
            return self.snapshot();
        };
        let snap = self.head(&name).snapshots[at].0.clone();
        self.done.push(format!("destroy {name}@{snap}"));
        let refused = self.clones_of(&name, &snap).then_some(Errno::EXIST);
        if refused.is_none() {
            self.head(&name).snapshots.remove(at);
        }
        let result = self
            .pool
            .destroy_snapshots(&[format!("{name}@{snap}")], DestroyOptions::ONE);
        self.expect(result, refused)
    }

    fn destroy_head(&mut self) -> Result<()> {
        let Some(name) = self.a_head() else {
            return Ok(());
        };
        self.done.push(format!("destroy {name}"));
        let below = format!("{name}/");
        let refused = if self.heads.keys().any(|n| n.starts_with(&below)) {
            Some(Errno::EXIST)
        } else if self.head(&name).snapshots.is_empty() {
            None
        } else {
            Some(Errno::BUSY)
        };
        if refused.is_none() {
            self.heads.remove(&name);
        }
        let result = self.pool.destroy_dataset(&name, DestroyOptions::ONE);
        self.expect(result, refused)
    }

    /// Compares the pool with the model, and its accounting with a recount.
    fn check(&mut self, content: bool) -> Result<()> {
        self.pool.sync()?;
        if self.mixed {
            self.trail = vec![self.model()];
        }
        self.agree(content)
    }

    fn agree(&self, content: bool) -> Result<()> {
        if let Some(flaw) = zuse_dsl::check_accounting(self.pool.dsl()).first() {
            return Err(wrong(format!("accounting: {flaw}")));
        }
        let mut expected = vec![self.top.clone()];
        for (name, head) in &self.heads {
            expected.push(name.clone());
            expected.extend(head.snapshots.iter().map(|(s, _)| format!("{name}@{s}")));
            let origin = head.origin.as_ref().map(|(d, s)| format!("{d}@{s}"));
            let stat = self.pool.dataset(name)?.stat()?;
            if stat.origin != origin {
                return Err(wrong(format!(
                    "{name} comes from {:?}, not {origin:?}",
                    stat.origin
                )));
            }
        }
        let mut found: Vec<String> = self
            .pool
            .list(&self.top, None, ListedKinds::WITH_SNAPSHOTS)?
            .into_iter()
            .map(|l| l.name)
            .collect();
        expected.sort();
        found.sort();
        if self.mixed {
            found.retain(|name| expected.contains(name) || !self.is_partial(name));
        }
        if found != expected {
            return Err(wrong(format!("there is {found:?}, not {expected:?}")));
        }
        if content {
            for (name, head) in &self.heads {
                self.compare(name, &head.files)?;
                for (snap, files) in &head.snapshots {
                    self.compare(&format!("{name}@{snap}"), files)?;
                }
            }
        }
        Ok(())
    }

    fn compare(&self, name: &str, files: &Files) -> Result<()> {
        let fs = self.pool.file_system(name)?;
        let root = Credentials::root();
        for number in 0..8 {
            let found = fs.resolve(&root, format!("f{number}").as_bytes());
            let Some(content) = files.get(&number) else {
                if !found.as_ref().is_err_and(|e| e.is(Errno::NOENT)) {
                    return Err(wrong(format!("{name}: f{number} should not be there")));
                }
                continue;
            };
            let znode = found?;
            let expected = bytes(*content);
            let mut read = vec![0; znode.size() as usize];
            let n = fs.read(&znode, 0, &mut read)?;
            if n != read.len() || read != expected {
                return Err(wrong(format!("{name}: f{number} has other bytes")));
            }
        }
        Ok(())
    }
}

//! Random quotas and reservations, and operations that move space under them, against a model. It
//! predicts used and available space, and refusals.
//!
//! ```text
//!   facts of the pool (checked by the recount)   data D, snapshots S, unique U, referenced R of each dataset; room of the top
//!   model   REFRSRV = max(0, refreservation − U)          used = D + S + CHILD + REFRSRV
//!           CHILD   = Σ max(used, reservation) of children
//!           room    = min(room above + max(0, reservation − used), quota − used)
//!           available = min(room + REFRSRV, refquota − R)
//! ```
//! Clones, promotions, renames and rollbacks move space between datasets. The space must fit at its
//! destination:
//!
//! ```text
//!   rename     max(used, reservation) below the new parent, up to the ancestor that both places have
//!   promote    Σ written of the snapshots that change hands, the same way; not against the clone's own quota
//!   rollback   referenced of the snapshot ≤ refquota, min(U, refreservation) ≤ room
//! ```
//! A reservation of a directory above may keep space free. The model does not say whether that
//! space counts: either answer is accepted.
//!
//! Numbers of filesystems and snapshots are limited too. A dataset counts what is below it, and its
//! own snapshots, from when a limit is set on it or above it. A dataset made after the pool's first
//! limit counts too. A check continues upward as long as directories have such a count:
//!
//! ```text
//!   create, clone   filesystems below the parent + 1 ≤ filesystem_limit
//!   snapshot        snapshots here and below + 1 ≤ snapshot_limit
//!   rename          all that comes along, below the ancestor that both places have
//!   promote         the snapshots that change hands, the same way, the clone's own limit too
//! ```
//!
//! A change that the model has no room for must be refused with the errno of the format notes
//! (chapter 06b). Every other change must succeed.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Credentials, DestroyOptions, Errno, NewerSnapshots, Pool, Recursion, Result, Stat};
use zuse_base::{Entropy, Error, SeededPrng};
use zuse_dsl::property::{SetAs, Value};
use zuse_zpl::WriteOptions;

/// Bytes beyond a quota that one txg may bring: what was admitted when the quota was not yet
/// reached.
const BEYOND: u64 = 2 << 20;
/// Files of a dataset, by number.
const FILES: u64 = 6;
const NAMES: [&str; 4] = ["quota", "reservation", "refquota", "refreservation"];

/// What a dataset was limited to; 0 for nothing.
#[derive(Clone, Debug, Default)]
struct Limited {
    /// In the order of [`NAMES`].
    set: [u64; 4],
    /// Oldest first.
    snapshots: Vec<String>,
    /// Dataset and snapshot that it is a clone of.
    origin: Option<(String, String)>,
    /// It was given snapshots by a promotion, which its own quota does not stop.
    promoted: bool,
    /// Most filesystems below it, and most snapshots; `None` for any number.
    most: [Option<u64>; 2],
    /// It counts them.
    counted: bool,
}

/// The required result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Fits,
    Refused(Errno),
    /// Either.
    Open(Errno),
    /// Refused with one of the two.
    Either(Errno, Errno),
}

impl Expected {
    /// The same if a limit of numbers is exceeded too, which is checked last.
    fn and_number(self, over: bool) -> Self {
        match self {
            _ if !over => self,
            Self::Fits => Self::Refused(Errno::DQUOT),
            Self::Open(errno) => Self::Either(errno, Errno::DQUOT),
            refused => refused,
        }
    }
}

/// The model's figures of a dataset.
struct Figures {
    stat: Stat,
    used: u64,
    reserve: u64,
    children: u64,
    room: u64,
    available: u64,
}

/// A pool in use, with its model.
pub struct Limits<'a> {
    pool: &'a Arc<Pool>,
    top: String,
    prng: SeededPrng,
    datasets: BTreeMap<String, Limited>,
    serial: u64,
    /// A limit of numbers was set at some time: what is made from now on counts.
    counting: bool,
    done: Vec<String>,
    /// Changes that were correctly refused.
    refused: u64,
    /// How often each kind of change was done, and refused.
    kinds: BTreeMap<String, [u64; 2]>,
}

fn wrong(what: String) -> Error {
    Error::corrupt("the workload", what)
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(above, _)| above)
}

impl<'a> Limits<'a> {
    /// A workload below the pool's own dataset, which has no children yet.
    pub fn new(pool: &'a Arc<Pool>, seed: u64) -> Self {
        Self {
            pool,
            top: pool.name(),
            prng: SeededPrng::new(seed),
            datasets: BTreeMap::new(),
            serial: 0,
            counting: false,
            done: Vec::new(),
            refused: 0,
            kinds: BTreeMap::new(),
        }
    }

    /// Runs some steps, comparing after each; returns how many were refused.
    ///
    /// # Errors
    /// A sentence with the last changes, if the pool differs from the model or the recount.
    pub fn run(&mut self, steps: u64) -> Result<u64> {
        for step in 1..=steps {
            if let Err(e) = self.step().and_then(|()| self.check().map(drop)) {
                let from = self.done.len().saturating_sub(10);
                let done = &self.done[from..];
                return Err(wrong(format!("step {step}: {e}; done: {done:?}")));
            }
        }
        Ok(self.refused)
    }

    /// How often each kind of change was done, and refused.
    pub fn kinds(&self) -> &BTreeMap<String, [u64; 2]> {
        &self.kinds
    }

    fn any(&self) -> Option<String> {
        let names: Vec<&String> = self.datasets.keys().collect();
        self.prng.pick(&names).map(|n| (*n).clone())
    }

    fn step(&mut self) -> Result<()> {
        let Some(name) = self.any().filter(|_| self.datasets.len() >= 2) else {
            return self.create();
        };
        match self.prng.below(30) {
            20..=21 if self.datasets.len() < 9 => self.clone_one(&name),
            20..=23 => self.promote(),
            24..=25 => self.rename(&name),
            26..=27 => self.roll_back(&name),
            0..=1 if self.datasets.len() < 7 => self.create(),
            0..=7 => self.write(&name),
            8..=9 => self.unlink(&name),
            10..=11 => self.snapshot(&name),
            12 => self.destroy(&name),
            28..=29 => self.limit_number(&name),
            _ => self.limit(&name),
        }
    }

    fn create(&mut self) -> Result<()> {
        let above = self
            .any()
            .filter(|n| n.matches('/').count() < 3 && self.prng.chance(2, 3));
        self.serial += 1;
        let name = format!("{}/d{}", above.unwrap_or(self.top.clone()), self.serial);
        self.done.push(format!("create {name}"));
        let figures = self.check()?;
        let full = self.full(&figures, parent(&name), false);
        let over = self.over(parent(&name), "", 0, 1);
        let made = self.pool.create_filesystem(&name, &[], (0, 0)).map(drop);
        // A new dataset is created by a sync task, which the quota above does not stop.
        if made.as_ref().is_err_and(|e| full && e.is(Errno::DQUOT)) {
            return Ok(());
        }
        if self.expect_result(made, over.then_some(Errno::DQUOT))? {
            let limited = Limited {
                counted: self.counting,
                ..Limited::default()
            };
            self.datasets.insert(name, limited);
        }
        Ok(())
    }

    /// Filesystems below a dataset, snapshots there and below.
    fn numbers(&self, name: &str) -> [u64; 2] {
        let below = format!("{name}/");
        let inside = self.datasets.iter().filter(|(n, _)| n.starts_with(&below));
        let (mut filesystems, mut snapshots) = (0, 0);
        for (_, limited) in inside {
            filesystems += 1;
            snapshots += limited.snapshots.len() as u64;
        }
        let own = self.datasets.get(name).map_or(0, |d| d.snapshots.len());
        [filesystems, snapshots + own as u64]
    }

    /// Whether `more` filesystems (0) or snapshots (1) are too many for a dataset or one above it,
    /// up to where `from` is or is below.
    fn over(&self, name: &str, from: &str, which: usize, more: u64) -> bool {
        let mut at = name;
        while let Some(limited) = self.datasets.get(at).filter(|d| d.counted) {
            if from == at || from.starts_with(&format!("{at}/")) {
                return false;
            }
            if limited.most[which].is_some_and(|most| self.numbers(at)[which] + more > most) {
                return true;
            }
            at = parent(at);
        }
        false
    }

    fn limit_number(&mut self, name: &str) -> Result<()> {
        let which = self.prng.below(2) as usize;
        let most = match self.prng.below(3) {
            0 => None,
            _ => Some(self.numbers(name)[which] + self.prng.below(4)),
        };
        self.limit_number_to(name, which, most)
    }

    fn limit_number_to(&mut self, name: &str, which: usize, most: Option<u64>) -> Result<()> {
        let property = ["filesystem_limit", "snapshot_limit"][which];
        self.done.push(format!("set {property}={most:?} {name}"));
        // A limit below the present number is allowed.
        let value = Value::Number(most.unwrap_or(u64::MAX));
        let set = [(property.to_owned(), value)];
        let result = self.pool.dsl().set_properties(name, &set, SetAs::Local);
        self.expect_result(result, None)?;
        self.counting = true;
        let below = format!("{name}/");
        for (n, limited) in &mut self.datasets {
            limited.counted |= n == name || n.starts_with(&below);
        }
        if let Some(limited) = self.datasets.get_mut(name) {
            limited.most[which] = most;
        }
        Ok(())
    }

    /// Whether a quota of a dataset or above it is reached, or its reference quota.
    fn full(&self, figures: &BTreeMap<String, Figures>, name: &str, refers: bool) -> bool {
        let mut at = name;
        while let (Some(limited), Some(s)) = (self.datasets.get(at), figures.get(at)) {
            if limited.set[0] != 0 && s.used >= limited.set[0] {
                return true;
            }
            at = parent(at);
        }
        let refquota = self.datasets.get(name).map_or(0, |d| d.set[2]);
        let referenced = figures.get(name).map_or(0, |s| s.stat.referenced);
        refers && refquota != 0 && referenced >= refquota
    }

    /// Checks that a change was done or refused as the model says.
    fn expect_result(&mut self, result: Result<()>, refused: Option<Errno>) -> Result<bool> {
        let last = self.done.last().and_then(|d| d.split(' ').next());
        let kind = self.kinds.entry(last.unwrap_or("").to_owned()).or_default();
        kind[usize::from(result.is_err())] += 1;
        match (result, refused) {
            (Err(e), Some(errno)) if e.is(errno) => {
                self.refused += 1;
                Ok(false)
            }
            (Ok(()), None) => Ok(true),
            (Ok(()), Some(errno)) => Err(wrong(format!("not refused with {errno:?}"))),
            (Err(e), None) => Err(wrong(format!("refused: {e}"))),
            (Err(e), Some(errno)) => Err(wrong(format!("{e} instead of {errno:?}"))),
        }
    }

    fn write(&mut self, name: &str) -> Result<()> {
        let figures = self.check()?;
        let full = self.full(&figures, name, true);
        let (number, blocks) = (self.prng.below(FILES), 1 + self.prng.below(10));
        self.done
            .push(format!("write {blocks} blocks to {name}, full: {full}"));
        let mut bytes = vec![0; (blocks << 17) as usize];
        self.prng.fill(&mut bytes);
        let put = || -> Result<()> {
            let (fs, root) = (self.pool.file_system(name)?, Credentials::root());
            let file = format!("f{number}");
            let znode = match fs.resolve(&root, file.as_bytes()) {
                Ok(there) => there,
                Err(e) if e.is(Errno::NOENT) => {
                    fs.create(&root, &fs.root()?, file.as_bytes(), 0o644)?
                }
                Err(e) => return Err(e),
            };
            fs.write(&znode, 0, &bytes, WriteOptions::default())
                .map(drop)
        };
        let result = put();
        let stopped = result.as_ref().is_err_and(|e| e.is(Errno::DQUOT)) && !full;
        if stopped {
            // It was begun, and the quota was reached on the way.
            let figures = self.check()?;
            if !self.full(&figures, name, true) {
                return Err(wrong(format!("{name}: refused below every quota")));
            }
            self.refused += 1;
            return Ok(());
        }
        self.expect_result(result, full.then_some(Errno::DQUOT))
            .map(drop)
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        let file = format!("f{}", self.prng.below(FILES));
        self.done.push(format!("unlink {name}:{file}"));
        let (fs, root) = (self.pool.file_system(name)?, Credentials::root());
        match fs.unlink(&root, &fs.root()?, file.as_bytes()) {
            Err(e) if e.is(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    fn snapshot(&mut self, name: &str) -> Result<()> {
        self.serial += 1;
        let snap = format!("s{}", self.serial);
        let figures = self.check()?;
        let Some((mine, limited)) = figures.get(name).zip(self.datasets.get(name)) else {
            return Ok(());
        };
        // Blocks that the refreservation covered belong to the snapshot then, and the reservation
        // needs new space.
        let more = mine.stat.unique.min(limited.set[3]);
        let refused = match more > mine.room {
            _ if self.over(name, "", 1, 1) => Some(Errno::DQUOT),
            true => Some(Errno::NOSPC),
            false => None,
        };
        self.done
            .push(format!("snapshot {name}@{snap}: {refused:?}"));
        let result = self
            .pool
            .snapshot(&[format!("{name}@{snap}")], Recursion::One, &[]);
        if self.expect_result(result, refused)?
            && let Some(limited) = self.datasets.get_mut(name)
        {
            limited.snapshots.push(snap);
        }
        Ok(())
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        let Some(limited) = self.datasets.get_mut(name) else {
            return Ok(());
        };
        if limited.snapshots.is_empty() {
            return Ok(());
        }
        let at = self.prng.below(limited.snapshots.len() as u64) as usize;
        let snap = limited.snapshots[at].clone();
        let origin = Some((name.to_owned(), snap.clone()));
        let cloned = self.datasets.values().any(|d| d.origin == origin);
        let full = format!("{name}@{snap}");
        self.done
            .push(format!("destroy {full}, has a clone: {cloned}"));
        let result = self.pool.destroy_snapshots(&[full], DestroyOptions::ONE);
        if self.expect_result(result, cloned.then_some(Errno::EXIST))?
            && let Some(limited) = self.datasets.get_mut(name)
        {
            limited.snapshots.remove(at);
        }
        Ok(())
    }

    fn clone_one(&mut self, name: &str) -> Result<()> {
        let snap = self.datasets.get(name).map(|d| d.snapshots.clone());
        let Some(snap) = self.prng.pick(&snap.unwrap_or_default()).cloned() else {
            return Ok(());
        };
        let above = self.any().filter(|n| n.matches('/').count() < 3);
        let above = above.unwrap_or(self.top.clone());
        self.serial += 1;
        let clone = format!("{above}/c{}", self.serial);
        self.done.push(format!("clone {name}@{snap} {clone}"));
        let figures = self.check()?;
        let full = self.full(&figures, &above, false);
        let over = self.over(&above, "", 0, 1);
        let done = self
            .pool
            .clone_snapshot(&format!("{name}@{snap}"), &clone, &[]);
        if done.as_ref().is_err_and(|e| full && e.is(Errno::DQUOT)) {
            return Ok(());
        }
        if self.expect_result(done, over.then_some(Errno::DQUOT))? {
            let limited = Limited {
                origin: Some((name.to_owned(), snap)),
                counted: self.counting,
                ..Limited::default()
            };
            self.datasets.insert(clone, limited);
        }
        Ok(())
    }

    /// Whether `bytes` more fit below `to`, if they were below `from` before.
    fn moves(
        &self,
        figures: &BTreeMap<String, Figures>,
        from: &str,
        to: &str,
        bytes: u64,
    ) -> Expected {
        let shared = |at: &str| from == at || from.starts_with(&format!("{at}/"));
        let (mut at, mut grows, mut expected) = (to, bytes, Expected::Fits);
        while let (false, Some(limited), Some(s)) =
            (shared(at), self.datasets.get(at), figures.get(at))
        {
            let [quota, reservation, ..] = limited.set;
            let left = quota.saturating_sub(s.used);
            if quota != 0 && grows > left {
                return Expected::Refused(Errno::NOSPC);
            }
            if quota != 0 && bytes > left {
                expected = Expected::Open(Errno::NOSPC);
            }
            grows = (s.used + grows).max(reservation) - s.used.max(reservation);
            at = parent(at);
        }
        expected
    }

    /// As [`Self::expect_result`], where either answer may be right.
    fn expect_move(&mut self, result: Result<()>, expected: Expected) -> Result<bool> {
        match expected {
            Expected::Fits => self.expect_result(result, None),
            Expected::Refused(errno) => self.expect_result(result, Some(errno)),
            Expected::Either(errno, other) => {
                let is_other = result.as_ref().is_err_and(|e| e.is(other));
                self.expect_result(result, Some(if is_other { other } else { errno }))
            }
            Expected::Open(errno) if result.is_err() => self.expect_result(result, Some(errno)),
            Expected::Open(_) => self.expect_result(result, None),
        }
    }

    fn promote(&mut self) -> Result<()> {
        let clones = self.datasets.iter().filter(|(_, d)| d.origin.is_some());
        let clones: Vec<&String> = clones.map(|(n, _)| n).collect();
        let clone = self.prng.pick(&clones).map(|n| (*n).clone());
        let clone = clone.filter(|_| self.prng.chance(9, 10));
        let Some(name) = clone.or_else(|| self.any()) else {
            return Ok(());
        };
        let name = name.as_str();
        let figures = self.check()?;
        let origin = self.datasets.get(name).and_then(|d| d.origin.clone());
        let Some((old, snap)) = origin else {
            self.done.push(format!("promoting {name}, no clone"));
            let result = self.pool.promote(name);
            return self.expect_result(result, Some(Errno::INVAL)).map(drop);
        };
        let Some(owner) = self.datasets.get(&old).cloned() else {
            return Err(wrong(format!("{old} is not known")));
        };
        let last = owner.snapshots.iter().position(|s| *s == snap);
        let last = last.ok_or_else(|| wrong(format!("{old}@{snap} is not known")))?;
        let (shared, rest) = owner.snapshots.split_at(last + 1);
        let mut bytes = 0;
        for snap in shared {
            bytes += self.pool.dataset(&format!("{old}@{snap}"))?.stat()?.written;
        }
        let mut expected = match parent(name) == parent(&old) {
            true => Expected::Fits,
            false => self.moves(&figures, parent(&old), parent(name), bytes),
        };
        let room = figures.get(name).map_or(0, |s| s.room);
        if expected == Expected::Fits && parent(name) != parent(&old) && bytes > room {
            expected = Expected::Open(Errno::NOSPC);
        }
        let expected = expected.and_number(self.over(name, &old, 1, shared.len() as u64));
        self.done.push(format!(
            "promote {name}, clone of {old}@{snap}, {bytes} bytes: {expected:?}"
        ));
        let result = self.pool.promote(name);
        if !self.expect_move(result, expected)? {
            return Ok(());
        }
        for other in self.datasets.values_mut() {
            if let Some((of, snap)) = &mut other.origin
                && *of == old
                && shared.contains(snap)
            {
                *of = name.to_owned();
            }
        }
        if let Some(mine) = self.datasets.get_mut(name) {
            mine.snapshots.splice(0..0, shared.iter().cloned());
            mine.origin.clone_from(&owner.origin);
            mine.promoted = true;
        }
        if let Some(theirs) = self.datasets.get_mut(&old) {
            theirs.snapshots = rest.to_vec();
            theirs.origin = Some((name.to_owned(), snap));
        }
        Ok(())
    }

    fn rename(&mut self, name: &str) -> Result<()> {
        let below = format!("{name}/");
        let inside = |n: &str| n == name || n.starts_with(&below);
        let above = self.any().filter(|n| n.matches('/').count() < 4);
        let above = above
            .filter(|n| !inside(n) && self.prng.chance(4, 5))
            .unwrap_or(self.top.clone());
        self.serial += 1;
        let new = format!("{above}/r{}", self.serial);
        if above != self.top && self.prng.chance(1, 4) {
            // No room for the moved datasets or snapshots at their new place.
            let which = self.prng.below(2) as usize;
            let most = self.numbers(&above)[which];
            self.limit_number_to(&above, which, Some(most))?;
        }
        let figures = self.check()?;
        let (Some(mine), Some(limited)) = (figures.get(name), self.datasets.get(name)) else {
            return Ok(());
        };
        let bytes = mine.used.max(limited.set[1]);
        let [filesystems, snapshots] = self.numbers(name);
        let over = self.over(&above, parent(name), 0, filesystems + 1)
            || self.over(&above, parent(name), 1, snapshots);
        let expected = self.moves(&figures, parent(name), &above, bytes);
        let expected = expected.and_number(over);
        self.done
            .push(format!("rename {name} {new}, {bytes} bytes: {expected:?}"));
        let result = self.pool.rename(name, &new, Recursion::One);
        if !self.expect_move(result, expected)? {
            return Ok(());
        }
        let moved = |n: &str| match n.strip_prefix(name) {
            Some(rest) if inside(n) => format!("{new}{rest}"),
            _ => n.to_owned(),
        };
        let old = std::mem::take(&mut self.datasets);
        let moves_up = parent(name) != above;
        for (name, mut limited) in old {
            // The moved ones count from now on.
            limited.counted |= self.counting && moves_up && inside(&name);
            if let Some((of, _)) = &mut limited.origin {
                *of = moved(of);
            }
            self.datasets.insert(moved(&name), limited);
        }
        Ok(())
    }

    fn roll_back(&mut self, name: &str) -> Result<()> {
        if self.prng.chance(1, 2) {
            // Smaller than its snapshot first: the quota set below is then too small for a
            // rollback.
            for _ in 0..3 {
                self.unlink(name)?;
            }
            self.pool.sync()?;
            let referenced = self.pool.dataset(name)?.stat()?.referenced;
            self.limit_to(name, 2, referenced + (1 << 17))?;
        }
        let figures = self.check()?;
        let (Some(mine), Some(limited)) = (figures.get(name), self.datasets.get(name)) else {
            return Ok(());
        };
        let Some(snap) = limited.snapshots.last() else {
            return Ok(());
        };
        let snap = format!("{name}@{snap}");
        let [_, _, refquota, refreservation] = limited.set;
        let referenced = self.pool.dataset(&snap)?.stat()?.referenced;
        let refused = match mine.stat.unique.min(refreservation) > mine.room {
            _ if refquota != 0 && refquota < referenced => Some(Errno::DQUOT),
            true => Some(Errno::NOSPC),
            false => None,
        };
        self.done.push(format!("rollback {snap}: {refused:?}"));
        let result = self.pool.rollback(&snap, NewerSnapshots::Refuse);
        self.expect_result(result, refused).map(drop)
    }

    fn limit(&mut self, name: &str) -> Result<()> {
        let which = self.prng.below(4) as usize;
        let value = match self.prng.below(4) {
            0 => 0,
            _ => (1 + self.prng.below(60)) << 17,
        };
        self.limit_to(name, which, value)
    }

    fn limit_to(&mut self, name: &str, which: usize, value: u64) -> Result<()> {
        let figures = self.check()?;
        let (Some(mine), Some(old)) = (figures.get(name), self.datasets.get(name)) else {
            return Ok(());
        };
        let [quota, reservation, refquota, refreservation] = old.set;
        let above = figures
            .get(parent(name))
            .map_or(u64::MAX, |above| above.room);
        let grows = |used: u64, old: u64| used.max(value) - used.max(old).min(used.max(value));
        let fits = match which {
            0 => value == 0 || value >= mine.used && value >= reservation,
            1 => (quota == 0 || value <= quota) && grows(mine.used, reservation) <= above,
            2 => value == 0 || value >= mine.stat.referenced && value >= refreservation,
            _ => {
                (refquota == 0 || value <= refquota)
                    && grows(mine.stat.unique, refreservation) <= mine.room
            }
        };
        let property = NAMES[which];
        self.done
            .push(format!("set {property}={value} {name}, fits: {fits}"));
        let set = [(property.to_owned(), Value::Number(value))];
        let result = self.pool.dsl().set_properties(name, &set, SetAs::Local);
        if self.expect_result(result, (!fits).then_some(Errno::NOSPC))?
            && let Some(limited) = self.datasets.get_mut(name)
        {
            limited.set[which] = value;
        }
        Ok(())
    }

    /// Compares the pool with the model, and its accounting with a recount.
    fn check(&self) -> Result<BTreeMap<String, Figures>> {
        self.pool.sync()?;
        self.pool.sync()?;
        if let Some(flaw) = zuse_dsl::check_accounting(self.pool.dsl()).first() {
            return Err(wrong(format!("accounting: {flaw}")));
        }
        let mut figures = self.uses()?;
        let top = self.pool.dataset(&self.top)?.stat()?;
        let mut rooms = BTreeMap::from([(self.top.clone(), top.available)]);
        for (name, limited) in &self.datasets {
            let Some(s) = figures.get_mut(name) else {
                continue;
            };
            let [quota, reservation, refquota, _] = limited.set;
            let above = rooms.get(parent(name)).copied().unwrap_or(0);
            s.room = above.saturating_add(reservation.saturating_sub(s.used));
            if quota != 0 {
                s.room = s.room.min(quota.saturating_sub(s.used));
            }
            s.available = s.room.saturating_add(s.reserve);
            if refquota != 0 {
                s.available = s.available.min(refquota.saturating_sub(s.stat.referenced));
            }
            rooms.insert(name.clone(), s.room);
            let counts = [s.stat.filesystem_count, s.stat.snapshot_count];
            let numbers = self.numbers(name).map(|n| limited.counted.then_some(n));
            if counts != numbers {
                return Err(wrong(format!(
                    "{name}: filesystems and snapshots counted are {counts:?}, not {numbers:?}"
                )));
            }
            let found = [
                s.stat.used,
                s.stat.used_by_refreservation,
                s.stat.used_by_children,
                s.stat.available,
            ];
            let expected = [s.used, s.reserve, s.children, s.available];
            if found != expected {
                return Err(wrong(format!(
                    "{name}: used, by refreservation, by children, available are {found:?}, not {expected:?}"
                )));
            }
            if quota != 0 && !limited.promoted && s.used > quota + quota / 32 + BEYOND {
                return Err(wrong(format!("{name}: {} used of {quota}", s.used)));
            }
        }
        figures.insert(
            self.top.clone(),
            Figures {
                used: top.used,
                reserve: 0,
                children: top.used_by_children,
                room: top.available,
                available: top.available,
                stat: top,
            },
        );
        Ok(figures)
    }

    /// What each dataset should use, by what its own parts are.
    fn uses(&self) -> Result<BTreeMap<String, Figures>> {
        let mut figures: BTreeMap<String, Figures> = BTreeMap::new();
        // Children come after their parents by name: from the end, all of a dataset's children are
        // known.
        for (name, limited) in self.datasets.iter().rev() {
            let stat = self.pool.dataset(name)?.stat()?;
            let mine = figures.iter().filter(|(n, _)| parent(n) == name);
            let held = mine.map(|(n, s)| {
                let reservation = self.datasets.get(n).map_or(0, |d| d.set[1]);
                s.used.max(reservation)
            });
            let children = held.sum::<u64>();
            let reserve = limited.set[3].saturating_sub(stat.unique);
            let used = stat.used_by_dataset + stat.used_by_snapshots + children + reserve;
            let one = Figures {
                stat,
                used,
                reserve,
                children,
                room: 0,
                available: 0,
            };
            figures.insert(name.clone(), one);
        }
        Ok(figures)
    }
}

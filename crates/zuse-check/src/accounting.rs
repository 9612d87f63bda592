//! The accounting of directories and datasets: their sums, and the links between them.
//!
//! ```text
//!   root ─► directory ─► child map ─► directories
//!               └─ head ─► snapshot ─► snapshot ─► … ─► origin (another directory's)
//! ```
//! All rules are those of chapter 04 of the format notes, §4.3 and §4.5.

use std::collections::{BTreeMap, BTreeSet};

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_format::dsl::{DIR_FLAG_USED_BREAKDOWN, DslDatasetPhys, DslDirPhys, UsedKind};
use zuse_pool::Pool;

use super::deadlists::{self, Against, Dead};
use super::lists::{self, Sums};
use super::{DirFound, Finding, Found, Report};

/// Pools from this version on have deadlists with keys, and lists of clones.
const VERSION_DEADLISTS: u64 = 26;
/// Snapshots list their clones.
const VERSION_CLONES: u64 = 11;
const LIVELIST: &[u8] = b"com.delphix:livelist";
const REMAP: &[u8] = b"com.delphix:remap_deadlist";
/// Nested directories, at most; longer names are impossible.
const DEEPEST: usize = 256;

struct Accounting<'a> {
    pool: &'a Pool,
    report: &'a mut Report,
    dirs: BTreeMap<u64, &'a DirFound>,
    datasets: BTreeMap<u64, &'a Found>,
    met_dirs: BTreeSet<u64>,
    met: BTreeSet<u64>,
    /// Heads of clones by the directory of their origin: as found, and as listed.
    clones: BTreeMap<u64, BTreeSet<u64>>,
    listed: BTreeMap<u64, BTreeSet<u64>>,
    empty: Option<u64>,
    empty_lists: u64,
}

/// Compares the space sums of all directories and datasets.
pub(super) fn check(pool: &Pool, dirs: &[DirFound], datasets: &[Found], report: &mut Report) {
    let mut accounting = Accounting {
        pool,
        report,
        dirs: dirs.iter().map(|d| (d.object, d)).collect(),
        datasets: datasets.iter().map(|d| (d.object, d)).collect(),
        met_dirs: BTreeSet::new(),
        met: BTreeSet::new(),
        clones: BTreeMap::new(),
        listed: BTreeMap::new(),
        empty: None,
        empty_lists: 0,
    };
    if let Err(e) = accounting.run() {
        accounting
            .report
            .problem(Finding::Unreadable, "datasets", e);
    }
}

/// Names and numbers of a ZAP.
fn numbers(pool: &Pool, object: u64) -> Result<Vec<(String, u64)>> {
    let mut all = Vec::new();
    let mut cursor = Zap::open(&pool.mos().dnode(ObjectId(object))?)?.cursor(0);
    while let Some(entry) = cursor.next()? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        all.push((name, entry.value.first().unwrap_or(0)));
    }
    Ok(all)
}

impl<'a> Accounting<'a> {
    fn run(&mut self) -> Result<()> {
        let directory = self.pool.directory()?;
        self.empty = directory.lookup_u64(b"empty_bpobj")?;
        let Some(root) = directory.lookup_u64(b"root_dataset")? else {
            // A pool without datasets.
            return Ok(());
        };
        let name = self.pool.name();
        self.dir(root, 0, &name, 0)?;
        for (object, dir) in &self.dirs {
            if !self.met_dirs.contains(object) {
                let place = format!("directory {object}");
                let what = format!("it names {} as its parent", dir.phys.parent);
                self.report.problem(Finding::DirLost, place, what);
            }
        }
        for object in self.datasets.keys() {
            if !self.met.contains(object) {
                let place = format!("dataset {object}");
                self.report.problem(Finding::DatasetLost, place, "");
            }
        }
        if self.pool.version() >= VERSION_DEADLISTS {
            self.compare_clones();
            self.free_account(root)?;
        }
        let counted = self.pool.features().refcount("com.delphix:empty_bpobj");
        let place = "feature empty_bpobj";
        let found = self.empty_lists;
        self.report
            .differ(Finding::FeatureCount, place, counted, found);
        Ok(())
    }

    fn compare_clones(&mut self) {
        let all: BTreeSet<u64> = self
            .clones
            .keys()
            .chain(self.listed.keys())
            .copied()
            .collect();
        let none = BTreeSet::new();
        for dir in all {
            let found = self.clones.get(&dir).unwrap_or(&none);
            let listed = self.listed.get(&dir).unwrap_or(&none);
            if found != listed {
                let what = format!("it lists {listed:?}, there are {found:?}");
                let place = format!("directory {dir}");
                self.report.problem(Finding::DirClones, place, what);
            }
        }
    }

    fn dir(&mut self, object: u64, parent: u64, name: &str, depth: usize) -> Result<()> {
        let Some(found) = self.dirs.get(&object).copied() else {
            let place = format!("{name}, directory {object}");
            self.report
                .problem(Finding::Unreadable, place, "it is no directory");
            return Ok(());
        };
        let dir = &found.phys;
        if !self.met_dirs.insert(object) || depth > DEEPEST {
            self.report
                .problem(Finding::DirParent, name, "it has two names");
            return Ok(());
        }
        self.report
            .differ(Finding::DirParent, name, dir.parent, parent);
        self.children(object, dir, name, depth)?;
        if dir.clones != 0 {
            let heads = numbers(self.pool, dir.clones)?.into_iter().map(|(_, n)| n);
            self.listed.insert(object, heads.collect());
        }
        if let Some(origin) = self.datasets.get(&dir.origin) {
            let above = origin.phys.dir;
            self.clones
                .entry(above)
                .or_default()
                .insert(dir.head_dataset);
        }
        if dir.head_dataset != 0 {
            self.chain(object, dir, name)?;
        }
        if found.extended {
            self.livelist(object, name)?;
        }
        Ok(())
    }

    fn children(&mut self, object: u64, dir: &DslDirPhys, name: &str, depth: usize) -> Result<()> {
        let (mut used, mut kept) = (0u64, 0u64);
        if dir.child_map != 0 {
            for (child, number) in numbers(self.pool, dir.child_map)? {
                if let Some(found) = self.dirs.get(&number) {
                    let phys = &found.phys;
                    used = used.wrapping_add(phys.used_bytes);
                    kept = kept.wrapping_add(phys.reserved.saturating_sub(phys.used_bytes));
                }
                self.dir(number, object, &format!("{name}/{child}"), depth + 1)?;
            }
        }
        if dir.flags & DIR_FLAG_USED_BREAKDOWN != 0 {
            let parts = dir.used_breakdown;
            let sum = parts.iter().fold(0u64, |a, b| a.wrapping_add(*b));
            let report = &mut *self.report;
            report.differ(Finding::DirUsed, name, dir.used_bytes, sum);
            let says = parts[UsedKind::Child as usize];
            report.differ(Finding::DirChildUsed, name, says, used);
            let says = parts[UsedKind::ChildReservation as usize];
            report.differ(Finding::DirChildReserve, name, says, kept);
        }
        Ok(())
    }

    /// The head of a directory and its snapshots.
    fn chain(&mut self, object: u64, dir: &DslDirPhys, name: &str) -> Result<()> {
        let origin = self
            .datasets
            .get(&dir.origin)
            .map_or(0, |d| d.phys.creation_txg);
        let mut chain: Vec<&'a Found> = Vec::new();
        let mut next = dir.head_dataset;
        while let Some(dataset) = self.datasets.get(&next).copied() {
            // The origin belongs to another directory. A dataset that was met before ends a circle.
            if !chain.is_empty() && next == dir.origin || !self.met.insert(next) {
                break;
            }
            chain.push(dataset);
            next = dataset.phys.prev_snap;
        }
        let Some(head) = chain.first() else {
            let what = format!("its head {} is no dataset", dir.head_dataset);
            self.report.problem(Finding::Unreadable, name, what);
            return Ok(());
        };
        let names = self.names(&head.phys, &chain, name)?;
        let keys = self.chain_txgs(&chain);
        let mut snaps = 0u64;
        let mut younger: Option<Dead> = None;
        for (at, dataset) in chain.iter().enumerate() {
            let place = match (at, names.get(&dataset.object)) {
                (0, _) => name.to_owned(),
                (_, Some(snap)) => format!("{name}@{snap}"),
                _ => format!("{name}, snapshot {}", dataset.object),
            };
            let phys = &dataset.phys;
            self.report
                .differ(Finding::DatasetDir, &place, phys.dir, object);
            self.links(&chain, at, &place)?;
            if let Some(younger) = younger {
                // What only a snapshot has is in the deadlist of the dataset after it.
                let unique = phys.unique_bytes;
                self.report
                    .differ(Finding::Unique, &place, unique, younger.unique);
            }
            let dead = self.deadlist(dataset, &place, (&keys, origin))?;
            snaps = snaps.wrapping_add(dead.ours);
            self.amounts(dataset, &place, dead, at == 0);
            if dataset.extended {
                self.remapped(dataset.object)?;
            }
            younger = Some(dead);
        }
        if dir.flags & DIR_FLAG_USED_BREAKDOWN != 0 {
            self.breakdown(dir, head, name, snaps)?;
        }
        Ok(())
    }

    /// Creation txgs of the datasets before one of a chain, as far as they are keys.
    fn chain_txgs(&self, chain: &[&Found]) -> BTreeSet<u64> {
        let mut keys = BTreeSet::new();
        let mut next = chain.first().map_or(0, |d| d.phys.prev_snap);
        // A damaged chain may be a circle.
        let mut most = self.datasets.len();
        while let Some(dataset) = self.datasets.get(&next).filter(|_| most > 0) {
            keys.insert(dataset.phys.prev_snap_txg);
            next = dataset.phys.prev_snap;
            most -= 1;
        }
        keys
    }

    /// Names of the snapshots of a chain: each has one, and no other names exist.
    fn names(
        &mut self,
        head: &DslDatasetPhys,
        chain: &[&Found],
        name: &str,
    ) -> Result<BTreeMap<u64, String>> {
        let mut names = BTreeMap::new();
        let snapshots: BTreeSet<u64> = chain.iter().skip(1).map(|d| d.object).collect();
        if head.snapnames != 0 {
            for (snap, object) in numbers(self.pool, head.snapnames)? {
                if !snapshots.contains(&object) {
                    let what = format!("'{snap}' leads to object {object}");
                    self.report.problem(Finding::SnapshotName, name, what);
                }
                names.insert(object, snap);
            }
        }
        for dataset in chain.iter().skip(1) {
            if !names.contains_key(&dataset.object) {
                let what = format!("dataset {} has no name", dataset.object);
                self.report.problem(Finding::SnapshotName, name, what);
            }
        }
        Ok(names)
    }

    /// Whether the datasets of a chain point to their neighbours.
    fn links(&mut self, chain: &[&Found], at: usize, place: &str) -> Result<()> {
        let phys = &chain[at].phys;
        let prev = self.datasets.get(&phys.prev_snap).map(|d| d.phys);
        let made = prev.map_or(0, |p| p.creation_txg);
        let report = &mut *self.report;
        if prev.is_some() || phys.prev_snap == 0 {
            report.differ(Finding::PreviousTxg, place, phys.prev_snap_txg, made);
        } else {
            let what = format!("object {} is no dataset", phys.prev_snap);
            report.problem(Finding::PreviousTxg, place, what);
        }
        if at == 0 {
            return Ok(());
        }
        if prev.is_some() && made >= phys.creation_txg {
            let what = format!("made in {}, the one before in {made}", phys.creation_txg);
            report.problem(Finding::SnapshotOrder, place, what);
        }
        let next = chain[at - 1].object;
        report.differ(Finding::NextSnapshot, place, phys.next_snap, next);
        let mut clones = 0;
        // Such pools have no lists of clones.
        if self.pool.version() < VERSION_CLONES {
            let from_here = |(object, d): &(&u64, &&Found)| {
                d.phys.prev_snap == chain[at].object && **object != next
            };
            clones = self.datasets.iter().filter(from_here).count() as u64;
        }
        if phys.next_clones != 0 {
            for (_, clone) in numbers(self.pool, phys.next_clones)? {
                clones += 1;
                let from = self.datasets.get(&clone).map(|d| d.phys.prev_snap);
                if from != Some(chain[at].object) {
                    let what = format!("dataset {clone} descends from {from:?}");
                    self.report.problem(Finding::NextClone, place, what);
                }
            }
        }
        let says = phys.num_children;
        self.report
            .differ(Finding::SnapshotChildren, place, says, clones + 1);
        Ok(())
    }

    fn deadlist(
        &mut self,
        dataset: &Found,
        place: &str,
        (keys, origin): (&BTreeSet<u64>, u64),
    ) -> Result<Dead> {
        let phys = &dataset.phys;
        if phys.deadlist == 0 {
            return Ok(Dead::default());
        }
        let before = self
            .datasets
            .get(&phys.prev_snap)
            .map_or(0, |d| d.phys.prev_snap_txg);
        let against = Against {
            keys: (phys.prev_snap != 0).then_some(keys),
            prev: phys.prev_snap_txg,
            before,
            origin,
            empty: self.empty,
        };
        match deadlists::read(self.pool, place, phys.deadlist, against, self.report) {
            Ok(dead) => {
                self.empty_lists += dead.empty;
                Ok(dead)
            }
            Err(e) => {
                self.report.problem(Finding::Unreadable, place, e);
                Ok(Dead::default())
            }
        }
    }

    /// Checks the sums of a dataset: referenced, freed and unique.
    fn amounts(&mut self, dataset: &Found, place: &str, dead: Dead, is_head: bool) {
        let phys = &dataset.phys;
        let Some(prev) = self.datasets.get(&phys.prev_snap) else {
            return;
        };
        let kept = prev.phys.referenced_bytes.wrapping_sub(dead.total.used);
        let report = &mut *self.report;
        if is_head {
            let unique = phys.referenced_bytes.wrapping_sub(kept);
            report.differ(Finding::Unique, place, phys.unique_bytes, unique);
        }
        if let Some((extent, young, _)) = dataset.space {
            let gave = prev
                .phys
                .referenced_bytes
                .wrapping_sub(extent.used.wrapping_sub(young));
            report.differ(Finding::DeadlistAmount, place, dead.total.used, gave);
        }
    }

    /// Checks the categories of a directory's used space.
    fn breakdown(&mut self, dir: &DslDirPhys, head: &Found, name: &str, snaps: u64) -> Result<()> {
        let parts = dir.used_breakdown;
        if let Some((_, _, own)) = head.space {
            let says = parts[UsedKind::Head as usize];
            self.report.differ(Finding::DirHeadUsed, name, says, own);
        }
        let says = parts[UsedKind::Snap as usize];
        self.report.differ(Finding::DirSnapUsed, name, says, snaps);
        let left = self
            .refreservation(dir)?
            .saturating_sub(head.phys.unique_bytes);
        let says = parts[UsedKind::RefReservation as usize];
        self.report
            .differ(Finding::DirReserveUsed, name, says, left);
        Ok(())
    }

    /// The property: its local value, or the received one.
    fn refreservation(&self, dir: &DslDirPhys) -> Result<u64> {
        if dir.props == 0 {
            return Ok(0);
        }
        let props = Zap::open(&self.pool.mos().dnode(ObjectId(dir.props))?)?;
        if let Some(here) = props.lookup_u64(b"refreservation")? {
            return Ok(here);
        }
        // The mark hides a received value (04a-dsl-props).
        if props.lookup(b"refreservation$inherit")?.is_some() {
            return Ok(0);
        }
        Ok(props.lookup_u64(b"refreservation$recvd")?.unwrap_or(0))
    }

    /// Shared empty lists in a deadlist of remapped blocks.
    fn remapped(&mut self, object: u64) -> Result<()> {
        let table = Zap::open(&self.pool.mos().dnode(ObjectId(object))?)?;
        if let Some(list) = table.lookup_u64(REMAP)? {
            self.note_empty(list)?;
        }
        Ok(())
    }

    fn note_empty(&mut self, list: u64) -> Result<Vec<(u64, u64)>> {
        let (parts, _) = deadlists::parts(self.pool, list)?;
        let empty = parts.iter().filter(|(_, p)| Some(*p) == self.empty);
        self.empty_lists += empty.count() as u64;
        Ok(parts)
    }

    /// The totals of a clone's livelist.
    fn livelist(&mut self, dir: u64, name: &str) -> Result<()> {
        let table = Zap::open(&self.pool.mos().dnode(ObjectId(dir))?)?;
        let Some(list) = table.lookup_u64(LIVELIST)? else {
            return Ok(());
        };
        let (_, says) = deadlists::parts(self.pool, list)?;
        let sum = self.list_sum(list)?;
        if says != sum {
            let what = format!("says {says:?}, its parts {sum:?}");
            self.report.problem(Finding::LivelistSum, name, what);
        }
        Ok(())
    }

    fn list_sum(&mut self, list: u64) -> Result<Sums> {
        let mut sum = Sums::default();
        for (_, part) in self.note_empty(list)? {
            let header = lists::header(self.pool, part)?;
            sum.add(Sums {
                used: header.bytes,
                comp: header.comp,
                uncomp: header.uncomp,
            });
        }
        Ok(sum)
    }

    /// Compares the blocks waiting to be freed with the pool's account of them.
    fn free_account(&mut self, root: u64) -> Result<()> {
        let directory = self.pool.directory()?;
        let Some(object) = directory.lookup_u64(b"free_bpobj")? else {
            return Ok(());
        };
        let header = lists::header(self.pool, object)?;
        let mut waits = Sums {
            used: header.bytes,
            comp: header.comp,
            uncomp: header.uncomp,
        };
        if let Some(object) = directory.lookup_u64(b"bptree_obj")? {
            let bonus = self.pool.mos().dnode(ObjectId(object))?.bonus_vec();
            let words = bonus.as_chunks::<8>().0.iter();
            let words: Vec<u64> = words.map(|w| u64::from_le_bytes(*w)).collect();
            let word = |at: usize| words.get(at).copied().unwrap_or(0);
            waits.add(Sums {
                used: word(2),
                comp: word(3),
                uncomp: word(4),
            });
        }
        if let Some(set) = directory.lookup_u64(b"com.delphix:deleted_clones")? {
            for (_, list) in numbers(self.pool, set)? {
                let sum = self.list_sum(list)?;
                waits.add(sum);
            }
        }
        let Some(children) = self.dirs.get(&root).map(|d| d.phys.child_map) else {
            return Ok(());
        };
        let all = numbers(self.pool, children)?;
        let free = all.iter().find(|(name, _)| name == "$FREE");
        let Some(free) = free.and_then(|(_, object)| self.dirs.get(object)) else {
            return Ok(());
        };
        let says = Sums {
            used: free.phys.used_bytes,
            comp: free.phys.compressed_bytes,
            uncomp: free.phys.uncompressed_bytes,
        };
        if says != waits {
            let what = format!("says {says:?}, {waits:?} wait");
            self.report.problem(Finding::FreeAccount, "$FREE", what);
        }
        Ok(())
    }
}

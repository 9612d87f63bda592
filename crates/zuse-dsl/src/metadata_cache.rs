//! The metadata cache: a cache of decoded metadata for listings and `get`, separate from the block
//! cache.
//!
//! ```text
//!   stored    property ZAP           → decoded entries
//!   resolved  directory              → every property that takes effect there, with where it comes from
//!   roots     root block pointer     → type of the object set, properties that stand inside it
//!   datasets  dataset or snapshot    → its bonus, whether it has extension entries
//!   deadlists deadlist               → what it holds in all
//!   names     directory or snapshot  → the name under which its parent lists it
//! ```
//! File data never evicts anything here. Each table has its own bound. A full table drops the
//! entries that were not used since it was last full.
//!
//! Why an entry is never outdated
//! - `stored` and `resolved` follow the MOS. A sync task that changes properties or moves
//!   directories drops the affected entries, under the configuration lock.
//! - `datasets` and `deadlists` follow the newest state of the MOS. Whatever changes or frees such
//!   an object drops its entry afterwards ([`MetadataCache::forget_object`]). Only listings use
//!   them; a change reads the MOS itself.
//! - `names` are guesses. Their user verifies the name in the parent's ZAP (`Dsl::name_in`).
//! - `roots` is keyed by the address and birth of a block that never changes, so an entry stays
//!   right.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use zuse_base::sync::Mutex;

use zuse_base::Result;
use zuse_format::ObjsetType;
use zuse_format::dsl::DslDatasetPhys;

use crate::property::{Resolved, Stored};
use crate::sizes::Sizes;

/// Entries that one table keeps at most; at least half of them.
const STORED_MAX: usize = 131_072;
const RESOLVED_MAX: usize = 131_072;
const ROOTS_MAX: usize = 262_144;
const NAMES_MAX: usize = 262_144;
pub(crate) const DATASETS_MAX: usize = 262_144;

/// Figures of one table of the metadata cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataCacheStats {
    /// What it keeps.
    pub name: &'static str,
    /// Queries answered from memory.
    pub hits: u64,
    /// Queries that read the MOS or an object set.
    pub misses: u64,
    /// Entries in memory.
    pub entries: u64,
    /// Their size in bytes, approximately.
    pub bytes: u64,
    /// Entries that it may have.
    pub limit: u64,
}

/// A table of two generations. A full young generation becomes the old one. The former old one is
/// dropped, except entries that were used in between.
struct Table<K, V> {
    max: usize,
    hits: u64,
    misses: u64,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq + Copy, V: Clone> Table<K, V> {
    fn new(max: usize) -> Self {
        Self {
            max,
            hits: 0,
            misses: 0,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(v) = self.young.get(key) {
            return Some(v.clone());
        }
        let v = self.old.remove(key)?;
        self.put(*key, v.clone());
        Some(v)
    }

    fn put(&mut self, key: K, value: V) {
        if self.young.len() >= self.max / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn stats(&self, name: &'static str, size: impl Fn(&V) -> usize) -> MetadataCacheStats {
        let all = self.young.values().chain(self.old.values());
        MetadataCacheStats {
            name,
            hits: self.hits,
            misses: self.misses,
            entries: self.len() as u64,
            bytes: all.map(size).sum::<usize>() as u64,
            limit: self.max as u64,
        }
    }
}

/// Facts about the object set behind a root pointer.
pub(crate) struct Root {
    pub kind: ObjsetType,
    /// Numbers by property name: those of the master node, or of a volume.
    pub inside: OnceLock<Arc<Vec<(String, u64)>>>,
}

impl Root {
    /// With only the type known.
    pub fn of(kind: ObjsetType) -> Self {
        Self {
            kind,
            inside: OnceLock::new(),
        }
    }
}

/// The data of a dataset or snapshot object that listings use.
#[derive(Clone, Copy)]
pub(crate) struct Listed {
    pub phys: DslDatasetPhys,
    /// Whether it has extension entries.
    pub extended: bool,
}

/// Key of a root: first words of its address, and its birth.
pub(crate) type RootKey = [u64; 3];

/// The tables.
pub(crate) struct MetadataCache {
    off: AtomicBool,
    stored: Mutex<Table<u64, Stored>>,
    resolved: Mutex<Table<u64, Arc<Resolved>>>,
    roots: Mutex<Table<RootKey, Arc<Root>>>,
    names: Mutex<Table<u64, Arc<str>>>,
    datasets: Mutex<Table<u64, Listed>>,
    deadlists: Mutex<Table<u64, Sizes>>,
    /// Grows with every change: a value read before a change is not kept after it.
    changes: AtomicU64,
}

impl Default for MetadataCache {
    fn default() -> Self {
        Self {
            off: AtomicBool::new(false),
            stored: Mutex::new(Table::new(STORED_MAX)),
            resolved: Mutex::new(Table::new(RESOLVED_MAX)),
            roots: Mutex::new(Table::new(ROOTS_MAX)),
            names: Mutex::new(Table::new(NAMES_MAX)),
            datasets: Mutex::new(Table::new(DATASETS_MAX)),
            deadlists: Mutex::new(Table::new(DATASETS_MAX)),
            changes: AtomicU64::new(0),
        }
    }
}

impl MetadataCache {
    fn get_or<K: Hash + Eq + Copy, V: Clone>(
        &self,
        table: &Mutex<Table<K, V>>,
        key: K,
        load: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        let off = self.off.load(Relaxed);
        {
            let mut table = table.lock();
            if !off && let Some(there) = table.get(&key) {
                table.hits += 1;
                return Ok(there);
            }
            table.misses += 1;
        }
        let before = self.changes.load(Relaxed);
        let made = load()?;
        let mut table = table.lock();
        // A change increments the counter before it locks its table. A change not counted yet will
        // remove this entry itself.
        if !off && self.changes.load(Relaxed) == before {
            table.put(key, made.clone());
        }
        Ok(made)
    }

    pub fn stored(&self, object: u64, load: impl FnOnce() -> Result<Stored>) -> Result<Stored> {
        self.get_or(&self.stored, object, load)
    }

    pub fn resolved(
        &self,
        dir: u64,
        load: impl FnOnce() -> Result<Arc<Resolved>>,
    ) -> Result<Arc<Resolved>> {
        self.get_or(&self.resolved, dir, load)
    }

    pub fn root(
        &self,
        key: RootKey,
        load: impl FnOnce() -> Result<Arc<Root>>,
    ) -> Result<Arc<Root>> {
        self.get_or(&self.roots, key, load)
    }

    /// The data of a dataset or snapshot, for listings.
    pub fn dataset(&self, object: u64, load: impl FnOnce() -> Result<Listed>) -> Result<Listed> {
        self.get_or(&self.datasets, object, load)
    }

    /// The totals of a deadlist, for listing its dataset.
    pub fn deadlist(&self, object: u64, load: impl FnOnce() -> Result<Sizes>) -> Result<Sizes> {
        self.get_or(&self.deadlists, object, load)
    }

    /// The datasets among these that are not in the table.
    pub fn unknown_datasets(&self, objects: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut table = self.datasets.lock();
        let unknown = |o: &u64| table.get(o).is_none();
        objects.into_iter().filter(unknown).collect()
    }

    /// The deadlists among these that are not in the table.
    pub fn unknown_deadlists(&self, objects: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut table = self.deadlists.lock();
        let unknown = |o: &u64| table.get(o).is_none();
        objects.into_iter().filter(unknown).collect()
    }

    /// How often something was changed: see [`Self::note_objects`].
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Remembers objects that were read since the change counter was `before`, unless it has
    /// changed.
    pub fn note_objects(
        &self,
        before: u64,
        datasets: impl IntoIterator<Item = (u64, Listed)>,
        deadlists: impl IntoIterator<Item = (u64, Sizes)>,
    ) {
        if self.is_off() {
            return;
        }
        let (mut phys, mut dead) = (self.datasets.lock(), self.deadlists.lock());
        // As in `get_or`: a change not counted yet removes its entry itself.
        if self.changes() == before {
            datasets.into_iter().for_each(|(o, p)| phys.put(o, p));
            deadlists.into_iter().for_each(|(o, s)| dead.put(o, s));
        }
    }

    /// A dataset or deadlist was changed or freed.
    pub fn forget_object(&self, object: u64) {
        self.changes.fetch_add(1, Relaxed);
        self.datasets.lock().remove(&object);
        self.deadlists.lock().remove(&object);
    }

    /// Facts about an object set, if present; does not count as a query.
    pub fn known_root(&self, key: &RootKey) -> Option<Arc<Root>> {
        self.roots.lock().get(key)
    }

    /// Remembers facts about an object set.
    pub fn note_root(&self, key: RootKey, root: Root) {
        if !self.is_off() {
            self.roots.lock().put(key, Arc::new(root));
        }
    }

    /// Whether it is switched off.
    pub fn is_off(&self) -> bool {
        self.off.load(Relaxed)
    }

    /// The last known name of an object.
    pub fn name(&self, object: u64) -> Option<Arc<str>> {
        let mut names = self.names.lock();
        let found = names.get(&object);
        match found {
            Some(_) => names.hits += 1,
            None => names.misses += 1,
        }
        found
    }

    /// Remembers names of objects.
    pub fn note_names<'a>(&self, names: impl IntoIterator<Item = (u64, &'a str)>) {
        if self.off.load(Relaxed) {
            return;
        }
        let mut table = self.names.lock();
        for (object, name) in names {
            table.put(object, name.into());
        }
    }

    /// A property ZAP changed.
    pub fn forget_stored(&self, object: u64) {
        self.changes.fetch_add(1, Relaxed);
        self.stored.lock().remove(&object);
        self.resolved.lock().clear();
    }

    /// Directories have other parents now.
    pub fn forget_resolved(&self) {
        self.changes.fetch_add(1, Relaxed);
        self.resolved.lock().clear();
    }

    /// The MOS was reverted, so anything read since may be wrong.
    pub fn forget_all(&self) {
        self.changes.fetch_add(1, Relaxed);
        // The others stay: names are verified, and a root's block never changes.
        self.stored.lock().clear();
        self.resolved.lock().clear();
        self.datasets.lock().clear();
        self.deadlists.lock().clear();
    }

    /// Switches it off or on; an inactive cache is empty.
    pub fn set_off(&self, off: bool) {
        self.off.store(off, Relaxed);
        if off {
            self.stored.lock().clear();
            self.resolved.lock().clear();
            self.roots.lock().clear();
            self.names.lock().clear();
            self.datasets.lock().clear();
            self.deadlists.lock().clear();
        }
    }

    /// Figures of each table.
    pub fn stats(&self) -> [MetadataCacheStats; 6] {
        let entry = 96;
        [
            self.stored
                .lock()
                .stats("properties", |s| 64 + s.len() * entry),
            self.resolved
                .lock()
                .stats("effective properties", |r| 64 + r.len() * entry),
            self.roots.lock().stats("object sets", |_| 320),
            self.names.lock().stats("names", |n| 64 + n.len()),
            self.datasets
                .lock()
                .stats("datasets", |_| 64 + size_of::<Listed>()),
            self.deadlists
                .lock()
                .stats("deadlists", |_| 64 + size_of::<Sizes>()),
        ]
    }
}

#[cfg(test)]
mod tests;

//! Dedup tables of a pool that is open for writing: adding and dropping references
//! (`docs/format/04b-dedup-brt-scan.md`, 1.6).
//!
//! ```text
//!   a block is written ─┐                       ┌─ changed in this txg
//!   a pointer is freed ─┴─► claim its key ─► ───┼─ the logs (new form)
//!                                               └─ the stores ─► changed in this txg
//!   end of the txg: `sync` brings what changed into logs or stores, and frees what has no pointer
//! ```
//! # Invariants
//!
//! - One thread at a time works on a key, after claiming it. So content that several threads write
//!   in the same txg is written once.
//! - `changed` is newer than the logs, and the logs are newer than the stores.
//! - A block is freed where its entry is written without references, into a store or a log, and
//!   nowhere else. Until then a new pointer may use it again. A logged entry without blocks means a
//!   deletion from its store.
//! - A reference is dropped only from the block that the pointer leads to, by place and birth.
//!   Other blocks were pruned from the table, and are freed as ordinary ones.
//! - Everything is in syncing context. A power cut leaves the tables of the last uberblock, which
//!   match its pointers.
//!
//! # Locks
//!
//! The state's lock is never held over I/O. A claimed key is: its waiters hold no lock, and its
//! owner waits for no thread that claims keys.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use zuse_base::sync::{Condvar, Mutex, MutexGuard};
use zuse_base::tripwire::{Watched, at};
use zuse_base::{Error, ObjectId, Result, Txg};
use zuse_dmu::Objset;
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::BlockPointer;
use zuse_io::{Candidate, DedupOutcome, DedupTables};
use zuse_vdev::{VdevClass, Vdevs};

use super::log::Logs;
use super::verified::{Unverified, total};
use super::{CHECKSUMS, CLASSES, Entry, Histogram, Key, Shared, damaged, tables, value};
use crate::Pool;

/// Feature: tables of the new form. It counts their directories.
pub(super) const FAST: &str = "com.klarasystems:fast_dedup";
/// Bytes that a new entry takes in a store, for the quota.
const ENTRY_BYTES: u64 = 150;
/// `dedup_table_quota`: limited by the size of the dedup vdevs, if there are any.
const AUTO: u64 = u64::MAX;

/// A logged entry: the class of the store with its older value, and its present value.
#[derive(Clone, Debug, Default)]
pub(super) struct Logged {
    pub class: Option<usize>,
    pub entry: Entry,
}

/// The present state of an entry in a txg.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Class of the store that has it.
    pub class: Option<usize>,
    /// What that store's statistics count for it: nothing if a log has a newer value.
    pub counted: Option<Entry>,
    pub now: Entry,
}

/// One table.
pub(super) struct Live {
    pub name: &'static str,
    pub checksum: u8,
    pub flat: bool,
    /// Its directory, once created; for a table of the old form that of the pool.
    pub root: Option<ObjectId>,
    /// Its stores, by class.
    pub stores: [Option<ObjectId>; CLASSES.len()],
    /// Sums over the entries of each.
    pub statistics: [Histogram; CLASSES.len()],
    pub logs: Option<Logs>,
    /// Sums over the entries of the logs.
    pub logged: Histogram,
    pub changed: BTreeMap<Key, Known>,
}

impl Live {
    pub(super) fn new((name, checksum): (&'static str, u8), flat: bool) -> Self {
        Self {
            name,
            checksum,
            flat,
            root: None,
            stores: Default::default(),
            statistics: Default::default(),
            logs: None,
            logged: Histogram::default(),
            changed: BTreeMap::new(),
        }
    }

    /// The newest value, if newer than the stores.
    pub(super) fn newest(&self, key: &Key) -> Option<Known> {
        if let Some(known) = self.changed.get(key) {
            return Some(known.clone());
        }
        let logged = self.logs.as_ref()?.get(key)?;
        Some(Known {
            class: logged.class,
            counted: None,
            now: logged.entry.clone(),
        })
    }

    /// Deflated bytes saved: datasets are charged for the additional references, but they use no
    /// space.
    fn saved(&self) -> u64 {
        let all = self.statistics.iter().chain([&self.logged]);
        all.fold(0, |sum, h| {
            let (stored, referenced) = h.total();
            sum.saturating_add(referenced.dsize.saturating_sub(stored.dsize))
        })
    }
}

#[derive(Default)]
pub(super) struct State {
    mos: Option<Arc<Objset>>,
    pub tables: BTreeMap<u8, Live>,
}

/// The tables of a pool.
pub(crate) struct Dedup {
    vdevs: Arc<Vdevs>,
    state: Mutex<State>,
    claimed: Mutex<HashSet<(u8, Key)>>,
    released: Condvar,
    /// Blocks that a scan must not skip.
    pub(super) unverified: Mutex<Unverified>,
    /// New tables have the new form.
    fast: AtomicBool,
    quota: AtomicU64,
    /// Size of all tables, with new entries of this txg.
    size: AtomicU64,
    saved: AtomicU64,
}

/// A key that a thread has claimed.
struct Claim<'a> {
    of: &'a Dedup,
    key: (u8, Key),
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.of.claimed.lock().remove(&self.key);
        self.of.released.notify_all();
    }
}

impl Dedup {
    pub fn new(vdevs: Arc<Vdevs>) -> Arc<Self> {
        Arc::new(Self {
            vdevs,
            state: Mutex::default(),
            claimed: Mutex::default(),
            released: Condvar::default(),
            unverified: Mutex::default(),
            fast: AtomicBool::new(false),
            quota: AtomicU64::new(AUTO),
            size: AtomicU64::new(0),
            saved: AtomicU64::new(0),
        })
    }

    pub(super) fn state(&self) -> Watched<'_, MutexGuard<'_, State>> {
        self.vdevs.tripwire().hold(at::DEDUP, self.state.lock())
    }

    /// Bytes saved: the space that the additional references would take as blocks.
    pub fn saved(&self) -> u64 {
        self.saved.load(Relaxed)
    }

    /// Limits the size of the tables: bytes, 0 for no limit, or all ones for the size of the dedup
    /// vdevs.
    pub fn set_quota(&self, quota: u64) {
        self.quota.store(quota, Relaxed);
    }

    /// Reads the tables of a pool that is being opened.
    pub fn load(&self, pool: &Pool) -> Result<()> {
        let mut all = BTreeMap::new();
        for mut table in tables(pool)? {
            let mut live = Live::new((table.name, table.checksum), table.is_flat());
            live.root = Some(ObjectId(table.root));
            live.logs = Logs::load(&mut table.logs);
            if let Some(logs) = &live.logs {
                let entries = logs.both.iter().flat_map(|log| &log.entries);
                for (key, logged) in entries {
                    live.logged
                        .add_entry(pool.io(), key, &logged.entry, live.checksum);
                }
            }
            for store in table.stores {
                live.stores[store.class] = Some(ObjectId(store.object));
                live.statistics[store.class] = store.histogram;
            }
            all.insert(live.checksum, live);
        }
        self.state().tables = all;
        Ok(())
    }

    /// From now on the tables may be changed.
    pub fn attach(&self, pool: &Pool) -> Result<()> {
        self.state().mos = Some(pool.mos().clone());
        self.prepare(pool);
        self.measure(pool)
    }

    /// Call it before a txg is written.
    pub fn prepare(&self, pool: &Pool) {
        let fast = pool.features().is_enabled(FAST);
        self.fast.store(fast, Relaxed);
    }

    /// Computes the size of the tables, and the space they save.
    pub(super) fn measure(&self, pool: &Pool) -> Result<()> {
        let (objects, logs, saved) = {
            let state = self.state();
            let objects: Vec<ObjectId> = (state.tables.values())
                .flat_map(|t| t.stores.iter().flatten().copied())
                .collect();
            let tables = || state.tables.values();
            let logs = tables().filter_map(|t| t.logs.as_ref());
            let logs: u64 = logs.map(Logs::bytes).fold(0, u64::saturating_add);
            let saved = tables().map(Live::saved).fold(0, u64::saturating_add);
            (objects, logs, saved)
        };
        let mut size = logs;
        for object in objects {
            size = size.saturating_add(pool.mos().dnode(object)?.used_bytes());
        }
        self.size.store(size, Relaxed);
        self.saved.store(saved, Relaxed);
        Ok(())
    }

    /// Releases the MOS, which holds the pipeline, which holds this.
    pub fn detach(&self) {
        self.state().mos = None;
    }

    /// Whether there is anything to write. Logged entries need not be flushed now.
    pub fn is_dirty(&self) -> bool {
        self.state().tables.values().any(|t| !t.changed.is_empty())
    }

    fn claim(&self, checksum: u8, key: Key) -> Claim<'_> {
        let key = (checksum, key);
        let mut claimed = self.claimed.lock();
        // Checked again after each wake-up: all keys share one condition.
        while !claimed.insert(key) {
            claimed = self.released.wait(claimed);
        }
        Claim { of: self, key }
    }

    /// The newest value of a key. It does not change while the key is claimed.
    pub(super) fn known(&self, checksum: u8, key: &Key) -> Result<Known> {
        let (mos, stores, flat) = {
            let state = self.state();
            let Some(table) = state.tables.get(&checksum) else {
                return Ok(Known::default());
            };
            if let Some(known) = table.newest(key) {
                return Ok(known);
            }
            let Some(mos) = state.mos.clone() else {
                return Ok(Known::default());
            };
            (mos, table.stores, table.flat)
        };
        for (class, object) in stores.into_iter().enumerate() {
            let Some(object) = object else { continue };
            let place = format!("MOS, object {} (a dedup table)", object.0);
            let raw = match Zap::open(&mos.dnode(object)?)?.lookup_words(&key.words())? {
                None => continue,
                Some(ZapValue::Bytes(raw)) => raw,
                Some(_) => return Err(damaged(&place, "an entry of a dedup table is not bytes")),
            };
            let entry = value(&raw, flat, &place)?;
            return Ok(Known {
                class: Some(class),
                counted: Some(entry.clone()),
                now: entry,
            });
        }
        Ok(Known::default())
    }

    /// Stores a changed entry. The first one with its checksum creates the table.
    fn put(&self, checksum: (&'static str, u8), key: Key, known: Known) {
        let fast = self.fast.load(Relaxed);
        let mut state = self.state();
        let table = state.tables.entry(checksum.1);
        let table = table.or_insert_with(|| Live::new(checksum, fast));
        table.changed.insert(key, known);
    }

    /// Changes the reference count of a block. False: no table has it.
    fn change(&self, bp: &BlockPointer, by: impl Fn(u64) -> Option<u64>) -> Result<bool> {
        let found = CHECKSUMS.iter().find(|c| c.1 == bp.checksum_kind());
        let Some(&checksum) = found else {
            return Ok(false);
        };
        let key = Key::of(bp);
        let _claim = self.claim(checksum.1, key);
        let mut known = self.known(checksum.1, &key)?;
        let before = total(&known.now);
        let (first, birth) = (bp.dva(0), bp.physical_birth());
        // Any other block of this key was pruned from the table, and is an ordinary one (04b §1.6).
        let is_it = |s: &&mut Shared| s.birth == birth && s.dvas[0] == first;
        let Some(shared) = known.now.iter_mut().find(is_it) else {
            return Ok(false);
        };
        shared.references = by(shared.references).ok_or_else(|| {
            Error::miscounted(
                format!("block at <{}:{:x}>", first.vdev(), first.offset()),
                "its dedup table counts other pointers than there are",
            )
        })?;
        self.note_sharing((checksum.1, key), before, &known.now);
        self.put(checksum, key, known);
        Ok(true)
    }

    /// Adds references to a block that a table may have; false if none does.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn refer(&self, bp: &BlockPointer, more: u64) -> Result<bool> {
        self.change(bp, |references| references.checked_add(more))
    }

    fn is_flat(&self, checksum: u8) -> bool {
        match self.state().tables.get(&checksum) {
            Some(table) => table.flat,
            None => self.fast.load(Relaxed),
        }
    }

    /// Whether the tables have reached their size limit.
    fn is_full(&self) -> bool {
        let quota = match self.quota.load(Relaxed) {
            0 => return false,
            AUTO => {
                let tops = self.vdevs.tops();
                let own = tops.iter().filter(|t| t.class() == VdevClass::Dedup);
                match own.map(|t| t.asize()).fold(0, u64::saturating_add) {
                    0 => return false,
                    bytes => bytes,
                }
            }
            bytes => bytes,
        };
        self.size.load(Relaxed).saturating_add(ENTRY_BYTES) > quota
    }

    /// Writes a block with the missing number of copies.
    fn write_new(
        &self,
        txg: Txg,
        bp: &mut BlockPointer,
        (copies, slot): (u8, usize),
        block: &dyn Candidate,
    ) -> Result<Shared> {
        bp.set_birth(txg.0, txg.0);
        block.place(bp, copies, false)?;
        Ok(Shared {
            slot,
            dvas: [bp.dva(0), bp.dva(1), bp.dva(2)],
            references: 1,
            birth: txg.0,
            since: 0,
        })
    }
}

/// Copies of a block, from its entry.
fn places(shared: &Shared, encrypted: bool) -> u8 {
    let room = if encrypted { 2 } else { 3 };
    let places = shared.dvas.iter().take(room);
    places.take_while(|dva| !dva.is_empty()).count() as u8
}

/// Adds the copies that an entry of the new form lacks. False if that is impossible: then the block
/// is written outside the table.
fn extend(
    shared: &mut Shared,
    (have, wanted): (u8, u8),
    bp: &BlockPointer,
    block: &dyn Candidate,
) -> Result<bool> {
    // Headers of gang blocks have more copies than their members.
    if shared.dvas[0].is_gang() {
        return Ok(false);
    }
    let mut more = *bp;
    if !block.place(&mut more, wanted - have, true)? {
        return Ok(false);
    }
    let places = shared.dvas.iter_mut().skip(have.into());
    for (place, dva) in places.zip(more.dvas()) {
        *place = dva;
    }
    Ok(true)
}

impl DedupTables for Dedup {
    fn count(
        &self,
        txg: Txg,
        bp: &mut BlockPointer,
        copies: u8,
        block: &dyn Candidate,
    ) -> Result<DedupOutcome> {
        let found = CHECKSUMS.iter().find(|c| c.1 == bp.checksum_kind());
        let Some(&checksum) = found else {
            return Ok(DedupOutcome::Refused);
        };
        let key = Key::of(bp);
        let _claim = self.claim(checksum.1, key);
        let flat = self.is_flat(checksum.1);
        let mut known = match self.known(checksum.1, &key) {
            // A damaged table gets no more references; the data is written as an ordinary block.
            Err(Error::Corrupt { .. }) => return Ok(DedupOutcome::Refused),
            other => other?,
        };
        let before = total(&known.now);
        // In the old form slot 0 is never used again.
        let usable = |s: &&mut Shared| flat || s.slot > 0;
        if let Some(any) = known.now.iter_mut().find(usable)
            && !block.is_same(&any.pointer(&key, checksum.1))?
        {
            return Ok(DedupOutcome::Differs);
        }
        let slot = if flat { 0 } else { usize::from(copies) };
        match known.now.iter_mut().find(|s| s.slot == slot) {
            Some(shared) => {
                let have = places(shared, key.is_encrypted());
                let enough = !flat || have >= copies;
                let room = shared.references < u64::MAX;
                if !room || have == 0 || !enough && !extend(shared, (have, copies), bp, block)? {
                    return Ok(DedupOutcome::Refused);
                }
                shared.references += 1;
                // An entry may have more copies than are wanted: the pointer names the first ones.
                let named = if flat { copies } else { have };
                for (i, dva) in shared.dvas.iter().take(named.into()).enumerate() {
                    bp.set_dva(i, *dva);
                }
                bp.set_birth(txg.0, shared.birth);
            }
            None if self.is_full() => return Ok(DedupOutcome::Refused),
            None => {
                let new = self.write_new(txg, bp, (copies, slot), block)?;
                known.now.push(new);
                self.size.fetch_add(ENTRY_BYTES, Relaxed);
            }
        }
        self.note_sharing((checksum.1, key), before, &known.now);
        self.put(checksum, key, known);
        Ok(DedupOutcome::Counted)
    }

    fn drop_reference(&self, bp: &BlockPointer) -> Result<bool> {
        self.change(bp, |references| references.checked_sub(1))
    }
}

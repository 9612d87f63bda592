//! An object set: objects by number, and the changes of each txg.
//!
//! ```text
//!   objset block ─► meta dnode ─► dnode blocks (32 slots of 512 bytes) ─► dnodes ─► data
//!               └► accounting dnodes −1, −2, −3
//! ```
//! Dnode blocks are data of the meta dnode. They change in syncing context only, when the dnodes of
//! a txg are written into their slots. Open context works on [`Dnode`]s in memory.
//!
//! Invariants
//! - `objects` has at most one live [`Dnode`] per number; asserted at insertion. A dnode that was
//!   loaded from its block is inserted only if the meta dnode's tree is unchanged since. Otherwise
//!   it is read again. Objects that a txg changed stay in memory until the new meta dnode is in
//!   place. So an old copy cannot come back.
//! - An object number is assigned only if its slots are free on disk and no object in memory has
//!   it. Asserted where a number is chosen (`number`).
//! - Only the MOS is written in more than one pass, and blocks written by a txg have its birth.
//!   Asserted at the write.

mod accounting;
mod ahead;
mod compare;
mod missing;
mod number;
mod peek;
mod raw;
mod sync;
mod undo;

pub use compare::Changed;
pub use peek::{Peek, Stored};
pub use sync::ObjsetSync;

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock, Weak};
use zuse_base::sync::{Mutex, RwLock};

use zuse_base::{Errno, Error, ObjectId, Place, Result, Tripwire, Txg, WorkPool};
use zuse_format::dnode::{DNODE_SLOT, OBJECT_LIMIT, SLOTS_PER_BLOCK};
use zuse_format::objset::{OBJSET_USER_ACCOUNTING, ZIL_HEADER_SIZE};
use zuse_format::{BlockPointer, DnodePhys, DnodeView, ObjsetPhys, ObjsetType, object_type};
use zuse_io::{Block, BlockIndex, DatasetKey, Pipeline};

use crate::complete_part::CompletePart;
use crate::dirty::{DirtyTxg, Synced};
use crate::dnode::{Dnode, DnodeSpec, State};
use crate::ledger::{DirtyMeter, Ledger};
use crate::number_hash::{NumberMap, SHARDS, shard_of};
use crate::settings::Settings;
use crate::stored::RawForm;
use crate::tx::Tx;

use number::Numbers;

/// Approximate memory of a new object until it is synced. This covers the object, its changes, its
/// bonus, its entry here and its synced state. An empty file takes 0.53 KiB before it is written,
/// and 0.6 KiB with its synced state. Its dnode is part of a block on loan from the cache. The more
/// objects a txg holds, the less often each leaf of a large directory is written.
const OBJECT_CHARGE: u64 = 704;

/// State shared by all objects of an object set.
pub(crate) struct Core {
    pub io: Arc<Pipeline>,
    /// Keys of an encrypted dataset, if they are loaded.
    pub key: Option<Arc<DatasetKey>>,
    /// Encrypted, and changed only by raw streams.
    pub raw: bool,
    /// Encryption parameters of the dnode blocks of a raw object set, by txg.
    raw_forms: [Mutex<HashMap<u64, RawForm>>; 4],
    pub place: Place,
    pub ledger: Arc<dyn Ledger>,
    pub meter: Arc<DirtyMeter>,
    pub work: Arc<WorkPool>,
    settings: RwLock<Arc<Settings>>,
    /// A copy of `primarycache` from the settings, for the hot path.
    keep_metadata: AtomicBool,
    keep_data: AtomicBool,
    objects: [Mutex<NumberMap<Weak<Dnode>>>; SHARDS],
    dirty: [Mutex<Vec<Arc<Dnode>>>; 4],
    /// Number of object changes so far, to detect whether an operation changed anything.
    edits: AtomicU64,
    /// The last txg whose sync of this object set began. Its uberblock may be still to come.
    pub last_sync: AtomicU64,
    /// How far it is complete, if it was received from a truncated stream.
    pub complete_part: OnceLock<Arc<CompletePart>>,
}

impl Core {
    /// The tripwire of the pool.
    pub fn tripwire(&self) -> &Tripwire {
        self.work.tripwire()
    }

    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    /// How many threads may wait for devices at once while blocks are written: one per top-level
    /// vdev.
    pub fn devices(&self) -> usize {
        self.io.vdevs().tops().len()
    }

    fn shard(&self, object: ObjectId) -> &Mutex<NumberMap<Weak<Dnode>>> {
        &self.objects[shard_of(object.0)]
    }

    /// A block of this object set, authenticated if it has a key. `primarycache` decides whether
    /// the cache keeps it.
    pub fn read_block(
        &self,
        bp: &BlockPointer,
        metadata: bool,
        place: &dyn std::fmt::Display,
    ) -> Result<Arc<Block>> {
        let keep = if metadata {
            &self.keep_metadata
        } else {
            &self.keep_data
        };
        if keep.load(Relaxed) {
            self.io.read_keyed(bp, self.key.as_deref(), place)
        } else {
            self.io.read_around_keyed(bp, self.key.as_deref(), place)
        }
    }

    /// The encryption parameters of a dnode block of a raw object set.
    pub fn raw_form(&self, txg: Txg, blkid: u64) -> Option<RawForm> {
        self.raw_forms[txg.slot::<4>()].lock().get(&blkid).copied()
    }

    pub fn note_edit(&self) {
        self.edits.fetch_add(1, Release);
    }

    pub fn note_dirty(&self, txg: Txg, dnode: Arc<Dnode>) {
        self.dirty[txg.slot::<4>()].lock().push(dnode);
    }

    /// A dnode was dropped: removes its entry, unless another dnode has replaced it.
    pub fn forget(&self, object: ObjectId) {
        let mut shard = self.shard(object).lock();
        if shard
            .get(&object.0)
            .is_some_and(|weak| weak.strong_count() == 0)
        {
            shard.remove(&object.0);
        }
    }

    fn alive(&self, object: ObjectId) -> Option<Arc<Dnode>> {
        self.shard(object)
            .lock()
            .get(&object.0)
            .and_then(Weak::upgrade)
    }
}

/// Everything an object set is opened with.
pub struct ObjsetEnv {
    /// The pool's pipeline.
    pub io: Arc<Pipeline>,
    /// Threads for parallel work.
    pub work: Arc<WorkPool>,
    /// Name of the dataset or "MOS", for messages.
    pub place: Place,
    /// The space accounting.
    pub ledger: Arc<dyn Ledger>,
    /// Counts dirty bytes.
    pub meter: Arc<DirtyMeter>,
    /// Effective properties.
    pub settings: Settings,
    /// Keys of an encrypted dataset. Without them only cleartext can be read, and nothing can be
    /// changed.
    pub key: Option<Arc<DatasetKey>>,
}

/// The parts of the objset block besides the dnodes.
#[derive(Clone)]
struct Rest {
    size: usize,
    zil_header: [u8; ZIL_HEADER_SIZE],
    flags: u64,
    portable_mac: [u8; 32],
    local_mac: [u8; 32],
}

/// An open object set.
pub struct Objset {
    core: Arc<Core>,
    kind: ObjsetType,
    meta: Arc<Dnode>,
    /// Accounting objects −1 user, −2 group, −3 project.
    special: RwLock<[Option<Arc<Dnode>>; 3]>,
    rest: Mutex<Rest>,
    /// Txgs in which `rest` was changed and that are not written yet, by slot.
    rest_dirty: [AtomicBool; 4],
    /// The highest log record that a txg's changes include, by slot; 0 for none.
    replayed: [AtomicU64; 4],
    root: RwLock<BlockPointer>,
    numbers: Mutex<Numbers>,
    ahead: ahead::BlocksAhead,
    /// The flags set by [`Self::count_as`].
    counting: AtomicU64,
}

/// Bit i is set if a dnode begins in slot i of a dnode block.
pub(crate) fn dnode_starts(block: &[u8]) -> u32 {
    let mut starts = 0u32;
    let mut slot = 0;
    while slot < SLOTS_PER_BLOCK && (slot + 1) * DNODE_SLOT <= block.len() {
        if block[slot * DNODE_SLOT] == 0 {
            slot += 1;
            continue;
        }
        starts |= 1 << slot;
        // The other slots of a large dnode hold its bonus and pointers, not dnodes.
        slot += 1 + usize::from(block[slot * DNODE_SLOT + 12]);
    }
    starts
}

/// Bit i is set if slot i belongs to a dnode, interior slots included.
pub(crate) fn dnode_slots(block: &[u8]) -> u32 {
    let starts = dnode_starts(block);
    let mut taken = 0u32;
    for slot in 0..SLOTS_PER_BLOCK {
        if starts >> slot & 1 == 1 {
            let n = (usize::from(block[slot * DNODE_SLOT + 12]) + 1).min(SLOTS_PER_BLOCK - slot);
            taken |= (((1u64 << n) - 1) << slot) as u32;
        }
    }
    taken
}

#[derive(Clone, Copy)]
struct Starts(u32);

impl BlockIndex for Starts {
    fn clone_index(&self) -> Box<dyn BlockIndex> {
        Box::new(*self)
    }
    fn footprint(&self) -> usize {
        16
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// As [`dnode_starts`], computed once per cached block.
fn starts_of(block: &Block) -> u32 {
    block
        .index(|bytes| Starts(dnode_starts(bytes)))
        .map_or_else(|| dnode_starts(block.bytes()), |s| s.0)
}

impl Objset {
    fn assemble(env: ObjsetEnv, phys: ObjsetPhys, root: BlockPointer, raw: bool) -> Arc<Self> {
        let kind = phys.objset_type;
        let core = Arc::new(Core {
            io: env.io,
            key: env.key,
            raw,
            raw_forms: Default::default(),
            place: env.place,
            ledger: env.ledger,
            meter: env.meter,
            work: env.work,
            keep_metadata: AtomicBool::new(env.settings.cache_metadata),
            keep_data: AtomicBool::new(env.settings.cache_data),
            settings: RwLock::new(Arc::new(env.settings)),
            objects: std::array::from_fn(|_| Mutex::new(NumberMap::default())),
            dirty: Default::default(),
            edits: AtomicU64::new(0),
            last_sync: AtomicU64::new(0),
            complete_part: OnceLock::new(),
        });
        let dnode =
            |object: u64, phys: DnodePhys| Dnode::from_phys(core.clone(), ObjectId(object), phys);
        let special = [
            phys.user_used.map(|p| dnode(u64::MAX, p)),
            phys.group_used.map(|p| dnode(u64::MAX - 1, p)),
            phys.project_used.map(|p| dnode(u64::MAX - 2, p)),
        ];
        Arc::new(Self {
            meta: dnode(0, phys.meta_dnode),
            core,
            kind,
            special: RwLock::new(special),
            rest: Mutex::new(Rest {
                size: phys.size,
                zil_header: phys.zil_header,
                flags: phys.flags,
                portable_mac: phys.portable_mac,
                local_mac: phys.local_mac,
            }),
            rest_dirty: Default::default(),
            replayed: Default::default(),
            root: RwLock::new(root),
            numbers: Mutex::new(Numbers::default()),
            ahead: ahead::BlocksAhead::default(),
            counting: AtomicU64::new(0),
        })
    }

    /// Opens the object set behind a root pointer.
    ///
    /// # Errors
    /// The objset block cannot be read or is invalid.
    pub fn open(env: ObjsetEnv, root: BlockPointer) -> Result<Arc<Self>> {
        Self::open_as(env, root, false)
    }

    fn open_as(env: ObjsetEnv, root: BlockPointer, raw: bool) -> Result<Arc<Self>> {
        let place = format!("{}, objset block", env.place);
        if root.object_type() != object_type::OBJSET || root.level() != 0 {
            return Err(Error::corrupt(
                place,
                format!(
                    "the root pointer names a block of type {}",
                    root.object_type()
                ),
            ));
        }
        let block = env.io.read_keyed(&root, env.key.as_deref(), &place)?;
        let phys = ObjsetPhys::parse(block.bytes()).map_err(|e| e.at(place.as_str()))?;
        if phys.meta_dnode.object_type != object_type::DNODE
            || phys.meta_dnode.data_block_size() != 16384
        {
            return Err(Error::corrupt(place, "the meta dnode is not one"));
        }
        Ok(Self::assemble(env, phys, root, raw))
    }

    /// A new, empty object set; it is written with its first sync.
    pub fn create(env: ObjsetEnv, kind: ObjsetType, tx: &Tx) -> Arc<Self> {
        let mut meta = DnodePhys::new(object_type::DNODE, 16384, 0, Vec::new(), 1);
        meta.levels = if kind == ObjsetType::Meta {
            1
        } else {
            zuse_format::objset::meta_dnode_levels(meta.indirect_shift)
        };
        let mut phys = ObjsetPhys::new(kind, meta);
        phys.size = env.settings.objset_size;
        let os = Self::assemble(env, phys, BlockPointer::HOLE, false);
        os.touch(tx);
        os
    }

    /// The type of the object set.
    pub fn kind(&self) -> ObjsetType {
        self.kind
    }

    /// Where it is, for messages.
    pub fn place(&self) -> Place {
        self.core.place.clone()
    }

    /// The pool's pipeline.
    pub fn io(&self) -> &Arc<Pipeline> {
        &self.core.io
    }

    /// Whether the cache keeps metadata of this object set (`primarycache`).
    pub(crate) fn keeps_metadata(&self) -> bool {
        self.core.keep_metadata.load(Relaxed)
    }

    /// Threads for parallel work.
    pub fn work(&self) -> &Arc<WorkPool> {
        &self.core.work
    }

    /// The effective settings.
    pub fn settings(&self) -> Arc<Settings> {
        self.core.settings()
    }

    /// Replaces the settings: a property changed.
    pub fn set_settings(&self, settings: Settings) {
        let core = &self.core;
        core.keep_metadata.store(settings.cache_metadata, Relaxed);
        core.keep_data.store(settings.cache_data, Relaxed);
        *self.core.settings.write() = Arc::new(settings);
    }

    /// Number of object changes so far. Equal numbers before and after mean that nothing was
    /// changed. A change counts before it becomes visible.
    pub fn edits(&self) -> u64 {
        self.core.edits.load(Acquire)
    }

    /// The root pointer as of the last synced txg; a hole before the first.
    pub fn root(&self) -> BlockPointer {
        *self.root.read()
    }

    /// The objset flags.
    pub fn flags(&self) -> u64 {
        self.rest.lock().flags
    }

    /// Sets the objset flags.
    pub fn set_flags(&self, tx: &Tx, flags: u64) {
        self.rest.lock().flags = flags;
        self.touch(tx);
    }

    /// The intent log header, little-endian.
    pub fn zil_header(&self) -> [u8; ZIL_HEADER_SIZE] {
        self.rest.lock().zil_header
    }

    /// Replaces the intent log header.
    pub fn set_zil_header(&self, tx: &Tx, header: [u8; ZIL_HEADER_SIZE]) {
        self.rest.lock().zil_header = header;
        self.touch(tx);
    }

    /// The keys of an encrypted dataset, if they are loaded.
    pub fn key(&self) -> Option<&Arc<DatasetKey>> {
        self.core.key.as_ref()
    }

    /// Whether this is an encrypted dataset without its key: bonuses are ciphertext, contents
    /// cannot be read.
    pub fn is_locked(&self) -> bool {
        self.core.key.is_none() && self.root().uses_crypt()
    }

    /// Says that tx's txg includes a replayed record of the intent log. The header on disk is
    /// updated together with the change, so a crash neither repeats nor loses the record.
    pub fn note_replayed(&self, tx: &Tx, seq: u64) {
        self.replayed[tx.txg().slot::<4>()].fetch_max(seq, Relaxed);
        self.touch(tx);
    }

    /// Asks for the objset block to be written in tx's txg.
    pub fn touch(&self, tx: &Tx) {
        self.rest_dirty[tx.txg().slot::<4>()].store(true, Relaxed);
    }

    /// Number of objects as of the last synced txg.
    pub fn object_count(&self) -> u64 {
        self.root().fill()
    }

    /// The meta dnode, for walks over the whole object set.
    pub fn meta(&self) -> &Arc<Dnode> {
        &self.meta
    }

    /// Accounting object −1 (0), −2 (1) or −3 (2), if it exists.
    pub fn accounting_object(&self, which: usize) -> Option<Arc<Dnode>> {
        self.special.read().get(which).cloned().flatten()
    }

    fn check_number(&self, object: ObjectId) -> Result<()> {
        if object.0 == 0 || object.0 >= OBJECT_LIMIT {
            return Err(Error::refused(
                Errno::INVAL,
                format!("{}: object number {}", self.core.place, object.0),
            ));
        }
        Ok(())
    }

    /// An object by number.
    ///
    /// # Errors
    /// `Refused(NOENT)` if the number is free or inside a larger dnode, `Refused(INVAL)` if there
    /// can be no such number; the dnode block cannot be read.
    pub fn dnode(self: &Arc<Self>, object: ObjectId) -> Result<Arc<Dnode>> {
        self.check_number(object)?;
        if !self.has_dnode(object) {
            let place = format!("{}, object {}", self.core.place, object.0);
            return Err(Error::unsent(place, "the stream ends before it"));
        }
        let free = || {
            Error::refused(
                Errno::NOENT,
                format!("{}: object {} does not exist", self.core.place, object.0),
            )
        };
        loop {
            if let Some(dnode) = self.core.alive(object) {
                return if dnode.exists() {
                    Ok(dnode)
                } else {
                    Err(free())
                };
            }
            let before = self.meta_tree();
            let blkid = object.0 / SLOTS_PER_BLOCK as u64;
            let misses = self.core.io.cache().misses();
            let block = match self.dnode_block(&before, blkid) {
                // The tree was replaced and its blocks were reused while this thread slept: retry.
                Err(e) if self.meta.is_stale(&before, &e) => continue,
                other => other?,
            };
            let was_read = self.core.io.cache().misses() != misses;
            self.dnode_block_was_needed(&before, blkid, was_read);
            let stored = match block {
                None => None,
                Some(block) => self.stored_in(&block, object)?,
            };
            let mut shard = self.core.shard(object).lock();
            if let Some(there) = shard.get(&object.0).and_then(Weak::upgrade) {
                drop(shard);
                return if there.exists() {
                    Ok(there)
                } else {
                    Err(free())
                };
            }
            // The object may have been written, and dropped from memory, since its block was read.
            if !Arc::ptr_eq(&before, &self.meta_tree()) {
                continue;
            }
            let Some(stored) = stored else {
                return Err(free());
            };
            let dnode = Dnode::with_tree(self.core.clone(), object, stored);
            number::enter(&mut shard, &dnode);
            return Ok(dnode);
        }
    }

    /// The object in a dnode block.
    fn stored_in(&self, block: &zuse_io::Block, object: ObjectId) -> Result<Option<Synced>> {
        let slot = (object.0 % SLOTS_PER_BLOCK as u64) as usize;
        // The client will probably look up the next object too: its slot is prefetched into the
        // processor's cache.
        peek::ask_for(block, slot + 1);
        if starts_of(block) >> slot & 1 == 0 {
            return Ok(None);
        }
        let bytes = &block.bytes()[slot * DNODE_SLOT..];
        let view = DnodeView::parse(bytes)
            .map_err(|e| e.at(format!("{}, object {}", self.core.place, object.0)))?;
        Ok(view.map(|view| {
            let mut stored = Synced::from_view(&view);
            if self.core.raw {
                stored.head.tail = raw::tail_of(bytes, &view.to_phys());
            }
            stored
        }))
    }

    pub(crate) fn meta_tree(&self) -> Arc<Synced> {
        match &self.meta.read_state().synced {
            Some(tree) => tree.clone(),
            None => unreachable!("the meta dnode always has a tree"),
        }
    }

    pub(crate) fn is_meta_tree(&self, tree: &Arc<Synced>) -> bool {
        let state = self.meta.read_state();
        state
            .synced
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, tree))
    }

    fn dnode_block(&self, tree: &Synced, blkid: u64) -> Result<Option<Arc<zuse_io::Block>>> {
        if blkid > tree.head.max_block {
            return Ok(None);
        }
        self.meta.read_tree(tree, blkid)
    }

    /// Creates an object and chooses its number.
    ///
    /// # Errors
    /// `Refused(NOSPC)` if there are no numbers left; a dnode block cannot be read.
    pub fn allocate(self: &Arc<Self>, tx: &Tx, spec: &DnodeSpec) -> Result<Arc<Dnode>> {
        loop {
            let object = self.next_number(tx, spec.slots.clamp(1, 32))?;
            // A freed object of that number may still be held in memory: another one is chosen.
            if let Some(dnode) = self.born(tx, object, spec)? {
                return Ok(dnode);
            }
        }
    }

    /// Makes a new object with a given number.
    ///
    /// # Errors
    /// `Refused(EXIST)` if any of its slots is taken.
    pub fn allocate_at(
        self: &Arc<Self>,
        tx: &Tx,
        object: ObjectId,
        spec: &DnodeSpec,
    ) -> Result<Arc<Dnode>> {
        self.check_number(object)?;
        let taken = || {
            Error::refused(
                Errno::EXIST,
                format!("{}: object {} is taken", self.core.place, object.0),
            )
        };
        let slot = object.0 % SLOTS_PER_BLOCK as u64;
        let slots = u64::from(spec.slots.clamp(1, 32));
        if slot + slots > SLOTS_PER_BLOCK as u64 {
            return Err(Error::refused(
                Errno::INVAL,
                format!("{}: a dnode would leave its block", self.core.place),
            ));
        }
        if !self.claim_number(object, spec.slots.clamp(1, 32))? {
            return Err(taken());
        }
        self.born(tx, object, spec)?.ok_or_else(taken)
    }

    /// As [`Self::allocate_at`], in a txg that is never written. The slots may belong to objects
    /// freed in it that are still on disk.
    ///
    /// # Errors
    /// As [`Self::allocate_at`].
    pub fn allocate_over(
        self: &Arc<Self>,
        tx: &Tx,
        object: ObjectId,
        spec: &DnodeSpec,
    ) -> Result<Arc<Dnode>> {
        let first = match self.allocate_at(tx, object, spec) {
            Err(e) if e.is(Errno::EXIST) => e,
            other => return other,
        };
        let per = SLOTS_PER_BLOCK as u64;
        let slots = u64::from(spec.slots.clamp(1, 32));
        let start = object.0 / per * per;
        let mut at = self.next_object(ObjectId(start.saturating_sub(1)))?;
        // Live objects of the block must not overlap the slots; freed ones do not matter.
        while let Some(there) = at.filter(|o| o.0 < object.0 + slots) {
            let end = there.0 + u64::from(self.dnode(there)?.slots().max(1));
            if end > object.0 {
                return Err(first);
            }
            at = self.next_object(there)?;
        }
        // The freed object must not be found under this number any more.
        self.core.shard(object).lock().remove(&object.0);
        self.born(tx, object, spec)?.ok_or(first)
    }

    /// Inserts a new object into memory; `None` if an object of that number is alive there.
    fn born(
        self: &Arc<Self>,
        tx: &Tx,
        object: ObjectId,
        spec: &DnodeSpec,
    ) -> Result<Option<Arc<Dnode>>> {
        let mut state = State::default();
        // Usually there is one entry. A vector that grows by itself starts with room for four.
        state.dirty.reserve_exact(1);
        let mut d = DirtyTxg::new(tx.txg(), spec.head(&self.core.settings()));
        d.born = true;
        state.dirty.push(d);
        {
            let mut shard = self.core.shard(object).lock();
            if shard
                .get(&object.0)
                .is_some_and(|weak| weak.strong_count() > 0)
            {
                drop(shard);
                // The claim ends here, or the slots would count as taken for ever.
                self.numbers.lock().remove_pending(object);
                return Ok(None);
            }
            let dnode = Dnode::new(self.core.clone(), object, state);
            self.core.note_edit();
            number::enter(&mut shard, &dnode);
            drop(shard);
            self.core.note_dirty(tx.txg(), dnode.clone());
            self.core.meter.add(tx.txg(), OBJECT_CHARGE);
            Ok(Some(dnode))
        }
    }

    /// Frees an object with all its blocks.
    ///
    /// # Errors
    /// `Refused(NOENT)` if it does not exist.
    pub fn free(self: &Arc<Self>, tx: &Tx, object: ObjectId) -> Result<()> {
        let dnode = self.dnode(object)?;
        dnode.dirty(tx, |d| {
            d.dies = true;
            // Nothing of them was written yet. What is on disk is freed when the txg is written.
            d.blocks = Default::default();
        })
    }

    /// The first object after `after`, in number order.
    ///
    /// # Errors
    /// A dnode block cannot be read.
    pub fn next_object(self: &Arc<Self>, after: ObjectId) -> Result<Option<ObjectId>> {
        let mut from = after.0 + 1;
        loop {
            let tree = self.meta_tree();
            let on_disk = match self.next_on_disk(&tree, from) {
                Err(e) if self.meta.is_stale(&tree, &e) => continue,
                other => other?,
            };
            let pending = self.numbers.lock().next_pending(from);
            let next = match (on_disk, pending) {
                (None, None) => return Ok(None),
                (Some(a), None) | (None, Some(a)) => a,
                (Some(a), Some(b)) => a.min(b),
            };
            // An object may be freed in memory, or exist only there.
            match self.core.alive(ObjectId(next)) {
                Some(dnode) if !dnode.exists() => from = next + 1,
                _ => return Ok(Some(ObjectId(next))),
            }
        }
    }

    fn next_on_disk(&self, tree: &Synced, from: u64) -> Result<Option<u64>> {
        let per = SLOTS_PER_BLOCK as u64;
        let mut blkid = from / per;
        let mut first = (from % per) as u32;
        while blkid <= tree.head.max_block {
            if first == 0 {
                // Skip holes, however large.
                match self.meta.seek(blkid * 16384, false)? {
                    None => return Ok(None),
                    Some(at) => blkid = at / 16384,
                }
            }
            if let Some(block) = self.dnode_block(tree, blkid)? {
                let starts = dnode_starts(block.bytes()) & (u32::MAX << first);
                if starts != 0 {
                    return Ok(Some(blkid * per + u64::from(starts.trailing_zeros())));
                }
            }
            blkid += 1;
            first = 0;
        }
        Ok(None)
    }

    /// Whether there is anything to write in a txg.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.rest_dirty[txg.slot::<4>()].load(Relaxed)
            || !self.core.dirty[txg.slot::<4>()].lock().is_empty()
    }

    /// Whether space is accounted by user and group.
    pub fn accounts_users(&self) -> bool {
        self.kind == ObjsetType::Zfs && self.counted() & OBJSET_USER_ACCOUNTING != 0
    }

    /// From now on changes are accounted for according to these objset flags, before the flags are
    /// set. The flags promise complete accounting, so each object has to be changed once before
    /// ([`Dnode::touch`]). 0 stops it.
    pub fn count_as(&self, flags: u64) {
        self.counting.store(flags, Relaxed);
    }

    /// The flags by which changes are accounted for.
    fn counted(&self) -> u64 {
        self.flags() | self.counting.load(Relaxed)
    }
}

impl Drop for Objset {
    /// Dirty data will never be written now. It holds a reference to this object set, so without
    /// this neither would be freed.
    fn drop(&mut self) {
        for slot in &self.core.dirty {
            let dirty = std::mem::take(&mut *slot.lock());
            drop(dirty);
        }
    }
}

impl std::fmt::Debug for Objset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Objset({})", self.core.place)
    }
}

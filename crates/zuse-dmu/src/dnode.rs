//! An object in memory: its head, its block tree, and what open txgs have changed.
//!
//! There is at most one [`Dnode`] per object. It is found through its object set, and lives as long
//! as it is held or dirty.
//!
//! Invariants
//! - `dirty` is sorted by txg and has at most three entries. Changes come in txg order (see
//!   [`crate::Tx`]), so only the newest entry is ever changed. Older ones belong to the sync
//!   thread. Asserted at a txg's first change.
//! - `synced` is replaced when the written txg's entry is removed from `dirty`, under one lock. So
//!   a reader that does not find a block among the dirty ones finds it in the tree. The removed
//!   entry is that of the written txg; asserted there.
//!
//! No lock here is held across I/O. Locks: `state`, then a block's `content`; the first is ranked.

pub(crate) mod blocks;
mod companions;
mod ranges;
mod received;
pub(crate) mod shortcuts;
mod stale;
pub(crate) mod sync;

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Weak};
use zuse_base::sync::{RankedReadGuard, RankedRwLock, RankedWriteGuard};

use zuse_base::tripwire::{Tripwire, Watched, at};
use zuse_base::{Errno, Error, ObjectId, Place, Result, Txg};
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{DNODE_CORE, DNODE_SLOT, block_pointers_for};
use zuse_format::{DnodePhys, DnodeView, object_type};
use zuse_io::Block;

pub use blocks::early::EarlyBlock;
pub use blocks::{BlockEdit, BlockView};
pub use ranges::SharedSlice;

use crate::bonus::Bonus;
use crate::dirty::{DirtyTxg, Head, SpillChange, Synced};
use crate::objset::Core;
use crate::stored::StoredBlock;
use crate::tx::Tx;

/// The parameters of a new object.
#[derive(Clone, Debug)]
pub struct DnodeSpec {
    /// DMU object type.
    pub object_type: u8,
    /// Data block size in bytes; 0 means 512.
    pub block_size: u32,
    /// log2 of the indirect block size; 0 means the object set's default.
    pub indirect_shift: u8,
    /// Type of the bonus, 0 for none.
    pub bonus_type: u8,
    /// Bytes of the bonus, zeroed.
    pub bonus_len: u16,
    /// 512-byte slots, 1..=32.
    pub slots: u8,
    /// Compression override, 0 for none.
    pub compress: u8,
    /// Checksum override, 0 for none.
    pub checksum: u8,
    /// Block pointers; 0 for as many as fit in the dnode with the bonus.
    pub nblkptr: u8,
}

impl DnodeSpec {
    /// A plain object of a type: 512-byte blocks, one slot, no bonus.
    pub fn new(object_type: u8) -> Self {
        Self {
            object_type,
            block_size: 0,
            indirect_shift: 0,
            bonus_type: 0,
            bonus_len: 0,
            slots: 1,
            compress: 0,
            checksum: 0,
            nblkptr: 0,
        }
    }

    /// With a zeroed bonus.
    #[must_use]
    pub fn bonus(mut self, bonus_type: u8, len: u16) -> Self {
        self.bonus_type = bonus_type;
        self.bonus_len = len;
        self
    }

    /// With a data block size in bytes.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = bytes;
        self
    }

    /// With an indirect block shift.
    #[must_use]
    pub fn indirect_shift(mut self, shift: u8) -> Self {
        self.indirect_shift = shift;
        self
    }

    /// With a number of 512-byte slots.
    #[must_use]
    pub fn slots(mut self, slots: u8) -> Self {
        self.slots = slots.clamp(1, 32);
        self
    }

    /// With a compression override.
    #[must_use]
    pub fn compress(mut self, compress: u8) -> Self {
        self.compress = compress;
        self
    }

    pub(crate) fn head(&self, settings: &crate::Settings) -> Head {
        let slots = self.slots.clamp(1, 32);
        let size = usize::from(slots) * DNODE_SLOT;
        let shift = if self.indirect_shift == 0 {
            settings.indirect_shift
        } else {
            self.indirect_shift
        };
        Head {
            object_type: self.object_type,
            bonus_type: self.bonus_type,
            indirect_shift: shift.clamp(12, 17),
            nblkptr: match self.nblkptr {
                0 => block_pointers_for(size, self.bonus_type, usize::from(self.bonus_len)),
                n => n.min(3),
            },
            checksum: self.checksum,
            compress: self.compress,
            slots,
            block_size: self.block_size.max(1).next_multiple_of(512),
            max_block: 0,
            bonus: Bonus::zeroed(usize::from(self.bonus_len)),
            tail: Vec::new(),
            min_levels: 0,
        }
    }
}

/// The spill block, for messages.
struct SpillPlace<'a>(&'a Dnode);

impl fmt::Display for SpillPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, spill block", self.0.place())
    }
}

/// The shape of a raw object's block tree, which MACs cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawShape {
    /// Levels.
    pub levels: u8,
    /// Highest block.
    pub max_block: u64,
}

#[derive(Default)]
pub(crate) struct State {
    pub synced: Option<Arc<Synced>>,
    pub dirty: Vec<DirtyTxg>,
}

impl State {
    /// The newest head; `None` if the object does not exist, or not any more.
    pub fn head(&self) -> Option<&Head> {
        match self.dirty.last() {
            Some(d) if d.dies => None,
            Some(d) => Some(&d.head),
            None => self.synced.as_ref().map(|s| &s.head),
        }
    }
}

/// One object of an object set.
pub struct Dnode {
    me: Weak<Dnode>,
    core: Arc<Core>,
    object: ObjectId,
    state: RankedRwLock<State, 400>,
    stream: ranges::Stream,
    /// See [`Self::stamp`].
    stamp: AtomicU64,
    /// The newest txg whose changes were removed from `dirty`: written, but perhaps not committed.
    written: AtomicU64,
    companions: companions::Companions,
}

impl Dnode {
    pub(crate) fn new(core: Arc<Core>, object: ObjectId, state: State) -> Arc<Self> {
        // Its last change may be of that txg, whose uberblock is perhaps not written yet.
        let written = AtomicU64::new(core.last_sync.load(Relaxed));
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            written,
            core,
            object,
            state: RankedRwLock::new(state),
            stream: ranges::Stream::default(),
            stamp: AtomicU64::new(1),
            companions: companions::Companions::default(),
        })
    }

    pub(crate) fn from_phys(core: Arc<Core>, object: ObjectId, phys: DnodePhys) -> Arc<Self> {
        Self::with_tree(core, object, Synced::from_phys(phys))
    }

    /// An object as it is stored.
    pub(crate) fn with_tree(core: Arc<Core>, object: ObjectId, tree: Synced) -> Arc<Self> {
        let synced = Some(Arc::new(tree));
        Self::new(
            core,
            object,
            State {
                synced,
                dirty: Vec::new(),
            },
        )
    }

    pub(crate) fn tripwire(&self) -> &Tripwire {
        self.core.tripwire()
    }

    pub(crate) fn read_state(&self) -> RankedReadGuard<'_, State> {
        self.state.read()
    }

    pub(crate) fn write_state(&self) -> Watched<'_, RankedWriteGuard<'_, State>> {
        let state = self.lock_state();
        self.note_change();
        state
    }

    fn lock_state(&self) -> Watched<'_, RankedWriteGuard<'_, State>> {
        let state = self.state.write();
        self.core.tripwire().hold(at::OBJECT, state)
    }

    /// A number that changes with every change of the object except its bonus; never 0. What was
    /// read under one stamp is valid while the stamp is unchanged. A directory's bonus changes with
    /// each new name, but nothing that is read under a stamp is stored there.
    ///
    /// It changes before the change itself, under the same lock. A reader that sees the new number
    /// waits for the change.
    #[inline]
    pub fn stamp(&self) -> u64 {
        self.stamp.load(Acquire)
    }

    /// Whether no change of the object has begun since it had that stamp. This covers everything
    /// that the caller has read so far.
    #[inline]
    pub fn is_unchanged_since(&self, stamp: u64) -> bool {
        fence(Acquire);
        self.stamp() == stamp
    }

    /// The stamp; and the tree, if nothing is dirty, so that the tree is the whole state.
    pub(crate) fn stamp_and_tree(&self) -> (u64, Option<Arc<Synced>>) {
        let state = self.read_state();
        let tree = state.synced.as_ref().filter(|_| state.dirty.is_empty());
        (self.stamp(), tree.cloned())
    }

    /// Called under the lock of the part that is about to change.
    #[inline]
    fn note_change(&self) {
        self.stamp.fetch_add(1, Release);
    }

    /// The object's number.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Whether reading the object set's contents takes a key.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.core.key.is_some() || self.core.raw
    }

    /// The settings of the object set now.
    pub fn settings(&self) -> Arc<crate::Settings> {
        self.core.settings()
    }

    /// Where this object is, for messages.
    pub fn place(&self) -> Place {
        Place::new(format!(
            "{}, object {}",
            self.core.place,
            ObjectNumber(self.object)
        ))
    }

    fn with_head<R>(&self, f: impl FnOnce(&Head) -> R) -> Option<R> {
        self.read_state().head().map(f)
    }

    fn fact<R: Default>(&self, f: impl FnOnce(&Head) -> R) -> R {
        self.with_head(f).unwrap_or_default()
    }

    /// Whether the object still exists.
    pub fn exists(&self) -> bool {
        self.read_state().head().is_some()
    }

    /// DMU object type; 0 once the object is freed.
    pub fn object_type(&self) -> u8 {
        self.fact(|h| h.object_type)
    }

    /// Type of the bonus, 0 for none.
    pub fn bonus_type(&self) -> u8 {
        self.fact(|h| h.bonus_type)
    }

    /// Data block size in bytes.
    pub fn block_size(&self) -> u32 {
        self.fact(|h| h.block_size)
    }

    /// log2 of the indirect block size.
    pub fn indirect_shift(&self) -> u8 {
        self.fact(|h| h.indirect_shift)
    }

    /// Highest level-0 block id in use; 0 for none or one.
    pub fn max_block(&self) -> u64 {
        self.fact(|h| h.max_block)
    }

    /// Slots of 512 bytes that the dnode takes.
    pub fn slots(&self) -> u8 {
        self.fact(|h| h.slots)
    }

    /// Space of all blocks as of the last synced txg, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.read_state().synced.as_ref().map_or(0, |s| s.used)
    }

    /// Levels of the block tree as of the last synced txg.
    pub fn levels(&self) -> u8 {
        self.read_state().synced.as_ref().map_or(1, |s| s.levels)
    }

    /// Flag bits of the dnode as of the last synced txg.
    pub fn flags(&self) -> u8 {
        self.read_state().synced.as_ref().map_or(0, |s| s.flags)
    }

    /// Top block pointers as of the last synced txg.
    pub fn block_pointers(&self) -> Vec<zuse_format::BlockPointer> {
        let state = self.read_state();
        state.synced.as_ref().map_or_else(Vec::new, |s| {
            (0..).map_while(|i| s.root(i).copied()).collect()
        })
    }

    /// Compression override, 0 for none.
    pub fn compress(&self) -> u8 {
        self.fact(|h| h.compress)
    }

    /// Checksum override, 0 for none.
    pub fn checksum(&self) -> u8 {
        self.fact(|h| h.checksum)
    }

    /// The spill pointer as of the last synced txg.
    pub fn spill_pointer(&self) -> Option<zuse_format::BlockPointer> {
        let state = self.read_state();
        let tree = state.synced.as_ref()?;
        tree.spill.as_deref().copied()
    }

    /// Bytes the bonus may take if there is no spill block.
    pub fn bonus_capacity(&self) -> usize {
        self.fact(|h| h.room(false))
    }

    /// Whether the object is changed in a txg that is not yet on disk.
    pub fn is_dirty(&self) -> bool {
        !self.read_state().dirty.is_empty()
    }

    /// The newest txg that changed this object and is not yet written.
    pub fn newest_dirty(&self) -> Option<Txg> {
        self.read_state().dirty.last().map(|d| d.txg)
    }

    /// The txg after which all changes of this object are on disk: fsync waits for it.
    ///
    /// Unlike [`Self::newest_dirty`], it includes changes that are written and whose uberblock is
    /// not yet.
    pub fn changed_in(&self) -> Txg {
        let state = self.read_state();
        match state.dirty.last() {
            Some(d) => d.txg,
            None => Txg(self.written.load(Relaxed)),
        }
    }

    /// Runs `f` on the bonus bytes in use.
    pub fn with_bonus<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let state = self.read_state();
        f(state.head().map_or(&[], |h| &h.bonus))
    }

    /// A copy of the bonus bytes in use.
    pub fn bonus_vec(&self) -> Vec<u8> {
        self.with_bonus(<[u8]>::to_vec)
    }

    /// Replaces the bonus; its length becomes that of `bytes`.
    ///
    /// # Errors
    /// `Refused(NOSPC)` if the dnode has no room for the bytes besides the block pointers and the
    /// spill pointer.
    pub fn set_bonus(&self, tx: &Tx, bytes: &[u8]) -> Result<()> {
        let spill = self.has_spill();
        self.dirty_bonus(tx, |head| {
            if bytes.len() > head.room(spill) {
                return Err(Error::refused(
                    Errno::NOSPC,
                    "the bonus does not fit its dnode",
                ));
            }
            head.bonus.set(bytes);
            Ok(())
        })?
    }

    /// Changes bonus bytes in place.
    ///
    /// # Errors
    /// The object was freed.
    pub fn edit_bonus<R>(&self, tx: &Tx, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.dirty_bonus(tx, |head| f(&mut head.bonus))
    }

    /// Changes the object type (zapify).
    ///
    /// # Errors
    /// The object was freed.
    pub fn set_type(&self, tx: &Tx, object_type: u8) -> Result<()> {
        self.dirty(tx, |d| d.head.object_type = object_type)
    }

    /// Changes the bonus type.
    ///
    /// # Errors
    /// The object was freed.
    pub fn set_bonus_type(&self, tx: &Tx, bonus_type: u8) -> Result<()> {
        self.dirty(tx, |d| d.head.bonus_type = bonus_type)
    }

    /// Marks the object as changed in the txg, without changing anything.
    ///
    /// # Errors
    /// The object was freed.
    pub fn touch(&self, tx: &Tx) -> Result<()> {
        self.dirty(tx, |_| ())
    }

    /// Whether a spill block is in use.
    pub fn has_spill(&self) -> bool {
        let state = self.read_state();
        for d in state.dirty.iter().rev() {
            match d.spill {
                SpillChange::Set(..) | SpillChange::Stored(_) => return true,
                SpillChange::Remove => return false,
                // A number that was assigned again has nothing of the old object on disk.
                SpillChange::Keep if d.born => return false,
                SpillChange::Keep => {}
            }
        }
        state.synced.as_ref().is_some_and(|s| s.spill.is_some())
    }

    /// The spill block's bytes.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn spill(&self) -> Result<Option<Arc<Block>>> {
        let complete_part = self.core.complete_part.get();
        if complete_part.is_some_and(|complete_part| !complete_part.has_spill(self.object.0)) {
            let what = "the stream ends before its spill block";
            return Err(Error::unsent(self.place(), what));
        }
        let bp = {
            let state = self.read_state();
            for d in state.dirty.iter().rev() {
                match &d.spill {
                    SpillChange::Set(block, _) => return Ok(Some(block.clone())),
                    SpillChange::Stored(stored) => {
                        return Ok(Some(Arc::new(Block::new(stored.decode()?))));
                    }
                    SpillChange::Remove => return Ok(None),
                    SpillChange::Keep if d.born => return Ok(None),
                    SpillChange::Keep => {}
                }
            }
            match state.synced.as_ref().and_then(|s| s.spill.as_deref()) {
                None => return Ok(None),
                Some(bp) => *bp,
            }
        };
        if bp.is_hole() {
            return Ok(None);
        }
        let found = self.core.read_block(&bp, true, &SpillPlace(self));
        if let Err(Error::Corrupt { .. } | Error::Device { .. }) = &found {
            // A spill block has the last number.
            self.core.suspect_lost(self.object.0, 0, u64::MAX, &bp);
            let state = self.read_state();
            // The block is lost only if its pointer is current. An older one was freed meanwhile.
            let now = state.synced.as_ref().and_then(|s| s.spill.as_deref());
            self.core.io.lost().decide(now == Some(&bp));
        }
        found.map(Some)
    }

    /// Writes or removes the spill block; its length must be a multiple of 512. While the block
    /// cache has memory to spare, it lends for the block, which then does not count as dirty.
    ///
    /// # Errors
    /// `Refused(NOSPC)` if the bonus leaves no room for the spill pointer, `Refused(INVAL)` for an
    /// odd length.
    pub fn set_spill(&self, tx: &Tx, bytes: Option<Vec<u8>>) -> Result<()> {
        if bytes
            .as_ref()
            .is_some_and(|b| b.is_empty() || b.len() % 512 != 0)
        {
            return Err(Error::refused(
                Errno::INVAL,
                "a spill block is a multiple of 512 bytes",
            ));
        }
        self.dirty(tx, |d| {
            let room = usize::from(d.head.slots) * DNODE_SLOT
                - DNODE_CORE
                - BP_SIZE * usize::from(d.head.nblkptr);
            if bytes.is_some() && d.head.bonus.len() + BP_SIZE > room {
                return Err(Error::refused(
                    Errno::NOSPC,
                    "the bonus leaves no room for a spill pointer",
                ));
            }
            // Bytes of this txg that are replaced are on the meter already.
            let metered = match &d.spill {
                SpillChange::Set(block, None) => block.bytes().len(),
                _ => 0,
            };
            d.spill = match bytes {
                Some(b) => {
                    let loan = self.core.io.cache().lend_spare(b.len());
                    if loan.is_none() {
                        let more = b.len().saturating_sub(metered);
                        self.core.meter.add_data(tx.txg(), more as u64);
                    }
                    SpillChange::Set(Arc::new(Block::new(b)), loan.map(Arc::new))
                }
                None => SpillChange::Remove,
            };
            Ok(())
        })?
    }

    /// Writes the spill block in its stored form.
    ///
    /// # Errors
    /// `Refused(INVAL)` if the bonus leaves no room for its pointer; the object was freed.
    pub fn set_spill_stored(&self, tx: &Tx, block: StoredBlock) -> Result<()> {
        let len = block.bytes.len() as u64;
        self.dirty(tx, |d| {
            let room = usize::from(d.head.slots) * DNODE_SLOT
                - DNODE_CORE
                - BP_SIZE * usize::from(d.head.nblkptr);
            if d.head.bonus.len() + BP_SIZE > room {
                return Err(Error::refused(
                    Errno::INVAL,
                    "the bonus leaves no room for a spill pointer",
                ));
            }
            self.core.meter.add_data(tx.txg(), len);
            d.spill = SpillChange::Stored(Arc::new(block));
            Ok(())
        })?
    }

    /// Sets a dnode from a raw OBJECT record: its sizes, and the whole bonus as stored, of which
    /// `bonus_len` bytes are in use.
    ///
    /// # Errors
    /// `Refused(INVAL)` for a bonus that does not fit; the object was freed.
    pub fn set_raw(&self, tx: &Tx, spec: &DnodeSpec, shape: RawShape, room: &[u8]) -> Result<()> {
        let used = usize::from(spec.bonus_len);
        self.dirty(tx, |d| {
            let head = &mut d.head;
            let most = usize::from(head.slots) * DNODE_SLOT
                - DNODE_CORE
                - BP_SIZE * usize::from(head.nblkptr.min(3));
            if used > room.len() && used != 0 || room.len() > most {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!("a raw bonus of {} bytes", room.len()),
                ));
            }
            head.object_type = spec.object_type;
            head.bonus_type = spec.bonus_type;
            head.checksum = spec.checksum;
            head.compress = spec.compress;
            head.block_size = spec.block_size;
            head.indirect_shift = spec.indirect_shift;
            head.max_block = shape.max_block;
            head.min_levels = shape.levels;
            head.bonus = room.get(..used).unwrap_or_default().into();
            head.tail = room.get(used..).unwrap_or_default().to_vec();
            Ok(())
        })?
    }

    /// Block pointers that the dnode has room for.
    pub fn pointer_count(&self) -> u8 {
        self.fact(|h| h.nblkptr)
    }

    /// Runs `f` on the changes of tx's txg, and creates them if this is the first change.
    pub(crate) fn dirty<R>(&self, tx: &Tx, f: impl FnOnce(&mut DirtyTxg) -> R) -> Result<R> {
        let mut state = self.write_state();
        let d = self.dirty_in(&mut state, tx.txg())?;
        Ok(f(d))
    }

    /// As [`Self::dirty`], for an `f` that changes only the bonus: the stamp stays.
    pub(crate) fn dirty_bonus<R>(&self, tx: &Tx, f: impl FnOnce(&mut Head) -> R) -> Result<R> {
        let mut state = self.lock_state();
        let d = self.dirty_in(&mut state, tx.txg())?;
        Ok(f(&mut d.head))
    }

    pub(crate) fn dirty_in<'a>(&self, state: &'a mut State, txg: Txg) -> Result<&'a mut DirtyTxg> {
        let known = state.dirty.last().is_some_and(|d| d.txg == txg);
        if !known {
            // An older version would be written after a newer one and old data would return.
            assert!(
                state.dirty.last().is_none_or(|d| d.txg < txg),
                "{}: txg {txg:?} is older than the last change",
                self.place()
            );
            // Open, quiesced, being written: more are never alive.
            debug_assert!(state.dirty.len() < 3, "{}: a fourth txg", self.place());
            let head = state.head().cloned().ok_or_else(|| self.gone())?;
            state.dirty.reserve_exact(1);
            state.dirty.push(DirtyTxg::new(txg, head));
            if let Some(me) = self.me.upgrade() {
                self.core.note_dirty(txg, me);
            }
            self.core.meter.add(txg, 1024);
        }
        self.core.note_edit();
        match state.dirty.last_mut() {
            Some(d) if !d.dies => Ok(d),
            _ => Err(self.gone()),
        }
    }

    fn gone(&self) -> Error {
        Error::refused(
            Errno::NOENT,
            format!("{}: the object is free", self.place()),
        )
    }
}

impl Synced {
    pub fn from_view(view: &DnodeView<'_>) -> Self {
        let mut synced = Self::from_phys(view.to_phys_without_bonus());
        synced.head.bonus = view.bonus().into();
        synced
    }

    pub fn from_phys(phys: DnodePhys) -> Self {
        Self {
            levels: phys.levels,
            flags: phys.flags,
            used: phys.used_bytes(),
            blkptr: phys.blkptr.into(),
            spill: phys.spill.map(Box::new),
            shortcuts: shortcuts::Shortcuts::default(),
            head: Head {
                object_type: phys.object_type,
                bonus_type: phys.bonus_type,
                indirect_shift: phys.indirect_shift,
                nblkptr: phys.nblkptr,
                checksum: phys.checksum,
                compress: phys.compress,
                slots: phys.extra_slots.saturating_add(1),
                block_size: phys.data_block_size() as u32,
                max_block: phys.max_block_id,
                bonus: phys.bonus.as_slice().into(),
                tail: Vec::new(),
                min_levels: 0,
            },
        }
    }

    pub fn to_phys(&self) -> DnodePhys {
        self.to_phys_in(Vec::new())
    }

    /// The same, with the bonus in a buffer that the caller provides for reuse.
    pub fn to_phys_in(&self, mut bonus: Vec<u8>) -> DnodePhys {
        bonus.clear();
        bonus.extend_from_slice(&self.head.bonus);
        let mut phys = DnodePhys {
            object_type: self.head.object_type,
            indirect_shift: self.head.indirect_shift,
            levels: self.levels,
            nblkptr: self.head.nblkptr,
            bonus_type: self.head.bonus_type,
            checksum: self.head.checksum,
            compress: self.head.compress,
            flags: self.flags,
            data_block_sectors: (self.head.block_size / 512).clamp(1, 32768) as u16,
            extra_slots: self.head.slots - 1,
            max_block_id: self.head.max_block,
            used: 0,
            blkptr: self.blkptr.all(),
            bonus,
            spill: self.spill.as_deref().copied(),
        };
        phys.set_used_bytes(self.used);
        phys
    }

    /// Pointers per indirect block, as a power of two.
    pub fn fanout_shift(&self) -> u32 {
        u32::from(self.head.indirect_shift) - 7
    }
}

/// An object number; special objects are shown by their usual names.
struct ObjectNumber(ObjectId);

impl fmt::Display for ObjectNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0 {
            0 => f.write_str("0 (meta dnode)"),
            n if n >= u64::MAX - 2 => write!(f, "{}", n as i64),
            n => write!(f, "{n}"),
        }
    }
}

impl Drop for Dnode {
    fn drop(&mut self) {
        self.core.forget(self.object);
    }
}

impl fmt::Debug for Dnode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Dnode({}, type {})",
            self.place(),
            object_type::title(self.object_type())
        )
    }
}

#[cfg(test)]
mod tests;

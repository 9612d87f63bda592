//! Writing one txg's changes of an object: data first, then the indirect blocks above, up to the
//! dnode.
//!
//! ```text
//!   freed ranges ─┐
//!   dirty blocks ─┴► level 0 ─► level 1 … ─► blkptr[] ─► DnodePhys ─► a slot of a dnode block
//! ```
//! The old tree is immutable on disk. Each touched block gets a new place, or keeps its own in
//! later passes of a txg. Every pointer that leaves the tree is freed exactly once, and every one
//! that enters is born exactly once. The ledger's sums are the object's `used` and the dataset's
//! space.
//!
//! Budget: an indirect block is read, changed and written once per txg however many children
//! changed. The children of one level-1 block are compressed, checksummed and written in parallel.
//!
//! Blocks of dnodes are not held as versions. A txg that creates a million files would keep all of
//! them in memory at once, until the last is written. Each is built from the version on disk when
//! its turn comes ([`Maker`]), written, and left to the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

use zuse_base::range_tree::{RangeTree, Span};
use zuse_base::{ByteOrder, Error, Result, Txg};
use zuse_codec::Compression;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{FLAG_USED_BYTES, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED};
use zuse_format::object_type::{self, swap_block};
use zuse_format::{BlockPointer, BpKind};
use zuse_io::{Block, CryptParams, FeatureUse, RawBlock, Reference, WritePolicy};

use super::Dnode;
use super::blocks::BlockPlace;
use crate::dirty::{Content, DirtyBlock, Early, Head, SpillChange, Synced};
use crate::ledger::note_born;
use crate::settings::Settings;
use crate::stored::{RawForm, StoredBlock};

mod indirect;

/// Updates a block: its number, its old bytes (zeros for a new block).
pub(crate) type Maker = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

/// What a sync writes for a block.
#[derive(Clone)]
enum New {
    /// The txg's version of it.
    Version(Arc<DirtyBlock>),
    /// The old block, updated by the tree's maker.
    Made,
}

/// One sync of an object: state shared by all blocks of the tree.
struct Tree {
    dnode: Arc<Dnode>,
    head: Head,
    txg: Txg,
    pass: u32,
    settings: Arc<Settings>,
    /// Updates the blocks that are [`New::Made`].
    maker: Option<Maker>,
    used: AtomicI64,
    features: AtomicU32,
}

/// The result of syncing one object.
pub(crate) struct SyncedObject {
    /// The old object; `None` if it was not on disk.
    pub before: Option<Arc<Synced>>,
    /// The new object; `None` if it was freed.
    pub after: Option<Arc<Synced>>,
    /// Per-dataset features that its blocks use.
    pub features: FeatureUse,
}

impl Dnode {
    /// Writes the changes of `txg`. Returns `None` if there are none.
    ///
    /// The new state is visible to readers when this returns. The caller must keep the object in
    /// memory until the dnode block that holds it is written.
    pub(crate) fn sync(
        self: &Arc<Self>,
        txg: Txg,
        pass: u32,
        flags: u8,
    ) -> Result<Option<SyncedObject>> {
        self.sync_with(txg, pass, flags, None)
    }

    /// As [`Self::sync`], for an object without versions of blocks: the blocks of these numbers are
    /// built here, in order.
    pub(crate) fn sync_made(
        self: &Arc<Self>,
        txg: Txg,
        pass: u32,
        numbers: Vec<u64>,
        maker: Maker,
    ) -> Result<Option<SyncedObject>> {
        self.sync_with(txg, pass, 0, Some((numbers, maker)))
    }

    fn sync_with(
        self: &Arc<Self>,
        txg: Txg,
        pass: u32,
        flags: u8,
        made: Option<(Vec<u64>, Maker)>,
    ) -> Result<Option<SyncedObject>> {
        // A copy of what to write, so that readers and newer txgs are not blocked meanwhile.
        let (before, head, blocks, freed, spill, dies, born) = {
            let state = self.read_state();
            // The oldest: versions are written in the order of their txgs.
            let Some(d) = state.dirty.first().filter(|d| d.txg == txg) else {
                return Ok(None);
            };
            // The blocks are shared, not copied: blocks of a closed txg do not change.
            let blocks = d.blocks.to_vec();
            (
                state.synced.clone(),
                d.head.facts(),
                blocks,
                d.freed.clone(),
                d.spill.clone(),
                d.dies,
                d.born,
            )
        };
        let versions = blocks.into_iter().map(|(id, b)| (id, New::Version(b)));
        let (blocks, maker) = match made {
            Some((numbers, maker)) => {
                debug_assert_eq!(versions.len(), 0, "{}: versions", self.place());
                let made = numbers.into_iter().map(|id| (id, New::Made));
                (made.collect(), Some(maker))
            }
            None => (versions.collect(), None),
        };
        let tree = Arc::new(Tree {
            dnode: self.clone(),
            head: head.facts(),
            txg,
            pass,
            settings: self.core.settings(),
            maker,
            used: AtomicI64::new(0),
            features: AtomicU32::new(0),
        });
        let after = if dies {
            if let Some(old) = &before {
                tree.free_object(old)?;
            }
            None
        } else {
            // A number that was freed and assigned again in one txg begins with an empty tree.
            let mut now = start_of(head, before.as_deref().filter(|_| !born));
            tree.sync_data(&mut now, blocks, &freed)?;
            tree.sync_spill(&mut now, &spill)?;
            now.used = now.used.wrapping_add_signed(tree.used.load(Relaxed));
            now.flags = tree.flags(now.flags, flags);
            Some(now)
        };
        // Only after all blocks are written: readers use these pointers from now on.
        let after = self.complete_sync(txg, after);
        Ok(Some(SyncedObject {
            before,
            after,
            features: FeatureUse(tree.features.load(Relaxed)),
        }))
    }

    /// The txg's version is the written one now.
    pub(super) fn complete_sync(&self, txg: Txg, after: Option<Synced>) -> Option<Arc<Synced>> {
        let (done, after) = {
            let mut state = self.write_state();
            let mut done = state.dirty.remove(0);
            // Otherwise changes of a newer txg would count as written, and be lost.
            assert_eq!(
                done.txg,
                txg,
                "{}: changes of another txg leave",
                self.place()
            );
            // The old version is not used any more, so its bonus is moved, not copied.
            let after = after.map(|mut now| {
                now.head.bonus = std::mem::take(&mut done.head.bonus);
                now.head.tail = std::mem::take(&mut done.head.tail);
                Arc::new(now)
            });
            // Together with removing the version, under one lock: a reader finds a block in either
            // place.
            state.synced = after.clone();
            if state.dirty.is_empty() {
                state.dirty = Vec::new();
            }
            // Under the same lock: a reader that finds no version must see the txg of the state on
            // disk.
            self.written.store(txg.0, Relaxed);
            (done, after)
        };
        // Outside the lock, because dropping the version of a large object takes a while.
        drop(done);
        after
    }
}

impl Tree {
    fn place(&self, level: u8, blkid: u64) -> BlockPlace<'_> {
        BlockPlace {
            dnode: &self.dnode,
            level,
            blkid,
        }
    }

    /// The flags of the written dnode. It is marked as accounted for only if it was.
    fn flags(&self, before: u8, accounted: u8) -> u8 {
        let all = FLAG_USERUSED_ACCOUNTED | FLAG_USEROBJUSED_ACCOUNTED | FLAG_USED_BYTES;
        let unit = match self.settings.used_in_sectors {
            true => 0,
            false => FLAG_USED_BYTES,
        };
        before & !all | accounted | unit
    }

    fn policy(&self, level: u8) -> WritePolicy {
        self.settings.policy(
            self.head.object_type,
            level,
            false,
            self.head.compress,
            self.head.checksum,
            self.pass,
        )
    }

    fn born(&self, bp: &BlockPointer) {
        if bp.is_hole() {
            return;
        }
        let core = &self.dnode.core;
        self.used.fetch_add(core.io.dsize(bp) as i64, Relaxed);
        self.features.fetch_or(FeatureUse::of(bp).0, Relaxed);
        note_born(&*core.ledger, self.txg, bp);
    }

    fn kill(&self, bp: &BlockPointer) -> Result<()> {
        if bp.is_hole() {
            return Ok(());
        }
        let core = &self.dnode.core;
        self.used.fetch_sub(core.io.dsize(bp) as i64, Relaxed);
        // The newest snapshot decides whether it is freed or goes to the deadlist.
        core.ledger.kill(self.txg, bp)
    }

    /// The hole that replaces `old`.
    fn hole(&self, old: &BlockPointer, level: u8) -> BlockPointer {
        if *old == BlockPointer::HOLE || !self.settings.hole_birth {
            return BlockPointer::HOLE;
        }
        // Its birth stays: an incremental send goes by the txg in which it became a hole.
        if old.is_hole() {
            return *old;
        }
        let size = if level == 0 {
            u64::from(self.head.block_size)
        } else {
            1 << self.head.indirect_shift
        };
        BlockPointer::hole_with_birth(size, self.head.object_type, level, self.txg.0)
    }

    fn fanout(&self) -> u32 {
        u32::from(self.head.indirect_shift) - 7
    }

    fn sync_data(
        self: &Arc<Self>,
        now: &mut Synced,
        blocks: Vec<(u64, New)>,
        freed: &RangeTree,
    ) -> Result<()> {
        // Levels first: the tree must reach the highest block before its pointer has a place.
        while now.levels < now.head.min_levels {
            self.add_level(now)?;
        }
        // The tree must reach the highest block, even if that was freed before it was written.
        let last = blocks.last().map_or(0, |(id, _)| *id);
        self.grow(now, last.max(now.head.max_block))?;
        // The tree may have gained levels nevertheless, which changes the dnode alone.
        if blocks.is_empty() && freed.is_empty() {
            return Ok(());
        }
        let level = now.levels - 1;
        let shift = self.fanout() * u32::from(level);
        let mut rest = &blocks[..];
        for i in 0..usize::from(now.head.nblkptr.min(3)) {
            let end = (i as u64 + 1)
                .checked_shl(shift)
                .filter(|e| e >> shift == i as u64 + 1)
                .unwrap_or(u64::MAX);
            // Blocks are sorted, so each pointer of the dnode has a run of them.
            let cut = rest.partition_point(|(id, _)| *id < end);
            let (mine, later) = rest.split_at(cut);
            rest = later;
            let root = self.sync_node(level, i as u64, *now.blkptr.at(i), mine, freed)?;
            now.blkptr.set(i, root);
        }
        // The dnode comes from disk: it may claim too few levels for its blocks.
        if !rest.is_empty() {
            return Err(Error::corrupt(
                self.place(0, rest[0].0),
                "a block beyond the block tree",
            ));
        }
        Ok(())
    }

    /// Adds levels until `last` is within reach.
    fn grow(&self, now: &mut Synced, last: u64) -> Result<()> {
        let nblkptr = u64::from(now.head.nblkptr.min(3));
        loop {
            let shift = self.fanout() * u32::from(now.levels - 1);
            if shift >= 64
                || nblkptr
                    .checked_shl(shift)
                    .is_none_or(|n| n >> shift != nblkptr || n > last)
            {
                return Ok(());
            }
            self.add_level(now)?;
        }
    }

    fn add_level(&self, now: &mut Synced) -> Result<()> {
        let old = now.blkptr.all();
        let level = now.levels;
        // An empty tree needs no block above it. Only the birth of its holes is kept, for an
        // incremental send.
        let top = if old.iter().all(BlockPointer::is_hole) {
            let any = old.iter().find(|bp| bp.logical_birth() != 0);
            match any {
                Some(_) if self.settings.hole_birth => BlockPointer::hole_with_birth(
                    1 << self.head.indirect_shift,
                    self.head.object_type,
                    level,
                    self.txg.0,
                ),
                _ => BlockPointer::HOLE,
            }
        } else {
            let mut bytes = vec![0u8; 1 << self.head.indirect_shift];
            for (slot, bp) in bytes.as_chunks_mut::<BP_SIZE>().0.iter_mut().zip(&old) {
                bp.write_le(slot);
            }
            self.write_indirect(level, BlockPointer::HOLE, bytes)?
        };
        now.blkptr = [top, BlockPointer::HOLE, BlockPointer::HOLE].into();
        now.levels += 1;
        Ok(())
    }

    /// Updates the subtree of block `id` of a level and returns its pointer.
    fn sync_node(
        self: &Arc<Self>,
        level: u8,
        id: u64,
        old: BlockPointer,
        dirty: &[(u64, New)],
        freed: &RangeTree,
    ) -> Result<BlockPointer> {
        let shift = self.fanout() * u32::from(level);
        let first = id << shift;
        let end = (id + 1)
            .checked_shl(shift)
            .filter(|e| e >> shift == id + 1)
            .unwrap_or(u64::MAX);
        let span = Span::between(first, end);
        // Freeing a hole changes nothing.
        let touched_by_free = !old.is_hole() && freed.intersects(span);
        if dirty.is_empty() && !touched_by_free {
            return Ok(old);
        }
        if level == 0 {
            return match dirty.first() {
                Some((_, block)) => self.write_data(id, old, block),
                None => {
                    self.kill(&old)?;
                    Ok(self.hole(&old, 0))
                }
            };
        }
        if dirty.is_empty() && freed.contains(span) {
            // Everything is freed: the blocks below are found by reading the tree, and it is not
            // rewritten.
            self.free_subtree(level, id, &old)?;
            return Ok(self.hole(&old, level));
        }
        // A copy of the old one: readers of the old pointer still use the cached block.
        let mut bytes = self.open_indirect(level, id, &old)?;
        let child_shift = shift - self.fanout();
        let touched = self.touched_children(&bytes, first, child_shift, dirty, freed);
        // Level 0 is most of the work, and its blocks are independent of each other.
        if level == 1 && touched.len() > 1 {
            self.sync_leaves(&mut bytes, touched, dirty, first)?;
        } else {
            for child in touched {
                let child_id = (id << self.fanout()) + child as u64;
                let from = child_id << child_shift;
                let to = (child_id + 1)
                    .checked_shl(child_shift)
                    .filter(|e| e >> child_shift == child_id + 1)
                    .unwrap_or(u64::MAX);
                let lo = dirty.partition_point(|(b, _)| *b < from);
                let hi = dirty.partition_point(|(b, _)| *b < to);
                let slot = slot_of(&mut bytes, child);
                let was = BlockPointer::parse(slot, zuse_base::ByteOrder::Little);
                let new = self.sync_node(level - 1, child_id, was, &dirty[lo..hi], freed)?;
                new.write_le(slot_of(&mut bytes, child));
            }
        }
        self.close_indirect(level, old, bytes)
    }

    /// The children of an indirect block that need work, by index.
    fn touched_children(
        &self,
        bytes: &[u8],
        first: u64,
        child_shift: u32,
        dirty: &[(u64, New)],
        freed: &RangeTree,
    ) -> Vec<usize> {
        let slots = bytes.len() / BP_SIZE;
        let mut out: Vec<usize> = dirty
            .iter()
            .map(|(b, _)| ((b - first) >> child_shift) as usize)
            .collect();
        if !freed.is_empty() {
            let end =
                first.saturating_add((slots as u64).checked_shl(child_shift).unwrap_or(u64::MAX));
            for span in freed.overlapping(Span::between(first, end)) {
                let lo = (span.start.max(first) - first) >> child_shift;
                let hi = (span.end().min(end) - 1 - first) >> child_shift;
                for child in lo as usize..=(hi as usize).min(slots - 1) {
                    if bytes[child * BP_SIZE..(child + 1) * BP_SIZE]
                        .iter()
                        // A hole with a birth counts too: it is visited, and stays as it is.
                        .any(|b| *b != 0)
                    {
                        out.push(child);
                    }
                }
            }
        }
        out.sort_unstable();
        // A block may be both freed and dirty: freed first, then written.
        out.dedup();
        out
    }

    /// The level-0 children of one level-1 block, in parallel.
    fn sync_leaves(
        self: &Arc<Self>,
        bytes: &mut [u8],
        touched: Vec<usize>,
        dirty: &[(u64, New)],
        first: u64,
    ) -> Result<()> {
        let mut jobs = Vec::with_capacity(touched.len());
        let mut rest = dirty;
        for child in touched {
            let blkid = first + child as u64;
            while rest.first().is_some_and(|(b, _)| *b < blkid) {
                rest = &rest[1..];
            }
            let block = rest
                .first()
                .filter(|(b, _)| *b == blkid)
                .map(|(_, block)| block.clone());
            let old = BlockPointer::parse(slot_of(bytes, child), zuse_base::ByteOrder::Little);
            // A free of a hole.
            if block.is_none() && old.is_hole() {
                continue;
            }
            jobs.push((child, old, block));
        }
        let me = self.clone();
        let one = move |(child, old, block): (usize, BlockPointer, Option<New>)| {
            let bp = match block {
                Some(block) => me.write_data(first + child as u64, old, &block)?,
                None => {
                    me.kill(&old)?;
                    me.hole(&old, 0)
                }
            };
            Ok::<_, Error>((child, bp))
        };
        // To hand over a smaller block costs more than to write it here.
        let done = if jobs.len() > 1 && self.head.block_size >= 4096 {
            self.dnode
                .core
                .work
                .try_compute_all(self.dnode.core.devices(), jobs, one)
                .map_err(|e| Error::corrupt(self.dnode.place(), e))?
        } else {
            jobs.into_iter().map(one).collect()
        };
        for result in done {
            let (child, bp) = result?;
            bp.write_le(slot_of(bytes, child));
        }
        Ok(())
    }

    fn write_data(&self, id: u64, old: BlockPointer, new: &New) -> Result<BlockPointer> {
        let block = match new {
            New::Version(version) => match self.write_as_it_is(&old, version)? {
                Some(bp) => return Ok(bp),
                None => version.freeze()?,
            },
            New::Made => self.make(id, &old)?,
        };
        self.write_block(id, old, block)
    }

    /// Writes a version that is a clone or is in its stored form.
    fn write_as_it_is(
        &self,
        old: &BlockPointer,
        block: &DirtyBlock,
    ) -> Result<Option<BlockPointer>> {
        let content = block.content.read();
        match &*content {
            Content::Stored(stored) => self.write_stored(&self.policy(0), old, stored).map(Some),
            Content::Cloned(reference) => self.write_clone(old, reference).map(Some),
            Content::Early(early) => self.link_early(old, early),
            Content::Dirty { .. } | Content::Clean(_) => Ok(None),
        }
    }

    /// Builds a block with the maker.
    fn make(&self, id: u64, old: &BlockPointer) -> Result<Arc<Block>> {
        if !old.is_hole() && old.level() != 0 {
            let said = format!("its pointer says level {}", old.level());
            return Err(Error::corrupt(self.place(0, id), said));
        }
        let mut bytes = match self.dnode.read_child(&self.head, id, old)? {
            Some(block) => block.bytes().to_vec(),
            None => vec![0; self.head.block_size as usize],
        };
        if let Some(maker) = &self.maker {
            maker(id, &mut bytes);
        }
        Ok(Arc::new(Block::new(bytes)))
    }

    fn write_block(&self, id: u64, old: BlockPointer, block: Arc<Block>) -> Result<BlockPointer> {
        if self.dnode.core.raw {
            return self.write_raw_dnodes(id, &old, block);
        }
        let data = block.bytes();
        // The fill of a dnode block is the number of its dnodes (02-blocks).
        let fill = if self.head.object_type == object_type::DNODE {
            dnodes_in(data)
        } else {
            1
        };
        let written = self.write(&self.policy(0), &old, data, fill)?;
        let keep = self
            .settings
            .keeps(object_type::is_metadata(self.head.object_type));
        if keep {
            self.dnode.core.io.remember(&written, block);
        }
        Ok(written)
    }

    /// Replaces `old` by the pointer to a block that was written before its txg synced. `None` if
    /// it was not.
    fn link_early(&self, old: &BlockPointer, early: &Early) -> Result<Option<BlockPointer>> {
        let size = u64::from(self.head.block_size);
        // The object's block size may have changed since it was written.
        let Some(bp) = early.pointer.filter(|bp| bp.lsize() == size) else {
            return Ok(None);
        };
        let core = &self.dnode.core;
        core.io.keep_placed(self.txg, &bp)?;
        self.kill(old)?;
        self.born(&bp);
        if self
            .settings
            .keeps(object_type::is_metadata(self.head.object_type))
        {
            core.io.remember(&bp, early.block.clone());
        }
        Ok(Some(bp))
    }

    /// Replaces `old` by the pointer of a clone. The reference counts already: since this txg began
    /// to sync, before anything was freed in it.
    fn write_clone(&self, old: &BlockPointer, reference: &Reference) -> Result<BlockPointer> {
        let mut bp = *reference.pointer();
        // It is new to this tree, while its bytes keep their age.
        bp.set_birth(self.txg.0, bp.physical_birth());
        bp.set_fill(1);
        self.kill(old)?;
        self.born(&bp);
        reference.keep();
        Ok(bp)
    }

    /// Writes a block in its stored form in place of `old`, and updates the ledger.
    fn write_stored(
        &self,
        policy: &WritePolicy,
        old: &BlockPointer,
        stored: &StoredBlock,
    ) -> Result<BlockPointer> {
        let core = &self.dnode.core;
        let bp = match &stored.crypt {
            Some(form) => {
                let raw = RawBlock {
                    stored: &stored.bytes,
                    logical_size: stored.logical_size.into(),
                    compression: stored.compression,
                    order: form.order,
                    crypt: form.params,
                };
                core.io.write_raw(self.txg, policy, &raw, 1)?
            }
            None if core.raw => return Err(self.in_clear(0)),
            None => core.io.write_compressed(
                self.txg,
                policy,
                core.key.as_deref(),
                &stored.bytes,
                stored.logical_size.into(),
                stored.compression,
                1,
            )?,
        };
        self.kill(old)?;
        self.born(&bp);
        Ok(bp)
    }

    /// The error for a level-0 block of a raw object set without its MAC.
    fn in_clear(&self, id: u64) -> Error {
        Error::corrupt_as(
            zuse_base::Corruption::Authentication,
            self.place(0, id),
            "a block in clear in an object set without key",
        )
    }

    /// Writes a dnode block of a raw object set, with the salt, IV and MAC from the stream.
    fn write_raw_dnodes(
        &self,
        id: u64,
        old: &BlockPointer,
        block: Arc<Block>,
    ) -> Result<BlockPointer> {
        let core = &self.dnode.core;
        if self.head.object_type != object_type::DNODE {
            return Err(self.in_clear(id));
        }
        if zuse_codec::is_zero(block.bytes()) {
            self.kill(old)?;
            return Ok(self.hole(old, 0));
        }
        // Without them the block is about to become empty: its objects are freed over several txgs.
        let old_form = (old.kind() == BpKind::Normal && old.uses_crypt()).then(|| RawForm {
            order: old.byte_order(),
            params: CryptParams::of(old),
        });
        let Some(form) = core.raw_form(self.txg, id).or(old_form) else {
            return Err(Error::corrupt_as(
                zuse_base::Corruption::Authentication,
                self.place(0, id),
                "no salt, IV and MAC came for a block of dnodes",
            ));
        };
        let mut stored = block.bytes().to_vec();
        if form.order == ByteOrder::Big {
            swap_block(object_type::DNODE, 0, &mut stored)
                .map_err(|e| e.at(self.place(0, id).to_string()))?;
        }
        let raw = RawBlock {
            stored: &stored,
            logical_size: stored.len() as u64,
            compression: Compression::Off.to_u8(),
            order: form.order,
            crypt: form.params,
        };
        let fill = dnodes_in(block.bytes());
        let bp = core.io.write_raw(self.txg, &self.policy(0), &raw, fill)?;
        self.kill(old)?;
        self.born(&bp);
        core.io.remember_locked(&bp, block);
        Ok(bp)
    }

    /// Writes a block in place of `old`, and updates the ledger.
    fn write(
        &self,
        policy: &WritePolicy,
        old: &BlockPointer,
        data: &[u8],
        fill: u64,
    ) -> Result<BlockPointer> {
        let core = &self.dnode.core;
        if core.raw {
            if policy.level == 0 {
                return Err(self.in_clear(0));
            }
            let bp = core.io.write_raw_indirect(self.txg, policy, data, fill)?;
            self.kill(old)?;
            self.born(&bp);
            return Ok(bp);
        }
        let written =
            core.io
                .write_keyed(self.txg, policy, core.key.as_deref(), old, data, fill)?;
        if !written.in_place {
            self.kill(old)?;
            self.born(&written.bp);
        }
        Ok(written.bp)
    }

    fn sync_spill(&self, now: &mut Synced, change: &SpillChange) -> Result<()> {
        let old = now.spill.as_deref().copied().unwrap_or(BlockPointer::HOLE);
        match change {
            SpillChange::Keep => {}
            SpillChange::Remove => {
                self.kill(&old)?;
                now.spill = None;
            }
            SpillChange::Stored(stored) => {
                let policy = self
                    .settings
                    .policy(self.head.bonus_type, 0, true, 0, 0, self.pass);
                now.spill = Some(Box::new(self.write_stored(&policy, &old, stored)?));
            }
            SpillChange::Set(block, _) => {
                let policy = self
                    .settings
                    .policy(self.head.bonus_type, 0, true, 0, 0, self.pass);
                // A spill block that is all zeros cannot happen: it starts with a magic.
                let bp = self.write(&policy, &old, block.bytes(), 1)?;
                if self.settings.keeps(true) {
                    self.dnode.core.io.remember(&bp, block.clone());
                }
                now.spill = (!bp.is_hole()).then(|| Box::new(bp));
            }
        }
        Ok(())
    }
}

fn slot_of(bytes: &mut [u8], child: usize) -> &mut [u8; BP_SIZE] {
    &mut bytes.as_chunks_mut::<BP_SIZE>().0[child]
}

/// Allocated dnodes in a dnode block.
fn dnodes_in(block: &[u8]) -> u64 {
    crate::objset::dnode_starts(block).count_ones().into()
}

/// The state of an object when a txg begins to write it: as last written, or empty.
fn start_of(head: Head, before: Option<&Synced>) -> Synced {
    match before {
        Some(old) => Synced {
            head,
            levels: old.levels,
            flags: old.flags,
            blkptr: old.blkptr.clone(),
            used: old.used,
            spill: old.spill.clone(),
            shortcuts: old.shortcuts.clone(),
        },
        None => Synced {
            head,
            levels: 1,
            flags: 0,
            blkptr: Default::default(),
            used: 0,
            spill: None,
            shortcuts: Default::default(),
        },
    }
}

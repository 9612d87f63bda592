//! Lists of block pointers in the MOS: the entries of deadlists, and blocks waiting to be freed.
//!
//! ```text
//!   bonus: counts and totals ── data: pointers[num_blkptrs] (128 bytes each)
//!                            └─ sub-list array: object numbers of further lists
//! ```
//! Totals of a list include its sub-lists. A new list gets the longest header that the pool's
//! version knows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::{Dnode, DnodeSpec, Objset, Tx};
use zuse_format::BlockPointer;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dsl::BpobjPhys;
use zuse_format::object_type as ot;

use crate::context::Ctx;
use crate::meta::DIRECTORY;
use crate::sizes::Sizes;
use crate::version::VERSION_DEADLISTS;

const BLOCK: u32 = 128 * 1024;
/// Entries that are read or written at once: one block of them.
const CHUNK: usize = BLOCK as usize / BP_SIZE;
pub(crate) const EMPTY_FEATURE: &str = "com.delphix:empty_bpobj";
const LIVELIST_FEATURE: &str = "com.delphix:livelist";
pub(crate) const EMPTY_KEY: &str = "empty_bpobj";
/// More entries than any list has, whose size in bytes still fits a number.
const MOST_ENTRIES: u64 = 1 << 48;
/// Depth of nested sub-lists that is accepted from disk; enqueueing makes at most two levels.
const DEPTH_LIMIT: u32 = 16;

/// An open list.
pub(crate) struct Bpobj {
    mos: Arc<Objset>,
    dnode: Arc<Dnode>,
}

impl Bpobj {
    pub fn open(mos: &Arc<Objset>, object: u64) -> Result<Self> {
        let dnode = mos.dnode(ObjectId(object))?;
        if dnode.object_type() != ot::BPOBJ {
            return Err(Error::corrupt(
                dnode.place(),
                "it is not a list of block pointers",
            ));
        }
        Ok(Self {
            mos: mos.clone(),
            dnode,
        })
    }

    /// A new, empty list.
    pub fn create(ctx: &Ctx<'_>) -> Result<u64> {
        let len = match ctx.meta.version() {
            0..3 => BpobjPhys::SIZE_V0,
            3..VERSION_DEADLISTS => BpobjPhys::SIZE_V1,
            // Only lists created while the feature is active can count frees.
            _ if ctx.spa.feature_count(LIVELIST_FEATURE) > 0 => BpobjPhys::SIZE_V3,
            _ => BpobjPhys::SIZE_V2,
        };
        create_with(&ctx.meta.mos, ctx.tx, BLOCK, len)
    }

    pub fn object(&self) -> u64 {
        self.dnode.object().0
    }

    pub fn phys(&self) -> Result<BpobjPhys> {
        let phys = self
            .dnode
            .with_bonus(BpobjPhys::parse)
            .map_err(|e| e.at(self.dnode.place().to_string()))?;
        // A forged count would overwrite the first pointers, or make a walk endless.
        let blocks = self.dnode.max_block().saturating_add(1);
        let bytes = blocks.saturating_mul(u64::from(self.dnode.block_size()));
        let room = (bytes / BP_SIZE as u64).min(MOST_ENTRIES);
        if phys.num_blkptrs > room || phys.num_subobjs > MOST_ENTRIES {
            return Err(Error::corrupt(
                self.dnode.place(),
                format!(
                    "a list of {} block pointers and {} lists has room for {room}",
                    phys.num_blkptrs, phys.num_subobjs
                ),
            ));
        }
        Ok(phys)
    }

    fn put_phys(&self, tx: &Tx, phys: &BpobjPhys) -> Result<()> {
        self.dnode.edit_bonus(tx, |b| {
            let bytes = phys.to_bytes();
            // The bonus length decides which fields exist (04-dsl §5.3): old headers stay short.
            let n = bytes.len().min(b.len());
            b[..n].copy_from_slice(&bytes[..n]);
        })
    }

    /// Sizes of everything in it. Lists from before version 3 have no such totals, so their entries
    /// are read.
    pub fn totals(&self) -> Result<Sizes> {
        let phys = self.phys()?;
        // Lists of old pools have no totals, so every entry is read.
        if phys.has_sizes() {
            return Ok(Sizes::of(phys.bytes, phys.comp, phys.uncomp));
        }
        let mut sum = Sizes::default();
        self.for_each(&mut |bp, _| {
            sum += Sizes::of_block(self.mos.io(), bp);
            Ok(())
        })?;
        Ok(sum)
    }

    fn add_totals(&self, phys: &mut BpobjPhys, s: Sizes) -> Result<()> {
        let of = || format!("block pointer list {}", self.dnode.object().0);
        [phys.bytes, phys.comp, phys.uncomp] = s.onto([phys.bytes, phys.comp, phys.uncomp], of)?;
        Ok(())
    }

    fn too_deep(&self) -> Error {
        Error::endless(
            self.dnode.place(),
            "lists of block pointers are nested too deep",
        )
    }

    /// Appends blocks; `total` is the sum of their sizes.
    pub fn append(&self, tx: &Tx, blocks: &[BlockPointer], total: Sizes) -> Result<()> {
        self.append_as(tx, blocks, total, false)
    }

    /// Appends entries to a livelist that say that blocks were freed.
    pub fn append_frees(&self, tx: &Tx, blocks: &[BlockPointer], total: Sizes) -> Result<()> {
        self.append_as(tx, blocks, -total, true)
    }

    fn append_as(&self, tx: &Tx, blocks: &[BlockPointer], total: Sizes, freed: bool) -> Result<()> {
        let mut phys = self.phys()?;
        // A header without that count would make the frees look like allocations.
        if freed && !phys.has_freed() {
            return Err(Error::corrupt(
                self.dnode.place(),
                "a part of a livelist cannot hold frees",
            ));
        }
        let mut bytes = Vec::new();
        for blocks in blocks.chunks(CHUNK) {
            bytes.resize(blocks.len() * BP_SIZE, 0);
            for (bp, out) in blocks.iter().zip(bytes.chunks_exact_mut(BP_SIZE)) {
                // Without fill, and with the checksum of a dedup block only (04-dsl §5.3).
                BpobjPhys::stored_pointer(bp, freed).write_le(out);
            }
            self.dnode
                .write_at(tx, phys.num_blkptrs * BP_SIZE as u64, &bytes)?;
            // After the entries are written. The header is kept in memory until the end and written
            // once.
            phys.num_blkptrs += blocks.len() as u64;
        }
        phys.num_freed += if freed { blocks.len() as u64 } else { 0 };
        self.add_totals(&mut phys, total)?;
        self.put_phys(tx, &phys)
    }

    /// Calls `f` with the list's own entries, the newest first; `true` marks a free.
    pub fn for_each_back(
        &self,
        f: &mut dyn FnMut(&BlockPointer, bool) -> Result<()>,
    ) -> Result<()> {
        let phys = self.phys()?;
        let mut left = phys.num_blkptrs;
        let mut bytes = Vec::new();
        while left > 0 {
            let n = left.min(CHUNK as u64);
            left -= n;
            bytes.resize(n as usize * BP_SIZE, 0);
            // Chunk by chunk from the end, because a list may be larger than memory.
            self.dnode.read_at(left * BP_SIZE as u64, &mut bytes)?;
            for i in (0..n as usize).rev() {
                let bp = BlockPointer::at(&bytes, i * BP_SIZE).unwrap_or_default();
                f(&bp, phys.has_freed() && BpobjPhys::is_freed(&bp))?;
            }
        }
        Ok(())
    }

    fn subobjs(&self, phys: &BpobjPhys) -> Result<Vec<u64>> {
        // OpenZFS leaves the count behind when it moves the array away (04-dsl §5.3).
        if phys.subobjs == 0 || phys.num_subobjs == 0 {
            return Ok(Vec::new());
        }
        // All numbers are held at once.
        if phys.num_subobjs > 1 << 24 {
            return Err(Error::corrupt(
                self.dnode.place(),
                format!("{} sub-lists", phys.num_subobjs),
            ));
        }
        let array = self.mos.dnode(ObjectId(phys.subobjs))?;
        let mut bytes = vec![0; phys.num_subobjs as usize * 8];
        array.read_at(0, &mut bytes)?;
        Ok(bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| u64::from_le_bytes(*b))
            .collect())
    }

    /// Calls `f` with every block, sub-lists included; `true` marks a free (livelists).
    pub fn for_each(&self, f: &mut dyn FnMut(&BlockPointer, bool) -> Result<()>) -> Result<()> {
        self.visit(f, 0)
    }

    fn visit(
        &self,
        f: &mut dyn FnMut(&BlockPointer, bool) -> Result<()>,
        depth: u32,
    ) -> Result<()> {
        // Damaged lists may contain each other: the recursion is bounded.
        if depth > DEPTH_LIMIT {
            return Err(self.too_deep());
        }
        let phys = self.phys()?;
        let mut at = 0;
        while at < phys.num_blkptrs {
            let n = (phys.num_blkptrs - at).min(1024);
            let mut bytes = vec![0; n as usize * BP_SIZE];
            self.dnode.read_at(at * BP_SIZE as u64, &mut bytes)?;
            for i in 0..n as usize {
                let bp = BlockPointer::at(&bytes, i * BP_SIZE).unwrap_or_default();
                f(&bp, phys.has_freed() && BpobjPhys::is_freed(&bp))?;
            }
            at += n;
        }
        for sub in self.subobjs(&phys)? {
            Self::open(&self.mos, sub)?.visit(f, depth + 1)?;
        }
        Ok(())
    }

    /// Moves another list, which is not the shared empty list, into this one. `sub` belongs to this
    /// list afterwards.
    pub fn enqueue(&self, ctx: &Ctx<'_>, sub: u64) -> Result<()> {
        if drop_if_empty_list(ctx, sub)? {
            return Ok(());
        }
        let list = Self::open(&self.mos, sub)?;
        // A copy of the header: the original changes below only if the list is kept.
        let theirs = list.phys()?;
        let mut subs = list.subobjs(&theirs)?;
        if theirs.num_blkptrs == 0 && subs.is_empty() {
            // An empty sub-list would only make each walk longer.
            return list.free(ctx);
        }
        let mut phys = self.phys()?;
        if !phys.has_subobjs() {
            return Err(Error::corrupt(
                self.dnode.place(),
                "a list of an old pool cannot hold lists",
            ));
        }
        // Short lists are copied, and so are short arrays of sub-lists. Otherwise each merge of two
        // snapshots' lists would nest them one level deeper.
        let short = list.dnode.max_block() == 0;
        if short && theirs.num_blkptrs > u64::from(list.dnode.block_size()) / BP_SIZE as u64 {
            return Err(Error::corrupt(
                list.dnode.place(),
                format!("{} block pointers in one block", theirs.num_blkptrs),
            ));
        }
        if !subs.is_empty() && subs.len() <= BLOCK as usize / 8 {
            let mut moved = Sizes::default();
            if !short {
                // The list keeps its own entries alone, so its totals lose those of its sub-lists.
                for sub in &subs {
                    moved += Self::open(&self.mos, *sub)?.totals()?;
                }
            }
            self.push_subobjs(ctx, &mut phys, &subs)?;
            // Only the array: its lists belong to this list now.
            ctx.free(theirs.subobjs)?;
            subs.clear();
            if !short {
                let mut rest = theirs;
                (rest.subobjs, rest.num_subobjs) = (0, 0);
                // Only its own entries are left in it.
                list.add_totals(&mut rest, -moved)?;
                list.put_phys(ctx.tx, &rest)?;
            }
        }
        if subs.is_empty() && short {
            let mut bytes = vec![0; theirs.num_blkptrs as usize * BP_SIZE];
            list.dnode.read_at(0, &mut bytes)?;
            self.dnode
                .write_at(ctx.tx, phys.num_blkptrs * BP_SIZE as u64, &bytes)?;
            phys.num_blkptrs += theirs.num_blkptrs;
            ctx.free(sub)?;
        } else {
            self.push_subobjs(ctx, &mut phys, &[sub])?;
        }
        // By its old header, which includes the sub-lists that were moved above.
        let all = Sizes::of(theirs.bytes, theirs.comp, theirs.uncomp);
        self.add_totals(&mut phys, all)?;
        self.put_phys(ctx.tx, &phys)
    }

    fn push_subobjs(&self, ctx: &Ctx<'_>, phys: &mut BpobjPhys, subs: &[u64]) -> Result<()> {
        if phys.subobjs == 0 {
            let spec = DnodeSpec::new(ot::BPOBJ_SUBOBJ).block_size(BLOCK);
            // Created with the first sub-list, because most lists have none.
            phys.subobjs = self.mos.allocate(ctx.tx, &spec)?.object().0;
            phys.num_subobjs = 0;
        }
        let array = self.mos.dnode(ObjectId(phys.subobjs))?;
        let bytes: Vec<u8> = subs.iter().flat_map(|s| s.to_le_bytes()).collect();
        array.write_at(ctx.tx, phys.num_subobjs * 8, &bytes)?;
        phys.num_subobjs += subs.len() as u64;
        Ok(())
    }

    /// Takes blocks off the list, newest part first, and calls `f` until it returns `false` (that
    /// block stays). Returns the sizes taken off, whether the list is empty now, and its damage, if
    /// any. Blocks before a damaged place stay taken off, or they would be freed twice.
    ///
    /// # Errors
    /// The errors of `f` and of writing: the txg must be abandoned.
    pub fn drain(
        &self,
        ctx: &Ctx<'_>,
        f: &mut dyn FnMut(&BlockPointer) -> Result<bool>,
    ) -> Result<(Sizes, bool, Option<Error>)> {
        let mut flaw = None;
        let (sizes, empty) = self.drain_to(ctx, f, &mut flaw, 0)?;
        Ok((sizes, empty, flaw))
    }

    fn drain_to(
        &self,
        ctx: &Ctx<'_>,
        f: &mut dyn FnMut(&BlockPointer) -> Result<bool>,
        flaw: &mut Option<Error>,
        depth: u32,
    ) -> Result<(Sizes, bool)> {
        // Nothing of this list has been taken yet: damage to it costs the list only.
        let begun = match depth {
            0..=DEPTH_LIMIT => self.phys(),
            _ => Err(self.too_deep()),
        };
        let mut phys = match begun {
            Ok(phys) => phys,
            Err(e) => {
                *flaw = Some(damage(e)?);
                return Ok((Sizes::default(), false));
            }
        };
        let before = (phys.num_blkptrs, phys.num_subobjs);
        let mut taken = Sizes::default();
        let mut go_on = self.drain_own(ctx, f, flaw, &mut phys, &mut taken)?;
        if before.0 != phys.num_blkptrs {
            // Also after a stop: an entry that was freed must not be found again.
            self.dnode.free_range(
                ctx.tx,
                phys.num_blkptrs * BP_SIZE as u64,
                (before.0 - phys.num_blkptrs) * BP_SIZE as u64,
            )?;
        }
        if go_on {
            go_on = self.drain_subs(ctx, f, flaw, depth, &mut phys, &mut taken)?;
        }
        // Only when all sub-lists are gone: until then the array says which are left.
        if go_on && phys.subobjs != 0 {
            ctx.free(phys.subobjs)?;
            phys.subobjs = 0;
            phys.num_subobjs = 0;
        }
        // Totals include those of sub-lists, so each level above subtracts the same blocks.
        self.add_totals(&mut phys, -taken)?;
        if !taken.is_zero() || before != (phys.num_blkptrs, phys.num_subobjs) {
            self.put_phys(ctx.tx, &phys)?;
        }
        Ok((taken, go_on))
    }

    /// Takes this list's own blocks, the newest first; false if it stopped before the end.
    fn drain_own(
        &self,
        ctx: &Ctx<'_>,
        f: &mut dyn FnMut(&BlockPointer) -> Result<bool>,
        flaw: &mut Option<Error>,
        phys: &mut BpobjPhys,
        taken: &mut Sizes,
    ) -> Result<bool> {
        while phys.num_blkptrs > 0 {
            let n = phys.num_blkptrs.min(1024);
            let first = phys.num_blkptrs - n;
            let mut bytes = vec![0; n as usize * BP_SIZE];
            if let Err(e) = self.dnode.read_at(first * BP_SIZE as u64, &mut bytes) {
                *flaw = Some(damage(e)?);
                return Ok(false);
            }
            for i in (0..n as usize).rev() {
                let bp = BlockPointer::at(&bytes, i * BP_SIZE).unwrap_or_default();
                // It was not freed, so it stays in the list.
                if !f(&bp)? {
                    return Ok(false);
                }
                *taken += Sizes::of_block(&ctx.meta.io, &bp);
                phys.num_blkptrs -= 1;
            }
        }
        Ok(true)
    }

    /// Takes the sub-lists, the newest first, and frees each that is empty; false if it stopped
    /// before the end.
    fn drain_subs(
        &self,
        ctx: &Ctx<'_>,
        f: &mut dyn FnMut(&BlockPointer) -> Result<bool>,
        flaw: &mut Option<Error>,
        depth: u32,
        phys: &mut BpobjPhys,
        taken: &mut Sizes,
    ) -> Result<bool> {
        let mut subs = match self.subobjs(phys) {
            Ok(all) => all,
            Err(e) => {
                *flaw = Some(damage(e)?);
                return Ok(false);
            }
        };
        // The last one first, so that the array can be truncated at the end.
        while let Some(sub) = subs.last().copied() {
            let list = match Self::open(&self.mos, sub) {
                Ok(list) => list,
                Err(e) => {
                    *flaw = Some(damage(e)?);
                    return Ok(false);
                }
            };
            // An error here ends the txg: blocks that it freed would still be in the list, and be
            // freed again.
            let (sizes, empty) = list.drain_to(ctx, f, flaw, depth + 1)?;
            *taken += sizes;
            if !empty {
                return Ok(false);
            }
            // It was drained, so only the object is left.
            list.free(ctx)?;
            subs.pop();
            phys.num_subobjs -= 1;
            let array = self.mos.dnode(ObjectId(phys.subobjs))?;
            // OpenZFS expects no numbers beyond the count (04-dsl §5.3).
            array.free_range(ctx.tx, phys.num_subobjs * 8, 8)?;
        }
        Ok(true)
    }

    /// Frees the list and its sub-lists, but not the blocks in them.
    pub fn free(&self, ctx: &Ctx<'_>) -> Result<()> {
        let phys = self.phys()?;
        for sub in self.subobjs(&phys)? {
            Self::open(&self.mos, sub)?.free(ctx)?;
        }
        if phys.subobjs != 0 {
            ctx.free(phys.subobjs)?;
        }
        ctx.free(self.object())
    }
}

/// Returns an error about damage to a list as a value; any other error ends the txg.
pub(crate) fn damage(error: Error) -> Result<Error> {
    match error {
        Error::Corrupt { .. } | Error::Device { .. } => Ok(error),
        // A list that is named but does not exist is damage as well.
        e if e.is(zuse_base::Errno::NOENT) => Ok(Error::corrupt("a list of block pointers", e)),
        other => Err(other),
    }
}

/// A new list with a block size and a header length.
pub(crate) fn create_with(mos: &Arc<Objset>, tx: &Tx, block: u32, header: usize) -> Result<u64> {
    let spec = DnodeSpec::new(ot::BPOBJ)
        .block_size(block)
        .bonus(ot::BPOBJ_HDR, header as u16);
    Ok(mos.allocate(tx, &spec)?.object().0)
}

/// The shared empty list, if there is one.
fn empty_list(ctx: &Ctx<'_>) -> Result<Option<u64>> {
    if ctx.spa.feature_count(EMPTY_FEATURE) == 0 {
        return Ok(None);
    }
    // Remembered, because it would be looked up for each of thousands of keys.
    let known = ctx.dsl.empty_list.load(Relaxed);
    if known != 0 {
        return Ok(Some(known));
    }
    let found = ctx.meta.table(DIRECTORY)?.get_u64(EMPTY_KEY)?;
    ctx.dsl.empty_list.store(found.unwrap_or(0), Relaxed);
    Ok(found)
}

/// Frees the shared empty list, which nothing refers to any more.
fn free_empty_list(ctx: &Ctx<'_>, list: u64) -> Result<()> {
    // Forgotten first: its number may be assigned again in this txg.
    ctx.dsl.empty_list.store(0, Relaxed);
    ctx.meta.table(DIRECTORY)?.remove(ctx.tx, EMPTY_KEY)?;
    ctx.free(list)
}

/// Takes a reference to the shared empty list; without the feature, creates a list.
pub(crate) fn take_empty_list(ctx: &Ctx<'_>) -> Result<u64> {
    if !ctx.enabled(EMPTY_FEATURE) {
        return Bpobj::create(ctx);
    }
    let object = match empty_list(ctx)? {
        Some(object) => object,
        None => {
            let object = Bpobj::create(ctx)?;
            ctx.meta
                .table(DIRECTORY)?
                .put_u64(ctx.tx, EMPTY_KEY, object)?;
            ctx.dsl.empty_list.store(object, Relaxed);
            object
        }
    };
    // The feature's count is the number of references: the last one frees the list.
    ctx.feature_add(EMPTY_FEATURE, 1)?;
    Ok(object)
}

/// Drops a reference and returns true, if `list` is the shared empty list.
pub(crate) fn drop_if_empty_list(ctx: &Ctx<'_>, list: u64) -> Result<bool> {
    if !is_empty_list(ctx, list)? {
        return Ok(false);
    }
    ctx.feature_add(EMPTY_FEATURE, -1)?;
    if ctx.spa.feature_count(EMPTY_FEATURE) == 0 {
        free_empty_list(ctx, list)?;
    }
    Ok(true)
}

/// References to the shared empty list, taken and dropped in any number, and counted once by
/// [`Self::note`]. No other code may take or drop references in between.
pub(crate) struct EmptyLists {
    /// The list, if there is one.
    object: Option<u64>,
    more: i64,
}

impl EmptyLists {
    pub fn of(ctx: &Ctx<'_>) -> Result<Self> {
        let object = empty_list(ctx)?;
        Ok(Self { object, more: 0 })
    }

    /// As [`take_empty_list`].
    pub fn take(&mut self, ctx: &Ctx<'_>) -> Result<u64> {
        match self.object {
            Some(object) => {
                self.more += 1;
                Ok(object)
            }
            None => {
                let object = take_empty_list(ctx)?;
                if ctx.enabled(EMPTY_FEATURE) {
                    self.object = Some(object);
                }
                Ok(object)
            }
        }
    }

    /// Drops a reference and returns true, if `list` is the shared empty list.
    pub fn give_back(&mut self, list: u64) -> bool {
        let same = self.object == Some(list);
        self.more -= i64::from(same);
        same
    }

    /// Counts the references that were taken and dropped.
    pub fn note(self, ctx: &Ctx<'_>) -> Result<()> {
        let Some(list) = self.object.filter(|_| self.more != 0) else {
            return Ok(());
        };
        ctx.feature_add(EMPTY_FEATURE, self.more)?;
        if ctx.spa.feature_count(EMPTY_FEATURE) == 0 {
            free_empty_list(ctx, list)?;
        }
        Ok(())
    }
}

/// Whether `list` is the shared empty list.
pub(crate) fn is_empty_list(ctx: &Ctx<'_>, list: u64) -> Result<bool> {
    Ok(empty_list(ctx)? == Some(list))
}

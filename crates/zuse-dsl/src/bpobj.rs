//! Lists of block pointers in the MOS: the entries of deadlists, and what waits to be freed.
//!
//! ```text
//!   bonus: counts and totals ── data: pointers[num_blkptrs] (128 bytes each)
//!                            └─ sub-list array: object numbers of further lists
//! ```
//! Totals of a list include its sub-lists. A new list is given the longest header that the pool's
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
/// Entries that are read or written at once: a block of them.
const CHUNK: usize = BLOCK as usize / BP_SIZE;
pub(crate) const EMPTY_FEATURE: &str = "com.delphix:empty_bpobj";
const LIVELIST_FEATURE: &str = "com.delphix:livelist";
pub(crate) const EMPTY_KEY: &str = "empty_bpobj";
/// Sub-lists inside sub-lists that a reader follows: enqueueing makes at most two levels.
/// More entries than any list has; their bytes can be counted.
const MOST_ENTRIES: u64 = 1 << 48;
const DEPTH_LIMIT: u32 = 16;

/// A list that is at hand.
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
            // Only lists that are made while the feature is active can count frees.
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
        // A forged count would have pointers written over those at the beginning, or a walk never
        // end.
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
            let n = bytes.len().min(b.len());
            b[..n].copy_from_slice(&bytes[..n]);
        })
    }

    /// Bytes of everything in it. Lists of before version 3 say less than that: they are read.
    pub fn totals(&self) -> Result<Sizes> {
        let phys = self.phys()?;
        // Lists of old pools do not say it: then every entry is read.
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

    /// Appends entries of a livelist that say that blocks left it.
    pub fn append_frees(&self, tx: &Tx, blocks: &[BlockPointer], total: Sizes) -> Result<()> {
        self.append_as(tx, blocks, -total, true)
    }

    fn append_as(&self, tx: &Tx, blocks: &[BlockPointer], total: Sizes, freed: bool) -> Result<()> {
        let mut phys = self.phys()?;
        // A header without that count would take the frees for allocations.
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
                BpobjPhys::stored_pointer(bp, freed).write_le(out);
            }
            self.dnode
                .write_at(tx, phys.num_blkptrs * BP_SIZE as u64, &bytes)?;
            // After they are written, and kept in memory till the end: the header is changed once.
            phys.num_blkptrs += blocks.len() as u64;
        }
        phys.num_freed += if freed { blocks.len() as u64 } else { 0 };
        self.add_totals(&mut phys, total)?;
        self.put_phys(tx, &phys)
    }

    /// Gives the list's own entries to `f`, the newest first; `true` marks a free.
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
            // Chunk by chunk from the end: a list may be larger than the memory.
            self.dnode.read_at(left * BP_SIZE as u64, &mut bytes)?;
            for i in (0..n as usize).rev() {
                let bp = BlockPointer::at(&bytes, i * BP_SIZE).unwrap_or_default();
                f(&bp, phys.has_freed() && BpobjPhys::is_freed(&bp))?;
            }
        }
        Ok(())
    }

    fn subobjs(&self, phys: &BpobjPhys) -> Result<Vec<u64>> {
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

    /// Gives every block, sub-lists included, to `f`; `true` marks a free (livelists).
    pub fn for_each(&self, f: &mut dyn FnMut(&BlockPointer, bool) -> Result<()>) -> Result<()> {
        self.visit(f, 0)
    }

    fn visit(
        &self,
        f: &mut dyn FnMut(&BlockPointer, bool) -> Result<()>,
        depth: u32,
    ) -> Result<()> {
        // Lists that lead to each other must not recurse for ever.
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

    /// Puts another list into this one, which is not the shared empty list; `sub` belongs to this
    /// list afterwards.
    pub fn enqueue(&self, ctx: &Ctx<'_>, sub: u64) -> Result<()> {
        if drop_if_empty_list(ctx, sub)? {
            return Ok(());
        }
        let list = Self::open(&self.mos, sub)?;
        // A copy of the header: it is changed below only where the list goes on.
        let theirs = list.phys()?;
        let mut subs = list.subobjs(&theirs)?;
        if theirs.num_blkptrs == 0 && subs.is_empty() {
            // An empty list would only make each walk longer.
            return list.free(ctx);
        }
        let mut phys = self.phys()?;
        if !phys.has_subobjs() {
            return Err(Error::corrupt(
                self.dnode.place(),
                "a list of an old pool cannot hold lists",
            ));
        }
        // Short lists are copied, and so are short arrays of sub-lists: else each merge of two
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
                for sub in &subs {
                    moved += Self::open(&self.mos, *sub)?.totals()?;
                }
            }
            self.push_subobjs(ctx, &mut phys, &subs)?;
            // The array alone: the lists in it are ours now.
            ctx.free(theirs.subobjs)?;
            subs.clear();
            if !short {
                let mut rest = theirs;
                (rest.subobjs, rest.num_subobjs) = (0, 0);
                // Its own entries are all that it still has.
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
        let all = Sizes::of(theirs.bytes, theirs.comp, theirs.uncomp);
        self.add_totals(&mut phys, all)?;
        self.put_phys(ctx.tx, &phys)
    }

    fn push_subobjs(&self, ctx: &Ctx<'_>, phys: &mut BpobjPhys, subs: &[u64]) -> Result<()> {
        if phys.subobjs == 0 {
            let spec = DnodeSpec::new(ot::BPOBJ_SUBOBJ).block_size(BLOCK);
            // Made with the first list: most have none.
            phys.subobjs = self.mos.allocate(ctx.tx, &spec)?.object().0;
            phys.num_subobjs = 0;
        }
        let array = self.mos.dnode(ObjectId(phys.subobjs))?;
        let bytes: Vec<u8> = subs.iter().flat_map(|s| s.to_le_bytes()).collect();
        array.write_at(ctx.tx, phys.num_subobjs * 8, &bytes)?;
        phys.num_subobjs += subs.len() as u64;
        Ok(())
    }

    /// Takes blocks off the list, newest part first, and gives them to `f` until `f` says stop by
    /// `false` (that block stays). Returns the sizes taken off, whether the list is empty now, and
    /// what is wrong with it. What was taken off before a damaged place is off, or it would be
    /// freed once more another time.
    ///
    /// # Errors
    /// Those of `f` and of writing: the txg must be given up.
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
        // Up to here nothing of this list was taken: what is wrong with it costs the list.
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
            // Also where it stopped: an entry that was freed must not be found again.
            self.dnode.free_range(
                ctx.tx,
                phys.num_blkptrs * BP_SIZE as u64,
                (before.0 - phys.num_blkptrs) * BP_SIZE as u64,
            )?;
        }
        if go_on {
            go_on = self.drain_subs(ctx, f, flaw, depth, &mut phys, &mut taken)?;
        }
        // Only when all of them are gone: else the array still says which are left.
        if go_on && phys.subobjs != 0 {
            ctx.free(phys.subobjs)?;
            phys.subobjs = 0;
            phys.num_subobjs = 0;
        }
        self.add_totals(&mut phys, -taken)?;
        if !taken.is_zero() || before != (phys.num_blkptrs, phys.num_subobjs) {
            self.put_phys(ctx.tx, &phys)?;
        }
        Ok((taken, go_on))
    }

    /// Takes this list's own blocks, the newest first; false where it stopped before the end.
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
                if !f(&bp)? {
                    return Ok(false);
                }
                *taken += Sizes::of_block(&ctx.meta.io, &bp);
                phys.num_blkptrs -= 1;
            }
        }
        Ok(true)
    }

    /// Takes the lists in this one, the newest first, and frees each that is empty; false where it
    /// stopped before the end.
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
        // The last one first, so that what is freed can be cut off at the end.
        while let Some(sub) = subs.last().copied() {
            let list = match Self::open(&self.mos, sub) {
                Ok(list) => list,
                Err(e) => {
                    *flaw = Some(damage(e)?);
                    return Ok(false);
                }
            };
            // A failure in it ends the txg: what it had freed would be in the list, and be freed
            // again.
            let (sizes, empty) = list.drain_to(ctx, f, flaw, depth + 1)?;
            *taken += sizes;
            if !empty {
                return Ok(false);
            }
            // It was drained: only the object is left.
            list.free(ctx)?;
            subs.pop();
            phys.num_subobjs -= 1;
            let array = self.mos.dnode(ObjectId(phys.subobjs))?;
            array.free_range(ctx.tx, phys.num_subobjs * 8, 8)?;
        }
        Ok(true)
    }

    /// Frees the list and its sub-lists, not the blocks in them.
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

/// An error that speaks of damage in a list, as a value; any other ends the txg.
pub(crate) fn damage(error: Error) -> Result<Error> {
    match error {
        Error::Corrupt { .. } | Error::Device { .. } => Ok(error),
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
    // Looked up for each of thousands of keys otherwise.
    let known = ctx.dsl.empty_list.load(Relaxed);
    if known != 0 {
        return Ok(Some(known));
    }
    let found = ctx.meta.table(DIRECTORY)?.get_u64(EMPTY_KEY)?;
    ctx.dsl.empty_list.store(found.unwrap_or(0), Relaxed);
    Ok(found)
}

/// Frees the shared empty list, which nobody refers to any more.
fn free_empty_list(ctx: &Ctx<'_>, list: u64) -> Result<()> {
    // First forgotten, then freed: its number may be given out again in this txg.
    ctx.dsl.empty_list.store(0, Relaxed);
    ctx.meta.table(DIRECTORY)?.remove(ctx.tx, EMPTY_KEY)?;
    ctx.free(list)
}

/// One more reference to the shared empty list; a list of its own where the feature is not enabled.
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
    // The feature's count is the number of its users: with the last one the list goes.
    ctx.feature_add(EMPTY_FEATURE, 1)?;
    Ok(object)
}

/// If `list` is the shared empty list: one reference less, and true.
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

/// References to the shared empty list, taken and given back in any number and counted once, by
/// [`Self::note`]. In between nobody else takes or gives some back.
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

    /// Whether `list` is the shared empty list: then that is one reference less.
    pub fn give_back(&mut self, list: u64) -> bool {
        let same = self.object == Some(list);
        self.more -= i64::from(same);
        same
    }

    /// Counts what was taken and given back.
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

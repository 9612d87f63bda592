//! The queue of trees whose blocks are freed in the background: destroyed heads.
//!
//! The walk is post-order, objects by number. So a bookmark is enough to resume it: everything
//! before the bookmark is freed. An indirect block is freed exactly when nothing below it is left.
//! The walk pauses only at level-0 blocks of objects.
//!
//! ```text
//!   meta dnode ─ dnode block ─ objects 1, 2, … (block trees by pointer, then spill) ─ the dnode block itself
//!   then accounting objects −3, −2, −1, then the objset block
//! ```

use std::sync::Arc;

use zuse_base::{Error, ObjectId, Place, Result};
use zuse_dmu::DnodeSpec;
use zuse_format::dnode::{DNODE_SLOT, SLOTS_PER_BLOCK, scan_block};
use zuse_format::dsl::{BptreeEntry, BptreePhys, UsedKind};
use zuse_format::object_type as ot;
use zuse_format::{BlockPointer, DnodePhys, ObjsetPhys};
use zuse_io::Block;

use crate::context::Ctx;
use crate::meta::DIRECTORY;
use crate::sizes::Sizes;
use crate::sync::{Budget, Freeing};

const KEY: &str = "bptree_obj";
const FEATURE: &str = "com.delphix:async_destroy";
const BLOCK: u32 = 128 * 1024;
const SPILL: u64 = u64::MAX - 1;

/// How a walk of a tree ended.
enum Walk {
    Done,
    /// The first block that is not freed: object and block id.
    Paused(u64, u64),
}

/// More entries than any queue has, whose size in bytes still fits a number.
const MOST_ENTRIES: u64 = 1 << 48;

/// Whether blocks `[first, first + count)` of an object, or of the meta dnode (`None`), come before
/// the resume point of a walk.
pub(crate) fn lies_before(at: (u64, u64), object: Option<u64>, first: u64, count: u64) -> bool {
    let last = first.saturating_add(count - 1);
    match object {
        None => {
            let slots = SLOTS_PER_BLOCK as u64;
            last.saturating_mul(slots).saturating_add(slots - 1) < at.0
        }
        Some(object) => object < at.0 || object == at.0 && last < at.1,
    }
}

impl Ctx<'_> {
    /// Queues a tree: its blocks born after `birth_txg` are charged to the pool and freed over
    /// several txgs.
    pub(crate) fn queue_tree(
        &self,
        dir: u64,
        bp: BlockPointer,
        birth_txg: u64,
        sizes: Sizes,
    ) -> Result<()> {
        // Users see the free space at once, though freeing takes many txgs.
        self.move_to_free(dir, UsedKind::Head, sizes)?;
        // Nothing was written after the origin, so there is no tree of its own.
        if bp.is_hole() || sizes.is_zero() {
            return Ok(());
        }
        // Such an old pool has no queue: everything is freed in this txg, whatever the size.
        if !self.enabled(FEATURE) {
            let mut reaper = Reaper::new(self, birth_txg, [0; 4], Budget::unlimited());
            reaper.tree(&bp)?;
            if let Some(e) = reaper.unreadable {
                return Err(e);
            }
            return self.freed(reaper.freed);
        }
        let directory = self.meta.table(DIRECTORY)?;
        let object = match directory.get_u64(KEY)? {
            Some(object) => object,
            None => {
                let spec = DnodeSpec::new(ot::UINT64_METADATA)
                    .block_size(BLOCK)
                    .bonus(ot::UINT64_METADATA, BptreePhys::SIZE as u16);
                let object = self.meta.mos.allocate(self.tx, &spec)?.object().0;
                directory.put_u64(self.tx, KEY, object)?;
                // The feature's count is for the queue, not for its entries.
                self.feature_add(FEATURE, 1)?;
                object
            }
        };
        let dnode = self.meta.dnode(object)?;
        let mut phys = queue_of(&dnode)?;
        let entry = BptreeEntry {
            bp,
            birth_txg,
            resume: [0; 4],
        };
        dnode.write_at(
            self.tx,
            phys.end * BptreeEntry::SIZE as u64,
            &entry.to_bytes(),
        )?;
        // The entry before the count, because a reader goes by the count.
        phys.end += 1;
        add_totals(&mut phys, sizes)?;
        dnode.edit_bonus(self.tx, |b| phys.write_le(b))?;
        self.spa.note_frees();
        Ok(())
    }

    /// Frees a part of the queued trees.
    pub(crate) fn process_bptree(&self, budget: &mut Budget) -> Result<Freeing> {
        let directory = self.meta.table(DIRECTORY)?;
        let Some(object) = directory.get_u64(KEY)? else {
            return Ok(Freeing::Done);
        };
        let found = self.meta.mos.dnode(ObjectId(object));
        let found = found.and_then(|dnode| Ok((queue_of(&dnode)?, dnode)));
        let (mut phys, dnode) = match found {
            Ok(found) => found,
            Err(e) => return Freeing::stuck(e),
        };
        // The oldest entry first, because it was destroyed first.
        let mut more = false;
        let mut unreadable = None;
        while phys.begin < phys.end && !more {
            let at = phys.begin * BptreeEntry::SIZE as u64;
            let mut entry = match entry_at(&dnode, at) {
                Ok(entry) => entry,
                Err(e) => {
                    unreadable = Some(crate::bpobj::damage(e)?);
                    break;
                }
            };
            let mut freed = Sizes::default();
            // OpenZFS marks an entry so that is finished, but behind an unfinished one (04-dsl
            // §5.6).
            if entry.birth_txg != u64::MAX {
                let mut reaper = Reaper::new(
                    self,
                    entry.birth_txg,
                    entry.resume,
                    // The reaper owns the budget while it works, and returns the rest.
                    std::mem::replace(budget, Budget::unlimited()),
                );
                let walk = reaper.tree(&entry.bp);
                freed = reaper.freed;
                unreadable = reaper.unreadable;
                *budget = reaper.budget;
                if let Walk::Paused(object, block) = walk? {
                    // The form that OpenZFS continues from as well (chapter 04).
                    entry.resume = [u64::MAX, object, 0, block];
                    more = true;
                }
            }
            // In the txg that freed them: after a crash the queue must be neither ahead nor behind.
            add_totals(&mut phys, -freed)?;
            self.freed(freed)?;
            if more {
                dnode.write_at(self.tx, at, &entry.to_bytes())?;
            } else {
                dnode.free_range(self.tx, at, BptreeEntry::SIZE as u64)?;
                // The entry's place was freed above. Numbers only grow, so nothing has to be moved.
                phys.begin += 1;
            }
        }
        if phys.begin < phys.end {
            dnode.edit_bonus(self.tx, |b| phys.write_le(b))?;
            return Ok(unreadable.map_or(Freeing::More, Freeing::Stuck));
        }
        // The rest of the entry's sums (blocks of a damaged tree) leaves the queue with it.
        self.freed(Sizes::of(phys.bytes, phys.comp, phys.uncomp))?;
        directory.remove(self.tx, KEY)?;
        self.free(object)?;
        self.feature_add(FEATURE, -1)?;
        Ok(Freeing::Done)
    }
}

fn add_totals(phys: &mut BptreePhys, sizes: Sizes) -> Result<()> {
    let of = || "the queue of trees to be freed".to_owned();
    [phys.bytes, phys.comp, phys.uncomp] = sizes.onto([phys.bytes, phys.comp, phys.uncomp], of)?;
    Ok(())
}

/// The ends of the queue, and the sizes in it.
fn queue_of(dnode: &zuse_dmu::Dnode) -> Result<BptreePhys> {
    let place = dnode.place().to_string();
    let phys = dnode.with_bonus(BptreePhys::parse);
    let phys = phys.map_err(|e| e.at(place.clone()))?;
    // Checked, because it comes from disk and an offset is computed from it.
    if phys.begin > phys.end || phys.end > MOST_ENTRIES {
        let what = format!("a queue of trees goes from {} to {}", phys.begin, phys.end);
        return Err(Error::corrupt(place, what));
    }
    Ok(phys)
}

fn entry_at(dnode: &zuse_dmu::Dnode, at: u64) -> Result<BptreeEntry> {
    let mut bytes = [0; BptreeEntry::SIZE];
    dnode.read_at(at, &mut bytes)?;
    BptreeEntry::parse(&bytes).map_err(|e| e.at(dnode.place().to_string()))
}

struct Reaper<'a, 'b> {
    ctx: &'a Ctx<'b>,
    birth_txg: u64,
    /// Object and block to continue from.
    from: Option<(u64, u64)>,
    budget: Budget,
    freed: Sizes,
    /// The device error at which the walk was paused.
    unreadable: Option<Error>,
}

/// A block that a walk needs.
enum Fetched {
    Block(Arc<Block>),
    /// Damaged: everything below it is lost.
    Lost,
    /// The device failed: the walk pauses here.
    Unreadable,
}

/// The owner of the blocks that a walk is at.
#[derive(Clone, Copy)]
enum Owner {
    Meta,
    Object(u64),
    Accounting,
}

impl<'a, 'b> Reaper<'a, 'b> {
    fn new(ctx: &'a Ctx<'b>, birth_txg: u64, resume: [u64; 4], budget: Budget) -> Self {
        // All zero says from the start (04-dsl §5.6).
        let from = (resume != [0; 4]).then_some((resume[1], resume[3]));
        Self {
            ctx,
            birth_txg,
            from,
            budget,
            freed: Sizes::default(),
            unreadable: None,
        }
    }

    /// An indirect or dnode block. An error ends the txg: the resume point does not cover blocks
    /// freed before, so they would be freed again.
    fn read(&mut self, bp: &BlockPointer) -> Result<Fetched> {
        let place = Place::new("a destroyed dataset");
        match self.ctx.meta.io.read_around(bp, &place) {
            Ok(block) => Ok(Fetched::Block(block)),
            // Blocks that only this block leads to are lost space. They must not block the rest.
            Err(Error::Corrupt { .. }) => Ok(Fetched::Lost),
            Err(e @ Error::Device { .. }) => {
                self.unreadable = Some(e);
                Ok(Fetched::Unreadable)
            }
            Err(e) => Err(e),
        }
    }

    /// A pause at the start of this walk, because its tree cannot be entered.
    fn pause_at_start(&self) -> Walk {
        // The start of this walk: nothing of it is done.
        let (object, block) = self.from.unwrap_or_default();
        Walk::Paused(object, block)
    }

    fn is_ours(&self, bp: &BlockPointer) -> bool {
        // The later birth of a parent bounds those of its children. `free` decides by the exact
        // one.
        !bp.is_hole() && bp.logical_birth().max(bp.physical_birth()) > self.birth_txg
    }

    /// False if the block's own gang header cannot be read; nothing was freed then.
    fn free(&mut self, bp: &BlockPointer) -> Result<bool> {
        if bp.allocation_birth() > self.birth_txg && !bp.is_redacted() {
            match self.ctx.free_or_leak(bp) {
                Err(e @ Error::Device { .. }) => {
                    self.unreadable = Some(e);
                    return Ok(false);
                }
                other => other?,
            }
            self.freed += Sizes::of_block(&self.ctx.meta.io, bp);
            if self.budget.blocks != u64::MAX {
                // Indirect blocks count too, but do not pause the walk, because their children are
                // gone by now.
                self.budget.blocks = self.budget.blocks.saturating_sub(1);
            }
        }
        Ok(true)
    }

    /// The whole tree of an object set.
    fn tree(&mut self, root: &BlockPointer) -> Result<Walk> {
        if !self.is_ours(root) {
            return Ok(Walk::Done);
        }
        let block = match self.read(root)? {
            Fetched::Block(block) => block,
            Fetched::Lost => return Ok(Walk::Done),
            Fetched::Unreadable => return Ok(self.pause_at_start()),
        };
        // Nothing below it can be trusted, so nothing is freed by it.
        let Ok(phys) = ObjsetPhys::parse(block.bytes()) else {
            return Ok(Walk::Done);
        };
        if let Walk::Paused(o, b) = self.dnode(&phys.meta_dnode, Owner::Meta)? {
            return Ok(Walk::Paused(o, b));
        }
        // OpenZFS continues a walk in this order (04-dsl §5.6).
        for dnode in [&phys.project_used, &phys.group_used, &phys.user_used]
            .into_iter()
            .flatten()
        {
            // It never pauses: no resume point names these objects.
            self.dnode(dnode, Owner::Accounting)?;
        }
        // A parent goes after its children: after a crash in between they are found through it.
        self.free(root)?;
        Ok(Walk::Done)
    }

    fn dnode(&mut self, dnode: &DnodePhys, owner: Owner) -> Result<Walk> {
        let shift = dnode.fanout_shift();
        let top = dnode.levels.saturating_sub(1);
        for (i, bp) in dnode.blkptrs().iter().enumerate() {
            let first = (i as u64).checked_shl(shift * u32::from(top)).unwrap_or(0);
            if let Walk::Paused(o, b) = self.block(bp, top, first, shift, owner)? {
                return Ok(Walk::Paused(o, b));
            }
        }
        if let Some(spill) = &dnode.spill {
            return self.leaf(spill, SPILL, owner);
        }
        Ok(Walk::Done)
    }

    /// Whether all of `[first, first + count)` of an owner was freed before the pause.
    fn is_past(&self, owner: Owner, first: u64, count: u64) -> bool {
        let object = match owner {
            Owner::Accounting => return false,
            Owner::Meta => None,
            Owner::Object(object) => Some(object),
        };
        self.from
            // Freed in an earlier txg. Its space may belong to another block by now.
            .is_some_and(|at| lies_before(at, object, first, count))
    }

    fn block(
        &mut self,
        bp: &BlockPointer,
        level: u8,
        first: u64,
        shift: u32,
        owner: Owner,
    ) -> Result<Walk> {
        let count = 1u64
            .checked_shl(shift * u32::from(level))
            .unwrap_or(u64::MAX);
        if !self.is_ours(bp) || self.is_past(owner, first, count) {
            return Ok(Walk::Done);
        }
        if level == 0 {
            return match owner {
                Owner::Meta => self.dnode_block(bp, first),
                _ => self.leaf(bp, first, owner),
            };
        }
        let bytes = match self.read(bp)? {
            Fetched::Block(bytes) => bytes,
            Fetched::Lost => return Ok(Walk::Done),
            Fetched::Unreadable => {
                return Ok(match owner {
                    Owner::Meta => Walk::Paused(first.saturating_mul(SLOTS_PER_BLOCK as u64), 0),
                    Owner::Object(object) => Walk::Paused(object, first),
                    // These have no number for a resume point.
                    Owner::Accounting => Walk::Done,
                });
            }
        };
        let per = 1u64 << shift;
        for i in 0..per {
            let Some(child) = BlockPointer::at(bytes.bytes(), i as usize * 128) else {
                break;
            };
            let at = first.saturating_add(i.checked_shl(shift * u32::from(level - 1)).unwrap_or(0));
            if let Walk::Paused(o, b) = self.block(&child, level - 1, at, shift, owner)? {
                return Ok(Walk::Paused(o, b));
            }
        }
        self.free(bp)?;
        Ok(Walk::Done)
    }

    fn dnode_block(&mut self, bp: &BlockPointer, blkid: u64) -> Result<Walk> {
        let first = blkid.saturating_mul(SLOTS_PER_BLOCK as u64);
        let block = match self.read(bp)? {
            Fetched::Block(block) => block,
            Fetched::Lost => return Ok(Walk::Done),
            Fetched::Unreadable => return Ok(Walk::Paused(first, 0)),
        };
        for (slot, view) in scan_block(block.bytes()) {
            // A damaged dnode loses its blocks; its neighbours are fine.
            let Ok(view) = view else { continue };
            let object = first.saturating_add(slot as u64);
            // Freed in an earlier txg: its space may belong to another object by now.
            if self.from.is_some_and(|(from, _)| object < from) {
                continue;
            }
            if let Walk::Paused(o, b) = self.dnode(&view.to_phys(), Owner::Object(object))? {
                return Ok(Walk::Paused(o, b));
            }
        }
        debug_assert!(block.bytes().len() % DNODE_SLOT == 0);
        self.free(bp)?;
        Ok(Walk::Done)
    }

    fn leaf(&mut self, bp: &BlockPointer, blkid: u64, owner: Owner) -> Result<Walk> {
        if !self.is_ours(bp) || self.is_past(owner, blkid, 1) {
            return Ok(Walk::Done);
        }
        if let Owner::Object(object) = owner
            // Between two blocks of a file, where a resume point can be expressed.
            && !self.budget.take()
        {
            return Ok(Walk::Paused(object, blkid));
        }
        match (self.free(bp)?, owner) {
            (false, Owner::Object(object)) => Ok(Walk::Paused(object, blkid)),
            _ => Ok(Walk::Done),
        }
    }
}

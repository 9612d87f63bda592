//! Walking the tree of an object set. Children come before the block that points to them, and
//! objects by number, so a bookmark describes the progress. It pauses only at level-0 blocks of
//! objects.
//!
//! Indirect and dnode blocks are verified when they are read, on the way; the others are collected.
//! A block that was freed since the tree was looked up ends the walk before it. The next walk
//! starts there, with the current tree.

use zuse_base::Place;
use zuse_format::dnode::{SLOTS_PER_BLOCK, scan_block};
use zuse_format::{BlockPointer, BpKind, DnodePhys, ObjsetPhys};
use zuse_io::LostBlock;

use super::stop::Stop;
use super::verifier::{ROOT_LEVEL, VerifiedBlock, Verifier};
use crate::bptree::lies_before;
use crate::zil::{self, ZilItem};

const SPILL: u64 = u64::MAX - 1;

/// A collected block.
pub(crate) struct Item {
    pub bp: BlockPointer,
    /// None: a dedup table has it. If it is lost, its pointers are found later.
    pub name: Option<LostBlock>,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    Done,
    /// The first block that was not visited: object and block id.
    Paused(u64, u64),
}

/// The owner of the blocks that a walk is at.
#[derive(Clone, Copy)]
enum Owner {
    Meta,
    Object(u64),
    /// By the object's number.
    Accounting(u64),
}

impl Owner {
    fn object(self) -> u64 {
        match self {
            Self::Meta => 0,
            Self::Object(object) | Self::Accounting(object) => object,
        }
    }
}

/// What is visited in a dataset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanTree {
    /// 0 for the MOS.
    pub dataset: u64,
    pub root: BlockPointer,
    /// Blocks born after the first, up to the second.
    pub cur_min: u64,
    pub cur_max: u64,
    /// Object and block to continue from.
    pub from: Option<(u64, u64)>,
    /// It is a head, so its log is visited.
    pub is_head: bool,
}

/// How much is collected at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    pub blocks: usize,
    pub bytes: u64,
}

/// A walk of one tree.
pub(crate) struct Walker<'a> {
    pub verifier: &'a Verifier<'a>,
    pub target: ScanTree,
    pub items: &'a mut Vec<Item>,
    pub limits: &'a mut BatchLimits,
    pub stop: &'a Stop,
    /// The last place where it could have paused.
    last: (u64, u64),
}

impl<'a> Walker<'a> {
    pub fn new(
        verifier: &'a Verifier<'a>,
        target: ScanTree,
        items: &'a mut Vec<Item>,
        limits: &'a mut BatchLimits,
        stop: &'a Stop,
    ) -> Self {
        Self {
            verifier,
            target,
            items,
            limits,
            stop,
            last: target.from.unwrap_or_default(),
        }
    }

    fn pause(&self) -> Walk {
        Walk::Paused(self.last.0, self.last.1)
    }

    fn name(&self, object: u64, level: u8, block: u64) -> LostBlock {
        LostBlock {
            dataset: self.target.dataset,
            object,
            level,
            block,
            birth: 0,
        }
    }

    fn is_ours(&self, bp: &BlockPointer) -> bool {
        bp.kind() == BpKind::Normal
            // A parent's birth bounds those of its children, so whole subtrees are skipped.
            && bp.logical_birth().max(bp.physical_birth()) > self.target.cur_min
    }

    /// Reads an indirect or dnode block. `Err` skips everything below it.
    fn read(&self, bp: &BlockPointer, name: LostBlock) -> Result<Vec<u8>, Walk> {
        let stored = match self.verifier.verify_pointers(bp, name) {
            VerifiedBlock::Good(stored) => stored,
            VerifiedBlock::Lost => {
                self.verifier.note_hidden(bp.physical_birth());
                return Err(Walk::Done);
            }
            VerifiedBlock::Gone => return Err(self.pause()),
        };
        let place = Place::new("a scan");
        let decoded = self.verifier.spa.io().decode(bp, None, stored, &place);
        decoded.map_err(|_| {
            self.verifier.note_hidden(bp.physical_birth());
            self.verifier.note_lost(LostBlock {
                birth: bp.physical_birth(),
                ..name
            });
            Walk::Done
        })
    }

    /// Counts a block that was verified on the way.
    fn count_verified(&self, bp: &BlockPointer) {
        if bp.physical_birth() <= self.target.cur_max && self.verifier.count_block(bp) {
            let bytes = super::verifier::asize(bp);
            let issued = &self.verifier.counts.issued;
            issued.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// The whole tree.
    pub fn tree(&mut self) -> Walk {
        let root = self.target.root;
        if !self.is_ours(&root) {
            return Walk::Done;
        }
        let bytes = match self.read(&root, self.name(0, ROOT_LEVEL, 0)) {
            Ok(bytes) => bytes,
            Err(walk) => return walk,
        };
        let Ok(phys) = ObjsetPhys::parse(&bytes) else {
            self.verifier.note_hidden(root.physical_birth());
            self.verifier.note_lost(self.name(0, ROOT_LEVEL, 0));
            return Walk::Done;
        };
        // Once per head: a continued walk has visited the log already.
        if self.target.is_head && self.target.from.is_none() {
            self.log(&bytes);
        }
        if let paused @ Walk::Paused(..) = self.dnode(&phys.meta_dnode, Owner::Meta) {
            return paused;
        }
        let accounting = [
            (&phys.project_used, u64::MAX - 2),
            (&phys.group_used, u64::MAX - 1),
            (&phys.user_used, u64::MAX),
        ];
        for (dnode, object) in accounting {
            if let Some(dnode) = dnode
                && let paused @ Walk::Paused(..) = self.dnode(dnode, Owner::Accounting(object))
            {
                return paused;
            }
        }
        self.count_verified(&root);
        Walk::Done
    }

    /// The blocks of a claimed log.
    fn log(&mut self, objset: &[u8]) {
        let Some(header) = zil::header_of(objset).filter(|h| h.is_claimed()) else {
            return;
        };
        let mut blocks = Vec::new();
        // An unreadable block ends the log.
        let _ = zil::walk(self.verifier.spa.io(), &header, None, &mut |met| {
            if let ZilItem::Block(bp) = met {
                blocks.push(*bp);
            }
            Ok(blocks.len() < self.limits.blocks)
        });
        // The last one may never have been written.
        blocks.pop();
        for bp in blocks {
            if self.verifier.count_block(&bp) {
                let block = bp.checksum()[3];
                self.take(Item {
                    bp,
                    name: Some(self.name(0, 0, block)),
                });
            }
        }
    }

    fn take(&mut self, item: Item) {
        self.limits.bytes = self.limits.bytes.saturating_sub(item.bp.psize());
        self.items.push(item);
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.limits.blocks || self.limits.bytes == 0 || self.stop.is_set()
    }

    fn dnode(&mut self, dnode: &DnodePhys, owner: Owner) -> Walk {
        let shift = dnode.fanout_shift();
        let top = dnode.levels.saturating_sub(1);
        for (i, bp) in dnode.blkptrs().iter().enumerate() {
            let first = (i as u64).checked_shl(shift * u32::from(top)).unwrap_or(0);
            if let paused @ Walk::Paused(..) = self.block(bp, top, first, shift, owner) {
                return paused;
            }
        }
        match &dnode.spill {
            Some(spill) => self.leaf(spill, SPILL, owner),
            None => Walk::Done,
        }
    }

    /// Whether all of `[first, first + count)` of an owner was visited before.
    fn is_past(&self, owner: Owner, first: u64, count: u64) -> bool {
        let object = match owner {
            Owner::Accounting(_) => return false,
            Owner::Meta => None,
            Owner::Object(object) => Some(object),
        };
        let from = self.target.from;
        from.is_some_and(|at| lies_before(at, object, first, count))
    }

    fn block(
        &mut self,
        bp: &BlockPointer,
        level: u8,
        first: u64,
        shift: u32,
        owner: Owner,
    ) -> Walk {
        let count = 1u64
            .checked_shl(shift * u32::from(level))
            .unwrap_or(u64::MAX);
        if !self.is_ours(bp) || self.is_past(owner, first, count) {
            return Walk::Done;
        }
        if level == 0 {
            return match owner {
                Owner::Meta => self.dnode_block(bp, first),
                _ => self.leaf(bp, first, owner),
            };
        }
        if let Owner::Object(object) = owner
            && self.is_full()
        {
            // Never before the start of this walk.
            self.last = (object, first).max(self.last);
            return self.pause();
        }
        let block = first.checked_shr(shift * u32::from(level)).unwrap_or(0);
        let bytes = match self.read(bp, self.name(owner.object(), level, block)) {
            Ok(bytes) => bytes,
            Err(walk) => return walk,
        };
        for i in 0..1u64 << shift {
            let Some(child) = BlockPointer::at(&bytes, i as usize * 128) else {
                break;
            };
            let at = first.saturating_add(i.checked_shl(shift * u32::from(level - 1)).unwrap_or(0));
            if let paused @ Walk::Paused(..) = self.block(&child, level - 1, at, shift, owner) {
                return paused;
            }
        }
        self.count_verified(bp);
        Walk::Done
    }

    fn dnode_block(&mut self, bp: &BlockPointer, blkid: u64) -> Walk {
        let bytes = match self.read(bp, self.name(0, 0, blkid)) {
            Ok(bytes) => bytes,
            Err(walk) => return walk,
        };
        let first = blkid.saturating_mul(SLOTS_PER_BLOCK as u64);
        for (slot, view) in scan_block(&bytes) {
            let Ok(view) = view else { continue };
            let object = first.saturating_add(slot as u64);
            // Visited by an earlier batch.
            if self.target.from.is_some_and(|(from, _)| object < from) {
                continue;
            }
            if let paused @ Walk::Paused(..) = self.dnode(&view.to_phys(), Owner::Object(object)) {
                return paused;
            }
        }
        self.count_verified(bp);
        Walk::Done
    }

    fn leaf(&mut self, bp: &BlockPointer, blkid: u64, owner: Owner) -> Walk {
        if !self.is_ours(bp) || self.is_past(owner, blkid, 1) {
            return Walk::Done;
        }
        if let Owner::Object(object) = owner {
            // Before the test: a pause names the first block that was not taken.
            self.last = (object, blkid);
            if self.is_full() {
                return self.pause();
            }
        }
        let is_new = bp.physical_birth() <= self.target.cur_max && !self.verifier.was_verified(bp);
        if is_new && self.verifier.count_block(bp) {
            let name = Some(self.name(owner.object(), 0, blkid));
            self.take(Item { bp: *bp, name });
        }
        Walk::Done
    }
}

//! The differences between two states of an object set, found without reading equal parts.
//!
//! Both trees of dnode blocks are walked down together. Where both have the same pointer,
//! everything below is the same, because a block never changes. So only paths to a changed dnode
//! are read.

use std::sync::Arc;

use zuse_base::{ObjectId, Result};
use zuse_format::BlockPointer;
use zuse_format::dnode::{DNODE_SLOT, SLOTS_PER_BLOCK};

use crate::dirty::Synced;
use crate::objset::{Objset, dnode_starts};

/// An object whose dnode differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its number.
    pub object: ObjectId,
    /// It exists in the old state.
    pub was: bool,
    /// It exists in the new state.
    pub is: bool,
}

struct Pair<'a> {
    old: (&'a Objset, Arc<Synced>),
    new: (&'a Objset, Arc<Synced>),
}

impl Objset {
    /// Calls `f` for every object whose dnode differs between this state and a later one (both as
    /// of their last synced txg), by number.
    ///
    /// # Errors
    /// The errors of `f`; a differing dnode block, or an indirect block above one, cannot be read.
    pub fn each_changed(&self, new: &Self, f: &mut dyn FnMut(Changed) -> Result<()>) -> Result<()> {
        let pair = Pair {
            old: (self, self.meta_tree()),
            new: (new, new.meta_tree()),
        };
        let levels = pair.old.1.levels.max(pair.new.1.levels);
        let top = u64::from(pair.old.1.head.nblkptr.max(pair.new.1.head.nblkptr));
        (0..top).try_for_each(|blkid| pair.descend(levels - 1, blkid, f))
    }
}

impl Pair<'_> {
    fn descend(
        &self,
        level: u8,
        blkid: u64,
        f: &mut dyn FnMut(Changed) -> Result<()>,
    ) -> Result<()> {
        let at = |(objset, tree): &(&Objset, Arc<Synced>)| -> Result<Option<BlockPointer>> {
            // The lower tree has no block on this level: nothing to compare yet.
            if level >= tree.levels {
                return Ok(None);
            }
            objset.meta.lookup_bp(tree, level, blkid).map(Some)
        };
        if let (Some(old), Some(new)) = (at(&self.old)?, at(&self.new)?)
            && (old == new || old.is_hole() && new.is_hole())
        {
            return Ok(());
        }
        if level == 0 {
            return self.compare(blkid, f);
        }
        let shift = self.new.1.fanout_shift();
        let limit = self.old.1.head.max_block.max(self.new.1.head.max_block);
        for child in blkid << shift..(blkid + 1) << shift {
            if child << (shift * u32::from(level - 1)) > limit {
                break;
            }
            self.descend(level - 1, child, f)?;
        }
        Ok(())
    }

    fn compare(&self, blkid: u64, f: &mut dyn FnMut(Changed) -> Result<()>) -> Result<()> {
        let read = |(objset, tree): &(&Objset, Arc<Synced>)| {
            if blkid > tree.head.max_block {
                return Ok(None);
            }
            objset.meta.read_tree(tree, blkid)
        };
        let (old, new) = (read(&self.old)?, read(&self.new)?);
        let starts = |block: &Option<Arc<zuse_io::Block>>| {
            block.as_ref().map_or(0, |b| dnode_starts(b.bytes()))
        };
        let (was, is) = (starts(&old), starts(&new));
        let bytes = |block: &Option<Arc<zuse_io::Block>>, slot: usize| -> Vec<u8> {
            let Some(block) = block else {
                return Vec::new();
            };
            let all = block.bytes();
            let extra = all.get(slot * DNODE_SLOT + 12).copied().unwrap_or(0);
            let end = (slot + 1 + usize::from(extra)) * DNODE_SLOT;
            all.get(slot * DNODE_SLOT..end.min(all.len()))
                .unwrap_or_default()
                .to_vec()
        };
        for slot in 0..SLOTS_PER_BLOCK {
            let (was, is) = (was >> slot & 1 == 1, is >> slot & 1 == 1);
            if !was && !is || was && is && bytes(&old, slot) == bytes(&new, slot) {
                continue;
            }
            f(Changed {
                object: ObjectId(blkid * SLOTS_PER_BLOCK as u64 + slot as u64),
                was,
                is,
            })?;
        }
        Ok(())
    }
}

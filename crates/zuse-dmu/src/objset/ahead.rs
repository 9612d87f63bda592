//! Reading dnode blocks ahead for whoever takes one object after the other: lookups through a mount, in the order in which
//! the files were made.
//!
//! Only a block that had to be read is looked at, so objects in memory and blocks in the cache cost nothing. Where it comes
//! right behind the last such one, the next [`WINDOW`] are brought by another thread, neighbours in one device read; the one
//! behind them is waited for again.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Objset;
use crate::dirty::Synced;

/// Blocks that are brought at once, of 32 objects each.
const WINDOW: u64 = 16;

/// The block behind the last one that was read or asked for.
#[derive(Default)]
pub(super) struct BlocksAhead(AtomicU64);

impl BlocksAhead {
    /// A block had to be read; which ones to bring now.
    fn visit(&self, blkid: u64) -> Option<RangeInclusive<u64>> {
        let next = self.0.load(Relaxed);
        if blkid == next && blkid > 0 {
            self.0.store(next + 1 + WINDOW, Relaxed);
            return Some(next + 1..=next + WINDOW);
        }
        // One that is being brought: its reader was faster.
        if blkid > next || next - blkid > WINDOW + 1 {
            self.0.store(blkid + 1, Relaxed);
        }
        None
    }
}

impl Objset {
    /// A dnode block had to be read.
    pub(super) fn dnode_block_was_read(self: &Arc<Self>, tree: &Arc<Synced>, blkid: u64) {
        let Some(blocks) = self.ahead.visit(blkid) else {
            return;
        };
        let (first, last) = (*blocks.start(), tree.head.max_block.min(*blocks.end()));
        let (me, tree) = (self.clone(), tree.clone());
        let job = Box::new(move || me.gather_dnode_blocks(&tree, first..=last));
        // Only a hint.
        let _ = self.core.work.try_submit(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_blocks_in_a_row_have_the_next_ones_brought_once() {
        let ahead = BlocksAhead::default();
        assert_eq!(ahead.visit(0), None);
        assert_eq!(ahead.visit(7), None);
        assert_eq!(ahead.visit(8), Some(9..=24));
        // Not there yet.
        assert_eq!(ahead.visit(9), None);
        assert_eq!(ahead.visit(24), None);
        assert_eq!(ahead.visit(25), Some(26..=41));
        // Somewhere else, and back.
        assert_eq!(ahead.visit(1000), None);
        assert_eq!(ahead.visit(3), None);
        assert_eq!(ahead.visit(4), Some(5..=20));
    }
}

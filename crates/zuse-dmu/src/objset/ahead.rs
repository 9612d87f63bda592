//! Prefetching dnode blocks for a client that looks up objects in the order of their numbers.
//! Walking files in the order of their creation does that.
//!
//! Only blocks that had to be read start it, so objects in memory and cached blocks cost nothing.
//! If two such blocks are consecutive, another thread reads the next [`WINDOW`] ones, with one
//! device read for neighbours. When half of them have been used, it reads the next ones. So a
//! client that keeps this order no longer waits for a device.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Objset;
use crate::dirty::Synced;

/// Blocks that are prefetched at once, of 32 objects each.
const WINDOW: u64 = 16;

/// No block.
const NONE: u64 = u64::MAX;

/// The progress of a run.
pub(super) struct BlocksAhead {
    /// The block after the last one that was read or prefetched.
    next: AtomicU64,
    /// The block at which the run prefetches more.
    mark: AtomicU64,
}

impl Default for BlocksAhead {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(0),
            mark: AtomicU64::new(NONE),
        }
    }
}

impl BlocksAhead {
    /// A block was needed: read from a device, or cached. Returns which blocks to prefetch now.
    fn visit(&self, blkid: u64, was_read: bool) -> Option<RangeInclusive<u64>> {
        let mark = self.mark.load(Relaxed);
        if blkid < mark && !was_read {
            return None;
        }
        let next = self.next.load(Relaxed);
        if blkid < next && blkid >= mark {
            let mine = self.mark.compare_exchange(mark, next, Relaxed, Relaxed);
            return mine.is_ok().then(|| self.ask_from(next));
        }
        if !was_read {
            return None;
        }
        if blkid == next && blkid > 0 {
            return Some(self.ask_from(next + 1));
        }
        // Inside the window the block is being prefetched; the reader was faster.
        if blkid > next || next - blkid > 2 * WINDOW {
            self.mark.store(NONE, Relaxed);
            self.next.store(blkid + 1, Relaxed);
        }
        None
    }

    fn ask_from(&self, first: u64) -> RangeInclusive<u64> {
        self.next.store(first + WINDOW, Relaxed);
        self.mark.store(first + WINDOW / 2, Relaxed);
        first..=first + WINDOW - 1
    }
}

impl Objset {
    /// A dnode block was needed for an object that was not in memory. It was read from a device, or
    /// cached.
    #[inline]
    pub(super) fn dnode_block_was_needed(
        self: &Arc<Self>,
        tree: &Arc<Synced>,
        blkid: u64,
        was_read: bool,
    ) {
        if let Some(blocks) = self.ahead.visit(blkid, was_read) {
            self.prefetch_dnode_blocks(tree, blocks);
        }
    }

    #[cold]
    fn prefetch_dnode_blocks(self: &Arc<Self>, tree: &Arc<Synced>, blocks: RangeInclusive<u64>) {
        let (first, last) = (*blocks.start(), tree.head.max_block.min(*blocks.end()));
        if first > last {
            return;
        }
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
    fn two_blocks_in_a_row_have_the_next_ones_brought_before_they_are_needed() {
        let ahead = BlocksAhead::default();
        assert_eq!(ahead.visit(0, true), None);
        assert_eq!(ahead.visit(7, true), None);
        assert_eq!(ahead.visit(7, false), None, "one block is no run");
        assert_eq!(ahead.visit(8, true), Some(9..=24));
        // Not there yet.
        assert_eq!(ahead.visit(9, true), None);
        assert_eq!(ahead.visit(16, false), None);
        assert_eq!(ahead.visit(17, false), Some(25..=40));
        assert_eq!(ahead.visit(17, false), None, "only once");
        assert_eq!(ahead.visit(32, false), None);
        // One block was skipped, and one had to be read although it was prefetched.
        assert_eq!(ahead.visit(34, true), Some(41..=56));
        // Somewhere else, and back.
        assert_eq!(ahead.visit(1000, true), None);
        assert_eq!(ahead.visit(49, false), None, "that run has ended");
        assert_eq!(ahead.visit(3, true), None);
        assert_eq!(ahead.visit(4, true), Some(5..=20));
    }

    #[test]
    fn cached_blocks_begin_no_run() {
        let ahead = BlocksAhead::default();
        assert!((0..100).all(|blkid| ahead.visit(blkid, false).is_none()));
    }
}

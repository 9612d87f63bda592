//! Blocks of which no copy could be read. The pool's error log is written from these.
//!
//! ```text
//!   a read fails ─► suspect ─► lost ─► new ─► a txg writes them into the log ─► known
//!                      └─────► the reader only looked at an old state of the object: forgotten
//! ```
//! - A reader of an old tree may read blocks that were freed and reused. So a block counts as lost
//!   only when the reader of the object has found that its tree is current.
//! - A block is noted once, however often it is read.
//! - Only the layer of objects can note it, because only that layer knows which object a block
//!   belongs to.
//! - The number is bounded. If a pool has lost more, the rest is noted by later readers.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, ThreadId};
use zuse_base::sync::{Mutex, MutexGuard};

/// Blocks that are noted, at most.
pub const LOST_MAX: usize = 10_000;

/// A lost block, by the object it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LostBlock {
    /// Object number of the dataset; 0 is the MOS.
    pub dataset: u64,
    /// The object in it.
    pub object: u64,
    /// Level in its tree.
    pub level: u8,
    /// Number in that level.
    pub block: u64,
    /// Txg in which it was written; 0 if unknown.
    pub birth: u64,
}

#[derive(Debug, Default)]
struct State {
    /// The last unreadable block of each thread, not yet decided.
    suspects: HashMap<ThreadId, LostBlock>,
    new: BTreeSet<LostBlock>,
    known: BTreeSet<LostBlock>,
}

/// The blocks of a pool that were found lost. A leaf: nothing is locked under it.
#[derive(Debug, Default)]
pub struct Lost {
    state: Mutex<State>,
    any_new: AtomicBool,
}

impl Lost {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// This thread could not read a block; [`Self::decide`] follows.
    pub fn suspect(&self, block: LostBlock) {
        let mut state = self.state();
        if state.suspects.len() >= LOST_MAX {
            // Drops suspects of threads that ended without a decision.
            state.suspects.clear();
        }
        state.suspects.insert(thread::current().id(), block);
    }

    /// Says whether the block that this thread could not read last is lost.
    pub fn decide(&self, is_lost: bool) {
        let block = self.state().suspects.remove(&thread::current().id());
        if let Some(block) = block.filter(|_| is_lost) {
            self.note(block);
        }
    }

    fn note(&self, block: LostBlock) {
        let mut state = self.state();
        if state.new.len() + state.known.len() < LOST_MAX && !state.known.contains(&block) {
            state.new.insert(block);
            self.any_new.store(true, Relaxed);
        }
    }

    /// Whether there are lost blocks that the log on disk does not have.
    pub fn has_new(&self) -> bool {
        self.any_new.load(Relaxed)
    }

    /// Those that the log on disk does not have.
    pub fn new_ones(&self) -> Vec<LostBlock> {
        self.state().new.iter().copied().collect()
    }

    /// The log was rewritten, so blocks that are read again are recorded again.
    pub fn forget_known(&self) {
        self.state().known.clear();
    }

    /// The log has them now.
    pub fn logged(&self, blocks: &[LostBlock]) {
        let mut state = self.state();
        for block in blocks {
            state.new.remove(block);
            state.known.insert(*block);
        }
        self.any_new.store(!state.new.is_empty(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspect_counts_once_it_is_decided() {
        let lost = Lost::default();
        let block = LostBlock {
            dataset: 54,
            object: 2,
            level: 0,
            block: 0,
            birth: 9,
        };
        lost.suspect(block);
        lost.decide(false);
        lost.decide(true);
        assert!(!lost.has_new(), "the tree was an old one");
        lost.suspect(block);
        assert!(!lost.has_new());
        lost.decide(true);
        assert_eq!(lost.new_ones(), [block]);
    }

    #[test]
    fn a_block_is_new_once() {
        let lost = Lost::default();
        let block = |block| LostBlock {
            dataset: 54,
            object: 2,
            level: 0,
            block,
            birth: 9,
        };
        lost.note(block(1));
        lost.note(block(1));
        assert!(lost.has_new());
        assert_eq!(lost.new_ones(), [block(1)]);
        lost.logged(&[block(1)]);
        lost.note(block(1));
        assert!(!lost.has_new());
        for n in 0..20_000 {
            lost.note(block(n));
        }
        assert_eq!(lost.new_ones().len(), LOST_MAX - 1);
    }
}

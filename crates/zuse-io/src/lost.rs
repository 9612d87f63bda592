//! Blocks that no copy could give: what the pool's error log is written from.
//!
//! ```text
//!   a read fails for good ─► new ─► a txg writes them into the log ─► known, until the pool is closed
//! ```
//! - A block is noted once, however often it is asked for.
//! - Only whoever knows which object a block is of can note it: the layer of objects does.
//! - It is bounded: of a pool that has lost more, the rest is found again by who reads it later.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks that are noted, at most.
pub const LOST_MAX: usize = 10_000;

/// A block that is lost, by what it is of.
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
    /// Txg in which it was written; 0 where that is not known.
    pub birth: u64,
}

#[derive(Debug, Default)]
struct State {
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a block.
    pub fn note(&self, block: LostBlock) {
        let mut state = self.state();
        if state.new.len() + state.known.len() < LOST_MAX && !state.known.contains(&block) {
            state.new.insert(block);
            self.any_new.store(true, Relaxed);
        }
    }

    /// Whether there are some that the log on disk does not have.
    pub fn has_new(&self) -> bool {
        self.any_new.load(Relaxed)
    }

    /// Those that the log on disk does not have.
    pub fn new_ones(&self) -> Vec<LostBlock> {
        self.state().new.iter().copied().collect()
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

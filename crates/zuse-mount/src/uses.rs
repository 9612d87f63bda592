//! Whether what the kernel looks up is used right after.
//!
//! A look-up does not take a file into memory ([`crate::table::What::Listed`]): who walks a tree asks of most of them nothing but that. Who
//! opens each file or changes its attributes has it taken in by his second question, for 0.8 to 1 µs of the answer. Where look-ups have been
//! followed by such questions, the next file is taken in between the two ([`crate::session::Session::idle`]).
//!
//! A hint and no more: several who ask at once disturb it, and are served as ever.
//!
//! Cost: a swap for each look-up, a load for each question about an inode.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Look-ups in a row that were followed by a use until the next one probably is.
const SURE: u32 = 4;

/// What was looked up last; inode number 0 is nobody's.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Looked up and not used yet.
    last: AtomicU64,
    /// How many in a row were used.
    used: AtomicU32,
    /// To be taken in.
    wanted: AtomicU64,
}

impl Uses {
    /// The kernel is given this inode, which is not in memory. Whether it is to be taken in, in an idle moment.
    pub fn gave(&self, ino: u64) -> bool {
        if self.last.swap(ino, Relaxed) != 0 {
            self.used.store(0, Relaxed);
        }
        let is_sure = self.used.load(Relaxed) >= SURE;
        if is_sure {
            self.wanted.store(ino, Relaxed);
        }
        is_sure
    }

    /// Something is asked about an inode that takes it into memory.
    pub fn asked(&self, ino: u64) {
        if self.last.load(Relaxed) == ino {
            self.last.store(0, Relaxed);
            self.used
                .store((self.used.load(Relaxed) + 1).min(SURE), Relaxed);
        }
    }

    /// What is to be taken in now.
    pub fn take_wanted(&self) -> Option<u64> {
        let ino = self.wanted.swap(0, Relaxed);
        (ino != 0 && self.last.load(Relaxed) == ino).then_some(ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_some_that_were_used_the_next_one_is_wanted_once() {
        let uses = Uses::default();
        for ino in 1..=4 {
            assert!(!uses.gave(ino));
            assert_eq!(uses.take_wanted(), None);
            uses.asked(ino);
        }
        assert!(uses.gave(5));
        assert_eq!(uses.take_wanted(), Some(5));
        assert_eq!(uses.take_wanted(), None);
        uses.asked(5);
        assert!(uses.gave(6));
        // Too late.
        uses.asked(6);
        assert_eq!(uses.take_wanted(), None);
    }

    #[test]
    fn one_that_is_not_used_ends_it() {
        let uses = Uses::default();
        for ino in 1..=8 {
            uses.gave(ino);
            uses.asked(ino);
        }
        assert!(uses.gave(9), "after eight");
        uses.asked(7);
        assert!(!uses.gave(10), "9 was not used");
        uses.asked(10);
        assert!(!uses.gave(11), "one is not enough");
    }
}

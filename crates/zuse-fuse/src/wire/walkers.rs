//! Which client threads need attributes together with the names that they list.
//!
//! Attributes are most of the cost of a listing. A client that only reads names (`find -name`) does
//! not need them. One that stats each file (`find -size`, `ls -l`, `du`, `rsync`) saves a message
//! per file. The kernel guesses from the previous requests on one directory, but many programs list
//! a whole directory before they stat the first file. So the kernel is told to always ask for
//! attributes, and they are included
//! - with some of the first names of each listing,
//! - with all names for a thread that looked up a file after a listing, for its next [`ROUNDS`]
//!   directories. Then it has to show again that it needs them.
//!
//! Memory: a word for each of [`SLOTS`] threads. A thread that loses its slot to another starts
//! again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Attributes;

const SLOTS: usize = 64;
/// Directories that are listed with attributes before a thread is tested again.
const ROUNDS: u64 = 64;
/// It has listed a directory.
const LISTED: u64 = 1 << 16;

/// Threads with recent listings. A slot has the thread in its upper half.
pub(super) struct Walkers([AtomicU64; SLOTS]);

impl Default for Walkers {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl Walkers {
    fn slot(&self, thread: u32) -> &AtomicU64 {
        &self.0[thread as usize % SLOTS]
    }

    /// Which names of a listing by this thread get attributes. `begins`: it is at the beginning of
    /// a directory.
    pub(super) fn lists(&self, thread: u32, begins: bool) -> Attributes {
        let slot = self.slot(thread);
        let known = slot.load(Relaxed);
        let left = match known >> 32 == u64::from(thread) {
            true => known & (LISTED - 1),
            false => 0,
        };
        let still = left.saturating_sub(u64::from(begins));
        slot.store(u64::from(thread) << 32 | LISTED | still, Relaxed);
        match (left > 0, begins) {
            (true, _) => Attributes::All,
            (false, true) => Attributes::Some,
            (false, false) => Attributes::No,
        }
    }

    /// A thread looked up a file.
    pub(super) fn looks_up_file(&self, thread: u32) {
        let slot = self.slot(thread);
        let listed = u64::from(thread) << 32 | LISTED;
        let known = slot.load(Relaxed);
        if known & !(LISTED - 1) == listed && known != listed | ROUNDS {
            slot.store(listed | ROUNDS, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_files_up_gets_attributes_with_the_next_directories() {
        let walkers = Walkers::default();
        // Looking up before any listing says nothing.
        walkers.looks_up_file(7);
        assert_eq!(walkers.lists(7, true), Attributes::Some);
        assert_eq!(walkers.lists(7, false), Attributes::No);
        walkers.looks_up_file(7);
        for _ in 0..ROUNDS - 1 {
            assert_eq!(walkers.lists(7, true), Attributes::All);
            assert_eq!(walkers.lists(7, false), Attributes::All);
        }
        walkers.lists(7, true);
        assert_eq!(walkers.lists(7, false), Attributes::No, "it shows it again");
        walkers.looks_up_file(7);
        assert_eq!(walkers.lists(7, false), Attributes::All);
    }

    #[test]
    fn another_thread_has_a_guess_of_its_own() {
        let walkers = Walkers::default();
        walkers.lists(7, true);
        walkers.looks_up_file(7);
        walkers.lists(8, true);
        assert_eq!(walkers.lists(8, false), Attributes::No);
        assert_eq!(walkers.lists(7, false), Attributes::All);
        // The same slot.
        let other = 7 + SLOTS as u32;
        walkers.lists(other, true);
        assert_eq!(walkers.lists(other, false), Attributes::No);
        assert_eq!(walkers.lists(7, false), Attributes::No);
    }
}

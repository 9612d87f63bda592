//! Memory of large values that nobody needs any more, for the next ones.
//!
//! Who sets an attribute of 64 KiB on one file after the other takes memory for each value on one thread, and another thread gives it back when the
//! cache lets the value go. Through the C library's heap that costs both: it merges and splits pieces, cleans up among all small ones with each large one that
//! is freed, and holds the arena's lock meanwhile, for which the other one sleeps. So memory of the length that is wanted goes from hand to hand.
//!
//! ```text
//!   want(len)
//!   take(len) <── [ memory, memory, ... ] <── give(memory)      of that length only, up to MOST bytes
//! ```
//! Cost: a load for memory of another length, a short lock for one that goes from hand to hand. Memory: [`MOST`], until [`forget`].

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are kept at most.
pub const MOST: usize = 16 << 20;
/// Nothing smaller is kept: the heap has it at hand.
pub const LEAST: usize = 4096;

/// Memory of one length.
struct Spare {
    /// The length that is wanted; 0 for none. Changed with the lock held: what is kept is of that length.
    wanted: AtomicUsize,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Spare {
    const fn new() -> Self {
        Self {
            wanted: AtomicUsize::new(0),
            kept: Mutex::new(Vec::new()),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of that length is wanted from now on. What was kept of another one, to be freed without the lock.
    fn change(&self, len: usize, kept: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if self.wanted.swap(len, Relaxed) == len {
            Vec::new()
        } else {
            std::mem::take(kept)
        }
    }

    fn want(&self, len: usize) {
        if len >= LEAST && len != self.wanted.load(Relaxed) {
            let mut kept = self.kept();
            let other = self.change(len, &mut kept);
            drop(kept);
            drop(other);
        }
    }

    fn take(&self, len: usize) -> Option<Vec<u8>> {
        if len < LEAST || len != self.wanted.load(Relaxed) {
            return None;
        }
        let mut kept = self.kept();
        // Under the lock: what is kept is of the length that is wanted.
        (len == self.wanted.load(Relaxed))
            .then(|| kept.pop())
            .flatten()
    }

    fn give(&self, mut memory: Vec<u8>) {
        let len = memory.capacity();
        if len < LEAST || len != self.wanted.load(Relaxed) {
            return;
        }
        memory.clear();
        let mut kept = self.kept();
        if len == self.wanted.load(Relaxed) && kept.len() < MOST / len {
            kept.push(memory);
        }
    }

    fn forget(&self) {
        let mut kept = self.kept();
        let other = self.change(0, &mut kept);
        drop(kept);
        drop(other);
    }
}

static SPARE: Spare = Spare::new();

/// Memory of so many bytes will be needed again and again: from now on it is kept, and no other.
pub fn want(len: usize) {
    SPARE.want(len);
}

/// Memory of exactly so many bytes that others have done with, empty, if that is what is wanted.
pub fn take(len: usize) -> Option<Vec<u8>> {
    SPARE.take(len)
}

/// Memory that is no longer needed: kept if it is what is wanted, or freed.
pub fn give(memory: Vec<u8>) {
    SPARE.give(memory);
}

/// Nobody needs any for now: frees what is kept.
pub fn forget() {
    SPARE.forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64 << 10;

    fn filled(len: usize) -> Vec<u8> {
        let mut memory = Vec::with_capacity(len);
        memory.resize(len, 7);
        memory
    }

    #[test]
    fn memory_goes_from_who_gives_to_who_takes() {
        let spare = Spare::new();
        spare.give(filled(LEN));
        assert!(spare.take(LEN).is_none(), "nobody wants it");
        spare.want(LEN);
        assert!(spare.take(LEN).is_none(), "nobody gave any");
        let memory = filled(LEN);
        let at = memory.as_ptr();
        spare.give(memory);
        let again = spare.take(LEN).expect("kept");
        assert_eq!(
            (again.as_ptr(), again.len(), again.capacity()),
            (at, 0, LEN)
        );
        assert!(spare.take(LEN).is_none(), "once");
    }

    #[test]
    fn only_the_length_that_is_wanted_is_kept() {
        let spare = Spare::new();
        spare.want(LEN);
        spare.give(filled(LEN / 2));
        spare.give(filled(LEN));
        assert!(spare.take(LEN / 2).is_none());
        spare.want(LEN / 2);
        spare.want(LEN);
        assert!(spare.take(LEN).is_none(), "freed when another was wanted");
        spare.want(16);
        assert!(spare.take(16).is_none());
        spare.give(filled(16));
        spare.give(filled(LEN));
        assert!(spare.take(LEN).is_some(), "small ones change nothing");
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_none_when_nobody_needs_it() {
        let spare = Spare::new();
        spare.want(LEN);
        for _ in 0..=MOST / LEN {
            spare.give(filled(LEN));
        }
        assert_eq!(spare.kept().len(), MOST / LEN);
        spare.forget();
        assert_eq!(spare.kept().capacity(), 0);
        spare.give(filled(LEN));
        assert!(spare.kept().is_empty());
    }
}

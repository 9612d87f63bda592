//! Prefetching directories that will probably be listed next: the sub-directories of those listed
//! before, in that order.
//!
//! A tree walk lists a directory, and later its sub-directories in the order in which it found
//! them. When one of them is listed, other threads read the next few and sort their entries. They
//! begin with few, and read more while the guesses are right. Neighbours take one device read.
//!
//! Memory: 16 bytes each for at most 1,024 directories, whatever their sizes. A wrong guess costs a
//! read.

use std::collections::VecDeque;
use zuse_base::sync::Mutex;

use zuse_base::ObjectId;

/// Directories remembered at most.
const EXPECTED: usize = 1024;
/// Directories that are prefetched at first.
const FEW: usize = 4;
/// Directories that are prefetched after many right guesses.
const MANY: usize = 32;

#[derive(Default)]
struct Expected {
    /// Directories in the order in which they were found, and whether they were prefetched.
    dirs: VecDeque<(u64, bool)>,
    /// Right guesses in a row.
    right: usize,
}

/// The directories that will probably be listed.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<Expected>);

impl Ahead {
    /// A sub-directory was listed.
    pub fn note(&self, dir: ObjectId) {
        let dirs = &mut self.0.lock().dirs;
        if dirs.len() >= EXPECTED {
            dirs.pop_front();
        }
        dirs.push_back((dir.0, false));
    }

    /// A directory is being listed: returns which ones to read now. Each is returned once.
    pub fn visit(&self, dir: ObjectId) -> Vec<u64> {
        let mut expected = self.0.lock();
        let Expected { dirs, right } = &mut *expected;
        // Not expected, so the client does not walk the tree in this order.
        let Some(at) = dirs.iter().position(|c| c.0 == dir.0) else {
            *right = 0;
            return Vec::new();
        };
        let was_read = dirs.remove(at).is_some_and(|d| d.1);
        *right = if was_read { *right + 1 } else { 0 };
        let some = (FEW + *right).min(MANY);
        // In halves, not one by one, because directories of one batch are read together.
        if dirs.range(at..).take_while(|d| d.1).count() >= some / 2 {
            return Vec::new();
        }
        let next = dirs.range_mut(at..).take(some);
        next.filter_map(|d| (!std::mem::replace(&mut d.1, true)).then_some(d.0))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(dirs: impl IntoIterator<Item = u64>) -> Ahead {
        let ahead = Ahead::default();
        dirs.into_iter().for_each(|n| ahead.note(ObjectId(n)));
        ahead
    }

    fn named(ahead: &Ahead, dir: u64) -> Vec<u64> {
        ahead.visit(ObjectId(dir))
    }

    #[test]
    fn the_next_directories_are_named_once_children_before_what_follows_their_parent() {
        let ahead = noted(1..=7);
        assert_eq!(named(&ahead, 1), [2, 3, 4, 5]);
        assert_eq!(named(&ahead, 2), [0u64; 0]);
        assert_eq!(named(&ahead, 3), [6, 7]);
        (20..=22).for_each(|n| ahead.note(ObjectId(n)));
        assert_eq!(named(&ahead, 20), [21, 22]);
        assert_eq!(named(&ahead, 99), [0u64; 0]);
    }

    #[test]
    fn right_guesses_make_more_of_them_wrong_ones_few_again() {
        let ahead = noted(1..=500);
        let groups: Vec<usize> = (1..=200).map(|n| named(&ahead, n).len()).collect();
        let named_so_far: usize = groups.iter().sum();
        assert_eq!(groups[0], FEW);
        assert_eq!(groups.iter().max(), Some(&(MANY / 2 + 1)), "{groups:?}");
        assert!(named_so_far <= 200 + MANY);
        // Somewhere else.
        assert_eq!(named(&ahead, 400), [401, 402, 403, 404]);
    }

    #[test]
    fn no_more_than_a_bounded_number_is_remembered() {
        let ahead = noted(1..=5000);
        assert_eq!(ahead.0.lock().dirs.len(), EXPECTED);
        assert_eq!(named(&ahead, 1), [0u64; 0]);
        assert_eq!(named(&ahead, 4990), [4991, 4992, 4993, 4994]);
    }
}

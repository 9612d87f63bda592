//! Which directories are likely to be listed next: those listed in their parents, in that order.
//!
//! Whoever walks a tree lists a directory and then, sooner or later, its sub-directories in the order in which it met
//! them. When one of them is listed, the next few are read and their order is made by other threads meanwhile.
//!
//! Memory: 16 bytes each for at most 1,024 directories, whatever their sizes. A guess that is wrong costs a read.

use std::collections::VecDeque;
use std::sync::Mutex;

use zuse_base::ObjectId;

use crate::znode::lock;

/// Directories remembered at most.
const COMING: usize = 1024;
/// Directories that are read ahead.
const AHEAD: usize = 4;

/// The directories to come.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<VecDeque<(u64, bool)>>);

impl Ahead {
    /// A sub-directory was listed.
    pub fn note(&self, dir: ObjectId) {
        let mut coming = lock(&self.0);
        if coming.len() >= COMING {
            coming.pop_front();
        }
        coming.push_back((dir.0, false));
    }

    /// A directory is being listed: which ones to read now. Each is named once.
    pub fn visit(&self, dir: ObjectId) -> [Option<ObjectId>; AHEAD] {
        let mut out = [None; AHEAD];
        let mut coming = lock(&self.0);
        let Some(at) = coming.iter().position(|c| c.0 == dir.0) else {
            return out;
        };
        coming.remove(at);
        for (to, next) in out.iter_mut().zip(coming.range_mut(at..)) {
            if !std::mem::replace(&mut next.1, true) {
                *to = Some(ObjectId(next.0));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(ahead: &Ahead, dir: u64) -> Vec<u64> {
        let out = ahead.visit(ObjectId(dir));
        out.iter().flatten().map(|o| o.0).collect()
    }

    #[test]
    fn the_next_directories_are_named_once_children_before_what_follows_their_parent() {
        let ahead = Ahead::default();
        (1..=7).for_each(|n| ahead.note(ObjectId(n)));
        assert_eq!(named(&ahead, 1), [2, 3, 4, 5]);
        assert_eq!(named(&ahead, 2), [6]);
        (20..=22).for_each(|n| ahead.note(ObjectId(n)));
        assert_eq!(named(&ahead, 20), [21, 22]);
        assert_eq!(named(&ahead, 99), [0u64; 0]);
    }

    #[test]
    fn no_more_than_a_bounded_number_is_remembered() {
        let ahead = Ahead::default();
        (1..=5000).for_each(|n| ahead.note(ObjectId(n)));
        assert_eq!(lock(&ahead.0).len(), COMING);
        assert_eq!(named(&ahead, 1), [0u64; 0]);
        assert_eq!(named(&ahead, 4990), [4991, 4992, 4993, 4994]);
    }
}

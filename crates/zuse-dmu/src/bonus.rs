//! The bonus buffer of an object in memory.
//!
//! Every object that a txg touches has one. A plain file's bonus is 168 bytes of system attributes,
//! or 184 with a hidden directory. Up to that length it is stored inside the object's own
//! allocation, and a longer one has a separate allocation. Without this, setting an extended
//! attribute in a hidden directory would need six more allocations.

use std::fmt;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

/// Longest bonus that needs no allocation of its own.
const NEAR: usize = 184;

/// The bytes of a bonus in use.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Bonus(SmallVec<[u8; NEAR]>);

impl Bonus {
    pub fn zeroed(len: usize) -> Self {
        Self(SmallVec::from_elem(0, len))
    }

    pub fn set(&mut self, bytes: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(bytes);
    }

    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Cut off, or with zeros behind.
    pub fn resize(&mut self, len: usize) {
        self.0.resize(len, 0);
    }

    /// Reserves room for exactly that many bytes, if it has less.
    pub fn reserve_for(&mut self, len: usize) {
        self.0.reserve_exact(len.saturating_sub(self.0.len()));
    }

    /// Inserts that many zeros there, and moves the bytes after them.
    pub fn insert_zeros(&mut self, at: usize, count: usize) {
        self.0.insert_many(at, std::iter::repeat_n(0, count));
    }
}

impl Deref for Bonus {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Bonus {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl From<&[u8]> for Bonus {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl Clone for Bonus {
    /// As a block copy: the library's clone goes byte by byte.
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl fmt::Debug for Bonus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_a_vector_would_have_on_both_sides_of_the_border() {
        for len in [0, 8, NEAR - 9, NEAR - 8, NEAR - 7, NEAR, NEAR + 1, 320] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut v = bytes.clone();
            let mut b = Bonus::from(&*bytes);
            let at = len / 2;
            v.splice(at..at, [0; 8]);
            b.insert_zeros(at, 8);
            assert_eq!(*b, *v, "{len}");
            v.extend_from_slice(&bytes);
            b.extend_from_slice(&bytes);
            assert_eq!((&*b.clone(), b == b.clone()), (&*v, true), "{len}");
            b.truncate(at);
            b.resize(at + 16);
            v.truncate(at);
            v.resize(at + 16, 0);
            assert_eq!(*b, *v, "{len}");
            b.set(&bytes);
            assert_eq!(*b, *bytes, "{len}");
        }
    }

    #[test]
    fn what_a_plain_file_has_is_in_place_and_no_more_than_that_is_asked_for() {
        let mut b = Bonus::zeroed(168);
        b.reserve_for(NEAR);
        assert!(!b.0.spilled());
        b.reserve_for(NEAR + 8);
        assert_eq!(b.0.capacity(), NEAR + 8);
        assert_eq!(size_of::<Bonus>(), NEAR + 8);
    }
}

//! A hasher for maps by object number: numbers are given out in a row, so one multiplication spreads them well enough, and nobody
//! outside chooses them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by object number, or by another number that is given out in a row.
pub type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

/// See [`NumberMap`].
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_right(23);
    }
}

//! Randomness: the host's for keys and GUIDs, a seeded one for simulation.
//!
//! [`SeededPrng`] is SplitMix64: its whole state is one counter, so it needs no lock, and the n-th
//! number depends only on the seed. It is for simulation and spreading load, never for keys.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where random numbers come from.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Fill `buf` with random bytes.
    fn fill(&self, buf: &mut [u8]);

    /// One random number.
    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A number in `0..bound`, or 0 if `bound` is 0. The bias is below `bound / 2^64`.
    fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `range`, or its start if it is empty.
    fn range(&self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// True in `hits` of `of` cases.
    fn chance(&self, hits: u64, of: u64) -> bool {
        self.below(of) < hits
    }

    /// A number that can name a pool, a vdev or a dataset: never 0.
    fn guid(&self) -> NonZeroU64 {
        loop {
            if let Some(guid) = NonZeroU64::new(self.u64()) {
                return guid;
            }
        }
    }
}

/// The host's cryptographic generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    /// # Panics
    /// If the host has no working generator: continuing would create weak keys.
    fn fill(&self, buf: &mut [u8]) {
        if let Err(error) = getrandom::fill(buf) {
            panic!("the host gives no random bytes: {error}");
        }
    }
}

/// SplitMix64: the same seed gives the same numbers, on every host.
#[derive(Debug)]
pub struct SeededPrng(AtomicU64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SeededPrng {
    /// A generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A generator whose numbers are unrelated to the further numbers of this one.
    pub fn fork(&self) -> Self {
        Self::new(mix(self.u64() ^ STEP))
    }

    /// One of the items; none of an empty slice.
    pub fn pick<'a, T>(&self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// Shuffle the items.
    pub fn shuffle<T>(&self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

impl Clone for SeededPrng {
    /// A generator that will give the same numbers as this one.
    fn clone(&self) -> Self {
        Self::new(self.0.load(Ordering::Relaxed))
    }
}

impl Entropy for SeededPrng {
    fn fill(&self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.u64().to_le_bytes()[..chunk.len()]);
        }
    }

    fn u64(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }
}

/// The output function of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;

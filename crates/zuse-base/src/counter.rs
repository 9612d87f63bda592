//! Statistics counters. Their sum is exact; their updates are not ordered with other memory
//! accesses.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many threads add to. Relaxed: never use it to order other memory.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Add `n`; gives the value before.
    pub fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    /// Take `n` off; gives the value before.
    pub fn sub(&self, n: u64) -> u64 {
        self.0.fetch_sub(n, Ordering::Relaxed)
    }

    /// Count one.
    pub fn bump(&self) {
        self.add(1);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Set it to `value`; gives the value before.
    pub fn reset(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::Relaxed)
    }

    /// Raise it to `value` if it is lower (a high-water mark).
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;

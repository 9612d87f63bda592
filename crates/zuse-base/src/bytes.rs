//! A buffer that starts on a page boundary, as direct I/O and SIMD kernels like it.
//!
//! It is a `Vec` with up to 4095 bytes of lead that are never shown: no unsafe code, zeroed memory
//! comes lazily from the host, and moving the buffer does not move its bytes.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes that start at an address divisible by [`AlignedBuf::ALIGN`].
pub struct AlignedBuf {
    bytes: Vec<u8>,
    lead: usize,
    len: usize,
}

impl AlignedBuf {
    /// What the address of the first byte is a multiple of.
    pub const ALIGN: usize = 4096;

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self {
                bytes: Vec::new(),
                lead: 0,
                len: 0,
            };
        }
        let bytes = vec![0; len + Self::ALIGN - 1];
        let lead = bytes.as_ptr().addr().wrapping_neg() % Self::ALIGN;
        Self { bytes, lead, len }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Forget everything behind the first `len` bytes; keeps the memory.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Room for this many bytes without a new allocation.
    pub fn capacity(&self) -> usize {
        self.bytes.len() - self.lead
    }

    /// Set the length. New bytes are zero; beyond [`AlignedBuf::capacity`] the bytes move.
    pub fn resize(&mut self, len: usize) {
        if len > self.capacity() {
            let mut larger = Self::zeroed(len);
            larger[..self.len].copy_from_slice(self);
            *self = larger;
        } else if len > self.len {
            let old = self.len;
            self.len = len;
            self[old..].fill(0);
        } else {
            self.len = len;
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.lead..self.lead + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.lead..self.lead + self.len]
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl PartialEq for AlignedBuf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for AlignedBuf {}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests;

//! The data virtual address: one copy of a block on one top-level vdev.

use std::fmt;
use zuse_base::cut::high32;

use super::SECTOR;

const GANG: u64 = 1 << 63;

/// The place of one copy of a block.
///
/// word 0: bits 0..24 allocated size / 512, 32..56 vdev id. word 1: bits 0..63 offset / 512, bit 63
/// gang. Valid when the allocated size is not 0, empty when both words are 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dva {
    /// Vdev and allocated size.
    pub word0: u64,
    /// Gang bit and offset.
    pub word1: u64,
}

impl Dva {
    /// No address.
    pub const EMPTY: Self = Self { word0: 0, word1: 0 };

    /// An address; `offset` and `asize` are bytes, multiples of 512.
    #[inline]
    pub fn new(vdev: u32, offset: u64, asize: u64, gang: bool) -> Self {
        debug_assert!(vdev < 1 << 24 && asize / SECTOR < 1 << 24 && offset.is_multiple_of(SECTOR));
        Self {
            word0: (asize / SECTOR) & 0xff_ffff | u64::from(vdev & 0xff_ffff) << 32,
            word1: (offset / SECTOR) | if gang { GANG } else { 0 },
        }
    }

    /// Id of the top-level vdev.
    #[inline]
    pub fn vdev(&self) -> u32 {
        high32(self.word0) & 0xff_ffff
    }

    /// Byte offset in the vdev's allocatable area. Saturates for a hostile word.
    #[inline]
    pub fn offset(&self) -> u64 {
        (self.word1 & !GANG).saturating_mul(SECTOR)
    }

    /// Allocated bytes, parity and padding included; of a gang the whole tree.
    #[inline]
    pub fn asize(&self) -> u64 {
        (self.word0 & 0xff_ffff) * SECTOR
    }

    /// Whether the address is that of a gang header.
    #[inline]
    pub fn is_gang(&self) -> bool {
        self.word1 & GANG != 0
    }

    /// Both words 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.word0 == 0 && self.word1 == 0
    }
}

impl fmt::Debug for Dva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gang = if self.is_gang() { "G" } else { "" };
        write!(
            f,
            "{gang}<{}:{:x}:{:x}>",
            self.vdev(),
            self.offset(),
            self.asize()
        )
    }
}

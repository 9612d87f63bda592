//! Block 0 of a fat ZAP: its counts, and where the pointer table is.
//!
//! ```text
//!  0 type 0x8000000000000001   8 magic 0x2F52AB2AB
//! 16 table block   24 table blocks   32 shift   40 next table   48 blocks copied
//! 56 freeblk  64 leaves  72 entries  80 salt  88 normflags  96 flags
//! half block: the embedded pointer table, in use while `table blocks` is 0
//! ```
//!
//! A copy kept next to the ZAP's lock is valid only while the object is unchanged
//! ([`super::known`]), so it cannot go stale.

use super::HEADER_TYPE;
use super::flaw::{Checked, Flaw};

/// Flag: 48 hash bits.
pub(crate) const HASH64: u64 = 1;
/// Flag: keys are rows of 64-bit words.
pub(crate) const UINT64_KEY: u64 = 2;
/// Flag: the first key word is the hash.
pub(crate) const PRE_HASHED_KEY: u64 = 4;
const MAGIC: u64 = 0x2_F52A_B2AB;
const WORDS: usize = 13;

/// The header, validated against the block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// log2 of the block size.
    pub block_shift: u32,
    pub table: u64,
    pub table_blocks: u64,
    pub shift: u32,
    pub next_table: u64,
    pub copied: u64,
    pub freeblk: u64,
    pub leafs: u64,
    pub entries: u64,
    pub salt: u64,
    pub normflags: u64,
    pub flags: u64,
}

impl Header {
    /// A new ZAP with one leaf, block 1.
    pub(crate) fn new(block_shift: u32, salt: u64, normflags: u64, flags: u64) -> Self {
        Self {
            block_shift,
            table: 0,
            table_blocks: 0,
            shift: block_shift - 4,
            next_table: 0,
            copied: 0,
            freeblk: 2,
            leafs: 1,
            entries: 0,
            salt,
            normflags,
            flags,
        }
    }

    /// Reads and validates it.
    pub(crate) fn parse(b: &[u8]) -> Checked<Self> {
        if !b.len().is_power_of_two() || !(1 << 9..=1 << 24).contains(&b.len()) {
            return Err(Flaw("a fat ZAP with a block size that is no power of two"));
        }
        let block_shift = b.len().trailing_zeros();
        let mut w = [0u64; WORDS];
        for (w, bytes) in w.iter_mut().zip(b.as_chunks::<8>().0) {
            *w = u64::from_le_bytes(*bytes);
        }
        if w[0] != HEADER_TYPE || w[1] != MAGIC {
            return Err(Flaw("a ZAP header without its magic"));
        }
        let h = Self {
            block_shift,
            table: w[2],
            table_blocks: w[3],
            shift: u32::try_from(w[4]).unwrap_or(u32::MAX),
            next_table: w[5],
            copied: w[6],
            freeblk: w[7],
            leafs: w[8],
            entries: w[9],
            salt: w[10],
            normflags: w[11],
            flags: w[12],
        };
        h.check()?;
        Ok(h)
    }

    fn check(&self) -> Checked<()> {
        let embedded = self.block_shift - 4;
        let sound = if self.table_blocks == 0 {
            self.shift == embedded && self.next_table == 0
        } else {
            self.shift > embedded
                && self.shift <= self.hash_bits().0 - 2
                && self.table_blocks == 1 << (self.shift - (self.block_shift - 3))
                && self.table != 0
        };
        if !sound {
            return Err(Flaw(
                "a ZAP pointer table whose size, shift and place disagree",
            ));
        }
        let end =
            |start: u64, blocks: u64| start.checked_add(blocks).is_some_and(|e| e <= self.freeblk);
        if self.freeblk < 2
            || self.freeblk > 1 << 48
            || !end(self.table, self.table_blocks)
            || self.next_table != 0
                && (!end(self.next_table, 2 * self.table_blocks)
                    || self.copied >= self.table_blocks)
        {
            return Err(Flaw("a ZAP pointer table beyond the blocks in use"));
        }
        if self.is_prehashed() && !self.has_word_keys() {
            return Err(Flaw("a ZAP of names that claims hashed keys"));
        }
        Ok(())
    }

    /// Stores it over the first words of block 0.
    pub(crate) fn store(&self, b: &mut [u8]) {
        let words = [
            HEADER_TYPE,
            MAGIC,
            self.table,
            self.table_blocks,
            u64::from(self.shift),
            self.next_table,
            self.copied,
            self.freeblk,
            self.leafs,
            self.entries,
            self.salt,
            self.normflags,
            self.flags,
        ];
        for (at, w) in b.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *at = w.to_le_bytes();
        }
    }

    /// A whole new header block with every embedded pointer at leaf 1.
    pub(crate) fn new_block(&self) -> Vec<u8> {
        let mut b = vec![0; 1 << self.block_shift];
        self.store(&mut b);
        let half = b.len() / 2;
        for p in b[half..].as_chunks_mut::<8>().0 {
            *p = 1u64.to_le_bytes();
        }
        b
    }

    /// Whether keys are rows of words.
    pub(crate) fn has_word_keys(&self) -> bool {
        self.flags & UINT64_KEY != 0
    }

    /// Whether the first key word is the hash.
    pub(crate) fn is_prehashed(&self) -> bool {
        self.flags & PRE_HASHED_KEY != 0
    }

    /// log2 of the pointers in one table block.
    pub(crate) fn table_block_shift(&self) -> u32 {
        self.block_shift - 3
    }

    /// Where pointer `i` is: block and byte offset.
    pub(crate) fn pointer_place(&self, i: u64) -> (u64, usize) {
        if self.table_blocks == 0 {
            (
                0,
                (1usize << (self.block_shift - 1))
                    + (i as usize & ((1 << (self.block_shift - 4)) - 1)) * 8,
            )
        } else {
            let s = self.table_block_shift();
            (self.table + (i >> s), (i & ((1 << s) - 1)) as usize * 8)
        }
    }

    /// Refuses a pointer that leads outside the leaves.
    pub(crate) fn check_leaf(&self, block: u64) -> Checked<u64> {
        let in_table =
            self.table_blocks != 0 && (self.table..self.table + self.table_blocks).contains(&block);
        if block >= self.freeblk || in_table {
            Err(Flaw("a ZAP pointer that leads to no leaf"))
        } else {
            Ok(block)
        }
    }
}

//! Bytes of ZAP blocks: micro blocks, fat headers, leaves and chunks. The logic of maps lives in the DMU.
//!
//! The first word of block 0 tells the format. Everything is read little-endian: blocks were swapped before. Array
//! data in chunks are big-endian integers whatever the writer.
//!
//! | micro | | fat header | | leaf | |
//! |---|---|---|---|---|---|
//! | 0 | type …03 | 0 | type …01 | 0 | type …00 |
//! | 8 | salt | 8 | magic | 16 | prefix |
//! | 16 | normflags | 16..56 | pointer table | 24 | magic |
//! | 64 | entries of 64 | 56.. | counts, salt, flags | 28..37 | counts, prefix length, freelist, flags |
//! | | | half | embedded pointers | 48 | buckets, then chunks of 24 |

use crate::error::{FormatResult, bad, need};
use crate::field::{put_u16, put_u32, put_u64, u8_at, u16_at, u32_at, u64_at};

/// First word of a micro ZAP.
pub const MICRO: u64 = 0x8000_0000_0000_0003;
/// First word of a fat ZAP's header.
pub const FAT_HEADER: u64 = 0x8000_0000_0000_0001;
/// First word of a leaf.
pub const LEAF: u64 = 0x8000_0000_0000_0000;
/// Second word of a fat ZAP's header.
pub const FAT_MAGIC: u64 = 0x0002_f52a_b2ab;
/// Magic of a leaf.
pub const LEAF_MAGIC: u32 = 0x02ab_1eaf;

/// What block 0 of a ZAP is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZapKind {
    /// One block of 64-byte entries.
    Micro,
    /// Header, pointer table, leaves.
    Fat,
}

/// The format of a ZAP, by its block 0.
///
/// # Errors
/// Neither format.
pub fn zap_kind(block: &[u8]) -> FormatResult<ZapKind> {
    match (u64_at(block, 0), u64_at(block, 8)) {
        (MICRO, _) if block.len() >= micro::HEADER_SIZE => Ok(ZapKind::Micro),
        (FAT_HEADER, FAT_MAGIC) => Ok(ZapKind::Fat),
        (word, _) => bad(format!("ZAP begins with {word:#x}")),
    }
}

/// Hash of the key covers 48 bits, not 28.
pub const FLAG_HASH64: u64 = 1;
/// Keys are arrays of 64-bit words.
pub const FLAG_UINT64_KEY: u64 = 2;
/// The first word of a key is its hash.
pub const FLAG_PRE_HASHED_KEY: u64 = 4;
/// Names are folded to upper case.
pub const NORM_TOUPPER: u64 = 0x02;
/// Canonical decomposition.
pub const NORM_FORM_D: u64 = 0x10;
/// Compatibility decomposition.
pub const NORM_FORM_KD: u64 = 0x20;
/// Canonical composition.
pub const NORM_FORM_C: u64 = 0x50;
/// Compatibility composition.
pub const NORM_FORM_KC: u64 = 0x60;

/// Micro ZAPs.
pub mod micro {
    use super::*;

    /// Bytes before the first entry.
    pub const HEADER_SIZE: usize = 64;
    /// Bytes of an entry.
    pub const ENTRY_SIZE: usize = 64;
    /// Offset of the name in an entry.
    pub const NAME_AT: usize = 14;
    /// Bytes of the name field, NUL included.
    pub const NAME_SIZE: usize = 50;
    /// Longest name.
    pub const NAME_MAX: usize = NAME_SIZE - 1;

    /// Salt of the hash.
    pub fn salt(block: &[u8]) -> u64 {
        u64_at(block, 8)
    }

    /// Normalization flags.
    pub fn normflags(block: &[u8]) -> u64 {
        u64_at(block, 16)
    }

    /// Whether the reserved part of the header is blank: else a writer keeps off.
    pub fn is_known(block: &[u8]) -> bool {
        block
            .get(24..HEADER_SIZE)
            .is_some_and(|rest| rest.iter().all(|b| *b == 0))
    }

    /// Writes the header of an empty block.
    pub fn init(block: &mut [u8], salt: u64, normflags: u64) {
        block.fill(0);
        put_u64(block, 0, MICRO);
        put_u64(block, 8, salt);
        put_u64(block, 16, normflags);
    }

    /// Number of slots, used or free.
    pub fn slot_count(block: &[u8]) -> usize {
        (block.len() / ENTRY_SIZE).saturating_sub(1)
    }

    /// The 64 bytes of a slot.
    pub fn slot(block: &[u8], slot: usize) -> Option<&[u8; ENTRY_SIZE]> {
        block.as_chunks::<ENTRY_SIZE>().0.get(slot + 1)
    }

    /// The 64 bytes of a slot, to change.
    pub fn slot_mut(block: &mut [u8], slot: usize) -> Option<&mut [u8; ENTRY_SIZE]> {
        block.as_chunks_mut::<ENTRY_SIZE>().0.get_mut(slot + 1)
    }

    /// Name of a slot, empty for a free one. A name without NUL ends with its field.
    #[inline]
    pub fn name(slot: &[u8; ENTRY_SIZE]) -> &[u8] {
        let field = &slot[NAME_AT..];
        &field[..field.iter().position(|b| *b == 0).unwrap_or(NAME_SIZE)]
    }

    /// Whether a slot is in use.
    #[inline]
    pub fn is_used(slot: &[u8; ENTRY_SIZE]) -> bool {
        slot[NAME_AT] != 0
    }

    /// Value of a slot.
    #[inline]
    pub fn value(slot: &[u8; ENTRY_SIZE]) -> u64 {
        u64_at(slot, 0)
    }

    /// Collision differentiator of a slot.
    #[inline]
    pub fn cd(slot: &[u8; ENTRY_SIZE]) -> u32 {
        u32_at(slot, 8)
    }

    /// Fills a slot; `name` is 1..=49 bytes.
    pub fn set(slot: &mut [u8; ENTRY_SIZE], name: &[u8], value: u64, cd: u32) {
        slot.fill(0);
        put_u64(slot, 0, value);
        put_u32(slot, 8, cd);
        slot[NAME_AT..NAME_AT + name.len().min(NAME_MAX)]
            .copy_from_slice(&name[..name.len().min(NAME_MAX)]);
    }
}

/// Header of a fat ZAP (the embedded pointer table is not in it).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FatHeader {
    /// First block of the external pointer table, 0 = embedded.
    pub table_block: u64,
    /// Blocks of the external pointer table, 0 = embedded.
    pub table_blocks: u64,
    /// log2 of the number of pointers.
    pub table_shift: u64,
    /// First block of the next table while it grows, else 0.
    pub next_block: u64,
    /// Blocks of the present table already copied.
    pub blocks_copied: u64,
    /// First block never used.
    pub free_block: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of entries.
    pub entries: u64,
    /// Salt of the hash.
    pub salt: u64,
    /// Normalization flags.
    pub normflags: u64,
    /// Flag bits.
    pub flags: u64,
}

impl FatHeader {
    /// Parses block 0 of a fat ZAP.
    ///
    /// # Errors
    /// No header, or a pointer table of impossible shape.
    pub fn parse(block: &[u8]) -> FormatResult<Self> {
        need(block, 512, "ZAP header")?;
        if zap_kind(block)? != ZapKind::Fat || !block.len().is_power_of_two() {
            return bad("not the header of a fat ZAP");
        }
        let word = |i: usize| u64_at(block, 16 + 8 * i);
        let header = Self {
            table_block: word(0),
            table_blocks: word(1),
            table_shift: word(2),
            next_block: word(3),
            blocks_copied: word(4),
            free_block: word(5),
            leaves: word(6),
            entries: word(7),
            salt: word(8),
            normflags: word(9),
            flags: word(10),
        };
        let shift = u64::from(block.len().ilog2());
        let fits = if header.table_blocks == 0 {
            header.table_shift == shift - 4
        } else {
            header.table_shift >= shift - 3
                && header.table_shift < 48
                && header.table_blocks == 1 << (header.table_shift - (shift - 3))
        };
        if !fits {
            return bad(format!(
                "ZAP pointer table of {} blocks, shift {}",
                header.table_blocks, header.table_shift
            ));
        }
        Ok(header)
    }

    /// Writes the fields to block 0, leaving the embedded table alone.
    pub fn write_le(&self, block: &mut [u8]) {
        put_u64(block, 0, FAT_HEADER);
        put_u64(block, 8, FAT_MAGIC);
        let words = [
            self.table_block,
            self.table_blocks,
            self.table_shift,
            self.next_block,
            self.blocks_copied,
            self.free_block,
            self.leaves,
            self.entries,
            self.salt,
            self.normflags,
            self.flags,
        ];
        for (i, word) in words.into_iter().enumerate() {
            put_u64(block, 16 + 8 * i, word);
        }
    }

    /// Whether the pointers are in block 0.
    pub fn is_embedded(&self) -> bool {
        self.table_blocks == 0
    }

    /// Bits of the hash that are kept.
    pub fn hash_bits(&self) -> u32 {
        if self.flags & FLAG_HASH64 != 0 {
            48
        } else {
            28
        }
    }

    /// Embedded pointer by index.
    pub fn embedded_pointer(block: &[u8], index: usize) -> u64 {
        u64_at(block, block.len() / 2 + 8 * index)
    }

    /// Stores an embedded pointer.
    pub fn set_embedded_pointer(block: &mut [u8], index: usize, leaf: u64) {
        let at = block.len() / 2 + 8 * index;
        put_u64(block, at, leaf);
    }
}

/// Leaf blocks.
pub mod leaf {
    use super::*;

    /// Bytes before the buckets.
    pub const HEADER_SIZE: usize = 48;
    /// Bytes of a chunk.
    pub const CHUNK_SIZE: usize = 24;
    /// Data bytes in an array chunk.
    pub const ARRAY_BYTES: usize = 21;
    /// End of a chain.
    pub const CHAIN_END: u16 = 0xffff;
    /// Chunk type of an entry.
    pub const CHUNK_ENTRY: u8 = 252;
    /// Chunk type of array data.
    pub const CHUNK_ARRAY: u8 = 251;
    /// Chunk type of a free chunk.
    pub const CHUNK_FREE: u8 = 253;
    /// Chains are sorted by cd.
    pub const FLAG_CD_SORTED: u8 = 1;

    /// Number of hash buckets in a leaf of `1 << shift` bytes.
    pub const fn bucket_count(shift: u32) -> usize {
        1 << (shift - 5)
    }

    /// Number of chunks in a leaf of `1 << shift` bytes.
    pub const fn chunk_count(shift: u32) -> usize {
        ((1 << shift) - 2 * bucket_count(shift)) / CHUNK_SIZE - 2
    }

    /// Offset of the first chunk.
    pub const fn chunks_at(shift: u32) -> usize {
        HEADER_SIZE + 2 * bucket_count(shift)
    }

    /// Header of a leaf.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct LeafHeader {
        /// Top bits shared by all hashes of the leaf.
        pub prefix: u64,
        /// Number of those bits.
        pub prefix_len: u16,
        /// Free chunks.
        pub nfree: u16,
        /// Entries.
        pub nentries: u16,
        /// First free chunk.
        pub freelist: u16,
        /// Flag bits.
        pub flags: u8,
    }

    impl LeafHeader {
        /// Parses a leaf's header.
        ///
        /// # Errors
        /// Not a leaf, or counts beyond its chunks.
        pub fn parse(block: &[u8]) -> FormatResult<Self> {
            if block.len() < 512 || !block.len().is_power_of_two() {
                return bad(format!("ZAP leaf of {} bytes", block.len()));
            }
            if u64_at(block, 0) != LEAF || u32_at(block, 24) != LEAF_MAGIC {
                return bad("ZAP leaf without its magic");
            }
            let header = Self {
                prefix: u64_at(block, 16),
                nfree: u16_at(block, 28),
                nentries: u16_at(block, 30),
                prefix_len: u16_at(block, 32),
                freelist: u16_at(block, 34),
                flags: u8_at(block, 36),
            };
            let chunks = chunk_count(block.len().ilog2());
            if usize::from(header.nfree) + usize::from(header.nentries) > chunks
                || header.prefix_len > 48
            {
                return bad("ZAP leaf counts more than it holds");
            }
            Ok(header)
        }

        /// Writes the header.
        pub fn write_le(&self, block: &mut [u8]) {
            block[..HEADER_SIZE].fill(0);
            put_u64(block, 0, LEAF);
            put_u64(block, 16, self.prefix);
            put_u32(block, 24, LEAF_MAGIC);
            put_u16(block, 28, self.nfree);
            put_u16(block, 30, self.nentries);
            put_u16(block, 32, self.prefix_len);
            put_u16(block, 34, self.freelist);
            block[36] = self.flags;
        }
    }

    /// First entry of a bucket.
    #[inline]
    pub fn bucket(block: &[u8], index: usize) -> u16 {
        u16_at(block, HEADER_SIZE + 2 * index)
    }

    /// Sets the first entry of a bucket.
    #[inline]
    pub fn set_bucket(block: &mut [u8], index: usize, chunk: u16) {
        put_u16(block, HEADER_SIZE + 2 * index, chunk);
    }

    /// The 24 bytes of a chunk; `None` past the last.
    #[inline]
    pub fn chunk(block: &[u8], index: u16) -> Option<&[u8; CHUNK_SIZE]> {
        let at = chunks_at(block.len().checked_ilog2()?.max(9)) + CHUNK_SIZE * usize::from(index);
        block.get(at..)?.first_chunk()
    }

    /// The 24 bytes of a chunk, to change.
    #[inline]
    pub fn chunk_mut(block: &mut [u8], index: u16) -> Option<&mut [u8; CHUNK_SIZE]> {
        let at = chunks_at(block.len().checked_ilog2()?.max(9)) + CHUNK_SIZE * usize::from(index);
        block.get_mut(at..)?.first_chunk_mut()
    }

    /// An entry chunk.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct EntryChunk {
        /// Bytes of an integer of the value: 1, 2, 4, 8.
        pub value_size: u8,
        /// Next entry of the bucket.
        pub next: u16,
        /// First chunk of the name.
        pub name_chunk: u16,
        /// Integers of the name: bytes with NUL, or words.
        pub name_len: u16,
        /// First chunk of the value.
        pub value_chunk: u16,
        /// Integers of the value.
        pub value_len: u16,
        /// Collision differentiator.
        pub cd: u32,
        /// Hash.
        pub hash: u64,
    }

    impl EntryChunk {
        /// Parses a chunk; `None` if it is not an entry.
        #[inline]
        pub fn parse(chunk: &[u8; CHUNK_SIZE]) -> Option<Self> {
            (chunk[0] == CHUNK_ENTRY).then(|| Self {
                value_size: chunk[1],
                next: u16_at(chunk, 2),
                name_chunk: u16_at(chunk, 4),
                name_len: u16_at(chunk, 6),
                value_chunk: u16_at(chunk, 8),
                value_len: u16_at(chunk, 10),
                cd: u32_at(chunk, 12),
                hash: u64_at(chunk, 16),
            })
        }

        /// Writes the chunk.
        pub fn write_le(&self, chunk: &mut [u8; CHUNK_SIZE]) {
            chunk[0] = CHUNK_ENTRY;
            chunk[1] = self.value_size;
            put_u16(chunk, 2, self.next);
            put_u16(chunk, 4, self.name_chunk);
            put_u16(chunk, 6, self.name_len);
            put_u16(chunk, 8, self.value_chunk);
            put_u16(chunk, 10, self.value_len);
            put_u32(chunk, 12, self.cd);
            put_u64(chunk, 16, self.hash);
        }
    }

    /// Sets the next entry of the bucket in an entry chunk.
    #[inline]
    pub fn set_entry_next(chunk: &mut [u8; CHUNK_SIZE], next: u16) {
        put_u16(chunk, 2, next);
    }

    /// Data and next chunk of an array chunk; `None` if it is not one.
    #[inline]
    pub fn array(chunk: &[u8; CHUNK_SIZE]) -> Option<(&[u8; ARRAY_BYTES], u16)> {
        if chunk[0] != CHUNK_ARRAY {
            return None;
        }
        Some((chunk[1..].first_chunk()?, u16_at(chunk, 22)))
    }

    /// Writes an array chunk of up to 21 bytes, zero-filled.
    pub fn set_array(chunk: &mut [u8; CHUNK_SIZE], data: &[u8], next: u16) {
        let len = data.len().min(ARRAY_BYTES);
        chunk[0] = CHUNK_ARRAY;
        chunk[1..1 + len].copy_from_slice(&data[..len]);
        chunk[1 + len..22].fill(0);
        put_u16(chunk, 22, next);
    }

    /// Writes a free chunk.
    pub fn set_free(chunk: &mut [u8; CHUNK_SIZE], next: u16) {
        chunk[0] = CHUNK_FREE;
        chunk[1..22].fill(0);
        put_u16(chunk, 22, next);
    }

    /// Next free chunk of a free chunk; `None` if it is not free.
    pub fn free_next(chunk: &[u8; CHUNK_SIZE]) -> Option<u16> {
        (chunk[0] == CHUNK_FREE).then(|| u16_at(chunk, 22))
    }

    /// Makes the block an empty leaf.
    pub fn init(block: &mut [u8], prefix: u64, prefix_len: u16, flags: u8) {
        let shift = block.len().ilog2();
        let chunks = chunk_count(shift) as u16;
        block.fill(0);
        let header = LeafHeader {
            prefix,
            prefix_len,
            nfree: chunks,
            nentries: 0,
            freelist: 0,
            flags,
        };
        header.write_le(block);
        block[HEADER_SIZE..chunks_at(shift)].fill(0xff);
        for (i, chunk) in block[chunks_at(shift)..]
            .as_chunks_mut::<CHUNK_SIZE>()
            .0
            .iter_mut()
            .enumerate()
        {
            let next = i as u16 + 1;
            set_free(chunk, if next == chunks { CHAIN_END } else { next });
        }
    }
}

#[cfg(test)]
mod tests;

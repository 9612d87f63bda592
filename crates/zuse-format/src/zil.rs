//! The intent log: its header in the object set, the head of its blocks, its records.
//!
//! Header, 192 bytes at offset 512 of the objset block:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | txg in which the log was claimed, 0 for none |
//! | 8 | 8 | highest record that was replayed |
//! | 16 | 128 | pointer to the first block; a hole: no log |
//! | 144 | 8 | highest block that was claimed |
//! | 152 | 8 | flags |
//! | 160 | 8 | highest record that was claimed |
//!
//! Chain head, 184 bytes at the start of a block (`zilog2`) or at its end (`zilog`):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 8 | 128 | pointer to the next block |
//! | 136 | 8 | bytes used |
//! | 144 | 40 | magic and checksum |
//!
//! Blocks are in the byte order of their writer; nothing here swaps a whole block.

mod record;

pub use record::{Body, Create, LoggedAcl, Record, SetAttr, WRITE_HEAD, XattrFlags};

use zuse_base::ByteOrder;

use crate::block_pointer::{BP_SIZE, BlockPointer};
use crate::error::{FormatResult, bad};
use crate::field::{put_u64, u64_at, u64_in};
use crate::objset::ZIL_HEADER_SIZE;

/// Bytes of a chain head.
pub const CHAIN_HEAD: usize = 184;
/// Bytes of a record's common part.
pub const RECORD_HEAD: usize = 32;

/// A claimed log has something to replay.
pub const REPLAY_NEEDED: u64 = 1;
/// The highest claimed record is known.
pub const CLAIM_LR_SEQ_VALID: u64 = 2;

const CLAIM_TXG: usize = 0;
const REPLAY_SEQ: usize = 8;
const LOG: usize = 16;
const CLAIM_BLOCK: usize = 144;
const FLAGS: usize = 152;
const CLAIM_RECORD: usize = 160;

/// The header of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZilHeader {
    /// Txg in which it was claimed; 0 if not claimed.
    pub claim_txg: u64,
    /// Highest record that was replayed.
    pub replay_seq: u64,
    /// The first block; a hole if there is no log.
    pub log: BlockPointer,
    /// Highest block that was claimed.
    pub claim_blk_seq: u64,
    /// [`REPLAY_NEEDED`], [`CLAIM_LR_SEQ_VALID`].
    pub flags: u64,
    /// Highest record that was claimed.
    pub claim_lr_seq: u64,
}

impl Default for ZilHeader {
    fn default() -> Self {
        Self {
            claim_txg: 0,
            replay_seq: 0,
            log: BlockPointer::HOLE,
            claim_blk_seq: 0,
            flags: 0,
            claim_lr_seq: 0,
        }
    }
}

impl ZilHeader {
    /// From the object set's bytes, which are little-endian.
    pub fn parse(bytes: &[u8; ZIL_HEADER_SIZE]) -> Self {
        Self {
            claim_txg: u64_at(bytes, CLAIM_TXG),
            replay_seq: u64_at(bytes, REPLAY_SEQ),
            log: BlockPointer::at(bytes, LOG).unwrap_or(BlockPointer::HOLE),
            claim_blk_seq: u64_at(bytes, CLAIM_BLOCK),
            flags: u64_at(bytes, FLAGS),
            claim_lr_seq: u64_at(bytes, CLAIM_RECORD),
        }
    }

    /// The bytes, little-endian.
    pub fn to_bytes(&self) -> [u8; ZIL_HEADER_SIZE] {
        let mut out = [0; ZIL_HEADER_SIZE];
        put_u64(&mut out, CLAIM_TXG, self.claim_txg);
        put_u64(&mut out, REPLAY_SEQ, self.replay_seq);
        if !self.log.is_hole() {
            self.log.write_le(&mut out[LOG..LOG + BP_SIZE]);
        }
        put_u64(&mut out, CLAIM_BLOCK, self.claim_blk_seq);
        put_u64(&mut out, FLAGS, self.flags);
        put_u64(&mut out, CLAIM_RECORD, self.claim_lr_seq);
        out
    }

    /// Notes in a header's bytes that a record was replayed.
    pub fn set_replayed(bytes: &mut [u8; ZIL_HEADER_SIZE], seq: u64) {
        put_u64(bytes, REPLAY_SEQ, seq);
    }

    /// Whether it was claimed.
    pub fn is_claimed(&self) -> bool {
        self.claim_txg != 0
    }

    /// The highest block a walk may visit.
    pub fn block_limit(&self) -> u64 {
        if self.is_claimed() {
            self.claim_blk_seq
        } else {
            u64::MAX
        }
    }

    /// The highest record a walk may visit.
    pub fn record_limit(&self) -> u64 {
        if self.is_claimed() && self.flags & CLAIM_LR_SEQ_VALID != 0 {
            self.claim_lr_seq
        } else {
            u64::MAX
        }
    }
}

/// A parsed log block, whose checksum was right.
#[derive(Debug)]
pub struct LogBlock<'a> {
    /// The next block; a hole if none could be allocated.
    pub next: BlockPointer,
    /// The records, one after the other.
    pub records: &'a [u8],
    /// The writer's byte order.
    pub order: ByteOrder,
}

impl<'a> LogBlock<'a> {
    /// Parses a block; `verifier` is that of its pointer.
    ///
    /// # Errors
    /// The used length does not fit, or the next block's verifier does not follow: the chain ends
    /// before this block.
    pub fn parse(
        bytes: &'a [u8],
        order: ByteOrder,
        legacy: bool,
        verifier: [u64; 4],
    ) -> FormatResult<Self> {
        let Some(from) = (if legacy {
            bytes.len().checked_sub(CHAIN_HEAD)
        } else {
            Some(0)
        }) else {
            return bad("a log block is shorter than its head");
        };
        let Some(head) = bytes.get(from..from + CHAIN_HEAD) else {
            return bad("a log block is shorter than its head");
        };
        let used = usize::try_from(u64_in(head, 136, order)).unwrap_or(usize::MAX);
        let records = if legacy {
            bytes.get(..from).and_then(|r| r.get(..used))
        } else {
            bytes.get(CHAIN_HEAD..used)
        };
        let Some(records) = records else {
            return bad("a log block uses more bytes than it has");
        };
        let Some(next) = head.get(8..).and_then(|b| b.first_chunk::<BP_SIZE>()) else {
            return bad("a log block is shorter than its head");
        };
        let next = BlockPointer::parse(next, order);
        // With a successor of another chain, old records would pass as new ones.
        let [a, b, set, seq] = verifier;
        if next.checksum() != [a, b, set, seq.wrapping_add(1)] {
            return bad("the next log block is of another chain");
        }
        Ok(Self {
            next,
            records,
            order,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! The self-checksum at a block's end: labels, uberblocks, gang headers.
//!
//! | from the end | bytes | content |
//! |---|---|---|
//! | −40 | 8 | magic 0x0210da7ab10c7a11 |
//! | −32 | 32 | four words |
//!
//! The words are SHA-256 over the block with a *verifier* in their place. The verifier says where
//! the block belongs: the device offset of a label, or vdev, offset and birth of a gang header. So
//! a block that was written elsewhere or at another time fails. The byte order of the magic is the
//! writer's. Verifier and words are stored in it; the hash covers raw bytes.

use super::{sha256_words, truncate, word_bytes, words};
use crate::{ChecksumKind, CodecError};
use sha2::{Digest, Sha256};
use zuse_base::ByteOrder;

/// The magic in front of an embedded checksum.
pub const TRAILER_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Bytes of the trailer.
pub const TRAILER_SIZE: usize = 40;

/// The byte order that a stored magic shows.
pub(super) fn order_of(magic: [u8; 8]) -> Result<ByteOrder, CodecError> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|o| o.u64(magic) == TRAILER_MAGIC)
        .ok_or(CodecError::NoMagic)
}

/// Block up to its words, and the words.
fn split(block: &[u8]) -> Result<(&[u8], &[u8; 32]), CodecError> {
    match block.split_last_chunk::<32>() {
        Some((head, words)) if head.len() >= 8 => Ok((head, words)),
        _ => Err(CodecError::Length(block.len())),
    }
}

fn hash(head: &[u8], verifier: [u64; 4], order: ByteOrder) -> [u64; 4] {
    sha256_words(Sha256::new_with_prefix(head).chain_update(word_bytes(verifier, order)))
}

fn seal(block: &mut [u8], verifier: [u64; 4], last: impl Fn([u64; 4]) -> [u64; 4]) {
    let at = block
        .len()
        .checked_sub(TRAILER_SIZE)
        .expect("a self-checksummed block has room for its trailer");
    // On every host: a reader takes the order from the magic (01-pool §1.4).
    let order = ByteOrder::Little;
    block[at..at + 8].copy_from_slice(&order.bytes_of_u64(TRAILER_MAGIC));
    let sum = last(hash(&block[..at + 8], verifier, order));
    block[at + 8..].copy_from_slice(&word_bytes(sum, order));
}

fn open(
    block: &[u8],
    verifier: [u64; 4],
    last: impl Fn([u64; 4]) -> [u64; 4],
) -> Result<ByteOrder, CodecError> {
    let (head, stored) = split(block)?;
    let magic = head.last_chunk().ok_or(CodecError::Length(block.len()))?;
    let order = order_of(*magic)?;
    if last(hash(head, verifier, order)) != words(stored, order) {
        return Err(CodecError::Mismatch);
    }
    Ok(order)
}

fn folded(words: [u64; 4]) -> [u64; 4] {
    let [a, b] = truncate(ChecksumKind::GangHeader, words);
    [a, b, 0, 0]
}

/// Writes magic and words into the block's last 40 bytes.
///
/// # Panics
/// If the block is shorter than its trailer.
pub fn seal_trailer(block: &mut [u8], verifier: [u64; 4]) {
    seal(block, verifier, |w| w);
}

/// Checks the block's last 40 bytes and returns the writer's byte order.
///
/// # Errors
/// [`CodecError::NoMagic`], [`CodecError::Mismatch`], [`CodecError::Length`]: the block does not
/// exist as far as the reader is concerned.
pub fn open_trailer(block: &[u8], verifier: [u64; 4]) -> Result<ByteOrder, CodecError> {
    open(block, verifier, |w| w)
}

/// [`seal_trailer`] for the gang header of a leader with encryption handling: the words are
/// folded to two, the others are zero.
///
/// # Panics
/// If the block is shorter than its trailer.
pub fn seal_trailer_truncated(block: &mut [u8], verifier: [u64; 4]) {
    seal(block, verifier, folded);
}

/// [`open_trailer`] for the gang header of a leader with encryption handling.
///
/// # Errors
/// As [`open_trailer`].
pub fn open_trailer_truncated(block: &[u8], verifier: [u64; 4]) -> Result<ByteOrder, CodecError> {
    open(block, verifier, folded)
}

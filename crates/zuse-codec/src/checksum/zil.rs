//! The self-checksum of log blocks.
//!
//! | form | chain header (184 bytes) | sum | covers |
//! |---|---|---|---|
//! | zilog2 | at the block's start | fletcher4 | the used bytes, rounded up to 4096 |
//! | zilog, old pools | at the block's end | fletcher2 | the whole block |
//!
//! In the header: bytes used at 136, magic at 144, words at 152. The verifier takes the place of
//! the words during the sum. It comes from the block pointer: a random log guid, the dataset and
//! the sequence number. So a block of an older log can never pass. The used length is read before
//! it is verified. So it is limited to the block, and bytes beyond it are never read.

use super::fletcher2::Fletcher2;
use super::trailer::{TRAILER_MAGIC, order_of};
use super::{Fletcher4, word_bytes, words};
use crate::CodecError;
use zuse_base::ByteOrder;

const USED: usize = 136;
const MAGIC: usize = 144;
const WORDS: usize = 152;
const HEADER: usize = 184;
const UNIT: usize = 4096;

/// The stored and the computed checksum of a zilog2 block.
///
/// For an encrypted dataset words 2 and 3 of `stored` are a MAC; compare
/// `truncate(ChecksumKind::Zilog2, computed)` with words 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZilSums {
    /// The writer's byte order.
    pub order: ByteOrder,
    /// Bytes covered: nothing beyond them may be read.
    pub covered: usize,
    /// The words in the block.
    pub stored: [u64; 4],
    /// The words computed from its bytes and the verifier.
    pub computed: [u64; 4],
}

/// The chain header's parts: used, magic, words.
fn header(bytes: &[u8]) -> Option<([u8; 8], [u8; 8], &[u8; 32])> {
    Some((
        *bytes.get(USED..)?.first_chunk()?,
        *bytes.get(MAGIC..)?.first_chunk()?,
        bytes.get(WORDS..)?.first_chunk()?,
    ))
}

/// Sums a zilog2 block.
///
/// # Errors
/// [`CodecError::NoMagic`], or [`CodecError::Length`] if the used length does not fit the block.
pub fn zil_sums(block: &[u8], verifier: [u64; 4]) -> Result<ZilSums, CodecError> {
    let (used, magic, stored) = header(block).ok_or(CodecError::Length(block.len()))?;
    let order = order_of(magic)?;
    // The length is not verified yet, so it must not lead beyond the block.
    let covered = usize::try_from(order.u64(used))
        .ok()
        .and_then(|u| u.checked_next_multiple_of(UNIT))
        .filter(|&n| (HEADER..=block.len()).contains(&n))
        .ok_or(CodecError::Length(block.len()))?;
    let mut sum = Fletcher4::with_order(order);
    sum.update(&block[..WORDS]);
    sum.update(&word_bytes(verifier, order));
    sum.update(&block[HEADER..covered]);
    Ok(ZilSums {
        order,
        covered,
        stored: words(stored, order),
        computed: sum.words(),
    })
}

/// Writes magic and words of a zilog2 block whose used length is in place; returns the bytes to
/// write.
///
/// # Errors
/// [`CodecError::Length`] if the used length does not fit the block.
pub fn seal_zil(block: &mut [u8], verifier: [u64; 4]) -> Result<usize, CodecError> {
    if block.len() < HEADER {
        return Err(CodecError::Length(block.len()));
    }
    // First, because the sum covers the magic and takes the byte order from it.
    block[MAGIC..WORDS].copy_from_slice(&TRAILER_MAGIC.to_le_bytes());
    let sums = zil_sums(block, verifier)?;
    block[WORDS..HEADER].copy_from_slice(&word_bytes(sums.computed, ByteOrder::Little));
    Ok(sums.covered)
}

/// Checks a zilog2 block; returns the writer's byte order and the bytes that may be read.
///
/// # Errors
/// As [`zil_sums`], and [`CodecError::Mismatch`]: the chain ends before this block.
pub fn open_zil(block: &[u8], verifier: [u64; 4]) -> Result<(ByteOrder, usize), CodecError> {
    let sums = zil_sums(block, verifier)?;
    if sums.stored != sums.computed {
        return Err(CodecError::Mismatch);
    }
    Ok((sums.order, sums.covered))
}

fn legacy_sum(head: &[u8], verifier: [u64; 4], order: ByteOrder) -> [u64; 4] {
    let mut sum = Fletcher2::default();
    sum.update(head, order);
    sum.update(&word_bytes(verifier, order), order);
    sum.words()
}

/// Writes magic and words of a zilog block.
///
/// # Errors
/// [`CodecError::Length`] if it is no multiple of 512 bytes.
pub fn seal_zil_legacy(block: &mut [u8], verifier: [u64; 4]) -> Result<(), CodecError> {
    let len = block.len();
    if len == 0 || !len.is_multiple_of(512) {
        return Err(CodecError::Length(len));
    }
    block[len - 40..len - 32].copy_from_slice(&TRAILER_MAGIC.to_le_bytes());
    let sum = legacy_sum(&block[..len - 32], verifier, ByteOrder::Little);
    block[len - 32..].copy_from_slice(&word_bytes(sum, ByteOrder::Little));
    Ok(())
}

/// Checks a zilog block and returns the writer's byte order.
///
/// # Errors
/// [`CodecError::NoMagic`], [`CodecError::Mismatch`], [`CodecError::Length`]: the chain ends
/// before this block.
pub fn open_zil_legacy(block: &[u8], verifier: [u64; 4]) -> Result<ByteOrder, CodecError> {
    let length = CodecError::Length(block.len());
    if !block.len().is_multiple_of(512) {
        return Err(length);
    }
    let (head, stored) = block.split_last_chunk::<32>().ok_or(length)?;
    let order = order_of(*head.last_chunk().ok_or(length)?)?;
    if legacy_sum(head, verifier, order) != words(stored, order) {
        return Err(CodecError::Mismatch);
    }
    Ok(order)
}

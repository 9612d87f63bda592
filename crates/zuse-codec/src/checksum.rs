//! Checksums: bytes to the four words that a block pointer stores.
//!
//! The words are *values*: a block pointer that was read in its container's byte order compares
//! equal to what [`checksum`] returns. How digest bytes become words depends on the function:
//!
//! | function | words |
//! |---|---|
//! | fletcher2, fletcher4 | sums of integers that are read in the block's byte order |
//! | sha256 | big-endian groups of 8 digest bytes, whatever the order |
//! | sha512, skein, edonr, blake3 | groups of 8 digest bytes, read in the block's byte order |
//!
//! A salted function without a salt is an error, never an unsalted result. So is a number that only
//! a property can hold (inherit, on).

mod context;
mod edonr;
mod fletcher2;
mod fletcher4;
mod kind;
mod skein;
mod trailer;
mod zil;

pub use context::{ChecksumContext, Salt};
pub use fletcher4::Fletcher4;
pub use kind::ChecksumKind;
pub use trailer::{
    TRAILER_MAGIC, TRAILER_SIZE, open_trailer, open_trailer_truncated, seal_trailer,
    seal_trailer_truncated,
};
pub use zil::{ZilSums, open_zil, open_zil_legacy, seal_zil, seal_zil_legacy, zil_sums};

use crate::CodecError;
use sha2::{Digest, Sha256, Sha512_256};
use zuse_base::ByteOrder;

/// Checksum of stored bytes: the words for a block pointer whose block has that byte order.
///
/// The embedded kinds (label, gang header, zilog, zilog2) give their plain function over `data`;
/// the scheme around it is [`seal_trailer`] and [`seal_zil`]. Off and noparity give zeros.
///
/// # Errors
/// [`CodecError::NoFunction`] for inherit and on, [`CodecError::NoSalt`] for a salted function
/// without salt, [`CodecError::Length`] if a fletcher sum cannot cover the length.
pub fn checksum(
    kind: ChecksumKind,
    data: &[u8],
    order: ByteOrder,
    ctx: &ChecksumContext,
) -> Result<[u64; 4], CodecError> {
    let no_salt = CodecError::NoSalt(kind.name());
    Ok(match kind {
        ChecksumKind::Inherit | ChecksumKind::On => {
            return Err(CodecError::NoFunction(kind.name()));
        }
        ChecksumKind::Off | ChecksumKind::NoParity => [0; 4],
        ChecksumKind::Fletcher2 | ChecksumKind::Zilog => {
            // Bytes after the last pair of words would not be summed, so damage there would pass.
            if !data.len().is_multiple_of(16) {
                return Err(CodecError::Length(data.len()));
            }
            fletcher2::fletcher2(data, order)
        }
        ChecksumKind::Fletcher4 | ChecksumKind::Zilog2 => {
            if !data.len().is_multiple_of(4) {
                return Err(CodecError::Length(data.len()));
            }
            fletcher4::fletcher4(data, order)
        }
        ChecksumKind::Label | ChecksumKind::GangHeader | ChecksumKind::Sha256 => {
            sha256_words(Sha256::new_with_prefix(data))
        }
        ChecksumKind::Sha512 => words(&Sha512_256::digest(data).into(), order),
        ChecksumKind::Skein => words(&ctx.skein.as_ref().ok_or(no_salt)?.mac(data), order),
        ChecksumKind::Edonr => words(&ctx.edonr.as_ref().ok_or(no_salt)?.digest(data), order),
        ChecksumKind::Blake3 => words(
            blake3::keyed_hash(&ctx.salt.as_ref().ok_or(no_salt)?.0, data).as_bytes(),
            order,
        ),
    })
}

/// Whether stored bytes have the checksum that their block pointer holds.
///
/// # Errors
/// As [`checksum`].
pub fn verify(
    kind: ChecksumKind,
    data: &[u8],
    order: ByteOrder,
    ctx: &ChecksumContext,
    expected: &[u64; 4],
) -> Result<bool, CodecError> {
    match kind {
        ChecksumKind::Off | ChecksumKind::NoParity => Ok(true),
        _ => Ok(checksum(kind, data, order, ctx)? == *expected),
    }
}

/// The first two words, where a MAC replaces the last two.
///
/// Functions too weak for dedup fold the dropped words into the kept ones.
pub fn truncate(kind: ChecksumKind, words: [u64; 4]) -> [u64; 2] {
    let [a, b, c, d] = words;
    if kind.is_dedup_capable() {
        [a, b]
    } else {
        [a ^ c, b ^ d]
    }
}

/// [`verify`] for a block pointer with encryption handling, whose words 2 and 3 are a MAC
/// (every type but objset).
///
/// # Errors
/// As [`checksum`].
pub fn verify_truncated(
    kind: ChecksumKind,
    data: &[u8],
    order: ByteOrder,
    ctx: &ChecksumContext,
    expected: &[u64; 4],
) -> Result<bool, CodecError> {
    match kind {
        ChecksumKind::Off | ChecksumKind::NoParity => Ok(true),
        _ => Ok(truncate(kind, checksum(kind, data, order, ctx)?) == [expected[0], expected[1]]),
    }
}

fn sha256_words(hash: Sha256) -> [u64; 4] {
    words(&hash.finalize().into(), ByteOrder::Big)
}

/// Digest bytes as four integers.
fn words(digest: &[u8; 32], order: ByteOrder) -> [u64; 4] {
    let mut out = [0; 4];
    for (w, bytes) in out.iter_mut().zip(digest.as_chunks::<8>().0) {
        *w = order.u64(*bytes);
    }
    out
}

/// Four integers as stored in a structure of that byte order.
fn word_bytes(words: [u64; 4], order: ByteOrder) -> [u8; 32] {
    let mut out = [0; 32];
    for (bytes, w) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = order.bytes_of_u64(w);
    }
    out
}

#[cfg(test)]
mod tests;

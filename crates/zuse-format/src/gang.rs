//! Gang headers: the list of members of a block for which there was no contiguous space.
//!
//! (size − 40) / 128 block pointers (3 in 512 bytes, 31 in 4096), zeros, and the 40-byte trailer of
//! self-checksummed blocks. The trailer's magic gives the byte order. The caller verifies the hash
//! (see [`crate::label::Trailer`]). If the leader has its X bit set, the stored words are
//! `(s0^s2, s1^s3, 0, 0)`.

use zuse_base::ByteOrder;

use crate::block_pointer::{BP_SIZE, BlockPointer};
use crate::error::{FormatResult, bad};
use crate::label::{TRAILER_SIZE, Trailer};

/// Header size without feature `dynamic_gang_header`, and the smallest allocation for a header.
pub const GANG_SIZE: usize = 512;

/// Pointers in a header of that many bytes.
pub fn gang_pointer_count(size: usize) -> usize {
    size.saturating_sub(TRAILER_SIZE) / BP_SIZE
}

/// The members in a header (without holes) and its writer's byte order.
///
/// # Errors
/// No trailer, or an invalid size.
pub fn parse_gang_header(header: &[u8]) -> FormatResult<(Vec<BlockPointer>, ByteOrder)> {
    if header.len() < GANG_SIZE || header.len() > 64 << 10 {
        return bad(format!("gang header of {} bytes", header.len()));
    }
    let Some(trailer) = Trailer::read(header) else {
        return bad("gang header without its magic");
    };
    let pointers = header[..header.len() - TRAILER_SIZE]
        .as_chunks::<BP_SIZE>()
        .0;
    let members = pointers
        .iter()
        .map(|raw| BlockPointer::parse(raw, trailer.order));
    Ok((members.filter(|bp| !bp.is_hole()).collect(), trailer.order))
}

/// A header of `size` bytes for these members, with a blank trailer.
///
/// # Errors
/// Too many members.
pub fn encode_gang_header(members: &[BlockPointer], size: usize) -> FormatResult<Vec<u8>> {
    if members.len() > gang_pointer_count(size) {
        return bad(format!(
            "{} pieces do not fit a gang header of {size} bytes",
            members.len()
        ));
    }
    let mut header = vec![0; size];
    for (i, bp) in members.iter().enumerate() {
        bp.write_le(&mut header[BP_SIZE * i..]);
    }
    Ok(header)
}

/// The words stored in a header: as hashed, or folded when the leader's X bit is set.
pub fn gang_words(hash: [u64; 4], leader_crypt: bool) -> [u64; 4] {
    let [a, b, c, d] = hash;
    if leader_crypt {
        [a ^ c, b ^ d, 0, 0]
    } else {
        hash
    }
}

#[cfg(test)]
mod tests;

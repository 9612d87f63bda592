//! lz4: a 4-byte big-endian length, then that many bytes of an LZ4 block.

use super::room;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

const HEADER: usize = 4;
/// From this compression ratio on a block is mostly runs (metadata: zeros). Doubling copies decode
/// runs faster than byte by byte.
const RUNS: usize = 12;
/// Shortest match.
const SHORTEST: usize = 4;

/// Inputs below this size use the table with 16-bit positions, as the library would.
const SMALL: usize = u16::MAX as usize;

/// Tables of the encoder, kept from block to block: for small inputs, and for others.
#[derive(Default)]
pub(super) struct Tables {
    small: Option<CompressTable>,
    large: Option<CompressTable>,
}

/// Compresses; None if the result is longer than `max_dst`.
///
/// The library needs room for the worst case, so `dst` grows beyond the limit meanwhile.
pub(super) fn compress(
    tables: &mut Tables,
    src: &[u8],
    dst: &mut Vec<u8>,
    max_dst: usize,
) -> Option<usize> {
    let out = room(dst, HEADER + get_maximum_output_size(src.len()));
    let (header, body) = out.split_first_chunk_mut::<HEADER>()?;
    let table = if src.len() < SMALL {
        tables.small.get_or_insert_with(CompressTable::small)
    } else {
        tables.large.get_or_insert_with(CompressTable::large)
    };
    let length = compress_into_with_table(src, body, table).ok()?;
    *header = u32::try_from(length).ok()?.to_be_bytes();
    Some(HEADER + length).filter(|&n| n <= max_dst)
}

/// Fills `dst`; None if the stream is broken or gives another length.
pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<()> {
    let (header, body) = src.split_first_chunk::<HEADER>()?;
    let length = usize::try_from(u32::from_be_bytes(*header)).ok()?;
    let body = body.get(..length)?;
    if body.len() < dst.len() / RUNS {
        return fill(body, dst)?.then_some(());
    }
    let written = decompress_into(body, dst).ok()?;
    (written == dst.len()).then_some(())
}

/// Whether [`decompress`] would fill `len` bytes. It follows the sequences and copies nothing.
pub(super) fn check(src: &[u8], len: usize) -> Option<()> {
    let (header, body) = src.split_first_chunk::<HEADER>()?;
    let length = usize::try_from(u32::from_be_bytes(*header)).ok()?;
    let mut rest = body.get(..length)?;
    let mut written = 0usize;
    loop {
        let token = usize::from(take(&mut rest)?);
        let literals = extended(token >> 4, &mut rest)?;
        rest = rest.get(literals..)?;
        written = written.checked_add(literals).filter(|n| *n <= len)?;
        // The last sequence has literals only.
        if rest.is_empty() {
            return (written == len).then_some(());
        }
        let offset = usize::from(u16::from_le_bytes([take(&mut rest)?, take(&mut rest)?]));
        let matched = extended(token & 15, &mut rest)?.checked_add(SHORTEST)?;
        // A decoder would copy bytes that are not written yet, or that precede the block.
        if offset == 0 || offset > written {
            return None;
        }
        written = written.checked_add(matched).filter(|n| *n <= len)?;
    }
}

/// Fills `dst` with the first bytes of a block and reads no further. `None` if the stream is broken
/// there or ends before.
pub(super) fn decompress_front(src: &[u8], dst: &mut [u8]) -> Option<()> {
    let (header, body) = src.split_first_chunk::<HEADER>()?;
    let length = usize::try_from(u32::from_be_bytes(*header)).ok()?;
    fill(body.get(..length)?, dst).map(|_| ())
}

/// Fills `dst`, and returns whether the stream ends exactly there. `None` if it is broken or ends
/// before.
fn fill(body: &[u8], dst: &mut [u8]) -> Option<bool> {
    let mut rest = body;
    let mut at = 0usize;
    loop {
        let token = usize::from(take(&mut rest)?);
        let literals = extended(token >> 4, &mut rest)?;
        let some = literals.min(dst.len() - at);
        dst.get_mut(at..at + some)?
            .copy_from_slice(rest.get(..some)?);
        at += some;
        if at == dst.len() {
            return Some(some == literals && rest.len() == literals);
        }
        rest = rest.get(literals..)?;
        let offset = usize::from(u16::from_le_bytes([take(&mut rest)?, take(&mut rest)?]));
        let matched = extended(token & 15, &mut rest)?.checked_add(SHORTEST)?;
        let from = at.checked_sub(offset).filter(|_| offset > 0)?;
        let end = at + matched.min(dst.len() - at);
        let whole = end - at == matched;
        // Each copy doubles the repeated bytes.
        while at < end {
            let step = (at - from).min(end - at);
            dst.copy_within(from..from + step, at);
            at += step;
        }
        // An empty sequence behind it ends the stream.
        if at == dst.len() {
            let [last] = rest else {
                return Some(false);
            };
            return Some(whole && last >> 4 == 0);
        }
    }
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(*first)
}

/// A length whose four bits are all set continues in bytes, the last of which is below 255.
fn extended(bits: usize, rest: &mut &[u8]) -> Option<usize> {
    let mut length = bits;
    if bits == 15 {
        loop {
            let more = take(rest)?;
            length = length.checked_add(usize::from(more))?;
            if more < 255 {
                break;
            }
        }
    }
    Some(length)
}

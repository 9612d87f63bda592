//! lz4: a 4-byte big-endian length, then that many bytes of an LZ4 block.

use super::room;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use std::cell::RefCell;

const HEADER: usize = 4;

/// Inputs below this size use the table with 16-bit positions, as the library would.
const SMALL: usize = u16::MAX as usize;

thread_local! {
    static TABLES: RefCell<[CompressTable; 2]> = RefCell::new([CompressTable::small(), CompressTable::large()]);
}

/// Compresses; None if the result is longer than `max_dst`.
///
/// The library wants room for the worst case, so `dst` grows beyond the limit on the way.
pub(super) fn compress(src: &[u8], dst: &mut Vec<u8>, max_dst: usize) -> Option<usize> {
    let out = room(dst, HEADER + get_maximum_output_size(src.len()));
    let (header, body) = out.split_first_chunk_mut::<HEADER>()?;
    let length = TABLES.with_borrow_mut(|tables| {
        compress_into_with_table(src, body, &mut tables[usize::from(src.len() >= SMALL)]).ok()
    })?;
    *header = u32::try_from(length).ok()?.to_be_bytes();
    Some(HEADER + length).filter(|&n| n <= max_dst)
}

/// Fills `dst`; None if the stream is broken or gives another length.
pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<()> {
    let (header, body) = src.split_first_chunk::<HEADER>()?;
    let length = usize::try_from(u32::from_be_bytes(*header)).ok()?;
    let written = decompress_into(body.get(..length)?, dst).ok()?;
    (written == dst.len()).then_some(())
}

//! How much a transaction may dirty at most, for the space check and the write throttle.
//!
//! Upper bounds in bytes of blocks before compression; the dataset layer knows about copies and RAID. A reservation
//! lasts as long as its transaction, so a generous one costs nothing but the last megabytes of a full dataset.

/// A dnode block of 16 KiB, and one indirect block above it.
pub(crate) const DNODE: u64 = 16 * 1024 + 128 * 1024;
/// A change in a ZAP: the largest micro block, or header, table and two leaves; growth to the fat form included.
pub(crate) const ZAP: u64 = 512 * 1024;
/// Attributes with their spill block.
pub(crate) const ATTRIBUTES: u64 = DNODE + 128 * 1024;
/// Making an object with a name: object, directory, entry, attribute tables.
pub(crate) const CREATE: u64 = 2 * DNODE + 2 * ZAP;
/// Taking a name away: object, directory, entry, unlinked set.
pub(crate) const REMOVE: u64 = 2 * DNODE + 2 * ZAP;
/// Moving names.
pub(crate) const RENAME: u64 = 4 * DNODE + 3 * ZAP;

/// A write of `len` bytes at `offset` in blocks of at most `block` bytes: blocks, indirects, dnode.
pub(crate) fn write(offset: u64, len: u64, block: u64) -> u64 {
    let block = block.max(512);
    let first = offset / block;
    let last = offset.saturating_add(len.max(1) - 1) / block;
    let blocks = last - first + 1;
    // An L1 of 128 KiB maps 1024 blocks; above it one block per level at the edges is enough.
    let indirects = blocks / 1024 + 2 + 6;
    blocks
        .saturating_mul(block)
        .saturating_add(indirects.saturating_mul(128 * 1024))
        .saturating_add(DNODE)
}

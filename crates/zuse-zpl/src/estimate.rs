//! Estimates of what a transaction dirties, for the space check and the write throttle.
//!
//! The dataset layer adds up the estimates of all transactions of a txg until it is written, so
//! they are shares. A thousand files created in one txg share their dnode blocks, leaves and
//! indirects. What a single one may need beyond its share (a leaf split, a micro ZAP that becomes
//! fat) is covered by the pool's slop space. Data is counted in whole blocks, because the number of
//! blocks touched by small writes is not bounded.

/// A dnode, its share of indirect blocks, its accounting.
pub(crate) const DNODE: u64 = 4 * 1024;
/// A change in a ZAP.
pub(crate) const ZAP: u64 = 8 * 1024;
/// Attributes with a small spill block.
pub(crate) const ATTRIBUTES: u64 = DNODE + 4 * 1024;
/// Creating an object with a name: object, directory, entry.
pub(crate) const CREATE: u64 = 2 * DNODE + ZAP;
/// Removing a name: object, directory, entry, perhaps unlinked set.
pub(crate) const REMOVE: u64 = 2 * DNODE + ZAP;
/// Freeing one more unlinked object in a transaction that frees several: they are adjacent, 32 to a
/// dnode block.
pub(crate) const FREE_SHARE: u64 = 1024;
/// Moving names.
pub(crate) const RENAME: u64 = 3 * DNODE + 2 * ZAP;

/// A write of `len` bytes at `offset` in blocks of `block` bytes. `dirty_head`: its first block is
/// dirty already.
pub(crate) fn write(offset: u64, len: u64, block: u64, dirty_head: bool) -> u64 {
    let block = block.max(512);
    let end = offset.saturating_add(len.max(1));
    let first = offset / block;
    let blocks = (end - 1) / block - first + 1;
    let mut bytes = blocks.saturating_mul(block);
    if dirty_head && !offset.is_multiple_of(block) {
        bytes = bytes.saturating_sub(block).saturating_add(len.min(block));
    }
    // A pointer per block, in two copies.
    bytes
        .saturating_add(blocks.saturating_mul(256))
        .saturating_add(DNODE)
}

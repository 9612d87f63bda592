//! Bytes of vdevs as `zpool status -j` and `zpool list -v` print them (chapter 06 §1.6 of the
//! format notes).
//!
use zuse::tools::Layers as _;
use zuse::{Pool, VdevStatus};

use super::VdevRow;

/// Labels and boot block before the data of a device, and labels after it.
const AROUND: u64 = 0x48_0000;
/// The last label ends at a multiple of this.
const LABEL: u64 = 0x4_0000;
/// A cache device begins with a header of this many bytes.
const CACHE_HEADER: u64 = 512;

/// Adds the usable bytes of a top-level vdev.
pub fn set_deflated(pool: &Pool, top: &mut VdevRow, id: u32) {
    if let Some((total, _)) = top.space {
        let ratio = pool.spa().vdevs().deflate_ratio(id);
        top.deflated = (total >> 9).saturating_mul(ratio);
    }
}

/// The minimum size of a vdev in the place of this one: a device has labels too.
pub fn min_size(vdev: &VdevStatus) -> u64 {
    let around = if vdev.kind.is_leaf() { AROUND } else { 0 };
    match vdev.min_size {
        0 => 0,
        min_size => min_size.saturating_add(around),
    }
}

/// Usable bytes of a cache device, and the minimum size of its replacement.
pub fn of_cache(psize: u64) -> (u64, u64) {
    let min_size = psize / LABEL * LABEL;
    (min_size.saturating_sub(AROUND + CACHE_HEADER), min_size)
}

//! Bytes of vdevs as `zpool status -j` and `zpool list -v` print them (chapter 06 §1.6 of the
//! format notes).
//!
//! ```text
//!   top    total = whole metaslabs           least = the same
//!   child  of a mirror: its parent's least   of raidz and dRAID: its share of that
//!   leaf   what it holds, and its labels beside
//! ```

use zuse::Pool;
use zuse::tools::Layers as _;

use super::VdevRow;

/// Labels and boot block before the data of a device, and labels after it.
const AROUND: u64 = 0x48_0000;
/// The last label ends at a multiple of this.
const LABEL: u64 = 0x4_0000;
/// A cache device begins with a header of this many bytes.
const CACHE_HEADER: u64 = 512;

/// Adds the usable bytes of a top-level vdev, and the minimum size of a replacement device.
pub fn tell(pool: &Pool, top: &mut VdevRow, id: u32) {
    let Some((total, _)) = top.space else {
        return;
    };
    let ratio = pool.spa().vdevs().deflate_ratio(id);
    top.deflated = (total >> 9).saturating_mul(ratio);
    tell_least(top, total);
}

fn tell_least(vdev: &mut VdevRow, least: u64) {
    let around = if vdev.is_leaf() { AROUND } else { 0 };
    vdev.least = least.saturating_add(around);
    let share = match vdev.kind.as_str() {
        "raidz" | "draid" => least.div_ceil((vdev.children.len() as u64).max(1)),
        _ => least,
    };
    for child in &mut vdev.children {
        tell_least(child, share);
    }
}

/// Usable bytes of a cache device, and the minimum size of its replacement.
pub fn of_cache(psize: u64) -> (u64, u64) {
    let least = psize / LABEL * LABEL;
    (least.saturating_sub(AROUND + CACHE_HEADER), least)
}

//! Byte swap of a whole block, by object type and level.
//!
//! A block is swapped once, in place, right after decompression, when its block pointer says that
//! it was written in big-endian order. Structured classes follow the block's own lengths only as
//! far as the block goes.

use super::{SwapClass, swap_class};
use crate::error::{FormatResult, bad};
use crate::field::{swap_array, swap_one, u8_at, u16_at, u32_at, u64_at};

const BP: usize = 128;
const SLOT: usize = 512;
const ZAP_MICRO: u64 = 0x8000_0000_0000_0003;
const ZAP_HEADER: u64 = 0x8000_0000_0000_0001;
const ZAP_LEAF: u64 = 0x8000_0000_0000_0000;
const ZAP_LEAF_MAGIC: u32 = 0x02ab_1eaf;

/// Swaps a decompressed block of the other byte order.
///
/// `level` > 0 is an array of block pointers whatever the type. SA spill blocks (type 44) are not
/// swapped: their header has a magic and `sa` reads both orders.
///
/// # Errors
/// An invalid object type, or a ZAP leaf with an unknown chunk.
pub fn swap_block(object_type: u8, level: u8, block: &mut [u8]) -> FormatResult<()> {
    if level > 0 {
        swap_array(block, 8);
        return Ok(());
    }
    match swap_class(object_type) {
        None => return bad(format!("object type {object_type} does not exist")),
        Some(SwapClass::Bytes) => {}
        Some(SwapClass::U16) => swap_array(block, 2),
        Some(SwapClass::U32) => swap_array(block, 4),
        Some(SwapClass::U64) => swap_array(block, 8),
        Some(SwapClass::Zap) => swap_zap(block)?,
        Some(SwapClass::Dnode) => swap_dnodes(block),
        Some(SwapClass::Objset) => swap_objset(block),
        Some(SwapClass::Znode) => swap_znode(block),
        Some(SwapClass::OldAcl) => swap_old_acl(block),
        Some(SwapClass::Acl) => swap_acl(block),
    }
    Ok(())
}

/// Swaps a bonus buffer by its type. A bonus of type SA (or an invalid type) is not swapped.
pub fn swap_bonus(bonus_type: u8, bonus: &mut [u8]) {
    if swap_class(bonus_type).is_some() {
        // Only a ZAP leaf can fail, and no bonus is one.
        let _ = swap_block(bonus_type, 0, bonus);
    }
}

fn swap_dnodes(block: &mut [u8]) {
    let mut at = 0;
    while at + SLOT <= block.len() {
        let slots = if block[at] == 0 {
            1
        } else {
            1 + usize::from(block[at + 12])
        };
        let end = (at + slots * SLOT).min(block.len());
        swap_dnode(&mut block[at..end]);
        at = end;
    }
}

/// Swaps one dnode of any number of slots; a free slot becomes zeros.
pub fn swap_dnode(dnode: &mut [u8]) {
    if dnode.len() < SLOT {
        return;
    }
    if dnode[0] == 0 {
        dnode.fill(0);
        return;
    }
    swap_one(dnode, 8, 2);
    swap_one(dnode, 10, 2);
    swap_one(dnode, 16, 8);
    swap_one(dnode, 24, 8);
    let pointers_end = (64 + BP * usize::from(dnode[3].min(3))).min(dnode.len());
    swap_array(&mut dnode[64..pointers_end], 8);
    let spill = dnode[7] & 4 != 0;
    let bonus_end = if spill {
        (dnode.len() - BP).max(pointers_end)
    } else {
        dnode.len()
    };
    if u16_at(dnode, 10) != 0 {
        let bonus_type = dnode[4];
        swap_bonus(bonus_type, &mut dnode[pointers_end..bonus_end]);
    }
    if spill {
        swap_array(&mut dnode[bonus_end..], 8);
    }
}

fn swap_objset(block: &mut [u8]) {
    if block.len() < 1024 {
        return;
    }
    swap_dnode(&mut block[..SLOT]);
    swap_array(&mut block[512..720], 8);
    for at in [1024, 1536, 2048] {
        if let Some(dnode) = block.get_mut(at..at + SLOT) {
            swap_dnode(dnode);
        }
    }
}

/// 264 fixed bytes (with the ACL area inside), then opaque data.
fn swap_znode(bytes: &mut [u8]) {
    if bytes.len() < 264 {
        return;
    }
    swap_array(&mut bytes[..176], 8);
    swap_one(bytes, 176, 8);
    swap_one(bytes, 184, 4);
    swap_one(bytes, 188, 2);
    swap_one(bytes, 190, 2);
    // Version 0 holds 12-byte entries, version 1 the newer kind.
    if u16_at(bytes, 188) == 0 {
        swap_old_acl(&mut bytes[192..264])
    } else {
        swap_acl(&mut bytes[192..264])
    }
}

/// Swaps 12-byte entries {who 4, mask 4, flags 2, type 2}.
pub fn swap_old_acl(bytes: &mut [u8]) {
    for ace in bytes.as_chunks_mut::<12>().0 {
        swap_array(&mut ace[..8], 4);
        swap_array(&mut ace[8..], 2);
    }
}

/// Swaps entries {type 2, flags 2, mask 4[, who 8[, two object types 32]]} until less than a header
/// is left.
pub fn swap_acl(mut bytes: &mut [u8]) {
    while bytes.len() >= 8 {
        swap_array(&mut bytes[..4], 2);
        swap_one(bytes, 4, 4);
        let size = ace_size(u16_at(bytes, 0), u16_at(bytes, 2));
        if size > 8 {
            swap_one(bytes, 8, 8);
        }
        let size = size.min(bytes.len());
        bytes = &mut bytes[size..];
    }
}

/// Size of an ACE by its type and flags: 8 for owner@, group@, everyone@; 48 for object types; else
/// 16.
pub(crate) fn ace_size(kind: u16, flags: u16) -> usize {
    match (kind, flags & 0x7040) {
        (5..=8, _) => 48,
        (_, 0x1000 | 0x2040 | 0x4000) => 8,
        _ => 16,
    }
}

/// Where the chunks of a leaf of a fat ZAP begin: after its header and two bytes per bucket. There
/// is one bucket for each 32 bytes of the block.
fn leaf_chunks(size: usize) -> Option<usize> {
    (size.is_power_of_two() && size >= 512).then_some(48 + 2 * (size >> 5))
}

fn swap_zap(block: &mut [u8]) -> FormatResult<()> {
    match u64_at(block, 0).swap_bytes() {
        ZAP_MICRO => {
            let head = block.len().min(24);
            swap_array(&mut block[..head], 8);
            for slot in block.as_chunks_mut::<64>().0.iter_mut().skip(1) {
                slot[..8].reverse();
                slot[8..12].reverse();
            }
        }
        ZAP_LEAF if u32_at(block, 24).swap_bytes() == ZAP_LEAF_MAGIC => swap_zap_leaf(block)?,
        // A header, or a block of the external pointer table, which has no magic.
        ZAP_HEADER => swap_array(block, 8),
        _ => swap_array(block, 8),
    }
    Ok(())
}

fn swap_zap_leaf(block: &mut [u8]) -> FormatResult<()> {
    let Some(chunks_at) = leaf_chunks(block.len()) else {
        return bad("ZAP leaf block is not a power of two");
    };
    for (at, width) in [(0, 8), (16, 8), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2)] {
        swap_one(block, at, width);
    }
    swap_array(&mut block[48..chunks_at], 2);
    for chunk in block[chunks_at..].as_chunks_mut::<24>().0 {
        match u8_at(chunk, 0) {
            252 => {
                swap_array(&mut chunk[2..12], 2);
                swap_one(chunk, 12, 4);
                swap_one(chunk, 16, 8);
            }
            251 | 253 => chunk[22..24].reverse(),
            other => return bad(format!("ZAP leaf chunk of unknown type {other}")),
        }
    }
    Ok(())
}

//! Vdev labels: their places, their contents, and the frame of a self-checksummed block.
//!
//! ```text
//! device:  L0 256K | L1 256K | boot area 3.5M | data … | L2 256K | L3 256K    (size rounded down to 256K)
//! label:   blank 8K | boot environment 8K | configuration 112K | uberblock ring 128K
//! ```
//!
//! Boot block, configuration and each uberblock slot end in a 40-byte trailer: a magic and four
//! checksum words. The words are SHA-256 over the whole block with a verifier (its byte offset on
//! the device) in their place. The hash is not computed here, because this crate has no kernels.
//! [`Trailer::place_verifier`] prepares the block, the caller hashes it, [`Trailer::seal`] stores
//! the words and [`Trailer::read`] returns the words to compare.

use zuse_base::ByteOrder;

use crate::error::{FormatResult, bad};
use crate::field::{put_u64, u64_at, u64_in};
use crate::nvlist::NvList;

/// Bytes of a label.
pub const LABEL_SIZE: u64 = 256 << 10;
/// Number of labels on a leaf.
pub const LABELS: usize = 4;
/// Bytes kept free at the start of a leaf: two labels and the boot area.
pub const LABEL_START: u64 = 4 << 20;
/// Bytes kept free at the end of a leaf: two labels.
pub const LABEL_END: u64 = 512 << 10;
/// Smallest leaf.
pub const MIN_DEVICE: u64 = 64 << 20;
/// Boot environment block in a label.
pub const BOOT_ENV_AT: u64 = 8 << 10;
/// Bytes of the boot environment block.
pub const BOOT_ENV_SIZE: usize = 8 << 10;
/// Configuration block in a label.
pub const CONFIG_AT: u64 = 16 << 10;
/// Bytes of the configuration block.
pub const CONFIG_SIZE: usize = 112 << 10;
/// Uberblock ring in a label.
pub const RING_AT: u64 = 128 << 10;
/// Bytes of the uberblock ring.
pub const RING_SIZE: u64 = 128 << 10;
/// Smallest sector shift of a top-level vdev.
pub const ASHIFT_MIN: u32 = 9;
/// Largest sector shift of a top-level vdev.
pub const ASHIFT_MAX: u32 = 16;
/// Bytes of a trailer.
pub const TRAILER_SIZE: usize = 40;
/// Magic of a trailer.
pub const TRAILER_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Device size for labels: rounded down to 256 KiB.
pub fn label_psize(device_size: u64) -> u64 {
    device_size & !(LABEL_SIZE - 1)
}

/// Byte offset of label 0..4 on a device of that size (rounded down here).
pub fn label_offset(device_size: u64, label: usize) -> u64 {
    let at = label as u64 * LABEL_SIZE;
    if label < 2 {
        at
    } else {
        label_psize(device_size).saturating_sub(LABELS as u64 * LABEL_SIZE) + at
    }
}

/// Allocatable bytes of a leaf of that size.
pub fn leaf_asize(device_size: u64) -> u64 {
    label_psize(device_size).saturating_sub(LABEL_START + LABEL_END)
}

/// log2 of an uberblock slot, by the sector shift of the top-level vdev.
pub fn slot_shift(ashift: u32) -> u32 {
    ashift.clamp(10, 13)
}

/// Bytes of an uberblock slot.
pub fn slot_size(ashift: u32) -> usize {
    1 << slot_shift(ashift)
}

/// Number of uberblock slots in a label.
pub fn slot_count(ashift: u32) -> u64 {
    RING_SIZE >> slot_shift(ashift)
}

/// Slot of a commit; with `multihost` the last slot is reserved for heartbeats.
pub fn slot_for_txg(txg: u64, ashift: u32, multihost: bool) -> u64 {
    txg % (slot_count(ashift) - u64::from(multihost))
}

/// Offset of a slot in its label.
pub fn slot_offset(slot: u64, ashift: u32) -> u64 {
    RING_AT + (slot << slot_shift(ashift))
}

/// The 40 bytes at the end of a self-checksummed block: magic and four words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// Byte order of the block's writer, by its magic.
    pub order: ByteOrder,
    /// The stored words, as numbers.
    pub words: [u64; 4],
}

impl Trailer {
    /// The trailer of a block; `None` without its magic in either order.
    pub fn read(block: &[u8]) -> Option<Self> {
        let at = block.len().checked_sub(TRAILER_SIZE)?;
        let order = match u64_at(block, at) {
            TRAILER_MAGIC => ByteOrder::Little,
            swapped if swapped == TRAILER_MAGIC.swap_bytes() => ByteOrder::Big,
            _ => return None,
        };
        Some(Self {
            order,
            words: std::array::from_fn(|i| u64_in(block, at + 8 + 8 * i, order)),
        })
    }

    /// Writes magic and verifier into the trailer, in that byte order: the block is then ready for
    /// hashing.
    pub fn place_verifier(block: &mut [u8], verifier: [u64; 4], order: ByteOrder) {
        let at = block.len() - TRAILER_SIZE;
        let [a, b, c, d] = verifier;
        for (i, word) in [TRAILER_MAGIC, a, b, c, d].into_iter().enumerate() {
            let word = if order == ByteOrder::Big {
                word.swap_bytes()
            } else {
                word
            };
            put_u64(block, at + 8 * i, word);
        }
    }

    /// Puts the magic and the computed words into the trailer, little-endian.
    pub fn seal(block: &mut [u8], words: [u64; 4]) {
        Self::place_verifier(block, words, ByteOrder::Little);
    }

    /// The verifier of a block of a label: its byte offset on the device.
    pub fn label_verifier(device_offset: u64) -> [u64; 4] {
        [device_offset, 0, 0, 0]
    }

    /// The verifier of a gang header: vdev and offset of the first address, physical birth.
    pub fn gang_verifier(vdev: u32, offset: u64, birth: u64) -> [u64; 4] {
        [u64::from(vdev), offset, birth, 0]
    }
}

/// A configuration block without its checksum: the packed list, zeros, a blank trailer.
///
/// # Errors
/// The list does not fit 112 KiB less the trailer.
pub fn encode_config(config: &NvList) -> FormatResult<Vec<u8>> {
    let mut block = config.encode_xdr();
    if block.len() > CONFIG_SIZE - TRAILER_SIZE {
        return bad(format!(
            "label configuration of {} bytes does not fit",
            block.len()
        ));
    }
    block.resize(CONFIG_SIZE, 0);
    Ok(block)
}

/// The list in a configuration block whose checksum was verified.
///
/// # Errors
/// As [`NvList::decode`].
pub fn decode_config(block: &[u8]) -> FormatResult<NvList> {
    NvList::decode(
        block
            .get(..block.len().saturating_sub(TRAILER_SIZE))
            .unwrap_or(&[]),
    )
}

/// The state of the pool in its labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum PoolState {
    /// In use, or not cleanly exported.
    Active = 0,
    /// Exported.
    Exported = 1,
    /// Destroyed.
    Destroyed = 2,
    /// The device is a hot spare.
    Spare = 3,
    /// The device is a cache.
    L2Cache = 4,
}

impl PoolState {
    /// From its number.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Active,
            1 => Self::Exported,
            2 => Self::Destroyed,
            3 => Self::Spare,
            4 => Self::L2Cache,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;

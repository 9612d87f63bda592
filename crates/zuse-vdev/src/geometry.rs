//! Where labels and data are on a leaf, and how a top-level vdev is divided into metaslabs.
//!
//! ```text
//! 0        256K      512K        4M                        size-512K  size-256K   size
//! | label 0 | label 1 | boot area | data: asize bytes ...   | label 2  | label 3  |
//! ```
//!
//! `size` is the device's size rounded down to 256 KiB. A vdev offset x is device byte `x + 4 MiB`.

use zuse_base::cut::low8;
use zuse_base::{Errno, Error, Result};

pub use zuse_format::label::{
    LABEL_END, LABEL_SIZE, LABEL_START, LABELS, MIN_DEVICE, label_offset, slot_count, slot_for_txg,
    slot_offset, slot_size,
};

/// Smallest sector shift of a top-level vdev.
pub const ASHIFT_MIN: u8 = 9;
/// Largest sector shift of a top-level vdev.
pub const ASHIFT_MAX: u8 = 16;
/// A physical sector larger than this does not raise the sector shift by itself.
pub const ASHIFT_AUTO_MAX: u8 = 14;
/// Deflate ratio of a vdev without parity.
pub const PLAIN_DEFLATE_RATIO: u64 = 512;

/// Bytes of the data area of a leaf; `None` when the device is too small to be one.
pub fn leaf_asize(device_size: u64) -> Option<u64> {
    (device_size >= MIN_DEVICE).then(|| zuse_format::label::leaf_asize(device_size))
}

/// Position of the highest set bit, counted from 1.
const fn bits(x: u64) -> u8 {
    low8((u64::BITS - x.leading_zeros()) as u64)
}

/// Metaslab shift of a new top-level vdev: about 200 metaslabs, of 16 MiB to 16 GiB each.
pub const fn metaslab_shift(asize: u64) -> u8 {
    // The rule of OpenZFS (01-pool §5.2).
    let count = asize >> 29;
    let shift = if count < 16 {
        bits(asize / 16)
    } else if count > 200 {
        bits(asize / 200)
    } else {
        29
    };
    if shift < 24 {
        24
    } else if shift > 34 {
        if (asize >> 34) > 131_072 {
            bits(asize / 131_072)
        } else {
            34
        }
    } else {
        shift
    }
}

/// Rounds up to a multiple of a power of two.
pub const fn round_up(value: u64, shift: u8) -> Option<u64> {
    let mask = (1u64 << shift) - 1;
    match value.checked_add(mask) {
        Some(sum) => Some(sum & !mask),
        None => None,
    }
}

/// Sector sizes of one device, as shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorShifts {
    /// Smallest unit the device accepts.
    pub logical: u8,
    /// Unit the device works in.
    pub physical: u8,
}

/// Chooses the sector shift of a new top-level vdev over these leaves. `forced` is the user's
/// choice. `floor` is the minimum otherwise (9, as in OpenZFS).
///
/// # Errors
/// `INVAL` for a forced shift outside 9..=16, `RANGE` when a device needs larger sectors.
pub fn choose_ashift(leaves: &[SectorShifts], forced: Option<u8>, floor: u8) -> Result<u8> {
    let logical = leaves.iter().map(|l| l.logical).max().unwrap_or(ASHIFT_MIN);
    if logical > ASHIFT_MAX {
        return Err(Error::refused(
            Errno::RANGE,
            format!("the device has sectors of 2^{logical} bytes"),
        ));
    }
    if let Some(shift) = forced {
        if !(ASHIFT_MIN..=ASHIFT_MAX).contains(&shift) {
            return Err(Error::refused(
                Errno::INVAL,
                format!("ashift {shift} is not within 9..16"),
            ));
        }
        if shift < logical {
            return Err(Error::refused(
                Errno::RANGE,
                format!("ashift {shift} is smaller than the device's sector 2^{logical}"),
            ));
        }
        return Ok(shift);
    }
    let physical = leaves
        .iter()
        .map(|l| l.physical)
        .filter(|&p| p <= ASHIFT_AUTO_MAX)
        .max()
        .unwrap_or(ASHIFT_MIN);
    Ok(logical
        .max(physical)
        .max(floor)
        .clamp(ASHIFT_MIN, ASHIFT_MAX))
}

#[cfg(test)]
mod tests;

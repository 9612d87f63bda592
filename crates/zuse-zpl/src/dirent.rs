//! Stored directory entries: a name, and object number and file type in one integer.
//!
//! All stored names are read through this module. An impossible name is skipped and counted. So no
//! layer above ever gets a slash, a NUL, `.`, `..` or an empty name from a disk or stream.

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::Zap;

use crate::name;

const NUMBER: u64 = (1 << 48) - 1;

/// The value for an object with that mode. ZPL version 1 stores no types.
pub(crate) fn pack(object: ObjectId, mode: u32, zpl_version: u64) -> u64 {
    let kind = if zpl_version < 2 {
        0
    } else {
        u64::from(mode >> 12 & 0xf)
    };
    kind << 60 | object.0 & NUMBER
}

/// The object of a value.
pub(crate) fn object(value: u64) -> ObjectId {
    ObjectId(value & NUMBER)
}

/// The type bits of a value; 0 if it has none.
pub(crate) fn kind(value: u64) -> u32 {
    ((value >> 60) as u32) << 12
}

/// The result of a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// The position behind the last entry.
    pub after: u64,
    /// Entries that were skipped.
    pub impossible: u64,
}

/// Calls `f` with the entries of a directory from a position on (name, value, position after it)
/// until it returns false.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn each(
    zap: &Zap,
    from: u64,
    f: &mut dyn FnMut(&[u8], u64, u64) -> bool,
) -> Result<Listed> {
    let mut impossible = 0;
    let after = zap.list(from, &mut |name, value, after| {
        if !name::is_possible(name) {
            impossible += 1;
            return true;
        }
        f(name, value, after)
    })?;
    Ok(Listed { after, impossible })
}

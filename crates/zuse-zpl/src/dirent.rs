//! Directory entries as they are stored: a name, and object number and file type in one integer.
//!
//! This is the one way on which stored names leave a directory. A name that no directory can hold
//! is left out and counted. So nobody further up ever sees a slash, a NUL, `.`, `..` or an empty
//! name that a disk or stream brought.

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::Zap;

use crate::name;

const NUMBER: u64 = (1 << 48) - 1;

/// The value for an object of a mode. ZPL version 1 knows no types.
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

/// The type bits of a value; 0 if it does not tell.
pub(crate) fn kind(value: u64) -> u32 {
    ((value >> 60) as u32) << 12
}

/// What a listing came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// The position behind the last entry.
    pub after: u64,
    /// Entries that were left out.
    pub impossible: u64,
}

/// Gives the entries of a directory from a position on (name, value, position behind) until `f`
/// returns false.
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

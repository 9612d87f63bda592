//! The value of a directory entry: object number and file type in one integer.

use zuse_base::ObjectId;

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

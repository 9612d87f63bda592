//! Inode numbers of a session.
//!
//! ```text
//!   63        48 47                                   0
//!   │  slot     │  object number                      │      1 = root of the session
//! ```
//! Each file system of the session has a slot; object numbers are below 2^48. Numbers at the top of
//! a slot are those that ZFS uses for objects that are not stored: `.zfs`, `.zfs/snapshot` and its
//! entries. Chapter 03c §7 of the format notes.

use zuse_base::ObjectId;

/// Inode number of the session's root.
pub(crate) const ROOT: u64 = 1;
/// Slots for file systems; the one above is for directories that exist only as parts of mount
/// points.
pub(crate) const VIRTUAL_SLOT: u16 = u16::MAX;

const OBJECT_BITS: u32 = 48;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;
const DOT_ZFS: u64 = OBJECT_MASK;
const SNAPSHOTS: u64 = OBJECT_MASK - 2;
const SNAPSHOT_BASE: u64 = OBJECT_MASK - 3;

/// The number of an object in a slot.
pub(crate) fn of(slot: u16, object: ObjectId) -> u64 {
    u64::from(slot) << OBJECT_BITS | object.0 & OBJECT_MASK
}

/// The object of a number.
pub(crate) fn object(ino: u64) -> ObjectId {
    ObjectId(ino & OBJECT_MASK)
}

/// The slot of a number.
pub(crate) fn slot(ino: u64) -> u16 {
    (ino >> OBJECT_BITS) as u16
}

/// `.zfs` of a slot.
pub(crate) fn dot_zfs(slot: u16) -> u64 {
    of(slot, ObjectId(DOT_ZFS))
}

/// `.zfs/snapshot` of a slot.
pub(crate) fn snapshots(slot: u16) -> u64 {
    of(slot, ObjectId(SNAPSHOTS))
}

/// The number in a listing of `.zfs/snapshot` for the snapshot with that dataset object.
pub(crate) fn snapshot_entry(slot: u16, dataset_object: u64) -> u64 {
    of(slot, ObjectId(SNAPSHOT_BASE.wrapping_sub(dataset_object)))
}

/// The number in a listing for a name with a mounted file system. It belongs to no inode. As at any
/// mount point the number in the listing differs from the one in `stat`. The kernel looks up the
/// name before it uses it.
pub(crate) fn mount_entry(root: u64) -> u64 {
    let other = if slot(root) == VIRTUAL_SLOT {
        root
    } else {
        u64::from(slot(root)) << 1 | 1 << 46
    };
    of(VIRTUAL_SLOT, ObjectId(1 << 47 | other))
}

//! The attributes that `stat` shows, and the changes by `chmod`, `chown`, `truncate`, `utimens`.

/// Seconds and nanoseconds since 1970; seconds may be negative, nanoseconds are never negative.
pub type Time = (i64, u32);

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number, unique in the session; 1 is the root of the mount.
    pub ino: u64,
    /// The number in `stat`, if it differs: the protocol fixes the root's number.
    pub shown: Option<u64>,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation. Handed on with [`birth_times`](crate::MountOptions::birth_times).
    pub crtime: Time,
    /// The whole `st_mode`: type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, in the kernel's 32-bit encoding.
    pub rdev: u32,
    /// Preferred I/O size.
    pub blksize: u32,
    /// Distinguishes files that have had the same inode number.
    pub generation: u64,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    /// The server's clock.
    Now,
    /// This time.
    At(Time),
}

/// Changes of attributes; `None` leaves one unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (the type bits are those of the file).
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<TimeSet>,
    /// New modification time.
    pub mtime: Option<TimeSet>,
    /// New change time: set by the kernel itself when it caches writes.
    pub ctime: Option<Time>,
    /// Clear set-user-id, set-group-id of group-executable files, and the file capabilities.
    pub kill_suidgid: bool,
}

/// The figures of `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Size in units of `frsize`.
    pub blocks: u64,
    /// Free units.
    pub bfree: u64,
    /// Free units for ordinary users.
    pub bavail: u64,
    /// Number of files that are possible.
    pub files: u64,
    /// Number of files that can still be created.
    pub ffree: u64,
    /// Preferred I/O size.
    pub bsize: u32,
    /// Longest name in bytes.
    pub namelen: u32,
    /// The unit.
    pub frsize: u32,
}

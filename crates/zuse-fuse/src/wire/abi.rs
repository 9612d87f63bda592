//! Numbers of the Linux FUSE ABI (7.x, little- and big-endian hosts alike: everything is in the
//! host's order).
//!
//! They are those of the kernel's user-space header `linux/fuse.h`, as far as they are used here.

/// Major version. A kernel with another one does not talk to us.
pub(super) const MAJOR: u32 = 7;
/// The newest minor version whose messages are understood here.
pub(super) const MINOR: u32 = 42;
/// The oldest one whose messages have today's sizes.
pub(super) const OLDEST_MINOR: u32 = 31;

/// `fuse_in_header`.
pub(super) const IN_HEADER: usize = 40;
/// `fuse_out_header`.
pub(super) const OUT_HEADER: usize = 16;
/// `fuse_write_in`: what precedes the data of a write.
pub(super) const WRITE_IN: usize = 40;
/// `fuse_entry_out`.
pub(super) const ENTRY_OUT: usize = 128;
/// `fuse_dirent` without its name.
pub(super) const DIRENT: usize = 24;

/// What is asked.
pub(super) mod op {
    #![allow(missing_docs)]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// Flags of the handshake.
pub(super) mod init {
    #![allow(missing_docs)]
    pub const ASYNC_READ: u64 = 1 << 0;
    /// A forgotten inode is looked up by its number, with the name `.`.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const INIT_EXT: u64 = 1 << 30;
    /// Names can be made to expire, instead of being dropped.
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
}

/// Which fields of a SETATTR count.
pub(super) mod fattr {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
    /// Bits about the request's origin, not about the changes.
    pub const ABOUT_THE_REQUEST: u32 = FH | 1 << 9;
}

/// How a file is opened.
pub(super) mod fopen {
    #![allow(missing_docs)]
    pub const KEEP_CACHE: u32 = 1 << 1;
}

/// GETATTR and STATX: the handle counts.
pub(super) const GETATTR_FH: u32 = 1 << 0;
/// WRITE: it comes from the page cache.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: set-id bits fall.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// FSYNC: data alone.
pub(super) const FSYNC_FDATASYNC: u32 = 1 << 0;

/// `STATX_BASIC_STATS | STATX_BTIME`: what a STATX is answered with.
pub(super) const STATX_ALL: u32 = 0xfff;

/// Notices, in the place of an error number.
pub(super) mod notify {
    #![allow(missing_docs)]
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const DELETE: i32 = 6;
    /// For an entry: it is looked up again, and mounts on it stay.
    pub const EXPIRE_ONLY: u32 = 1 << 0;
}

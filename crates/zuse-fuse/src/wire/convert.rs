//! Values of ours as values of fuser, and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, FopenFlags, INodeNo, TimeOrNow};

use crate::{Attr, Errno, Opened, TimeSet};

const S_IFMT: u32 = 0o170_000;

pub(super) fn wire_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}

pub(super) fn wire_time((seconds, nanos): (i64, u32)) -> SystemTime {
    let whole = match u64::try_from(seconds) {
        Ok(after) => UNIX_EPOCH.checked_add(Duration::from_secs(after)),
        Err(_) => UNIX_EPOCH.checked_sub(Duration::from_secs(seconds.unsigned_abs())),
    };
    whole
        .and_then(|t| t.checked_add(Duration::from_nanos(nanos.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// fuser 0.18 makes (−2 s, 0.3 s) into 2.3 s before 1970; the parts are still there to be taken apart.
pub(super) fn from_wire_time(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (
            after.as_secs().try_into().unwrap_or(i64::MAX),
            after.subsec_nanos(),
        ),
        Err(before) => {
            let before = before.duration();
            (
                0i64.saturating_sub_unsigned(before.as_secs()),
                before.subsec_nanos(),
            )
        }
    }
}

pub(super) fn from_wire_set(time: TimeOrNow) -> TimeSet {
    match time {
        TimeOrNow::Now => TimeSet::Now,
        TimeOrNow::SpecificTime(time) => TimeSet::At(from_wire_time(time)),
    }
}

pub(super) fn wire_type(mode: u32) -> FileType {
    match mode & S_IFMT {
        0o010_000 => FileType::NamedPipe,
        0o020_000 => FileType::CharDevice,
        0o040_000 => FileType::Directory,
        0o060_000 => FileType::BlockDevice,
        0o120_000 => FileType::Symlink,
        0o140_000 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

pub(super) fn wire_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: wire_time(attr.atime),
        mtime: wire_time(attr.mtime),
        ctime: wire_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: wire_type(attr.mode),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

pub(super) fn fopen_flags(opened: &Opened, directory: bool) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct_io);
    flags.set(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES, opened.direct_io);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_CACHE_DIR, opened.keep_cache && directory);
    flags
}

#[cfg(test)]
mod tests;

//! The wire: fuser's session and callbacks turned into calls of [`Ops`].
//!
//! Everything that knows fuser is in this module. What fuser 0.18 cannot carry, and what is done about it:
//! - A read reply is one slice: several are gathered into a buffer of the thread; one goes out uncopied.
//! - It misreads times before 1970 that have a fraction, in a way that can be undone exactly ([`convert::from_wire_time`]).
//! - `FATTR_KILL_SUIDGID` is not shown: the flag is derived from who asks for what.
//! - No `FUSE_STATX` (creation time), `FUSE_TMPFILE`, `FUSE_SYNCFS`, splice, security context, supplementary groups.

mod convert;
mod listing;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Config, CopyFileRangeFlags, FileHandle, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, SessionACL, TimeOrNow,
};

use convert::{fopen_flags, from_wire_set, from_wire_time, wire_attr, wire_errno};
use listing::{Entries, Names};

use crate::notifier::Notice;
use crate::{
    Attr, Caller, CopyRange, Errno, MountOptions, Opened, Ops, ReadReply, RenameFlags, SetAttr,
    Whence, WriteFlags, XattrMode,
};

const O_DSYNC: i32 = 0o10_000;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// A session that has shaken hands with the kernel and is not served yet.
pub(crate) struct Session<O: Ops>(fuser::Session<Adapter<O>>);

/// Shakes hands with the kernel over an opened and mounted `/dev/fuse`.
pub(crate) fn open<O: Ops>(
    ops: Arc<O>,
    fd: OwnedFd,
    options: &MountOptions,
) -> io::Result<Session<O>> {
    let mut config = Config::default();
    // Who may come in is judged by the kernel (`allow_other`).
    config.acl = SessionACL::All;
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = options.clone_fd;
    let adapter = Adapter {
        ops,
        options: options.clone(),
    };
    fuser::Session::from_fd(adapter, fd, SessionACL::All, config).map(Session)
}

impl<O: Ops> Session<O> {
    /// What sends invalidations.
    pub(crate) fn sender(&self) -> impl FnMut(Notice) + Send + use<O> {
        let notifier = self.0.notifier();
        move |notice| {
            // A name or inode that the kernel does not know needs no invalidation.
            let _ = match notice {
                Notice::Inode { ino, offset, len } => {
                    let (offset, len) = (
                        offset.try_into().unwrap_or(i64::MAX),
                        len.try_into().unwrap_or(0),
                    );
                    notifier.inval_inode(INodeNo(ino), offset, len)
                }
                Notice::Entry { parent, name } => {
                    notifier.inval_entry(INodeNo(parent), OsStr::from_bytes(&name))
                }
                Notice::Delete {
                    parent,
                    child,
                    name,
                } => notifier.delete(INodeNo(parent), INodeNo(child), OsStr::from_bytes(&name)),
            };
        }
    }

    /// Serves until the kernel ends the session.
    pub(crate) fn serve(self) -> io::Result<()> {
        match self.0.run() {
            // How a worker sees the end when it comes in the middle of a request.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
            other => other,
        }
    }
}

struct Adapter<O: Ops> {
    ops: Arc<O>,
    options: MountOptions,
}

fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
        umask: 0,
    }
}

/// Runs a method of [`Ops`]; a panic in it becomes `EIO` for the one who asked.
fn call<T>(method: impl FnOnce() -> Result<T, Errno>) -> Result<T, fuser::Errno> {
    catch_unwind(AssertUnwindSafe(method))
        .unwrap_or(Err(Errno::IO))
        .map_err(wire_errno)
}

macro_rules! answer {
    ($reply:ident, $method:expr, $ok:expr) => {
        match call(|| $method) {
            Ok(value) => $ok(value),
            Err(errno) => $reply.error(errno),
        }
    };
}

thread_local! {
    /// Where the slices of a read come together; grows to the largest read.
    static GATHER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<O: Ops> Adapter<O> {
    fn entry(&self, reply: ReplyEntry, found: Result<Attr, fuser::Errno>) {
        match found {
            Ok(attr) => reply.entry_with_ttls(
                &self.options.attr_ttl,
                &self.options.entry_ttl,
                &wire_attr(&attr),
                Generation(attr.generation),
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn creator(&self, request: &Request, umask: u32) -> Caller {
        Caller {
            umask,
            ..caller(request)
        }
    }
}

impl<O: Ops> fuser::Filesystem for Adapter<O> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_HAS_IOCTL_DIR;
        wanted.set(
            InitFlags::FUSE_WRITEBACK_CACHE,
            self.options.writeback_cache,
        );
        wanted.set(
            InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK,
            self.options.posix_acl,
        );
        for flag in wanted.iter() {
            // An older kernel does without.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(self.options.max_write);
        if let Err(most) = config.set_max_readahead(self.options.max_readahead) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(64);
        self.ops.init();
        Ok(())
    }

    fn destroy(&mut self) {
        let _ = call(|| {
            self.ops.destroy();
            Ok(())
        });
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = call(|| self.ops.lookup(&caller(request), parent.0, name.as_bytes()));
        if found == Err(fuser::Errno::ENOENT) && !self.options.negative_ttl.is_zero() {
            let absent = wire_attr(&Attr::default());
            reply.entry_with_ttls(
                &Duration::ZERO,
                &self.options.negative_ttl,
                &absent,
                Generation(0),
            );
        } else {
            self.entry(reply, found);
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, n: u64) {
        let _ = call(|| {
            self.ops.forget(ino.0, n);
            Ok(())
        });
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.ops.getattr(ino.0, fh.map(|fh| fh.0)), |attr| {
            reply.attr(&self.options.attr_ttl, &wire_attr(&attr))
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(from_wire_set),
            mtime: mtime.map(from_wire_set),
            ctime: ctime.map(from_wire_time),
            kill_suidgid: uid.is_some() || gid.is_some() || (size.is_some() && request.uid() != 0),
        };
        answer!(
            reply,
            self.ops
                .setattr(&caller(request), ino.0, fh.map(|fh| fh.0), &set),
            |attr| reply.attr(&self.options.attr_ttl, &wire_attr(&attr))
        );
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        answer!(reply, self.ops.readlink(ino.0), |target: Vec<u8>| reply
            .data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let who = self.creator(request, umask);
        self.entry(
            reply,
            call(|| self.ops.mknod(&who, parent.0, name.as_bytes(), mode, rdev)),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let who = self.creator(request, umask);
        self.entry(
            reply,
            call(|| self.ops.mkdir(&who, parent.0, name.as_bytes(), mode)),
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(
            reply,
            self.ops.unlink(&caller(request), parent.0, name.as_bytes()),
            |()| reply.ok()
        );
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(
            reply,
            self.ops.rmdir(&caller(request), parent.0, name.as_bytes()),
            |()| reply.ok()
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target) = (name.as_bytes(), target.as_os_str().as_bytes());
        self.entry(
            reply,
            call(|| self.ops.symlink(&caller(request), parent.0, name, target)),
        );
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = RenameFlags {
            no_replace: flags.contains(fuser::RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(fuser::RenameFlags::RENAME_EXCHANGE),
            whiteout: flags.contains(fuser::RenameFlags::RENAME_WHITEOUT),
        };
        let (name, newname) = (name.as_bytes(), newname.as_bytes());
        answer!(
            reply,
            self.ops
                .rename(&caller(request), parent.0, name, newparent.0, newname, how),
            |()| reply.ok()
        );
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        self.entry(
            reply,
            call(|| {
                self.ops
                    .link(&caller(request), ino.0, newparent.0, newname.as_bytes())
            }),
        );
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.options.handleless_files {
            return reply.error(fuser::Errno::ENOSYS);
        }
        answer!(
            reply,
            self.ops.open(&caller(request), ino.0, flags.0 as u32),
            |o: Opened| reply.opened(FileHandle(o.fh), fopen_flags(&o, false))
        );
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut reply = Some(reply);
        let mut send = |slices: &[&[u8]]| {
            let Some(reply) = reply.take() else { return };
            match slices {
                [] => reply.data(&[]),
                [one] => reply.data(one),
                many => GATHER.with_borrow_mut(|gather| {
                    gather.clear();
                    many.iter()
                        .for_each(|slice| gather.extend_from_slice(slice));
                    reply.data(gather);
                }),
            }
        };
        let result = call(|| {
            self.ops
                .read(ino.0, fh.0, offset, size, ReadReply { send: &mut send })
        });
        if let (Err(errno), Some(reply)) = (result, reply) {
            reply.error(errno);
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: fuser::WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let how = WriteFlags {
            cached: write_flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE),
            kill_suidgid: write_flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            sync: flags.0 & O_DSYNC != 0,
        };
        answer!(
            reply,
            self.ops.write(ino.0, fh.0, offset, data, how),
            |written| reply.written(written)
        );
    }

    fn flush(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if !self.options.flush_on_close {
            return reply.error(fuser::Errno::ENOSYS);
        }
        answer!(reply, self.ops.flush(ino.0, fh.0), |()| reply.ok());
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let released = || {
            self.ops.release(ino.0, fh.0);
            Ok(())
        };
        answer!(reply, released(), |()| reply.ok());
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.ops.fsync(ino.0, fh.0, datasync), |()| reply
            .ok());
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.options.handleless_dirs {
            return reply.error(fuser::Errno::ENOSYS);
        }
        answer!(
            reply,
            self.ops.opendir(&caller(request), ino.0),
            |o: Opened| reply.opened(FileHandle(o.fh), fopen_flags(&o, true))
        );
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let mut sink = Names(reply);
        let result = call(|| {
            self.ops
                .readdir(&caller(request), ino.0, fh.0, offset, &mut sink)
        });
        match result {
            Ok(()) => sink.0.ok(),
            Err(errno) => sink.0.error(errno),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let mut sink = Entries {
            reply,
            options: &self.options,
        };
        let result = call(|| {
            self.ops
                .readdir(&caller(request), ino.0, fh.0, offset, &mut sink)
        });
        match result {
            Ok(()) => sink.reply.ok(),
            Err(errno) => sink.reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let released = || {
            self.ops.releasedir(ino.0, fh.0);
            Ok(())
        };
        answer!(reply, released(), |()| reply.ok());
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.ops.fsyncdir(ino.0, fh.0, datasync), |()| reply
            .ok());
    }

    fn statfs(&self, _request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        answer!(reply, self.ops.statfs(ino.0), |s: crate::StatFs| reply
            .statfs(
                s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.bsize, s.namelen, s.frsize
            ));
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        answer!(
            reply,
            self.ops
                .setxattr(&caller(request), ino.0, name.as_bytes(), value, mode),
            |()| reply.ok()
        );
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        answer!(
            reply,
            self.ops.getxattr(&caller(request), ino.0, name.as_bytes()),
            |value: Vec<u8>| {
                sized(reply, size, &value);
            }
        );
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        answer!(
            reply,
            self.ops.listxattr(&caller(request), ino.0),
            |names: Vec<u8>| sized(reply, size, &names)
        );
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(
            reply,
            self.ops
                .removexattr(&caller(request), ino.0, name.as_bytes()),
            |()| reply.ok()
        );
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        answer!(
            reply,
            self.ops.access(&caller(request), ino.0, mask.bits() as u32),
            |()| reply.ok()
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        if self.options.handleless_files {
            return reply.error(fuser::Errno::ENOSYS);
        }
        let who = self.creator(request, umask);
        answer!(
            reply,
            self.ops
                .create(&who, parent.0, name.as_bytes(), mode, flags as u32),
            |(attr, o): (Attr, Opened)| {
                // fuser has one time limit for both; the shorter one is safe.
                let ttl = self.options.attr_ttl.min(self.options.entry_ttl);
                let (generation, fh) = (Generation(attr.generation), FileHandle(o.fh));
                reply.created(
                    &ttl,
                    &wire_attr(&attr),
                    generation,
                    fh,
                    fopen_flags(&o, false),
                );
            }
        );
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        answer!(
            reply,
            self.ops
                .ioctl(&caller(request), ino.0, fh.0, cmd, data, out_size),
            |out: Vec<u8>| reply.ioctl(0, &out)
        );
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer!(
            reply,
            self.ops.fallocate(ino.0, fh.0, mode as u32, offset, length),
            |()| reply.ok()
        );
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let (whence, from) = match (whence, u64::try_from(offset)) {
            (SEEK_DATA, Ok(from)) => (Whence::Data, from),
            (SEEK_HOLE, Ok(from)) => (Whence::Hole, from),
            (SEEK_DATA | SEEK_HOLE, Err(_)) => return reply.error(fuser::Errno::ENXIO),
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        answer!(
            reply,
            self.ops.lseek(ino.0, fh.0, from, whence),
            |at: u64| match i64::try_from(at) {
                Ok(at) => reply.offset(at),
                Err(_) => reply.error(fuser::Errno::EOVERFLOW),
            }
        );
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let range = CopyRange {
            ino_in: ino_in.0,
            fh_in: fh_in.0,
            offset_in,
            ino_out: ino_out.0,
            fh_out: fh_out.0,
            offset_out,
            len,
        };
        answer!(reply, self.ops.copy_file_range(&range), |copied| reply
            .written(copied));
    }
}

/// `size` 0 asks how much room is needed.
fn sized(reply: ReplyXattr, size: u32, value: &[u8]) {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(value),
        _ => reply.error(fuser::Errno::ERANGE),
    }
}

#[cfg(test)]
mod tests;

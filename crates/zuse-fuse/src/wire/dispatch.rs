//! One method of [`Ops`] per kind of message.

use std::sync::Arc;
use std::time::Duration;

use super::abi::{self, fattr, fopen, op};
use super::listing::Listing;
use super::message::{Fields, Malformed, Message, Out};
use super::seeking::Seek;
use super::thread_pool::{Connection, Serve};
use super::walkers::Walkers;
use super::{Channel, call};
use crate::notifier::Notice;
use crate::{
    Attr, Attributes, Caller, CopyRange, Errno, MountOptions, Opened, Ops, ReadReply, RenameFlags,
    SetAttr, TimeSet, ValueReply, Whence, WriteFlags, XattrMode,
};

const O_DSYNC: u32 = 0o10_000;
/// The type of a file in its mode, and that of a directory.
const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
/// Longest listing, whatever the kernel asks for.
const MAX_LISTING: usize = 1 << 20;

type Done = Result<(), Errno>;

/// The answer to a request for bytes with a size limit.
enum SizedReply {
    /// The bytes.
    All,
    /// Their number: `fuse_getxattr_out`.
    Size(Out),
}

/// `size` is the client's buffer size; 0 asks for the needed size.
fn sized_reply(size: u32, bytes: &[u8]) -> Result<SizedReply, Errno> {
    match u32::try_from(bytes.len()) {
        Ok(len) if size == 0 => {
            let mut out = Out::default();
            out.u32(len);
            out.u32(0);
            Ok(SizedReply::Size(out))
        }
        Ok(len) if len <= size => Ok(SizedReply::All),
        _ => Err(Errno::RANGE),
    }
}

/// `fuse_lseek_in`: the handle, what to search for, and the start.
fn wanted_place(mut body: Fields<'_>) -> Result<(u64, u64, Whence), Errno> {
    let (fh, offset, whence) = (body.u64()?, body.i64()?, body.u32()?);
    match (whence, u64::try_from(offset)) {
        (SEEK_DATA, Ok(from)) => Ok((fh, from, Whence::Data)),
        (SEEK_HOLE, Ok(from)) => Ok((fh, from, Whence::Hole)),
        (SEEK_DATA | SEEK_HOLE, Err(_)) => Err(Errno::NXIO),
        _ => Err(Errno::INVAL),
    }
}

/// What answers messages.
pub(super) struct Server<O: Ops> {
    ops: Arc<O>,
    options: MountOptions,
    walkers: Walkers,
}

impl<O: Ops> Server<O> {
    pub(super) fn new(ops: Arc<O>, options: &MountOptions) -> Self {
        Self {
            ops,
            options: options.clone(),
            walkers: Walkers::default(),
        }
    }
}

impl<O: Ops> Serve for Server<O> {
    /// Makes the kernel write its pages, which may be newer.
    fn seek_behind(&self, channel: &Channel, seek: &Seek) {
        let all = Notice::Inode {
            ino: seek.node,
            offset: 0,
            len: 0,
        };
        super::send_notice(channel, all, 0);
        let mut out = Out::default();
        let (node, fh) = (seek.node, seek.fh);
        match self.call(|| self.seek(node, fh, (seek.from, seek.whence), &mut out)) {
            Ok(()) => channel.send(0, seek.unique, &[&out.0]),
            Err(errno) => channel.refuse(seek.unique, errno),
        }
    }

    fn destroy(&self) {
        let _ = self.call(|| {
            self.ops.destroy();
            Ok(())
        });
    }

    fn idle(&self, is_over: &dyn Fn() -> bool) {
        let _ = self.call(|| {
            self.ops.idle(is_over);
            Ok(())
        });
    }

    fn answer(&self, connection: &Arc<Connection>, message: Message<'_>, out: &mut Out) {
        self.answer_one(connection, message, out);
        self.ops.answered();
    }
}

impl<O: Ops> Server<O> {
    fn answer_one(&self, connection: &Arc<Connection>, message: Message<'_>, out: &mut Out) {
        let channel = &connection.channel;
        out.0.clear();
        let unique = message.unique;
        match message.opcode {
            op::FORGET | op::BATCH_FORGET => {
                // The kernel waits for no answer.
                let _ = self.call(|| self.forget(&message));
            }
            op::READ => self.read(channel, &message),
            op::LSEEK => self.lseek(connection, &message, out),
            op::GETXATTR => self.getxattr(channel, &message),
            _ => match self.call(|| self.answer_into(&message, out)) {
                Ok(()) if out.0.is_empty() => channel.send(0, unique, &[]),
                Ok(()) => channel.send(0, unique, &[&out.0]),
                Err(errno) => channel.refuse(unique, errno),
            },
        }
    }
}

impl<O: Ops> Server<O> {
    fn answer_into(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let (node, body) = (m.node, m.body);
        match m.opcode {
            op::LOOKUP => self.lookup(m, out),
            op::GETATTR => self.getattr(node, body, out),
            op::STATX if self.options.birth_times => self.statx(node, body, out),
            op::SETATTR => self.setattr(m, out),
            op::READLINK => {
                out.0 = self.ops.readlink(node)?;
                Ok(())
            }
            op::MKNOD => self.mknod(m, out),
            op::MKDIR => self.mkdir(m, out),
            op::SYMLINK => self.symlink(m, out),
            op::LINK => self.link(m, out),
            op::CREATE | op::TMPFILE => self.create(m, out),
            op::UNLINK => self.ops.unlink(&m.caller, node, m.body.clone().name()?),
            op::RMDIR => self.ops.rmdir(&m.caller, node, m.body.clone().name()?),
            op::RENAME | op::RENAME2 => self.rename(m),
            op::OPEN => self.open(m, out),
            op::OPENDIR => self.opendir(m, out),
            op::WRITE => self.write(node, body, out),
            op::READDIR | op::READDIRPLUS => self.readdir(m, out),
            op::FLUSH => self.flush(node, body),
            op::RELEASE => self.release(node, body),
            op::RELEASEDIR => self.releasedir(node, body),
            op::FSYNC | op::FSYNCDIR => self.fsync(m),
            op::SYNCFS => self.ops.syncfs(node),
            op::STATFS => self.statfs(node, out),
            op::SETXATTR => self.setxattr(m),
            op::LISTXATTR => self.listxattr(m, out),
            op::REMOVEXATTR => self
                .ops
                .removexattr(&m.caller, node, m.body.clone().name()?),
            op::ACCESS => self.ops.access(&m.caller, node, m.body.clone().u32()?),
            op::IOCTL => self.ioctl(m, out),
            op::FALLOCATE => self.fallocate(m),
            op::COPY_FILE_RANGE => self.copy_file_range(m, out),
            op::DESTROY => Ok(()),
            // INTERRUPT, locks, BMAP, POLL and newer requests: the kernel does not send them again.
            _ => Err(Errno::NOSYS),
        }
    }

    fn entry(&self, out: &mut Out, dir: u64, attr: &Attr) {
        let entry_ttl = self.name_ttl(dir, self.options.entry_ttl);
        out.entry(attr.ino, attr, entry_ttl, self.options.attr_ttl);
    }

    /// How long a name in a directory stays valid.
    fn name_ttl(&self, dir: u64, ttl: Duration) -> Duration {
        if self.ops.may_keep_names(dir) {
            ttl
        } else {
            Duration::ZERO
        }
    }

    fn lookup(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let name = m.body.clone().name()?;
        match self.ops.lookup(&m.caller, m.node, name) {
            Ok(attr) => {
                if attr.mode & S_IFMT != S_IFDIR {
                    self.walkers.looks_up_file(m.caller.pid);
                }
                self.entry(out, m.node, &attr);
            }
            Err(Errno::NOENT) => {
                let ttl = self.name_ttl(m.node, self.options.negative_ttl);
                if ttl.is_zero() {
                    return Err(Errno::NOENT);
                }
                // Number 0 lets the kernel cache the absence of the name.
                out.entry(0, &Attr::default(), ttl, Duration::ZERO);
            }
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// A panic fails one request, and the session continues.
    fn call<T>(&self, method: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        call(|| self.ops.panicked(), method)
    }

    fn forget(&self, m: &Message<'_>) -> Done {
        let mut body = m.body;
        if m.opcode == op::FORGET {
            self.ops.forget(m.node, body.u64()?);
            return Ok(());
        }
        let count = body.u32()?;
        body.u32()?;
        for _ in 0..count {
            let (node, n) = (body.u64()?, body.u64()?);
            self.ops.forget(node, n);
        }
        Ok(())
    }

    fn getattr(&self, node: u64, mut body: Fields<'_>, out: &mut Out) -> Done {
        let flags = body.u32()?;
        body.u32()?;
        let fh = body.u64()?;
        let attr = self
            .ops
            .getattr(node, (flags & abi::GETATTR_FH != 0).then_some(fh))?;
        out.attributes(&attr, self.options.attr_ttl);
        Ok(())
    }

    fn statx(&self, node: u64, mut body: Fields<'_>, out: &mut Out) -> Done {
        let flags = body.u32()?;
        body.u32()?;
        let fh = body.u64()?;
        let attr = self
            .ops
            .getattr(node, (flags & abi::GETATTR_FH != 0).then_some(fh))?;
        out.statx(&attr, self.options.attr_ttl);
        Ok(())
    }

    fn setattr(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let valid = body.u32()?;
        body.u32()?;
        let (fh, size, _lock_owner) = (body.u64()?, body.u64()?, body.u64()?);
        let (atime, mtime, ctime) = (body.i64()?, body.i64()?, body.i64()?);
        let (atime_ns, mtime_ns, ctime_ns) = (body.u32()?, body.u32()?, body.u32()?);
        let (mode, _, uid, gid) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
        let has = |bit: u32| valid & bit != 0;
        let time = |bit, now, at| {
            has(bit).then(|| {
                if has(now) {
                    TimeSet::Now
                } else {
                    TimeSet::At(at)
                }
            })
        };
        let set = SetAttr {
            mode: has(fattr::MODE).then_some(mode),
            uid: has(fattr::UID).then_some(uid),
            gid: has(fattr::GID).then_some(gid),
            size: has(fattr::SIZE).then_some(size),
            atime: time(fattr::ATIME, fattr::ATIME_NOW, (atime, atime_ns)),
            mtime: time(fattr::MTIME, fattr::MTIME_NOW, (mtime, mtime_ns)),
            ctime: has(fattr::CTIME).then_some((ctime, ctime_ns)),
            // A change of owner always clears them, and the kernel leaves that to us. Before an
            // unprivileged user changes such a file, the kernel sends a message without changes;
            // the answer tells it the new mode.
            kill_suidgid: has(fattr::KILL_SUIDGID | fattr::UID | fattr::GID)
                || valid & !fattr::ABOUT_THE_REQUEST == 0,
        };
        let fh = has(fattr::FH).then_some(fh);
        let attr = self.ops.setattr(&m.caller, m.node, fh, &set)?;
        out.attributes(&attr, self.options.attr_ttl);
        Ok(())
    }

    fn mknod(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let (mode, rdev, umask, _) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
        let who = Caller { umask, ..m.caller };
        let attr = self.ops.mknod(&who, m.node, body.name()?, mode, rdev)?;
        self.entry(out, m.node, &attr);
        Ok(())
    }

    fn mkdir(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let (mode, umask) = (body.u32()?, body.u32()?);
        let who = Caller { umask, ..m.caller };
        let attr = self.ops.mkdir(&who, m.node, body.name()?, mode)?;
        self.entry(out, m.node, &attr);
        Ok(())
    }

    fn symlink(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let (name, target) = (body.name()?, body.name()?);
        let attr = self.ops.symlink(&m.caller, m.node, name, target)?;
        self.entry(out, m.node, &attr);
        Ok(())
    }

    fn link(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let ino = body.u64()?;
        let attr = self.ops.link(&m.caller, ino, m.node, body.name()?)?;
        self.entry(out, m.node, &attr);
        Ok(())
    }

    fn rename(&self, m: &Message<'_>) -> Done {
        let mut body = m.body;
        let to = body.u64()?;
        let flags = if m.opcode == op::RENAME2 {
            let flags = body.u32()?;
            body.u32()?;
            flags
        } else {
            0
        };
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) != 0 {
            return Err(Errno::INVAL);
        }
        let how = RenameFlags {
            no_replace: flags & RENAME_NOREPLACE != 0,
            exchange: flags & RENAME_EXCHANGE != 0,
            whiteout: flags & RENAME_WHITEOUT != 0,
        };
        let (name, new_name) = (body.name()?, body.name()?);
        self.ops.rename(&m.caller, m.node, name, to, new_name, how)
    }

    /// `fuse_open_out`.
    fn opened(&self, out: &mut Out, opened: &Opened) {
        out.u64(opened.fh);
        out.u32(if opened.keep_cache {
            fopen::KEEP_CACHE
        } else {
            0
        });
        out.u32(0);
    }

    fn create(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let (flags, mode, umask, _) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
        let who = Caller { umask, ..m.caller };
        let (attr, opened) = if m.opcode == op::TMPFILE {
            self.ops.tmpfile(&who, m.node, mode, flags)?
        } else {
            self.ops.create(&who, m.node, body.name()?, mode, flags)?
        };
        self.entry(out, m.node, &attr);
        self.opened(out, &opened);
        Ok(())
    }

    fn open(&self, m: &Message<'_>, out: &mut Out) -> Done {
        // The kernel then opens files itself, and asks no more.
        if self.options.handleless_files {
            return Err(Errno::NOSYS);
        }
        let flags = m.body.clone().u32()?;
        let opened = self.ops.open(&m.caller, m.node, flags)?;
        self.opened(out, &opened);
        Ok(())
    }

    fn opendir(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let opened = self.ops.opendir(&m.caller, m.node)?;
        self.opened(out, &opened);
        Ok(())
    }

    fn read(&self, channel: &Channel, m: &Message<'_>) {
        let mut answered = false;
        let mut send = |slices: &[&[u8]]| {
            // The kernel takes one answer to a message.
            if !std::mem::replace(&mut answered, true) {
                channel.send(0, m.unique, slices);
            }
        };
        let result = self.call(|| {
            let mut body = m.body;
            let (fh, offset, size) = (body.u64()?, body.u64()?, body.u32()?);
            let reply = ReadReply { send: &mut send };
            self.ops.read(m.node, fh, offset, size, reply)
        });
        if let (Err(errno), false) = (result, answered) {
            channel.refuse(m.unique, errno);
        }
    }

    fn write(&self, node: u64, mut body: Fields<'_>, out: &mut Out) -> Done {
        let (fh, offset, size, write_flags) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
        let (_lock_owner, flags, _) = (body.u64()?, body.u32()?, body.u32()?);
        let data = body.bytes(usize::try_from(size).map_err(|_| Errno::IO)?)?;
        let cached = write_flags & abi::WRITE_CACHE != 0;
        let how = WriteFlags {
            cached,
            // With the write-back cache the kernel owns the times and sends them by SETATTR.
            keep_times: cached && self.options.writeback_cache,
            kill_suidgid: write_flags & abi::WRITE_KILL_SUIDGID != 0,
            sync: flags & O_DSYNC != 0,
        };
        out.u32(self.ops.write(node, fh, offset, data, how)?);
        out.u32(0);
        Ok(())
    }

    fn readdir(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let (fh, offset, size) = (body.u64()?, body.u64()?, body.u32()?);
        let limit = usize::try_from(size).map_or(MAX_LISTING, |n| n.min(MAX_LISTING));
        let ttls = (m.opcode == op::READDIRPLUS).then(|| {
            let entry_ttl = self.name_ttl(m.node, self.options.entry_ttl);
            (entry_ttl, self.options.attr_ttl)
        });
        let attributes = match ttls {
            Some(_) => self.walkers.lists(m.caller.pid, offset == 0),
            None => Attributes::No,
        };
        let mut sink = Listing::new(out, limit, ttls, attributes);
        self.ops.readdir(&m.caller, m.node, fh, offset, &mut sink)
    }

    fn flush(&self, node: u64, mut body: Fields<'_>) -> Done {
        // With this answer the kernel sends no further FLUSH.
        if !self.options.flush_on_close {
            return Err(Errno::NOSYS);
        }
        self.ops.flush(node, body.u64()?)
    }

    fn release(&self, node: u64, mut body: Fields<'_>) -> Done {
        // For files created before the kernel learned that OPEN is not needed.
        if !self.options.handleless_files {
            self.ops.release(node, body.u64()?);
        }
        Ok(())
    }

    fn releasedir(&self, node: u64, mut body: Fields<'_>) -> Done {
        self.ops.releasedir(node, body.u64()?);
        Ok(())
    }

    fn fsync(&self, m: &Message<'_>) -> Done {
        let mut body = m.body;
        let (fh, flags) = (body.u64()?, body.u32()?);
        let data_only = flags & abi::FSYNC_FDATASYNC != 0;
        if m.opcode == op::FSYNC {
            self.ops.fsync(m.node, fh, data_only)
        } else {
            self.ops.fsyncdir(m.node, fh, data_only)
        }
    }

    /// `fuse_kstatfs`.
    fn statfs(&self, node: u64, out: &mut Out) -> Done {
        let s = self.ops.statfs(node)?;
        for n in [s.blocks, s.bfree, s.bavail, s.files, s.ffree] {
            out.u64(n);
        }
        for n in [s.bsize, s.namelen, s.frsize] {
            out.u32(n);
        }
        out.zeros(7 * 4);
        Ok(())
    }

    /// `fuse_setxattr_in`: the length of the value, flags; then the name, and the value.
    fn setxattr(&self, m: &Message<'_>) -> Done {
        let mut body = m.body;
        let (size, flags) = (body.u32()?, body.u32()?);
        let name = body.name()?;
        let mode = match flags {
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        let value = body.bytes(usize::try_from(size).map_err(|_| Malformed)?)?;
        self.ops.setxattr(&m.caller, m.node, name, value, mode)
    }

    /// The value of an attribute.
    fn getxattr(&self, channel: &Channel, m: &Message<'_>) {
        let mut answered = false;
        let result = self.call(|| {
            let mut body = m.body;
            let (size, _) = (body.u32()?, body.u32()?);
            let mut send = |value: &[u8]| {
                if !std::mem::replace(&mut answered, true) {
                    match sized_reply(size, value) {
                        Ok(SizedReply::All) => channel.send(0, m.unique, &[value]),
                        Ok(SizedReply::Size(size)) => channel.send(0, m.unique, &[&size.0]),
                        Err(errno) => channel.refuse(m.unique, errno),
                    }
                }
            };
            let reply = ValueReply { send: &mut send };
            self.ops
                .getxattr_into(&m.caller, m.node, body.name()?, reply)
        });
        if let (Err(errno), false) = (result, answered) {
            channel.refuse(m.unique, errno);
        }
    }

    /// The names of all attributes.
    fn listxattr(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let size = m.body.clone().u32()?;
        let names = self.ops.listxattr(&m.caller, m.node)?;
        match sized_reply(size, &names)? {
            SizedReply::All => out.0 = names,
            SizedReply::Size(size) => *out = size,
        }
        Ok(())
    }

    fn ioctl(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let (fh, _flags, cmd, _arg) = (body.u64()?, body.u32()?, body.u32()?, body.u64()?);
        let (in_size, out_size) = (body.u32()?, body.u32()?);
        let data = body.bytes(usize::try_from(in_size).map_err(|_| Errno::IO)?)?;
        let answer = self.ops.ioctl(&m.caller, m.node, fh, cmd, data, out_size)?;
        // `fuse_ioctl_out`: result, flags, no vectors.
        out.zeros(16);
        out.0.extend_from_slice(&answer);
        Ok(())
    }

    fn fallocate(&self, m: &Message<'_>) -> Done {
        let mut body = m.body;
        let (fh, offset, len, mode) = (body.u64()?, body.u64()?, body.u64()?, body.u32()?);
        self.ops.fallocate(&m.caller, m.node, fh, mode, offset, len)
    }

    fn lseek(&self, connection: &Arc<Connection>, m: &Message<'_>, out: &mut Out) {
        let channel = &connection.channel;
        let done = self.call(|| {
            let (fh, from, whence) = wanted_place(m.body)?;
            if self.ops.may_lag_behind(m.node) {
                // The kernel's pages must be written first, by requests that this worker may have
                // to serve.
                connection.seek_later(Seek {
                    unique: m.unique,
                    node: m.node,
                    fh,
                    from,
                    whence,
                });
                return Ok(false);
            }
            self.seek(m.node, fh, (from, whence), out)?;
            Ok(true)
        });
        match done {
            Ok(true) => channel.send(0, m.unique, &[&out.0]),
            Ok(false) => {}
            Err(errno) => channel.refuse(m.unique, errno),
        }
    }

    fn seek(&self, node: u64, fh: u64, (from, whence): (u64, Whence), out: &mut Out) -> Done {
        let at = self.ops.lseek(node, fh, from, whence)?;
        out.i64(i64::try_from(at).map_err(|_| Errno::OVERFLOW)?);
        Ok(())
    }

    fn copy_file_range(&self, m: &Message<'_>, out: &mut Out) -> Done {
        let mut body = m.body;
        let range = CopyRange {
            ino_in: m.node,
            fh_in: body.u64()?,
            offset_in: body.u64()?,
            ino_out: body.u64()?,
            fh_out: body.u64()?,
            offset_out: body.u64()?,
            len: body.u64()?,
        };
        out.u32(self.ops.copy_file_range(&m.caller, &range)?);
        out.u32(0);
        Ok(())
    }
}

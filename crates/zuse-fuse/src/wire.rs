//! The protocol: messages of the kernel over `/dev/fuse`, turned into calls of [`Ops`].
//!
//! ```text
//!   /dev/fuse ──read──> message ──dispatch──> Ops ──> answer ──writev──> /dev/fuse
//!                       (checked)                     (slices of a read go out as they are)
//! ```
//! Rules:
//! - One message, one answer; FORGET, BATCH_FORGET and INTERRUPT have none. A message that is too
//!   short for its type, or a method that panics, fails that one request with `EIO`.
//! - A worker reads one message at a time into a buffer of its own, which the message borrows until
//!   it is answered. Workers serve all connections of the process (`thread_pool`).
//! - An answer that the kernel refuses, because the client was killed, is dropped.
//! - Requests cannot be interrupted; the kernel is told so once.

mod abi;
mod dispatch;
mod listing;
mod message;
mod seeking;
mod thread_pool;
mod walkers;
mod workers;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::io::Errno as OsErrno;

use crate::notifier::Notice;
use crate::{Errno, MountOptions, Ops};
use dispatch::Server;
use message::{Fields, Malformed, Message, Out};
pub use thread_pool::ThreadPool;

/// The kernel requires a buffer of at least this size.
const MIN_BUFFER: usize = 8192;
/// Most slices of one answer: `writev` takes 1024, one is the header.
const MAX_SLICES: usize = 1000;
/// Background requests (read-ahead, write-back) in progress at a time.
const MAX_BACKGROUND: u16 = 64;
const PAGE: u32 = 4096;
/// Most bytes of one write.
const MAX_WRITE: u32 = 1 << 20;
/// Bytes that a worker reads a message into.
const INBOX: usize = MAX_WRITE as usize + abi::IN_HEADER + abi::WRITE_IN;

/// Calls a method of [`Ops`]; a panic in it becomes `EIO` for the client, and [`Ops::panicked`] is
/// called.
fn call<T>(panicked: impl FnOnce(), method: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(method)).unwrap_or_else(|_| {
        panicked();
        Err(Errno::IO)
    })
}

/// The kernel's end of the session.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// A connection that has ended.
struct Over {
    /// The error, unless it was unmounted or aborted.
    why: Option<io::Error>,
}

impl Channel {
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// A message, if there is one or the descriptor blocks.
    fn take(&self, buffer: &mut [u8]) -> Result<Option<usize>, Over> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(n) => return Ok(Some(n)),
                // Its client was killed before it was read; or a signal.
                Err(OsErrno::NOENT | OsErrno::INTR) => {}
                // Another worker has read the message.
                Err(OsErrno::AGAIN) => return Ok(None),
                // Unmounted; or cut.
                Err(OsErrno::NODEV | OsErrno::CONNABORTED) => return Err(Over { why: None }),
                Err(e) => {
                    return Err(Over {
                        why: Some(e.into()),
                    });
                }
            }
        }
    }

    fn send(&self, code: i32, unique: u64, slices: &[&[u8]]) {
        let len = slices.iter().map(|s| s.len()).sum();
        let header = Out::header(len, code, unique);
        // The write fails if the client was killed, or the session has ended. No answer is needed
        // then.
        let _ = match slices {
            [] => rustix::io::write(&self.0, &header),
            [one] => rustix::io::writev(&self.0, &[IoSlice::new(&header), IoSlice::new(one)]),
            many if many.len() > MAX_SLICES => {
                // One write is one answer, so it cannot be sent in two.
                let all = many.concat();
                rustix::io::writev(&self.0, &[IoSlice::new(&header), IoSlice::new(&all)])
            }
            many => {
                let mut parts = Vec::with_capacity(many.len() + 1);
                parts.push(IoSlice::new(&header));
                parts.extend(many.iter().map(|s| IoSlice::new(s)));
                rustix::io::writev(&self.0, &parts)
            }
        };
    }

    fn refuse(&self, unique: u64, errno: Errno) {
        // The kernel ignores an answer with an invalid error number, and its client would wait for
        // ever.
        let code = if (1..=511).contains(&errno.0) {
            -errno.0
        } else {
            -Errno::IO.0
        };
        self.send(code, unique, &[]);
    }
}

/// A session after the handshake with the kernel, not served yet.
pub(crate) struct Session<O: Ops> {
    channel: Arc<Channel>,
    server: Server<O>,
    options: MountOptions,
    /// Names can be made to expire, instead of being dropped.
    expires: bool,
}

/// Does the handshake with the kernel over an opened and mounted `/dev/fuse`.
pub(crate) fn open<O: Ops>(
    ops: Arc<O>,
    fd: OwnedFd,
    options: &MountOptions,
) -> io::Result<Session<O>> {
    let channel = Arc::new(Channel(fd));
    let mut buffer = vec![0; MIN_BUFFER];
    let expires;
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    loop {
        let len = match channel.take(&mut buffer) {
            Ok(Some(len)) => len,
            Ok(None) => continue,
            Err(over) => return Err(over.why.unwrap_or(io::ErrorKind::NotConnected.into())),
        };
        let bytes = buffer.get(..len).unwrap_or_default();
        let message = Message::parse(bytes).map_err(|_| broken("a message without a header"))?;
        if message.opcode != abi::op::INIT {
            channel.refuse(message.unique, Errno::IO);
            return Err(broken("the kernel does not begin with INIT"));
        }
        let hello = Hello::parse(message.body).map_err(|_| broken("INIT is too short"))?;
        if hello.major > abi::MAJOR {
            // The kernel begins again with our version.
            let mut out = Out::default();
            out.u32(abi::MAJOR);
            out.u32(abi::MINOR);
            channel.send(0, message.unique, &[&out.0]);
            continue;
        }
        if hello.major < abi::MAJOR || hello.minor < abi::OLDEST_MINOR {
            // EPROTO
            channel.refuse(message.unique, Errno(71));
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "FUSE {}.{} of the kernel is too old",
                    hello.major, hello.minor
                ),
            ));
        }
        // Before the answer: requests follow it at once.
        ops.init();
        expires = options.expire_names && hello.flags & abi::init::HAS_EXPIRE_ONLY != 0;
        channel.send(0, message.unique, &[&hello.answer(options).0]);
        break;
    }
    Ok(Session::new(ops, channel, options, expires))
}

/// A session after the handshake in another process.
pub(crate) fn go_on<O: Ops>(
    ops: Arc<O>,
    fd: OwnedFd,
    options: &MountOptions,
    expires: bool,
) -> Session<O> {
    Session::new(ops, Arc::new(Channel(fd)), options, expires)
}

/// `fuse_init_in`.
#[derive(Clone, Copy, Debug)]
struct Hello {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u64,
}

impl Hello {
    fn parse(mut body: Fields<'_>) -> Result<Self, Malformed> {
        let (major, minor) = (body.u32()?, body.u32()?);
        if major != abi::MAJOR {
            return Ok(Self {
                major,
                minor,
                max_readahead: 0,
                flags: 0,
            });
        }
        let (max_readahead, low) = (body.u32()?, u64::from(body.u32()?));
        let high = if low & abi::init::INIT_EXT != 0 {
            u64::from(body.u32()?)
        } else {
            0
        };
        Ok(Self {
            major,
            minor,
            max_readahead,
            flags: low | high << 32,
        })
    }

    /// `fuse_init_out`. Flags that the kernel does not offer are left out.
    ///
    /// Not used: `ASYNC_DIO`. The kernel drops cached pages before an `O_DIRECT` write and again
    /// after a synchronous one, but not after an asynchronous one. Pages that were read in between
    /// would stay outdated for ever.
    fn answer(&self, options: &MountOptions) -> Out {
        use abi::init;
        let mut wanted = init::ASYNC_READ
            | init::EXPORT_SUPPORT
            | init::BIG_WRITES
            | init::MAX_PAGES
            | init::PARALLEL_DIROPS
            | init::DO_READDIRPLUS
            | init::CACHE_SYMLINKS
            | init::EXPLICIT_INVAL_DATA
            | init::HANDLE_KILLPRIV_V2
            | init::HAS_IOCTL_DIR
            | init::INIT_EXT
            | init::HAS_EXPIRE_ONLY;
        if options.writeback_cache {
            wanted |= init::WRITEBACK_CACHE;
        }
        if options.posix_acl {
            wanted |= init::POSIX_ACL | init::DONT_MASK;
        }
        let flags = wanted & self.flags;
        let max_write = options.max_write.clamp(PAGE, MAX_WRITE);
        let pages = max_write.div_ceil(PAGE);
        let mut out = Out::default();
        out.u32(abi::MAJOR);
        out.u32(abi::MINOR);
        out.u32(self.max_readahead.min(options.max_readahead));
        out.u32(flags as u32);
        out.u16(MAX_BACKGROUND);
        out.u16(MAX_BACKGROUND * 3 / 4);
        out.u32(max_write);
        // The granularity of times, in nanoseconds.
        out.u32(1);
        out.u16(u16::try_from(pages).unwrap_or(u16::MAX).max(1));
        out.u16(0);
        out.u32((flags >> 32) as u32);
        out.zeros(7 * 4);
        out
    }
}

impl<O: Ops> Session<O> {
    fn new(ops: Arc<O>, channel: Arc<Channel>, options: &MountOptions, expires: bool) -> Self {
        Self {
            channel,
            server: Server::new(ops, options),
            options: options.clone(),
            expires,
        }
    }

    /// The connection, and whether names can be made to expire.
    pub(crate) fn connection(&self) -> (Arc<Channel>, bool) {
        (Arc::clone(&self.channel), self.expires)
    }

    /// What sends invalidations.
    pub(crate) fn sender(&self) -> impl Fn(Notice) + Send + Sync + use<O> {
        let channel = Arc::clone(&self.channel);
        // A name or inode that the kernel does not know needs no invalidation.
        let how = if self.expires {
            abi::notify::EXPIRE_ONLY
        } else {
            0
        };
        move |notice| send_notice(&channel, notice, how)
    }

    /// Serves it with a thread pool until the kernel ends the session; then calls `ended` with the
    /// result.
    pub(crate) fn serve_by(
        self,
        thread_pool: &ThreadPool,
        ended: impl Fn(io::Result<()>) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let Self {
            channel,
            server,
            options,
            ..
        } = self;
        thread_pool.add(channel, Box::new(server), options.threads, Box::new(ended))
    }
}

/// Sends a notice; `how` are the flags of a notice about an entry.
///
/// Dropping an entry also drops mounts on it. An expired one is looked up again.
fn send_notice(channel: &Channel, notice: Notice, how: u32) {
    let mut out = Out::default();
    let mut inode = |ino, offset: i64, len: u64| {
        out.u64(ino);
        out.i64(offset);
        out.i64(len.try_into().unwrap_or(0));
        abi::notify::INVAL_INODE
    };
    let code = match notice {
        Notice::Inode { ino, offset, len } => {
            inode(ino, offset.try_into().unwrap_or(i64::MAX), len)
        }
        // An offset before the beginning: no pages.
        Notice::Attributes { ino } => inode(ino, -1, 0),
        Notice::Entry { parent, name } => {
            out.u64(parent);
            name_of(&mut out, &name, how);
            abi::notify::INVAL_ENTRY
        }
        Notice::Delete {
            parent,
            child,
            name,
        } => {
            out.u64(parent);
            out.u64(child);
            name_of(&mut out, &name, 0);
            abi::notify::DELETE
        }
    };
    channel.send(code, 0, &[&out.0]);
}

fn name_of(out: &mut Out, name: &[u8], flags: u32) {
    out.u32(u32::try_from(name.len()).unwrap_or(u32::MAX));
    out.u32(flags);
    out.0.extend_from_slice(name);
    out.0.push(0);
}

#[cfg(test)]
mod tests;

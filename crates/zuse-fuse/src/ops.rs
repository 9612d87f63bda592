//! The interface that a file system implements.
//!
//! Methods block; the session calls them from several threads at once. Every failure is an errno
//! for the calling process. A method that panics fails its own request with `EIO`, and the session
//! continues.
//!
//! References. The kernel holds one reference on an inode for each successful
//! [`lookup`](Ops::lookup), [`mknod`](Ops::mknod), [`mkdir`](Ops::mkdir),
//! [`symlink`](Ops::symlink), [`link`](Ops::link) and [`create`](Ops::create). It holds another for
//! each entry that a [`readdir`](Ops::readdir) added with attributes, except `.` and `..`.
//! [`forget`](Ops::forget) releases them. At unmount the kernel sends no `forget`.
//!
//! Privileges. The server clears set-id bits. Otherwise the kernel would request the capabilities
//! of a file before each write. Clear them on [`write`](Ops::write) and [`setattr`](Ops::setattr)
//! if their flag says so. Clear them on [`fallocate`](Ops::fallocate) and
//! [`copy_file_range`](Ops::copy_file_range) by callers other than root. The kernel does not check
//! afterwards. A server that clears bits outside of `setattr` must call
//! [`Notifier::attributes_changed`] before it answers. Otherwise the kernel still honours the old
//! bits.

#[cfg(doc)]
use crate::Notifier;
use crate::{Attr, Caller, SetAttr, StatFs};
use zuse_base::Errno;

type Result<T> = std::result::Result<T, Errno>;

/// Among the flags of [`Ops::open`]: the file is opened for execution.
pub const OPEN_EXEC: u32 = 0x20;

/// How a file or directory was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The server's handle, passed with every request on the open file.
    pub fh: u64,
    /// Keep the page cache. Ignored for directories.
    pub keep_cache: bool,
}

impl Opened {
    /// A handle with cached pages: the usual one for a file.
    pub fn cached(fh: u64) -> Self {
        Self {
            fh,
            keep_cache: true,
        }
    }
}

/// How to rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail with `EXIST` if the target exists.
    pub no_replace: bool,
    /// Swap the two.
    pub exchange: bool,
    /// Leave a whiteout (character device 0:0) behind.
    pub whiteout: bool,
}

/// Flags of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// It comes from the page cache: the handle is that of some writer, and the writer is unknown.
    pub cached: bool,
    /// The kernel owns the file's times and will send them: do not change them.
    pub keep_times: bool,
    /// Drop set-id bits and file capabilities.
    pub kill_suidgid: bool,
    /// The file was opened with `O_SYNC` or `O_DSYNC`: be durable before answering.
    pub sync: bool,
}

/// Whether an extended attribute may or must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace it.
    Any,
    /// `EXIST` if it exists.
    Create,
    /// `NODATA` if it does not exist.
    Replace,
}

/// What to seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file counts as one.
    Hole,
}

/// A copy between two files of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Source inode.
    pub ino_in: u64,
    /// Source handle.
    pub fh_in: u64,
    /// Source offset.
    pub offset_in: u64,
    /// Target inode.
    pub ino_out: u64,
    /// Target handle.
    pub fh_out: u64,
    /// Target offset.
    pub offset_out: u64,
    /// Bytes to copy.
    pub len: u64,
}

/// Proof that a read has been answered.
#[derive(Debug)]
pub struct Replied(pub(crate) ());

/// Receives the answer to a read while its bytes are borrowed, so that they go from the cache to
/// the kernel without a copy.
pub struct ReadReply<'a> {
    pub(crate) send: &'a mut dyn FnMut(&[&[u8]]),
}

impl ReadReply<'_> {
    /// Answers with the bytes of these slices in a row; fewer than requested mean the end of the
    /// file.
    pub fn slices(self, slices: &[&[u8]]) -> Replied {
        (self.send)(slices);
        Replied(())
    }

    /// Answers with one slice.
    pub fn bytes(self, bytes: &[u8]) -> Replied {
        self.slices(&[bytes])
    }
}

/// Receives the value of an extended attribute while its bytes are borrowed, so that they go to the
/// kernel without a copy.
pub struct ValueReply<'a> {
    pub(crate) send: &'a mut dyn FnMut(&[u8]),
}

impl ValueReply<'_> {
    /// Answers with the whole value, even if the client's buffer is smaller.
    pub fn value(self, value: &[u8]) -> Replied {
        (self.send)(value);
        Replied(())
    }
}

/// Whether the entries of a directory should include attributes, and so a reference each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// Names alone.
    No,
    /// It is unknown whether the client needs them: include cheap ones, for some entries.
    Some,
    /// The client needs them.
    All,
}

/// Takes the entries of a directory.
pub trait DirSink {
    /// Which entries should include attributes.
    fn attributes(&self) -> Attributes;

    /// Bytes left; an entry takes 24, or 152 if the kernel asked for attributes, plus its name, in
    /// multiples of 8.
    fn room(&self) -> usize;

    /// Adds an entry; `true` if it did *not* fit and the listing has to stop before it.
    ///
    /// `next` is the offset after this entry: any number but 0, stable while the directory is open.
    /// `mode` needs only type bits. An entry with attributes is referenced. One without (`.`, `..`,
    /// objects that are expensive to open) is looked up by the kernel before it uses it. Its number
    /// must not be that of any inode, because the kernel forgets a reference that was not given.
    #[must_use]
    fn add(&mut self, ino: u64, next: u64, mode: u32, name: &[u8], attr: Option<&Attr>) -> bool;
}

/// A file system. The module's documentation describes references and privileges.
#[allow(unused_variables, clippy::too_many_arguments)]
pub trait Ops: Send + Sync + 'static {
    /// Called once before anything else.
    fn init(&self) {}

    /// Called once after everything else.
    fn destroy(&self) {}

    /// A method panicked, so its changes may be incomplete. The client got `EIO`.
    fn panicked(&self) {}

    /// Looks up a name. `NOENT` is cached by the kernel for `negative_ttl`, unless names may not be
    /// cached.
    fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<Attr>;

    /// Whether the kernel may cache names of a directory, also absent ones. Not if an entry has
    /// several names: the kernel treats each as a separate entry, and a change of one leaves the
    /// others unchanged.
    fn may_keep_names(&self, dir: u64) -> bool {
        true
    }

    /// Whether the kernel may have newer pages of a file than the server. Before a search for holes
    /// in such a file the kernel is asked to write them.
    fn may_lag_behind(&self, ino: u64) -> bool {
        false
    }

    /// The kernel gives `n` references back.
    fn forget(&self, ino: u64, n: u64);

    /// A worker is idle: it can do background work, until `is_over` says that there is a request.
    /// Called very often, so it must be cheap if there is nothing to do.
    fn idle(&self, _is_over: &dyn Fn() -> bool) {}

    /// A request was answered, or references were dropped. Called each time, so it must be cheap.
    fn answered(&self) {}

    /// Attributes of an inode.
    fn getattr(&self, ino: u64, fh: Option<u64>) -> Result<Attr>;

    /// Changes attributes and returns all of them.
    fn setattr(&self, caller: &Caller, ino: u64, fh: Option<u64>, set: &SetAttr) -> Result<Attr>;

    /// Target of a symbolic link.
    fn readlink(&self, ino: u64) -> Result<Vec<u8>> {
        Err(Errno::INVAL)
    }

    /// Makes a file, device, pipe or socket.
    fn mknod(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        Err(Errno::ROFS)
    }

    /// Makes a directory.
    fn mkdir(&self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Result<Attr> {
        Err(Errno::ROFS)
    }

    /// Removes a name of a file. The inode exists while the kernel holds references.
    fn unlink(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::ROFS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::ROFS)
    }

    /// Makes a symbolic link.
    fn symlink(&self, caller: &Caller, parent: u64, name: &[u8], target: &[u8]) -> Result<Attr> {
        Err(Errno::ROFS)
    }

    /// Renames.
    fn rename(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        Err(Errno::ROFS)
    }

    /// Adds a name to an inode.
    fn link(&self, caller: &Caller, ino: u64, new_parent: u64, new_name: &[u8]) -> Result<Attr> {
        Err(Errno::ROFS)
    }

    /// Opens a file; `flags` are the `O_*` flags without `O_CREAT`, `O_EXCL`, `O_TRUNC`, and
    /// [`OPEN_EXEC`]. With the write-back cache the kernel also reads through handles that were
    /// opened for writing only.
    fn open(&self, caller: &Caller, ino: u64, flags: u32) -> Result<Opened> {
        Ok(Opened::cached(0))
    }

    /// Reads up to `size` bytes.
    fn read(
        &self,
        ino: u64,
        fh: u64,
        offset: u64,
        size: u32,
        reply: ReadReply<'_>,
    ) -> Result<Replied>;

    /// Writes; through the page cache either everything or nothing.
    fn write(&self, ino: u64, fh: u64, offset: u64, data: &[u8], flags: WriteFlags) -> Result<u32> {
        Err(Errno::ROFS)
    }

    /// A descriptor of the open file was closed (only with `flush_on_close`).
    fn flush(&self, ino: u64, fh: u64) -> Result<()> {
        Ok(())
    }

    /// The last descriptor and mapping of the open file was closed.
    fn release(&self, ino: u64, fh: u64) {}

    /// Makes the file durable.
    fn fsync(&self, ino: u64, fh: u64, datasync: bool) -> Result<()>;

    /// Opens a directory.
    fn opendir(&self, caller: &Caller, ino: u64) -> Result<Opened> {
        Ok(Opened {
            fh: 0,
            keep_cache: false,
        })
    }

    /// Lists from `offset` (0: from the start) until the sink is full or the directory ends; `.`
    /// and `..` included.
    fn readdir(
        &self,
        caller: &Caller,
        ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()>;

    /// The last descriptor of the open directory was closed.
    fn releasedir(&self, ino: u64, fh: u64) {}

    /// Makes the directory durable.
    fn fsyncdir(&self, ino: u64, fh: u64, datasync: bool) -> Result<()> {
        self.fsync(ino, fh, datasync)
    }

    /// Space and limits of the file system of this inode.
    fn statfs(&self, ino: u64) -> Result<StatFs>;

    /// Sets an extended attribute. Names include their prefix (`user.`, `security.`,
    /// `system.posix_acl_access`…).
    fn setxattr(
        &self,
        caller: &Caller,
        ino: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        Err(Errno::NOTSUP)
    }

    /// Reads an extended attribute.
    fn getxattr(&self, caller: &Caller, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::NODATA)
    }

    /// The same without a copy of the value: this is the method that is called.
    fn getxattr_into(
        &self,
        caller: &Caller,
        ino: u64,
        name: &[u8],
        reply: ValueReply<'_>,
    ) -> Result<Replied> {
        self.getxattr(caller, ino, name)
            .map(|value| reply.value(&value))
    }

    /// Names of the extended attributes, each ended by a zero byte.
    fn listxattr(&self, caller: &Caller, ino: u64) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Removes an extended attribute.
    fn removexattr(&self, caller: &Caller, ino: u64, name: &[u8]) -> Result<()> {
        Err(Errno::NODATA)
    }

    /// `access(2)`; asked only without `default_permissions`.
    fn access(&self, caller: &Caller, ino: u64, mask: u32) -> Result<()> {
        Ok(())
    }

    /// Creates and opens a file. `EXIST` if the name exists. Without handles its `fh` is ignored,
    /// but not how it is opened.
    fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) -> Result<(Attr, Opened)> {
        Err(Errno::ROFS)
    }

    /// Creates and opens an unnamed file (`O_TMPFILE`). `NOTSUP` if that is not supported.
    fn tmpfile(&self, caller: &Caller, dir: u64, mode: u32, flags: u32) -> Result<(Attr, Opened)> {
        Err(Errno::NOTSUP)
    }

    /// Makes everything durable. The kernel sends this only to a privileged kind of session; after
    /// `NOSYS` not any more.
    fn syncfs(&self, ino: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// `fallocate(2)` with its mode bits.
    fn fallocate(
        &self,
        caller: &Caller,
        ino: u64,
        fh: u64,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        Err(Errno::NOTSUP)
    }

    /// Finds data or a hole; `NXIO` past the end.
    fn lseek(&self, ino: u64, fh: u64, offset: u64, whence: Whence) -> Result<u64>;

    /// Copies inside the session. After `NOTSUP` the kernel copies by reading and writing.
    fn copy_file_range(&self, caller: &Caller, range: &CopyRange) -> Result<u32> {
        Err(Errno::NOTSUP)
    }

    /// An ioctl whose number includes the sizes of its data.
    fn ioctl(
        &self,
        caller: &Caller,
        ino: u64,
        fh: u64,
        cmd: u32,
        data: &[u8],
        out_size: u32,
    ) -> Result<Vec<u8>> {
        Err(Errno::NOTTY)
    }
}

//! The seam: what a file system has to answer.
//!
//! Methods block; the session calls them from several threads at once. Every failure is an errno
//! that the calling process sees. A method that panics fails its own request with `EIO`, and the
//! session goes on.
//!
//! References. The kernel holds one reference on an inode for each successful
//! [`lookup`](Ops::lookup), [`mknod`](Ops::mknod), [`mkdir`](Ops::mkdir),
//! [`symlink`](Ops::symlink), [`link`](Ops::link) and [`create`](Ops::create). It holds another for
//! each entry that a [`readdir`](Ops::readdir) added with attributes, except `.` and `..`.
//! [`forget`](Ops::forget) gives them back. At unmount nothing is forgotten one by one.
//!
//! Privileges. The kernel leaves it to the server to drop set-id bits. Otherwise it asks for the
//! capabilities of a file before each write. They go on [`write`](Ops::write) and
//! [`setattr`](Ops::setattr) when their flag says so, and always on [`fallocate`](Ops::fallocate)
//! and [`copy_file_range`](Ops::copy_file_range) by anyone but root. It does not look for itself
//! afterwards. Whoever drops bits in anything but `setattr` says so with
//! [`Notifier::attributes_changed`] before it answers, or the kernel goes on honouring them.

#[cfg(doc)]
use crate::Notifier;
use crate::{Attr, Caller, SetAttr, StatFs};
use zuse_base::Errno;

type Result<T> = std::result::Result<T, Errno>;

/// Among the flags of [`Ops::open`]: the file is opened to be executed.
pub const OPEN_EXEC: u32 = 0x20;

/// How a file or directory was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The server's handle, given back with every request on the open file.
    pub fh: u64,
    /// Keep what the page cache holds. Without meaning for directories.
    pub keep_cache: bool,
}

impl Opened {
    /// A handle with cached pages: what an ordinary file wants.
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
    /// Fail with `EXIST` when the target is there.
    pub no_replace: bool,
    /// Swap the two.
    pub exchange: bool,
    /// Leave a whiteout (character device 0:0) behind.
    pub whiteout: bool,
}

/// What is special about a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// It comes from the page cache: the handle is that of some writer, the writer's identity is
    /// unknown.
    pub cached: bool,
    /// The kernel owns the file's times and will send them: they stay as they are.
    pub keep_times: bool,
    /// Drop set-id bits and file capabilities.
    pub kill_suidgid: bool,
    /// The file was opened with `O_SYNC` or `O_DSYNC`: be durable before answering.
    pub sync: bool,
}

/// Whether an extended attribute may or must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Make it or replace it.
    Any,
    /// `EXIST` when it is there.
    Create,
    /// `NODATA` when it is not.
    Replace,
}

/// What to seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file is one.
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

/// Takes the answer to a read while its bytes are borrowed, so that they go from the cache to the
/// kernel uncopied.
pub struct ReadReply<'a> {
    pub(crate) send: &'a mut dyn FnMut(&[&[u8]]),
}

impl ReadReply<'_> {
    /// Answers with the bytes of these slices in a row; fewer than asked means the end of the file.
    pub fn slices(self, slices: &[&[u8]]) -> Replied {
        (self.send)(slices);
        Replied(())
    }

    /// Answers with one slice.
    pub fn bytes(self, bytes: &[u8]) -> Replied {
        self.slices(&[bytes])
    }
}

/// Takes the value of an extended attribute while its bytes are borrowed, so that they go to the
/// kernel uncopied.
pub struct ValueReply<'a> {
    pub(crate) send: &'a mut dyn FnMut(&[u8]),
}

impl ValueReply<'_> {
    /// Answers with the whole value, however much the client has room for.
    pub fn value(self, value: &[u8]) -> Replied {
        (self.send)(value);
        Replied(())
    }
}

/// Whether the entries of a directory should bring their attributes, and so a reference each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// Names alone.
    No,
    /// It is not known whether the client looks at them: those that cost little, of some entries.
    Some,
    /// The client looks at them.
    All,
}

/// Takes the entries of a directory.
pub trait DirSink {
    /// Which entries should bring their attributes.
    fn attributes(&self) -> Attributes;

    /// Bytes that are left; an entry takes 24 or, where the kernel asked for attributes, 152, and
    /// its name, in whole multiples of 8.
    fn room(&self) -> usize;

    /// Adds an entry; `true` says it did *not* fit and the listing has to stop before it.
    ///
    /// `next` is the offset from which the listing goes on after this entry: any number but 0,
    /// stable while the directory is open. `mode` needs only type bits. An entry with
    /// attributes is referenced. One without (`.`, `..`, what is dear to open) is looked up
    /// by the kernel before it uses it. Its number must be none that is ever looked up under, since
    /// the kernel forgets a reference that was not given.
    #[must_use]
    fn add(&mut self, ino: u64, next: u64, mode: u32, name: &[u8], attr: Option<&Attr>) -> bool;
}

/// A file system. See the module's head for references and privileges.
#[allow(unused_variables, clippy::too_many_arguments)]
pub trait Ops: Send + Sync + 'static {
    /// Called once before anything else.
    fn init(&self) {}

    /// Called once after everything else.
    fn destroy(&self) {}

    /// A method panicked: what it was changing may be changed by half. Who asked got `EIO`.
    fn panicked(&self) {}

    /// Finds a name. `NOENT` is remembered by the kernel for `negative_ttl`, unless names may not
    /// be kept.
    fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<Attr>;

    /// Whether the kernel may keep names of a directory, also absent ones, without asking again.
    /// Not where one entry has several names. The kernel takes each for an entry of its own, and a
    /// change of one leaves the others as they were.
    fn may_keep_names(&self, dir: u64) -> bool {
        true
    }

    /// Whether a file may have pages in the kernel's cache that are newer than what the server has.
    /// Before holes are looked for in such a file the kernel is made to write them.
    fn may_lag_behind(&self, ino: u64) -> bool {
        false
    }

    /// The kernel gives `n` references back.
    fn forget(&self, ino: u64, n: u64);

    /// A worker has nothing to do at the moment: work that nobody waits for can be done, until
    /// `is_over` says that somebody asks for something. Called very often, so it has to be cheap
    /// when there is none.
    fn idle(&self, _is_over: &dyn Fn() -> bool) {}

    /// A request was answered, or references were taken back. Called for each, so it has to be
    /// cheap.
    fn answered(&self) {}

    /// Attributes of an inode.
    fn getattr(&self, ino: u64, fh: Option<u64>) -> Result<Attr>;

    /// Changes attributes and returns them all.
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

    /// Removes a name of a file. The inode lives on while the kernel holds references.
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

    /// Gives an inode another name.
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

    /// Writes; with the page cache in between all of it or nothing.
    fn write(&self, ino: u64, fh: u64, offset: u64, data: &[u8], flags: WriteFlags) -> Result<u32> {
        Err(Errno::ROFS)
    }

    /// A descriptor of the open file was closed (only with `flush_on_close`).
    fn flush(&self, ino: u64, fh: u64) -> Result<()> {
        Ok(())
    }

    /// The last descriptor and mapping of the open file is gone.
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

    /// The last descriptor of the open directory is gone.
    fn releasedir(&self, ino: u64, fh: u64) {}

    /// Makes the directory durable.
    fn fsyncdir(&self, ino: u64, fh: u64, datasync: bool) -> Result<()> {
        self.fsync(ino, fh, datasync)
    }

    /// Space and limits where this inode lives.
    fn statfs(&self, ino: u64) -> Result<StatFs>;

    /// Sets an extended attribute. Names bring their prefix (`user.`, `security.`,
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

    /// The same, answered with bytes that are at hand somewhere: this is what is called.
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

    /// Makes and opens a file. `EXIST` when the name is there. Without handles its `fh` does not
    /// count, but how it is opened does.
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

    /// Makes and opens a file without a name (`O_TMPFILE`). `NOTSUP` when that cannot be had.
    fn tmpfile(&self, caller: &Caller, dir: u64, mode: u32, flags: u32) -> Result<(Attr, Opened)> {
        Err(Errno::NOTSUP)
    }

    /// Makes everything durable. The kernel asks this of a privileged kind of session only; `NOSYS`
    /// ends the asking.
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

    /// Copies inside the session. `NOTSUP` makes the kernel copy by reading and writing.
    fn copy_file_range(&self, caller: &Caller, range: &CopyRange) -> Result<u32> {
        Err(Errno::NOTSUP)
    }

    /// An ioctl whose number tells the sizes of its data.
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

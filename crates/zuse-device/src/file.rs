//! A regular file or a block device of the host.
//!
//! # Which processes may open a device
//!
//! Two processes that write one pool destroy it. A process that reads while another one writes sees
//! blocks change. So an open takes a lock (`flock`, without waiting) according to its [`Access`]:
//!
//! | open \ held by | nobody | `Read` | `Write` |
//! |---|---|---|---|
//! | `Probe` (no lock) | yes | yes | yes |
//! | `Read` (shared) | yes | yes | held |
//! | `Write` (exclusive) | yes | held | held |
//!
//! "held" is a [`DeviceError`] with [`Cause::Held`]; the command line then forwards to the process
//! that holds the lock. `Probe` is for reading labels. It disturbs no other process, and what it
//! reads must be verified. Writing to a block device also uses `O_EXCL`. The kernel refuses that if
//! the disk is mounted or a member of a volume. A loop device and its backing file count as one
//! device (`twin`). The lock belongs to the open file. So a second open in the same process is
//! refused too, and a crash releases the lock. A host file system without locks refuses `Write`, so
//! `Read` needs no lock there.
//!
//! # Durability
//!
//! I/O goes through the page cache, except for large writes where the host supports direct I/O
//! (`around`). After a failed `fdatasync` the kernel may mark the lost pages clean, and the next
//! `fdatasync` would succeed. Therefore the device stays failed until
//! [`BlockDevice::accept_lost_writes`].
//!
//! The page cache keeps dirty pages for seconds, and a flush would wait for all of them. So
//! writeback is started after every [`BEGIN`] bytes, and a flush waits only for the last ones.
//! After 70 MB of directories a flush took 10 ms instead of 100 to 125.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use rustix::fs::{Advice, FallocateFlags};
use zuse_base::Errno;

#[cfg(target_os = "linux")]
use crate::block_device::PAGE;
use crate::block_device::{BlockDevice, check, total};
use crate::error::{Cause, DeviceError, Op};
#[cfg(target_os = "linux")]
use crate::fresh::Fresh;
use crate::partition::{self, Partition};
use crate::twin;

#[cfg(target_os = "linux")]
mod around;

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it for a moment, whatever lock another process holds.
    Probe,
    /// Read it; no other process may write meanwhile.
    Read,
    /// Read and write it; no other process may use it meanwhile.
    Write,
}

/// A file or disk of the host, locked as long as it is open.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: Arc<str>,
    access: Access,
    is_disk: bool,
    size: AtomicU64,
    /// Offset of this device in the file: a partition of an image.
    base: u64,
    sector_shift: u32,
    physical_shift: u32,
    /// Error number of the flush that failed; 0 for none.
    lost: AtomicI32,
    /// Bytes written to the page cache since writeback was last started.
    waiting: AtomicU64,
    /// The files below a loop device, locked as well.
    _beneath: Vec<File>,
    #[cfg(target_os = "linux")]
    around: around::Around,
}

impl FileDevice {
    /// Open an existing file or block device.
    ///
    /// # Errors
    /// [`Cause::Held`] when another open excludes this one, [`Cause::WrongKind`], or what the host
    /// says.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, DeviceError> {
        let path = path.as_ref();
        let Some((image, number)) = partition::split(path) else {
            return Self::open_whole(path, access);
        };
        // The lock is that of the whole image, because its partitions share one file.
        let mut device = Self::open_whole(&image, access)?;
        let found = device.partitions().into_iter().find(|p| p.number == number);
        let Some(part) = found else {
            let at = (0, 0);
            return Err(DeviceError::new(
                name(path),
                Op::Open,
                at,
                Errno::NOENT,
                Cause::WrongKind,
            ));
        };
        device.path = name(path);
        device.base = part.start;
        device.size = AtomicU64::new(part.size);
        Ok(device)
    }

    /// The partitions of an image. Empty for a disk, whose partitions are devices of the host.
    pub fn partitions(&self) -> Vec<Partition> {
        if self.is_disk || self.base != 0 {
            return Vec::new();
        }
        partition::partitions(self.size(), &|buf, at| self.read_at(buf, at).is_ok())
    }

    fn open_whole(path: &Path, access: Access) -> Result<Self, DeviceError> {
        let name = name(path);
        let host = |error: io::Error| DeviceError::host(name.clone(), Op::Open, (0, 0), &error);
        // Checked before the open: opening a pipe would wait, opening a tape would move it.
        let kind = std::fs::metadata(path).map_err(host)?.file_type();
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        // The kernel refuses a second exclusive open. Mounts and other ZFS modules hold one too.
        if kind.is_block_device() && access == Access::Write {
            options.custom_flags(libc::O_EXCL);
        } else if !kind.is_file() && !kind.is_block_device() {
            return Err(DeviceError::new(
                name,
                Op::Open,
                (0, 0),
                Errno::INVAL,
                Cause::WrongKind,
            ));
        }
        let file = options
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(n) if n == Errno::BUSY.0 => {
                    DeviceError::new(name.clone(), Op::Open, (0, 0), Errno::BUSY, Cause::Held)
                }
                _ => host(error),
            })?;
        Self::adopt(file, name, access)
    }

    /// Creates a sparse file of `size` zero bytes and opens it for writing.
    ///
    /// # Errors
    /// If something exists at `path`, or an error of the host.
    pub fn create(path: impl AsRef<Path>, size: u64) -> Result<Self, DeviceError> {
        let (path, name) = (path.as_ref(), name(path.as_ref()));
        let host = |error: io::Error| DeviceError::host(name.clone(), Op::Open, (0, 0), &error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(host)?;
        file.set_len(size)
            .and_then(|()| file.sync_all())
            .map_err(host)?;
        // The name must survive a power failure like the content. Not every host can sync a
        // directory.
        if let Some(parent) = path.parent() {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            let _ = File::open(parent).and_then(|dir| dir.sync_all());
        }
        Self::adopt(file, name, Access::Write)
    }

    fn adopt(mut file: File, path: Arc<str>, access: Access) -> Result<Self, DeviceError> {
        let held = || DeviceError::new(path.clone(), Op::Open, (0, 0), Errno::BUSY, Cause::Held);
        let beneath = match access {
            Access::Probe => Vec::new(),
            Access::Read | Access::Write => twin::beneath(&file),
        };
        // A loop device has a backing file with another name, which a second process may open.
        for file in std::iter::once(&file).chain(&beneath) {
            lock(file, access).map_err(|error| match error {
                TryLockError::WouldBlock => held(),
                TryLockError::Error(error) => {
                    DeviceError::host(path.clone(), Op::Open, (0, 0), &error)
                }
            })?;
        }
        let host = |error: io::Error| DeviceError::host(path.clone(), Op::Open, (0, 0), &error);
        let meta = file.metadata().map_err(host)?;
        if access == Access::Write && twin::is_used_above(&meta) {
            return Err(held());
        }
        let kind = meta.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(DeviceError::new(
                path,
                Op::Open,
                (0, 0),
                Errno::INVAL,
                Cause::WrongKind,
            ));
        }
        let is_disk = kind.is_block_device();
        // `seek` to the end gives the size of block devices and files alike.
        let size = file.seek(SeekFrom::End(0)).map_err(host)?;
        let (logical, physical) = match is_disk {
            true => sector_sizes(&file),
            false => (512, 512),
        };
        let sector_shift = logical.max(512).ilog2();
        let physical_shift = physical.max(512).ilog2().max(sector_shift);
        let (size, lost) = (AtomicU64::new(size), AtomicI32::new(0));
        Ok(Self {
            file,
            path,
            access,
            is_disk,
            size,
            base: 0,
            sector_shift,
            physical_shift,
            lost,
            waiting: AtomicU64::new(0),
            _beneath: beneath,
            #[cfg(target_os = "linux")]
            around: around::Around::new(access == Access::Write),
        })
    }

    /// Make a file longer or shorter. A block device only learns its new size.
    ///
    /// # Errors
    /// An error of the host; a read-only device is refused.
    pub fn resize(&self, size: u64) -> Result<(), DeviceError> {
        check(self, Op::Resize, 0, 0)?;
        // A partition is as long as the table of its image says.
        if self.base != 0 {
            return Ok(());
        }
        if !self.is_disk {
            self.file
                .set_len(size)
                .map_err(|e| self.failed(Op::Resize, 0, size, &e))?;
        }
        self.refresh_size().map(|_| ())
    }

    /// Asks the host for the size again: it may have grown.
    ///
    /// # Errors
    /// An error of the host.
    pub fn refresh_size(&self) -> Result<u64, DeviceError> {
        if self.base != 0 {
            return Ok(self.size());
        }
        let size = (&self.file)
            .seek(SeekFrom::End(0))
            .map_err(|e| self.failed(Op::Resize, 0, 0, &e))?;
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }

    /// Whether it is a block device, not a file.
    pub fn is_block_device(&self) -> bool {
        self.is_disk
    }

    /// What it was opened for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Writes all bytes. Returns how many of them went to the page cache.
    #[cfg(target_os = "linux")]
    fn write_whole(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        let around = self.around.write(&self.file, buf, at)?;
        if around.is_empty() {
            self.file.write_all_at(buf, at)?;
            return Ok(buf.len());
        }
        let (behind, end) = (&buf[around.end..], at + around.end as u64);
        self.file.write_all_at(&buf[..around.start], at)?;
        self.file.write_all_at(behind, end)?;
        Ok(buf.len() - around.len())
    }

    #[cfg(not(target_os = "linux"))]
    fn write_whole(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        self.file.write_all_at(buf, at)?;
        Ok(buf.len())
    }

    /// Counts bytes written to the page cache, and starts writeback after every [`BEGIN`].
    fn note_waiting(&self, bytes: u64) {
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        // Only the thread that crosses the mark starts it.
        if before < BEGIN && before + bytes >= BEGIN {
            self.waiting.store(0, Ordering::Relaxed);
            // The host knows which pages are dirty and skips the others.
            self.start_writeback(0, self.size());
        }
    }

    fn failed(&self, op: Op, offset: u64, len: u64, error: &io::Error) -> DeviceError {
        DeviceError::host(self.path.clone(), op, (offset, len), error)
    }
}

fn name(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

fn lock(file: &File, access: Access) -> Result<(), TryLockError> {
    match access {
        Access::Probe => Ok(()),
        Access::Write => file.try_lock(),
        Access::Read => match file.try_lock_shared() {
            // This host file system has no locks, so no process can open for writing either.
            Err(TryLockError::Error(e)) if lacks_support(&e) => Ok(()),
            other => other,
        },
    }
}

fn lacks_support(error: &io::Error) -> bool {
    let n = error.raw_os_error();
    [libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOTTY, libc::ENOLCK]
        .into_iter()
        .any(|code| n == Some(code))
}

/// This many dirty bytes in the page cache are worth a system call that starts their writeback.
const BEGIN: u64 = 4 << 20;

/// Buffers per call; the host takes 1024.
const BATCH: usize = 512;

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn look_again(&self) -> u64 {
        self.refresh_size().unwrap_or_else(|_| self.size())
    }

    fn sector_shift(&self) -> u32 {
        self.sector_shift
    }

    fn physical_shift(&self) -> u32 {
        self.physical_shift
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn read_only(&self) -> bool {
        self.access != Access::Write
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        check(self, Op::Read, offset, len)?;
        // Loops over short reads and EINTR. A file that was truncated meanwhile is an unexpected
        // end.
        self.file
            .read_exact_at(buf, self.base + offset)
            .map_err(|e| self.failed(Op::Read, offset, len, &e))
    }

    fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|b| b.len() as u64).sum();
        check(self, Op::Read, offset, len)?;
        let mut at = self.base + offset;
        for batch in bufs.chunks_mut(BATCH) {
            let done = loop {
                match rustix::io::preadv(&self.file, batch, at) {
                    Err(rustix::io::Errno::INTR) => {}
                    other => {
                        break other.map_err(|e| self.failed(Op::Read, offset, len, &e.into()))?;
                    }
                }
            };
            // A short read is rare: read the rest buffer by buffer.
            let mut skip = done;
            for buf in batch.iter_mut() {
                let have = skip.min(buf.len());
                skip -= have;
                if have < buf.len() {
                    let from = at + have as u64;
                    let rest = &mut buf[have..];
                    self.file
                        .read_exact_at(rest, from)
                        .map_err(|e| self.failed(Op::Read, offset, len, &e))?;
                }
                at += buf.len() as u64;
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        check(self, Op::Write, offset, len)?;
        let cached = self
            .write_whole(buf, self.base + offset)
            .map_err(|e| self.failed(Op::Write, offset, len, &e))?;
        self.note_waiting(cached as u64);
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let len = total(bufs);
        check(self, Op::Write, offset, len)?;
        let mut at = self.base + offset;
        for batch in bufs.chunks(BATCH) {
            let done = loop {
                match rustix::io::pwritev(&self.file, batch, at) {
                    Err(rustix::io::Errno::INTR) => {}
                    other => {
                        break other.map_err(|e| self.failed(Op::Write, offset, len, &e.into()))?;
                    }
                }
            };
            // A short write is rare: write the rest buffer by buffer.
            let mut skip = done;
            for buf in batch {
                let have = skip.min(buf.len());
                skip -= have;
                if have < buf.len() {
                    let from = at + have as u64;
                    self.file
                        .write_all_at(&buf[have..], from)
                        .map_err(|e| self.failed(Op::Write, offset, len, &e))?;
                }
                at += buf.len() as u64;
            }
        }
        self.note_waiting(len);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        check(self, Op::Flush, 0, 0)?;
        match self.lost.load(Ordering::Acquire) {
            0 => {}
            n => {
                return Err(DeviceError::new(
                    self.path.clone(),
                    Op::Flush,
                    (0, 0),
                    Errno(n),
                    Cause::LostWrites,
                ));
            }
        }
        // Before the sync, which covers all bytes counted so far.
        self.waiting.store(0, Ordering::Relaxed);
        self.file.sync_data().map_err(|e| {
            let error = self.failed(Op::Flush, 0, 0, &e);
            // From now on every flush fails: the host may have dropped pages that it could not
            // write.
            self.lost.store(error.errno.0, Ordering::Release);
            error
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError> {
        check(self, Op::Discard, offset, len)?;
        if len == 0 {
            return Ok(true);
        }
        let offset = self.base + offset;
        loop {
            match punch_hole(&self.file, offset, len) {
                Ok(()) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    let e = io::Error::from(e);
                    return if lacks_support(&e) {
                        Ok(false)
                    } else {
                        Err(self.failed(Op::Discard, offset, len, &e))
                    };
                }
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn bypasses_cache(&self) -> bool {
        self.base.is_multiple_of(PAGE as u64) && self.around.is_there(&self.file)
    }

    #[cfg(target_os = "linux")]
    fn start_writeback(&self, offset: u64, len: u64) {
        let offset = self.base.saturating_add(offset);
        use std::os::fd::AsRawFd;
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
            return;
        };
        if len == 0 {
            // To the host, 0 means "to the end of the file".
            return;
        }
        // SAFETY: the call takes no pointers; the descriptor is open as long as `self.file` lives.
        // Its result is ignored because it is a hint; `flush` returns the error.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                offset,
                len,
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
    }

    #[cfg(target_os = "linux")]
    fn will_read(&self, offset: u64, len: u64) {
        // To the host, no length means "to the end of the file".
        if let Some(len) = std::num::NonZeroU64::new(len) {
            let offset = self.base.saturating_add(offset);
            // Only a hint: the read returns the error.
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }

    #[cfg(target_os = "linux")]
    fn read_apart(&self, parts: &[Range<usize>], offset: u64) -> Option<Vec<Fresh>> {
        let len = parts.last()?.end as u64;
        check(self, Op::Read, offset, len).ok()?;
        self.around.read(&self.file, parts, self.base + offset)
    }

    fn accept_lost_writes(&self) {
        self.lost.store(0, Ordering::Release);
    }
}

/// Sizes of the logical and physical sectors of a disk.
#[cfg(target_os = "linux")]
fn sector_sizes(disk: &File) -> (u32, u32) {
    let logical = rustix::fs::ioctl_blksszget(disk).unwrap_or(512);
    (logical, rustix::fs::ioctl_blkpbszget(disk).unwrap_or(512))
}

/// Other systems have other calls for it. A write that is no multiple of larger sectors is an error
/// there.
#[cfg(not(target_os = "linux"))]
fn sector_sizes(_: &File) -> (u32, u32) {
    (512, 512)
}

/// Frees the space of a range, which then reads as zeros. On a block device the kernel turns this
/// into a discard or a zeroing command.
#[cfg(target_os = "linux")]
fn punch_hole(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset, len)
}

/// Other systems have other calls for it: nothing is discarded.
#[cfg(not(target_os = "linux"))]
fn punch_hole(_: &File, _: u64, _: u64) -> rustix::io::Result<()> {
    Err(rustix::io::Errno::OPNOTSUPP)
}

#[cfg(test)]
mod tests;

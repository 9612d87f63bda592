//! Large writes and long reads that bypass the host's page cache (`O_DIRECT`).
//!
//! A write through the page cache costs a copy, a page, and later the writeback by another thread.
//! That pays if the data is read or changed soon. It does not pay for large blocks that are written
//! once. A read costs as much again: 20 µs of CPU time for 64 KiB, against 2 µs with direct I/O.
//!
//! The page cache is bypassed
//! - for writes, if the host reports support (`statx` with `STATX_DIOALIGN`, Linux 6.1). Local file
//!   systems and disks do. Network file systems do not: there a direct write would wait for the
//!   server.
//! - for reads into their final memory, if the cache holds less than half of the range. The host
//!   must report that (`cachestat`, Linux 6.5).
//!
//! Everything else goes through the page cache.
//!
//! The memory for such reads begins at a page boundary, although the host would accept less. Four
//! concurrent reads of 704 KiB reached 3.6 GB/s that way, and 2.7 GB/s at other multiples of 512.
//!
//! The direct descriptor is a second one of the same file. It holds no lock: the first one's lock
//! covers both. The host keeps both ways coherent, page by page. So no page is ever written partly
//! direct and partly through the cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, StatxFlags};

use crate::block_device::{AROUND, PAGE};
use crate::fresh::{Fresh, read_parts};

/// `STATX_DIOALIGN`
const DIRECT_ALIGNMENT: StatxFlags = StatxFlags::from_bits_retain(0x2000);

#[derive(Debug)]
struct Direct {
    file: File,
    /// Alignment of memory addresses: one page, which is more than most hosts require.
    memory: usize,
    /// Alignment of offsets and lengths in the file.
    place: u64,
}

/// At least twice the read-ahead of a host for a sequential reader.
const BROUGHT: u64 = 16 << 20;

/// Size of a CPU cache line.
const LINE: usize = 64;

/// The system call number of `cachestat`, the same on every Linux that Rust's standard library
/// supports.
const CACHESTAT: libc::c_long = 451;

/// Direct I/O on a file; its support is checked on first use.
#[derive(Debug)]
pub(super) struct Around {
    direct: OnceLock<Option<Direct>>,
    writable: bool,
    /// The host refused after all.
    refused: AtomicBool,
}

impl Around {
    pub(super) fn new(writable: bool) -> Self {
        Self {
            direct: OnceLock::new(),
            writable,
            refused: AtomicBool::new(false),
        }
    }

    #[cfg(test)]
    pub(super) fn over(file: File) -> Self {
        let direct = Direct {
            file,
            memory: PAGE,
            place: PAGE as u64,
        };
        Self {
            direct: OnceLock::from(Some(direct)),
            writable: true,
            refused: AtomicBool::new(false),
        }
    }

    fn direct(&self, file: &File) -> Option<&Direct> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        self.direct
            .get_or_init(|| open(file, self.writable))
            .as_ref()
    }

    /// Whether direct I/O is possible.
    pub(super) fn is_there(&self, file: &File) -> bool {
        self.direct(file).is_some()
    }

    /// Writes the whole pages in the middle of `buf`. Returns the range of these bytes; empty if
    /// all must go through the cache.
    pub(super) fn write(&self, file: &File, buf: &[u8], at: u64) -> io::Result<Range<usize>> {
        let none = Ok(0..0);
        let page = PAGE as u64;
        // Direct I/O moves whole pages, so memory and offset must have the same place in a page.
        if buf.len() < AROUND
            || !(buf.as_ptr().addr() as u64)
                .wrapping_sub(at)
                .is_multiple_of(page)
        {
            return none;
        }
        let Some(direct) = self.direct(file) else {
            return none;
        };
        let from = (at.wrapping_neg() % page) as usize;
        let to = buf.len() - ((at + buf.len() as u64) % page) as usize;
        let mut done = from;
        while done < to {
            match direct.file.write_at(&buf[done..to], at + done as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    // The host reported support, but refuses. From now on everything goes through
                    // the cache.
                    self.refused.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => return Err(error),
                Ok(n) => {
                    done += n;
                    if n == 0 || !n.is_multiple_of(PAGE) {
                        break;
                    }
                }
            }
        }
        // A page that was written in part is written again.
        let done = from + (done - from) / PAGE * PAGE;
        Ok(from..done)
    }

    /// Reads consecutive ranges, counted from `at`, as [`crate::BlockDevice::read_apart`] says.
    pub(super) fn read(&self, file: &File, parts: &[Range<usize>], at: u64) -> Option<Vec<Fresh>> {
        if let Some(direct) = self.direct(file)
            && parts.iter().all(|part| {
                let ends = [part.start, part.end].map(|end| at.wrapping_add(end as u64));
                ends.iter().all(|end| end.is_multiple_of(direct.place))
            })
            && has_little(file, at, parts)
            && let Some(read) = read_parts(&direct.file, parts, at, direct.memory)
        {
            return Some(read);
        }
        read_parts(file, parts, at, LINE)
    }
}

/// How many pages of a file's range are in the host's cache; `None` if the host cannot report it
/// (before Linux 6.5).
pub(super) fn cached(file: &File, at: u64, len: u64) -> Option<u64> {
    counts(file, at, len).map(|counts| counts[0])
}

/// Pages of a file's range: in the host's cache, changed, being written, and two counts about what
/// was there.
pub(super) fn counts(file: &File, at: u64, len: u64) -> Option<[u64; 5]> {
    let range = [at, len];
    let mut counts = [0u64; 5];
    // SAFETY: both arrays have the length that the call expects, and live until it returns.
    let done = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0,
        )
    };
    (done == 0).then_some(counts)
}

/// Whether the host's cache holds less than half of the ranges, or hardly more than its read-ahead.
/// Without the second condition one read through the cache would make the host read ahead the next
/// ranges. Then those would be read through the cache too, and so on.
pub(super) fn has_little(file: &File, at: u64, parts: &[Range<usize>]) -> bool {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return false;
    };
    let at = at.saturating_add(first.start as u64);
    let less = |len: u64| cached(file, at, len).map(|pages| pages < len / PAGE as u64 / 2);
    match less(last.end.saturating_sub(first.start) as u64) {
        Some(false) => less(BROUGHT) == Some(true),
        Some(true) => true,
        None => false,
    }
}

fn open(file: &File, writable: bool) -> Option<Direct> {
    let said = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, DIRECT_ALIGNMENT).ok()?;
    let fits = |align: u32| align.is_power_of_two() && align as usize <= PAGE;
    if !fits(said.stx_dio_mem_align) || !fits(said.stx_dio_offset_align) {
        return None;
    }
    // Not by its name, which may belong to another file by now.
    let file = OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .ok()?;
    Some(Direct {
        file,
        memory: PAGE.max(said.stx_dio_mem_align as usize),
        place: said.stx_dio_offset_align.into(),
    })
}

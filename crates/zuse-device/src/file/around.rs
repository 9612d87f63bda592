//! Large writes around the host's cache (`O_DIRECT`).
//!
//! Through the cache each byte is copied, finds or takes a page, and is brought to the disk by another thread of the host, later. That
//! pays where it is read or changed soon, and not for large blocks that are written once. Where the host does not say that it can do
//! without (`statx`, Linux 6.1; local file systems and disks do), everything goes through the cache as before: over a network a
//! direct write would wait for the other side.
//!
//! The direct descriptor is a second one of the same file. It holds no lock; that of the first one stands for both. The host keeps
//! both ways in step, page by page: a page is never written partly directly.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, StatxFlags};

use crate::block_device::{AROUND, PAGE};

/// `STATX_DIOALIGN`
const DIRECT_ALIGNMENT: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// The way around the cache, looked for when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Around {
    direct: OnceLock<Option<File>>,
    /// The host refused after all.
    refused: AtomicBool,
}

impl Around {
    #[cfg(test)]
    pub(super) fn over(direct: File) -> Self {
        Self {
            direct: OnceLock::from(Some(direct)),
            refused: AtomicBool::new(false),
        }
    }

    fn direct(&self, file: &File) -> Option<&File> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        self.direct.get_or_init(|| open(file)).as_ref()
    }

    /// Whether there is one.
    pub(super) fn is_there(&self, file: &File) -> bool {
        self.direct(file).is_some()
    }

    /// Writes the whole pages of `buf` that lie in the middle. Gives which bytes these were; none if the way is through the cache.
    pub(super) fn write(
        &self,
        file: &File,
        buf: &[u8],
        at: u64,
    ) -> io::Result<std::ops::Range<usize>> {
        let none = Ok(0..0);
        let page = PAGE as u64;
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
            match direct.write_at(&buf[done..to], at + done as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
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
        // What a short write left of a page is written again.
        let done = from + (done - from) / PAGE * PAGE;
        Ok(from..done)
    }
}

fn open(file: &File) -> Option<File> {
    let said = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, DIRECT_ALIGNMENT).ok()?;
    let fits = |align: u32| align.is_power_of_two() && align as usize <= PAGE;
    if !fits(said.stx_dio_mem_align) || !fits(said.stx_dio_offset_align) {
        return None;
    }
    // Not by its name, under which another file may lie by now.
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .ok()
}

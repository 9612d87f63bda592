//! What every device can do.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use zuse_base::Errno;

use crate::error::{Cause, DeviceError, Op};
use crate::fresh::Fresh;

/// The smallest page size of the host's page cache.
pub const PAGE: usize = 4 << 10;
/// The shortest write that bypasses the page cache. A direct write waits for the disk, which only
/// pays for many bytes.
pub const AROUND: usize = 128 << 10;

/// A range of bytes that outlives the process.
///
/// All methods may be called from any thread at any time. Reads and writes that overlap in time and
/// place give any mix of the bytes. Neither is retried: what to do about an error is the vdev's
/// decision.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Bytes on the device.
    fn size(&self) -> u64;

    /// Asks for the size of the device again: it may have grown.
    fn look_again(&self) -> u64 {
        self.size()
    }

    /// Logarithm of the smallest unit that the device writes atomically.
    fn sector_shift(&self) -> u32;

    /// Logarithm of the unit that the device prefers. Never less than
    /// [`BlockDevice::sector_shift`].
    fn physical_shift(&self) -> u32 {
        self.sector_shift()
    }

    /// Where the device is, for messages.
    fn path(&self) -> &str;

    /// Whether writes, flushes and discards are refused.
    fn read_only(&self) -> bool;

    /// Fill `buf` from `offset` on.
    ///
    /// # Errors
    /// If not every byte could be read; `buf` then has undefined content.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError>;

    /// Fills the buffers, one after the other, from `offset` on.
    ///
    /// # Errors
    /// When not every byte could be read.
    fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<(), DeviceError> {
        let mut at = offset;
        for buf in bufs {
            self.read_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Write all of `buf` from `offset` on.
    ///
    /// # Errors
    /// If not every byte could be written; any part may have been.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError>;

    /// Writes the buffers, one after the other, from `offset` on.
    ///
    /// # Errors
    /// If not every byte could be written; any part may have been.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Makes every write durable that returned before this call began.
    ///
    /// # Errors
    /// If that is not certain. Anything written since the last successful flush may be lost, and a
    /// second flush proves nothing about it.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Frees `len` bytes of space. Their content is undefined after that. False: the device cannot.
    ///
    /// # Errors
    /// When the device can, but failed.
    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError>;

    /// Whether large writes and [scattered reads](BlockDevice::read_apart) bypass the host's page
    /// cache. A write does so if it has at least [`AROUND`] bytes. Its memory and its offset must
    /// also have the same alignment within a page ([`PAGE`]). The partial pages at its ends go
    /// through the cache.
    fn bypasses_cache(&self) -> bool {
        false
    }

    /// A hint that these bytes were written and will be flushed soon.
    fn start_writeback(&self, _offset: u64, _len: u64) {}

    /// A hint that these bytes will be read soon. A device that can starts reading and returns at
    /// once.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Reads consecutive ranges, counted from `offset`, each into its own memory. It is one
    /// operation with as few copies as possible. A device that
    /// [bypasses](BlockDevice::bypasses_cache) the page cache does so here, unless the bytes are in
    /// the cache. `None`: the device cannot, or it failed. The caller then uses
    /// [`BlockDevice::read_at`], which returns the error.
    fn read_apart(&self, _parts: &[Range<usize>], _offset: u64) -> Option<Vec<Fresh>> {
        None
    }

    /// Continues after a failed flush. The caller knows that writes may be lost, and has written
    /// them again or given them up.
    fn accept_lost_writes(&self) {}
}

/// Refuses an operation beyond the end of the device, or a change of a read-only one.
pub(crate) fn check(
    device: &dyn BlockDevice,
    op: Op,
    offset: u64,
    len: u64,
) -> Result<(), DeviceError> {
    if op != Op::Read && device.read_only() {
        return Err(DeviceError::new(
            device.path(),
            op,
            (offset, len),
            Errno::ROFS,
            Cause::ReadOnly,
        ));
    }
    match offset.checked_add(len) {
        Some(end) if end <= device.size() => Ok(()),
        _ => Err(DeviceError::new(
            device.path(),
            op,
            (offset, len),
            Errno::INVAL,
            Cause::OutOfRange,
        )),
    }
}

/// Bytes in all buffers together.
pub(crate) fn total(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter().map(|b| b.len() as u64).sum()
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    fn size(&self) -> u64 {
        (**self).size()
    }
    fn look_again(&self) -> u64 {
        (**self).look_again()
    }
    fn sector_shift(&self) -> u32 {
        (**self).sector_shift()
    }
    fn physical_shift(&self) -> u32 {
        (**self).physical_shift()
    }
    fn path(&self) -> &str {
        (**self).path()
    }
    fn read_only(&self) -> bool {
        (**self).read_only()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        (**self).read_at(buf, offset)
    }
    fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<(), DeviceError> {
        (**self).read_vectored_at(bufs, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        (**self).write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        (**self).write_vectored_at(bufs, offset)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        (**self).flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError> {
        (**self).discard(offset, len)
    }
    fn bypasses_cache(&self) -> bool {
        (**self).bypasses_cache()
    }
    fn start_writeback(&self, offset: u64, len: u64) {
        (**self).start_writeback(offset, len);
    }
    fn will_read(&self, offset: u64, len: u64) {
        (**self).will_read(offset, len);
    }
    fn read_apart(&self, parts: &[Range<usize>], offset: u64) -> Option<Vec<Fresh>> {
        (**self).read_apart(parts, offset)
    }
    fn accept_lost_writes(&self) {
        (**self).accept_lost_writes();
    }
}

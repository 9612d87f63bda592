//! What every device can do.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use zuse_base::Errno;

use crate::error::{Cause, DeviceError, Op};
use crate::fresh::Fresh;

/// A page of the host's cache, where it is smallest.
pub const PAGE: usize = 4 << 10;
/// Fewest bytes of a write around the host's cache: it waits for the disk, which pays for many.
pub const AROUND: usize = 128 << 10;

/// A row of bytes that outlives the process.
///
/// All methods may be called from any thread at any time. Reads and writes that overlap in time and
/// place give any mix of the bytes. Neither is retried: what to do about an error is the vdev's
/// decision.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Bytes on the device.
    fn size(&self) -> u64;

    /// Bytes on the device, asked for again: it may have grown.
    fn look_again(&self) -> u64 {
        self.size()
    }

    /// Logarithm of the smallest unit that the device writes whole or not at all.
    fn sector_shift(&self) -> u32;

    /// Logarithm of the unit that the device likes best. Never less than
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
    /// When not every byte could be read; `buf` then has any content.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError>;

    /// Fill the buffers, one after the other, from `offset` on.
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
    /// When not every byte could be written; any part may have been.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError>;

    /// Write the buffers, one after the other, from `offset` on.
    ///
    /// # Errors
    /// When not every byte could be written; any part may have been.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Make everything durable whose write returned before this call began.
    ///
    /// # Errors
    /// When that is not certain: anything written since the last successful flush may be lost, and
    /// a second flush proves nothing about it.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Give `len` bytes of space back. Their content is undefined after that. False: the device
    /// cannot.
    ///
    /// # Errors
    /// When the device can, but failed.
    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError>;

    /// Whether large writes, and reads [apart](BlockDevice::read_apart), go around the host's
    /// cache, straight to and from the disk. Writes do that are of at least [`AROUND`] bytes and
    /// lie in memory as in the device, by pages of [`PAGE`] bytes. What is not a whole page at both
    /// ends of one goes through the cache all the same.
    fn goes_around(&self) -> bool {
        false
    }

    /// A hint that these bytes were written and will be flushed soon.
    fn start_writeback(&self, _offset: u64, _len: u64) {}

    /// A hint that these bytes will be read soon: a device that can begins with it and returns at
    /// once.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Reads ranges that follow one another, counted from `offset`, each into memory of its own. It
    /// is one operation with as few copies as can be. A device that [goes
    /// around](BlockDevice::goes_around) the host's cache does so, unless the bytes are in it.
    /// `None`: the device cannot, or could not; who needs the bytes reads them with
    /// [`BlockDevice::read_at`], and learns what is wrong.
    fn read_apart(&self, _parts: &[Range<usize>], _offset: u64) -> Option<Vec<Fresh>> {
        None
    }

    /// Go on after a failed flush: the caller knows that writes may be lost, and has written
    /// them again or given them up.
    fn accept_lost_writes(&self) {}
}

/// Refuse an operation that leaves the device, or changes one that is read-only.
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
    fn goes_around(&self) -> bool {
        (**self).goes_around()
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

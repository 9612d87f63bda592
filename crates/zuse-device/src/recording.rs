//! A device that records its operations, so that a test can check "this read touches the disk
//! once".

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::Counter;

use crate::block_device::{BlockDevice, total};
use crate::error::{DeviceError, Op};
use crate::fresh::Fresh;

/// One operation of a device, successful or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub len: u64,
}

/// Counts of each kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Reads; a vectored one counts once.
    pub reads: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Writes; a vectored one counts once.
    pub writes: u64,
    /// Bytes in writes.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes in discards.
    pub discarded_bytes: u64,
    /// Prefetch hints; they are not listed.
    pub prefetches: u64,
    /// Bytes in such hints.
    pub prefetched_bytes: u64,
}

/// A wrapper that counts operations and, while recording, lists them.
#[derive(Debug)]
pub struct RecordingDevice {
    inner: Arc<dyn BlockDevice>,
    recording: AtomicBool,
    log: Mutex<Vec<Operation>>,
    /// The first number of a pair counts operations, the second bytes.
    reads: (Counter, Counter),
    writes: (Counter, Counter),
    discards: (Counter, Counter),
    prefetches: (Counter, Counter),
    flushes: Counter,
}

impl RecordingDevice {
    /// The most operations that are listed; later ones are only counted.
    pub const LOG_LIMIT: usize = 1 << 20;

    /// Records the operations on `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            recording: AtomicBool::new(true),
            log: Mutex::default(),
            reads: Default::default(),
            writes: Default::default(),
            discards: Default::default(),
            prefetches: Default::default(),
            flushes: Counter::default(),
        }
    }

    /// Lists operations from here on, or only counts them.
    pub fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    /// The operations listed since the last call.
    pub fn take(&self) -> Vec<Operation> {
        std::mem::take(&mut *self.log())
    }

    /// The operations listed so far.
    pub fn operations(&self) -> Vec<Operation> {
        self.log().clone()
    }

    /// The counts so far.
    pub fn counts(&self) -> OperationCounts {
        OperationCounts {
            reads: self.reads.0.get(),
            read_bytes: self.reads.1.get(),
            writes: self.writes.0.get(),
            written_bytes: self.writes.1.get(),
            flushes: self.flushes.get(),
            discards: self.discards.0.get(),
            discarded_bytes: self.discards.1.get(),
            prefetches: self.prefetches.0.get(),
            prefetched_bytes: self.prefetches.1.get(),
        }
    }

    /// Start over: no list, all counts zero.
    pub fn reset(&self) {
        self.log().clear();
        for counter in [&self.reads, &self.writes, &self.discards, &self.prefetches]
            .into_iter()
            .flat_map(|(a, b)| [a, b])
        {
            counter.reset(0);
        }
        self.flushes.reset(0);
    }

    fn log(&self) -> MutexGuard<'_, Vec<Operation>> {
        self.log.lock()
    }

    fn note(&self, op: Op, offset: u64, len: u64) {
        let count = |(operations, bytes): &(Counter, Counter)| {
            operations.bump();
            bytes.add(len);
        };
        match op {
            Op::Read => count(&self.reads),
            Op::Write => count(&self.writes),
            Op::Discard => count(&self.discards),
            Op::Flush => self.flushes.bump(),
            Op::Open | Op::Resize => {}
        }
        if self.recording.load(Ordering::Relaxed) {
            let mut log = self.log();
            if log.len() < Self::LOG_LIMIT {
                log.push(Operation { op, offset, len });
            }
        }
    }
}

impl BlockDevice for RecordingDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_shift(&self) -> u32 {
        self.inner.sector_shift()
    }

    fn physical_shift(&self) -> u32 {
        self.inner.physical_shift()
    }

    fn path(&self) -> &str {
        self.inner.path()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.note(Op::Read, offset, buf.len() as u64);
        self.inner.read_at(buf, offset)
    }

    fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<(), DeviceError> {
        self.note(Op::Read, offset, bufs.iter().map(|b| b.len() as u64).sum());
        self.inner.read_vectored_at(bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.note(Op::Write, offset, buf.len() as u64);
        self.inner.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        self.note(Op::Write, offset, total(bufs));
        self.inner.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.note(Op::Flush, 0, 0);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError> {
        self.note(Op::Discard, offset, len);
        self.inner.discard(offset, len)
    }

    fn bypasses_cache(&self) -> bool {
        self.inner.bypasses_cache()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.prefetches.0.bump();
        self.prefetches.1.add(len);
        self.inner.will_read(offset, len);
    }

    fn read_apart(&self, parts: &[Range<usize>], offset: u64) -> Option<Vec<Fresh>> {
        let read = self.inner.read_apart(parts, offset)?;
        if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
            let (at, len) = (offset + first.start as u64, last.end - first.start);
            self.note(Op::Read, at, len as u64);
        }
        Some(read)
    }

    fn accept_lost_writes(&self) {
        self.inner.accept_lost_writes();
    }
}

#[cfg(test)]
mod tests;

//! A device in memory, for tests.
//!
//! Bytes are in chunks of 64 KiB. A chunk is allocated when bytes other than zero are written
//! there. The chunks are spread over shards, so that threads rarely contend. A snapshot shares the
//! chunks, and a chunk is copied when it is written again. So a snapshot costs a pointer per chunk.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zuse_base::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::block_device::{BlockDevice, check};
use crate::error::{DeviceError, Op};
use crate::fresh::Fresh;

const CHUNK: u64 = 64 * 1024;
const SHARDS: usize = 16;

type Chunks = HashMap<u64, Arc<[u8]>>;

/// Sparse bytes in memory. Flush does nothing: every write is "durable" at once; see
/// [`SimDisk`](crate::SimDisk) for a disk that loses writes.
pub struct MemDevice {
    path: String,
    size: u64,
    sector_shift: u32,
    read_only: AtomicBool,
    shards: [RwLock<Chunks>; SHARDS],
}

/// The content of a [`MemDevice`] at some moment.
#[derive(Clone)]
pub struct MemImage {
    size: u64,
    sector_shift: u32,
    chunks: Chunks,
}

impl MemDevice {
    /// `size` zero bytes in sectors of 512.
    pub fn new(path: impl Into<String>, size: u64) -> Self {
        Self::with_sector_shift(path, size, 9)
    }

    /// `size` zero bytes in sectors of `2^sector_shift`.
    pub fn with_sector_shift(path: impl Into<String>, size: u64, sector_shift: u32) -> Self {
        Self {
            path: path.into(),
            size,
            sector_shift,
            read_only: AtomicBool::new(false),
            shards: std::array::from_fn(|_| RwLock::default()),
        }
    }

    /// A device with the content of a snapshot.
    pub fn from_image(path: impl Into<String>, image: &MemImage) -> Self {
        let device = Self::with_sector_shift(path, image.size, image.sector_shift);
        device.restore(image);
        device
    }

    /// The content now. A concurrent write may be included in part, by whole chunks.
    pub fn snapshot(&self) -> MemImage {
        let guards: Vec<_> = self.shards.iter().map(read).collect();
        let chunks = guards
            .iter()
            .flat_map(|g| g.iter().map(|(&n, chunk)| (n, chunk.clone())))
            .collect();
        MemImage {
            size: self.size,
            sector_shift: self.sector_shift,
            chunks,
        }
    }

    /// Sets the content back to a snapshot. What the image has beyond this device's size is left
    /// out.
    pub fn restore(&self, image: &MemImage) {
        let mut guards: Vec<_> = self.shards.iter().map(write).collect();
        guards.iter_mut().for_each(|g| g.clear());
        for (&n, chunk) in image.chunks.iter().filter(|(n, _)| **n * CHUNK < self.size) {
            guards[shard(n)].insert(n, chunk.clone());
        }
    }

    /// Refuses (or allows) writes from here on.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Bytes of memory in use for content.
    pub fn allocated(&self) -> u64 {
        self.shards
            .iter()
            .map(|s| read(s).len() as u64 * CHUNK)
            .sum()
    }

    fn put(&self, n: u64, within: usize, bytes: &[u8]) {
        let mut chunks = write(&self.shards[shard(n)]);
        if let Some(chunk) = chunks.get_mut(&n) {
            Arc::make_mut(chunk)[within..within + bytes.len()].copy_from_slice(bytes);
        } else if bytes.iter().any(|&b| b != 0) {
            let mut chunk = vec![0; CHUNK as usize];
            chunk[within..within + bytes.len()].copy_from_slice(bytes);
            chunks.insert(n, chunk.into());
        }
    }

    /// Sets `len` bytes to zero. Whole chunks are dropped.
    pub(crate) fn zero(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size);
        for shard in &self.shards {
            write(shard).retain(|&n, chunk| {
                let (start, stop) = (offset.max(n * CHUNK), end.min((n + 1) * CHUNK));
                if start >= stop {
                    return true;
                }
                if stop - start == CHUNK {
                    return false;
                }
                Arc::make_mut(chunk)[(start % CHUNK) as usize..][..(stop - start) as usize].fill(0);
                true
            });
        }
    }
}

impl BlockDevice for MemDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_shift(&self) -> u32 {
        self.sector_shift
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    fn read_apart(&self, parts: &[Range<usize>], offset: u64) -> Option<Vec<Fresh>> {
        let read = |part: &Range<usize>| {
            let mut bytes = vec![0; part.len()];
            let at = offset.checked_add(part.start as u64)?;
            self.read_at(&mut bytes, at).ok()?;
            Some(Fresh::from(bytes))
        };
        parts.iter().map(read).collect()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        check(self, Op::Read, offset, buf.len() as u64)?;
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let (n, within, len) = piece(at, rest.len());
            let (part, behind) = rest.split_at_mut(len);
            match read(&self.shards[shard(n)]).get(&n) {
                Some(chunk) => part.copy_from_slice(&chunk[within..within + len]),
                None => part.fill(0),
            }
            rest = behind;
            at += len as u64;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        check(self, Op::Write, offset, buf.len() as u64)?;
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let (n, within, len) = piece(at, rest.len());
            self.put(n, within, &rest[..len]);
            rest = &rest[len..];
            at += len as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        check(self, Op::Flush, 0, 0)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError> {
        check(self, Op::Discard, offset, len)?;
        self.zero(offset, len);
        Ok(true)
    }
}

/// The chunk of offset `at`, the offset in it, and how much of `len` it contains.
fn piece(at: u64, len: usize) -> (u64, usize, usize) {
    let within = (at % CHUNK) as usize;
    (at / CHUNK, within, len.min(CHUNK as usize - within))
}

fn shard(n: u64) -> usize {
    (n % SHARDS as u64) as usize
}

fn read(shard: &RwLock<Chunks>) -> RwLockReadGuard<'_, Chunks> {
    shard.read()
}

fn write(shard: &RwLock<Chunks>) -> RwLockWriteGuard<'_, Chunks> {
    shard.write()
}

impl fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MemDevice({}, {} bytes, {} in use)",
            self.path,
            self.size,
            self.allocated()
        )
    }
}

impl fmt::Debug for MemImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MemImage({} bytes, {} chunks)",
            self.size,
            self.chunks.len()
        )
    }
}

#[cfg(test)]
mod tests;

//! Byte-range access to an object: reads without a copy of clean blocks, writes, holes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zuse_base::{Errno, Error, Result};
use zuse_format::BlockPointer;
use zuse_format::block_pointer::BP_SIZE;
use zuse_io::Block;

use super::Dnode;
use super::blocks::{Found, shifted};
use crate::dirty::{Content, DirtyBlock, Early, Synced};
use crate::tx::Tx;

/// Bytes that are prefetched for a sequential reader.
const READ_AHEAD: u64 = 4 << 20;

/// Bytes that one prefetch job reads.
const PREFETCH_JOB: u64 = 128 << 10;

/// Where a sequential reader is expected next, and how far blocks were prefetched. In blocks.
#[derive(Default)]
pub(super) struct Stream {
    next: AtomicU64,
    ahead: AtomicU64,
}

/// A part of an object's bytes: shared with the cache if it is clean, zeros for a hole.
#[derive(Clone)]
pub enum SharedSlice {
    /// A part of a cached block.
    Block(Arc<Block>, Range<usize>),
    /// Bytes copied out of a dirty block.
    Copy(Vec<u8>),
    /// That many zero bytes.
    Zeros(usize),
}

impl SharedSlice {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        match self {
            Self::Block(_, range) => range.len(),
            Self::Copy(bytes) => bytes.len(),
            Self::Zeros(n) => *n,
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies it to the start of `out`, which is long enough.
    pub fn copy_to(&self, out: &mut [u8]) {
        match self {
            Self::Block(block, range) => {
                out[..range.len()].copy_from_slice(&block.bytes()[range.clone()])
            }
            Self::Copy(bytes) => out[..bytes.len()].copy_from_slice(bytes),
            Self::Zeros(n) => out[..*n].fill(0),
        }
    }
}

impl Dnode {
    /// Passes the bytes of a range to `sink`, in order, block by block. Bytes after the last block
    /// are zeros.
    ///
    /// # Errors
    /// A block cannot be read; the bytes passed before are valid.
    pub fn read_slices(
        &self,
        offset: u64,
        len: u64,
        sink: &mut dyn FnMut(SharedSlice),
    ) -> Result<()> {
        let mut at = offset;
        let end = offset
            .checked_add(len)
            .ok_or_else(|| Error::refused(Errno::INVAL, "the range is too large"))?;
        let (size, last) = self
            .with_head(|h| (u64::from(h.block_size), h.max_block))
            .unwrap_or((1, 0));
        if last > 0 && len > 0 {
            self.read_ahead(offset / size, end.div_ceil(size), size, last);
        }
        while at < end {
            let (blkid, size, found) = {
                let state = self.read_state();
                let Some(head) = state.head() else {
                    return Err(Error::refused(Errno::NOENT, "the object is free"));
                };
                let size = u64::from(head.block_size);
                let blkid = at / size;
                if blkid > head.max_block {
                    (blkid, size, Found::Hole)
                } else {
                    (blkid, size, state.find(blkid))
                }
            };
            let from = (at - blkid * size) as usize;
            let take = (size - from as u64).min(end - at) as usize;
            let slice = match found {
                Found::Hole => {
                    self.check_received(blkid, size as u32)?;
                    SharedSlice::Zeros(take)
                }
                Found::Dirty(block) => self.slice_of(&block, blkid, from, take)?,
                Found::Tree(tree) => match self.read_tree(&tree, blkid) {
                    Ok(None) => SharedSlice::Zeros(take),
                    Ok(Some(block)) if block.bytes().len() >= from + take => {
                        SharedSlice::Block(block, from..from + take)
                    }
                    Ok(Some(block)) => SharedSlice::Copy(padded(block.bytes(), from, take)),
                    Err(e) if self.is_stale(&tree, &e) => continue,
                    Err(e) => return Err(e),
                },
            };
            sink(slice);
            at += take as u64;
        }
        Ok(())
    }

    /// A slice of a block that a txg has in memory.
    fn slice_of(
        &self,
        block: &DirtyBlock,
        blkid: u64,
        from: usize,
        take: usize,
    ) -> Result<SharedSlice> {
        let content = block.content.read();
        let slice = match &*content {
            Content::Dirty { bytes, .. } => SharedSlice::Copy(padded(bytes, from, take)),
            Content::Clean(block) | Content::Early(Early { block, .. })
                if block.bytes().len() >= from + take =>
            {
                SharedSlice::Block(block.clone(), from..from + take)
            }
            Content::Clean(block) | Content::Early(Early { block, .. }) => {
                SharedSlice::Copy(padded(block.bytes(), from, take))
            }
            Content::Stored(stored) => SharedSlice::Copy(padded(&stored.decode()?, from, take)),
            Content::Cloned(reference) => {
                let bp = *reference.pointer();
                // Not held during the read, which may wait for a device.
                drop(content);
                let block = self.read_pointer(blkid, &bp)?;
                SharedSlice::Copy(padded(block.bytes(), from, take))
            }
        };
        Ok(slice)
    }

    /// Fills `buf` from a byte offset. Bytes after the last block are zeros.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        let len = buf.len() as u64;
        self.read_slices(offset, len, &mut |slice| {
            slice.copy_to(&mut buf[done..]);
            done += slice.len();
        })
    }

    /// Writes bytes at an offset. Whole blocks are not read first.
    ///
    /// # Errors
    /// A partly covered block cannot be read; the object is free.
    pub fn write_at(&self, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        let size = self.block_size() as usize;
        if size == 0 {
            return Err(Error::refused(Errno::NOENT, "the object is free"));
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let blkid = at / size as u64;
            let from = (at % size as u64) as usize;
            let take = (size - from).min(rest.len());
            let (now, later) = rest.split_at(take);
            if take == size {
                self.write_block(tx, blkid, now.to_vec())?;
            } else {
                self.edit_block(tx, blkid, |mut b| {
                    // The index of a ZAP block would not fit the new bytes.
                    b.drop_index();
                    b.bytes_mut()[from..from + take].copy_from_slice(now);
                })?;
            }
            at += take as u64;
            rest = later;
        }
        Ok(())
    }

    /// Zeroes a byte range: whole blocks become holes, partly covered ones are rewritten.
    ///
    /// # Errors
    /// A partly covered block cannot be read.
    pub fn free_range(&self, tx: &Tx, offset: u64, len: u64) -> Result<()> {
        let size = u64::from(self.block_size());
        if len == 0 || size == 0 {
            return Ok(());
        }
        let end = offset.saturating_add(len);
        let limit = (self.max_block().saturating_add(1)).saturating_mul(size);
        let first = offset.div_ceil(size);
        // Up to the end the highest block id falls, too.
        let whole_end = if end >= limit { u64::MAX } else { end / size };
        if whole_end > first {
            self.free_blocks(
                tx,
                first,
                if whole_end == u64::MAX {
                    u64::MAX
                } else {
                    whole_end - first
                },
            )?;
        }
        let head_block = offset / size;
        if !offset.is_multiple_of(size) && offset < limit {
            let to = end.min((head_block + 1) * size);
            self.zero_part(tx, head_block, offset % size, to - head_block * size)?;
        }
        let tail_block = end / size;
        if end < limit
            && !end.is_multiple_of(size)
            && (tail_block != head_block || offset.is_multiple_of(size))
        {
            self.zero_part(tx, tail_block, 0, end % size)?;
        }
        Ok(())
    }

    fn zero_part(&self, tx: &Tx, blkid: u64, from: u64, to: u64) -> Result<()> {
        let hole = self.with_block(blkid, |b| {
            b.bytes()
                .get(from as usize..to as usize)
                .is_none_or(zuse_codec::is_zero)
        })?;
        // Zeros already: nothing gets dirty, and a hole stays one.
        if hole {
            return Ok(());
        }
        self.edit_block(tx, blkid, |mut b| {
            b.drop_index();
            if let Some(part) = b.bytes_mut().get_mut(from as usize..to as usize) {
                part.fill(0);
            }
        })
    }

    /// The next offset at or after `offset` that is data (or, with `hole`, a hole); `None` if there
    /// is none up to the last block. Block granularity; after the last block everything is a hole.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        let size = u64::from(self.block_size()).max(1);
        let last = self.max_block();
        let mut blkid = offset / size;
        while blkid <= last {
            let found = self.read_state().find(blkid);
            let (is_hole, span) = match found {
                // Data that the stream did not contain; a read reports that it is missing.
                _ if !self.is_received(blkid, size as u32) => (false, 1),
                Found::Dirty(_) => (false, 1),
                Found::Hole => (true, 1),
                Found::Tree(tree) => match self.tree_extent(&tree, blkid) {
                    Ok(extent) => extent,
                    Err(e) if self.is_stale(&tree, &e) => continue,
                    Err(e) => return Err(e),
                },
            };
            if is_hole == hole {
                return Ok(Some((blkid * size).max(offset)));
            }
            // A span of the tree does not cover newer versions inside it. So the jump goes only as
            // far as the next dirty block.
            blkid = self.next_stop(blkid, span);
        }
        let behind = ((last + 1) * size).max(offset);
        if !self.is_received(behind / size, size as u32) {
            // Missing data must not be taken for a hole either.
            return Ok((!hole).then_some(behind));
        }
        Ok(hole.then_some(behind))
    }

    /// The end of a run of `span` blocks from `blkid`, cut where a dirty block or freed range
    /// begins.
    fn next_stop(&self, blkid: u64, span: u64) -> u64 {
        let end = blkid.saturating_add(span.max(1));
        let state = self.read_state();
        let mut stop = end;
        for d in &state.dirty {
            if let Some(id) = d.blocks.first_in(blkid + 1, end) {
                stop = stop.min(id);
            }
            let window = zuse_base::range_tree::Span::between(blkid + 1, end);
            if let Some(span) = d.freed.overlapping(window).next() {
                stop = stop.min(span.start.max(blkid + 1));
            }
        }
        stop
    }

    /// Whether a block of a tree is a hole, and for how many blocks the same holds.
    fn tree_extent(&self, tree: &Synced, blkid: u64) -> Result<(bool, u64)> {
        let shift = tree.fanout_shift();
        let mut level = tree.levels - 1;
        let top = shifted(blkid, shift * u32::from(level));
        let Some(mut bp) = tree.root(top as usize).copied() else {
            return Ok((true, u64::MAX - blkid));
        };
        loop {
            if bp.is_hole() {
                let span = 1u64
                    .checked_shl(shift * u32::from(level))
                    .unwrap_or(u64::MAX);
                return Ok((true, span - (blkid & (span - 1)).min(span - 1)));
            }
            if level == 0 {
                return Ok((false, 1));
            }
            let place = super::blocks::BlockPlace {
                dnode: self,
                level,
                blkid: shifted(blkid, shift * u32::from(level)),
            };
            let block = place.read(&bp, true)?;
            level -= 1;
            let child = shifted(blkid, shift * u32::from(level)) & ((1 << shift) - 1);
            bp = BlockPointer::at(block.bytes(), child as usize * BP_SIZE).ok_or_else(|| {
                Error::truncated(place.to_string(), "an indirect block is too short")
            })?;
        }
    }

    /// Prefetches blocks; returns at once.
    pub fn prefetch(&self, first: u64, count: u64) {
        let size = u64::from(self.block_size()).max(1);
        let end = first
            .saturating_add(count)
            .min(self.max_block().saturating_add(1));
        let batch = (PREFETCH_JOB / size).max(1);
        let Some(me) = self.me.upgrade() else { return };
        let mut at = first;
        while at < end {
            let (from, to) = (at, (at + batch).min(end));
            at = to;
            let me = me.clone();
            let job = Box::new(move || {
                for blkid in from..to {
                    let found = me.read_state().find(blkid);
                    if let Found::Tree(tree) = found {
                        // Only a hint: the reader that needs the block gets its error.
                        let _ = me.read_tree(&tree, blkid);
                    }
                }
            });
            // The queue is full: prefetching must not slow the readers down.
            if self.core.work.try_submit(job).is_err() {
                return;
            }
        }
    }

    /// Prefetches blocks, given in ascending order; returns at once.
    pub(crate) fn prefetch_these(&self, blocks: &[u64]) {
        let size = u64::from(self.block_size()).max(1);
        let batch = usize::try_from((PREFETCH_JOB / size).max(1)).unwrap_or(1);
        let Some(me) = self.me.upgrade() else { return };
        for some in blocks.chunks(batch) {
            let (me, some) = (me.clone(), some.to_vec());
            let job = Box::new(move || {
                for blkid in some {
                    let found = me.read_state().find(blkid);
                    if let Found::Tree(tree) = found {
                        let _ = me.read_tree(&tree, blkid);
                    }
                }
            });
            if self.core.work.try_submit(job).is_err() {
                return;
            }
        }
    }

    /// Prefetches for a sequential reader; called with the blocks that it reads now.
    ///
    /// With several threads, requests of one reader may arrive out of order. So it is enough to be
    /// close to the expected block. For objects of one block this costs next to nothing.
    fn read_ahead(&self, first: u64, end: u64, size: u64, last: u64) {
        let window = (READ_AHEAD / size).max(2);
        let expected = self.stream.next.swap(end, Relaxed);
        // Another place: nothing is prefetched before the reader continues there.
        if first.abs_diff(expected) > window {
            self.stream.ahead.store(end, Relaxed);
            return;
        }
        let ahead = self.stream.ahead.load(Relaxed).clamp(end, end + 2 * window);
        let want = (end + window).min(last + 1);
        // Half a window at a time, not block by block.
        if want > ahead && (want - ahead >= window / 2 || want == last + 1) {
            self.stream.ahead.store(want, Relaxed);
            self.prefetch(ahead, want - ahead);
        }
    }
}

fn padded(bytes: &[u8], from: usize, take: usize) -> Vec<u8> {
    let mut out = bytes
        .get(from.min(bytes.len())..(from + take).min(bytes.len()))
        .unwrap_or(&[])
        .to_vec();
    out.resize(take, 0);
    out
}

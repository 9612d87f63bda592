//! Reading many blocks once, for sends. Blocks in the cache are used, and no block is added to the
//! cache.
//!
//! ```text
//!   pointers in stream order ─► runs of neighbours ─► one device read each ─► every block's checksum ─► slices
//! ```
//! If not all bytes of a run are good, its blocks are read one by one, with the other copies and
//! healing.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::{Error, Result};
use zuse_codec::{ChecksumKind, Compression, verify, verify_truncated};
use zuse_format::{BlockPointer, BpKind, BpLimits, Protection};
use zuse_vdev::{ReadOutcome, VdevKind};

use crate::cache::Key;
use crate::crypt::{cache_key, unprotected};
use crate::gang::is_truncated;
use crate::pipeline::address_of;
use crate::{Block, DatasetKey, Pipeline};

/// Gap between two blocks, in bytes, that is read and dropped rather than splitting the read.
const GAP: u64 = 16 << 10;
/// Largest device read of a run.
const RUN: u64 = 1 << 20;

/// Buffers that are kept for later runs.
const SPARE: usize = 8;

/// Buffers of finished runs, kept for later ones. A fresh buffer would cost page faults, and be
/// cleared twice.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock()
    }

    /// A buffer with undefined content.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.buffers().pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&self, served: Vec<Vec<u8>>) {
        let mut kept = self.buffers();
        let room = SPARE - kept.len().min(SPARE);
        let large = served.into_iter().filter(|b| b.len() as u64 > RUN / 2);
        kept.extend(large.take(room));
    }
}

/// Stored bytes of several blocks, in the buffers they were read into.
#[derive(Default)]
pub struct StoredRun {
    buffers: Vec<Vec<u8>>,
    parts: Vec<(usize, Range<usize>)>,
    spare: Option<Arc<Spare>>,
}

impl Drop for StoredRun {
    fn drop(&mut self) {
        if let Some(spare) = &self.spare {
            spare.give_back(std::mem::take(&mut self.buffers));
        }
    }
}

impl StoredRun {
    /// The stored bytes of a block, by its index in the request.
    pub fn get(&self, index: usize) -> &[u8] {
        self.parts
            .get(index)
            .and_then(|(buffer, range)| self.buffers.get(*buffer)?.get(range.clone()))
            .unwrap_or(&[])
    }
}

impl Pipeline {
    /// The block, if the cache holds it; its rank does not change. Never a block of an encrypted
    /// dataset, because a caller without the key must not see it. Callers with the key use
    /// [`Self::read_uncached_keyed`].
    pub fn peek(&self, bp: &BlockPointer) -> Option<Arc<Block>> {
        (bp.kind() == BpKind::Normal && !bp.uses_crypt())
            .then(|| self.cache().peek(&Key::of(bp)))
            .flatten()
    }

    /// The block from the cache, or read without being cached. `key` is the key of its dataset.
    ///
    /// # Errors
    /// As [`Self::read_keyed`].
    pub fn read_uncached_keyed(
        &self,
        bp: &BlockPointer,
        key: Option<&DatasetKey>,
        place: &dyn Display,
    ) -> Result<Arc<Block>> {
        if bp.kind() != BpKind::Normal {
            return self.read_keyed(bp, key, place);
        }
        match self.cache().peek(&cache_key(bp, key, place)?) {
            Some(block) => Ok(block),
            None => Ok(Arc::new(Block::new(self.fetch(bp, key, place)?))),
        }
    }

    /// Turns stored bytes into readable ones: decompressed, little-endian.
    ///
    /// # Errors
    /// They do not decode.
    pub fn decode_stored(
        &self,
        bp: &BlockPointer,
        stored: &[u8],
        place: &dyn Display,
    ) -> Result<Vec<u8>> {
        let as_it_is = bp.compression() == Compression::Off.to_u8()
            && usize::try_from(bp.lsize()).is_ok_and(|len| len == stored.len());
        let mut out = if as_it_is {
            stored.to_vec()
        } else {
            let mut out = vec![0u8; bp.lsize() as usize];
            self.decompress_into(bp, stored, &mut out, place)?;
            out
        };
        self.to_little(bp, &mut out, place)?;
        Ok(out)
    }

    /// Decrypts and authenticates the stored bytes of a level-0 block; they stay compressed.
    ///
    /// # Errors
    /// `Corrupt`: authentication failed, or the block is not protected at all.
    pub fn decrypt_stored(
        &self,
        bp: &BlockPointer,
        key: &DatasetKey,
        stored: &[u8],
        place: &dyn Display,
    ) -> Result<Vec<u8>> {
        if bp.protection() == Protection::None {
            return Err(unprotected(place));
        }
        let mut bytes = stored.to_vec();
        key.open_stored(bp, &mut bytes, place)?;
        Ok(bytes)
    }

    /// Stored, checksummed bytes of normal pointers. Neighbours on a device are read at once.
    ///
    /// # Errors
    /// As [`Self::read_stored`], for the first block that fails. `place` names a pointer by its
    /// index.
    pub fn read_stored_run(
        &self,
        bps: &[BlockPointer],
        place: &dyn Fn(usize) -> String,
    ) -> Result<StoredRun> {
        let mut out = StoredRun::default();
        out.spare = Some(self.spare.clone());
        let mut from = 0;
        while from < bps.len() {
            let to = from + self.run_length(&bps[from..]);
            self.read_neighbours(&bps[from..to], from, place, &mut out)?;
            from = to;
        }
        Ok(out)
    }

    /// How many of the first pointers are close together on one device, in order.
    fn run_length(&self, bps: &[BlockPointer]) -> usize {
        let Some(first) = bps.first().filter(|bp| plain(bp)) else {
            return 1;
        };
        // Some bytes of the run may not be on the device yet. Reading block by block finds them in
        // memory.
        if self.gather.may_hold(first.physical_birth()) {
            return 1;
        }
        let start = first.dva(0);
        if !self.is_linear(start.vdev()) {
            return 1;
        }
        let mut end = start.offset().saturating_add(first.psize());
        let mut n = 1;
        for bp in &bps[1..] {
            let dva = bp.dva(0);
            if !plain(bp) || self.gather.may_hold(bp.physical_birth()) {
                break;
            }
            let is_behind = dva.vdev() == start.vdev()
                && (end..=end.saturating_add(GAP)).contains(&dva.offset());
            if !is_behind || dva.offset().saturating_add(bp.psize()) - start.offset() > RUN {
                break;
            }
            end = dva.offset() + bp.psize();
            n += 1;
        }
        n
    }

    /// Whether each block of a top-level vdev is contiguous, at its own offset.
    pub(crate) fn is_linear(&self, vdev: u32) -> bool {
        self.vdevs().top(vdev).is_ok_and(|top| {
            matches!(
                top.kind(),
                VdevKind::File | VdevKind::Disk | VdevKind::Mirror
            )
        })
    }

    fn read_neighbours(
        &self,
        bps: &[BlockPointer],
        number: usize,
        place: &dyn Fn(usize) -> String,
        out: &mut StoredRun,
    ) -> Result<()> {
        if let [first, .., last] = bps {
            let start = first.dva(0).offset();
            let len = (last.dva(0).offset() + last.psize() - start) as usize;
            let range = |bp: &BlockPointer| {
                let from = (bp.dva(0).offset() - start) as usize;
                from..from + bp.psize() as usize
            };
            let context = self.checksums();
            let mut buffer = self.spare.take();
            let mut check = |bytes: &[u8]| {
                bps.iter().all(|bp| {
                    let kind = ChecksumKind::from_u8(bp.checksum_kind());
                    let part = bytes.get(range(bp));
                    kind.zip(part).is_some_and(|(kind, part)| {
                        let (order, sum) = (bp.byte_order(), bp.checksum());
                        let good = if is_truncated(bp) {
                            verify_truncated(kind, part, order, &context, &sum)
                        } else {
                            verify(kind, part, order, &context, &sum)
                        };
                        good.unwrap_or(false)
                    })
                })
            };
            let outcome = self.vdevs().read_and_heal_if(
                address_of(&first.dva(0), first),
                &mut buffer,
                len,
                &mut check,
                // Bad bytes are not healed here: the block-by-block reads below find out which
                // block it is.
                &|| false,
            );
            if matches!(outcome, Ok(ReadOutcome::Good)) {
                let at = out.buffers.len();
                out.parts.extend(bps.iter().map(|bp| (at, range(bp))));
                out.buffers.push(buffer);
                return Ok(());
            }
        }
        for (i, bp) in bps.iter().enumerate() {
            if bp.kind() != BpKind::Normal {
                return Err(Error::missing(
                    place(number + i),
                    "it names no stored block",
                ));
            }
            let bytes = self.read_stored(bp, &Lazy(place, number + i))?;
            out.parts.push((out.buffers.len(), 0..bytes.len()));
            out.buffers.push(bytes);
        }
        Ok(())
    }

    /// Whether a block is stored exactly as a reader sees it.
    pub fn is_stored_plain(bp: &BlockPointer) -> bool {
        bp.compression() == Compression::Off.to_u8()
            && bp.byte_order() == zuse_base::ByteOrder::Little
    }
}

/// Whether the first copy of a pointer can be read as one contiguous range.
pub(crate) fn plain(bp: &BlockPointer) -> bool {
    bp.kind() == BpKind::Normal
        && !bp.is_gang()
        && bp.validate(BpLimits::default()).is_ok()
        && !bp.dva(0).is_empty()
}

struct Lazy<'a>(&'a dyn Fn(usize) -> String, usize);

impl Display for Lazy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&(self.0)(self.1))
    }
}

#[cfg(test)]
mod tests {
    use super::{RUN, SPARE, Spare};

    #[test]
    fn a_few_large_buffers_are_kept_for_runs_to_come() {
        let spare = Spare::default();
        let of = |len: u64| vec![7u8; len as usize];
        spare.give_back((0..2 * SPARE).map(|_| of(RUN)).collect());
        spare.give_back(vec![of(RUN)]);
        let kept: Vec<_> = (0..=SPARE).map(|_| spare.take().len()).collect();
        assert_eq!(kept[..SPARE], [RUN as usize; SPARE]);
        assert_eq!(kept[SPARE], 0);
        spare.give_back(vec![of(RUN / 4)]);
        assert!(spare.take().is_empty());
    }
}

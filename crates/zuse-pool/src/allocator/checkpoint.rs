//! Blocks that the checkpoint keeps: they existed when it was created, and were freed since.
//!
//! Such a block stays allocated in its metaslab's map, so that nothing overwrites it. Its range is
//! added to the checkpoint's map of its vdev. When the checkpoint is discarded, the ranges are
//! taken from the ends of those maps, some in each txg, and freed like any other.

use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Error, ObjectId, Result, Span, Txg};

use super::side_map::Changed;
use super::{Allocator, VdevSpace};
use crate::space_map::{MapEntry, MapOp, MapWriter};

/// How far a discard is.
#[derive(Debug)]
pub(crate) enum Discarding {
    /// More is left.
    More,
    /// Nothing is left, and no map exists any more.
    Done,
    /// A map is unreadable or invalid.
    Stuck(Error),
}

impl Allocator {
    /// Keeps blocks born up to `txg` from now on; none with 0.
    pub(crate) fn set_checkpoint(&self, txg: Txg) {
        self.checkpoint.store(txg.0, Relaxed);
    }

    /// Deflated bytes that only the checkpoint has.
    pub(crate) fn kept(&self) -> u64 {
        let spaces = self.spaces();
        let bytes = spaces
            .vdevs
            .values()
            .map(|v| (v.kept.bytes() >> 9).saturating_mul(v.info.deflate_ratio));
        bytes.fold(0, u64::saturating_add)
    }

    /// Sets the ZAP with the number of a vdev's checkpoint map, and opens an existing map.
    ///
    /// # Errors
    /// There is no such vdev, or the map cannot be read.
    pub(crate) fn open_kept(&self, vdev: u32, zap: ObjectId, map: Option<ObjectId>) -> Result<()> {
        let space = self.vdev(vdev)?;
        space.kept.set_zap(zap);
        match map {
            Some(object) if space.kept.object().is_none() => {
                space.kept.open(&*self.store(), object)
            }
            _ => Ok(()),
        }
    }

    /// Frees at most `limit` entries of the discarded checkpoint, in the syncing txg.
    ///
    /// # Errors
    /// The MOS cannot be changed, or space is freed twice; the txg must not be committed then.
    pub(crate) fn discard_some(&self, writer: &dyn MapWriter, limit: usize) -> Result<Discarding> {
        let txg = writer.txg();
        let mut left = limit.max(1);
        for space in self.spaces().vdevs.values() {
            loop {
                // An entry that cannot be freed stays in the map, with all entries before it.
                let looked = space.kept.tail(&*self.store(), left).and_then(|tail| {
                    let spans = tail.as_ref().map(|t| spans_of(space, &t.entries));
                    Ok(tail.zip(spans.transpose()?))
                });
                let (tail, spans) = match looked {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    Err(error) => return Ok(Discarding::Stuck(error)),
                };
                // Removed from the map in the txg that frees it: a crash in between must not free
                // it twice.
                space.kept.cut(writer, &tail)?;
                for span in spans {
                    // As if born in this txg, so that it belongs to no checkpoint any more.
                    self.free_at(space, txg, txg, span)?;
                }
                // A tail of padding counts as one, so that every step gets on.
                left = left.saturating_sub(tail.entries.len().max(1));
                if left == 0 {
                    return Ok(Discarding::More);
                }
            }
            // Empty: the vdev has no map, as before the checkpoint.
            let gone = space.kept.drop_map(writer)?;
            self.count_maps(gone);
        }
        Ok(Discarding::Done)
    }

    pub(super) fn count_maps(&self, changed: Changed) {
        self.histogram_delta.fetch_add(changed.histograms, Relaxed);
    }
}

/// The ranges of entries that are valid in a checkpoint's map, each inside metaslabs.
fn spans_of(space: &VdevSpace, entries: &[MapEntry]) -> Result<Vec<Span>> {
    let one = |entry: &MapEntry| {
        let span = Span::new(entry.offset, entry.run);
        // The map has frees only (chapter 01).
        if entry.op != MapOp::Free {
            return Err(Error::corrupt(
                format!("vdev {}, checkpoint", space.info.vdev),
                format!("range {span} is allocated in its map"),
            ));
        }
        space.pieces(span.start, span.size).map(|_| span)
    };
    entries.iter().map(one).collect()
}

//! A space map besides those of the metaslabs: for space held only by the checkpoint, and for
//! obsolete ranges of a removed vdev.
//!
//! ```text
//! ZAP of the top-level vdev: key ─▶ space map of the whole vdev; both come with the first entry
//!   kept      com.delphix:pool_checkpoint_sm      FREE entries: freed, but still the checkpoint's
//!   obsolete  com.delphix:indirect_obsolete_sm    ALLOC entries: no pointer refers to it any more
//! ```
//!
//! Invariants
//! - A range is recorded once. Ranges of the syncing txg wait in `fresh`, and are in the map when
//!   that txg is on disk. Nothing else of the map is in memory.
//! - Only the sync thread and its workers record ranges; only the sync thread writes.
//!
//! Locks: `map` is held while the map is written, `fresh` only for work in memory. Order: map, then
//! fresh.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zuse_base::sync::Mutex;
use zuse_base::{Error, ObjectId, RangeTree, Result, Span};

use crate::metaslab::SyncPass;
use crate::space_map::{Append, MapShape, MapStore, MapWriter, Region, SpaceMap, Tail};

/// Bytes of a data block of such a map.
const BLOCK: u32 = 128 << 10;

/// Ranges that are copied at a time from one map to another.
const MERGE_PIECE: usize = 16384;

/// The purpose of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SideKind {
    /// Space held only by the checkpoint.
    Kept,
    /// Obsolete ranges of a removed vdev.
    Obsolete,
}

impl SideKind {
    /// The key in the vdev's ZAP.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Kept => "com.delphix:pool_checkpoint_sm",
            Self::Obsolete => "com.delphix:indirect_obsolete_sm",
        }
    }
}

/// How many maps came or went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub maps: i64,
    /// Of them with a histogram.
    pub histograms: i64,
}

/// The map of one vdev.
#[derive(Debug)]
pub(super) struct SideMap {
    kind: SideKind,
    region: Region,
    /// The vdev's ZAP; 0 while it is not known.
    zap: AtomicU64,
    map: Mutex<Option<SpaceMap>>,
    fresh: Mutex<RangeTree>,
    /// Bytes in the map and in `fresh`.
    bytes: AtomicU64,
}

impl SideMap {
    pub fn new(kind: SideKind, vdev: u32, asize: u64, ashift: u8) -> Self {
        let (metaslab, shift) = match kind {
            SideKind::Kept => (Region::CHECKPOINT, ashift),
            // Such a map counts in bytes (01b §6).
            SideKind::Obsolete => (Region::OBSOLETE, 0),
        };
        Self {
            kind,
            region: Region {
                vdev,
                metaslab,
                span: Span::new(0, asize),
                shift,
            },
            zap: AtomicU64::new(0),
            map: Mutex::new(None),
            fresh: Mutex::default(),
            bytes: AtomicU64::new(0),
        }
    }

    /// Sets the ZAP that has the map's object number.
    pub fn set_zap(&self, zap: ObjectId) {
        self.zap.store(zap.0, Relaxed);
    }

    /// Opens an existing map.
    ///
    /// # Errors
    /// It cannot be read, or is invalid.
    pub fn open(&self, store: &dyn MapStore, object: ObjectId) -> Result<()> {
        let map = SpaceMap::open(store, object, self.region)?;
        let alloc = match self.kind {
            SideKind::Kept => map.header().alloc.checked_neg(),
            SideKind::Obsolete => Some(map.header().alloc),
        };
        let bytes = alloc
            .and_then(|n| u64::try_from(n).ok())
            .filter(|n| *n <= self.region.span.size)
            .ok_or_else(|| {
                let what = format!("its sum is {}", map.header().alloc);
                Error::miscounted(self.region.to_string(), what)
            })?;
        self.bytes.store(bytes, Relaxed);
        *self.map.lock() = Some(map);
        Ok(())
    }

    /// The map's object, if there is one.
    pub fn object(&self) -> Option<ObjectId> {
        self.map.lock().as_ref().map(SpaceMap::object)
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Records a range, in the syncing txg.
    ///
    /// # Errors
    /// It is recorded already, or outside the vdev.
    pub fn note(&self, span: Span) -> Result<()> {
        let wrong = |what: String| Error::corrupt(self.region.to_string(), what);
        if !self.region.span.contains(span) {
            return Err(wrong(format!("range {span} is not inside the vdev")));
        }
        let added = self.fresh.lock().add(span);
        added.map_err(|e| wrong(e.to_string()))?;
        self.bytes.fetch_add(span.size, Relaxed);
        Ok(())
    }

    /// Whether ranges wait to be written.
    pub fn is_dirty(&self) -> bool {
        !self.fresh.lock().is_empty()
    }

    /// Writes the waiting ranges. Returns whether there were any, and the map if it is new.
    ///
    /// # Errors
    /// The MOS cannot be changed; the ranges keep waiting.
    pub fn sync(&self, how: SyncPass<'_>) -> Result<(bool, Changed)> {
        let mut map = self.map.lock();
        let fresh = std::mem::take(&mut *self.fresh.lock());
        let mut changed = Changed::default();
        if fresh.is_empty() {
            return Ok((false, changed));
        }
        let result = self.append(&mut map, how, &fresh, &mut changed);
        if result.is_err() {
            *self.fresh.lock() = fresh;
        }
        result.map(|()| (true, changed))
    }

    fn append(
        &self,
        map: &mut Option<SpaceMap>,
        how: SyncPass<'_>,
        fresh: &RangeTree,
        changed: &mut Changed,
    ) -> Result<()> {
        let map = match map {
            Some(map) => map,
            None => {
                let made = self.create(how)?;
                changed.maps = 1;
                changed.histograms = i64::from(made.header().histogram.is_some());
                map.insert(made)
            }
        };
        let append = Append {
            pass: how.pass,
            two_words: how.two_words,
            histogram: None,
        };
        let none = RangeTree::new();
        match self.kind {
            SideKind::Kept => map.append(how.writer, append, &none, fresh)?,
            SideKind::Obsolete => map.append(how.writer, append, fresh, &none)?,
        };
        Ok(())
    }

    fn create(&self, how: SyncPass<'_>) -> Result<SpaceMap> {
        let zap = ObjectId(self.zap.load(Relaxed))
            .some()
            .ok_or_else(|| Error::missing(self.region.to_string(), "the vdev has no ZAP"))?;
        let shape = MapShape {
            block_size: BLOCK,
            ..how.shape
        };
        let map = SpaceMap::create(how.writer, shape, self.region)?;
        // Named in the txg that creates it: an object without a name would be leaked.
        how.writer.add_name(zap, self.kind.key(), map.object().0)?;
        Ok(map)
    }

    /// The last entries of the map; `None` without any.
    ///
    /// # Errors
    /// They cannot be read, or are of the wrong kind.
    pub fn tail(&self, store: &dyn MapStore, limit: usize) -> Result<Option<Tail>> {
        match &*self.map.lock() {
            Some(map) => map.tail(store, limit),
            None => Ok(None),
        }
    }

    /// Removes the last entries from the map, which are all of one kind.
    ///
    /// # Errors
    /// The MOS cannot be changed. The txg must not be committed then.
    pub fn cut(&self, writer: &dyn MapWriter, tail: &Tail) -> Result<()> {
        if let Some(map) = &mut *self.map.lock() {
            map.cut(writer, tail)?;
            let bytes: u64 = tail.entries.iter().map(|e| e.run).sum();
            self.bytes.fetch_sub(bytes, Relaxed);
        }
        Ok(())
    }

    /// Merges another map of the same kind and vdev, and drops one of the two. Only the shorter one
    /// is copied, in batches.
    ///
    /// # Errors
    /// A map cannot be read, or the MOS cannot be changed. The txg must not be committed then.
    pub fn merge(
        &self,
        store: &dyn MapStore,
        how: SyncPass<'_>,
        other: ObjectId,
    ) -> Result<Changed> {
        let other = SpaceMap::open(store, other, self.region)?;
        let (zap, key) = (ObjectId(self.zap.load(Relaxed)), self.kind.key());
        let mut map = self.map.lock();
        let Some(own) = map.take() else {
            how.writer.add_name(zap, key, other.object().0)?;
            self.bytes
                .fetch_add(other.header().alloc.unsigned_abs(), Relaxed);
            *map = Some(other);
            // The ZAP names it again. Its histogram is counted already.
            return Ok(Changed {
                maps: 1,
                histograms: 0,
            });
        };
        // The vdev's ZAP names the map that stays.
        let (mut stays, goes) = if own.header().length < other.header().length {
            how.writer.remove_name(zap, key)?;
            how.writer.add_name(zap, key, other.object().0)?;
            (other, own)
        } else {
            (own, other)
        };
        let append = Append {
            pass: how.pass,
            two_words: how.two_words,
            histogram: None,
        };
        let mut piece = RangeTree::new();
        let none = RangeTree::new();
        let flush = |stays: &mut SpaceMap, piece: &mut RangeTree| {
            let some = std::mem::take(piece);
            match self.kind {
                SideKind::Kept => stays.append(how.writer, append, &none, &some),
                SideKind::Obsolete => stays.append(how.writer, append, &some, &none),
            }
        };
        goes.replay(store, &mut |entry| {
            let added = piece.add(Span::new(entry.offset, entry.run));
            added.map_err(|e| Error::corrupt(self.region.to_string(), e))?;
            // In batches, because a map may have millions of entries.
            if piece.len() >= MERGE_PIECE {
                flush(&mut stays, &mut piece)?;
            }
            Ok(())
        })?;
        flush(&mut stays, &mut piece)?;
        how.writer.free(goes.object())?;
        self.bytes
            .store(stays.header().alloc.unsigned_abs(), Relaxed);
        *map = Some(stays);
        Ok(Changed {
            maps: 0,
            histograms: -i64::from(goes.header().histogram.is_some()),
        })
    }

    /// Drops the map, if there is one.
    ///
    /// # Errors
    /// The MOS cannot be changed. The txg must not be committed then.
    pub fn drop_map(&self, writer: &dyn MapWriter) -> Result<Changed> {
        let Some(map) = self.map.lock().take() else {
            return Ok(Changed::default());
        };
        writer.remove_name(ObjectId(self.zap.load(Relaxed)), self.kind.key())?;
        writer.free(map.object())?;
        self.bytes.store(0, Relaxed);
        Ok(Changed {
            maps: -1,
            histograms: -i64::from(map.header().histogram.is_some()),
        })
    }
}

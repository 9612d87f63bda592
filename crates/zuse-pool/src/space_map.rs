//! A space map: the log of allocations and frees of one region of a vdev, in one MOS object.
//!
//! ```text
//! bonus:  object │ length │ alloc │ pad[5] │ histogram[32] (only in bonuses of 320 bytes)
//! data:   debug │ ALLOC… │ debug │ FREE… │ …            up to `length` bytes, u64 words
//! ```
//!
//! The region starts all free; the entries applied in order give its state. `alloc` is the sum of
//! the ALLOC runs minus that of the FREE runs.
//!
//! Invariants:
//! - Data after `length` is ignored, and the header changes last. So an append that fails half way
//!   leaves the map unchanged. It is asserted that an append lengthens the map.
//! - A written entry lies within the region, in whole units; the encoder asserts it. A read entry
//!   that does not is `Corrupt`.
//!
//! A two-word entry never crosses a block boundary; a lone last word becomes padding. An append
//! puts ALLOC before FREE, because a block that is born and dies in one txg is in both sets. Golden
//! bytes in the tests contain both. Only one thread appends to a map, and no thread replays it
//! meanwhile: it takes the map as `&mut`, from the metaslab's map lock.
//!
//! Replay processes one block at a time and trusts nothing. An entry that allocates used space,
//! frees free space or leaves the region is a [`zuse_base::Error::Corrupt`], which names vdev,
//! region and object.

mod mos;
mod store;
mod writer;

#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod tests;

pub use mos::{MosStore, MosWriter};
pub use store::{MapShape, MapStore, MapWriter, StoredObject};
pub use writer::{Append, optimal_length};
pub use zuse_format::space_map::{BUCKETS, MapEntry, MapOp};

use std::fmt;

use zuse_base::{Error, ObjectId, RangeTree, Result, Span};
use zuse_format::space_map::{MapGeometry, SpaceMapPhys, decode, histogram_add};

/// Free segments by size: bucket `i` counts sizes of 2^i to 2^(i+1) − 1 units.
pub type Histogram = [u64; BUCKETS];

/// The region of a map, for bounds and for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Top-level vdev id.
    pub vdev: u32,
    /// Metaslab number; `u64::MAX` for a log of all, [`Region::CHECKPOINT`], [`Region::OBSOLETE`].
    pub metaslab: u64,
    /// The bytes that the map describes.
    pub span: Span,
    /// A unit is `1 << shift` bytes.
    pub shift: u8,
}

impl Region {
    /// In place of a metaslab: space of a vdev that only the checkpoint has. Everything starts
    /// allocated, and the entries free parts of it.
    pub const CHECKPOINT: u64 = u64::MAX - 1;
    /// In place of a metaslab: ranges of a removed vdev that nothing refers to any more.
    pub const OBSOLETE: u64 = u64::MAX - 2;

    pub(crate) fn geometry(&self) -> MapGeometry {
        MapGeometry {
            start: self.span.start,
            size: self.span.size,
            shift: u32::from(self.shift),
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.metaslab {
            u64::MAX => f.write_str("log of all metaslabs"),
            Self::CHECKPOINT => write!(f, "vdev {}, checkpoint", self.vdev),
            Self::OBSOLETE => write!(f, "vdev {}, obsolete ranges", self.vdev),
            metaslab => write!(f, "vdev {}, metaslab {metaslab}", self.vdev),
        }
    }
}

/// The last entries of a map.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// In order.
    pub entries: Vec<MapEntry>,
    /// Length of the map without them.
    pub length: u64,
}

/// An open space map.
#[derive(Clone, Debug)]
pub struct SpaceMap {
    object: ObjectId,
    region: Region,
    block_size: u32,
    header: SpaceMapPhys,
}

impl SpaceMap {
    /// Opens the map in `object` and checks its header.
    ///
    /// # Errors
    /// The object cannot be read, or is not a space map of that region.
    pub fn open(store: &dyn MapStore, object: ObjectId, region: Region) -> Result<Self> {
        let stored = store.open(object)?;
        let bad =
            |what: String| Error::corrupt(format!("{region}, space map object {object}"), what);
        let header = SpaceMapPhys::parse(&stored.bonus).map_err(|e| bad(e.to_string()))?;
        let capacity = u64::from(stored.block_size).saturating_mul(stored.blocks);
        // Words beyond the object's end read as zero, which is a valid ALLOC of the first unit.
        if header.length > capacity {
            return Err(bad(format!(
                "length {} of an object of {capacity} bytes",
                header.length
            )));
        }
        if stored.block_size < 512 || stored.block_size % 512 != 0 {
            return Err(bad(format!("block size {}", stored.block_size)));
        }
        Ok(Self {
            object,
            region,
            block_size: stored.block_size,
            header,
        })
    }

    /// Makes an empty map.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    pub fn create(writer: &dyn MapWriter, shape: MapShape, region: Region) -> Result<Self> {
        let object = writer.create_map(shape)?;
        let histogram = shape.histogram.then_some([0; BUCKETS]);
        let header = SpaceMapPhys {
            object: object.0,
            histogram,
            ..SpaceMapPhys::default()
        };
        writer.set_bonus(object, &header.to_bytes())?;
        Ok(Self {
            object,
            region,
            block_size: shape.block_size,
            header,
        })
    }

    /// The object's number.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The header as of the last append.
    pub fn header(&self) -> &SpaceMapPhys {
        &self.header
    }

    /// Bytes of a data block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Number of blocks that hold words.
    pub fn blocks(&self) -> u64 {
        self.header.length.div_ceil(u64::from(self.block_size))
    }

    /// Passes every entry to `visit`, in order, one block in memory at a time.
    ///
    /// # Errors
    /// A block cannot be read, an entry is incomplete or leaves the region, or `visit` refuses it.
    pub fn replay(
        &self,
        store: &dyn MapStore,
        visit: &mut dyn FnMut(MapEntry) -> Result<()>,
    ) -> Result<()> {
        let block_size = u64::from(self.block_size);
        // A single block needs no hint: it is read right away.
        if self.blocks() > 1 {
            store.prefetch(self.object, self.blocks());
        }
        for block in 0..self.blocks() {
            let valid = (self.header.length - block * block_size).min(block_size) as usize;
            // A two-word entry never straddles blocks, so each block decodes by itself.
            store.read_block(self.object, block, &mut |bytes| {
                let words = bytes.get(..valid).unwrap_or(bytes);
                decode(words, self.region.geometry()).try_for_each(|entry| {
                    visit(entry.map_err(|e| self.wrong(format!("block {block}: {e}")))?)
                })
            })?;
        }
        Ok(())
    }

    /// The last entries, at most `limit` and all from one block; empty if there was only padding at
    /// the end. `None` for an empty map.
    ///
    /// # Errors
    /// The block cannot be read, or an entry is incomplete or leaves the region.
    pub(crate) fn tail(&self, store: &dyn MapStore, limit: usize) -> Result<Option<Tail>> {
        let Some(last) = self.blocks().checked_sub(1) else {
            return Ok(None);
        };
        let start = last * u64::from(self.block_size);
        let valid = (self.header.length - start) as usize;
        let mut tail = Tail {
            entries: Vec::new(),
            length: start,
        };
        store.read_block(self.object, last, &mut |bytes| {
            let words = bytes.get(..valid).unwrap_or(bytes);
            let mut entries = decode(words, self.region.geometry());
            let mut all = Vec::new();
            let mut begins = 0;
            while let Some(entry) = entries.next() {
                let entry = entry.map_err(|e| self.wrong(format!("block {last}: {e}")))?;
                all.push((begins, entry));
                begins = words.len() - entries.unread();
            }
            let from = all.len().saturating_sub(limit);
            // Without entries before them the whole block goes, with its debug words.
            if from > 0 {
                let at = all.get(from).map_or(0, |(at, _)| *at);
                tail.length = start + at as u64;
            }
            tail.entries = all.into_iter().skip(from).map(|(_, entry)| entry).collect();
            Ok(())
        })?;
        Ok(Some(tail))
    }

    /// The free space that the map describes.
    ///
    /// # Errors
    /// As [`SpaceMap::replay`]; also an entry that contradicts the state before it, or a wrong
    /// `alloc`.
    pub fn load(&self, store: &dyn MapStore) -> Result<RangeTree> {
        let mut free = RangeTree::new();
        if self.region.span.size > 0 {
            free.add(self.region.span).map_err(|e| self.wrong(e))?;
        }
        self.replay(store, &mut |entry| {
            let span = Span::new(entry.offset, entry.run);
            match entry.op {
                MapOp::Alloc => free.remove(span),
                MapOp::Free => free.add(span),
            }
            .map_err(|e| self.wrong(e))
        })?;
        let allocated = self.region.span.size - free.space();
        // A stale or lost block may give a valid state, but hardly the right sum.
        if i64::try_from(allocated) != Ok(self.header.alloc) {
            return Err(self.wrong(format!(
                "{allocated} bytes are allocated, the header says {}",
                self.header.alloc
            )));
        }
        Ok(free)
    }

    fn wrong(&self, what: impl fmt::Display) -> Error {
        Error::corrupt(
            format!("{}, space map object {}", self.region, self.object),
            what,
        )
    }
}

/// The histogram of a set of free spans, in units of `1 << shift`; the last bucket is weighted.
pub fn histogram_of(spans: impl Iterator<Item = Span>, shift: u8) -> Histogram {
    let mut buckets = [0u64; BUCKETS];
    for span in spans {
        histogram_add(&mut buckets, u32::from(shift), span.size);
    }
    buckets
}

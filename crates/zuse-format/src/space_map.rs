//! Space maps: a log of allocated and freed runs.
//!
//! The object's bonus is the header ([`SpaceMapPhys`]); its data are 64-bit words:
//!
//! | bits 63..62 | entry |
//! |---|---|
//! | 0x | one word: 62..16 offset, 15 free, 14..0 run − 1 |
//! | 10 | debug: 61..60 action, 59..50 sync pass, 49..0 txg; ignored |
//! | 11 | two words: 59..24 run − 1, 23..0 vdev; then 63 free, 62..0 offset |
//!
//! Offset and run are in units of `1 << shift`, the offset from the map's start. A two-word entry
//! never crosses a block boundary: a debug word of zeros fills the last word. [`decode`] checks
//! each run against the map, so callers get byte ranges inside it.

use crate::error::{FormatError, FormatResult, bad, need};
use crate::field::{put_u64, u64_at};
use zuse_base::cut::{fit32, low32};

/// Units in a one-word run at most.
pub const RUN_MAX_ONE: u64 = 1 << 15;
/// Units in a two-word run at most.
pub const RUN_MAX_TWO: u64 = 1 << 36;
/// Units of offset that one word can hold.
pub const OFFSET_MAX_ONE: u64 = 1 << 47;
/// A debug word that only fills space.
pub const PADDING: u64 = 0x8000_0000_0000_0000;
/// Bonus bytes without histogram.
pub const HEADER_SIZE_V0: usize = 24;
/// Bonus bytes with histogram.
pub const HEADER_SIZE: usize = 320;
/// Buckets of the histogram.
pub const BUCKETS: usize = 32;

/// Whether a run became allocated or free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapOp {
    /// Allocated.
    Alloc,
    /// Freed.
    Free,
}

/// Header of a space map, in the bonus of its object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpaceMapPhys {
    /// Own object number once written; informative.
    pub object: u64,
    /// Valid bytes of data.
    pub length: u64,
    /// Σ allocated − Σ freed bytes of the entries.
    pub alloc: i64,
    /// Free segments by size (feature `spacemap_histogram`).
    pub histogram: Option<[u64; BUCKETS]>,
}

impl SpaceMapPhys {
    /// Parses a bonus.
    ///
    /// # Errors
    /// Too short, or a length that is not in whole words.
    pub fn parse(bonus: &[u8]) -> FormatResult<Self> {
        need(bonus, HEADER_SIZE_V0, "space map header")?;
        let length = u64_at(bonus, 8);
        if !length.is_multiple_of(8) {
            return bad(format!("space map is {length} bytes long"));
        }
        Ok(Self {
            object: u64_at(bonus, 0),
            length,
            alloc: u64_at(bonus, 16) as i64,
            histogram: (bonus.len() >= HEADER_SIZE)
                .then(|| std::array::from_fn(|i| u64_at(bonus, 64 + 8 * i))),
        })
    }

    /// The bonus bytes: 24, or 320 with a histogram.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![
            0;
            if self.histogram.is_some() {
                HEADER_SIZE
            } else {
                HEADER_SIZE_V0
            }
        ];
        put_u64(&mut out, 0, self.object);
        put_u64(&mut out, 8, self.length);
        put_u64(&mut out, 16, self.alloc as u64);
        for (i, count) in self.histogram.iter().flatten().enumerate() {
            put_u64(&mut out, 64 + 8 * i, *count);
        }
        out
    }
}

/// The geometry that a map's entries refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapGeometry {
    /// First byte covered.
    pub start: u64,
    /// Bytes covered.
    pub size: u64,
    /// log2 of the unit.
    pub shift: u32,
}

impl MapGeometry {
    /// Log space maps: everything, in sectors, with vdev ids.
    pub const LOG: Self = Self {
        start: 0,
        size: u64::MAX,
        shift: 9,
    };
    /// Maps of txgs.
    pub const DTL: Self = Self {
        start: 0,
        size: u64::MAX,
        shift: 0,
    };
}

/// One run of a map, in bytes (txgs for a DTL).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapEntry {
    /// What happened.
    pub op: MapOp,
    /// Vdev id of a two-word entry (valid in log space maps), else `None`.
    pub vdev: Option<u32>,
    /// First byte, on the vdev.
    pub offset: u64,
    /// Bytes.
    pub run: u64,
}

/// Runs in the words of a map, in order. Ends after the first error.
///
/// `data` is the map's data up to its length, little-endian; a tail of less than a word is an
/// error.
pub fn decode(data: &[u8], geometry: MapGeometry) -> Entries<'_> {
    Entries {
        words: data.as_chunks::<8>().0.iter(),
        ragged: !data.len().is_multiple_of(8),
        geometry,
        failed: false,
    }
}

/// Iterator of [`decode`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    words: std::slice::Iter<'a, [u8; 8]>,
    ragged: bool,
    geometry: MapGeometry,
    failed: bool,
}

impl Entries<'_> {
    /// Bytes after the last returned entry.
    pub fn unread(&self) -> usize {
        self.words.len() * 8
    }

    fn entry(
        &self,
        op: MapOp,
        vdev: Option<u32>,
        offset: u64,
        units: u64,
    ) -> Result<MapEntry, FormatError> {
        let MapGeometry { start, size, shift } = self.geometry;
        let outside = || {
            FormatError::new(format!(
                "space map entry outside its map: unit {offset:#x}, run {units:#x}"
            ))
        };
        let scale = |n: u64| {
            n.checked_shl(shift)
                .filter(|m| m >> shift == n)
                .ok_or_else(outside)
        };
        let (relative, run) = (scale(offset)?, scale(units)?);
        if relative.checked_add(run).is_none_or(|end| end > size) {
            return Err(outside());
        }
        let offset = relative.checked_add(start).ok_or_else(outside)?;
        Ok(MapEntry {
            op,
            vdev,
            offset,
            run,
        })
    }
}

fn op_of(free: bool) -> MapOp {
    if free { MapOp::Free } else { MapOp::Alloc }
}

impl Iterator for Entries<'_> {
    type Item = FormatResult<MapEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = loop {
            let Some(raw) = self.words.next() else {
                if std::mem::take(&mut self.ragged) {
                    break bad("space map ends inside a word");
                }
                return None;
            };
            let word = u64::from_le_bytes(*raw);
            match word >> 62 {
                0 | 1 => {
                    let offset = word >> 16;
                    break self.entry(
                        op_of(word >> 15 & 1 != 0),
                        None,
                        offset,
                        (word & 0x7fff) + 1,
                    );
                }
                // A debug word or padding.
                2 => {}
                _ => {
                    let Some(raw) = self.words.next() else {
                        break bad("space map ends inside an entry");
                    };
                    let second = u64::from_le_bytes(*raw);
                    let units = (word >> 24 & (RUN_MAX_TWO - 1)) + 1;
                    let vdev = low32(word & 0xff_ffff);
                    break self.entry(
                        op_of(second >> 63 != 0),
                        Some(vdev),
                        second & !(1 << 63),
                        units,
                    );
                }
            }
        };
        self.failed = result.is_err();
        Some(result)
    }
}

/// A debug word: what kind of entries follow, from which sync pass and txg.
pub fn debug_word(op: MapOp, sync_pass: u64, txg: u64) -> u64 {
    PADDING | u64::from(op == MapOp::Free) << 60 | (sync_pass & 0x3ff) << 50 | txg & ((1 << 50) - 1)
}

/// Appends runs to the words of a map, as OpenZFS would.
///
/// The encoder needs its position in the object, because a two-word entry must not cross a block
/// boundary.
#[derive(Clone, Debug)]
pub struct Encoder {
    geometry: MapGeometry,
    block_size: u64,
    position: u64,
    two_words: bool,
    bytes: Vec<u8>,
    alloc: i64,
}

impl Encoder {
    /// An encoder for data at byte `position` (the map's length) of an object with such data
    /// blocks. `two_words`: feature `spacemap_v2` is active.
    pub fn new(geometry: MapGeometry, block_size: u64, position: u64, two_words: bool) -> Self {
        Self {
            geometry,
            block_size,
            position,
            two_words,
            bytes: Vec::new(),
            alloc: 0,
        }
    }

    /// Appends a debug word; one precedes each non-empty set of runs.
    pub fn debug(&mut self, op: MapOp, sync_pass: u64, txg: u64) {
        self.word(debug_word(op, sync_pass, txg));
    }

    fn word(&mut self, word: u64) {
        self.bytes.extend(word.to_le_bytes());
        self.position += 8;
    }

    /// Appends a run of bytes, split into as many entries as it needs. `vdev` asks for two-word
    /// entries.
    ///
    /// # Panics
    /// In debug builds, if the run is not in whole units inside the map: a bug of the caller.
    pub fn push(&mut self, op: MapOp, vdev: Option<u32>, offset: u64, size: u64) {
        let MapGeometry {
            start,
            size: whole,
            shift,
        } = self.geometry;
        debug_assert!(
            offset >= start
                && (offset - start) & ((1 << shift) - 1) == 0
                && size & ((1 << shift) - 1) == 0
                && whole
                    .checked_sub(size)
                    .is_some_and(|last| offset - start <= last),
            "{size} bytes at {offset:#x} are no whole units of the map's region"
        );
        let mut at = (offset - start) >> shift;
        let mut units = size >> shift;
        let wide = vdev.is_some()
            || self.two_words && (units > RUN_MAX_ONE || at + units > OFFSET_MAX_ONE);
        let free = op == MapOp::Free;
        while units > 0 {
            let run = units.min(if wide { RUN_MAX_TWO } else { RUN_MAX_ONE });
            if wide {
                // An entry of two words never crosses a block boundary.
                if self.block_size - self.position % self.block_size == 8 {
                    self.word(PADDING);
                }
                self.word(3 << 62 | (run - 1) << 24 | u64::from(vdev.unwrap_or(0) & 0xff_ffff));
                self.word(u64::from(free) << 63 | at);
            } else {
                self.word(at << 16 | u64::from(free) << 15 | (run - 1));
            }
            at += run;
            units -= run;
        }
        self.alloc = self
            .alloc
            .wrapping_add(if free { -(size as i64) } else { size as i64 });
    }

    /// The bytes to append, and the change of the header's `alloc`.
    pub fn finish(self) -> (Vec<u8>, i64) {
        (self.bytes, self.alloc)
    }

    /// Bytes produced so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was produced.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Counts a free segment into a histogram: bucket i holds sizes from `1 << (i + shift)`.
///
/// A segment too large for the last bucket counts there with its weight.
pub fn histogram_add(histogram: &mut [u64; BUCKETS], shift: u32, size: u64) {
    if size >> shift == 0 {
        return;
    }
    let index = size.ilog2() - shift;
    let last = fit32(BUCKETS) - 1;
    if index > last {
        histogram[BUCKETS - 1] += 1 << (index - last).min(63);
    } else {
        histogram[index as usize] += 1;
    }
}

#[cfg(test)]
mod tests;

//! A removed vdev, and the mapping to where its blocks are now.
//!
//! Block pointers keep naming the removed vdev. A mapping tells for each of its ranges where the
//! copy is (chapter 01b §6 of the format notes). Ranges are sorted and disjoint. A copy may lie on
//! a vdev that was removed later, and so on.
//!
//! The mapping is read when the pool is opened and kept in memory. Even the object sets that hold
//! all other metadata may lie on a removed vdev.

use std::sync::Arc;

use zuse_base::tripwire::{Tripwire, at};
use zuse_base::{Error, RankedRwLock, Result};

/// Rank of a mapping's lock: nothing is taken below it.
const MAPPING_RANK: u32 = 945;

/// Entries of a mapping at most: 384 MiB of memory, and the removal of some ten TiB in the worst
/// case.
pub const MAX_ENTRIES: usize = 1 << 24;

/// A range of a removed vdev and its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// First byte on the removed vdev.
    pub from: u64,
    /// Bytes.
    pub len: u64,
    /// The vdev that holds them.
    pub vdev: u32,
    /// First byte there.
    pub to: u64,
}

/// A stored entry; sizes and offsets in units of 512 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    from: u64,
    to: u64,
    vdev: u32,
    len: u32,
}

/// All ranges of a removed vdev, in order.
#[derive(Debug, Default)]
pub struct Mapping(Vec<Entry>);

impl Mapping {
    /// Appends a range.
    ///
    /// # Errors
    /// `Corrupt` when it is empty, not in whole sectors, overlaps or precedes the last one;
    /// `Unsupported` beyond `MAX_ENTRIES`.
    pub fn push(&mut self, moved: Moved) -> Result<()> {
        let place = "mapping of a removed vdev";
        let wrong = || {
            let what = format!(
                "the range {:#x}+{:#x} cannot be there",
                moved.from, moved.len
            );
            Error::corrupt(place, what)
        };
        let whole = [moved.from, moved.len, moved.to]
            .iter()
            .all(|n| n.is_multiple_of(512));
        let after = self.0.last().map_or(0, |e| e.from + u64::from(e.len));
        let len = u32::try_from(moved.len >> 9).map_err(|_| wrong())?;
        let ends = moved.from.checked_add(moved.len).is_some()
            && moved.to.checked_add(moved.len).is_some();
        // Entries must be sorted and disjoint, or a binary search would find the wrong range.
        if !whole || len == 0 || moved.from >> 9 < after || !ends {
            return Err(wrong());
        }
        // Bounded: all entries stay in memory, and their number comes from disk.
        if self.0.len() >= MAX_ENTRIES {
            return Err(Error::unsupported(
                place,
                format!("more than {MAX_ENTRIES} ranges"),
            ));
        }
        self.0.push(Entry {
            from: moved.from >> 9,
            to: moved.to >> 9,
            vdev: moved.vdev,
            len,
        });
        Ok(())
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Moved> + '_ {
        self.0.iter().map(|entry| Moved {
            from: entry.from << 9,
            len: u64::from(entry.len) << 9,
            vdev: entry.vdev,
            to: entry.to << 9,
        })
    }

    /// The new place of the first bytes of a range; `None` if no mapping has them.
    pub fn first_part(&self, offset: u64, len: u64) -> Option<Moved> {
        let after = self.0.partition_point(|e| e.from << 9 <= offset);
        let entry = self.0.get(after.checked_sub(1)?)?;
        let skip = offset - (entry.from << 9);
        // A block may cross two ranges: the caller calls again for the rest.
        let left = (u64::from(entry.len) << 9)
            .checked_sub(skip)
            .filter(|left| *left > 0)?;
        Some(Moved {
            from: offset,
            len: left.min(len),
            vdev: entry.vdev,
            to: (entry.to << 9) + skip,
        })
    }
}

/// The layout of a removed vdev.
#[derive(Debug)]
pub(crate) struct Indirect(RankedRwLock<Option<Arc<Mapping>>, MAPPING_RANK>);

impl Indirect {
    pub(crate) fn new(mapping: Option<Arc<Mapping>>) -> Self {
        Self(RankedRwLock::new(mapping))
    }

    pub(crate) fn set(&self, mapping: Arc<Mapping>, tripwire: &Tripwire) {
        *tripwire.hold(at::MAPPING, self.0.write()) = Some(mapping);
    }

    pub(crate) fn get(&self) -> Option<Arc<Mapping>> {
        self.0.read().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(from: u64, len: u64, vdev: u32, to: u64) -> Moved {
        Moved {
            from,
            len,
            vdev,
            to,
        }
    }

    #[test]
    fn ranges_are_found_and_what_lies_between_is_not() {
        // The real vector of the format notes.
        let mut mapping = Mapping::default();
        mapping.push(moved(0, 0x3ef000, 1, 0x3f2000)).unwrap();
        mapping
            .push(moved(0x200_0000, 0x8000, 1, 0x7e6000))
            .unwrap();
        assert_eq!(
            mapping.first_part(0x1000, 0x2000),
            Some(moved(0x1000, 0x2000, 1, 0x3f3000))
        );
        assert_eq!(
            mapping.first_part(0x3ee000, 0x2000),
            Some(moved(0x3ee000, 0x1000, 1, 0x7e0000))
        );
        assert_eq!(mapping.first_part(0x3ef000, 0x1000), None);
        assert_eq!(
            mapping.first_part(0x200_7000, 0x1000),
            Some(moved(0x200_7000, 0x1000, 1, 0x7ed000))
        );
        assert_eq!(mapping.first_part(0x200_8000, 0x1000), None);
        assert_eq!(mapping.first_part(u64::MAX, 512), None);
    }

    #[test]
    fn ranges_that_overlap_or_go_back_are_refused() {
        let mut mapping = Mapping::default();
        mapping.push(moved(0x1000, 0x1000, 0, 0)).unwrap();
        for (from, len, to) in [
            (0x1800, 0x1000, 0),
            (0, 0x1000, 0),
            (0x2000, 0, 0),
            (0x2000, 100, 0),
            (0x2100, 512, 1),
            (0x2000, !511, 0),
            (!511, 512, 0),
            (0x2000, 0x2000, !511),
        ] {
            assert!(
                mapping.push(moved(from, len, 0, to)).is_err(),
                "{from:#x}+{len:#x}"
            );
        }
        assert_eq!(mapping.len(), 1);
    }
}

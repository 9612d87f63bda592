//! Fragmentation: how far free space is from being one contiguous range, in percent.
//!
//! A free segment weighs by its size. The fragmentation of a metaslab is the mean over its free
//! bytes, by the histogram of its space map. That of a vdev is the mean of its metaslabs, weighted
//! by free space. A metaslab without a map counts as not fragmented. The weights are measured: each
//! is zdb 2.3's result for a map with free segments of that size only.

use zuse_base::{ObjectId, Result};
use zuse_format::space_map::SpaceMapPhys;
use zuse_vdev::VdevClass;

use crate::Pool;

/// Weight of a free segment of 2^9 bytes, of 2^10 and so on; larger ones weigh nothing.
const WEIGHTS: [u8; 20] = [
    100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1,
];

/// Mean of weights by bytes.
#[derive(Clone, Copy, Default)]
struct Mean {
    weighed: u128,
    bytes: u128,
}

impl Mean {
    fn add(&mut self, weight: u64, bytes: u128) {
        self.weighed = self
            .weighed
            .saturating_add(bytes.saturating_mul(u128::from(weight)));
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn percent(self) -> u64 {
        let percent = self.weighed.checked_div(self.bytes).unwrap_or(0);
        u64::try_from(percent).unwrap_or(100)
    }
}

/// Fragmentation by a histogram of free segments, whose first row counts those of `1 << shift`
/// bytes; 0 if nothing is free.
pub fn of_histogram(rows: &[u64], shift: u32) -> u64 {
    let mut mean = Mean::default();
    for (log, count) in (shift..).zip(rows) {
        let at = usize::try_from(log.saturating_sub(9)).unwrap_or(usize::MAX);
        let weight = WEIGHTS.get(at).copied().unwrap_or(0);
        let size = 1u128.checked_shl(log).unwrap_or(0);
        mean.add(weight.into(), size.saturating_mul(u128::from(*count)));
    }
    mean.percent()
}

impl Pool {
    /// Fragmentation of the vdevs for ordinary data; `None` if their space maps have no histograms.
    ///
    /// # Errors
    /// The header of a space map cannot be read.
    pub fn fragmentation(&self) -> Result<Option<u64>> {
        let mut mean = Mean::default();
        for top in self.vdevs.tops().iter() {
            let normal = top.is_concrete() && top.class() == VdevClass::Normal;
            if normal && !self.weigh(top.id(), &mut mean)? {
                return Ok(None);
            }
        }
        Ok(Some(mean.percent()))
    }

    /// Of one top-level vdev.
    ///
    /// # Errors
    /// As [`Self::fragmentation`].
    pub fn fragmentation_of(&self, vdev: u32) -> Result<Option<u64>> {
        let mut mean = Mean::default();
        let known = self.weigh(vdev, &mut mean)?;
        Ok(known.then(|| mean.percent()))
    }

    /// Adds the metaslabs of a vdev; false if one of them has no histogram.
    fn weigh(&self, vdev: u32, mean: &mut Mean) -> Result<bool> {
        let info = self.vdev_infos().into_iter().find(|i| i.vdev == vdev);
        // A metaslab without a map has no fragmentation.
        let Some(info) = info.filter(|i| i.check().is_ok()) else {
            return Ok(false);
        };
        let count = info.metaslab_count();
        let mut maps = vec![0; usize::try_from(count.saturating_mul(8)).unwrap_or(0)];
        if info.metaslab_array.0 != 0 {
            let array = self.mos().dnode(info.metaslab_array)?;
            array.read_at(0, &mut maps)?;
        }
        for (index, object) in (0..).zip(maps.as_chunks::<8>().0) {
            let size = info.region(index).span.size;
            let object = ObjectId(u64::from_le_bytes(*object));
            if object.0 == 0 {
                mean.add(0, size.into());
                continue;
            }
            let bonus = self.mos().dnode(object)?.bonus_vec();
            let map = SpaceMapPhys::parse(&bonus)
                .map_err(|e| e.at(format!("space map, object {}", object.0)))?;
            let Some(rows) = &map.histogram else {
                return Ok(false);
            };
            let free = size.saturating_add_signed(map.alloc.saturating_neg());
            mean.add(of_histogram(rows, info.ashift.into()), free.into());
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::of_histogram;

    #[test]
    fn free_segments_weigh_what_zdb_says() {
        // The map of `docs/format/06d-zdb.md` §7.
        let mut rows = [0; 32];
        for (row, count) in rows.iter_mut().zip([4, 7, 6, 4, 7, 11, 1]) {
            *row = count;
        }
        rows[14] = 1;
        assert_eq!(of_histogram(&rows, 9), 25);
        // Maps with segments of one size, and sizes beyond the table.
        let of = |log: usize| {
            let mut rows = [0; 32];
            rows[log - 9] = 3;
            of_histogram(&rows, 9)
        };
        assert_eq!(
            [of(9), of(16), of(23), of(28), of(29), of(40)],
            [100, 71, 23, 1, 0, 0]
        );
        assert_eq!(of_histogram(&[0; 32], 12), 0);
        assert_eq!(of_histogram(&[u64::MAX; 32], 60), 0);
    }
}

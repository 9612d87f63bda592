//! How much room an open pool has.

use super::Pool;
use crate::allocator::Reserve;

/// Space of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Room for data, raw.
    pub capacity: u64,
    /// Allocated.
    pub allocated: u64,
    /// Freed, but not yet to be used again.
    pub deferred: u64,
    /// Deflated room: what datasets are measured against.
    pub dspace: u64,
    /// Kept from users.
    pub slop: u64,
    /// Deflated bytes that clones take in the books of datasets and nowhere else.
    pub cloned: u64,
}

impl Pool {
    /// Space of the pool.
    pub fn space(&self) -> Space {
        let Some(allocator) = self.allocator.get() else {
            return self.space_by_config();
        };
        let total = allocator.total();
        Space {
            capacity: total.capacity,
            allocated: total.allocated,
            deferred: allocator.deferred(),
            dspace: allocator.dspace(),
            slop: allocator.slop(),
            cloned: self.clones.saved(),
        }
    }

    /// Room and allocated bytes of a top-level vdev; `None` where its space maps were not read (the pool is open read-only).
    pub fn vdev_space(&self, vdev: u32) -> Option<(u64, u64)> {
        let figures = self.allocator.get()?.vdev_figures(vdev);
        Some((figures.capacity, figures.allocated))
    }

    /// Space of a pool that is open read-only: from the vdev tree, usage from the root directory is the caller's.
    fn space_by_config(&self) -> Space {
        let tops = self.vdevs.tops();
        let mut space = Space::default();
        for top in tops.iter().filter(|t| t.is_concrete() && !t.is_log()) {
            let shift = top.metaslab_shift();
            let usable = if shift == 0 {
                top.asize()
            } else {
                (top.asize() >> shift) << shift
            };
            space.capacity += usable;
            if !top.is_non_allocating() {
                space.dspace += (usable >> 9) * top.deflate_ratio();
            }
        }
        space.slop = crate::allocator::slop_of(space.dspace);
        space
    }

    /// Bytes that may be allocated before a reserve is touched.
    pub fn available(&self, reserve: Reserve) -> u64 {
        self.allocator.get().map_or(0, |a| a.available(reserve))
    }
}

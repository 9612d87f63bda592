//! The interface between the write pipeline and the pool's allocator.

use zuse_base::{Result, Txg};
use zuse_format::Dva;

/// Which kind of vdev a block should be on; the allocator may fall back to [`AllocClass::Normal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum AllocClass {
    /// Ordinary vdevs.
    Normal,
    /// Metadata and small blocks, where special vdevs exist.
    Special,
    /// Small blocks of files: on special vdevs as long as those have room to spare for metadata.
    Small,
    /// Dedup tables, where dedup vdevs exist.
    Dedup,
    /// Intent log blocks.
    Log,
}

/// Space for one block: up to three DVAs, filled from index 0.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// The places; those past `count` are empty.
    pub dvas: [Dva; 3],
    /// How many of `dvas` are valid (1..=3).
    pub count: usize,
}

/// Allocates and frees space. Implemented by the pool's metaslab allocator.
///
/// All calls belong to a txg that is not committed yet. Freed space can be allocated again only
/// after two more txgs are on disk. So the uberblocks of the last three txgs stay valid.
pub trait Allocate: Send + Sync {
    /// Space for `copies` DVAs of `psize` bytes each, at a distance from each other.
    ///
    /// `Ok(None)`: no metaslab has that much contiguous space; the caller may gang.
    ///
    /// # Errors
    /// A metaslab's space map could not be loaded.
    fn allocate(
        &self,
        txg: Txg,
        psize: u64,
        copies: usize,
        class: AllocClass,
    ) -> Result<Option<Allocation>>;

    /// Frees the range `[offset, offset + asize)` of a vdev. `born` is the physical birth of the
    /// block there: a checkpoint keeps blocks that were born before it.
    ///
    /// # Errors
    /// The range is not allocated, or the vdev does not exist.
    fn free_dva(&self, txg: Txg, born: Txg, vdev: u32, offset: u64, asize: u64) -> Result<()>;

    /// The smallest allocation unit over the normal vdevs, in bytes (`1 << ashift`).
    fn min_allocation(&self) -> u64;
}

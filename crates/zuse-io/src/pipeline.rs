//! The read and write pipelines of one pool.
//!
//! Read budget for a cached block: one cache hit. For an uncached one: one buffer for the stored
//! bytes, one for the decoded bytes, one device read, one checksum pass, one decompression. Write
//! budget for a block: one compression into a scratch buffer that is reused by the thread, one
//! checksum pass, one device write per copy. Small neighbours share a device write. The caller's
//! bytes are moved into the cache, not copied.
//!
//! Rules
//! - A block is never overwritten once an uberblock leads to it. In-place rewrites happen only for
//!   blocks born in the txg that is syncing (`WritePolicy::pass` ≥ 2), to which no uberblock leads
//!   yet.
//! - A pointer from disk is validated before any of its fields is used.
//!
//! Here: the pipeline itself, its counters and freeing. `read` and `write` have a file each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use zuse_base::sync::RwLock;

use zuse_base::{Errno, Error, Result, Txg};
use zuse_codec::{ChecksumContext, ChecksumKind, Compression, Workspace};
use zuse_format::{BlockPointer, BpKind, Dva};
use zuse_vdev::{Address, Vdevs};

use crate::bulk::Spare;
use crate::cache::{Class, Key};
use crate::dedup::DedupTables;
use crate::freed::Freed;
use crate::gather::{ASIDE, Gather, LARGE, Run, SMALL};
use crate::indirect_write::IndirectWrites;
use crate::object_pool::ObjectPool;
use crate::shared::{Reference, Shared};
use crate::{AllocClass, Allocate, Block, Cache, Lost, WritePolicy};

mod read;
mod write;

pub(crate) use write::{CompressedForm, normal, seal};

/// Where one copy of a pointer's block is.
pub(crate) fn address_of(dva: &Dva, bp: &BlockPointer) -> Address {
    Address::new(dva.vdev(), dva.offset(), Txg(bp.physical_birth()))
}

/// The outcome of [`Pipeline::write`].
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The new pointer; its fill count is the caller's.
    pub bp: BlockPointer,
    /// The block was rewritten in its old place (same txg), or kept (nopwrite). No pointer is born
    /// and none dies.
    pub in_place: bool,
}

/// Features of the dataset that written blocks use, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureUse(pub u32);

impl FeatureUse {
    /// A block larger than 128 KiB.
    pub const LARGE_BLOCKS: u32 = 1;
    /// Checksum SHA-512/256.
    pub const SHA512: u32 = 2;
    /// Checksum Skein.
    pub const SKEIN: u32 = 4;
    /// Checksum Edon-R.
    pub const EDONR: u32 = 8;
    /// Checksum BLAKE3.
    pub const BLAKE3: u32 = 16;
    /// Compression zstd.
    pub const ZSTD: u32 = 32;

    /// The features that a pointer uses.
    pub fn of(bp: &BlockPointer) -> Self {
        let mut bits = 0;
        if bp.lsize() > 128 * 1024 {
            bits |= Self::LARGE_BLOCKS;
        }
        if bp.compression() == Compression::Zstd.to_u8() {
            bits |= Self::ZSTD;
        }
        if !bp.is_embedded() {
            bits |= match ChecksumKind::from_u8(bp.checksum_kind()) {
                Some(ChecksumKind::Sha512) => Self::SHA512,
                Some(ChecksumKind::Skein) => Self::SKEIN,
                Some(ChecksumKind::Edonr) => Self::EDONR,
                Some(ChecksumKind::Blake3) => Self::BLAKE3,
                _ => 0,
            };
        }
        Self(bits)
    }
}

/// Decides what happens when a device fails a write.
pub trait WriteFaults: Send + Sync {
    /// A write failed. `Ok` means: try it again (this may have waited for an administrator).
    ///
    /// # Errors
    /// The error to pass on; the txg is then lost.
    fn write_failed(&self, error: &Error) -> Result<()>;
}

/// Reads and writes block pointers of one pool. Shared by all threads.
pub struct Pipeline {
    pub(crate) vdevs: Arc<Vdevs>,
    cache: Arc<Cache>,
    pub(crate) checksums: RwLock<Arc<ChecksumContext>>,
    allocator: OnceLock<Arc<dyn Allocate>>,
    faults: OnceLock<Arc<dyn WriteFaults>>,
    shared: OnceLock<Arc<dyn Shared>>,
    dedup_tables: OnceLock<Arc<dyn DedupTables>>,
    pub(crate) freed: Freed,
    /// Whether `dynamic_gang_header` is in use.
    pub(crate) large_gang_headers: AtomicBool,
    /// Bytes written to devices since the start, for statistics.
    pub(crate) written: AtomicU64,
    pub(crate) gather: Gather,
    lost: Lost,
    pub(crate) indirect_writes: IndirectWrites,
    pub(crate) spare: Arc<Spare>,
    /// Buffers for encoding and decoding blocks.
    pub(crate) scratch: ObjectPool<Vec<u8>>,
    pub(crate) workspaces: ObjectPool<Workspace>,
    gathers: AtomicBool,
    around: AtomicBool,
    /// Long blocks are prefetched past the host's page cache.
    pub(crate) brings_around: AtomicBool,
}

impl Pipeline {
    /// A pipeline over an open vdev tree. Salted checksums need [`Self::set_checksums`], writes
    /// need [`Self::set_allocator`].
    pub fn new(vdevs: Arc<Vdevs>, cache: Arc<Cache>) -> Self {
        Self {
            vdevs,
            cache,
            checksums: RwLock::new(Arc::new(ChecksumContext::new(None))),
            allocator: OnceLock::new(),
            faults: OnceLock::new(),
            shared: OnceLock::new(),
            dedup_tables: OnceLock::new(),
            freed: Freed::default(),
            large_gang_headers: AtomicBool::new(false),
            written: AtomicU64::new(0),
            spare: Arc::default(),
            scratch: ObjectPool::default(),
            workspaces: ObjectPool::default(),
            gather: Gather::default(),
            lost: Lost::default(),
            indirect_writes: IndirectWrites::default(),
            gathers: AtomicBool::new(false),
            around: AtomicBool::new(true),
            brings_around: AtomicBool::new(true),
        }
    }

    /// Blocks that could not be read since the pool was opened.
    pub fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Installs the contexts made from the pool's salt.
    pub fn set_checksums(&self, context: ChecksumContext) {
        *self.checksums.write() = Arc::new(context);
    }

    /// Installs the allocator; once only.
    pub fn set_allocator(&self, allocator: Arc<dyn Allocate>) {
        let _ = self.allocator.set(allocator);
    }

    /// Installs the counter of references to cloned blocks; once only. Without it each block has
    /// one.
    pub fn set_shared(&self, shared: Arc<dyn Shared>) {
        let _ = self.shared.set(shared);
    }

    /// Installs the dedup tables; once only. Without them no block is deduplicated.
    pub fn set_dedup_tables(&self, dedup_tables: Arc<dyn DedupTables>) {
        let _ = self.dedup_tables.set(dedup_tables);
    }

    pub(crate) fn dedup_tables(&self) -> Option<&Arc<dyn DedupTables>> {
        self.dedup_tables.get()
    }

    /// Adds a reference to a block, to be written in `txg`.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` where blocks cannot be shared.
    pub fn refer(&self, txg: Txg, bp: &BlockPointer) -> Result<Reference> {
        let Some(shared) = self.shared.get() else {
            return Err(Error::refused(Errno::NOTSUP, "blocks are not shared here"));
        };
        Reference::new(shared.clone(), txg, bp, self.dsize(bp))
    }

    /// Installs the policy for failed writes; once only. Without it errors are passed on.
    pub fn set_write_faults(&self, faults: Arc<dyn WriteFaults>) {
        let _ = self.faults.set(faults);
    }

    /// Runs a device operation of the sync thread until it works or the fault policy gives up.
    ///
    /// # Errors
    /// The error of the operation, once the policy passes it on. Other errors than `Device` are
    /// passed on at once.
    pub fn insist<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match operation() {
                Err(error @ Error::Device { .. }) => match self.faults.get() {
                    Some(faults) => faults.write_failed(&error)?,
                    None => return Err(error),
                },
                other => return other,
            }
        }
    }

    /// From now on small writes wait for their neighbours (`crate::gather`). Before a flush of
    /// the devices call [`Self::drain`].
    pub fn gather_writes(&self) {
        self.gathers.store(true, Relaxed);
    }

    /// Whether large blocks are written past the host's page cache, on devices that support it.
    pub fn write_around(&self, yes: bool) {
        self.around.store(yes, Relaxed);
    }

    /// Whether long blocks are prefetched straight into the block cache, past the host's page
    /// cache, on devices that support it.
    pub fn set_prefetch_direct(&self, yes: bool) {
        self.brings_around.store(yes, Relaxed);
    }

    /// Writes what waits for its neighbours.
    ///
    /// # Errors
    /// The error of the device, once the fault policy passes it on.
    pub fn drain(&self) -> Result<()> {
        self.gather.drain(&|run| self.write_run(run))
    }

    /// Whether all written blocks have been handed to the devices.
    pub fn is_drained(&self) -> bool {
        self.gather.is_empty()
    }

    fn write_run(&self, run: &Run) -> Result<()> {
        self.write_through(Address::new(run.vdev, run.start, run.txg), run.bytes())
    }

    fn write_through(&self, place: Address, bytes: &[u8]) -> Result<()> {
        self.insist(|| self.vdevs.write(place, bytes))?;
        self.written.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// Writes stored bytes, born in `txg`, to one place, at the latest when the pipeline is
    /// drained.
    pub(crate) fn put(&self, txg: Txg, dva: &Dva, bytes: &[u8]) -> Result<()> {
        let (vdev, len) = (dva.vdev(), bytes.len());
        if !self.gathers.load(Relaxed) {
            return self.put_now(txg, dva, bytes);
        }
        let aside = len > ASIDE
            && len <= LARGE
            && self.around.load(Relaxed)
            && self.vdevs.bypasses_cache(vdev);
        let gathers = aside || len <= SMALL && self.is_linear(vdev);
        if !gathers {
            return self.put_now(txg, dva, bytes);
        }
        let place = (txg, vdev, dva.offset());
        self.gather
            .put(place, bytes, dva.asize(), aside, &|run| self.write_run(run))
    }

    /// As [`Self::put`], at once.
    pub(crate) fn put_now(&self, txg: Txg, dva: &Dva, bytes: &[u8]) -> Result<()> {
        let (vdev, start) = (dva.vdev(), dva.offset());
        self.make_way_for(dva, bytes.len())?;
        self.write_through(Address::new(vdev, start, txg), bytes)
    }

    /// Writes pending bytes of a place that is about to be written past the host's page cache.
    pub(crate) fn make_way_for(&self, dva: &Dva, len: usize) -> Result<()> {
        if !self.gathers.load(Relaxed) {
            return Ok(());
        }
        let (vdev, start) = (dva.vdev(), dva.offset());
        self.gather
            .make_way(vdev, start, len, &|run| self.write_run(run))
    }

    pub(crate) fn note_written(&self, len: usize) {
        self.written.fetch_add(len as u64, Relaxed);
    }

    /// Says that gang headers may be as large as a sector (feature `dynamic_gang_header`).
    pub fn set_large_gang_headers(&self) {
        self.large_gang_headers.store(true, Relaxed);
    }

    /// The vdev tree.
    pub fn vdevs(&self) -> &Arc<Vdevs> {
        &self.vdevs
    }

    /// The block cache.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Bytes written to devices since the pool was opened, all copies counted.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    pub(crate) fn checksums(&self) -> Arc<ChecksumContext> {
        self.checksums.read().clone()
    }

    pub(crate) fn allocator(&self) -> Result<&Arc<dyn Allocate>> {
        self.allocator
            .get()
            .ok_or_else(|| Error::refused(Errno::ROFS, "pool is read-only"))
    }

    /// Puts the decoded content of a pointer that was just written into the cache.
    pub fn remember(&self, bp: &BlockPointer, block: Arc<Block>) {
        if bp.kind() == BpKind::Normal {
            self.cache.insert(Key::of(bp), Class::of(bp), block);
        }
    }

    /// Frees all space of a pointer. Holes and embedded pointers have none. The space of a
    /// deduplicated block is freed by its table, with the last reference. The space of a cloned
    /// block stays as long as other pointers use it.
    ///
    /// # Errors
    /// A gang header could not be read, or the space was not allocated.
    pub fn free(&self, txg: Txg, bp: &BlockPointer) -> Result<()> {
        if bp.kind() != BpKind::Normal {
            return Ok(());
        }
        // With a dedup table only the last reference frees the block.
        if bp.dedup()
            && let Some(dedup_tables) = self.dedup_tables.get()
            && dedup_tables.drop_reference(bp)?
        {
            return Ok(());
        }
        // The cache entry goes before the space: the place may get another block two txgs later.
        self.cache.remove(&Key::of(bp));
        if bp.uses_crypt() {
            self.cache.remove(&Key::of(bp).locked());
        }
        // A clone may still point to it.
        if let Some(shared) = self.shared.get()
            && shared.drop_reference(bp, self.dsize(bp))?
        {
            return Ok(());
        }
        if bp.is_gang() {
            return self.free_gang(txg, bp);
        }
        let allocator = self.allocator()?;
        let born = Txg(bp.physical_birth());
        for dva in bp.dvas() {
            // Noted first: a reader that is about to heal the place must see that it is freed.
            self.freed.note(txg, &dva);
            allocator.free_dva(txg, born, dva.vdev(), dva.offset(), dva.asize())?;
        }
        Ok(())
    }

    /// Space a pointer is charged for: allocated bytes, deflated by each vdev's ratio (512 for
    /// plain vdevs).
    pub fn dsize(&self, bp: &BlockPointer) -> u64 {
        if bp.kind() != BpKind::Normal {
            return 0;
        }
        bp.dvas()
            .map(|d| (d.asize() >> 9).wrapping_mul(self.vdevs.deflate_ratio(d.vdev())))
            .sum()
    }

    /// The allocation class used for gang headers and members of a block.
    pub(crate) fn class_of(policy: &WritePolicy) -> AllocClass {
        policy.class
    }
}

#[cfg(test)]
mod tests;

//! How much space an open pool has.
//!
//! In a pool open for writing the allocator has the numbers. In a read-only one they come from the
//! headers of its space maps, and the log space maps. Either way `allocated` is the space allocated
//! in metaslabs: raw bytes, each once, however many datasets are charged for them.

use std::collections::BTreeMap;

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_format::space_map::SpaceMapPhys;
use zuse_io::AllocClass;
use zuse_vdev::VdevClass;

use super::Pool;
use crate::allocator::{Reserve, VdevInfo};
use crate::log_space_map::LogState;
use crate::space_map::MosStore;

/// Key in the ZAP of a top-level vdev: the map of space held only by a checkpoint.
const CHECKPOINT_MAP: &[u8] = b"com.delphix:pool_checkpoint_sm";
const CHECKPOINT: &str = "com.delphix:zpool_checkpoint";

/// Space figures that come from tables only: read once, in a read-only pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tables {
    deduped: u64,
    checkpointed: u64,
    beside: u64,
}

/// Space of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Room for data, raw.
    pub capacity: u64,
    /// Allocated.
    pub allocated: u64,
    /// Freed, but not yet to be used again.
    pub deferred: u64,
    /// Deflated size, against which datasets are measured.
    pub dspace: u64,
    /// Kept from users.
    pub slop: u64,
    /// Deflated bytes of clones that datasets are charged for but use no space.
    pub cloned: u64,
    /// The same for deduplicated blocks.
    pub deduped: u64,
    /// Deflated bytes held only by a checkpoint.
    pub checkpointed: u64,
    /// Deflated bytes on special and dedup vdevs: datasets are charged for them, but they use no
    /// space for data.
    pub beside: u64,
    /// Deflated bytes on data vdevs, including deferred frees.
    pub dused: u64,
}

impl Pool {
    /// Space of the pool.
    pub fn space(&self) -> Space {
        let Some(allocator) = self.allocator.get() else {
            return self.space_by_config();
        };
        let total = allocator.total();
        let beside = [AllocClass::Special, AllocClass::Dedup].map(|class| {
            let figures = allocator.figures(class);
            figures.dused.saturating_sub(figures.ddeferred)
        });
        Space {
            capacity: total.capacity,
            allocated: total.allocated,
            deferred: allocator.deferred(),
            dspace: allocator.dspace(),
            slop: allocator.slop(),
            cloned: self.clones.saved(),
            deduped: self.dedup.saved(),
            checkpointed: allocator.kept(),
            beside: beside.into_iter().fold(0, u64::saturating_add),
            dused: allocator.figures(AllocClass::Normal).dused,
        }
    }

    /// Size and allocated bytes of each top-level vdev with metaslabs, from the headers of its
    /// space maps and the entries only in logs.
    ///
    /// # Errors
    /// A header or a log cannot be read.
    pub fn space_by_maps(&self) -> Result<BTreeMap<u32, (u64, u64)>> {
        let infos = self.vdev_infos();
        let mut all: BTreeMap<_, _> = infos.iter().map(|i| (i.vdev, (capacity(i), 0))).collect();
        self.each_metaslab(&infos, &mut |info, _, allocated| {
            if let Some((_, sum)) = all.get_mut(&info.vdev) {
                *sum = u64::saturating_add(*sum, allocated);
            }
        })?;
        Ok(all)
    }

    /// Size and allocated bytes of the metaslab that a vdev reserves for logs, for each vdev with
    /// one. It is the emptiest of a normal or special vdev with more than `MOST_WITHOUT_LOG`
    /// metaslabs.
    ///
    /// # Errors
    /// As [`Self::space_by_maps`].
    pub fn embedded_logs(&self) -> Result<BTreeMap<u32, (u64, u64)>> {
        let mut all = BTreeMap::new();
        let mut note = |info: &VdevInfo, room: u64, allocated: u64| {
            if takes_log(info) {
                let least: &mut (u64, u64) = all.entry(info.vdev).or_insert((room, allocated));
                if allocated < least.1 {
                    *least = (room, allocated);
                }
            }
        };
        match self.allocator.get() {
            Some(allocator) => allocator.each_metaslab(&mut note),
            None => {
                let large = self.vdev_infos().into_iter().filter(takes_log);
                let large: Vec<_> = large.collect();
                if !large.is_empty() {
                    self.each_metaslab(&large, &mut note)?;
                }
            }
        }
        Ok(all)
    }

    /// Size and allocated bytes of the metaslabs of these vdevs, from the headers of the space maps
    /// and the logs.
    fn each_metaslab(
        &self,
        infos: &[VdevInfo],
        each: &mut dyn FnMut(&VdevInfo, u64, u64),
    ) -> Result<()> {
        infos.iter().try_for_each(VdevInfo::check)?;
        let mut pending = match self.log_objects(&self.directory()?)? {
            Some(objects) => {
                let store = MosStore::new(self.mos());
                LogState::read(&store, &self.vdev_infos(), &objects)?.1
            }
            None => BTreeMap::new(),
        };
        for info in infos {
            let mut logged = pending.remove(&info.vdev).unwrap_or_default();
            for (index, object) in (0..).zip(self.space_maps_of(info)?) {
                // The sum in the map leaves out what is only in logs (01-pool §5.5).
                let mut allocated = logged.remove(&index).map_or(0, |log| log.delta());
                if object.0 != 0 {
                    let bonus = self.mos().dnode(object)?.bonus_vec();
                    let map = SpaceMapPhys::parse(&bonus)
                        .map_err(|e| e.at(format!("space map, object {}", object.0)))?;
                    allocated = allocated.saturating_add(map.alloc);
                }
                let room = info.region(index).span.size;
                // A damaged sum may be negative.
                each(info, room, allocated.max(0).unsigned_abs());
            }
        }
        Ok(())
    }

    fn space_maps_of(&self, info: &VdevInfo) -> Result<Vec<ObjectId>> {
        let bytes = info.metaslab_count().saturating_mul(8);
        let mut words = vec![0; usize::try_from(bytes).unwrap_or(0)];
        if info.metaslab_array.0 != 0 {
            self.mos()
                .dnode(info.metaslab_array)?
                .read_at(0, &mut words)?;
        }
        let words = words.as_chunks::<8>().0.iter();
        Ok(words.map(|w| ObjectId(u64::from_le_bytes(*w))).collect())
    }

    /// Reads the tables of a read-only pool. Unreadable ones count as zero, because the pool is
    /// readable without them.
    pub(crate) fn load_tables(&self) {
        let _ = self.clones.load(self);
        let tables = Tables {
            deduped: self.deduped().unwrap_or(0),
            checkpointed: self.checkpointed_bytes().unwrap_or(0),
            beside: self.extra_bytes().unwrap_or(0),
        };
        let _ = self.tables.set(tables);
    }

    fn deduped(&self) -> Result<u64> {
        let mut saved = 0u64;
        for table in crate::dedup::tables(self)? {
            let (stored, referenced) = table.histogram(&self.io).total();
            saved = saved.saturating_add(referenced.dsize.saturating_sub(stored.dsize));
        }
        Ok(saved)
    }

    fn extra_bytes(&self) -> Result<u64> {
        let tops = self.vdevs.tops();
        let beside = |class| matches!(class, VdevClass::Special | VdevClass::Dedup);
        if !tops.iter().any(|t| beside(t.class())) {
            return Ok(0);
        }
        let by_maps = self.space_by_maps()?;
        let bytes = tops.iter().filter(|t| beside(t.class())).map(|top| {
            let allocated = by_maps.get(&top.id()).map_or(0, |(_, n)| *n);
            (allocated >> 9).saturating_mul(top.deflate_ratio())
        });
        Ok(bytes.fold(0, u64::saturating_add))
    }

    fn checkpointed_bytes(&self) -> Result<u64> {
        if !self.features().is_active(CHECKPOINT) {
            return Ok(0);
        }
        let tree = self.config.lock().vdev_tree.clone();
        let tops = self.vdevs.tops();
        let mut sum = 0u64;
        for (top, config) in tops.iter().zip(&tree.children) {
            let Some(zap) = config.zap_top.filter(|zap| *zap != 0) else {
                continue;
            };
            let zap = Zap::open(&self.mos().dnode(ObjectId(zap))?)?;
            let Some(map) = zap.lookup_u64(CHECKPOINT_MAP)? else {
                continue;
            };
            let bonus = self.mos().dnode(ObjectId(map))?.bonus_vec();
            let map = SpaceMapPhys::parse(&bonus)
                .map_err(|e: zuse_format::FormatError| -> Error { e.at("a checkpoint's map") })?;
            // The map has FREE entries only, so its total is negative: the bytes that the
            // checkpoint keeps.
            let bytes = map.alloc.min(0).unsigned_abs();
            sum = sum.saturating_add((bytes >> 9).saturating_mul(top.deflate_ratio()));
        }
        Ok(sum)
    }

    /// Size and allocated bytes of a top-level vdev; `None` if its space maps were not read (the
    /// pool is open read-only).
    pub fn vdev_space(&self, vdev: u32) -> Option<(u64, u64)> {
        let figures = self.allocator.get()?.vdev_figures(vdev);
        Some((figures.capacity, figures.allocated))
    }

    /// Space of a read-only pool, from the vdev tree. The allocated bytes take more reads
    /// ([`Self::space_by_maps`]).
    fn space_by_config(&self) -> Space {
        let tops = self.vdevs.tops();
        let mut space = Space::default();
        let infos = self.vdev_infos();
        for top in tops.iter().filter(|t| t.is_concrete() && !t.is_log()) {
            let info = infos.iter().find(|i| i.vdev == top.id());
            let usable = info.filter(|i| i.check().is_ok()).map_or(0, capacity);
            space.capacity = space.capacity.saturating_add(usable);
            // Space of the other classes is not counted as available.
            if top.class() == VdevClass::Normal && !top.is_non_allocating() {
                let deflated = (usable >> 9).saturating_mul(top.deflate_ratio());
                space.dspace = space.dspace.saturating_add(deflated);
            }
        }
        let tables = self.tables.get().copied().unwrap_or_default();
        space.cloned = self.clones.saved();
        space.deduped = tables.deduped;
        space.checkpointed = tables.checkpointed;
        space.beside = tables.beside;
        space.slop = crate::allocator::slop_of(space.dspace);
        space
    }

    /// Bytes that may be allocated before a reserve is used.
    pub fn available(&self, reserve: Reserve) -> u64 {
        self.allocator.get().map_or(0, |a| a.available(reserve))
    }
}

/// A vdev with more metaslabs reserves one of them for logs. That is not stored: OpenZFS takes the
/// emptiest when it opens a pool.
pub const MOST_WITHOUT_LOG: u64 = 64;

fn takes_log(info: &VdevInfo) -> bool {
    let kept = matches!(info.class, AllocClass::Normal | AllocClass::Special);
    kept && info.metaslab_count() > MOST_WITHOUT_LOG
}

/// Bytes in the metaslabs of a vdev.
fn capacity(info: &VdevInfo) -> u64 {
    let sizes = (0..info.metaslab_count()).map(|i| info.region(i).span.size);
    sizes.fold(0, u64::saturating_add)
}

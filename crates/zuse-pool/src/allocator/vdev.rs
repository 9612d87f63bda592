//! The space of one top-level vdev: its metaslabs and its totals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::{Error, ObjectId, Result, Span, Tripwire, Txg};
use zuse_io::AllocClass;

use super::side_map::{SideKind, SideMap};
use crate::metaslab::{Metaslab, TXGS, Unflushed};
use crate::space_map::{MapStore, Region, SpaceMap, StoredObject};

/// More metaslabs than any real vdev has: a bound for hostile configurations.
const MAX_METASLABS: u64 = 1 << 22;
/// Metaslab arrays are read in pieces of this many bytes.
const ARRAY_PIECE: u64 = 64 << 10;
/// "No metaslab is active."
pub(super) const NONE: usize = usize::MAX;

/// Allocated bytes of a block of `psize` bytes on the vdev, born in that txg.
pub type AsizeFn = Arc<dyn Fn(u64, Txg) -> u64 + Send + Sync>;

/// What the allocator needs to know about a top-level vdev.
#[derive(Clone)]
pub struct VdevInfo {
    /// Its id.
    pub vdev: u32,
    /// Allocatable bytes.
    pub asize: u64,
    /// Sector size.
    pub ashift: u8,
    /// Offsets and sizes are multiples of this: `1 << ashift`, for draid the bytes of a group's
    /// row.
    pub align: u64,
    /// Metaslab size.
    pub metaslab_shift: u8,
    /// The array of space maps; 0 for a new vdev.
    pub metaslab_array: ObjectId,
    /// Its class.
    pub class: AllocClass,
    /// Number of children, 1 for a leaf.
    pub children: u64,
    /// From asize to the bytes that users see.
    pub deflate_ratio: u64,
    /// From psize to asize.
    pub asize_of: AsizeFn,
}

impl fmt::Debug for VdevInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "vdev {} ({:?}, {} bytes)",
            self.vdev, self.class, self.asize
        )
    }
}

impl VdevInfo {
    /// Number of metaslabs.
    pub fn metaslab_count(&self) -> u64 {
        self.asize
            .checked_shr(u32::from(self.metaslab_shift))
            .unwrap_or(0)
    }

    /// The largest block with the same allocated size as the smallest one: a sector, for draid the
    /// data of a row.
    pub fn smallest_block(&self) -> u64 {
        let unit = 1u64 << self.ashift;
        let asize = |psize| (self.asize_of)(psize, Txg::MAX);
        let mut psize = unit;
        while psize < self.align && asize(psize + unit) == asize(unit) {
            psize += unit;
        }
        psize
    }

    /// The region of a metaslab; for draid trimmed to whole rows.
    pub(crate) fn region(&self, metaslab: u64) -> Region {
        let start = metaslab << self.metaslab_shift;
        let end = start.saturating_add(1 << self.metaslab_shift);
        let align = self.align.max(1);
        // A metaslab without a whole row has no space.
        let start = start
            .checked_next_multiple_of(align)
            .map_or(end, |s| s.min(end));
        let size = (end - start) / align * align;
        Region {
            vdev: self.vdev,
            metaslab,
            span: Span::new(start, size),
            shift: self.ashift,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        // From the disk: the shifts below must not overflow, and a DVA has 24 bits for the vdev.
        let sane = (9..=16).contains(&self.ashift)
            && self.metaslab_shift >= self.ashift
            && self.metaslab_shift < 63
            && self.align.is_multiple_of(1 << self.ashift)
            && self.align > 0
            && self.vdev < 1 << 24;
        if !sane {
            let what = format!(
                "ashift {}, metaslab shift {}",
                self.ashift, self.metaslab_shift
            );
            return Err(Error::corrupt(format!("vdev {}", self.vdev), what));
        }
        if self.metaslab_count() > MAX_METASLABS {
            let what = format!("{} metaslabs", self.metaslab_count());
            return Err(Error::unsupported(format!("vdev {}", self.vdev), what));
        }
        Ok(())
    }
}

/// Metaslabs with work to do.
#[derive(Default)]
struct Work {
    /// With changes, by txg.
    dirty: [BTreeSet<usize>; TXGS],
    /// With log entries to flush.
    flush: BTreeSet<usize>,
    /// Metaslabs with deferred frees.
    defers: BTreeSet<usize>,
}

/// The space of one top-level vdev.
pub(crate) struct VdevSpace {
    pub(crate) info: VdevInfo,
    metaslabs: Vec<Arc<Metaslab>>,
    /// The active metaslabs for copies 0, 1, 2 of blocks, and for log blocks.
    pub(super) active: [AtomicUsize; 4],
    array: AtomicU64,
    pub(super) open_for_new: AtomicBool,
    // Shared with the vdev as it was before it grew: a thread that writes an intent log may still
    // allocate by the old one.
    work: Arc<Mutex<Work>>,
    pub(super) allocated: Arc<AtomicU64>,
    pub(super) deferred: Arc<AtomicU64>,
    pub(super) capacity: AtomicU64,
    /// Space held only by the checkpoint. It counts as allocated.
    pub(super) kept: SideMap,
}

impl VdevSpace {
    pub(super) fn open(
        info: VdevInfo,
        store: &dyn MapStore,
        mut unflushed: BTreeMap<u64, Unflushed>,
        tripwire: Arc<Tripwire>,
    ) -> Result<Self> {
        info.check()?;
        let objects = read_array(&info, store)?;
        let mut metaslabs = Vec::with_capacity(objects.len());
        let mut work = Work::default();
        let (mut allocated, mut capacity) = (0, 0);
        for (index, object) in objects.into_iter().enumerate() {
            let region = info.region(index as u64);
            let map = object
                .some()
                .map(|object| SpaceMap::open(store, object, region))
                .transpose()?;
            let extra = unflushed.remove(&(index as u64)).unwrap_or_default();
            let metaslab = Metaslab::new(region, info.align, map, extra, tripwire.clone())?;
            if metaslab.has_unflushed() {
                work.flush.insert(index);
            }
            allocated += metaslab.recorded();
            capacity += region.span.size;
            metaslabs.push(Arc::new(metaslab));
        }
        // Its entries would be lost when the logs are retired.
        if let Some((metaslab, _)) = unflushed.into_iter().find(|(_, u)| !u.is_empty()) {
            let what = format!("a log space map names metaslab {metaslab}, which does not exist");
            return Err(Error::corrupt(format!("vdev {}", info.vdev), what));
        }
        let kept = SideMap::new(SideKind::Kept, info.vdev, info.asize, info.ashift);
        Ok(Self {
            kept,
            array: AtomicU64::new(info.metaslab_array.0),
            info,
            metaslabs,
            active: [const { AtomicUsize::new(NONE) }; 4],
            work: Arc::new(Mutex::new(work)),
            open_for_new: AtomicBool::new(true),
            allocated: Arc::new(AtomicU64::new(allocated)),
            deferred: Arc::default(),
            capacity: AtomicU64::new(capacity),
        })
    }

    /// A copy with the metaslabs of a larger size. The pending work of existing ones is shared.
    pub(super) fn grown(&self, info: VdevInfo, tripwire: Arc<Tripwire>) -> Result<Self> {
        info.check()?;
        // The same metaslabs, not copies: other threads use them meanwhile.
        let mut metaslabs = self.metaslabs.clone();
        let mut capacity = self.capacity.load(Relaxed);
        for index in metaslabs.len() as u64..info.metaslab_count() {
            let region = info.region(index);
            let empty = Unflushed::default();
            let metaslab = Metaslab::new(region, info.align, None, empty, tripwire.clone())?;
            capacity += region.span.size;
            metaslabs.push(Arc::new(metaslab));
        }
        // The new map of kept space starts empty, so the old one would be lost.
        assert!(
            self.kept.object().is_none() && !self.kept.is_dirty(),
            "a vdev grows while a checkpoint holds space of it"
        );
        let kept = SideMap::new(SideKind::Kept, info.vdev, info.asize, info.ashift);
        let active = |copy: usize| self.active.get(copy).map_or(NONE, |a| a.load(Relaxed));
        Ok(Self {
            kept,
            array: AtomicU64::new(self.array.load(Relaxed)),
            info,
            metaslabs,
            active: [0, 1, 2, 3].map(|copy| AtomicUsize::new(active(copy))),
            open_for_new: AtomicBool::new(self.open_for_new.load(Relaxed)),
            work: Arc::clone(&self.work),
            allocated: Arc::clone(&self.allocated),
            deferred: Arc::clone(&self.deferred),
            capacity: AtomicU64::new(capacity),
        })
    }

    pub(super) fn align(&self) -> u64 {
        self.info.align
    }

    pub(crate) fn metaslabs(&self) -> &[Arc<Metaslab>] {
        &self.metaslabs
    }

    pub(crate) fn array(&self) -> Option<ObjectId> {
        ObjectId(self.array.load(Relaxed)).some()
    }

    pub(super) fn set_array(&self, array: ObjectId) {
        self.array.store(array.0, Relaxed);
    }

    /// Bytes of free space, deferred space not counted.
    pub(super) fn free_bytes(&self) -> u64 {
        let used = self
            .allocated
            .load(Relaxed)
            .saturating_add(self.deferred.load(Relaxed));
        self.capacity.load(Relaxed).saturating_sub(used)
    }

    /// The range, cut at metaslab boundaries.
    pub(super) fn pieces(
        &self,
        offset: u64,
        asize: u64,
    ) -> Result<Vec<(usize, Arc<Metaslab>, Span)>> {
        let metaslabs = self.metaslabs();
        let wrong = || {
            let what = format!(
                "range {} is not inside its metaslabs",
                Span::new(offset, asize)
            );
            Error::corrupt(format!("vdev {}", self.info.vdev), what)
        };
        let unit = 1u64 << self.info.ashift;
        let end = offset.checked_add(asize).ok_or_else(wrong)?;
        if asize == 0 || !offset.is_multiple_of(unit) || !asize.is_multiple_of(unit) {
            return Err(wrong());
        }
        let (first, last) = (
            offset >> self.info.metaslab_shift,
            (end - 1) >> self.info.metaslab_shift,
        );
        if last >= metaslabs.len() as u64 {
            return Err(wrong());
        }
        let mut pieces = Vec::with_capacity(1);
        for index in first..=last {
            let metaslab = metaslabs.get(index as usize).ok_or_else(wrong)?;
            let slot = Span::new(
                index << self.info.metaslab_shift,
                1 << self.info.metaslab_shift,
            );
            let part = slot.overlap(Span::new(offset, asize)).ok_or_else(wrong)?;
            // A dRAID's metaslab is trimmed to whole rows: there is no block in the rest.
            if !metaslab.region().span.contains(part) {
                return Err(wrong());
            }
            pieces.push((index as usize, Arc::clone(metaslab), part));
        }
        Ok(pieces)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }

    pub(super) fn mark_dirty(&self, txg: Txg, metaslab: usize) {
        self.work().dirty[txg.slot::<TXGS>()].insert(metaslab);
    }

    pub(super) fn is_dirty(&self, txg: Txg) -> bool {
        !self.work().dirty[txg.slot::<TXGS>()].is_empty()
    }

    pub(super) fn take_dirty(&self, txg: Txg) -> BTreeSet<usize> {
        let mut work = self.work();
        let mut all = mem::take(&mut work.dirty[txg.slot::<TXGS>()]);
        // Once: the first writable txg moves the log entries of all metaslabs.
        all.append(&mut work.flush);
        all
    }

    pub(super) fn mark_defers(&self, metaslab: usize) {
        self.work().defers.insert(metaslab);
    }

    pub(super) fn take_defers(&self) -> BTreeSet<usize> {
        mem::take(&mut self.work().defers)
    }
}

/// The map objects of all metaslabs; 0 where the array ends early.
fn read_array(info: &VdevInfo, store: &dyn MapStore) -> Result<Vec<ObjectId>> {
    let count = info.metaslab_count();
    let Some(array) = info.metaslab_array.some() else {
        return Ok(vec![ObjectId::ZERO; count as usize]);
    };
    let mut objects = Vec::with_capacity(count as usize);
    let mut piece = vec![0; ARRAY_PIECE.min(count * 8) as usize];
    while (objects.len() as u64) < count {
        let left = (count - objects.len() as u64) * 8;
        let take = left.min(ARRAY_PIECE) as usize;
        let Some(buf) = piece.get_mut(..take) else {
            break;
        };
        store.read_at(array, objects.len() as u64 * 8, buf)?;
        objects.extend(
            buf.as_chunks::<8>()
                .0
                .iter()
                .map(|word| ObjectId(u64::from_le_bytes(*word))),
        );
    }
    Ok(objects)
}

/// A placeholder for the store before the MOS exists.
pub(super) struct NoStore;

impl NoStore {
    fn refuse<T>(object: ObjectId) -> Result<T> {
        Err(Error::corrupt(
            format!("MOS object {object}"),
            "a space map is needed before the MOS is open",
        ))
    }
}

impl MapStore for NoStore {
    fn open(&self, object: ObjectId) -> Result<StoredObject> {
        Self::refuse(object)
    }

    fn read_block(
        &self,
        object: ObjectId,
        _: u64,
        _: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        Self::refuse(object)
    }

    fn read_at(&self, object: ObjectId, _: u64, _: &mut [u8]) -> Result<()> {
        Self::refuse(object)
    }

    fn read_zap(&self, zap: ObjectId, _: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        Self::refuse(zap)
    }
}

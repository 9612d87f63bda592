//! The pool's allocator: all metaslabs of all top-level vdevs, by class.
//!
//! ```text
//! allocate ─▶ class ─▶ rotor picks a vdev ─▶ active metaslab of that copy ─▶ first or best fit
//!                       │ full: next vdev      │ no fit: best other metaslab, loaded if need be
//! ```
//!
//! # Invariants
//!
//! - The result of `allocate` is in exactly one metaslab's `allocating` set; on an error nothing is
//!   kept. The metaslab asserts the first.
//! - A metaslab with changes in a txg is in the vdev's `dirty` set of that txg before its sync
//!   starts. Once the txg is on disk no metaslab has changes of it, which is asserted.
//! - Copies of one block are on different vdevs, or in different metaslabs, or at least in
//!   different places; the last is asserted.
//!
//! `allocated` of a vdev is the allocated space in its maps, plus allocations not yet appended,
//! minus frees. `deferred` is freed space that cannot be allocated yet. Neither counts log entries
//! twice. Wrong numbers of a forged map are only displayed, so they are not asserted. The tests
//! compare them with a model after each step of random histories.
//!
//! # Locks
//!
//! The table of vdevs is a shared snapshot. An allocation takes the rotor's lock (a few
//! instructions) and one metaslab's lock. Sets of dirty metaslabs are behind one lock per vdev,
//! taken once per metaslab and txg.
//!
//! # How a txg is synced
//!
//! Call [`Allocator::sync_pass`] in every pass, after the blocks of that pass have been allocated
//! and freed, until the MOS stays clean. Then write the uberblock, and call
//! [`Allocator::sync_done`]. Appending dirties MOS blocks. They are rewritten in place from pass 2
//! on, so a later pass finds no new changes and the loop ends.

mod checkpoint;
mod figures;
mod leaving;
mod place;
mod removed;
mod side_map;
mod sync;
mod vdev;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use zuse_base::sync::{Mutex, RwLock};

use zuse_base::{Error, ObjectId, Result, Span, Tripwire, Txg};
use zuse_io::{AllocClass, Allocate, Allocation};

use crate::log_space_map::{LogObjects, LogState};
use crate::metaslab::Unflushed;
use crate::space_map::{MapShape, MapStore};

pub(crate) use checkpoint::Discarding;
pub use figures::{ClassFigures, Reserve, slop_of};
pub(crate) use side_map::SideKind;
pub use sync::Released;
pub use vdev::{AsizeFn, VdevInfo};

use removed::Removed;
use vdev::VdevSpace;

/// How maps are written; follows the pool's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapOptions {
    /// Feature `log_spacemap` is enabled: new maps have blocks of 128 KiB, else 16 KiB.
    pub large_blocks: bool,
    /// Feature `spacemap_histogram` is enabled: new maps have a histogram.
    pub histogram: bool,
    /// Feature `spacemap_v2` is active: two-word entries may be written.
    pub two_words: bool,
}

impl MapOptions {
    pub(crate) fn shape(self) -> MapShape {
        MapShape {
            block_size: if self.large_blocks {
                128 << 10
            } else {
                16 << 10
            },
            histogram: self.histogram,
        }
    }
}

/// Idle metaslabs whose free trees stay in memory, at most.
const KEEP_LOADED: u64 = 48;

/// The current vdevs; replaced as a whole when one is added, grows or is removed.
#[derive(Default)]
pub(crate) struct Spaces {
    vdevs: BTreeMap<u32, Arc<VdevSpace>>,
    removed: BTreeMap<u32, Arc<Removed>>,
    /// By [`class_index`].
    classes: [Vec<Arc<VdevSpace>>; 4],
}

fn class_index(class: AllocClass) -> usize {
    match class {
        AllocClass::Normal => 0,
        AllocClass::Special | AllocClass::Small => 1,
        AllocClass::Dedup => 2,
        AllocClass::Log => 3,
    }
}

/// The pool's allocator.
pub struct Allocator {
    store: RwLock<Option<Arc<dyn MapStore>>>,
    spaces: RwLock<Arc<Spaces>>,
    options: RwLock<MapOptions>,
    rotors: [place::Rotor; 4],
    /// Log entries wait for the first writable txg.
    logs: Mutex<Option<LogState>>,
    /// The txg of the last pass and its number.
    pass: Mutex<(Txg, u32)>,
    histogram_delta: AtomicI64,
    /// Blocks born up to this txg belong to the checkpoint; 0 without one.
    checkpoint: AtomicU64,
    /// Frees on removed vdevs are recorded (feature `obsolete_counts` is enabled).
    note_obsolete: AtomicBool,
    /// Change in the number of uses of `obsolete_counts`, not reported to the features yet.
    obsolete_delta: AtomicI64,
    min_allocation: AtomicU64,
    max_contiguous: AtomicU64,
    keep_loaded: AtomicU64,
    report_released: AtomicBool,
    tripwire: OnceLock<Arc<Tripwire>>,
    tick: AtomicU64,
}

impl Allocator {
    /// An allocator without vdevs.
    pub fn new(options: MapOptions) -> Arc<Self> {
        Arc::new(Self {
            store: RwLock::new(None),
            spaces: RwLock::default(),
            options: RwLock::new(options),
            rotors: Default::default(),
            logs: Mutex::new(None),
            pass: Mutex::new((Txg::ZERO, 0)),
            histogram_delta: AtomicI64::new(0),
            checkpoint: AtomicU64::new(0),
            note_obsolete: AtomicBool::new(false),
            obsolete_delta: AtomicI64::new(0),
            min_allocation: AtomicU64::new(512),
            max_contiguous: AtomicU64::new(u64::MAX),
            keep_loaded: AtomicU64::new(KEEP_LOADED),
            report_released: AtomicBool::new(false),
            tripwire: OnceLock::new(),
            tick: AtomicU64::new(0),
        })
    }

    /// Sets the tripwire of the pool; before there are metaslabs.
    pub fn set_tripwire(&self, tripwire: Arc<Tripwire>) {
        let _ = self.tripwire.set(tripwire);
    }

    /// Sets the store of the maps. The allocator keeps it alive until [`Allocator::detach`].
    pub fn attach(&self, store: Arc<dyn MapStore>) {
        *self.store.write() = Some(store);
    }

    /// Releases the store: it holds the MOS, which holds the pipeline, which holds the allocator.
    pub fn detach(&self) {
        *self.store.write() = None;
    }

    /// Blocks above this size are refused with `Ok(None)`, so that gang blocks appear (for tests).
    pub fn set_max_contiguous(&self, bytes: u64) {
        self.max_contiguous.store(bytes, Relaxed);
    }

    /// How many idle free trees stay in memory.
    pub fn set_keep_loaded(&self, metaslabs: u64) {
        self.keep_loaded.store(metaslabs.max(1), Relaxed);
    }

    /// Whether [`Allocator::sync_done`] lists space that became allocatable (for TRIM).
    pub fn set_report_released(&self, on: bool) {
        self.report_released.store(on, Relaxed);
    }

    /// Opens a vdev whose maps exist, or adds a new one (`metaslab_array` 0: all free).
    ///
    /// # Errors
    /// The array or a map's header is unreadable or invalid, or the geometry is invalid.
    pub fn add_vdev(&self, info: VdevInfo) -> Result<()> {
        self.add_vdev_with(info, BTreeMap::new())
    }

    /// Opens all vdevs of a pool that has log space maps; their entries are flushed by the first
    /// sync.
    ///
    /// # Errors
    /// As [`Allocator::add_vdev`]; also if a log cannot be read or is invalid.
    pub fn open_with_logs(&self, vdevs: Vec<VdevInfo>, objects: &LogObjects) -> Result<()> {
        vdevs.iter().try_for_each(VdevInfo::check)?;
        let (state, mut pending) = LogState::read(&*self.store(), &vdevs, objects)?;
        for info in vdevs {
            let unflushed = pending.remove(&info.vdev).unwrap_or_default();
            self.add_vdev_with(info, unflushed)?;
        }
        *self.logs.lock() = Some(state).filter(|s| !s.is_empty());
        Ok(())
    }

    fn add_vdev_with(&self, info: VdevInfo, unflushed: BTreeMap<u64, Unflushed>) -> Result<()> {
        let tripwire = self.tripwire.get().cloned().unwrap_or_default();
        let space = Arc::new(VdevSpace::open(info, &*self.store(), unflushed, tripwire)?);
        self.change(|spaces| {
            spaces.classes[class_index(space.info.class)].push(Arc::clone(&space));
            spaces.vdevs.insert(space.info.vdev, Arc::clone(&space));
        });
        Ok(())
    }

    /// Whether new blocks may go to the vdev (property `allocating`, removal, faults).
    ///
    /// # Errors
    /// There is no such vdev.
    pub fn set_allocating(&self, vdev: u32, on: bool) -> Result<()> {
        self.vdev(vdev)?.open_for_new.store(on, Relaxed);
        Ok(())
    }

    /// The object of its metaslab array; none before the first sync that changes the vdev.
    pub fn metaslab_array(&self, vdev: u32) -> Option<ObjectId> {
        self.spaces().vdevs.get(&vdev).and_then(|v| v.array())
    }

    /// Marks a range as allocated in `txg`, before any allocation (ZIL blocks at import). Returns
    /// whether it was free.
    ///
    /// # Errors
    /// The range is outside the vdev or only partly free, or a map cannot be loaded.
    pub fn claim(&self, txg: Txg, vdev: u32, offset: u64, asize: u64) -> Result<bool> {
        let space = self.vdev(vdev)?;
        let store = self.store();
        let mut claimed = false;
        for (index, metaslab, span) in space.pieces(offset, asize)? {
            if let Some(first) = metaslab.claim(&*store, txg, span)? {
                claimed = true;
                space.allocated.fetch_add(span.size, Relaxed);
                if first {
                    space.mark_dirty(txg, index);
                }
            }
        }
        Ok(claimed)
    }

    /// Excludes the free space of a range from allocation, so that it can be trimmed. Returns its
    /// parts.
    ///
    /// # Errors
    /// The range is outside the vdev.
    pub fn hold_free(&self, vdev: u32, span: Span) -> Result<Vec<Span>> {
        let pieces = self.vdev(vdev)?.pieces(span.start, span.size)?;
        Ok(pieces
            .into_iter()
            .flat_map(|(_, metaslab, span)| metaslab.hold(span))
            .collect())
    }

    /// Makes held parts allocatable again.
    ///
    /// # Errors
    /// A part is outside the vdev.
    pub fn release_held(&self, vdev: u32, parts: &[Span]) -> Result<()> {
        let space = self.vdev(vdev)?;
        for part in parts {
            space
                .pieces(part.start, part.size)?
                .into_iter()
                .for_each(|(_, m, span)| m.release(&[span]));
        }
        Ok(())
    }

    /// The allocatable spans of a metaslab, loading it (for TRIM, initialize and reports).
    ///
    /// # Errors
    /// There is no such metaslab, or its map cannot be loaded.
    pub fn free_spans(&self, vdev: u32, metaslab: u64) -> Result<Vec<Span>> {
        let space = self.vdev(vdev)?;
        let metaslabs = space.metaslabs();
        let Some(metaslab) = usize::try_from(metaslab)
            .ok()
            .and_then(|m| metaslabs.get(m))
        else {
            return Err(Error::missing(
                format!("vdev {vdev}"),
                format!("there is no metaslab {metaslab}"),
            ));
        };
        loop {
            metaslab.load(&*self.store())?;
            // Another thread may unload it between the two calls.
            if let Some(spans) = metaslab.free_spans() {
                return Ok(spans.iter().collect());
            }
        }
    }

    fn change(&self, edit: impl FnOnce(&mut Spaces)) {
        let mut guard = self.spaces.write();
        // A new table: other threads continue with the one that they hold.
        let mut spaces = Spaces {
            vdevs: guard.vdevs.clone(),
            removed: guard.removed.clone(),
            classes: guard.classes.clone(),
        };
        edit(&mut spaces);
        let smallest = spaces.classes[0]
            .iter()
            .map(|v| v.info.smallest_block())
            .min();
        self.min_allocation.store(smallest.unwrap_or(512), Relaxed);
        *guard = Arc::new(spaces);
    }

    fn spaces(&self) -> Arc<Spaces> {
        Arc::clone(&self.spaces.read())
    }

    fn options(&self) -> MapOptions {
        *self.options.read()
    }

    fn store(&self) -> Arc<dyn MapStore> {
        let store = self.store.read().clone();
        store.unwrap_or_else(|| Arc::new(vdev::NoStore))
    }

    /// Frees a range of a present vdev, or leaves it to the checkpoint alone.
    fn free_at(&self, space: &VdevSpace, txg: Txg, born: Txg, span: Span) -> Result<()> {
        let pieces = space.pieces(span.start, span.size)?;
        // It stays allocated in the map, so that nothing overwrites the checkpoint's block.
        if born.0 <= self.checkpoint.load(Relaxed) {
            pieces
                .iter()
                .try_for_each(|(_, metaslab, part)| metaslab.check_taken(*part))?;
            return space.kept.note(span);
        }
        for (index, metaslab, span) in pieces {
            let first = metaslab.free(txg, span)?;
            space.deferred.fetch_add(span.size, Relaxed);
            // Checked here, too: without its tree a metaslab cannot see a double free.
            if space.allocated.fetch_sub(span.size, Relaxed) < span.size {
                let what = format!("more than all is freed: range {span}");
                let place = format!("vdev {}", space.info.vdev);
                metaslab.contradict(&place, &what);
                return Err(Error::corrupt(place, what));
            }
            if first {
                space.mark_dirty(txg, index);
            }
        }
        Ok(())
    }

    fn vdev(&self, vdev: u32) -> Result<Arc<VdevSpace>> {
        let found = self.spaces().vdevs.get(&vdev).cloned();
        found.ok_or_else(|| {
            Error::corrupt(
                format!("vdev {vdev}"),
                "a block refers to a vdev that has no space",
            )
        })
    }
}

impl Allocate for Allocator {
    fn allocate(
        &self,
        txg: Txg,
        psize: u64,
        copies: usize,
        class: AllocClass,
    ) -> Result<Option<Allocation>> {
        self.place(txg, psize, copies, class)
    }

    fn free_dva(&self, txg: Txg, born: Txg, vdev: u32, offset: u64, asize: u64) -> Result<()> {
        let spaces = self.spaces();
        if let Some(space) = spaces.vdevs.get(&vdev) {
            return self.free_at(space, txg, born, Span::new(offset, asize));
        }
        // The vdev was removed: its blocks are where the mapping says.
        let moved = self.where_now(&spaces, vdev, Span::new(offset, asize))?;
        for (space, span) in &moved.places {
            self.free_at(space, txg, born, *span)?;
        }
        self.note_obsolete(&moved.obsolete)
    }

    fn min_allocation(&self) -> u64 {
        self.min_allocation.load(Relaxed)
    }
}

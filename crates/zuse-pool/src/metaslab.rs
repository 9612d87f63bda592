//! One metaslab: a region of a top-level vdev, the unit in which space is loaded and allocated.
//!
//! # Where a byte of the region is
//!
//! ```text
//!        allocate            sync pass                        free_dva           sync pass
//! free ───────────▶ allocating[txg] ──▶ allocated (map: ALLOC) ──────▶ freeing[txg] ──▶ freed (map: FREE)
//!  ▲                                                                                       │ commit
//!  └──────────── defer[1] ◀──────── commit ──────── defer[0] ◀─────────────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - A byte is in at most one of: free tree, `allocating[*]`, `freed`, `defer[*]`, `held`, or
//!   "allocated". Asserted for each span that is allocated. Asserted for all sets at a load and,
//!   while they are small, at a commit.
//! - `freeing[t]` is part of "allocated", or of `allocating[t]` for a block that is born and dies
//!   in t. Frees come from disk: a range that is not allocated is `Corrupt`, and triggers the
//!   pool's tripwire.
//! - The map on disk, plus unflushed log entries, describes all space that is not allocated. So at
//!   a load: free tree = map − `allocating[*]` − `freed` − `defer[*]` − `held`; otherwise it is
//!   `Corrupt`.
//! - Space freed in a committed txg becomes allocatable when two more txgs are committed. A power
//!   cut may destroy the newest uberblocks; the tree of the remaining one must be intact. Asserted
//!   for each allocated span, as is that it lies within the region.
//!
//! # Locks
//!
//! `map` is held while the map is read or appended to. `state` (rank 900) is held only for work in
//! memory, and no lock is taken under it. Order: map, then state. `map` has no rank: the MOS is
//! read under it, and a sync that writes the MOS may come here for space. The sync thread takes the
//! sets out of the state, appends them under the map lock and puts the freed ones back. A load
//! needs the map lock too, so it never sees half of that. Nothing allocates while it holds either:
//! a load under the map lock reads MOS blocks and writes none.

mod fit;
mod sync;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::sync::{RankedMutex, RankedMutexGuard};
use zuse_base::tripwire::{Tripwire, Watched, at};
use zuse_base::{Error, RangeError, RangeTree, Result, SizedRangeTree, Span, Txg};

use crate::space_map::{MapStore, Region, SpaceMap};

pub(crate) use sync::SyncPass;

/// Txgs that can be alive at once, rounded up: open, quiescing, syncing.
pub(crate) const TXGS: usize = 4;
/// Number of later txgs that have to commit before freed space is allocatable.
pub(crate) const DEFERS: usize = 2;

/// Entries of log space maps that are not in the metaslab's own map yet; disjoint sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unflushed {
    pub allocs: RangeTree,
    pub frees: RangeTree,
}

impl Unflushed {
    pub(crate) fn is_empty(&self) -> bool {
        self.allocs.is_empty() && self.frees.is_empty()
    }

    /// Σ allocs − Σ frees.
    pub(crate) fn delta(&self) -> i64 {
        (self.allocs.space() as i64).wrapping_sub(self.frees.space() as i64)
    }

    /// Applies one log entry: it cancels contradicting ones and adds the rest.
    ///
    /// # Errors
    /// The entry repeats what an earlier entry says.
    pub(crate) fn apply(&mut self, alloc: bool, span: Span) -> Result<(), RangeError> {
        let (same, other) = if alloc {
            (&mut self.allocs, &mut self.frees)
        } else {
            (&mut self.frees, &mut self.allocs)
        };
        // What the other set has is undone: neither of the two entries has to reach the map.
        let rest: Vec<Span> = other.gaps_in(span).collect();
        other.clear_span(span);
        rest.into_iter().try_for_each(|part| same.add(part))
    }
}

/// The map and its state; held over I/O.
#[derive(Debug, Default)]
struct MapSide {
    map: Option<SpaceMap>,
    /// Whether the metaslab array names the map.
    listed: bool,
    unflushed: Unflushed,
}

/// The sets; held only for work in memory.
#[derive(Debug, Default)]
struct State {
    /// Allocatable now; `None` while not loaded.
    free: Option<SizedRangeTree>,
    cursor: u64,
    allocating: [RangeTree; TXGS],
    freeing: [RangeTree; TXGS],
    freed: RangeTree,
    defer: [RangeTree; DEFERS],
    /// Free, but temporarily not allocatable (a TRIM runs).
    held: RangeTree,
    /// Why the map cannot be loaded; nothing is allocated here then.
    broken: Option<Error>,
}

/// How an attempt to allocate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Space at this offset; `first` if the metaslab was clean in that txg.
    Got { offset: u64, first: bool },
    /// No free segment is long enough.
    NoFit,
    /// The free tree is not in memory.
    NotLoaded,
}

/// One metaslab.
#[derive(Debug)]
pub(crate) struct Metaslab {
    region: Region,
    align: u64,
    map: Mutex<MapSide>,
    state: RankedMutex<State, 900>,
    tripwire: Arc<Tripwire>,
    /// Upper bound on the longest free segment.
    longest: AtomicU64,
    /// Length of the longest free segment, as far as known without loading.
    estimate: AtomicU64,
    /// Allocatable bytes, about.
    free_space: AtomicU64,
    loaded: AtomicBool,
    broken: AtomicBool,
    /// Tick of the last allocation.
    pub(crate) used_at: AtomicU64,
}

impl Metaslab {
    /// A metaslab with its map (`None`: never used, all free) and the log entries on top of it.
    pub(crate) fn new(
        region: Region,
        align: u64,
        map: Option<SpaceMap>,
        unflushed: Unflushed,
        tripwire: Arc<Tripwire>,
    ) -> Result<Self> {
        // The header leaves out the entries that are only in logs (01-pool §5.5).
        let alloc = map
            .as_ref()
            .map_or(0, |m| m.header().alloc)
            .wrapping_add(unflushed.delta());
        let Some(free) = u64::try_from(alloc)
            .ok()
            .and_then(|a| region.span.size.checked_sub(a))
        else {
            let size = region.span.size;
            return Err(Error::miscounted(
                region.to_string(),
                format!("{alloc} of {size} bytes are allocated"),
            ));
        };
        let metaslab = Self {
            region,
            align,
            map: Mutex::new(MapSide {
                listed: map.is_some(),
                map,
                unflushed,
            }),
            state: RankedMutex::default(),
            tripwire,
            longest: AtomicU64::new(free),
            estimate: AtomicU64::new(free),
            free_space: AtomicU64::new(free),
            loaded: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            used_at: AtomicU64::new(0),
        };
        metaslab.guess();
        Ok(metaslab)
    }

    fn map_side(&self) -> Watched<'_, MutexGuard<'_, MapSide>> {
        let side = self.map.lock();
        self.tripwire.hold(at::METASLAB, side)
    }

    fn state(&self) -> Watched<'_, RankedMutexGuard<'_, State>> {
        self.tripwire.hold(at::METASLAB, self.state.lock())
    }

    /// Where it is.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// The object of its map.
    #[cfg(test)]
    pub(crate) fn object(&self) -> Option<zuse_base::ObjectId> {
        self.map_side().map.as_ref().map(SpaceMap::object)
    }

    /// The object of its map, and whether it has a histogram.
    pub(crate) fn map(&self) -> Option<(zuse_base::ObjectId, bool)> {
        let side = self.map_side();
        let map = side.map.as_ref()?;
        Some((map.object(), map.header().histogram.is_some()))
    }

    /// Allocated bytes according to the map and the log entries on top of it.
    pub(crate) fn recorded(&self) -> u64 {
        let side = self.map_side();
        let alloc = side
            .map
            .as_ref()
            .map_or(0, |m| m.header().alloc)
            .wrapping_add(side.unflushed.delta());
        u64::try_from(alloc).unwrap_or(0)
    }

    pub(crate) fn has_unflushed(&self) -> bool {
        !self.map_side().unflushed.is_empty()
    }

    /// An upper bound of the longest free segment.
    pub(crate) fn longest(&self) -> u64 {
        self.longest.load(Relaxed)
    }

    /// A guess of the longest free segment.
    pub(crate) fn estimate(&self) -> u64 {
        self.estimate.load(Relaxed)
    }

    /// Allocatable bytes, about.
    pub(crate) fn free_space(&self) -> u64 {
        self.free_space.load(Relaxed)
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Relaxed)
    }

    /// Why nothing is allocated here, if its map is broken.
    pub(crate) fn trouble(&self) -> Option<Error> {
        if !self.broken.load(Relaxed) {
            return None;
        }
        self.state().broken.clone()
    }

    /// Loads the free tree into memory.
    ///
    /// # Errors
    /// The map cannot be read or contradicts itself or the sets in memory. Nothing is allocated
    /// here from then on.
    pub(crate) fn load(&self, store: &dyn MapStore) -> Result<()> {
        // First: a sync pass takes sets out of the state while it has this lock.
        let side = self.map_side();
        if self.state().free.is_some() {
            return Ok(());
        }
        // Retried once on an error: an indirect block may have been rewritten in place under the
        // reader.
        let loaded = self
            .read_map(&side, store)
            .or_else(|_| self.read_map(&side, store));
        let mut state = self.state();
        let tree = loaded.and_then(|mut free| {
            state
                .subtract_pending(&mut free)
                .map_err(|e| Error::corrupt(self.region.to_string(), e))?;
            Ok(free.iter().collect::<SizedRangeTree>())
        });
        match tree {
            Ok(tree) => {
                // The tree is new, so the old position means nothing.
                state.cursor = self.region.span.start;
                state.free = Some(tree);
                state.broken = None;
                self.broken.store(false, Relaxed);
                self.note(&state);
                #[cfg(debug_assertions)]
                state.check_invariants(&self.region);
                Ok(())
            }
            Err(error) => {
                // An unreadable map may be readable later; a contradictory one stays so.
                if matches!(error, Error::Corrupt { .. }) {
                    self.longest.store(0, Relaxed);
                    state.broken = Some(error.clone());
                    self.broken.store(true, Relaxed);
                }
                Err(error)
            }
        }
    }

    fn read_map(&self, side: &MapSide, store: &dyn MapStore) -> Result<RangeTree> {
        let mut free = match &side.map {
            Some(map) => map.load(store)?,
            None => std::iter::once(self.region.span)
                .filter(|s| s.size > 0)
                .collect(),
        };
        let wrong = |e: RangeError| Error::corrupt(format!("{}, log space maps", self.region), e);
        side.unflushed
            .allocs
            .iter()
            .try_for_each(|span| free.remove(span))
            .map_err(wrong)?;
        side.unflushed
            .frees
            .iter()
            .try_for_each(|span| free.add(span))
            .map_err(wrong)?;
        Ok(free)
    }

    /// Drops the free tree, unless a load or an append is in progress.
    pub(crate) fn unload(&self) -> bool {
        // Not waited for: the holder may be reading the MOS. A later call tries again.
        let Some(_side) = self.map.try_lock() else {
            return false;
        };
        // The hints stay: they order the metaslabs until the next load.
        let mut state = self.state();
        if state.free.take().is_none() {
            return false;
        }
        self.loaded.store(false, Relaxed);
        true
    }

    /// Takes `asize` bytes for `txg`.
    pub(crate) fn allocate(&self, txg: Txg, asize: u64) -> Result<Attempt> {
        let mut state = self.state();
        let State {
            free,
            cursor,
            allocating,
            freeing,
            freed,
            defer,
            held,
            broken,
        } = &mut *state;
        let Some(tree) = free else {
            return broken.clone().map_or(Ok(Attempt::NotLoaded), Err);
        };
        let Some(span) = fit::choose(tree, self.region.span, *cursor, asize, self.align) else {
            return Ok(Attempt::NoFit);
        };
        let wrong = |e| Error::corrupt(self.region.to_string(), e);
        assert!(
            self.region.span.contains(span),
            "{}: an allocation of {span} leaves it",
            self.region
        );
        // A block may be reused only when two txgs after the one that freed it are on disk.
        assert!(
            !freed.intersects(span) && !defer.iter().any(|d| d.intersects(span)),
            "{}: {span} is given out before its old block is out of reach",
            self.region
        );
        assert!(
            !held.intersects(span) && !allocating.iter().any(|a| a.intersects(span)),
            "{}: {span} is given out twice",
            self.region
        );
        let slot = txg.slot::<TXGS>();
        let first = allocating[slot].is_empty() && freeing[slot].is_empty();
        tree.remove(span).map_err(wrong)?;
        if let Err(error) = allocating[slot].add(span) {
            // Undone: a span in none of the sets could not be allocated until the next load.
            tree.add(span).map_err(wrong)?;
            return Err(wrong(error));
        }
        *cursor = span.end();
        self.note(&state);
        Ok(Attempt::Got {
            offset: span.start,
            first,
        })
    }

    /// Reverts an unused allocation of the same txg.
    pub(crate) fn unallocate(&self, txg: Txg, span: Span) -> Result<()> {
        let mut state = self.state();
        let wrong = |e| Error::corrupt(self.region.to_string(), e);
        state.allocating[txg.slot::<TXGS>()]
            .remove(span)
            .map_err(wrong)?;
        // Without a tree nothing is to undo: the map never had this allocation.
        if let Some(tree) = &mut state.free {
            tree.add(span).map_err(wrong)?;
        }
        self.note(&state);
        Ok(())
    }

    /// Frees a span in `txg`. Returns whether the metaslab was clean in that txg.
    ///
    /// # Errors
    /// The span is free already, as far as memory knows.
    pub(crate) fn free(&self, txg: Txg, span: Span) -> Result<bool> {
        let mut state = self.state();
        if state.is_free(span) || !self.region.span.contains(span) {
            return Err(self.freed_twice(span));
        }
        let slot = txg.slot::<TXGS>();
        let State {
            allocating,
            freeing,
            ..
        } = &mut *state;
        let first = allocating[slot].is_empty() && freeing[slot].is_empty();
        freeing[slot]
            .add(span)
            .map_err(|e| Error::corrupt(self.region.to_string(), e))?;
        Ok(first)
    }

    /// Refuses to leave a free span to the checkpoint alone.
    ///
    /// # Errors
    /// The span is free already, as far as memory knows.
    pub(crate) fn check_taken(&self, span: Span) -> Result<()> {
        match self.state().is_free(span) {
            true => Err(self.freed_twice(span)),
            false => Ok(()),
        }
    }

    pub(crate) fn contradict(&self, place: &dyn std::fmt::Display, what: &str) {
        self.tripwire.contradict(place, what);
    }

    /// Two owners of one range, or a forged one. Nothing written after this can be trusted: the
    /// range may have another owner already.
    fn freed_twice(&self, span: Span) -> Error {
        let what = format!("range {span} is freed, but is not allocated");
        self.tripwire.contradict(&self.region, &what);
        Error::corrupt(self.region.to_string(), what)
    }

    /// Whether something freed in `txg` could not be checked, because the free tree is not in
    /// memory.
    pub(crate) fn frees_unseen(&self, txg: Txg) -> bool {
        let state = self.state();
        state.free.is_none() && !state.freeing[txg.slot::<TXGS>()].is_empty()
    }

    /// Marks a span as allocated in `txg`. Returns false if it is allocated already, otherwise
    /// whether the metaslab was clean.
    ///
    /// # Errors
    /// Only a part is free, or the map cannot be loaded.
    pub(crate) fn claim(&self, store: &dyn MapStore, txg: Txg, span: Span) -> Result<Option<bool>> {
        loop {
            self.load(store)?;
            let mut state = self.state();
            let slot = txg.slot::<TXGS>();
            let State {
                free,
                allocating,
                freeing,
                ..
            } = &mut *state;
            // Unloaded meanwhile by another thread.
            let Some(tree) = free else { continue };
            // Allocated already: most often its txg was committed before the crash.
            if !tree.intersects(span) {
                return Ok(None);
            }
            let first = allocating[slot].is_empty() && freeing[slot].is_empty();
            let wrong = |e| Error::corrupt(self.region.to_string(), e);
            // A range that is free only in part has two owners, and is refused here.
            tree.remove(span).map_err(wrong)?;
            allocating[slot].add(span).map_err(wrong)?;
            self.note(&state);
            return Ok(Some(first));
        }
    }

    /// Excludes the free parts of `span` from allocation, so that they can be trimmed. Empty while
    /// not loaded.
    pub(crate) fn hold(&self, span: Span) -> Vec<Span> {
        let mut state = self.state();
        let State {
            free: Some(tree),
            held,
            ..
        } = &mut *state
        else {
            return Vec::new();
        };
        let parts: Vec<Span> = tree.parts_in(span).collect();
        for &part in &parts {
            tree.clear_span(part);
            held.add_missing(part);
        }
        self.note(&state);
        parts
    }

    /// Makes held parts allocatable again.
    pub(crate) fn release(&self, parts: &[Span]) {
        let mut state = self.state();
        for &part in parts {
            // Without a tree it is free in the map, where the next load finds it.
            if state.held.clear_span(part) > 0
                && let Some(tree) = &mut state.free
            {
                tree.add_missing(part);
            }
        }
        self.note(&state);
    }

    /// A copy of the allocatable spans, for reports; `None` while not loaded.
    pub(crate) fn free_spans(&self) -> Option<RangeTree> {
        self.state
            .lock()
            .free
            .as_ref()
            .map(|tree| tree.iter().collect())
    }

    /// Updates the hints from the free tree.
    fn note(&self, state: &State) {
        if let Some(tree) = &state.free {
            let longest = tree.largest().map_or(0, |s| s.size);
            self.longest.store(longest, Relaxed);
            self.estimate.store(longest, Relaxed);
            self.free_space.store(tree.space(), Relaxed);
            self.loaded.store(true, Relaxed);
        }
    }

    /// Estimates from the histogram of an unloaded map. It may be outdated: it orders the
    /// metaslabs, but never excludes one.
    fn guess(&self) {
        let side = self.map_side();
        if let Some(buckets) = side
            .map
            .as_ref()
            .and_then(|m| m.header().histogram.as_ref())
            && let Some(top) = buckets.iter().rposition(|&n| n > 0)
        {
            let shift = top as u32 + u32::from(self.region.shift);
            let size = 1u64.checked_shl(shift).unwrap_or(u64::MAX);
            self.estimate.store(size.min(self.free_space()), Relaxed);
        }
    }
}

impl State {
    /// Panics if a byte is in two sets; walks all of them.
    #[cfg(debug_assertions)]
    fn check_invariants(&self, region: &Region) {
        let free = self.free.iter().flat_map(SizedRangeTree::iter);
        let sets = self.allocating.iter().chain(&self.defer);
        let others = sets.chain([&self.freed, &self.held]);
        let mut all = RangeTree::new();
        for span in others.flat_map(RangeTree::iter).chain(free) {
            let once = region.span.contains(span) && all.add(span).is_ok();
            assert!(once, "{region}: {span} stands in two sets, or beyond it");
        }
        if let Some(tree) = &self.free {
            tree.check_invariants();
        }
    }

    /// Whether any of the span is free, as far as memory knows.
    fn is_free(&self, span: Span) -> bool {
        self.free.as_ref().is_some_and(|t| t.intersects(span))
            || self.freed.intersects(span)
            || self.freeing.iter().any(|f| f.intersects(span))
            || self.defer.iter().any(|d| d.intersects(span))
    }

    /// Removes the spans that are not allocatable from `free`, the map's state.
    fn subtract_pending(&self, free: &mut RangeTree) -> Result<(), RangeError> {
        // Without `freeing`: that space is still allocated in the map.
        let sets = self
            .allocating
            .iter()
            .chain(&self.defer)
            .chain([&self.freed, &self.held]);
        sets.flat_map(RangeTree::iter)
            .try_for_each(|span| free.remove(span))
    }
}

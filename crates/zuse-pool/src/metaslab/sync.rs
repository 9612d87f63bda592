//! A metaslab in syncing context: appends its sets to its map, and advances freed space.

use std::mem;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(debug_assertions)]
use zuse_base::Txg;
use zuse_base::{Error, ObjectId, RangeTree, Result, Span};
use zuse_format::space_map::histogram_add;

use super::{Metaslab, State, TXGS, Unflushed};
use crate::space_map::{
    Append, Histogram, MapShape, MapWriter, SpaceMap, histogram_of, optimal_length,
};

/// Maps of at most this many blocks are not condensed.
const CONDENSE_BLOCKS: u64 = 4;
/// Free trees of at most this many segments are counted again for the histogram in every pass.
const CHEAP_HISTOGRAM: usize = 4096;
/// Free trees of at most this many segments are checked at each commit, in debug builds.
#[cfg(debug_assertions)]
const CHEAP_LOOK: usize = 1024;

/// One pass over the dirty metaslabs of a txg.
#[derive(Clone, Copy)]
pub(crate) struct SyncPass<'a> {
    pub writer: &'a dyn MapWriter,
    /// Counted from 1 in each txg.
    pub pass: u32,
    pub shape: MapShape,
    /// Feature `spacemap_v2` is active.
    pub two_words: bool,
}

/// The result of a pass for one metaslab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    /// The map object, if the metaslab array does not name it yet.
    pub unlisted: Option<ObjectId>,
    /// Whether anything was written.
    pub appended: bool,
    /// Whether it has deferred frees now.
    pub defers: bool,
}

impl Metaslab {
    /// Appends the changes of the writer's txg since the last pass, and log entries, if any.
    ///
    /// # Errors
    /// The MOS cannot be changed; the sets are unchanged then.
    pub(crate) fn sync(&self, how: SyncPass<'_>) -> Result<Synced> {
        let slot = how.writer.txg().slot::<TXGS>();
        // Held for the whole pass: a load must not find the sets taken out, but not yet in the map.
        let mut side = self.map_side();
        let (allocs, frees) = {
            let mut state = self.state();
            // Frees recorded while the tree was not loaded are checked against it now.
            if let Some(tree) = &state.free
                && let Some(twice) = state.freeing[slot].iter().find(|s| tree.intersects(*s))
            {
                return Err(self.freed_twice(twice));
            }
            (
                mem::take(&mut state.allocating[slot]),
                mem::take(&mut state.freeing[slot]),
            )
        };
        // Entries that were only in a log are written to the map together with those of this txg.
        let unflushed = mem::take(&mut side.unflushed);
        let mut done = Synced::default();
        let result = self.write(&mut side.map, how, &allocs, &frees, &unflushed, &mut done);
        let mut state = self.state();
        if let Err(error) = result {
            // Data after the map's length is ignored: the state is unchanged.
            side.unflushed = unflushed;
            state.allocating[slot] = allocs;
            state.freeing[slot] = frees;
            return Err(error);
        }
        for span in frees.iter() {
            state
                .freed
                .add(span)
                .map_err(|e| Error::corrupt(self.region.to_string(), e))?;
        }
        // Freed now, allocatable only two txgs later: until then an older uberblock may use it.
        done.defers = !state.freed.is_empty();
        done.unlisted = side
            .map
            .as_ref()
            .filter(|_| !side.listed)
            .map(SpaceMap::object);
        Ok(done)
    }

    fn write(
        &self,
        map: &mut Option<SpaceMap>,
        how: SyncPass<'_>,
        allocs: &RangeTree,
        frees: &RangeTree,
        unflushed: &Unflushed,
        done: &mut Synced,
    ) -> Result<()> {
        if allocs.is_empty() && frees.is_empty() && unflushed.is_empty() {
            return Ok(());
        }
        let map = match map {
            // A metaslab gets its map with its first block, because most of a large vdev have none.
            Some(map) => map,
            None => map.insert(SpaceMap::create(how.writer, how.shape, self.region)?),
        };
        // Before the map is changed: it is computed from the free space, not from the map.
        let histogram = self.histogram(map, how.pass, frees);
        let append = Append {
            pass: how.pass,
            two_words: how.two_words,
            histogram: histogram.as_ref(),
        };
        // Not in later passes, which would condense the map repeatedly while it changes.
        if how.pass == 1
            && let Some(free) = self.worth_condensing(map, how, frees)
        {
            map.condense(how.writer, append, &free)?;
        } else {
            // The older entries first, because a map is read from the beginning.
            map.append(how.writer, append, &unflushed.allocs, &unflushed.frees)?;
            map.append(how.writer, append, allocs, frees)?;
        }
        done.appended = true;
        Ok(())
    }

    /// The free space to write if the map is condensed: all space that is free at the end of this
    /// pass.
    fn worth_condensing(
        &self,
        map: &SpaceMap,
        how: SyncPass<'_>,
        frees: &RangeTree,
    ) -> Option<RangeTree> {
        // Nothing is gained by rewriting a short one.
        if map.blocks() <= CONDENSE_BLOCKS {
            return None;
        }
        let state = self.state();
        let tree = state.free.as_ref()?;
        // A free segment takes at least a word.
        if map.header().length < 16 * tree.len() as u64 {
            return None;
        }
        let free = state.free_on_disk(frees)?;
        // The rest works on the copy, while other threads allocate.
        drop(state);
        // Only if that halves the map, because condensing writes all of it.
        let limit = map.header().length / 2;
        (optimal_length(&free, self.region.shift, how.two_words, limit) <= limit).then_some(free)
    }

    fn histogram(&self, map: &SpaceMap, pass: u32, frees: &RangeTree) -> Option<Histogram> {
        let old = map.header().histogram.as_ref()?;
        let state = self.state();
        let shift = self.region.shift;
        match &state.free {
            Some(tree) if pass == 1 || tree.len() <= CHEAP_HISTOGRAM => {
                // Space that waits is free in the map already.
                let waiting = state
                    .defer
                    .iter()
                    .chain([&state.freed, frees])
                    .flat_map(RangeTree::iter);
                Some(histogram_of(tree.iter().chain(waiting), shift))
            }
            // A large tree in a later pass: the map keeps the histogram of the pass before.
            Some(_) => None,
            // Not loaded: freed space is added. Adjacent segments are not joined, which is only
            // less exact.
            None => {
                let mut buckets = *old;
                frees
                    .iter()
                    .for_each(|span| histogram_add(&mut buckets, u32::from(shift), span.size));
                Some(buckets)
            }
        }
    }

    /// Whether nothing of a txg is left to append.
    #[cfg(debug_assertions)]
    pub(crate) fn is_synced(&self, txg: Txg) -> bool {
        let state = self.state();
        let slot = txg.slot::<TXGS>();
        state.allocating[slot].is_empty() && state.freeing[slot].is_empty()
    }

    /// The array names the map now. Returns whether the map has a histogram.
    pub(crate) fn set_listed(&self) -> bool {
        let mut side = self.map_side();
        side.listed = true;
        side.map
            .as_ref()
            .is_some_and(|m| m.header().histogram.is_some())
    }

    /// The txg is on disk: freed space advances by one stage. `visit` gets the space that became
    /// allocatable. Returns its size, and whether deferred frees are left.
    pub(crate) fn committed(&self, mut visit: impl FnMut(Span)) -> (u64, bool) {
        let mut state = self.state();
        let freed = mem::take(&mut state.freed);
        let oldest = match state.defer.last_mut() {
            Some(last) => mem::take(last),
            None => RangeTree::new(),
        };
        debug_assert!(
            freed
                .iter()
                .all(|s| !state.defer.iter().any(|d| d.intersects(s))),
            "{}: a block is freed that waits already",
            self.region()
        );
        // The oldest is next, in the next txg.
        state.defer.rotate_right(1);
        state.defer[0] = freed;
        if let Some(tree) = &mut state.free {
            for span in oldest.iter() {
                // Disjoint by the invariants; space that is listed twice is added once.
                tree.add_missing(span);
            }
            self.note(&state);
        // There is no tree to add it to: the next load finds it free in the map.
        } else if !oldest.is_empty() {
            let free = self.free_space.fetch_add(oldest.space(), Relaxed) + oldest.space();
            // The longest segment is unknown now, and this bound is always right.
            self.longest
                .store(if state.broken.is_some() { 0 } else { free }, Relaxed);
            self.estimate
                .fetch_max(oldest.iter().map(|s| s.size).max().unwrap_or(0), Relaxed);
        }
        let waits = state.defer.iter().any(|d| !d.is_empty());
        #[cfg(debug_assertions)]
        if state.free.as_ref().is_some_and(|f| f.len() <= CHEAP_LOOK) {
            state.check_invariants(self.region());
        }
        // Released before the caller's code runs.
        drop(state);
        oldest.iter().for_each(&mut visit);
        (oldest.space(), waits)
    }
}

impl State {
    /// All space that the map must show as free after a pass that appends `frees`. Space allocated
    /// in later txgs is free as of this one. `None` while not loaded, or if the sets contradict
    /// each other.
    fn free_on_disk(&self, frees: &RangeTree) -> Option<RangeTree> {
        let mut free: RangeTree = self.free.as_ref()?.iter().collect();
        let sets =
            self.allocating
                .iter()
                .chain(&self.defer)
                .chain([&self.freed, &self.held, frees]);
        // Space that is free in the maps on disk, although it was allocated or freed in later txgs.
        sets.flat_map(RangeTree::iter)
            .try_for_each(|span| free.add(span))
            .ok()?;
        Some(free)
    }
}

//! Choosing vdev and metaslab for the copies of a block.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use zuse_base::sync::Mutex;

use zuse_base::{Errno, Error, Result, Span, Txg};
use zuse_format::Dva;
use zuse_io::{AllocClass, Allocation};

use super::vdev::{NONE, VdevSpace};
use super::{Allocator, Spaces, class_index};
use crate::metaslab::{Attempt, Metaslab};

/// Bytes per child that are allocated from a vdev before the rotor moves to the next one.
const ALIQUOT: u64 = 512 << 10;
/// Small blocks of files go to special vdevs that are less full than this.
const SMALL_PERCENT: u64 = 75;
/// The slot of the active metaslab for log blocks on ordinary vdevs. Log blocks are short-lived,
/// and would leave holes among long-lived blocks. Others use that metaslab only if it is the last
/// with room.
const LOG_SLOT: usize = 3;
/// Largest DVA, in bytes.
const MAX_ASIZE: u64 = ((1 << 24) - 1) * 512;

/// Which vdev of a class new blocks go to.
#[derive(Default)]
pub(super) struct Rotor(Mutex<RotorState>);

#[derive(Default)]
struct RotorState {
    at: usize,
    /// Bytes until the rotor moves.
    left: u64,
}

/// A copy with its place.
#[derive(Clone)]
struct Placed {
    vdev: Arc<VdevSpace>,
    index: usize,
    metaslab: Arc<Metaslab>,
    span: Span,
}

/// How far apart a copy must be from earlier copies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    OtherVdev,
    OtherMetaslab,
    Anywhere,
}

impl Rotor {
    /// The position of the vdev for a block of `psize` bytes.
    fn next_vdev(&self, members: &[Arc<VdevSpace>], psize: u64) -> usize {
        if members.len() < 2 {
            return 0;
        }
        let mut state = self.0.lock();
        // A vdev may have been removed since.
        state.at %= members.len();
        if state.left == 0 {
            state.at = (state.at + 1) % members.len();
            state.left = members.get(state.at).map_or(ALIQUOT, |v| quota(v, members));
        }
        state.left = state.left.saturating_sub(psize);
        state.at
    }
}

/// Bytes until the rotor leaves a vdev. Vdevs emptier than the class's average get more, so that
/// all fill up together.
fn quota(vdev: &VdevSpace, members: &[Arc<VdevSpace>]) -> u64 {
    let sum =
        |of: &dyn Fn(&VdevSpace) -> u64| members.iter().map(|v| u128::from(of(v))).sum::<u128>();
    // At least 1, because a full class must not divide by zero.
    let free = sum(&|v| v.free_bytes()).max(1);
    let capacity = sum(&|v| v.capacity.load(Relaxed)).max(1);
    let base = u128::from(ALIQUOT * vdev.info.children.max(1));
    let own = u128::from(vdev.capacity.load(Relaxed)).max(1);
    // base * (own free / own capacity) / (free / capacity), in 1/1024
    let share = u128::from(vdev.free_bytes()) * 1024 / own * 1024 / (free * 1024 / capacity).max(1);
    // Within bounds, so that a new and empty vdev does not get all writes.
    u64::try_from(base * share.clamp(128, 8192) / 1024).unwrap_or(ALIQUOT)
}

/// The classes that a class's blocks may use, in this order.
fn fallbacks(class: AllocClass) -> &'static [AllocClass] {
    match class {
        AllocClass::Normal => &[AllocClass::Normal],
        AllocClass::Special | AllocClass::Small => &[AllocClass::Special, AllocClass::Normal],
        AllocClass::Dedup => &[AllocClass::Dedup, AllocClass::Special, AllocClass::Normal],
        AllocClass::Log => &[AllocClass::Log, AllocClass::Special, AllocClass::Normal],
    }
}

impl Allocator {
    pub(super) fn place(
        &self,
        txg: Txg,
        psize: u64,
        copies: usize,
        class: AllocClass,
    ) -> Result<Option<Allocation>> {
        if psize == 0 || !(1..=3).contains(&copies) {
            return Err(Error::refused(
                Errno::INVAL,
                format!("{copies} copies of {psize} bytes are asked for"),
            ));
        }
        let smallest = psize <= self.min_allocation.load(Relaxed).max(512);
        if psize > self.max_contiguous.load(Relaxed) && !smallest {
            return Ok(None);
        }
        let spaces = self.spaces();
        let mut trouble = None;
        for &at in fallbacks(class) {
            if class == AllocClass::Small && at == AllocClass::Special && self.is_special_full() {
                continue;
            }
            let slot = match class == AllocClass::Log && at != AllocClass::Log {
                true => LOG_SLOT,
                false => 0,
            };
            let many = (copies, slot);
            if let Some(found) = self.place_in(&spaces, at, txg, psize, many, &mut trouble)? {
                return Ok(Some(found));
            }
        }
        match trouble {
            // Larger blocks can still be split. The smallest cannot, so the error is reported.
            Some(error) if smallest => Err(error),
            None if smallest => Err(Error::refused(
                Errno::NOSPC,
                format!("no vdev has {copies} × {psize} bytes left"),
            )),
            _ => Ok(None),
        }
    }

    /// Whether the special vdevs reserve the rest of their space for metadata.
    fn is_special_full(&self) -> bool {
        let figures = self.figures(AllocClass::Special);
        figures.allocated >= figures.capacity / 100 * SMALL_PERCENT
    }

    fn place_in(
        &self,
        spaces: &Spaces,
        class: AllocClass,
        txg: Txg,
        psize: u64,
        (copies, slot): (usize, usize),
        trouble: &mut Option<Error>,
    ) -> Result<Option<Allocation>> {
        let members = &spaces.classes[class_index(class)];
        if members.is_empty() {
            return Ok(None);
        }
        let mut start = self.rotors[class_index(class)].next_vdev(members, psize);
        let mut placed: [Option<Placed>; 3] = [const { None }; 3];
        for copy in 0..copies {
            match self.place_copy(members, start, slot + copy, txg, psize, &placed, trouble) {
                Some((position, found)) => {
                    start = position + 1;
                    placed[copy] = Some(found);
                }
                None => {
                    // Nothing is kept, because the caller has no record of the copies that
                    // succeeded.
                    for undo in placed.iter().flatten() {
                        undo.metaslab.unallocate(txg, undo.span)?;
                        undo.vdev.allocated.fetch_sub(undo.span.size, Relaxed);
                    }
                    return Ok(None);
                }
            }
        }
        let mut dvas = [Dva::EMPTY; 3];
        for (dva, found) in dvas.iter_mut().zip(placed.iter().flatten()) {
            *dva = Dva::new(
                found.vdev.info.vdev,
                found.span.start,
                found.span.size,
                false,
            );
        }
        // One bad sector must not destroy two copies of a block.
        debug_assert!(
            dvas.iter()
                .enumerate()
                .all(|(i, a)| *a == Dva::EMPTY || dvas[..i].iter().all(|b| !overlap(a, b))),
            "two copies share bytes: {dvas:?}"
        );
        Ok(Some(Allocation {
            dvas,
            count: copies,
        }))
    }

    #[allow(clippy::too_many_arguments)]
    fn place_copy(
        &self,
        members: &[Arc<VdevSpace>],
        start: usize,
        slot: usize,
        txg: Txg,
        psize: u64,
        placed: &[Option<Placed>; 3],
        trouble: &mut Option<Error>,
    ) -> Option<(usize, Placed)> {
        for apart in [Apart::OtherVdev, Apart::OtherMetaslab, Apart::Anywhere] {
            for step in 0..members.len() {
                let position = (start + step) % members.len();
                let vdev = members.get(position)?;
                let here = |p: &&Placed| Arc::ptr_eq(&p.vdev, vdev);
                let shared = placed.iter().flatten().filter(here).count() > 0;
                // Vdevs without an earlier copy were tried in the first round.
                if shared == (apart == Apart::OtherVdev) || !vdev.open_for_new.load(Relaxed) {
                    continue;
                }
                let avoid = |index: usize| {
                    apart == Apart::OtherMetaslab
                        && placed
                            .iter()
                            .flatten()
                            .filter(here)
                            .any(|p| p.index == index)
                };
                match self.place_on(vdev, slot, txg, psize, &avoid) {
                    Ok(Some(found)) => return Some((position, found)),
                    Ok(None) => {}
                    // An unreadable map must not stop the pool while other metaslabs have space.
                    Err(error) => *trouble = Some(error),
                }
            }
            // Without earlier copies, the first round has tried everything.
            placed.iter().flatten().next()?;
        }
        None
    }

    /// A place on a vdev, in the slot's active metaslab or the best other one.
    fn place_on(
        &self,
        vdev: &Arc<VdevSpace>,
        slot: usize,
        txg: Txg,
        psize: u64,
        avoid: &dyn Fn(usize) -> bool,
    ) -> Result<Option<Placed>> {
        let asize = (vdev.info.asize_of)(psize, txg);
        if asize == 0 || asize > MAX_ASIZE || !asize.is_multiple_of(vdev.align()) {
            let what = format!("a block of {psize} bytes would take {asize}");
            return Err(Error::corrupt(format!("vdev {}", vdev.info.vdev), what));
        }
        let metaslabs = vdev.metaslabs();
        let active = vdev.active.get(slot).map_or(NONE, |a| a.load(Relaxed));
        // Whatever fails here, the search below tries every metaslab.
        if let Some(metaslab) = metaslabs
            .get(active)
            .filter(|m| m.longest() >= asize && !avoid(active))
            && let Ok(Attempt::Got { offset, first }) = metaslab.allocate(txg, asize)
        {
            return Ok(Some(self.placed(
                vdev,
                active,
                metaslab,
                txg,
                Span::new(offset, asize),
                first,
            )));
        }
        let mut order: Vec<_> = (0..metaslabs.len())
            .filter(|&index| !avoid(index))
            .filter_map(|index| Some((index, metaslabs.get(index)?)))
            .filter(|(_, metaslab)| metaslab.longest() >= asize)
            .map(|(index, metaslab)| {
                let rank = Self::rank(vdev, slot, asize, index, metaslab);
                Reverse((rank, Reverse(index)))
            })
            .collect();
        order.sort_unstable();
        let mut trouble = None;
        for Reverse((_, Reverse(index))) in order {
            let Some(metaslab) = metaslabs.get(index) else {
                continue;
            };
            match self.load_and_allocate(metaslab, txg, asize) {
                Ok(Attempt::Got { offset, first }) => {
                    if let Some(active) = vdev.active.get(slot) {
                        active.store(index, Relaxed);
                    }
                    return Ok(Some(self.placed(
                        vdev,
                        index,
                        metaslab,
                        txg,
                        Span::new(offset, asize),
                        first,
                    )));
                }
                Ok(Attempt::NoFit | Attempt::NotLoaded) => {}
                Err(error) => trouble = Some(error),
            }
        }
        // A metaslab with a broken map is not in the order.
        let trouble = trouble.or_else(|| metaslabs.iter().find_map(|m| m.trouble()));
        trouble.map_or(Ok(None), Err)
    }

    /// How well a metaslab suits a block, the best last: enough room by the estimate, not another
    /// slot's, much room, loaded.
    fn rank(
        vdev: &VdevSpace,
        slot: usize,
        asize: u64,
        index: usize,
        metaslab: &Metaslab,
    ) -> (bool, bool, Option<u32>, bool) {
        let idle = vdev
            .active
            .iter()
            .enumerate()
            .all(|(c, a)| c == slot || a.load(Relaxed) != index);
        let estimate = metaslab.estimate();
        (
            estimate >= asize,
            idle,
            estimate.checked_ilog2(),
            metaslab.is_loaded(),
        )
    }

    fn load_and_allocate(&self, metaslab: &Metaslab, txg: Txg, asize: u64) -> Result<Attempt> {
        // Another thread may unload it again before anything is allocated.
        loop {
            let attempt = metaslab.allocate(txg, asize)?;
            if attempt != Attempt::NotLoaded {
                return Ok(attempt);
            }
            // The load holds this metaslab's map lock only; other allocations continue in other
            // metaslabs.
            metaslab.load(&*self.store())?;
            metaslab
                .used_at
                .store(self.tick.fetch_add(1, Relaxed), Relaxed);
            self.unload_idle();
        }
    }

    fn placed(
        &self,
        vdev: &Arc<VdevSpace>,
        index: usize,
        metaslab: &Arc<Metaslab>,
        txg: Txg,
        span: Span,
        first: bool,
    ) -> Placed {
        vdev.allocated.fetch_add(span.size, Relaxed);
        metaslab
            .used_at
            .store(self.tick.fetch_add(1, Relaxed), Relaxed);
        if first {
            vdev.mark_dirty(txg, index);
        }
        Placed {
            vdev: Arc::clone(vdev),
            index,
            metaslab: Arc::clone(metaslab),
            span,
        }
    }

    /// Drops the least recently used free trees, down to the limit.
    pub(super) fn unload_idle(&self) {
        let keep = usize::try_from(self.keep_loaded.load(Relaxed)).unwrap_or(usize::MAX);
        let spaces = self.spaces();
        let mut loaded = Vec::new();
        for vdev in spaces.vdevs.values() {
            for (index, metaslab) in vdev
                .metaslabs()
                .iter()
                .enumerate()
                .filter(|(_, m)| m.is_loaded())
            {
                // Not the active ones: the next block would load them again.
                if vdev.active.iter().all(|a| a.load(Relaxed) != index) {
                    loaded.push((metaslab.used_at.load(Relaxed), Arc::clone(metaslab)));
                }
            }
        }
        let Some(surplus) = loaded.len().checked_sub(keep).filter(|&n| n > 0) else {
            return;
        };
        loaded.sort_unstable_by_key(|(used_at, _)| *used_at);
        loaded.iter().take(surplus).for_each(|(_, metaslab)| {
            metaslab.unload();
        });
    }
}

fn overlap(a: &Dva, b: &Dva) -> bool {
    a.vdev() == b.vdev()
        && a.offset() < b.offset() + b.asize()
        && b.offset() < a.offset() + a.asize()
}

//! The thread that initializes and trims devices.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use zuse_base::{Result, Span};
use zuse_vdev::{Leaf, Top};

use super::{VdevWorkKind, VdevWorkState};
use crate::Pool;

/// Bytes of free space that are excluded from allocation at a time.
const STEP: u64 = 4 << 20;
/// Bytes of the pattern that are written at a time.
const PIECE: usize = 1 << 20;
/// The pattern in initialized space, for each word.
const PATTERN: u64 = 0xdead_beef_dead_beee;
/// How much work a power cut repeats, at most.
const NOTED_EVERY: Duration = Duration::from_secs(5);
/// A pause in which others have the device for themselves.
const PAUSE: Duration = Duration::from_millis(1);
/// Pauses before each step, at most.
const PAUSES: u32 = 5;
/// A pause where nothing can be done.
const WAIT: Duration = Duration::from_millis(100);

/// Where the work on a device is.
struct Place {
    zap: u64,
    kind: VdevWorkKind,
    metaslab: u64,
    /// Free space of the metaslab before that, as of the last check.
    spans: VecDeque<Span>,
    began: Instant,
    /// Bytes since then, for the rate.
    bytes: u64,
}

/// The result of a step.
enum Step {
    /// Everything up to that offset of the device is done.
    Done(u64),
    /// Nothing could be done.
    Waits,
    /// The end of the device.
    End,
    /// The device is missing, or was told to stop.
    Gone,
}

pub(super) struct Worker {
    pool: Arc<Pool>,
    places: VecDeque<Place>,
    pattern: Vec<u8>,
    noted: Instant,
}

impl Worker {
    pub fn new(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            places: VecDeque::new(),
            pattern: Vec::new(),
            noted: Instant::now(),
        }
    }

    /// Works until nothing is active, or the pool is being closed.
    pub fn run(mut self) {
        while !self.pool.vdev_work.stop.load(Relaxed) {
            self.look();
            let Some(mut place) = self.places.pop_front() else {
                return;
            };
            let step = match self.step(&mut place) {
                Ok(step) => step,
                // The error shows in the device's own state and counters; other devices can still
                // be processed.
                Err(_) => Step::Waits,
            };
            self.note(&place, &step);
            if let Step::Waits = step {
                // The caller that stops the work ends the wait.
                std::thread::park_timeout(WAIT);
            }
            if !matches!(step, Step::End | Step::Gone) {
                self.places.push_back(place);
            }
        }
    }

    /// Adds newly active work.
    fn look(&mut self) {
        let all = self.pool.vdev_work.all.lock();
        for work in all.iter().filter(|s| s.state == VdevWorkState::Active) {
            let known = |p: &Place| (p.zap, p.kind) == (work.zap, work.kind);
            if !self.places.iter().any(known) {
                self.places.push_back(Place {
                    zap: work.zap,
                    kind: work.kind,
                    metaslab: 0,
                    spans: VecDeque::new(),
                    began: Instant::now(),
                    bytes: 0,
                });
            }
        }
    }

    fn note(&mut self, place: &Place, step: &Step) {
        // Before the list is locked: the configuration is never locked under it.
        let left_pool = matches!(step, Step::Gone) && self.pool.leaf_of_zap(place.zap).is_none();
        let mut all = self.pool.vdev_work.all.lock();
        let own = |s: &&mut super::LeafWork| (s.zap, s.kind) == (place.zap, place.kind);
        let Some(work) = all
            .iter_mut()
            .find(own)
            .filter(|s| s.state == VdevWorkState::Active)
        else {
            return;
        };
        if left_pool {
            all.retain(|s| (s.zap, s.kind) != (place.zap, place.kind));
            return;
        }
        let mut due = self.noted.elapsed() >= NOTED_EVERY;
        match step {
            Step::Done(next) => {
                work.next = work.next.max(*next);
                work.dirty = true;
            }
            Step::End => {
                work.state = VdevWorkState::Complete;
                work.dirty = true;
                due = true;
            }
            Step::Gone | Step::Waits => {}
        }
        due &= work.dirty;
        // This lock is a leaf, and `want` takes another one.
        drop(all);
        if due {
            self.noted = Instant::now();
            self.pool.vdev_work.due.store(true, Relaxed);
            self.pool.txgs.want(self.pool.open_txg());
        }
    }

    fn step(&mut self, place: &mut Place) -> Result<Step> {
        let found = {
            let all = self.pool.vdev_work.all.lock();
            let own = all
                .iter()
                .find(|s| (s.zap, s.kind) == (place.zap, place.kind));
            own.filter(|s| s.state == VdevWorkState::Active)
                .map(|s| (s.next, s.rate))
        };
        let (Some((next, rate)), Some((top, leaf))) = (found, self.leaf(place.zap)) else {
            return Ok(Step::Gone);
        };
        // In a suspended pool the free space is not certain.
        let still = self.pool.suspension.error().is_some() || !leaf.is_usable();
        if still || is_ahead(place, rate) {
            return Ok(Step::Waits);
        }
        let Some(allocator) = self.pool.allocator.get().cloned() else {
            return Ok(Step::Gone);
        };
        let Some(mut span) = place.spans.pop_front() else {
            return self.next_metaslab(place, &top, &leaf, next);
        };
        // Not more is held at a time, so that others find space to allocate.
        if span.size > STEP {
            place
                .spans
                .push_front(Span::new(span.start + STEP, span.size - STEP));
            span = Span::new(span.start, STEP);
        }
        give_way(&leaf);
        let parts = allocator.hold_free(top.id(), span)?;
        let done = self.work_on(place, &top, &leaf, &parts, next);
        // Also after an error: space that stays held cannot be allocated.
        allocator.release_held(top.id(), &parts)?;
        done.map(Step::Done)
    }

    /// The free space of the next metaslab, unless the device is done with it.
    fn next_metaslab(
        &self,
        place: &mut Place,
        top: &Arc<Top>,
        leaf: &Leaf,
        next: u64,
    ) -> Result<Step> {
        let shift = top.metaslab_shift();
        if shift == 0 || place.metaslab >= top.asize() >> shift {
            return Ok(Step::End);
        }
        let region = self.pool.metaslab_region(top.id(), place.metaslab);
        let (start, size) = region.unwrap_or((place.metaslab << shift, 1 << shift));
        let parts = top.parts_on(leaf.guid(), start, size);
        let end = parts.iter().map(|p| p.end()).max().unwrap_or(0);
        // A metaslab that ends before the position was done earlier.
        if end > next
            && let Some(allocator) = self.pool.allocator.get()
        {
            place.spans = allocator.free_spans(top.id(), place.metaslab)?.into();
        }
        place.metaslab += 1;
        Ok(Step::Done(next))
    }

    fn work_on(
        &mut self,
        place: &mut Place,
        top: &Top,
        leaf: &Leaf,
        parts: &[Span],
        next: u64,
    ) -> Result<u64> {
        let mut reached = next;
        for part in parts {
            for piece in top.parts_on(leaf.guid(), part.start, part.size) {
                // The part of it that is not done yet.
                let start = piece.start.max(next);
                let size = piece.end().saturating_sub(start);
                if size == 0 {
                    continue;
                }
                // After a panic the free space in memory may be wrong.
                self.pool.suspension.check_no_panic()?;
                match place.kind {
                    VdevWorkKind::Trim => drop(leaf.discard(start, size)?),
                    VdevWorkKind::Initialize => self.fill(leaf, start, size)?,
                }
                place.bytes += size;
                reached = reached.max(piece.end());
            }
        }
        Ok(reached)
    }

    fn fill(&mut self, leaf: &Leaf, start: u64, size: u64) -> Result<()> {
        if self.pattern.is_empty() {
            self.pattern = PATTERN.to_le_bytes().repeat(PIECE / 8);
        }
        let mut at = start;
        while at < start + size {
            let wanted = usize::try_from(start + size - at)
                .unwrap_or(PIECE)
                .min(PIECE);
            let piece = self.pattern.get(..wanted).unwrap_or_default();
            leaf.write(at, &[IoSlice::new(piece)])?;
            at += wanted as u64;
        }
        Ok(())
    }

    /// The device of that ZAP, and the vdev that it is part of.
    fn leaf(&self, zap: u64) -> Option<(Arc<Top>, Arc<Leaf>)> {
        let leaf = self.pool.leaf_of_zap(zap)?;
        let tops = self.pool.vdevs.tops();
        let own = |top: &&Arc<Top>| top.leaves().iter().any(|l| Arc::ptr_eq(l, &leaf));
        let top = tops.iter().find(own)?.clone();
        Some((top, leaf))
    }
}

/// Whether more was done than the rate allows.
fn is_ahead(place: &Place, rate: u64) -> bool {
    let allowed = place.began.elapsed().as_secs_f64() * rate as f64;
    rate > 0 && place.bytes as f64 > allowed
}

/// Pauses while others read and write.
fn give_way(leaf: &Leaf) {
    for _ in 0..PAUSES {
        if leaf.pending() == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

//! Writes of a txg, gathered so that neighbours go to a device in one call.
//!
//! ```text
//!   put(small block) ─► a run that ends where the block begins, or a new run
//!                          │ full, or the oldest of too many
//!                          ▼
//!   in flight (readable) ─► due ─► the device, one thread each ─► gone       drain(): everything, before the commit's flush
//! ```
//! Why: a txg of many small objects writes its blocks of 4 KiB side by side, because the allocator
//! hands space out in order. One call for each would cost more than all other steps of writing it,
//! mostly because the writing threads wait for the host's file lock. For the same reason only one
//! thread at a time writes to a device. A second thread hands its run to that thread and continues.
//!
//! Large writes may go past the host's page cache ([`zuse_vdev::Vdevs::bypasses_cache`]). There
//! blocks of more than [`ASIDE`] bytes have runs of their own, up to [`LARGE`] of them. The copy
//! into the run replaces the copy into the page cache. 64 KiB cost 37 to 57 µs of processor time
//! through the page cache and 6 to 9 past it. Such a run begins and ends at page boundaries. Bytes
//! after the last whole page wait for more. Smaller blocks stay in the page cache. They are mostly
//! metadata, which the next opening of the pool reads again.
//!
//! Invariants
//! - Bytes that were put and are not on the devices yet are found by [`Gather::peek`]. So a reader
//!   never sees the older bytes below. A block may be cut in two at the end of a page. Before it is
//!   read, its rest is written ([`Gather::holds_part`]).
//! - Two open runs never hold the same byte. No byte is open while an older version of it is in
//!   flight. So a block that is rewritten in place is changed in its run, or waits until the run is
//!   on the device. Asserted where a block is put.
//! - A device with due runs has a thread that writes to it. Asserted where a run is left to another
//!   thread, and where a thread ends.
//!
//! The commit drains before it flushes, and asserts that nothing is left. A run that cannot be
//! written stays in flight while the fault policy waits. Then its error goes to the next caller of
//! put or drain, and the txg is lost.
//!
//! Lock: a leaf, not held across I/O. It is held while a block is copied into its run (6 µs for 64
//! KiB). The next allocation would append to the same run.
//!
//! Memory: [`OPEN`] runs of [`FULL`] bytes ([`BULK`] for large blocks); per device, [`DUE`] due
//! runs and one in flight. Each run may grow to twice its size. Each thread that waits to hand over
//! a run has one more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zuse_base::sync::{Condvar, Mutex, MutexGuard};

use zuse_base::{Error, Result, Txg};
use zuse_device::PAGE;

/// Larger writes through the host's cache are not gathered: copying them costs more than a call.
pub(crate) const SMALL: usize = 32 << 10;
/// Larger writes go past the host's page cache where the device supports that.
pub(crate) const ASIDE: usize = 8 << 10;
/// Larger writes always go through the host's cache, not gathered.
pub(crate) const LARGE: usize = 1 << 20;
/// Size in bytes at which a run is written.
const FULL: usize = 256 << 10;
/// Size in bytes at which a run of large blocks is written.
const BULK: usize = 1 << 20;
/// Open runs at most: if several threads allocate in turn, neighbours arrive out of order.
const OPEN: usize = 16;

/// Runs that wait for the thread that writes to their device. A caller with one more waits.
const DUE: usize = 4;

/// Buffers that are kept for later runs.
const SPARE: usize = 4;

/// Bytes for one place.
pub(crate) struct Run {
    pub vdev: u32,
    pub txg: Txg,
    pub start: u64,
    /// A run of large blocks, to be written past the host's page cache.
    bulk: bool,
    buffer: Vec<u8>,
    /// Bytes of the buffer before the first one.
    lead: usize,
}

impl Run {
    /// Whether it touches another run of the same kind, and both together are not too long.
    fn can_join(&self, other: &Self) -> bool {
        let is_alike = self.vdev == other.vdev && self.txg == other.txg && self.bulk == other.bulk;
        let touches = self.end() == other.start || other.end() == self.start;
        is_alike && touches && self.len() + other.len() <= 2 * self.full()
    }

    fn new(txg: Txg, vdev: u32, start: u64, bulk: bool, mut buffer: Vec<u8>) -> Self {
        let mut lead = 0;
        if bulk {
            // Offsets are aligned as in the host's pages: the data area begins at a page boundary.
            let page = (start % PAGE as u64) as usize;
            lead = page.wrapping_sub(buffer.as_ptr().addr()) % PAGE;
        }
        buffer.clear();
        buffer.resize(lead, 0);
        Self {
            vdev,
            txg,
            start,
            bulk,
            buffer,
            lead,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.lead..]
    }

    fn len(&self) -> usize {
        self.buffer.len() - self.lead
    }

    fn full(&self) -> usize {
        if self.bulk { BULK } else { FULL }
    }

    fn end(&self) -> u64 {
        self.start + self.len() as u64
    }

    fn meets(&self, vdev: u32, start: u64, len: usize) -> bool {
        self.vdev == vdev && self.start < start + len as u64 && start < self.end()
    }

    /// Where the bytes of a place are in the buffer.
    fn part(&self, vdev: u32, start: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let from = usize::try_from(start.checked_sub(self.start)?).ok()? + self.lead;
        let to = from.checked_add(len)?;
        (self.vdev == vdev && to <= self.buffer.len()).then_some(from..to)
    }
}

#[derive(Default)]
struct State {
    /// In order of growth; the run that grew last is at the end.
    open: Vec<Run>,
    flying: Vec<Arc<Run>>,
    /// Runs in flight that no thread writes yet, oldest first.
    due: Vec<Arc<Run>>,
    /// Vdevs that a thread is writing to.
    busy: Vec<u32>,
    /// Error of a run that another thread had left.
    failed: Option<Error>,
    /// Buffers for reuse: for runs of small blocks, and of large ones.
    spare: [Vec<Vec<u8>>; 2],
}

impl State {
    /// Takes out an open run, joined with the runs that it touches. Unless `whole`, bytes after the
    /// last full page stay open and wait for more.
    fn take(&mut self, at: usize, whole: bool) -> Arc<Run> {
        let mut run = self.open.remove(at);
        while let Some(next) = self.open.iter().position(|r| run.can_join(r)) {
            let mut next = self.open.remove(next);
            if next.end() == run.start {
                std::mem::swap(&mut run, &mut next);
            }
            run.buffer.extend_from_slice(next.bytes());
            self.keep(next);
        }
        if !whole && let Some(rest) = self.cut(&mut run) {
            self.open.push(rest);
        }
        let run = Arc::new(run);
        // Moved under one lock: a reader finds the bytes open or in flight, at any time.
        self.flying.push(run.clone());
        run
    }

    /// Whether a run, open or in flight, has any byte of a place.
    fn meets(&self, vdev: u32, start: u64, len: usize) -> bool {
        let flying = self.flying.iter().map(|r| &**r);
        (flying.chain(&self.open)).any(|r| r.meets(vdev, start, len))
    }

    /// Whether each device with due runs has a thread that writes to it.
    fn is_served(&self) -> bool {
        self.due.iter().all(|r| self.busy.contains(&r.vdev))
    }

    fn make(&mut self, txg: Txg, vdev: u32, start: u64, bulk: bool) -> Run {
        // Enough for two joined runs. Beyond that the buffer moves, and loses its alignment.
        let room = if bulk { 2 * BULK + PAGE } else { FULL + SMALL };
        let buffer = self.spare[usize::from(bulk)].pop();
        let buffer = buffer.unwrap_or_else(|| Vec::with_capacity(room));
        Run::new(txg, vdev, start, bulk, buffer)
    }

    /// Cuts the bytes after the host's last full page off a run of large blocks.
    fn cut(&mut self, run: &mut Run) -> Option<Run> {
        let behind = (run.end() % PAGE as u64) as usize;
        if !run.bulk || behind == 0 || behind >= run.len() {
            return None;
        }
        let mut rest = self.make(run.txg, run.vdev, run.end() - behind as u64, true);
        let kept = run.buffer.len() - behind;
        rest.buffer.extend_from_slice(&run.buffer[kept..]);
        run.buffer.truncate(kept);
        Some(rest)
    }

    fn keep(&mut self, run: Run) {
        let spare = &mut self.spare[usize::from(run.bulk)];
        if spare.len() < SPARE {
            spare.push(run.buffer);
        }
    }
}

/// The runs of one pool.
#[derive(Default)]
pub(crate) struct Gather {
    state: Mutex<State>,
    landed: Condvar,
    /// The newest txg of any put since the last drain; changed under the lock. A thread that holds
    /// a pointer to the bytes sees it.
    txg: AtomicU64,
}

impl Gather {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds the bytes of a block, for a place of `room` bytes that belongs to it alone. With `bulk`
    /// they go into a run that is written past the host's page cache. `write` writes a run.
    pub fn put(
        &self,
        (txg, vdev, start): (Txg, u32, u64),
        bytes: &[u8],
        room: u64,
        bulk: bool,
        write: &dyn Fn(&Run) -> Result<()>,
    ) -> Result<()> {
        let most = if bulk { LARGE } else { SMALL };
        // The rest of the room is filled with zeros, so that runs have no gaps.
        let room = usize::try_from(room).unwrap_or(0).clamp(bytes.len(), most);
        let Some(mut state) = self.apart((vdev, start, room), Some(bytes), write)? else {
            return Ok(());
        };
        self.txg.fetch_max(txg.0, Relaxed);
        // A small block may follow large ones.
        let before =
            |r: &Run| r.vdev == vdev && r.txg == txg && r.end() == start && (r.bulk || !bulk);
        // Two runs with a common byte could reach the device in either order.
        debug_assert!(
            !state.meets(vdev, start, room),
            "vdev {vdev}, offset {start:#x}: these bytes are in another run"
        );
        let mut run = match state.open.iter().position(before) {
            Some(at) => state.open.remove(at),
            None => state.make(txg, vdev, start, bulk),
        };
        let filled = run.buffer.len() + room;
        run.buffer.extend_from_slice(bytes);
        run.buffer.resize(filled, 0);
        let is_full = run.len() >= run.full();
        state.open.push(run);
        // A full run is written. With too many open runs, the one that has not grown for longest is
        // written.
        let out = if is_full {
            state.open.len() - 1
        } else if state.open.len() > OPEN {
            0
        } else {
            return Ok(());
        };
        let run = state.take(out, !is_full);
        drop(state);
        self.send(run, write)
    }

    /// Writes all pending bytes of a place that is about to be written directly.
    pub fn make_way(
        &self,
        vdev: u32,
        start: u64,
        len: usize,
        write: &dyn Fn(&Run) -> Result<()>,
    ) -> Result<()> {
        self.apart((vdev, start, len), None, write).map(drop)
    }

    /// Whether bytes of a block with that birth may be pending. Older txgs are committed and have
    /// none.
    pub fn may_hold(&self, birth: u64) -> bool {
        let newest = self.txg.load(Relaxed);
        newest != 0 && birth >= newest
    }

    /// The bytes of a block that has not reached the devices yet.
    pub fn peek(&self, birth: Txg, vdev: u32, start: u64, len: usize) -> Option<Vec<u8>> {
        if !self.may_hold(birth.0) {
            return None;
        }
        let state = self.lock();
        let flying = state.flying.iter().map(|r| &**r);
        flying.chain(&state.open).find_map(|run| {
            let part = run.part(vdev, start, len)?;
            run.buffer.get(part).map(<[u8]>::to_vec)
        })
    }

    /// Whether part of a block has not reached the devices yet. A block across the end of a run of
    /// large blocks may be pending in part.
    pub fn holds_part(&self, birth: Txg, vdev: u32, start: u64, len: usize) -> bool {
        if !self.may_hold(birth.0) {
            return false;
        }
        let state = self.lock();
        let mut runs = state.flying.iter().map(|r| &**r).chain(&state.open);
        runs.any(|run| run.meets(vdev, start, len))
    }

    /// Whether nothing is open and nothing in flight.
    pub fn is_empty(&self) -> bool {
        let state = self.lock();
        state.open.is_empty() && state.flying.is_empty()
    }

    /// Writes all that is open and waits for what is in flight.
    pub fn drain(&self, write: &dyn Fn(&Run) -> Result<()>) -> Result<()> {
        let mut state = self.lock();
        while let Some(last) = state.open.len().checked_sub(1) {
            let run = state.take(last, true);
            drop(state);
            let sent = self.send(run, write);
            state = self.lock();
            if sent.is_err() {
                state.failed = None;
                // The error is passed on here, and must not fail the next caller as well.
                return sent;
            }
        }
        // Other threads may still write runs that were due before.
        while !state.flying.is_empty() {
            state = self.wait(state);
        }
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        // From here until the next put readers need not look here.
        self.txg.store(0, Relaxed);
        Ok(())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.landed.wait(state)
    }

    /// Waits until nothing is in flight for a place and no open run touches it. A place inside one
    /// open run is changed there if bytes are given. Then no guard is returned.
    fn apart(
        &self,
        (vdev, start, len): (u32, u64, usize),
        bytes: Option<&[u8]>,
        write: &dyn Fn(&Run) -> Result<()>,
    ) -> Result<Option<MutexGuard<'_, State>>> {
        let mut state = self.lock();
        loop {
            // The older bytes are on their way: newer ones must not overtake them.
            if state.flying.iter().any(|r| r.meets(vdev, start, len)) {
                state = self.wait(state);
                continue;
            }
            let Some(at) = state.open.iter().position(|r| r.meets(vdev, start, len)) else {
                return Ok(Some(state));
            };
            let run = &mut state.open[at];
            if let Some(bytes) = bytes
                && let Some(part) = run.part(vdev, start, len)
            {
                let (here, padding) = run.buffer[part].split_at_mut(bytes.len());
                here.copy_from_slice(bytes);
                // The block may have become shorter within its place.
                padding.fill(0);
                return Ok(None);
            }
            let run = state.take(at, true);
            drop(state);
            self.send(run, write)?;
            state = self.lock();
        }
    }

    /// Has a run in flight written. If a thread is writing to that device, it takes the run.
    /// Otherwise the caller writes it, and then the runs that others leave meanwhile.
    fn send(&self, run: Arc<Run>, write: &dyn Fn(&Run) -> Result<()>) -> Result<()> {
        let vdev = run.vdev;
        let of_this = |run: &Arc<Run>| run.vdev == vdev;
        let mut state = self.lock();
        while state.busy.contains(&vdev) {
            if let Some(error) = &state.failed {
                let error = error.clone();
                state.flying.retain(|r| !Arc::ptr_eq(r, &run));
                self.landed.notify_all();
                return Err(error);
            }
            if state.due.iter().filter(|r| of_this(r)).count() < DUE {
                state.due.push(run);
                debug_assert!(state.is_served(), "a run is due that nobody writes");
                return Ok(());
            }
            state = self.wait(state);
        }
        state.busy.push(vdev);
        let mut next = Some(run);
        while let Some(run) = next {
            drop(state);
            // Without the lock: it waits for the device.
            let written = write(&run);
            state = self.lock();
            state.flying.retain(|r| !Arc::ptr_eq(r, &run));
            if let Some(run) = Arc::into_inner(run) {
                state.keep(run);
            }
            if let Err(error) = written {
                // The thread that left this run has gone on: the next caller gets the error.
                state.failed.get_or_insert(error);
            }
            let at = state.due.iter().position(of_this);
            next = at.map(|at| state.due.remove(at));
            self.landed.notify_all();
        }
        // In the same lock as the last look at the due runs: none is left without a thread.
        state.busy.retain(|v| *v != vdev);
        debug_assert!(state.is_served(), "a run is due that nobody writes");
        self.landed.notify_all();
        state.failed.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;

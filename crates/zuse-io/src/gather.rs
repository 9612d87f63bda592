//! Small writes of a txg, gathered so that neighbours go to a device in one call.
//!
//! ```text
//!   put(small block) ─► a run that ends where the block begins, or a new run
//!                          │ full, or the oldest of too many
//!                          ▼
//!   in flight (readable) ─► due ─► the device, one thread each ─► gone       drain(): everything, before the commit's flush
//! ```
//! A txg of many small objects writes its blocks of 4 KiB side by side, because the allocator hands space out in order; one call
//! for each costs more than all the rest of writing it (the host's file lock, which the writing threads wait for, above all).
//! For the same lock only one thread at a time writes to a device: who comes to it leaves its run with that one and goes on.
//!
//! Invariants
//! - What was put and has not reached the devices is found by [`Gather::peek`]: a reader never meets the bytes below.
//! - Two open runs never hold the same byte, and no byte is open while an older version of it is in flight: a block that is
//!   rewritten in place is changed in its run, or waits until the run has landed.
//! - The commit drains before it flushes. A run that cannot be written stays in flight while the fault policy waits, then its
//!   error is that of whoever puts or drains next, and the txg is lost.
//! - What is due for a device has a thread that writes to it.
//! - The lock is a leaf and is not held across I/O.
//!
//! Memory: [`OPEN`] runs of [`FULL`] bytes, [`DUE`] that are due and one in flight a device, each twice as large at the most, and one
//! a thread that waits to leave one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use zuse_base::{Error, Result, Txg};

/// Larger writes are not gathered: copying them costs more than a call.
pub(crate) const SMALL: usize = 32 << 10;
/// A run of so many bytes is written.
const FULL: usize = 256 << 10;
/// Most runs that are open: where threads allocate in turn, neighbours come out of order.
const OPEN: usize = 16;

/// Runs that wait for the thread that writes to their device; who has one more waits.
const DUE: usize = 4;

/// Buffers that are kept for the next runs.
const SPARE: usize = 4;

/// Bytes for one place.
pub(crate) struct Run {
    pub vdev: u32,
    pub txg: Txg,
    pub start: u64,
    pub bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn meets(&self, vdev: u32, start: u64, len: usize) -> bool {
        self.vdev == vdev && self.start < start + len as u64 && start < self.end()
    }

    fn part(&self, vdev: u32, start: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let from = usize::try_from(start.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(len)?;
        (self.vdev == vdev && to <= self.bytes.len()).then_some(from..to)
    }
}

#[derive(Default)]
struct State {
    /// The one that grew last comes last.
    open: Vec<Run>,
    flying: Vec<Arc<Run>>,
    /// Those in flight that nobody writes yet, oldest first.
    due: Vec<Arc<Run>>,
    /// Vdevs to which somebody writes.
    busy: Vec<u32>,
    /// Of a run that somebody else had left.
    failed: Option<Error>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
}

impl State {
    /// Takes an open run out, joined with the runs that it touches.
    fn take(&mut self, at: usize) -> Arc<Run> {
        let mut run = self.open.remove(at);
        let touches = |run: &Run, other: &Run| {
            run.vdev == other.vdev
                && run.txg == other.txg
                && run.bytes.len() + other.bytes.len() <= 2 * FULL
                && (run.end() == other.start || other.end() == run.start)
        };
        while let Some(next) = self.open.iter().position(|r| touches(&run, r)) {
            let mut next = self.open.remove(next);
            if next.end() == run.start {
                std::mem::swap(&mut run, &mut next);
            }
            run.bytes.extend_from_slice(&next.bytes);
            self.keep(next.bytes);
        }
        let run = Arc::new(run);
        self.flying.push(run.clone());
        run
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// The runs of one pool.
#[derive(Default)]
pub(crate) struct Gather {
    state: Mutex<State>,
    landed: Condvar,
    /// The newest txg that something was put in since all was drained; changed under the lock. Who has a pointer to what was
    /// put sees it.
    txg: AtomicU64,
}

impl Gather {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the bytes of a block, for a place of `room` bytes that are all its own. `write` writes a run.
    pub fn put(
        &self,
        (txg, vdev, start): (Txg, u32, u64),
        bytes: &[u8],
        room: u64,
        write: &dyn Fn(&Run) -> Result<()>,
    ) -> Result<()> {
        let room = usize::try_from(room).unwrap_or(0).clamp(bytes.len(), SMALL);
        let Some(mut state) = self.apart((vdev, start, room), Some(bytes), write)? else {
            return Ok(());
        };
        self.txg.fetch_max(txg.0, Relaxed);
        let before = |r: &Run| r.vdev == vdev && r.txg == txg && r.end() == start;
        let mut run = match state.open.iter().position(before) {
            Some(at) => state.open.remove(at),
            None => Run {
                vdev,
                txg,
                start,
                bytes: state
                    .spare
                    .pop()
                    .unwrap_or_else(|| Vec::with_capacity(FULL + SMALL)),
            },
        };
        let filled = run.bytes.len() + room;
        run.bytes.extend_from_slice(bytes);
        run.bytes.resize(filled, 0);
        state.open.push(run);
        let out = if filled >= FULL {
            state.open.len() - 1
        } else if state.open.len() > OPEN {
            0
        } else {
            return Ok(());
        };
        let run = state.take(out);
        drop(state);
        self.send(run, write)
    }

    /// Makes sure that nothing waits for a place that is written directly.
    pub fn make_way(
        &self,
        vdev: u32,
        start: u64,
        len: usize,
        write: &dyn Fn(&Run) -> Result<()>,
    ) -> Result<()> {
        self.apart((vdev, start, len), None, write).map(drop)
    }

    /// Whether blocks of that birth may wait here. Nothing older does: its txg was committed.
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
            run.bytes.get(part).map(<[u8]>::to_vec)
        })
    }

    /// Writes all that is open and waits for what is in flight.
    pub fn drain(&self, write: &dyn Fn(&Run) -> Result<()>) -> Result<()> {
        let mut state = self.lock();
        while let Some(last) = state.open.len().checked_sub(1) {
            let run = state.take(last);
            drop(state);
            let sent = self.send(run, write);
            state = self.lock();
            if sent.is_err() {
                state.failed = None;
                return sent;
            }
        }
        while !state.flying.is_empty() {
            state = self.wait(state);
        }
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        self.txg.store(0, Relaxed);
        Ok(())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.landed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is in flight for a place, and nothing open meets it; but what lies within one open run is changed
    /// there if there are bytes for it, and then no guard is returned.
    fn apart(
        &self,
        (vdev, start, len): (u32, u64, usize),
        bytes: Option<&[u8]>,
        write: &dyn Fn(&Run) -> Result<()>,
    ) -> Result<Option<MutexGuard<'_, State>>> {
        let mut state = self.lock();
        loop {
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
                let (here, padding) = run.bytes[part].split_at_mut(bytes.len());
                here.copy_from_slice(bytes);
                padding.fill(0);
                return Ok(None);
            }
            let run = state.take(at);
            drop(state);
            self.send(run, write)?;
            state = self.lock();
        }
    }

    /// Has a run that is in flight written: by who writes to its device now, else by the caller, who then writes what others
    /// leave meanwhile too.
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
                return Ok(());
            }
            state = self.wait(state);
        }
        state.busy.push(vdev);
        let mut next = Some(run);
        while let Some(run) = next {
            drop(state);
            let written = write(&run);
            state = self.lock();
            state.flying.retain(|r| !Arc::ptr_eq(r, &run));
            if let Some(run) = Arc::into_inner(run) {
                state.keep(run.bytes);
            }
            if let Err(error) = written {
                state.failed.get_or_insert(error);
            }
            let at = state.due.iter().position(of_this);
            next = at.map(|at| state.due.remove(at));
            self.landed.notify_all();
        }
        state.busy.retain(|v| *v != vdev);
        self.landed.notify_all();
        state.failed.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;

//! Locks on byte ranges of a file.
//!
//! Overlapping ranges of readers can be locked at the same time; a writer excludes all others.
//! There are few ranges at a time, so they are a list under one small mutex, which is held for the
//! search only. A thread with a range may begin a transaction. A thread with a transaction, or a
//! range of the same file, must not request a range.
//!
//! Fairness: a waiting writer blocks later readers of its range, so it is not starved.

use zuse_base::sync::{Condvar, Mutex};

#[derive(Clone, Copy, Debug)]
struct Held {
    id: u64,
    start: u64,
    end: u64,
    write: bool,
    /// Still waiting: blocks later requests.
    waiting: bool,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    ranges: Vec<Held>,
}

/// The range locks of one file.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    state: Mutex<State>,
    freed: Condvar,
}

/// A held range.
#[derive(Debug)]
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    id: u64,
}

impl RangeLock {
    /// Shares `[start, end)`.
    pub fn read(&self, start: u64, end: u64) -> RangeGuard<'_> {
        self.take(start, end, false)
    }

    /// Owns `[start, end)`.
    pub fn write(&self, start: u64, end: u64) -> RangeGuard<'_> {
        self.take(start, end, true)
    }

    /// Whether a writer of `[start, end)` would wait.
    #[cfg(test)]
    pub fn is_taken(&self, start: u64, end: u64) -> bool {
        let state = self.state.lock();
        state.ranges.iter().any(|r| r.start < end && start < r.end)
    }

    fn take(&self, start: u64, end: u64, write: bool) -> RangeGuard<'_> {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        // A later range has a higher id and waits for every earlier one that it conflicts with.
        let blocked = |state: &State| {
            state
                .ranges
                .iter()
                .any(|r| r.id < id && r.start < end && start < r.end && (r.write || write))
        };
        let waiting = blocked(&state);
        state.ranges.push(Held {
            id,
            start,
            end,
            write,
            waiting,
        });
        if waiting {
            while blocked(&state) {
                state = self.freed.wait(state);
            }
            if let Some(me) = state.ranges.iter_mut().find(|r| r.id == id) {
                me.waiting = false;
            }
        }
        RangeGuard { lock: self, id }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock();
        if let Some(at) = state.ranges.iter().position(|r| r.id == self.id) {
            state.ranges.swap_remove(at);
        }
        if state.ranges.iter().any(|r| r.waiting) {
            self.lock.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;

//! `lseek` for data and holes in files that mappings may have written to.
//!
//! The kernel sends it without first writing the pages that programs have changed through a
//! mapping. Data would be taken for a hole, and copied as one. So those pages are written back
//! before the answer. That waits for writes which other workers have to serve. A worker that waited
//! itself could be the last one. Therefore a separate thread does it, one request after the other.
//!
//! Memory: one entry for each process that waits in `lseek`.

use std::collections::VecDeque;
use zuse_base::sync::{Condvar, Mutex, MutexGuard};

use crate::Whence;

/// A question.
#[derive(Debug)]
pub(super) struct Seek {
    pub unique: u64,
    pub node: u64,
    pub fh: u64,
    pub from: u64,
    pub whence: Whence,
}

struct State<S> {
    waiting: VecDeque<S>,
    over: bool,
}

/// Those that wait.
pub(super) struct Seeking<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
}

impl<S> Default for Seeking<S> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                over: false,
            }),
            changed: Condvar::default(),
        }
    }
}

impl<S> Seeking<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock()
    }

    pub(super) fn push(&self, seek: S) {
        self.lock().waiting.push_back(seek);
        self.changed.notify_one();
    }

    /// Waits for one; `None` once there can be no more.
    pub(super) fn next(&self) -> Option<S> {
        let state = self.lock();
        let idle = |state: &mut State<S>| state.waiting.is_empty() && !state.over;
        let mut state = self.changed.wait_while(state, idle);
        state.waiting.pop_front()
    }

    /// No client is left.
    pub(super) fn end(&self) {
        self.lock().over = true;
        self.changed.notify_one();
    }
}

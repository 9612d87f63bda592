//! Copying trees between the host and a dataset: the engine behind `zuse cp`.
//!
//! ```text
//!   jobs: directories and batches of files ──► N threads ──► one file each at a time
//!   at the end: times and modes of directories, deepest first
//! ```
//! Kept: types, modes, times, owners (as root), symbolic and hard links, extended attributes,
//! holes. Directories are created before their entries; their times are set last. An object that
//! cannot be copied is reported ([`Report`]), and the copy continues.

mod attributes;
mod below;
mod inward;
mod outward;
mod report;

use std::collections::VecDeque;
use zuse_base::sync::{Condvar, Mutex, MutexGuard};

pub use below::{Below, Replace};
pub use inward::{CopyInOptions, copy_in};
pub use outward::{CopyOutOptions, copy_out, in_the_way};
pub use report::Report;

use crate::error::{Outcome, Stop};

/// Bytes read and written at a time.
const CHUNK: usize = 1 << 20;
/// Files of one job.
const BATCH: usize = 32;

/// A queue of jobs that may add further jobs.
struct Jobs<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    waiting: VecDeque<J>,
    running: usize,
    failed: Option<Stop>,
}

impl<J: Send> Jobs<J> {
    fn new(first: J) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: VecDeque::from([first]),
                running: 0,
                failed: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock()
    }

    /// Adds jobs. The newest are done first, which keeps the queue short.
    fn add(&self, jobs: impl IntoIterator<Item = J>) {
        self.lock().waiting.extend(jobs);
        self.changed.notify_all();
    }

    /// Does all jobs with several threads. `work` may add more; each thread has its own scratch.
    fn run<S>(
        &self,
        threads: usize,
        scratch: impl Fn() -> S + Sync,
        work: impl Fn(&Self, J, &mut S) -> Outcome + Sync,
    ) -> Outcome {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut own = scratch();
                    while let Some(job) = self.take() {
                        let result = work(self, job, &mut own);
                        let mut state = self.lock();
                        state.running -= 1;
                        if let Err(stop) = result {
                            state.failed.get_or_insert(stop);
                        }
                        drop(state);
                        self.changed.notify_all();
                    }
                });
            }
        });
        match self.lock().failed.take() {
            Some(stop) => Err(stop),
            None => Ok(()),
        }
    }

    fn take(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() {
                return None;
            }
            if let Some(job) = state.waiting.pop_back() {
                state.running += 1;
                return Some(job);
            }
            if state.running == 0 {
                return None;
            }
            state = self.changed.wait(state);
        }
    }
}

/// How many threads copy.
fn threads() -> usize {
    (2 * std::thread::available_parallelism().map_or(2, usize::from)).clamp(4, 16)
}

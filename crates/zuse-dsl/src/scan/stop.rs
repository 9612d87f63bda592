//! The stop signal for background work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use zuse_base::sync::{Condvar, Mutex};

/// Set once.
#[derive(Default)]
pub(crate) struct Stop {
    set: AtomicBool,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Stop {
    /// Whether the work is to end.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Ends it.
    pub fn set(&self) {
        self.set.store(true, Ordering::Release);
        let _lock = self.lock.lock();
        self.woken.notify_all();
    }

    /// Sleeps, until the time is over or the signal is set.
    pub fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut lock = self.lock.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.is_set() || left.is_zero() {
                return;
            }
            lock = self.woken.wait_timeout(lock, left);
        }
    }
}

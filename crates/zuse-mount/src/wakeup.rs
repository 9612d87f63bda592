//! Wakes one thread when there is work for it.
//!
//! Invariant: no call of [`Wakeup::wake`] is lost, whether it comes before or during the wait.
//! Several calls before the thread wakes count as one.

use std::time::Duration;
use zuse_base::sync::{Condvar, Mutex};

/// What one thread waits for.
#[derive(Debug, Default)]
pub struct Wakeup {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    /// Wakes the waiting thread, or the next one that waits.
    pub fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for a call of [`Self::wake`].
    pub fn wait(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            woken = self.changed.wait(woken);
        }
        *woken = false;
    }

    /// Waits for a call of [`Self::wake`], at most for that time; returns whether there was one.
    pub fn wait_for(&self, time: Duration) -> bool {
        let woken = self.woken.lock();
        let (mut woken, _) = self
            .changed
            .wait_timeout_while(woken, time, |woken| !*woken);
        std::mem::take(&mut *woken)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::Wakeup;

    #[test]
    fn a_call_wakes_once_whenever_it_came() {
        let wakeup = Arc::new(Wakeup::default());
        assert!(!wakeup.wait_for(Duration::ZERO));
        wakeup.wake();
        wakeup.wake();
        assert!(wakeup.wait_for(Duration::ZERO));
        assert!(!wakeup.wait_for(Duration::ZERO));
        let theirs = wakeup.clone();
        let other = std::thread::spawn(move || theirs.wake());
        wakeup.wait();
        other.join().unwrap();
    }
}

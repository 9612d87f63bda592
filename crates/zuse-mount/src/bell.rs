//! A bell wakes one thread when there is work for it.
//!
//! Invariant: no signal is lost, whether it comes before or during the wait. Several signals before
//! the thread wakes count as one.

use std::time::Duration;
use zuse_base::sync::{Condvar, Mutex};

/// A bell that one thread waits for.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the waiting thread, or the next one that waits.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until it rings.
    pub fn wait(&self) {
        let mut rung = self.rung.lock();
        while !*rung {
            rung = self.changed.wait(rung);
        }
        *rung = false;
    }

    /// Waits until it rings, at most for that time; returns whether it rang.
    pub fn wait_for(&self, time: Duration) -> bool {
        let rung = self.rung.lock();
        let (mut rung, _) = self.changed.wait_timeout_while(rung, time, |rung| !*rung);
        std::mem::take(&mut *rung)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::Bell;

    #[test]
    fn a_ring_is_heard_once_whenever_it_came() {
        let bell = Arc::new(Bell::default());
        assert!(!bell.wait_for(Duration::ZERO));
        bell.ring();
        bell.ring();
        assert!(bell.wait_for(Duration::ZERO));
        assert!(!bell.wait_for(Duration::ZERO));
        let theirs = bell.clone();
        let other = std::thread::spawn(move || theirs.ring());
        bell.wait();
        other.join().unwrap();
    }
}

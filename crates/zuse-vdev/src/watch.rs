//! How many errors in what time make a device count as bad.
//!
//! ```text
//!   error ─► Watch::note ─► the last N within T seconds? ─► the tree takes the leaf out (I/O) or marks it (checksums)
//! ```
//! In OpenZFS the event daemon does this: N errors of a kind in T seconds. N and T are the
//! properties `checksum_n`, `checksum_t`, `io_n`, `io_t` of the device or of its top-level vdev.
//! Nothing is remembered across an import. Errors that never reach the device, because it is
//! missing, do not count.

use std::collections::VecDeque;
use std::time::Duration;
use zuse_base::sync::Mutex;

/// Errors that are remembered at most. A higher threshold acts like this one.
const MOST: u64 = 65_536;

/// A number of errors within a number of seconds; 0 of either means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Errors.
    pub errors: u64,
    /// Seconds.
    pub seconds: u64,
}

impl Default for Threshold {
    fn default() -> Self {
        Self {
            errors: 10,
            seconds: 600,
        }
    }
}

/// Thresholds of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// Blocks with wrong bytes: the device is DEGRADED.
    pub checksum: Threshold,
    /// Failed reads and writes. Beyond this the device is FAULTED, unless the others cannot do
    /// without it.
    pub io: Threshold,
}

/// A kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Checksum,
    Io,
}

#[derive(Debug, Default)]
struct Seen {
    thresholds: Thresholds,
    /// Times of the last errors, oldest first, by kind.
    last: [VecDeque<Duration>; 2],
}

/// The last errors of a device. A leaf: nothing is locked under it.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Seen>);

impl Watch {
    fn seen(&self) -> zuse_base::sync::MutexGuard<'_, Seen> {
        self.0.lock()
    }

    pub fn set(&self, thresholds: Thresholds) {
        self.seen().thresholds = thresholds;
    }

    pub fn forget(&self) {
        self.seen().last = Default::default();
    }

    /// Notes an error at a monotonic time. Returns whether the threshold is exceeded.
    pub fn note(&self, kind: Kind, now: Duration) -> bool {
        let mut seen = self.seen();
        let Threshold { errors, seconds } = match kind {
            Kind::Checksum => seen.thresholds.checksum,
            Kind::Io => seen.thresholds.io,
        };
        if errors == 0 || seconds == 0 {
            return false;
        }
        let wanted = errors.min(MOST) as usize;
        let last = &mut seen.last[kind as usize];
        last.push_back(now);
        let since = now.saturating_sub(Duration::from_secs(seconds));
        // Only the last few are kept, so that a failing device uses bounded memory.
        while last.len() > wanted || last.front().is_some_and(|t| *t < since) {
            last.pop_front();
        }
        let reached = last.len() >= wanted;
        if reached {
            // The next alarm needs as many new errors.
            last.clear();
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn ten_errors_in_ten_minutes_are_too_many_and_nine_are_not() {
        let watch = Watch::default();
        assert!((0..9).all(|i| !watch.note(Kind::Io, at(1000 + i))));
        assert!(!watch.note(Kind::Checksum, at(1010)), "another kind");
        assert!(watch.note(Kind::Io, at(1600)));
        assert!(!watch.note(Kind::Io, at(1601)), "they count again");
    }

    #[test]
    fn what_is_too_long_ago_does_not_count() {
        let watch = Watch::default();
        assert!((0..9).all(|_| !watch.note(Kind::Io, at(1000))));
        assert!((0..9).all(|_| !watch.note(Kind::Io, at(1601))));
        assert!(watch.note(Kind::Io, at(1602)));
    }

    #[test]
    fn thresholds_can_be_set_and_turned_off() {
        let watch = Watch::default();
        let few = Threshold {
            errors: 2,
            seconds: 1,
        };
        let never = Threshold {
            errors: 0,
            seconds: 600,
        };
        watch.set(Thresholds {
            checksum: few,
            io: never,
        });
        assert!(!watch.note(Kind::Checksum, at(5)));
        assert!(watch.note(Kind::Checksum, at(5)));
        assert!((0..100).all(|_| !watch.note(Kind::Io, at(5))));
    }
}

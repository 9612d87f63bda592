//! Time as a pool sees it: wall time for what is written to disk, monotonic time for waiting.
//!
//! All layers above use a [`Clock`], never the host, so that a simulation controls time.

use crate::sync::Mutex;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall time: seconds and nanoseconds since 1970-01-01 00:00:00 UTC.
///
/// `nanos` is always below one billion; times before 1970 have negative `secs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, rounded towards the past.
    pub secs: i64,
    /// The rest, `0..1_000_000_000`.
    pub nanos: u32,
}

impl Timestamp {
    /// A time from seconds and nanoseconds.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self { secs, nanos }
    }

    /// This time moved by `step` into the future.
    pub fn after(self, step: Duration) -> Self {
        let nanos = u64::from(self.nanos) + u64::from(step.subsec_nanos());
        let carry = i64::from(nanos >= NANOS);
        let secs = i64::try_from(step.as_secs()).unwrap_or(i64::MAX);
        Self {
            secs: self.secs.saturating_add(secs).saturating_add(carry),
            nanos: (nanos % NANOS) as u32,
        }
    }

    /// Seconds since 1970 for fields that cannot hold an earlier time.
    pub fn unsigned_secs(self) -> u64 {
        u64::try_from(self.secs).unwrap_or(0)
    }
}

const NANOS: u64 = 1_000_000_000;

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self::default().after(since),
            Err(before) => {
                let before = before.duration();
                let secs = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self::new(secs, 0),
                    n => Self::new(secs.saturating_sub(1), NANOS as u32 - n),
                }
            }
        }
    }
}

/// A time that the host cannot represent becomes 1970.
impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let whole = Duration::from_secs(time.secs.unsigned_abs());
        let at = match time.secs < 0 {
            true => UNIX_EPOCH.checked_sub(whole),
            false => UNIX_EPOCH.checked_add(whole),
        };
        let rest = Duration::from_nanos(u64::from(time.nanos));
        at.and_then(|t| t.checked_add(rest)).unwrap_or(UNIX_EPOCH)
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall time. It may jump in either direction.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment of this clock. It never goes back.
    fn monotonic(&self) -> Duration;
}

/// The host's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    /// Start of its monotonic time.
    made: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        let made = Instant::now();
        Self { made }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.made.elapsed()
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct ManualClock(Mutex<Hands>);

#[derive(Debug)]
struct Hands {
    now: Timestamp,
    monotonic: Duration,
}

impl ManualClock {
    /// A clock that stays at `now` until it is advanced.
    pub fn new(now: Timestamp) -> Self {
        Self(Mutex::new(Hands {
            now,
            monotonic: Duration::ZERO,
        }))
    }

    /// Let `step` pass.
    pub fn advance(&self, step: Duration) {
        self.hands(|h| {
            h.now = h.now.after(step);
            h.monotonic = h.monotonic.saturating_add(step);
        });
    }

    /// Sets the wall time, as an administrator may; monotonic time is not affected.
    pub fn set(&self, now: Timestamp) {
        self.hands(|h| h.now = now);
    }

    fn hands<R>(&self, f: impl FnOnce(&mut Hands) -> R) -> R {
        f(&mut self.0.lock())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.hands(|h| h.now)
    }

    fn monotonic(&self) -> Duration {
        self.hands(|h| h.monotonic)
    }
}

#[cfg(test)]
mod tests;

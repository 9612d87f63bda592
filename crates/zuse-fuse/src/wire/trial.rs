//! Which way of placing the workers serves most, found out by trying ([`super::pairing`]).
//!
//! ```text
//!   usual ──at `next`──> tried ──SETTLE, WINDOW──> usual, if that serves BETTER
//!     ^ serves much less for FALLEN windows: `next` is now    └──> usual as before, `next` twice as far
//! ```
//! It is told of time and messages and places nobody: all of it can be played through without a clock.

use std::time::{Duration, Instant};

use zuse_base::apart;

/// How long placing goes on when it is not worth it: pieces of work come in bursts.
pub(super) const LINGER: Duration = Duration::from_millis(50);
/// How long messages are counted to compare two ways.
const WINDOW: Duration = Duration::from_millis(16);
/// How long they take to find their places.
const SETTLE: Duration = Duration::from_millis(4);
/// What is so many times as fast is better.
const BETTER: f64 = 1.04;
/// The same of holding where it helps as it should ([`super::pairing`]), and of another way then.
const BETTER_HELD: f64 = 1.0;
const BETTER_THAN_HELD: f64 = 1.08;
/// What is only so many times as fast after half a window is not tried to its end.
const MUCH_WORSE: f64 = 0.75;
/// A way that serves so much less than before for so many windows in a row is no longer what it was.
const FALLEN: u32 = 2;
/// How long one way is kept before another is tried: at first, the same while there is no work in the background, and at last.
const KEPT: Duration = Duration::from_millis(64);
const KEPT_QUIET: Duration = Duration::from_millis(256);
const KEPT_LONG: Duration = Duration::from_secs(2);

/// Where the workers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Wherever the scheduler likes.
    Anywhere,
    /// On the processor of who asks, and background work off it.
    Beside,
    /// The same, and the only other processor is kept from being idle, so that who asks stays ([`super::doorstop`]).
    Held,
    /// On other cores than who asks.
    Opposite,
}

impl Way {
    /// In the order in which they are tried.
    pub(super) const ALL: [Self; 4] = [Self::Anywhere, Self::Beside, Self::Held, Self::Opposite];

    /// On the processor of who asks.
    pub(super) fn is_beside(self) -> bool {
        matches!(self, Self::Beside | Self::Held)
    }
}

/// What can be had on this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct May {
    /// They can be on other cores than who asks.
    pub(super) oppose: bool,
    /// There is one processor besides that of who asks, a core of its own.
    pub(super) hold: bool,
}

impl May {
    pub(super) fn here() -> Self {
        let oppose = apart::has_cores();
        let hold = oppose && apart::processors() == 2;
        Self { oppose, hold }
    }

    /// The way to begin with.
    pub(super) fn first(self) -> Way {
        if self.oppose {
            Way::Opposite
        } else {
            Way::Anywhere
        }
    }
}

/// Which of the ways serves most, while one asks.
#[derive(Debug)]
pub(super) struct Trial {
    /// The one that served most until now.
    pub(super) usual: Way,
    /// Another one, which is being tried.
    pub(super) tried: Option<Way>,
    /// The one that was tried last.
    pub(super) last: Way,
    /// Messages a second that the usual way had, once it is known.
    pub(super) rate: Option<f64>,
    /// Windows in a row in which the usual way served much less than before.
    pub(super) low: u32,
    /// The way that did last, and when.
    fell: Option<(Way, Instant)>,
    /// Until when what was counted is the move's.
    pub(super) settles: Option<Instant>,
    /// When a way was last compared with the usual one, with or without work in the background as now.
    pub(super) compared: Option<Instant>,
    /// Since when messages of this window are counted, and how many there were before it.
    window: (Instant, u64),
    /// Ticks in a row without a message.
    pub(super) silent: u32,
    /// The first window tells of nothing but beginnings.
    is_first: bool,
    /// When another way is tried, and how long after that one more if it is worse.
    pub(super) next: (Instant, Duration),
    /// When one asked fast and alone last.
    pub(super) fast: Instant,
    /// When there was work in the background last.
    pub(super) worked: Option<Instant>,
}

impl Trial {
    /// What served most the last time comes first, if that is known.
    pub(super) fn new(known: Option<Way>, may: May, now: Instant, taken: u64) -> Self {
        Self {
            usual: known.unwrap_or(may.first()),
            tried: None,
            last: Way::Anywhere,
            rate: None,
            low: 0,
            fell: None,
            settles: None,
            compared: None,
            window: (now, taken),
            silent: 0,
            is_first: true,
            next: Self::first_quiet(known, may, now),
            fast: now,
            worked: None,
        }
    }

    /// When another way is tried where there is no work in the background.
    pub(super) fn first_quiet(known: Option<Way>, may: May, now: Instant) -> (Instant, Duration) {
        // Holding can be twice as good.
        let at_once = known.is_none() && may.hold;
        let wait = if at_once { Duration::ZERO } else { KEPT_QUIET };
        (now + wait, KEPT_QUIET)
    }

    /// The usual way, if it was compared with another.
    pub(super) fn learned(&self) -> Option<Way> {
        self.compared.map(|_| self.usual)
    }

    /// The way of now.
    pub(super) fn way(&self) -> Way {
        self.tried.unwrap_or(self.usual)
    }

    /// There is work in the background. Whether there was none before.
    pub(super) fn works(&mut self, now: Instant) -> bool {
        let begins = self.worked.is_none();
        if begins {
            // What is good for two may not be for more. Beside, which leaves a processor to the background, is tried first.
            self.next = (self.next.0.min(now), KEPT);
            self.last = Way::Anywhere;
        }
        self.worked = Some(now);
        begins
    }

    /// There has been none for long. Whether there was.
    pub(super) fn is_done(&mut self, now: Instant) -> bool {
        let done = self.worked.is_some_and(|at| now - at > LINGER);
        if done {
            self.worked = None;
        }
        done
    }

    /// What is tried next.
    fn challenger(&self, may: May, now: Instant) -> Option<Way> {
        let fell = self.fell.filter(|(_, at)| now - *at < KEPT_LONG);
        let ways = Way::ALL.iter().cycle();
        let after = ways.skip_while(|way| **way != self.last).skip(1);
        let is_open = |way: &Way| {
            *way != self.usual
                && fell.is_none_or(|(fallen, _)| *way != fallen)
                && match way {
                    Way::Anywhere => true,
                    // Without work there the other processor is idle, and who asks does not stay.
                    Way::Beside => self.worked.is_some(),
                    Way::Held => may.hold,
                    Way::Opposite => may.oppose,
                }
        };
        after.take(Way::ALL.len()).copied().find(is_open)
    }

    /// Time has passed: a window may be over, and another way begin.
    pub(super) fn goes_on(&mut self, now: Instant, taken: u64, may: May, holding_helps: bool) {
        if let Some(until) = self.settles {
            if now >= until {
                self.settles = None;
                self.begin_window(now, taken);
            }
            return;
        }
        let (since, before) = self.window;
        let passed = now - since;
        let rate = (taken - before) as f64 / passed.as_secs_f64();
        let has_failed = self.tried.is_some()
            && passed >= WINDOW / 2
            && self.rate.is_some_and(|usual| rate < usual * MUCH_WORSE);
        if passed < WINDOW && !has_failed {
            return;
        }
        self.window = (now, taken);
        if std::mem::take(&mut self.is_first) {
            return;
        }
        match (self.tried.take(), self.rate) {
            (Some(tried), Some(usual)) => {
                let better = match (self.usual, tried) {
                    (Way::Held, _) if holding_helps => BETTER_THAN_HELD,
                    (_, Way::Held) if holding_helps => BETTER_HELD,
                    _ => BETTER,
                };
                let kept = if rate > usual * better {
                    (self.usual, self.rate) = (tried, Some(rate));
                    KEPT
                } else {
                    // Back again.
                    self.settles = Some(now + SETTLE);
                    (self.next.1 * 2).min(KEPT_LONG)
                };
                self.next = (now + kept, kept);
                self.compared = Some(now);
            }
            (_, usual) => {
                let is_low = usual.is_some_and(|usual| rate < usual * MUCH_WORSE);
                self.low = if is_low { self.low + 1 } else { 0 };
                let has_fallen = self.low >= FALLEN;
                if has_fallen {
                    // Not what it was: who asks asks something else, or is no longer beside.
                    self.low = 0;
                    self.fell = Some((self.usual, now));
                    if self.usual == Way::Beside && may.hold {
                        // Then holding is what helps, and the first moments of it tell little.
                        (self.usual, self.last, self.rate) = (Way::Held, Way::Held, None);
                        (self.settles, self.next) = (Some(now + SETTLE), (now + KEPT, KEPT));
                        return;
                    }
                    self.rate = Some(rate);
                    let soon = self.compared.map_or(now, |at| at + KEPT);
                    self.next = (self.next.0.min(soon), KEPT);
                } else if !is_low {
                    self.rate = Some(usual.map_or(rate, |usual| (usual + rate) / 2.0));
                }
                if now >= self.next.0 {
                    self.tried = self.challenger(may, now);
                    self.last = self.tried.unwrap_or(self.last);
                    self.settles = self.tried.map(|_| now + SETTLE);
                }
            }
        }
    }

    /// What was counted in this window does not count: nobody asked, or somebody else.
    pub(super) fn begin_window(&mut self, now: Instant, taken: u64) {
        self.window = (now, taken);
    }

    /// They could not go there.
    pub(super) fn was_refused(&mut self) {
        (self.usual, self.tried) = (Way::Anywhere, None);
        // It has ended, or is not ours to follow: nothing was learned.
        self.compared = None;
        self.next = (self.window.0 + KEPT_LONG, KEPT_LONG);
    }
}

//! What a running program has used, and why it is to stop.
//!
//! Lua's hook is called every [`TICK`] instructions. What works for long between two of its calls
//! (the matcher of patterns, sorting) reports here too. The clock is looked at each time.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use crate::pattern::Budget;
use crate::words;

/// Instructions between two looks at the counter.
pub(crate) const TICK: u32 = 100;
/// So many steps of the matcher of patterns count as one instruction.
const STEPS: u64 = 4;
/// Ticks between two times that a program out of time is stopped, and how often that is done
/// gently.
const GRACE: u64 = 5;
const GRACE_MAX: u64 = 100;

/// Why a program is stopped from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its instructions.
    Instructions,
    /// The clock.
    Time,
    /// Who asked for it.
    Canceled,
}

impl Stop {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Instructions | Self::Time => "Channel program timed out.",
            Self::Canceled => "Channel program was canceled.",
        }
    }
}

pub(crate) struct Meter {
    /// Instructions so far.
    count: Cell<u64>,
    limit: u64,
    /// When its time is over. There is none while it is compiled.
    deadline: Cell<Option<Instant>>,
    cancel: Arc<AtomicBool>,
    /// Nobody waits for it any more.
    left: Arc<AtomicBool>,
    stop: Cell<Option<Stop>>,
    grace: Cell<u64>,
    /// Where it was when it was stopped.
    place: RefCell<Option<String>>,
}

impl Meter {
    pub(crate) fn new(limit: u64, cancel: Arc<AtomicBool>, left: Arc<AtomicBool>) -> Self {
        Self {
            count: Cell::new(0),
            limit,
            deadline: Cell::new(None),
            cancel,
            left,
            stop: Cell::new(None),
            grace: Cell::new(0),
            place: RefCell::new(None),
        }
    }

    pub(crate) fn begin(&self, deadline: Instant) {
        self.deadline.set(Some(deadline));
    }

    /// Why it is to stop, if it is.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop.get()
    }

    /// Counts instructions; says whether it is to stop.
    pub(crate) fn charge(&self, instructions: u64) -> Option<Stop> {
        if self.stop.get().is_some() {
            return self.stop.get();
        }
        let count = self.count.get().saturating_add(instructions);
        self.count.set(count);
        let late = |at: Instant| Instant::now() >= at;
        self.stop.set(if count > self.limit {
            Some(Stop::Instructions)
        } else if self.cancel.load(Relaxed) || self.left.load(Relaxed) {
            Some(Stop::Canceled)
        } else if self.deadline.get().is_some_and(late) {
            Some(Stop::Time)
        } else {
            None
        });
        self.stop.get()
    }

    /// What a program that was stopped meets: the error, at the place where it is.
    pub(crate) fn error(&self, lua: &mlua::Lua, why: Stop) -> mlua::Error {
        if self.place.borrow().is_none() {
            let trace = lua.traceback(None, 0).map(|t| t.to_string_lossy());
            *self.place.borrow_mut() = trace.ok();
        }
        mlua::Error::RuntimeError(why.text().into())
    }

    /// Whether it goes on for a few instructions, so that the handler of the error can say where it
    /// was.
    pub(crate) fn is_gentle(&self) -> bool {
        let grace = self.grace.get() + 1;
        self.grace.set(grace);
        grace % GRACE != 1 && grace < GRACE * GRACE_MAX && !self.left.load(Relaxed)
    }

    /// What is said of a program that was stopped.
    pub(crate) fn said(&self) -> Option<String> {
        let why = self.stop.get()?;
        let place = self.place.borrow();
        let trace = words::traceback(place.as_deref().unwrap_or_default(), "");
        let (text, count) = (why.text(), self.count.get());
        Some(match why {
            Stop::Instructions => format!("{text}\n{trace}\n{count} Lua instructions"),
            Stop::Time => format!("{text}\n{trace}\n{count} Lua instructions, all of its time"),
            Stop::Canceled => format!("{text}\n{trace}"),
        })
    }
}

impl Budget for Meter {
    fn spend(&self, steps: u64) -> bool {
        self.charge(steps.div_ceil(STEPS)).is_none()
    }
}

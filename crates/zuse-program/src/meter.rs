//! Resource usage of a running program, and the reason to stop it.
//!
//! Lua's hook is called every [`TICK`] instructions. Long work between two calls (pattern matching,
//! sorting) reports here too. Each report checks the clock.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use crate::pattern::Budget;
use crate::words;

/// Instructions between two looks at the counter.
pub(crate) const TICK: u32 = 100;
/// Steps of the pattern matcher that count as one instruction.
const STEPS: u64 = 4;
/// Ticks between two attempts to stop a program that is out of time, and the number of gentle
/// attempts.
const GRACE: u64 = 5;
const GRACE_MAX: u64 = 100;

/// Why a program is stopped from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its instructions.
    Instructions,
    /// The clock.
    Time,
    /// The user asked for it.
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
    /// The end of its time. There is none while it is compiled.
    deadline: Cell<Option<Instant>>,
    cancel: Arc<AtomicBool>,
    /// No caller waits for it any more.
    left: Arc<AtomicBool>,
    stop: Cell<Option<Stop>>,
    grace: Cell<u64>,
    /// Its position when it was stopped.
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

    /// The reason to stop it, if any.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop.get()
    }

    /// Counts instructions; returns whether to stop.
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

    /// The error that stops a program, with its position.
    pub(crate) fn error(&self, lua: &mlua::Lua, why: Stop) -> mlua::Error {
        if self.place.borrow().is_none() {
            let trace = lua.traceback(None, 0).map(|t| t.to_string_lossy());
            *self.place.borrow_mut() = trace.ok();
        }
        mlua::Error::RuntimeError(why.text().into())
    }

    /// Whether it may run a few more instructions, so that its error handler can report its
    /// position.
    pub(crate) fn is_gentle(&self) -> bool {
        let grace = self.grace.get() + 1;
        self.grace.set(grace);
        grace % GRACE != 1 && grace < GRACE * GRACE_MAX && !self.left.load(Relaxed)
    }

    /// The message for a program that was stopped.
    pub(crate) fn message(&self) -> Option<String> {
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

//! Suspension: the pool's state when devices fail writes.
//!
//! - After a failed write the sync thread waits at that write, with all its pending work. After
//!   `zpool clear` the same write is tried again. Nothing was acknowledged in between.
//! - A failed *flush* is different, because the host may have dropped data that it had accepted. So
//!   the txg cannot be completed. The pool stays suspended until it is opened again from its last
//!   uberblock.
//! - The same applies after a panic that may have left an inconsistent state in memory
//!   ([`Tripwire`]): no uberblock is written any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use zuse_base::sync::{Condvar, Mutex, MutexGuard};

use zuse_base::{Error, Result, Tripwire};
use zuse_io::WriteFaults;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Running,
    /// Waiting for `zpool clear`; the failure.
    Waiting(String),
    /// The pool cannot continue; the failure.
    Lost(String),
    /// The pool is being closed: waiters get an error.
    Closing,
}

/// Whether a pool is suspended. Callers wait here, or get an error.
#[derive(Default)]
pub(crate) struct Suspension {
    pool: Mutex<String>,
    state: Mutex<State>,
    changed: Condvar,
    /// Failures are passed on at once, because no command could run `zpool clear`. The pool is
    /// being opened or closed, or only one command uses it.
    impatient: AtomicBool,
    /// Called without a lock after every change, to wake other waiters.
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
    tripwire: Arc<Tripwire>,
}

impl Suspension {
    pub fn new(tripwire: Arc<Tripwire>) -> Self {
        Self {
            tripwire,
            ..Self::default()
        }
    }

    /// The state; the first reader after the tripwire was triggered marks the pool as lost.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if let Some(torn) = self.tripwire.torn()
            && matches!(*state, State::Running | State::Waiting(_))
        {
            *state = State::Lost(torn.to_owned());
        }
        state
    }

    /// The error before making changes durable, if a thread panicked that may have left some
    /// incomplete.
    pub fn check_no_panic(&self) -> Result<()> {
        match self.tripwire.torn() {
            Some(_) => Err(self.error().unwrap_or_else(|| self.closing())),
            None => Ok(()),
        }
    }

    fn closing(&self) -> Error {
        self.suspended("the pool is being closed".to_owned())
    }

    fn suspended(&self, what: String) -> Error {
        let pool = self.pool.lock();
        let pool = pool.clone();
        Error::Suspended { pool, what }
    }

    pub fn set_pool(&self, name: &str) {
        *self.pool.lock() = name.to_owned();
    }

    /// Sets whether failures are passed on instead of waited for. Threads that wait already
    /// continue to wait.
    pub fn set_impatient(&self, yes: bool) {
        self.impatient.store(yes, Ordering::Relaxed);
    }

    /// Sets the listener for changes; once only.
    pub fn set_listener(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Wakes all waiters. The lock must be free: the listener takes locks of lower rank.
    fn announce(&self) {
        self.changed.notify_all();
        if let Some(listener) = self.listener.get() {
            listener();
        }
    }

    /// The error that callers get, if the pool is suspended.
    pub fn error(&self) -> Option<Error> {
        let what = match &*self.lock() {
            State::Running => return None,
            State::Waiting(what) => format!("{what} (repair the device, then run zpool clear)"),
            State::Lost(what) => {
                format!("{what} (what was not synced is lost; the pool has to be opened again)")
            }
            State::Closing => "the pool is being closed".to_owned(),
        };
        Some(self.suspended(what))
    }

    /// Whether the pool has to be opened again before it can continue.
    pub fn is_lost(&self) -> bool {
        matches!(*self.lock(), State::Lost(_))
    }

    /// The pool cannot complete its txg: it stays as it is on disk.
    pub fn lose(&self, what: &Error) {
        let mut state = self.lock();
        // The first loss is more informative than its consequences.
        if !matches!(*state, State::Closing | State::Lost(_)) {
            *state = State::Lost(what.to_string());
        }
        drop(state);
        self.announce();
    }

    /// `zpool clear`: retries the failed operation.
    pub fn resume(&self) -> bool {
        let mut state = self.lock();
        let waiting = matches!(*state, State::Waiting(_));
        if waiting {
            *state = State::Running;
        }
        let runs = *state == State::Running;
        drop(state);
        self.announce();
        runs
    }

    /// The pool is closed: waiters get an error.
    pub fn close(&self) {
        *self.lock() = State::Closing;
        self.announce();
    }
}

impl WriteFaults for Suspension {
    fn write_failed(&self, error: &Error) -> Result<()> {
        if self.impatient.load(Ordering::Relaxed) {
            return Err(error.clone());
        }
        let mut state = self.lock();
        if *state == State::Running {
            *state = State::Waiting(error.to_string());
            // Released first: the listener takes locks of lower rank.
            drop(state);
            self.announce();
            state = self.lock();
        }
        loop {
            match &*state {
                State::Running => return Ok(()),
                State::Waiting(_) => {}
                State::Lost(_) | State::Closing => return Err(error.clone()),
            }
            state = self.changed.wait(state);
        }
    }
}

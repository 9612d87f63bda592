//! Keeps who asks where it is, by keeping the other processor from being idle.
//!
//! Whoever an answer wakes is moved by the scheduler to a processor that is idle. Then each question and each answer calls that processor out of its sleep, and in a
//! virtual machine whose host has to do that it takes some 25 µs, 12 if it does not sleep: two threads that wake each other
//! through pipes took 50 µs for a round there on two processors and 4.3 on one. So a thread of the lowest priority is turning on the other one, while that serves
//! more ([`super::pairing`]): everything else that wants the processor has it, but the scheduler does not take it for idle.
//! It costs that processor's time (a server that serves from it costs it, too: it looks for the next question there), so it has to
//! be worth it; and it works only where there is no third one.
//!
//! ```text
//!   parked ──hold()──> turning ──let_go(), or no message for PAUSE──> parked
//! ```
//! While it turns it reads what will be asked for next into a cache that the processors share ([`crate::Ops::bring_nearer`]), step by step.
//!
//! Cost: per message nothing (what is shared is looked at each [`GLANCE`]) but what the steps cost; a thread, parked.

use std::hint;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use rustix::thread::gettid;

use zuse_base::apart::{self, Role};

/// How often it is looked whether to go on.
const GLANCE: Duration = Duration::from_micros(100);
/// How long it goes on without a message.
const PAUSE: Duration = Duration::from_millis(8);
const LOWEST_PRIORITY: i32 = 19;

/// That thread, seen by the watch.
#[derive(Debug, Default)]
pub(super) struct Doorstop {
    is_held: AtomicBool,
    is_over: AtomicBool,
    /// What it read that will be asked for.
    read: AtomicU64,
    thread: Mutex<Option<Thread>>,
}

impl Doorstop {
    /// Keeps the processor from being idle from now on, for as long as messages come. To be said again when they do after a pause.
    pub(super) fn hold(&self) {
        if !self.is_held.swap(true, SeqCst) {
            self.wake();
        }
    }

    /// No longer.
    pub(super) fn let_go(&self) {
        if self.is_held.load(Acquire) {
            self.is_held.store(false, Release);
        }
    }

    /// How many things that will be asked for it has read.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// The session has ended.
    pub(super) fn end(&self) {
        self.is_over.store(true, SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            thread.unpark();
        }
    }

    /// The life of the thread. As it works in the background, it is kept off the processor of who asks ([`apart`]).
    pub(super) fn stand(&self, taken: impl Fn() -> u64, bring_nearer: impl Fn() -> bool) {
        let _member = apart::join(Role::Background);
        // At a higher priority it would take the processor from others.
        if setpriority_process(Some(gettid()), LOWEST_PRIORITY).is_err() {
            return;
        }
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        while !self.is_over.load(SeqCst) {
            if self.is_held.load(SeqCst) {
                self.turn(&taken, &bring_nearer);
            } else {
                thread::park();
            }
        }
    }

    fn turn(&self, taken: &impl Fn() -> u64, bring_nearer: &impl Fn() -> bool) {
        let mut last = (taken(), Instant::now());
        let mut glanced = last.1;
        while self.is_held.load(Acquire) && !self.is_over.load(Acquire) {
            let mut now = Instant::now();
            while now - glanced < GLANCE {
                if bring_nearer() {
                    self.read.fetch_add(1, Relaxed);
                } else {
                    (0..32).for_each(|_| hint::spin_loop());
                }
                now = Instant::now();
            }
            glanced = now;
            let count = taken();
            if count != last.0 {
                last = (count, now);
            } else if now - last.1 > PAUSE {
                self.let_go();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether that comes true within ten seconds.
    fn until(is: impl Fn() -> bool) -> bool {
        let since = Instant::now();
        while !is() {
            if since.elapsed() > Duration::from_secs(10) {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    #[test]
    fn it_turns_while_messages_come_and_at_the_lowest_priority() {
        let (doorstop, taken) = (Doorstop::default(), AtomicU64::new(0));
        // How often it has looked.
        let looks = AtomicU64::new(0);
        let priority = AtomicU64::new(0);
        // How often it has asked what to read: each second time there is something.
        let nearer = AtomicU64::new(0);
        let is_still = || {
            let n = looks.load(SeqCst);
            thread::sleep(Duration::from_millis(20));
            looks.load(SeqCst) == n
        };
        let ok = thread::scope(|scope| {
            scope.spawn(|| {
                doorstop.stand(
                    || {
                        looks.fetch_add(1, SeqCst);
                        let nice = rustix::process::getpriority_process(Some(gettid()));
                        priority.store(nice.map_or(0, |nice| nice as u64), SeqCst);
                        taken.load(SeqCst)
                    },
                    || nearer.fetch_add(1, SeqCst).is_multiple_of(2),
                );
            });
            let mut ok = until(|| doorstop.thread.lock().expect("free").is_some());
            ok &= is_still();
            for _ in 0..2 {
                // While messages come.
                doorstop.hold();
                let since = Instant::now();
                let before = looks.load(SeqCst);
                ok &= until(|| {
                    taken.fetch_add(1, SeqCst);
                    since.elapsed() > 4 * PAUSE && looks.load(SeqCst) > before + 20
                });
                // None does, and it has to be told again.
                ok &= until(|| !doorstop.is_held.load(SeqCst)) && until(is_still);
                let again = looks.load(SeqCst);
                doorstop.hold();
                ok &= until(|| looks.load(SeqCst) > again);
                doorstop.let_go();
                ok &= until(is_still);
            }
            doorstop.end();
            ok
        });
        assert!(ok);
        assert_eq!(priority.load(SeqCst), 19);
        let asked = nearer.load(SeqCst);
        assert!(asked > 0 && doorstop.read() == asked.div_ceil(2), "{asked}");
    }

    #[test]
    fn it_ends_while_it_turns() {
        let (doorstop, taken) = (Doorstop::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            doorstop.hold();
            scope.spawn(|| doorstop.stand(|| taken.fetch_add(1, SeqCst), || false));
            assert!(until(|| taken.load(SeqCst) > 2));
            doorstop.end();
        });
    }
}

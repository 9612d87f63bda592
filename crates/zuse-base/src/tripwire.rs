//! A pool's tripwire. A thread triggers it when it panics where it may have left data half changed.
//! It is also triggered when the pool's own accounting contradicts itself.
//!
//! ```text
//!   a thread panics ─► its guards are dropped; a `Watch` among them triggers the tripwire
//!     ├─► the listener wakes waiting threads
//!     └─► the sync thread checks it before each uberblock, and writes none
//! ```
//! Why: a panic unwinds and releases locks, and other threads continue. The data that the thread
//! was changing may be inconsistent in memory. The next uberblock would make that permanent. The
//! pool on disk as of its last uberblock is consistent, so it is left as it is.
//!
//! Invariants
//! - A triggered tripwire stays so until the pool is opened again. A `OnceLock` holds the reason.
//! - A tripwire belongs to one pool; other pools of the process continue. Each pool creates its own
//!   one, and nothing here is static.
//!
//! The listener runs while the thread unwinds, with the locks that the thread held. So it must take
//! none of those (`zuse-sim/tests/panics.rs` panics under each of them).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::thread;

/// What was going on: the end of the sentence "the thread panicked".
pub mod at {
    /// The lock of several objects of the MOS, while a sync task changes them.
    pub const CONFIG: &str = "while it held the lock of the pool's configuration";
    /// The lock of the object set that a dataset has open.
    pub const SLOT: &str = "while it held the lock of a dataset's object set";
    /// The lock of a ZAP.
    pub const ZAP: &str = "while it held the lock of a ZAP";
    /// The lock of an object's versions.
    pub const OBJECT: &str = "while it held the lock of an object";
    /// The lock of a map of in-memory objects.
    pub const MAPS: &str = "while it held the lock of a map of datasets";
    /// The lock of the blocks freed in a sync.
    pub const ACCOUNTING: &str = "while it held the lock of a dataset's books";
    /// The lock of the references of cloned blocks.
    pub const CLONES: &str = "while it held the lock of the cloned blocks";
    /// The lock of the dedup tables.
    pub const DEDUP: &str = "while it held the lock of the dedup tables";
    /// The lock of a metaslab.
    pub const METASLAB: &str = "while it held the lock of a metaslab";
    /// The lock of the tree of vdevs.
    pub const TREE: &str = "while it held the lock of the vdev tree";
    /// The lock of the mapping of a removed vdev.
    pub const MAPPING: &str = "while it held the lock of a removed vdev";
    /// The lock of a leaf's device.
    pub const DEVICE: &str = "while it held the lock of a device";
    /// Blocks of an intent log, on their way to a device.
    pub const LOG: &str = "while it wrote an intent log";
    /// A transaction.
    pub const TRANSACTION: &str = "while it held a transaction";
    /// A change of the pool on the sync thread.
    pub const CHANGE: &str = "while it changed the pool's datasets";
    /// A request of the kernel's.
    pub const REQUEST: &str = "at a request of a mount";
    /// A batch of work for the pool.
    pub const WORK: &str = "at work for the pool";
}

/// See the head of the module.
#[derive(Default)]
pub struct Tripwire {
    torn: OnceLock<String>,
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
    #[cfg(debug_assertions)]
    trap: trap::Trap,
}

impl Tripwire {
    /// Says that a thread panicked, and what it was doing. Only the first call counts.
    pub fn tear(&self, at: &str) {
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        self.end(format!(
            "an error in Zuse itself: thread {name} panicked {at}"
        ));
    }

    /// Says that the pool's own accounting is inconsistent, because data on disk was forged or
    /// damaged. Even if a caller ignores the error, no more uberblock is written.
    pub fn contradict(&self, place: &dyn fmt::Display, what: &str) {
        self.end(format!("the pool contradicts itself: {place}: {what}"));
    }

    fn end(&self, text: String) {
        if self.torn.set(text).is_ok()
            && let Some(listener) = self.listener.get()
        {
            listener();
        }
    }

    /// The reason, if it was triggered.
    pub fn torn(&self) -> Option<&str> {
        self.torn.get().map(String::as_str)
    }

    /// Sets the listener, which is called when the tripwire is triggered. Only once.
    pub fn on_tear(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Triggers the tripwire if this thread panics before the returned guard is dropped. `at`
    /// follows "the thread panicked".
    pub fn watch(&self, at: &'static str) -> Watch<'_> {
        let watch = Watch {
            wire: self,
            at,
            calm: !thread::panicking(),
        };
        #[cfg(debug_assertions)]
        self.trap.step(at);
        watch
    }

    /// A taken lock, watched as [`Self::watch`] does.
    pub fn hold<G>(&self, at: &'static str, guard: G) -> Watched<'_, G> {
        Watched::of(Some(self), at, guard)
    }
}

impl fmt::Debug for Tripwire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tripwire({:?})", self.torn())
    }
}

/// Triggers the tripwire when a panic drops it.
pub struct Watch<'a> {
    wire: &'a Tripwire,
    at: &'static str,
    /// A guard created while a thread unwinds reports nothing new.
    calm: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.calm && thread::panicking() {
            self.wire.tear(self.at);
        }
    }
}

/// A lock's guard that reports a panic of its holder.
pub struct Watched<'a, G> {
    // The tripwire is triggered before the lock is released.
    watch: Option<Watch<'a>>,
    guard: G,
}

impl<'a, G> Watched<'a, G> {
    /// As [`Tripwire::hold`], where there may be no pool yet.
    pub fn of(wire: Option<&'a Tripwire>, at: &'static str, guard: G) -> Self {
        // A trap set by a test fires here with the lock held, like a panic of its holder.
        let mut watched = Self { watch: None, guard };
        watched.watch = wire.map(|wire| wire.watch(at));
        watched
    }
}

impl<G: Deref> Deref for Watched<'_, G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Watched<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// Panics that tests ask for; debug builds only.
#[cfg(debug_assertions)]
mod trap {
    use crate::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[derive(Default)]
    pub(super) struct Trap {
        set: AtomicBool,
        at: Mutex<Option<(&'static str, u64)>>,
    }

    impl Trap {
        pub(super) fn step(&self, at: &'static str) {
            if !self.set.load(Relaxed) || std::thread::panicking() {
                return;
            }
            let mut trap = self.at.lock();
            let Some((_, left)) = trap.as_mut().filter(|(name, _)| *name == at) else {
                return;
            };
            if *left > 0 {
                *left -= 1;
                return;
            }
            *trap = None;
            self.set.store(false, Relaxed);
            drop(trap);
            panic!("a trap {at}");
        }
    }

    impl super::Tripwire {
        /// Sets a trap: the thread panics that calls [`watch`](super::Tripwire::watch) with `at`
        /// after `left` such calls. Its panic triggers the tripwire.
        pub fn set_trap(&self, at: &'static str, left: u64) {
            *self.trap.at.lock() = Some((at, left));
            self.trap.set.store(true, Relaxed);
        }

        /// Removes a trap; returns whether it was still set.
        pub fn take_trap(&self) -> bool {
            self.trap.set.store(false, Relaxed);
            let mut trap = self.trap.at.lock();
            trap.take().is_some()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    fn caught(f: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
    }

    #[test]
    fn a_holder_that_panics_tears_the_wire_and_one_that_does_not_leaves_it() {
        let wire = Arc::new(Tripwire::default());
        let told = Arc::new(AtomicU32::new(0));
        let counter = told.clone();
        wire.on_tear(move || {
            counter.fetch_add(1, Relaxed);
        });
        let lock = Mutex::new(0);
        *wire.hold("under a lock", lock.lock().unwrap()) += 1;
        assert!(caught(|| panic!("elsewhere")));
        assert_eq!(wire.torn(), None);
        assert!(caught(|| {
            let mut held = wire.hold("under a lock", lock.lock().unwrap());
            *held += 1;
            panic!("half way");
        }));
        assert!(wire.torn().unwrap().ends_with("panicked under a lock"));
        assert!(caught(|| {
            let _watch = wire.watch("later");
            panic!("again");
        }));
        assert_eq!(told.load(Relaxed), 1);
    }

    #[test]
    fn what_is_watched_only_while_a_thread_unwinds_leaves_the_wire() {
        struct Last<'a>(&'a Tripwire);
        impl Drop for Last<'_> {
            fn drop(&mut self) {
                drop(self.0.watch("while it unwinds"));
            }
        }
        let wire = Tripwire::default();
        assert!(caught(|| {
            let _last = Last(&wire);
            panic!("of a reader");
        }));
        assert_eq!(wire.torn(), None);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_trap_springs_once_with_the_lock_in_hand() {
        let wire = Tripwire::default();
        let lock = Mutex::new(());
        wire.set_trap("here", 1);
        drop(wire.hold("here", lock.lock().unwrap()));
        drop(wire.hold("there", lock.lock().unwrap()));
        assert!(caught(|| drop(wire.hold("here", lock.lock().unwrap()))));
        assert!(wire.torn().is_some() && lock.is_poisoned());
        assert!(!wire.take_trap());
    }
}

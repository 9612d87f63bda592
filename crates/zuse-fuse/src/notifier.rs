//! Tells the kernel to drop cached data.
//!
//! Rules:
//! - One thread sends the notices. It exists while there are some, serves no request and holds no
//!   lock while it sends. The kernel may make it wait for a page or a directory that another
//!   request has locked. That request may wait for locks of the thread that asked for the
//!   invalidation. So requesting an invalidation never waits: the queue is bounded, and a full
//!   queue is an error that the caller handles.
//! - With the write-back cache the kernel owns size and times of every regular file it knows,
//!   whatever is invalidated. A file whose *content* was replaced without the kernel (rollback,
//!   receive) must get another [`generation`](crate::Attr::generation) and its name an
//!   [`Notifier::inval_entry`]. The next lookup then creates a new inode, and open files fail with
//!   `EIO`.
//! - After the session has ended nothing is cached: notices are accepted and dropped.
//! - Attributes alone are dropped at once, by the caller ([`Notifier::attributes_changed`]): that
//!   waits for no page and no directory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use zuse_base::sync::{Condvar, Mutex, MutexGuard};

const CAPACITY: usize = 1 << 16;
/// How long the thread waits for more notices before it ends.
const REST: Duration = Duration::from_secs(1);

/// What to drop.
#[derive(Debug)]
pub(crate) enum Notice {
    Inode {
        ino: u64,
        offset: u64,
        len: u64,
    },
    Attributes {
        ino: u64,
    },
    Entry {
        parent: u64,
        name: Vec<u8>,
    },
    Delete {
        parent: u64,
        child: u64,
        name: Vec<u8>,
    },
}

/// The queue is full: release your locks, call [`Notifier::drain`], and try again.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the queue of kernel-cache invalidations is full")]
pub struct QueueFull;

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Notice>,
    sending: bool,
    /// The thread is there.
    runs: bool,
    closed: bool,
}

/// Sends a notice now.
type Send = dyn Fn(Notice) + std::marker::Send + Sync;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// While the session lives.
    at_once: Mutex<Option<Arc<Send>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.fmt(f)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A handle to the invalidation thread of a session.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    shared: Arc<Shared>,
}

impl Notifier {
    /// Drops attributes and the cached pages of a range; `len` 0 means to the end. The module's
    /// documentation says what this cannot do.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn inval_inode(&self, ino: u64, offset: u64, len: u64) -> Result<(), QueueFull> {
        self.push(Notice::Inode { ino, offset, len })
    }

    /// Drops a name (also an absent one).
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<(), QueueFull> {
        self.push(Notice::Entry {
            parent,
            name: name.to_vec(),
        })
    }

    /// Drops a name because its file was removed; watchers are notified.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), QueueFull> {
        self.push(Notice::Delete {
            parent,
            child,
            name: name.to_vec(),
        })
    }

    /// Drops attributes and ACLs of an inode, but no pages, before this returns. A method of
    /// [`Ops`](crate::Ops) may call it for its request's inode. Otherwise call it only from threads
    /// that serve no request.
    pub fn attributes_changed(&self, ino: u64) {
        let send = self.at_once().clone();
        if let Some(send) = send {
            send(Notice::Attributes { ino });
        }
    }

    fn at_once(&self) -> MutexGuard<'_, Option<Arc<Send>>> {
        self.shared.at_once.lock()
    }

    /// The session is open: sets the function that sends notices of attributes.
    pub(crate) fn opened(&self, send: Arc<Send>) {
        *self.at_once() = Some(send);
    }

    /// Waits until all queued notices have been sent. Hold no lock that a request may need, and
    /// never call it from a method of [`Ops`](crate::Ops).
    pub fn drain(&self) {
        while !self.drain_for(Duration::from_secs(60)) {}
    }

    /// The same for a limited time; false if some notices are still queued.
    pub fn drain_for(&self, limit: Duration) -> bool {
        let alone = {
            let mut state = self.shared.lock();
            // The thread could not be started: the waiting caller sends the notices itself.
            let alone = !state.runs && !state.queue.is_empty() && self.at_once().is_some();
            state.runs |= alone;
            alone
        };
        if alone {
            self.run(Duration::ZERO);
        }
        let waits = |state: &mut State| !state.closed && (state.sending || !state.queue.is_empty());
        let changed = &self.shared.changed;
        !changed
            .wait_timeout_while(self.shared.lock(), limit, waits)
            .1
    }

    fn push(&self, notice: Notice) -> Result<(), QueueFull> {
        let mut state = self.shared.lock();
        // The kernel caches nothing of an ended session.
        if state.closed {
            return Ok(());
        }
        if state.queue.len() >= CAPACITY {
            return Err(QueueFull);
        }
        state.queue.push_back(notice);
        let begins = !state.runs && self.at_once().is_some();
        state.runs |= begins;
        drop(state);
        self.shared.changed.notify_all();
        if begins {
            let me = self.clone();
            let thread = thread::Builder::new().name("zuse-fuse-inval".into());
            if thread.spawn(move || me.run(REST)).is_err() {
                // The next notice tries again, and so does a caller that waits.
                self.shared.lock().runs = false;
            }
        }
        Ok(())
    }

    /// Ends the thread; queued notices are dropped.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.queue.clear();
        drop(state);
        // It holds the connection's descriptor, which must be closed with the session.
        *self.at_once() = None;
        self.shared.changed.notify_all();
    }

    /// Sends notices one after the other, until it is closed or none came for that long.
    fn run(&self, rest: Duration) {
        let Some(send) = self.at_once().clone() else {
            self.shared.lock().runs = false;
            return;
        };
        let mut state = self.shared.lock();
        loop {
            if state.closed {
                return;
            }
            if let Some(notice) = state.queue.pop_front() {
                // Not in the queue any more, and not sent yet: `drain` must wait for it.
                state.sending = true;
                drop(state);
                send(notice);
                state = self.shared.lock();
                state.sending = false;
                if state.queue.is_empty() {
                    self.shared.changed.notify_all();
                }
                continue;
            }
            let idle = |state: &mut State| !state.closed && state.queue.is_empty();
            let waited = self.shared.changed.wait_timeout_while(state, rest, idle);
            state = waited.0;
            if waited.1 {
                state.runs = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;

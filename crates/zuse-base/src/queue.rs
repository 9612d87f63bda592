//! A queue with a bound, between threads.
//!
//! Invariants
//! - It never holds more than its capacity, and nothing enters after [`BoundedQueue::close`]: both
//!   are asserted where an item enters.
//! - Items leave in the order they came. After a close, remaining items still leave and every
//!   waiter wakes. The tests show both.

use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;

/// First in, first out, for many producers and many consumers.
pub struct BoundedQueue<T> {
    state: Mutex<State<T>>,
    not_empty: Condvar,
    not_full: Condvar,
    capacity: usize,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    poppers: usize,
    pushers: usize,
}

/// Why an item was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError<T> {
    /// No room now.
    Full(T),
    /// The queue is closed: nothing can be added.
    Closed(T),
}

impl<T> PushError<T> {
    /// The item that was not taken.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(item) | Self::Closed(item) => item,
        }
    }
}

impl<T> BoundedQueue<T> {
    /// A queue for at most `capacity` items (at least one).
    pub fn new(capacity: usize) -> Self {
        let state = State {
            items: VecDeque::new(),
            closed: false,
            poppers: 0,
            pushers: 0,
        };
        Self {
            state: Mutex::new(state),
            not_empty: Condvar::new(),
            not_full: Condvar::new(),
            capacity: capacity.max(1),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// Add an item; waits for room.
    ///
    /// # Errors
    /// Gives the item back when the queue is closed, also while waiting.
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.state();
        while !state.closed && state.items.len() >= self.capacity {
            state.pushers += 1;
            state = self.not_full.wait(state);
            state.pushers -= 1;
        }
        if state.closed {
            return Err(item);
        }
        self.enter(state, item);
        Ok(())
    }

    /// Add an item if there is room now.
    ///
    /// # Errors
    /// Gives the item back when the queue is full or closed.
    pub fn try_push(&self, item: T) -> Result<(), PushError<T>> {
        let state = self.state();
        if state.closed {
            return Err(PushError::Closed(item));
        }
        if state.items.len() >= self.capacity {
            return Err(PushError::Full(item));
        }
        self.enter(state, item);
        Ok(())
    }

    fn enter(&self, mut state: MutexGuard<'_, State<T>>, item: T) {
        state.items.push_back(item);
        debug_assert!(!state.closed, "an item enters a closed queue");
        debug_assert!(
            state.items.len() <= self.capacity,
            "the queue holds more than {}",
            self.capacity
        );
        let wake = state.poppers > 0;
        drop(state);
        if wake {
            self.not_empty.notify_one();
        }
    }

    /// Take the oldest item; waits for one. None when the queue is closed and empty.
    pub fn pop(&self) -> Option<T> {
        let mut state = self.state();
        while state.items.is_empty() && !state.closed {
            state.poppers += 1;
            state = self.not_empty.wait(state);
            state.poppers -= 1;
        }
        self.leave(state)
    }

    fn leave(&self, mut state: MutexGuard<'_, State<T>>) -> Option<T> {
        let item = state.items.pop_front()?;
        let wake = state.pushers > 0;
        drop(state);
        if wake {
            self.not_full.notify_one();
        }
        Some(item)
    }

    /// Accepts nothing more. Remaining items can still be popped.
    pub fn close(&self) {
        self.state().closed = true;
        self.not_empty.notify_all();
        self.not_full.notify_all();
    }

    /// Items inside now.
    pub fn len(&self) -> usize {
        self.state().items.len()
    }

    /// Whether nothing is inside now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Items that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl<T> fmt::Debug for BoundedQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoundedQueue({} of {})", self.len(), self.capacity)
    }
}

#[cfg(test)]
mod tests;

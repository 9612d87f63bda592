//! Locks that can still be taken after a panic.
//!
//! A panic unwinds and releases the locks that its thread held. The data that they protect may be
//! inconsistent. The standard library's locks are poisoned then; these are not. What a panic means
//! for a pool is decided in one place:
//!
//! - A thread that may hold a transaction triggers the pool's tripwire ([`crate::tripwire`]) when
//!   it panics. The sync thread then writes no uberblock, so nothing inconsistent reaches the disk.
//! - Reads continue. With poisoned locks one panic would cause a panic in every reader.
//! - The tripwire does not cover tables of a mount or the standard streams of a command. Such data
//!   is valid at every step, or its owner has a flag of its own.
//!
//! Guards are those of the standard library.

use std::fmt;
use std::sync::{self, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// The guard, if no thread has the lock.
fn free<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A mutex that stays usable after a panic.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Wait for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        free(self.0.try_lock())
    }

    /// The value, by exclusive access to the lock itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A readers-writer lock that stays usable after a panic.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Share the value.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Own the value.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Share the value if no thread owns it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        free(self.0.try_read())
    }

    /// Own the value if no thread shares or owns it.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        free(self.0.try_write())
    }

    /// The value, by exclusive access to the lock itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition for which no thread waits.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Release the lock, wait for a notification, take the lock again. May wake for no reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait until `pending` is false.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        pending: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_while(guard, pending);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Condvar::wait`], for at most `patience`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Duration,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout(guard, patience);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Like [`Condvar::wait_while`], for at most `patience`; returns true on a timeout.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Duration,
        pending: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let waited = self.0.wait_timeout_while(guard, patience, pending);
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wake all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn locks_are_entered_after_a_panic_of_their_holder() {
        let (mut mutex, mut rw) = (Mutex::new(1), RwLock::new(1));
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let (mut a, mut b) = (mutex.lock(), rw.write());
            (*a, *b) = (2, 2);
            panic!("on purpose");
        }));
        assert_eq!((*mutex.lock(), *rw.read()), (2, 2));
        assert_eq!(*rw.write(), 2);
        assert_eq!(mutex.try_lock().as_deref(), Some(&2));
        assert_eq!(rw.try_read().as_deref(), Some(&2));
        assert_eq!(rw.try_write().as_deref(), Some(&2));
        assert_eq!((*mutex.get_mut(), *rw.get_mut()), (2, 2));
        assert_eq!((mutex.into_inner(), rw.into_inner()), (2, 2));
    }

    #[test]
    fn a_lock_that_is_taken_is_not_given_to_who_does_not_wait() {
        let (mutex, rw) = (Mutex::new(0), RwLock::new(0));
        let (_a, b) = (mutex.lock(), rw.read());
        assert!(mutex.try_lock().is_none());
        assert!(rw.try_write().is_none() && rw.try_read().is_some());
        drop(b);
        let _b = rw.write();
        assert!(rw.try_read().is_none());
    }

    #[test]
    fn a_condition_hands_the_lock_over() {
        let both = Arc::new((Mutex::new(0), Condvar::new()));
        let other = both.clone();
        let told = thread::spawn(move || {
            *other.0.lock() = 1;
            other.1.notify_all();
        });
        let (state, changed) = &*both;
        let guard = changed.wait_while(state.lock(), |n| *n == 0);
        assert_eq!(*guard, 1);
        let short = Duration::from_millis(1);
        let guard = changed.wait_timeout(guard, short);
        let (guard, ran_out) = changed.wait_timeout_while(guard, short, |n| *n == 1);
        assert_eq!((*guard, ran_out), (1, true));
        drop(guard);
        told.join().expect("done");
    }
}

//! Locks with a rank, so that a deadlock is found by any run that takes the locks, not only by the unlucky one.
//!
//! A thread takes locks in rising rank. Debug builds keep the ranks that a thread holds and panic at the
//! first lock that is not higher than all of them; release builds carry no trace of it. The table
//! of ranks is in `docs/design/locking.md`.
//!
//! - `try_lock` cannot wait, so it is not checked, but what it took counts as held.
//! - A panic in a holder does not poison: data behind these locks is valid at every step, or the
//!   owner has its own flag.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};

/// Proof that the thread's list of held ranks contains this lock.
struct Held {
    #[cfg(debug_assertions)]
    rank: u32,
    /// Keeps guards on the thread that took them.
    _thread: std::marker::PhantomData<*const ()>,
}

#[cfg(debug_assertions)]
thread_local! {
    static RANKS: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy)]
enum Order {
    Above,
    Any,
}

impl Held {
    #[cfg_attr(not(debug_assertions), allow(unused_variables))]
    fn enter(rank: u32, order: Order) -> Self {
        #[cfg(debug_assertions)]
        RANKS.with_borrow_mut(|held| {
            let highest = held.iter().max().copied();
            let fine = match order {
                Order::Above => highest.is_none_or(|h| rank > h),
                Order::Any => true,
            };
            assert!(
                fine,
                "a lock of rank {rank} is taken while locks of ranks {held:?} are held"
            );
            held.push(rank);
        });
        Self {
            #[cfg(debug_assertions)]
            rank,
            _thread: std::marker::PhantomData,
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        // try_with: a guard may live in a thread local that is dropped after the list.
        let _ = RANKS.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|&r| r == self.rank) {
                held.remove(at);
            }
        });
    }
}

/// A mutex of rank `RANK`.
#[derive(Default)]
pub struct RankedMutex<T: ?Sized, const RANK: u32>(sync::Mutex<T>);

/// A taken [`RankedMutex`].
pub struct RankedMutexGuard<'a, T: ?Sized> {
    // The lock is released before the rank is.
    guard: sync::MutexGuard<'a, T>,
    _held: Held,
}

impl<T, const RANK: u32> RankedMutex<T, RANK> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized, const RANK: u32> RankedMutex<T, RANK> {
    /// Wait for the lock. Every held rank must be lower.
    pub fn lock(&self) -> RankedMutexGuard<'_, T> {
        self.take(Order::Above)
    }

    fn take(&self, order: Order) -> RankedMutexGuard<'_, T> {
        let held = Held::enter(RANK, order);
        RankedMutexGuard {
            guard: self.0.lock().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }

    /// The lock if it is free.
    pub fn try_lock(&self) -> Option<RankedMutexGuard<'_, T>> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(RankedMutexGuard {
            guard,
            _held: Held::enter(RANK, Order::Any),
        })
    }

    /// The value, by exclusive access to the lock itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A readers-writer lock of rank `RANK`.
#[derive(Default)]
pub struct RankedRwLock<T: ?Sized, const RANK: u32>(sync::RwLock<T>);

/// A [`RankedRwLock`] taken for reading.
pub struct RankedReadGuard<'a, T: ?Sized> {
    guard: sync::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// A [`RankedRwLock`] taken for writing.
pub struct RankedWriteGuard<'a, T: ?Sized> {
    guard: sync::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T, const RANK: u32> RankedRwLock<T, RANK> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized, const RANK: u32> RankedRwLock<T, RANK> {
    /// Share the value. Every held rank must be lower: reading twice can deadlock behind a writer.
    pub fn read(&self) -> RankedReadGuard<'_, T> {
        self.share(Order::Above)
    }

    fn share(&self, order: Order) -> RankedReadGuard<'_, T> {
        let held = Held::enter(RANK, order);
        RankedReadGuard {
            guard: self.0.read().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }

    /// Own the value. Every held rank must be lower.
    pub fn write(&self) -> RankedWriteGuard<'_, T> {
        self.own(Order::Above)
    }

    fn own(&self, order: Order) -> RankedWriteGuard<'_, T> {
        let held = Held::enter(RANK, order);
        RankedWriteGuard {
            guard: self.0.write().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }

    /// Own the value if nobody has it.
    pub fn try_write(&self) -> Option<RankedWriteGuard<'_, T>> {
        let guard = match self.0.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(RankedWriteGuard {
            guard,
            _held: Held::enter(RANK, Order::Any),
        })
    }

    /// The value, by exclusive access to the lock itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

macro_rules! guards {
    ($($guard:ident)*) => {$(
        impl<T: ?Sized> Deref for $guard<'_, T> {
            type Target = T;
            fn deref(&self) -> &T {
                &self.guard
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    )*};
}

guards! { RankedMutexGuard RankedReadGuard RankedWriteGuard }

impl<T: ?Sized> DerefMut for RankedMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized> DerefMut for RankedWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug, const RANK: u32> fmt::Debug for RankedMutex<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug, const RANK: u32> fmt::Debug for RankedRwLock<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;

//! Locks with a rank. A debug build finds a wrong lock order in every run, not only in a run that
//! deadlocks.
//!
//! A thread takes locks in rising rank. Debug builds record the ranks that a thread holds, and
//! panic at the first lock that is not higher than all of them. Release builds record nothing. The
//! table of ranks is in `docs/design/locking.md`.
//!
//! - `try_lock` cannot wait, so it is not checked, but a lock taken that way counts as held.
//! - These locks can be taken after a panic, too, like [`Mutex`] and [`RwLock`], which they are
//!   built on.

mod plain;

pub use plain::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use std::fmt;
use std::ops::{Deref, DerefMut};

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
pub struct RankedMutex<T: ?Sized, const RANK: u32>(Mutex<T>);

/// A taken [`RankedMutex`].
pub struct RankedMutexGuard<'a, T: ?Sized> {
    // The lock is released before the rank is.
    guard: MutexGuard<'a, T>,
    _held: Held,
}

impl<T, const RANK: u32> RankedMutex<T, RANK> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized, const RANK: u32> RankedMutex<T, RANK> {
    /// Waits for the lock. Every held rank must be lower.
    pub fn lock(&self) -> RankedMutexGuard<'_, T> {
        let held = Held::enter(RANK, Order::Above);
        RankedMutexGuard {
            guard: self.0.lock(),
            _held: held,
        }
    }

    /// The lock if it is free.
    pub fn try_lock(&self) -> Option<RankedMutexGuard<'_, T>> {
        Some(RankedMutexGuard {
            guard: self.0.try_lock()?,
            _held: Held::enter(RANK, Order::Any),
        })
    }

    /// The value, by exclusive access to the lock itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A readers-writer lock of rank `RANK`.
#[derive(Default)]
pub struct RankedRwLock<T: ?Sized, const RANK: u32>(RwLock<T>);

/// A [`RankedRwLock`] taken for reading.
pub struct RankedReadGuard<'a, T: ?Sized> {
    guard: RwLockReadGuard<'a, T>,
    _held: Held,
}

/// A [`RankedRwLock`] taken for writing.
pub struct RankedWriteGuard<'a, T: ?Sized> {
    guard: RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T, const RANK: u32> RankedRwLock<T, RANK> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized, const RANK: u32> RankedRwLock<T, RANK> {
    /// Share the value. Every held rank must be lower: reading twice can deadlock behind a writer.
    pub fn read(&self) -> RankedReadGuard<'_, T> {
        let held = Held::enter(RANK, Order::Above);
        RankedReadGuard {
            guard: self.0.read(),
            _held: held,
        }
    }

    /// Own the value. Every held rank must be lower.
    pub fn write(&self) -> RankedWriteGuard<'_, T> {
        let held = Held::enter(RANK, Order::Above);
        RankedWriteGuard {
            guard: self.0.write(),
            _held: held,
        }
    }

    /// Share the value if no thread owns it.
    pub fn try_read(&self) -> Option<RankedReadGuard<'_, T>> {
        Some(RankedReadGuard {
            guard: self.0.try_read()?,
            _held: Held::enter(RANK, Order::Any),
        })
    }

    /// Own the value if no thread shares or owns it.
    pub fn try_write(&self) -> Option<RankedWriteGuard<'_, T>> {
        Some(RankedWriteGuard {
            guard: self.0.try_write()?,
            _held: Held::enter(RANK, Order::Any),
        })
    }

    /// The value, by exclusive access to the lock itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
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

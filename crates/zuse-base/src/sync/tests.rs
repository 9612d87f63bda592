use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

static LOW: RankedMutex<u32, 10> = RankedMutex::new(0);

#[test]
fn rising_ranks_are_fine_in_any_release_order() {
    let high = RankedRwLock::<u32, 20>::new(5);
    let higher = RankedMutex::<u32, 30>::new(6);
    let a = LOW.lock();
    let b = high.read();
    drop(a);
    let c = higher.lock();
    assert_eq!(*b + *c, 11);
    drop(b);
    drop(c);
    *high.write() += 1;
    assert_eq!(high.into_inner(), 6);
}

#[test]
#[cfg(debug_assertions)]
fn a_falling_rank_panics() {
    let high = RankedRwLock::<u32, 20>::new(5);
    let low = RankedMutex::<u32, 10>::new(0);
    let guard = high.read();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(low.lock()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(high.read()))).is_err());
    assert!(low.try_lock().is_some());
    drop(guard);
    drop(low.lock());
}

#[test]
fn a_panic_of_a_holder_does_not_poison() {
    let lock = RankedMutex::<u32, 1>::new(1);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = lock.lock();
        *guard = 2;
        panic!("on purpose");
    }));
    assert_eq!(*lock.lock(), 2);
}

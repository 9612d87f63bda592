use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

#[test]
fn readers_share_and_writers_of_other_ranges_do_not_wait() {
    let lock = RangeLock::default();
    let _a = lock.read(0, 10);
    let _b = lock.read(5, 15);
    let _c = lock.write(15, 20);
}

#[test]
fn writers_of_the_same_range_exclude_each_other() {
    let lock = Arc::new(RangeLock::default());
    let inside = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let (lock, inside) = (lock.clone(), inside.clone());
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let _g = lock.write(i, 100);
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    inside.fetch_sub(1, SeqCst);
                }
            })
        })
        .collect();
    for t in threads {
        t.join().expect("no panic");
    }
    assert!(lock.state.lock().ranges.is_empty());
}

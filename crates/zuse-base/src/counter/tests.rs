use super::*;

#[test]
fn threads_lose_no_counts() {
    let counter = Counter::default();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..1000).for_each(|_| counter.bump()));
        }
    });
    assert_eq!(counter.get(), 4000);
    assert_eq!(counter.sub(1000), 4000);
    counter.raise(10);
    assert_eq!(counter.reset(1), 3000);
    counter.raise(10);
    assert_eq!(counter.get(), 10);
}

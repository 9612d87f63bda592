use super::*;
use std::sync::mpsc;

fn submit(pool: &WorkPool, job: impl FnOnce() + Send + 'static) {
    assert!(pool.try_submit(Box::new(job)).is_ok());
}

#[test]
fn results_come_in_the_order_of_the_items() {
    let pool = WorkPool::new("test", 3, 8).unwrap();
    let squares = pool.run_all((0..1000u64).collect(), |n| n * n);
    assert_eq!(squares, (0..1000u64).map(|n| n * n).collect::<Vec<_>>());
    assert!(pool.run_all(Vec::<u8>::new(), |n| n).is_empty());
}

#[test]
fn nested_batches_do_not_deadlock_on_one_thread_and_a_queue_of_one() {
    let pool = Arc::new(WorkPool::new("test", 1, 1).unwrap());
    let inner = pool.clone();
    let sums = pool.run_all((0..20u64).collect(), move |n| {
        let innermost = inner.clone();
        let parts = inner.run_all((0..n).collect(), move |m| {
            innermost.run_all(vec![m, m], |x| x).len() as u64
        });
        parts.iter().sum::<u64>()
    });
    assert_eq!(sums, (0..20u64).map(|n| 2 * n).collect::<Vec<_>>());
}

#[test]
fn a_panic_is_reported_and_the_pool_lives_on() {
    let pool = WorkPool::new("crunch", 2, 8).unwrap();
    let error = pool
        .try_run_all((0..10).collect(), |n: i32| {
            assert!(n != 7, "seven");
            n
        })
        .unwrap_err();
    assert_eq!(error.pool, "crunch");
    assert!(error.to_string().contains("seven"), "{error}");
    submit(&pool, || panic!("alone"));
    assert_eq!(pool.run_all(vec![1, 2, 3], |n| n + 1), [2, 3, 4]);
    while pool.panics() < 2 {
        thread::yield_now();
    }
}

#[test]
fn dropping_the_pool_runs_what_is_queued() {
    let done = Arc::new(Counter::default());
    let pool = WorkPool::new("test", 2, 100).unwrap();
    for _ in 0..50 {
        let done = done.clone();
        submit(&pool, move || done.bump());
    }
    drop(pool);
    assert_eq!(done.get(), 50);
}

#[test]
fn a_finished_batch_keeps_nothing_alive() {
    let pool = WorkPool::new("test", 1, 8).unwrap();
    let (hold, wait) = mpsc::channel::<()>();
    // The only worker is busy, so the helpers of the batch stay in the queue.
    submit(&pool, move || {
        let _ = wait.recv();
    });
    let held = Arc::new(());
    let captured = held.clone();
    pool.run_all(vec![1, 2, 3], move |_| Arc::strong_count(&captured));
    assert_eq!(Arc::strong_count(&held), 1);
    drop(hold);
}

#[test]
fn borrowed_data_is_worked_on_in_place() {
    let mut data = vec![1u32; 1000];
    let step = 5;
    let lens = run_all_borrowed(3, data.chunks_mut(300).collect(), |chunk: &mut [u32]| {
        chunk.iter_mut().for_each(|n| *n += step);
        chunk.len()
    });
    assert_eq!(lens, [300, 300, 300, 100]);
    assert!(data.iter().all(|&n| n == 6));
}

/// Each item waits until as many run as may wait for devices. There are never more than that, or
/// than processors.
#[test]
fn what_computes_has_as_many_threads_as_there_are_processors_or_devices() {
    use std::time::{Duration, Instant};
    let (waiting, pool) = (3, WorkPool::new("t", 64, 64).unwrap());
    let most = processors().max(waiting + 1).min(65);
    let now_and_peak = Arc::new(Mutex::new((0, 0)));
    let of = now_and_peak.clone();
    let begun = Instant::now();
    pool.try_compute_all(waiting, (0..200).collect(), move |_: i32| {
        {
            let mut at = of.lock();
            at.0 += 1;
            at.1 = at.1.max(at.0);
        }
        while of.lock().1 <= waiting && begun.elapsed() < Duration::from_secs(20) {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(1));
        of.lock().0 -= 1;
    })
    .unwrap();
    let peak = now_and_peak.lock().1;
    assert!((waiting + 1..=most).contains(&peak), "{peak} of {most}");
}

#[test]
fn what_is_put_by_goes_on_beside_and_is_done_in_the_end() {
    let pool = WorkPool::new("t", 2, 8).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    // Without any call of `finish`.
    let (told, heard) = mpsc::channel();
    pool.run_in_background(vec![1, 2], move |n| told.send(n).unwrap());
    assert_eq!(heard.recv().unwrap() + heard.recv().unwrap(), 3);
    for _ in 0..3 {
        let done = done.clone();
        pool.run_in_background((0..100).collect(), move |_: i32| {
            thread::sleep(std::time::Duration::from_micros(200));
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    pool.finish().unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 300);
    assert!(pool.background.lock().is_empty());
    pool.run_in_background(vec![0, 1, 0], |n: i32| assert_eq!(n, 0));
    assert!(pool.finish().is_err());
    pool.finish().unwrap();
}

/// If the queue of the pool is full, the caller does the work at once.
#[test]
fn what_is_put_by_needs_no_room_in_the_queue() {
    let pool = WorkPool::new("t", 1, 1).unwrap();
    let ((go, wait), (told, begun)) = (mpsc::channel::<()>(), mpsc::channel());
    submit(&pool, move || {
        told.send(()).unwrap();
        wait.recv().unwrap();
    });
    begun.recv().unwrap();
    while pool.try_submit(Box::new(|| ())).is_ok() {
        thread::yield_now();
    }
    let done = Arc::new(AtomicUsize::new(0));
    let of = done.clone();
    pool.run_in_background(vec![(), ()], move |()| {
        of.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(done.load(Ordering::Relaxed), 2);
    go.send(()).unwrap();
}

/// A pool as on a machine of so many processors.
fn on(processors: usize, threads: usize) -> WorkPool {
    let mut pool = WorkPool::new("test", threads, 64).unwrap();
    pool.processors = processors;
    pool
}

/// Waits for something that other threads do.
fn soon(what: impl Fn() -> bool) -> bool {
    let begun = std::time::Instant::now();
    while !what() {
        if begun.elapsed().as_secs() >= 20 {
            return false;
        }
        thread::yield_now();
    }
    true
}

#[test]
fn at_leisure_half_of_the_processors_are_left_to_others() {
    for (processors, waiting, leisure, hurry) in [
        (1, 1, 0, 1),
        (2, 1, 0, 1),
        (2, 3, 2, 3),
        (4, 1, 1, 3),
        (16, 1, 7, 15),
        (16, 12, 11, 15),
    ] {
        let pool = on(processors, 1);
        assert!(pool.is_awaited(), "as long as nobody has said anything");
        assert_eq!(
            pool.useful_helpers(waiting),
            hurry,
            "{processors} {waiting}"
        );
        pool.set_awaited(false);
        assert_eq!(
            pool.useful_helpers(waiting),
            leisure,
            "{processors} {waiting}"
        );
        pool.set_awaited(true);
        assert_eq!(
            pool.useful_helpers(waiting),
            hurry,
            "{processors} {waiting}"
        );
    }
}

#[test]
fn who_begins_to_wait_is_helped_in_the_middle_of_a_batch() {
    let pool = Arc::new(on(2, 2));
    pool.set_awaited(false);
    let others = Arc::new(AtomicUsize::new(0));
    let caller = thread::current().id();
    let (hurried, counted) = (pool.clone(), others.clone());
    let results = pool.try_compute_all(1, (0..40).collect(), move |n| {
        if thread::current().id() != caller {
            counted.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        match n {
            0..20 => counted.load(Ordering::Relaxed) == 0,
            20 => {
                hurried.set_awaited(true);
                true
            }
            // The helper takes the items that the caller does not.
            21 => soon(|| counted.load(Ordering::Relaxed) > 0),
            _ => true,
        }
    });
    assert_eq!(results.unwrap(), [true; 40]);
    assert!(others.load(Ordering::Relaxed) > 0);
}

#[test]
fn what_is_put_by_at_leisure_waits_for_the_end_or_for_somebody_who_waits() {
    let pool = on(2, 2);
    let done = Arc::new(AtomicUsize::new(0));
    let start = || {
        let done = done.clone();
        pool.run_in_background(vec![(); 10], move |()| {
            done.fetch_add(1, Ordering::Relaxed);
        });
    };
    pool.set_awaited(false);
    start();
    assert_eq!(pool.queued(), 0);
    assert_eq!(done.load(Ordering::Relaxed), 0);
    pool.finish().unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 10);
    start();
    pool.set_awaited(true);
    assert!(soon(|| done.load(Ordering::Relaxed) == 20));
    start();
    assert!(soon(|| done.load(Ordering::Relaxed) == 30));
    pool.finish().unwrap();
}

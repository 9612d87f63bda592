use super::*;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn items_leave_in_the_order_they_came() {
    let queue = BoundedQueue::new(3);
    for i in 0..3 {
        queue.push(i).unwrap();
    }
    assert_eq!(queue.try_push(3), Err(PushError::Full(3)));
    assert_eq!(
        [queue.pop(), queue.pop(), queue.pop()],
        [Some(0), Some(1), Some(2)]
    );
}

#[test]
fn a_closed_queue_gives_out_what_it_has_and_takes_nothing() {
    let queue = BoundedQueue::new(3);
    queue.push(1).unwrap();
    queue.close();
    assert_eq!(queue.push(2), Err(2));
    assert_eq!(queue.try_push(2), Err(PushError::Closed(2)));
    assert_eq!(queue.pop(), Some(1));
    assert_eq!(queue.pop(), None);
}

#[test]
fn closing_wakes_those_who_wait() {
    let queue = Arc::new(BoundedQueue::new(1));
    queue.push(0).unwrap();
    let pusher = thread::spawn({
        let queue = queue.clone();
        move || queue.push(1)
    });
    let empty = Arc::new(BoundedQueue::<u8>::new(1));
    let popper = thread::spawn({
        let empty = empty.clone();
        move || empty.pop()
    });
    thread::sleep(Duration::from_millis(10));
    queue.close();
    empty.close();
    assert_eq!(pusher.join().unwrap(), Err(1));
    assert_eq!(popper.join().unwrap(), None);
}

#[test]
fn nothing_is_lost_between_many_threads() {
    let queue = BoundedQueue::new(4);
    let sum = Mutex::new(0u64);
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while let Some(n) = queue.pop() {
                    *sum.lock() += n;
                }
            });
        }
        let producers: Vec<_> = (0..3u64)
            .map(|p| {
                let queue = &queue;
                s.spawn(move || (0..1000).for_each(|i| queue.push(p * 1000 + i).unwrap()))
            })
            .collect();
        producers.into_iter().for_each(|p| p.join().unwrap());
        queue.close();
    });
    assert_eq!(*sum.lock(), (0..3000u64).sum());
}

#[test]
#[should_panic(expected = "the queue holds more than 1")]
fn an_item_too_many_is_noticed() {
    let queue = BoundedQueue::new(1);
    queue.enter(queue.state(), 1);
    queue.enter(queue.state(), 2);
}

#[test]
#[should_panic(expected = "enters a closed queue")]
fn an_item_that_enters_a_closed_queue_is_noticed() {
    let queue = BoundedQueue::new(1);
    queue.close();
    queue.enter(queue.state(), 1);
}

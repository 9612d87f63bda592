use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use zuse_base::Error;
use zuse_format::{BlockPointer, Dva};

use super::{Cache, Class, Key};
use crate::Block;

fn key(n: u64) -> Key {
    Key {
        dva: [8, n],
        birth: 5,
        sum: 1,
    }
}

fn block(bytes: usize) -> Arc<Block> {
    Arc::new(Block::new(vec![1; bytes]))
}

#[test]
fn what_is_put_is_found_and_what_is_removed_is_not() {
    let cache = Cache::new(1 << 20);
    cache.insert(key(1), Class::Data, block(4096));
    assert!(cache.get(&key(1)).is_some());
    assert!(
        cache.get(&Key { sum: 2, ..key(1) }).is_none(),
        "the same place with another content"
    );
    cache.remove(&key(1));
    assert!(cache.get(&key(1)).is_none());
    assert_eq!(cache.stats().used, 0);
}

#[test]
fn the_budget_holds_and_is_counted_exactly() {
    let cache = Cache::new(1 << 20);
    for n in 0..10_000 {
        cache.insert(key(n), Class::Data, block(4096));
        assert!(cache.stats().used <= (1 << 20) + 8192);
    }
    cache.clear();
    assert_eq!(cache.stats().used, 0);
}

#[test]
fn what_is_lent_is_taken_off_the_budget_until_it_comes_back() {
    let cache = Arc::new(Cache::new(1 << 20));
    for n in 0..300 {
        cache.insert(key(n), Class::Data, block(4096));
    }
    let loans: Vec<_> = (0..4).map(|_| cache.lend(128 << 10)).collect();
    assert!(loans.iter().all(Option::is_some));
    assert!(cache.lend(4096).is_none(), "half is lent already");
    cache.insert(key(1000), Class::Data, block(4096));
    assert!(cache.stats().used <= (512 << 10) + 8192);
    drop(loans);
    for n in 2000..2300 {
        cache.insert(key(n), Class::Data, block(4096));
    }
    assert!(cache.stats().used > 1000 << 10);
    assert!(cache.lend(512 << 10).is_some());
}

#[test]
fn what_nobody_uses_is_lent_up_to_three_quarters() {
    let cache = Arc::new(Cache::new(1 << 20));
    let spare: Vec<_> = (0..6).map(|_| cache.lend_spare(128 << 10)).collect();
    assert!(spare.iter().all(Option::is_some));
    assert!(cache.lend_spare(4096).is_none(), "three quarters are lent");
    assert!(cache.lend(4096).is_none(), "more than half is lent");
    drop(spare);
    for n in 0..192 {
        cache.insert(key(n), Class::Data, block(4096));
    }
    let used = cache.stats().used;
    assert!(cache.lend_spare((1 << 20) - used + 1).is_none(), "cached");
    assert!(cache.lend_spare(128 << 10).is_some());
    assert!(cache.lend(512 << 10).is_some(), "nothing is lent any more");
}

#[test]
fn what_is_lent_beside_the_budget_takes_nothing_from_it() {
    let cache = Arc::new(Cache::new(1 << 20));
    cache.set_extra_budget(256 << 10);
    let all: Vec<_> = (0..8).map(|_| cache.lend_spare(128 << 10)).collect();
    assert!(all.iter().all(Option::is_some), "six of it and two beside");
    assert!(cache.lend_spare(128 << 10).is_none());
    let mut all = all.into_iter();
    drop(all.next_back());
    drop(all.next_back());
    assert!(cache.lend(4096).is_none(), "those beside gave nothing back");
    assert!(cache.lend_spare(256 << 10).is_some(), "beside");
    drop(all.next());
    assert!(cache.lend_spare(128 << 10).is_some(), "of the budget");
    cache.set_extra_budget(0);
    let again = cache.lend_spare(128 << 10);
    assert!(again.is_some() && cache.lend_spare(4096).is_none());
}

#[test]
fn a_block_larger_than_the_budget_does_not_stay_beside_others() {
    let cache = Cache::new(64 << 10);
    for n in 0..20 {
        cache.insert(key(n), Class::Data, block(1 << 20));
    }
    assert!(
        cache.stats().used <= 2 << 20,
        "{} bytes",
        cache.stats().used
    );
}

#[test]
fn a_scan_does_not_push_out_what_is_used() {
    let cache = Cache::new(4 << 20);
    for n in 0..100 {
        cache.insert(key(n), Class::Data, block(4096));
    }
    for scan in 0..20_000 {
        for n in [scan % 100, (scan * 7) % 100] {
            cache.get(&key(n));
        }
        cache.insert(key(1_000_000 + scan), Class::Data, block(4096));
    }
    let kept = (0..100).filter(|n| cache.get(&key(*n)).is_some()).count();
    assert!(kept >= 95, "{kept} of 100 used blocks survived a scan");
}

#[test]
fn overwriting_the_same_few_blocks_does_not_grow_the_queues() {
    let cache = Cache::new(1 << 20);
    for round in 0..50_000u64 {
        let k = Key {
            birth: round,
            ..key(round % 4)
        };
        cache.insert(k, Class::Data, block(512));
        cache.remove(&k);
    }
    let slots = |s: &zuse_base::sync::Mutex<super::Shard>| {
        let shard = s.lock();
        shard.data.probation.len() + shard.data.main.len()
    };
    let queued: usize = cache.shards.iter().map(slots).sum();
    assert!(queued <= 16 * 70, "{queued} stale slots");
}

#[test]
fn several_readers_of_one_block_share_one_fetch() {
    let cache = Arc::new(Cache::new(1 << 20));
    let fetched = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (cache, fetched, gate) = (cache.clone(), fetched.clone(), gate.clone());
            std::thread::spawn(move || {
                gate.wait();
                let got = cache.get_or(key(1), Class::Data, || {
                    fetched.fetch_add(1, SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    Ok(Block::new(vec![7; 512]))
                });
                got.map(|b| b.bytes()[0]).ok()
            })
        })
        .collect();
    for t in threads {
        assert_eq!(t.join().ok().flatten(), Some(7));
    }
    assert_eq!(fetched.load(SeqCst), 1);
}

#[test]
fn a_failed_fetch_is_told_to_all_and_tried_again_by_the_next() {
    let cache = Cache::new(1 << 20);
    assert!(
        cache
            .get_or(key(1), Class::Data, || Err(Error::corrupt("here", "bad")))
            .is_err()
    );
    assert!(
        cache
            .get_or(key(1), Class::Data, || Ok(Block::new(vec![1; 512])))
            .is_ok()
    );
}

/// A caller that joins a failing fetch retries once, and the result of the retry holds.
#[test]
fn a_fetch_that_failed_is_tried_again_by_who_came_meanwhile() {
    for repaired in [true, false] {
        let cache = Arc::new(Cache::new(1 << 20));
        let fetched = Arc::new(AtomicUsize::new(0));
        let ask = |waiters: usize| {
            let (cache, fetched) = (cache.clone(), fetched.clone());
            std::thread::spawn(move || {
                cache
                    .get_or(key(1), Class::Data, || {
                        let first = fetched.fetch_add(1, SeqCst) == 0;
                        until_waited_for_by(&cache, &key(1), if first { 2 } else { waiters });
                        if repaired && !first {
                            return Ok(Block::new(vec![1; 512]));
                        }
                        Err(Error::corrupt("here", "bad"))
                    })
                    .is_ok()
            })
        };
        let first = ask(0);
        while fetched.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let others = [ask(1), ask(1)].map(|t| t.join().unwrap());
        assert_eq!((first.join().unwrap(), others), (false, [repaired; 2]));
        assert_eq!(fetched.load(SeqCst), 2);
    }
}

#[test]
fn a_fetch_that_panics_leaves_nobody_waiting() {
    let cache = Cache::new(1 << 20);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cache.get_or(key(1), Class::Data, || panic!("fetch"))
    }));
    assert!(caught.is_err());
    assert!(
        cache
            .get_or(key(1), Class::Data, || Ok(Block::new(vec![1; 512])))
            .is_ok()
    );
}

/// Waits until a thread waits for a block that is being read.
fn until_waited_for(cache: &Cache, key: &Key) {
    until_waited_for_by(cache, key, 1);
}

/// Waits until so many threads wait: the map, the reading thread and each waiter hold a reference.
fn until_waited_for_by(cache: &Cache, key: &Key, waiters: usize) {
    let waited_for = || {
        let shard = cache.shards[cache.shard(key)].lock();
        let flight = shard.flights.get(key);
        flight.is_some_and(|f| Arc::strong_count(f) >= 2 + waiters)
    };
    while !waited_for() {
        std::thread::yield_now();
    }
}

#[test]
fn who_needs_a_block_that_is_claimed_gets_it_from_the_claimer() {
    let cache = Arc::new(Cache::new(1 << 20));
    let taken = cache.claim_blocks([key(1), key(2)]);
    assert!(taken.has(&key(1)) && taken.has(&key(2)));
    let reader = {
        let cache = cache.clone();
        std::thread::spawn(move || {
            let got = cache.get_or(key(1), Class::Data, || panic!("a second fetch"));
            got.map(|b| b.bytes().len()).ok()
        })
    };
    until_waited_for(&cache, &key(1));
    cache.insert(key(1), Class::Data, block(512));
    assert_eq!(reader.join().ok().flatten(), Some(512));
    taken.wait();
    assert!(
        cache
            .get_or(key(2), Class::Data, || Ok(Block::new(vec![1; 512])))
            .is_ok(),
        "what did not come is fetched by who needs it"
    );
}

#[test]
fn who_waits_for_a_block_that_is_given_up_fetches_it() {
    let cache = Arc::new(Cache::new(1 << 20));
    let taken = cache.claim_blocks([key(1)]);
    let reader = {
        let cache = cache.clone();
        std::thread::spawn(move || {
            let fetch = || Ok(Block::new(vec![7; 512]));
            let got = cache.get_or(key(1), Class::Data, fetch);
            got.map(|b| b.bytes()[0]).ok()
        })
    };
    until_waited_for(&cache, &key(1));
    drop(taken);
    assert_eq!(reader.join().ok().flatten(), Some(7));
}

#[test]
fn what_is_here_or_on_its_way_is_not_claimed_but_waited_for() {
    let cache = Arc::new(Cache::new(1 << 20));
    cache.insert(key(1), Class::Data, block(512));
    let first = cache.claim_blocks([key(2)]);
    let second = {
        let cache = cache.clone();
        std::thread::spawn(move || {
            let taken = cache.claim_blocks([key(1), key(2), key(3)]);
            let own = [1, 2, 3].map(|n| taken.has(&key(n)));
            taken.wait();
            (own, cache.get(&key(2)).is_some())
        })
    };
    until_waited_for(&cache, &key(2));
    cache.insert(key(2), Class::Data, block(512));
    drop(first);
    assert_eq!(second.join().ok(), Some(([false, false, true], true)));
}

#[test]
fn metadata_and_data_make_room_for_each_other_at_their_share() {
    let cache = Cache::new(4 << 20);
    cache.set_limit(4 << 20, 25);
    for n in 0..2_000 {
        cache.insert(key(n), Class::Metadata, block(4096));
    }
    assert!(
        cache.stats().metadata > 3 << 20,
        "alone, metadata have the whole cache"
    );
    for n in 10_000..14_000 {
        cache.insert(key(n), Class::Data, block(4096));
    }
    let stats = cache.stats();
    assert!(
        stats.metadata <= (1 << 20) + 8192 && stats.metadata > 900 << 10,
        "a quarter of the budget stays metadata: {stats:?}"
    );
    cache.set_limit(4 << 20, 75);
    for n in 20_000..24_000 {
        cache.insert(key(n), Class::Metadata, block(4096));
    }
    let stats = cache.stats();
    assert!(
        stats.metadata <= (3 << 20) + 8192 && stats.metadata > 2900 << 10,
        "three quarters: {stats:?}"
    );
    assert!(stats.used <= (4 << 20) + 8192);
    cache.set_limit(1 << 20, 75);
    cache.insert(key(1), Class::Data, block(4096));
    assert!(cache.stats().used <= (1 << 20) + 8192, "a smaller budget");
    cache.clear();
    assert_eq!((cache.stats().used, cache.stats().metadata), (0, 0));
}

#[test]
#[should_panic(expected = "gives up")]
fn the_cache_never_gives_up_more_than_it_holds() {
    let cache = Cache::new(1 << 20);
    cache.insert(key(1), Class::Data, block(4096));
    cache.shrank(Some((Class::Data, 1 << 20)));
}

#[test]
#[should_panic(expected = "what the cache counts and what it holds")]
fn a_sum_that_is_not_that_of_the_entries_is_noticed() {
    let cache = Cache::new(1 << 20);
    cache.insert(key(1), Class::Data, block(4096));
    cache.shards[cache.shard(&key(1))].lock().data.bytes += 1;
    cache.clear();
}

#[test]
#[should_panic(expected = "each entry of the cache stands in one queue")]
fn an_entry_that_stands_in_no_queue_is_noticed() {
    let cache = Cache::new(1 << 20);
    cache.insert(key(1), Class::Data, block(4096));
    let mut shard = cache.shards[cache.shard(&key(1))].lock();
    shard.data.probation.clear();
    // Enough stale slots to trigger a sweep.
    shard.data.main.extend((10..100).map(key));
    shard.sweep(Class::Data);
}

/// A place may have held another block before, and may be rewritten within a txg.
#[test]
fn a_block_is_never_given_out_for_another_birth_or_another_content_of_its_place() {
    let cache = Cache::new(1 << 20);
    let pointer = |birth: u64, sum: u64| {
        let mut bp = BlockPointer::HOLE;
        bp.set_dva(0, Dva::new(0, 1 << 20, 4096, false));
        bp.set_birth(birth, birth);
        bp.set_checksum([sum, 0, 0, 0]);
        bp
    };
    cache.insert(Key::of(&pointer(9, 1)), Class::Data, block(4096));
    assert!(cache.get(&Key::of(&pointer(9, 1))).is_some());
    for other in [pointer(8, 1), pointer(10, 1), pointer(9, 2)] {
        assert!(cache.get(&Key::of(&other)).is_none(), "{other:?}");
        assert!(cache.peek(&Key::of(&other)).is_none(), "{other:?}");
    }
    assert!(cache.get(&Key::of(&pointer(9, 1)).locked()).is_none());
}

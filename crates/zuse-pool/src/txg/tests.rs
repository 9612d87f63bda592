use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use zuse_base::{Txg, WorkPool};
use zuse_dmu::DirtyMeter;

use super::{AT_LEAST, BULK, DirtyBounds, MEASURED_MIN, Txgs, UNKNOWN_PACE, VALUES_DURING_SYNC};

fn engine(dirty_max: u64) -> (Arc<Txgs>, Arc<DirtyMeter>) {
    let meter = Arc::new(DirtyMeter::default());
    (
        Txgs::new(
            Txg(10),
            meter.clone(),
            Arc::new(WorkPool::new("test", 1, 8).expect("a thread")),
            Duration::from_secs(3600),
            DirtyBounds {
                data: dirty_max,
                metadata: dirty_max,
            },
        ),
        meter,
    )
}

fn drive(
    txgs: &Arc<Txgs>,
    meter: &Arc<DirtyMeter>,
    written: &Arc<AtomicU64>,
) -> Vec<std::thread::JoinHandle<()>> {
    let (a, b, meter, written) = (txgs.clone(), txgs.clone(), meter.clone(), written.clone());
    vec![
        std::thread::spawn(move || while a.quiesce_next() {}),
        std::thread::spawn(move || {
            while let Some(txg) = b.next_to_sync() {
                written.store(txg.0, SeqCst);
                meter.clear(txg);
                b.done(txg);
            }
        }),
    ]
}

#[test]
fn a_waiter_gets_its_txg_written_and_the_next_one_is_open() {
    let (txgs, meter) = engine(1 << 20);
    let written = Arc::new(AtomicU64::new(0));
    let threads = drive(&txgs, &meter, &written);
    let tx = txgs.begin(100, || Ok(())).expect("open");
    let txg = tx.txg();
    assert_eq!(txg, Txg(11));
    drop(tx);
    txgs.wait_synced(txg, || Ok(())).expect("synced");
    assert_eq!(written.load(SeqCst), 11);
    assert!(txgs.open_txg() > txg);
    txgs.stop();
    for t in threads {
        t.join().expect("thread");
    }
}

#[test]
fn a_txg_is_not_written_while_a_transaction_holds_it_and_no_new_one_opens() {
    let (txgs, meter) = engine(1 << 20);
    let written = Arc::new(AtomicU64::new(0));
    let threads = drive(&txgs, &meter, &written);
    let tx = txgs.begin(0, || Ok(())).expect("open");
    txgs.want(tx.txg());
    let late = {
        let txgs = txgs.clone();
        std::thread::spawn(move || txgs.begin(0, || Ok(())).map(|tx| tx.txg()))
    };
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(written.load(SeqCst), 0, "written under a transaction");
    let txg = tx.txg();
    drop(tx);
    let next = late.join().expect("thread").expect("open");
    assert!(next >= txg);
    txgs.wait_synced(txg, || Ok(())).expect("synced");
    txgs.stop();
    for t in threads {
        t.join().expect("thread");
    }
}

#[test]
fn a_writer_waits_while_too_much_is_dirty() {
    let (txgs, meter) = engine(1000);
    let written = Arc::new(AtomicU64::new(0));
    let tx = txgs.begin(0, || Ok(())).expect("open");
    meter.add(tx.txg(), 2000);
    drop(tx);
    let late = {
        let txgs = txgs.clone();
        std::thread::spawn(move || txgs.begin(0, || Ok(())).map(|tx| tx.txg()))
    };
    std::thread::sleep(Duration::from_millis(50));
    assert!(
        !late.is_finished(),
        "admitted although the dirty limit is passed"
    );
    let threads = drive(&txgs, &meter, &written);
    assert_eq!(late.join().expect("thread").expect("open"), Txg(12));
    txgs.stop();
    for t in threads {
        t.join().expect("thread");
    }
}

#[test]
fn a_txg_that_quiesces_while_the_pool_closes_is_written() {
    let (txgs, meter) = engine(1 << 20);
    let written = Arc::new(AtomicU64::new(0));
    let threads = drive(&txgs, &meter, &written);
    let tx = txgs.begin(0, || Ok(())).expect("open");
    let txg = tx.txg();
    txgs.want(txg);
    std::thread::sleep(Duration::from_millis(50));
    txgs.stop();
    std::thread::sleep(Duration::from_millis(50));
    drop(tx);
    for t in threads {
        t.join().expect("thread");
    }
    assert_eq!(written.load(SeqCst), txg.0);
    txgs.wait_synced(txg, || Ok(())).expect("synced");
}

#[test]
fn a_txg_of_new_objects_is_written_early_and_one_that_writes_much_again_is_not() {
    let (txgs, meter) = engine(1000);
    let txg = txgs.open_txg();
    let kicked = || {
        drop(txgs.begin(0, || Ok(())).expect("open"));
        txgs.lock().kicked
    };
    meter.note_block(txg, true, 61);
    assert!(!kicked(), "too little for a txg");
    meter.note_block(txg, true, 39);
    meter.note_block(txg, false, 26);
    assert!(!kicked(), "waiting spares a quarter of it");
    meter.note_block(txg, true, 4);
    meter.add(txg, 1);
    assert!(kicked(), "nothing is gained by waiting");
    // Returns at once: nobody asks for the txg, and its timeout is an hour.
    assert!(txgs.quiesce_next());
    assert_eq!(txgs.next_to_sync(), Some(txg));
    // While one is written, the next one grows.
    meter.note_block(txg.next(), true, 300);
    assert!(kicked());
    let state = txgs.lock();
    assert_eq!((state.syncing, state.quiesced), (Some(txg), None));
    drop(state);
    meter.clear(txg);
    assert_eq!(meter.fresh_and_again(txg), (0, 0));
}

#[test]
fn a_txg_follows_at_once_where_values_go_on_coming_while_the_last_one_is_written() {
    for (came, follows) in [(VALUES_DURING_SYNC, true), (VALUES_DURING_SYNC - 1, false)] {
        let (txgs, meter) = engine(1 << 40);
        let first = txgs.open_txg();
        meter.note_value(first, 10 * VALUES_DURING_SYNC);
        meter.add(first, 1);
        txgs.want(first);
        assert!(txgs.quiesce_next());
        assert_eq!(txgs.next_to_sync(), Some(first));
        let second = first.next();
        meter.note_value(second, came);
        meter.add(second, 1);
        let quiescing = {
            let txgs = txgs.clone();
            std::thread::spawn(move || txgs.quiesce_next())
        };
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(txgs.open_txg(), second, "one at a time");
        meter.clear(first);
        txgs.done(first);
        if follows {
            let until = Instant::now() + Duration::from_secs(60);
            while txgs.open_txg() == second && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(txgs.open_txg(), second.next());
            assert!(quiescing.join().expect("thread"));
            assert_eq!(txgs.next_to_sync(), Some(second));
            // There was a stream so far; whether it goes on shows when this txg is written.
            meter.note_value(second.next(), came);
            assert!(!txgs.lock().streams);
        } else {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(txgs.open_txg(), second, "a burst is over by itself");
            txgs.stop();
            assert!(!quiescing.join().expect("thread"));
        }
    }
}

/// Limit of dirty file data in bytes.
fn data_bound(txgs: &Txgs) -> u64 {
    txgs.lock().bounds.data
}

#[test]
fn as_much_may_be_dirty_as_the_devices_take_within_a_second() {
    let second = Duration::from_secs(1);
    let (txgs, _) = engine(u64::MAX);
    assert_eq!(data_bound(&txgs), UNKNOWN_PACE);
    txgs.note_pace(MEASURED_MIN - 1, Duration::from_secs(1000));
    assert_eq!(
        data_bound(&txgs),
        UNKNOWN_PACE,
        "a commit more than a write"
    );
    for _ in 0..40 {
        txgs.note_pace(MEASURED_MIN, Duration::from_secs(100));
    }
    assert_eq!(data_bound(&txgs), AT_LEAST, "however slow they are");
    for _ in 0..40 {
        txgs.note_pace(2 << 30, second);
    }
    let gib = data_bound(&txgs) >> 20;
    assert!((2040..=2048).contains(&gib), "{gib} MiB");
    // The user's limit is an upper bound, and the measured pace stays.
    let bounds = |data| DirtyBounds { data, metadata: 1 };
    txgs.set_bounds(second, bounds(4 << 20));
    assert_eq!(data_bound(&txgs), 4 << 20);
    txgs.set_bounds(second, bounds(1 << 40));
    assert_eq!(data_bound(&txgs) >> 20, gib);
    txgs.note_pace(u64::MAX, Duration::ZERO);
    assert!(
        data_bound(&txgs) > gib << 20,
        "no overflow, no division by nothing"
    );
}

#[test]
fn values_may_be_as_many_as_the_devices_take_until_a_txg_is_due() {
    let (txgs, _) = engine(u64::MAX);
    let bounds = DirtyBounds {
        data: 1,
        metadata: 1,
    };
    txgs.set_bounds(Duration::from_secs(5), bounds);
    let rounded = 5 * 1000;
    assert!(5 * UNKNOWN_PACE - txgs.within_timeout() < rounded);
    for _ in 0..40 {
        txgs.note_pace(100 << 20, Duration::from_secs(1));
    }
    assert_eq!(txgs.within_timeout() >> 20, 499);
    txgs.set_bounds(Duration::from_millis(2500), bounds);
    assert_eq!(txgs.within_timeout() >> 20, 249);
    txgs.note_pace(u64::MAX, Duration::ZERO);
    txgs.set_bounds(Duration::MAX, bounds);
    assert_eq!(txgs.within_timeout(), u64::MAX, "no overflow");
}

#[test]
fn a_txg_is_worth_writing_long_before_writers_wait() {
    let meter = DirtyMeter::default();
    let worth = |bound, dirty| {
        meter.clear(Txg(11));
        meter.add_data(Txg(11), dirty);
        let bounds = DirtyBounds {
            data: bound,
            metadata: 1 << 40,
        };
        (bounds.enough(&meter, Txg(11)), bounds.reached(&meter))
    };
    let mib = |n: u64| n << 20;
    assert_eq!(worth(mib(500), mib(100) - 1), (false, false));
    assert_eq!(worth(mib(500), mib(100)), (true, false));
    assert_eq!(worth(mib(64), mib(32) - 1), (false, false));
    assert_eq!(worth(mib(64), mib(32)), (true, false));
    assert_eq!(worth(mib(4), mib(2)), (true, false));
    assert_eq!(worth(mib(4), mib(4)), (true, true));
}

#[test]
fn a_txg_is_as_old_as_its_first_transaction() {
    let (txgs, _meter) = engine(1 << 20);
    let age = |txgs: &Txgs| txgs.lock().opened_at;
    let opened = age(&txgs);
    // With a clock that stands still there would be no difference.
    std::thread::sleep(Duration::from_millis(2));
    drop(txgs.begin(1, || Ok(())).expect("open"));
    let touched = age(&txgs);
    assert!(touched > opened, "nobody had anything to wait for before");
    std::thread::sleep(Duration::from_millis(2));
    drop(txgs.begin(1, || Ok(())).expect("open"));
    assert_eq!(age(&txgs), touched, "the first one waits the longest");
    txgs.want(Txg(11));
    assert!(txgs.quiesce_next());
    std::thread::sleep(Duration::from_millis(2));
    let next = age(&txgs);
    drop(txgs.begin(1, || Ok(())).expect("open"));
    assert!(age(&txgs) > next, "and the next txg again");
}

/// An engine that is writing txg 11 because of its size, without waiters.
fn at_leisure() -> (Arc<Txgs>, Arc<DirtyMeter>) {
    let (txgs, meter) = engine(1000);
    assert!(txgs.work.is_awaited(), "before the first txg");
    let tx = txgs.begin(0, || Ok(())).expect("open");
    meter.add(tx.txg(), 600);
    drop(tx);
    assert!(txgs.quiesce_next());
    assert_eq!(txgs.next_to_sync(), Some(Txg(11)));
    assert!(!txgs.work.is_awaited());
    (txgs, meter)
}

#[test]
fn a_txg_is_written_at_leisure_until_somebody_waits_for_it() {
    type Waiter = fn(&Arc<Txgs>, &Arc<DirtyMeter>);
    let waiters: [(&str, Waiter); 5] = [
        ("it is waited for", |txgs, _| {
            let _ = txgs.wait_synced(Txg(11), || {
                Err(zuse_base::Error::refused(zuse_base::Errno::INTR, "enough"))
            });
        }),
        ("the next one is wanted", |txgs, _| txgs.want(Txg(12))),
        (
            "too much is dirty, and some of it is in the next one",
            |txgs, meter| {
                meter.add(Txg(12), 500);
                begin_once(txgs);
            },
        ),
        ("too much is dirty, all of it in this one", |txgs, meter| {
            meter.add(Txg(11), 500);
            begin_once(txgs);
        }),
        ("the pool is being closed", |txgs, _| txgs.stop()),
    ];
    for (what, wait) in waiters {
        let (txgs, meter) = at_leisure();
        wait(&txgs, &meter);
        assert!(txgs.work.is_awaited(), "{what}");
        meter.clear(Txg(11));
        txgs.done(Txg(11));
        assert!(
            txgs.work.is_awaited(),
            "{what}: afterwards nothing is written"
        );
    }
}

#[test]
fn a_txg_of_much_data_is_not_written_at_leisure() {
    for (data, value, awaited) in [
        (BULK, 0, true),
        (0, BULK, true),
        (BULK / 2, BULK / 2, true),
        (BULK / 2, BULK / 2 - 1, false),
    ] {
        let (txgs, meter) = engine(4 * BULK);
        let tx = txgs.begin(0, || Ok(())).expect("open");
        meter.add(tx.txg(), 3 * BULK);
        meter.add_data(tx.txg(), data);
        meter.note_value(tx.txg(), value);
        drop(tx);
        assert!(txgs.quiesce_next());
        assert_eq!(txgs.next_to_sync(), Some(Txg(11)));
        assert_eq!(txgs.work.is_awaited(), awaited, "{data} {value}");
    }
}

/// Begins a transaction, and gives up instead of waiting.
fn begin_once(txgs: &Arc<Txgs>) {
    let looks = AtomicU64::new(0);
    let waker = txgs.clone();
    let once = || match looks.fetch_add(1, SeqCst) {
        0 => {
            let waker = waker.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                waker.wake();
            });
            Ok(())
        }
        _ => Err(zuse_base::Error::refused(zuse_base::Errno::INTR, "enough")),
    };
    assert!(txgs.begin(0, once).is_err(), "it did not wait");
}

#[test]
fn the_txg_after_one_that_was_waited_for_is_written_at_leisure_again() {
    let (txgs, meter) = at_leisure();
    txgs.want(Txg(11));
    assert!(txgs.work.is_awaited());
    meter.clear(Txg(11));
    txgs.done(Txg(11));
    let tx = txgs.begin(0, || Ok(())).expect("open");
    meter.add(tx.txg(), 600);
    drop(tx);
    assert!(txgs.quiesce_next());
    assert_eq!(txgs.next_to_sync(), Some(Txg(12)));
    assert!(!txgs.work.is_awaited());
    // A waiter for one txg does not need the next.
    txgs.want(Txg(11));
    assert!(!txgs.work.is_awaited());
    txgs.want(Txg(12));
    assert!(txgs.work.is_awaited());
}

#[test]
#[should_panic(expected = "a txg ends that was not written")]
fn only_the_txg_that_is_being_written_ends() {
    let (txgs, _) = engine(1 << 20);
    txgs.done(Txg(11));
}

#[test]
#[should_panic(expected = "a transaction ends twice")]
fn a_transaction_ends_once() {
    let (txgs, _) = engine(1 << 20);
    let tx = txgs.begin(0, || Ok(())).expect("open");
    let txg = tx.txg();
    drop(tx);
    zuse_dmu::TxgHold::release(&*txgs, txg, 0);
}

#[test]
#[should_panic(expected = "is written out of order")]
fn a_txg_is_not_written_after_a_newer_one() {
    let (txgs, _) = engine(1 << 20);
    txgs.lock().quiesced = Some(Txg(10));
    txgs.next_to_sync();
}

#[test]
#[should_panic(expected = "is written out of order")]
fn no_txg_is_written_beside_another() {
    let (txgs, _) = engine(1 << 20);
    txgs.lock().syncing = Some(Txg(11));
    txgs.lock().quiesced = Some(Txg(12));
    txgs.next_to_sync();
}

#[test]
#[should_panic(expected = "a transaction outlived its txg")]
fn a_transaction_ends_in_its_own_txg() {
    let (txgs, _) = engine(1 << 20);
    let tx = txgs.begin(0, || Ok(())).expect("open");
    let txg = tx.txg();
    std::mem::forget(tx);
    txgs.lock().open = Txg(12);
    zuse_dmu::TxgHold::release(&*txgs, txg, 0);
}

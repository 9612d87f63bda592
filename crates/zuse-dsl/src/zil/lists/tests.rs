use zuse_base::{ObjectId, Txg};
use zuse_dmu::{Intent, Order, WriteState};
use zuse_format::field::u64_at;

use super::{COUNT_AT, Lists, MOST, OFFSET_AT, Records, SEQ_AT};

/// A record of that type, with these words from byte 32 on.
fn record(kind: u64, words: &[u64]) -> Vec<u8> {
    let mut out = vec![0; 32 + words.len() * 8];
    out[..8].copy_from_slice(&kind.to_le_bytes());
    for (i, word) in words.iter().enumerate() {
        out[32 + i * 8..40 + i * 8].copy_from_slice(&word.to_le_bytes());
    }
    out
}

fn name(kind: u64) -> Intent {
    Intent {
        order: Order::Names,
        record: record(kind, &[0]),
        write: None,
    }
}

fn of(object: u64, kind: u64) -> Intent {
    Intent {
        order: Order::Object(ObjectId(object)),
        record: record(kind, &[object]),
        write: None,
    }
}

fn write(object: u64, offset: u64, length: u64) -> Intent {
    let mut words = [0; 20];
    words[..3].copy_from_slice(&[object, offset, length]);
    Intent {
        order: Order::Object(ObjectId(object)),
        record: record(9, &words),
        write: Some(WriteState::NeedCopy),
    }
}

/// Types of the records of a drain.
fn kinds(lists: &mut Lists, synced: u64) -> Vec<u64> {
    let (_, batch) = lists.drain(Txg(synced));
    let mut out = Vec::new();
    for (_, bytes) in &batch {
        let mut rest = &bytes[..];
        while let Some((record, after)) = Records::split(rest) {
            out.push(u64_at(record, 0));
            rest = after;
        }
    }
    out
}

#[test]
fn a_commit_takes_all_names_and_one_object_in_the_order_of_txgs() {
    let mut lists = Lists::default();
    lists.add(Txg(7), &[name(1)]);
    lists.add(Txg(7), &[of(5, 11)]);
    lists.add(Txg(7), &[of(6, 13)]);
    lists.add(Txg(8), &[name(2)]);
    lists.add(Txg(8), &[of(5, 21)]);
    lists.stage(Some(ObjectId(5)));
    assert_eq!(kinds(&mut lists, 6), [1, 11, 2, 21]);
    lists.stage(None);
    assert_eq!(kinds(&mut lists, 6), [13]);
}

#[test]
fn what_is_on_disk_and_what_lost_its_name_is_not_written() {
    let mut lists = Lists::default();
    lists.add(Txg(7), &[name(1)]);
    lists.add(Txg(7), &[of(5, 11)]);
    lists.add(Txg(8), &[of(5, 21)]);
    lists.add(Txg(8), &[of(6, 13)]);
    lists.forget(ObjectId(6));
    lists.stage(None);
    assert_eq!(kinds(&mut lists, 7), [21]);
}

#[test]
fn writes_that_touch_become_one() {
    let mut lists = Lists::default();
    for (offset, length) in [(0, 100), (100, 50), (40, 10), (300, 8), (280, 20)] {
        lists.add(Txg(7), &[write(5, offset, length)]);
    }
    lists.stage(None);
    let (_, batch) = lists.drain(Txg(6));
    let (first, rest) = Records::split(&batch[0].1).expect("a record");
    let (second, rest) = Records::split(rest).expect("another");
    assert!(Records::split(rest).is_none());
    let range = |r: &[u8]| (u64_at(r, OFFSET_AT), u64_at(r, COUNT_AT), u64_at(r, SEQ_AT));
    assert_eq!((range(first), range(second)), ((0, 150, 1), (280, 28, 1)));
}

#[test]
fn a_ticket_is_the_drain_that_has_what_is_staged() {
    let mut lists = Lists::default();
    assert_eq!(lists.ticket(), 0);
    lists.add(Txg(7), &[name(1)]);
    assert_eq!(lists.ticket(), 1);
    assert_eq!(lists.drain(Txg(6)).0, 1);
    // No new records: callers with records in that drain wait for it.
    assert_eq!(lists.ticket(), 1);
    lists.add(Txg(7), &[of(5, 11)]);
    assert_eq!(lists.ticket(), 1);
    lists.stage(Some(ObjectId(5)));
    assert_eq!(lists.ticket(), 2);
}

#[test]
fn too_much_is_let_go_and_said() {
    let mut lists = Lists::default();
    let mut large = name(1);
    large.record.resize(1 << 20, 0);
    while lists.incomplete() == Txg::ZERO {
        lists.add(Txg(7), &[large.clone()]);
        assert!(lists.bytes <= MOST);
    }
    assert_eq!(lists.incomplete(), Txg(7));
    lists.add(Txg(7), &[name(2)]);
    assert!(kinds(&mut lists, 6).is_empty());
    lists.add(Txg(8), &[name(3)]);
    assert_eq!(kinds(&mut lists, 7), [3]);
}

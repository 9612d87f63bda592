//! Changes of valid leaves, and of invalid ones, which must stay unchanged.

use super::*;
use crate::zap::ZapValue;
use crate::zap::normalize::MatchType;
use std::borrow::Cow;

/// A hash of 28 bits below a prefix of one bit, 1.
fn hash_of(i: u64) -> u64 {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37 << 36) | 1 << 63
}

fn name_of(i: u64) -> Vec<u8> {
    format!("a name, of one chunk or of two {i:03}").into_bytes()[..10 + i as usize % 24].to_vec()
}

fn add(leaf: &mut LeafMut<'_>, i: u64) -> Checked<()> {
    let bytes = name_of(i);
    let key = Key {
        hash: hash_of(i),
        count: bytes.len() as u16 + 1,
        bytes: Cow::Owned(bytes),
        is_name: true,
        how: MatchType::Exact,
        normflags: 0,
    };
    leaf.add(&key, None, &ZapValue::U64(i).stored().unwrap())
}

/// A leaf with that many names of one and two chunks, or as many as fit.
fn leaf_of(most: u64) -> (Vec<u8>, u64) {
    let mut b = vec![0; 16 << 10];
    let mut leaf = LeafMut::format(&mut b, 1, 1, false).unwrap();
    let mut n = 0;
    while n < most && leaf.fits(35, 8) {
        add(&mut leaf, n).unwrap();
        n += 1;
    }
    (b, n)
}

fn full() -> (Vec<u8>, u64) {
    leaf_of(u64::MAX)
}

/// What a leaf holds: hash, name, value.
fn holds(b: &[u8]) -> Vec<(u64, Vec<u8>, u64)> {
    let leaf = Leaf::parse(b).unwrap();
    let mut all = Vec::new();
    leaf.entries_from((0, 0), &mut all).unwrap();
    let buckets = 0..leaf.geometry().buckets();
    let chained: usize = buckets.map(|i| leaf.chain(i).count()).sum();
    assert_eq!(
        (chained, usize::from(leaf.entries())),
        (all.len(), all.len())
    );
    let mut free = 0;
    let mut at = leaf.freelist();
    while at != END {
        assert!(leaf.is_free(at));
        at = leaf.next_free(at);
        free += 1;
    }
    assert_eq!(free, leaf.free());
    let entry = |(hash, _, chunk): (u64, u32, u16)| {
        let e = leaf.entry(chunk).unwrap();
        let mut name = Vec::new();
        leaf.read_name(&e, false, &mut name).unwrap();
        (hash, name, leaf.first_int(&e).unwrap())
    };
    all.into_iter().map(entry).collect()
}

#[test]
fn a_split_gives_each_half_its_entries() {
    let (mut low, n) = full();
    assert!(n > 150);
    let mut high = vec![0; low.len()];
    LeafMut::parse(&mut low)
        .unwrap()
        .split(&mut high, false)
        .unwrap();
    let (low, high) = (holds(&low), holds(&high));
    assert!(low.iter().all(|e| e.0 >> 62 == 0b10) && high.iter().all(|e| e.0 >> 62 == 0b11));
    let mut all: Vec<_> = low.into_iter().chain(high).collect();
    all.sort_by_key(|e| e.2);
    let wanted: Vec<_> = (0..n).map(|i| (hash_of(i), name_of(i), i)).collect();
    assert!(all == wanted);
}

/// Makes a valid leaf invalid.
type Flawed<'a> = &'a dyn Fn(&mut [u8]);

#[test]
fn a_flaw_found_in_the_middle_leaves_the_leaf_as_it_was() {
    let (sound, n) = full();
    let entries: Vec<u16> = {
        let leaf = Leaf::parse(&sound).unwrap();
        (0..leaf.geometry().chunks() as u16)
            .filter(|&i| leaf.is_entry(i))
            .collect()
    };
    let upper: Vec<u16> = entries
        .iter()
        .copied()
        .filter(|&i| Leaf::parse(&sound).unwrap().entry(i).unwrap().hash >> 62 == 0b11)
        .collect();
    let at = |i: u16| Geometry { shift: 14 }.chunk(i);
    // A hash of another leaf; a value that is shared with another entry; a name that continues in
    // an entry; a cycle of chunks.
    let flaws: [Flawed<'_>; 4] = [
        &|b| b[at(entries[n as usize / 2]) + 23] = 0x40,
        &|b| {
            let (one, other) = (at(upper[20]) + 8, at(upper[40]) + 8);
            b.copy_within(one..one + 2, other);
        },
        &|b| b[at(upper[30]) + 4..at(upper[30]) + 6].copy_from_slice(&entries[0].to_le_bytes()),
        &|b| {
            let e = Leaf::parse(b).unwrap().entry(upper[25]).unwrap();
            b[at(upper[25]) + 6..at(upper[25]) + 8].copy_from_slice(&900u16.to_le_bytes());
            b[at(e.name) + 22..at(e.name) + 24].copy_from_slice(&e.name.to_le_bytes());
        },
    ];
    for (i, flaw) in flaws.iter().enumerate() {
        let mut leaf = sound.clone();
        flaw(&mut leaf);
        let before = leaf.clone();
        let mut high = vec![0; leaf.len()];
        let split = LeafMut::parse(&mut leaf).unwrap().split(&mut high, false);
        assert!(split.is_err() && leaf == before, "flaw {i}");
    }
}

/// An add takes three chunks of the free list. A value of sixty bytes takes two more than one of
/// eight.
#[test]
fn a_free_list_that_lies_changes_nothing() {
    let (sound, n) = leaf_of(100);
    let at = |i: u16| Geometry { shift: 14 }.chunk(i);
    let list: Vec<u16> = {
        let leaf = Leaf::parse(&sound).unwrap();
        let next = |i: &u16| Some(leaf.next_free(*i)).filter(|&i| i != END);
        std::iter::successors(Some(leaf.freelist()), next).collect()
    };
    let put = |b: &mut [u8], i: u16, next: u16| {
        b[at(i) + 22..at(i) + 24].copy_from_slice(&next.to_le_bytes());
    };
    // The second chunk is in use; the list ends early, or is a cycle; it leads out of the leaf;
    // there are fewer than needed.
    let flaws: [Flawed<'_>; 5] = [
        &|b| put(b, list[0], 0),
        &|b| put(b, list[0], END),
        &|b| put(b, list[1], list[0]),
        &|b| put(b, list[0], 5000),
        &|b| b[28..30].copy_from_slice(&1u16.to_le_bytes()),
    ];
    for (i, flaw) in flaws.iter().enumerate() {
        let mut leaf = sound.clone();
        flaw(&mut leaf);
        let before = leaf.clone();
        let mut leaf = LeafMut::parse(&mut leaf).unwrap();
        // A name of one chunk: three in all.
        assert!(add(&mut leaf, n).is_err() && leaf.b == before, "add, {i}");
        let e = leaf.view().entry(0).unwrap();
        let long = ZapValue::Bytes(vec![7; 60]).stored().unwrap();
        // The cycle is longer than this change needs, and the first repeated chunk is enough to
        // refuse.
        let replaced = leaf.replace(&e, &long);
        match i {
            2 => assert_eq!(replaced, Ok(true)),
            4 => assert!(replaced == Ok(false) && leaf.b == before),
            _ => assert!(replaced.is_err() && leaf.b == before, "replace, {i}"),
        }
    }
}

#[test]
fn an_entry_whose_chunks_are_not_its_own_stays() {
    let (sound, _) = leaf_of(100);
    let at = |i: u16| Geometry { shift: 14 }.chunk(i);
    let put = |b: &mut [u8], at: usize, v: u16| b[at..at + 2].copy_from_slice(&v.to_le_bytes());
    let e = Leaf::parse(&sound).unwrap().entry(0).unwrap();
    // A name that is also the value; a name, and a value, that are entries.
    let flaws: [Flawed<'_>; 3] = [
        &|b| put(b, at(e.chunk) + 4, e.value),
        &|b| put(b, at(e.chunk) + 4, e.chunk),
        &|b| put(b, at(e.chunk) + 8, e.chunk),
    ];
    for (i, flaw) in flaws.iter().enumerate() {
        let mut leaf = sound.clone();
        flaw(&mut leaf);
        let before = leaf.clone();
        let mut leaf = LeafMut::parse(&mut leaf).unwrap();
        let e = leaf.view().entry(0).unwrap();
        assert!(leaf.remove(&e, false).is_err() && leaf.b == before, "{i}");
    }
    // A value of two chunks, the second of which is an entry.
    let mut leaf = sound.clone();
    let long = ZapValue::Bytes(vec![7; 30]).stored().unwrap();
    let done = LeafMut::parse(&mut leaf).unwrap().replace(&e, &long);
    assert_eq!(done, Ok(true));
    let long_one = Leaf::parse(&leaf).unwrap().entry(e.chunk).unwrap();
    put(&mut leaf, at(long_one.value) + 22, e.chunk);
    let before = leaf.clone();
    let mut leaf = LeafMut::parse(&mut leaf).unwrap();
    assert!(leaf.replace(&long_one, &long).is_err() && leaf.b == before);

    let mut leaf = sound.clone();
    LeafMut::parse(&mut leaf)
        .unwrap()
        .remove(&e, false)
        .unwrap();
    assert_eq!(holds(&leaf).len(), 99);
}

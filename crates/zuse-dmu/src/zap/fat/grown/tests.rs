use super::*;
use crate::zap::fat::{self, Put};
use crate::zap::hash::HashBits;
use crate::zap::header::Header;
use crate::zap::key::Ask;
use crate::zap::leaf::Leaf;
use crate::zap::normalize;
use crate::zap::normalize::MatchType;
use crate::zap::store::MemoryBlocks;

const SALT: u64 = 0x5A17_0001;

/// Name, value, hash, cd.
type Entries = Vec<(Vec<u8>, u64, u64, u32)>;

fn hash(name: &[u8], normflags: u64) -> u64 {
    HashBits::NORMAL.cut(normalize::hash(SALT, normflags, name).unwrap())
}

/// In the order of a listing, equal hashes numbered.
fn entries(names: impl Iterator<Item = Vec<u8>>, normflags: u64) -> Entries {
    let mut all: Entries = (1..)
        .zip(names)
        .map(|(i, name)| (name.clone(), i, hash(&name, normflags), 0))
        .collect();
    all.sort_by_key(|e| e.2);
    for i in 1..all.len() {
        if all[i].2 == all[i - 1].2 {
            all[i].3 = all[i - 1].3 + 1;
        }
    }
    all
}

fn at_once(h: Header, entries: &Entries) -> Option<Vec<Vec<u8>>> {
    grown(h, &|each| {
        entries
            .iter()
            .for_each(|(n, v, h, cd)| each(n, *v, *h, *cd))
    })
    .unwrap()
}

fn one_by_one(h: Header, entries: &Entries) -> MemoryBlocks {
    let memory = MemoryBlocks::default();
    fat::create(&memory, &h).unwrap();
    // In the order of a micro ZAP: as the names were added.
    let mut entries = entries.clone();
    entries.sort_by_key(|e| e.1);
    for (name, value, _, cd) in &entries {
        let aim = fat::take_aim(&memory, Ask::Name(name), MatchType::Exact, 256).unwrap();
        fat::put(&memory, aim, &Stored::one(*value), Put::Add, Some(*cd)).unwrap();
    }
    memory
}

/// For each leaf in table order: prefix, its length, chunks in use, entries in order. Each with the
/// number of the leaf that the pointers lead to.
fn shape(blocks: &dyn Fn(u64) -> Vec<u8>) -> (Header, Vec<(u64, u32, usize, Entries)>) {
    let block0 = blocks(0);
    let h = Header::parse(&block0).unwrap();
    let (mut leaves, mut last) = (Vec::new(), 0);
    for i in 0..1u64 << h.shift {
        let (blkid, at) = h.pointer_place(i);
        let leaf = u64::from_le_bytes(blocks(blkid)[at..at + 8].try_into().unwrap());
        assert!(leaf != 0 && leaf < h.freeblk);
        if leaf == last {
            continue;
        }
        last = leaf;
        let bytes = blocks(leaf);
        let leaf = Leaf::parse(&bytes).unwrap();
        let free = (0..leaf.geometry().chunks() as u16)
            .filter(|&i| leaf.is_free(i))
            .count();
        assert_eq!(free, usize::from(leaf.free()));
        let mut order = Vec::new();
        leaf.entries_from((0, 0), &mut order).unwrap();
        let each = |&(hash, cd, chunk): &(u64, u32, u16)| {
            let e = leaf.entry(chunk).unwrap();
            assert_eq!((e.hash, e.cd), (hash, cd));
            let mut name = Vec::new();
            leaf.read_name(&e, false, &mut name).unwrap();
            assert_eq!(usize::from(e.name_count), name.len() + 1);
            (name, leaf.first_int(&e).unwrap(), hash, cd)
        };
        let found = order.iter().map(each).collect();
        leaves.push((leaf.prefix(), leaf.prefix_len(), leaf.used(), found));
    }
    (h, leaves)
}

fn aim<'a>(memory: &MemoryBlocks, name: &'a [u8]) -> fat::FatLookup<'a> {
    fat::take_aim(memory, Ask::Name(name), MatchType::Exact, 256).unwrap()
}

fn numbered(n: usize, len: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(move |i| format!("{i:0len$}").into_bytes())
}

#[test]
fn it_has_the_leaves_that_adding_one_by_one_makes() {
    for (shift, normflags) in [(14, 0), (14, 2), (12, 0)] {
        for (n, len) in [
            (0, 1),
            (1, 1),
            (211, 8),
            (213, 8),
            (900, 20),
            (900, 21),
            (2_047, 49),
            (16_383, 14),
        ] {
            if shift == 12 && n > 3_000 {
                continue;
            }
            let new = Header::new(shift, SALT, normflags, 0);
            let entries = entries(numbered(n, len), normflags);
            let blocks = at_once(new, &entries);
            let Some(blocks) = blocks else {
                assert!(n * chunks_for(len + 1, VALUE) <= Geometry { shift }.chunks());
                continue;
            };
            let (h, leaves) = shape(&|i| blocks[i as usize].clone());
            assert_eq!(
                (h.entries, h.leafs, h.freeblk),
                (n as u64, blocks.len() as u64 - 1, blocks.len() as u64)
            );
            let memory = one_by_one(new, &entries);
            let (other, others) = shape(&|i| memory.blocks.borrow()[&i].clone());
            assert!(
                leaves == others,
                "{n} names of {len} bytes, blocks of 2^{shift}"
            );
            assert_eq!((other.entries, other.leafs), (h.entries, h.leafs));
            let listed: Entries = leaves.into_iter().flat_map(|l| l.3).collect();
            assert!(listed == entries);
            // Names can be added, found and removed.
            let memory = MemoryBlocks::default();
            *memory.blocks.borrow_mut() = (0..).zip(blocks).collect();
            for i in 0..n.min(500) {
                let name = format!("another name, number {i}").into_bytes();
                fat::put(
                    &memory,
                    aim(&memory, &name),
                    &Stored::one(7),
                    Put::Add,
                    None,
                )
                .unwrap();
            }
            for (name, value, ..) in &entries {
                assert_eq!(
                    fat::lookup_u64(&memory, aim(&memory, name)).unwrap(),
                    Some(Some(*value))
                );
                assert!(
                    fat::remove(&memory, aim(&memory, name), true)
                        .unwrap()
                        .is_some()
                );
            }
            assert_eq!(fat::count(&memory).unwrap(), n.min(500) as u64);
        }
    }
}

#[test]
fn hashes_that_need_a_longer_table_are_left_to_others() {
    let crowd = |n: usize, top: u64| {
        let names = (0..).map(|i: u64| format!("{i}").into_bytes());
        names
            .filter(move |name| top_bits(hash(name, 0), 8) == top)
            .take(n)
    };
    let new = Header::new(12, SALT, 0, 0);
    let room = Geometry { shift: 12 }.chunks() / 3;
    // As many as fit into the deepest leaf of a table of 256 pointers, and one more.
    let full = entries(crowd(room, 5).chain(crowd(1, 4)), 0);
    let blocks = at_once(new, &full).expect("they fit");
    assert_eq!(shape(&|i| blocks[i as usize].clone()).0.leafs, 9);
    let more = entries(crowd(room + 1, 5).chain(crowd(1, 4)), 0);
    assert!(at_once(new, &more).is_none());
    let (h, leaves) = shape(&|i| one_by_one(new, &more).blocks.borrow()[&i].clone());
    assert_eq!(
        (h.entries, leaves.len() as u64),
        (more.len() as u64, h.leafs)
    );
}

/// A listing with a wrong order, or one that differs the second time, makes no leaf with wrong
/// names.
#[test]
fn an_order_that_lies_makes_no_leaves() {
    let new = Header::new(12, SALT, 0, 0);
    let good = entries(numbered(400, 8), 0);
    let mut bad = good.clone();
    bad.reverse();
    let made = |entries: &Entries| {
        let list: &dyn Fn(&mut Each<'_>) = &|each| {
            entries
                .iter()
                .for_each(|(n, v, h, cd)| each(n, *v, *h, *cd))
        };
        matches!(grown(new, list), Ok(Some(_)))
    };
    assert!(made(&good) && !made(&bad));
    // Two entries that are swapped across leaves.
    let mut bad = good.clone();
    bad.swap(0, 399);
    assert!(!made(&bad));
    let times = std::cell::Cell::new(0);
    let longer = |each: &mut Each<'_>| {
        times.set(times.get() + 1);
        let n = if times.get() == 1 { 200 } else { 400 };
        good.iter()
            .take(n)
            .for_each(|(n, v, h, cd)| each(n, *v, *h, *cd));
    };
    assert!(grown(new, &longer).is_err());
}

use zuse_base::{Entropy, RangeTree, SeededPrng, Span, Txg};

use super::memory::{Memory, MemoryTxg, Object};
use super::*;

const REGION: Region = Region {
    vdev: 0,
    metaslab: 2,
    span: Span::new(2 << 24, 1 << 24),
    shift: 12,
};
const SHAPE: MapShape = MapShape {
    block_size: 16 << 10,
    histogram: true,
};

fn append(pass: u32) -> Append<'static> {
    Append {
        pass,
        two_words: true,
        histogram: None,
    }
}

fn words(memory: &Memory, map: &SpaceMap) -> Vec<u64> {
    let data = memory.with(map.object(), |o| o.data.clone()).unwrap();
    data.as_chunks::<8>()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect()
}

fn with_words(region: Region, words: &[u64], alloc: i64) -> (Memory, SpaceMap) {
    let memory = Memory::new();
    let length = 8 * words.len() as u64;
    let object = memory.add(Object {
        block_size: 16 << 10,
        bonus: SpaceMapPhys {
            object: 1,
            length,
            alloc,
            histogram: None,
        }
        .to_bytes(),
        data: words.iter().flat_map(|w| w.to_le_bytes()).collect(),
        ..Object::default()
    });
    let map = SpaceMap::open(&memory, object, region).unwrap();
    (memory, map)
}

/// The words are those of the format notes (OpenZFS 2.4, a metaslab of a disk with ashift 12).
#[test]
fn an_append_writes_the_words_that_openzfs_writes() {
    let memory = Memory::new();
    let mut map = SpaceMap::create(&MemoryTxg(&memory, Txg(4)), SHAPE, REGION).unwrap();
    let allocs: RangeTree = [Span::new(2 << 24, 0xf000)].into_iter().collect();
    map.append(
        &MemoryTxg(&memory, Txg(4)),
        append(1),
        &allocs,
        &RangeTree::new(),
    )
    .unwrap();
    assert_eq!(words(&memory, &map), [0x8004_0000_0000_0004, 0xe]);
    let frees: RangeTree = [Span::new((2 << 24) + 0x1000, 0x1000)]
        .into_iter()
        .collect();
    map.append(
        &MemoryTxg(&memory, Txg(6)),
        append(2),
        &RangeTree::new(),
        &frees,
    )
    .unwrap();
    assert_eq!(words(&memory, &map)[2..], [0x9008_0000_0000_0006, 0x18000]);
    assert_eq!((map.header().length, map.header().alloc), (32, 0xe000));
    let again = SpaceMap::open(&memory, map.object(), REGION).unwrap();
    assert_eq!(again.header(), map.header());
    assert_eq!(again.load(&memory).unwrap().space(), (1 << 24) - 0xe000);
}

#[test]
fn a_random_history_replays_to_the_state_it_led_to() {
    let random = SeededPrng::new(11);
    let memory = Memory::new();
    let mut map = SpaceMap::create(&MemoryTxg(&memory, Txg(1)), SHAPE, REGION).unwrap();
    let mut free: RangeTree = [REGION.span].into_iter().collect();
    for txg in 2..400 {
        let (mut allocs, mut frees) = (RangeTree::new(), RangeTree::new());
        let before = free.clone();
        for _ in 0..20 {
            let span = Span::new(
                REGION.span.start + (random.below(4000) << 12),
                (1 + random.below(3)) << 12,
            );
            if before.contains(span) && free.contains(span) {
                free.remove(span).unwrap();
                allocs.add(span).unwrap();
            } else if !before.intersects(span)
                && !free.intersects(span)
                && REGION.span.contains(span)
            {
                free.add(span).unwrap();
                frees.add(span).unwrap();
            }
        }
        map.append(&MemoryTxg(&memory, Txg(txg)), append(1), &allocs, &frees)
            .unwrap();
    }
    assert!(map.blocks() >= 2);
    let opened = SpaceMap::open(&memory, map.object(), REGION).unwrap();
    assert_eq!(opened.load(&memory).unwrap(), free);
    let limit = map.header().length;
    let optimal = optimal_length(&free, 12, true, limit);
    map.condense(&MemoryTxg(&memory, Txg(500)), append(1), &free)
        .unwrap();
    assert!(map.header().length <= optimal && optimal < limit);
    assert_eq!(
        SpaceMap::open(&memory, map.object(), REGION)
            .unwrap()
            .load(&memory)
            .unwrap(),
        free
    );
}

#[test]
fn a_long_run_takes_two_words_that_never_straddle_a_block() {
    let region = Region {
        span: Span::new(0, 1 << 40),
        shift: 9,
        ..REGION
    };
    let memory = Memory::new();
    let mut map = SpaceMap::create(&MemoryTxg(&memory, Txg(1)), SHAPE, region).unwrap();
    let edge = (1 << 15) << 9;
    let mut allocs = RangeTree::new();
    for i in 0..5000u64 {
        let size = if i % 2 == 0 { edge } else { edge + 512 };
        allocs.add(Span::new(i * (edge + 1024), size)).unwrap();
    }
    map.append(
        &MemoryTxg(&memory, Txg(1)),
        append(1),
        &allocs,
        &RangeTree::new(),
    )
    .unwrap();
    let words = words(&memory, &map);
    assert_eq!(words[1] >> 62, 0, "a run of 32768 units fits in one word");
    assert_eq!(words[2] >> 62, 3, "a run of 32769 units does not");
    let (mut at, mut padding) = (0, 0);
    while at < words.len() {
        padding += usize::from(words[at] == zuse_format::space_map::PADDING);
        let two = words[at] >> 62 == 3;
        assert!(!two || at % 2048 != 2047, "word {at} straddles");
        at += 1 + usize::from(two);
    }
    assert!(padding > 0, "the test does not reach the edge of a block");
    let free = SpaceMap::open(&memory, map.object(), region)
        .unwrap()
        .load(&memory)
        .unwrap();
    assert_eq!(
        free.gaps_in(region.span).collect::<Vec<_>>(),
        allocs.iter().collect::<Vec<_>>()
    );
}

#[test]
fn without_spacemap_v2_a_long_run_is_split_into_single_words() {
    let memory = Memory::new();
    let region = Region {
        span: Span::new(0, 1 << 30),
        shift: 9,
        ..REGION
    };
    let mut map = SpaceMap::create(&MemoryTxg(&memory, Txg(1)), SHAPE, region).unwrap();
    let allocs: RangeTree = [region.span].into_iter().collect();
    let how = Append {
        two_words: false,
        ..append(1)
    };
    map.append(&MemoryTxg(&memory, Txg(1)), how, &allocs, &RangeTree::new())
        .unwrap();
    assert!(words(&memory, &map).iter().all(|w| w >> 62 != 3));
    assert!(map.load(&memory).unwrap().is_empty());
}

#[test]
fn contradictions_are_corruption_and_name_the_place() {
    let cases: [(&str, &[u64], i64); 5] = [
        ("allocated twice", &[0x0, 0x0], 0x2000),
        ("freed while free", &[0x8000], 0),
        ("a run behind the end", &[0x1000 << 16], 0x1000),
        (
            "an offset that overflows",
            &[0xc000_0000_0000_0000, 1 << 62],
            0x1000,
        ),
        ("a wrong sum", &[0x0], 0x2000),
    ];
    for (what, words, alloc) in cases {
        let (memory, map) = with_words(REGION, words, alloc);
        let error = map.load(&memory).unwrap_err().to_string();
        assert!(
            error.contains("vdev 0, metaslab 2, space map object 1: corrupt"),
            "{what}: {error}"
        );
    }
    let (memory, map) = with_words(REGION, &[3 << 62], 0);
    assert!(map.load(&memory).unwrap_err().to_string().contains("entry"));
    memory
        .with(map.object(), |o| {
            o.bonus[8..16].copy_from_slice(&(1u64 << 40).to_le_bytes())
        })
        .unwrap();
    assert!(
        SpaceMap::open(&memory, map.object(), REGION).is_err(),
        "a length behind the object's end"
    );
    memory.with(map.object(), |o| o.bonus.truncate(8)).unwrap();
    assert!(
        SpaceMap::open(&memory, map.object(), REGION).is_err(),
        "a short bonus"
    );
}

#[test]
fn a_failed_append_leaves_the_map_as_it_was() {
    let memory = Memory::new();
    let mut map = SpaceMap::create(&MemoryTxg(&memory, Txg(1)), SHAPE, REGION).unwrap();
    let allocs: RangeTree = [Span::new(2 << 24, 0x4000)].into_iter().collect();
    memory.fuse.store(1, std::sync::atomic::Ordering::Relaxed);
    map.append(
        &MemoryTxg(&memory, Txg(2)),
        append(1),
        &allocs,
        &RangeTree::new(),
    )
    .unwrap_err();
    assert_eq!(map.header().length, 0);
    assert_eq!(
        SpaceMap::open(&memory, map.object(), REGION)
            .unwrap()
            .load(&memory)
            .unwrap()
            .space(),
        1 << 24
    );
}

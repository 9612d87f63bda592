use zuse_base::{Span, Txg};

use super::sync::Synced;
use super::*;
use crate::space_map::memory::{Memory, MemoryTxg};
use crate::space_map::{MapShape, Region};

const REGION: Region = Region {
    vdev: 0,
    metaslab: 1,
    span: Span::new(1 << 24, 1 << 24),
    shift: 12,
};

fn fresh() -> Metaslab {
    Metaslab::new(REGION, 4096, None, Unflushed::default(), Arc::default()).unwrap()
}

fn sync(metaslab: &Metaslab, memory: &Memory, txg: u64) -> Result<Synced> {
    let shape = MapShape {
        block_size: 16 << 10,
        histogram: true,
    };
    metaslab.sync(SyncPass {
        writer: &MemoryTxg(memory, Txg(txg)),
        pass: 1,
        shape,
        two_words: true,
    })
}

fn take(metaslab: &Metaslab, txg: u64, size: u64) -> Span {
    match metaslab.allocate(Txg(txg), size).unwrap() {
        Attempt::Got { offset, .. } => Span::new(offset, size),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_freed_waits_for_two_more_commits() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let all = take(&metaslab, 5, 1 << 24);
    sync(&metaslab, &memory, 5).unwrap();
    metaslab.committed(|_| ());
    metaslab.free(Txg(6), all).unwrap();
    assert_eq!(metaslab.allocate(Txg(6), 4096).unwrap(), Attempt::NoFit);
    assert!(sync(&metaslab, &memory, 6).unwrap().defers);
    for (txg, freed, waits) in [(6, 0, true), (7, 0, true), (8, 1 << 24, false)] {
        assert_eq!(
            metaslab.allocate(Txg(txg), 4096).unwrap(),
            Attempt::NoFit,
            "txg {txg} is not on disk"
        );
        assert_eq!(metaslab.committed(|_| ()), (freed, waits), "txg {txg}");
    }
    assert_eq!(take(&metaslab, 9, 1 << 24), all);
}

#[test]
fn a_block_that_is_born_and_dies_in_one_txg_is_logged_as_both() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let span = take(&metaslab, 5, 0x8000);
    metaslab.free(Txg(5), span).unwrap();
    sync(&metaslab, &memory, 5).unwrap();
    assert_eq!(metaslab.recorded(), 0);
    // The map replays, and a load in between does not make the space allocatable.
    assert!(metaslab.unload());
    metaslab.load(&memory).unwrap();
    assert_eq!(metaslab.free_space(), (1 << 24) - 0x8000);
}

#[test]
fn a_load_gives_back_exactly_what_was_allocatable_before() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let spans: Vec<Span> = (0..40).map(|_| take(&metaslab, 5, 0x3000)).collect();
    sync(&metaslab, &memory, 5).unwrap();
    metaslab.committed(|_| ());
    for (i, txg) in [(1, 6), (3, 7), (5, 8)] {
        metaslab.free(Txg(txg), spans[i]).unwrap();
        take(&metaslab, txg + 1, 0x2000);
        sync(&metaslab, &memory, txg).unwrap();
        if txg < 8 {
            metaslab.committed(|_| ());
        }
    }
    metaslab.free(Txg(9), spans[7]).unwrap();
    let held = metaslab.hold(Span::new((1 << 24) + 0x80_0000, 0x1000));
    let before = metaslab.free_spans().unwrap();
    assert!(metaslab.unload());
    assert_eq!(metaslab.allocate(Txg(9), 4096).unwrap(), Attempt::NotLoaded);
    metaslab.load(&memory).unwrap();
    assert_eq!(metaslab.free_spans().unwrap(), before);
    metaslab.release(&held);
    assert_eq!(metaslab.free_space(), before.space() + 0x1000);
}

#[test]
fn freeing_what_is_free_is_refused_wherever_it_waits() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let span = take(&metaslab, 5, 0x4000);
    let inside = Span::new(span.start + 0x1000, 0x1000);
    sync(&metaslab, &memory, 5).unwrap();
    metaslab.committed(|_| ());
    metaslab.free(Txg(6), span).unwrap();
    metaslab.free(Txg(6), inside).unwrap_err();
    sync(&metaslab, &memory, 6).unwrap();
    metaslab.free(Txg(6), inside).unwrap_err();
    for _ in 0..3 {
        metaslab.committed(|_| ());
        metaslab.free(Txg(7), inside).unwrap_err();
    }
    metaslab.free(Txg(7), Span::new(0, 4096)).unwrap_err();
}

#[test]
fn a_failed_append_can_be_tried_again() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let span = take(&metaslab, 5, 0x4000);
    for fuse in 0..4 {
        memory.fuse.store(fuse, Relaxed);
        assert!(sync(&metaslab, &memory, 5).is_err() || fuse == 3);
    }
    memory.fuse.store(u64::MAX, Relaxed);
    sync(&metaslab, &memory, 5).unwrap();
    assert_eq!(metaslab.recorded(), span.size);
    assert!(metaslab.unload());
    metaslab.load(&memory).unwrap();
    assert_eq!(metaslab.free_space(), (1 << 24) - span.size);
}

#[test]
fn a_map_of_many_changes_is_condensed() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let (mut lengths, mut live) = (Vec::new(), Vec::new());
    while metaslab.longest() > 0 {
        live.push(take(&metaslab, 4, 4096));
    }
    for txg in 4..60 {
        // Every other block, so that the runs do not merge.
        if txg % 4 == 1 {
            live.iter()
                .step_by(2)
                .for_each(|span| assert!(metaslab.free(Txg(txg), *span).is_ok()));
        } else if txg % 4 == 0 && txg > 4 {
            (0..live.len() / 2)
                .for_each(|_| assert_eq!(take(&metaslab, txg, 4096).start % 8192, 0));
        }
        sync(&metaslab, &memory, txg).unwrap();
        lengths.push(metaslab.map_side().map.as_ref().unwrap().header().length);
        metaslab.committed(|_| ());
        let before = metaslab.free_spans().unwrap();
        assert!(metaslab.unload());
        metaslab.load(&memory).unwrap();
        assert_eq!(metaslab.free_spans().unwrap(), before, "txg {txg}");
    }
    assert!(
        lengths.windows(2).any(|w| w[1] < w[0]),
        "never condensed: {lengths:?}"
    );
    assert!(lengths.iter().all(|l| *l < 120 << 10), "{lengths:?}");
}

#[test]
fn a_broken_map_gives_nothing_and_says_why() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    take(&metaslab, 5, 0x4000);
    sync(&metaslab, &memory, 5).unwrap();
    memory
        .with(metaslab.object().unwrap(), |o| o.data[8] ^= 1)
        .unwrap();
    metaslab.unload();
    assert!(matches!(metaslab.load(&memory), Err(Error::Corrupt { .. })));
    assert!(matches!(
        metaslab.allocate(Txg(6), 4096),
        Err(Error::Corrupt { .. })
    ));
    assert_eq!(metaslab.longest(), 0);
}

#[test]
fn log_entries_cancel_each_other() {
    let mut unflushed = Unflushed::default();
    unflushed.apply(true, Span::new(0, 100)).unwrap();
    unflushed.apply(false, Span::new(20, 30)).unwrap();
    unflushed.apply(false, Span::new(90, 20)).unwrap();
    unflushed.apply(true, Span::new(105, 5)).unwrap();
    assert_eq!(
        unflushed.allocs.iter().collect::<Vec<_>>(),
        [Span::new(0, 20), Span::new(50, 40)]
    );
    assert_eq!(
        unflushed.frees.iter().collect::<Vec<_>>(),
        [Span::new(100, 5)]
    );
    assert_eq!(unflushed.delta(), 55);
    unflushed.apply(true, Span::new(10, 5)).unwrap_err();
}

#[test]
fn a_range_that_the_map_has_free_is_not_freed_again_though_the_tree_was_not_in_memory() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let taken = take(&metaslab, 5, 1 << 20);
    sync(&metaslab, &memory, 5).unwrap();
    metaslab.committed(|_| ());
    assert!(metaslab.unload());
    metaslab.free(Txg(6), taken).unwrap();
    let free = Span::new(taken.end() + (1 << 20), 4096);
    metaslab.free(Txg(6), free).unwrap();
    assert!(metaslab.frees_unseen(Txg(6)), "nobody could know yet");
    metaslab.load(&memory).unwrap();
    assert_eq!(metaslab.tripwire.torn(), None);
    let error = sync(&metaslab, &memory, 6).unwrap_err();
    assert!(error.to_string().contains("is not allocated"), "{error}");
    // Even if the error is ignored, no uberblock is written.
    let why = metaslab.tripwire.torn().unwrap();
    assert!(why.contains("contradicts itself"), "{why}");
}

#[test]
fn a_range_is_not_freed_in_two_txgs_that_are_not_on_disk() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let taken = take(&metaslab, 5, 1 << 20);
    sync(&metaslab, &memory, 5).unwrap();
    metaslab.free(Txg(6), taken).unwrap();
    assert!(metaslab.free(Txg(7), taken).is_err());
    assert!(metaslab.tripwire.torn().is_some());
}

#[test]
fn a_map_never_says_that_less_than_nothing_is_allocated() {
    let memory = Memory::new();
    let shape = MapShape {
        block_size: 16 << 10,
        histogram: false,
    };
    let writer = MemoryTxg(&memory, Txg(5));
    let mut map = SpaceMap::create(&writer, shape, REGION).unwrap();
    let how = crate::space_map::Append {
        pass: 1,
        two_words: true,
        histogram: None,
    };
    let some = std::iter::once(Span::new(REGION.span.start, 4096)).collect();
    let none = zuse_base::RangeTree::new();
    assert!(map.append(&writer, how, &none, &some).is_err());
    assert!(map.append(&writer, how, &some, &none).is_ok());
    assert!(map.append(&writer, how, &none, &some).is_ok());
}

#[test]
#[should_panic(expected = "is given out before its old block is out of reach")]
fn what_waits_after_a_free_is_never_given_out() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    metaslab.state().defer[0].add(REGION.span).unwrap();
    let _ = metaslab.allocate(Txg(5), 4096);
}

#[test]
#[should_panic(expected = "leaves it")]
fn an_allocation_never_leaves_its_metaslab() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let outside = Span::new(REGION.span.end(), 1 << 20);
    metaslab.state().free = Some(std::iter::once(outside).collect());
    let _ = metaslab.allocate(Txg(5), 4096);
}

#[test]
#[should_panic(expected = "is given out twice")]
fn what_is_allocated_is_not_given_out_again() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    metaslab.state().allocating[2].add(REGION.span).unwrap();
    let _ = metaslab.allocate(Txg(5), 4096);
}

#[test]
#[should_panic(expected = "is given out twice")]
fn what_is_held_is_not_given_out() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    metaslab.state().held.add(REGION.span).unwrap();
    let _ = metaslab.allocate(Txg(5), 4096);
}

#[test]
#[should_panic(expected = "stands in two sets")]
fn a_byte_is_in_one_set_at_a_commit() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let span = Span::new(REGION.span.start, 4096);
    metaslab.state().held.add(span).unwrap();
    metaslab.committed(|_| ());
}

#[test]
#[should_panic(expected = "a block is freed that waits already")]
fn a_block_that_waits_is_not_freed_again() {
    let (memory, metaslab) = (Memory::new(), fresh());
    metaslab.load(&memory).unwrap();
    let taken = take(&metaslab, 5, 4096);
    metaslab.state().freed.add(taken).unwrap();
    metaslab.state().defer[0].add(taken).unwrap();
    metaslab.committed(|_| ());
}

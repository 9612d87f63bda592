use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use zuse_base::{Entropy, Errno, ObjectId, RangeTree, SeededPrng, Span, Txg};
use zuse_format::Dva;
use zuse_io::{AllocClass, Allocate};

use super::*;
use crate::space_map::memory::{Memory, MemoryTxg};

pub(crate) const OPTIONS: MapOptions = MapOptions {
    large_blocks: false,
    histogram: true,
    two_words: true,
};

pub(crate) fn disk(vdev: u32, metaslabs: u64, class: AllocClass) -> VdevInfo {
    VdevInfo {
        vdev,
        asize: (metaslabs << 24) + 0x5000,
        ashift: 12,
        align: 4096,
        metaslab_shift: 24,
        metaslab_array: ObjectId::ZERO,
        class,
        children: 1,
        deflate_ratio: 512,
        asize_of: Arc::new(|psize, _| psize.next_multiple_of(4096)),
    }
}

fn pool(memory: &Arc<Memory>, infos: &[VdevInfo]) -> Arc<Allocator> {
    let allocator = Allocator::new(OPTIONS);
    allocator.attach(Arc::clone(memory) as Arc<dyn MapStore>);
    infos
        .iter()
        .for_each(|info| allocator.add_vdev(info.clone()).unwrap());
    allocator
}

/// The vdevs as in the configuration after a sync.
fn reopened(allocator: &Allocator, infos: &[VdevInfo]) -> Vec<VdevInfo> {
    let array = |info: &VdevInfo| allocator.metaslab_array(info.vdev).unwrap_or_default();
    infos
        .iter()
        .map(|info| VdevInfo {
            metaslab_array: array(info),
            ..info.clone()
        })
        .collect()
}

fn commit(allocator: &Allocator, memory: &Memory, txg: u64) {
    while allocator.sync_pass(&MemoryTxg(memory, Txg(txg))).unwrap() {}
    allocator.sync_done(Txg(txg));
}

fn get(allocator: &Allocator, txg: u64, psize: u64, copies: usize) -> Vec<Dva> {
    let found = allocator
        .allocate(Txg(txg), psize, copies, AllocClass::Normal)
        .unwrap()
        .unwrap();
    found.dvas[..found.count].to_vec()
}

fn give(allocator: &Allocator, txg: u64, dva: Dva) {
    allocator
        .free_dva(Txg(txg), Txg(txg), dva.vdev(), dva.offset(), dva.asize())
        .unwrap();
}

fn span_of(dva: Dva) -> Span {
    Span::new(dva.offset(), dva.asize())
}

/// The expected state, which a correct allocator never contradicts.
#[derive(Default)]
struct Model {
    live: Vec<Dva>,
    taken: BTreeMap<u32, RangeTree>,
    /// Freed in the last txgs, newest first; each may be reused after two more commits.
    waiting: Vec<Vec<Dva>>,
}

impl Model {
    fn born(&mut self, dva: Dva) {
        let taken = self.taken.entry(dva.vdev()).or_default();
        taken
            .add(span_of(dva))
            .expect("space is given out twice, or too early");
        assert_eq!(
            dva.offset() >> 24,
            (dva.offset() + dva.asize() - 1) >> 24,
            "crosses a metaslab"
        );
        self.live.push(dva);
    }

    fn committed(&mut self, freed: Vec<Dva>) {
        self.waiting.insert(0, freed);
        for dva in self
            .waiting
            .split_off(self.waiting.len().min(2))
            .into_iter()
            .flatten()
        {
            self.taken
                .get_mut(&dva.vdev())
                .unwrap()
                .remove(span_of(dva))
                .unwrap();
        }
    }

    fn live_bytes(&self) -> u64 {
        self.live.iter().map(Dva::asize).sum()
    }

    fn check(&self, allocator: &Allocator) {
        assert_eq!(allocator.total().allocated, self.live_bytes());
        assert_eq!(
            allocator.total().deferred,
            self.waiting.iter().flatten().map(Dva::asize).sum::<u64>()
        );
    }
}

fn churn(seed: u64) {
    let random = SeededPrng::new(seed);
    let memory = Arc::new(Memory::new());
    let infos = [
        disk(0, 4, AllocClass::Normal),
        disk(2, 3, AllocClass::Normal),
    ];
    let mut allocator = pool(&memory, &infos);
    allocator.set_keep_loaded(2);
    let mut model = Model::default();
    for txg in 4..120 {
        let mut freed = Vec::new();
        for _pass in 0..3 {
            for _ in 0..random.below(60) {
                let psize = if random.chance(1, 20) {
                    random.range(1..1 << 20)
                } else {
                    random.range(1..40 << 10)
                };
                let copies = 1 + random.below(3) as usize;
                if let Ok(Some(found)) =
                    allocator.allocate(Txg(txg), psize, copies, AllocClass::Normal)
                {
                    found.dvas[..found.count]
                        .iter()
                        .for_each(|dva| model.born(*dva));
                }
            }
            let drops = if model.live_bytes() > 70 << 20 {
                200
            } else {
                random.below(60)
            };
            for _ in 0..drops.min(model.live.len() as u64) {
                let dva = model
                    .live
                    .swap_remove(random.below(model.live.len() as u64) as usize);
                give(&allocator, txg, dva);
                freed.push(dva);
            }
            allocator.sync_pass(&MemoryTxg(&memory, Txg(txg))).unwrap();
        }
        assert!(
            !allocator.sync_pass(&MemoryTxg(&memory, Txg(txg))).unwrap(),
            "the passes do not converge"
        );
        allocator.sync_done(Txg(txg));
        model.committed(freed);
        model.check(&allocator);
        if random.chance(1, 10) {
            // A new import: deferred space is free, allocated space is as in the maps.
            let infos = reopened(&allocator, &infos);
            allocator = pool(&memory, &infos);
            model.committed(Vec::new());
            model.committed(Vec::new());
            model.check(&allocator);
            check_free_spans(&allocator, &model);
        }
    }
    assert_eq!(allocator.free_spans(0, 4).unwrap_err().errno(), Errno::IO);
}

/// The free space in each metaslab is the space that the model has not allocated.
fn check_free_spans(allocator: &Allocator, model: &Model) {
    for (vdev, taken) in &model.taken {
        for m in 0..if *vdev == 0 { 4 } else { 3 } {
            let slot = Span::new(m << 24, 1 << 24);
            let free = allocator.free_spans(*vdev, m).unwrap();
            assert_eq!(
                free,
                taken.gaps_in(slot).collect::<Vec<_>>(),
                "vdev {vdev}, metaslab {m}"
            );
        }
    }
}

#[test]
fn random_histories_never_contradict_the_model() {
    (0..6).for_each(churn);
}

#[test]
fn copies_lie_on_other_vdevs_else_in_other_metaslabs() {
    let memory = Arc::new(Memory::new());
    let three = [0, 1, 2].map(|v| disk(v, 3, AllocClass::Normal));
    let allocator = pool(&memory, &three);
    for _ in 0..50 {
        let mut vdevs: Vec<u32> = get(&allocator, 4, 8192, 3).iter().map(Dva::vdev).collect();
        vdevs.sort_unstable();
        assert_eq!(vdevs, [0, 1, 2]);
    }
    let allocator = pool(&memory, &three[..1]);
    for _ in 0..50 {
        let mut metaslabs: Vec<u64> = get(&allocator, 4, 8192, 3)
            .iter()
            .map(|d| d.offset() >> 24)
            .collect();
        metaslabs.sort_unstable();
        assert_eq!(metaslabs, [0, 1, 2]);
    }
    let allocator = pool(&memory, &[disk(0, 1, AllocClass::Normal)]);
    let mut model = Model::default();
    get(&allocator, 4, 8192, 3)
        .into_iter()
        .for_each(|dva| model.born(dva));
}

#[test]
fn a_full_pool_refuses_without_leaking_and_recovers() {
    let memory = Arc::new(Memory::new());
    let allocator = pool(&memory, &[disk(0, 2, AllocClass::Normal)]);
    let mut model = Model::default();
    let refused = loop {
        match allocator.allocate(Txg(4), 100 << 10, 2, AllocClass::Normal) {
            Ok(Some(found)) => found.dvas[..found.count]
                .iter()
                .for_each(|dva| model.born(*dva)),
            Ok(None) => break allocator.allocate(Txg(4), 512, 2, AllocClass::Normal),
            Err(error) => panic!("{error}"),
        }
        model.check(&allocator);
    };
    // There is no contiguous range of 100 KiB, but there are sectors.
    refused.unwrap().unwrap().dvas[..2]
        .iter()
        .for_each(|dva| model.born(*dva));
    while let Ok(Some(found)) = allocator.allocate(Txg(4), 512, 1, AllocClass::Normal) {
        model.born(found.dvas[0]);
    }
    let error = allocator
        .allocate(Txg(4), 512, 1, AllocClass::Normal)
        .unwrap_err();
    assert!(error.is(Errno::NOSPC), "{error}");
    assert_eq!(allocator.total().allocated, 2 << 24);
    assert_eq!(allocator.available(Reserve::None), 0);
    commit(&allocator, &memory, 4);
    model
        .live
        .drain(..)
        .for_each(|dva| give(&allocator, 5, dva));
    for txg in 5..8 {
        assert_eq!(allocator.deferred(), 2 << 24);
        allocator
            .allocate(Txg(txg), 512, 1, AllocClass::Normal)
            .unwrap_err();
        commit(&allocator, &memory, txg);
    }
    assert_eq!((allocator.deferred(), allocator.total().allocated), (0, 0));
    get(&allocator, 8, 1 << 24, 1);
}

#[test]
fn an_allocation_that_finds_room_for_one_copy_only_keeps_none() {
    let memory = Arc::new(Memory::new());
    let allocator = pool(&memory, &[disk(0, 1, AllocClass::Normal)]);
    get(&allocator, 4, 10 << 20, 1);
    assert!(
        allocator
            .allocate(Txg(4), 4 << 20, 2, AllocClass::Normal)
            .unwrap()
            .is_none()
    );
    assert_eq!(allocator.total().allocated, 10 << 20);
    get(&allocator, 4, 6 << 20, 1);
    commit(&allocator, &memory, 4);
}

#[test]
fn threads_never_get_the_same_space() {
    let memory = Arc::new(Memory::new());
    let infos = [
        disk(0, 4, AllocClass::Normal),
        disk(1, 4, AllocClass::Normal),
    ];
    let allocator = pool(&memory, &infos);
    allocator.set_keep_loaded(1);
    let work = |seed: u64| {
        let random = SeededPrng::new(seed);
        (0..800)
            .flat_map(|_| {
                get(
                    &allocator,
                    4,
                    random.range(1..24 << 10),
                    1 + random.below(2) as usize,
                )
            })
            .collect::<Vec<_>>()
    };
    let mut model = Model::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().for_each(|t| {
            t.join()
                .unwrap()
                .into_iter()
                .for_each(|dva| model.born(dva))
        });
    });
    commit(&allocator, &memory, 4);
    model.check(&allocator);
    let again = pool(&memory, &reopened(&allocator, &infos));
    model.check(&again);
}

#[test]
fn both_vdevs_take_their_turns_and_the_emptier_one_takes_more() {
    let memory = Arc::new(Memory::new());
    let allocator = pool(
        &memory,
        &[
            disk(0, 4, AllocClass::Normal),
            disk(1, 4, AllocClass::Normal),
        ],
    );
    (0..200).for_each(|_| drop(get(&allocator, 4, 128 << 10, 1)));
    let (a, b) = (
        allocator.vdev_figures(0).allocated,
        allocator.vdev_figures(1).allocated,
    );
    assert!(a.abs_diff(b) <= 1 << 20, "{a} and {b}");
    allocator.add_vdev(disk(5, 4, AllocClass::Normal)).unwrap();
    (0..200).for_each(|_| drop(get(&allocator, 4, 128 << 10, 1)));
    let (a, c) = (
        allocator.vdev_figures(0).allocated - a,
        allocator.vdev_figures(5).allocated,
    );
    assert!(c > a, "{c} and {a}");
}

#[test]
fn classes_take_their_own_blocks_and_fall_back_to_normal() {
    let memory = Arc::new(Memory::new());
    let infos = [
        disk(0, 2, AllocClass::Normal),
        disk(1, 1, AllocClass::Special),
        disk(2, 1, AllocClass::Log),
    ];
    let allocator = pool(&memory, &infos);
    let vdev = |class, size| {
        allocator
            .allocate(Txg(4), size, 1, class)
            .unwrap()
            .unwrap()
            .dvas[0]
            .vdev()
    };
    assert_eq!(vdev(AllocClass::Normal, 4096), 0);
    assert_eq!(vdev(AllocClass::Special, 4096), 1);
    assert_eq!(vdev(AllocClass::Dedup, 4096), 1);
    assert_eq!(vdev(AllocClass::Log, 15 << 20), 2);
    // Special vdevs come before the normal ones.
    assert_eq!(vdev(AllocClass::Log, 15 << 20), 1);
    assert_eq!(vdev(AllocClass::Log, 15 << 20), 0);
    allocator.set_allocating(1, false).unwrap();
    assert_eq!(vdev(AllocClass::Special, 4096), 0);
    assert_eq!(allocator.figures(AllocClass::Log).allocated, 15 << 20);
    assert_eq!(allocator.total().allocated, (30 << 20) + 4 * 4096);
    assert_eq!(allocator.dspace(), 2 << 24);
}

#[test]
fn logs_have_a_metaslab_of_their_own_while_others_have_room() {
    let memory = Arc::new(Memory::new());
    let allocator = pool(&memory, &[disk(0, 4, AllocClass::Normal)]);
    let metaslab = |class, size| {
        let found = allocator.allocate(Txg(4), size, 1, class).unwrap();
        found.unwrap().dvas[0].offset() >> 24
    };
    let first = metaslab(AllocClass::Normal, 1 << 20);
    let log = metaslab(AllocClass::Log, 4096);
    assert_ne!(log, first);
    for _ in 1..48 {
        assert_ne!(metaslab(AllocClass::Normal, 1 << 20), log);
        assert_eq!(metaslab(AllocClass::Log, 4096), log);
    }
    // The last one with room serves all.
    assert_eq!(metaslab(AllocClass::Normal, 1 << 20), log);
}

#[test]
fn large_blocks_are_refused_when_only_pieces_are_wanted() {
    let memory = Arc::new(Memory::new());
    let allocator = pool(&memory, &[disk(0, 2, AllocClass::Normal)]);
    allocator.set_max_contiguous(8192);
    assert!(
        allocator
            .allocate(Txg(4), 8193, 1, AllocClass::Normal)
            .unwrap()
            .is_none()
    );
    get(&allocator, 4, 8192, 1);
    allocator.set_max_contiguous(0);
    assert_eq!(allocator.min_allocation(), 4096);
    get(&allocator, 4, 4096, 1);
}

#[test]
fn a_claim_takes_what_is_free_once() {
    let memory = Arc::new(Memory::new());
    let infos = [disk(0, 2, AllocClass::Normal)];
    let allocator = pool(&memory, &infos);
    assert!(allocator.claim(Txg(5), 0, 1 << 24, 0x8000).unwrap());
    assert!(!allocator.claim(Txg(5), 0, 1 << 24, 0x8000).unwrap());
    allocator
        .claim(Txg(5), 0, (1 << 24) + 0x4000, 0x8000)
        .unwrap_err();
    allocator.claim(Txg(5), 0, 2 << 24, 0x1000).unwrap_err();
    allocator.claim(Txg(5), 7, 0, 0x1000).unwrap_err();
    allocator.claim(Txg(5), 0, 0, 512).unwrap_err();
    commit(&allocator, &memory, 5);
    let again = pool(&memory, &reopened(&allocator, &infos));
    assert_eq!(again.total().allocated, 0x8000);
    assert!(!again.claim(Txg(6), 0, 1 << 24, 0x8000).unwrap());
}

#[test]
fn a_failed_sync_can_be_repeated() {
    let memory = Arc::new(Memory::new());
    let infos = [disk(0, 3, AllocClass::Normal)];
    let allocator = pool(&memory, &infos);
    let mut model = Model::default();
    (0..30).for_each(|_| {
        get(&allocator, 4, 8192, 3)
            .into_iter()
            .for_each(|dva| model.born(dva))
    });
    let mut failures = 0;
    for fuse in 0.. {
        memory.fuse.store(fuse, Relaxed);
        match allocator.sync_pass(&MemoryTxg(&memory, Txg(4))) {
            Err(_) => failures += 1,
            Ok(_) => break,
        }
    }
    assert!(failures > 3);
    memory.fuse.store(u64::MAX, Relaxed);
    commit(&allocator, &memory, 4);
    let again = pool(&memory, &reopened(&allocator, &infos));
    model.check(&again);
    assert_eq!(allocator.take_histogram_delta(), 3);
}

#[test]
fn what_is_released_is_listed_and_can_be_held_for_trim() {
    let memory = Arc::new(Memory::new());
    let allocator = pool(&memory, &[disk(0, 1, AllocClass::Normal)]);
    allocator.set_report_released(true);
    let dva = get(&allocator, 4, 1 << 24, 1)[0];
    commit(&allocator, &memory, 4);
    allocator
        .free_dva(Txg(5), Txg(5), 0, 0x10000, 0x4000)
        .unwrap();
    commit(&allocator, &memory, 5);
    commit(&allocator, &memory, 6);
    assert!(!allocator.sync_pass(&MemoryTxg(&memory, Txg(7))).unwrap());
    let span = Span::new(dva.offset() + 0x10000, 0x4000);
    assert_eq!(allocator.sync_done(Txg(7)), [Released { vdev: 0, span }]);
    let held = allocator.hold_free(0, Span::new(0, 1 << 24)).unwrap();
    assert_eq!(held, [span]);
    allocator
        .allocate(Txg(8), 4096, 1, AllocClass::Normal)
        .unwrap_err();
    allocator.release_held(0, &held).unwrap();
    get(&allocator, 8, 0x4000, 1);
}

#[test]
fn slop_follows_the_table() {
    assert_eq!(slop_of(100 << 20), 50 << 20);
    assert_eq!(slop_of(1 << 30), 128 << 20);
    assert_eq!(slop_of(1 << 40), 32 << 30);
    assert_eq!(slop_of(1 << 50), 128 << 30);
}

#[test]
fn a_draid_metaslab_is_trimmed_to_whole_rows() {
    let row = 6 << 12;
    let asize_of: AsizeFn = Arc::new(move |psize, _| psize.div_ceil(4 << 12) * row);
    let info = VdevInfo {
        align: row,
        asize_of,
        ..disk(0, 4, AllocClass::Normal)
    };
    assert_eq!(info.smallest_block(), 4 << 12);
    let memory = Arc::new(Memory::new());
    let allocator = pool(&memory, std::slice::from_ref(&info));
    assert_eq!(allocator.min_allocation(), 4 << 12);
    for dva in (0..500).flat_map(|i| get(&allocator, 4, 1 + i * 100, 2)) {
        assert!(dva.offset().is_multiple_of(row) && dva.asize().is_multiple_of(row));
    }
    commit(&allocator, &memory, 4);
    for m in 0..4u64 {
        let region = info.region(m);
        assert!(region.span.start.is_multiple_of(row) && region.span.size.is_multiple_of(row));
        assert!(region.span.start >= m << 24 && region.span.end() <= (m + 1) << 24);
        assert!(region.span.size + 2 * row > 1 << 24);
    }
}

#[test]
fn a_stale_histogram_does_not_hide_space() {
    let memory = Arc::new(Memory::new());
    let infos = [disk(0, 1, AllocClass::Normal)];
    let allocator = pool(&memory, &infos);
    get(&allocator, 4, 4096, 1);
    commit(&allocator, &memory, 4);
    let infos = reopened(&allocator, &infos);
    let mut word = [0; 8];
    memory
        .read_at(infos[0].metaslab_array, 0, &mut word)
        .unwrap();
    let map = ObjectId(u64::from_le_bytes(word));
    memory
        .with(map, |o| {
            o.bonus[64..].fill(0);
            o.bonus[64] = 1;
        })
        .unwrap();
    let again = pool(&memory, &infos);
    get(&again, 5, 1 << 20, 1);
}

#[test]
fn a_broken_map_costs_its_metaslab_and_is_named_when_nothing_else_is_left() {
    let memory = Arc::new(Memory::new());
    let infos = [disk(0, 2, AllocClass::Normal)];
    let allocator = pool(&memory, &infos);
    get(&allocator, 4, 4096, 2);
    commit(&allocator, &memory, 4);
    let infos = reopened(&allocator, &infos);
    let mut word = [0; 8];
    memory
        .read_at(infos[0].metaslab_array, 8, &mut word)
        .unwrap();
    let map = ObjectId(u64::from_le_bytes(word));
    memory.with(map, |o| o.data[8..16].fill(0xff)).unwrap();
    let again = pool(&memory, &infos);
    let mut taken = 0;
    let error = loop {
        match again.allocate(Txg(5), 512, 1, AllocClass::Normal) {
            Ok(found) => taken += found.unwrap().dvas[0].asize(),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(taken, (1 << 24) - 4096);
    assert!(
        error.contains("vdev 0, metaslab 1, space map object"),
        "{error}"
    );
    // A large block may be split: no error.
    assert!(
        again
            .allocate(Txg(5), 1 << 20, 1, AllocClass::Normal)
            .unwrap()
            .is_none()
    );
}

#[test]
#[should_panic(expected = "is on disk without what changed here")]
fn a_metaslab_that_was_left_out_of_its_txg_is_noticed() {
    let memory = Arc::new(Memory::new());
    let allocator = pool(&memory, &[disk(0, 1, AllocClass::Normal)]);
    get(&allocator, 4, 8192, 1);
    allocator.forget_work(Txg(4));
    commit(&allocator, &memory, 4);
}

#[test]
fn what_is_allocated_while_a_vdev_grows_is_recorded() {
    let memory = Arc::new(Memory::default());
    let allocator = pool(&memory, &[disk(0, 4, AllocClass::Normal)]);
    // A thread has chosen the vdev before it grows, and allocates afterwards.
    let old = allocator.vdev(0).unwrap();
    allocator.grow_vdev(disk(0, 6, AllocClass::Normal)).unwrap();
    old.allocated.fetch_add(4096, Relaxed);
    old.mark_dirty(Txg(5), 2);
    assert_eq!(allocator.total().allocated, 4096);
    let grown = allocator.vdev(0).unwrap();
    assert_eq!(grown.metaslabs().len(), 6);
    assert_eq!(grown.take_dirty(Txg(5)), [2].into());
}

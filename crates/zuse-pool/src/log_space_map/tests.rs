use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{ObjectId, RangeTree, Span, Txg};
use zuse_format::space_map::{Encoder, MapGeometry, MapOp, SpaceMapPhys};
use zuse_io::{AllocClass, Allocate};

use super::*;
use crate::allocator::{Allocator, MapOptions, VdevInfo};
use crate::space_map::memory::{Memory, MemoryTxg, Object};

const OPTIONS: MapOptions = MapOptions {
    large_blocks: true,
    histogram: true,
    two_words: true,
};
/// What, vdev, offset, size.
type LogEntry = (MapOp, u32, u64, u64);

const ALLOC: MapOp = MapOp::Alloc;
const FREE: MapOp = MapOp::Free;

fn log(memory: &Memory, txg: u64, entries: &[LogEntry]) -> ObjectId {
    let mut encoder = Encoder::new(MapGeometry::LOG, 128 << 10, 0, true);
    for &(op, vdev, offset, size) in entries {
        encoder.debug(op, 1, txg);
        encoder.push(op, Some(vdev), offset, size);
    }
    let (data, alloc) = encoder.finish();
    let header = SpaceMapPhys {
        length: data.len() as u64,
        alloc,
        histogram: Some([0; 32]),
        ..Default::default()
    };
    memory.add(Object {
        block_size: 128 << 10,
        bonus: header.to_bytes(),
        data,
        ..Object::default()
    })
}

fn words(memory: &Memory, words: &[u64]) -> ObjectId {
    let data = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    memory.add(Object {
        block_size: 128 << 10,
        data,
        ..Object::default()
    })
}

/// A pool as OpenZFS leaves it. Metaslab 0 has its own map with an allocation and U = 7, metaslab 1
/// an empty map and U = 6, metaslab 2 was never used.
fn pool(memory: &Memory, logs: &[(&str, ObjectId)], txgs: &[u64]) -> (VdevInfo, LogObjects) {
    let own = |data: Vec<u8>, alloc| {
        let header = SpaceMapPhys {
            length: data.len() as u64,
            alloc,
            histogram: Some([0; 32]),
            ..Default::default()
        };
        memory.add(Object {
            block_size: 128 << 10,
            bonus: header.to_bytes(),
            data,
            ..Object::default()
        })
    };
    let geometry = MapGeometry {
        start: 0,
        size: 1 << 24,
        shift: 12,
    };
    let mut encoder = Encoder::new(geometry, 128 << 10, 0, true);
    encoder.push(ALLOC, None, 0, 0x4000);
    let (data, alloc) = encoder.finish();
    let maps = [own(data, alloc).0, own(Vec::new(), 0).0];
    let info = VdevInfo {
        vdev: 0,
        asize: 3 << 24,
        ashift: 12,
        align: 4096,
        metaslab_shift: 24,
        metaslab_array: words(memory, &maps),
        class: AllocClass::Normal,
        children: 1,
        deflate_ratio: 512,
        asize_of: Arc::new(|psize, _| psize.next_multiple_of(4096)),
    };
    let names = logs
        .iter()
        .map(|(name, object)| ((*name).to_owned(), object.0))
        .collect();
    let zap = memory.add(Object {
        block_size: 512,
        names,
        ..Object::default()
    });
    (
        info,
        LogObjects {
            logs: zap,
            unflushed: [(0, words(memory, txgs))].into(),
        },
    )
}

/// The free space in each metaslab by its own map and the logs.
fn expected_free() -> [Vec<Span>; 3] {
    [
        vec![
            Span::new(0, 0x1000),
            Span::new(0x4000, 0x4000),
            Span::between(0xa000, 1 << 24),
        ],
        vec![
            Span::new((1 << 24) + 0x1000, 0x1000),
            Span::between((1 << 24) + 0x3000, 2 << 24),
        ],
        vec![Span::new(2 << 24, 1 << 24)],
    ]
}

#[test]
fn the_state_is_the_own_map_and_the_logs_since_the_flush() {
    let memory = Arc::new(Memory::new());
    // Entries of metaslab 0 before its U = 7 are in its own map already.
    let six = log(
        &memory,
        6,
        &[
            (ALLOC, 0, 0, 0x4000),
            (ALLOC, 0, 1 << 24, 0x3000),
            (ALLOC, 9, 0, 0x1000),
        ],
    );
    let ten = log(
        &memory,
        0x10,
        &[
            (ALLOC, 0, 0x8000, 0x2000),
            (FREE, 0, 0, 0x1000),
            (FREE, 0, (1 << 24) + 0x1000, 0x1000),
        ],
    );
    let logs = [("6", six), ("7", log(&memory, 7, &[])), ("10", ten)];
    let (info, objects) = pool(&memory, &logs, &[7, 6]);
    let allocator = Allocator::new(OPTIONS);
    allocator.attach(Arc::clone(&memory) as Arc<dyn MapStore>);
    allocator
        .open_with_logs(vec![info.clone()], &objects)
        .unwrap();
    assert!(allocator.has_logs());
    assert_eq!(allocator.total().allocated, 0x3000 + 0x2000 + 0x2000);
    let expected = expected_free();
    for (m, spans) in expected.iter().enumerate() {
        assert_eq!(&allocator.free_spans(0, m as u64).unwrap(), spans);
    }
    // The first writable txg retires the logs, with changes of its own on top.
    let new = allocator
        .allocate(Txg(20), 4096, 1, AllocClass::Normal)
        .unwrap()
        .unwrap()
        .dvas[0];
    allocator
        .free_dva(Txg(20), Txg(20), 0, 0x9000, 0x1000)
        .unwrap();
    assert!(allocator.sync_pass(&MemoryTxg(&memory, Txg(20))).unwrap());
    assert!(!allocator.sync_pass(&MemoryTxg(&memory, Txg(20))).unwrap());
    allocator.sync_done(Txg(20));
    assert!(!allocator.has_logs());
    assert_gone(&memory, &objects, &logs.map(|(_, object)| object));
    // Three logs were freed; a map was added if the new block is in the unused metaslab.
    let came = i64::from(new.offset() >= 2 << 24);
    assert_eq!(allocator.take_histogram_delta(), came - 3);
    let again = Allocator::new(OPTIONS);
    again.attach(Arc::clone(&memory) as Arc<dyn MapStore>);
    again.open_with_logs(vec![info], &objects).unwrap();
    assert!(!again.has_logs());
    assert_eq!(again.total().allocated, 0x7000);
    let mut free: RangeTree = expected.into_iter().flatten().collect();
    free.remove(Span::new(new.offset(), 4096)).unwrap();
    free.add(Span::new(0x9000, 0x1000)).unwrap();
    let found: RangeTree = (0..3)
        .flat_map(|m| again.free_spans(0, m).unwrap())
        .collect();
    assert_eq!(found, free);
}

/// No log is left, in the ZAP or outside, and no metaslab waits for one.
fn assert_gone(memory: &Memory, objects: &LogObjects, logs: &[ObjectId]) {
    assert!(memory.with(objects.logs, |o| o.names.is_empty()).unwrap());
    assert!(
        memory
            .with(objects.unflushed[&0], |o| o.data.iter().all(|b| *b == 0))
            .unwrap()
    );
    for &object in logs {
        assert!(
            memory.with(object, |_| ()).is_err(),
            "log {object} is still there"
        );
    }
}

#[test]
fn a_flush_that_fails_keeps_the_logs_until_it_is_repeated() {
    let memory = Arc::new(Memory::new());
    let logs = [(
        "6",
        log(
            &memory,
            6,
            &[(ALLOC, 0, 1 << 24, 0x3000), (ALLOC, 0, 2 << 24, 0x1000)],
        ),
    )];
    let (info, objects) = pool(&memory, &logs, &[6, 6, 6]);
    let allocator = Allocator::new(OPTIONS);
    allocator.attach(Arc::clone(&memory) as Arc<dyn MapStore>);
    allocator
        .open_with_logs(vec![info.clone()], &objects)
        .unwrap();
    for fuse in 0..4 {
        memory
            .fuse
            .store(fuse, std::sync::atomic::Ordering::Relaxed);
        allocator
            .sync_pass(&MemoryTxg(&memory, Txg(20)))
            .unwrap_err();
        assert!(allocator.has_logs());
    }
    memory
        .fuse
        .store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    allocator.sync_pass(&MemoryTxg(&memory, Txg(20))).unwrap();
    let again = Allocator::new(OPTIONS);
    again.attach(Arc::clone(&memory) as Arc<dyn MapStore>);
    again.add_vdev(info).unwrap();
    assert_eq!(again.total().allocated, 0x8000);
}

#[test]
fn logs_that_break_a_rule_are_refused() {
    let cases: [(&str, &[LogEntry], &[u64]); 4] = [
        ("a log is missing", &[], &[6, 5]),
        (
            "an allocation twice",
            &[(ALLOC, 0, 0x8000, 0x1000), (ALLOC, 0, 0x8000, 0x1000)],
            &[6],
        ),
        (
            "a range behind the vdev",
            &[(ALLOC, 0, 3 << 24, 0x1000)],
            &[6],
        ),
        (
            "a range across metaslabs",
            &[(ALLOC, 0, (1 << 24) - 0x1000, 0x2000)],
            &[6, 6],
        ),
    ];
    for (what, entries, txgs) in cases {
        let memory = Arc::new(Memory::new());
        let logs = [("6", log(&memory, 6, entries))];
        let (info, objects) = pool(&memory, &logs, txgs);
        let read = LogState::read(&*memory, &[info], &objects);
        assert!(matches!(read, Err(Error::Corrupt { .. })), "{what}");
    }
    let memory = Memory::new();
    let (info, objects) = pool(&memory, &[("six", ObjectId(1))], &[0]);
    let (vdevs, _): (_, BTreeMap<u32, u32>) = ([info], BTreeMap::new());
    assert!(
        LogState::read(&memory, &vdevs, &objects).is_err(),
        "a name that is no number"
    );
}

#[test]
#[should_panic(expected = "the logs go before their entries are in the maps")]
fn logs_stay_until_every_metaslab_has_its_entries() {
    let memory = Arc::new(Memory::new());
    let logs = [("6", log(&memory, 6, &[(ALLOC, 0, 1 << 24, 0x3000)]))];
    let (info, objects) = pool(&memory, &logs, &[6, 6, 6]);
    let allocator = Allocator::new(OPTIONS);
    allocator.attach(Arc::clone(&memory) as Arc<dyn MapStore>);
    allocator.open_with_logs(vec![info], &objects).unwrap();
    allocator.forget_work(Txg(20));
    let _ = allocator.sync_pass(&MemoryTxg(&memory, Txg(20)));
}

//! Leaves with too many errors, and leaves that sit out.

use super::*;
use crate::watch::{Threshold, Thresholds};

fn content(i: u64) -> Vec<u8> {
    vec![i as u8 + 1; 4096]
}

/// A tree whose leaves are behind devices that can be made to fail, with twenty blocks on it.
fn behind_faults(
    config: &PoolConfig,
    guids: &[u64],
) -> (TestDevices, Vec<Arc<FaultyDevice>>, Vdevs) {
    let (devices, vdevs) = create(config);
    drop(vdevs);
    let faulty: Vec<_> = guids
        .iter()
        .map(|guid| {
            let device = Arc::new(FaultyDevice::new(devices.take(*guid)));
            devices.put(*guid, device.clone());
            device
        })
        .collect();
    let vdevs = devices.open(config, OpenMode::import(true));
    (0..20).for_each(|i| vdevs.write(at(0, i << 14), &content(i)).unwrap());
    (devices, faulty, vdevs)
}

fn word(vdevs: &Vdevs, guid: u64) -> (&'static str, Aux) {
    let health = vdevs.leaf(guid).unwrap().health();
    (health.word(), health.why)
}

/// Reads all twenty blocks and compares them with what was written.
fn read_all(vdevs: &Vdevs) {
    for i in 0..20 {
        assert_eq!(
            read(vdevs, 0, i << 14, &content(i)).unwrap(),
            ReadOutcome::Good
        );
    }
}

/// Reads that a leaf is asked for until it has refused `n` more.
fn refuse(vdevs: &Vdevs, guid: u64, n: u64) {
    let leaf = vdevs.leaf(guid).unwrap();
    let wanted = leaf.counters().read_errors.get() + n;
    for i in (0..20).cycle().take(1000) {
        if leaf.counters().read_errors.get() == wanted {
            return;
        }
        read(vdevs, 0, i << 14, &content(i)).unwrap();
    }
    panic!("{guid} was not asked");
}

#[test]
fn a_leaf_that_refuses_too_often_is_faulted_and_cleared() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (devices, faulty, vdevs) = behind_faults(&config, &[21, 22]);
    faulty[0].add(Rule::broken(Op::Read));
    refuse(&vdevs, 21, 5);
    vdevs.clear(None, &|c| devices.get(c.guid)).unwrap();
    refuse(&vdevs, 21, 9);
    assert_eq!(word(&vdevs, 21), ("ONLINE", Aux::None));
    refuse(&vdevs, 21, 1);
    assert_eq!(word(&vdevs, 21), ("FAULTED", Aux::ErrorsExceeded));
    assert_eq!(vdevs.health().word(), "DEGRADED");
    read_all(&vdevs);
    // It lacks what is written now: the pool must learn of it.
    vdevs.write(at(0, 0), &content(0)).unwrap();

    // The other one is the last leaf: it is marked and stays.
    faulty[1].add(Rule::broken(Op::Read).times(10));
    for i in 0..20 {
        let _ = read(&vdevs, 0, i << 14, &content(i));
    }
    assert_eq!(word(&vdevs, 22), ("DEGRADED", Aux::ErrorsExceeded));
    read_all(&vdevs);

    faulty[0].clear();
    vdevs.clear(None, &|c| devices.get(c.guid)).unwrap();
    assert_eq!(word(&vdevs, 21), ("ONLINE", Aux::None));
    assert_eq!(word(&vdevs, 22), ("ONLINE", Aux::None));
    read_all(&vdevs);
}

#[test]
fn a_leaf_whose_sibling_lacks_blocks_is_not_taken_out() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (_, faulty, vdevs) = behind_faults(&config, &[21, 22]);
    vdevs.leaf(22).unwrap().set_outdated(true);
    faulty[0].add(Rule::broken(Op::Read).times(10));
    refuse(&vdevs, 21, 10);
    assert_eq!(word(&vdevs, 21), ("DEGRADED", Aux::ErrorsExceeded));
}

#[test]
fn writes_that_are_refused_count_as_reads_do() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (_, faulty, vdevs) = behind_faults(&config, &[21, 22]);
    faulty[1].add(Rule::broken(Op::Write));
    (0..10).for_each(|i| vdevs.write(at(0, i << 14), &content(i)).unwrap());
    assert_eq!(word(&vdevs, 22), ("FAULTED", Aux::ErrorsExceeded));
    assert_eq!(vdevs.take_missed(), [22]);
}

#[test]
fn a_leaf_with_too_many_wrong_blocks_is_degraded_and_still_read() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (devices, _, vdevs) = behind_faults(&config, &[21, 22]);
    let twice = Threshold {
        errors: 2,
        seconds: 600,
    };
    let leaf = vdevs.leaf(21).unwrap();
    leaf.set_thresholds(Thresholds {
        checksum: twice,
        ..Thresholds::default()
    });
    let mut buf = Vec::new();
    for i in 0..2 {
        assert_eq!(word(&vdevs, 21).0, "ONLINE");
        spoil(&devices.get(21).unwrap(), i << 14);
        let mut check = BlockCheck {
            verify: &mut |b| b == content(i),
            is_live: &|| true,
            fills: false,
        };
        let found = vdevs.verify_block(at(0, i << 14), &mut buf, 4096, &mut check);
        let found = found.unwrap();
        assert_eq!((found.good, found.repaired), (true, 4096));
    }
    assert_eq!(word(&vdevs, 21), ("DEGRADED", Aux::ErrorsExceeded));
    assert!(leaf.is_usable());
    vdevs.clear(Some(21), &|c| devices.get(c.guid)).unwrap();
    assert_eq!(word(&vdevs, 21), ("ONLINE", Aux::None));
}

#[test]
fn a_pool_that_is_only_read_leaves_its_devices_as_they_are() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (devices, faulty, vdevs) = behind_faults(&config, &[21, 22]);
    drop(vdevs);
    let vdevs = devices.open(&config, OpenMode::import(false));
    faulty[0].add(Rule::broken(Op::Read));
    refuse(&vdevs, 21, 20);
    assert_eq!(word(&vdevs, 21), ("ONLINE", Aux::None));
}

#[test]
fn a_child_that_sits_out_is_read_only_where_the_others_do_not_suffice() {
    let kind = VdevKind::Raidz {
        nparity: 1,
        expanding: false,
        expand_txgs: Vec::new(),
    };
    let mut raidz = VdevConfig::new(kind, 0, 30);
    raidz.children = vec![disk(0, 31), disk(1, 32), disk(2, 33)];
    let mut raidz = top(raidz);
    if let Some(keys) = &mut raidz.top {
        keys.asize *= 3;
    }
    let (_, vdevs) = create(&pool(vec![raidz]));
    let content = |i: u64| vec![i as u8 + 1; 8192];
    (0..30).for_each(|i| vdevs.write(at(0, i << 14), &content(i)).unwrap());
    let reads = |guid: u64| vdevs.leaf(guid).unwrap().counters().reads.get();
    let all = || {
        let before = [31, 32, 33].map(reads);
        for i in 0..30 {
            let found = read(&vdevs, 0, i << 14, &content(i)).unwrap();
            assert_eq!(found, ReadOutcome::Good);
        }
        let after = [31, 32, 33].map(reads);
        [0, 1, 2].map(|i| after[i] - before[i])
    };
    assert!(all().iter().all(|n| *n > 0));
    vdevs.leaf(32).unwrap().set_sits_out(true);
    assert_eq!(all(), [30, 0, 30], "the rest is computed");
    assert_eq!([31, 32, 33].map(|g| word(&vdevs, g).0), ["ONLINE"; 3]);
    // It is needed if another leaf is missing.
    vdevs.offline(33).unwrap();
    assert_eq!(all(), [30, 30, 0]);
    vdevs.leaf(32).unwrap().set_sits_out(false);
    assert_eq!(all(), [30, 30, 0]);
}

/// The end of an intent log is a block that was never written: it is no error of any device. A copy
/// that lacks what another one has is.
#[test]
fn a_block_that_may_not_be_there_blames_nobody() {
    let config = pool(vec![mirror(0, 10, &[11, 12])]);
    let (devices, vdevs) = create(&config);
    drop(vdevs);
    let vdevs = devices.open(&config, OpenMode::import(true));
    vdevs.write(at(0, 0), &content(1)).unwrap();
    let errors = || {
        let leaves = vdevs.leaves();
        let counts = leaves.iter().map(|l| l.counters().checksum_errors.get());
        counts.collect::<Vec<_>>()
    };
    let perhaps = |offset: u64, wanted: &[u8]| {
        let mut buf = Vec::new();
        vdevs
            .read_perhaps(at(0, offset), &mut buf, wanted.len(), &mut |b| b == wanted)
            .unwrap()
    };
    assert_eq!(perhaps(1 << 20, &content(1)), ReadOutcome::BadChecksum);
    assert_eq!(errors(), [0, 0]);
    assert_eq!(
        read(&vdevs, 0, 1 << 20, &content(1)).unwrap(),
        ReadOutcome::BadChecksum
    );
    assert_eq!(errors(), [1, 1]);
    spoil(&devices.take(11), 0);
    assert_eq!(perhaps(0, &content(1)), ReadOutcome::Good);
    // The mirror chooses which copy to read first.
    assert!(errors().iter().sum::<u64>() <= 3, "{:?}", errors());
    assert_eq!(errors()[1], 1, "the whole copy");
}

#[test]
fn errors_that_another_process_counted_are_added() {
    let config = pool(vec![mirror(0, 20, &[10, 11]), top(disk(1, 12))]);
    let (devices, vdevs) = create(&config);
    let counters = |guid| vdevs.leaf(guid).unwrap();
    counters(10).counters().checksum_errors.add(7);
    counters(12).counters().read_errors.add(2);
    vdevs.tops()[0].node.unrecovered.bump();
    counters(11).set_degraded(Some(Aux::ErrorsExceeded));
    let mut errors = vdevs.errors();
    errors.sort();
    let of = |guid, [reads, writes, checksums]: [u64; 3], too_many| VdevErrors {
        guid,
        reads,
        writes,
        checksums,
        too_many,
    };
    let others = [of(10, [0, 0, 7], false), of(11, [0; 3], true)];
    let mirror = of(20, [0, 0, 1], false);
    assert_eq!(errors[..2], others);
    assert_eq!(errors[2..], [of(12, [2, 0, 0], false), mirror]);
    let find = |c: &VdevConfig| devices.get(c.guid);
    let again = Vdevs::open(&config.vdev_tree, &find, OpenMode::import(true)).unwrap();
    again.leaf(12).unwrap().counters().read_errors.bump();
    again.add_errors(&errors);
    let mut both = again.errors();
    both.sort();
    assert_eq!(both[..2], others);
    assert_eq!(both[2..], [of(12, [3, 0, 0], false), mirror]);
}

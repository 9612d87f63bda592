use std::collections::BTreeMap;
use zuse_base::sync::Mutex;

use zuse_base::tripwire::at as places;
use zuse_base::{Span, Txg};
use zuse_device::{Fault, FaultyDevice, MemDevice, Op, RecordingDevice, Rule};
use zuse_format::uberblock::Uberblock;

use super::*;
use crate::assemble;
use crate::config::PoolConfig;
use crate::copies::ReadOutcome;
use crate::geometry::{LABEL_START, leaf_asize, metaslab_shift};
use crate::health::Aux;
use crate::indirect::{Mapping, Moved};
use crate::label::{self, LabelPair, Labels};
use crate::{BlockCheck, Verified};

mod apart;
mod removed;

use removed::{mapping, moved, removed};

const SIZE: u64 = 64 << 20;
const TXG: u64 = 4;

/// Devices by guid, which tests take away and bring back.
#[derive(Default)]
struct TestDevices(Mutex<BTreeMap<u64, Arc<dyn BlockDevice>>>);

impl TestDevices {
    fn put(&self, guid: u64, device: Arc<dyn BlockDevice>) {
        self.0.lock().insert(guid, device);
    }

    fn take(&self, guid: u64) -> Arc<dyn BlockDevice> {
        self.0.lock().remove(&guid).unwrap()
    }

    fn get(&self, guid: u64) -> Option<Arc<dyn BlockDevice>> {
        self.0.lock().get(&guid).cloned()
    }

    fn all(&self) -> Vec<Arc<dyn BlockDevice>> {
        self.0.lock().values().cloned().collect()
    }

    fn open(&self, config: &PoolConfig, mode: OpenMode) -> Vdevs {
        Vdevs::open(&config.vdev_tree, &|c| self.get(c.guid), mode).unwrap()
    }
}

fn disk(id: u64, guid: u64) -> VdevConfig {
    let mut node = VdevConfig::new(VdevKind::Disk, id, guid);
    node.path = Some(format!("/d/{guid}"));
    node
}

fn top(mut node: VdevConfig) -> VdevConfig {
    let asize = leaf_asize(SIZE).unwrap();
    let shift = u64::from(metaslab_shift(asize));
    node.top = Some(TopConfig {
        ashift: 12,
        asize,
        metaslab_shift: shift,
        metaslab_array: 5,
        ..TopConfig::default()
    });
    node
}

fn mirror(id: u64, guid: u64, leaves: &[u64]) -> VdevConfig {
    let mut node = VdevConfig::new(VdevKind::Mirror, id, guid);
    node.children = leaves
        .iter()
        .enumerate()
        .map(|(i, &l)| disk(i as u64, l))
        .collect();
    top(node)
}

fn pool(tops: Vec<VdevConfig>) -> PoolConfig {
    let mut pool = PoolConfig::new("tank", 5000, VdevConfig::root(1, tops));
    pool.txg = TXG;
    pool
}

fn uberblock(config: &PoolConfig, txg: u64) -> Uberblock {
    Uberblock {
        version: 5000,
        txg,
        guid_sum: config.vdev_tree.guid_sum(),
        timestamp: 100,
        ..Uberblock::default()
    }
}

/// Makes a pool on memory: labels, a commit of txg 4; all devices are kept.
fn create(config: &PoolConfig) -> (TestDevices, Vdevs) {
    let devices = TestDevices::default();
    for top in &config.vdev_tree.children {
        for leaf in top.devices() {
            let device = MemDevice::new(format!("/d/{}", leaf.guid), SIZE);
            label::init(&device, &label::initial_label(config, top, leaf, TXG)).unwrap();
            devices.put(leaf.guid, Arc::new(device));
        }
    }
    let vdevs = devices.open(config, OpenMode::CREATE);
    commit(&vdevs, config, TXG);
    (devices, vdevs)
}

fn commit(vdevs: &Vdevs, config: &PoolConfig, txg: u64) {
    let config = PoolConfig {
        txg,
        ..config.clone()
    };
    vdevs.flush_written().unwrap();
    vdevs.commit_labels(LabelPair::Even, &config, None).unwrap();
    vdevs
        .commit_uberblock(&uberblock(&config, txg), false, UberblockTargets::All)
        .unwrap();
    vdevs.commit_labels(LabelPair::Odd, &config, None).unwrap();
}

fn at(vdev: u32, offset: u64) -> Address {
    Address::new(vdev, offset, Txg(TXG))
}

fn read(vdevs: &Vdevs, vdev: u32, offset: u64, expected: &[u8]) -> Result<ReadOutcome> {
    let mut buf = Vec::new();
    let outcome = vdevs.read(at(vdev, offset), &mut buf, expected.len(), &mut |b| {
        b == expected
    })?;
    assert_eq!(buf.len(), expected.len());
    Ok(outcome)
}

fn spoil(device: &Arc<dyn BlockDevice>, offset: u64) {
    device.write_at(&[0xee; 512], LABEL_START + offset).unwrap();
}

#[test]
fn a_created_pool_is_found_again_and_its_uberblock_chosen() {
    let config = pool(vec![top(disk(0, 10)), mirror(1, 20, &[21, 22])]);
    let (devices, vdevs) = create(&config);
    vdevs.write(at(0, 0x4000), &[7; 1536]).unwrap();
    commit(&vdevs, &config, 5);
    let scan = assemble::assemble(&assemble::read_labels(&devices.all()));
    let found = &scan.pools[0];
    assert_eq!(found.health(), Health::GOOD);
    let again = devices.open(&found.config, OpenMode::import(false));
    let choice = again.best_uberblock(None).unwrap();
    assert_eq!(choice.uberblock, uberblock(&config, 5));
    assert_eq!(choice.uberblock.guid_sum, again.guid_sum());
    assert_eq!(choice.label.unwrap().txg, 5);
    assert_eq!(again.best_uberblock(Some(4)).unwrap().uberblock.txg, 4);
    assert!(again.best_uberblock(Some(3)).unwrap_err().is(Errno::NXIO));
    assert_eq!(again.rings().len(), 3 * 4 * 2);
    assert_eq!(
        read(&again, 0, 0x4000, &[7; 1536]).unwrap(),
        ReadOutcome::Good
    );
    assert!(
        again
            .write(at(0, 0), &[0; 512])
            .unwrap_err()
            .is(Errno::ROFS)
    );
}

#[test]
fn a_write_is_padded_with_zeros_to_the_sector() {
    let (devices, vdevs) = create(&pool(vec![top(disk(0, 10))]));
    vdevs.write(at(0, 0x2000), &[0xff; 8192]).unwrap();
    vdevs.write(at(0, 0x2000), &[1; 512]).unwrap();
    let mut bytes = vec![0; 8192];
    devices
        .get(10)
        .unwrap()
        .read_at(&mut bytes, LABEL_START + 0x2000)
        .unwrap();
    assert_eq!(
        bytes,
        [vec![1; 512], vec![0; 3584], vec![0xff; 4096]].concat()
    );
}

#[test]
fn a_mirror_heals_a_wrong_copy_and_counts_it() {
    let (devices, vdevs) = create(&pool(vec![mirror(0, 20, &[21, 22])]));
    vdevs.write(at(0, 0), &[5; 4096]).unwrap();
    spoil(&devices.get(21).unwrap(), 0);
    assert_eq!(read(&vdevs, 0, 0, &[5; 4096]).unwrap(), ReadOutcome::Good);
    let leaf = vdevs.leaf(21).unwrap();
    assert_eq!(
        (
            leaf.counters().checksum_errors.get(),
            leaf.counters().repaired.get()
        ),
        (1, 1)
    );
    let mut buf = Vec::new();
    assert_eq!(verify(&vdevs, &mut buf, &[5; 4096]), whole(0));
    let status = vdevs.status();
    assert_eq!(
        (
            status.children[0].name.as_str(),
            status.children[0].checksum_errors
        ),
        ("mirror-0", 0)
    );
    assert!(status.has_errors());
    vdevs.clear(None, &|c| devices.get(c.guid)).unwrap();
    assert!(!vdevs.status().has_errors());
}

#[test]
fn a_scrub_repairs_the_copy_that_no_read_would_meet() {
    let (devices, vdevs) = create(&pool(vec![mirror(0, 20, &[21, 22, 23])]));
    vdevs.write(at(0, 0), &[5; 4096]).unwrap();
    spoil(&devices.get(23).unwrap(), 0);
    let mut buf = Vec::new();
    assert_eq!(verify(&vdevs, &mut buf, &[5; 4096]), whole(4096));
    assert_eq!(buf, [5; 4096]);
    assert_eq!(verify(&vdevs, &mut buf, &[5; 4096]), whole(0));
}

fn verify(vdevs: &Vdevs, buf: &mut Vec<u8>, block: &[u8]) -> Verified {
    let mut check = BlockCheck {
        verify: &mut |bytes| bytes == block,
        is_live: &|| true,
        fills: false,
    };
    let place = at(0, 0);
    let found = vdevs.verify_block(place, buf, block.len(), &mut check);
    found.unwrap()
}

fn whole(repaired: u64) -> Verified {
    Verified {
        good: true,
        repaired,
        ..Verified::default()
    }
}

#[test]
fn bytes_that_are_wrong_everywhere_are_given_back_as_wrong() {
    let (devices, vdevs) = create(&pool(vec![mirror(0, 20, &[21, 22])]));
    vdevs.write(at(0, 0), &[5; 4096]).unwrap();
    for guid in [21, 22] {
        spoil(&devices.get(guid).unwrap(), 0);
    }
    assert_eq!(
        read(&vdevs, 0, 0, &[5; 4096]).unwrap(),
        ReadOutcome::BadChecksum
    );
    assert_eq!(vdevs.status().children[0].checksum_errors, 1);
}

#[test]
fn a_mirror_serves_and_writes_with_one_child_and_says_which_one_missed_what() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (devices, _) = create(&config);
    let faulty = Arc::new(FaultyDevice::new(devices.take(22)));
    devices.put(22, faulty.clone());
    let vdevs = devices.open(&config, OpenMode::import(true));
    faulty.add(Rule::broken(Op::Write));
    faulty.add(Rule::broken(Op::Read));
    vdevs.write(at(0, 0), &[5; 4096]).unwrap();
    assert_eq!(vdevs.take_missed(), [22]);
    assert!(vdevs.take_missed().is_empty());
    assert_eq!(
        read(&vdevs, 0, 1 << 20, &[0; 512]).unwrap(),
        ReadOutcome::Good
    );
    assert_eq!(read(&vdevs, 0, 0, &[5; 4096]).unwrap(), ReadOutcome::Good);
    commit(&vdevs, &config, 6);
    faulty.clear();
    assert_eq!(Labels::read(&*faulty).newest(u64::MAX).unwrap().txg, 4);
    assert_eq!(vdevs.best_uberblock(None).unwrap().uberblock.txg, 6);
}

#[test]
fn a_missing_device_leaves_a_mirror_degraded_and_a_stripe_unavailable() {
    let config = pool(vec![top(disk(0, 10)), mirror(1, 20, &[21, 22])]);
    let (devices, _) = create(&config);
    let lost = devices.take(21);
    let vdevs = devices.open(&config, OpenMode::import(true));
    assert_eq!(vdevs.health().word(), "DEGRADED");
    let why = vdevs.leaf(21).unwrap().health();
    assert_eq!((why.word(), why.why.note()), ("UNAVAIL", "cannot open"));
    devices.put(21, lost);
    vdevs.clear(Some(21), &|c| devices.get(c.guid)).unwrap();
    assert_eq!(vdevs.health(), Health::GOOD);
    assert!(
        vdevs
            .clear(Some(99), &|_| None)
            .unwrap_err()
            .is(Errno::NODEV)
    );
    devices.take(10);
    let vdevs = devices.open(&config, OpenMode::import(true));
    assert_eq!(vdevs.health().word(), "UNAVAIL");
    assert!(matches!(
        read(&vdevs, 0, 0, &[0; 512]),
        Err(Error::Device { .. })
    ));
    assert!(matches!(
        vdevs.write(at(0, 0), &[0; 512]),
        Err(Error::Device { .. })
    ));
}

#[test]
fn devices_that_do_not_belong_are_kept_out() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (devices, _) = create(&config);
    let state = |device: Arc<dyn BlockDevice>| {
        let vdevs = Vdevs::open(
            &config.vdev_tree,
            &|c| {
                if c.guid == 21 {
                    Some(device.clone())
                } else {
                    devices.get(22)
                }
            },
            OpenMode::import(true),
        );
        vdevs.unwrap().leaf(21).unwrap().health().why
    };
    assert_eq!(state(devices.get(21).unwrap()), Aux::None);
    assert_eq!(
        state(devices.get(22).unwrap()),
        Aux::BadLabel,
        "the sibling's device"
    );
    assert_eq!(
        state(Arc::new(MemDevice::new("/blank", SIZE))),
        Aux::BadLabel
    );
    let coarse = MemDevice::with_sector_shift("/4k", SIZE, 13);
    let list = config.to_label_nvlist(
        &config.vdev_tree.children[0],
        &config.vdev_tree.children[0].children[0],
    );
    label::init(&coarse, &list).unwrap();
    assert_eq!(state(Arc::new(coarse)), Aux::AshiftTooBig);
    let vdevs = Vdevs::open(
        &config.vdev_tree,
        &|_| Some(Arc::new(MemDevice::new("/s", 1 << 20))),
        OpenMode::CREATE,
    );
    assert_eq!(vdevs.unwrap().leaf(21).unwrap().health().why, Aux::TooSmall);
}

#[test]
fn blocks_that_cannot_be_there_are_corrupt() {
    let mut raidz = VdevConfig::new(
        VdevKind::Raidz {
            nparity: 1,
            expanding: false,
            expand_txgs: Vec::new(),
        },
        1,
        30,
    );
    raidz.children = vec![disk(0, 31), disk(1, 32), disk(2, 33)];
    let config = pool(vec![
        top(disk(0, 10)),
        top(raidz),
        VdevConfig::new(VdevKind::Hole, 2, 0),
    ]);
    let (_, vdevs) = create(&config);
    let asize = vdevs.top(0).unwrap().asize();
    let corrupt = |vdev, offset, psize: usize| {
        let error = vdevs
            .read(at(vdev, offset), &mut Vec::new(), psize, &mut |_| true)
            .unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    };
    corrupt(0, asize, 512);
    corrupt(0, asize - 4096, 4097);
    corrupt(0, u64::MAX - 4095, 4096);
    corrupt(0, 512, 512);
    corrupt(0, 0, 0);
    corrupt(0, 0, (16 << 20) + 1);
    corrupt(2, 0, 512);
    corrupt(3, 0, 512);
    corrupt(1, 0, 0);
    corrupt(1, 512, 512);
    corrupt(1, asize - 4096, 512);
    assert_eq!(vdevs.leaf(33).unwrap().health(), Health::GOOD);
    assert_eq!(
        (vdevs.asize(0, 512).unwrap(), vdevs.asize(1, 512).unwrap()),
        (4096, 8192)
    );
    assert_eq!((vdevs.deflate_ratio(0), vdevs.deflate_ratio(1)), (512, 341));
}

#[test]
fn a_commit_writes_even_labels_then_the_uberblock_then_odd_labels_each_flushed() {
    let config = pool(vec![top(disk(0, 10))]);
    let (devices, _) = create(&config);
    let recording = Arc::new(RecordingDevice::new(devices.take(10)));
    devices.put(10, recording.clone());
    let vdevs = devices.open(&config, OpenMode::import(true));
    vdevs.write(at(0, 0), &[1; 512]).unwrap();
    recording.take();
    commit(&vdevs, &config, 5);
    let slot = crate::geometry::slot_offset(5, 12);
    let at = |label: usize, offset: u64| crate::geometry::label_offset(SIZE, label) + offset;
    let config_at = zuse_format::label::CONFIG_AT;
    let writes: Vec<_> = recording
        .take()
        .iter()
        .filter(|o| o.op != Op::Read)
        .map(|o| (o.op == Op::Flush, o.offset))
        .collect();
    let (flush, write) = ((true, 0), |offset| (false, offset));
    assert_eq!(
        writes,
        [
            flush,
            write(at(0, config_at)),
            write(at(2, config_at)),
            flush,
            write(at(0, slot)),
            write(at(1, slot)),
            write(at(2, slot)),
            write(at(3, slot)),
            flush,
            write(at(1, config_at)),
            write(at(3, config_at)),
            flush,
        ]
    );
    vdevs.flush_written().unwrap();
    assert!(
        recording.take().is_empty(),
        "nothing written, nothing flushed"
    );
}

#[test]
fn without_a_change_of_configuration_three_data_vdevs_get_the_uberblock() {
    let mut log = top(disk(4, 14));
    log.top.as_mut().unwrap().is_log = true;
    let config = pool(
        (10..14)
            .enumerate()
            .map(|(i, guid)| top(disk(i as u64, guid)))
            .chain([log])
            .collect(),
    );
    let (_, vdevs) = create(&config);
    vdevs
        .commit_uberblock(&uberblock(&config, 5), false, UberblockTargets::From(3))
        .unwrap();
    let rings = vdevs.rings();
    let mut leaves: Vec<u64> = rings
        .iter()
        .filter(|e| e.uberblock.txg == 5)
        .map(|e| e.leaf)
        .collect();
    leaves.dedup();
    assert_eq!(leaves, [10, 11, 13]);
}

#[test]
fn an_uberblock_that_reaches_no_initialised_vdev_is_an_error() {
    let config = pool(vec![top(disk(0, 10)), top(disk(1, 11))]);
    let (devices, _) = create(&config);
    let faulty = Arc::new(FaultyDevice::new(devices.take(10)));
    devices.put(10, faulty.clone());
    let vdevs = devices.open(&config, OpenMode::import(true));
    vdevs.set_metaslabs(1, 0, 24).unwrap();
    faulty.add(Rule::broken(Op::Write));
    assert!(
        vdevs
            .commit_uberblock(&uberblock(&config, 5), false, UberblockTargets::All)
            .is_err()
    );
    assert!(vdevs.commit_labels(LabelPair::Even, &config, None).is_err());
    assert!(
        vdevs
            .commit_labels(LabelPair::Even, &config, Some(&[1]))
            .is_ok()
    );
    vdevs.set_metaslabs(1, 9, 24).unwrap();
    vdevs
        .commit_uberblock(&uberblock(&config, 5), false, UberblockTargets::All)
        .unwrap();
}

#[test]
fn a_failed_flush_fails_a_stripe_but_not_a_mirror() {
    for (config, fails) in [
        (pool(vec![top(disk(0, 21))]), true),
        (pool(vec![mirror(0, 20, &[21, 22])]), false),
    ] {
        let (devices, _) = create(&config);
        let faulty = Arc::new(FaultyDevice::new(devices.take(21)));
        devices.put(21, faulty.clone());
        let vdevs = devices.open(&config, OpenMode::import(true));
        faulty.add(Rule::new(Op::Flush, Fault::Fail(Errno::IO)));
        vdevs.write(at(0, 0), &[1; 512]).unwrap();
        assert_eq!(vdevs.flush_written().is_err(), fails);
        assert_eq!(vdevs.take_missed(), [21]);
        assert!(vdevs.leaf(21).unwrap().is_unflushed());
    }
}

#[test]
fn a_disk_that_vanishes_between_write_and_flush_fails_the_flush() {
    for (config, fails) in [
        (pool(vec![top(disk(0, 21))]), true),
        (pool(vec![mirror(0, 20, &[21, 22])]), false),
    ] {
        let (_, vdevs) = create(&config);
        vdevs.write(at(0, 0), &[1; 512]).unwrap();
        vdevs
            .leaf(21)
            .unwrap()
            .close_device(Health::new(VdevState::Removed, Aux::None));
        assert_eq!(vdevs.flush_written().is_err(), fails);
        assert_eq!(vdevs.take_missed(), [21]);
    }
}

#[test]
fn a_copy_that_missed_a_write_does_not_vouch_for_its_failing_sibling() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (devices, _) = create(&config);
    let faulty = [21, 22].map(|guid| Arc::new(FaultyDevice::new(devices.take(guid))));
    devices.put(21, faulty[0].clone());
    devices.put(22, faulty[1].clone());
    let vdevs = devices.open(&config, OpenMode::import(true));
    faulty[0].add(Rule::broken(Op::Write).times(1));
    faulty[1].add(Rule::broken(Op::Flush));
    vdevs.write(at(0, 0), &[1; 512]).unwrap();
    vdevs.write(at(0, 4096), &[1; 512]).unwrap();
    assert!(vdevs.flush_written().is_err());
    assert_eq!(vdevs.take_missed(), [21, 22]);
}

/// If an older txg commits between a write and the commit of the write's own txg.
#[test]
fn what_a_leaf_missed_after_a_mark_is_noted_again() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (devices, _) = create(&config);
    let faulty = Arc::new(FaultyDevice::new(devices.take(22)));
    devices.put(22, faulty.clone());
    let vdevs = devices.open(&config, OpenMode::import(true));
    for broken in [Op::Write, Op::Flush] {
        let mark = vdevs.mark(0).unwrap();
        faulty.add(Rule::broken(broken).times(1));
        vdevs.write(at(0, 0), &[1; 512]).unwrap();
        vdevs.flush_written().unwrap();
        assert_eq!(vdevs.take_missed(), [22]);
        let later = vdevs.mark(0).unwrap();
        vdevs.note_lacking(&later).unwrap();
        assert!(vdevs.take_missed().is_empty());
        vdevs.note_lacking(&mark).unwrap();
        assert_eq!(vdevs.take_missed(), [22]);
    }
}

#[test]
fn the_last_copy_cannot_be_taken_offline() {
    let config = pool(vec![mirror(0, 20, &[21, 22])]);
    let (devices, vdevs) = create(&config);
    vdevs.offline(21).unwrap();
    assert!(vdevs.offline(22).unwrap_err().is(Errno::BUSY));
    assert_eq!(vdevs.leaf(21).unwrap().health().word(), "OFFLINE");
    vdevs.clear(None, &|c| devices.get(c.guid)).unwrap();
    assert_eq!(
        vdevs.leaf(21).unwrap().health().word(),
        "OFFLINE",
        "clear is not online"
    );
    vdevs.online(21, &|c| devices.get(c.guid)).unwrap();
    vdevs.fault(22, Aux::External).unwrap();
    assert_eq!(vdevs.leaf(22).unwrap().health().word(), "FAULTED");
}

#[test]
fn a_reconfigured_tree_keeps_leaves_and_their_counters() {
    let config = pool(vec![top(disk(0, 10))]);
    let (devices, vdevs) = create(&config);
    vdevs.leaf(10).unwrap().counters().checksum_errors.bump();
    // Attach: the disk becomes a mirror, and a second top-level vdev is added.
    let bigger = pool(vec![mirror(0, 20, &[10, 11]), top(disk(1, 12))]);
    for guid in [11, 12] {
        devices.put(guid, Arc::new(MemDevice::new(format!("/d/{guid}"), SIZE)));
    }
    vdevs
        .reconfigure(&bigger.vdev_tree, &|c| devices.get(c.guid), true)
        .unwrap();
    assert_eq!(vdevs.leaf(10).unwrap().counters().checksum_errors.get(), 1);
    vdevs.write(at(0, 0), &[3; 4096]).unwrap();
    vdevs.write(at(1, 0), &[4; 4096]).unwrap();
    assert_eq!(read(&vdevs, 0, 0, &[3; 4096]).unwrap(), ReadOutcome::Good);
    assert_eq!(vdevs.guid_sum(), bigger.vdev_tree.guid_sum());
    assert_eq!(vdevs.health(), Health::GOOD);
}

#[test]
fn an_outdated_leaf_is_read_last_and_its_old_bytes_are_no_error() {
    let (devices, vdevs) = create(&pool(vec![mirror(0, 20, &[21, 22])]));
    vdevs.write(at(0, 0), &[5; 4096]).unwrap();
    spoil(&devices.get(21).unwrap(), 0);
    vdevs.leaf(21).unwrap().set_outdated(true);
    assert_eq!(read(&vdevs, 0, 0, &[5; 4096]).unwrap(), ReadOutcome::Good);
    assert_eq!(vdevs.leaf(21).unwrap().counters().reads.get(), 0);
    let mut buf = Vec::new();
    // A scan does not read it either, but writes it.
    assert_eq!(verify(&vdevs, &mut buf, &[5; 4096]), whole(4096));
    let leaf = vdevs.leaf(21).unwrap();
    let counters = leaf.counters();
    assert_eq!(
        (counters.reads.get(), counters.checksum_errors.get()),
        (0, 0)
    );
    // It is read for txgs that its log does not list.
    leaf.set_missing(&[Span::new(90, 10)]);
    assert!(leaf.lacks(Txg(90)) && leaf.lacks(Txg(99)));
    assert!(!leaf.lacks(Txg(89)) && !leaf.lacks(Txg(100)));
    assert_eq!(verify(&vdevs, &mut buf, &[5; 4096]), whole(0));
    assert_eq!(counters.reads.get(), 1);
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let with = |f: &dyn Fn(&mut TopConfig)| {
        let mut node = top(disk(0, 10));
        f(node.top.as_mut().unwrap());
        Vdevs::open(
            &VdevConfig::root(1, vec![node]),
            &|_| None,
            OpenMode::import(false),
        )
        .is_ok()
    };
    assert!(with(&|_| ()));
    assert!(!with(&|t| t.ashift = 8));
    assert!(!with(&|t| t.ashift = 1 << 40));
    assert!(!with(&|t| t.asize = 0));
    assert!(!with(&|t| t.metaslab_shift = 64));
    assert!(Vdevs::open(&disk(0, 10), &|_| None, OpenMode::import(false)).is_err());
    assert!(with(
        &|t| (t.metaslab_array, t.metaslab_shift) = (0, u64::MAX)
    ));
}

#[test]
fn absurd_geometry_is_refused_or_harmless() {
    let mut state = 7u64;
    let mut roll = |n: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let devices = create(&pool(vec![mirror(0, 20, &[21, 22])])).0;
    let mut opened = 0;
    for _ in 0..5_000 {
        let mut small = |plain: u64| match roll(8) {
            0 => roll(256) as u8,
            _ => roll(plain) as u8,
        };
        let (nparity, ndata, nspares, ngroups) = (small(4), small(6), small(3), small(8));
        let kind = match roll(3) {
            0 => VdevKind::Draid {
                nparity,
                ndata,
                nspares,
                ngroups,
            },
            _ => VdevKind::Raidz {
                nparity,
                expanding: roll(3) == 0,
                expand_txgs: (0..roll(3)).map(|_| roll(9)).collect(),
            },
        };
        let mut node = VdevConfig::new(kind, 0, 30);
        node.children = (0..roll(14)).map(|i| disk(i, 21 + i % 2)).collect();
        if roll(3) == 0 && !node.children.is_empty() {
            let mut spare = VdevConfig::new(VdevKind::Spare, 0, 40);
            let number = VdevKind::DraidSpare {
                top_guid: 30,
                spare_id: roll(3) * roll(1 << 31),
            };
            spare.children = vec![disk(0, 21), VdevConfig::new(number, 1, 41)];
            node.children[0] = spare;
        }
        node.number_children();
        let wild = |n: u64, roll: u64| if roll == 0 { u64::MAX - n } else { n };
        let ashift = [9, 12, 9, 16, 63, 0][roll(6) as usize];
        let asize = wild(roll(1 << 31) << roll(32), roll(4));
        node.top = Some(TopConfig {
            ashift,
            asize,
            metaslab_shift: 24,
            metaslab_array: roll(2),
            ..TopConfig::default()
        });
        let root = VdevConfig::root(1, vec![node]);
        let Ok(vdevs) = Vdevs::open(&root, &|c| devices.get(c.guid), OpenMode::CREATE) else {
            continue;
        };
        opened += 1;
        vdevs.set_reflow(wild(roll(1 << 31), roll(3)), roll(4) == 0);
        let place = Address::new(0, wild(roll(1 << 20) << 12, roll(4)), Txg(roll(12)));
        let psize = 512 * roll(60) as usize;
        let _ = vdevs.read(place, &mut Vec::new(), psize, &mut |_| false);
        let _ = vdevs.discard(0, place.offset, psize as u64);
        let _ = vdevs.health();
    }
    assert!(opened > 100, "{opened}");
}

mod golden;
mod nested;
mod power_cut;
mod thresholds;

#[test]
#[cfg(debug_assertions)]
fn a_panic_under_a_lock_of_devices_tears_the_tripwire_of_the_pool() {
    type Change<'a> = &'a dyn Fn(&Vdevs, &TestDevices);
    let config = || pool(vec![mirror(0, 20, &[21, 22]), removed(1, 30)]);
    let reconfigure = |vdevs: &Vdevs, devices: &TestDevices| {
        let tree = config().vdev_tree;
        let _ = vdevs.reconfigure(&tree, &|c| devices.get(c.guid), false);
    };
    let changes: [(&str, Change<'_>); 3] = [
        (places::TREE, &reconfigure),
        (places::MAPPING, &|vdevs, _| {
            drop(vdevs.set_mapping(1, mapping(&[moved(0, 0x1000, 0, 0)])));
        }),
        (places::DEVICE, &|vdevs, _| {
            vdevs.leaf(21).unwrap().set_degraded(Some(Aux::External));
        }),
    ];
    for (place, change) in changes {
        let (devices, vdevs) = create(&config());
        change(&vdevs, &devices);
        assert_eq!(vdevs.tripwire().torn(), None, "{place}");
        vdevs.tripwire().set_trap(place, 0);
        let panics = std::panic::AssertUnwindSafe(|| change(&vdevs, &devices));
        assert!(std::panic::catch_unwind(panics).is_err(), "{place}");
        assert!(vdevs.tripwire().torn().unwrap().contains(place));
    }
}

#[test]
fn who_writes_beside_a_flush_makes_nothing_doubtful() {
    let config = pool(vec![top(disk(0, 20))]);
    let (_shelf, vdevs) = create(&config);
    let leaf = vdevs.leaf(20).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let flushed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                leaf.write(0, &[std::io::IoSlice::new(&[7; 4096])]).unwrap();
            }
        });
        let mut flushes = (0..2000).map(|_| {
            vdevs.write(Address::new(0, 8192, Txg(TXG)), &[1; 4096])?;
            vdevs.flush_written()
        });
        let flushed = flushes.find(Result::is_err);
        stop.store(true, Ordering::Relaxed);
        flushed
    });
    assert!(flushed.is_none(), "{flushed:?}");
}

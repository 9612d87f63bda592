//! A commit that is cut at every operation: the pool is then at the old txg or the new one, whole.

use zuse_base::SeededPrng;
use zuse_device::{MemImage, PowerSupply, SimDisk};

use super::*;

const LEAVES: [u64; 3] = [10, 21, 22];
const OLD: [u8; 4096] = [4; 4096];
const NEW: [u8; 4096] = [5; 4096];

fn write_and_commit(
    vdevs: &Vdevs,
    config: &PoolConfig,
    txg: u64,
    data: &[u8],
    labels: bool,
) -> Result<()> {
    let config = PoolConfig {
        txg,
        ..config.clone()
    };
    for vdev in [0, 1] {
        // A block is never overwritten: each txg has its own place.
        vdevs.write(at(vdev, txg << 16), data)?;
    }
    vdevs.flush_written()?;
    if !labels {
        return vdevs.commit_uberblock(&uberblock(&config, txg), false, UberblockTargets::From(1));
    }
    vdevs.commit_labels(LabelPair::Even, &config, None)?;
    vdevs.commit_uberblock(&uberblock(&config, txg), false, UberblockTargets::All)?;
    vdevs.commit_labels(LabelPair::Odd, &config, None)
}

/// The content of a device.
fn image(device: &dyn BlockDevice) -> MemImage {
    let copy = MemDevice::new(device.path(), SIZE);
    let mut chunk = vec![0; 1 << 20];
    for at in (0..SIZE).step_by(chunk.len()) {
        device.read_at(&mut chunk, at).unwrap();
        if chunk.iter().any(|&b| b != 0) {
            copy.write_at(&chunk, at).unwrap();
        }
    }
    copy.snapshot()
}

/// The devices after a power cut during the commit of txg 5. True if the commit had been reported
/// done.
fn crashed(
    config: &PoolConfig,
    start: &[MemImage; 3],
    (cut, seed): (u64, u64),
    labels: bool,
) -> (Vec<Arc<dyn BlockDevice>>, bool) {
    let power = PowerSupply::new();
    let devices = TestDevices::default();
    let mut disks = Vec::new();
    for (guid, image) in LEAVES.into_iter().zip(start) {
        let disk = Arc::new(SimDisk::with_content(
            format!("/d/{guid}"),
            image,
            power.clone(),
        ));
        devices.put(guid, disk.clone());
        disks.push(disk);
    }
    let vdevs = devices.open(config, OpenMode::import(true));
    power.cut_after(cut);
    let done = write_and_commit(&vdevs, config, 5, &NEW, labels).is_ok();
    let prng = SeededPrng::new(seed);
    let left = disks
        .iter()
        .map(|d| Arc::new(d.crash(&prng)) as Arc<dyn BlockDevice>);
    (left.collect(), done)
}

#[test]
fn a_commit_cut_anywhere_leaves_the_old_txg_or_the_new_one_whole() {
    cut_everywhere(true, 5);
}

#[test]
fn a_commit_without_labels_needs_the_flush_before_its_uberblock() {
    cut_everywhere(false, 1);
}

fn cut_everywhere(labels: bool, few: u32) {
    let config = pool(vec![top(disk(0, 10)), mirror(1, 20, &[21, 22])]);
    let (start, vdevs) = create(&config);
    write_and_commit(&vdevs, &config, TXG, &OLD, true).unwrap();
    let start = LEAVES.map(|guid| image(&*start.get(guid).unwrap()));
    let (mut old, mut new) = (0, 0);
    // Several crashes for each cut: which unflushed writes survive is random.
    for step in 0.. {
        let (cut, seed) = (step / 4, step);
        let (devices, done) = crashed(&config, &start, (cut, seed), labels);
        let scan = assemble::assemble(&assemble::read_labels(&devices));
        let found = &scan.pools[0];
        assert_eq!(found.health(), Health::GOOD, "cut {cut}");
        let by_path = |c: &VdevConfig| {
            devices
                .iter()
                .find(|d| Some(d.path()) == c.path.as_deref())
                .cloned()
        };
        let vdevs =
            Vdevs::open(&found.config.vdev_tree, &by_path, OpenMode::import(false)).unwrap();
        assert_eq!(vdevs.health(), Health::GOOD, "cut {cut}");
        let choice = vdevs.best_uberblock(None).unwrap();
        let txg = choice.uberblock.txg;
        let expected = if labels { txg } else { TXG };
        assert_eq!(
            choice.label.unwrap().txg,
            expected,
            "cut {cut}: a label fits the uberblock"
        );
        let data = if txg == TXG { &OLD } else { &NEW };
        for vdev in [0, 1] {
            let mut buf = Vec::new();
            let mut check = BlockCheck {
                verify: &mut |b| b == data,
                is_live: &|| true,
                fills: false,
            };
            let place = at(vdev, txg << 16);
            let found = vdevs.verify_block(place, &mut buf, data.len(), &mut check);
            let found = found.unwrap();
            assert!(
                found.good && !found.stale && found.repaired == 0,
                "cut {cut}: txg {txg} is durable on vdev {vdev}"
            );
        }
        old += u32::from(txg == TXG);
        new += u32::from(txg == 5);
        if done {
            assert_eq!(txg, 5);
            break;
        }
    }
    assert!(
        old > few && new > few,
        "{old} cuts before the uberblock, {new} after it"
    );
}

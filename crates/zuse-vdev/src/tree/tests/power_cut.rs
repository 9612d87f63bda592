//! A commit that is cut at every operation: the pool is then at the old txg or the new one, whole.

use zuse_base::SeededPrng;
use zuse_device::{PowerSupply, SimDisk};

use super::*;

const LEAVES: [u64; 3] = [10, 21, 22];
const OLD: [u8; 4096] = [4; 4096];
const NEW: [u8; 4096] = [5; 4096];

fn write_and_commit(vdevs: &Vdevs, config: &PoolConfig, txg: u64, data: &[u8]) -> Result<()> {
    let config = PoolConfig {
        txg,
        ..config.clone()
    };
    for vdev in [0, 1] {
        // A block is never written over: each txg has its place.
        vdevs.write(vdev, txg << 16, data)?;
    }
    vdevs.flush_written()?;
    vdevs.commit_labels(LabelPair::Even, &config, None)?;
    vdevs.commit_uberblock(&uberblock(&config, txg), false, UberblockTargets::All)?;
    vdevs.commit_labels(LabelPair::Odd, &config, None)
}

/// What is left after a cut during the commit of txg 5; true if the commit had been reported done.
fn crashed(
    config: &PoolConfig,
    start: &Shelf,
    cut: u64,
    seed: u64,
) -> (Vec<Arc<dyn BlockDevice>>, bool) {
    let power = PowerSupply::new();
    let shelf = Shelf::default();
    let disks = LEAVES.map(|guid| {
        let device = start.get(guid).unwrap();
        let content = MemDevice::new(device.path(), SIZE);
        let mut chunk = vec![0; 1 << 20];
        for at in (0..SIZE).step_by(chunk.len()) {
            device.read_at(&mut chunk, at).unwrap();
            if chunk.iter().any(|&b| b != 0) {
                content.write_at(&chunk, at).unwrap();
            }
        }
        let disk = Arc::new(SimDisk::with_content(
            device.path(),
            &content.snapshot(),
            power.clone(),
        ));
        shelf.put(guid, disk.clone());
        disk
    });
    let vdevs = shelf.open(config, OpenMode::import(true));
    power.cut_after(cut);
    let done = write_and_commit(&vdevs, config, 5, &NEW).is_ok();
    let prng = SeededPrng::new(seed);
    (
        disks
            .iter()
            .map(|d| Arc::new(d.crash(&prng)) as Arc<dyn BlockDevice>)
            .collect(),
        done,
    )
}

#[test]
fn a_commit_cut_anywhere_leaves_the_old_txg_or_the_new_one_whole() {
    let config = pool(vec![top(disk(0, 10)), mirror(1, 20, &[21, 22])]);
    let (start, vdevs) = create(&config);
    write_and_commit(&vdevs, &config, TXG, &OLD).unwrap();
    let (mut old, mut new) = (0, 0);
    for cut in 0.. {
        let (devices, done) = crashed(&config, &start, cut, cut);
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
        assert_eq!(
            choice.label.unwrap().txg,
            txg,
            "cut {cut}: a label fits the uberblock"
        );
        let data = if txg == TXG { &OLD } else { &NEW };
        for vdev in [0, 1] {
            let mut buf = Vec::new();
            let check = vdevs
                .read_all_copies(vdev, txg << 16, &mut buf, data.len(), &mut |b| b == data)
                .unwrap();
            assert_eq!(
                check.bad, 0,
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
        old > 5 && new > 5,
        "{old} cuts before the uberblock, {new} after it"
    );
}

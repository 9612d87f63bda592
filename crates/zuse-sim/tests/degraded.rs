//! Golden pools that lose as many disks as their redundancy allows. Some are missing, some have
//! wrong bytes in most places. All data can still be read.

use std::sync::Arc;

use zuse::PoolAccess;
use zuse_base::{Entropy, SeededPrng};
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::manifests::{differences, expected, of_dataset};

/// Where labels end and blocks begin; the last two labels are at the end.
const DATA: u64 = 4 << 20;
const PIECE: usize = 4096;

/// Changes bytes in two of three parts that are in use.
pub fn spoil(disk: &Arc<MemDevice>, prng: &SeededPrng) {
    let end = disk.size() - (1 << 20);
    let mut piece = vec![0; PIECE];
    for at in (DATA..end).step_by(PIECE) {
        disk.read_at(&mut piece, at).expect("read");
        if piece.iter().any(|b| *b != 0) && prng.chance(2, 3) {
            let byte = prng.below(PIECE as u64) as usize;
            piece[byte..].iter_mut().for_each(|b| *b ^= 0x5a);
            disk.write_at(&piece, at).expect("write");
        }
    }
}

/// The structure of each vdev: its disks, and how many of them it can lose.
pub type Layout = &'static [(&'static [usize], usize)];

pub const POOLS: [(&str, Layout); 8] = [
    ("raidz1", &[(&[0, 1, 2], 1)]),
    ("raidz2", &[(&[0, 1, 2, 3, 4], 2)]),
    ("raidz3", &[(&[0, 1, 2, 3, 4, 5, 6, 7], 3)]),
    ("expanded", &[(&[0, 1, 2, 3], 1)]),
    ("draid", &[(&[0, 1, 2, 3, 4, 5], 2)]),
    ("mirror", &[(&[0, 1, 2], 2)]),
    ("mirrors", &[(&[0, 1], 1), (&[2, 3], 1)]),
    ("classes", &[(&[1, 2], 1)]),
];

/// `ZUSE_SIM_DEGRADED=FROM..TO`: other choices of disks.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("ZUSE_SIM_DEGRADED").unwrap_or_else(|_| "0..2".into());
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn as_many_disks_as_a_layout_can_bear_may_be_gone_or_wrong() {
    for (name, layout) in POOLS {
        let whole = Golden::load(name);
        let want = expected(&whole.manifest());
        for seed in seeds() {
            let prng = SeededPrng::new(seed);
            let golden = whole.copy();
            let (mut gone, mut wrong) = (Vec::new(), Vec::new());
            for (disks, spare) in layout {
                let mut left: Vec<usize> = disks.to_vec();
                for _ in 0..*spare {
                    let disk = left.swap_remove(prng.below(left.len() as u64) as usize);
                    if prng.chance(1, 2) {
                        gone.push(disk);
                    } else {
                        spoil(&golden.devices[disk], &prng);
                        wrong.push(disk);
                    }
                }
            }
            let what = format!("{name}, seed {seed}, without {gone:?}, wrong {wrong:?}");
            let devices: Vec<Arc<dyn BlockDevice>> = golden
                .devices
                .iter()
                .enumerate()
                .filter(|(i, _)| !gone.contains(i))
                .map(|(_, d)| d.clone() as Arc<dyn BlockDevice>)
                .collect();
            let pool = open_whole(Environment::default(), &devices, &PoolAccess::default())
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut entries = 0;
            for (dataset, want) in want.iter().filter(|(d, _)| !d.contains('@')) {
                let have = of_dataset(&pool, dataset).unwrap_or_else(|e| panic!("{what}: {e}"));
                let points: Vec<String> = have.keys().map(|p| format!("{dataset}/{p}")).collect();
                let found = differences(dataset, want, &have, &points);
                assert!(found.is_empty(), "{what}: {found:?}");
                entries += want.len();
            }
            assert!(entries > 0, "{what}");
            // A mirror need not read from the bad disk.
            let told = pool.vdev_status().has_errors();
            let is_mirror = matches!(name, "mirror" | "mirrors" | "classes");
            assert!(told != wrong.is_empty() || is_mirror && !told, "{what}");
            pool.close().expect("close");
        }
    }
}

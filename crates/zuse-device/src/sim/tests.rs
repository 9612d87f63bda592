use super::*;
use std::collections::HashSet;

fn disk(power: &Arc<PowerSupply>) -> SimDisk {
    SimDisk::new("sim", 1 << 20, 9, power.clone())
}

fn bytes(device: &dyn BlockDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    device.read_at(&mut buf, offset).unwrap();
    buf
}

#[test]
fn what_was_flushed_survives_and_the_rest_in_every_combination() {
    let disk = disk(&PowerSupply::new());
    disk.write_at(&[1; 4096], 0).unwrap();
    disk.flush().unwrap();
    // Three writes of one sector each, and one of two.
    for n in 0..3 {
        disk.write_at(&[2; 512], 8192 + n * 512).unwrap();
    }
    disk.write_vectored_at(&[IoSlice::new(&[3; 512]), IoSlice::new(&[3; 512])], 16384)
        .unwrap();
    assert_eq!(disk.unflushed(), 4);
    let prng = SeededPrng::new(1);
    let mut seen = HashSet::new();
    for _ in 0..2000 {
        let left = disk.crash(&prng);
        assert_eq!(bytes(&left, 0, 4096), [1; 4096]);
        let mut sectors = Vec::new();
        for offset in [8192, 8704, 9216, 16384, 16896] {
            let sector = bytes(&left, offset, 512);
            assert!(
                sector.iter().all(|&b| b == sector[0]),
                "a sector is never half new"
            );
            sectors.push(sector[0] != 0);
        }
        seen.insert(sectors);
    }
    assert_eq!(seen.len(), 32, "every subset of the five sectors");
    assert_eq!(
        bytes(&disk, 16384, 1024),
        [3; 1024],
        "reads see the newest, flushed or not"
    );
}

#[test]
fn of_overlapping_survivors_the_later_wins() {
    let disk = disk(&PowerSupply::new());
    for n in 1..=3 {
        disk.write_at(&[n; 512], 0).unwrap();
    }
    let prng = SeededPrng::new(2);
    let seen: HashSet<u8> = (0..300)
        .map(|_| bytes(&disk.crash(&prng), 0, 1)[0])
        .collect();
    assert_eq!(seen, HashSet::from([0, 1, 2, 3]));
    disk.flush().unwrap();
    assert!((0..100).all(|_| bytes(&disk.crash(&prng), 0, 1)[0] == 3));
}

#[test]
fn the_same_seed_gives_the_same_crash() {
    let disk = disk(&PowerSupply::new());
    let prng = SeededPrng::new(3);
    for _ in 0..100 {
        disk.write_at(&vec![prng.u64() as u8; 2048], prng.below(500) * 512)
            .unwrap();
    }
    for seed in 0..20 {
        let [a, b] = [0, 1].map(|_| bytes(&disk.crash(&SeededPrng::new(seed)), 0, 1 << 18));
        assert_eq!(a, b);
    }
}

#[test]
fn the_power_goes_off_for_all_disks_at_once() {
    let power = PowerSupply::new();
    let (a, b) = (disk(&power), disk(&power));
    power.cut_after(3);
    a.write_at(&[1; 512], 0).unwrap();
    b.write_at(&[1; 512], 0).unwrap();
    b.read_at(&mut [0; 512], 0).unwrap();
    a.flush().unwrap();
    let error = b.write_at(&[9; 512], 512).unwrap_err();
    assert_eq!(error.cause, Cause::PowerOff);
    assert!(!power.is_on());
    assert!(
        a.read_at(&mut [0; 1], 0).is_err() && a.write_at(&[0], 0).is_err() && a.flush().is_err()
    );
    assert!(a.discard(0, 512).is_err());
    assert_eq!(power.operations(), 3);
    // The write that failed was on its way: it may have arrived.
    let prng = SeededPrng::new(4);
    let seen: HashSet<u8> = (0..100)
        .map(|_| bytes(&b.crash(&prng), 512, 1)[0])
        .collect();
    assert_eq!(seen, HashSet::from([0, 9]));
    assert_eq!(bytes(&MemDevice::from_image("a", &a.durable()), 0, 1), [1]);

    power.restore();
    let b = SimDisk::with_content("b", &b.crash(&prng).snapshot(), power);
    b.write_at(&[1; 512], 0).unwrap();
}

#[test]
fn a_flush_that_the_power_cut_hits_promises_nothing() {
    let power = PowerSupply::new();
    let disk = disk(&power);
    disk.write_at(&[1; 512], 0).unwrap();
    power.cut_after(0);
    assert!(disk.flush().is_err());
    assert_eq!(disk.unflushed(), 1);
}

#[test]
fn a_disk_that_lies_about_flushes_loses_what_it_promised() {
    let disk = disk(&PowerSupply::new());
    disk.ignore_flushes(true);
    disk.write_at(&[1; 512], 0).unwrap();
    disk.flush().unwrap();
    let prng = SeededPrng::new(5);
    assert!((0..50).any(|_| bytes(&disk.crash(&prng), 0, 1)[0] == 0));
}

#[test]
fn a_discard_may_be_lost_too() {
    let disk = disk(&PowerSupply::new());
    disk.write_at(&[1; 4096], 0).unwrap();
    disk.flush().unwrap();
    assert!(disk.discard(0, 4096).unwrap());
    assert_eq!(bytes(&disk, 0, 4096), [0; 4096]);
    let prng = SeededPrng::new(6);
    let seen: HashSet<u8> = (0..50)
        .map(|_| bytes(&disk.crash(&prng), 0, 1)[0])
        .collect();
    assert_eq!(seen, HashSet::from([0, 1]));
    disk.flush().unwrap();
    assert_eq!(bytes(&disk.crash(&prng), 0, 4096), [0; 4096]);
}

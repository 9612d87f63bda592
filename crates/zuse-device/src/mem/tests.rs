use super::*;
use crate::Cause;
use std::io::{IoSlice, IoSliceMut};
use zuse_base::{Entropy, SeededPrng};

fn bytes(device: &dyn BlockDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    device.read_at(&mut buf, offset).unwrap();
    buf
}

#[test]
fn a_terabyte_costs_only_what_was_written() {
    let device = MemDevice::new("mem", 1 << 40);
    device.write_at(&[7; 10], (1 << 40) - 10).unwrap();
    device.write_at(&[0; 1 << 20], 1 << 30).unwrap();
    assert_eq!(device.allocated(), CHUNK);
    assert_eq!(
        bytes(&device, (1 << 40) - 11, 11),
        [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
    );
}

#[test]
fn the_ends_of_the_device_are_guarded() {
    let device = MemDevice::new("mem", 1000);
    assert_eq!(
        device.write_at(&[1; 2], 999).unwrap_err().cause,
        Cause::OutOfRange
    );
    assert_eq!(
        device.read_at(&mut [0; 1], u64::MAX).unwrap_err().cause,
        Cause::OutOfRange
    );
    assert_eq!(
        device.discard(0, 1001).unwrap_err().cause,
        Cause::OutOfRange
    );
    device.set_read_only(true);
    assert_eq!(device.write_at(&[1], 0).unwrap_err().cause, Cause::ReadOnly);
    device.read_at(&mut [0; 1000], 0).unwrap();
}

#[test]
fn random_writes_and_discards_agree_with_a_plain_vector() {
    const SIZE: u64 = 5 * CHUNK + 77;
    let device = MemDevice::new("mem", SIZE);
    let mut model = vec![0u8; SIZE as usize];
    let prng = SeededPrng::new(5);
    for _ in 0..300 {
        let offset = prng.below(SIZE);
        let len = prng.below((SIZE - offset).min(2 * CHUNK) + 1) as usize;
        let place = offset as usize..offset as usize + len;
        if prng.chance(1, 4) {
            assert!(device.discard(offset, len as u64).unwrap());
            model[place].fill(0);
        } else {
            prng.fill(&mut model[place.clone()]);
            let half = len / 3;
            let (a, b) = model[place].split_at(half);
            device
                .write_vectored_at(&[IoSlice::new(a), IoSlice::new(b)], offset)
                .unwrap();
        }
    }
    assert_eq!(bytes(&device, 0, SIZE as usize), model);
    let (mut a, mut b) = (vec![0; 100], vec![0; 3 * CHUNK as usize]);
    device
        .read_vectored_at(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 9)
        .unwrap();
    assert_eq!([a, b].concat(), model[9..109 + 3 * CHUNK as usize]);
}

#[test]
fn a_snapshot_stays_what_it_was() {
    let device = MemDevice::new("mem", 1 << 20);
    device.write_at(b"before", 0).unwrap();
    let image = device.snapshot();
    device.write_at(b"after!", 0).unwrap();
    device.write_at(b"more", 1 << 19).unwrap();
    assert_eq!(
        bytes(&MemDevice::from_image("copy", &image), 0, 6),
        b"before"
    );
    device.restore(&image);
    assert_eq!(bytes(&device, 0, 6), b"before");
    assert_eq!(bytes(&device, 1 << 19, 4), [0; 4]);
}

use zuse_device::MemDevice;

use super::*;
use crate::config::tests::golden_label;

const SIZE: u64 = 256 << 20;

fn golden() -> NvList {
    let (pool, leaf) = golden_label();
    pool.to_label_nvlist(&leaf, &leaf)
}

fn words(device: &MemDevice, end: u64) -> [u64; 4] {
    let mut bytes = [0; 32];
    device.read_at(&mut bytes, end - 32).unwrap();
    std::array::from_fn(|i| zuse_format::field::u64_at(&bytes, 8 * i))
}

#[test]
fn the_golden_label_has_the_golden_checksums_at_all_four_places() {
    let device = MemDevice::new("d0", SIZE);
    let expected = [
        (
            0x4000,
            [
                0x4f11_e294_a293_36dc,
                0x0a15_f58c_cf84_8fcf,
                0xd240_3982_aa35_0036,
                0x2cbd_35ee_b213_7a15,
            ],
        ),
        (
            0x44000,
            [
                0x872f_f4c1_e3b2_b38c,
                0xc586_26b5_038a_e543,
                0x500c_66c3_4d8b_0559,
                0x6ecd_90c3_9351_e85c,
            ],
        ),
        (
            0xff8_4000,
            [
                0xd8f6_6f35_77bc_2768,
                0x6193_77a3_9a20_3abc,
                0xc017_1cbd_6697_765a,
                0x6cf9_363e_c245_93e1,
            ],
        ),
        (
            0xffc_4000,
            [
                0xad8e_c25f_dc43_7e68,
                0x6cc8_9f65_91fa_436f,
                0x75c3_e6e4_ab40_779f,
                0x4c9f_8515_6f5f_04af,
            ],
        ),
    ];
    for (label, (at, sums)) in expected.into_iter().enumerate() {
        write_config(&device, label, &golden()).unwrap();
        assert_eq!(
            words(&device, at + CONFIG_SIZE as u64),
            sums,
            "label {label}"
        );
    }
    let labels = Labels::read(&device);
    assert_eq!(labels.good().count(), 4);
    assert_eq!(labels.newest(u64::MAX).unwrap().name, "tank");
    assert!(labels.newest(3).is_none());
}

#[test]
fn a_new_device_has_a_boot_block_with_the_golden_checksum_and_belongs_to_no_pool_yet() {
    let device = MemDevice::new("d0", SIZE);
    let (pool, leaf) = golden_label();
    init(&device, &initial_label(&pool, &leaf, &leaf, 4)).unwrap();
    let boot = [
        0x97f4_8f80_7f6e_2a3f,
        0xaf90_9f16_58aa_cefc,
        0xcbd1_ea57_ff6d_b48b,
        0x6ec6_92db_0d46_5fab,
    ];
    assert_eq!(words(&device, BOOT_ENV_AT + BOOT_ENV_SIZE as u64), boot);
    let labels = Labels::read(&device);
    assert_eq!(labels.good().count(), 4);
    assert!(labels.newest(u64::MAX).is_none());
    let half = labels.any_up_to(u64::MAX).unwrap();
    assert_eq!((half.txg, half.create_txg), (0, Some(4)));
    assert!(crate::ring::read_ring(&device, 0, 12).unwrap().is_empty());
}

#[test]
fn damaged_and_moved_labels_do_not_exist() {
    let device = MemDevice::new("d0", SIZE);
    init(&device, &golden()).unwrap();
    device
        .write_at(&[1], label_offset(SIZE, 0) + CONFIG_AT + 50_000)
        .unwrap();
    let mut moved = vec![0; CONFIG_SIZE];
    device
        .read_at(&mut moved, label_offset(SIZE, 2) + CONFIG_AT)
        .unwrap();
    device
        .write_at(&moved, label_offset(SIZE, 1) + CONFIG_AT)
        .unwrap();
    let labels = Labels::read(&device);
    assert_eq!(labels.good().map(|(i, _)| i).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(labels.newest(u64::MAX).unwrap().txg, 4);
}

#[test]
fn cleared_and_retired_labels_belong_to_no_pool() {
    let device = MemDevice::new("d0", SIZE);
    init(&device, &golden()).unwrap();
    retire(&device).unwrap();
    assert!(Labels::read(&device).newest(u64::MAX).is_none());
    assert_eq!(Labels::read(&device).good().count(), 4);
    device.write_at(b"MBR", 0).unwrap();
    clear(&device).unwrap();
    assert_eq!(Labels::read(&device).good().count(), 0);
    let mut mbr = [0; 3];
    device.read_at(&mut mbr, 0).unwrap();
    assert_eq!(&mbr, b"MBR", "the space of foreign labels is left alone");
    assert!(clear(&MemDevice::new("tiny", 4096)).is_err());
    assert_eq!(
        Labels::read(&MemDevice::new("tiny", 4096)).good().count(),
        0
    );
}

#[test]
fn a_configuration_too_large_for_a_label_is_refused() {
    let list = NvList::new().with("x", "y".repeat(CONFIG_SIZE));
    assert!(pack_config(&list).is_err());
}

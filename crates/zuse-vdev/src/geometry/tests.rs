use super::*;

#[test]
fn metaslab_shift_follows_the_vectors() {
    let vectors: [(u64, u64, u8, u64); 12] = [
        (64 << 20, 62_390_272, 24, 3),
        (256 << 20, 263_716_864, 24, 15),
        (512 << 20, 532_152_320, 25, 15),
        (1 << 30, 1_069_023_232, 26, 15),
        (8 << 30, 8_585_216_000, 29, 15),
        (10 << 30, 10_732_699_648, 29, 19),
        (100 << 30, 107_369_463_808, 29, 199),
        (200 << 30, 214_743_646_208, 30, 199),
        (1 << 40, 1_099_506_909_184, 33, 127),
        (3 << 40, 3_298_530_164_736, 34, 191),
        (4 << 40, 4_398_041_792_512, 34, 255),
        (3 << 50, 3_377_699_715_809_280, 35, 98_303),
    ];
    for (size, asize, shift, count) in vectors {
        assert_eq!(leaf_asize(size), Some(asize));
        assert_eq!(metaslab_shift(asize), shift, "asize {asize}");
        assert_eq!(asize >> shift, count);
    }
}

#[test]
fn labels_sit_at_both_ends_of_the_rounded_size() {
    let size = (256 << 20) + 1000;
    assert_eq!(
        [0, 1, 2, 3].map(|l| label_offset(size, l)),
        [0, 0x40000, 0xff8_0000, 0xffc_0000]
    );
    assert_eq!(leaf_asize((64 << 20) - 1), None);
}

#[test]
fn ashift_is_that_of_the_coarsest_device_unless_forced() {
    let old = SectorShifts {
        logical: 9,
        physical: 9,
    };
    let emulated = SectorShifts {
        logical: 9,
        physical: 12,
    };
    let strange = SectorShifts {
        logical: 9,
        physical: 15,
    };
    let native = SectorShifts {
        logical: 12,
        physical: 12,
    };
    assert_eq!(choose_ashift(&[old], None, 9).unwrap(), 9);
    assert_eq!(choose_ashift(&[old], None, 12).unwrap(), 12);
    assert_eq!(choose_ashift(&[old, emulated], None, 9).unwrap(), 12);
    assert_eq!(choose_ashift(&[strange], None, 9).unwrap(), 9);
    assert_eq!(choose_ashift(&[emulated], Some(9), 9).unwrap(), 9);
    assert!(
        choose_ashift(&[native], Some(9), 9)
            .unwrap_err()
            .is(zuse_base::Errno::RANGE)
    );
    assert!(
        choose_ashift(&[native], Some(17), 9)
            .unwrap_err()
            .is(zuse_base::Errno::INVAL)
    );
}

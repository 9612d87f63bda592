use super::*;

/// The expected result of [`crc`], computed byte by byte.
fn by_bytes(salt: u64, bytes: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h >> 8) ^ TABLES[0][usize::from(h as u8 ^ b)];
    bytes.iter().fold(salt, step)
}

#[test]
fn the_table_is_the_published_one() {
    let at = |i: usize| TABLES[0][i];
    assert_eq!(at(1), 0xb32e_4cbe_03a7_5f6f);
    assert_eq!(at(2), 0xf484_3657_a840_a05b);
    assert_eq!(at(128), POLYNOMIAL);
    assert_eq!(at(255), 0xe0ad_a173_6467_3f59);
}

#[test]
fn names_hash_as_a_real_pool_hashes_them() {
    let salt = 0x1234_5678_9abc_def1;
    for (name, one, other) in [
        (&b"a"[..], 0x9f81_69ba_49a5_4b33, 0xb4e5_c2fb_fe2e_d5d5),
        (b"ROOT", 0xa1ab_3e3e_0a69_ba5c, 0x3894_fa44_baa4_aee1),
        (b"VERSION", 0x4139_f0ac_af56_a2d1, 0x95f7_ec8d_2336_8172),
        (
            b"DELETE_QUEUE",
            0x8b68_b7f4_93d4_607f,
            0x559d_2225_46a4_c5b5,
        ),
        (b"file.txt", 0xa5d0_78a7_ca4d_cc5e, 0xd0f5_d9b7_35c7_9099),
        (b"alpha", 0x0e4d_cbfb_3452_e733, 0x7e4b_48d1_6906_3284),
        (b"caf\xc3\xa9", 0x0311_13d1_7e5a_81df, 0x7317_90fb_230e_5468),
    ] {
        assert_eq!(crc(1, name), one);
        assert_eq!(crc(salt, name), other);
    }
    assert_eq!(crc(0x3a449, b"2") >> 36, 0x521_1356);
}

#[test]
fn eight_bytes_a_step_equals_one_byte_a_step() {
    let bytes: Vec<u8> = (0..200u32).map(|i| (i * 37 + 11) as u8).collect();
    for from in 0..9 {
        for to in from..bytes.len() {
            assert_eq!(
                crc(0x3a449, &bytes[from..to]),
                by_bytes(0x3a449, &bytes[from..to])
            );
        }
    }
}

#[test]
fn a_name_field_is_measured_and_hashed_in_one_pass() {
    for len in 0..50 {
        let mut field = [0u8; 50];
        for (i, b) in field[..len].iter_mut().enumerate() {
            *b = (i as u8).wrapping_mul(73) | 0x80 | 1;
        }
        let expect = by_bytes(99, &field[..len]);
        assert_eq!(crc_field(99, &field), Some((expect, len)));
    }
    assert_eq!(crc_field(99, &[1; 50]), None);
    let mut field = [0x41; 50];
    field[49] = 0;
    assert_eq!(crc_field(1, &field).unwrap().1, 49);
}

#[test]
fn the_published_hashes_come_out() {
    for (name, want) in [
        (&b"alpha"[..], 0x0e4d_cbf0_0000_0000u64),
        (b"ROOT", 0xa1ab_3e30_0000_0000),
        (b"faa495f7", 0xa311_a300_0000_0000),
        (b"d7f14be2", 0xa311_a300_0000_0000),
        (b"c19ab7b5", 0xa311_a300_0000_0000),
    ] {
        assert_eq!(HashBits::NORMAL.cut(crc(1, name)), want);
    }
    assert_eq!(
        HashBits::WIDE.cut(crc_words(0x9bfa5, &[0x1234_5678])),
        0xe7c7_f9b0_e6eb_0000
    );
    assert_eq!(
        HashBits::WIDE.cut(crc_words(0x9bfa5, &[1, 2])),
        0xa4d1_565c_0ccd_0000
    );
}

#[test]
fn cookies_are_the_published_ones() {
    let bits = HashBits::NORMAL;
    assert_eq!(bits.cookie(0x0e4d_cbf0_0000_0000, 0), 0xe4dcbf);
    assert_eq!(bits.cookie(0x0e4d_cbf0_0000_0000, 1), 0x10e4_dcbf);
    assert_eq!(bits.position(0x10e4_dcbf), (0x0e4d_cbf0_0000_0000, 1));
    assert_eq!(
        HashBits::WIDE.cookie(0xa4d1_565c_0ccd_0000, 1),
        0x1_a4d1_565c_0ccd
    );
}

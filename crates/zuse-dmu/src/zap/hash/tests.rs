use super::*;

#[test]
fn eight_bytes_a_step_equals_one_byte_a_step() {
    let bytes: Vec<u8> = (0..200u32).map(|i| (i * 37 + 11) as u8).collect();
    for from in 0..9 {
        for to in from..bytes.len() {
            assert_eq!(
                crc(0x3a449, &bytes[from..to]),
                zuse_codec::crc64_zap(0x3a449, &bytes[from..to])
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
        let expect = zuse_codec::crc64_zap(99, &field[..len]);
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

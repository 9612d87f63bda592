//! The header of the chapter's vector: a 512-byte header with three nested gangs.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn the_golden_header_is_built_and_read() {
    let member = |words: [u64; 4], sum: [u64; 4], props: u64| {
        let mut bp = BlockPointer::HOLE;
        bp.words[..4].copy_from_slice(&words);
        bp.words[6] = props;
        bp.words[10] = 0x13;
        bp.set_checksum(sum);
        bp
    };
    let members = [
        member(
            [0x57, 0x8000_0000_0000_0aed, 1, 0x8000_0000_0000_8127],
            [
                0x1592_d640_56fc,
                0x01cf_b1d2_b072_cac5,
                0xf034_de53_dc61_ffef,
                0xc735_1208_11d9_22ba,
            ],
            0x8000_0702_0055_0055,
        ),
        member(
            [0x56, 0x8000_0000_0000_0b44, 1, 0x8000_0000_0000_8128],
            [
                0x153f_1995_27d3,
                0x01c3_0093_bd5f_d5c4,
                0xe9ec_1409_c83e_7ce4,
                0x3977_271b_8fd9_049c,
            ],
            0x8000_0702_0054_0054,
        ),
        member(
            [0x56, 0x8000_0000_0000_0b9a, 1, 0x8000_0000_0000_8129],
            [
                0x1554_0055_1148,
                0x01c7_c769_488e_48b8,
                0x4736_038a_6aec_be04,
                0xd2aa_53af_c782_74b0,
            ],
            0x8000_0702_0054_0054,
        ),
    ];
    let mut header = encode_gang_header(&members, GANG_SIZE).unwrap();
    let words = [
        0x1110_caae_f2f6_6caa,
        0x8285_ba0b_3594_1c5b,
        0x4a26_a15e_3842_c357,
        0xb1d5_0941_1169_e688,
    ];
    Trailer::seal(&mut header, words);
    assert!(header[384..472].iter().all(|b| *b == 0));
    let tail =
        hex("117a0cb17ada1002 aa6cf6f2aeca1011 5b1c94350bba8582 57c342385ea1264a 88e669114109d5b1");
    assert_eq!(header[472..], tail);
    let (back, order) = parse_gang_header(&header).unwrap();
    assert_eq!(
        (back.as_slice(), order),
        (members.as_slice(), ByteOrder::Little)
    );
    assert!(back.iter().all(BlockPointer::is_gang));
    assert_eq!(Trailer::read(&header).unwrap().words, words);
}

#[test]
fn sizes_and_missing_magic_are_checked() {
    assert_eq!((gang_pointer_count(512), gang_pointer_count(4096)), (3, 31));
    assert!(parse_gang_header(&[0; 512]).is_err());
    assert!(parse_gang_header(&[0; 100]).is_err());
    assert!(encode_gang_header(&[BlockPointer::HOLE; 4], 512).is_err());
    assert_eq!(gang_words([1, 2, 4, 8], true), [5, 10, 0, 0]);
}

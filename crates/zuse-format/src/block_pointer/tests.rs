//! Vectors from pools written by OpenZFS 2.4, and one big-endian pointer of an old pool.

use super::*;

fn bp(words: &[(usize, u64)]) -> BlockPointer {
    let mut bp = BlockPointer::HOLE;
    for (i, value) in words {
        bp.words[*i] = *value;
    }
    bp
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn a_normal_pointer_reads_as_the_chapter_says() {
    let bp = bp(&[
        (0, 8),
        (1, 0x8d2),
        (6, 0x8019_0702_0007_0007),
        (10, 6),
        (11, 1),
        (12, 0x1f5),
        (15, 9),
    ]);
    assert_eq!(bp.kind(), BpKind::Normal);
    let dvas: Vec<Dva> = bp.dvas().collect();
    assert_eq!(dvas, [Dva::new(0, 0x11_a400, 0x1000, false)]);
    assert_eq!(
        (bp.object_type(), bp.checksum_kind(), bp.compression()),
        (25, 7, 2)
    );
    assert_eq!(
        (bp.lsize(), bp.psize(), bp.asize(), bp.fill()),
        (4096, 4096, 4096, 1)
    );
    assert_eq!(
        (
            bp.logical_birth(),
            bp.physical_birth(),
            bp.allocation_birth()
        ),
        (6, 6, 6)
    );
    assert_eq!(bp.byte_order(), ByteOrder::Little);
    bp.validate(BpLimits {
        vdev_asizes: Some(&[Some(0x20_0000)]),
    })
    .unwrap();
    assert!(
        bp.validate(BpLimits {
            vdev_asizes: Some(&[Some(0x11_a400)])
        })
        .is_err()
    );
    assert!(
        bp.validate(BpLimits {
            vdev_asizes: Some(&[None])
        })
        .is_err()
    );
}

#[test]
fn lz4_and_level_one_sizes_come_out() {
    let lz4 = bp(&[
        (0, 0x5a),
        (1, 0x476),
        (6, 0x8019_070f_0059_00ff),
        (10, 6),
        (11, 1),
    ]);
    assert_eq!(
        (lz4.lsize(), lz4.psize(), lz4.compression()),
        (0x2_0000, 0xb400, 15)
    );
    let l1 = bp(&[
        (0, 2),
        (1, 0xa9c),
        (2, 2),
        (3, 0x80d6),
        (6, 0x8119_070f_0001_00ff),
        (10, 13),
        (11, 6),
    ]);
    assert_eq!(
        (l1.level(), l1.lsize(), l1.psize(), l1.fill(), l1.asize()),
        (1, 128 << 10, 1024, 6, 2048)
    );
}

#[test]
fn holes_with_birth_are_built_and_read() {
    let hole = bp(&[(6, 0x0019_0000_0000_00ff), (10, 10)]);
    assert!(hole.is_hole() && hole.kind() == BpKind::Hole);
    assert_eq!(
        (hole.lsize(), hole.psize(), hole.object_type(), hole.level()),
        (0x2_0000, 0, 25, 0)
    );
    assert_eq!(BlockPointer::hole_with_birth(0x2_0000, 25, 0, 10), hole);
    assert_eq!(
        BlockPointer::hole_with_birth(0x2_0000, 25, 1, 10),
        bp(&[(6, 0x0119_0000_0000_00ff), (10, 10)])
    );
    assert_eq!(
        BlockPointer::hole_with_birth(0x2_0000, 25, 1, 0),
        BlockPointer::HOLE
    );
    assert_eq!(BlockPointer::HOLE.lsize(), 0);
    hole.validate(BpLimits::default()).unwrap();
}

#[test]
fn embedded_payload_round_trips_with_the_golden_pointer() {
    let golden = bp(&[
        (0, 0x7375_7a4f_1d00_0000),
        (1, 0xffff_ffff_ff00_0465),
        (2, u64::MAX),
        (3, 0x7375_7a65_50f3_ffff),
        (4, 0x65),
        (6, 0x8019_008f_4000_0fff),
        (10, 6),
    ]);
    let payload = hex("0000001d4f7a7573650400fffffffffffffffffffffffffffffff350657a757365");
    assert_eq!(golden.kind(), BpKind::Embedded);
    assert_eq!(
        (golden.lsize(), golden.embedded_len(), golden.compression()),
        (4096, 33, 15)
    );
    let (bytes, len) = golden.embedded_payload().unwrap();
    assert_eq!(&bytes[..len], payload);
    assert_eq!(
        BlockPointer::embed(&payload, 4096, 15, 25, 6).unwrap(),
        golden
    );
    assert_eq!(
        (golden.fill(), golden.physical_birth(), golden.psize()),
        (1, 0, 0)
    );
    assert!(BlockPointer::embed(&[0; 113], 4096, 15, 25, 6).is_err());
    let mut too_long = golden;
    too_long.words[6] |= 0x7f << 25;
    assert!(
        too_long.embedded_payload().is_err() && too_long.validate(BpLimits::default()).is_err()
    );
}

#[test]
fn redacted_rewritten_cloned_and_dedup_pointers_have_the_right_births() {
    let redacted = bp(&[(6, 0x0013_0280_0001_ffff), (10, 0x7b)]);
    assert!(redacted.is_redacted());
    assert_eq!((redacted.lsize(), redacted.logical_birth()), (131_072, 123));
    assert_eq!(BlockPointer::redacted(131_072, 19, 123), redacted);

    let rewritten = bp(&[
        (0, 0x100),
        (1, 0x99c),
        (6, 0x8019_0702_00ff_00ff),
        (7, 1 << 63),
        (9, 13),
        (10, 6),
        (11, 1),
    ]);
    assert_eq!(
        (rewritten.logical_birth(), rewritten.physical_birth()),
        (6, 13)
    );
    assert_eq!(rewritten.allocation_birth(), 13);

    let cloned = bp(&[
        (0, 0x100),
        (1, 0x176),
        (6, 0x8019_0702_00ff_00ff),
        (9, 6),
        (10, 16),
        (11, 1),
    ]);
    assert_eq!(
        (
            cloned.logical_birth(),
            cloned.physical_birth(),
            cloned.allocation_birth()
        ),
        (16, 6, 16)
    );

    let dedup = bp(&[
        (0, 0x20),
        (1, 0xcef),
        (6, 0xc019_0802_001f_001f),
        (10, 0x72),
        (11, 1),
    ]);
    assert!(dedup.dedup() && !dedup.uses_crypt());
    assert_eq!(dedup.checksum_kind(), 8);
}

#[test]
fn gang_pointers_show_the_bit() {
    let gang = bp(&[
        (0, 0x104),
        (1, 0x8000_0000_0000_0aec),
        (2, 4),
        (3, 0x8000_0000_0000_8126),
        (6, 0x8019_0702_00ff_00ff),
        (10, 0x13),
        (11, 1),
    ]);
    assert!(gang.is_gang());
    assert_eq!(gang.dva(0).offset(), 0xaec * 512);
    assert_eq!(Dva::new(0, 0xaec * 512, 0x104 * 512, true), gang.dva(0));
}

#[test]
fn encrypted_pointers_carry_salt_iv_and_mac() {
    let enc = bp(&[
        (0, 8),
        (1, 0xf08),
        (4, 0x613b_aaea_dfd1_ba1d),
        (5, 0x675c_32a0_37ef_bf38),
        (6, 0xa019_0702_0007_0007),
        (10, 0x8d),
        (11, 0x747f_1aec_0000_0001),
        (14, 0x155d_155b_3859_dfdd),
        (15, 0xc5ae_0258_43b6_23e0),
    ]);
    assert_eq!(enc.protection(), Protection::Encrypted);
    assert_eq!(enc.salt().to_vec(), hex("1dbad1dfeaaa3b61"));
    assert_eq!(enc.iv().to_vec(), hex("38bfef37a0325c67ec1a7f74"));
    assert_eq!(enc.mac().to_vec(), hex("dddf59385b155d15e023b6435802aec5"));
    assert_eq!((enc.fill(), enc.dvas().count()), (1, 1));
    let mut again = bp(&[(6, 0xa019_0702_0007_0007)]);
    again.set_fill(1);
    again.set_salt_iv(&enc.salt(), &enc.iv());
    again.set_mac(&enc.mac());
    assert_eq!(
        (again.words[4], again.words[5], again.words[11]),
        (enc.words[4], enc.words[5], enc.words[11])
    );
    assert_eq!(again.words[14..], enc.words[14..]);
    again.set_fill(5);
    assert_eq!((again.fill(), again.iv()), (5, enc.iv()));

    let big = {
        let mut b = bp(&[(6, 0x2019_0702_0007_0007)]);
        b.set_fill(1);
        b.set_salt_iv(
            &[0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7],
            &std::array::from_fn(|i| 0xb0 + i as u8),
        );
        b
    };
    assert_eq!(big.words[4], 0xa0a1_a2a3_a4a5_a6a7);
    assert_eq!(big.words[11], 0xb8b9_babb_0000_0001);
}

#[test]
fn a_pointer_says_how_its_block_is_protected() {
    let auth = bp(&[
        (0, 1),
        (1, 0x37e0),
        (6, 0xa080_070f_0000_001f),
        (10, 0x8d),
        (11, 1),
    ]);
    assert_eq!(auth.protection(), Protection::Authenticated);
    assert_eq!((auth.lsize(), auth.psize()), (16384, 512));
    let ind = bp(&[
        (0, 2),
        (1, 0x39a8),
        (2, 2),
        (3, 0x8bfb),
        (6, 0xa119_070f_0001_00ff),
        (11, 2),
    ]);
    assert_eq!(ind.protection(), Protection::IndirectMac);
    let root = bp(&[
        (0, 8),
        (1, 0xfb2),
        (2, 8),
        (3, 0x82de),
        (6, 0xa00b_0702_0007_0007),
        (11, 6),
    ]);
    assert_eq!(
        (root.protection(), root.fill()),
        (Protection::Authenticated, 6)
    );
    let dnodes = bp(&[
        (0, 0x20),
        (2, 0x20),
        (4, 1),
        (6, 0xa00a_0702_001f_001f),
        (11, 0x6e6f_bbf2_0000_0006),
    ]);
    assert_eq!(
        (dnodes.protection(), dnodes.fill()),
        (Protection::Encrypted, 6)
    );
}

#[test]
fn a_big_endian_container_is_read_as_the_same_numbers() {
    let mut raw = hex(
        "0000000000000001 0000000000000090 0000000000000001 0000000000005c90 0000000000000001 000000000000b87a 000b070300000003",
    );
    raw.extend([0; 24]);
    raw.extend(hex(
        "0000000000000015 000000000000001a 0000000e7615175c 000005d0f18f316f 0001300fe4d7c2ee 002a0779d6d3cd31",
    ));
    let bp = BlockPointer::parse(raw.as_slice().try_into().unwrap(), ByteOrder::Big);
    assert_eq!(
        (bp.object_type(), bp.checksum_kind(), bp.compression()),
        (11, 7, 3)
    );
    assert_eq!(bp.byte_order(), ByteOrder::Big);
    assert_eq!(
        (bp.lsize(), bp.psize(), bp.logical_birth(), bp.fill()),
        (2048, 512, 21, 26)
    );
    assert_eq!(bp.dvas().count(), 3);
    let mut le = [0; 128];
    bp.write_le(&mut le);
    assert_eq!(BlockPointer::parse(&le, ByteOrder::Little), bp);
}

#[test]
fn a_written_pointer_is_made_of_its_parts() {
    let mut bp = BlockPointer::with_props(BpProps {
        lsize: 131_072,
        psize: 46080,
        compression: 15,
        checksum: 7,
        object_type: 25,
        level: 0,
        dedup: false,
        crypt: false,
        order: ByteOrder::Little,
    });
    assert_eq!(bp.words[6], 0x8019_070f_0059_00ff);
    bp.set_dva(0, Dva::new(0, 0x476 * 512, 0x5a * 512, false));
    bp.set_birth(6, 6);
    bp.set_fill(1);
    bp.set_checksum([1, 2, 3, 4]);
    assert_eq!(
        (bp.words[0], bp.words[1], bp.words[9], bp.words[10]),
        (0x5a, 0x476, 0, 6)
    );
    assert_eq!(bp.checksum(), [1, 2, 3, 4]);
    bp.validate(BpLimits::default()).unwrap();
    assert_eq!(BlockPointer::with_props(bp.props()).words[6], bp.words[6]);
}

#[test]
fn insane_pointers_are_refused() {
    let good = bp(&[(0, 8), (1, 0x8d2), (6, 0x8019_0702_0007_0007), (10, 6)]);
    let mut each = vec![];
    let mut bad_type = good;
    bad_type.words[6] |= 0x3f << 48;
    each.push(bad_type);
    let mut bad_compression = good;
    bad_compression.words[6] |= 0x7f << 32;
    each.push(bad_compression);
    let mut bad_checksum = good;
    bad_checksum.words[6] |= 0x7f << 40;
    each.push(bad_checksum);
    let mut big = good;
    big.words[6] |= 0xffff;
    each.push(big);
    let mut no_dva = good;
    no_dva.words[0] = 0;
    each.push(no_dva);
    let mut bad_kind = good;
    bad_kind.words[6] |= 1 << 39;
    each.push(bad_kind);
    for bp in each {
        assert!(bp.validate(BpLimits::default()).is_err(), "{bp:?}");
    }
}

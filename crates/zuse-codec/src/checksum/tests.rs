//! Vectors of the format notes, blocks of a real pool (written by OpenZFS 2.4.4, salt below), and
//! the vector code against its one-lane twin.

use super::*;
use crate::ChecksumKind as Kind;
use proptest::prelude::*;

const SALT: [u8; 32] = {
    let mut s = [0; 32];
    let mut i = 0;
    while i < 32 {
        s[i] = i as u8;
        i += 1;
    }
    s
};

fn ramp(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8).collect()
}

fn salted() -> ChecksumContext {
    ChecksumContext::new(Some(&Salt(SALT)))
}

fn parse(text: &str) -> [u64; 4] {
    let mut words = text.split(':').map(|w| u64::from_str_radix(w, 16).unwrap());
    std::array::from_fn(|_| words.next().unwrap())
}

#[track_caller]
fn expect(kind: Kind, data: &[u8], order: ByteOrder, text: &str) {
    let expected = parse(text);
    let got = checksum(kind, data, order, &salted()).unwrap();
    assert_eq!(got, expected, "{} gives {got:016x?}", kind.name());
    assert!(verify(kind, data, order, &salted(), &expected).unwrap());
    let mut wrong = expected;
    wrong[3] ^= 1;
    assert!(!verify(kind, data, order, &salted(), &wrong).unwrap());
}

/// What is summed: a ramp of 512, 4,096 or 131,072 bytes, or 512 zeros.
#[derive(Clone, Copy)]
enum Data {
    Small,
    Page,
    Large,
    Zeros,
}

const VECTORS: [(Kind, Data, ByteOrder, &str); 20] = [
    (
        Kind::Fletcher2,
        Data::Small,
        ByteOrder::Little,
        "efcfaf8f6f4f2f00:f0d0b09070503000:4a38261401efdd00:dac8b6a492806d80",
    ),
    (
        Kind::Fletcher2,
        Data::Small,
        ByteOrder::Big,
        "0f2f4f6f8fafcfe0:1030507090b0d0e0:cfe1f406182a3b70:60728496a8bacbf0",
    ),
    (
        Kind::Fletcher2,
        Data::Large,
        ByteOrder::Little,
        "cfaf8f6f4f2f0000:d0b0907050300000:362411ffeced0000:c6b4a2907d6d8000",
    ),
    (
        Kind::Fletcher4,
        Data::Small,
        ByteOrder::Little,
        "00000040c03fbf00:00000da342e27500:000214fa7f828a80:003d9765c9f3c980",
    ),
    (
        Kind::Fletcher4,
        Data::Small,
        ByteOrder::Big,
        "0000003f3fc04080:00000d4262c315c0:000204948f886b00:003b7e5b56b441e0",
    ),
    (
        Kind::Fletcher4,
        Data::Page,
        ByteOrder::Little,
        "0000020601fdf800:0003f79d9385a800:053e7f19ab335400:3422b083068a4c00",
    ),
    (
        Kind::Fletcher4,
        Data::Large,
        ByteOrder::Little,
        "000040c03fbf0000:102d8322b2b50000:1234cd0d5d6a8000:da09a6949d498000",
    ),
    (
        Kind::Sha256,
        Data::Small,
        ByteOrder::Little,
        "110009dcee21620b:166f3abfecb5eff7:a873be729d1c2d53:822e7acc5f34eb9b",
    ),
    (
        Kind::Sha256,
        Data::Small,
        ByteOrder::Big,
        "110009dcee21620b:166f3abfecb5eff7:a873be729d1c2d53:822e7acc5f34eb9b",
    ),
    (
        Kind::Sha256,
        Data::Zeros,
        ByteOrder::Little,
        "076a27c79e5ace2a:3d47f9dd2e83e4ff:6ea8872b3c2218f6:6c92b89b55f36560",
    ),
    (
        Kind::Sha512,
        Data::Small,
        ByteOrder::Little,
        "6cf5b1411d91141d:0ea8ddb86fa627f0:991896779c0da9d7:3bdc08f7e9f3faed",
    ),
    (
        Kind::Sha512,
        Data::Small,
        ByteOrder::Big,
        "1d14911d41b1f56c:f027a66fb8dda80e:d7a90d9c77961899:edfaf3e9f708dc3b",
    ),
    (
        Kind::Sha512,
        Data::Zeros,
        ByteOrder::Little,
        "5b9416975c402b55:1bc2ae9be6ae0cfc:b88df5fb0b56052a:a6422bc42c4c1abd",
    ),
    (
        Kind::Skein,
        Data::Small,
        ByteOrder::Little,
        "df06b17bad515284:c1074e6c80f80357:0564949cf231e28f:3b30efa65148a406",
    ),
    (
        Kind::Skein,
        Data::Large,
        ByteOrder::Little,
        "48ab76360948b878:b81415108dd33e8f:c9ffd4fa053f8f87:d9b3ab034e2c7b6b",
    ),
    (
        Kind::Edonr,
        Data::Small,
        ByteOrder::Little,
        "86f009c293823406:1787f335116ef352:616de2d3955eb1e1:0f0e3039494fa11f",
    ),
    (
        Kind::Edonr,
        Data::Zeros,
        ByteOrder::Little,
        "0d00b58664fa7c50:7802fba8da630b5d:57d4f6db197c77b8:8c1fe4b0b798f54c",
    ),
    (
        Kind::Edonr,
        Data::Large,
        ByteOrder::Little,
        "7c40ece7738a1e98:3078336528086686:60ccdc9d121bf7eb:a1505f084f4f033c",
    ),
    (
        Kind::Blake3,
        Data::Small,
        ByteOrder::Little,
        "68e5f03a15d32d73:2e2d8e52a9e2d91f:b6eb0668176e2d68:95bf9be2259b6c22",
    ),
    (
        Kind::Blake3,
        Data::Large,
        ByteOrder::Little,
        "f680bed39f7f662f:e6bb7d178fa67fd4:1a58ba426117e2b9:35a5592aa9d90f64",
    ),
];

#[test]
fn every_function_gives_its_vectors() {
    let (small, page, large) = (ramp(512), ramp(4096), ramp(131_072));
    let zeros = vec![0; 512];
    for (kind, data, order, words) in VECTORS {
        let data = match data {
            Data::Small => &small,
            Data::Page => &page,
            Data::Large => &large,
            Data::Zeros => &zeros,
        };
        expect(kind, data, order, words);
    }
}

#[test]
fn the_other_byte_order_swaps_the_words_of_digests() {
    for kind in [Kind::Sha512, Kind::Skein, Kind::Edonr, Kind::Blake3] {
        let data = ramp(1000);
        let little = checksum(kind, &data, ByteOrder::Little, &salted()).unwrap();
        let big = checksum(kind, &data, ByteOrder::Big, &salted()).unwrap();
        assert_eq!(little.map(u64::swap_bytes), big);
    }
}

/// Object-set blocks (512 stored bytes) of a real pool, one per function.
#[test]
fn blocks_of_a_real_pool_pass() {
    let salt = Salt([
        0x21, 0x8a, 0x9b, 0x55, 0x37, 0x37, 0xf8, 0x17, 0x6a, 0x2c, 0x8d, 0x00, 0xf0, 0x59, 0x84,
        0x12, 0x49, 0x85, 0x52, 0x7b, 0xe6, 0x26, 0x52, 0xdc, 0x65, 0x07, 0x86, 0xdf, 0xea, 0xde,
        0x7d, 0xc9,
    ]);
    let ctx = ChecksumContext::new(Some(&salt));
    for (kind, block, words) in [
        (
            Kind::Sha256,
            include_bytes!("../../testdata/objset-sha256.bin"),
            "7334e52f9c312804:f57598263f5193ae:9953cc8047c83c61:9321384e42ffa491",
        ),
        (
            Kind::Sha512,
            include_bytes!("../../testdata/objset-sha512.bin"),
            "e1c6a38e85d08e56:eca0e0b68be087d9:9f85901fc40dbc95:13fac529a3f23e3e",
        ),
        (
            Kind::Skein,
            include_bytes!("../../testdata/objset-skein.bin"),
            "b2c706b2af4ea55a:1bed1fad98298e80:34b3ed6ac0964e72:5fce659b07ed1860",
        ),
        (
            Kind::Edonr,
            include_bytes!("../../testdata/objset-edonr.bin"),
            "bf70c9a1ee86258a:0f8aa30122e3c4ac:19ad375811561151:637137a6450f21f8",
        ),
        (
            Kind::Blake3,
            include_bytes!("../../testdata/objset-blake3.bin"),
            "bcadc78726179294:2ecffe5d6a29ebb6:bc688563c02d69cd:0249ee00b1e5e63b",
        ),
    ] {
        let words = parse(words);
        assert!(
            verify(kind, block, ByteOrder::Little, &ctx, &words).unwrap(),
            "{}",
            kind.name()
        );
        assert!(
            verify_truncated(kind, block, ByteOrder::Little, &ctx, &words).unwrap()
                == kind.is_dedup_capable()
        );
    }
}

#[test]
fn a_real_uberblock_slot_passes_only_at_its_own_offset() {
    let slot = include_bytes!("../../testdata/uberblock-slot-99.bin");
    let offset = 0x20000 + 99 * 1024;
    assert_eq!(open_trailer(slot, [offset, 0, 0, 0]), Ok(ByteOrder::Little));
    assert_eq!(
        open_trailer(slot, [offset + 1024, 0, 0, 0]),
        Err(CodecError::Mismatch)
    );
    let mut sealed = slot.to_vec();
    sealed[1024 - TRAILER_SIZE..].fill(0);
    assert_eq!(
        open_trailer(&sealed, [offset, 0, 0, 0]),
        Err(CodecError::NoMagic)
    );
    seal_trailer(&mut sealed, [offset, 0, 0, 0]);
    assert_eq!(sealed, slot);
}

/// A gang header from the words of its members (slot, word, value); the rest is zero.
fn gang_header(members: [&[(usize, u64)]; 3]) -> Vec<u8> {
    let mut block = vec![0; 512];
    for (i, words) in members.into_iter().enumerate() {
        for &(w, value) in words {
            let at = 128 * i + 8 * w;
            block[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    block
}

fn member(dva: [u64; 4], size: u64, birth: u64, sum: [u64; 4]) -> Vec<(usize, u64)> {
    let mut words: Vec<_> = dva.into_iter().enumerate().collect();
    words.extend([(6, size), (10, birth)]);
    words.extend(sum.into_iter().enumerate().map(|(i, w)| (12 + i, w)));
    words
}

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|h| u8::from_str_radix(std::str::from_utf8(h).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn gang_headers_seal_as_openzfs_seals_them() {
    const G: u64 = 1 << 63;
    let plain = [
        member(
            [0x57, G | 0xaed, 1, G | 0x8127],
            0x8000_0702_0055_0055,
            0x13,
            parse("00001592d64056fc:01cfb1d2b072cac5:f034de53dc61ffef:c735120811d922ba"),
        ),
        member(
            [0x56, G | 0xb44, 1, G | 0x8128],
            0x8000_0702_0054_0054,
            0x13,
            parse("0000153f199527d3:01c30093bd5fd5c4:e9ec1409c83e7ce4:3977271b8fd9049c"),
        ),
        member(
            [0x56, G | 0xb9a, 1, G | 0x8129],
            0x8000_0702_0054_0054,
            0x13,
            parse("0000155400551148:01c7c769488e48b8:4736038a6aecbe04:d2aa53afc78274b0"),
        ),
    ];
    let mut block = gang_header([&plain[0], &plain[1], &plain[2]]);
    seal_trailer(&mut block, [0, 0x15d800, 19, 0]);
    let tail = "117a0cb17ada1002aa6cf6f2aeca10115b1c94350bba858257c342385ea1264a88e669114109d5b1";
    assert_eq!(block[472..], hex(tail));
    assert_eq!(
        open_trailer(&block, [0, 0x15d800, 19, 0]),
        Ok(ByteOrder::Little)
    );

    let encrypted = [
        member(
            [0x57, G | 0x3a0c, 1, G | 0x8c5f],
            0x8000_0702_0055_0055,
            0x93,
            parse("0000158c760decd3:01d130313efcda1a:1ce3f4db9885093a:904b894fbac91dbb"),
        ),
        member(
            [0x56, G | 0x3a63, 1, G | 0x8c60],
            0x8000_0702_0054_0054,
            0x93,
            parse("0000156f9c372e7e:01c81754afe721e1:3cda6707e869b1e3:43d3706355895bd1"),
        ),
        member(
            [0x56, G | 0x3ab9, 1, G | 0x8c61],
            0x8000_0702_0054_0054,
            0x93,
            parse("000015128cdfdcc1:01be45bc6f3de5f4:9ed503a8b0da5055:fc6b91a0dae4ecdc"),
        ),
    ];
    let mut block = gang_header([&encrypted[0], &encrypted[1], &encrypted[2]]);
    seal_trailer_truncated(&mut block, [0, 0x741600, 147, 0]);
    let tail = "117a0cb17ada1002561388961967ae27980d0eb3b83fa93100000000000000000000000000000000";
    assert_eq!(block[472..], hex(tail));
    assert_eq!(
        open_trailer_truncated(&block, [0, 0x741600, 147, 0]),
        Ok(ByteOrder::Little)
    );
    assert_eq!(
        open_trailer(&block, [0, 0x741600, 147, 0]),
        Err(CodecError::Mismatch)
    );
}

#[test]
fn a_big_endian_trailer_opens() {
    let verifier = [0x4000, 1, 2, 3];
    let mut block = ramp(512);
    block[472..480].copy_from_slice(&TRAILER_MAGIC.to_be_bytes());
    block[480..].copy_from_slice(&word_bytes(verifier, ByteOrder::Big));
    let sum = sha256_words(Sha256::new_with_prefix(&block));
    block[480..].copy_from_slice(&word_bytes(sum, ByteOrder::Big));
    assert_eq!(open_trailer(&block, verifier), Ok(ByteOrder::Big));
    assert_eq!(
        open_trailer(&block[1..], verifier),
        Err(CodecError::Mismatch)
    );
    assert_eq!(
        open_trailer(&block[480..], verifier),
        Err(CodecError::Length(32))
    );
}

#[test]
fn a_real_log_block_passes_and_reseals() {
    let used = include_bytes!("../../testdata/zilog2.bin");
    let mut block = vec![0; 8192];
    block[..used.len()].copy_from_slice(used);
    block[4096..].fill(0xee); // stale bytes that were never written
    let verifier = [0x8b87_86b1_4858_ded5, 0x834f_f0de_88d3_c940, 0x4e, 2];
    assert_eq!(open_zil(&block, verifier), Ok((ByteOrder::Little, 4096)));
    assert_eq!(
        zil_sums(&block, verifier).unwrap().stored[3],
        0x4b58_3fe0_c46e_64c3
    );
    let mut next = verifier;
    next[3] += 1;
    assert_eq!(open_zil(&block, next), Err(CodecError::Mismatch));
    let original = block.clone();
    block[144..184].fill(0);
    assert_eq!(open_zil(&block, verifier), Err(CodecError::NoMagic));
    assert_eq!(seal_zil(&mut block, verifier), Ok(4096));
    assert_eq!(block, original);
}

#[test]
fn a_log_block_with_an_impossible_length_is_refused() {
    let mut block = vec![0; 4096];
    for used in [0, 4097, u64::MAX, u64::MAX - 4095, 1 << 40] {
        block[136..144].copy_from_slice(&used.to_le_bytes());
        block[144..152].copy_from_slice(&TRAILER_MAGIC.to_le_bytes());
        assert_eq!(
            open_zil(&block, [0; 4]),
            Err(CodecError::Length(4096)),
            "{used}"
        );
    }
    for len in [0, 10, 150, 183] {
        assert!(open_zil(&block[..len], [0; 4]).is_err());
        assert!(open_zil_legacy(&block[..len], [0; 4]).is_err());
    }
}

#[test]
fn an_old_log_block_passes_in_both_orders() {
    let verifier = [1, 2, 3, 4];
    let mut block = ramp(4096);
    seal_zil_legacy(&mut block, verifier).unwrap();
    assert_eq!(open_zil_legacy(&block, verifier), Ok(ByteOrder::Little));
    let swapped: Vec<u8> = block
        .chunks(8)
        .flat_map(|w| w.iter().rev().copied().collect::<Vec<_>>())
        .collect();
    assert_eq!(open_zil_legacy(&swapped, verifier), Ok(ByteOrder::Big));
    block[0] ^= 1;
    assert_eq!(open_zil_legacy(&block, verifier), Err(CodecError::Mismatch));
}

#[test]
fn property_values_and_missing_salts_are_errors() {
    let bare = ChecksumContext::new(None);
    for kind in Kind::ALL {
        let result = checksum(kind, &[0; 512], ByteOrder::Little, &bare);
        match kind {
            Kind::Inherit | Kind::On => {
                assert_eq!(result, Err(CodecError::NoFunction(kind.name())))
            }
            Kind::Skein | Kind::Edonr | Kind::Blake3 => {
                assert_eq!(result, Err(CodecError::NoSalt(kind.name())));
            }
            _ => assert!(result.is_ok()),
        }
        assert_eq!(Kind::from_u8(kind.to_u8()), Some(kind));
    }
    assert_eq!(Kind::from_u8(15), None);
    assert!(verify(Kind::Off, b"anything", ByteOrder::Little, &bare, &[7; 4]).unwrap());
    assert_eq!(
        checksum(Kind::Fletcher4, &[0; 5], ByteOrder::Little, &bare),
        Err(CodecError::Length(5))
    );
}

proptest! {
    #[test]
    fn lanes_sum_as_one_lane_does(data in proptest::collection::vec(any::<u8>(), 0..3000),
        high in any::<bool>()) {
        let data: Vec<u8> = if high { data.iter().map(|b| b | 0xf0).collect() } else { data };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let pairs = &data[..data.len() & !15];
            prop_assert_eq!(fletcher2::fletcher2(pairs, order), fletcher2::one_lane(pairs, order));
            let words = &data[..data.len() & !3];
            let expected = fletcher4::one_lane(words, order);
            prop_assert_eq!(fletcher4::fletcher4(words, order), expected);
            for lanes in [4, 8, 16] {
                prop_assert_eq!(fletcher4::in_lanes(lanes, words, order), expected);
            }
        }
    }

    #[test]
    fn a_stream_may_be_cut_anywhere(data in proptest::collection::vec(any::<u8>(), 0..4000),
        cuts in proptest::collection::vec(0usize..4000, 0..6)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(data.len())).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let mut sum = Fletcher4::new();
        for pair in cuts.windows(2) {
            sum.update(&data[pair[0]..pair[1]]);
        }
        prop_assert_eq!(sum.words(), fletcher4::one_lane(&data[..data.len() & !3],
            ByteOrder::Little));
    }
}

#[test]
fn a_chunk_boundary_inside_a_large_buffer_changes_nothing() {
    let data: Vec<u8> = (0..(8usize << 20) + 4096)
        .map(|i| (i * 7 + i / 251) as u8)
        .collect();
    assert_eq!(
        fletcher4::fletcher4(&data, ByteOrder::Little),
        fletcher4::one_lane(&data, ByteOrder::Little)
    );
}

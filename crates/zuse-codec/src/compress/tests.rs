//! Vectors of the format notes (streams of OpenZFS 2.4), round trips, and hostile input.

use super::*;
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|h| u8::from_str_radix(std::str::from_utf8(h).unwrap(), 16).unwrap())
        .collect()
}

fn zuse() -> Vec<u8> {
    b"zuse".repeat(1024)
}

fn striped() -> Vec<u8> {
    (0..512)
        .map(|i| {
            if i % 64 < 16 {
                0x41 + (i / 64) as u8
            } else {
                0
            }
        })
        .collect()
}

fn methods() -> Vec<Compression> {
    let mut all = vec![
        Compression::Lzjb,
        Compression::Zle,
        Compression::Lz4,
        Compression::Zstd,
    ];
    all.extend((1..=9).map(Compression::Gzip));
    all
}

fn vectors() -> Vec<(Compression, Vec<u8>, Vec<u8>)> {
    let zeros = vec![0; 4096];
    let zle: String = (0..8)
        .map(|k| format!("0f{}6f", format!("{:02x}", 0x41 + k).repeat(16)))
        .collect();
    let lzjb_striped = "6a41300100b001423001b03f00b6433001b440443001b4404530016db440463001b440473001b440480048484848484848480048484848484848".to_owned();
    let lzjb_zuse = format!(
        "f07a757365fc04fc44fc84fc84{}03fc84fc84",
        format!("ff{}", "fc84".repeat(8)).repeat(7)
    );
    let lzjb_zero = format!(
        "fe00fc01fc42fc42fc42fc42fc42fc42{}7f{}00000000",
        format!("ff{}", "fc42".repeat(8)).repeat(6),
        "fc42".repeat(7)
    );
    [
        (Compression::Lzjb, zuse(), lzjb_zuse),
        (Compression::Lzjb, zeros.clone(), lzjb_zero),
        (Compression::Lzjb, striped(), format!("{lzjb_striped}{}", "00".repeat(54))),
        (Compression::Zle, striped(), zle),
        (Compression::Zle, zeros.clone(), format!("{}7f", "ff".repeat(21))),
        (Compression::Lz4, zuse(), "0000001d4f7a7573650400fffffffffffffffffffffffffffffff350657a757365".into()),
        (Compression::Lz4, zeros.clone(), "0000001a1f000100fffffffffffffffffffffffffffffff6500000000000".into()),
        (Compression::Lz4, striped(), "000000481b4101001f0001001c1b4201000f3f001c2b004301000f40001d1b4401000f40001d1b4501000f40001d1b4601000f40001d1b4701000f40001d1b4801000f400018500000000000".into()),
        (Compression::Zstd, zuse(), "00000010030028a500105d0000207a7573650100f9df7744".into()),
        (Compression::Zstd, zeros.clone(), "0000000e030028a500104d00001000000100fbf70116".into()),
        (Compression::Zstd, striped(), "00000031030028a5000065010088414100420043004400450046004700480010100044d21d11eb84e83a4624dd11b14e88ae6344d21d1193db".into()),
        (Compression::Gzip(6), zeros, "789cedc1010d000000c2a0f74f6d0f0714000000f06e10000001".into()),
    ]
    .map(|(kind, plain, stored)| (kind, plain, hex(&stored)))
    .into()
}

#[test]
fn stored_streams_decompress_with_and_without_padding() {
    for (kind, plain, stored) in vectors() {
        for padding in [0, 1, 512] {
            let mut padded = stored.clone();
            padded.resize(stored.len() + padding, 0);
            let mut out = vec![0xaa; plain.len()];
            assert_eq!(
                decompress(kind, &padded, &mut out),
                Ok(()),
                "{kind:?} {}",
                hex_of(&stored)
            );
            assert!(out == plain, "{kind:?}");
        }
    }
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn lzjb_and_zle_are_byte_exact() {
    for (kind, plain, stored) in vectors() {
        if matches!(kind, Compression::Lzjb | Compression::Zle) {
            let mut out = Vec::new();
            assert_eq!(
                compress(
                    kind,
                    ZstdLevel::DEFAULT,
                    &plain,
                    &mut out,
                    plain.len() - plain.len() / 8
                ),
                Some(stored.len())
            );
            assert_eq!(hex_of(&out), hex_of(&stored));
        }
    }
}

/// A real stored block splits a literal run there: 63 bytes, one zero, then literals again.
#[test]
fn a_zero_in_the_last_place_of_a_zle_run_is_no_literal() {
    let mut plain: Vec<u8> = (1..=63).collect();
    plain.push(0);
    plain.extend([7; 10]);
    let mut stored = Vec::new();
    compress(
        Compression::Zle,
        ZstdLevel::DEFAULT,
        &plain,
        &mut stored,
        200,
    )
    .unwrap();
    assert_eq!(
        hex_of(&stored),
        format!("3e{}4009{}", hex_of(&plain[..63]), "07".repeat(10))
    );
}

#[test]
fn a_zstd_frame_has_the_stored_header_and_no_content_size() {
    let mut out = Vec::new();
    compress(
        Compression::Zstd,
        ZstdLevel::from_library(19).unwrap(),
        &zuse(),
        &mut out,
        3584,
    )
    .unwrap();
    assert_eq!(
        out[..4],
        u32::try_from(out.len() - 8).unwrap().to_be_bytes()
    );
    assert_eq!(out[4..8], [19, 0x00, 0x28, 0xa5]);
    assert_eq!(
        out[8] & 0b1110_0100,
        0,
        "frame header: no size, no single segment, no checksum"
    );
}

#[test]
fn zstd_headers_of_early_big_endian_writers_are_read() {
    let (kind, plain, stored) = vectors()
        .into_iter()
        .find(|v| v.0 == Compression::Zstd)
        .unwrap();
    for (tail, ok) in [
        ([0x03, 0x00, 0x28, 0xa5], true),
        ([0x00, 0x28, 0xa5, 0x03], true),
        ([0x03, 0xa5, 0x28, 0x00], true),
        ([0xa5, 0x28, 0x00, 0x03], true),
        ([0xff, 0x00, 0x28, 0xa5], true),
        ([0x14, 0x00, 0x28, 0xa5], false),
        ([0x66, 0x00, 0x28, 0xa5], false),
        ([0x03, 0x01, 0x28, 0xa5], false),
    ] {
        let mut stored = stored.clone();
        stored[4..8].copy_from_slice(&tail);
        let mut out = vec![0; plain.len()];
        assert_eq!(
            decompress(kind, &stored, &mut out).is_ok(),
            ok,
            "{tail:02x?}"
        );
    }
}

#[test]
fn lengths_beyond_the_stored_bytes_are_refused() {
    for (kind, plain, stored) in vectors() {
        let mut out = vec![0; plain.len()];
        if matches!(kind, Compression::Lz4 | Compression::Zstd) {
            let mut long = stored.clone();
            long[3] += 1;
            assert!(decompress(kind, &long, &mut out).is_err());
            long[..4].fill(0xff);
            assert!(decompress(kind, &long, &mut out).is_err());
        }
        assert!(
            decompress(kind, &stored[..stored.len() / 2], &mut out).is_err(),
            "{kind:?} cut"
        );
        assert!(decompress(kind, &[], &mut out).is_err());
        out.push(0);
        if kind != Compression::Lzjb {
            assert!(
                decompress(kind, &stored, &mut out).is_err(),
                "{kind:?} is shorter than asked"
            );
        }
    }
}

#[test]
fn zstd_levels_have_their_numbers() {
    let level = |n| ZstdLevel::from_library(n).map(ZstdLevel::to_disk);
    assert_eq!(
        [level(1), level(19), level(20), level(0)],
        [Some(1), Some(19), None, None]
    );
    assert_eq!(
        [level(-1), level(-10), level(-11)],
        [Some(103), Some(112), None]
    );
    assert_eq!(
        [level(-20), level(-100), level(-500), level(-1000)],
        [Some(113), Some(121), Some(122), Some(123)]
    );
    for number in 0..=255u8 {
        let known = matches!(number, 1..=19 | 103..=123 | 255);
        assert_eq!(ZstdLevel::from_disk(number).is_some(), known);
        if let Some(l) = ZstdLevel::from_disk(number) {
            assert_eq!(ZstdLevel::from_library(l.to_library()), Some(l));
        }
    }
    assert_eq!(ZstdLevel::from_property(16), Some(ZstdLevel::DEFAULT));
    assert_eq!(
        ZstdLevel::from_property(0x990).map(ZstdLevel::to_library),
        Some(19)
    );
    assert_eq!(
        ZstdLevel::from_property(0x3390).map(ZstdLevel::to_library),
        Some(-1)
    );
}

#[test]
fn numbers_and_names_of_methods_are_the_stored_ones() {
    for number in 0..=16 {
        assert_eq!(
            Compression::from_u8(number).map(Compression::to_u8),
            Some(number)
        );
    }
    assert_eq!(Compression::from_u8(17), None);
    assert_eq!(
        Compression::from_u8(10).map(Compression::name),
        Some("gzip-6")
    );
    assert!(decompress(Compression::Empty, &[0; 8], &mut [0; 8]).is_err());
    assert!(decompress(Compression::Off, &[1; 7], &mut [0; 8]).is_err());
}

#[test]
fn noise_fits_no_limit_and_leaves_nothing_behind() {
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(131_072)
    .collect();
    let mut out = Vec::new();
    for kind in methods() {
        assert_eq!(
            compress(kind, ZstdLevel::DEFAULT, &noise, &mut out, 131_072 - 16_384),
            None,
            "{kind:?}"
        );
        assert!(out.is_empty());
    }
}

/// Data as files have it: runs, repeats and noise.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1usize..300).prop_map(|(b, n)| vec![b; n]),
        (1usize..300).prop_map(|n| vec![0; n]),
        proptest::collection::vec(any::<u8>(), 1..100),
        (proptest::collection::vec(any::<u8>(), 1..20), 1usize..60).prop_map(|(v, n)| v.repeat(n)),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|p| p.concat())
}

/// A length whose nibble is 15 continues in bytes up to the first below 255.
fn extended(input: &mut impl Iterator<Item = usize>, nibble: usize) -> usize {
    let mut n = nibble;
    let mut more = if nibble == 15 { 255 } else { 0 };
    while more == 255 {
        more = input.next().unwrap();
        n += more;
    }
    n
}

/// Walks an LZ4 block: the start of its last match and the number of its last literals.
fn lz4_end(block: &[u8]) -> (Option<usize>, usize) {
    let mut input = block.iter().map(|&b| usize::from(b));
    let mut out = 0;
    let mut last_match = None;
    loop {
        let token = input.next().unwrap();
        let literals = extended(&mut input, token >> 4);
        input.by_ref().take(literals).for_each(drop);
        out += literals;
        if input.len() == 0 {
            return (last_match, literals);
        }
        let offset = input.next().unwrap() | input.next().unwrap() << 8;
        assert!(offset > 0 && offset <= out);
        last_match = Some(out);
        out += extended(&mut input, token & 15) + 4;
    }
}

proptest! {
    /// Old decoders copy in words and require these rules.
    #[test]
    fn lz4_blocks_keep_the_end_rules(plain in data()) {
        let mut stored = Vec::new();
        compress(Compression::Lz4, ZstdLevel::DEFAULT, &plain, &mut stored,
            plain.len() + 100).unwrap();
        let (last_match, literals) = lz4_end(&stored[4..]);
        if let Some(start) = last_match {
            prop_assert!(literals >= 5);
            prop_assert!(start + 12 <= plain.len());
        }
    }

    #[test]
    fn what_is_compressed_comes_back(plain in data(), spare in 0usize..200) {
        let mut stored = Vec::new();
        for kind in methods() {
            let limit = plain.len() + spare;
            if let Some(n) = compress(kind, ZstdLevel::DEFAULT, &plain, &mut stored, limit) {
                prop_assert!(n <= limit);
                prop_assert_eq!(n, stored.len());
                stored.resize(n + 100, 0);
                let mut out = vec![0xaa; plain.len()];
                prop_assert_eq!(decompress(kind, &stored, &mut out), Ok(()));
                prop_assert!(out == plain);
            }
        }
    }

    #[test]
    fn a_tight_limit_is_never_passed(plain in data(), limit in 0usize..600) {
        let mut stored = Vec::new();
        for kind in methods() {
            match compress(kind, ZstdLevel::DEFAULT, &plain, &mut stored, limit) {
                Some(n) => prop_assert!(n == stored.len() && n <= limit),
                None => prop_assert!(stored.is_empty()),
            }
        }
    }

    #[test]
    fn the_front_of_a_block_is_what_the_whole_begins_with(plain in data(),
        part in any::<proptest::sample::Index>()) {
        for kind in methods() {
            let mut stored = Vec::new();
            if compress(kind, ZstdLevel::DEFAULT, &plain, &mut stored,
                plain.len() * 2 + 100).is_none() {
                continue;
            }
            let mut front = vec![7; part.index(plain.len() + 1)];
            decompress_front(kind, &stored, plain.len(), &mut front, &mut Vec::new()).unwrap();
            prop_assert_eq!(&front[..], &plain[..front.len()]);
        }
    }

    #[test]
    fn hostile_fronts_never_panic(stored in proptest::collection::vec(any::<u8>(), 0..400),
        len in 0usize..2000) {
        let mut dst = vec![0; len];
        let _ = decompress_front(Compression::Lz4, &stored, len + 1, &mut dst, &mut Vec::new());
    }

    #[test]
    fn hostile_bytes_never_panic(stored in proptest::collection::vec(any::<u8>(), 0..400),
        len in 0usize..2000) {
        let mut out = vec![0; len];
        for kind in methods() {
            let _ = decompress(kind, &stored, &mut out);
        }
    }

    #[test]
    fn a_flipped_byte_never_panics(plain in data(), at in any::<proptest::sample::Index>(),
        value in any::<u8>()) {
        let mut stored = Vec::new();
        let mut out = vec![0; plain.len()];
        for kind in methods() {
            if compress(kind, ZstdLevel::DEFAULT, &plain, &mut stored,
                plain.len() + 100).is_some() && !stored.is_empty() {
                let at = at.index(stored.len());
                stored[at] = value;
                let _ = decompress(kind, &stored, &mut out);
            }
        }
    }
}

proptest! {
    #[test]
    fn what_passes_the_check_decompresses_and_nothing_else(
        plain in data(), flips in prop::collection::vec((any::<prop::sample::Index>(),
            any::<u8>()), 0..4), wrong in 0usize..3
    ) {
        let mut stored = Vec::new();
        if compress(Compression::Lz4, ZstdLevel::DEFAULT, &plain, &mut stored,
            plain.len() + 100).is_some() {
            for (at, value) in &flips {
                let at = at.index(stored.len());
                stored[at] = *value;
            }
            let len = plain.len() + wrong;
            let mut out = vec![0; len];
            let good = decompress(Compression::Lz4, &stored, &mut out).is_ok();
            prop_assert_eq!(check(Compression::Lz4, &stored, len, &mut Vec::new()).is_ok(), good);
        }
    }
}

/// A compressor that ran out of room inside a block would begin the next stream without a header.
#[test]
fn gzip_is_sound_after_what_did_not_fit() {
    use zuse_base::{Entropy, SeededPrng};
    let prng = SeededPrng::new(5);
    let mut noise = vec![0; 512 << 10];
    prng.fill(&mut noise);
    let mut text = vec![7; 12_800];
    prng.fill(&mut text[..90]);
    for level in 1..=9 {
        let kind = Compression::Gzip(level);
        let mut out = Vec::new();
        let failed = compress(kind, ZstdLevel::default(), &noise, &mut out, 448 << 10);
        assert_eq!(failed, None);
        compress(kind, ZstdLevel::default(), &text, &mut out, 4096).expect("it fits");
        let mut back = vec![1; text.len()];
        decompress(kind, &out, &mut back).expect("a sound stream");
        assert_eq!(back, text, "level {level}");
    }
}

#[test]
fn blocks_that_are_mostly_zeros_come_back_and_nothing_is_taken_for_one() {
    for (len, step) in [(16_384usize, 700), (131_072, 4096), (1 << 20, 99_999)] {
        let mut plain = vec![0u8; len];
        for at in (3..len).step_by(step) {
            plain[at] = at as u8 | 1;
        }
        let mut stored = Vec::new();
        compress(
            Compression::Lz4,
            ZstdLevel::DEFAULT,
            &plain,
            &mut stored,
            len,
        )
        .unwrap();
        assert!(stored.len() < len / 12, "it is mostly runs");
        let mut out = vec![7; len];
        decompress(Compression::Lz4, &stored, &mut out).unwrap();
        assert!(out == plain);
        // Neither a byte less nor a byte more.
        for wrong in [len - 1, len + 1] {
            let mut out = vec![0; wrong];
            let good = decompress(Compression::Lz4, &stored, &mut out).is_ok();
            assert!(!good);
            assert!(check(Compression::Lz4, &stored, wrong, &mut Vec::new()).is_err());
        }
        for cut in 4..stored.len() {
            let length = u32::try_from(cut - 4).unwrap().to_be_bytes();
            let mut short = stored[..cut].to_vec();
            short[..4].copy_from_slice(&length);
            assert!(decompress(Compression::Lz4, &short, &mut out).is_err());
        }
    }
}

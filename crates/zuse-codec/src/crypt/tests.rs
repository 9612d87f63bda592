//! Against the vectors of chapter 02b §13.

use sha2::{Digest, Sha256};

use super::*;
use crate::CodecError;

const SUITES: [Suite; 6] = [
    Suite::Aes128Ccm,
    Suite::Aes192Ccm,
    Suite::Aes256Ccm,
    Suite::Aes128Gcm,
    Suite::Aes192Gcm,
    Suite::Aes256Gcm,
];

fn from(first: u8, out: &mut [u8]) {
    for (i, b) in out.iter_mut().enumerate() {
        *b = first.wrapping_add(i as u8);
    }
}

fn bytes<const N: usize>(first: u8) -> [u8; N] {
    let mut out = [0; N];
    from(first, &mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    for (i, b) in out.iter_mut().enumerate() {
        *b = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex");
    }
    out
}

fn keys(suite: Suite) -> MasterKey {
    MasterKey::new(suite, &bytes(0), &bytes(0x40))
}

fn plain() -> Vec<u8> {
    (0..512).map(|i| i as u8).collect()
}

#[test]
fn data_blocks_are_as_openzfs_makes_them() {
    let want = [
        (
            "0ed873aa3b1b4a92d37a49db56d787e08b4131836b132b93be6fbfaec0a4cd16",
            "e72c6ac3902ce1bd1846abf800babf14",
        ),
        (
            "8296874a4c8e906cc75464f195a0f41bf0bdfb82425ef0c8edd81e984c1d0cf1",
            "96043de3c5aa010dc69b0e79381469ff",
        ),
        (
            "80ac1c0237f2d384c7820dfa4892a561f3ee80c6f80feb3929e42592070fa476",
            "eee7a3f25d843ba3ec0b6f6349319839",
        ),
        (
            "be0a83c2bc42e4114589e3d929242e5fd845919bce1b523d52d357783406d3a3",
            "f9939c4e619492da698439b08aa4a708",
        ),
        (
            "f670039a86ff0df04fffd567623c70fe5dc78a07fa8837ca360ae5e988817637",
            "9d9db8f0f4cf1bb3b442e10964e82eb3",
        ),
        (
            "914274a334c310f9ab885c0c9a86322987c0fe9763af40a2c650173d64858683",
            "7b00ae4294d2bbbd788544d99cdca737",
        ),
    ];
    for (suite, (sum, mac)) in SUITES.into_iter().zip(want) {
        let cipher = keys(suite).block_cipher(&bytes(0xa0));
        let mut message = plain();
        let tag = cipher.seal(&bytes(0xb0), &[], &mut message).expect("seal");
        assert_eq!(hex(&Sha256::digest(&message)), sum, "{suite:?}");
        assert_eq!(hex(&tag), mac, "{suite:?}");
        cipher
            .open(&bytes(0xb0), &[], &mut message, &tag)
            .expect("open");
        assert_eq!(message, plain(), "{suite:?}");
    }
}

#[test]
fn both_engines_agree_on_every_length() {
    for suite in SUITES {
        let key: [u8; 32] = bytes(7);
        let key = &key[..suite.key_len()];
        let a = BlockCipher::new(suite, key).expect("key");
        let b = BlockCipher::portable(suite, key).expect("key");
        for len in [0, 1, 15, 16, 17, 255, 256, 512, 4095, 131_072] {
            let aad = vec![3; len % 100];
            let mut x: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let mut y = x.clone();
            let tag = a.seal(&bytes(1), &aad, &mut x).expect("seal");
            assert_eq!(tag, b.seal(&bytes(1), &aad, &mut y).expect("seal"));
            assert_eq!(x, y, "{suite:?} {len}");
            b.open(&bytes(1), &aad, &mut x, &tag).expect("open");
            a.open(&bytes(1), &aad, &mut y, &tag).expect("open");
            assert_eq!(x, y);
        }
    }
}

#[test]
fn a_changed_bit_anywhere_fails() {
    for suite in SUITES {
        let cipher = keys(suite).block_cipher(&bytes(0xa0));
        let mut good = plain();
        let tag = cipher.seal(&bytes(0xb0), b"aad", &mut good).expect("seal");
        let fails = |iv: BlockIv, aad: &[u8], mut message: Vec<u8>, tag: BlockMac| {
            cipher.open(&iv, aad, &mut message, &tag) == Err(CodecError::Authentication)
        };
        for at in [0, 100, 511] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(fails(bytes(0xb0), b"aad", bad, tag));
        }
        let mut bad = tag;
        bad[15] ^= 0x80;
        assert!(fails(bytes(0xb0), b"aad", good.clone(), bad));
        assert!(fails(bytes(0xb1), b"aad", good.clone(), tag));
        assert!(fails(bytes(0xb0), b"aae", good.clone(), tag));
    }
}

#[test]
fn passphrases_become_the_wrapping_keys_that_they_should() {
    let first = passphrase(b"zuse-passphrase", 0x1122_3344_5566_7788, 100_000);
    assert_eq!(
        hex(&*first_bytes(&first)),
        "08e673996c79830416b1443fd895fc7670d03ee2a0766e756187658061aab4a7"
    );
    let second = passphrase(b"password\0more", 3_894_760_431_309_898_040, 350_000);
    assert_eq!(
        hex(&*first_bytes(&second)),
        "40f7cd4fc262d499f0dfedd0e72ed29af2299bdaf181430868219f943a7fcbed"
    );
}

fn first_bytes(key: &WrappingKey) -> zeroize::Zeroizing<[u8; 32]> {
    key.bytes_for_tests()
}

#[test]
fn hexadecimal_and_raw_keys_are_checked() {
    let raw: [u8; 32] = bytes(0xe0);
    let digits = hex(&raw).to_uppercase();
    let a = WrappingKey::from_raw(&raw).expect("raw");
    let b = WrappingKey::from_hex(digits.as_bytes()).expect("hex");
    assert_eq!(*first_bytes(&a), *first_bytes(&b));
    assert!(WrappingKey::from_raw(&raw[1..]).is_err());
    assert!(WrappingKey::from_hex(&digits.as_bytes()[1..]).is_err());
    assert!(WrappingKey::from_hex(digits.replace('E', "x").as_bytes()).is_err());
}

#[test]
fn wrapped_keys_are_as_openzfs_makes_them() {
    let wrapping = WrappingKey::from_raw(&bytes::<32>(0x80)).expect("raw");
    let guid = 0x0123_4567_89ab_cdef;
    let want = [
        (Suite::Aes256Gcm, 1, "2aec1dd59dbb4cfd4828b00b1f911172"),
        (Suite::Aes256Gcm, 0, "3856f16c68072af96793562004c584bd"),
        (Suite::Aes256Ccm, 1, "e5d4911af575d414dbd6e100c9e20981"),
        (Suite::Aes256Ccm, 0, "f072d257491ce170b4a08d6ace744a14"),
        (Suite::Aes128Ccm, 1, "abee0977db071de3278f1f88534a8f12"),
        (Suite::Aes128Gcm, 1, "f3ed3eaba97c249103ac29229a95fe9f"),
    ];
    for (suite, version, tag) in want {
        let key = keys(suite);
        let wrapped = key
            .wrap(&wrapping, guid, version, bytes(0xc0))
            .expect("wrap");
        assert_eq!(hex(&wrapped.mac), tag, "{suite:?} version {version}");
        let back = MasterKey::unwrap(&wrapping, suite, guid, version, &wrapped).expect("unwrap");
        assert_eq!(
            back.hmac().block_mac(b"x"),
            key.hmac().block_mac(b"x"),
            "{suite:?}"
        );
        assert!(MasterKey::unwrap(&wrapping, suite, guid + 1, version, &wrapped).is_err());
        let other = WrappingKey::from_raw(&bytes::<32>(0x81)).expect("raw");
        assert!(MasterKey::unwrap(&other, suite, guid, version, &wrapped).is_err());
    }
}

#[test]
fn keys_of_a_real_pool_unwrap_and_open_its_blocks() {
    let wrapping = passphrase(b"password", 3_894_760_431_309_898_040, 350_000);
    let wrapped = WrappedKey {
        iv: unhex("297c9adb387bcb1982bd80ef"),
        mac: unhex("d022f87f2128d1911b62a5b326e3a0ea"),
        master: unhex("a3fa4ced67d46f123ae409f3a6560aad85e948ab110f5b8236587687ce331c87"),
        hmac: unhex(
            "b411e8a80b594f07a59d06fc533591649cbb96d2a4facd02df9c5d8924c9822aeea94c0dfd6488f61f578fbcde1ade1b5768459afaba405d6cb2d9aaef13dd02",
        ),
    };
    let key = MasterKey::unwrap(
        &wrapping,
        Suite::Aes256Ccm,
        18_286_101_957_978_900_457,
        1,
        &wrapped,
    )
    .expect("unwrap");
    // An empty microzap, encrypted again as OpenZFS had it.
    let mut block = vec![0u8; 512];
    block[..16].copy_from_slice(&unhex::<16>("03000000000000805d1f700000000000"));
    let cipher = key.block_cipher(&unhex("87a4d2ac8feb8350"));
    let tag = cipher
        .seal(&unhex("142d363fa1ef994844c65a62"), &[], &mut block)
        .expect("seal");
    assert_eq!(hex(&tag), "036f28fde20def3fa7258b9776a832dc");
    assert_eq!(hex(&block[..16]), "625da0a0f894198dfc1b602d2fbd24c3");
}

#[test]
fn macs_come_from_the_hmac_key() {
    let key = keys(Suite::Aes256Gcm);
    assert_eq!(
        hex(&key.hmac().block_mac(&plain())),
        "f4c97895fe0d58ba21417d1d1162112c"
    );
    assert_eq!(
        hex(&plain_mac([&[0u8; 1024][..]])),
        "8efb4f73c5655351c444eb109230c556"
    );
}

#[test]
fn keys_do_not_show_themselves() {
    let wrapping = WrappingKey::from_raw(&[0x61; 32]).expect("raw");
    let shown = format!("{wrapping:?} {:?}", keys(Suite::Aes128Gcm));
    assert!(!shown.contains("61") && !shown.contains("97"), "{shown}");
}

fn passphrase(text: &[u8], salt: u64, rounds: u32) -> WrappingKey {
    WrappingKey::from_passphrase(text, salt, rounds, &|| true).expect("it may go on")
}

#[test]
fn rounds_are_those_of_the_library_and_end_when_nobody_waits() {
    for (text, salt, rounds) in [
        (&b"password1"[..], 7u64, 1u32),
        (b"", 0, 2),
        (&[b'x'; 100], u64::MAX, 8193),
    ] {
        let mut wanted = [0; 32];
        pbkdf2::pbkdf2_hmac::<sha1::Sha1>(text, &salt.to_le_bytes(), rounds, &mut wanted);
        assert_eq!(*passphrase(text, salt, rounds).bytes_for_tests(), wanted);
    }
    let asked = std::cell::Cell::new(0);
    let twice = || {
        asked.set(asked.get() + 1);
        asked.get() < 3
    };
    let none = WrappingKey::from_passphrase(b"password1", 7, u32::MAX, &twice);
    assert!(none.is_none());
    assert_eq!(asked.get(), 3);
}

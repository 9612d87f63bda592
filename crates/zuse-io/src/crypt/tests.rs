//! Against the vectors of chapter 02b §13.

use sha2::{Digest, Sha256};
use zuse_base::SeededPrng;
use zuse_format::crypt::{Parts, push_pointer};
use zuse_format::field::{put_u16, put_u64};

use super::*;

fn bytes<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|i| first.wrapping_add(i as u8))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn key(suite: Suite, version: u64) -> DatasetKey {
    let master = MasterKey::new(suite, &bytes(0), &bytes(0x40));
    DatasetKey::new(master, version, Arc::new(SeededPrng::new(1)))
}

fn pointer(words: &[(usize, u64)]) -> BlockPointer {
    let mut bp = BlockPointer::default();
    for (i, w) in words {
        bp.words[*i] = *w;
    }
    bp
}

fn put(block: &mut [u8], at: usize, bp: &BlockPointer) {
    bp.write_le(&mut block[at..at + 128]);
}

const REST: [(usize, u64); 5] = [(1, 0x800), (10, 0x64), (11, 1), (12, 0x1111), (13, 0x2222)];

fn with_rest(mut words: Vec<(usize, u64)>) -> BlockPointer {
    words.extend(REST.iter().filter(|(i, _)| *i != 11));
    if !words.iter().any(|(i, _)| *i == 11) {
        words.push((11, 1));
    }
    pointer(&words)
}

fn data_pointer() -> BlockPointer {
    with_rest(vec![
        (0, 8),
        (6, 0xa013_070f_0007_00ff),
        (14, 0x3333),
        (15, 0x3334),
    ])
}

#[test]
fn indirect_blocks_have_the_macs_that_openzfs_gives_them() {
    let mut block = vec![0; 4096];
    put(&mut block, 0, &data_pointer());
    put(
        &mut block,
        128,
        &pointer(&[(6, 0x0013_0000_0000_00ff), (10, 0x4d)]),
    );
    put(
        &mut block,
        256,
        &with_rest(vec![
            (0, 0x100),
            (6, 0xe013_0702_00ff_00ff),
            (14, 0x5555),
            (15, 0x5556),
        ]),
    );
    assert_eq!(
        hex(&indirect_mac(&block)),
        "0c0046901834bdb3ea8a943ee7c6c5d7"
    );
    let mut block = vec![0; 4096];
    put(
        &mut block,
        0,
        &with_rest(vec![
            (0, 2),
            (6, 0xa113_070f_0001_00ff),
            (14, 0x7777),
            (15, 0x7778),
        ]),
    );
    assert_eq!(
        hex(&indirect_mac(&block)),
        "ee0651cb0089d89f3e6418c9e4ed9173"
    );
    assert_eq!(
        hex(&indirect_mac(&[0; 4096])),
        "8efb4f73c5655351c444eb109230c556"
    );
    // What MACs leave out: addresses, births, checksums.
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let mut moved = data_pointer();
    moved.words[0] = 99;
    moved.words[12] = 98;
    push_pointer(&mut one, &data_pointer(), MacVersion::V1);
    push_pointer(&mut other, &moved, MacVersion::V1);
    assert_eq!(one, other);
}

/// Type, indirect shift, levels, pointers, bonus type, flags, block size, bonus length, extra
/// slots, used.
fn dnode(
    block: &mut [u8],
    slot: usize,
    head: [u8; 5],
    flags: u8,
    sectors: u16,
    bonus: u16,
    used: u64,
) {
    let d = &mut block[slot * 512..];
    d[..5].copy_from_slice(&head);
    d[7] = flags;
    put_u16(d, 8, sectors);
    put_u16(d, 10, bonus);
    put_u64(d, 24, used);
}

fn dnodes() -> Vec<u8> {
    let mut block = vec![0; 16384];
    dnode(&mut block, 1, [19, 17, 1, 1, 44], 0x0b, 256, 168, 4096);
    put(&mut block, 512 + 64, &data_pointer());
    for j in 0..168 {
        block[512 + 192 + j] = 0x10 + j as u8;
    }
    dnode(&mut block, 2, [21, 17, 1, 3, 0], 0x0b, 1, 0, 512);
    put(
        &mut block,
        1024 + 64,
        &with_rest(vec![
            (0, 1),
            (6, 0xa015_0702_0000_0000),
            (14, 0x9999),
            (15, 0x999a),
        ]),
    );
    dnode(&mut block, 3, [20, 17, 1, 1, 44], 0x0f, 1, 704, 0);
    block[1536 + 12] = 1;
    for j in 0..704 {
        block[1536 + 192 + j] = j as u8;
    }
    put(
        &mut block,
        1536 + 1024 - 128,
        &with_rest(vec![
            (0, 1),
            (6, 0xa02c_0702_0000_0000),
            (14, 0xbbbb),
            (15, 0xbbbc),
        ]),
    );
    block
}

#[test]
fn blocks_of_dnodes_are_taken_apart_and_sealed_as_openzfs_does() {
    let block = dnodes();
    let parts = dnode_block(&block, ByteOrder::Little, MacVersion::V1).expect("dnodes");
    assert_eq!(parts.ranges, [704..1024, 1728..2432]);
    assert_eq!(parts.aad.len(), 14784);
    assert_eq!(
        hex(&Sha256::digest(&parts.aad)),
        "96d68077ed545d3eb6f32d8d8a48e5b5c239457ce93a1e1838db37feb4aae493"
    );
    let old = dnode_block(&block, ByteOrder::Little, MacVersion::V0).expect("dnodes");
    assert_eq!(old.aad.len(), 14736);
    assert_eq!(
        hex(&Sha256::digest(&old.aad)),
        "8a0f7c1b19cc9b3f3ba538ce6489e990cd64b085c82ee3a1f8098ade2b881884"
    );
    for (suite, parts, mac) in [
        (Suite::Aes256Gcm, &parts, "69c0c9b9b896c6623b5b65b3fac80a5f"),
        (Suite::Aes256Gcm, &old, "53c11c85b14730ca63cc9c15897c18b2"),
        (Suite::Aes256Ccm, &parts, "97eed35bd8ab0e7ebd509c0c937d19aa"),
        (Suite::Aes256Ccm, &old, "c60fb51c263db12184a423bdddd47935"),
    ] {
        let key = key(suite, 1);
        let mut message = parts.gather(&block);
        let tag = key
            .cipher(&bytes(0xa0))
            .seal(&bytes(0xb0), &parts.aad, &mut message)
            .expect("seal");
        assert_eq!(hex(&tag), mac);
        let mut stored = block.clone();
        parts.scatter(&message, &mut stored);
        if mac.starts_with("69c0") {
            assert_eq!(
                hex(&Sha256::digest(&stored)),
                "55df18456a1442e84e16e7ab6208248125936dc605e672887904eb1d9bd592ec"
            );
        }
    }
}

#[test]
fn a_dnode_that_leaves_its_block_is_an_error() {
    let mut block = vec![0; 1024];
    dnode(&mut block, 1, [19, 17, 1, 1, 44], 0, 1, 168, 0);
    block[512 + 12] = 5;
    assert!(dnode_block(&block, ByteOrder::Little, MacVersion::V1).is_err());
    block[512 + 12] = 0;
    block[512 + 3] = 4;
    assert!(dnode_block(&block, ByteOrder::Little, MacVersion::V1).is_err());
    assert!(dnode_block(&block[..700], ByteOrder::Little, MacVersion::V1).is_err());
}

fn objset() -> Vec<u8> {
    let mut block = vec![0; 4096];
    dnode(&mut block, 0, [10, 17, 6, 3, 0], 1, 32, 0, 0x3400);
    put_u64(&mut block, 16, 1);
    put(
        &mut block,
        64,
        &with_rest(vec![
            (0, 2),
            (6, 0xa50a_070f_0001_00ff),
            (14, 0xdddd),
            (15, 0xddde),
        ]),
    );
    put_u64(&mut block, 704, 2);
    put_u64(&mut block, 712, 7);
    for (k, slot) in [(1u64, 2), (2, 3), (3, 4)] {
        dnode(&mut block, slot, [39, 17, 1, 3, 0], 1, 1, 0, 512);
        put(
            &mut block,
            slot * 512 + 64,
            &with_rest(vec![
                (0, 1),
                (6, 0xa027_0702_0000_0000),
                (14, 0x1000 * k),
                (15, 0x1000 * k + 1),
            ]),
        );
    }
    block
}

#[test]
fn object_sets_are_signed_as_openzfs_signs_them() {
    for (version, portable, local) in [
        (
            1,
            "cde239194d97f498b1e26006cea62ad517dc5e5dc44699fe6bb9dad94bebe73c",
            "9aff2b1c27cf3df42c72deacf94e261a81130317e7482b8067f8da9f2ea64724",
        ),
        (
            0,
            "44d3431b15a504ea588db00bce894684044a684ed22423f6e34c150d8dce452e",
            "64c45269cdbaa5d762ef56dc14f72b7a2ed541466d24a4836d22931a2c8d36d4",
        ),
    ] {
        let key = key(Suite::Aes256Gcm, version);
        let mut block = objset();
        key.sign_objset(&mut block).expect("sign");
        assert_eq!(hex(&block[720..752]), portable);
        assert_eq!(hex(&block[752..784]), local);
        key.check_objset(&block, &"x").expect("signed");
        for at in [0, 16, 64 + 112, 704, 720, 752, 1024, 1024 + 64 + 112] {
            let mut bad = block.clone();
            bad[at] ^= 1;
            assert!(key.check_objset(&bad, &"x").is_err(), "byte {at}");
        }
        // Without complete accounting there is no local MAC, and any bytes in its place are
        // ignored.
        put_u64(&mut block, 712, 6);
        key.check_objset(&block, &"x").expect("unsigned accounting");
        key.sign_objset(&mut block).expect("sign");
        assert_eq!(hex(&block[720..752]), portable);
        assert_eq!(block[752..784], [0; 32]);
    }
}

#[test]
fn log_blocks_are_taken_apart_and_sealed_as_openzfs_does() {
    let mut block = vec![0; 4096];
    put(
        &mut block,
        8,
        &pointer(&[
            (0, 8),
            (1, 0x800),
            (6, 0xa009_0702_0007_0007),
            (10, 0x64),
            (11, 1),
            (12, 0x1111),
            (13, 0x2222),
            (15, 1),
        ]),
    );
    put_u64(&mut block, 136, 496);
    put_u64(&mut block, 144, zuse_codec::TRAILER_MAGIC);
    for (at, words) in [
        (184, [9u64, 256, 55, 9, 8, 4096, 64]),
        (440, [10, 56, 55, 10, 0, 0, 0]),
    ] {
        for (i, w) in words.into_iter().enumerate() {
            put_u64(&mut block, at + 8 * i, w);
        }
    }
    for i in 0..64 {
        block[376 + i] = i as u8;
    }
    for j in 32..56 {
        block[440 + j] = j as u8;
    }
    let Parts { aad, ranges } = zil_block(&block, ByteOrder::Little).expect("log block");
    assert_eq!(aad.len(), 336);
    assert_eq!(ranges, [216..248, 376..440, 472..496]);
    let key = key(Suite::Aes256Gcm, 1);
    let mut bp = pointer(&[(6, 0xa009_0702_0007_0007)]);
    bp.set_salt_iv(&bytes(0xa0), &bytes(0xb0));
    let clear = block.clone();
    let mac = key.seal_zil(&bp, &mut block).expect("seal");
    assert_eq!(hex(&mac), "545128673162f5c31e8577026a72b85f");
    assert_eq!(
        hex(&Sha256::digest(&block)),
        "918244673db9f1cbf1cd884a15873697e6078d0e75e5bf80be39822bc69a3f8d"
    );
    let sealed = block.clone();
    key.open_zil(&bp, &mac, &mut block, ByteOrder::Little, &"log")
        .expect("open");
    assert_eq!(block, clear);
    for at in [0, 136, 200, 216, 300, 495] {
        let mut bad = sealed.clone();
        bad[at] ^= 1;
        assert!(
            key.open_zil(&bp, &mac, &mut bad, ByteOrder::Little, &"log")
                .is_err(),
            "byte {at}"
        );
    }
}

#[test]
fn no_two_blocks_get_the_same_iv() {
    let key = key(Suite::Aes256Gcm, 1);
    let mut seen = std::collections::BTreeSet::new();
    let (salt, _) = key.choose_salt_iv();
    for _ in 0..1000 {
        let (again, iv) = key.choose_salt_iv();
        assert_eq!(again, salt);
        assert!(seen.insert(iv));
    }
    key.writer.lock().as_mut().expect("one").left = 0;
    assert_ne!(key.choose_salt_iv().0, salt, "the salt is replaced in time");
}

#[test]
#[should_panic(expected = "a salt is used too often")]
fn a_salt_that_is_used_too_often_is_noticed() {
    let key = key(Suite::Aes256Gcm, 1);
    key.choose_salt_iv();
    key.writer.lock().as_mut().expect("one").left = SALT_USES + 1;
    key.choose_salt_iv();
}

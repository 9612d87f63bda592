//! Round trips of leaves through the decoder of lz4, the rules for the end of a block, and what leaves come to.

use proptest::prelude::*;

use super::super::rows::tests::{back, comes_back, keeps};
use super::{CHUNK, ENTRY, PIECE, alike, compress_chunks};
use crate::compress::{Compression, ZstdLevel, compress};

/// A leaf of these names, its entries in a row, each with a value of one word; what is left is free.
fn leaf(size: usize, names: &[String]) -> (Vec<u8>, usize) {
    let first = 48 + size / 16;
    let mut b = vec![0; size];
    b[7] = 0x80;
    b[48..first].fill(0xff);
    let chunks = (size - first) / CHUNK;
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        let place = first + at * CHUNK;
        at += 1;
        b[place..place + bytes.len()].copy_from_slice(bytes);
    };
    for (i, name) in names.iter().enumerate() {
        let pieces: Vec<&[u8]> = name.as_bytes().chunks(21).collect();
        let mut entry = [0; CHUNK];
        entry[..4].copy_from_slice(&[ENTRY, 8, 0xff, 0xff]);
        entry[6] = name.len() as u8;
        entry[10] = 1;
        let hash = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        entry[16..].copy_from_slice(&hash.to_le_bytes());
        put(&entry);
        for (n, piece) in pieces.iter().enumerate() {
            let mut chunk = [0; CHUNK];
            chunk[0] = PIECE;
            chunk[1..=piece.len()].copy_from_slice(piece);
            chunk[22..].fill(if n + 1 == pieces.len() { 0xff } else { n as u8 });
            put(&chunk);
        }
        let mut value = [0; CHUNK];
        value[..2].copy_from_slice(&[PIECE, 0x80]);
        value[6..9].copy_from_slice(&(i as u32 + 1000).to_be_bytes()[1..]);
        value[22..].fill(0xff);
        put(&value);
    }
    for i in at..chunks {
        let place = first + i * CHUNK;
        b[place] = 253;
        b[place + 22..place + CHUNK].copy_from_slice(&(i as u16 + 1).to_le_bytes());
    }
    (b, first)
}

#[test]
fn a_leaf_of_like_names_becomes_as_short_as_by_any_other_search() {
    let names: Vec<String> = (0..140)
        .map(|i| format!("file-{:07}", i * 3571 % 1_000_000))
        .collect();
    let (plain, first) = leaf(16 << 10, &names);
    let (mut stored, mut other) = (Vec::new(), Vec::new());
    let n = compress_chunks(&plain, first, &mut stored, 8 << 10).expect("half of it");
    assert_eq!(back(&stored, plain.len()), plain);
    let level = ZstdLevel::DEFAULT;
    let m = compress(Compression::Lz4, level, &plain, &mut other, 8 << 10).expect("half of it");
    assert!(n <= m + m / 20, "{n} bytes, {m} by the other search");
}

/// Each piece of a name is looked for at the same piece of the one before, though the values stand between them.
#[test]
fn the_pieces_of_long_names_are_told_apart() {
    let names: Vec<String> = (0..100)
        .map(|i| format!("a name of a good deal more than {i:03} letters, of three pieces"))
        .collect();
    let (plain, first) = leaf(16 << 10, &names);
    let mut stored = Vec::new();
    let n = compress_chunks(&plain, first, &mut stored, 8 << 10).expect("half of it");
    assert_eq!(back(&stored, plain.len()), plain);
    assert!(n < 40 * names.len() + 1500, "{n}");
}

#[test]
fn what_has_nothing_in_common_does_not_fit() {
    let plain: Vec<u8> = (0..4096u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut stored = vec![1, 2, 3];
    assert_eq!(compress_chunks(&plain, 304, &mut stored, 2048), None);
    assert!(stored.is_empty());
    let long = vec![0; 64 << 10];
    assert_eq!(compress_chunks(&long, 304, &mut stored, 64 << 10), None);
}

/// Chunks that begin at the end, or beyond: the head is all there is, and it is one run.
#[test]
fn a_head_alone_ends_with_literals_too() {
    for len in 600..680 {
        let head = vec![0xff; len];
        for first in [100, len - 1, len, 1000] {
            comes_back(&head, &|to, most| compress_chunks(&head, first, to, most));
        }
    }
}

#[test]
fn each_byte_has_its_bit() {
    let a: [u8; 32] = std::array::from_fn(|i| i as u8);
    assert_eq!(alike(&a, &a), u32::MAX);
    for i in 0..32 {
        let mut b = a;
        b[i] ^= 0x80;
        assert_eq!(alike(&a, &b), !(1 << i));
    }
}

/// Anything that has chunks of all kinds in any order, some like one another.
fn table() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let kind = prop::sample::select(vec![ENTRY, PIECE, PIECE, 253, 7]);
    let chunk = (kind, 0usize..6, any::<u64>(), any::<bool>());
    let chunks = prop::collection::vec(chunk, 0..200);
    let head = prop::collection::vec(prop::sample::select(vec![0u8, 0xff, 3]), 1..200);
    (head, chunks, 0usize..30).prop_map(|(head, chunks, rest)| {
        let first = head.len();
        let mut out = head;
        for (kind, changed, value, ends) in chunks {
            let mut chunk = [0u8; CHUNK];
            chunk[0] = kind;
            chunk[4 * changed..4 * changed + 4].copy_from_slice(&value.to_le_bytes()[..4]);
            if ends {
                chunk[22..].fill(0xff);
            }
            out.extend_from_slice(&chunk);
        }
        out.resize(out.len() + rest, 0);
        (out, first)
    })
}

proptest! {
    #[test]
    fn tables_come_back((plain, first) in table()) {
        comes_back(&plain, &|to, most| compress_chunks(&plain, first, to, most));
    }

    /// Where the chunks begin is said by bytes from a disk.
    #[test]
    fn any_bytes_come_back(plain in prop::collection::vec(0u8..4, 0..900), first in 1usize..1000) {
        comes_back(&plain, &|to, most| compress_chunks(&plain, first, to, most));
    }

    #[test]
    fn a_tight_limit_is_kept((plain, first) in table(), limit in 0usize..1500) {
        keeps(&plain, limit, &|to, most| compress_chunks(&plain, first, to, most));
    }
}

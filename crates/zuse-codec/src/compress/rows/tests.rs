//! Round trips of rows through the decoder of lz4, the rules for the end of a block, and what small micro ZAPs come to.

use proptest::prelude::*;

use super::compress_rows;
use crate::compress::{Compression, ZstdLevel, compress, decompress};

/// A micro ZAP of one row of slots.
fn micro_zap(names: &[&str]) -> Vec<u8> {
    let mut b = vec![0; 512];
    b[..8].copy_from_slice(&0x8000_0000_0000_0003u64.to_le_bytes());
    b[8..16].copy_from_slice(&0x9e37_79b9_7f4a_7c15u64.to_le_bytes());
    for (i, name) in names.iter().enumerate() {
        let slot = &mut b[64 * (i + 1)..64 * (i + 2)];
        slot[..8].copy_from_slice(&(0x8000_0000_0000_0100 + i as u64).to_le_bytes());
        slot[14..14 + name.len()].copy_from_slice(name.as_bytes());
    }
    b
}

pub(in super::super) fn back(stored: &[u8], len: usize) -> Vec<u8> {
    let mut sector = stored.to_vec();
    sector.resize(stored.len() + 100, 0);
    let mut out = vec![0xaa; len];
    decompress(Compression::Lz4, &sector, &mut out).expect("a block as any other");
    out
}

#[test]
fn a_micro_zap_of_a_few_names_fits_into_a_pointer() {
    let directories: [&[&str]; 5] = [
        &["a", "b", "c", "d", "e", "f", "g"],
        &["file-1", "file-2", "file-3", "file-4", "file-5", "file-6"],
        &["Makefile", "main.c", "README"],
        &["__init__.py", "core.py", "util.py", "tests"],
        &[],
    ];
    let mut stored = Vec::new();
    for names in directories {
        let block = micro_zap(names);
        let n = compress_rows(&block, 64, &mut stored, 112);
        assert_eq!(n, Some(stored.len()), "{names:?}");
        assert_eq!(back(&stored, block.len()), block);
    }
}

#[test]
fn rows_are_found_where_the_latest_like_bytes_are_not() {
    let block = micro_zap(&[
        "file-001", "file-002", "file-003", "file-004", "file-005", "file-006", "file-007",
    ]);
    let mut stored = Vec::new();
    let rows = compress_rows(&block, 64, &mut stored, 512);
    let lz4 = Compression::Lz4;
    let anywhere = compress(lz4, ZstdLevel::DEFAULT, &block, &mut stored, 512);
    assert!(rows.expect("fits") <= 112 && anywhere.expect("fits") > 112);
}

#[test]
fn what_has_nothing_in_common_does_not_fit() {
    let block: Vec<u8> = (0..512u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut stored = vec![1, 2, 3];
    assert_eq!(compress_rows(&block, 64, &mut stored, 112), None);
    assert!(stored.is_empty());
}

/// Rows of one width, each like the one before but for some bytes.
fn rows() -> impl Strategy<Value = (Vec<u8>, u16)> {
    let change = (0usize..200, any::<u8>(), 0usize..40);
    let changes = prop::collection::vec(change, 0..60);
    (1usize..150, 0usize..3000, changes).prop_map(|(width, len, changes)| {
        let mut row = vec![0u8; width];
        let mut changes = changes.into_iter();
        let mut out = Vec::new();
        while out.len() < len {
            for (at, value, count) in changes.by_ref().take(3) {
                let from = at % width;
                let to = (from + count).min(width);
                let plus = |b: &mut u8| *b = b.wrapping_mul(31).wrapping_add(value);
                row[from..to].iter_mut().for_each(plus);
            }
            out.extend_from_slice(&row);
        }
        out.truncate(len);
        (out, width as u16)
    })
}

/// Walks a block: where its last match begins, and how many literals it ends with.
fn end_of(block: &[u8]) -> (Option<usize>, usize) {
    let mut input = block.iter().map(|&b| usize::from(b));
    let (mut out, mut last) = (0, None);
    loop {
        let token = input.next().expect("a token");
        let literals = extended(&mut input, token >> 4);
        input.by_ref().take(literals).for_each(drop);
        out += literals;
        if input.len() == 0 {
            return (last, literals);
        }
        let back = input.next().expect("low") | input.next().expect("high") << 8;
        assert!(back > 0 && back <= out);
        last = Some(out);
        out += extended(&mut input, token & 15) + 4;
    }
}

/// A length whose four bits are all set goes on in bytes.
fn extended(input: &mut impl Iterator<Item = usize>, bits: usize) -> usize {
    let mut more = if bits == 15 { 255 } else { 0 };
    let mut length = bits;
    while more == 255 {
        more = input.next().expect("a length");
        length += more;
    }
    length
}

/// Compresses with so much room at the most.
pub(in super::super) type Squeeze<'a> = &'a dyn Fn(&mut Vec<u8>, usize) -> Option<usize>;

/// What is compressed comes back, and ends as old decoders, which copy in words, need it: with literals.
pub(in super::super) fn comes_back(plain: &[u8], squeeze: Squeeze<'_>) {
    let mut stored = Vec::new();
    let n = squeeze(&mut stored, 2 * plain.len() + 64);
    assert_eq!(n, Some(stored.len()));
    assert!(back(&stored, plain.len()) == plain);
    let (last, literals) = end_of(&stored[4..]);
    if let Some(start) = last {
        assert!(literals >= 5);
        assert!(start + 12 <= plain.len());
    }
}

/// A limit is kept, and what keeps it is not refused.
pub(in super::super) fn keeps(plain: &[u8], limit: usize, squeeze: Squeeze<'_>) {
    let mut stored = Vec::new();
    match squeeze(&mut stored, limit) {
        Some(n) => {
            assert!(n == stored.len() && n <= limit);
            assert!(back(&stored, plain.len()) == plain);
        }
        None => {
            assert!(stored.is_empty());
            assert!(squeeze(&mut stored, 2 * plain.len() + 64) > Some(limit));
        }
    }
}

proptest! {
    #[test]
    fn rows_come_back((plain, width) in rows()) {
        comes_back(&plain, &|to, most| compress_rows(&plain, width, to, most));
    }

    #[test]
    fn a_tight_limit_is_kept((plain, width) in rows(), limit in 0usize..700) {
        keeps(&plain, limit, &|to, most| compress_rows(&plain, width, to, most));
    }
}

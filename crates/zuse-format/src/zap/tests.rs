//! Vectors made by OpenZFS 2.4 code.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn a_micro_block_is_the_golden_one() {
    let mut block = vec![0xee; 512];
    micro::init(&mut block, 1, 0);
    for (i, (name, value)) in [
        ("alpha", 0x8000_0000_0000_0005u64),
        ("beta", 0x4000_0000_0000_0006),
        ("gamma", 0xa000_0000_0000_0007),
    ]
    .into_iter()
    .enumerate()
    {
        micro::set(
            micro::slot_mut(&mut block, i).unwrap(),
            name.as_bytes(),
            value,
            0,
        );
    }
    let mut want = vec![0; 512];
    want[..16].copy_from_slice(&hex("0300000000000080 0100000000000000"));
    want[0x40..0x58].copy_from_slice(&hex("0500000000000080 000000000000616c 7068610000000000"));
    want[0x80..0x98].copy_from_slice(&hex("0600000000000040 0000000000006265 7461000000000000"));
    want[0xc0..0xd8].copy_from_slice(&hex("07000000000000a0 0000000000006761 6d6d610000000000"));
    assert_eq!(block, want);
    assert_eq!(zap_kind(&block), Ok(ZapKind::Micro));
    assert_eq!(
        (
            micro::slot_count(&block),
            micro::salt(&block),
            micro::is_known(&block)
        ),
        (7, 1, true)
    );
    let slot = micro::slot(&block, 1).unwrap();
    assert_eq!(
        (micro::name(slot), micro::value(slot)),
        (&b"beta"[..], 0x4000_0000_0000_0006)
    );
    assert!(!micro::is_used(micro::slot(&block, 3).unwrap()) && micro::slot(&block, 7).is_none());
}

#[test]
fn a_fat_header_is_the_golden_one() {
    let header = FatHeader {
        table_shift: 10,
        free_block: 2,
        leaves: 1,
        entries: 6,
        salt: 1,
        ..FatHeader::default()
    };
    let mut block = vec![0; 16384];
    header.write_le(&mut block);
    (0..1024).for_each(|i| FatHeader::set_embedded_pointer(&mut block, i, 1));
    assert_eq!(block[..16], hex("0100000000000080 abb22af502000000"));
    assert_eq!(block[0x20..0x28], hex("0a00000000000000"));
    assert_eq!(
        block[0x38..0x58],
        hex("0200000000000000 0100000000000000 0600000000000000 0100000000000000")
    );
    assert_eq!((block[0x2000], block[0x3ff8]), (1, 1));
    assert_eq!(FatHeader::parse(&block), Ok(header));
    let broken = FatHeader {
        table_shift: 11,
        ..header
    };
    broken.write_le(&mut block);
    assert!(FatHeader::parse(&block).is_err());
    let external = FatHeader {
        table_shift: 13,
        table_blocks: 4,
        table_block: 4100,
        ..header
    };
    external.write_le(&mut block);
    assert_eq!(FatHeader::parse(&block), Ok(external));
}

#[test]
fn leaf_geometry_follows_the_block_size() {
    for (shift, buckets, chunks, at) in [
        (9, 16, 18, 0x50),
        (12, 128, 158, 0x130),
        (13, 256, 318, 0x230),
        (14, 512, 638, 0x430),
        (15, 1024, 1278, 0x830),
    ] {
        assert_eq!(
            (
                leaf::bucket_count(shift),
                leaf::chunk_count(shift),
                leaf::chunks_at(shift)
            ),
            (buckets, chunks, at)
        );
        assert_eq!(at + chunks * leaf::CHUNK_SIZE, 1 << shift);
    }
}

#[test]
fn leaf_chunks_are_the_golden_ones() {
    let mut block = vec![0; 16384];
    leaf::init(&mut block, 0, 0, 0);
    let entry = leaf::EntryChunk {
        value_size: 2,
        next: leaf::CHAIN_END,
        name_chunk: 1,
        name_len: 6,
        value_chunk: 2,
        value_len: 3,
        cd: 0,
        hash: 0x1575_a7d0_0000_0000,
    };
    entry.write_le(leaf::chunk_mut(&mut block, 0).unwrap());
    leaf::set_array(
        leaf::chunk_mut(&mut block, 1).unwrap(),
        b"u16x3\0",
        leaf::CHAIN_END,
    );
    assert_eq!(
        block[0x430..0x448],
        hex("fc02ffff01000600 0200030000000000 00000000d0a77515")
    );
    assert_eq!(
        block[0x448..0x460],
        hex("fb75313678330000 0000000000000000 000000000000ffff")
    );
    assert_eq!(
        leaf::EntryChunk::parse(leaf::chunk(&block, 0).unwrap()),
        Some(entry)
    );
    let (data, next) = leaf::array(leaf::chunk(&block, 1).unwrap()).unwrap();
    assert_eq!((&data[..6], next), (&b"u16x3\0"[..], leaf::CHAIN_END));
    assert_eq!(
        leaf::free_next(leaf::chunk(&block, 637).unwrap()),
        Some(leaf::CHAIN_END)
    );
    assert_eq!(leaf::free_next(leaf::chunk(&block, 2).unwrap()), Some(3));
    assert!(leaf::chunk(&block, 638).is_none());
    let header = leaf::LeafHeader::parse(&block).unwrap();
    assert_eq!(
        (header.nfree, header.freelist, header.nentries),
        (638, 0, 0)
    );
    block[28..30].copy_from_slice(&700u16.to_le_bytes());
    assert!(leaf::LeafHeader::parse(&block).is_err());
}

use super::*;

#[test]
fn the_four_labels_lie_where_the_chapter_says() {
    let size = 256 << 20;
    let offsets: Vec<u64> = (0..4).map(|l| label_offset(size, l) + CONFIG_AT).collect();
    assert_eq!(offsets, [0x4000, 0x44000, 0xff8_4000, 0xffc_4000]);
    assert_eq!(label_offset(size + 1000, 3), label_offset(size, 3));
    assert_eq!(leaf_asize(256 << 20), 263_716_864);
    assert_eq!(leaf_asize(64 << 20), 62_390_272);
}

#[test]
fn ring_slots_follow_the_sector_shift() {
    for (ashift, size, count) in [
        (9, 1024, 128),
        (10, 1024, 128),
        (11, 2048, 64),
        (12, 4096, 32),
        (16, 8192, 16),
    ] {
        assert_eq!((slot_size(ashift), slot_count(ashift)), (size, count));
    }
    for (txg, ashift, slot, at) in [
        (127, 9, 127, 0x3fc00),
        (1000, 9, 104, 0x3a000),
        (4, 12, 4, 0x24000),
    ] {
        assert_eq!(slot_for_txg(txg, ashift, false), slot);
        assert_eq!(slot_offset(slot, ashift), at);
    }
    assert_eq!(slot_for_txg(1000, 9, true), 111);
    assert_eq!(slot_for_txg(127, 12, true), 3);
    assert_eq!(
        (slot_for_txg(127, 16, false), slot_for_txg(1000, 16, false)),
        (15, 8)
    );
}

#[test]
fn a_trailer_is_read_in_the_order_it_was_written() {
    let mut block = vec![0; 1024];
    assert_eq!(Trailer::read(&block), None);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        Trailer::place_verifier(&mut block, Trailer::label_verifier(0x20000), order);
        assert_eq!(
            Trailer::read(&block),
            Some(Trailer {
                order,
                words: [0x20000, 0, 0, 0]
            })
        );
    }
    assert_eq!(Trailer::read(&block[..30]), None);
}

#[test]
fn a_configuration_too_large_for_its_block_is_refused() {
    let small = NvList::new().with("name", "tank");
    let block = encode_config(&small).unwrap();
    assert_eq!(block.len(), CONFIG_SIZE);
    assert_eq!(decode_config(&block).unwrap(), small);
    let large = NvList::new().with("comment", "x".repeat(CONFIG_SIZE));
    assert!(encode_config(&large).is_err());
}

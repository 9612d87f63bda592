use super::*;

#[test]
fn the_table_is_in_order_and_new_types_describe_themselves() {
    for (i, row) in OBJECT_TYPES.iter().enumerate() {
        assert_eq!(usize::from(row.number), i, "{}", row.name);
    }
    assert!(is_metadata(ZAP_METADATA) && !is_encrypted(ZAP_METADATA));
    assert_eq!(swap_class(ZAP_METADATA), Some(SwapClass::Zap));
    assert_eq!(swap_class(0xe3), Some(SwapClass::U64));
    assert!(is_encrypted(0xe3) && is_metadata(0xe3));
    assert!(!is_valid(54) && !is_valid(0x8a) && is_valid(53) && is_valid(0x89));
}

#[test]
fn a_big_endian_microzap_of_2009_becomes_little_endian() {
    let mut block = vec![0u8; 512];
    block[..8].copy_from_slice(&0x8000_0000_0000_0003u64.to_be_bytes());
    block[8..16].copy_from_slice(&0x137b_b14bu64.to_be_bytes());
    block[64..72].copy_from_slice(&4u64.to_be_bytes());
    block[72..76].copy_from_slice(&7u32.to_be_bytes());
    block[78..85].copy_from_slice(b"VERSION");
    swap_block(MASTER_NODE, 0, &mut block).unwrap();
    assert_eq!(crate::field::u64_at(&block, 8), 0x137b_b14b);
    assert_eq!(crate::field::u64_at(&block, 64), 4);
    assert_eq!(crate::field::u32_at(&block, 72), 7);
    assert_eq!(&block[78..85], b"VERSION");
}

#[test]
fn a_leaf_with_an_unknown_chunk_is_refused_and_a_good_one_swaps_by_fields() {
    let mut block = vec![0u8; 512];
    block[..8].copy_from_slice(&0x8000_0000_0000_0000u64.to_be_bytes());
    block[24..28].copy_from_slice(&0x02ab_1eafu32.to_be_bytes());
    block[28..30].copy_from_slice(&17u16.to_be_bytes());
    assert!(swap_block(ZAP_METADATA, 0, &mut block.clone()).is_err());
    for i in 0..18 {
        block[0x50 + 24 * i] = 253;
    }
    let entry = 0x50;
    block[entry] = 252;
    block[entry + 1] = 8;
    block[entry + 16..entry + 24].copy_from_slice(&0x1122_3344_5566_7788u64.to_be_bytes());
    swap_block(ZAP_METADATA, 0, &mut block).unwrap();
    assert_eq!(crate::field::u16_at(&block, 28), 17);
    assert_eq!(
        crate::field::u64_at(&block, entry + 16),
        0x1122_3344_5566_7788
    );
}

#[test]
fn acls_swap_entry_by_entry_in_three_sizes() {
    let mut acl = Vec::new();
    for (kind, flags, mask, who) in [
        (0u16, 0x1000u16, 0x1e_019fu32, None),
        (0, 0, 0x12_0089, Some(1000u64)),
    ] {
        acl.extend(kind.to_be_bytes());
        acl.extend(flags.to_be_bytes());
        acl.extend(mask.to_be_bytes());
        acl.extend(who.map(u64::to_be_bytes).into_iter().flatten());
    }
    swap_acl(&mut acl);
    assert_eq!(acl[..8], [0, 0, 0, 0x10, 0x9f, 1, 0x1e, 0]);
    assert_eq!(acl[16..24], 1000u64.to_le_bytes());
}

#[test]
fn hostile_blocks_never_panic_when_swapped() {
    for size in [0usize, 1, 7, 8, 63, 64, 512, 700, 1024, 2048, 4096] {
        for fill in [0u8, 1, 0x55, 0xff] {
            for class in 0..10 {
                let mut block = vec![fill; size];
                let _ = swap_block(0x80 | class, 0, &mut block);
                let _ = swap_block(0x80 | class, 1, &mut block);
                swap_bonus(0x80 | class, &mut block);
                swap_dnode(&mut block);
            }
        }
    }
}

//! Vectors from pools written by OpenZFS 2.4.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn an_object_with_an_embedded_block_reads_and_writes_back() {
    let mut raw = vec![0; 512];
    raw[..16].copy_from_slice(&hex("19110103c300000b0800100000000000"));
    let bonus: Vec<u8> = (0x40..0x50).collect();
    raw[0x1c0..0x1d0].copy_from_slice(&bonus);
    let dnode = DnodePhys::parse(&raw).unwrap().unwrap();
    assert_eq!(
        (
            dnode.object_type,
            dnode.indirect_shift,
            dnode.levels,
            dnode.nblkptr
        ),
        (25, 17, 1, 3)
    );
    assert_eq!(
        (dnode.bonus_type, dnode.flags, dnode.data_block_size()),
        (0xc3, 0xb, 4096)
    );
    assert_eq!(
        (dnode.bonus.as_slice(), dnode.slots(), dnode.max_block_id),
        (bonus.as_slice(), 1, 0)
    );
    assert_eq!(dnode.to_bytes(), raw);
}

#[test]
fn a_two_slot_dnode_needs_both_slots() {
    let mut raw = vec![0; 1024];
    raw[..16].copy_from_slice(&hex("19110103c300000b0200400001000000"));
    raw[25] = 4;
    let dnode = DnodePhys::parse(&raw).unwrap().unwrap();
    assert_eq!(
        (dnode.slots(), dnode.used_bytes(), dnode.bonus.len()),
        (2, 0x400, 64)
    );
    assert_eq!(dnode.to_bytes(), raw);
    assert!(DnodePhys::parse(&raw[..512]).is_err());
    assert_eq!(scan_block(&raw).count(), 1);
}

#[test]
fn a_spill_pointer_is_found_at_the_end() {
    let mut raw = vec![0; 512];
    raw[..32].copy_from_slice(&hex(
        "191101012c00000f01000000000000000000000000000000 0008000000000000",
    ));
    raw[0x180..0x1a0].copy_from_slice(&hex(
        "0200000000000000 5e00000000000000 0200000000000000 5e80000000000000",
    ));
    raw[0x1b0..0x1b8].copy_from_slice(&hex("0100010002072c80"));
    let dnode = DnodePhys::parse(&raw).unwrap().unwrap();
    let spill = dnode.spill.unwrap();
    assert_eq!(
        (
            spill.object_type(),
            spill.lsize(),
            spill.psize(),
            spill.asize()
        ),
        (44, 1024, 1024, 2048)
    );
    assert_eq!((dnode.used_bytes(), dnode.bonus_room()), (2048, 192));
    assert_eq!(dnode.to_bytes(), raw);
}

#[test]
fn used_in_sectors_is_turned_into_bytes() {
    let mut raw = vec![0; 512];
    raw[..32].copy_from_slice(&hex(
        "191104030000000b0100000000000000 0000300000000000 002c000000000000",
    ));
    let view = DnodeView::parse(&raw).unwrap().unwrap();
    assert_eq!(
        (view.max_block_id(), view.used_bytes(), view.levels()),
        (0x30_0000, 11264, 4)
    );
    raw[FLAGS_AT] = 0;
    assert_eq!(
        DnodeView::parse(&raw).unwrap().unwrap().used_bytes(),
        11264 * 512
    );
}

#[test]
fn new_dnodes_share_their_room_between_pointers_and_bonus() {
    for (bonus, pointers) in [(0, 3), (64, 3), (65, 2), (192, 2), (193, 1), (320, 1)] {
        let dnode = DnodePhys::new(
            object_type::PLAIN_OTHER,
            1000,
            object_type::UINT64_METADATA,
            vec![7; bonus],
            1,
        );
        assert_eq!(dnode.nblkptr, pointers, "bonus {bonus}");
        assert_eq!(dnode.data_block_size(), 1024);
        assert_eq!(DnodePhys::parse(&dnode.to_bytes()).unwrap().unwrap(), dnode);
    }
    assert_eq!(
        DnodePhys::new(19, 512, object_type::SA, vec![], 1).nblkptr,
        1
    );
    for (slots, room) in [(1, 320), (2, 832), (32, 16192)] {
        assert_eq!(
            DnodePhys::new(19, 512, object_type::SA, vec![], slots).bonus_room(),
            room
        );
    }
}

#[test]
fn broken_dnodes_are_refused_and_the_scan_goes_on() {
    let good = DnodePhys::new(19, 512, object_type::SA, vec![1; 168], 1).to_bytes();
    for (at, value) in [
        (0, 60),
        (1, 11),
        (1, 18),
        (2, 0),
        (2, 17),
        (3, 0),
        (3, 4),
        (4, 99),
        (10, 0xff),
        (12, 1),
    ] {
        let mut raw = good.clone();
        raw[at] = value;
        if at == 10 {
            raw[11] = 1;
        }
        assert!(DnodePhys::parse(&raw).is_err(), "byte {at} = {value}");
    }
    assert!(DnodePhys::parse(&[0; 512]).unwrap().is_none());
    let mut block = vec![0; 2048];
    block[..512].copy_from_slice(&good);
    block[512] = 60;
    block[1536..].copy_from_slice(&good);
    let seen: Vec<(usize, bool)> = scan_block(&block)
        .map(|(slot, dnode)| (slot, dnode.is_ok()))
        .collect();
    assert_eq!(seen, [(0, true), (1, false), (3, true)]);
}

#[test]
fn a_foreign_dnode_swaps_to_the_same_dnode() {
    let mut dnode = DnodePhys::new(12, 512, object_type::DSL_DIR, (0..=255).collect(), 1);
    dnode.max_block_id = 0x0102_0304;
    dnode.flags |= FLAG_USED_BYTES;
    dnode.set_used_bytes(0x1000);
    dnode.blkptr[0].words = std::array::from_fn(|i| i as u64 + 0x0506_0708_0000_0000);
    let native = dnode.to_bytes();
    // The bonus is an array of u64; build the big-endian picture by hand.
    let mut foreign = native.clone();
    foreign[8..10].reverse();
    foreign[10..12].reverse();
    crate::field::swap_array(&mut foreign[16..32], 8);
    crate::field::swap_array(&mut foreign[64..], 8);
    object_type::swap_block(object_type::DNODE, 0, &mut foreign).unwrap();
    assert_eq!(foreign, native);
}

#[test]
fn a_dnode_whose_blocks_cannot_be_counted_in_64_bits_is_refused() {
    let mut raw = vec![0; 512];
    raw[..16].copy_from_slice(&hex("13110103000000000100000000000000"));
    assert!(DnodePhys::parse(&raw).is_ok());
    // Blocks of 512 bytes: one fewer than 2^55 is the most.
    raw[16..24].copy_from_slice(&((1u64 << 55) - 2).to_le_bytes());
    assert!(DnodePhys::parse(&raw).is_ok());
    raw[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(DnodePhys::parse(&raw).is_err());
    raw[16..24].copy_from_slice(&0u64.to_le_bytes());
    for (levels, good) in [(7, true), (8, false), (16, false)] {
        raw[2] = levels;
        assert_eq!(DnodePhys::parse(&raw).is_ok(), good, "{levels} levels");
    }
}

#[test]
#[should_panic(expected = "bonus of 321 bytes in a dnode of 512")]
fn a_bonus_that_would_leave_its_dnode_is_never_written() {
    let mut dnode = DnodePhys::new(19, 512, object_type::SA, vec![1; 320], 1);
    assert_eq!(dnode.to_bytes().len(), 512, "it fills the dnode");
    dnode.bonus.push(1);
    dnode.to_bytes();
}

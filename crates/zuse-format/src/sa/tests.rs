//! Vectors made by OpenZFS 2.4's attribute code.

use super::*;
use crate::acl::{Ace, trivial_acl};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

fn layout(numbers: &[u16]) -> Vec<SaSlot> {
    numbers.iter().map(|n| standard_slot(*n).unwrap()).collect()
}

const FILE: [u16; 15] = [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19];

fn golden_file() -> Vec<u8> {
    let mut raw = hex(
        "5a502f0002041800 a481000000000000 0000000000000000 0c00000000000000
        e803000000000000 6400000000000000 2200000000000000 0400000008840000",
    );
    for _ in 0..4 {
        raw.extend(hex("00f1536500000000 15cd5b0700000000"));
    }
    raw.extend(hex(
        "0100000000000000 0000000000000000 0300000000000000 000000109f011e00
        0000402089001200 0000004089001200",
    ));
    raw
}

#[test]
fn the_golden_file_is_built_and_read() {
    let raw = golden_file();
    assert_eq!(raw.len(), 176);
    let header = SaHeader::parse(&raw).unwrap().unwrap();
    assert_eq!(
        (header.layout, header.size, header.order),
        (2, 8, ByteOrder::Little)
    );
    let layout = layout(&FILE);
    let find = |n| header.find(&raw, &layout, n).unwrap().map(|r| &raw[r]);
    assert_eq!(find(attr::MODE), Some(&0o100_644u64.to_le_bytes()[..]));
    assert_eq!(find(attr::PARENT), Some(&34u64.to_le_bytes()[..]));
    assert_eq!(find(attr::DACL_ACES).unwrap().len(), 24);
    assert_eq!(find(attr::DXATTR), None);
    let aces: Vec<u8> = trivial_acl(0o644, false)
        .iter()
        .flat_map(Ace::to_bytes)
        .collect();
    assert_eq!(find(attr::DACL_ACES), Some(&aces[..]));
    let ranges: Vec<_> = header.walk(&raw, &layout).map(Result::unwrap).collect();
    let values: Vec<(&[u8], bool)> = ranges
        .iter()
        .map(|(s, r)| (&raw[r.clone()], s.is_variable()))
        .collect();
    assert_eq!(encode(2, &values).unwrap(), raw);
    let lengths: Vec<_> = values
        .iter()
        .map(|(v, variable)| (v.len(), *variable))
        .collect();
    assert_eq!(
        place(&lengths, 320),
        Placement {
            in_bonus: 15,
            bonus_len: 176
        }
    );
}

#[test]
fn a_buffer_of_the_other_byte_order_is_swapped_by_class() {
    let native = golden_file();
    let mut foreign = native.clone();
    swap_array(&mut foreign[..4], 4);
    swap_array(&mut foreign[4..8], 2);
    swap_array(&mut foreign[8..152], 8);
    for at in [152, 160, 168] {
        swap_array(&mut foreign[at..at + 4], 2);
        swap_array(&mut foreign[at + 4..at + 8], 4);
    }
    assert_eq!(
        SaHeader::parse(&foreign).unwrap().unwrap().order,
        ByteOrder::Big
    );
    to_little(&mut foreign, &layout(&FILE)).unwrap();
    assert_eq!(foreign, native);
}

#[test]
fn spilling_starts_at_the_measured_sizes() {
    let base = |project: bool| {
        let mut lengths = vec![(8, false); 7];
        lengths.extend([(16, false); 4]);
        lengths.extend(vec![(8, false); if project { 3 } else { 2 }]);
        lengths.push((24, true));
        lengths
    };
    for (size, with, without, spilled) in [
        (512, 136, 144, 192),
        (1024, 648, 656, 704),
        (1536, 1160, 1168, 1216),
        (2048, 1672, 1680, 1728),
        (4096, 3720, 3728, 3776),
        (8192, 7816, 7824, 7872),
        (16384, 16008, 16016, 16064),
    ] {
        for (project, limit) in [(true, with), (false, without)] {
            let mut lengths = base(project);
            lengths.push((limit, true));
            assert_eq!(
                place(&lengths, size - 192).in_bonus,
                lengths.len(),
                "{size} {limit}"
            );
            *lengths.last_mut().unwrap() = (limit + 1, true);
            let placed = place(&lengths, size - 192);
            assert_eq!(
                (placed.in_bonus, placed.bonus_len),
                (lengths.len() - 1, spilled),
                "{size} {limit}"
            );
        }
    }
}

#[test]
fn a_long_acl_goes_to_the_spill_with_the_xattrs() {
    let mut lengths = vec![(8, false); 7];
    lengths.extend([(16, false); 4]);
    lengths.extend([(8, false), (8, false), (8, false), (72, true), (100, true)]);
    assert_eq!(
        place(&lengths, 320).in_bonus,
        14,
        "bonus keeps up to DACL_COUNT"
    );
    assert_eq!(
        encode(4, &[(&[0; 72], true), (&[0; 100], true)]).unwrap()[..10],
        hex("5a502f00040848006400")
    );
    assert_eq!(
        encode(7, &[(&[0; 196], true)]).unwrap()[..8],
        hex("5a502f000704c400")
    );
}

#[test]
fn the_registry_has_the_golden_values() {
    for (number, value) in [
        (0, 0x1000_0000u64),
        (14, 0x2000_000e),
        (15, 0x5803_000f),
        (17, 0x3_0011),
        (19, 0x4_0013),
        (21, 0x800_0015),
    ] {
        let slot = standard_slot(number).unwrap();
        assert_eq!(slot.to_registry(), value);
        assert_eq!(SaSlot::from_registry(value), Ok(slot));
    }
    assert!(SaSlot::from_registry(9 << 16).is_err());
}

#[test]
fn hostile_buffers_are_refused() {
    assert_eq!(SaHeader::parse(&[0; 64]), Ok(None));
    assert_eq!(SaHeader::parse(&[]), Ok(None));
    assert!(SaHeader::parse(&[1; 64]).is_err());
    let raw = golden_file();
    let header = SaHeader::parse(&raw).unwrap().unwrap();
    assert!(
        header
            .find(&raw[..100], &layout(&FILE), attr::LINKS)
            .is_err()
    );
    assert!(
        header
            .find(&raw, &layout(&[17, 19, 20]), attr::DXATTR)
            .is_err()
    );
    assert!(SaHeader::parse(&hex("5a502f0002fc1800")).is_err());
}

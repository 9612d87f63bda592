//! Root directory of a version 15 pool (big-endian, 2009) and the ACL of a file of a version 1 pool.

use super::*;
use crate::object_type;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn a_big_endian_root_directory_of_2009_reads_after_its_swap() {
    let mut raw = hex("000000004a24b62e 0000000015902b3e").repeat(4);
    for word in [4u64, 0x41ed, 2, 3, 2, 0, 0, 0x0408_0000_0044, 0, 0] {
        raw.extend(word.to_be_bytes());
    }
    raw.extend([0; 32]);
    raw.extend(hex("0000000000000000 00000030 0001 0006 0001 1000 00000000 0000 1000 000c0137 0001 2040 00000006
        0000 2040 00000021 0001 4000 000c0116 0000 4000 001200a9"));
    raw.resize(ZNODE_SIZE, 0);
    object_type::swap_bonus(object_type::ZNODE, &mut raw);
    let znode = ZnodePhys::parse(&raw).unwrap();
    assert_eq!(
        (
            znode.mode,
            znode.size,
            znode.parent,
            znode.links,
            znode.generation
        ),
        (0o40755, 2, 3, 2, 4)
    );
    assert_eq!(znode.atime, [0x4a24_b62e, 0x1590_2b3e]);
    let ZnodeAcl::Embedded(aces) = znode.acl().unwrap() else {
        panic!("external")
    };
    assert_eq!(aces.len(), 6);
    assert_eq!(
        (aces[1].kind, aces[1].flags, aces[1].mask),
        (0, 0x1000, 0xc_0137)
    );
    let mut back = vec![0; ZNODE_SIZE];
    znode.write_le(&mut back);
    assert_eq!(back, raw);
}

#[test]
fn an_acl_of_version_zero_has_entries_of_twelve_bytes() {
    let mut raw = vec![0; ZNODE_SIZE];
    let mut area = hex("0000000000000000 00000006 0000 0000 ffffffff 00000020 1000 0001 ffffffff 000c0117 1000 0000
        ffffffff 00000026 2040 0001 ffffffff 00000001 2040 0000 ffffffff 000c0136 4000 0001 ffffffff 00120089 4000 0000");
    area.resize(ZNODE_ACL_SIZE, 0);
    raw[ZNODE_ACL_AT..].copy_from_slice(&area);
    object_type::swap_bonus(object_type::ZNODE, &mut raw);
    let ZnodeAcl::Embedded(aces) = ZnodePhys::parse(&raw).unwrap().acl().unwrap() else {
        panic!("external")
    };
    let got: Vec<(u16, u16, u32)> = aces.iter().map(|a| (a.kind, a.flags, a.mask)).collect();
    assert_eq!(got[..2], [(1, 0x1000, 0x20), (0, 0x1000, 0xc_0117)]);
    assert_eq!((got.len(), got[5]), (6, (0, 0x4000, 0x12_0089)));
    assert!(ZnodePhys::parse(&raw[..200]).is_err());
}

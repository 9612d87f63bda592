use super::super::TrivialAcl;
use super::*;

const LE: ByteOrder = ByteOrder::Little;

fn entry(kind: u16, flags: u16, mask: u32, who: Option<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(kind.to_le_bytes());
    out.extend(flags.to_le_bytes());
    out.extend(mask.to_le_bytes());
    if let Some(who) = who {
        out.extend(who.to_le_bytes());
    }
    out
}

#[test]
fn what_a_mode_makes_is_trivial_and_gives_the_mode_back() {
    for mode in [
        0o100_644, 0o100_755, 0o040_700, 0o100_604, 0o100_077, 0o104_711,
    ] {
        let made = TrivialAcl::of(mode);
        let acl = Acl::parse(made.bytes(), LE).expect("parses");
        assert_eq!(acl.to_bytes(), made.bytes());
        assert!(acl.is_trivial(), "{mode:o}");
        let back = acl.as_mode(mode, 7, 8);
        assert_eq!(back.mode, mode, "{mode:o}");
        assert_eq!(back.no_execs_denied, made.no_execs_denied, "{mode:o}");
        let old = acl.to_old_bytes().expect("no ids");
        assert_eq!(Acl::parse_old(&old, LE), Ok(acl));
    }
}

#[test]
fn entries_of_users_and_groups_keep_their_form_in_both_byte_orders() {
    let mut bytes = entry(0, 0x1000, 0x1e01ff, None);
    bytes.extend(entry(0, 3, 0x1200a9, Some(1000)));
    bytes.extend(entry(1, 0x40, 2, Some(50)));
    bytes.extend(entry(2, 0x1010, 2, Some(0)));
    bytes.extend(entry(5, 0, 1, Some(9)));
    bytes.extend([0xab; 32]);
    let acl = Acl::parse(&bytes, LE).expect("parses");
    assert_eq!(acl.count(), 5);
    assert_eq!(acl.to_bytes(), bytes);
    assert!(!acl.is_trivial() && acl.inherits());
    let mut swapped = bytes[..40].to_vec();
    for (at, width) in [0, 8, 24]
        .into_iter()
        .flat_map(|e| [(e, 2), (e + 2, 2), (e + 4, 4)])
    {
        swapped[at..at + width].reverse();
    }
    for at in [16, 32] {
        swapped[at..at + 8].reverse();
    }
    let big = Acl::parse(&swapped, ByteOrder::Big).expect("parses");
    assert_eq!(big.to_bytes(), bytes[..40]);
    for cut in 1..bytes.len() {
        if ![8, 24, 40, 56].contains(&cut) {
            assert!(Acl::parse(&bytes[..cut], LE).is_err(), "{cut}");
        }
    }
}

#[test]
fn the_first_entry_that_speaks_of_a_bit_decides_it() {
    // Deny write to the owner's own id, then allow everything to everyone; another group may not
    // execute.
    let mut bytes = entry(1, 0, 2, Some(7));
    bytes.extend(entry(1, 0x40, 0x20, Some(99)));
    bytes.extend(entry(0, 0x4000, 0x1f01ff, None));
    let acl = Acl::parse(&bytes, LE).expect("parses");
    let as_mode = acl.as_mode(0o104_000, 7, 8);
    assert_eq!(as_mode.mode, 0o104_577);
    assert!(!as_mode.no_execs_denied);
}

#[test]
fn nfs4_shows_special_names_and_ids() {
    let mut bytes = entry(0, 0x1000, 0x1e01ff, None);
    bytes.extend(entry(0, 0x2040, 0x1200a9, None));
    bytes.extend(entry(1, 0x43, 2, Some(50)));
    let xdr = Acl::parse(&bytes, LE).expect("parses").to_xdr(true);
    let words: Vec<u32> = xdr
        .chunks(4)
        .map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]))
        .collect();
    assert_eq!(
        words,
        [
            1, 3, 0, 0, 1, 0x1e01ff, 1, 0, 0, 1, 0x1200a9, 2, 1, 0x43, 0, 2, 50
        ]
    );
}

#[test]
fn the_area_of_a_legacy_znode_is_read_as_it_is_written() {
    let made = TrivialAcl::of(0o100_644);
    let area = made.legacy(true);
    let (Area::Inside(bytes), false) = legacy_area(&area) else {
        panic!("of version 1, inside");
    };
    assert_eq!(bytes, made.bytes());
    assert_eq!(new_legacy_area(made.count(), made.bytes(), false, 0), area);
    let old = made.legacy(false);
    let (Area::Inside(bytes), true) = legacy_area(&old) else {
        panic!("of version 0, inside");
    };
    let acl = Acl::parse_old(bytes, LE).expect("parses");
    assert_eq!(acl.to_bytes(), made.bytes());
    let outside = new_legacy_area(10, &[1; 160], false, 77);
    assert!(matches!(
        legacy_area(&outside),
        (Area::Object(77, 160), false)
    ));
}

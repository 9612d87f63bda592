mod objects;

use super::attribute::Attr;
use super::layout::{AttrInfo, Layout};
use super::place::place;
use super::*;
use buffer::{build, parse_header, ranges};

fn hex(s: &str) -> Vec<u8> {
    let digits: Vec<u8> = s.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap())
        .collect()
}

fn known() -> [Option<u16>; 22] {
    std::array::from_fn(|i| Some(i as u16))
}

fn layout(number: u16, attrs: &[u16]) -> Layout {
    let infos = attrs
        .iter()
        .map(|&n| {
            let a = Attr::ALL[usize::from(n)];
            AttrInfo {
                number: n,
                len: a.len(),
                class: a.class(),
            }
        })
        .collect();
    Layout::new(number, infos, &known())
}

const FILE: [u16; 15] = [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19];
const FILE_BYTES: &str = "5a502f0002041800 a481000000000000 0000000000000000 0c00000000000000
    e803000000000000 6400000000000000 2200000000000000 0400000008840000
    00f1536500000000 15cd5b0700000000 00f1536500000000 15cd5b0700000000
    00f1536500000000 15cd5b0700000000 00f1536500000000 15cd5b0700000000
    0100000000000000 0000000000000000 0300000000000000 000000109f011e00
    0000402089001200 0000004089001200";

#[test]
fn the_registry_values_are_the_published_ones() {
    for (attr, value) in [
        (Attr::Atime, 0x1000_0000u64),
        (Attr::Gen, 0x800_0004),
        (Attr::Pad, 0x2000_000e),
        (Attr::ZnodeAcl, 0x5803_000f),
        (Attr::DaclCount, 0x800_0010),
        (Attr::Symlink, 0x3_0011),
        (Attr::Scanstamp, 0x2003_0012),
        (Attr::DaclAces, 0x4_0013),
        (Attr::Dxattr, 0x3_0014),
        (Attr::Projid, 0x800_0015),
    ] {
        assert_eq!(attr.registry_value(attr as u16), value, "{attr:?}");
    }
}

#[test]
fn a_file_is_parsed_and_built_byte_for_byte() {
    let bytes = hex(FILE_BYTES);
    assert_eq!(bytes.len(), 176);
    let header = parse_header(&bytes).unwrap().unwrap();
    assert_eq!((header.layout, header.len, header.swapped), (2, 8, false));
    let l = layout(2, &FILE);
    let ranges = ranges(&bytes, &header, &l).unwrap();
    let values: Vec<&[u8]> = ranges.iter().map(|r| &bytes[r.clone()]).collect();
    assert_eq!(build(&l, &values, 0), bytes);
    assert_eq!(l.fixed(Attr::Mode), Some(0));
    assert_eq!(l.fixed(Attr::Projid), Some(128));
    assert_eq!(
        &bytes[ranges[l.position(Attr::DaclAces).unwrap()].clone()],
        &bytes[0x98..]
    );
    let ids = owner_ids(SA_BONUS, &bytes).unwrap();
    assert_eq!(
        (
            ids.uid,
            ids.gid,
            ids.projid,
            ids.generation,
            ids.parent,
            ids.mode
        ),
        (1000, 100, 0, 12, 34, 0o100_644)
    );
}

#[test]
fn a_symlink_has_two_lengths_in_a_longer_header() {
    let l = layout(5, &[5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19, 17]);
    let zero = [0u8; 16];
    let aces = [1u8; 24];
    let mut values: Vec<&[u8]> = l
        .attrs
        .iter()
        .map(|a| &zero[..usize::from(a.len).min(16)])
        .collect();
    values[13] = &aces;
    values[14] = b"target";
    let b = build(&l, &values, 0);
    assert_eq!(b.len(), 182);
    assert_eq!(b[..16], hex("5a502f0005081800 0600000000000000"));
    assert_eq!(&b[0xb0..], b"target");
}

#[test]
fn a_buffer_of_the_other_byte_order_is_turned() {
    let little = hex(FILE_BYTES);
    let l = layout(2, &FILE);
    let header = parse_header(&little).unwrap().unwrap();
    let mut big = little.clone();
    big[..4].reverse();
    big[4..6].reverse();
    big[6..8].reverse();
    for (r, info) in ranges(&little, &header, &l)
        .unwrap()
        .into_iter()
        .zip(&l.attrs)
    {
        if info.number == 19 {
            for ace in big[r].chunks_mut(8) {
                ace[..2].reverse();
                ace[2..4].reverse();
                ace[4..].reverse();
            }
        } else {
            big[r].chunks_mut(8).for_each(<[u8]>::reverse);
        }
    }
    assert_eq!(owner_ids(SA_BONUS, &big).unwrap().uid, 1000);
    let header = parse_header(&big).unwrap().unwrap();
    assert!(header.swapped);
    buffer::swap(&mut big, &header, &l).unwrap();
    assert_eq!(big, little);
}

#[test]
fn attributes_spill_exactly_where_elsewhere() {
    let lengths = |attrs: &[u16], last: usize| -> Vec<(usize, bool)> {
        attrs
            .iter()
            .map(|&n| {
                let len = usize::from(Attr::ALL[usize::from(n)].len());
                match (n, len) {
                    (19, _) => (24, true),
                    (_, 0) => (last, true),
                    _ => (len, false),
                }
            })
            .collect()
    };
    let with = [&FILE[..], &[20]].concat();
    let without: Vec<u16> = with.iter().copied().filter(|&n| n != 21).collect();
    for (capacity, limit, spilled) in [
        (320, 136, 192),
        (832, 648, 704),
        (1344, 1160, 1216),
        (1856, 1672, 1728),
        (3904, 3720, 3776),
        (8000, 7816, 7872),
        (16192, 16008, 16064),
    ] {
        assert!(
            !place(&lengths(&with, limit), capacity).spills,
            "{capacity}"
        );
        let p = place(&lengths(&with, limit + 1), capacity);
        assert!(p.spills);
        assert_eq!(p.bonus_len, spilled);
        assert!(!place(&lengths(&without, limit + 8), capacity).spills);
        assert!(place(&lengths(&without, limit + 9), capacity).spills);
    }
    // DXATTR alone moves to the spill block, with the attributes added after it.
    let p = place(&lengths(&with, 196), 320);
    assert_eq!((p.in_bonus, p.spills, p.bonus_len), (15, true, 192));
    let p = place(&lengths(&[&with[..], &[9]].concat(), 196), 320);
    assert_eq!((p.in_bonus, p.spills), (15, true));
    // A longer ACL moves out together with DXATTR.
    let mut set = lengths(&without, 100);
    set[13].0 = 72;
    let p = place(&set, 320);
    assert_eq!((p.in_bonus, p.spills), (13, true));
}

#[test]
fn hostile_buffers_give_errors() {
    let good = hex(FILE_BYTES);
    let l = layout(2, &FILE);
    for cut in 0..good.len() {
        let b = &good[..cut];
        if let Ok(Some(h)) = parse_header(b) {
            assert!(ranges(b, &h, &l).is_err());
            let _ = owner_ids(SA_BONUS, b);
        }
    }
    let mut b = good.clone();
    b[0] = 1;
    assert!(parse_header(&b).is_err());
    b = good.clone();
    b[5] = 0xfc;
    assert!(parse_header(&b).is_err());
    b[5] = 0x08;
    let h = parse_header(&b).unwrap().unwrap();
    assert!(ranges(&b, &h, &l).is_err());
    assert_eq!(parse_header(&[0; 64]).unwrap(), None);
}

#[test]
fn a_legacy_znode_is_read_at_its_offsets() {
    let mut b = vec![0u8; 320];
    for (at, v) in [(72, 0o120_777u64), (80, 6), (128, 7), (136, 8), (120, 4)] {
        b[at..at + 8].copy_from_slice(&v.to_le_bytes());
    }
    b[264..270].copy_from_slice(b"target");
    let ids = owner_ids(ZNODE_BONUS, &b).unwrap();
    assert_eq!((ids.uid, ids.gid, ids.projid), (7, 8, 0));
    assert_eq!(
        view::legacy_range(&b, Attr::Symlink).map(|r| &b[r]),
        Some(&b"target"[..])
    );
    assert_eq!(view::legacy_range(&b, Attr::Dxattr), None);
    assert_eq!(view::legacy_range(&b, Attr::ZnodeAcl), Some(176..264));
    assert!(owner_ids(ZNODE_BONUS, &b[..200]).is_none());
    assert!(owner_ids(12, &b).is_none());
}

mod dxattr_sets {
    use super::super::dxattr::{Dxattr, MAX_VALUE, find};
    use super::hex;
    use zuse_base::Errno;

    const ONE: &str = "01010000 00000000 00000001 00000020 00000028 00000008 757365722e666f6f 0000000a 00000003 62617200 00000000 00000000";

    #[test]
    fn one_attribute_and_none_are_the_published_bytes() {
        let mut set = Dxattr::default();
        assert_eq!(
            set.encode(),
            hex("01010000 00000000 00000001 00000000 00000000")
        );
        set.set(b"user.foo", b"bar").unwrap();
        assert_eq!(set.encode(), hex(ONE));
        assert_eq!(set.encoded_len(), 52);
        assert_eq!(Dxattr::decode(&hex(ONE)).unwrap(), set);
        assert_eq!(find(&hex(ONE), b"user.foo").unwrap(), Some(&b"bar"[..]));
        assert_eq!(find(&hex(ONE), b"user.fo").unwrap(), None);
        assert!(set.remove(b"user.foo") && set.is_empty());
    }

    #[test]
    fn what_is_too_large_is_refused_and_changes_nothing() {
        let mut set = Dxattr::default();
        assert!(
            set.set(b"user.a", &vec![1; MAX_VALUE + 1])
                .unwrap_err()
                .is(Errno::FBIG)
        );
        set.set(b"user.a", &vec![1; MAX_VALUE]).unwrap();
        let before = set.clone();
        assert!(
            set.set(b"user.b", &vec![2; MAX_VALUE])
                .unwrap_err()
                .is(Errno::FBIG)
        );
        assert_eq!(set, before);
        set.set(b"user.a", b"short").unwrap();
        assert_eq!(set.get(b"user.a"), Some(&b"short"[..]));
    }

    #[test]
    fn hostile_sets_give_errors() {
        let good = hex(ONE);
        for cut in 0..good.len() {
            assert!(Dxattr::decode(&good[..cut]).is_err(), "{cut}");
        }
        for at in 0..good.len() {
            for v in [0, 0xff, 0x7f] {
                let mut b = good.clone();
                b[at] = v;
                let _ = Dxattr::decode(&b);
            }
        }
    }
}

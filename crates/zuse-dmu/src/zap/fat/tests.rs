use super::super::leaf::END;
use super::super::store::MemoryBlocks;
use super::*;
use std::collections::{BTreeMap, BTreeSet};

const SALT: u64 = 0x1234_5678_9abc_def1;

fn new_fat(shift: u32, salt: u64, normflags: u64, flags: u64) -> MemoryBlocks {
    let s = MemoryBlocks::default();
    create(&s, &Header::new(shift, salt, normflags, flags)).unwrap();
    s
}

fn put(
    s: &MemoryBlocks,
    ask: Ask<'_>,
    value: &Stored,
    how: Put,
    cd: Option<u32>,
    longest: usize,
) -> Result<()> {
    let aim = take_aim(s, ask, MatchType::Exact, longest)?;
    super::put(s, aim, value, how, cd).map(|_| ())
}

fn lookup(s: &MemoryBlocks, ask: Ask<'_>, longest: usize) -> Result<Option<ZapValue>> {
    super::lookup(s, take_aim(s, ask, MatchType::Exact, longest)?)
}

fn add(s: &MemoryBlocks, name: &str, value: ZapValue) -> Result<()> {
    put(
        s,
        Ask::Name(name.as_bytes()),
        &value.stored()?,
        Put::Add,
        None,
        256,
    )
}

fn remove_name(s: &MemoryBlocks, name: &str) -> bool {
    let ask = Ask::Name(name.as_bytes());
    remove(s, take_aim(s, ask, MatchType::Exact, 256).unwrap(), true)
        .unwrap()
        .is_some()
}

fn get(s: &MemoryBlocks, name: &str) -> Option<ZapValue> {
    lookup(s, Ask::Name(name.as_bytes()), 256).unwrap()
}

fn list(s: &MemoryBlocks, from: (u64, u32)) -> Vec<(Vec<u8>, u64, u32)> {
    let mut out = Vec::new();
    let mut at = from;
    let mut scratch = Vec::new();
    loop {
        let (next, more) = list_leaf(s, at, &mut scratch, |_, l| {
            out.push((l.name.to_vec(), l.entry.hash, l.entry.cd));
            Ok(true)
        })
        .unwrap();
        assert!(more);
        match next {
            Some(hash) => at = (hash, 0),
            None => return out,
        }
    }
}

/// Every invariant of a fat ZAP that the format states.
pub(in crate::zap) fn audit(s: &impl Blocks) -> Header {
    let h = header(s).unwrap();
    let mut leaves = BTreeMap::<u64, (u64, u64)>::new();
    let mut last = 0;
    for i in 0..1u64 << h.shift {
        let p = table::pointer(s, &h, i).unwrap();
        assert!(p != 0 && p < h.freeblk);
        if h.next_table != 0 && i >> h.table_block_shift() < h.copied {
            let shift = h.table_block_shift();
            for twin in [2 * i, 2 * i + 1] {
                let got = s
                    .view(h.next_table + (twin >> shift), |b| {
                        Ok(u64::from_le_bytes(
                            b[(twin as usize & ((1 << shift) - 1)) * 8..][..8]
                                .try_into()
                                .unwrap(),
                        ))
                    })
                    .unwrap();
                assert_eq!(got, p, "the growing table mirrors the old one");
            }
        }
        let range = leaves.entry(p).or_insert((i, 0));
        assert!(range.1 == 0 || last == p, "ranges are contiguous");
        range.1 += 1;
        last = p;
    }
    assert_eq!(leaves.len() as u64, h.leafs);
    let mut entries = 0;
    for (blkid, (first, count)) in leaves {
        entries += s
            .view(blkid, |b| {
                let leaf = Leaf::parse(b).unwrap();
                assert_eq!(count, 1 << (h.shift - leaf.prefix_len()));
                assert_eq!(first, leaf.prefix() << (h.shift - leaf.prefix_len()));
                audit_leaf(&leaf, &h);
                Ok(u64::from(leaf.entries()))
            })
            .unwrap();
    }
    assert_eq!(entries, h.entries);
    h
}

fn audit_leaf(leaf: &Leaf<'_>, h: &Header) {
    let g = leaf.geometry();
    let mut used = BTreeSet::new();
    let mut entries = 0;
    for bucket in 0..g.buckets() {
        let mut last_cd = 0;
        for e in leaf.chain(bucket) {
            let e = e.unwrap();
            assert!(used.insert(e.chunk));
            assert_eq!(g.bucket(e.hash, leaf.prefix_len()), bucket);
            leaf.must_own(e.hash).unwrap();
            assert!(e.cd >= last_cd);
            last_cd = e.cd;
            entries += 1;
            let mut name = Vec::new();
            leaf.read_name(&e, h.has_word_keys(), &mut name).unwrap();
            if !h.has_word_keys() {
                assert_eq!(
                    e.hash,
                    h.hash_bits()
                        .cut(super::super::normalize::hash(h.salt, h.normflags, &name).unwrap())
                );
            }
            for (first, len) in [
                (e.name, e.name_len(h.has_word_keys())),
                (e.value, e.value_len()),
            ] {
                leaf.array_chunks(first, len)
                    .into_iter()
                    .for_each(|c| assert!(used.insert(c), "chunks are not shared"));
            }
        }
    }
    assert_eq!(entries, leaf.entries());
    let mut free = 0;
    let mut at = leaf.freelist();
    while at != END {
        assert!(used.insert(at) && leaf.is_free(at));
        at = leaf.next_free(at);
        free += 1;
    }
    assert_eq!(free, leaf.free());
    assert_eq!(used.len(), g.chunks());
}

fn facts_of(s: &MemoryBlocks) -> (u64, u64, (u64, u64, u32), (u64, u64)) {
    let h = header(s).unwrap();
    (
        h.leafs,
        h.freeblk,
        (h.table, h.table_blocks, h.shift),
        (h.next_table, h.copied),
    )
}

#[test]
fn a_directory_grows_through_the_same_shapes_as_elsewhere() {
    let s = new_fat(14, SALT, 0, 0);
    let long = "x".repeat(50);
    add(&s, &long, ZapValue::U64(1)).unwrap();
    assert!(remove_name(&s, &long));
    let none = (0, 0);
    let expected = BTreeMap::from([
        (212, (1, 2, (0, 0, 10), none)),
        (213, (2, 3, (0, 0, 10), none)),
        (425, (3, 4, (0, 0, 10), none)),
        (426, (4, 5, (0, 0, 10), none)),
        (204_027, (1024, 1026, (1025, 1, 11), none)),
        (408_301, (2048, 2052, (2050, 2, 12), none)),
        (808_027, (4096, 4104, (2050, 2, 12), (4100, 1))),
        (808_028, (4096, 4104, (4100, 4, 13), none)),
        (850_000, (4912, 4920, (4100, 4, 13), none)),
    ]);
    for i in 0..850_000u64 {
        add(&s, &format!("file{i:07}"), ZapValue::U64(i)).unwrap();
        if let Some(want) = expected.get(&(i + 1)) {
            assert_eq!(facts_of(&s), *want, "after {} entries", i + 1);
            audit(&s);
        }
    }
    for i in (0..850_000).step_by(7919) {
        assert_eq!(get(&s, &format!("file{i:07}")), Some(ZapValue::U64(i)));
    }
    assert_eq!(get(&s, "file850000"), None);
    let all = list(&s, (0, 0));
    assert_eq!(all.len(), 850_000);
    assert!(all.windows(2).all(|w| (w[0].1, w[0].2) < (w[1].1, w[1].2)));
}

#[test]
fn an_emptied_directory_gives_its_leaves_back() {
    let s = new_fat(14, SALT, 0, 0);
    for i in 0..5000u64 {
        add(&s, &format!("file{i:07}"), ZapValue::U64(i)).unwrap();
    }
    audit(&s);
    for i in 0..5000 {
        assert!(remove_name(&s, &format!("file{i:07}")));
        if i % 977 == 0 {
            audit(&s);
        }
    }
    assert_eq!(facts_of(&s), (1, 2, (0, 0, 10), (0, 0)));
    audit(&s);
    assert_eq!(s.blocks.borrow().len(), 2);
    add(&s, "again", ZapValue::U64(1)).unwrap();
    audit(&s);
}

fn hex(s: &str) -> Vec<u8> {
    let digits: Vec<u8> = s.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap())
        .collect()
}

fn block(s: &MemoryBlocks, blkid: u64) -> Vec<u8> {
    s.blocks.borrow()[&blkid].clone()
}

/// The chunks of a leaf with five entries, in order.
const CHUNKS: [&str; 16] = [
    "fc02ffff01000600 0200030000000000 00000000d0a77515",
    "fb75313678330000 0000000000000000 000000000000ffff",
    "fb11223344556600 0000000000000000 000000000000ffff",
    "fc01ffff04000600 05001e0000000000 00000000d0ca7e55",
    "fb75387833300000 0000000000000000 000000000000ffff",
    "fb01020304050607 08090a0b0c0d0e0f 1011121314150600",
    "fb161718191a1b1c 1d1e000000000000 000000000000ffff",
    "fc04ffff08000600 0900020000000000 00000000f07aa961",
    "fb75333278320000 0000000000000000 000000000000ffff",
    "fb01020304a0b0c0 d000000000000000 000000000000ffff",
    "fc08ffff0b000600 0c00040000000000 00000000b06b9106",
    "fb75363478340000 0000000000000000 000000000000ffff",
    "fb00000000000000 0111223344556677 8800000000000d00",
    "fb00000300000000 0000000400000000 000000000000ffff",
    "fc01ffff0f000600 ffff000000000000 00000000601aef8a",
    "fb656d7074790000 0000000000000000 000000000000ffff",
];

#[test]
fn a_leaf_is_filled_byte_for_byte_as_elsewhere() {
    let s = new_fat(14, 1, 0, 0);
    add(&s, "u16x3", ZapValue::u16s(&[0x1122, 0x3344, 0x5566])).unwrap();
    add(&s, "u8x30", ZapValue::Bytes((1..=30).collect())).unwrap();
    add(
        &s,
        "u32x2",
        ZapValue::Array {
            int_size: 4,
            ints: vec![0x0102_0304, 0xa0b0_c0d0],
        },
    )
    .unwrap();
    add(
        &s,
        "u64x4",
        ZapValue::u64s(&[1, 0x1122_3344_5566_7788, 3, 4]),
    )
    .unwrap();
    add(&s, "empty", ZapValue::Bytes(Vec::new())).unwrap();
    let leaf = block(&s, 1);
    assert_eq!(
        leaf[..48],
        hex(
            "0000000000000080 0000000000000000 0000000000000000 af1eab02 6e02 0500 0000 1000 00 00000000000000 00000000"
        )
    );
    assert_buckets(&leaf);
    for (i, want) in CHUNKS.iter().enumerate() {
        assert_eq!(leaf[0x430 + 24 * i..][..24], hex(want), "chunk {i}");
    }
    assert_eq!(
        leaf[0x430 + 24 * 16..][..24],
        hex("fd000000000000000000000000000000000000000000 1100")
    );
    assert_eq!(
        leaf[16384 - 24..],
        hex("fd000000000000000000000000000000000000000000 ffff")
    );
    assert_eq!(
        get(&s, "u64x4"),
        Some(ZapValue::u64s(&[1, 0x1122_3344_5566_7788, 3, 4]))
    );
    assert_eq!(get(&s, "empty"), Some(ZapValue::Bytes(Vec::new())));

    assert!(remove_name(&s, "u8x30"));
    let leaf = block(&s, 1);
    assert_eq!(leaf[28..36], hex("7202 0400 0000 0300"));
    let next = |i: usize| u16::from_le_bytes(leaf[0x430 + 24 * i + 22..][..2].try_into().unwrap());
    assert_eq!([3, 4, 5, 6].map(next), [4, 5, 6, 16]);
    assert!(
        [3, 4, 5, 6]
            .into_iter()
            .all(|i| leaf[0x430 + 24 * i + 1..][..21].iter().all(|&b| b == 0))
    );
    audit(&s);
}

/// Five buckets have a chunk, each its own.
fn assert_buckets(leaf: &[u8]) {
    for i in 0..512 {
        let want: u16 = match i {
            13 => 10,
            42 => 0,
            170 => 3,
            195 => 7,
            277 => 14,
            _ => 0xffff,
        };
        assert_eq!(
            u16::from_le_bytes(leaf[48 + 2 * i..50 + 2 * i].try_into().unwrap()),
            want,
            "bucket {i}"
        );
    }
}

#[test]
fn a_header_is_written_byte_for_byte_as_elsewhere() {
    let s = new_fat(14, 1, 0, 0);
    for i in 0..6 {
        add(&s, &format!("{i}"), ZapValue::U64(i)).unwrap();
    }
    let b = block(&s, 0);
    assert_eq!(b[..16], hex("0100000000000080 abb22af502000000"));
    assert_eq!(b[0x20..0x28], hex("0a00000000000000"));
    assert_eq!(
        b[0x38..0x58],
        hex("0200000000000000 0100000000000000 0600000000000000 0100000000000000")
    );
    assert!(b[0x2000..].chunks(8).all(|c| c == hex("0100000000000000")));
    assert!(b[0x58..0x2000].iter().all(|&x| x == 0));
}

#[test]
fn the_first_split_leaves_the_published_leaves() {
    let s = new_fat(14, 1, 0, 0);
    for i in 0..213 {
        add(&s, &format!("n{i:03}"), ZapValue::U64(1)).unwrap();
    }
    let facts = |blkid| {
        s.view(blkid, |b| {
            let l = Leaf::parse(b)?;
            Ok((
                l.prefix(),
                l.prefix_len(),
                l.entries(),
                l.free(),
                l.freelist(),
            ))
        })
        .unwrap()
    };
    assert_eq!(facts(1), (0, 1, 107, 317, 627));
    assert_eq!(facts(2), (1, 1, 106, 320, 318));
    audit(&s);
}

#[test]
fn keys_of_words_are_stored_as_elsewhere() {
    let s = new_fat(12, 0x9bfa5, 0, 3);
    let put_words = |key: &[u64], value: &[u64]| {
        put(
            &s,
            Ask::Words(key),
            &ZapValue::u64s(value).stored().unwrap(),
            Put::Add,
            None,
            256,
        )
        .unwrap();
    };
    put_words(&[0x1234_5678], &[7]);
    put_words(&[1, 2], &[0x1111, 0x2222]);
    let b = block(&s, 0);
    assert_eq!(b[0x20..0x28], hex("0800000000000000"));
    assert_eq!(
        b[0x38..0x68],
        hex(
            "0200000000000000 0100000000000000 0200000000000000 a5bf090000000000 0000000000000000 0300000000000000"
        )
    );
    assert!(b[0x800..].chunks(8).all(|c| c == hex("0100000000000000")));
    let leaf = block(&s, 1);
    assert_eq!(u16::from_le_bytes([leaf[28], leaf[29]]), 152);
    let chunks = [
        "fc08ffff01000100 0200010000000000 0000ebe6b0f9c7e7",
        "fb00000000123456 7800000000000000 000000000000ffff",
        "fb00000000000000 0700000000000000 000000000000ffff",
        "fc08ffff04000200 0500020000000000 0000cd0c5c56d1a4",
        "fb00000000000000 0100000000000000 020000000000ffff",
        "fb00000000000011 1100000000000022 220000000000ffff",
    ];
    for (i, want) in chunks.iter().enumerate() {
        assert_eq!(leaf[0x130 + 24 * i..][..24], hex(want), "chunk {i}");
    }
    assert_eq!(
        lookup(&s, Ask::Words(&[1, 2]), 256).unwrap(),
        Some(ZapValue::u64s(&[0x1111, 0x2222]))
    );
    assert_eq!(lookup(&s, Ask::Words(&[2, 1]), 256).unwrap(), None);
    assert!(
        lookup(&s, Ask::Name(b"x"), 256)
            .unwrap_err()
            .is(Errno::INVAL)
    );
    audit(&s);
}

#[test]
fn a_long_key_of_words_takes_more_than_one_chunk() {
    let s = new_fat(15, 1, 0, 7);
    let key = [0xfedc_ba98_7654_3210, 2, 3, 4, 0x8001];
    let value = ZapValue::Bytes((0x30..0x44).collect());
    put(
        &s,
        Ask::Words(&key),
        &value.stored().unwrap(),
        Put::Add,
        None,
        256,
    )
    .unwrap();
    let leaf = block(&s, 1);
    assert_eq!(leaf[48 + 2 * 1019..][..2], [0, 0]);
    let chunks = [
        "fc01ffff01000500 0300140000000000 0000547698badcfe",
        "fbfedcba98765432 1000000000000000 0200000000000200",
        "fb00000300000000 0000000400000000 000080010000ffff",
        "fb30313233343536 3738393a3b3c3d3e 3f4041424300ffff",
    ];
    for (i, want) in chunks.iter().enumerate() {
        assert_eq!(leaf[0x830 + 24 * i..][..24], hex(want), "chunk {i}");
    }
    assert_eq!(lookup(&s, Ask::Words(&key), 256).unwrap(), Some(value));
}

#[test]
fn colliding_names_take_the_lowest_free_number_and_stay_sorted() {
    let s = new_fat(14, 1, 0, 0);
    for name in ["faa495f7", "d7f14be2", "c19ab7b5"] {
        add(&s, name, ZapValue::U64(1)).unwrap();
    }
    assert!(remove_name(&s, "faa495f7"));
    add(&s, "faa495f7", ZapValue::U64(2)).unwrap();
    let names: Vec<_> = list(&s, (0, 0))
        .into_iter()
        .map(|(n, _, cd)| (String::from_utf8(n).unwrap(), cd))
        .collect();
    assert_eq!(
        names,
        [
            ("faa495f7".into(), 0),
            ("d7f14be2".into(), 1),
            ("c19ab7b5".into(), 2)
        ]
    );
    assert!(
        add(&s, "d7f14be2", ZapValue::U64(9))
            .unwrap_err()
            .is(Errno::EXIST)
    );
    audit(&s);
}

#[test]
fn a_normalising_leaf_finds_names_by_their_form() {
    let s = new_fat(14, 1, 2, 0);
    add(&s, "Readme.TXT", ZapValue::U64(1)).unwrap();
    add(&s, "README.txt", ZapValue::U64(2)).unwrap();
    let m = lookup_match(&s, b"readme.txt", MatchType::Normalize, 1024)
        .unwrap()
        .unwrap();
    assert_eq!(
        (m.value, m.name.as_slice(), m.conflict),
        (ZapValue::U64(1), &b"Readme.TXT"[..], true)
    );
    let m = lookup_match(&s, b"README.txt", MatchType::NormalizeMatchCase, 1024)
        .unwrap()
        .unwrap();
    assert_eq!(m.value, ZapValue::U64(2));
    assert_eq!(block(&s, 1)[36], 1);
    let cds: Vec<_> = list(&s, (0, 0))
        .into_iter()
        .map(|(_, h, cd)| (h, cd))
        .collect();
    assert_eq!(
        cds,
        [(0x2638_9b30_0000_0000, 0), (0x2638_9b30_0000_0000, 1)]
    );
    assert!(
        lookup_match(&new_fat(14, 1, 0, 0), b"a", MatchType::Normalize, 256)
            .unwrap_err()
            .is(Errno::NOTSUP)
    );
}

#[test]
fn values_change_size_and_push_others_out() {
    let s = new_fat(12, 77, 0, 0);
    for i in 0..30 {
        add(&s, &format!("k{i}"), ZapValue::U64(i)).unwrap();
    }
    for round in 0..4 {
        for i in 0..30u64 {
            let value = ZapValue::Bytes(vec![i as u8; 1 + (i as usize * 37 + round * 211) % 900]);
            put(
                &s,
                Ask::Name(format!("k{i}").as_bytes()),
                &value.stored().unwrap(),
                Put::Update,
                None,
                256,
            )
            .unwrap();
            assert_eq!(get(&s, &format!("k{i}")), Some(value));
        }
        audit(&s);
    }
    let huge = ZapValue::Bytes(vec![1; 8193]);
    assert!(huge.stored().err().unwrap().is(TOO_BIG));
    assert!(
        add(&s, "huge", ZapValue::Bytes(vec![1; 8000]))
            .unwrap_err()
            .is(TOO_BIG)
    );
}

#[test]
fn hostile_leaves_give_errors_and_never_loops() {
    let s = new_fat(12, 5, 0, 0);
    for i in 0..40 {
        add(&s, &format!("name{i}"), ZapValue::Bytes(vec![7; i])).unwrap();
    }
    let good = s.blocks.borrow().clone();
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        *s.blocks.borrow_mut() = good.clone();
        {
            let mut blocks = s.blocks.borrow_mut();
            for _ in 0..1 + random() % 4 {
                let block = blocks.get_mut(&(random() % 2)).unwrap();
                let at = (random() as usize) % if random() % 2 == 0 { 128 } else { block.len() };
                block[at] = if random() % 3 == 0 {
                    0xff
                } else {
                    random() as u8
                };
            }
        }
        let i = random() % 40;
        let _ = lookup(&s, Ask::Name(format!("name{i}").as_bytes()), 256);
        let mut scratch = Vec::new();
        let mut at = Some(0);
        let mut steps = 0;
        while let Some(hash) = at {
            at = list_leaf(&s, (hash, 0), &mut scratch, |_, l| {
                l.leaf.first_int(&l.entry).map(|_| true)
            })
            .ok()
            .and_then(|r| r.0);
            steps += 1;
            assert!(steps < 1 << 16);
        }
        let name = format!("name{i}");
        let aim = take_aim(&s, Ask::Name(name.as_bytes()), MatchType::Exact, 256);
        let _ = aim.and_then(|aim| remove(&s, aim, true));
        let _ = add(&s, "another", ZapValue::U64(1));
    }
}

#[test]
fn siblings_that_became_small_are_one_leaf_again_and_keep_their_entries() {
    let s = new_fat(14, SALT, 0, 0);
    let names: Vec<String> = (0..20_000).map(|i| format!("file{i:07}")).collect();
    for (i, name) in names.iter().enumerate() {
        add(&s, name, ZapValue::U64(i as u64)).unwrap();
    }
    let full = audit(&s);
    for (i, name) in names.iter().enumerate() {
        if i % 20 != 7 {
            assert!(remove_name(&s, name));
        }
        if i % 5000 == 4999 {
            audit(&s);
        }
    }
    let h = audit(&s);
    assert_eq!(h.entries, 1000);
    assert!(
        full.leafs >= 128 && h.leafs <= 32,
        "{} leaves became {}",
        full.leafs,
        h.leafs
    );
    assert_eq!(
        s.blocks.borrow().len() as u64,
        h.leafs + 1,
        "merged leaves are holes"
    );
    for (i, name) in names.iter().enumerate() {
        let want = (i % 20 == 7).then_some(ZapValue::U64(i as u64));
        assert_eq!(get(&s, name), want);
    }
    assert_eq!(list(&s, (0, 0)).len(), 1000);
}

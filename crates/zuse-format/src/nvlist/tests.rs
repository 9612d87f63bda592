//! Vectors produced by the OpenZFS library.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

fn one(name: &str, value: impl Into<NvValue>) -> NvList {
    NvList::new().with(name, value)
}

fn check(list: &NvList, middle: &str, phantom: usize) {
    let mut want = hex("01010000 00000000 00000001");
    want.extend(hex(middle));
    want.extend(vec![0; 8 + phantom]);
    let got = list.encode_xdr();
    assert_eq!(got, want, "{list:?}");
    assert_eq!(&NvList::decode(&got).unwrap(), list);
}

#[test]
fn xdr_is_byte_exact_with_the_openzfs_library() {
    check(&NvList::new(), "", 0);
    check(
        &one("version", 5000u64),
        "00000024 00000020 00000007 76657273 696f6e00 00000008 00000001 00000000 00001388",
        0,
    );
    check(
        &one("name", "tank"),
        "00000020 00000020 00000004 6e616d65 00000009 00000001 00000004 74616e6b",
        0,
    );
    check(
        &one("s", ""),
        "0000001c 00000020 00000001 73000000 00000009 00000001 00000000",
        0,
    );
    check(
        &one("flag", NvValue::Boolean),
        "00000018 00000018 00000004 666c6167 00000001 00000000",
        0,
    );
    check(
        &one("bv", true),
        "0000001c 00000020 00000002 62760000 00000015 00000001 00000001",
        0,
    );
    check(
        &one("holes", vec![1u64, 0x0102_0304_0506_0708]),
        "00000030 00000028 00000005 686f6c65 73000000 00000010 00000002 00000002 00000000 00000001 01020304 05060708",
        0,
    );
    check(
        &one("sa", vec!["a".to_owned(), "bcd".to_owned()]),
        "00000028 00000030 00000002 73610000 00000011 00000002 00000001 61000000 00000003 62636400",
        0,
    );
    check(
        &one("t", one("id", 0u64)),
        "00000048 00000030 00000001 74000000 00000013 00000001 00000000 00000001 00000020 00000020 00000002 69640000 00000008 00000001 00000000 00000000 00000000 00000000",
        0,
    );
    check(
        &one("children", vec![one("id", 0u64), NvList::new()]),
        "0000005c 00000060 00000008 6368696c 6472656e 00000014 00000002 00000000 00000001 00000020 00000020 00000002 69640000 00000008 00000001 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000",
        0,
    );
}

#[test]
fn xdr_of_empty_arrays_and_rare_types_is_byte_exact() {
    check(
        &one("e", Vec::<u64>::new()),
        "0000001c 00000018 00000001 65000000 00000010 00000000",
        4,
    );
    check(
        &one("spares", Vec::<NvList>::new()),
        "0000001c 00000018 00000006 73706172 65730000 00000014 00000000",
        0,
    );
    check(
        &one("u8", NvValue::Uint8(200)),
        "0000001c 00000020 00000002 75380000 00000017 00000001 ffffffc8",
        0,
    );
    check(
        &one("ba", NvValue::ByteArray(vec![1, 2, 3, 255, 5])),
        "00000020 00000020 00000002 62610000 0000000a 00000005 010203ff 05000000",
        0,
    );
    check(
        &one("i8a", NvValue::Int8Array(vec![-1, 2, 3])),
        "00000028 00000020 00000003 69386100 00000019 00000003 00000003 ffffffff 00000002 00000003",
        0,
    );
    check(
        &one("i32a", NvValue::Int32Array(vec![-1, 5])),
        "00000024 00000020 00000004 69333261 0000000d 00000002 00000002 ffffffff 00000005",
        0,
    );
    check(
        &one("d", NvValue::Double(1.5)),
        "00000020 00000020 00000001 64000000 0000001b 00000001 3ff80000 00000000",
        0,
    );
}

#[test]
fn native_is_byte_exact_with_the_openzfs_library() {
    for (list, want) in [
        (
            one("version", 5000u64),
            "00010000 00000000 01000000 20000000 08000000 01000000 08000000 76657273 696f6e00 88130000 00000000 00000000",
        ),
        (
            one("t", one("id", 0u64)),
            "00010000 00000000 01000000 30000000 02000000 01000000 13000000 74000000 00000000 00000000 01000000 00000000 00000000 00000000 00000000 20000000 03000000 01000000 08000000 69640000 00000000 00000000 00000000 00000000 00000000",
        ),
    ] {
        let want = hex(want);
        assert_eq!(list.encode(NvEncoding::Native), want);
        assert_eq!(NvList::decode(&want).unwrap(), list);
    }
}

fn everything() -> NvList {
    NvList::new()
        .with("boolean", NvValue::Boolean)
        .with("byte", NvValue::Byte(200))
        .with("int16", NvValue::Int16(-2))
        .with("uint16", NvValue::Uint16(65535))
        .with("int32", -5i32)
        .with("uint32", 7u32)
        .with("int64", -9i64)
        .with("uint64", u64::MAX)
        .with("string", "text")
        .with("bytes", NvValue::ByteArray(vec![1, 2, 3]))
        .with("int16s", NvValue::Int16Array(vec![-1, 2, 3]))
        .with("uint16s", NvValue::Uint16Array(vec![1, 65535]))
        .with("int32s", NvValue::Int32Array(vec![-1]))
        .with("uint32s", NvValue::Uint32Array(vec![]))
        .with("int64s", NvValue::Int64Array(vec![-1, 1]))
        .with("uint64s", vec![1u64, 2])
        .with("strings", vec![String::new(), "b".to_owned()])
        .with("hrtime", NvValue::Hrtime(12))
        .with(
            "list",
            one("inner", one("deep", 1u64)).with("empty", Vec::<u64>::new()),
        )
        .with(
            "lists",
            vec![
                one("a", 1u64),
                NvList::new(),
                one("b", vec![one("c", true)]),
            ],
        )
        .with("bool", false)
        .with("int8", NvValue::Int8(-3))
        .with("uint8", NvValue::Uint8(250))
        .with("bools", NvValue::BooleanArray(vec![true, false]))
        .with("int8s", NvValue::Int8Array(vec![-3]))
        .with("uint8s", NvValue::Uint8Array(vec![3, 200]))
        .with("double", NvValue::Double(-0.5))
}

#[test]
fn every_type_survives_both_encodings() {
    let list = everything();
    for encoding in [NvEncoding::Xdr, NvEncoding::Native] {
        assert_eq!(
            NvList::decode(&list.encode(encoding)).unwrap(),
            list,
            "{encoding:?}"
        );
    }
}

#[test]
fn the_label_of_the_chapter_packs_to_1112_bytes() {
    let guid = 0x2222_2222_2222_2222u64;
    let tree = NvList::new()
        .with("type", "file")
        .with("id", 0u64)
        .with("guid", guid)
        .with("path", "/d0")
        .with("metaslab_array", 68u64)
        .with("metaslab_shift", 24u64)
        .with("ashift", 12u64)
        .with("asize", 263_716_864u64)
        .with("min_alloc", 4096u64)
        .with("is_log", 0u64)
        .with("create_txg", 4u64);
    let features = NvList::new()
        .with("com.delphix:hole_birth", NvValue::Boolean)
        .with("com.delphix:embedded_data", NvValue::Boolean)
        .with("com.klarasystems:vdev_zaps_v2", NvValue::Boolean);
    let label = NvList::new()
        .with("version", 5000u64)
        .with("name", "tank")
        .with("state", 0u64)
        .with("txg", 4u64)
        .with("pool_guid", 0x1111_1111_1111_1111u64)
        .with("errata", 0u64)
        .with("min_alloc", 4096u64)
        .with("max_alloc", 4096u64)
        .with("hostname", "host")
        .with("top_guid", guid)
        .with("guid", guid)
        .with("vdev_children", 1u64)
        .with("vdev_tree", tree)
        .with("features_for_read", features);
    let packed = label.encode_xdr();
    assert_eq!(packed.len(), 1112);
    let back = NvList::decode(&packed).unwrap();
    assert_eq!(
        back.get_list("vdev_tree").unwrap().get_str("path"),
        Some("/d0")
    );
    assert!(
        back.get_list("features_for_read")
            .unwrap()
            .get_bool_flag("com.delphix:hole_birth")
    );
}

#[test]
fn damaged_lists_are_refused_and_never_panic() {
    let list = everything();
    for encoding in [NvEncoding::Xdr, NvEncoding::Native] {
        let good = list.encode(encoding);
        for end in 0..good.len() - 16 {
            assert!(
                NvList::decode(&good[..end]).is_err(),
                "{encoding:?} cut at {end}"
            );
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = NvList::decode(&bad);
            }
        }
    }
}

#[test]
fn nesting_ends_somewhere() {
    let mut list = NvList::new();
    for _ in 0..MAX_DEPTH {
        list = one("x", list);
    }
    for encoding in [NvEncoding::Xdr, NvEncoding::Native] {
        assert!(NvList::decode(&list.encode(encoding)).is_err());
        assert!(NvList::decode(&list.get_list("x").unwrap().encode(encoding)).is_ok());
    }
}

#[test]
fn a_native_list_of_a_big_endian_host_is_unsupported() {
    assert!(
        NvList::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
            .unwrap_err()
            .kind
            .is_none()
    );
    assert!(NvList::decode(&[2, 0, 0, 0]).unwrap_err().kind.is_some());
}

#[test]
fn insert_moves_a_name_to_the_end_and_replace_keeps_its_place() {
    let mut list = one("a", 1u64).with("b", 2u64);
    list.insert("a", 3u64);
    assert_eq!(list.iter().map(|(n, _)| n).collect::<Vec<_>>(), ["b", "a"]);
    list.replace("b", 4u64);
    assert_eq!(list.pairs[0], ("b".to_owned(), NvValue::Uint64(4)));
    assert_eq!(
        (list.get_u64("a"), list.get_u64("zz"), list.get_str("a")),
        (Some(3), None, None)
    );
}

#[test]
fn a_string_ends_at_its_first_nul_in_both_encodings() {
    let list = NvList::new().with("name", "inside");
    let mut bytes = list.encode_xdr();
    let at = bytes.windows(6).position(|w| w == b"inside").unwrap();
    bytes[at + 2] = 0;
    let cut = NvList::decode(&bytes).unwrap();
    assert_eq!(cut.get_str("name"), Some("in"));
    let again = NvList::decode(&cut.encode(NvEncoding::Native)).unwrap();
    assert_eq!(again, cut);
}

#[test]
fn names_that_the_native_form_has_no_room_for_are_refused() {
    let longest = "n".repeat(MAX_NAME);
    let list = NvList::new().with(&longest, 5u64);
    for encoding in [NvEncoding::Xdr, NvEncoding::Native] {
        assert_eq!(NvList::decode(&list.encode(encoding)).as_ref(), Ok(&list));
    }
    let list = NvList::new().with(&format!("{longest}n"), 5u64);
    let error = NvList::decode(&list.encode_xdr()).unwrap_err();
    assert!(error.to_string().contains("32767 bytes"), "{error}");
    // Each of these bytes becomes three.
    let mut bytes = NvList::new().with(&"n".repeat(12_000), 5u64).encode_xdr();
    bytes
        .iter_mut()
        .filter(|b| **b == b'n')
        .for_each(|b| *b = 0xff);
    let error = NvList::decode(&bytes).unwrap_err();
    assert!(error.to_string().contains("36000 bytes"), "{error}");
}

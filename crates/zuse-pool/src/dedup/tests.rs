//! The examples of `docs/format/04b-dedup-brt-scan.md`, 8.1 and 8.2.

use super::{Figures, Histogram, Key, form, records, value};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let pairs = digits.as_chunks::<2>().0.iter();
    pairs
        .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn an_entry_of_the_old_form_is_read() {
    let raw = bytes("8e 80 00 01 45 01 b0 01 65 00 01 46 00 09 c6");
    let entry = value(&raw, false, "here").unwrap();
    let [only] = entry.as_slice() else {
        panic!("{entry:?}")
    };
    assert_eq!((only.slot, only.references, only.birth), (1, 1, 9));
    assert_eq!(only.dvas[0].offset(), 0x36000);
    assert_eq!(only.dvas[0].asize(), 0x20000);
}

#[test]
fn a_log_is_read_up_to_the_first_record_that_is_none() {
    let mut block = bytes(
        "0178000000000103 1e90297d5b61ed38 1ba85b28e7cb6631 974fa3635f5a9b4d 569cf0c3d5a24665 ff00ff0002000000",
    );
    for word in [0x100u64, 0x1b0, 0, 0, 0, 0, 1, 9, 0x6b01_f1ee] {
        block.extend(word.to_le_bytes());
    }
    block.resize(4096, 0);
    let mut found = Vec::new();
    records(&block, "here", &mut |key, _, entry| {
        found.push((key, entry))
    })
    .unwrap();
    let [(key, entry)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(key.checksum[0], 0x38ed_615b_7d29_901e);
    assert_eq!((key.lsize(), key.psize()), (131_072, 131_072));
    let bp = entry[0].pointer(key, 8);
    assert_eq!(Key::of(&bp), *key);
    assert_eq!(bp.dva(0).offset(), 0x36000);
}

#[test]
fn bytes_that_are_no_entry_are_refused() {
    for raw in ["", "82 00", "8e", "90 00"] {
        assert!(value(&bytes(raw), true, "here").is_err(), "{raw}");
    }
    // A record that goes beyond its block, and one of an unknown type.
    for head in ["01ffff0000000000", "0278000000000000"] {
        let mut block = bytes(head);
        block.resize(256, 0);
        assert!(
            records(&block, "here", &mut |_, _, _| {}).is_err(),
            "{head}"
        );
    }
}

#[test]
fn blocks_are_counted_by_powers_of_two() {
    let block = Figures {
        blocks: 1,
        lsize: 131_072,
        psize: 131_072,
        dsize: 131_072,
    };
    let mut histogram = Histogram::default();
    histogram.add(&block, 1);
    histogram.add(&block, 3);
    let size = 131_072;
    let mut words = vec![1, size, size, size, 1, size, size, size];
    words.extend([1, size, size, size, 3, 3 * size, 3 * size, 3 * size]);
    words.resize(512, 0);
    assert_eq!(histogram, Histogram::parse(&words));
    assert_eq!(histogram.total().1.blocks, 4);
}

#[test]
fn entries_are_written_as_openzfs_writes_them() {
    for raw in [
        "8e 80 00 01 45 01 b0 01 65 00 01 46 00 09 c6",
        "8e 80 00 01 45 01 50 03 65 00 03 46 00 0a c6",
    ] {
        let raw = bytes(raw);
        let entry = value(&raw, false, "here").unwrap();
        assert_eq!(form::value_of(&entry, false), raw);
    }
    let mut flat = vec![0x82];
    for word in [0x100u64, 0x1b0, 0, 0, 0, 0, 1, 9, 0x6b01_f1ee] {
        flat.extend(word.to_le_bytes());
    }
    let entry = value(&flat, true, "here").unwrap();
    assert_eq!(form::value_of(&entry, true), flat);
    // Four slots of noise do not shrink.
    let noise: Vec<u8> = (0..256u32).map(|i| (i * 151 % 255 + 1) as u8).collect();
    let plain: Vec<u8> = [0x82].into_iter().chain(noise).collect();
    let entry = value(&plain, false, "here").unwrap();
    assert_eq!(form::value_of(&entry, false), plain);
}

#[test]
fn a_record_is_written_as_it_is_read() {
    let mut block = bytes(
        "0178000000000103 1e90297d5b61ed38 1ba85b28e7cb6631 974fa3635f5a9b4d 569cf0c3d5a24665 ff00ff0002000000",
    );
    for word in [0x100u64, 0x1b0, 0, 0, 0, 0, 1, 9, 0x6b01_f1ee] {
        block.extend(word.to_le_bytes());
    }
    for class in [None, Some(1), Some(2)] {
        let mut found = Vec::new();
        let mut whole = match class {
            None => block.clone(),
            Some(_) => {
                let (key, _, entry) = &read_one(&block);
                form::record(key, class, entry)
            }
        };
        whole.resize(512, 0);
        records(&whole, "here", &mut |k, c, e| found.push((k, c, e))).unwrap();
        let [(key, have, entry)] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(*have, class);
        assert_eq!(form::record(key, class, entry), whole[..120]);
    }
}

fn read_one(block: &[u8]) -> (Key, Option<usize>, super::Entry) {
    let mut found = Vec::new();
    let mut whole = block.to_vec();
    whole.resize(512, 0);
    records(&whole, "here", &mut |k, c, e| found.push((k, c, e))).unwrap();
    found.remove(0)
}

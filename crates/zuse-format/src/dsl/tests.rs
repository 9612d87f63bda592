//! Bonus bytes from a pool written by OpenZFS 2.4.4.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn the_golden_directory_reads_and_writes_back() {
    let mut raw = hex(
        "eeef016b00000000 4e00000000000000 2000000000000000 3000000000000000
        4d00000000000000 00000c0000000000 00000b0000000000 00000b0000000000
        0000000000000000 0000000000000000 4c00000000000000 0000000000000000
        0100000000000000 0000090000000000 0000030000000000 0000000000000000",
    );
    raw.resize(256, 0);
    let dir = DslDirPhys::parse(&raw).unwrap();
    assert_eq!(
        (
            dir.head_dataset,
            dir.parent,
            dir.origin,
            dir.child_map,
            dir.props
        ),
        (78, 32, 48, 77, 76)
    );
    assert_eq!(
        (dir.used_bytes, dir.compressed_bytes, dir.flags),
        (786_432, 720_896, DIR_FLAG_USED_BREAKDOWN)
    );
    assert_eq!(dir.used_breakdown[UsedKind::Head as usize], 589_824);
    assert_eq!(dir.used_breakdown[UsedKind::Snap as usize], 196_608);
    assert_eq!(dir.to_bytes(), raw);
    assert!(DslDirPhys::parse(&raw[..255]).is_err());
}

#[test]
fn the_golden_dataset_reads_and_writes_back() {
    let mut raw = hex(
        "4b00000000000000 5e00000000000000 0e00000000000000 0000000000000000
        4f00000000000000 0000000000000000 eeef016b00000000 0500000000000000
        5f00000000000000 0000090000000000 0080080000000000 0080080000000000
        0000000000000000 ab98579a11cc3a00 683fba9ffa643160 0400000000000000
        0800000000000000 4007000000000000 0800000000000000 4082000000000000
        0000000000000000 0000000000000000 0700070002070b80 0000000000000000
        0000000000000000 0000000000000000 0900000000000000 0100000000000000
        984e390c02000000 4c9e3dc7df070000 5478cab7c2270f00 8ed3c9cc8d957713",
    );
    raw.resize(320, 0);
    let ds = DslDatasetPhys::parse(&raw).unwrap();
    assert_eq!(
        (
            ds.dir,
            ds.prev_snap,
            ds.prev_snap_txg,
            ds.snapnames,
            ds.creation_txg
        ),
        (75, 94, 14, 79, 5)
    );
    assert_eq!(
        (ds.deadlist, ds.referenced_bytes, ds.guid),
        (95, 589_824, 0x6031_64fa_9fba_3f68)
    );
    assert_eq!(
        (ds.flags, ds.is_snapshot()),
        (DS_FLAG_UNIQUE_ACCURATE, false)
    );
    assert_eq!(
        (
            ds.bp.dva(0).offset(),
            ds.bp.dva(1).offset(),
            ds.bp.object_type()
        ),
        (0xe8000, 0x104_8000, 11)
    );
    assert_eq!(
        (ds.bp.lsize(), ds.bp.logical_birth(), ds.bp.fill()),
        (4096, 9, 1)
    );
    assert_eq!(ds.to_bytes(), raw);
}

#[test]
fn lists_keep_the_length_they_had() {
    let full = BpobjPhys {
        num_blkptrs: 1,
        bytes: 2,
        comp: 3,
        uncomp: 4,
        subobjs: 5,
        num_subobjs: 6,
        num_freed: 7,
        size: BpobjPhys::SIZE_V3,
    };
    let raw = full.to_bytes();
    assert_eq!(BpobjPhys::parse(&raw), Ok(full));
    for size in [16, 32, 48] {
        let short = BpobjPhys::parse(&raw[..size]).unwrap();
        assert_eq!(
            (short.size, short.to_bytes().as_slice()),
            (size, &raw[..size])
        );
    }
    assert_eq!(BpobjPhys::parse(&raw[..32]).unwrap().subobjs, 0);
    assert!(BpobjPhys::parse(&raw[..8]).is_err());
}

#[test]
fn stored_pointers_lose_what_lists_do_not_keep() {
    let mut bp = BlockPointer {
        words: std::array::from_fn(|i| 10 + i as u64),
    };
    bp.words[6] = 0x8019_0702_0007_0007;
    let stored = BpobjPhys::stored_pointer(&bp, true);
    assert_eq!(
        (
            stored.words[11],
            stored.checksum(),
            stored.words[..10] == bp.words[..10]
        ),
        (1, [0; 4], true)
    );
    assert!(
        BpobjPhys::is_freed(&stored)
            && !BpobjPhys::is_freed(&BpobjPhys::stored_pointer(&bp, false))
    );
    bp.set_dedup(true);
    assert_eq!(
        BpobjPhys::stored_pointer(&bp, false).checksum(),
        bp.checksum()
    );
    let embedded = BlockPointer::embed(b"data", 512, 15, 19, 9).unwrap();
    let stored = BpobjPhys::stored_pointer(&embedded, false);
    assert_eq!(stored.words.iter().filter(|w| **w != 0).count(), 2);
    assert!(stored.is_embedded());
}

#[test]
fn bookmarks_are_three_or_twelve_words() {
    let short = BookmarkPhys {
        guid: 1,
        creation_txg: 2,
        creation_time: 3,
        ..BookmarkPhys::default()
    };
    assert_eq!(short.to_words(true), [1, 2, 3]);
    assert_eq!(BookmarkPhys::from_words(&[1, 2, 3]), Ok(short));
    let long = BookmarkPhys {
        flags: 3,
        freed_before_next: [4, 5, 6],
        ivset_guid: 7,
        ..short
    };
    assert_eq!(BookmarkPhys::from_words(&long.to_words(true)), Ok(long));
    assert_eq!(long.to_words(false).len(), 3);
    assert!(BookmarkPhys::from_words(&[1]).is_err());
}

#[test]
fn queues_and_redaction_lists_round_trip() {
    let tree = BptreePhys {
        begin: 0,
        end: 1,
        bytes: 835_584,
        comp: 794_624,
        uncomp: 794_624,
    };
    assert_eq!(BptreePhys::parse(&tree.to_bytes()), Ok(tree));
    assert_eq!(tree.to_bytes().len(), 40);
    let entry = BptreeEntry {
        bp: BlockPointer::HOLE,
        birth_txg: 1,
        resume: [u64::MAX, 1, 0, 0x10],
    };
    assert_eq!(entry.to_bytes().len(), BptreeEntry::SIZE);
    assert_eq!(BptreeEntry::parse(&entry.to_bytes()), Ok(entry));
    let list = RedactionListPhys {
        last_object: u64::MAX,
        last_blkid: u64::MAX,
        num_entries: 2,
        snaps: vec![8, 9],
    };
    assert_eq!(RedactionListPhys::parse(&list.to_bytes()), Ok(list.clone()));
    assert!(list.is_complete());
    let mut lying = list.to_bytes();
    lying[24] = 200;
    assert!(RedactionListPhys::parse(&lying).is_err());
    let deadlist = DeadlistPhys {
        used: 1,
        compressed: 2,
        uncompressed: 3,
    };
    assert_eq!(
        (
            deadlist.to_bytes().len(),
            DeadlistPhys::parse(&deadlist.to_bytes())
        ),
        (320, Ok(deadlist))
    );
}

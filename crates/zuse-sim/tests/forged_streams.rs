//! Hand-written streams with valid checksums. What they request is refused with an error that names
//! the place. Memory stays bounded, and no dataset or thread of them remains.

#[allow(dead_code)]
#[path = "support/counting.rs"]
mod counting;

use std::sync::Arc;

use counting::Counting;
use zuse::stream::record::{
    Begin, EmbeddedRecord, FLAG_FREERECORDS, FLAG_SPILL_BLOCK, Header, OBJECT_SPILL, ObjectRecord,
    Record, SpillRecord, WriteRecord,
};
use zuse::stream::{StreamWriter, features};
use zuse::{Error, ListedKinds, Pool, ReceiveRequest};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_sim::memory_pool::{memory_pool, narrow};
use zuse_sim::round_trip::check_but_contents;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MEMORY: u64 = 256 << 20;

fn pool(name: &str) -> Arc<Pool> {
    memory_pool(name, 256 << 20, 9, narrow(32 << 20)).unwrap().0
}

fn begin(name: &str, word: u64, list: &NvList) -> (Record, Vec<u8>) {
    let payload = match list.is_empty() {
        true => Vec::new(),
        false => list.encode(zuse_format::nvlist::NvEncoding::Native),
    };
    let begin = Begin {
        version_info: Begin::version_word(Header::Substream, word | features::SA_SPILL),
        creation_time: 1_700_000_000,
        objset_type: 2,
        flags: FLAG_FREERECORDS | FLAG_SPILL_BLOCK,
        to_guid: 77,
        to_name: name.to_owned(),
        payload_len: payload.len() as u32,
        ..Begin::default()
    };
    (Record::Begin(begin), payload)
}

type Parts = Vec<(Record, Vec<u8>)>;

fn sealed(parts: &[(Record, Vec<u8>)]) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new());
    for (record, payload) in parts {
        out.record(record, payload).unwrap();
    }
    out.end(77).unwrap();
    out.into_inner().unwrap()
}

fn stream(parts: Parts) -> Vec<u8> {
    let mut all = vec![begin("a/b@s", 0, &NvList::new())];
    all.extend(parts);
    sealed(&all)
}

fn object(change: impl FnOnce(&mut ObjectRecord)) -> (Record, Vec<u8>) {
    let mut record = ObjectRecord {
        object: 1,
        object_type: 19,
        block_size: 4096,
        slots: 1,
        ..ObjectRecord::default()
    };
    change(&mut record);
    let bonus = vec![0; (record.bonus_len as usize).next_multiple_of(8)];
    (Record::Object(record), bonus)
}

fn write(offset: u64, bytes: &[u8], change: impl FnOnce(&mut WriteRecord)) -> (Record, Vec<u8>) {
    let mut record = WriteRecord {
        object: 1,
        object_type: 19,
        offset,
        logical_size: bytes.len() as u64,
        checksum_type: 2,
        ..WriteRecord::default()
    };
    change(&mut record);
    (Record::Write(record), bytes.to_vec())
}

fn into(target: &str) -> ReceiveRequest {
    ReceiveRequest {
        target: target.into(),
        ..ReceiveRequest::default()
    }
}

/// Receives. The result must be a typed error with bounded memory, and no dataset other than the
/// pool's own may exist.
fn refused(pool: &Arc<Pool>, what: &str, bytes: &[u8]) -> String {
    let start = counting::start();
    let done = pool.receive(bytes, &into("tank/new"), &mut |_| {});
    let peak = counting::peak().saturating_sub(start);
    assert!(peak < MEMORY, "{what}: {} MiB of memory", peak >> 20);
    let error = done.expect_err(what);
    assert!(
        matches!(
            error,
            Error::Corrupt { .. } | Error::Refused { .. } | Error::Unsupported { .. }
        ),
        "{what}: {error:?}"
    );
    let names: Vec<_> = pool
        .list("tank", None, ListedKinds::WITH_SNAPSHOTS)
        .unwrap()
        .into_iter()
        .map(|l| l.name)
        .collect();
    assert_eq!(names, ["tank"], "{what} left something");
    error.to_string()
}

fn front(top: &str, list: &NvList) -> Vec<u8> {
    let payload = list.encode_xdr();
    let mut out = StreamWriter::new(Vec::new());
    let begin = Begin {
        version_info: Begin::version_word(Header::Package, 0),
        to_name: top.to_owned(),
        payload_len: payload.len() as u32,
        ..Begin::default()
    };
    out.record(&Record::Begin(begin), &payload).unwrap();
    let checksum = out.sums();
    out.bare(&Record::End {
        checksum,
        to_guid: 0,
    })
    .unwrap();
    out.into_inner().unwrap()
}

type Case = (&'static str, Parts);

fn embedded(change: impl FnOnce(&mut EmbeddedRecord)) -> (Record, Vec<u8>) {
    let mut record = EmbeddedRecord {
        object: 1,
        length: 4096,
        compression: 2,
        lsize: 4096,
        psize: 16,
        ..EmbeddedRecord::default()
    };
    change(&mut record);
    let len = (record.psize as usize).next_multiple_of(8);
    (Record::WriteEmbedded(record), vec![1; len])
}

fn spill(length: u64) -> (Record, Vec<u8>) {
    let record = SpillRecord {
        object: 1,
        length,
        ..SpillRecord::default()
    };
    (Record::Spill(record), vec![3; length as usize])
}

fn free(object: u64, offset: u64, length: u64) -> (Record, Vec<u8>) {
    let record = Record::Free {
        object,
        offset,
        length,
        to_guid: 77,
    };
    (record, Vec::new())
}

fn forged_objects() -> Vec<Case> {
    vec![
        ("object 0", vec![object(|o| o.object = 0)]),
        ("object -1", vec![object(|o| o.object = u64::MAX)]),
        ("object -2", vec![object(|o| o.object = u64::MAX - 1)]),
        ("object 2^48", vec![object(|o| o.object = 1 << 48)]),
        (
            "slots over the block's end",
            vec![object(|o| (o.object, o.slots) = (31, 2))],
        ),
        ("33 slots", vec![object(|o| (o.object, o.slots) = (32, 33))]),
        ("a block of 513 bytes", vec![object(|o| o.block_size = 513)]),
        ("no block", vec![object(|o| o.block_size = 0)]),
        (
            "a block of 32 MiB",
            vec![object(|o| o.block_size = 32 << 20)],
        ),
        (
            "a bonus of 400 bytes",
            vec![object(|o| (o.bonus_type, o.bonus_len) = (44, 400))],
        ),
        (
            "a bonus of 300 and a spill",
            vec![object(|o| {
                (o.bonus_type, o.bonus_len, o.flags) = (44, 300, OBJECT_SPILL)
            })],
        ),
        ("a label's checksum", vec![object(|o| o.checksum = 3)]),
        ("a gang header's checksum", vec![object(|o| o.checksum = 4)]),
        ("a log's checksum", vec![object(|o| o.checksum = 5)]),
        ("a new log's checksum", vec![object(|o| o.checksum = 9)]),
        ("checksum 15", vec![object(|o| o.checksum = 15)]),
        ("compression \"empty\"", vec![object(|o| o.compress = 4)]),
        ("compression 17", vec![object(|o| o.compress = 17)]),
        ("type 0", vec![object(|o| o.object_type = 0)]),
        (
            "raw fields",
            vec![object(|o| (o.levels, o.indirect_shift) = (1, 17))],
        ),
    ]
}

fn forged_writes() -> Vec<Case> {
    let page = [7u8; 4096];
    vec![
        ("a write before its object", vec![write(0, &page, |_| {})]),
        (
            "a write into object 0",
            vec![object(|_| {}), write(0, &page, |w| w.object = 0)],
        ),
        (
            "a write into object -1",
            vec![object(|_| {}), write(0, &page, |w| w.object = u64::MAX)],
        ),
        (
            "writes that go back",
            vec![
                object(|_| {}),
                write(4096, &page, |_| {}),
                write(0, &page, |_| {}),
            ],
        ),
        (
            "a write behind 2^63",
            vec![object(|_| {}), write(1 << 63, &page, |_| {})],
        ),
        (
            "a write that wraps",
            vec![object(|_| {}), write(u64::MAX - 511, &page, |_| {})],
        ),
        (
            "a write with two sizes",
            vec![
                object(|_| {}),
                write(0, &page, |w| {
                    (w.compression, w.compressed_size) = (2, 4096 - 512)
                }),
            ],
        ),
        (
            "a payload that is no lz4",
            vec![
                object(|_| {}),
                write(0, &page[..512], |w| {
                    (w.logical_size, w.compression, w.compressed_size) = (4096, 15, 512)
                }),
            ],
        ),
        (
            "lz4 of the wrong length",
            vec![
                object(|_| {}),
                write(0, &[0; 512], |w| {
                    (w.logical_size, w.compression, w.compressed_size) = (4096, 15, 512)
                }),
            ],
        ),
    ]
}

fn forged_frees_and_ranges() -> Vec<Case> {
    vec![
        (
            "a free that wraps",
            vec![object(|_| {}), free(1, 4096, u64::MAX - 4095)],
        ),
        ("a free before its object", vec![free(1, 0, 4096)]),
        (
            "objects that wrap",
            vec![(
                Record::FreeObjects {
                    first: 2,
                    count: u64::MAX,
                    to_guid: 77,
                },
                Vec::new(),
            )],
        ),
        (
            "an OBJECT_RANGE",
            vec![(
                Record::ObjectRange {
                    first: 0,
                    slots: 32,
                    to_guid: 77,
                    flags: 0,
                    crypt: Default::default(),
                },
                Vec::new(),
            )],
        ),
    ]
}

fn forged_spills() -> Vec<Case> {
    vec![
        (
            "a spill of 100 bytes",
            vec![
                object(|_| {}),
                (
                    Record::Spill(SpillRecord {
                        object: 1,
                        length: 104,
                        ..SpillRecord::default()
                    }),
                    vec![0; 104],
                ),
            ],
        ),
        (
            "a spill where none fits",
            vec![
                object(|o| (o.bonus_type, o.bonus_len) = (44, 320)),
                spill(512),
            ],
        ),
    ]
}

fn forged_embedded_blocks() -> Vec<Case> {
    vec![
        (
            "an embedded block of 113 bytes",
            vec![object(|_| {}), embedded(|e| e.psize = 113)],
        ),
        (
            "an embedded block of nothing",
            vec![object(|_| {}), embedded(|e| e.psize = 0)],
        ),
        (
            "an embedded block that grows",
            vec![object(|_| {}), embedded(|e| e.lsize = 8192)],
        ),
        (
            "an embedded block of a reserved kind",
            vec![object(|_| {}), embedded(|e| e.embedded_type = 1)],
        ),
        (
            "an embedded spill at another offset",
            vec![object(|_| {}), embedded(|e| e.offset = u64::MAX - 4095)],
        ),
        (
            "an embedded spill of 100 bytes",
            vec![
                object(|_| {}),
                embedded(|e| (e.offset, e.lsize) = (u64::MAX - 8191, 100)),
            ],
        ),
        (
            "an embedded spill of 17 MiB",
            vec![
                object(|_| {}),
                embedded(|e| (e.offset, e.lsize) = (u64::MAX - 8191, 17 << 20)),
            ],
        ),
    ]
}

#[test]
fn records_that_no_sender_writes_are_refused() {
    let pool = pool("tank");
    for kind in [
        forged_objects(),
        forged_writes(),
        forged_frees_and_ranges(),
        forged_spills(),
        forged_embedded_blocks(),
    ] {
        for (what, parts) in kind {
            refused(&pool, what, &stream(parts));
        }
    }
    check_but_contents(&pool).unwrap();
    pool.close().unwrap();
}

#[test]
fn a_compressed_bomb_ends_at_the_room_of_the_pool_with_bounded_memory() {
    let pool = pool("tank");
    // 16 MiB of zeros in 2 kB, a hundred times, into an object of small blocks. So no record can be
    // written as it was received.
    let zeros = vec![0u8; 16 << 20];
    let mut packed = Vec::new();
    let level = zuse_codec::ZstdLevel::default();
    zuse_codec::compress(
        zuse_codec::Compression::Zstd,
        level,
        &zeros,
        &mut packed,
        1 << 20,
    )
    .unwrap();
    packed.resize(packed.len().next_multiple_of(512), 0);
    let bomb = |i: u64| {
        write(i * (16 << 20), &packed, |w| {
            (w.logical_size, w.compression, w.compressed_size) =
                (16 << 20, 16, packed.len() as u64);
        })
    };
    let mut parts = vec![object(|o| o.checksum = 2)];
    parts.extend((0..100).map(bomb));
    let start = counting::start();
    let bytes = stream(parts);
    let done = pool.receive(&bytes[..], &into("tank/new"), &mut |_| {});
    let peak = counting::peak().saturating_sub(start);
    assert!(peak < 512 << 20, "{} MiB of memory", peak >> 20);
    // Zeros compress to holes here: all of it may fit.
    match done {
        Ok(()) => {}
        Err(e) => assert!(matches!(e, Error::Refused { .. }), "{e:?}"),
    }
    pool.close().unwrap();
}

#[test]
fn what_begin_asks_for_is_refused_before_anything_is_made() {
    let pool = pool("tank");
    let guids = |n: u64| NvValue::Uint64Array((0..n).collect());
    let mut many = NvList::new();
    many.insert("redact_snaps", guids(5000));
    let mut sources = NvList::new();
    sources.insert("redact_from_snaps", guids(5000));
    let mut deep = NvList::new();
    for _ in 0..200 {
        let mut outer = NvList::new();
        outer.insert("a", deep);
        deep = outer;
    }
    let none = NvList::new();
    for (what, word, list) in [
        ("5000 redaction snapshots", features::REDACTED, &many),
        ("5000 of the source", features::REDACTED, &sources),
        ("redacted by nobody", features::REDACTED, &none),
        ("raw without keys", features::RAW, &none),
        (
            "raw and embedded",
            features::RAW | features::EMBED_DATA,
            &none,
        ),
        ("deduplicated", features::DEDUP, &none),
        ("an unknown feature", 1 << 40, &none),
        ("a reserved feature", 1 << 4, &none),
        ("resuming without a place", features::RESUMING, &none),
        ("a list of 200 levels", 0, &deep),
    ] {
        refused(&pool, what, &sealed(&[begin("a/b@s", word, list)]));
    }
    // A length that is announced only.
    let (mut record, _) = begin("a/b@s", 0, &none);
    for len in [60 << 20, u32::MAX] {
        if let Record::Begin(b) = &mut record {
            b.payload_len = len;
        }
        let mut out = StreamWriter::new(Vec::new());
        out.record(&record, &[0; 4096]).unwrap();
        refused(
            &pool,
            "a payload that is not there",
            &out.into_inner().unwrap(),
        );
    }
    for name in ["a/b", "a/b@", "a/b@s@t", "a/b@../x", "a/b@s/t"] {
        refused(&pool, name, &sealed(&[begin(name, 0, &none)]));
    }
    check_but_contents(&pool).unwrap();
    pool.close().unwrap();
}

#[test]
fn a_package_reaches_nothing_beside_its_target() {
    let pool = pool("tank");
    pool.create_filesystem("tank/box", &[], (0, 0)).unwrap();
    for (top, sent) in [
        ("a/b@s", "a/bc@s"),
        ("a/b@s", "a/b/../../tank@s"),
        ("a/b@s", "a/b//x@s"),
        ("a/b@s", "x/y@s"),
        ("a@s", "ab/c@s"),
    ] {
        for naming in [zuse::Naming::Exact, zuse::Naming::LastOnly] {
            let mut bytes = front(top, &NvList::new());
            bytes.extend(sealed(&[begin(sent, 0, &NvList::new()), object(|_| {})]));
            let target = match naming {
                zuse::Naming::Exact => "tank/new",
                _ => "tank/box",
            };
            let request = ReceiveRequest {
                naming,
                ..into(target)
            };
            let done = pool.receive(&bytes[..], &request, &mut |_| {});
            let names: Vec<_> = pool
                .list("tank", None, ListedKinds::HEADS)
                .unwrap()
                .into_iter()
                .map(|l| l.name)
                .collect();
            let mine = |name: &String| {
                let below = |dir: &str| name == dir || name.starts_with(&format!("{dir}/"));
                name == "tank" || below("tank/new") || below("tank/box")
            };
            assert!(
                done.is_err() && names.iter().all(mine),
                "{top} with {sent}: {done:?}, {names:?}"
            );
        }
    }
    check_but_contents(&pool).unwrap();
    pool.close().unwrap();
}

#[test]
fn a_list_in_front_of_a_package_is_bounded() {
    let pool = pool("tank");
    let mut deep = NvList::new();
    for _ in 0..100_000 {
        let mut outer = NvList::new();
        outer.insert("a", std::mem::take(&mut deep));
        deep = outer;
        if deep.encode_xdr().len() > 4096 {
            break;
        }
    }
    refused(&pool, "a deep list", &front("a/b@s", &deep));
    let mut wide = NvList::new();
    for i in 0..20_000 {
        wide.insert(&format!("{i:x}"), NvValue::Boolean);
    }
    refused(
        &pool,
        "a wide list and nothing behind it",
        &front("a/b@s", &wide),
    );
    check_but_contents(&pool).unwrap();
    pool.close().unwrap();
}

use zuse_base::ByteOrder::Little;
use zuse_base::{Entropy, SeededPrng, Timestamp};

use super::super::Record;
use super::*;
use crate::zil::LogBlock;

/// Numbers and texts of a seeded kind.
struct Any(SeededPrng);

impl Any {
    fn below(&self, n: u64) -> u64 {
        self.0.below(n)
    }

    fn object(&self) -> u64 {
        self.below(1 << 48)
    }

    fn bytes(&self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// Without NUL, not empty.
    fn name(&self) -> Vec<u8> {
        let len = 1 + self.below(300);
        (0..len).map(|_| 1 + self.below(255) as u8).collect()
    }

    fn time(&self) -> Timestamp {
        Timestamp {
            secs: self.0.u64().cast_signed(),
            nanos: self.below(1_000_000_000) as u32,
        }
    }

    fn flags(&self) -> Option<XattrFlags> {
        (self.below(2) == 0).then(|| XattrFlags {
            asked: self.0.u64() as u32,
            values: self.0.u64(),
            crtime: self.time(),
            projid: self.0.u64(),
        })
    }

    fn pointer(&self) -> BlockPointer {
        let bytes = self.bytes(BP_SIZE as u64);
        BlockPointer::at(&bytes, 0).expect("a pointer")
    }

    fn acl<'a>(&self, entries: &'a [u8], old: bool) -> LoggedAcl<'a> {
        LoggedAcl {
            count: if old {
                entries.len() as u64 / 12
            } else {
                self.below(100)
            },
            flags: if old { 0 } else { self.0.u64() },
            entries,
            old,
            order: Little,
        }
    }

    fn create<'a>(&self, mode: u64, texts: [&'a [u8]; 3], acl: bool) -> Create<'a> {
        let [name, target, entries] = texts;
        let is_link = mode & TYPE == SYMLINK;
        Create {
            dir: self.object(),
            object: self.object(),
            slots: 1 + self.below(32) as u8,
            mode,
            uid: self.below(1 << 32),
            gid: self.below(1 << 32),
            generation: self.0.u64(),
            time: self.time(),
            rdev: if is_link { 0 } else { self.0.u64() },
            flags: if is_link { None } else { self.flags() },
            acl: (acl && !is_link).then(|| self.acl(entries, false)),
            name,
            target: if is_link { target } else { &[] },
        }
    }
}

/// Calls `f` with one operation of each kind, with seeded content.
fn each(any: &Any, f: &mut dyn FnMut(&Body<'_>)) {
    let (name, other, value) = (any.name(), any.name(), any.bytes(any.below(5000) + 1));
    let aces = any.bytes(any.below(40));
    let old_aces = any.bytes(12 * any.below(10));
    let texts = [&name[..], &other, &aces];
    for mode in [0o100_644, 0o040_755, SYMLINK | 0o777, 0o020_600] {
        for acl in [false, true] {
            f(&Body::Create(any.create(mode, texts, acl)));
        }
    }
    each_of_names(any, [&name, &other], f);
    each_of_files(any, (&value, [&aces, &old_aces]), f);
}

fn each_of_names(any: &Any, [name, other]: [&[u8]; 2], f: &mut dyn FnMut(&Body<'_>)) {
    let (object, dir) = (any.object(), any.object());
    f(&Body::MakeXattrDir(Create {
        flags: None,
        ..any.create(0o041_777, [&[], &[], &[]], false)
    }));
    f(&Body::Remove { dir, name });
    f(&Body::RemoveDir { dir, name });
    f(&Body::Link { dir, object, name });
    let hole = Create {
        dir: 0,
        flags: None,
        ..any.create(0o020_000, [&[], &[], &[]], false)
    };
    for (exchange, whiteout) in [(false, None), (true, None), (false, Some(hole))] {
        f(&Body::Rename {
            from_dir: dir,
            to_dir: any.object(),
            from: name,
            to: other,
            exchange,
            whiteout,
        });
    }
}

fn each_of_files(
    any: &Any,
    (value, [aces, old_aces]): (&[u8], [&[u8]; 2]),
    f: &mut dyn FnMut(&Body<'_>),
) {
    let (object, name) = (any.object(), any.name());
    let [offset, length] = [(); 2].map(|()| any.0.u64());
    for data in [None, Some(value)] {
        f(&Body::Write {
            object,
            offset,
            length: data.map_or(length, |d| d.len() as u64),
            data,
            block: any.pointer(),
        });
    }
    f(&Body::Extend {
        object,
        size: length,
    });
    f(&Body::Truncate {
        object,
        offset,
        length,
    });
    f(&Body::SetAttr(any_set(any, object)));
    f(&Body::Acl {
        object,
        acl: any.acl(aces, false),
    });
    f(&Body::Acl {
        object,
        acl: any.acl(old_aces, true),
    });
    for value in [None, Some(value)] {
        f(&Body::SetXattr {
            object,
            name: &name,
            value,
        });
    }
    f(&Body::Clone {
        object,
        offset,
        length,
        block_size: any.0.u64(),
        blocks: (0..any.below(70)).map(|_| any.pointer()).collect(),
    });
}

fn any_set(any: &Any, object: u64) -> SetAttr {
    let flags = any.flags();
    SetAttr {
        object,
        mask: any.below(64) | flags.map_or(0, |_| MASK_XVATTR),
        mode: any.below(0o200_000),
        uid: any.below(1 << 32),
        gid: any.below(1 << 32),
        size: any.0.u64(),
        atime: any.time(),
        mtime: any.time(),
        flags,
    }
}

#[test]
fn every_operation_parses_to_what_it_was() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..200 {
        each(&Any(SeededPrng::new(seed)), &mut |body| {
            let bytes = body.to_bytes();
            assert!(bytes.len().is_multiple_of(8), "{body:?}");
            let (_, one) = Record::split(&bytes, Little).expect("split").expect("one");
            assert_eq!(one.len(), bytes.len());
            let record = Record::parse(one, Little).expect("record");
            assert_eq!(&record.body, body, "type {}", record.kind);
            assert_eq!((record.seq, record.txg), (0, 0));
            kinds.insert(record.kind);
        });
    }
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        (1..=24).collect::<Vec<_>>(),
        "every type is written"
    );
}

/// Chapter 05 §11.1: records of OpenZFS are reproduced byte for byte, except for the field that it
/// leaves undefined.
#[test]
fn the_records_of_openzfs_come_out_as_they_are() {
    let block = crate::zil::tests::block();
    let log = LogBlock::parse(&block, Little, false, crate::zil::tests::VERIFIER).expect("block");
    let mut rest = log.records;
    let mut count = 0;
    while let Some((_, one)) = Record::split(rest, Little).expect("split") {
        rest = &rest[one.len()..];
        let record = Record::parse(one, Little).expect("record");
        let mut made = record.body.to_bytes();
        put_u64(&mut made, 16, record.txg);
        put_u64(&mut made, 24, record.seq);
        assert_eq!(made, one, "type {}", record.kind);
        count += 1;
    }
    assert_eq!(count, 5);
}

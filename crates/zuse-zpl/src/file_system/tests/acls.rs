//! ACLs of the intent log, and in NFSv4 form.

use zuse_base::{ByteOrder, Timestamp};
use zuse_format::zil::{Body, Create, LoggedAcl, Record, XattrFlags};

use super::clean;
use super::pool::TestFs;
use crate::credentials::Credentials;
use crate::file_system::FileSystem;
use crate::format_new::FormatOptions;
use crate::{flags, nfs4_acl};

fn root() -> Credentials {
    Credentials::root()
}

fn entry(kind: u16, flags: u16, mask: u32, who: Option<u64>, order: ByteOrder) -> Vec<u8> {
    let mut out = Vec::new();
    let big = order == ByteOrder::Big;
    for word in [kind, flags] {
        out.extend(if big {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }
    out.extend(if big {
        mask.to_be_bytes()
    } else {
        mask.to_le_bytes()
    });
    if let Some(who) = who {
        out.extend(if big {
            who.to_be_bytes()
        } else {
            who.to_le_bytes()
        });
    }
    out
}

fn record(body: Body<'_>) -> Record<'_> {
    Record {
        seq: 1,
        txg: 9,
        kind: 0,
        length: 0,
        case_insensitive: false,
        body,
    }
}

/// Owner and a user may do everything, everyone may read; inherited by what is made inside.
fn rich(order: ByteOrder) -> Vec<u8> {
    let mut bytes = entry(0, 0x1000, 0x1e_01ff, None, order);
    bytes.extend(entry(0, 3, 0x1f_01ff, Some(1000), order));
    bytes.extend(entry(0, 0x4000, 0x12_0089, None, order));
    bytes
}

fn xdr(fs: &FileSystem, name: &[u8]) -> Vec<u32> {
    let found = fs.lookup(&root(), &fs.root().expect("root"), name);
    let xdr = fs.get_xattr(&root(), &found.expect("there"), nfs4_acl::XDR);
    let words = xdr.expect("an ACL");
    let words = words.as_chunks::<4>().0.iter();
    words.map(|w| u32::from_be_bytes(*w)).collect()
}

const RICH: [u32; 15] = [
    0, 0, 1, 0x1e_01ff, 1, 0, 3, 0, 0x1f_01ff, 1000, 0, 0, 1, 0x12_0089, 3,
];

fn set_and_created(version: u64, order: ByteOrder) {
    let t = TestFs::with(&FormatOptions {
        version,
        ..FormatOptions::default()
    });
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"set", 0o640).expect("made");
    let plain = xdr(&t.fs, b"set");
    assert_eq!(plain[1], 3, "what the mode says: {plain:x?}");
    let bytes = rich(order);
    let acl = LoggedAcl {
        count: 3,
        flags: 0,
        entries: &bytes,
        old: false,
        order,
    };
    let object = file.object().0;
    t.fs.replay(&record(Body::Acl { object, acl }), false)
        .expect("an ACL is set");
    let create = Create {
        dir: top.object().0,
        object: object + 40,
        slots: 1,
        mode: 0o40_755,
        uid: 5,
        gid: 6,
        generation: 9,
        time: Timestamp::new(1_600_000_000, 7),
        flags: Some(XattrFlags {
            asked: 2,
            values: 2,
            ..XattrFlags::default()
        }),
        acl: Some(acl),
        name: b"made",
        ..Create::default()
    };
    t.fs.replay(&record(Body::Create(create)), false)
        .expect("a directory is made");
    drop((file, top));
    let t = t.remount();
    let top = t.fs.root().expect("root");
    assert_eq!(xdr(&t.fs, b"set")[2..], RICH);
    assert_eq!(xdr(&t.fs, b"made")[1..], [&[3], &RICH[..]].concat());
    let set =
        t.fs.lookup(&root(), &top, b"set")
            .expect("there")
            .attributes();
    assert_eq!(set.mode, 0o100_744);
    assert_eq!(
        set.flags & (flags::ACL_TRIVIAL | flags::INHERIT_ACE),
        flags::INHERIT_ACE
    );
    let made = t.fs.lookup(&root(), &top, b"made").expect("there");
    assert_eq!(made.attributes().mode, 0o40_755);
    assert_eq!(made.object().0, object + 40);
    // `chmod` makes it trivial again.
    let mode = crate::SetAttr {
        mode: Some(0o600),
        ..crate::SetAttr::default()
    };
    t.fs.setattr(&root(), &made, &mode).expect("chmod");
    assert_eq!(xdr(&t.fs, b"made")[1], 3);
    drop((top, made));
    clean::check(&t.fs);
}

#[test]
fn acls_of_the_log_are_kept_and_shown() {
    set_and_created(5, ByteOrder::Little);
    set_and_created(5, ByteOrder::Big);
}

#[test]
fn acls_of_the_log_fit_znodes_before_system_attributes() {
    set_and_created(4, ByteOrder::Little);
}

#[test]
fn an_acl_of_the_first_versions_and_one_that_needs_an_object_are_kept() {
    let t = TestFs::with(&FormatOptions {
        version: 2,
        ..FormatOptions::default()
    });
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let mut bytes = Vec::new();
    for who in 0..9u32 {
        bytes.extend(who.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend([0; 4]);
    }
    let acl = LoggedAcl {
        count: 9,
        flags: 0,
        entries: &bytes,
        old: true,
        order: ByteOrder::Little,
    };
    let object = file.object().0;
    t.fs.replay(&record(Body::Acl { object, acl }), false)
        .expect("an old ACL is set");
    drop((file, top));
    let t = t.remount();
    let words = xdr(&t.fs, b"f");
    assert_eq!(words[1], 9);
    assert_eq!(words[2 + 8 * 5..], [0, 0, 0, 1, 8]);
    // Its object is freed with the file.
    let top = t.fs.root().expect("root");
    t.fs.unlink(&root(), &top, b"f").expect("unlink");
    drop(top);
    clean::check(&t.fs);
    for (count, entries) in [(8, &bytes[..]), (9, &bytes[..100])] {
        let top = t.fs.root().expect("root");
        let file = t.fs.create(&root(), &top, b"g", 0o644).expect("made");
        let object = file.object().0;
        let acl = LoggedAcl {
            count,
            entries,
            ..acl
        };
        let error = t.fs.replay(&record(Body::Acl { object, acl }), false);
        assert!(
            matches!(error, Err(zuse_base::Error::Corrupt { .. })),
            "{error:?}"
        );
        drop(file);
        t.fs.unlink(&root(), &top, b"g").expect("unlink");
    }
}

//! Block pointers as text: the full line of a root pointer, and the short form of lists.

use std::fmt::Write as _;

use zuse_base::ByteOrder;
use zuse_format::{BlockPointer, BpKind, Protection, object_type};

/// Compression methods by number.
const COMPRESSIONS: [&str; 17] = [
    "inherit",
    "on",
    "uncompressed",
    "lzjb",
    "empty",
    "gzip-1",
    "gzip-2",
    "gzip-3",
    "gzip-4",
    "gzip-5",
    "gzip-6",
    "gzip-7",
    "gzip-8",
    "gzip-9",
    "zle",
    "lz4",
    "zstd",
];

/// Checksums by number.
const CHECKSUMS: [&str; 15] = [
    "inherit",
    "on",
    "off",
    "label",
    "gang_header",
    "zilog",
    "fletcher2",
    "fletcher4",
    "sha256",
    "zilog2",
    "noparity",
    "sha512",
    "skein",
    "edonr",
    "blake3",
];

/// Names of the self-describing types, by how they are byte-swapped.
const NEW_TYPES: [&str; 10] = [
    "uint8", "uint16", "uint32", "uint64", "zap", "dnode", "objset", "znode", "oldacl", "acl",
];

/// The name of an object type.
pub fn type_name(number: u8) -> &'static str {
    if number & object_type::NEW_STYLE == 0 {
        return object_type::title(number);
    }
    NEW_TYPES
        .get(usize::from(number & 0x1f))
        .copied()
        .unwrap_or("unknown")
}

/// The name of a compression method.
pub fn compression(number: u8) -> &'static str {
    COMPRESSIONS
        .get(usize::from(number))
        .copied()
        .unwrap_or("UNKNOWN")
}

/// The name of a checksum.
pub fn checksum(number: u8) -> &'static str {
    CHECKSUMS
        .get(usize::from(number))
        .copied()
        .unwrap_or("UNKNOWN")
}

/// Size after decompression; a hole without properties counts as one sector.
fn lsize(bp: &BlockPointer) -> u64 {
    bp.lsize().max(512)
}

/// Kind and stored bytes of an embedded pointer.
fn embedded(bp: &BlockPointer) -> (u64, u64, u64) {
    let w = bp.words[6];
    (w >> 40 & 0xff, bp.lsize(), (w >> 25 & 0x7f) + 1)
}

/// Four checksum words.
fn words(bp: &BlockPointer) -> String {
    let [a, b, c, d] = bp.checksum();
    format!("{a:016x}:{b:016x}:{c:016x}:{d:016x}")
}

/// The pointer with all its fields.
pub fn full(bp: &BlockPointer) -> String {
    full_as(bp, type_name(bp.object_type()))
}

/// The pointer with all its fields, as that of a block of some kind.
pub fn full_as(bp: &BlockPointer, kind: &str) -> String {
    let what = format!("[L{} {kind}]", bp.level());
    match bp.kind() {
        BpKind::Hole => format!(
            "HOLE {what} size={:x}L birth={}L",
            lsize(bp),
            bp.logical_birth()
        ),
        BpKind::Embedded | BpKind::Unknown => {
            let (kind, logical, physical) = embedded(bp);
            format!(
                "EMBEDDED {what} et={kind} {} size={logical:x}L/{physical:x}P birth={}L",
                compression(bp.compression()),
                bp.logical_birth()
            )
        }
        BpKind::Redacted => format!(
            "REDACTED {what} size={:x}L birth={}L",
            bp.lsize(),
            bp.logical_birth()
        ),
        BpKind::Normal => normal(bp, &what),
    }
}

fn normal(bp: &BlockPointer, what: &str) -> String {
    let mut out = String::new();
    let mut copies = 0;
    for (i, dva) in bp.dvas().enumerate() {
        let _ = write!(
            out,
            "DVA[{i}]=<{}:{:x}:{:x}> ",
            dva.vdev(),
            dva.offset(),
            dva.asize()
        );
        copies += 1;
    }
    if bp.encrypted() {
        let [a, b] = [bp.words[5], bp.words[11] >> 32];
        let _ = write!(out, "salt={:x} iv={a:x}:{b:x} ", bp.words[4]);
    }
    let crypt = match bp.protection() {
        Protection::None => "unencrypted",
        Protection::Encrypted => "encrypted",
        Protection::Authenticated => "authenticated",
        Protection::IndirectMac => "indirect-MAC",
    };
    let order = match bp.byte_order() {
        ByteOrder::Little => "LE",
        ByteOrder::Big => "BE",
    };
    let copies = ["zero", "single", "double", "triple"]
        .get(copies)
        .copied()
        .unwrap_or("many");
    let _ = write!(
        out,
        "{what} {} {} {crypt} {order} {} {} {copies} size={:x}L/{:x}P birth={}L/{}P fill={} cksum={}",
        checksum(bp.checksum_kind()),
        compression(bp.compression()),
        if bp.is_gang() { "gang" } else { "contiguous" },
        if bp.dedup() { "dedup" } else { "unique" },
        bp.lsize(),
        bp.psize(),
        bp.logical_birth(),
        bp.physical_birth(),
        bp.fill(),
        words(bp)
    );
    out
}

/// The short form: the first copy, or all of them from `level` 6 on.
pub fn short(bp: &BlockPointer, level: u8, freed: bool) -> String {
    match bp.kind() {
        BpKind::Embedded | BpKind::Unknown => {
            let (kind, logical, physical) = embedded(bp);
            return format!(
                "EMBEDDED et={kind} {logical:x}L/{physical:x}P B={}",
                bp.logical_birth()
            );
        }
        BpKind::Hole => return format!("0:0:0 {:x}L B={}", lsize(bp), bp.logical_birth()),
        BpKind::Redacted | BpKind::Normal => {}
    }
    let mut out = String::new();
    let copies = if level > 5 { 3 } else { 1 };
    for dva in bp.dvas().take(copies) {
        let gang = if dva.is_gang() { "G" } else { "" };
        let _ = write!(
            out,
            "{}:{:x}:{:x}{gang} ",
            dva.vdev(),
            dva.offset(),
            dva.asize()
        );
    }
    let _ = write!(
        out,
        "{:x}L/{:x}P F={} B={}/{}{} cksum={}",
        bp.lsize(),
        bp.psize(),
        bp.fill(),
        bp.logical_birth(),
        bp.physical_birth(),
        if freed { " FREE" } else { "" },
        words(bp)
    );
    out
}

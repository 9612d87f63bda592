//! Feature flags of a stream: what a receiver must understand.

/// Bits of the feature word (without the header type below them).
pub const DEDUP: u64 = 1;
/// Dedup keys may be used.
pub const DEDUPPROPS: u64 = 1 << 1;
/// System attributes may spill.
pub const SA_SPILL: u64 = 1 << 2;
/// WRITE_EMBEDDED may occur.
pub const EMBED_DATA: u64 = 1 << 16;
/// lz4 payloads.
pub const LZ4: u64 = 1 << 17;
/// Blocks above 128 KiB.
pub const LARGE_BLOCKS: u64 = 1 << 19;
/// The stream resumes an interrupted one.
pub const RESUMING: u64 = 1 << 20;
/// Redacted.
pub const REDACTED: u64 = 1 << 21;
/// WRITE payloads may be compressed.
pub const COMPRESSED: u64 = 1 << 22;
/// Dnodes of several slots.
pub const LARGE_DNODE: u64 = 1 << 23;
/// Raw encrypted blocks.
pub const RAW: u64 = 1 << 24;
/// zstd payloads.
pub const ZSTD: u64 = 1 << 25;
/// Holds are in the package.
pub const HOLDS: u64 = 1 << 26;
/// Names above 255 bytes.
pub const LONGNAME: u64 = 1 << 28;
/// Microzaps above 128 KiB.
pub const LARGE_MICROZAP: u64 = 1 << 29;

/// All flags that a current receiver knows.
pub const SUPPORTED: u64 = 0x3FFB_0004;

/// The pool features that a stream's flags require, by GUID.
pub fn needed(features: u64) -> impl Iterator<Item = &'static str> {
    const TABLE: [(u64, &str); 10] = [
        (EMBED_DATA, "com.delphix:embedded_data"),
        (LZ4, "org.illumos:lz4_compress"),
        (LARGE_BLOCKS, "org.open-zfs:large_blocks"),
        (REDACTED, "com.delphix:redacted_datasets"),
        (LARGE_DNODE, "org.zfsonlinux:large_dnode"),
        (RAW, "com.datto:encryption"),
        (ZSTD, "org.freebsd:zstd_compress"),
        (LONGNAME, "org.zfsonlinux:longname"),
        (LARGE_MICROZAP, "com.klarasystems:large_microzap"),
        (RESUMING, "com.delphix:extensible_dataset"),
    ];
    TABLE
        .into_iter()
        .filter(move |(bit, _)| features & bit != 0)
        .map(|(_, guid)| guid)
}

/// Names of the flags that are set.
pub fn names(features: u64) -> impl Iterator<Item = &'static str> {
    const TABLE: [(u64, &str); 16] = [
        (DEDUP, "dedup"),
        (DEDUPPROPS, "dedupprops"),
        (SA_SPILL, "sa_spill"),
        (EMBED_DATA, "embed_data"),
        (LZ4, "lz4"),
        (LARGE_BLOCKS, "large_blocks"),
        (RESUMING, "resuming"),
        (REDACTED, "redacted"),
        (COMPRESSED, "compressed"),
        (LARGE_DNODE, "large_dnode"),
        (RAW, "raw"),
        (ZSTD, "zstd"),
        (HOLDS, "holds"),
        (1 << 27, "switch_to_large_blocks"),
        (LONGNAME, "longname"),
        (LARGE_MICROZAP, "large_microzap"),
    ];
    TABLE
        .into_iter()
        .filter(move |(bit, _)| features & bit != 0)
        .map(|(_, name)| name)
}

//! The native properties of datasets, in the order of `zfs get all`.

use super::{Access, DefaultValue, Home, NoneMeans, Property, PropertyKind};
use Access::{Inherit, Once, OnceInherit, ReadOnly, Set};
use DefaultValue::{None, Number as N, Text as T};
use Home::{Computed, KeyObject, MasterNode, Props, Volume};
use NoneMeans::{Max, Never, Zero};
use PropertyKind::{Index, Number, Text};

/// Valid on file systems.
pub const F: u8 = 1;
/// Valid on volumes.
pub const V: u8 = 2;
/// Valid on snapshots.
pub const S: u8 = 4;
/// Valid on bookmarks.
pub const B: u8 = 8;

const ON_OFF: &[(&str, u64)] = &[("off", 0), ("on", 1)];

#[rustfmt::skip]
const COMPRESSION: &[(&str, u64)] = &[("on", 1), ("off", 2), ("lzjb", 3), ("gzip", 10), ("gzip-1", 5), ("gzip-2", 6), ("gzip-3", 7), ("gzip-4", 8), ("gzip-5", 9), ("gzip-6", 10), ("gzip-7", 11), ("gzip-8", 12), ("gzip-9", 13), ("zle", 14), ("lz4", 15), ("zstd", 16), ("zstd-1", 144), ("zstd-2", 272), ("zstd-3", 400), ("zstd-4", 528), ("zstd-5", 656), ("zstd-6", 784), ("zstd-7", 912), ("zstd-8", 1040), ("zstd-9", 1168), ("zstd-10", 1296), ("zstd-11", 1424), ("zstd-12", 1552), ("zstd-13", 1680), ("zstd-14", 1808), ("zstd-15", 1936), ("zstd-16", 2064), ("zstd-17", 2192), ("zstd-18", 2320), ("zstd-19", 2448), ("zstd-fast", 13200), ("zstd-fast-1", 13200), ("zstd-fast-2", 13328), ("zstd-fast-3", 13456), ("zstd-fast-4", 13584), ("zstd-fast-5", 13712), ("zstd-fast-6", 13840), ("zstd-fast-7", 13968), ("zstd-fast-8", 14096), ("zstd-fast-9", 14224), ("zstd-fast-10", 14352), ("zstd-fast-20", 14480), ("zstd-fast-30", 14608), ("zstd-fast-40", 14736), ("zstd-fast-50", 14864), ("zstd-fast-60", 14992), ("zstd-fast-70", 15120), ("zstd-fast-80", 15248), ("zstd-fast-90", 15376), ("zstd-fast-100", 15504), ("zstd-fast-500", 15632), ("zstd-fast-1000", 15760)];

#[allow(clippy::too_many_arguments)]
const fn row(
    name: &'static str,
    column: &'static str,
    kind: PropertyKind,
    access: Access,
    default: DefaultValue,
    on: u8,
    in_all: bool,
    home: Home,
    none: NoneMeans,
    words: &'static [(&'static str, u64)],
    values: &'static str,
) -> Property {
    Property {
        name,
        column,
        kind,
        access,
        default,
        on,
        in_all,
        home,
        none,
        words,
        values,
    }
}

/// All native dataset properties.
///
/// Columns: name, list column if different, kind, access, default, valid dataset types, shown by
/// `get all`, where it is stored. Then the meaning of `none`, words with their numbers (the first
/// word of a number is printed), usage text.
#[rustfmt::skip]
pub static DATASET_PROPERTIES: [Property; 106] = [
    row("type", "", Text, ReadOnly, None, F | V | S | B, true, Computed, Never, &[], "filesystem | volume | snapshot | bookmark"),
    row("creation", "", Number, ReadOnly, None, F | V | S | B, true, Computed, Never, &[], "<date>"),
    row("used", "", Number, ReadOnly, None, F | V | S, true, Computed, Never, &[], "<size>"),
    row("available", "avail", Number, ReadOnly, None, F | V, true, Computed, Never, &[], "<size>"),
    row("referenced", "refer", Number, ReadOnly, None, F | V | S | B, true, Computed, Never, &[], "<size>"),
    row("compressratio", "ratio", Number, ReadOnly, None, F | V | S | B, true, Computed, Never, &[], "<1.00x or higher if compressed>"),
    row("mounted", "", Index, ReadOnly, None, F, true, Computed, Never, &[("no", 0), ("yes", 1)], "yes | no"),
    row("origin", "", Text, ReadOnly, None, F | V, true, Computed, Never, &[], "<snapshot>"),
    row("quota", "", Number, Set, N(0), F, true, Props, Zero, &[], "<size> | none"),
    row("reservation", "reserv", Number, Set, N(0), F | V, true, Props, Zero, &[], "<size> | none"),
    row("volsize", "", Number, Set, N(0), V | S, true, Volume, Never, &[], "<size>"),
    row("volblocksize", "volblock", Number, OnceInherit, N(16384), V, true, Volume, Never, &[], "512 to 16M, power of 2"),
    row("recordsize", "recsize", Number, Inherit, N(131072), F, true, Props, Never, &[], "512 to 16M, power of 2"),
    row("mountpoint", "", Text, Inherit, T("/"), F, true, Props, Never, &[], "<path> | legacy | none"),
    row("sharenfs", "", Text, Inherit, T("off"), F, true, Props, Never, &[], "on | off | NFS share options"),
    row("checksum", "", Index, Inherit, N(1), F | V, true, Props, Never, &[("on", 1), ("off", 2), ("fletcher2", 6), ("fletcher4", 7), ("sha256", 8), ("noparity", 10), ("sha512", 11), ("skein", 12), ("edonr", 13), ("blake3", 14)], "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3"),
    row("compression", "compress", Index, Inherit, N(1), F | V, true, Props, Never, COMPRESSION, "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]"),
    row("atime", "", Index, Inherit, N(1), F, true, Props, Never, ON_OFF, "on | off"),
    row("devices", "", Index, Inherit, N(1), F | S, true, Props, Never, ON_OFF, "on | off"),
    row("exec", "", Index, Inherit, N(1), F | S, true, Props, Never, ON_OFF, "on | off"),
    row("setuid", "", Index, Inherit, N(1), F | S, true, Props, Never, ON_OFF, "on | off"),
    row("readonly", "rdonly", Index, Inherit, N(0), F | V, true, Props, Never, ON_OFF, "on | off"),
    row("zoned", "", Index, Inherit, N(0), F, true, Props, Never, ON_OFF, "on | off"),
    row("snapdir", "", Index, Inherit, N(0), F, true, Props, Never, &[("hidden", 0), ("visible", 1), ("disabled", 2)], "disabled | hidden | visible"),
    row("aclmode", "", Index, Inherit, N(0), F, true, Props, Never, &[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)], "discard | groupmask | passthrough | restricted"),
    row("aclinherit", "", Index, Inherit, N(4), F, true, Props, Never, &[("discard", 0), ("noallow", 1), ("restricted", 4), ("passthrough", 3), ("secure", 4), ("passthrough-x", 5)], "discard | noallow | restricted | passthrough | passthrough-x"),
    row("createtxg", "", Number, ReadOnly, None, F | V | S | B, true, Computed, Never, &[], "<uint64>"),
    row("name", "", Text, ReadOnly, None, F | V | S | B, false, Computed, Never, &[], ""),
    row("canmount", "", Index, Set, N(1), F, true, Props, Never, &[("off", 0), ("on", 1), ("noauto", 2)], "on | off | noauto"),
    row("iscsioptions", "", Text, Inherit, None, V, false, Computed, Never, &[], ""),
    row("xattr", "", Index, Inherit, N(2), F | S, true, Props, Never, &[("off", 0), ("dir", 1), ("sa", 2), ("on", 2)], "on | off | dir | sa"),
    row("numclones", "", Number, ReadOnly, None, S, false, Computed, Never, &[], ""),
    row("copies", "", Index, Inherit, N(1), F | V, true, Props, Never, &[("1", 1), ("2", 2), ("3", 3)], "1 | 2 | 3"),
    row("version", "", Index, Set, N(5), F | S, true, MasterNode, Never, &[("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("current", 5)], "1 | 2 | 3 | 4 | 5 | current"),
    row("utf8only", "", Index, OnceInherit, N(0), F | S, true, MasterNode, Never, ON_OFF, "on | off"),
    row("normalization", "", Index, OnceInherit, N(0), F | S, true, MasterNode, Never, &[("none", 0), ("formD", 16), ("formKC", 96), ("formC", 80), ("formKD", 32)], "none | formC | formD | formKC | formKD"),
    row("casesensitivity", "case", Index, OnceInherit, N(0), F | S, true, MasterNode, Never, &[("sensitive", 0), ("insensitive", 1), ("mixed", 2)], "sensitive | insensitive | mixed"),
    row("vscan", "", Index, Inherit, N(0), F, true, Props, Never, ON_OFF, "on | off"),
    row("nbmand", "", Index, Inherit, N(0), F | S, true, Props, Never, ON_OFF, "on | off"),
    row("sharesmb", "", Text, Inherit, T("off"), F, true, Props, Never, &[], "on | off | SMB share options"),
    row("refquota", "", Number, Set, N(0), F, true, Props, Zero, &[], "<size> | none"),
    row("refreservation", "refreserv", Number, Set, N(0), F | V, true, Props, Zero, &[], "<size> | none"),
    row("guid", "", Number, ReadOnly, None, F | V | S | B, true, Computed, Never, &[], "<uint64>"),
    row("primarycache", "", Index, Inherit, N(2), F | V | S, true, Props, Never, &[("none", 0), ("metadata", 1), ("all", 2)], "all | none | metadata"),
    row("secondarycache", "", Index, Inherit, N(2), F | V | S, true, Props, Never, &[("none", 0), ("metadata", 1), ("all", 2)], "all | none | metadata"),
    row("usedbysnapshots", "usedsnap", Number, ReadOnly, None, F | V, true, Computed, Never, &[], "<size>"),
    row("usedbydataset", "usedds", Number, ReadOnly, None, F | V, true, Computed, Never, &[], "<size>"),
    row("usedbychildren", "usedchild", Number, ReadOnly, None, F | V, true, Computed, Never, &[], "<size>"),
    row("usedbyrefreservation", "usedrefreserv", Number, ReadOnly, None, F | V, true, Computed, Never, &[], "<size>"),
    row("useraccounting", "", Number, ReadOnly, None, F | V | S, false, Computed, Never, &[], ""),
    row("stmf_sbd_lu", "", Text, Inherit, None, V, false, Computed, Never, &[], ""),
    row("defer_destroy", "", Index, ReadOnly, None, S, true, Computed, Never, ON_OFF, "yes | no"),
    row("userrefs", "", Number, ReadOnly, None, S, true, Computed, Never, &[], "<count>"),
    row("logbias", "", Index, Inherit, N(0), F | V, true, Props, Never, &[("latency", 0), ("throughput", 1)], "latency | throughput"),
    row("unique", "", Number, ReadOnly, None, F | V | S, false, Computed, Never, &[], ""),
    row("objsetid", "", Number, ReadOnly, None, F | V | S, true, Computed, Never, &[], "<uint64>"),
    row("dedup", "", Index, Inherit, N(2), F | V, true, Props, Never, &[("on", 1), ("off", 2), ("verify", 257), ("sha256", 8), ("sha256,verify", 264), ("sha512", 11), ("sha512,verify", 267), ("skein", 12), ("skein,verify", 268), ("edonr,verify", 269), ("blake3", 14), ("blake3,verify", 270)], "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]"),
    row("mlslabel", "", Text, Inherit, T("none"), F | V | S, true, Props, Never, &[], "<sensitivity label>"),
    row("sync", "", Index, Inherit, N(0), F | V, true, Props, Never, &[("standard", 0), ("always", 1), ("disabled", 2)], "standard | always | disabled"),
    row("dnodesize", "dnsize", Index, Inherit, N(0), F, true, Props, Never, &[("legacy", 0), ("auto", 1), ("1k", 1024), ("2k", 2048), ("4k", 4096), ("8k", 8192), ("16k", 16384)], "legacy | auto | 1k | 2k | 4k | 8k | 16k"),
    row("refcompressratio", "refratio", Number, ReadOnly, None, F | V | S, true, Computed, Never, &[], "<1.00x or higher if compressed>"),
    row("written", "", Number, ReadOnly, None, F | V | S, true, Computed, Never, &[], "<size>"),
    row("clones", "", Text, ReadOnly, None, S, true, Computed, Never, &[], "<dataset>[,...]"),
    row("logicalused", "lused", Number, ReadOnly, None, F | V, true, Computed, Never, &[], "<size>"),
    row("logicalreferenced", "lrefer", Number, ReadOnly, None, F | V | S | B, true, Computed, Never, &[], "<size>"),
    row("inconsistent", "", Number, ReadOnly, None, F | V | S, false, Computed, Never, &[], ""),
    row("volmode", "", Index, Inherit, N(0), F | V, true, Props, Never, &[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)], "default | full | geom | dev | none"),
    row("filesystem_limit", "fslimit", Number, Set, N(u64::MAX), F, true, Props, Max, &[], "<count> | none"),
    row("snapshot_limit", "sslimit", Number, Set, N(u64::MAX), F | V, true, Props, Max, &[], "<count> | none"),
    row("filesystem_count", "fscount", Number, ReadOnly, None, F, true, Computed, Never, &[], "<count>"),
    row("snapshot_count", "sscount", Number, ReadOnly, None, F | V, true, Computed, Never, &[], "<count>"),
    row("snapdev", "", Index, Inherit, N(0), F | V, true, Props, Never, &[("hidden", 0), ("visible", 1)], "hidden | visible"),
    row("acltype", "", Index, Inherit, N(0), F | S, true, Props, Never, &[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)], "off | nfsv4 | posix"),
    row("context", "", Text, Set, T("none"), F | V | S, true, Props, Never, &[], "<selinux context>"),
    row("fscontext", "", Text, Set, T("none"), F | V | S, true, Props, Never, &[], "<selinux fscontext>"),
    row("defcontext", "", Text, Set, T("none"), F | V | S, true, Props, Never, &[], "<selinux defcontext>"),
    row("rootcontext", "", Text, Set, T("none"), F | V | S, true, Props, Never, &[], "<selinux rootcontext>"),
    row("relatime", "", Index, Inherit, N(1), F, true, Props, Never, ON_OFF, "on | off"),
    row("redundant_metadata", "redund_md", Index, Inherit, N(0), F | V, true, Props, Never, &[("all", 0), ("most", 1), ("some", 2), ("none", 3)], "all | most | some | none"),
    row("overlay", "", Index, Inherit, N(1), F, true, Props, Never, ON_OFF, "on | off"),
    row("prevsnap", "", Text, ReadOnly, None, F | V, false, Computed, Never, &[], ""),
    row("receive_resume_token", "resumetok", Text, ReadOnly, None, F | V, true, Computed, Never, &[], "<string token>"),
    row("encryption", "", Index, OnceInherit, N(2), F | V | S, true, KeyObject, Never, &[("on", 1), ("off", 2), ("aes-128-ccm", 3), ("aes-192-ccm", 4), ("aes-256-ccm", 5), ("aes-128-gcm", 6), ("aes-192-gcm", 7), ("aes-256-gcm", 8)], "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm"),
    row("keylocation", "", Text, Set, T("none"), F | V, true, Props, Never, &[], "prompt | <file URI> | <https URL> | <http URL>"),
    row("keyformat", "", Index, Once, N(0), F | V, true, KeyObject, Never, &[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)], "none | raw | hex | passphrase"),
    row("pbkdf2salt", "", Number, Once, N(0), F | V, false, KeyObject, Never, &[], ""),
    row("pbkdf2iters", "", Number, Once, N(0), F | V, true, KeyObject, Never, &[], "<iters>"),
    row("encryptionroot", "encroot", Text, ReadOnly, None, F | V | S, true, Computed, Never, &[], "<filesystem | volume>"),
    row("keyguid", "", Number, ReadOnly, None, F | V | S, false, Computed, Never, &[], ""),
    row("keystatus", "", Index, ReadOnly, None, F | V | S, true, Computed, Never, &[("none", 0), ("unavailable", 1), ("available", 2)], "none | unavailable | available"),
    row("remaptxg", "", Number, ReadOnly, None, F | V | S, false, Computed, Never, &[], ""),
    row("special_small_blocks", "", Number, Inherit, N(0), F | V, true, Props, Never, &[], "zero or 512 to 16M, power of 2"),
    row("ivsetguid", "", Number, ReadOnly, None, F | V | S | B, false, Computed, Never, &[], ""),
    row("redacted", "", Number, ReadOnly, None, F | V | S, false, Computed, Never, &[], ""),
    row("redact_snaps", "rsnaps", Text, ReadOnly, None, F | V | S | B, true, Computed, Never, &[], "<snapshot>[,...]"),
    row("snapshots_changed", "", Number, ReadOnly, None, F | V, true, Computed, Never, &[], "<date>"),
    row("prefetch", "", Index, Inherit, N(2), F | V | S, true, Props, Never, &[("none", 0), ("metadata", 1), ("all", 2)], "none | metadata | all"),
    row("volthreading", "zvol threading", Index, Set, N(1), V, true, Props, Never, ON_OFF, "on | off"),
    row("direct", "", Index, Inherit, N(1), F, true, Props, Never, &[("disabled", 0), ("standard", 1), ("always", 2)], "disabled | standard | always"),
    row("longname", "", Index, Inherit, N(0), F, true, Props, Never, ON_OFF, "on | off"),
    row("defaultuserquota", "", Number, Set, N(0), F | S, true, MasterNode, Zero, &[], "<size> | none"),
    row("defaultgroupquota", "", Number, Set, N(0), F | S, true, MasterNode, Zero, &[], "<size> | none"),
    row("defaultprojectquota", "", Number, Set, N(0), F | S, true, MasterNode, Zero, &[], "<size> | none"),
    row("defaultuserobjquota", "", Number, Set, N(0), F | S, true, MasterNode, Zero, &[], "<size> | none"),
    row("defaultgroupobjquota", "", Number, Set, N(0), F | S, true, MasterNode, Zero, &[], "<size> | none"),
    row("defaultprojectobjquota", "", Number, Set, N(0), F | S, true, MasterNode, Zero, &[], "<size> | none"),
];

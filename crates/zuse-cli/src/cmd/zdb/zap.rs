//! ZAPs: their figures and their entries.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use zuse::Result;
use zuse::tools::{Dnode, LeafHistograms, ZapEntry, ZapStats};
use zuse::tools::{Zap, ZapValue};

use super::histogram;

/// Kinds of directory entries by number.
const KINDS: [&str; 16] = [
    "not specified",
    "FIFO",
    "Character Device",
    "3 (invalid)",
    "Directory",
    "5 (invalid)",
    "Block Device",
    "7 (invalid)",
    "Regular File",
    "9 (invalid)",
    "Symbolic Link",
    "11 (invalid)",
    "Socket",
    "Door",
    "Event Port",
    "15 (invalid)",
];

/// The meaning of a ZAP's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Numbers or texts.
    Any,
    /// Objects, their kind in the four highest bits.
    Directory,
    /// Attributes by number, length and class.
    Registry,
    /// Rows of attribute numbers.
    Layouts,
}

/// Prints a ZAP: figures, an empty line, entries.
///
/// # Errors
/// It cannot be read.
pub fn dump(out: &mut Vec<u8>, dnode: &Arc<Dnode>, meaning: Meaning) -> Result<()> {
    let zap = Zap::open(dnode)?;
    let stats = zap.stats()?;
    out.extend_from_slice(figures(&stats, zap.leaf_histograms()?).as_bytes());
    let words = matches!(stats, ZapStats::Fat { flags, .. } if flags & 2 != 0);
    let mut cursor = zap.cursor(0);
    while let Some(entry) = cursor.next()? {
        out.extend_from_slice(b"\t\t");
        if words {
            for word in entry.words() {
                let _ = write!(out, "0x{word:010}x");
            }
        } else {
            out.extend_from_slice(&entry.name);
        }
        out.extend_from_slice(b" = ");
        value(out, &entry, meaning);
        out.push(b'\n');
    }
    Ok(())
}

/// Prints the figures of a ZAP without its entries.
///
/// # Errors
/// It cannot be read.
pub fn dump_figures(out: &mut Vec<u8>, dnode: &Arc<Dnode>) -> Result<()> {
    let zap = Zap::open(dnode)?;
    let text = figures(&zap.stats()?, zap.leaf_histograms()?);
    out.extend_from_slice(text.strip_suffix('\n').unwrap_or(&text).as_bytes());
    Ok(())
}

fn figures(stats: &ZapStats, leaves: Option<LeafHistograms>) -> String {
    let mut out = String::new();
    match stats {
        ZapStats::Micro {
            block_size,
            entries,
            ..
        } => {
            let _ = writeln!(out, "\tmicrozap: {block_size} bytes, {entries} entries\n");
        }
        ZapStats::Fat {
            entries,
            leafs,
            freeblk,
            table,
            table_blocks,
            shift,
            next_table,
            copied,
            salt,
            ..
        } => {
            let _ = writeln!(
                out,
                "\tFat ZAP stats:\n\t\tPointer table:\n\t\t\t{} elements\n\t\t\tzt_blk: {table}\n\t\t\tzt_numblks: {table_blocks}\n\
                 \t\t\tzt_shift: {shift}\n\t\t\tzt_blks_copied: {copied}\n\t\t\tzt_nextblk: {next_table}\n\
                 \t\tZAP entries: {entries}\n\t\tLeaf blocks: {leafs}\n\t\tTotal blocks: {freeblk}\n\
                 \t\tzap_block_type: 0x8000000000000001\n\t\tzap_magic: 0x2f52ab2ab\n\t\tzap_salt: 0x{salt:x}",
                1u64 << shift.min(&63)
            );
            let rows = leaves.unwrap_or_default();
            for (title, row) in [
                ("Leafs with 2^n pointers", &rows.pointers),
                ("Blocks with n*5 entries", &rows.entries),
                ("Blocks n/10 full", &rows.tenths),
                ("Entries with n chunks", &rows.chunks),
                ("Buckets with n entries", &rows.buckets),
            ] {
                let _ = writeln!(out, "\t\t{title}:");
                histogram::lines(&mut out, "\t\t\t", row, 0);
            }
            out.push('\n');
        }
    }
    out
}

/// Whether a value is a key or a salt: printed in hex.
fn is_secret(name: &[u8]) -> bool {
    name == b"org.illumos:checksum_salt"
        || name.starts_with(b"DSL_CRYPTO_IV")
        || name.starts_with(b"DSL_CRYPTO_HMAC_KEY_1")
        || name.starts_with(b"DSL_CRYPTO_MASTER_KEY_1")
        || name.starts_with(b"DSL_CRYPTO_MAC")
}

fn value(out: &mut Vec<u8>, entry: &ZapEntry, meaning: Meaning) {
    let _ = match (&entry.value, meaning) {
        (ZapValue::U64(v), Meaning::Directory) => {
            let kind = KINDS.get((v >> 60) as usize).copied().unwrap_or_default();
            write!(out, "{} (type: {kind})", v & ((1 << 48) - 1))
        }
        (ZapValue::U64(v), Meaning::Registry) => write!(
            out,
            " {v:x} : [{}:{}:{}]",
            v >> 24 & 0xffff,
            v >> 16 & 0xff,
            v & 0xffff
        ),
        (value, Meaning::Layouts) => {
            out.push(b'[');
            value.ints().iter().for_each(|n| {
                let _ = write!(out, " {n} ");
            });
            out.push(b']');
            Ok(())
        }
        (ZapValue::U64(v), _) => write!(out, "{} ", *v as i64),
        (ZapValue::Bytes(bytes), _) if is_secret(&entry.name) => {
            for b in bytes {
                let _ = write!(out, "{b:02x}");
            }
            Ok(())
        }
        (ZapValue::Bytes(bytes), _) => {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            out.extend_from_slice(bytes.get(..end).unwrap_or_default());
            Ok(())
        }
        (ZapValue::Array { int_size, ints }, _) => {
            for n in ints {
                let n = match int_size {
                    2 => i64::from(*n as u16 as i16),
                    4 => i64::from(*n as u32 as i32),
                    _ => *n as i64,
                };
                let _ = write!(out, "{n} ");
            }
            Ok(())
        }
    };
}

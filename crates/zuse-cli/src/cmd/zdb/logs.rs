//! `zdb -i`: intent logs.

use std::fmt::Write as _;

use zuse::tools::Layers as _;
use zuse::tools::LogItem;
use zuse::{ObjectId, Pool};
use zuse_format::zil::{Body, Create, Record, ZilHeader};
use zuse_format::{BlockPointer, BpKind, FormatError};

use crate::date;

/// Bytes of written data that are printed.
const SHOWN: usize = 20;

/// Printed before the fields of a record.
const PAD: &str = "\t\t\t";

/// Names of the record types, by number.
const NAMES: [&str; 25] = [
    "Total",
    "TX_CREATE",
    "TX_MKDIR",
    "TX_MKXATTR",
    "TX_SYMLINK",
    "TX_REMOVE",
    "TX_RMDIR",
    "TX_LINK",
    "TX_RENAME",
    "TX_WRITE",
    "TX_TRUNCATE",
    "TX_SETATTR",
    "TX_ACL_V0",
    "TX_ACL_ACL",
    "TX_CREATE_ACL",
    "TX_CREATE_ATTR",
    "TX_CREATE_ACL_ATTR",
    "TX_MKDIR_ACL",
    "TX_MKDIR_ATTR",
    "TX_MKDIR_ACL_ATTR",
    "TX_WRITE2",
    "TX_SETSAXATTR",
    "TX_RENAME_EXCHANGE",
    "TX_RENAME_WHITEOUT",
    "TX_CLONE_RANGE",
];

/// The log of a dataset as part of its other output; nothing if there is none.
///
/// # Errors
/// The chain cannot be read.
pub fn beside(pool: &Pool, object: u64, header: &ZilHeader, level: u8) -> zuse::Result<String> {
    if header.log.is_hole() {
        return Ok(String::new());
    }
    log(pool, object, header, level)
}

fn log(pool: &Pool, object: u64, header: &ZilHeader, level: u8) -> zuse::Result<String> {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "\n    ZIL header: claim_txg {}, claim_blk_seq {}, claim_lr_seq {} replay_seq {}, flags 0x{:x}",
        header.claim_txg,
        header.claim_blk_seq,
        header.claim_lr_seq,
        header.replay_seq,
        header.flags
    );
    if level > 1 {
        out.push('\n');
    }
    let mut lines = Lines {
        pool,
        header,
        level,
        out,
        counts: [0; 25],
    };
    let dataset = pool.dsl().dataset_by_object(ObjectId(object))?;
    dataset.visit_log(header, &mut |readable, met| {
        match met {
            LogItem::Block(bp) => lines.block(bp),
            LogItem::Record(record) => lines.record(record, readable),
            LogItem::Broken(seq, e) => lines.broken(seq, &e, readable),
        }
        Ok(true)
    })?;
    lines.end();
    Ok(lines.out)
}

/// The lines of a log while its chain is walked.
struct Lines<'a> {
    pool: &'a Pool,
    header: &'a ZilHeader,
    level: u8,
    out: String,
    /// Records by type; the first counts all of them.
    counts: [u64; 25],
}

impl Lines<'_> {
    fn block(&mut self, bp: &BlockPointer) {
        if self.level <= 3 {
            return;
        }
        let _ = writeln!(
            self.out,
            "\tBlock seqno {}, {}{}",
            bp.checksum()[3],
            if self.header.is_claimed() {
                "already claimed"
            } else if bp.logical_birth() > self.pool.uberblock().txg {
                "will claim"
            } else {
                "won't claim"
            },
            if self.level > 4 {
                format!(", {}", super::pointer::full(bp))
            } else {
                String::new()
            }
        );
    }

    fn record(&mut self, record: &Record<'_>, readable: bool) {
        let number = number_of(record);
        for at in [0, number] {
            if let Some(count) = self.counts.get_mut(at) {
                *count += 1;
            }
        }
        if self.level > 1 {
            let _ = writeln!(
                self.out,
                "\t\t{:<20}len {:>6}, txg {}, seq {}",
                NAMES.get(number).copied().unwrap_or("?"),
                record.length,
                record.txg,
                record.seq
            );
        }
        if self.level > 2 && readable {
            content(&mut self.out, record, self.level);
        } else if self.level > 2 {
            self.out.push_str("\t\t\t(encrypted)\n");
        }
    }

    /// A record that cannot be parsed. (One that cannot be read is never parsed.)
    fn broken(&mut self, seq: u64, e: &FormatError, readable: bool) {
        let _ = match readable {
            false => writeln!(self.out, "\t\trecord {seq}: encrypted"),
            true => writeln!(self.out, "\t\trecord {seq}: {e}"),
        };
    }

    /// Prints the number of records of each type.
    fn end(&mut self) {
        if self.level > 3 {
            self.out.push('\n');
        }
        if self.level > 1 && self.counts[0] > 0 {
            for (name, count) in NAMES.iter().zip(self.counts) {
                if self.level > 2 || count > 0 {
                    let _ = writeln!(self.out, "\t\t{name:<20}{count}");
                }
            }
            self.out.push('\n');
        }
    }
}

fn number_of(record: &Record<'_>) -> usize {
    usize::try_from(record.kind).unwrap_or(0)
}

/// A byte of data: a letter, or two digits.
fn sign(byte: u8) -> String {
    if byte.is_ascii_graphic() || byte == b' ' {
        format!("{} ", char::from(byte))
    } else {
        format!("{byte:02X}")
    }
}

fn content(out: &mut String, record: &Record<'_>, level: u8) {
    let _ = match &record.body {
        Body::Create(c) | Body::MakeXattrDir(c) => create(out, c),
        Body::Remove { dir, name: n } | Body::RemoveDir { dir, name: n } => {
            writeln!(out, "{PAD}doid {dir}, name {}", name(n))
        }
        Body::Link {
            dir,
            object,
            name: n,
        } => writeln!(out, "{PAD}doid {dir}, link_obj {object}, name {}", name(n)),
        Body::Rename {
            from_dir,
            to_dir,
            from,
            to,
            ..
        } => writeln!(
            out,
            "{PAD}sdoid {from_dir}, tdoid {to_dir}\n{PAD}src {} tgt {}",
            name(from),
            name(to)
        ),
        Body::Write {
            object,
            offset,
            length,
            block,
            data,
        } => {
            let _ = writeln!(
                out,
                "{PAD}foid {object}, offset {offset:x}, length {length:x}"
            );
            data_of_write(out, block, *data, level)
        }
        Body::Extend { object, size } => writeln!(out, "{PAD}foid {object}, size {size:x}"),
        Body::Truncate {
            object,
            offset,
            length,
        } => writeln!(
            out,
            "{PAD}foid {object}, offset 0x{offset:x}, length 0x{length:x}"
        ),
        Body::SetAttr(set) => writeln!(out, "{PAD}foid {}, mask 0x{:x}", set.object, set.mask),
        Body::Acl { object, acl } => writeln!(out, "{PAD}foid {object}, aclcnt {}", acl.count),
        Body::SetXattr {
            object,
            name: n,
            value,
        } => writeln!(
            out,
            "{PAD}foid {object}\n{PAD}XATTR_NAME {}\n{PAD}XATTR_VALUE {} bytes",
            name(n),
            value.map_or(0, <[u8]>::len)
        ),
        Body::Clone {
            object,
            offset,
            length,
            block_size,
            blocks,
        } => writeln!(
            out,
            "{PAD}foid {object}, offset {offset:x}, length {length:x}, blksize {block_size:x}, {} blocks",
            blocks.len()
        ),
    };
}

fn create(out: &mut String, c: &Create<'_>) -> std::fmt::Result {
    let link = if c.target.is_empty() {
        String::new()
    } else {
        format!(" -> {}", name(c.target))
    };
    writeln!(
        out,
        "{PAD}{}{link}\n{PAD}{}\n{PAD}doid {}, foid {}, slots {}, mode {:o}\n{PAD}uid {}, gid {}, gen {}, rdev 0x{:x}",
        name(c.name),
        date::ctime(u64::try_from(c.time.secs).unwrap_or(0)),
        c.dir,
        c.object,
        c.slots,
        c.mode,
        c.uid,
        c.gid,
        c.generation,
        c.rdev
    )
}

/// The location of the written bytes, or the first of them.
fn data_of_write(
    out: &mut String,
    block: &BlockPointer,
    data: Option<&[u8]>,
    level: u8,
) -> std::fmt::Result {
    if data.is_none() && block.kind() != BpKind::Hole {
        writeln!(out, "{PAD}has blkptr, {}", super::pointer::full(block))
    } else if let (Some(data), true) = (data, level > 4) {
        let shown: String = data.iter().take(SHOWN).map(|b| sign(*b)).collect();
        writeln!(out, "{PAD}{shown}")
    } else {
        Ok(())
    }
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

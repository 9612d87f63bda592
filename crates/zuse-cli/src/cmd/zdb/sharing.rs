//! `zdb -T`: tables of cloned blocks. `zdb -M`: fragmentation and free segments of whole vdevs.

use std::fmt::Write as _;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::tools::{Zap, ZapValue};
use zuse::{ObjectId, Pool, Result};

use super::histogram;
use crate::error::{Explain, Outcome};
use crate::nicenum::nicenum;
use crate::session::Session;

/// A table in the MOS directory; the id of its vdev follows.
const TABLE: &str = "com.fudosecurity:brt:vdev:";
const FEATURE: &str = "com.fudosecurity:block_cloning";

/// Prints the tables of cloned blocks.
pub fn run(session: &mut Session, pool: &Arc<Pool>, level: u8) -> Outcome {
    let text =
        text(pool, level).or_cannot(|| format!("cannot read the clones of '{}'", pool.name()))?;
    session.ui.print(text)?;
    Ok(())
}

fn text(pool: &Pool, level: u8) -> Result<String> {
    if !pool.spa().features().is_enabled(FEATURE) {
        return Ok("BRT: unsupported on this pool\n".into());
    }
    let tables = tables(pool)?;
    if tables.is_empty() {
        return Ok("BRT: empty\n".into());
    }
    let sum = |i: usize| tables.iter().fold(0u64, |s, t| s.saturating_add(t.word(i)));
    let (used, saved) = (sum(5), sum(6));
    let hundredths = (u128::from(used) + u128::from(saved)) * 100 / u128::from(used.max(1));
    let mut out = format!(
        "BRT: used {}; saved {}; ratio {}.{:02}x\n",
        nicenum(used),
        nicenum(saved),
        hundredths / 100,
        hundredths % 100
    );
    for table in tables.iter().filter(|_| level > 1) {
        let _ = writeln!(
            out,
            "BRT: vdev {}: refcnt {}; used {}; saved {}",
            table.vdev,
            table.word(3),
            nicenum(table.word(5)),
            nicenum(table.word(6))
        );
    }
    if level > 3 {
        out.push_str("\nDVA              REFCNT    \n");
    }
    for table in tables.iter().filter(|_| level > 2) {
        entries(&mut out, pool, table, level)?;
    }
    Ok(out)
}

/// The table of one vdev.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Table {
    vdev: u64,
    /// Its header.
    words: Vec<u64>,
}

impl Table {
    fn word(&self, i: usize) -> u64 {
        self.words.get(i).copied().unwrap_or(0)
    }
}

/// All tables, by vdev.
fn tables(pool: &Pool) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    let mut cursor = pool.spa().directory()?.cursor(0);
    while let Some(entry) = cursor.next()? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if let (Some(vdev), Some(object)) = (name.strip_prefix(TABLE), entry.value.first()) {
            let header = pool.spa().mos().dnode(ObjectId(object))?.bonus_vec();
            let words = header.as_chunks::<8>().0.iter();
            tables.push(Table {
                vdev: vdev.parse().unwrap_or(u64::MAX),
                words: words.map(|w| u64::from_le_bytes(*w)).collect(),
            });
        }
    }
    tables.sort();
    Ok(tables)
}

/// The entries of a table: each of them from level 4 on, below that by their counts.
fn entries(out: &mut String, pool: &Pool, table: &Table, level: u8) -> Result<()> {
    let vdev = table.vdev;
    let mut rows = [0u64; 64];
    let entries = Zap::open(&pool.spa().mos().dnode(ObjectId(table.word(0)))?)?;
    let mut cursor = entries.cursor(0);
    while let Some(entry) = cursor.next()? {
        let count = match &entry.value {
            ZapValue::Bytes(b) => zuse_format::clone_count::read(b).map_or(0, |(n, _)| n),
            other => other.first().unwrap_or(0),
        };
        if level > 3 {
            let offset = entry
                .name
                .first_chunk()
                .map_or(0, |b| u64::from_be_bytes(*b));
            let _ = writeln!(out, "{:<16} {count:<10}", format!("{vdev}:{offset:x}"));
            continue;
        }
        // Pointers besides the first.
        let log = count.saturating_add(1).ilog2() as usize;
        if let Some(row) = rows.get_mut(log) {
            *row += 1;
        }
    }
    if level == 3 {
        let _ = writeln!(out, "\nBRT: vdev {vdev}: DVAs with 2^n refcnts:");
        histogram::lines(out, "\t\t\t", &rows, 0);
    }
    Ok(())
}

/// Prints the free space of whole vdevs according to their space maps. From level 2 on also those
/// of the special class.
pub fn groups(session: &mut Session, pool: &Arc<Pool>, level: u8) -> Outcome {
    let text = group_lines(pool, level > 1)
        .or_cannot(|| format!("cannot read the metaslabs of '{}'", pool.name()))?;
    session.ui.print(text)?;
    Ok(())
}

fn group_lines(pool: &Pool, special: bool) -> Result<String> {
    let percent = |p: Option<u64>| p.map_or("  -".to_owned(), |p| format!("{p:>3}%"));
    let mut out = String::new();
    let mut all = [0u64; 64];
    for group in super::metaslabs::groups(pool, special)? {
        let said = pool.spa().fragmentation_of(group.vdev as u32)?;
        let _ = writeln!(
            out,
            "\tvdev {:>10}\t\tmetaslabs{:>5}\t\tfragmentation{}",
            group.vdev,
            group.metaslabs,
            percent(said)
        );
        histogram::lines(&mut out, "\t\t\t", &group.rows, 0);
        // The pool's line is of ordinary data alone.
        for (sum, n) in all.iter_mut().zip(group.rows).filter(|_| group.is_normal) {
            *sum = sum.saturating_add(n);
        }
    }
    let said = percent(pool.spa().fragmentation()?);
    let _ = writeln!(out, "\tpool {}\tfragmentation\t{said}", pool.name());
    histogram::lines(&mut out, "\t\t\t", &all, 0);
    Ok(out)
}

//! `zdb -D` and `-S`: the existing dedup tables, and a simulated one of all data.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher;
use std::sync::Arc;
use zuse_base::sync::Mutex;

use zuse::Pool;
use zuse::tools::Layers as _;
use zuse::tools::dedup::{Figures, Histogram, Key, Log, Store, Table, tables};
use zuse::tools::traverse::{Options, traverse_each};
use zuse_format::{BlockPointer, BpKind, object_type};

use super::pointer;
use crate::dedup_table::rows;
use crate::error::{Explain, Outcome};
use crate::session::Session;

/// The class of blocks with one pointer.
const UNIQUE: usize = 2;
/// The checksum of blocks without one.
const NO_CHECKSUM: u8 = 2;
/// Shards of the simulated table, so that threads rarely contend.
const PARTS: usize = 64;

/// Prints the tables of a pool.
pub fn run(session: &mut Session, pool: &Arc<Pool>, level: u8) -> Outcome {
    let cannot = || format!("cannot read the dedup tables of '{}'", pool.name());
    let tables = tables(pool.spa()).or_cannot(cannot)?;
    if tables.iter().map(Table::entries).sum::<u64>() == 0 {
        session.ui.line("All DDTs are empty")?;
        return Ok(());
    }
    let mut sum = Histogram::default();
    for table in &tables {
        session.ui.line(head(table))?;
        for store in table.stores.iter().filter(|s| s.entries > 0) {
            session.ui.print(summary(store, level))?;
            if level > 4 || level > 3 && store.class != UNIQUE {
                contents(session, pool, table, store)?;
            }
        }
        for log in &table.logs {
            session.ui.line(log_line(log))?;
        }
        sum.merge(&table.histogram(pool.spa().io()));
    }
    let mut out = String::from("\n");
    if level > 1 {
        out.push_str("DDT histogram (aggregated over all DDTs):\n\n");
        rows(&mut out, &sum, true);
        out.push('\n');
    }
    ratios(&mut out, &sum);
    session.ui.print(out)?;
    Ok(())
}

fn head(table: &Table) -> String {
    let mut flags = Vec::new();
    if table.flags & 1 != 0 {
        flags.push("FLAT");
    }
    if table.flags & 2 != 0 {
        flags.push("LOG");
    }
    let names = if flags.is_empty() {
        String::new()
    } else {
        format!(" [{}]", flags.join(" "))
    };
    format!(
        "DDT-{}: version={} [{}]; flags=0x{:02x}{names}; rootobj={}",
        table.name,
        table.version,
        if table.is_flat() { "FDT" } else { "LEGACY" },
        table.flags,
        table.root
    )
}

fn summary(store: &Store, level: u8) -> String {
    let mut out = format!(
        "{}: dspace={}; mspace={}; entries={}\n",
        store.name, store.on_disk, store.in_memory, store.entries
    );
    if level > 2 {
        let _ = writeln!(out, "{}: object={}\n", store.name, store.object);
        rows(&mut out, &store.histogram, false);
        out.push('\n');
    }
    out
}

fn contents(session: &mut Session, pool: &Arc<Pool>, table: &Table, store: &Store) -> Outcome {
    session.ui.line(format!("{} contents:\n", store.name))?;
    let mut printed = Ok(());
    table
        .each_entry(pool.spa(), store, &mut |position, key, entry| {
            for shared in entry.iter().filter(|s| s.references > 0) {
                let bp = shared.pointer(key, table.checksum);
                if printed.is_ok() {
                    printed = session.ui.line(format!(
                        "index {position:x} refcnt {} phys {} {}",
                        shared.references,
                        shared.slot,
                        pointer::full_as(&bp, "deduplicated block")
                    ));
                }
            }
            Ok(())
        })
        .or_cannot(|| format!("cannot read {}", store.name))?;
    printed?;
    session.ui.line("")?;
    Ok(())
}

fn log_line(log: &Log) -> String {
    let mut flags = Vec::new();
    if log.flags & 1 != 0 {
        flags.push("FLUSHING");
    }
    if log.flags & 2 != 0 {
        flags.push("CHECKPOINT");
    }
    let names = if flags.is_empty() {
        String::new()
    } else {
        format!(" [{}]", flags.join(" "))
    };
    format!(
        "{}: flags=0x{:02x}{names}; obj={}; len={}; txg={}; entries={}",
        log.name,
        log.flags,
        log.object,
        log.length,
        log.first_txg,
        log.entries.len()
    )
}

fn ratios(out: &mut String, histogram: &Histogram) {
    let (stored, referenced) = histogram.total();
    let over = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let dedup = over(referenced.dsize, stored.dsize);
    let compress = over(referenced.lsize, referenced.psize);
    let copies = over(referenced.dsize, referenced.psize);
    let product = if copies > 0.0 {
        dedup * compress / copies
    } else {
        0.0
    };
    let _ = writeln!(
        out,
        "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, dedup * compress / copies = {product:.2}\n"
    );
}

/// Blocks with the same content: their number, and their accounted bytes.
#[derive(Clone, Copy, Default)]
struct Alike {
    blocks: u64,
    dsize: u64,
}

/// Prints what a dedup table would contain if all data had been written with dedup. It takes some
/// 100 bytes of memory for each different block.
pub fn simulate(session: &mut Session, pool: &Arc<Pool>) -> Outcome {
    let parts: Vec<Mutex<HashMap<Key, Alike>>> = (0..PARTS).map(|_| Mutex::default()).collect();
    let hasher = RandomState::new();
    let io = pool.spa().io();
    let options = Options {
        only_datasets: true,
        ..Options::default()
    };
    let visit = |_: u64, bp: &BlockPointer| {
        if bp.kind() != BpKind::Normal
            || bp.level() > 0
            || bp.checksum_kind() == NO_CHECKSUM
            || object_type::is_metadata(bp.object_type())
        {
            return;
        }
        let key = Key::of(bp);
        // Several threads visit blocks: with many parts they rarely meet at one lock.
        let part = parts.get(hasher.hash_one(key) as usize % PARTS);
        if let Some(part) = part {
            let mut part = part.lock();
            let alike = part.entry(key).or_default();
            alike.blocks += 1;
            alike.dsize = alike.dsize.saturating_add(io.dsize(bp));
        }
    };
    let report = traverse_each(pool, &options, &|_| {}, &visit)
        .or_cannot(|| format!("cannot traverse '{}'", pool.name()))?;
    let mut sum = Histogram::default();
    for part in parts {
        for (key, alike) in part.into_inner() {
            let one = Figures {
                blocks: 1,
                lsize: key.lsize(),
                psize: key.psize(),
                dsize: alike.dsize / alike.blocks.max(1),
            };
            sum.add(&one, alike.blocks);
        }
    }
    let mut out = String::from("Simulated DDT histogram:\n\n");
    let some = sum.rows().next().is_some();
    rows(&mut out, &sum, some);
    out.push('\n');
    if some {
        ratios(&mut out, &sum);
    }
    session.ui.print(out)?;
    super::blocks::failures(session, &report)
}

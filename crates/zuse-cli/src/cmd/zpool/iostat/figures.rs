//! The columns of `zpool iostat` about single operations: waiting times, queues, histograms.

use std::fmt::Write as _;

use crate::nicenum::{nicenum, nicetime};
use crate::query::OpRow;

/// Columns with a title above them.
#[derive(Clone, Copy)]
pub struct Group {
    pub title: &'static str,
    pub columns: &'static [&'static str],
}

const fn group(title: &'static str, columns: &'static [&'static str]) -> Group {
    Group { title, columns }
}

const BOTH: &[&str] = &["read", "write"];
const QUEUE: &[&str] = &["pend", "activ"];
const PARTS: &[&str] = &["ind", "agg"];
const WAIT: &[&str] = &["wait"];

/// Always there.
pub const BASE: [Group; 3] = [
    group("capacity", &["alloc", "free"]),
    group("operations", BOTH),
    group("bandwidth", BOTH),
];
/// `-l`
pub const WAITS: [Group; 7] = [
    group("total_wait", BOTH),
    group("disk_wait", BOTH),
    group("syncq_wait", BOTH),
    group("asyncq_wait", BOTH),
    group("scrub", WAIT),
    group("trim", WAIT),
    group("rebuild", WAIT),
];
/// `-q`
pub const QUEUES: [Group; 7] = [
    group("syncq_read", QUEUE),
    group("syncq_write", QUEUE),
    group("asyncq_read", QUEUE),
    group("asyncq_write", QUEUE),
    group("scrubq_read", QUEUE),
    group("trimq_write", QUEUE),
    group("rebuildq_write", QUEUE),
];
/// `-r`
const SIZES: [Group; 7] = [
    group("sync_read", PARTS),
    group("sync_write", PARTS),
    group("async_read", PARTS),
    group("async_write", PARTS),
    group("scrub", PARTS),
    group("trim", PARTS),
    group("rebuild", PARTS),
];
/// `-w`
const TIMES: [Group; 7] = [
    group("total_wait", BOTH),
    group("disk_wait", BOTH),
    group("syncq_wait", BOTH),
    group("asyncq_wait", BOTH),
    group("", &["scrub"]),
    group("", &["trim"]),
    group("", &["rebuild"]),
];
/// Rows of the two histograms.
const SIZE_ROWS: usize = 16;
const TIME_ROWS: usize = 37;

/// Reads, writes, labels, trims.
fn kinds(ops: &[OpRow]) -> [OpRow; 4] {
    let mut ops = ops.iter().cloned();
    std::array::from_fn(|_| ops.next().unwrap_or_default())
}

/// Cells of `-l`.
pub fn waits(ops: &[OpRow], exact: bool) -> Vec<String> {
    let [reads, writes, labels, _] = kinds(ops);
    let average = |op: &OpRow| match op.nanoseconds.checked_div(op.count()) {
        None | Some(0) => "-".to_owned(),
        Some(ns) if exact => ns.to_string(),
        Some(ns) => nicetime(ns),
    };
    let of_disk = [average(&reads), average(&writes.with(&labels))];
    let mut cells = [of_disk.clone(), of_disk].concat();
    cells.resize(11, "-".to_owned());
    cells
}

/// Cells of `-q`.
pub fn queues(ops: &[OpRow], exact: bool) -> Vec<String> {
    let [reads, writes, labels, trims] = kinds(ops);
    let active = [
        reads.active,
        labels.active,
        0,
        writes.active,
        0,
        trims.active,
        0,
    ];
    let number = |n: u64| if exact { n.to_string() } else { nicenum(n) };
    let pairs = active.into_iter().flat_map(|n| [number(0), number(n)]);
    pairs.collect()
}

/// The two lines above the figures. The first column has its own two words; titles are centred
/// above their columns.
pub fn head(names: [&str; 2], groups: &[Group], widths: &[usize], out: &mut String) {
    let (name, mut rest) = widths.split_first().map_or((0, &[][..]), |(n, r)| (*n, r));
    let mut under = String::new();
    let mut above = format!("{:<name$}", names[0]);
    for group in groups {
        let (mine, others) = rest.split_at(group.columns.len().min(rest.len()));
        rest = others;
        let room = mine.iter().sum::<usize>() + 2 * mine.len().saturating_sub(1);
        let spare = room.saturating_sub(group.title.len());
        let left = spare.div_ceil(2);
        let _ = write!(
            above,
            "  {:left$}{}{:right$}",
            "",
            group.title,
            "",
            right = spare - left
        );
        for (title, width) in group.columns.iter().zip(mine) {
            let _ = write!(under, "  {title:>width$}");
        }
    }
    let _ = writeln!(out, "{above}\n{:<name$}{under}", names[1]);
}

/// Operations by size or by time, of one vdev.
pub fn histogram(name: &str, ops: &[OpRow], by_size: bool, exact: bool, scripted: bool) -> String {
    let [reads, writes, labels, trims] = kinds(ops);
    let none = OpRow::default();
    let both = writes.with(&labels);
    let columns: Vec<&[u64]> = if by_size {
        let kinds = [&reads, &labels, &none, &writes, &none, &trims, &none];
        kinds
            .into_iter()
            .flat_map(|op| [&op.single[..], &op.joined[..]])
            .collect()
    } else {
        let mut columns = vec![
            &reads.latency[..],
            &both.latency,
            &reads.latency,
            &both.latency,
        ];
        columns.resize(11, &[]);
        columns
    };
    let (groups, rows, first) = if by_size {
        (SIZES, SIZE_ROWS, "req_size")
    } else {
        (TIMES, TIME_ROWS, "latency")
    };
    let number = |n: u64| if exact { n.to_string() } else { nicenum(n) };
    let mut widths = vec![name.chars().count().max(10)];
    widths.resize(1 + columns.len(), 5);
    let mut out = String::new();
    if !scripted {
        head([name, first], &groups, &widths, &mut out);
        let rule = widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>();
        let _ = writeln!(out, "{}", rule.join("  "));
    }
    for row in 0..rows {
        let at = if by_size {
            512 << row
        } else {
            (2u64 << row) - 1
        };
        let label = match (exact, by_size) {
            (true, _) => at.to_string(),
            (_, true) => nicenum(at),
            _ => nicetime(at),
        };
        let cell = |c: &&[u64]| number(c.get(row).copied().unwrap_or(0));
        let cells = columns.iter().map(cell);
        if scripted {
            let cells: Vec<String> = std::iter::once(label).chain(cells).collect();
            let _ = writeln!(out, "{}", cells.join("\t"));
            continue;
        }
        let _ = write!(out, "{label:<width$}", width = widths[0]);
        cells.for_each(|cell| {
            let _ = write!(out, "  {cell:>5}");
        });
        out.push('\n');
    }
    if !scripted {
        let all = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
        let _ = writeln!(out, "{}", "-".repeat(all));
    }
    out
}

//! `zdb -b`, `-c`: block statistics, checksums, leaks.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use zuse::tools::Layers as _;
use zuse::tools::traverse::{
    Bin, DEFERRED, Figures, Leak, Options, Report, Stat, Verify, traverse,
};
use zuse::{Pool, VdevClass};
use zuse_format::object_type;

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::nicenum::nicenum;
use crate::session::Session;

/// Visited bytes between two lines of progress.
const STEP: u64 = 64 << 20;
/// The row of all newer types.
const OTHER: usize = 56;
/// The most failures that are printed.
const SHOWN: usize = 200;

/// How much is printed.
#[derive(Clone, Copy, Debug)]
pub struct BlockOptions {
    /// `-b`, as often.
    pub blocks: u8,
    /// `-c`, as often.
    pub checksums: u8,
    /// `-L`: no space maps.
    pub no_leaks: bool,
    /// `-P`: exact numbers.
    pub exact: bool,
}

/// Walks the pool and prints what `-b` and `-c` ask for.
pub fn run(session: &mut Session, pool: &Arc<Pool>, wanted: BlockOptions) -> Outcome {
    let verify = match wanted.checksums {
        0 => Verify::None,
        1 => Verify::Metadata,
        _ => Verify::All,
    };
    let what = match verify {
        Verify::None => "",
        Verify::Metadata => "metadata checksums",
        Verify::All => "checksums",
    };
    let leaks = if wanted.no_leaks {
        ""
    } else {
        "nothing leaked"
    };
    let to = match (what, leaks) {
        ("", "") => String::new(),
        ("", l) => format!(" to verify {l}"),
        (w, "") => format!(" to verify {w}"),
        (w, l) => format!(" to verify {w} and verify {l}"),
    };
    session
        .ui
        .line(format!("\nTraversing all blocks{to} ...\n"))?;
    let options = Options {
        verify,
        space: !wanted.no_leaks,
        sectors: wanted.blocks > 3,
        ..Options::default()
    };
    let progress = Progress::new(session, pool.spa().space().capacity);
    let report = traverse(pool, &options, &|bytes| progress.show(bytes))
        .or_cannot(|| format!("cannot traverse '{}'", pool.name()))?;
    progress.end();
    let mut out = String::new();
    let sound = summary(&mut out, pool, &report, wanted);
    if wanted.blocks > 1 {
        table(&mut out, &report.figures, wanted);
        histogram(&mut out, &report.figures);
    }
    session.ui.print(out)?;
    match (sound, report.failed) {
        (_, failed) if failed > 0 => Err(silent(3)),
        (false, _) => Err(silent(2)),
        _ => Ok(()),
    }
}

/// Prints failed reads of a walk that has another purpose.
pub fn failures(session: &mut Session, report: &Report) -> Outcome {
    let mut out = String::new();
    failure_lines(&mut out, report);
    session.ui.print(out)?;
    if report.failed > 0 {
        return Err(silent(3));
    }
    Ok(())
}

fn failure_lines(out: &mut String, report: &Report) {
    for f in report.errors.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "zdb_blkptr_cb: Got error {} reading <{}, {}, {}, {:x}> {} -- skipping\n\t{}",
            f.error.errno().0,
            f.objset,
            f.object as i64,
            f.level,
            if f.block == u64::MAX { 0 } else { f.block },
            super::pointer::full(&f.bp),
            f.error
        );
    }
}

/// An exit without a message: the output says what is wrong.
pub fn silent(code: u8) -> Stop {
    let mut error = CommandError::new("");
    error.code = code;
    error.into()
}

/// Lines of progress on the error stream, each over the one before.
struct Progress {
    stream: Option<std::fs::File>,
    last: AtomicU64,
    start: Instant,
    all: u64,
}

impl Progress {
    fn new(session: &Session, all: u64) -> Self {
        let stream = session
            .ui
            .is_watched()
            .then(|| session.ui.err().try_clone().ok())
            .flatten();
        Self {
            stream,
            last: AtomicU64::new(0),
            start: Instant::now(),
            all,
        }
    }

    fn show(&self, bytes: u64) {
        if bytes < self.last.load(Relaxed).saturating_add(STEP) {
            return;
        }
        self.last.store(bytes, Relaxed);
        let ms = (self.start.elapsed().as_millis() as u64).max(1);
        let rate = bytes / ms * 1000;
        let left = self.all.saturating_sub(bytes) / rate.max(1);
        let line = format!(
            "\r{:>5} completed ({:>4}/s) at most {}hr {:>2}min {:>2}sec left        ",
            nicenum(bytes),
            nicenum(rate),
            left / 3600,
            left / 60 % 60,
            left % 60
        );
        if let Some(mut stream) = self.stream.as_ref() {
            let _ = stream.write_all(line.as_bytes());
        }
    }

    fn end(&self) {
        if let (Some(mut stream), true) = (self.stream.as_ref(), self.last.load(Relaxed) > 0) {
            let _ = stream.write_all(b"\r");
        }
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 1.0 } else { a as f64 / b as f64 }
}

/// The first part. Returns whether the space maps match.
fn summary(out: &mut String, pool: &Pool, report: &Report, wanted: BlockOptions) -> bool {
    failure_lines(out, report);
    let mut sound = true;
    if let Some(e) = &report.no_space {
        let _ = writeln!(out, "\tLeaks are not looked for: {e}\n");
    }
    if let Some(leaks) = &report.leaks {
        sound = leak_lines(out, report, leaks);
    }
    total_lines(out, report);
    classes(out, pool, report);
    out.push('\n');
    embedded_lines(out, &report.figures, wanted);
    ditto_lines(out, report);
    let _ = wanted.exact;
    indirect_lines(out, pool);
    out.push('\n');
    sound && report.failed == 0
}

/// Sums of all blocks, and the space saved by compression, deduplication and clones.
fn total_lines(out: &mut String, report: &Report) {
    let t = &report.figures.totals;
    let avg = |bytes: u64| bytes / t.all.blocks.max(1);
    let _ = writeln!(out, "\n\tbp count:       {:>15}", t.all.blocks);
    let _ = writeln!(out, "\tganged count:   {:>15}", t.gangs);
    let _ = writeln!(
        out,
        "\tbp logical:     {:>15}      avg: {:>6}",
        t.all.lsize,
        avg(t.all.lsize)
    );
    for (name, bytes) in [
        ("bp physical: ", t.all.psize),
        ("bp allocated:", t.all.asize),
    ] {
        let _ = writeln!(
            out,
            "\t{name}   {bytes:>15}      avg: {:>6}     compression: {:>6.2}",
            avg(bytes),
            ratio(t.all.lsize, bytes)
        );
    }
    let deduped = ratio(
        t.all.asize,
        t.all.asize.saturating_sub(t.deduped.bytes).max(1),
    );
    // OpenZFS divides the shared bytes by the rest, plus one.
    let _ = writeln!(
        out,
        "\tbp deduped:     {:>15}    ref>1: {:>6}   deduplication: {:>6.2}",
        t.deduped.bytes,
        t.deduped.blocks,
        if t.deduped.bytes == 0 {
            1.0
        } else {
            t.deduped.bytes as f64 / t.all.asize.max(1) as f64 + 1.0
        }
        .min(deduped)
    );
    let _ = writeln!(
        out,
        "\tbp cloned:      {:>15}    count: {:>6}",
        t.cloned.bytes, t.cloned.blocks
    );
}

/// Blocks that are embedded in their pointers.
fn embedded_lines(out: &mut String, figures: &Figures, wanted: BlockOptions) {
    let embedded = figures.totals.embedded;
    if embedded > 0 {
        let _ = writeln!(
            out,
            "\tadditional, non-pointer bps of type 0: {embedded:>10}"
        );
        if wanted.blocks > 2 {
            out.push_str("\t number of (compressed) bytes:  number of bps\n");
            super::histogram::lines(out, "\t\t\t", &figures.embedded, 0);
        }
    }
}

/// Blocks with several copies that are closer together than they should be.
fn ditto_lines(out: &mut String, report: &Report) {
    let t = &report.figures.totals;
    if t.ditto_on_one > 0 {
        let _ = writeln!(out, "\tDittoed blocks on same vdev: {}", t.ditto_on_one);
    }
    if t.ditto_in_metaslab > 0 {
        let _ = writeln!(
            out,
            "\tDittoed blocks in same metaslab: {}",
            t.ditto_in_metaslab
        );
    }
}

/// How many mappings removed vdevs have.
fn indirect_lines(out: &mut String, pool: &Pool) {
    for (id, top) in pool.config().vdev_tree.children.iter().enumerate() {
        let Some(mapping) = &top.indirect else {
            continue;
        };
        let segments = pool.spa().mos().dnode(zuse::ObjectId(mapping.object));
        if let Ok(dnode) = segments {
            let header = dnode.bonus_vec();
            let words = header.as_chunks::<8>().0;
            let count = words.get(2).map_or(0, |w| u64::from_le_bytes(*w));
            let _ = writeln!(
                out,
                "\tindirect vdev id {id} has {count} segments ({count} in memory)"
            );
        }
    }
}

fn leak_lines(out: &mut String, report: &Report, leaks: &[Leak]) -> bool {
    let leaked = report.leaked;
    if leaked == 0 && report.failed == 0 {
        out.push_str("\n\tNo leaks (block sum matches space maps exactly)\n");
        return true;
    }
    for l in leaks {
        let _ = writeln!(
            out,
            "leaked space: vdev {}, offset 0x{:x}, size {}",
            l.vdev, l.offset, l.size
        );
    }
    let allocated: u64 = report.allocated.iter().map(|(_, a, _)| a).sum();
    let _ = writeln!(
        out,
        "block traversal size {} != alloc {allocated} (leaked {leaked})",
        allocated.saturating_sub(leaked)
    );
    false
}

/// The purpose of a top-level vdev.
fn bias(pool: &Pool, vdev: u32) -> Option<String> {
    let config = pool.config();
    let zap = config.vdev_tree.children.get(vdev as usize)?.zap_top?;
    let dnode = pool.spa().mos().dnode(zuse::ObjectId(zap)).ok()?;
    let value = zuse::tools::Zap::open(&dnode)
        .ok()?
        .lookup(b"org.zfsonlinux:allocation_bias")
        .ok()??;
    match value {
        zuse::tools::ZapValue::Bytes(text) => String::from_utf8(text)
            .ok()
            .map(|t| t.trim_end_matches('\0').to_owned()),
        _ => None,
    }
}

/// Space by class, as the headers of the space maps have it.
fn classes(out: &mut String, pool: &Pool, report: &Report) {
    let tops = pool.spa().vdevs().tops();
    let mut sums = [(0u64, 0u64); 4];
    // A class is printed as long as it has a vdev.
    let mut there = [true, false, false, false];
    // The space of a removed vdev still counts.
    for top in tops
        .iter()
        .filter(|t| t.is_concrete() || *t.kind() == zuse::VdevKind::Indirect)
    {
        let stored = report
            .allocated
            .iter()
            .find(|(id, _, _)| *id == top.id())
            .map_or(0, |(_, _, stored)| *stored);
        let class = match bias(pool, top.id()).as_deref() {
            _ if top.is_log() => 3,
            Some("special") => 1,
            Some("dedup") => 2,
            _ => 0,
        };
        if let Some(there) = there.get_mut(class).filter(|_| top.is_concrete()) {
            *there = class != 3;
        }
        let shift = top.metaslab_shift();
        if let Some(sum) = sums.get_mut(class) {
            sum.0 += stored;
            sum.1 += if matches!(top.kind(), zuse::VdevKind::Draid { .. }) && shift > 0 {
                // Its metaslabs are whole rows, so they are somewhat smaller.
                let regions = (0..top.asize() >> shift)
                    .map_while(|i| pool.spa().metaslab_region(top.id(), i));
                regions.map(|(_, size)| size).sum()
            } else {
                (top.asize() >> shift) << shift
            };
        }
    }
    let names = ["Normal class:", "Special class", "Dedup class", "Log class"];
    let mut line = |name: &str, alloc: u64, space: u64| {
        let used = if space == 0 {
            " -nan%".to_owned()
        } else {
            format!("{:>5.2}%", 100.0 * alloc as f64 / space as f64)
        };
        let _ = writeln!(out, "\t{name:<16} {alloc:>14}     used: {used}");
    };
    if !report.allocated.is_empty() {
        for (i, name) in names.iter().enumerate() {
            let (alloc, space) = sums.get(i).copied().unwrap_or_default();
            if there.get(i).is_some_and(|t| *t) {
                line(name, alloc, space);
            }
        }
        let kept = |class| pool.embedded_log(class).unwrap_or_default();
        let log = kept(VdevClass::Normal);
        line("Embedded log class", log.allocated, log.size);
        // Special vdevs have an embedded log class of their own.
        if there[1] {
            let log = kept(VdevClass::Special);
            line("Special embedded log", log.allocated, log.size);
        }
    }
}

fn row(out: &mut String, stat: &Stat, total: &Stat, name: &str) {
    if stat.asize == 0 {
        let _ = writeln!(
            out,
            "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>6}\t{name}",
            "-", "-", "-", "-", "-", "-", "-"
        );
        return;
    }
    let _ = writeln!(
        out,
        "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5.2}\t{:>6.2}\t{name}",
        nicenum(stat.blocks),
        nicenum(stat.lsize),
        nicenum(stat.psize),
        nicenum(stat.asize),
        nicenum(stat.asize / stat.blocks),
        ratio(stat.lsize, stat.psize),
        100.0 * stat.asize as f64 / total.asize.max(1) as f64,
    );
}

/// How many blocks of a row and a level are stored in how many sectors, from `-bbbb` on. Nothing
/// for a row without space.
fn sectors(
    out: &mut String,
    figures: &Figures,
    wanted: BlockOptions,
    (row, level): (Option<usize>, Option<usize>),
) {
    let asize = row.map_or(figures.totals.all.asize, |r| figures.row(r, level).asize);
    if wanted.blocks < 4 || asize == 0 {
        return;
    }
    let counts = figures.sectors(row, level);
    let (Some(first), Some(last)) = (counts.keys().next(), counts.keys().last()) else {
        return;
    };
    let all: Vec<u64> = (*first..=*last)
        .map(|n| counts.get(&n).copied().unwrap_or(0))
        .collect();
    out.push_str("psize (in 512-byte sectors): number of blocks\n");
    super::histogram::lines(out, "\t\t\t", &all, *first as usize);
}

/// Metadata: blocks above level 0, and object types that are metadata. Rows that print as empty do
/// not count.
fn metadata(figures: &Figures) -> Stat {
    let mut sum = Stat::default();
    for i in 0..DEFERRED {
        let is_metadata = object_type::is_metadata(u8::try_from(i).unwrap_or(0));
        if figures.row(i, None).asize > 0 {
            let from = usize::from(!is_metadata);
            (from..8).for_each(|level| sum.add(&figures.row(i, Some(level))));
        }
    }
    sum
}

fn table(out: &mut String, figures: &Figures, wanted: BlockOptions) {
    out.push_str("Blocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType\n");
    let total = &figures.totals.all;
    for i in 0..=OTHER {
        let name = match i {
            DEFERRED => "deferred free",
            55 => "dedup ditto",
            OTHER => "other",
            i => object_type::title(u8::try_from(i).unwrap_or(0)),
        };
        let sum = figures.row(i, None);
        if wanted.blocks > 2 && sum.blocks > 0 {
            let levels: Vec<usize> = (0..8)
                .filter(|l| figures.row(i, Some(*l)).blocks > 0)
                .collect();
            if levels.len() > 1 || levels.first().is_some_and(|l| *l > 0) {
                for l in levels.iter().rev() {
                    let text = format!("    L{l} {name}");
                    row(out, &figures.row(i, Some(*l)), total, &text);
                    sectors(out, figures, wanted, (Some(i), Some(*l)));
                }
            }
        }
        row(out, &sum, total, name);
        sectors(out, figures, wanted, (Some(i), None));
    }
    row(out, total, total, "Total");
    sectors(out, figures, wanted, (None, None));
    row(out, &metadata(figures), total, "Metadata Total");
}

fn histogram(out: &mut String, figures: &Figures) {
    out.push_str(
        "\nBlock Size Histogram\n(note: all categories are binned separately)\n\n  block   psize                lsize                asize\n   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.\n",
    );
    let mut sums = [0u64; 3];
    let bins = figures.sizes.iter().map(|s| s.len()).min().unwrap_or(0);
    for i in 0..bins {
        let _ = write!(out, "{:>7}:", nicenum(512 << i));
        for (sizes, sum) in figures.sizes.iter().zip(&mut sums) {
            let bin: Bin = sizes.get(i).copied().unwrap_or_default();
            *sum += bin.bytes;
            let _ = write!(
                out,
                " {:>6} {:>6} {:>6}",
                nicenum(bin.blocks),
                nicenum(bin.bytes),
                nicenum(*sum)
            );
        }
        out.push('\n');
    }
}

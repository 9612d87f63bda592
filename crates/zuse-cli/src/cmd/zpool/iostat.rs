//! `zpool iostat`

mod figures;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::list::{ask, by_class};
use super::repeat::{Repeat, Stamp, VdevNames};
use crate::args::Devices;
use crate::error::{CommandError, Outcome};
use crate::nicenum::nicenum;
use crate::query::{OpRow, PoolRow, VdevRow};
use crate::session::Session;
use figures::Group;

/// Show reads and writes of pools
///
/// The first report has averages since the pool was opened, later ones averages of an interval.
/// Zuse has no queue of its own: operations go to the host at once, so all their time is that of
/// the device. Reads and writes of labels count as synchronous, writes of data as asynchronous.
///
/// A pool that no process holds is opened for each report and closed again, so that other commands
/// can open it. What opening it reads is in the first report only, and later reports show zeros.
#[derive(Args, Debug)]
pub struct Iostat {
    /// Also the devices
    #[arg(short)]
    verbose: bool,
    /// No headers, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// Without the first report
    #[arg(short = 'y')]
    skip_first: bool,
    /// Headers only once
    #[arg(short = 'n')]
    headers_once: bool,
    #[command(flatten)]
    names: VdevNames,
    #[command(flatten)]
    stamp: Stamp,
    /// Also average latencies
    #[arg(short = 'l')]
    latency: bool,
    /// Also operations in flight
    #[arg(short = 'q')]
    queues: bool,
    /// Histograms of sizes instead: individual operations (ind), aggregated ones (agg)
    #[arg(short = 'r', conflicts_with_all = ["latency", "queues"])]
    sizes: bool,
    /// Histograms of latencies instead
    #[arg(short = 'w', conflicts_with_all = ["latency", "queues"])]
    histogram: bool,
    #[command(flatten)]
    devices: Devices,
    /// The pools, all by default, or vdevs, of one pool or of all; then seconds between reports,
    /// and their number
    #[arg(value_name = "POOL… | [POOL] VDEV… [INTERVAL [COUNT]]")]
    words: Vec<String>,
}

/// The operands of the command.
struct Operands {
    pools: Vec<String>,
    /// Vdevs of these pools, each with whether it was found. Empty: the pools themselves.
    vdevs: Vec<(String, bool)>,
}

impl Operands {
    fn parse(words: &[String], session: &Session) -> Outcome<Self> {
        let known = session.pool_names()?;
        let pools: Vec<String> = match words.first() {
            Some(first) if known.contains(first) => {
                let pools = words.iter().take_while(|w| known.contains(w));
                pools.cloned().collect()
            }
            // A single word that is no vdev is reported as a pool that does not exist.
            Some(word) if words.len() == 1 && !word.contains('/') && known.is_empty() => {
                words.to_vec()
            }
            Some(_) => known,
            None => Vec::new(),
        };
        let named = match words.first() {
            Some(first) if pools.contains(first) => pools.len(),
            _ => 0,
        };
        let here = |word: &String| match word.contains('/') {
            true => {
                let path: PathBuf = session.path(Path::new(word)).components().collect();
                path.to_string_lossy().into_owned()
            }
            false => word.clone(),
        };
        let vdevs = words.iter().skip(named).map(|w| (here(w), false)).collect();
        Ok(Self { pools, vdevs })
    }

    /// Whether a vdev was named: as printed, by its number, or by the last part of its path.
    fn names(&mut self, vdev: &VdevRow) -> bool {
        let guid = vdev.guid.to_string();
        let last = vdev.name.rsplit('/').next();
        let mut all = self.vdevs.iter_mut();
        let found = all.find(|(n, _)| *n == vdev.name || *n == guid || Some(n.as_str()) == last);
        found.map(|(_, met)| *met = true).is_some()
    }

    /// Refuses names that no vdev has.
    fn check(&self) -> Outcome {
        let mut unknown = self.vdevs.iter().filter(|(_, met)| !met).peekable();
        if unknown.peek().is_none() {
            return Ok(());
        }
        let said = match self.pools.as_slice() {
            [pool] => format!("Expected a list of vdevs in \"{pool}\", but got:"),
            _ => "Expected a list of pools or a list of vdevs, but got:".to_owned(),
        };
        let error = CommandError::new(said);
        let error = unknown.fold(error, |e, (name, _)| e.hint(format!("\t{name} (unknown)")));
        Err(error.into())
    }
}

/// One line: name, allocated, free, and the reads, writes, bytes read and bytes written so far.
struct Line {
    name: String,
    guid: u64,
    space: Option<(u64, u64)>,
    traffic: [u64; 4],
    ops: Vec<OpRow>,
    /// The title of a class, without figures.
    is_title: bool,
}

impl Line {
    fn title(text: &str) -> Self {
        Self {
            name: text.to_owned(),
            guid: 0,
            space: None,
            traffic: [0; 4],
            ops: Vec::new(),
            is_title: true,
        }
    }
}

impl Iostat {
    /// Runs the command.
    pub fn run(mut self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let mut repeat = Repeat::take(&mut self.words)?;
        let mut operands = Operands::parse(&self.words, session)?;
        let mut before: Vec<(PoolRow, Vec<Line>)> = Vec::new();
        loop {
            let rows = ask(session, &operands.pools, Some(&[]))?;
            if rows.is_empty() {
                return Err(CommandError::new("no pools available").into());
            }
            let now: Vec<(PoolRow, Vec<Line>)> = rows
                .into_iter()
                .map(|row| {
                    let lines = self.lines(&row, &mut operands);
                    (row, lines)
                })
                .collect();
            operands.check()?;
            if !before.is_empty() || !self.skip_first || !repeat.repeats() {
                let text = self.report(&now, &before, repeat.shown() == 0)?;
                session.ui.print(text)?;
                repeat.show(session)?;
            }
            before = now;
            if !repeat.again(session)? {
                return Ok(());
            }
        }
    }

    fn lines(&self, pool: &PoolRow, operands: &mut Operands) -> Vec<Line> {
        if !operands.vdevs.is_empty() {
            let mut out = Vec::new();
            for child in &pool.vdevs.children {
                self.chosen_lines(child, operands, &mut out);
            }
            return out;
        }
        let mut out = vec![Line {
            name: pool.name.clone(),
            guid: pool.guid,
            space: Some((pool.size, pool.allocated)),
            traffic: pool.vdevs.traffic,
            ops: pool.vdevs.ops.clone(),
            is_title: false,
        }];
        if self.verbose {
            let classes = by_class(pool)
                .into_iter()
                .filter(|(title, _)| *title != "spare");
            for (title, vdevs) in classes {
                if !title.is_empty() {
                    out.push(Line::title(title));
                }
                for vdev in vdevs {
                    self.vdev_lines(vdev, 1, &mut out);
                }
            }
        }
        out
    }

    /// The lines of the requested vdevs, here and below; with -v also those below one of them.
    fn chosen_lines(&self, vdev: &VdevRow, operands: &mut Operands, out: &mut Vec<Line>) {
        if operands.names(vdev) {
            out.push(self.line(vdev, 0));
            if self.verbose {
                for child in &vdev.children {
                    self.vdev_lines(child, 1, out);
                }
                return;
            }
        }
        for child in &vdev.children {
            self.chosen_lines(child, operands, out);
        }
    }

    fn vdev_lines(&self, vdev: &VdevRow, level: usize, out: &mut Vec<Line>) {
        out.push(self.line(vdev, level));
        for child in &vdev.children {
            self.vdev_lines(child, level + 1, out);
        }
    }

    fn line(&self, vdev: &VdevRow, level: usize) -> Line {
        let name = self.names.of(vdev);
        let indent = if self.scripted { 0 } else { 2 * level };
        Line {
            name: format!("{:indent$}{name}", ""),
            guid: vdev.guid,
            space: vdev.space,
            traffic: vdev.traffic,
            ops: vdev.ops.clone(),
            is_title: false,
        }
    }

    fn cells(&self, line: &Line, earlier: Option<&Line>, seconds: f64) -> Vec<String> {
        let number = |n: u64| {
            if self.parsable {
                n.to_string()
            } else {
                nicenum(n)
            }
        };
        let mut cells = vec![line.name.clone()];
        if line.is_title {
            let columns = self.groups().iter().map(|g| g.columns.len()).sum::<usize>();
            cells.resize(columns + 1, "-".to_owned());
            return cells;
        }
        match line.space {
            Some((size, used)) => {
                cells.extend([number(used), number(size.saturating_sub(used))]);
            }
            None => cells.extend(["-".to_owned(), "-".to_owned()]),
        }
        let base = earlier.map_or([0; 4], |l| l.traffic);
        for (now, then) in line.traffic.iter().zip(base) {
            // A pool that was opened again counts from zero.
            let done = now.checked_sub(then).unwrap_or(*now);
            cells.push(number((done as f64 / seconds.max(0.001)) as u64));
        }
        let ops = recent(line, earlier);
        if self.latency {
            cells.extend(figures::waits(&ops, self.parsable));
        }
        if self.queues {
            cells.extend(figures::queues(&ops, self.parsable));
        }
        cells
    }

    /// Groups of columns and the names of these.
    fn groups(&self) -> Vec<Group> {
        let mut groups = figures::BASE.to_vec();
        if self.latency {
            groups.extend(figures::WAITS);
        }
        if self.queues {
            groups.extend(figures::QUEUES);
        }
        groups
    }

    fn report(
        &self,
        now: &[(PoolRow, Vec<Line>)],
        before: &[(PoolRow, Vec<Line>)],
        first: bool,
    ) -> Outcome<String> {
        let mut out = String::new();
        if let Some(time) = self.stamp.line() {
            let _ = writeln!(out, "{time}");
        }
        let table = self.table(now, before, &mut out);
        if self.sizes || self.histogram {
            return Ok(out);
        }
        if self.scripted {
            for cells in table.iter().filter(|c| !c.is_empty()) {
                let _ = writeln!(out, "{}", cells.join("\t"));
            }
            return Ok(out);
        }
        self.print_table(&table, first || !self.headers_once, &mut out);
        Ok(out)
    }

    /// The cells of the lines, with an empty line after each pool. Histograms are printed instead
    /// if requested.
    fn table(
        &self,
        now: &[(PoolRow, Vec<Line>)],
        before: &[(PoolRow, Vec<Line>)],
        out: &mut String,
    ) -> Vec<Vec<String>> {
        let mut table = Vec::new();
        for (pool, lines) in now {
            let old = before.iter().find(|(p, _)| p.guid == pool.guid);
            let since = old.map_or(0.0, |(p, _)| p.seconds);
            // Opened again meanwhile: its counts since then.
            let again = old.is_some_and(|(p, _)| p.process != pool.process || pool.seconds < since);
            // For this report alone.
            let for_us = old.is_some() && pool.process == std::process::id();
            let seconds = if again {
                pool.seconds
            } else {
                pool.seconds - since
            };
            for line in lines {
                let earlier = match for_us {
                    true => Some(line),
                    false => old
                        .filter(|_| !again)
                        .and_then(|(_, l)| l.iter().find(|l| l.guid == line.guid)),
                };
                if line.is_title && (self.sizes || self.histogram) {
                    continue;
                }
                if !self.sizes && !self.histogram {
                    table.push(self.cells(line, earlier, seconds));
                    continue;
                }
                self.histograms(line, &recent(line, earlier), out);
            }
            if !lines.is_empty() {
                table.push(Vec::new());
            }
        }
        table
    }

    /// The requested histograms of a line.
    fn histograms(&self, line: &Line, ops: &[OpRow], out: &mut String) {
        for by_size in [true, false] {
            if if by_size { self.sizes } else { self.histogram } {
                *out += &figures::histogram(
                    line.name.trim_start(),
                    ops,
                    by_size,
                    self.parsable,
                    self.scripted,
                );
            }
        }
    }

    /// Puts out a table for people.
    fn print_table(&self, table: &[Vec<String>], head: bool, out: &mut String) {
        let several = table.iter().filter(|c| c.is_empty()).count() > 1;
        let groups = self.groups();
        let columns: usize = groups.iter().map(|g| g.columns.len()).sum();
        let width = |i: usize, min_width: usize| {
            let cells = table.iter().filter_map(|c| c.get(i));
            cells.map(|c| c.chars().count()).fold(min_width, usize::max)
        };
        let widths: Vec<usize> = (0..=columns)
            .map(|i| width(i, if i == 0 { 10 } else { 5 }))
            .collect();
        let rule = widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>();
        let rule = rule.join("  ");
        if head {
            figures::head(["", "pool"], &groups, &widths, out);
            let _ = writeln!(out, "{rule}");
        }
        for cells in table {
            match cells.split_first() {
                Some((name, rest)) => {
                    let _ = write!(out, "{name:<width$}", width = widths[0]);
                    for (cell, width) in rest.iter().zip(&widths[1..]) {
                        let _ = write!(out, "  {cell:>width$}");
                    }
                    out.push('\n');
                }
                None if self.verbose || several => {
                    let _ = writeln!(out, "{rule}");
                }
                None => {}
            }
        }
    }
}

/// Operations since an earlier report.
fn recent(line: &Line, earlier: Option<&Line>) -> Vec<OpRow> {
    let none = OpRow::default();
    let then = |i: usize| earlier.and_then(|l| l.ops.get(i)).unwrap_or(&none);
    let ops = line.ops.iter().enumerate();
    ops.map(|(i, now)| now.since(then(i))).collect()
}

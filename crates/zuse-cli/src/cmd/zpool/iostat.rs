//! `zpool iostat`

mod figures;

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::list::ask;
use crate::args::Devices;
use crate::date;
use crate::error::{CommandError, Outcome};
use crate::nicenum::nicenum;
use crate::query::{OpRow, PoolRow, VdevRow};
use crate::session::Session;
use figures::Group;

/// Show reads and writes of pools
///
/// The first report has the averages since a pool was opened, those that follow the averages of an interval. Operations go to the
/// host at once: none waits in a queue of ours, so all the time that one takes is that of its device. Reads count as
/// synchronous, writes of data as asynchronous, writes of labels as synchronous ones.
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
    /// Headers once only
    #[arg(short = 'n')]
    headers_once: bool,
    /// Numbers of vdevs instead of names
    #[arg(short)]
    guids: bool,
    /// Links are followed: names are so always
    #[arg(short = 'L', hide = true)]
    real_links: bool,
    /// Full paths: names are so always
    #[arg(short = 'P', hide = true)]
    full_paths: bool,
    /// A time before each report: d as a date, u in seconds
    #[arg(short = 'T', value_name = "d|u", value_parser = ["d", "u"])]
    time: Option<String>,
    /// Also how long operations took on average
    #[arg(short = 'l')]
    latency: bool,
    /// Also operations under way
    #[arg(short = 'q')]
    queues: bool,
    /// Operations by size instead: of one buffer (ind), joined of several (agg)
    #[arg(short = 'r', conflicts_with_all = ["latency", "queues"])]
    sizes: bool,
    /// Operations by the time they took instead
    #[arg(short = 'w', conflicts_with_all = ["latency", "queues"])]
    histogram: bool,
    #[command(flatten)]
    devices: Devices,
    /// The pools, all by default; then seconds from report to report, and how many of them
    #[arg(value_name = "POOL… [INTERVAL [COUNT]]")]
    words: Vec<String>,
}

/// One line: name, allocated, free, and reads, writes, bytes read, bytes written up to now.
struct Line {
    name: String,
    guid: u64,
    space: Option<(u64, u64)>,
    traffic: [u64; 4],
    ops: Vec<OpRow>,
}

impl Iostat {
    /// Does it.
    pub fn run(mut self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let (interval, count) = self.times()?;
        let mut before: Vec<(PoolRow, Vec<Line>)> = Vec::new();
        let mut shown = 0;
        loop {
            let rows = ask(session, &self.words, Some(&[]))?;
            if rows.is_empty() {
                session.ui.say("no pools available");
                return Ok(());
            }
            let now: Vec<(PoolRow, Vec<Line>)> = rows
                .into_iter()
                .map(|row| {
                    let lines = self.lines(&row);
                    (row, lines)
                })
                .collect();
            if !before.is_empty() || !self.skip_first || interval.is_none() {
                let text = self.report(&now, &before, shown == 0)?;
                session.ui.print(text)?;
                session.ui.flush()?;
                shown += 1;
            }
            let Some(pause) = interval.filter(|_| count.is_none_or(|n| shown < n)) else {
                return Ok(());
            };
            before = now;
            // Others may want the pool meanwhile.
            session.finish()?;
            std::thread::sleep(pause);
        }
    }

    /// Takes interval and count off the words.
    fn times(&mut self) -> Outcome<(Option<Duration>, Option<u64>)> {
        let mut numbers = Vec::new();
        while numbers.len() < 2
            && let Some(n) = self.words.last().and_then(|w| w.parse::<f64>().ok())
        {
            numbers.push(n);
            self.words.pop();
        }
        let count = (numbers.len() == 2).then(|| numbers.remove(0) as u64);
        let Some(seconds) = numbers.pop() else {
            return Ok((None, None));
        };
        if seconds == 0.0 {
            return Err(CommandError::usage("interval cannot be zero").into());
        }
        let pause = Duration::try_from_secs_f64(seconds)
            .map_err(|_| CommandError::usage("invalid interval"))?;
        Ok((Some(pause), count))
    }

    fn lines(&self, pool: &PoolRow) -> Vec<Line> {
        let mut out = vec![Line {
            name: pool.name.clone(),
            guid: pool.guid,
            space: Some((pool.size, pool.allocated)),
            traffic: pool.vdevs.traffic,
            ops: pool.vdevs.ops.clone(),
        }];
        if self.verbose {
            for child in &pool.vdevs.children {
                self.vdev_lines(child, 1, &mut out);
            }
        }
        out
    }

    fn vdev_lines(&self, vdev: &VdevRow, level: usize, out: &mut Vec<Line>) {
        let name = if self.guids {
            vdev.guid.to_string()
        } else {
            vdev.name.clone()
        };
        let indent = if self.scripted { 0 } else { 2 * level };
        out.push(Line {
            name: format!("{:indent$}{name}", ""),
            guid: vdev.guid,
            space: vdev.space,
            traffic: vdev.traffic,
            ops: vdev.ops.clone(),
        });
        for child in &vdev.children {
            self.vdev_lines(child, level + 1, out);
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
        match line.space {
            Some((size, used)) => {
                cells.extend([number(used), number(size.saturating_sub(used))]);
            }
            None => cells.extend(["-".to_owned(), "-".to_owned()]),
        }
        let base = earlier.map_or([0; 4], |l| l.traffic);
        for (now, then) in line.traffic.iter().zip(base) {
            // A pool that was opened anew counts from zero.
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

    /// Groups of columns with the names of those.
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
        if let Some(form) = &self.time {
            let seconds = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_secs());
            let text = if form == "u" {
                seconds.to_string()
            } else {
                date::seconds(seconds)
            };
            let _ = writeln!(out, "{text}");
        }
        let mut table = Vec::new();
        for (pool, lines) in now {
            let old = before.iter().find(|(p, _)| p.guid == pool.guid);
            let since = old.map_or(0.0, |(p, _)| p.seconds);
            // Opened anew in between: what it did since then.
            let again = pool.seconds < since;
            let seconds = if again {
                pool.seconds
            } else {
                pool.seconds - since
            };
            for line in lines {
                let earlier = old
                    .filter(|_| !again)
                    .and_then(|(_, l)| l.iter().find(|l| l.guid == line.guid));
                if !self.sizes && !self.histogram {
                    table.push(self.cells(line, earlier, seconds));
                    continue;
                }
                let ops = recent(line, earlier);
                for by_size in [true, false] {
                    if if by_size { self.sizes } else { self.histogram } {
                        out += &figures::histogram(
                            line.name.trim_start(),
                            &ops,
                            by_size,
                            self.parsable,
                            self.scripted,
                        );
                    }
                }
            }
            table.push(Vec::new());
        }
        if self.sizes || self.histogram {
            return Ok(out);
        }
        if self.scripted {
            for cells in table.iter().filter(|c| !c.is_empty()) {
                let _ = writeln!(out, "{}", cells.join("\t"));
            }
            return Ok(out);
        }
        let groups = self.groups();
        let columns: usize = groups.iter().map(|g| g.columns.len()).sum();
        let width = |i: usize, least: usize| {
            let cells = table.iter().filter_map(|c| c.get(i));
            cells.map(|c| c.chars().count()).fold(least, usize::max)
        };
        let widths: Vec<usize> = (0..=columns)
            .map(|i| width(i, if i == 0 { 10 } else { 5 }))
            .collect();
        let rule = widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>();
        let rule = rule.join("  ");
        if first || !self.headers_once {
            figures::head(["", "pool"], &groups, &widths, &mut out);
            let _ = writeln!(out, "{rule}");
        }
        for cells in &table {
            match cells.split_first() {
                Some((name, rest)) => {
                    let _ = write!(out, "{name:<width$}", width = widths[0]);
                    for (cell, width) in rest.iter().zip(&widths[1..]) {
                        let _ = write!(out, "  {cell:>width$}");
                    }
                    out.push('\n');
                }
                None if self.verbose || now.len() > 1 => {
                    let _ = writeln!(out, "{rule}");
                }
                None => {}
            }
        }
        Ok(out)
    }
}

/// Operations since an earlier report.
fn recent(line: &Line, earlier: Option<&Line>) -> Vec<OpRow> {
    let none = OpRow::default();
    let then = |i: usize| earlier.and_then(|l| l.ops.get(i)).unwrap_or(&none);
    let ops = line.ops.iter().enumerate();
    ops.map(|(i, now)| now.since(then(i))).collect()
}

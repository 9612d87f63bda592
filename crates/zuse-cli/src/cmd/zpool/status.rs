//! `zpool status`

mod activity;
mod object;
mod reason;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use zuse::dedup::Histogram;

use super::list::{Replies, ask_each, json_key};
use super::repeat::{Repeat, Stamp, VdevNames};
use crate::error::{CommandError, Outcome};
use crate::json::{Json, envelope};
use crate::nicenum::{nicebytes, nicenum};
use crate::query::{DedupRow, Details, PoolRow, VdevRow, WorkRow};
use crate::session::Session;
use crate::{date, dedup_table};

pub use reason::{MESSAGES, errata};

/// Show the health of pools
///
/// A pool that no process holds is opened for each report and closed again, so that other commands
/// can open it. A pool that was not imported is found with --in, or with -d and a path.
#[derive(Args, Debug)]
pub struct Status {
    /// Only pools with problems
    #[arg(short = 'x')]
    unhealthy: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// Details of errors, with the names of lost files
    #[arg(short)]
    verbose: bool,
    /// Only vdevs that are not ONLINE or have errors, and those above them
    #[arg(short = 'e')]
    ailing: bool,
    /// Also operations of devices that took longer than 30 seconds
    #[arg(short = 's')]
    slow: bool,
    /// Also errors of direct I/O: always 0, because all I/O is checked by checksums. With a path (a
    /// word with a slash, or a dot alone): where to look for devices
    #[arg(short = 'd', overrides_with = "direct")]
    direct: bool,
    /// Also the progress of initializing devices
    #[arg(short = 'i')]
    initialized: bool,
    /// Also the progress of trimming devices
    #[arg(short = 't')]
    trimmed: bool,
    /// Also the dedup tables
    #[arg(short = 'D')]
    dedup: bool,
    /// A script for more columns: refused
    #[arg(short = 'c', value_name = "SCRIPT", hide = true)]
    script: Option<String>,
    /// The power of the devices' slots: refused
    #[arg(long, hide = true)]
    power: bool,
    #[command(flatten)]
    names: VdevNames,
    #[command(flatten)]
    stamp: Stamp,
    /// As JSON
    #[arg(short, long)]
    json: bool,
    /// With --json: numbers as numbers, exact
    #[arg(long, requires = "json")]
    json_int: bool,
    /// With --json: pools by their guids
    #[arg(long, requires = "json")]
    json_pool_key_guid: bool,
    /// With --json: all vdevs at the first level too, each with its parent
    #[arg(long, requires = "json")]
    json_flat_vdevs: bool,
    /// The pools, all by default; then seconds between reports, and their number
    #[arg(value_name = "POOL… [INTERVAL [COUNT]]")]
    pools: Vec<String>,
}

impl Status {
    /// Runs the command.
    pub fn run(mut self, session: &mut Session) -> Outcome {
        self.refuse()?;
        self.take_places(session);
        let mut repeat = Repeat::take(&mut self.pools)?;
        let details = Details {
            dedup: self.dedup,
            work: self.initialized || self.trimmed,
            activity: true,
            lost: self.verbose,
        };
        loop {
            let mut replies = ask_each(session, &self.pools, Some(&[]), details)?;
            let found = !replies.rows.is_empty();
            replies
                .rows
                .iter_mut()
                .for_each(|row| self.names.put_on(row));
            self.report(session, replies)?;
            repeat.show(session)?;
            if !found && !self.json || !repeat.again(session)? {
                return Ok(());
            }
        }
    }

    /// `-d PLACE` is a place of devices, as with the other commands: no pool's name is a path.
    fn take_places(&mut self, session: &mut Session) {
        let is_place =
            |word: &mut String| word.contains('/') || matches!(word.as_str(), "." | "..");
        if !self.direct {
            return;
        }
        let places: Vec<PathBuf> = self
            .pools
            .extract_if(.., is_place)
            .map(PathBuf::from)
            .collect();
        self.direct = places.is_empty();
        session.look_in(&places);
    }

    /// Refuses options that are known but not supported here.
    fn refuse(&self) -> Outcome {
        let error = if self.script.is_some() {
            CommandError::new("cannot run scripts for columns of 'zpool status'")
                .hint("run the program itself on the paths that 'zpool status' shows")
        } else if self.power {
            CommandError::new(
                "cannot tell the power of slots: the host's enclosures are not looked at",
            )
            .hint("on Linux /sys/class/enclosure tells")
        } else {
            return Ok(());
        };
        Err(error.into())
    }

    fn report(&self, session: &mut Session, replies: Replies) -> Outcome {
        let Replies { mut rows, failed } = replies;
        if self.json {
            rows.retain(|row| !self.unhealthy || !is_well(row));
            rows.iter_mut().for_each(|row| self.narrow(row));
            let key = |r: &PoolRow| json_key(r, self.json_pool_key_guid);
            let pools: Vec<_> = rows.iter().map(|r| (key(r), self.pool_json(r))).collect();
            let mut payload = vec![("pools".to_owned(), Json::Object(pools))];
            payload.extend(self.stamp.json(self.json_int));
            session
                .ui
                .line(envelope("zpool status", payload).to_string())?;
            return Ok(());
        }
        if rows.is_empty() {
            session.ui.say("no pools available");
            return Ok(());
        }
        if let Some(time) = self.stamp.line() {
            session.ui.line(time)?;
        }
        if self.unhealthy {
            let well = rows.len();
            rows.retain(|r| !is_well(r));
            // One without an answer may be ill.
            if rows.is_empty() && failed {
                return Ok(());
            }
            if rows.is_empty() {
                let text = match (self.pools.as_slice(), well) {
                    ([one], _) => format!("pool '{one}' is healthy"),
                    _ => "all pools are healthy".into(),
                };
                session.ui.line(text)?;
                return Ok(());
            }
        }
        let texts: Vec<String> = rows.into_iter().map(|r| self.text(r)).collect();
        session.ui.print(texts.join("\n"))?;
        Ok(())
    }

    /// With -e: keeps only the vdevs with problems, and those above them.
    fn narrow(&self, row: &mut PoolRow) {
        if self.ailing {
            keep_ailing(&mut row.vdevs.children);
            keep_ailing(&mut row.cache);
            keep_ailing(&mut row.spares);
        }
    }
}

/// A spare, idle or in use, is healthy.
fn keep_ailing(vdevs: &mut Vec<VdevRow>) {
    let ails = |v: &VdevRow| {
        !matches!(v.state.as_str(), "ONLINE" | "AVAIL" | "INUSE") || v.errors != [0; 3]
    };
    vdevs.retain(|v| any(v, &ails));
    vdevs.iter_mut().for_each(|v| keep_ailing(&mut v.children));
}

fn is_well(row: &PoolRow) -> bool {
    row.state == "ONLINE"
        && row.warnings.is_empty()
        && row.lost_blocks == 0
        && row.errata == 0
        && !row.cache.iter().any(|v| v.state == "UNAVAIL")
        && !any(&row.vdevs, &|v| v.errors != [0; 3])
}

fn any(vdev: &VdevRow, what: &dyn Fn(&VdevRow) -> bool) -> bool {
    what(vdev) || vdev.children.iter().any(|c| any(c, what))
}

impl Status {
    fn text(&self, mut row: PoolRow) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "  pool: {}\n state: {}", row.name, row.state);
        if let Some(reason) = reason::of(&row) {
            let _ = writeln!(out, "status: {}\naction: {}", reason.status, reason.action);
            if let Some(id) = reason.message {
                let _ = writeln!(out, "   see: {}{id}", reason::MESSAGES);
            }
        }
        out += &activity::text(&row);
        self.narrow(&mut row);
        let aux = row.cache.iter().chain(&row.spares).map(|v| width(v, 1));
        let width = aux.fold(width(&row.vdevs, 0).max(4), usize::max);
        let _ = write!(
            out,
            "config:\n\n\t{:<width$}  {:<8} {:>5} {:>5} {:>5}",
            "NAME", "STATE", "READ", "WRITE", "CKSUM"
        );
        for (title, _) in [("SLOW", self.slow), ("DIO", self.direct)]
            .iter()
            .filter(|(_, shown)| *shown)
        {
            let _ = write!(out, " {title:>5}");
        }
        out.push('\n');
        let mut root = row.vdevs.clone();
        root.state.clone_from(&row.state);
        root.children.retain(|c| c.class == "normal");
        self.vdev_lines(&root, 0, width, &mut out);
        for (class, title) in [("dedup", "dedup"), ("special", "special"), ("log", "logs")] {
            let vdevs = row.vdevs.children.iter().filter(|c| c.class == class);
            for (i, vdev) in vdevs.enumerate() {
                if i == 0 {
                    let _ = writeln!(out, "\t{title}\t");
                }
                self.vdev_lines(vdev, 1, width, &mut out);
            }
        }
        if !row.cache.is_empty() {
            out.push_str("\tcache\n");
            row.cache
                .iter()
                .for_each(|c| self.vdev_lines(c, 1, width, &mut out));
        }
        if !row.spares.is_empty() {
            out.push_str("\tspares\n");
            for spare in &row.spares {
                let note = if spare.note.is_empty() {
                    String::new()
                } else {
                    format!("  {}", spare.note)
                };
                let name = format!("  {}", spare.name);
                let _ = writeln!(out, "\t{name:<width$}  {:<8}{note}", spare.state);
            }
        }
        out.push('\n');
        out += &self.errors_text(&row);
        if let Some(dedup) = &row.dedup {
            out += &dedup_text(dedup, self.parsable);
        }
        out
    }

    fn errors_text(&self, row: &PoolRow) -> String {
        match (row.lost_blocks, row.warnings.first()) {
            (0, None) => "errors: No known data errors\n".into(),
            (0, Some(first)) => format!("errors: {first}\n"),
            (n, _) if !self.verbose => {
                format!("errors: {n} data errors, use '-v' for a list\n")
            }
            _ => {
                let mut out =
                    "errors: Permanent errors have been detected in the following files:\n\n"
                        .to_owned();
                for lost in &row.damaged {
                    let _ = writeln!(out, "        {}", lost.name);
                }
                out
            }
        }
    }

    fn vdev_lines(&self, vdev: &VdevRow, level: usize, width: usize, out: &mut String) {
        let name = format!("{}{}", "  ".repeat(level), vdev.name);
        let count = |n: u64| {
            if self.parsable {
                n.to_string()
            } else {
                nicenum(n)
            }
        };
        let [reads, writes, checksums] = vdev.errors.map(count);
        let _ = write!(
            out,
            "\t{name:<width$}  {:<8} {reads:>5} {writes:>5} {checksums:>5}",
            vdev.state
        );
        if self.slow {
            let slow = match vdev.path {
                Some(_) => count(vdev.slow),
                None => "-".to_owned(),
            };
            let _ = write!(out, " {slow:>5}");
        }
        if self.direct {
            let _ = write!(out, " {:>5}", 0);
        }
        if !vdev.note.is_empty() {
            let _ = write!(out, "  {}", vdev.note);
        }
        if !vdev.doing.is_empty() {
            let _ = write!(out, "  ({})", vdev.doing);
        }
        if let Some([initialize, trim]) = &vdev.work {
            if self.initialized {
                let _ = write!(out, "  {}", work_text(initialize, "initialized"));
            }
            if self.trimmed {
                // A missing device cannot report whether it supports trim.
                let text = match vdev.psize {
                    0 => "(trim unsupported)".to_owned(),
                    _ => work_text(trim, "trimmed"),
                };
                let _ = write!(out, "  {text}");
            }
        }
        out.push('\n');
        for child in &vdev.children {
            self.vdev_lines(child, level + 1, width, out);
        }
    }
}

/// How much of a device is `done`. Canceled work does not count.
fn work_text(work: &WorkRow, done: &str) -> String {
    let verb = match work.state {
        1 => "started at",
        3 => "suspended, started at",
        4 => "completed at",
        _ => return format!("(un{done})"),
    };
    let (percent, since) = (work.percent(), date::ctime(work.since));
    format!("({percent}% {done}, {verb} {since})")
}

fn dedup_text(dedup: &DedupRow, exact: bool) -> String {
    if dedup.entries == 0 {
        return "\n dedup: no DDT entries\n".to_owned();
    }
    let size = |n: u64| if exact { n.to_string() } else { nicebytes(n) };
    let (on_disk, in_memory) = (size(dedup.on_disk), size(dedup.in_memory));
    let entries = dedup.entries;
    let mut out =
        format!("\n dedup: DDT entries {entries}, size {on_disk} on disk, {in_memory} in core\n\n");
    dedup_table::rows(&mut out, &Histogram::parse(&dedup.histogram), true);
    out
}

/// Width of the longest indented name.
fn width(vdev: &VdevRow, level: usize) -> usize {
    let own = 2 * level + vdev.name.chars().count();
    vdev.children
        .iter()
        .map(|c| width(c, level + 1))
        .fold(own, usize::max)
}

#[cfg(test)]
mod tests {
    use super::work_text;
    use crate::date;
    use crate::query::WorkRow;

    #[test]
    fn work_on_a_device_is_told_with_percent_and_time() {
        let time = date::ctime(1_795_288_965);
        for (state, expected) in [
            (0, "(untrimmed)".to_owned()),
            (1, format!("(37% trimmed, started at {time})")),
            (2, "(untrimmed)".to_owned()),
            (3, format!("(37% trimmed, suspended, started at {time})")),
            (4, format!("(100% trimmed, completed at {time})")),
            (9, "(untrimmed)".to_owned()),
        ] {
            let work = WorkRow {
                state,
                bytes: [379, 1000],
                since: 1_795_288_965,
            };
            assert_eq!(work_text(&work, "trimmed"), expected, "{state}");
        }
    }
}

//! `zpool status`

mod activity;
mod reason;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::list::{ask_for, head_json, json_key};
use super::repeat::{Repeat, Stamp, VdevNames};
use crate::date;
use crate::error::{CommandError, Outcome};
use crate::json::{Json, envelope};
use crate::nicenum::{nicebytes, nicenum};
use crate::query::{DedupRow, Details, PoolRow, VdevRow, WorkRow};
use crate::session::Session;

pub use reason::{MESSAGES, errata};

/// Show how well pools are
///
/// A pool that no process holds is opened for each report and given back, so that others can have
/// it meanwhile. A pool that was not imported is found with --in, or with -d and a path.
#[derive(Args, Debug)]
pub struct Status {
    /// Only pools that are not well
    #[arg(short = 'x')]
    unhealthy: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// Everything that is known of errors
    #[arg(short)]
    verbose: bool,
    /// Only vdevs that are not ONLINE or have errors, and those above them
    #[arg(short = 'e')]
    ailing: bool,
    /// Also operations of devices that took longer than 30 seconds
    #[arg(short = 's')]
    slow: bool,
    /// Also errors of direct I/O: there are none, as no bytes go past the checksums here. With a
    /// path (a word with a slash, or a dot by itself): where to look for devices
    #[arg(short = 'd', overrides_with = "direct")]
    direct: bool,
    /// Also how far devices were initialized
    #[arg(short = 'i')]
    initialized: bool,
    /// Also how far devices were trimmed
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
    /// The pools, all by default; then seconds from report to report, and how many of them
    #[arg(value_name = "POOL… [INTERVAL [COUNT]]")]
    pools: Vec<String>,
}

impl Status {
    /// Does it.
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
            let mut rows = ask_for(session, &self.pools, Some(&[]), details)?;
            let found = !rows.is_empty();
            rows.iter_mut().for_each(|row| self.names.put_on(row));
            self.report(session, rows)?;
            repeat.show(session)?;
            if !found && !self.json || !repeat.again(session)? {
                return Ok(());
            }
        }
    }

    /// `-d PLACE` says where devices are, as with the other commands: no pool's name is a path.
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

    /// Refuses what is known and not done here.
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

    fn report(&self, session: &mut Session, mut rows: Vec<PoolRow>) -> Outcome {
        if self.json {
            rows.retain(|row| !self.unhealthy || !is_well(row));
            rows.iter_mut().for_each(|row| self.narrow(row));
            let key = |r: &PoolRow| json_key(r, self.json_pool_key_guid);
            let pools: Vec<_> = rows.iter().map(|r| (key(r), self.pool_json(r))).collect();
            let mut payload: Vec<_> = self.stamp.json().into_iter().collect();
            payload.push(("pools".to_owned(), Json::Object(pools)));
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

    /// With -e: leaves the vdevs that are not well, and those above them.
    fn narrow(&self, row: &mut PoolRow) {
        if self.ailing {
            keep_ailing(&mut row.vdevs.children);
            keep_ailing(&mut row.cache);
            keep_ailing(&mut row.spares);
        }
    }
}

/// A spare that waits or stands in is well.
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
                // What is not there cannot say whether it could be trimmed.
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

/// How far a device is `done`. Of what was canceled nothing holds.
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
    let (entries, table) = (dedup.entries, &dedup.histogram);
    format!(
        "\n dedup: DDT entries {entries}, size {on_disk} on disk, {in_memory} in core\n\n{table}"
    )
}

/// Width of the longest indented name.
fn width(vdev: &VdevRow, level: usize) -> usize {
    let own = 2 * level + vdev.name.chars().count();
    vdev.children
        .iter()
        .map(|c| width(c, level + 1))
        .fold(own, usize::max)
}

impl Status {
    fn pool_json(&self, row: &PoolRow) -> Json {
        let as_int = self.json_int;
        let mut entries: Vec<_> = head_json(row, as_int)
            .into_iter()
            .filter(|(k, _)| k != "type")
            .collect();
        if let Some(reason) = reason::of(row) {
            let text = |text: &str| Json::Text(text.replace("\n\t", " "));
            entries.push(("status".into(), text(&reason.status)));
            entries.push(("action".into(), text(&reason.action)));
            if let Some(id) = reason.message {
                entries.push(("msgid".into(), text(id)));
                entries.push((
                    "moreinfo".into(),
                    text(&format!("{}{id}", reason::MESSAGES)),
                ));
            }
        }
        let size = |n: u64| self.bytes_json(n);
        entries.extend(activity::json(row, &size, &|n| Json::number(n, as_int)));
        entries.push(("vdevs".into(), self.tree_json(row)));
        entries.extend(self.classes_json(row));
        entries.push((
            "error_count".into(),
            Json::number(row.lost_blocks.max(row.warnings.len() as u64), as_int),
        ));
        if !row.damaged.is_empty() {
            let names = row.damaged.iter().map(|d| Json::Text(d.name.clone()));
            entries.push(("errlist".into(), Json::Array(names.collect())));
        }
        if let Some(dedup) = &row.dedup {
            let figures = [
                ("entries", dedup.entries),
                ("dspace", dedup.on_disk),
                ("mspace", dedup.in_memory),
            ];
            let figures = figures.map(|(k, n)| (k, Json::number(n, as_int)));
            entries.push(("dedup_stats".into(), Json::object(figures)));
        }
        Json::Object(entries)
    }

    /// A number of bytes, for people or exact.
    fn bytes_json(&self, n: u64) -> Json {
        match self.parsable || self.json_int {
            true => Json::number(n, self.json_int),
            false => Json::Text(nicebytes(n)),
        }
    }

    /// A count, for people or exact.
    fn count_json(&self, n: u64) -> Json {
        match self.parsable || self.json_int {
            true => Json::number(n, self.json_int),
            false => Json::Text(nicenum(n)),
        }
    }

    /// The root with the vdevs of ordinary data; where that is wanted, then all vdevs beside it.
    fn tree_json(&self, row: &PoolRow) -> Json {
        let mut root = row.vdevs.clone();
        root.kind = "root".into();
        root.state.clone_from(&row.state);
        let all = root.clone();
        root.children.retain(|c| c.class == "normal");
        let tree = self.vdev_json(&root, Some(row));
        let mut vdevs = vec![(row.name.clone(), tree)];
        if self.json_flat_vdevs {
            flatten(&all, &row.name, &mut |vdev, parent| {
                let mut json = self.vdev_json(vdev, None);
                if let Json::Object(entries) = &mut json {
                    entries.insert(
                        3.min(entries.len()),
                        ("parent".into(), Json::Text(parent.to_owned())),
                    );
                }
                vdevs.push((vdev.name.clone(), json));
            });
        }
        Json::Object(vdevs)
    }

    /// The vdevs that are not of ordinary data.
    fn classes_json(&self, row: &PoolRow) -> Vec<(String, Json)> {
        let of_class = |class: &str| {
            let tops = row.vdevs.children.iter();
            tops.filter(|c| c.class == class).collect::<Vec<_>>()
        };
        let mut entries = Vec::new();
        for (title, vdevs) in [
            ("dedup", of_class("dedup")),
            ("special", of_class("special")),
            ("logs", of_class("log")),
            ("l2cache", row.cache.iter().collect()),
            ("spares", row.spares.iter().collect()),
        ] {
            if !vdevs.is_empty() {
                let vdevs = vdevs.iter();
                let vdevs = vdevs.map(|v| (v.name.clone(), self.vdev_json(v, None)));
                entries.push((title.into(), Json::Object(vdevs.collect())));
            }
        }
        entries
    }

    fn vdev_json(&self, vdev: &VdevRow, pool: Option<&PoolRow>) -> Json {
        let text = |t: &str| Json::Text(t.to_owned());
        let mut entries = vec![
            ("name".to_owned(), text(&vdev.name)),
            ("vdev_type".into(), text(&vdev.kind)),
            ("guid".into(), Json::number(vdev.guid, self.json_int)),
        ];
        if let Some(path) = &vdev.path {
            entries.push(("path".into(), text(path)));
        }
        entries.push(("class".into(), text(&vdev.class)));
        entries.push(("state".into(), text(&vdev.state)));
        if let Some(pool) = pool {
            entries.push(("alloc_space".into(), self.bytes_json(pool.allocated)));
            entries.push(("total_space".into(), self.bytes_json(pool.size)));
            entries.push(("def_space".into(), self.bytes_json(pool.size)));
        }
        if vdev.asize > 0 {
            entries.push(("rep_dev_size".into(), self.bytes_json(vdev.asize)));
        }
        for (name, n) in ["read_errors", "write_errors", "checksum_errors"]
            .iter()
            .zip(vdev.errors)
        {
            entries.push(((*name).to_owned(), self.count_json(n)));
        }
        if vdev.path.is_some() {
            entries.push(("slow_ios".into(), self.count_json(vdev.slow)));
        }
        if self.direct {
            entries.push(("dio_verify_errors".into(), self.count_json(0)));
        }
        if let Some([initialize, trim]) = &vdev.work {
            if self.initialized {
                entries.extend(self.work_json(&INITIALIZE, initialize));
            }
            if self.trimmed {
                entries.extend(self.work_json(&TRIM, trim));
            }
        }
        if !vdev.children.is_empty() {
            let children: Vec<_> = vdev
                .children
                .iter()
                .map(|c| (c.name.clone(), self.vdev_json(c, None)))
                .collect();
            entries.push(("vdevs".into(), Json::Object(children)));
        }
        Json::Object(entries)
    }

    /// How far work on a device is.
    fn work_json(&self, words: &WorkWords, work: &WorkRow) -> Vec<(String, Json)> {
        let text = |t: &str| Json::Text(t.to_owned());
        let since = match work.since {
            0 => "-".to_owned(),
            since => date::ctime(since),
        };
        let state = match work.state {
            1 => "ACTIVE",
            2 => "CANCELED",
            3 => "SUSPENDED",
            4 => "COMPLETE",
            _ => words.none,
        };
        let [done, all] = work.bytes.map(|n| self.bytes_json(n));
        let values = [text(state), done, all, text(&since), self.count_json(0)];
        let names = words.names.iter();
        names.map(|n| (*n).to_owned()).zip(values).collect()
    }
}

/// How work on a device is called in JSON.
struct WorkWords {
    /// State, bytes that are done, all bytes, time, errors.
    names: [&'static str; 5],
    /// The state of a device on which none was done.
    none: &'static str,
}

const INITIALIZE: WorkWords = WorkWords {
    names: [
        "init_state",
        "initialized",
        "to_initialize",
        "init_time",
        "init_errors",
    ],
    none: "UNINITIALIZED",
};

const TRIM: WorkWords = WorkWords {
    names: [
        "trim_state",
        "trimmed",
        "to_trim",
        "trim_time",
        "trim_errors",
    ],
    none: "UNTRIMMED",
};

/// Calls `f` with all vdevs below one and the names of their parents.
fn flatten(vdev: &VdevRow, name: &str, f: &mut dyn FnMut(&VdevRow, &str)) {
    for child in &vdev.children {
        f(child, name);
        flatten(child, &child.name, f);
    }
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

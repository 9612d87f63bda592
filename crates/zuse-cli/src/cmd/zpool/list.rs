//! `zpool list`

use clap::Args;
use zuse::property_table::{PropertyKind, pool_property};

use super::repeat::{Repeat, Stamp, VdevNames};
use crate::args::{Devices, list, properties};
use crate::error::{CommandError, Outcome};
use crate::json::{Json, envelope};
use crate::nicenum::nicenum;
use crate::present::{pool_value, source_json};
use crate::query::{Answer, Details, PoolRow, Question, VdevRow};
use crate::session::Session;
use crate::table::{Column, Side, render};

/// List pools with their space
///
/// A pool that no process holds is opened for each report and closed again, so that other commands
/// can open it.
#[derive(Args, Debug)]
pub struct List {
    /// No header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// Also the devices
    #[arg(short)]
    verbose: bool,
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
    /// Properties to list, separated by commas
    #[arg(short, value_name = "PROPERTY,…", default_value = DEFAULT)]
    output: String,
    #[command(flatten)]
    devices: Devices,
    /// The pools, all by default; then seconds between reports, and their number
    #[arg(value_name = "POOL… [INTERVAL [COUNT]]")]
    pools: Vec<String>,
}

const DEFAULT: &str = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

/// Canonical name of a pool property, a feature or a user property.
pub fn canonical(name: &str) -> Outcome<String> {
    if let Some(known) = pool_property(name) {
        return Ok(known.name.to_owned());
    }
    if name.starts_with("feature@")
        || name.starts_with("unsupported@")
        || zuse::property_table::is_user_property(name)
    {
        return Ok(name.to_owned());
    }
    Err(CommandError::usage(format!("bad property list: invalid property '{name}'")).into())
}

/// Asks about pools, all if none is named.
pub fn ask(
    session: &mut Session,
    pools: &[String],
    properties: Option<&[String]>,
) -> Outcome<Vec<PoolRow>> {
    ask_for(session, pools, properties, Details::default())
}

/// The same with figures that take longer to read.
pub fn ask_for(
    session: &mut Session,
    pools: &[String],
    properties: Option<&[String]>,
    details: Details,
) -> Outcome<Vec<PoolRow>> {
    let replies = ask_each(session, pools, properties, details)?;
    Ok(replies.rows)
}

/// The pools that answered.
pub struct Replies {
    /// Their rows.
    pub rows: Vec<PoolRow>,
    /// Another one did not, and an error was printed about it.
    pub failed: bool,
}

/// As [`ask_for`].
pub fn ask_each(
    session: &mut Session,
    pools: &[String],
    properties: Option<&[String]>,
    details: Details,
) -> Outcome<Replies> {
    let names = if pools.is_empty() {
        session.pool_names()?
    } else {
        pools.to_vec()
    };
    let mut rows = Vec::new();
    let mut failed = None;
    for name in names {
        let question = Question::Pool {
            name,
            properties: properties.map(<[String]>::to_vec),
            details,
        };
        match question.ask(session) {
            Ok(Answer::Pool(row)) => rows.push(*row),
            Ok(_) => {}
            Err(crate::error::Stop::Failed(e)) => {
                crate::say_error(&mut session.ui, &e);
                failed = Some(e.code);
            }
            Err(stop) => return Err(stop),
        }
    }
    if let (Some(code), true) = (failed, rows.is_empty()) {
        return Err(CommandError::silent(code).into());
    }
    // The others are printed, and the command fails all the same.
    session.worst = session.worst.max(failed.unwrap_or(0));
    let failed = failed.is_some();
    Ok(Replies { rows, failed })
}

impl List {
    /// Runs the command.
    pub fn run(mut self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let mut repeat = Repeat::take(&mut self.pools)?;
        let columns = properties(&self.output, canonical)?;
        let mut wanted = columns.clone();
        if self.json && self.verbose {
            let more = list(DEFAULT).into_iter().filter(|n| !columns.contains(n));
            wanted.extend(more);
        }
        loop {
            let mut rows = ask(session, &self.pools, Some(&wanted))?;
            rows.iter_mut().for_each(|row| self.names.put_on(row));
            self.report(session, &columns, &rows)?;
            repeat.show(session)?;
            if rows.is_empty() && !self.json || !repeat.again(session)? {
                return Ok(());
            }
        }
    }

    fn report(&self, session: &mut Session, columns: &[String], rows: &[PoolRow]) -> Outcome {
        let exact = self.parsable || self.json_int;
        if self.json {
            let pools = rows
                .iter()
                .map(|r| {
                    (
                        json_key(r, self.json_pool_key_guid),
                        self.json_row(r, columns, exact),
                    )
                })
                .collect::<Vec<_>>();
            let mut payload = vec![("pools".to_owned(), Json::Object(pools))];
            payload.extend(self.stamp.json(self.json_int));
            session
                .ui
                .line(envelope("zpool list", payload).to_string())?;
            return Ok(());
        }
        if rows.is_empty() {
            if !self.scripted {
                session.ui.line("no pools available")?;
            }
            return Ok(());
        }
        if let Some(time) = self.stamp.line() {
            session.ui.line(time)?;
        }
        let head: Vec<Column> = columns.iter().map(|n| column(n)).collect();
        let mut lines = Vec::new();
        for row in rows {
            lines.push(
                row.cells
                    .iter()
                    .map(|(n, c)| pool_value(n, c.value.as_deref(), exact))
                    .collect(),
            );
            if self.verbose {
                for (title, vdevs) in by_class(row) {
                    if !title.is_empty() {
                        let name = |n: &String| match n.as_str() {
                            "name" => title.to_owned(),
                            "altroot" => ALTROOT.to_owned(),
                            _ => "-".to_owned(),
                        };
                        lines.push(columns.iter().map(name).collect());
                    }
                    for child in vdevs {
                        vdev_lines(child, 1, columns, exact, &mut lines);
                    }
                }
            }
        }
        let style = session.ui.style(self.scripted);
        session.ui.print(render(&head, &lines, style))?;
        Ok(())
    }

    fn json_row(&self, row: &PoolRow, columns: &[String], exact: bool) -> Json {
        let shown = |n: &String| n != "name" && columns.contains(n);
        let properties = row.cells.iter().filter(|(n, _)| shown(n)).map(|(n, c)| {
            let value = pool_value(n, c.value.as_deref(), exact);
            (
                n.clone(),
                Json::object([
                    ("value", Json::text(&value, self.json_int)),
                    ("source", source_json(&c.source)),
                ]),
            )
        });
        let mut entries = head_json(row, self.json_int);
        entries.push((
            "properties".to_owned(),
            Json::object(properties.collect::<Vec<_>>()),
        ));
        if self.verbose {
            for (title, vdevs) in by_class(row) {
                let title = match title {
                    "" => "vdevs",
                    "cache" => "l2cache",
                    "spare" => "spares",
                    other => other,
                };
                let all = vdevs.iter().map(|v| {
                    let json = self.json_vdev(v, 1, exact);
                    (v.name.clone(), json)
                });
                entries.push((title.to_owned(), Json::object(all.collect::<Vec<_>>())));
            }
        }
        Json::Object(entries)
    }

    /// A vdev with what is below it.
    fn json_vdev(&self, vdev: &VdevRow, level: usize, exact: bool) -> Json {
        let text = |t: &str| Json::Text(t.to_owned());
        // All of them, whatever columns are asked for of pools.
        let columns = list(DEFAULT);
        let mut entries = vec![
            ("name".to_owned(), text(&vdev.name)),
            ("vdev_type".to_owned(), text(&vdev.kind)),
            ("guid".to_owned(), Json::number(vdev.guid, self.json_int)),
        ];
        if let Some(path) = &vdev.path {
            entries.push(("path".to_owned(), text(path)));
        }
        entries.push(("class".to_owned(), text(&vdev.class)));
        entries.push(("state".to_owned(), text(vdev.json_state())));
        let names = columns.iter().filter_map(|n| canonical(n).ok());
        let properties = names.filter(|n| n != "name").map(|n| {
            let value = vdev_cell(vdev, level, &n, exact);
            let value = Json::text(value.trim(), self.json_int);
            let json = Json::object([("value", value), ("source", source_json("-"))]);
            (n, json)
        });
        entries.push((
            "properties".to_owned(),
            Json::object(properties.collect::<Vec<_>>()),
        ));
        if !vdev.children.is_empty() {
            let below = vdev.children.iter().map(|child| {
                let json = self.json_vdev(child, level + 1, exact);
                (child.name.clone(), json)
            });
            entries.push(("vdevs".to_owned(), Json::object(below.collect::<Vec<_>>())));
        }
        Json::Object(entries)
    }
}

/// OpenZFS aligns it right in rows of vdevs, and left in those of pools.
const ALTROOT: &str = "      -";

/// The vdevs of a pool with the titles of their classes, in listing order. Those for data have no
/// title.
pub fn by_class(pool: &PoolRow) -> Vec<(&'static str, Vec<&VdevRow>)> {
    let of = |class: &str| -> Vec<&VdevRow> {
        let tops = pool.vdevs.children.iter();
        let mine = tops.filter(|v| match class {
            "log" => v.is_log,
            "normal" => !v.is_log && !matches!(v.class.as_str(), "dedup" | "special"),
            other => !v.is_log && v.class == other,
        });
        mine.collect()
    };
    let all = [
        ("", of("normal")),
        ("dedup", of("dedup")),
        ("special", of("special")),
        ("logs", of("log")),
        ("cache", pool.cache.iter().collect()),
        ("spare", pool.spares.iter().collect()),
    ];
    let some = all.into_iter();
    some.filter(|(title, vdevs)| title.is_empty() || !vdevs.is_empty())
        .collect()
}

/// The key of a pool: its name, or its guid.
pub fn json_key(row: &PoolRow, by_guid: bool) -> String {
    if by_guid {
        row.guid.to_string()
    } else {
        row.name.clone()
    }
}

/// The first entries of every JSON object of a pool.
pub fn head_json(row: &PoolRow, as_int: bool) -> Vec<(String, Json)> {
    let text = |t: &str| Json::Text(t.to_owned());
    vec![
        ("name".into(), text(&row.name)),
        ("type".into(), text("POOL")),
        ("state".into(), text(&row.state)),
        ("pool_guid".into(), Json::number(row.guid, as_int)),
        ("txg".into(), Json::number(row.txg, as_int)),
        ("spa_version".into(), Json::number(5000, as_int)),
        ("zpl_version".into(), Json::number(5, as_int)),
    ]
}

fn column(name: &str) -> Column {
    let (header, words) = pool_property(name).map_or((name, true), |p| {
        (
            p.column(),
            p.kind == PropertyKind::Text && p.name != "health",
        )
    });
    let header = match name {
        "checkpoint" => "ckpoint",
        _ => header,
    };
    // Numbers have five characters of room, HEALTH that of its longest usual word.
    match name {
        "health" => Column::new(header, Side::Right).min_width(8),
        _ if words => Column::new(header, Side::Left),
        _ => Column::new(header, Side::Right).min_width(5),
    }
}

fn vdev_lines(
    vdev: &VdevRow,
    level: usize,
    columns: &[String],
    exact: bool,
    out: &mut Vec<Vec<String>>,
) {
    let cells = columns
        .iter()
        .map(|name| vdev_cell(vdev, level, name, exact));
    out.push(cells.collect());
    for child in &vdev.children {
        vdev_lines(child, level + 1, columns, exact, out);
    }
}

/// The cell of a column for a vdev.
fn vdev_cell(vdev: &VdevRow, level: usize, name: &str, exact: bool) -> String {
    let number = |n: u64| if exact { n.to_string() } else { nicenum(n) };
    match (name, vdev.space) {
        ("name", _) => format!("{}{}", "  ".repeat(level), vdev.name),
        // The size of a device, or the allocatable size of a group.
        ("size", _) if vdev.psize > 0 => number(vdev.psize),
        ("size", Some((size, _))) => number(size),
        ("size", None) if vdev.asize > 0 => number(vdev.asize),
        ("allocated", Some((_, allocated))) => number(allocated),
        ("free", Some((size, allocated))) => number(size.saturating_sub(allocated)),
        ("capacity", Some((size, allocated))) if size > 0 => {
            let percent = allocated as f64 * 100.0 / size as f64;
            match (exact, percent < 10.0) {
                (true, _) => format!("{}", percent as u64),
                (_, true) => format!("{percent:.2}%"),
                _ => format!("{percent:.1}%"),
            }
        }
        ("fragmentation", _) => {
            let percent = vdev.fragmentation.map(|n| n.to_string());
            pool_value("fragmentation", percent.as_deref(), exact)
        }
        ("expandsize", _) => pool_value("expandsize", Some(&vdev.expandable.to_string()), exact),
        ("checkpoint", _) => {
            let bytes = vdev.checkpoint.map(|n| n.to_string());
            pool_value("checkpoint", bytes.as_deref(), exact)
        }
        ("health", _) => vdev.state.clone(),
        ("altroot", _) => ALTROOT.to_owned(),
        _ => "-".into(),
    }
}

//! `zpool list`

use clap::Args;
use zuse::property_table::{PropertyKind, pool_property};

use crate::args::{Devices, list};
use crate::error::{CommandError, Outcome};
use crate::json::{Json, envelope};
use crate::nicenum::nicenum;
use crate::present::{pool_value, source_json};
use crate::query::{Answer, PoolRow, Question, VdevRow};
use crate::session::Session;
use crate::table::{Column, Side, render};

/// List pools with their space
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
    /// As JSON
    #[arg(short, long)]
    json: bool,
    /// With --json: numbers as numbers, exact
    #[arg(long, requires = "json")]
    json_int: bool,
    /// Properties to list, separated by commas
    #[arg(short, value_name = "PROPERTY,…", default_value = DEFAULT)]
    output: String,
    #[command(flatten)]
    devices: Devices,
    /// The pools; all by default
    #[arg(value_name = "POOL")]
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
    Err(
        CommandError::usage(format!("bad property list: invalid property '{name}'"))
            .hint("'zpool get all POOL' lists the properties")
            .into(),
    )
}

/// Asks about pools, all if none is named.
pub fn ask(
    session: &mut Session,
    pools: &[String],
    properties: Option<&[String]>,
) -> Outcome<Vec<PoolRow>> {
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
        };
        match question.ask(session) {
            Ok(Answer::Pool(row)) => rows.push(*row),
            Ok(Answer::Datasets(_)) => {}
            Err(crate::error::Stop::Failed(e)) => {
                crate::say_error(&mut session.ui, &e);
                failed = Some(e);
            }
            Err(stop) => return Err(stop),
        }
    }
    match failed {
        Some(e) if rows.is_empty() => Err(CommandError {
            message: String::new(),
            hints: Vec::new(),
            code: e.code,
        }
        .into()),
        _ => Ok(rows),
    }
}

impl List {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let columns = list(&self.output)
            .iter()
            .map(|n| canonical(n))
            .collect::<Outcome<Vec<_>>>()?;
        let rows = ask(session, &self.pools, Some(&columns))?;
        let exact = self.parsable || self.json_int;
        if self.json {
            let pools = rows
                .iter()
                .map(|r| (r.name.clone(), self.json_row(r, exact)))
                .collect::<Vec<_>>();
            let payload = vec![("pools".to_owned(), Json::Object(pools))];
            session
                .ui
                .line(envelope("zpool list", payload).to_string())?;
            return Ok(());
        }
        if rows.is_empty() {
            session.ui.say("no pools available");
            return Ok(());
        }
        let head: Vec<Column> = columns.iter().map(|n| column(n)).collect();
        let mut lines = Vec::new();
        for row in &rows {
            lines.push(
                row.cells
                    .iter()
                    .map(|(n, c)| pool_value(n, c.value.as_deref(), exact))
                    .collect(),
            );
            if self.verbose {
                for child in &row.vdevs.children {
                    vdev_lines(child, row, 1, &columns, exact, &mut lines);
                }
            }
        }
        session.ui.print(render(&head, &lines, self.scripted))?;
        Ok(())
    }

    fn json_row(&self, row: &PoolRow, exact: bool) -> Json {
        let properties = row.cells.iter().filter(|(n, _)| n != "name").map(|(n, c)| {
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
        Json::Object(entries)
    }
}

/// What every JSON object of a pool begins with.
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
    // Numbers have room for five characters, HEALTH for its longest usual word.
    match name {
        "health" => Column::new(header, Side::Right).at_least(8),
        _ if words => Column::new(header, Side::Left),
        _ => Column::new(header, Side::Right).at_least(5),
    }
}

fn vdev_lines(
    vdev: &VdevRow,
    pool: &PoolRow,
    level: usize,
    columns: &[String],
    exact: bool,
    out: &mut Vec<Vec<String>>,
) {
    let only = pool.vdevs.children.len() == 1 && level == 1;
    let number = |n: u64| if exact { n.to_string() } else { nicenum(n) };
    let cells = columns.iter().map(|name| match name.as_str() {
        "name" => format!("{}{}", "  ".repeat(level), vdev.name),
        "size" if vdev.asize > 0 => number(if only { pool.size } else { vdev.asize }),
        "allocated" if only => number(pool.allocated),
        "free" if only => number(pool.size.saturating_sub(pool.allocated)),
        "capacity" if only && pool.size > 0 => {
            let percent = pool.allocated as f64 * 100.0 / pool.size as f64;
            match (exact, percent < 10.0) {
                (true, _) => format!("{}", percent as u64),
                (_, true) => format!("{percent:.2}%"),
                _ => format!("{percent:.1}%"),
            }
        }
        "fragmentation" if only => pool_value(
            "fragmentation",
            pool.cell("fragmentation").and_then(|c| c.value.as_deref()),
            exact,
        ),
        "health" => vdev.state.clone(),
        // OpenZFS sets it to the right here, of pools to the left.
        "altroot" => "      -".into(),
        _ => "-".into(),
    });
    out.push(cells.collect());
    for child in &vdev.children {
        vdev_lines(child, pool, level + 1, columns, exact, out);
    }
}

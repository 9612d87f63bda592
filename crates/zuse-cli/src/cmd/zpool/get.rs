//! `zpool get`

use std::fmt::Write as _;
use std::path::Path;

use clap::Args;
use zuse::property_table::vdev_property;

use super::list::{ask, canonical, head_json, json_key};
use crate::args::{Devices, list, parts, properties};
use crate::error::{CommandError, Outcome};
use crate::json::{Json, envelope};
use crate::present::{pool_value, source_json, vdev_value};
use crate::query::{Answer, Question};
use crate::session::Session;
use crate::table::{Column, Side, render};

/// Show properties of pools, or of vdevs of one pool
///
/// Vdevs are named as 'zpool status' shows them, by guid, or as root; all-vdevs stands for all of
/// them.
#[derive(Args, Debug)]
pub struct Get {
    /// No header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// As JSON
    #[arg(short, long)]
    json: bool,
    /// With --json: numbers as numbers, exact
    #[arg(long, requires = "json")]
    json_int: bool,
    /// With --json: pools by their guids
    #[arg(long, requires = "json")]
    json_pool_key_guid: bool,
    /// Fields: name, property, value, source
    #[arg(
        short,
        value_name = "FIELD,…",
        default_value = "name,property,value,source"
    )]
    output: String,
    #[command(flatten)]
    devices: Devices,
    /// Properties separated by commas, or 'all'
    #[arg(value_name = "all|PROPERTY,…")]
    properties: String,
    /// The pools, all by default; or a pool and vdevs of it
    #[arg(value_name = "POOL… | POOL VDEV…")]
    pools: Vec<String>,
}

/// States of vdevs by their numbers, which JSON with numbers has.
const STATES: [&str; 8] = [
    "UNKNOWN", "CLOSED", "OFFLINE", "REMOVED", "UNAVAIL", "FAULTED", "DEGRADED", "ONLINE",
];

impl Get {
    /// The fields of a line.
    fn fields(&self) -> Outcome<Vec<String>> {
        let fields = match self.output.as_str() {
            "all" => list("name,property,value,source"),
            output => parts(output),
        };
        for field in &fields {
            if !matches!(field.as_str(), "name" | "property" | "value" | "source") {
                return Err(CommandError::usage(format!("invalid column name '{field}'")).into());
            }
        }
        Ok(fields)
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let fields = self.fields()?;
        let of_vdevs = self.vdevs(session)?;
        let canonical = match of_vdevs {
            Some(_) => vdev_canonical,
            None => canonical,
        };
        let wanted = match self.properties.as_str() {
            "all" => None,
            names => Some(properties(names, canonical)?),
        };
        if let Some((pool, vdevs)) = of_vdevs {
            return self.get_vdevs(session, pool, vdevs, wanted, &fields);
        }
        let rows = ask(session, &self.pools, wanted.as_deref())?;
        let exact = self.parsable || self.json_int;
        if self.json {
            let pools = rows.iter().map(|row| {
                let properties = row.cells.iter().map(|(n, c)| {
                    let value = pool_value(n, c.value.as_deref(), exact);
                    (n.clone(), self.cell_json(&value, &c.source))
                });
                let mut entries = head_json(row, self.json_int);
                entries.push((
                    "properties".into(),
                    Json::object(properties.collect::<Vec<_>>()),
                ));
                (
                    json_key(row, self.json_pool_key_guid),
                    Json::Object(entries),
                )
            });
            let payload = vec![("pools".to_owned(), Json::object(pools.collect::<Vec<_>>()))];
            session
                .ui
                .line(envelope("zpool get", payload).to_string())?;
            return Ok(());
        }
        if rows.is_empty() {
            if !self.scripted {
                session.ui.say("no pools available");
            }
            return Ok(());
        }
        let mut lines = Vec::new();
        for row in &rows {
            for (name, cell) in &row.cells {
                let value = pool_value(name, cell.value.as_deref(), exact);
                lines.push(line(&fields, &row.name, name, value, &cell.source));
            }
        }
        self.print(session, &fields, &lines)
    }

    /// The pool and the names of its vdevs, if properties of vdevs are requested.
    fn vdevs(&self, session: &Session) -> Outcome<Option<(String, Vec<String>)>> {
        let Some((pool, rest)) = self.pools.split_first() else {
            return Ok(None);
        };
        let known = session.pool_names()?;
        if !known.contains(pool) {
            return Err(CommandError::new(format!(
                "Cannot get properties of {pool}: no such pool available."
            ))
            .into());
        }
        // All words are names of pools.
        if rest.iter().all(|name| known.contains(name)) {
            return Ok(None);
        }
        let here = |name: &String| match name.contains('/') {
            true => session.path(Path::new(name)).to_string_lossy().into_owned(),
            false => name.clone(),
        };
        Ok(Some((pool.clone(), rest.iter().map(here).collect())))
    }

    fn get_vdevs(
        &self,
        session: &mut Session,
        pool: String,
        vdevs: Vec<String>,
        properties: Option<Vec<String>>,
        fields: &[String],
    ) -> Outcome {
        let question = Question::Vdevs {
            pool: pool.clone(),
            vdevs,
            properties,
        };
        let Answer::Vdevs(answer) = question.ask(session)? else {
            return Ok(());
        };
        if !answer.unknown.is_empty() {
            let mut what = format!("Expected a list of vdevs in \"{pool}\", but got:");
            for name in &answer.unknown {
                let _ = write!(what, "\n\t{name} (unknown)");
            }
            return Err(CommandError::usage(what).into());
        }
        let exact = self.parsable || self.json_int;
        if self.json {
            let vdevs = answer.vdevs.iter().map(|vdev| {
                let properties = vdev.cells.iter().map(|(n, c)| {
                    let value = vdev_value(n, c.value.as_deref(), exact);
                    let number = self.state_number(n, &value);
                    let value = number.unwrap_or_else(|| value.to_string());
                    (n.clone(), self.cell_json(&value, &c.source))
                });
                let text = |t: &str| Json::Text(t.to_owned());
                let mut entries = vec![
                    ("name".to_owned(), text(&vdev.name)),
                    ("type".to_owned(), text("VDEV")),
                    ("vdev_type".to_owned(), text(&vdev.kind)),
                    ("guid".to_owned(), Json::number(vdev.guid, self.json_int)),
                ];
                if let Some(path) = &vdev.path {
                    entries.push(("path".to_owned(), text(path)));
                }
                entries.push(("class".to_owned(), text(&vdev.class)));
                entries.push(("state".to_owned(), text(&vdev.state)));
                let properties = Json::object(properties.collect::<Vec<_>>());
                entries.push(("properties".to_owned(), properties));
                (vdev.name.clone(), Json::Object(entries))
            });
            let head = head_json(&answer.pool, self.json_int).into_iter();
            let head = head.filter(|(key, _)| key != "type");
            let payload = vec![
                ("pool".to_owned(), Json::object(head)),
                ("vdevs".to_owned(), Json::object(vdevs.collect::<Vec<_>>())),
            ];
            session
                .ui
                .line(envelope("zpool get", payload).to_string())?;
            return Ok(());
        }
        let mut lines = Vec::new();
        for vdev in &answer.vdevs {
            for (name, cell) in &vdev.cells {
                let value = vdev_value(name, cell.value.as_deref(), exact);
                lines.push(line(fields, &vdev.name, name, value, &cell.source));
            }
        }
        self.print(session, fields, &lines)
    }

    /// The number of a state, where numbers are wanted.
    fn state_number(&self, name: &str, value: &str) -> Option<String> {
        let number = STATES.iter().position(|state| *state == value);
        let number = number.filter(|_| self.json_int && name == "state");
        number.map(|n| n.to_string())
    }

    fn cell_json(&self, value: &str, source: &str) -> Json {
        Json::object([
            ("value", Json::text(value, self.json_int)),
            ("source", source_json(source)),
        ])
    }

    fn print(&self, session: &mut Session, fields: &[String], lines: &[Vec<String>]) -> Outcome {
        let columns: Vec<Column> = fields.iter().map(|f| Column::new(f, Side::Left)).collect();
        let style = session.ui.style(self.scripted);
        session.ui.print(render(&columns, lines, style))?;
        Ok(())
    }
}

/// The chosen fields of one property.
fn line(fields: &[String], of: &str, name: &str, value: String, source: &str) -> Vec<String> {
    let cells = fields.iter().map(|f| match f.as_str() {
        "name" => of.to_owned(),
        "property" => name.to_owned(),
        "value" => value.clone(),
        _ => source.to_owned(),
    });
    cells.collect()
}

/// Canonical name of a property of vdevs.
fn vdev_canonical(name: &str) -> Outcome<String> {
    match vdev_property(name) {
        Some(known) => Ok(known.name.to_owned()),
        None if zuse::property_table::is_user_property(name) => Ok(name.to_owned()),
        None => {
            Err(CommandError::usage(format!("bad property list: invalid property '{name}'")).into())
        }
    }
}

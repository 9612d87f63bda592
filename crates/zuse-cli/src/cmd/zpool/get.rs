//! `zpool get`

use clap::Args;

use super::list::{ask, canonical, head_json};
use crate::args::{Devices, list};
use crate::error::{CommandError, Outcome};
use crate::json::{Json, envelope};
use crate::present::{pool_value, source_json};
use crate::session::Session;
use crate::table::{Column, Side, render};

/// Show properties of pools
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
    /// The pools; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Get {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let wanted = match self.properties.as_str() {
            "all" => None,
            names => Some(
                list(names)
                    .iter()
                    .map(|n| canonical(n))
                    .collect::<Outcome<Vec<_>>>()?,
            ),
        };
        let fields = if self.output == "all" {
            list("name,property,value,source")
        } else {
            list(&self.output)
        };
        for field in &fields {
            if !matches!(field.as_str(), "name" | "property" | "value" | "source") {
                return Err(CommandError::usage(format!("invalid column name '{field}'")).into());
            }
        }
        let rows = ask(session, &self.pools, wanted.as_deref())?;
        let exact = self.parsable || self.json_int;
        if self.json {
            let pools = rows.iter().map(|row| {
                let properties = row.cells.iter().map(|(n, c)| {
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
                    "properties".into(),
                    Json::object(properties.collect::<Vec<_>>()),
                ));
                (row.name.clone(), Json::Object(entries))
            });
            let payload = vec![("pools".to_owned(), Json::object(pools.collect::<Vec<_>>()))];
            session
                .ui
                .line(envelope("zpool get", payload).to_string())?;
            return Ok(());
        }
        if rows.is_empty() {
            session.ui.say("no pools available");
            return Ok(());
        }
        let columns: Vec<Column> = fields.iter().map(|f| Column::new(f, Side::Left)).collect();
        let mut lines = Vec::new();
        for row in &rows {
            for (name, cell) in &row.cells {
                let cells = fields.iter().map(|f| match f.as_str() {
                    "name" => row.name.clone(),
                    "property" => name.clone(),
                    "value" => pool_value(name, cell.value.as_deref(), exact),
                    _ => cell.source.to_string(),
                });
                lines.push(cells.collect());
            }
        }
        session.ui.print(render(&columns, &lines, self.scripted))?;
        Ok(())
    }
}

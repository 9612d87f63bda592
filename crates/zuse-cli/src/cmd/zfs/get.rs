//! `zfs get`

use clap::Args;
use zuse::property_table::{PropertyKind, dataset_property};

use super::list::{Kinds, Scope, canonical, json_row};
use crate::args::list;
use crate::error::{CommandError, Outcome};
use crate::json::{Json, envelope};
use crate::present::dataset_value;
use crate::query::DatasetRow;
use crate::session::Session;
use crate::table::{Column, Side, render};

/// Show properties of datasets
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
    /// Fields: name, property, value, received, source
    #[arg(
        short,
        value_name = "FIELD,…",
        default_value = "name,property,value,source"
    )]
    output: String,
    /// Only values from these sources: local, default, inherited, received, temporary, none
    #[arg(short = 's', value_name = "SOURCE,…")]
    sources: Option<String>,
    /// Properties separated by commas, or 'all'
    #[arg(value_name = "all|PROPERTY,…")]
    properties: String,
    #[command(flatten)]
    scope: Scope,
}

impl Get {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
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
            list("name,property,value,received,source")
        } else {
            list(&self.output)
        };
        for field in &fields {
            if !matches!(
                field.as_str(),
                "name" | "property" | "value" | "received" | "source"
            ) {
                return Err(CommandError::usage(format!("invalid column name '{field}'")).into());
            }
        }
        let sources = self.sources.as_deref().map(list);
        for source in sources.iter().flatten() {
            if !matches!(
                source.as_str(),
                "local" | "default" | "inherited" | "received" | "temporary" | "none"
            ) {
                return Err(CommandError::usage(format!("invalid source '{source}'")).into());
            }
        }
        let with_received = fields.iter().any(|f| f == "received");
        let fallback =
            if self.scope.recursive || self.scope.depth.is_some() || self.scope.datasets.is_empty()
            {
                Kinds::ALL
            } else {
                Kinds::HEADS
            };
        let rows = self
            .scope
            .ask(session, fallback, wanted.as_deref(), with_received)?;
        let exact = self.parsable || self.json_int;
        let rows = only_from(rows, sources.as_deref());
        if self.json {
            let entries = rows.iter().map(|r| {
                let names: Vec<String> = r.cells.iter().map(|(n, _)| n.clone()).collect();
                (r.name.clone(), json_row(r, &names, exact, self.json_int))
            });
            let payload = vec![(
                "datasets".to_owned(),
                Json::object(entries.collect::<Vec<_>>()),
            )];
            session.ui.line(envelope("zfs get", payload).to_string())?;
            return Ok(());
        }
        if rows.is_empty() && self.scope.datasets.is_empty() {
            session.ui.say("no datasets available");
            return Ok(());
        }
        let width = value_width(&rows);
        let columns: Vec<Column> = fields
            .iter()
            .map(|f| Column {
                least: if f == "value" { width } else { 0 },
                ..Column::new(f, Side::Left)
            })
            .collect();
        let mut lines = Vec::new();
        for row in &rows {
            for (name, cell) in &row.cells {
                let (value, source) = match (name.as_str(), cell) {
                    ("name", _) => (row.name.clone(), "-"),
                    (_, Some(cell)) => {
                        let text = cell
                            .value
                            .as_deref()
                            .map_or_else(|| "-".into(), |v| dataset_value(name, v, exact));
                        (text, cell.source.as_str())
                    }
                    (_, None) => ("-".into(), "-"),
                };
                let cells = fields.iter().map(|f| match f.as_str() {
                    "name" => row.name.clone(),
                    "property" => name.clone(),
                    "value" => value.clone(),
                    "received" => cell
                        .as_ref()
                        .and_then(|c| c.received.as_deref())
                        .map_or_else(|| "-".into(), |v| dataset_value(name, v, exact)),
                    _ => source.to_owned(),
                });
                lines.push(cells.collect());
            }
        }
        session.ui.print(render(&columns, &lines, self.scripted))?;
        Ok(())
    }
}

/// Leaves the cells whose values come from certain places.
fn only_from(mut rows: Vec<DatasetRow>, sources: Option<&[String]>) -> Vec<DatasetRow> {
    let Some(sources) = sources else { return rows };
    for row in &mut rows {
        row.cells.retain(|(_, cell)| {
            let class = match cell.as_ref().map_or("-", |c| c.source.as_str()) {
                "-" => "none",
                s if s.starts_with("inherited") => "inherited",
                s => s,
            };
            sources.iter().any(|s| s == class)
        });
    }
    rows.retain(|r| !r.cells.is_empty());
    rows
}

/// Width of the VALUE column: the headers of the properties, five for numbers, the longest word that could stand there, and
/// the longest text.
fn value_width(rows: &[DatasetRow]) -> usize {
    let mut width = 0;
    for (name, cell) in rows.iter().flat_map(|r| &r.cells) {
        let known = dataset_property(name);
        width = width.max(known.map_or(name.as_str(), |p| p.column()).len());
        let text = || {
            cell.as_ref()
                .and_then(|c| c.value.as_deref())
                .map_or(1, |v| dataset_value(name, v, false).chars().count())
        };
        width = width.max(match known {
            Some(p) if p.kind == PropertyKind::Index => {
                p.words.iter().map(|(w, _)| w.len()).max().unwrap_or(0)
            }
            Some(p)
                if p.kind == PropertyKind::Number
                    && !matches!(p.name, "creation" | "snapshots_changed") =>
            {
                5
            }
            _ => text(),
        });
    }
    width
}

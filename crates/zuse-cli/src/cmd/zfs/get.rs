//! `zfs get`

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use clap::Args;
use zuse::ListedKinds;
use zuse::property_table::{Property, PropertyKind, dataset_property};

use super::list::{Scope, canonical, json_row};
use crate::args::{list, parts, properties};
use crate::error::{CommandError, Outcome};
use crate::json;
use crate::present::dataset_value;
use crate::query::{Cell, DatasetRow};
use crate::session::Session;
use crate::table::{Column, Side, stream};

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
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let wanted = match self.properties.as_str() {
            "all" => None,
            names => Some(properties(names, canonical)?),
        };
        // An owner is printed as it was requested: by name or by number.
        let mut requested = RequestedNames::new();
        for name in list(&self.properties) {
            if zuse::OwnerProperty::split(&name).is_some() {
                requested.entry(canonical(&name)?).or_default().push(name);
            }
        }
        let fields = self.fields()?;
        let sources = self.sources()?;
        let with_received = fields.iter().any(|f| f == "received");
        let fallback =
            if self.scope.recursive || self.scope.depth.is_some() || self.scope.datasets.is_empty()
            {
                ListedKinds::ALL
            } else {
                ListedKinds::HEADS
            };
        let rows = self
            .scope
            .ask(session, fallback, wanted.as_deref(), with_received)?;
        let rows = only_from(rows, sources.as_deref());
        if self.json {
            return self.print_json(session, &rows);
        }
        if rows.is_empty() && self.scope.datasets.is_empty() {
            return Ok(());
        }
        self.print_table(session, &rows, &fields, &requested)
    }

    /// The fields of a line.
    fn fields(&self) -> Outcome<Vec<String>> {
        let fields = if self.output == "all" {
            list("name,property,value,received,source")
        } else {
            parts(&self.output)
        };
        for field in &fields {
            if !matches!(
                field.as_str(),
                "name" | "property" | "value" | "received" | "source"
            ) {
                return Err(CommandError::usage(format!("invalid column name '{field}'")).into());
            }
        }
        Ok(fields)
    }

    /// The accepted sources of values, if given.
    fn sources(&self) -> Outcome<Option<Vec<String>>> {
        let sources = self.sources.as_deref().map(list);
        for source in sources.iter().flatten() {
            if !matches!(
                source.as_str(),
                "local" | "default" | "inherited" | "received" | "temporary" | "none"
            ) {
                return Err(CommandError::usage(format!("invalid source '{source}'")).into());
            }
        }
        Ok(sources)
    }

    /// Whether numbers are exact.
    fn is_exact(&self) -> bool {
        self.parsable || self.json_int
    }

    /// Prints the rows as JSON.
    fn print_json(&self, session: &mut Session, rows: &[DatasetRow]) -> Outcome {
        let exact = self.is_exact();
        let entries = rows.iter().map(|r| {
            let names: Vec<String> = r.cells.iter().map(|(n, _)| n.to_string()).collect();
            (r.name.clone(), json_row(r, &names, exact, self.json_int))
        });
        json::stream("zfs get", "datasets", entries, &mut |some| {
            session.ui.print(some)
        })?;
        Ok(())
    }

    /// Prints a line for each property of each row.
    fn print_table(
        &self,
        session: &mut Session,
        rows: &[DatasetRow],
        fields: &[String],
        requested: &RequestedNames,
    ) -> Outcome {
        let exact = self.is_exact();
        let width = value_width(rows, exact);
        let columns: Vec<Column> = fields
            .iter()
            .map(|f| Column {
                min_width: if f == "value" { width } else { 0 },
                exact: f == "value",
                ..Column::new(f, Side::Left)
            })
            .collect();
        let lines = rows.iter().flat_map(|row| {
            let cells = row.cells.iter().enumerate();
            cells.map(move |(at, cell)| (row, at, cell))
        });
        let field = |i: usize| fields.get(i).map_or("", String::as_str);
        let style = session.ui.style(self.scripted);
        stream(
            &columns,
            lines,
            style,
            |(row, at, (name, cell)), i| match field(i) {
                "property" => requested_name(requested, row, at).into(),
                field => field_text(field, row, name, cell.as_ref(), exact),
            },
            &mut |some| session.ui.print(some),
        )?;
        Ok(())
    }
}

/// The names of owners' properties as they were requested, by their canonical names.
type RequestedNames = HashMap<String, Vec<String>>;

/// The name of a cell as it was requested: one owner may have been named in several ways.
fn requested_name<'a>(requested: &'a RequestedNames, row: &'a DatasetRow, at: usize) -> &'a str {
    let Some((name, _)) = row.cells.get(at) else {
        return "";
    };
    let Some(all) = requested.get(name.as_ref()) else {
        return name;
    };
    let earlier = row.cells.iter().take(at).filter(|(n, _)| n == name).count();
    all.get(earlier).map_or(name.as_ref(), String::as_str)
}

/// A field of a line.
fn field_text<'a>(
    field: &str,
    row: &'a DatasetRow,
    name: &'a str,
    cell: Option<&'a Cell>,
    exact: bool,
) -> Cow<'a, str> {
    let shown = |v: Option<&'a str>| v.map_or("-".into(), |v| dataset_value(name, v, exact));
    match field {
        "name" => row.name.as_str().into(),
        "property" => name.into(),
        "value" if name == "name" => row.name.as_str().into(),
        "value" => shown(cell.and_then(|c| c.value.as_deref())),
        "received" => shown(cell.and_then(|c| c.received.as_deref())),
        _ if name == "name" => "-".into(),
        _ => cell.map_or("-", |c| &c.source).into(),
    }
}

/// Keeps the cells whose values have one of these sources.
fn only_from(mut rows: Vec<DatasetRow>, sources: Option<&[String]>) -> Vec<DatasetRow> {
    let Some(sources) = sources else { return rows };
    for row in &mut rows {
        row.cells.retain(|(_, cell)| {
            let class = match cell.as_ref().map_or("-", |c| &c.source) {
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

/// Width of the VALUE column: the longest of the properties' headers, five for numbers, possible
/// words and texts.
fn value_width(rows: &[DatasetRow], exact: bool) -> usize {
    let mut width = "VALUE".len();
    let mut last: Option<(&str, Option<&Property>)> = None;
    let mut seen = HashSet::new();
    for row in rows {
        for (name, cell) in &row.cells {
            let known = match last {
                Some((n, known)) if n == name => known,
                _ => dataset_property(name),
            };
            last = Some((name, known));
            if seen.insert(name.as_ref()) {
                width = width.max(known.map_or(name.as_ref(), |p| p.column()).len());
                width = width.max(match known {
                    Some(p) if p.kind == PropertyKind::Index => {
                        p.words.iter().map(|(w, _)| w.len()).max().unwrap_or(0)
                    }
                    Some(p) if p.kind == PropertyKind::Number => 5,
                    _ => 1,
                });
            }
            let Some(value) = cell.as_ref().and_then(|c| c.value.as_deref()) else {
                continue;
            };
            // The readable form of a number is at most one character longer, except for dates.
            let date = known.is_some_and(|p| is_date(p.name));
            if date || value.len() >= width {
                width = width.max(dataset_value(name, value, exact && !date).chars().count());
            }
        }
    }
    width
}

fn is_date(name: &str) -> bool {
    matches!(name, "creation" | "snapshots_changed")
}

//! `zuse tunables`

use clap::Args;
use zuse::TUNABLES;
use zuse::tunable::Unit;

use crate::args::{list, pair};
use crate::error::{CommandError, Outcome, Stop};
use crate::json::{Json, envelope};
use crate::nicenum::nicenum;
use crate::session::Session;
use crate::table::{Column, Side, render};
use crate::tuning::Tuning;
use crate::wire;

/// List the tunables: value, default, range, where the value was set, and what it does
///
/// A value comes from the first of these that has one: -o or --tune NAME=VALUE, the environment
/// (ZUSE_ZFS_ARC_MAX=1G), the file ~/.config/zuse/tunables, the file /etc/zuse/tunables. Lines of
/// the files are NAME=VALUE, # begins a comment. Values hold for the pools that a command opens,
/// and for a mount as long as it lasts. With a mounted POOL the values are those of its process,
/// and -o changes them there.
#[derive(Args, Debug)]
pub struct Tunables {
    /// Without a header, one TAB between columns
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short = 'p', long = "parsable")]
    exact: bool,
    /// As JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// Columns: name, value, default, range, source, meaning
    #[arg(short = 'c', long = "columns", value_name = "COLUMN,…")]
    columns: Option<String>,
    /// Set tunables, separated by commas
    #[arg(short = 'o', value_name = "NAME=VALUE,…")]
    options: Vec<String>,
    /// A pool that is mounted
    pool: Option<String>,
}

const COLUMNS: [&str; 6] = ["name", "value", "default", "range", "source", "meaning"];

impl Tunables {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let mut pairs = Vec::new();
        for option in self.options.iter().flat_map(|o| list(o)) {
            pairs.push(
                pair(&option)
                    .map_err(|_| CommandError::usage(format!("'{option}' is not NAME=VALUE")))?,
            );
        }
        let tuning = match &self.pool {
            None => {
                session.tune(pairs)?;
                session.tuning()?
            }
            Some(pool) => {
                let holder = session.holder.clone().filter(|h| h.pool().name() == *pool);
                let Some(holder) = holder else {
                    let guid = session.guid_of(pool)?;
                    if wire::is_live(&session.state.socket(guid)) {
                        return Err(Stop::Held(guid));
                    }
                    return Err(CommandError::new(format!(
                        "pool '{pool}' is not mounted: no process holds tunables for it"
                    ))
                    .hint("'zuse tunables' shows what a command would open it with")
                    .into());
                };
                session.tune(pairs)?;
                Tuning::of(holder.pool().limits())
            }
        };
        let text = if self.json {
            json(&tuning).to_string() + "\n"
        } else {
            self.table(&tuning)?
        };
        session.ui.print(text)?;
        Ok(())
    }

    fn table(&self, tuning: &Tuning) -> Outcome<String> {
        let columns = match &self.columns {
            Some(columns) => list(columns),
            None => COLUMNS.iter().map(ToString::to_string).collect(),
        };
        if let Some(unknown) = columns.iter().find(|c| !COLUMNS.contains(&c.as_str())) {
            return Err(CommandError::usage(format!("invalid column name '{unknown}'")).into());
        }
        let default = zuse::Limits::default();
        let mut rows = Vec::new();
        for t in TUNABLES {
            let nice = |value: Option<u64>| match (value, t.unit) {
                (Some(n), Unit::Bytes) if !self.exact => nicenum(n),
                (Some(n), Unit::Property) if !self.exact && t.name == "recordsize" => nicenum(n),
                _ => t.text(value),
            };
            let cells = columns.iter().map(|column| match column.as_str() {
                "name" => t.name.to_owned(),
                "value" => nice(t.value(&tuning.limits)),
                "default" => nice(t.value(&default)),
                "range" if t.unit == Unit::Bytes && !self.exact => {
                    format!("{}-{}", nicenum(t.range.0), nicenum(t.range.1))
                }
                "range" => t.range_text(),
                "source" => tuning.origin(t).text(),
                _ => t.meaning.to_owned(),
            });
            rows.push(cells.collect());
        }
        let columns: Vec<Column> = columns.iter().map(|c| Column::new(c, Side::Left)).collect();
        Ok(render(&columns, &rows, self.scripted))
    }
}

fn json(tuning: &Tuning) -> Json {
    let default = zuse::Limits::default();
    let rows = TUNABLES.iter().map(|t| {
        let text = |value| Json::Text(t.text(value));
        let row = Json::object([
            ("name", Json::Text(t.name.into())),
            ("value", text(t.value(&tuning.limits))),
            ("default", text(t.value(&default))),
            ("range", Json::Text(t.range_text())),
            ("unit", Json::Text(t.unit.word().into())),
            ("source", Json::Text(tuning.origin(t).text())),
            ("live", Json::Text(if t.live { "on" } else { "off" }.into())),
            ("meaning", Json::Text(t.meaning.into())),
        ]);
        (t.name, row)
    });
    let payload = vec![(
        "tunables".to_owned(),
        Json::object(rows.collect::<Vec<_>>()),
    )];
    envelope("zuse tunables", payload)
}

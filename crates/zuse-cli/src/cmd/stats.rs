//! `zuse stats`

use clap::Args;
use zuse::Pool;

use super::zpool::ask_pools;
use crate::args::Devices;
use crate::error::Outcome;
use crate::json::{Json, envelope};
use crate::nicenum::{nicebytes, nicenum};
use crate::query::{PoolRow, TierRow};
use crate::session::Session;
use crate::table::{Column, Side, render};

/// Show the caches and the device reads of pools: hits, misses and bytes by tier
///
/// For a mounted pool the figures are those of its process since it was opened. Any other pool is
/// opened, and the figures are those of opening it. 'zuse --stats COMMAND' shows those of a
/// command. The block cache's limit is in bytes, that of the other tiers in entries. Below them:
/// intent logs, that is how fsync was answered. Times are in nanoseconds.
#[derive(Args, Debug)]
pub struct Stats {
    /// No header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// As JSON
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    devices: Devices,
    /// The pools; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

const FIGURES: [&str; 5] = ["hits", "misses", "entries", "bytes", "limit"];
const TRAFFIC: [&str; 4] = ["reads", "writes", "read_bytes", "written_bytes"];

impl Stats {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let rows = ask_pools(session, &self.pools, Some(&[]))?;
        if self.json {
            let pools: Vec<_> = rows.iter().map(|r| (r.name.clone(), of_row(r))).collect();
            let payload = vec![("pools".to_owned(), Json::Object(pools))];
            session
                .ui
                .line(envelope("zuse stats", payload).to_string())?;
            return Ok(());
        }
        if rows.is_empty() {
            session.ui.say("no pools available");
            return Ok(());
        }
        let mut columns = vec![
            Column::new("pool", Side::Left),
            Column::new("tier", Side::Left),
        ];
        columns.extend(FIGURES.iter().map(|n| Column::new(n, Side::Right)));
        let mut lines = Vec::new();
        for row in &rows {
            for tier in &row.tiers {
                lines.push(self.line(&row.name, tier));
            }
            let [reads, writes, read, written] = row.vdevs.traffic;
            lines.push(self.device_line(&row.name, "device reads", reads, read));
            lines.push(self.device_line(&row.name, "device writes", writes, written));
            for (name, n) in &row.logs {
                lines.push(self.log_line(&row.name, name, *n));
            }
        }
        let style = session.ui.style(self.scripted);
        session.ui.print(render(&columns, &lines, style))?;
        Ok(())
    }

    fn line(&self, pool: &str, tier: &TierRow) -> Vec<String> {
        let mut line = vec![pool.to_owned(), tier.name.clone()];
        for (name, n) in FIGURES.iter().zip(tier.figures) {
            let bytes = *name == "bytes" || *name == "limit" && tier.name == "blocks";
            line.push(match (self.parsable, bytes) {
                (true, _) => n.to_string(),
                (_, true) => nicebytes(n),
                _ => nicenum(n),
            });
        }
        line
    }

    /// A figure of the intent logs.
    fn log_line(&self, pool: &str, name: &str, count: u64) -> Vec<String> {
        let none = || "-".to_owned();
        let shown = match (self.parsable, name) {
            (true, _) => count.to_string(),
            (_, "bytes") => nicebytes(count),
            _ => nicenum(count),
        };
        let (count, bytes) = match name {
            "bytes" => (none(), shown),
            _ => (shown, none()),
        };
        let name = format!("log {}", name.replace('_', " "));
        vec![pool.to_owned(), name, none(), none(), count, bytes, none()]
    }

    fn device_line(&self, pool: &str, name: &str, count: u64, bytes: u64) -> Vec<String> {
        let none = || "-".to_owned();
        let (count, bytes) = if self.parsable {
            (count.to_string(), bytes.to_string())
        } else {
            (nicenum(count), nicebytes(bytes))
        };
        vec![
            pool.to_owned(),
            name.to_owned(),
            none(),
            none(),
            count,
            bytes,
            none(),
        ]
    }
}

fn tiers_json(tiers: impl Iterator<Item = (String, [u64; 5])>) -> Json {
    Json::object(
        tiers
            .map(|(name, figures)| {
                let pairs = FIGURES.iter().zip(figures);
                let entries = pairs.map(|(k, n)| (*k, Json::Number(n)));
                (name, Json::object(entries.collect::<Vec<_>>()))
            })
            .collect::<Vec<_>>(),
    )
}

fn devices_json(traffic: [u64; 4]) -> Json {
    let pairs = TRAFFIC.iter().zip(traffic);
    Json::object(
        pairs
            .map(|(k, n)| (*k, Json::Number(n)))
            .collect::<Vec<_>>(),
    )
}

fn logs_json(figures: impl Iterator<Item = (String, u64)>) -> Json {
    Json::object(
        figures
            .map(|(name, n)| (name, Json::Number(n)))
            .collect::<Vec<_>>(),
    )
}

fn of_row(row: &PoolRow) -> Json {
    let tiers = row.tiers.iter().map(|t| (t.name.clone(), t.figures));
    Json::object([
        ("tiers", tiers_json(tiers)),
        ("devices", devices_json(row.vdevs.traffic)),
        (
            "logs",
            logs_json(row.logs.iter().map(|(k, n)| (k.clone(), *n))),
        ),
    ])
}

/// The figures of an open pool.
pub fn figures(pool: &Pool) -> Json {
    let tiers = pool.caches().into_iter();
    let tiers = tiers.map(|t| {
        let figures = [t.hits, t.misses, t.entries, t.bytes, t.limit];
        (t.name.to_owned(), figures)
    });
    let t = pool.traffic();
    let devices = [t.reads, t.writes, t.read_bytes, t.written_bytes];
    let logs = pool.log_figures().into_iter();
    let logs = logs.map(|(name, n)| (name.to_owned(), n));
    Json::object([(
        pool.name(),
        Json::object([
            ("tiers", tiers_json(tiers)),
            ("devices", devices_json(devices)),
            ("logs", logs_json(logs)),
        ]),
    )])
}

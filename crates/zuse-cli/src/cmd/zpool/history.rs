//! `zpool history`

use clap::Args;
use zuse::Pool;
use zuse::tools::Layers as _;
use zuse_format::nvlist::{NvList, NvValue};

use crate::date;
use crate::error::{Explain, Outcome, Stop};
use crate::session::{Need, Session};
use crate::ui::Ui;

/// Show the commands that changed pools
#[derive(Args, Debug)]
pub struct History {
    /// Also internal events
    #[arg(short)]
    internal: bool,
    /// Also user, host and zone
    #[arg(short)]
    long: bool,
    /// The pools; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl History {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let names = if self.pools.is_empty() {
            session.pool_names()?
        } else {
            self.pools.clone()
        };
        for name in &names {
            match session.pool(name, Need::Read) {
                Ok(pool) => self.one(session, name, &pool)?,
                Err(Stop::Held(guid)) if names.len() > 1 => {
                    let mut words = vec!["zuse", "zpool", "history"];
                    let options = [(self.internal, "-i"), (self.long, "-l")];
                    words.extend(options.iter().filter(|o| o.0).map(|o| o.1));
                    words.push(name);
                    crate::forward::command(session, guid, &words)?;
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn one(&self, session: &mut Session, name: &str, pool: &Pool) -> Outcome {
        let records = pool
            .dsl()
            .history()
            .or_cannot_pool(|| format!("cannot show history for '{name}'"))?;
        session.ui.line(format!("History for '{name}':"))?;
        for record in &records {
            if let Some(line) = self.line(record, &session.ui) {
                session.ui.line(line)?;
            }
        }
        session.ui.line("")?;
        Ok(())
    }

    fn line(&self, record: &NvList, ui: &Ui) -> Option<String> {
        let shown = match self.internal {
            true => Shown::Measured,
            false => Shown::Commands,
        };
        let mut line = entry(record, shown, ui)?;
        if !self.long {
            line.truncate(line.trim_end_matches('\n').len());
        }
        if self.long {
            let name = |key| record.get_str(key).map(|text| ui.text(text));
            let mut host = name("history hostname").unwrap_or_default().into_owned();
            if let Some(zone) = name("history zone") {
                host.push_str(&format!(":{zone}"));
            }
            match record.get_u64("history who") {
                Some(0) => line.push_str(&format!(" [user 0 (root) on {host}]")),
                Some(uid) => line.push_str(&format!(" [user {uid} on {host}]")),
                None => line.push_str(&format!(" [on {host}]")),
            }
        }
        Some(line)
    }
}

/// Which records are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Commands.
    Commands,
    /// Also internal events.
    Inside,
    /// Also how long each call took.
    Measured,
}

/// A record as a line, with the arguments of an ioctl below; nothing for a record that is not to be
/// printed. On a terminal no text of the record breaks its line.
pub fn entry(record: &NvList, shown: Shown, ui: &Ui) -> Option<String> {
    let text_of = |key| record.get_str(key).map(|text| ui.text(text));
    let time = date::history(record.get_u64("history time").unwrap_or(0));
    if let Some(command) = text_of("history command") {
        return Some(format!("{time} {command}"));
    }
    if shown == Shown::Commands {
        return None;
    }
    if let Some(event) = text_of("internal_name") {
        let txg = record.get_u64("history txg").unwrap_or(0);
        let text = text_of("history internal str").unwrap_or_default();
        return Some(match (text_of("dsname"), record.get_u64("dsid")) {
            (Some(name), Some(id)) => format!("{time} [txg:{txg}] {event} {name} ({id}) {text}"),
            _ => format!("{time} [txg:{txg}] {event} {text}"),
        });
    }
    let name = text_of("ioctl")?;
    let mut line = format!("{time} ");
    if let (Some(NvValue::Int64(ns)), Shown::Measured) = (record.get("elapsed_ns"), shown) {
        line.push_str(&format!("({}ms) ", ns / 1_000_000));
    }
    line.push_str(&format!("ioctl {name}\n"));
    for (key, title) in [("in_nvl", "input"), ("out_nvl", "output")] {
        if let Some(NvValue::List(list)) = record.get(key) {
            line.push_str(&format!("    {title}:\n"));
            dump(list, 8, &mut line, ui);
        }
    }
    if let Some(NvValue::Int64(errno)) = record.get("errno") {
        line.push_str(&format!("    errno: {errno}\n"));
    }
    Some(line)
}

/// A list as the ZFS commands print it: one entry a line, nested lists below their names.
pub fn dump(list: &NvList, indent: usize, out: &mut String, ui: &Ui) {
    for (name, value) in list.iter() {
        out.push_str(&" ".repeat(indent));
        out.push_str(&ui.text(name));
        match value {
            NvValue::Boolean => {}
            NvValue::BooleanValue(b) => out.push_str(&format!(": {b}")),
            NvValue::Byte(n) => out.push_str(&format!(": {n}")),
            NvValue::Int32(n) => out.push_str(&format!(": {n}")),
            NvValue::Uint32(n) => out.push_str(&format!(": {n}")),
            NvValue::Int64(n) => out.push_str(&format!(": {n}")),
            NvValue::Uint64(n) => out.push_str(&format!(": {n}")),
            NvValue::String(s) => out.push_str(&format!(": '{}'", ui.text(s))),
            NvValue::List(inner) => {
                out.push_str(":\n");
                dump(inner, indent + 4, out, ui);
                continue;
            }
            other => out.push_str(&format!(": {other:?}")),
        }
        out.push('\n');
    }
}

//! `zpool history`

use clap::Args;
use zuse_format::nvlist::NvList;

use crate::date;
use crate::error::{Explain, Outcome};
use crate::session::{Need, Session};

/// Show which commands changed pools
#[derive(Args, Debug)]
pub struct History {
    /// Also what happened inside
    #[arg(short)]
    internal: bool,
    /// Also by whom and where
    #[arg(short)]
    long: bool,
    /// The pools; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl History {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        let names = if self.pools.is_empty() {
            session.pool_names()?
        } else {
            self.pools.clone()
        };
        for name in &names {
            let pool = session.pool(name, Need::Read)?;
            let records = pool
                .dsl()
                .history()
                .or_cannot_pool(|| format!("cannot show history for '{name}'"))?;
            session.ui.line(format!("History for '{name}':"))?;
            for record in &records {
                if let Some(line) = self.line(record) {
                    session.ui.line(line)?;
                }
            }
            session.ui.line("")?;
        }
        Ok(())
    }

    fn line(&self, record: &NvList) -> Option<String> {
        let time = date::history(record.get_u64("history time").unwrap_or(0));
        let mut line = if let Some(command) = record.get_str("history command") {
            format!("{time} {command}")
        } else if let Some(event) = record
            .get_str("history internal_name")
            .filter(|_| self.internal)
        {
            let txg = record.get_u64("history txg").unwrap_or(0);
            let text = record.get_str("history internal str").unwrap_or("");
            match (record.get_str("dsname"), record.get_u64("dsid")) {
                (Some(name), Some(id)) => {
                    format!("{time} [txg:{txg}] {event} {name} ({id}) {text}")
                }
                _ => format!("{time} [txg:{txg}] {event} {text}"),
            }
        } else {
            return None;
        };
        if self.long {
            let host = record.get_str("history hostname").unwrap_or("");
            match record.get_u64("history who") {
                Some(0) => line.push_str(&format!(" [user 0 (root) on {host}]")),
                Some(uid) => line.push_str(&format!(" [user {uid} on {host}]")),
                None => line.push_str(&format!(" [on {host}]")),
            }
        }
        Some(line)
    }
}

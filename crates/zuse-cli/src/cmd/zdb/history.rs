//! `zdb -h`: the pool's history, what happened inside too.

use std::sync::Arc;

use zuse::Pool;
use zuse::tools::Layers as _;

use crate::cmd::zpool::history::{Shown, dump, entry};
use crate::error::{Explain, Outcome};
use crate::session::Session;

/// Prints all records, from level 2 on each with its fields.
pub fn run(session: &mut Session, pool: &Arc<Pool>, level: u8) -> Outcome {
    let records = pool
        .dsl()
        .history()
        .or_cannot(|| format!("cannot read the history of '{}'", pool.name()))?;
    session.ui.line("\nHistory:")?;
    for record in &records {
        let mut text = String::new();
        match entry(record, Shown::Inside, &session.ui) {
            Some(line) => text.push_str(line.trim_end_matches('\n')),
            None => text.push_str("unrecognized record:"),
        }
        text.push('\n');
        if level > 1 {
            dump(record, 2, &mut text, &session.ui);
        }
        session.ui.print(text)?;
    }
    Ok(())
}

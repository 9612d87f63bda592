//! `zpool sync`

use clap::Args;
use zuse::Recursion;

use crate::error::{Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Write all dirty data to disk
#[derive(Args, Debug)]
pub struct Sync {
    /// Accepted: a transaction group is always written
    #[arg(short)]
    force: bool,
    /// The pools; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Sync {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let mut names = self.pools.clone();
        if names.is_empty() {
            // Only a process that holds a pool has dirty data.
            names = session.pool_names()?;
        }
        for name in &names {
            match session.pool(name, Need::Write) {
                Ok(pool) => {
                    pool.free_removed(name, Recursion::Below);
                    pool.sync()
                        .or_cannot_pool(|| format!("cannot sync '{name}'"))?;
                }
                Err(Stop::Held(guid)) if names.len() > 1 => {
                    crate::forward::command(session, guid, &["zuse", "zpool", "sync", name])?;
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }
}

//! `zpool reopen`

use clap::Args;

use crate::error::{Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Look for missing devices again, and read the sizes of all devices
///
/// A pool with 'autoexpand' uses the new space of devices that have grown.
#[derive(Args, Debug)]
pub struct Reopen {
    /// Accepted: a running resilver is never restarted
    #[arg(short = 'n')]
    no_restart: bool,
    /// The pools; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Reopen {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let mut names = self.pools.clone();
        if names.is_empty() {
            names = session.pool_names()?;
        }
        let many = names.len() > 1;
        for name in &names {
            match session.pool(name, Need::Write) {
                Ok(pool) => {
                    let cannot = || format!("cannot reopen '{name}'");
                    pool.reopen().or_cannot_pool(cannot)?;
                    session.log(&pool);
                }
                Err(Stop::Held(guid)) if many => {
                    crate::forward::command(session, guid, &["zuse", "zpool", "reopen", name])?;
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }
}

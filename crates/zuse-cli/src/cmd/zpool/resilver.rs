//! `zpool resilver`

use clap::Args;
use zuse::tools::Layers as _;

use super::scrub::finish;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session};

const DEFER: &str = "com.datto:resilver_defer";

/// Start a resilver of all outdated devices, from the beginning
///
/// A resilver starts by itself when a device is attached or comes back. This restarts a running
/// one, with devices that came since.
#[derive(Args, Debug)]
pub struct Resilver {
    /// The pools
    #[arg(required = true, value_name = "POOL")]
    pools: Vec<String>,
}

impl Resilver {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        for name in &self.pools {
            match self.one(session, name) {
                Err(Stop::Held(guid)) if self.pools.len() > 1 => {
                    let words = ["zuse", "zpool", "resilver", name];
                    crate::forward::command(session, guid, &words)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn one(&self, session: &mut Session, name: &str) -> Outcome {
        let pool = session.pool(name, Need::Write)?;
        let cannot = || format!("cannot restart resilver {name}");
        if !pool.spa().features().is_enabled(DEFER) {
            let why = "this action requires the resilver_defer feature";
            return Err(CommandError::new(format!("{}: {why}", cannot())).into());
        }
        pool.restart_resilver().or_cannot_pool(cannot)?;
        session.log(&pool);
        finish(session, &pool, "resilver", false)
    }
}

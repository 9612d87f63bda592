//! `zpool checkpoint`

use std::time::Duration;

use clap::Args;

use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};

/// Make a checkpoint of the whole pool, or discard it
///
/// 'zpool import --rewind-to-checkpoint' goes back to it. What was written since is lost then.
/// Until the checkpoint is discarded, deleting what it holds frees no space.
#[derive(Args, Debug)]
pub struct Checkpoint {
    /// Discard the checkpoint
    #[arg(short, long)]
    discard: bool,
    /// Wait until all blocks that only the checkpoint needed are free
    #[arg(short, long)]
    wait: bool,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
}

impl Checkpoint {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if self.wait && !self.discard {
            let what = "--wait only valid when --discard also specified";
            return Err(CommandError::usage(what).into());
        }
        let name = &self.pool;
        if name.contains('/') {
            let text = format!("cannot open '{name}': invalid character '/' in pool name");
            return Err(CommandError::new(text)
                .hint("'zpool checkpoint' doesn't work on datasets. To save the state of a dataset from a specific point in time please use 'zfs snapshot'")
                .into());
        }
        let pool = session.pool(name, Need::Write)?;
        if !self.discard {
            pool.make_checkpoint()
                .or_cannot_pool(|| format!("cannot checkpoint '{name}'"))?;
            session.log(&pool);
            return Ok(());
        }
        let cannot = || format!("cannot discard checkpoint in '{name}'");
        pool.discard_checkpoint().or_cannot_pool(cannot)?;
        session.log(&pool);
        while self.wait && pool.left_to_discard().or_cannot_pool(cannot)? > 0 {
            pool.sync().or_cannot_pool(cannot)?;
            session.pause(Duration::ZERO)?;
        }
        Ok(())
    }
}

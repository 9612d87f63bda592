//! `zpool trim`

use clap::Args;

use crate::error::{Explain, Outcome};
use crate::nicenum::nicebytes;
use crate::session::{Need, Session};

/// Give free space back to the host: holes in image files, discarded blocks on disks
#[derive(Args, Debug)]
pub struct Trim {
    /// Wait until it is done; it always does
    #[arg(short)]
    wait: bool,
    /// Say how much was given back
    #[arg(short)]
    verbose: bool,
    /// The pool
    pool: String,
}

impl Trim {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.pool;
        let pool = session.pool(name, Need::Write)?;
        let bytes = pool
            .trim()
            .or_cannot_pool(|| format!("cannot trim '{name}'"))?;
        session.log(&pool);
        if self.verbose {
            session
                .ui
                .line(format!("{name}: {} given back", nicebytes(bytes)))?;
        }
        Ok(())
    }
}

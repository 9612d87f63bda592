//! `zpool trim`

use clap::Args;

use crate::error::{Explain, Outcome, Stop};
use crate::nicenum::nicebytes;
use crate::session::{Need, Session};

/// Give free space back to the host: holes in image files, discarded blocks on disks
#[derive(Args, Debug)]
pub struct Trim {
    /// Wait until it is done; it always does
    #[arg(short, long)]
    wait: bool,
    /// All pools that are imported
    #[arg(short, conflicts_with = "pool")]
    all: bool,
    /// Say how much was given back
    #[arg(short)]
    verbose: bool,
    /// The pool
    #[arg(required_unless_present = "all")]
    pool: Option<String>,
}

impl Trim {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        if let Some(name) = &self.pool {
            return self.one(session, name);
        }
        for name in session.pool_names()? {
            match self.one(session, &name) {
                Err(Stop::Held(guid)) => {
                    let mut words = vec!["zuse", "zpool", "trim"];
                    words.extend(self.verbose.then_some("-v"));
                    words.push(&name);
                    crate::forward::command(session, guid, &words)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn one(&self, session: &mut Session, name: &str) -> Outcome {
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

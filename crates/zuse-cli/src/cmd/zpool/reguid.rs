//! `zpool reguid`

use clap::Args;

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Give a pool another guid
///
/// All its devices must be ONLINE. Afterwards a copy that was made device by device can be used
/// beside the original.
#[derive(Args, Debug)]
pub struct Reguid {
    /// This guid; by default a random one
    #[arg(short = 'g', value_name = "GUID")]
    guid: Option<String>,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
}

impl Reguid {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let wrong = |text: &String| CommandError::usage(format!("invalid GUID: {text}"));
        let guid = match &self.guid {
            Some(text) => Some(text.parse::<u64>().map_err(|_| wrong(text))?),
            None => None,
        };
        let name = &self.pool;
        let pool = session.pool(name, Need::Write)?;
        let done = pool.reguid(guid);
        let guids = done
            .or_cannot_pool(|| format!("cannot reguid '{name}'"))
            .map_err(|stop| match stop {
                Stop::Failed(error) => CommandError { code: 255, ..error }.into(),
                stop => stop,
            })?;
        // Before the cache file has the new guid, by which commands will look for the host.
        session.move_holder(guids.old, guids.new)?;
        session.remember_again(&pool, guids.old)?;
        session.log(&pool);
        Ok(())
    }
}

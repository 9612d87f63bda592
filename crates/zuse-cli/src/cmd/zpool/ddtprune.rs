//! `zpool ddtprune`

use clap::Args;
use zuse::dedup::Prune;

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// Remove entries from the dedup tables of a pool
///
/// It removes entries of blocks with one reference, the oldest first. If such a block is written
/// again, it is stored again. Tables of the old form, from before the feature fast_dedup, stay as
/// they are.
#[derive(Args, Debug)]
pub struct DdtPrune {
    /// Entries that did not change for this many days
    #[arg(short = 'd', value_name = "DAYS")]
    days: Option<String>,
    /// This percentage of the entries with one reference
    #[arg(short = 'p', value_name = "PERCENTAGE")]
    percent: Option<String>,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
}

impl DdtPrune {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let what = self.what()?;
        self.prune(session, what).map_err(|stop| match stop {
            Stop::Failed(error) => CommandError { code: 255, ..error }.into(),
            stop => stop,
        })
    }

    fn prune(&self, session: &mut Session, what: Prune) -> Outcome {
        let name = &self.pool;
        zuse::check_pool_name(name).or_cannot(|| format!("cannot open '{name}'"))?;
        let pool = session.pool(name, Need::Write)?;
        pool.prune_dedup(what)
            .or_cannot_pool(|| format!("cannot prune dedup table on '{name}'"))?;
        session.log(&pool);
        Ok(())
    }

    fn what(&self) -> Outcome<Prune> {
        let wrong = |what: &str| CommandError::usage(what);
        match (&self.days, &self.percent) {
            (Some(_), Some(_)) => Err(wrong("-p cannot be combined with -d option").into()),
            (Some(days), None) => match days.parse::<u32>() {
                Ok(days) if days > 0 => Ok(Prune::Older(u64::from(days) * DAY)),
                _ => Err(wrong("invalid days value").into()),
            },
            (None, Some(percent)) => match percent.parse::<u8>() {
                Ok(percent) if (1..=100).contains(&percent) => Ok(Prune::Percent(percent)),
                _ => Err(wrong("invalid percentage value").into()),
            },
            (None, None) => Err(wrong("missing amount option (-d|-p <value>)").into()),
        }
    }
}

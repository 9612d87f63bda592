//! `zpool scrub`

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use zuse::tools::Layers as _;
use zuse::{Errno, Pool, Recursion};

use crate::date;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Polling interval while waiting.
const LOOK: Duration = Duration::from_millis(100);

/// Read every copy of every block, and repair what is wrong
///
/// It runs in the background, in the pool's host, and readers and writers go first. 'zpool status'
/// shows the progress, which an export, a crash or a restart keeps. Blocks without a good copy go
/// into the error log: 'zpool status -v' names their files.
#[derive(Args, Debug)]
pub struct Scrub {
    /// End the scrub
    #[arg(short, conflicts_with_all = ["pause", "wait"])]
    stop: bool,
    /// Pause the scrub; 'zpool scrub' resumes it
    #[arg(short, conflicts_with = "wait")]
    pause: bool,
    /// Wait until it is done
    #[arg(short)]
    wait: bool,
    /// Only the blocks of the error log; those that can be read are removed from it
    #[arg(short, conflicts_with_all = ["stop", "pause", "since_last", "from", "until"])]
    errors: bool,
    /// Only blocks written since the last complete scrub
    #[arg(short = 'C', conflicts_with_all = ["stop", "pause"])]
    since_last: bool,
    /// Only blocks written from then on: 'YYYY-MM-DD [HH:MM]'
    #[arg(short = 'S', value_name = "DATE", conflicts_with_all = ["stop", "pause", "since_last"])]
    from: Option<String>,
    /// Only blocks written until then
    #[arg(short = 'E', value_name = "DATE", conflicts_with_all = ["stop", "pause", "since_last"])]
    until: Option<String>,
    /// All pools that are imported
    #[arg(short, conflicts_with = "pools")]
    all: bool,
    /// The pools
    #[arg(required_unless_present = "all", value_name = "POOL")]
    pools: Vec<String>,
}

/// The first and the last time, in seconds since 1970.
type Dates = (Option<u64>, Option<u64>);

fn date(text: &str) -> Outcome<u64> {
    let invalid = || CommandError::usage(format!("invalid date '{text}'")).into();
    date::parse(text).ok_or_else(invalid)
}

impl Scrub {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let pools = match self.all {
            true => session.pool_names()?,
            false => self.pools.clone(),
        };
        let lone = pools.len() == 1;
        let from = self.from.as_deref().map(date).transpose()?;
        let until = self.until.as_deref().map(date).transpose()?;
        if let (Some(from), Some(until)) = (from, until)
            && from > until
        {
            let what = "start date must be before end date";
            return Err(CommandError::usage(what).into());
        }
        for name in pools {
            match self.one(session, &name, (from, until)) {
                Err(Stop::Held(guid)) if !lone => {
                    let mut words = vec!["zuse", "zpool", "scrub"];
                    words.extend(self.options());
                    words.push(&name);
                    crate::forward::command(session, guid, &words)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn options(&self) -> Vec<&str> {
        let all = [
            (self.stop, "-s"),
            (self.pause, "-p"),
            (self.wait, "-w"),
            (self.since_last, "-C"),
            (self.errors, "-e"),
        ];
        let given = all.into_iter().filter(|(given, _)| *given);
        let mut words: Vec<&str> = given.map(|(_, option)| option).collect();
        for (option, date) in [("-S", &self.from), ("-E", &self.until)] {
            words.extend(date.iter().flat_map(|date| [option, date.as_str()]));
        }
        words
    }

    fn one(&self, session: &mut Session, name: &str, dates: Dates) -> Outcome {
        let pool = session.pool(name, Need::Write)?;
        // What is lost in a removed file is no error any more.
        pool.free_removed(name, Recursion::Below);
        if self.stop {
            let cannot = || format!("cannot cancel scrubbing {name}");
            pool.cancel_scan().or_cannot_pool(cannot)?;
        } else if self.pause {
            let cannot = || format!("cannot pause scrubbing {name}");
            match pool.pause_scrub() {
                // If none is running, OpenZFS does nothing and prints nothing.
                Err(error) if error.is(Errno::NOENT) => {}
                paused => paused.or_cannot_pool(cannot)?,
            }
        } else if self.errors {
            let cannot = || format!("cannot scrub {name}");
            pool.scrub_errors().or_cannot_pool(cannot)?;
        } else {
            let cannot = || format!("cannot scrub {name}");
            let (after, before) = match self.since_last {
                true => (pool.last_scrubbed_txg().or_cannot_pool(cannot)?, None),
                false => pool.txgs_between(dates.0, dates.1).or_cannot_pool(cannot)?,
            };
            pool.scrub(after, before).or_cannot_pool(cannot)?;
        }
        session.log(&pool);
        if self.stop || self.pause {
            return Ok(());
        }
        if pool.spa().keeps_checkpoint() {
            session.ui.say(format!(
                "warning: will not scrub state that belongs to the checkpoint of pool '{name}'"
            ));
        }
        finish(session, &pool, "scrub", self.wait)
    }
}

/// Waits for a scan if requested, or if no process keeps the pool open for it.
pub fn finish(session: &mut Session, pool: &Arc<Pool>, what: &str, wait: bool) -> Outcome {
    let name = pool.name();
    if !session.holds(pool) {
        if !wait {
            session.ui.say(format!(
                "pool '{name}' has no host: this command does the {what} itself, until it is done"
            ));
        }
    } else if !wait {
        return Ok(());
    }
    while pool.is_scanning() {
        session.pause(LOOK)?;
        if let Some(why) = pool.suspended() {
            return Err(why).or_cannot_pool(|| format!("cannot wait for pool '{name}'"));
        }
    }
    Ok(())
}

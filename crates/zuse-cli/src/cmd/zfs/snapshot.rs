//! `zfs snapshot`

use clap::Args;

use super::create::name_error;
use crate::args::pair;
use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::session::{Need, Session};
use crate::target::pool_of;

/// Take snapshots, all at the same moment
#[derive(Args, Debug)]
pub struct Snapshot {
    /// Also of everything below
    #[arg(short)]
    recursive: bool,
    /// Set a user property
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair)]
    options: Vec<(String, String)>,
    /// The snapshots
    #[arg(required = true, value_name = "DATASET@SNAPSHOT")]
    names: Vec<String>,
}

impl Snapshot {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        let Some(first) = self.names.first() else {
            return Ok(());
        };
        for name in &self.names {
            let Some((dataset, snapshot)) = name.split_once('@') else {
                return Err(CommandError::usage(format!(
                    "cannot create snapshot '{name}': missing '@' delimiter in snapshot name"
                ))
                .into());
            };
            if let Some(why) = name_error(dataset).or_else(|| name_error(&format!("p{snapshot}"))) {
                return Err(
                    CommandError::new(format!("cannot create snapshot '{name}': {why}")).into(),
                );
            }
            if pool_of(name) != pool_of(first) {
                return Err(CommandError::new(format!(
                    "cannot create snapshot '{name}': operation crosses datasets or pools"
                ))
                .hint("take snapshots of one pool at a time")
                .into());
            }
        }
        let pool = session
            .pool_for(first, Need::Write)
            .map_err(|stop| match stop {
                // A missing dataset is wrong usage here.
                Stop::Failed(e) => CommandError { code: 2, ..e }.into(),
                stop => stop,
            })?;
        for name in &self.names {
            let dataset = name.split('@').next().unwrap_or_default();
            if !pool
                .exists(dataset)
                .or_cannot(|| format!("cannot open '{dataset}'"))?
            {
                return Err(CommandError::usage(format!(
                    "cannot open '{dataset}': dataset does not exist"
                ))
                .into());
            }
        }
        pool.snapshot(&self.names, self.recursive, &self.options)
            .map_err(|e| {
                let error = explain(&format!("cannot create snapshot '{first}'"), &e, false);
                if self.names.len() > 1 || self.recursive {
                    error.hint("no snapshots were created")
                } else {
                    error
                }
            })?;
        session.log(&pool);
        Ok(())
    }
}

//! `zfs snapshot`

use std::collections::BTreeSet;
use zuse::Recursion;

use clap::Args;
use zuse::property_table::{dataset_property, is_user_property};

use super::create::name_error;
use crate::args::{no_duplicates, pair};
use crate::error::{CommandError, Explain, Meaning, Outcome, Stop, explain};
use crate::session::{Need, Session};
use crate::target::pool_of;

/// Take snapshots, all at the same moment
#[derive(Args, Debug)]
pub struct Snapshot {
    /// Also of all descendants
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
    /// Refuses properties that snapshots cannot have, and two snapshots of one dataset.
    fn check_all(&self) -> Outcome {
        if let Some((name, _)) = self
            .options
            .iter()
            .find(|(name, _)| !is_user_property(name))
        {
            let what = "cannot create snapshots : this property can not be modified for snapshots";
            let odd = format!("cannot create snapshots : invalid property '{name}'");
            let known = dataset_property(name).map(|_| what.to_owned());
            return Err(CommandError::new(known.unwrap_or(odd)).into());
        }
        let datasets: BTreeSet<&str> = (self.names.iter())
            .filter_map(|name| Some(name.split_once('@')?.0))
            .collect();
        if datasets.len() < self.names.len() {
            let what = "cannot create snapshots : multiple snapshots of same fs not allowed";
            return Err(CommandError::new(what)
                .hint("no snapshots were created")
                .into());
        }
        Ok(())
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        no_duplicates(&self.options)?;
        let Some(first) = self.names.first() else {
            return Ok(());
        };
        for name in &self.names {
            let Some((dataset, snapshot)) = name.split_once('@') else {
                return Err(CommandError::usage_alone().into());
            };
            let flaw = crate::target::flaw(name).filter(|_| !dataset.is_empty());
            if let Some(why) = flaw
                .or_else(|| name_error(dataset))
                .or_else(|| name_error(&format!("p{snapshot}")))
            {
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
                Stop::Failed(e) if e.meaning == Meaning::NoSuchPool => {
                    let pool = pool_of(first);
                    let what = format!("cannot open '{pool}': dataset does not exist");
                    CommandError::usage(what).into()
                }
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
        self.check_all()?;
        pool.snapshot(&self.names, Recursion::of(self.recursive), &self.options)
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

//! `zpool remove`

use std::path::Path;

use clap::Args;
use zuse::{Errno, Error, Refusal, Removable};

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Take log vdevs, spares and cache devices out of a pool
///
/// Vdevs with data cannot be removed. 'zfs send -R' moves the data into another pool.
#[derive(Args, Debug)]
pub struct Remove {
    /// Only print how much memory the removal would need
    #[arg(short = 'n')]
    dry_run: bool,
    /// With -n: exact numbers
    #[arg(short)]
    parsable: bool,
    /// Stop a removal of data that is under way
    #[arg(short)]
    stop: bool,
    /// Accepted: log vdevs, spares and cache devices are removed at once
    #[arg(short)]
    wait: bool,
    /// The pool
    pool: String,
    /// The devices
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
}

impl Remove {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if self.stop && (self.dry_run || self.wait || !self.devices.is_empty()) {
            let what = match (self.dry_run, self.wait) {
                (true, _) => "-n and -s may not be combined",
                (_, true) => "-s and -w may not be combined",
                _ => "too many arguments",
            };
            return Err(CommandError::usage(what).into());
        }
        if !self.stop && self.devices.is_empty() {
            return Err(CommandError::usage("missing device").into());
        }
        let pool = session.pool(&self.pool, Need::Write)?;
        if self.stop {
            let what = "cannot cancel removal: operation is not in progress";
            return Err(CommandError::new(what).into());
        }
        let mut failed = false;
        let mut removed = false;
        for name in &self.devices {
            let cannot = || format!("cannot remove {name}");
            match self.one(session, &pool, name).or_cannot_pool(cannot) {
                Ok(()) => removed = true,
                Err(Stop::Failed(error)) => {
                    failed = true;
                    crate::say_error(&mut session.ui, &error);
                }
                Err(stop) => return Err(stop),
            }
        }
        if removed && !self.dry_run {
            session.remember_again(&pool, pool.guid())?;
            session.log(&pool);
        }
        match failed {
            true => Err(CommandError::silent(1).into()),
            false => Ok(()),
        }
    }

    fn one(&self, session: &mut Session, pool: &zuse::Pool, name: &str) -> zuse::Result<()> {
        let here = session.path(Path::new(name));
        let found = pool
            .find_removable(name)
            .or_else(|e| pool.find_removable(&here.to_string_lossy()).map_err(|_| e))?;
        if !self.dry_run {
            return pool.remove(&found);
        }
        if let Removable::Data(_) | Removable::Part = found {
            return pool.remove(&found);
        }
        let line = format!("Memory that will be used after removing {name}: 0");
        session
            .ui
            .line(line)
            .map_err(|_| Error::refused_for(Refusal::Known, Errno::IO, "nobody reads what it says"))
    }
}

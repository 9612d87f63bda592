//! `zpool attach`

use std::path::PathBuf;

use clap::Args;

use super::devices;
use crate::args::pair_of_option;
use crate::error::Outcome;
use crate::session::{Need, Session};
use crate::vdev_spec::check_kind;

/// Attach a device to another one: a single device becomes a mirror, a mirror gets one more copy
///
/// The new device is filled in the background.
#[derive(Args, Debug)]
pub struct Attach {
    /// Take the new device even if it holds other data
    #[arg(short)]
    force: bool,
    /// Rebuild it sequentially. Here it is resilvered in any case, which verifies each block
    #[arg(short)]
    sequential: bool,
    /// Wait until it is filled
    #[arg(short)]
    wait: bool,
    /// A property of the device: ashift
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair_of_option)]
    options: Vec<(String, String)>,
    /// The pool
    pool: String,
    /// The existing device
    device: String,
    /// The new device
    new: PathBuf,
}

impl Attach {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        devices::check_options(&self.options)?;
        let pool = session.pool(&self.pool, Need::Write)?;
        let cannot = format!("cannot attach {} to {}", self.new.display(), self.device);
        let beside = devices::leaking(devices::find(session, &pool, &self.device, &cannot))?;
        let path = devices::path_of(session, &self.new);
        check_kind(&path)?;
        let take = devices::taking(session, self.force)?;
        pool.attach(beside, &path, &take)
            .map_err(|e| devices::refusal(&cannot, &e))?;
        session.remember_again(&pool, pool.guid())?;
        session.log(&pool);
        match self.wait {
            true => devices::wait(session, &pool),
            false => Ok(()),
        }
    }
}

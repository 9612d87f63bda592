//! `zpool replace`

use std::path::PathBuf;

use clap::Args;

use super::devices;
use crate::args::pair_of_option;
use crate::error::Outcome;
use crate::session::{Need, Session};
use crate::vdev_spec::check_kind;

/// Replace a device: the new one is filled in the background, then the old one leaves
///
/// Without NEW, the new device is the one at the place of the old one. If NEW is a spare of the
/// pool, it stands in until the old device is back or replaced.
#[derive(Args, Debug)]
pub struct Replace {
    /// Take the new device even if it holds other data
    #[arg(short)]
    force: bool,
    /// Rebuild it sequentially. Here it is resilvered in any case, which verifies each block
    #[arg(short)]
    sequential: bool,
    /// Wait until it is filled and the old one has left
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
    new: Option<PathBuf>,
}

impl Replace {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        devices::check_options(&self.options)?;
        let pool = session.pool(&self.pool, Need::Write)?;
        let shown = match &self.new {
            Some(new) => new.display().to_string(),
            None => self.device.clone(),
        };
        let cannot = format!("cannot replace {} with {shown}", self.device);
        let old = devices::leaking(devices::find(session, &pool, &self.device, &cannot))?;
        let path = self.new.as_ref().map(|p| devices::path_of(session, p));
        path.as_deref().map_or(Ok(()), check_kind)?;
        let take = devices::taking(session, self.force)?;
        pool.replace(old, path.as_deref(), &take)
            .map_err(|e| devices::refusal(&cannot, &e))?;
        session.remember_again(&pool, pool.guid())?;
        session.log(&pool);
        match self.wait {
            true => devices::wait(session, &pool),
            false => Ok(()),
        }
    }
}

//! `zpool detach`

use clap::Args;

use super::devices;
use crate::error::{Explain, Outcome};
use crate::session::{Need, Session};

/// Detach a device from a mirror, or one side of a replacement or of a spare in use
#[derive(Args, Debug)]
pub struct Detach {
    /// The pool
    pool: String,
    /// The device
    device: String,
}

impl Detach {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let pool = session.pool(&self.pool, Need::Write)?;
        let cannot = format!("cannot detach {}", self.device);
        let guid = devices::leaking(devices::find(session, &pool, &self.device, &cannot))?;
        devices::leaking(pool.detach(guid).or_cannot_pool(|| cannot))?;
        session.remember_again(&pool, pool.guid())?;
        session.log(&pool);
        Ok(())
    }
}

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
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        let pool = session.pool(&self.pool, Need::Write)?;
        let cannot = format!("cannot detach {}", self.device);
        let leaked = |stop| devices::leaked(stop, &cannot);
        let guid = devices::find(session, &pool, &self.device, &cannot).map_err(leaked)?;
        let done = pool.detach(guid).or_cannot_pool(|| cannot.clone());
        done.map_err(leaked)?;
        session.remember_again(&pool, pool.guid())?;
        session.log(&pool);
        Ok(())
    }
}

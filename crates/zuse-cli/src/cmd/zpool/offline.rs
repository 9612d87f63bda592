//! `zpool offline`

use clap::Args;
use zuse::Offline as OfflineOptions;

use super::devices;
use crate::error::{Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Take devices offline; the pool records what they miss
#[derive(Args, Debug)]
pub struct Offline {
    /// Mark them as failed
    #[arg(short)]
    fault: bool,
    /// Until the next import
    #[arg(short)]
    temporary: bool,
    /// The power of the devices' slots: refused
    #[arg(long, hide = true)]
    power: bool,
    /// The pool
    pool: String,
    /// The devices
    #[arg(required = true)]
    devices: Vec<String>,
}

impl Offline {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        devices::refuse_power(self.power)?;
        let pool = session.pool(&self.pool, Need::Write)?;
        let how = OfflineOptions {
            fault: self.fault,
            temporary: self.temporary,
        };
        for device in &self.devices {
            let cannot = format!("cannot offline {device}");
            let done = devices::find(session, &pool, device, &cannot)
                .and_then(|guid| pool.offline(guid, how).or_cannot_pool(|| cannot));
            match done {
                // The other devices are still tried.
                Err(Stop::Failed(error)) => devices::say(session, &error),
                done => done?,
            }
        }
        session.log(&pool);
        Ok(())
    }
}

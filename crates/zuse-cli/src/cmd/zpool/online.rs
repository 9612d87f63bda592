//! `zpool online`

use clap::Args;
use zuse::{Health, Pool, VdevState};

use super::devices;
use crate::error::{Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Bring devices back that were offline, failed or missing; what they missed is resilvered
#[derive(Args, Debug)]
pub struct Online {
    /// Use all of the devices' space
    #[arg(short)]
    expand: bool,
    /// The power of the devices' slots: refused
    #[arg(long, hide = true)]
    power: bool,
    /// The pool
    pool: String,
    /// The devices
    #[arg(required = true)]
    devices: Vec<String>,
}

impl Online {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        devices::refuse_power(self.power)?;
        let pool = session.pool(&self.pool, Need::Write)?;
        for device in &self.devices {
            let verb = if self.expand { "expand" } else { "online" };
            let cannot = format!("cannot {verb} {device}");
            let done = devices::find(session, &pool, device, &cannot)
                .and_then(|guid| self.one(&pool, guid).or_cannot_pool(|| cannot));
            match done {
                Ok(health) if health.state == VdevState::Healthy => {}
                Ok(health) => {
                    session.worst = session.worst.max(1);
                    session.ui.say(format!(
                        "warning: device '{device}' onlined, but remains in {} state",
                        "faulted"
                    ));
                    let hint = match health.state {
                        VdevState::Faulted => "use 'zpool clear' to restore a faulted device",
                        _ => "use 'zpool replace' to replace devices that are no longer present",
                    };
                    session.ui.say(hint);
                }
                Err(Stop::Failed(error)) => devices::say(session, &error),
                Err(stop) => return Err(stop),
            }
        }
        session.log(&pool);
        Ok(())
    }

    fn one(&self, pool: &Pool, guid: u64) -> zuse::Result<Health> {
        let health = pool.online(guid)?;
        if self.expand {
            pool.expand(Some(guid))?;
        }
        Ok(health)
    }
}

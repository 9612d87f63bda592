//! `zpool trim`

use clap::Args;
use zuse::{VdevWorkKind, VdevWorkOrder};

use super::vdev_work::{WorkOrder, alone, each};
use crate::args::size;
use crate::error::{CommandError, Outcome};
use crate::session::{Need, Session};

/// Give free space back to the host: holes in image files, discards on disks
///
/// It goes on in the background, also after an export and import.
#[derive(Args, Debug)]
pub struct Trim {
    /// All pools that are imported
    #[arg(short, conflicts_with = "pool")]
    all: bool,
    /// Stop, and forget the progress
    #[arg(short, long)]
    cancel: bool,
    /// Secure erase; refused, because no device of the host offers it
    #[arg(short = 'd', long)]
    secure: bool,
    /// Bytes a second at most
    #[arg(short, long, value_name = "RATE")]
    rate: Option<String>,
    /// Stop for now; the next 'zpool trim' goes on from there
    #[arg(short, long)]
    suspend: bool,
    /// Wait until it is done
    #[arg(short, long)]
    wait: bool,
    /// The pool
    #[arg(required_unless_present = "all")]
    pool: Option<String>,
    /// Its devices; all by default
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
}

impl Trim {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let stops = [('c', self.cancel), ('s', self.suspend)];
        alone(&stops)?;
        let stop = self.cancel || self.suspend;
        if self.wait && stop {
            return Err(CommandError::usage("-w cannot be used with -c or -s").into());
        }
        for (letter, is_given) in [('d', self.secure), ('r', self.rate.is_some())] {
            if is_given && stop {
                let what = format!("-{letter} cannot be combined with the -c or -s options");
                return Err(CommandError::usage(what).into());
            }
        }
        let rate = match &self.rate {
            None => 0,
            Some(text) => size(text)
                .map_err(|e| CommandError::usage(format!("invalid value for rate: {e}")))?,
        };
        let order = match (self.cancel, self.suspend) {
            (true, _) => VdevWorkOrder::Cancel,
            (_, true) => VdevWorkOrder::Suspend,
            _ => VdevWorkOrder::Start { rate },
        };
        let work = WorkOrder {
            kind: VdevWorkKind::Trim,
            order,
            wait: self.wait,
            devices: &self.devices,
        };
        if let Some(name) = &self.pool {
            if self.secure {
                session.pool(name, Need::Write)?;
                return not_secure(name);
            }
            return work.run(session, name);
        }
        if self.secure {
            return not_secure("all");
        }
        let mut words = vec!["trim"];
        words.extend(self.cancel.then_some("-c"));
        words.extend(self.suspend.then_some("-s"));
        words.extend(self.wait.then_some("-w"));
        if let Some(rate) = &self.rate {
            words.extend(["-r", rate]);
        }
        each(session, &words, &|session, name| work.run(session, name))
    }
}

fn not_secure(name: &str) -> Outcome {
    let what = format!("cannot trim '{name}': trim operations are not supported by this device");
    Err(CommandError {
        code: 255,
        ..CommandError::new(what)
    }
    .into())
}

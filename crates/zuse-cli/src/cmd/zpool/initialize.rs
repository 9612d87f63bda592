//! `zpool initialize`

use clap::Args;
use zuse::{VdevWorkKind, VdevWorkOrder};

use super::vdev_work::{WorkOrder, alone, each};
use crate::error::{CommandError, Outcome};
use crate::session::Session;

/// Write a pattern to all free space of devices
///
/// It goes on in the background, also after an export and import. Afterwards disks that allocate
/// their space at the first write have allocated all of it.
#[derive(Args, Debug)]
pub struct Initialize {
    /// All pools that are imported
    #[arg(short, conflicts_with = "pool")]
    all: bool,
    /// Stop, and forget the progress
    #[arg(short, long)]
    cancel: bool,
    /// Stop for now; the next 'zpool initialize' goes on from there
    #[arg(short, long)]
    suspend: bool,
    /// Forget that it was done
    #[arg(short, long)]
    uninit: bool,
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

impl Initialize {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let stops = [('c', self.cancel), ('s', self.suspend), ('u', self.uninit)];
        alone(&stops)?;
        let (order, letter) = match (self.cancel, self.suspend, self.uninit) {
            (true, ..) => (VdevWorkOrder::Cancel, Some("-c")),
            (_, true, _) => (VdevWorkOrder::Suspend, Some("-s")),
            (_, _, true) => (VdevWorkOrder::Forget, Some("-u")),
            _ => (VdevWorkOrder::Start { rate: 0 }, None),
        };
        if self.wait && letter.is_some() {
            let what = "-w cannot be used with -c, -sor -u";
            return Err(CommandError::usage(what).into());
        }
        let work = WorkOrder {
            kind: VdevWorkKind::Initialize,
            order,
            wait: self.wait,
            devices: &self.devices,
        };
        if let Some(name) = &self.pool {
            return work.run(session, name);
        }
        let mut words = vec!["initialize"];
        words.extend(letter);
        words.extend(self.wait.then_some("-w"));
        each(session, &words, &|session, name| work.run(session, name))
    }
}

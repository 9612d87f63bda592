//! `zpool labelclear`

use std::path::PathBuf;

use clap::Args;
use zuse::{ClearLabels, DeviceUse, Errno};

use crate::error::{CommandError, Outcome, explain};
use crate::session::Session;

/// Wipe the ZFS labels of a device
#[derive(Args, Debug)]
pub struct LabelClear {
    /// Also for a device of an exported pool, or of one that another system had imported
    #[arg(short)]
    force: bool,
    /// The device
    device: PathBuf,
}

impl LabelClear {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let path = session.path(&self.device);
        if let Err(e) = path.metadata() {
            let why = crate::error::host_error_text(&e);
            let what = format!("failed to open {}: {why}", path.display());
            return Err(CommandError::new(what).into());
        }
        let imported = super::devices::taking(session, self.force)?.imported;
        let which = match self.force {
            true => ClearLabels::Force,
            false => ClearLabels::Unused,
        };
        DeviceUse::clear(&path, which, &imported).map_err(|error| match &error {
            zuse::Error::Refused {
                errno: Errno::BUSY,
                what,
                ..
            } => CommandError::new(what.clone()),
            zuse::Error::Refused {
                errno: Errno::NOENT,
                what,
                ..
            } => CommandError {
                code: 255,
                ..CommandError::new(format!("failed to clear label for {}", path.display()))
            }
            .hint(what.clone()),
            zuse::Error::Refused {
                errno: Errno::EXIST,
                what,
                ..
            } => CommandError::new("use '-f' to override the following error:").hint(what.clone()),
            _ => explain(
                &format!("failed to clear label for {}", path.display()),
                &error,
                true,
            ),
        })?;
        Ok(())
    }
}

//! `zpool version`

use clap::Args;

use crate::error::Outcome;
use crate::json::{Json, envelope};
use crate::session::Session;

/// Print the version
#[derive(Args, Debug)]
pub struct Version {
    /// As JSON
    #[arg(short, long)]
    json: bool,
}

/// The OpenZFS release with the same commands. Clients expect such a number, and two lines, of
/// which the second is for a kernel module.
const LIKE: &str = "2.3.2";

impl Version {
    /// Runs it; `command` is the one that was called.
    pub fn run(self, session: &mut Session, command: &str) -> Outcome {
        let number = format!("{LIKE}-zuse{}", env!("CARGO_PKG_VERSION"));
        let version = format!("zfs-{number}");
        let kernel = format!("zfs-kmod-{number}");
        if self.json {
            let parts = Json::object([
                ("userland", Json::Text(version)),
                ("kernel", Json::Text(kernel)),
            ]);
            let payload = vec![("zfs_version".to_owned(), parts)];
            session.ui.line(envelope(command, payload).to_string())?;
        } else {
            session.ui.line(version)?;
            session.ui.line(kernel)?;
        }
        Ok(())
    }
}

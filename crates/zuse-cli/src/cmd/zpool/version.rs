//! `zpool version`

use clap::Args;

use crate::error::Outcome;
use crate::json::{Json, envelope};
use crate::session::Session;

/// Print which version this is
#[derive(Args, Debug)]
pub struct Version {
    /// As JSON
    #[arg(short, long)]
    json: bool,
}

impl Version {
    /// Does it; `command` is the one that was called. There is no kernel module to name.
    pub fn run(self, session: &mut Session, command: &str) -> Outcome {
        let version = format!("zuse-{}", env!("CARGO_PKG_VERSION"));
        if self.json {
            let parts = Json::object([("userland", Json::Text(version))]);
            let payload = vec![("zfs_version".to_owned(), parts)];
            session.ui.line(envelope(command, payload).to_string())?;
        } else {
            session.ui.line(version)?;
        }
        Ok(())
    }
}

//! `zpool version`

use clap::Args;

use crate::error::Outcome;
use crate::session::Session;

/// Print which version this is
#[derive(Args, Debug)]
pub struct Version {}

impl Version {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session
            .ui
            .line(format!("zuse-{}", env!("CARGO_PKG_VERSION")))?;
        Ok(())
    }
}

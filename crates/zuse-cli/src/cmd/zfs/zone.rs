//! `zfs jail`, `unjail`, `zone`, `unzone`: refused, with the reason.

use clap::Args;

use crate::error::{CommandError, Outcome};

/// Words that are not looked at.
#[derive(Args, Debug)]
pub struct Zone {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<String>,
}

impl Zone {
    /// Says why not.
    pub fn run(self, verb: &str) -> Outcome {
        let _ = self.words;
        Err(CommandError::new(format!(
            "cannot {verb}: datasets are given to jails and user namespaces by a kernel, and there is none at work here"
        ))
        .hint("a mount of Zuse is its user's own: run 'zuse mount' inside the container")
        .into())
    }
}

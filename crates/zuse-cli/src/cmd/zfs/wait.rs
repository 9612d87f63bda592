//! `zfs wait`

use clap::Args;

use crate::args::parts;
use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};
use zuse::tools::Layers as _;

/// Wait until a filesystem's removed files are freed
#[derive(Args, Debug)]
pub struct Wait {
    /// What to wait for: deleteq
    #[arg(short = 't', value_name = "ACTIVITY,…", default_value = "deleteq")]
    activities: String,
    /// The filesystem
    #[arg(value_name = "FILESYSTEM")]
    filesystem: String,
}

impl Wait {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.filesystem;
        if let Some(odd) = parts(&self.activities).iter().find(|a| *a != "deleteq") {
            return Err(CommandError::usage(format!("invalid activity '{odd}'")).into());
        }
        let pool = session.pool_for(name, Need::Write)?;
        super::check_file_system(&pool, name, false)?;
        let cannot = || format!("cannot wait for '{name}'");
        let fs = pool
            .file_system(name)
            .or_cannot(|| format!("cannot open '{name}'"))?;
        // Open files stay until they are closed.
        fs.drain_unlinked().or_cannot(cannot)?;
        drop(fs);
        pool.sync().or_cannot(cannot)?;
        Ok(())
    }
}

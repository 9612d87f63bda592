//! `zfs clone`

use clap::Args;

use super::create::name_error;
use crate::args::{no_duplicates, pair};
use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};
use crate::target::pool_of;

/// Make a filesystem or volume with the content of a snapshot
#[derive(Args, Debug)]
pub struct Clone {
    /// Also create its parents; no error if it exists
    #[arg(short)]
    parents: bool,
    /// Do not mount it
    #[arg(short)]
    unmounted: bool,
    /// Set a property
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair)]
    options: Vec<(String, String)>,
    /// The snapshot
    #[arg(value_name = "DATASET@SNAPSHOT")]
    snapshot: String,
    /// The new dataset
    #[arg(value_name = "DATASET")]
    name: String,
}

impl Clone {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let (snapshot, name) = (&self.snapshot, &self.name);
        let cannot = || format!("cannot create '{name}'");
        no_duplicates(&self.options)?;
        if !snapshot.contains('@') {
            return Err(CommandError::new(format!(
                "cannot open '{snapshot}': missing '@' delimiter in snapshot name"
            ))
            .into());
        }
        if let Some(why) = name_error(name) {
            return Err(CommandError::new(format!("{}: {why}", cannot())).into());
        }
        if pool_of(snapshot) != pool_of(name) {
            return Err(
                CommandError::new(format!("{}: source and target pools differ", cannot())).into(),
            );
        }
        let pool = session.pool_for(snapshot, Need::Write)?;
        pool.dataset(snapshot)
            .or_cannot(|| format!("cannot open '{snapshot}'"))?;
        if self.parents && pool.exists(name).or_cannot(cannot)? {
            return Ok(());
        }
        let above = super::create::ancestors(&pool, name, self.parents)?;
        pool.clone_snapshot(snapshot, name, &self.options)
            .or_cannot(cannot)?;
        session.log(&pool);
        crate::automount::made(session, &above, false)?;
        crate::automount::made(session, std::slice::from_ref(name), self.unmounted)
    }
}

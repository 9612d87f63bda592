//! `zfs rollback`

use clap::Args;
use zuse::DestroyOptions;
use zuse::NewerSnapshots;
use zuse::tools::Layers as _;

use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};

/// Bring a dataset back to a snapshot
///
/// A mounted dataset stays mounted. Open files that no longer exist give errors.
#[derive(Args, Debug)]
pub struct Rollback {
    /// Destroy newer snapshots and bookmarks
    #[arg(short)]
    recursive: bool,
    /// Destroy their clones too
    #[arg(short = 'R')]
    clones: bool,
    /// Accepted: mounts never prevent it
    #[arg(short)]
    force: bool,
    /// The snapshot
    #[arg(value_name = "DATASET@SNAPSHOT")]
    snapshot: String,
}

impl Rollback {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.snapshot;
        let cannot = || format!("cannot rollback to '{name}'");
        if !name.contains('@') {
            let what = "missing '@' delimiter in snapshot name";
            return Err(CommandError::new(format!("cannot open '{name}': {what}")).into());
        }
        let pool = session.pool_for(name, Need::Write)?;
        let newer = pool
            .newer_than(name)
            .or_cannot(|| format!("cannot open '{name}'"))?;
        if !newer.is_empty() && !self.recursive && !self.clones {
            let mut error = CommandError::new(format!(
                "{}: more recent snapshots or bookmarks exist",
                cannot()
            ))
            .hint("use '-r' to force deletion of the following snapshots and bookmarks:");
            for name in newer.iter().take(32) {
                error = error.hint(name.clone());
            }
            if newer.len() > 32 {
                error = error.hint("Output limited to 32 snapshots/bookmarks");
            }
            return Err(error.into());
        }
        let mut clones = Vec::new();
        for snapshot in &newer {
            let stat = pool
                .dataset(snapshot)
                .and_then(|d| d.stat())
                .or_cannot(cannot)?;
            clones.extend(stat.clones);
        }
        if !clones.is_empty() && !self.clones {
            let mut error =
                CommandError::new(format!("{}: clones of previous snapshots exist", cannot()))
                    .hint("use '-R' to force deletion of the following clones and dependents:");
            for clone in &clones {
                error = error.hint(clone.clone());
            }
            return Err(error.into());
        }
        // The partial state of an interrupted receive is removed, as with 'receive -A'.
        if clones.iter().any(|clone| clone.contains('%')) {
            let dataset = name.split('@').next().unwrap_or(name);
            pool.dsl().abort_receive(dataset).or_cannot(cannot)?;
            clones.retain(|clone| !clone.contains('%'));
        }
        if !clones.is_empty() {
            let clones = pool
                .dependent_clones(newer.clone(), &[])
                .or_cannot(cannot)?;
            let options = DestroyOptions::RECURSIVE.force(self.force);
            pool.destroy_datasets(&clones, options).or_cannot(cannot)?;
        }
        let newer = match newer.is_empty() {
            true => NewerSnapshots::Refuse,
            false => NewerSnapshots::Destroy,
        };
        pool.rollback(name, newer).or_cannot(cannot)?;
        session.log(&pool);
        Ok(())
    }
}

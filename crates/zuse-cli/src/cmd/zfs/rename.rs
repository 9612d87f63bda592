//! `zfs rename`

use clap::Args;
use zuse::Recursion;

use super::create::name_error;
use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};
use crate::target::pool_of;

/// Give a dataset or snapshot another name
#[derive(Args, Debug)]
pub struct Rename {
    /// Make the datasets above the new name
    #[arg(short)]
    parents: bool,
    /// Of a snapshot: also the snapshots of that name of all descendants
    #[arg(short)]
    recursive: bool,
    /// Leave mounts where they are
    #[arg(short)]
    unmounted: bool,
    /// Even if it is in use
    #[arg(short)]
    force: bool,
    /// Current name
    from: String,
    /// New name; of a snapshot @NEW is enough
    to: String,
}

impl Rename {
    /// The new name with its dataset, if only that of the snapshot was given.
    fn full_name(&self) -> String {
        let from = &self.from;
        match (from.split_once('@'), self.to.strip_prefix('@')) {
            (Some((dataset, _)), Some(snapshot)) => format!("{dataset}@{snapshot}"),
            (Some((dataset, _)), None) if !self.to.contains(['/', '@']) => {
                format!("{dataset}@{}", self.to)
            }
            _ => self.to.clone(),
        }
    }

    /// Refuses new names that the dataset or snapshot cannot have.
    fn check(&self, to: &str) -> Outcome {
        let from = &self.from;
        let cannot = || format!("cannot rename '{from}'");
        match (from.split_once('@'), to.split_once('@')) {
            (Some((a, _)), Some((b, _))) if a != b => {
                let what = "snapshots must be part of same dataset";
                return Err(CommandError::new(format!("cannot rename to '{to}': {what}")).into());
            }
            (Some(_), None) | (None, Some(_)) => {
                return Err(CommandError::usage(format!(
                    "{}: a snapshot stays a snapshot, a dataset a dataset",
                    cannot()
                ))
                .into());
            }
            (None, None) if self.recursive => {
                return Err(CommandError::usage(
                    "source dataset for recursive rename must be a snapshot",
                )
                .into());
            }
            _ => {}
        }
        if pool_of(from) != pool_of(to) {
            return Err(CommandError::new(format!(
                "{}: datasets must be within same pool",
                cannot()
            ))
            .into());
        }
        if to
            .strip_prefix(from.as_str())
            .is_some_and(|rest| rest.starts_with('/'))
        {
            let what = "New dataset name cannot be a descendant of current dataset name";
            return Err(CommandError::new(format!("cannot rename to '{to}': {what}")).into());
        }
        if let Some(why) = to.split('@').next().and_then(name_error) {
            return Err(CommandError::new(format!("cannot create '{to}': {why}")).into());
        }
        Ok(())
    }

    /// Refuses options that mean nothing together, or nothing of a snapshot.
    fn check_options(&self) -> Outcome {
        let why = match () {
            () if self.parents && self.recursive => "-p and -r options are mutually exclusive",
            () if self.unmounted && self.parents => "-u and -p options are mutually exclusive",
            () if self.parents || self.unmounted && !self.recursive || self.from.contains('#') => {
                return super::check_head(&self.from);
            }
            () => return Ok(()),
        };
        Err(CommandError::usage(why).into())
    }

    /// Makes the datasets that are missing down to the one above the new name.
    fn make_parents(&self, pool: &zuse::Pool, above: &str) -> Outcome {
        let cannot = || format!("cannot rename '{}'", self.from);
        let mut missing = Vec::new();
        let mut at = Some(above);
        while let Some(name) = at.filter(|n| n.contains('/')) {
            if pool.exists(name).or_cannot(cannot)? {
                break;
            }
            missing.push(name.to_owned());
            at = name.rsplit_once('/').map(|(a, _)| a);
        }
        let owner = crate::caller::owner();
        // Collected from below, made from above: each needs its parent.
        for name in missing.iter().rev() {
            pool.create_filesystem(name, &[], owner)
                .or_cannot(|| format!("cannot create '{name}'"))?;
        }
        Ok(())
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let from = &self.from;
        let cannot = || format!("cannot rename '{from}'");
        let to = self.full_name();
        self.check_options()?;
        self.check(&to)?;
        let pool = session.pool_for(from, Need::Write)?;
        if *from == to {
            pool.dataset(from)
                .or_cannot(|| format!("cannot open '{from}'"))?;
            return Ok(());
        }
        if let (Some((above, _)), true) = (to.rsplit_once('/'), self.parents && !to.contains('@')) {
            self.make_parents(&pool, above)?;
        }
        let moves = !from.contains('@') && !self.unmounted;
        if moves && !self.force {
            // Before the change: a mount in use would stay at the place of the old name.
            crate::automount::check_movable(session, from)?;
        }
        pool.rename(from, &to, Recursion::of(self.recursive))
            .or_cannot(cannot)?;
        session.log(&pool);
        if moves {
            crate::automount::follow(session, &to, false)?;
        }
        Ok(())
    }
}

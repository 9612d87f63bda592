//! `zfs unmount`

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

use super::keys::UnloadKey;
use crate::cmd::umount::unmount;
use crate::error::{CommandError, Explain, Outcome};
use crate::orphan;
use crate::place;
use crate::session::Session;
use crate::target::pool_of;
use crate::wire;

/// Unmount datasets
#[derive(Args, Debug)]
pub struct Unmount {
    /// Even if they are in use
    #[arg(short)]
    force: bool,
    /// Unload the key of an encryption root that is unmounted
    #[arg(short = 'u')]
    unload: bool,
    /// All that is mounted
    #[arg(short, conflicts_with = "what")]
    all: bool,
    /// The dataset, or the directory where it is mounted
    #[arg(value_name = "DATASET|DIR", required_unless_present = "all")]
    what: Option<OsString>,
}

impl Unmount {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if let Some(what) = &self.what {
            let name = what.to_str().filter(|name| !place::is_path(name));
            name.map_or(Ok(()), super::check_head)?;
            unmount(session, what, self.force)?;
            let root = what.to_str().filter(|_| self.unload);
            let encrypted = root.and_then(|name| {
                let pool = session.holder.as_ref()?.pool().clone();
                pool.encryption(name)
                    .ok()?
                    .filter(|e| e.is_root && e.loaded)
            });
            return match encrypted {
                Some(e) => UnloadKey::of(e.root).run(session),
                None => Ok(()),
            };
        }
        if let Some(holder) = session.holder.clone() {
            let failed = holder
                .unmount_each(self.force)
                .or_cannot(|| "cannot unmount".to_owned())?;
            for error in &failed {
                crate::say_error(&mut session.ui, error);
            }
            return match failed.is_empty() {
                true => Ok(()),
                false => Err(CommandError::silent(1).into()),
            };
        }
        let pools = session.pool_names()?;
        let ours = |source: &str, _: &Path| pools.iter().any(|p| p == pool_of(source));
        for gone in orphan::orphans(ours) {
            // Mounts whose process has ended: no host could unmount them.
            gone.take_away()?;
        }
        for pool in pools {
            let guid = session.guid_of(&pool)?;
            if wire::is_live(&session.state.socket(guid)) {
                let mut words = vec!["zuse", "zfs", "unmount", "-a"];
                words.extend(self.force.then_some("-f"));
                crate::forward::command(session, guid, &words)?;
            }
        }
        Ok(())
    }
}

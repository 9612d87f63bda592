//! `zpool export`

use clap::Args;

use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::holder::GIVE_UP;
use crate::session::{Need, Session};

/// Close pools so that any machine may import them
#[derive(Args, Debug)]
pub struct Export {
    /// Unmount datasets even if they are in use; forget a pool whose devices are missing
    #[arg(short)]
    force: bool,
    /// All pools
    #[arg(short, conflicts_with = "pools")]
    all: bool,
    /// The pools
    #[arg(required_unless_present = "all", value_name = "POOL")]
    pools: Vec<String>,
}

impl Export {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let names = if self.all {
            session.pool_names()?
        } else {
            self.pools.clone()
        };
        for name in &names {
            let pool = match session.pool(name, Need::Write) {
                Ok(pool) => pool,
                Err(Stop::Failed(e)) if self.force => {
                    let Some(cached) = session.state.imported()?.remove(name) else {
                        return Err(e.into());
                    };
                    session.state.forget(cached.config.pool_guid)?;
                    session.ui.say(format!(
                        "'{name}' is forgotten; its devices were not changed"
                    ));
                    continue;
                }
                Err(stop) => return Err(stop),
            };
            unmount_all(session, name, self.force, "export")?;
            // Before the export: afterwards the pool is closed.
            session.log(&pool);
            pool.export()
                .or_cannot_pool(|| format!("cannot export '{name}'"))?;
            session.release(&pool);
            // Last: if the export fails, the pool stays imported.
            session.state.forget(pool.guid())?;
        }
        Ok(())
    }
}

/// Unmounts everything of a pool that this process holds, and lets it end after the command.
pub fn unmount_all(session: &mut Session, name: &str, force: bool, action: &str) -> Outcome {
    let Some(holder) = session.holder.clone().filter(|h| h.pool().name() == name) else {
        return Ok(());
    };
    if holder.mounts_by_itself() && !force && holder.pool().suspended().is_none() {
        holder.check_unused(&holder.datasets())?;
    }
    let dirs = crate::automount::all_places(session);
    let unmounted = holder.unmount_all(force).map_err(|e| match e {
        zuse::Error::Suspended { .. } => {
            explain(&format!("cannot {action} '{name}'"), &e, true).hint(GIVE_UP)
        }
        e => {
            let why = match &e {
                zuse::Error::Refused { what, .. } => what.clone(),
                other => other.to_string(),
            };
            CommandError::new(format!("cannot {action} '{name}': pool is busy"))
                .hint(why)
                .hint("leave the mounted directories, or use '-f'")
        }
    });
    match unmounted {
        Err(_) if force && holder.pool().suspended().is_some() => holder.abandon(),
        other => other?,
    }
    crate::automount::clear_places(&dirs);
    // No further commands are forwarded here: the pool is about to be closed.
    let guid = holder.pool().guid();
    let _ = std::fs::remove_file(session.state.held_name(guid));
    let _ = std::fs::remove_file(session.state.socket(guid));
    holder.end();
    Ok(())
}

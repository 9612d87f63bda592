//! `zuse zfs …`

mod allow;
mod bookmark;
mod clone;
mod create;
mod destroy;
mod diff;
mod get;
mod hold;
mod inherit;
mod keys;
mod list;
mod mount;
mod program;
mod project;
mod promote;
mod receive;
mod redact;
mod rename;
mod rollback;
mod send;
mod set;
mod snapshot;
mod unmount;
mod upgrade;
mod userspace;
mod wait;
mod zone;

pub use keys::LoadKey;

use clap::{Args, Subcommand};
use zuse::{DatasetKind, Pool, QuotaOwner};

use std::sync::Arc;

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::Session;

/// Refuses what is named and is no file system, in the words of OpenZFS. `snapshots` may be named
/// too.
pub(super) fn check_file_system(pool: &Arc<Pool>, name: &str, snapshots: bool) -> Outcome {
    let cannot = || format!("cannot open '{name}'");
    if name.contains('#') {
        return check_head(name);
    }
    let why = match pool
        .dataset(name)
        .and_then(|d| d.kind())
        .or_cannot(cannot)?
    {
        DatasetKind::Filesystem => return Ok(()),
        DatasetKind::Snapshot if snapshots => return Ok(()),
        DatasetKind::Snapshot => NO_SNAPSHOT,
        _ => WRONG_KIND,
    };
    Err(CommandError::new(format!("{}: {why}", cannot())).into())
}

/// Refuses a name that is one of a snapshot or a bookmark.
fn check_head(name: &str) -> Outcome {
    match not_a_dataset(name) {
        Some(why) => Err(CommandError::new(format!("cannot open '{name}': {why}")).into()),
        None => Ok(()),
    }
}

/// The same with another status than 1.
fn check_head_or(name: &str, code: u8) -> Outcome {
    check_head(name).map_err(|stop| match stop {
        Stop::Failed(e) => Stop::Failed(CommandError { code, ..e }),
        stop => stop,
    })
}

/// Why a name cannot be that of a filesystem or volume, whatever there is.
fn not_a_dataset(name: &str) -> Option<&'static str> {
    match name.find(['@', '#']) {
        Some(at) if name[at..].starts_with('#') => Some(NO_BOOKMARK),
        at => at.map(|_| NO_SNAPSHOT),
    }
}

const NO_SNAPSHOT: &str = "snapshot delimiter '@' is not expected here";
const NO_BOOKMARK: &str = "bookmark delimiter '#' is not expected here";

/// The message about a dataset of a kind that a command does not accept.
const WRONG_KIND: &str = "operation not applicable to datasets of this type";

/// Datasets: filesystems, snapshots and their properties
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct Zfs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Create(create::Create),
    Destroy(destroy::Destroy),
    List(list::List),
    Get(get::Get),
    Set(set::Set),
    Inherit(inherit::Inherit),
    Mount(mount::Mount),
    #[command(alias = "umount")]
    Unmount(unmount::Unmount),
    #[command(alias = "snap")]
    Snapshot(snapshot::Snapshot),
    Rollback(rollback::Rollback),
    Send(send::Send),
    Receive(receive::Receive),
    Redact(redact::Redact),
    Rename(rename::Rename),
    Clone(clone::Clone),
    Promote(promote::Promote),
    Hold(hold::Hold),
    Release(hold::Release),
    Holds(hold::Holds),
    Bookmark(bookmark::Bookmark),
    Diff(diff::Diff),
    Program(program::Program),
    /// Show the space and quota of each user
    Userspace(userspace::Space),
    /// Show the space and quota of each group
    Groupspace(userspace::Space),
    /// Show the space and quota of each project
    Projectspace(userspace::Space),
    Project(project::Project),
    Upgrade(upgrade::Upgrade),
    Wait(wait::Wait),
    Allow(allow::Allow),
    Unallow(allow::Unallow),
    #[command(hide = true)]
    Jail(zone::Zone),
    #[command(hide = true)]
    Unjail(zone::Zone),
    #[command(hide = true)]
    Zone(zone::Zone),
    #[command(hide = true)]
    Unzone(zone::Zone),
    LoadKey(keys::LoadKey),
    UnloadKey(keys::UnloadKey),
    ChangeKey(keys::ChangeKey),
    Version(super::zpool::Version),
}

impl Zfs {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            Command::Create(c) => c.run(session),
            Command::Destroy(c) => c.run(session),
            Command::List(c) => c.run(session),
            Command::Get(c) => c.run(session),
            Command::Set(c) => c.run(session),
            Command::Inherit(c) => c.run(session),
            Command::Mount(c) => c.run(session),
            Command::Unmount(c) => c.run(session),
            Command::Snapshot(c) => c.run(session),
            Command::Rollback(c) => c.run(session),
            Command::Send(c) => c.run(session),
            Command::Receive(c) => c.run(session),
            Command::Redact(c) => c.run(session),
            Command::Rename(c) => c.run(session),
            Command::Clone(c) => c.run(session),
            Command::Promote(c) => c.run(session),
            Command::Hold(c) => c.run(session),
            Command::Release(c) => c.run(session),
            Command::Holds(c) => c.run(session),
            Command::Bookmark(c) => c.run(session),
            Command::Diff(c) => c.run(session),
            Command::Program(c) => c.run(session),
            Command::Userspace(c) => c.run(QuotaOwner::User, session),
            Command::Groupspace(c) => c.run(QuotaOwner::Group, session),
            Command::Projectspace(c) => c.run(QuotaOwner::Project, session),
            Command::Project(c) => c.run(session),
            Command::Upgrade(c) => c.run(session),
            Command::Wait(c) => c.run(session),
            Command::Allow(c) => c.run(session),
            Command::Unallow(c) => c.run(session),
            Command::Jail(c) => c.run("jail"),
            Command::Unjail(c) => c.run("unjail"),
            Command::Zone(c) => c.run("zone"),
            Command::Unzone(c) => c.run("unzone"),
            Command::LoadKey(c) => c.run(session),
            Command::UnloadKey(c) => c.run(session),
            Command::ChangeKey(c) => c.run(session),
            Command::Version(c) => c.run(session, "zfs version"),
        }
    }
}

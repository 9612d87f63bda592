//! `zuse zfs …`

mod create;
mod destroy;
mod get;
mod inherit;
mod list;
mod mount;
mod rename;
mod rollback;
mod set;
mod snapshot;
mod unmount;

use clap::{Args, Subcommand};

use crate::error::Outcome;
use crate::session::Session;

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
    Rename(rename::Rename),
    Version(super::zpool::Version),
}

impl Zfs {
    /// Does it.
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
            Command::Rename(c) => c.run(session),
            Command::Version(c) => c.run(session),
        }
    }
}

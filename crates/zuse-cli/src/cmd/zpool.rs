//! `zuse zpool …`

mod add;
mod attach;
mod checkpoint;
mod clear;
mod create;
mod ddtprune;
mod destroy;
mod detach;
mod devices;
mod events;
mod export;
mod get;
pub mod history;
mod import;
mod initialize;
mod iostat;
mod labelclear;
mod list;
mod offline;
mod online;
mod reguid;
mod remove;
mod reopen;
mod repeat;
mod replace;
mod resilver;
mod scrub;
mod set;
mod split;
mod status;
mod sync;
mod trim;
mod upgrade;
mod vdev_work;
mod version;
mod wait;

pub use list::{ask as ask_pools, ask_for};
pub use version::Version;

use clap::{Args, Subcommand};

use crate::error::Outcome;
use crate::session::Session;

/// Pools: create, import, export, show
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct Zpool {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Add(add::Add),
    Create(create::Create),
    Destroy(destroy::Destroy),
    Import(import::Import),
    Initialize(initialize::Initialize),
    Iostat(iostat::Iostat),
    Export(export::Export),
    List(list::List),
    Split(split::Split),
    Status(status::Status),
    Get(get::Get),
    Set(set::Set),
    Checkpoint(checkpoint::Checkpoint),
    Clear(clear::Clear),
    Attach(attach::Attach),
    Detach(detach::Detach),
    Replace(replace::Replace),
    Offline(offline::Offline),
    Online(online::Online),
    Scrub(scrub::Scrub),
    Resilver(resilver::Resilver),
    Trim(trim::Trim),
    Reguid(reguid::Reguid),
    Ddtprune(ddtprune::DdtPrune),
    Remove(remove::Remove),
    Reopen(reopen::Reopen),
    Sync(sync::Sync),
    Events(events::Events),
    History(history::History),
    Upgrade(upgrade::Upgrade),
    Wait(wait::Wait),
    Labelclear(labelclear::LabelClear),
    Version(Version),
}

impl Zpool {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            Command::Add(c) => c.run(session),
            Command::Create(c) => c.run(session),
            Command::Destroy(c) => c.run(session),
            Command::Import(c) => c.run(session),
            Command::Initialize(c) => c.run(session),
            Command::Iostat(c) => c.run(session),
            Command::Export(c) => c.run(session),
            Command::List(c) => c.run(session),
            Command::Split(c) => c.run(session),
            Command::Status(c) => c.run(session),
            Command::Get(c) => c.run(session),
            Command::Set(c) => c.run(session),
            Command::Checkpoint(c) => c.run(session),
            Command::Clear(c) => c.run(session),
            Command::Attach(c) => c.run(session),
            Command::Detach(c) => c.run(session),
            Command::Replace(c) => c.run(session),
            Command::Offline(c) => c.run(session),
            Command::Online(c) => c.run(session),
            Command::Scrub(c) => c.run(session),
            Command::Resilver(c) => c.run(session),
            Command::Trim(c) => c.run(session),
            Command::Reguid(c) => c.run(session),
            Command::Ddtprune(c) => c.run(session),
            Command::Remove(c) => c.run(session),
            Command::Reopen(c) => c.run(session),
            Command::Sync(c) => c.run(session),
            Command::Events(c) => c.run(session),
            Command::History(c) => c.run(session),
            Command::Upgrade(c) => c.run(session),
            Command::Wait(c) => c.run(session),
            Command::Labelclear(c) => c.run(session),
            Command::Version(c) => c.run(session, "zpool version"),
        }
    }
}

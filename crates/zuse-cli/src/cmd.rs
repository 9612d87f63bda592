//! The command line: one file per sub-command.

pub mod answer;
pub mod cat;
pub mod cp;
pub mod demo;
pub mod ls;
pub mod manifest;
pub mod mount;
pub mod serve;
pub mod umount;
pub mod zdb;
pub mod zfs;
pub mod zpool;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::error::Outcome;
use crate::session::Session;

/// ZFS in user space.
///
/// Pools live in files or on disks and are byte-compatible with OpenZFS; no kernel module and no root is needed.
/// Called as zpool, zfs or zdb (by a link of that name) it is that command.
#[derive(Parser, Debug)]
#[command(name = "zuse", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Look for pools on this device, or on the devices in this directory, and open them in place (may be repeated)
    #[arg(id = "search-in", long = "in", global = true, value_name = "FILE|DIR")]
    pub search_in: Vec<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  zuse zpool create tank tank.img --size 1G     make a pool in a file
  zuse zfs create -o compression=zstd tank/home
  zuse cp -r ~/src tank/home:/                  copy in without a mount
  zuse mount tank/home mnt                      mount it, as yourself
  zuse zfs snapshot tank/home@monday
  zuse manifest tank/home@monday                every path with its checksum, as JSON
  zuse zpool export tank                        any OpenZFS may import it now
  zuse demo                                     see all of it at work";

#[derive(Subcommand, Debug)]
enum Command {
    Zpool(zpool::Zpool),
    Zfs(zfs::Zfs),
    Zdb(zdb::Zdb),
    Mount(mount::Mount),
    #[command(alias = "unmount")]
    Umount(umount::Umount),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Cp(cp::Cp),
    Manifest(manifest::Manifest),
    Demo(demo::Demo),
    #[command(name = "mount.fuse.zuse", hide = true)]
    MountHelper(mount::Helper),
    #[command(hide = true)]
    Serve(serve::Serve),
    #[command(hide = true)]
    Answer(answer::Answer),
}

impl Cli {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.search_in);
        match self.command {
            Command::Zpool(c) => c.run(session),
            Command::Zfs(c) => c.run(session),
            Command::Zdb(c) => c.run(session),
            Command::Mount(c) => c.run(session),
            Command::Umount(c) => c.run(session),
            Command::Ls(c) => c.run(session),
            Command::Cat(c) => c.run(session),
            Command::Cp(c) => c.run(session),
            Command::Manifest(c) => c.run(session),
            Command::Demo(c) => c.run(session),
            Command::MountHelper(c) => c.run(session),
            Command::Serve(c) => c.run(session),
            Command::Answer(c) => c.run(session),
        }
    }
}

#[cfg(test)]
mod tests;

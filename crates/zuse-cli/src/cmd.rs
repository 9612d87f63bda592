//! The command line: one file per sub-command.

pub mod answer;
pub mod cat;
pub mod check;
pub mod cp;
pub mod demo;
pub mod doctor;
pub mod host;
pub mod ls;
pub mod manifest;
pub mod mount;
pub mod replicate;
pub mod serve;
pub mod stats;
pub mod stream;
pub mod tunables;
pub mod uberblocks;
pub mod umount;
pub mod zdb;
pub mod zfs;
pub mod zpool;
pub mod zstream;

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use crate::args::pair;
use crate::error::{Explain, Outcome};
use crate::session::Session;

/// ZFS in user space.
///
/// Pools live in files or on disks and are byte-compatible with OpenZFS. Neither a kernel module
/// nor root is needed. Called by a link named zpool, zfs, zdb or zstream, it is that command.
#[derive(Parser, Debug)]
#[command(name = "zuse", version, propagate_version = true, args_override_self = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Look for pools on this device, or on the devices in this directory, and open them in place
    /// (may be repeated)
    #[arg(id = "search-in", long = "in", global = true, value_name = "FILE|DIR")]
    pub search_in: Vec<PathBuf>,
    /// A file with a key of encrypted datasets: raw, hexadecimal or a passphrase (may be repeated).
    /// It is tried on every encryption root of the pools that the command opens
    #[arg(id = "key-file", long = "key", global = true, value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// Open pools as of this transaction group, or of their 'checkpoint', for reading only
    #[arg(long, global = true, value_name = "TXG|checkpoint", value_parser = at)]
    pub at: Option<PastState>,
    /// Set a tunable for the pools that this command opens (may be repeated; 'zuse tunables' lists
    /// them)
    #[arg(long = "tune", global = true, value_name = "NAME=VALUE", value_parser = pair)]
    pub tune: Vec<(String, String)>,
    /// At the end, print the cache and read figures of the pools that this command opened, as JSON
    /// on standard error. 'zuse stats' shows those of a mounted pool
    #[arg(id = "show-stats", long = "stats", global = true)]
    pub stats: bool,
    /// Open the pool in this process, without a host process in the background
    #[arg(long, global = true)]
    pub no_host: bool,
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
    Zstream(zstream::Zstream),
    Uberblocks(uberblocks::Uberblocks),
    Mount(mount::Mount),
    #[command(alias = "unmount")]
    Umount(umount::Umount),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Cp(cp::Cp),
    Manifest(manifest::Manifest),
    Check(check::Check),
    Stream(stream::Stream),
    Replicate(replicate::Replicate),
    Tunables(tunables::Tunables),
    Stats(stats::Stats),
    Host(host::Host),
    Doctor(doctor::Doctor),
    Demo(demo::Demo),
    #[command(name = "mount.fuse.zuse", hide = true)]
    MountHelper(mount::Helper),
    #[command(hide = true)]
    Serve(serve::Serve),
    #[command(hide = true)]
    Answer(answer::Answer),
}

/// A state that a pool has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastState {
    /// Of this transaction group, or the newest one before it.
    Txg(u64),
    /// Of its checkpoint.
    Checkpoint,
}

fn at(text: &str) -> Result<PastState, String> {
    if text == "checkpoint" {
        return Ok(PastState::Checkpoint);
    }
    text.parse()
        .map(PastState::Txg)
        .map_err(|_| "a transaction group or 'checkpoint' is needed".to_owned())
}

/// Whether a place that was named can be looked at: otherwise it would seem to have no pools.
fn look(place: &Path) -> std::io::Result<()> {
    let kind = std::fs::metadata(place)?.file_type();
    if kind.is_dir() {
        std::fs::read_dir(place)?;
    } else if kind.is_file() || kind.is_block_device() {
        std::fs::File::open(place)?;
    }
    Ok(())
}

impl Cli {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        for place in &self.search_in {
            look(&session.path(place))
                .or_cannot(|| format!("cannot look for pools in '{}'", place.display()))?;
        }
        session.look_in(&self.search_in);
        session.take_keys(&self.keys)?;
        session.at = self.at;
        session.stats = self.stats;
        session.no_host = self.no_host;
        session.tune(self.tune)?;
        match self.command {
            Command::Zpool(c) => c.run(session),
            Command::Zfs(c) => c.run(session),
            Command::Zdb(c) => c.run(session),
            Command::Zstream(c) => c.run(session),
            Command::Uberblocks(c) => c.run(session),
            Command::Mount(c) => c.run(session),
            Command::Umount(c) => c.run(session),
            Command::Ls(c) => c.run(session),
            Command::Cat(c) => c.run(session),
            Command::Cp(c) => c.run(session),
            Command::Manifest(c) => c.run(session),
            Command::Check(c) => c.run(session),
            Command::Stream(c) => c.run(session),
            Command::Replicate(c) => c.run(session),
            Command::Tunables(c) => c.run(session),
            Command::Stats(c) => c.run(session),
            Command::Host(c) => c.run(session),
            Command::Doctor(c) => c.run(session),
            Command::Demo(c) => c.run(session),
            Command::MountHelper(c) => c.run(session),
            Command::Serve(c) => c.run(session),
            Command::Answer(c) => c.run(session),
        }
    }
}

#[cfg(test)]
mod tests;

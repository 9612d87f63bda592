//! `zuse cat`

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use zuse::tools::Layers as _;
use zuse::{Credentials, Errno};

use super::ls::{missing, place};
use crate::args::Devices;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session};
use crate::target::Target;

/// Bytes handed out at a time.
const CHUNK: u64 = 1 << 20;

/// Write files of a dataset or snapshot, or a volume (VOLUME:), to standard output, without a mount
#[derive(Args, Debug)]
pub struct Cat {
    /// Write zeros for blocks that cannot be read, and continue
    #[arg(short = 'k', long)]
    keep_going: bool,
    #[command(flatten)]
    devices: Devices,
    /// The files, or volumes
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT][:/PATH]")]
    files: Vec<OsString>,
}

impl Cat {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        // Missing operands are reported before anything is written.
        let targets = self.files.iter().map(place);
        let targets: Vec<Target> = targets.collect::<Outcome<_>>()?;
        each(session, &targets, self.keep_going)
    }
}

/// Writes places to standard output. For an unreadable one it prints the reason, and continues.
pub fn each(session: &mut Session, targets: &[Target], keep_going: bool) -> Outcome {
    let mut bad = false;
    for target in targets {
        match one(session, target, keep_going) {
            Err(Stop::Failed(error)) => {
                crate::say_error(&mut session.ui, &error);
                bad = true;
            }
            other => other?,
        }
    }
    match bad {
        true => Err(CommandError::new("").into()),
        false => Ok(()),
    }
}

fn one(session: &mut Session, target: &Target, keep_going: bool) -> Outcome {
    let cannot = || format!("cannot read '{target}'");
    let pool = session.pool_for(&target.dataset, Need::Read)?;
    if super::cp::is_volume(&pool, target)? {
        let mut out = session.ui.raw_out()?;
        return super::cp::read_volume(&pool, target, keep_going, &mut out);
    }
    let fs = pool
        .file_system(&target.dataset)
        .or_cannot(|| format!("cannot open '{}'", target.dataset))?;
    let file = fs
        .resolve(&Credentials::root(), &target.path)
        .map_err(|e| missing(&cannot(), &e))?;
    if file.is_dir() {
        return Err(CommandError::new(format!("{}: it is a directory", cannot())).into());
    }
    let incomplete = |at: u64, error: &zuse::Error| {
        CommandError::new(format!(
            "'{target}' is incomplete: behind byte {at}: {error}"
        ))
    };
    let (size, block) = (file.size(), u64::from(file.dnode().block_size()).max(512));
    let mut out = session.ui.raw_out()?;
    let mut buffer = Vec::new();
    let (mut at, mut flaw, mut fine) = (0, None, false);
    while at < size {
        let step = if fine { block - at % block } else { CHUNK };
        buffer.resize(step.min(size - at) as usize, 0);
        let got = match fs.read(&file, at, &mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(e) if e.is(Errno::NOTDIR) || e.is(Errno::ISDIR) => {
                return Err(missing(&cannot(), &e));
            }
            // Block by block: the data before the bad block is written.
            Err(_) if !fine => {
                fine = true;
                continue;
            }
            Err(e) if !keep_going => return Err(incomplete(at, &e).into()),
            Err(e) => {
                flaw.get_or_insert((at, e));
                buffer.fill(0);
                buffer.len()
            }
        };
        out.write_all(buffer.get(..got).unwrap_or_default())?;
        at += got as u64;
        // Large steps again after the unreadable part.
        fine &= !at.is_multiple_of(CHUNK);
    }
    match flaw {
        None => Ok(()),
        Some((at, e)) => Err(incomplete(at, &e).into()),
    }
}

//! `zuse manifest`

use std::ffi::OsString;
use std::io::Write;
use zuse::tools::Layers as _;

use clap::Args;
use zuse_zpl::{Hashing, each_line};

use super::ls::place;
use crate::args::Devices;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::json::Json;
use crate::session::{Need, Session};
use crate::target::Target;

/// List everything in a dataset or snapshot as JSON, one object a line
///
/// Lines are sorted by the bytes of the path. Two trees are the same if their manifests are (but
/// for inode numbers, blocks and access times). Every file has its sha256; --sha256=none leaves it
/// out. A volume is one line. A file that cannot be read has a line with its path and an error; the
/// rest goes on, and the exit status is 1. No mount is needed.
#[derive(Args, Debug)]
pub struct Manifest {
    /// Checksums of all files (as without this option), of those up to 64 MiB, or of none
    #[arg(long, value_name = "all|small|none", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    sha256: Option<String>,
    /// Accepted, without effect: errors never end the list
    #[arg(short = 'k', long)]
    keep_going: bool,
    #[command(flatten)]
    devices: Devices,
    /// The dataset or snapshot
    #[arg(value_name = "DATASET[@SNAPSHOT]")]
    dataset: OsString,
}

impl Manifest {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let hashing = match self.sha256.as_deref() {
            Some("none") => Hashing::None,
            Some("small") => Hashing::Default,
            None | Some("all") => Hashing::All,
            Some(other) => {
                return Err(CommandError::usage(format!(
                    "--sha256={other}: 'all', 'small' or 'none' may be given"
                ))
                .into());
            }
        };
        list(session, &place(&self.dataset)?, hashing, false)
    }
}

/// Lists a dataset or snapshot. If there are several, each line has its name.
pub fn list(session: &mut Session, target: &Target, hashing: Hashing, named: bool) -> Outcome {
    let pool = session.pool_for(&target.dataset, Need::Read)?;
    let called = target.called.as_ref().unwrap_or(&target.dataset);
    let first = match named {
        true => format!("{{\"dataset\": {},", Json::Text(called.clone())),
        false => "{".to_owned(),
    };
    let cannot = || format!("cannot list '{called}'");
    let dataset = pool.dsl().dataset(&target.dataset).or_cannot(cannot)?;
    if dataset.is_volume().or_cannot(cannot)? {
        let volume = pool.volume(&target.dataset).or_cannot(cannot)?;
        let sum = match hashing {
            Hashing::None => None,
            _ => Some(volume.sha256().or_cannot(cannot)?),
        };
        let sum = sum.map_or_else(String::new, |s| format!(",\"sha256\": \"{s}\""));
        let size = volume.size().or_cannot(cannot)?;
        let line = format!("{first}\"volume\": true,\"size\": {size}{sum}}}");
        return Ok(session.ui.line(line)?);
    }
    let fs = pool.file_system(&target.dataset).or_cannot(cannot)?;
    let out = session.ui.out();
    let (mut failed, mut bad) = (Ok(()), 0u64);
    let listed = each_line(&fs, hashing, &mut |line| {
        let json = match &line {
            Ok(entry) => entry.to_json(),
            Err(unread) => unread.to_json(),
        };
        bad += u64::from(line.is_err());
        // Line breaks inside a string are escaped in JSON. So without the others there is one
        // object a line.
        let json = json.replace('\n', "");
        failed = writeln!(out, "{first}{}", json.strip_prefix('{').unwrap_or(&json));
        match &failed {
            Ok(()) => Ok(()),
            Err(e) => Err(zuse::Error::refused(
                zuse::Errno(e.raw_os_error().unwrap_or(5)),
                "output",
            )),
        }
    });
    failed.map_err(Stop::from)?;
    listed.or_cannot(cannot)?;
    let objects = match bad {
        0 => return Ok(()),
        1 => "1 object could",
        n => &format!("{n} objects could"),
    };
    let what = format!("the manifest of '{called}' is incomplete: {objects} not be read");
    Err(CommandError::new(what).into())
}

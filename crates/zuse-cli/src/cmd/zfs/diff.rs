//! `zfs diff`

use std::io::Write;
use zuse::tools::{Layer as _, Layers as _};

use clap::Args;
use zuse_zpl::{Change, ChangeKind};

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Show what changed between a snapshot and a later one, or the filesystem now
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Diff {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Show the type of each file
    #[arg(short = 'F')]
    types: bool,
    /// Fields separated by one tab, no arrows
    #[arg(short = 'H')]
    scripted: bool,
    /// Show when each file changed last
    #[arg(short = 't')]
    times: bool,
    /// Print names as they are, without escaping
    #[arg(short = 'h')]
    raw: bool,
    /// The earlier snapshot
    #[arg(value_name = "SNAPSHOT")]
    from: String,
    /// A later snapshot, or the filesystem or a clone; the snapshot's own filesystem by default
    #[arg(value_name = "SNAPSHOT|FILESYSTEM")]
    to: Option<String>,
}

/// Why a name is not one of a snapshot: it may be of nothing at all.
fn no_snapshot(session: &mut Session, name: &str) -> Stop {
    let mut there = || {
        if name.contains('#') {
            super::check_head(name)?;
        }
        let pool = session.pool_for(name, Need::Read)?;
        super::check_file_system(&pool, name, false)
    };
    let why = "missing '@' delimiter in snapshot name";
    let said = || CommandError::new(format!("Badly formed snapshot name {name}: {why}"));
    there().err().unwrap_or_else(|| said().into())
}

impl Diff {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let from = &self.from;
        let Some((dataset, _)) = from.split_once('@') else {
            return Err(no_snapshot(session, from));
        };
        let to = match self.to.as_deref() {
            None => dataset.to_owned(),
            Some(short) if short.starts_with('@') => format!("{dataset}{short}"),
            Some(full) => full.to_owned(),
        };
        let cannot = || format!("cannot diff '{from}' and '{to}'");
        let pool = session.pool_for(from, Need::Read)?;
        let old = pool
            .dataset(from)
            .or_cannot(|| format!("cannot open '{from}'"))?;
        let new = pool
            .dataset(&to)
            .or_cannot(|| format!("cannot open '{to}'"))?;
        if !pool
            .dsl()
            .descends_from(new.handle(), old.handle())
            .or_cannot(cannot)?
        {
            return Err(CommandError::new(format!(
                "Unable to obtain diffs: {from} is not an earlier snapshot from the same fs"
            ))
            .into());
        }
        let mut prefix = String::new();
        let head = to.split('@').next().unwrap_or(&to).to_owned();
        let mounted = pool.mounts().and_then(|m| m.mountpoint(&head));
        let point = match mounted {
            Some(path) => Some(path),
            None => pool
                .dataset(&head)
                .and_then(|d| d.property("mountpoint"))
                .or_cannot(cannot)?
                .map(|p| p.value)
                .filter(|p| p.starts_with('/')),
        };
        if let Some(point) = point {
            prefix.push_str(point.trim_end_matches('/'));
        }
        // The walk below reads what is on disk: changes of a mounted file system must be there
        // first.
        pool.sync().or_cannot(cannot)?;
        let (before, after) = (
            pool.file_system(from).or_cannot(cannot)?,
            pool.file_system(&to).or_cannot(cannot)?,
        );
        let ui = &mut session.ui;
        ui.style(self.scripted);
        let mut failed = None;
        let result = zuse_zpl::diff(&before, &after, &mut |change| {
            let line = self.line(&change, prefix.as_bytes());
            if let Err(stop) = ui.out().write_all(&line) {
                // The walk takes errors of the pool only. The real one is kept: a closed pipe ends
                // the command silently.
                failed = Some(stop);
                return Err(zuse::Error::refused(zuse::Errno::IO, "the output"));
            }
            Ok(())
        });
        if let Some(stop) = failed {
            return Err(stop.into());
        }
        result.or_cannot(cannot)
    }

    fn line(&self, change: &Change, prefix: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if self.times {
            let stamp = format!("{:10}.{:09}\t", change.ctime.secs, change.ctime.nanos);
            out.extend(stamp.as_bytes());
        }
        out.push(match change.kind {
            ChangeKind::Added => b'+',
            ChangeKind::Removed => b'-',
            ChangeKind::Modified | ChangeKind::Links(_) => b'M',
            ChangeKind::Renamed(_) => b'R',
        });
        out.push(b'\t');
        if self.types {
            out.push(type_letter(change.file));
            out.push(b'\t');
        }
        match &change.path {
            Some(path) => {
                self.name(&mut out, prefix);
                self.name(&mut out, path);
            }
            None => out.extend(b"(on_delete_queue)"),
        }
        match &change.kind {
            ChangeKind::Renamed(to) => {
                out.extend(if self.scripted { &b"\t"[..] } else { b" -> " });
                self.name(&mut out, prefix);
                self.name(&mut out, to);
            }
            ChangeKind::Links(more) => out.extend(format!("\t({more:+})").as_bytes()),
            _ => {}
        }
        out.push(b'\n');
        out
    }

    fn name(&self, out: &mut Vec<u8>, name: &[u8]) {
        for byte in name {
            if self.raw || (*byte > b' ' && *byte != b'\\' && *byte <= 0x7e) {
                out.push(*byte);
            } else {
                out.extend(format!("\\0{byte:03o}").as_bytes());
            }
        }
    }
}

fn type_letter(file: u32) -> u8 {
    match file >> 12 {
        0o06 => b'B',
        0o02 => b'C',
        0o04 => b'/',
        0o01 => b'|',
        0o12 => b'@',
        0o14 => b'=',
        _ => b'F',
    }
}

//! `zuse stream diff`: what changed between two snapshots in streams.

use std::ffi::OsString;

use clap::Args;
use zuse::{STREAM_DATASET, STREAM_POOL};

use super::{Sources, verb};
use crate::error::{CommandError, Outcome};
use crate::session::Session;

/// Show what changed between two snapshots of streams, as 'zuse zfs diff' does
///
/// By default between the first and the last snapshot; the last stream's '@SNAPSHOT' names the
/// later one.
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
    /// The earlier snapshot
    #[arg(long, value_name = "SNAPSHOT")]
    from: Option<String>,
    #[command(flatten)]
    sources: Sources,
}

impl Diff {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        let (later, all) = self.sources.open_all(session, STREAM_POOL)?;
        let dataset = later.split('@').next().unwrap_or(&later).to_owned();
        let own: Vec<&String> = all
            .iter()
            .filter(|s| s.split('@').next() == Some(dataset.as_str()))
            .collect();
        let wanted = self.from.as_deref().map(|w| w.trim_start_matches('@'));
        let earlier = match wanted {
            None => own.first(),
            Some(w) => own.iter().find(|s| s.split('@').nth(1) == Some(w)),
        };
        let Some(earlier) = earlier.filter(|e| ***e != later).map(|e| (*e).clone()) else {
            return Err(
                CommandError::new("the streams hold no two snapshots to compare")
                    .hint(format!("they have: {}", all.join(" ")))
                    .into(),
            );
        };
        // Paths are those in the stream, not below a place where nobody mounts it.
        let words = |w: &[&str]| w.iter().map(OsString::from).collect::<Vec<_>>();
        verb(
            session,
            &words(&["zfs", "set", "mountpoint=none", STREAM_DATASET]),
        )?;
        let mut flags = vec!["zfs", "diff"];
        for (set, flag) in [
            (self.types, "-F"),
            (self.scripted, "-H"),
            (self.times, "-t"),
        ] {
            if set {
                flags.push(flag);
            }
        }
        flags.extend([earlier.as_str(), later.as_str()]);
        verb(session, &words(&flags))
    }
}

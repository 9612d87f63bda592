//! `zuse stream diff`: what changed between two snapshots in streams.

use std::ffi::OsString;

use clap::Args;
use zuse::STREAM_POOL;

use super::sources::{Sources, names};
use super::verb;
use crate::error::{CommandError, Outcome};
use crate::session::Session;

/// Show what changed between two snapshots of streams, as 'zuse zfs diff' does
///
/// By default the first and the last snapshot are compared; the last stream's '@SNAPSHOT' names the
/// later one. In a package all datasets that have both are compared. Paths are those of one tree.
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
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let (members, all) = self.sources.open_all(session, STREAM_POOL)?;
        let wanted = self.from.as_deref().map(|w| w.trim_start_matches('@'));
        let mut compared = 0;
        for later in members.all().iter().filter(|m| !m.is_volume) {
            let (dataset, _) = later.snapshot.split_once('@').unwrap_or_default();
            let mut own = all.iter().filter_map(|s| s.to.split_once('@'));
            let earlier = own.find(|(d, s)| *d == dataset && wanted.is_none_or(|w| w == *s));
            let Some((_, earlier)) = earlier else {
                continue;
            };
            let earlier = format!("{dataset}@{earlier}");
            if earlier != later.snapshot {
                compared += 1;
                self.one(session, &later.below, (&earlier, &later.snapshot))?;
            }
        }
        match compared {
            0 => Err(
                CommandError::new("the streams hold no two snapshots to compare")
                    .hint(format!("they have: {}", names(&all)))
                    .into(),
            ),
            _ => Ok(()),
        }
    }

    /// Compares two snapshots of a dataset.
    fn one(&self, session: &mut Session, below: &str, (a, b): (&str, &str)) -> Outcome {
        let words = |w: &[&str]| w.iter().map(OsString::from).collect::<Vec<_>>();
        // Paths are those in the stream, without a mount point in front.
        let place = match below {
            "" => "mountpoint=none".to_owned(),
            below => format!("mountpoint=/{below}"),
        };
        let dataset = b.split('@').next().unwrap_or(b);
        verb(session, &words(&["zfs", "set", &place, dataset]))?;
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
        flags.extend([a, b]);
        verb(session, &words(&flags))
    }
}

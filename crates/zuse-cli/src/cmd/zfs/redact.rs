//! `zfs redact`

use clap::Args;
use zuse::Errno;
use zuse::tools::Layers as _;

use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};

/// List the blocks of a snapshot that other snapshots have changed, so that a send can leave them
/// out
///
/// The list is stored as a bookmark. It has the blocks of files and volumes that every redaction
/// snapshot has changed or freed. 'zfs send --redact BOOKMARK' leaves them out. Redaction snapshots
/// are later snapshots, or snapshots of clones.
#[derive(Args, Debug)]
pub struct Redact {
    /// The snapshot to be sent
    #[arg(value_name = "SNAPSHOT")]
    snapshot: String,
    /// Name of the new bookmark, without the dataset
    #[arg(value_name = "BOOKMARK")]
    bookmark: String,
    /// Snapshots in which the data to hide was changed
    #[arg(value_name = "REDACTION_SNAPSHOT", required = true)]
    snapshots: Vec<String>,
}

impl Redact {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.snapshot;
        let Some((dataset, _)) = name.split_once('@') else {
            return Err(CommandError::new(format!("'{name}' is not a snapshot")).into());
        };
        let fails = |code: u8, text: String| -> Outcome {
            let error = CommandError::new(text);
            Err(CommandError { code, ..error }.into())
        };
        let own = &self.bookmark;
        if own.contains('#') {
            return fails(
                22,
                "redaction bookmark name must not contain '#'".to_owned(),
            );
        }
        let bookmark = format!("{dataset}#{own}");
        let pool = session.pool_for(name, Need::Write)?;
        let whole = |short: &String| match short.strip_prefix('@') {
            Some(own) => format!("{dataset}@{own}"),
            None => short.clone(),
        };
        let snaps: Vec<String> = self.snapshots.iter().map(whole).collect();
        for snap in std::iter::once(name).chain(&snaps) {
            if !snap.contains('@') || pool.dsl().dataset(snap).is_err() {
                return fails(2, format!("provided snapshot {snap} does not exist"));
            }
        }
        let done = pool.redact(name, &bookmark, &snaps);
        match done {
            Err(e) if e.is(Errno::EXIST) => fails(
                17,
                format!("specified redaction bookmark ({own}) provided already exists"),
            ),
            Err(e) if e.is(Errno::XDEV) => fails(
                22,
                "redaction snapshot must be descendent of snapshot being redacted".to_owned(),
            ),
            other => other.or_cannot(|| format!("cannot redact '{name}'")),
        }
    }
}

//! Streams that a command line names, and the pool into which they are received.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use zuse::tools::Layers as _;
use zuse::{Pool, ReceivedSnapshot, STREAM_DATASET, STREAM_POOL};

use super::members::{Choice, Members};
use crate::cmd::zstream::input;
use crate::error::{CommandError, Outcome, explain};
use crate::session::Session;

/// Streams, and where to unpack them.
#[derive(Args, Debug)]
pub struct Sources {
    /// Put the temporary file into this directory
    #[arg(long, value_name = "DIR")]
    pub tmp: Option<PathBuf>,
    /// Only this dataset of a package: its name in the stream, or its path below the top. With
    /// '@SNAPSHOT': that snapshot of it
    #[arg(long, value_name = "NAME")]
    pub dataset: Option<String>,
    /// A full stream and its incrementals, in order. The last may name a snapshot, and in a package
    /// a descendant (FILE@/CHILD@SNAPSHOT). '-' is standard input
    #[arg(required = true, value_name = "STREAM[@SNAPSHOT]")]
    pub streams: Vec<PathBuf>,
}

/// Whether the space for the received stream was used up.
fn is_room(error: &zuse::Error) -> bool {
    let of_host = match error {
        zuse::Error::Suspended { .. } => true,
        // Its first blocks did not fit already.
        zuse::Error::Device { errno, .. } => {
            matches!(*errno, zuse::Errno::NOSPC | zuse::Errno::DQUOT)
        }
        _ => false,
    };
    of_host || error.is(zuse::Errno::NOSPC)
}

fn no_room(folder: &Path) -> String {
    format!("no room in '{}' to unpack it", folder.display())
}

/// Why nothing of a stream can be read.
fn unread(error: &zuse::Error, folder: &Path) -> CommandError {
    let cannot = "cannot read stream";
    if error.is(zuse::Errno::NOENT) && matches!(error, zuse::Error::Refused { .. }) {
        let what = "it is an incremental one, and what it builds on is not there";
        return CommandError::new(format!("{cannot}: {what}"))
            .hint("name the full stream before it, then the incremental ones in order");
    }
    if let zuse::Error::Refused { what, .. } = error
        && error.is_for(zuse::Refusal::NoStream)
    {
        return CommandError::of_lines(&format!("{cannot}: {what}"));
    }
    match is_room(error) {
        true => CommandError::new(format!("{cannot}: {}", no_room(folder)))
            .hint("--tmp DIR unpacks it elsewhere"),
        false => explain(cannot, error, false),
    }
}

impl Sources {
    /// Receives the streams. Returns the datasets to be read.
    pub fn open(&self, session: &mut Session) -> Outcome<Members> {
        Ok(self.open_all(session, STREAM_POOL)?.0)
    }

    /// Receives the streams into a pool of that name. Returns the datasets to be read, and all
    /// snapshots.
    pub fn open_all(
        &self,
        session: &mut Session,
        pool: &str,
    ) -> Outcome<(Members, Vec<ReceivedSnapshot>)> {
        let mut choice = Choice::default();
        let mut inputs: Vec<Box<dyn Read>> = Vec::new();
        for path in &self.streams {
            let (file, own) = split(session, path);
            if let Some(own) = own {
                choice = Choice::parse(&own);
            }
            inputs.push(input(session, Some(&file))?);
        }
        if let Some(dataset) = &self.dataset {
            let named = Choice::parse(dataset);
            choice = Choice {
                snapshot: named.snapshot.or(choice.snapshot),
                dataset: named.dataset,
            };
        }
        let folder = match &self.tmp {
            Some(dir) => session.path(dir),
            None => std::env::temp_dir(),
        };
        let env = session.environment()?;
        let top = top_of(pool);
        let (pool, snapshots, flaw) = Pool::of_streams(env, pool, &folder, inputs)
            .map_err(|error| unread(&error, &folder))?;
        session.adopt(pool.clone());
        if let Some(flaw) = flaw {
            session.flawed = true;
            let ui = &mut session.ui;
            match is_room(&flaw) {
                true => ui.say(format!("the stream is not whole: {}", no_room(&folder))),
                false => ui.say(format!("the stream is not whole: {flaw}")),
            }
            ui.say("this is what it holds; what it does not hold is an error");
        }
        let is_volume = |name: &str| {
            let entry = pool.dsl().dataset(name);
            entry.and_then(|d| d.is_volume()).unwrap_or(false)
        };
        let members = Members::of(&top, &snapshots, &choice, is_volume);
        let mut members = members.ok_or_else(|| not_there(&choice, &snapshots))?;
        if session.flawed {
            let without_root = |name: &str| {
                let root = pool.file_system(name).and_then(|fs| fs.root().map(drop));
                matches!(root, Err(zuse::Error::Corrupt { .. }))
            };
            let none = "the stream ends before the root directory";
            let gone = members.drop_if(|m| !m.is_volume && without_root(&m.snapshot));
            if members.all().is_empty() {
                return Err(CommandError::new(format!("cannot read stream: {none}")).into());
            }
            for name in gone {
                session
                    .ui
                    .say(format!("nothing of '{name}' can be read: {none}"));
            }
        }
        Ok((members, snapshots))
    }
}

/// The error if no stream has what was requested.
fn not_there(choice: &Choice, snapshots: &[ReceivedSnapshot]) -> CommandError {
    let what = match (&choice.dataset, &choice.snapshot) {
        (None, snapshot) => format!("snapshot '{}'", snapshot.as_deref().unwrap_or_default()),
        (Some(dataset), None) => format!("dataset '{dataset}'"),
        (Some(dataset), Some(snapshot)) => format!("snapshot '{dataset}@{snapshot}'"),
    };
    CommandError::new(format!("there is no {what} in the stream"))
        .hint(format!("it has: {}", names(snapshots)))
}

/// The names of the snapshots in the stream.
pub fn names(snapshots: &[ReceivedSnapshot]) -> String {
    let names: Vec<&str> = snapshots.iter().map(|s| s.from.as_str()).collect();
    names.join(" ")
}

/// The dataset of a stream's top in a pool of that name.
pub fn top_of(pool: &str) -> String {
    STREAM_DATASET.replacen(STREAM_POOL, pool, 1)
}

/// A file, and the choice behind its name: `@SNAPSHOT`, or `/CHILD@SNAPSHOT` of a dataset below the
/// top.
fn split(session: &Session, path: &Path) -> (PathBuf, Option<String>) {
    if session.path(path).exists() {
        return (path.to_owned(), None);
    }
    let text = path.to_string_lossy();
    let child = text.find("@/").map(|at| text.split_at(at));
    if let Some((file, own)) = child.filter(|(file, _)| session.path(file.as_ref()).exists()) {
        return (
            PathBuf::from(file),
            own.strip_prefix('@').map(str::to_owned),
        );
    }
    match text.rsplit_once('@') {
        Some((file, own)) => (PathBuf::from(file), Some(format!("@{own}"))),
        None => (path.to_owned(), None),
    }
}

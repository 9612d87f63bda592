//! `zfs bookmark`

use clap::Args;
use zuse::tools::Layers as _;
use zuse::{Errno, Pool};

use crate::error::{CommandError, Explain, Meaning, Outcome, Stop, explain};
use crate::session::{Need, Session};
use crate::target::pool_of;

/// Make a bookmark of a snapshot, from which incremental streams can be sent
///
/// One of the two names may be shortened to @SNAPSHOT or #BOOKMARK if the other one is complete.
#[derive(Args, Debug)]
pub struct Bookmark {
    /// Also for the snapshots of that name of all descendants
    #[arg(short)]
    recursive: bool,
    /// A snapshot, or another bookmark
    #[arg(value_name = "SNAPSHOT|BOOKMARK")]
    source: String,
    /// The new bookmark
    #[arg(value_name = "NEWBOOKMARK")]
    bookmark: String,
}

impl Bookmark {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let (mut source, mut bookmark) = (self.source.clone(), self.bookmark.clone());
        if !source.contains(['@', '#']) {
            return Err(CommandError::usage(format!(
                "invalid source name '{source}': must contain a '@' or '#'"
            ))
            .into());
        }
        if !bookmark.contains('#') {
            return Err(CommandError::usage(format!(
                "invalid bookmark name '{bookmark}': must contain a '#'"
            ))
            .into());
        }
        let dataset = |name: &str| name.split(['@', '#']).next().unwrap_or("").to_owned();
        if source.starts_with(['@', '#']) {
            source = format!("{}{source}", dataset(&bookmark));
        }
        if bookmark.starts_with('#') {
            bookmark = format!("{}{bookmark}", dataset(&source));
        }
        let cannot = format!("cannot create bookmark '{bookmark}'");
        if pool_of(&source) != pool_of(&bookmark) {
            return Err(
                CommandError::new(format!("{cannot}: bookmark is in a different pool")).into(),
            );
        }
        let wrong = |stop| match stop {
            Stop::Failed(e) if e.meaning == Meaning::NoSuchPool => {
                CommandError::usage(e.message).into()
            }
            Stop::Failed(e) => CommandError { code: 2, ..e }.into(),
            stop => stop,
        };
        let pool = session.pool_for(&source, Need::Write).map_err(wrong)?;
        pool.dsl()
            .entry(&source)
            .or_cannot(|| format!("cannot open '{source}'"))
            .map_err(|stop| match stop {
                Stop::Failed(e) => CommandError { code: 2, ..e }.into(),
                stop => stop,
            })?;
        if self.recursive {
            // All are checked before the first is made: a name in use should not leave half of
            // them.
            for (source, bookmark) in below(&pool, &source, &bookmark)? {
                make(&pool, &source, &bookmark)?;
            }
        } else {
            make(&pool, &source, &bookmark)?;
        }
        session.log(&pool);
        Ok(())
    }
}

/// Makes one.
fn make(pool: &Pool, source: &str, bookmark: &str) -> Outcome {
    let cannot = format!("cannot create bookmark '{bookmark}'");
    pool.bookmark(source, bookmark).map_err(|e| {
        if e.is(Errno::EXIST) {
            CommandError::new(format!("{cannot}: bookmark exists"))
        } else if e.is(Errno::NOTSUP) {
            CommandError::new(format!("{cannot}: bookmark feature not enabled"))
        } else {
            explain(&cannot, &e, false)
        }
    })?;
    Ok(())
}

/// The snapshot and those of its name below it, each with its bookmark. Existing bookmarks are
/// skipped.
fn below(pool: &Pool, source: &str, bookmark: &str) -> Outcome<Vec<(String, String)>> {
    let (Some((dataset, snapshot)), Some((of, mark))) =
        (source.split_once('@'), bookmark.split_once('#'))
    else {
        let what = format!("invalid source name '{source}': must contain a '@'");
        return Err(CommandError::usage(what).into());
    };
    if of != dataset {
        let what = "with -r, snapshot and bookmark must be of the same dataset";
        return Err(CommandError::usage(what).into());
    }
    let mut found = Vec::new();
    let mut names = vec![dataset.to_owned()];
    while let Some(name) = names.pop() {
        let cannot = || format!("cannot open '{name}'");
        names.extend(pool.children(&name).or_cannot(cannot)?);
        let snapshot = format!("{name}@{snapshot}");
        if !pool.snapshots(&name).or_cannot(cannot)?.contains(&snapshot) {
            continue;
        }
        let bookmark = format!("{name}#{mark}");
        if pool.bookmarks(&name).or_cannot(cannot)?.contains(&bookmark) {
            let what = format!("cannot create bookmark '{bookmark}': bookmark exists");
            return Err(CommandError::new(what).into());
        }
        found.push((snapshot, bookmark));
    }
    Ok(found)
}

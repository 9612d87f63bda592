//! Which dataset a path of the host belongs to, for `zfs list .` and `zfs get used /tank/home`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{CommandError, Outcome};
use crate::orphan::{absolute, unescaped};
use crate::query::{Answer, Question};
use crate::session::Session;
use crate::target::Target;

/// Whether a word is a path, not the name of a dataset.
pub fn is_path(word: &str) -> bool {
    word.starts_with('/')
        || matches!(word, "." | "..")
        || word.starts_with("./")
        || word.starts_with("../")
}

/// The dataset that a path belongs to.
///
/// # Errors
/// No dataset is mounted there.
pub fn dataset_at(session: &mut Session, word: &str) -> Outcome<String> {
    let path = absolute(&session.path(Path::new(word)));
    Ok(located(session, word, &path)?.0)
}

/// The place in a dataset that a path of the host leads to.
///
/// # Errors
/// There is nothing at that path, or no dataset is mounted there.
pub fn target_at(session: &mut Session, word: &str) -> Outcome<Target> {
    let path = absolute(&session.path(Path::new(word)));
    let (dataset, top) = located(session, word, &path)?;
    let below = path.strip_prefix(&top).unwrap_or(Path::new(""));
    Ok(Target {
        dataset,
        path: below.as_os_str().as_bytes().to_vec(),
        called: None,
    })
}

/// Dataset and directory of its root.
fn located(session: &mut Session, word: &str, path: &Path) -> Outcome<(String, PathBuf)> {
    let Some((source, mount)) = mount_of(path) else {
        let what = match path.symlink_metadata() {
            Err(e) => format!(
                "cannot open '{word}': {}",
                crate::error::host_error_text(&e)
            ),
            Ok(_) => format!("'{word}': not a ZFS filesystem"),
        };
        return Err(CommandError::new(what).into());
    };
    // Children appear inside the mount, each at its own mountpoint.
    let question = Question::file_systems(&source, &["mountpoint", "mounted"]);
    let Answer::Datasets(rows) = question.ask(session)? else {
        return Ok((source, mount));
    };
    let value = |row: usize, name: &str| rows[row].cell(name).and_then(|c| c.value.as_deref());
    let top = rows.iter().position(|r| r.name == source);
    let top = top
        .and_then(|row| value(row, "mountpoint"))
        .map(PathBuf::from);
    let inside = |row: usize| {
        let place = Path::new(value(row, "mountpoint")?);
        let below = place.strip_prefix(top.as_deref()?).ok()?;
        let dir = mount.join(below);
        let there = value(row, "mounted") == Some("yes") && path.starts_with(&dir);
        there.then_some((below.components().count(), row, dir))
    };
    let deepest = (0..rows.len()).filter_map(inside).max();
    Ok(match deepest {
        Some((_, row, dir)) => (rows[row].name.clone(), dir),
        None => (source, mount),
    })
}

/// Source and directory of the Zuse mount that contains a path.
pub fn mount_of(path: &Path) -> Option<(String, PathBuf)> {
    let table = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let rows = table.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (source, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
        let dir = PathBuf::from(unescaped(dir));
        path.starts_with(&dir)
            .then(|| (dir, kind == "fuse.zuse", unescaped(source)))
    });
    // The topmost mount on the deepest directory; `max_by_key` takes the last of equals.
    let (dir, ours, source) = rows.max_by_key(|(dir, ..)| dir.components().count())?;
    ours.then_some((source, dir))
}

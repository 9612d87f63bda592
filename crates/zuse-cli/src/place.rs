//! Which dataset a path of the host lies in: `zfs list .`, `zfs get used /tank/home`.

use std::path::{Path, PathBuf};

use crate::error::{CommandError, Outcome};
use crate::orphan::{absolute, unescaped};
use crate::query::{Answer, Question};
use crate::session::Session;

/// Whether a word is a path and no dataset's name.
pub fn is_path(word: &str) -> bool {
    word.starts_with('/')
        || matches!(word, "." | "..")
        || word.starts_with("./")
        || word.starts_with("../")
}

/// The dataset that a path lies in.
///
/// # Errors
/// No dataset is mounted there.
pub fn dataset_at(session: &mut Session, word: &str) -> Outcome<String> {
    let path = absolute(&session.path(Path::new(word)));
    let Some((source, mount)) = mount_of(&path) else {
        return Err(
            CommandError::new(format!("cannot open '{word}': not a ZFS filesystem")).into(),
        );
    };
    // Children appear inside of the mount, each at its own mountpoint.
    let question = Question::file_systems(&source, &["mountpoint", "mounted"]);
    let Answer::Datasets(rows) = question.ask(session)? else {
        return Ok(source);
    };
    let value = |row: usize, name: &str| rows[row].cell(name).and_then(|c| c.value.as_deref());
    let top = rows.iter().position(|r| r.name == source);
    let top = top
        .and_then(|row| value(row, "mountpoint"))
        .map(PathBuf::from);
    let inside = |row: usize| {
        let place = Path::new(value(row, "mountpoint")?);
        let below = place.strip_prefix(top.as_deref()?).ok()?;
        let there = value(row, "mounted") == Some("yes") && path.starts_with(mount.join(below));
        there.then_some((below.components().count(), row))
    };
    let deepest = (0..rows.len()).filter_map(inside).max();
    Ok(deepest.map_or(source, |(_, row)| rows[row].name.clone()))
}

/// Source and directory of the mount of ours that a path lies in.
fn mount_of(path: &Path) -> Option<(String, PathBuf)> {
    let table = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let rows = table.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (source, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
        let dir = PathBuf::from(unescaped(dir));
        path.starts_with(&dir)
            .then(|| (dir, kind == "fuse.zuse", unescaped(source)))
    });
    // The one on top at the deepest directory; `max_by_key` takes the last of equals.
    let (dir, ours, source) = rows.max_by_key(|(dir, ..)| dir.components().count())?;
    ours.then_some((source, dir))
}

//! Names of datasets: checks, and splitting into path, snapshot, bookmark.

use zuse_base::{Errno, Error, Result};

/// Longest full name, without NUL.
const NAME_MAX: usize = 255;
/// Most components of a path.
const DEPTH_MAX: usize = 50;

fn refuse(errno: Errno, name: &str, why: &str) -> Error {
    Error::refused(errno, format!("'{name}': {why}"))
}

fn check_component(full: &str, part: &str, internal: bool) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c) || internal && c == '%';
    if part.is_empty() {
        return Err(refuse(Errno::INVAL, full, "empty component in name"));
    }
    if let Some(c) = part.chars().find(|c| !fine(*c)) {
        return Err(refuse(
            Errno::INVAL,
            full,
            &format!("invalid character '{c}' in name"),
        ));
    }
    if part == "." || part == ".." {
        return Err(refuse(
            Errno::INVAL,
            full,
            "self or parent reference in name",
        ));
    }
    Ok(())
}

/// Checks the full name of a new filesystem or volume.
pub(crate) fn check_dataset(name: &str) -> Result<()> {
    if name.len() > NAME_MAX || name.split('/').count() > DEPTH_MAX {
        return Err(refuse(
            Errno::NAMETOOLONG,
            name,
            "name is too long or too deep",
        ));
    }
    if name.contains(['@', '#']) {
        return Err(refuse(
            Errno::INVAL,
            name,
            "a filesystem's name has no '@' or '#'",
        ));
    }
    name.split('/')
        .try_for_each(|part| check_component(name, part, false))
}

/// Checks a snapshot's or bookmark's own name, the part behind `@` or `#`.
pub(crate) fn check_snapshot(dataset: &str, snap: &str) -> Result<()> {
    let full = format!("{dataset}@{snap}");
    if full.len() > NAME_MAX {
        return Err(refuse(Errno::NAMETOOLONG, &full, "name is too long"));
    }
    check_component(&full, snap, true)
}

/// Parent and last component.
pub(crate) fn split_last(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('/')
}

/// Dataset and snapshot parts.
pub(crate) fn split_snapshot(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((ds, snap)) => (ds, Some(snap)),
        None => (name, None),
    }
}

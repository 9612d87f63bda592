//! Whether only this user can change a directory.
//!
//! A user who may write to the directory of the sockets, or to one above it, can put a socket of
//! their own there. So a state directory is refused if another user owns it or may change it.
//! Directories of root are trusted like this user's.
//!
//! - The directory itself: owned by this user, and not writable for others.
//! - Its parents: no other user may rename or remove an entry. A sticky bit (`/tmp`) ensures that,
//!   and so does a group with this user as its only member. An owner unknown to this user namespace
//!   (a directory from outside a container) is accepted.
//! - Links on the way: ours or root's.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The owner of files from outside a user namespace.
const UNKNOWN: u32 = 65534;
const STICKY: u32 = 0o1000;

/// Checks an existing directory. `Err` is a sentence that says why it cannot be trusted.
pub fn check(dir: &Path) -> Result<(), String> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let cannot = |path: &Path, e: io::Error| format!("'{}': {e}", path.display());
    // The directories along the path.
    let mut way = PathBuf::new();
    // Before links are followed: the owner of a link decides where it leads.
    for part in dir.components() {
        way.push(part);
        let meta = way.symlink_metadata().map_err(|e| cannot(&way, e))?;
        if meta.is_symlink() && !is_ours(&meta, user) {
            return Err(format!(
                "'{}' is a link of user {}",
                way.display(),
                meta.uid()
            ));
        }
    }
    // Where it leads.
    let real = dir.canonicalize().map_err(|e| cannot(dir, e))?;
    for (depth, place) in real.ancestors().enumerate() {
        let meta = place.metadata().map_err(|e| cannot(place, e))?;
        let shown = place.display();
        if !meta.is_dir() {
            return Err(format!("'{shown}' is no directory"));
        }
        let outside = depth > 0 && meta.uid() == UNKNOWN;
        let owned = match depth {
            0 => meta.uid() == user,
            _ => is_ours(&meta, user) || outside,
        };
        if !owned {
            return Err(format!("'{shown}' belongs to user {}", meta.uid()));
        }
        if may_be_changed(&meta, depth, group) {
            let mode = meta.mode() & 0o7777;
            return Err(format!("others may write to '{shown}' (mode {mode:04o})"));
        }
    }
    Ok(())
}

fn is_ours(meta: &Metadata, user: u32) -> bool {
    meta.uid() == user || meta.uid() == 0
}

fn may_be_changed(meta: &Metadata, depth: usize, group: u32) -> bool {
    let mode = meta.mode();
    if depth == 0 {
        return mode & 0o022 != 0;
    }
    let of_group = mode & 0o020 != 0 && meta.gid() != group && meta.gid() != 0;
    mode & STICKY == 0 && (mode & 0o002 != 0 || of_group)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    }

    #[test]
    fn a_directory_is_ours_if_nobody_else_can_change_it_or_the_way_to_it() {
        let place = tempfile::tempdir().expect("a directory");
        let above = place.path().join("above");
        let dir = above.join("zuse");
        fs::create_dir_all(&dir).expect("mkdir");
        mode(&above, 0o755);
        mode(&dir, 0o700);
        assert_eq!(check(&dir), Ok(()));
        let link = place.path().join("link");
        symlink(&above, &link).expect("a link of ours");
        assert_eq!(check(&link.join("zuse")), Ok(()));
        for (path, bits) in [
            (&dir, 0o770),
            (&dir, 0o702),
            (&dir, 0o1777),
            (&above, 0o757),
        ] {
            let before = path.metadata().expect("stat").mode();
            mode(path, bits);
            let why = check(&dir).expect_err("others may write");
            assert!(why.contains("others may write"), "{bits:o}: {why}");
            mode(path, before);
        }
        mode(&above, 0o1777);
        assert_eq!(check(&dir), Ok(()));
        assert!(check(&above.join("none")).is_err());
    }
}

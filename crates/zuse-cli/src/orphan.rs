//! Mounts whose process was killed or has crashed.
//!
//! Every access to such a mount fails with ENOTCONN, its directory included, until it is unmounted.
//! It keeps no pool in use. No acknowledged write is lost.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::error::{CommandError, Outcome};

/// A mount of another process may be suspended and not answer. Then it is not dead.
const STATFS_TIMEOUT: Duration = Duration::from_secs(2);

/// A mount without a process.
pub struct Orphan {
    /// The dataset.
    pub source: String,
    /// Where it is mounted.
    pub dir: PathBuf,
}

/// The dead mounts that match, by dataset and directory.
pub fn orphans(fits: impl Fn(&str, &Path) -> bool) -> Vec<Orphan> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let rows = table.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (source, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "fuse.zuse").then(|| (unescaped(source), PathBuf::from(unescaped(dir))))
    });
    rows.filter(|(source, dir)| fits(source, dir) && is_dead(dir))
        .map(|(source, dir)| Orphan { source, dir })
        .collect()
}

/// Decodes a field of the kernel's mount table.
pub fn unescaped(field: &str) -> String {
    field
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// The absolute path. If the last component cannot be resolved it is kept: it may be a dead mount.
pub fn absolute(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

fn is_dead(dir: &Path) -> bool {
    let (send, receive) = mpsc::channel();
    let dir = dir.to_owned();
    let thread = std::thread::Builder::new().spawn(move || {
        // Attributes may come from the kernel's cache. The free space always comes from the
        // process.
        let _ = send.send(rustix::fs::statfs(&dir).err());
    });
    // The thread may stay behind: a mount of a suspended pool answers later or never.
    thread.is_ok() && receive.recv_timeout(STATFS_TIMEOUT) == Ok(Some(rustix::io::Errno::NOTCONN))
}

impl Orphan {
    /// Removes the mount.
    ///
    /// # Errors
    /// It belongs to another user.
    pub fn take_away(&self) -> Outcome {
        use rustix::mount::{UnmountFlags, unmount};
        if unmount(&self.dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {
            return Ok(());
        }
        // The helper may unmount what it has mounted for this user.
        let helper = Command::new("fusermount3")
            .args(["-u", "-z", "--"])
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match helper {
            Ok(status) if status.success() => Ok(()),
            _ => Err(CommandError::new(format!(
                "cannot unmount '{}': its process has ended, and it cannot be taken away",
                self.dir.display()
            ))
            .hint("it belongs to another user: 'umount -l DIR' as root takes it away")
            .into()),
        }
    }
}

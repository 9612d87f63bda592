//! Copies of a mount in other mount namespaces.
//!
//! A container or service that starts while a mount exists gets a copy of it. Unmounting here
//! leaves that copy, and with it the session. Often no process can unmount it. So the kernel is
//! made to write the dirty data of the copy, and then the connection is aborted. Processes that use
//! the copy get ENOTCONN.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How long the kernel may take to write the dirty pages of a copy.
const WRITING: Duration = Duration::from_secs(10);

/// A process in a namespace that has a copy.
#[derive(Debug)]
pub(crate) struct CopyHolder {
    pid: u32,
    name: String,
}

impl std::fmt::Display for CopyHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// One process for each other namespace that has a mount of this device (`major:minor`), as far as
/// this user may see it.
pub(crate) fn copy_holders(device: &str) -> Vec<CopyHolder> {
    let mut known = BTreeSet::new();
    known.extend(fs::read_link("/proc/self/ns/mnt"));
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let Ok(namespace) = fs::read_link(process.path().join("ns/mnt")) else {
            continue;
        };
        // One process for each namespace is enough, and /proc may list thousands.
        if !known.insert(namespace) {
            continue;
        }
        let table = fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
        if table
            .lines()
            .any(|line| line.split(' ').nth(2) == Some(device))
        {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(CopyHolder {
                pid,
                name: name.trim().to_owned(),
            });
        }
    }
    found
}

/// Makes the kernel write data changed through a copy. `path` is where the mount was.
pub(crate) fn write_out(holder: &CopyHolder, path: &Path) {
    let below = path.strip_prefix("/").unwrap_or(path);
    let there = Path::new("/proc")
        .join(holder.pid.to_string())
        .join("root")
        .join(below);
    let (send, receive) = mpsc::channel();
    // On a thread that may be left behind: the session that has to answer may be stuck.
    let asked = std::thread::Builder::new().spawn(move || {
        if let Ok(dir) = fs::File::open(&there) {
            let _ = rustix::fs::syncfs(&dir);
        }
        let _ = send.send(());
    });
    if asked.is_ok() {
        let _ = receive.recv_timeout(WRITING);
    }
}

/// Aborts the connection of a device. False if the kernel's control files cannot be accessed.
pub(crate) fn cut(device: &str) -> bool {
    let Some(number) = device.split(':').nth(1) else {
        return false;
    };
    let known = fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1").is_ok();
    known || cut_without_mount(number).is_ok()
}

/// The same if the kernel's control files are not mounted: root can access them through a detached
/// mount.
fn cut_without_mount(number: &str) -> std::io::Result<()> {
    use rustix::fs::{Mode, OFlags, openat};
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
    };
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let root = fsmount(&context, flags, MountAttrFlags::empty())?;
    let control = format!("{number}/abort");
    let file = openat(
        &root,
        control,
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::io::write(&file, b"1")?;
    Ok(())
}

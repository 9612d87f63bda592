//! `zuse umount`

use std::ffi::OsString;

use clap::Args;

use crate::error::{CommandError, Outcome, Stop};
use crate::orphan::{self, unescaped};
use crate::place::{is_path, mount_of};
use crate::session::{Need, Session};
use crate::target::pool_of;
use crate::wire;

/// Unmount a dataset
#[derive(Args, Debug)]
pub struct Umount {
    /// Even if it is in use
    #[arg(short)]
    force: bool,
    /// The dataset, or the directory where it is mounted
    #[arg(value_name = "DATASET|DIR")]
    what: OsString,
}

impl Umount {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        // A directory may be named relative to the working directory.
        let path = session.path(self.what.as_ref());
        let is_mount = source_of(&crate::orphan::absolute(&path)).is_some();
        match is_mount {
            true => unmount(session, path.as_os_str(), self.force),
            false => unmount(session, &self.what, self.force),
        }
    }
}

/// Unmounts here or in the process that holds the mount.
pub fn unmount(session: &mut Session, what: &std::ffi::OsStr, force: bool) -> Outcome {
    let text = what.to_string_lossy().into_owned();
    let is_path = is_path(&text);
    let path = session.path(what.as_ref());
    let path = orphan::absolute(&path);
    if let Some(holder) = session.holder.clone() {
        let done =
            holder.unmount(what, force)? || is_path && holder.unmount(path.as_os_str(), force)?;
        for message in holder.take_messages() {
            session.ui.say(message);
        }
        if done {
            return Ok(());
        }
        return Err(not_mounted(session, &text, is_path).into());
    }
    // A mount whose process has ended has no holder.
    let gone = orphan::orphans(|source, dir| source == text || dir == path);
    if !gone.is_empty() {
        return gone.iter().try_for_each(orphan::Orphan::take_away);
    }
    if is_path {
        // The holder of a pool knows its mounts; the kernel knows all.
        if let Some(pool) = source_of(&path).map(|s| pool_of(&s).to_owned()) {
            let guid = session.guid_of(&pool)?;
            if wire::is_live(&session.state.socket(guid)) {
                return Err(Stop::Held(guid));
            }
        }
        let why = match mount_of(&path) {
            Some(_) => "not a mountpoint",
            None => "not a ZFS filesystem",
        };
        return Err(CommandError::new(format!("cannot unmount '{text}': {why}"))
        .hint("'zuse zfs mount' lists the mounts; umount(8) and 'fusermount3 -u' unmount anything")
        .into());
    }
    let guid = session.guid_of(pool_of(&text))?;
    if wire::is_live(&session.state.socket(guid)) {
        return Err(Stop::Held(guid));
    }
    Err(not_mounted(session, &text, is_path).into())
}

/// What is said of what is not mounted: there may be no such file system.
fn not_mounted(session: &mut Session, text: &str, is_path: bool) -> CommandError {
    let mut look = || {
        let pool = session.pool_for(text, Need::Read)?;
        super::zfs::check_file_system(&pool, text, false)
    };
    match look() {
        Err(Stop::Failed(e)) if !is_path => e,
        _ => CommandError::new(format!("cannot unmount '{text}': not currently mounted")),
    }
}

/// The source of the mount on a directory, from the kernel's list.
fn source_of(path: &std::path::Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").ok()?;
    table.lines().rev().find_map(|line| {
        let mut fields = line.split(' ');
        let (source, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = kind == "fuse.zuse" && std::path::Path::new(&unescaped(dir)) == path;
        is_it.then(|| unescaped(source))
    })
}

//! A forwarded command runs with its caller's umask, groups and time zone: one thread of the host
//! adopts them.
//!
//! ```text
//!   caller's process      ──►  thread of the host
//!   umask                      its own file-system attributes (unshare), until its end
//!   group, groups              the thread's own, where that is permitted: a host of root has the groups
//!                              of the user who started it, which this caller may not have
//!   TZ                         dates that this thread prints
//! ```
//! The working directory is sent with the command line and prefixed to relative paths. The thread
//! does not change to it, because threads that outlive the command would keep the directory busy.
//! Both ends are the same user (`wire.rs`), so no file is opened for another user.

use std::cell::Cell;

use rustix::fs::Mode;
use rustix::process::Gid;
use rustix::thread::UnshareFlags;

use crate::date;
use crate::wire::Request;

thread_local! {
    /// The group of the caller whose command this thread runs, if it is not this process's.
    static GROUP: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The group of files and directories that this command creates.
pub fn group() -> u32 {
    let own = || rustix::process::getegid().as_raw();
    GROUP.get().unwrap_or_else(own)
}

/// The owner and the group of root directories that this command creates.
pub fn owner() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), group())
}

/// Adopts the caller's umask, groups and time zone in this thread.
///
/// # Errors
/// The system does not let a thread have its own umask.
pub fn stand_in(request: &Request) -> std::io::Result<()> {
    date::show_in(request.time_zone.as_deref());
    GROUP.set(request.group);
    if rustix::process::geteuid().is_root() {
        // Only root may, and only a host of root has groups that its caller may lack.
        take_groups(request);
    }
    #[expect(
        deprecated,
        reason = "the other one is unsafe for descriptors, which stay shared"
    )]
    // A process has one umask for all its threads, unless a thread leaves the others.
    rustix::thread::unshare(UnshareFlags::FS)?;
    rustix::process::umask(Mode::from_raw_mode(request.umask & 0o777));
    Ok(())
}

/// Gives this thread the caller's groups. A container may refuse that; root may then still do
/// everything.
fn take_groups(request: &Request) {
    let gid = |n: &u32| Gid::from_raw_unchecked(*n);
    let groups: Vec<Gid> = request.groups.iter().map(gid).collect();
    let _ = rustix::thread::set_thread_groups(&groups);
    if let Some(group) = &request.group {
        let _ = rustix::thread::set_thread_gid(gid(group));
    }
}

/// Threads that the command has started share its umask, so it is reset to a usual one.
pub fn stand_down() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

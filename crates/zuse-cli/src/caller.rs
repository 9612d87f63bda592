//! A forwarded command runs with its caller's umask, groups and time zone: one thread of the host
//! takes them over.
//!
//! ```text
//!   caller's process      ──►  thread of the host
//!   umask                      its own file-system attributes (unshare), until its end
//!   group, groups              the thread's own, where that is permitted: a host of root has the groups
//!                              of the user who started it, which this caller may not have
//!   TZ                         dates that this thread prints
//! ```
//! The working directory travels with the command line and is put in front of relative paths.
//! Threads that outlive the command must not keep a directory of the caller busy. Both ends are the
//! same user (`wire.rs`), so nothing is opened for anybody else.

use std::cell::Cell;

use rustix::fs::Mode;
use rustix::process::Gid;
use rustix::thread::UnshareFlags;

use crate::date;
use crate::wire::Request;

thread_local! {
    /// The group of whoever asked for the command that this thread runs, unless it is this
    /// process's.
    static GROUP: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The group that what this command makes belongs to.
pub fn group() -> u32 {
    let own = || rustix::process::getegid().as_raw();
    GROUP.get().unwrap_or_else(own)
}

/// Makes this thread see the world as the process does that asked.
///
/// # Errors
/// The system gives a thread no umask of its own.
pub fn stand_in(request: &Request) -> std::io::Result<()> {
    date::show_in(request.time_zone.as_deref());
    GROUP.set(request.group);
    if rustix::process::geteuid().is_root() {
        take_groups(request);
    }
    #[expect(
        deprecated,
        reason = "the other one is unsafe for descriptors, which stay shared"
    )]
    rustix::thread::unshare(UnshareFlags::FS)?;
    rustix::process::umask(Mode::from_raw_mode(request.umask & 0o777));
    Ok(())
}

/// Gives this thread the caller's groups. Where a container refuses that, root may do anything all
/// the same.
fn take_groups(request: &Request) {
    let gid = |n: &u32| Gid::from_raw_unchecked(*n);
    let groups: Vec<Gid> = request.groups.iter().map(gid).collect();
    let _ = rustix::thread::set_thread_groups(&groups);
    if let Some(group) = &request.group {
        let _ = rustix::thread::set_thread_gid(gid(group));
    }
}

/// Threads that the command has started share its umask: they get an ordinary one.
pub fn stand_down() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

//! The thread of a forwarded command, put into its caller's place.
//!
//! ```text
//!   caller's process      ──►  thread of the host
//!   umask                      its own file-system attributes (unshare), until its end
//!   TZ                         dates that this thread prints
//! ```
//! The working directory travels with the command line and is put in front of relative paths:
//! threads that begin here and outlive the command must keep no directory of the caller's busy.
//! Both ends are the same user (`wire.rs`), so that nothing is opened for anybody else.

use rustix::fs::Mode;
use rustix::thread::UnshareFlags;

use crate::date;
use crate::wire::Request;

/// Makes this thread see the world as the process does that asked.
///
/// # Errors
/// The system gives a thread no umask of its own.
pub fn stand_in(request: &Request) -> std::io::Result<()> {
    date::show_in(request.time_zone.as_deref());
    #[expect(
        deprecated,
        reason = "the other one is unsafe for descriptors, which stay shared"
    )]
    rustix::thread::unshare(UnshareFlags::FS)?;
    rustix::process::umask(Mode::from_raw_mode(request.umask & 0o777));
    Ok(())
}

/// Threads that the command has started share its umask: they get an ordinary one.
pub fn stand_down() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

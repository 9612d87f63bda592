//! Sending command lines to the process that holds a pool.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::error::{CommandError, Outcome};
use crate::session::Session;
use crate::wire::{Request, Sent, forward};

/// Sends this command line to the process that holds a pool; `None` if no process listens (any
/// more).
pub fn line(session: &mut Session, guid: u64, argv: &[OsString]) -> Outcome<Option<u8>> {
    let socket = session.state.socket(guid);
    line_to(session, &socket, argv)
}

/// Sends it to the process that listens on a socket.
pub fn line_to(session: &mut Session, socket: &Path, argv: &[OsString]) -> Outcome<Option<u8>> {
    let request = Request::new(
        argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
        session.cwd.clone().into_os_string().into_vec(),
    );
    let streams = session.ui.streams()?;
    match forward(socket, &request, &streams)? {
        Sent::Nobody => Ok(None),
        Sent::Ended(code) => Ok(Some(code)),
        Sent::Strange => Err(strange().into()),
    }
}

/// A command line that is sent to the process that holds a pool.
pub struct Line {
    socket: PathBuf,
    request: Request,
    streams: [OwnedFd; 3],
}

impl Line {
    /// For the holder of that pool; its output goes to the session's streams.
    pub fn new(session: &mut Session, guid: u64, argv: &[&str]) -> Outcome<Self> {
        let request = Request::new(
            argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
            session.cwd.clone().into_os_string().into_vec(),
        );
        Ok(Self {
            socket: session.state.socket(guid),
            request,
            streams: session.ui.streams()?,
        })
    }

    /// Sends it, and waits for its end.
    pub fn send(&self) {
        // Without a listener no event is sent.
        let _ = forward(&self.socket, &self.request, &self.streams);
    }
}

/// The error for a holder of another version.
pub fn strange() -> CommandError {
    CommandError::new("the process that holds the pool is of another version of zuse")
        .hint("'zuse host restart POOL' replaces it; so does unmounting all, then 'zpool export'")
}

/// Runs a command there, for a command that concerns several pools.
pub fn command(session: &mut Session, guid: u64, argv: &[&str]) -> Outcome {
    let mut line = Line::new(session, guid, argv)?;
    line.request.one_of_many = true;
    match forward(&line.socket, &line.request, &line.streams)? {
        Sent::Ended(0) | Sent::Nobody => Ok(()),
        Sent::Ended(code) => Err(CommandError::silent(code).into()),
        Sent::Strange => Err(strange().into()),
    }
}

/// The same, and returns its output.
pub fn answer(session: &mut Session, guid: u64, argv: &[&str]) -> Outcome<String> {
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;
    let request = Request::new(
        argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
        session.cwd.clone().into_os_string().into_vec(),
    );
    let [input, _, errors] = session.ui.streams()?;
    // A file in memory, not a pipe: nothing reads while the command runs, and a pipe fills up.
    let printed = rustix::fs::memfd_create("zuse-answer", rustix::fs::MemfdFlags::CLOEXEC);
    let printed = printed.map_err(std::io::Error::from)?;
    let streams = [input, printed.as_fd().try_clone_to_owned()?, errors];
    match forward(&session.state.socket(guid), &request, &streams)? {
        Sent::Ended(0) | Sent::Nobody => {}
        Sent::Ended(code) => return Err(CommandError::silent(code).into()),
        Sent::Strange => return Err(strange().into()),
    }
    let mut text = String::new();
    let mut file = std::fs::File::from(printed);
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// The delay before checking again whether a pool is free.
pub const PAUSE: Duration = Duration::from_millis(30);

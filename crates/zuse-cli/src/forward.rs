//! Sending command lines to the process that holds a pool.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use crate::error::{CommandError, Outcome};
use crate::session::Session;
use crate::wire::{Request, forward};

/// Sends this command line there; `None` if nobody listens (any more).
pub fn line(session: &mut Session, guid: u64, argv: &[OsString]) -> Outcome<Option<u8>> {
    let request = Request {
        argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
        cwd: session.cwd.clone().into_os_string().into_vec(),
    };
    let streams = session.ui.streams()?;
    Ok(forward(&session.state.socket(guid), &request, &streams)?)
}

/// Runs a command there, for a command that concerns several pools.
pub fn command(session: &mut Session, guid: u64, argv: &[&str]) -> Outcome {
    let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
    match line(session, guid, &argv)? {
        Some(0) | None => Ok(()),
        Some(code) => Err(CommandError::silent(code).into()),
    }
}

/// How long to wait before looking again whether a pool is free.
pub const PAUSE: Duration = Duration::from_millis(30);

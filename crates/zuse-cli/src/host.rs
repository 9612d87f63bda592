//! The host of a pool: a process that keeps the pool imported for more than one command.
//!
//! ```text
//!   zpool create, zpool import POOL ──► zuse serve --first   runs the command, keeps the pool
//!   a command for an imported pool
//!   that nobody holds               ──► zuse serve --host    opens it by the cache file
//!   both: own session, own log; the command line goes there like any other (`forward.rs`)
//!   zpool export, zpool destroy     ──► the host ends
//! ```
//! Rules (tested by the cases `host-*`):
//! - At most one process holds a pool: it locks the devices, and only then binds the socket.
//! - A pool is in the cache file while it is imported. If a host is killed, only keys and mounts
//!   are lost: the next command starts another host.
//! - With `zuse_host_linger=0` or `--no-host` no host is started.

use std::ffi::OsString;
use std::process::Stdio;

use crate::cmd::serve::{READY, spawn};
use crate::error::{CommandError, Outcome};
use crate::forward;
use crate::session::Session;

/// Argument of a new host whose command line comes over its socket.
const FIRST: &str = "first";

/// Starts a host for an imported pool, unless another one starts first. Returns when it listens.
pub fn start(session: &mut Session, name: &str) -> Outcome {
    let words: Vec<OsString> = ["serve", "--host", name].map(OsString::from).into();
    let (said, _) = spawn(session, &words, Stdio::null(), Stdio::null())?;
    if said == READY {
        return Ok(());
    }
    Err(refusal(&said).into())
}

/// Why a host did not start, from its JSON message.
fn refusal(said: &str) -> CommandError {
    serde_json::from_str(said).unwrap_or_else(|_| {
        CommandError::new("cannot start a process that holds the pool")
            .hint("'zuse doctor' looks for what the system lacks; '--no-host' does without")
    })
}

/// Runs a command line in a new process, which becomes the host of the pool that it creates or
/// imports.
pub fn in_new_process(session: &mut Session, argv: &[OsString]) -> Outcome<u8> {
    let name = format!("{FIRST}-{}.sock", std::process::id());
    let socket = session.state.sockets()?.join(name);
    let words = ["serve".into(), "--first".into(), socket.clone().into()];
    // The command itself reports missing places. Here they must not keep the new process from
    // starting.
    session.search.retain(|place| place.exists());
    let (said, _) = spawn(session, &words, Stdio::null(), Stdio::null())?;
    if said != READY {
        return Err(refusal(&said).into());
    }
    match forward::line_to(session, &socket, argv)? {
        Some(code) => Ok(code),
        None => Err(refusal("").into()),
    }
}

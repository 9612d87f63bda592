//! A command line of another process, run in this one with the other's streams.
//!
//! ```text
//!   connection ─ receive ─ (may it run?) ─ taken ─ the command ─ what it changed is on disk ─ code
//! ```

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use crate::holder::Holder;
use crate::session::Session;
use crate::state::State;
use crate::ui::Ui;
use crate::{caller, handover, wire};

/// A command that was run for another process, which waits for its end.
pub struct Forwarded {
    /// Where it ran.
    pub session: Session,
    /// Its exit code.
    pub code: u8,
    client: UnixStream,
}

impl Forwarded {
    /// Runs the command line that a peer sends, if `may_run` allows it once it has arrived. None if
    /// nothing was run.
    pub fn run<R>(
        mut client: UnixStream,
        state: &State,
        holder: Option<&Arc<Holder>>,
        may_run: impl FnOnce(&UnixStream) -> Option<R>,
    ) -> Option<(Self, R)> {
        let (request, streams) = wire::receive(&mut client).ok()?;
        if let Some(format) = request.hand_over {
            match holder.filter(|_| format == handover::FORMAT) {
                Some(holder) => holder.ask_to_hand_over(client),
                None => drop(wire::turn_away(&mut client)),
            }
            return None;
        }
        if request.version != wire::VERSION {
            let _ = wire::turn_away(&mut client);
            return None;
        }
        let running = may_run(&client)?;
        // From here on the client will not send the command elsewhere: it must run, once.
        wire::take(&mut client).ok()?;
        // If a sandbox refuses it, new files get this process's umask.
        let _ = caller::stand_in(&request);
        let argv: Vec<OsString> = request.argv.into_iter().map(OsString::from_vec).collect();
        let cwd = PathBuf::from(OsStr::from_bytes(&request.cwd));
        let mut session = Session::new(Ui::new(streams), cwd, state.clone(), holder.cloned());
        session.becoming = holder.is_none();
        session.one_of_many = request.one_of_many;
        session.asked_by(client.try_clone().ok().map(Arc::new));
        let code = execute(&argv, &mut session);
        let ran = Self {
            session,
            code,
            client,
        };
        Some((ran, running))
    }

    /// Tells the caller that the command has ended, and closes its files.
    pub fn end(self) {
        let Self {
            session,
            code,
            mut client,
        } = self;
        // Before the answer: the client may use these files next.
        drop(session);
        caller::stand_down();
        let _ = wire::reply(&mut client, code);
    }
}

fn execute(argv: &[OsString], session: &mut Session) -> u8 {
    let run = std::panic::AssertUnwindSafe(|| crate::execute(argv, session));
    match std::panic::catch_unwind(run) {
        Ok(crate::Executed::Done(code)) => code,
        Ok(crate::Executed::Elsewhere(_) | crate::Executed::NewProcess) => {
            session.ui.say(
                "that concerns pools which different processes hold: run it for one pool at a time",
            );
            1
        }
        Err(_) => {
            let suspended = session.holder.as_ref().and_then(|h| h.pool().suspended());
            let how = match suspended {
                Some(why) => why.to_string(),
                None => "the pool goes on".to_owned(),
            };
            session
                .ui
                .say(format!("internal error: the command panicked; {how}"));
            1
        }
    }
}

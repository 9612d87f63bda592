//! `zuse serve`: the process behind a mount. Started by `zuse mount`, not by people.
//!
//! ```text
//!   zuse mount ── starts ──► zuse serve (own session)        opens the pool, listens, mounts
//!      waits on its stdout ◄── "ok"                          then lets go of the terminal
//! ```
//! No process is forked with threads in it: the server is this program anew.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use zuse_mount::ServerOptions;

use super::mount::MountArgs;
use crate::args::tunables;
use crate::error::{CommandError, Explain, Outcome};
use crate::holder::Holder;
use crate::session::{Need, Session};
use crate::wire::Listener;

/// What the server says when it is ready.
const READY: &str = "ok\n";
/// What it says when it has mounted a stream that is not whole.
const READY_IN_PART: &str = "in part\n";

/// Serves mounts of a pool
#[derive(Args, Debug)]
pub struct Serve {
    #[command(flatten)]
    mount: MountArgs,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
}

impl Serve {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.tune(tunables(&self.mount.options))?;
        serve(session, &[self.mount], self.foreground)
    }
}

/// Starts a server that mounts, and waits until it has.
pub fn start(session: &mut Session, mount: &MountArgs) -> Outcome {
    let mut words: Vec<OsString> = vec!["serve".into()];
    for option in &mount.options {
        words.extend(["-o".into(), option.into()]);
    }
    words.extend([
        "--".into(),
        mount.dataset.clone().into(),
        mount.mountpoint.clone().into(),
    ]);
    start_as(session, &words, Stdio::null())
}

/// Starts this program anew with these words as a server, and waits until it has mounted.
pub fn start_as(session: &mut Session, words: &[OsString], input: Stdio) -> Outcome {
    let program = std::env::current_exe().or_cannot(|| "cannot find this program".into())?;
    let mut command = Command::new(program);
    for place in &session.search {
        command.arg("--in").arg(place);
    }
    for file in &session.key_files {
        command.arg("--key").arg(file);
    }
    for (name, value) in &session.tuned {
        command.arg("--tune").arg(format!("{name}={value}"));
    }
    command.args(words);
    command.current_dir(&session.cwd);
    let [_, _, err] = session.ui.streams()?;
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::from(err));
    let mut child = command
        .spawn()
        .or_cannot(|| "cannot start the mount process".into())?;
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        std::io::Read::read_to_string(&mut out, &mut said)?;
    }
    if said == READY {
        return Ok(());
    }
    if said == READY_IN_PART {
        // The command ends as one that looked at such a stream.
        session.flawed = true;
        return Ok(());
    }
    // It has said why on the same error stream.
    let code = child.wait()?.code().unwrap_or(1);
    Err(match u8::try_from(code) {
        Ok(0) => CommandError::new("the mount process ended"),
        Ok(code) => CommandError::silent(code),
        Err(_) => CommandError::silent(1),
    }
    .into())
}

/// Holds the pool and serves its mounts until there are none.
pub fn serve(session: &mut Session, mounts: &[MountArgs], foreground: bool) -> Outcome {
    let Some(first) = mounts.first() else {
        return Ok(());
    };
    if !foreground && session.holder.is_none() {
        // Away from the terminal: a Ctrl-C there is not meant for the mount.
        let _ = rustix::process::setsid();
    }
    let options: Vec<ServerOptions> = mounts
        .iter()
        .map(MountArgs::parse)
        .collect::<Outcome<_>>()?;
    if let Some(holder) = session.holder.clone() {
        // Another mount was quicker: this command came to it after all.
        for (mount, options) in mounts.iter().zip(&options) {
            holder.mount(&mount.dataset, &session.path(&mount.mountpoint), options)?;
        }
        if !foreground {
            session.ui.print(READY)?;
            session.ui.flush()?;
        }
        return Ok(());
    }
    let read_only = options.iter().all(|o| o.mount.read_only) && !session.search.is_empty();
    let need = if read_only { Need::Read } else { Need::Write };
    let pool = session.pool_for(&first.dataset, need)?;
    let guid = pool.guid();
    session.state.sockets()?;
    let listener = Listener::bind(&session.state.socket(guid))
        .or_cannot(|| format!("cannot hold pool '{}'", pool.name()))?;
    let note = state_note(session, guid, &pool.name())?;
    let holder = Holder::new(pool.clone());
    for (mount, options) in mounts.iter().zip(&options) {
        holder.mount(&mount.dataset, &session.path(&mount.mountpoint), options)?;
    }
    drop(pool);
    if !foreground {
        go_quiet(session, guid)?;
    }
    let closed = holder.run(listener, &session.state);
    let _ = std::fs::remove_file(&note);
    let closed = closed?;
    if closed {
        let pool = holder.pool().clone();
        session.release(&pool);
    }
    session.finish()
}

/// Notes which pool is held, so that commands find it by its name.
fn state_note(session: &Session, guid: u64, name: &str) -> Outcome<PathBuf> {
    let path = session.state.held_name(guid);
    std::fs::write(&path, format!("{name}\n"))
        .or_cannot(|| format!("cannot write '{}'", path.display()))?;
    Ok(path)
}

/// Says that it is ready and lets go of the starter's streams and directory.
fn go_quiet(session: &mut Session, guid: u64) -> Outcome {
    let log = session.state.log(guid);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .or_cannot(|| format!("cannot open '{}'", log.display()))?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let streams = [null.as_fd(), null.as_fd(), log.as_fd()].map(|fd| fd.try_clone_to_owned());
    let [a, b, c] = streams;
    session
        .ui
        .print(if session.flawed { READY_IN_PART } else { READY })?;
    session.ui.flush()?;
    // All handles of the starter's pipe go, so that it sees the end.
    session.ui = crate::ui::Ui::new([a?, b?, c?]);
    rustix::stdio::dup2_stdin(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&log).map_err(std::io::Error::from)?;
    std::env::set_current_dir("/")?;
    session.cwd = PathBuf::from("/");
    Ok(())
}

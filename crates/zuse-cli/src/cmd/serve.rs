//! `zuse serve`: the process behind mounts, and the host of an imported pool. Started by other
//! commands, not by people.
//!
//! ```text
//!   zuse mount ── starts ──► zuse serve (own session)        opens the pool, listens, mounts
//!      waits on its stdout ◄── "ok"                          then detaches from the terminal
//! ```
//! A process is not forked while it has threads: the server is a new process of this program.
//! `host.rs` says what a host is and when one is started.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use zuse::Pool;
use zuse_mount::ServerOptions;

use super::mount::MountArgs;
use crate::args::tunables;
use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::forwarded::Forwarded;
use crate::holder::{Ended, Holder, Life};
use crate::session::{Need, Session};
use crate::sink::Sink;
use crate::wire::Listener;

/// The server's message when it is ready.
pub const READY: &str = "ok\n";
/// Its message when it has mounted an incomplete stream.
const READY_IN_PART: &str = "in part\n";
/// A larger log is renamed when a process begins to write to it.
const LONGEST_LOG: u64 = 1 << 20;
/// How long a new process waits for the command line for which it was started.
const FIRST_COMMAND: Duration = Duration::from_secs(10);

/// Holds a pool, and serves its mounts
#[derive(Args, Debug)]
pub struct Serve {
    /// Hold this imported pool
    #[arg(long, value_name = "POOL", conflicts_with_all = ["dataset", "mountpoint"])]
    host: Option<String>,
    /// Listen here for one command, and hold the pool that it makes or imports
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["dataset", "mountpoint", "host"])]
    first: Option<PathBuf>,
    /// Go on in the place of the process at the other end of standard input
    #[arg(long, conflicts_with_all = ["dataset", "mountpoint", "host", "first"])]
    take_over: bool,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
    /// The dataset or snapshot
    #[arg(required_unless_present_any = ["host", "first", "take_over"], requires = "mountpoint")]
    dataset: Option<String>,
    /// The directory
    mountpoint: Option<PathBuf>,
    /// Options of the mount
    #[arg(short = 'o', value_name = "OPTION,…")]
    options: Vec<String>,
}

impl Serve {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.tune(tunables(&self.options))?;
        if let Some(socket) = &self.first {
            return first(session, socket);
        }
        if self.take_over || self.host.is_some() {
            let begun = match &self.host {
                Some(name) => host(session, name, self.foreground),
                None => take_over(session),
            };
            return match begun {
                // The process that started it prints this error itself.
                Err(Stop::Failed(error)) if !self.foreground => {
                    let text = serde_json::to_string(&error).map_err(std::io::Error::from)?;
                    session.ui.print(text)?;
                    Err(CommandError::silent(error.code).into())
                }
                other => other,
            };
        }
        let (Some(dataset), Some(mountpoint)) = (self.dataset, self.mountpoint) else {
            return Ok(());
        };
        let mount = MountArgs {
            dataset,
            mountpoint,
            options: self.options,
        };
        serve(session, &[mount], self.foreground)
    }
}

/// Starts a server that mounts, and waits until it has mounted.
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

/// Starts this program again with these arguments. Returns its output up to the end of the stream.
pub fn spawn(
    session: &Session,
    words: &[OsString],
    input: Stdio,
    errors: Stdio,
) -> Outcome<(String, Child)> {
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
    // The child closes descriptors that are not meant for it.
    command.env(crate::inherited::MARK, "1");
    command.stdin(input).stdout(Stdio::piped()).stderr(errors);
    let mut child = command
        .spawn()
        .or_cannot(|| "cannot start the process that holds the pool".into())?;
    let mut output = String::new();
    // Its output ends when it is ready or has ended, which covers both cases.
    if let Some(mut out) = child.stdout.take() {
        std::io::Read::read_to_string(&mut out, &mut output)?;
    }
    Ok((output, child))
}

/// Starts this program again with these arguments as a server, and waits until it has mounted.
pub fn start_as(session: &mut Session, words: &[OsString], input: Stdio) -> Outcome {
    let [_, _, err] = session.ui.streams()?;
    let (output, mut child) = spawn(session, words, input, Stdio::from(err))?;
    if output == READY {
        return Ok(());
    }
    if output == READY_IN_PART {
        // The command's exit status reports that the stream was damaged.
        session.flawed = true;
        return Ok(());
    }
    // It has printed the reason on the same error stream.
    let code = child.wait()?.code().unwrap_or(1);
    Err(match u8::try_from(code) {
        Ok(0) => CommandError::new("the mount process ended"),
        Ok(code) => CommandError::silent(code),
        Err(_) => CommandError::silent(1),
    }
    .into())
}

/// Holds an imported pool until it is exported.
pub fn host(session: &mut Session, name: &str, foreground: bool) -> Outcome {
    if !foreground {
        let _ = rustix::process::setsid();
    }
    // This process is the host that other commands would start.
    session.becoming = true;
    let pool = match session.pool(name, Need::Write) {
        // Another process was faster, so this one is not needed.
        Err(Stop::Held(_)) => return ready(session),
        other => other?,
    };
    let Some(claim) = Claim::of(session, &pool)? else {
        return ready(session);
    };
    let holder = Holder::new(pool.clone(), Life::Imported);
    // Before the ready message: the waiting command may use the mounts next.
    let messages = holder.mount_all();
    drop(pool);
    if !foreground {
        let log = session.state.log(claim.guid);
        go_quiet(session, &log)?;
    }
    messages.print(session);
    claim.hold(session, &holder)
}

/// Takes over from the process at the other end of standard input.
fn take_over(session: &mut Session) -> Outcome {
    let _ = rustix::process::setsid();
    session.becoming = true;
    let (holder, listener) = crate::handover::take_over(session)?;
    let claim = Claim::taken(session, holder.pool(), listener)?;
    let log = session.state.log(claim.guid);
    go_quiet(session, &log)?;
    claim.hold(session, &holder)
}

/// Runs one command line of another process, and keeps the pool that it creates or imports.
fn first(session: &mut Session, socket: &Path) -> Outcome {
    let _ = rustix::process::setsid();
    let listener = Listener::bind(socket).or_cannot(|| "cannot listen".into())?;
    go_quiet(session, Path::new("/dev/null"))?;
    let Some(stream) = listener.accept_for(FIRST_COMMAND)? else {
        return Ok(());
    };
    // It was for one command. From here on the pool's own socket is used.
    drop(listener);
    let Some((mut command, ())) = Forwarded::run(stream, &session.state, None, |_| Some(())) else {
        return Ok(());
    };
    let kept = command.session.take_kept();
    let Some(pool) = kept else {
        command.end();
        return Ok(());
    };
    let is_imported = session.state.imported()?;
    if !is_imported
        .values()
        .any(|c| c.config.pool_guid == pool.guid())
    {
        // It failed after it had opened the pool. Clients could not find this process, which has
        // the pool locked.
        if let Err(e) = pool.export() {
            let what = format!("cannot close '{}'", pool.name());
            crate::say_error(&mut command.session.ui, &explain(&what, &e, true));
        }
        command.end();
        return Ok(());
    }
    drop(is_imported);
    let log = session.state.log(pool.guid());
    go_quiet(session, &log)?;
    // The command that created or imported the pool leaves it to this process.
    session.adopt(pool.clone());
    let claim = match Claim::of(session, &pool) {
        Ok(Some(claim)) => claim,
        other => {
            let why = match other {
                Err(Stop::Failed(error)) => error,
                _ => CommandError::new(format!("cannot hold pool '{}'", pool.name())),
            };
            crate::say_error(&mut command.session.ui, &why);
            command.code = 1;
            command.end();
            return Ok(());
        }
    };
    let holder = Holder::new(pool.clone(), Life::Imported);
    if command.code == 0 && command.session.loads_keys {
        command.session.holder = Some(holder.clone());
        // Keys before mounts: a dataset cannot be mounted without its key.
        let load = super::zfs::LoadKey::of(pool.name(), true);
        if let Err(Stop::Failed(e)) = load.run(&mut command.session) {
            crate::say_error(&mut command.session.ui, &e);
        }
    }
    if command.code == 0 && command.session.mounts {
        let messages = holder.mount_all();
        messages.print(&mut command.session);
        command.code = u8::from(messages.failed);
    }
    drop(pool);
    // The first command ends here; the rest prepares for the next one.
    command.end();
    claim.hold(session, &holder)
}

/// Reports that a process holds the pool.
fn ready(session: &mut Session) -> Outcome {
    session.ui.print(READY)?;
    Ok(session.ui.flush()?)
}

/// Holds the pool and serves its mounts until there are none.
pub fn serve(session: &mut Session, mounts: &[MountArgs], foreground: bool) -> Outcome {
    let Some(first) = mounts.first() else {
        return Ok(());
    };
    if !foreground && session.holder.is_none() {
        // In its own session: Ctrl-C on the terminal is not meant for the mount.
        let _ = rustix::process::setsid();
    }
    let options: Vec<ServerOptions> = mounts
        .iter()
        .map(MountArgs::parse)
        .collect::<Outcome<_>>()?;
    if let Some(holder) = session.holder.clone() {
        // Another mount was faster: this command is sent to its process after all.
        for (mount, options) in mounts.iter().zip(&options) {
            holder.mount(&mount.dataset, &session.path(&mount.mountpoint), options)?;
        }
        return if foreground { Ok(()) } else { ready(session) };
    }
    let read_only = options.iter().all(|o| o.mount.read_only) && !session.search.is_empty();
    let need = if read_only { Need::Read } else { Need::Write };
    // This process holds the pool itself.
    session.no_host = true;
    let pool = session.pool_for(&first.dataset, need)?;
    let claim = Claim::of(session, &pool)?.ok_or_else(|| {
        CommandError::new(format!(
            "cannot hold pool '{}': another process holds it",
            pool.name()
        ))
    })?;
    let holder = Holder::new(pool.clone(), Life::Mounts);
    for (mount, options) in mounts.iter().zip(&options) {
        holder.mount(&mount.dataset, &session.path(&mount.mountpoint), options)?;
    }
    drop(pool);
    if !foreground {
        let log = session.state.log(claim.guid);
        go_quiet(session, &log)?;
    }
    claim.hold(session, &holder)
}

/// The names by which clients find the process that holds a pool: its socket, and the file with the
/// pool's name.
struct Claim {
    guid: u64,
    listener: Listener,
}

impl Claim {
    /// Claims the names; none if another process has them.
    fn of(session: &Session, pool: &Arc<Pool>) -> Outcome<Option<Self>> {
        let (guid, name) = (pool.guid(), pool.name());
        session.state.sockets()?;
        let listener = match Listener::bind(&session.state.socket(guid)) {
            // The process that binds the socket is the host, which decides between two that start
            // at once.
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => return Ok(None),
            other => other.or_cannot(|| format!("cannot hold pool '{name}'"))?,
        };
        Self::taken(session, pool, listener).map(Some)
    }

    /// The claim that belongs to a socket.
    fn taken(session: &Session, pool: &Arc<Pool>, listener: Listener) -> Outcome<Self> {
        let (guid, name) = (pool.guid(), pool.name());
        let note = session.state.held_name(guid);
        let text = format!("{name}\n");
        // An unchanged file is not rewritten: on a full disk that would empty it.
        if std::fs::read_to_string(&note).ok().as_ref() != Some(&text) {
            std::fs::write(&note, text)
                .or_cannot(|| format!("cannot write '{}'", note.display()))?;
        }
        Ok(Self { guid, listener })
    }

    /// Serves clients until the holder's life is over, then closes the pool.
    fn hold(self, session: &mut Session, holder: &Arc<Holder>) -> Outcome {
        // Dropped last: events of closing the pool are forwarded too.
        let _sink = Sink::begin(session, holder.pool())?;
        let ended = holder.run(self.listener, session);
        match ended? {
            Ended::Open | Ended::HandedOver => {}
            Ended::Closed => session.release(&holder.pool().clone()),
            Ended::Lost => return Err(CommandError::silent(1).into()),
        }
        session.finish()
    }
}

/// Reports that it is ready, and closes the starter's streams and directory.
fn go_quiet(session: &mut Session, log: &Path) -> Outcome {
    // An old log is renamed when a host begins.
    if std::fs::metadata(log).is_ok_and(|m| m.is_file() && m.len() > LONGEST_LOG) {
        let _ = std::fs::rename(log, log.with_extension("log.old"));
    }
    let file = OpenOptions::new()
        .create(log != Path::new("/dev/null"))
        .append(true)
        .open(log)
        .or_cannot(|| format!("cannot open '{}'", log.display()))?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    // Everything that may fail comes before the ready message.
    let streams = [null.as_fd(), null.as_fd(), file.as_fd()].map(|fd| fd.try_clone_to_owned());
    let [a, b, c] = streams;
    session
        .ui
        .print(if session.flawed { READY_IN_PART } else { READY })?;
    session.ui.flush()?;
    // Closes all handles of the starter's pipe, so that the starter sees its end.
    session.ui = crate::ui::Ui::new([a?, b?, c?]);
    rustix::stdio::dup2_stdin(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&file).map_err(std::io::Error::from)?;
    // A host with a working directory would keep its file system busy.
    std::env::set_current_dir("/")?;
    session.cwd = PathBuf::from("/");
    Ok(())
}

//! Handing a pool with its mounts over to another process: `zuse host restart`, for another version
//! of the program.
//!
//! ```text
//!   zuse host restart     ── "hand over, format N" ──►  the host      another format: it says so
//!      starts, with that socket as standard input
//!   zuse serve --take-over
//!        ── itself, its pulse ──►
//!                               no command begins; those that run end; requests of the kernel are
//!                               answered, none is taken; all is written; the pool is closed
//!        ◄── facts, tunables, the listening socket, keys, errors of devices, mounts
//!                               (`zuse_mount::PoolMounts::give`)
//!      opens the pool, takes all
//!        ── "whole" ──►         leaves the mounts
//!        ◄── "go on" ──         ends
//!      serves
//! ```
//! Why a new process and a socket: `zuse-mount/src/handover.rs`.
//!
//! Invariants
//! - Until it says "go on", the old process keeps everything except the open pool. If the new one
//!   fails before that, it is killed. Then another process of the old program is started, which
//!   takes over in the same way. If that fails too, the mounts end, and the log says why.
//! - The new process serves no request before "go on", or before the old one has ended.
//! - The listening socket is never closed. So commands that arrive meanwhile wait, and no process
//!   takes the pool for one without a host.
//! - Keys are sent only through the socket, and their buffers are wiped.
//! - Neither side waits for ever. The new one is notified at once when the old one ends. The old
//!   one kills a new one that takes too long ([`HandoverLimits`]), or whose pulse stops, because
//!   requests of the kernel wait meanwhile. It waits longer for the process of its own program,
//!   since there is no further fallback.
//!
//! Not handed over: the device I/O counters since the pool was opened.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{PidfdFlags, getpid, pidfd_open};
use zuse::tools::{Layers as _, VdevErrors};
use zuse::{Pool, TUNABLES};
use zuse_codec::crypt::WrappingKey;
use zuse_mount::{Link, ReleasedMounts};

use crate::cmd::serve::{READY, spawn};
use crate::error::{CommandError, Explain, Outcome};
use crate::holder::{Ended, Holder, Life};
use crate::session::{Session, Taken};
use crate::tuning::Tuning;
use crate::wire::{self, HandoverAnswer, Listener};

mod successor;

use successor::{HandoverLimits, Successor, pulse};

/// Version of the protocol on the socket. Any change of it, or of what `zuse_mount` sends, needs a
/// new number.
pub const FORMAT: u32 = 3;
/// A version that no process speaks. A process that is asked for it answers that it listens.
const NO_FORMAT: u32 = 0;

/// First number from the old process: the reason of a refusal follows.
const REFUSED: u64 = 0;
/// The data follows.
const HERE: u64 = 1;
/// The end of the data.
const END: u64 = 2;
/// The new process has everything.
const WHOLE: u64 = 3;
/// The new process serves.
const GO_ON: u64 = 4;

/// How long to wait for running commands.
const COMMANDS: Duration = Duration::from_secs(20);
/// Interval of the pulse, by which a process shows that it is alive.
const PULSE: Duration = Duration::from_secs(1);
/// Time limit for a new process to report, and for a killed one to end.
const HELLO: Duration = Duration::from_secs(10);

/// Lets a new process replace a pool's host. False: the host cannot hand over to this version.
pub fn start(session: &mut Session, pool: &str, guid: u64, host: u32) -> Outcome<bool> {
    let cannot = || format!("cannot restart the host of '{pool}'");
    let place = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    if let (Some(here), Some(there)) = (place("self"), place(&host.to_string()))
        && here != there
    {
        return Err(CommandError::new(format!(
            "{}: it mounts in another mount namespace",
            cannot()
        ))
        .hint(format!(
            "'nsenter -t {host} -m zuse host restart {pool}' does it there"
        ))
        .into());
    }
    let socket = session.state.socket(guid);
    // The old host is asked before the new process starts. A host with another protocol version
    // must not be disturbed.
    let stream = match wire::ask_to_hand_over(&socket, FORMAT).or_cannot(cannot)? {
        HandoverAnswer::Agreed(stream) => stream,
        HandoverAnswer::Strange => return Ok(false),
        HandoverAnswer::Nobody => {
            return Err(CommandError::new(format!("{}: it has just ended", cannot())).into());
        }
    };
    let words: Vec<OsString> = ["serve", "--take-over"].map(OsString::from).into();
    let (said, _) = spawn(
        session,
        &words,
        Stdio::from(OwnedFd::from(stream)),
        Stdio::null(),
    )?;
    if said == READY {
        return Ok(true);
    }
    let why: Option<CommandError> = serde_json::from_str(&said).ok();
    let why = why.map_or_else(|| "the new process ended".to_owned(), |e| e.message);
    // The old host refuses this version: only whether it answers counts.
    let goes_on = wire::ask_to_hand_over(&socket, NO_FORMAT);
    let after = match goes_on {
        Ok(HandoverAnswer::Strange) => "the old version goes on".to_owned(),
        _ => format!("its log is '{}'", session.state.log(guid).display()),
    };
    Err(CommandError::new(format!("{}: {why}", cannot()))
        .hint(after)
        .into())
}

/// What is sent for a closed pool.
struct Offer<'a> {
    pool: Taken,
    life: Life,
    search: &'a [PathBuf],
    tuned: Vec<(&'static str, String)>,
    keys: Vec<(String, WrappingKey)>,
    errors: Vec<VdevErrors>,
    listener: &'a Listener,
    released: ReleasedMounts,
}

impl Holder {
    /// Hands everything over to the process at the other end. None: it was refused, and this
    /// process continues.
    pub fn hand_over(
        self: &Arc<Self>,
        successor: UnixStream,
        listener: &Listener,
        session: &mut Session,
    ) -> Option<Ended> {
        let mut link = Link::new(successor);
        // If the new process does not start, nothing has been changed yet.
        let process = match Successor::hello(&mut link) {
            Ok(process) => process,
            Err(why) => {
                session
                    .ui
                    .say(format!("the mounts were not handed over: {why}"));
                return None;
            }
        };
        let keys = match self.get_ready() {
            Ok(keys) => keys,
            Err(why) => {
                refuse(&mut link, &why);
                return None;
            }
        };
        let pool = self.pool();
        let search = session.search.clone();
        let offer = Offer {
            pool: session.taken(pool),
            life: self.life(),
            search: &search,
            tuned: tuned(pool),
            keys,
            errors: pool.spa().vdevs().errors(),
            listener,
            released: self.mounts().release_file_systems(),
        };
        pool.set_mounts(None);
        self.give_memory_back();
        // The session must not close it a second time.
        session.release(pool);
        // Before anything is offered: two processes must never have the pool open.
        let closed = pool.close().map_err(|e| e.to_string());
        let done = closed.and_then(|()| {
            self.offer(link, process, &offer, HandoverLimits::OF_ANOTHER)
                .or_else(|why| {
                    session
                        .ui
                        .say(format!("the mounts were not handed over: {why}"));
                    let link =
                        start_successor().map_err(|e| format!("cannot start this program: {e}"));
                    let mut link = link?;
                    let process = Successor::hello(&mut link)?;
                    self.offer(link, process, &offer, HandoverLimits::OF_OURS)
                })
        });
        let Err(why) = done else {
            listener.give_away();
            return Some(Ended::HandedOver);
        };
        session
            .ui
            .say(format!("nobody goes on with the mounts, which end: {why}"));
        self.mounts().resume();
        for server in self.servers() {
            // A mount that cannot be unmounted ends with this process.
            let _ = self.mounts().end(&server, true);
        }
        Some(Ended::Lost)
    }

    /// Brings everything to rest, with all changes on disk. Returns the loaded keys.
    fn get_ready(self: &Arc<Self>) -> Result<Vec<(String, WrappingKey)>, String> {
        if let Some(error) = self.pool().suspended() {
            return Err(error.to_string());
        }
        self.stop_commands(COMMANDS).map_err(|n| match n {
            1 => "a command is running".to_owned(),
            n => format!("{n} commands are running"),
        })?;
        let ready = self.come_to_rest();
        if ready.is_err() {
            // After a refusal everything is as before: the waiting commands are let in.
            self.let_in();
        }
        ready
    }

    fn come_to_rest(self: &Arc<Self>) -> Result<Vec<(String, WrappingKey)>, String> {
        let write = |me: &Arc<Self>| me.while_running(|me| me.pool().sync());
        // Written while requests are still served, so that they wait less later.
        write(self).map_err(|e| e.to_string())?;
        // From here on requests of the kernel wait, so this comes as late as possible.
        if !self.mounts().pause() {
            return Err("what is asked of the mounts takes too long".to_owned());
        }
        // The rest is little, since most was written above.
        let written = write(self).and_then(|()| self.pool().dsl().wrapping_keys());
        written.map_err(|e| {
            self.mounts().resume();
            e.to_string()
        })
    }

    /// Lets the process at the other end continue. An error says why it does not; then it has
    /// ended.
    fn offer(
        &self,
        mut link: Link,
        successor: Successor,
        offer: &Offer<'_>,
        limits: HandoverLimits,
    ) -> Result<(), String> {
        // Watched from before the first byte: a stopped process would block the sends below.
        let mut successor = successor.watched(limits);
        let done = limit(&link, limits.total)
            .and_then(|()| self.send(&mut link, offer))
            .and_then(|()| match link.take()? {
                WHOLE => Ok(()),
                _ => Err(io::ErrorKind::InvalidData.into()),
            })
            .and_then(|()| {
                // The watch ends first: it must not kill a process that was told to go on.
                successor.confirm()?;
                // Before the other side begins: two processes must not read from one connection.
                self.mounts().leave();
                link.put(GO_ON)?;
                link.flush()
            });
        done.map_err(|e| {
            let why = successor.end();
            // The new process has ended by now, so the connections belong to this one again.
            self.mounts().keep();
            format!("the new process: {}", why.unwrap_or_else(|| e.to_string()))
        })
    }

    fn send(&self, link: &mut Link, offer: &Offer<'_>) -> io::Result<()> {
        let Taken {
            name,
            guid,
            writable,
            export,
        } = &offer.pool;
        link.put(HERE)?;
        link.put_bytes(name.as_bytes())?;
        link.put(*guid)?;
        for yes in [*writable, *export, offer.life == Life::Imported] {
            link.put(yes.into())?;
        }
        link.put(offer.search.len() as u64)?;
        for path in offer.search {
            link.put_bytes(path.as_os_str().as_bytes())?;
        }
        link.put(offer.tuned.len() as u64)?;
        for (name, value) in &offer.tuned {
            link.put_bytes(name.as_bytes())?;
            link.put_bytes(value.as_bytes())?;
        }
        link.put_descriptor(offer.listener.as_fd())?;
        link.put(offer.keys.len() as u64)?;
        for (root, key) in &offer.keys {
            link.put_bytes(root.as_bytes())?;
            // Not by `put_bytes`, whose buffer would keep a copy of the key.
            link.put_secret(key.expose())?;
        }
        link.put(offer.errors.len() as u64)?;
        for of in &offer.errors {
            let numbers = [of.guid, of.reads, of.writes, of.checksums];
            numbers.into_iter().try_for_each(|n| link.put(n))?;
            link.put(u64::from(of.too_many))?;
        }
        self.mounts().give(&offer.released, link)?;
        link.put(END)?;
        link.flush()
    }
}

/// Sets the time limit for sending and receiving on either end.
fn limit(link: &Link, time: Duration) -> io::Result<()> {
    link.stream().set_read_timeout(Some(time))?;
    link.stream().set_write_timeout(Some(time))
}

/// Tunables of the pool that differ from their defaults.
fn tuned(pool: &Pool) -> Vec<(&'static str, String)> {
    let limits = pool.limits();
    let tuning = Tuning::of(limits);
    let changed = TUNABLES
        .iter()
        .filter(|t| *tuning.origin(t) != crate::tuning::Origin::Default);
    changed
        .map(|t| (t.name, t.text(t.value(&limits))))
        .collect()
}

/// Refuses to hand over. If the new process has ended, it need not receive that.
fn refuse(link: &mut Link, why: &str) {
    let refused = link
        .put(REFUSED)
        .and_then(|()| link.put_bytes(why.as_bytes()));
    drop(refused.and_then(|()| link.flush()));
}

/// Starts this program again, in the version with which this process began, to replace it.
fn start_successor() -> io::Result<Link> {
    let (ours, theirs) = UnixStream::pair()?;
    Command::new("/proc/self/exe")
        // By its inode: an update may have replaced or removed the file.
        .arg0("zuse")
        .args(["serve", "--take-over"])
        .env(crate::inherited::MARK, "1")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Link::new(ours))
}

/// Takes over everything that the process at the other end of standard input holds.
pub fn take_over(session: &mut Session) -> Outcome<(Arc<Holder>, Listener)> {
    let cannot = || "cannot go on with what was handed over".to_owned();
    // Its memory allocations must not wait for dirty pages, since no process writes them back
    // meanwhile.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let socket = rustix::stdio::stdin()
        .try_clone_to_owned()
        .or_cannot(cannot)?;
    let mut link = Link::new(UnixStream::from(socket));
    let own = pidfd_open(getpid(), PidfdFlags::empty()).map_err(io::Error::from);
    let own = own.or_cannot(cannot)?;
    // The old process kills it and waits for its end by this: a process id may be reused.
    link.put_descriptor(own.as_fd()).or_cannot(cannot)?;
    // Kept until the end of this function: without the pulse the old process kills this one.
    let (theirs, _pulse) = pulse().or_cannot(cannot)?;
    link.put_descriptor(theirs.as_fd()).or_cannot(cannot)?;
    drop(theirs);
    let first = link.take().or_cannot(cannot)?;
    if first != HERE {
        let why = link.take_text().or_cannot(cannot)?;
        return Err(CommandError::new(why).into());
    }
    let (taken, life) = take_facts(session, &mut link).or_cannot(cannot)?;
    let listener = link.take_descriptor().or_cannot(cannot)?;
    let listener =
        Listener::handed(listener, &session.state.socket(taken.guid)).or_cannot(cannot)?;
    // The old process has closed the pool before its greeting.
    let pool = session.take_over(&taken)?;
    for _ in 0..link.take().or_cannot(cannot)? {
        let root = link.take_text().or_cannot(cannot)?;
        let key = link.take_secret().or_cannot(cannot)?;
        let key = WrappingKey::from_raw(&*key).map_err(|e| CommandError::new(e.to_string()))?;
        pool.dsl().take_wrapping_key(&root, key).or_cannot(cannot)?;
    }
    // Errors that no one has seen yet must still appear in `zpool status`.
    let errors = take_errors(&mut link).or_cannot(cannot)?;
    pool.spa().vdevs().add_errors(&errors);
    // With the keys loaded, or encrypted file systems could not be opened below.
    let holder = Holder::new(pool, life);
    let all = holder.mounts().take(&mut link);
    all.map_err(|e| CommandError::new(format!("{}: {e}", cannot())))?;
    // A newer protocol would send more data, without which this process could not continue.
    if link.take().or_cannot(cannot)? != END {
        return Err(CommandError::new(format!("{}: more came than is known", cannot())).into());
    }
    link.put(WHOLE)
        .and_then(|()| link.flush())
        .or_cannot(cannot)?;
    use io::ErrorKind::{ConnectionReset, UnexpectedEof};
    match link.take() {
        Ok(GO_ON) => {}
        // The old process would have killed this one before continuing itself.
        Err(e) if matches!(e.kind(), UnexpectedEof | ConnectionReset) => {}
        Ok(_) => return Err(CommandError::new(cannot()).into()),
        Err(e) => return Err(e).or_cannot(cannot),
    }
    // Only now: until the last message the old process might have continued itself.
    holder.mounts().begin();
    // Without it the old process's number is shown.
    let _ = listener.claim();
    let _ = rustix::process::configure_io_flusher_behavior(false);
    Ok((holder, listener))
}

fn take_errors(link: &mut Link) -> io::Result<Vec<VdevErrors>> {
    let mut errors = Vec::new();
    for _ in 0..link.take()? {
        errors.push(VdevErrors {
            guid: link.take()?,
            reads: link.take()?,
            writes: link.take()?,
            checksums: link.take()?,
            too_many: link.take()? != 0,
        });
    }
    Ok(errors)
}

fn take_facts(session: &mut Session, link: &mut Link) -> io::Result<(Taken, Life)> {
    let taken = Taken {
        name: link.take_text()?,
        guid: link.take()?,
        writable: link.take_bool()?,
        export: link.take_bool()?,
    };
    let life = match link.take_bool()? {
        true => Life::Imported,
        false => Life::Mounts,
    };
    for _ in 0..link.take()? {
        session
            .search
            .push(PathBuf::from(OsString::from_vec(link.take_bytes()?)));
    }
    for _ in 0..link.take()? {
        let (name, value) = (link.take_text()?, link.take_text()?);
        // A tunable that this version does not have any more is ignored.
        if zuse::tunable::tunable(&name).is_some() {
            session.tuned.push((name, value));
        }
    }
    Ok((taken, life))
}

//! A process that holds a pool for its mounts.
//!
//! It serves the mounts, listens on the pool's socket and runs what arrives there against the open
//! pool, each command on a thread of its own. It ends when the last mount is gone, on SIGINT or
//! SIGTERM, or when a command closed the pool.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use zuse::{Pool, Result};
use zuse_mount::{Change, MountServer, PoolMounts, ServeError, ServerOptions};

use crate::error::{CommandError, Outcome, explain};
use crate::interruption::is_deserted;
use crate::session::Session;
use crate::state::State;
use crate::ui::Ui;
use crate::users;
use crate::wire;

/// How often it looks whether mounts are gone.
const TICK: Duration = Duration::from_millis(100);

/// How long the end of a command waits for the kernel to drop what the command has changed.
const SETTLE: Duration = Duration::from_secs(10);
/// Commands that are served at the same time.
const MOST_COMMANDS: usize = 64;
/// Connections at the same time, those included that have not said yet what they want, or wait for
/// their turn.
const MOST_CONNECTIONS: usize = 256;
/// What helps when a pool will not run again.
pub const GIVE_UP: &str = "'zpool export -f' gives up what was not synced, and ends the mounts";
/// How long commands may go on after the last mount is gone.
const GRACE: Duration = Duration::from_secs(600);

/// A pool with its mounts.
pub struct Holder {
    pool: Arc<Pool>,
    mounts: Arc<PoolMounts>,
    ending: AtomicBool,
    interrupted: AtomicBool,
    /// It ends: no command begins any more.
    over: AtomicBool,
    commands: AtomicUsize,
    connections: Arc<AtomicUsize>,
}

impl Holder {
    /// Holds a pool.
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        // From here on 'zpool clear' finds a way in.
        pool.set_patient(true);
        Arc::new(Self {
            mounts: PoolMounts::new(pool.clone()),
            pool,
            ending: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            commands: AtomicUsize::new(0),
            connections: Arc::default(),
        })
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Mounts a dataset or snapshot with what is below it.
    pub fn mount(&self, dataset: &str, mountpoint: &Path, options: &ServerOptions) -> Outcome {
        let mounted = self.mounts.mount(dataset, mountpoint, options);
        mounted.map(drop).map_err(|error| {
            let cannot = format!("cannot mount '{dataset}'");
            match error {
                ServeError::Pool(error) => explain(&cannot, &error, false),
                ServeError::Mount(error) => CommandError::new(format!("{cannot}: {error}"))
                    .hint("'zuse ls', 'zuse cat' and 'zuse cp' work without a mount"),
            }
            .into()
        })
    }

    /// Lets a child that is missing in its parent's mount appear there again. False if it is no
    /// such child, or its key is still not loaded.
    pub fn mount_child(&self, dataset: &str) -> bool {
        self.mounts.is_missing_child(dataset) && self.mounts.mount_child(dataset)
    }

    /// What is mounted where; children of mounts included.
    pub fn mounted(&self) -> Vec<(String, PathBuf)> {
        let mut out = Vec::new();
        for server in self.mounts.servers().iter().filter(|s| !s.is_over()) {
            out.push((server.dataset(), server.mount_point().to_owned()));
            let children = server.children().into_iter();
            out.extend(children.filter_map(|c| server.path_of(&c).map(|p| (c, p))));
        }
        out
    }

    /// Does what makes the kernel write its dirty pages, unless the pool is suspended or gets so
    /// meanwhile: then it goes on in the background, until the pool goes on or is given up, and the
    /// caller hears why.
    fn while_running<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if let Some(error) = self.pool.suspended() {
            return Err(error);
        }
        let (send, receive) = std::sync::mpsc::channel();
        let me = self.clone();
        std::thread::Builder::new()
            .name("zuse-unmount".into())
            .spawn(move || {
                let _ = send.send(work(&me));
            })
            .map_err(|e| zuse::Error::refused(zuse::Errno::AGAIN, format!("no thread: {e}")))?;
        loop {
            match receive.recv_timeout(TICK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(error) = self.pool.suspended() {
                        return Err(error);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(zuse::Error::refused(
                        zuse::Errno::IO,
                        "the unmount panicked",
                    ));
                }
            }
        }
    }

    /// Unmounts by dataset name or mount point. False if there is no such mount.
    pub fn unmount(self: &Arc<Self>, what: &OsStr, force: bool) -> Outcome<bool> {
        let fits = |s: &MountServer| {
            what.to_str() == Some(s.dataset().as_str()) || s.mount_point().as_os_str() == what
        };
        let found: Vec<_> = self
            .mounts
            .servers()
            .into_iter()
            .filter(|s| fits(s))
            .collect();
        for server in &found {
            let one = server.clone();
            self.while_running(move |me| me.mounts.end(&one, force))
                .map_err(|error| {
                    let said = explain("cannot unmount", &error, false);
                    match error {
                        zuse::Error::Suspended { .. } => said.hint(GIVE_UP),
                        _ => said.hint("leave the directory, or use -f"),
                    }
                })?;
        }
        if let Some(child) = what
            .to_str()
            .filter(|d| found.is_empty() && self.mounts.is_child(d))
        {
            let child = child.to_owned();
            if !force {
                self.check_unused(std::slice::from_ref(&child))?;
            }
            self.while_running(move |me| me.mounts.unmount_child(&child, force))
                .map_err(|error| {
                    let said = explain("cannot unmount", &error, false);
                    match error {
                        zuse::Error::Suspended { .. } => said.hint(GIVE_UP),
                        _ => said,
                    }
                })?;
            return Ok(true);
        }
        Ok(!found.is_empty())
    }

    /// Unmounts everything. A suspended pool refuses, even one that is suspended only by what the
    /// unmount writes.
    pub fn unmount_all(self: &Arc<Self>, force: bool) -> Result<()> {
        self.while_running(move |me| me.end_all(force))
    }

    fn end_all(&self, force: bool) -> Result<()> {
        self.mounts
            .servers()
            .iter()
            .rev()
            .try_for_each(|s| self.mounts.end(s, force))
    }

    /// Unmounts everything, come what may: a pool that is suspended, or gets so, is given up.
    pub fn abandon(self: &Arc<Self>) {
        for _ in 0..2 {
            self.pool.give_up();
            let me = self.clone();
            // The second round: the pool was suspended during the first one, and what waited has
            // its error now.
            let done = std::thread::spawn(move || me.end_all(true).is_ok());
            while !done.is_finished() {
                self.pool.give_up();
                std::thread::sleep(TICK / 4);
            }
            if done.join().unwrap_or(false) {
                return;
            }
        }
    }

    /// Refuses if a process is in one of these datasets, where they appear in mounts.
    pub fn check_unused(&self, datasets: &[String]) -> Outcome {
        let mounted = self.mounted().into_iter();
        let dirs: Vec<PathBuf> = mounted
            .filter(|(name, _)| datasets.contains(name))
            .map(|(_, dir)| dir)
            .collect();
        let Some(user) = users::first_of(&dirs) else {
            return Ok(());
        };
        let dir = dirs.iter().find(|dir| user.path.starts_with(dir));
        let dir = dir.map_or_else(String::new, |dir| dir.display().to_string());
        Err(
            CommandError::new(format!("cannot unmount '{dir}': pool or dataset is busy"))
                .hint(user.to_string())
                .hint("'-f' goes on all the same")
                .into(),
        )
    }

    /// Ends mounts that somebody else took away and that go on elsewhere. Gives what there is to
    /// say.
    pub fn end_gone(self: &Arc<Self>) -> Outcome<Vec<String>> {
        self.while_running(|me| me.mounts.end_gone())
            .map_err(|error| explain("cannot end an earlier mount", &error, false))?;
        Ok(self.mounts.take_said())
    }

    /// What unmounting had to do beside.
    pub fn take_said(&self) -> Vec<String> {
        self.mounts.take_said()
    }

    /// Lets the process end when the command that is running is done.
    pub fn end(&self) {
        self.ending.store(true, SeqCst);
    }

    /// Tells the mounts that files were changed past them.
    pub fn touched(&self, dataset: &str, change: Change<'_>) {
        for server in self.mounts.servers() {
            server.touched(dataset, change);
        }
    }

    /// Waits until the kernel has heard of what was changed past the mounts, so that who waited for
    /// a command sees what it did. An invalidation may wait for a page that is being read, so not
    /// beyond the pool's suspension nor for ever.
    fn settle(&self) {
        self.mounts.tell_block_counts();
        let until = Instant::now() + SETTLE;
        for server in self.mounts.servers() {
            while !server.is_over()
                && !server.settle_cache_for(TICK)
                && self.pool.suspended().is_none()
                && Instant::now() < until
            {}
        }
    }

    /// Whether a dataset is in a mount.
    pub fn serves(&self, dataset: &str) -> bool {
        self.mounts.servers().iter().any(|s| s.serves(dataset))
    }

    /// Listens, until there is nothing left to hold. The pool is still open afterwards unless a
    /// command closed it; then true is returned.
    pub fn run(self: &Arc<Self>, listener: wire::Listener, state: &State) -> Outcome<bool> {
        let signals = signal_hook::iterator::Signals::new([2, 15, 1])?;
        let handle = signals.handle();
        let me = self.clone();
        let watcher = std::thread::Builder::new()
            .name("zuse-signals".into())
            .spawn(move || {
                let mut signals = signals;
                for _ in signals.forever() {
                    me.interrupted.store(true, SeqCst);
                    me.end();
                }
            })?;
        let listener = Arc::new(listener);
        let (me, theirs, state) = (self.clone(), Arc::downgrade(&listener), state.clone());
        std::thread::Builder::new()
            .name("zuse-socket".into())
            .spawn(move || {
                while let Some(listener) = theirs.upgrade() {
                    match listener.accept_for(TICK) {
                        Ok(Some(stream)) => me.serve(stream, &state),
                        Ok(None) => {}
                        Err(_) => std::thread::sleep(TICK),
                    }
                }
            })?;
        loop {
            std::thread::sleep(TICK);
            for server in self.mounts.servers().iter().filter(|s| s.is_over()) {
                let _ = self.mounts.end(server, false);
            }
            let busy = self.commands.load(SeqCst) > 0;
            let left = !self.mounts.servers().is_empty();
            if self.ending.load(SeqCst) && (!busy || self.interrupted.load(SeqCst))
                || !left && !busy
            {
                break;
            }
        }
        self.over.store(true, SeqCst);
        let closed = self.ending.load(SeqCst) && !self.interrupted.load(SeqCst);
        // Nobody comes in any more: who tries now finds no socket and waits for the devices.
        drop(listener);
        self.abandon();
        let until = Instant::now() + GRACE;
        while self.commands.load(SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(TICK);
        }
        handle.close();
        let _ = watcher.join();
        self.pool.set_mounts(None);
        Ok(closed)
    }

    fn serve(self: &Arc<Self>, stream: std::os::unix::net::UnixStream, state: &State) {
        // Who is turned away finds that the holder is there still, and comes again.
        let Some(connection) = Connection::new(&self.connections) else {
            return;
        };
        let (me, state) = (self.clone(), state.clone());
        let thread = std::thread::Builder::new().name("zuse-command".into()).spawn(move || {
            let _connection = connection;
            let mut stream = stream;
            let Ok((request, streams)) = wire::receive(&mut stream) else { return };
            let Some(_running) = Running::when_possible(&me, &stream) else { return };
            if wire::take(&mut stream).is_err() {
                return;
            }
            let argv: Vec<OsString> = request.argv.into_iter().map(OsString::from_vec).collect();
            let cwd = PathBuf::from(OsStr::from_bytes(&request.cwd));
            let holder = me.clone();
            let mut session = Session::new(Ui::new(streams), cwd, state, Some(me));
            session.asked_by(stream.try_clone().ok().map(Arc::new));
            let run = std::panic::AssertUnwindSafe(|| crate::execute(&argv, &mut session));
            let code = match std::panic::catch_unwind(run) {
                Ok(crate::Executed::Done(code)) => code,
                Ok(crate::Executed::Elsewhere(_)) => {
                    session.ui.say("that concerns pools which different processes hold: run it for one pool at a time");
                    1
                }
                Err(_) => {
                    let how = match holder.pool.suspended() {
                        Some(why) => why.to_string(),
                        None => "the mount goes on".to_owned(),
                    };
                    session.ui.say(format!("internal error: the command panicked; {how}"));
                    1
                }
            };
            drop(session);
            holder.settle();
            let _ = wire::reply(&mut stream, code);
        });
        // Without a thread the connection is closed, and counted no more.
        drop(thread);
    }
}

/// Counts a connection.
struct Connection(Arc<AtomicUsize>);

impl Connection {
    /// None if there are too many.
    fn new(all: &Arc<AtomicUsize>) -> Option<Self> {
        let counted = Self(all.clone());
        (all.fetch_add(1, SeqCst) < MOST_CONNECTIONS).then_some(counted)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Counts a command as running.
struct Running(Arc<Holder>);

impl Running {
    /// Waits until one more command may run; none if its asker is gone first, or the holder ends.
    fn when_possible(holder: &Arc<Holder>, asker: &std::os::unix::net::UnixStream) -> Option<Self> {
        loop {
            let began = holder
                .commands
                .fetch_update(SeqCst, SeqCst, |n| (n < MOST_COMMANDS).then_some(n + 1));
            let counted = began.is_ok().then(|| Self(holder.clone()));
            // While it ends its pool is being closed: who asks finds no socket next, and waits for
            // the devices.
            let ends = holder.over.load(SeqCst) || holder.ending.load(SeqCst);
            if is_deserted(asker) || ends {
                return None;
            }
            if counted.is_some() {
                return counted;
            }
            std::thread::sleep(TICK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.commands.fetch_sub(1, SeqCst);
    }
}

//! A process that holds a pool: for its mounts, or as the host of an imported pool.
//!
//! It serves the mounts, listens on the pool's socket and runs the commands that arrive there on
//! the open pool. Each command has its own thread. Its changes are on disk when it ends.
//!
//! It ends
//! - when a command closed the pool (`zpool export`),
//! - on SIGINT or SIGTERM: the mounts end first, then the pool is closed,
//! - when its life is over ([`Life`]),
//! - when no client can find it any more, because its state directory was removed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use zuse::tools::Layers as _;
use zuse::{Pool, Result};
use zuse_base::sync::Mutex;
use zuse_mount::{Change, MountServer, PoolMounts, ServeError, ServerOptions};

use crate::allocator;
use crate::error::{CommandError, Outcome, explain};
use crate::forwarded::Forwarded;
use crate::interruption::is_deserted;
use crate::session::Session;
use crate::state::State;
use crate::users;
use crate::wire;

/// Polling interval for events that wake no thread.
const TICK: Duration = Duration::from_millis(100);

/// Polling interval for failed or removed devices. Other events wake the thread.
const ATTEND: Duration = Duration::from_secs(2);

/// How long the end of a command waits for the kernel to invalidate what the command has changed.
const NOTICES_TIMEOUT: Duration = Duration::from_secs(10);
/// Commands that are served at the same time.
const MOST_COMMANDS: usize = 64;
/// Maximum number of connections, including those whose request has not arrived or waits for its
/// turn.
const MOST_CONNECTIONS: usize = 256;
/// The hint for a pool that stays suspended.
pub const GIVE_UP: &str = "'zpool export -f' gives up what was not synced, and ends the mounts";
/// How long commands may continue after the last mount has ended.
const GRACE: Duration = Duration::from_secs(600);

/// How long a process keeps a pool that no command closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// As long as something is mounted.
    Mounts,
    /// The pool is imported: for the time `zuse_host_linger` after the last mount and command.
    Imported,
}

/// A pool with its mounts.
pub struct Holder {
    pool: Arc<Pool>,
    life: Life,
    mounts: Arc<PoolMounts>,
    ending: AtomicBool,
    interrupted: AtomicBool,
    /// It is ending: no command is accepted any more.
    over: AtomicBool,
    commands: AtomicUsize,
    /// How many commands have begun.
    begun: AtomicUsize,
    connections: Arc<AtomicUsize>,
    /// Processes that ask to replace this one.
    successors: Mutex<Vec<UnixStream>>,
    /// Former guids of the pool whose names still lead here.
    former: Mutex<Vec<u64>>,
    /// The listening socket, while there is one.
    door: Mutex<Weak<wire::Listener>>,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A command has closed the pool.
    Closed,
    /// The pool is open still.
    Open,
    /// Another process has taken over everything.
    HandedOver,
    /// The pool is closed, and no process could take over.
    Lost,
}

impl Holder {
    /// Holds a pool.
    pub fn new(pool: Arc<Pool>, life: Life) -> Arc<Self> {
        // From here on 'zpool clear' can reach this process.
        pool.set_wait_for_clear(true);
        Arc::new(Self {
            mounts: PoolMounts::new(pool.clone()),
            pool,
            life,
            ending: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            commands: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            connections: Arc::default(),
            successors: Mutex::default(),
            former: Mutex::default(),
            door: Mutex::new(Weak::new()),
        })
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Mounts a dataset or snapshot and what is below it.
    pub fn mount(
        &self,
        dataset: &str,
        mountpoint: &Path,
        options: &ServerOptions,
    ) -> Outcome<Arc<MountServer>> {
        let mounted = self.mounts.mount(dataset, mountpoint, options);
        mounted.map_err(|error| {
            let cannot = format!("cannot mount '{dataset}'");
            match error {
                ServeError::Pool(error) => explain(&cannot, &error, false),
                ServeError::Mount(error) => CommandError::new(format!("{cannot}: {error}"))
                    .hint("'zuse ls', 'zuse cat' and 'zuse cp' work without a mount"),
            }
            .into()
        })
    }

    /// Whether it mounts what ZFS mounts without a command that names it.
    pub fn mounts_by_itself(&self) -> bool {
        self.life == Life::Imported
    }

    /// The mounts that it serves.
    pub fn servers(&self) -> Vec<Arc<MountServer>> {
        self.mounts.servers()
    }

    /// What is mounted.
    pub fn datasets(&self) -> Vec<String> {
        self.mounted().into_iter().map(|(name, _)| name).collect()
    }

    /// Ends one mount, unless it is busy.
    pub fn end_mount(self: &Arc<Self>, server: &Arc<MountServer>) -> Result<()> {
        let server = server.clone();
        self.while_running(move |me| me.mounts.end(&server, false))
    }

    /// Hides a file system in its parent's mount before it would appear there.
    pub fn keep_out(&self, dataset: &str) {
        self.mounts.keep_out(dataset);
    }

    /// Lets a hidden child appear in its parent's mount again. False if it is not such a child, or
    /// its key is still not loaded.
    pub fn mount_child(&self, dataset: &str) -> bool {
        self.mounts.is_missing_child(dataset) && self.mounts.mount_child(dataset)
    }

    /// All mounts with their places, including children inside mounts.
    pub fn mounted(&self) -> Vec<(String, PathBuf)> {
        let mut out = Vec::new();
        for server in self.mounts.servers().iter().filter(|s| !s.is_over()) {
            out.push((server.dataset(), server.mount_point().to_owned()));
            let children = server.children().into_iter();
            out.extend(children.filter_map(|c| server.path_of(&c).map(|p| (c, p))));
        }
        out
    }

    /// Runs work that makes the kernel write its dirty pages, unless the pool is or gets suspended.
    /// In that case the work continues in the background until the pool is resumed or given up, and
    /// the caller gets the reason.
    pub fn while_running<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if let Some(error) = self.pool.suspended() {
            return Err(error);
        }
        let (send, receive) = std::sync::mpsc::channel();
        let me = self.clone();
        std::thread::Builder::new()
            // A thread of its own: if the pool is suspended meanwhile, the work waits and the
            // caller does not.
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

    /// Unmounts by dataset name or mount point, the datasets below first. False if there is no such
    /// mount.
    pub fn unmount(self: &Arc<Self>, what: &OsStr, force: bool) -> Outcome<bool> {
        let servers = self.mounts.servers();
        let fits = |s: &&Arc<MountServer>| {
            what.to_str() == Some(s.dataset().as_str()) || s.mount_point().as_os_str() == what
        };
        let found: Vec<_> = servers.iter().filter(fits).cloned().collect();
        let mut to_unmount = found.clone();
        for top in found.iter().filter(|s| s.is_alone()) {
            let above = format!("{}/", top.dataset());
            let below = servers.iter().filter(|s| s.is_placed());
            to_unmount.extend(below.filter(|s| s.dataset().starts_with(&above)).cloned());
        }
        // The deepest mount first: a mount inside keeps the outer one busy.
        to_unmount.sort_by_key(|s| std::cmp::Reverse(s.mount_point().components().count()));
        for server in &to_unmount {
            let one = server.clone();
            self.while_running(move |me| me.mounts.end(&one, force))
                .map_err(|error| not_unmounted(server.mount_point(), &error))?;
        }
        if let Some(child) = what
            .to_str()
            .filter(|d| found.is_empty() && self.mounts.is_child(d))
        {
            let child = child.to_owned();
            if !force {
                // It is not a mount for the kernel, which therefore cannot report it as busy.
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
        if !found.is_empty() {
            self.while_running(|me| me.after_unmount())
                .map_err(|error| explain("cannot write what was unmounted", &error, false))?;
        }
        Ok(!found.is_empty())
    }

    /// Commits what was written through a mount that has ended, as unmounting guarantees. After the
    /// last mount it frees the memory of the cache.
    fn after_unmount(&self) -> Result<()> {
        // A user who unmounts may unplug the device next, so nothing may stay in memory.
        if !self.pool.is_clean() {
            self.pool.sync()?;
        }
        if self.mounts.servers().is_empty() {
            self.give_memory_back();
        }
        Ok(())
    }

    /// Empties the cache and returns its memory to the system.
    pub fn give_memory_back(&self) {
        self.pool.drop_cache();
        allocator::trim();
    }

    /// Unmounts everything. Refused for a pool that is suspended, even if it is suspended only by
    /// the writes of the unmount.
    pub fn unmount_all(self: &Arc<Self>, force: bool) -> Result<()> {
        self.while_running(move |me| me.end_all(force))
    }

    /// The same, but continues after a mount that cannot be unmounted. Returns the reasons.
    pub fn unmount_each(self: &Arc<Self>, force: bool) -> Result<Vec<CommandError>> {
        self.while_running(move |me| {
            let mut failed = Vec::new();
            // The latest first: they may be inside earlier ones.
            for server in me.mounts.servers().iter().rev() {
                if let Err(error) = me.mounts.end(server, force) {
                    failed.push(not_unmounted(server.mount_point(), &error));
                }
            }
            Ok(failed)
        })
    }

    fn end_all(&self, force: bool) -> Result<()> {
        self.mounts
            .servers()
            .iter()
            .rev()
            .try_for_each(|s| self.mounts.end(s, force))
    }

    /// Unmounts everything in any case: a pool that is or gets suspended is given up.
    pub fn abandon(self: &Arc<Self>) {
        for _ in 0..2 {
            // First: an unmount writes dirty pages, and would wait for a suspended pool.
            self.pool.give_up();
            let me = self.clone();
            // A second attempt: the pool was suspended during the first one, and its waiting
            // operations have failed by now.
            let done = std::thread::spawn(move || me.end_all(true).is_ok());
            while !done.is_finished() {
                // In each round: the pool may get suspended by what that thread writes.
                self.pool.give_up();
                std::thread::sleep(TICK / 4);
            }
            if done.join().unwrap_or(false) {
                return;
            }
        }
    }

    /// Those of the datasets that are mounted, with their places.
    fn mounted_of(&self, datasets: &[String]) -> Vec<(String, PathBuf)> {
        // Both lists may be long: a hundred thousand snapshots, ten thousand mounts.
        let wanted: HashSet<&String> = datasets.iter().collect();
        let mut mounted = self.mounted();
        mounted.retain(|(name, _)| wanted.contains(name));
        mounted
    }

    /// Those of the datasets that a process uses where they are mounted.
    pub fn used(&self, datasets: &[String]) -> Vec<String> {
        let mut mounted = self.mounted_of(datasets);
        mounted.retain(|(_, dir)| users::first_of(std::slice::from_ref(dir)).is_some());
        mounted.into_iter().map(|(name, _)| name).collect()
    }

    /// Refuses if a process uses one of these datasets where they appear in mounts.
    pub fn check_unused(&self, datasets: &[String]) -> Outcome {
        let mounted = self.mounted_of(datasets).into_iter();
        let dirs: Vec<PathBuf> = mounted.map(|(_, dir)| dir).collect();
        let Some(user) = users::first_of(&dirs) else {
            return Ok(());
        };
        let holds = dirs.iter().filter(|dir| user.path.starts_with(dir));
        let dir = holds.max_by_key(|dir| dir.components().count());
        let dir = dir.map_or_else(String::new, |dir| dir.display().to_string());
        Err(
            CommandError::new(format!("cannot unmount '{dir}': pool or dataset is busy"))
                .hint(user.to_string())
                .hint("'-f' goes on all the same")
                .into(),
        )
    }

    /// Ends mounts that were unmounted by others, and those that continue elsewhere. Returns the
    /// messages.
    pub fn end_gone(self: &Arc<Self>) -> Outcome<Vec<String>> {
        self.while_running(|me| me.mounts.end_gone())
            .map_err(|error| explain("cannot end an earlier mount", &error, false))?;
        Ok(self.mounts.take_messages())
    }

    /// Messages of unmounting.
    pub fn take_messages(&self) -> Vec<String> {
        self.mounts.take_messages()
    }

    /// Lets the process end after the running command.
    pub fn end(&self) {
        self.ending.store(true, SeqCst);
        // After the flag: the main thread checks it when it wakes.
        self.mounts.wakeup().wake();
    }

    /// Tells the mounts that files were changed by a command.
    pub fn touched(&self, dataset: &str, change: Change<'_>) {
        for server in self.mounts.servers() {
            server.touched(dataset, change);
        }
    }

    /// Commits the changes of a command, as its end does if the command opened the pool itself.
    fn write(self: &Arc<Self>, command: &mut Forwarded) {
        let closed = self.ending.load(SeqCst) && !self.interrupted.load(SeqCst);
        if !command.session.writes || closed || self.pool.is_clean() {
            return;
        }
        if let Err(error) = self.while_running(|me| me.pool.sync()) {
            let said = explain("cannot write what the command has changed", &error, true);
            crate::say_error(&mut command.session.ui, &said);
            // A command whose change is not on disk must not report success.
            command.code = command.code.max(1);
        }
    }

    /// Waits until the kernel has been told of a command's changes, so that the user sees them
    /// afterwards. An invalidation may wait for a page that is being read. So this ends with the
    /// pool's suspension, or after a time limit.
    fn wait_for_notices(&self) {
        self.mounts.notify_block_counts();
        let until = Instant::now() + NOTICES_TIMEOUT;
        for server in self.mounts.servers() {
            while !server.is_over()
                && !server.wait_for_notices_for(TICK)
                && self.pool.suspended().is_none()
                && Instant::now() < until
            {}
        }
    }

    /// Whether a dataset is in a mount.
    pub fn serves(&self, dataset: &str) -> bool {
        self.mounts.servers().iter().any(|s| s.serves(dataset))
    }

    /// The mounts of the pool.
    pub fn mounts(&self) -> &Arc<PoolMounts> {
        &self.mounts
    }

    /// How long it keeps the pool.
    pub fn life(&self) -> Life {
        self.life
    }

    /// A process asks to replace this one.
    pub fn ask_to_hand_over(&self, mut successor: UnixStream) {
        if wire::hear(&mut successor).is_ok() {
            // The main thread hands over, because it owns the session.
            self.successors.lock().push(successor);
            self.mounts.wakeup().wake();
        }
    }

    /// Accepts no command any more, and waits for the running ones.
    pub fn stop_commands(&self, limit: Duration) -> std::result::Result<(), usize> {
        self.over.store(true, SeqCst);
        // The listener must see that before it accepts another connection.
        let door = self.door.lock().upgrade();
        if let Some(door) = door {
            door.wake();
        }
        let until = Instant::now() + limit;
        loop {
            match self.commands.load(SeqCst) {
                0 => return Ok(()),
                left if Instant::now() >= until => {
                    self.let_in();
                    return Err(left);
                }
                _ => std::thread::sleep(TICK / 4),
            }
        }
    }

    /// Commands begin again.
    pub fn let_in(&self) {
        self.over.store(false, SeqCst);
    }

    /// Listens until there is no reason to hold the pool.
    pub fn run(
        self: &Arc<Self>,
        listener: wire::Listener,
        session: &mut Session,
    ) -> Outcome<Ended> {
        // Before the first connection: an early signal must not end the process half-way.
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
        // Weak: the socket must close when the main thread drops it.
        *self.door.lock() = Arc::downgrade(&listener);
        let (me, theirs) = (self.clone(), Arc::downgrade(&listener));
        let state = session.state.clone();
        std::thread::Builder::new()
            .name("zuse-socket".into())
            .spawn(move || {
                while let Some(listener) = theirs.upgrade() {
                    if me.over.load(SeqCst) {
                        // A client that arrives now waits for the next listener.
                        std::thread::sleep(TICK / 4);
                        continue;
                    }
                    match listener.next_peer() {
                        Ok(Some(stream)) => me.serve(stream, &state),
                        Ok(None) => me.mounts.wakeup().wake(),
                        Err(_) => std::thread::sleep(TICK),
                    }
                }
            })?;
        while let Some(successor) = self.watch(&listener, session) {
            if let Some(ended) = self.hand_over(successor, &listener, session) {
                handle.close();
                let _ = watcher.join();
                return Ok(ended);
            }
        }
        // Before the socket closes: a command that was just accepted must not begin.
        self.over.store(true, SeqCst);
        let closed = self.ending.load(SeqCst) && !self.interrupted.load(SeqCst);
        // No command is accepted any more: a client finds no socket, and waits for the devices.
        listener.wake();
        drop(listener);
        self.abandon();
        // Commands end with an error when the pool is closed. A command that does not must not keep
        // the process for ever.
        let until = Instant::now() + GRACE;
        while self.commands.load(SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(TICK);
        }
        handle.close();
        let _ = watcher.join();
        self.pool.set_mounts(None);
        Ok(match closed {
            true => Ended::Closed,
            false => Ended::Open,
        })
    }

    /// Notes a former guid of the pool. Its names are removed once they are not needed.
    pub fn was_found_by(&self, guid: u64) {
        self.former.lock().push(guid);
    }

    /// Removes the names of former guids. Another process may use the name of an old guid
    /// meanwhile, for a copy of the pool.
    fn give_up_former(&self, now: u64, listener: &wire::Listener, session: &Session) {
        let former = std::mem::take(&mut *self.former.lock());
        for old in former {
            // The socket first: it is the one that tells whose the name is.
            if old != now && listener.give_up(&session.state.socket(old)) {
                let _ = std::fs::remove_file(session.state.held_name(old));
            } else if old == now {
                self.former.lock().push(old);
            }
        }
    }

    /// Cleans up after mounts that others have unmounted, until there is a reason to end or a
    /// process asks to take over.
    fn watch(self: &Arc<Self>, listener: &wire::Listener, session: &Session) -> Option<UnixStream> {
        let (mut idle_since, mut was_idle, mut begun) = (Instant::now(), false, 0);
        let (mut attended, mut changes) = (Instant::now(), 0);
        let mut guid = self.pool.guid();
        let mut wait = TICK;
        loop {
            self.mounts.wakeup().wait_for(wait);
            let now = self.pool.guid();
            // The pool has a new guid, and the command that changed it has created the new names.
            if now != guid && session.state.socket(now).exists() {
                listener.go_by(&session.state.socket(now));
                self.give_up_former(now, listener, session);
                guid = now;
            }
            if changes != self.pool.spa().tree_changes() {
                changes = self.pool.spa().tree_changes();
                // Devices were added or removed. The cache file must name the present ones for the
                // next open.
                let _ = session.remember_again(&self.pool, self.pool.guid());
            }
            if attended.elapsed() >= ATTEND && self.pool.needs_attention() {
                attended = Instant::now();
                // If it fails it is tried again.
                let _ = self.while_running(|me| me.pool.handle_failed_devices());
            }
            let over: Vec<_> = self.mounts.servers();
            let over: Vec<_> = over.into_iter().filter(|s| s.is_over()).collect();
            for server in &over {
                let _ = self.mounts.end(server, false);
            }
            if !over.is_empty() && self.pool.suspended().is_none() {
                let _ = self.while_running(|me| me.after_unmount());
            }
            let busy = self.commands.load(SeqCst) > 0;
            // `export` waits for the running commands; a signal does not.
            if self.ending.load(SeqCst) && (!busy || self.interrupted.load(SeqCst)) {
                return None;
            }
            // After the check for the end: a pool that is about to be closed is not handed over.
            if let Some(successor) = self.successors.lock().pop() {
                return Some(successor);
            }
            let scans = self.pool.is_scanning() && self.life == Life::Imported;
            // A suspended scan makes no progress, and must not keep the process for ever.
            let scans = scans && self.pool.suspended().is_none();
            let idle = !busy && !scans && self.mounts.servers().is_empty();
            // A command may have begun and ended between two checks. Then the process was not idle.
            let before = std::mem::replace(&mut begun, self.begun.load(SeqCst));
            if !idle || !was_idle || before != begun {
                idle_since = Instant::now();
            }
            was_idle = idle;
            // The socket was removed: no client can reach this process any more.
            let lost = !busy && self.life == Life::Imported && !listener.is_there();
            let patience = self.patience().saturating_sub(idle_since.elapsed());
            let patient = !patience.is_zero();
            let done = idle && !patient || lost && self.unmount_all(false).is_ok();
            if done && self.shuts_the_door() {
                return None;
            }
            wait = match () {
                () if !over.is_empty() || done => TICK,
                () if lost => TICK * 10,
                () if idle => patience.min(ATTEND),
                () => ATTEND,
            };
        }
    }

    /// Accepts no command any more, unless one has begun since the check.
    fn shuts_the_door(&self) -> bool {
        self.over.store(true, SeqCst);
        // A command that was counted before it could see the flag has begun.
        let is_free = self.commands.load(SeqCst) == 0 && self.mounts.servers().is_empty();
        if !is_free {
            self.over.store(false, SeqCst);
        }
        is_free
    }

    /// How long it continues without work.
    fn patience(&self) -> Duration {
        match (self.life, self.pool.limits().host_linger) {
            (Life::Mounts, _) => Duration::ZERO,
            (Life::Imported, None) => Duration::MAX,
            (Life::Imported, Some(seconds)) => Duration::from_secs(seconds.into()),
        }
    }

    fn serve(self: &Arc<Self>, stream: UnixStream, state: &State) {
        // A client that is rejected sees that the holder still exists, and tries again.
        let Some(connection) = Connection::new(&self.connections) else {
            return;
        };
        let (me, state) = (self.clone(), state.clone());
        let thread = std::thread::Builder::new()
            .name("zuse-command".into())
            .spawn(move || {
                let _connection = connection;
                let may_run = |client: &UnixStream| Running::when_possible(&me, client);
                let ran = Forwarded::run(stream, &state, Some(&me), may_run);
                if let Some((mut command, _running)) = ran {
                    // Before the exit code: it promises that the changes are on disk.
                    me.write(&mut command);
                    // Before the answer: the next `ls` must see the command's changes.
                    me.wait_for_notices();
                    command.end();
                }
            });
        // Without a thread the connection is closed and no longer counted.
        drop(thread);
    }
}

/// Why a mount could not be unmounted.
pub fn not_unmounted(at: &Path, error: &zuse::Error) -> CommandError {
    let cannot = format!("cannot unmount '{}'", at.display());
    match error {
        zuse::Error::Suspended { .. } => explain(&cannot, error, false).hint(GIVE_UP),
        e if e.is(zuse::Errno::BUSY) => {
            let busy = CommandError::new(format!("{cannot}: pool or dataset is busy"));
            let user = users::first_of(std::slice::from_ref(&at.to_owned()));
            let busy = user.iter().fold(busy, |e, user| e.hint(user.to_string()));
            busy.hint("leave the directory, or use -f")
        }
        e => explain(&cannot, e, false),
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
    /// Waits until another command may run. None if its client disconnects first, or the holder
    /// ends.
    fn when_possible(holder: &Arc<Holder>, client: &UnixStream) -> Option<Self> {
        loop {
            let began = holder
                .commands
                .fetch_update(SeqCst, SeqCst, |n| (n < MOST_COMMANDS).then_some(n + 1));
            let counted = began.is_ok().then(|| Self(holder.clone()));
            if counted.is_some() {
                // Counted before the flags are checked: `shuts_the_door` must see it.
                holder.begun.fetch_add(1, SeqCst);
            }
            // An ending holder closes its pool. The caller then finds no socket, and waits for the
            // devices.
            let ends = holder.over.load(SeqCst) || holder.ending.load(SeqCst);
            if is_deserted(client) || ends {
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
        self.0.mounts.wakeup().wake();
    }
}

//! A process that holds a pool for its mounts.
//!
//! It serves the mounts, listens on the pool's socket and runs what arrives there against the open pool, each command on
//! a thread of its own. It ends when the last mount is gone, on SIGINT or SIGTERM, or when a command closed the pool.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zuse::{Errno, Error, Mounts, Pool, Result};
use zuse_mount::{Change, MountServer, ServeError, ServerOptions};

use crate::error::{CommandError, Outcome, explain};
use crate::session::Session;
use crate::state::State;
use crate::tree::PoolTree;
use crate::ui::Ui;
use crate::wire;

/// How often it looks whether mounts are gone.
const TICK: Duration = Duration::from_millis(100);
/// Commands that are served at the same time.
const MOST_COMMANDS: usize = 64;
/// How long commands may go on after the last mount is gone.
const GRACE: Duration = Duration::from_secs(600);

/// A pool with its mounts.
pub struct Holder {
    pool: Arc<Pool>,
    mounts: Mutex<Vec<Arc<MountServer>>>,
    ending: AtomicBool,
    interrupted: AtomicBool,
    commands: AtomicUsize,
}

impl Holder {
    /// Holds a pool.
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        let holder = Arc::new(Self {
            pool: pool.clone(),
            mounts: Mutex::default(),
            ending: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            commands: AtomicUsize::new(0),
        });
        pool.set_mounts(Some(Arc::new(Told(Arc::downgrade(&holder)))));
        holder
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<MountServer>>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn servers(&self) -> Vec<Arc<MountServer>> {
        self.lock().clone()
    }

    /// Mounts a dataset or snapshot with what is below it.
    pub fn mount(&self, dataset: &str, mountpoint: &Path, options: &ServerOptions) -> Outcome {
        let tree = Arc::new(PoolTree(self.pool.clone()));
        let server =
            MountServer::mount(tree, dataset, mountpoint, options).map_err(
                |error| match error {
                    ServeError::Pool(error) => {
                        explain(&format!("cannot mount '{dataset}'"), &error, false)
                    }
                    ServeError::Mount(error) => {
                        CommandError::new(format!("cannot mount '{dataset}': {error}"))
                    }
                },
            )?;
        self.lock().push(Arc::new(server));
        Ok(())
    }

    /// What is mounted where; children of mounts included.
    pub fn mounted(&self) -> Vec<(String, PathBuf)> {
        let mut out = Vec::new();
        for server in self.servers().iter().filter(|s| !s.is_over()) {
            out.push((server.dataset(), server.mount_point().to_owned()));
            out.extend(
                server
                    .children()
                    .into_iter()
                    .filter_map(|c| server.path_of(&c).map(|p| (c, p))),
            );
        }
        out
    }

    /// Unmounts what is mounted as a whole: by dataset name or mount point. False if there is no such mount.
    pub fn unmount(&self, what: &OsStr, force: bool) -> Outcome<bool> {
        let fits = |s: &MountServer| {
            what.to_str() == Some(s.dataset().as_str()) || s.mount_point().as_os_str() == what
        };
        let found: Vec<_> = self.servers().into_iter().filter(|s| fits(s)).collect();
        for server in &found {
            self.end_mount(server, force).map_err(|e| {
                CommandError::new(format!(
                    "cannot unmount '{}': {e}",
                    server.mount_point().display()
                ))
                .hint("leave the directory, or use -f")
            })?;
        }
        Ok(!found.is_empty())
    }

    /// Unmounts everything.
    pub fn unmount_all(&self, force: bool) -> Result<()> {
        self.servers()
            .iter()
            .rev()
            .try_for_each(|s| self.end_mount(s, force))
    }

    fn end_mount(&self, server: &Arc<MountServer>, force: bool) -> Result<()> {
        let busy = |e: zuse_mount::MountError| Error::refused(Errno::BUSY, e.to_string());
        if !server.is_over() {
            if force {
                if !server.unmount_or_detach().map_err(busy)? {
                    // Who is still inside gets errors from now on.
                    server.let_go();
                    self.lock().retain(|s| !Arc::ptr_eq(s, server));
                    return Ok(());
                }
            } else {
                server.unmount().map_err(busy)?;
            }
        }
        let done = server.finish();
        self.lock().retain(|s| !Arc::ptr_eq(s, server));
        done.map_err(|e| Error::refused(Errno::IO, e.to_string()))
    }

    /// Lets the process end when the command that is running is done.
    pub fn end(&self) {
        self.ending.store(true, SeqCst);
    }

    /// Tells the mounts that files were changed past them.
    pub fn touched(&self, dataset: &str, change: Change<'_>) {
        for server in self.servers() {
            server.touched(dataset, change);
        }
    }

    /// Whether a dataset is in a mount.
    pub fn serves(&self, dataset: &str) -> bool {
        self.servers().iter().any(|s| s.serves(dataset))
    }

    /// Listens, until there is nothing left to hold. The pool is still open afterwards unless a command closed it; then
    /// true is returned.
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
            for server in self.servers().iter().filter(|s| s.is_over()) {
                let _ = server.finish();
                self.lock().retain(|s| !Arc::ptr_eq(s, server));
            }
            let busy = self.commands.load(SeqCst) > 0;
            let left = !self.lock().is_empty();
            if self.ending.load(SeqCst) && (!busy || self.interrupted.load(SeqCst))
                || !left && !busy
            {
                break;
            }
        }
        let closed = self.ending.load(SeqCst) && !self.interrupted.load(SeqCst);
        // Nobody comes in any more: who tries now finds no socket and waits for the devices.
        drop(listener);
        let _ = self.unmount_all(true);
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
        while self.commands.load(SeqCst) >= MOST_COMMANDS {
            std::thread::sleep(TICK);
        }
        self.commands.fetch_add(1, SeqCst);
        let (me, state) = (self.clone(), state.clone());
        let thread = std::thread::Builder::new().name("zuse-command".into()).spawn(move || {
            let _running = Running(me.clone());
            let mut stream = stream;
            let Ok((request, streams)) = wire::receive(&mut stream) else { return };
            let argv: Vec<OsString> = request.argv.into_iter().map(OsString::from_vec).collect();
            let cwd = PathBuf::from(OsStr::from_bytes(&request.cwd));
            let mut session = Session::new(Ui::new(streams), cwd, state, Some(me));
            let run = std::panic::AssertUnwindSafe(|| crate::execute(&argv, &mut session));
            let code = match std::panic::catch_unwind(run) {
                Ok(crate::Executed::Done(code)) => code,
                Ok(crate::Executed::Elsewhere(_)) => {
                    session.ui.say("that concerns pools which different processes hold: run it for one pool at a time");
                    1
                }
                Err(_) => {
                    session.ui.say("internal error: the command panicked; the mount goes on");
                    1
                }
            };
            drop(session);
            let _ = wire::reply(&mut stream, code);
        });
        if thread.is_err() {
            self.commands.fetch_sub(1, SeqCst);
        }
    }
}

/// Counts a command as running.
struct Running(Arc<Holder>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.commands.fetch_sub(1, SeqCst);
    }
}

/// What the pool tells the mounts.
struct Told(std::sync::Weak<Holder>);

impl Told {
    fn each(&self, what: impl Fn(&MountServer)) {
        if let Some(holder) = self.0.upgrade() {
            holder
                .servers()
                .iter()
                .filter(|s| !s.is_over())
                .for_each(|s| what(s));
        }
    }
}

/// Runs `change` inside the gates of all these servers.
fn nest(
    servers: &[Arc<MountServer>],
    datasets: &[&str],
    change: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    match servers.split_first() {
        None => change(),
        Some((first, rest)) => first.change(datasets, || nest(rest, datasets, change)),
    }
}

impl Mounts for Told {
    fn mountpoint(&self, dataset: &str) -> Option<String> {
        let servers = self.0.upgrade()?.servers();
        let path = servers
            .iter()
            .filter(|s| !s.is_over())
            .find_map(|s| s.path_of(dataset))?;
        Some(path.to_string_lossy().into_owned())
    }

    fn while_suspended(
        &self,
        datasets: &[&str],
        change: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let servers = self.0.upgrade().map(|h| h.servers()).unwrap_or_default();
        let concerned: Vec<_> = servers
            .into_iter()
            .filter(|s| datasets.iter().any(|d| s.serves(d)))
            .collect();
        nest(&concerned, datasets, change)
    }

    fn going(&self, dataset: &str, force: bool) -> Result<()> {
        let Some(holder) = self.0.upgrade() else {
            return Ok(());
        };
        for server in holder.servers() {
            if server.dataset() == dataset {
                holder.end_mount(&server, force)?;
            } else if let Some((head, snapshot)) = dataset.split_once('@') {
                server.snapshot_going(head, snapshot.as_bytes());
            }
        }
        Ok(())
    }

    fn created(&self, dataset: &str) {
        match dataset.split_once('@') {
            Some((head, snapshot)) => self.each(|s| s.snapshot_made(head, snapshot.as_bytes())),
            None => self.each(|s| drop(s.refresh())),
        }
    }

    fn destroyed(&self, dataset: &str) {
        if !dataset.contains('@') {
            self.each(|s| drop(s.refresh()));
        }
    }

    fn renamed(&self, from: &str, to: &str) {
        if from.contains('@') {
            let head = from.split('@').next().unwrap_or_default();
            let new = to.rsplit('@').next().unwrap_or_default();
            self.each(|s| s.snapshot_made(head, new.as_bytes()));
        } else {
            self.each(|s| {
                s.renamed(from, to);
                drop(s.refresh());
            });
        }
    }

    fn properties_changed(&self, _dataset: &str) {
        self.each(|s| drop(s.refresh()));
    }
}

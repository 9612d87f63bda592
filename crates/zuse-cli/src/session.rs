//! One running command: its streams, its directory, the pools it opened.
//!
//! How a pool is found, in this order:
//! 1. This process holds it (a mount).
//! 2. This command has opened it.
//! 3. `--in` or `-d` names its devices.
//! 4. The cache file names them.
//!
//! A pool whose holder's socket answers is not opened: the command line is sent there
//! ([`Stop::Held`]). If another process holds the device locks for a moment, the command waits.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zuse::tools::Layers as _;
use zuse::{
    Environment, Errno, FoundPool, KeyMaterial, Limits, Pool, PoolAccess, PoolConfig, PoolState,
    Search, TemporaryProperties,
};

use crate::cache_file::{Extra, device_paths};
use crate::cmd::PastState;
use crate::error::{CommandError, Explain, Meaning, Outcome, Stop, explain};
use crate::forward::PAUSE;
use crate::holder::Holder;
use crate::interruption::{Guarded, Interruption, is_deserted};
use crate::state::State;
use crate::target::pool_of;
use crate::tuning::{Origin, Tuning, known, text_name};
use crate::ui::Ui;
use crate::wire;

/// How long a command waits for another process that has the pool open.
const LOCK_WAIT: Duration = Duration::from_secs(20);

/// After this time it prints a message that it waits.
const MESSAGE_AFTER: Duration = Duration::from_secs(1);

/// What a command is going to do with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Look at it.
    Read,
    /// Change it.
    Write,
}

struct Opened {
    pool: Arc<Pool>,
    /// The pool was exported before and stays so.
    export: bool,
}

/// A pool that one process closes and another one opens.
pub struct Taken {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// It was open for writing.
    pub writable: bool,
    /// The pool was exported before and stays so.
    pub export: bool,
}

/// A command at work.
pub struct Session {
    /// Its streams.
    pub ui: Ui,
    /// Its directory.
    pub cwd: PathBuf,
    /// The user's state.
    pub state: State,
    /// Where to look for pools besides the cache file.
    pub search: Vec<PathBuf>,
    /// Set in the process that holds a pool.
    pub holder: Option<Arc<Holder>>,
    /// The command line, for the pool's history.
    pub command: String,
    /// Keys given with `--key`.
    keys: Vec<KeyMaterial>,
    /// The files of these keys.
    pub key_files: Vec<PathBuf>,
    /// The state of pools to open, if it is not the newest.
    pub at: Option<PastState>,
    /// Suffix of the pool's name, if the opened state must not be mistaken for the present one.
    pub suffix: Option<&'static str>,
    /// Tunables of the command line.
    pub tuned: Vec<(String, String)>,
    /// Print figures of the opened pools at the end.
    pub stats: bool,
    /// It reads an incomplete stream.
    pub flawed: bool,
    /// Exit code of a command that has continued after a failure.
    pub worst: u8,
    /// It starts no host.
    pub no_host: bool,
    /// It changes files, which are committed in a later txg. Other changes wait for that.
    pub writes: bool,
    /// Mount what it imports.
    pub mounts: bool,
    /// Load the keys of what it imports.
    pub loads_keys: bool,
    /// Whether another process runs this command for several pools ([`crate::wire::Request`]).
    pub one_of_many: bool,
    /// This process will be the host of the pool that the command creates or imports.
    pub becoming: bool,
    /// That pool.
    kept: Option<Arc<Pool>>,
    opened: Vec<Opened>,
    /// The client of this forwarded command.
    client: Option<Arc<UnixStream>>,
}

/// Number of the user who runs this.
fn user() -> u64 {
    u64::from(rustix::process::getuid().as_raw())
}

impl Session {
    /// A command with these streams in this directory.
    pub fn new(ui: Ui, cwd: PathBuf, state: State, holder: Option<Arc<Holder>>) -> Self {
        Self {
            ui,
            cwd,
            state,
            search: Vec::new(),
            holder,
            command: String::new(),
            keys: Vec::new(),
            key_files: Vec::new(),
            at: None,
            suffix: None,
            tuned: Vec::new(),
            stats: false,
            flawed: false,
            worst: 0,
            no_host: false,
            mounts: true,
            loads_keys: false,
            writes: false,
            becoming: false,
            one_of_many: false,
            kept: None,
            opened: Vec::new(),
            client: None,
        }
    }

    /// Sets the connection to the client of this command.
    pub fn asked_by(&mut self, client: Option<Arc<UnixStream>>) {
        self.ui.asked_by(client.clone());
        self.client = client;
    }

    /// Sleeps, unless the client has disconnected.
    ///
    /// # Errors
    /// `Hangup`: the client has disconnected.
    pub fn pause(&self, time: Duration) -> Outcome {
        let until = Instant::now() + time;
        loop {
            if self.client.as_deref().is_some_and(is_deserted) {
                return Err(Stop::Hangup);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// Watches, until it is dropped, whether the user interrupts the command, by SIGINT or by
    /// disconnecting.
    ///
    /// # Errors
    /// The signal cannot be caught, or there is no thread.
    pub fn interruption(&self) -> std::io::Result<Interruption> {
        Interruption::of(self.client.as_deref())
    }

    /// The command's input, until the user interrupts it.
    ///
    /// # Errors
    /// As [`Self::interruption`].
    pub fn input(&self) -> std::io::Result<Guarded> {
        Ok(Guarded::new(
            self.ui.input.try_clone()?,
            self.interruption()?,
        ))
    }

    /// The command's bulk output, until the user interrupts it.
    ///
    /// # Errors
    /// As [`Self::interruption`].
    pub fn output(&mut self) -> std::io::Result<Guarded> {
        let out = self.ui.raw_out()?.try_clone()?;
        Ok(Guarded::new(out, self.interruption()?))
    }

    /// A path relative to the directory of the command's user.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.cwd.join(path)
    }

    /// Adds places to look for pools in.
    pub fn look_in(&mut self, places: &[PathBuf]) {
        // Without dots: messages name what is found there by this path.
        let places = places
            .iter()
            .map(|p| self.cwd.join(p).components().collect());
        let places: Vec<PathBuf> = places.collect();
        self.search.extend(places);
    }

    /// Reads keys of encrypted datasets from files.
    pub fn take_keys(&mut self, files: &[PathBuf]) -> Outcome {
        for file in files {
            if let Some(warning) = crate::keys::exposed(&self.cwd.join(file)) {
                self.ui.say(warning);
            }
            let key = crate::keys::read_file(&self.cwd.join(file))
                .or_cannot(|| format!("cannot read key file '{}'", file.display()))?;
            self.keys.push(key);
            self.key_files.push(self.cwd.join(file));
        }
        Ok(())
    }

    /// Adds a key that was given as a word.
    pub fn take_key(&mut self, key: String) {
        self.keys.push(KeyMaterial::new(key.into_bytes()));
    }

    /// Tries the given keys on a pool.
    fn unlock(&self, pool: &Pool) -> zuse::Result<()> {
        pool.try_keys(&self.keys).map(|_| ())
    }

    /// Whether keys were given.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The environment of a pool: this host, the system's clock and randomness, the tunables.
    pub fn environment(&self) -> Outcome<Environment> {
        Ok(Environment {
            host: self.state.host()?,
            limits: self.tuning()?.limits,
            ..Environment::default()
        })
    }

    /// The tunables of a pool that this command opens.
    pub fn tuning(&self) -> Outcome<Tuning> {
        Tuning::load(&self.state.tunables, &self.tuned)
    }

    /// Sets tunables of the command line: for the pools that it opens, and for the one that this
    /// process holds.
    pub fn tune(&mut self, pairs: impl IntoIterator<Item = (String, String)>) -> Outcome {
        self.tuned.extend(pairs);
        // A bad value is refused before anything is done.
        self.tuning()?;
        if let Some(holder) = self.holder.clone().filter(|_| !self.tuned.is_empty()) {
            let mut running = Tuning::of(holder.pool().limits());
            for (name, value) in &self.tuned {
                if text_name(name).is_some() {
                    // It was read when the process began.
                    continue;
                }
                running.put(known(name, "")?, value, Origin::Running, "")?;
            }
            holder
                .pool()
                .set_limits(running.limits)
                .or_cannot(|| format!("cannot tune '{}'", holder.pool().name()))?;
        }
        Ok(())
    }

    /// The pool of a dataset name.
    pub fn pool_for(&mut self, dataset: &str, need: Need) -> Outcome<Arc<Pool>> {
        if let Some(why) = crate::target::flaw(dataset) {
            return Err(CommandError::new(format!("cannot open '{dataset}': {why}")).into());
        }
        self.pool(pool_of(dataset), need)
            .map_err(|stop| match stop {
                Stop::Failed(e) if e.meaning == Meaning::NoSuchPool => CommandError {
                    message: format!("cannot open '{dataset}': dataset does not exist"),
                    ..e
                }
                .into(),
                stop => stop,
            })
    }

    /// Whether this process keeps a pool open after the command.
    pub fn holds(&self, pool: &Arc<Pool>) -> bool {
        let held = self.holder.as_ref();
        held.is_some_and(|holder| Arc::ptr_eq(holder.pool(), pool))
    }

    /// A pool by name.
    pub fn pool(&mut self, name: &str, need: Need) -> Outcome<Arc<Pool>> {
        if let Some(holder) = &self.holder
            && holder.pool().name() == name
        {
            let pool = holder.pool().clone();
            self.unlock(&pool)
                .or_cannot(|| format!("cannot open '{name}'"))?;
            return Ok(pool);
        }
        let there = self.opened.iter().find(|o| o.pool.name() == name);
        if let Some(there) = there.filter(|o| need == Need::Read || o.pool.is_writable()) {
            return Ok(there.pool.clone());
        }
        // It was read before, and is opened again for writing.
        if let Some(at) = self.opened.iter().position(|o| o.pool.name() == name) {
            let reader = self.opened.remove(at).pool;
            reader
                .close()
                .or_cannot_pool(|| format!("cannot open '{name}'"))?;
        }
        if let Some(guid) = self.held_guid(name) {
            return Err(Stop::Held(guid));
        }
        let limits = self.tuning()?.limits;
        let mut lock_wait = LockWait::new();
        loop {
            let (found, cached) = self.find(name)?;
            let guid = found.config.pool_guid;
            // In each round: the process that had the locks may have become the host.
            if wire::is_live(&self.state.socket(guid)) {
                return Err(Stop::Held(guid));
            }
            if cached && self.wants_host()? {
                crate::host::start(self, name)?;
                return Err(Stop::Held(guid));
            }
            match self.open(name, &found, cached, need, limits) {
                Err(error) if lock_wait.lasts(&error, &mut self.ui) => {}
                Err(error) if is_held(&error) => {
                    return Err(CommandError::new(format!("cannot open '{name}': {error}"))
                        .hint("wait for the other command to end, or unmount what holds the pool")
                        .into());
                }
                Err(error) => {
                    return Err(explain(&format!("cannot open '{name}'"), &error, true).into());
                }
                Ok(opened) => {
                    let pool = opened.pool.clone();
                    self.opened.push(opened);
                    return Ok(pool);
                }
            }
        }
    }

    /// Whether the pool that this command uses should get a host, which keeps it open.
    pub fn wants_host(&self) -> Outcome<bool> {
        let here = self.holder.is_some() || self.becoming || self.no_host;
        let shown = self.at.is_some() || self.suffix.is_some();
        Ok(!here && !shown && self.tuning()?.limits.host_linger != Some(0))
    }

    fn open(
        &self,
        name: &str,
        found: &FoundPool,
        cached: bool,
        need: Need,
        limits: Limits,
    ) -> zuse::Result<Opened> {
        // A reader needs no host name and no directory of its own.
        let host = match self.state.host() {
            Err(_) if need == Need::Read && !cached => zuse::Host::default(),
            Err(Stop::Failed(e)) => return Err(zuse::Error::refused(Errno::PERM, e.message)),
            Err(_) => return Err(zuse::Error::refused(Errno::PERM, "this host has no id")),
            Ok(host) => host,
        };
        let env = Environment {
            host: host.clone(),
            limits,
            ..Environment::default()
        };
        // Options of the import apply to every later command that opens the pool.
        let passing = match cached {
            true => self.state.passing_of(found.config.pool_guid).ok().flatten(),
            false => None,
        };
        let writable = need == Need::Write;
        let writable = writable && !passing.as_ref().is_some_and(|p| p.read_only);
        let ours = cached && (found.config.hostid == 0 || found.config.hostid == host.id);
        let rename = match self.suffix {
            Some(suffix) => Some(format!("{name}{suffix}")),
            None => (found.config.name != name).then(|| name.to_owned()),
        };
        if writable && self.at.is_some() {
            return Err(zuse::Error::refused(
                Errno::ROFS,
                "an older state can only be looked at ('zpool import -T' goes back to it)",
            ));
        }
        let access = PoolAccess {
            writable,
            ours,
            label_name: passing.as_ref().and_then(|p| p.label_name.clone()),
            new_name: rename,
            rewind_to: match self.at {
                Some(PastState::Txg(txg)) => Some(zuse::Txg(txg)),
                _ => None,
            },
            checkpoint: self.at == Some(PastState::Checkpoint),
            ..PoolAccess::default()
        };
        let pool = Pool::open(env, found, &access)?;
        if let Some(passing) = passing {
            pool.set_temporary_properties(for_now(&passing));
        }
        // No process could send this command a 'zpool clear'.
        pool.set_wait_for_clear(false);
        pool.dsl().set_creator(user());
        self.unlock(&pool)?;
        Ok(Opened {
            pool,
            export: writable && found.config.state == PoolState::Exported,
        })
    }

    /// The devices of a pool, and whether the cache file knows it.
    pub fn find(&self, name: &str) -> Outcome<(FoundPool, bool)> {
        if !self.search.is_empty() {
            let scan = Search::new(&self.search).run();
            let mut fits: Vec<_> = scan
                .pools
                .into_iter()
                .filter(|p| p.config.name == name && p.config.state != PoolState::Destroyed)
                .collect();
            let cached = self.state.imported()?;
            let cached = cached.get(name).map(|c| c.config.pool_guid);
            return match (fits.pop(), fits.is_empty()) {
                (Some(found), true) => {
                    let ours = cached == Some(found.config.pool_guid);
                    Ok((found, ours))
                }
                (Some(_), false) => Err(CommandError::new(format!(
                    "cannot open '{name}': more than one matching pool"
                ))
                .hint("name the devices themselves with -d instead of their directory")
                .into()),
                (None, _) => {
                    let problems = scan.problems.iter().take(3).map(ToString::to_string);
                    let none = "none of the devices named with -d belongs to it".to_owned();
                    Err(no_such_pool(name, problems.chain([none])).into())
                }
            };
        }
        let pools = self.state.imported()?;
        let Some(cached) = pools.get(name) else {
            let how =
                "'zpool import -d FILE|DIR POOL' imports a pool; '-d FILE|DIR' opens one in place";
            return Err(no_such_pool(name, [how.to_owned()]).into());
        };
        Ok((found_by_config(&cached.config)?, true))
    }

    /// Guid of a pool of that name that another process holds.
    fn held_guid(&self, pool: &str) -> Option<u64> {
        if !self.search.is_empty() || self.holder.is_some() {
            return None;
        }
        let held = self.state.held().into_iter();
        held.filter(|(name, _)| name == pool)
            .map(|(_, guid)| guid)
            .next()
    }

    /// Guid of a pool, without opening it.
    pub fn guid_of(&self, pool: &str) -> Outcome<u64> {
        if let Some(guid) = self.held_guid(pool) {
            return Ok(guid);
        }
        if let Some(config) = self
            .state
            .imported()?
            .get(pool)
            .map(|c| &c.config)
            .filter(|_| self.search.is_empty())
        {
            return Ok(config.pool_guid);
        }
        Ok(self.find(pool)?.0.config.pool_guid)
    }

    /// Names of the pools that this user has imported, and of those below `-d`.
    pub fn pool_names(&self) -> Outcome<Vec<String>> {
        let mut names: Vec<String> = if self.search.is_empty() {
            self.state.imported()?.into_keys().collect()
        } else {
            let scan = Search::new(&self.search).run();
            scan.pools
                .into_iter()
                .filter(|p| p.config.state != PoolState::Destroyed)
                .map(|p| p.config.name)
                .collect()
        };
        if self.search.is_empty() && self.holder.is_none() {
            names.extend(self.state.held().into_iter().map(|(name, _)| name));
        }
        if let Some(holder) = &self.holder {
            names.push(holder.pool().name());
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Opens a pool that another process has closed for this one, with the same devices and
    /// options.
    pub fn take_over(&mut self, pool: &Taken) -> Outcome<Arc<Pool>> {
        let limits = self.tuning()?.limits;
        let name = &pool.name;
        // By its guid: the labels may have another name.
        let imported = self.state.imported()?;
        let cached = imported.get(name).map(|c| &c.config);
        let found = match cached.filter(|config| config.pool_guid == pool.guid) {
            Some(config) => found_by_config(config)?,
            None => self.find(name)?.0,
        };
        if found.config.pool_guid != pool.guid {
            return Err(
                CommandError::new(format!("cannot open '{name}': it is another pool")).into(),
            );
        }
        let need = if pool.writable {
            Need::Write
        } else {
            Need::Read
        };
        let opened =
            self.retry_while_locked(|session| session.open(name, &found, true, need, limits));
        let mut opened = opened.or_cannot_pool(|| format!("cannot open '{name}'"))?;
        opened.export = pool.export;
        let pool = opened.pool.clone();
        self.opened.push(opened);
        Ok(pool)
    }

    /// Tries again while devices are locked by another process that may be about to end.
    pub fn retry_while_locked<T>(
        &mut self,
        mut f: impl FnMut(&Self) -> zuse::Result<T>,
    ) -> zuse::Result<T> {
        let mut lock_wait = LockWait::new();
        loop {
            match f(self) {
                Err(error) if lock_wait.lasts(&error, &mut self.ui) => {}
                result => return result,
            }
        }
    }

    /// What another process needs to open a pool that this one has open.
    pub fn taken(&self, pool: &Arc<Pool>) -> Taken {
        let opened = self.opened.iter().find(|o| Arc::ptr_eq(&o.pool, pool));
        Taken {
            name: pool.name(),
            guid: pool.guid(),
            writable: pool.is_writable(),
            export: opened.is_some_and(|o| o.export),
        }
    }

    /// Takes over a pool that this command created or imported. It is closed with the session, or
    /// kept by the host that this process becomes.
    pub fn adopt(&mut self, pool: Arc<Pool>) {
        pool.set_wait_for_clear(false);
        pool.dsl().set_creator(user());
        // A pool that cannot be read returns the error when something of it is requested.
        let _ = self.unlock(&pool);
        if self.becoming {
            self.kept = Some(pool);
            return;
        }
        self.opened.push(Opened {
            pool,
            export: false,
        });
    }

    /// The pool to keep, if this process becomes its host.
    pub fn take_kept(&mut self) -> Option<Arc<Pool>> {
        self.kept.take()
    }

    /// Updates the cache file for an imported pool that had this guid so far: its devices, its
    /// guid.
    pub fn remember_again(&self, pool: &Pool, old: u64) -> Outcome {
        let imported = self.state.imported()?;
        if !imported.values().any(|c| c.config.pool_guid == old) {
            return Ok(());
        }
        let passing = self.state.passing_of(old)?;
        self.state.remember(&pool.config(), passing.as_ref())
    }

    /// Lets clients find a pool's holder by the pool's new guid. The holder removes the names of
    /// the old one itself ([`crate::holder`]).
    pub fn move_holder(&self, old: u64, new: u64) -> Outcome {
        let Some(holder) = &self.holder else {
            return Ok(());
        };
        // The socket comes last: as soon as it exists the holder uses the new name, and removes the
        // names that it was found by.
        holder.was_found_by(old);
        let moved = std::fs::copy(self.state.held_name(old), self.state.held_name(new))
            .and_then(|_| std::fs::hard_link(self.state.socket(old), self.state.socket(new)));
        moved
            .or_cannot(|| "cannot note the pool's new guid".into())
            .map(drop)
    }

    /// Drops a pool that the command has closed itself.
    pub fn release(&mut self, pool: &Arc<Pool>) {
        self.opened.retain(|o| !Arc::ptr_eq(&o.pool, pool));
    }

    /// Writes the command to the pool's history. A pool that cannot store it is no reason to fail.
    pub fn log(&self, pool: &Pool) {
        if pool.is_writable() && !self.command.is_empty() {
            let uid = user();
            let host = self.state.host().map(|h| h.name).unwrap_or_default();
            let _ = pool.dsl().log_command(&self.command, uid, &host);
        }
    }

    /// Closes the opened pools.
    pub fn finish(&mut self) -> Outcome {
        let mut result = Ok(());
        if let Some(holder) = self.holder.as_ref().filter(|_| self.stats) {
            let figures = crate::cmd::stats::figures(holder.pool());
            self.ui.say_lines(&figures.to_string());
        }
        for opened in std::mem::take(&mut self.opened) {
            let name = opened.pool.name();
            if self.stats {
                let figures = crate::cmd::stats::figures(&opened.pool);
                self.ui.say_lines(&figures.to_string());
            }
            let closed = if opened.export {
                opened.pool.export()
            } else {
                opened.pool.close()
            };
            if let Err(stop) = closed.or_cannot_pool(|| format!("cannot close '{name}'")) {
                result = Err(stop);
            }
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// Options for a pool whose import holds until the host restarts.
pub fn for_now(passing: &Extra) -> TemporaryProperties {
    TemporaryProperties {
        altroot: passing.altroot.clone(),
        cache_file: Some(passing.cache_file.clone().unwrap_or_else(|| "none".into())),
        read_only: passing.read_only,
    }
}

/// The failure of a search. A word that is no name of any pool gets no hint about where to search.
fn no_such_pool(name: &str, hints: impl IntoIterator<Item = String>) -> CommandError {
    let cannot = |why: &str| {
        CommandError::new(format!("cannot open '{name}': {why}")).meaning(Meaning::NoSuchPool)
    };
    match zuse::check_pool_characters(name) {
        Err(zuse::Error::Refused { what, .. }) => cannot(&what),
        _ => hints
            .into_iter()
            .fold(cannot("no such pool"), CommandError::hint),
    }
}

/// Whether another process holds the device locks.
pub fn is_held(error: &zuse::Error) -> bool {
    error.is_for(zuse::Refusal::InUse)
}

/// The wait for another process that has devices locked and may be about to end.
struct LockWait {
    begun: Instant,
    user_knows: bool,
}

impl LockWait {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            user_knows: false,
        }
    }

    /// Whether to try again, after a pause. The user is told once, if stderr is a terminal.
    fn lasts(&mut self, error: &zuse::Error, ui: &mut Ui) -> bool {
        let waited = self.begun.elapsed();
        if !is_held(error) || waited >= LOCK_WAIT {
            return false;
        }
        if waited >= MESSAGE_AFTER && !self.user_knows && ui.is_watched() {
            ui.say(format!("waiting: {error}"));
            self.user_knows = true;
        }
        std::thread::sleep(PAUSE);
        true
    }
}

/// A pool by the devices of a configuration.
pub fn found_by_config(config: &PoolConfig) -> Outcome<FoundPool> {
    let paths = device_paths(&config.vdev_tree);
    let mut scan = Search::new(&paths).run();
    // Devices that were added after the pool was cached: the labels of their siblings name them.
    let own = |p: &&FoundPool| p.config.pool_guid == config.pool_guid;
    if let Some(found) = scan.pools.iter().find(own) {
        let mut named = device_paths(&found.config.vdev_tree);
        named.retain(|path| !paths.contains(path));
        if !named.is_empty() {
            named.extend(paths.iter().cloned());
            scan = Search::new(&named).run();
        }
    }
    let name = &config.name;
    let by_guid = |p: &&FoundPool| p.config.pool_guid == config.pool_guid;
    // Its guid was changed by a process that could not update the cache file. The devices have the
    // new one.
    let same = |p: &&FoundPool| {
        let own = config.vdev_tree.devices();
        let known = |guid: &u64| own.iter().any(|d| d.guid == *guid);
        p.config.name == *name && p.devices.keys().all(known)
    };
    let found = scan
        .pools
        .iter()
        .find(by_guid)
        .or(scan.pools.iter().find(same));
    match found.cloned() {
        Some(found) if found.config.state == PoolState::Destroyed => Err(CommandError::new(
            format!("cannot open '{name}': the pool was destroyed elsewhere"),
        )
        .hint(format!(
            "'zpool import -D' finds destroyed pools; 'zpool export -f {name}' forgets it"
        ))
        .into()),
        Some(mut found) => {
            found.config.name.clone_from(name);
            Ok(found)
        }
        None => {
            let mut error = CommandError::new(format!(
                "cannot open '{name}': one or more devices is currently unavailable"
            ));
            for problem in scan.problems.iter().take(4) {
                error = error.hint(problem.to_string());
            }
            if scan.problems.is_empty() {
                for path in paths.iter().take(4) {
                    error = error.hint(format!("{}: no label of this pool on it", path.display()));
                }
            }
            Err(error
                .hint(format!(
                    "bring the devices back, or 'zpool export -f {name}' to forget the pool"
                ))
                .into())
        }
    }
}

//! An open pool.
//!
//! Locks, by rank: `config` (short, never over I/O) < the engine's state < the MOS's own. Sync
//! tasks wait in `tasks` and run on the sync thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use zuse_base::events::{Event, Events, Subject};
use zuse_base::sync::{Mutex, RwLock};

use zuse_base::{
    Clock, Entropy, Error, ObjectId, Result, SystemClock, SystemEntropy, Tripwire, Txg, WorkPool,
};
use zuse_dmu::zap::Zap;
use zuse_dmu::{DirtyMeter, FreeingLedger, Objset, Settings, Tx};
use zuse_format::uberblock::Uberblock;
use zuse_io::{Cache, Pipeline};
use zuse_vdev::{PoolConfig, PoolState, Vdevs};

use crate::suspend::Suspension;
use crate::txg::{DirtyBounds, Txgs};
use crate::version::{VERSION_COPIES, VERSION_DEFLATE, objset_size};
use crate::{Allocator, DslHooks, Features, Limits};

mod space;
mod task;
mod threads;

pub use space::Space;
pub(crate) use task::Task;

/// This machine's identity for pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Host id; 0 if it has none.
    pub id: u64,
    /// Host name.
    pub name: String,
    /// A kernel with ZFS runs here with the same host id: an active pool may be in use by it.
    pub kernel_zfs: bool,
}

/// What happens to callers while a pool is suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailMode {
    /// They wait until `zpool clear`.
    #[default]
    Wait,
    /// New writes get EIO.
    Continue,
    /// The process ends.
    Panic,
}

impl FailMode {
    /// Its value in the property.
    pub fn word(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Continue => "continue",
            Self::Panic => "panic",
        }
    }
}

/// The environment of a pool: time, randomness, host, limits.
#[derive(Clone)]
pub struct Environment {
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for guids and salts.
    pub entropy: Arc<dyn Entropy>,
    /// This machine.
    pub host: Host,
    /// Bounds.
    pub limits: Limits,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::default()),
            entropy: Arc::new(SystemEntropy),
            host: Host::default(),
            limits: Limits::default(),
        }
    }
}

/// Opens the device of a leaf again, by guid and path.
pub(crate) type Reopen =
    dyn Fn(u64, Option<&str>) -> Option<Arc<dyn zuse_device::BlockDevice>> + Send + Sync;

/// An open pool. Shared; closed by [`Pool::close`].
pub struct Pool {
    pub(crate) config: Mutex<PoolConfig>,
    pub(crate) config_dirty: AtomicBool,
    /// The pool's name on disk, if it differs from the one in `config`.
    pub(crate) label_name: OnceLock<String>,
    pub(crate) config_object: AtomicU64,
    pub(crate) env: Environment,
    pub(crate) vdevs: Arc<Vdevs>,
    pub(crate) dtls: crate::dtl::Dtls,
    pub(crate) leaving: crate::tree_change::Leaving,
    pub(crate) io: Arc<Pipeline>,
    pub(crate) work: Arc<WorkPool>,
    pub(crate) meter: Arc<DirtyMeter>,
    pub(crate) mos: OnceLock<Arc<Objset>>,
    pub(crate) mos_ledger: Arc<FreeingLedger>,
    pub(crate) features: Features,
    pub(crate) allocator: OnceLock<Arc<Allocator>>,
    pub(crate) clones: Arc<crate::clones::Clones>,
    pub(crate) checkpoint: crate::checkpoint::Checkpoint,
    pub(crate) dedup: Arc<crate::dedup::Dedup>,
    pub(crate) txgs: Arc<Txgs>,
    pub(crate) logs: crate::Logs,
    pub(crate) hooks: crate::hooks::Hooks,
    pub(crate) tasks: Mutex<VecDeque<Task>>,
    /// Top-level vdevs that the allocator gets once their txg is on disk.
    pub(crate) new_tops: Mutex<Vec<(Txg, u32)>>,
    pub(crate) vdev_work: crate::vdev_work::VdevWorkList,
    /// A task failed in the middle of its changes: its txg must not be committed.
    pub(crate) half_done: Mutex<Option<Error>>,
    pub(crate) uberblock: Mutex<Uberblock>,
    pub(crate) suspension: Arc<Suspension>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) writable: bool,
    pub(crate) fail_mode: AtomicU32,
    pub(crate) autotrim: AtomicBool,
    pub(crate) frees_pending: AtomicBool,
    pub(crate) closed: AtomicBool,
    pub(crate) rewound: AtomicBool,
    /// Passes the last txg took, for tests and statistics.
    pub(crate) last_passes: AtomicU32,
    /// Where failed devices may be found again.
    pub(crate) reopen: RwLock<Option<Arc<Reopen>>>,
    /// Only in a read-only pool.
    pub(crate) tables: OnceLock<space::Tables>,
    /// The present limits; `env` has those of the time of opening.
    limits: RwLock<Limits>,
}

fn txgs_of(
    uberblock: &Uberblock,
    meter: &Arc<DirtyMeter>,
    work: &Arc<WorkPool>,
    limits: &Limits,
) -> Arc<Txgs> {
    let bounds = DirtyBounds {
        data: limits.dirty,
        metadata: limits.dirty_metadata,
    };
    let last = Txg(uberblock.txg);
    Txgs::new(
        last,
        meter.clone(),
        work.clone(),
        limits.txg_timeout,
        bounds,
    )
}

impl Pool {
    pub(crate) fn assemble(
        env: Environment,
        config: PoolConfig,
        vdevs: Arc<Vdevs>,
        uberblock: Uberblock,
        hooks: Arc<dyn DslHooks>,
        writable: bool,
    ) -> Result<Arc<Self>> {
        let io = pipeline(&env.limits, &vdevs);
        let meter = Arc::new(DirtyMeter::default());
        let tripwire = vdevs.tripwire().clone();
        let threads = env.limits.threads.max(1);
        let work = WorkPool::with_tripwire("zuse-work", threads, 1024, tripwire.clone())
            .map_err(|e| Error::refused(zuse_base::Errno::AGAIN, format!("no threads: {e}")))?;
        let work = Arc::new(work);
        let txgs = txgs_of(&uberblock, &meter, &work, &env.limits);
        let suspension = suspension_of(&config.name, &tripwire, &txgs);
        let (dedup, clones) = crate::clones::Clones::with_dedup(&vdevs);
        if writable {
            io.set_write_faults(suspension.clone());
            clones.install(&io);
        }
        let pool = Arc::new(Self {
            config: Mutex::new(config),
            config_dirty: AtomicBool::new(false),
            label_name: OnceLock::new(),
            config_object: AtomicU64::new(0),
            mos_ledger: Arc::new(FreeingLedger::new(io.clone())),
            vdevs,
            dtls: Default::default(),
            leaving: Default::default(),
            io,
            work,
            meter,
            mos: OnceLock::new(),
            features: Features::default(),
            allocator: OnceLock::new(),
            clones,
            checkpoint: Default::default(),
            dedup,
            txgs,
            logs: Default::default(),
            hooks: crate::hooks::Hooks::new(hooks),
            tasks: Mutex::new(VecDeque::new()),
            new_tops: Mutex::default(),
            vdev_work: Default::default(),
            half_done: Mutex::new(None),
            uberblock: Mutex::new(uberblock),
            suspension,
            threads: Mutex::new(Vec::new()),
            writable,
            fail_mode: AtomicU32::new(0),
            autotrim: AtomicBool::new(false),
            // An earlier import may have left frees, which only the MOS knows.
            frees_pending: AtomicBool::new(true),
            closed: AtomicBool::new(false),
            rewound: AtomicBool::new(false),
            last_passes: AtomicU32::new(0),
            reopen: RwLock::new(None),
            tables: OnceLock::new(),
            limits: RwLock::new(env.limits),
            env,
        });
        pool.allow_values();
        pool.name_events();
        Ok(pool)
    }

    pub(crate) fn objset_env(&self, place: &str, settings: Settings) -> zuse_dmu::ObjsetEnv {
        zuse_dmu::ObjsetEnv {
            key: None,
            io: self.io.clone(),
            work: self.work.clone(),
            place: place.into(),
            ledger: self.mos_ledger.clone(),
            meter: self.meter.clone(),
            settings,
        }
    }

    /// Name of the pool.
    pub fn name(&self) -> String {
        self.config.lock().name.clone()
    }

    /// Gives a pool that was just created a temporary name. The devices keep its name on disk.
    pub fn set_temporary_name(&self, name: &str) {
        let mut config = self.config.lock();
        let on_disk = std::mem::replace(&mut config.name, name.to_owned());
        drop(config);
        let rename = |subject: &mut Subject| name.clone_into(&mut subject.pool);
        self.events().change_subject(rename);
        let _ = self.label_name.set(on_disk);
    }

    /// The pool's name on disk. It differs from [`Self::name`] if that one is temporary.
    pub fn label_name(&self) -> String {
        match self.label_name.get() {
            Some(name) => name.clone(),
            None => self.name(),
        }
    }

    /// Guid of the pool.
    pub fn guid(&self) -> u64 {
        self.config.lock().pool_guid
    }

    /// SPA version, 5000 for pools with feature flags.
    pub fn version(&self) -> u64 {
        self.config.lock().version
    }

    /// The configuration as of now.
    pub fn config(&self) -> PoolConfig {
        self.config.lock().clone()
    }

    /// Whether the pool may be changed.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The pool's own object set.
    ///
    /// # Panics
    /// Before the pool is open: a bug.
    pub fn mos(&self) -> &Arc<Objset> {
        match self.mos.get() {
            Some(mos) => mos,
            None => unreachable!("the MOS is opened before the pool is handed out"),
        }
    }

    /// MOS object 1, the directory.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn directory(&self) -> Result<Zap> {
        Zap::open(&self.mos().dnode(ObjectId(1))?)
    }

    /// The pipelines.
    pub fn io(&self) -> &Arc<Pipeline> {
        &self.io
    }

    /// The vdev tree.
    pub fn vdevs(&self) -> &Arc<Vdevs> {
        &self.vdevs
    }

    /// Threads for parallel work.
    pub fn work(&self) -> &Arc<WorkPool> {
        &self.work
    }

    /// Events of the pool; any layer may post.
    pub fn events(&self) -> &Arc<Events> {
        self.vdevs.events()
    }

    /// Posts that the pool is exported or destroyed.
    fn report_end(&self, state: PoolState) {
        self.events().change_subject(|s| s.state = state.number());
        let name = match state {
            PoolState::Destroyed => "pool_destroy",
            _ => "pool_export",
        };
        self.events().post(Event::system(name));
    }

    /// Sets the pool of these events.
    pub(crate) fn name_events(&self) {
        let config = self.config.lock();
        let subject = Subject {
            pool: config.name.clone(),
            guid: config.pool_guid,
            fail_mode: FailMode::default().word(),
            ..Subject::default()
        };
        drop(config);
        let events = self.events();
        events.belong_to(subject, self.env.clock.clone());
        events.set_capacity(self.limits().events_kept);
    }

    /// Triggered by a thread that panics where it may have left an inconsistent state.
    pub fn tripwire(&self) -> &Arc<Tripwire> {
        self.vdevs.tripwire()
    }

    /// Dirty bytes.
    pub fn meter(&self) -> &Arc<DirtyMeter> {
        &self.meter
    }

    /// The clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.env.clock
    }

    /// The clock, for another pool.
    pub fn shared_clock(&self) -> Arc<dyn Clock> {
        self.env.clock.clone()
    }

    /// Randomness.
    pub fn entropy_source(&self) -> Arc<dyn Entropy> {
        self.env.entropy.clone()
    }

    /// The pool's randomness.
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.env.entropy
    }

    /// This machine.
    pub fn host(&self) -> &Host {
        &self.env.host
    }

    /// The present limits and tunables.
    pub fn limits(&self) -> Limits {
        *self.limits.read()
    }

    /// Changes limits and tunables. The caller updates the datasets; [`Limits::threads`] stays.
    pub fn set_limits(&self, new: Limits) {
        *self.limits.write() = new;
        self.io
            .cache()
            .set_limit(new.cache, new.cache_metadata_percent);
        self.io.write_around(new.write_around);
        self.io.set_prefetch_direct(new.read_around);
        let bounds = DirtyBounds {
            data: new.dirty,
            metadata: new.dirty_metadata,
        };
        self.txgs.set_bounds(new.txg_timeout, bounds);
        self.allow_values();
        self.events().set_capacity(new.events_kept);
        if let Some(mos) = self.mos.get() {
            mos.set_settings(self.mos_settings());
        }
    }

    /// Sets how many bytes of attribute values may be dirty beyond the cache's loans. Any `fsync`
    /// waits for all of them.
    pub(crate) fn allow_values(&self) {
        let most = self.limits().dirty_values.min(self.txgs.within_timeout());
        self.io
            .cache()
            .set_extra_budget(usize::try_from(most).unwrap_or(usize::MAX));
    }

    /// The feature flags.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The allocator of a writable pool.
    pub fn allocator(&self) -> Option<&Arc<Allocator>> {
        self.allocator.get()
    }

    /// The last committed uberblock.
    pub fn uberblock(&self) -> Uberblock {
        *self.uberblock.lock()
    }

    /// Write settings that depend on the pool's features, for object sets.
    pub fn base_settings(&self) -> Settings {
        let f = &self.features;
        let limits = self.limits();
        let old = self.version() < 5000;
        let mut s = Settings {
            hole_birth: f.is_active("com.delphix:hole_birth"),
            embedded_data: f.is_active("com.delphix:embedded_data"),
            objset_size: objset_size(self.version(), f.is_enabled("org.zfsonlinux:project_quota")),
            one_copy: self.version() < VERSION_COPIES,
            used_in_sectors: self.version() < VERSION_DEFLATE,
            micro_zap_max: limits.micro_zap_max,
            indirect_shift: limits.indirect_shift,
            ..Settings::default()
        };
        if old || !f.is_active("org.illumos:lz4_compress") {
            s.metadata_compression = zuse_codec::Compression::Lzjb;
            s.compression = zuse_codec::Compression::Lzjb;
        }
        if old || !f.is_enabled("org.open-zfs:large_blocks") {
            s.max_block_size = 128 << 10;
        }
        if !f.is_enabled("com.klarasystems:large_microzap") {
            s.micro_zap_max = s.micro_zap_max.min(128 << 10);
        }
        s.micro_zap_max = s.micro_zap_max.min(s.max_block_size);
        s
    }

    /// Write settings of the MOS. Its micro ZAPs stay small, because the feature for larger ones is
    /// counted by dataset.
    pub(crate) fn mos_settings(&self) -> Settings {
        let base = self.base_settings();
        Settings {
            copies: 3,
            is_mos: true,
            micro_zap_max: base.micro_zap_max.min(128 << 10),
            ..base
        }
    }

    /// Joins the open txg, and reserves an estimate of the bytes to write. Space and quota checks
    /// are the caller's.
    ///
    /// # Errors
    /// `Refused(ROFS)` for a read-only pool, `Suspended`, or the pool is being closed.
    pub fn begin(&self, reserve: u64) -> Result<Tx> {
        if !self.writable {
            return Err(Error::refused(zuse_base::Errno::ROFS, "pool is read-only"));
        }
        self.txgs.begin(reserve, || self.brake())
    }

    /// Joins the open txg however much is dirty, for a log: it writes its changes at once, and must
    /// not wait for a txg.
    ///
    /// # Errors
    /// `Suspended`, or the pool is being closed.
    pub fn begin_log(&self) -> Result<Tx> {
        self.txgs.join(|| self.brake())
    }

    /// State shared by the pool's intent logs.
    pub fn logs(&self) -> &crate::Logs {
        &self.logs
    }

    /// The error for callers that should not wait while the pool is suspended.
    fn brake(&self) -> Result<()> {
        match self.suspension.error() {
            // With `failmode=wait` callers wait, as long as `zpool clear` can resume the pool.
            Some(error) if self.fail_mode.load(Relaxed) != 0 || self.suspension.is_lost() => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Bytes reserved by running and unsynced transactions.
    pub fn reserved(&self) -> u64 {
        self.txgs.reserved()
    }

    /// The open txg.
    pub fn open_txg(&self) -> Txg {
        self.txgs.open_txg()
    }

    /// The last txg on disk.
    pub fn synced_txg(&self) -> Txg {
        self.txgs.synced_txg()
    }

    /// Sets the txg that the next one follows; only while the pool is being opened.
    pub fn skip_txgs(&self, synced: Txg) {
        if self.threads.lock().is_empty() && synced >= self.open_txg() {
            self.txgs.skip_to(synced);
        }
    }

    /// Whether it was opened at an older txg than its newest.
    pub fn is_rewound(&self) -> bool {
        self.rewound.load(Relaxed)
    }

    /// Waits until a txg is on disk.
    ///
    /// # Errors
    /// The pool was suspended permanently, or closed.
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        self.txgs.wait_synced(txg, || self.brake())
    }

    /// Whether there is nothing to write: the open txg is empty, and the one before it is on disk.
    pub fn is_clean(&self) -> bool {
        self.txgs.is_clean()
    }

    /// Writes the open txg and waits for it.
    ///
    /// # Errors
    /// As [`Self::wait_synced`].
    pub fn sync_now(&self) -> Result<()> {
        self.wait_synced(self.open_txg())
    }

    /// Marks the configuration as changed: labels are rewritten with the next txg.
    pub fn config_changed(&self) {
        self.config_dirty.store(true, Relaxed);
    }

    /// Sets `comment` or `compatibility`, which are stored in the configuration; `None` removes it.
    /// On disk with the next txg.
    ///
    /// # Errors
    /// The pool is open read-only.
    pub fn set_config_text(&self, name: &str, text: Option<String>) -> Result<()> {
        if !self.writable {
            return Err(Error::refused(zuse_base::Errno::ROFS, "pool is read-only"));
        }
        let mut config = self.config.lock();
        match name {
            "comment" => config.comment = text,
            "compatibility" => config.compatibility = text,
            _ => {
                return Err(Error::refused(
                    zuse_base::Errno::INVAL,
                    format!("'{name}' is not in the configuration"),
                ));
            }
        }
        drop(config);
        self.config_changed();
        Ok(())
    }

    /// Notes that blocks wait to be freed in the background.
    pub fn note_frees(&self) {
        self.frees_pending.store(true, Relaxed);
    }

    /// Passes that the last txg took.
    pub fn last_passes(&self) -> u32 {
        self.last_passes.load(Relaxed)
    }

    /// Sets the behaviour for callers while the pool is suspended.
    pub fn set_fail_mode(&self, mode: FailMode) {
        self.fail_mode.store(mode as u32, Relaxed);
        self.events().change_subject(|s| s.fail_mode = mode.word());
        self.txgs.wake();
    }

    /// Sets whether a failed write waits for `zpool clear` (the default), or stops the pool at
    /// once. For pools on which no command can run `zpool clear`.
    pub fn set_wait_for_clear(&self, yes: bool) {
        self.suspension.set_impatient(!yes);
    }

    /// Gives up a suspended pool: all waiters get an error, and the pool stays on disk as of its
    /// last uberblock. Only [`Self::close`] is left to do.
    pub fn give_up(&self) {
        if self.suspension.error().is_some() {
            self.suspension.close();
        }
    }

    /// Limits the size of the dedup tables: bytes, 0 for no limit, all ones for the size of the
    /// dedup vdevs.
    pub fn set_dedup_quota(&self, quota: u64) {
        self.dedup.set_quota(quota);
    }

    /// Sets whether freed space is discarded on the host.
    pub fn set_autotrim(&self, on: bool) {
        self.autotrim.store(on, Relaxed);
        if let Some(allocator) = self.allocator.get() {
            allocator.set_report_released(on);
        }
    }

    /// Why the pool is suspended, if it is.
    pub fn suspended(&self) -> Option<Error> {
        self.suspension.error()
    }

    /// Whether the pool is suspended permanently: it has to be opened again.
    pub fn is_lost(&self) -> bool {
        self.suspension.is_lost()
    }

    /// Sets how `clear` opens devices again, by a leaf's guid and path.
    pub fn set_reopen(
        &self,
        reopen: impl Fn(u64, Option<&str>) -> Option<Arc<dyn zuse_device::BlockDevice>>
        + Send
        + Sync
        + 'static,
    ) {
        *self.reopen.write() = Some(Arc::new(reopen));
    }

    /// `zpool clear`: clears error counters, opens devices again and resumes a suspended pool.
    ///
    /// # Errors
    /// There is no such device; or the pool lost writes and must be opened again.
    pub fn clear(&self, guid: Option<u64>) -> Result<()> {
        let reopen = self.reopen.read().clone();
        let devices = |config: &zuse_vdev::VdevConfig| {
            reopen
                .as_ref()
                .and_then(|open| open(config.guid, config.path.as_deref()))
        };
        // Before they are opened again: afterwards they look like any other leaf.
        if self.writable {
            self.mark_lost_leaves_outdated();
        }
        self.vdevs.clear(guid, &devices)?;
        if self.writable {
            self.clear_faulted_marks();
        }
        if self.suspension.is_lost() {
            return Err(self
                .suspension
                .error()
                .unwrap_or_else(|| Error::refused(zuse_base::Errno::IO, "the pool is lost")));
        }
        self.logs.try_log_vdevs();
        self.suspension.resume();
        Ok(())
    }

    /// Whether the pool was closed, or is being closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Closes the pool: everything is written, with `state` as the pool's new state, and both
    /// threads end.
    ///
    /// # Errors
    /// The last txg could not be written; the pool is closed nevertheless.
    pub fn close(self: &Arc<Self>, state: PoolState) -> Result<()> {
        self.hooks.closing();
        if self.closed.swap(true, Relaxed) {
            return Ok(());
        }
        let mut result = Ok(());
        // First: the txg below writes its last positions.
        self.stop_vdev_work();
        if self.writable {
            if let Some(error) = self.suspension.error() {
                result = Err(error);
                self.suspension.close();
            } else {
                if state != PoolState::Active {
                    self.config.lock().state = state;
                    self.report_end(state);
                    self.config_changed();
                }
                // A failure from here on is an error of the close, because no command could run
                // `zpool clear`.
                self.suspension.set_impatient(true);
                let closing = || match self.suspension.error() {
                    Some(error) => Err(error),
                    None => Ok(()),
                };
                result = self.txgs.wait_synced(self.open_txg(), closing);
                if result.is_ok() && state != PoolState::Active {
                    // Once more, because deferred frees are completed in a later txg.
                    result = self.txgs.wait_synced(self.open_txg(), closing);
                }
                if result.is_err() {
                    self.suspension.close();
                }
            }
            self.txgs.stop();
            let threads = std::mem::take(&mut *self.threads.lock());
            for thread in threads {
                // Both catch their panics, so there is no result to lose.
                let _ = thread.join();
            }
        }
        // The threads have ended, so no other would answer these callers.
        self.fail_tasks(&Error::refused(
            zuse_base::Errno::NODEV,
            "the pool was closed",
        ));
        self.hooks.release();
        if let Some(allocator) = self.allocator.get() {
            allocator.detach();
        }
        self.clones.detach();
        self.dedup.detach();
        self.vdevs.release_devices();
        self.events().end();
        result
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.name())
    }
}

/// The pipeline of a pool, with its cache.
fn pipeline(limits: &Limits, vdevs: &Arc<Vdevs>) -> Arc<Pipeline> {
    let cache = Arc::new(Cache::new(limits.cache));
    cache.set_limit(limits.cache, limits.cache_metadata_percent);
    let io = Arc::new(Pipeline::new(vdevs.clone(), cache));
    io.gather_writes();
    io.write_around(limits.write_around);
    io.set_prefetch_direct(limits.read_around);
    io
}

/// The suspension of a pool. It and the tripwire wake the waiters for a txg.
fn suspension_of(name: &str, tripwire: &Arc<Tripwire>, txgs: &Arc<Txgs>) -> Arc<Suspension> {
    let suspension = Arc::new(Suspension::new(tripwire.clone()));
    suspension.set_pool(name);
    let waiters = Arc::downgrade(txgs);
    suspension.set_listener(move || {
        if let Some(txgs) = waiters.upgrade() {
            txgs.wake();
        }
    });
    let waiters = Arc::downgrade(txgs);
    tripwire.on_tear(move || {
        if let Some(txgs) = waiters.upgrade() {
            txgs.torn();
        }
    });
    suspension
}

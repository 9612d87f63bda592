//! An open pool.

use std::collections::HashMap;
use std::sync::Arc;
use zuse_base::sync::{Mutex, RwLock};

use zuse_base::Result;
use zuse_dmu::CompletePart;
use zuse_dsl::{Dataset, Dsl};
use zuse_format::uberblock::Uberblock;
use zuse_vdev::{PoolConfig, PoolState, VdevStatus};

use crate::file_system::OpenFileSystems;
use crate::held::Held;
use crate::{Limits, Mounts};

/// Properties of a pool for one import, which are not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemporaryProperties {
    /// Every mount point is below this directory (property `altroot`).
    pub altroot: Option<String>,
    /// Property `cachefile`; `none` if the pool is not remembered.
    pub cache_file: Option<String>,
    /// Imported to be read only.
    pub read_only: bool,
}

/// An open pool. It stays open until one of the closing calls, or until it and every file system
/// and volume opened through it are dropped. Then its changes are written, and it is closed and
/// left active.
pub struct Pool {
    spa: Arc<zuse_pool::Pool>,
    dsl: Arc<Dsl>,
    open: OpenFileSystems,
    mounts: RwLock<Option<Arc<dyn Mounts>>>,
    temporary: RwLock<TemporaryProperties>,
    since: std::time::Instant,
    /// How far snapshots received from truncated streams are complete, by object.
    complete_parts: Mutex<HashMap<u64, Arc<CompletePart>>>,
    tried: crate::failed_devices::Tried,
    // The last field, so that the pool is closed when nothing else of it is left.
    held: Arc<Held>,
}

impl Pool {
    pub(crate) fn assemble(spa: Arc<zuse_pool::Pool>, dsl: Arc<Dsl>) -> Result<Arc<Self>> {
        let pool = Arc::new(Self {
            held: Held::new(spa.clone()),
            spa,
            dsl,
            open: OpenFileSystems::default(),
            mounts: RwLock::new(None),
            temporary: RwLock::default(),
            since: std::time::Instant::now(),
            complete_parts: Mutex::default(),
            tried: Default::default(),
        });
        pool.dsl.set_metadata_cache(pool.limits().metadata_tier);
        // Before the first write, which `failmode` may concern.
        pool.apply_stored_properties()?;
        if pool.is_writable() {
            // A device may fail meanwhile. A pool that is not open yet cannot be cleared.
            pool.spa.set_wait_for_clear(false);
            // Receives that a crash has cut off. Those that can be resumed stay.
            pool.dsl.destroy_leftovers()?;
            pool.dsl.release_temporary_holds()?;
            pool.spa.set_wait_for_clear(true);
            pool.dsl.take_up_scan()?;
        }
        pool.spa.set_reopen(|_, path| {
            let device = zuse_device::FileDevice::open(path?, zuse_device::Access::Write).ok()?;
            Some(Arc::new(device) as Arc<dyn zuse_device::BlockDevice>)
        });
        Ok(pool)
    }

    /// A share in it, for objects that may outlive this value.
    pub(crate) fn share(&self) -> Arc<Held> {
        self.held.clone()
    }

    /// The pool allocator below.
    pub(crate) fn spa(&self) -> &Arc<zuse_pool::Pool> {
        &self.spa
    }

    /// The dataset layer.
    pub(crate) fn dsl(&self) -> &Arc<Dsl> {
        &self.dsl
    }

    /// Notes that a dataset is complete only in part.
    pub(crate) fn note_complete_part(&self, dataset: &Dataset, complete_part: CompletePart) {
        let mut complete_parts = self.complete_parts.lock();
        complete_parts.insert(dataset.object().0, Arc::new(complete_part));
    }

    /// Limits an object set to the complete part of a dataset.
    pub(crate) fn limit_to_complete(&self, dataset: &Dataset) -> Result<()> {
        let complete_parts = self.complete_parts.lock();
        if let Some(complete_part) = complete_parts.get(&dataset.object().0) {
            dataset.objset()?.set_complete_part(complete_part.clone());
        }
        Ok(())
    }

    /// Name.
    pub fn name(&self) -> String {
        self.spa.name()
    }

    /// Guid.
    pub fn guid(&self) -> u64 {
        self.spa.guid()
    }

    /// Whether it may be changed.
    pub fn is_writable(&self) -> bool {
        self.spa.is_writable()
    }

    /// Its configuration now.
    pub fn config(&self) -> PoolConfig {
        self.spa.config()
    }

    /// The last committed uberblock.
    pub fn uberblock(&self) -> Uberblock {
        self.spa.uberblock()
    }

    /// Its vdev tree with health and error counts.
    pub fn vdev_status(&self) -> VdevStatus {
        self.spa.vdevs().status()
    }

    /// Why it is suspended, if it is.
    pub fn suspended(&self) -> Option<zuse_base::Error> {
        self.spa.suspended()
    }

    /// Bounds and tunables as they are now.
    pub fn limits(&self) -> Limits {
        self.spa.limits()
    }

    /// Changes limits and tunables while the pool is open. A tunable that is not live takes effect
    /// at the next open.
    ///
    /// # Errors
    /// Properties of datasets cannot be read.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        self.spa.set_limits(limits);
        self.dsl.set_metadata_cache(limits.metadata_tier);
        self.dsl.tunables_changed()?;
        self.open.refresh()
    }

    /// Writes all changes to disk and waits for that.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn sync(&self) -> Result<()> {
        if self.is_writable() {
            self.spa.sync_now()
        } else {
            Ok(())
        }
    }

    /// Whether all changes are on disk, except those made meanwhile.
    pub fn is_clean(&self) -> bool {
        !self.is_writable() || self.spa.is_clean()
    }

    /// Drops the content of the block cache; it is read again when needed.
    pub fn drop_cache(&self) {
        self.spa.io().cache().clear();
    }

    /// Events of the pool, for alerts and monitors.
    pub fn events(&self) -> &Arc<zuse_base::Events> {
        self.spa.events()
    }

    /// `zpool clear`: resets error counters, opens devices again, resumes a suspended pool. With a
    /// guid only for that vdev.
    ///
    /// # Errors
    /// `Refused(NODEV)`; devices are still missing.
    pub fn clear(&self, device: Option<u64>) -> Result<()> {
        let was_suspended = self.suspended().is_some();
        self.spa.clear(device)?;
        // A resumed pool may be suspended again at once: its host starts the resilver later.
        match was_suspended || !self.is_writable() {
            true => Ok(()),
            false => self.resilver_waiting(),
        }
    }

    /// Sets whether a failed write waits for [`Self::clear`] (the default). Otherwise all changes
    /// fail from then on, and the pool stays on disk as of its last sync. For programs in which no
    /// thread could call `clear`.
    pub fn set_wait_for_clear(&self, yes: bool) {
        self.spa.set_wait_for_clear(yes);
    }

    /// Gives up a suspended pool: waiting callers get an error, and unsynced changes are lost.
    /// Close it afterwards.
    pub fn give_up(&self) {
        self.spa.give_up();
    }

    /// Closes it and leaves it active, for this host to open it again.
    ///
    /// # Errors
    /// The last changes could not be written.
    pub fn close(&self) -> Result<()> {
        // While transactions can still begin: access times are written, unlinked objects freed.
        self.open.finish();
        self.spa.close(PoolState::Active)
    }

    /// Closes it, so that any host may import it.
    ///
    /// # Errors
    /// The last changes could not be written.
    pub fn export(&self) -> Result<()> {
        self.open.finish();
        self.spa.close(PoolState::Exported)
    }

    /// Closes it and marks it as destroyed.
    ///
    /// # Errors
    /// The last changes could not be written.
    pub fn destroy(&self) -> Result<()> {
        self.open.finish();
        self.spa.close(PoolState::Destroyed)
    }

    /// Sets the layer that has its file systems mounted.
    pub fn set_mounts(&self, mounts: Option<Arc<dyn Mounts>>) {
        *self.mounts.write() = mounts;
    }

    /// The layer that has its file systems mounted.
    pub fn mounts(&self) -> Option<Arc<dyn Mounts>> {
        self.mounts.read().clone()
    }

    /// Sets the properties for this import.
    pub fn set_temporary_properties(&self, temporary: TemporaryProperties) {
        self.dsl
            .set_altroot(temporary.altroot.as_deref().unwrap_or(""));
        *self.temporary.write() = temporary;
    }

    /// The properties for this import.
    pub fn temporary_properties(&self) -> TemporaryProperties {
        let temporary = self.temporary.read();
        temporary.clone()
    }

    /// Time since it was opened.
    pub fn age(&self) -> std::time::Duration {
        self.since.elapsed()
    }

    /// Places where devices were looked for in vain.
    pub(crate) fn tried(&self) -> &crate::failed_devices::Tried {
        &self.tried
    }

    pub(crate) fn open_file_systems(&self) -> &OpenFileSystems {
        &self.open
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.name())
    }
}

//! The interface to the dataset layer. That layer depends on this crate, not the other way round.

use std::sync::Arc;
use zuse_base::sync::RwLock;

use zuse_base::{Errno, Error, Result, Txg};
use zuse_dmu::Tx;

use crate::Pool;

/// The context of code that runs in syncing context.
#[derive(Clone, Copy)]
pub struct SyncCtx<'a> {
    /// The pool.
    pub pool: &'a Arc<Pool>,
    /// The sync thread's transaction.
    pub tx: &'a Tx,
    /// The txg that is being written.
    pub txg: Txg,
    /// Pass within the txg, from 1.
    pub pass: u32,
}

/// The dataset layer, as the pool needs it. All but `load`, `is_dirty` and `synced` run on the sync
/// thread.
pub trait DslHooks: Send + Sync {
    /// Creates the dataset layer's objects in a new pool's first txg.
    ///
    /// # Errors
    /// The MOS cannot be changed; the pool is not created then.
    fn create(&self, ctx: &SyncCtx<'_>) -> Result<()>;

    /// Opens the dataset layer of a pool whose MOS is open.
    ///
    /// # Errors
    /// The root directory or another essential object cannot be read.
    fn load(&self, pool: &Arc<Pool>) -> Result<()>;

    /// Writes all datasets that changed in the txg, then their metadata.
    ///
    /// # Errors
    /// A block cannot be read, allocated or written.
    fn sync(&self, ctx: &SyncCtx<'_>) -> Result<()>;

    /// Charges a change of the MOS's own space (used, compressed, uncompressed bytes).
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn mos_delta(&self, ctx: &SyncCtx<'_>, delta: [i64; 3]) -> Result<()>;

    /// Whether some dataset changed in the txg.
    fn is_dirty(&self, txg: Txg) -> bool;

    /// Frees a bounded number of queued blocks; true if there are more.
    ///
    /// # Errors
    /// A list of blocks cannot be read or changed.
    fn process_frees(&self, ctx: &SyncCtx<'_>) -> Result<bool>;

    /// All births and frees of the txg are counted: updates the scan.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn pointers_counted(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        let _ = ctx;
        Ok(())
    }

    /// Records an event of the pool, in its history and as an event.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn record(&self, ctx: &SyncCtx<'_>, event: &str, text: &str) -> Result<()> {
        let _ = (ctx, event, text);
        Ok(())
    }

    /// The txg is on disk.
    fn synced(&self, txg: Txg);

    /// The pool is about to be closed: background work ends.
    fn closing(&self) {}

    /// The pool was closed: dirty data of txgs that were never written is dropped. It may hold this
    /// layer itself.
    fn closed(&self) {}
}

/// The dataset layer of a pool, until the pool is closed.
///
/// The two refer to each other; releasing this at the end frees both, and the devices.
pub(crate) struct Hooks(RwLock<Option<Arc<dyn DslHooks>>>);

impl Hooks {
    pub fn new(hooks: Arc<dyn DslHooks>) -> Self {
        Self(RwLock::new(Some(hooks)))
    }

    fn get(&self) -> Option<Arc<dyn DslHooks>> {
        self.0.read().clone()
    }

    fn open(&self) -> Result<Arc<dyn DslHooks>> {
        self.get()
            .ok_or_else(|| Error::refused(Errno::NODEV, "the pool was closed"))
    }

    pub fn closing(&self) {
        if let Some(hooks) = self.get() {
            hooks.closing();
        }
    }

    pub fn release(&self) {
        // Taken out first, so that the layer is called without the lock.
        let hooks = self.0.write().take();
        if let Some(hooks) = hooks {
            hooks.closed();
        }
    }

    pub fn create(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        self.open()?.create(ctx)
    }

    pub fn load(&self, pool: &Arc<Pool>) -> Result<()> {
        self.open()?.load(pool)
    }

    pub fn sync(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        self.open()?.sync(ctx)
    }

    pub fn mos_delta(&self, ctx: &SyncCtx<'_>, delta: [i64; 3]) -> Result<()> {
        self.open()?.mos_delta(ctx, delta)
    }

    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.get().is_some_and(|h| h.is_dirty(txg))
    }

    pub fn process_frees(&self, ctx: &SyncCtx<'_>) -> Result<bool> {
        self.open()?.process_frees(ctx)
    }

    pub fn pointers_counted(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        self.open()?.pointers_counted(ctx)
    }

    pub fn record(&self, ctx: &SyncCtx<'_>, event: &str, text: &str) -> Result<()> {
        self.open()?.record(ctx, event, text)
    }

    pub fn synced(&self, txg: Txg) {
        if let Some(hooks) = self.get() {
            hooks.synced(txg);
        }
    }
}

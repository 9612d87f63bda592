//! The interface to the pool layer below, in this layer's terms.

use std::sync::Arc;

use zuse_base::{Entropy, Error, Result, Span, Txg, WorkPool};
use zuse_dmu::{DirtyMeter, Objset, Settings, Tx};
use zuse_io::Pipeline;
use zuse_pool::{FeaturesAtTxg, Pool, SyncCtx};

/// Figures of the pool's space, in bytes as datasets count them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolSpace {
    /// Deflated capacity of the normal vdevs, plus space saved by clones and dedup tables, plus
    /// used space of special and dedup vdevs.
    pub capacity: u64,
    /// Allocated, deferred frees included, deflated.
    pub allocated: u64,
    /// Kept back from ordinary writers.
    pub slop: u64,
}

/// The pool.
#[derive(Clone)]
pub(crate) struct Spa(pub Arc<Pool>);

impl Spa {
    pub fn name(&self) -> String {
        self.0.name()
    }
    pub fn version(&self) -> u64 {
        self.0.version()
    }
    pub fn is_writable(&self) -> bool {
        self.0.is_writable()
    }
    pub fn mos(&self) -> &Arc<Objset> {
        self.0.mos()
    }
    pub fn io(&self) -> &Arc<Pipeline> {
        self.0.io()
    }
    pub fn work(&self) -> &Arc<WorkPool> {
        self.0.work()
    }
    pub fn tripwire(&self) -> &zuse_base::Tripwire {
        self.0.work().tripwire()
    }
    pub fn meter(&self) -> &Arc<DirtyMeter> {
        self.0.meter()
    }
    pub fn base_settings(&self) -> Settings {
        self.0.base_settings()
    }
    pub fn limits(&self) -> zuse_pool::Limits {
        self.0.limits()
    }
    pub fn feature_enabled(&self, guid: &str) -> bool {
        self.0.features().is_enabled(guid)
    }
    pub fn feature_count(&self, guid: &str) -> u64 {
        self.0.features().refcount(guid)
    }
    pub fn feature_add(&self, tx: &Tx, guid: &str, delta: i64) -> Result<()> {
        let features = self.0.features();
        features.add(&self.sync_ctx(tx), guid, delta)
    }
    /// The context of a sync task of the pool.
    pub fn sync_ctx<'a>(&'a self, tx: &'a Tx) -> SyncCtx<'a> {
        SyncCtx {
            pool: &self.0,
            tx,
            txg: tx.txg(),
            pass: 1,
        }
    }
    /// A resilver begins, so sequential rebuilds of other hosts end.
    pub fn end_rebuilds(&self, tx: &Tx) -> Result<()> {
        let ctx = SyncCtx {
            pool: &self.0,
            tx,
            txg: tx.txg(),
            pass: 1,
        };
        self.0.end_rebuilds(&ctx)
    }
    /// A scan of all blocks born between two txgs has ended. Devices now lack nothing from that
    /// range, except the given leaves.
    pub fn scan_done(&self, tx: &Tx, births: (Txg, Txg), failed: &[(u64, Span)]) -> Result<()> {
        let ctx = SyncCtx {
            pool: &self.0,
            tx,
            txg: tx.txg(),
            pass: 1,
        };
        self.0.dtl_scan_done(&ctx, births, failed)
    }
    pub fn features_now(&self) -> FeaturesAtTxg {
        self.0.features().now()
    }
    pub fn features_go_back(&self, then: FeaturesAtTxg) {
        self.0.features().go_back(then);
    }
    /// Seconds and nanoseconds since 1970.
    pub fn now(&self) -> (u64, u64) {
        let now = self.0.clock().now();
        (now.unsigned_secs(), u64::from(now.nanos))
    }
    pub fn random(&self) -> u64 {
        self.0.entropy().u64()
    }
    pub fn entropy(&self) -> Arc<dyn Entropy> {
        self.0.entropy_source()
    }
    pub fn space(&self) -> PoolSpace {
        let s = self.0.space();
        PoolSpace {
            // Blocks shared by clones and dedup tables are counted once per pointer.
            capacity: s
                .dspace
                .saturating_add(s.cloned)
                .saturating_add(s.deduped)
                .saturating_add(s.beside)
                .saturating_sub(s.checkpointed),
            // Space held only by the checkpoint is neither free nor used.
            allocated: s
                .dused
                .saturating_add(s.beside)
                .saturating_sub(s.checkpointed),
            slop: s.slop,
        }
    }
    pub fn begin(&self, bytes: u64) -> Result<Tx> {
        self.0.begin(bytes)
    }
    /// Joins the open txg for a log.
    pub fn begin_log(&self) -> Result<Tx> {
        self.0.begin_log()
    }
    /// The last completed txg: on disk, or without anything to write.
    pub fn synced_txg(&self) -> Txg {
        self.0.synced_txg()
    }
    /// The txg of the uberblock on disk.
    pub fn disk_txg(&self) -> u64 {
        self.0.uberblock().txg
    }
    pub fn open_txg(&self) -> Txg {
        self.0.open_txg()
    }
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        self.0.wait_synced(txg)
    }
    /// A range of a removed vdev that nothing refers to any more.
    pub fn mark_obsolete(&self, vdev: u32, span: Span) -> Result<()> {
        match self.0.allocator() {
            Some(allocator) => allocator.mark_obsolete(vdev, span),
            None => Ok(()),
        }
    }
    /// More blocks wait to be freed.
    pub fn note_frees(&self) {
        self.0.note_frees();
    }
    /// Runs check and change in one txg; returns when it is on disk.
    pub fn sync_task<R: Send + 'static>(
        &self,
        mut check: impl FnMut(&Tx) -> Result<()> + Send + 'static,
        apply: impl FnOnce(&Tx) -> Result<R> + Send + 'static,
    ) -> Result<R, Error> {
        self.0
            .sync_task(move |ctx| check(ctx.tx), move |ctx| apply(ctx.tx))
    }
}

//! The intent log of a head in use: the interface for operations and commits.
//!
//! A commit returns after a flush of log blocks. If the log cannot be used, the commit waits for
//! the txg. Reasons are: no chain yet, no space, a failed device, and logs that are suspended while
//! a log device is removed. The guarantee is the same.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire},
};
use std::sync::{Arc, Weak};

use zuse_base::sync::{Condvar, Mutex};
use zuse_base::{ObjectId, Result, Txg};
use zuse_dmu::{Intent, IntentData, IntentLog, SyncMode, Tx, WriteState};

use super::chain::Chain;
use super::lists::Lists;
use crate::dataset::Dataset;

/// Pools before this version only support another format of log blocks.
const ZILOG2_VERSION: u64 = 23;
/// A write record that includes its data has at most that much.
const COPIED_MAX: u64 = 7680;

/// The log of a head. It exists as long as the head is in memory.
pub(crate) struct Log {
    dataset: Weak<Dataset>,
    data: Mutex<Option<Weak<dyn IntentData>>>,
    /// Whether operations are noted; read by each of them.
    is_on: AtomicBool,
    /// A leaf, but it is taken under `chain`.
    pub(super) lists: Mutex<Lists>,
    pub(super) chain: Mutex<Chain>,
    /// Waiters for a drain of an even number, and of an odd one: the current and the next.
    waiting: [Condvar; 2],
    /// No thread leads.
    pub(super) idle: Condvar,
    /// Buffers of written blocks, for reuse.
    pub(super) buffers: Mutex<Vec<Vec<u8>>>,
}

impl Log {
    fn new(dataset: Weak<Dataset>) -> Arc<Self> {
        Arc::new(Self {
            dataset,
            data: Mutex::new(None),
            is_on: AtomicBool::new(false),
            lists: Mutex::default(),
            chain: Mutex::default(),
            waiting: Default::default(),
            idle: Condvar::default(),
            buffers: Mutex::default(),
        })
    }

    /// Where callers wait for a drain.
    pub(super) fn waiting_for(&self, drain: u64) -> &Condvar {
        &self.waiting[usize::from(!drain.is_multiple_of(2))]
    }

    /// Wakes all waiters, because the blocks being written became void.
    pub(super) fn wake_all(&self) {
        self.waiting.iter().for_each(Condvar::notify_all);
    }

    pub(super) fn data(&self) -> Option<Arc<dyn IntentData>> {
        self.data.lock().as_ref().and_then(Weak::upgrade)
    }

    /// Whether operations of a head are noted at all, with the present state of its pool and
    /// properties.
    fn is_wanted(&self, ds: &Dataset) -> bool {
        let Ok(spa) = ds.dsl.spa() else { return false };
        spa.limits().intent_log
            && spa.is_writable()
            && spa.version() >= ZILOG2_VERSION
            && ds
                .open_objset()
                .is_some_and(|os| os.settings().sync != SyncMode::Disabled)
    }

    fn is_for_throughput(&self) -> bool {
        let objset = self.dataset.upgrade().and_then(|ds| ds.open_objset());
        objset.is_some_and(|os| os.settings().log_throughput)
    }

    /// Applies the present state of its pool and properties.
    pub(crate) fn refresh(&self, ds: &Dataset) {
        let on = self.is_wanted(ds);
        if self.is_on.swap(on, AcqRel) != on
            && let Ok(spa) = ds.dsl.spa()
        {
            // Changes made while it is off are not noted, and later ones may depend on them.
            self.lists.lock().forget_until(spa.open_txg());
        }
    }

    /// A txg is on disk.
    pub(crate) fn landed(&self, txg: Txg) {
        self.lists.lock().landed(txg);
    }
}

impl Dataset {
    /// Its intent log, for use until it is closed. The caller has replayed its old records. `data`
    /// provides the sizes of objects whose data it reads.
    ///
    /// # Errors
    /// The object set cannot be opened.
    pub fn open_log(self: &Arc<Self>, data: Weak<dyn IntentData>) -> Result<Arc<dyn IntentLog>> {
        self.objset()?;
        // From now on the header belongs to this log.
        self.set_replayed();
        let log = self.log.get_or_init(|| Log::new(Arc::downgrade(self)));
        *log.data.lock() = Some(data);
        log.refresh(self);
        Ok(log.clone())
    }
}

impl IntentLog for Log {
    fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    fn add(&self, tx: &Tx, intent: Intent) {
        self.lists.lock().add(tx.txg(), &[intent]);
    }

    fn add_together(&self, tx: &Tx, intents: Vec<Intent>) {
        self.lists.lock().add(tx.txg(), &intents);
    }

    fn unlogged(&self, tx: &Tx) {
        self.lists.lock().forget_until(tx.txg());
    }

    fn takes_sa_xattrs(&self) -> bool {
        let is_on = |ds: Arc<Dataset>| {
            let spa = ds.dsl.spa();
            spa.is_ok_and(|spa| spa.0.features().is_enabled(super::ZILSAXATTR))
        };
        self.dataset.upgrade().is_some_and(is_on)
    }

    fn commit(&self, object: Option<ObjectId>) -> Result<()> {
        let Some(ds) = self.dataset.upgrade() else {
            return Ok(());
        };
        let spa = ds.dsl.spa()?;
        if !spa.is_writable() {
            return Ok(());
        }
        if ds
            .open_objset()
            .is_some_and(|os| os.settings().sync == SyncMode::Disabled)
        {
            return Ok(());
        }
        if !self.is_on() {
            return spa.wait_synced(spa.open_txg());
        }
        self.commit_noted(&ds, object)
    }

    fn before_rename(&self, object: ObjectId) {
        self.lists.lock().stage(Some(object));
    }

    fn forget(&self, object: ObjectId) {
        self.lists.lock().forget(object);
    }

    /// Data in the object goes into the log or to its final place. That is decided at the commit
    /// (`indirect_write.rs`), when adjacent writes have been merged.
    fn write_state(&self, size: u64, block_size: u32, commit_follows: bool) -> WriteState {
        let most_of_block = size >= u64::from(block_size) / 2;
        if !commit_follows || size > COPIED_MAX || most_of_block && self.is_for_throughput() {
            WriteState::NeedCopy
        } else {
            WriteState::Copied
        }
    }

    fn close(&self) -> Result<()> {
        let Some(ds) = self.dataset.upgrade() else {
            return Ok(());
        };
        let spa = ds.dsl.spa()?;
        if !spa.is_writable() {
            return Ok(());
        }
        self.end_use(&ds)
    }
}

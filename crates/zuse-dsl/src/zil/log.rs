//! The intent log of a head that is in use.

use std::sync::{Arc, Weak};

use zuse_base::sync::Mutex;
use zuse_base::{ObjectId, Result};
use zuse_dmu::{Intent, IntentData, IntentLog, Tx, WriteState};

use crate::dataset::Dataset;

/// The log of a head. There is one as long as the head is in memory.
pub(crate) struct Log {
    dataset: Weak<Dataset>,
    data: Mutex<Option<Weak<dyn IntentData>>>,
}

impl Log {
    pub fn new(dataset: Weak<Dataset>) -> Arc<Self> {
        Arc::new(Self {
            dataset,
            data: Mutex::new(None),
        })
    }
}

impl Dataset {
    /// Its intent log, to be used until it is closed. Whoever uses it has replayed what was in it.
    /// `data` tells it about objects whose data it reads.
    ///
    /// # Errors
    /// The object set cannot be opened.
    pub fn open_log(self: &Arc<Self>, data: Weak<dyn IntentData>) -> Result<Arc<dyn IntentLog>> {
        let log = self.log.get_or_init(|| Log::new(Arc::downgrade(self)));
        *log.data.lock() = Some(data);
        Ok(log.clone())
    }
}

impl IntentLog for Log {
    fn is_on(&self) -> bool {
        false
    }

    fn add(&self, _tx: &Tx, _intent: Intent) {}

    fn commit(&self, _object: Option<ObjectId>) -> Result<()> {
        let Some(ds) = self.dataset.upgrade() else {
            return Ok(());
        };
        let spa = ds.dsl.spa()?;
        spa.wait_synced(spa.open_txg())
    }

    fn before_rename(&self, _object: ObjectId) {}

    fn forget(&self, _object: ObjectId) {}

    fn write_state(&self, _size: u64, _block_size: u32, commit_follows: bool) -> WriteState {
        if commit_follows {
            WriteState::Copied
        } else {
            WriteState::NeedCopy
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

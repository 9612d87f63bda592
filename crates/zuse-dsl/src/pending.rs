//! State that the sync thread keeps between steps.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use zuse_base::Error;
use zuse_base::sync::Mutex;

use crate::destroy::Branches;
use crate::undo::Journal;

pub(crate) struct Pending {
    /// Clones of directories whose snapshots a sync task destroys; dropped when it ends.
    pub branches: Mutex<HashMap<u64, Branches>>,
    /// History records that are noted and not written yet.
    pub history: Mutex<Vec<Vec<u8>>>,
    /// The changes of an undoable task outside the MOS, while one runs.
    pub journal: Mutex<Option<Journal>>,
    /// The error of an unreadable queue, which is not touched until the pool is opened again.
    pub stuck: Mutex<Option<Error>>,
    /// Blocks that one txg may free in the background.
    pub frees_per_txg: AtomicU64,
    /// Heads left half created by a crash: destroyed as soon as the pool is open.
    pub leftovers: Mutex<Vec<u64>>,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            branches: Mutex::default(),
            history: Mutex::default(),
            journal: Mutex::default(),
            stuck: Mutex::default(),
            frees_per_txg: AtomicU64::new(crate::sync::FREES_PER_TXG),
            leftovers: Mutex::default(),
        }
    }
}

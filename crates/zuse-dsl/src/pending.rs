//! State that the sync thread keeps from one step to the next.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use zuse_base::Error;
use zuse_base::sync::Mutex;

use crate::destroy::Branches;
use crate::undo::Journal;

pub(crate) struct Pending {
    /// Clones of directories whose snapshots a sync task destroys; forgotten at its end.
    pub branches: Mutex<HashMap<u64, Branches>>,
    /// Records of the history that are noted and not yet written.
    pub history: Mutex<Vec<Vec<u8>>>,
    /// What a task that can be undone did beside the MOS, while one runs.
    pub journal: Mutex<Option<Journal>>,
    /// A queue that could not be read: left alone until the pool is opened again.
    pub stuck: Mutex<Option<Error>>,
    /// Blocks that one txg may free in the background.
    pub frees_per_txg: AtomicU64,
    /// Heads that were half made when the pool was left: destroyed as soon as it is open.
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

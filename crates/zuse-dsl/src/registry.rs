//! What is in memory of a pool's datasets and directories.
//!
//! Each is there once: who opens one finds the handle of whoever has it already. A map is looked up
//! or changed through [`Dsl::map`](crate::Dsl), so that a panic in between ends the pool.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use zuse_base::sync::Mutex;

use crate::dataset::Dataset;
use crate::dir::DirState;

#[derive(Default)]
pub(crate) struct Registry {
    /// Open datasets, by object.
    pub datasets: Mutex<HashMap<u64, Weak<Dataset>>>,
    /// What is known of directories, by object.
    pub dirs: Mutex<HashMap<u64, Weak<DirState>>>,
    /// Datasets that a txg changed, by object: until it is on disk.
    pub dirty: [Mutex<BTreeMap<u64, Arc<Dataset>>>; 4],
}

//! The datasets and directories of a pool that are in memory.
//!
//! Each is there once: a second opener finds the handle of the first one. A map is read or changed
//! through [`Dsl::map`](crate::Dsl), so that a panic in between ends the pool.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use zuse_base::sync::RankedMutex;

use crate::dataset::Dataset;
use crate::dir::DirState;

/// The lock of a map of what is in memory.
pub(crate) type MapLock<T> = RankedMutex<T, 500>;

#[derive(Default)]
pub(crate) struct Registry {
    /// Open datasets, by object.
    pub datasets: MapLock<HashMap<u64, Weak<Dataset>>>,
    /// What is known of directories, by object.
    pub dirs: MapLock<HashMap<u64, Weak<DirState>>>,
    /// Datasets that a txg changed, by object: until it is on disk.
    pub dirty: [MapLock<BTreeMap<u64, Arc<Dataset>>>; 4],
}

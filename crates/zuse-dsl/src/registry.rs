//! The datasets and directories of a pool that are in memory.
//!
//! Each exists once: a second opener gets the handle of the first one. A map is accessed through
//! [`Dsl::map`](crate::Dsl), so that a panic during a change suspends the pool.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use zuse_base::sync::RankedMutex;

use crate::dataset::Dataset;
use crate::dir::DirState;

/// The lock of a map of in-memory objects.
pub(crate) type MapLock<T> = RankedMutex<T, 500>;

#[derive(Default)]
pub(crate) struct Registry {
    /// Open datasets, by object.
    pub datasets: MapLock<HashMap<u64, Weak<Dataset>>>,
    /// States of directories, by object.
    pub dirs: MapLock<HashMap<u64, Weak<DirState>>>,
    /// Datasets that a txg changed, by object: until it is on disk.
    pub dirty: [MapLock<BTreeMap<u64, Arc<Dataset>>>; 4],
}

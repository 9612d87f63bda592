//! The objects that keep a pool open: the [`crate::Pool`], and each file system and volume opened
//! through it.
//!
//! Invariant: when the last of them is dropped, the pool is closed. Its threads end, its devices
//! are free for the next opener, and earlier changes are on disk.

use std::sync::Arc;

use zuse_vdev::PoolState;

/// One share in an open pool.
pub(crate) struct Held(Arc<zuse_pool::Pool>);

impl Held {
    pub fn new(spa: Arc<zuse_pool::Pool>) -> Arc<Self> {
        Arc::new(Self(spa))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Does nothing after one of the closing calls. Those report whether the last changes were
        // written. A drop has no caller to report to.
        let _ = self.0.close(PoolState::Active);
    }
}

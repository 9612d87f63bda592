//! Handing unlinked objects from one process to another.
//!
//! ```text
//!   the old process                                             the new one
//!   keep_unlinked_objects ─ drops what it holds ─ close ──►    open: all but those in use are freed
//!                                                               take_over_unlinked, for each
//!                                                               free_unlinked_again, once it is its own
//! ```
//! Invariants
//! - Between [`FileSystem::keep_unlinked_objects`] and [`FileSystem::free_unlinked_again`] no
//!   object is freed because its last holder is gone. So if either process fails, the other one
//!   finds the objects in the unlinked set, intact.
//! - An object that no process takes over is freed at the next open.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, ObjectId, Result};

use crate::file_system::{FileSystem, refuse};
use crate::znode::Znode;

impl FileSystem {
    /// From now on unlinked objects stay when their last holder is gone: another process takes them
    /// over.
    pub fn keep_unlinked_objects(&self) {
        self.cache.keep_unlinked.store(true, Relaxed);
    }

    /// Unlinked objects are freed as usual again.
    pub fn free_unlinked_again(&self) {
        self.cache.keep_unlinked.store(false, Relaxed);
    }

    /// Takes over an unlinked object from another process. `linkable`: it was created without a
    /// name ([`Self::tmpfile`]).
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is no unlinked object of that generation.
    pub fn take_over_unlinked(
        &self,
        object: ObjectId,
        generation: u64,
        linkable: bool,
    ) -> Result<Arc<Znode>> {
        let znode = self.znode(object)?;
        {
            let mut state = znode.write();
            // The number may belong to another object by now, or the object may have got a name.
            if znode.generation() != generation || state.attrs.links != 0 {
                drop(state);
                return refuse(Errno::NOENT, "an object without a name");
            }
            state.linkable |= linkable;
        }
        Ok(znode)
    }
}

impl Znode {
    /// Whether it was created without a name and may still get one.
    pub fn is_linkable(&self) -> bool {
        self.read().linkable
    }
}

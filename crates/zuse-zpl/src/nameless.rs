//! Handing nameless objects from one process to another.
//!
//! ```text
//!   the old process                                     the new one
//!   leave_nameless ─ drops what it holds ─ close ──►    open: all but those in use are freed
//!                                                       take_nameless, for each
//!                                                       free_nameless_again, once it is its own
//! ```
//! Invariants
//! - Between [`FileSystem::leave_nameless`] and [`FileSystem::free_nameless_again`] no object is
//!   freed because its last holder is gone. So if either process fails, the other one finds the
//!   objects in the unlinked set, intact.
//! - An object that no process takes over is freed at the next open.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, ObjectId, Result};

use crate::file_system::{FileSystem, refuse};
use crate::znode::Znode;

impl FileSystem {
    /// From now on nameless objects stay when their last holder is gone: another process takes them
    /// over.
    pub fn leave_nameless(&self) {
        self.cache.nameless_stay.store(true, Relaxed);
    }

    /// Nameless objects are freed as usual again.
    pub fn free_nameless_again(&self) {
        self.cache.nameless_stay.store(false, Relaxed);
    }

    /// Takes over a nameless object from another process. `may_get_name`: it was created without a
    /// name ([`Self::tmpfile`]).
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is no nameless object of that generation.
    pub fn take_nameless(
        &self,
        object: ObjectId,
        generation: u64,
        may_get_name: bool,
    ) -> Result<Arc<Znode>> {
        let znode = self.znode(object)?;
        {
            let mut state = znode.write();
            // The number may belong to another object by now, or the object may have got a name.
            if znode.generation() != generation || state.attrs.links != 0 {
                drop(state);
                return refuse(Errno::NOENT, "an object without a name");
            }
            state.nameless |= may_get_name;
        }
        Ok(znode)
    }
}

impl Znode {
    /// Whether it was created without a name and may still get one.
    pub fn may_get_name(&self) -> bool {
        self.read().nameless
    }
}

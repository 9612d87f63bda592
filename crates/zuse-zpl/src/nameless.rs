//! Handing objects without a name from one process to another.
//!
//! ```text
//!   the old process                                     the new one
//!   leave_nameless ─ drops what it holds ─ close ──►    open: all but those in use are freed
//!                                                       take_nameless, for each
//!                                                       free_nameless_again, once it is its own
//! ```
//! Invariants
//! - Between [`FileSystem::leave_nameless`] and [`FileSystem::free_nameless_again`] nothing is
//!   freed because its last holder went. So if either process fails, the other one finds the
//!   objects in the unlinked set, whole.
//! - An object that nobody takes is freed at the next opening.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, ObjectId, Result};

use crate::file_system::{FileSystem, refuse};
use crate::znode::Znode;

impl FileSystem {
    /// From now on objects without a name stay when their last holder goes: somebody else takes
    /// them up.
    pub fn leave_nameless(&self) {
        self.cache.nameless_stay.store(true, Relaxed);
    }

    /// They are freed as ever.
    pub fn free_nameless_again(&self) {
        self.cache.nameless_stay.store(false, Relaxed);
    }

    /// Takes an object without a name up that another process has left. `may_get_name`: it was made
    /// so ([`Self::tmpfile`]).
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is none of that generation without a name.
    pub fn take_nameless(
        &self,
        object: ObjectId,
        generation: u64,
        may_get_name: bool,
    ) -> Result<Arc<Znode>> {
        let znode = self.znode(object)?;
        {
            let mut state = znode.write();
            // The number may be another object's by now, or the object may have got a name.
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
    /// Whether it was made without a name and may still get one.
    pub fn may_get_name(&self) -> bool {
        self.read().nameless
    }
}

//! Leftovers of a crash during a receive: heads that are INCONSISTENT and have no resume state. The
//! receive was interrupted and not resumable, or an old version was destroying the head.
//!
//! Such a head cannot be read or continued, and a temporary one cannot even be named. So they are
//! destroyed when the pool is opened for writing, where all heads are read for their logs anyway.
//! One that cannot be destroyed stays. It only blocks a receive of the same name.

use zuse_base::{Error, ObjectId, Result};
use zuse_format::dsl::DS_FLAG_INCONSISTENT;

use crate::ahead::FoundDir;
use crate::context::Dsl;

impl Dsl {
    /// Notes which of these heads, and of partial receives into them, are leftovers. Unreadable
    /// ones are skipped, so that they do not affect others.
    pub(crate) fn note_leftovers(&self, met: &[FoundDir]) {
        let Ok(meta) = self.meta() else { return };
        let temporary = |met: &FoundDir| match met.half_received {
            0 => None,
            dir => meta.dir(dir).ok().map(|dir| dir.head_dataset),
        };
        let heads = met.iter().flat_map(|m| [temporary(m), Some(m.head)]);
        let left = heads.flatten().filter(|head| self.is_left_over(*head));
        self.pending.leftovers.lock().extend(left);
    }

    fn is_left_over(&self, head: u64) -> bool {
        let Ok(meta) = self.meta() else { return false };
        let phys = meta.listed_ds(head);
        phys.is_ok_and(|ds| ds.flags & DS_FLAG_INCONSISTENT != 0)
            && matches!(self.resume_state_of(head), Ok(None))
    }

    /// Destroys the leftovers of earlier crashes.
    ///
    /// # Errors
    /// The pool is suspended, or its metadata cannot be read.
    pub fn destroy_leftovers(&self) -> Result<()> {
        let left = std::mem::take(&mut *self.pending.leftovers.lock());
        for head in left {
            // A leftover that cannot be destroyed for another reason stays.
            if let Err(e @ (Error::Device { .. } | Error::Suspended { .. })) =
                self.destroy_partial(ObjectId(head))
            {
                return Err(e);
            }
        }
        Ok(())
    }

    /// As above, for leftovers of one target, before the next receive into it.
    pub(super) fn clear_leftovers(&self, target: &str) -> Result<()> {
        for dataset in [self.temporary(target), self.dataset(target)] {
            let Ok(dataset) = dataset else { continue };
            if !dataset.is_owned() && self.is_left_over(dataset.object().0) {
                self.destroy_partial(dataset.object())?;
            }
        }
        Ok(())
    }
}

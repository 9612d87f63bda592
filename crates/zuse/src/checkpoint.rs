//! Making and discarding a pool's checkpoint.

use zuse_base::Result;

use crate::Pool;

impl Pool {
    /// Makes a checkpoint of the pool as it is on disk now.
    ///
    /// # Errors
    /// `Refused(EXIST)` with a checkpoint, `Refused(BUSY)` while one is discarded,
    /// `Refused(NOTSUP)` without the feature, `Refused(ROFS)`.
    pub fn make_checkpoint(&self) -> Result<()> {
        // What was written so far belongs to it.
        self.sync()?;
        self.spa().make_checkpoint().map(drop)
    }

    /// Gives the checkpoint up. What only it has is freed in the background
    /// ([`Self::left_to_discard`]).
    ///
    /// # Errors
    /// `Refused(NOENT)` without a checkpoint, `Refused(ROFS)`.
    pub fn discard_checkpoint(&self) -> Result<()> {
        self.spa().discard_checkpoint()
    }

    /// Bytes of a discarded checkpoint that are still to be freed; 1 at least as long as anything
    /// is.
    ///
    /// # Errors
    /// What keeps the discard from going on; the MOS cannot be read.
    pub fn left_to_discard(&self) -> Result<u64> {
        if let Some(why) = self.spa().discard_trouble() {
            return Err(why);
        }
        if !self.spa().is_discarding() {
            return Ok(0);
        }
        let bytes = self.checkpoint_space()?;
        let sum = bytes.iter().map(|(_, n)| *n);
        Ok(sum.fold(0, u64::saturating_add).max(1))
    }
}

//! Making and discarding a pool's checkpoint.

use zuse_base::Result;

use crate::Pool;

impl Pool {
    /// Creates a checkpoint of the pool's state on disk, after writing pending changes.
    ///
    /// # Errors
    /// `Refused(EXIST)` if there is a checkpoint, `Refused(BUSY)` during a discard,
    /// `Refused(NOTSUP)` without the feature, `Refused(ROFS)`.
    pub fn make_checkpoint(&self) -> Result<()> {
        // Everything written so far belongs to it.
        self.sync()?;
        self.spa().make_checkpoint().map(drop)
    }

    /// Discards the checkpoint. Blocks that only it has are freed in the background
    /// ([`Self::left_to_discard`]).
    ///
    /// # Errors
    /// `Refused(NOENT)` without a checkpoint, `Refused(ROFS)`.
    pub fn discard_checkpoint(&self) -> Result<()> {
        self.spa().discard_checkpoint()
    }

    /// Bytes of a discarded checkpoint that are still to be freed; at least 1 while there are any.
    ///
    /// # Errors
    /// The error that stops the discard; or the MOS cannot be read.
    pub fn left_to_discard(&self) -> Result<u64> {
        if let Some(why) = self.spa().discard_trouble() {
            return Err(why);
        }
        if !self.spa().is_discarding() {
            return Ok(0);
        }
        let bytes = self.checkpoint_space()?;
        let sum = bytes.iter().map(|space| space.bytes);
        Ok(sum.fold(0, u64::saturating_add).max(1))
    }
}

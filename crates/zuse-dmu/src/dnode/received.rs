//! Which part of an object a truncated stream contained, in an object set that was received from
//! it.

use zuse_base::{Error, Result};

use super::Dnode;

impl Dnode {
    /// Fails for a block that the stream did not contain ([`crate::CompletePart`]): the stored
    /// bytes are not its data.
    #[inline]
    pub(super) fn check_received(&self, blkid: u64, block_size: u32) -> Result<()> {
        match self.core.complete_part.get() {
            None => Ok(()),
            Some(_) if self.is_received(blkid, block_size) => Ok(()),
            Some(_) => Err(Error::unsent(
                self.place(),
                format!("the stream ends before its block {blkid}"),
            )),
        }
    }

    pub(super) fn is_received(&self, blkid: u64, block_size: u32) -> bool {
        let end = blkid
            .saturating_add(1)
            .saturating_mul(u64::from(block_size));
        let complete_part = self.core.complete_part.get();
        complete_part.is_none_or(|complete_part| complete_part.has_data(self.object.0, end))
    }
}

//! The shape of an object: the size of its blocks, and freeing ranges of blocks.

use std::sync::OnceLock;

use zuse_base::{Errno, Error, Result};

use super::{Dnode, Found};
use crate::dirty::Content;
use crate::tx::Tx;

impl Dnode {
    /// Changes the data block size of an object that has at most one block; the content stays,
    /// zeros are appended.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` if the object has more than one block or the size is not valid.
    pub fn set_block_size(&self, tx: &Tx, size: u32) -> Result<()> {
        let now = self.block_size();
        if size == now {
            return Ok(());
        }
        if size == 0 || !size.is_multiple_of(512) || size > 16 << 20 || self.max_block() != 0 {
            return Err(Error::refused(
                Errno::NOTSUP,
                format!("{}: block size {size} is not possible now", self.place()),
            ));
        }
        // Block 0 must be rewritten in the new size if there is anything in it.
        let exists = {
            let state = self.read_state();
            match state.find(0) {
                Found::Dirty(_) => true,
                Found::Hole => false,
                Found::Tree(tree) => !(tree.levels == 1 && tree.blkptr.at(0).is_hole()),
            }
        };
        let block = if exists {
            Some(self.own_block(tx, 0)?)
        } else {
            None
        };
        if let Some(block) = &block {
            // Before the state is locked, because the bytes of a clone come from a device.
            self.fetch(block)?;
        }
        let mut state = self.write_state();
        let d = self.dirty_in(&mut state, tx.txg())?;
        d.head.block_size = size;
        if let Some(block) = block {
            let mut content = block.change();
            content.thaw();
            if let Content::Stored(stored) = &*content {
                *content = Content::Dirty {
                    bytes: stored.decode()?,
                    index: OnceLock::new(),
                    loan: None,
                };
            }
            if let Content::Dirty { bytes, .. } = &mut *content {
                if bytes.capacity() < size as usize {
                    // Doubles the capacity, so that a directory growing by 512 bytes is not copied
                    // each time.
                    let want = (size as usize).next_power_of_two();
                    bytes.reserve_exact(want - bytes.len());
                }
                bytes.resize(size as usize, 0);
            }
            if size > now {
                self.core.meter.add(tx.txg(), u64::from(size - now));
            }
        }
        Ok(())
    }

    /// As [`Self::free_blocks`], but the highest block id stays, because a MAC covers it.
    ///
    /// # Errors
    /// The object is free.
    pub fn free_blocks_raw(&self, tx: &Tx, first: u64, count: u64) -> Result<()> {
        self.dirty(tx, |d| {
            d.free(first, first.saturating_add(count));
        })
    }

    /// Frees `count` blocks from `first` on; `u64::MAX` frees to the end and lowers the highest
    /// block id.
    ///
    /// # Errors
    /// The object is free.
    pub fn free_blocks(&self, tx: &Tx, first: u64, count: u64) -> Result<()> {
        self.dirty(tx, |d| {
            let end = first.saturating_add(count);
            d.free(first, end);
            if end > d.head.max_block && first <= d.head.max_block {
                d.head.max_block = first.saturating_sub(1);
            }
        })
    }
}

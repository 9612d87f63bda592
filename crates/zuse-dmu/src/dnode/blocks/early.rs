//! Blocks that are written before their txg syncs, because the intent log refers to them.
//!
//! The bytes of the open txg's version are frozen and written to a place that this txg allocated.
//! The version records the place. A later change thaws the version, and its txg writes it like any
//! other. A placed block that no tree links is freed in the same txg by the pipeline, which has a
//! list of them (`zuse_io::Pipeline::place`).

use std::sync::Arc;

use zuse_base::{Result, Txg};
use zuse_format::BlockPointer;
use zuse_io::{Block, Mark, WritePolicy};

use crate::dirty::DirtyBlock;
use crate::dnode::Dnode;
use crate::tx::Tx;

/// A version of the open txg, frozen for writing now.
pub struct EarlyBlock {
    txg: Txg,
    version: Arc<DirtyBlock>,
    bytes: Arc<Block>,
    policy: WritePolicy,
}

impl Dnode {
    /// Freezes the version of a block in tx's txg. `None` if there is none with its bytes in
    /// memory, or it was written before.
    pub fn freeze_early(&self, tx: &Tx, blkid: u64) -> Option<EarlyBlock> {
        let (version, policy, size) = {
            let state = self.read_state();
            let newest = state.dirty.last().filter(|d| d.txg == tx.txg())?;
            let head = &newest.head;
            let settings = self.core.settings();
            let (kind, compress, checksum) = (head.object_type, head.compress, head.checksum);
            let policy = settings.policy(kind, 0, false, compress, checksum, 1);
            let version = newest.blocks.get(blkid)?.clone();
            (version, policy, head.block_size as usize)
        };
        if self.core.raw {
            return None;
        }
        let bytes = version.freeze_early()?;
        (bytes.bytes().len() == size).then_some(EarlyBlock {
            txg: tx.txg(),
            version,
            bytes,
            policy,
        })
    }

    /// Writes a frozen block. The sync of its txg waits for the caller. `None`: the block is left
    /// to its txg.
    ///
    /// # Errors
    /// `Device`: it was not written.
    pub fn write_early(&self, early: &EarlyBlock) -> Result<Option<(BlockPointer, Mark)>> {
        let core = &self.core;
        let (policy, key) = (&early.policy, core.key.as_deref());
        let placed = core.io.place(early.txg, policy, key, early.bytes.bytes())?;
        if let Some((bp, _)) = &placed {
            early.version.note_place(&early.bytes, bp);
        }
        Ok(placed)
    }
}

//! Blocks with more than one pointer (dedup, block cloning). Before their space is freed, the table
//! that counts the pointers is consulted.
//!
//! A [`Reference`] is a future pointer, made in open context. It keeps the block from being freed
//! once its txg starts to sync. The writer of the pointer keeps it ([`Reference::keep`]). If its
//! file is overwritten or removed in the same txg, the reference is dropped unwritten and withdraws
//! itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zuse_base::{Result, Txg};
use zuse_format::BlockPointer;

/// The counter of references to blocks. Implemented by the pool's block reference tables.
pub trait Shared: Send + Sync {
    /// Adds a reference to a block, from `txg` on. `dsize`: the bytes that the block is charged,
    /// here and in the calls below.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` if such references cannot be counted.
    fn refer(&self, txg: Txg, bp: &BlockPointer, dsize: u64) -> Result<()>;

    /// A reference that [`Shared::refer`] announced for `txg` will not be written.
    fn withdraw(&self, txg: Txg, bp: &BlockPointer, dsize: u64);

    /// Drops a reference, in syncing context. True: other references are left, so the space stays.
    ///
    /// # Errors
    /// A table cannot be read.
    fn drop_reference(&self, bp: &BlockPointer, dsize: u64) -> Result<bool>;
}

/// A further pointer to a block, not written yet.
pub struct Reference {
    shared: Arc<dyn Shared>,
    txg: Txg,
    bp: BlockPointer,
    dsize: u64,
    kept: AtomicBool,
}

impl Reference {
    pub(crate) fn new(
        shared: Arc<dyn Shared>,
        txg: Txg,
        bp: &BlockPointer,
        dsize: u64,
    ) -> Result<Self> {
        shared.refer(txg, bp, dsize)?;
        Ok(Self {
            shared,
            txg,
            bp: *bp,
            dsize,
            kept: AtomicBool::new(false),
        })
    }

    /// The existing pointer to the block.
    pub fn pointer(&self) -> &BlockPointer {
        &self.bp
    }

    /// The pointer is written: from now on the reference counts until the pointer is freed.
    pub fn keep(&self) {
        self.kept.store(true, Relaxed);
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if !self.kept.load(Relaxed) {
            self.shared.withdraw(self.txg, &self.bp, self.dsize);
        }
    }
}

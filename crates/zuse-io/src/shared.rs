//! Blocks that more than one pointer leads to. Before their space is freed, the table that counts
//! the pointers is asked.
//!
//! A [`Reference`] is a future pointer, made in open context. It holds the block from the moment
//! its txg is being written, before anything is freed in that txg. The writer of the pointer keeps
//! it ([`Reference::keep`]). If its file is overwritten or removed within the same txg, the
//! reference is dropped unwritten, and so withdraws itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zuse_base::{Result, Txg};
use zuse_format::BlockPointer;

/// Who counts the pointers to blocks. Implemented by the pool's tables of cloned blocks.
pub trait Shared: Send + Sync {
    /// One more pointer to a block, from `txg` on. `dsize`: the bytes it takes in the books, as in
    /// the calls below.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` where such pointers cannot be counted.
    fn refer(&self, txg: Txg, bp: &BlockPointer, dsize: u64) -> Result<()>;

    /// A pointer that [`Shared::refer`] announced for `txg` will not be written.
    fn withdraw(&self, txg: Txg, bp: &BlockPointer, dsize: u64);

    /// A pointer goes, in syncing context. True: others have the block, its space stays.
    ///
    /// # Errors
    /// A table cannot be read.
    fn give_up(&self, bp: &BlockPointer, dsize: u64) -> Result<bool>;
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

    /// The pointer that is there already.
    pub fn pointer(&self) -> &BlockPointer {
        &self.bp
    }

    /// The pointer is written: from now on it counts until it is freed.
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

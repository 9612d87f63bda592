//! The accounting of one head during its sync: which blocks were born, freed, or put on the
//! deadlist.
//!
//! Many threads of a sync call it. Afterwards the sync thread writes the sums into the MOS.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use zuse_base::sync::RankedMutex;

use zuse_base::tripwire::at;
use zuse_base::{Error, Result, Txg};
use zuse_dmu::Ledger;
use zuse_format::{BlockPointer, BpKind};
use zuse_io::Pipeline;

use crate::sizes::Sizes;

#[derive(Default)]
struct Cell([AtomicI64; 3]);

impl Cell {
    fn add(&self, s: Sizes) {
        for (cell, v) in self.0.iter().zip([s.used, s.comp, s.uncomp]) {
            cell.fetch_add(v, Relaxed);
        }
    }
    fn take(&self) -> Sizes {
        let [used, comp, uncomp] = [0, 1, 2].map(|i: usize| self.0[i].swap(0, Relaxed));
        Sizes { used, comp, uncomp }
    }
}

/// The results of one sync pass of a dataset.
#[derive(Default)]
pub(crate) struct Sums {
    pub born: Sizes,
    /// Freed in this txg: no snapshot has them.
    pub freed: Sizes,
    /// Left the head, but older snapshots have them.
    pub dead: Vec<BlockPointer>,
    /// Added to the tree of a clone with a livelist.
    pub listed_born: Vec<BlockPointer>,
    /// Removed from such a tree, and younger than the clone's origin.
    pub listed_gone: Vec<BlockPointer>,
}

/// The accounting of a dataset: its [`Ledger`].
pub(crate) struct HeadAccounting {
    io: Arc<Pipeline>,
    /// Object number, if the ledger is a dataset's.
    dataset: Option<u64>,
    /// Txg of the newest snapshot: only the head has blocks born later.
    prev_snap_txg: AtomicU64,
    /// Blocks younger than this go into the clone's livelist; `u64::MAX` without one.
    listed_since: AtomicU64,
    born: Cell,
    freed: Cell,
    dead: RankedMutex<Vec<BlockPointer>, 600>,
    listed_born: RankedMutex<Vec<BlockPointer>, 601>,
    listed_gone: RankedMutex<Vec<BlockPointer>, 602>,
}

impl HeadAccounting {
    pub fn new(io: Arc<Pipeline>, dataset: Option<u64>, prev_snap_txg: u64) -> Self {
        Self {
            io,
            dataset,
            prev_snap_txg: AtomicU64::new(prev_snap_txg),
            listed_since: AtomicU64::new(u64::MAX),
            born: Cell::default(),
            freed: Cell::default(),
            dead: RankedMutex::default(),
            listed_born: RankedMutex::default(),
            listed_gone: RankedMutex::default(),
        }
    }

    pub fn set_prev_snap_txg(&self, txg: u64) {
        self.prev_snap_txg.store(txg, Relaxed);
    }

    /// Txg of the origin of a clone with a livelist.
    pub fn set_listed_since(&self, txg: Option<u64>) {
        self.listed_since.store(txg.unwrap_or(u64::MAX), Relaxed);
    }

    pub fn take(&self) -> Sums {
        Sums {
            born: self.born.take(),
            freed: self.freed.take(),
            dead: std::mem::take(&mut *self.dead.lock()),
            listed_born: std::mem::take(&mut *self.listed_born.lock()),
            listed_gone: std::mem::take(&mut *self.listed_gone.lock()),
        }
    }

    /// Notes a block for the livelist, if it belongs there.
    fn list<const RANK: u32>(
        &self,
        list: &RankedMutex<Vec<BlockPointer>, RANK>,
        bp: &BlockPointer,
    ) {
        if bp.allocation_birth() > self.listed_since.load(Relaxed) && bp.kind() == BpKind::Normal {
            let tripwire = self.io.vdevs().tripwire();
            tripwire.hold(at::ACCOUNTING, list.lock()).push(*bp);
        }
    }
}

impl Ledger for HeadAccounting {
    fn dataset(&self) -> Option<u64> {
        self.dataset
    }

    fn born(&self, _txg: Txg, bp: &BlockPointer) {
        self.born.add(Sizes::of_block(&self.io, bp));
        self.list(&self.listed_born, bp);
    }

    fn kill(&self, txg: Txg, bp: &BlockPointer) -> Result<()> {
        if bp.is_hole() || bp.is_redacted() {
            return Ok(());
        }
        self.list(&self.listed_gone, bp);
        // Younger than the newest snapshot: no other dataset has it (04-dsl §4.4).
        if bp.allocation_birth() > self.prev_snap_txg.load(Relaxed) {
            must_be_born(self.dataset, txg, bp)?;
            self.io.free(txg, bp)?;
            self.freed.add(Sizes::of_block(&self.io, bp));
        } else {
            let dead = self.dead.lock();
            let tripwire = self.io.vdevs().tripwire();
            tripwire.hold(at::ACCOUNTING, dead).push(*bp);
        }
        Ok(())
    }
}

/// An older txg cannot free blocks of a txg that is not written yet. A pointer that claims so comes
/// from disk.
fn must_be_born(dataset: Option<u64>, txg: Txg, bp: &BlockPointer) -> Result<()> {
    if bp.logical_birth() <= txg.0 {
        return Ok(());
    }
    Err(Error::contradiction(
        format!("dataset {}", dataset.unwrap_or(0)),
        format!(
            "in txg {txg} a block goes that was born in {}",
            bp.logical_birth()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_a_txg_to_come_is_not_freed() {
        let mut bp = BlockPointer::HOLE;
        bp.set_birth(9, 9);
        assert!(must_be_born(Some(54), Txg(9), &bp).is_ok());
        let error = must_be_born(Some(54), Txg(8), &bp).map_err(|e| e.to_string());
        assert!(error.is_err_and(|s| s.contains("dataset 54") && s.contains("born in 9")));
    }
}

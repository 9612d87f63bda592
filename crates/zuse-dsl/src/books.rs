//! The books of one head while it is written: what was born, what was freed, what goes to the
//! deadlist.
//!
//! Called from many threads during a sync; the sync thread takes the sums afterwards and puts them
//! into the MOS.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use zuse_base::sync::Mutex;

use zuse_base::tripwire::at;
use zuse_base::{Result, Txg};
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

/// What one sync pass of a dataset did.
#[derive(Default)]
pub(crate) struct Sums {
    pub born: Sizes,
    /// Freed at once: they were the head's own.
    pub freed: Sizes,
    /// Left the head but older snapshots hold them.
    pub dead: Vec<BlockPointer>,
    /// Came into the tree of a clone with a livelist.
    pub listed_born: Vec<BlockPointer>,
    /// Left such a tree, and are younger than the clone's origin.
    pub listed_gone: Vec<BlockPointer>,
}

/// A dataset's ledger.
pub(crate) struct Books {
    io: Arc<Pipeline>,
    /// Object number, where it is a dataset's.
    dataset: Option<u64>,
    /// Txg of the newest snapshot: blocks born later are the head's own.
    prev_snap_txg: AtomicU64,
    /// Blocks younger than this go into the clone's livelist; `u64::MAX` where there is none.
    listed_since: AtomicU64,
    born: Cell,
    freed: Cell,
    dead: Mutex<Vec<BlockPointer>>,
    listed_born: Mutex<Vec<BlockPointer>>,
    listed_gone: Mutex<Vec<BlockPointer>>,
}

impl Books {
    pub fn new(io: Arc<Pipeline>, dataset: Option<u64>, prev_snap_txg: u64) -> Self {
        Self {
            io,
            dataset,
            prev_snap_txg: AtomicU64::new(prev_snap_txg),
            listed_since: AtomicU64::new(u64::MAX),
            born: Cell::default(),
            freed: Cell::default(),
            dead: Mutex::default(),
            listed_born: Mutex::default(),
            listed_gone: Mutex::default(),
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

    /// Notes a block for the livelist, if it belongs into one.
    fn list(&self, list: &Mutex<Vec<BlockPointer>>, bp: &BlockPointer) {
        if bp.allocation_birth() > self.listed_since.load(Relaxed) && bp.kind() == BpKind::Normal {
            let tripwire = self.io.vdevs().tripwire();
            tripwire.hold(at::BOOKS, list.lock()).push(*bp);
        }
    }
}

impl Ledger for Books {
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
        if bp.allocation_birth() > self.prev_snap_txg.load(Relaxed) {
            // Nothing of a txg that is not written yet can be freed by an older one.
            debug_assert!(bp.logical_birth() <= txg.0, "{bp:?} dies before it is born");
            self.io.free(txg, bp)?;
            self.freed.add(Sizes::of_block(&self.io, bp));
        } else {
            let dead = self.dead.lock();
            let tripwire = self.io.vdevs().tripwire();
            tripwire.hold(at::BOOKS, dead).push(*bp);
        }
        Ok(())
    }
}

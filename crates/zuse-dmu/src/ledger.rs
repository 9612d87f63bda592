//! The trait through which a dataset learns which blocks are born and freed while its object set is
//! written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zuse_base::{Result, Txg};
use zuse_format::BlockPointer;
use zuse_io::Pipeline;

/// The accounting of one object set: the dataset's space and deadlist, or the pool's own usage.
///
/// Called from several threads at once, in syncing context only.
pub trait Ledger: Send + Sync {
    /// A block (never a hole) was written into the tree.
    fn born(&self, txg: Txg, bp: &BlockPointer);
    /// A block left the tree: it is freed, or goes to the deadlist.
    ///
    /// # Errors
    /// The space could not be freed.
    fn kill(&self, txg: Txg, bp: &BlockPointer) -> Result<()>;
    /// Object number of the dataset, 0 for the MOS; `None` if lost blocks are not reported.
    fn dataset(&self) -> Option<u64> {
        None
    }
}

/// Tells the ledger of a block that was written in `txg`.
///
/// The pointer's birth is that txg, because sends and frees decide by births.
pub(crate) fn note_born(ledger: &dyn Ledger, txg: Txg, bp: &BlockPointer) {
    assert!(
        bp.logical_birth() == txg.0 && bp.physical_birth() <= txg.0,
        "txg {} writes a pointer of another txg: {bp:?}",
        txg.0
    );
    ledger.born(txg, bp);
}

/// A ledger that frees dead blocks and counts space: for the MOS, and for tests.
pub struct FreeingLedger {
    io: Arc<Pipeline>,
    delta: [AtomicU64; 3],
}

impl FreeingLedger {
    /// A ledger over a pipeline.
    pub fn new(io: Arc<Pipeline>) -> Self {
        Self {
            io,
            delta: Default::default(),
        }
    }

    /// Changes since the last call: (used, compressed, uncompressed) bytes, as two's complement.
    pub fn take_delta(&self) -> [i64; 3] {
        std::array::from_fn(|i| self.delta[i].swap(0, Relaxed) as i64)
    }

    fn count(&self, bp: &BlockPointer, sign: u64) {
        let sizes = [self.io.dsize(bp), bp.psize(), bp.psize()];
        for (d, s) in self.delta.iter().zip(sizes) {
            d.fetch_add(s.wrapping_mul(sign), Relaxed);
        }
    }
}

impl Ledger for FreeingLedger {
    fn dataset(&self) -> Option<u64> {
        Some(0)
    }

    fn born(&self, _txg: Txg, bp: &BlockPointer) {
        self.count(bp, 1);
    }

    fn kill(&self, txg: Txg, bp: &BlockPointer) -> Result<()> {
        self.count(bp, u64::MAX);
        self.io.free(txg, bp)
    }
}

/// Dirty bytes per txg, for throttling writers: those of files, and those of everything else.
#[derive(Default)]
pub struct DirtyMeter {
    metadata: [AtomicU64; 4],
    data: [AtomicU64; 4],
    /// Metadata blocks of objects that are new in the txg, including those on loan from the cache.
    fresh: [AtomicU64; 4],
    /// The same for older objects, and for new ones that have grown large already.
    again: [AtomicU64; 4],
    /// Values of extended attributes for which there was memory to spare.
    values: [AtomicU64; 4],
}

impl DirtyMeter {
    /// Adds dirty bytes of objects and metadata to a txg.
    pub fn add(&self, txg: Txg, bytes: u64) {
        self.metadata[txg.slot::<4>()].fetch_add(bytes, Relaxed);
    }

    /// Notes a changed block of metadata: of an object that is new in this txg (`fresh`), or one
    /// that later txgs will probably change again. This does not count as dirty.
    pub fn note_block(&self, txg: Txg, fresh: bool, bytes: u64) {
        let of = if fresh { &self.fresh } else { &self.again };
        of[txg.slot::<4>()].fetch_add(bytes, Relaxed);
    }

    /// Bytes of metadata blocks in a txg: of new objects, and of blocks that are probably written
    /// again.
    pub fn fresh_and_again(&self, txg: Txg) -> (u64, u64) {
        let slot = txg.slot::<4>();
        (
            self.fresh[slot].load(Relaxed),
            self.again[slot].load(Relaxed),
        )
    }

    /// More dirty bytes of files in a txg.
    pub fn add_data(&self, txg: Txg, bytes: u64) {
        self.data[txg.slot::<4>()].fetch_add(bytes, Relaxed);
    }

    /// Adds bytes of attribute values to a txg that no writer has to wait for. This does not count
    /// as dirty.
    pub fn note_value(&self, txg: Txg, bytes: u64) {
        self.values[txg.slot::<4>()].fetch_add(bytes, Relaxed);
    }

    /// Bytes of such values in a txg.
    pub fn values_of(&self, txg: Txg) -> u64 {
        self.values[txg.slot::<4>()].load(Relaxed)
    }

    /// Bytes of file data and of such values in a txg.
    pub fn bulk_of(&self, txg: Txg) -> u64 {
        self.data[txg.slot::<4>()].load(Relaxed) + self.values_of(txg)
    }

    /// The txg was written: its bytes are clean.
    pub fn clear(&self, txg: Txg) {
        self.metadata[txg.slot::<4>()].store(0, Relaxed);
        self.data[txg.slot::<4>()].store(0, Relaxed);
        self.fresh[txg.slot::<4>()].store(0, Relaxed);
        self.again[txg.slot::<4>()].store(0, Relaxed);
        self.values[txg.slot::<4>()].store(0, Relaxed);
    }

    /// Dirty bytes of one txg.
    pub fn of(&self, txg: Txg) -> u64 {
        self.metadata[txg.slot::<4>()].load(Relaxed) + self.data[txg.slot::<4>()].load(Relaxed)
    }

    /// Dirty bytes of objects and metadata, of all txgs that are not yet written.
    pub fn metadata(&self) -> u64 {
        self.metadata.iter().map(|s| s.load(Relaxed)).sum()
    }

    /// Dirty bytes of files, of all txgs that are not yet written.
    pub fn data(&self) -> u64 {
        self.data.iter().map(|s| s.load(Relaxed)).sum()
    }

    /// Dirty bytes of all txgs that are not yet written.
    pub fn total(&self) -> u64 {
        self.metadata() + self.data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Ledger for Nobody {
        fn born(&self, _: Txg, _: &BlockPointer) {}
        fn kill(&self, _: Txg, _: &BlockPointer) -> Result<()> {
            Ok(())
        }
    }

    fn pointer(logical: u64, physical: u64) -> BlockPointer {
        let mut bp = BlockPointer::HOLE;
        bp.set_dva(0, zuse_format::Dva::new(0, 1 << 20, 4096, false));
        bp.set_birth(logical, physical);
        bp
    }

    #[test]
    #[should_panic(expected = "txg 9 writes a pointer of another txg")]
    fn a_pointer_of_an_older_txg_is_not_written_as_a_new_one() {
        note_born(&Nobody, Txg(9), &pointer(9, 7));
        note_born(&Nobody, Txg(9), &pointer(8, 8));
    }

    #[test]
    #[should_panic(expected = "txg 9 writes a pointer of another txg")]
    fn a_pointer_to_a_block_of_a_txg_to_come_is_not_written() {
        note_born(&Nobody, Txg(9), &pointer(9, 10));
    }

    #[test]
    fn values_are_of_their_txg_until_it_is_written() {
        let meter = DirtyMeter::default();
        meter.note_value(Txg(5), 100);
        meter.note_value(Txg(6), 10);
        meter.note_value(Txg(6), 1);
        assert_eq!(
            (meter.values_of(Txg(5)), meter.values_of(Txg(6))),
            (100, 11)
        );
        assert_eq!(meter.total(), 0);
        meter.add_data(Txg(6), 1000);
        meter.add(Txg(6), 1);
        assert_eq!((meter.bulk_of(Txg(5)), meter.bulk_of(Txg(6))), (100, 1011));
        meter.clear(Txg(5));
        assert_eq!((meter.values_of(Txg(5)), meter.values_of(Txg(6))), (0, 11));
        meter.clear(Txg(6));
        assert_eq!((meter.values_of(Txg(6)), meter.total()), (0, 0));
    }
}

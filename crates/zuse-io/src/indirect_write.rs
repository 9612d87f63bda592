//! Blocks that are written before the sync of their txg: the data of an intent log's records, in
//! its final place.
//!
//! ```text
//!   open txg T:   place() ─► allocated in T, written, noted here ─► its pointer is in a log record
//!   sync of T:    the version did not change since   ─► keep(): the tree has the pointer
//!                 all that is left here              ─► freed in T
//! ```
//! - A place is noted before it is written. The data may change again, be truncated, or go with its
//!   file. So the sync of T either links the place or frees it, once.
//! - Its space is allocated again only two txgs after T is on disk, like all space that T frees.
//!   The record that leads to it counts only while T is not on disk.
//! - The sync of T waits for callers that are placing blocks of T (`zuse_pool::Logs::write_in`).

use std::collections::HashMap;

use zuse_base::sync::Mutex;
use zuse_base::{Error, Result, Txg};
use zuse_codec::Compression;
use zuse_format::{BlockPointer, object_type};
use zuse_vdev::Mark;

use crate::pipeline::{CompressedForm, address_of, normal, seal};
use crate::{DatasetKey, Dedup, FeatureUse, Pipeline, WritePolicy};

/// Txgs that may have placed blocks.
const TXGS: usize = 4;

struct Place {
    bp: BlockPointer,
    mark: Mark,
}

#[derive(Default)]
struct OfTxg {
    txg: Txg,
    places: HashMap<(u32, u64), Place>,
}

/// The blocks of a pool that have a place and no pointer in a tree yet.
#[derive(Default)]
pub(crate) struct IndirectWrites(Mutex<[OfTxg; TXGS]>);

fn key_of(bp: &BlockPointer) -> (u32, u64) {
    let dva = bp.dva(0);
    (dva.vdev(), dva.offset())
}

impl IndirectWrites {
    fn note(&self, txg: Txg, bp: &BlockPointer, mark: Mark) {
        let mut all = self.0.lock();
        let of = &mut all[txg.slot::<TXGS>()];
        if of.txg != txg {
            // The sync of the older txg has removed its entries.
            assert!(
                of.places.is_empty(),
                "places of {:?} were forgotten",
                of.txg
            );
            of.txg = txg;
        }
        let other = of.places.insert(key_of(bp), Place { bp: *bp, mark });
        assert!(other.is_none(), "two blocks of {txg:?} have one place");
    }

    /// Takes the places of a txg out.
    fn take(&self, txg: Txg) -> Vec<Place> {
        let mut all = self.0.lock();
        let of = &mut all[txg.slot::<TXGS>()];
        match of.txg == txg {
            true => std::mem::take(&mut of.places).into_values().collect(),
            false => Vec::new(),
        }
    }

    fn keep(&self, txg: Txg, bp: &BlockPointer) -> bool {
        let mut all = self.0.lock();
        let of = &mut all[txg.slot::<TXGS>()];
        of.txg == txg
            && of.places.get(&key_of(bp)).is_some_and(|p| p.bp == *bp)
            && of.places.remove(&key_of(bp)).is_some()
    }

    fn marks(&self, txg: Txg) -> Vec<Mark> {
        let all = self.0.lock();
        let of = &all[txg.slot::<TXGS>()];
        let of = (of.txg == txg).then_some(&of.places);
        of.into_iter()
            .flat_map(|places| places.values().map(|p| p.mark.clone()))
            .collect()
    }
}

impl Pipeline {
    /// Writes a block of an open txg to its place now, not gathered with others. The caller makes
    /// sure that the txg is not synced meanwhile. Returns its pointer, and the devices to flush
    /// before a commit returns.
    ///
    /// `None`: the block has to be written by its txg. It is all zeros, is small enough to embed,
    /// has copies or may be deduplicated. Or there is no contiguous space.
    ///
    /// # Errors
    /// `Device` if it was not written; nothing is retried.
    pub fn place(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        key: Option<&DatasetKey>,
        data: &[u8],
    ) -> Result<Option<(BlockPointer, Mark)>> {
        let policy = &match key {
            Some(_) => policy.encrypted(),
            None => *policy,
        };
        let is_plain = policy.level == 0
            && policy.copies == 1
            && policy.dedup == Dedup::Off
            && !policy.nopwrite
            && policy.object_type != object_type::DNODE;
        if !is_plain || zuse_codec::is_zero(data) {
            return Ok(None);
        }
        self.scratch
            .with(|scratch| self.place_with(txg, policy, key, data, scratch))
    }

    fn place_with(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        key: Option<&DatasetKey>,
        data: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Option<(BlockPointer, Mark)>> {
        let unit = self.allocator()?.min_allocation();
        let compression = match self.compress(policy, unit, data, scratch) {
            CompressedForm::Plain => Compression::Off,
            CompressedForm::Embed(_) => return Ok(None),
            CompressedForm::Stored => policy.compression,
        };
        let packed = compression != Compression::Off;
        let len = if packed { scratch.len() } else { data.len() };
        let mut bp = normal(policy, data.len(), len, compression);
        if let Some(key) = key {
            if !packed {
                scratch.clear();
                scratch.extend_from_slice(data);
            }
            seal(policy, key, &mut bp, data, scratch)?;
        }
        let stored = match packed || key.is_some() {
            true => &scratch[..],
            false => data,
        };
        // The salt of these checksums may not be on disk yet. Then the block could not be verified.
        const SALTED: u32 = FeatureUse::SKEIN | FeatureUse::EDONR | FeatureUse::BLAKE3;
        if FeatureUse::of(&bp).0 & SALTED != 0 {
            return Ok(None);
        }
        self.sum(policy.checksum, &mut bp, stored)?;
        bp.set_birth(txg.0, txg.0);
        bp.set_fill(1);
        let found = match self.find_place(txg, policy, stored.len() as u64) {
            Ok(found) => found,
            // The txg can still write it, in pieces.
            Err(Error::Refused { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(found) = found else { return Ok(None) };
        bp.set_dva(0, found.dvas[0]);
        let dva = bp.dva(0);
        let mark = self.vdevs().mark(dva.vdev())?;
        self.indirect_writes.note(txg, &bp, mark.clone());
        self.make_way_for(&dva, stored.len())?;
        self.vdevs().write(address_of(&dva, &bp), stored)?;
        self.note_written(stored.len());
        Ok(Some((bp, mark)))
    }

    /// The tree of an object has the pointer of a placed block now.
    ///
    /// # Errors
    /// `Corrupt`: no such block was placed in that txg, or another tree has taken it.
    pub fn keep_placed(&self, txg: Txg, bp: &BlockPointer) -> Result<()> {
        match self.indirect_writes.keep(txg, bp) {
            true => Ok(()),
            false => Err(Error::corrupt(
                format!("txg {}, a block at {:?}", txg.0, bp.dva(0)),
                "it is linked as placed, and was not placed in this txg",
            )),
        }
    }

    /// Called when the sync of a txg begins. A device that missed placed blocks has missed this
    /// txg.
    ///
    /// # Errors
    /// A vdev is gone.
    pub fn note_lacking_placed(&self, txg: Txg) -> Result<()> {
        let marks = self.indirect_writes.marks(txg);
        marks
            .iter()
            .try_for_each(|mark| self.vdevs().note_lacking(mark))
    }

    /// Frees, in the sync of a txg, blocks that were placed in it and that no tree links.
    ///
    /// # Errors
    /// As [`Self::free`].
    pub fn free_placed(&self, txg: Txg) -> Result<()> {
        let unused = self.indirect_writes.take(txg);
        unused
            .iter()
            .try_for_each(|place| self.free(txg, &place.bp))
    }
}

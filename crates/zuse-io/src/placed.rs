//! Blocks that were written before the sync of their txg: the data of an intent log's records lies
//! where it will stay.
//!
//! ```text
//!   open txg T:   place() ─► allocated in T, written, noted here ─► its pointer is in a log record
//!   sync of T:    the version did not change since   ─► keep(): the tree has the pointer
//!                 all that is left here              ─► freed in T
//! ```
//! - A place is noted before it is written. Its version may change again, be cut off, or go with
//!   its file: the sync of T frees the place or links it, once.
//! - Its space is given out again two txgs after T is on disk, as all that T frees. The record that
//!   leads to it counts only while T is not on disk.
//! - The sync of T waits for whoever places blocks of T (`zuse_pool::Logs::write_in`).

use std::collections::HashMap;

use zuse_base::sync::Mutex;
use zuse_base::{Error, Result, Txg};
use zuse_codec::Compression;
use zuse_format::{BlockPointer, object_type};
use zuse_vdev::Mark;

use crate::pipeline::{Squeezed, address_of, normal, seal};
use crate::{DatasetKey, Dedup, FeatureUse, Pipeline, WritePolicy};

/// Txgs that may have some.
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

/// The blocks of one pool that have their place and no pointer in a tree.
#[derive(Default)]
pub(crate) struct Places(Mutex<[OfTxg; TXGS]>);

fn key_of(bp: &BlockPointer) -> (u32, u64) {
    let dva = bp.dva(0);
    (dva.vdev(), dva.offset())
}

impl Places {
    fn note(&self, txg: Txg, bp: &BlockPointer, mark: Mark) {
        let mut all = self.0.lock();
        let of = &mut all[txg.slot::<TXGS>()];
        if of.txg != txg {
            // The sync of the older one has taken what was there.
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
    /// Writes a block of an open txg to its place now, not through others that wait. The caller
    /// sees to it that the txg is not synced meanwhile. Gives its pointer, and what is to be
    /// flushed before anybody is promised anything.
    ///
    /// `None`: it has to be written by its txg. It is all zeros, fits in its pointer, has copies or
    /// may be found by its content. Or there is no room in one piece.
    ///
    /// # Errors
    /// `Device` when it was not written: nothing is tried again.
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
        let compression = match self.squeeze(policy, unit, data, scratch) {
            Squeezed::Plain => Compression::Off,
            Squeezed::Embed(_) => return Ok(None),
            Squeezed::Stored => policy.compression,
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
        // The salt of such checksums may be on no disk yet, and the block could not be proved.
        const SALTED: u32 = FeatureUse::SKEIN | FeatureUse::EDONR | FeatureUse::BLAKE3;
        if FeatureUse::of(&bp).0 & SALTED != 0 {
            return Ok(None);
        }
        self.sum(policy.checksum, &mut bp, stored)?;
        bp.set_birth(txg.0, txg.0);
        bp.set_fill(1);
        let found = match self.find_place(txg, policy, stored.len() as u64) {
            Ok(found) => found,
            Err(Error::Refused { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(found) = found else { return Ok(None) };
        bp.set_dva(0, found.dvas[0]);
        let dva = bp.dva(0);
        let mark = self.vdevs().mark(dva.vdev())?;
        self.places.note(txg, &bp, mark.clone());
        self.make_way_for(&dva, stored.len())?;
        self.vdevs().write(address_of(&dva, &bp), stored)?;
        self.note_written(stored.len());
        Ok(Some((bp, mark)))
    }

    /// The tree of an object has the pointer of a placed block now.
    ///
    /// # Errors
    /// `Corrupt`: no such block was placed in that txg, or another tree has it.
    pub fn keep_placed(&self, txg: Txg, bp: &BlockPointer) -> Result<()> {
        match self.places.keep(txg, bp) {
            true => Ok(()),
            false => Err(Error::corrupt(
                format!("txg {}, a block at {:?}", txg.0, bp.dva(0)),
                "it is linked as placed, and was not placed in this txg",
            )),
        }
    }

    /// At the begin of the sync of a txg: the devices that lack its placed blocks lack them in this
    /// txg.
    ///
    /// # Errors
    /// A vdev is gone.
    pub fn note_lacking_placed(&self, txg: Txg) -> Result<()> {
        let marks = self.places.marks(txg);
        marks
            .iter()
            .try_for_each(|mark| self.vdevs().note_lacking(mark))
    }

    /// Frees, in the sync of a txg, the blocks that were placed in it and that no tree has.
    ///
    /// # Errors
    /// As [`Self::free`].
    pub fn free_placed(&self, txg: Txg) -> Result<()> {
        let unused = self.places.take(txg);
        unused
            .iter()
            .try_for_each(|place| self.free(txg, &place.bp))
    }
}

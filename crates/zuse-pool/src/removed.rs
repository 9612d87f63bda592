//! Removed vdevs: their mappings, read when a pool is opened (chapter 01b §6 of the format notes).
//!
//! | object | bonus | content |
//! |---|---|---|
//! | mapping | max offset, bytes mapped, number of entries, counts object | entries of 24 bytes: source, destination DVA |
//!
//! The mapping of the vdev that was removed last is on present vdevs. An earlier one may be on a
//! vdev that was removed later. So they are read in that order: newest first, along
//! `prev_indirect_vdev`.

use std::collections::BTreeSet;
use std::sync::Arc;

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::Dva;
use zuse_vdev::{Mapping, Moved, VdevKind};

use crate::Pool;
use crate::allocator::SideKind;
use crate::space_map::MosWriter;

/// Bytes of an entry.
const ENTRY: usize = 24;
/// Entries read at a time.
const PIECE: u64 = 4096;
pub(crate) const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";
/// Key in the MOS directory: vdev, its older obsolete map, the new mapping so far.
const CONDENSING: &[u8] = b"com.delphix:condensing_indirect";
/// "No vdev" in the record of removals.
const NONE: u64 = u64::MAX;

impl Pool {
    /// Reads the mappings of all removed vdevs into the vdev tree.
    pub(crate) fn load_mappings(&self, directory: &Zap) -> Result<()> {
        let place = "removed vdevs";
        let record = match directory.lookup(b"com.delphix:removing")? {
            Some(ZapValue::Array { ints, .. }) => ints,
            None => return Ok(()),
            Some(_) => {
                return Err(Error::corrupt(
                    place,
                    "the record of removals is no numbers",
                ));
            }
        };
        let mut next = record.get(2).copied().filter(|id| *id != NONE);
        let mut seen = BTreeSet::new();
        while let Some(id) = next {
            let wrong = |what: &str| Error::corrupt(format!("{place}, vdev {id}"), what.to_owned());
            let vdev = u32::try_from(id).map_err(|_| wrong("there is no such vdev"))?;
            let top = self.vdevs.top(vdev)?;
            // The row comes from disk, and a circle would never end.
            if !seen.insert(vdev) {
                return Err(wrong("it stands twice in the row of removals"));
            }
            let indirect = top
                .indirect()
                .filter(|_| *top.kind() == VdevKind::Indirect)
                .ok_or_else(|| wrong("it is in the row of removals but was not removed"))?;
            let mapping = self.read_mapping(vdev, ObjectId(indirect.object))?;
            // At once: the mapping of the vdev removed before may be on this one.
            self.vdevs.set_mapping(vdev, Arc::new(mapping))?;
            next = indirect.previous.filter(|id| *id != NONE);
        }
        Ok(())
    }

    /// How much of a vdev that is being removed has been copied; `None` for any other.
    ///
    /// # Errors
    /// The mapping cannot be read.
    pub fn copied_from(&self, vdev: u32) -> Result<Option<Mapping>> {
        let top = self.vdevs.top(vdev)?;
        match top.indirect().filter(|_| top.is_removing()) {
            Some(indirect) => self.read_mapping(vdev, ObjectId(indirect.object)).map(Some),
            None => Ok(None),
        }
    }

    /// Refuses to write to a pool while a vdev is being removed. A free of already copied space
    /// would have to be done twice.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn refuse_removal(&self, name: &str) -> Result<()> {
        match self.vdevs.tops().iter().find(|top| top.is_removing()) {
            None => Ok(()),
            Some(top) => Err(Error::unsupported(
                format!("pool {name}"),
                format!(
                    "writing while vdev {} is being removed (it can be opened with readonly=on)",
                    top.id()
                ),
            )),
        }
    }

    /// Tells the allocator of the removed vdevs.
    ///
    /// # Errors
    /// An obsolete map cannot be read.
    pub(crate) fn open_removed(&self) -> Result<()> {
        let Some(allocator) = self.allocator.get() else {
            return Ok(());
        };
        allocator.set_note_obsolete(self.features.is_enabled(OBSOLETE_COUNTS));
        for top in self.vdevs.tops().iter() {
            if let Some(mapping) = self.vdevs.mapping(top.id()) {
                let (zap, map) = self.side_map(top.id(), SideKind::Obsolete)?;
                allocator.add_removed(top.id(), top.asize(), mapping, zap, map)?;
            }
        }
        Ok(())
    }

    /// Undoes the condensing of a mapping that another host began. The new mapping is dropped, and
    /// the ranges it would have left out are obsolete again. The old mapping was valid all the
    /// time.
    ///
    /// # Errors
    /// The record or one of its objects cannot be read, or the MOS cannot be changed.
    pub(crate) fn undo_condense(&self) -> Result<()> {
        if self.directory()?.lookup(CONDENSING)?.is_none() {
            return Ok(());
        }
        self.sync_task(
            |_| Ok(()),
            |ctx| {
                let pool = ctx.pool;
                let directory = pool.directory()?;
                let record = directory.lookup(CONDENSING)?;
                let words = record.as_ref().map(ZapValue::ints).unwrap_or_default();
                let (&[vdev, older, next], Some(allocator)) = (&words[..], pool.allocator.get())
                else {
                    return Err(Error::corrupt(
                        "record of a condensing mapping",
                        format!("{} numbers", words.len()),
                    ));
                };
                let vdev = u32::try_from(vdev)
                    .map_err(|_| Error::corrupt("record of a condensing mapping", "vdev"))?;
                // A pool without `obsolete_counts` has a shorter bonus, and no such object.
                let counts = pool.mos().dnode(ObjectId(next))?.with_bonus(|b| {
                    let word = b.get(24..32).and_then(|w| w.first_chunk::<8>().copied());
                    word.map_or(0, u64::from_le_bytes)
                });
                let writer = MosWriter::new(pool.mos(), ctx.tx);
                let named = allocator.merge_obsolete(&writer, vdev, ObjectId(older))?;
                pool.mos().free(ctx.tx, ObjectId(next))?;
                if counts != 0 {
                    pool.mos().free(ctx.tx, ObjectId(counts))?;
                }
                directory.remove(ctx.tx, CONDENSING)?;
                // The feature had counted the older map and the counts of the new mapping.
                pool.features.add(ctx, OBSOLETE_COUNTS, named - 2)
            },
        )
    }

    fn read_mapping(&self, vdev: u32, object: ObjectId) -> Result<Mapping> {
        let place = format!("mapping of vdev {vdev}, object {object}");
        let dnode = self.mos().dnode(object)?;
        let count = dnode
            .with_bonus(|b| b.get(16..24).and_then(|w| w.first_chunk::<8>().copied()))
            .map(u64::from_le_bytes)
            .ok_or_else(|| Error::truncated(place.as_str(), "its header is too short"))?;
        let mut mapping = Mapping::default();
        let mut at = 0u64;
        let mut bytes = vec![0; PIECE as usize * ENTRY];
        while at < count {
            let here = (count - at).min(PIECE);
            let part = bytes.get_mut(..here as usize * ENTRY).unwrap_or_default();
            let from = at
                .checked_mul(ENTRY as u64)
                .ok_or_else(|| Error::corrupt(place.as_str(), format!("{count} entries")))?;
            dnode.read_at(from, part)?;
            for entry in part.as_chunks::<ENTRY>().0 {
                mapping.push(moved(entry))?;
            }
            at += here;
        }
        Ok(mapping)
    }
}

fn moved(entry: &[u8; ENTRY]) -> Moved {
    let word = |i: usize| {
        entry
            .as_chunks::<8>()
            .0
            .get(i)
            .map_or(0, |w| u64::from_le_bytes(*w))
    };
    let to = Dva {
        word0: word(1),
        word1: word(2),
    };
    Moved {
        // Bit 63 belongs to no field.
        from: (word(0) & (u64::MAX >> 1)).saturating_mul(512),
        len: to.asize(),
        vdev: to.vdev(),
        to: to.offset(),
    }
}

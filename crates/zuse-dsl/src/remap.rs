//! Ranges of removed vdevs to which older snapshots still point, while newer datasets point to the
//! copy (chapter 04b §4 of the format notes).
//!
//! ```text
//! OpenZFS rewrites a block pointer to the new address     ─▶ old range: into the head's remap deadlist
//! a snapshot is taken                                     ─▶ the list goes with it
//! the last snapshot with the old address is destroyed     ─▶ obsolete_bpobj ─▶ obsolete
//! ```
//!
//! Zuse never rewrites a pointer itself; it only maintains these lists. An entry is not a block to
//! be freed, because its copy is in use. It is a range of a removed vdev that will not be looked up
//! any more.

use zuse_base::{Error, Result, Span};

use crate::bpobj::Bpobj;
use crate::context::Ctx;
use crate::deadlist::Deadlist;
use crate::meta::DIRECTORY;
use crate::snapshot::REMAP_DEADLIST;
use crate::sync::{Budget, Freeing};

/// Key in the MOS directory: ranges that became obsolete and are not marked on their vdevs yet.
pub(crate) const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
const COUNTS: &str = "com.delphix:obsolete_counts";

impl Ctx<'_> {
    fn remap_list(&self, ds: u64) -> Result<Option<u64>> {
        let found = self.meta.extension_value(ds, REMAP_DEADLIST)?;
        Ok(found.and_then(|value| value.first()))
    }

    /// Drops the list of a dataset that is destroyed or loses its content.
    pub(crate) fn drop_remap_list(&self, ds: u64) -> Result<()> {
        if let Some(list) = self.remap_list(ds)? {
            Deadlist::open(self.meta, list)?.free(self)?;
            self.zapify(ds)?.remove(self.tx, REMAP_DEADLIST)?;
            self.feature_add(COUNTS, -1)?;
        }
        Ok(())
    }

    /// Removes a key of the head's deadlists.
    pub(crate) fn remove_remap_key(&self, ds: u64, key: u64) -> Result<()> {
        match self.remap_list(ds)? {
            Some(list) => Deadlist::open(self.meta, list)?.remove_key(self, key),
            None => Ok(()),
        }
    }

    /// A snapshot is destroyed. The next dataset no longer points to some ranges; those used only
    /// by this snapshot become obsolete. Its own list moves to the next dataset. `older`: the txg
    /// of the snapshot before it.
    pub(crate) fn inherit_remaps(&self, snap: u64, next: u64, older: u64) -> Result<()> {
        let own = self.remap_list(snap)?;
        let Some(theirs) = self.remap_list(next)? else {
            // Once the snapshot is gone, both lists must have the same keys.
            if let Some(own) = own {
                self.zapify(snap)?.remove(self.tx, REMAP_DEADLIST)?;
                self.zapify(next)?.put_u64(self.tx, REMAP_DEADLIST, own)?;
            }
            return Ok(());
        };
        let mut list = Deadlist::open(self.meta, theirs)?;
        let obsolete = list.range(older, u64::MAX)?;
        let target = match obsolete.used == 0 && obsolete.uncomp == 0 {
            // The keys are removed, with empty lists.
            true => self.meta.free_bpobj(),
            false => self.obsolete_list()?,
        };
        list.move_to(self, target, older)?;
        if let Some(own) = own {
            list.merge(self, Deadlist::open(self.meta, own)?)?;
            self.zapify(snap)?.remove(self.tx, REMAP_DEADLIST)?;
            self.feature_add(COUNTS, -1)?;
        }
        Ok(())
    }

    /// The list of ranges to mark, created when first needed.
    fn obsolete_list(&self) -> Result<u64> {
        self.spa.note_frees();
        let directory = self.meta.table(DIRECTORY)?;
        if let Some(list) = directory.get_u64(OBSOLETE_BPOBJ)? {
            return Ok(list);
        }
        let list = Bpobj::create(self)?;
        directory.put_u64(self.tx, OBSOLETE_BPOBJ, list)?;
        self.feature_add(COUNTS, 1)?;
        Ok(list)
    }

    /// Marks ranges as obsolete on their vdevs.
    pub(crate) fn process_obsolete(&self, budget: &mut Budget) -> Result<Freeing> {
        let directory = self.meta.table(DIRECTORY)?;
        let Some(object) = directory.get_u64(OBSOLETE_BPOBJ)? else {
            return Ok(Freeing::Done);
        };
        let list = match Bpobj::open(&self.meta.mos, object) {
            Ok(list) => list,
            Err(e) => return Freeing::stuck(e),
        };
        let (_, empty, flaw) = list.drain(self, &mut |bp| {
            if !budget.take() {
                return Ok(false);
            }
            let range = bp.dva(0);
            let span = Span::new(range.offset(), range.asize());
            match self.spa.mark_obsolete(range.vdev(), span) {
                // A range that is already obsolete, or invalid, is ignored.
                Err(Error::Corrupt { .. }) => Ok(true),
                other => other.map(|()| true),
            }
        })?;
        if let Some(flaw) = flaw {
            return Ok(Freeing::Stuck(flaw));
        }
        if !empty {
            return Ok(Freeing::More);
        }
        directory.remove(self.tx, OBSOLETE_BPOBJ)?;
        list.free(self)?;
        self.feature_add(COUNTS, -1)?;
        Ok(Freeing::Done)
    }
}

//! Copies of deduplicated blocks that only their table has.
//!
//! In the new form of a dedup table an entry may get further copies. For example, a dataset with
//! `copies=1` wrote a block, and a dataset with `copies=2` writes the same block. Then the entry
//! gets a second DVA, and older pointers have the first one only. All pointers share the block with
//! all its copies, and freeing the last pointer frees all copies. So each pointer counts, and
//! claims, all the copies of its entry. Otherwise the second copy would have no pointer once only
//! older pointers are left.
//!
//! Memory: some 100 bytes for each entry with more than one place.

use std::collections::{BTreeMap, HashMap};

use zuse_base::Result;
use zuse_format::{BlockPointer, Dva};
use zuse_pool::dedup::{Entry, Key, Log, tables};

/// The places of an entry, by the first of them and the txg in which it was written.
#[derive(Debug, Default)]
pub(super) struct Copies {
    entries: HashMap<(Dva, u64), [Dva; 3]>,
}

impl Copies {
    /// Reads the tables of a pool.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn load(pool: &zuse_pool::Pool) -> Result<Self> {
        let mut all = Self::default();
        for table in tables(pool)?.iter().filter(|t| t.is_flat()) {
            for store in &table.stores {
                table.each_entry(pool, store, &mut |_, key, entry| {
                    all.note(key, entry);
                    Ok(())
                })?;
            }
            // A log is newer than a store, and the active log is newer than the flushing one.
            let (older, newer): (Vec<&Log>, _) = table.logs.iter().partition(|l| l.is_flushing());
            for log in older.into_iter().chain(newer) {
                let entries: &BTreeMap<Key, Entry> = &log.entries;
                entries.iter().for_each(|(key, entry)| all.note(key, entry));
            }
        }
        Ok(all)
    }

    fn note(&mut self, key: &Key, entry: &Entry) {
        for shared in entry.iter().filter(|s| s.references > 0) {
            let mut places = shared.dvas;
            if key.is_encrypted() {
                // Salt and IV.
                places[2] = Dva::default();
            }
            let slot = (places[0], shared.birth);
            if places[1].is_empty() {
                self.entries.remove(&slot);
            } else {
                self.entries.insert(slot, places);
            }
        }
    }

    /// The pointer with all copies of its block, if it does not name them all itself.
    pub fn whole(&self, bp: &BlockPointer) -> Option<BlockPointer> {
        if !bp.dedup() || self.entries.is_empty() {
            return None;
        }
        let places = self.entries.get(&(bp.dva(0), bp.physical_birth()))?;
        let mut whole = *bp;
        let count = if bp.uses_crypt() { 2 } else { 3 };
        for (i, place) in places.iter().enumerate().take(count).skip(1) {
            if bp.dva(i).is_empty() {
                whole.set_dva(i, *place);
            }
        }
        (whole != *bp).then_some(whole)
    }
}

#[cfg(test)]
mod tests;

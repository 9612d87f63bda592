//! Lists of a clone's own blocks, which other software keeps to destroy clones fast.
//!
//! Zuse keeps none: their absence is always valid. The first write to a clone that has one removes
//! it; those of clones that were destroyed elsewhere are worked off.

use std::collections::HashMap;

use zuse_base::Result;
use zuse_format::{BlockPointer, BpKind};

use crate::bpobj::{self, Bpobj};
use crate::context::Ctx;
use crate::deadlist::Deadlist;
use crate::sizes::Sizes;
use crate::sync::{Budget, Freeing};

/// Key, and feature, of clones that have one.
pub(crate) const LIVELIST: &str = "com.delphix:livelist";
const DELETED: &str = "com.delphix:deleted_clones";

impl Ctx<'_> {
    /// Removes the livelist of a directory, if it has one.
    pub(crate) fn drop_livelist(&self, dir: u64) -> Result<()> {
        let Some(table) = self.meta.extension(dir)? else {
            return Ok(());
        };
        let Some(list) = table.get_u64(LIVELIST)? else {
            return Ok(());
        };
        table.remove(self.tx, LIVELIST)?;
        Deadlist::open(self.meta, list)?.free(self)?;
        self.feature_add(LIVELIST, -1)
    }

    /// Frees the blocks of clones that were destroyed with a livelist.
    pub(crate) fn process_deleted_clones(&self, budget: &mut Budget) -> Result<Freeing> {
        let directory = self.meta.directory()?;
        let Some(set) = directory.get_u64(DELETED)? else {
            return Ok(Freeing::Done);
        };
        let opened = self.meta.table(set).and_then(|t| Ok((t.ints()?, t)));
        let (objects, table) = match opened {
            Ok(opened) => opened,
            Err(e) => return Freeing::stuck(e),
        };
        for object in objects {
            let list = match Deadlist::open(self.meta, object) {
                Ok(list) => list,
                Err(e) => return Freeing::stuck(e),
            };
            for (key, sub) in list.entries() {
                if budget.blocks == 0 {
                    return Ok(Freeing::More);
                }
                let blocks = match self.sublist(sub) {
                    Ok(blocks) => blocks,
                    Err(e) => return Freeing::stuck(e),
                };
                self.free_live(&blocks, budget)?;
                self.meta.table(object)?.remove_int(self.tx, key)?;
                if !bpobj::drop_if_empty_list(self, sub)? {
                    Bpobj::open(&self.meta.mos, sub)?.free(self)?;
                }
            }
            table.remove_int(self.tx, object)?;
            self.free(object)?;
            self.feature_add(LIVELIST, -1)?;
        }
        directory.remove(self.tx, DELETED)?;
        self.free(set)?;
        Ok(Freeing::Done)
    }

    /// What a sub-list says was allocated, or freed.
    fn sublist(&self, sub: u64) -> Result<Vec<(BlockPointer, bool)>> {
        let mut entries = Vec::new();
        Bpobj::open(&self.meta.mos, sub)?.for_each(&mut |bp, freed| {
            entries.push((*bp, freed));
            Ok(())
        })?;
        Ok(entries)
    }

    /// Frees the live blocks of a sub-list: those allocated in it and not freed again.
    fn free_live(&self, entries: &[(BlockPointer, bool)], budget: &mut Budget) -> Result<()> {
        let mut gone: HashMap<(u64, u64), u64> = HashMap::new();
        let mut sizes = Sizes::default();
        for (bp, freed) in entries.iter().rev() {
            let place = (bp.dva(0).word0 >> 32, bp.dva(0).word1);
            let count = gone.entry(place).or_default();
            if *freed {
                *count += 1;
            } else if *count > 0 {
                *count -= 1;
            } else if bp.kind() == BpKind::Normal {
                sizes += Sizes::of_block(&self.meta.io, bp);
                self.free_or_leak(bp)?;
                budget.take();
            }
        }
        self.freed(sizes)
    }
}

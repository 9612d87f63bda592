//! Lists of a clone's own blocks, by which a destroyed clone is freed without a walk of its tree.
//!
//! ```text
//!   directory ─► livelist (a deadlist): key ─► part: ALLOC ALLOC FREE ALLOC …   oldest first
//!                                       key ─► part: …                         a key is a txg
//! ```
//! An entry says that a block was added to the clone's tree, or removed. It is in the part with the
//! largest key below the block's birth, so both entries of a block are in one part.
//!
//! Invariants
//! - Each block of the head that is younger than the origin has one ALLOC more than it has FREEs.
//!   Holes and embedded blocks are not listed.
//! - Within a txg the ALLOCs come before the FREEs. A reader from the end meets a FREE before its
//!   ALLOC. They match by DVA; a cloned or deduplicated block has several of both.
//! - Only one part begins in a txg: its key is decided before the first entry of that txg.
//! - The list's sizes are those of the head's own blocks (HEAD of the directory). If a destroy
//!   finds other sizes, it walks the tree instead.
//!
//! A clone without a list is always valid. So a damaged list is dropped, and the clone is freed by
//! a walk.
//!
//! Memory: the entries of one txg's blocks, which the txg holds as dirty blocks of the MOS anyway.
//! Also the FREEs of one part while it is condensed or processed.

use std::collections::HashMap;

use zuse_base::{Error, Result};
use zuse_format::dsl::UsedKind;
use zuse_format::object_type as ot;
use zuse_format::{BlockPointer, BpKind};

use crate::accounting::Sums;
use crate::bpobj::{self, Bpobj};
use crate::context::Ctx;
use crate::deadlist::Deadlist;
use crate::meta::DIRECTORY;
use crate::sizes::Sizes;
use crate::sync::{Budget, Freeing};
use crate::table::Table;

/// Key and feature of clones with a livelist.
pub(crate) const LIVELIST: &str = "com.delphix:livelist";
/// The set of lists of destroyed clones, in the MOS directory.
pub(crate) const DELETED: &str = "com.delphix:deleted_clones";

/// Blocks that are written to a new part at a time.
const BATCH: usize = 1024;

/// The list of a directory.
#[derive(Clone, Copy)]
pub(crate) struct Listed {
    dir: u64,
    list: u64,
    /// Blocks younger than this are listed.
    pub since: u64,
}

impl Ctx<'_> {
    /// The table and the number of a directory's list.
    fn livelist_entry(&self, dir: u64) -> Result<Option<(Table, u64)>> {
        let Some(table) = self.meta.extension(dir)? else {
            return Ok(None);
        };
        let list = table.get_u64(LIVELIST)?;
        Ok(list.map(|list| (table, list)))
    }

    /// The list of a clone's directory, if it has one.
    pub(crate) fn livelist_of(&self, dir: u64) -> Result<Option<Listed>> {
        let phys = self.meta.dir(dir)?;
        // Without an origin no block is "younger than the origin".
        if !self.meta.is_clone(&phys) {
            return Ok(None);
        }
        let Some((_, list)) = self.livelist_entry(dir)? else {
            return Ok(None);
        };
        let since = self.meta.origin_txg(&phys)?;
        Ok(Some(Listed { dir, list, since }))
    }

    /// Creates the list of a new clone's directory, which has no blocks of its own yet.
    pub(crate) fn create_livelist(&self, head: u64) -> Result<()> {
        if !self.enabled(LIVELIST) {
            return Ok(());
        }
        // Parts created while the feature is active can count frees.
        self.feature_add(LIVELIST, 1)?;
        // No keys: the first sync with entries begins a part.
        let list = Deadlist::create(self, &[])?;
        let dir = self.meta.ds(head)?.dir;
        self.zapify(dir)?.put_u64(self.tx, LIVELIST, list)
    }

    /// Removes the livelist of a directory, if it has one.
    pub(crate) fn drop_livelist(&self, dir: u64) -> Result<()> {
        let Some((table, list)) = self.livelist_entry(dir)? else {
            return Ok(());
        };
        // The name goes before the list, so that a damaged list is not found again.
        table.remove(self.tx, LIVELIST)?;
        self.feature_add(LIVELIST, -1)?;
        match Deadlist::open(self.meta, list).and_then(|list| list.free(self)) {
            // A damaged list costs only its own objects.
            Err(e) => bpobj::damage(e).map(drop),
            Ok(()) => Ok(()),
        }
    }

    /// Adds the changes of a clone's sync. A list that is damaged, or saves no time, is dropped.
    pub(crate) fn keep_livelist(
        &self,
        listed: Listed,
        referenced: u64,
        sums: &Sums,
        pass: u32,
    ) -> Result<()> {
        let limits = self.spa.limits();
        // A clone that shares little with its origin is destroyed equally fast by a walk.
        let own = self.meta.dir(listed.dir)?.used_breakdown[UsedKind::Head as usize];
        // Both counts come from disk: a hundred times a forged one exceeds 64 bits.
        let shared = u128::from(referenced.saturating_sub(own)) * 100;
        if shared <= u128::from(referenced) * u128::from(limits.livelist_least_shared) {
            return self.drop_livelist(listed.dir);
        }
        if sums.listed_born.is_empty() && sums.listed_gone.is_empty() {
            return Ok(());
        }
        // The list only saves time: damage to it must not stop the sync of the clone.
        let entered = Deadlist::open(self.meta, listed.list)
            .and_then(|mut list| self.enter(&mut list, sums, pass, limits.livelist_entries));
        match entered {
            Err(e) => {
                bpobj::damage(e)?;
                self.drop_livelist(listed.dir)
            }
            Ok(()) => Ok(()),
        }
    }

    fn enter(&self, list: &mut Deadlist<'_>, sums: &Sums, pass: u32, most: u64) -> Result<()> {
        // In a later pass the newest part may have entries of this txg.
        let begins = match list.entries().last() {
            None => true,
            Some((key, part)) => {
                pass == 1 && *key < self.txg - 1 && {
                    let phys = Bpobj::open(&self.meta.mos, *part)?.phys()?;
                    phys.num_blkptrs.saturating_sub(phys.num_freed) > most
                }
            }
        };
        if begins {
            let empty = bpobj::take_empty_list(self)?;
            // Entry K holds births above K: blocks of this txg belong to the new part.
            list.set_key(self, self.txg - 1, empty)?;
            self.condense(list, most)?;
        }
        // Births first: a block may be born and freed in one txg, and a FREE needs an earlier
        // ALLOC.
        list.insert(self, &sums.listed_born)?;
        list.insert_frees(self, &sums.listed_gone)
    }

    /// Merges the first two neighbours with few live blocks, but never the newest part. This is
    /// done once for each new part, so that there are never many more parts than blocks.
    fn condense(&self, list: &mut Deadlist<'_>, most: u64) -> Result<()> {
        let parts = list.entries();
        let closed = parts.len().saturating_sub(1);
        let mut left = Vec::with_capacity(closed);
        for (_, part) in &parts[..closed] {
            let phys = Bpobj::open(&self.meta.mos, *part)?.phys()?;
            left.push(
                phys.num_blkptrs
                    .saturating_sub(phys.num_freed.saturating_mul(2)),
            );
        }
        let few = |pair: &[u64]| pair.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)) < most;
        let Some(at) = left.windows(2).position(few) else {
            return Ok(());
        };
        let ((low, first), (high, second)) = (parts[at], parts[at + 1]);
        // The new part is complete before the old ones go. An error in between leaves them
        // unchanged.
        let joined = self.only_live(&[first, second])?;
        // Under the lower key, which covers the births of both.
        list.set_key(self, low, joined)?;
        list.forget_key(self, high)?;
        self.free_part(first)?;
        self.free_part(second)
    }

    /// A new part with the live blocks of these; the shared empty list if there are none.
    fn only_live(&self, parts: &[u64]) -> Result<u64> {
        let target = Bpobj::create(self)?;
        let to = Bpobj::open(&self.meta.mos, target)?;
        let mut expected = Sizes::default();
        let copied = parts.iter().try_for_each(|part| {
            let from = Bpobj::open(&self.meta.mos, *part)?;
            expected += from.totals()?;
            self.live_of(&from, &mut |blocks| {
                let size = |bp: &BlockPointer| Sizes::of_block(&self.meta.io, bp);
                to.append(self.tx, blocks, blocks.iter().map(size).sum())
            })
        });
        let have = to.totals()?;
        // A part whose sizes differ from its blocks would free too much or too little later.
        let copied = copied.and_then(|()| match have == expected {
            true => Ok(()),
            false => Err(Error::contradiction(
                format!("livelist part {}", parts.first().copied().unwrap_or(0)),
                format!("it says {expected:?}, its live blocks have {have:?}"),
            )),
        });
        if copied.is_err() || have.is_zero() {
            to.free(self)?;
            copied?;
            return bpobj::take_empty_list(self);
        }
        Ok(target)
    }

    /// Calls `f` with the live blocks of a part, in batches.
    fn live_of(
        &self,
        part: &Bpobj,
        f: &mut dyn FnMut(&[BlockPointer]) -> Result<()>,
    ) -> Result<()> {
        let place = || format!("livelist part {}", part.object());
        // Parts are flat: no system writes sub-lists into one.
        if part.phys()?.subobjs != 0 {
            return Err(Error::corrupt(place(), "it has parts of its own"));
        }
        let mut gone: HashMap<(u32, u64), u64> = HashMap::new();
        let mut live = Vec::new();
        // From the end: a FREE is met before the ALLOC that it cancels, so only unmatched FREEs are
        // in memory.
        part.for_each_back(&mut |bp, freed| {
            if bp.kind() != BpKind::Normal {
                return Err(Error::corrupt(place(), "an entry that is no block"));
            }
            let at = (bp.dva(0).vdev(), bp.dva(0).offset());
            if freed {
                // The same DVA may be allocated and freed several times: each FREE cancels one
                // ALLOC.
                *gone.entry(at).or_default() += 1;
            } else if let Some(count) = gone.get_mut(&at) {
                *count -= 1;
                if *count == 0 {
                    gone.remove(&at);
                }
            } else {
                live.push(*bp);
                if live.len() == BATCH {
                    f(&live)?;
                    live.clear();
                }
            }
            Ok(())
        })?;
        if !gone.is_empty() {
            let what = format!("{} blocks are freed that are not allocated", gone.len());
            return Err(Error::contradiction(place(), what));
        }
        f(&live)
    }

    fn free_part(&self, part: u64) -> Result<()> {
        if bpobj::drop_if_empty_list(self, part)? {
            return Ok(());
        }
        Bpobj::open(&self.meta.mos, part)?.free(self)
    }

    /// Queues the list of a destroyed head for freeing; `all` is the directory's usage. False if
    /// there is no list with the same sizes, so that the tree has to be walked.
    pub(crate) fn queue_livelist(&self, dir: u64, all: Sizes) -> Result<bool> {
        let Some((table, list)) = self.livelist_entry(dir)? else {
            return Ok(false);
        };
        let sizes = match Deadlist::totals_of(self.meta, list) {
            Ok(sizes) => sizes,
            Err(e) => {
                bpobj::damage(e)?;
                Sizes::default()
            }
        };
        // Embedded blocks count logical bytes in the directory's sums only.
        if sizes.is_zero() || sizes.used != all.used || sizes.comp != all.comp {
            self.drop_livelist(dir)?;
            return Ok(false);
        }
        table.remove(self.tx, LIVELIST)?;
        // From the directory to `$FREE`: users see the space free at once.
        self.charge(dir, UsedKind::Head, -all)?;
        // `$FREE` gains what the list says, because freeing subtracts the list's sizes again.
        self.freed(-sizes)?;
        let directory = self.meta.table(DIRECTORY)?;
        let known = directory.get_u64(DELETED)?;
        let set = self.add_to_set(known.unwrap_or(0), ot::ZAP_METADATA, list)?;
        if known.is_none() {
            directory.put_u64(self.tx, DELETED, set)?;
        }
        // So the next txg begins to free it, even without writers.
        self.spa.note_frees();
        Ok(true)
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
            match self.work_off(object, budget)? {
                // One list at a time: the others wait until this one is empty.
                Freeing::Done => {}
                other => return Ok(other),
            }
            // Removed from the set in the txg that frees its last block: a crash reverts both or
            // neither.
            table.remove_int(self.tx, object)?;
            self.free(object)?;
            self.feature_add(LIVELIST, -1)?;
        }
        directory.remove(self.tx, DELETED)?;
        self.free(set)?;
        Ok(Freeing::Done)
    }

    /// Frees the blocks of one list, part by part. A part with FREEs is first replaced by one with
    /// only its live blocks. So the list on disk always says what is left, also for another host
    /// that continues.
    fn work_off(&self, object: u64, budget: &mut Budget) -> Result<Freeing> {
        let mut list = match Deadlist::open(self.meta, object) {
            Ok(list) => list,
            Err(e) => return Freeing::stuck(e),
        };
        while let Some((key, part)) = list.entries().first().copied() {
            // After each part the list has only the parts that are left.
            if budget.blocks == 0 {
                return Ok(Freeing::More);
            }
            if bpobj::drop_if_empty_list(self, part)? {
                list.forget_key(self, key)?;
                continue;
            }
            let opened = Bpobj::open(&self.meta.mos, part).and_then(|p| Ok((p.phys()?, p)));
            let (phys, opened) = match opened {
                Ok(opened) => opened,
                Err(e) => return Freeing::stuck(e),
            };
            if phys.num_freed > 0 {
                let live = match self.only_live(&[part]) {
                    Ok(live) => live,
                    Err(e) => return Freeing::stuck(e),
                };
                // No block of it was freed so far. From now on it has only blocks that are still to
                // be freed.
                list.set_key(self, key, live)?;
                opened.free(self)?;
                budget.look_through(phys.num_blkptrs);
                continue;
            }
            let mut flaw = None;
            let (sizes, empty, damage) = opened.drain(self, &mut |bp| {
                if !budget.take() {
                    return Ok(false);
                }
                match self.free_or_leak(bp) {
                    Err(e @ Error::Device { .. }) => {
                        // The block stays in the list.
                        flaw = Some(e);
                        Ok(false)
                    }
                    other => other.map(|()| true),
                }
            })?;
            self.freed(sizes)?;
            // Also after a stop: freed blocks have left the list, and must leave its sums.
            list.lower(self, sizes)?;
            if let Some(flaw) = flaw.or(damage) {
                return Ok(Freeing::Stuck(flaw));
            }
            if !empty {
                return Ok(Freeing::More);
            }
            list.forget_key(self, key)?;
            opened.free(self)?;
        }
        Ok(Freeing::Done)
    }
}

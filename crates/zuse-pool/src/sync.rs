//! Writing one txg.
//!
//! ```text
//!   log blocks whose successors this txg allocated are written, and data that logs placed
//!   references of clones ─► datasets ─► sync tasks ─► datasets made by tasks
//!   placed data that no tree has is freed ─► frees
//!   dedup tables, which free the blocks that have no pointer left
//!   loop: space maps ◄─ allocations;  MOS written;  until nothing is dirty
//!   commit (see commit.rs) ─► freed space of two txgs ago becomes allocatable
//! ```
//! Writing the MOS allocates, allocations go into space maps, and space maps are in the MOS. The
//! loop ends because a block born in this txg keeps its place when it is rewritten
//! (`WritePolicy::pass` ≥ 2). The space maps' blocks get places in one pass. The entries for those
//! are appended in the next. Then nothing new is allocated.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use zuse_base::{Error, Result, Txg};
use zuse_dmu::Tx;
use zuse_vdev::PoolConfig;

use crate::allocator::Reserve;
use crate::pool::Task;
use crate::removed::OBSOLETE_COUNTS;
use crate::space_map::MosWriter;
use crate::{Allocator, Pool, SyncCtx};

/// More passes than any txg needs.
const MAX_PASSES: u32 = 40;

impl Pool {
    fn anything_dirty(&self, txg: Txg) -> bool {
        // A new vdev needs another txg: only the next one brings it to the allocator.
        let config = self.config_dirty.load(Relaxed) || !self.new_tops.lock().is_empty();
        let datasets = self.mos().is_dirty(txg) || self.hooks.is_dirty(txg);
        let tables = self.clones.is_dirty(txg) || self.dedup.is_dirty();
        config || datasets || tables || self.has_work(txg)
    }

    /// Whether work waits for a txg, even if nothing is dirty.
    fn has_work(&self, txg: Txg) -> bool {
        // A discarded checkpoint's map is freed in parts: each takes a txg, even without writers.
        let frees = self.frees_pending.load(Relaxed) || self.is_discarding();
        // Log space maps are flushed partly in every txg: without new ones they shrink to nothing.
        let maps = |a: &Arc<Allocator>| a.is_dirty(txg) || a.has_logs();
        let tasks = || self.tasks.lock().iter().any(|t| t.txg <= txg);
        frees || self.vdev_work.is_due() || self.allocator.get().is_some_and(maps) || tasks()
    }

    pub(crate) fn fail_tasks(&self, error: &Error) {
        // A task may queue another one, so it is called without the lock.
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            (task.run)(Err(error));
        }
    }

    /// Takes the tasks of a txg out of the queue: the early ones, or the others.
    fn due_tasks(&self, txg: Txg, early: bool) -> Vec<Task> {
        let mut tasks = self.tasks.lock();
        // The rest keeps its order: tasks of one txg may build on each other.
        let all = std::mem::take(&mut *tasks).into_iter();
        let (due, rest) = all.partition(|t: &Task| t.txg <= txg && t.early == early);
        *tasks = rest;
        Vec::from(due)
    }

    /// Writes a txg. On return its uberblock is on disk, or there was nothing to write.
    pub(crate) fn sync_txg(self: &Arc<Self>, txg: Txg) -> Result<()> {
        let result = self.write_txg(txg);
        // Also after an error: nothing else waits for it.
        let finished = self.work.finish();
        result?;
        finished.map_err(|e| Error::corrupt(format!("pool {}, txg {txg}", self.name()), e))
    }

    /// Waits for writes of intent logs to places that this txg allocated.
    fn wait_for_logs(&self, txg: Txg) -> Result<()> {
        // A log block names its successor, which this txg allocates. The uberblock must not show it
        // as free while a write to it is in flight. The same applies to placed data.
        self.logs.wait_written(txg);
        self.io.note_lacking_placed(txg)
    }

    fn write_txg(self: &Arc<Self>, txg: Txg) -> Result<()> {
        // After a panic the state in memory may be half changed: nothing of it is written.
        self.suspension.check_no_panic()?;
        self.wait_for_logs(txg)?;
        if !self.anything_dirty(txg) {
            // No uberblock, because the one on disk has the same state. Changes that were counted
            // as dirty were reverted.
            self.meter.clear(txg);
            return Ok(());
        }
        let (began, before) = (Instant::now(), self.io.bytes_written());
        // Not an ordinary transaction: the txg is closed, and data dirtied now is written by this
        // very sync.
        let tx = Tx::syncing(txg);
        let ctx = SyncCtx {
            pool: self,
            tx: &tx,
            txg,
            pass: 1,
        };
        // Before anything is allocated: blocks of this txg may go to the new vdevs.
        self.open_new_tops(txg)?;
        // Early tasks see the MOS as of the last uberblock: for example creating a checkpoint.
        for task in self.due_tasks(txg, true) {
            (task.run)(Ok(&ctx));
        }
        // Decided once: all blocks of the txg go into tables of the same form.
        self.dedup.prepare(self);
        // References added by clones must count before pointers are dropped. Otherwise the last
        // original owner would free a block that a clone still needs.
        self.clones.apply(self, txg)?;
        self.hooks.sync(&ctx)?;
        // After the files: a snapshot has all data written before it in this txg.
        for task in self.due_tasks(txg, false) {
            (task.run)(Ok(&ctx));
        }
        // An incomplete change must not reach the disk: the pool stays as of its last uberblock.
        if let Some(error) = self.half_done.lock().take() {
            return Err(error);
        }
        // Tasks may have dirtied datasets again (a new file system, a received one).
        if self.hooks.is_dirty(txg) {
            self.hooks.sync(&ctx)?;
        }
        // All file trees are written: placed blocks that were changed since are in none of them.
        self.io.free_placed(txg)?;
        // The progress of initializing and trimming goes into the vdevs' ZAPs, which the MOS writes
        // below.
        self.sync_vdev_work(&ctx)?;
        // After the tasks: blocks of a destroy in this txg can begin to be freed at once.
        self.process_frees(&ctx)?;
        self.discard_some(&ctx)?;
        self.hooks.pointers_counted(&ctx)?;
        self.converge(txg, &tx)?;
        // The larger of two numbers. Compression writes fewer bytes than were dirty; values on loan
        // from the cache are written without counting as dirty.
        let written = self.io.bytes_written() - before;
        self.txgs
            .note_pace(written.max(self.meter.of(txg)), began.elapsed());
        self.allow_values();
        self.meter.clear(txg);
        // Only now may the versions of this txg be dropped from memory: before the uberblock a
        // failed sync would need them.
        self.hooks.synced(txg);
        if self.is_discarding() {
            // The rest continues in the next txg, even without writers.
            self.txgs.want(txg.next());
        }
        Ok(())
    }

    /// Frees some queued blocks. With a checkpoint that needs space before it frees any, so on a
    /// full pool it waits until the checkpoint is discarded.
    fn process_frees(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        if self.keeps_checkpoint() && self.available(Reserve::None) == 0 {
            return Ok(());
        }
        // Cleared before the work: frees that are queued meanwhile set it again, and the next txg
        // takes them.
        if self.frees_pending.swap(false, Relaxed) && self.hooks.process_frees(ctx)? {
            self.frees_pending.store(true, Relaxed);
        }
        Ok(())
    }

    /// Writes the MOS until it is clean, and commits.
    pub(crate) fn converge(self: &Arc<Self>, txg: Txg, tx: &Tx) -> Result<()> {
        let allocator = self
            .allocator
            .get()
            .ok_or_else(|| Error::refused(zuse_base::Errno::ROFS, "pool is read-only"))?;
        let mos = self.mos();
        let writer = MosWriter::new(mos, tx);
        // Each pass writes the changes of the one before. Space maps describe the MOS and are in
        // it, so one pass is never enough.
        let mut new_config = None;
        let mut pass = 1;
        loop {
            let ctx = SyncCtx {
                pool: self,
                tx,
                txg,
                pass,
            };
            // The logs of devices that lack blocks are space maps: they come before the pass that
            // counts maps.
            self.sync_dtls(&ctx)?;
            // In every pass: a step of the one before may have changed the configuration.
            if self.config_dirty.swap(false, Relaxed) {
                if allocator.create_arrays(&writer)? {
                    self.note_arrays()?;
                }
                let config = self.config_for(txg);
                self.write_config_object(&ctx, &config)?;
                new_config = Some(config);
            }
            self.sync_dedup(&ctx)?;
            // Last of all allocations: it writes the allocations of this pass into the maps.
            allocator.sync_pass(&writer)?;
            self.count_maps(&ctx, allocator)?;
            self.clones.sync(&ctx)?;
            self.features.write_changed(&ctx)?;
            // From pass 2 on blocks born in this txg are written in place, so that the MOS becomes
            // clean.
            if !mos.is_dirty(txg) {
                break;
            }
            mos.sync(txg, pass)?;
            // The MOS is charged for itself in the same txg: the sums' block is rewritten in place,
            // which allocates nothing.
            let delta = self.mos_ledger.take_delta();
            if delta != [0; 3] {
                self.hooks.mos_delta(&ctx, delta)?;
            }
            pass += 1;
            // An error is better than a sync thread that never ends.
            if pass > MAX_PASSES {
                return Err(Error::corrupt(
                    format!("pool {}, txg {}", self.name(), txg.0),
                    "the txg does not come to rest",
                ));
            }
        }
        // Nothing may be allocated from here on: no map would include it.
        self.last_passes.store(pass, Relaxed);
        self.commit(txg, new_config)?;
        // After the commit: until then the old labels still named these devices.
        self.release_departed_leaves();
        // Space freed two txgs ago is allocatable now: older uberblocks that use it are not opened
        // any more.
        let released = allocator.sync_done(txg);
        if self.autotrim.load(Relaxed) {
            self.trim_released(&released);
        }
        Ok(())
    }

    /// Blocks of files are freed before the MOS is written for the first time, not later.
    fn sync_dedup(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        // Later passes write only the MOS, which has no deduplicated or cloned blocks.
        if ctx.pass > 1 {
            return Ok(());
        }
        self.clones.take_back()?;
        self.dedup.sync(ctx)
    }

    /// Updates the features' number of space maps.
    fn count_maps(&self, ctx: &SyncCtx<'_>, allocator: &Allocator) -> Result<()> {
        const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
        // Counted here, because the features' ZAP is in the MOS too, and each new map changes it.
        let histograms = allocator.take_histogram_delta();
        if self.features.is_enabled(HISTOGRAM) {
            self.features.add(ctx, HISTOGRAM, histograms)?;
        }
        let obsolete = allocator.take_obsolete_delta();
        self.features.add(ctx, OBSOLETE_COUNTS, obsolete)
    }

    /// Tells the vdev tree the objects of the metaslab arrays.
    fn note_arrays(&self) -> Result<()> {
        let Some(allocator) = self.allocator.get() else {
            return Ok(());
        };
        let mut config = self.config.lock();
        for top in self.vdevs.tops().iter() {
            let Some(array) = allocator.metaslab_array(top.id()) else {
                continue;
            };
            self.vdevs
                .set_metaslabs(top.id(), array.0, top.metaslab_shift())?;
            if let Some(node) = config
                .vdev_tree
                .children
                .get_mut(top.id() as usize)
                .and_then(|n| n.top.as_mut())
            {
                node.metaslab_array = array.0;
            }
        }
        Ok(())
    }

    pub(crate) fn config_for(&self, txg: Txg) -> PoolConfig {
        let mut config = self.config.lock();
        // By this number an import recognizes labels of a txg without an uberblock, and ignores
        // them.
        config.txg = txg.0;
        config.features_for_read = self.features.label_list();
        // It shows another host that the pool was in use elsewhere, so that it requires force.
        config.hostid = self.env.host.id;
        config.hostname = (!self.env.host.name.is_empty()).then(|| self.env.host.name.clone());
        config.count_children();
        let mut config = config.clone();
        if let Some(name) = self.label_name.get() {
            // A temporary name applies only to this import: the old one stays on disk.
            config.name.clone_from(name);
        }
        config
    }

    fn write_config_object(&self, ctx: &SyncCtx<'_>, config: &PoolConfig) -> Result<()> {
        let object = zuse_base::ObjectId(self.config_object.load(Relaxed));
        let dnode = self.mos().dnode(object)?;
        let packed = config.to_mos_nvlist().encode_xdr();
        let size = dnode.block_size() as usize;
        let mut padded = packed.clone();
        // Whole blocks; the bonus buffer has the length (chapter 03).
        padded.resize(packed.len().next_multiple_of(size), 0);
        // A shorter configuration must not keep the end of a longer one.
        dnode.free_blocks(ctx.tx, 0, u64::MAX)?;
        dnode.write_at(ctx.tx, 0, &padded)?;
        dnode.set_bonus(ctx.tx, &(packed.len() as u64).to_le_bytes())
    }

    /// Discards freed space on the host. Best effort: it is free in any case.
    fn trim_released(&self, released: &[crate::allocator::Released]) {
        let Some(allocator) = self.allocator.get() else {
            return;
        };
        for r in released {
            // In a suspended pool the free space is not certain.
            if self.suspension.check_no_panic().is_err() {
                return;
            }
            // Held, so that the space cannot be allocated between the check and the discard.
            if let Ok(parts) = allocator.hold_free(r.vdev, r.span) {
                for part in &parts {
                    let _ = self.vdevs.discard(r.vdev, part.start, part.size);
                }
                let _ = allocator.release_held(r.vdev, &parts);
            }
        }
    }

    /// `zpool trim`: discards all free space, metaslab by metaslab. Returns the number of bytes.
    ///
    /// # Errors
    /// A metaslab cannot be loaded, or a device refused.
    pub fn trim(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        let Some(allocator) = self.allocator.get() else {
            return Err(Error::refused(zuse_base::Errno::ROFS, "pool is read-only"));
        };
        // Recently freed space becomes allocatable first; these empty txgs cost little more than an
        // uberblock.
        for _ in 0..=crate::metaslab::DEFERS {
            self.sync_task(|_| Ok(()), |_| Ok(()))?;
        }
        let tops = self.vdevs.tops();
        let plain: Vec<_> = tops
            .iter()
            // Holes and removed vdevs have no space of their own.
            .filter(|t| t.is_concrete() && t.metaslab_shift() > 0)
            .collect();
        let all: u64 = plain.iter().map(|t| t.asize() >> t.metaslab_shift()).sum();
        let (mut done, mut discarded) = (0, 0);
        for top in plain {
            for m in 0..top.asize() >> top.metaslab_shift() {
                for span in allocator.free_spans(top.id(), m)? {
                    // It may have been allocated since the list was made: only space that is still
                    // free is held.
                    let parts = allocator.hold_free(top.id(), span)?;
                    let mut result = self.suspension.check_no_panic();
                    for part in parts.iter().filter(|_| result.is_ok()) {
                        match self.vdevs.discard(top.id(), part.start, part.size) {
                            Ok(true) => discarded += part.size,
                            Ok(false) => {}
                            Err(e) => {
                                result = Err(e);
                                break;
                            }
                        }
                    }
                    // Also after a failure: space that stays held is unusable until the pool is
                    // opened again.
                    allocator.release_held(top.id(), &parts)?;
                    result?;
                }
                done += 1;
                progress(done, all);
            }
        }
        Ok(discarded)
    }
}

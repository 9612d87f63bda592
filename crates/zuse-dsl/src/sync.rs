//! The pool's calls to this layer in every txg: write the datasets, update the accounting, work on
//! the queues of blocks to be freed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use zuse_base::{Result, Txg};
use zuse_dmu::zap::ZapValue;
use zuse_format::dsl::{DslDatasetPhys, UsedKind};
use zuse_format::{BlockPointer, BpKind};
use zuse_pool::{DslHooks, Pool, SyncCtx};

use crate::bpobj::Bpobj;
use crate::context::{Ctx, Dsl, Open};
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::meta::Meta;
use crate::pool_access::Spa;
use crate::remap::OBSOLETE_BPOBJ;
use crate::sizes::Sizes;
use crate::space::counted;

/// Blocks that one txg frees in the background, at most.
pub(crate) const FREES_PER_TXG: u64 = 100_000;
/// Time that one txg spends on that.
const FREE_TIME: Duration = Duration::from_millis(500);

/// How much one txg may still free.
pub(crate) struct Budget {
    pub blocks: u64,
    until: Option<Instant>,
}

impl Budget {
    pub fn per_txg(blocks: u64) -> Self {
        Self {
            blocks,
            until: Some(Instant::now() + FREE_TIME),
        }
    }

    pub fn unlimited() -> Self {
        Self {
            blocks: u64::MAX,
            until: None,
        }
    }

    /// Takes one block from the budget; false if it is used up.
    pub fn take(&mut self) -> bool {
        if self.blocks == 0
            || self.blocks.is_multiple_of(256) && self.until.is_some_and(|t| Instant::now() > t)
        {
            // The other queues of this txg must stop, too.
            self.blocks = 0;
            return false;
        }
        self.blocks -= 1;
        true
    }

    /// Charges the cost of reading a number of entries: a fraction of the cost of freeing them.
    pub fn look_through(&mut self, entries: u64) {
        self.blocks = self.blocks.saturating_sub(entries / 8);
        if self.until.is_some_and(|t| Instant::now() > t) {
            self.blocks = 0;
        }
    }
}

impl DslHooks for Dsl {
    fn create(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        self.create_pool(&Spa(ctx.pool.clone()), ctx.tx)?;
        self.ctx(ctx.tx)?.write_history()?;
        self.note_space();
        Ok(())
    }

    fn load(&self, pool: &Arc<Pool>) -> Result<()> {
        // A newly created pool is loaded already, by `create`.
        if self.open.get().is_some() {
            return Ok(());
        }
        let spa = Spa(pool.clone());
        let meta = Meta::load(
            spa.mos().clone(),
            spa.io().clone(),
            spa.version(),
            self.metadata_cache.clone(),
        )?;
        let _ = self.open.set(Open { spa, meta });
        self.note_space();
        if pool.is_writable() {
            let older = pool.is_rewound() || pool.uberblock().checkpoint_txg != 0;
            // Before the first txg, and before anything is freed: log blocks are in no space map
            // until they are claimed.
            self.claim_logs(pool, older || pool.io().vdevs().ignores_missing_logs())?;
        }
        if pool.is_writable() && self.frees_wait()? {
            pool.note_frees();
        }
        // Last: a scan that continues reads datasets.
        self.load_scan()
    }

    fn sync(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        // A copy: writing a dataset may dirty another one, which the next round writes.
        let dirty: Vec<Arc<Dataset>> = self
            .map(&self.registry.dirty[ctx.txg.slot::<4>()])
            .values()
            .cloned()
            .collect();
        let my = self.ctx(ctx.tx)?;
        dirty
            .iter()
            .try_for_each(|ds| my.sync_dataset(ds, ctx.pass))?;
        // After the datasets, to include errors from writing them.
        my.write_error_log()?;
        my.write_history()
    }

    fn pointers_counted(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        // Taken even without a scan: the unverified blocks apply only to a scan that is running.
        match ctx.pool.has_new_unverified() {
            true => self.ctx(ctx.tx)?.stop_passing_over(),
            false => Ok(()),
        }
    }

    fn mos_delta(&self, ctx: &SyncCtx<'_>, [used, comp, uncomp]: [i64; 3]) -> Result<()> {
        let my = self.ctx(ctx.tx)?;
        my.charge(
            my.meta.mos_dir,
            UsedKind::Head,
            Sizes { used, comp, uncomp },
        )
    }

    fn is_dirty(&self, txg: Txg) -> bool {
        // Even a change that was begun without doing anything counts: its reservation ends with its
        // txg.
        !self.map(&self.registry.dirty[txg.slot::<4>()]).is_empty() || self.has_lost()
    }

    fn record(&self, ctx: &SyncCtx<'_>, event: &str, text: &str) -> Result<()> {
        let my = self.ctx(ctx.tx)?;
        my.log_pool(event, text)?;
        my.write_history()
    }

    fn process_frees(&self, ctx: &SyncCtx<'_>) -> Result<bool> {
        let my = self.ctx(ctx.tx)?;
        if self.pending.stuck.lock().is_some() {
            return Ok(false);
        }
        let mut budget = Budget::per_txg(self.pending.frees_per_txg.load(Relaxed));
        let freeing = my.process_frees(&mut budget)?;
        my.write_history()?;
        Ok(match freeing {
            Freeing::Done => false,
            Freeing::More => true,
            Freeing::Stuck(e) => {
                // A damaged or unreadable queue only costs the space that it holds.
                *self.pending.stuck.lock() = Some(e);
                false
            }
        })
    }

    fn synced(&self, txg: Txg) {
        let slot = txg.slot::<4>();
        for state in self
            .map(&self.registry.dirs)
            .values()
            .filter_map(std::sync::Weak::upgrade)
        {
            // Reservations of this txg are in the accounting now.
            state.in_flight[slot].store(0, Relaxed);
        }
        // Taken out first: a dataset closes its object set, whose lock has a lower rank.
        let landed = std::mem::take(&mut *self.map(&self.registry.dirty[slot]));
        for ds in landed.into_values() {
            ds.land(txg);
            ds.end_claim();
        }
        self.note_space();
    }

    fn closing(&self) {
        self.end_scanning();
    }

    fn closed(&self) {
        self.scanning_ended();
        for slot in &self.registry.dirty {
            let never_written = std::mem::take(&mut *slot.lock());
            // Outside the lock, because dropping a dataset takes other locks.
            drop(never_written);
        }
    }
}

impl Dsl {
    /// Whether blocks wait to be freed.
    pub(crate) fn frees_wait(&self) -> Result<bool> {
        let meta = self.meta()?;
        let directory = meta.directory()?;
        if directory.get_u64("bptree_obj")?.is_some()
            || directory.get_u64(crate::livelist::DELETED)?.is_some()
            || directory.get_u64(OBSOLETE_BPOBJ)?.is_some()
        {
            return Ok(true);
        }
        if meta.free_bpobj() == 0 {
            return Ok(false);
        }
        let phys = Bpobj::open(&meta.mos, meta.free_bpobj())?.phys()?;
        // Without an array of sub-lists their count is stale (04-dsl §5.3).
        Ok(phys.num_blkptrs > 0 || phys.subobjs != 0 && phys.num_subobjs > 0)
    }

    /// Bytes waiting to be freed in the background; at least 1 while there is anything.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn waiting_frees(&self) -> Result<u64> {
        let _config = self.read_config();
        if !self.frees_wait()? {
            return Ok(0);
        }
        let meta = self.meta()?;
        if meta.free_dir() == 0 {
            return Ok(1);
        }
        Ok(meta.dir(meta.free_dir())?.used_bytes.max(1))
    }

    /// Limits the blocks that one txg frees in the background.
    pub fn set_frees_per_txg(&self, blocks: u64) {
        self.pending.frees_per_txg.store(blocks.max(1), Relaxed);
    }

    /// The error that stopped background freeing, if any.
    pub fn stuck(&self) -> Option<zuse_base::Error> {
        self.pending.stuck.lock().clone()
    }
}

/// The state of the queues of blocks to be freed.
pub(crate) enum Freeing {
    Done,
    More,
    /// One queue cannot be read any further. What was freed so far has been removed from it.
    Stuck(zuse_base::Error),
}

impl Freeing {
    /// The error of an unreadable queue, of which nothing was freed since its last change.
    pub(crate) fn stuck(error: zuse_base::Error) -> Result<Self> {
        crate::bpobj::damage(error).map(Self::Stuck)
    }
}

impl Ctx<'_> {
    fn sync_dataset(&self, ds: &Arc<Dataset>, pass: u32) -> Result<()> {
        let Some(os) = ds.open_objset() else {
            return Ok(());
        };
        // Before the objset is written: the header is in it, and freeing log blocks changes it.
        self.advance_log(ds, &os)?;
        if !os.is_dirty(self.tx.txg()) {
            return Ok(());
        }
        let object = ds.object().0;
        let before = ds.phys()?;
        // The ledger uses it to decide whether a dead block is in a snapshot. It must be that of
        // this txg.
        ds.accounting.set_prev_snap_txg(before.prev_snap_txg);
        let list = self.livelist_of(before.dir)?;
        ds.accounting.set_listed_since(list.map(|l| l.since));
        // The blocks are written here. Everything below updates the sums.
        let Some(done) = os.sync(self.tx.txg(), pass)? else {
            return Ok(());
        };
        self.sync_progress(ds)?;
        let sums = ds.accounting.take();
        let old_unique = self.meta.unique_of(&before)?;
        // Before the head's sums change, because space moves from HEAD to SNAP by the old ones.
        let dead = self.note_dead(object, &before, &sums.dead)?;

        // `freed` are blocks without a snapshot. Dead ones stay allocated: they still count for the
        // pool, but not for the head.
        let own = sums.born - sums.freed;
        let change = own - dead;
        let reserved = self.dsl.number_of(object, "refreservation")?;
        let what = || format!("unique bytes of dataset {object}");
        let new_unique = counted(old_unique, own.used, what)?;
        let delta = if reserved == 0 {
            own.used
        } else {
            new_unique
                .max(reserved)
                .wrapping_sub(old_unique.max(reserved)) as i64
        };
        let mut parts = [0; 5];
        parts[UsedKind::Head as usize] = own.used;
        parts[UsedKind::RefReservation as usize] = delta.wrapping_sub(own.used);
        self.charge_parts(before.dir, parts, own.comp, own.uncomp)?;
        let referenced = counted(before.referenced_bytes, change.used, || {
            format!("referenced bytes of dataset {object}")
        })?;
        let old = [0, before.compressed_bytes, before.uncompressed_bytes];
        let [_, compressed, uncompressed] =
            Sizes { used: 0, ..change }.onto(old, || format!("dataset {object}"))?;
        self.meta.edit_ds(self.tx, object, |d| {
            // The new root and the sums change in one edit of the MOS, so a crash has both or
            // neither.
            d.bp = done.root;
            d.referenced_bytes = referenced;
            d.compressed_bytes = compressed;
            d.uncompressed_bytes = uncompressed;
            d.unique_bytes = new_unique;
        })?;
        ds.referenced.store(referenced, Relaxed);
        if let Some(list) = list {
            // After the directory's sums, which decide whether the list is worth keeping.
            self.keep_livelist(list, referenced, &sums, pass)?;
        }
        if ds.has_longname() {
            self.activate(object, "org.zfsonlinux:longname", &ZapValue::U64(0))?;
        }
        self.note_features(object, &done, os.flags())
    }

    /// Blocks that left a head and are in older snapshots: they go to its deadlist, and their space
    /// to the snapshots.
    fn note_dead(
        &self,
        object: u64,
        before: &DslDatasetPhys,
        blocks: &[BlockPointer],
    ) -> Result<Sizes> {
        if blocks.is_empty() {
            return Ok(Sizes::default());
        }
        let dir = self.meta.dir(before.dir)?;
        let dead = Deadlist::open(self.meta, before.deadlist)?.insert(self, blocks)?;
        let size_after = |txg: u64| -> i64 {
            // Physical birth: a clone of a block may be younger than the block.
            let late = blocks.iter().filter(|bp| bp.allocation_birth() > txg);
            late.map(|bp| Sizes::of_block(&self.meta.io, bp).used).sum()
        };
        let prev = self.meta.ds(before.prev_snap)?;
        // Not across a branch: the origin's own next dataset may have the block, too.
        if prev.next_snap == object {
            self.add_unique(before.prev_snap, size_after(prev.prev_snap_txg))?;
        }
        // Blocks older than the origin were never charged to this directory (04-dsl §4.4).
        self.transfer(
            before.dir,
            UsedKind::Head,
            UsedKind::Snap,
            size_after(self.meta.origin_txg(&dir)?),
        )?;
        self.count_freed_before_next(object, before, blocks)?;
        Ok(dead)
    }

    /// Frees a block from a queue. A block that cannot be freed (damaged gang header, space not
    /// allocated) is leaked. It must leave its queue, or the blocks freed before it would be freed
    /// twice.
    pub(crate) fn free_or_leak(&self, bp: &BlockPointer) -> Result<()> {
        // Embedded blocks have no space. In an undoable task frees are deferred to its end.
        if bp.kind() != BpKind::Normal || self.free_later(bp) {
            return Ok(());
        }
        match self.meta.io.free(self.tx.txg(), bp) {
            Err(zuse_base::Error::Corrupt { .. }) => Ok(()),
            other => other,
        }
    }

    /// Frees queued blocks. An error ends the txg: some freed blocks may still be in the queue.
    fn process_frees(&self, budget: &mut Budget) -> Result<Freeing> {
        if self.meta.free_bpobj() == 0 {
            return Ok(Freeing::Done);
        }
        // Blocks of snapshots first, because they are in lists, while trees have to be walked.
        let list = match Bpobj::open(&self.meta.mos, self.meta.free_bpobj()) {
            Ok(list) => list,
            Err(e) => return Freeing::stuck(e),
        };
        let mut unreadable = None;
        // From the end, and freed entries are truncated in the same txg: no entry is freed twice.
        let (sizes, empty, flaw) = list.drain(self, &mut |bp| {
            if !budget.take() {
                return Ok(false);
            }
            match self.free_or_leak(bp) {
                Err(e @ zuse_base::Error::Device { .. }) => {
                    // It stays in the list.
                    unreadable = Some(e);
                    Ok(false)
                }
                other => other.map(|()| true),
            }
        })?;
        self.freed(sizes)?;
        if let Some(flaw) = unreadable.or(flaw) {
            return Ok(Freeing::Stuck(flaw));
        }
        if !empty {
            return Ok(Freeing::More);
        }
        match self.process_bptree(budget)? {
            Freeing::Done => {}
            other => return Ok(other),
        }
        match self.process_deleted_clones(budget)? {
            Freeing::Done => self.process_obsolete(budget),
            other => Ok(other),
        }
    }
}

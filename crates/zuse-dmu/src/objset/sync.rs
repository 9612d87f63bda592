//! Writing one txg of an object set.
//!
//! Order: dirty objects (in parallel, each counted by the thread that writes it) → accounting →
//! dnodes into their slots, block by block → meta dnode → objset block.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Error, ObjectId, Result, Txg};
use zuse_format::dnode::{DNODE_SLOT, SLOTS_PER_BLOCK};
use zuse_format::zil::ZilHeader;
use zuse_format::{BlockPointer, ObjsetPhys, object_type};
use zuse_io::{Block, FeatureUse};

use super::accounting::Sums;
use super::{Objset, raw};
use crate::dirty::Synced;
use crate::dnode::Dnode;
use crate::dnode::sync::SyncedObject;
use crate::ledger::note_born;
use crate::tx::Tx;

/// The result of syncing an object set.
pub struct ObjsetSync {
    /// The new root pointer.
    pub root: BlockPointer,
    /// Per-dataset features that its blocks use.
    pub features: FeatureUse,
    /// Some object of more than one slot was written (feature `large_dnode`).
    pub large_dnodes: bool,
    /// Some microzap above 128 KiB was written (feature `large_microzap`).
    pub large_microzap: bool,
}

/// The changes of objects, by number.
type Changes = Vec<(ObjectId, SyncedObject)>;

/// How objects are written.
#[derive(Clone, Copy)]
struct WriteParams {
    txg: Txg,
    pass: u32,
    /// Flags for their dnodes.
    flags: u8,
    /// Users' space is counted.
    counted: bool,
}

/// The results of writing objects. Collected by the thread that writes them, because the data is in
/// its processor's cache.
#[derive(Default)]
struct Done {
    changes: Changes,
    sums: Sums,
    features: u32,
    large_dnodes: bool,
    large_microzap: bool,
}

impl Done {
    fn sync(&mut self, dnodes: &[Arc<Dnode>], params: WriteParams) -> Result<()> {
        self.changes.reserve(dnodes.len());
        for dnode in dnodes {
            if let Some(change) = dnode.sync(params.txg, params.pass, params.flags)? {
                self.note(dnode.object(), change, params);
            }
        }
        Ok(())
    }

    fn note(&mut self, object: ObjectId, change: SyncedObject, params: WriteParams) {
        self.features |= change.features.0;
        if let Some(after) = &change.after {
            self.large_dnodes |= after.head.slots > 1;
            self.large_microzap |= after.head.block_size > 128 * 1024
                && after.head.max_block == 0
                && matches!(
                    object_type::swap_class(after.head.object_type),
                    Some(object_type::SwapClass::Zap)
                );
        }
        if params.counted {
            let objects = params.flags & zuse_format::dnode::FLAG_USEROBJUSED_ACCOUNTED != 0;
            self.sums.add(&change, objects);
        }
        self.changes.push((object, change));
    }

    fn join(&mut self, mut other: Self) {
        self.changes.append(&mut other.changes);
        self.sums.join(other.sums);
        self.features |= other.features;
        self.large_dnodes |= other.large_dnodes;
        self.large_microzap |= other.large_microzap;
    }
}

/// Objects per job of the parallel part: least and most, and the number of jobs per thread.
const BATCH: usize = 32;
const LONG_BATCH: usize = 256;
const JOBS: usize = 4;

impl Objset {
    /// Later passes overwrite blocks of the first one. Only the MOS may change while it is written:
    /// no uberblock leads to blocks of this txg yet.
    fn assert_pass(&self, pass: u32) {
        assert!(
            pass == 1 || self.core.settings().is_mos,
            "{}: written in pass {pass}, which only the MOS is",
            self.core.place
        );
    }

    /// Writes all changes of `txg`; `None` if there are none.
    ///
    /// Objects come first, then the space sums, whose ZAPs are objects of this set. Then dnodes go
    /// into their blocks. The last block holds the root of the meta dnode.
    ///
    /// Called by the sync thread only. `pass` counts from 1 within the txg. With many objects,
    /// unused ones are dropped from memory later: by the end of [`zuse_base::WorkPool::finish`].
    ///
    /// # Errors
    /// A block cannot be read, allocated or written. The txg must then be abandoned: the pool
    /// suspends.
    pub fn sync(self: &Arc<Self>, txg: Txg, pass: u32) -> Result<Option<ObjsetSync>> {
        if !self.is_dirty(txg) {
            return Ok(None);
        }
        self.assert_pass(pass);
        self.core.last_sync.store(txg.0, Relaxed);
        let tx = Tx::syncing(txg);
        let counted = self.accounts_users();
        let flags = self.accounting_flags();

        let dirty = std::mem::take(&mut *self.core.dirty[txg.slot::<4>()].lock());
        let ordinary: Vec<Arc<Dnode>> = dirty
            .into_iter()
            .filter(|d| d.object().0 != 0 && d.object().0 <= u64::MAX - 3)
            .collect();
        // They stay in memory until their dnode blocks are written.
        let params = WriteParams {
            txg,
            pass,
            flags,
            counted,
        };
        let (pinned, done) = self.sync_dnodes(ordinary, params)?;
        let Done {
            changes,
            sums,
            mut features,
            large_dnodes,
            large_microzap,
        } = done;
        if counted {
            self.apply_accounting(&tx, sums)?;
        }
        let special: Vec<Option<Arc<Dnode>>> = self.special.read().to_vec();
        for dnode in special.iter().flatten() {
            if let Some(change) = dnode.sync(txg, pass, 0)? {
                features |= change.features.0;
            }
        }
        // This sync itself dirtied the accounting objects.
        self.core.dirty[txg.slot::<4>()]
            .lock()
            .retain(|d| d.is_dirty() && d.object().0 != 0);

        let (changes, meta) = self.sync_slots(&tx, pass, changes)?;
        if let Some(change) = meta {
            features |= change.features.0;
        }
        self.core.dirty[txg.slot::<4>()]
            .lock()
            .retain(|d| d.is_dirty() && d.object().0 != 0);
        {
            let mut numbers = self.numbers.lock();
            for (object, change) in &*changes {
                numbers.remove_pending(*object);
                if change.after.is_none() {
                    numbers.note_freed();
                }
            }
        }
        self.drop_in_background(pinned, changes);
        self.rest_dirty[txg.slot::<4>()].store(false, std::sync::atomic::Ordering::Relaxed);
        let root = self.write_objset_block(txg, pass)?;
        Ok(Some(ObjsetSync {
            root,
            features: FeatureUse(features),
            large_dnodes,
            large_microzap,
        }))
    }

    /// Drops written objects and their results. Each takes a few frees of memory. For a hundred
    /// thousand objects, other threads do that while this one waits for the devices. The sync
    /// thread waits for them in the end ([`zuse_base::WorkPool::finish`]).
    fn drop_in_background(&self, dnodes: Vec<Vec<Arc<Dnode>>>, changes: Arc<Changes>) {
        if dnodes.len() < 2 {
            return;
        }
        let mut jobs: Vec<(Vec<Arc<Dnode>>, Changes)> =
            dnodes.into_iter().map(|d| (d, Vec::new())).collect();
        if let Ok(changes) = Arc::try_unwrap(changes) {
            let each = changes.len().div_ceil(jobs.len().max(1)).max(1);
            let mut changes = changes.into_iter();
            for job in &mut jobs {
                job.1.extend(changes.by_ref().take(each));
            }
        }
        self.core.work.run_in_background(jobs, drop);
    }

    /// Writes objects; returns them with the results.
    fn sync_dnodes(
        &self,
        dnodes: Vec<Arc<Dnode>>,
        params: WriteParams,
    ) -> Result<(Vec<Vec<Arc<Dnode>>>, Done)> {
        let mut all = Done::default();
        // For so few, a job for other threads costs more than it saves.
        if dnodes.len() <= 2 {
            all.sync(&dnodes, params)?;
            return Ok((vec![dnodes], all));
        }
        all.changes.reserve(dnodes.len());
        let batch = batch_of(dnodes.len(), self.core.work.threads());
        let mut batches = Vec::with_capacity(dnodes.len().div_ceil(batch));
        let mut dnodes = dnodes.into_iter();
        while dnodes.len() > 0 {
            batches.push(dnodes.by_ref().take(batch).collect());
        }
        let done = self
            .core
            .work
            .try_compute_all(
                self.core.devices(),
                batches,
                move |batch: Vec<Arc<Dnode>>| {
                    let mut done = Done::default();
                    let result = done.sync(&batch, params);
                    (batch, result.map(|()| done))
                },
            )
            .map_err(|e| Error::corrupt(self.place(), e))?;
        let mut pinned = Vec::with_capacity(done.len());
        for (batch, done) in done {
            // Kept also if its batch failed: the error is returned only after all batches have
            // ended.
            pinned.push(batch);
            all.join(done?);
        }
        Ok((pinned, all))
    }

    /// Writes the new dnodes into their slots of the dnode blocks, and the meta dnode. Returns the
    /// changes, by number.
    fn sync_slots(
        &self,
        tx: &Tx,
        pass: u32,
        mut changes: Changes,
    ) -> Result<(Arc<Changes>, Option<SyncedObject>)> {
        if changes.is_empty() {
            let meta = self.meta.sync(tx.txg(), pass, 0)?;
            return Ok((Arc::new(changes), meta));
        }
        // Sorted by number, so that the changes of one dnode block are adjacent.
        changes.sort_unstable_by_key(|(object, _)| *object);
        let changes = Arc::new(changes);
        let mut blocks: Vec<u64> = changes.iter().map(|(o, _)| block_of(*o)).collect();
        blocks.dedup();
        let last = blocks.last().copied().unwrap_or(0);
        self.meta
            // Also if there is no version of the meta dnode: its blocks are built while they are
            // written.
            .dirty(tx, |d| d.head.max_block = d.head.max_block.max(last))?;
        let fill = {
            let changes = changes.clone();
            move |blkid: u64, bytes: &mut [u8]| {
                let from = changes.partition_point(|(object, _)| block_of(*object) < blkid);
                let to = changes.partition_point(|(object, _)| block_of(*object) <= blkid);
                fill_slots(bytes, &changes[from..to]);
            }
        };
        let meta = self
            .meta
            .sync_made(tx.txg(), pass, blocks, Arc::new(fill))?;
        Ok((changes, meta))
    }

    fn write_objset_block(self: &Arc<Self>, txg: Txg, pass: u32) -> Result<BlockPointer> {
        // In the same txg as the replayed changes: after a crash, the rest is replayed and nothing
        // twice.
        let replayed = self.replayed[txg.slot::<4>()].swap(0, Relaxed);
        let rest = {
            let mut rest = self.rest.lock();
            if replayed != 0 {
                ZilHeader::set_replayed(&mut rest.zil_header, replayed);
            }
            rest.clone()
        };
        let meta = self.meta_tree();
        let special: Vec<Option<zuse_format::DnodePhys>> = (0..3)
            .map(|i| {
                let dnode = self.accounting_object(i)?;
                let state = dnode.read_state();
                state.synced.as_ref().map(|s| s.to_phys())
            })
            .collect();
        let mut special = special.into_iter();
        let phys = ObjsetPhys {
            size: rest.size,
            meta_dnode: meta.to_phys(),
            zil_header: rest.zil_header,
            objset_type: self.kind,
            flags: rest.flags,
            portable_mac: rest.portable_mac,
            local_mac: rest.local_mac,
            user_used: special.next().flatten(),
            group_used: special.next().flatten(),
            project_used: special.next().flatten(),
        };
        // The fill of an objset block is the number of its objects (chapter 02).
        let fill = meta.blkptr.all().iter().map(BlockPointer::fill).sum();
        let mut bytes = phys.to_bytes();
        let key = self.core.key.as_deref();
        if let Some(key) = key {
            // The MACs cover the content of the block, so they come last.
            key.sign_objset(&mut bytes)?;
        }
        let policy = self
            .core
            .settings()
            .policy(object_type::OBJSET, 0, false, 0, 0, pass);
        if self.core.raw {
            return self.write_raw_root(txg, &policy, bytes, fill);
        }
        let old = self.root();
        let written = self
            .core
            .io
            .write_keyed(txg, &policy, key, &old, &bytes, fill)?;
        // Later passes of the MOS rewrite the same place: nothing was freed or born.
        if !written.in_place {
            if !old.is_hole() {
                self.core.ledger.kill(txg, &old)?;
            }
            note_born(&*self.core.ledger, txg, &written.bp);
        }
        self.core
            .io
            // The next sync reads it as its old state.
            .remember(&written.bp, Arc::new(Block::new(bytes)));
        // Readers that open the set from now on see this txg, though its uberblock is not written
        // yet.
        *self.root.write() = written.bp;
        Ok(written.bp)
    }
}

/// Number of objects per job. Threads allocate in turn, so the blocks of one job are interleaved
/// with those of other threads. With objects of 64 KiB, a short job put 11 objects side by side,
/// with two MiB of others between. Reading the files in order took reads of 665 KiB; with long
/// jobs, 683 to 733.
fn batch_of(objects: usize, threads: usize) -> usize {
    (objects / (threads.max(1) * JOBS)).clamp(BATCH, LONG_BATCH)
}

/// The dnode block in which an object's dnode begins.
fn block_of(object: ObjectId) -> u64 {
    object.0 / SLOTS_PER_BLOCK as u64
}

/// Puts new dnodes into their slots of one dnode block.
fn fill_slots(bytes: &mut [u8], changes: &[(ObjectId, SyncedObject)]) {
    // Old slots are cleared first, so that a larger new dnode may use the place of a freed one.
    for (object, change) in changes {
        if let Some(before) = &change.before {
            slots_of(bytes, *object, before).fill(0);
        }
    }
    let mut buffer = Vec::new();
    for (object, change) in changes {
        if let Some(after) = &change.after {
            let slots = slots_of(bytes, *object, after);
            let phys = after.to_phys_in(std::mem::take(&mut buffer));
            phys.write_le(slots);
            if !after.head.tail.is_empty() {
                raw::put_tail(slots, &phys, &after.head.tail);
            }
            buffer = phys.bonus;
        }
    }
}

fn slots_of<'a>(block: &'a mut [u8], object: ObjectId, dnode: &Synced) -> &'a mut [u8] {
    let from = (object.0 % SLOTS_PER_BLOCK as u64) as usize * DNODE_SLOT;
    let to = (from + usize::from(dnode.head.slots) * DNODE_SLOT).min(block.len());
    &mut block[from..to]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zap::tests::pool::TestPool;
    use crate::{DnodeSpec, Settings};

    #[test]
    fn many_objects_are_written_in_long_jobs_and_few_by_all_threads() {
        assert_eq!(batch_of(100_000, 6), LONG_BATCH);
        assert_eq!(batch_of(3, 6), BATCH);
        for (objects, threads) in [(200, 6), (2_000, 6), (10_000, 2), (300, 0)] {
            let batch = batch_of(objects, threads);
            assert!((BATCH..=LONG_BATCH).contains(&batch));
            let enough = objects.div_ceil(batch) >= threads * JOBS;
            assert!(
                enough || batch == BATCH || batch == LONG_BATCH,
                "{objects} {threads} {batch}"
            );
        }
        assert_eq!(batch_of(2_400, 6), 100);
    }

    #[test]
    #[should_panic(expected = "written in pass 2, which only the MOS is")]
    fn an_object_set_of_a_dataset_is_written_in_one_pass() {
        let pool = TestPool::new(Settings::default());
        let _ = pool.os.sync(pool.txg, 2);
    }

    #[test]
    fn the_mos_is_written_in_several_passes() {
        let pool = TestPool::new(Settings::mos());
        assert!(pool.os.sync(pool.txg, 2).expect("written").is_some());
    }

    /// Of several jobs only one, the first or the last, has an object with something to report.
    #[test]
    fn what_one_job_found_counts_for_all() {
        for large in [0, 299] {
            let pool = TestPool::new(Settings::default());
            let tx = pool.tx();
            for i in 0..300 {
                let slots = if i == large { 2 } else { 1 };
                pool.os
                    .allocate(&tx, &DnodeSpec::new(19).slots(slots))
                    .expect("allocate");
            }
            let done = pool.os.sync(pool.txg, 1).expect("written").expect("dirty");
            assert!(done.large_dnodes && !done.large_microzap, "{large}");
        }
    }
}

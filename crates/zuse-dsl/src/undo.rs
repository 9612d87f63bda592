//! Undoing a sync task.
//!
//! ```text
//!   savepoint   the MOS is written as it is: nothing leads there until the uberblock of this txg does
//!      task     changes the MOS in memory; what it frees and which handles it touches is noted
//!   keep        what was to be freed is freed
//!   undo        the versions of this txg are dropped; what is in memory beside the MOS follows it
//! ```
//! Earlier changes of the txg (written datasets, earlier tasks) stay in either case, and the txg
//! continues.
//!
//! Invariants
//! - The MOS changes in syncing context only, so all its versions after a savepoint belong to the
//!   task. Asserted where they are dropped ([`zuse_dmu::Objset::forget_changes`]).
//! - There is one savepoint at a time, which ends before the MOS is written. Asserted.
//! - Nothing is freed between savepoint and keep: a block counts as in use until the changes are
//!   kept. All frees of a task go through [`Ctx::free_or_leak`], which notes them.
//! - The configuration lock is held for writing. So no other thread has seen the reverted changes,
//!   and no key was loaded or unloaded. Asserted at both ends.
//!
//! A batch refuses heads that are owned, or changed in a later txg. So their object sets are the
//! same before and after.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::Result;
use zuse_format::BlockPointer;
use zuse_pool::FeaturesAtTxg;

use crate::context::Ctx;
use crate::dataset::Dataset;
use crate::keyring::Keyring;

/// Changes of a task outside the MOS since its savepoint.
#[derive(Default)]
pub(crate) struct Journal {
    /// Blocks to free if the task's changes are kept.
    frees: Vec<BlockPointer>,
    /// Handles whose object set was changed or closed, or that were dropped.
    handles: Vec<Arc<Dataset>>,
}

/// How everything was.
pub(crate) struct Savepoint {
    features: FeaturesAtTxg,
    keyring: Keyring,
}

impl Ctx<'_> {
    /// Makes the following changes undoable; [`Self::keep`] or [`Self::undo`] must follow in this
    /// txg.
    pub fn savepoint(&self) -> Result<Savepoint> {
        // Records of earlier changes must be in the MOS: an undo drops those that are pending.
        self.write_history()?;
        self.meta.mos.sync(self.tx.txg(), 1)?;
        let before = self.dsl.pending.journal.lock().replace(Journal::default());
        assert!(before.is_none(), "a savepoint within a savepoint");
        self.assert_alone();
        Ok(Savepoint {
            features: self.spa.features_now(),
            keyring: self.dsl.keyring.lock().clone(),
        })
    }

    /// No other thread reads the MOS meanwhile, because each change is made under the lock.
    fn assert_alone(&self) {
        assert!(
            self.dsl.config.try_read().is_none(),
            "the MOS is changed by a task that others see at work"
        );
    }

    /// Defers a free that may be undone; false if the block has to be freed at once.
    pub fn free_later(&self, bp: &BlockPointer) -> bool {
        match &mut *self.dsl.pending.journal.lock() {
            Some(journal) => {
                journal.frees.push(*bp);
                true
            }
            None => false,
        }
    }

    /// Notes a handle that is about to be changed or dropped.
    pub fn touched(&self, handle: &Arc<Dataset>) {
        if let Some(journal) = &mut *self.dsl.pending.journal.lock() {
            journal.handles.push(handle.clone());
        }
    }

    /// Keeps the changes since the savepoint.
    pub fn keep(&self) -> Result<()> {
        // Taken first, or the frees below would be noted again.
        let journal = self.dsl.pending.journal.lock().take().unwrap_or_default();
        journal
            .frees
            .iter()
            .try_for_each(|bp| self.free_or_leak(bp))
    }

    /// Reverts the changes since the savepoint.
    pub fn undo(&self, then: Savepoint) -> Result<()> {
        self.assert_alone();
        let dsl = self.dsl;
        let journal = dsl.pending.journal.lock().take().unwrap_or_default();
        self.meta.mos.forget_changes(self.tx.txg());
        self.spa.features_go_back(then.features);
        *dsl.keyring.lock() = then.keyring;
        dsl.pending.history.lock().clear();
        // The task may have created or freed the shared empty list.
        dsl.empty_list.store(0, Relaxed);
        dsl.metadata_cache.forget_all();

        // New handles have no object any more, and must not be written. Only the sync thread adds
        // to this txg's set now.
        let dirty = &dsl.registry.dirty[self.tx.txg().slot::<4>()];
        // Not under the lock, because `phys` reads the MOS.
        let mut noted = std::mem::take(&mut *dirty.lock());
        noted.retain(|_, ds| ds.phys().is_ok());
        *dirty.lock() = noted;
        for handle in journal.handles {
            handle.close_objset();
            if let Ok(phys) = handle.phys() {
                handle.referenced.store(phys.referenced_bytes, Relaxed);
                let again = Arc::downgrade(&handle);
                dsl.registry
                    .datasets
                    .lock()
                    .insert(handle.object().0, again);
            }
        }
        let dirs: Vec<u64> = dsl.registry.dirs.lock().keys().copied().collect();
        for dir in dirs {
            match self.meta.dir(dir) {
                Ok(phys) => dsl.note_dir(dir, &phys),
                Err(_) => {
                    dsl.registry.dirs.lock().remove(&dir);
                }
            }
        }
        dsl.refresh_all()
    }
}

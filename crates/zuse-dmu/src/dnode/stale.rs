//! Whether an unreadable block is lost, or the reader used an old state of the object.
//!
//! Two things can happen to blocks while a reader without a lock uses them:
//! - a tree is replaced, its blocks are freed, and reused two committed txgs later;
//! - a later pass of a sync rewrites a block of the MOS in place, before the new tree is visible.
//!
//! In both cases the checksum fails, and the reader has to retry.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use zuse_base::Error;

use super::Dnode;
use crate::dirty::Synced;

/// How long a reader waits for the new tree each time, and how often.
const REWRITE_WAIT: Duration = Duration::from_millis(1);
const REWRITE_WAITS: u32 = 500;

impl Dnode {
    /// Whether a read of a tree failed only because the tree is outdated. Its blocks may be reused
    /// two txgs after they were freed, and a slow reader then gets other bytes. If the tree is
    /// current, the block is lost.
    pub(crate) fn is_stale(&self, tree: &Arc<Synced>, error: &Error) -> bool {
        let is_stale = matches!(error, Error::Corrupt { .. })
            && (self.was_replaced(tree) || self.was_rewritten(tree));
        self.core.io.lost().decide(!is_stale);
        is_stale
    }

    fn was_replaced(&self, tree: &Arc<Synced>) -> bool {
        let state = self.read_state();
        !state
            .synced
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, tree))
    }

    /// Later passes of a sync rewrite blocks of the MOS in place. Until the new tree is visible,
    /// the old tree's pointers have other checksums than the blocks. So this waits for the new
    /// tree.
    fn was_rewritten(&self, tree: &Arc<Synced>) -> bool {
        let syncing = self.core.last_sync.load(Relaxed);
        let is_fresh = syncing != 0
            && self.core.ledger.dataset() == Some(0)
            && (0..3).any(|i| tree.blkptr.at(i).physical_birth() == syncing);
        is_fresh
            && (0..REWRITE_WAITS).any(|_| {
                std::thread::sleep(REWRITE_WAIT);
                self.was_replaced(tree)
            })
    }
}

//! The end of a resilver: a replaced device leaves, and a spare that is no longer needed becomes
//! idle.
//!
//! | vdev | when | leaves |
//! |---|---|---|
//! | `replacing` | its last child lacks nothing | its first child |
//! | `spare` | its first child lacks nothing, and came back or was replaced (`unspare`) | its last child |
//!
//! The leaving device is never needed, because its siblings have every txg. There is one change per
//! txg, so each is checked against the tree after the one before.

use std::sync::Arc;

use zuse_base::{Result, Txg};
use zuse_vdev::{VdevConfig, VdevKind};

use crate::pool::Task;
use crate::{Pool, SyncCtx};

impl Pool {
    /// Checks in a txg whether something can leave.
    pub(crate) fn want_finish_replace(&self, txg: Txg) {
        self.tasks.lock().push_back(Task {
            txg,
            early: false,
            run: Box::new(|ctx| {
                if let Ok(ctx) = ctx
                    && let Err(error) = ctx.pool.finish_replace(ctx)
                {
                    // The MOS may be changed in part: the txg must not be committed.
                    *ctx.pool.half_done.lock() = Some(error);
                }
            }),
        });
        self.txgs.want(txg);
    }

    /// After an open: devices that could have left before may leave now.
    pub(crate) fn resume_finish_replace(&self) {
        let tree = self.config.lock().vdev_tree.clone();
        if self.next_to_detach(&tree).is_some() {
            self.want_finish_replace(self.open_txg());
        }
    }

    fn finish_replace(self: &Arc<Self>, ctx: &SyncCtx<'_>) -> Result<()> {
        // A rewind to the checkpoint needs its tree to match the devices.
        if self.refuse_with_checkpoint().is_err() {
            return Ok(());
        }
        let tree = self.config.lock().vdev_tree.clone();
        if let Some(guid) = self.next_to_detach(&tree) {
            self.detach_in(ctx, guid)?;
            self.want_finish_replace(ctx.txg.next());
        }
        Ok(())
    }

    /// The next vdev that can leave.
    fn next_to_detach(&self, node: &VdevConfig) -> Option<u64> {
        if let Some(found) = node.children.iter().find_map(|c| self.next_to_detach(c)) {
            return Some(found);
        }
        let (first, last) = (node.children.first()?, node.children.last()?);
        let (whole, leaves) = match node.kind {
            VdevKind::Replacing => (last, first),
            VdevKind::Spare if first.unspare => (first, last),
            _ => return None,
        };
        let lone = node.children.len() < 2;
        let fits = whole.kind.is_leaf() && leaves.kind.is_leaf() && !lone;
        let may = fits && self.is_complete(whole.guid) && !self.is_needed(leaves.guid);
        may.then_some(leaves.guid)
    }
}

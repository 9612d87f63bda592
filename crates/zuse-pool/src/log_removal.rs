//! The removal of a log vdev (chapter 01b §6.4 of the format notes).
//!
//! Its slot becomes a hole: vdev numbers never change, and are not reused. The pool's logs are
//! suspended before, so nothing is allocated on the vdev. This is checked again in the txg that
//! removes it.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_vdev::{VdevConfig, VdevKind};

use crate::metaslab::DEFERS;
use crate::{Pool, SyncCtx, TreeChange};

const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// Key in the ZAP of a top-level vdev: the txg up to which its metaslabs' changes are in their
/// maps.
pub(crate) const UNFLUSHED: &[u8] = b"com.delphix:ms_unflushed_phys_txgs";

impl Pool {
    /// Removes a log vdev. On disk on return.
    ///
    /// # Errors
    /// `Refused(BUSY)` while blocks of a log are on it, or with a checkpoint; `Refused(NODEV)`;
    /// `Refused(NOTSUP)` for another vdev; `Refused(ROFS)`.
    pub fn remove_log(self: &Arc<Self>, guid: u64) -> Result<()> {
        let id = self.log_vdev(guid)?;
        let Some(allocator) = self.allocator.get() else {
            let what = "pool is read-only";
            return Err(Error::refused(Errno::ROFS, what));
        };
        // First, because new log blocks would keep the vdev in use.
        allocator.set_allocating(id, false)?;
        // Space freed there is deferred for some txgs.
        let removed = (0..=DEFERS)
            .try_for_each(|_| match allocator.is_vacant(id) {
                true => Ok(()),
                false => self.sync_task(
                    |_| Ok(()),
                    |ctx| {
                        ctx.pool.config_changed();
                        Ok(())
                    },
                ),
            })
            .and_then(|()| {
                let check = move |ctx: &SyncCtx<'_>| ctx.pool.check_removal(guid);
                self.sync_task(check, move |ctx| ctx.pool.remove_now(ctx, id, guid))
            });
        if removed.is_err() {
            // It fails only without such a vdev; the error of the removal says more.
            let _ = allocator.set_allocating(id, true);
        }
        removed
    }

    /// Number of a log vdev.
    fn log_vdev(&self, guid: u64) -> Result<u32> {
        let tops = self.vdevs.tops();
        let top = tops.iter().find(|top| top.guid() == guid && guid != 0);
        let top = top.ok_or_else(|| {
            Error::refused(Errno::NODEV, format!("no such device in pool: {guid}"))
        })?;
        if !top.is_log() {
            let what = "operation not supported on this type of pool";
            return Err(Error::refused(Errno::NOTSUP, what));
        }
        Ok(top.id())
    }

    fn check_removal(&self, guid: u64) -> Result<()> {
        self.refuse_with_checkpoint()?;
        self.log_vdev(guid).map(|_| ())
    }

    fn remove_now(&self, ctx: &SyncCtx<'_>, id: u32, guid: u64) -> Result<()> {
        let Some(allocator) = self.allocator.get() else {
            return Ok(());
        };
        let mut change = TreeChange::begin(ctx);
        let children = &mut change.tree().children;
        let slot = children.get_mut(id as usize).filter(|t| t.guid == guid);
        let slot = slot.ok_or_else(|| Error::missing("configuration", format!("vdev {id}")))?;
        let hole = VdevConfig::new(VdevKind::Hole, u64::from(id), 0);
        let old = std::mem::replace(slot, hole);
        // Nothing is changed on disk before this has succeeded.
        let objects = allocator.remove_vdev(id)?;
        let mos = self.mos();
        let mut histograms = 0;
        for (map, histogram) in objects.maps {
            mos.free(ctx.tx, map)?;
            histograms += i64::from(histogram);
        }
        if self.features.is_enabled(HISTOGRAM) {
            self.features.add(ctx, HISTOGRAM, -histograms)?;
        }
        if let Some(array) = objects.array {
            mos.free(ctx.tx, array)?;
        }
        if let Some(zap) = old.zap_top.filter(|zap| *zap != 0) {
            let zap = Zap::open(&mos.dnode(ObjectId(zap))?)?;
            // Only this ZAP names the array, so it would be leaked.
            if let Some(unflushed) = zap.lookup_u64(UNFLUSHED)? {
                mos.free(ctx.tx, ObjectId(unflushed))?;
            }
        }
        let mut result = Ok(());
        old.visit(&mut |node| {
            if result.is_ok() {
                result = change
                    .drop_zap(node.zap_leaf)
                    .and_then(|()| change.drop_zap(node.zap_top))
                    .and_then(|()| self.free_dtl_object(ctx, node.dtl));
            }
        });
        result?;
        change.publish()
    }
}

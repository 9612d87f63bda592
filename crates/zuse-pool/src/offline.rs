//! Devices that are taken offline and brought online again.
//!
//! - A device goes offline only if its siblings have every txg (`no valid replicas`). It goes
//!   offline in the middle of a txg: its dirty time log gets that txg and all later ones.
//! - A log device may always go offline: the caller has made sure that no log is on it.
//! - It stays offline permanently (`offline`, or `faulted` with `aux_state` "external" in the
//!   configuration), or until the next import. In the second case only its dirty time log shows
//!   that.
//! - A device that comes back is never read before its siblings until it is resilvered. It does not
//!   count as a copy for the txg in which it comes back.

use std::sync::Arc;

use zuse_base::{Errno, Result};
use zuse_device::BlockDevice;
use zuse_vdev::{Aux, Health, VdevConfig, VdevKind};

use crate::tree_change::refused;
use crate::{Pool, SyncCtx};

/// How a device is taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offline {
    /// Like a failed device, until `zpool clear` or `zpool online`.
    pub fault: bool,
    /// Until the next import only.
    pub temporary: bool,
}

const EXTERNAL: &str = "external";

impl Pool {
    /// Takes a device out. On disk on return.
    ///
    /// # Errors
    /// `Refused`, with OpenZFS's messages: no such device, or the pool cannot do without it.
    pub fn offline(&self, guid: u64, how: Offline) -> Result<()> {
        self.sync_task(
            move |ctx| ctx.pool.check_offline(guid),
            move |ctx| ctx.pool.offline_in(guid, how),
        )
    }

    fn check_offline(&self, guid: u64) -> Result<()> {
        let tree = self.config.lock().vdev_tree.clone();
        let is_log = tree
            .children
            .iter()
            .any(|top| top.find(guid).is_some() && top.top.as_ref().is_some_and(|top| top.is_log));
        match tree.find(guid) {
            Some(node) if node.kind.is_leaf() => {}
            Some(_) => {
                return Err(refused(
                    Errno::NOTSUP,
                    "operation not supported on this type of pool",
                ));
            }
            None => return Err(refused(Errno::NODEV, "no such device in pool")),
        }
        // A device that cannot be used is no loss: the pool is without it already.
        if !is_log && self.vdevs.is_usable(guid) && self.is_needed(guid) {
            return Err(refused(Errno::BUSY, "no valid replicas"));
        }
        Ok(())
    }

    fn offline_in(&self, guid: u64, how: Offline) -> Result<()> {
        match how.fault {
            true => self.vdevs.fault(guid, Aux::External)?,
            false => self.vdevs.offline(guid)?,
        }
        let mut config = self.config.lock();
        // Without a mark for a temporary one, so that the next import uses it again.
        if let Some(node) = config.vdev_tree.find_mut(guid).filter(|_| !how.temporary) {
            node.offline = !how.fault;
            node.faulted = how.fault;
            node.aux_state = how.fault.then(|| EXTERNAL.to_owned());
        }
        drop(config);
        self.config_changed();
        Ok(())
    }

    /// Brings a device online that was offline, failed or missing. Returns its new health. On disk
    /// on return; missing blocks are resilvered later.
    ///
    /// # Errors
    /// `Refused`, with OpenZFS's message: no such device.
    pub fn online(&self, guid: u64) -> Result<Health> {
        // Outside of the sync: opening a device may take long.
        let path = self.vdevs.leaf(guid).and_then(|leaf| leaf.path());
        let device = self.found_again(guid, path.as_deref());
        self.sync_task(
            move |ctx| match ctx.pool.vdevs.leaf(guid) {
                Some(_) => Ok(()),
                None => Err(refused(Errno::NODEV, "no such device in pool")),
            },
            move |ctx| ctx.pool.online_in(ctx, guid, device),
        )
    }

    /// The device of a leaf without one, at its last path.
    pub(crate) fn found_again(
        &self,
        guid: u64,
        path: Option<&str>,
    ) -> Option<Arc<dyn BlockDevice>> {
        let leaf = self.vdevs.leaf(guid);
        // A closed pool must not take the lock of a device: the path may be another pool's by now.
        if self.is_closed() || leaf.is_some_and(|leaf| leaf.device().is_some()) {
            return None;
        }
        let reopen = self.reopen.read().clone();
        reopen.and_then(|open| open(guid, path))
    }

    fn online_in(
        &self,
        ctx: &SyncCtx<'_>,
        guid: u64,
        device: Option<Arc<dyn BlockDevice>>,
    ) -> Result<Health> {
        let gone = || refused(Errno::NODEV, "no such device in pool");
        let leaf = self.vdevs.leaf(guid).ok_or_else(gone)?;
        let was_away = !leaf.is_usable();
        if was_away {
            // Before the first read can use it.
            leaf.set_outdated(true);
            leaf.note_missed();
        }
        self.vdevs.online(guid, &|_| device.clone())?;
        let mut config = self.config.lock();
        // The first child of a `spare` is the device that the spare stands in for.
        let spared = config.vdev_tree.parent_of(guid).is_some_and(|p| {
            p.kind == VdevKind::Spare && p.children.first().is_some_and(|c| c.guid == guid)
        });
        if let Some(node) = config.vdev_tree.find_mut(guid) {
            node.offline = false;
            node.faulted = false;
            node.degraded = false;
            node.removed = false;
            node.aux_state = None;
            if leaf.is_usable() {
                node.not_present = false;
                // The spare leaves when this device is complete.
                node.unspare |= spared && was_away;
            }
        }
        drop(config);
        self.config_changed();
        self.logs.try_log_vdevs();
        self.want_finish_replace(ctx.txg.next());
        Ok(leaf.health())
    }

    /// Devices that `zpool clear` brought online may lack blocks, which is not counted as an error
    /// any more.
    pub(crate) fn mark_lost_leaves_outdated(&self) {
        for leaf in self.vdevs.leaves() {
            if !leaf.is_usable() {
                leaf.set_outdated(true);
                leaf.note_missed();
            }
        }
    }

    /// After `zpool clear`: a working device is not marked as faulted in the configuration any
    /// more. A spare is detached once its device is complete.
    pub(crate) fn clear_faulted_marks(&self) {
        let mut config = self.config.lock();
        let mut spared = Vec::new();
        config.vdev_tree.visit(&mut |node: &VdevConfig| {
            let first = node
                .children
                .first()
                .filter(|_| node.kind == VdevKind::Spare);
            spared.extend(first.map(|c| c.guid));
        });
        let mut changed = false;
        config.vdev_tree.visit_mut(&mut |node: &mut VdevConfig| {
            if node.faulted && self.vdevs.is_usable(node.guid) {
                node.faulted = false;
                node.aux_state = None;
                node.unspare |= spared.contains(&node.guid);
                changed = true;
            }
        });
        drop(config);
        if changed {
            self.config_changed();
        }
    }
}

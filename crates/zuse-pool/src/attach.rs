//! Attaching a device to another one: as a further side of a mirror, as its replacement, or as a
//! spare.
//!
//! ```text
//!   what may be ─► first labels (txg 0) ─► sync task: tree, ZAP, log of what it lacks ─► on disk
//!                                                       then a resilver fills it
//! ```
//! - The new device is never read before its siblings: its dirty time log has every txg.
//! - A spare keeps its guid and stays in the list of spares. A distributed spare has no device of
//!   its own; its space is on the other devices.
//! - `replacing` is never inside `replacing`. If a device is replaced again before the first
//!   replacement has ended, the vdev gets another child.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_device::BlockDevice;
use zuse_vdev::{VdevConfig, VdevKind};

use crate::first_labels::FirstLabels;
use crate::tree_change::refused;
use crate::{MissingBlocks, Pool, SyncCtx, TreeChange};

/// Suffix of the path of a device whose path another device has taken.
pub(crate) const OLD: &str = "/old";

/// Why a device is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The vdev is to have one copy more.
    Attach,
    /// The other one leaves after the resilver.
    Replace,
}

/// The device to attach.
#[derive(Clone)]
pub enum AttachDevice {
    /// A device that belongs to no pool.
    Device {
        /// Open for writing, and locked for this process.
        device: Arc<dyn BlockDevice>,
        /// A disk rather than a file.
        is_disk: bool,
    },
    /// A spare of the pool, by its guid, with its device; a distributed one has none.
    Spare(u64, Option<Arc<dyn BlockDevice>>),
}

/// The plan for attaching it.
struct Plan {
    kind: VdevKind,
    leaf: VdevConfig,
    device: Option<Arc<dyn BlockDevice>>,
    /// Guid of the vdev that is created above both.
    above: u64,
}

impl Pool {
    /// Attaches a device to another one. On disk on return; missing blocks are resilvered later.
    /// With `defer` that waits until the running resilver has ended.
    ///
    /// # Errors
    /// `Refused`, with OpenZFS's messages: there is no such device, or nothing can be attached to
    /// it. Also if the new one is too small, its sectors are too large, or a checkpoint exists.
    /// `Device` if it does not accept labels.
    pub fn attach_device(
        self: &Arc<Self>,
        target: u64,
        new: &AttachDevice,
        purpose: Purpose,
        defer: bool,
    ) -> Result<()> {
        // All checks are done before the labels of the device are overwritten.
        let plan = self.plan(target, new, purpose)?;
        let mut labels = FirstLabels::default();
        if let Some(device) = &plan.device {
            // A smaller device would not have room for the end of its sibling.
            self.vdevs.check_fits(target, &**device)?;
            let mut tree = self.config.lock().vdev_tree.clone();
            tree.attach_child(target, plan.kind.clone(), plan.above, plan.leaf.clone());
            let guid = plan.leaf.guid;
            let top = tree.children.iter().find(|top| top.find(guid).is_some());
            if let Some((top, leaf)) = top.and_then(|top| Some((top, top.find(guid)?))) {
                // Outside of the sync: it is I/O to a device that may be slow, and txg 0 keeps it
                // out of the pool.
                let first = self.first_label(top, leaf, self.open_txg());
                let idle = leaf.is_spare.then(|| self.spare_label(leaf));
                labels.put_over(device, &first, idle)?;
            }
        }
        let new = new.clone();
        self.sync_task(
            // Checked again on the sync thread: the tree may have changed since.
            move |ctx| ctx.pool.plan(target, &new, purpose).map(drop),
            move |ctx| {
                ctx.pool.attach_device_in(ctx, target, plan, defer)?;
                labels.keep();
                Ok(())
            },
        )
    }

    fn attach_device_in(
        &self,
        ctx: &SyncCtx<'_>,
        target: u64,
        plan: Plan,
        defer: bool,
    ) -> Result<()> {
        let mut change = TreeChange::begin(ctx);
        let mut leaf = plan.leaf;
        let (guid, is_spare) = (leaf.guid, leaf.is_spare);
        leaf.create_txg = Some(ctx.txg.0);
        // A scan that covers only a part of the leaf's log must not clear that log. OpenZFS checks
        // this only for a leaf with this mark.
        leaf.resilver_txg = Some(ctx.txg.0);
        if !change
            .tree()
            .attach_child(target, plan.kind, plan.above, leaf)
        {
            return Err(refused(Errno::NODEV, "no such device in pool"));
        }
        // Both lack all blocks. A distributed spare has no labels to write.
        match plan.device {
            Some(device) => change.add_device(guid, device, MissingBlocks::Everything),
            None => change.add_spare_space(guid),
        }
        // The last check that may refuse; after it the MOS is changed.
        change.check()?;
        self.rename_old_path(&mut change, target, guid);
        let zap = change.make_zap()?;
        // The mark and the feature's count change in one txg, so no uberblock has only one of them.
        let defer = defer && self.count_deferred(ctx, 1)?;
        if let Some(leaf) = change.tree().find_mut(guid) {
            leaf.zap_leaf = zap;
            leaf.resilver_defer = defer;
        }
        // After the ZAP's number is in the tree, because the labels include it.
        change.publish()?;
        self.vdevs.post("vdev_attach", guid);
        if is_spare {
            self.vdevs.post("vdev_spare", guid);
        }
        Ok(())
    }

    /// If a new device takes a device's path, the old one is renamed to `…/old`, as in OpenZFS.
    fn rename_old_path(&self, change: &mut TreeChange<'_>, old: u64, new: u64) {
        let path = |node: Option<&mut VdevConfig>| node.and_then(|n| n.path.clone());
        let place = path(change.tree().find_mut(new));
        let Some(place) = place.filter(|p| path(change.tree().find_mut(old)).as_ref() == Some(p))
        else {
            return;
        };
        let old_path = format!("{place}{OLD}");
        if let Some(leaf) = self.vdevs.leaf(old) {
            // With two leaves of one path, both would be taken for the new device at the next
            // import.
            leaf.set_path(&old_path);
        }
        if let Some(node) = change.tree().find_mut(old) {
            node.path = Some(old_path);
        }
    }

    /// The plan for a new device; refused if it is impossible.
    fn plan(&self, target: u64, new: &AttachDevice, purpose: Purpose) -> Result<Plan> {
        // A rewind to the checkpoint needs its tree to match the devices.
        self.refuse_with_checkpoint()?;
        let tree = self.config.lock().vdev_tree.clone();
        let missing = || refused(Errno::NODEV, "no such device in pool");
        let parent = tree.parent_of(target).ok_or_else(missing)?;
        let old = tree.find(target).ok_or_else(missing)?;
        let kind = match (purpose, new) {
            (Purpose::Attach, _) => VdevKind::Mirror,
            (Purpose::Replace, AttachDevice::Device { .. }) => VdevKind::Replacing,
            (Purpose::Replace, AttachDevice::Spare(..)) => VdevKind::Spare,
        };
        check_place(parent, old, &kind)?;
        let guid = || self.env.entropy.guid().get();
        let (leaf, device) = match new {
            AttachDevice::Device { device, is_disk } => {
                let kind = if *is_disk {
                    VdevKind::Disk
                } else {
                    VdevKind::File
                };
                let mut leaf = VdevConfig::new(kind, 0, guid());
                leaf.path = Some(device.path().to_owned());
                leaf.whole_disk = is_disk.then_some(0);
                // If a spare had taken the replaced device's place, the replacement makes the spare
                // idle.
                leaf.unspare = parent.kind == VdevKind::Spare && !old.is_spare;
                (leaf, Some(device.clone()))
            }
            AttachDevice::Spare(guid, device) => {
                // One spare replaces one device.
                if tree.find(*guid).is_some() {
                    return Err(refused(Errno::BUSY, "device is already in use"));
                }
                (self.spare_leaf(*guid, &tree, target)?, device.clone())
            }
        };
        Ok(Plan {
            kind,
            leaf,
            device,
            above: guid(),
        })
    }

    /// The leaf for a spare.
    fn spare_leaf(&self, guid: u64, tree: &VdevConfig, target: u64) -> Result<VdevConfig> {
        let spares = self.aux_devices("spares")?;
        let missing = || refused(Errno::NODEV, "no such device in pool");
        let mut leaf = spares
            .into_iter()
            .find(|s| s.guid == guid)
            .ok_or_else(missing)?;
        // Fields of the list of spares that do not belong into a leaf's configuration.
        leaf.top = None;
        leaf.is_spare = true;
        leaf.other.clear();
        if let VdevKind::DraidSpare { top_guid, .. } = leaf.kind {
            let top = tree.children.iter().find(|top| top.find(target).is_some());
            // Its space is rows of that dRAID, which no other vdev can use.
            if top.is_none_or(|top| top.guid != top_guid) {
                let what = "a distributed spare stands in for devices of its own dRAID only";
                return Err(refused(Errno::NOTSUP, what));
            }
        }
        Ok(leaf)
    }

    /// Counts leaves that wait for the next resilver: the feature is active while there is one.
    /// Returns whether the pool has the feature.
    pub(crate) fn count_deferred(&self, ctx: &SyncCtx<'_>, more: usize) -> Result<bool> {
        const DEFER: &str = "com.datto:resilver_defer";
        if !self.features.is_enabled(DEFER) {
            return Ok(false);
        }
        // `more` counts marks that the caller sets only after this, so the tree lacks them.
        let wanted = more > 0 || !self.deferred().is_empty();
        match (wanted, self.features.is_active(DEFER)) {
            // The feature counts whether, not how many.
            (true, false) => self.features.add(ctx, DEFER, 1)?,
            (false, true) => self.features.add(ctx, DEFER, -1)?,
            _ => {}
        }
        Ok(true)
    }

    /// A leaf that came back waits until the resilver that is running has ended. Nothing changes in
    /// a pool without the feature.
    ///
    /// # Errors
    /// The MOS cannot be read; `Refused(ROFS)`.
    pub fn defer_resilver(&self, guid: u64) -> Result<()> {
        let defer = move |ctx: &SyncCtx<'_>| {
            if ctx.pool.count_deferred(ctx, 1)? {
                let mut config = ctx.pool.config.lock();
                if let Some(leaf) = config.vdev_tree.find_mut(guid) {
                    leaf.resilver_defer = true;
                }
                drop(config);
                ctx.pool.config_changed();
            }
            Ok(())
        };
        self.sync_task(|_| Ok(()), defer)
    }

    /// Guids of leaves that wait for the next resilver.
    pub fn deferred(&self) -> Vec<u64> {
        let config = self.config.lock();
        let mut found = Vec::new();
        config.vdev_tree.visit(&mut |node| {
            if node.resilver_defer {
                found.push(node.guid);
            }
        });
        found
    }

    /// The waiting leaves are included in the resilver that begins now.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn end_deferral(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        if self.deferred().is_empty() {
            return Ok(());
        }
        let mut config = self.config.lock();
        let end = &mut |node: &mut VdevConfig| node.resilver_defer = false;
        config.vdev_tree.visit_mut(end);
        // Released here, because the count takes the lock itself.
        drop(config);
        self.config_changed();
        self.count_deferred(ctx, 0).map(drop)
    }
}

/// Refuses a place where no device can be attached.
fn check_place(parent: &VdevConfig, old: &VdevConfig, kind: &VdevKind) -> Result<()> {
    if !old.kind.is_leaf() {
        return Err(Error::refused(Errno::NOTSUP, "not a device"));
    }
    match (kind, &parent.kind) {
        (VdevKind::Mirror, VdevKind::Root | VdevKind::Mirror) => Ok(()),
        (VdevKind::Mirror, _) => Err(refused(
            Errno::NOTSUP,
            "can only attach to mirrors and top-level disks",
        )),
        // Replaced again half-way, either side of it: all but the last one leave in the end.
        (VdevKind::Replacing, VdevKind::Replacing) => Ok(()),
        (_, VdevKind::Replacing) => {
            Err(refused(Errno::NOTSUP, "cannot replace a replacing device"))
        }
        (VdevKind::Spare, VdevKind::Spare)
            if parent.children.last().map(|c| c.guid) != Some(old.guid) =>
        {
            Err(refused(Errno::NOTSUP, "device is in use as a spare"))
        }
        _ => Ok(()),
    }
}

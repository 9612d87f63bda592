//! Growing a top-level vdev with its devices: existing metaslabs stay, and more of the same size
//! are added.
//!
//! The size in the configuration and the metaslabs of the allocator change in one txg. The labels
//! at the end of a device move with its size. Until they are written, those at its beginning
//! describe the pool.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_vdev::{Top, VdevConfig, VdevKind, draid_asize};

use crate::{Pool, SyncCtx, TreeChange};

impl Pool {
    /// Checks the sizes of devices again, and lets vdevs use new space: the vdev of one device, or
    /// all. Returns how many bytes were added to vdevs.
    ///
    /// # Errors
    /// `Refused(NODEV)` for no such device, `Refused(EXIST)` with a checkpoint, `Refused(ROFS)`.
    pub fn grow(self: &Arc<Self>, device: Option<u64>) -> Result<u64> {
        self.sync_task(
            move |ctx| {
                ctx.pool.refuse_with_checkpoint()?;
                match device {
                    Some(guid) if ctx.pool.vdevs.leaf(guid).is_none() => {
                        Err(Error::refused(Errno::NODEV, "no such device in pool"))
                    }
                    _ => Ok(()),
                }
            },
            move |ctx| {
                let mut grown = 0u64;
                for top in ctx.pool.vdevs.tops().iter().filter(|t| t.is_concrete()) {
                    let own = |guid| top.config().find(guid).is_some();
                    if device.is_none_or(own) {
                        grown = grown.saturating_add(ctx.pool.grow_top(ctx, top)?);
                    }
                }
                Ok(grown)
            },
        )
    }

    fn grow_top(&self, ctx: &SyncCtx<'_>, top: &Arc<Top>) -> Result<u64> {
        for leaf in top.leaves() {
            if leaf.look_again() {
                // The position of the labels at the end of the device has changed.
                self.config_changed();
            }
        }
        let shift = top.metaslab_shift();
        let now = self.capacity_of(top);
        // Only whole metaslabs are added.
        if shift == 0 || now >> shift <= top.asize() >> shift || top.metaslab_array() == 0 {
            return Ok(0);
        }
        let mut change = TreeChange::begin(ctx);
        let node = change.tree().children.get_mut(top.id() as usize);
        let keys = node.and_then(|n| n.top.as_mut());
        let keys = keys.ok_or_else(|| Error::missing("configuration", "a vdev without keys"))?;
        let more = now.saturating_sub(keys.asize);
        keys.asize = now;
        keys.expansion_time = Some(self.env.clock.now().unsigned_secs());
        change.publish()?;
        // After the publish, because the size comes from the open tree.
        let info = self.vdev_infos().into_iter().find(|i| i.vdev == top.id());
        if let (Some(allocator), Some(info)) = (self.allocator.get(), info) {
            allocator.grow_vdev(info)?;
        }
        Ok(more)
    }

    /// Checks the sizes and labels of devices again. Nothing grows; a device that belongs to the
    /// pool no longer is taken out.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn look_at_devices(&self) -> Result<()> {
        self.sync_task(
            |_| Ok(()),
            |ctx| {
                let vdevs = ctx.pool.vdevs();
                // No label is half written now.
                vdevs.check_labels();
                for leaf in vdevs.leaves() {
                    leaf.look_again();
                }
                // The position of the labels at the end of a device may have changed.
                ctx.pool.config_changed();
                Ok(())
            },
        )
    }

    /// Bytes by which a top-level vdev would grow, or a device's share of that, by its guid: whole
    /// metaslabs. None for any other vdev.
    pub fn expandable(&self, guid: u64) -> u64 {
        let tops = self.vdevs.tops();
        let own = |top: &&Arc<Top>| top.is_concrete() && top.config().find(guid).is_some();
        let Some(top) = tops.iter().find(own) else {
            return 0;
        };
        let (has, takes) = match top.leaves().iter().find(|leaf| leaf.guid() == guid) {
            _ if top.guid() == guid => (self.capacity_of(top), top.asize()),
            Some(leaf) => match (share(top.config(), top.asize()), leaf.asize()) {
                (Some(takes), has) => (has, takes),
                _ => return 0,
            },
            None => return 0,
        };
        let shift = top.metaslab_shift();
        has.saturating_sub(takes) >> shift << shift
    }

    /// Bytes that a vdev could have with its devices; its present size if one of them is missing.
    pub fn capacity_of(&self, top: &Top) -> u64 {
        let leaves = top.leaves();
        let size = |guid| leaves.iter().find(|l| l.guid() == guid).map(|l| l.asize());
        // Never less than now: there may be blocks anywhere.
        capacity(top.config(), &size).unwrap_or(0).max(top.asize())
    }
}

/// Bytes that a vdev needs of each device; `None` if they differ.
fn share(top: &VdevConfig, asize: u64) -> Option<u64> {
    match top.kind {
        VdevKind::Mirror => Some(asize),
        VdevKind::Raidz { .. } => asize.checked_div(top.children.len() as u64),
        _ => None,
    }
}

/// Size of a vdev, from the sizes of its devices; `None` if one is unknown.
fn capacity(node: &VdevConfig, size: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
    if node.kind.is_device() {
        return size(node.guid).filter(|bytes| *bytes > 0);
    }
    let mut smallest = u64::MAX;
    for child in &node.children {
        smallest = smallest.min(capacity(child, size)?);
    }
    let children = node.children.len();
    match &node.kind {
        _ if children == 0 => None,
        VdevKind::Raidz { expanding, .. } => {
            let fixed = !expanding;
            fixed.then(|| smallest.checked_mul(children as u64))?
        }
        VdevKind::Draid {
            nparity,
            ndata,
            nspares,
            ..
        } => {
            let group = u64::from(*ndata) + u64::from(*nparity);
            Some(draid_asize(smallest, children, *nspares, group))
        }
        _ => Some(smallest),
    }
}

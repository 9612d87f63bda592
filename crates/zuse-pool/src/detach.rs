//! Detaching a device from a mirror, or one side of a replacement or a spare.
//!
//! - It may leave only if its siblings have every txg, otherwise `no valid replicas`. That is
//!   checked on the sync thread, when each block of the txg is on the siblings or noted as missed.
//! - A vdev with one child left is replaced by that child ([`VdevConfig::detach_child`]).
//! - A detached spare stays in the list of spares and is idle. If the replaced device is detached
//!   instead, the spare becomes an ordinary device and leaves the list.

use zuse_base::{Errno, Error, Result};
use zuse_format::nvlist::NvList;
use zuse_vdev::config::{AuxLabel, Detached};
use zuse_vdev::{VdevConfig, VdevKind};

use crate::attach::OLD;
use crate::tree_change::refused;
use crate::{Pool, SyncCtx, TreeChange};

impl Pool {
    /// Detaches a device from its parent, a mirror or similar vdev. On disk on return.
    ///
    /// # Errors
    /// `Refused`, with OpenZFS's messages: there is no such device, it has no siblings, they lack
    /// blocks, a checkpoint exists; `Refused(ROFS)`.
    pub fn detach(&self, guid: u64) -> Result<()> {
        self.sync_task(
            // On the sync thread, because only there the set of missed txgs does not change.
            move |ctx| ctx.pool.check_detach(guid),
            move |ctx| ctx.pool.detach_in(ctx, guid),
        )
    }

    /// Refuses changes below top-level vdevs while a checkpoint needs the present tree.
    pub(crate) fn refuse_with_checkpoint(&self) -> Result<()> {
        if self.keeps_checkpoint() {
            return Err(refused(Errno::EXIST, "checkpoint exists"));
        }
        if self.is_discarding() {
            return Err(refused(Errno::BUSY, "currently discarding checkpoint"));
        }
        Ok(())
    }

    fn check_detach(&self, guid: u64) -> Result<()> {
        self.refuse_with_checkpoint()?;
        let tree = self.config.lock().vdev_tree.clone();
        let Some(parent) = tree.parent_of(guid) else {
            return Err(refused(Errno::NODEV, "no such device in pool"));
        };
        let only = "only applicable to mirror and replacing vdevs";
        let is_leaf = tree.find(guid).is_some_and(|node| node.kind.is_leaf());
        if !is_leaf || !parent.kind.is_mirror_like() {
            return Err(refused(Errno::NOTSUP, only));
        }
        // A sibling that lacks even one txg would lose its blocks permanently.
        if parent.children.len() < 2 || self.is_needed(guid) {
            return Err(refused(Errno::BUSY, "no valid replicas"));
        }
        Ok(())
    }

    /// Removes a vdev from its parent; everything was checked before.
    pub(crate) fn detach_in(&self, ctx: &SyncCtx<'_>, guid: u64) -> Result<()> {
        let mut change = TreeChange::begin(ctx);
        let gone = || Error::refused(Errno::NODEV, "no such device in pool");
        // The parent before the change: afterwards its last child may have replaced it.
        let parent = change.tree().parent_of(guid).ok_or_else(gone)?.clone();
        // Before the child is removed, because afterwards the spare could not be identified.
        if parent.kind == VdevKind::Spare {
            let out = parent.children.iter().find(|c| c.guid == guid);
            self.update_spares(ctx, &mut change, &parent, out.ok_or_else(gone)?)?;
        }
        let out = change.tree().detach_child(guid).ok_or_else(gone)?;
        for node in leaves(&out.node) {
            change.drop_zap(node.zap_leaf)?;
            // Objects that only the old configuration refers to would leak.
            self.free_dtl_object(ctx, node.dtl)?;
            self.dtls.forget(node.guid);
        }
        self.give_place_back(&mut change, &parent, &out);
        if let Some((old, new)) = out.renamed {
            // The last child has replaced its parent. Its log and its counters are renamed with it.
            change.rename(old, new);
        }
        change.publish()
    }

    /// Gives the path of the leaving device back to the device that was renamed for it.
    fn give_place_back(&self, change: &mut TreeChange<'_>, parent: &VdevConfig, out: &Detached) {
        let stay = parent.children.iter().filter(|c| c.guid != out.node.guid);
        for sibling in stay {
            let place = sibling.path.as_deref().and_then(|p| p.strip_suffix(OLD));
            let Some(place) = place.filter(|p| out.node.path.as_deref() == Some(*p)) else {
                continue;
            };
            if let Some(leaf) = self.vdevs.leaf(sibling.guid) {
                // Its own path without `/old`, because the next import looks for it there.
                leaf.set_path(place);
            }
            let renamed = out.renamed.filter(|(old, _)| *old == sibling.guid);
            let now = renamed.map_or(sibling.guid, |(_, new)| new);
            if let Some(node) = change.tree().find_mut(now) {
                node.path = Some(place.to_owned());
            }
        }
    }

    /// A `spare` vdev loses a child: the spare is idle again, or stays permanently and is no spare
    /// any more.
    fn update_spares(
        &self,
        ctx: &SyncCtx<'_>,
        change: &mut TreeChange<'_>,
        parent: &VdevConfig,
        out: &VdevConfig,
    ) -> Result<()> {
        // In either case no child is left for which a spare would be detached.
        let children: Vec<u64> = parent.children.iter().map(|c| c.guid).collect();
        change.tree().visit_mut(&mut |node| {
            // The mark would detach a spare that this vdev does not have any more.
            node.unspare &= !children.contains(&node.guid);
        });
        if out.is_spare {
            let label = self.spare_label(out);
            change.return_spare(out.guid, label);
            return Ok(());
        }
        let stays: Vec<u64> = parent
            .children
            .iter()
            .filter(|c| c.is_spare)
            .map(|c| c.guid)
            .collect();
        let mut lists = self.aux_lists("spares")?;
        let before = lists.len();
        lists.retain(|list| {
            !list
                .get_u64("guid")
                .is_some_and(|guid| stays.contains(&guid))
        });
        // A spare that stays permanently must not be offered to another vdev.
        if lists.len() < before {
            self.write_aux_devices(ctx, "spares", lists)?;
        }
        change.tree().visit_mut(&mut |node| {
            if stays.contains(&node.guid) {
                node.is_spare = false;
            }
        });
        Ok(())
    }

    /// The label of an idle spare.
    pub(crate) fn spare_label(&self, leaf: &VdevConfig) -> NvList {
        AuxLabel {
            version: self.version(),
            is_cache: false,
            guid: leaf.guid,
            ashift: None,
            path: leaf.path.clone(),
            other: Vec::new(),
        }
        .to_nvlist()
    }
}

/// The devices and distributed spares of a vdev.
fn leaves(node: &VdevConfig) -> Vec<&VdevConfig> {
    let mut found = Vec::new();
    node.visit(&mut |n| {
        if n.kind.is_leaf() {
            found.push(n);
        }
    });
    found
}

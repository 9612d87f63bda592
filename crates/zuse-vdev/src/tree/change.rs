//! Changing the tree while the pool is in use. The pool builds the new configuration and installs
//! it in the txg that writes it.
//!
//! - Leaves that stay keep device, health and counters. None is opened again here.
//! - A new leaf must fit, or nothing changes. A leaf that lacks blocks of its siblings is never
//!   read before them. It does not count as a copy for blocks of this txg, and has no older ones.
//! - I/O under way ends on the old tree. The caller gets the leaves that left, and closes their
//!   devices only when the change is on disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zuse_base::tripwire::at;
use zuse_base::{Errno, Error, Refusal, Result};
use zuse_device::BlockDevice;

use super::open::{Builder, Survivors};
use super::{Layout, Node, Tops, Vdevs};
use crate::config::VdevConfig;
use crate::geometry;
use crate::health::Aux;
use crate::leaf::Leaf;

/// The differences of a new tree.
#[derive(Default)]
pub struct Change {
    /// Devices of new leaves, by guid. They have labels of this pool already.
    pub devices: BTreeMap<u64, Arc<dyn BlockDevice>>,
    /// New leaves and distributed spares that lack everything written before.
    pub lacking: Vec<u64>,
    /// Vdevs whose guid changes: old, new.
    pub renamed: Vec<(u64, u64)>,
}

impl Vdevs {
    /// Replaces the tree. Returns the leaves that are not in the new one.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` for an impossible configuration, `Refused` (`OVERFLOW`, `RANGE`)
    /// for a device that does not fit. The old tree stays then.
    pub fn change(&self, root: &VdevConfig, change: &Change) -> Result<Vec<Arc<Leaf>>> {
        self.refuse_if_read_only()?;
        // Everything that may fail is done on a copy; the steps below cannot fail.
        let (tops, before) = self.changed(root, change)?;
        for (old, new) in &change.renamed {
            let own = before.iter().filter(|leaf| leaf.guid() == *old);
            own.for_each(|leaf| leaf.rename(*new));
        }
        self.pool_guid.store(root.guid, Ordering::Relaxed);
        // Before the tree becomes visible: a block's columns depend on the progress of the
        // expansion.
        self.publish_reflow(&tops);
        // Reads under way end on the old tree, which has the same leaves.
        *self.tripwire.hold(at::TREE, self.tops.write()) = tops;
        let now = self.leaves();
        let left = |leaf: &Arc<Leaf>| !now.iter().any(|l| Arc::ptr_eq(l, leaf));
        Ok(before.into_iter().filter(left).collect())
    }

    /// Refuses a tree that [`Vdevs::change`] would refuse.
    ///
    /// # Errors
    /// As [`Vdevs::change`].
    pub fn check_change(&self, root: &VdevConfig, change: &Change) -> Result<()> {
        self.changed(root, change).map(drop)
    }

    /// The new tree, and the leaves of the old one.
    fn changed(&self, root: &VdevConfig, change: &Change) -> Result<(Tops, Vec<Arc<Leaf>>)> {
        let mut survivors = self.survivors();
        let before: Vec<Arc<Leaf>> = survivors.leaves.values().cloned().collect();
        for (old, new) in &change.renamed {
            survivors.rename(*old, *new);
        }
        let mut builder = Builder {
            pool_guid: root.guid,
            alarm: self.alarm.clone(),
            tripwire: self.tripwire.clone(),
            events: self.events.clone(),
            // The labels of a new device have txg 0, and would be refused.
            check_labels: false,
            reopen: false,
            lacking: &change.lacking,
            devices: &|config| change.devices.get(&config.guid).cloned(),
            survivors,
        };
        let tops = builder.tops(root)?;
        for guid in change.devices.keys() {
            check_seated(&tops, *guid)?;
        }
        Ok((tops, before))
    }

    /// Refuses a device that cannot be attached to the vdev with that guid.
    ///
    /// # Errors
    /// As [`Vdevs::change`]; `NODEV` for no such vdev.
    pub fn check_fits(&self, guid: u64, device: &dyn BlockDevice) -> Result<()> {
        let tops = self.tops();
        let top = tops.iter().find(|top| top.node.by_guid(guid).is_some());
        let Some(top) = top else {
            return Err(Error::refused(Errno::NODEV, "no such device in pool"));
        };
        // Blocks are aligned to the vdev's sectors. A device with larger sectors cannot write such
        // a block.
        if device.sector_shift() > u32::from(top.ashift()) {
            return Err(wrong_sectors());
        }
        let need = top.fit(self.pool_guid(), false).asize;
        match geometry::leaf_asize(device.size()) {
            Some(asize) if asize >= need => Ok(()),
            _ => Err(too_small()),
        }
    }

    /// What a new tree takes over from this one.
    pub(super) fn survivors(&self) -> Survivors {
        let mut survivors = Survivors::default();
        for top in self.tops().iter() {
            survivors.collect(&top.node);
            survivors
                .classes
                // The class is not in the configuration, so it has to be taken over.
                .insert(top.id(), top.class.load(Ordering::Relaxed));
            if let Layout::Indirect(indirect) = &top.layout
                && let Some(mapping) = indirect.get()
            {
                // The mapping was read from the MOS once, and is not read again.
                survivors.mappings.insert(top.guid(), mapping);
            }
        }
        survivors
    }

    /// Sets whether a leaf or a distributed spare may lack blocks.
    pub fn set_outdated(&self, guid: u64, yes: bool) {
        for top in self.tops().iter() {
            top.node.set_outdated(guid, yes);
        }
    }

    /// Whether a device can be read and written; for a distributed spare, whether it is present.
    pub fn is_usable(&self, guid: u64) -> bool {
        let usable = |node: &Node| match &node.leaf {
            Some(leaf) => leaf.is_usable(),
            None => true,
        };
        let tops = self.tops();
        let found = tops.iter().find_map(|top| top.node.by_guid(guid));
        found.is_some_and(usable)
    }
}

impl Node {
    fn set_outdated(&self, guid: u64, yes: bool) {
        if self.config.guid == guid {
            self.lacks.store(yes, Ordering::Relaxed);
            if let Some(leaf) = &self.leaf {
                leaf.set_outdated(yes);
            }
        }
        self.children.iter().for_each(|c| c.set_outdated(guid, yes));
    }

    fn by_guid(&self, guid: u64) -> Option<&Self> {
        if self.config.guid == guid {
            return Some(self);
        }
        self.children.iter().find_map(|c| c.by_guid(guid))
    }
}

/// Refuses a new device that could not be opened.
fn check_seated(tops: &Tops, guid: u64) -> Result<()> {
    let leaf = tops.iter().flat_map(|t| t.leaves());
    let Some(leaf) = leaf.into_iter().find(|l| l.guid() == guid) else {
        return Err(Error::contradiction(
            "vdev tree",
            format!("the device {guid} has no place"),
        ));
    };
    match leaf.health().why {
        _ if leaf.is_usable() => Ok(()),
        Aux::AshiftTooBig => Err(wrong_sectors()),
        _ => Err(too_small()),
    }
}

fn wrong_sectors() -> Error {
    Error::refused_for(
        Refusal::Known,
        Errno::RANGE,
        "new device has a different optimal sector size; use the option '-o ashift=N' to override the optimal size",
    )
}

fn too_small() -> Error {
    Error::refused_for(Refusal::Known, Errno::OVERFLOW, "device is too small")
}

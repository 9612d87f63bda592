//! Changing devices of an open pool: attach, replace, offline and online, and spares.
//!
//! - A new device is checked like a device for a new pool, because its content is lost.
//! - A device is resilvered for the txgs that it lacks. If another resilver is running, the device
//!   waits for the next one, in a pool with the feature `resilver_defer`. Without the feature the
//!   running resilver starts again with the new device. So does one that has hardly begun
//!   ([`DEFER_PERCENT`]).

use std::path::Path;
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_device::{Access, BlockDevice, FileDevice};
use zuse_dsl::{Function, ScanState};
use zuse_pool::{AttachDevice, Offline, Purpose};
use zuse_vdev::{Health, VdevConfig, VdevKind, VdevStatus};

use crate::device::Taken;
use crate::{DeviceUse, ImportedPool, LastScan, Pool};

const DEFER: &str = "com.datto:resilver_defer";
/// A resilver that has done less than this percentage starts again with a new device.
const DEFER_PERCENT: u64 = 10;

/// Which new devices are accepted.
#[derive(Clone, Debug, Default)]
pub struct AttachOptions {
    /// Accept a device with a pool that is not imported, or with other content.
    pub force: bool,
    /// Pools whose devices are refused, even with `force`.
    pub imported: Vec<ImportedPool>,
}

/// A spare of a pool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spare {
    /// Its guid.
    pub guid: u64,
    /// Its path, or the name of a distributed spare.
    pub name: String,
    /// It is in use: it has replaced a device.
    pub in_use: bool,
    /// It is distributed over a dRAID's devices.
    pub is_distributed: bool,
}

fn refused(errno: Errno, what: impl std::fmt::Display) -> Error {
    Error::refused_for(Refusal::Known, errno, what)
}

impl Pool {
    /// The guid of a device or another vdev, by its path, its guid, or the name in `zpool status`.
    pub fn vdev_by_name(&self, name: &str) -> Option<u64> {
        let config = self.config();
        let leaves = self.spa().vdevs().leaves();
        let by_path = |leaf: &Arc<zuse_vdev::Leaf>| leaf.path().as_deref() == Some(name);
        // A path first: a file may have a number as its name.
        if let Some(leaf) = leaves.iter().find(|leaf| by_path(leaf)) {
            return Some(leaf.guid());
        }
        let guid = name.parse::<u64>().ok();
        let mut found = None;
        config.vdev_tree.visit(&mut |node| {
            let fits =
                node.kind != VdevKind::Root && (Some(node.guid) == guid || node.name() == name);
            if fits && found.is_none() {
                found = Some(node.guid);
            }
        });
        found
    }

    /// The spares of the pool.
    ///
    /// # Errors
    /// Their list cannot be read.
    pub fn spares(&self) -> Result<Vec<Spare>> {
        let tree = self.config().vdev_tree;
        let all = self.spa().aux_devices("spares")?;
        let spare = |config: &VdevConfig| Spare {
            guid: config.guid,
            name: config.name(),
            in_use: tree.find(config.guid).is_some(),
            is_distributed: !config.kind.is_device(),
        };
        Ok(all.iter().map(spare).collect())
    }

    /// `zpool attach`: adds a device as another copy of an existing one, which has this guid.
    ///
    /// # Errors
    /// `Refused` with OpenZFS's words.
    pub fn attach(self: &Arc<Self>, guid: u64, path: &Path, take: &AttachOptions) -> Result<()> {
        let new = self.device_to_attach(guid, path, take)?;
        self.attach_device(guid, &new, Purpose::Attach)
    }

    /// `zpool replace`: replaces the device with the guid `old` by another one or a spare. Without
    /// a path, by the device that is now at the old one's path.
    ///
    /// # Errors
    /// `Refused` with OpenZFS's words.
    pub fn replace(
        self: &Arc<Self>,
        old: u64,
        path: Option<&Path>,
        take: &AttachOptions,
    ) -> Result<()> {
        let config = self.config();
        let was = config.vdev_tree.find(old).and_then(|c| c.path.clone());
        let path = match (path, &was) {
            (Some(path), _) => path,
            // While a device is replaced by one at the same path, its own path has this suffix.
            (None, Some(was)) => Path::new(was.strip_suffix("/old").unwrap_or(was)),
            (None, None) => return Err(refused(Errno::NODEV, "no such device in pool")),
        };
        let text = path.to_string_lossy();
        let named = |spare: &Spare| {
            spare.name == text || spare.is_distributed && path.ends_with(&spare.name)
        };
        let new = match self.spares()?.into_iter().find(named) {
            Some(spare) => self.spare_to_attach(&spare)?,
            None => self.device_to_attach(old, path, take)?,
        };
        self.attach_device(old, &new, Purpose::Replace)
    }

    /// `zpool detach`.
    ///
    /// # Errors
    /// `Refused` with OpenZFS's words.
    pub fn detach(&self, guid: u64) -> Result<()> {
        self.spa().detach(guid)?;
        self.spa().vdevs().post("vdev_remove", guid);
        Ok(())
    }

    /// `zpool offline`.
    ///
    /// # Errors
    /// `Refused` with OpenZFS's words.
    pub fn offline(&self, guid: u64, how: Offline) -> Result<()> {
        let is_log = |top: &VdevStatus| top.is_log && holds(top, guid);
        match self.vdev_status().children.iter().any(is_log) {
            // What logs on it have promised has to be in the pool first (05-zil §7).
            true => self.dsl().while_logs_rest(|| self.spa().offline(guid, how)),
            false => self.spa().offline(guid, how),
        }
    }

    /// `zpool online`; returns the device's new health.
    ///
    /// # Errors
    /// `Refused` with OpenZFS's words.
    pub fn online(&self, guid: u64) -> Result<Health> {
        let leaf = self.spa().vdevs().leaf(guid);
        // Before it is brought back, which makes it usable.
        let was_away = leaf.is_some_and(|leaf| !leaf.is_usable());
        let defer = was_away && self.defers();
        let health = self.spa().online(guid)?;
        self.spa().vdevs().post("vdev_online", guid);
        if defer && health.state.is_usable() {
            self.spa().defer_resilver(guid)?;
        }
        // A device that was online already does not restart the running resilver.
        self.fill(defer || !was_away)?;
        Ok(health)
    }

    fn attach_device(
        self: &Arc<Self>,
        old: u64,
        new: &AttachDevice,
        purpose: Purpose,
    ) -> Result<()> {
        let defer = self.defers();
        self.spa().attach_device(old, new, purpose, defer)?;
        self.fill(defer)
    }

    /// Begins a resilver of devices that lack something. With `waits` it does nothing while another
    /// resilver is running.
    fn fill(&self, waits: bool) -> Result<()> {
        match waits && self.is_resilvering() {
            true => Ok(()),
            false => self.restart_resilver(),
        }
    }

    /// Whether a device that is added now waits for the next resilver.
    fn defers(&self) -> bool {
        let goes_on = |scan: &LastScan| {
            scan.function == Function::Resilver && scan.state == ScanState::Running
        };
        let is_far = |scan: LastScan| {
            u128::from(scan.issued) * 100 >= u128::from(scan.to_examine) * u128::from(DEFER_PERCENT)
        };
        self.spa().features().is_enabled(DEFER) && self.scan().filter(goes_on).is_some_and(is_far)
    }

    /// A device that may be used for this pool.
    fn device_to_attach(
        &self,
        target: u64,
        path: &Path,
        take: &AttachOptions,
    ) -> Result<AttachDevice> {
        let spa = self.spa();
        if !path.exists() {
            let what = format!("cannot resolve path '{}'", path.display());
            return Err(Error::refused_for(Refusal::Whole, Errno::NOENT, what));
        }
        // Otherwise it would be in the tree and in the list of spares, and could replace a second
        // device.
        if let Some(what) = self.own_aux()?.of(path) {
            let errno = match take.force {
                true => Errno::BUSY,
                false => Errno::EXIST,
            };
            return Err(Error::refused(errno, what));
        }
        let used = DeviceUse::of(path)?;
        if let Some(own) = used.pool().filter(|pool| pool.pool_guid == self.guid()) {
            let has_device = |leaf: &Arc<zuse_vdev::Leaf>| {
                Some(leaf.guid()) == own.guid && leaf.device().is_some()
            };
            if spa.vdevs().leaves().iter().any(has_device) {
                return Err(refused(Errno::BUSY, format!("{} is busy", path.display())));
            }
            if !take.force && !used.never_came(path, self)? {
                let what = format!("{} is part of active pool '{}'", path.display(), own.name);
                return Err(Error::refused(Errno::EXIST, what));
            }
        } else {
            let others = |pool: &&ImportedPool| pool.guid != self.guid();
            let others: Vec<ImportedPool> = take.imported.iter().filter(others).cloned().collect();
            DeviceUse::check(path, take.force, &Taken::of(&others))?;
        }
        // The lock of this open keeps other processes off the device from here on.
        let device = FileDevice::open(path, Access::Write)?;
        let is_disk = device.is_block_device();
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        spa.vdevs().check_fits(target, &*device)?;
        Ok(AttachDevice::Device { device, is_disk })
    }

    /// Replaces a device by a spare.
    pub(crate) fn replace_by_spare(self: &Arc<Self>, old: u64, spare: &Spare) -> Result<()> {
        let new = self.spare_to_attach(spare)?;
        self.attach_device(old, &new, Purpose::Replace)
    }

    fn spare_to_attach(&self, spare: &Spare) -> Result<AttachDevice> {
        if spare.is_distributed {
            return Ok(AttachDevice::Spare(spare.guid, None));
        }
        if spare.in_use {
            return Err(refused(Errno::BUSY, format!("{} is busy", spare.name)));
        }
        let device = FileDevice::open(&spare.name, Access::Write)?;
        Ok(AttachDevice::Spare(spare.guid, Some(Arc::new(device))))
    }

    /// Whether devices are being filled at the moment.
    pub fn is_resilvering(&self) -> bool {
        let resilver = |scan: LastScan| {
            scan.function == Function::Resilver && scan.state == ScanState::Running
        };
        self.scan().is_some_and(resilver)
    }

    /// Whether some device is being replaced: both are in the pool.
    pub fn is_replacing(&self) -> bool {
        let mut replacing = false;
        self.config().vdev_tree.visit(&mut |node| {
            replacing |= node.kind == VdevKind::Replacing;
        });
        replacing
    }

    /// Whether some device is being replaced, or lacks blocks that a resilver is going to write.
    pub fn has_pending_resilver(&self) -> bool {
        self.is_replacing() || self.spa().lacking_range().is_some()
    }
}

/// Whether a device is a vdev or below it.
fn holds(vdev: &VdevStatus, guid: u64) -> bool {
    vdev.guid == guid || vdev.children.iter().any(|child| holds(child, guid))
}

#[cfg(test)]
mod tests;

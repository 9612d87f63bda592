//! Removing devices from a pool: logs, spares, cache devices.

use std::path::Path;

use zuse_base::{Errno, Error, Event, Refusal, Result};
use zuse_device::{Access, FileDevice};
use zuse_dsl::{DatasetKind, ListedKinds};
use zuse_vdev::{LabelConfig, Labels, VdevStatus, label};

use crate::{AuxList, Pool};

/// A device to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removable {
    /// A spare or cache device.
    Aux(AuxList, u64, Option<String>),
    /// A log vdev.
    Log(u64),
    /// A top-level vdev with data.
    Data(u64),
    /// Part of a vdev.
    Part,
}

impl Pool {
    /// Finds the device by its name in `zpool remove`.
    ///
    /// # Errors
    /// `Refused(NODEV)`; the MOS cannot be read.
    pub fn find_removable(&self, name: &str) -> Result<Removable> {
        for list in AuxList::ALL {
            for device in self.spa().aux_devices(list.key())? {
                if is_named(&device, name) {
                    return Ok(Removable::Aux(list, device.guid, device.path));
                }
            }
        }
        let no_such = || Error::refused(Errno::NODEV, "no such device in pool");
        let guid = self.find_vdev(name).ok_or_else(no_such)?;
        let root = self.vdev_status();
        let of = |v: &&VdevStatus| v.guid == guid;
        match root.children.iter().find(of) {
            Some(top) if top.is_log => Ok(Removable::Log(guid)),
            Some(_) => Ok(Removable::Data(guid)),
            None if guid == root.guid => Err(no_such()),
            None => Ok(Removable::Part),
        }
    }

    /// Removes a device. It is gone on return.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` for a device that cannot be removed. `Refused(BUSY)` for a log vdev with
    /// logs of datasets whose keys are not loaded, and with a checkpoint; `Refused(ROFS)`.
    pub fn remove(&self, device: &Removable) -> Result<()> {
        let known = |errno, what: &str| Err(Error::refused_for(Refusal::Known, errno, what));
        // A rewind needs the vdevs that the checkpoint knows (01 §8).
        if self.spa().keeps_checkpoint() && !matches!(device, Removable::Aux(..)) {
            return known(Errno::EXIST, "checkpoint exists");
        }
        match device {
            Removable::Aux(list, guid, path) => {
                self.spa().remove_aux(list.key(), *guid)?;
                // Its label would prevent using it again.
                let _ = path.as_deref().map(|path| forget(Path::new(path), *guid));
                self.post_removed("vdev_remove_aux", *guid, path.as_deref());
                Ok(())
            }
            Removable::Log(guid) => {
                // Logs of datasets that were not opened may have blocks on it.
                self.replay_logs()?;
                // Afterwards it has no path.
                let root = self.vdev_status();
                let log = root.children.iter().find(|top| top.guid == *guid);
                let path = log.filter(|log| log.kind.is_device()).map(|log| &*log.name);
                self.dsl()
                    .while_logs_rest(|| self.spa().remove_log(*guid))?;
                self.post_removed("vdev_remove_dev", *guid, path);
                Ok(())
            }
            Removable::Data(_) => known(
                Errno::NOTSUP,
                "Zuse does not move data off a vdev: 'zfs send -R' into a pool without it does",
            ),
            Removable::Part => known(
                Errno::NOTSUP,
                "operation not supported on this type of pool",
            ),
        }
    }

    fn post_removed(&self, name: &'static str, guid: u64, path: Option<&str>) {
        let event = Event::system(name).number("vdev_guid", guid);
        self.events().post(match path {
            Some(path) => event.text("vdev_path", path),
            None => event,
        });
    }

    /// Applies the intent logs of all datasets whose keys are loaded, so that their blocks are
    /// freed.
    pub(crate) fn replay_logs(&self) -> Result<()> {
        for name in self.datasets_with_logs()? {
            let dataset = self.dsl().dataset(&name)?;
            let opened = match dataset.is_volume()? {
                true => self.volume(&name).map(drop),
                false => self.file_system(&name).map(drop),
            };
            match opened {
                // The removal itself reports remaining ones.
                Err(Error::Refused { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        self.sync()
    }

    fn datasets_with_logs(&self) -> Result<Vec<String>> {
        let mut out = Vec::new();
        for entry in self.list(&self.name(), None, ListedKinds::HEADS)? {
            let is_head = matches!(entry.kind, DatasetKind::Filesystem | DatasetKind::Volume);
            if is_head
                && self
                    .dsl()
                    .dataset(&entry.name)?
                    .needs_replay()
                    .unwrap_or(true)
            {
                out.push(entry.name);
            }
        }
        Ok(out)
    }
}

/// Whether a name matches a device of a list.
fn is_named(device: &zuse_vdev::VdevConfig, name: &str) -> bool {
    let path = device.path.as_deref().unwrap_or_default();
    if name == path || device.guid.to_string() == name {
        return true;
    }
    if !name.contains('/') {
        return path.rsplit('/').next() == Some(name);
    }
    // Another name of the same device.
    let real = |path: &str| std::fs::canonicalize(path).ok();
    real(name).is_some_and(|n| real(path) == Some(n))
}

/// Wipes the labels of a device that was a spare or cache device, if they still are its own.
fn forget(path: &Path, guid: u64) -> Result<()> {
    let device = FileDevice::open(path, Access::Write)?;
    let labels = Labels::read(&device);
    let own = |label: &LabelConfig| matches!(label, LabelConfig::Aux(aux) if aux.guid == guid);
    let mut good = labels.good().peekable();
    // A device that another pool has taken meanwhile keeps its labels.
    if good.peek().is_some() && good.all(|(_, label)| own(label)) {
        label::clear(&device)?;
    }
    Ok(())
}

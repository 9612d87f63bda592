//! Devices named in a command: their content, and whether they may be overwritten.

use std::path::{Path, PathBuf};

use zuse_base::{Errno, Error, Result};
use zuse_device::{Access, FileDevice, Storage, foreign};
use zuse_vdev::{Aux, LabelConfig, Labels, PoolConfig, PoolState};

use crate::Pool;

/// A pool that this host has imported: its devices are refused until it is exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedPool {
    /// Its guid.
    pub guid: u64,
    /// Its present name.
    pub name: String,
    /// The last known paths of its devices.
    pub devices: Vec<PathBuf>,
}

/// Which labels [`DeviceUse::clear`] wipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClearLabels {
    /// Those of a destroyed pool, and of spares and cache devices.
    Unused,
    /// Also those of an exported pool, and of one that seems active, if no process has the device
    /// open.
    Force,
}

/// Devices of imported pools, identified by their underlying storage.
#[derive(Debug, Default)]
pub(crate) struct Taken<'a>(Vec<(&'a ImportedPool, Vec<Storage>)>);

impl<'a> Taken<'a> {
    pub(crate) fn of(pools: &'a [ImportedPool]) -> Self {
        let seen = pools.iter().map(|pool| {
            let devices = pool.devices.iter().filter_map(|d| Storage::of(d).ok());
            (pool, devices.collect())
        });
        Self(seen.collect())
    }

    /// The pool that a device belongs to, according to its labels or its identity.
    fn by(&self, path: &Path, used: &DeviceUse) -> Option<&'a ImportedPool> {
        let own = Storage::of(path).ok();
        let label = used.pool().map(|config| config.pool_guid);
        let found = self.0.iter().find(|(pool, devices)| {
            // By label and by storage: a device may be known by another path, or have lost its
            // label.
            label == Some(pool.guid)
                || own
                    .as_ref()
                    .is_some_and(|o| devices.iter().any(|d| d.meets(o)))
        });
        found.map(|(pool, _)| *pool)
    }
}

/// Whether another process has a device open. Probing processes do not count.
fn is_held(path: &Path) -> bool {
    FileDevice::open(path, Access::Read).is_err_and(|e| e.is_held())
}

/// The use of a device according to its labels.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DeviceUse {
    /// No label.
    Unused,
    /// A device of a pool.
    Member(Box<PoolConfig>),
    /// A spare or cache device.
    Aux,
}

impl DeviceUse {
    /// Reads the labels of a device without disturbing its users.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn of(path: impl AsRef<Path>) -> Result<Self> {
        let device = FileDevice::open(path, Access::Probe)?;
        let labels = Labels::read(&device);
        if let Some(config) = labels.newest(u64::MAX) {
            return Ok(Self::Member(Box::new(config.clone())));
        }
        let aux = labels.good().any(|(_, l)| matches!(l, LabelConfig::Aux(_)));
        Ok(if aux { Self::Aux } else { Self::Unused })
    }

    /// The reason why a device was not found. At its path may be nothing, something without a
    /// label, or a device of another pool or vdev.
    pub fn instead(path: &Path) -> Aux {
        match Self::of(path) {
            _ if !path.exists() => Aux::OpenFailed,
            Ok(Self::Member(_)) => Aux::CorruptData,
            _ => Aux::BadLabel,
        }
    }

    /// The pool that it belongs to and is not destroyed.
    pub fn pool(&self) -> Option<&PoolConfig> {
        match self {
            Self::Member(config) if config.state != PoolState::Destroyed => Some(config),
            _ => None,
        }
    }

    /// Whether the device was being added to an open pool when power was lost, and was never
    /// committed. The pool does not have it, and the txg of its labels does not exist. Nothing is
    /// lost by reusing it, so the interrupted command can be repeated unchanged.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn never_came(&self, path: &Path, pool: &Pool) -> Result<bool> {
        let Some(label) = self.pool().filter(|label| label.pool_guid == pool.guid()) else {
            return Ok(false);
        };
        let tree = pool.config().vdev_tree;
        if label.guid.is_none_or(|guid| tree.find(guid).is_some()) {
            return Ok(false);
        }
        let device = FileDevice::open(path, Access::Probe)?;
        Ok(Labels::read(&device).is_ahead(&device))
    }

    /// Refuses a device for a new pool, if data would be lost or the device is in use.
    ///
    /// # Errors
    /// `Refused(BUSY)` for a device of an imported pool; `Refused(EXIST)`, without `force`, for one
    /// of another pool or with other content.
    pub(crate) fn check(path: &Path, force: bool, taken: &Taken<'_>) -> Result<()> {
        let shown = path.display();
        let used = Self::of(path)?;
        if let Some(pool) = taken.by(path, &used) {
            let what = format!("{shown} is part of active pool '{}'", pool.name);
            return Err(Error::refused(Errno::BUSY, what));
        }
        if let Some(config) = used.pool().filter(|c| c.state == PoolState::Active)
            && is_held(path)
        {
            let what = format!(
                "{shown} is part of active pool '{}', which another process holds: export it there first",
                config.name
            );
            return Err(Error::refused(Errno::BUSY, what));
        }
        if force {
            return Ok(());
        }
        let what = match &used {
            Self::Member(config) if config.state != PoolState::Destroyed => {
                let word = match config.state {
                    PoolState::Active => "potentially active",
                    _ => "exported",
                };
                format!("{shown} is part of {word} pool '{}'", config.name)
            }
            Self::Aux => format!("{shown} is a spare or cache device of a pool"),
            Self::Member(_) | Self::Unused => {
                let device = FileDevice::open(path, Access::Probe)?;
                let Some(found) = foreign(&device) else {
                    return Ok(());
                };
                format!("{shown} {found}")
            }
        };
        Err(Error::refused(Errno::EXIST, what))
    }

    /// Wipes the labels of a device, unless a pool of `imported` has it.
    ///
    /// # Errors
    /// `Refused(BUSY)` for a device of an active pool and `Refused(EXIST)` for one of an exported
    /// pool, unless `which` allows them. `Refused(NOENT)` without a label.
    pub fn clear(
        path: impl AsRef<Path>,
        which: ClearLabels,
        imported: &[ImportedPool],
    ) -> Result<()> {
        let path = path.as_ref();
        let force = which == ClearLabels::Force;
        let used = Self::of(path)?;
        let is_ours = || Taken::of(imported).by(path, &used).is_some();
        match &used {
            Self::Unused => {
                return Err(Error::refused(Errno::NOENT, "no ZFS label was found on it"));
            }
            Self::Member(config)
                if config.state == PoolState::Active && (!force || is_held(path) || is_ours()) =>
            {
                return Err(Error::refused(
                    Errno::BUSY,
                    format!(
                        "{} is a member (ACTIVE) of pool \"{}\"",
                        path.display(),
                        config.name
                    ),
                ));
            }
            Self::Member(config) if config.state == PoolState::Exported && !force => {
                return Err(Error::refused(
                    Errno::EXIST,
                    format!(
                        "{} is a member of exported pool \"{}\"",
                        path.display(),
                        config.name
                    ),
                ));
            }
            Self::Member(_) | Self::Aux => {}
        }
        // Opened for writing only here: it locks the device, which a check must not do.
        let device = FileDevice::open(path, Access::Write)?;
        zuse_vdev::label::clear(&device)?;
        Ok(())
    }
}

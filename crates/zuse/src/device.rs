//! Devices that a command names: what is on them, and whether they may be taken.

use std::path::Path;

use zuse_base::{Errno, Error, Result};
use zuse_device::{Access, FileDevice};
use zuse_vdev::{LabelConfig, Labels, PoolConfig, PoolState};

/// What the labels of a device say.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceUse {
    /// No label.
    Unused,
    /// A device of a pool.
    Member(Box<PoolConfig>),
    /// A spare or cache device.
    Aux,
}

impl DeviceUse {
    /// Looks at a device without disturbing whoever uses it.
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

    /// The pool that it belongs to and is not destroyed.
    pub fn pool(&self) -> Option<&PoolConfig> {
        match self {
            Self::Member(config) if config.state != PoolState::Destroyed => Some(config),
            _ => None,
        }
    }

    /// Wipes the labels of a device.
    ///
    /// # Errors
    /// `Refused(BUSY)` for a device of an active pool, and without `force` of an exported one.
    pub fn clear(path: impl AsRef<Path>, force: bool) -> Result<()> {
        let path = path.as_ref();
        match Self::of(path)? {
            Self::Unused => {
                return Err(Error::refused(Errno::NOENT, "no ZFS label was found on it"));
            }
            Self::Member(config) if config.state == PoolState::Active => {
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
        let device = FileDevice::open(path, Access::Write)?;
        zuse_vdev::label::clear(&device)?;
        Ok(())
    }
}

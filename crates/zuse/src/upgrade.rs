//! Changeable data in a filesystem's master node: its version, and the default limits of owners.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_dsl::{DatasetKind, Estimate};
use zuse_format::property::{dataset_property, parse_number};
use zuse_zpl::{QuotaKind, QuotaOwner};

use crate::{Dataset, Pool};

/// Newest version of filesystems.
pub const ZPL_VERSION: u64 = 5;

/// What [`Pool::upgrade`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpgradeOutcome {
    /// The filesystem has the new version.
    Upgraded,
    /// It had that version already.
    UpToDate,
}

/// Newest filesystem version that a pool of that version supports.
pub(crate) fn newest_zpl(pool_version: u64) -> u64 {
    match pool_version {
        24.. => ZPL_VERSION,
        15..24 => 4,
        9..15 => 3,
        _ => 2,
    }
}

const DEFAULTS: [(&str, QuotaOwner, QuotaKind); 6] = [
    ("defaultuserquota", QuotaOwner::User, QuotaKind::Space),
    ("defaultgroupquota", QuotaOwner::Group, QuotaKind::Space),
    ("defaultprojectquota", QuotaOwner::Project, QuotaKind::Space),
    ("defaultuserobjquota", QuotaOwner::User, QuotaKind::Objects),
    (
        "defaultgroupobjquota",
        QuotaOwner::Group,
        QuotaKind::Objects,
    ),
    (
        "defaultprojectobjquota",
        QuotaOwner::Project,
        QuotaKind::Objects,
    ),
];

fn refuse<T>(errno: Errno, why: String) -> Result<T> {
    Err(Error::refused(errno, why))
}

impl Dataset {
    /// Sets a property of the master node.
    pub(crate) fn set_inside(&self, name: &str, text: &str, kind: DatasetKind) -> Result<()> {
        if kind != DatasetKind::Filesystem {
            let why = format!("'{name}' does not apply to datasets of this type");
            return refuse(Errno::INVAL, why);
        }
        if name == "version" {
            let known = dataset_property(name).and_then(|p| p.number_of(text));
            let Some(version) = known else {
                let words = dataset_property(name).map_or("", |p| p.values);
                return refuse(Errno::INVAL, format!("'version' must be one of '{words}'"));
            };
            return self.pool().upgrade(self.name(), version).map(drop);
        }
        let Some((_, owner, kind)) = DEFAULTS.iter().find(|(n, ..)| *n == name) else {
            return refuse(Errno::INVAL, format!("'{name}' is readonly"));
        };
        let limit = match text {
            "none" => 0,
            text => parse_number(text).or_else(|e| refuse(Errno::INVAL, e.to_string()))?,
        };
        let fs = self.pool().file_system(self.name())?;
        fs.set_default_quota(*owner, *kind, limit)?;
        self.pool().sync()
    }
}

impl Pool {
    /// Version of a filesystem.
    ///
    /// # Errors
    /// `Refused(NOENT)`; it cannot be read, or is no filesystem.
    pub fn version_of(self: &Arc<Self>, name: &str) -> Result<u64> {
        let value = self.dataset(name)?.property("version")?;
        match value.and_then(|p| p.value.parse().ok()) {
            Some(version) => Ok(version),
            None => refuse(Errno::INVAL, format!("'{name}' has no version")),
        }
    }

    /// Upgrades a filesystem to a newer version.
    ///
    /// # Errors
    /// `Refused(BUSY)` while it is open elsewhere; `Refused(INVAL)` for an older version;
    /// `Refused(ROFS)`.
    pub fn upgrade(self: &Arc<Self>, name: &str, version: u64) -> Result<UpgradeOutcome> {
        let now = self.version_of(name)?;
        if version < now {
            return refuse(
                Errno::INVAL,
                format!("Can not downgrade; already at version {now}"),
            );
        }
        if version == now {
            return Ok(UpgradeOutcome::UpToDate);
        }
        if version > ZPL_VERSION {
            return refuse(Errno::INVAL, format!("version {version} is not known"));
        }
        if version > newest_zpl(self.spa().version()) {
            let why = "pool must be upgraded to set this property or value";
            return refuse(Errno::NOTSUP, why.to_owned());
        }
        match self.mounts() {
            Some(mounts) => {
                mounts.while_suspended(&[name], &mut || self.upgrade_unmounted(name, version))?;
            }
            None => self.upgrade_unmounted(name, version)?,
        }
        Ok(UpgradeOutcome::Upgraded)
    }

    fn upgrade_unmounted(&self, name: &str, version: u64) -> Result<()> {
        let dataset = self.dsl().dataset(name)?;
        // Owned, so that no mount has it open with the old version.
        let owner = dataset.own()?;
        let objset = dataset.objset()?;
        let tx = dataset.begin(Estimate {
            write_bytes: 64 << 10,
            ..Estimate::default()
        })?;
        zuse_zpl::upgrade(&objset, &tx, version)?;
        drop(tx);
        self.sync()?;
        drop(owner);
        Ok(())
    }
}

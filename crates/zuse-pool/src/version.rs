//! Different formats of pool versions before features (1 to 28), as far as this layer writes them.
//! Also the upgrade to a newer version.
//!
//! Chapters 01, 02 and 04 §10 of the format notes. The version changes only on request.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_dmu::zap::Zap;
use zuse_format::objset::{OBJSET_SIZE, OBJSET_SIZE_V1, OBJSET_SIZE_V2};
use zuse_format::uberblock::{SPA_VERSION, is_spa_version};

use crate::{Pool, SyncCtx};

/// Metadata has several copies.
pub(crate) const VERSION_COPIES: u64 = 2;
/// Space is counted without the share of parity.
pub(crate) const VERSION_DEFLATE: u64 = 3;
/// Object sets count the space of users and groups.
const VERSION_USERS: u64 = 15;
/// Block lists can have sub-lists.
const VERSION_NESTED: u64 = 26;

/// Size of the objset block of a new object set.
pub(crate) fn objset_size(version: u64, project_quota: bool) -> usize {
    match version {
        0..VERSION_USERS => OBJSET_SIZE_V1,
        _ if project_quota => OBJSET_SIZE,
        _ => OBJSET_SIZE_V2,
    }
}

/// Bonus size of a list of blocks waiting to be freed.
pub(crate) fn queue_bonus(version: u64) -> u16 {
    match version {
        0..VERSION_DEFLATE => 16,
        VERSION_DEFLATE..VERSION_NESTED => 32,
        _ => 48,
    }
}

impl Pool {
    /// Whether the pool can be upgraded to a version.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` for an unknown version, `Refused(INVAL)` for an older one.
    pub fn check_upgrade(&self, version: u64) -> Result<()> {
        let now = self.version();
        if !is_spa_version(version) {
            let why = format!("version {version} is not known");
            return Err(Error::refused(Errno::NOTSUP, why));
        }
        if version < now {
            let why = format!("the pool is at version {now} already");
            return Err(Error::refused(Errno::INVAL, why));
        }
        Ok(())
    }

    /// Changes the pool's version from the txg of `ctx` on, after the layer above has done its
    /// part. This enables no features.
    ///
    /// # Errors
    /// As [`Self::check_upgrade`]; the MOS cannot be changed.
    pub fn set_version(self: &Arc<Self>, ctx: &SyncCtx<'_>, version: u64) -> Result<()> {
        self.check_upgrade(version)?;
        if self.version() < SPA_VERSION && version >= SPA_VERSION {
            self.features.create(ctx, &self.directory()?)?;
        }
        self.config.lock().version = version;
        self.config_changed();
        Ok(())
    }

    /// Pools created before version 3 count space as allocated, parity included.
    pub(crate) fn count_space_as(&self, directory: &Zap) -> Result<()> {
        if directory.lookup_u64(b"deflate")?.is_none() {
            self.vdevs.count_as_allocated();
        }
        Ok(())
    }

    /// Updates the MOS's write settings after a change of version or features.
    pub fn renew_settings(&self) {
        self.mos().set_settings(self.mos_settings());
    }
}

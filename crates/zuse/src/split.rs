//! A pool is split in two.

use std::sync::Arc;

use zuse_base::Result;
use zuse_dsl::Dsl;
use zuse_pool::SplitOff;
use zuse_vdev::PoolState;

use crate::Pool;
use crate::create::check_name;
use crate::pool_property::parse;

impl Pool {
    /// The devices for a split: the named one of each mirror, or its last.
    ///
    /// # Errors
    /// `Refused` in the words of `zpool split`.
    pub fn devices_to_split(&self, named: &[u64]) -> Result<Vec<u64>> {
        self.spa().choose(named)
    }

    /// Creates a pool from one device of each mirror. It is exported on return.
    ///
    /// # Errors
    /// `Refused` with the messages of `zpool split`; `Refused(ROFS)`; a device fails.
    pub fn split(&self, name: &str, named: &[u64], properties: &[(String, String)]) -> Result<()> {
        check_name(name)?;
        for (property, value) in properties {
            parse(property, value)?;
        }
        // Logs of unopened datasets do not go into the new pool.
        self.replay_logs()?;
        let properties = properties.to_vec();
        self.spa().split(name, named, move |old, off| {
            let made = make(old, off)?;
            let set = properties
                .iter()
                .try_for_each(|(property, value)| made.set_pool_property(property, value));
            made.spa().close(PoolState::Exported)?;
            set
        })
    }
}

fn make(old: &zuse_pool::Pool, off: SplitOff) -> Result<Arc<Pool>> {
    let dsl = Dsl::new();
    let env = zuse_pool::Environment {
        clock: old.shared_clock(),
        entropy: old.entropy_source(),
        host: old.host().clone(),
        limits: old.limits(),
    };
    let spa = zuse_pool::Pool::open_split_off(env, off, dsl.clone())?;
    Pool::assemble(spa, dsl)
}

/// Whether a pool property may be set on a split-off pool.
///
/// # Errors
/// `Refused(INVAL)` in the words of `zpool`.
pub fn check_property(name: &str, value: &str) -> Result<()> {
    parse(name, value).map(drop)
}

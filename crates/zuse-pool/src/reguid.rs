//! A new guid for the whole pool.
//!
//! The guid is in every label, in the configuration of the MOS and in the sum of guids of the
//! uberblock. All change in one txg. A power cut between the first labels and the uberblock leaves
//! labels of two guids on a device. Then the uberblocks decide which of them are valid
//! ([`zuse_vdev::Labels::claims`]).

use std::sync::Arc;

use zuse_base::{Errno, Error, Event, Refusal, Result};
use zuse_vdev::VdevState;

use crate::{Pool, SyncCtx};

impl Pool {
    /// Changes the pool's guid to the given one, or to a random one. Returns the old and the new
    /// guid.
    ///
    /// # Errors
    /// `Refused(BUSY)` with a checkpoint, `Refused(NXIO)` if a device is not healthy: it would not
    /// be recognized afterwards. `Refused(EXIST)` for the present guid, `Refused(ROFS)`.
    pub fn reguid(self: &Arc<Self>, guid: Option<u64>) -> Result<(u64, u64)> {
        let check = move |ctx: &SyncCtx<'_>| ctx.pool.check_reguid(guid);
        let apply = move |ctx: &SyncCtx<'_>| {
            let pool = ctx.pool;
            let new = guid.unwrap_or_else(|| pool.free_guid());
            let mut config = pool.config.lock();
            let old = std::mem::replace(&mut config.pool_guid, new);
            config.vdev_tree.guid = new;
            drop(config);
            pool.vdevs.set_pool_guid(new);
            pool.config_changed();
            pool.events().change_subject(|subject| subject.guid = new);
            pool.events().post(Event::system("pool_reguid"));
            Ok((old, new))
        };
        self.sync_task(check, apply)
    }

    fn check_reguid(&self, guid: Option<u64>) -> Result<()> {
        let refused = |errno, what| Err(Error::refused_for(Refusal::Known, errno, what));
        self.refuse_with_checkpoint()?;
        if self.vdevs.health().state != VdevState::Healthy {
            let what = "one or more devices is currently unavailable";
            return refused(Errno::NXIO, what);
        }
        match guid {
            Some(0) => refused(Errno::INVAL, "invalid argument for this pool operation"),
            Some(guid) if self.config.lock().vdev_tree.find(guid).is_some() => {
                refused(Errno::EXIST, "pool already exists")
            }
            _ => Ok(()),
        }
    }

    /// A guid that nothing in this pool uses.
    pub(crate) fn free_guid(&self) -> u64 {
        loop {
            let guid = self.env.entropy.guid().get();
            if self.config.lock().vdev_tree.find(guid).is_none() {
                return guid;
            }
        }
    }
}

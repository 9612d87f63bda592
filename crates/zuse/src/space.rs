//! The space figures of a pool, as `zpool list` shows them.

use zuse_base::{Errno, Error, Result};
use zuse_vdev::Health;

use crate::Pool;

/// Figures of a pool; bytes unless said.
#[derive(Clone, Copy, Debug)]
pub struct PoolFigures {
    /// Room of the normal vdevs.
    pub size: u64,
    /// Of it allocated.
    pub allocated: u64,
    /// Freed in the background, still to come.
    pub freeing: u64,
    /// How well the vdevs are.
    pub health: Health,
}

impl PoolFigures {
    /// Room that is left.
    pub fn free(&self) -> u64 {
        self.size.saturating_sub(self.allocated)
    }

    /// Percent allocated.
    pub fn capacity(&self) -> u64 {
        if self.size == 0 {
            0
        } else {
            (u128::from(self.allocated) * 100 / u128::from(self.size)) as u64
        }
    }
}

impl Pool {
    /// Its space figures.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn figures(&self) -> Result<PoolFigures> {
        let space = self.spa().space();
        let writable = self.is_writable();
        let allocated = if writable {
            space.allocated
        } else {
            self.allocated_by_maps()?
        };
        Ok(PoolFigures {
            size: space.capacity,
            allocated,
            freeing: 0,
            health: self.spa().vdevs().health(),
        })
    }

    /// What the space maps of a pool that is only read have allocated, logs left out; where they
    /// cannot be read, what datasets count.
    fn allocated_by_maps(&self) -> Result<u64> {
        let Ok(by_vdev) = self.spa().space_by_maps() else {
            return self.dsl().written();
        };
        let tops = self.spa().vdevs().tops();
        let data = tops.iter().filter(|t| !t.is_log());
        let allocated = data.filter_map(|t| by_vdev.get(&t.id()).map(|(_, n)| *n));
        Ok(allocated.fold(0, u64::saturating_add))
    }

    /// Fragmentation of the free space in percent; `None` where it is not known, or cannot be read.
    pub fn fragmentation(&self) -> Option<u64> {
        self.spa().fragmentation().ok().flatten()
    }

    /// Gives all free space back to the host: holes in files, discarded blocks on disks. Gives the
    /// bytes; space is held back from writers piece by piece while it is done.
    ///
    /// # Errors
    /// `Refused(ROFS)`; a device cannot do it, or fails.
    pub fn trim(&self) -> Result<u64> {
        let given = self.spa().trim(&mut |_, _| {})?;
        if given > 0 {
            return Ok(given);
        }
        Err(Error::refused(
            Errno::NOTSUP,
            "no devices in pool support trim operations",
        ))
    }

    /// The word for its state: that of its vdevs, or SUSPENDED.
    pub fn health_word(&self) -> &'static str {
        if self.suspended().is_some() {
            "SUSPENDED"
        } else {
            self.spa().vdevs().health().word()
        }
    }
}

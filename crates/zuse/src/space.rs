//! The space figures of a pool, as `zpool list` shows them.

use zuse_base::{Errno, Error, Result};
use zuse_vdev::Health;

use crate::{Pool, VdevClass};

/// Figures of a pool; bytes unless a line says otherwise.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PoolFigures {
    /// Size of the normal vdevs.
    pub size: u64,
    /// Allocated bytes of these vdevs.
    pub allocated: u64,
    /// Bytes waiting to be freed in the background.
    pub freeing: u64,
    /// Health of the vdevs.
    pub health: Health,
}

impl PoolFigures {
    /// Free space.
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

/// Space of the vdevs of an allocation class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassSpace {
    /// Bytes in metaslabs.
    size: u64,
    /// Allocated bytes.
    allocated: u64,
    /// Bytes by which they could grow.
    expandable: u64,
    /// The same in bytes of data, without parity.
    usable: u64,
    used: u64,
}

impl ClassSpace {
    /// A number by its name in `zpool get`; `None` if there is no such name.
    pub fn figure(&self, name: &str) -> Option<u64> {
        let share = |part: u64, whole: u64| match whole {
            0 => 0,
            whole => (u128::from(part) * 100 / u128::from(whole)) as u64,
        };
        Some(match name {
            "size" => self.size,
            "allocated" => self.allocated,
            "free" => self.size.saturating_sub(self.allocated),
            "capacity" => share(self.allocated, self.size),
            "usable" => self.usable,
            "used" => self.used,
            "available" => self.usable.saturating_sub(self.used),
            "expandsize" => self.expandable,
            _ => return None,
        })
    }
}

/// Space that vdevs reserve for logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbeddedLog {
    /// Bytes reserved.
    pub size: u64,
    /// Bytes of them that are allocated.
    pub allocated: u64,
}

impl Pool {
    /// Space of the vdevs of a class: `normal`, `special`, `dedup`, `log`. Or of the metaslabs that
    /// normal and special ones reserve for logs: `elog` and `selog`. All together are the pool's
    /// size.
    ///
    /// # Errors
    /// The space maps cannot be read.
    pub(crate) fn class_space(&self, class: &str) -> Result<ClassSpace> {
        let tops = self.spa().vdevs().tops();
        let logs = self.spa().embedded_logs()?;
        let (class, is_kept) = match class {
            "elog" => ("normal", true),
            "selog" => ("special", true),
            class => (class, false),
        };
        let mut sum = ClassSpace::default();
        for top in tops.iter().filter(|t| t.is_concrete()) {
            let is_of = match (top.is_log(), top.class()) {
                (true, _) => "log",
                (_, VdevClass::Special) => "special",
                (_, VdevClass::Dedup) => "dedup",
                _ => "normal",
            };
            if is_of != class {
                continue;
            }
            let (size, allocated) = match self.spa().vdev_space(top.id()) {
                Some(space) => space,
                None => {
                    let by_maps = self.spa().space_by_maps()?;
                    let shift = top.metaslab_shift();
                    let allocated = by_maps.get(&top.id()).map_or(0, |(_, n)| *n);
                    ((top.asize() >> shift) << shift, allocated)
                }
            };
            let log = logs.get(&top.id()).copied().unwrap_or_default();
            let (size, allocated) = match is_kept {
                true => log,
                false => (size.saturating_sub(log.0), allocated.saturating_sub(log.1)),
            };
            let deflated = |bytes: u64| (bytes >> 9).saturating_mul(top.deflate_ratio());
            let expandable = self.spa().expandable(top.guid());
            sum.expandable = sum.expandable.saturating_add(expandable);
            sum.size = sum.size.saturating_add(size);
            sum.allocated = sum.allocated.saturating_add(allocated);
            sum.usable = sum.usable.saturating_add(deflated(size));
            sum.used = sum.used.saturating_add(deflated(allocated));
        }
        Ok(sum)
    }

    /// Space that vdevs of a class reserve for logs. Only normal and special ones do.
    ///
    /// # Errors
    /// The space maps cannot be read.
    pub fn embedded_log(&self, class: VdevClass) -> Result<EmbeddedLog> {
        let space = match class {
            VdevClass::Normal => self.class_space("elog")?,
            VdevClass::Special => self.class_space("selog")?,
            VdevClass::Log | VdevClass::Dedup => ClassSpace::default(),
        };
        Ok(EmbeddedLog {
            size: space.size,
            allocated: space.allocated,
        })
    }

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

    /// Allocated bytes by the space maps of a read-only pool, without logs; if they cannot be read,
    /// by the datasets' charges.
    fn allocated_by_maps(&self) -> Result<u64> {
        let Ok(by_vdev) = self.spa().space_by_maps() else {
            return self.dsl().written();
        };
        let tops = self.spa().vdevs().tops();
        let data = tops.iter().filter(|t| !t.is_log());
        let allocated = data.filter_map(|t| by_vdev.get(&t.id()).map(|(_, n)| *n));
        Ok(allocated.fold(0, u64::saturating_add))
    }

    /// Bytes by which all its vdevs could grow, if they used all space of their devices.
    pub fn expandable(&self) -> u64 {
        let tops = self.spa().vdevs().tops();
        let bytes = tops.iter().map(|top| self.spa().expandable(top.guid()));
        bytes.fold(0, u64::saturating_add)
    }

    /// Fragmentation of the free space in percent; `None` if unknown or unreadable.
    pub fn fragmentation(&self) -> Option<u64> {
        self.spa().fragmentation().ok().flatten()
    }

    /// Discards all free space on the host: holes in files, discarded blocks on disks. Returns the
    /// number of bytes. Space is excluded from allocation step by step meanwhile.
    ///
    /// # Errors
    /// `Refused(ROFS)`; a device does not support it, or fails.
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

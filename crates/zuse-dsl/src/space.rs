//! Space accounting of directories: every change is propagated to the root; reservations absorb the
//! part that they cover.
//!
//! ```text
//!   used = HEAD + SNAP + CHILD + CHILD_RSRV + REFRSRV
//!   parent: CHILD = Σ used(child), CHILD_RSRV = Σ max(0, reserved(child) − used(child))
//! ```

use zuse_base::Result;
use zuse_format::dsl::{DIR_FLAG_USED_BREAKDOWN, DslDirPhys, UsedKind};

use crate::context::Ctx;
use crate::sizes::Sizes;

impl Ctx<'_> {
    /// Charges a change of one kind to a directory, and its visible part to the ancestors.
    pub fn charge(&self, dir: u64, kind: UsedKind, delta: Sizes) -> Result<()> {
        let mut parts = [0; 5];
        parts[kind as usize] = delta.used;
        self.charge_parts(dir, parts, delta.comp, delta.uncomp)
    }

    /// Moves bytes from one kind to another.
    pub fn transfer(&self, dir: u64, from: UsedKind, to: UsedKind, bytes: i64) -> Result<()> {
        let mut parts = [0; 5];
        parts[from as usize] = bytes.wrapping_neg();
        parts[to as usize] = bytes;
        self.charge_parts(dir, parts, 0, 0)
    }

    /// Charges changes of several kinds at once.
    pub fn charge_parts(
        &self,
        dir: u64,
        mut parts: [i64; 5],
        comp: i64,
        uncomp: i64,
    ) -> Result<()> {
        let mut at = dir;
        let mut steps = 0;
        // Ancestors see nothing of a change that a reservation absorbs.
        while at != 0 && (parts != [0; 5] || comp != 0 || uncomp != 0) {
            let total = parts.iter().fold(0i64, |sum, part| sum.wrapping_add(*part));
            let now = self.meta.dir(at)?;
            let sizes = Sizes {
                used: total,
                comp,
                uncomp,
            };
            let old = [now.used_bytes, now.compressed_bytes, now.uncompressed_bytes];
            let new = sizes.onto(old, || format!("directory {at}"))?;
            let mut breakdown = now.used_breakdown;
            // Directories from before version 13 never get a breakdown (04-dsl §2).
            if now.flags & DIR_FLAG_USED_BREAKDOWN != 0 {
                for (i, part) in parts.into_iter().enumerate() {
                    let what = || format!("used bytes of directory {at} in part {i}");
                    breakdown[i] = counted(breakdown[i], part, what)?;
                }
            }
            let (parent, seen, phys) = self.meta.edit_dir(self.tx, at, |d| {
                // The parent sees the larger of the two (04-dsl §4.3).
                let old = d.used_bytes.max(d.reserved);
                [d.used_bytes, d.compressed_bytes, d.uncompressed_bytes] = new;
                d.used_breakdown = breakdown;
                (
                    d.parent,
                    d.used_bytes.max(d.reserved).wrapping_sub(old) as i64,
                    *d,
                )
            })?;
            self.dsl.note_dir(at, &phys);
            parts = [0; 5];
            parts[UsedKind::Child as usize] = total;
            parts[UsedKind::ChildReservation as usize] = seen.wrapping_sub(total);
            at = parent;
            steps += 1;
            // Deeper than any name (04-dsl §1.2): parents in a circle, on a damaged disk.
            if steps > 64 {
                return Err(zuse_base::Error::missing(
                    "the MOS",
                    format!("directory {dir} has no way to the root"),
                ));
            }
        }
        Ok(())
    }

    /// Sets the reservation of a directory.
    pub fn set_reservation(&self, dir: u64, reserved: u64) -> Result<()> {
        let (parent, delta, phys) = self.meta.edit_dir(self.tx, dir, |d| {
            let old = d.used_bytes.max(d.reserved);
            d.reserved = reserved;
            (
                d.parent,
                d.used_bytes.max(reserved).wrapping_sub(old) as i64,
                *d,
            )
        })?;
        self.dsl.note_dir(dir, &phys);
        if parent != 0 {
            let mut parts = [0; 5];
            parts[UsedKind::ChildReservation as usize] = delta;
            self.charge_parts(parent, parts, 0, 0)?;
        }
        Ok(())
    }

    /// Sets the quota of a directory.
    pub fn set_quota(&self, dir: u64, quota: u64) -> Result<()> {
        let phys = self.meta.edit_dir(self.tx, dir, |d| {
            d.quota = quota;
            *d
        })?;
        self.dsl.note_dir(dir, &phys);
        Ok(())
    }

    /// Charges a changed refreservation: it covers the part that `unique` does not.
    pub fn set_refreservation(&self, dir: u64, unique: u64, old: u64, new: u64) -> Result<()> {
        let need = |reserved: u64| reserved.saturating_sub(unique) as i64;
        let delta = need(new).wrapping_sub(need(old));
        self.charge(
            dir,
            UsedKind::RefReservation,
            Sizes {
                used: delta,
                ..Sizes::default()
            },
        )
    }

    /// Changes the unique space of a dataset.
    pub(crate) fn add_unique(&self, object: u64, change: i64) -> Result<()> {
        let what = || format!("unique bytes of dataset {object}");
        let unique = counted(self.meta.ds(object)?.unique_bytes, change, what)?;
        self.meta
            .edit_ds(self.tx, object, |d| d.unique_bytes = unique)
    }

    /// Moves the accounting of blocks that wait to be freed: from `dir` to the pool's account.
    pub fn move_to_free(&self, dir: u64, kind: UsedKind, sizes: Sizes) -> Result<()> {
        self.charge(dir, kind, -sizes)?;
        // Pools older than version 26 have no `$FREE` (04-dsl §1.2).
        if self.meta.free_dir() != 0 {
            self.charge(self.meta.free_dir(), UsedKind::Head, sizes)?;
        }
        Ok(())
    }

    /// Blocks of the pool's account were freed.
    pub fn freed(&self, sizes: Sizes) -> Result<()> {
        if self.meta.free_dir() != 0 && !sizes.is_zero() {
            self.charge(self.meta.free_dir(), UsedKind::Head, -sizes)?;
        }
        Ok(())
    }
}

/// A count plus a change. Numbers on disk may be forged: a result below zero, or larger than any
/// pool, is refused before it is written.
pub(crate) fn counted(old: u64, change: i64, what: impl FnOnce() -> String) -> Result<u64> {
    old.checked_add_signed(change)
        .filter(|new| *new <= old || i64::try_from(*new).is_ok())
        .ok_or_else(|| {
            let why = format!("the {} are {old} and change by {change}", what());
            zuse_base::Error::corrupt("the MOS", why)
        })
}

/// Bytes that may still be charged to the last of `chain` (root first); `root_limit` is what the
/// pool can hold.
pub(crate) fn available(chain: &[DslDirPhys], root_limit: u64) -> u64 {
    let mut parent: Option<u64> = None;
    for dir in chain {
        let own = if dir.quota == 0 { u64::MAX } else { dir.quota };
        let quota = if parent.is_none() {
            own.min(root_limit)
        } else {
            own
        };
        let used = dir.used_bytes;
        let mut above = parent.unwrap_or(u64::MAX);
        // The parent counts the whole reservation as used. Its rest belongs to this directory.
        if parent.is_some() && dir.reserved > used {
            above = above.saturating_add(dir.reserved - used);
        }
        // One txg may pass a quota by what it holds (04-dsl §4.6).
        parent = Some(if used > quota {
            0
        } else {
            above.min(quota - used)
        });
    }
    parent.unwrap_or(0)
}

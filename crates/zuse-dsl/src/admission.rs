//! Whether a change of a dataset may begin: space, quota, reference quota.
//!
//! ```text
//!   refused   used on disk ≥ quota, or nothing is in flight and the change alone is too large
//!   waits     used + in flight + estimate > limit: the sync of what is in flight shows what really remains
//!   admitted  else
//! ```
//! Why the pool's own limit is strict: admitted changes must fit. Otherwise the sync runs out of
//! space in the middle of a txg. Changes that free space skip the quotas and may use half of the
//! slop space, so that a full pool can be emptied.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, Error, Result, Txg};
use zuse_dmu::Tx;

use crate::context::Dsl;
use crate::dataset::Dataset;

/// The space that a change may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate {
    /// Logical bytes of data and metadata that may be written.
    pub write_bytes: u64,
    /// The change frees more than it writes, like remove or truncate.
    pub frees: bool,
}

/// How far into the reserve a change may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reserve {
    /// Ordinary writers.
    None,
    /// Properties, renames: half of the slop.
    Half,
    /// Destroys and removals: three quarters.
    Most,
}

impl Reserve {
    fn kept(self, slop: u64) -> u64 {
        match self {
            Self::None => slop,
            Self::Half => slop / 2,
            Self::Most => slop / 4,
        }
    }
}

/// Metadata that the first change of a dataset in a txg always rewrites: the path from a dnode to
/// the objset block, and the MOS. Later changes of the same txg share it.
const TXG_OVERHEAD: u64 = 512 * 1024;

/// Metadata that each change rewrites beyond its own estimate.
const TX_OVERHEAD: u64 = 1024;

enum Verdict {
    Fine,
    Wait,
    /// Freed space is not allocatable yet: it comes back within a few txgs.
    Regain,
    No(Errno, &'static str),
}

impl Dsl {
    /// The most that the root directory may be charged, in bytes.
    pub(crate) fn root_limit(&self, reserve: Reserve) -> Result<u64> {
        let space = self.space();
        Ok(space.capacity.saturating_sub(reserve.kept(space.slop)))
    }

    /// Refuses a sync task that the pool has no room for.
    pub(crate) fn check_room(&self, reserve: Reserve, bytes: u64) -> Result<()> {
        let meta = self.meta()?;
        let used = meta
            .dir(meta.root_dir)?
            .used_bytes
            .max(self.space().allocated);
        // Three times the estimate, as OpenZFS checks its tasks (04-dsl §6).
        if used.saturating_add(bytes.saturating_mul(3)) > self.root_limit(reserve)? {
            return Err(Error::refused(Errno::NOSPC, "the pool has no space left"));
        }
        Ok(())
    }
}

impl Dataset {
    /// Begins a change. May wait for a txg to sync: hold no other transaction and no lock that
    /// syncing needs.
    ///
    /// # Errors
    /// `Refused(NOSPC)`, `Refused(DQUOT)`, `Refused(ROFS)` for snapshots and read-only pools.
    pub fn begin(self: &Arc<Self>, estimate: Estimate) -> Result<Tx> {
        let spa = self.dsl.spa()?;
        if self.is_snapshot() || !spa.is_writable() {
            return Err(Error::refused(Errno::ROFS, "the dataset is read-only"));
        }
        let copies = self
            .open_objset()
            .map_or(1, |os| u64::from(os.settings().copies));
        let bytes = estimate
            .write_bytes
            .saturating_mul(copies)
            .saturating_add(TX_OVERHEAD);
        // Freed space is allocatable after a few txgs, so a few rounds are enough.
        let mut limit = 4;
        loop {
            match self.verdict(bytes, estimate.frees)? {
                Verdict::Fine => break,
                Verdict::No(errno, why) => return Err(Error::refused(errno, why)),
                Verdict::Regain if limit == 0 => {
                    return Err(Error::refused(Errno::NOSPC, "the pool has no space left"));
                }
                Verdict::Regain => {
                    limit -= 1;
                    spa.note_frees();
                    spa.wait_synced(spa.open_txg())?;
                }
                Verdict::Wait => spa.wait_synced(spa.open_txg())?,
            }
        }
        let tx = spa.begin(bytes)?;
        let slot = tx.txg().slot::<4>();
        let first = self.in_flight[slot].fetch_add(bytes, Relaxed) == 0;
        let bytes = bytes + if first { TXG_OVERHEAD } else { 0 };
        for dir in self.chain.read().iter() {
            dir.in_flight[slot].fetch_add(bytes, Relaxed);
        }
        self.note_dirty(tx.txg());
        Ok(tx)
    }

    fn verdict(&self, bytes: u64, frees: bool) -> Result<Verdict> {
        let chain = self.chain.read();
        let flying = |cells: &[std::sync::atomic::AtomicU64; 4]| {
            cells.iter().map(|c| c.load(Relaxed)).sum::<u64>()
        };
        if let Some(root) = chain.last() {
            let space = self.dsl.space();
            let reserve = if frees { Reserve::Most } else { Reserve::None };
            let limit = space.capacity.saturating_sub(reserve.kept(space.slop));
            // Freed space can be allocated only after two more txgs; the allocator still counts it
            // as used.
            let used = root.used.load(Relaxed).max(space.allocated);
            let in_flight = flying(&root.in_flight);
            if used >= limit {
                return Ok(if in_flight > 0 {
                    Verdict::Wait
                } else if root.used.load(Relaxed) < limit {
                    Verdict::Regain
                } else {
                    Verdict::No(Errno::NOSPC, "the pool has no space left")
                });
            }
            if used.saturating_add(in_flight).saturating_add(bytes) > limit {
                if in_flight > 0 {
                    return Ok(Verdict::Wait);
                }
                return Ok(Verdict::No(Errno::NOSPC, "the pool has no space left"));
            }
        }
        if frees {
            return Ok(Verdict::Fine);
        }
        for dir in chain.iter() {
            let quota = dir.quota.load(Relaxed);
            if quota == 0 {
                continue;
            }
            let (used, in_flight) = (dir.used.load(Relaxed), flying(&dir.in_flight));
            if used >= quota {
                return Ok(if in_flight > 0 {
                    Verdict::Wait
                } else {
                    Verdict::No(Errno::DQUOT, "the quota is reached")
                });
            }
            // OpenZFS has the same tolerance (04-dsl §4.6).
            if in_flight > 0 && used.saturating_add(in_flight) >= quota.saturating_add(quota / 32) {
                return Ok(Verdict::Wait);
            }
        }
        let refquota = self.refquota.load(Relaxed);
        if refquota != 0 {
            let (used, in_flight) = (self.referenced.load(Relaxed), flying(&self.in_flight));
            if used.saturating_add(in_flight) >= refquota {
                return Ok(if in_flight > 0 {
                    Verdict::Wait
                } else if used >= refquota {
                    Verdict::No(Errno::DQUOT, "the reference quota is reached")
                } else {
                    Verdict::Fine
                });
            }
        }
        Ok(Verdict::Fine)
    }

    pub(crate) fn land(&self, txg: Txg) {
        self.in_flight[txg.slot::<4>()].store(0, Relaxed);
        if let Some(log) = self.log.get() {
            log.landed(txg);
        }
    }
}

//! Reading the rings of all leaves, and the choice of the uberblock to open.

use zuse_base::{Errno, Error, Result};
use zuse_format::uberblock::Uberblock;

use super::Vdevs;
use crate::config::PoolConfig;
use crate::geometry::LABELS;
use crate::label::Labels;
use crate::ring::{self, RingEntry};

/// The uberblock to open, and its context.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The best one within the limit.
    pub uberblock: Uberblock,
    /// Guid of a leaf that holds it.
    pub leaf: u64,
    /// The newest uberblock of all. The next txg is above its txg, also after a rewind.
    pub newest: Uberblock,
    /// The label config of that leaf with the greatest txg not above the uberblock's.
    pub label: Option<PoolConfig>,
}

impl Vdevs {
    /// Every valid uberblock of every readable leaf. Unreadable rings are skipped.
    pub fn rings(&self) -> Vec<RingEntry> {
        let mut jobs = Vec::new();
        for top in self.tops().iter() {
            for leaf in top.leaves() {
                if let Some(device) = leaf.device() {
                    jobs.push((leaf.guid(), top.ashift(), device));
                }
            }
        }
        let threads = jobs.len().min(super::commit::MAX_THREADS);
        let found = zuse_base::pool::run_all_borrowed(threads, jobs, |(guid, ashift, device)| {
            let mut entries = Vec::new();
            for label in 0..LABELS {
                entries.extend(ring::read_ring(&*device, label, ashift).unwrap_or_default());
            }
            entries.iter_mut().for_each(|e| e.leaf = guid);
            entries
        });
        found.into_iter().flatten().collect()
    }

    /// The best uberblock with a txg up to the limit.
    ///
    /// # Errors
    /// `Refused` (`NXIO`) if there is none. Also if a rewind to it would cross the progress of a
    /// raidz expansion, because it does not know the moved sectors.
    pub fn best_uberblock(&self, limit: Option<u64>) -> Result<Choice> {
        let entries = self.rings();
        let none =
            |what: &str| Error::refused(Errno::NXIO, format!("pool {}: {what}", self.pool_guid()));
        let newest = ring::best(&entries, u64::MAX)
            .ok_or_else(|| none("no device holds a whole uberblock"))?;
        let best = ring::best(&entries, limit.unwrap_or(u64::MAX))
            .ok_or_else(|| none("no device holds an uberblock that old"))?;
        if best.uberblock.raidz_reflow != newest.uberblock.raidz_reflow {
            return Err(none(
                "it cannot go back behind the progress of a raidz expansion",
            ));
        }
        // From the leaf that has it: another one may have missed that txg (01-pool §3.3).
        let label = self
            .leaf(best.leaf)
            .and_then(|l| l.device())
            .and_then(|device| {
                Labels::read(&*device)
                    .any_up_to(best.uberblock.txg)
                    .cloned()
            });
        Ok(Choice {
            uberblock: best.uberblock,
            leaf: best.leaf,
            newest: newest.uberblock,
            label,
        })
    }
}

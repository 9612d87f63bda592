//! The device side of a commit: flush, labels, uberblock.
//!
//! To commit txg T the pool calls, in this order:
//!
//! 1. [`Vdevs::flush_written`]: every block of T is durable before anything names it;
//! 2. if the configuration changed, [`Vdevs::commit_labels`] with the even pair;
//! 3. [`Vdevs::commit_uberblock`];
//! 4. if the configuration changed, [`Vdevs::commit_labels`] with the odd pair.
//!
//! Each call ends with a flush of what it wrote. After a crash before step 3 the odd labels match
//! the old uberblock; after it the even ones match the new one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, Error, Result, pool::run_all_borrowed};
use zuse_format::label::CONFIG_AT;
use zuse_format::uberblock::Uberblock;

use super::{Node, Top, Vdevs};
use crate::config::{PoolConfig, VdevKind};
use crate::geometry::LABELS;
use crate::label::{self, LabelPair};
use crate::leaf::Leaf;
use crate::ring;

/// Most devices that are written or flushed at the same time.
pub(super) const MAX_THREADS: usize = 16;

/// Top-level vdevs that get the uberblock when the configuration did not change.
const SYNC_MIN_VDEVS: usize = 3;

/// Which top-level vdevs get an uberblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UberblockTargets {
    /// All: the configuration changed.
    All,
    /// Three data vdevs, from this (random) position on.
    From(u32),
}

impl Vdevs {
    /// Flushes every leaf written since its last flush. Call [`Vdevs::take_missed`] after it, not
    /// before: a leaf that missed a write cannot vouch for its siblings. Other threads may write
    /// and flush log blocks meanwhile.
    ///
    /// # Errors
    /// `Device` if some written block may not be durable: too many leaves of a top-level vdev
    /// failed, missed a write, or are missing. Log vdevs don't count.
    pub fn flush_written(&self) -> Result<()> {
        let tops = self.tops();
        let written: Vec<_> = tops
            .iter()
            .map(|t| (t, t.leaves()))
            .filter(|(_, l)| l.iter().any(|l| l.is_unflushed()))
            .collect();
        let jobs = written
            .iter()
            .flat_map(|(_, leaves)| leaves)
            .filter(|l| l.is_unflushed())
            .collect();
        let failed: Vec<(u64, Error)> = spread(jobs, |leaf: &Arc<Leaf>| {
            Some((leaf.guid(), leaf.flush().err()?))
        })
        .into_iter()
        .flatten()
        .collect();
        // Checked after all flushes: a sibling that has everything makes up for one that failed.
        // Blocks on a log vdev are in this txg too, or were made durable by a flush of their own.
        for (top, _) in written.iter().filter(|(top, _)| !top.is_log()) {
            let arrived = |leaf: &Leaf| {
                !leaf.has_missed() && failed.iter().all(|(guid, _)| *guid != leaf.guid())
            };
            if !top.node.is_durable(&arrived) {
                let of_top = |(guid, _): &&(u64, Error)| top.config().find(*guid).is_some();
                let lost =
                    || Error::device(top.name(), Errno::IO, "blocks written to it may be lost");
                return Err(failed
                    .iter()
                    .find(of_top)
                    .map_or_else(lost, |(_, error)| error.clone()));
            }
        }
        Ok(())
    }

    /// Writes one pair of labels on every leaf of the given top-level vdevs (`None` = all) and
    /// flushes them. `config` is the pool's, with the root as tree and the txg of the commit.
    ///
    /// # Errors
    /// `Device` if no leaf of some top-level vdev (other than logs) has good labels; `ROFS`.
    pub fn commit_labels(
        &self,
        pair: LabelPair,
        config: &PoolConfig,
        tops: Option<&[u32]>,
    ) -> Result<()> {
        self.refuse_if_read_only()?;
        let all = self.tops();
        let mut jobs = Vec::new();
        let chosen =
            |top: &&Arc<Top>| top.is_concrete() && tops.is_none_or(|t| t.contains(&top.id()));
        for top in all.iter().filter(chosen) {
            let Some(top_config) = config.vdev_tree.children.get(top.id() as usize) else {
                continue;
            };
            let leaves = top.leaves();
            for leaf_config in top_config.devices() {
                // A missing leaf keeps its old labels: their txg shows that they are outdated.
                let Some(leaf) = leaves
                    .iter()
                    .find(|l| l.guid() == leaf_config.guid && l.is_usable())
                else {
                    continue;
                };
                // All are packed before the first is written: one that is too long changes nothing.
                let block = label::pack_config(&config.to_label_nvlist(top_config, leaf_config))?;
                jobs.push((top.id(), leaf.clone(), block));
            }
        }
        let results = spread(jobs, |(id, leaf, mut block)| {
            (id, write_labels(&leaf, pair, &mut block))
        });
        // Log vdevs may fail (01-pool §4.1).
        for top in all.iter().filter(chosen).filter(|t| !t.is_log()) {
            let mut of_top = results.iter().filter(|(id, _)| *id == top.id()).peekable();
            if of_top.peek().is_none() {
                return Err(Error::device(
                    top.name(),
                    Errno::NXIO,
                    "none of its devices can take a label",
                ));
            }
            if of_top.clone().all(|(_, r)| r.is_err())
                && let Some((_, Err(error))) = of_top.next()
            {
                return Err(error.clone());
            }
        }
        Ok(())
    }

    /// Writes an uberblock to its slot in all labels of the leaves of the chosen vdevs, and
    /// flushes. With `multihost` the last slot is left for heartbeats.
    ///
    /// # Errors
    /// `Device` if it reached no leaf of a vdev that was in use before; `ROFS`.
    pub fn commit_uberblock(
        &self,
        uberblock: &Uberblock,
        multihost: bool,
        targets: UberblockTargets,
    ) -> Result<()> {
        self.refuse_if_read_only()?;
        let chosen = self.uberblock_targets(targets);
        let jobs: Vec<_> = chosen
            .iter()
            .flat_map(|t| t.leaves().into_iter().map(move |l| (t, l)))
            .filter(|(_, leaf)| leaf.is_usable())
            .collect();
        let results = spread(jobs, |(top, leaf)| {
            let slot = ring::commit_slot(uberblock, top.ashift(), multihost);
            (
                top.metaslab_array() != 0,
                write_uberblock(&leaf, top.ashift(), slot, uberblock),
            )
        });
        // One leaf is enough: an import reads every ring and takes the newest uberblock. A vdev
        // that no older uberblock names does not count, because an import may not find it.
        if results
            .iter()
            .any(|(in_use, result)| *in_use && result.is_ok())
        {
            return Ok(());
        }
        let error = results.into_iter().find_map(|(_, result)| result.err());
        let none = || {
            Error::device(
                format!("pool {}", self.pool_guid()),
                Errno::NXIO,
                "no device can take the uberblock",
            )
        };
        Err(error.unwrap_or_else(none))
    }

    fn uberblock_targets(&self, targets: UberblockTargets) -> Vec<Arc<Top>> {
        let tops = self.tops();
        let start = match targets {
            UberblockTargets::All => {
                return tops.iter().filter(|t| t.is_concrete()).cloned().collect();
            }
            UberblockTargets::From(start) => start as usize % tops.len().max(1),
        };
        let (before, after) = tops.split_at(start);
        // Which vdevs count: 01-pool §4.1, step 3.
        after
            .iter()
            .chain(before)
            .filter(|t| {
                t.is_concrete()
                    && !t.is_log()
                    && t.metaslab_array() != 0
                    && t.health().state.is_usable()
            })
            .take(SYNC_MIN_VDEVS)
            .cloned()
            .collect()
    }
}

impl Node {
    /// Whether everything written here can be read back after a power cut. `arrived` says whether a
    /// leaf has everything written to it.
    pub(super) fn is_durable(&self, arrived: &dyn Fn(&Leaf) -> bool) -> bool {
        if let Some(leaf) = &self.leaf {
            // A failed flush counts as a miss. Writes of other threads since the flush (a resilver,
            // an initialization) belong to the next one.
            return leaf.is_usable() && arrived(leaf);
        }
        // The spare may lack blocks of this very txg.
        if matches!(self.config.kind, VdevKind::DraidSpare { .. }) && self.lacks.load(Relaxed) {
            return false;
        }
        let lost = self
            .children
            .iter()
            .filter(|c| !c.is_durable(arrived))
            .count();
        lost <= self.config.kind.spare_children(self.children.len())
    }
}

/// Applies `f` to each item, at most [`MAX_THREADS`] at a time; one item needs no thread.
pub(super) fn spread<T: Send, R: Send>(items: Vec<T>, f: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
    match items.len() {
        0 | 1 => items.into_iter().map(f).collect(),
        n => run_all_borrowed(n.min(MAX_THREADS), items, f),
    }
}

fn device_size(leaf: &Leaf) -> Result<u64> {
    let gone = || Error::device(leaf.name(), Errno::NXIO, "the device is missing");
    Ok(leaf.device().ok_or_else(gone)?.size())
}

/// One label of the pair is enough for a leaf to count.
fn write_labels(leaf: &Leaf, pair: LabelPair, block: &mut [u8]) -> Result<()> {
    let size = device_size(leaf)?;
    let mut result = Ok(());
    let mut good = 0;
    // A bad sector below one label must not keep the other one old.
    for label in pair.labels() {
        let write = &mut |at: u64, bytes: &[u8]| leaf.write_raw(at, bytes);
        match label::write_sealed(size, label, CONFIG_AT, block, write) {
            Ok(()) => good += 1,
            Err(error) => result = Err(error),
        }
    }
    // Each step of a commit is durable before the next one begins.
    if good > 0 { leaf.flush() } else { result }
}

fn write_slot_of(
    leaf: &Leaf,
    label: usize,
    slot: u64,
    ashift: u8,
    uberblock: &Uberblock,
) -> Result<()> {
    let write = &mut |at: u64, bytes: &[u8]| leaf.write_raw(at, bytes);
    ring::write_slot(device_size(leaf)?, label, slot, ashift, uberblock, write)
}

fn write_uberblock(leaf: &Leaf, ashift: u8, slot: u64, uberblock: &Uberblock) -> Result<()> {
    let mut result = Ok(());
    let mut good = 0;
    // All four are tried: each copy that arrives makes the txg safer.
    for label in 0..LABELS {
        match write_slot_of(leaf, label, slot, ashift, uberblock) {
            Ok(()) => good += 1,
            Err(error) => result = Err(error),
        }
    }
    if good > 0 { leaf.flush() } else { result }
}

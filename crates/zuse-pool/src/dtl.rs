//! The dirty time log of a device: the txgs that it missed (chapter 01b §7 of the format notes).
//!
//! A leaf that failed a write while its siblings succeeded lacks the blocks of that txg. The txgs
//! are kept in a space map in the MOS, with txgs for offsets; the leaf's configuration has its
//! object number. A resilver copies the blocks that were born in those txgs.
//!
//! - A missing leaf, or one that missed a write, gets the txg into its log *within* that txg, so a
//!   crash cannot lose it. The loop that writes the MOS checks again in every pass.
//! - Writes that were missed only in the last flush of a txg are recorded in the next txg, which
//!   then follows at once.
//! - A new device lacks everything up to its own txg and those in progress: [4, txg + 3).
//! - Txgs are removed only by a complete scan ([`Pool::dtl_scan_done`]). An empty log is freed.

use std::collections::{BTreeMap, BTreeSet};
use zuse_base::sync::Mutex;

use zuse_base::range_tree::{ByPlace, Ranges};
use zuse_base::{Error, ObjectId, Result, Span, Txg};
use zuse_dmu::DnodeSpec;
use zuse_format::object_type;

use crate::create::FIRST_TXG;
use crate::{Pool, SyncCtx};

mod needed;

/// Longest log that is accepted, in words.
const MAX_WORDS: u64 = 1 << 20;
/// Longest run of an entry of one word.
const MAX_RUN: u64 = 1 << 15;
/// A word with these top bits says when the next ones were written.
const DEBUG: u64 = 2 << 62;
/// Txgs in progress at the same time: open, quiescing, syncing.
const UNDER_WAY: u64 = 3;
const HISTOGRAM: &str = "com.delphix:spacemap_histogram";

/// The logs of a pool's leaves, by guid.
#[derive(Default)]
pub(crate) struct Dtls(Mutex<State>);

#[derive(Default)]
struct State {
    leaves: BTreeMap<u64, Ranges<ByPlace>>,
    /// Missed after the MOS of that txg was written.
    late: BTreeMap<u64, Txg>,
    /// Logs that differ from disk.
    changed: BTreeSet<u64>,
}

impl Dtls {
    /// Notes that a leaf missed writes of a txg that is on disk, or about to be. Returns whether
    /// that is new to its log.
    pub(crate) fn note_late(&self, guid: u64, txg: Txg) -> bool {
        let mut state = self.0.lock();
        let known = state
            .leaves
            .get(&guid)
            .is_some_and(|r| r.contains(Span::new(txg.0, 1)));
        // A leaf that already lacks this txg needs no other entry, and the labels need not change.
        if !known {
            state.late.insert(guid, txg);
        }
        !known
    }

    /// A leaf added in a txg lacks everything written before, and writes of other threads through
    /// the old tree.
    pub(crate) fn lack_all(&self, guid: u64, txg: Txg) {
        // Open txgs may have written to the siblings already.
        let end = txg.0 + UNDER_WAY;
        let mut state = self.0.lock();
        let ranges = state.leaves.entry(guid).or_default();
        ranges.add_missing(Span::new(FIRST_TXG.0, end.saturating_sub(FIRST_TXG.0)));
        state.changed.insert(guid);
    }

    /// The guid of a leaf changes.
    pub(crate) fn rename(&self, old: u64, new: u64) {
        // All three under one lock: a concurrent sync sees the old guid or the new one.
        let state = &mut *self.0.lock();
        if let Some(ranges) = state.leaves.remove(&old) {
            state.leaves.insert(new, ranges);
        }
        if let Some(txg) = state.late.remove(&old) {
            state.late.insert(new, txg);
        }
        if state.changed.remove(&old) {
            state.changed.insert(new);
        }
    }

    /// A leaf has left the pool.
    pub(crate) fn forget(&self, guid: u64) {
        let state = &mut *self.0.lock();
        state.leaves.remove(&guid);
        state.late.remove(&guid);
        state.changed.remove(&guid);
    }

    /// The txgs that a leaf lacks, in order.
    fn spans(&self, guid: u64) -> Vec<Span> {
        let state = self.0.lock();
        let ranges = state.leaves.get(&guid);
        ranges.map_or_else(Vec::new, |r| r.iter().collect())
    }
}

impl Pool {
    /// Reads the logs of all leaves.
    pub(crate) fn load_dtls(&self) -> Result<()> {
        let tree = self.config.lock().vdev_tree.clone();
        let mut found = Vec::new();
        tree.visit(&mut |node| {
            if let Some(object) = node.dtl.filter(|object| *object != 0) {
                found.push((node.guid, ObjectId(object)));
            }
        });
        for (guid, object) in found {
            let ranges = self.read_dtl(object)?;
            self.dtls.0.lock().leaves.insert(guid, ranges);
            // Before the first read of data that only a sibling has.
            self.set_leaf_missing(guid);
        }
        Ok(())
    }

    /// Passes the logs to the leaves as soon as the MOS can be read, for reading and for writing.
    /// Leaves whose log is empty are not outdated, as those without a log. A leaf with an
    /// unreadable log may lack any block.
    pub(crate) fn set_all_leaves_missing(&self) {
        let tree = self.config.lock().vdev_tree.clone();
        tree.visit(&mut |node| {
            let Some(object) = node.dtl.filter(|object| *object != 0) else {
                return;
            };
            // A label may call the device outdated although a resilver has filled it since.
            if let Ok(txgs) = self.dirty_times(ObjectId(object))
                && let Some(leaf) = self.vdevs.leaf(node.guid)
            {
                leaf.set_missing(&txgs);
            }
        });
    }

    /// The txgs in a dirty time log, in order.
    ///
    /// # Errors
    /// The object cannot be read, or is none.
    pub fn dirty_times(&self, object: ObjectId) -> Result<Vec<Span>> {
        Ok(self.read_dtl(object)?.iter().collect())
    }

    fn read_dtl(&self, object: ObjectId) -> Result<Ranges<ByPlace>> {
        let place = format!("dirty time log, object {object}");
        let dnode = self.mos().dnode(object)?;
        let length = dnode.with_bonus(|b| {
            let word = b.get(8..16).and_then(|w| w.first_chunk::<8>());
            word.map_or(0, |w| u64::from_le_bytes(*w))
        });
        // Checked, because the length comes from disk and is allocated below.
        if dnode.object_type() != object_type::SPACE_MAP || length / 8 > MAX_WORDS {
            return Err(Error::corrupt(place, "its header makes no sense"));
        }
        let mut bytes = vec![0; length as usize / 8 * 8];
        dnode.read_at(0, &mut bytes)?;
        let mut ranges = Ranges::new();
        let mut words = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| u64::from_le_bytes(*w));
        while let Some(word) = words.next() {
            let (start, run, free) = match word >> 62 {
                // Debug entries: who wrote the following entries, and when.
                2 => continue,
                3 => {
                    // A cut entry counts from txg 0: to lack too much only costs a longer resilver.
                    let second = words.next().unwrap_or(0);
                    let start = second & (u64::MAX >> 1);
                    (start, (word >> 24 & 0xf_ffff_ffff) + 1, second >> 63 == 1)
                }
                _ => (word >> 16, (word & 0x7fff) + 1, word >> 15 & 1 == 1),
            };
            let span = Span::new(start, run);
            // A span that wraps around would break the range tree.
            if start.checked_add(run).is_none() {
                return Err(Error::corrupt(place, format!("the txgs {start}+{run}")));
            }
            if free {
                ranges.clear_span(span);
            } else {
                ranges.add_missing(span);
            }
        }
        Ok(ranges)
    }

    /// Adds this txg to the logs of leaves that do not get all of it.
    pub(crate) fn sync_dtls(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        let mut missed: Vec<(u64, Txg)> = std::mem::take(&mut self.dtls.0.lock().late)
            .into_iter()
            .collect();
        for top in self.vdevs.tops().iter().filter(|t| t.is_concrete()) {
            // A single leaf that fails suspends the pool: there is no sibling from which blocks
            // could be copied later.
            let leaves = top.leaves();
            let lacking = leaves.iter().filter(|l| !l.is_usable() || l.has_missed());
            // Its siblings have the blocks that this one missed.
            if leaves.len() > 1 {
                missed.extend(lacking.map(|l| (l.guid(), ctx.txg)));
            }
        }
        let mut state = self.dtls.0.lock();
        for (guid, txg) in missed {
            let span = Span::new(txg.0, 1);
            if state.leaves.entry(guid).or_default().add_missing(span) > 0 {
                state.changed.insert(guid);
            }
        }
        // Taken before they are written: writes missed meanwhile cause another pass.
        let changed = std::mem::take(&mut state.changed);
        drop(state);
        for guid in changed {
            // It may have left the pool in the same txg.
            if self.config.lock().vdev_tree.find(guid).is_none() {
                self.dtls.forget(guid);
                continue;
            }
            match self.dtls.spans(guid).as_slice() {
                [] => self.free_dtl(ctx, guid)?,
                spans => self.write_dtl(ctx, guid, spans)?,
            }
            self.set_leaf_missing(guid);
        }
        Ok(())
    }

    /// Passes the content of its log to a leaf.
    pub(crate) fn set_leaf_missing(&self, guid: u64) {
        let spans = self.dtls.spans(guid);
        self.vdevs.set_outdated(guid, !spans.is_empty());
        if let Some(leaf) = self.vdevs.leaf(guid) {
            leaf.set_missing(&spans);
        }
    }

    /// A leaf lacks nothing any more, or has left: its log is freed.
    pub(crate) fn free_dtl(&self, ctx: &SyncCtx<'_>, guid: u64) -> Result<()> {
        let mut config = self.config.lock();
        let node = config.vdev_tree.find_mut(guid);
        // Removed from the tree first: no label may name a freed object.
        let object = node.and_then(|n| n.dtl.take());
        // Released before the MOS is changed.
        drop(config);
        self.free_dtl_object(ctx, object)?;
        if object.is_some() {
            self.config_changed();
        }
        Ok(())
    }

    /// Frees the object of a log.
    pub(crate) fn free_dtl_object(&self, ctx: &SyncCtx<'_>, object: Option<u64>) -> Result<()> {
        let Some(object) = object.filter(|object| *object != 0).map(ObjectId) else {
            return Ok(());
        };
        // The feature counts the maps with room for a histogram.
        let long = self.mos().dnode(object)?.with_bonus(<[u8]>::len) > 24;
        if long && self.features.is_enabled(HISTOGRAM) {
            self.features.add(ctx, HISTOGRAM, -1)?;
        }
        self.mos().free(ctx.tx, object)
    }

    fn write_dtl(&self, ctx: &SyncCtx<'_>, guid: u64, ranges: &[Span]) -> Result<()> {
        let known = self
            .config
            .lock()
            .vdev_tree
            .find(guid)
            .and_then(|n| n.dtl)
            .filter(|object| *object != 0);
        let histogram = self.features.is_enabled(HISTOGRAM);
        let object = match known {
            Some(object) => ObjectId(object),
            None => {
                let bonus = if histogram { 320 } else { 24 };
                let dnode = self.mos().allocate(
                    ctx.tx,
                    &DnodeSpec::new(object_type::SPACE_MAP)
                        .block_size(4096)
                        .bonus(object_type::SPACE_MAP_HEADER, bonus),
                )?;
                if histogram {
                    self.features.add(ctx, HISTOGRAM, 1)?;
                }
                let object = dnode.object();
                if let Some(node) = self.config.lock().vdev_tree.find_mut(guid) {
                    // In the configuration of this very txg, or a crash would lose the log.
                    node.dtl = Some(object.0);
                }
                self.config_changed();
                object
            }
        };
        let words = words_of(ranges, ctx);
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let length = bytes.len() as u64;
        // Old entries after the new ones are ignored, because the header has the length.
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        let dnode = self.mos().dnode(object)?;
        dnode.write_at(ctx.tx, 0, &bytes)?;
        let txgs: u64 = ranges.iter().map(|r| r.size).sum();
        let mut header = dnode.with_bonus(<[u8]>::to_vec);
        for (at, word) in [object.0, length, txgs].into_iter().enumerate() {
            if let Some(place) = header.get_mut(at * 8..at * 8 + 8) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        dnode.set_bonus(ctx.tx, &header)
    }
}

/// A space map's words for some txgs.
fn words_of(ranges: &[Span], ctx: &SyncCtx<'_>) -> Vec<u64> {
    let stamp = DEBUG | u64::from(ctx.pass & 0x3ff) << 50 | (ctx.txg.0 & ((1 << 50) - 1));
    let mut words = vec![stamp];
    for range in ranges {
        let (mut start, mut left) = (range.start, range.size);
        while left > 0 {
            // One word holds no longer run (chapter 04).
            let run = left.min(MAX_RUN);
            words.push(start << 16 | (run - 1));
            start += run;
            left -= run;
        }
    }
    words
}

//! The txgs that the vdevs of a pool lack, and the devices that the pool needs.
//!
//! A leaf lacks the txgs of its log, and everything while it is missing. A mirror lacks the txgs
//! that all its children lack. A vdev with parity lacks those that more children lack than it has
//! parity. A device is needed if its top-level vdev would lack something without it.

use zuse_base::{Result, Span, Txg};
use zuse_vdev::{VdevConfig, VdevKind};

use crate::{Pool, SyncCtx};

impl Pool {
    /// Whether the pool would lack data without a device, or without a whole interior vdev.
    pub fn is_needed(&self, guid: u64) -> bool {
        let tree = self.config.lock().vdev_tree.clone();
        let top = tree.children.iter().find(|top| top.find(guid).is_some());
        top.is_some_and(|top| !self.lacked(top, Some(guid)).is_empty())
    }

    /// The txgs that a vdev lacks, if the vdev with the guid `gone` lacks everything.
    fn lacked(&self, node: &VdevConfig, gone: Option<u64>) -> Vec<Span> {
        let all = || vec![Span::new(0, u64::MAX)];
        if gone == Some(node.guid) {
            return all();
        }
        if node.kind.is_leaf() {
            return match self.vdevs.is_usable(node.guid) {
                true => self.dtls.spans(node.guid),
                false => all(),
            };
        }
        let spare = match &node.kind {
            // They have no devices: a removed vdev's blocks are on other vdevs.
            VdevKind::Hole | VdevKind::Indirect => return Vec::new(),
            VdevKind::Missing => return all(),
            kind => kind.spare_children(node.children.len()),
        };
        let children = node.children.iter();
        more_than(spare, children.map(|c| self.lacked(c, gone)).collect())
    }

    /// The range of a resilver, as two exclusive txgs. Blocks born between them are missing on some
    /// present leaf that does not wait for the next resilver. `None`: no leaf lacks anything.
    pub fn resilver_range(&self) -> Option<(Txg, Txg)> {
        self.lacked_by(|node| !node.resilver_defer)
    }

    /// As [`Self::resilver_range`], with what waits for the next resilver.
    pub fn lacking_range(&self) -> Option<(Txg, Txg)> {
        self.lacked_by(|_| true)
    }

    fn lacked_by(&self, counts: impl Fn(&VdevConfig) -> bool) -> Option<(Txg, Txg)> {
        let tree = self.config.lock().vdev_tree.clone();
        let mut range: Option<(u64, u64)> = None;
        tree.visit(&mut |node| {
            if !node.kind.is_leaf() || !counts(node) || !self.vdevs.is_usable(node.guid) {
                return;
            }
            for span in self.dtls.spans(node.guid) {
                let (min, max) = (span.start.saturating_sub(1), span.start + span.size);
                let (low, high) = range.unwrap_or((min, max));
                range = Some((low.min(min), high.max(max)));
            }
        });
        range.map(|(min, max)| (Txg(min), Txg(max)))
    }

    /// Guids of present leaves that lack something.
    pub fn lacking(&self) -> Vec<u64> {
        let state = self.dtls.0.lock();
        let some = state.leaves.iter().filter(|(_, ranges)| !ranges.is_empty());
        let guids: Vec<u64> = some.map(|(guid, _)| *guid).collect();
        drop(state);
        let usable = guids.into_iter().filter(|guid| self.vdevs.is_usable(*guid));
        usable.collect()
    }

    /// Whether a leaf is present and lacks nothing.
    pub(crate) fn is_complete(&self, guid: u64) -> bool {
        self.vdevs.is_usable(guid)
            && self.dtls.spans(guid).is_empty()
            && !self.vdevs.leaf(guid).is_some_and(|leaf| leaf.has_missed())
    }

    /// Whether a leaf may lack a block that was born in a txg.
    pub fn lacks(&self, guid: u64, birth: Txg) -> bool {
        let state = self.dtls.0.lock();
        let ranges = state.leaves.get(&guid);
        ranges.is_some_and(|r| r.contains(Span::new(birth.0, 1)))
    }

    /// A complete scan of all blocks born between two txgs, both exclusive, has ended. Its errors
    /// are in `failed` (leaf, txgs). Apart from these, leaves lack nothing from that range any
    /// more. Replaced devices and spares leave with the next txg. Runs on the sync thread, in the
    /// txg that writes the scan's end.
    ///
    /// A leaf that lacks a later txg keeps its whole log. It was added, or was missing, after some
    /// blocks were scanned, and it is unknown which.
    ///
    /// With a checkpoint logs are not shortened, because the checkpoint's blocks were not scanned.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn dtl_scan_done(
        &self,
        ctx: &SyncCtx<'_>,
        (min, max): (Txg, Txg),
        failed: &[(u64, Span)],
    ) -> Result<()> {
        if self.keeps_checkpoint() || self.is_discarding() {
            return Ok(());
        }
        let tree = self.config.lock().vdev_tree.clone();
        let mut whole = Vec::new();
        let mut state = self.dtls.0.lock();
        tree.visit(&mut |node| {
            let fits = node.kind.is_leaf() && self.vdevs.is_usable(node.guid);
            let Some(ranges) = state.leaves.get_mut(&node.guid) else {
                return;
            };
            let last = ranges.last().map_or(0, |s| s.start + s.size);
            if !fits || node.resilver_defer || last > max.0 {
                return;
            }
            let first = min.next().0;
            ranges.clear_span(Span::new(first, max.0.saturating_sub(first)));
            for (_, span) in failed.iter().filter(|(guid, _)| *guid == node.guid) {
                ranges.add_missing(*span);
            }
            let is_complete = ranges.is_empty();
            state.changed.insert(node.guid);
            if is_complete {
                whole.push(node.guid);
            }
        });
        // `set_leaf_missing` takes this lock itself.
        drop(state);
        for guid in &whole {
            self.set_leaf_missing(*guid);
        }
        let mut forget = |node: &mut VdevConfig| {
            if whole.contains(&node.guid) {
                node.resilver_txg = None;
                node.rebuild_txg = None;
            }
        };
        self.config.lock().vdev_tree.visit_mut(&mut forget);
        self.config_changed();
        self.want_finish_replace(ctx.txg.next());
        Ok(())
    }
}

/// Where more than `spare` of the sets overlap.
fn more_than(spare: usize, sets: Vec<Vec<Span>>) -> Vec<Span> {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for span in sets.iter().flatten() {
        edges.push((span.start, 1));
        edges.push((span.start.saturating_add(span.size), -1));
    }
    // Ends before starts: ranges that only touch do not overlap.
    edges.sort_unstable();
    let (mut depth, mut since) = (0i32, None);
    let mut found = Vec::new();
    for (at, step) in edges {
        depth += step;
        let deep = usize::try_from(depth).is_ok_and(|d| d > spare);
        match (deep, since) {
            (true, None) => since = Some(at),
            (false, Some(start)) => {
                since = None;
                if at > start {
                    found.push(Span::new(start, at - start));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(pairs: &[(u64, u64)]) -> Vec<Span> {
        let made = pairs.iter().map(|(from, to)| Span::new(*from, to - from));
        made.collect()
    }

    #[test]
    fn a_vdev_lacks_what_more_children_lack_than_it_can_bear() {
        let (a, b) = (spans(&[(4, 10), (20, 30)]), spans(&[(8, 25)]));
        let both = || vec![a.clone(), b.clone()];
        assert_eq!(more_than(1, both()), spans(&[(8, 10), (20, 25)]));
        assert_eq!(more_than(0, both()), spans(&[(4, 30)]));
        assert_eq!(more_than(2, both()), []);
        let all = vec![Span::new(0, u64::MAX)];
        assert_eq!(more_than(1, vec![a.clone(), all]), a);
        // One after the other: no txg is missing twice.
        assert_eq!(more_than(1, vec![spans(&[(4, 8)]), spans(&[(8, 9)])]), []);
    }
}

//! Making single blocks durable between two commits: those of intent logs.
//!
//! - A leaf has the block if no write missed it and no flush failed since a mark that is taken
//!   before the write. A commit that ends in between does not change that.
//! - A flush that failed is not repeated: the host may have dropped what it could not write, and
//!   report success the second time.
//! - A block may be written before its txg is being synced. What its leaves missed of it, the
//!   commit of an older txg has taken for its own. So it is noted again for the txg of the block
//!   ([`Vdevs::note_lacking`]).

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};

use super::Vdevs;
use super::commit::spread;
use crate::leaf::Leaf;

/// What the leaves of a top-level vdev had missed before something was written there.
#[derive(Clone, Debug)]
pub struct Mark {
    vdev: u32,
    leaves: Vec<(Arc<Leaf>, u64)>,
}

impl Vdevs {
    /// A mark of a top-level vdev, to be taken before a write.
    ///
    /// # Errors
    /// There is no such vdev.
    pub fn mark(&self, vdev: u32) -> Result<Mark> {
        let leaves = self.top(vdev)?.leaves();
        let leaves = leaves.into_iter().map(|leaf| {
            let misses = leaf.misses();
            (leaf, misses)
        });
        Ok(Mark {
            vdev,
            leaves: leaves.collect(),
        })
    }

    /// Notes once more which leaves may lack what was written after a mark, for the commit that
    /// comes next. Leaves that came after it lack it, too.
    ///
    /// # Errors
    /// There is no such vdev.
    pub fn note_lacking(&self, mark: &Mark) -> Result<()> {
        for leaf in self.top(mark.vdev)?.leaves() {
            let has_all =
                |(l, misses): &(Arc<Leaf>, u64)| Arc::ptr_eq(l, &leaf) && leaf.misses() == *misses;
            if !mark.leaves.iter().any(has_all) {
                leaf.note_missed();
            }
        }
        Ok(())
    }

    /// Makes durable what was written after some marks, and flushes no other vdev than theirs.
    ///
    /// # Errors
    /// `Device` when one of those writes may be lost.
    pub fn flush_marked(&self, marks: &[Mark]) -> Result<()> {
        let mut leaves: Vec<&Arc<Leaf>> = Vec::with_capacity(2);
        for (leaf, _) in marks.iter().flat_map(|mark| &mark.leaves) {
            if leaf.is_unflushed() && !leaves.iter().any(|l| Arc::ptr_eq(l, leaf)) {
                leaves.push(leaf);
            }
        }
        let failed: Vec<(u64, Error)> =
            spread(leaves, |leaf| Some((leaf.guid(), leaf.flush().err()?)))
                .into_iter()
                .flatten()
                .collect();
        for mark in marks {
            let top = self.top(mark.vdev)?;
            let arrived = |leaf: &Leaf| {
                let same = |(l, misses): &(Arc<Leaf>, u64)| {
                    std::ptr::eq(&raw const **l, leaf) && l.misses() == *misses
                };
                failed.iter().all(|(guid, _)| *guid != leaf.guid()) && mark.leaves.iter().any(same)
            };
            if !top.node.is_durable(&arrived) {
                let lost = || {
                    let what = "blocks of an intent log may be lost";
                    Error::device(top.name(), Errno::IO, what)
                };
                let first = failed.into_iter().next();
                return Err(first.map_or_else(lost, |(_, error)| error));
            }
        }
        Ok(())
    }
}

//! Making single blocks durable between two commits: those of intent logs.
//!
//! - Take a mark before the write. A leaf has the block if it missed no write and failed no flush
//!   since the mark. A commit that ends in between does not change that.
//! - A flush that failed is not repeated: the host may have dropped what it could not write, and
//!   report success the second time.
//! - A block may be written before its txg syncs. The commit of an older txg may come between, and
//!   takes the marks of missed writes for its own txg. So they are noted again for the txg of the
//!   block ([`Vdevs::note_lacking`]).

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};

use super::Vdevs;
use super::commit::spread;
use crate::leaf::Leaf;

/// The misses of a top-level vdev's leaves before a write.
#[derive(Clone, Debug)]
pub struct Mark {
    vdev: u32,
    leaves: Vec<(Arc<Leaf>, u64)>,
}

impl Vdevs {
    /// A mark of a top-level vdev, taken before a write.
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

    /// Notes again, for the next commit, which leaves may lack writes since a mark. Leaves added
    /// since then lack them, too.
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

    /// Makes the writes since some marks durable, and flushes only the vdevs of these marks.
    ///
    /// # Errors
    /// `Device` when one of those writes may be lost.
    pub fn flush_marked(&self, marks: &[Mark]) -> Result<()> {
        let mut leaves: Vec<&Arc<Leaf>> = Vec::with_capacity(2);
        for (leaf, _) in marks.iter().flat_map(|mark| &mark.leaves) {
            // Another thread may have flushed it since. If that failed, its misses show it below.
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

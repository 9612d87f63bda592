//! Removed vdevs: freeing a block frees its copied place.
//!
//! Block pointers still name the removed vdev. A range that is freed there becomes obsolete: its
//! mapping is not looked up any more. OpenZFS removes such ranges from the mapping. So each is
//! recorded in the vdev's obsolete map (feature `obsolete_counts`; chapter 01b §6.2).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Error, ObjectId, Result, Span};
use zuse_vdev::Mapping;

use super::side_map::{SideKind, SideMap};
use super::{Allocator, Spaces, VdevSpace};
use crate::metaslab::SyncPass;
use crate::space_map::MapWriter;

/// Parts of one block that are resolved, at most: more than a block has sectors.
const MAX_PARTS: usize = 1 << 16;

/// A removed vdev.
#[derive(Debug)]
pub(super) struct Removed {
    mapping: Arc<Mapping>,
    pub obsolete: SideMap,
}

/// Where a range of a removed vdev is.
#[derive(Default)]
pub(super) struct Moved {
    /// On present vdevs.
    pub places: Vec<(Arc<VdevSpace>, Span)>,
    /// The ranges of removed vdevs that were resolved.
    pub obsolete: Vec<(Arc<Removed>, Span)>,
}

impl Allocator {
    /// Sets whether frees on removed vdevs are recorded.
    pub(crate) fn set_note_obsolete(&self, on: bool) {
        self.note_obsolete.store(on, Relaxed);
    }

    /// Adds a removed vdev of `asize` bytes, with its ZAP and its obsolete map, if any.
    ///
    /// # Errors
    /// The map cannot be read.
    pub(crate) fn add_removed(
        &self,
        vdev: u32,
        asize: u64,
        mapping: Arc<Mapping>,
        zap: ObjectId,
        map: Option<ObjectId>,
    ) -> Result<()> {
        let obsolete = SideMap::new(SideKind::Obsolete, vdev, asize, 0);
        obsolete.set_zap(zap);
        if let Some(object) = map {
            obsolete.open(&*self.store(), object)?;
        }
        let removed = Arc::new(Removed { mapping, obsolete });
        self.change(|spaces| {
            spaces.removed.insert(vdev, removed);
        });
        Ok(())
    }

    /// Resolves a range of a removed vdev through the mappings.
    ///
    /// # Errors
    /// `Corrupt`: there is no such vdev, or no mapping for the range.
    pub(super) fn where_now(&self, spaces: &Spaces, vdev: u32, span: Span) -> Result<Moved> {
        let mut moved = Moved::default();
        let mut open = vec![(vdev, span)];
        let mut steps = 0;
        while let Some((vdev, span)) = open.pop() {
            let wrong =
                |what: &str| Error::corrupt(format!("vdev {vdev}, range {span}"), what.to_owned());
            // A vdev may have been removed after it received the data of another: the walk
            // continues until a present vdev.
            if let Some(space) = spaces.vdevs.get(&vdev) {
                moved.places.push((Arc::clone(space), span));
                continue;
            }
            let removed = spaces
                .removed
                .get(&vdev)
                .ok_or_else(|| wrong("a block refers to a vdev that has no space"))?;
            // Once the block is freed, the mapping of this range is unused.
            moved.obsolete.push((Arc::clone(removed), span));
            let mut at = span.start;
            while at < span.end() {
                let part = removed
                    .mapping
                    .first_part(at, span.end() - at)
                    // Mappings come from disk, and might form a cycle.
                    .filter(|_| steps < MAX_PARTS)
                    .ok_or_else(|| wrong("nothing was copied from there"))?;
                steps += 1;
                at += part.len;
                open.push((part.vdev, Span::new(part.to, part.len)));
            }
        }
        Ok(moved)
    }

    pub(super) fn note_obsolete(&self, ranges: &[(Arc<Removed>, Span)]) -> Result<()> {
        // A pool without the feature has no place to record it.
        if !self.note_obsolete.load(Relaxed) {
            return Ok(());
        }
        ranges
            .iter()
            .try_for_each(|(removed, span)| removed.obsolete.note(*span))
    }

    /// A range of a removed vdev that no pointer names any more, while its copy is in use under its
    /// new address.
    ///
    /// # Errors
    /// `Corrupt`: not a removed vdev, or the range was recorded before.
    pub fn mark_obsolete(&self, vdev: u32, span: Span) -> Result<()> {
        let spaces = self.spaces();
        let removed = spaces.removed.get(&vdev).ok_or_else(|| {
            Error::corrupt(format!("vdev {vdev}"), "no vdev of that number was removed")
        })?;
        self.note_obsolete(&[(Arc::clone(removed), span)])
    }

    /// Merges the ranges of an older obsolete map of a removed vdev into the current one. Returns
    /// the change in the number of maps that vdevs' ZAPs name.
    ///
    /// # Errors
    /// A map cannot be read, or the MOS cannot be changed. The txg must not be committed then.
    pub(crate) fn merge_obsolete(
        &self,
        writer: &dyn MapWriter,
        vdev: u32,
        older: ObjectId,
    ) -> Result<i64> {
        let spaces = self.spaces();
        let removed = spaces.removed.get(&vdev).ok_or_else(|| {
            Error::corrupt(format!("vdev {vdev}"), "no vdev of that number was removed")
        })?;
        let options = self.options();
        let how = SyncPass {
            writer,
            pass: 1,
            shape: options.shape(),
            two_words: options.two_words,
        };
        let changed = removed.obsolete.merge(&*self.store(), how, older)?;
        // The feature counts maps, and one of them was removed.
        self.count_maps(changed);
        Ok(changed.maps)
    }

    /// The change of the reference count of `obsolete_counts` since the last call.
    pub(crate) fn take_obsolete_delta(&self) -> i64 {
        self.obsolete_delta.swap(0, Relaxed)
    }
}

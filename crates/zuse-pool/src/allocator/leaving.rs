//! Changes of vdevs in use: removing a log vdev without blocks, and growing a vdev.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, Error, ObjectId, Refusal, Result};

use super::{Allocator, VdevInfo};

/// The space objects of a vdev in the MOS.
#[derive(Debug, Default)]
pub(crate) struct SpaceObjects {
    /// Space maps, and whether each has a histogram.
    pub maps: Vec<(ObjectId, bool)>,
    /// The array of them.
    pub array: Option<ObjectId>,
}

impl Allocator {
    /// Whether nothing is allocated on a vdev, and no deferred frees are left.
    pub(crate) fn is_vacant(&self, vdev: u32) -> bool {
        self.spaces().vdevs.get(&vdev).is_none_or(|space| {
            space.allocated.load(Relaxed) == 0 && space.deferred.load(Relaxed) == 0
        })
    }

    /// Adds metaslabs to a vdev. On the sync thread. Intent logs may be allocated meanwhile.
    ///
    /// # Errors
    /// There is no such vdev, or the new geometry is invalid.
    pub(crate) fn grow_vdev(&self, info: VdevInfo) -> Result<()> {
        let old = self.vdev(info.vdev)?;
        let tripwire = self.tripwire.get().cloned().unwrap_or_default();
        let grown = Arc::new(old.grown(info, tripwire)?);
        self.change(|spaces| {
            for class in &mut spaces.classes {
                for space in class.iter_mut().filter(|s| Arc::ptr_eq(s, &old)) {
                    *space = Arc::clone(&grown);
                }
            }
            spaces.vdevs.insert(grown.info.vdev, Arc::clone(&grown));
        });
        Ok(())
    }

    /// Removes a vdev. Returns its objects, which are unused then. On the sync thread: nothing is
    /// allocated or freed meanwhile.
    ///
    /// # Errors
    /// `Refused(BUSY)` if anything is allocated there.
    pub(crate) fn remove_vdev(&self, vdev: u32) -> Result<SpaceObjects> {
        let space = self.vdev(vdev)?;
        if !self.is_vacant(vdev) || space.kept.object().is_some() {
            let what = "log device has unplayed intent logs";
            return Err(Error::refused_for(Refusal::Known, Errno::BUSY, what));
        }
        let objects = SpaceObjects {
            maps: space.metaslabs().iter().filter_map(|m| m.map()).collect(),
            array: space.array(),
        };
        self.change(|spaces| {
            spaces.vdevs.remove(&vdev);
            for class in &mut spaces.classes {
                class.retain(|space| space.info.vdev != vdev);
            }
        });
        Ok(objects)
    }
}

//! Figures of space: allocated, deferred and free bytes of the pool and its classes.

use std::sync::atomic::Ordering::Relaxed;

use zuse_io::AllocClass;

use super::vdev::{VdevInfo, VdevSpace};
use super::{Allocator, class_index};

/// Least and most space that is reserved as slop.
const SLOP_MIN: u64 = 128 << 20;
const SLOP_MAX: u64 = 128 << 30;

/// Sums over the vdevs of a class. "Deflated" bytes are those that `used` and `available` count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassFigures {
    /// Bytes in metaslabs.
    pub capacity: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Freed bytes that are not allocatable yet.
    pub deferred: u64,
    /// Deflated capacity.
    pub dspace: u64,
    /// Deflated allocated and deferred bytes.
    pub dused: u64,
    /// Deflated deferred bytes.
    pub ddeferred: u64,
    /// Deflated capacity of non-allocating vdevs.
    pub dspace_closed: u64,
}

/// How far into the slop an operation may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Writes: not at all.
    Normal,
    /// Small administrative changes: half of it.
    Half,
    /// Destroying things: all but a quarter.
    Quarter,
    /// Operations that must succeed.
    None,
}

impl Reserve {
    /// The part of `slop` that stays reserved.
    pub fn kept(self, slop: u64) -> u64 {
        match self {
            Self::Normal => slop,
            Self::Half => slop / 2,
            Self::Quarter => slop / 4,
            Self::None => 0,
        }
    }
}

fn deflate(bytes: u64, ratio: u64) -> u64 {
    (bytes >> 9).saturating_mul(ratio)
}

impl ClassFigures {
    fn of(vdev: &VdevSpace) -> Self {
        let ratio = vdev.info.deflate_ratio;
        let capacity = vdev.capacity.load(Relaxed);
        let allocated = vdev.allocated.load(Relaxed);
        let deferred = vdev.deferred.load(Relaxed);
        let dspace = deflate(capacity, ratio);
        let closed = !vdev.open_for_new.load(Relaxed);
        Self {
            capacity,
            allocated,
            deferred,
            dspace,
            // Deferred space cannot be allocated yet, so it counts as used.
            dused: deflate(allocated.saturating_add(deferred), ratio),
            ddeferred: deflate(deferred, ratio),
            dspace_closed: if closed { dspace } else { 0 },
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            capacity: self.capacity.saturating_add(other.capacity),
            allocated: self.allocated.saturating_add(other.allocated),
            deferred: self.deferred.saturating_add(other.deferred),
            dspace: self.dspace.saturating_add(other.dspace),
            dused: self.dused.saturating_add(other.dused),
            ddeferred: self.ddeferred.saturating_add(other.ddeferred),
            dspace_closed: self.dspace_closed.saturating_add(other.dspace_closed),
        }
    }
}

impl Allocator {
    /// Sums over one class.
    pub fn figures(&self, class: AllocClass) -> ClassFigures {
        let spaces = self.spaces();
        spaces.classes[class_index(class)]
            .iter()
            .map(|v| ClassFigures::of(v))
            .fold(ClassFigures::default(), ClassFigures::plus)
    }

    /// Totals of one vdev; zeros if there is no such vdev.
    pub fn vdev_figures(&self, vdev: u32) -> ClassFigures {
        self.spaces()
            .vdevs
            .get(&vdev)
            .map(|v| ClassFigures::of(v))
            .unwrap_or_default()
    }

    /// Room and allocated bytes of all metaslabs.
    pub fn each_metaslab(&self, each: &mut dyn FnMut(&VdevInfo, u64, u64)) {
        for vdev in self.spaces().vdevs.values() {
            for metaslab in vdev.metaslabs() {
                let room = metaslab.region().span.size;
                let allocated = room.saturating_sub(metaslab.free_space());
                each(&vdev.info, room, allocated);
            }
        }
    }

    /// Totals of all classes except log: size and allocated in `zpool list`.
    pub fn total(&self) -> ClassFigures {
        let classes = [AllocClass::Normal, AllocClass::Special, AllocClass::Dedup];
        classes
            .into_iter()
            .map(|class| self.figures(class))
            .fold(ClassFigures::default(), ClassFigures::plus)
    }

    /// The pool's deflated space: normal vdevs with `allocating` on.
    pub fn dspace(&self) -> u64 {
        let normal = self.figures(AllocClass::Normal);
        normal.dspace.saturating_sub(normal.dspace_closed)
    }

    /// Space that is reserved from users.
    pub fn slop(&self) -> u64 {
        slop_of(self.dspace())
    }

    /// Deflated bytes that may be allocated without reaching too far into the slop.
    pub fn available(&self, reserve: Reserve) -> u64 {
        let normal = self.figures(AllocClass::Normal);
        normal
            .dspace
            .saturating_sub(normal.dspace_closed)
            .saturating_sub(normal.dused)
            .saturating_sub(reserve.kept(self.slop()))
    }

    /// Whether a transaction that may take `bytes` deflated bytes can be admitted.
    pub fn has_room(&self, bytes: u64, reserve: Reserve) -> bool {
        bytes <= self.available(reserve)
    }

    /// Freed bytes that become allocatable after two more commits: a caller without room may commit
    /// and retry.
    pub fn deferred(&self) -> u64 {
        self.spaces()
            .vdevs
            .values()
            .map(|v| v.deferred.load(Relaxed))
            .sum()
    }
}

/// Slop of a pool of `dspace` deflated bytes.
pub fn slop_of(dspace: u64) -> u64 {
    (dspace / 32).min(SLOP_MAX).max((dspace / 2).min(SLOP_MIN))
}

//! The children of a vdev with parity, and which leaf serves a place on one.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zuse_base::{Errno, Error, Result, Txg};

use super::draid::DraidMap;
use super::plan::ChildOffset;
use crate::geometry::{LABEL_SIZE, LABELS};
use crate::leaf::Leaf;

/// Device byte of the boot area's start: behind the first two labels.
const BOOT_AREA: u64 = LABEL_SIZE * (LABELS as u64) / 2;

/// Leaves of one child at most: one bit each.
pub(crate) const MAX_MEMBERS: usize = 64;

/// A distributed spare may replace a child of which another spare is part. Hostile trees may
/// contain cycles.
const MAX_HOPS: usize = 4;

/// A holder of a copy of a child.
#[derive(Clone, Debug)]
pub(crate) enum Member {
    Leaf(Arc<Leaf>),
    /// A distributed spare: its number, and whether it may lack blocks.
    Spare {
        number: u64,
        outdated: Arc<AtomicBool>,
    },
}

/// One child: a leaf, or a `spare` or `replacing` with several.
#[derive(Clone, Debug)]
pub(crate) struct Child(Box<[Member]>);

impl Child {
    /// `None` for no or too many members.
    pub(crate) fn new(members: Vec<Member>) -> Option<Self> {
        ((1..=MAX_MEMBERS).contains(&members.len())).then(|| Self(members.into()))
    }
}

/// All children.
#[derive(Debug)]
pub(super) struct Children(pub Box<[Child]>);

impl Children {
    /// Calls `f` for every leaf that holds a place of a child, and whether it may lack blocks.
    pub fn each<'a>(
        &'a self,
        draid: Option<&DraidMap>,
        child: u16,
        offset: u64,
        mut f: impl FnMut(&'a Arc<Leaf>, bool),
    ) {
        self.walk(draid, child, offset, MAX_HOPS, &mut f);
    }

    fn walk<'a>(
        &'a self,
        draid: Option<&DraidMap>,
        child: u16,
        offset: u64,
        hops: usize,
        f: &mut dyn FnMut(&'a Arc<Leaf>, bool),
    ) {
        let Some(Child(members)) = self.0.get(usize::from(child)) else {
            return;
        };
        for member in members {
            match member {
                Member::Leaf(leaf) => f(leaf, leaf.is_outdated()),
                Member::Spare { number, outdated } if hops > 0 => {
                    let at = draid.and_then(|d| d.spare_child(*number, offset));
                    // A forged tree may lead back to this child, whose leaves were visited already.
                    if let Some(at) = at.filter(|at| *at != child) {
                        let stale = outdated.load(Relaxed);
                        self.walk(draid, at, offset, hops - 1, &mut |leaf, old| {
                            f(leaf, old || stale);
                        });
                    }
                }
                Member::Spare { .. } => {}
            }
        }
    }

    /// The leaves of a place, best first for a block of that birth. Those that lack it come after
    /// those that have it, outdated after sound, busy after idle; those out of order are last.
    fn ranked<'a>(
        &'a self,
        draid: Option<&DraidMap>,
        on_child: ChildOffset,
        birth: Txg,
    ) -> Vec<(&'a Arc<Leaf>, bool)> {
        let mut found = Vec::with_capacity(1);
        self.each(draid, on_child.child, on_child.offset, |leaf, outdated| {
            found.push((leaf, outdated));
        });
        if found.len() > 1 {
            found.sort_by_key(|(leaf, outdated)| {
                // Each leaf of a replacement may lack what another one has.
                let lacks = leaf.lacks(birth) || *outdated && !leaf.is_outdated();
                let unfit = (!leaf.is_usable(), lacks, *outdated, leaf.sits_out());
                (unfit, leaf.pending())
            });
        }
        found
    }

    /// How good a place is.
    pub fn column_health(&self, draid: Option<&DraidMap>, on_child: ChildOffset) -> ColumnHealth {
        let mut best = ColumnHealth::Gone;
        self.each(draid, on_child.child, on_child.offset, |leaf, outdated| {
            if leaf.is_usable() {
                best = best.max(match outdated {
                    true => ColumnHealth::Outdated,
                    false if leaf.sits_out() => ColumnHealth::SitsOut,
                    false => ColumnHealth::Sound,
                });
            }
        });
        best
    }

    /// Whether a place has a readable leaf that does not lack blocks born in a txg.
    pub fn has(&self, draid: Option<&DraidMap>, on_child: ChildOffset, birth: Txg) -> bool {
        let mut any = false;
        self.each(draid, on_child.child, on_child.offset, |leaf, outdated| {
            let stale = outdated && !leaf.is_outdated();
            any |= leaf.is_usable() && !stale && !leaf.lacks(birth);
        });
        any
    }

    /// Whether some leaf may lack blocks that were born in a txg.
    pub fn lack(&self, birth: Txg) -> bool {
        let mut members = self.0.iter().flat_map(|Child(members)| members.iter());
        members.any(|member| match member {
            Member::Leaf(leaf) => leaf.lacks(birth),
            Member::Spare { outdated, .. } => outdated.load(Relaxed),
        })
    }

    /// The leaf that would be read.
    pub fn best(
        &self,
        draid: Option<&DraidMap>,
        on_child: ChildOffset,
        birth: Txg,
    ) -> Option<(&Arc<Leaf>, bool)> {
        self.ranked(draid, on_child, birth).into_iter().next()
    }

    /// Reads from the best leaf that gives the bytes.
    pub fn read(
        &self,
        draid: Option<&DraidMap>,
        on_child: ChildOffset,
        birth: Txg,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut failed = None;
        for (leaf, _) in self.ranked(draid, on_child, birth) {
            let result = if on_child.boot {
                leaf.read_raw(BOOT_AREA.saturating_add(on_child.offset), buf)
            } else {
                leaf.read(on_child.offset, buf)
            };
            match result {
                Ok(()) => return Ok(()),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        Err(failed.unwrap_or_else(|| Error::device("vdev", Errno::NXIO, "no device")))
    }

    /// Writes to every leaf of a place; one success is enough. Failed leaves are added to `missed`.
    pub fn write<'a>(
        &'a self,
        draid: Option<&DraidMap>,
        on_child: ChildOffset,
        parts: &[IoSlice<'_>],
        missed: &mut Vec<&'a Arc<Leaf>>,
    ) -> Result<()> {
        let mut result = Err(None);
        self.each(draid, on_child.child, on_child.offset, |leaf, _| match leaf
            .write(on_child.offset, parts)
        {
            Ok(()) => result = Ok(()),
            Err(error) => {
                missed.push(leaf);
                if let Err(none @ None) = &mut result {
                    *none = Some(error);
                }
            }
        });
        result.map_err(|error| {
            error.unwrap_or_else(|| Error::device("vdev", Errno::NXIO, "no device"))
        })
    }
}

/// How good a place is, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ColumnHealth {
    /// No device.
    Gone,
    /// May lack blocks.
    Outdated,
    /// Good, but not read as long as the others suffice.
    SitsOut,
    /// Good.
    Sound,
}

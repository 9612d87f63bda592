//! Vdevs with parity: raidz and dRAID.
//!
//! ```text
//!   offset, size, birth ── map (raidz, draid) ──► plan: stripes of columns ──► children ──► leaves
//! ```
//!
//! - A read takes the data columns only. A column that cannot be read, or may be stale by its
//!   leaf's DTL, is computed from parity. If the result fails the block's checksum, all columns are
//!   read. Then every set of up to parity-many children is assumed to be wrong in turn ([`read`]).
//! - Wrong columns are counted on their leaf and rewritten.
//! - A write computes parity and writes all columns; each stripe tolerates as many failures as it
//!   has parity.
//! - A child may be a mirror of leaves (`spare`, `replacing`). A distributed spare among them maps
//!   to places on other children.

mod draid;
mod members;
mod other_copies;
mod permutation;
mod plan;
mod raidz;
mod read;
mod verify;
mod write;

use zuse_base::{Result, Span};

pub use draid::vdev_asize;
pub(crate) use draid::{DraidMap, child_asize, replacement_asize};
pub(crate) use members::{Child, Member};
pub(crate) use raidz::RaidzMap;

use members::Children;
use plan::Plan;

/// The layout: how a vdev distributes blocks over its children.
#[derive(Debug)]
pub(crate) enum Map {
    Raidz(RaidzMap),
    Draid(DraidMap),
}

/// The children of a vdev with parity, and the layout of blocks on them.
#[derive(Debug)]
pub(crate) struct ParityVdev {
    map: Map,
    children: Children,
}

impl ParityVdev {
    /// There must be as many children as the layout was made for.
    pub(crate) fn new(map: Map, children: Vec<Child>) -> Self {
        Self {
            map,
            children: Children(children.into()),
        }
    }

    fn nparity(&self) -> usize {
        match &self.map {
            Map::Raidz(map) => map.nparity(),
            Map::Draid(map) => map.nparity(),
        }
    }

    fn draid(&self) -> Option<&DraidMap> {
        match &self.map {
            Map::Raidz(_) => None,
            Map::Draid(map) => Some(map),
        }
    }

    /// The unit of block offsets, in bytes, where it is more than a sector.
    pub(crate) fn unit(&self) -> Option<u64> {
        self.draid().map(DraidMap::unit)
    }

    fn plan(&self, offset: u64, psize: usize, birth: u64) -> Plan {
        let plan = match &self.map {
            Map::Raidz(map) => map.plan(offset, psize, birth),
            Map::Draid(map) => map.plan(offset, psize),
        };
        #[cfg(debug_assertions)]
        plan.check_invariants();
        plan
    }

    /// Sets the progress of a running expansion; false if there is none.
    pub(crate) fn set_reflow(&self, offset: u64, scratch: bool) -> bool {
        match &self.map {
            Map::Raidz(map) if map.is_expanding() => {
                map.set_reflow(offset, scratch);
                true
            }
            _ => false,
        }
    }

    /// Where a range of the vdev is on one of its leaves.
    pub(crate) fn parts_on(&self, guid: u64, offset: u64, len: u64) -> Vec<Span> {
        let mut parts = Vec::new();
        for (child, offset, len) in self.pieces(offset, len) {
            self.children.each(self.draid(), child, offset, |leaf, _| {
                if leaf.guid() == guid {
                    parts.push(Span::new(offset, len));
                }
            });
        }
        parts
    }

    /// Which ranges of which children a range of the vdev covers, as of now.
    fn pieces(&self, offset: u64, len: u64) -> Vec<(u16, u64, u64)> {
        match &self.map {
            Map::Raidz(map) => map.pieces(offset, len),
            Map::Draid(map) => map.pieces(offset, len),
        }
    }

    /// Discards a range of the vdev on its children; false if none of them can.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> Result<bool> {
        let pieces = self.pieces(offset, len);
        let mut done = false;
        let mut failed = None;
        for (child, offset, len) in pieces {
            self.children.each(self.draid(), child, offset, |leaf, _| {
                if leaf.is_usable() {
                    match leaf.discard(offset, len) {
                        Ok(discarded) => done |= discarded,
                        Err(error) => failed = Some(error),
                    }
                }
            });
        }
        // One device that discards is enough: a discard is only a hint.
        match failed {
            Some(error) if !done => Err(error),
            _ => Ok(done),
        }
    }
}

#[cfg(test)]
mod tests;

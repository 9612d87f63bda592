//! How far an object set is complete that was received from a truncated stream.
//!
//! ```text
//!   … all of object 40 │ 41: bytes up to `offset` │ 42…63: dnodes, no data │ nothing is known of the rest
//!                      └ `object`                                        `dnodes` ┘
//! ```
//! A stream has the dnodes of a block of 32, then the data of each, ordered by object and offset.
//! The spill block of each object comes last. Data beyond this part was not in the stream. There, a
//! full stream leaves holes, and an incremental one leaves the bytes of its source. Neither may be
//! returned as if the stream had contained it.

use std::collections::BTreeSet;

use zuse_format::dnode::SLOTS_PER_BLOCK;

/// Spill blocks that are tracked one by one. A valid stream has at most one for each dnode of a
/// block.
const SPILLS_MAX: usize = 1024;
/// Objects from this number on do not come from a stream.
const OWN: u64 = 1 << 48;

/// How far an object set is known to be complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletePart {
    /// The last object whose dnode has arrived.
    dnodes: u64,
    /// The data of all objects before this one has arrived,
    object: u64,
    /// and of this one up to here.
    offset: u64,
    /// Objects whose spill block was announced and has not arrived.
    spills: BTreeSet<u64>,
    /// More spill blocks are missing than `spills` tracks.
    many_spills: bool,
}

impl CompletePart {
    /// A dnode came.
    pub fn dnode(&mut self, object: u64, has_spill: bool) {
        self.block_begins(object);
        self.dnodes = self.dnodes.max(object);
        if !has_spill {
            self.spills.remove(&object);
        } else if self.spills.len() < SPILLS_MAX {
            self.spills.insert(object);
        } else {
            self.many_spills = true;
        }
    }

    /// The stream said that a range of objects does not exist.
    pub fn no_objects(&mut self, first: u64, count: u64) {
        self.block_begins(first);
        let last = first.saturating_add(count.saturating_sub(1));
        self.dnodes = self.dnodes.max(last);
    }

    /// Data came, up to `end`.
    pub fn data(&mut self, object: u64, end: u64) {
        if object > self.object {
            self.pass(object);
        }
        if object == self.object {
            self.offset = self.offset.max(end);
        }
    }

    /// A spill block came.
    pub fn spill(&mut self, object: u64) {
        self.spills.remove(&object);
    }

    /// The dnodes of a block arrive after all data of the block before.
    fn block_begins(&mut self, object: u64) {
        let per = SLOTS_PER_BLOCK as u64;
        let first = object / per * per;
        if first > self.object {
            self.pass(first);
        }
    }

    fn pass(&mut self, object: u64) {
        (self.object, self.offset) = (object, 0);
        self.spills = self.spills.split_off(&object);
        self.many_spills = false;
    }

    /// Whether the dnode of an object came.
    pub(crate) fn has_dnode(&self, object: u64) -> bool {
        object <= self.dnodes || object >= OWN
    }

    /// Whether the data of an object has arrived, up to `end`.
    pub(crate) fn has_data(&self, object: u64, end: u64) -> bool {
        // Object 0 holds the dnodes.
        object == 0
            || object < self.object
            || object == self.object && end <= self.offset
            || object >= OWN
    }

    /// Whether the spill block of an object has arrived, or was never announced.
    pub(crate) fn has_spill(&self, object: u64) -> bool {
        let missing = self.spills.contains(&object) || self.many_spills && object >= self.object;
        !missing
    }
}

#[cfg(test)]
mod tests {
    use super::CompletePart;

    #[test]
    fn what_came_is_received_and_what_was_announced_is_not() {
        let mut complete_part = CompletePart::default();
        complete_part.dnode(1, false);
        complete_part.dnode(2, true);
        complete_part.dnode(3, false);
        complete_part.data(1, 512);
        complete_part.data(2, 4096);
        assert!(
            complete_part.has_data(1, u64::MAX),
            "2 has begun: 1 is over"
        );
        assert!(complete_part.has_data(2, 4096) && !complete_part.has_data(2, 4097));
        assert!(!complete_part.has_spill(2) && complete_part.has_spill(1));
        assert!(
            !complete_part.has_data(3, 1)
                && complete_part.has_dnode(3)
                && !complete_part.has_dnode(4)
        );
        complete_part.spill(2);
        assert!(complete_part.has_spill(2));
        complete_part.dnode(32, false);
        assert!(complete_part.has_data(3, u64::MAX) && !complete_part.has_data(32, 1));
        complete_part.no_objects(33, 1000);
        assert!(complete_part.has_dnode(1032) && !complete_part.has_dnode(1033));
    }
}

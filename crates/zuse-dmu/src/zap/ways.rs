//! Ways from hashes to the leaves of a large ZAP that the open txg has changed already.
//!
//! ```text
//!   by the table:  word of the pointer table ─► row of versions ─► version ─► leaf      each a line that no cache has
//!   by a way:      way ─► version, leaf
//! ```
//! Of a directory of a million names an add needs another leaf each time. Who asks for it ahead has to wait for one line to know which is the next, and
//! for two locks; a way says at once where the version and its bytes are.
//!
//! It is a hint, good for one txg and until a name is removed or somebody else changes the object ([`super::known`] drops them). A leaf
//! that was split meanwhile does not own all hashes of its ways any more: who goes one looks at the leaf's prefix.
//!
//! Memory: 32 bytes a pointer of the table, at most [`MOST`] of them, for a ZAP of [`MANY`] leaves or more to which names are added. Blocks are held
//! weakly: the cache alone, and the txg alone, decide what stays.

use std::sync::{Arc, Weak};

use zuse_base::Txg;

use super::fat::Target;
use super::hash::top_bits;
use super::header::Header;
use super::leaf::Geometry;
use crate::dirty::DirtyBlock;

/// Leaves from which on it is worth it: the tables of fewer are in the processor's caches.
pub(super) const MANY: u64 = if cfg!(test) { 4 } else { 512 };
/// log2 of the ways of one ZAP, at most.
const MOST: u32 = if cfg!(test) { 10 } else { 13 };

/// See the module's head.
pub(super) struct Ways {
    txg: Txg,
    /// The pointer table's.
    shift: u32,
    slots: Vec<Option<Way>>,
}

struct Way {
    block: Weak<DirtyBlock>,
    bytes_at: usize,
    leaf: u64,
    /// The bits of the table's index that do not say which slot it is.
    tag: u32,
    depth: u32,
}

impl Ways {
    /// None yet.
    pub fn new(txg: Txg, header: &Header) -> Self {
        let slots = 1 << header.shift.min(MOST);
        Self {
            txg,
            shift: header.shift,
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
        }
    }

    /// Whether they are those of a txg, and of a table of that length: those of a shorter one tell fewer leaves apart.
    pub fn fit(&self, txg: Txg, header: &Header) -> bool {
        self.txg == txg && self.shift == header.shift
    }

    /// The slot of a hash, and the tag there.
    #[inline]
    fn place(&self, hash: u64) -> (usize, u32) {
        let index = top_bits(hash, self.shift);
        let slot = index as usize & (self.slots.len() - 1);
        (slot, (index >> self.slots.len().trailing_zeros()) as u32)
    }

    #[inline]
    fn get(&self, hash: u64) -> Option<&Way> {
        let (slot, tag) = self.place(hash);
        self.slots[slot].as_ref().filter(|way| way.tag == tag)
    }

    /// Where a hash led last; asks the memory for the version, the leaf's header and its bucket.
    #[inline]
    pub fn lead(&self, hash: u64, header: &Header) -> Option<Target> {
        let way = self.get(hash)?;
        let geometry = Geometry {
            shift: header.block_shift,
        };
        let head = geometry.head_place(hash, way.depth);
        // What counts the references stands in front of it.
        let block = way.block.as_ptr().addr();
        for at in [
            block.wrapping_sub(16),
            block.wrapping_add(48),
            way.bytes_at,
            way.bytes_at.wrapping_add(head),
        ] {
            zuse_codec::read_soon_at(at);
        }
        Some(Target {
            hash,
            leaf: way.leaf,
            depth: way.depth,
            head,
        })
    }

    /// The version at the end of a way, if it is of that txg and still there.
    #[inline]
    pub fn go(&self, hash: u64, txg: Txg) -> Option<Arc<DirtyBlock>> {
        if self.txg == txg {
            self.get(hash)?.block.upgrade()
        } else {
            None
        }
    }

    /// Notes where a hash leads.
    pub fn note(&mut self, target: &Target, block: &Arc<DirtyBlock>) {
        let (slot, tag) = self.place(target.hash);
        self.slots[slot] = Some(Way {
            block: Arc::downgrade(block),
            bytes_at: block.bytes_at(),
            leaf: target.leaf,
            tag,
            depth: target.depth,
        });
    }
}

const _: () = assert!(size_of::<Option<Way>>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    fn target(hash: u64, leaf: u64) -> Target {
        Target {
            hash,
            leaf,
            depth: 9,
            head: 0,
        }
    }

    #[test]
    fn a_way_is_that_of_its_own_hash_table_and_txg() {
        let mut header = Header::new(14, 1, 0, 0);
        header.shift = 12;
        let mut ways = Ways::new(Txg(7), &header);
        assert!(ways.fit(Txg(7), &header) && !ways.fit(Txg(8), &header));
        let hash = |index: u64| index << 52 | 0xffff << 36;
        let block = DirtyBlock::new(vec![1], None, None);
        let led = |ways: &Ways, index| ways.lead(hash(index), &header).map(|t| (t.leaf, t.depth));
        assert_eq!(led(&ways, 3), None);
        ways.note(&target(hash(3), 33), &block);
        // Two that share a slot, of 1,024.
        ways.note(&target(hash(5), 55), &block);
        ways.note(&target(hash(5 + 1024), 66), &block);
        assert_eq!(led(&ways, 3), Some((33, 9)));
        assert_eq!((led(&ways, 5), led(&ways, 5 + 1024)), (None, Some((66, 9))));
        assert!(
            ways.go(hash(3), Txg(7))
                .is_some_and(|b| Arc::ptr_eq(&b, &block))
        );
        assert!(ways.go(hash(3), Txg(8)).is_none() && ways.go(hash(4), Txg(7)).is_none());
        drop(block);
        assert!(ways.go(hash(3), Txg(7)).is_none());
        header.shift += 1;
        assert!(!ways.fit(Txg(7), &header));
    }
}

//! Choosing object numbers.
//!
//! Numbers ascend through one dnode block. Then the search for the next block with free slots
//! continues from a rotor. If it reaches the end and objects were freed since, it starts at 0 once
//! more. Blocks that are full by their pointer's fill count are skipped without being read.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use zuse_base::{Errno, Error, ObjectId, Result, Txg};
use zuse_format::dnode::{OBJECT_LIMIT, SLOTS_PER_BLOCK};

use super::{Objset, dnode_slots};
use crate::dirty::Synced;
use crate::dnode::Dnode;
use crate::number_hash::NumberMap;
use crate::tx::Tx;

/// The state of the search.
#[derive(Default)]
pub(super) struct Numbers {
    /// Objects created in memory that are not on disk yet: number → slots.
    pending: BTreeMap<u64, u8>,
    /// The dnode block numbers are taken from.
    block: u64,
    /// Slots of `block` that were free when it was read and are not assigned yet.
    free: u32,
    /// Objects freed since the rotor last began at 0.
    freed: u64,
    /// Txg in which the rotor last began at 0.
    restarted: Txg,
}

impl Numbers {
    fn pend(&mut self, object: ObjectId, slots: u8) {
        let per = SLOTS_PER_BLOCK as u64;
        let mask = (((1u64 << slots) - 1) << (object.0 % per)) as u32;
        // Two objects in one slot: the one written last would overwrite the other's blocks.
        assert!(
            self.pending_slots(object.0 / per) & mask == 0,
            "object {object:?} is handed out twice"
        );
        if object.0 / per == self.block {
            self.free &= !mask;
        }
        self.pending.insert(object.0, slots);
    }

    pub fn next_pending(&self, from: u64) -> Option<u64> {
        self.pending.range(from..).next().map(|(n, _)| *n)
    }

    /// Removes an object from those that are not on disk yet.
    pub fn remove_pending(&mut self, object: ObjectId) {
        self.pending.remove(&object.0);
    }

    pub fn note_freed(&mut self) {
        self.freed += 1;
    }

    /// Slots of a dnode block that objects in memory occupy.
    fn pending_slots(&self, block: u64) -> u32 {
        let per = SLOTS_PER_BLOCK as u64;
        let mut taken = 0u32;
        for (n, slots) in self.pending.range(block * per..(block + 1) * per) {
            taken |= (((1u64 << slots) - 1) << (n % per)) as u32;
        }
        taken
    }

    /// A number from the current block, if it has `slots` free in a row.
    fn take(&mut self, slots: u8) -> Option<ObjectId> {
        let mask = ((1u64 << slots) - 1) as u32;
        for at in 0..=(SLOTS_PER_BLOCK as u32 - u32::from(slots)) {
            if self.free >> at & mask == mask {
                let object = ObjectId(self.block * SLOTS_PER_BLOCK as u64 + u64::from(at));
                self.pend(object, slots);
                return Some(object);
            }
        }
        None
    }
}

/// Inserts an object into memory. Two objects of one number would both be written, and the later
/// write would revert the other's changes.
pub(super) fn enter(shard: &mut NumberMap<Weak<Dnode>>, dnode: &Arc<Dnode>) {
    let before = shard.insert(dnode.object().0, Arc::downgrade(dnode));
    assert!(
        before.is_none_or(|there| there.strong_count() == 0),
        "{}: twice in memory",
        dnode.place()
    );
}

impl Objset {
    /// Runs `f` with the occupied slots of a dnode block, on disk or in memory, while they cannot
    /// change.
    fn with_taken<R>(&self, block: u64, f: impl FnOnce(&mut Numbers, u32) -> R) -> Result<R> {
        loop {
            let tree = self.meta_tree();
            let on_disk = match self.dnode_block(&tree, block) {
                Err(e) if self.meta.is_stale(&tree, &e) => continue,
                other => other?.map_or(0, |b| dnode_slots(b.bytes())),
            };
            let mut numbers = self.numbers.lock();
            // Objects leave memory under this lock, after the new tree is in place. If the tree is
            // the same, no object moved from memory to disk in between.
            if !Arc::ptr_eq(&tree, &self.meta_tree()) {
                continue;
            }
            // Number 0 is the meta dnode's, which has no slot.
            let taken = on_disk | numbers.pending_slots(block) | u32::from(block == 0);
            return Ok(f(&mut numbers, taken));
        }
    }

    /// Claims a given number; false if any of its slots is occupied.
    pub(super) fn claim_number(&self, object: ObjectId, slots: u8) -> Result<bool> {
        let per = SLOTS_PER_BLOCK as u64;
        let mask = (((1u64 << slots) - 1) << (object.0 % per)) as u32;
        self.with_taken(object.0 / per, |numbers, taken| {
            let free = taken & mask == 0;
            if free {
                numbers.pend(object, slots);
            }
            free
        })
    }

    pub(super) fn next_number(&self, tx: &Tx, slots: u8) -> Result<ObjectId> {
        if let Some(object) = self.numbers.lock().take(slots) {
            return Ok(object);
        }
        let (mut block, wrap) = {
            let mut numbers = self.numbers.lock();
            let fresh = numbers.block == 0 && numbers.free == 0 && numbers.restarted == Txg::ZERO;
            if fresh {
                numbers.restarted = tx.txg();
                (0, false)
            } else {
                // For a few free slots the search through full blocks costs too much. Freed slots
                // are seen as free only when their txg is written, so once per txg is enough.
                let wrap = numbers.freed >= 1024 && numbers.restarted < tx.txg();
                (numbers.block + 1, wrap)
            }
        };
        if wrap {
            let mut numbers = self.numbers.lock();
            numbers.freed = 0;
            numbers.restarted = tx.txg();
            block = 0;
        }
        // Tiny object sets fill their first block; large ones are searched by fill count.
        while block < OBJECT_LIMIT / SLOTS_PER_BLOCK as u64 {
            block = self.next_roomy(block)?;
            let found = self.with_taken(block, |numbers, taken| {
                if numbers.free != 0
                    && let Some(object) = numbers.take(slots)
                {
                    return Some(object); // another thread found a block meanwhile
                }
                numbers.block = block;
                numbers.free = !taken;
                numbers.take(slots)
            })?;
            if let Some(object) = found {
                return Ok(object);
            }
            block += 1;
        }
        Err(Error::refused(
            Errno::NOSPC,
            format!("{}: no object numbers left", self.core.place),
        ))
    }

    /// The first dnode block at or after `block` that is not full by its pointer's fill count.
    fn next_roomy(&self, block: u64) -> Result<u64> {
        loop {
            let tree = self.meta_tree();
            match self.next_roomy_of(&tree, block) {
                // The tree was replaced and its blocks were reused while this thread slept: retry.
                Err(e) if self.meta.is_stale(&tree, &e) => {}
                other => return other,
            }
        }
    }

    fn next_roomy_of(&self, tree: &Synced, mut block: u64) -> Result<u64> {
        let shift = tree.fanout_shift();
        while block <= tree.head.max_block {
            // From high levels down, so that a full subtree is skipped at once.
            let mut skipped = false;
            for level in (0..tree.levels).rev() {
                let per = shift * u32::from(level);
                let bp = self.meta.lookup_bp(tree, level, block >> per.min(63))?;
                let full = (SLOTS_PER_BLOCK as u64)
                    .checked_shl(per)
                    .unwrap_or(u64::MAX);
                if bp.is_hole() {
                    return Ok(block);
                }
                if bp.fill() >= full {
                    block = ((block >> per) + 1) << per;
                    skipped = true;
                    break;
                }
            }
            if !skipped {
                return Ok(block);
            }
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::{NumberMap, Numbers, ObjectId, enter};
    use crate::Settings;
    use crate::dnode::DnodeSpec;
    use crate::zap::tests::pool::TestPool;

    #[test]
    #[should_panic(expected = "twice in memory")]
    fn an_object_is_in_memory_once() {
        let pool = TestPool::new(Settings::default());
        let dnode = pool.os.allocate(&pool.tx(), &DnodeSpec::new(19)).unwrap();
        let mut shard = NumberMap::default();
        enter(&mut shard, &dnode);
        enter(&mut shard, &dnode);
    }

    #[test]
    #[should_panic(expected = "is handed out twice")]
    fn a_slot_belongs_to_one_object() {
        let mut numbers = Numbers::default();
        numbers.pend(ObjectId(8), 4);
        numbers.pend(ObjectId(10), 1);
    }

    #[test]
    #[should_panic(expected = "is handed out twice")]
    fn a_number_that_an_object_in_memory_has_is_not_chosen() {
        let mut numbers = Numbers {
            free: 0b1100,
            ..Numbers::default()
        };
        numbers.pending.insert(2, 1);
        numbers.take(1);
    }
}

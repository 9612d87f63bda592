//! Shortcuts to cached blocks of one tree.
//!
//! ```text
//!   Synced ── Shortcuts ──► level-1 blocks, and the level-0 blocks that every operation needs
//!                 │         (a ZAP's header and table)
//!                 └──► level-1 block ── Children ──► its level-0 blocks (metadata only)
//! ```
//! Why: a random look-up in a large directory reads the header, a table block and a leaf. From the
//! top, each of them takes a hit of the block cache per level. Such a hit reads a pointer of 128
//! bytes, a shard lock and a hash table, each a miss of the processor's caches. A shortcut is one
//! slot.
//!
//! Rules
//! - A shortcut holds its block weakly: the cache alone decides what stays in memory.
//! - [`Shortcuts`] belongs to one [`Synced`](crate::dirty::Synced), [`Children`] to one version of
//!   a level-1 block. Neither ever changes, so a shortcut cannot lead to an old version.
//! - One use in about 64 goes through the cache, so that the cache knows that the block is in use.
//! - An encrypted block has no shortcut, because it must be looked up with its key.
//!
//! Budget: a use takes two locked operations, for taking and releasing the reference. A locked
//! operation takes 20 cycles even in the L1 cache, and delays everything after it. The first
//! shortcut to a block is written once and read without a lock. A second shortcut at the same slot
//! is protected by a lock (two more operations). So is a shortcut to a block that was evicted and
//! read again. A look-up in a fat ZAP uses three shortcuts.
//!
//! Memory: nothing for objects of one level. Otherwise, once used:
//! - 56 bytes for each level-1 block (4 to 64) and for each block of a ZAP (4 to 64);
//! - 24 bytes per pointer for each cached level-1 block of metadata, 48 if blocks were read again.
//!   These are charged to the cache (as 48) and dropped with it.

use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use zuse_base::sync::Mutex;

use zuse_base::Result;
use zuse_codec::read_soon_at;
use zuse_format::block_pointer::BP_SIZE;
use zuse_io::{Block, BlockIndex};

const FEWEST: usize = 4;
const MOST: usize = 64;
/// log2 of the number of uses of which one goes through the cache.
const USES: u32 = 6;

/// Chooses the uses that go through the cache: one of 64, spread evenly, so that no order of uses
/// leaves a block out. Each sequence starts elsewhere, by its address. So among many objects that
/// are used once each, one of 64 uses goes through the cache, too. Concurrent uses by two threads
/// may count as one. Nothing depends on that, and a locked operation would cost more.
#[derive(Default)]
struct Dice(AtomicU32);

impl Dice {
    #[inline]
    fn by_cache(&self) -> bool {
        let uses = self.0.load(Relaxed);
        self.0.store(uses.wrapping_add(1), Relaxed);
        let begin = std::ptr::from_ref(self).addr() / align_of::<Self>();
        // The golden ratio's fraction: its multiples are spread evenly, for any stride.
        let turn = (begin as u32).wrapping_add(uses).wrapping_mul(0x9e37_79b9);
        turn >> (u32::BITS - USES) == 0
    }
}

/// A block of the level and its number.
#[derive(Default)]
struct Slot {
    id: u64,
    block: Weak<Block>,
}

impl Slot {
    #[inline]
    fn get(&self, id: u64) -> Option<Arc<Block>> {
        if self.id == id {
            self.block.upgrade()
        } else {
            None
        }
    }
}

/// The first block at this place, and the latest one after it.
#[derive(Default)]
struct Place {
    first: OnceLock<Slot>,
    last: Mutex<Slot>,
    dice: Dice,
}

/// Places for the blocks of one level, by the low bits of their number.
#[derive(Default)]
struct Slots(OnceLock<Box<[Place]>>);

impl Slots {
    #[inline]
    fn get(
        &self,
        blocks: u64,
        id: u64,
        read: impl FnOnce() -> Result<Option<Arc<Block>>>,
    ) -> Result<Option<Arc<Block>>> {
        let places = self.0.get_or_init(|| {
            let want = usize::try_from(blocks).unwrap_or(MOST).clamp(FEWEST, MOST);
            std::iter::repeat_with(Place::default)
                .take(want.next_power_of_two())
                .collect()
        });
        let place = &places[id as usize & (places.len() - 1)];
        if !place.dice.by_cache() {
            let first = place.first.get();
            let found = first.and_then(|s| s.get(id)).or_else(|| {
                first?;
                place.last.lock().get(id)
            });
            if found.is_some() {
                return Ok(found);
            }
        }
        let block = read()?;
        if let Some(block) = &block {
            let slot = || Slot {
                id,
                block: Arc::downgrade(block),
            };
            let first = place.first.get_or_init(slot);
            if first.id != id || first.block.as_ptr() != Arc::as_ptr(block) {
                *place.last.lock() = slot();
            }
        }
        Ok(block)
    }
}

/// The shortcuts of one tree.
#[derive(Default)]
pub(crate) struct Shortcuts {
    indirect: Slots,
    data: Slots,
}

impl Shortcuts {
    /// The level-1 block of that number, of about `blocks` in all: by its shortcut, or by `read`,
    /// which returns `None` for a hole.
    #[inline]
    pub fn indirect(
        &self,
        blocks: u64,
        id: u64,
        read: impl FnOnce() -> Result<Option<Arc<Block>>>,
    ) -> Result<Option<Arc<Block>>> {
        self.indirect.get(blocks, id, read)
    }

    /// A level-0 block that every operation needs, of about `blocks` in all, in the same way.
    #[inline]
    pub fn data(
        &self,
        blocks: u64,
        id: u64,
        read: impl FnOnce() -> Result<Option<Arc<Block>>>,
    ) -> Result<Option<Arc<Block>>> {
        self.data.get(blocks, id, read)
    }
}

/// A tree that is derived from another one has its own shortcuts.
impl Clone for Shortcuts {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Shortcuts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shortcuts")
    }
}

/// A child, and the address of its bytes. They can be prefetched while the reference to the child
/// is still being taken.
#[derive(Default)]
struct Child {
    block: Weak<Block>,
    bytes: usize,
}

impl Child {
    fn of(block: &Arc<Block>) -> Self {
        Self {
            block: Arc::downgrade(block),
            bytes: block.bytes().as_ptr().addr(),
        }
    }

    /// The child, if it is still in memory. Prefetches its first bytes and those at `soon`.
    #[inline]
    fn get(&self, soon: usize) -> Option<Arc<Block>> {
        read_soon_at(self.bytes);
        // The end of the block's header, which is seldom in the same cache line as the reference
        // count.
        let place = Weak::as_ptr(&self.block).addr();
        read_soon_at(place.wrapping_add(size_of::<Block>() - 1));
        read_soon_at(self.bytes.wrapping_add(soon));
        self.block.upgrade()
    }
}

/// Shortcuts from a level-1 block to its children; they are kept with the cached block.
pub(crate) struct Children {
    /// The first block at each place.
    first: Box<[OnceLock<Child>]>,
    /// The latest block, for children that were evicted and read again.
    last: OnceLock<Box<[Mutex<Child>]>>,
    dice: Dice,
}

impl Children {
    /// None known yet.
    pub fn of(block: &[u8]) -> Self {
        Self::unknown(block.len() / BP_SIZE)
    }

    fn unknown(count: usize) -> Self {
        Self {
            first: std::iter::repeat_with(OnceLock::new).take(count).collect(),
            last: OnceLock::new(),
            dice: Dice::default(),
        }
    }

    /// The child, if it is known and still in memory. Prefetches its first bytes and those at
    /// `soon`.
    #[inline]
    pub fn get(&self, child: usize, soon: usize) -> Option<Arc<Block>> {
        if self.dice.by_cache() {
            return None;
        }
        let first = self.first.get(child)?.get()?;
        first
            .get(soon)
            .or_else(|| self.last.get()?.get(child)?.lock().get(soon))
    }

    /// Sets the child's block.
    pub fn set(&self, child: usize, block: &Arc<Block>) {
        let Some(first) = self.first.get(child) else {
            return;
        };
        let first = first.get_or_init(|| Child::of(block));
        if first.block.as_ptr() == Arc::as_ptr(block) {
            return;
        }
        let last = self.last.get_or_init(|| {
            let count = self.first.len();
            std::iter::repeat_with(Mutex::default).take(count).collect()
        });
        *last[child].lock() = Child::of(block);
    }
}

impl BlockIndex for Children {
    fn clone_index(&self) -> Box<dyn BlockIndex> {
        Box::new(Self::unknown(self.first.len()))
    }
    fn footprint(&self) -> usize {
        self.first.len() * (size_of::<OnceLock<Child>>() + size_of::<Mutex<Child>>())
            + size_of::<Self>()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn block(byte: u8) -> Arc<Block> {
        Arc::new(Block::new(vec![byte; 512]))
    }

    /// The results of a hundred uses, a few of which go through the cache.
    fn found(use_it: impl Fn() -> Option<Arc<Block>>) -> Vec<u8> {
        let mut bytes: Vec<u8> = std::iter::repeat_with(use_it)
            .take(100)
            .filter_map(|b| Some(b?.bytes()[0]))
            .collect();
        bytes.dedup();
        bytes
    }

    #[test]
    fn a_child_is_found_while_it_is_in_memory_and_when_it_came_back() {
        let children = Children::of(&[0; 4 * BP_SIZE]);
        let look = |child| found(|| children.get(child, 0));
        assert_eq!(look(1), []);
        for byte in 1..4 {
            let one = block(byte);
            children.set(1, &one);
            children.set(1, &one);
            assert_eq!(look(1), [byte]);
            assert_eq!((look(0), look(2)), (vec![], vec![]));
            drop(one);
            assert_eq!(look(1), []);
        }
        children.set(4, &block(9));
        assert_eq!(look(4), []);
    }

    #[test]
    fn blocks_that_share_a_place_are_told_apart() {
        let slots = Slots::default();
        let blocks: Vec<_> = (0..200).map(block).collect();
        let reads = Cell::new(0);
        let get = |id: usize| {
            let read = || {
                reads.set(reads.get() + 1);
                Ok(Some(blocks[id].clone()))
            };
            slots.get(200, id as u64, read).ok().flatten()
        };
        for id in (0..200).chain([0, 64, 128, 64, 0]) {
            assert_eq!(found(|| get(id)), [id as u8]);
        }
        // The first and the last at a place have a shortcut: only one use of 64 or so is a read.
        reads.set(0);
        for _ in 0..1000 {
            assert!(get(0).is_some() && get(64).is_some());
        }
        assert!((2..200).contains(&reads.get()), "{} reads", reads.get());
    }

    #[test]
    fn now_and_then_a_use_goes_by_the_cache_in_whatever_order() {
        // Every number of a round of 64 is chosen once.
        let dice = Dice::default();
        let mut turns = [0; 64];
        for i in 0..64 * 6400 {
            turns[i % 64] += u32::from(dice.by_cache());
        }
        assert!(turns.iter().all(|t| (20..500).contains(t)), "{turns:?}");
    }
}

//! Shortcuts to cached blocks of one tree.
//!
//! ```text
//!   Synced ── Near ──► level-1 blocks, and the level-0 blocks that every operation needs (a ZAP's header and table)
//!                 └──► level-1 block ── Children ──► its level-0 blocks (metadata only)
//! ```
//! A random look-up in a large directory reads the header, a table block and a leaf. By the way from the top each of
//! them is one hit of the block cache per level: a pointer of 128 bytes, a shard lock, a hash table, each a miss of the
//! processor's caches. Through a shortcut it is one slot.
//!
//! Rules
//! - A shortcut holds its block weakly: the cache alone decides what stays in memory.
//! - [`Near`] belongs to one [`Synced`](crate::dirty::Synced), [`Children`] to one version of a level-1 block. Neither ever
//!   changes: a shortcut cannot lead to an old version.
//! - Every 64th use goes by the cache, so that the cache knows that the block is in use.
//! - What is encrypted has no shortcut: it is found with the key only.
//!
//! Memory: nothing for objects of one level; otherwise, once used, 40 bytes for each level-1 block (4 to 64) and for each
//! block of a ZAP (4 to 64), and 24 bytes a pointer beside each cached level-1 block of metadata, charged to the cache and
//! dropped with it.

use std::any::Any;
use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use zuse_base::Result;
use zuse_codec::read_soon_at;
use zuse_format::block_pointer::BP_SIZE;
use zuse_io::{Block, BlockIndex};

const FEWEST: usize = 4;
const MOST: usize = 64;
const USES: u32 = 64;

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Slot {
    id: u64,
    uses: u32,
    block: Weak<Block>,
}

/// Slots for blocks of one level, by the low bits of their number.
#[derive(Default)]
struct Slots(OnceLock<Box<[Mutex<Slot>]>>);

impl Slots {
    #[inline]
    fn get(
        &self,
        blocks: u64,
        id: u64,
        read: impl FnOnce() -> Result<Option<Arc<Block>>>,
    ) -> Result<Option<Arc<Block>>> {
        let slots = self.0.get_or_init(|| {
            let want = usize::try_from(blocks).unwrap_or(MOST).clamp(FEWEST, MOST);
            let empty = || {
                Mutex::new(Slot {
                    id: 0,
                    uses: 0,
                    block: Weak::new(),
                })
            };
            std::iter::repeat_with(empty)
                .take(want.next_power_of_two())
                .collect()
        });
        let place = &slots[id as usize & (slots.len() - 1)];
        {
            let mut slot = lock(place);
            if slot.id == id && slot.uses > 0 {
                slot.uses -= 1;
                if let Some(block) = slot.block.upgrade() {
                    return Ok(Some(block));
                }
            }
        }
        let block = read()?;
        if let Some(block) = &block {
            *lock(place) = Slot {
                id,
                uses: USES,
                block: Arc::downgrade(block),
            };
        }
        Ok(block)
    }
}

/// The shortcuts of one tree.
#[derive(Default)]
pub(crate) struct Near {
    indirect: Slots,
    data: Slots,
}

impl Near {
    /// The level-1 block of that number, of about `blocks` in all, by its shortcut or by `read`, which says `None` for a hole.
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

/// A tree that is made out of another one has shortcuts of its own.
impl Clone for Near {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Near")
    }
}

/// Where a child is, and at which address its bytes begin: they can be asked for while the reference to it is still taken.
#[derive(Default)]
struct Child {
    block: Weak<Block>,
    bytes: usize,
}

/// Shortcuts from a level-1 block to its children; they ride with the cached block.
pub(crate) struct Children(Box<[Mutex<Child>]>);

impl Children {
    /// None known yet.
    pub fn of(block: &[u8]) -> Self {
        Self::unknown(block.len() / BP_SIZE)
    }

    fn unknown(count: usize) -> Self {
        Self(std::iter::repeat_with(Mutex::default).take(count).collect())
    }

    /// The child, if it is known and still in memory. Its first bytes and those at `soon` will be read soon.
    #[inline]
    pub fn get(&self, child: usize, soon: usize) -> Option<Arc<Block>> {
        thread_local!(static USE: Cell<u32> = const { Cell::new(0) });
        let now = USE.get().wrapping_add(1);
        USE.set(now);
        if now.is_multiple_of(USES) {
            return None;
        }
        let child = lock(self.0.get(child)?);
        read_soon_at(child.bytes);
        // The end of what says where they are: seldom in the same line of memory as the count of references.
        let place = Weak::as_ptr(&child.block).addr();
        read_soon_at(place.wrapping_add(size_of::<Block>() - 1));
        read_soon_at(child.bytes.wrapping_add(soon));
        child.block.upgrade()
    }

    /// From now on this is where the child is.
    pub fn set(&self, child: usize, block: &Arc<Block>) {
        if let Some(place) = self.0.get(child) {
            *lock(place) = Child {
                block: Arc::downgrade(block),
                bytes: block.bytes().as_ptr().addr(),
            };
        }
    }
}

impl BlockIndex for Children {
    fn clone_index(&self) -> Box<dyn BlockIndex> {
        Box::new(Self::unknown(self.0.len()))
    }
    fn footprint(&self) -> usize {
        size_of_val::<[Mutex<Child>]>(&self.0) + size_of::<Self>()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

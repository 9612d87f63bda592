//! Shortcuts to cached blocks of one tree: level-1 blocks, and level-0 blocks that every operation needs.
//!
//! A random look-up in a large directory reads the header, a table block and a leaf. By the way from the top each of
//! them is one hit of the block cache per level, with a shard lock and a hash; through a shortcut it is one slot.
//!
//! Rules
//! - A shortcut holds its block weakly: the cache alone decides what stays in memory.
//! - It belongs to one [`Synced`](crate::dirty::Synced), which never changes: it cannot lead to an old version.
//! - Every 32nd use goes by the cache, so that the cache knows that the block is in use.
//!
//! Memory: nothing for objects of one level; 256 bytes otherwise, once used.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use zuse_base::Result;
use zuse_io::Block;

const SLOTS: usize = 8;
const USES: u32 = 32;

struct Slot {
    level: u8,
    id: u64,
    uses: u32,
    block: Weak<Block>,
}

/// The shortcuts of one tree.
#[derive(Default)]
pub(crate) struct Near(OnceLock<Box<[Mutex<Slot>; SLOTS]>>);

impl Near {
    /// The block of that level and number, by its shortcut or by `read`, which says `None` for a hole.
    #[inline]
    pub fn get(
        &self,
        level: u8,
        id: u64,
        read: impl FnOnce() -> Result<Option<Arc<Block>>>,
    ) -> Result<Option<Arc<Block>>> {
        let slots = self.0.get_or_init(|| {
            Box::new(std::array::from_fn(|_| {
                Mutex::new(Slot {
                    level: u8::MAX,
                    id: 0,
                    uses: 0,
                    block: Weak::new(),
                })
            }))
        });
        // Half for each of the two kinds, so that they do not push each other out.
        let at = (id as usize & (SLOTS / 2 - 1)) | if level == 0 { SLOTS / 2 } else { 0 };
        let slot = || slots[at].lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut slot = slot();
            if slot.level == level && slot.id == id && slot.uses > 0 {
                slot.uses -= 1;
                if let Some(block) = slot.block.upgrade() {
                    return Ok(Some(block));
                }
            }
        }
        let block = read()?;
        if let Some(block) = &block {
            *slot() = Slot {
                level,
                id,
                uses: USES,
                block: Arc::downgrade(block),
            };
        }
        Ok(block)
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

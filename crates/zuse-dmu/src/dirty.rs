//! Dirty data of one object in one txg.
//!
//! ```text
//!   reader ──► newest DirtyTxg that knows the block ──► … ──► oldest ──► synced tree (cache, devices)
//! ```
//! Up to three txgs are alive, so an object has up to three [`DirtyTxg`], oldest first. Each holds
//! the object's whole head (its bonus and sizes) as of that txg. It also holds the level-0 blocks
//! written in it and the block ranges freed in it. Within one txg, a free comes before a write of
//! the same block id. Writing after freeing keeps both, freeing after writing drops the block.

use std::sync::{Arc, OnceLock};
use zuse_base::sync::{RwLock, RwLockWriteGuard};

use zuse_base::range_tree::{RangeTree, Span};
use zuse_base::{Result, Txg};
use zuse_format::BlockPointer;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{DNODE_CORE, DNODE_SLOT};
use zuse_io::{Block, BlockIndex, Loan, Reference};

use crate::bonus::Bonus;
use crate::dnode::shortcuts::Shortcuts;
use crate::stored::StoredBlock;
use crate::versions::Versions;

/// The properties of a dnode that open context can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub object_type: u8,
    pub bonus_type: u8,
    pub indirect_shift: u8,
    pub nblkptr: u8,
    pub checksum: u8,
    pub compress: u8,
    pub slots: u8,
    pub block_size: u32,
    pub max_block: u64,
    pub bonus: Bonus,
    /// Ciphertext after the used part of the bonus: raw object sets only.
    pub tail: Vec<u8>,
    /// Minimum number of levels of the tree, from the sender: raw object sets only.
    pub min_levels: u8,
}

impl Head {
    /// Bytes that the bonus may have, with room for a spill pointer if there is one.
    pub fn room(&self, has_spill: bool) -> usize {
        let size = usize::from(self.slots) * DNODE_SLOT;
        let pointers = usize::from(self.nblkptr) + usize::from(has_spill);
        size.saturating_sub(DNODE_CORE + BP_SIZE * pointers)
    }

    /// Everything except the bonus and what follows it.
    pub fn facts(&self) -> Self {
        Self {
            bonus: Bonus::default(),
            tail: Vec::new(),
            ..*self
        }
    }
}

/// An object as it is on disk, or will be once its objset block is written.
#[derive(Clone, Debug)]
pub(crate) struct Synced {
    pub head: Head,
    pub levels: u8,
    pub flags: u8,
    pub blkptr: Roots,
    pub used: u64,
    pub spill: Option<Box<BlockPointer>>,
    /// Shortcuts to blocks of this tree.
    pub shortcuts: Shortcuts,
}

/// The top block pointers of an object. Most new objects of a txg are empty files, and most others
/// have one pointer that is no hole. The former need one word, the latter eighteen, instead of 48.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots(Option<Box<Pointers>>);

#[derive(Clone, Debug)]
struct Pointers {
    first: BlockPointer,
    rest: Option<Box<[BlockPointer; 2]>>,
}

impl From<[BlockPointer; 3]> for Roots {
    fn from(pointers: [BlockPointer; 3]) -> Self {
        let mut roots = Self::default();
        for (i, bp) in pointers.into_iter().enumerate() {
            roots.set(i, bp);
        }
        roots
    }
}

impl Roots {
    /// The pointer at an index; a hole beyond the last one.
    pub fn at(&self, i: usize) -> &BlockPointer {
        match (&self.0, i) {
            (Some(pointers), 0) => &pointers.first,
            (Some(pointers), _) => pointers
                .rest
                .as_ref()
                .and_then(|r| r.get(i - 1))
                .unwrap_or(&BlockPointer::HOLE),
            (None, _) => &BlockPointer::HOLE,
        }
    }

    /// All three places.
    pub fn all(&self) -> [BlockPointer; 3] {
        std::array::from_fn(|i| *self.at(i))
    }

    /// Sets the pointer at an index.
    pub fn set(&mut self, i: usize, bp: BlockPointer) {
        if *self.at(i) == bp {
            return;
        }
        let pointers = self.0.get_or_insert_with(|| {
            Box::new(Pointers {
                first: BlockPointer::HOLE,
                rest: None,
            })
        });
        match i.checked_sub(1) {
            None => pointers.first = bp,
            Some(i) => {
                let none = || Box::new([BlockPointer::HOLE; 2]);
                pointers.rest.get_or_insert_with(none)[i] = bp;
            }
        }
    }
}

impl Synced {
    /// The top pointer of that index; `None` if the dnode has no such index.
    #[inline]
    pub fn root(&self, i: usize) -> Option<&BlockPointer> {
        (i < usize::from(self.head.nblkptr.min(3))).then(|| self.blkptr.at(i))
    }
}

/// What happens to the spill block in a txg.
#[derive(Clone, Debug, Default)]
pub(crate) enum SpillChange {
    #[default]
    Keep,
    /// Its bytes, and the loan for their memory, if they do not count as dirty bytes.
    Set(Arc<Block>, Option<Arc<Loan>>),
    Stored(Arc<StoredBlock>),
    Remove,
}

/// The content of a dirty block. Once written it is shared with the cache.
pub(crate) enum Content {
    Dirty {
        bytes: Vec<u8>,
        index: OnceLock<Box<dyn BlockIndex>>,
        /// The loan for its memory, if it does not count as dirty bytes.
        loan: Option<Loan>,
    },
    Clean(Arc<Block>),
    /// As it came in a stream: written unchanged, and decoded only if it is read before.
    Stored(StoredBlock),
    /// A clone of another block: its pointer is written, its bytes stay where they are.
    Cloned(Reference),
    /// Its bytes are written before its txg syncs.
    Early(Early),
}

/// The bytes of a version that is written before its txg syncs, because the intent log refers to
/// them.
pub(crate) struct Early {
    pub block: Arc<Block>,
    /// Where they are; `None` while they are being written, or if that failed.
    pub pointer: Option<BlockPointer>,
    loan: Option<Loan>,
}

impl Content {
    /// Makes bytes changeable again that were frozen early. The block already written is left to
    /// its txg, which frees it.
    pub fn thaw(&mut self) {
        let Self::Early(early) = self else { return };
        let (bytes, built) = (early.block.bytes().to_vec(), early.block.built_index());
        let index = built.map(|i| i.clone_index());
        let cell = OnceLock::new();
        if let Some(index) = index {
            let _ = cell.set(index);
        }
        *self = Self::Dirty {
            bytes,
            index: cell,
            loan: early.loan.take(),
        };
    }
}

/// One version of one block.
pub(crate) struct DirtyBlock {
    pub content: RwLock<Content>,
}

impl DirtyBlock {
    pub fn new(
        bytes: Vec<u8>,
        index: Option<Box<dyn BlockIndex>>,
        loan: Option<Loan>,
    ) -> Arc<Self> {
        let cell = OnceLock::new();
        if let Some(index) = index {
            let _ = cell.set(index);
        }
        Arc::new(Self {
            content: RwLock::new(Content::Dirty {
                bytes,
                index: cell,
                loan,
            }),
        })
    }

    /// A block as it came in a stream.
    pub fn stored(block: StoredBlock) -> Arc<Self> {
        Arc::new(Self {
            content: RwLock::new(Content::Stored(block)),
        })
    }

    /// A clone of another block.
    pub fn cloned(reference: Reference) -> Arc<Self> {
        Arc::new(Self {
            content: RwLock::new(Content::Cloned(reference)),
        })
    }

    /// Freezes bytes of an open txg that are to be written now. `None` if they are not in memory,
    /// or were written already.
    pub fn freeze_early(&self) -> Option<Arc<Block>> {
        let mut content = self.change();
        if let Content::Dirty { bytes, index, loan } = &mut *content {
            let bytes = std::mem::take(bytes);
            let block = Arc::new(Block::with_index(bytes, std::mem::take(index).into_inner()));
            let loan = loan.take();
            *content = Content::Early(Early {
                block,
                pointer: None,
                loan,
            });
        }
        match &*content {
            Content::Early(early) if early.pointer.is_none() => Some(early.block.clone()),
            _ => None,
        }
    }

    /// Notes the place of the frozen bytes, if this version still has the same bytes.
    pub fn note_place(&self, frozen: &Arc<Block>, pointer: &BlockPointer) {
        if let Content::Early(early) = &mut *self.change()
            && Arc::ptr_eq(&early.block, frozen)
        {
            early.pointer = Some(*pointer);
        }
    }

    /// Locks its content for a change.
    pub fn change(&self) -> RwLockWriteGuard<'_, Content> {
        self.content.write()
    }

    /// The address of its bytes, as a hint; 0 where there are none yet.
    pub fn bytes_at(&self) -> usize {
        match self.content.try_read().as_deref() {
            Some(Content::Dirty { bytes, .. }) => bytes.as_ptr().addr(),
            _ => 0,
        }
    }

    /// The pointer of a clone; `None` for a block with its own bytes.
    pub fn pointer(&self) -> Option<BlockPointer> {
        let content = self.content.read();
        match &*content {
            Content::Cloned(reference) => Some(*reference.pointer()),
            _ => None,
        }
    }

    /// Freezes the bytes: from now on they are shared with the cache. This version has no writers
    /// any more.
    ///
    /// # Errors
    /// A stored form does not decode.
    pub fn freeze(&self) -> Result<Arc<Block>> {
        let mut content = self.change();
        Ok(match &mut *content {
            Content::Clean(block) => block.clone(),
            Content::Early(early) => early.block.clone(),
            Content::Stored(stored) => Arc::new(Block::new(stored.decode()?)),
            Content::Cloned(reference) => return Err(elsewhere(reference)),
            Content::Dirty { bytes, index, .. } => {
                let mut bytes = std::mem::take(bytes);
                if bytes.capacity() > bytes.len() + bytes.len() / 8 + 64 {
                    bytes.shrink_to_fit();
                }
                let block = Arc::new(Block::with_index(bytes, std::mem::take(index).into_inner()));
                *content = Content::Clean(block.clone());
                block
            }
        })
    }

    /// A copy of the bytes and the index, for a newer version.
    ///
    /// # Errors
    /// A stored form does not decode.
    #[allow(clippy::type_complexity)]
    pub fn fork(&self) -> Result<(Vec<u8>, Option<Box<dyn BlockIndex>>)> {
        let content = self.content.read();
        Ok(match &*content {
            Content::Clean(block) | Content::Early(Early { block, .. }) => (
                block.bytes().to_vec(),
                block.built_index().map(|i| i.clone_index()),
            ),
            Content::Dirty { bytes, index, .. } => {
                (bytes.clone(), index.get().map(|i| i.clone_index()))
            }
            Content::Stored(stored) => (stored.decode()?, None),
            Content::Cloned(reference) => return Err(elsewhere(reference)),
        })
    }
}

/// A block whose bytes only the pipeline can read. A caller that gets here forgot
/// [`DirtyBlock::pointer`].
fn elsewhere(reference: &Reference) -> zuse_base::Error {
    zuse_base::Error::refused(
        zuse_base::Errno::INVAL,
        format!(
            "the bytes of a clone of {:?} are not here",
            reference.pointer().dva(0)
        ),
    )
}

/// Everything that one txg changes about one object.
pub(crate) struct DirtyTxg {
    pub txg: Txg,
    pub head: Head,
    pub blocks: Versions,
    pub freed: RangeTree,
    pub spill: SpillChange,
    /// The object was allocated in this txg.
    pub born: bool,
    /// The object is freed in this txg.
    pub dies: bool,
}

impl DirtyTxg {
    pub fn new(txg: Txg, head: Head) -> Self {
        Self {
            txg,
            head,
            blocks: Versions::default(),
            freed: RangeTree::new(),
            spill: SpillChange::Keep,
            born: false,
            dies: false,
        }
    }

    pub fn frees(&self, blkid: u64) -> bool {
        !self.freed.is_empty() && self.freed.find(blkid).is_some()
    }

    pub fn free(&mut self, first: u64, end: u64) -> usize {
        let gone = self.blocks.remove(first, end);
        // Older txgs and the disk may have the blocks as well.
        self.freed.add_missing(Span::between(first, end));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_stand_where_they_were_put() {
        let bp = |birth| BlockPointer::hole_with_birth(512, 20, 0, birth);
        for mask in 0..8u64 {
            let want: [BlockPointer; 3] = std::array::from_fn(|i| {
                if mask >> i & 1 == 1 {
                    bp(10 + i as u64)
                } else {
                    BlockPointer::HOLE
                }
            });
            let mut roots = Roots::from(want);
            assert_eq!(roots.all(), want);
            assert_eq!(*roots.at(3), BlockPointer::HOLE);
            roots.set(1, bp(99));
            roots.set(0, BlockPointer::HOLE);
            assert_eq!(roots.all(), [BlockPointer::HOLE, bp(99), want[2]]);
        }
        assert_eq!(size_of::<Roots>(), size_of::<usize>());
    }
}

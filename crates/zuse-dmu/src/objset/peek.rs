//! Reading objects as they are stored in their dnode blocks, without making an object in memory.
//! For callers that want a little of many objects.
//!
//! A result is always of the newest state. While a txg's change of an object is not yet in the meta
//! dnode's tree, that object is in memory. So bytes of the newest tree are current if the object is
//! not in memory. Each look ends with that question ([`Stored::is_newest`], [`Peek::look`]). If the
//! answer is no, the caller gets nothing.

use std::sync::Arc;

use zuse_base::ObjectId;
use zuse_codec::read_soon;
use zuse_format::block_pointer::BpKind;
use zuse_format::dnode::{DNODE_SLOT, OBJECT_LIMIT, SLOTS_PER_BLOCK};
use zuse_format::{BlockPointer, DnodeView};
use zuse_io::Block;

use super::{Objset, starts_of};
use crate::dirty::Synced;
use crate::dnode::blocks::{Cached, Parent};

/// So many blocks that have to be read tell that most of a directory's have to be.
const MANY: usize = 32;
/// Objects that are wanted of each dnode block, at least, for all blocks between them to be read.
const DENSE: u64 = 2;
/// Bytes of a block that lies in its pointer and is unpacked where it is looked at.
const SHORT: usize = 1024;

/// A look at several objects, in the order of their numbers.
pub struct Peek<'a> {
    os: &'a Objset,
    tree: Arc<Synced>,
    /// Dnode blocks that are at hand, by number.
    blocks: Vec<(u64, Arc<Block>)>,
    /// Where in `blocks` the last look was.
    at: usize,
    /// Whether blocks that are not at hand are read.
    reads: bool,
}

/// Asks the processor for what a look at a common file reads: the dnode's core, and the bonus
/// behind one block pointer.
pub(super) fn ask_for(block: &Block, slot: usize) {
    if let Some(dnode) = block
        .bytes()
        .get(slot * DNODE_SLOT..(slot + 1) * DNODE_SLOT)
    {
        read_soon(&dnode[..64]);
        read_soon(&dnode[192..384]);
    }
}

impl Objset {
    /// Those of their dnode blocks that are at hand, and the numbers of the others. `parent` is
    /// where the last was found.
    fn cached_of(
        &self,
        tree: &Synced,
        objects: impl Iterator<Item = ObjectId>,
        parent: &mut Parent,
    ) -> (Vec<(u64, Arc<Block>)>, Vec<u64>) {
        let (mut blocks, mut missing) = (Vec::<(u64, Arc<Block>)>::new(), Vec::new());
        let mut last = None;
        for object in objects {
            let blkid = object.0 / SLOTS_PER_BLOCK as u64;
            let slot = (object.0 % SLOTS_PER_BLOCK as u64) as usize;
            if last.replace(blkid) == Some(blkid) || blkid > tree.head.max_block {
                if let Some((_, block)) = blocks.last().filter(|(id, _)| *id == blkid) {
                    ask_for(block, slot);
                }
                continue;
            }
            match self.meta.cached(tree, blkid, parent) {
                Cached::Block(block) => {
                    ask_for(&block, slot);
                    blocks.push((blkid, block));
                }
                Cached::Nothing => {}
                Cached::No => missing.push(blkid),
            }
        }
        (blocks, missing)
    }

    /// As [`Self::peek`], at those only that can be seen without a device read.
    pub fn peek_cached(&self, objects: impl Iterator<Item = ObjectId>) -> Peek<'_> {
        let tree = self.meta_tree();
        let (blocks, _) = self.cached_of(&tree, objects, &mut None);
        Peek {
            os: self,
            tree,
            blocks,
            at: 0,
            reads: false,
        }
    }

    /// A look at objects, in the order of their numbers, without putting them into memory. Their
    /// dnode blocks are gathered first; those that have to be read are asked for together.
    ///
    /// The caller will look at `in_all` objects in the end, of which these are a random part. If
    /// they stand close together, all dnode blocks between the first and the last are read at once,
    /// in the order of their places.
    pub fn peek(&self, objects: impl Iterator<Item = ObjectId>, in_all: u64) -> Peek<'_> {
        let tree = self.meta_tree();
        let mut parent = None;
        let (mut blocks, mut missing) = self.cached_of(&tree, objects, &mut parent);
        if let (Some(&first), Some(&last)) = (missing.first(), missing.last())
            && missing.len() >= MANY
            && (last - first).saturating_mul(DENSE) <= in_all
        {
            self.gather_dnode_blocks(&tree, first..=last);
            missing.retain(|&blkid| match self.meta.cached(&tree, blkid, &mut parent) {
                Cached::Block(block) => {
                    blocks.push((blkid, block));
                    false
                }
                Cached::Nothing => false,
                Cached::No => true,
            });
            blocks.sort_unstable_by_key(|(blkid, _)| *blkid);
        }
        self.meta.prefetch_these(&missing);
        Peek {
            os: self,
            tree,
            blocks,
            at: 0,
            reads: true,
        }
    }

    /// What `f` makes of one object as it stands in its dnode block, without putting it into
    /// memory. `None` when it is in memory, is none, or does not parse: [`Objset::dnode`] knows
    /// more.
    pub fn look_at<R>(
        &self,
        object: ObjectId,
        f: impl FnOnce(&DnodeView<'_>) -> Option<R>,
    ) -> Option<R> {
        let stored = self.stored_uncached(object)?;
        let found = f(&stored.dnode()?);
        found.filter(|_| stored.is_newest())
    }

    /// One object as it stands in its dnode block, without putting it into memory. Who takes one
    /// after the other has the next blocks brought, as with [`Objset::dnode`]. `None` as of
    /// [`Objset::look_at`].
    pub fn stored(self: &Arc<Self>, object: ObjectId) -> Option<Stored<'_>> {
        let misses = self.io().cache().misses();
        let stored = self.stored_uncached(object)?;
        let was_read = self.io().cache().misses() != misses;
        let blkid = object.0 / SLOTS_PER_BLOCK as u64;
        self.dnode_block_was_needed(&stored.tree, blkid, was_read);
        Some(stored)
    }

    /// As [`Self::stored`]; nothing is prefetched for a caller that asks for the next ones.
    pub(crate) fn stored_uncached(&self, object: ObjectId) -> Option<Stored<'_>> {
        if object.0 == 0 || object.0 >= OBJECT_LIMIT || !self.has_dnode(object) {
            return None;
        }
        let tree = self.meta_tree();
        let block = self
            .dnode_block(&tree, object.0 / SLOTS_PER_BLOCK as u64)
            .ok()??;
        let slot = (object.0 % SLOTS_PER_BLOCK as u64) as usize;
        ask_for(&block, slot);
        if starts_of(&block) >> slot & 1 == 0 || self.is_in_memory(object) {
            return None;
        }
        Some(Stored {
            os: self,
            tree,
            block,
            object,
        })
    }

    pub(crate) fn is_in_memory(&self, object: ObjectId) -> bool {
        self.core
            .shard(object)
            .lock()
            .get(&object.0)
            .is_some_and(|weak| weak.strong_count() > 0)
    }
}

/// An object as it stands in its dnode block. What is read through it may be outdated, or even be
/// something else by now, until [`Stored::is_newest`] has said that it is not. Nothing is held by
/// it.
pub struct Stored<'a> {
    os: &'a Objset,
    tree: Arc<Synced>,
    block: Arc<Block>,
    object: ObjectId,
}

impl Stored<'_> {
    /// The dnode, if it parses.
    pub fn dnode(&self) -> Option<DnodeView<'_>> {
        let slot = (self.object.0 % SLOTS_PER_BLOCK as u64) as usize;
        DnodeView::parse(self.block.bytes().get(slot * DNODE_SLOT..)?).ok()?
    }

    /// Asks the processor for the object behind it, which was probably made right after it and will
    /// be looked at soon.
    pub fn ask_for_next(&self) {
        let slot = (self.object.0 % SLOTS_PER_BLOCK as u64) as usize;
        ask_for(&self.block, slot + 1);
    }

    /// The block that it stands in.
    pub fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Whether this is the newest state of the object still, and what was read through it before is
    /// part of that.
    pub fn is_newest(&self) -> bool {
        !self.os.is_in_memory(self.object) && self.os.is_meta_tree(&self.tree)
    }

    /// The spill block; `None` without one, or if it cannot be read.
    pub fn spill(&self) -> Option<Arc<Block>> {
        self.read(&self.dnode()?.spill()?, true)
    }

    /// The only block of an object that has one, which is no hole; `None` of others, or if it
    /// cannot be read.
    pub fn only_block(&self) -> Option<Arc<Block>> {
        self.read_whole(&self.only()?)
    }

    /// The pointer of an object's only block; `None` of an object that has more.
    pub fn only_pointer(&self) -> Option<BlockPointer> {
        self.only().map(|(bp, _, _)| bp)
    }

    /// What `f` makes of the bytes of [`Self::only_block`]. Those of a short block that lies in its
    /// pointer need no memory.
    pub fn with_only_block<R>(&self, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let only = self.only()?;
        let (bp, len, _) = only;
        let mut short = [0; SHORT];
        match short.get_mut(..len) {
            Some(bytes) if bp.kind() == BpKind::Embedded && self.os.core.key.is_none() => {
                let io = &self.os.core.io;
                io.embedded_into(&bp, bytes, &"a stored object").ok()?;
                Some(f(bytes))
            }
            _ => Some(f(self.read_whole(&only)?.bytes())),
        }
    }

    fn read_whole(&self, (bp, len, metadata): &(BlockPointer, usize, bool)) -> Option<Arc<Block>> {
        let block = self.read(bp, *metadata)?;
        (block.bytes().len() == *len).then_some(block)
    }

    /// Where the only block is, how long it is, and whether it is metadata.
    fn only(&self) -> Option<(BlockPointer, usize, bool)> {
        let dnode = self.dnode()?;
        if dnode.levels() != 1 || dnode.max_block_id() != 0 {
            return None;
        }
        let metadata = zuse_format::object_type::is_metadata(dnode.object_type());
        let len = usize::from(dnode.data_block_sectors()) * 512;
        Some((dnode.blkptr(0), len, metadata))
    }

    fn read(&self, bp: &BlockPointer, metadata: bool) -> Option<Arc<Block>> {
        if matches!(bp.kind(), BpKind::Hole | BpKind::Redacted) || bp.level() != 0 {
            return None;
        }
        self.os
            .core
            .read_block(bp, metadata, &"a stored object")
            .ok()
    }
}

impl Peek<'_> {
    /// What `f` makes of an object. `None` when it does not want to, and when the object is in
    /// memory, is none, or cannot be read: [`Objset::dnode`] knows more.
    pub fn look<R>(
        &mut self,
        object: ObjectId,
        f: impl FnOnce(&DnodeView<'_>) -> Option<R>,
    ) -> Option<R> {
        if object.0 == 0 || object.0 >= OBJECT_LIMIT || self.os.is_in_memory(object) {
            return None;
        }
        if !self.os.has_dnode(object) {
            return None;
        }
        let found = self.read(object, f);
        if self.os.is_meta_tree(&self.tree) {
            return found;
        }
        self.tree = self.os.meta_tree();
        self.blocks.clear();
        None
    }

    fn read<R>(
        &mut self,
        object: ObjectId,
        f: impl FnOnce(&DnodeView<'_>) -> Option<R>,
    ) -> Option<R> {
        let blkid = object.0 / SLOTS_PER_BLOCK as u64;
        while self.blocks.get(self.at).is_some_and(|(id, _)| *id < blkid) {
            self.at += 1;
        }
        if self.blocks.get(self.at).is_none_or(|(id, _)| *id != blkid) {
            if !self.reads {
                return None;
            }
            let block = self.os.dnode_block(&self.tree, blkid).ok()??;
            self.at = self.blocks.partition_point(|(id, _)| *id < blkid);
            self.blocks.insert(self.at, (blkid, block));
        }
        let (_, block) = self.blocks.get(self.at)?;
        let slot = (object.0 % SLOTS_PER_BLOCK as u64) as usize;
        if starts_of(block) >> slot & 1 == 0 {
            return None;
        }
        let view = DnodeView::parse(block.bytes().get(slot * DNODE_SLOT..)?).ok()??;
        f(&view)
    }
}

//! Reading objects in their dnode blocks, without creating a [`Dnode`](crate::Dnode) in memory. For
//! callers that read a little of many objects.
//!
//! A result is always of the newest state. While a change of an object is not yet in the meta
//! dnode's tree, that object is in memory. So the newest tree has the current state of every object
//! that is not in memory. Each access ends with that check ([`Stored::is_newest`], [`Peek::look`]).
//! If it fails, the caller gets nothing.

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

/// If this many blocks have to be read, most of a directory's probably have to be.
const MANY: usize = 32;
/// Objects needed per dnode block, at least, for all blocks between them to be read.
const DENSE: u64 = 2;
/// Largest embedded block that is unpacked on the stack.
const SHORT: usize = 1024;

/// Access to several objects, in the order of their numbers.
pub struct Peek<'a> {
    os: &'a Objset,
    tree: Arc<Synced>,
    /// Dnode blocks that are cached, by number.
    blocks: Vec<(u64, Arc<Block>)>,
    /// Where in `blocks` the last look was.
    at: usize,
    /// Whether missing blocks are read.
    reads: bool,
}

/// Prefetches the parts of a common file's dnode that will be read: the core, and the bonus after
/// one block pointer.
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
    /// The cached blocks among the dnode blocks of these objects, and the numbers of the others.
    /// `parent` caches the last used level-1 block.
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

    /// As [`Self::peek`], for objects in cached blocks only.
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

    /// Access to objects, in the order of their numbers, without loading them into memory. Their
    /// dnode blocks are gathered first, and missing ones are read together.
    ///
    /// The caller will need `in_all` objects in the end, of which these are a random sample. If
    /// they are dense, all dnode blocks between the first and the last are read, in device order.
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

    /// Calls `f` on one object in its dnode block, without loading it into memory. `None` if it is
    /// in memory, does not exist, or does not parse: then use [`Objset::dnode`].
    pub fn look_at<R>(
        &self,
        object: ObjectId,
        f: impl FnOnce(&DnodeView<'_>) -> Option<R>,
    ) -> Option<R> {
        let stored = self.stored_uncached(object)?;
        let found = f(&stored.dnode()?);
        found.filter(|_| stored.is_newest())
    }

    /// One object in its dnode block, without loading it into memory. For a sequence of objects the
    /// next blocks are prefetched, as with [`Objset::dnode`]. `None` as in [`Objset::look_at`].
    pub fn stored(self: &Arc<Self>, object: ObjectId) -> Option<Stored<'_>> {
        let misses = self.io().cache().misses();
        let stored = self.stored_uncached(object)?;
        let was_read = self.io().cache().misses() != misses;
        let blkid = object.0 / SLOTS_PER_BLOCK as u64;
        self.dnode_block_was_needed(&stored.tree, blkid, was_read);
        Some(stored)
    }

    /// As [`Self::stored`], without prefetching.
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
        // In memory it may have changes that are not in the block.
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

/// An object in its dnode block. What is read through it may be outdated, or belong to another
/// object by now, until [`Stored::is_newest`] returns true. It holds no lock.
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

    /// Prefetches the object after it, which was probably created next and will be read soon.
    pub fn ask_for_next(&self) {
        let slot = (self.object.0 % SLOTS_PER_BLOCK as u64) as usize;
        ask_for(&self.block, slot + 1);
    }

    /// Its dnode block.
    pub fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Whether this still is the newest state of the object. Then everything that was read through
    /// it before is part of that state.
    pub fn is_newest(&self) -> bool {
        !self.os.is_in_memory(self.object) && self.os.is_meta_tree(&self.tree)
    }

    /// The spill block; `None` without one, or if it cannot be read.
    pub fn spill(&self) -> Option<Arc<Block>> {
        self.read(&self.dnode()?.spill()?, true)
    }

    /// The only block of an object with one block that is no hole. `None` for other objects, or if
    /// it cannot be read.
    pub fn only_block(&self) -> Option<Arc<Block>> {
        self.read_whole(&self.only()?)
    }

    /// The pointer of an object's only block; `None` for an object with more blocks.
    pub fn only_pointer(&self) -> Option<BlockPointer> {
        self.only().map(|(bp, _, _)| bp)
    }

    /// Calls `f` on the bytes of [`Self::only_block`]. A short embedded block needs no allocation.
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

    /// The pointer of the only block, its size, and whether it is metadata.
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
    /// Calls `f` on an object. `None` if `f` returns it, or if the object is in memory, does not
    /// exist, or cannot be read: then use [`Objset::dnode`].
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

//! Access to whole blocks: the newest version of a block, and copy-on-write edits.
//!
//! Budget: a read of a dirty block is the state lock (shared), one B-tree search and the block's
//! lock. A read of a clean block is one cache hit per level; recent level-1 blocks are found by a
//! shortcut ([`super::shortcuts`]). An edit after the first in a txg is the same as a dirty read.

use std::sync::{Arc, OnceLock};

use zuse_base::{Errno, Error, Place, Result, ZEROS};
use zuse_format::BlockPointer;
use zuse_format::block_pointer::BP_SIZE;
use zuse_io::{Block, BlockIndex, Loan};

use super::shortcuts::Children;
use super::{Dnode, State};
use crate::dirty::{Content, DirtyBlock, Early, Head, Synced};
use crate::stored::StoredBlock;
use crate::tx::Tx;

mod clones;
pub(super) mod early;
mod shape;

/// A new metadata object with more blocks than this will probably grow in the next txg, too. It is
/// a directory, and new names fall into any of its leaves.
const GROWING: u64 = 256;

/// A block as a reader sees it: decoded, little-endian.
pub struct BlockView<'a> {
    bytes: &'a [u8],
    index: IndexCell<'a>,
}

enum IndexCell<'a> {
    Cell(&'a OnceLock<Box<dyn BlockIndex>>),
    Block(&'a Block),
}

impl<'a> BlockView<'a> {
    /// The bytes, `block_size` of them.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The index kept with the block, built on first use.
    ///
    /// # Panics
    /// If an index of another type is kept with this block: a block has one kind of reader.
    #[allow(clippy::should_implement_trait)]
    pub fn index<I: BlockIndex>(&self, build: impl FnOnce(&[u8]) -> I) -> &'a I {
        let found = match self.index {
            IndexCell::Cell(cell) => cell
                .get_or_init(|| Box::new(build(self.bytes)))
                .as_any()
                .downcast_ref(),
            IndexCell::Block(block) => block.index(build),
        };
        match found {
            Some(index) => index,
            None => panic!("a block has two kinds of index"),
        }
    }
}

/// A block being changed.
pub struct BlockEdit<'a> {
    bytes: &'a mut Vec<u8>,
    index: &'a mut OnceLock<Box<dyn BlockIndex>>,
}

impl BlockEdit<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The bytes, to change. An existing index stays: the caller updates it, or drops it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Drops the index, because the caller does not update it with the bytes.
    pub fn drop_index(&mut self) {
        self.index.take();
    }

    /// The bytes and their index (built if there is none of this type), to change together.
    pub fn index_mut<I: BlockIndex>(
        &mut self,
        build: impl FnOnce(&[u8]) -> I,
    ) -> (&mut [u8], &mut I) {
        if self.index.get().is_none_or(|i| !i.as_any().is::<I>()) {
            self.index.take();
            let _ = self.index.set(Box::new(build(self.bytes)));
        }
        match self
            .index
            .get_mut()
            .and_then(|i| i.as_any_mut().downcast_mut())
        {
            Some(index) => (self.bytes, index),
            None => unreachable!("the index was just set"),
        }
    }
}

/// Where the newest version of a block is.
pub(super) enum Found {
    Dirty(Arc<DirtyBlock>),
    Hole,
    Tree(Arc<Synced>),
}

impl State {
    pub(super) fn find(&self, blkid: u64) -> Found {
        for d in self.dirty.iter().rev() {
            if let Some(block) = d.blocks.get(blkid) {
                return Found::Dirty(block.clone());
            }
            // It hides what older txgs and the disk have at this number.
            if d.born || d.frees(blkid) {
                return Found::Hole;
            }
        }
        match &self.synced {
            Some(s) => Found::Tree(s.clone()),
            None => Found::Hole,
        }
    }
}

/// The last used level-1 block, with its number.
pub(crate) type Parent = Option<(u64, Arc<Block>)>;

/// What [`Dnode::cached`] found.
pub(crate) enum Cached {
    /// The block, in the cache.
    Block(Arc<Block>),
    /// There is nothing to read: a hole.
    Nothing,
    /// The block must be read from a device.
    No,
}

impl Dnode {
    fn block_place(&self, level: u8, blkid: u64) -> BlockPlace<'_> {
        BlockPlace {
            dnode: self,
            level,
            blkid,
        }
    }

    /// The pointer to a block of a tree, found from the top. Everything below a hole is a hole.
    pub(crate) fn lookup_bp(&self, tree: &Synced, level: u8, blkid: u64) -> Result<BlockPointer> {
        let shift = tree.fanout_shift();
        let mut at = tree.levels - 1;
        if level > at {
            return Ok(BlockPointer::HOLE);
        }
        let top = shifted(blkid, shift * u32::from(at - level));
        let Some(mut bp) = tree.root(top as usize).copied() else {
            return Ok(BlockPointer::HOLE);
        };
        while at > level {
            if bp.is_hole() {
                return Ok(BlockPointer::HOLE);
            }
            let place = self.block_place(at, shifted(blkid, shift * u32::from(at - level)));
            self.check_level(&bp, at, &place)?;
            let block = place.read(&bp, true)?;
            at -= 1;
            let child = shifted(blkid, shift * u32::from(at - level)) & ((1 << shift) - 1);
            bp = pointer_in(&block, child, &place)?;
        }
        if !bp.is_hole() {
            self.check_level(&bp, level, &self.block_place(level, blkid))?;
        }
        Ok(bp)
    }

    fn check_level(&self, bp: &BlockPointer, level: u8, place: &BlockPlace<'_>) -> Result<()> {
        if bp.level() == level {
            return Ok(());
        }
        Err(Error::contradiction(
            place.to_string(),
            format!("its pointer says level {}", bp.level()),
        ))
    }

    /// The level-1 block above a level-0 one, by the tree's shortcuts; `None` for a hole.
    fn parent(&self, tree: &Synced, blkid: u64) -> Result<Option<Arc<Block>>> {
        let shift = tree.fanout_shift();
        let id = shifted(blkid, shift);
        let blocks = shifted(tree.head.max_block, shift).saturating_add(1);
        tree.shortcuts.indirect(blocks, id, || {
            let bp = self.lookup_bp(tree, 1, id)?;
            if bp.is_hole() {
                return Ok(None);
            }
            let place = self.block_place(1, id);
            place.read(&bp, true).map(Some)
        })
    }

    /// A level-0 block of a tree; `None` for a hole.
    #[inline]
    pub(crate) fn read_tree(&self, tree: &Synced, blkid: u64) -> Result<Option<Arc<Block>>> {
        self.read_tree_soon(tree, blkid, 0)
    }

    /// As [`Self::read_tree`], if the bytes at `soon` will be needed next.
    pub(crate) fn read_tree_soon(
        &self,
        tree: &Synced,
        blkid: u64,
        soon: usize,
    ) -> Result<Option<Arc<Block>>> {
        self.check_received(blkid, tree.head.block_size)?;
        if tree.levels < 2 {
            let bp = self.lookup_bp(tree, 0, blkid)?;
            return self.read_child(&tree.head, blkid, &bp);
        }
        let Some(parent) = self.parent(tree, blkid)? else {
            return Ok(None);
        };
        let child = blkid & ((1 << tree.fanout_shift()) - 1);
        let size = tree.head.block_size as usize;
        // File data is usually read once and in order, and needs no shortcuts.
        let children = if zuse_format::object_type::is_metadata(tree.head.object_type) {
            parent.index(Children::of)
        } else {
            None
        };
        if let Some(block) = children.and_then(|c| c.get(child as usize, soon))
            && block.bytes().len() == size
        {
            return Ok(Some(block));
        }
        let id = shifted(blkid, tree.fanout_shift());
        let bp = pointer_in(&parent, child, &self.block_place(1, id))?;
        if !bp.is_hole() {
            self.check_level(&bp, 0, &self.block_place(0, blkid))?;
        }
        let block = self.read_child(&tree.head, blkid, &bp)?;
        // No shortcut to decrypted bytes: they must not be found after their key is unloaded.
        if let (Some(children), Some(block), false) = (children, &block, bp.uses_crypt()) {
            children.set(child as usize, block);
        }
        Ok(block)
    }

    /// As [`Self::read_tree`], by a shortcut: for the few blocks of an object that most operations
    /// need.
    #[inline]
    pub(crate) fn read_tree_by_shortcut(
        &self,
        tree: &Synced,
        blkid: u64,
    ) -> Result<Option<Arc<Block>>> {
        if tree.levels > 1 {
            let blocks = tree.head.max_block.saturating_add(1);
            tree.shortcuts
                .data(blocks, blkid, || self.read_tree(tree, blkid))
        } else {
            self.read_tree(tree, blkid)
        }
    }

    /// A level-0 block by its pointer; `None` for a hole.
    pub(super) fn read_child(
        &self,
        head: &Head,
        blkid: u64,
        bp: &BlockPointer,
    ) -> Result<Option<Arc<Block>>> {
        if bp.is_hole() {
            return Ok(None);
        }
        // An encrypted block is read with the key only. The cache may still hold blocks that were
        // decrypted with a key that is unloaded.
        if !bp.uses_crypt()
            && let Some(block) = self.core.io.cached(bp)
            && block.bytes().len() == head.block_size as usize
        {
            return Ok(Some(block));
        }
        let place = self.block_place(0, blkid);
        let metadata = zuse_format::object_type::is_metadata(head.object_type);
        let block = place.read(bp, metadata)?;
        if block.bytes().len() != head.block_size as usize {
            return Err(Error::contradiction(
                place.to_string(),
                format!(
                    "the block has {} bytes, its object's blocks have {}",
                    block.bytes().len(),
                    head.block_size
                ),
            ));
        }
        Ok(Some(block))
    }

    /// A block of a tree, if no device read is needed. `parent` caches the last used level-1 block,
    /// which consecutive blocks share.
    pub(crate) fn cached(&self, tree: &Synced, blkid: u64, parent: &mut Parent) -> Cached {
        let shift = tree.fanout_shift();
        let mut at = tree.levels - 1;
        let child_of = |block: &Block, at: u8| {
            let child = shifted(blkid, shift * u32::from(at)) & ((1 << shift) - 1);
            BlockPointer::at(block.bytes(), child as usize * BP_SIZE)
        };
        let mut next = match parent {
            Some((id, block)) if at > 0 && *id == shifted(blkid, shift) => {
                let child = blkid & ((1 << shift) - 1);
                // A block that was found once has a shortcut.
                if let Some(there) = block
                    .index(Children::of)
                    .and_then(|c| c.get(child as usize, 0))
                    && there.bytes().len() == tree.head.block_size as usize
                {
                    return Cached::Block(there);
                }
                at = 0;
                child_of(block, 0)
            }
            _ => {
                let top = shifted(blkid, shift * u32::from(at));
                usize::try_from(top)
                    .ok()
                    .and_then(|top| tree.root(top))
                    .copied()
            }
        };
        loop {
            let Some(bp) = next.filter(|bp| bp.kind() == zuse_format::BpKind::Normal) else {
                return Cached::Nothing;
            };
            if bp.level() != at {
                // The regular read reports the error.
                return Cached::No;
            }
            if at == 0 {
                // Only a read with the key may return it, as in `read_child`.
                let there = if bp.uses_crypt() {
                    None
                } else {
                    self.core.io.cached(&bp)
                };
                return match there {
                    Some(block) if block.bytes().len() == tree.head.block_size as usize => {
                        let children = parent.as_ref().and_then(|(_, p)| p.index(Children::of));
                        if let Some(children) = children {
                            children.set((blkid & ((1 << shift) - 1)) as usize, &block);
                        }
                        Cached::Block(block)
                    }
                    _ => Cached::No,
                };
            }
            let Some(block) = self.core.io.peek(&bp) else {
                return Cached::No;
            };
            at -= 1;
            next = child_of(&block, at);
            if at == 0 {
                *parent = Some((shifted(blkid, shift), block));
            }
        }
    }

    /// Runs `f` on the current bytes of a block: the newest dirty version, else what is on disk.
    /// Holes are zeros.
    ///
    /// `f` must not do I/O or touch another block: for a dirty block it runs under the block's
    /// lock.
    ///
    /// # Errors
    /// The block, or an indirect block above it, cannot be read.
    pub fn with_block<R>(&self, blkid: u64, f: impl FnOnce(BlockView<'_>) -> R) -> Result<R> {
        self.with_block_of(blkid, false, f)
    }

    /// As [`Self::with_block`], by a shortcut: for the few blocks of an object that most operations
    /// need.
    ///
    /// # Errors
    /// As [`Self::with_block`].
    pub(crate) fn with_block_by_shortcut<R>(
        &self,
        blkid: u64,
        f: impl FnOnce(BlockView<'_>) -> R,
    ) -> Result<R> {
        self.with_block_of(blkid, true, f)
    }

    #[inline]
    fn with_block_of<R>(
        &self,
        blkid: u64,
        by_shortcut: bool,
        f: impl FnOnce(BlockView<'_>) -> R,
    ) -> Result<R> {
        let read = |tree: &Arc<Synced>| {
            if by_shortcut {
                self.read_tree_by_shortcut(tree, blkid)
            } else {
                self.read_tree(tree, blkid)
            }
        };
        loop {
            let (found, size) = {
                let state = self.read_state();
                (
                    state.find(blkid),
                    state.head().map_or(0, |h| h.block_size as usize),
                )
            };
            return match found {
                Found::Dirty(block) => {
                    let content = block.content.read();
                    let bp = match &*content {
                        Content::Dirty { bytes, index, .. } => {
                            return Ok(with_len(bytes, size, IndexCell::Cell(index), f));
                        }
                        Content::Clean(block) | Content::Early(Early { block, .. }) => {
                            return Ok(with_len(block.bytes(), size, IndexCell::Block(block), f));
                        }
                        Content::Stored(stored) => {
                            let cell = OnceLock::new();
                            let bytes = stored.decode()?;
                            return Ok(with_len(&bytes, size, IndexCell::Cell(&cell), f));
                        }
                        Content::Cloned(reference) => *reference.pointer(),
                    };
                    // The block is read from a device, so its version's lock is released.
                    drop(content);
                    let block = self.read_pointer(blkid, &bp)?;
                    Ok(with_len(block.bytes(), size, IndexCell::Block(&block), f))
                }
                Found::Tree(tree) => match read(&tree) {
                    Ok(Some(block)) => {
                        Ok(with_len(block.bytes(), size, IndexCell::Block(&block), f))
                    }
                    Ok(None) => Ok(with_zeros(size, f)),
                    Err(e) if self.is_stale(&tree, &e) => continue,
                    Err(e) => Err(e),
                },
                Found::Hole => {
                    self.check_received(blkid, size as u32)?;
                    Ok(with_zeros(size, f))
                }
            };
        }
    }

    /// Changes a block in tx's txg. The first change in a txg copies the block once; later ones are
    /// in place.
    ///
    /// `f` runs under the block's lock: no I/O, no other block inside.
    ///
    /// # Errors
    /// The old content cannot be read; the object is free; the id needs a power-of-two block size.
    pub fn edit_block<R>(
        &self,
        tx: &Tx,
        blkid: u64,
        f: impl FnOnce(BlockEdit<'_>) -> R,
    ) -> Result<R> {
        self.edit_block_soon(tx, blkid, 0, f)
    }

    /// As [`Self::edit_block`], if the bytes at `soon` will be needed next.
    pub(crate) fn edit_block_soon<R>(
        &self,
        tx: &Tx,
        blkid: u64,
        soon: usize,
        f: impl FnOnce(BlockEdit<'_>) -> R,
    ) -> Result<R> {
        let block = self.own_block_soon(tx, blkid, soon)?;
        self.edit_own(&block, f)
    }

    /// As [`Self::edit_block`], for the version that [`Self::own_block`] returned in the same txg.
    ///
    /// # Errors
    /// The content does not decode, or its txg is written already.
    #[inline]
    pub(crate) fn edit_own<R>(
        &self,
        block: &DirtyBlock,
        f: impl FnOnce(BlockEdit<'_>) -> R,
    ) -> Result<R> {
        let mut content = block.change();
        if matches!(&*content, Content::Cloned(_)) {
            // The bytes come from a device, so the block's lock is released.
            drop(content);
            self.fetch(block)?;
            content = block.change();
        }
        self.note_change();
        content.thaw();
        if let Content::Stored(stored) = &*content {
            let bytes = stored.decode()?;
            *content = Content::Dirty {
                bytes,
                index: OnceLock::new(),
                loan: None,
            };
        }
        match &mut *content {
            Content::Dirty { bytes, index, .. } => Ok(f(BlockEdit { bytes, index })),
            _ => Err(Error::refused(
                Errno::INVAL,
                format!("{}: changed after its txg was written", self.place()),
            )),
        }
    }

    /// `f` finds a block number in this block. Prefetches the slot of that block's newest version,
    /// if it is dirty.
    #[inline]
    pub(crate) fn prefetch_target<R>(
        &self,
        from: u64,
        f: impl FnOnce(&[u8]) -> Option<(u64, R)>,
    ) -> Option<(u64, R)> {
        let state = self.read_state();
        let newest = state.dirty.last()?;
        let content = newest.blocks.get(from)?.content.try_read()?;
        let Content::Dirty { bytes, .. } = &*content else {
            return None;
        };
        let led = f(bytes)?;
        newest.blocks.expect_place(led.0);
        Some(led)
    }

    /// Prefetches the newest version of a block, if it is dirty: its header, its first bytes and
    /// those at `soon`.
    pub(crate) fn expect_block(&self, blkid: u64, soon: usize) {
        let state = self.read_state();
        if let Some(d) = state.dirty.last() {
            d.blocks.expect(blkid, soon);
        }
    }

    /// The version of a block that belongs to tx's txg, if there is one.
    pub(crate) fn owned(&self, tx: &Tx, blkid: u64) -> Option<Arc<DirtyBlock>> {
        let state = self.read_state();
        let newest = state.dirty.last().filter(|d| d.txg == tx.txg())?;
        newest.blocks.get(blkid).cloned()
    }

    /// The version of a block that belongs to tx's txg, created if needed.
    pub(crate) fn own_block(&self, tx: &Tx, blkid: u64) -> Result<Arc<DirtyBlock>> {
        self.own_block_soon(tx, blkid, 0)
    }

    fn own_block_soon(&self, tx: &Tx, blkid: u64, soon: usize) -> Result<Arc<DirtyBlock>> {
        let (mut bytes, index, size) = loop {
            let (found, size) = {
                let state = self.read_state();
                if let Some(d) = state.dirty.last().filter(|d| d.txg == tx.txg())
                    && let Some(block) = d.blocks.get_soon(blkid, soon)
                {
                    return Ok(block.clone());
                }
                (
                    state.find(blkid),
                    state.head().map_or(0, |h| h.block_size as usize),
                )
            };
            let (bytes, index) = match found {
                Found::Dirty(block) => match block.pointer() {
                    Some(bp) => (self.read_pointer(blkid, &bp)?.bytes().to_vec(), None),
                    None => block.fork()?,
                },
                Found::Hole => (vec![0; size], None),
                Found::Tree(tree) => match self.read_tree(&tree, blkid) {
                    Ok(Some(block)) => (
                        block.bytes().to_vec(),
                        block.built_index().map(|i| i.clone_index()),
                    ),
                    Ok(None) => (vec![0; size], None),
                    // The tree was replaced meanwhile, and the block's old place reused.
                    Err(e) if self.is_stale(&tree, &e) => continue,
                    Err(e) => return Err(e),
                },
            };
            break (bytes, index, size);
        };
        bytes.resize(size, 0);
        self.install(tx, blkid, bytes.len(), false, false, |loan| {
            DirtyBlock::new(bytes, index, loan)
        })
    }

    /// Inserts a version into tx's txg. If another thread has inserted one already, that one stays
    /// unless `replace`.
    ///
    /// The block cache lends memory for it, so that cache and dirty blocks together stay within its
    /// limit. Metadata on loan does not count as dirty, because it usually replaces a cached block.
    /// Otherwise a large directory could dirty so many leaves that a txg ends after a few names.
    /// Then each name would cost a leaf.
    fn install(
        &self,
        tx: &Tx,
        blkid: u64,
        len: usize,
        replace: bool,
        of_attribute: bool,
        make: impl FnOnce(Option<Loan>) -> Arc<DirtyBlock>,
    ) -> Result<Arc<DirtyBlock>> {
        let mut state = self.write_state();
        let d = self.dirty_in(&mut state, tx.txg())?;
        if blkid > 0 && !d.head.block_size.is_power_of_two() {
            return Err(Error::refused(
                Errno::INVAL,
                format!(
                    "{}: several blocks of {} bytes",
                    self.place(),
                    d.head.block_size
                ),
            ));
        }
        d.head.max_block = d.head.max_block.max(blkid);
        let metadata = zuse_format::object_type::is_metadata(d.head.object_type);
        let core = &self.core;
        let cache = core.io.cache();
        let there = d.blocks.get(blkid);
        if let (Some(there), false) = (there, replace) {
            return Ok(there.clone());
        }
        let spare = of_attribute.then(|| cache.lend_spare(len)).flatten();
        let (new, is_spare) = (there.is_none(), spare.is_some());
        let loan = spare.or_else(|| cache.lend(len));
        // A block that is written again in the same txg is charged once.
        if new {
            let size = len as u64 + 256;
            if metadata {
                let lent = loan.as_ref().map_or(0, |_| len as u64);
                core.meter.add(tx.txg(), size - lent);
                let fresh = d.born && blkid < GROWING;
                core.meter.note_block(tx.txg(), fresh, size);
            } else if is_spare {
                core.meter.note_value(tx.txg(), size);
            } else {
                core.meter.add_data(tx.txg(), size);
            }
        }
        let block = make(loan);
        d.blocks.insert(blkid, block.clone());
        Ok(block)
    }

    /// Replaces a whole block without reading it.
    ///
    /// # Errors
    /// `Refused(INVAL)` if the length is not the block size; the object is free.
    pub fn write_block(&self, tx: &Tx, blkid: u64, bytes: Vec<u8>) -> Result<()> {
        self.put_block(tx, blkid, bytes, false)
    }

    /// Replaces the only block of a file that holds the value of an extended attribute. It is
    /// counted like the spill block of a smaller value. While the cache has memory to spare, no
    /// writer waits and no txg ends because of it.
    ///
    /// # Errors
    /// As [`Self::write_block`].
    pub fn write_value(&self, tx: &Tx, bytes: Vec<u8>) -> Result<()> {
        self.put_block(tx, 0, bytes, true)
    }

    fn put_block(&self, tx: &Tx, blkid: u64, bytes: Vec<u8>, of_attribute: bool) -> Result<()> {
        if bytes.len() != self.block_size() as usize {
            return Err(Error::refused(
                Errno::INVAL,
                format!("{}: a block of {} bytes", self.place(), bytes.len()),
            ));
        }
        self.install(tx, blkid, bytes.len(), true, of_attribute, |loan| {
            DirtyBlock::new(bytes, None, loan)
        })
        .map(|_| ())
    }

    /// Replaces a whole block by one in its stored form, which is written unchanged.
    ///
    /// # Errors
    /// `Refused(INVAL)` if it is not a whole block of this object; the object is free.
    pub fn write_stored(&self, tx: &Tx, blkid: u64, block: StoredBlock) -> Result<()> {
        if block.logical_size != self.block_size() {
            return Err(Error::refused(
                Errno::INVAL,
                format!("{}: a block of {} bytes", self.place(), block.logical_size),
            ));
        }
        self.install(tx, blkid, block.bytes.len(), true, false, |_| {
            DirtyBlock::stored(block)
        })
        .map(|_| ())
    }
}

fn pointer_in(block: &Block, child: u64, place: &BlockPlace<'_>) -> Result<BlockPointer> {
    BlockPointer::at(block.bytes(), child as usize * BP_SIZE)
        .ok_or_else(|| Error::truncated(place.to_string(), "an indirect block is too short"))
}

pub(crate) fn shifted(value: u64, shift: u32) -> u64 {
    if shift >= 64 { 0 } else { value >> shift }
}

fn with_len<R>(
    bytes: &[u8],
    size: usize,
    index: IndexCell<'_>,
    f: impl FnOnce(BlockView<'_>) -> R,
) -> R {
    if bytes.len() >= size {
        return f(BlockView {
            bytes: &bytes[..size],
            index,
        });
    }
    // The block size has grown in a newer txg than this version's.
    let mut longer = bytes.to_vec();
    longer.resize(size, 0);
    let cell = OnceLock::new();
    f(BlockView {
        bytes: &longer,
        index: IndexCell::Cell(&cell),
    })
}

fn with_zeros<R>(size: usize, f: impl FnOnce(BlockView<'_>) -> R) -> R {
    let cell = OnceLock::new();
    match ZEROS.get(..size) {
        Some(bytes) => f(BlockView {
            bytes,
            index: IndexCell::Cell(&cell),
        }),
        None => f(BlockView {
            bytes: &vec![0; size],
            index: IndexCell::Cell(&cell),
        }),
    }
}

/// A block's place, formatted only for an error.
#[derive(Clone, Copy)]
pub(crate) struct BlockPlace<'a> {
    pub dnode: &'a Dnode,
    pub level: u8,
    pub blkid: u64,
}

impl BlockPlace<'_> {
    /// Reads the block of a pointer. If that fails, the block may be lost; [`Dnode::is_stale`]
    /// decides.
    pub fn read(&self, bp: &BlockPointer, metadata: bool) -> Result<Arc<Block>> {
        let core = &self.dnode.core;
        let found = core.read_block(bp, metadata, self);
        if let Err(Error::Corrupt { .. } | Error::Device { .. }) = &found {
            core.suspect_lost(self.dnode.object().0, self.level, self.blkid, bp);
        }
        found
    }
}

impl std::fmt::Display for BlockPlace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, level {} block {}",
            self.dnode.place(),
            self.level,
            self.blkid
        )
    }
}

impl From<BlockPlace<'_>> for Place {
    fn from(place: BlockPlace<'_>) -> Self {
        Place::new(place.to_string())
    }
}

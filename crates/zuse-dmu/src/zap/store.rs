//! Access to the blocks of a fat ZAP: in an object, or in memory while one is being built.

use super::flaw::{Checked, Flaw};
use crate::dirty::{DirtyBlock, Synced};
use crate::dnode::{BlockEdit, Dnode};
use crate::tx::Tx;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use zuse_base::{Error, Result};

/// Reading whole blocks.
pub(crate) trait Blocks {
    /// Runs `f` on a block; a flaw becomes an error that names the block.
    fn view<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R>;
    /// As [`Self::view`], if `f` reads the beginning of the block and the bytes at `soon`.
    fn view_soon<R>(
        &self,
        blkid: u64,
        _soon: usize,
        f: impl FnOnce(&[u8]) -> Checked<R>,
    ) -> Result<R> {
        self.view(blkid, f)
    }
    /// As [`Self::view`], for the header and the pointer table: few blocks, which each operation
    /// needs.
    fn view_by_shortcut<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R> {
        self.view(blkid, f)
    }
    /// The error for a flaw in a block.
    fn corrupt(&self, blkid: u64, flaw: Flaw) -> Error;
    /// Prefetches a block.
    fn prefetch(&self, _blkid: u64) {}
    /// As [`Self::view_by_shortcut`]. `f` returns the number of a block that will be changed soon,
    /// and something about it.
    fn prefetch_target(
        &self,
        blkid: u64,
        f: impl Fn(&[u8]) -> Checked<(u64, u32)>,
    ) -> Result<(u64, u32)> {
        self.view_by_shortcut(blkid, f)
    }
}

/// Changing whole blocks.
pub(crate) trait BlocksMut: Blocks {
    /// Changes a block in place.
    fn edit<R>(&self, blkid: u64, f: impl FnOnce(&mut [u8]) -> Checked<R>) -> Result<R>;
    /// As [`Self::edit`], if `f` uses the beginning of the block and the bytes at `soon`.
    fn edit_soon<R>(
        &self,
        blkid: u64,
        _soon: usize,
        f: impl FnOnce(&mut [u8]) -> Checked<R>,
    ) -> Result<R> {
        self.edit(blkid, f)
    }
    /// Gives a block new content.
    fn write(&self, blkid: u64, bytes: Vec<u8>) -> Result<()>;
    /// Makes blocks holes.
    fn free(&self, blkid: u64, count: u64) -> Result<()>;
}

/// The error for an invalid block of an object.
pub(crate) fn corrupt(dnode: &Dnode, blkid: u64, flaw: Flaw) -> Error {
    Error::corrupt(format!("{}, block {blkid}", dnode.place()), flaw)
}

/// The blocks of an object. With its tree, if nothing is dirty, which spares looking for newer
/// versions.
pub(crate) struct ObjectBlocks<'a> {
    pub dnode: &'a Dnode,
    pub tree: Option<&'a Arc<Synced>>,
}

impl Blocks for ObjectBlocks<'_> {
    #[inline]
    fn view<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R> {
        self.view_soon(blkid, 0, f)
    }
    #[inline]
    fn view_soon<R>(
        &self,
        blkid: u64,
        soon: usize,
        f: impl FnOnce(&[u8]) -> Checked<R>,
    ) -> Result<R> {
        // The tree may be outdated by now. After an error, the regular path decides.
        if let Some(tree) = self.tree
            && let Ok(Some(block)) = self.dnode.read_tree_soon(tree, blkid, soon)
        {
            return f(block.bytes()).map_err(|flaw| self.corrupt(blkid, flaw));
        }
        self.dnode
            .with_block(blkid, |b| f(b.bytes()))?
            .map_err(|flaw| self.corrupt(blkid, flaw))
    }
    #[inline]
    fn view_by_shortcut<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R> {
        if let Some(tree) = self.tree
            && let Ok(Some(block)) = self.dnode.read_tree_by_shortcut(tree, blkid)
        {
            return f(block.bytes()).map_err(|flaw| self.corrupt(blkid, flaw));
        }
        self.dnode
            .with_block_by_shortcut(blkid, |b| f(b.bytes()))?
            .map_err(|flaw| self.corrupt(blkid, flaw))
    }
    fn corrupt(&self, blkid: u64, flaw: Flaw) -> Error {
        corrupt(self.dnode, blkid, flaw)
    }
    fn prefetch(&self, blkid: u64) {
        self.dnode.prefetch(blkid, 1);
    }
    #[inline]
    fn prefetch_target(
        &self,
        blkid: u64,
        f: impl Fn(&[u8]) -> Checked<(u64, u32)>,
    ) -> Result<(u64, u32)> {
        // The regular path finds the error again, and adds the place.
        match self.dnode.prefetch_target(blkid, |b| f(b).ok()) {
            Some(led) => Ok(led),
            None => self.view_by_shortcut(blkid, f),
        }
    }
}

/// The blocks of an object, to change in a txg.
pub(crate) struct ObjectEdit<'a> {
    pub dnode: &'a Arc<Dnode>,
    pub tx: &'a Tx,
    /// The dirty version of block 0 in this txg, if known.
    pub own: Option<Arc<DirtyBlock>>,
    /// The dirty version of another block in this txg, and its number.
    pub leaf: Option<(u64, &'a DirtyBlock)>,
}

impl ObjectEdit<'_> {
    #[inline]
    fn reader(&self) -> ObjectBlocks<'_> {
        ObjectBlocks {
            dnode: self.dnode,
            tree: None,
        }
    }
}

impl Blocks for ObjectEdit<'_> {
    #[inline]
    fn view<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R> {
        self.reader().view(blkid, f)
    }
    #[inline]
    fn view_by_shortcut<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R> {
        self.reader().view_by_shortcut(blkid, f)
    }
    fn corrupt(&self, blkid: u64, flaw: Flaw) -> Error {
        corrupt(self.dnode, blkid, flaw)
    }
}

impl BlocksMut for ObjectEdit<'_> {
    #[inline]
    fn edit<R>(&self, blkid: u64, f: impl FnOnce(&mut [u8]) -> Checked<R>) -> Result<R> {
        self.edit_soon(blkid, 0, f)
    }
    #[inline]
    fn edit_soon<R>(
        &self,
        blkid: u64,
        soon: usize,
        f: impl FnOnce(&mut [u8]) -> Checked<R>,
    ) -> Result<R> {
        let change = |mut b: BlockEdit<'_>| f(b.bytes_mut());
        let done = match (&self.own, self.leaf) {
            (Some(own), _) if blkid == 0 => self.dnode.edit_own(own, change)?,
            (_, Some((id, leaf))) if blkid == id => self.dnode.edit_own(leaf, change)?,
            _ => self.dnode.edit_block_soon(self.tx, blkid, soon, change)?,
        };
        done.map_err(|flaw| self.corrupt(blkid, flaw))
    }
    fn write(&self, blkid: u64, bytes: Vec<u8>) -> Result<()> {
        self.dnode.write_block(self.tx, blkid, bytes)
    }
    fn free(&self, blkid: u64, count: u64) -> Result<()> {
        self.dnode.free_blocks(self.tx, blkid, count)
    }
}

/// Blocks in memory.
#[derive(Default)]
pub(crate) struct MemoryBlocks {
    pub blocks: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl Blocks for MemoryBlocks {
    fn view<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> Checked<R>) -> Result<R> {
        let blocks = self.blocks.borrow();
        f(blocks.get(&blkid).map_or(&[], |b| b)).map_err(|flaw| self.corrupt(blkid, flaw))
    }
    fn corrupt(&self, blkid: u64, flaw: Flaw) -> Error {
        Error::corrupt(format!("ZAP in memory, block {blkid}"), flaw)
    }
}

impl BlocksMut for MemoryBlocks {
    fn edit<R>(&self, blkid: u64, f: impl FnOnce(&mut [u8]) -> Checked<R>) -> Result<R> {
        let mut blocks = self.blocks.borrow_mut();
        let block = blocks
            .get_mut(&blkid)
            .ok_or_else(|| self.corrupt(blkid, Flaw("missing")))?;
        f(block).map_err(|flaw| self.corrupt(blkid, flaw))
    }
    fn write(&self, blkid: u64, bytes: Vec<u8>) -> Result<()> {
        self.blocks.borrow_mut().insert(blkid, bytes);
        Ok(())
    }
    fn free(&self, blkid: u64, count: u64) -> Result<()> {
        self.blocks
            .borrow_mut()
            .retain(|b, _| *b < blkid || *b - blkid >= count);
        Ok(())
    }
}

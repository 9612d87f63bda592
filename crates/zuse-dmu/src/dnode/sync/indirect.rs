//! Indirect blocks during a sync: reading, rewriting, and freeing them with everything below.

use std::sync::Arc;

use zuse_base::{Error, Result};
use zuse_format::BlockPointer;
use zuse_format::block_pointer::BP_SIZE;
use zuse_io::Block;

use super::Tree;
use crate::dirty::Synced;

impl Tree {
    pub(super) fn open_indirect(&self, level: u8, id: u64, old: &BlockPointer) -> Result<Vec<u8>> {
        let size = 1usize << self.head.indirect_shift;
        if old.is_hole() {
            let mut bytes = vec![0u8; size];
            // The birth of a hole holds for everything below it, so the new pointers get it.
            if old.logical_birth() != 0 && self.settings.hole_birth {
                let child_size = if level == 1 {
                    u64::from(self.head.block_size)
                } else {
                    size as u64
                };
                let child = BlockPointer::hole_with_birth(
                    child_size,
                    self.head.object_type,
                    level - 1,
                    old.logical_birth(),
                );
                for slot in bytes.as_chunks_mut::<BP_SIZE>().0 {
                    child.write_le(slot);
                }
            }
            return Ok(bytes);
        }
        let place = self.place(level, id);
        if old.level() != level {
            return Err(Error::contradiction(
                place,
                format!("its pointer says level {}", old.level()),
            ));
        }
        let block = place.read(old, true)?;
        if block.bytes().len() != size {
            return Err(Error::corrupt(
                place,
                format!(
                    "an indirect block of {} bytes, not {size}",
                    block.bytes().len()
                ),
            ));
        }
        Ok(block.bytes().to_vec())
    }

    pub(super) fn close_indirect(
        &self,
        level: u8,
        old: BlockPointer,
        bytes: Vec<u8>,
    ) -> Result<BlockPointer> {
        let all_holes = bytes
            .as_chunks::<BP_SIZE>()
            .0
            .iter()
            .all(|slot| BlockPointer::parse(slot, zuse_base::ByteOrder::Little).is_hole());
        if all_holes {
            self.kill(&old)?;
            // The birth of the hole tells an incremental send that something was freed here.
            let births = bytes.iter().any(|b| *b != 0);
            if !births || !self.settings.hole_birth {
                return Ok(self.hole(&old, level));
            }
            return Ok(BlockPointer::hole_with_birth(
                1 << self.head.indirect_shift,
                self.head.object_type,
                level,
                self.txg.0,
            ));
        }
        self.write_indirect(level, old, bytes)
    }

    pub(super) fn write_indirect(
        &self,
        level: u8,
        old: BlockPointer,
        bytes: Vec<u8>,
    ) -> Result<BlockPointer> {
        let fill = bytes
            .as_chunks::<BP_SIZE>()
            .0
            .iter()
            .map(|slot| BlockPointer::parse(slot, zuse_base::ByteOrder::Little).fill())
            // They come from disk: a forged sum must not panic.
            .fold(0u64, u64::wrapping_add);
        let bp = self.write(&self.policy(level), &old, &bytes, fill)?;
        if self.settings.keeps(true) {
            self.dnode
                .core
                .io
                .remember(&bp, Arc::new(Block::new(bytes)));
        }
        Ok(bp)
    }

    /// Frees a pointer's block and everything below it.
    pub(super) fn free_subtree(
        self: &Arc<Self>,
        level: u8,
        id: u64,
        bp: &BlockPointer,
    ) -> Result<()> {
        if bp.is_hole() {
            return Ok(());
        }
        if level > 0 {
            let bytes = self.open_indirect(level, id, bp)?;
            for (i, slot) in bytes.as_chunks::<BP_SIZE>().0.iter().enumerate() {
                let child = BlockPointer::parse(slot, zuse_base::ByteOrder::Little);
                self.free_subtree(level - 1, (id << self.fanout()) + i as u64, &child)?;
            }
        }
        self.kill(bp)
    }

    pub(super) fn free_object(self: &Arc<Self>, old: &Synced) -> Result<()> {
        for i in 0..usize::from(old.head.nblkptr.min(3)) {
            self.free_subtree(old.levels - 1, i as u64, old.blkptr.at(i))?;
        }
        match &old.spill {
            Some(spill) => self.kill(spill),
            None => Ok(()),
        }
    }
}

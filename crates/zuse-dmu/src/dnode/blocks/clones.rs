//! Cloned blocks: pointers to existing blocks are written. The bytes stay where they are until they
//! are changed.

use std::sync::{Arc, OnceLock};

use zuse_base::{Errno, Error, Result};
use zuse_format::BlockPointer;
use zuse_io::{Block, Reference};

use super::Found;
use crate::dirty::{Content, DirtyBlock};
use crate::dnode::Dnode;
use crate::tx::Tx;

impl Dnode {
    /// The on-disk pointer to a block; `None` for a hole, and for a block that is not written yet.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn stored_pointer(&self, blkid: u64) -> Result<Option<BlockPointer>> {
        let found = self.read_state().find(blkid);
        let Found::Tree(tree) = found else {
            return Ok(None);
        };
        if blkid > self.max_block() {
            return Ok(None);
        }
        let bp = self.lookup_bp(&tree, 0, blkid)?;
        Ok((!bp.is_hole()).then_some(bp))
    }

    /// Writes a clone of another block of the same dataset: its bytes stay where they are, and get
    /// one more pointer.
    ///
    /// # Errors
    /// `Refused(INVAL)` if it is not a whole block of this object's size. `Corrupt` if its block's
    /// birth is in the future; the object is free.
    pub fn write_clone(&self, tx: &Tx, blkid: u64, reference: Reference) -> Result<()> {
        let bp = reference.pointer();
        let whole = bp.level() == 0 && bp.lsize() == u64::from(self.block_size());
        if !whole || self.core.raw || bp.uses_crypt() != self.core.key.is_some() {
            return Err(Error::refused(
                Errno::INVAL,
                format!("{}: a clone of a block of another kind", self.place()),
            ));
        }
        if bp.physical_birth() > tx.txg().0 {
            return Err(Error::corrupt(
                self.place(),
                format!("a pointer to a block of txg {}", bp.physical_birth()),
            ));
        }
        self.install(tx, blkid, 0, true, false, |_| DirtyBlock::cloned(reference))
            .map(|_| ())
    }

    /// The bytes of a block by its pointer.
    pub(in crate::dnode) fn read_pointer(
        &self,
        blkid: u64,
        bp: &BlockPointer,
    ) -> Result<Arc<Block>> {
        self.block_place(0, blkid).read(bp, false)
    }

    /// Reads the bytes of a clone, which becomes an ordinary block.
    pub(super) fn fetch(&self, block: &DirtyBlock) -> Result<()> {
        let Some(bp) = block.pointer() else {
            return Ok(());
        };
        let bytes = self.read_pointer(0, &bp)?.bytes().to_vec();
        let mut content = block.change();
        // Another thread may have fetched and changed it meanwhile.
        if matches!(&*content, Content::Cloned(_)) {
            *content = Content::Dirty {
                bytes,
                index: OnceLock::new(),
                loan: None,
            };
        }
        Ok(())
    }
}

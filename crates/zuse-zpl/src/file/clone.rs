//! Cloning blocks within a file system. Whole blocks of a file that are on disk get a further
//! pointer, in another file or at another offset.
//!
//! - The range of the source is locked before the transaction begins. Otherwise a writer in the
//!   previous, closing txg could free the block first. With the lock it changes the block in this
//!   txg at the earliest, and frees of a txg come after its clones (`zuse_io::Reference`).
//! - A block is cloned only if no txg that is not on disk yet changes it.
//! - For two files the one with the smaller number is locked first.

use std::sync::Arc;

use zuse_base::{Errno, Result};
use zuse_dmu::Tx;
use zuse_format::{BlockPointer, BpKind};

use super::WriteOptions;
use crate::estimate;
use crate::file_system::FileSystem;
use crate::znode::Znode;

/// Blocks that one transaction clones.
const AT_ONCE: u64 = 64;

/// Whether the block size of a file can become `size`: only that of a file of one block changes.
fn may_grow_to(file: &Znode, size: u64) -> bool {
    let dnode = file.dnode();
    let is_one_block = dnode.max_block() == 0 && file.size() <= size;
    is_one_block && u64::from(dnode.block_size()) < size
}

impl FileSystem {
    /// Clones the blocks of a range from another file, as far as possible from its start on.
    /// Returns the number of bytes done; none: they have to be copied.
    pub(super) fn clone_range(
        &self,
        (from, from_at): (&Arc<Znode>, u64),
        (to, to_at): (&Arc<Znode>, u64),
        len: u64,
    ) -> Result<u64> {
        let props = self.backing.props();
        let (source, target) = (from.dnode(), to.dnode());
        let size = u64::from(source.block_size()).max(1);
        let aligned = from_at.is_multiple_of(size) && to_at.is_multiple_of(size);
        if !props.clone_blocks || props.read_only || !aligned {
            return Ok(0);
        }
        // Before the transaction, because it reads indirect blocks.
        if self.to_clone(from, from_at / size)?.is_none() {
            return Ok(0);
        }
        let same = from.object() == to.object();
        let lock_source = || from.content.read(from_at, from_at.saturating_add(len));
        let first = (from.object() < to.object()).then(lock_source);
        let _target = to.content.write(0, u64::MAX);
        let _source = first.or_else(|| (!same).then(lock_source));
        self.check_content_change(to, to_at, false)?;
        self.check_space_quota(&to.attributes())?;
        // A partial last block must be the last one of the target as well.
        let ends = from_at + len >= from.size() && to_at + len >= to.size();
        // A partial last block, cloned into the middle, would overwrite bytes beyond its end.
        let blocks = if ends { len.div_ceil(size) } else { len / size }.min(AT_ONCE);
        let grows = u64::from(target.block_size()) != size;
        // A file with more than one block has the record size.
        let stays_one_block = to_at == 0 && source.max_block() == 0;
        let size_fits = size == u64::from(props.record_size) || stays_one_block;
        if grows && !(size_fits && may_grow_to(to, size)) {
            return Ok(0);
        }
        if blocks == 0 || to_at > 0 && !size.is_power_of_two() {
            return Ok(0);
        }
        if grows && to.size() > 0 {
            // The new block size copies the only block: read before the transaction.
            target.with_block(0, |_| ())?;
        }
        let bytes = estimate::write(to_at, blocks * size, size, to.ends_dirty(to_at));
        let tx = self.begin(bytes)?;
        if grows {
            target.set_block_size(&tx, source.block_size())?;
        }
        let cloned = self.clone_blocks(&tx, (from, from_at / size), (to, to_at / size), blocks)?;
        let done = len.min(size * cloned.len() as u64);
        if done > 0 {
            let end = to.size().max(to_at + done);
            let links = self.content_changed(&tx, to, end, WriteOptions::default())?;
            let object = to.object();
            self.note_clone(&tx, (object, links), to_at..to_at + done, size, cloned);
        }
        Ok(done)
    }

    /// Clones up to `blocks` blocks, from these numbers on. Returns the pointers that were cloned.
    fn clone_blocks(
        &self,
        tx: &Tx,
        (from, first): (&Znode, u64),
        (to, to_first): (&Znode, u64),
        blocks: u64,
    ) -> Result<Vec<BlockPointer>> {
        let size = u64::from(from.dnode().block_size()).max(1);
        let mut cloned = Vec::new();
        for i in 0..blocks {
            let Some(bp) = self.to_clone(from, first + i)? else {
                break;
            };
            let reference = match self.objset.io().refer(tx.txg(), &bp) {
                Ok(reference) => reference,
                // Only what was cloned so far counts; the caller copies the rest.
                Err(e) if e.is(Errno::NOTSUP) => break,
                Err(e) => return Err(e),
            };
            if bp.lsize() != size {
                break;
            }
            to.dnode().write_clone(tx, to_first + i, reference)?;
            cloned.push(bp);
        }
        Ok(cloned)
    }

    /// The pointer of a block that may be cloned.
    fn to_clone(&self, znode: &Znode, blkid: u64) -> Result<Option<BlockPointer>> {
        let synced = self.backing.synced_txg().0;
        let found = match znode.dnode().stored_pointer(blkid) {
            // The tree may have been replaced while it was read: then the block is copied.
            Err(zuse_base::Error::Corrupt { .. }) => None,
            other => other?,
        };
        Ok(found.filter(|bp| bp.kind() == BpKind::Normal && bp.physical_birth() <= synced))
    }
}

//! Replacing bad copies of a block by good bytes from a stream (a healing receive).
//!
//! Only bytes that match the pointer's checksum are written. They are written to the block's own
//! place, so they do no harm whatever was there. The caller holds the object that points to the
//! block, so its space is not freed meanwhile.

use std::fmt::Display;

use zuse_base::{ByteOrder, Result};
use zuse_codec::{ChecksumKind, Compression, Workspace, ZstdLevel, verify, verify_truncated};
use zuse_format::{BlockPointer, BpKind, object_type};

use crate::gang::is_truncated;
use crate::log_block_order;
use crate::pipeline::address_of;
use crate::{DatasetKey, Pipeline};

/// Nested gang headers.
const MAX_DEPTH: u32 = 8;

impl Pipeline {
    /// Whether stored bytes have the checksum of a pointer.
    pub(crate) fn is_block(&self, bp: &BlockPointer, stored: &[u8]) -> bool {
        let Some(kind) = ChecksumKind::from_u8(bp.checksum_kind()) else {
            return false;
        };
        // A log block carries its checksum in itself.
        if matches!(kind, ChecksumKind::Zilog | ChecksumKind::Zilog2) {
            return log_block_order(bp, stored).is_some();
        }
        let (context, order, sum) = (self.checksums(), bp.byte_order(), bp.checksum());
        let good = match is_truncated(bp) {
            true => verify_truncated(kind, stored, order, &context, &sum),
            false => verify(kind, stored, order, &context, &sum),
        };
        good.unwrap_or(false)
    }

    /// Writes stored bytes over every copy of a block. False if they do not match the block.
    ///
    /// # Errors
    /// A device refuses; the header of a gang block cannot be read.
    pub fn repair(&self, bp: &BlockPointer, stored: &[u8], place: &dyn Display) -> Result<bool> {
        // A stream may contain anything. Only bytes that match the pointer are written.
        if bp.kind() != BpKind::Normal || stored.len() as u64 != bp.psize() {
            return Ok(false);
        }
        self.repair_tree(bp, stored, place, 0)
    }

    fn repair_tree(
        &self,
        bp: &BlockPointer,
        stored: &[u8],
        place: &dyn Display,
        depth: u32,
    ) -> Result<bool> {
        if bp.is_gang() {
            // Gang headers come from disk and might lead back to themselves.
            if depth >= MAX_DEPTH {
                return Ok(false);
            }
            let members = self.gang_members(bp, place)?;
            let mut rest = stored;
            for member in members.iter().filter(|m| !m.is_hole()) {
                let Some((piece, after)) = rest.split_at_checked(member.psize() as usize) else {
                    return Ok(false);
                };
                rest = after;
                // Each member has its own checksum, so members that were repaired already are
                // right.
                if !self.repair_tree(member, piece, place, depth + 1)? {
                    return Ok(false);
                }
            }
            return Ok(rest.is_empty());
        }
        if !self.is_block(bp, stored) {
            return Ok(false);
        }
        for dva in bp.dvas() {
            // All copies are written: which of them is bad is unknown, and rewriting a good copy
            // does no harm.
            self.vdevs().write(address_of(&dva, bp), stored)?;
        }
        Ok(true)
    }

    /// Recreates the stored form of a block of a file or volume from its content. It is compressed
    /// as its pointer says, and encrypted with the salt and IV there. `None` if no attempt gives
    /// the original bytes: the content or the compressor differs.
    pub fn stored_again(
        &self,
        bp: &BlockPointer,
        key: Option<&DatasetKey>,
        level: ZstdLevel,
        content: &[u8],
    ) -> Option<Vec<u8>> {
        let kind = Compression::from_u8(bp.compression())?;
        if content.len() as u64 != bp.lsize()
            // Its writer compressed byte-swapped numbers, so the result would differ.
            || bp.byte_order() == ByteOrder::Big && object_type::is_metadata(bp.object_type())
        {
            return None;
        }
        let finish = |mut stored: Vec<u8>| {
            stored.resize(bp.psize() as usize, 0);
            if let Some(key) = key
                && !key.seal_as(bp, &mut stored)
            {
                return None;
            }
            self.is_block(bp, &stored).then_some(stored)
        };
        if kind == Compression::Off {
            return finish(content.to_vec());
        }
        let others = (1..=19).filter_map(ZstdLevel::from_library);
        let levels = std::iter::once(level).chain(others.filter(|l| *l != level));
        // The compression level is not in the pointer. The level of the stream's sender is tried
        // first, then all others.
        let tries = if kind == Compression::Zstd { 20 } else { 1 };
        let (mut out, mut workspace) = (Vec::new(), Workspace::default());
        levels.take(tries).find_map(|level| {
            workspace.compress(kind, level, content, &mut out, bp.psize() as usize)?;
            finish(out.clone())
        })
    }

    /// Encrypts a block that arrives compressed and in clear. `None` if the result does not match
    /// the block.
    pub fn sealed_again(
        &self,
        bp: &BlockPointer,
        key: Option<&DatasetKey>,
        clear: &[u8],
    ) -> Option<Vec<u8>> {
        let mut stored = clear.to_vec();
        if stored.len() as u64 > bp.psize() {
            return None;
        }
        stored.resize(bp.psize() as usize, 0);
        if let Some(key) = key
            && !key.seal_as(bp, &mut stored)
        {
            return None;
        }
        self.is_block(bp, &stored).then_some(stored)
    }
}

//! The dnode: the metadata of one object, 512 × slots bytes.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | object type, 0 = free slot |
//! | 1 | 1 | log2 of the indirect block size |
//! | 2 | 1 | levels, 1 = the pointers point to data |
//! | 3 | 1 | number of block pointers, 1..=3 |
//! | 4 | 1 | bonus type |
//! | 5 | 1 | checksum, 0 inherit |
//! | 6 | 1 | compression, 0 inherit |
//! | 7 | 1 | flags |
//! | 8 | 2 | data block size / 512 |
//! | 10 | 2 | bonus bytes in use |
//! | 12 | 1 | slots − 1 |
//! | 16 | 8 | highest level-0 block id |
//! | 24 | 8 | space used: bytes, or sectors without the flag |
//! | 64 | 128·n | block pointers |
//! | 64+128n | | bonus |
//! | size−128 | 128 | spill pointer, if the flag is set |
//!
//! Invariants
//! - In a parsed dnode type and sizes are valid. The bonus lies inside the dnode, and the dnode
//!   inside the slice it was parsed from. [`DnodeView::parse`] refuses everything else.
//! - A written dnode has a bonus that fits, and nothing is outside its slots.
//!
//! Bytes after the used part of the bonus are undefined on disk: they are ignored on read and
//! written as zeros. Block pointers are *not* validated here.

use crate::block_pointer::{BP_SIZE, BlockPointer};
use crate::error::{FormatResult, bad, need};
use crate::field::{put_u16, put_u64, u16_at, u64_at};
use crate::object_type;
use zuse_base::cut::{fit8, fit16};

/// Bytes of one slot, and of the smallest dnode.
pub const DNODE_SLOT: usize = 512;
/// Bytes of a block of the meta dnode.
pub const DNODE_BLOCK: usize = 16384;
/// Slots in a block of the meta dnode.
pub const SLOTS_PER_BLOCK: usize = DNODE_BLOCK / DNODE_SLOT;
/// Bytes before the first block pointer.
pub const DNODE_CORE: usize = 64;
/// Offset of the object type.
pub const TYPE_AT: usize = 0;
/// Offset of the bonus type.
pub const BONUS_TYPE_AT: usize = 4;
/// Offset of the flags.
pub const FLAGS_AT: usize = 7;
/// Offset of the number of bonus bytes in use.
pub const BONUS_LEN_AT: usize = 10;
/// Offset of slots − 1.
pub const EXTRA_SLOTS_AT: usize = 12;
/// Offset of the highest block id.
pub const MAX_BLOCK_ID_AT: usize = 16;
/// Offset of the space used.
pub const USED_AT: usize = 24;
/// Default log2 of the indirect block size.
pub const DEFAULT_INDIRECT_SHIFT: u8 = 17;
/// Largest object number + 1.
pub const OBJECT_LIMIT: u64 = 1 << 48;

/// `used` counts bytes, not sectors.
pub const FLAG_USED_BYTES: u8 = 1;
/// The object is counted in user and group space.
pub const FLAG_USERUSED_ACCOUNTED: u8 = 2;
/// The last 128 bytes are a spill pointer.
pub const FLAG_SPILL: u8 = 4;
/// The object is counted in user and group objects.
pub const FLAG_USEROBJUSED_ACCOUNTED: u8 = 8;

/// A validated dnode, owning its bonus bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DnodePhys {
    /// Object type, never 0.
    pub object_type: u8,
    /// log2 of the indirect block size, 12..=17.
    pub indirect_shift: u8,
    /// Levels, ≥ 1.
    pub levels: u8,
    /// Number of pointers in use in `blkptr`, 1..=3.
    pub nblkptr: u8,
    /// Type of the bonus, 0 none.
    pub bonus_type: u8,
    /// Checksum, 0 inherit.
    pub checksum: u8,
    /// Compression, 0 inherit.
    pub compress: u8,
    /// Flag bits; [`FLAG_SPILL`] is ignored: `spill` decides when written.
    pub flags: u8,
    /// Data block size / 512.
    pub data_block_sectors: u16,
    /// Slots − 1.
    pub extra_slots: u8,
    /// Highest level-0 block id.
    pub max_block_id: u64,
    /// Space used as stored; see [`DnodePhys::used_bytes`].
    pub used: u64,
    /// Block pointers; those from `nblkptr` on are holes.
    pub blkptr: [BlockPointer; 3],
    /// The bonus bytes in use.
    pub bonus: Vec<u8>,
    /// The spill pointer.
    pub spill: Option<BlockPointer>,
}

/// Zero-copy access to one dnode, for scans: created by [`DnodeView::parse`], which checks
/// everything.
#[derive(Clone, Copy)]
pub struct DnodeView<'a> {
    bytes: &'a [u8],
}

impl<'a> DnodeView<'a> {
    /// Checks the dnode at the start of `bytes` (which may contain further slots); `None` for a
    /// free slot.
    ///
    /// # Errors
    /// A field out of range, or a dnode or bonus that does not fit.
    pub fn parse(bytes: &'a [u8]) -> FormatResult<Option<Self>> {
        need(bytes, DNODE_SLOT, "dnode")?;
        if bytes[TYPE_AT] == 0 {
            return Ok(None);
        }
        let size = (usize::from(bytes[EXTRA_SLOTS_AT]) + 1) * DNODE_SLOT;
        if size > DNODE_BLOCK || size > bytes.len() {
            return bad(format!("dnode of {size} bytes leaves its block"));
        }
        let view = Self {
            bytes: &bytes[..size],
        };
        if !object_type::is_valid(view.object_type()) || !object_type::is_valid(view.bonus_type()) {
            return bad(format!(
                "dnode has type {} and bonus type {}",
                view.object_type(),
                view.bonus_type()
            ));
        }
        if !(12..=17).contains(&view.indirect_shift()) {
            return bad(format!(
                "dnode has indirect block shift {}",
                view.indirect_shift()
            ));
        }
        if !(1..=16).contains(&view.levels()) {
            return bad(format!("dnode has {} levels", view.levels()));
        }
        if !(1..=3).contains(&view.nblkptr()) {
            return bad(format!("dnode has {} block pointers", view.nblkptr()));
        }
        if !(1..=32768).contains(&view.data_block_sectors()) {
            return bad(format!(
                "dnode has a block size of {} sectors",
                view.data_block_sectors()
            ));
        }
        // Block ids and byte offsets have 64 bits everywhere, so larger trees and objects are
        // invalid.
        let reach = (u32::from(view.indirect_shift()) - 7) * (u32::from(view.levels()) - 1);
        if reach > 60 {
            return bad(format!(
                "dnode has {} levels of 2^{} pointers",
                view.levels(),
                view.indirect_shift() - 7
            ));
        }
        let block = u64::from(view.data_block_sectors()) * 512;
        if view.max_block_id() >= u64::MAX / block {
            return bad(format!(
                "dnode has a last block {} of {block} bytes",
                view.max_block_id()
            ));
        }
        let taken =
            DNODE_CORE + BP_SIZE * view.nblkptr() + if view.has_spill() { BP_SIZE } else { 0 };
        if taken > size || view.bonus_len() > size - taken {
            return bad(format!(
                "dnode of {size} bytes has a bonus of {}",
                view.bonus_len()
            ));
        }
        Ok(Some(view))
    }

    /// All bytes of the dnode.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
    /// Object type, not 0.
    pub fn object_type(&self) -> u8 {
        self.bytes[TYPE_AT]
    }
    /// log2 of the indirect block size.
    pub fn indirect_shift(&self) -> u8 {
        self.bytes[1]
    }
    /// Levels.
    pub fn levels(&self) -> u8 {
        self.bytes[2]
    }
    /// Number of block pointers.
    pub fn nblkptr(&self) -> usize {
        usize::from(self.bytes[3])
    }
    /// Type of the bonus.
    pub fn bonus_type(&self) -> u8 {
        self.bytes[BONUS_TYPE_AT]
    }
    /// Flag bits.
    pub fn flags(&self) -> u8 {
        self.bytes[FLAGS_AT]
    }
    /// Whether there is a spill pointer.
    pub fn has_spill(&self) -> bool {
        self.flags() & FLAG_SPILL != 0
    }
    /// Slots taken.
    pub fn slots(&self) -> usize {
        self.bytes.len() / DNODE_SLOT
    }
    /// Data block size / 512.
    pub fn data_block_sectors(&self) -> u16 {
        u16_at(self.bytes, 8)
    }
    /// Bytes of the bonus in use.
    pub fn bonus_len(&self) -> usize {
        usize::from(u16_at(self.bytes, BONUS_LEN_AT))
    }
    /// Highest level-0 block id.
    pub fn max_block_id(&self) -> u64 {
        u64_at(self.bytes, MAX_BLOCK_ID_AT)
    }
    /// Space used, in bytes.
    pub fn used_bytes(&self) -> u64 {
        used_bytes(u64_at(self.bytes, USED_AT), self.flags())
    }
    /// Block pointer by index; a hole past the last.
    pub fn blkptr(&self, index: usize) -> BlockPointer {
        if index >= self.nblkptr() {
            return BlockPointer::HOLE;
        }
        BlockPointer::at(self.bytes, DNODE_CORE + BP_SIZE * index).unwrap_or_default()
    }
    /// The bonus bytes in use.
    pub fn bonus(&self) -> &'a [u8] {
        let at = DNODE_CORE + BP_SIZE * self.nblkptr();
        &self.bytes[at..at + self.bonus_len()]
    }
    /// The spill pointer.
    pub fn spill(&self) -> Option<BlockPointer> {
        if self.has_spill() {
            BlockPointer::at(self.bytes, self.bytes.len() - BP_SIZE)
        } else {
            None
        }
    }
    /// An owned copy.
    pub fn to_phys(&self) -> DnodePhys {
        DnodePhys {
            bonus: self.bonus().to_vec(),
            ..self.to_phys_without_bonus()
        }
    }
    /// The same without bonus, for callers that keep it elsewhere.
    pub fn to_phys_without_bonus(&self) -> DnodePhys {
        DnodePhys {
            object_type: self.object_type(),
            indirect_shift: self.indirect_shift(),
            levels: self.levels(),
            nblkptr: self.bytes[3],
            bonus_type: self.bonus_type(),
            checksum: self.bytes[5],
            compress: self.bytes[6],
            flags: self.flags(),
            data_block_sectors: self.data_block_sectors(),
            extra_slots: self.bytes[EXTRA_SLOTS_AT],
            max_block_id: self.max_block_id(),
            used: u64_at(self.bytes, USED_AT),
            blkptr: [self.blkptr(0), self.blkptr(1), self.blkptr(2)],
            bonus: Vec::new(),
            spill: self.spill(),
        }
    }
}

fn used_bytes(used: u64, flags: u8) -> u64 {
    if flags & FLAG_USED_BYTES != 0 {
        used
    } else {
        used.saturating_mul(512)
    }
}

impl DnodePhys {
    /// A new dnode. `block_size` is rounded up to 512. The pointers fill the space that the bonus
    /// leaves (one for system attributes).
    pub fn new(
        object_type: u8,
        block_size: u32,
        bonus_type: u8,
        bonus: Vec<u8>,
        slots: u8,
    ) -> Self {
        let slots = slots.clamp(1, fit8(SLOTS_PER_BLOCK));
        Self {
            object_type,
            indirect_shift: DEFAULT_INDIRECT_SHIFT,
            levels: 1,
            nblkptr: block_pointers_for(usize::from(slots) * DNODE_SLOT, bonus_type, bonus.len()),
            bonus_type,
            checksum: 0,
            compress: 0,
            flags: 0,
            data_block_sectors: fit16(block_size.div_ceil(512).clamp(1, 32768)),
            extra_slots: slots - 1,
            max_block_id: 0,
            used: 0,
            blkptr: [BlockPointer::HOLE; 3],
            bonus,
            spill: None,
        }
    }

    /// Parses the dnode at the start of `bytes`; `None` for a free slot.
    ///
    /// # Errors
    /// As [`DnodeView::parse`].
    pub fn parse(bytes: &[u8]) -> FormatResult<Option<Self>> {
        Ok(DnodeView::parse(bytes)?.map(|view| view.to_phys()))
    }

    /// Slots taken.
    pub fn slots(&self) -> usize {
        usize::from(self.extra_slots) + 1
    }

    /// Bytes of the dnode.
    pub fn size(&self) -> usize {
        self.slots() * DNODE_SLOT
    }

    /// Bytes of a data block.
    pub fn data_block_size(&self) -> u64 {
        u64::from(self.data_block_sectors) * 512
    }

    /// log2 of the pointers in an indirect block.
    pub fn fanout_shift(&self) -> u32 {
        u32::from(self.indirect_shift) - 7
    }

    /// The block pointers in use.
    pub fn blkptrs(&self) -> &[BlockPointer] {
        &self.blkptr[..usize::from(self.nblkptr.min(3))]
    }

    /// Bytes available for the bonus.
    pub fn bonus_room(&self) -> usize {
        let spill = if self.spill.is_some() { BP_SIZE } else { 0 };
        self.size()
            .saturating_sub(DNODE_CORE + BP_SIZE * usize::from(self.nblkptr) + spill)
    }

    /// Space used, in bytes.
    pub fn used_bytes(&self) -> u64 {
        used_bytes(self.used, self.flags)
    }

    /// Sets the used space, in bytes or in sectors of 512 bytes as [`FLAG_USED_BYTES`] says.
    pub fn set_used_bytes(&mut self, bytes: u64) {
        self.used = if self.flags & FLAG_USED_BYTES != 0 {
            bytes
        } else {
            bytes / 512
        };
    }

    /// Writes the dnode to the first [`Self::size`] bytes of `out`; unused bytes become zero.
    ///
    /// # Panics
    /// If `out` is too short or the bonus does not fit: bugs of the caller.
    pub fn write_le(&self, out: &mut [u8]) {
        let size = self.size();
        assert!(
            self.bonus.len() <= self.bonus_room(),
            "bonus of {} bytes in a dnode of {size}",
            self.bonus.len()
        );
        let out = &mut out[..size];
        out.fill(0);
        let flags = self.flags & !FLAG_SPILL | if self.spill.is_some() { FLAG_SPILL } else { 0 };
        out[..8].copy_from_slice(&[
            self.object_type,
            self.indirect_shift,
            self.levels,
            self.nblkptr,
            self.bonus_type,
            self.checksum,
            self.compress,
            flags,
        ]);
        put_u16(out, 8, self.data_block_sectors);
        put_u16(out, BONUS_LEN_AT, fit16(self.bonus.len()));
        out[EXTRA_SLOTS_AT] = self.extra_slots;
        put_u64(out, MAX_BLOCK_ID_AT, self.max_block_id);
        put_u64(out, USED_AT, self.used);
        for (i, bp) in self.blkptrs().iter().enumerate() {
            bp.write_le(&mut out[DNODE_CORE + BP_SIZE * i..]);
        }
        let bonus_at = DNODE_CORE + BP_SIZE * usize::from(self.nblkptr);
        out[bonus_at..bonus_at + self.bonus.len()].copy_from_slice(&self.bonus);
        if let Some(spill) = &self.spill {
            spill.write_le(&mut out[size - BP_SIZE..]);
        }
    }

    /// The dnode as its own bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.size()];
        self.write_le(&mut out);
        out
    }
}

/// How many block pointers a new dnode of `size` bytes has room for, with its bonus.
pub fn block_pointers_for(size: usize, bonus_type: u8, bonus_len: usize) -> u8 {
    if bonus_type == object_type::SA {
        return 1;
    }
    let spare = size
        .saturating_sub(DNODE_CORE + BP_SIZE)
        .saturating_sub(bonus_len);
    fit8((1 + spare / BP_SIZE).min(3))
}

/// Walks a block of dnodes: slot index and dnode (or its error), without free and interior slots.
///
/// After an invalid dnode the walk continues at the next slot.
pub fn scan_block(block: &[u8]) -> impl Iterator<Item = (usize, FormatResult<DnodeView<'_>>)> {
    let mut slot = 0;
    std::iter::from_fn(move || {
        loop {
            let bytes = block
                .get(slot * DNODE_SLOT..)
                .filter(|rest| rest.len() >= DNODE_SLOT)?;
            let here = slot;
            match DnodeView::parse(bytes) {
                Ok(None) => slot += 1,
                Ok(Some(view)) => {
                    slot += view.slots();
                    return Some((here, Ok(view)));
                }
                Err(error) => {
                    slot += 1;
                    return Some((here, Err(error)));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests;

//! Which parts of blocks are encrypted, and the messages over which MACs are computed (chapter 02b
//! of the format notes).
//!
//! | block | in clear | ciphertext | authenticated besides |
//! |---|---|---|---|
//! | data of an encrypted type | – | all | – |
//! | dnodes | cores, pointers, plain bonuses | bonuses of encrypted types | cores and pointers, [`dnode_block`] |
//! | intent log | chain header, record heads, pointers | the rest of the records | what is in clear, [`zil_block`] |
//! | object set | all | – | dnodes, type, flags, [`objset_messages`] |
//! | indirect | all | – | pointers, [`indirect_message`] |
//!
//! Nothing here uses keys. Bytes come from disks: a length that leads out of the block is an error.

use std::ops::Range;

use zuse_base::ByteOrder;

use crate::BlockPointer;
use crate::block_pointer::BP_SIZE;
use crate::dnode::{
    BONUS_LEN_AT, BONUS_TYPE_AT, DNODE_CORE, DNODE_SLOT, EXTRA_SLOTS_AT, FLAG_SPILL, FLAGS_AT,
    TYPE_AT, USED_AT,
};
use crate::error::{FormatResult, bad, need};
use crate::field::{u16_in, u64_at, u64_in};
use crate::object_type;
use crate::objset::{
    OBJSET_FLAGS_AT, OBJSET_SIZE, OBJSET_SIZE_V1, OBJSET_TYPE_AT, OBJSET_USER_ACCOUNTING,
};

/// Bytes of the chain header of an intent log block, its embedded checksum included.
pub const ZIL_CHAIN: usize = 184;
/// Bytes of the chain header that are authenticated: padding, next pointer, used length.
const ZIL_CHAIN_AAD: usize = 144;
/// Offset of the number of used bytes in the chain header.
const ZIL_USED_AT: usize = 136;
/// Bytes at the beginning of each record that stay in clear.
const ZIL_RECORD_HEAD: usize = 32;
const TX_WRITE: u64 = 9;
const TX_CLONE_RANGE: u64 = 24;
/// The pointer of a TX_WRITE record.
const TX_WRITE_BP: Range<usize> = 64..192;
/// From this offset on a TX_CLONE_RANGE record is in clear.
const TX_CLONE_CLEAR: usize = 64;

/// How MACs over pointers are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MacVersion {
    /// Early development pools; only read.
    V0,
    /// Everything else.
    #[default]
    V1,
}

impl MacVersion {
    /// From the version of a key object.
    pub fn of_key(version: u64) -> Self {
        if version == 0 { Self::V0 } else { Self::V1 }
    }
}

const LEVEL_FIELD: u64 = 0x1f << 56;
const DEDUP: u64 = 1 << 62;
const LITTLE: u64 = 1 << 63;
const CHECKSUM: u64 = 0xff << 40;
const COMPRESSION: u64 = 0x7f << 32;
const PSIZE: u64 = 0xffff << 16;

/// The form of a pointer that MACs cover, appended to `out`.
pub fn push_pointer(out: &mut Vec<u8>, bp: &BlockPointer, version: MacVersion) {
    let props = bp.words[6];
    let (kept, mac) = match version {
        MacVersion::V0 => (
            props & !(DEDUP | CHECKSUM | PSIZE),
            if bp.is_hole() { [0; 16] } else { bp.mac() },
        ),
        MacVersion::V1 if bp.is_hole() => (0, [0; 16]),
        MacVersion::V1 => {
            let mut kept = props & !(DEDUP | CHECKSUM);
            if props & LEVEL_FIELD != 0 {
                // A receiver of a raw stream writes indirect blocks in a form of its own.
                kept &= !(LITTLE | COMPRESSION | PSIZE);
            }
            (kept, bp.mac())
        }
    };
    out.extend_from_slice(&kept.to_le_bytes());
    out.extend_from_slice(&mac);
    if version == MacVersion::V1 {
        out.extend_from_slice(&[0; 8]);
    }
}

/// The message for the MAC of an indirect block; the block is decoded, little-endian.
pub fn indirect_message(block: &[u8], version: MacVersion) -> Vec<u8> {
    let slots = block.as_chunks::<BP_SIZE>().0;
    let mut out = Vec::with_capacity(slots.len() * 32);
    for slot in slots {
        push_pointer(
            &mut out,
            &BlockPointer::parse(slot, ByteOrder::Little),
            version,
        );
    }
    out
}

/// The authenticated parts in clear and the ciphertext of a block that has both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Authenticated, not encrypted.
    pub aad: Vec<u8>,
    /// The ciphertext, in order.
    pub ranges: Vec<Range<usize>>,
}

impl Parts {
    /// The ciphertext of a block as contiguous bytes.
    pub fn gather(&self, block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.ranges.iter().map(Range::len).sum());
        for range in &self.ranges {
            out.extend_from_slice(block.get(range.clone()).unwrap_or_default());
        }
        out
    }

    /// Writes the message back to the places that [`Self::gather`] read.
    pub fn scatter(&self, message: &[u8], block: &mut [u8]) {
        let mut rest = message;
        for range in &self.ranges {
            if let (Some((now, later)), Some(to)) = (
                rest.split_at_checked(range.len()),
                block.get_mut(range.clone()),
            ) {
                to.copy_from_slice(now);
                rest = later;
            }
        }
    }
}

/// The head of a dnode in the form that MACs cover: without the used space, and only with the flag
/// for the spill pointer.
fn push_core(out: &mut Vec<u8>, dnode: &[u8]) {
    let at = out.len();
    out.extend_from_slice(&dnode[..DNODE_CORE]);
    let core = &mut out[at..];
    core[FLAGS_AT] &= FLAG_SPILL;
    core[USED_AT..USED_AT + 8].fill(0);
}

/// Head and pointers of a dnode; returns the range of its bonus. `order` is that of the bytes.
fn push_dnode(
    out: &mut Vec<u8>,
    dnode: &[u8],
    order: ByteOrder,
    version: MacVersion,
) -> FormatResult<Range<usize>> {
    push_core(out, dnode);
    if dnode[TYPE_AT] == 0 {
        return Ok(DNODE_CORE..dnode.len());
    }
    let pointers = usize::from(dnode[3]);
    let bonus_at = DNODE_CORE + pointers * BP_SIZE;
    let spill = dnode[FLAGS_AT] & FLAG_SPILL != 0;
    let end = dnode.len() - if spill { BP_SIZE } else { 0 };
    if bonus_at > end {
        return bad(format!("dnode has {pointers} block pointers"));
    }
    for i in 0..pointers {
        push_at(out, dnode, DNODE_CORE + i * BP_SIZE, order, version);
    }
    if spill {
        push_at(out, dnode, end, order, version);
    }
    Ok(bonus_at..end)
}

fn push_at(out: &mut Vec<u8>, bytes: &[u8], at: usize, order: ByteOrder, version: MacVersion) {
    if let Some(raw) = bytes
        .get(at..)
        .and_then(|tail| tail.first_chunk::<BP_SIZE>())
    {
        push_pointer(out, &BlockPointer::parse(raw, order), version);
    }
}

/// The parts of a block of dnodes as it is stored, in the byte order of its pointer.
///
/// # Errors
/// A dnode leaves the block, or its pointers leave the dnode.
pub fn dnode_block(block: &[u8], order: ByteOrder, version: MacVersion) -> FormatResult<Parts> {
    let mut parts = Parts {
        aad: Vec::with_capacity(block.len()),
        ranges: Vec::new(),
    };
    let mut at = 0;
    while at < block.len() {
        let rest = &block[at..];
        need(rest, DNODE_SLOT, "dnode")?;
        let slots = if rest[TYPE_AT] == 0 {
            1
        } else {
            usize::from(rest[EXTRA_SLOTS_AT]) + 1
        };
        let Some(dnode) = rest.get(..slots * DNODE_SLOT) else {
            return bad(format!("dnode of {slots} slots leaves its block"));
        };
        let bonus = push_dnode(&mut parts.aad, dnode, order, version)?;
        // The rest of a free slot is authenticated in clear (02b-encryption §9).
        let encrypted = dnode[TYPE_AT] != 0
            && object_type::is_encrypted(dnode[BONUS_TYPE_AT])
            && u16_in(dnode, BONUS_LEN_AT, order) != 0;
        if encrypted {
            parts.ranges.push(at + bonus.start..at + bonus.end);
        } else {
            parts.aad.extend_from_slice(&dnode[bonus]);
        }
        at += slots * DNODE_SLOT;
    }
    Ok(parts)
}

/// The messages for the two MACs of an object set block; the block is little-endian. `None` means a
/// local MAC of zeros.
///
/// # Errors
/// The block is too short, or a dnode in it is invalid.
pub fn objset_messages(
    block: &[u8],
    version: MacVersion,
) -> FormatResult<(Vec<u8>, Option<Vec<u8>>)> {
    need(block, OBJSET_SIZE_V1, "object set")?;
    let push = |out: &mut Vec<u8>, at: usize| match block.get(at..at + DNODE_SLOT) {
        Some(dnode) => push_dnode(out, dnode, ByteOrder::Little, version).map(|_| ()),
        None => Ok(()),
    };
    let mut portable = Vec::with_capacity(256);
    portable.extend_from_slice(&u64_at(block, OBJSET_TYPE_AT).to_be_bytes());
    // The portable flags: none exist (02b-encryption).
    portable.extend_from_slice(&[0; 8]);
    push(&mut portable, 0)?;

    let flags = u64_at(block, OBJSET_FLAGS_AT);
    let kind = |at: usize| block.get(at).copied().unwrap_or(0);
    if flags & OBJSET_USER_ACCOUNTING == 0
        || block.len() <= OBJSET_SIZE_V1
        || kind(1024) == 0 && kind(1536) == 0
    {
        return Ok((portable, None));
    }
    let mut local = Vec::with_capacity(768);
    local.extend_from_slice(&flags.to_le_bytes());
    for at in [1024, 1536, 2048] {
        if kind(at) != 0 && (at != 2048 || block.len() >= OBJSET_SIZE) {
            push(&mut local, at)?;
        }
    }
    Ok((portable, Some(local)))
}

/// The parts of an intent log block with a chain header in front, in its writer's byte order.
///
/// # Errors
/// The used length or that of a record leads out of the block.
pub fn zil_block(block: &[u8], order: ByteOrder) -> FormatResult<Parts> {
    need(block, ZIL_CHAIN, "intent log block")?;
    let used = usize::try_from(u64_in(block, ZIL_USED_AT, order)).unwrap_or(usize::MAX);
    if used < ZIL_CHAIN || used > block.len() {
        return bad(format!("intent log block has {used} bytes in use"));
    }
    let mut parts = Parts {
        aad: block[..ZIL_CHAIN_AAD].to_vec(),
        ranges: Vec::new(),
    };
    let mut at = ZIL_CHAIN;
    while at < used {
        let kind = u64_in(block, at, order) & !(1 << 63);
        let len = usize::try_from(u64_in(block, at + 8, order)).unwrap_or(usize::MAX);
        if len < ZIL_RECORD_HEAD || len > used - at {
            return bad(format!("intent log record of {len} bytes"));
        }
        parts
            .aad
            .extend_from_slice(&block[at..at + ZIL_RECORD_HEAD]);
        let end = at + len;
        match kind {
            TX_WRITE if len >= TX_WRITE_BP.end => {
                let clear = at + TX_WRITE_BP.start..at + TX_WRITE_BP.end;
                parts.aad.extend_from_slice(&block[clear.clone()]);
                parts.ranges.push(at + ZIL_RECORD_HEAD..clear.start);
                if clear.end < end {
                    parts.ranges.push(clear.end..end);
                }
            }
            TX_CLONE_RANGE if len >= TX_CLONE_CLEAR => {
                parts
                    .aad
                    .extend_from_slice(&block[at + TX_CLONE_CLEAR..end]);
                parts.ranges.push(at + ZIL_RECORD_HEAD..at + TX_CLONE_CLEAR);
            }
            TX_WRITE | TX_CLONE_RANGE => {
                return bad(format!("intent log record of type {kind} with {len} bytes"));
            }
            _ => parts.ranges.push(at + ZIL_RECORD_HEAD..end),
        }
        at = end;
    }
    Ok(parts)
}

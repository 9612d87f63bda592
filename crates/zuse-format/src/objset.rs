//! The object set block: root of every dataset and of the MOS.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 512 | meta dnode |
//! | 512 | 192 | ZIL header |
//! | 704 | 8 | type: 1 MOS, 2 file system, 3 volume, 4 other |
//! | 712 | 8 | flags |
//! | 720 | 32 | portable MAC |
//! | 752 | 32 | local MAC |
//! | 1024 | 512 | user-used dnode |
//! | 1536 | 512 | group-used dnode |
//! | 2048 | 512 | project-used dnode |
//!
//! The block is 1024 bytes (before accounting), 2048 or 4096. Missing parts read as absent, and a
//! shorter block grows when it is next written.

use crate::dnode::{DNODE_SLOT, DnodePhys};
use crate::error::{FormatResult, bad, need};
use crate::field::{put_u64, u64_at};

/// Block without accounting dnodes.
pub const OBJSET_SIZE_V1: usize = 1024;
/// Block with user and group accounting.
pub const OBJSET_SIZE_V2: usize = 2048;
/// Block with project accounting.
pub const OBJSET_SIZE: usize = 4096;
/// Bytes of the ZIL header.
pub const ZIL_HEADER_SIZE: usize = 192;
/// Offset of the ZIL header.
pub const ZIL_HEADER_AT: usize = 512;
/// Offset of the type.
pub const OBJSET_TYPE_AT: usize = 704;
/// Offset of the flags.
pub const OBJSET_FLAGS_AT: usize = 712;
/// Offset of the portable MAC.
pub const PORTABLE_MAC_AT: usize = 720;
/// Offset of the local MAC.
pub const LOCAL_MAC_AT: usize = 752;

/// User and group space is complete.
pub const OBJSET_USER_ACCOUNTING: u64 = 1;
/// User and group object counts are complete.
pub const OBJSET_USEROBJ_ACCOUNTING: u64 = 2;
/// Project accounting is complete.
pub const OBJSET_PROJECT_QUOTA: u64 = 4;

/// The type of an object set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum ObjsetType {
    /// Not set.
    None = 0,
    /// The pool's own.
    Meta = 1,
    /// File system.
    Zfs = 2,
    /// Volume.
    Zvol = 3,
    /// Test.
    Other = 4,
}

impl ObjsetType {
    /// Its number.
    pub const fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Meta => 1,
            Self::Zfs => 2,
            Self::Zvol => 3,
            Self::Other => 4,
        }
    }

    /// From its number.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Meta,
            2 => Self::Zfs,
            3 => Self::Zvol,
            4 => Self::Other,
            _ => return None,
        })
    }
}

/// A validated object set block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjsetPhys {
    /// Bytes of the block it came from or goes to: 1024, 2048 or 4096.
    pub size: usize,
    /// The meta dnode.
    pub meta_dnode: DnodePhys,
    /// The ZIL header as bytes, little-endian.
    pub zil_header: [u8; ZIL_HEADER_SIZE],
    /// Type.
    pub objset_type: ObjsetType,
    /// Flag bits.
    pub flags: u64,
    /// MAC over the portable part.
    pub portable_mac: [u8; 32],
    /// MAC over the local part.
    pub local_mac: [u8; 32],
    /// Space by user, object −1.
    pub user_used: Option<DnodePhys>,
    /// Space by group, object −2.
    pub group_used: Option<DnodePhys>,
    /// Space by project, object −3.
    pub project_used: Option<DnodePhys>,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|tail| tail.first_chunk())
        .copied()
        .unwrap_or([0; N])
}

fn dnode_at(bytes: &[u8], at: usize) -> FormatResult<Option<DnodePhys>> {
    match bytes.get(at..at + DNODE_SLOT) {
        Some(slot) => DnodePhys::parse(slot),
        None => Ok(None),
    }
}

impl ObjsetPhys {
    /// An empty object set of 4096 bytes.
    pub fn new(objset_type: ObjsetType, meta_dnode: DnodePhys) -> Self {
        Self {
            size: OBJSET_SIZE,
            meta_dnode,
            zil_header: [0; ZIL_HEADER_SIZE],
            objset_type,
            flags: 0,
            portable_mac: [0; 32],
            local_mac: [0; 32],
            user_used: None,
            group_used: None,
            project_used: None,
        }
    }

    /// Parses a block that is already little-endian.
    ///
    /// # Errors
    /// Too short, unknown type, or a broken dnode.
    pub fn parse(bytes: &[u8]) -> FormatResult<Self> {
        need(bytes, OBJSET_SIZE_V1, "object set")?;
        let Some(meta_dnode) = DnodePhys::parse(&bytes[..DNODE_SLOT])? else {
            return bad("object set has no meta dnode");
        };
        let number = u64_at(bytes, OBJSET_TYPE_AT);
        let Some(objset_type) = ObjsetType::from_number(number) else {
            return bad(format!("object set has type {number}"));
        };
        Ok(Self {
            size: bytes.len().min(OBJSET_SIZE),
            meta_dnode,
            zil_header: array(bytes, ZIL_HEADER_AT),
            objset_type,
            flags: u64_at(bytes, OBJSET_FLAGS_AT),
            portable_mac: array(bytes, PORTABLE_MAC_AT),
            local_mac: array(bytes, LOCAL_MAC_AT),
            user_used: dnode_at(bytes, 1024)?,
            group_used: dnode_at(bytes, 1536)?,
            project_used: dnode_at(bytes, 2048)?,
        })
    }

    /// The block of [`Self::size`] bytes.
    ///
    /// # Panics
    /// If a dnode has more than one slot: a bug of the caller.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.size.max(OBJSET_SIZE_V1)];
        self.meta_dnode.write_le(&mut out[..DNODE_SLOT]);
        out[ZIL_HEADER_AT..ZIL_HEADER_AT + ZIL_HEADER_SIZE].copy_from_slice(&self.zil_header);
        put_u64(&mut out, OBJSET_TYPE_AT, self.objset_type as u64);
        put_u64(&mut out, OBJSET_FLAGS_AT, self.flags);
        out[PORTABLE_MAC_AT..PORTABLE_MAC_AT + 32].copy_from_slice(&self.portable_mac);
        out[LOCAL_MAC_AT..LOCAL_MAC_AT + 32].copy_from_slice(&self.local_mac);
        for (at, dnode) in [
            (1024, &self.user_used),
            (1536, &self.group_used),
            (2048, &self.project_used),
        ] {
            if let (Some(dnode), Some(slot)) = (dnode, out.get_mut(at..at + DNODE_SLOT)) {
                dnode.write_le(slot);
            }
        }
        out
    }
}

/// Levels of a new dataset's meta dnode: the smallest that hold 2^48 objects.
pub fn meta_dnode_levels(indirect_shift: u8) -> u8 {
    let fanout = u32::from(indirect_shift.clamp(12, 17)) - 7;
    let mut levels = 1;
    while (3u128 << (5 + fanout * (u32::from(levels) - 1))) < 1 << 48 {
        levels += 1;
    }
    levels
}

#[cfg(test)]
mod tests;

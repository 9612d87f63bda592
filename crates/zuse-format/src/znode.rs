//! The znode of file systems before version 5: 264 fixed bytes in a bonus of type 17.
//!
//! Times at 0, 16, 32, 48 (seconds, nanoseconds); then gen 64, mode 72, size 80, parent 88, links 96, xattr directory 104,
//! rdev 112, flags 120, uid 128, gid 136, padding 144, ACL area 176; symlink target or scan stamp from 264.
//!
//! ACL area of 88 bytes: external object 8, size (or count) 4, version 2, entries 2, 72 bytes of entries.

use crate::acl::{Ace, parse_acl, parse_old_acl};
use crate::error::{FormatResult, need};
use crate::field::{put_u64, u16_at, u32_at, u64_at};

/// Bytes of the fixed part.
pub const ZNODE_SIZE: usize = 264;
/// Offset of the ACL area.
pub const ZNODE_ACL_AT: usize = 176;
/// Bytes of the ACL area.
pub const ZNODE_ACL_SIZE: usize = 88;

/// A legacy znode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZnodePhys {
    /// Access: seconds, nanoseconds.
    pub atime: [u64; 2],
    /// Modification.
    pub mtime: [u64; 2],
    /// Status change.
    pub ctime: [u64; 2],
    /// Creation.
    pub crtime: [u64; 2],
    /// Txg of creation.
    pub generation: u64,
    /// Mode with type bits.
    pub mode: u64,
    /// Bytes, or entries + 2.
    pub size: u64,
    /// Parent directory.
    pub parent: u64,
    /// Link count.
    pub links: u64,
    /// Directory of extended attributes, or 0.
    pub xattr: u64,
    /// Device number.
    pub rdev: u64,
    /// Flag bits.
    pub flags: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// The ACL area.
    pub acl: [u8; ZNODE_ACL_SIZE],
}

/// The ACL of a legacy znode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ZnodeAcl {
    /// Entries in the znode.
    Embedded(Vec<Ace>),
    /// Entries in block 0 of an object.
    External {
        /// The object.
        object: u64,
        /// Bytes (version 1) or entries (version 0).
        size: u32,
        /// 0: entries of 12 bytes.
        version: u16,
    },
}

impl ZnodePhys {
    /// Parses a bonus that is already little-endian.
    ///
    /// # Errors
    /// Shorter than 264 bytes.
    pub fn parse(bonus: &[u8]) -> FormatResult<Self> {
        need(bonus, ZNODE_SIZE, "znode")?;
        let time = |at| [u64_at(bonus, at), u64_at(bonus, at + 8)];
        Ok(Self {
            atime: time(0),
            mtime: time(16),
            ctime: time(32),
            crtime: time(48),
            generation: u64_at(bonus, 64),
            mode: u64_at(bonus, 72),
            size: u64_at(bonus, 80),
            parent: u64_at(bonus, 88),
            links: u64_at(bonus, 96),
            xattr: u64_at(bonus, 104),
            rdev: u64_at(bonus, 112),
            flags: u64_at(bonus, 120),
            uid: u64_at(bonus, 128),
            gid: u64_at(bonus, 136),
            acl: bonus[ZNODE_ACL_AT..]
                .first_chunk()
                .copied()
                .unwrap_or([0; ZNODE_ACL_SIZE]),
        })
    }

    /// Writes the fields in place; padding and what follows are kept.
    pub fn write_le(&self, out: &mut [u8]) {
        let times = [self.atime, self.mtime, self.ctime, self.crtime];
        let rest = [
            self.generation,
            self.mode,
            self.size,
            self.parent,
            self.links,
            self.xattr,
            self.rdev,
            self.flags,
            self.uid,
            self.gid,
        ];
        for (i, word) in times.into_iter().flatten().chain(rest).enumerate() {
            put_u64(out, 8 * i, word);
        }
        out[ZNODE_ACL_AT..ZNODE_SIZE].copy_from_slice(&self.acl);
    }

    /// The ACL, or where it is.
    ///
    /// # Errors
    /// A damaged entry.
    pub fn acl(&self) -> FormatResult<ZnodeAcl> {
        let (object, size, version) = (
            u64_at(&self.acl, 0),
            u32_at(&self.acl, 8),
            u16_at(&self.acl, 12),
        );
        if object != 0 {
            return Ok(ZnodeAcl::External {
                object,
                size,
                version,
            });
        }
        let room = &self.acl[16..];
        if version == 0 {
            return Ok(ZnodeAcl::Embedded(parse_old_acl(room, size as usize)));
        }
        Ok(ZnodeAcl::Embedded(parse_acl(
            &room[..(size as usize).min(room.len())],
        )?))
    }
}

#[cfg(test)]
mod tests;

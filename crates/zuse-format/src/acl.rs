//! ACL entries, and the trivial ACL that stands for a mode.
//!
//! An entry is {type 2, flags 2, mask 4}, then 8 bytes of who unless it is for owner@, group@ or everyone@, then 32
//! bytes for object types. Every object has an ACL on disk, trivial ones included.

use crate::error::{FormatResult, bad};
use crate::field::{u16_at, u32_at, u64_at};
use crate::object_type::ace_size;

/// Entry type: allow.
pub const ACE_ALLOW: u16 = 0;
/// Entry type: deny.
pub const ACE_DENY: u16 = 1;
/// Flags of owner@.
pub const ACE_OWNER: u16 = 0x1000;
/// Flags of group@.
pub const ACE_GROUP: u16 = 0x2040;
/// Flags of everyone@.
pub const ACE_EVERYONE: u16 = 0x4000;
/// Flag: inherited by files.
pub const ACE_FILE_INHERIT: u16 = 1;
/// Flag: inherited by directories.
pub const ACE_DIRECTORY_INHERIT: u16 = 2;
/// Flag: inherited only once.
pub const ACE_NO_PROPAGATE: u16 = 4;
/// Flag: does not apply here.
pub const ACE_INHERIT_ONLY: u16 = 8;
/// Flag: who is a group.
pub const ACE_IDENTIFIER_GROUP: u16 = 0x40;
/// Flag: came by inheritance.
pub const ACE_INHERITED: u16 = 0x80;
/// Mask: read data, list directory.
pub const ACE_READ_DATA: u32 = 1;
/// Mask: write data, add file.
pub const ACE_WRITE_DATA: u32 = 2;
/// Mask: append data, add directory.
pub const ACE_APPEND_DATA: u32 = 4;
/// Mask: execute, search.
pub const ACE_EXECUTE: u32 = 0x20;
/// Mask: delete children.
pub const ACE_DELETE_CHILD: u32 = 0x40;
/// Entries of one ACL at most.
pub const ACL_MAX_ENTRIES: usize = 1024;

const OWNER_BASE: u32 = 0x1e_0198;
const OTHER_BASE: u32 = 0x12_0088;

/// One entry of an ACL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ace {
    /// Type.
    pub kind: u16,
    /// Flags.
    pub flags: u16,
    /// Access mask.
    pub mask: u32,
    /// User or group, unless flags say owner@, group@ or everyone@.
    pub who: Option<u64>,
    /// Object types of entry types 5..=8.
    pub object: Option<[u8; 32]>,
}

impl Ace {
    /// An entry for owner@, group@ or everyone@.
    pub fn special(kind: u16, flags: u16, mask: u32) -> Self {
        Self {
            kind,
            flags,
            mask,
            who: None,
            object: None,
        }
    }

    /// Bytes on disk.
    pub fn size(&self) -> usize {
        ace_size(self.kind, self.flags)
    }

    /// Reads the entry at the start of `bytes`, and its size.
    ///
    /// # Errors
    /// The entry leaves the slice.
    pub fn parse(bytes: &[u8]) -> FormatResult<(Self, usize)> {
        let (kind, flags) = (u16_at(bytes, 0), u16_at(bytes, 2));
        let size = ace_size(kind, flags);
        if bytes.len() < size {
            return bad("ACL ends inside an entry");
        }
        let who = (size > 8).then(|| u64_at(bytes, 8));
        let object = if size == 48 {
            bytes[16..].first_chunk().copied()
        } else {
            None
        };
        Ok((
            Self {
                kind,
                flags,
                mask: u32_at(bytes, 4),
                who,
                object,
            },
            size,
        ))
    }

    /// The entry as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48);
        out.extend(self.kind.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.mask.to_le_bytes());
        let size = self.size();
        if size > 8 {
            out.extend(self.who.unwrap_or(0).to_le_bytes());
        }
        if size == 48 {
            out.extend(self.object.unwrap_or([0; 32]));
        }
        out
    }
}

/// All entries of an ACL of version 1.
///
/// # Errors
/// An entry that leaves the slice, or too many.
pub fn parse_acl(mut bytes: &[u8]) -> FormatResult<Vec<Ace>> {
    let mut entries = Vec::new();
    while bytes.len() >= 8 {
        let (ace, size) = Ace::parse(bytes)?;
        entries.push(ace);
        if entries.len() > ACL_MAX_ENTRIES {
            return bad("ACL has too many entries");
        }
        bytes = &bytes[size..];
    }
    Ok(entries)
}

/// All entries of an ACL of version 0 (12 bytes each), as version 1.
pub fn parse_old_acl(bytes: &[u8], count: usize) -> Vec<Ace> {
    let entries = bytes
        .as_chunks::<12>()
        .0
        .iter()
        .take(count.min(ACL_MAX_ENTRIES));
    entries
        .map(|raw| {
            let (flags, kind) = (u16_at(raw, 8), u16_at(raw, 10));
            let who = (ace_size(kind, flags) > 8).then(|| u64::from(u32_at(raw, 0)));
            Ace {
                kind,
                flags,
                mask: u32_at(raw, 4),
                who,
                object: None,
            }
        })
        .collect()
}

/// The ACL that says no more than the permission bits of a mode.
pub fn trivial_acl(mode: u32, is_directory: bool) -> Vec<Ace> {
    let write = ACE_WRITE_DATA | ACE_APPEND_DATA | if is_directory { ACE_DELETE_CHILD } else { 0 };
    let mask = |bits: u32| {
        (if bits & 4 != 0 { ACE_READ_DATA } else { 0 })
            | (if bits & 2 != 0 { write } else { 0 })
            | (if bits & 1 != 0 { ACE_EXECUTE } else { 0 })
    };
    let (owner, group, other) = (mode >> 6 & 7, mode >> 3 & 7, mode & 7);
    let optional = [
        (ACE_ALLOW, ACE_OWNER, owner & !group & other),
        (ACE_DENY, ACE_OWNER, !owner & (group | other)),
        (ACE_DENY, ACE_GROUP, !group & other),
    ];
    let mut acl: Vec<Ace> = optional
        .into_iter()
        .filter(|(_, _, bits)| *bits != 0)
        .map(|(kind, flags, bits)| Ace::special(kind, flags, mask(bits)))
        .collect();
    acl.push(Ace::special(ACE_ALLOW, ACE_OWNER, OWNER_BASE | mask(owner)));
    acl.push(Ace::special(ACE_ALLOW, ACE_GROUP, OTHER_BASE | mask(group)));
    acl.push(Ace::special(
        ACE_ALLOW,
        ACE_EVERYONE,
        OTHER_BASE | mask(other),
    ));
    acl
}

/// The bytes of an ACL's entries.
pub fn encode_acl(entries: &[Ace]) -> Vec<u8> {
    entries.iter().flat_map(Ace::to_bytes).collect()
}

#[cfg(test)]
mod tests;

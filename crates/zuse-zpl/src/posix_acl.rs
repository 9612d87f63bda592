//! POSIX ACLs in the kernel's extended-attribute form, and how an ACL and the mode change each
//! other.
//!
//! ```text
//!   0  u32  version 2
//!   4  8 bytes per entry: u16 tag, u16 permissions, u32 id (0xffffffff where the tag has none)
//! ```
//! Tags: 1 owner, 2 user, 4 owning group, 8 group, 0x10 mask, 0x20 other. Entries are in tag order.
//! Owner, owning group and other are always present. A mask is present if there is a user or a
//! group.

use zuse_base::{Errno, Error, Result};

use crate::credentials::Credentials;

/// Name of the access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the default ACL of directories.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP_OWNER: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A valid POSIX ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixAcl {
    entries: Vec<Entry>,
}

fn invalid(what: &str) -> Error {
    Error::refused(Errno::INVAL, format!("a POSIX ACL {what}"))
}

impl PosixAcl {
    /// Parses and checks the attribute's value. `None` for an ACL without entries.
    ///
    /// # Errors
    /// `Refused(INVAL)`, `Refused(NOTSUP)` for another version.
    pub fn parse(value: &[u8]) -> Result<Option<Self>> {
        let Some((version, rest)) = value.split_first_chunk::<4>() else {
            return Err(invalid("is too short"));
        };
        if u32::from_le_bytes(*version) != 2 {
            return Err(Error::refused(
                Errno::NOTSUP,
                "a POSIX ACL of another version",
            ));
        }
        let (chunks, odd) = rest.as_chunks::<8>();
        if !odd.is_empty() {
            return Err(invalid("has a broken entry"));
        }
        if chunks.is_empty() {
            return Ok(None);
        }
        let entries: Vec<Entry> = chunks
            .iter()
            .map(|&[a, b, c, d, e, f, g, h]| Entry {
                tag: u16::from_le_bytes([a, b]),
                permissions: u16::from_le_bytes([c, d]),
                id: u32::from_le_bytes([e, f, g, h]),
            })
            .collect();
        let acl = Self { entries };
        acl.check()?;
        Ok(Some(acl))
    }

    fn check(&self) -> Result<()> {
        let count = |tag| self.entries.iter().filter(|e| e.tag == tag).count();
        if self
            .entries
            .iter()
            .any(|e| !matches!(e.tag, OWNER | USER | GROUP_OWNER | GROUP | MASK | OTHER))
        {
            return Err(invalid("has an unknown tag"));
        }
        if !self.entries.is_sorted_by_key(|e| e.tag) {
            return Err(invalid("is out of order"));
        }
        if self.entries.iter().any(|e| e.permissions > 7) {
            return Err(invalid("has unknown permissions"));
        }
        if [OWNER, GROUP_OWNER, OTHER].iter().any(|&t| count(t) != 1) || count(MASK) > 1 {
            return Err(invalid("lacks an entry"));
        }
        if count(USER) + count(GROUP) > 0 && count(MASK) == 0 {
            return Err(invalid("lacks a mask"));
        }
        Ok(())
    }

    /// The attribute's value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + 8 * self.entries.len());
        out.extend_from_slice(&2u32.to_le_bytes());
        for e in &self.entries {
            let id = if matches!(e.tag, USER | GROUP) {
                e.id
            } else {
                NO_ID
            };
            out.extend_from_slice(&e.tag.to_le_bytes());
            out.extend_from_slice(&e.permissions.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    fn permissions(&self, tag: u16) -> Option<u32> {
        self.entries
            .iter()
            .find(|e| e.tag == tag)
            .map(|e| u32::from(e.permissions))
    }

    fn set(&mut self, tag: u16, permissions: u32) {
        for e in self.entries.iter_mut().filter(|e| e.tag == tag) {
            e.permissions = (permissions & 7) as u16;
        }
    }

    fn group_class(&self) -> u16 {
        if self.permissions(MASK).is_some() {
            MASK
        } else {
            GROUP_OWNER
        }
    }

    /// The nine permission bits of a mode with this ACL.
    pub fn mode_bits(&self) -> u32 {
        let of = |tag| self.permissions(tag).unwrap_or(0);
        of(OWNER) << 6 | of(self.group_class()) << 3 | of(OTHER)
    }

    /// Whether the mode alone expresses the ACL.
    pub fn is_mode(&self) -> bool {
        self.entries.len() == 3
    }

    /// After `chmod`.
    pub fn apply_mode(&mut self, mode: u32) {
        self.set(OWNER, mode >> 6);
        self.set(self.group_class(), mode >> 3);
        self.set(OTHER, mode);
    }

    /// For a new object in a directory with this default ACL: the requested mode removes
    /// permissions. Returns the nine permission bits of the object.
    pub fn narrow(&mut self, mode: u32) -> u32 {
        for (tag, bits) in [
            (OWNER, mode >> 6),
            (self.group_class(), mode >> 3),
            (OTHER, mode),
        ] {
            let now = self.permissions(tag).unwrap_or(0);
            self.set(tag, now & bits);
        }
        self.mode_bits()
    }

    /// Whether the ACL grants `want` (bits 4, 2, 1).
    pub fn permits(&self, who: &Credentials, uid: u64, gid: u64, want: u32) -> bool {
        let mask = self.permissions(MASK).unwrap_or(7);
        let has = |p: u32| p & want == want;
        // The first class that the caller belongs to decides, even if it grants less than the
        // others.
        if uid == u64::from(who.uid) {
            return has(self.permissions(OWNER).unwrap_or(0));
        }
        if let Some(e) = self
            .entries
            .iter()
            .find(|e| e.tag == USER && e.id == who.uid)
        {
            return has(u32::from(e.permissions) & mask);
        }
        // Any of the caller's groups may grant it. Only without a group does "other" apply.
        let mut in_group = false;
        for e in &self.entries {
            let mine = match e.tag {
                GROUP_OWNER => u32::try_from(gid).is_ok_and(|g| who.in_group(g)),
                GROUP => who.in_group(e.id),
                _ => false,
            };
            if mine {
                in_group = true;
                if has(u32::from(e.permissions) & mask) {
                    return true;
                }
            }
        }
        !in_group && has(self.permissions(OTHER).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;

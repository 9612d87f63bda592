//! The NFSv4-style ACL of every object, as far as it follows from the mode (chapter 03b §7 of the
//! format notes).
//!
//! Only trivial ACLs are created: they correspond to the mode and are rebuilt at each `chmod`.
//! Richer ones of other systems (`list`) are kept until then.

pub(crate) mod list;

use crate::mode;

const OWNER: u16 = 0x1000;
const GROUP: u16 = 0x2040;
const EVERYONE: u16 = 0x4000;
const ALLOW: u16 = 0;
const DENY: u16 = 1;

/// A trivial ACL: at most six entries of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrivialAcl {
    bytes: [u8; 48],
    count: usize,
    /// Every caller may execute.
    pub no_execs_denied: bool,
}

impl TrivialAcl {
    /// The ACL of a mode.
    pub fn of(mode: u32) -> Self {
        let write = if mode & mode::TYPE == mode::DIRECTORY {
            0x46
        } else {
            6
        };
        let class = |bits: u32| {
            (if bits & 4 != 0 { 1 } else { 0 })
                | (if bits & 2 != 0 { write } else { 0 })
                | (if bits & 1 != 0 { 0x20 } else { 0 })
        };
        let (owner, group, other) = (class(mode >> 6), class(mode >> 3), class(mode));
        let mut acl = Self {
            bytes: [0; 48],
            count: 0,
            no_execs_denied: mode & 0o111 == 0o111,
        };
        acl.push_some(ALLOW, OWNER, owner & !group & other);
        acl.push_some(DENY, OWNER, !owner & (group | other));
        acl.push_some(DENY, GROUP, !group & other);
        acl.push(ALLOW, OWNER, 0x1e_0198 | owner);
        acl.push(ALLOW, GROUP, 0x12_0088 | group);
        acl.push(ALLOW, EVERYONE, 0x12_0088 | other);
        acl
    }

    fn push_some(&mut self, kind: u16, who: u16, mask: u32) {
        if mask != 0 {
            self.push(kind, who, mask);
        }
    }

    fn push(&mut self, kind: u16, who: u16, mask: u32) {
        let at = self.count * 8;
        self.bytes[at..at + 2].copy_from_slice(&kind.to_le_bytes());
        self.bytes[at + 2..at + 4].copy_from_slice(&who.to_le_bytes());
        self.bytes[at + 4..at + 8].copy_from_slice(&mask.to_le_bytes());
        self.count += 1;
    }

    /// Number of entries.
    pub fn count(&self) -> u64 {
        self.count as u64
    }

    /// The packed entries.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count * 8]
    }

    /// The 88-byte ACL area of a legacy znode: version 1, or version 0 for old file systems.
    pub fn legacy(&self, version_1: bool) -> [u8; 88] {
        let mut area = [0; 88];
        if version_1 {
            area[8..12].copy_from_slice(&((self.count * 8) as u32).to_le_bytes());
            area[12..14].copy_from_slice(&1u16.to_le_bytes());
            area[14..16].copy_from_slice(&(self.count as u16).to_le_bytes());
            area[16..16 + self.count * 8].copy_from_slice(self.bytes());
        } else {
            area[8..12].copy_from_slice(&(self.count as u32).to_le_bytes());
            for (i, ace) in self.bytes().as_chunks::<8>().0.iter().enumerate() {
                let at = 16 + i * 12;
                area[at..at + 4].fill(0xff);
                area[at + 4..at + 8].copy_from_slice(&ace[4..8]);
                area[at + 8..at + 10].copy_from_slice(&ace[2..4]);
                area[at + 10..at + 12].copy_from_slice(&ace[0..2]);
            }
        }
        area
    }
}

#[cfg(test)]
mod tests;

//! An ACL with all its entries: read from objects and from the intent log, stored again, shown in
//! the NFSv4 form. Chapter 03b §7 of the format notes.
//!
//! ```text
//!   stored now      type u16, flags u16, mask u32 [, who u64 [, two object types of 16 bytes]]     8, 16 or 48 bytes
//!   ZPL 1 and 2     who u32, mask u32, flags u16, type u16                                         12 bytes
//!   as NFSv4 (XDR)  ACL flags, count, then type, flags, special?, mask, who: five u32 each
//! ```
//! It is not enforced here: access is checked by the mode, which follows from it.

use zuse_base::ByteOrder;
use zuse_format::field::{u16_in, u32_in, u64_in};

use crate::mode;

/// Entries of one ACL that are accepted.
const ENTRIES_MAX: usize = 1024;
/// The id in the old form for owner, group and everyone.
const NOBODY: u32 = u32::MAX;

const ALLOW: u16 = 0;
const DENY: u16 = 1;
/// Types whose entries have two object types.
const OBJECT_TYPES: std::ops::RangeInclusive<u16> = 5..=8;

const INHERIT: u16 = 0x0f;
const INHERIT_ONLY: u16 = 8;
const GROUP_ID: u16 = 0x40;
const OWNER: u16 = 0x1000;
const OWNING_GROUP: u16 = 0x2040;
const EVERYONE: u16 = 0x4000;
const WHO: u16 = 0x7040;

const READ: u32 = 1;
const WRITE: u32 = 2;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
const READ_ATTRIBUTES: u32 = 0x80;
const DELETE: u32 = 0x1_0000;
const READ_ACL: u32 = 0x2_0000;
/// Write named attributes, attributes, ACL, owner.
const OWNERS_OWN: u32 = 0x0c_0110;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    kind: u16,
    flags: u16,
    mask: u32,
    who: u64,
    objects: [u8; 32],
}

impl Entry {
    fn is_special(&self) -> bool {
        matches!(self.flags & WHO, OWNER | OWNING_GROUP | EVERYONE)
    }

    /// Whether a mode can say the same as this entry for its class.
    fn is_in_a_mode(&self) -> bool {
        let is_owner = self.flags & WHO == OWNER;
        let deletes =
            self.mask & DELETE != 0 || self.mask & DELETE_CHILD != 0 && self.mask & WRITE == 0;
        // A mode never denies these to anyone.
        let denies_reading = self.kind == DENY && self.mask & (READ_ACL | READ_ATTRIBUTES) != 0;
        // And allows these only to the owner.
        let allows_changing = self.kind == ALLOW && !is_owner && self.mask & OWNERS_OWN != 0;
        self.kind <= DENY && !deletes && !denies_reading && !allows_changing
    }
}

/// An ACL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

/// The mode that corresponds to an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsMode {
    /// The complete mode; type, set-ids and sticky bit are unchanged.
    pub mode: u32,
    /// Every caller may execute.
    pub no_execs_denied: bool,
}

impl Acl {
    /// Parses entries of the current form.
    ///
    /// # Errors
    /// An entry is incomplete, or there are too many.
    pub fn parse(mut bytes: &[u8], order: ByteOrder) -> Result<Self, &'static str> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let (kind, flags) = (u16_in(bytes, 0, order), u16_in(bytes, 2, order));
            let is_object = OBJECT_TYPES.contains(&kind);
            let short = kind <= DENY && matches!(flags & WHO, OWNER | OWNING_GROUP | EVERYONE);
            let size = match (is_object, short) {
                (true, _) => 48,
                (false, true) => 8,
                (false, false) => 16,
            };
            let Some((entry, rest)) = bytes.split_at_checked(size) else {
                return Err("an ACL ends inside an entry");
            };
            // The bytes come from disk: they must not decide how much memory is taken.
            if entries.len() == ENTRIES_MAX {
                return Err("an ACL of too many entries");
            }
            let mut objects = [0; 32];
            if is_object {
                objects.copy_from_slice(&entry[16..48]);
            }
            entries.push(Entry {
                kind,
                flags,
                mask: u32_in(entry, 4, order),
                who: if short { 0 } else { u64_in(entry, 8, order) },
                objects,
            });
            bytes = rest;
        }
        Ok(Self { entries })
    }

    /// Parses entries of ZPL versions 1 and 2.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_old(bytes: &[u8], order: ByteOrder) -> Result<Self, &'static str> {
        let (all, rest) = bytes.as_chunks::<12>();
        if !rest.is_empty() {
            return Err("an ACL ends inside an entry");
        }
        if all.len() > ENTRIES_MAX {
            return Err("an ACL of too many entries");
        }
        let entries = all.iter().map(|b| {
            let who = u32_in(b, 0, order);
            Entry {
                kind: u16_in(b, 10, order),
                flags: u16_in(b, 8, order),
                mask: u32_in(b, 4, order),
                who: if who == NOBODY { 0 } else { u64::from(who) },
                objects: [0; 32],
            }
        });
        Ok(Self {
            entries: entries.collect(),
        })
    }

    /// Number of entries.
    pub fn count(&self) -> u64 {
        self.entries.len() as u64
    }

    /// As stored now.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len() * 16);
        for e in &self.entries {
            out.extend_from_slice(&e.kind.to_le_bytes());
            out.extend_from_slice(&e.flags.to_le_bytes());
            out.extend_from_slice(&e.mask.to_le_bytes());
            if OBJECT_TYPES.contains(&e.kind) {
                out.extend_from_slice(&e.who.to_le_bytes());
                out.extend_from_slice(&e.objects);
            } else if e.kind > DENY || !e.is_special() {
                out.extend_from_slice(&e.who.to_le_bytes());
            }
        }
        out
    }

    /// The stored form of ZPL versions 1 and 2; `None` if an id does not fit.
    pub fn to_old_bytes(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(self.entries.len() * 12);
        for e in &self.entries {
            let who = if e.is_special() {
                NOBODY
            } else {
                u32::try_from(e.who).ok()?
            };
            out.extend_from_slice(&who.to_le_bytes());
            out.extend_from_slice(&e.mask.to_le_bytes());
            out.extend_from_slice(&e.flags.to_le_bytes());
            out.extend_from_slice(&e.kind.to_le_bytes());
        }
        Some(out)
    }

    /// As an NFSv4 ACL in XDR; `auto_inherit` is its only supported flag.
    pub fn to_xdr(&self, auto_inherit: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.entries.len() * 20);
        let mut put = |word: u32| out.extend_from_slice(&word.to_be_bytes());
        put(u32::from(auto_inherit));
        put(self.entries.len() as u32);
        for e in &self.entries {
            let special = match e.flags & WHO {
                OWNER => 1,
                OWNING_GROUP => 2,
                EVERYONE => 3,
                _ => 0,
            };
            put(u32::from(e.kind));
            put(u32::from(e.flags & 0xff)
                & if special != 0 {
                    !u32::from(GROUP_ID)
                } else {
                    !0
                });
            put(u32::from(special != 0));
            put(e.mask);
            // Ids of other domains are unknown here.
            put(if special != 0 {
                special
            } else {
                u32::try_from(e.who).unwrap_or(NOBODY)
            });
        }
        out
    }

    /// The corresponding mode, for an owner and a group.
    pub fn as_mode(&self, old: u32, uid: u64, gid: u64) -> AsMode {
        // Bits of a mode that are decided, and those that are granted.
        let (mut seen, mut granted) = (0u32, 0u32);
        let mut exec_denied = false;
        let bits = |mask: u32| {
            (if mask & READ != 0 { 4 } else { 0 })
                | (if mask & WRITE != 0 { 2 } else { 0 })
                | u32::from(mask & EXECUTE != 0)
        };
        for e in &self.entries {
            // Entries for new objects, and audit entries, grant nothing here.
            if e.flags & INHERIT_ONLY != 0 || e.kind > DENY {
                continue;
            }
            let who = e.flags & WHO;
            let three = bits(e.mask);
            let covered = if who == OWNER || who == 0 && e.who == uid {
                three << 6
            } else if who == OWNING_GROUP || who == GROUP_ID && e.who == gid {
                three << 3
            } else if who == EVERYONE {
                three << 6 | three << 3 | three
            } else {
                exec_denied |= e.kind == DENY && e.mask & EXECUTE != 0;
                0
            };
            // The first entry that mentions a bit decides it (03c §8).
            let new = covered & !seen;
            seen |= new;
            if e.kind == ALLOW {
                granted |= new;
            }
        }
        AsMode {
            mode: old & !0o777 | granted,
            no_execs_denied: !exec_denied && seen & granted & 0o111 == 0o111,
        }
    }

    /// Whether it is equivalent to a mode.
    pub fn is_trivial(&self) -> bool {
        self.entries.iter().all(|e| {
            let is_for_classes = e.is_special() && e.flags & INHERIT == 0;
            is_for_classes && e.is_in_a_mode()
        })
    }

    /// Whether new objects inherit any of it.
    pub fn inherits(&self) -> bool {
        self.entries.iter().any(|e| e.flags & 3 != 0)
    }
}

/// The ACL area of a legacy znode: entries inside, or the object with them.
pub(crate) enum Area<'a> {
    /// Bytes of entries in the area.
    Inside(&'a [u8]),
    /// Object, and how many bytes of it.
    Object(u64, usize),
}

/// Parses the 88-byte area of a legacy znode; returns whether its entries have the old form, too.
pub(crate) fn legacy_area(area: &[u8]) -> (Area<'_>, bool) {
    let le = ByteOrder::Little;
    let object = u64_in(area, 0, le);
    let number = u32_in(area, 8, le) as usize;
    let old = u16_in(area, 12, le) == 0;
    let len = if old {
        number.saturating_mul(12)
    } else {
        number
    };
    match area.get(16..16usize.saturating_add(len)) {
        Some(bytes) if object == 0 => (Area::Inside(bytes), old),
        _ if object == 0 => (Area::Inside(&[]), old),
        _ => (Area::Object(object, len), old),
    }
}

/// The 88-byte area for entries of some form; `object` has the entries instead, 0 for none.
pub(crate) fn new_legacy_area(count: u64, bytes: &[u8], old: bool, object: u64) -> [u8; 88] {
    let mut area = [0; 88];
    area[..8].copy_from_slice(&object.to_le_bytes());
    let number = if old {
        count as u32
    } else {
        bytes.len() as u32
    };
    area[8..12].copy_from_slice(&number.to_le_bytes());
    area[12..14].copy_from_slice(&u16::from(!old).to_le_bytes());
    if !old {
        area[14..16].copy_from_slice(&(count as u16).to_le_bytes());
    }
    if object == 0 {
        area[16..16 + bytes.len().min(72)].copy_from_slice(&bytes[..bytes.len().min(72)]);
    }
    area
}

/// Whether a mode belongs to a type of object that has its own ACL.
pub(crate) fn has_acl(mode: u32) -> bool {
    mode & mode::TYPE != mode::SYMLINK
}

#[cfg(test)]
mod tests;

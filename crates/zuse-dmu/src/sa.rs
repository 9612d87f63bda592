//! System attributes: the metadata of files. They are kept in the bonus of dnodes, with a spill
//! block for the rest.
//!
//! ```text
//!  bonus (or spill)   0 magic 0x002F505A   4 layout (10 bits) | header/8 (6 bits)   6 lengths of variable attributes, u16 each
//!  header             attribute values in layout order, each at a multiple of 8
//! ```
//! A layout is a sequence of attribute numbers. Names, numbers and layouts are in two tables per
//! object set ([`SaTable`]). Old objects (bonus type 17) have one fixed layout without a header,
//! and are read by the same code.
//!
//! Invariants
//! - A layout number is added to the LAYOUTS table before any buffer uses it, in the same txg. A
//!   buffer is built from a `Layout`, which only the table can provide.
//! - New sets are written in canonical order, because space accounting reads owner ids at fixed
//!   offsets. [`SaTable::init`] puts them there, whatever the caller's order.
//! - Layouts are only added, so a reader that holds one needs no lock. The tables have no way to
//!   remove one, and a second one with the same number is `Corrupt`.
//!
//! Bytes beyond the last attribute are never read. Unknown attributes are kept.

pub mod attribute;
mod buffer;
pub mod dxattr;
mod layout;
mod place;
mod table;
mod view;
mod write;

pub use attribute::Attr;
pub use table::SaTable;
pub use view::{SaPeek, SaView};

use buffer::u64_in;

/// Bonus type of system attributes.
pub const SA_BONUS: u8 = 44;
/// Bonus type of legacy znodes.
pub const ZNODE_BONUS: u8 = 17;
/// Bytes of a legacy znode.
pub const ZNODE_SIZE: usize = 264;
/// The magic number of a buffer.
pub const MAGIC: u32 = 0x002F_505A;
/// FLAGS bit: the object has a project id.
pub const FLAG_PROJID: u64 = 0x8000_0000_0000;

/// Owner ids of an object, for space accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OwnerIds {
    /// User (FUID).
    pub uid: u64,
    /// Group (FUID).
    pub gid: u64,
    /// Project, 0 if it has none.
    pub projid: u64,
    /// FLAGS.
    pub flags: u64,
    /// MODE.
    pub mode: u64,
    /// SIZE.
    pub size: u64,
    /// GEN.
    pub generation: u64,
    /// PARENT.
    pub parent: u64,
}

/// Owner ids at their fixed offsets, without the layout; `None` for objects that are not accounted
/// for.
pub fn owner_ids(bonus_type: u8, bonus: &[u8]) -> Option<OwnerIds> {
    if bonus_type == ZNODE_BONUS && bonus.len() >= ZNODE_SIZE {
        let at = |offset| u64_in(bonus, offset, false);
        return Some(OwnerIds {
            uid: at(128),
            gid: at(136),
            projid: 0,
            flags: at(120),
            mode: at(72),
            size: at(80),
            generation: at(64),
            parent: at(88),
        });
    }
    if bonus_type != SA_BONUS {
        return None;
    }
    read_fixed(bonus)
}

/// The fields of an SA buffer that are at fixed offsets in every canonical layout.
pub fn read_fixed(b: &[u8]) -> Option<OwnerIds> {
    let (swapped, header) = buffer::header_of(b).ok()??;
    if b.len() < header + 56 {
        return None;
    }
    let at = |offset| u64_in(b, header + offset, swapped);
    let flags = at(48);
    Some(OwnerIds {
        mode: at(0),
        size: at(8),
        generation: at(16),
        uid: at(24),
        gid: at(32),
        parent: at(40),
        flags,
        projid: if flags & FLAG_PROJID != 0 && b.len() >= header + 136 {
            at(128)
        } else {
            0
        },
    })
}

#[cfg(test)]
mod tests;

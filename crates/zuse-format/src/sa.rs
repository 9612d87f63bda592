//! System attributes: the metadata of a file, packed into a bonus buffer and perhaps a spill block.
//!
//! | offset | field |
//! |---|---|
//! | 0 | magic 0x002f505a |
//! | 4 | bits 0..10 layout number, 10..16 header size / 8 |
//! | 6 | lengths of the variable attributes, 2 bytes each, in layout order |
//! | header | values in layout order, each at a multiple of 8 |
//!
//! A layout is a sequence of attribute numbers; number and length of an attribute come from the dataset's registry, of
//! which numbers 0..=15 are fixed. The dataset's tables belong to the DMU; here a layout is given as [`SaSlot`]s.
//!
//! Invariants: bytes past the last attribute and unused lengths are garbage and never read. A buffer may be of the other
//! byte order (it is not swapped with its block): [`SaHeader::order`] says so, and [`to_little`] swaps it in place. A writer must
//! keep the canonical order, because accounting reads fixed offsets.

use std::ops::Range;

use zuse_base::ByteOrder;

use crate::error::{FormatResult, bad};
use crate::field::{put_u16, put_u32, swap_array, u16_in, u32_at};
use crate::object_type::swap_acl;

/// Magic of a buffer.
pub const SA_MAGIC: u32 = 0x002f_505a;
/// Layout of legacy znodes, never stored.
pub const LAYOUT_LEGACY: u16 = 0;
/// Layout without attributes, never stored.
pub const LAYOUT_EMPTY: u16 = 1;
/// First layout number that is stored.
pub const LAYOUT_FIRST: u16 = 2;
/// Last layout number.
pub const LAYOUT_MAX: u16 = 1023;
/// Bytes of all attributes of a buffer at most.
pub const SA_MAX: usize = 131_072;

/// How the bytes of an attribute are swapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SaClass {
    /// 64-bit integers.
    U64 = 0,
    /// 32-bit integers.
    U32 = 1,
    /// 16-bit integers.
    U16 = 2,
    /// Bytes.
    Bytes = 3,
    /// ACL entries.
    Acl = 4,
}

/// A row of the table of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaAttribute {
    /// Name in the registry.
    pub name: &'static str,
    /// Bytes, 0 = variable.
    pub length: u16,
    /// Swap class.
    pub class: SaClass,
}

macro_rules! attributes {
    ($($number:literal $short:ident $name:literal $length:literal $class:ident;)*) => {
        /// Attribute numbers as current software registers them. 0..=15 hold everywhere; others must be looked up by name.
        pub mod attr {
            $(#[doc = concat!("`", $name, "`.")] pub const $short: u16 = $number;)*
        }

        /// The attributes of the POSIX layer, in order of their usual numbers.
        pub static ATTRIBUTES: [SaAttribute; 22] =
            [$(SaAttribute { name: $name, length: $length, class: SaClass::$class }),*];
    };
}

attributes! {
    0 ATIME "ZPL_ATIME" 16 U64;
    1 MTIME "ZPL_MTIME" 16 U64;
    2 CTIME "ZPL_CTIME" 16 U64;
    3 CRTIME "ZPL_CRTIME" 16 U64;
    4 GEN "ZPL_GEN" 8 U64;
    5 MODE "ZPL_MODE" 8 U64;
    6 SIZE "ZPL_SIZE" 8 U64;
    7 PARENT "ZPL_PARENT" 8 U64;
    8 LINKS "ZPL_LINKS" 8 U64;
    9 XATTR "ZPL_XATTR" 8 U64;
    10 RDEV "ZPL_RDEV" 8 U64;
    11 FLAGS "ZPL_FLAGS" 8 U64;
    12 UID "ZPL_UID" 8 U64;
    13 GID "ZPL_GID" 8 U64;
    14 PAD "ZPL_PAD" 32 U64;
    15 ZNODE_ACL "ZPL_ZNODE_ACL" 88 Bytes;
    16 DACL_COUNT "ZPL_DACL_COUNT" 8 U64;
    17 SYMLINK "ZPL_SYMLINK" 0 Bytes;
    18 SCANSTAMP "ZPL_SCANSTAMP" 32 Bytes;
    19 DACL_ACES "ZPL_DACL_ACES" 0 Acl;
    20 DXATTR "ZPL_DXATTR" 0 Bytes;
    21 PROJID "ZPL_PROJID" 8 U64;
}

/// Attributes with fixed numbers.
pub const LEGACY_ATTRIBUTES: usize = 16;

/// Order of the attributes of a new object; PROJID and RDEV only where they apply.
pub const CANONICAL_ORDER: [u16; 16] = [
    attr::MODE,
    attr::SIZE,
    attr::GEN,
    attr::UID,
    attr::GID,
    attr::PARENT,
    attr::FLAGS,
    attr::ATIME,
    attr::MTIME,
    attr::CTIME,
    attr::CRTIME,
    attr::LINKS,
    attr::PROJID,
    attr::RDEV,
    attr::DACL_COUNT,
    attr::DACL_ACES,
];

/// Offsets from the end of the header that space accounting reads without a layout.
pub mod fixed {
    /// MODE.
    pub const MODE: usize = 0;
    /// SIZE.
    pub const SIZE: usize = 8;
    /// GEN.
    pub const GEN: usize = 16;
    /// UID.
    pub const UID: usize = 24;
    /// GID.
    pub const GID: usize = 32;
    /// PARENT.
    pub const PARENT: usize = 40;
    /// FLAGS.
    pub const FLAGS: usize = 48;
    /// PROJID, if FLAGS has the PROJID bit.
    pub const PROJID: usize = 128;
}

/// An attribute as the registry knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaSlot {
    /// Number in this dataset.
    pub number: u16,
    /// Bytes, 0 = variable.
    pub length: u16,
    /// Swap class.
    pub class: SaClass,
}

impl SaSlot {
    /// The registry's value: number, class, length.
    pub fn to_registry(self) -> u64 {
        u64::from(self.number) | u64::from(self.class as u8) << 16 | u64::from(self.length) << 24
    }

    /// From the registry's value.
    ///
    /// # Errors
    /// An unknown class.
    pub fn from_registry(value: u64) -> FormatResult<Self> {
        let class = match value >> 16 & 0xff {
            0 => SaClass::U64,
            1 => SaClass::U32,
            2 => SaClass::U16,
            3 => SaClass::Bytes,
            4 => SaClass::Acl,
            other => return bad(format!("attribute has byteswap class {other}")),
        };
        Ok(Self {
            number: value as u16,
            length: (value >> 24) as u16,
            class,
        })
    }

    /// Whether each value has its own length.
    pub fn is_variable(self) -> bool {
        self.length == 0
    }
}

/// The usual slot of a known attribute number.
pub fn standard_slot(number: u16) -> Option<SaSlot> {
    let row = ATTRIBUTES.get(usize::from(number))?;
    Some(SaSlot {
        number,
        length: row.length,
        class: row.class,
    })
}

/// Header of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaHeader {
    /// Byte order of the whole buffer.
    pub order: ByteOrder,
    /// Layout number.
    pub layout: u16,
    /// Bytes before the first value.
    pub size: usize,
}

impl SaHeader {
    /// Parses a buffer's header; `None` when there are no attributes (magic or layout word 0).
    ///
    /// # Errors
    /// Any other magic, or a header larger than the buffer.
    pub fn parse(buffer: &[u8]) -> FormatResult<Option<Self>> {
        let order = match u32_at(buffer, 0) {
            SA_MAGIC => ByteOrder::Little,
            0 => return Ok(None),
            swapped if swapped == SA_MAGIC.swap_bytes() => ByteOrder::Big,
            other => return bad(format!("system attributes begin with {other:#x}")),
        };
        let info = u16_in(buffer, 4, order);
        if info == 0 {
            return Ok(None);
        }
        let size = usize::from(info >> 10) * 8;
        if size < 8 || size > buffer.len() {
            return bad(format!("system attributes have a header of {size} bytes"));
        }
        Ok(Some(Self {
            order,
            layout: info & 0x3ff,
            size,
        }))
    }

    /// Length of the `index`-th variable attribute.
    #[inline]
    fn length(&self, buffer: &[u8], index: usize) -> FormatResult<usize> {
        let at = 6 + 2 * index;
        if at + 2 > self.size {
            return bad("system attributes lack a length");
        }
        Ok(usize::from(u16_in(buffer, at, self.order)))
    }

    /// Where each attribute of the layout lies, in order.
    pub fn walk<'a>(
        &'a self,
        buffer: &'a [u8],
        layout: &'a [SaSlot],
    ) -> impl Iterator<Item = FormatResult<(SaSlot, Range<usize>)>> + 'a {
        let mut at = self.size;
        let mut variable = 0;
        layout.iter().map(move |slot| {
            at = at.next_multiple_of(8);
            let length = if slot.is_variable() {
                variable += 1;
                self.length(buffer, variable - 1)?
            } else {
                usize::from(slot.length)
            };
            let range = at..at + length;
            at = range.end;
            if range.end > buffer.len() {
                return bad(format!(
                    "system attribute {} leaves its buffer",
                    slot.number
                ));
            }
            Ok((*slot, range))
        })
    }

    /// Where one attribute lies; `None` if the layout lacks it.
    ///
    /// # Errors
    /// The attribute, or one before it, leaves the buffer.
    pub fn find(
        &self,
        buffer: &[u8],
        layout: &[SaSlot],
        number: u16,
    ) -> FormatResult<Option<Range<usize>>> {
        for entry in self.walk(buffer, layout) {
            let (slot, range) = entry?;
            if slot.number == number {
                return Ok(Some(range));
            }
        }
        Ok(None)
    }
}

/// Swaps a buffer of the other byte order in place: header, lengths, values.
///
/// # Errors
/// The layout does not fit the buffer, which is then left half swapped.
pub fn to_little(buffer: &mut [u8], layout: &[SaSlot]) -> FormatResult<()> {
    let Some(header) = SaHeader::parse(buffer)? else {
        return Ok(());
    };
    if header.order == ByteOrder::Little {
        return Ok(());
    }
    let ranges: Vec<_> = header.walk(buffer, layout).collect::<Result<_, _>>()?;
    swap_array(&mut buffer[..4], 4);
    swap_array(&mut buffer[4..header.size], 2);
    for (slot, range) in ranges {
        let value = &mut buffer[range];
        match slot.class {
            SaClass::U64 => swap_array(value, 8),
            SaClass::U32 => swap_array(value, 4),
            SaClass::U16 => swap_array(value, 2),
            SaClass::Bytes => {}
            SaClass::Acl => swap_acl(value),
        }
    }
    Ok(())
}

/// Header bytes for that many variable attributes.
pub fn header_size(variable: usize) -> usize {
    8 + (2 * variable.saturating_sub(1)).next_multiple_of(8)
}

/// A buffer of this layout: values in order, each with whether it is of variable length.
///
/// # Errors
/// A value longer than its length field can say, or too much for one buffer.
pub fn encode(layout: u16, values: &[(&[u8], bool)]) -> FormatResult<Vec<u8>> {
    let header = header_size(values.iter().filter(|(_, variable)| *variable).count());
    let mut out = vec![0; header];
    put_u32(&mut out, 0, SA_MAGIC);
    put_u16(&mut out, 4, layout & 0x3ff | (header as u16 / 8) << 10);
    let mut at = 6;
    for (value, variable) in values {
        if *variable {
            let Ok(length) = u16::try_from(value.len()) else {
                return bad(format!("system attribute of {} bytes", value.len()));
            };
            put_u16(&mut out, at, length);
            at += 2;
        }
        out.resize(out.len().next_multiple_of(8), 0);
        out.extend_from_slice(value);
    }
    if out.len() > SA_MAX || header / 8 > 63 {
        return bad(format!("system attributes of {} bytes", out.len()));
    }
    Ok(out)
}

/// Where the attributes of an object go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// How many go to the bonus; the others to the spill block.
    pub in_bonus: usize,
    /// Bonus bytes in use.
    pub bonus_len: usize,
}

/// Decides which attributes stay in a bonus of `capacity` bytes (dnode size − 192), exactly as OpenZFS does.
///
/// `values` are lengths, each with whether the attribute is of variable length.
pub fn place(values: &[(usize, bool)], capacity: usize) -> Placement {
    let (mut total, mut header, mut variable, mut extra) = (0usize, 8usize, 0usize, 0usize);
    let mut split: Option<usize> = None;
    let mut spill = false;
    let limit = capacity.saturating_sub(128);
    for (i, (length, is_variable)) in values.iter().enumerate() {
        total = total.next_multiple_of(8) + length;
        if spill {
            continue;
        }
        let more = *is_variable && {
            variable += 1;
            variable > 1
        };
        let grown = header + if more { 2 } else { 0 };
        let might = split.is_none() && total + grown.next_multiple_of(8) > limit;
        if more {
            if grown + total < capacity {
                header = grown;
                if split.is_some() || might {
                    extra += 2;
                }
            } else {
                split.get_or_insert(i);
                spill = true;
                continue;
            }
        }
        if might {
            split = Some(i);
        }
        if total + header.next_multiple_of(8) > capacity {
            spill = true;
        }
    }
    if spill {
        header -= extra;
    }
    let bonus_len = total + header.next_multiple_of(8);
    match split {
        Some(at) if spill => Placement {
            in_bonus: at,
            bonus_len: bonus_len.min(limit),
        },
        _ => Placement {
            in_bonus: values.len(),
            bonus_len,
        },
    }
}

#[cfg(test)]
mod tests;

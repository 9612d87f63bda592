//! Reading the attributes of one object.

use super::attribute::Attr;
use super::buffer::{self, Header};
use super::layout::Layout;
use super::table::{SaTable, Tables};
use super::{SA_BONUS, ZNODE_BONUS, ZNODE_SIZE, u64_in};
use crate::dnode::Dnode;
use crate::zap::flaw::Flaw;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};
use zuse_base::{Errno, Error, Result};
use zuse_io::Block;

/// A buffer with its layout.
pub(crate) struct Part {
    pub bytes: Bytes,
    pub header: Header,
    pub layout: Arc<Layout>,
}

/// Bytes of a buffer: a copy, or a spill block shared with the cache.
pub(crate) enum Bytes {
    Own(Vec<u8>),
    Shared(Arc<Block>),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(block) => block.bytes(),
        }
    }
}

/// The attributes of one object when the view was made. The spill block is read when an attribute
/// is requested that the bonus does not have.
pub struct SaView {
    tables: Arc<Tables>,
    dnode: Arc<Dnode>,
    bonus: Bonus,
    spill: OnceLock<Option<Part>>,
}

enum Bonus {
    /// No attributes yet.
    Empty,
    Sa(Part),
    Legacy(Vec<u8>),
}

const MODE_TYPE: u64 = 0xf000;
const SYMLINK_TYPE: u64 = 0xa000;
const FLAG_SCANSTAMP: u64 = 0x80;

impl SaTable {
    /// The attributes of an object.
    ///
    /// # Errors
    /// `INVAL` if the object has none by its bonus type; `Corrupt` if the buffer does not parse.
    pub fn view(&self, dnode: &Arc<Dnode>) -> Result<SaView> {
        let tables = self.tables();
        let bytes = dnode.bonus_vec();
        let bonus = match dnode.bonus_type() {
            SA_BONUS => match Part::parse(Bytes::Own(bytes), &tables)
                .map_err(|flaw| corrupt(dnode, flaw))?
            {
                Some(part) => Bonus::Sa(part),
                None => Bonus::Empty,
            },
            ZNODE_BONUS if bytes.len() >= ZNODE_SIZE => Bonus::Legacy(bytes),
            _ => {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!("{} is not a file", dnode.place()),
                ));
            }
        };
        Ok(SaView {
            tables,
            dnode: dnode.clone(),
            bonus,
            spill: OnceLock::new(),
        })
    }
}

/// Reads stored buffers of many objects.
pub struct SaPeek(Arc<Tables>);

impl SaTable {
    /// As attributes are laid out now.
    pub fn peek(&self) -> SaPeek {
        SaPeek(self.tables())
    }
}

impl SaPeek {
    /// An attribute of one integer in a bonus or spill buffer; `None` if it is not there, or the
    /// buffer does not parse.
    pub fn u64(&self, buffer: &[u8], attr: Attr) -> Option<u64> {
        let header = buffer::parse_header(buffer).ok()??;
        let layout = self.0.layout(header.layout)?;
        let range = find_in(buffer, &header, layout, attr).ok()??;
        Some(u64_in(buffer, range.start, header.swapped))
    }

    /// The bytes of an attribute in a bonus or spill buffer, if it has it. `None` for a buffer that
    /// does not parse, or is of the other byte order.
    pub fn find<'b>(&self, buffer: &'b [u8], attr: Attr) -> Option<Option<&'b [u8]>> {
        let header = buffer::parse_header(buffer).ok()?;
        let Some(header) = header else {
            return Some(None);
        };
        let layout = self.0.layout(header.layout).filter(|_| !header.swapped)?;
        match find_in(buffer, &header, layout, attr).ok()? {
            Some(range) => Some(Some(buffer.get(range)?)),
            None => Some(None),
        }
    }

    /// The start of a buffer's first attributes, if they are exactly these, in this order, of fixed
    /// lengths, and in little-endian order.
    pub fn begins_with(&self, buffer: &[u8], attrs: &[Attr]) -> Option<usize> {
        let header = buffer::parse_header(buffer).ok()??;
        let layout = self.0.layout(header.layout).filter(|_| !header.swapped)?;
        let mut attrs = attrs.iter().enumerate();
        let same = attrs.all(|(i, a)| !a.is_variable() && layout.position(*a) == Some(i));
        same.then_some(header.len)
    }
}

pub(crate) fn corrupt(dnode: &Dnode, flaw: Flaw) -> Error {
    Error::corrupt(dnode.place(), flaw)
}

impl Part {
    /// Parses a buffer; one in the other byte order is swapped first.
    pub(crate) fn parse(mut bytes: Bytes, tables: &Tables) -> Result<Option<Self>, Flaw> {
        let Some(mut header) = buffer::parse_header(&bytes)? else {
            return Ok(None);
        };
        let layout = tables
            .layout(header.layout)
            .ok_or(Flaw("a layout of attributes that is not in the table"))?
            .clone();
        if header.swapped {
            let mut own = bytes.to_vec();
            buffer::swap(&mut own, &header, &layout)?;
            bytes = Bytes::Own(own);
            header.swapped = false;
        }
        Ok(Some(Self {
            bytes,
            header,
            layout,
        }))
    }

    /// Where an attribute is.
    pub(crate) fn find(&self, attr: Attr) -> Result<Option<Range<usize>>, Flaw> {
        find_in(&self.bytes, &self.header, &self.layout, attr)
    }
}

/// Where an attribute is in a buffer; `None` if its layout does not have it.
pub(crate) fn find_in(
    b: &[u8],
    header: &Header,
    layout: &Layout,
    attr: Attr,
) -> Result<Option<Range<usize>>, Flaw> {
    let Some(position) = layout.position(attr) else {
        return Ok(None);
    };
    if let (Some(offset), false) = (layout.fixed(attr), attr.is_variable()) {
        let start = header.len + offset;
        let range = start..start + usize::from(attr.len());
        if range.end > b.len() {
            return Err(Flaw("system attributes that run past their buffer"));
        }
        return Ok(Some(range));
    }
    buffer::range_of(b, header, layout, position).map(Some)
}

/// Where a legacy znode keeps an attribute.
pub(crate) fn legacy_range(b: &[u8], attr: Attr) -> Option<Range<usize>> {
    let at = match attr {
        Attr::Atime => 0,
        Attr::Mtime => 16,
        Attr::Ctime => 32,
        Attr::Crtime => 48,
        Attr::Gen => 64,
        Attr::Mode => 72,
        Attr::Size => 80,
        Attr::Parent => 88,
        Attr::Links => 96,
        Attr::Xattr => 104,
        Attr::Rdev => 112,
        Attr::Flags => 120,
        Attr::Uid => 128,
        Attr::Gid => 136,
        Attr::Pad => 144,
        Attr::ZnodeAcl => 176,
        Attr::Symlink => {
            let size = usize::try_from(u64_in(b, 80, false)).ok()?;
            let is_link = u64_in(b, 72, false) & MODE_TYPE == SYMLINK_TYPE;
            let end = ZNODE_SIZE.checked_add(size)?;
            return (is_link && end <= b.len()).then_some(ZNODE_SIZE..end);
        }
        Attr::Scanstamp => {
            let has = u64_in(b, 120, false) & FLAG_SCANSTAMP != 0;
            return (has && b.len() >= ZNODE_SIZE + 32).then_some(ZNODE_SIZE..ZNODE_SIZE + 32);
        }
        Attr::DaclCount | Attr::DaclAces | Attr::Dxattr | Attr::Projid => return None,
    };
    Some(at..at + usize::from(attr.len()))
}

impl SaView {
    /// Whether the object is a legacy znode.
    pub fn is_legacy(&self) -> bool {
        matches!(self.bonus, Bonus::Legacy(_))
    }

    /// Whether there are no attributes at all (a new object).
    pub fn is_empty(&self) -> bool {
        matches!(self.bonus, Bonus::Empty) && !self.dnode.has_spill()
    }

    fn spill(&self) -> Result<Option<&Part>> {
        if let Some(there) = self.spill.get() {
            return Ok(there.as_ref());
        }
        let part = match self.dnode.spill()? {
            Some(block) => Part::parse(Bytes::Shared(block), &self.tables)
                .map_err(|flaw| corrupt(&self.dnode, flaw))?,
            None => None,
        };
        Ok(self.spill.get_or_init(|| part).as_ref())
    }

    /// The value of an attribute. If it is not in the bonus, the spill block is read, if there is
    /// one.
    ///
    /// # Errors
    /// The buffer does not parse, or the spill block cannot be read.
    pub fn get(&self, attr: Attr) -> Result<Option<&[u8]>> {
        match &self.bonus {
            Bonus::Legacy(b) => return Ok(legacy_range(b, attr).and_then(|r| b.get(r))),
            Bonus::Sa(part) => {
                if let Some(range) = part.find(attr).map_err(|flaw| corrupt(&self.dnode, flaw))? {
                    return Ok(part.bytes.get(range));
                }
            }
            Bonus::Empty => {}
        }
        if !self.dnode.has_spill() {
            return Ok(None);
        }
        match self.spill()? {
            None => Ok(None),
            Some(part) => {
                let range = part.find(attr).map_err(|flaw| corrupt(&self.dnode, flaw))?;
                Ok(range.and_then(|r| part.bytes.get(r)))
            }
        }
    }

    /// An attribute of one integer, if it is in the bonus: nothing is read.
    ///
    /// # Errors
    /// The bonus does not parse.
    pub fn u64_in_bonus(&self, attr: Attr) -> Result<Option<u64>> {
        let found = match &self.bonus {
            Bonus::Legacy(b) => legacy_range(b, attr).and_then(|r| b.get(r)),
            Bonus::Sa(part) => {
                let range = part.find(attr).map_err(|flaw| corrupt(&self.dnode, flaw))?;
                range.and_then(|r| part.bytes.get(r))
            }
            Bonus::Empty => None,
        };
        Ok(found.map(|b| u64_in(b, 0, false)))
    }

    /// An attribute of one integer.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn u64(&self, attr: Attr) -> Result<Option<u64>> {
        Ok(self.get(attr)?.map(|b| u64_in(b, 0, false)))
    }

    /// A time: seconds and nanoseconds.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn time(&self, attr: Attr) -> Result<Option<(i64, u64)>> {
        Ok(self
            .get(attr)?
            .map(|b| (u64_in(b, 0, false) as i64, u64_in(b, 8, false))))
    }

    /// Every attribute in order: those of the bonus, then those of the spill block, with their
    /// numbers.
    pub(crate) fn all(&self) -> Result<Vec<(u16, &[u8])>> {
        let bonus = match &self.bonus {
            Bonus::Sa(part) => Some(part),
            _ => None,
        };
        let mut out = Vec::with_capacity(20);
        for part in [bonus, self.spill()?].into_iter().flatten() {
            let ranges = buffer::ranges(&part.bytes, &part.header, &part.layout)
                .map_err(|flaw| corrupt(&self.dnode, flaw))?;
            for (info, range) in part.layout.attrs.iter().zip(ranges) {
                out.push((info.number, part.bytes.get(range).unwrap_or_default()));
            }
        }
        Ok(out)
    }

    /// Bytes of the spill block, 0 without one.
    pub(crate) fn spill_len(&self) -> Result<usize> {
        Ok(self.spill()?.map_or(0, |part| part.bytes.len()))
    }
}

//! Records of the intent log (chapter 05 §8 of the format notes).
//!
//! A record is parsed in its writer's byte order. Every length in it is checked against the
//! record's: nothing is read or allocated beyond it.

mod encode;

pub use encode::WRITE_HEAD;

use std::ops::Range;

use zuse_base::{ByteOrder, Timestamp};

use super::RECORD_HEAD;
use crate::block_pointer::{BP_SIZE, BlockPointer};
use crate::error::{FormatError, FormatResult, bad};
use crate::field::{u32_in, u64_in};

/// The name was looked up ignoring case.
const CASE_INSENSITIVE: u64 = 1 << 63;
/// Attribute mask: an attribute block follows.
const MASK_XVATTR: u64 = 0x8000_0000;
/// Bytes of an attribute block with its three words.
const XVATTR: usize = 72;
/// Most block pointers of one record.
const CLONE_MAX: usize = 1022;

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record<'a> {
    /// Its number in the log.
    pub seq: u64,
    /// The txg that the operation belonged to.
    pub txg: u64,
    /// Its type, by number.
    pub kind: u64,
    /// Its bytes.
    pub length: usize,
    /// The name was looked up ignoring case.
    pub case_insensitive: bool,
    /// The operation.
    pub body: Body<'a>,
}

/// A new object of the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Create<'a> {
    /// The directory; for an attribute directory its owner.
    pub dir: u64,
    /// The new object.
    pub object: u64,
    /// Its 512-byte slots.
    pub slots: u8,
    /// Its whole mode.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Generation.
    pub generation: u64,
    /// When it was made.
    pub time: Timestamp,
    /// Device number as stored.
    pub rdev: u64,
    /// Optional attributes to set.
    pub flags: Option<XattrFlags>,
    /// The ACL.
    pub acl: Option<LoggedAcl<'a>>,
    /// Name in the directory.
    pub name: &'a [u8],
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

/// An ACL in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedAcl<'a> {
    /// Number of entries.
    pub count: u64,
    /// ACL flags.
    pub flags: u64,
    /// The entries as stored, in `order`.
    pub entries: &'a [u8],
    /// They are in the form of ZPL versions 1 and 2.
    pub old: bool,
    /// Byte order of the record's writer.
    pub order: ByteOrder,
}

/// Optional attributes: which are set, and their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrFlags {
    /// Bits of those that are set.
    pub asked: u32,
    /// Their values, by the same bits.
    pub values: u64,
    /// Creation time, where bit 1 is given.
    pub crtime: Timestamp,
    /// Project id, if its bit is set.
    pub projid: u64,
}

/// Changes of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SetAttr {
    /// The object.
    pub object: u64,
    /// Which of the others are set: Linux's bits.
    pub mask: u64,
    /// Mode.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Size.
    pub size: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Optional attributes.
    pub flags: Option<XattrFlags>,
}

impl SetAttr {
    /// Mask bit: mode.
    pub const MODE: u64 = 1;
    /// Mask bit: owner.
    pub const UID: u64 = 2;
    /// Mask bit: group.
    pub const GID: u64 = 4;
    /// Mask bit: size.
    pub const SIZE: u64 = 8;
    /// Mask bit: access time.
    pub const ATIME: u64 = 0x10;
    /// Mask bit: modification time.
    pub const MTIME: u64 = 0x20;
}

/// The operation of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Body<'a> {
    /// A file, directory, device or symbolic link was made.
    Create(Create<'a>),
    /// An attribute directory was made.
    MakeXattrDir(Create<'a>),
    /// A name was removed.
    Remove {
        /// The directory.
        dir: u64,
        /// The name.
        name: &'a [u8],
    },
    /// A directory was removed.
    RemoveDir {
        /// Its parent.
        dir: u64,
        /// Its name.
        name: &'a [u8],
    },
    /// An object got another name.
    Link {
        /// The directory.
        dir: u64,
        /// The object.
        object: u64,
        /// The name.
        name: &'a [u8],
    },
    /// A name moved.
    Rename {
        /// From this directory.
        from_dir: u64,
        /// To that one.
        to_dir: u64,
        /// Old name.
        from: &'a [u8],
        /// New name.
        to: &'a [u8],
        /// The two change places.
        exchange: bool,
        /// The whiteout that is left behind.
        whiteout: Option<Create<'a>>,
    },
    /// Bytes were written.
    Write {
        /// The file.
        object: u64,
        /// Where.
        offset: u64,
        /// How many.
        length: u64,
        /// The bytes; `None`: they are in `block`.
        data: Option<&'a [u8]>,
        /// The block that holds them.
        block: BlockPointer,
    },
    /// A file's size grew over bytes of an earlier record.
    Extend {
        /// The file.
        object: u64,
        /// Its size, at least.
        size: u64,
    },
    /// A range was freed, or the size set.
    Truncate {
        /// The file.
        object: u64,
        /// From here.
        offset: u64,
        /// Number of bytes; 0: to the end.
        length: u64,
    },
    /// Attributes were changed.
    SetAttr(SetAttr),
    /// An ACL was set.
    Acl {
        /// The object.
        object: u64,
        /// The ACL.
        acl: LoggedAcl<'a>,
    },
    /// An extended attribute in the system attributes was set, or removed if `value` is `None`.
    SetXattr {
        /// The object.
        object: u64,
        /// Its full name.
        name: &'a [u8],
        /// Its value.
        value: Option<&'a [u8]>,
    },
    /// Blocks of another file were cloned into this one.
    Clone {
        /// The file.
        object: u64,
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Size of the blocks.
        block_size: u64,
        /// The blocks.
        blocks: Vec<BlockPointer>,
    },
}

impl Body<'_> {
    /// Whether names or objects are added or removed: such a record must not be applied twice.
    pub fn changes_names(&self) -> bool {
        self.out_of_order_object().is_none()
    }

    /// The object of a record that may come after the object was removed.
    pub fn out_of_order_object(&self) -> Option<u64> {
        match self {
            Self::Write { object, .. }
            | Self::Extend { object, .. }
            | Self::Truncate { object, .. }
            | Self::Acl { object, .. }
            | Self::SetXattr { object, .. }
            | Self::Clone { object, .. } => Some(*object),
            Self::SetAttr(set) => Some(set.object),
            _ => None,
        }
    }
}

/// A record's bytes in its writer's order.
struct Bytes<'a> {
    all: &'a [u8],
    order: ByteOrder,
}

impl<'a> Bytes<'a> {
    fn need(&self, len: usize) -> FormatResult<()> {
        if self.all.len() < len {
            return bad(format!(
                "a log record of {} bytes is shorter than its type's {len}",
                self.all.len()
            ));
        }
        Ok(())
    }

    fn u64(&self, at: usize) -> u64 {
        u64_in(self.all, at, self.order)
    }

    fn time(&self, at: usize) -> Timestamp {
        Timestamp {
            secs: self.u64(at).cast_signed(),
            nanos: u32::try_from(self.u64(at + 8))
                .unwrap_or(0)
                .min(999_999_999),
        }
    }

    fn part(&self, range: Range<usize>) -> FormatResult<&'a [u8]> {
        self.all
            .get(range)
            .ok_or_else(|| FormatError::new("a log record ends inside its data"))
    }

    /// The bytes from `at` up to a NUL, and the offset after it.
    fn text(&self, at: usize) -> FormatResult<(&'a [u8], usize)> {
        let tail = self.part(at..self.all.len())?;
        match tail.iter().position(|b| *b == 0) {
            Some(len) => Ok((&tail[..len], at + len + 1)),
            None => bad("a name in a log record has no end"),
        }
    }

    fn pointer(&self, at: usize) -> FormatResult<BlockPointer> {
        match self.part(at..at + BP_SIZE)?.first_chunk() {
            Some(bytes) => Ok(BlockPointer::parse(bytes, self.order)),
            None => bad("a log record ends inside a block pointer"),
        }
    }

    /// An attribute block, and the offset after it.
    fn xvattr(&self, at: usize) -> FormatResult<(XattrFlags, usize)> {
        let block = self.part(at..at + XVATTR)?;
        let words = u32_in(block, 0, self.order);
        if words != 3 {
            return bad(format!("an attribute block of {words} words"));
        }
        // The last 32 bytes are a scan stamp, which is not swapped, or a project id in the writer's
        // order.
        let flags = XattrFlags {
            asked: u32_in(block, 4, self.order),
            values: self.u64(at + 16),
            crtime: self.time(at + 24),
            projid: self.u64(at + 40),
        };
        Ok((flags, at + XVATTR))
    }

    /// Domain strings: one per distinct index in the ids.
    fn skip_domains(&self, ids: [u64; 2], mut at: usize) -> FormatResult<usize> {
        let [a, b] = ids.map(|id| id >> 32);
        let count = usize::from(a != 0) + usize::from(b != 0 && b != a);
        for _ in 0..count {
            at = self.text(at)?.1;
        }
        if count > 0 {
            return Err(FormatError::unsupported(
                "owners of another domain in the intent log",
            ));
        }
        Ok(at)
    }

    fn create(&self, kind: u64) -> FormatResult<Create<'a>> {
        self.need(104)?;
        let with_acl = matches!(kind, 14 | 16 | 17 | 19);
        let mut new = Create {
            dir: self.u64(32),
            object: self.u64(40) & OBJECT_MASK,
            slots: slots_of(self.u64(40))?,
            mode: self.u64(48),
            uid: self.u64(56),
            gid: self.u64(64),
            generation: self.u64(72),
            time: self.time(80),
            rdev: self.u64(96),
            ..Create::default()
        };
        let mut at = if with_acl { 144 } else { 104 };
        self.need(at)?;
        if matches!(kind, 15 | 16 | 18 | 19) {
            let (flags, next) = self.xvattr(at)?;
            new.flags = Some(flags);
            at = next;
        }
        if with_acl {
            let domains = self.u64(112);
            let fuids = self.u64(120);
            let bytes = usize::try_from(self.u64(128)).unwrap_or(usize::MAX);
            if domains != 0 || fuids != 0 {
                return Err(FormatError::unsupported(
                    "owners of another domain in the intent log",
                ));
            }
            let end = at
                .checked_add(bytes)
                .ok_or_else(|| FormatError::new("an ACL of a log record is too long"))?;
            new.acl = Some(LoggedAcl {
                count: self.u64(104),
                flags: self.u64(136),
                entries: self.part(at..end)?,
                old: false,
                order: self.order,
            });
            at = end.next_multiple_of(8);
        } else {
            at = self.skip_domains([new.uid, new.gid], at)?;
        }
        if kind == 3 {
            return Ok(new);
        }
        let (name, next) = self.text(at)?;
        new.name = name;
        if kind == 4 {
            new.target = self.text(next)?.0;
            // The writer leaves this field undefined.
            new.rdev = 0;
        }
        Ok(new)
    }

    fn write(&self) -> FormatResult<Body<'a>> {
        self.need(192)?;
        let length = self.u64(48);
        let data = if self.all.len() == 192 {
            None
        } else {
            let end = usize::try_from(length)
                .ok()
                .and_then(|l| l.checked_add(192))
                .ok_or_else(|| FormatError::new("a write of a log record is too long"))?;
            Some(self.part(192..end)?)
        };
        Ok(Body::Write {
            object: self.u64(32),
            offset: self.u64(40),
            length,
            data,
            block: self.pointer(64)?,
        })
    }

    fn rename(&self, kind: u64) -> FormatResult<Body<'a>> {
        let at = if kind == 23 { 112 } else { 48 };
        self.need(at)?;
        let (from, next) = self.text(at)?;
        let (to, _) = self.text(next)?;
        let whiteout = (kind == 23)
            .then(|| {
                Ok::<_, FormatError>(Create {
                    object: self.u64(48) & OBJECT_MASK,
                    slots: slots_of(self.u64(48))?,
                    mode: self.u64(56),
                    uid: self.u64(64),
                    gid: self.u64(72),
                    generation: self.u64(80),
                    time: self.time(88),
                    rdev: self.u64(104),
                    ..Create::default()
                })
            })
            .transpose()?;
        Ok(Body::Rename {
            from_dir: self.u64(32),
            to_dir: self.u64(40),
            from,
            to,
            exchange: kind == 22,
            whiteout,
        })
    }

    fn set_attr(&self) -> FormatResult<Body<'a>> {
        self.need(112)?;
        let mask = self.u64(40);
        let mut set = SetAttr {
            object: self.u64(32),
            mask,
            mode: self.u64(48),
            uid: self.u64(56),
            gid: self.u64(64),
            size: self.u64(72),
            atime: self.time(80),
            mtime: self.time(96),
            flags: None,
        };
        if mask & MASK_XVATTR != 0 {
            set.flags = Some(self.xvattr(112)?.0);
        }
        let foreign = |bit: u64, id: u64| mask & bit != 0 && id >> 32 != 0;
        if foreign(SetAttr::UID, set.uid) || foreign(SetAttr::GID, set.gid) {
            return Err(FormatError::unsupported(
                "owners of another domain in the intent log",
            ));
        }
        Ok(Body::SetAttr(set))
    }

    fn acl(&self, old: bool) -> FormatResult<Body<'a>> {
        let head = if old { 48 } else { 80 };
        self.need(head)?;
        let count = self.u64(40);
        let len = if old {
            count.checked_mul(12)
        } else {
            if self.u64(48) != 0 || self.u64(56) != 0 {
                return Err(FormatError::unsupported(
                    "owners of another domain in the intent log",
                ));
            }
            Some(self.u64(64))
        };
        let end = len
            .and_then(|l| usize::try_from(l).ok())
            .and_then(|l| l.checked_add(head))
            .ok_or_else(|| FormatError::new("an ACL of a log record is too long"))?;
        Ok(Body::Acl {
            object: self.u64(32),
            acl: LoggedAcl {
                count,
                flags: if old { 0 } else { self.u64(72) },
                entries: self.part(head..end)?,
                old,
                order: self.order,
            },
        })
    }

    fn xattr(&self) -> FormatResult<Body<'a>> {
        self.need(48)?;
        let (name, at) = self.text(48)?;
        let len = usize::try_from(self.u64(40)).unwrap_or(usize::MAX);
        let end = at
            .checked_add(len)
            .ok_or_else(|| FormatError::new("an attribute of a log record is too long"))?;
        let value = self.part(at..end)?;
        Ok(Body::SetXattr {
            object: self.u64(32),
            name,
            value: (len > 0).then_some(value),
        })
    }

    fn clone_range(&self) -> FormatResult<Body<'a>> {
        self.need(72)?;
        let count = usize::try_from(self.u64(64)).unwrap_or(usize::MAX);
        if count > CLONE_MAX {
            return bad(format!("a log record of {count} blocks"));
        }
        let blocks = (0..count)
            .map(|i| self.pointer(72 + i * BP_SIZE))
            .collect::<FormatResult<Vec<_>>>()?;
        Ok(Body::Clone {
            object: self.u64(32),
            offset: self.u64(40),
            length: self.u64(48),
            block_size: self.u64(56),
            blocks,
        })
    }
}

const OBJECT_MASK: u64 = (1 << 48) - 1;

fn slots_of(word: u64) -> FormatResult<u8> {
    match u8::try_from(word >> 56) {
        Ok(extra @ 0..32) => Ok(extra + 1),
        _ => bad("a new object of a log record has more slots than there are"),
    }
}

impl<'a> Record<'a> {
    /// The number and bytes of the first record in `bytes`. `None` at the end of the block.
    ///
    /// # Errors
    /// Its length does not fit: the chain ends here.
    pub fn split(bytes: &'a [u8], order: ByteOrder) -> FormatResult<Option<(u64, &'a [u8])>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let len = usize::try_from(u64_in(bytes, 8, order)).unwrap_or(usize::MAX);
        match bytes.get(..len) {
            Some(record) if len >= RECORD_HEAD => Ok(Some((u64_in(record, 24, order), record))),
            _ => bad("a log record is longer than its block"),
        }
    }

    /// Parses one record.
    ///
    /// # Errors
    /// It is shorter than its type needs, a length in it leads outside, or its type is unknown.
    pub fn parse(all: &'a [u8], order: ByteOrder) -> FormatResult<Self> {
        let bytes = Bytes { all, order };
        bytes.need(RECORD_HEAD)?;
        let word = bytes.u64(0);
        let kind = word & !CASE_INSENSITIVE;
        let name_in = |at: usize| {
            bytes.need(at)?;
            Ok::<_, FormatError>(bytes.text(at)?.0)
        };
        let body = match kind {
            1 | 2 | 4 | 14..=19 => Body::Create(bytes.create(kind)?),
            3 => Body::MakeXattrDir(bytes.create(kind)?),
            5 => Body::Remove {
                dir: bytes.u64(32),
                name: name_in(40)?,
            },
            6 => Body::RemoveDir {
                dir: bytes.u64(32),
                name: name_in(40)?,
            },
            7 => Body::Link {
                dir: bytes.u64(32),
                object: bytes.u64(40),
                name: name_in(48)?,
            },
            8 | 22 | 23 => bytes.rename(kind)?,
            9 => bytes.write()?,
            10 => {
                bytes.need(56)?;
                Body::Truncate {
                    object: bytes.u64(32),
                    offset: bytes.u64(40),
                    length: bytes.u64(48),
                }
            }
            11 => bytes.set_attr()?,
            12 => bytes.acl(true)?,
            13 => bytes.acl(false)?,
            20 => {
                bytes.need(192)?;
                Body::Extend {
                    object: bytes.u64(32),
                    size: bytes.u64(40).saturating_add(bytes.u64(48)),
                }
            }
            21 => bytes.xattr()?,
            24 => bytes.clone_range()?,
            other => return bad(format!("a log record of the unknown type {other}")),
        };
        Ok(Self {
            seq: bytes.u64(24),
            txg: bytes.u64(16),
            kind,
            length: all.len(),
            case_insensitive: word & CASE_INSENSITIVE != 0,
            body,
        })
    }
}

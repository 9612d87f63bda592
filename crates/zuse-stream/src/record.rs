//! Records: 312 bytes of header each, as bytes and as types (chapter 05b §1–4 of the format notes).
//!
//! ```text
//!   0 type u32 │ 4 payload length u32 (BEGIN only) │ 8 … 280 by type │ 280 … 312 running checksum (not BEGIN)
//! ```
//! Parsing accepts any value, because the valid ones depend on the caller (a dump shows everything,
//! a receive is strict). Only the record's type and the length of its payload are checked here.

use zuse_base::ByteOrder;
use zuse_base::cut::low8;

use crate::error::Flaw;

/// Size of a header.
pub const HEADER: usize = 312;
/// Offset of the running checksum.
pub const TAIL_AT: usize = 280;
/// BEGIN's magic number.
pub const MAGIC: u64 = 0x2_f5ba_cbac;
/// Largest payload of a record that is not BEGIN.
pub const PAYLOAD_MAX: u64 = 16 << 20;
/// Largest payload of a BEGIN.
pub const BEGIN_PAYLOAD_MAX: u64 = 64 << 20;
/// Size of the name field in BEGIN, with its NUL.
pub const NAME_MAX: usize = 256;

/// BEGIN flag: the source is a snapshot of another dataset.
pub const FLAG_CLONE: u32 = 1;
/// BEGIN flag: names ignore case.
pub const FLAG_CI_DATA: u32 = 2;
/// BEGIN flag: there are FREE and FREEOBJECTS records.
pub const FLAG_FREERECORDS: u32 = 4;
/// BEGIN flag: the spill flags mean something.
pub const FLAG_SPILL_BLOCK: u32 = 8;

/// OBJECT flag: it has a spill block.
pub const OBJECT_SPILL: u8 = 4;
/// SPILL flag: not changed since the source.
pub const SPILL_UNMODIFIED: u8 = 4;
/// Flag of raw records: stored in the other byte order.
pub const RAW_BYTESWAP: u8 = 2;

/// The kind of stream after a BEGIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// One snapshot.
    Substream,
    /// Several, with a list in front.
    Package,
    /// A number without meaning.
    Other(u8),
}

/// BEGIN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Header type and feature flags as stored.
    pub version_info: u64,
    /// Creation time of the snapshot, seconds.
    pub creation_time: u64,
    /// Object set type.
    pub objset_type: u32,
    /// `FLAG_…`.
    pub flags: u32,
    /// Guid of the snapshot.
    pub to_guid: u64,
    /// Guid of the source, 0 for none.
    pub from_guid: u64,
    /// Name of the snapshot, without NUL.
    pub to_name: String,
    /// Bytes of payload.
    pub payload_len: u32,
}

impl Begin {
    /// The kind of stream that it begins.
    pub fn header(&self) -> Header {
        match self.version_info & 3 {
            1 => Header::Substream,
            2 => Header::Package,
            n => Header::Other(low8(n)),
        }
    }

    /// The feature flags.
    pub fn features(&self) -> u64 {
        (self.version_info >> 2) & ((1 << 56) - 1)
    }

    /// A version word.
    pub fn version_word(header: Header, features: u64) -> u64 {
        let kind = match header {
            Header::Substream => 1,
            Header::Package => 2,
            Header::Other(n) => u64::from(n & 3),
        };
        features << 2 | kind
    }
}

/// Encryption parameters of a raw record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crypt {
    /// Salt.
    pub salt: [u8; 8],
    /// Initialization vector.
    pub iv: [u8; 12],
    /// Message authentication code.
    pub mac: [u8; 16],
}

/// OBJECT: an object, followed by its bonus as payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Object number.
    pub object: u64,
    /// Type of the dnode.
    pub object_type: u32,
    /// Type of the bonus.
    pub bonus_type: u32,
    /// Bytes of a data block.
    pub block_size: u32,
    /// Bytes of the bonus.
    pub bonus_len: u32,
    /// Checksum setting of the dnode.
    pub checksum: u8,
    /// Compression setting of the dnode.
    pub compress: u8,
    /// Slots of the dnode; 0 means 1.
    pub slots: u8,
    /// [`RAW_BYTESWAP`], [`OBJECT_SPILL`].
    pub flags: u8,
    /// Raw: bytes of the whole bonus area, which is the payload. Otherwise 0.
    pub raw_bonus_len: u32,
    /// Guid of the snapshot, as in BEGIN.
    pub to_guid: u64,
    /// Raw: log2 of the bytes of an indirect block.
    pub indirect_shift: u8,
    /// Raw: levels of the tree.
    pub levels: u8,
    /// Raw: block pointers in the dnode.
    pub nblkptr: u8,
    /// Raw: number of the last block.
    pub max_block: u64,
}

/// WRITE: a block of an object, with its bytes as payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteRecord {
    /// Object number.
    pub object: u64,
    /// Type of the object.
    pub object_type: u32,
    /// First byte in the object.
    pub offset: u64,
    /// Bytes in the object.
    pub logical_size: u64,
    /// Guid of the snapshot, as in BEGIN.
    pub to_guid: u64,
    /// Checksum method of `key`; 2 (off) for no key.
    pub checksum_type: u8,
    /// 1 if the checksum fits dedup; [`RAW_BYTESWAP`].
    pub flags: u8,
    /// Compression of the payload; 0 for plain bytes.
    pub compression: u8,
    /// Checksum words of the block pointer. Receivers do not use them.
    pub key: [u64; 4],
    /// Sizes and compression of the block pointer, packed.
    pub key_prop: u64,
    /// Bytes of a compressed payload.
    pub compressed_size: u64,
    /// Encryption parameters of a raw record.
    pub crypt: Crypt,
}

/// SPILL: the spill block of an object, with its bytes as payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillRecord {
    /// Object number.
    pub object: u64,
    /// Bytes of the block.
    pub length: u64,
    /// Guid of the snapshot, as in BEGIN.
    pub to_guid: u64,
    /// [`SPILL_UNMODIFIED`], [`RAW_BYTESWAP`].
    pub flags: u8,
    /// Compression of a raw payload.
    pub compression: u8,
    /// Bytes of a raw payload.
    pub compressed_size: u64,
    /// Encryption parameters of a raw record.
    pub crypt: Crypt,
    /// Type of the object; senders store 0.
    pub object_type: u32,
}

/// WRITE_EMBEDDED: a block whose bytes were in its pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedRecord {
    /// Object number.
    pub object: u64,
    /// First byte in the object; see [`EmbeddedRecord::is_spill`].
    pub offset: u64,
    /// Bytes of the block.
    pub length: u64,
    /// Guid of the snapshot, as in BEGIN.
    pub to_guid: u64,
    /// Compression of the payload.
    pub compression: u8,
    /// What is embedded; 0 for data.
    pub embedded_type: u8,
    /// Bytes when decompressed.
    pub lsize: u32,
    /// Bytes of the payload before padding, at most 112.
    pub psize: u32,
}

impl EmbeddedRecord {
    /// Whether it is the object's spill block. A sender gives it block number −2, in blocks of the
    /// spill block's own length.
    pub fn is_spill(&self) -> bool {
        self.offset > i64::MAX as u64
    }

    /// The offset of a spill block of this length.
    pub fn spill_offset(length: u64) -> u64 {
        length.wrapping_mul(2).wrapping_neg()
    }
}

/// WRITE_BYREF: a block with the bytes of an earlier WRITE, without payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByrefRecord {
    /// Object number.
    pub object: u64,
    /// First byte in the object.
    pub offset: u64,
    /// Bytes of the block.
    pub length: u64,
    /// Guid of the snapshot, as in BEGIN.
    pub to_guid: u64,
    /// `to_guid` of the earlier record.
    pub ref_guid: u64,
    /// Object of the earlier record.
    pub ref_object: u64,
    /// Offset of the earlier record.
    pub ref_offset: u64,
    /// Checksum method of `key`.
    pub checksum_type: u8,
    /// 1 if the checksum fits dedup.
    pub flags: u8,
    /// Checksum words of the block pointer.
    pub key: [u64; 4],
    /// Sizes and compression of the block pointer, packed.
    pub key_prop: u64,
}

/// One record. The fields are those of the chapter on send streams of the format notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The beginning of a stream or substream.
    Begin(Begin),
    /// An object.
    Object(ObjectRecord),
    /// Object numbers that are free.
    FreeObjects {
        /// The first one.
        first: u64,
        /// How many.
        count: u64,
        /// Guid of the snapshot.
        to_guid: u64,
    },
    /// A block.
    Write(WriteRecord),
    /// A range of an object that is free.
    Free {
        /// Object number.
        object: u64,
        /// First byte.
        offset: u64,
        /// Bytes; `u64::MAX` to the end.
        length: u64,
        /// Guid of the snapshot.
        to_guid: u64,
    },
    /// The end of a substream or package.
    End {
        /// Running checksum of everything before.
        checksum: [u64; 4],
        /// Guid of the snapshot.
        to_guid: u64,
    },
    /// A block that an earlier record has.
    WriteByref(ByrefRecord),
    /// A spill block.
    Spill(SpillRecord),
    /// A block from an embedded pointer.
    WriteEmbedded(EmbeddedRecord),
    /// Raw: encryption parameters of a block of dnodes.
    ObjectRange {
        /// The first object number.
        first: u64,
        /// How many slots.
        slots: u64,
        /// Guid of the snapshot.
        to_guid: u64,
        /// [`RAW_BYTESWAP`].
        flags: u8,
        /// The parameters.
        crypt: Crypt,
    },
    /// A range of an object whose data was left out.
    Redact {
        /// Object number.
        object: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Guid of the snapshot.
        to_guid: u64,
    },
}

impl Begin {
    fn parse(f: &Fields<'_>) -> Self {
        let name = &f.bytes[56..56 + NAME_MAX];
        let end = name.iter().position(|b| *b == 0).unwrap_or(NAME_MAX);
        Self {
            version_info: f.u64(16),
            creation_time: f.u64(24),
            objset_type: f.u32(32),
            flags: f.u32(36),
            to_guid: f.u64(40),
            from_guid: f.u64(48),
            to_name: String::from_utf8_lossy(&name[..end]).into_owned(),
            payload_len: f.u32(4),
        }
    }

    fn write(&self, f: &mut Writer<'_>) {
        f.u32(0, 0);
        f.u32(4, self.payload_len);
        f.u64(8, MAGIC);
        f.u64(16, self.version_info);
        f.u64(24, self.creation_time);
        f.u32(32, self.objset_type);
        f.u32(36, self.flags);
        f.u64(40, self.to_guid);
        f.u64(48, self.from_guid);
        let name = self.to_name.as_bytes();
        f.put(56, &name[..name.len().min(NAME_MAX - 1)]);
    }
}

impl ObjectRecord {
    fn parse(f: &Fields<'_>) -> Self {
        Self {
            object: f.u64(8),
            object_type: f.u32(16),
            bonus_type: f.u32(20),
            block_size: f.u32(24),
            bonus_len: f.u32(28),
            checksum: f.u8(32),
            compress: f.u8(33),
            slots: f.u8(34),
            flags: f.u8(35),
            raw_bonus_len: f.u32(36),
            to_guid: f.u64(40),
            indirect_shift: f.u8(48),
            levels: f.u8(49),
            nblkptr: f.u8(50),
            max_block: f.u64(56),
        }
    }

    fn write(&self, f: &mut Writer<'_>) {
        f.u32(0, 1);
        f.u64(8, self.object);
        f.u32(16, self.object_type);
        f.u32(20, self.bonus_type);
        f.u32(24, self.block_size);
        f.u32(28, self.bonus_len);
        f.put(32, &[self.checksum, self.compress, self.slots, self.flags]);
        f.u32(36, self.raw_bonus_len);
        f.u64(40, self.to_guid);
        f.put(48, &[self.indirect_shift, self.levels, self.nblkptr]);
        f.u64(56, self.max_block);
    }
}

impl WriteRecord {
    fn parse(f: &Fields<'_>) -> Self {
        Self {
            object: f.u64(8),
            object_type: f.u32(16),
            offset: f.u64(24),
            logical_size: f.u64(32),
            to_guid: f.u64(40),
            checksum_type: f.u8(48),
            flags: f.u8(49),
            compression: f.u8(50),
            key: f.words(56),
            key_prop: f.u64(88),
            compressed_size: f.u64(96),
            crypt: f.crypt(104, 112, 124),
        }
    }

    fn write(&self, f: &mut Writer<'_>) {
        f.u32(0, 3);
        f.u64(8, self.object);
        f.u32(16, self.object_type);
        f.u64(24, self.offset);
        f.u64(32, self.logical_size);
        f.u64(40, self.to_guid);
        f.put(48, &[self.checksum_type, self.flags, self.compression]);
        for (i, word) in self.key.iter().enumerate() {
            f.u64(56 + 8 * i, *word);
        }
        f.u64(88, self.key_prop);
        f.u64(96, self.compressed_size);
        f.crypt(104, 112, 124, &self.crypt);
    }
}

impl ByrefRecord {
    fn parse(f: &Fields<'_>) -> Self {
        Self {
            object: f.u64(8),
            offset: f.u64(16),
            length: f.u64(24),
            to_guid: f.u64(32),
            ref_guid: f.u64(40),
            ref_object: f.u64(48),
            ref_offset: f.u64(56),
            checksum_type: f.u8(64),
            flags: f.u8(65),
            key: f.words(72),
            key_prop: f.u64(104),
        }
    }

    fn write(&self, f: &mut Writer<'_>) {
        f.numbers(
            6,
            8,
            &[
                self.object,
                self.offset,
                self.length,
                self.to_guid,
                self.ref_guid,
                self.ref_object,
                self.ref_offset,
            ],
        );
        f.put(64, &[self.checksum_type, self.flags]);
        for (i, word) in self.key.iter().enumerate() {
            f.u64(72 + 8 * i, *word);
        }
        f.u64(104, self.key_prop);
    }
}

struct Fields<'a> {
    bytes: &'a [u8; HEADER],
    order: ByteOrder,
}

impl Fields<'_> {
    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        if let Some(part) = self.bytes.get(at..at + N) {
            out.copy_from_slice(part);
        }
        out
    }
    fn u8(&self, at: usize) -> u8 {
        self.bytes[at]
    }
    fn u32(&self, at: usize) -> u32 {
        match self.order {
            ByteOrder::Little => u32::from_le_bytes(self.take(at)),
            ByteOrder::Big => u32::from_be_bytes(self.take(at)),
        }
    }
    fn u64(&self, at: usize) -> u64 {
        match self.order {
            ByteOrder::Little => u64::from_le_bytes(self.take(at)),
            ByteOrder::Big => u64::from_be_bytes(self.take(at)),
        }
    }
    fn words(&self, at: usize) -> [u64; 4] {
        std::array::from_fn(|i| self.u64(at + 8 * i))
    }
    fn crypt(&self, salt: usize, iv: usize, mac: usize) -> Crypt {
        Crypt {
            salt: self.take(salt),
            iv: self.take(iv),
            mac: self.take(mac),
        }
    }
}

/// The running checksum that a header stores.
pub fn tail(bytes: &[u8; HEADER], order: ByteOrder) -> [u64; 4] {
    Fields { bytes, order }.words(TAIL_AT)
}

/// The byte order of the host that wrote a BEGIN; `None` if it is none.
pub fn order_of(bytes: &[u8; HEADER]) -> Option<ByteOrder> {
    let magic = |order| Fields { bytes, order }.u64(8) == MAGIC;
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| magic(*order))
}

impl Record {
    /// Reads a header.
    ///
    /// # Errors
    /// [`Flaw::UnknownRecord`].
    pub fn parse(bytes: &[u8; HEADER], order: ByteOrder) -> Result<Self, Flaw> {
        let f = Fields { bytes, order };
        Ok(match f.u32(0) {
            0 => Self::Begin(Begin::parse(&f)),
            1 => Self::Object(ObjectRecord::parse(&f)),
            2 => Self::FreeObjects {
                first: f.u64(8),
                count: f.u64(16),
                to_guid: f.u64(24),
            },
            3 => Self::Write(WriteRecord::parse(&f)),
            4 => Self::Free {
                object: f.u64(8),
                offset: f.u64(16),
                length: f.u64(24),
                to_guid: f.u64(32),
            },
            5 => Self::End {
                checksum: f.words(8),
                to_guid: f.u64(40),
            },
            6 => Self::WriteByref(ByrefRecord::parse(&f)),
            7 => Self::Spill(SpillRecord {
                object: f.u64(8),
                length: f.u64(16),
                to_guid: f.u64(24),
                flags: f.u8(32),
                compression: f.u8(33),
                compressed_size: f.u64(40),
                crypt: f.crypt(48, 56, 68),
                object_type: f.u32(84),
            }),
            8 => Self::WriteEmbedded(EmbeddedRecord {
                object: f.u64(8),
                offset: f.u64(16),
                length: f.u64(24),
                to_guid: f.u64(32),
                compression: f.u8(40),
                embedded_type: f.u8(41),
                lsize: f.u32(48),
                psize: f.u32(52),
            }),
            9 => Self::ObjectRange {
                first: f.u64(8),
                slots: f.u64(16),
                to_guid: f.u64(24),
                crypt: f.crypt(32, 40, 52),
                flags: f.u8(68),
            },
            10 => Self::Redact {
                object: f.u64(8),
                offset: f.u64(16),
                length: f.u64(24),
                to_guid: f.u64(32),
            },
            other => return Err(Flaw::UnknownRecord(other)),
        })
    }

    /// Bytes of payload behind the header.
    ///
    /// # Errors
    /// [`Flaw::Payload`] beyond any block.
    pub fn payload_len(&self) -> Result<usize, Flaw> {
        let (len, max) = match self {
            Self::Begin(b) => (u64::from(b.payload_len), BEGIN_PAYLOAD_MAX),
            Self::Object(o) if o.raw_bonus_len != 0 => (u64::from(o.raw_bonus_len), PAYLOAD_MAX),
            Self::Object(o) => (u64::from(o.bonus_len).next_multiple_of(8), PAYLOAD_MAX),
            Self::Write(w) if w.compression != 0 => (w.compressed_size, PAYLOAD_MAX),
            Self::Write(w) => (w.logical_size, PAYLOAD_MAX),
            Self::Spill(s) if s.compressed_size != 0 => (s.compressed_size, PAYLOAD_MAX),
            Self::Spill(s) => (s.length, PAYLOAD_MAX),
            Self::WriteEmbedded(e) => (u64::from(e.psize).next_multiple_of(8), PAYLOAD_MAX),
            _ => (0, 0),
        };
        match usize::try_from(len) {
            Ok(n) if len <= max => Ok(n),
            _ => Err(Flaw::Payload(len)),
        }
    }

    /// Writes the header in a byte order; the running checksum stays zero.
    pub fn write(&self, out: &mut [u8; HEADER], order: ByteOrder) {
        out.fill(0);
        let mut f = Writer { bytes: out, order };
        match self {
            Self::Begin(b) => b.write(&mut f),
            Self::Object(o) => o.write(&mut f),
            Self::FreeObjects {
                first,
                count,
                to_guid,
            } => f.numbers(2, 8, &[*first, *count, *to_guid]),
            Self::Write(w) => w.write(&mut f),
            Self::Free {
                object,
                offset,
                length,
                to_guid,
            } => f.numbers(4, 8, &[*object, *offset, *length, *to_guid]),
            Self::End { checksum, to_guid } => {
                let [a, b, c, d] = *checksum;
                f.numbers(5, 8, &[a, b, c, d, *to_guid]);
            }
            Self::WriteByref(r) => r.write(&mut f),
            Self::Spill(s) => {
                f.numbers(7, 8, &[s.object, s.length, s.to_guid]);
                f.put(32, &[s.flags, s.compression]);
                f.u64(40, s.compressed_size);
                f.crypt(48, 56, 68, &s.crypt);
                f.u32(84, s.object_type);
            }
            Self::WriteEmbedded(e) => {
                f.numbers(8, 8, &[e.object, e.offset, e.length, e.to_guid]);
                f.put(40, &[e.compression, e.embedded_type]);
                f.u32(48, e.lsize);
                f.u32(52, e.psize);
            }
            Self::ObjectRange {
                first,
                slots,
                to_guid,
                flags,
                crypt,
            } => {
                f.numbers(9, 8, &[*first, *slots, *to_guid]);
                f.crypt(32, 40, 52, crypt);
                f.put(68, &[*flags]);
            }
            Self::Redact {
                object,
                offset,
                length,
                to_guid,
            } => f.numbers(10, 8, &[*object, *offset, *length, *to_guid]),
        }
    }
}

/// Stores a running checksum into a header.
pub fn set_tail(out: &mut [u8; HEADER], order: ByteOrder, sums: [u64; 4]) {
    let mut f = Writer { bytes: out, order };
    for (i, word) in sums.iter().enumerate() {
        f.u64(TAIL_AT + 8 * i, *word);
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8; HEADER],
    order: ByteOrder,
}

impl Writer<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }
    fn u32(&mut self, at: usize, v: u32) {
        let bytes = match self.order {
            ByteOrder::Little => v.to_le_bytes(),
            ByteOrder::Big => v.to_be_bytes(),
        };
        self.put(at, &bytes);
    }
    fn u64(&mut self, at: usize, v: u64) {
        let bytes = match self.order {
            ByteOrder::Little => v.to_le_bytes(),
            ByteOrder::Big => v.to_be_bytes(),
        };
        self.put(at, &bytes);
    }
    fn numbers(&mut self, record: u32, at: usize, values: &[u64]) {
        self.u32(0, record);
        for (i, v) in values.iter().enumerate() {
            self.u64(at + 8 * i, *v);
        }
    }
    fn crypt(&mut self, salt: usize, iv: usize, mac: usize, crypt: &Crypt) {
        self.put(salt, &crypt.salt);
        self.put(iv, &crypt.iv);
        self.put(mac, &crypt.mac);
    }
}

#[cfg(test)]
mod tests;

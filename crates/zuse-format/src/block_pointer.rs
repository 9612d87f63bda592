//! The block pointer: 128 bytes with a block's places, its encoding and its birth.
//!
//! | word | normal | encrypted (X, level 0) | embedded |
//! |---|---|---|---|
//! | 0,1 | DVA 0 | DVA 0 | payload |
//! | 2,3 | DVA 1 | DVA 1 | payload |
//! | 4,5 | DVA 2 | salt, IV bytes 0..8 | payload |
//! | 6 | properties | properties | properties (other layout) |
//! | 7 | bit 63 rewritten | same | payload |
//! | 8 | 0 | 0 | payload |
//! | 9 | physical birth, 0 = logical | same | payload |
//! | a | logical birth | logical birth | logical birth |
//! | b | fill | fill 0..32, IV bytes 8..12 | payload |
//! | c..f | checksum | c,d checksum; e,f MAC | payload |
//!
//! Properties: bits 0..16 LSIZE/512−1, 16..32 PSIZE/512−1, 32..39 compression, 39 embedded, 40..48
//! checksum, 48..56 type, 56..61 level, 61 X, 62 dedup, 63 little-endian. Embedded: bits 0..25
//! LSIZE−1 and 25..32 PSIZE−1 in bytes, 40..48 the embedded kind.
//!
//! A pointer is read after the byte order of its container was converted, so
//! [`BlockPointer::parse`] takes the container's order. [`BlockPointer::byte_order`] is the order
//! of the block it points to. Any 128 bytes parse. [`BlockPointer::validate`] decides whether the
//! pointer may be followed. Call it for every pointer from a disk before it is used.

use std::fmt;
use zuse_base::cut::{high32, low8};

use zuse_base::ByteOrder;

use crate::error::{FormatResult, bad};
use crate::field::put_u64;
use crate::object_type;

mod dva;
mod embedded;
pub use dva::Dva;

/// Bytes of a block pointer on disk.
pub const BP_SIZE: usize = 128;
/// Largest payload of an embedded pointer, in bytes.
pub const EMBEDDED_MAX: usize = 112;
/// Largest block.
pub const MAX_BLOCK: u64 = 16 << 20;
/// Unit of sizes and offsets.
pub const SECTOR: u64 = 512;
/// Number of compression methods known.
pub const COMPRESSION_LIMIT: u8 = 17;
/// Number of checksum functions known.
pub const CHECKSUM_LIMIT: u8 = 15;

const EMBEDDED_BIT: u64 = 1 << 39;
const CRYPT_BIT: u64 = 1 << 61;
const DEDUP_BIT: u64 = 1 << 62;
const LITTLE_BIT: u64 = 1 << 63;
const REWRITTEN_BIT: u64 = 1 << 63;

const PROPS: usize = 6;
const FLAGS: usize = 7;
const PHYSICAL: usize = 9;
const LOGICAL: usize = 10;
const FILL: usize = 11;
const CHECKSUM: usize = 12;

/// A block pointer, as its sixteen words.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockPointer {
    /// The words, as numbers.
    pub words: [u64; 16],
}

const _: () = assert!(size_of::<BlockPointer>() == BP_SIZE);

/// The kind of a block pointer, in the order in which the tests must be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BpKind {
    /// No block: zeros.
    Hole,
    /// The data are in the pointer.
    Embedded,
    /// The data was left out on purpose (redacted send); reading is an error.
    Redacted,
    /// An unknown embedded kind: corrupt.
    Unknown,
    /// A block on disk.
    Normal,
}

/// The meaning of a normal pointer's X bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// X clear.
    None,
    /// Level 0 of an encrypted type: AEAD; DVA 2 holds salt and IV.
    Encrypted,
    /// Level 0 of another type: stored in clear, MAC in the last two words (objset blocks
    /// excepted).
    Authenticated,
    /// Level > 0: MAC over the MACs of the children.
    IndirectMac,
}

/// The property fields of a normal block pointer, for writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpProps {
    /// Bytes after decompression: multiple of 512, 512..=16 MiB.
    pub lsize: u64,
    /// Bytes on disk: multiple of 512, 512..=16 MiB.
    pub psize: u64,
    /// Compression method.
    pub compression: u8,
    /// Checksum function.
    pub checksum: u8,
    /// DMU object type.
    pub object_type: u8,
    /// Level, 0 for data.
    pub level: u8,
    /// Block is in the dedup table.
    pub dedup: bool,
    /// X bit.
    pub crypt: bool,
    /// Byte order of the block.
    pub order: ByteOrder,
}

/// The limits for [`BlockPointer::validate`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BpLimits<'a> {
    /// Allocatable bytes of each top-level vdev by id; `None` in it for holes and missing ids.
    /// `None` = do not check.
    pub vdev_asizes: Option<&'a [Option<u64>]>,
}

impl Default for BlockPointer {
    fn default() -> Self {
        Self::HOLE
    }
}

impl BlockPointer {
    /// A hole that was never written.
    pub const HOLE: Self = Self { words: [0; 16] };

    /// Reads a pointer out of a container of that byte order.
    #[inline]
    pub fn parse(bytes: &[u8; BP_SIZE], order: ByteOrder) -> Self {
        let mut words = [0; 16];
        for (word, raw) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = match order {
                ByteOrder::Little => u64::from_le_bytes(*raw),
                ByteOrder::Big => u64::from_be_bytes(*raw),
            };
        }
        Self { words }
    }

    /// Reads the little-endian pointer at `at` of a block; `None` past its end.
    #[inline]
    pub fn at(block: &[u8], at: usize) -> Option<Self> {
        let raw = block.get(at..)?.first_chunk::<BP_SIZE>()?;
        Some(Self::parse(raw, ByteOrder::Little))
    }

    /// Writes the pointer little-endian to the first 128 bytes of a buffer.
    #[inline]
    pub fn write_le(&self, out: &mut [u8]) {
        for (i, word) in self.words.iter().enumerate() {
            put_u64(out, i * 8, *word);
        }
    }

    /// A normal pointer with its properties and nothing else yet.
    pub fn with_props(props: BpProps) -> Self {
        let mut bp = Self::HOLE;
        bp.set_props(props);
        bp
    }

    /// A hole with the txg in which it was punched (feature `hole_birth`). `birth` 0 gives
    /// [`Self::HOLE`].
    pub fn hole_with_birth(lsize: u64, object_type: u8, level: u8, birth: u64) -> Self {
        let mut bp = Self::HOLE;
        if birth != 0 {
            bp.words[PROPS] = sectors_minus_one(lsize)
                | u64::from(object_type) << 48
                | u64::from(level & 0x1f) << 56;
            bp.words[LOGICAL] = birth;
        }
        bp
    }

    /// The kind of this pointer.
    #[inline]
    pub fn kind(&self) -> BpKind {
        if self.words[PROPS] & EMBEDDED_BIT != 0 {
            match self.bits(40, 8) {
                0 => BpKind::Embedded,
                2 => BpKind::Redacted,
                _ => BpKind::Unknown,
            }
        } else if self.words[0] == 0 && self.words[1] == 0 {
            BpKind::Hole
        } else {
            BpKind::Normal
        }
    }

    /// No block.
    #[inline]
    pub fn is_hole(&self) -> bool {
        self.words[0] == 0 && self.words[1] == 0 && !self.is_embedded_bit()
    }

    /// Data in the pointer.
    #[inline]
    pub fn is_embedded(&self) -> bool {
        self.kind() == BpKind::Embedded
    }

    /// Data left out on purpose.
    #[inline]
    pub fn is_redacted(&self) -> bool {
        self.kind() == BpKind::Redacted
    }

    /// Whether the E bit is set (embedded, redacted or unknown): no DVAs.
    #[inline]
    pub fn is_embedded_bit(&self) -> bool {
        self.words[PROPS] & EMBEDDED_BIT != 0
    }

    /// Whether the block is a tree under a gang header.
    #[inline]
    pub fn is_gang(&self) -> bool {
        !self.is_embedded_bit() && self.dva(0).is_gang()
    }

    #[inline]
    fn bits(&self, shift: u32, width: u32) -> u64 {
        self.words[PROPS] >> shift & ((1 << width) - 1)
    }

    /// Bytes after decompression; of a hole without birth 0.
    #[inline]
    pub fn lsize(&self) -> u64 {
        if self.is_embedded_bit() {
            self.bits(0, 25) + 1
        } else if self.words[PROPS] == 0 {
            0
        } else {
            (self.bits(0, 16) + 1) * SECTOR
        }
    }

    /// Stored bytes, which are read and checksummed; 0 for holes and embedded pointers.
    #[inline]
    pub fn psize(&self) -> u64 {
        if self.is_embedded_bit() || self.is_hole() {
            0
        } else {
            (self.bits(16, 16) + 1) * SECTOR
        }
    }

    /// Allocated bytes over all DVAs.
    #[inline]
    pub fn asize(&self) -> u64 {
        self.dvas().map(|dva| dva.asize()).sum()
    }

    /// Level, 0 for data.
    #[inline]
    pub fn level(&self) -> u8 {
        low8(self.bits(56, 5))
    }

    /// DMU object type.
    #[inline]
    pub fn object_type(&self) -> u8 {
        low8(self.bits(48, 8))
    }

    /// Compression method.
    #[inline]
    pub fn compression(&self) -> u8 {
        low8(self.bits(32, 7))
    }

    /// Checksum function; off (2) for an embedded pointer, which has no checksum.
    #[inline]
    pub fn checksum_kind(&self) -> u8 {
        if self.is_embedded_bit() {
            2
        } else {
            low8(self.bits(40, 8))
        }
    }

    /// Byte order of the block that is pointed to (or embedded).
    #[inline]
    pub fn byte_order(&self) -> ByteOrder {
        if self.words[PROPS] & LITTLE_BIT != 0 {
            ByteOrder::Little
        } else {
            ByteOrder::Big
        }
    }

    /// Block is, or was, in the dedup table.
    #[inline]
    pub fn dedup(&self) -> bool {
        !self.is_embedded_bit() && self.words[PROPS] & DEDUP_BIT != 0
    }

    /// The X bit: the block is encrypted or authenticated; see [`Self::protection`].
    #[inline]
    pub fn uses_crypt(&self) -> bool {
        !self.is_embedded_bit() && self.words[PROPS] & CRYPT_BIT != 0
    }

    /// Whether the bytes on disk are ciphertext (X, level 0, encrypted type).
    #[inline]
    pub fn encrypted(&self) -> bool {
        self.uses_crypt() && self.level() == 0 && object_type::is_encrypted(self.object_type())
    }

    /// The meaning of the X bit.
    #[inline]
    pub fn protection(&self) -> Protection {
        if !self.uses_crypt() {
            Protection::None
        } else if self.level() > 0 {
            Protection::IndirectMac
        } else if object_type::is_encrypted(self.object_type()) {
            Protection::Encrypted
        } else {
            Protection::Authenticated
        }
    }

    /// Txg of the last logical change: what send and incremental traversal compare.
    #[inline]
    pub fn logical_birth(&self) -> u64 {
        self.words[LOGICAL]
    }

    /// Txg in which these bytes were written: verifier of gang headers, scrub ranges, cache key. 0
    /// if embedded.
    #[inline]
    pub fn physical_birth(&self) -> u64 {
        if self.is_embedded_bit() {
            0
        } else if self.words[PHYSICAL] != 0 {
            self.words[PHYSICAL]
        } else {
            self.words[LOGICAL]
        }
    }

    /// Txg that decides whether a freed block goes to a deadlist.
    #[inline]
    pub fn allocation_birth(&self) -> u64 {
        if self.rewritten() {
            self.physical_birth()
        } else {
            self.logical_birth()
        }
    }

    /// Rewritten with its old logical birth.
    #[inline]
    pub fn rewritten(&self) -> bool {
        !self.is_embedded_bit() && self.words[FLAGS] & REWRITTEN_BIT != 0
    }

    /// Fill count: non-hole level-0 blocks (or dnodes) below.
    #[inline]
    pub fn fill(&self) -> u64 {
        if self.is_embedded_bit() {
            1
        } else if self.encrypted() {
            self.words[FILL] & 0xffff_ffff
        } else {
            self.words[FILL]
        }
    }

    /// DVA by index 0..3, valid or not.
    #[inline]
    pub fn dva(&self, index: usize) -> Dva {
        Dva {
            word0: self.words[index * 2],
            word1: self.words[index * 2 + 1],
        }
    }

    /// The DVAs in use: none of a hole or embedded pointer, at most two of an encrypted one.
    #[inline]
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + use<> {
        let room = if self.is_embedded_bit() {
            0
        } else if self.encrypted() {
            2
        } else {
            3
        };
        let all = [self.dva(0), self.dva(1), self.dva(2)];
        all.into_iter().take(room).filter(|dva| dva.asize() != 0)
    }

    /// The four checksum words.
    #[inline]
    pub fn checksum(&self) -> [u64; 4] {
        [
            self.words[12],
            self.words[13],
            self.words[14],
            self.words[15],
        ]
    }

    /// Sets every property field.
    pub fn set_props(&mut self, p: BpProps) {
        self.words[PROPS] = sectors_minus_one(p.lsize)
            | sectors_minus_one(p.psize) << 16
            | u64::from(p.compression & 0x7f) << 32
            | u64::from(p.checksum) << 40
            | u64::from(p.object_type) << 48
            | u64::from(p.level & 0x1f) << 56
            | if p.crypt { CRYPT_BIT } else { 0 }
            | if p.dedup { DEDUP_BIT } else { 0 }
            | if p.order == ByteOrder::Little {
                LITTLE_BIT
            } else {
                0
            };
    }

    /// The property fields of a normal pointer.
    pub fn props(&self) -> BpProps {
        BpProps {
            lsize: self.lsize(),
            psize: self.psize(),
            compression: self.compression(),
            checksum: self.checksum_kind(),
            object_type: self.object_type(),
            level: self.level(),
            dedup: self.dedup(),
            crypt: self.uses_crypt(),
            order: self.byte_order(),
        }
    }

    /// Sets the DVA of an index 0..3.
    #[inline]
    pub fn set_dva(&mut self, index: usize, dva: Dva) {
        self.words[index * 2] = dva.word0;
        self.words[index * 2 + 1] = dva.word1;
    }

    /// Sets both births; an equal physical birth is stored as 0. Clears the rewritten mark.
    pub fn set_birth(&mut self, logical: u64, physical: u64) {
        self.words[LOGICAL] = logical;
        self.words[PHYSICAL] = if physical == logical { 0 } else { physical };
        self.words[FLAGS] &= !REWRITTEN_BIT;
    }

    /// Sets the fill count; an encrypted pointer keeps its IV bytes in the upper half.
    pub fn set_fill(&mut self, fill: u64) {
        self.words[FILL] = if self.encrypted() {
            self.words[FILL] & !0xffff_ffff | fill & 0xffff_ffff
        } else {
            fill
        };
    }

    /// Sets the four checksum words.
    #[inline]
    pub fn set_checksum(&mut self, words: [u64; 4]) {
        self.words[CHECKSUM..].copy_from_slice(&words);
    }

    /// Sets the two checksum words of a pointer whose other two hold a MAC.
    #[inline]
    pub fn set_truncated_checksum(&mut self, words: [u64; 2]) {
        self.words[CHECKSUM..CHECKSUM + 2].copy_from_slice(&words);
    }

    /// Sets the X bit.
    pub fn set_crypt(&mut self) {
        self.words[PROPS] |= CRYPT_BIT;
    }

    /// Sets the checksum function.
    pub fn set_checksum_kind(&mut self, kind: u8) {
        self.words[PROPS] = self.words[PROPS] & !(0xff << 40) | u64::from(kind) << 40;
    }

    /// Sets the dedup mark.
    pub fn set_dedup(&mut self, dedup: bool) {
        self.words[PROPS] = self.words[PROPS] & !DEDUP_BIT | if dedup { DEDUP_BIT } else { 0 };
    }

    /// Salt of an encrypted pointer, as bytes.
    pub fn salt(&self) -> [u8; 8] {
        self.word_bytes(4)
    }

    /// IV of an encrypted pointer, as bytes.
    pub fn iv(&self) -> [u8; 12] {
        let mut iv = [0; 12];
        iv[..8].copy_from_slice(&self.word_bytes(5));
        let tail = high32(self.words[FILL]);
        iv[8..].copy_from_slice(&match self.byte_order() {
            ByteOrder::Little => tail.to_le_bytes(),
            ByteOrder::Big => tail.to_be_bytes(),
        });
        iv
    }

    /// MAC in the last two words, as bytes.
    pub fn mac(&self) -> [u8; 16] {
        let mut mac = [0; 16];
        mac[..8].copy_from_slice(&self.word_bytes(14));
        mac[8..].copy_from_slice(&self.word_bytes(15));
        mac
    }

    /// Stores salt and IV of an encrypted pointer, in the byte order of its B bit.
    pub fn set_salt_iv(&mut self, salt: &[u8; 8], iv: &[u8; 12]) {
        let [i0, i1, i2, i3, i4, i5, i6, i7, t0, t1, t2, t3] = *iv;
        self.words[4] = self.word_of(*salt);
        self.words[5] = self.word_of([i0, i1, i2, i3, i4, i5, i6, i7]);
        let tail = match self.byte_order() {
            ByteOrder::Little => u32::from_le_bytes([t0, t1, t2, t3]),
            ByteOrder::Big => u32::from_be_bytes([t0, t1, t2, t3]),
        };
        self.words[FILL] = self.words[FILL] & 0xffff_ffff | u64::from(tail) << 32;
    }

    /// Stores a MAC in the last two words, in the byte order of the B bit.
    pub fn set_mac(&mut self, mac: &[u8; 16]) {
        let (halves, _) = mac.as_chunks::<8>();
        self.words[14] = self.word_of(halves[0]);
        self.words[15] = self.word_of(halves[1]);
    }

    fn word_bytes(&self, index: usize) -> [u8; 8] {
        // The writer's byte order, which is that of the block (02b-encryption).
        match self.byte_order() {
            ByteOrder::Little => self.words[index].to_le_bytes(),
            ByteOrder::Big => self.words[index].to_be_bytes(),
        }
    }

    fn word_of(&self, bytes: [u8; 8]) -> u64 {
        match self.byte_order() {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    /// Whether a pointer from a disk may be followed.
    ///
    /// # Errors
    /// Unknown type, compression, checksum or embedded kind; impossible sizes; a DVA outside its
    /// vdev.
    pub fn validate(&self, limits: BpLimits<'_>) -> FormatResult<()> {
        if *self == Self::HOLE {
            return Ok(());
        }
        if !object_type::is_valid(self.object_type()) {
            return bad(format!(
                "block pointer has object type {}",
                self.object_type()
            ));
        }
        if self.compression() >= COMPRESSION_LIMIT {
            return bad(format!(
                "block pointer has compression {}",
                self.compression()
            ));
        }
        if self.lsize() > MAX_BLOCK {
            return bad(format!("block pointer has logical size {}", self.lsize()));
        }
        match self.kind() {
            BpKind::Hole | BpKind::Redacted => Ok(()),
            BpKind::Unknown => bad(format!(
                "block pointer has embedded kind {}",
                self.bits(40, 8)
            )),
            BpKind::Embedded if self.embedded_len() > EMBEDDED_MAX => bad(format!(
                "block pointer embeds {} bytes",
                self.embedded_len()
            )),
            BpKind::Embedded => Ok(()),
            BpKind::Normal => self.validate_normal(limits),
        }
    }

    fn validate_normal(&self, limits: BpLimits<'_>) -> FormatResult<()> {
        if self.checksum_kind() >= CHECKSUM_LIMIT {
            return bad(format!(
                "block pointer has checksum {}",
                self.checksum_kind()
            ));
        }
        if self.psize() > MAX_BLOCK {
            return bad(format!("block pointer has physical size {}", self.psize()));
        }
        if self.dva(0).asize() == 0 {
            return bad("block pointer has no first address");
        }
        let Some(asizes) = limits.vdev_asizes else {
            return Ok(());
        };
        for dva in self.dvas() {
            let Some(Some(asize)) = asizes.get(dva.vdev() as usize) else {
                return bad(format!(
                    "block pointer names vdev {}, which does not exist",
                    dva.vdev()
                ));
            };
            // A gang DVA's size covers the whole tree; only its header has to fit here.
            let extent = if dva.is_gang() { SECTOR } else { dva.asize() };
            if dva
                .offset()
                .checked_add(extent)
                .is_none_or(|end| end > *asize)
            {
                return bad(format!(
                    "block pointer ends past vdev {} (offset {:#x})",
                    dva.vdev(),
                    dva.offset()
                ));
            }
        }
        Ok(())
    }
}

fn sectors_minus_one(bytes: u64) -> u64 {
    debug_assert!(
        bytes.is_multiple_of(SECTOR) && (SECTOR..=65536 * SECTOR).contains(&bytes),
        "size {bytes}"
    );
    (bytes / SECTOR).wrapping_sub(1) & 0xffff
}

impl fmt::Debug for BlockPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        write!(
            f,
            "{kind:?} type {} L{} {}L",
            self.object_type(),
            self.level(),
            self.lsize()
        )?;
        if kind == BpKind::Normal {
            write!(f, "/{}P", self.psize())?;
            for dva in self.dvas() {
                write!(f, " {dva:?}")?;
            }
            write!(
                f,
                " fill {} compression {} checksum {}",
                self.fill(),
                self.compression(),
                self.checksum_kind()
            )?;
        }
        write!(
            f,
            " birth {}L/{}P",
            self.logical_birth(),
            self.physical_birth()
        )
    }
}

#[cfg(test)]
mod tests;

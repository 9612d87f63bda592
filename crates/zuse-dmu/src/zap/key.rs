//! A key in the form that a leaf stores and compares, and a value as bytes.

use super::flaw::{Checked, Flaw};
use super::hash::{HashBits, crc_words};
use super::header::Header;
use super::normalize::{self, MatchType};
use std::borrow::Cow;
use zuse_base::{Errno, Error, Result};

/// "Argument list too long": a value or entry too big for any leaf.
pub const TOO_BIG: Errno = Errno(7);
/// Longest value in bytes.
pub(crate) const MAX_VALUE: usize = 8192;
/// Longest key of words, in words.
pub(crate) const MAX_WORDS: usize = 32;

/// The key of an operation: a name or a list of 64-bit words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    Name(&'a [u8]),
    /// A name whose hash in this ZAP is known already.
    Hashed(&'a [u8], u64),
    Words(&'a [u64]),
}

/// A key for one fat ZAP: hashed, and as the bytes of its name chunks.
pub(crate) struct Key<'a> {
    pub hash: u64,
    /// Without the NUL of a name.
    pub bytes: Cow<'a, [u8]>,
    /// The length field of the entry: bytes with the NUL, or words.
    pub count: u16,
    pub is_name: bool,
    pub how: MatchType,
    pub normflags: u64,
}

impl<'a> Ask<'a> {
    /// The key for a ZAP with this header; `longest` is the limit of a name with its NUL.
    pub(crate) fn key(self, h: &Header, how: MatchType, longest: usize) -> Result<Key<'a>> {
        let bits = h.hash_bits();
        match self {
            Ask::Name(name) | Ask::Hashed(name, _) => {
                if h.has_word_keys() {
                    return Err(Error::refused(
                        Errno::INVAL,
                        "this ZAP has keys of words, not names",
                    ));
                }
                if name.len() + 1 > longest {
                    return Err(Error::refused(Errno::NAMETOOLONG, "a ZAP name"));
                }
                if how != MatchType::Exact && h.normflags == 0 {
                    return Err(Error::refused(
                        Errno::NOTSUP,
                        "a normalised lookup in a ZAP without normalisation",
                    ));
                }
                let hash = match self {
                    Ask::Hashed(_, hash) => hash,
                    _ => hash_of(h, name)?,
                };
                Ok(Key {
                    hash,
                    bytes: Cow::Borrowed(name),
                    count: (name.len() + 1) as u16,
                    is_name: true,
                    how,
                    normflags: h.normflags,
                })
            }
            Ask::Words(words) => {
                let (true, Some(first), true) =
                    (h.has_word_keys(), words.first(), words.len() <= MAX_WORDS)
                else {
                    return Err(Error::refused(Errno::INVAL, "a ZAP key of words"));
                };
                let full = if h.is_prehashed() {
                    *first
                } else {
                    crc_words(h.salt, words)
                };
                Ok(Key {
                    hash: bits.cut(full),
                    bytes: Cow::Owned(words.iter().flat_map(|w| w.to_be_bytes()).collect()),
                    count: words.len() as u16,
                    is_name: false,
                    how: MatchType::Exact,
                    normflags: 0,
                })
            }
        }
    }
}

/// The hash of a name in a fat ZAP of names.
#[inline]
pub(crate) fn hash_of(h: &Header, name: &[u8]) -> Result<u64> {
    Ok(h.hash_bits()
        .cut(normalize::hash(h.salt, h.normflags, name)?))
}

impl Key<'_> {
    /// Length in bytes of its name chunks.
    pub(crate) fn stored_len(&self) -> usize {
        self.bytes.len() + usize::from(self.is_name)
    }
}

/// The value of an entry: an array of unsigned integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZapValue {
    /// One 8-byte integer.
    U64(u64),
    /// Any number of bytes (1-byte integers); strings include their NUL.
    Bytes(Vec<u8>),
    /// Integers of `int_size` 2, 4 or 8 bytes.
    Array {
        /// Bytes of each integer.
        int_size: u8,
        /// The integers.
        ints: Vec<u64>,
    },
}

impl From<u64> for ZapValue {
    fn from(v: u64) -> Self {
        Self::U64(v)
    }
}

impl ZapValue {
    /// A string with its NUL, as properties are stored.
    pub fn text(s: &str) -> Self {
        Self::Bytes(s.bytes().chain([0]).collect())
    }

    /// An array of 64-bit integers.
    pub fn u64s(ints: &[u64]) -> Self {
        match ints {
            [one] => Self::U64(*one),
            _ => Self::Array {
                int_size: 8,
                ints: ints.to_vec(),
            },
        }
    }

    /// An array of 16-bit integers.
    pub fn u16s(ints: &[u16]) -> Self {
        Self::Array {
            int_size: 2,
            ints: ints.iter().map(|&i| u64::from(i)).collect(),
        }
    }

    /// Bytes of each integer.
    pub fn int_size(&self) -> u8 {
        match self {
            Self::U64(_) => 8,
            Self::Bytes(_) => 1,
            Self::Array { int_size, .. } => *int_size,
        }
    }

    /// How many integers.
    pub fn count(&self) -> usize {
        match self {
            Self::U64(_) => 1,
            Self::Bytes(b) => b.len(),
            Self::Array { ints, .. } => ints.len(),
        }
    }

    /// The first integer.
    pub fn first(&self) -> Option<u64> {
        match self {
            Self::U64(v) => Some(*v),
            Self::Bytes(b) => b.first().map(|&b| u64::from(b)),
            Self::Array { ints, .. } => ints.first().copied(),
        }
    }

    /// The integers, whatever their size.
    pub fn ints(&self) -> Vec<u64> {
        match self {
            Self::U64(v) => vec![*v],
            Self::Bytes(b) => b.iter().map(|&b| u64::from(b)).collect(),
            Self::Array { ints, .. } => ints.clone(),
        }
    }

    /// The bytes of a value of 1-byte integers, up to a NUL, as text.
    pub fn as_text(&self) -> Option<&str> {
        let Self::Bytes(b) = self else { return None };
        let end = b.iter().position(|&c| c == 0).unwrap_or(b.len());
        std::str::from_utf8(&b[..end]).ok()
    }

    /// The value as a leaf stores it.
    pub(crate) fn stored(&self) -> Result<Stored> {
        let size = usize::from(self.int_size());
        if !matches!(size, 1 | 2 | 4 | 8) {
            return Err(Error::refused(
                Errno::INVAL,
                "integers of a ZAP value are of 1, 2, 4 or 8 bytes",
            ));
        }
        if size * self.count() > MAX_VALUE {
            return Err(Error::refused(TOO_BIG, "a ZAP value above 8192 bytes"));
        }
        // Leaves keep integers big-endian on every machine (03-zap).
        let bytes = match self {
            Self::U64(v) => StoredBytes::One(v.to_be_bytes()),
            Self::Bytes(b) => StoredBytes::Many(b.clone()),
            Self::Array { ints, .. } => StoredBytes::Many(
                ints.iter()
                    .flat_map(|i| i.to_be_bytes().into_iter().skip(8 - size))
                    .collect(),
            ),
        };
        Ok(Stored {
            int_size: size as u8,
            count: self.count() as u16,
            bytes,
        })
    }

    /// The value of stored bytes.
    pub(crate) fn from_stored(int_size: u8, bytes: Vec<u8>) -> Checked<Self> {
        let size = usize::from(int_size);
        if !matches!(size, 1 | 2 | 4 | 8) {
            return Err(Flaw("a ZAP value of an impossible integer size"));
        }
        if size == 1 {
            return Ok(Self::Bytes(bytes));
        }
        let mut ints = bytes
            .chunks_exact(size)
            .map(|c| c.iter().fold(0, |v, &b| (v << 8) | u64::from(b)));
        if bytes.len() == 8 && size == 8 {
            return Ok(Self::U64(ints.next().unwrap_or(0)));
        }
        Ok(Self::Array {
            int_size,
            ints: ints.collect(),
        })
    }
}

/// A value as bytes, most significant first.
pub(crate) struct Stored {
    pub int_size: u8,
    pub count: u16,
    bytes: StoredBytes,
}

enum StoredBytes {
    One([u8; 8]),
    Many(Vec<u8>),
}

impl Stored {
    pub(crate) fn one(v: u64) -> Self {
        Self {
            int_size: 8,
            count: 1,
            bytes: StoredBytes::One(v.to_be_bytes()),
        }
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            StoredBytes::One(b) => b,
            StoredBytes::Many(b) => b,
        }
    }
}

impl Header {
    /// How many hash bits this ZAP keeps.
    pub(crate) fn hash_bits(&self) -> HashBits {
        if self.flags & super::header::HASH64 != 0 {
            HashBits::WIDE
        } else {
            HashBits::NORMAL
        }
    }
}

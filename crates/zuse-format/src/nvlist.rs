//! Name-value lists: labels, configurations, stream headers, extended attributes.
//!
//! A packed list begins with four bytes: encoding (0 native, 1 XDR), byte order of the writer (1
//! little), 0, 0. XDR is big-endian for every writer. Native is an image of the writer's memory,
//! and only the little-endian one is read.
//!
//! Names of a list are unique if made by [`NvList::insert`]. A list read from disk keeps
//! duplicates, and lookups return the first. The order is that of insertion. Encoding is byte-exact
//! with OpenZFS, which refuses a list whose sizes are off by one (the tests have the bytes).
//!
//! Names and strings are text here; bytes that are not UTF-8 are replaced. Extended attributes,
//! whose names may be any bytes, have their own codec in `zuse-dmu`.
//!
//! Hostile input: nesting is limited by [`MAX_DEPTH`], names by [`MAX_NAME`], and no count may
//! exceed the bytes behind it. A list that was read can be written in both encodings and is then
//! read as the same list.

mod native;
mod xdr;

use crate::error::{FormatError, FormatResult, bad};

/// Deepest nesting that is read.
pub const MAX_DEPTH: usize = 32;
/// Longest name in bytes: with its NUL it fills the signed 16-bit length of the native form.
pub const MAX_NAME: usize = i16::MAX as usize - 1;
/// Names are unique: the flag of every list that OpenZFS writes.
pub const UNIQUE_NAME: u32 = 1;

/// Encoding of a packed list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvEncoding {
    /// Memory image of a little-endian host.
    Native,
    /// Big-endian, four-byte items.
    Xdr,
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident($ty:ty) = $code:literal;)*) => {
        /// A value of a pair.
        #[derive(Clone, PartialEq, Debug)]
        pub enum NvValue {
            /// Present, without a value.
            Boolean,
            $($(#[$doc])* $name($ty),)*
        }

        impl NvValue {
            /// The type's number on disk.
            pub fn type_code(&self) -> u32 {
                match self {
                    Self::Boolean => 1,
                    $(Self::$name(_) => $code,)*
                }
            }
        }
    };
}

values! {
    /// Byte.
    Byte(u8) = 2;
    /// 16-bit signed.
    Int16(i16) = 3;
    /// 16-bit unsigned.
    Uint16(u16) = 4;
    /// 32-bit signed.
    Int32(i32) = 5;
    /// 32-bit unsigned.
    Uint32(u32) = 6;
    /// 64-bit signed.
    Int64(i64) = 7;
    /// 64-bit unsigned.
    Uint64(u64) = 8;
    /// Text.
    String(String) = 9;
    /// Bytes.
    ByteArray(Vec<u8>) = 10;
    /// 16-bit signed numbers.
    Int16Array(Vec<i16>) = 11;
    /// 16-bit unsigned numbers.
    Uint16Array(Vec<u16>) = 12;
    /// 32-bit signed numbers.
    Int32Array(Vec<i32>) = 13;
    /// 32-bit unsigned numbers.
    Uint32Array(Vec<u32>) = 14;
    /// 64-bit signed numbers.
    Int64Array(Vec<i64>) = 15;
    /// 64-bit unsigned numbers.
    Uint64Array(Vec<u64>) = 16;
    /// Texts.
    StringArray(Vec<String>) = 17;
    /// Nanoseconds.
    Hrtime(i64) = 18;
    /// A list.
    List(NvList) = 19;
    /// Lists.
    ListArray(Vec<NvList>) = 20;
    /// True or false.
    BooleanValue(bool) = 21;
    /// 8-bit signed.
    Int8(i8) = 22;
    /// 8-bit unsigned.
    Uint8(u8) = 23;
    /// Truth values.
    BooleanArray(Vec<bool>) = 24;
    /// 8-bit signed numbers.
    Int8Array(Vec<i8>) = 25;
    /// 8-bit unsigned numbers.
    Uint8Array(Vec<u8>) = 26;
    /// Floating point.
    Double(f64) = 27;
}

macro_rules! from {
    ($($ty:ty => $variant:ident;)*) => {$(
        impl From<$ty> for NvValue {
            fn from(value: $ty) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

from! {
    u64 => Uint64;
    i64 => Int64;
    u32 => Uint32;
    i32 => Int32;
    bool => BooleanValue;
    String => String;
    NvList => List;
    Vec<NvList> => ListArray;
    Vec<u64> => Uint64Array;
    Vec<String> => StringArray;
}

impl From<&str> for NvValue {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl NvValue {
    /// Number of elements as stored in the pair.
    pub fn element_count(&self) -> usize {
        match self {
            Self::Boolean => 0,
            Self::ByteArray(v) | Self::Uint8Array(v) => v.len(),
            Self::Int16Array(v) => v.len(),
            Self::Uint16Array(v) => v.len(),
            Self::Int32Array(v) => v.len(),
            Self::Uint32Array(v) => v.len(),
            Self::Int64Array(v) => v.len(),
            Self::Uint64Array(v) => v.len(),
            Self::StringArray(v) => v.len(),
            Self::ListArray(v) => v.len(),
            Self::BooleanArray(v) => v.len(),
            Self::Int8Array(v) => v.len(),
            _ => 1,
        }
    }

    /// Size of the value in the native form, the "decoded size" of XDR, before alignment.
    fn native_size(&self) -> usize {
        match self {
            Self::Boolean => 0,
            Self::Byte(_) | Self::Int8(_) | Self::Uint8(_) => 1,
            Self::Int16(_) | Self::Uint16(_) => 2,
            Self::Int32(_) | Self::Uint32(_) | Self::BooleanValue(_) => 4,
            Self::Int64(_) | Self::Uint64(_) | Self::Hrtime(_) | Self::Double(_) => 8,
            Self::String(s) => s.len() + 1,
            Self::ByteArray(v) | Self::Uint8Array(v) => v.len(),
            Self::Int8Array(v) => v.len(),
            Self::Int16Array(v) => 2 * v.len(),
            Self::Uint16Array(v) => 2 * v.len(),
            Self::Int32Array(v) => 4 * v.len(),
            Self::Uint32Array(v) => 4 * v.len(),
            Self::BooleanArray(v) => 4 * v.len(),
            Self::Int64Array(v) => 8 * v.len(),
            Self::Uint64Array(v) => 8 * v.len(),
            Self::StringArray(v) => v.iter().map(|s| 8 + s.len() + 1).sum(),
            Self::List(_) => 24,
            Self::ListArray(v) => 32 * v.len(),
        }
    }
}

/// A name that fits both forms. Replacing invalid UTF-8 makes names longer.
fn fitting(name: String) -> FormatResult<String> {
    if name.len() > MAX_NAME {
        return bad(format!("nvlist has a name of {} bytes", name.len()));
    }
    Ok(name)
}

fn align8(n: usize) -> usize {
    n.next_multiple_of(8)
}

/// Size of a pair in the native form.
fn native_pair_size(name: &str, value: &NvValue) -> usize {
    align8(16 + name.len() + 1) + align8(value.native_size())
}

/// An ordered list of named values.
#[derive(Clone, PartialEq, Debug)]
pub struct NvList {
    /// 1 = unique names, 2 = unique names and types.
    pub flags: u32,
    /// The pairs in order.
    pub pairs: Vec<(String, NvValue)>,
}

impl Default for NvList {
    fn default() -> Self {
        Self {
            flags: UNIQUE_NAME,
            pairs: Vec::new(),
        }
    }
}

impl NvList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a packed list of either encoding; trailing bytes are ignored.
    ///
    /// # Errors
    /// Not a list, damaged, nested too deeply, or native of a big-endian host (unsupported).
    pub fn decode(bytes: &[u8]) -> FormatResult<Self> {
        let Some(header) = bytes.first_chunk::<4>() else {
            return bad("nvlist without a header");
        };
        let body = &bytes[4..];
        match header[0] {
            0 if header[1] != 1 => Err(FormatError::unsupported(
                "native nvlist of a big-endian host",
            )),
            0 => native::decode(body),
            1 => xdr::decode(body),
            other => bad(format!("nvlist has encoding {other}")),
        }
    }

    /// Packs the list.
    pub fn encode(&self, encoding: NvEncoding) -> Vec<u8> {
        // Most pairs are a short name and a number or a short text.
        let mut out = Vec::with_capacity(64 * (self.pairs.len() + 1));
        out.extend([u8::from(encoding == NvEncoding::Xdr), 1, 0, 0]);
        match encoding {
            NvEncoding::Xdr => xdr::encode(self, &mut out),
            NvEncoding::Native => native::encode(self, &mut out),
        }
        out
    }

    /// Packs the list as XDR.
    pub fn encode_xdr(&self) -> Vec<u8> {
        self.encode(NvEncoding::Xdr)
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &NvValue)> {
        self.pairs
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// Value by name.
    pub fn get(&self, name: &str) -> Option<&NvValue> {
        self.pairs
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value)
    }

    /// Value by name, to change.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut NvValue> {
        self.pairs
            .iter_mut()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value)
    }

    /// Whether the name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// 64-bit number by name.
    pub fn get_u64(&self, name: &str) -> Option<u64> {
        if let Some(NvValue::Uint64(value)) = self.get(name) {
            Some(*value)
        } else {
            None
        }
    }

    /// Text by name.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        if let Some(NvValue::String(value)) = self.get(name) {
            Some(value)
        } else {
            None
        }
    }

    /// List by name.
    pub fn get_list(&self, name: &str) -> Option<&NvList> {
        if let Some(NvValue::List(value)) = self.get(name) {
            Some(value)
        } else {
            None
        }
    }

    /// List by name, to change.
    pub fn get_list_mut(&mut self, name: &str) -> Option<&mut NvList> {
        if let Some(NvValue::List(value)) = self.get_mut(name) {
            Some(value)
        } else {
            None
        }
    }

    /// Array of lists by name.
    pub fn get_lists(&self, name: &str) -> Option<&[NvList]> {
        if let Some(NvValue::ListArray(value)) = self.get(name) {
            Some(value)
        } else {
            None
        }
    }

    /// Array of 64-bit numbers by name.
    pub fn get_u64s(&self, name: &str) -> Option<&[u64]> {
        if let Some(NvValue::Uint64Array(value)) = self.get(name) {
            Some(value)
        } else {
            None
        }
    }

    /// Whether a valueless boolean of this name is there.
    pub fn get_bool_flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(NvValue::Boolean))
    }

    /// Sets a value: an older one of that name is removed, and the new one is appended.
    pub fn insert(&mut self, name: &str, value: impl Into<NvValue>) -> &mut Self {
        self.remove(name);
        self.pairs.push((name.to_owned(), value.into()));
        self
    }

    /// Sets a valueless boolean.
    pub fn insert_flag(&mut self, name: &str) -> &mut Self {
        self.insert(name, NvValue::Boolean)
    }

    /// Replaces a value in place, or appends it.
    pub fn replace(&mut self, name: &str, value: impl Into<NvValue>) -> &mut Self {
        match self.get_mut(name) {
            Some(old) => *old = value.into(),
            None => self.pairs.push((name.to_owned(), value.into())),
        }
        self
    }

    /// Takes a value out.
    pub fn remove(&mut self, name: &str) -> Option<NvValue> {
        let at = self.pairs.iter().position(|(n, _)| n == name)?;
        Some(self.pairs.remove(at).1)
    }

    /// The value of [`Self::insert`], for chains: `NvList::new().with("a", 1u64)`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<NvValue>) -> Self {
        self.insert(name, value);
        self
    }
}

#[cfg(test)]
mod tests;

//! Extended attributes in one attribute (DXATTR): an XDR nvlist of byte arrays, with names of any
//! bytes.
//!
//! ```text
//!  01 order 00 00 | version 0 | flags 1 | pairs: encoded size, decoded size, name length, name, type 10, count, data | 0 0
//! ```
//! All numbers are big-endian u32; names and data are padded with zeros to multiples of 4.

use zuse_base::{Errno, Error, Result};

/// Largest value of one extended attribute stored here.
pub const MAX_VALUE: usize = 32_768;
/// Largest set that is accepted for a change.
pub const MAX_OLD: usize = 65_536;
/// Largest set that is written.
pub const MAX_NEW: usize = 65_535;
const BYTE_ARRAY: u32 = 10;

/// An encoded set to be stored. Room before it is for the header of a spill block that holds
/// nothing else, and room after it for whole sectors. So it becomes that block without a copy.
#[derive(Debug)]
pub struct List(Vec<u8>);

impl List {
    /// Room before it; a multiple of 4, like the padding inside the set.
    pub(crate) const LEAD: usize = 8;

    /// For a set of `len` bytes.
    fn with_room(len: usize) -> Self {
        let mut bytes = Vec::with_capacity((Self::LEAD + len).next_multiple_of(512));
        bytes.resize(Self::LEAD, 0);
        Self(bytes)
    }

    /// Any bytes.
    #[cfg(test)]
    pub(crate) fn holding(bytes: &[u8]) -> Self {
        let mut list = Self::with_room(bytes.len());
        list.0.extend_from_slice(bytes);
        list
    }

    /// Including the room before it.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl std::ops::Deref for List {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.get(Self::LEAD..).unwrap_or_default()
    }
}

/// A set of extended attributes, in stored order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dxattr {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*head))
    }
    fn bytes(&mut self, len: u32) -> Option<&'a [u8]> {
        let len = usize::try_from(len).ok()?;
        let padded = len.checked_next_multiple_of(4)?;
        let (head, rest) = self.0.split_at_checked(padded)?;
        self.0 = rest;
        head.get(..len)
    }
}

fn pad4(n: usize) -> usize {
    n.next_multiple_of(4)
}

/// Bytes of one pair.
fn pair_size(name: usize, value: usize) -> usize {
    20 + pad4(name) + pad4(value)
}

/// Finds one attribute without decoding the others.
///
/// # Errors
/// The bytes are not a valid set.
pub fn find<'a>(bytes: &'a [u8], name: &[u8]) -> Result<Option<&'a [u8]>> {
    let mut found = None;
    walk(bytes, |n, v| {
        if n == name {
            found = Some(v);
        }
        found.is_none()
    })?;
    Ok(found)
}

/// A pair of a set, in its stored form.
struct Pair<'a> {
    /// All its bytes.
    encoded: &'a [u8],
    name: &'a [u8],
    /// `None` if the pair is not a byte array.
    value: Option<&'a [u8]>,
}

/// Calls `f` for each pair until it returns false.
fn pairs<'a>(bytes: &'a [u8], mut f: impl FnMut(Pair<'a>) -> bool) -> Result<()> {
    let mut step = || -> Option<()> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        if head[0] != 1 {
            return None;
        }
        let mut r = Reader(rest);
        let (_version, _flags) = (r.u32()?, r.u32()?);
        loop {
            let start = r.0;
            let (encoded, decoded) = (r.u32()?, r.u32()?);
            if encoded == 0 && decoded == 0 {
                return Some(());
            }
            let body = usize::try_from(encoded).ok()?.checked_sub(8)?;
            let (pair, rest) = r.0.split_at_checked(body)?;
            r.0 = rest;
            let mut p = Reader(pair);
            let name_len = p.u32()?;
            let name = p.bytes(name_len)?;
            let mut value = None;
            if p.u32()? == BYTE_ARRAY {
                let count = p.u32()?;
                value = Some(p.bytes(count)?);
            }
            let encoded = start.get(..body + 8)?;
            if !f(Pair {
                encoded,
                name,
                value,
            }) {
                return Some(());
            }
        }
    };
    step().ok_or_else(|| Error::corrupt("extended attributes", "the set in DXATTR does not parse"))
}

/// Calls `f(name, value)` for each attribute until it returns false.
///
/// # Errors
/// The bytes are not a valid set.
pub fn walk<'a>(bytes: &'a [u8], mut f: impl FnMut(&'a [u8], &'a [u8]) -> bool) -> Result<()> {
    pairs(bytes, |pair| match pair.value {
        Some(value) => f(pair.name, value),
        None => true,
    })
}

/// The set `old` without some names, and with a new value at its end; the other pairs are copied
/// unchanged. `None` if the value has to go into the extended attribute directory instead.
///
/// # Errors
/// The bytes are not a valid set.
pub fn changed(
    old: Option<&[u8]>,
    without: &[&[u8]],
    with: Option<(&[u8], &[u8])>,
) -> Result<Option<List>> {
    let old = old.unwrap_or(&EMPTY);
    let more = with.map_or(0, |(n, v)| pair_size(n.len(), v.len()));
    if with.is_some_and(|(_, v)| v.len() > MAX_VALUE) || old.len() > MAX_OLD {
        return Ok(None);
    }
    let mut list = List::with_room(old.len() + more);
    let out = &mut list.0;
    out.extend_from_slice(old.get(..12).unwrap_or(&EMPTY[..12]));
    pairs(old, |pair| {
        if !without.contains(&pair.name) {
            out.extend_from_slice(pair.encoded);
        }
        true
    })?;
    if let Some((name, value)) = with {
        put_pair(out, name, value);
    }
    out.extend_from_slice(&[0; 8]);
    Ok((list.len() <= MAX_NEW || with.is_none()).then_some(list))
}

/// A set without attributes.
const EMPTY: [u8; 20] = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

fn put_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let put = |out: &mut Vec<u8>, v: usize| out.extend_from_slice(&(v as u32).to_be_bytes());
    put(out, pair_size(name.len(), value.len()));
    put(
        out,
        (16 + name.len() + 1).next_multiple_of(8) + value.len().next_multiple_of(8),
    );
    put(out, name.len());
    out.extend_from_slice(name);
    out.resize(pad4(out.len()), 0);
    put(out, BYTE_ARRAY as usize);
    put(out, value.len());
    out.extend_from_slice(value);
    out.resize(pad4(out.len()), 0);
}

impl Dxattr {
    /// Decodes a set.
    ///
    /// # Errors
    /// The bytes are not a valid set.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut pairs = Vec::new();
        walk(bytes, |name, value| {
            pairs.push((name.to_vec(), value.to_vec()));
            true
        })?;
        Ok(Self { pairs })
    }

    /// Encodes the set; an empty one has 20 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        out.extend_from_slice(&EMPTY[..12]);
        for (name, value) in &self.pairs {
            put_pair(&mut out, name, value);
        }
        out.extend_from_slice(&[0; 8]);
        out
    }

    /// Bytes of the encoded set.
    pub fn encoded_len(&self) -> usize {
        20 + self
            .pairs
            .iter()
            .map(|(n, v)| pair_size(n.len(), v.len()))
            .sum::<usize>()
    }

    /// The value of a name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.pairs
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_slice())
    }

    /// The names and values, in stored order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(n, v)| (n.as_slice(), v.as_slice()))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Sets a name: its old value is removed, and the new one is appended.
    ///
    /// # Errors
    /// `FBIG` if the attribute has to go into the extended attribute directory instead; the set is
    /// then unchanged.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        let old = self.get(name).map_or(0, |v| pair_size(name.len(), v.len()));
        let size = self.encoded_len() - old + pair_size(name.len(), value.len());
        if value.len() > MAX_VALUE || self.encoded_len() > MAX_OLD || size > MAX_NEW {
            return Err(Error::refused(
                Errno::FBIG,
                "an extended attribute too large for system attributes",
            ));
        }
        self.remove(name);
        self.pairs.push((name.to_vec(), value.to_vec()));
        Ok(())
    }

    /// Removes a name; returns whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.pairs.len();
        self.pairs.retain(|(n, _)| n != name);
        self.pairs.len() != before
    }
}

//! Extended attributes as a system attribute: an XDR name-value list of byte arrays.
//!
//! Names are bytes (with their name-space prefix), not text, so this codec works on slices and copies nothing when it
//! reads. Its bytes are those of [`crate::nvlist`] with one byte array per pair.

use crate::error::{FormatError, FormatResult, bad};

/// Largest blob that can be stored.
pub const BLOB_MAX: usize = 65_535;
/// Largest value stored this way.
pub const VALUE_MAX: usize = 32_768;

const HEAD: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const BYTE_ARRAY: u32 = 10;

/// Name and value pairs of a blob; an empty slice is an empty list. Ends after the first error.
pub fn iter(blob: &[u8]) -> Xattrs<'_> {
    Xattrs {
        bytes: blob,
        started: false,
        done: blob.is_empty(),
    }
}

/// Iterator of [`iter`].
#[derive(Clone, Debug)]
pub struct Xattrs<'a> {
    bytes: &'a [u8],
    started: bool,
    done: bool,
}

impl<'a> Xattrs<'a> {
    fn take(&mut self, len: usize) -> FormatResult<&'a [u8]> {
        match self.bytes.split_at_checked(len) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => bad("extended attributes end early"),
        }
    }

    fn u32(&mut self) -> FormatResult<u32> {
        match self.take(4)?.first_chunk() {
            Some(raw) => Ok(u32::from_be_bytes(*raw)),
            None => bad("extended attributes end early"),
        }
    }

    fn padded(&mut self, len: usize) -> FormatResult<&'a [u8]> {
        let data = self.take(len)?;
        self.take(len.next_multiple_of(4) - len)?;
        Ok(data)
    }

    fn pair(&mut self) -> FormatResult<Option<(&'a [u8], &'a [u8])>> {
        if !self.started {
            if self.take(1)? != [1] {
                return Err(FormatError::unsupported(
                    "extended attributes that are not XDR",
                ));
            }
            self.take(3)?;
            if self.u32()? != 0 {
                return bad("extended attributes of an unknown version");
            }
            self.u32()?;
            self.started = true;
        }
        let (encoded, decoded) = (self.u32()?, self.u32()?);
        if encoded == 0 || decoded == 0 {
            return Ok(None);
        }
        let name_len = self.u32()? as usize;
        let name = self.padded(name_len)?;
        let kind = self.u32()?;
        if kind != BYTE_ARRAY {
            return bad(format!("extended attribute of type {kind}"));
        }
        let value_len = self.u32()? as usize;
        Ok(Some((name, self.padded(value_len)?)))
    }
}

impl<'a> Iterator for Xattrs<'a> {
    type Item = FormatResult<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let pair = self.pair().transpose();
        self.done = !matches!(pair, Some(Ok(_)));
        pair
    }
}

/// Bytes of a blob of pairs with these name and value lengths.
pub fn encoded_size(pairs: impl IntoIterator<Item = (usize, usize)>) -> usize {
    let pair =
        |(name, value): (usize, usize)| 20 + name.next_multiple_of(4) + value.next_multiple_of(4);
    20 + pairs.into_iter().map(pair).sum::<usize>()
}

/// The blob of these pairs, in order.
pub fn encode<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = HEAD.to_vec();
    for (name, value) in pairs {
        let (name_room, value_room) = (
            name.len().next_multiple_of(4),
            value.len().next_multiple_of(4),
        );
        let decoded = (16 + name.len() + 1).next_multiple_of(8) + value.len().next_multiple_of(8);
        for word in [20 + name_room + value_room, decoded, name.len()] {
            out.extend((word as u32).to_be_bytes());
        }
        out.extend(name);
        out.resize(out.len() + name_room - name.len(), 0);
        out.extend(BYTE_ARRAY.to_be_bytes());
        out.extend((value.len() as u32).to_be_bytes());
        out.extend(value);
        out.resize(out.len() + value_room - value.len(), 0);
    }
    out.extend([0; 8]);
    out
}

#[cfg(test)]
mod tests;

//! Reading a stream record by record.
//!
//! Guarantees for any input (a record that breaks a rule is a [`Flaw`])
//! - Memory is bounded by the largest payload that has been received completely: a length is not
//!   trusted before its bytes are there.
//! - A record is returned only if its own header's checksum is right. The checksum over its payload
//!   is in the header of the next record. A caller that must not act on damaged bytes delays each
//!   record by one.

use std::io::{ErrorKind, Read};

use zuse_base::ByteOrder;
use zuse_codec::Fletcher4;

use crate::error::{Flaw, StreamError, StreamResult};
use crate::record::{HEADER, Record, TAIL_AT, order_of, tail};

/// Bytes of a payload that are read at a time.
const STEP: usize = 1 << 20;

/// A record with its place.
#[derive(Debug)]
#[non_exhaustive]
pub struct Item {
    /// Number of the record, from 0.
    pub number: u64,
    /// Where it begins.
    pub offset: u64,
    /// The record.
    pub record: Record,
    /// Its payload.
    pub payload: Vec<u8>,
    /// The running checksum it stores.
    pub tail: [u64; 4],
}

impl Item {
    /// A flaw of this record.
    pub fn flaw(&self, flaw: Flaw) -> StreamError {
        StreamError::Flaw {
            record: self.number,
            offset: self.offset,
            flaw,
        }
    }

    /// An invalid record.
    pub fn invalid(&self, what: impl Into<String>) -> StreamError {
        self.flaw(Flaw::Invalid(what.into()))
    }
}

/// Reads records from a byte stream.
pub struct StreamReader<R> {
    input: R,
    order: ByteOrder,
    sum: Fletcher4,
    offset: u64,
    number: u64,
    verify: bool,
    /// A payload buffer to use again.
    spare: Vec<u8>,
}

impl<R: Read> StreamReader<R> {
    /// A reader that verifies checksums. `input` should be buffered.
    pub fn new(input: R) -> Self {
        Self {
            input,
            order: ByteOrder::Little,
            sum: Fletcher4::new(),
            offset: 0,
            number: 0,
            verify: true,
            spare: Vec::new(),
        }
    }

    /// Whether checksums are verified.
    pub fn set_verify(&mut self, verify: bool) {
        self.verify = verify;
    }

    /// The byte order of the stream, known after the first BEGIN.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Bytes read so far, complete records only.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The running checksum now.
    pub fn sums(&self) -> [u64; 4] {
        self.sum.words()
    }

    /// Returns a payload's buffer for reuse.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > self.spare.capacity() {
            buffer.clear();
            self.spare = buffer;
        }
    }

    /// A flaw in the next record.
    pub fn flaw(&self, flaw: Flaw) -> StreamError {
        StreamError::Flaw {
            record: self.number,
            offset: self.offset,
            flaw,
        }
    }

    /// The next record; `None` where the input ends between two records.
    ///
    /// # Errors
    /// Any [`Flaw`] of the record, or the input's error.
    pub fn next_record(&mut self) -> StreamResult<Option<Item>> {
        let mut header = [0u8; HEADER];
        let got = self.fill(&mut header)?;
        if got == 0 {
            return Ok(None);
        }
        if let Some(program) = unpacks(&header).filter(|_| self.number == 0) {
            return Err(self.flaw(Flaw::Packed(program)));
        }
        if got < HEADER {
            return Err(self.flaw(Flaw::Truncated));
        }
        let begins = header[..4] == [0; 4];
        if begins || self.number == 0 {
            self.order = order_of(&header)
                .filter(|_| begins)
                .ok_or_else(|| self.flaw(Flaw::Magic))?;
            self.sum = Fletcher4::with_order(self.order);
        }
        let record = Record::parse(&header, self.order).map_err(|f| self.flaw(f))?;
        let len = record.payload_len().map_err(|f| self.flaw(f))?;
        let stored = tail(&header, self.order);
        if begins {
            self.sum.update(&header);
        } else {
            let before = self.sum.words();
            if let Record::End { checksum, .. } = &record
                && self.verify
                && *checksum != before
            {
                return Err(self.flaw(Flaw::Checksum {
                    computed: before,
                    stored: *checksum,
                }));
            }
            self.sum.update(&header[..TAIL_AT]);
            if self.verify && stored != [0; 4] && stored != self.sum.words() {
                return Err(self.flaw(Flaw::Checksum {
                    computed: self.sum.words(),
                    stored,
                }));
            }
            self.sum.update(&header[TAIL_AT..]);
        }
        let payload = self.payload(len)?;
        self.sum.update(&payload);
        let item = Item {
            number: self.number,
            offset: self.offset,
            record,
            payload,
            tail: if begins { [0; 4] } else { stored },
        };
        self.number += 1;
        self.offset += (HEADER + len) as u64;
        // The checksum covers one substream.
        if matches!(item.record, Record::End { .. }) {
            self.sum = Fletcher4::with_order(self.order);
        }
        Ok(Some(item))
    }

    fn payload(&mut self, len: usize) -> StreamResult<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        while bytes.len() < len {
            let from = bytes.len();
            bytes.resize(len.min(from + STEP), 0);
            let want = bytes.len() - from;
            if self.fill(&mut bytes[from..])? < want {
                return Err(self.flaw(Flaw::Truncated));
            }
        }
        Ok(bytes)
    }

    /// Reads until the buffer is full or the input ends.
    fn fill(&mut self, buffer: &mut [u8]) -> StreamResult<usize> {
        let mut at = 0;
        while at < buffer.len() {
            match self.input.read(&mut buffer[at..]) {
                Ok(0) => break,
                Ok(n) => at += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(StreamError::io(self.offset, &e)),
            }
        }
        Ok(at)
    }
}

/// The program that unpacks what begins with these bytes.
fn unpacks(start: &[u8; HEADER]) -> Option<&'static str> {
    let of: [(&[u8], _); 5] = [
        (&[0x1f, 0x8b], "gzip -dc"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd -dc"),
        (&[0xfd, b'7', b'z', b'X', b'Z'], "xz -dc"),
        (&[0x04, 0x22, 0x4d, 0x18], "lz4 -dc"),
        (b"BZh", "bzip2 -dc"),
    ];
    let found = of.iter().find(|(magic, _)| start.starts_with(magic));
    found.map(|(_, program)| *program)
}

#[cfg(test)]
mod tests;

//! Writing a stream: records, payloads, the running checksum.
//!
//! Small parts are collected into one write. A payload that is large enough for a write is passed
//! on without a copy.

use std::io::{IoSlice, Write};

use zuse_base::ByteOrder;
use zuse_codec::Fletcher4;

use crate::error::{StreamError, StreamResult};
use crate::record::{HEADER, Record, TAIL_AT, set_tail};

/// Bytes gathered before a write.
const GATHER: usize = 256 << 10;
/// Payloads from this size on are not copied.
const DIRECT: usize = 32 << 10;

/// Slices that the host accepts in one write.
const MAX_SLICES: usize = 1024;

/// Writes records to a byte stream.
pub struct StreamWriter<W: Write> {
    output: W,
    order: ByteOrder,
    sum: Fletcher4,
    gathered: Vec<u8>,
    offset: u64,
}

impl<W: Write> StreamWriter<W> {
    /// A little-endian stream.
    pub fn new(output: W) -> Self {
        Self::with_order(output, ByteOrder::Little)
    }

    /// A stream in the byte order of such a host.
    pub fn with_order(output: W, order: ByteOrder) -> Self {
        Self {
            output,
            order,
            sum: Fletcher4::with_order(order),
            gathered: Vec::with_capacity(GATHER + HEADER),
            offset: 0,
        }
    }

    /// Bytes written so far, collected ones included.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The running checksum now.
    pub fn sums(&self) -> [u64; 4] {
        self.sum.words()
    }

    /// Writes a record with its payload; a BEGIN starts the checksum again.
    ///
    /// # Errors
    /// The output's error.
    pub fn record(&mut self, record: &Record, payload: &[u8]) -> StreamResult<()> {
        self.emit(record, payload, true)
    }

    /// Writes a record without a running checksum (zero): the ENDs of a package.
    ///
    /// # Errors
    /// The output's error.
    pub fn bare(&mut self, record: &Record) -> StreamResult<()> {
        self.emit(record, &[], false)
    }

    /// Ends a substream with the checksum of everything since its BEGIN.
    ///
    /// # Errors
    /// The output's error.
    pub fn end(&mut self, to_guid: u64) -> StreamResult<()> {
        let checksum = self.sum.words();
        self.record(&Record::End { checksum, to_guid }, &[])?;
        self.flush()
    }

    fn emit(&mut self, record: &Record, payload: &[u8], with_tail: bool) -> StreamResult<()> {
        let mut header = [0u8; HEADER];
        record.write(&mut header, self.order);
        if matches!(record, Record::Begin(_)) {
            self.sum = Fletcher4::with_order(self.order);
            self.sum.update(&header);
        } else if with_tail {
            self.sum.update(&header[..TAIL_AT]);
            set_tail(&mut header, self.order, self.sum.words());
            self.sum.update(&header[TAIL_AT..]);
        }
        self.sum.update(payload);
        self.offset += (HEADER + payload.len()) as u64;
        self.gathered.extend_from_slice(&header);
        if payload.len() >= DIRECT {
            return self.direct(payload);
        }
        self.gathered.extend_from_slice(payload);
        if self.gathered.len() >= GATHER {
            self.flush_gathered()?;
        }
        Ok(())
    }

    /// Writes records that lack only the running checksum. The payloads are not copied.
    ///
    /// # Errors
    /// The output's error.
    pub fn batch<'a>(
        &mut self,
        headers: &mut [[u8; HEADER]],
        payload: &dyn Fn(usize) -> &'a [u8],
    ) -> StreamResult<()> {
        self.flush_gathered()?;
        for (i, header) in headers.iter_mut().enumerate() {
            let bytes = payload(i);
            self.sum.update(&header[..TAIL_AT]);
            set_tail(header, self.order, self.sum.words());
            self.sum.update(&header[TAIL_AT..]);
            self.sum.update(bytes);
            self.offset += (HEADER + bytes.len()) as u64;
        }
        let mut slices = Vec::with_capacity(MAX_SLICES);
        for (i, header) in headers.iter().enumerate() {
            slices.push(IoSlice::new(header));
            let bytes = payload(i);
            if !bytes.is_empty() {
                slices.push(IoSlice::new(bytes));
            }
            if slices.len() + 2 > MAX_SLICES {
                write_all(&mut self.output, &mut slices, self.offset)?;
                slices.clear();
            }
        }
        write_all(&mut self.output, &mut slices, self.offset)
    }

    /// Passes on the collected bytes and a payload in one call.
    fn direct(&mut self, payload: &[u8]) -> StreamResult<()> {
        let mut slices = [IoSlice::new(&self.gathered), IoSlice::new(payload)];
        write_all(&mut self.output, &mut slices, self.offset)?;
        self.gathered.clear();
        Ok(())
    }

    fn flush_gathered(&mut self) -> StreamResult<()> {
        self.output
            .write_all(&self.gathered)
            .map_err(|e| StreamError::io(self.offset, &e))?;
        self.gathered.clear();
        Ok(())
    }

    /// Passes everything on.
    ///
    /// # Errors
    /// The output's error.
    pub fn flush(&mut self) -> StreamResult<()> {
        self.flush_gathered()?;
        self.output
            .flush()
            .map_err(|e| StreamError::io(self.offset, &e))
    }

    /// The output, everything passed on.
    ///
    /// # Errors
    /// The output's error.
    pub fn into_inner(mut self) -> StreamResult<W> {
        self.flush()?;
        Ok(self.output)
    }
}

fn write_all(output: &mut impl Write, slices: &mut [IoSlice<'_>], offset: u64) -> StreamResult<()> {
    let mut left = slices;
    while !left.is_empty() {
        match output.write_vectored(left) {
            Ok(0) => {
                let e = std::io::Error::from(std::io::ErrorKind::WriteZero);
                return Err(StreamError::io(offset, &e));
            }
            Ok(n) => IoSlice::advance_slices(&mut left, n),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(StreamError::io(offset, &e)),
        }
    }
    Ok(())
}

//! Putting records into blocks.
//!
//! The records of one operation are in one block: after a power cut all or none of them are there.
//! Only a write whose data is in the object may be split into several records. The data goes
//! straight from the object's blocks to its place in the log block.

use zuse_base::{Result, Txg};
use zuse_format::BlockPointer;
use zuse_format::field::{put_u64, u64_at};
use zuse_format::zil::CHAIN_HEAD;

use super::lists::{BLOCK_AT, COUNT_AT, LENGTH_AT, OFFSET_AT, Records, SEQ_AT, TXG_AT, WRITE_HEAD};

/// The smallest and the largest block.
pub(super) const BLOCK_MIN: usize = 4096;
pub(super) const BLOCK_MAX: usize = 128 << 10;
/// Bytes of records in the largest block.
pub(super) const RECORDS_MAX: usize = BLOCK_MAX - CHAIN_HEAD;
/// A write is split only if that many bytes fit, and at a multiple of that in its object.
const PIECE_MIN: usize = 4096;
const SECTOR: u64 = 4096;

/// The block size for that many bytes of records.
pub(super) fn size_for(records: usize) -> usize {
    (records.saturating_add(CHAIN_HEAD))
        .next_multiple_of(BLOCK_MIN)
        .clamp(BLOCK_MIN, BLOCK_MAX)
}

/// Size of a write record with that many bytes of data.
fn write_record(data: usize) -> usize {
    WRITE_HEAD + data.next_multiple_of(8)
}

/// Size of the records of a write with that much data, split if necessary.
pub(super) fn bytes_of_write(data: u64) -> usize {
    let data = usize::try_from(data).unwrap_or(usize::MAX / 2);
    let piece = RECORDS_MAX - WRITE_HEAD - PIECE_MIN;
    data.saturating_add((data / piece + 1) * (WRITE_HEAD + 8))
}

/// A block with records, but without its pointer to the next one and its checksum.
pub(super) struct Filled {
    pub bytes: Vec<u8>,
    pub used: usize,
    pub records: u64,
    /// The newest txg of the records.
    pub newest: Txg,
}

impl Filled {
    fn new(mut bytes: Vec<u8>, size: usize) -> Self {
        bytes.clear();
        bytes.resize(size, 0);
        Self {
            bytes,
            used: CHAIN_HEAD,
            records: 0,
            newest: Txg::ZERO,
        }
    }

    fn room(&self) -> usize {
        self.bytes.len() - self.used
    }
}

/// Fills blocks, one after the other.
pub(super) struct Filler<'a> {
    pub blocks: Vec<Filled>,
    /// The number of the last record.
    pub seq: u64,
    /// Bytes of records still to come, at most.
    left: usize,
    buffers: &'a mut dyn FnMut() -> Vec<u8>,
}

impl<'a> Filler<'a> {
    /// The first block exists already, with `first` bytes; `left` bytes of records will come.
    pub fn new(
        first: usize,
        seq: u64,
        left: usize,
        buffers: &'a mut dyn FnMut() -> Vec<u8>,
    ) -> Self {
        let block = Filled::new(buffers(), first);
        Self {
            blocks: vec![block],
            seq,
            left,
            buffers,
        }
    }

    /// Room for a record of `len` bytes, which must fit.
    fn place(&mut self, len: usize, txg: Txg) -> &mut [u8] {
        self.seq += 1;
        self.left = self.left.saturating_sub(len);
        let seq = self.seq;
        let block = self.last();
        let at = block.used;
        block.used += len;
        block.records += 1;
        block.newest = block.newest.max(txg);
        let record = &mut block.bytes[at..at + len];
        put_u64(record, SEQ_AT, seq);
        record
    }

    fn last(&mut self) -> &mut Filled {
        match self.blocks.last_mut() {
            Some(block) => block,
            None => unreachable!("there is a first block"),
        }
    }

    fn next_block(&mut self, len: usize) {
        let size = size_for(self.left.max(len));
        let block = Filled::new((self.buffers)(), size);
        self.blocks.push(block);
    }

    /// Adds the records of one operation. False: they fit into no block.
    pub fn put(&mut self, txg: Txg, operation: &[u8]) -> bool {
        if operation.len() > RECORDS_MAX {
            return false;
        }
        if self.last().room() < operation.len() {
            self.next_block(operation.len());
        }
        let mut rest = operation;
        while let Some((record, after)) = Records::split(rest) {
            rest = after;
            // Its number is assigned there. In the list that field holds the record's state.
            let place = self.place(record.len(), txg);
            place[..SEQ_AT].copy_from_slice(&record[..SEQ_AT]);
            place[SEQ_AT + 8..].copy_from_slice(&record[SEQ_AT + 8..]);
        }
        true
    }

    /// Adds a write; `read` returns its data by offset.
    pub fn put_write(
        &mut self,
        txg: Txg,
        head: &[u8],
        (mut offset, mut length): (u64, u64),
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        while length > 0 {
            let wanted = usize::try_from(length).unwrap_or(usize::MAX);
            // Records are multiples of eight bytes.
            let fits = self.last().room().saturating_sub(WRITE_HEAD) / 8 * 8;
            if fits < wanted.min(PIECE_MIN) {
                let all = bytes_of_write(length).min(RECORDS_MAX);
                self.next_block(all);
                continue;
            }
            // A power cut between two records must not leave half a sector.
            let cut = (offset + fits as u64) / SECTOR * SECTOR;
            let data = match wanted <= fits || cut <= offset {
                true => wanted.min(fits),
                false => (cut - offset) as usize,
            };
            let place = self.write_head(write_record(data), txg, head, (offset, data as u64));
            read(offset, &mut place[WRITE_HEAD..WRITE_HEAD + data])?;
            offset += data as u64;
            length -= data as u64;
        }
        Ok(())
    }

    /// Adds a part of a write whose block was placed.
    pub fn put_placed(
        &mut self,
        txg: Txg,
        head: &[u8],
        (offset, length): (u64, u64),
        block: &BlockPointer,
    ) {
        if self.last().room() < WRITE_HEAD {
            self.next_block(WRITE_HEAD);
        }
        let place = self.write_head(WRITE_HEAD, txg, head, (offset, length));
        block.write_le(&mut place[BLOCK_AT..WRITE_HEAD]);
    }

    /// The record of `len` bytes of a part of a write, with all but its data.
    fn write_head(
        &mut self,
        len: usize,
        txg: Txg,
        head: &[u8],
        (offset, length): (u64, u64),
    ) -> &mut [u8] {
        let place = self.place(len, txg);
        let seq = u64_at(place, SEQ_AT);
        place[..WRITE_HEAD].copy_from_slice(&head[..WRITE_HEAD]);
        put_u64(place, LENGTH_AT, len as u64);
        put_u64(place, TXG_AT, txg.0);
        put_u64(place, SEQ_AT, seq);
        put_u64(place, OFFSET_AT, offset);
        put_u64(place, COUNT_AT, length);
        place
    }
}

#[cfg(test)]
mod tests;

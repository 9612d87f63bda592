//! Turns a stream's records into batches to apply: verified, plain, little-endian.
//!
//! A record is passed on only when the next header is verified, because only that covers its
//! payload. So the last record before the end of a truncated or damaged stream is never applied.

use zuse_base::ByteOrder;
use zuse_codec::{Compression, check_compressed, decompress};
use zuse_format::object_type::{is_valid, swap_block, swap_bonus};

use crate::error::{Flaw, StreamResult};
use crate::reader::{Item, StreamReader};
use crate::record::{EmbeddedRecord, Record, WriteRecord};

/// Logical bytes of a batch.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// Dnode slots of a block.
const SLOTS: u64 = 32;
/// Records of a batch.
const BATCH_RECORDS: usize = 1024;
/// Largest block of any pool.
const BLOCK_MAX: u64 = 16 << 20;

/// Records that are applied together.
#[derive(Default)]
pub(crate) struct Batch {
    pub items: Vec<Item>,
    /// Logical bytes in it.
    pub bytes: u64,
    /// Offset in the stream after its last record.
    pub end: u64,
}

/// Reads a substream after its BEGIN, up to and including its END; `give` gets the batches and
/// returns whether to continue.
///
/// # Errors
/// An error in the stream; everything before it was passed on.
pub(crate) fn batches<R: std::io::Read>(
    reader: &mut StreamReader<R>,
    raw: bool,
    give: &mut dyn FnMut(Batch) -> bool,
) -> StreamResult<()> {
    let mut batch = Batch::default();
    let mut kept: Option<(Item, u64)> = None;
    let order = reader.order();
    let mut scratch = Vec::new();
    loop {
        let next = reader.next_record();
        let ended = match next {
            Ok(Some(item)) => Ok(Some(item)),
            Ok(None) => Err(reader.flaw(Flaw::Truncated)),
            Err(e) => Err(e),
        };
        let item = match ended {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(()),
            Err(e) => {
                if !batch.items.is_empty() {
                    give(batch);
                }
                return Err(e);
            }
        };
        if let Some((last, end)) = kept.take() {
            let ready = match raw {
                true => prepare_raw(last),
                false => prepare(last, order, &mut scratch),
            };
            match ready {
                Ok(last) => {
                    batch.bytes += last.payload.len() as u64;
                    batch.end = end;
                    batch.items.push(last);
                }
                Err(e) => {
                    if !batch.items.is_empty() {
                        give(batch);
                    }
                    return Err(e);
                }
            }
        }
        match &item.record {
            Record::End { .. } => {
                if !batch.items.is_empty() {
                    give(batch);
                }
                return Ok(());
            }
            Record::Begin(_) => {
                return Err(item.invalid("a BEGIN inside a substream"));
            }
            Record::WriteByref(_) => {
                return Err(item.invalid(
                    "a deduplicated record; 'zstream redup' makes a stream without them",
                ));
            }
            _ => kept = Some((item, reader.offset())),
        }
        if (batch.bytes >= BATCH_BYTES || batch.items.len() >= BATCH_RECORDS)
            && !give(std::mem::take(&mut batch))
        {
            return Ok(());
        }
    }
}

/// Checks a record and converts its payload to little-endian. A compressed payload is verified to
/// decompress and stays compressed, because it is stored that way.
fn prepare(mut item: Item, order: ByteOrder, scratch: &mut Vec<u8>) -> StreamResult<Item> {
    match &item.record {
        Record::Object(o) => {
            let bonus_type = u8::try_from(o.bonus_type)
                .map_err(|_| item.invalid(format!("bonus type {}", o.bonus_type)))?;
            let len = o.bonus_len as usize;
            if len > item.payload.len() {
                return Err(item.invalid("a bonus longer than its payload"));
            }
            // In the stream it is padded to 8 bytes.
            item.payload.truncate(len);
            if order == ByteOrder::Big {
                swap_bonus(bonus_type, &mut item.payload);
            }
        }
        Record::Write(w) => {
            let w = w.clone();
            check_range(&item, w.offset, w.logical_size)?;
            let kind = checked_type(&item, w.object_type)?;
            check_packed(&item, &w, scratch)?;
            if order == ByteOrder::Big && w.compression == 0 {
                swap_block(kind, 0, &mut item.payload).map_err(|e| item.invalid(e.to_string()))?;
            }
        }
        Record::WriteEmbedded(e) => {
            let e = e.clone();
            if e.is_spill() {
                check_spill(&item, e.length)?;
                if e.offset != EmbeddedRecord::spill_offset(e.length) {
                    return Err(item.invalid("an offset that no block has"));
                }
            } else {
                check_range(&item, e.offset, e.length)?;
            }
            item.payload = unpack(&item, &e)?;
        }
        Record::Spill(s) if s.compressed_size != 0 => {
            return Err(item.invalid("a raw spill block in a stream that is not raw"));
        }
        Record::Spill(s) => check_spill(&item, s.length)?,
        Record::ObjectRange { .. } => {
            return Err(item.invalid("an OBJECT_RANGE in a stream that is not raw"));
        }
        Record::FreeObjects { first, count, .. } if first.checked_add(*count).is_none() => {
            return Err(item.invalid("object numbers wrap"));
        }
        Record::Free { offset, length, .. } | Record::Redact { offset, length, .. }
            if *length != u64::MAX && offset.checked_add(*length).is_none() =>
        {
            return Err(item.invalid("a range wraps"));
        }
        _ => {}
    }
    Ok(item)
}

/// Checks a record of a raw stream; its payload is stored unchanged.
fn prepare_raw(item: Item) -> StreamResult<Item> {
    match &item.record {
        Record::Object(o) => {
            let (used, room) = (o.bonus_len as usize, item.payload.len());
            if used > room || (used == 0) != (o.raw_bonus_len == 0) {
                return Err(item.invalid("a bonus longer than its payload"));
            }
        }
        Record::Write(w) => {
            check_range(&item, w.offset, w.logical_size)?;
            checked_type(&item, w.object_type)?;
            check_stored(&item, w.logical_size, w.compression)?;
        }
        Record::WriteEmbedded(_) => {
            return Err(item.invalid("an embedded block in a raw stream"));
        }
        Record::Spill(s) => check_stored(&item, s.length, s.compression)?,
        Record::ObjectRange { first, slots, .. }
            if *slots != SLOTS || !first.is_multiple_of(SLOTS) =>
        {
            return Err(item.invalid("an OBJECT_RANGE that is no block of dnodes"));
        }
        Record::Redact { .. } => return Err(item.invalid("a raw stream that is redacted")),
        Record::FreeObjects { first, count, .. } if first.checked_add(*count).is_none() => {
            return Err(item.invalid("object numbers wrap"));
        }
        Record::Free { offset, length, .. }
            if *length != u64::MAX && offset.checked_add(*length).is_none() =>
        {
            return Err(item.invalid("a range wraps"));
        }
        _ => {}
    }
    Ok(item)
}

/// A raw payload's sizes.
fn check_stored(item: &Item, logical: u64, compression: u8) -> StreamResult<()> {
    let size = item.payload.len() as u64;
    let sized = |n: u64| (512..=BLOCK_MAX).contains(&n) && n.is_multiple_of(512);
    let kind =
        Compression::from_u8(compression).filter(|k| *k == Compression::Off || k.is_storable());
    let fits = sized(size)
        && sized(logical)
        && size <= logical
        && kind.is_some_and(|k| k != Compression::Off || size == logical);
    match fits {
        true => Ok(()),
        false => Err(item.invalid(format!(
            "a raw block of {size} bytes stands for {logical} with compression {compression}"
        ))),
    }
}

fn check_spill(item: &Item, length: u64) -> StreamResult<()> {
    match (512..=BLOCK_MAX).contains(&length) && length.is_multiple_of(512) {
        true => Ok(()),
        false => Err(item.invalid(format!("a spill block of {length} bytes"))),
    }
}

fn checked_type(item: &Item, number: u32) -> StreamResult<u8> {
    u8::try_from(number)
        .ok()
        .filter(|t| *t != 0 && is_valid(*t))
        .ok_or_else(|| item.invalid(format!("object type {number}")))
}

fn check_range(item: &Item, offset: u64, length: u64) -> StreamResult<()> {
    if length == 0 || length > BLOCK_MAX || !length.is_multiple_of(512) {
        return Err(item.invalid(format!("a block of {length} bytes")));
    }
    match offset.checked_add(length) {
        Some(end) if end < i64::MAX as u64 => Ok(()),
        _ => Err(item.invalid("an offset wraps")),
    }
}

/// Whether the block in a WRITE is compressed.
pub(crate) fn is_packed(w: &WriteRecord) -> bool {
    w.compression != 0 && w.compression != Compression::Off.to_u8()
}

/// Checks that a WRITE's payload is its block.
fn check_packed(item: &Item, w: &WriteRecord, scratch: &mut Vec<u8>) -> StreamResult<()> {
    if !is_packed(w) {
        if item.payload.len() as u64 != w.logical_size {
            return Err(item.invalid("a plain block with two sizes"));
        }
        return Ok(());
    }
    let kind = packing(item, w)?;
    check_compressed(kind, &item.payload, w.logical_size as usize, scratch)
        .map_err(|e| item.invalid(e.to_string()))
}

fn packing(item: &Item, w: &WriteRecord) -> StreamResult<Compression> {
    Compression::from_u8(w.compression)
        .filter(|k| k.is_storable())
        .ok_or_else(|| item.invalid(format!("compression {}", w.compression)))
}

/// The block of a WRITE that is compressed.
///
/// # Errors
/// It does not decompress.
pub(crate) fn unpack_into(
    item: &Item,
    w: &WriteRecord,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> StreamResult<()> {
    let kind = packing(item, w)?;
    out.resize(w.logical_size as usize, 0);
    decompress(kind, payload, out).map_err(|e| item.invalid(e.to_string()))
}

fn unpack(item: &Item, e: &EmbeddedRecord) -> StreamResult<Vec<u8>> {
    if e.psize == 0
        || e.psize > 112
        || u64::from(e.lsize) > e.length
        || e.embedded_type != 0
        || e.psize as usize > item.payload.len()
    {
        return Err(item.invalid("an embedded block with impossible sizes"));
    }
    let stored = &item.payload[..e.psize as usize];
    let mut out = vec![0; e.lsize as usize];
    let kind = Compression::from_u8(e.compression)
        .ok_or_else(|| item.invalid(format!("compression {}", e.compression)))?;
    if kind == Compression::Off {
        out = stored.to_vec();
    } else {
        decompress(kind, stored, &mut out).map_err(|e| item.invalid(e.to_string()))?;
    }
    out.resize(e.length as usize, 0);
    Ok(out)
}

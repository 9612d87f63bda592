//! Converting streams: `zstream decompress`, `recompress`, `redup`, `drop_record`.
//!
//! ```text
//!   StreamReader ─ one record ─ changed ─ StreamWriter (new checksums)
//! ```
//! No record is kept in memory. `redup` keeps the file offsets of blocks to which later records may
//! refer.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

use zuse_base::ByteOrder;
use zuse_codec::{Compression, Workspace, ZstdLevel, decompress};

use crate::error::{Flaw, StreamError, StreamResult};
use crate::features;
use crate::reader::{Item, StreamReader};
use crate::record::{Begin, ByrefRecord, HEADER, Header, Record, WriteRecord};
use crate::writer::StreamWriter;

/// A block to decompress: object, offset, and how (`None` only resets the fields).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Object number.
    pub object: u64,
    /// Offset.
    pub offset: u64,
    /// Its actual compression.
    pub compression: Option<Compression>,
}

/// What to do with a record.
enum Verdict {
    Same,
    Changed(Record, Vec<u8>),
    Gone,
}

/// Copies a stream record by record.
fn copy<R: Read, W: Write>(
    reader: &mut StreamReader<R>,
    out: W,
    change: &mut dyn FnMut(&Item) -> StreamResult<Verdict>,
) -> StreamResult<()> {
    let mut writer = StreamWriter::new(out);
    let mut in_front = false;
    while let Some(item) = reader.next_record()? {
        if reader.order() == ByteOrder::Big {
            return Err(item.invalid("streams of the other byte order are not changed"));
        }
        let verdict = change(&item)?;
        match (&item.record, verdict) {
            (Record::End { checksum, to_guid }, _) => {
                // A package's last END has no checksum at all; the one after its list has no
                // running checksum.
                if *checksum == [0; 4] && *to_guid == 0 {
                    writer.bare(&item.record)?;
                } else if in_front {
                    let checksum = writer.sums();
                    writer.bare(&Record::End {
                        checksum,
                        to_guid: *to_guid,
                    })?;
                } else {
                    writer.end(*to_guid)?;
                }
                in_front = false;
            }
            (_, Verdict::Gone) => {}
            (_, Verdict::Changed(record, payload)) => writer.record(&record, &payload)?,
            (record, Verdict::Same) => writer.record(record, &item.payload)?,
        }
        if let Record::Begin(b) = &item.record {
            in_front = b.header() == Header::Package;
        }
        reader.recycle(item.payload);
    }
    writer.flush()
}

fn unpacked(item: &Item, w: &WriteRecord, kind: Compression) -> StreamResult<Vec<u8>> {
    let size = usize::try_from(w.logical_size)
        .ok()
        .filter(|s| *s <= 16 << 20)
        .ok_or_else(|| item.flaw(Flaw::Payload(w.logical_size)))?;
    let mut plain = vec![0; size];
    decompress(kind, &item.payload, &mut plain).map_err(|e| item.invalid(e.to_string()))?;
    Ok(plain)
}

/// Decompresses the named WRITEs; calls `warn` for each.
///
/// # Errors
/// An error in the stream, a block that does not decompress, or the output's error.
pub fn decompress_named(
    input: impl Read,
    out: impl Write,
    names: &[Named],
    warn: &mut dyn FnMut(&str),
) -> StreamResult<()> {
    let mut reader = StreamReader::new(input);
    copy(&mut reader, out, &mut |item| {
        let Record::Write(w) = &item.record else {
            return Ok(Verdict::Same);
        };
        let named = names
            .iter()
            .find(|n| n.object == w.object && n.offset == w.offset);
        let Some(named) = named else {
            return Ok(Verdict::Same);
        };
        let payload = match named.compression {
            None | Some(Compression::Off) => item.payload.clone(),
            Some(kind) => unpacked(item, w, kind)?,
        };
        warn(&format!(
            "Resetting compression type to off for ino {} offset {}",
            w.object, w.offset
        ));
        let record = WriteRecord {
            compression: 0,
            compressed_size: 0,
            logical_size: payload.len() as u64,
            ..w.clone()
        };
        Ok(Verdict::Changed(Record::Write(record), payload))
    })
}

/// Drops the WRITEs at these objects and offsets; calls `warn` for each.
///
/// # Errors
/// As [`decompress_named`].
pub fn drop_named(
    input: impl Read,
    out: impl Write,
    names: &[(u64, u64)],
    warn: &mut dyn FnMut(&str),
) -> StreamResult<()> {
    let mut reader = StreamReader::new(input);
    copy(&mut reader, out, &mut |item| match &item.record {
        Record::Write(w) if names.contains(&(w.object, w.offset)) => {
            let (object, offset) = (w.object, w.offset);
            warn(&format!(
                "Dropping WRITE record for object {object} offset {offset}"
            ));
            Ok(Verdict::Gone)
        }
        _ => Ok(Verdict::Same),
    })
}

/// Compresses all unencrypted WRITEs again.
///
/// # Errors
/// As [`decompress_named`].
pub fn recompress(
    input: impl Read,
    out: impl Write,
    kind: Compression,
    level: ZstdLevel,
) -> StreamResult<()> {
    let mut reader = StreamReader::new(input);
    let (mut packed, mut workspace) = (Vec::new(), Workspace::default());
    copy(&mut reader, out, &mut |item| {
        let Record::Write(w) = &item.record else {
            return Ok(Verdict::Same);
        };
        if w.crypt.salt != [0; 8] {
            return Ok(Verdict::Same);
        }
        let plain = match Compression::from_u8(w.compression) {
            _ if w.compression == 0 => item.payload.clone(),
            None => return Err(item.invalid(format!("compression {}", w.compression))),
            Some(Compression::Off) => item.payload.clone(),
            Some(old) => unpacked(item, w, old)?,
        };
        let mut record = WriteRecord {
            compression: 0,
            compressed_size: 0,
            ..w.clone()
        };
        if kind != Compression::Off
            && let Some(n) = workspace.compress(kind, level, &plain, &mut packed, plain.len())
        {
            let size = n.next_multiple_of(512);
            if size < plain.len() {
                packed.truncate(n);
                packed.resize(size, 0);
                record.compression = kind.to_u8();
                record.compressed_size = size as u64;
                return Ok(Verdict::Changed(Record::Write(record), packed.clone()));
            }
        }
        Ok(Verdict::Changed(Record::Write(record), plain))
    })
}

/// The places of blocks in a stream, by snapshot, object and offset.
type Places = HashMap<(u64, u64, u64), u64>;

/// Replaces references to earlier blocks by the blocks. Returns how many there were.
///
/// # Errors
/// As [`decompress_named`]; or a reference to a missing block.
pub fn redup<F: Read + Seek>(mut input: F, out: impl Write) -> StreamResult<u64> {
    let io = |at: u64| move |e: std::io::Error| StreamError::io(at, &e);
    let places = places_of(&mut input)?;
    input.seek(SeekFrom::Start(0)).map_err(io(0))?;
    let mut second = input;
    let mut writer = StreamWriter::new(out);
    let mut replaced = 0;
    let mut at = 0u64;
    let mut in_front = false;
    loop {
        second.seek(SeekFrom::Start(at)).map_err(io(at))?;
        let Some(item) = record_at(&mut second, at)? else {
            break;
        };
        at += (HEADER + item.payload.len()) as u64;
        match &item.record {
            Record::Begin(b) => {
                in_front = b.header() == Header::Package;
                let word = b.features() & !(features::DEDUP | features::DEDUPPROPS);
                let begin = Begin {
                    version_info: Begin::version_word(b.header(), word),
                    ..b.clone()
                };
                writer.record(&Record::Begin(begin), &item.payload)?;
            }
            Record::End { checksum, to_guid } => {
                if *checksum == [0; 4] && *to_guid == 0 {
                    writer.bare(&item.record)?;
                } else if in_front {
                    let checksum = writer.sums();
                    writer.bare(&Record::End {
                        checksum,
                        to_guid: *to_guid,
                    })?;
                } else {
                    writer.end(*to_guid)?;
                }
            }
            Record::WriteByref(r) => {
                let (w, payload) = referred(&mut second, &places, r, &item)?;
                replaced += 1;
                let write = WriteRecord {
                    object: r.object,
                    offset: r.offset,
                    to_guid: r.to_guid,
                    ..w
                };
                writer.record(&Record::Write(write), &payload)?;
            }
            record => writer.record(record, &item.payload)?,
        }
    }
    writer.flush()?;
    Ok(replaced)
}

/// Finds the places of blocks: a first pass over the headers.
fn places_of<F: Read + Seek>(input: &mut F) -> StreamResult<Places> {
    let mut places = Places::new();
    let mut reader = StreamReader::new(input);
    while let Some(item) = reader.next_record()? {
        if let Record::Write(w) = &item.record {
            places.insert((w.to_guid, w.object, w.offset), item.offset);
        }
        reader.recycle(item.payload);
    }
    Ok(places)
}

/// The block that a reference points to.
fn referred<F: Read + Seek>(
    input: &mut F,
    places: &Places,
    r: &ByrefRecord,
    item: &Item,
) -> StreamResult<(WriteRecord, Vec<u8>)> {
    let place = places
        .get(&(r.ref_guid, r.ref_object, r.ref_offset))
        .filter(|p| **p < item.offset)
        .ok_or_else(|| item.invalid("a reference to a block that was not sent"))?;
    input
        .seek(SeekFrom::Start(*place))
        .map_err(|e| StreamError::io(*place, &e))?;
    let Some(Item {
        record: Record::Write(w),
        payload,
        ..
    }) = record_at(input, *place)?
    else {
        return Err(item.invalid("a reference to something else than a block"));
    };
    Ok((w, payload))
}

/// One record of a stream that was verified before.
fn record_at<F: Read>(input: &mut F, at: u64) -> StreamResult<Option<Item>> {
    let mut header = [0; HEADER];
    let mut have = 0;
    while have < HEADER {
        match input.read(&mut header[have..]) {
            Ok(0) => return Ok(None),
            Ok(n) => have += n,
            // A signal interrupts a read, and the stream goes on.
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(StreamError::io(at, &e)),
        }
    }
    let flaw = |flaw| StreamError::Flaw {
        record: 0,
        offset: at,
        flaw,
    };
    let record = Record::parse(&header, ByteOrder::Little).map_err(flaw)?;
    let len = record.payload_len().map_err(flaw)?;
    let mut payload = Vec::new();
    input
        .take(len as u64)
        .read_to_end(&mut payload)
        .map_err(|e| StreamError::io(at, &e))?;
    if payload.len() < len {
        return Err(flaw(Flaw::Truncated));
    }
    Ok(Some(Item {
        number: 0,
        offset: at,
        record,
        payload,
        tail: [0; 4],
    }))
}

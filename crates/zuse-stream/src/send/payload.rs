//! Turns a batch of events into finished headers and payloads: reads, decompresses, and chooses
//! each payload's form.

use std::sync::Arc;
use zuse_base::cut::fit32;

use zuse_base::{ByteOrder, Error, Result};
use zuse_codec::{ChecksumKind, Compression};
use zuse_format::dnode::SLOTS_PER_BLOCK;
use zuse_format::{BlockPointer, BpKind, object_type};
use zuse_io::{Block, CryptParams, DatasetKey, Pipeline, StoredRun};

use crate::features;
use crate::record::{
    Crypt, EmbeddedRecord, HEADER, RAW_BYTESWAP, Record, SpillRecord, WriteRecord,
};
use crate::send::walk::{Event, OLD_MAX_BLOCK};

/// Bytes of one record's payload, in place.
pub(crate) enum Payload {
    None,
    /// Stored bytes of a block of the batch's run.
    Stored(usize),
    /// A part of a decoded block.
    Block(Arc<Block>, usize, usize),
    Bytes(Vec<u8>),
}

/// A batch that lacks only the running checksum.
pub(crate) struct Made {
    pub headers: Vec<[u8; HEADER]>,
    payloads: Vec<Payload>,
    run: StoredRun,
    /// Where to continue after this batch: object and offset of its last block.
    pub last: Option<(u64, u64)>,
    /// Blocks in it.
    pub blocks: u64,
}

impl Made {
    /// The payload of a record.
    pub fn payload(&self, index: usize) -> &[u8] {
        match self.payloads.get(index) {
            Some(Payload::Stored(i)) => self.run.get(*i),
            Some(Payload::Block(block, from, to)) => block.bytes().get(*from..*to).unwrap_or(&[]),
            Some(Payload::Bytes(bytes)) => bytes,
            Some(Payload::None) | None => &[],
        }
    }
}

/// The options that decide the form of payloads.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub features: u64,
    pub to_guid: u64,
    /// An encrypted dataset is sent in clear.
    pub in_clear: bool,
    /// Blocks are read through the cache too.
    pub through_cache: bool,
}

impl Form {
    fn has(self, feature: u64) -> bool {
        self.features & feature != 0
    }

    fn splits(self, bp: &BlockPointer) -> bool {
        bp.lsize() > OLD_MAX_BLOCK && !self.has(features::LARGE_BLOCKS)
    }

    /// Whether a block is sent in its stored form.
    fn as_stored(self, object_type: u8, bp: &BlockPointer) -> bool {
        if bp.kind() != BpKind::Normal {
            return false;
        }
        if self.has(features::RAW) {
            return true;
        }
        // The receiver stores such a block as it is.
        let is_compressed = bp.compression() != Compression::Off.to_u8();
        let is_as_here = bp.byte_order() == ByteOrder::Little && !self.splits(bp);
        self.has(features::COMPRESSED)
            && is_compressed
            && is_as_here
            && !object_type::is_metadata(object_type)
    }

    fn as_embedded(self, bp: &BlockPointer) -> bool {
        let compression = bp.compression();
        self.has(features::EMBED_DATA)
            && bp.kind() == BpKind::Embedded
            // 15 is lz4, and 16 is zstd: the stream must say that it has them.
            && (compression < 15 || self.has(features::LZ4))
            && (compression != 16 || self.has(features::ZSTD))
    }
}

struct Maker<'a> {
    io: &'a Pipeline,
    key: Option<&'a DatasetKey>,
    form: Form,
    out: Made,
}

/// The bytes of a data block.
enum Got {
    Stored(usize),
    Decoded(Arc<Block>),
}

/// Makes a batch.
///
/// # Errors
/// A block cannot be read; `name` is for the message.
pub(crate) fn make(
    io: &Pipeline,
    key: Option<&DatasetKey>,
    form: Form,
    name: &str,
    events: Vec<Event>,
) -> Result<Made> {
    let mut wanted = Vec::new();
    let mut objects = Vec::new();
    let mut got: Vec<Option<Got>> = Vec::with_capacity(events.len());
    for event in &events {
        let (object, object_type, bp) = match event {
            Event::Data {
                object,
                object_type,
                bp,
                ..
            } => (*object, *object_type, bp),
            Event::Spill { object, bp, .. } => (*object, object_type::SA, bp),
            _ => {
                got.push(None);
                continue;
            }
        };
        if bp.kind() != BpKind::Normal {
            got.push(None);
            continue;
        }
        if form.through_cache && !form.has(features::RAW) {
            io.read_keyed(bp, key, &format!("{name}, object {object}, a data block"))?;
        }
        let as_stored = form.as_stored(object_type, bp);
        // A cached block is decoded: useless where the stored form is sent, if that differs.
        if (!as_stored || Pipeline::is_stored_plain(bp))
            && let Some(block) = io.peek(bp)
        {
            got.push(Some(Got::Decoded(block)));
            continue;
        }
        got.push(Some(Got::Stored(wanted.len())));
        wanted.push(*bp);
        objects.push(object);
    }
    let place = |i: usize| {
        let object = objects.get(i).copied().unwrap_or(0);
        format!("{name}, object {object}, a data block")
    };
    let run = io.read_stored_run(&wanted, &place)?;
    let mut maker = Maker {
        io,
        key,
        form,
        out: Made {
            headers: Vec::with_capacity(events.len()),
            payloads: Vec::with_capacity(events.len()),
            run,
            last: None,
            blocks: 0,
        },
    };
    for (event, got) in events.into_iter().zip(got) {
        maker.event(name, event, got)?;
    }
    Ok(maker.out)
}

impl Maker<'_> {
    fn put(&mut self, record: &Record, payload: Payload) {
        let mut header = [0; HEADER];
        record.write(&mut header, ByteOrder::Little);
        self.out.headers.push(header);
        self.out.payloads.push(payload);
    }

    fn event(&mut self, name: &str, event: Event, got: Option<Got>) -> Result<()> {
        let to_guid = self.form.to_guid;
        match event {
            Event::Object(record, bonus) => {
                self.out.last = Some((record.object, 0));
                let record = Record::Object(crate::record::ObjectRecord { to_guid, ..*record });
                self.put(&record, Payload::Bytes(bonus));
            }
            Event::Range { first, bp } => {
                let record = Record::ObjectRange {
                    first,
                    slots: SLOTS_PER_BLOCK as u64,
                    to_guid,
                    flags: turned(&bp),
                    crypt: crypt_of(&bp),
                };
                self.put(&record, Payload::None);
            }
            Event::FreeObjects { first, count } => {
                let record = Record::FreeObjects {
                    first,
                    count,
                    to_guid,
                };
                self.put(&record, Payload::None);
            }
            Event::Free {
                object,
                offset,
                length,
            } => {
                let record = Record::Free {
                    object,
                    offset,
                    length,
                    to_guid,
                };
                self.put(&record, Payload::None);
            }
            Event::Redact {
                object,
                offset,
                length,
            } => {
                let record = Record::Redact {
                    object,
                    offset,
                    length,
                    to_guid,
                };
                self.put(&record, Payload::None);
            }
            Event::Spill { object, flags, bp } => {
                self.spill(name, object, flags, &bp, got)?;
            }
            Event::Data {
                object,
                object_type,
                offset,
                bp,
            } => {
                self.out.blocks += 1;
                self.out.last = Some((object, offset));
                self.data(name, object, object_type, offset, &bp, got)?;
            }
        }
        Ok(())
    }

    fn spill(
        &mut self,
        name: &str,
        object: u64,
        flags: u8,
        bp: &BlockPointer,
        got: Option<Got>,
    ) -> Result<()> {
        let to_guid = self.form.to_guid;
        let place = format!("{name}, object {object}, spill block");
        // OpenZFS sends an embedded one as WRITE_EMBEDDED, and its receivers write that over the
        // object's data. They lose the spill block, and reading the file crashes their kernel.
        // SPILL is right for all receivers.
        if self.form.has(features::RAW)
            && let Some(Got::Stored(i)) = got
        {
            let record = Record::Spill(SpillRecord {
                object,
                length: bp.lsize(),
                to_guid,
                flags: flags | turned(bp),
                compression: bp.compression(),
                compressed_size: bp.psize(),
                crypt: crypt_of(bp),
                object_type: 0,
            });
            self.put(&record, Payload::Stored(i));
            return Ok(());
        }
        let block = self.decoded(bp, got, &place)?;
        let record = Record::Spill(SpillRecord {
            object,
            length: bp.lsize(),
            to_guid,
            flags,
            ..SpillRecord::default()
        });
        let len = block.bytes().len();
        self.put(&record, Payload::Block(block, 0, len));
        Ok(())
    }

    fn decoded(&self, bp: &BlockPointer, got: Option<Got>, place: &str) -> Result<Arc<Block>> {
        match got {
            Some(Got::Decoded(block)) => Ok(block),
            Some(Got::Stored(i)) => {
                let stored = self.out.run.get(i);
                let bytes = match self.key {
                    None => self.io.decode_stored(bp, stored, &place)?,
                    Some(key) => {
                        let opened = self.io.decrypt_stored(bp, key, stored, &place)?;
                        self.io.decode_stored(bp, &opened, &place)?
                    }
                };
                Ok(Arc::new(Block::new(bytes)))
            }
            None => self.io.read_uncached_keyed(bp, self.key, &place),
        }
    }

    fn data(
        &mut self,
        name: &str,
        object: u64,
        object_type: u8,
        offset: u64,
        bp: &BlockPointer,
        got: Option<Got>,
    ) -> Result<()> {
        let place = || format!("{name}, object {object}, offset {offset}");
        let to_guid = self.form.to_guid;
        if self.form.as_embedded(bp) {
            return self.embedded(name, object, offset, bp);
        }
        let mut write = WriteRecord {
            object,
            object_type: object_type.into(),
            offset,
            logical_size: bp.lsize(),
            to_guid,
            checksum_type: 2,
            ..WriteRecord::default()
        };
        if bp.kind() == BpKind::Normal && !self.form.splits(bp) && !self.form.in_clear {
            keyed(&mut write, bp);
        }
        if self.form.as_stored(object_type, bp) {
            return self.stored(write, bp, got, &place);
        }
        // A block that is stored uncompressed needs no buffer of its own.
        if let Some(Got::Stored(i)) = got
            && Pipeline::is_stored_plain(bp)
            && !self.form.splits(bp)
            && self.key.is_none()
        {
            self.put(&Record::Write(write), Payload::Stored(i));
            return Ok(());
        }
        let block = self.decoded(bp, got, &place())?;
        let size = block.bytes().len();
        if !self.form.splits(bp) {
            self.put(&Record::Write(write), Payload::Block(block, 0, size));
            return Ok(());
        }
        let step = OLD_MAX_BLOCK as usize;
        for from in (0..size).step_by(step) {
            let to = (from + step).min(size);
            let piece = WriteRecord {
                offset: offset + from as u64,
                logical_size: (to - from) as u64,
                ..write.clone()
            };
            self.put(
                &Record::Write(piece),
                Payload::Block(block.clone(), from, to),
            );
        }
        Ok(())
    }

    /// Sends an embedded block.
    fn embedded(&mut self, name: &str, object: u64, offset: u64, bp: &BlockPointer) -> Result<()> {
        let place = || format!("{name}, object {object}, offset {offset}");
        let to_guid = self.form.to_guid;
        let (bytes, len) = bp.embedded_payload().map_err(|e| e.at(place()))?;
        let padded = bytes.get(..len.next_multiple_of(8)).unwrap_or(&bytes);
        let record = Record::WriteEmbedded(EmbeddedRecord {
            object,
            offset,
            length: bp.lsize(),
            to_guid,
            compression: bp.compression(),
            embedded_type: 0,
            lsize: fit32(bp.lsize()),
            psize: fit32(len),
        });
        self.put(&record, Payload::Bytes(padded.to_vec()));
        Ok(())
    }

    /// Sends a block in its stored form.
    fn stored(
        &mut self,
        mut write: WriteRecord,
        bp: &BlockPointer,
        got: Option<Got>,
        place: &dyn Fn() -> String,
    ) -> Result<()> {
        write.compression = bp.compression();
        write.compressed_size = bp.psize();
        let Some(Got::Stored(i)) = got else {
            return Err(Error::corrupt(place(), "a stored block was not read"));
        };
        if self.form.has(features::RAW) {
            write.flags |= turned(bp);
            write.crypt = crypt_of(bp);
        }
        let payload = match self.key {
            None => Payload::Stored(i),
            // Only a raw stream leaves the system encrypted.
            Some(key) => {
                let stored = self.out.run.get(i);
                Payload::Bytes(self.io.decrypt_stored(bp, key, stored, &place())?)
            }
        };
        self.put(&Record::Write(write), payload);
        Ok(())
    }
}

/// The flag of a block that is in the other byte order than the stream.
fn turned(bp: &BlockPointer) -> u8 {
    match bp.byte_order() {
        ByteOrder::Little => 0,
        ByteOrder::Big => RAW_BYTESWAP,
    }
}

fn crypt_of(bp: &BlockPointer) -> Crypt {
    let of = CryptParams::of(bp);
    Crypt {
        salt: of.salt,
        iv: of.iv,
        mac: of.mac,
    }
}

/// Adds the checksum of its block to a record.
fn keyed(write: &mut WriteRecord, bp: &BlockPointer) {
    const SIZES_AND_COMPRESSION: u64 = (1 << 39) - 1;
    write.checksum_type = bp.checksum_kind();
    write.key = bp.checksum();
    write.key_prop = bp.words[6] & SIZES_AND_COMPRESSION | u64::from(bp.uses_crypt()) << 39;
    if ChecksumKind::from_u8(bp.checksum_kind()).is_some_and(ChecksumKind::is_dedup_capable) {
        write.flags |= 1;
    }
}

/// Bytes of stream for an event.
pub(crate) fn size_of(form: Form, event: &Event) -> u64 {
    let header = HEADER as u64;
    match event {
        Event::Object(_, bonus) => header + bonus.len() as u64,
        Event::Spill { bp, .. } if form.has(features::RAW) => header + bp.psize(),
        Event::Spill { bp, .. } => header + bp.lsize(),
        Event::Data {
            object_type, bp, ..
        } => {
            if form.as_embedded(bp) {
                header + bp.embedded_len().next_multiple_of(8) as u64
            } else if form.as_stored(*object_type, bp) {
                header + bp.psize()
            } else if form.splits(bp) {
                bp.lsize() + header * bp.lsize().div_ceil(OLD_MAX_BLOCK)
            } else {
                header + bp.lsize()
            }
        }
        _ => header,
    }
}

//! Applying records to an object set.
//!
//! A batch is one transaction, begun when the batch is complete, so no txg is held open while
//! waiting for input. Sometimes an object has to be freed on disk before its number can be reused.
//! Then the transaction ends, the thread waits for the txg, and a new transaction begins.

use std::sync::Arc;
use zuse_base::cut::{fit16, fit32};

use zuse_base::{ByteOrder, Errno, Error, ObjectId, Result};
use zuse_codec::{ChecksumKind, Compression};
use zuse_dmu::{CompletePart, Dnode, DnodeSpec, Objset, RawForm, StoredBlock, Tx, is_for_objects};
use zuse_dsl::{Estimate, ReceiveProgress, Receiving};
use zuse_format::dnode::{SLOTS_PER_BLOCK, block_pointers_for};
use zuse_format::object_type;

use crate::reader::Item;
use crate::receive::demands::Demands;
use crate::receive::parse::{BATCH_BYTES, Batch, is_packed, unpack_into};
use crate::record::{OBJECT_SPILL, ObjectRecord, Record, SPILL_UNMODIFIED, WriteRecord};

/// Objects freed in one transaction.
const FREES_AT_ONCE: u32 = 256;
/// Largest bonus and number of slots of a dnode: checked by the dnode itself, bounded here before
/// anything is created.
const SLOTS_MAX: u8 = 32;

pub(crate) struct Applier<'a> {
    pub(super) receiving: &'a Receiving,
    pub(super) os: Arc<Objset>,
    /// Offset in the input where the substream's records begin.
    start: u64,
    /// Bytes received by earlier attempts.
    before: u64,
    /// The stream has no source, so differing content is replaced.
    full: bool,
    /// OBJECT says whether there is a spill block.
    spill_flags: bool,
    /// Highest object number that the stream has created.
    highest: u64,
    /// Last WRITE: they come in order.
    pub(super) last: (u64, u64),
    pub(super) tx: Option<Tx>,
    estimate: u64,
    /// Unpacked bytes of this transaction beyond the payloads.
    unpacked: u64,
    /// The object that was written last.
    pub(super) dnode: Option<Arc<Dnode>>,
    pub(super) progress: ReceiveProgress,
    /// First object of the block of dnodes that is being received raw, and how it is stored.
    pub(super) range: Option<(u64, RawForm)>,
    /// Byte order of the stream.
    pub(super) order: ByteOrder,
    /// How far the received data completes the object set.
    pub complete_part: CompletePart,
    demands: Demands,
}

/// Converts an error into one of the stream, with its place there.
pub(super) fn stream_error(item: &Item, error: Error) -> Error {
    match error {
        Error::Refused {
            errno: Errno::INVAL | Errno::NOENT | Errno::EXIST | Errno::NOTSUP,
            what,
            ..
        } => item.invalid(what).into(),
        other => other,
    }
}

impl<'a> Applier<'a> {
    pub fn new(
        receiving: &'a Receiving,
        start: u64,
        full: bool,
        spill_flags: bool,
        from: ReceiveProgress,
        order: ByteOrder,
    ) -> Result<Self> {
        Ok(Self {
            receiving,
            os: receiving.objset()?,
            start,
            before: from.bytes,
            full,
            spill_flags,
            highest: from.object,
            last: (0, 0),
            tx: None,
            estimate: 0,
            unpacked: 0,
            dnode: None,
            progress: from,
            range: None,
            order,
            complete_part: CompletePart::default(),
            demands: Demands::of(receiving)?,
        })
    }

    /// Applies a batch in order.
    pub fn batch(&mut self, batch: Batch) -> Result<()> {
        self.estimate = batch.bytes + 1024 * batch.items.len() as u64;
        self.unpacked = 0;
        let end = batch.end;
        let result = batch.items.into_iter().try_for_each(|item| {
            let record = item.record.clone();
            self.item(item)?;
            self.note_received(&record);
            Ok(())
        });
        if result.is_ok() {
            // Where a resume continues: only complete batches count, because a txg may split a
            // batch.
            self.progress.bytes = self.before + (end - self.start);
            let progress = self.progress;
            let tx = self.begin()?;
            // In the transaction of the batch's last record: the token on disk is never ahead of
            // the objects.
            self.receiving.note(&tx, progress);
            self.tx = Some(tx);
        }
        self.tx = None;
        result
    }

    /// The stream is complete. For a full one on top of another snapshot, objects after its last
    /// one belong to the old content.
    pub fn ended(&mut self) -> Result<()> {
        // A full stream on top of something: objects after its last one belong to the old content.
        if self.full && self.receiving.is_on_top()? {
            let from = self.highest.saturating_add(1);
            self.free_objects(from, u64::MAX - from)?;
            self.tx = None;
        }
        Ok(())
    }

    pub(super) fn begin(&mut self) -> Result<Tx> {
        match self.tx.take() {
            Some(tx) => Ok(tx),
            None => self.receiving.dataset().begin(Estimate {
                write_bytes: self.estimate,
                frees: false,
            }),
        }
    }

    /// Called before a block is unpacked beyond its size in the stream. A batch is as long as its
    /// payloads, but unpacked data may be ten thousand times larger. So transactions end after some
    /// of it, and the next one is admitted or waits.
    fn make_room(&mut self, bytes: u64) {
        self.unpacked += bytes;
        // The estimate was of packed bytes. If it unpacks to more, it takes several transactions.
        if self.unpacked > BATCH_BYTES {
            self.unpacked = bytes;
            self.tx = None;
        }
        self.estimate = self.estimate.max(bytes);
    }

    /// Ends the transaction and waits until freed objects are gone from disk.
    pub(super) fn wait_for_frees(&mut self) -> Result<()> {
        self.dnode = None;
        // A txg with an open transaction never syncs.
        self.tx = None;
        self.receiving.wait()
    }

    fn note_received(&mut self, record: &Record) {
        match record {
            Record::Object(o) => self
                .complete_part
                .dnode(o.object, o.flags & OBJECT_SPILL != 0),
            Record::FreeObjects { first, count, .. } => {
                self.complete_part.no_objects(*first, *count)
            }
            Record::Write(w) => {
                let end = w.offset.saturating_add(w.logical_size);
                self.complete_part.data(w.object, end);
            }
            Record::WriteEmbedded(e) if e.is_spill() => self.complete_part.spill(e.object),
            Record::WriteEmbedded(e) => self
                .complete_part
                .data(e.object, e.offset.saturating_add(e.length)),
            Record::Spill(s) => self.complete_part.spill(s.object),
            _ => {}
        }
    }

    fn item(&mut self, mut item: Item) -> Result<()> {
        // Before anything of the record is done.
        self.demands.check(&item)?;
        if let Record::Object(record) = &item.record {
            self.highest = self.highest.max(record.object);
        }
        // Raw records are stored unchanged: their content cannot be read here.
        if self.receiving.is_raw() {
            return self.raw_item(item);
        }
        let payload = std::mem::take(&mut item.payload);
        match item.record.clone() {
            Record::Object(record) => {
                self.object(&item, &record, &payload)?;
                self.progress.object = record.object;
                self.progress.offset = 0;
                Ok(())
            }
            Record::FreeObjects { first, count, .. } => self.free_objects(first, count),
            Record::Free {
                object,
                offset,
                length,
                ..
            }
            | Record::Redact {
                object,
                offset,
                length,
                ..
            } => self.free(&item, object, offset, length),
            Record::Write(w) => {
                let (object, offset) = (w.object, w.offset);
                self.write(&item, &w, payload)?;
                // Set afterwards: a resume asks the sender for the records after this one.
                (self.progress.object, self.progress.offset) = (object, offset);
                Ok(())
            }
            Record::WriteEmbedded(e) if e.is_spill() => {
                let dnode = self.open(&item, e.object)?;
                self.spill(&item, &dnode, payload)
            }
            Record::WriteEmbedded(e) => {
                let (object, offset) = (e.object, e.offset);
                let w = WriteRecord {
                    object,
                    offset,
                    logical_size: e.length,
                    ..WriteRecord::default()
                };
                self.write(&item, &w, payload)?;
                (self.progress.object, self.progress.offset) = (object, offset);
                Ok(())
            }
            Record::Spill(s) => {
                // The sender says that the existing one is right. Older senders do not set the
                // flag.
                if s.flags & SPILL_UNMODIFIED != 0 && self.spill_flags {
                    let has = self.open(&item, s.object)?.has_spill();
                    if has {
                        return Ok(());
                    }
                }
                let dnode = self.open(&item, s.object)?;
                self.spill(&item, &dnode, payload)
            }
            _ => Err(item.invalid("a record that does not belong here").into()),
        }
    }

    fn spill(&mut self, item: &Item, dnode: &Dnode, bytes: Vec<u8>) -> Result<()> {
        let tx = self.begin()?;
        let done = dnode.set_spill(&tx, Some(bytes));
        self.tx = Some(tx);
        done.map_err(|e| stream_error(item, e))
    }

    /// An object that must exist.
    pub(super) fn open(&mut self, item: &Item, object: u64) -> Result<Arc<Dnode>> {
        if let Some(dnode) = &self.dnode
            && dnode.object().0 == object
            && dnode.exists()
        {
            return Ok(dnode.clone());
        }
        let dnode = self
            .os
            .dnode(ObjectId(object))
            .map_err(|e| stream_error(item, e))?;
        self.dnode = Some(dnode.clone());
        Ok(dnode)
    }

    fn write(&mut self, item: &Item, w: &WriteRecord, bytes: Vec<u8>) -> Result<()> {
        // A resume continues from the last place, so a stream that goes back could not be resumed.
        if (w.object, w.offset) < self.last {
            return Err(item.invalid("blocks are not in order").into());
        }
        self.last = (w.object, w.offset);
        let dnode = self.open(item, w.object)?;
        let size = u64::from(dnode.block_size());
        let whole = w.logical_size == size && w.offset.is_multiple_of(size.max(1));
        let packed = is_packed(w);
        let as_stored = packed
            && whole
            && bytes.len().is_multiple_of(512)
            && (bytes.len() as u64) < size
            // Metadata may have to be byte-swapped, and is compressed by the pool's own settings.
            && !object_type::is_metadata(dnode.object_type());
        let bytes = match packed && !as_stored {
            true => {
                self.make_room(w.logical_size);
                let mut out = Vec::new();
                unpack_into(item, w, &bytes, &mut out)?;
                out
            }
            false => bytes,
        };
        let tx = self.begin()?;
        let done = if as_stored {
            let block = StoredBlock {
                bytes,
                logical_size: fit32(size),
                compression: w.compression,
                crypt: None,
            };
            dnode.write_stored(&tx, w.offset / size, block)
        } else if whole {
            dnode.write_block(&tx, w.offset / size, bytes)
        } else {
            // The block size differs from the sender's: the block is written in parts.
            dnode.write_at(&tx, w.offset, &bytes)
        };
        self.tx = Some(tx);
        done.map_err(|e| stream_error(item, e))
    }

    fn free(&mut self, item: &Item, object: u64, offset: u64, length: u64) -> Result<()> {
        let dnode = self.open(item, object)?;
        let size = u64::from(dnode.block_size()).max(1);
        // There is nothing to free: true for most tails.
        if offset / size > dnode.max_block() || length == 0 {
            return Ok(());
        }
        let tx = self.begin()?;
        let done = dnode.free_range(&tx, offset, length);
        self.tx = Some(tx);
        done.map_err(|e| stream_error(item, e))
    }

    pub(super) fn free_objects(&mut self, first: u64, count: u64) -> Result<()> {
        let end = first.saturating_add(count);
        // From hole to hole: the range may include all possible numbers.
        let mut at = first.saturating_sub(1);
        let mut done = 0;
        while let Some(next) = self.os.next_object(ObjectId(at))? {
            if next.0 >= end {
                break;
            }
            at = next.0;
            if next.0 == 0 {
                continue;
            }
            let tx = self.begin()?;
            let freed = self.os.free(&tx, next);
            done += 1;
            // Many frees are many small changes, which need not be in one transaction.
            if done % FREES_AT_ONCE != 0 {
                self.tx = Some(tx);
            }
            match freed {
                Err(e) if !e.is(Errno::NOENT) => return Err(e),
                _ => {}
            }
        }
        self.dnode = None;
        Ok(())
    }

    fn object(&mut self, item: &Item, record: &ObjectRecord, bonus: &[u8]) -> Result<()> {
        let spec = spec_of(item, record, false)?;
        let object = ObjectId(record.object);
        self.dnode = None;
        let there = match self.os.dnode(object) {
            Ok(dnode) => Some(dnode),
            Err(e) if e.is(Errno::NOENT) => None,
            Err(e) => return Err(stream_error(item, e)),
        };
        let dnode = match there {
            Some(dnode) if self.can_stay(&dnode, record, &spec) => {
                self.reclaim(item, &dnode, record, &spec, bonus)?;
                dnode
            }
            Some(dnode) => {
                drop(dnode);
                let tx = self.begin()?;
                let freed = self.os.free(&tx, object);
                self.tx = Some(tx);
                freed?;
                // Its dnode may have another size now: the slots must be free on disk first.
                self.wait_for_frees()?;
                self.allocate(item, object, &spec)?
            }
            None => self.allocate(item, object, &spec)?,
        };
        let tx = self.begin()?;
        let done = (|| {
            // The sender's object has none any more. An old sender does not say so, and then it
            // stays.
            if dnode.has_spill() && self.spill_flags && record.flags & OBJECT_SPILL == 0 {
                dnode.set_spill(&tx, None)?;
            }
            dnode.set_bonus(&tx, bonus)
        })();
        self.tx = Some(tx);
        done.map_err(|e| stream_error(item, e))?;
        self.dnode = Some(dnode);
        Ok(())
    }

    /// Whether an object can take a record without being recreated.
    fn can_stay(&self, dnode: &Dnode, record: &ObjectRecord, spec: &DnodeSpec) -> bool {
        let size = usize::from(spec.slots) * 512;
        let room = block_pointers_for(size, spec.bonus_type, usize::from(spec.bonus_len));
        let have = dnode.bonus_capacity();
        let spill = if record.flags & OBJECT_SPILL != 0 {
            128
        } else {
            0
        };
        dnode.slots() == spec.slots && room >= 1 && usize::from(spec.bonus_len) + spill <= have
    }

    fn reclaim(
        &mut self,
        item: &Item,
        dnode: &Arc<Dnode>,
        record: &ObjectRecord,
        spec: &DnodeSpec,
        bonus: &[u8],
    ) -> Result<()> {
        let old = dnode.block_size();
        let plain = |kind: u8| matches!(kind, object_type::PLAIN_FILE_CONTENTS | object_type::ZVOL);
        let tx = self.begin()?;
        let done = (|| {
            if old != record.block_size {
                let one_file = plain(dnode.object_type()) && plain(spec.object_type);
                let is_volume = dnode.object_type() == object_type::ZVOL;
                let grows = !self.full && one_file && (dnode.max_block() > 0 || is_volume);
                if grows && same_generation(dnode, spec.bonus_type, bonus) {
                    // The sender switched to large blocks: the old size stays, of a volume too.
                    if record.block_size < old {
                        return Err(Error::refused(
                            Errno::INVAL,
                            format!("object {} shrinks its blocks", record.object),
                        ));
                    }
                } else {
                    // Another file with this number, or one that shrank: the stream has its blocks
                    // again.
                    dnode.free_blocks(&tx, 0, u64::MAX)?;
                    dnode.set_block_size(&tx, record.block_size)?;
                }
            }
            if dnode.object_type() != spec.object_type {
                dnode.set_type(&tx, spec.object_type)?;
            }
            if dnode.bonus_type() != spec.bonus_type {
                dnode.set_bonus_type(&tx, spec.bonus_type)?;
            }
            Ok(())
        })();
        self.tx = Some(tx);
        done.map_err(|e| stream_error(item, e))
    }

    pub(super) fn allocate(
        &mut self,
        item: &Item,
        object: ObjectId,
        spec: &DnodeSpec,
    ) -> Result<Arc<Dnode>> {
        let slots = u64::from(spec.slots);
        if slots > 1 {
            // Objects in the slots of the larger dnode. The sender has none there.
            self.free_objects(object.0 + 1, slots - 1)?;
        }
        for attempt in 0..2 {
            let tx = self.begin()?;
            let made = self.os.allocate_at(&tx, object, spec);
            self.tx = Some(tx);
            match made {
                Ok(dnode) => return Ok(dnode),
                // Objects freed in this txg or the one before are still on disk.
                Err(e) if e.is(Errno::EXIST) && attempt == 0 => self.wait_for_frees()?,
                Err(e) => return Err(stream_error(item, e)),
            }
        }
        Err(item
            .invalid(format!("object {} is inside another one", object.0))
            .into())
    }
}

/// Whether the bonus of a record belongs to the same file as the object, not to a later one with
/// its number.
fn same_generation(dnode: &Dnode, bonus_type: u8, bonus: &[u8]) -> bool {
    // A volume is one object for ever.
    if dnode.object_type() == object_type::ZVOL {
        return true;
    }
    let kind = dnode.bonus_type();
    let old = dnode.with_bonus(|b| generation(kind, b));
    old.is_some() && old == generation(bonus_type, bonus)
}

/// A file's generation: after mode and size in system attributes, after the times in an old znode.
fn generation(bonus_type: u8, bonus: &[u8]) -> Option<u64> {
    const SA_MAGIC: u32 = 0x2F_505A;
    let at = match bonus_type {
        object_type::SA => {
            let magic = u32::from_le_bytes(bonus.get(..4)?.try_into().ok()?);
            let layout = u16::from_le_bytes(bonus.get(4..6)?.try_into().ok()?);
            if magic != SA_MAGIC {
                return None;
            }
            usize::from(layout >> 10) * 8 + 16
        }
        object_type::ZNODE => 64,
        _ => return None,
    };
    Some(u64::from_le_bytes(bonus.get(at..at + 8)?.try_into().ok()?))
}

pub(super) fn spec_of(item: &Item, record: &ObjectRecord, raw: bool) -> Result<DnodeSpec> {
    let bad = |what: String| Error::from(item.invalid(what));
    let kind = |number: u32, zero: bool| {
        u8::try_from(number)
            .ok()
            .filter(|t| object_type::is_valid(*t) && (zero || *t != 0))
            .ok_or_else(|| bad(format!("object type {number}")))
    };
    let slots = record.slots.max(1);
    let size = record.block_size;
    if !(512..=16 << 20).contains(&size) || !size.is_multiple_of(512) {
        return Err(bad(format!("blocks of {size} bytes")));
    }
    let in_block = record.object % SLOTS_PER_BLOCK as u64;
    if slots > SLOTS_MAX || in_block + u64::from(slots) > SLOTS_PER_BLOCK as u64 {
        return Err(bad(format!("a dnode of {slots} slots")));
    }
    let spill = if record.flags & OBJECT_SPILL != 0 {
        128
    } else {
        0
    };
    let room = u32::from(slots) * 512 - 64 - 128 - spill;
    if record.bonus_len > room {
        return Err(bad(format!("a bonus of {} bytes", record.bonus_len)));
    }
    let sums = ChecksumKind::from_u8(record.checksum).is_some_and(is_for_objects);
    let packs = Compression::from_u8(record.compress).is_some_and(|c| c != Compression::Empty);
    if !sums || !packs {
        return Err(bad("an unknown checksum or compression".into()));
    }
    if !raw && (record.raw_bonus_len != 0 || record.indirect_shift != 0 || record.levels != 0) {
        return Err(bad("raw fields in a stream that is not raw".into()));
    }
    let mut spec = DnodeSpec::new(kind(record.object_type, false)?)
        .block_size(size)
        .slots(slots)
        .compress(record.compress)
        .bonus(kind(record.bonus_type, true)?, fit16(record.bonus_len));
    spec.checksum = record.checksum;
    Ok(spec)
}

//! Applying the records of a raw stream: everything is stored as ciphertext, and cannot be read
//! here.
//!
//! Invariants for records from any source: a record that breaks one is refused
//! - Before a dnode changes, the salt, IV and MAC of its block (the last OBJECT_RANGE) are noted in
//!   the same txg. Records come in object order, so the last range is that of every changed object.
//! - Sizes, levels and the highest block of an object stay as in its OBJECT record, because MACs
//!   cover them.

use std::sync::Arc;
use zuse_base::cut::fit32;

use zuse_base::{ByteOrder, Error, ObjectId, Result};
use zuse_dmu::{Dnode, DnodeSpec, RawForm, RawShape, StoredBlock};
use zuse_format::dnode::SLOTS_PER_BLOCK;
use zuse_io::CryptParams;

use super::apply::{Applier, spec_of, stream_error};
use crate::reader::Item;
use crate::record::{Crypt, OBJECT_SPILL, ObjectRecord, RAW_BYTESWAP, Record, SPILL_UNMODIFIED};

/// The flag says that a block is not in the byte order of the stream.
fn form_of(stream: ByteOrder, flags: u8, crypt: &Crypt) -> RawForm {
    let turned = flags & RAW_BYTESWAP != 0;
    RawForm {
        order: if turned == (stream == ByteOrder::Big) {
            ByteOrder::Little
        } else {
            ByteOrder::Big
        },
        params: CryptParams {
            salt: crypt.salt,
            iv: crypt.iv,
            mac: crypt.mac,
        },
    }
}

impl Applier<'_> {
    pub(super) fn raw_item(&mut self, mut item: Item) -> Result<()> {
        let payload = std::mem::take(&mut item.payload);
        match item.record.clone() {
            Record::ObjectRange {
                first,
                flags,
                crypt,
                ..
            } => {
                self.range = Some((first, form_of(self.order, flags, &crypt)));
                Ok(())
            }
            Record::Object(record) => {
                self.raw_object(&item, &record, &payload)?;
                self.progress.object = record.object;
                self.progress.offset = 0;
                Ok(())
            }
            Record::FreeObjects { first, count, .. } => self.raw_free_objects(first, count),
            Record::Free {
                object,
                offset,
                length,
                ..
            } => self.raw_free(&item, object, offset, length),
            Record::Write(w) => {
                if (w.object, w.offset) < self.last {
                    return Err(item.invalid("blocks are not in order").into());
                }
                self.last = (w.object, w.offset);
                let dnode = self.open(&item, w.object)?;
                let size = u64::from(dnode.block_size());
                if w.logical_size != size
                    || !w.offset.is_multiple_of(size)
                    || w.object_type != u32::from(dnode.object_type())
                {
                    return Err(item
                        .invalid("a raw block that is none of its object")
                        .into());
                }
                let block = StoredBlock {
                    bytes: payload,
                    logical_size: fit32(size),
                    compression: w.compression,
                    crypt: Some(form_of(self.order, w.flags, &w.crypt)),
                };
                self.in_range(&item, w.object, |tx| {
                    dnode.write_stored(tx, w.offset / size, block)
                })?;
                (self.progress.object, self.progress.offset) = (w.object, w.offset);
                Ok(())
            }
            Record::Spill(s) => {
                let dnode = self.open(&item, s.object)?;
                // Sent for receivers that lost it with its object.
                if s.flags & SPILL_UNMODIFIED != 0 && dnode.has_spill() {
                    return Ok(());
                }
                let block = StoredBlock {
                    bytes: payload,
                    logical_size: fit32(s.length),
                    compression: s.compression,
                    crypt: Some(form_of(self.order, s.flags, &s.crypt)),
                };
                self.in_range(&item, s.object, |tx| dnode.set_spill_stored(tx, block))
            }
            _ => Err(item.invalid("a record that does not belong here").into()),
        }
    }

    /// Changes an object of the last OBJECT_RANGE.
    fn in_range(
        &mut self,
        item: &Item,
        object: u64,
        change: impl FnOnce(&zuse_dmu::Tx) -> Result<()>,
    ) -> Result<()> {
        let per = SLOTS_PER_BLOCK as u64;
        let (first, form) = self
            .range
            .filter(|(first, _)| object / per == *first / per)
            .ok_or_else(|| Error::from(item.invalid("an object outside its OBJECT_RANGE")))?;
        let tx = self.begin()?;
        self.os.note_dnode_block(&tx, first / per, form);
        let done = change(&tx);
        self.tx = Some(tx);
        done.map_err(|e| stream_error(item, e))
    }

    fn raw_object(&mut self, item: &Item, record: &ObjectRecord, room: &[u8]) -> Result<()> {
        let bad = |what: &str| Error::from(item.invalid(what));
        let spec = raw_spec(item, record, room)?;
        let object = ObjectId(record.object);
        self.dnode = None;
        let there = match self.os.dnode(object) {
            Ok(dnode) => Some(dnode),
            Err(e) if e.is(zuse_base::Errno::NOENT) => None,
            Err(e) => return Err(stream_error(item, e)),
        };
        let dnode = match there {
            Some(dnode) if can_stay(&dnode, record, &spec) => {
                let replaced = dnode.block_size() != spec.block_size;
                self.in_range(item, record.object, |tx| {
                    let from = if replaced {
                        0
                    } else {
                        record.max_block.saturating_add(1)
                    };
                    // The sender has none behind its last one, and MACs cover the number.
                    dnode.free_blocks_raw(tx, from, u64::MAX)
                })?;
                dnode
            }
            Some(dnode) => {
                drop(dnode);
                let os = self.os.clone();
                self.in_range(item, record.object, |tx| os.free(tx, object))?;
                self.wait_for_frees()?;
                self.raw_allocate(item, object, &spec)?
            }
            None => self.raw_allocate(item, object, &spec)?,
        };
        let shape = RawShape {
            levels: record.levels,
            max_block: record.max_block,
        };
        // A tree here never loses levels, and the sender's MAC covers their number.
        if dnode.levels() > record.levels {
            return Err(bad("an object that loses levels"));
        }
        self.in_range(item, record.object, |tx| {
            if dnode.has_spill() && record.flags & OBJECT_SPILL == 0 {
                dnode.set_spill(tx, None)?;
            }
            dnode.set_raw(tx, &spec, shape, room)
        })?;
        self.dnode = Some(dnode);
        Ok(())
    }

    fn raw_allocate(
        &mut self,
        item: &Item,
        object: ObjectId,
        spec: &DnodeSpec,
    ) -> Result<Arc<Dnode>> {
        let slots = u64::from(spec.slots);
        // An object that the sender has no more may stand in the other slots.
        if slots > 1 {
            self.raw_free_objects(object.0 + 1, slots - 1)?;
        }
        for attempt in 0..2 {
            let os = self.os.clone();
            let mut made = None;
            let done = self.in_range(item, object.0, |tx| {
                made = Some(os.allocate_at(tx, object, spec));
                Ok(())
            });
            done?;
            match made {
                Some(Ok(dnode)) => return Ok(dnode),
                // Slots freed in an open txg are free only when it is on disk.
                Some(Err(e)) if e.is(zuse_base::Errno::EXIST) && attempt == 0 => {
                    self.wait_for_frees()?
                }
                Some(Err(e)) => return Err(stream_error(item, e)),
                None => {}
            }
        }
        Err(item
            .invalid(format!("object {} is inside another one", object.0))
            .into())
    }

    /// Frees objects. Those of the last range's block use its salt, IV and MAC. A block without one
    /// becomes empty, or the stream names it before its next object.
    fn raw_free_objects(&mut self, first: u64, count: u64) -> Result<()> {
        let per = SLOTS_PER_BLOCK as u64;
        if let Some((start, form)) = self.range
            && first < start + per
            && start < first.saturating_add(count)
        {
            let tx = self.begin()?;
            self.os.note_dnode_block(&tx, start / per, form);
            self.tx = Some(tx);
        }
        self.free_objects(first, count)
    }

    fn raw_free(&mut self, item: &Item, object: u64, offset: u64, length: u64) -> Result<()> {
        let dnode = self.open(item, object)?;
        let size = u64::from(dnode.block_size()).max(1);
        let (first, count) = (offset / size, length.div_ceil(size));
        if first > dnode.max_block() || length == 0 {
            return Ok(());
        }
        if !offset.is_multiple_of(size) || length != u64::MAX && !length.is_multiple_of(size) {
            return Err(item.invalid("a part of a raw block cannot be freed").into());
        }
        self.in_range(item, object, |tx| dnode.free_blocks_raw(tx, first, count))
    }
}

/// Whether an object can take a raw record without being recreated.
fn can_stay(dnode: &Dnode, record: &ObjectRecord, spec: &DnodeSpec) -> bool {
    dnode.slots() == spec.slots
        && dnode.pointer_count() == spec.nblkptr
        && dnode.indirect_shift() == spec.indirect_shift
        && dnode.levels() <= record.levels
        && (dnode.block_size() == spec.block_size || dnode.levels() == 1)
}

/// Whether a record describes a block tree that a dnode can have, with its last block in it.
fn is_tree(record: &ObjectRecord, block_size: u32) -> bool {
    let pointers = u64::from(record.nblkptr);
    let shift = u32::from(record.indirect_shift);
    let in_bounds = (1..=3).contains(&pointers)
        && (12..=17).contains(&shift)
        && (1..=12).contains(&record.levels);
    // Bits of a block number below each pointer of the dnode.
    let reach = shift.saturating_sub(7) * u32::from(record.levels.saturating_sub(1));
    let blocks = u64::MAX / u64::from(block_size.max(1));
    in_bounds && reach <= 60 && record.max_block < blocks && record.max_block >> reach < pointers
}

fn raw_spec(item: &Item, record: &ObjectRecord, room: &[u8]) -> Result<DnodeSpec> {
    let bad = |what: String| Error::from(item.invalid(what));
    let mut spec = spec_of(item, record, true)?;
    let size = u64::from(spec.slots) * 512;
    let spill = if record.flags & OBJECT_SPILL != 0 {
        128
    } else {
        0
    };
    let pointers = u64::from(record.nblkptr);
    let fits_dnode = 64 + 128 * pointers + spill + room.len() as u64 <= size;
    if !fits_dnode || !is_tree(record, spec.block_size) {
        return Err(bad(format!(
            "a dnode of {} levels, {pointers} pointers and blocks up to {}",
            record.levels, record.max_block
        )));
    }
    spec.nblkptr = record.nblkptr;
    spec.indirect_shift = record.indirect_shift;
    Ok(spec)
}

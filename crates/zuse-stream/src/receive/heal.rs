//! Healing a snapshot with a stream of it (`zfs receive -c`): unreadable blocks are rewritten from
//! the stream.
//!
//! ```text
//!   WRITE ─► local pointer ─► reads well? next.  else: payload ─► stored form ─► checksum of the pointer? ─► written in place
//! ```
//! Only blocks of files and volumes are in WRITE records. Nothing else is read, and only bad blocks
//! are written.

use std::io::Read;
use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_codec::ZstdLevel;
use zuse_dmu::{Dnode, Objset};
use zuse_dsl::Dsl;
use zuse_format::{BlockPointer, BpKind};
use zuse_io::{CryptParams, DatasetKey, Pipeline};

use super::parse::{self, Batch, is_packed, unpack_into};
use super::{check_begin, check_raw, list_of};
use crate::features;
use crate::reader::{Item, StreamReader};
use crate::record::{Crypt, Record, WriteRecord};

/// The result of a healing receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Healing {
    /// Blocks of the stream that were checked.
    pub blocks: u64,
    /// Bad blocks that were healed.
    pub healed: u64,
    /// Bad blocks that the stream could not heal.
    pub bad: u64,
    /// Bytes of stream.
    pub bytes: u64,
}

struct Healer {
    os: Arc<Objset>,
    io: Arc<Pipeline>,
    key: Option<Arc<DatasetKey>>,
    /// Blocks are in their stored form, encrypted.
    raw: bool,
    level: ZstdLevel,
    dnode: Option<(u64, Option<Arc<Dnode>>)>,
    done: Healing,
    scratch: Vec<u8>,
}

/// Heals `snapshot` with the substream whose BEGIN is `item`.
///
/// # Errors
/// The stream belongs to another snapshot, has blocks of another size, or is damaged.
/// `Refused(ACCES)` if blocks of an encrypted dataset are in clear and the key is not loaded.
pub fn heal<R: Read>(
    dsl: &Arc<Dsl>,
    reader: &mut StreamReader<R>,
    item: &Item,
    snapshot: &str,
) -> Result<Healing> {
    let begin = check_begin(item)?;
    let list = list_of(item)?;
    let raw = begin.features() & features::RAW != 0;
    if raw {
        check_raw(item, begin, &list)?;
    }
    let refuse = |errno: Errno, what: &str| Error::refused(errno, what.to_owned());
    let dataset = match dsl.dataset(snapshot) {
        Ok(dataset) if dataset.is_snapshot() => dataset,
        Err(e) if !e.is(Errno::NOENT) => return Err(e),
        _ => {
            let what = "corrective recv must specify an existing snapshot to heal";
            return Err(refuse(Errno::NOENT, what));
        }
    };
    if dataset.guid()? != begin.to_guid {
        let what = "local snapshot doesn't match the snapshot in the provided stream";
        return Err(refuse(Errno::NOTSUP, what));
    }
    // It stays while its blocks are written.
    let _owner = dataset.own()?;
    let os = match raw {
        true => dataset.objset_in_clear()?,
        false => dataset.objset()?,
    };
    let encrypted = dataset.uses_feature("com.datto:encryption")?;
    if raw && !encrypted {
        return Err(item.invalid("a raw stream of a dataset that is not").into());
    }
    let compression = dsl.property_number(&dataset, "compression")?;
    let mut healer = Healer {
        key: os.key().cloned(),
        os,
        io: dataset.io()?,
        raw,
        level: ZstdLevel::from_property(compression >> 7).unwrap_or(ZstdLevel::DEFAULT),
        dnode: None,
        done: Healing::default(),
        scratch: Vec::new(),
    };
    let mut failed = None;
    let read = parse::batches(reader, raw, &mut |batch| {
        let done = healer.batch(batch);
        let goes_on = done.is_ok();
        failed = done.err();
        goes_on
    });
    if let Some(e) = failed {
        return Err(e);
    }
    read?;
    healer.done.bytes = reader.offset() - item.offset;
    Ok(healer.done)
}

impl Healer {
    fn batch(&mut self, batch: Batch) -> Result<()> {
        for item in batch.items {
            if let Record::Write(w) = &item.record {
                self.write(&item, w)?;
            }
        }
        Ok(())
    }

    /// An object, if it exists and can be read.
    fn object(&mut self, object: u64) -> Option<Arc<Dnode>> {
        match &self.dnode {
            Some((number, dnode)) if *number == object => dnode.clone(),
            _ => {
                let dnode = self.os.dnode(ObjectId(object)).ok();
                self.dnode = Some((object, dnode.clone()));
                dnode
            }
        }
    }

    fn write(&mut self, item: &Item, w: &WriteRecord) -> Result<()> {
        self.done.blocks += 1;
        let Some(dnode) = self.object(w.object) else {
            self.done.bad += 1;
            return Ok(());
        };
        let size = u64::from(dnode.block_size()).max(1);
        if w.logical_size != size || !w.offset.is_multiple_of(size) {
            return Err(Error::refused(
                Errno::NOTSUP,
                format!(
                    "blocks of {} bytes in the stream, of {size} here: a stream made with -L can heal them",
                    w.logical_size
                ),
            ));
        }
        let bp = match dnode.stored_pointer(w.offset / size) {
            Ok(Some(bp)) if bp.kind() == BpKind::Normal => bp,
            Ok(_) => return Ok(()),
            // No stream has the content of indirect blocks.
            Err(_) => {
                self.done.bad += 1;
                return Ok(());
            }
        };
        let place = format!("object {}, offset {}", w.object, w.offset);
        if self.io.read_stored(&bp, &place).is_ok() {
            return Ok(());
        }
        // It counts as healed only if it reads well afterwards.
        let repaired = match self.stored(item, w, &bp)? {
            Some(stored) => {
                self.io.repair(&bp, &stored, &place)? && self.io.read_stored(&bp, &place).is_ok()
            }
            None => false,
        };
        match repaired {
            true => self.done.healed += 1,
            false => self.done.bad += 1,
        }
        Ok(())
    }

    /// The original stored bytes of a bad block, if they can be derived from the stream.
    fn stored(
        &mut self,
        item: &Item,
        w: &WriteRecord,
        bp: &BlockPointer,
    ) -> Result<Option<Vec<u8>>> {
        let payload = &item.payload;
        let key = self.key.as_deref();
        if self.raw {
            // The checksum of an encrypted block is folded to half its length: fletcher4 then
            // misses one of four changes of the last word. The MAC does not.
            let Crypt { salt, iv, mac } = w.crypt;
            let same = CryptParams { salt, iv, mac } == CryptParams::of(bp);
            let place = format!("object {}, offset {}", w.object, w.offset);
            let verified = same
                && key.is_none_or(|key| {
                    let opened = self.io.decrypt_stored(bp, key, payload, &place);
                    opened.is_ok()
                });
            return Ok(verified.then(|| payload.clone()));
        }
        if !is_packed(w) {
            return Ok(self.io.stored_again(bp, key, self.level, payload));
        }
        if w.compression == bp.compression()
            && let Some(stored) = self.io.sealed_again(bp, key, payload)
        {
            return Ok(Some(stored));
        }
        unpack_into(item, w, payload, &mut self.scratch)?;
        let content = std::mem::take(&mut self.scratch);
        let stored = self.io.stored_again(bp, key, self.level, &content);
        self.scratch = content;
        Ok(stored)
    }
}

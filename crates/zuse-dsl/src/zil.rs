//! Intent logs of heads: walking, claiming, reading for replay, freeing.
//!
//! ```text
//!   objset block ─ header ─► block 1 ─► block 2 ─► … ─► block n, allocated and never written
//! ```
//! A log holds acknowledged writes that may be in no txg yet. Its newest blocks are free space on
//! disk until they are *claimed*. Its records apply to the head as of the last txg.
//!
//! - The chain ends at the first block that does not belong to it. The verifier in a block's
//!   checksum is random per chain and counts blocks, so nothing older passes. Such an end is no
//!   damage.
//! - A pool opened for writing claims before anything is allocated, all heads at once (`claim.rs`).
//! - Replay applies records with a number above the header's and a txg not yet on disk. The header
//!   notes a record in the txg with its effect ([`zuse_dmu::Objset::note_replayed`]).
//! - A pool opened for reading claims nothing and writes nothing: records are applied in memory, in
//!   a txg that is never written.

mod advance;
mod chain;
mod claim;
mod commit;
mod fill;
mod indirect_write;
mod lists;
mod log;
mod rest;
mod writer;

pub(crate) use log::Log;

use zuse_base::{ByteOrder, Error, Result, Txg};
use zuse_codec::ChecksumKind;
use zuse_format::objset::{ZIL_HEADER_AT, ZIL_HEADER_SIZE};
use zuse_format::zil::{Body, LogBlock, REPLAY_NEEDED, Record, ZilHeader};
use zuse_format::{BlockPointer, BpKind, BpLimits, object_type};
use zuse_io::{DatasetKey, Pipeline, is_legacy_log_block, log_block_order};
use zuse_vdev::{Address, ReadOutcome};

use crate::context::{Ctx, Dsl};
use crate::dataset::Dataset;

/// Feature of logs that have extended attributes in them.
const ZILSAXATTR: &str = "org.openzfs:zilsaxattr";

/// An item found by a walk.
pub(crate) enum ZilItem<'a> {
    /// A block, before it is read.
    Block(&'a BlockPointer),
    /// A record's number and bytes.
    Record(u64, &'a [u8], ByteOrder),
}

/// How far a walk went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub last_block: u64,
    pub last_record: u64,
    pub blocks: u64,
    pub records: u64,
}

/// Whether a pointer can be one to a log block.
fn is_log_block(bp: &BlockPointer) -> bool {
    let kind = ChecksumKind::from_u8(bp.checksum_kind());
    bp.kind() == BpKind::Normal
        && bp.object_type() == object_type::INTENT_LOG
        && bp.level() == 0
        && !bp.is_gang()
        && bp.lsize() == bp.psize()
        && matches!(kind, Some(ChecksumKind::Zilog2 | ChecksumKind::Zilog))
        && bp.validate(BpLimits::default()).is_ok()
}

/// Reads a log block; `None` if it does not belong to the chain. If a read-only pool lacks its log
/// device, the log ends.
fn read_block(io: &Pipeline, bp: &BlockPointer, buf: &mut Vec<u8>) -> Result<Option<ByteOrder>> {
    let Some(dva) = bp.dvas().next() else {
        return Ok(None);
    };
    let mut order = None;
    let read = io.vdevs().read_perhaps(
        Address::new(dva.vdev(), dva.offset(), Txg(bp.physical_birth())),
        buf,
        bp.psize() as usize,
        &mut |bytes| {
            order = log_block_order(bp, bytes);
            order.is_some()
        },
    );
    match read {
        Ok(ReadOutcome::Good) => Ok(order),
        // A pointer with an invalid place does not belong to the chain either.
        Ok(ReadOutcome::BadChecksum) | Err(Error::Corrupt { .. }) => Ok(None),
        Err(_) if io.vdevs().is_lost_log(dva.vdev()) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Where the MAC of an encrypted log block is: the last two words of its checksum.
const MAC_AT: usize = 168;

/// Decrypts a log block in place.
///
/// # Errors
/// `Corrupt`: it was not written with this key.
fn decrypt(key: &DatasetKey, bp: &BlockPointer, bytes: &mut [u8], order: ByteOrder) -> Result<()> {
    let place = "a block of the intent log";
    let mac = bytes.get(MAC_AT..).and_then(|b| b.first_chunk::<16>());
    let mac = *mac.ok_or_else(|| {
        Error::corrupt_as(
            zuse_base::Corruption::Authentication,
            place,
            "too short for a MAC",
        )
    })?;
    key.open_zil(bp, &mac, bytes, order, &place)
}

/// Walks a chain within the limits of its header. `visit` says whether to continue. Without its
/// key, only the cleartext parts of an encrypted log's records are valid.
///
/// # Errors
/// A device cannot be read; a block does not open with the key; those of `visit`.
pub(crate) fn walk(
    io: &Pipeline,
    header: &ZilHeader,
    key: Option<&DatasetKey>,
    visit: &mut dyn FnMut(ZilItem<'_>) -> Result<bool>,
) -> Result<Walked> {
    let mut walked = Walked::default();
    let mut bp = header.log;
    let mut buf = Vec::new();
    while is_log_block(&bp) {
        let seq = bp.checksum()[3];
        if seq > header.block_limit() || !visit(ZilItem::Block(&bp))? {
            break;
        }
        walked.last_block = seq;
        walked.blocks += 1;
        if seq == header.block_limit() && walked.last_record == header.record_limit() {
            break;
        }
        let Some(order) = read_block(io, &bp, &mut buf)? else {
            break;
        };
        if let (Some(key), true) = (key, bp.uses_crypt()) {
            decrypt(key, &bp, &mut buf, order)?;
        }
        let Ok(block) = LogBlock::parse(&buf, order, is_legacy_log_block(&bp), bp.checksum())
        else {
            break;
        };
        let mut rest = block.records;
        while let Ok(Some((seq, record))) = Record::split(rest, order) {
            if seq > header.record_limit() || !visit(ZilItem::Record(seq, record, order))? {
                return Ok(walked);
            }
            walked.last_record = seq;
            walked.records += 1;
            rest = &rest[record.len()..];
        }
        // A record that does not parse ends the log.
        if !rest.is_empty() {
            break;
        }
        bp = block.next;
    }
    Ok(walked)
}

/// The header in an objset block's bytes.
pub(crate) fn header_of(block: &[u8]) -> Option<ZilHeader> {
    let bytes: &[u8; ZIL_HEADER_SIZE] = block
        .get(ZIL_HEADER_AT..ZIL_HEADER_AT + ZIL_HEADER_SIZE)?
        .first_chunk()?;
    Some(ZilHeader::parse(bytes))
}

/// Whether a log may have records to replay.
fn is_live(io: &Pipeline, header: &ZilHeader) -> Result<bool> {
    if !is_log_block(&header.log) {
        return Ok(false);
    }
    if header.is_claimed() {
        return Ok(header.flags & REPLAY_NEEDED != 0);
    }
    Ok(read_block(io, &header.log, &mut Vec::new())?.is_some())
}

/// An item found by [`Dsl::visit_log`].
#[derive(Debug)]
pub enum LogItem<'a> {
    /// A block, before it is read.
    Block(&'a BlockPointer),
    /// A record.
    Record(&'a Record<'a>),
    /// A record that does not parse: its number, and why.
    Broken(u64, zuse_format::FormatError),
}

impl Dsl {
    /// Walks the chain of a log within the limits of its header; `visit` says whether to continue.
    ///
    /// # Errors
    /// A device cannot be read; those of `visit`.
    pub fn visit_log(
        &self,
        header: &ZilHeader,
        visit: &mut dyn FnMut(LogItem<'_>) -> Result<bool>,
    ) -> Result<()> {
        visit_with(&self.meta()?.io, header, None, visit)
    }
}

fn visit_with(
    io: &Pipeline,
    header: &ZilHeader,
    key: Option<&DatasetKey>,
    visit: &mut dyn FnMut(LogItem<'_>) -> Result<bool>,
) -> Result<()> {
    walk(io, header, key, &mut |met| match met {
        ZilItem::Block(bp) => visit(LogItem::Block(bp)),
        ZilItem::Record(seq, bytes, order) => match Record::parse(bytes, order) {
            Ok(record) => visit(LogItem::Record(&record)),
            Err(e) => visit(LogItem::Broken(seq, e)),
        },
    })?;
    Ok(())
}

impl Dataset {
    /// The header of its intent log; `None` if there is nothing to replay.
    fn live_log(&self) -> Result<Option<ZilHeader>> {
        if self.is_snapshot() {
            return Ok(None);
        }
        let header = ZilHeader::parse(&self.objset()?.zil_header());
        let io = &self.dsl.meta()?.io;
        Ok(is_live(io, &header)?.then_some(header))
    }

    /// The header of its intent log, as it is on disk.
    ///
    /// # Errors
    /// The objset block cannot be read.
    pub fn log_header(&self) -> Result<ZilHeader> {
        let phys = self.phys()?;
        if phys.bp.is_hole() {
            return Ok(ZilHeader::default());
        }
        let place = format!("dataset {}, objset block", self.object().0);
        let block = self.dsl.meta()?.io.read(&phys.bp, &place)?;
        Ok(header_of(block.bytes()).unwrap_or_default())
    }

    /// As [`Dsl::visit_log`], decrypted if the dataset's key is loaded; `visit` is told whether the
    /// item is readable.
    ///
    /// # Errors
    /// As there; a block does not open with the key.
    pub fn visit_log(
        &self,
        header: &ZilHeader,
        visit: &mut dyn FnMut(bool, LogItem<'_>) -> Result<bool>,
    ) -> Result<()> {
        let objset = self.objset().ok();
        let key = objset.as_ref().and_then(|o| o.key()).map(AsRef::as_ref);
        let mut readable = true;
        visit_with(&self.dsl.meta()?.io, header, key, &mut |met| {
            if let LogItem::Block(bp) = met {
                readable = key.is_some() || !bp.uses_crypt();
            }
            visit(readable, met)
        })
    }

    /// Whether records of an intent log have to be replayed before all acknowledged writes are
    /// visible.
    ///
    /// # Errors
    /// The object set or the log's device cannot be read.
    pub fn needs_replay(&self) -> Result<bool> {
        Ok(!self.is_replayed() && self.live_log()?.is_some())
    }

    /// Calls `apply` with every record to replay, in order. After the last one the caller calls
    /// [`Dataset::replayed`].
    ///
    /// # Errors
    /// A record does not parse, or does not open with the dataset's key; a device cannot be read;
    /// those of `apply`.
    pub fn each_log_record(&self, apply: &mut dyn FnMut(&Record<'_>) -> Result<()>) -> Result<()> {
        let Some(header) = self.live_log()? else {
            return Ok(());
        };
        let dsl = &self.dsl;
        let io = dsl.meta()?.io.clone();
        let name = self.name()?;
        let first_txg = if header.is_claimed() {
            header.claim_txg
        } else {
            dsl.spa()?.disk_txg() + 1
        };
        let objset = self.objset()?;
        let key = objset.key().map(AsRef::as_ref);
        walk(&io, &header, key, &mut |met| {
            let (seq, bytes, order) = match met {
                // A log in clear for an encrypted dataset was not written with its key.
                ZilItem::Block(bp) if bp.uses_crypt() != key.is_some() => {
                    return Err(Error::corrupt_as(
                        zuse_base::Corruption::Authentication,
                        format!("dataset {name}, intent log"),
                        "it is not encrypted as the dataset is",
                    ));
                }
                ZilItem::Block(_) => return Ok(true),
                ZilItem::Record(seq, bytes, order) => (seq, bytes, order),
            };
            let place = || format!("dataset {name}, intent log record {seq}");
            let record = Record::parse(bytes, order).map_err(|e| e.at(place()))?;
            // An earlier replay has applied it, or its txg is on disk.
            if seq <= header.replay_seq || record.txg < first_txg {
                return Ok(true);
            }
            if !header.is_claimed() && !reached_disk(&io, &record, first_txg)? {
                return Ok(false);
            }
            apply(&record)?;
            Ok(true)
        })?;
        Ok(())
    }

    /// The log was applied. In a writable pool it is freed, which is on disk when this returns.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn replayed(self: &std::sync::Arc<Self>) -> Result<()> {
        if self.dsl.spa()?.is_writable() {
            let (ds, again) = (self.clone(), self.clone());
            self.dsl.task(
                move |_| ds.phys().map(|_| ()),
                move |ctx| ctx.free_log(&again),
            )?;
        }
        self.set_replayed();
        Ok(())
    }
}

/// Whether the data that a record points to was written before the crash. If not, the record was
/// never acknowledged, and the log ends before it.
fn reached_disk(io: &Pipeline, record: &Record<'_>, first_txg: u64) -> Result<bool> {
    match &record.body {
        Body::Write {
            data: None, block, ..
        } if block.kind() == BpKind::Normal && block.logical_birth() >= first_txg => {
            io.is_stored(block, &"a block of the intent log")
        }
        Body::Clone { blocks, .. } => Ok(blocks
            .iter()
            .all(|b| b.kind() != BpKind::Normal || b.physical_birth() < first_txg)),
        _ => Ok(true),
    }
}

/// The blocks of a record that have references in the table of cloned blocks.
pub(crate) fn clones_of<'a>(record: &'a Record<'_>) -> impl Iterator<Item = &'a BlockPointer> {
    let blocks = match &record.body {
        Body::Clone { blocks, .. } => &blocks[..],
        _ => &[],
    };
    blocks.iter().filter(|b| b.kind() == BpKind::Normal)
}

impl Ctx<'_> {
    /// Frees the intent log of a head, with everything that was claimed for it.
    pub(crate) fn free_log(&self, handle: &std::sync::Arc<Dataset>) -> Result<()> {
        self.touched(handle);
        let phys = handle.phys()?;
        if phys.bp.is_hole() {
            return Ok(());
        }
        let header = match handle.open_objset() {
            Some(os) => ZilHeader::parse(&os.zil_header()),
            None => {
                let place = format!("dataset {}, objset block", handle.object().0);
                let block = self.meta.io.read(&phys.bp, &place)?;
                header_of(block.bytes()).unwrap_or_default()
            }
        };
        // The blocks of a log in memory are those from the header, and newer ones.
        match handle.log.get().and_then(|log| log.take_all(self.tx.txg())) {
            Some(blocks) => blocks.iter().try_for_each(|bp| self.free_or_leak(bp))?,
            None if header == ZilHeader::default() => return Ok(()),
            None => self.free_chain(&header)?,
        }
        if let Some(table) = self.meta.extension(handle.object().0)?
            && table.get(ZILSAXATTR)?.is_some()
        {
            table.remove(self.tx, ZILSAXATTR)?;
            self.feature_add(ZILSAXATTR, -1)?;
        }
        // Without an open object set, the caller destroys or replaces the objset block itself.
        if let Some(os) = handle.open_objset() {
            os.set_zil_header(self.tx, [0; ZIL_HEADER_SIZE]);
            handle.note_dirty(self.tx.txg());
        }
        Ok(())
    }

    /// Frees the allocated blocks of a log: all blocks of a claimed one, otherwise those that a txg
    /// on disk has.
    pub(crate) fn free_chain(&self, header: &ZilHeader) -> Result<()> {
        let mut freed = std::collections::HashSet::new();
        let synced = self.spa.disk_txg();
        let io = self.meta.io.clone();
        let mut free = |bp: &BlockPointer| -> Result<()> {
            let dva = bp.dva(0);
            if bp.kind() == BpKind::Normal && freed.insert((dva.vdev(), dva.offset())) {
                self.free_or_leak(bp)?;
            }
            Ok(())
        };
        walk(&io, header, None, &mut |met| {
            match met {
                ZilItem::Block(bp) => {
                    if !header.is_claimed() && bp.logical_birth() > synced {
                        return Ok(false);
                    }
                    free(bp)?;
                }
                ZilItem::Record(_, bytes, order) if header.is_claimed() => {
                    // A record that does not parse was never claimed.
                    let Ok(record) = Record::parse(bytes, order) else {
                        return Ok(true);
                    };
                    // Claiming took a reference to each of these blocks.
                    for bp in clones_of(&record) {
                        self.free_or_leak(bp)?;
                    }
                    if let Body::Write {
                        data: None, block, ..
                    } = &record.body
                        && block.logical_birth() >= header.claim_txg
                    {
                        free(block)?;
                    }
                }
                ZilItem::Record(..) => {}
            }
            Ok(true)
        })?;
        Ok(())
    }
}

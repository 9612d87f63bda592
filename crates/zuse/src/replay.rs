//! Replay of intent logs: when a head is opened for its content.
//!
//! In a writable pool records are applied to disk and the log is freed; after a crash the replay
//! continues where it was. In a pool that is open for reading they are applied in memory, in a txg
//! that is never written.

use std::sync::Arc;
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::{Errno, Error, Result, Txg};
use zuse_dmu::{Dnode, Objset, Tx};
use zuse_dsl::{Dataset, Estimate};
use zuse_format::zil::{Body, Record};
use zuse_format::{BlockPointer, BpKind};
use zuse_zpl::FileSystem;

use crate::backing::DatasetBacking;
use crate::opening::Opening;

/// Memory for a log that is replayed in memory, per byte that may be dirty in a writable pool.
const MEMORY: u64 = 16;
/// At most this, unless more may be dirty.
const MOST: u64 = 1 << 30;

/// How transactions begin while a log is replayed.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// In this txg, which is never written.
    Memory(Txg),
    /// On disk; the record's number goes into the header with its change, 0: not yet.
    Disk(u64),
}

/// The replay of a dataset's log, for its backing.
#[derive(Default)]
pub(crate) struct Replaying(Mutex<Option<Mode>>);

impl Replaying {
    fn mode(&self) -> MutexGuard<'_, Option<Mode>> {
        self.0.lock()
    }

    pub fn is_on(&self) -> bool {
        self.mode().is_some()
    }

    pub fn end(&self) {
        *self.mode() = None;
    }

    pub fn start(&self, spa: &zuse_pool::Pool) {
        *self.mode() = Some(if spa.is_writable() {
            Mode::Disk(0)
        } else {
            Mode::Memory(Txg(spa.uberblock().txg + 1))
        });
    }

    /// A transaction of the replay; `None` if none is running.
    pub fn begin(
        &self,
        spa: &zuse_pool::Pool,
        dataset: &Arc<Dataset>,
        objset: &Objset,
        bytes: u64,
    ) -> Result<Option<Tx>> {
        let mode = *self.mode();
        Ok(match mode {
            None => None,
            Some(Mode::Memory(txg)) => Some(in_memory(spa, txg)?),
            Some(Mode::Disk(seq)) => {
                let tx = dataset.begin(Estimate {
                    write_bytes: bytes,
                    frees: true,
                })?;
                if seq != 0 {
                    objset.note_replayed(&tx, seq);
                }
                Some(tx)
            }
        })
    }

    fn set_record(&self, seq: u64) {
        if let Some(Mode::Disk(now)) = &mut *self.mode() {
            *now = seq;
        }
    }
}

/// A transaction that is never written.
fn in_memory(spa: &zuse_pool::Pool, txg: Txg) -> Result<Tx> {
    let dirty = spa.limits().dirty;
    // Nothing in memory is ever written, so it cannot wait for a txg to make room.
    if spa.meter().total() > dirty.saturating_mul(MEMORY).min(dirty.max(MOST)) {
        return Err(Error::refused(
            Errno::NOMEM,
            "the intent log holds more than is replayed in memory: open the pool for writing",
        ));
    }
    Ok(Tx::syncing(txg))
}

/// Applies a record. If it was refused, retries after a sync, because numbers of freed objects
/// become free with that.
fn apply_twice(
    spa: &zuse_pool::Pool,
    record: &Record<'_>,
    name: &str,
    apply: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let mut done = apply();
    if matches!(done, Err(Error::Refused { .. })) && spa.is_writable() {
        spa.sync_now()?;
        done = apply();
    }
    done.map_err(|e| match e {
        Error::Refused { .. } => Error::corrupt(
            format!("dataset {name}, intent log record {}", record.seq),
            format!("it cannot be replayed: {e}"),
        ),
        other => other,
    })
}

/// Applies the log of a file system, if it has one. `open` opens it once the backing allows
/// changes.
pub(crate) fn file_system(
    backing: &Arc<DatasetBacking>,
    spa: &zuse_pool::Pool,
    dataset: &Arc<Dataset>,
) -> Result<Arc<FileSystem>> {
    if !dataset.needs_replay()? {
        return FileSystem::open(backing.clone());
    }
    let replaying = backing.replaying();
    replaying.start(spa);
    let done = FileSystem::open(backing.clone()).and_then(|fs| {
        if spa.is_writable() {
            // Only then the numbers of unlinked objects are free.
            spa.sync_now()?;
        }
        let name = dataset.name()?;
        dataset.each_log_record(&mut |record| {
            let names = record.body.changes_names();
            // A record of names is one transaction: its number goes into the header with the
            // change.
            replaying.set_record(if names { record.seq } else { 0 });
            apply_twice(spa, record, &name, &|| {
                fs.replay(record, !spa.is_writable())
            })?;
            // Others may take several transactions. Applied twice they do no harm, so the number
            // comes after.
            if !names && spa.is_writable() {
                let tx = dataset.begin(Estimate {
                    write_bytes: 0,
                    frees: true,
                })?;
                fs.objset().note_replayed(&tx, record.seq);
            }
            Ok(())
        })?;
        replaying.set_record(0);
        Ok(fs)
    });
    // Also after a failure: later transactions must not count as replayed.
    replaying.end();
    let fs = done?;
    // Only now: until here a crash repeats the rest of the log.
    dataset.replayed()?;
    Ok(fs)
}

/// Applies the log of a volume, if it has one.
pub(crate) fn volume(
    spa: &zuse_pool::Pool,
    dataset: &Arc<Dataset>,
    data: &Arc<Dnode>,
    size: u64,
    opening: &Opening,
) -> Result<()> {
    // If two callers open it at the same time, one of them applies the log.
    let _no_other = opening.begin(dataset.object().0);
    if !dataset.needs_replay()? {
        return Ok(());
    }
    let volume = VolumeLog {
        spa,
        dataset: dataset.clone(),
        objset: dataset.objset()?,
        data: data.clone(),
        size,
        name: dataset.name()?,
        memory: Txg(spa.uberblock().txg + 1),
    };
    dataset.each_log_record(&mut |record| volume.apply(record))?;
    dataset.replayed()
}

/// A volume whose log is being applied.
struct VolumeLog<'a> {
    spa: &'a zuse_pool::Pool,
    dataset: Arc<Dataset>,
    objset: Arc<Objset>,
    data: Arc<Dnode>,
    size: u64,
    name: String,
    /// The txg of changes in memory.
    memory: Txg,
}

impl VolumeLog<'_> {
    /// Applies a record.
    fn apply(&self, record: &Record<'_>) -> Result<()> {
        match &record.body {
            Body::Write {
                offset,
                data: Some(data),
                ..
            } => {
                self.check_fits(record, *offset, data.len() as u64)?;
                let tx = self.begin(record.seq, data.len() as u64)?;
                self.data.write_at(&tx, *offset, data)
            }
            Body::Write {
                offset,
                length,
                data: None,
                block,
                ..
            } => {
                let size = block.lsize().max(1);
                // A record shorter than its block stands for the whole block (05-zil §8.7).
                let start = if *length < size {
                    offset / size * size
                } else {
                    *offset
                };
                self.check_fits(record, start, size)?;
                let tx = self.begin(record.seq, size)?;
                self.write_block(&tx, start, block)
            }
            Body::Truncate { offset, length, .. } => {
                self.check_fits(record, *offset, *length)?;
                let tx = self.begin(record.seq, u64::from(self.data.block_size()))?;
                self.data.free_range(&tx, *offset, *length)
            }
            Body::Clone {
                offset,
                block_size,
                blocks,
                ..
            } => {
                let mut at = *offset;
                for (i, block) in (1..).zip(blocks) {
                    self.check_fits(record, at, *block_size)?;
                    // Until the last block the record is not complete: power may fail between two
                    // txgs.
                    let last = i == blocks.len();
                    let tx = self.begin(if last { record.seq } else { 0 }, *block_size)?;
                    self.write_clone(&tx, at, *block_size, block)?;
                    at += block_size;
                }
                Ok(())
            }
            _ => Err(self.wrong(record, "it is none of a volume's")),
        }
    }

    /// A transaction; a record number other than 0 goes into the header with its change.
    fn begin(&self, seq: u64, bytes: u64) -> Result<Tx> {
        if !self.spa.is_writable() {
            return in_memory(self.spa, self.memory);
        }
        let tx = self.dataset.begin(Estimate {
            write_bytes: bytes,
            frees: true,
        })?;
        if seq != 0 {
            self.objset.note_replayed(&tx, seq);
        }
        Ok(tx)
    }

    fn check_fits(&self, record: &Record<'_>, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len);
        match end.filter(|end| *end <= self.size.next_multiple_of(1 << 24)) {
            Some(_) => Ok(()),
            None => Err(self.wrong(record, "it lies behind the end of the volume")),
        }
    }

    fn wrong(&self, record: &Record<'_>, what: &str) -> Error {
        Error::corrupt(
            format!("dataset {}, intent log record {}", self.name, record.seq),
            what.to_owned(),
        )
    }

    /// Clones a block, in a writable pool.
    fn write_clone(&self, tx: &Tx, at: u64, len: u64, bp: &BlockPointer) -> Result<()> {
        if bp.kind() == BpKind::Hole {
            // The record need not have a size.
            return self.data.free_range(tx, at, len);
        }
        let size = u64::from(self.data.block_size());
        let whole = bp.kind() == BpKind::Normal && bp.lsize() == size && at.is_multiple_of(size);
        // In memory no reference can be counted, so the bytes are copied.
        if !whole || !self.spa.is_writable() {
            return self.write_block(tx, at, bp);
        }
        let reference = self.objset.io().refer(tx.txg(), bp)?;
        self.data.write_clone(tx, at / size, reference)
    }

    fn write_block(&self, tx: &Tx, at: u64, bp: &BlockPointer) -> Result<()> {
        if bp.kind() == BpKind::Hole {
            return self.data.free_range(tx, at, bp.lsize());
        }
        let objset = &self.objset;
        let place = format!("{}, a block of the intent log", objset.place());
        let key = objset.key().map(AsRef::as_ref);
        let block = objset.io().read_keyed(bp, key, &place)?;
        self.data.write_at(tx, at, block.bytes())
    }
}

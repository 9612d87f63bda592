//! Volumes: datasets that are a contiguous range of bytes.
//!
//! Object 1 holds the bytes, object 2 is a ZAP whose `size` is the volume's. Chapter 03c §9 of the
//! format notes.
//!
//! A new size must be a multiple of the block size and not 0; others are refused. Nothing is read
//! or written beyond the stored size, whatever it is. Data cut off by shrinking is freed.

use std::sync::{Arc, Weak};

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapOptions};
use zuse_dmu::{
    Dnode, DnodeSpec, Intent, IntentData, IntentLog, Objset, Order, SyncMode, Tx, WriteState,
};
use zuse_dsl::property::{SetAs, Value};
use zuse_dsl::{CreateOptions, Dataset as Handle, DatasetKind, Estimate, Fill, Owner};
use zuse_format::object_type::{ZVOL, ZVOL_PROP};
use zuse_format::zil::Body;
use zuse_format::{BlockPointer, ObjsetType};

use crate::held::Held;
use crate::property::parse;
use crate::{Dataset, Pool};

const DATA: ObjectId = ObjectId(1);
const PROPERTIES: ObjectId = ObjectId(2);
/// Default block size.
pub const BLOCK_SIZE: u64 = 16 * 1024;
/// Bytes that one transaction writes.
const CHUNK: u64 = 1 << 20;

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::refused(Errno::INVAL, why.into()))
}

/// Options of a new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Bytes; rounded up to whole blocks.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// No space is reserved for it.
    pub sparse: bool,
    /// Other properties, as texts.
    pub properties: Vec<(String, String)>,
}

/// An open volume, or a snapshot of one.
pub struct Volume {
    handle: Arc<Handle>,
    _owner: Option<Owner>,
    objset: Arc<Objset>,
    data: Arc<Dnode>,
    /// If it is writable: the log for the records of its writes.
    log: Option<VolumeLog>,
    // The last field, dropped last: nothing of the pool is used after it.
    _held: Arc<Held>,
}

/// A volume's intent log, and the source of its data.
struct VolumeLog {
    log: Arc<dyn IntentLog>,
    _size: Arc<VolumeSize>,
}

/// The size up to which data can be read for the log.
struct VolumeSize(Arc<Objset>);

impl IntentData for VolumeSize {
    fn size(&self, object: ObjectId) -> Result<Option<u64>> {
        if object != DATA {
            return Ok(None);
        }
        size_of(&self.0).map(Some)
    }
}

fn size_of(objset: &Arc<Objset>) -> Result<u64> {
    Zap::open(&objset.dnode(PROPERTIES)?)?
        .lookup_u64(b"size")?
        .ok_or_else(|| Error::corrupt(objset.place(), "the volume has no size"))
}

/// Space that a volume may need with its metadata: the value of its refreservation. Chapter 06b
/// §2.4, for pools without raidz.
pub fn reservation(size: u64, block_size: u64, copies: u64) -> u64 {
    let blocks = size / block_size.max(1);
    let (mut meta, mut level) = (7, blocks);
    while level > 1 {
        level = level.div_ceil(1024);
        meta += level;
    }
    meta *= (copies + 1).min(3);
    (blocks * block_size)
        .saturating_mul(copies)
        .saturating_add(meta * 128 * 1024)
}

fn fill(size: u64, block_size: u64) -> Fill {
    Box::new(move |objset: &Arc<Objset>, tx: &Tx| {
        let block = u32::try_from(block_size)
            .map_err(|_| Error::refused(Errno::INVAL, "the block size of a volume"))?;
        objset.allocate_at(tx, DATA, &DnodeSpec::new(ZVOL).block_size(block))?;
        let table = objset.allocate_at(tx, PROPERTIES, &DnodeSpec::new(ZVOL_PROP))?;
        Zap::create_in(&table, tx, &ZapOptions::default())?.add_u64(tx, b"size", size)
    })
}

impl Pool {
    /// Creates a volume.
    ///
    /// # Errors
    /// `Refused(INVAL)` with the messages of `zfs create`, `Refused(NOENT)`, `Refused(EXIST)`,
    /// `Refused(NOSPC)`.
    pub fn create_volume(&self, name: &str, new: &NewVolume) -> Result<()> {
        self.create_volume_with_key(name, new, None)
    }

    /// As [`Self::create_volume`], with the key of a new encryption root ([`Pool::key_request`]).
    ///
    /// # Errors
    /// As [`Self::create_volume`]; `Refused(ACCES)` if the inherited key is not loaded.
    pub fn create_volume_with_key(
        &self,
        name: &str,
        new: &NewVolume,
        key: Option<&zuse_dsl::KeyMaterial>,
    ) -> Result<()> {
        let block = new.block_size;
        if !block.is_power_of_two() || !(512..=16 << 20).contains(&block) {
            return refuse("'volblocksize' must be power of 2 from 512B to 16M");
        }
        let large = self
            .spa()
            .features()
            .is_enabled("org.open-zfs:large_blocks");
        if block > 128 * 1024 && !large {
            return Err(Error::refused(
                Errno::NOTSUP,
                "pool and or dataset must be upgraded to set this property or value",
            ));
        }
        if new.size == 0 {
            return refuse("'volsize' cannot be zero");
        }
        let size = new
            .size
            .checked_next_multiple_of(block)
            .filter(|s| *s <= i64::MAX as u64)
            .ok_or_else(|| {
                Error::refused(Errno::INVAL, "volume size exceeds limit for this system")
            })?;
        let mut values = Vec::new();
        let mut copies = 1;
        for (name, text) in &new.properties {
            let (name, value) = parse(name, text, DatasetKind::Volume)?;
            if let ("copies", Value::Number(n)) = (name.as_str(), &value) {
                copies = *n;
            }
            if !matches!(
                name.as_str(),
                "encryption" | "keyformat" | "keylocation" | "pbkdf2iters"
            ) {
                values.push((name, value));
            }
        }
        let encryption = self.new_encryption(name, &new.properties, key)?;
        // Older pools reserve it for the volume together with its snapshots.
        let kept = match self.spa().version() {
            0..9 => "reservation",
            _ => "refreservation",
        };
        if !new.sparse && values.iter().all(|(n, _)| n != kept) {
            let bytes = reservation(size, block, copies);
            values.push((kept.into(), Value::Number(bytes)));
        }
        let options = CreateOptions {
            properties: values,
            encryption,
            ..CreateOptions::volume(fill(size, block))
        };
        self.dsl().create_dataset(name, options)?;
        Ok(())
    }

    /// Opens a volume, or a snapshot of one.
    ///
    /// # Errors
    /// `Refused(NOENT)`; `Refused(INVAL)` if it is no volume; `Refused(BUSY)` if it is open for
    /// writing elsewhere.
    pub fn volume(&self, name: &str) -> Result<Volume> {
        let handle = self.dsl().dataset(name)?;
        if !handle.is_volume()? {
            return refuse(format!("'{name}' is not a volume"));
        }
        let owner = if handle.is_snapshot() || !self.is_writable() {
            None
        } else {
            Some(handle.own()?)
        };
        let objset = handle.objset()?;
        self.limit_to_complete(&handle)?;
        if objset.kind() != ObjsetType::Zvol {
            return refuse(format!("'{name}' is not a volume"));
        }
        let data = objset.dnode(DATA)?;
        let mut volume = Volume {
            handle,
            _owner: owner,
            objset,
            data,
            log: None,
            _held: self.share(),
        };
        // Before the log is opened for new records, which come after the old ones.
        crate::replay::volume(
            self.spa(),
            &volume.handle,
            &volume.data,
            volume.size()?,
            self.open_file_systems().volumes(),
        )?;
        if volume._owner.is_some() {
            let size = Arc::new(VolumeSize(volume.objset.clone()));
            let asked: Weak<VolumeSize> = Arc::downgrade(&size);
            volume.log = Some(VolumeLog {
                log: volume.handle.open_log(asked)?,
                _size: size,
            });
        }
        Ok(volume)
    }
}

impl Volume {
    /// The sha256 of all its bytes, in hex.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn sha256(&self) -> Result<String> {
        let mut hash = zuse_zpl::Sha256Sum::default();
        let mut buf = vec![0; CHUNK as usize];
        let mut at = 0;
        loop {
            let got = self.read(at, &mut buf)?;
            if got == 0 {
                return Ok(hash.hex());
            }
            hash.update(&buf[..got]);
            at += got as u64;
        }
    }

    fn table(&self) -> Result<Zap> {
        Zap::open(&self.objset.dnode(PROPERTIES)?)
    }

    /// Bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn size(&self) -> Result<u64> {
        size_of(&self.objset)
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        u64::from(self.data.block_size())
    }

    /// Whether it can be written.
    pub fn is_read_only(&self) -> bool {
        self._owner.is_none()
    }

    /// Fills a buffer from an offset on; returns the number of bytes before the end.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = self.size()?.saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if let Some(part) = buf.get_mut(..len) {
            self.data.read_at(offset, part)?;
        }
        Ok(len)
    }

    fn check_writable(&self, offset: u64, len: u64) -> Result<()> {
        let readonly = self
            .handle
            .dsl()
            .property_number(&self.handle, "readonly")?;
        if self.is_read_only() || readonly != 0 {
            return Err(Error::refused(Errno::ROFS, "the volume is read-only"));
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.size()? => Ok(()),
            _ => Err(Error::refused(Errno::NOSPC, "beyond the end of the volume")),
        }
    }

    /// The log, where writes are to leave records.
    fn log(&self) -> Option<&dyn IntentLog> {
        let log = &self.log.as_ref()?.log;
        log.is_on().then_some(log.as_ref())
    }

    fn note(&self, tx: &Tx, body: &Body<'_>, write: Option<WriteState>) {
        if let Some(log) = self.log() {
            let record = body.to_bytes();
            // One queue: records of a volume stay in the order of the writes.
            let order = Order::Names;
            log.add(
                tx,
                Intent {
                    order,
                    record,
                    write,
                },
            );
        }
    }

    fn note_write(&self, tx: &Tx, offset: u64, data: &[u8]) {
        let Some(log) = self.log() else { return };
        let length = data.len() as u64;
        let state = log.write_state(length, self.data.block_size(), self.is_sync_always());
        let body = Body::Write {
            object: DATA.0,
            offset,
            length,
            data: (state == WriteState::Copied).then_some(data),
            block: BlockPointer::HOLE,
        };
        self.note(tx, &body, Some(state));
    }

    fn is_sync_always(&self) -> bool {
        self.objset.settings().sync == SyncMode::Always
    }

    /// At the end of a change: makes it durable if the `sync` property asks for that.
    fn sync_if_always(&self) -> Result<()> {
        if self.is_sync_always() {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// Writes bytes at an offset; they are durable after [`Self::sync`].
    ///
    /// # Errors
    /// `Refused(NOSPC)` beyond the end or without room, `Refused(ROFS)`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_writable(offset, bytes.len() as u64)?;
        let mut at = offset;
        for part in bytes.chunks(CHUNK as usize) {
            let tx = self.handle.begin(Estimate {
                write_bytes: part.len() as u64 + 2 * self.block_size(),
                frees: false,
            })?;
            self.data.write_at(&tx, at, part)?;
            self.note_write(&tx, at, part);
            at += part.len() as u64;
        }
        self.sync_if_always()
    }

    /// Zeroes a range and frees its blocks.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable(offset, len)?;
        {
            // It ends with this block: the commit below may wait for its txg.
            let tx = self.handle.begin(Estimate {
                write_bytes: 2 * self.block_size(),
                frees: true,
            })?;
            self.data.free_range(&tx, offset, len)?;
            if len > 0 {
                let body = Body::Truncate {
                    object: DATA.0,
                    offset,
                    length: len,
                };
                self.note(&tx, &body, None);
            }
        }
        self.sync_if_always()
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn sync(&self) -> Result<()> {
        if let Some(log) = self.log() {
            return log.commit(None);
        }
        if self.log.is_some() && self.objset.settings().sync == SyncMode::Disabled {
            return Ok(());
        }
        match self.data.newest_dirty() {
            Some(txg) => self.handle.wait_synced(txg),
            None => Ok(()),
        }
    }

    /// Changes its size. Data beyond a smaller size is lost.
    ///
    /// # Errors
    /// `Refused(INVAL)` in the words of `zfs set`.
    fn resize(&self, size: u64) -> Result<()> {
        let block = self.block_size();
        if size == 0 {
            return refuse("'volsize' cannot be zero");
        }
        if !size.is_multiple_of(block) {
            let shown = if block >= 1 << 20 {
                format!("{}M", block >> 20)
            } else if block >= 1024 {
                format!("{}K", block >> 10)
            } else {
                block.to_string()
            };
            return refuse(format!(
                "'volsize' must be a multiple of volume block size ({shown})"
            ));
        }
        let old = self.size()?;
        {
            let tx = self.handle.begin(Estimate {
                write_bytes: 64 * 1024,
                frees: size < old,
            })?;
            self.table()?
                .update(&tx, b"size", &zuse_dmu::zap::ZapValue::U64(size))?;
            if size < old {
                self.data.free_range(&tx, size, old - size)?;
            }
        }
        match self.objset.dnode(PROPERTIES)?.newest_dirty() {
            // A change of size has no record in the log (05-zil §8.2), so only its txg makes it
            // durable.
            Some(txg) => self.handle.wait_synced(txg),
            None => Ok(()),
        }
    }
}

impl Dataset {
    /// The value of `refreservation=auto`.
    pub(crate) fn computed_refreservation(&self) -> Result<u64> {
        let volume = self.pool().volume(self.name())?;
        let copies = self.pool().dsl().property_number(self.handle(), "copies")?;
        Ok(reservation(volume.size()?, volume.block_size(), copies))
    }

    /// `volsize=`: a refreservation with the computed value is adapted.
    pub(crate) fn set_volume_size(&self, size: u64) -> Result<()> {
        let volume = self.pool().volume(self.name())?;
        let dsl = self.pool().dsl();
        let number = |name: &str| dsl.property_number(self.handle(), name);
        let (kept, copies) = (number("refreservation")?, number("copies")?);
        let computed = |size: u64| reservation(size, volume.block_size(), copies);
        let follows = kept != 0 && kept == computed(volume.size()?);
        // The reservation first: a pool without the space refuses before the size has changed.
        if follows && size > volume.size()? {
            let value = Value::Number(computed(size));
            dsl.set_properties(
                self.name(),
                &[("refreservation".into(), value)],
                SetAs::Local,
            )?;
        }
        volume.resize(size)?;
        // After the data is gone, which the reservation has covered until then.
        if follows && kept > computed(size) {
            let value = Value::Number(computed(size));
            dsl.set_properties(
                self.name(),
                &[("refreservation".into(), value)],
                SetAs::Local,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::reservation;

    #[test]
    fn what_is_kept_for_a_volume_is_what_openzfs_keeps() {
        assert_eq!(reservation(16 << 20, 16 << 10, 1), 18_874_368);
        assert_eq!(reservation(20 << 20, 16 << 10, 1), 23_592_960);
        assert_eq!(reservation(8 << 20, 8 << 10, 1), 10_485_760);
    }
}

//! A MOS made of byte vectors, for tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zuse_base::sync::Mutex;

use zuse_base::{Errno, Error, ObjectId, Result, Txg};

use super::{MapShape, MapStore, MapWriter, StoredObject};

#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    pub block_size: u32,
    pub bonus: Vec<u8>,
    pub data: Vec<u8>,
    pub names: BTreeMap<String, u64>,
}

/// Objects by number.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub objects: Mutex<BTreeMap<u64, Object>>,
    /// Writes that succeed before one fails; `u64::MAX` for no failure.
    pub fuse: AtomicU64,
}

impl Memory {
    pub fn new() -> Self {
        Self {
            objects: Mutex::default(),
            fuse: AtomicU64::new(u64::MAX),
        }
    }

    pub fn with<R>(&self, object: ObjectId, f: impl FnOnce(&mut Object) -> R) -> Result<R> {
        let mut objects = self.objects.lock();
        objects
            .get_mut(&object.0)
            .map(f)
            .ok_or_else(|| Error::refused(Errno::NOENT, format!("object {object}")))
    }

    pub fn add(&self, object: Object) -> ObjectId {
        let mut objects = self.objects.lock();
        let id = objects.keys().next_back().map_or(1, |last| last + 1);
        objects.insert(id, object);
        ObjectId(id)
    }

    fn burn(&self) -> Result<()> {
        let left = self.fuse.load(Relaxed);
        if left == 0 {
            return Err(Error::device("memory", Errno::IO, "the fuse is burnt"));
        }
        if left != u64::MAX {
            self.fuse.store(left - 1, Relaxed);
        }
        Ok(())
    }
}

impl MapStore for Memory {
    fn open(&self, object: ObjectId) -> Result<StoredObject> {
        self.with(object, |o| StoredObject {
            object_type: 8,
            block_size: o.block_size,
            blocks: (o.data.len() as u64)
                .div_ceil(u64::from(o.block_size))
                .max(1),
            bonus: o.bonus.clone(),
        })
    }

    fn read_block(
        &self,
        object: ObjectId,
        block: u64,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = self.with(object, |o| {
            let size = o.block_size as usize;
            let mut bytes = o
                .data
                .chunks(size)
                .nth(block as usize)
                .unwrap_or_default()
                .to_vec();
            bytes.resize(size, 0);
            bytes
        })?;
        visit(&bytes)
    }

    fn read_at(&self, object: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with(object, |o| {
            for (i, byte) in buf.iter_mut().enumerate() {
                *byte = o.data.get(offset as usize + i).copied().unwrap_or(0);
            }
        })
    }

    fn read_zap(
        &self,
        zap: ObjectId,
        visit: &mut dyn FnMut(&str, u64) -> Result<()>,
    ) -> Result<()> {
        let names = self.with(zap, |o| o.names.clone())?;
        names
            .iter()
            .try_for_each(|(name, value)| visit(name, *value))
    }
}

/// The memory in one txg.
pub(crate) struct MemoryTxg<'a>(pub &'a Memory, pub Txg);

impl MapWriter for MemoryTxg<'_> {
    fn txg(&self) -> Txg {
        self.1
    }

    fn create_map(&self, shape: MapShape) -> Result<ObjectId> {
        self.0.burn()?;
        Ok(self.0.add(Object {
            block_size: shape.block_size,
            ..Object::default()
        }))
    }

    fn create_array(&self) -> Result<ObjectId> {
        self.0.burn()?;
        Ok(self.0.add(Object {
            block_size: 512,
            ..Object::default()
        }))
    }

    fn set_bonus(&self, object: ObjectId, bytes: &[u8]) -> Result<()> {
        self.0.burn()?;
        self.0.with(object, |o| o.bonus = bytes.to_vec())
    }

    fn write_at(&self, object: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.burn()?;
        self.0.with(object, |o| {
            let end = offset as usize + bytes.len();
            if o.data.len() < end {
                o.data.resize(end, 0);
            }
            o.data[offset as usize..end].copy_from_slice(bytes);
        })
    }

    fn truncate(&self, object: ObjectId, block: u64) -> Result<()> {
        self.0.burn()?;
        self.0.with(object, |o| {
            o.data.truncate(block as usize * o.block_size as usize)
        })
    }

    fn free(&self, object: ObjectId) -> Result<()> {
        self.0.burn()?;
        self.0.with(object, |_| ())?;
        self.0.objects.lock().remove(&object.0);
        Ok(())
    }

    fn add_name(&self, zap: ObjectId, name: &str, value: u64) -> Result<()> {
        self.0.burn()?;
        let old = self
            .0
            .with(zap, |o| o.names.insert(name.to_owned(), value))?;
        old.map_or(Ok(()), |_| Err(Error::refused(Errno::EXIST, name)))
    }

    fn remove_name(&self, zap: ObjectId, name: &str) -> Result<()> {
        self.0.burn()?;
        let removed = self.0.with(zap, |o| o.names.remove(name))?;
        removed
            .map(|_| ())
            .ok_or_else(|| Error::refused(Errno::NOENT, name))
    }
}

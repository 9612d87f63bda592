//! Space maps in the real MOS.

use std::sync::Arc;

use zuse_base::{Error, ObjectId, Result, Txg};
use zuse_dmu::zap::Zap;
use zuse_dmu::{DnodeSpec, Objset, Tx};
use zuse_format::object_type;
use zuse_format::space_map::{HEADER_SIZE, HEADER_SIZE_V0};

use super::{MapShape, MapStore, MapWriter, StoredObject};

/// log2 of the indirect blocks of space maps.
const INDIRECT_SHIFT: u8 = 14;

/// Reads from the MOS.
pub struct MosStore(Arc<Objset>);

impl MosStore {
    /// A store on an open MOS.
    pub fn new(mos: &Arc<Objset>) -> Self {
        Self(Arc::clone(mos))
    }
}

impl MapStore for MosStore {
    fn open(&self, object: ObjectId) -> Result<StoredObject> {
        let dnode = self.0.dnode(object)?;
        Ok(StoredObject {
            object_type: dnode.object_type(),
            block_size: dnode.block_size(),
            blocks: dnode.max_block().saturating_add(1),
            bonus: dnode.bonus_vec(),
        })
    }

    fn read_block(
        &self,
        object: ObjectId,
        block: u64,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.0
            .dnode(object)?
            .with_block(block, |view| visit(view.bytes()))?
    }

    fn prefetch(&self, object: ObjectId, blocks: u64) {
        // Only a hint: the reads that follow report errors.
        if let Ok(dnode) = self.0.dnode(object) {
            dnode.prefetch(0, blocks);
        }
    }

    fn read_at(&self, object: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.dnode(object)?.read_at(offset, buf)
    }

    fn read_zap(
        &self,
        zap: ObjectId,
        visit: &mut dyn FnMut(&str, u64) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = Zap::open(&self.0.dnode(zap)?)?.cursor(0);
        while let Some(entry) = cursor.next()? {
            let place = || format!("MOS object {zap}");
            let name = str::from_utf8(&entry.name)
                .map_err(|_| Error::corrupt(place(), "a name is no text"))?;
            let value = entry
                .value
                .first()
                .ok_or_else(|| Error::corrupt(place(), format!("{name:?} has no value")))?;
            visit(name, value)?;
        }
        Ok(())
    }
}

/// Changes the MOS in the syncing txg.
pub struct MosWriter<'a> {
    mos: &'a Arc<Objset>,
    tx: &'a Tx,
}

impl<'a> MosWriter<'a> {
    /// A writer for the syncing transaction.
    pub fn new(mos: &'a Arc<Objset>, tx: &'a Tx) -> Self {
        debug_assert!(tx.is_syncing(), "the MOS changes only in syncing context");
        Self { mos, tx }
    }
}

impl MapWriter for MosWriter<'_> {
    fn txg(&self) -> Txg {
        self.tx.txg()
    }

    fn create_map(&self, shape: MapShape) -> Result<ObjectId> {
        let header = if shape.histogram {
            HEADER_SIZE
        } else {
            HEADER_SIZE_V0
        };
        let spec = DnodeSpec::new(object_type::SPACE_MAP)
            .bonus(object_type::SPACE_MAP_HEADER, header as u16)
            .block_size(shape.block_size)
            .indirect_shift(INDIRECT_SHIFT);
        Ok(self.mos.allocate(self.tx, &spec)?.object())
    }

    fn create_array(&self) -> Result<ObjectId> {
        Ok(self
            .mos
            .allocate(self.tx, &DnodeSpec::new(object_type::OBJECT_ARRAY))?
            .object())
    }

    fn set_bonus(&self, object: ObjectId, bytes: &[u8]) -> Result<()> {
        self.mos.dnode(object)?.set_bonus(self.tx, bytes)
    }

    fn write_at(&self, object: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.mos.dnode(object)?.write_at(self.tx, offset, bytes)
    }

    fn truncate(&self, object: ObjectId, block: u64) -> Result<()> {
        self.mos
            .dnode(object)?
            .free_blocks(self.tx, block, u64::MAX)
    }

    fn free(&self, object: ObjectId) -> Result<()> {
        self.mos.free(self.tx, object)
    }

    fn add_name(&self, zap: ObjectId, name: &str, value: u64) -> Result<()> {
        Zap::open(&self.mos.dnode(zap)?)?.add_u64(self.tx, name.as_bytes(), value)
    }

    fn remove_name(&self, zap: ObjectId, name: &str) -> Result<()> {
        Zap::open(&self.mos.dnode(zap)?)?.remove(self.tx, name.as_bytes())
    }
}

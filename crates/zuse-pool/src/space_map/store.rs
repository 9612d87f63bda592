//! Access to space maps: the few operations on MOS objects that they need.
//!
//! Two traits, because reading happens at any time from any thread while writing happens only in
//! the syncing txg. [`MosStore`](super::MosStore) and [`MosWriter`](super::MosWriter) use the real
//! MOS; tests use a map of byte vectors.

use zuse_base::{ObjectId, Result, Txg};

/// Properties of an object, read before its blocks.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// Dnode type.
    pub object_type: u8,
    /// Bytes of a data block.
    pub block_size: u32,
    /// Number of data blocks, holes included.
    pub blocks: u64,
    /// The bonus, little-endian.
    pub bonus: Vec<u8>,
}

/// The format of a new space map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    /// Bytes of a data block: 16 KiB or 128 KiB.
    pub block_size: u32,
    /// Whether the header carries a histogram (feature `spacemap_histogram`).
    pub histogram: bool,
}

/// Reads objects. Called from any thread, also from inside the sync that writes the same objects.
pub trait MapStore: Send + Sync {
    /// Looks at an object.
    ///
    /// # Errors
    /// The object does not exist, or its dnode cannot be read.
    fn open(&self, object: ObjectId) -> Result<StoredObject>;

    /// Passes one block, little-endian, to `visit`, which must not read other objects.
    ///
    /// # Errors
    /// The block cannot be read, or `visit` refuses it.
    fn read_block(
        &self,
        object: ObjectId,
        block: u64,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;

    /// Begins to read the first blocks, if the store supports that.
    fn prefetch(&self, _object: ObjectId, _blocks: u64) {}

    /// Fills `buf` from a byte offset; zeros after the end.
    ///
    /// # Errors
    /// A block cannot be read.
    fn read_at(&self, object: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Passes the names and single numbers of a ZAP to `visit`.
    ///
    /// # Errors
    /// The ZAP cannot be read, or `visit` refuses an entry.
    fn read_zap(&self, zap: ObjectId, visit: &mut dyn FnMut(&str, u64) -> Result<()>)
    -> Result<()>;
}

/// Changes objects, in one syncing txg.
pub trait MapWriter {
    /// The txg that is being synced.
    fn txg(&self) -> Txg;

    /// Creates an empty space map object with a zeroed header.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn create_map(&self, shape: MapShape) -> Result<ObjectId>;

    /// Makes an empty metaslab array.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn create_array(&self) -> Result<ObjectId>;

    /// Replaces the bonus.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn set_bonus(&self, object: ObjectId, bytes: &[u8]) -> Result<()>;

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn write_at(&self, object: ObjectId, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Drops all data blocks from `block` on.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn truncate(&self, object: ObjectId, block: u64) -> Result<()>;

    /// Frees an object and its blocks.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    fn free(&self, object: ObjectId) -> Result<()>;

    /// Adds a name with a number to a ZAP.
    ///
    /// # Errors
    /// The name is there already, or the MOS cannot be changed.
    fn add_name(&self, zap: ObjectId, name: &str, value: u64) -> Result<()>;

    /// Removes a name from a ZAP.
    ///
    /// # Errors
    /// The name is not there, or the MOS cannot be changed.
    fn remove_name(&self, zap: ObjectId, name: &str) -> Result<()>;
}

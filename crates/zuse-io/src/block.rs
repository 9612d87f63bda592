//! One block in memory: decoded, little-endian, shared and immutable, with room for one index.

use std::any::Any;
use std::ops::Deref;
use std::sync::OnceLock;

use zuse_device::Fresh;

/// Something derived from a block's bytes and kept with them, such as a microzap's hash order.
///
/// It is dropped with the block and counted in the cache's budget.
pub trait BlockIndex: Any + Send + Sync {
    /// A copy for a copy-on-write version of the block.
    fn clone_index(&self) -> Box<dyn BlockIndex>;
    /// Bytes of memory it holds.
    fn footprint(&self) -> usize;
    /// For downcasting.
    fn as_any(&self) -> &dyn Any;
    /// For downcasting.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl From<Fresh> for Block {
    fn from(fresh: Fresh) -> Self {
        let (memory, lead) = fresh.into_memory();
        Self {
            memory,
            lead,
            index: OnceLock::new(),
        }
    }
}

/// The bytes of one block and, once a caller asked for it, their index.
pub struct Block {
    memory: Vec<u8>,
    /// Where in it the bytes begin.
    lead: usize,
    index: OnceLock<Box<dyn BlockIndex>>,
}

impl Block {
    /// A block from its decoded bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self::with_index(bytes, None)
    }

    /// A block whose index is already known.
    pub fn with_index(bytes: Vec<u8>, index: Option<Box<dyn BlockIndex>>) -> Self {
        let cell = OnceLock::new();
        if let Some(index) = index {
            let _ = cell.set(index);
        }
        Self {
            memory: bytes,
            lead: 0,
            index: cell,
        }
    }

    /// The decoded bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.memory.get(self.lead..).unwrap_or_default()
    }

    /// The index of type `I`, built by `build` the first time. `None` if an index of another type
    /// is there.
    #[inline]
    pub fn index<I: BlockIndex>(&self, build: impl FnOnce(&[u8]) -> I) -> Option<&I> {
        self.index
            .get_or_init(|| Box::new(build(self.bytes())))
            .as_any()
            .downcast_ref()
    }

    /// The index, if one has been built.
    pub fn built_index(&self) -> Option<&dyn BlockIndex> {
        self.index.get().map(|b| &**b)
    }

    /// Bytes of memory the block and its index hold.
    pub fn footprint(&self) -> usize {
        const OVERHEAD: usize = 160;
        self.memory.capacity() + self.index.get().map_or(0, |i| i.footprint()) + OVERHEAD
    }
}

impl Deref for Block {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.get(self.lead..).unwrap_or_default()
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} bytes)", self.bytes().len())
    }
}

//! The level-0 blocks of one object that one txg writes, by their number.
//!
//! Most objects have one: it stands here by itself. A tree begins with a node for eleven, 192 bytes of which one entry uses 16; over
//! the objects that a txg brings that is a tenth of their memory.
//!
//! Of many, the address of its bytes stands beside each: who knows which lines he is going to read of a block asks for them while
//! the block itself is fetched. A name for a directory of a million waits for memory once then, not for the block, the leaf's
//! header and its bucket one after the other. The address is a hint: the bytes may have moved.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dirty::DirtyBlock;

/// A block, and where its bytes are.
pub(crate) struct Version {
    block: Arc<DirtyBlock>,
    bytes_at: usize,
}

impl From<Arc<DirtyBlock>> for Version {
    fn from(block: Arc<DirtyBlock>) -> Self {
        let bytes_at = block.bytes_at();
        Self { block, bytes_at }
    }
}

/// Dirty blocks by number, in order.
// The map by itself would make every object of one block a word larger.
#[allow(clippy::box_collection)]
#[derive(Default)]
pub(crate) enum Versions {
    #[default]
    None,
    One(u64, Arc<DirtyBlock>),
    Many(Box<BTreeMap<u64, Version>>),
}

impl Versions {
    /// The block of a number.
    #[inline]
    pub fn get(&self, blkid: u64) -> Option<&Arc<DirtyBlock>> {
        match self {
            Self::One(id, block) if *id == blkid => Some(block),
            Self::Many(blocks) => blocks.get(&blkid).map(|v| &v.block),
            _ => None,
        }
    }

    /// As [`Self::get`], where the first bytes of the block and those at `soon` will be needed next.
    #[inline]
    pub fn get_soon(&self, blkid: u64, soon: usize) -> Option<&Arc<DirtyBlock>> {
        let Self::Many(blocks) = self else {
            return self.get(blkid);
        };
        let there = blocks.get(&blkid)?;
        if there.bytes_at != 0 {
            zuse_codec::read_soon_at(there.bytes_at);
            zuse_codec::read_soon_at(there.bytes_at.wrapping_add(soon));
        }
        Some(&there.block)
    }

    /// Puts a block in its place, where another one may have been.
    pub fn insert(&mut self, blkid: u64, block: Arc<DirtyBlock>) {
        match self {
            Self::None => *self = Self::One(blkid, block),
            Self::One(id, there) if *id == blkid => *there = block,
            Self::One(..) => {
                let mut blocks = BTreeMap::new();
                if let Self::One(id, there) = std::mem::take(self) {
                    blocks.insert(id, there.into());
                }
                blocks.insert(blkid, block.into());
                *self = Self::Many(Box::new(blocks));
            }
            Self::Many(blocks) => {
                blocks.insert(blkid, block.into());
            }
        }
    }

    /// The first number in `first..end`.
    pub fn first_in(&self, first: u64, end: u64) -> Option<u64> {
        match self {
            Self::One(id, _) => (first..end).contains(id).then_some(*id),
            Self::Many(blocks) if first < end => blocks.range(first..end).next().map(|(id, _)| *id),
            _ => None,
        }
    }

    /// Drops the blocks in `first..end`; says how many there were.
    pub fn remove(&mut self, first: u64, end: u64) -> usize {
        match self {
            Self::One(id, _) if (first..end).contains(id) => {
                *self = Self::None;
                1
            }
            Self::Many(blocks) if first < end => {
                let gone: Vec<u64> = blocks.range(first..end).map(|(id, _)| *id).collect();
                for id in &gone {
                    blocks.remove(id);
                }
                gone.len()
            }
            _ => 0,
        }
    }

    /// All of them, in order.
    pub fn to_vec(&self) -> Vec<(u64, Arc<DirtyBlock>)> {
        match self {
            Self::None => Vec::new(),
            Self::One(id, block) => vec![(*id, block.clone())],
            Self::Many(blocks) => blocks
                .iter()
                .map(|(id, v)| (*id, v.block.clone()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Arc<DirtyBlock> {
        DirtyBlock::new(vec![byte], None, None)
    }

    fn ids(v: &Versions) -> Vec<u64> {
        v.to_vec().iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn it_does_as_a_map_does() {
        let (mut versions, mut map) = (Versions::default(), BTreeMap::new());
        let mut seed = 7u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let (id, end) = ((seed >> 33) % 12, (seed >> 40) % 14);
            match (seed >> 50) % 4 {
                0 | 1 => {
                    let new = block(id as u8);
                    versions.insert(id, new.clone());
                    map.insert(id, new);
                }
                _ => {
                    let gone: Vec<u64> = map
                        .keys()
                        .copied()
                        .filter(|k| (id..end).contains(k))
                        .collect();
                    assert_eq!(versions.remove(id, end), gone.len());
                    map.retain(|k, _| !gone.contains(k));
                }
            }
            assert_eq!(ids(&versions), map.keys().copied().collect::<Vec<_>>());
            for k in 0..14 {
                let soon = versions.get_soon(k, 64).map(Arc::as_ptr);
                assert_eq!(soon, versions.get(k).map(Arc::as_ptr));
                let same = match (versions.get(k), map.get(&k)) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (None, None) => true,
                    _ => false,
                };
                assert!(same, "block {k}");
                let first = map.keys().copied().find(|i| (k..end).contains(i));
                assert_eq!(versions.first_in(k, end), first);
            }
        }
    }
}

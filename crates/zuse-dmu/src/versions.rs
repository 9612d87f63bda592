//! The dirty level-0 blocks of one object in one txg, by their number.
//!
//! ```text
//!   one block    by itself
//!   more         rows of 16 by number ─► block      where they lie close enough for that
//!                far: a tree                        the others, all of higher numbers
//! ```
//! - Most objects have one block, which is stored inline. A B-tree begins with a node for eleven
//!   entries, 192 bytes. For one block that would waste a tenth of the object's memory.
//! - A directory of a million names has some thousand leaves, and each new name goes to another
//!   leaf. A tree costs two or three cache misses, a row one.
//! - The table of rows is at most [`SPARSE`] times as long as the number of rows (and at least
//!   [`FIRST`]). So a few blocks of a large file do not make it long. Such blocks stay in the tree
//!   until there are many.
//! - The address of its bytes is stored next to each block. So the bytes that will be read are
//!   prefetched into the processor's caches together with the block's header. The address is a
//!   hint: the bytes may have moved.
//!
//! Invariant: a block in `far` has a higher number than any block in the rows' range. Asserted at
//! insertion.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dirty::DirtyBlock;

/// log2 of the blocks of a row.
const ROW: u32 = 4;
/// Table entries per existing row, at most.
const SPARSE: usize = 8;
/// Table entries that are always allowed.
const FIRST: usize = 16;

/// A block, and the address of its bytes.
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

type Row = [Option<Version>; 1 << ROW];

/// Dirty blocks by number, in order.
#[derive(Default)]
pub(crate) enum Versions {
    #[default]
    None,
    One(u64, Arc<DirtyBlock>),
    Many(Box<Table>),
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Option<Box<Row>>>,
    /// Number of existing rows.
    used: usize,
    far: BTreeMap<u64, Version>,
}

/// The row of a number, and its index in the row.
#[inline]
fn place(blkid: u64) -> (usize, usize) {
    let row = usize::try_from(blkid >> ROW).unwrap_or(usize::MAX);
    (row, (blkid & ((1 << ROW) - 1)) as usize)
}

impl Table {
    #[inline]
    fn get(&self, blkid: u64) -> Option<&Version> {
        let (row, at) = place(blkid);
        match self.rows.get(row) {
            Some(Some(row)) => row[at].as_ref(),
            Some(None) => None,
            None if self.far.is_empty() => None,
            None => self.far.get(&blkid),
        }
    }

    fn insert(&mut self, blkid: u64, version: Version) {
        let (row, _) = place(blkid);
        if row >= self.rows.len() && row < FIRST.max(SPARSE * self.used + self.far.len() / 2) {
            self.rows.resize_with(row + 1, || None);
            // What is now in the range of the rows leaves the tree (invariant).
            let end = (row as u64 + 1) << ROW;
            let rest = self.far.split_off(&end);
            for (id, version) in std::mem::replace(&mut self.far, rest) {
                self.put(id, version);
            }
        }
        self.put(blkid, version);
    }

    fn put(&mut self, blkid: u64, version: Version) {
        let (row, at) = place(blkid);
        let Some(row) = self.rows.get_mut(row) else {
            self.far.insert(blkid, version);
            return;
        };
        debug_assert!(
            self.far.keys().next().is_none_or(|first| *first > blkid),
            "block {blkid} in a row, and lower ones in the tree"
        );
        let row = row.get_or_insert_with(|| {
            self.used += 1;
            Box::default()
        });
        row[at] = Some(version);
    }

    /// All of `first..end`, in order.
    fn range(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, &Version)> {
        let (from, _) = place(first);
        let (to, _) = place(end.saturating_add((1 << ROW) - 1));
        let to = to.min(self.rows.len());
        let rows = self.rows.get(from.min(to)..to).unwrap_or_default();
        let near = (from as u64..).zip(rows).flat_map(|(n, row)| {
            let row = row.as_deref().map_or(&[][..], |row| &row[..]);
            (n << ROW..).zip(row)
        });
        let near = near.filter_map(|(id, v)| Some((id, v.as_ref()?)));
        let far = self.far.range(first..end.max(first));
        near.filter(move |(id, _)| (first..end).contains(id))
            .chain(far.map(|(id, v)| (*id, v)))
    }

    fn remove(&mut self, blkid: u64) {
        let (row, at) = place(blkid);
        match self.rows.get_mut(row) {
            Some(Some(row)) => row[at] = None,
            Some(None) => {}
            None => {
                self.far.remove(&blkid);
            }
        }
    }
}

impl Versions {
    /// The block of a number.
    #[inline]
    pub fn get(&self, blkid: u64) -> Option<&Arc<DirtyBlock>> {
        match self {
            Self::One(id, block) if *id == blkid => Some(block),
            Self::Many(blocks) => blocks.get(blkid).map(|v| &v.block),
            _ => None,
        }
    }

    /// As [`Self::get`], and prefetches the first bytes of the block and those at `soon`.
    #[inline]
    pub fn get_soon(&self, blkid: u64, soon: usize) -> Option<&Arc<DirtyBlock>> {
        let Self::Many(blocks) = self else {
            return self.get(blkid);
        };
        let there = blocks.get(blkid)?;
        if there.bytes_at != 0 {
            zuse_codec::read_soon_at(there.bytes_at);
            zuse_codec::read_soon_at(there.bytes_at.wrapping_add(soon));
        }
        Some(&there.block)
    }

    /// Prefetches the memory that [`Self::expect`] will read, some time before.
    #[inline]
    pub fn expect_place(&self, blkid: u64) {
        if let Self::Many(blocks) = self {
            let (row, at) = place(blkid);
            if let Some(Some(row)) = blocks.rows.get(row) {
                zuse_codec::read_soon_at(std::ptr::from_ref(&row[at]).addr());
            }
        }
    }

    /// Prefetches a block's header, its first bytes and those at `soon`, for use some time later.
    pub fn expect(&self, blkid: u64, soon: usize) {
        if let Self::Many(blocks) = self
            && let Some(there) = blocks.get(blkid)
        {
            // The reference counts are stored before the block.
            let block = Arc::as_ptr(&there.block).addr();
            zuse_codec::read_soon_at(block.wrapping_sub(16));
            zuse_codec::read_soon_at(block.wrapping_add(48));
            if there.bytes_at != 0 {
                zuse_codec::read_soon_at(there.bytes_at);
                zuse_codec::read_soon_at(there.bytes_at.wrapping_add(soon));
            }
        }
    }

    /// Inserts a block, or replaces the one at its number.
    pub fn insert(&mut self, blkid: u64, block: Arc<DirtyBlock>) {
        match self {
            Self::None => *self = Self::One(blkid, block),
            Self::One(id, there) if *id == blkid => *there = block,
            Self::One(..) => {
                let mut blocks = Box::<Table>::default();
                if let Self::One(id, there) = std::mem::take(self) {
                    blocks.insert(id, there.into());
                }
                blocks.insert(blkid, block.into());
                *self = Self::Many(blocks);
            }
            Self::Many(blocks) => blocks.insert(blkid, block.into()),
        }
    }

    /// The first number in `first..end`.
    pub fn first_in(&self, first: u64, end: u64) -> Option<u64> {
        match self {
            Self::One(id, _) => (first..end).contains(id).then_some(*id),
            Self::Many(blocks) => blocks.range(first, end).next().map(|(id, _)| id),
            Self::None => None,
        }
    }

    /// Drops the blocks in `first..end`; returns how many there were.
    pub fn remove(&mut self, first: u64, end: u64) -> usize {
        match self {
            Self::One(id, _) if (first..end).contains(id) => {
                *self = Self::None;
                1
            }
            Self::Many(blocks) => {
                let gone: Vec<u64> = blocks.range(first, end).map(|(id, _)| id).collect();
                for id in &gone {
                    blocks.remove(*id);
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
            Self::Many(blocks) => {
                let mut all: Vec<_> = blocks
                    .range(0, u64::MAX)
                    .map(|(id, v)| (id, v.block.clone()))
                    .collect();
                all.shrink_to_fit();
                all
            }
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
        // Dense, with a few rows, and scattered.
        for (step, rounds) in [(1, 4000), (13, 1000), (70, 1000), (1 << 40, 1000)] {
            does_as_a_map_does(step, rounds);
        }
    }

    fn does_as_a_map_does(step: u64, rounds: u64) {
        let (mut versions, mut map) = (Versions::default(), BTreeMap::new());
        let mut seed = 7u64;
        for _ in 0..rounds {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let many = if step == 1 { 12 } else { 60 };
            let (id, end) = ((seed >> 33) % many * step, (seed >> 40) % (many + 2) * step);
            match (seed >> 50) % 4 {
                0 | 1 => {
                    let new = block(id as u8);
                    versions.insert(id, new.clone());
                    map.insert(id, new);
                }
                _ if step > 1 && !(seed >> 52).is_multiple_of(8) => {}
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
            for k in (0..many + 2).map(|k| k * step) {
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

    #[test]
    #[should_panic(expected = "block 17 in a row, and lower ones in the tree")]
    fn a_low_number_in_the_tree_is_noticed() {
        let mut table = Table::default();
        table.insert(16, block(1).into());
        table.far.insert(3, block(2).into());
        table.insert(17, block(3).into());
    }

    /// Sixteen entries per row, and a table no longer than its content justifies.
    #[test]
    fn a_few_distant_blocks_make_no_long_table() {
        let mut versions = Versions::default();
        for id in [0, 1 << 20, 1 << 40, u64::MAX - 1] {
            versions.insert(id, block(1));
        }
        let Versions::Many(table) = &versions else {
            panic!("four blocks")
        };
        assert!(table.rows.len() <= FIRST && table.far.len() == 3);
        // All blocks are close in the end, so they move out of the tree.
        for id in (0..20_000).rev() {
            versions.insert(id * 2 % 20_000 + id / 10_000, block(2));
        }
        let Versions::Many(table) = &versions else {
            panic!("many blocks")
        };
        assert_eq!((table.used, table.far.len()), (1250, 3));
        assert_eq!(versions.to_vec().len(), 20_003);
        assert_eq!(versions.first_in(20_000, u64::MAX), Some(1 << 20));
        assert_eq!(versions.remove(5, 1 << 20), 19_995);
    }
}

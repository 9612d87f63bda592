//! The pointer table: embedded in block 0, or in blocks of its own. It doubles by one source block
//! per step.
//!
//! While it grows, lookups use the old table and stores go to both. Entry i of the old table
//! corresponds to entries 2i and 2i+1 of the new one, whether that part is copied yet or not.

use super::super::flaw::{Checked, Flaw};
use super::super::header::Header;
use super::super::store::{Blocks, BlocksMut};
use super::{header, store_header};
use zuse_base::{Errno, Error, Result};

#[inline]
fn word(b: &[u8], at: usize) -> Checked<u64> {
    b.get(at..at + 8)
        .and_then(|s| s.try_into().ok())
        .map(u64::from_le_bytes)
        .ok_or(Flaw("a ZAP pointer beyond its table block"))
}

/// The pointer at an index, read from its block.
pub(super) fn pointer_in(h: &Header, b: &[u8], index: u64) -> Checked<u64> {
    h.check_leaf(word(b, h.pointer_place(index).1)?)
}

/// The pointer at an index; 0 means no leaf.
pub(super) fn pointer<S: Blocks>(s: &S, h: &Header, index: u64) -> Result<u64> {
    s.view_by_shortcut(h.pointer_place(index).0, |b| pointer_in(h, b, index))
}

/// The pointer at an index (0: no leaf), and how many hash bits its leaf covers, judging by the
/// neighbours. All pointers in a leaf's range are equal, and up to eight are in one cache line. The
/// exact number is in the leaf; this one is known earlier.
#[inline]
pub(super) fn pointer_and_depth<S: Blocks>(s: &S, h: &Header, index: u64) -> Result<(u64, u32)> {
    let (blkid, at) = h.pointer_place(index);
    s.view_by_shortcut(blkid, |b| pointer_and_depth_in(h, b, at))
}

/// As [`pointer_and_depth`], for a leaf that will be changed soon.
#[inline]
pub(super) fn prefetch_target<S: Blocks>(s: &S, h: &Header, index: u64) -> Result<(u64, u32)> {
    let (blkid, at) = h.pointer_place(index);
    s.prefetch_target(blkid, |b| pointer_and_depth_in(h, b, at))
}

#[inline]
fn pointer_and_depth_in(h: &Header, b: &[u8], at: usize) -> Checked<(u64, u32)> {
    let mine = word(b, at)?;
    let mut depth = h.shift;
    for step in [8, 16, 32] {
        if depth == 0 || word(b, at ^ step)? != mine {
            break;
        }
        depth -= 1;
    }
    Ok((h.check_leaf(mine)?, depth))
}

/// The pointer at an index and the next few different ones after it (0 for missing ones).
pub(super) fn pointer_and_ahead<S: Blocks>(
    s: &S,
    h: &Header,
    index: u64,
) -> Result<(u64, [u64; 4])> {
    let (blkid, at) = h.pointer_place(index);
    s.view_by_shortcut(blkid, |b| {
        let first = h.check_leaf(word(b, at)?)?;
        let mut ahead = [0; 4];
        let (mut n, mut last) = (0, first);
        for w in b[at..].as_chunks::<8>().0 {
            let p = u64::from_le_bytes(*w);
            if p != last {
                last = p;
                ahead[n] = p;
                n += 1;
                if n == ahead.len() {
                    break;
                }
            }
        }
        Ok((first, ahead))
    })
}

/// Checks, before anything is changed, that a range of pointers is readable and leads to one leaf.
///
/// A hostile table ends here: its first wrong pointer stops the walk.
pub(super) fn must_be<S: Blocks>(
    s: &S,
    h: &Header,
    first: u64,
    count: u64,
    leaf: u64,
) -> Result<()> {
    let shift = if h.table_blocks == 0 {
        h.block_shift - 4
    } else {
        h.table_block_shift()
    };
    let end = first + count;
    let mut i = first;
    while i < end {
        let (blkid, at) = h.pointer_place(i);
        let here = ((1 << shift) - i % (1 << shift)).min(end - i);
        s.view(blkid, |b| {
            let part = b
                .get(at..at + here as usize * 8)
                .ok_or(Flaw("a ZAP pointer beyond its table block"))?;
            if part
                .as_chunks::<8>()
                .0
                .iter()
                .all(|p| *p == leaf.to_le_bytes())
            {
                Ok(())
            } else {
                Err(Flaw(
                    "a range of ZAP pointers that lead to different leaves",
                ))
            }
        })?;
        i += here;
    }
    Ok(())
}

fn fill<S: BlocksMut>(
    s: &S,
    place: impl Fn(u64) -> (u64, usize),
    per_block: u64,
    first: u64,
    count: u64,
    leaf: u64,
) -> Result<()> {
    let end = first + count;
    let mut i = first;
    while i < end {
        let (blkid, at) = place(i);
        let here = (per_block - i % per_block).min(end - i);
        s.edit(blkid, |b| {
            let part = b
                .get_mut(at..at + here as usize * 8)
                .ok_or(Flaw("a ZAP pointer beyond its table block"))?;
            for p in part.as_chunks_mut::<8>().0 {
                *p = leaf.to_le_bytes();
            }
            Ok(())
        })?;
        i += here;
    }
    Ok(())
}

/// Sets a range of pointers to a leaf, in the table and in the one it is growing into.
pub(super) fn set_range<S: BlocksMut>(
    s: &S,
    h: &Header,
    first: u64,
    count: u64,
    leaf: u64,
) -> Result<()> {
    let shift = if h.table_blocks == 0 {
        h.block_shift - 4
    } else {
        h.table_block_shift()
    };
    fill(s, |i| h.pointer_place(i), 1 << shift, first, count, leaf)?;
    // Even where it is not copied yet: a later copy writes the same (03-zap §4.2).
    if h.next_table != 0 {
        let shift = h.table_block_shift();
        let place = |i: u64| {
            (
                h.next_table + (i >> shift),
                (i & ((1 << shift) - 1)) as usize * 8,
            )
        };
        fill(s, place, 1 << shift, 2 * first, 2 * count, leaf)?;
    }
    Ok(())
}

/// Whether the table may be doubled at all.
pub(super) fn may_grow(h: &Header) -> bool {
    h.shift < h.hash_bits().0 - 2
}

fn doubled(half: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(half.len() * 2);
    for p in half.as_chunks::<8>().0 {
        out.extend_from_slice(p);
        out.extend_from_slice(p);
    }
    out
}

/// One step of growth: out of block 0 in one go, or one source block of the doubling.
pub(super) fn grow_step<S: BlocksMut>(s: &S, h: &mut Header) -> Result<()> {
    if !may_grow(h) {
        return Err(Error::refused(
            Errno::NOSPC,
            "the ZAP's pointer table cannot grow any more",
        ));
    }
    let middle = 1usize << (h.block_shift - 1);
    if h.table_blocks == 0 {
        let table = s.view(0, |b| Ok(doubled(&b[middle..])))?;
        h.table = h.freeblk;
        h.freeblk += 1;
        h.table_blocks = 1;
        h.shift += 1;
        s.write(h.table, table)?;
        return store_header(s, h);
    }
    let source = h.table + h.copied;
    let (low, high) = s.view(source, |b| {
        Ok((doubled(&b[..middle]), doubled(&b[middle..])))
    })?;
    // A zero would lead to block 0, the header.
    if low.as_chunks::<8>().0.contains(&[0; 8]) || high.as_chunks::<8>().0.contains(&[0; 8]) {
        return Err(s.corrupt(
            source,
            Flaw("a ZAP pointer table without a leaf for a hash"),
        ));
    }
    if h.next_table == 0 {
        h.next_table = h.freeblk;
        h.freeblk += 2 * h.table_blocks;
        h.copied = 0;
    }
    let target = h.next_table + 2 * h.copied;
    s.write(target, low)?;
    s.write(target + 1, high)?;
    h.copied += 1;
    if h.copied == h.table_blocks {
        // Until here, lookups used the old table (03-zap §4.2).
        s.free(h.table, h.table_blocks)?;
        h.table = h.next_table;
        h.table_blocks *= 2;
        h.shift += 1;
        h.next_table = 0;
        h.copied = 0;
    }
    store_header(s, h)
}

/// Table blocks that are searched for the new end of the ZAP, at most.
const SCAN_BLOCKS: u64 = 64;

/// After the last used block was freed: lowers `freeblk` to one more than the highest used block.
pub(super) fn lower_end<S: Blocks>(s: &S, h: &mut Header) -> Result<()> {
    if h.table_blocks > SCAN_BLOCKS || h.next_table != 0 {
        // A long table is not searched: only the freed block goes.
        h.freeblk -= 1;
        return Ok(());
    }
    let mut highest = (h.table + h.table_blocks).saturating_sub(1);
    let (first, offset) = h.pointer_place(0);
    for blkid in first..first + h.table_blocks.max(1) {
        highest = s.view(blkid, |b| {
            let words = b.get(offset..).unwrap_or(&[]).as_chunks::<8>().0;
            Ok(words
                .iter()
                .map(|w| u64::from_le_bytes(*w))
                .fold(highest, u64::max))
        })?;
    }
    h.freeblk = h.freeblk.min(highest + 1);
    Ok(())
}

/// Header facts for statistics.
pub(crate) fn facts<S: Blocks>(s: &S) -> Result<Header> {
    header(s)
}

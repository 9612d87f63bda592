//! Splitting leaves that are too full, and merging siblings that became small.

use super::super::hash::top_bits;
use super::super::header::Header;
use super::super::leaf::{Leaf, LeafMut};
use super::super::store::{Blocks, BlocksMut};
use super::{store_header, table};
use zuse_base::Result;

fn prefix_of<S: Blocks>(s: &S, blkid: u64, hash: u64) -> Result<(u64, u32)> {
    s.view(blkid, |b| {
        let leaf = Leaf::parse(b)?;
        leaf.must_own(hash)?;
        Ok((leaf.prefix(), leaf.prefix_len()))
    })
}

/// Splits a leaf by one more hash bit; the pointer table grows first if it cannot distinguish the
/// halves.
pub(super) fn split_leaf<S: BlocksMut>(s: &S, h: &mut Header, blkid: u64, hash: u64) -> Result<()> {
    let (prefix, len) = prefix_of(s, blkid, hash)?;
    while len >= h.shift {
        table::grow_step(s, h)?;
    }
    let range = 1u64 << (h.shift - len - 1);
    let upper = ((prefix << 1) | 1) << (h.shift - len - 1);
    table::must_be(s, h, upper, range, blkid)?;
    let words = h.has_word_keys();
    let mut other = vec![0; 1 << h.block_shift];
    s.edit(blkid, |b| LeafMut::parse(b)?.split(&mut other, words))?;
    // Only now: a leaf with a flaw leaves no block in use to which no pointer leads.
    let new = h.freeblk;
    s.write(new, other)?;
    h.freeblk += 1;
    h.leafs += 1;
    table::set_range(s, h, upper, range, new)?;
    store_header(s, h)
}

/// Whether to look for a sibling to merge with: at few sizes only, so that few removals pay for it.
pub(super) fn is_small(leaf: &Leaf<'_>) -> bool {
    let n = leaf.entries();
    leaf.prefix_len() > 0
        && (n == 0 || n.is_power_of_two())
        && leaf.used() <= leaf.geometry().chunks() / 4
}

/// Merges a leaf with its sibling while together they fill at most half a leaf.
///
/// Other implementations merge empty siblings only; the format allows both. This way a directory
/// that lost most of its names frees space before it loses all.
pub(super) fn merge_small<S: BlocksMut>(
    s: &S,
    h: &mut Header,
    blkid: u64,
    hash: u64,
) -> Result<()> {
    let words = h.has_word_keys();
    let mut mine = blkid;
    loop {
        let (prefix, len, used) = s.view(mine, |b| {
            let leaf = Leaf::parse(b)?;
            leaf.must_own(hash)?;
            Ok((leaf.prefix(), leaf.prefix_len(), leaf.used()))
        })?;
        if len == 0 || len > h.shift {
            break;
        }
        let range = 1u64 << (h.shift - len);
        let sibling_prefix = prefix ^ 1;
        let sibling = table::pointer(s, h, sibling_prefix << (h.shift - len))?;
        if sibling == 0 || sibling == mine {
            break;
        }
        let mergeable = s.view(sibling, |b| {
            let leaf = Leaf::parse(b)?;
            Ok(leaf.prefix_len() == len
                && leaf.prefix() == sibling_prefix
                && used + leaf.used() <= leaf.geometry().chunks() / 2)
        })?;
        if !mergeable {
            break;
        }
        let (even, odd) = if prefix & 1 == 0 {
            (mine, sibling)
        } else {
            (sibling, mine)
        };
        table::must_be(s, h, (prefix | 1) << (h.shift - len), range, odd)?;
        let gone = s.view(odd, |b| Ok(b.to_vec()))?;
        s.edit(even, |b| {
            LeafMut::parse(b)?.absorb(&Leaf::parse(&gone)?, words)
        })?;
        table::set_range(s, h, (prefix | 1) << (h.shift - len), range, even)?;
        s.free(odd, 1)?;
        h.leafs = h.leafs.saturating_sub(1);
        // `freeblk` stays above every block in use, so only the last block lowers it.
        if odd + 1 == h.freeblk {
            table::lower_end(s, h)?;
        }
        mine = even;
        debug_assert_eq!(top_bits(hash, len - 1), prefix >> 1);
    }
    store_header(s, h)
}

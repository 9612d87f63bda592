//! A fat ZAP built at once, of entries in the order of their hashes: what a micro ZAP becomes.
//!
//! ```text
//!   entries in order ─► chunks that each takes ─► where leaves begin ─► leaves, one after the other ─► block 0
//! ```
//! The leaves are the same that adding the entries one by one would leave behind, since a leaf
//! splits where its entries do not fit. But none is split, and they stand in the order in which
//! they are listed.
//!
//! Budget: each entry is looked at twice and copied once, each leaf is written once. One by one,
//! with the splits, an entry of 16,383 cost 0.53 µs, a fifth of making its file.

use super::super::flaw::{Checked, Flaw};
use super::super::hash::top_bits;
use super::super::header::Header;
use super::super::key::Stored;
use super::super::leaf::{Fresh, Geometry, chunks_for};

/// Is given name, value, hash and cd of an entry.
pub(crate) type Each<'a> = dyn FnMut(&[u8], u64, u64, u32) + 'a;

/// What an entry of one name with one 8-byte integer takes.
const VALUE: usize = size_of::<u64>();

/// An entry's hash, and the chunks of all entries up to this one.
type End = (u64, usize);

/// The range of one leaf, and how many entries are in it.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    prefix: u64,
    len: u32,
    entries: usize,
}

/// The blocks of a ZAP of what `list` lists, twice the same: in the order of hashes, the names not
/// empty. `None` if the pointer table does not fit into block 0, and for what one leaf holds. There
/// the order in which names came can be kept, at no cost.
pub(crate) fn grown(mut h: Header, list: &dyn Fn(&mut Each<'_>)) -> Checked<Option<Vec<Vec<u8>>>> {
    let geometry = Geometry {
        shift: h.block_shift,
    };
    let mut ends: Vec<End> = Vec::new();
    let mut taken = 0;
    list(&mut |name, _, hash, _| {
        taken += chunks_for(name.len() + 1, VALUE);
        ends.push((hash, taken));
    });
    let parts = match divide(&ends, geometry.chunks(), h.shift) {
        Some(parts) if parts.len() > 1 => parts,
        _ => return Ok(None),
    };
    h.entries = ends.len() as u64;
    h.leafs = parts.len() as u64;
    h.freeblk = h.leafs + 1;
    let mut blocks = Vec::with_capacity(parts.len() + 1);
    blocks.push(block0(&h, &parts));
    blocks.extend(parts.iter().map(|_| vec![0; 1 << h.block_shift]));
    fill(&mut blocks[1..], &parts, h.normflags != 0, list)?;
    Ok(Some(blocks))
}

/// Where leaves begin and end: halved until each one's entries fit, at most `deepest` times.
fn divide(ends: &[End], room: usize, deepest: u32) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut waiting = vec![(0u64, 0u32, 0, ends.len())];
    while let Some((prefix, len, first, end)) = waiting.pop() {
        let until = |i: usize| i.checked_sub(1).map_or(0, |i| ends[i].1);
        if until(end) - until(first) <= room {
            parts.push(Part {
                prefix,
                len,
                entries: end - first,
            });
            continue;
        }
        if len == deepest {
            return None;
        }
        let upper = (prefix << 1) | 1;
        let middle = first + ends[first..end].partition_point(|e| top_bits(e.0, len + 1) < upper);
        waiting.push((upper, len + 1, middle, end));
        waiting.push((upper - 1, len + 1, first, middle));
    }
    Some(parts)
}

/// The header and the pointers to leaves from block 1 on.
fn block0(h: &Header, parts: &[Part]) -> Vec<u8> {
    let mut block = h.new_block();
    let half = block.len() / 2;
    let (pointers, _) = block[half..].as_chunks_mut::<8>();
    for (leaf, part) in (1u64..).zip(parts) {
        let range = 1usize << (h.shift - part.len);
        let first = part.prefix as usize * range;
        pointers[first..first + range].fill(leaf.to_le_bytes());
    }
    block
}

/// Writes the leaves.
fn fill(
    leaves: &mut [Vec<u8>],
    parts: &[Part],
    sorted: bool,
    list: &dyn Fn(&mut Each<'_>),
) -> Checked<()> {
    let mut rest = leaves.iter_mut().zip(parts);
    let mut next = || match rest.next() {
        Some((leaf, part)) => {
            Fresh::begin(leaf, part.prefix, part.len, sorted).map(|leaf| (leaf, part.entries))
        }
        None => Err(Flaw("a micro ZAP whose order changes")),
    };
    let (mut leaf, mut left) = next()?;
    let mut done = Ok(());
    list(&mut |name, value, hash, cd| {
        if done.is_err() {
            return;
        }
        done = (|| {
            while left == 0 {
                let (new, entries) = next()?;
                std::mem::replace(&mut leaf, new).finish()?;
                left = entries;
            }
            left -= 1;
            leaf.put_name(name, &Stored::one(value), hash, cd)
        })();
    });
    done?;
    leaf.finish()?;
    // The leaves behind the last entry.
    for (leaf, part) in rest {
        Fresh::begin(leaf, part.prefix, part.len, sorted)?.finish()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

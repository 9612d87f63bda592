//! A micro ZAP: one block of 64-byte slots, every value one u64.
//!
//! ```text
//! header  0 type 0x8000000000000003   8 salt   16 normflags   24..64 reserved
//! slot    0 value u64   8 cd u32   12 zero u16   14 name, 50 bytes with its NUL; first byte 0 = free
//! ```
//!
//! The functions here change the bytes and the block's [`MicroIndex`] together, so that the two
//! agree.
//!
//! Budget
//! - Opening a block hashes each name once. Then one pass over the hashes places them, and a second
//!   one sorts neighbours. It takes four allocations, 8 bytes per entry.
//! - A look-up is one hash, one search in the index and one slot compared.
//! - An add or removal moves a few hundred bytes of the index and reads no other slot. It copies
//!   the block once per txg.
//!
//! Invariants: names are unique; `(hash, cd)` is unique; free slots are all zero; cd ≤ 0xffff. An
//! insertion looks for the name first. It takes the lowest free cd, asserted in the index, and a
//! free slot, asserted here. A block from disk that breaks the last two is `Corrupt`
//! ([`MicroIndex::check`]).

mod index;
pub(crate) use index::MicroIndex;

use super::flaw::{Checked, Flaw};
use super::normalize::{self, MatchType};
use super::{MICRO_TYPE, hash::HashBits};
use zuse_base::Result;
use zuse_codec::read_soon;

/// Bytes of a slot and of the header.
pub(crate) const SLOT: usize = 64;
/// Longest name without its NUL.
pub(crate) const MAX_NAME: usize = 49;
/// Block size of a new one, and the step of growth.
pub(crate) const STEP: u32 = 512;
const NAME: usize = 14;
/// Slots that a listing prefetches.
const AHEAD: usize = 8;
/// Number of entries with equal hash, the new one included, that forces the fat form. 5 × 128
/// chunks would not fit a leaf.
const MAX_TWINS: usize = 128;

/// The facts in a micro ZAP's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MicroHeader {
    pub salt: u64,
    pub normflags: u64,
    /// A later format uses the reserved bytes: such a block must not be changed.
    pub foreign: bool,
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    b.get(at..at + 8)
        .and_then(|s| s.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

impl MicroHeader {
    /// Reads the header of a block that begins with the micro type.
    pub(crate) fn parse(b: &[u8]) -> Checked<Self> {
        if b.len() < 2 * SLOT || b.len() > 1 << 24 {
            return Err(Flaw("a micro ZAP block of an impossible size"));
        }
        Ok(Self {
            salt: u64_at(b, 8),
            normflags: u64_at(b, 16),
            foreign: b[24..SLOT].iter().any(|&x| x != 0),
        })
    }
}

/// A new, empty block.
pub(crate) fn new_block(size: usize, salt: u64, normflags: u64) -> Vec<u8> {
    let mut b = vec![0; size];
    format_block(&mut b, salt, normflags);
    b
}

/// Turns a block of zeros into a new, empty micro ZAP.
pub(crate) fn format_block(b: &mut [u8], salt: u64, normflags: u64) {
    b.fill(0);
    b[..8].copy_from_slice(&MICRO_TYPE.to_le_bytes());
    b[8..16].copy_from_slice(&salt.to_le_bytes());
    b[16..24].copy_from_slice(&normflags.to_le_bytes());
}

/// How many slots a block has.
pub(crate) fn slots(b: &[u8]) -> usize {
    (b.len() / SLOT)
        .saturating_sub(1)
        .min(usize::from(u16::MAX) - 1)
}

/// One used slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    pub value: u64,
    pub cd: u32,
    pub name: &'a [u8],
}

/// The bytes of slot `i`, if the block has it.
fn slot_bytes(b: &[u8], i: usize) -> Option<&[u8; SLOT]> {
    b.as_chunks::<SLOT>().0.get(i + 1)
}

fn slot_bytes_mut(b: &mut [u8], i: usize) -> Option<&mut [u8; SLOT]> {
    b.as_chunks_mut::<SLOT>().0.get_mut(i + 1)
}

fn field(slot: &[u8; SLOT]) -> &[u8; 50] {
    slot.last_chunk().unwrap_or(&[0; 50])
}

/// The length of a name: up to its first NUL. Eight bytes at a time, because listing does this for
/// each entry.
fn name_len(field: &[u8; 50]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = field.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let w = u64::from_le_bytes(*word);
        // The lowest set bit marks the first zero byte; the bits above it mean nothing.
        let zeros = w.wrapping_sub(ONES) & !w & (ONES << 7);
        if zeros != 0 {
            return 8 * i + zeros.trailing_zeros() as usize / 8;
        }
    }
    let tail = rest.iter().position(|&c| c == 0).unwrap_or(rest.len());
    8 * words.len() + tail
}

/// Slot `i`, if it exists and is used.
#[inline]
pub(crate) fn slot(b: &[u8], i: usize) -> Option<Slot<'_>> {
    let s = slot_bytes(b, i)?;
    let f = field(s);
    let len = name_len(f);
    if len == 0 {
        return None;
    }
    Some(Slot {
        value: u64_at(s, 0),
        cd: u64_at(s, 8) as u32,
        name: &f[..len],
    })
}

/// Slots that are searched without an index.
const FEW: usize = 64;

/// The value of a name in a small block that is a micro ZAP without normalization; `Some(None)` if
/// the name is missing. `None` for any other block: the caller has to use [`super::Zap`].
pub fn number_in(b: &[u8], name: &[u8]) -> Option<Option<u64>> {
    Some(few(b)?.find(|s| s.name == name).map(|s| s.value))
}

/// The numbers in a block that [`number_in`] can read; `None` for any other.
pub fn numbers_in(b: &[u8]) -> Option<impl Iterator<Item = u64>> {
    Some(few(b)?.map(|s| s.value))
}

fn few(b: &[u8]) -> Option<impl Iterator<Item = Slot<'_>>> {
    let is_plain = u64_at(b, 0) == MICRO_TYPE && MicroHeader::parse(b).ok()?.normflags == 0;
    let count = slots(b);
    (is_plain && count <= FEW).then(|| (0..count).filter_map(|i| slot(b, i)))
}

/// Names and values of a block that is a micro ZAP with names that are text.
pub(crate) fn numbers_of(b: &[u8]) -> Option<Vec<(String, u64)>> {
    if u64_at(b, 0) != MICRO_TYPE || b.len() < 2 * SLOT {
        return None;
    }
    (0..slots(b))
        .filter_map(|i| slot(b, i))
        .map(|s| Some((std::str::from_utf8(s.name).ok()?.to_owned(), s.value)))
        .collect()
}

fn is_named(b: &[u8], i: usize, name: &[u8]) -> bool {
    let Some(s) = slot_bytes(b, i) else {
        return false;
    };
    let f = field(s);
    name.len() < f.len() && f[name.len()] == 0 && f[..name.len()] == *name
}

/// The slot with exactly this name, whose hash is known.
pub(crate) fn find(b: &[u8], index: &MicroIndex, hash: u64, name: &[u8]) -> Option<usize> {
    index
        .twins(hash)
        .map(|e| e.slot())
        .find(|&i| is_named(b, i, name))
}

/// A slot found by a normalised comparison.
pub(crate) struct Match {
    pub slot: usize,
    /// Another name of the same hash has the same normal form.
    pub conflict: bool,
}

/// The slot that matches, with the lowest cd.
pub(crate) fn find_match(
    b: &[u8],
    index: &MicroIndex,
    hash: u64,
    name: &[u8],
    how: MatchType,
    normflags: u64,
) -> Result<Option<Match>> {
    let mut found = None;
    for e in index.twins(hash) {
        let Some(s) = slot(b, e.slot()) else { continue };
        if normalize::matches(s.name, name, how, normflags)? {
            found = Some(e.slot());
            break;
        }
    }
    let Some(at) = found else { return Ok(None) };
    let mine = slot(b, at).map_or(&[][..], |s| s.name);
    let mut conflict = false;
    if normflags != 0 {
        for e in index.twins(hash).filter(|e| e.slot() != at) {
            let Some(s) = slot(b, e.slot()) else { continue };
            conflict |= normalize::matches(s.name, mine, how.for_conflicts(), normflags)?;
        }
    }
    Ok(Some(Match { slot: at, conflict }))
}

/// The result of an insertion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// Done.
    Done,
    /// The exact name is there already, in this slot.
    Exists(usize),
    /// Every slot is used: grow the block.
    Full,
    /// So many names share this hash that the ZAP must become fat.
    Crowded,
}

/// Adds a name of at most [`MAX_NAME`] bytes.
pub(crate) fn insert(
    b: &mut [u8],
    index: &mut MicroIndex,
    hash: u64,
    name: &[u8],
    value: u64,
) -> Inserted {
    if let Some(at) = find(b, index, hash, name) {
        return Inserted::Exists(at);
    }
    let (cd, twins) = index.next_cd(hash);
    let Ok(cd) = u16::try_from(cd) else {
        return Inserted::Crowded;
    };
    if twins + 1 >= MAX_TWINS {
        return Inserted::Crowded;
    }
    let Some(at) = index.peek_free(slots(b)) else {
        return Inserted::Full;
    };
    let Some(s) = slot_bytes_mut(b, at) else {
        return Inserted::Full;
    };
    debug_assert!(name_len(field(s)) == 0, "slot {at} is in use");
    s.fill(0);
    fill_slot(s, name, value, cd);
    index.insert(hash, cd, at, slots(b));
    Inserted::Done
}

/// A block with these entries, in consecutive slots; the names must fit.
pub(crate) fn block_of(salt: u64, normflags: u64, entries: &[(Vec<u8>, u64, u16)]) -> Vec<u8> {
    let size = ((entries.len() + 1) * SLOT).next_multiple_of(STEP as usize);
    let mut b = new_block(size, salt, normflags);
    for (i, (name, value, cd)) in entries.iter().enumerate() {
        if let Some(s) = slot_bytes_mut(&mut b, i) {
            fill_slot(s, name, *value, *cd);
        }
    }
    b
}

/// A block of the smallest size with one name, which must fit.
pub(crate) fn block_with(salt: u64, name: &[u8], value: u64) -> Vec<u8> {
    let mut b = new_block(STEP as usize, salt, 0);
    if let Some(s) = slot_bytes_mut(&mut b, 0) {
        fill_slot(s, name, value, 0);
    }
    b
}

/// Puts an entry into a slot of zeros.
fn fill_slot(s: &mut [u8; SLOT], name: &[u8], value: u64, cd: u16) {
    s[..8].copy_from_slice(&value.to_le_bytes());
    s[8..10].copy_from_slice(&cd.to_le_bytes());
    s[NAME..NAME + name.len()].copy_from_slice(name);
}

/// Overwrites the value of a slot.
pub(crate) fn set_value(b: &mut [u8], at: usize, value: u64) {
    if let Some(s) = slot_bytes_mut(b, at) {
        s[..8].copy_from_slice(&value.to_le_bytes());
    }
}

/// Frees a slot.
pub(crate) fn remove(b: &mut [u8], index: &mut MicroIndex, hash: u64, at: usize) {
    if let Some(s) = slot_bytes_mut(b, at) {
        s.fill(0);
        index.remove(hash, at);
    }
}

/// Calls `f(name, value, hash, cd)` for the entries at or after `(hash, cd)` in order, until it
/// returns false. Returns whether the end was reached.
pub(crate) fn list(
    b: &[u8],
    index: &MicroIndex,
    from: (u64, u32),
    mut f: impl FnMut(&[u8], u64, u64, u32) -> bool,
) -> bool {
    // Neighbours by hash are in different slots: the next ones are prefetched while this one is
    // compared.
    let ask = |e: index::Record| {
        if let Some(s) = slot_bytes(b, e.slot()) {
            read_soon(s);
        }
    };
    let entries = index.from(from.0, from.1);
    let mut ahead = entries.clone();
    ahead.by_ref().take(AHEAD).for_each(ask);
    for e in entries {
        ahead.next().into_iter().for_each(ask);
        if let Some(s) = slot(b, e.slot())
            && !f(s.name, s.value, e.hash(), e.cd())
        {
            return false;
        }
    }
    true
}

/// Hash of a name in this ZAP, cut to the kept bits.
pub(crate) fn hash_of(header: &MicroHeader, name: &[u8]) -> Result<u64> {
    Ok(HashBits::NORMAL.cut(normalize::hash(header.salt, header.normflags, name)?))
}

#[cfg(test)]
mod tests;

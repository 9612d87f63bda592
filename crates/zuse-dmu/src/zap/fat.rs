//! A fat ZAP: header block, pointer table, leaves. Lookups, additions, removals.
//!
//! ```text
//!  hash ─ top `shift` bits ─► pointer table (in block 0, or its own blocks) ─► leaf ─► bucket ─► chain
//! ```
//!
//! Budget
//! - A look-up reads a word of the table and a leaf, so two blocks, and allocates nothing. Block 0
//!   is read only if the object has changed since the last access ([`super::known`]).
//! - Of the leaf it needs three cache lines. Two are prefetched while the reference to the block is
//!   still being taken ([`super::store::Blocks::view_soon`]). The third is prefetched together with
//!   the name after it ([`Leaf::find_by`]).
//! - An add or removal changes the leaf and thirteen words of block 0 in place, both copied once in
//!   a txg. Each touched leaf is compressed and written once a txg. So the more names a txg has,
//!   the less a name costs.
//! - A leaf checks its sibling only at a few sizes: a power of two of entries, a quarter full. So a
//!   removal reads 1/8 leaf more on average.
//!
//! The functions get the blocks from a [`Blocks`], so that the same code builds a ZAP in memory. A
//! micro ZAP that becomes fat is turned into leaves in one step (`grown`). The caller holds the
//! ZAP's lock.
//!
//! Invariants (section 8 of the format chapter)
//! - `entries` is the sum over the leaves.
//! - All pointers in the range of a leaf are equal.
//! - `freeblk` is above every block in use.
//!
//! Bytes from disk may break each of these, so none is asserted. An operation checks what it relies
//! on, and fails with `Corrupt` ([`Header::check_leaf`], [`Leaf::must_own`]). The tests' `audit`
//! walks the whole ZAP and shows that our own changes keep them.

mod grown;
mod split;
pub(crate) mod table;

pub(crate) use grown::{Each, grown};

use super::flaw::{Checked, Flaw};
use super::hash::top_bits;
use super::header::Header;
use super::key::{Ask, Key, Stored, TOO_BIG, ZapValue};
use super::leaf::{Geometry, Leaf, LeafMut, chunks_for};
use super::normalize::MatchType;
use super::store::{Blocks, BlocksMut};
use zuse_base::{Errno, Error, Result};

/// The pointer table grows early if a leaf has fewer free chunks than this.
const LOW_WATER: u16 = 20;

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapMatch {
    /// The value.
    pub value: ZapValue,
    /// The name as stored.
    pub name: Vec<u8>,
    /// Whether another stored name has the same normal form.
    pub conflict: bool,
}

fn header<S: Blocks>(s: &S) -> Result<Header> {
    s.view_by_shortcut(0, Header::parse)
}

/// The result of one access to block 0: the header, the key, and the leaf's pointer if it is in
/// block 0.
pub(crate) struct FatLookup<'a> {
    h: Header,
    key: Key<'a>,
    /// The leaf, and how many hash bits it probably covers.
    pointer: Option<(u64, u32)>,
}

impl<'a> FatLookup<'a> {
    /// From a header that is known.
    #[inline]
    pub(crate) fn by(h: &Header, ask: Ask<'a>, how: MatchType, longest: usize) -> Result<Self> {
        Ok(FatLookup {
            key: ask.key(h, how, longest)?,
            h: *h,
            pointer: None,
        })
    }
}

/// Looks at block 0.
pub(crate) fn aim<'a>(
    block0: &[u8],
    ask: Ask<'a>,
    how: MatchType,
    longest: usize,
) -> Checked<Result<FatLookup<'a>>> {
    let h = Header::parse(block0)?;
    let key = match ask.key(&h, how, longest) {
        Ok(key) => key,
        Err(e) => return Ok(Err(e)),
    };
    let pointer = if h.table_blocks == 0 {
        let index = top_bits(key.hash, h.shift);
        Some((table::pointer_in(&h, block0, index)?, h.shift))
    } else {
        None
    };
    Ok(Ok(FatLookup { h, key, pointer }))
}

/// Reads block 0, and where the leaf of the key is.
pub(crate) fn take_aim<'a, S: Blocks>(
    s: &S,
    ask: Ask<'a>,
    how: MatchType,
    longest: usize,
) -> Result<FatLookup<'a>> {
    s.view_by_shortcut(0, |b| aim(b, ask, how, longest))?
}

impl FatLookup<'_> {
    /// The leaf's block; `None` if the table has no leaf there.
    fn leaf<S: Blocks>(&self, s: &S) -> Result<Option<u64>> {
        let leaf = match self.pointer {
            Some((leaf, _)) => leaf,
            None => table::pointer(s, &self.h, top_bits(self.key.hash, self.h.shift))?,
        };
        Ok((leaf != 0).then_some(leaf))
    }

    /// Uses the target that an equal aim had; returns whether it applies.
    pub(crate) fn lead_to(&mut self, target: &Target) -> bool {
        let same = target.hash == self.key.hash;
        if same {
            self.pointer = Some((target.leaf, target.depth));
        }
        same
    }

    /// The leaf's block (0: no leaf), and how many hash bits the leaf probably covers.
    #[inline]
    fn leaf_and_depth<S: Blocks>(&self, s: &S) -> Result<(u64, u32)> {
        match self.pointer {
            Some(pointer) => Ok(pointer),
            None => table::pointer_and_depth(s, &self.h, top_bits(self.key.hash, self.h.shift)),
        }
    }
}

/// The value of a key.
pub(crate) fn lookup<S: Blocks>(s: &S, aim: FatLookup<'_>) -> Result<Option<ZapValue>> {
    let Some(blkid) = aim.leaf(s)? else {
        return Ok(None);
    };
    s.view(blkid, |b| {
        let leaf = Leaf::parse(b)?;
        leaf.must_own(aim.key.hash)?;
        match leaf.find(&aim.key)? {
            Some(e) => Ok(Some(ZapValue::from_stored(e.int_size, leaf.value(&e)?)?)),
            None => Ok(None),
        }
    })
}

/// The first integer of a key's value; `Some(None)` if the value is empty.
#[inline]
pub(crate) fn lookup_u64<S: Blocks>(s: &S, aim: FatLookup<'_>) -> Result<Option<Option<u64>>> {
    let (blkid, depth) = aim.leaf_and_depth(s)?;
    if blkid == 0 {
        return Ok(None);
    }
    let soon = Geometry {
        shift: aim.h.block_shift,
    }
    .head_place(aim.key.hash, depth);
    s.view_soon(blkid, soon, |b| {
        let leaf = Leaf::parse(b)?;
        leaf.must_own(aim.key.hash)?;
        match leaf.find_by(&aim.key, depth)? {
            Some(e) if e.value_count == 0 => Ok(Some(None)),
            Some(e) => Ok(Some(Some(leaf.first_int(&e)?))),
            None => Ok(None),
        }
    })
}

/// The entry that matches a name by the given rule.
pub(crate) fn lookup_match<S: Blocks>(
    s: &S,
    name: &[u8],
    how: MatchType,
    longest: usize,
) -> Result<Option<ZapMatch>> {
    let aim = take_aim(s, Ask::Name(name), how, longest)?;
    let Some(blkid) = aim.leaf(s)? else {
        return Ok(None);
    };
    let (h, key) = (aim.h, aim.key);
    s.view(blkid, |b| {
        let leaf = Leaf::parse(b)?;
        leaf.must_own(key.hash)?;
        let e = match leaf.find_match(&key)? {
            Ok(Some(e)) => e,
            Ok(None) => return Ok(Ok(None)),
            Err(error) => return Ok(Err(error)),
        };
        let conflict = match leaf.has_conflict(&e, how, h.normflags)? {
            Ok(c) => c,
            Err(error) => return Ok(Err(error)),
        };
        let mut name = Vec::new();
        leaf.read_name(&e, false, &mut name)?;
        let value = ZapValue::from_stored(e.int_size, leaf.value(&e)?)?;
        Ok(Ok(Some(ZapMatch {
            value,
            name,
            conflict,
        })))
    })?
}

/// The target of a hash: the leaf (0: none), how many hash bits it probably covers, and the
/// bucket's place in it then.
#[derive(Clone, Copy, Default)]
pub(crate) struct Target {
    pub hash: u64,
    pub leaf: u64,
    pub depth: u32,
    pub head: usize,
}

/// Finds the leaf of a hash, and prefetches the slot of its dirty version.
#[inline]
pub(crate) fn expect<S: Blocks>(s: &S, h: &Header, hash: u64) -> Result<Target> {
    let (leaf, depth) = table::prefetch_target(s, h, top_bits(hash, h.shift))?;
    let geometry = Geometry {
        shift: h.block_shift,
    };
    Ok(Target {
        hash,
        leaf,
        depth,
        head: geometry.head_place(hash, depth),
    })
}

/// The number of entries.
pub(crate) fn count<S: Blocks>(s: &S) -> Result<u64> {
    Ok(header(s)?.entries)
}

/// A new, empty ZAP.
pub(crate) fn create<S: BlocksMut>(s: &S, h: &Header) -> Result<()> {
    let mut leaf = vec![0; 1 << h.block_shift];
    LeafMut::format(&mut leaf, 0, 0, h.normflags != 0).map_err(|f| s.corrupt(1, f))?;
    s.write(0, h.new_block())?;
    s.write(1, leaf)
}

/// What to do about an existing or missing key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// It must not exist.
    Add,
    /// It is replaced, or added.
    Update,
}

enum Outcome {
    Done {
        added: bool,
        free: u16,
        prefix_len: u32,
    },
    Exists,
    Full,
}

fn store_header<S: BlocksMut>(s: &S, h: &Header) -> Result<()> {
    s.edit(0, |b| {
        h.store(b);
        Ok(())
    })
}

fn no_leaf<S: Blocks>(s: &S) -> Error {
    s.corrupt(0, Flaw("a ZAP pointer table without a leaf for a hash"))
}

/// Adds or replaces an entry and returns the new header. `cd` is given when a micro ZAP becomes
/// fat.
pub(crate) fn put<S: BlocksMut>(
    s: &S,
    aim: FatLookup<'_>,
    value: &Stored,
    how: Put,
    cd: Option<u32>,
) -> Result<Header> {
    let (leaf, depth) = aim.leaf_and_depth(s)?;
    let mut leaf = (leaf != 0).then_some(leaf);
    let (mut h, key) = (aim.h, aim.key);
    let geometry = Geometry {
        shift: h.block_shift,
    };
    let (name_len, value_len) = (key.stored_len(), value.bytes().len());
    if chunks_for(name_len, value_len) > geometry.chunks() {
        return Err(Error::refused(TOO_BIG, "a ZAP entry that no leaf can hold"));
    }
    let soon = geometry.head_place(key.hash, depth);
    loop {
        let blkid = leaf.ok_or_else(|| no_leaf(s))?;
        let outcome = s.edit_soon(blkid, soon, |b| put_in(b, &key, depth, value, how, cd))?;
        match outcome {
            Outcome::Exists => {
                return Err(Error::refused(
                    Errno::EXIST,
                    "the name is in the ZAP already",
                ));
            }
            Outcome::Full => {
                split::split_leaf(s, &mut h, blkid, key.hash)?;
                let p = table::pointer(s, &h, top_bits(key.hash, h.shift))?;
                leaf = (p != 0).then_some(p);
            }
            Outcome::Done {
                added,
                free,
                prefix_len,
            } => {
                if added {
                    h.entries += 1;
                    store_header(s, &h)?;
                }
                // A growth that has begun takes a step with each addition, so that none is slow.
                if h.next_table != 0 || prefix_len == h.shift && free < LOW_WATER {
                    // Growing early: if it fails now, the split that needs it will report the
                    // error.
                    if table::may_grow(&h) {
                        table::grow_step(s, &mut h)?;
                    }
                }
                return Ok(h);
            }
        }
    }
}

/// Puts an entry into its leaf, if it fits.
fn put_in(
    b: &mut [u8],
    key: &Key<'_>,
    depth: u32,
    value: &Stored,
    how: Put,
    cd: Option<u32>,
) -> Checked<Outcome> {
    let mut leaf = LeafMut::parse(b)?;
    leaf.view().must_own(key.hash)?;
    let found = leaf.view().find_by(key, depth)?;
    let added = found.is_none();
    match found {
        Some(_) if how == Put::Add => return Ok(Outcome::Exists),
        Some(e) => {
            if !leaf.replace(&e, value)? {
                return Ok(Outcome::Full);
            }
        }
        None if leaf.fits(key.stored_len(), value.bytes().len()) => leaf.add(key, cd, value)?,
        None => return Ok(Outcome::Full),
    }
    let v = leaf.view();
    Ok(Outcome::Done {
        added,
        free: v.free(),
        prefix_len: v.prefix_len(),
    })
}

/// Removes the entry that matches and returns the new state of the ZAP; `None` if there is none.
pub(crate) fn remove<S: BlocksMut>(
    s: &S,
    aim: FatLookup<'_>,
    shrink: bool,
) -> Result<Option<Header>> {
    let Some(blkid) = aim.leaf(s)? else {
        return Ok(None);
    };
    let (mut h, key) = (aim.h, aim.key);
    // Read before the block is copied for the change.
    let found = s.view(blkid, |b| {
        let leaf = Leaf::parse(b)?;
        leaf.must_own(key.hash)?;
        leaf.find_match(&key)
    })??;
    let Some(e) = found else { return Ok(None) };
    let words = h.has_word_keys();
    let small = s.edit(blkid, |b| {
        let mut leaf = LeafMut::parse(b)?;
        leaf.remove(&e, words)?;
        Ok(split::is_small(&leaf.view()))
    })?;
    h.entries = h.entries.saturating_sub(1);
    store_header(s, &h)?;
    if shrink && small && h.next_table == 0 {
        split::merge_small(s, &mut h, blkid, key.hash)?;
    }
    Ok(Some(h))
}

/// An entry that a micro ZAP can hold: name, value, cd.
pub(crate) type Small = (Vec<u8>, u64, u16);

/// The header and all entries of a ZAP with one leaf, if a micro ZAP can hold each of them.
pub(crate) fn as_micro<S: Blocks>(s: &S, longest: usize) -> Result<Option<(Header, Vec<Small>)>> {
    let h = header(s)?;
    if h.leafs != 1 || h.flags != 0 || h.next_table != 0 {
        return Ok(None);
    }
    let blkid = table::pointer(s, &h, 0)?;
    if blkid == 0 {
        return Err(no_leaf(s));
    }
    s.view(blkid, |b| {
        let leaf = Leaf::parse(b)?;
        let mut order = Vec::new();
        leaf.entries_from((0, 0), &mut order)?;
        if leaf.prefix_len() != 0 || order.len() as u64 != h.entries {
            return Ok(None);
        }
        let mut out = Vec::with_capacity(order.len());
        for (_, cd, chunk) in order {
            let e = leaf.entry(chunk)?;
            let (Ok(cd), 8, 1) = (u16::try_from(cd), e.int_size, e.value_count) else {
                return Ok(None);
            };
            if usize::from(e.name_count) > longest {
                return Ok(None);
            }
            let mut name = Vec::with_capacity(longest);
            leaf.read_name(&e, false, &mut name)?;
            out.push((name, leaf.first_int(&e)?, cd));
        }
        Ok(Some((h, out)))
    })
}

/// One entry while listing a leaf.
pub(crate) struct Listed<'a> {
    pub leaf: Leaf<'a>,
    pub entry: super::leaf::Entry,
    pub name: &'a [u8],
}

/// Calls `f` for the entries at or after a position, in the leaf that covers it. Returns where to
/// continue: `None` at the end, or if `f` returned false (then the second value is false).
pub(crate) fn list_leaf<S: Blocks>(
    s: &S,
    from: (u64, u32),
    scratch: &mut Vec<(u64, u32, u16)>,
    mut f: impl FnMut(&Header, Listed<'_>) -> Checked<bool>,
) -> Result<(Option<u64>, bool)> {
    let h = header(s)?;
    let at = top_bits(from.0, h.shift);
    let (blkid, ahead) = table::pointer_and_ahead(s, &h, at)?;
    for next in ahead {
        if next != 0 {
            s.prefetch(next);
        }
    }
    if blkid == 0 {
        // An error, and not the end of the list: a hostile table could be long and empty.
        return Err(no_leaf(s));
    }
    let mut more = true;
    let prefix_len = s.view(blkid, |b| {
        let leaf = Leaf::parse(b)?;
        leaf.must_own(from.0)?;
        scratch.clear();
        leaf.entries_from(from, scratch)?;
        let mut name = Vec::with_capacity(256);
        for &(_, _, chunk) in scratch.iter() {
            let entry = leaf.entry(chunk)?;
            name.clear();
            leaf.read_name(&entry, h.has_word_keys(), &mut name)?;
            if !f(
                &h,
                Listed {
                    leaf,
                    entry,
                    name: &name,
                },
            )? {
                more = false;
                break;
            }
        }
        Ok(leaf.prefix_len())
    })?;
    if !more {
        return Ok((None, false));
    }
    if prefix_len == 0 {
        return Ok((None, true));
    }
    // Behind the last hash of this leaf. The last leaf ends at the highest hash.
    let mask = u64::MAX >> prefix_len;
    Ok(((from.0 | mask).checked_add(1), true))
}

#[cfg(test)]
pub(super) mod tests;

//! A leaf block of a fat ZAP, read in place.
//!
//! ```text
//! header  0 type 0x8000000000000000  16 prefix  24 magic  28 nfree  30 nentries  32 prefix_len  34 freelist  36 flags
//! 48      bucket heads, u16 each: the first entry chunk of the chain, 0xffff = empty
//! then    chunks of 24 bytes: entry (252), array (251) or free (253)
//! ```
//!
//! Every chain walk is bounded by the number of chunks, and every chunk's type is checked before it
//! is used. So a hostile leaf gives a [`Flaw`], never a loop or a read past the block.

mod edit;
pub(crate) use edit::{Fresh, LeafMut};

use super::LEAF_TYPE;
use super::flaw::{Checked, Flaw};
use super::hash::top_bits;
use super::key::Key;
use super::normalize::{self, MatchType};
use std::hint::black_box;
use zuse_base::Result;

const MAGIC: u32 = 0x02AB_1EAF;
/// Bytes of a chunk, and of data in an array chunk.
pub(crate) const CHUNK: usize = 24;
/// Data bytes of an array chunk.
pub(crate) const ARRAY_DATA: usize = 21;
const HEADER: usize = 48;
/// Bytes of a line of the processor's caches.
const LINE: usize = 64;
const ENTRY_TYPE: u8 = 252;
const ARRAY_TYPE: u8 = 251;
const FREE_TYPE: u8 = 253;
/// End of a chain.
pub(crate) const END: u16 = 0xffff;

/// Chunks for an entry with these numbers of name and value bytes.
pub(crate) fn chunks_for(name: usize, value: usize) -> usize {
    1 + name.div_ceil(ARRAY_DATA) + value.div_ceil(ARRAY_DATA)
}

/// Sizes that follow from the block size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// log2 of the block size.
    pub shift: u32,
}

impl Geometry {
    /// log2 of the number of buckets.
    pub(crate) fn bucket_bits(self) -> u32 {
        self.shift - 5
    }
    /// Number of buckets.
    pub(crate) fn buckets(self) -> usize {
        1 << self.bucket_bits()
    }
    /// Number of chunks.
    pub(crate) fn chunks(self) -> usize {
        ((1 << self.shift) - 2 * self.buckets()) / CHUNK - 2
    }
    /// Offset of a chunk.
    fn chunk(self, i: u16) -> usize {
        HEADER + 2 * self.buckets() + usize::from(i) * CHUNK
    }
    /// The bucket of a hash in a leaf of that prefix length.
    #[inline]
    pub(crate) fn bucket(self, hash: u64, prefix_len: u32) -> usize {
        let down = 64u32.saturating_sub(self.bucket_bits() + prefix_len);
        (hash >> down) as usize & (self.buckets() - 1)
    }
    /// The place of that bucket's head.
    pub(crate) fn head_place(self, hash: u64, prefix_len: u32) -> usize {
        HEADER + 2 * self.bucket(hash, prefix_len)
    }
}

#[inline]
fn u16_at(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2)
        .and_then(|s| s.try_into().ok())
        .map_or(0, u16::from_le_bytes)
}

/// An entry chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub chunk: u16,
    pub int_size: u8,
    pub next: u16,
    pub name: u16,
    /// Bytes with the NUL, or words.
    pub name_count: u16,
    pub value: u16,
    pub value_count: u16,
    pub cd: u32,
    pub hash: u64,
}

impl Entry {
    /// Bytes of the value.
    pub(crate) fn value_len(&self) -> usize {
        usize::from(self.int_size) * usize::from(self.value_count)
    }
    /// Bytes of the stored name.
    pub(crate) fn name_len(&self, words: bool) -> usize {
        usize::from(self.name_count) * if words { 8 } else { 1 }
    }
}

/// A leaf whose header was checked.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a> {
    b: &'a [u8],
    g: Geometry,
}

impl<'a> Leaf<'a> {
    /// Checks the header.
    #[inline]
    pub(crate) fn parse(b: &'a [u8]) -> Checked<Self> {
        let word = |at: usize| {
            b.get(at..at + 4)
                .and_then(|s| s.try_into().ok())
                .map_or(0, u32::from_le_bytes)
        };
        if !b.len().is_power_of_two() || !(1 << 9..=1 << 24).contains(&b.len()) {
            return Err(Flaw("a ZAP leaf of an impossible size"));
        }
        if b[..8] != LEAF_TYPE.to_le_bytes() || word(24) != MAGIC {
            return Err(Flaw("a ZAP leaf without its magic"));
        }
        let leaf = Self {
            b,
            g: Geometry {
                shift: b.len().trailing_zeros(),
            },
        };
        if leaf.prefix_len() > 48 || usize::from(leaf.free()) > leaf.g.chunks() {
            return Err(Flaw("a ZAP leaf with impossible counts"));
        }
        Ok(leaf)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.g
    }
    #[inline]
    pub(crate) fn prefix(&self) -> u64 {
        self.b
            .get(16..24)
            .and_then(|s| s.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    }
    #[inline]
    pub(crate) fn prefix_len(&self) -> u32 {
        u32::from(u16_at(self.b, 32))
    }
    /// Free chunks.
    #[inline]
    pub(crate) fn free(&self) -> u16 {
        u16_at(self.b, 28)
    }
    /// Chunks in use.
    pub(crate) fn used(&self) -> usize {
        self.g.chunks().saturating_sub(usize::from(self.free()))
    }
    pub(crate) fn entries(&self) -> u16 {
        u16_at(self.b, 30)
    }
    pub(crate) fn freelist(&self) -> u16 {
        u16_at(self.b, 34)
    }
    /// Refuses a leaf whose prefix does not cover the hash.
    #[inline]
    pub(crate) fn must_own(&self, hash: u64) -> Checked<()> {
        if top_bits(hash, self.prefix_len()) == self.prefix() {
            Ok(())
        } else {
            Err(Flaw(
                "a ZAP leaf whose prefix is not that of the hash that led to it",
            ))
        }
    }

    /// The chunks of an array.
    #[cfg(test)]
    pub(crate) fn array_chunks(&self, first: u16, len: usize) -> Vec<u16> {
        let mut at = first;
        let mut out = Vec::new();
        for _ in 0..len.div_ceil(ARRAY_DATA) {
            out.push(at);
            at = u16_at(self.b, self.g.chunk(at) + 22);
        }
        out
    }

    /// The chunk after a free one.
    #[cfg(test)]
    pub(crate) fn next_free(&self, i: u16) -> u16 {
        u16_at(self.b, self.g.chunk(i) + 22)
    }

    /// Whether a chunk is free.
    #[cfg(test)]
    pub(crate) fn is_free(&self, i: u16) -> bool {
        self.chunk(i).is_ok_and(|c| c[0] == FREE_TYPE)
    }

    #[inline]
    pub(crate) fn head(&self, bucket: usize) -> u16 {
        u16_at(self.b, HEADER + 2 * bucket)
    }

    #[inline]
    fn chunk(&self, i: u16) -> Checked<&'a [u8; CHUNK]> {
        let at = self.g.chunk(i);
        self.b
            .get(at..at + CHUNK)
            .and_then(|s| s.first_chunk())
            .ok_or(Flaw("a ZAP chunk number beyond the leaf"))
    }

    /// The type byte of a chunk.
    pub(crate) fn is_entry(&self, i: u16) -> bool {
        self.chunk(i).is_ok_and(|c| c[0] == ENTRY_TYPE)
    }

    /// The entry in a chunk.
    #[inline]
    pub(crate) fn entry(&self, i: u16) -> Checked<Entry> {
        let c = self.chunk(i)?;
        if c[0] != ENTRY_TYPE {
            return Err(Flaw("a ZAP chain that leads to a chunk that is no entry"));
        }
        let w = |at: usize| u16::from_le_bytes([c[at], c[at + 1]]);
        Ok(Entry {
            chunk: i,
            int_size: c[1],
            next: w(2),
            name: w(4),
            name_count: w(6),
            value: w(8),
            value_count: w(10),
            cd: u32::from_le_bytes([c[12], c[13], c[14], c[15]]),
            hash: c.last_chunk().map_or(0, |b| u64::from_le_bytes(*b)),
        })
    }

    /// The entries of one chain.
    pub(crate) fn chain(&self, bucket: usize) -> Chain<'a> {
        self.chain_from(self.head(bucket))
    }

    #[inline]
    fn chain_from(&self, head: u16) -> Chain<'a> {
        Chain {
            leaf: *self,
            next: head,
            left: self.g.chunks(),
        }
    }

    /// Calls `f` with the parts of an array of `len` bytes.
    #[inline]
    fn pieces(&self, first: u16, len: usize, mut f: impl FnMut(&[u8]) -> bool) -> Checked<bool> {
        let (mut at, mut left) = (first, len);
        if left > self.g.chunks() * ARRAY_DATA {
            return Err(Flaw("a ZAP name or value longer than its leaf"));
        }
        while left > 0 {
            let c = self.chunk(at)?;
            if c[0] != ARRAY_TYPE {
                return Err(Flaw(
                    "a ZAP name or value that runs into a chunk that is no array",
                ));
            }
            let n = left.min(ARRAY_DATA);
            if !f(&c[1..=n]) {
                return Ok(false);
            }
            left -= n;
            at = u16::from_le_bytes([c[22], c[23]]);
        }
        Ok(true)
    }

    /// Appends the bytes of an array.
    pub(crate) fn read_array(&self, first: u16, len: usize, out: &mut Vec<u8>) -> Checked<()> {
        self.pieces(first, len, |p| {
            out.extend_from_slice(p);
            true
        })?;
        Ok(())
    }

    /// Appends an entry's name: without its NUL, or the big-endian bytes of its words.
    pub(crate) fn read_name(&self, e: &Entry, words: bool, out: &mut Vec<u8>) -> Checked<()> {
        let start = out.len();
        self.read_array(e.name, e.name_len(words), out)?;
        if !words && (out.pop() != Some(0) || out.len() == start) {
            return Err(Flaw("a ZAP name without its NUL"));
        }
        Ok(())
    }

    /// The bytes of an entry's value.
    pub(crate) fn value(&self, e: &Entry) -> Checked<Vec<u8>> {
        if !matches!(e.int_size, 1 | 2 | 4 | 8) {
            return Err(Flaw("a ZAP value of an impossible integer size"));
        }
        let mut out = Vec::with_capacity(e.value_len().min(super::key::MAX_VALUE));
        self.read_array(e.value, e.value_len(), &mut out)?;
        Ok(out)
    }

    /// The first integer of an entry's value, zero-extended; 0 if it has none.
    #[inline]
    pub(crate) fn first_int(&self, e: &Entry) -> Checked<u64> {
        if !matches!(e.int_size, 1 | 2 | 4 | 8) {
            return Err(Flaw("a ZAP value of an impossible integer size"));
        }
        let mut v = 0;
        if e.value_count > 0 {
            self.pieces(e.value, usize::from(e.int_size), |p| {
                v = p.iter().fold(v, |v, &b| (v << 8) | u64::from(b));
                true
            })?;
        }
        Ok(v)
    }

    /// Whether an entry's stored name is exactly that key.
    #[inline]
    fn is_exactly(&self, e: &Entry, key: &Key<'_>) -> Checked<bool> {
        if e.name_count != key.count {
            return Ok(false);
        }
        let mut rest: &[u8] = &key.bytes;
        self.pieces(e.name, e.name_len(!key.is_name), |p| {
            if p.len() <= rest.len() {
                let (head, tail) = rest.split_at(p.len());
                rest = tail;
                head == p
            } else {
                // The last part of a name ends with its NUL.
                let (body, nul) = p.split_at(rest.len());
                body == rest && nul == [0]
            }
        })
    }

    fn is_like(&self, e: &Entry, key: &Key<'_>) -> Checked<Result<bool>> {
        if self.is_exactly(e, key)? {
            return Ok(Ok(true));
        }
        if key.how == MatchType::Exact {
            return Ok(Ok(false));
        }
        let mut name = Vec::new();
        self.read_name(e, false, &mut name)?;
        Ok(normalize::matches(
            &name,
            &key.bytes,
            key.how,
            key.normflags,
        ))
    }

    /// The entry of a key by its exact bytes.
    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Checked<Option<Entry>> {
        for e in self.chain(self.g.bucket(key.hash, self.prefix_len())) {
            let e = e?;
            if e.hash == key.hash && self.is_exactly(&e, key)? {
                return Ok(Some(e));
            }
        }
        Ok(None)
    }

    /// As [`Self::find`], for a leaf that probably covers `depth` hash bits. Its bucket is
    /// prefetched together with the header, and the bytes after the entry (usually its name)
    /// together with the entry.
    #[inline]
    pub(crate) fn find_by(&self, key: &Key<'_>, depth: u32) -> Checked<Option<Entry>> {
        let guess = self.head(self.g.bucket(key.hash, depth));
        black_box(self.b.get(self.g.chunk(guess) + LINE));
        let head = if self.prefix_len() == depth {
            guess
        } else {
            self.head(self.g.bucket(key.hash, self.prefix_len()))
        };
        for e in self.chain_from(head) {
            let e = e?;
            if e.hash == key.hash && self.is_exactly(&e, key)? {
                return Ok(Some(e));
            }
        }
        Ok(None)
    }

    /// Prefetches the cache lines, besides header and bucket, that adding an entry will need. These
    /// are the chunks that it will take, which usually are adjacent, and the first entry of the
    /// bucket.
    #[inline]
    pub(crate) fn expect_add(&self, hash: u64, depth: u32) {
        for (chunk, len) in [
            (self.freelist(), 3 * CHUNK),
            (self.head(self.g.bucket(hash, depth)), CHUNK),
        ] {
            let at = self.g.chunk(chunk);
            if let Some(bytes) = self.b.get(at..at + len) {
                zuse_codec::read_soon(bytes);
                zuse_codec::read_soon(&bytes[len - 1..]);
            }
        }
    }

    /// The entry of lowest cd that matches a key by its rule.
    pub(crate) fn find_match(&self, key: &Key<'_>) -> Checked<Result<Option<Entry>>> {
        let mut best: Option<Entry> = None;
        for e in self.chain(self.g.bucket(key.hash, self.prefix_len())) {
            let e = e?;
            if e.hash != key.hash || best.is_some_and(|b| b.cd < e.cd) {
                continue;
            }
            match self.is_like(&e, key)? {
                Ok(true) => best = Some(e),
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(best))
    }

    /// Whether another entry of the same hash has the same normal form as `e`, by the given rule.
    pub(crate) fn has_conflict(
        &self,
        e: &Entry,
        how: MatchType,
        normflags: u64,
    ) -> Checked<Result<bool>> {
        if normflags == 0 {
            return Ok(Ok(false));
        }
        let mut mine = Vec::new();
        self.read_name(e, false, &mut mine)?;
        for other in self.chain(self.g.bucket(e.hash, self.prefix_len())) {
            let other = other?;
            if other.hash != e.hash || other.chunk == e.chunk {
                continue;
            }
            let mut name = Vec::new();
            self.read_name(&other, false, &mut name)?;
            match normalize::matches(&name, &mine, how.for_conflicts(), normflags) {
                Ok(false) => {}
                decided => return Ok(decided),
            }
        }
        Ok(Ok(false))
    }

    /// Appends `(hash, cd, chunk)` of every entry at or after a position, sorted.
    pub(crate) fn entries_from(
        &self,
        from: (u64, u32),
        out: &mut Vec<(u64, u32, u16)>,
    ) -> Checked<()> {
        let start = out.len();
        for i in 0..self.g.chunks().min(usize::from(END)) as u16 {
            if self.is_entry(i) {
                let e = self.entry(i)?;
                self.must_own(e.hash)?;
                if (e.hash, e.cd) >= from {
                    out.push((e.hash, e.cd, i));
                }
            }
        }
        out[start..].sort_unstable();
        Ok(())
    }
}

/// Walks a chain, with at most as many steps as there are chunks.
pub(crate) struct Chain<'a> {
    leaf: Leaf<'a>,
    next: u16,
    left: usize,
}

impl Iterator for Chain<'_> {
    type Item = Checked<Entry>;
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == END {
            return None;
        }
        if self.left == 0 {
            self.next = END;
            return Some(Err(Flaw("a ZAP chain that runs in a circle")));
        }
        self.left -= 1;
        let e = self.leaf.entry(self.next);
        self.next = e.as_ref().map_or(END, |e| e.next);
        Some(e)
    }
}

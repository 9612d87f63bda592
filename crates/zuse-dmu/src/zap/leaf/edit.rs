//! Changes of a leaf block: add, remove, replace a value, split, merge with the sibling.
//!
//! Invariants: nfree + used chunks = all chunks. The freelist holds exactly the free chunks. Each
//! entry is in the one chain of its hash, sorted by cd. If the bytes of a leaf break them the
//! change is refused ([`Flaw`]), and nothing has changed. Chunks that a change will take and free
//! are checked first. The tests use such leaves.

use super::{
    ARRAY_DATA, ARRAY_TYPE, CHUNK, END, ENTRY_TYPE, Entry, FREE_TYPE, Geometry, HEADER, Leaf,
    MAGIC, chunks_for,
};
use crate::zap::LEAF_TYPE;
use crate::zap::flaw::{Checked, Flaw};
use crate::zap::key::{Key, Stored};
use smallvec::SmallVec;

/// A leaf open for changes.
pub(crate) struct LeafMut<'a> {
    b: &'a mut [u8],
    g: Geometry,
}

/// Chunks affected by a change, usually about three.
type Chunks = SmallVec<[u16; 8]>;

/// Notes down a chunk that must not have been seen before.
#[inline(always)]
fn once(seen: &mut Chunks, chunk: u16) -> Checked<()> {
    if seen.contains(&chunk) {
        return Err(Flaw("a ZAP chunk that stands in two places"));
    }
    seen.push(chunk);
    Ok(())
}

/// The head and length of a leaf's free list, while chunks are taken or freed.
struct FreeList {
    head: u16,
    free: u16,
}

impl<'a> LeafMut<'a> {
    /// Checks the header.
    pub(crate) fn parse(b: &'a mut [u8]) -> Checked<Self> {
        let g = Leaf::parse(b)?.geometry();
        Ok(Self { b, g })
    }

    /// Makes a block an empty leaf.
    pub(crate) fn format(
        b: &'a mut [u8],
        prefix: u64,
        prefix_len: u32,
        sorted: bool,
    ) -> Checked<Self> {
        b.fill(0);
        Fresh::begin(b, prefix, prefix_len, sorted)?.finish()
    }

    /// The same leaf for reading.
    pub(crate) fn view(&self) -> Leaf<'_> {
        Leaf {
            b: self.b,
            g: self.g,
        }
    }

    fn put16(&mut self, at: usize, v: u16) {
        if let Some(s) = self.b.get_mut(at..at + 2) {
            s.copy_from_slice(&v.to_le_bytes());
        }
    }

    fn set_prefix(&mut self, prefix: u64) {
        self.b[16..24].copy_from_slice(&prefix.to_le_bytes());
    }

    fn set_prefix_len(&mut self, len: u32) {
        self.put16(32, len as u16);
    }

    fn add_entries(&mut self, delta: i32) {
        let v = i32::from(self.view().entries()) + delta;
        self.put16(30, v.clamp(0, 0xffff) as u16);
    }

    fn chunk_mut(&mut self, i: u16) -> Checked<&mut [u8; CHUNK]> {
        let at = self.g.chunk(i);
        self.b
            .get_mut(at..at + CHUNK)
            .and_then(|s| s.first_chunk_mut())
            .ok_or(Flaw("a ZAP chunk number beyond the leaf"))
    }

    /// The free list; [`Self::put_list`] stores it.
    #[inline]
    fn list(&self) -> FreeList {
        FreeList {
            head: self.view().freelist(),
            free: self.view().free(),
        }
    }

    #[inline]
    fn put_list(&mut self, list: &FreeList) {
        self.put16(34, list.head);
        self.put16(28, list.free);
    }

    /// The next `n` chunks of the free list, appended to `seen`, and the head of the rest.
    #[inline]
    fn next_free(&self, n: usize, seen: &mut Chunks) -> Checked<u16> {
        let leaf = self.view();
        if n > usize::from(leaf.free()) {
            return Err(Flaw("a ZAP leaf with fewer free chunks than are needed"));
        }
        let mut at = leaf.freelist();
        for _ in 0..n {
            if at == END {
                return Err(Flaw("a ZAP leaf with fewer free chunks than it states"));
            }
            let c = leaf.chunk(at)?;
            if c[0] != FREE_TYPE {
                return Err(Flaw("a ZAP free list that leads to a chunk in use"));
            }
            once(seen, at)?;
            at = u16::from_le_bytes([c[22], c[23]]);
        }
        Ok(at)
    }

    /// Appends the chunks of an array of `len` bytes to `seen`. Checks that they can be freed.
    #[inline]
    fn must_have(&self, first: u16, len: usize, seen: &mut Chunks) -> Checked<()> {
        let mut at = first;
        for _ in 0..len.div_ceil(ARRAY_DATA) {
            let c = self.view().chunk(at)?;
            if c[0] != ARRAY_TYPE {
                return Err(Flaw(
                    "a ZAP name or value that runs into a chunk that is no array",
                ));
            }
            once(seen, at)?;
            at = u16::from_le_bytes([c[22], c[23]]);
        }
        Ok(())
    }

    /// Adds a chunk to the head of a free list.
    fn free_chunk(&mut self, i: u16, list: &mut FreeList) -> Checked<()> {
        let c = self.chunk_mut(i)?;
        if c[0] == FREE_TYPE {
            return Err(Flaw("a ZAP chunk that is free and in use"));
        }
        *c = [0; CHUNK];
        c[0] = FREE_TYPE;
        c[22..].copy_from_slice(&list.head.to_le_bytes());
        list.head = i;
        list.free = list.free.saturating_add(1);
        Ok(())
    }

    /// Puts bytes into chunks; there are exactly enough.
    #[inline]
    fn put_array(&mut self, bytes: &[u8], chunks: &[u16]) -> Checked<()> {
        let mut rest = bytes;
        for (n, &i) in chunks.iter().enumerate() {
            let (piece, more) = rest.split_at(rest.len().min(ARRAY_DATA));
            rest = more;
            let next = chunks.get(n + 1).map_or(END, |&i| i);
            let c = self.chunk_mut(i)?;
            *c = [0; CHUNK];
            c[0] = ARRAY_TYPE;
            c[1..1 + piece.len()].copy_from_slice(piece);
            c[22..].copy_from_slice(&next.to_le_bytes());
        }
        Ok(())
    }

    /// Adds the chunks of an array of `len` bytes to the head of a free list, in their order.
    fn free_array(&mut self, first: u16, len: usize, list: &mut FreeList) -> Checked<()> {
        let n = len.div_ceil(ARRAY_DATA);
        let mut at = first;
        for left in (0..n).rev() {
            let c = self.chunk_mut(at)?;
            if c[0] != ARRAY_TYPE {
                return Err(Flaw(
                    "a ZAP name or value that runs into a chunk that is no array",
                ));
            }
            c[..22].fill(0);
            c[0] = FREE_TYPE;
            at = u16::from_le_bytes([c[22], c[23]]);
            if left == 0 {
                c[22..].copy_from_slice(&list.head.to_le_bytes());
                list.head = first;
                list.free = list.free.saturating_add(n as u16);
            }
        }
        Ok(())
    }

    /// The lowest cd that no entry of this hash has. Reads the whole chain, because very old ones
    /// are unsorted.
    fn next_cd(&self, hash: u64, bucket: usize) -> Checked<u32> {
        let mut cds = Vec::new();
        for e in self.view().chain(bucket) {
            let e = e?;
            if e.hash == hash {
                cds.push(e.cd);
            }
        }
        cds.sort_unstable();
        let mut cd = 0;
        for c in cds {
            if c == cd {
                cd += 1;
            }
        }
        Ok(cd)
    }

    /// Adds an entry that does not exist yet. The caller made sure that its chunks are free.
    pub(crate) fn add(&mut self, key: &Key<'_>, cd: Option<u32>, value: &Stored) -> Checked<()> {
        let bucket = self.g.bucket(key.hash, self.view().prefix_len());
        let cd = match cd {
            Some(cd) => cd,
            None => self.next_cd(key.hash, bucket)?,
        };
        let (name_len, value_len) = (key.stored_len(), value.bytes().len());
        let mut chunks = Chunks::new();
        let rest = self.next_free(chunks_for(name_len, value_len), &mut chunks)?;
        let Some((&chunk, arrays)) = chunks.split_first() else {
            return Err(Flaw("a ZAP entry without a chunk"));
        };
        let (names, values) = arrays.split_at(name_len.div_ceil(ARRAY_DATA));
        self.put_array(&key.bytes, names)?;
        self.put_array(value.bytes(), values)?;
        let free = self.view().free();
        self.put_list(&FreeList {
            head: rest,
            free: free.saturating_sub(chunks.len() as u16),
        });
        self.put_entry(&Entry {
            chunk,
            int_size: value.int_size,
            next: END,
            name: names.first().copied().unwrap_or(END),
            name_count: key.count,
            value: values.first().copied().unwrap_or(END),
            value_count: value.count,
            cd,
            hash: key.hash,
        })?;
        self.link(chunk, cd, bucket)?;
        self.add_entries(1);
        Ok(())
    }

    fn put_entry(&mut self, e: &Entry) -> Checked<()> {
        let c = self.chunk_mut(e.chunk)?;
        c[0] = ENTRY_TYPE;
        c[1] = e.int_size;
        for (at, v) in [
            (2, e.next),
            (4, e.name),
            (6, e.name_count),
            (8, e.value),
            (10, e.value_count),
        ] {
            c[at..at + 2].copy_from_slice(&v.to_le_bytes());
        }
        c[12..16].copy_from_slice(&e.cd.to_le_bytes());
        c[16..].copy_from_slice(&e.hash.to_le_bytes());
        Ok(())
    }

    /// Inserts an entry into its chain, before the first greater cd.
    #[inline]
    fn link(&mut self, chunk: u16, cd: u32, bucket: usize) -> Checked<()> {
        let mut at = HEADER + 2 * bucket;
        if self.view().head(bucket) == END {
            self.put16(self.g.chunk(chunk) + 2, END);
            self.put16(at, chunk);
            return Ok(());
        }
        let mut next = END;
        for e in self.view().chain(bucket) {
            let e = e?;
            if e.cd > cd {
                next = e.chunk;
                break;
            }
            at = self.g.chunk(e.chunk) + 2;
        }
        self.put16(self.g.chunk(chunk) + 2, next);
        self.put16(at, chunk);
        Ok(())
    }

    /// Removes an entry from its chain.
    fn unlink(&mut self, gone: &Entry) -> Checked<()> {
        let bucket = self.g.bucket(gone.hash, self.view().prefix_len());
        let mut at = HEADER + 2 * bucket;
        for e in self.view().chain(bucket) {
            let e = e?;
            if e.chunk == gone.chunk {
                self.put16(at, gone.next);
                return Ok(());
            }
            at = self.g.chunk(e.chunk) + 2;
        }
        Err(Flaw("a ZAP entry that is not in the chain of its hash"))
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, e: &Entry, words: bool) -> Checked<()> {
        let mut seen = Chunks::new();
        // All chunks are checked before the first is changed.
        self.must_have(e.value, e.value_len(), &mut seen)?;
        self.must_have(e.name, e.name_len(words), &mut seen)?;
        self.unlink(e)?;
        let mut list = self.list();
        self.discard(e, words, &mut list)?;
        self.put_list(&list);
        self.add_entries(-1);
        Ok(())
    }

    /// Frees the chunks of an entry that is in no chain.
    fn discard(&mut self, e: &Entry, words: bool, list: &mut FreeList) -> Checked<()> {
        self.free_array(e.value, e.value_len(), list)?;
        self.free_array(e.name, e.name_len(words), list)?;
        self.free_chunk(e.chunk, list)
    }

    /// Replaces an entry's value; `false` (nothing changed) if there are too few free chunks.
    pub(crate) fn replace(&mut self, e: &Entry, value: &Stored) -> Checked<bool> {
        let (old, new) = (e.value_len(), value.bytes().len());
        let (given, taken) = (old.div_ceil(ARRAY_DATA), new.div_ceil(ARRAY_DATA));
        if taken > usize::from(self.view().free()) + given {
            return Ok(false);
        }
        let mut chunks = Chunks::new();
        self.must_have(e.value, old, &mut chunks)?;
        let more = taken.saturating_sub(given);
        let rest = self.next_free(more, &mut chunks)?;
        let mut list = FreeList {
            head: rest,
            free: self.view().free().saturating_sub(more as u16),
        };
        let (kept, left) = chunks.split_at(taken);
        let first = kept.first().copied().unwrap_or(END);
        self.put_array(value.bytes(), kept)?;
        for &i in left.iter().rev() {
            self.free_chunk(i, &mut list)?;
        }
        self.put_list(&list);
        self.put_entry(&Entry {
            value: first,
            int_size: value.int_size,
            value_count: value.count,
            ..*e
        })?;
        Ok(true)
    }

    /// Moves the entries whose next hash bit is 1 into `other`, a new block of zeros, and lengthens
    /// both prefixes. On a flaw nothing has changed.
    pub(crate) fn split(&mut self, other: &mut [u8], words: bool) -> Checked<()> {
        let (prefix, len) = (self.view().prefix(), self.view().prefix_len());
        if self.view().entries() == 0 {
            return Err(Flaw("a ZAP leaf that is full without entries"));
        }
        let sorted = self.b[36] & 1 != 0;
        let high = Fresh::begin(other, (prefix << 1) | 1, len + 1, sorted)?;
        let before = self.b.to_vec();
        let old = Leaf {
            b: &before,
            g: self.g,
        };
        let done = self.move_upper(&old, high, words);
        if done.is_err() {
            self.b.copy_from_slice(&before);
        }
        done
    }

    /// Does the work of [`Self::split`], from the old state of the leaf. On a flaw, part of it is
    /// done.
    fn move_upper(&mut self, old: &Leaf<'_>, mut high: Fresh<'_>, words: bool) -> Checked<()> {
        let (prefix, len) = (old.prefix(), old.prefix_len());
        self.set_prefix(prefix << 1);
        self.set_prefix_len(len + 1);
        // All chains change, because with a longer prefix each entry is in another bucket.
        let heads = HEADER..HEADER + 2 * self.g.buckets();
        self.b[heads].fill(0xff);
        let mut list = self.list();
        let mut left = old.entries();
        let chunks = self.g.chunks().min(usize::from(END)) as u16;
        for i in (0..chunks).filter(|&i| old.is_entry(i)) {
            let e = old.entry(i)?;
            if super::top_bits(e.hash, len) != prefix {
                return Err(Flaw("a ZAP entry whose hash is not of its leaf"));
            }
            if (e.hash >> (63 - len)) & 1 == 0 {
                let bucket = self.g.bucket(e.hash, len + 1);
                self.link(i, e.cd, bucket)?;
                continue;
            }
            high.adopt(old, &e, words)?;
            self.discard(&e, words, &mut list)?;
            left = left.saturating_sub(1);
        }
        high.finish()?;
        self.put_list(&list);
        self.put16(30, left);
        Ok(())
    }

    /// Whether an entry of these sizes fits now.
    pub(crate) fn fits(&self, name: usize, value: usize) -> bool {
        chunks_for(name, value) <= usize::from(self.view().free())
    }

    /// Takes over the entries and the range of its sibling. The caller made sure that all fit.
    pub(crate) fn absorb(&mut self, sibling: &Leaf<'_>, words: bool) -> Checked<()> {
        let (prefix, len) = (self.view().prefix(), self.view().prefix_len());
        let sorted = self.b[36] & 1 != 0;
        // Every entry changes its bucket, so the leaf is rebuilt; on a flaw nothing has changed.
        let mut fresh = vec![0; self.b.len()];
        let mut both = Fresh::begin(&mut fresh, prefix >> 1, len.saturating_sub(1), sorted)?;
        for from in [self.view(), *sibling] {
            let chunks = from.geometry().chunks().min(usize::from(END)) as u16;
            for i in (0..chunks).filter(|&i| from.is_entry(i)) {
                let e = from.entry(i)?;
                from.must_own(e.hash)?;
                both.adopt(&from, &e, words)?;
            }
        }
        both.finish()?;
        self.b.copy_from_slice(&fresh);
        Ok(())
    }
}

/// A leaf that is rebuilt from the entries of others. It uses chunks in order, and the rest becomes
/// the free list at the end.
pub(crate) struct Fresh<'a> {
    leaf: LeafMut<'a>,
    chunks: u16,
    used: u16,
    entries: u16,
}

impl<'a> Fresh<'a> {
    /// In a block of zeros.
    pub(crate) fn begin(
        b: &'a mut [u8],
        prefix: u64,
        prefix_len: u32,
        sorted: bool,
    ) -> Checked<Self> {
        let g = Geometry {
            shift: b.len().trailing_zeros(),
        };
        let Ok(chunks) = u16::try_from(g.chunks()) else {
            return Err(Flaw("ZAP leaves of this size cannot be written"));
        };
        b[..8].copy_from_slice(&LEAF_TYPE.to_le_bytes());
        b[24..28].copy_from_slice(&MAGIC.to_le_bytes());
        b[36] = u8::from(sorted);
        b[HEADER..HEADER + 2 * g.buckets()].fill(0xff);
        let mut leaf = LeafMut { b, g };
        leaf.set_prefix(prefix);
        leaf.set_prefix_len(prefix_len);
        Ok(Self {
            leaf,
            chunks,
            used: 0,
            entries: 0,
        })
    }

    /// The next chunk.
    #[inline]
    fn take(&mut self) -> Checked<(u16, &mut [u8; CHUNK])> {
        let i = self.used;
        if i >= self.chunks {
            return Err(Flaw("a ZAP leaf whose entries share chunks"));
        }
        self.used += 1;
        Ok((i, self.leaf.chunk_mut(i)?))
    }

    /// Puts bytes into the next chunks. Returns the first one.
    #[inline]
    fn put_array(&mut self, bytes: &[u8], nul: bool) -> Checked<u16> {
        let first = self.used;
        let mut rest = bytes;
        for left in (0..(bytes.len() + usize::from(nul)).div_ceil(ARRAY_DATA)).rev() {
            let (piece, more) = rest.split_at(rest.len().min(ARRAY_DATA));
            rest = more;
            let (i, c) = self.take()?;
            c[0] = ARRAY_TYPE;
            c[1..1 + piece.len()].copy_from_slice(piece);
            let next = if left == 0 { END } else { i + 1 };
            c[22..].copy_from_slice(&next.to_le_bytes());
        }
        Ok(first)
    }

    /// Adds a name that fits, has at most 255 bytes, and is not in the leaf.
    #[inline]
    pub(crate) fn put_name(
        &mut self,
        name: &[u8],
        value: &Stored,
        hash: u64,
        cd: u32,
    ) -> Checked<()> {
        self.leaf.view().must_own(hash)?;
        let (chunk, _) = self.take()?;
        let at = self.put_array(name, true)?;
        let value_at = self.put_array(value.bytes(), false)?;
        self.put_entry(&Entry {
            chunk,
            int_size: value.int_size,
            next: END,
            name: at,
            name_count: (name.len() + 1) as u16,
            value: value_at,
            value_count: value.count,
            cd,
            hash,
        })
    }

    /// Adds an entry to its chain, after its arrays were stored.
    #[inline]
    fn put_entry(&mut self, e: &Entry) -> Checked<()> {
        self.leaf.put_entry(e)?;
        let bucket = self.leaf.g.bucket(e.hash, self.leaf.view().prefix_len());
        self.leaf.link(e.chunk, e.cd, bucket)?;
        self.entries += 1;
        Ok(())
    }

    /// Copies an array of `len` bytes unchanged. Returns its first chunk.
    #[inline]
    fn copy_array(&mut self, from: &Leaf<'_>, first: u16, len: usize) -> Checked<u16> {
        let mut at = first;
        let mut copied = END;
        for left in (0..len.div_ceil(ARRAY_DATA)).rev() {
            let old = from.chunk(at)?;
            if old[0] != ARRAY_TYPE {
                return Err(Flaw(
                    "a ZAP name or value that runs into a chunk that is no array",
                ));
            }
            at = u16::from_le_bytes([old[22], old[23]]);
            let (i, new) = self.take()?;
            *new = *old;
            let next = if left == 0 { END } else { i + 1 };
            new[22..].copy_from_slice(&next.to_le_bytes());
            copied = copied.min(i);
        }
        Ok(copied)
    }

    /// Copies an entry of another leaf.
    #[inline]
    fn adopt(&mut self, from: &Leaf<'_>, e: &Entry, words: bool) -> Checked<()> {
        let (chunk, _) = self.take()?;
        let name = self.copy_array(from, e.name, e.name_len(words))?;
        let value = self.copy_array(from, e.value, e.value_len())?;
        self.put_entry(&Entry {
            chunk,
            next: END,
            name,
            value,
            ..*e
        })
    }

    /// Completes the leaf: the rest becomes free.
    pub(crate) fn finish(mut self) -> Checked<LeafMut<'a>> {
        let (used, chunks) = (self.used, self.chunks);
        for i in used..chunks {
            let c = self.leaf.chunk_mut(i)?;
            c[0] = FREE_TYPE;
            let next = if i + 1 == chunks { END } else { i + 1 };
            c[22..].copy_from_slice(&next.to_le_bytes());
        }
        self.leaf.put16(28, chunks - used);
        self.leaf.put16(30, self.entries);
        self.leaf.put16(34, if used == chunks { END } else { used });
        Ok(self.leaf)
    }
}

#[cfg(test)]
mod tests;

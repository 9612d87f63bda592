//! The sort order of a micro ZAP's names, cached with its block.
//!
//! One packed u64 per entry: `hash >> 32 | cd (16) | slot (16)`. They are in two sorted runs of one
//! array: a long one, and a short tail of recent additions. A removal marks its record as dead in
//! place. If the tail or the number of dead records passes a small bound, the runs are merged. So
//! an addition or removal moves a few hundred bytes at most, whatever the size of the block. It
//! never reads the block's other slots.
//!
//! ```text
//! runs: [ sorted ................ | tail .... ]      free: slots given back below `next`, a stack
//! ```
//!
//! Memory: 8 bytes per entry, 2 per free slot among the used ones, and spare room for the tail.
//!
//! The names' hashes are uniform. So a search starts at the position that the hash suggests, and
//! continues with growing steps.

use super::{HashBits, SLOT, field, slots, u64_at};
use crate::zap::flaw::{Checked, Flaw};
use crate::zap::hash::crc_field;
use crate::zap::normalize;
use zuse_io::BlockIndex;

const DEAD: u64 = 0xffff;
/// A block with fewer slots reserves room for all of its slots.
const FEW: usize = 32;

/// One record of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record(u64);

impl Record {
    fn new(hash: u64, cd: u16, slot: usize) -> Self {
        Self((hash & !0xffff_ffff) | (u64::from(cd) << 16) | (slot as u64 & 0xffff))
    }
    /// The kept bits of the hash.
    pub(crate) fn hash(self) -> u64 {
        self.0 & !0xffff_ffff
    }
    /// The collision differentiator.
    pub(crate) fn cd(self) -> u32 {
        (self.0 >> 16) as u32 & 0xffff
    }
    /// The slot in the block.
    pub(crate) fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// The index of one micro ZAP block.
#[derive(Clone)]
pub(crate) struct MicroIndex {
    runs: Vec<u64>,
    /// Length of the first run.
    sorted: usize,
    dead: usize,
    /// Free slots below `next`.
    free: Vec<u16>,
    /// All slots from this one on are free.
    next: usize,
    flaw: Option<Flaw>,
}

impl BlockIndex for MicroIndex {
    fn clone_index(&self) -> Box<dyn BlockIndex> {
        Box::new(self.clone())
    }
    fn footprint(&self) -> usize {
        size_of::<Self>() + self.runs.capacity() * 8 + self.free.capacity() * 2
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// First position in a run whose record is not below `key`.
#[inline]
fn lower_bound(run: &[u64], key: u64) -> usize {
    let n = run.len();
    if n == 0 {
        return 0;
    }
    let guess = (((key >> 32) * n as u64) >> 32) as usize;
    let (mut low, mut high);
    if run[guess] < key {
        // Invariant: run[low - 1] < key.
        low = guess + 1;
        let mut step = 8;
        high = low + step;
        while high < n && run[high] < key {
            low = high + 1;
            step *= 2;
            high = low + step;
        }
        high = high.min(n);
    } else {
        // Invariant: run[high] >= key.
        high = guess;
        let mut step = 8;
        loop {
            low = high.saturating_sub(step);
            if low == 0 || run[low] < key {
                break;
            }
            high = low;
            step *= 2;
        }
    }
    low + run[low..high].partition_point(|&r| r < key)
}

/// Both runs merged, dead records left out.
#[derive(Clone)]
pub(crate) struct Merged<'a> {
    a: &'a [u64],
    b: &'a [u64],
}

impl Iterator for Merged<'_> {
    type Item = Record;
    #[inline]
    fn next(&mut self) -> Option<Record> {
        loop {
            let record = match (self.a.first(), self.b.first()) {
                (Some(&x), Some(&y)) if y < x => {
                    self.b = &self.b[1..];
                    y
                }
                (Some(&x), _) => {
                    self.a = &self.a[1..];
                    x
                }
                (None, Some(&y)) => {
                    self.b = &self.b[1..];
                    y
                }
                (None, None) => return None,
            };
            if record & DEAD != DEAD {
                return Some(Record(record));
            }
        }
    }
}

impl MicroIndex {
    fn empty() -> Self {
        Self {
            runs: Vec::new(),
            sorted: 0,
            dead: 0,
            free: Vec::new(),
            next: 0,
            flaw: None,
        }
    }

    /// Hashes every name of a block once and sorts.
    pub(crate) fn build(b: &[u8]) -> Self {
        if slots(b) < FEW && (0..slots(b)).all(|i| field_is_free(b, i)) {
            return Self::empty();
        }
        let mut gather = Gather::new(slots(b));
        let (next, flaw) = Self::each_record(b, &mut |r| gather.push(r));
        let used = gather.records.len();
        let mut free = Vec::new();
        if used < next {
            free.reserve_exact(next - used);
            // The lowest on top.
            free.extend(
                (0..next)
                    .rev()
                    .filter(|&i| field_is_free(b, i))
                    .map(|i| i as u16),
            );
        }
        let runs = gather.sorted();
        Self {
            sorted: runs.len(),
            runs,
            dead: 0,
            free,
            next,
            flaw,
        }
    }

    /// Passes the record of every entry to `f`, in slot order. Returns the end of the used slots,
    /// and the first error found.
    #[inline]
    pub(crate) fn each_record<F: FnMut(u64) + ?Sized>(
        b: &[u8],
        emit: &mut F,
    ) -> (usize, Option<Flaw>) {
        let (salt, normflags) = (u64_at(b, 8), u64_at(b, 16));
        let mut flaw = None;
        let mut next = 0;
        for (i, s) in b
            .as_chunks::<SLOT>()
            .0
            .iter()
            .skip(1)
            .take(slots(b))
            .enumerate()
        {
            let f = field(s);
            if f[0] == 0 {
                continue;
            }
            next = i + 1;
            let Some((mut hash, len)) = crc_field(salt, f) else {
                flaw = Some(Flaw("a micro ZAP name without its NUL"));
                continue;
            };
            if normflags != 0 {
                match normalize::hash(salt, normflags, &f[..len]) {
                    Ok(h) => hash = h,
                    Err(_) => flaw = Some(Flaw("a micro ZAP name that cannot be normalised")),
                }
            }
            let cd = u64_at(s, 8) as u32;
            let Ok(cd) = u16::try_from(cd) else {
                flaw = Some(Flaw("a micro ZAP collision number above 65535"));
                continue;
            };
            emit(Record::new(HashBits::NORMAL.cut(hash), cd, i).0);
        }
        (next, flaw)
    }

    /// The error of the block, if it has one.
    pub(crate) fn check(&self) -> Checked<()> {
        self.flaw.map_or(Ok(()), Err)
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.runs.len() - self.dead
    }

    /// The entries at or after a position, in order.
    pub(crate) fn from(&self, hash: u64, cd: u32) -> Merged<'_> {
        let Ok(cd) = u16::try_from(cd) else {
            // Past every possible entry of this hash.
            return match hash.checked_add(1 << 36) {
                Some(h) => self.from(h, 0),
                None => Merged { a: &[], b: &[] },
            };
        };
        let key = Record::new(hash, cd, 0).0;
        let (a, b) = self.runs.split_at(self.sorted);
        Merged {
            a: &a[lower_bound(a, key)..],
            b: &b[lower_bound(b, key)..],
        }
    }

    /// The entries of one hash, by cd.
    #[inline]
    pub(crate) fn twins(&self, hash: u64) -> impl Iterator<Item = Record> + '_ {
        self.from(hash, 0)
            .take_while(move |r| r.hash() == hash & !0xffff_ffff)
    }

    /// The lowest cd that no entry of this hash has, and how many entries have this hash.
    pub(crate) fn next_cd(&self, hash: u64) -> (u32, usize) {
        let (mut cd, mut count) = (0, 0);
        for r in self.twins(hash) {
            count += 1;
            if r.cd() == cd {
                cd += 1;
            }
        }
        (cd, count)
    }

    /// The slot that the next insertion takes.
    pub(crate) fn peek_free(&self, slots: usize) -> Option<usize> {
        match self.free.last() {
            Some(&i) => Some(usize::from(i)),
            None => (self.next < slots).then_some(self.next),
        }
    }

    /// Adds an entry for the slot from [`Self::peek_free`]; `slots` is the size of the block.
    pub(crate) fn insert(&mut self, hash: u64, cd: u16, slot: usize, slots: usize) {
        // A client continues a listing after a (hash, cd): a second entry with the same would be
        // skipped.
        debug_assert!(
            self.twins(hash).all(|r| r.cd() != u32::from(cd)),
            "two entries of hash {hash:#x} and number {cd}"
        );
        if self.free.last().is_some_and(|&i| usize::from(i) == slot) {
            self.free.pop();
        } else {
            self.next = self.next.max(slot + 1);
        }
        if self.runs.len() - self.sorted >= self.slack() {
            self.merge();
        }
        let record = Record::new(hash, cd, slot).0;
        if self.runs.len() == self.runs.capacity() {
            // Most directories are small and never fill more than one row of slots.
            let more = if slots < FEW {
                slots.saturating_sub(self.runs.len()).max(4)
            } else {
                self.slack()
            };
            self.runs.reserve_exact(more);
        }
        let at = self.sorted + lower_bound(&self.runs[self.sorted..], record);
        self.runs.insert(at, record);
    }

    /// Forgets the entry of a slot.
    pub(crate) fn remove(&mut self, hash: u64, slot: usize) {
        let key = Record::new(hash, 0, 0).0;
        let end = Record::new(hash, u16::MAX, DEAD as usize).0;
        for (from, to) in [(0, self.sorted), (self.sorted, self.runs.len())] {
            let run = &mut self.runs[from..to];
            let start = lower_bound(run, key);
            for r in run[start..].iter_mut().take_while(|r| **r <= end) {
                if Record(*r).slot() == slot && slot != DEAD as usize {
                    *r |= DEAD;
                    self.dead += 1;
                    self.free.push(slot as u16);
                    if self.dead > 2 * self.slack() {
                        self.merge();
                    }
                    return;
                }
            }
        }
    }

    /// Bound on the tail: moving within the tail and merging everything cost about the same there.
    fn slack(&self) -> usize {
        (32 + self.runs.len() / 64).min(256)
    }

    /// Merges into one run without dead records. In place, apart from a copy of the short tail.
    fn merge(&mut self) {
        if self.dead > 0 {
            let mut kept = 0;
            let mut sorted = 0;
            for i in 0..self.runs.len() {
                if i == self.sorted {
                    sorted = kept;
                }
                let r = self.runs[i];
                if r & DEAD != DEAD {
                    self.runs[kept] = r;
                    kept += 1;
                }
            }
            if self.sorted == self.runs.len() {
                sorted = kept;
            }
            self.runs.truncate(kept);
            self.sorted = sorted;
            self.dead = 0;
        }
        let mut buffer = [0u64; 512];
        let tail_len = self.runs.len() - self.sorted;
        let Some(tail) = buffer.get_mut(..tail_len) else {
            self.runs.sort_unstable();
            self.sorted = self.runs.len();
            return;
        };
        tail.copy_from_slice(&self.runs[self.sorted..]);
        // From the end: the greatest record goes to the last place.
        let (mut a, mut b, mut at) = (self.sorted, tail_len, self.runs.len());
        while b > 0 {
            at -= 1;
            if a > 0 && self.runs[a - 1] > tail[b - 1] {
                a -= 1;
                self.runs[at] = self.runs[a];
            } else {
                b -= 1;
                self.runs[at] = tail[b];
            }
        }
        self.sorted = self.runs.len();
    }
}

fn field_is_free(b: &[u8], i: usize) -> bool {
    b.get((i + 1) * SLOT + super::NAME) == Some(&0)
}

/// Records in slot order, counted by their top bits on the way. So sorting takes one pass to place
/// them, and one to order the few neighbours that share all those bits.
struct Gather {
    records: Vec<u64>,
    /// The number of records for each value of the top bits.
    counts: Vec<u32>,
    shift: u32,
}

impl Gather {
    /// For at most `most` records: about one counter per record, none for a few.
    fn new(most: usize) -> Self {
        let bits = match most {
            0..64 => 0,
            _ => (usize::BITS - (most - 1).leading_zeros()).min(14),
        };
        Self {
            records: Vec::with_capacity(most),
            counts: vec![0; if bits == 0 { 0 } else { 1 << bits }],
            shift: 64 - bits,
        }
    }

    #[inline(always)]
    fn push(&mut self, record: u64) {
        self.records.push(record);
        if let Some(count) = self.counts.get_mut((record >> (self.shift & 63)) as usize) {
            *count += 1;
        }
    }

    /// The records in order, in exactly as much memory as they need.
    fn sorted(mut self) -> Vec<u64> {
        let n = self.records.len();
        if n < self.counts.len() / 8 || self.counts.is_empty() {
            self.records.sort_unstable();
            self.records.shrink_to_fit();
            return self.records;
        }
        let mut before = 0;
        for count in &mut self.counts {
            before += std::mem::replace(count, before);
        }
        let mut sorted = vec![0u64; n];
        for &r in &self.records {
            if let Some(at) = self.counts.get_mut((r >> (self.shift & 63)) as usize)
                && let Some(to) = sorted.get_mut(*at as usize)
            {
                *to = r;
                *at += 1;
            }
        }
        // A record is at most as far from its place as there are records with the same top bits. If
        // those are many, moving one by one is too slow.
        let mut moves = 16 * n;
        for i in 1..n {
            let r = sorted[i];
            if sorted[i - 1] <= r {
                continue;
            }
            let mut at = i;
            while at > 0 && sorted[at - 1] > r {
                sorted[at] = sorted[at - 1];
                at -= 1;
            }
            sorted[at] = r;
            moves = moves.saturating_sub(i - at);
            if moves == 0 {
                sorted.sort_unstable();
                break;
            }
        }
        sorted
    }
}

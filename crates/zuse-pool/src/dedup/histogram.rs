//! Blocks by their reference counts: buckets of powers of two.

use zuse_io::Pipeline;

use super::{Entry, Key};

/// Buckets.
const BUCKETS: usize = 64;
/// Words of a bucket on disk.
const WORDS: usize = 8;

/// Sums over some blocks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How many.
    pub blocks: u64,
    /// After decompression.
    pub lsize: u64,
    /// As stored.
    pub psize: u64,
    /// As charged to datasets: all copies, deflated.
    pub dsize: u64,
}

impl Figures {
    fn words(&self) -> [u64; WORDS / 2] {
        [self.blocks, self.lsize, self.psize, self.dsize]
    }

    fn take(&mut self, other: &Self, times: u64) {
        for (mine, theirs) in self.pairs(other) {
            *mine = mine.saturating_sub(theirs.saturating_mul(times));
        }
    }

    fn add(&mut self, other: &Self, times: u64) {
        for (mine, theirs) in self.pairs(other) {
            *mine = mine.saturating_add(theirs.saturating_mul(times));
        }
    }

    fn pairs(&mut self, other: &Self) -> [(&mut u64, u64); WORDS / 2] {
        [
            (&mut self.blocks, other.blocks),
            (&mut self.lsize, other.lsize),
            (&mut self.psize, other.psize),
            (&mut self.dsize, other.dsize),
        ]
    }

    fn parse(words: &[u64]) -> Self {
        let word = |i: usize| words.get(i).copied().unwrap_or(0);
        Self {
            blocks: word(0),
            lsize: word(1),
            psize: word(2),
            dsize: word(3),
        }
    }
}

/// For each bucket, 2^n up to 2^(n+1) references: totals as stored, and multiplied by the
/// references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[(Figures, Figures); BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Box::new([Default::default(); BUCKETS]),
        }
    }
}

impl Histogram {
    /// From the words of `DDT-statistics`.
    pub fn parse(words: &[u64]) -> Self {
        let mut out = Self::default();
        for (bucket, words) in out.buckets.iter_mut().zip(words.chunks_exact(WORDS)) {
            let (stored, referenced) = words.split_at(WORDS / 2);
            *bucket = (Figures::parse(stored), Figures::parse(referenced));
        }
        out
    }

    /// As in `DDT-statistics`.
    pub fn words(&self) -> Vec<u64> {
        let buckets = self.buckets.iter();
        let words = buckets.flat_map(|(stored, referenced)| [stored.words(), referenced.words()]);
        words.flatten().collect()
    }

    /// Adds blocks with that many references.
    pub fn add(&mut self, blocks: &Figures, references: u64) {
        let Some(bucket) = references.checked_ilog2() else {
            return;
        };
        if let Some((stored, referenced)) = self.buckets.get_mut(bucket as usize) {
            stored.add(blocks, 1);
            referenced.add(blocks, references);
        }
    }

    /// Adds the blocks of an entry, to the bucket of all their references together.
    pub fn add_entry(&mut self, io: &Pipeline, key: &Key, entry: &Entry, checksum: u8) {
        self.change(io, key, entry, checksum, Figures::add);
    }

    /// Subtracts the blocks of an entry.
    pub(super) fn take_entry(&mut self, io: &Pipeline, key: &Key, entry: &Entry, checksum: u8) {
        self.change(io, key, entry, checksum, Figures::take);
    }

    fn change(
        &mut self,
        io: &Pipeline,
        key: &Key,
        entry: &Entry,
        checksum: u8,
        by: fn(&mut Figures, &Figures, u64),
    ) {
        // Blocks without references only wait to be freed.
        let live = || entry.iter().filter(|s| s.references > 0);
        let total = live().fold(0u64, |sum, s| sum.saturating_add(s.references));
        let Some(bucket) = total.checked_ilog2() else {
            return;
        };
        let Some((stored, referenced)) = self.buckets.get_mut(bucket as usize) else {
            return;
        };
        for shared in live() {
            let block = Figures {
                blocks: 1,
                lsize: key.lsize(),
                psize: key.psize(),
                dsize: io.dsize(&shared.pointer(key, checksum)),
            };
            by(stored, &block, 1);
            by(referenced, &block, shared.references);
        }
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            mine.0.add(&theirs.0, 1);
            mine.1.add(&theirs.1, 1);
        }
    }

    /// The buckets that are not empty: least number of references, totals as stored, totals as
    /// referenced.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &Figures, &Figures)> {
        let rows = self.buckets.iter().enumerate();
        rows.filter(|(_, (stored, _))| stored.blocks > 0)
            .map(|(i, (stored, referenced))| (1 << i, stored, referenced))
    }

    /// The totals of all buckets: as stored, as referenced.
    pub fn total(&self) -> (Figures, Figures) {
        let mut sum = (Figures::default(), Figures::default());
        for (stored, referenced) in self.buckets.iter() {
            sum.0.add(stored, 1);
            sum.1.add(referenced, 1);
        }
        sum
    }
}

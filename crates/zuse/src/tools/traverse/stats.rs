//! Sums over blocks: by type and level, by size.

use std::collections::BTreeMap;

use zuse_format::{BlockPointer, BpKind};

/// Rows of the table: the old object types, then those without one.
pub const ROWS: usize = DITTO + 2;
/// Blocks waiting to be freed.
pub const DEFERRED: usize = 54;
const DITTO: usize = 55;
/// All newer types.
const OTHER: usize = 56;
/// Sizes of an embedded block, and zero.
const EMBEDDED: usize = 113;
/// Bins of sizes: 512 bytes to 16 MiB.
pub const BINS: usize = 16;

/// The row of an object type.
pub(crate) fn row_of(object_type: u8) -> usize {
    if object_type < 54 {
        usize::from(object_type)
    } else {
        OTHER
    }
}

/// Sums of some blocks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// How many.
    pub blocks: u64,
    /// After decompression.
    pub lsize: u64,
    /// As stored.
    pub psize: u64,
    /// All copies, padding.
    pub asize: u64,
}

impl Stat {
    /// Adds another sum to this one.
    pub fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.lsize = self.lsize.saturating_add(other.lsize);
        self.psize = self.psize.saturating_add(other.psize);
        self.asize = self.asize.saturating_add(other.asize);
    }
}

/// Blocks of about one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// How many.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Sums that are printed before the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All blocks.
    pub all: Stat,
    /// Copies of gang blocks.
    pub gangs: u64,
    /// Embedded blocks.
    pub embedded: u64,
    /// Blocks with two copies on one vdev.
    pub ditto_on_one: u64,
    /// Blocks with two copies in one metaslab.
    pub ditto_in_metaslab: u64,
    /// Space that is shared by dedup, without the first reference; and the number of blocks.
    pub deduped: Bin,
    /// The same for cloned blocks.
    pub cloned: Bin,
}

/// All sums.
#[derive(Clone, Debug)]
pub struct Figures {
    /// By row and level; the last level includes all higher ones.
    by_type: Box<[[Stat; 8]; ROWS]>,
    /// Sizes as stored, decompressed, allocated.
    pub sizes: [[Bin; BINS]; 3],
    /// Blocks by row, level and stored sectors of 512 bytes, if requested.
    by_sectors: Option<BTreeMap<(usize, usize, u16), u64>>,
    /// Embedded blocks, by their size in bytes.
    pub embedded: [u64; EMBEDDED],
    /// The rest.
    pub totals: Totals,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            by_type: Box::new([[Stat::default(); 8]; ROWS]),
            sizes: Default::default(),
            by_sectors: None,
            embedded: [0; EMBEDDED],
            totals: Totals::default(),
        }
    }
}

/// Metaslab size of each top-level vdev, as a shift; `None` for a missing one.
pub(crate) type Shifts = [Option<u8>];

fn bin_of(bytes: u64) -> usize {
    (bytes.max(512).next_power_of_two().ilog2() as usize - 9).min(BINS - 1)
}

impl Figures {
    /// Sums of a row; of one level, or of all.
    pub fn row(&self, row: usize, level: Option<usize>) -> Stat {
        let mut sum = Stat::default();
        let Some(levels) = self.by_type.get(row) else {
            return sum;
        };
        for (i, stat) in levels.iter().enumerate() {
            if level.is_none_or(|l| l == i) {
                sum.add(stat);
            }
        }
        sum
    }

    /// Sums that also distinguish blocks by their exact size.
    pub(crate) fn with_sectors(wanted: bool) -> Self {
        Self {
            by_sectors: wanted.then(BTreeMap::new),
            ..Self::default()
        }
    }

    /// How many blocks of a row (or of all) and a level (or of all) are stored in how many sectors
    /// of 512 bytes. Empty unless [`super::Options::sectors`] was set. Embedded blocks have none.
    pub fn sectors(&self, row: Option<usize>, level: Option<usize>) -> BTreeMap<u16, u64> {
        let mut out = BTreeMap::new();
        for ((r, l, sectors), count) in self.by_sectors.iter().flatten() {
            if row.is_none_or(|row| row == *r) && level.is_none_or(|level| level == *l) {
                *out.entry(*sectors).or_default() += count;
            }
        }
        out
    }

    pub(crate) fn add(&mut self, bp: &BlockPointer, row: usize, shifts: &Shifts) {
        let normal = bp.kind() == BpKind::Normal;
        let stat = Stat {
            blocks: 1,
            lsize: bp.lsize(),
            psize: if normal { bp.psize() } else { 0 },
            asize: if normal { bp.asize() } else { 0 },
        };
        let level = usize::from(bp.level()).min(7);
        if let Some(place) = self.by_type.get_mut(row).and_then(|r| r.get_mut(level)) {
            place.add(&stat);
        }
        if let Some(by_sectors) = &mut self.by_sectors {
            let sectors = u16::try_from(stat.psize / 512).unwrap_or(u16::MAX);
            *by_sectors.entry((row, level, sectors)).or_default() += 1;
        }
        let totals = &mut self.totals;
        totals.all.add(&stat);
        if !normal {
            totals.embedded += 1;
            let len = bp.embedded_payload().map_or(0, |(_, len)| len);
            if let Some(count) = self.embedded.get_mut(len) {
                *count += 1;
            }
            return;
        }
        totals.gangs += bp.dvas().filter(|d| d.is_gang()).count() as u64;
        let (mut on_one, mut in_metaslab) = (false, false);
        for (i, a) in bp.dvas().enumerate() {
            for b in bp.dvas().skip(i + 1).filter(|b| b.vdev() == a.vdev()) {
                on_one = true;
                let shift = shifts.get(a.vdev() as usize).copied().flatten();
                in_metaslab |= shift.is_some_and(|s| a.offset() >> s == b.offset() >> s);
            }
        }
        totals.ditto_on_one += u64::from(on_one);
        totals.ditto_in_metaslab += u64::from(in_metaslab);
        for (sizes, bytes) in self
            .sizes
            .iter_mut()
            .zip([stat.psize, stat.lsize, stat.asize])
        {
            if let Some(bin) = sizes.get_mut(bin_of(bytes)) {
                bin.blocks += 1;
                bin.bytes += bytes;
            }
        }
    }

    pub(crate) fn note_dedup(&mut self, bytes: u64) {
        self.totals.deduped.blocks += 1;
        self.totals.deduped.bytes += bytes;
    }

    pub(crate) fn note_clone(&mut self, bytes: u64) {
        self.totals.cloned.blocks += 1;
        self.totals.cloned.bytes += bytes;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.by_type.iter_mut().zip(other.by_type.iter()) {
            for (a, b) in mine.iter_mut().zip(theirs) {
                a.add(b);
            }
        }
        for (mine, theirs) in self.sizes.iter_mut().zip(&other.sizes) {
            for (a, b) in mine.iter_mut().zip(theirs) {
                a.blocks += b.blocks;
                a.bytes += b.bytes;
            }
        }
        if let Some(theirs) = other.by_sectors {
            let mine = self.by_sectors.get_or_insert_default();
            for (key, count) in theirs {
                *mine.entry(key).or_default() += count;
            }
        }
        for (mine, theirs) in self.embedded.iter_mut().zip(&other.embedded) {
            *mine += theirs;
        }
        let (a, b) = (&mut self.totals, &other.totals);
        a.all.add(&b.all);
        a.gangs += b.gangs;
        a.embedded += b.embedded;
        a.ditto_on_one += b.ditto_on_one;
        a.ditto_in_metaslab += b.ditto_in_metaslab;
        for (x, y) in [(&mut a.deduped, &b.deduped), (&mut a.cloned, &b.cloned)] {
            x.blocks += y.blocks;
            x.bytes += y.bytes;
        }
    }
}

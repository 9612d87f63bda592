//! Compares the tables of cloned blocks with the pointers found. Each block has one pointer more
//! than its entry says. A table's own totals are the sums of its entries.

use std::collections::BTreeMap;

use zuse_base::{Error, ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::{BlockPointer, clone_count};
use zuse_pool::Pool;

use super::{Finding, Report};

const TABLES: &str = "com.fudosecurity:brt:vdev:";
/// Ranges that a table can have, at most: more than any real vdev.
const MOST_RANGES: u64 = 1 << 24;

fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|w| u64::from_le_bytes(*w)).collect()
}

struct Entry {
    further: u64,
    met: u64,
    claimed: bool,
}

/// The entries of all tables, by vdev and offset of the first copy.
#[derive(Default)]
pub(super) struct Clones(BTreeMap<(u32, u64), Entry>);

impl Clones {
    /// Reads the tables, and compares each with its own totals.
    pub fn load(pool: &Pool, report: &mut Report) -> Result<Self> {
        let mut all = Self::default();
        let mut tables = 0;
        let mut cursor = pool.directory()?.cursor(0);
        while let Some(entry) = cursor.next()? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let (Some(vdev), Some(object)) = (name.strip_prefix(TABLES), entry.value.first())
            else {
                continue;
            };
            let vdev: u32 = vdev
                .parse()
                .map_err(|_| Error::corrupt(name.clone(), "no number of a vdev"))?;
            tables += 1;
            all.table(pool, &name, (vdev, object), report)?;
        }
        let counted = pool.features().refcount("com.fudosecurity:block_cloning");
        let place = "feature block_cloning";
        report.differ(Finding::FeatureCount, place, counted, tables);
        Ok(all)
    }

    /// Counts a pointer to a block in a table; returns whether it is the first one that claims its
    /// space.
    pub fn count(&mut self, bp: &BlockPointer, claims: bool) -> Option<bool> {
        let first = bp.dva(0);
        let entry = self.0.get_mut(&(first.vdev(), first.offset()))?;
        entry.met += 1;
        let claimed = entry.claimed;
        entry.claimed |= claims;
        Some(claims && !claimed)
    }

    /// Each block has one pointer more than its entry says.
    pub fn compare(&self, report: &mut Report) {
        for ((vdev, offset), entry) in &self.0 {
            if entry.met != entry.further.saturating_add(1) {
                let (met, further) = (entry.met, entry.further);
                let what = format!("{met} pointers, the table says {further} beyond the first");
                let place = format!("block at <{vdev}:{offset:x}>");
                report.problem(Finding::CloneCount, place, what);
            }
        }
    }

    /// Reads a vdev's table, and compares it with its header and its ranges.
    fn table(
        &mut self,
        pool: &Pool,
        name: &str,
        (vdev, object): (u32, u64),
        report: &mut Report,
    ) -> Result<()> {
        let dnode = pool.mos().dnode(ObjectId(object))?;
        let header = words(&dnode.bonus_vec());
        let [entries, size, big, total, range, _, _] = header[..] else {
            return Err(Error::contradiction(name, "its header has another size"));
        };
        if size > MOST_RANGES || range == 0 {
            let what = format!("{size} ranges of {range} bytes");
            report.problem(Finding::CloneTable, name, what);
            return Ok(());
        }
        let mut ranges = vec![0u16; size as usize];
        let mut all = Zap::open(&pool.mos().dnode(ObjectId(entries))?)?.cursor(0);
        let mut count = 0;
        while let Some(entry) = all.next()? {
            let key = entry.name.first_chunk::<8>();
            let Some(offset) = key.map(|k| u64::from_be_bytes(*k)) else {
                return Err(Error::corrupt(name, "a key that is no offset"));
            };
            count += 1;
            if let Some(there) = ranges.get_mut((offset / range) as usize) {
                *there = there.saturating_add(1);
            }
            let entry = Entry {
                further: further(&entry.value),
                met: 0,
                claimed: false,
            };
            self.0.insert((vdev, offset), entry);
        }
        let mut stored = vec![0; size as usize * 2];
        dnode.read_at(0, &mut stored)?;
        let read = if big == 0 {
            u16::from_le_bytes
        } else {
            u16::from_be_bytes
        };
        let stored = stored.as_chunks::<2>().0.iter().map(|n| read(*n));
        if count != total || !stored.eq(ranges.iter().copied()) {
            let what = format!("says {total} entries, has {count}; or its ranges are not so");
            report.problem(Finding::CloneTable, name, what);
        }
        Ok(())
    }
}

fn further(value: &ZapValue) -> u64 {
    match value {
        ZapValue::U64(n) => *n,
        ZapValue::Bytes(b) => clone_count::read(b).map_or(0, |(n, _)| n),
        ZapValue::Array { .. } => 0,
    }
}

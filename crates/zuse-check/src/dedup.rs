//! Compares dedup tables with the pointers found. Each entry counts the pointers to its blocks, is
//! in the store of its class, and is included in the histograms.

use std::collections::{BTreeMap, HashMap};

use zuse_base::Result;
use zuse_format::BlockPointer;
use zuse_pool::Pool;
use zuse_pool::dedup::{Entry, Histogram, Key, Shared, Table, tables};

use super::{Finding, Report};

/// An entry, and the pointers found to each of its blocks.
struct Counted {
    entry: Entry,
    /// Number of pointers found, and whether one of them claimed the space.
    met: Vec<(u64, bool)>,
}

/// The entries of all tables, by checksum and key.
#[derive(Default)]
pub(super) struct Tables {
    entries: HashMap<(u8, Key), Counted>,
}

fn total(entry: &Entry) -> u64 {
    let references = entry.iter().map(|shared| shared.references);
    references.fold(0, u64::saturating_add)
}

impl Tables {
    /// Reads the tables, and compares each with its own totals.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn load(pool: &Pool, report: &mut Report) -> Result<Self> {
        let mut all = Self::default();
        let tables = tables(pool)?;
        for table in &tables {
            all.table(pool, table, report)?;
        }
        let fast = tables.iter().filter(|t| t.is_flat()).count() as u64;
        let counted = pool.features().refcount("com.klarasystems:fast_dedup");
        if fast != counted {
            report.problem(
                Finding::FeatureCount,
                "feature fast_dedup",
                format!("counts {counted} tables of {fast}"),
            );
        }
        Ok(all)
    }

    fn table(&mut self, pool: &Pool, table: &Table, report: &mut Report) -> Result<()> {
        let mut newer: BTreeMap<Key, Entry> = BTreeMap::new();
        // The log that is being flushed is older, so entries of the other one replace its.
        for flushing in [true, false] {
            for log in table.logs.iter().filter(|l| l.is_flushing() == flushing) {
                newer.extend(log.entries.iter().map(|(k, e)| (*k, e.clone())));
            }
        }
        for store in &table.stores {
            let mut sum = Histogram::default();
            table.each_entry(pool, store, &mut |_, key, entry| {
                if newer.contains_key(key) {
                    return Ok(());
                }
                sum.add_entry(pool.io(), key, entry, table.checksum);
                let class = match total(entry) {
                    0 => 0,
                    1 => 2,
                    _ => 1,
                };
                if class != store.class {
                    let said = format!("{} pointers", total(entry));
                    report.problem(Finding::DedupClass, store.name.as_str(), said);
                }
                self.add(table.checksum, *key, entry.clone(), report);
                Ok(())
            })?;
            if sum != store.histogram {
                let said = format!(
                    "sums to {:?}, its histogram to {:?}",
                    sum.total(),
                    store.histogram.total()
                );
                report.problem(Finding::DedupHistogram, store.name.as_str(), said);
            }
        }
        for (key, entry) in newer {
            self.add(table.checksum, key, entry, report);
        }
        Ok(())
    }

    fn add(&mut self, checksum: u8, key: Key, entry: Entry, report: &mut Report) {
        let met = vec![(0, false); entry.len()];
        let before = self.entries.insert((checksum, key), Counted { entry, met });
        if before.is_some() {
            let said = format!("two entries for {key:x?}");
            report.problem(Finding::DedupCount, "dedup tables", said);
        }
    }

    /// Counts a pointer. Returns its block with all copies of the entry, and whether this is the
    /// first pointer to claim it. None if no table has it.
    pub fn count(&mut self, bp: &BlockPointer, claims: bool) -> Option<(BlockPointer, bool)> {
        let key = Key::of(bp);
        let counted = self.entries.get_mut(&(bp.checksum_kind(), key))?;
        let is_it =
            |shared: &Shared| shared.dvas[0] == bp.dva(0) && shared.birth == bp.physical_birth();
        let at = counted.entry.iter().position(is_it)?;
        let (met, claimed) = counted.met.get_mut(at)?;
        *met += 1;
        let first = claims && !*claimed;
        *claimed |= claims;
        let block = counted.entry.get(at)?.pointer(&key, bp.checksum_kind());
        Some((block, first))
    }

    /// Blocks without any pointer, whose entries wait in a log.
    pub fn idle(&self) -> Vec<BlockPointer> {
        let all = self.entries.iter().flat_map(|((checksum, key), counted)| {
            let idle = counted.entry.iter().filter(|s| s.references == 0);
            idle.map(|shared| shared.pointer(key, *checksum))
        });
        all.collect()
    }

    /// Each block has as many pointers as its entry says.
    pub fn compare(&self, report: &mut Report) {
        for ((_, key), counted) in &self.entries {
            for (shared, (met, _)) in counted.entry.iter().zip(&counted.met) {
                if shared.references != *met {
                    let first = shared.dvas[0];
                    report.problem(
                        Finding::DedupCount,
                        format!("block at <{}:{:x}>", first.vdev(), first.offset()),
                        format!(
                            "{met} pointers, the table says {}; key {key:x?}",
                            shared.references
                        ),
                    );
                }
            }
        }
    }
}

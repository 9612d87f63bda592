//! Space saved by sharing blocks: in dedup tables, and in tables of cloned blocks
//! (`docs/format/04b-dedup-brt-scan.md`).

use zuse_base::{ObjectId, Result};
use zuse_format::field::u64_at;
use zuse_pool::Pool;
use zuse_pool::dedup::{Histogram, Prune, tables};

/// A table of cloned blocks in the MOS directory, followed by the id of its vdev.
const CLONES: &[u8] = b"com.fudosecurity:brt:vdev:";

/// Totals of the dedup tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deduped {
    /// Bytes of blocks, once.
    pub stored: u64,
    /// Bytes of blocks, once for each pointer.
    referenced: u64,
    /// Bytes of the tables on disk.
    pub tables: u64,
}

/// Totals of the tables of cloned blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cloned {
    /// Bytes of blocks, once.
    pub used: u64,
    /// Bytes that the additional references would take.
    pub saved: u64,
}

/// A ratio as in `zpool get`: hundredths, truncated.
fn ratio(part: u64, whole: u64) -> String {
    let hundredths = if whole == 0 {
        100
    } else {
        u128::from(part) * 100 / u128::from(whole)
    };
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

impl Deduped {
    /// Bytes that the additional references would take.
    pub fn saved(&self) -> u64 {
        self.referenced.saturating_sub(self.stored)
    }

    /// Reads all tables of a pool.
    ///
    /// # Errors
    /// They cannot be read, or have an unknown form.
    pub fn of(pool: &Pool) -> Result<Self> {
        let mut sum = Histogram::default();
        let mut on_disk = 0u64;
        for table in tables(pool)? {
            sum.merge(&table.histogram(pool.io()));
            let stores = table.stores.iter().map(|s| s.on_disk);
            on_disk = stores.fold(on_disk, u64::saturating_add);
        }
        let (stored, referenced) = sum.total();
        Ok(Self {
            stored: stored.dsize,
            referenced: referenced.dsize,
            tables: on_disk,
        })
    }

    /// How many times the blocks are referenced, on average.
    pub fn ratio(&self) -> String {
        ratio(self.referenced, self.stored)
    }
}

impl Cloned {
    /// Reads the tables of all vdevs of a pool.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of(pool: &Pool) -> Result<Self> {
        let mut sum = Self::default();
        let mut cursor = pool.directory()?.cursor(0);
        while let Some(entry) = cursor.next()? {
            let object = entry
                .value
                .first()
                .filter(|_| entry.name.starts_with(CLONES));
            if let Some(object) = object {
                let header = pool.mos().dnode(ObjectId(object))?.bonus_vec();
                sum.used = sum.used.saturating_add(u64_at(&header, 40));
                sum.saved = sum.saved.saturating_add(u64_at(&header, 48));
            }
        }
        Ok(sum)
    }

    /// How many times the blocks are referenced, on average.
    pub fn ratio(&self) -> String {
        ratio(self.used.saturating_add(self.saved), self.used)
    }
}

impl crate::Pool {
    /// Removes entries of blocks with one reference from the dedup tables; returns how many.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` for tables of the old form, `Refused(ROFS)`; a table cannot be read.
    pub fn prune_dedup(&self, what: Prune) -> Result<u64> {
        self.spa().prune_dedup(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_cut_off_after_two_digits_and_one_where_nothing_is_shared() {
        assert_eq!(ratio(0, 0), "1.00");
        assert_eq!(ratio(5, 5), "1.00");
        assert_eq!(ratio(199_999, 100_000), "1.99");
        assert_eq!(ratio(u64::MAX, 1 << 60), "15.99");
    }
}

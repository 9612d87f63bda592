//! Statistics of an open pool: its caches and its device operations.

use zuse_vdev::VdevStatus;

use crate::Pool;

/// Figures of one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheFigures {
    /// Its name.
    pub name: &'static str,
    /// Queries answered from it.
    pub hits: u64,
    /// Queries passed on to the layer below.
    pub misses: u64,
    /// Number of entries; 0 if not counted.
    pub entries: u64,
    /// Their size in bytes, approximate for decoded metadata.
    pub bytes: u64,
    /// Its limit: bytes of the block cache, entries of a table.
    pub limit: u64,
}

/// Operations on devices since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Traffic {
    /// Operations on a vdev; for an interior one, the sums of its children.
    pub fn of(vdev: &VdevStatus) -> Self {
        Self {
            reads: vdev.reads,
            read_bytes: vdev.read_bytes,
            writes: vdev.writes,
            written_bytes: vdev.written_bytes,
        }
    }
}

impl Pool {
    /// Statistics of the block cache and of the tables of decoded metadata, in this order.
    pub fn caches(&self) -> Vec<CacheFigures> {
        let blocks = self.spa().io().cache().stats();
        let mut out = vec![CacheFigures {
            name: "blocks",
            hits: blocks.hits,
            misses: blocks.misses,
            entries: 0,
            bytes: blocks.used as u64,
            limit: blocks.limit as u64,
        }];
        out.extend(
            self.dsl()
                .metadata_cache_stats()
                .iter()
                .map(|t| CacheFigures {
                    name: t.name,
                    hits: t.hits,
                    misses: t.misses,
                    entries: t.entries,
                    bytes: t.bytes,
                    limit: t.limit,
                }),
        );
        out
    }

    /// Statistics of the intent logs of all datasets, by name.
    pub fn log_figures(&self) -> Vec<(&'static str, u64)> {
        let f = &self.spa().logs().figures;
        let (by_flush, flushes) = (f.by_flush.get(), f.flushes.get());
        let mean = |nanos: u64, of: u64| nanos / of.max(1);
        vec![
            ("commits", f.commits.get()),
            ("commits_by_flush", by_flush),
            ("commits_by_txg", f.by_txg.get()),
            ("flushes", flushes),
            ("waiters_per_100_flushes", by_flush * 100 / flushes.max(1)),
            ("blocks", f.blocks.get()),
            ("records", f.records.get()),
            ("bytes", f.bytes.get()),
            ("placed_blocks", f.placed.get()),
            ("placed_bytes", f.placed_bytes.get()),
            ("failures", f.failures.get()),
            ("mean_write_ns", mean(f.write_nanos.get(), f.blocks.get())),
            ("mean_flush_ns", mean(f.flush_nanos.get(), flushes)),
            ("mean_wait_ns", mean(f.wait_nanos.get(), by_flush)),
        ]
    }

    /// Operations on its devices.
    pub fn traffic(&self) -> Traffic {
        Traffic::of(&self.vdev_status())
    }
}

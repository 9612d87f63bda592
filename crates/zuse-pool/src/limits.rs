//! A pool's use of the machine's resources, and its tuning.
//!
//! None of this is stored in a pool: it applies to the process that has the pool open.
//! [`crate::tunable`] is the table of the names under which users set these.

use std::time::Duration;

/// Bounds and tunables of an open pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the block cache.
    pub cache: usize,
    /// Percentage of the cache that metadata may keep from data when both want it.
    pub cache_metadata_percent: u8,
    /// Bytes of file data that may be dirty; above that, writers wait. On slow devices they wait
    /// earlier: at the amount that the devices write within a second.
    pub dirty: u64,
    /// Bytes of objects, directories and other metadata that may be dirty. New versions of cached
    /// blocks count against the cache instead, up to half of it.
    pub dirty_metadata: u64,
    /// Bytes of extended attribute values that may be dirty beyond the cache's loans. Further ones
    /// count as bytes of files. On slow devices it is the amount that they write within
    /// [`Self::txg_timeout`].
    pub dirty_values: u64,
    /// A txg is written after this time even without waiters.
    pub txg_timeout: Duration,
    /// Threads for compression, checksums, device writes and prefetching.
    pub threads: usize,
    /// Size in bytes above which a micro ZAP becomes a fat one.
    pub micro_zap_max: u32,
    /// log2 of the indirect blocks of new objects.
    pub indirect_shift: u8,
    /// New user extended attributes are stored without their `user.` prefix, as illumos and FreeBSD
    /// do.
    pub xattr_bare: bool,
    /// Copying a range of a file clones whole blocks that are on disk.
    pub clone_blocks: bool,
    /// Allocations in a part of a clone's livelist before the next part is begun.
    pub livelist_entries: u64,
    /// A clone keeps its livelist while it shares more than this percentage with its origin.
    pub livelist_least_shared: u8,
    /// Memory of a scan for collected blocks: one part in this many of the machine's memory, at
    /// most.
    pub scan_memory_fact: u32,
    /// Scans stay active and make no progress.
    pub scan_held: bool,
    /// Instead of every dataset's `recordsize`.
    pub record_size: Option<u32>,
    /// Instead of every dataset's `atime`.
    pub atime: Option<bool>,
    /// Overrides every dataset's `primarycache`, by its stored number.
    pub primary_cache: Option<u8>,
    /// Keep decoded metadata of datasets. Off only for measuring its effect.
    pub metadata_tier: bool,
    /// Sends bypass the cache. Off only for measuring the effect.
    pub send_bypass: bool,
    /// Large blocks are written past the host's page cache if possible. Off for measuring the
    /// effect, or if they are read again soon.
    pub write_around: bool,
    /// Runs of long blocks are prefetched past the host's page cache if possible. Off if the host
    /// should cache them.
    pub read_around: bool,
    /// Most rounds of PBKDF2 for deriving a key from a passphrase, whatever a pool or a stream asks
    /// for.
    pub pbkdf2_rounds: u64,
    /// Raw streams are received even if the snapshot lacks an IV set guid, or has another one.
    pub no_ivset_check: bool,
    /// Seconds that a process holds an imported pool while nothing is mounted and no command runs;
    /// none: until it is exported. With 0 each command opens the pool itself.
    pub host_linger: Option<u32>,
    /// Commits are written to intent logs; if off, they wait for their txg.
    pub intent_log: bool,
    /// Data of large synchronous writes goes to its final place, and the log points there; if off,
    /// it goes through the log.
    pub log_indirect: bool,
    /// Events that are kept for `zpool events`; the oldest are dropped.
    pub events_kept: usize,
}

/// Rounds of PBKDF2: seconds on a slow machine, and 28 times the default of a new key.
const PBKDF2_ROUNDS: u64 = 10_000_000;

/// Threads of a pool at least.
const THREADS: usize = 6;

impl Default for Limits {
    fn default() -> Self {
        Self {
            cache: quarter_of_memory(512 << 20),
            cache_metadata_percent: zuse_io::METADATA_PERCENT,
            dirty: tenth_of_memory(512 << 20),
            dirty_metadata: 512 << 20,
            dirty_values: tenth_of_memory(4 << 30),
            txg_timeout: Duration::from_secs(5),
            // They mostly wait for devices: two threads would not keep a disk busy while a mount
            // reads.
            threads: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .max(THREADS),
            micro_zap_max: 128 << 10,
            indirect_shift: 17,
            xattr_bare: false,
            clone_blocks: false,
            livelist_entries: 500_000,
            livelist_least_shared: 75,
            scan_memory_fact: 20,
            scan_held: false,
            record_size: None,
            atime: None,
            primary_cache: None,
            metadata_tier: true,
            send_bypass: true,
            write_around: true,
            read_around: true,
            pbkdf2_rounds: PBKDF2_ROUNDS,
            no_ivset_check: false,
            host_linger: None,
            intent_log: true,
            log_indirect: true,
            events_kept: zuse_base::Events::DEFAULT_CAPACITY,
        }
    }
}

impl Limits {
    /// Memory in bytes that a scan may use for collected blocks.
    pub fn scan_memory(&self) -> u64 {
        let memory = zuse_device::memory().unwrap_or(1 << 30);
        memory / u64::from(self.scan_memory_fact.max(1))
    }
}

/// A quarter of the memory, but at most `most`, so that a small machine or container has room for
/// dirty data and for programs.
fn quarter_of_memory(most: usize) -> usize {
    let bytes = zuse_device::memory().and_then(|bytes| usize::try_from(bytes / 4).ok());
    bytes.map_or(most, |bytes| bytes.clamp(32 << 20, most))
}

/// A tenth of the memory, as OpenZFS has it for dirty data, but at most `most`. For files that is
/// the block cache, which lends half of its budget ([`zuse_io::Cache::lend`]), or three quarters
/// while it has memory to spare.
fn tenth_of_memory(most: u64) -> u64 {
    zuse_device::memory().map_or(64 << 20, |bytes| (bytes / 10).clamp(64 << 20, most))
}

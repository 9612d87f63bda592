//! What a pool takes of the machine, and how it is tuned.
//!
//! Nothing of this is stored in a pool: it holds for the process that has the pool open.
//! [`crate::tunable`] is the table of the names under which users set these.

use std::time::Duration;

/// Bounds and tunables of an open pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the block cache.
    pub cache: usize,
    /// Percentage of the cache that metadata may keep from data when both want it.
    pub cache_metadata_percent: u8,
    /// Bytes of files that may be dirty; writers wait beyond. On slow devices they wait before,
    /// when there is as much as these take within a second.
    pub dirty: u64,
    /// Bytes of objects, directories and other metadata that may be dirty. New versions of cached
    /// blocks count against the cache instead, up to half of it.
    pub dirty_metadata: u64,
    /// Bytes of values of extended attributes that may be dirty beside the cache, when it has
    /// nothing more to lend them. Beyond they count as bytes of files. On slow devices it is what
    /// these take within [`Self::txg_timeout`].
    pub dirty_values: u64,
    /// A txg is written after this time even if nobody waits.
    pub txg_timeout: Duration,
    /// Threads for compression, checksums, device writes and reading ahead.
    pub threads: usize,
    /// Bytes to which a micro ZAP grows before it becomes a fat one.
    pub micro_zap_max: u32,
    /// log2 of the indirect blocks of new objects.
    pub indirect_shift: u8,
    /// New user extended attributes are stored without their `user.` prefix, as illumos and FreeBSD
    /// do.
    pub xattr_bare: bool,
    /// Copying a range of a file points to whole blocks that are on disk.
    pub clone_blocks: bool,
    /// Allocations that a part of a clone's livelist has before the next is begun.
    pub livelist_entries: u64,
    /// A clone keeps its livelist while it shares more than this percentage with its origin.
    pub livelist_least_shared: u8,
    /// A scan keeps this part of the memory's bytes, or less, of blocks that it has collected: one
    /// part in so many.
    pub scan_memory_fact: u32,
    /// Instead of every dataset's `recordsize`.
    pub record_size: Option<u32>,
    /// Instead of every dataset's `atime`.
    pub atime: Option<bool>,
    /// Instead of every dataset's `primarycache`, by its stored number.
    pub primary_cache: Option<u8>,
    /// Decoded metadata of datasets is kept; off to measure what that brings.
    pub metadata_tier: bool,
    /// Sends leave the cache as it is; off to measure what that spares.
    pub send_bypass: bool,
    /// Large blocks are written around the host's cache where that can be; off to measure what that
    /// spares, or where they are read again soon.
    pub write_around: bool,
    /// Runs of long blocks are prefetched around the host's cache where that can be; off where
    /// it is to keep them.
    pub read_around: bool,
    /// Most rounds of PBKDF2 that are turned to make a key of a passphrase, whatever a pool or a
    /// stream asks for.
    pub pbkdf2_rounds: u64,
    /// Raw streams are received on snapshots that lack the guid of their IVs, or have another one.
    pub no_ivset_check: bool,
    /// Seconds that a process holds an imported pool while nothing is mounted and no command runs;
    /// none: until it is exported. With 0 each command opens the pool itself.
    pub host_linger: Option<u32>,
    /// Commits are written to intent logs; off, they wait for their txg.
    pub intent_log: bool,
    /// Data of large synchronous writes goes to its final place, and the log points there; off, it
    /// goes through the log.
    pub log_indirect: bool,
    /// Events that are kept for `zpool events`; older ones make room.
    pub events_kept: usize,
}

/// Rounds of PBKDF2: seconds on a slow machine, and 28 times what a new key gets.
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
            // They mostly wait for devices: two threads would not keep a disk busy beside a mount
            // that reads.
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
            log_indirect: false,
            events_kept: zuse_base::Events::USUAL,
        }
    }
}

impl Limits {
    /// Bytes that a scan may take for blocks that it has collected.
    pub fn scan_memory(&self) -> u64 {
        let memory = zuse_device::memory().unwrap_or(1 << 30);
        memory / u64::from(self.scan_memory_fact.max(1))
    }
}

/// A quarter of the memory, but no more than `most`: a small machine, or a container, keeps room
/// for what is dirty and for programs.
fn quarter_of_memory(most: usize) -> usize {
    let bytes = zuse_device::memory().and_then(|bytes| usize::try_from(bytes / 4).ok());
    bytes.map_or(most, |bytes| bytes.clamp(32 << 20, most))
}

/// A tenth of the memory, as OpenZFS has it for what is dirty, but no more than `most`. For files
/// that is the block cache, half of which the cache lends ([`zuse_io::Cache::lend`]), three
/// quarters while it has them to spare.
fn tenth_of_memory(most: u64) -> u64 {
    zuse_device::memory().map_or(64 << 20, |bytes| (bytes / 10).clamp(64 << 20, most))
}

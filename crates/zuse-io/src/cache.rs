//! The block cache (ARC): one entry per block, decoded, charged by its real bytes against one
//! budget.
//!
//! A scan does not empty it, because each shard has three queues (the S3-FIFO shape):
//! - `probation`, a tenth of the budget, takes new blocks;
//! - `main` takes blocks that are used again while in probation; it is a clock with small counters;
//! - `ghost` remembers keys that fell out of probation; a block that returns goes to `main` at
//!   once.
//!
//! Metadata and file data have separate queues. If metadata hold more than their share of the
//! budget they are evicted first, otherwise data. So neither a scan of files nor a walk of
//! directories takes the whole cache.
//!
//! Invariants
//! - A block is returned for its own key only: place, birth and a word of the checksum. A [`Key`]
//!   is compared in full, and a block that is rewritten in place is removed.
//! - `used` is the sum of `charge` over all entries. `metadata` is the part of it that entries of
//!   [`Class::Metadata`] hold. Subtracting more than there is fails at once. The sums of a shard
//!   are compared when it is swept or emptied ([`Shard::check_invariants`]).
//! - A key is in exactly one of `probation` and `main` iff it is in `map`. A stale queue slot,
//!   whose key was removed, is skipped when it reaches the front. The sweep that drops stale slots
//!   checks this.
//!
//! Budget
//! - `used` exceeds `limit` at most by one block a thread.
//! - Loans are taken off `limit`, so that cache and loans together stay within the budget. They are
//!   for copies of cached blocks that are being changed, and for values of extended attributes.
//! - At most half is lent. Up to three quarters are lent to values, as long as no cached block has
//!   to be evicted for that.
//! - Values beyond that have a budget of their own ([`Cache::set_extra_budget`]), which is 0 unless
//!   the owner sets it.
//!
//! Flights: a block that several threads want at once is read by one of them, even if that one only
//! prefetches. No shard lock is held meanwhile. A thread with flights of its own waits for no other
//! thread's flight until its own have ended. The tests show each of these.
//!
//! Hot path: a hit is one hash, one shard lock, one `Arc` clone and a counter.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use zuse_base::sync::{Condvar, Mutex};

use zuse_base::Result;
use zuse_format::{BlockPointer, object_type};

use crate::Block;

const SHARDS: usize = 16;
/// Share of the budget that metadata may keep from data, in percent.
pub const METADATA_PERCENT: u8 = 75;

/// Identity of a stored block: first DVA, physical birth, and a word of the checksum. In later
/// passes of a txg a block may be rewritten in place. A reader may still hold the pointer to what
/// was there before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    dva: [u64; 2],
    birth: u64,
    sum: u64,
}

impl Key {
    pub(crate) fn of(bp: &BlockPointer) -> Self {
        // The size bits of DVA word 0 stay in: two blocks never share a place and a birth.
        Self {
            dva: [bp.words[0], bp.words[1]],
            birth: bp.physical_birth(),
            sum: bp.words[12],
        }
    }

    /// Key of the same block as readers without the dataset's key see it: not authenticated, and
    /// with encrypted bonuses in dnodes.
    pub(crate) fn locked(self) -> Self {
        Self {
            sum: !self.sum,
            ..self
        }
    }

    fn hash64(&self) -> u64 {
        let mut h = self.dva[1].wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= self.dva[0].rotate_left(32) ^ self.birth.wrapping_mul(0xd6e8_feb8_6659_fd93);
        h ^= h >> 32;
        h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
        h ^ (h >> 29)
    }
}

/// Keys hash themselves; this hasher passes the words through.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_u64(&mut self, v: u64) {
        let h = (self.0.rotate_left(5) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = h ^ (h >> 32);
    }
    fn write_usize(&mut self, v: usize) {
        self.write_u64(v as u64);
    }
}

type KeyMap<V> = HashMap<Key, V, BuildHasherDefault<WordHasher>>;

/// Which queues a block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Contents of files and volumes.
    Data,
    /// All other blocks: indirect blocks, dnodes, directories, the pool's own objects.
    Metadata,
}

impl Class {
    pub(crate) fn of(bp: &BlockPointer) -> Self {
        if bp.level() > 0 || object_type::is_metadata(bp.object_type()) {
            Self::Metadata
        } else {
            Self::Data
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Data => Self::Metadata,
            Self::Metadata => Self::Data,
        }
    }
}

struct Entry {
    block: Arc<Block>,
    class: Class,
    charge: usize,
    /// Uses since it was last passed over, capped at 3.
    uses: u8,
    in_main: bool,
}

/// The queues of one class in one shard.
#[derive(Default)]
struct Queues {
    probation: VecDeque<Key>,
    main: VecDeque<Key>,
    ghost: VecDeque<Key>,
    ghosts: KeyMap<()>,
    probation_bytes: usize,
    bytes: usize,
    entries: usize,
}

#[derive(Default)]
struct Shard {
    map: KeyMap<Entry>,
    data: Queues,
    metadata: Queues,
    flights: KeyMap<Arc<Flight>>,
}

/// A block that is being read. Held by the reading thread, by the map, and by each waiting thread.
#[derive(Default)]
struct Flight {
    end: Mutex<End>,
    ready: Condvar,
}

#[derive(Default)]
enum End {
    #[default]
    Open,
    Came(Result<Arc<Block>>),
    /// The reading thread gave up: a waiting thread tries again.
    GivenUp,
}

/// Figures for `zuse` statistics and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// Lookups that found the block.
    pub hits: u64,
    /// Lookups that went to the devices.
    pub misses: u64,
    /// Bytes held now.
    pub used: usize,
    /// Cached bytes that are metadata.
    pub metadata: usize,
    /// Budget in bytes.
    pub limit: usize,
}

/// The block cache of one pool.
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    limit: AtomicUsize,
    /// Bytes of metadata above which metadata are evicted before data.
    metadata_limit: AtomicUsize,
    used: AtomicUsize,
    lent: AtomicUsize,
    /// Bytes lent beyond the budget, and the bound on them.
    beside: AtomicUsize,
    most_beside: AtomicUsize,
    metadata: AtomicUsize,
    looks: LookupCounters,
}

/// Counters of lookups. They have cache lines of their own: inserting threads on other cores change
/// the fields above all the time.
#[derive(Default)]
#[repr(align(128))]
struct LookupCounters {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Bytes lent from a cache's budget, or beyond it. They are returned on drop.
pub struct Loan {
    cache: Arc<Cache>,
    bytes: usize,
    beside: bool,
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loan({})", self.bytes)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.cache
            .lender(self.beside)
            .fetch_sub(self.bytes, Relaxed);
    }
}

impl Cache {
    /// An empty cache with a budget in bytes.
    pub fn new(limit: usize) -> Self {
        let cache = Self {
            shards: std::array::from_fn(|_| Mutex::new(Shard::default())),
            limit: AtomicUsize::new(0),
            metadata_limit: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            lent: AtomicUsize::new(0),
            beside: AtomicUsize::new(0),
            most_beside: AtomicUsize::new(0),
            metadata: AtomicUsize::new(0),
            looks: LookupCounters::default(),
        };
        cache.set_limit(limit, METADATA_PERCENT);
        cache
    }

    /// Changes the budget and the share of it (in percent) that metadata may keep from data. Blocks
    /// above the budget are evicted at the next insert.
    pub fn set_limit(&self, limit: usize, metadata_percent: u8) {
        let share = limit / 100 * usize::from(metadata_percent.min(100));
        self.limit.store(limit, Relaxed);
        self.metadata_limit.store(share, Relaxed);
    }

    /// Lends a part of the budget, for memory that takes the place of cached blocks. `None` when
    /// half is lent already.
    pub fn lend(self: &Arc<Self>, bytes: usize) -> Option<Loan> {
        self.lend_up_to(self.limit.load(Relaxed) / 2, bytes, false)
    }

    /// The counter of bytes lent from the budget, or beyond it.
    fn lender(&self, beside: bool) -> &AtomicUsize {
        if beside { &self.beside } else { &self.lent }
    }

    fn lend_up_to(self: &Arc<Self>, most: usize, bytes: usize, beside: bool) -> Option<Loan> {
        let before = self.lender(beside).fetch_add(bytes, Relaxed);
        let loan = Loan {
            cache: self.clone(),
            bytes,
            beside,
        };
        (before.saturating_add(bytes) <= most).then_some(loan)
    }

    /// Lends budget that no cached block uses, so nothing is evicted. Where too little is unused,
    /// or three quarters are lent already, it lends beyond the budget. `None` once that bound is
    /// reached, too.
    pub fn lend_spare(self: &Arc<Self>, bytes: usize) -> Option<Loan> {
        let taken = self.used.load(Relaxed) + self.lent.load(Relaxed);
        let limit = self.limit.load(Relaxed);
        let spare = if bytes <= limit.saturating_sub(taken) {
            self.lend_up_to(limit / 4 * 3, bytes, false)
        } else {
            None
        };
        spare.or_else(|| self.lend_up_to(self.most_beside.load(Relaxed), bytes, true))
    }

    /// Sets how much may be lent beyond the budget. Existing loans stay.
    pub fn set_extra_budget(&self, bytes: usize) {
        self.most_beside.store(bytes, Relaxed);
    }

    /// Number of lookups that did not find the block.
    pub fn misses(&self) -> u64 {
        self.looks.misses.load(Relaxed)
    }

    /// The figures now.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.looks.hits.load(Relaxed),
            misses: self.looks.misses.load(Relaxed),
            used: self.used.load(Relaxed),
            metadata: self.metadata.load(Relaxed),
            limit: self.limit.load(Relaxed),
        }
    }

    fn shard(&self, key: &Key) -> usize {
        (key.hash64() >> 60) as usize % SHARDS
    }

    /// The block, if it is cached.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Block>> {
        let mut shard = self.shards[self.shard(key)].lock();
        let block = shard.hit(key)?;
        drop(shard);
        // Counted without the shard's lock, which other threads wait for.
        self.looks.hits.fetch_add(1, Relaxed);
        Some(block)
    }

    /// The block, if it is cached. Neither its rank nor the statistics change.
    pub(crate) fn peek(&self, key: &Key) -> Option<Arc<Block>> {
        let shard = self.shards[self.shard(key)].lock();
        shard.map.get(key).map(|entry| entry.block.clone())
    }

    /// The cached block, or the result of `fetch`; concurrent callers share one fetch. A caller
    /// that came while a fetch was running retries if that fetch failed. The cause may have been
    /// repaired before this caller asked.
    pub(crate) fn get_or(
        &self,
        key: Key,
        class: Class,
        fetch: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let at = self.shard(&key);
        let mut begun_before = true;
        let flight = loop {
            let mut shard = self.shards[at].lock();
            if let Some(block) = shard.hit(&key) {
                drop(shard);
                self.looks.hits.fetch_add(1, Relaxed);
                return Ok(block);
            }
            let Some(flight) = shard.flights.get(&key).cloned() else {
                let flight = Arc::<Flight>::default();
                shard.flights.insert(key, flight.clone());
                break flight;
            };
            drop(shard);
            match flight.wait() {
                // Only the first flight may have begun before this caller asked. A later failure is
                // its own.
                Some(Err(_)) if std::mem::take(&mut begun_before) => {}
                Some(result) => return result,
                None => {}
            }
        };
        self.looks.misses.fetch_add(1, Relaxed);
        let mut landing = FlightEnd {
            cache: self,
            key,
            flight: &flight,
            // What waiting threads get if the fetch panics: the drop then ends the flight with it.
            end: Some(End::Came(Err(zuse_base::Error::truncated(
                "block cache",
                "the read was abandoned",
            )))),
        };
        let result = fetch().map(Arc::new);
        landing.end = match &result {
            Ok(block) => {
                // It also ends the flight: threads that come from now on find the block.
                self.insert(key, class, block.clone());
                None
            }
            Err(error) => Some(End::Came(Err(error.clone()))),
        };
        drop(landing);
        result
    }

    /// Claims those blocks for the caller that are neither cached nor being read: the caller will
    /// read them.
    pub(crate) fn claim_blocks(&self, keys: impl IntoIterator<Item = Key>) -> ClaimedBlocks<'_> {
        let mut taken = ClaimedBlocks {
            cache: self,
            own: KeyMap::default(),
            others: Vec::new(),
        };
        for key in keys {
            let mut shard = self.shards[self.shard(&key)].lock();
            // Not a hit: a prefetch must not raise the rank of a block.
            if shard.map.contains_key(&key) {
                continue;
            }
            if let Some(flight) = shard.flights.get(&key) {
                taken.others.push(flight.clone());
                continue;
            }
            let flight = Arc::<Flight>::default();
            shard.flights.insert(key, flight.clone());
            taken.own.insert(key, flight);
        }
        taken
    }

    /// Inserts a block that was just written or read, and hands it to waiting threads.
    pub(crate) fn insert(&self, key: Key, class: Class, block: Arc<Block>) {
        let at = self.shard(&key);
        let charge = block.footprint();
        let flight = {
            let mut shard = self.shards[at].lock();
            // A block may be there already, read or written a second time. Its charge goes first.
            let freed = shard.take(&key);
            let queues = shard.queues(class);
            let in_main = queues.ghosts.remove(&key).is_some();
            if in_main {
                queues.main.push_back(key);
            } else {
                queues.probation.push_back(key);
                queues.probation_bytes += charge;
            }
            queues.bytes += charge;
            queues.entries += 1;
            shard.map.insert(
                key,
                Entry {
                    block: block.clone(),
                    class,
                    charge,
                    uses: 0,
                    in_main,
                },
            );
            shard.sweep(class);
            self.grew(class, charge);
            self.shrank(freed);
            shard.flights.remove(&key)
        };
        if let Some(flight) = flight {
            flight.end(|| End::Came(Ok(block)));
        }
        // Without a lock: it locks one shard after the other.
        self.make_room(at, &key);
    }

    /// Ends a flight without a block.
    fn end_without(&self, key: &Key, flight: &Arc<Flight>, end: End) {
        let mut shard = self.shards[self.shard(key)].lock();
        let flights = &mut shard.flights;
        // An insert may have ended this flight, and another thread may have begun a new one.
        if flights.get(key).is_some_and(|f| Arc::ptr_eq(f, flight)) {
            let flight = flights.remove(key);
            drop(shard);
            if let Some(flight) = flight {
                flight.end(|| end);
            }
        }
    }

    /// Evicts blocks, beginning with one shard, until the budget holds. Never evicts `keep`, which
    /// was just inserted.
    fn make_room(&self, at: usize, keep: &Key) {
        let limit = self
            .limit
            .load(Relaxed)
            .saturating_sub(self.lent.load(Relaxed));
        let mut next = at;
        let mut idle = 0;
        while self.used.load(Relaxed) > limit && idle < 2 * SHARDS {
            let first = if self.metadata.load(Relaxed) > self.metadata_limit.load(Relaxed) {
                Class::Metadata
            } else {
                Class::Data
            };
            // The other class is evicted only if no shard has anything of this class.
            let class = if idle < SHARDS { first } else { first.other() };
            let freed = self.shards[next].lock().evict_one(class, keep, self);
            if freed == 0 {
                idle += 1;
            } else {
                idle = 0;
            }
            next = (next + 1) % SHARDS;
        }
    }

    fn grew(&self, class: Class, bytes: usize) {
        self.used.fetch_add(bytes, Relaxed);
        if class == Class::Metadata {
            self.metadata.fetch_add(bytes, Relaxed);
        }
    }

    fn shrank(&self, freed: Option<(Class, usize)>) {
        if let Some((class, bytes)) = freed {
            let used = self.used.fetch_sub(bytes, Relaxed);
            debug_assert!(
                used >= bytes,
                "the cache holds {used} bytes and gives up {bytes}"
            );
            if class == Class::Metadata {
                let held = self.metadata.fetch_sub(bytes, Relaxed);
                debug_assert!(held >= bytes, "{held} bytes of metadata, {bytes} given up");
            }
        }
    }

    /// Drops a block that was freed or rewritten.
    pub(crate) fn remove(&self, key: &Key) {
        let freed = self.shards[self.shard(key)].lock().take(key);
        self.shrank(freed);
    }

    /// Drops every block (for benchmarks and `export`).
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            #[cfg(debug_assertions)]
            shard.check_invariants();
            let (data, metadata) = (shard.data.bytes, shard.metadata.bytes);
            // Flights stay: threads wait on them, and their readers will insert.
            let flights = std::mem::take(&mut shard.flights);
            *shard = Shard {
                flights,
                ..Shard::default()
            };
            self.shrank(Some((Class::Data, data)));
            self.shrank(Some((Class::Metadata, metadata)));
        }
    }
}

/// Ends a flight without a block, also if the fetch panics.
struct FlightEnd<'a> {
    cache: &'a Cache,
    key: Key,
    flight: &'a Arc<Flight>,
    end: Option<End>,
}

impl Drop for FlightEnd<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.cache.end_without(&self.key, self.flight, end);
        }
    }
}

/// Blocks that a caller has claimed and is going to [`Cache::insert`]. Blocks that are missing when
/// this is dropped are given up.
pub(crate) struct ClaimedBlocks<'a> {
    cache: &'a Cache,
    own: KeyMap<Arc<Flight>>,
    others: Vec<Arc<Flight>>,
}

impl ClaimedBlocks<'_> {
    /// Whether this block is one of them.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.own.contains_key(key)
    }

    /// Gives up the blocks that were not inserted, then waits for those that other threads are
    /// reading.
    pub(crate) fn wait(mut self) {
        let others = std::mem::take(&mut self.others);
        // Two threads that wait for each other's blocks would never end.
        drop(self);
        for flight in others {
            // Only a prefetch: the reader of the block gets the error.
            let _ = flight.wait();
        }
    }
}

impl Drop for ClaimedBlocks<'_> {
    fn drop(&mut self) {
        for (key, flight) in self.own.drain() {
            self.cache.end_without(&key, &flight, End::GivenUp);
        }
    }
}

impl Flight {
    /// Wakes the waiting threads. The flight is out of the map, so no more threads can join.
    /// Without waiting threads no wake-up is sent, because it would be a system call.
    fn end(self: Arc<Self>, how: impl FnOnce() -> End) {
        if Arc::strong_count(&self) > 2 {
            *self.end.lock() = how();
            self.ready.notify_all();
        }
    }

    /// The result of the flight; `None` if it was given up.
    fn wait(&self) -> Option<Result<Arc<Block>>> {
        let mut end = self.end.lock();
        loop {
            match &*end {
                End::Open => {}
                End::Came(result) => return Some(result.clone()),
                End::GivenUp => return None,
            }
            end = self.ready.wait(end);
        }
    }
}

impl Shard {
    fn hit(&mut self, key: &Key) -> Option<Arc<Block>> {
        let entry = self.map.get_mut(key)?;
        entry.uses = (entry.uses + 1).min(3);
        Some(entry.block.clone())
    }

    fn queues(&mut self, class: Class) -> &mut Queues {
        match class {
            Class::Data => &mut self.data,
            Class::Metadata => &mut self.metadata,
        }
    }

    /// Removes the entry of a key; its queue slot goes stale. Returns the bytes given back.
    fn take(&mut self, key: &Key) -> Option<(Class, usize)> {
        let entry = self.map.remove(key)?;
        let queues = self.queues(entry.class);
        queues.bytes -= entry.charge;
        queues.entries -= 1;
        if !entry.in_main {
            queues.probation_bytes -= entry.charge;
        }
        Some((entry.class, entry.charge))
    }

    /// Evicts one block of a class (not `keep`). Returns the bytes freed, or 0 if there is none.
    fn evict_one(&mut self, class: Class, keep: &Key, cache: &Cache) -> usize {
        let Self {
            map,
            data,
            metadata,
            ..
        } = self;
        let queues = match class {
            Class::Data => data,
            Class::Metadata => metadata,
        };
        // Bounded: each round takes a use off a block, and other threads wait for the shard.
        let mut spins = 2 * (queues.main.len() + queues.probation.len());
        while spins > 0 {
            spins -= 1;
            let from_probation =
                queues.probation_bytes * 10 > queues.bytes || queues.main.is_empty();
            let queue = if from_probation {
                &mut queues.probation
            } else {
                &mut queues.main
            };
            let Some(key) = queue.pop_front() else {
                if queues.probation.is_empty() && queues.main.is_empty() {
                    return 0;
                }
                continue;
            };
            let Some(entry) = map.get_mut(&key) else {
                continue;
            };
            if entry.in_main == from_probation || entry.class != class {
                continue; // a stale slot of another queue
            }
            let now = entry.block.footprint();
            if now != entry.charge {
                // An index was built since the last charge: charge it.
                let grown = now.saturating_sub(entry.charge);
                entry.charge += grown;
                queues.bytes += grown;
                cache.grew(class, grown);
                if from_probation {
                    queues.probation_bytes += grown;
                }
            }
            let wanted = entry.uses > 0 || key == *keep;
            if from_probation && wanted {
                entry.uses = 0;
                entry.in_main = true;
                queues.probation_bytes -= entry.charge;
                queues.main.push_back(key);
                continue;
            }
            if wanted {
                entry.uses = entry.uses.saturating_sub(1);
                queues.main.push_back(key);
                continue;
            }
            let freed = self.take(&key);
            cache.shrank(freed);
            if from_probation {
                // Only those that were never used again: blocks of `main` had their chance.
                self.remember(class, key);
            }
            return freed.map_or(0, |(_, bytes)| bytes);
        }
        0
    }

    /// Drops stale queue slots once they outnumber the live ones.
    fn sweep(&mut self, class: Class) {
        let Self {
            map,
            data,
            metadata,
            ..
        } = self;
        let Queues {
            probation,
            main,
            entries,
            ..
        } = match class {
            Class::Data => data,
            Class::Metadata => metadata,
        };
        // Rarely, so that a removal costs no search of the queues.
        if probation.len() + main.len() <= 2 * *entries + 64 {
            return;
        }
        let mut seen: KeyMap<()> = KeyMap::default();
        let mut live = |k: &Key, in_main: bool| {
            map.get(k)
                .is_some_and(|e| e.in_main == in_main && e.class == class)
                && seen.insert(*k, ()).is_none()
        };
        probation.retain(|k| live(k, false));
        main.retain(|k| live(k, true));
        debug_assert_eq!(
            probation.len() + main.len(),
            *entries,
            "each entry of the cache stands in one queue"
        );
        #[cfg(debug_assertions)]
        self.check_invariants();
    }

    /// Panics if the counters differ from the content. Walks all entries.
    #[cfg(debug_assertions)]
    fn check_invariants(&self) {
        for (class, queues) in [(Class::Data, &self.data), (Class::Metadata, &self.metadata)] {
            let (mut bytes, mut probation, mut entries) = (0, 0, 0);
            for entry in self.map.values().filter(|e| e.class == class) {
                bytes += entry.charge;
                entries += 1;
                probation += if entry.in_main { 0 } else { entry.charge };
            }
            assert_eq!(
                (queues.bytes, queues.probation_bytes, queues.entries),
                (bytes, probation, entries),
                "what the cache counts and what it holds"
            );
        }
    }

    fn remember(&mut self, class: Class, key: Key) {
        let cap = (self.map.len() + 16).min(1 << 16);
        let queues = self.queues(class);
        queues.ghosts.insert(key, ());
        queues.ghost.push_back(key);
        while queues.ghost.len() > cap {
            if let Some(old) = queues.ghost.pop_front() {
                queues.ghosts.remove(&old);
            }
        }
    }
}

#[cfg(test)]
mod tests;

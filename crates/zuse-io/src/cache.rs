//! The block cache (ARC): one entry per block, decoded, charged by its real bytes against one budget.
//!
//! Scan-resistant by three queues per shard (the S3-FIFO shape): new blocks enter `probation`, a tenth of
//! the budget; what is used again while there moves to `main`; a key that fell out of probation is
//! remembered in `ghost` and goes to `main` at once if it returns. `main` is a clock with small counters.
//!
//! Invariants
//! - `used` is the sum of `charge` over all entries; it passes `limit` at most by one block a thread.
//! - A key is in exactly one of `probation` and `main` iff it is in `map`; a stale queue slot (its key was
//!   removed) is skipped when it reaches the front.
//! - A block read by several threads at once is fetched by one of them; no shard lock is held meanwhile.
//!
//! Hot path budget: a hit is one hash, one shard lock, one `Arc` clone and a counter.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use zuse_base::Result;
use zuse_format::BlockPointer;

use crate::Block;

const SHARDS: usize = 16;

/// Identity of a stored block: first DVA, physical birth, and a word of the checksum, because in later passes of a
/// txg a block may be rewritten in place while a reader still holds the pointer to what was there before.
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

struct Entry {
    block: Arc<Block>,
    charge: usize,
    /// Uses since it was last passed over, capped at 3.
    uses: u8,
    in_main: bool,
}

#[derive(Default)]
struct Shard {
    map: KeyMap<Entry>,
    probation: VecDeque<Key>,
    main: VecDeque<Key>,
    ghost: VecDeque<Key>,
    ghosts: KeyMap<()>,
    flights: KeyMap<Arc<Flight>>,
    probation_bytes: usize,
    bytes: usize,
}

struct Flight {
    done: Mutex<Option<Result<Arc<Block>>>>,
    ready: Condvar,
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
    /// Budget in bytes.
    pub limit: usize,
}

/// The block cache of one pool.
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    limit: AtomicUsize,
    used: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Cache {
    /// An empty cache with a budget in bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(Shard::default())),
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Changes the budget; blocks go when the next one comes.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// The figures now.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            used: self.used.load(Relaxed),
            limit: self.limit.load(Relaxed),
        }
    }

    fn shard(&self, key: &Key) -> usize {
        (key.hash64() >> 60) as usize % SHARDS
    }

    /// The block, if it is here.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Block>> {
        let mut shard = lock(&self.shards[self.shard(key)]);
        let block = shard.hit(key)?;
        drop(shard);
        self.hits.fetch_add(1, Relaxed);
        Some(block)
    }

    /// The block, from here or by `fetch`; several callers at once share one fetch.
    pub(crate) fn get_or(
        &self,
        key: Key,
        fetch: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let at = self.shard(&key);
        let flight = {
            let mut shard = lock(&self.shards[at]);
            if let Some(block) = shard.hit(&key) {
                drop(shard);
                self.hits.fetch_add(1, Relaxed);
                return Ok(block);
            }
            if let Some(flight) = shard.flights.get(&key) {
                let flight = flight.clone();
                drop(shard);
                return flight.wait();
            }
            let flight = Arc::new(Flight {
                done: Mutex::new(None),
                ready: Condvar::new(),
            });
            shard.flights.insert(key, flight.clone());
            flight
        };
        self.misses.fetch_add(1, Relaxed);
        let mut landing = Landing {
            cache: self,
            at,
            key,
            flight: &flight,
            result: None,
        };
        let result = fetch().map(Arc::new);
        if let Ok(block) = &result {
            self.insert(key, block.clone());
        }
        landing.result = Some(result.clone());
        drop(landing);
        result
    }

    /// Puts a block that was just written or read.
    pub(crate) fn insert(&self, key: Key, block: Arc<Block>) {
        let at = self.shard(&key);
        let charge = block.footprint();
        {
            let mut shard = lock(&self.shards[at]);
            let freed = shard.take(&key);
            let in_main = shard.ghosts.remove(&key).is_some();
            if in_main {
                shard.main.push_back(key);
            } else {
                shard.probation.push_back(key);
                shard.probation_bytes += charge;
            }
            shard.bytes += charge;
            shard.map.insert(
                key,
                Entry {
                    block,
                    charge,
                    uses: 0,
                    in_main,
                },
            );
            shard.sweep();
            self.used.fetch_add(charge, Relaxed);
            self.used.fetch_sub(freed, Relaxed);
        }
        let limit = self.limit.load(Relaxed);
        let mut next = at;
        let mut idle = 0;
        while self.used.load(Relaxed) > limit && idle < SHARDS {
            let freed = lock(&self.shards[next]).evict_one(&key, &self.used);
            if freed == 0 {
                idle += 1;
                next = (next + 1) % SHARDS;
            } else {
                idle = 0;
                if self.used.load(Relaxed) > limit {
                    next = (next + 1) % SHARDS;
                }
            }
        }
    }

    /// Drops a block that was freed or rewritten.
    pub(crate) fn remove(&self, key: &Key) {
        let freed = lock(&self.shards[self.shard(key)]).take(key);
        self.used.fetch_sub(freed, Relaxed);
    }

    /// Drops every block (for benchmarks and `export`).
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let bytes = shard.bytes;
            let flights = std::mem::take(&mut shard.flights);
            *shard = Shard {
                flights,
                ..Shard::default()
            };
            self.used.fetch_sub(bytes, Relaxed);
        }
    }
}

/// Wakes the waiters of a flight even when the fetch panics.
struct Landing<'a> {
    cache: &'a Cache,
    at: usize,
    key: Key,
    flight: &'a Flight,
    result: Option<Result<Arc<Block>>>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.cache.shards[self.at]).flights.remove(&self.key);
        let result = self.result.take().unwrap_or_else(|| {
            Err(zuse_base::Error::corrupt(
                "block cache",
                "the read was abandoned",
            ))
        });
        *lock(&self.flight.done) = Some(result);
        self.flight.ready.notify_all();
    }
}

impl Flight {
    fn wait(&self) -> Result<Arc<Block>> {
        let mut done = lock(&self.done);
        loop {
            if let Some(result) = &*done {
                return result.clone();
            }
            done = self
                .ready
                .wait(done)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl Shard {
    fn hit(&mut self, key: &Key) -> Option<Arc<Block>> {
        let entry = self.map.get_mut(key)?;
        entry.uses = (entry.uses + 1).min(3);
        Some(entry.block.clone())
    }

    /// Removes the entry of a key; its queue slot goes stale. Returns the bytes given back.
    fn take(&mut self, key: &Key) -> usize {
        let Some(entry) = self.map.remove(key) else {
            return 0;
        };
        self.bytes -= entry.charge;
        if !entry.in_main {
            self.probation_bytes -= entry.charge;
        }
        entry.charge
    }

    /// Lets one block go (not `keep`); returns the bytes given back, 0 if there is none.
    fn evict_one(&mut self, keep: &Key, used: &AtomicUsize) -> usize {
        let mut spins = 2 * (self.main.len() + self.probation.len());
        while spins > 0 {
            spins -= 1;
            let from_probation = self.probation_bytes * 10 > self.bytes || self.main.is_empty();
            let queue = if from_probation {
                &mut self.probation
            } else {
                &mut self.main
            };
            let Some(key) = queue.pop_front() else {
                if self.probation.is_empty() && self.main.is_empty() {
                    return 0;
                }
                continue;
            };
            let Some(entry) = self.map.get_mut(&key) else {
                continue;
            };
            if entry.in_main == from_probation {
                continue; // a stale slot of the other queue
            }
            let now = entry.block.footprint();
            if now != entry.charge {
                // An index was built since: charge it.
                let grown = now.saturating_sub(entry.charge);
                entry.charge += grown;
                self.bytes += grown;
                used.fetch_add(grown, Relaxed);
                if from_probation {
                    self.probation_bytes += grown;
                }
            }
            let wanted = entry.uses > 0 || key == *keep;
            if from_probation && wanted {
                entry.uses = 0;
                entry.in_main = true;
                self.probation_bytes -= entry.charge;
                self.main.push_back(key);
                continue;
            }
            if wanted {
                entry.uses = entry.uses.saturating_sub(1);
                self.main.push_back(key);
                continue;
            }
            let freed = self.take(&key);
            used.fetch_sub(freed, Relaxed);
            if from_probation {
                self.remember(key);
            }
            return freed;
        }
        0
    }

    /// Drops stale queue slots once they outnumber the live ones.
    fn sweep(&mut self) {
        let Self {
            map,
            probation,
            main,
            ..
        } = self;
        if probation.len() + main.len() <= 2 * map.len() + 64 {
            return;
        }
        let mut seen: KeyMap<()> = KeyMap::default();
        probation
            .retain(|k| map.get(k).is_some_and(|e| !e.in_main) && seen.insert(*k, ()).is_none());
        main.retain(|k| map.get(k).is_some_and(|e| e.in_main) && seen.insert(*k, ()).is_none());
    }

    fn remember(&mut self, key: Key) {
        self.ghosts.insert(key, ());
        self.ghost.push_back(key);
        let cap = (self.map.len() + 16).min(1 << 16);
        while self.ghost.len() > cap {
            if let Some(old) = self.ghost.pop_front() {
                self.ghosts.remove(&old);
            }
        }
    }
}

#[cfg(test)]
mod tests;

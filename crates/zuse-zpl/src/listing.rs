//! Batches of a directory's listing, prepared while the client works on the previous batch.
//!
//! A large directory is listed a buffer at a time. The client processes one buffer before it
//! requests the next. Meanwhile an idle server reads the next names and attributes
//! ([`FileSystem::prefetch_listing`]). A prepared batch is used only if nothing in the file system
//! has changed since its preparation began ([`Changes`]); otherwise it is read again. Access times
//! are the exception: they change without a transaction. So objects with a pending access time are
//! read again.
//!
//! Memory: at most [`PREPARED`] batches, of [`BATCH`] entries with attributes or [`BATCH_NAMES`]
//! without.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zuse_base::sync::Mutex;

use zuse_base::{ObjectId, Result};
use zuse_dmu::Tx;

use crate::directory::Wanted;
use crate::dirent;
use crate::file_system::{Attr, FileSystem};
use crate::znode::Znode;

/// Most entries that are fetched at a time, with their objects.
const BATCH: usize = 256;
/// Most names that are fetched at a time.
const BATCH_NAMES: usize = 1024;
/// Fewest.
pub(crate) const FEW: usize = 8;
/// Listings that are prepared at a time.
const PREPARED: usize = 8;
/// The position behind a directory's last entry.
pub(crate) const ZAP_END: u64 = u64::MAX;

/// Most entries that are fetched at a time.
pub(crate) const fn batch_of(wanted: Wanted) -> usize {
    match wanted {
        Wanted::Names => BATCH_NAMES,
        Wanted::Cached | Wanted::Attributes | Wanted::Objects => BATCH,
    }
}

/// What is known about the object of an entry.
#[derive(Clone)]
pub(crate) enum Known {
    Nothing,
    Object(Arc<Znode>),
    Stored(Attr),
    /// It was in memory when the batch was prepared. It is not held here, because it may lose its
    /// last name.
    InMemory,
}

/// Consecutive entries of a directory.
#[derive(Default)]
pub(crate) struct Batch {
    pub names: Vec<u8>,
    /// Value, position behind, end of the name.
    pub entries: Vec<(u64, u64, usize)>,
    /// For as many of them as were fetched.
    pub known: Vec<Known>,
    /// The position behind the last.
    pub after: u64,
}

impl Batch {
    /// Lists at most `some` names from a position on.
    pub fn list(&mut self, dir: &Znode, from: u64, some: usize) -> Result<()> {
        self.names.clear();
        self.entries.clear();
        self.known.clear();
        let (names, entries) = (&mut self.names, &mut self.entries);
        self.after = dir.each_entry(from, &mut |name, value, after| {
            names.extend_from_slice(name);
            entries.push((value, after, names.len()));
            entries.len() < some
        })?;
        Ok(())
    }

    /// The first `some` of them.
    pub fn cut(mut self, some: usize) -> Self {
        if some < self.entries.len() {
            self.entries.truncate(some);
            self.known.truncate(some);
            self.after = self.entries.last().map_or(self.after, |e| e.1);
        }
        self
    }
}

/// Counts the completed changes of a file system.
#[derive(Default)]
pub(crate) struct Changes(AtomicU64);

impl Changes {
    /// A change begins.
    pub fn count(&self, tx: Tx) -> Change<'_> {
        Change { tx, all: self }
    }

    /// Counts a change that is not a transaction.
    pub fn another(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn so_far(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A change of a file system: its transaction, counted when it is complete.
pub(crate) struct Change<'a> {
    tx: Tx,
    all: &'a Changes,
}

impl Deref for Change<'_> {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.all.another();
    }
}

/// The expected next request of a listing.
struct ExpectedRequest {
    dir: Weak<Znode>,
    from: u64,
    wanted: Wanted,
    some: usize,
}

struct PreparedBatch {
    dir: ObjectId,
    from: u64,
    /// Number of changes completed before it was begun.
    changes: u64,
    batch: Batch,
}

/// The expected next requests of listings, and the prepared batches.
#[derive(Default)]
pub(crate) struct Ready {
    expected: Mutex<VecDeque<ExpectedRequest>>,
    prepared: Mutex<VecDeque<PreparedBatch>>,
}

fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= PREPARED {
        queue.pop_front();
    }
    queue.push_back(item);
}

impl FileSystem {
    /// Notes that a listing of a directory will probably continue at a position after one of its
    /// names, with about `some` entries.
    pub fn expect_listing(&self, dir: &Arc<Znode>, from: u64, wanted: Wanted, some: usize) {
        if from == ZAP_END {
            return;
        }
        let request = ExpectedRequest {
            dir: Arc::downgrade(dir),
            from,
            wanted,
            some: some.clamp(FEW, batch_of(wanted)),
        };
        push(&mut self.ready.expected.lock(), request);
    }

    /// The batch prepared for a position, if it is still valid.
    pub(crate) fn take_ready(&self, dir: ObjectId, from: u64) -> Option<Batch> {
        let mut found = {
            let mut prepared = self.ready.prepared.lock();
            let at = prepared
                .iter()
                .position(|m| m.dir == dir && m.from == from)?;
            prepared.remove(at)?
        };
        // In this order: a writer of access times counts a change before it removes them from the
        // pending ones.
        self.with_pending_atimes(|waits| {
            for (known, entry) in found.batch.known.iter_mut().zip(&found.batch.entries) {
                if matches!(known, Known::Stored(_)) && waits(dirent::object(entry.0)) {
                    *known = Known::InMemory;
                }
            }
        });
        (found.changes == self.changes.so_far()).then_some(found.batch)
    }

    /// Reads the expected next batch of a listing, unless it was read already: for idle time.
    /// Errors are left to the request that needs the batch.
    pub fn prefetch_listing(&self) -> bool {
        let Some(request) = self.ready.expected.lock().pop_front() else {
            return false;
        };
        let Some(dir) = request.dir.upgrade() else {
            return true;
        };
        // Before anything is read: a change that ends later makes the batch invalid.
        let changes = self.changes.so_far();
        let mut batch = Batch::default();
        if batch.list(&dir, request.from, request.some).is_err() {
            return true;
        }
        if request.wanted != Wanted::Names {
            self.fetch(&mut batch, request.wanted, dir.size());
            for known in &mut batch.known {
                if matches!(known, Known::Object(_)) {
                    // A hold would keep an object alive that loses its last name before the batch
                    // is used.
                    *known = Known::InMemory;
                }
            }
        }
        let prepared = PreparedBatch {
            dir: dir.object(),
            from: request.from,
            changes,
            batch,
        };
        push(&mut self.ready.prepared.lock(), prepared);
        true
    }

    /// Reads the requested attributes of a batch's objects, neighbours together. The directory of
    /// `in_all` entries is listed in such batches. In a prepared batch only objects in memory are
    /// fetched.
    pub(crate) fn fetch(&self, batch: &mut Batch, wanted: Wanted, in_all: u64) {
        let in_memory = |object| self.znode(object).map_or(Known::Nothing, Known::Object);
        if batch.known.len() >= batch.entries.len() {
            for (known, entry) in batch.known.iter_mut().zip(&batch.entries) {
                if matches!(known, Known::InMemory) {
                    *known = in_memory(dirent::object(entry.0));
                }
            }
            return;
        }
        let mut order: Vec<usize> = (0..batch.entries.len()).collect();
        let number = |i: usize| dirent::object(batch.entries[i].0).0;
        // Neighbouring numbers share dnode blocks: each is read once.
        order.sort_unstable_by_key(|&i| number(i));
        let objects = order.iter().map(|&i| ObjectId(number(i)));
        let mut peek = match wanted {
            Wanted::Cached => self.objset.peek_cached(objects),
            Wanted::Names | Wanted::Attributes | Wanted::Objects => {
                self.objset.peek(objects, in_all)
            }
        };
        batch.known.clear();
        batch.known.resize(order.len(), Known::Nothing);
        for i in order {
            let object = dirent::object(batch.entries[i].0);
            let stored = match wanted {
                Wanted::Cached | Wanted::Attributes => {
                    peek.look(object, |dnode| self.stored_attr(object, dnode))
                }
                Wanted::Names | Wanted::Objects => None,
            };
            batch.known[i] = match stored {
                Some(attr) => Known::Stored(attr),
                None if wanted == Wanted::Cached && self.cache.get(object).is_none() => {
                    Known::Nothing
                }
                None => in_memory(object),
            };
        }
    }
}

#[cfg(test)]
mod tests;

//! Prefetching for a client that reads the extended attributes of many objects in sequence, as
//! backups and file servers do.
//!
//! Such clients usually go in the order of object numbers, which is that of creation. After two
//! consecutive objects that had to be read from the devices, the next ones are prefetched by a
//! thread of the pool. These are spill blocks and, level by level, the content of hidden
//! directories. Neighbours take one device read.
//!
//! ```text
//!   asked ─┐  ┌─────────── window ───────────┐
//!   … · · ·│· · · · · · · · ·│· · · · · · · · │   less than half of it ahead: the next batch is prefetched
//!          │  cached, or being read           └ until
//! ```
//! The window is short at first and doubles with each batch, up to [`MANY`] objects and [`BYTES`].
//! So a disk is busy with the next batch while the client works on this one.
//!
//! Memory: five words; the blocks are in the block cache. A wrong guess costs a few reads.
//! Prefetching stops as soon as everything is cached already.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use zuse_base::{ObjectId, Result};
use zuse_dmu::sa::{Attr, SA_BONUS, SaTable};
use zuse_dmu::zap::{Zap, numbers_in};
use zuse_dmu::{Ahead, Dnode, Objset};
use zuse_format::block_pointer::BpKind;

use crate::dirent;
use crate::file_system::FileSystem;

/// Objects that are prefetched after the current one, at first.
const FEW: u64 = 64;
/// The same after many right guesses, if they are small.
const MANY: u64 = 1024;
/// Bytes that are prefetched, approximately, and the fraction of the cache that they may use.
const BYTES: u64 = 16 << 20;
const SHARE: u64 = 8;
/// Largest distance between two numbers in a sequence.
const NEAR: u64 = 40;
/// Attributes of one hidden directory that are read.
const FILES: usize = 4;

/// Where a client is in its sequence of requests.
pub(crate) struct XattrsAhead {
    last: AtomicU64,
    /// The first number that was not prefetched.
    until: AtomicU64,
    /// Number of objects that are prefetched.
    window: AtomicU64,
    /// The number of objects, of the average size of the last batch, that fit the limits.
    most: AtomicU64,
    /// The devices had to be read lately.
    cold: AtomicBool,
}

impl Default for XattrsAhead {
    fn default() -> Self {
        Self {
            last: AtomicU64::new(0),
            until: AtomicU64::new(0),
            window: AtomicU64::new(FEW),
            most: AtomicU64::new(2 * FEW),
            cold: AtomicBool::new(false),
        }
    }
}

impl XattrsAhead {
    /// An object was read; returns the objects to prefetch now.
    fn visit(&self, object: u64, missed: bool) -> Option<Range<u64>> {
        let last = self.last.swap(object, Relaxed);
        if missed {
            self.cold.store(true, Relaxed);
        }
        if object <= last || object - last > NEAR {
            self.until.store(0, Relaxed);
            return None;
        }
        if !self.cold.load(Relaxed) {
            return None;
        }
        let (next, until) = (object + 1, self.until.load(Relaxed));
        let window = self.window.load(Relaxed);
        // Half a window at a time, not object by object.
        if until > next + window / 2 {
            return None;
        }
        let window = if until > object { 2 * window } else { FEW };
        let window = window.min(self.most.load(Relaxed));
        let (from, to) = (until.max(next), next + window);
        self.window.store(window, Relaxed);
        self.until.store(from.max(to), Relaxed);
        (from < to).then_some(from..to)
    }

    /// Notes how many objects were prefetched, and the bytes read for them, with a cache of `limit`
    /// bytes.
    fn learn(&self, objects: u64, prefetched: u64, limit: u64) {
        let each = prefetched / objects.max(1);
        if let Some(most) = BYTES.min(limit / SHARE).checked_div(each) {
            self.most.store(most.clamp(FEW / 4, MANY), Relaxed);
        }
    }
}

impl FileSystem {
    /// Runs a query for the extended attributes of an object, and prefetches those of the next ones
    /// if that seems useful.
    pub(super) fn reading_ahead<T>(
        &self,
        object: ObjectId,
        ask: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = self.objset.io().cache().misses();
        let answer = ask()?;
        self.was_asked(object, before);
        Ok(answer)
    }

    /// The extended attributes of an object were read. `misses` is the number of cache misses
    /// before.
    pub(super) fn was_asked(&self, object: ObjectId, misses: u64) {
        let missed = self.objset.io().cache().misses() != misses;
        if !self.objset.settings().cache_metadata {
            return;
        }
        if let Some(range) = self.xattrs_ahead.visit(object.0, missed) {
            self.prefetch_in_background(range);
        }
    }

    /// Prefetches the blocks with the extended attributes of objects, in another thread.
    fn prefetch_in_background(&self, objects: Range<u64>) {
        let (objset, sa) = (self.objset.clone(), self.store.table().clone());
        let state = self.xattrs_ahead.clone();
        let job = Box::new(move || {
            let cache = objset.io().cache();
            let (before, count) = (cache.misses(), objects.end - objects.start);
            let prefetched = prefetch(&objset, &sa, objects.collect());
            state.learn(count, prefetched, cache.stats().limit as u64);
            if prefetched == 0 && cache.misses() == before {
                state.cold.store(false, Relaxed);
            }
        });
        // With a full queue nothing is prefetched: it is a hint.
        let _ = self.objset.work().try_submit(job);
    }
}

/// Prefetches the blocks with the extended attributes of objects. Returns the bytes that were read
/// together. Only a hint: the reader of an object gets its errors.
///
/// Objects are read in their dnode blocks; only those that cannot be read that way are loaded into
/// memory.
fn prefetch(objset: &Arc<Objset>, sa: &SaTable, objects: Vec<u64>) -> u64 {
    let mut gather = Ahead::new(objset.io(), objset.work());
    let spaces = prefetch_spills(objset, sa, &mut gather, objects);
    if !spaces.is_empty() {
        let files = prefetch_spaces(objset, &mut gather, spaces);
        if objset.settings().cache_data {
            prefetch_values(objset, &mut gather, files);
        }
    }
    gather.prefetched()
}

/// The hidden directories of objects, whose spill blocks are prefetched.
fn prefetch_spills(
    objset: &Arc<Objset>,
    sa: &SaTable,
    gather: &mut Ahead,
    objects: Vec<u64>,
) -> Vec<u64> {
    let (io, peek) = (objset.io().clone(), sa.peek());
    let (mut spaces, mut spills) = (Vec::new(), Vec::new());
    let rest = objset.gather_stored(gather, objects, |object| {
        let dnode = object.dnode()?;
        if dnode.bonus_type() == SA_BONUS {
            let spill = dnode.spill();
            if spill.is_some_and(|bp| !io.can_prefetch(&bp)) {
                return None;
            }
            spills.extend(spill);
            spaces.extend(peek.u64(dnode.bonus(), Attr::Xattr));
        }
        Some(())
    });
    gather.prefetch(spills.iter().copied());
    let there = spills.iter().filter_map(|bp| io.peek(bp));
    spaces.extend(there.filter_map(|spill| peek.u64(spill.bytes(), Attr::Xattr)));
    let rest = objset.gather_spills(gather, rest);
    spaces.extend(rest.iter().filter_map(|dnode| space_of(sa, dnode).ok()));
    spaces.retain(|space| *space != 0);
    spaces
}

/// The files of hidden directories, [`FILES`] of each.
fn prefetch_spaces(objset: &Arc<Objset>, gather: &mut Ahead, spaces: Vec<u64>) -> Vec<u64> {
    let mut files = Vec::new();
    let rest = objset.gather_stored(gather, spaces, |space| {
        // A directory with a single attribute is embedded in its pointer. Otherwise its block must
        // be prefetched first.
        if space.only_pointer()?.kind() != BpKind::Embedded {
            return None;
        }
        space.with_only_block(|entries| {
            let numbers = numbers_in(entries)?.take(FILES);
            files.extend(numbers.map(|entry| dirent::object(entry).0));
            Some(())
        })?
    });
    for space in objset.gather_contents(gather, rest) {
        let _ = note_files(&space, &mut files);
    }
    files
}

/// Prefetches the blocks of small files.
fn prefetch_values(objset: &Arc<Objset>, gather: &mut Ahead, files: Vec<u64>) {
    let io = objset.io().clone();
    let mut values = Vec::new();
    let rest = objset.gather_stored(gather, files, |file| {
        let bp = file.only_pointer()?;
        if bp.kind() == BpKind::Normal {
            values.push(io.can_prefetch(&bp).then_some(bp)?);
        }
        Some(())
    });
    gather.prefetch(values);
    for file in objset.gather_contents(gather, rest) {
        // A block that cannot be prefetched with others is read separately.
        let _ = file.with_block(0, |_| ());
    }
}

/// The hidden directory of an object, 0 without one. A spill block that could not be prefetched
/// with others is read separately.
fn space_of(sa: &SaTable, dnode: &Arc<Dnode>) -> Result<u64> {
    if dnode.bonus_type() != SA_BONUS {
        return Ok(0);
    }
    if dnode.has_spill() {
        dnode.spill()?;
    }
    Ok(sa.view(dnode)?.u64(Attr::Xattr)?.unwrap_or(0))
}

fn note_files(space: &Arc<Dnode>, files: &mut Vec<u64>) -> Result<()> {
    let most = files.len() + FILES;
    Zap::open(space)?.list(0, &mut |_, value, _| {
        files.push(dirent::object(value).0);
        files.len() < most
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_in_a_row_that_had_to_be_read_have_the_next_ones_brought_once() {
        let ahead = XattrsAhead::default();
        assert_eq!(ahead.visit(1000, true), None);
        assert_eq!(ahead.visit(1001, true), Some(1002..1066));
        for object in 1002..1033 {
            assert_eq!(ahead.visit(object, false), None, "{object}");
        }
        assert_eq!(ahead.visit(1033, false), Some(1066..1162));
        // Somewhere else.
        assert_eq!(ahead.visit(50, true), None);
        assert_eq!(ahead.visit(52, false), Some(53..117));
    }

    /// The ranges that are prefetched while all of these objects are read.
    fn pieces(ahead: &XattrsAhead, objects: Range<u64>) -> Vec<Range<u64>> {
        objects.filter_map(|o| ahead.visit(o, true)).collect()
    }

    #[test]
    fn the_window_grows_up_to_what_so_many_bytes_are_and_no_object_is_left_out() {
        let ahead = XattrsAhead::default();
        // Their sizes are still unknown.
        let some = pieces(&ahead, 1..1000);
        assert!(some.iter().all(|r| r.end - r.start <= 2 * FEW), "{some:?}");
        let limit = 1 << 30;
        ahead.learn(64, 64 * 100, limit);
        let more = pieces(&ahead, 1000..9000);
        for two in [&some[..], &more[..]].concat().windows(2) {
            assert_eq!(two[0].end, two[1].start);
        }
        let longest = more.iter().map(|r| r.end - r.start).max();
        assert!(longest.is_some_and(|n| n > MANY / 2), "{longest:?}");
        // Large values: a few of them reach the limit.
        ahead.learn(64, 64 << 16, limit);
        let large = pieces(&ahead, 9000..12_000);
        let (first, rest) = large.split_at(1);
        assert_eq!(first[0].start, more[more.len() - 1].end);
        // Half a window, and the current object.
        let longest = rest.iter().map(|r| r.end - r.start).max();
        let half = (BYTES >> 16) / 2;
        assert!(longest.is_some_and(|n| n <= half + 1), "{rest:?}");
        // With a small cache fewer are prefetched.
        let most = |objects: u64, bytes: u64, limit: u64| {
            ahead.learn(objects, bytes, limit);
            ahead.most.load(Relaxed)
        };
        assert_eq!(most(64, 64 << 16, 128 << 20), (16 << 20) >> 16);
        assert_eq!(most(64, 64 << 14, limit), MANY);
        assert_eq!(most(64, 64 << 12, 16 << 20), (2 << 20) >> 12);
        assert_eq!(most(64, 0, limit), 512, "nothing was learnt");
    }

    #[test]
    fn what_is_in_the_cache_is_not_looked_at_ahead() {
        let ahead = XattrsAhead::default();
        (1..500).for_each(|object| assert_eq!(ahead.visit(object, false), None));
        assert!(ahead.visit(500, true).is_some());
        ahead.cold.store(false, Relaxed);
        (501..900).for_each(|object| assert_eq!(ahead.visit(object, false), None));
    }

    #[test]
    fn what_was_brought_is_there_wherever_it_is_kept() {
        use crate::Credentials;
        use crate::backing::Backing;
        use crate::file_system::tests::pool::TestFs;
        use crate::xattr::XattrMode;

        let t = TestFs::new();
        let who = Credentials::root();
        let top = t.fs.root().expect("root");
        // In the dnode, in the spill block, in a hidden directory; one among many names; and one of
        // a file in memory.
        let (short, spilled, hidden) = (5, 9_000, 65_536);
        let lengths = [short, spilled, hidden, hidden, hidden, spilled, hidden];
        let (many, held) = (3, 4);
        let set = |file: &Arc<crate::Znode>, name: &[u8], len: usize| {
            t.fs.set_xattr(&who, file, name, &vec![7; len], XattrMode::Any)
                .expect("set");
        };
        // Values that do not compress: a directory with many of them has a block.
        let number = |n: usize| (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let name = |n: usize| format!("user.{:x}{:x}", number(n), number(n + 99)).into_bytes();
        let mut objects = Vec::new();
        let mut kept = None;
        for (i, len) in lengths.iter().enumerate() {
            let file = t.fs.create(&who, &top, format!("f{i}").as_bytes(), 0o600);
            let file = file.expect("made");
            let names = if i == many { FILES } else { 1 };
            (0..names).for_each(|n| set(&file, &name(n), *len));
            objects.push(file.object());
            if i == held {
                kept = Some(file);
            }
        }
        t.backing
            .wait_synced(t.backing.open_txg())
            .expect("written");
        let objset = t.backing.objset();
        let cache = objset.io().cache();
        t.backing.forget_cache();
        let numbers: Vec<u64> = objects.iter().map(|o| o.0).collect();
        let prefetched = prefetch(objset, t.fs.store.table(), numbers);
        let all: usize = lengths.iter().sum::<usize>() + (FILES - 1) * hidden;
        assert!(prefetched >= (all - short) as u64, "{prefetched} of {all}");
        let misses = cache.misses();
        for (i, object) in objects.iter().enumerate() {
            let stored = objset.stored(*object);
            assert_eq!(stored.is_none(), i == held, "{i}");
            drop(stored);
            let file = t.fs.znode(*object).expect("there");
            let names = if i == many { FILES } else { 1 };
            for n in 0..names {
                let value = t.fs.get_xattr(&who, &file, &name(n)).expect("there");
                assert_eq!(value, vec![7; lengths[i]]);
            }
        }
        assert_eq!(cache.misses(), misses, "something had to be read");
        drop(kept);
        assert_eq!(
            prefetch(
                objset,
                t.fs.store.table(),
                objects.iter().map(|o| o.0).collect()
            ),
            0,
            "all is there"
        );
    }
}

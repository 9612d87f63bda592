//! Reading ahead for whoever asks one object after the other for its extended attributes: backups, file servers.
//!
//! Objects are mostly asked in the order of their numbers, which is that of their making. Where two in a row were, and the
//! devices had to be read for them, the attributes of the next ones are brought into the cache: spill
//! blocks, and layer by layer what hidden directories hold, neighbours in one device read. It is done by another thread, or by the
//! one that is asked, between two questions, where it has moments for it ([`super::chores`]).
//!
//! ```text
//!   asked ─┐  ┌─────────── window ───────────┐
//!   … · · ·│· · · · · · · · ·│· · · · · · · · │          less than half of it ahead: the next piece is asked for
//!          │  there, or on their way          └ until
//! ```
//! The window is short at first and doubles with each piece that served, up to [`BYTES`]: a disk has to be busy with the next piece
//! while this one is asked, and a piece takes as long to be read as so many bytes take. Of long values, which come as fast as a disk can
//! read, it reaches farther ([`FAR`]) and is filled up by quarters: with 8 MiB and halves 400 of 10,000 questions for 64 KiB waited for the disk, 23 of
//! 70 µs for each, with 32 MiB and quarters 60. With 16 MiB, where the host takes no time away, the disk is waited for 0.3 to 0.6 µs a value, with 32 MiB 1.5 to 3. Of 16 KiB it is no more than [`MANY`] objects, by quarters as well.
//!
//! Memory: seven words, and [`super::places`]. What is read goes to the block cache; a guess that is wrong costs a few reads, and the
//! guessing ends as soon as everything is in the cache already.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use zuse_base::{ObjectId, Result, moments};
use zuse_dmu::sa::{Attr, SA_BONUS, SaTable};
use zuse_dmu::zap::{Zap, numbers_in};
use zuse_dmu::{Ahead, Dnode, Objset};
use zuse_format::block_pointer::BpKind;

use super::places::{NOTED, PLACES};
use crate::dirent;
use crate::file_system::FileSystem;

/// Objects that are looked at ahead of the one that is asked, at first.
const FEW: u64 = 64;
/// The same when all were asked, where they are small.
const MANY: u64 = 1024;
/// Bytes that are brought ahead, about, and the part of the cache that they may take.
const BYTES: u64 = 8 << 20;
const SHARE: u64 = 16;
/// The same where at least so many bytes are brought for an object: from spill blocks of 16 KiB on, and of values of 64 KiB, of which an object has
/// a third, as a file and what holds its value may have numbers in a row.
const LONG: u64 = 8 << 10;
const FAR: u64 = 16 << 20;
const FAR_SHARE: u64 = 8;
/// How far apart two numbers in a row may be.
const NEAR: u64 = 40;
/// Attributes of one hidden directory that are read.
const FILES: usize = 4;

/// Where the asking is.
pub(crate) struct XattrsAhead {
    last: AtomicU64,
    /// The first number that has not been looked at.
    until: AtomicU64,
    /// Objects that are looked at ahead.
    window: AtomicU64,
    /// So many of the size of those that were brought last are as much as may be brought.
    most: AtomicU64,
    /// They were long.
    are_long: AtomicBool,
    /// The devices had to be read lately.
    cold: AtomicBool,
    /// Above all whose values may be noted in [`super::places`], and what the file system is called there.
    noted: AtomicU64,
    id: u64,
}

impl Default for XattrsAhead {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            noted: AtomicU64::new(0),
            id: NEXT.fetch_add(1, Relaxed),
            last: AtomicU64::new(0),
            until: AtomicU64::new(0),
            window: AtomicU64::new(FEW),
            most: AtomicU64::new(2 * FEW),
            are_long: AtomicBool::new(false),
            cold: AtomicBool::new(false),
        }
    }
}

impl XattrsAhead {
    /// An object was asked; which ones to look at now.
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
        // In parts of the window, not object by object.
        let part = window / if self.are_long.load(Relaxed) { 4 } else { 2 };
        if until > next + (window - part) {
            return None;
        }
        let window = if until > object { 2 * window } else { FEW };
        let window = window.min(self.most.load(Relaxed));
        let (from, to) = (until.max(next), next + window);
        self.window.store(window, Relaxed);
        self.until.store(from.max(to), Relaxed);
        (from < to).then_some(from..to)
    }

    /// Some objects were looked at, and so many bytes had to be read for them, with a cache that holds `limit` bytes.
    pub(super) fn learn(&self, objects: u64, brought: u64, limit: u64) {
        let each = brought / objects.max(1);
        if each == 0 {
            return;
        }
        let bound = if each >= LONG {
            FAR.min(limit / FAR_SHARE)
        } else {
            BYTES.min(limit / SHARE)
        };
        self.are_long.store(each >= LONG, Relaxed);
        self.most
            .store((bound / each).clamp(FEW / 4, MANY), Relaxed);
    }
}

impl XattrsAhead {
    /// What its values are noted under.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whether the value of an object may be noted: a look there costs a place in the processor's cache.
    pub(super) fn may_be_noted(&self, object: u64) -> bool {
        let to = self.noted.load(Relaxed);
        (to.saturating_sub(PLACES)..to).contains(&object)
    }

    /// The values of objects up to this one are noted, those of some, at least. The next piece may have been noted before.
    pub(super) fn note_up_to(&self, object: u64) {
        let (to, before) = (object + 1, self.noted.load(Relaxed));
        if to > before || before - to > PLACES {
            self.noted.store(to, Relaxed);
        }
    }

    /// Nothing had to be read for what was looked at: so it will be with the next ones.
    pub(super) fn all_there(&self) {
        self.cold.store(false, Relaxed);
    }
}

impl FileSystem {
    /// Runs a question for the extended attributes of an object, and has the next ones' brought if that looks useful.
    pub(super) fn asking_ahead<T>(
        &self,
        object: ObjectId,
        ask: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = self.objset.io().cache().misses();
        let answer = ask()?;
        self.was_asked(object, before);
        Ok(answer)
    }

    /// An object was asked for its extended attributes; before, so many blocks had not been in the cache.
    pub(super) fn was_asked(&self, object: ObjectId, misses: u64) {
        let missed = self.objset.io().cache().misses() != misses;
        if missed || !moments::are_expected() {
            self.leave_chores();
        }
        if let Some(range) = self.xattrs_ahead.visit(object.0, missed)
            && self.objset.settings().cache_metadata
            && !self.chores.take(&range)
        {
            self.bring_by_pool(range.collect());
        }
    }

    /// Has what the extended attributes of objects are stored in brought by another thread.
    pub(super) fn bring_by_pool(&self, objects: Vec<u64>) {
        let (objset, sa) = (self.objset.clone(), self.store.table().clone());
        let state = self.xattrs_ahead.clone();
        let job = Box::new(move || {
            let cache = objset.io().cache();
            let (before, count) = (cache.misses(), objects.len() as u64);
            let brought = bring(&objset, &sa, objects.clone());
            if brought > 0 {
                let noted = NOTED.note(&objset, &sa, state.id, &objects);
                noted.into_iter().for_each(|last| state.note_up_to(last));
            }
            state.learn(count, brought, limit(&objset));
            if brought == 0 && cache.misses() == before {
                state.all_there();
            }
        });
        let _ = self.objset.work().try_submit(job);
    }
}

/// Bytes that the cache holds.
pub(super) fn limit(objset: &Objset) -> u64 {
    objset.io().cache().stats().limit as u64
}

/// Brings what the extended attributes of objects are stored in into the cache. Gives the bytes that had to be read together. Only a hint:
/// who asks an object learns what is wrong with it.
///
/// Objects are looked at as they are stored; nothing is put into memory for them but what cannot be read that way. An object in
/// memory costs a µs here, and who asks for it while its value is being read 3 more.
pub(super) fn bring(objset: &Arc<Objset>, sa: &SaTable, objects: Vec<u64>) -> u64 {
    let mut gather = Ahead::new(objset.io(), objset.work());
    let spaces = bring_spills(objset, sa, &mut gather, objects);
    if !spaces.is_empty() {
        let files = bring_spaces(objset, &mut gather, spaces);
        if objset.settings().cache_data {
            bring_values(objset, &mut gather, files);
        }
    }
    gather.brought()
}

/// The hidden directories of objects, whose spill blocks are brought.
fn bring_spills(
    objset: &Arc<Objset>,
    sa: &SaTable,
    gather: &mut Ahead,
    objects: Vec<u64>,
) -> Vec<u64> {
    let (io, glance) = (objset.io().clone(), sa.glance());
    let (mut spaces, mut spills) = (Vec::new(), Vec::new());
    let rest = objset.gather_stored(gather, objects, |object| {
        let dnode = object.dnode()?;
        if dnode.bonus_type() == SA_BONUS {
            let spill = dnode.spill();
            if spill.is_some_and(|bp| !io.may_bring(&bp)) {
                return None;
            }
            spills.extend(spill);
            spaces.extend(glance.u64(dnode.bonus(), Attr::Xattr));
        }
        Some(())
    });
    gather.bring(spills.iter().copied());
    let there = spills.iter().filter_map(|bp| io.glance(bp));
    spaces.extend(there.filter_map(|spill| glance.u64(spill.bytes(), Attr::Xattr)));
    let rest = objset.gather_spills(gather, rest);
    spaces.extend(rest.iter().filter_map(|dnode| space_of(sa, dnode).ok()));
    spaces.retain(|space| *space != 0);
    spaces
}

/// The files of hidden directories, [`FILES`] of each.
fn bring_spaces(objset: &Arc<Objset>, gather: &mut Ahead, spaces: Vec<u64>) -> Vec<u64> {
    let mut files = Vec::new();
    let rest = objset.gather_stored(gather, spaces, |space| {
        // One that lies in its pointer, as that of a single attribute does: another has to be brought first.
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

/// Brings the blocks of small files.
fn bring_values(objset: &Arc<Objset>, gather: &mut Ahead, files: Vec<u64>) {
    let io = objset.io().clone();
    let mut values = Vec::new();
    let rest = objset.gather_stored(gather, files, |file| {
        let bp = file.only_pointer()?;
        if bp.kind() == BpKind::Normal {
            values.push(io.may_bring(&bp).then_some(bp)?);
        }
        Some(())
    });
    gather.bring(values);
    for file in objset.gather_contents(gather, rest) {
        // What cannot be brought together is read by itself.
        let _ = file.with_block(0, |_| ());
    }
}

/// The hidden directory of an object, 0 without one. The spill block is read by itself if it could not be brought with others.
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

    /// The pieces that are brought while all of these objects are asked.
    fn pieces(ahead: &XattrsAhead, objects: Range<u64>) -> Vec<Range<u64>> {
        objects.filter_map(|o| ahead.visit(o, true)).collect()
    }

    #[test]
    fn the_window_grows_up_to_what_so_many_bytes_are_and_no_object_is_left_out() {
        let ahead = XattrsAhead::default();
        // Nothing is known of their sizes yet.
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
        // Large values: a few of them are as much.
        ahead.learn(64, 64 << 16, limit);
        let large = pieces(&ahead, 9000..12_000);
        let (first, rest) = large.split_at(1);
        assert_eq!(first[0].start, more[more.len() - 1].end);
        // A quarter of what may be ahead, and the one that is asked.
        let longest = rest.iter().map(|r| r.end - r.start).max();
        assert!(
            longest.is_some_and(|n| n <= (FAR >> 16) / 4 + 1),
            "{rest:?}"
        );
        // A small cache has less of them ahead, and a short value less than a long one.
        let most = |objects: u64, bytes: u64, limit: u64| {
            ahead.learn(objects, bytes, limit);
            ahead.most.load(Relaxed)
        };
        assert_eq!(most(64, 64 << 16, 128 << 20), (16 << 20) >> 16);
        assert_eq!(most(64, 64 << 14, limit), MANY);
        assert_eq!(most(64, 64 << 12, 32 << 20), (2 << 20) >> 12);
        assert_eq!(most(64, 0, limit), 512, "nothing was learnt");
    }

    #[test]
    fn notes_are_looked_for_where_the_asking_is() {
        let ahead = XattrsAhead::default();
        let may = |objects: &[u64]| -> Vec<bool> {
            objects.iter().map(|o| ahead.may_be_noted(*o)).collect()
        };
        assert_eq!(may(&[0, 1, u64::MAX]), [false; 3], "nothing is noted");
        ahead.note_up_to(9000);
        assert_eq!(may(&[9000, 9001 - PLACES]), [true; 2]);
        assert_eq!(may(&[9001, 9000 - PLACES]), [false; 2]);
        // The piece before, which took longer.
        ahead.note_up_to(8900);
        assert_eq!(may(&[8900, 9000]), [true; 2]);
        // From the beginning again.
        ahead.note_up_to(300);
        assert_eq!(may(&[0, 300, 301, 9000]), [true, true, false, false]);
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
        // In the dnode, in the spill block, in a hidden directory; in one of many names; and of a file that somebody has.
        let (short, spilled, hidden) = (5, 9_000, 65_536);
        let lengths = [short, spilled, hidden, hidden, hidden, spilled, hidden];
        let (many, held) = (3, 4);
        let set = |file: &Arc<crate::Znode>, name: &[u8], len: usize| {
            t.fs.set_xattr(&who, file, name, &vec![7; len], XattrMode::Any)
                .expect("set");
        };
        // That does not compress: a directory of many of them has a block.
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
        let brought = bring(objset, t.fs.store.table(), numbers);
        let all: usize = lengths.iter().sum::<usize>() + (FILES - 1) * hidden;
        assert!(brought >= (all - short) as u64, "{brought} of {all}");
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
            bring(
                objset,
                t.fs.store.table(),
                objects.iter().map(|o| o.0).collect()
            ),
            0,
            "all is there"
        );
    }
}

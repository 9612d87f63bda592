//! Where the values are that were brought ahead ([`super::ahead`]).
//!
//! Who asks for a value of a file that nobody has in memory looks at one to three dnodes, entries, and a block by its pointer, all in lines
//! that another core wrote a moment before: 1.3 µs for a value in a hidden directory. Who brings values has all that in its core's cache, and
//! notes where it ended: file, name, block, range.
//!
//! Invariant: what is noted was the newest state of all that led to it when [`Objset::edits`] was as noted. Every change of an object
//! counts as an edit before it can be seen, so it still is while no more were counted.
//!
//! Budget: for who asks a look at a place of two neighbouring lines and one at the block; nothing is waited for. For who brings three
//! dnodes a value, a µs. Memory: [`PLACES`] places of 128 bytes, for all file systems together, from the first value on that is noted; they keep no
//! block in the cache.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};

use zuse_base::ObjectId;
use zuse_dmu::sa::{Attr, SA_BONUS, SaGlance, SaTable, dxattr};
use zuse_dmu::zap::only_in;
use zuse_dmu::{Block, Objset};

use super::VALUE_MAX;
use super::stored::Place;
use crate::{dirent, flags, mode};

/// More than any window of [`super::ahead`], so that those ahead of one who asks do not take each other's places.
pub(super) const PLACES: u64 = 2048;
/// Longest name that is noted.
const NAME: usize = 56;

/// The only value of a file.
#[derive(Debug)]
struct Value {
    file_system: u64,
    object: u64,
    generation: u64,
    edits: u64,
    block: Weak<Block>,
    start: u32,
    len: u32,
    name_len: u8,
    name: [u8; NAME],
}

impl Value {
    fn place(&self) -> Option<Place> {
        let start = self.start as usize;
        Some(Place {
            block: self.block.upgrade()?,
            range: start..start + self.len as usize,
        })
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Slot(Mutex<Option<Value>>);

const _: () = assert!(size_of::<Slot>() == 128);

/// The places of values.
pub(super) struct Places {
    slots: OnceLock<Box<[Slot]>>,
}

/// Those of all file systems: one for each would be too much where there are thousands.
pub(super) static NOTED: Places = Places::new();

/// What is asked for: of which file system, which file, which generation of it, as of so many edits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub file_system: u64,
    pub object: ObjectId,
    pub generation: u64,
    pub edits: u64,
}

impl Places {
    pub(super) const fn new() -> Self {
        Self {
            slots: OnceLock::new(),
        }
    }

    fn of(slots: &[Slot], object: u64) -> Option<&Mutex<Option<Value>>> {
        Some(&slots.get((object % PLACES) as usize)?.0)
    }

    /// The place that an object's value has, if it is free.
    fn slot(&self, object: u64) -> Option<MutexGuard<'_, Option<Value>>> {
        match Self::of(self.slots.get()?, object)?.try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The place of a value by one of these names, if it is noted. It is given once: who asks again is to be noticed by the cache.
    pub(super) fn take<'n>(
        &self,
        asked: Asked,
        mut names: impl Iterator<Item = &'n [u8]>,
    ) -> Option<Place> {
        let mut place = self.slot(asked.object.0)?;
        let value = place.as_ref()?;
        let is_it = value.object == asked.object.0
            && value.file_system == asked.file_system
            && value.generation == asked.generation
            && value.edits == asked.edits;
        let name = value.name.get(..usize::from(value.name_len))?;
        if !is_it || !names.any(|asked| asked == name) {
            return None;
        }
        let value = place.take()?;
        drop(place);
        value.place()
    }

    /// Notes where the values of files are, of those that have one, in the cache, and that nobody has in memory. The last one of them.
    pub(super) fn note(
        &self,
        objset: &Objset,
        sa: &SaTable,
        file_system: u64,
        objects: &[u64],
    ) -> Option<u64> {
        let new = || (0..PLACES).map(|_| Slot::default()).collect();
        let slots = self.slots.get_or_init(new);
        let sa = sa.glance();
        let mut last = None;
        for object in objects {
            if let Some(value) = find(objset, &sa, file_system, *object)
                && let Some(slot) = Self::of(slots, *object)
                && let Ok(mut place) = slot.try_lock()
            {
                *place = Some(value);
                last = last.max(Some(*object));
            }
        }
        last
    }
}

/// What an object is, where that is in its dnode.
fn kind_of(sa: &SaGlance, bonus: &[u8]) -> Option<(u64, u64)> {
    let kind = sa.u64(bonus, Attr::Mode)? & u64::from(mode::TYPE);
    Some((kind, sa.u64(bonus, Attr::Flags)? & flags::XATTR))
}

fn find(objset: &Objset, sa: &SaGlance, file_system: u64, object: u64) -> Option<Value> {
    let edits = objset.edits();
    let file = objset.stored_quietly(ObjectId(object))?;
    let dnode = file.dnode()?;
    let bonus = dnode.bonus();
    if dnode.bonus_type() != SA_BONUS || kind_of(sa, bonus)? != (u64::from(mode::REGULAR), 0) {
        return None;
    }
    let generation = sa.u64(bonus, Attr::Gen)?;
    if sa.find(bonus, Attr::Dxattr)?.is_some() {
        return None;
    }
    let mut space = sa.u64(bonus, Attr::Xattr).unwrap_or(0);
    let mut name = ([0; NAME], 0);
    let mut found = None;
    if dnode.has_spill() {
        let spill = objset.io().glance(&dnode.spill()?)?;
        if let Some(list) = sa.find(spill.bytes(), Attr::Dxattr)? {
            let (called, value) = only_of(list)?;
            name = short(called)?;
            found = Some(Place::of(&spill, value)?);
        } else if space == 0 {
            space = sa.u64(spill.bytes(), Attr::Xattr)?;
        }
    }
    if found.is_none() {
        let (called, place) = hidden(objset, sa, space)?;
        (name, found) = (called, Some(place));
    }
    // One whose change had counted before and was not written when its tree was looked at.
    let Place { block, range } = found.filter(|_| file.is_newest())?;
    Some(Value {
        file_system,
        object,
        generation,
        edits,
        start: u32::try_from(range.start).ok()?,
        len: u32::try_from(range.len()).ok()?,
        block: Arc::downgrade(&block),
        name: name.0,
        name_len: name.1,
    })
}

type Name = ([u8; NAME], u8);

fn short(name: &[u8]) -> Option<Name> {
    let mut short = [0; NAME];
    short.get_mut(..name.len())?.copy_from_slice(name);
    Some((short, name.len() as u8))
}

/// The only pair of a list.
fn only_of(list: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut only, mut count) = (None, 0);
    dxattr::walk(list, |name, value| {
        only = Some((name, value));
        count += 1;
        count < 2
    })
    .ok()?;
    only.filter(|_| count == 1)
}

/// The only value in a hidden directory.
fn hidden(objset: &Objset, sa: &SaGlance, space: u64) -> Option<(Name, Place)> {
    let dir = objset.stored_quietly(ObjectId(space))?;
    let is_hidden = (u64::from(mode::DIRECTORY), flags::XATTR);
    if kind_of(sa, dir.dnode()?.bonus())? != is_hidden {
        return None;
    }
    let (name, entry) = dir.with_only_block(|entries| {
        let (name, entry) = only_in(entries)?;
        Some((short(name)?, entry))
    })??;
    let file = objset.stored_quietly(dirent::object(entry))?;
    let dnode = file.dnode()?;
    let (kind, _) = kind_of(sa, dnode.bonus())?;
    let size = usize::try_from(sa.u64(dnode.bonus(), Attr::Size)?).ok()?;
    let block = objset.io().glance(&file.only_pointer()?)?;
    let fits = size <= VALUE_MAX.min(block.bytes().len());
    let is_it = kind == u64::from(mode::REGULAR) && fits && file.is_newest() && dir.is_newest();
    let place = Place {
        block,
        range: 0..size,
    };
    is_it.then_some((name, place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credentials;
    use crate::backing::Backing;
    use crate::file_system::tests::pool::TestFs;
    use crate::xattr::XattrMode;
    use crate::xattr::ahead::bring;

    const NAME: &[u8] = b"user.x";
    /// In the dnode, in the spill block, in a hidden directory.
    const LENGTHS: [usize; 3] = [5, 9_000, 60_000];

    /// That does not fit into a block pointer when it is compressed.
    fn value(len: usize) -> Vec<u8> {
        let byte = |i: usize| (i.wrapping_mul(0x9E37_79B1) >> 13) as u8;
        (0..len).map(byte).collect()
    }

    /// A file for each length, with values brought and noted. Who asks for which of them.
    struct Noted {
        t: TestFs,
        places: Places,
        id: u64,
        files: Vec<(ObjectId, u64)>,
    }

    impl Noted {
        fn new() -> Self {
            let t = TestFs::new();
            let who = Credentials::root();
            let top = t.fs.root().expect("root");
            let mut files = Vec::new();
            for (i, len) in LENGTHS.into_iter().enumerate() {
                let file = t.fs.create(&who, &top, format!("f{i}").as_bytes(), 0o600);
                let file = file.expect("made");
                files.push((file.object(), file.attributes().generation));
                set(&t, i, NAME, len);
            }
            let id = t.fs.xattrs_ahead.id();
            let places = Places::new();
            let noted = Self {
                t,
                places,
                id,
                files,
            };
            noted.sync();
            noted
        }

        fn sync(&self) {
            let backing = &self.t.backing;
            backing.wait_synced(backing.open_txg()).expect("written");
        }

        /// Brings and notes those of all files; the last one.
        fn note(&self) -> Option<u64> {
            self.note_in(&self.places)
        }

        fn note_in(&self, places: &Places) -> Option<u64> {
            self.t.backing.forget_cache();
            let (objset, sa) = (self.t.backing.objset(), self.t.fs.store.table());
            let numbers: Vec<u64> = self.files.iter().map(|(object, _)| object.0).collect();
            bring(objset, sa, numbers.clone());
            places.note(objset, sa, self.id, &numbers)
        }

        fn asked(&self, i: usize) -> Asked {
            let (object, generation) = self.files[i];
            Asked {
                file_system: self.id,
                object,
                generation,
                edits: self.t.backing.objset().edits(),
            }
        }

        /// The length of a value, if it is noted and what it should be.
        fn take(&self, i: usize) -> Option<usize> {
            let place = self.places.take(self.asked(i), [NAME].into_iter())?;
            let bytes = &place.block.bytes()[place.range];
            assert_eq!(bytes, value(bytes.len()));
            Some(bytes.len())
        }
    }

    fn set(t: &TestFs, i: usize, name: &[u8], len: usize) {
        let who = Credentials::root();
        let path = format!("f{i}");
        let file = t.fs.resolve(&who, path.as_bytes()).expect("there");
        t.fs.set_xattr(&who, &file, name, &value(len), XattrMode::Any)
            .expect("set");
    }

    #[test]
    fn what_was_brought_is_noted_until_something_changes() {
        let n = Noted::new();
        assert_eq!(n.note(), Some(n.files[2].0.0));
        let all = || LENGTHS.map(|len| (len > 100).then_some(len));
        let taken = |n: &Noted| [0, 1, 2].map(|i| n.take(i));
        assert_eq!(taken(&n), all(), "those that are not in the dnode");
        assert_eq!(taken(&n), [None; 3], "once");

        // Another one is asked for.
        n.note();
        let right = n.asked(1);
        let others = [
            Asked {
                file_system: right.file_system + 1,
                ..right
            },
            Asked {
                generation: right.generation + 1,
                ..right
            },
            Asked {
                object: ObjectId(right.object.0 + PLACES),
                ..right
            },
            Asked {
                edits: right.edits + 1,
                ..right
            },
        ];
        for asked in others {
            assert!(
                n.places.take(asked, [NAME].into_iter()).is_none(),
                "{asked:?}"
            );
        }
        for name in [&b"user.y"[..], b"user.", b"user.xx"] {
            assert!(n.places.take(right, [name].into_iter()).is_none());
        }
        let names: [&[u8]; 2] = [b"x", NAME];
        assert!(n.places.take(right, names.into_iter()).is_some());

        // A block that the cache has let go.
        n.note();
        n.t.backing.forget_cache();
        assert_eq!(taken(&n), [None; 3]);

        // Something changes, and what changed is not written yet; nor when it is, until it is brought again.
        n.note();
        set(&n.t, 0, b"user.else", 3);
        assert_eq!(taken(&n), [None; 3]);
        n.sync();
        assert_eq!(taken(&n), [None; 3]);
        n.note();
        assert_eq!(taken(&n), all());

        // One that somebody has in memory may be changed without being looked up again.
        let who = Credentials::root();
        let held = n.t.fs.resolve(&who, b"f2").expect("there");
        n.note();
        assert_eq!(taken(&n), [None, all()[1], None]);
        drop(held);

        // Of several nobody knows which will be asked for.
        (1..3).for_each(|i| set(&n.t, i, b"user.y", LENGTHS[i]));
        n.sync();
        n.note();
        for name in [NAME, b"user.y"] {
            let place = |i| n.places.take(n.asked(i), [name].into_iter());
            assert!((0..3).all(|i| place(i).is_none()));
        }
    }

    #[test]
    fn who_asks_gets_the_newest_value_whatever_is_noted() {
        let n = Noted::new();
        let who = Credentials::judged(0, 0, 0);
        let get = |i: usize, name: &[u8]| {
            let ours = |bytes: &[u8]| (bytes == value(bytes.len())).then_some(bytes.len());
            n.t.fs.get_stored_xattr(&who, n.files[i], name, ours)
        };
        let hits = || n.t.backing.objset().io().cache().stats().hits;
        // Tests beside this one have files of the same numbers, whose values may take these ones' places.
        let noted = (0..100).any(|_| {
            let last = n.note_in(&NOTED).expect("noted");
            n.t.fs.xattrs_ahead.note_up_to(last);
            let before = hits();
            assert_eq!(get(2, NAME).expect("there"), Some(Some(60_000)));
            hits() == before
        });
        assert!(noted, "each time the cache was asked");
        n.note_in(&NOTED);
        assert!(get(1, b"user.other").is_err());
        set(&n.t, 1, NAME, 9_001);
        assert_eq!(get(1, NAME).expect("there"), None, "nothing stored yet");
        n.sync();
        for _ in 0..2 {
            assert_eq!(get(1, NAME).expect("there"), Some(Some(9_001)));
            assert_eq!(get(2, NAME).expect("there"), Some(Some(60_000)));
        }
    }
}

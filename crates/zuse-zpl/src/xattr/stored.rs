//! Extended attributes read from their stored blocks, without an object in memory.
//!
//! A client that walks a tree and reads each file once needs no objects in memory. One large value
//! would need four of them: for the name, the dnode, the hidden directory and the file in it.
//! Unusual cases use the object itself ([`FileSystem::get_xattr_with`]), which also reports errors.
//!
//! ```text
//!   dnode ──list──> value            small ones
//!     └ spill block ──list──> value  middle ones
//!     └ hidden directory: dnode ──> entries ──> dnode ──> value
//! ```
//! A result is returned only if everything that was read is still the newest state at the end
//! ([`Stored::is_newest`], the last step on each path). So all of it was in one tree, at one
//! moment.
//!
//! Budget: three accesses to dnode blocks and three to cached blocks for a hidden value, one or two
//! for others. No lock is held. Only names are allocated.

use std::ops::Range;
use std::sync::Arc;

use zuse_base::{Errno, ObjectId, Result};
use zuse_dmu::sa::{Attr, dxattr};
use zuse_dmu::zap::{MatchType, number_in};
use zuse_dmu::{Block, Stored};

use super::{SECURITY, TRUSTED, USER, VALUE_MAX, bare};
use crate::attributes::{Attributes, XATTR_UNREAD};
use crate::credentials::Credentials;
use crate::file_system::{FileSystem, refuse};
use crate::{dirent, flags, mode};

/// The stored names under which a requested value may be found.
fn names_of(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    [Some(name), bare(name)].into_iter().flatten()
}

/// Bytes inside a block.
pub(super) struct Place {
    pub block: Arc<Block>,
    pub range: Range<usize>,
}

impl Place {
    /// The place of a part of a block.
    pub fn of(block: &Arc<Block>, part: &[u8]) -> Option<Self> {
        let whole = block.bytes();
        let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
        let range = start..start.checked_add(part.len())?;
        (range.end <= whole.len()).then(|| Self {
            block: block.clone(),
            range,
        })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.block.bytes()[self.range.clone()]
    }
}

impl FileSystem {
    /// As [`Self::get_xattr_with`], for a file by number and generation that is not in memory.
    /// `None`: the object has to be used.
    ///
    /// # Errors
    /// `Refused(NODATA)`, and refusals of the name itself.
    pub fn get_stored_xattr<T>(
        &self,
        who: &Credentials,
        (object, generation): (ObjectId, u64),
        name: &[u8],
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let known = [USER, TRUSTED, SECURITY];
        let plain = known.iter().any(|prefix| name.starts_with(prefix));
        // ACLs depend on properties, and aliases on the directory's own comparison.
        if !plain || !who.free() || self.match_type() != MatchType::Exact {
            return Ok(None);
        }
        let misses = self.objset.io().cache().misses();
        let Some((file, attributes)) = self.stored_object(object) else {
            return Ok(None);
        };
        // The number may have been reused since the client learned it.
        if attributes.generation != generation || attributes.kind() != mode::REGULAR {
            return Ok(None);
        }
        // The kernel has checked the permissions.
        self.name_space_of(who, &attributes, name, false)?;
        let Some(place) = self.stored_place(&file, &attributes, name) else {
            return Ok(None);
        };
        // Answered before the next ones are prefetched, because a caller waits.
        let answer = place.map(|p| f(p.bytes()));
        self.was_asked(object, misses);
        match answer {
            Some(answer) => Ok(Some(answer)),
            None => refuse(Errno::NODATA, "no such extended attribute"),
        }
    }

    fn stored_object(&self, object: ObjectId) -> Option<(Stored<'_>, Attributes)> {
        let stored = self.objset.stored(object)?;
        let attributes = self.store.load_stored(&stored.dnode()?)?;
        Some((stored, attributes))
    }

    /// The place of a value; `Some(None)` if there is no such name.
    fn stored_place(
        &self,
        file: &Stored<'_>,
        attributes: &Attributes,
        name: &[u8],
    ) -> Option<Option<Place>> {
        let sa = self.store.table().peek();
        let dnode = file.dnode()?;
        let names = || names_of(name);
        let in_list = |block: &Arc<Block>, buffer: &[u8]| {
            let Some(list) = sa.find(buffer, Attr::Dxattr)? else {
                return Some(None);
            };
            for name in names() {
                if let Some(value) = dxattr::find(list, name).ok()? {
                    return Some(Some(Place::of(block, value)?));
                }
            }
            Some(None)
        };
        let mut found = in_list(file.block(), dnode.bonus())?;
        let mut space = attributes.xattr;
        if found.is_none() && dnode.has_spill() {
            let spill = file.spill()?;
            found = in_list(&spill, spill.bytes())?;
            if space == XATTR_UNREAD {
                space = match sa.find(spill.bytes(), Attr::Xattr)? {
                    Some(number) => u64::from_le_bytes(*number.first_chunk()?),
                    None => 0,
                };
            }
        }
        if found.is_none() && space != 0 {
            return self.stored_hidden(file, space, names());
        }
        file.is_newest().then_some(found)
    }

    /// The same in the hidden directory of a file.
    fn stored_hidden<'n>(
        &self,
        file: &Stored<'_>,
        space: u64,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Option<Option<Place>> {
        let (dir, a) = self.stored_object(ObjectId(space))?;
        // Usually the next object is the file of the value.
        dir.ask_for_next();
        if !a.is_dir() || a.flags & flags::XATTR == 0 {
            return None;
        }
        let find = |entries: &[u8]| {
            for name in names {
                if let Some(entry) = number_in(entries, name)? {
                    return Some(Some(entry));
                }
            }
            Some(None)
        };
        let entry = dir.with_only_block(find)??;
        let Some(entry) = entry else {
            return (dir.is_newest() && file.is_newest()).then_some(None);
        };
        let (value, a) = self.stored_object(dirent::object(entry))?;
        let size = usize::try_from(a.size).ok()?;
        if a.kind() != mode::REGULAR || size > VALUE_MAX {
            return None;
        }
        let block = value.only_block()?;
        let place = Place {
            range: 0..size,
            block: (block.bytes().len() >= size).then_some(block)?,
        };
        let is_newest = value.is_newest() && dir.is_newest() && file.is_newest();
        is_newest.then_some(Some(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::Backing;
    use crate::file_system::tests::pool::TestFs;
    use crate::xattr::XattrMode;

    const NAME: &[u8] = b"user.x";

    fn set(t: &TestFs, len: usize) -> ObjectId {
        let who = Credentials::root();
        let file = t.fs.resolve(&who, b"f").expect("there");
        t.fs.set_xattr(&who, &file, NAME, &vec![7; len], XattrMode::Any)
            .expect("set");
        let object = file.object();
        drop(file);
        t.backing
            .wait_synced(t.backing.open_txg())
            .expect("written");
        object
    }

    /// A value may move between its places during a look-up. A reader that checks one place before
    /// the move and the other after it would find the value in neither.
    #[test]
    fn what_has_changed_since_the_first_look_gives_no_answer() {
        let t = TestFs::new();
        let who = Credentials::root();
        let top = t.fs.root().expect("root");
        t.fs.create(&who, &top, b"f", 0o600).expect("made");
        for (before, after) in [
            (60_000, 5),
            (5, 60_000),
            (5, 6),
            (9000, 9001),
            (60_000, 60_001),
        ] {
            let object = set(&t, before);
            let (file, attributes) = t.fs.stored_object(object).expect("not in memory");
            let place = t.fs.stored_place(&file, &attributes, NAME).expect("sure");
            assert_eq!(place.expect("there").range.len(), before);
            set(&t, after);
            let place = t.fs.stored_place(&file, &attributes, NAME);
            assert!(place.is_none(), "from {before} to {after}");
        }
    }
}

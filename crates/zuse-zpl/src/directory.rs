//! Looking up names and listing directories.
//!
//! Positions of a listing: 0 before `.`, 1 before `..`, 2 before `.zfs` (root, if visible) or the
//! first entry. Larger ones are ZAP positions, which are at least 2^28 after any entry. They stay
//! valid over changes of the directory.
//!
//! Budget of a listing
//! - One search for the position per batch, one copy per name, no allocation per entry. A batch is
//!   at most 1,024 names, 256 with their objects.
//! - When the listing of a large directory begins, its leaves are read in device order, a mebibyte
//!   at a time. So are its objects, if attributes are wanted and their numbers are dense.
//! - Sub-directories that probably come next are prefetched by other threads ([`crate::ahead`]).
//! - If attributes are wanted, each dnode block of a batch is read once, neighbours together.
//!   Attributes are taken from that block, without creating objects in memory.
//! - While idle, the server can prepare the next batch for the client ([`crate::listing`]).

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::{MatchType, Zap};

use crate::attributes::field;
use crate::backing::SnapDir;
use crate::credentials::{Credentials, MAY_EXEC};
use crate::file_system::{Attr, FileSystem, refuse};
use crate::listing::{Batch, FEW, Known, ZAP_END, batch_of};
use crate::znode::Znode;
use crate::{dirent, flags, mode, name};
use zuse_base::Timestamp;
use zuse_dmu::Tx;

/// Inode number of the virtual `.zfs` directory.
pub const DOT_ZFS: ObjectId = ObjectId(0xffff_ffff_ffff);
/// Its name.
pub const DOT_ZFS_NAME: &[u8] = b".zfs";
/// One entry of a listing.
#[derive(Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub object: ObjectId,
    /// Type bits of the mode.
    pub kind: u32,
    /// The position after it.
    pub next: u64,
    /// Its name.
    pub name: &'a [u8],
    /// The object itself, if requested and readable, or if attributes were requested and it is in
    /// memory. Never for `.`, `..`, `.zfs`.
    pub znode: Option<&'a Arc<Znode>>,
    /// The `stat` data of an object that is not in memory, if attributes were requested.
    pub attr: Option<&'a Attr>,
}

/// The data that a listing provides besides names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Nothing.
    Names,
    /// Attributes of objects that need no device read.
    Cached,
    /// Attributes: from the object if it is in memory, otherwise from its dnode block.
    Attributes,
    /// Objects.
    Objects,
}

/// The target of a name.
#[derive(Debug)]
pub enum LookedUp {
    /// An object.
    Object(Arc<Znode>),
    /// The `stat` data of a file that is not in memory.
    Stored(Attr),
}

impl FileSystem {
    /// The object number of a name, and its type if known.
    pub(crate) fn find(&self, dir: &Znode, name: &[u8]) -> Result<Option<(ObjectId, u32)>> {
        let zap = dir.entries()?;
        let value = match self.match_type() {
            MatchType::Exact => zap.lookup_u64(name)?,
            how => match zap.lookup_match(name, how)? {
                Some(found) => found.value.first(),
                None => None,
            },
        };
        Ok(value.map(|v| (dirent::object(v), dirent::kind(v))))
    }

    /// Finds a name in a directory. `.` is the directory, `..` its parent.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(NOTDIR)`, `Refused(ACCES)`, `Refused(NAMETOOLONG)`.
    pub fn lookup(&self, who: &Credentials, dir: &Arc<Znode>, name: &[u8]) -> Result<Arc<Znode>> {
        name::check(name)?;
        dir.entries()?;
        self.check_access(who, dir, MAY_EXEC)?;
        match name {
            b"." => return Ok(dir.clone()),
            b".." => return self.znode(ObjectId(dir.read().attrs.parent)),
            _ => {}
        }
        let stamp = dir.dnode().stamp();
        let mut found = self.find(dir, name)?;
        loop {
            let Some((object, _)) = found else {
                return Err(self.absent(name));
            };
            let znode = self.znode(object);
            if znode.is_ok() && dir.dnode().is_unchanged_since(stamp) {
                return znode;
            }
            // Nothing was locked between the two look-ups: the name may lead elsewhere by now, and
            // the number may be reused. While this znode is held, its number is not reused.
            found = self.find(dir, name)?;
            match znode {
                Err(error) if !error.is(Errno::NOENT) => return Err(error),
                other if found.map(|f| f.0) == Some(object) => return other,
                _ => {}
            }
        }
    }

    /// As [`Self::lookup`], without loading a file into memory: many callers only need its `stat`
    /// data. Nothing holds such a file, like those of a listing
    /// ([`FileSystem::add_unlink_observer`]).
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn lookup_stat(
        &self,
        who: &Credentials,
        dir: &Arc<Znode>,
        name: &[u8],
    ) -> Result<LookedUp> {
        if !matches!(name, b"." | b"..") {
            name::check(name)?;
            dir.entries()?;
            self.check_access(who, dir, MAY_EXEC)?;
            let stamp = dir.dnode().stamp();
            let Some((object, _)) = self.find(dir, name)? else {
                return Err(self.absent(name));
            };
            if let Some(attr) = self.stored_file(object)
                && dir.dnode().is_unchanged_since(stamp)
            {
                return Ok(LookedUp::Stored(attr));
            }
        }
        self.lookup(who, dir, name).map(LookedUp::Object)
    }

    /// A regular file that is not in memory, from its dnode block.
    fn stored_file(&self, object: ObjectId) -> Option<Attr> {
        if self.cache.get(object).is_some() {
            return None;
        }
        let stored = self.objset.stored(object)?;
        let attr = self.stored_attr(object, &stored.dnode()?)?;
        let a = &attr.attributes;
        (a.kind() == mode::REGULAR && a.flags & flags::XATTR == 0 && stored.is_newest())
            .then_some(attr)
    }

    /// The error for a missing name. One that could not be created either is too long, which other
    /// file systems report before they look. (An existing long name is found, whatever the property
    /// says.)
    pub(crate) fn absent(&self, name: &[u8]) -> Error {
        if name.len() > name::NAME_MAX && !self.takes_long_names() {
            return Error::refused(Errno::NAMETOOLONG, "a file name");
        }
        Error::refused(Errno::NOENT, "no such name")
    }

    /// Whether names of more than 255 bytes may be created.
    pub(crate) fn takes_long_names(&self) -> bool {
        self.backing.props().longname && self.features().longname
    }

    /// Follows a path of names from the root; symbolic links are not followed.
    ///
    /// # Errors
    /// Those of [`Self::lookup`].
    pub fn resolve(&self, who: &Credentials, path: &[u8]) -> Result<Arc<Znode>> {
        let mut at = self.root()?;
        for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
            at = self.lookup(who, &at, part)?;
        }
        Ok(at)
    }

    /// Whether `.zfs` is listed in the root directory.
    pub fn shows_dot_zfs(&self) -> bool {
        self.backing.props().snapdir == SnapDir::Visible
    }

    /// Lists a directory from a position (0: the start) until the end or until `sink` returns
    /// false, which means that it rejects this entry. With `plus` entries have their objects,
    /// fetched in object order.
    ///
    /// # Errors
    /// `Refused(NOTDIR)`; the directory cannot be read; after all other entries: it has names that
    /// are impossible for files.
    pub fn readdir(
        &self,
        dir: &Arc<Znode>,
        from: u64,
        plus: bool,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let wanted = if plus { Wanted::Objects } else { Wanted::Names };
        let ended = self.readdir_some(dir, from, wanted, (usize::MAX, usize::MAX), sink)?;
        if ended {
            self.accessed(dir);
            dir.check_listed()?;
        }
        Ok(())
    }

    /// The same for a sink that will accept about `likely` entries, so not many more are fetched.
    /// It gets at most `most` entries whose objects are not in memory. Returns whether the listing
    /// reached its end.
    ///
    /// # Errors
    /// As [`Self::readdir`]; left-out names are reported by the call that finds nothing more.
    pub fn readdir_some(
        &self,
        dir: &Arc<Znode>,
        from: u64,
        wanted: Wanted,
        (likely, mut most): (usize, usize),
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<bool> {
        dir.entries()?;
        if !self.list_dots(dir, from, sink) {
            return Ok(false);
        }
        if from <= 3 {
            // The listing order of a large directory's leaves is unrelated to their places.
            self.objset.gather_whole(dir.dnode());
            self.read_ahead(dir.object());
        }
        let mut at = if from <= 3 { 0 } else { from };
        let mut batch = Batch::default();
        let mut left = likely;
        let mut gave = from <= 3;
        while at != ZAP_END {
            let some = left.clamp(FEW, batch_of(wanted)).min(most);
            left = left.saturating_sub(some);
            match self.take_ready(dir.object(), at) {
                Some(ready) => batch = ready.cut(some),
                None => batch.list(dir, at, some)?,
            }
            at = batch.after;
            if wanted != Wanted::Names {
                // A client that asks for the first few entries may need names only.
                let in_all = if from <= 3 && most != usize::MAX {
                    0
                } else {
                    dir.size()
                };
                self.fetch(&mut batch, wanted, in_all);
            }
            gave |= !batch.entries.is_empty();
            if !self.give_batch(&batch, sink) {
                return Ok(false);
            }
            most -= batch.entries.len().min(most);
            if most == 0 && at != ZAP_END {
                return Ok(false);
            }
        }
        if !gave {
            // Only when nothing was found: the client has got all good names by then.
            dir.check_listed()?;
        }
        Ok(true)
    }

    /// Lists the names that are not stored in the directory; false if the sink is full.
    fn list_dots(
        &self,
        dir: &Arc<Znode>,
        from: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> bool {
        let mut dot = |object, next, name: &[u8]| {
            sink(DirEntry {
                object,
                kind: mode::DIRECTORY,
                next,
                name,
                znode: None,
                attr: None,
            })
        };
        if from == 0 && !dot(dir.object(), 1, b".") {
            return false;
        }
        if from <= 1 && !dot(ObjectId(dir.read().attrs.parent), 2, b"..") {
            return false;
        }
        let shows = dir.object() == self.root_id() && self.shows_dot_zfs();
        if from <= 2 && shows && !dot(DOT_ZFS, 3, DOT_ZFS_NAME) {
            return false;
        }
        true
    }

    /// Passes the entries of a batch to the sink; false if the sink is full.
    fn give_batch(&self, batch: &Batch, sink: &mut dyn FnMut(DirEntry<'_>) -> bool) -> bool {
        let mut start = 0;
        for (i, &(value, after, end)) in batch.entries.iter().enumerate() {
            let object = dirent::object(value);
            let (znode, attr) = match batch.known.get(i) {
                Some(Known::Object(znode)) => (Some(znode), None),
                Some(Known::Stored(attr)) => (None, Some(attr)),
                Some(Known::Nothing | Known::InMemory) | None => (None, None),
            };
            let kind = match (dirent::kind(value), znode, attr) {
                (0, Some(znode), _) => znode.kind(),
                (0, _, Some(attr)) => attr.attributes.kind(),
                (0, None, None) => self.znode(object).map_or(0, |z| z.kind()),
                (kind, ..) => kind,
            };
            let entry = DirEntry {
                object,
                kind,
                next: after,
                name: &batch.names[start..end],
                znode,
                attr,
            };
            if !sink(entry) {
                return false;
            }
            if kind == mode::DIRECTORY {
                self.ahead.note(object);
            }
            start = end;
        }
        true
    }

    /// A directory is being listed: the likely next ones are read and sorted by other threads.
    fn read_ahead(&self, dir: ObjectId) {
        let next = self.ahead.visit(dir);
        if next.is_empty() {
            return;
        }
        let objset = self.objset.clone();
        let job = Box::new(move || {
            for dnode in objset.gather_listings(next) {
                // Only a hint: the listing itself reports errors.
                let order = Box::new(move || {
                    let _ = Zap::open(&dnode).and_then(|zap| zap.prefetch());
                });
                if objset.work().try_submit(order).is_err() {
                    return;
                }
            }
        });
        let _ = self.objset.work().try_submit(job);
    }

    /// Entries were added or removed: updates the directory's size, links and times.
    pub(crate) fn change_dir(
        &self,
        tx: &Tx,
        dir: &Arc<Znode>,
        entries: i64,
        subdirs: i64,
        now: Timestamp,
    ) -> Result<()> {
        let mut state = dir.write();
        let a = &mut state.attrs;
        a.size = a.size.saturating_add_signed(entries);
        a.links = a.links.saturating_add_signed(subdirs);
        a.mtime = now;
        a.ctime = now;
        let mut fields = field::SIZE | field::MTIME | field::CTIME;
        if subdirs != 0 {
            fields |= field::LINKS;
        }
        let new = if self.version >= 3 {
            a.flags | flags::ARCHIVE | flags::AV_MODIFIED
        } else {
            a.flags
        };
        if new != a.flags {
            a.flags = new;
            fields |= field::FLAGS;
        }
        self.store.store(tx, dir.dnode(), &state.attrs, fields)
    }

    /// A directory whose `names` are locked must still exist for a name to be added to it.
    pub(crate) fn check_alive(&self, dir: &Znode) -> Result<()> {
        let state = dir.read();
        if dir.is_dead() || state.attrs.links == 0 {
            return refuse(Errno::NOENT, "the directory is gone");
        }
        Ok(())
    }

    /// Whether a new name may be created in a directory.
    pub(crate) fn check_new_name(&self, dir: &Znode, name: &[u8]) -> Result<()> {
        let props = self.backing.props();
        name::check_new(name, self.takes_long_names(), self.utf8_only)?;
        if dir.object() == self.root_id()
            && name == DOT_ZFS_NAME
            && props.snapdir != SnapDir::Disabled
        {
            return refuse(Errno::EXIST, ".zfs is taken");
        }
        Ok(())
    }
}

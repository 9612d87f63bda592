//! Extended attributes as files of a hidden directory, one per object that has any.
//!
//! The first hidden directory of an object is written once, with its first name in it, and the file
//! once, with its size and block. Neither stays in memory beyond its txg.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result, Timestamp};
use zuse_dmu::sa::Attr;
use zuse_dmu::zap;
use zuse_dmu::{Dnode, DnodeSpec, SharedSlice, Tx};
use zuse_format::object_type;
use zuse_format::zil::Body;

use super::VALUE_MAX;
use crate::attributes::{Attributes, XATTR_UNREAD, field};
use crate::create::NewObject;
use crate::credentials::Credentials;
use crate::file_system::{FileSystem, refuse};
use crate::log::{as_they_are, created};
use crate::znode::Znode;
use crate::{dirent, flags, mode};

/// Modes of a hidden directory and of the files in it.
const SPACE_MODE: u32 = mode::DIRECTORY | 0o1777;
const VALUE_MODE: u32 = mode::REGULAR | 0o644;

/// A newly created hidden directory, and the file in it.
pub(super) struct FirstHidden {
    space: Arc<Dnode>,
    file: Option<Arc<Dnode>>,
    /// Attributes of both.
    attrs: Option<(Attributes, Attributes)>,
}

impl FirstHidden {
    /// The directory alone.
    fn of(space: Arc<Dnode>) -> Self {
        Self {
            space,
            file: None,
            attrs: None,
        }
    }

    /// The directory's number.
    pub fn space(&self) -> u64 {
        self.space.object().0
    }
}

/// Hidden objects have the owner of the object.
fn owner_of(a: &Attributes) -> Credentials {
    Credentials {
        uid: a.uid as u32,
        gid: a.gid as u32,
        ..Credentials::default()
    }
}

/// Size of the block that takes a value whole.
fn block_for(len: usize) -> u32 {
    len.next_multiple_of(SMALLEST_BLOCK as usize)
        .max(SMALLEST_BLOCK as usize) as u32
}

const SMALLEST_BLOCK: u32 = 512;

/// The value followed by zeros: a block of `size` bytes, at least as long as the value.
fn block_of(value: &[u8], size: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(size);
    block.extend_from_slice(value);
    block.resize(size, 0);
    block
}

impl FileSystem {
    /// The number of an object's extended attribute directory, 0 without one. The first call reads
    /// the spill block.
    pub(crate) fn attribute_space_of(&self, znode: &Znode) -> Result<u64> {
        let known = znode.read().attrs.xattr;
        if known != XATTR_UNREAD {
            return Ok(known);
        }
        let view = self.store.table().view(znode.dnode())?;
        let found = view.u64(Attr::Xattr)?.unwrap_or(0);
        let mut state = znode.write();
        // A thread may have set the first hidden value since the look without the lock.
        if state.attrs.xattr == XATTR_UNREAD {
            state.attrs.xattr = found;
        }
        Ok(state.attrs.xattr)
    }

    /// The extended attribute directory of an object.
    pub(crate) fn attribute_space(&self, znode: &Znode) -> Result<Option<Arc<Znode>>> {
        let xattr = self.attribute_space_of(znode)?;
        if xattr == 0 {
            return Ok(None);
        }
        let space = self.znode(ObjectId(xattr))?;
        if !space.is_dir() || space.read().attrs.flags & flags::XATTR == 0 {
            return Err(Error::corrupt(
                znode.dnode().place(),
                format!("its attribute directory {xattr} is none"),
            ));
        }
        Ok(Some(space))
    }

    pub(super) fn hidden_file(&self, space: &Znode, name: &[u8]) -> Result<Option<Arc<Znode>>> {
        let found = self.find(space, name)?;
        found.map(|(object, _)| self.znode(object)).transpose()
    }

    /// The result of `f` on the bytes of a value.
    pub(super) fn with_content<T>(&self, file: &Znode, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let size = file.size();
        // A bound on what a damaged size makes this allocate.
        if !file.is_file() || size > 16 * VALUE_MAX as u64 {
            return Err(Error::corrupt(
                file.dnode().place(),
                format!("an extended attribute of {size} bytes"),
            ));
        }
        let mut parts = Vec::new();
        file.dnode()
            .read_slices(0, size, &mut |slice| parts.push(slice))?;
        match &*parts {
            [SharedSlice::Block(block, range)] => Ok(f(&block.bytes()[range.clone()])),
            [SharedSlice::Copy(bytes)] => Ok(f(bytes)),
            parts => {
                let mut whole = vec![0; size as usize];
                let mut rest = whole.as_mut_slice();
                for part in parts {
                    let at = std::mem::take(&mut rest);
                    part.copy_to(at);
                    rest = &mut at[part.len()..];
                }
                Ok(f(&whole))
            }
        }
    }

    /// Creates the hidden directory of an object without one, with its first value in it. Each of
    /// the two is written once in its final form. They are not loaded into memory, because no other
    /// thread knows them yet. The caller stores the directory's number with the object. `None`,
    /// with nothing done, in less simple cases.
    pub(super) fn make_space_with(
        &self,
        tx: &Tx,
        znode: &Znode,
        name: &[u8],
        value: &[u8],
    ) -> Result<Option<FirstHidden>> {
        let is_plain = self.normflags == 0 && name.len() <= zap::MICRO_NAME_MAX;
        if !is_plain || self.attribute_space_of(znode)? != 0 {
            return Ok(None);
        }
        let (who, now) = (owner_of(&znode.attributes()), self.now());
        let (bonus, slots) = (
            (self.store.bonus_type(), self.store.bonus_len()),
            self.slots_of_new(),
        );
        let make = |object_type, block_size| {
            let spec = DnodeSpec::new(object_type)
                .bonus(bonus.0, bonus.1)
                .slots(slots)
                .block_size(block_size);
            self.objset.allocate(tx, &spec)
        };
        let new = NewObject::default();
        let plain = Attributes {
            flags: flags::XATTR,
            ..Attributes::default()
        };
        let parent = znode.object();
        let (mut attrs, acl) =
            self.attributes_of_new(tx, &plain, parent, &who, SPACE_MODE, &new, now);
        let space = make(object_type::DIRECTORY_CONTENTS, SMALLEST_BLOCK)?;
        let mut made = FirstHidden::of(space);
        let mut fill = || {
            let size = block_for(value.len());
            let file = made.file.insert(make(Self::FILE_TYPE, size)?);
            let (mut of_file, file_acl) = self.attributes_of_new(
                tx,
                &attrs,
                made.space.object(),
                &who,
                VALUE_MODE,
                &new,
                now,
            );
            of_file.size = value.len() as u64;
            self.store.write_new(tx, file, &of_file, &file_acl, None)?;
            if !value.is_empty() {
                file.write_value(tx, block_of(value, size as usize))?;
            }
            // A reader that finds the directory's number must find all of it, or nothing.
            let entry = dirent::pack(file.object(), VALUE_MODE, self.version);
            if !zap::init_micro_with(&made.space, tx, name, entry)? {
                return refuse(Errno::INVAL, "the name of an extended attribute");
            }
            // A directory's size is its entries and two (03c §2).
            attrs.size = 3;
            self.store.write_new(tx, &made.space, &attrs, &acl, None)?;
            made.attrs = Some((attrs, of_file));
            Ok(())
        };
        match fill() {
            Ok(()) => Ok(Some(made)),
            Err(error) => {
                self.unmake(tx, &made)?;
                Err(error)
            }
        }
    }

    /// Frees the objects from [`Self::make_space_with`].
    pub(super) fn unmake(&self, tx: &Tx, made: &FirstHidden) -> Result<()> {
        made.file
            .iter()
            .chain([&made.space])
            .try_for_each(|dnode| self.objset.free(tx, dnode.object()))
    }

    pub(super) fn put_hidden(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        (name, value): (&[u8], &[u8]),
        mask: u64,
    ) -> Result<()> {
        let who = owner_of(&znode.attributes());
        let now = self.now();
        let noted = znode.read().attrs.links != 0;
        let mut notes = self.to_be_noted(znode, mask);
        let space = match self.attribute_space(znode)? {
            Some(space) => space,
            None => {
                let parent = Attributes {
                    flags: flags::XATTR,
                    ..Attributes::default()
                };
                let new = NewObject::default();
                let (dnode, attrs) =
                    self.make_object(tx, &parent, znode.object(), &who, SPACE_MODE, &new, now)?;
                let made = created(&dnode, &attrs, b"", b"");
                let space = self.cache.insert(dnode, attrs, false)?;
                // Before the file's record: replay creates the file in this directory.
                notes.push(Body::MakeXattrDir(made));
                let mut state = znode.write();
                state.attrs.xattr = space.object().0;
                self.store
                    .store(tx, znode.dnode(), &state.attrs, field::XATTR)?;
                space
            }
        };
        if let Some((object, _)) = self.find(&space, name)? {
            let file = self.znode(object)?;
            // A shorter value must not leave bytes of the old one beyond its end.
            file.dnode().free_range(tx, 0, u64::MAX)?;
            self.fill_hidden(tx, &file, value, now)?;
            if noted {
                // Replay has to shorten the file as well, before it writes the new value.
                let cut = Body::Truncate {
                    object: object.0,
                    offset: 0,
                    length: 0,
                };
                notes.push(cut);
                self.note_hidden(tx, &notes, file.dnode(), value);
            }
            return Ok(());
        }
        let parent = space.attributes();
        let new = NewObject::default();
        let (dnode, attrs) =
            self.make_object(tx, &parent, space.object(), &who, VALUE_MODE, &new, now)?;
        let entry = dirent::pack(dnode.object(), VALUE_MODE, self.version);
        space.entries()?.add_u64(tx, name, entry)?;
        self.change_dir(tx, &space, 1, 0, now)?;
        notes.push(Body::Create(created(&dnode, &attrs, name, b"")));
        let file = self.cache.insert(dnode, attrs, false)?;
        self.fill_hidden(tx, &file, value, now)?;
        if noted {
            self.note_hidden(tx, &notes, file.dnode(), value);
        }
        Ok(())
    }

    /// Notes the objects that [`Self::make_space_with`] created.
    pub(super) fn note_first_hidden(
        &self,
        tx: &Tx,
        znode: &Znode,
        made: &FirstHidden,
        (name, value): (&[u8], &[u8]),
        mask: u64,
    ) {
        let named = znode.read().attrs.links != 0;
        let (Some((of_space, of_file)), Some(file), true) = (&made.attrs, &made.file, named) else {
            return;
        };
        let space = created(&made.space, of_space, b"", b"");
        let file_made = created(file, of_file, name, b"");
        let mut before = self.to_be_noted(znode, mask);
        before.extend([Body::MakeXattrDir(space), Body::Create(file_made)]);
        self.note_hidden(tx, &before, file, value);
    }

    /// Attributes of a mask, to be noted in one operation with a hidden file of their object.
    fn to_be_noted<'a>(&self, znode: &Znode, mask: u64) -> Vec<Body<'a>> {
        if mask == 0 {
            return Vec::new();
        }
        if let Some(log) = self.log() {
            // These attributes are noted among names: the object's earlier records come before.
            log.before_rename(znode.object());
        }
        vec![as_they_are(znode.object(), &znode.attributes(), mask)]
    }

    /// Puts a value into the file of an attribute, which is empty. One block, as large as the value
    /// if the record size lets it be.
    fn fill_hidden(&self, tx: &Tx, file: &Znode, value: &[u8], now: Timestamp) -> Result<()> {
        let dnode = file.dnode();
        let len = value.len();
        let wanted = block_for(len);
        // One block, which a reader gets with one read and without a copy.
        if dnode.max_block() == 0 && dnode.block_size() < wanted {
            dnode.set_block_size(tx, wanted)?;
        }
        let size = dnode.block_size() as usize;
        if len > 0 && len <= size && dnode.max_block() == 0 {
            dnode.write_value(tx, block_of(value, size))?;
        } else if len > 0 {
            dnode.write_at(tx, 0, value)?;
        }
        let mut state = file.write();
        let a = &mut state.attrs;
        a.size = len as u64;
        a.mtime = now;
        a.ctime = now;
        self.store.store(
            tx,
            dnode,
            &state.attrs,
            field::SIZE | field::MTIME | field::CTIME,
        )
    }

    /// Removes a value. `mask`: attributes of its object that are noted with the removal.
    pub(super) fn remove_hidden(
        &self,
        tx: &Tx,
        (znode, space): (&Znode, &Arc<Znode>),
        name: &[u8],
        mask: &mut u64,
    ) -> Result<()> {
        let Some((object, _)) = self.find(space, name)? else {
            return Ok(());
        };
        let file = self.znode(object)?;
        let now = self.now();
        match space.entries()?.remove(tx, name) {
            Err(error) if error.is(Errno::NOENT) => return Ok(()),
            other => other?,
        }
        self.change_dir(tx, space, -1, 0, now)?;
        let mut notes = Vec::new();
        if znode.read().attrs.links != 0 {
            notes = self.to_be_noted(znode, std::mem::take(mask));
            notes.push(Body::Remove {
                dir: space.object().0,
                name,
            });
        }
        self.drop_link(tx, file, now, &notes)
    }

    /// Objects in the attribute space of an object: the directory and its files.
    pub(crate) fn attribute_objects(&self, znode: &Znode) -> Result<Vec<Arc<Znode>>> {
        let Some(space) = self.attribute_space(znode)? else {
            return Ok(Vec::new());
        };
        let mut objects = Vec::new();
        space.entries()?.list(0, &mut |_, value, _| {
            objects.push(dirent::object(value));
            true
        })?;
        let mut all = vec![space];
        for object in objects {
            all.push(self.znode(object)?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::Backing;
    use crate::file_system::tests::pool::TestFs;
    use crate::format_new::FormatOptions;
    use crate::xattr::XattrMode;

    const SHORT: &[u8] = b"user.x";
    /// A name too long for a micro ZAP, so it takes the regular path.
    const LONG: &[u8] = b"user.a-name-of-more-than-forty-nine-bytes-which-is-a-lot";

    fn file(t: &TestFs, name: &[u8]) -> Arc<Znode> {
        let top = t.fs.root().expect("root");
        t.fs.create(&Credentials::root(), &top, name, 0o640)
            .expect("made")
    }

    fn set(t: &TestFs, znode: &Arc<Znode>, name: &[u8], len: usize) {
        let value = vec![9; len];
        t.fs.set_xattr(&Credentials::root(), znode, name, &value, XattrMode::Any)
            .expect("set");
    }

    fn get(t: &TestFs, znode: &Arc<Znode>, name: &[u8]) -> usize {
        let got = t.fs.get_xattr(&Credentials::root(), znode, name);
        got.expect("there").len()
    }

    fn sync(t: &TestFs) {
        t.backing
            .wait_synced(t.backing.open_txg())
            .expect("written");
    }

    /// The properties of a hidden object, without times and numbers.
    fn facts(znode: &Znode) -> (Attributes, u32, u64, u8) {
        let none = Timestamp::default();
        let attributes = Attributes {
            parent: 0,
            generation: 0,
            atime: none,
            mtime: none,
            ctime: none,
            crtime: none,
            ..znode.attributes()
        };
        let dnode = znode.dnode();
        (
            attributes,
            dnode.block_size(),
            dnode.max_block(),
            dnode.bonus_type(),
        )
    }

    #[test]
    fn the_first_value_is_stored_as_any_other() {
        for len in [60_000, 65_536] {
            let t = TestFs::new();
            let (a, b) = (file(&t, b"a"), file(&t, b"b"));
            set(&t, &a, SHORT, len);
            set(&t, &b, LONG, len);
            for again in [false, true] {
                for (znode, name) in [(&a, SHORT), (&b, LONG)] {
                    assert_eq!(get(&t, znode, name), len, "synced: {again}");
                }
                let [of_a, of_b] = [&a, &b].map(|z| t.fs.attribute_objects(z).expect("read"));
                assert_eq!((of_a.len(), of_b.len()), (2, 2));
                assert_eq!(facts(&of_a[0]).0, facts(&of_b[0]).0, "the directory");
                assert_eq!(facts(&of_a[1]), facts(&of_b[1]), "the value's file");
                for (objects, of) in [(&of_a, &a), (&of_b, &b)] {
                    assert_eq!(objects[0].attributes().parent, of.object().0);
                    assert_eq!(objects[1].attributes().parent, objects[0].object().0);
                }
                sync(&t);
            }
            set(&t, &a, b"user.y", len);
            set(&t, &a, SHORT, 5);
            assert_eq!((get(&t, &a, b"user.y"), get(&t, &a, SHORT)), (len, 5));
            let objects = t.fs.attribute_objects(&a).expect("read");
            assert_eq!(objects.len(), 2, "the short one is with the object now");
        }
    }

    #[test]
    fn an_empty_value_has_a_file_too_where_all_have() {
        let t = TestFs::new();
        let a = file(&t, b"a");
        let tx = t.fs.begin(1 << 20).expect("begun");
        let value: &[u8] = &[];
        let made = t.fs.make_space_with(&tx, &a, SHORT, value);
        let made = made.expect("made").expect("simple");
        t.fs.status_and_space(&tx, &a, t.fs.now(), None, Some(made.space()))
            .expect("stored");
        drop((tx, made));
        for _ in 0..2 {
            assert_eq!(get(&t, &a, SHORT), 0);
            sync(&t);
        }
    }

    #[test]
    fn what_was_made_is_unmade_without_a_trace() {
        let t = TestFs::new();
        let a = file(&t, b"a");
        sync(&t);
        let last = || {
            let mut at = ObjectId(0);
            while let Some(next) = t.fs.objset.next_object(at).expect("read") {
                at = next;
            }
            at
        };
        let before = last();
        let tx = t.fs.begin(1 << 20).expect("begun");
        let bytes = [1; 60_000];
        let made = t.fs.make_space_with(&tx, &a, SHORT, &bytes);
        let made = made.expect("made").expect("simple");
        assert!(last() > before);
        t.fs.unmake(&tx, &made).expect("freed");
        drop((tx, made));
        assert_eq!(last(), before);
        sync(&t);
        assert_eq!(last(), before);
        let no = t.fs.get_xattr(&Credentials::root(), &a, SHORT);
        assert!(no.is_err_and(|e| e.is(Errno::NODATA)));
    }

    /// In a normalising file system the hidden directories normalise names, too.
    #[test]
    fn a_normalising_data_set_finds_what_is_set() {
        let t = TestFs::with(&FormatOptions {
            normalization: 0x50,
            ..FormatOptions::default()
        });
        let a = file(&t, b"a");
        set(&t, &a, SHORT, 60_000);
        let space = t.fs.attribute_space(&a).expect("read").expect("there");
        let mut header = [0; 24];
        let dnode = space.dnode();
        dnode
            .read_slices(0, 24, &mut |part| part.copy_to(&mut header))
            .expect("read");
        assert_eq!(header[16..], t.fs.normflags.to_le_bytes());
        for _ in 0..2 {
            assert_eq!(get(&t, &a, SHORT), 60_000);
            sync(&t);
        }
    }

    #[test]
    fn an_object_with_a_directory_keeps_it() {
        let t = TestFs::new();
        let a = file(&t, b"a");
        set(&t, &a, LONG, 60_000);
        let tx = t.fs.begin(1 << 20).expect("begun");
        let value: &[u8] = b"v";
        let made = t.fs.make_space_with(&tx, &a, SHORT, value);
        assert!(made.expect("no error").is_none());
    }
}

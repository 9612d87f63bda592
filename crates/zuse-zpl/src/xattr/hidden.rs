//! Extended attributes as files of a hidden directory, one per object that has any.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result, Timestamp};
use zuse_dmu::sa::Attr;
use zuse_dmu::{SharedSlice, Tx};

use super::{VALUE_MAX, Value};
use crate::attributes::{Attributes, XATTR_UNREAD, field};
use crate::create::NewObject;
use crate::credentials::Credentials;
use crate::file_system::FileSystem;
use crate::znode::Znode;
use crate::{dirent, flags, mode};

impl FileSystem {
    /// The number of the extended attribute directory of an object, 0 without one. The spill block is looked into when this is
    /// asked for the first time.
    pub(crate) fn attribute_space_of(&self, znode: &Znode) -> Result<u64> {
        let known = znode.read().attrs.xattr;
        if known != XATTR_UNREAD {
            return Ok(known);
        }
        let view = self.store.table().view(znode.dnode())?;
        let found = view.u64(Attr::Xattr)?.unwrap_or(0);
        let mut state = znode.write();
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

    /// What `f` makes of the bytes of a value.
    pub(super) fn with_content<T>(&self, file: &Znode, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let size = file.size();
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

    pub(super) fn put_hidden(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        name: &[u8],
        value: Value<'_>,
    ) -> Result<()> {
        let owner = znode.attributes();
        let who = Credentials {
            uid: owner.uid as u32,
            gid: owner.gid as u32,
            ..Credentials::default()
        };
        let now = self.now();
        let space = match self.attribute_space(znode)? {
            Some(space) => space,
            None => {
                let parent = Attributes {
                    flags: flags::XATTR,
                    ..Attributes::default()
                };
                let new = NewObject::default();
                let (dnode, attrs) = self.make_object(
                    tx,
                    &parent,
                    znode.object(),
                    &who,
                    mode::DIRECTORY | 0o1777,
                    &new,
                    now,
                )?;
                let space = self.cache.insert(dnode, attrs, false)?;
                let mut state = znode.write();
                state.attrs.xattr = space.object().0;
                self.store
                    .store(tx, znode.dnode(), &state.attrs, field::XATTR)?;
                space
            }
        };
        match self.find(&space, name)? {
            Some((object, _)) => {
                let file = self.znode(object)?;
                file.dnode().free_range(tx, 0, u64::MAX)?;
                self.fill_hidden(tx, &file, value, now)
            }
            None => {
                let parent = space.attributes();
                let new = NewObject::default();
                let mode = mode::REGULAR | 0o644;
                let (dnode, attrs) =
                    self.make_object(tx, &parent, space.object(), &who, mode, &new, now)?;
                let entry = dirent::pack(dnode.object(), mode, self.version);
                space.entries()?.add_u64(tx, name, entry)?;
                self.change_dir(tx, &space, 1, 0, now)?;
                let file = self.cache.insert(dnode, attrs, false)?;
                self.fill_hidden(tx, &file, value, now)
            }
        }
    }

    /// Puts a value into the file of an attribute, which is empty: one block, as large as the value if the record size
    /// lets it be.
    fn fill_hidden(&self, tx: &Tx, file: &Znode, value: Value<'_>, now: Timestamp) -> Result<()> {
        let dnode = file.dnode();
        let len = value.len();
        let wanted = len.next_multiple_of(512).max(512) as u32;
        if dnode.max_block() == 0 && dnode.block_size() < wanted {
            dnode.set_block_size(tx, wanted)?;
        }
        let size = dnode.block_size() as usize;
        if len > 0 && len <= size && dnode.max_block() == 0 {
            dnode.write_value(tx, value.into_block(size))?;
        } else if len > 0 {
            dnode.write_at(tx, 0, &value)?;
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

    pub(super) fn remove_hidden(&self, tx: &Tx, space: &Arc<Znode>, name: &[u8]) -> Result<()> {
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
        self.drop_link(tx, file, now)
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

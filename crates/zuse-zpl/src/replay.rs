//! Replay: applying records of the intent log to a file system.
//!
//! A record is an operation that has succeeded before. So permissions are not checked again,
//! nothing is inherited or chosen, and quotas do not apply. Objects get exactly the numbers in the
//! records. Times that are in no record are those of the replay.
//!
//! Each record that changes names is one transaction; the others may be applied twice.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, Error, ObjectId, Result, Timestamp};
use zuse_dmu::Tx;
use zuse_format::zil::{Body, Create, LoggedAcl, Record, SetAttr as Logged, XattrFlags};
use zuse_format::{BlockPointer, BpKind};

use crate::attributes::{Attributes, field};
use crate::create::{LoggedObject, NewObject};
use crate::credentials::Credentials;
use crate::file::{SIZE_MAX, WriteOptions};
use crate::file_system::{FileSystem, refuse};
use crate::log::{LOGGED_FLAGS, LOGGED_PROJECT};
use crate::rename::RenameFlags;
use crate::setattr::{SetAttr, TimeSet};
use crate::znode::Znode;
use crate::{dirent, estimate, flags, mode, name};

/// Largest hole that a record writes as zeros.
const HOLE_MAX: u64 = 16 << 20;

/// Where blocks of a record go.
#[derive(Clone, Copy)]
struct CloneRange {
    offset: u64,
    /// Minimum size of the file.
    end: u64,
    block_size: u64,
}

impl FileSystem {
    /// Applies a record. `in_memory`: the file system's pool is open for reading, and its changes
    /// are never written.
    ///
    /// # Errors
    /// `Corrupt` if the record is impossible for this file system; or a block cannot be read.
    pub fn replay(&self, record: &Record<'_>, in_memory: bool) -> Result<()> {
        self.replaying.store(true, Relaxed);
        let done = self.apply(&record.body, in_memory);
        self.replaying.store(false, Relaxed);
        match (done, record.body.out_of_order_object()) {
            // It may come after the record that removed its object.
            (Err(e), Some(object)) if e.is(Errno::NOENT) && self.is_gone(object) => Ok(()),
            (other, _) => other,
        }
    }

    fn is_gone(&self, object: u64) -> bool {
        matches!(self.objset.dnode(ObjectId(object)), Err(e) if e.is(Errno::NOENT))
    }

    fn apply(&self, body: &Body<'_>, in_memory: bool) -> Result<()> {
        let who = Credentials::root();
        let znode = |object: u64| self.znode(ObjectId(object));
        match body {
            Body::Create(new) => self.remake(new, in_memory),
            Body::MakeXattrDir(new) => self.remake_attribute_space(new, in_memory),
            Body::Remove { dir, name } => self.unlink(&who, &znode(*dir)?, name),
            Body::RemoveDir { dir, name } => self.rmdir(&who, &znode(*dir)?, name),
            Body::Link { dir, object, name } => {
                self.link(&who, &znode(*object)?, &znode(*dir)?, name)
            }
            Body::Rename {
                from_dir,
                to_dir,
                from,
                to,
                exchange,
                whiteout,
            } => {
                let hole = whiteout.as_ref().map(|w| logged(w, in_memory));
                let (from_dir, to_dir) = (znode(*from_dir)?, znode(*to_dir)?);
                self.rename_again((&from_dir, from), (&to_dir, to), *exchange, hole)
            }
            Body::Write {
                object,
                offset,
                length,
                data: Some(data),
                ..
            } => {
                let end = offset.saturating_add(*length);
                self.rewrite(&znode(*object)?, *offset, data, end)
            }
            Body::Write {
                object,
                offset,
                length,
                data: None,
                block,
            } => self.rewrite_block(&znode(*object)?, *offset, *length, block),
            Body::Extend { object, size } => self.extend(&znode(*object)?, *size),
            Body::Truncate {
                object,
                offset,
                length,
            } => self.retruncate(&znode(*object)?, *offset, *length),
            Body::SetAttr(set) => self.reset_attributes(&znode(set.object)?, set),
            Body::Acl { object, acl } => self.reset_acl(&znode(*object)?, acl),
            Body::SetXattr {
                object,
                name,
                value,
            } => self.reset_xattr(&znode(*object)?, name, *value),
            Body::Clone {
                object,
                offset,
                length,
                block_size,
                blocks,
            } => {
                let range = CloneRange {
                    offset: *offset,
                    end: offset.saturating_add(*length),
                    block_size: *block_size,
                };
                self.rewrite_clones(&znode(*object)?, range, blocks, in_memory)
            }
        }
    }

    /// Extends a file to the size in a record, if it is shorter.
    fn extend(&self, znode: &Arc<Znode>, size: u64) -> Result<()> {
        if size > znode.size() {
            self.resize(znode, size, false)?;
        }
        Ok(())
    }

    fn reset_acl(&self, znode: &Arc<Znode>, acl: &LoggedAcl<'_>) -> Result<()> {
        let tx = self.begin_freeing(estimate::ATTRIBUTES + estimate::CREATE)?;
        self.restore_acl(&tx, znode, acl, false)
    }

    fn rename_again(
        &self,
        (from_dir, from): (&Arc<Znode>, &[u8]),
        (to_dir, to): (&Arc<Znode>, &[u8]),
        exchange: bool,
        hole: Option<LoggedObject>,
    ) -> Result<()> {
        let how = RenameFlags {
            exchange,
            whiteout: hole.is_some(),
            ..RenameFlags::default()
        };
        self.rename_leaving(&Credentials::root(), from_dir, from, to_dir, to, how, hole)
    }

    /// Makes an object with a name again.
    fn remake(&self, new: &Create<'_>, in_memory: bool) -> Result<()> {
        let mode = self.mode_of(new)?;
        let dir = self.znode(ObjectId(new.dir))?;
        let entries = dir.entries()?;
        let hidden = dir.attributes().flags & flags::XATTR != 0;
        // Names of hidden files are those of attributes, which may contain a slash.
        if !hidden {
            name::check(new.name)?;
        }
        if new.name.is_empty() || new.name.len() > name::LONG_NAME_MAX {
            return Err(Error::corrupt(self.place(), "a name in the intent log"));
        }
        let names = dir.names.lock();
        self.check_alive(&dir)?;
        if self.find(&dir, new.name)?.is_some() {
            return refuse(Errno::EXIST, "the name");
        }
        let object = NewObject {
            mode,
            rdev: if mode::is_device(mode) { new.rdev } else { 0 },
            target: (mode & mode::TYPE == mode::SYMLINK).then_some(new.target),
            logged: Some(logged(new, in_memory)),
        };
        // The operation had its space before the crash: a full dataset must not refuse it now.
        let tx = self.begin_freeing(estimate::CREATE)?;
        let who = Credentials::root();
        let parent = dir.attributes();
        let (dnode, attrs) =
            self.make_object(&tx, &parent, dir.object(), &who, mode, &object, new.time)?;
        let value = dirent::pack(dnode.object(), attrs.mode, self.version);
        if let Err(error) = entries.add_u64(&tx, new.name, value) {
            // In the same transaction: no txg has an object without a name.
            self.objset.free(&tx, dnode.object())?;
            return Err(error);
        }
        let znode = self.cache.insert(dnode, attrs, false)?;
        self.change_dir(&tx, &dir, 1, i64::from(attrs.is_dir()), self.now())?;
        if new.name.len() > name::NAME_MAX {
            self.backing.note_longname(&tx);
        }
        // In the same transaction: the header counts the record as applied as soon as its name
        // exists.
        if let Some(acl) = &new.acl {
            self.restore_acl(&tx, &znode, acl, true)?;
        }
        if let Some(set) = &new.flags {
            self.put_flags(&tx, &znode, set)?;
        }
        drop((tx, names));
        Ok(())
    }

    fn mode_of(&self, new: &Create<'_>) -> Result<u32> {
        u32::try_from(new.mode)
            .ok()
            .filter(|m| {
                mode::is_valid(*m) && (m & mode::TYPE != mode::SYMLINK || !new.target.is_empty())
            })
            .ok_or_else(|| {
                Error::corrupt(
                    self.place(),
                    format!("an object of mode {:o} in the intent log", new.mode),
                )
            })
    }

    /// Makes the attribute directory of an object again.
    fn remake_attribute_space(&self, new: &Create<'_>, in_memory: bool) -> Result<()> {
        let owner = self.znode(ObjectId(new.dir))?;
        let mode = self.mode_of(new)?;
        if mode & mode::TYPE != mode::DIRECTORY || self.attribute_space_of(&owner)? != 0 {
            return refuse(Errno::EXIST, "the attribute directory");
        }
        let parent = Attributes {
            flags: flags::XATTR,
            ..Attributes::default()
        };
        let object = NewObject {
            mode,
            logged: Some(logged(new, in_memory)),
            ..NewObject::default()
        };
        let tx = self.begin_freeing(estimate::CREATE)?;
        let who = Credentials::root();
        let (dnode, attrs) =
            self.make_object(&tx, &parent, owner.object(), &who, mode, &object, new.time)?;
        let space = self.cache.insert(dnode, attrs, false)?;
        let mut state = owner.write();
        state.attrs.xattr = space.object().0;
        self.store
            .store(&tx, owner.dnode(), &state.attrs, field::XATTR)
    }

    /// Writes bytes; the size becomes at least `end`, however far the bytes reach.
    fn rewrite(&self, znode: &Arc<Znode>, offset: u64, data: &[u8], end: u64) -> Result<()> {
        let fits = offset.checked_add(data.len() as u64);
        if !znode.is_file() || fits.is_none_or(|e| e > SIZE_MAX) || end > SIZE_MAX {
            return Err(Error::corrupt(
                znode.dnode().place(),
                "a write of the intent log does not fit the object",
            ));
        }
        if data.is_empty() {
            return Ok(());
        }
        let dnode = znode.dnode();
        let _range = znode.content.write(0, u64::MAX);
        let size = znode.size();
        let last = offset + data.len() as u64;
        let block = self.grown_block(znode, last);
        let first = if block == dnode.block_size() {
            offset / u64::from(block.max(1))
        } else {
            0
        };
        for blkid in [first, (last - 1) / u64::from(block.max(1))] {
            // Read before the transaction, which must not wait for a disk.
            if size > 0 {
                dnode.with_block(blkid, |_| ())?;
            }
        }
        let len = data.len() as u64;
        let tx = self.begin_freeing(estimate::write(offset, len, u64::from(block), false))?;
        if block != dnode.block_size() {
            dnode.set_block_size(&tx, block)?;
        }
        dnode.write_at(&tx, offset, data)?;
        self.content_changed(&tx, znode, size.max(end), WriteOptions::default())?;
        Ok(())
    }

    /// Writes the whole block that a record points to, because later records may only extend the
    /// size.
    fn rewrite_block(
        &self,
        znode: &Arc<Znode>,
        offset: u64,
        length: u64,
        bp: &BlockPointer,
    ) -> Result<()> {
        let size = bp.lsize().max(1);
        let end = offset.saturating_add(length);
        // A record shorter than its block stands for the whole block (05-zil §8.7).
        let start = if length < size {
            offset / size * size
        } else {
            offset
        };
        // A block of zeros is logged as a hole that has its size (05-zil §8.7).
        if bp.kind() == BpKind::Hole {
            return self.rewrite_hole(znode, start, size.max(length), end);
        }
        let place = format!("{}, a block of the intent log", znode.dnode().place());
        let key = self.objset.key().map(AsRef::as_ref);
        let block = self.objset.io().read_keyed(bp, key, &place)?;
        self.rewrite(znode, start, block.bytes(), end)
    }

    fn rewrite_hole(&self, znode: &Arc<Znode>, start: u64, zeros: u64, end: u64) -> Result<()> {
        if zeros > HOLE_MAX {
            return Err(Error::corrupt(
                znode.dnode().place(),
                format!("a hole of {zeros} bytes in the intent log"),
            ));
        }
        self.rewrite(znode, start, &vec![0; zeros as usize], end)
    }

    /// Clones the blocks of a record again. In memory, where nothing is written, their bytes are
    /// copied.
    fn rewrite_clones(
        &self,
        znode: &Arc<Znode>,
        range: CloneRange,
        blocks: &[BlockPointer],
        in_memory: bool,
    ) -> Result<()> {
        let dnode = znode.dnode();
        let bad = |what: &str| Err(Error::corrupt(dnode.place(), what));
        let size = range.block_size;
        if size == 0
            || !znode.is_file()
            || !range.offset.is_multiple_of(size)
            || range.end > SIZE_MAX
            || (blocks.iter()).any(|bp| bp.kind() != BpKind::Hole && bp.lsize() != size)
        {
            return bad("cloned blocks of the intent log do not fit each other");
        }
        let mut at = range.offset;
        for bp in blocks {
            let len = size.min(range.end.saturating_sub(at));
            let fits =
                u64::from(dnode.block_size()) == size || self.take_block_size(znode, size)?;
            let here = bp.kind() == BpKind::Normal && fits && !in_memory;
            if bp.kind() == BpKind::Hole {
                // The record need not have a size.
                self.rewrite_hole(znode, at, size, at.saturating_add(len))?;
            } else if !here {
                self.rewrite_block(znode, at, len, bp)?;
            } else {
                let _range = znode.content.write(0, u64::MAX);
                let tx = self.begin_freeing(estimate::write(at, size, size, false))?;
                let reference = self.objset.io().refer(tx.txg(), bp)?;
                dnode.write_clone(&tx, at / size, reference)?;
                let end = znode.size().max(at.saturating_add(len));
                self.content_changed(&tx, znode, end, WriteOptions::default())?;
            }
            at = at.saturating_add(size);
        }
        Ok(())
    }

    /// Sets the block size of a file to that of a record, if it has at most one block. Returns
    /// whether it has that size now.
    fn take_block_size(&self, znode: &Arc<Znode>, size: u64) -> Result<bool> {
        let dnode = znode.dnode();
        let Ok(wanted) = u32::try_from(size) else {
            return Ok(false);
        };
        if dnode.max_block() > 0 || wanted < dnode.block_size() {
            return Ok(false);
        }
        let _range = znode.content.write(0, u64::MAX);
        if znode.size() > 0 {
            dnode.with_block(0, |_| ())?;
        }
        let tx = self.begin_freeing(estimate::write(0, size, size, false))?;
        dnode.set_block_size(&tx, wanted)?;
        Ok(true)
    }

    fn retruncate(&self, znode: &Arc<Znode>, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length);
        if !znode.is_file() || end > SIZE_MAX {
            return Err(Error::corrupt(
                znode.dnode().place(),
                "a truncation of the intent log does not fit the object",
            ));
        }
        let size = znode.size();
        // The three cases of the chapter (05-zil §8.7).
        if offset > size {
            self.resize(znode, end, false)
        } else if length == 0 {
            if offset == size {
                return Ok(());
            }
            self.resize(znode, offset, false)
        } else {
            // PUNCH_HOLE | KEEP_SIZE
            self.fallocate(znode, 3, offset, length)?;
            if end > znode.size() {
                self.resize(znode, end, false)?;
            }
            Ok(())
        }
    }

    fn reset_attributes(&self, znode: &Arc<Znode>, set: &Logged) -> Result<()> {
        // Flags that allow changes are set first, and flags that forbid them last.
        let frozen = flags::IMMUTABLE | flags::APPENDONLY;
        if let Some(given) = &set.flags
            && znode.attributes().flags & frozen != 0
        {
            self.reset_flags(znode, given)?;
        }
        let given = |bit: u64| set.mask & bit != 0;
        let time = |bit: u64, t: Timestamp| given(bit).then_some(TimeSet::At(t));
        let id = |bit: u64, id: u64| -> Result<Option<u32>> {
            if !given(bit) {
                return Ok(None);
            }
            u32::try_from(id).map(Some).map_err(|_| {
                Error::unsupported(self.place(), "owners of another domain in the intent log")
            })
        };
        let change = SetAttr {
            mode: given(Logged::MODE).then_some((set.mode & 0o7777) as u32),
            uid: id(Logged::UID, set.uid)?,
            gid: id(Logged::GID, set.gid)?,
            atime: time(Logged::ATIME, set.atime),
            mtime: time(Logged::MTIME, set.mtime),
            ..SetAttr::default()
        };
        if given(Logged::SIZE) {
            if !znode.is_file() {
                return Err(Error::corrupt(
                    znode.dnode().place(),
                    "the intent log sets the size of something that is no file",
                ));
            }
            // Before the times: a resize sets them to now, and the record has the right ones.
            self.resize(znode, set.size, false)?;
        }
        // Changes of its ACL have their own records.
        let put = |set: &SetAttr| self.set_rest(&Credentials::root(), znode, set, false);
        if change != SetAttr::default() {
            put(&change)?;
        }
        // Set-id bits that were cleared with the owner are in the record's mode.
        if let (Some(bits), true) = (change.mode, change.uid.is_some() || change.gid.is_some()) {
            let mode = SetAttr {
                mode: Some(bits),
                ..SetAttr::default()
            };
            put(&mode)?;
        }
        match &set.flags {
            Some(given) => self.reset_flags(znode, given),
            None => Ok(()),
        }
    }

    fn reset_flags(&self, znode: &Arc<Znode>, set: &XattrFlags) -> Result<()> {
        // The hidden files have the project of their object, and no records of their own for it.
        let hidden = if set.asked & LOGGED_PROJECT != 0 {
            self.attribute_objects(znode)?
        } else {
            Vec::new()
        };
        let tx = self.begin_freeing(estimate::ATTRIBUTES * (1 + hidden.len() as u64))?;
        let project = XattrFlags {
            asked: LOGGED_PROJECT,
            ..*set
        };
        for object in &hidden {
            self.put_flags(&tx, object, &project)?;
        }
        self.put_flags(&tx, znode, set)
    }

    fn put_flags(&self, tx: &Tx, znode: &Arc<Znode>, set: &XattrFlags) -> Result<()> {
        let now = self.now();
        let mut state = znode.write();
        let a = &mut state.attrs;
        for (bit, flag) in LOGGED_FLAGS {
            if set.asked & bit != 0 {
                a.flags &= !flag;
                if set.values & u64::from(bit) != 0 {
                    a.flags |= flag;
                }
            }
        }
        let mut fields = field::FLAGS | field::CTIME;
        if set.asked & LOGGED_PROJECT != 0 && self.has_projects() {
            a.projid = set.projid & u64::from(u32::MAX);
            a.flags |= flags::PROJID;
            fields |= field::PROJID;
        }
        a.ctime = now;
        self.store.store(tx, znode.dnode(), &state.attrs, fields)
    }

    fn reset_xattr(&self, znode: &Arc<Znode>, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let _xattrs = znode.xattrs.write();
        let tx = self.begin_freeing(estimate::ATTRIBUTES + estimate::CREATE)?;
        // Hidden files have their own log records, in their own order.
        if self.put_listed(&tx, znode, name, value)? {
            return Ok(());
        }
        match value {
            Some(value) => self.put_xattr(&tx, znode, name, value, 0),
            None => self.drop_xattr(&tx, znode, name, 0),
        }
    }
}

fn logged(new: &Create<'_>, in_memory: bool) -> LoggedObject {
    LoggedObject {
        object: ObjectId(new.object),
        slots: new.slots,
        generation: new.generation,
        time: new.time,
        uid: new.uid,
        gid: new.gid,
        in_memory,
    }
}

//! Records for the intent log, one for each operation.
//!
//! Each operation notes its record within the transaction of its change. It holds the lock that
//! orders it: for names the directory's, for data the file's range. So the order of the records is
//! one in which the operations could have happened.
//!
//! | what | order |
//! |---|---|
//! | names; flags and project ids, which forbid changes of names | [`Order::Names`] |
//! | hidden files of extended attributes: durable with the next commit | [`Order::Names`] |
//! | data, size, mode, owner, times, attributes in the object's own list | [`Order::Object`] |
//!
//! Not noted: unlinked objects, and their hidden files. If such an object gets a name, its earlier
//! changes cannot be logged any more. So the next commit waits for its txg
//! ([`IntentLog::unlogged`]).
//!
//! No operation may wait here: a record is pushed under a short lock.

use std::ops::Range;
use std::sync::Arc;

use zuse_base::{Errno, ObjectId, Result};
use zuse_dmu::{Dnode, Intent, IntentData, IntentLog, Order, SyncMode, Tx, WriteState};
use zuse_format::BlockPointer;
use zuse_format::zil::{Body, Create, SetAttr as Logged, XattrFlags};

use crate::attributes::Attributes;
use crate::file_system::FileSystem;
use crate::flags;
use crate::xattr::VALUE_MAX;
use crate::znode::Znode;

/// Longest attribute value in a record of the log: replay refuses longer ones.
const SA_VALUE_MAX: usize = 32_768;

/// Optional attributes: bit in the log, flag of the object.
pub(crate) const LOGGED_FLAGS: [(u32, u64); 9] = [
    (0x2, flags::ARCHIVE),
    (0x8, flags::READONLY),
    (0x20, flags::NOUNLINK),
    (0x40, flags::IMMUTABLE),
    (0x80, flags::APPENDONLY),
    (0x100, flags::NODUMP),
    (0x800, flags::AV_MODIFIED),
    (0x1_0000, flags::SPARSE),
    (0x2_0000, flags::PROJINHERIT),
];
/// A project id is among the optional attributes.
pub(crate) const LOGGED_PROJECT: u32 = 0x4_0000;

impl FileSystem {
    /// From now on operations leave records in this log. The caller has replayed its old content.
    pub fn use_log(&self, log: Arc<dyn IntentLog>) {
        let _ = self.log.set(log);
    }

    /// The log, where operations are to leave records.
    pub(crate) fn log(&self) -> Option<&dyn IntentLog> {
        let log = self.log.get()?;
        log.is_on().then_some(log.as_ref())
    }

    fn note(&self, tx: &Tx, order: Order, body: &Body<'_>) {
        if let Some(log) = self.log() {
            let record = body.to_bytes();
            log.add(
                tx,
                Intent {
                    order,
                    record,
                    write: None,
                },
            );
        }
    }

    /// Notes the changed name of a hidden file and its new value, as one operation. Otherwise a
    /// power cut could leave neither the old value nor the new one.
    pub(crate) fn note_hidden(&self, tx: &Tx, before: &[Body<'_>], file: &Dnode, value: &[u8]) {
        let Some(log) = self.log() else { return };
        let mut intents: Vec<Intent> = before.iter().map(of_name).collect();
        // It does not fit one record: a commit has to wait for the txg.
        if value.len() > VALUE_MAX {
            log.unlogged(tx);
            return;
        }
        if !value.is_empty() {
            let state = WriteState::Copied;
            intents.push(write_of(file, 0, value, (Order::Names, state)));
        }
        log.add_together(tx, intents);
    }

    /// Notes a change of names.
    pub(crate) fn note_name(&self, tx: &Tx, body: &Body<'_>) {
        self.note(tx, Order::Names, body);
    }

    /// Notes the records of one change of names.
    pub(crate) fn note_names(&self, tx: &Tx, bodies: &[Body<'_>]) {
        match (bodies, self.log()) {
            ([], _) | (_, None) => {}
            ([body], _) => self.note_name(tx, body),
            (_, Some(log)) => log.add_together(tx, bodies.iter().map(of_name).collect()),
        }
    }

    /// Notes a change of an object that has this many names.
    pub(crate) fn note_object(&self, tx: &Tx, object: ObjectId, links: u64, body: &Body<'_>) {
        // The unlinked set is emptied before the replay: a record would not find its object.
        if links != 0 {
            self.note(tx, Order::Object(object), body);
        }
    }

    /// Notes a change that later changes of names depend on, after all earlier records of the
    /// object.
    pub(crate) fn note_in_order(&self, tx: &Tx, object: ObjectId, links: u64, body: &Body<'_>) {
        if let Some(log) = self.log().filter(|_| links != 0) {
            log.before_rename(object);
            self.note(tx, Order::Names, body);
        }
    }

    /// Notes that an object was created with a name. The same operation includes two things
    /// inherited from the directory. One is the project, because at replay the directory may have
    /// another one. The other is the ACLs in its own list, without which more access might be
    /// allowed.
    pub(crate) fn note_created(
        &self,
        tx: &Tx,
        (dnode, a): (&Dnode, &Attributes),
        [name, target]: [&[u8]; 2],
        acls: &[(&[u8], &[u8])],
    ) {
        let Some(log) = self.log() else { return };
        let object = dnode.object();
        let fit = |(_, value): &(&[u8], &[u8])| fits_record(value);
        let told = acls.iter().all(fit) && log.takes_sa_xattrs();
        if !(acls.is_empty() || told) {
            log.unlogged(tx);
            return;
        }
        let mut bodies = vec![Body::Create(created(dnode, a, name, target))];
        if a.flags & flags::PROJINHERIT != 0 || a.projid != 0 {
            bodies.push(given_flags(object, a, flags::PROJINHERIT, true));
        }
        bodies.extend(acls.iter().map(|(name, value)| Body::SetXattr {
            object: object.0,
            name,
            value: Some(value),
        }));
        log.add_together(tx, bodies.iter().map(of_name).collect());
    }

    /// Notes bytes that were written to a file.
    pub(crate) fn note_write(
        &self,
        tx: &Tx,
        file: &Dnode,
        offset: u64,
        data: &[u8],
        commit_follows: bool,
    ) {
        let Some(log) = self.log() else { return };
        if !data.is_empty() {
            let length = data.len() as u64;
            let state = log.write_state(length, file.block_size(), commit_follows);
            let how = (Order::Object(file.object()), state);
            log.add(tx, write_of(file, offset, data, how));
        }
    }

    /// Notes that a range of an object with so many names is a clone of these blocks.
    pub(crate) fn note_clone(
        &self,
        tx: &Tx,
        (object, links): (ObjectId, u64),
        range: Range<u64>,
        block_size: u64,
        blocks: Vec<BlockPointer>,
    ) {
        let body = Body::Clone {
            object: object.0,
            offset: range.start,
            length: range.end - range.start,
            block_size,
            blocks,
        };
        self.note_object(tx, object, links, &body);
    }

    /// Notes those attributes of an object that are in a mask of [`Logged`]; its state is locked.
    pub(crate) fn note_attributes(&self, tx: &Tx, object: ObjectId, a: &Attributes, mask: u64) {
        if mask != 0 {
            self.note_object(tx, object, a.links, &as_they_are(object, a, mask));
        }
    }

    /// Notes the size of a file.
    pub(crate) fn note_size(&self, tx: &Tx, znode: &Znode) {
        let a = znode.attributes();
        let set = Logged {
            object: znode.object().0,
            mask: Logged::SIZE | Logged::MTIME,
            size: a.size,
            mtime: a.mtime,
            ..Logged::default()
        };
        self.note_object(tx, znode.object(), a.links, &Body::SetAttr(set));
    }

    /// Notes the flags in `which`, and the project id if `project`.
    pub(crate) fn note_flags(
        &self,
        tx: &Tx,
        object: ObjectId,
        a: &Attributes,
        which: u64,
        project: bool,
    ) {
        let body = given_flags(object, a, which, project);
        self.note_in_order(tx, object, a.links, &body);
    }

    /// Notes that an extended attribute of an object's own list was set or, where `value` is
    /// `None`, removed. `mask` has other attributes that the operation set: a mode and the matching
    /// ACL are in one block.
    pub(crate) fn note_xattr(
        &self,
        tx: &Tx,
        znode: &Znode,
        name: &[u8],
        value: Option<&[u8]>,
        mask: u64,
    ) {
        let Some(log) = self.log() else { return };
        // Held until it is noted: attributes are noted in the order in which they are set.
        let state = znode.read();
        let links = state.attrs.links;
        let fits = value.is_none_or(fits_record);
        if links != 0 && !(fits && log.takes_sa_xattrs()) {
            log.unlogged(tx);
            return;
        }
        let object = znode.object();
        let body = Body::SetXattr {
            object: object.0,
            name,
            value,
        };
        if mask == 0 || links == 0 {
            return self.note_object(tx, object, links, &body);
        }
        let both = [as_they_are(object, &state.attrs, mask), body];
        let of_object = |body: &Body<'_>| Intent {
            order: Order::Object(object),
            ..of_name(body)
        };
        log.add_together(tx, both.iter().map(of_object).collect());
    }

    /// Makes the changes of an object durable, if the `sync` property asks for that. Called by
    /// operations at their end, without any lock.
    pub(crate) fn sync_if_always(&self, object: ObjectId) -> Result<()> {
        match self.log.get() {
            Some(log) if self.is_sync_always() => log.commit(Some(object)),
            _ => Ok(()),
        }
    }

    /// Whether each change is made durable at once.
    pub fn is_sync_always(&self) -> bool {
        self.objset.settings().sync == SyncMode::Always
    }

    /// Makes all changes of an object durable, and all changes of names.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn fsync(&self, znode: &Znode) -> Result<()> {
        if let Some(log) = self.log() {
            return log.commit(Some(znode.object()));
        }
        let txg = znode.dnode().changed_in();
        // With `sync=disabled` nothing is promised, so nothing is waited for.
        let promised =
            self.log.get().is_none() || self.objset.settings().sync != SyncMode::Disabled;
        if txg <= self.backing.synced_txg() || !promised {
            return Ok(());
        }
        self.backing.wait_synced(txg)
    }
}

/// Whether a record can have this attribute value; an empty one means its removal.
fn fits_record(value: &[u8]) -> bool {
    !value.is_empty() && value.len() <= SA_VALUE_MAX
}

fn of_name(body: &Body<'_>) -> Intent {
    Intent {
        order: Order::Names,
        record: body.to_bytes(),
        write: None,
    }
}

/// The attributes of a mask, as they are.
pub(crate) fn as_they_are(object: ObjectId, a: &Attributes, mask: u64) -> Body<'static> {
    Body::SetAttr(Logged {
        object: object.0,
        mask,
        mode: u64::from(a.mode),
        uid: a.uid,
        gid: a.gid,
        atime: a.atime,
        mtime: a.mtime,
        ..Logged::default()
    })
}

/// Those flags of `which` as they are, and the project id if `project`.
fn given_flags(object: ObjectId, a: &Attributes, which: u64, project: bool) -> Body<'static> {
    let mut given = XattrFlags::default();
    for (bit, flag) in LOGGED_FLAGS {
        if which & flag != 0 {
            given.asked |= bit;
            if a.flags & flag != 0 {
                given.values |= u64::from(bit);
            }
        }
    }
    if project {
        given.asked |= LOGGED_PROJECT;
        given.values |= u64::from(LOGGED_PROJECT);
        given.projid = a.projid;
    }
    Body::SetAttr(Logged {
        object: object.0,
        flags: Some(given),
        ..Logged::default()
    })
}

/// The record of a write.
fn write_of(file: &Dnode, offset: u64, data: &[u8], (order, state): (Order, WriteState)) -> Intent {
    let body = Body::Write {
        object: file.object().0,
        offset,
        length: data.len() as u64,
        data: (state == WriteState::Copied).then_some(data),
        block: BlockPointer::HOLE,
    };
    Intent {
        order,
        record: body.to_bytes(),
        write: Some(state),
    }
}

/// An object with its attributes, in the form of a log record.
pub(crate) fn created<'a>(
    dnode: &Dnode,
    a: &Attributes,
    name: &'a [u8],
    target: &'a [u8],
) -> Create<'a> {
    Create {
        dir: a.parent,
        object: dnode.object().0,
        slots: dnode.slots(),
        mode: u64::from(a.mode),
        uid: a.uid,
        gid: a.gid,
        generation: a.generation,
        time: a.crtime,
        rdev: a.rdev,
        flags: None,
        acl: None,
        name,
        target,
    }
}

impl IntentData for FileSystem {
    fn size(&self, object: ObjectId) -> Result<Option<u64>> {
        let znode = match self.znode(object) {
            Err(e) if e.is(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        // None for an unlinked file: its records need not become durable.
        let links = znode.read().attrs.links;
        Ok((znode.is_file() && links != 0).then(|| znode.size()))
    }
}

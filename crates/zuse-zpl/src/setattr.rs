//! chmod, chown, utimens, truncate, flags, project ids.

use std::sync::Arc;

use zuse_base::{Errno, ObjectId, Result, Timestamp};
use zuse_dmu::Tx;
use zuse_format::zil::SetAttr as Logged;

use crate::acl::TrivialAcl;
use crate::attributes::{Attributes, field};
use crate::backing::AclMode;
use crate::credentials::{Credentials, MAY_WRITE};
use crate::file::without_set_ids;
use crate::file_system::{Attr, FileSystem, refuse};
use crate::posix_acl;
use crate::znode::Znode;
use crate::{estimate, flags, mode};

/// What a record of the log says was set, except the size.
fn mask_of(set: &SetAttr, mode: bool) -> u64 {
    [
        (mode, Logged::MODE),
        (set.uid.is_some(), Logged::UID),
        (set.gid.is_some(), Logged::GID),
        (set.atime.is_some(), Logged::ATIME),
        (set.mtime.is_some(), Logged::MTIME),
    ]
    .into_iter()
    .filter_map(|(given, bit)| given.then_some(bit))
    .fold(0, |mask, bit| mask | bit)
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    /// The file system's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// Changes of attributes; `None` leaves one unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<TimeSet>,
    /// New modification time.
    pub mtime: Option<TimeSet>,
    /// New change time: set by the kernel itself when it caches writes.
    pub ctime: Option<Timestamp>,
    /// Clear set-user-id, set-group-id of group-executable files, and the file capabilities.
    pub kill_suidgid: bool,
}

/// Flags that [`FileSystem::set_flags`] may change.
pub const SETTABLE_FLAGS: u64 = flags::IMMUTABLE
    | flags::APPENDONLY
    | flags::NODUMP
    | flags::NOUNLINK
    | flags::PROJINHERIT
    | flags::ARCHIVE
    | flags::READONLY;

/// Whether flags of an object forbid a change of its attributes.
fn is_protected(own: u64, set: &SetAttr) -> bool {
    let changes_access = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    if own & flags::IMMUTABLE != 0 {
        return changes_access || set.mtime.is_some();
    }
    own & flags::APPENDONLY != 0 && changes_access
}

impl FileSystem {
    /// Changes attributes: all of them or, except for the size, none.
    ///
    /// # Errors
    /// `Refused`: `PERM`, `ACCES`, `ROFS`, `FBIG`, `NOSPC`, `DQUOT`.
    pub fn setattr(&self, who: &Credentials, znode: &Arc<Znode>, set: &SetAttr) -> Result<Attr> {
        self.check_writable()?;
        let a = znode.attributes();
        if is_protected(a.flags, set) {
            return refuse(Errno::PERM, "the object is immutable");
        }
        self.check_setattr(who, znode, set)?;
        if let Some(size) = set.size {
            match znode.kind() {
                mode::REGULAR => {}
                mode::DIRECTORY => return refuse(Errno::ISDIR, "the size of a directory"),
                _ => return refuse(Errno::INVAL, "the size of something that is no file"),
            }
            // Setting the size changes the times even if the size is the same.
            self.resize(znode, size, set.kill_suidgid)?;
        }
        if set.kill_suidgid {
            // File capabilities are a privilege like set-id bits.
            self.drop_capabilities(znode)?;
        }
        let rest = SetAttr {
            size: None,
            kill_suidgid: set.kill_suidgid && set.size.is_none(),
            ..*set
        };
        if rest != SetAttr::default() {
            self.set_rest(who, znode, &rest, true)?;
        }
        self.sync_if_always(znode.object())?;
        Ok(self.getattr(znode))
    }

    fn check_setattr(&self, who: &Credentials, znode: &Arc<Znode>, set: &SetAttr) -> Result<()> {
        if who.free() {
            return Ok(());
        }
        let a = znode.attributes();
        if set.mode.is_some() {
            who.check_owner(a.uid)?;
        }
        if set.uid.is_some_and(|u| u64::from(u) != a.uid) {
            return refuse(Errno::PERM, "only the super-user gives files away");
        }
        if let Some(gid) = set.gid {
            who.check_owner(a.uid)?;
            if u64::from(gid) != a.gid && !who.in_group(gid) {
                return refuse(Errno::PERM, "a group the caller is not in");
            }
        }
        let times = [set.atime, set.mtime];
        if times.iter().any(|t| matches!(t, Some(TimeSet::At(_)))) {
            who.check_owner(a.uid)?;
        } else if times.iter().any(Option::is_some) && who.check_owner(a.uid).is_err() {
            self.check_access(who, znode, MAY_WRITE)?;
        }
        if set.size.is_some() {
            self.check_access(who, znode, MAY_WRITE)?;
        }
        Ok(())
    }

    /// Changes everything except the size. `acl_follows`: a POSIX ACL is adapted to a new mode.
    /// Without it the caller changes the ACL separately.
    pub(crate) fn set_rest(
        &self,
        who: &Credentials,
        znode: &Arc<Znode>,
        set: &SetAttr,
        acl_follows: bool,
    ) -> Result<()> {
        let _xattrs = znode.xattrs.write();
        let owner_changes = set.uid.is_some() || set.gid.is_some();
        let space = if owner_changes {
            self.attribute_objects(znode)?
        } else {
            Vec::new()
        };
        let old = znode.attributes();
        let new_mode = self.new_mode(who, znode, set, &old)?;
        if owner_changes {
            let mut new = old;
            new.uid = set.uid.map_or(old.uid, u64::from);
            new.gid = set.gid.map_or(old.gid, u64::from);
            self.check_owner_quota(&old, &new)?;
        }
        let tx = self.begin(estimate::ATTRIBUTES * (1 + space.len() as u64) + estimate::CREATE)?;
        let now = self.now();
        for object in &space {
            self.put_owner(&tx, object, set, now)?;
        }
        let mut acl = None;
        if let Some(m) = new_mode {
            self.put_mode(&tx, znode, m, now)?;
            if set.mode.is_some() && acl_follows {
                acl = self.acl_that_follows(znode, m)?;
            }
        }
        if owner_changes {
            self.put_owner(&tx, znode, set, now)?;
        }
        let mut state = znode.write();
        let a = &mut state.attrs;
        let at = |t: TimeSet| match t {
            TimeSet::Now => now,
            TimeSet::At(t) => t,
        };
        let mut fields = field::CTIME | field::FLAGS;
        if let Some(t) = set.atime {
            a.atime = at(t);
            fields |= field::ATIME;
        }
        if let Some(t) = set.mtime {
            a.mtime = at(t);
            fields |= field::MTIME;
        }
        a.ctime = set.ctime.unwrap_or(now);
        if self.version >= 3 {
            a.flags |= flags::ARCHIVE;
        }
        if fields & field::ATIME != 0 {
            // The explicit time replaces a pending one, which would be written over it later.
            state.atime_pending = false;
        }
        self.store.store(&tx, znode.dnode(), &state.attrs, fields)?;
        let mask = mask_of(set, new_mode.is_some());
        // With an ACL, put_xattr notes the mask: mode and ACL are one operation in the log.
        let Some(acl) = acl else {
            self.note_attributes(&tx, znode.object(), &state.attrs, mask);
            return Ok(());
        };
        drop(state);
        self.put_xattr(&tx, znode, posix_acl::ACCESS, &acl, mask)
    }

    /// The mode that a change asks for, without the set-id bits that it clears; none if it stays.
    fn new_mode(
        &self,
        who: &Credentials,
        znode: &Znode,
        set: &SetAttr,
        old: &Attributes,
    ) -> Result<Option<u32>> {
        let owner_changes = set.uid.is_some() || set.gid.is_some();
        let mut new_mode = set.mode.map(|m| old.kind() | m & mode::PERMISSIONS);
        if let Some(m) = &mut new_mode {
            let owns_group = u32::try_from(old.gid).is_ok_and(|g| who.in_group(g));
            if !who.free() && !owns_group && !znode.is_dir() {
                *m &= !mode::SETGID;
            }
            // Set-id bits are in no ACL.
            if (*m ^ old.mode) & 0o777 != 0
                && self.backing.props().acl_mode == AclMode::Restricted
                && old.flags & flags::ACL_TRIVIAL == 0
            {
                return refuse(Errno::PERM, "aclmode=restricted keeps this ACL");
            }
        }
        // POSIX: a new owner must not inherit a set-id program.
        let kills = (set.kill_suidgid || owner_changes) && !znode.is_dir();
        if kills {
            let m = new_mode.unwrap_or(old.mode);
            let killed = without_set_ids(m);
            if killed != m {
                new_mode = Some(killed);
            }
        }
        Ok(new_mode)
    }

    fn put_owner(&self, tx: &Tx, znode: &Arc<Znode>, set: &SetAttr, now: Timestamp) -> Result<()> {
        let mut state = znode.write();
        let a = &mut state.attrs;
        a.uid = set.uid.map_or(a.uid, u64::from);
        a.gid = set.gid.map_or(a.gid, u64::from);
        a.ctime = now;
        self.store.store(
            tx,
            znode.dnode(),
            &state.attrs,
            field::UID | field::GID | field::CTIME,
        )
    }

    /// Writes a mode with the matching ACL. The caller adds the log record.
    pub(crate) fn put_mode(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        mode: u32,
        now: Timestamp,
    ) -> Result<()> {
        let acl = TrivialAcl::of(mode);
        // Before the ACL in the znode is replaced, which holds the number of the external one.
        let external = self.store.external_acl(znode.dnode());
        let mut state = znode.write();
        let a = &mut state.attrs;
        a.mode = mode;
        a.ctime = now;
        a.flags = a.flags & !(flags::NO_EXECS_DENIED | flags::INHERIT_ACE) | flags::ACL_TRIVIAL;
        if acl.no_execs_denied {
            a.flags |= flags::NO_EXECS_DENIED;
        }
        if self.version >= 3 {
            a.flags |= flags::ARCHIVE;
        }
        self.store.store_acl(tx, znode.dnode(), &acl)?;
        self.store.store(
            tx,
            znode.dnode(),
            &state.attrs,
            field::MODE | field::FLAGS | field::CTIME,
        )?;
        if external != 0 {
            // Nothing leads to it any more; left allocated, it would be a leak.
            self.objset.free(tx, ObjectId(external))?;
        }
        Ok(())
    }

    /// Sets the flags of [`SETTABLE_FLAGS`] (`chattr`).
    ///
    /// # Errors
    /// `Refused(PERM)`: not the owner, or IMMUTABLE and APPENDONLY without privilege;
    /// `Refused(INVAL)` for other bits.
    pub fn set_flags(&self, who: &Credentials, znode: &Arc<Znode>, new: u64) -> Result<()> {
        self.put_settable(who, znode, new)?;
        self.sync_if_always(znode.object())
    }

    fn put_settable(&self, who: &Credentials, znode: &Arc<Znode>, new: u64) -> Result<()> {
        self.check_writable()?;
        if new & !SETTABLE_FLAGS != 0 {
            return refuse(Errno::INVAL, "flags that cannot be set");
        }
        let a = znode.attributes();
        who.check_owner(a.uid)?;
        let changed = (a.flags ^ new) & SETTABLE_FLAGS;
        if changed & (flags::IMMUTABLE | flags::APPENDONLY | flags::NOUNLINK) != 0
            && !who.privileged
        {
            return refuse(Errno::PERM, "only the super-user makes objects immutable");
        }
        let tx = self.begin(estimate::ATTRIBUTES)?;
        let now = self.now();
        let mut state = znode.write();
        let a = &mut state.attrs;
        a.flags = a.flags & !SETTABLE_FLAGS | new;
        a.ctime = now;
        // While the state is locked: two changes of flags are in the log in their order.
        self.note_flags(&tx, znode.object(), a, SETTABLE_FLAGS, false);
        self.store.store(
            &tx,
            znode.dnode(),
            &state.attrs,
            field::FLAGS | field::CTIME,
        )
    }

    /// Sets the project id of a file or directory, with its attribute space.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` if there are no projects, `Refused(INVAL)` for the invalid id,
    /// `Refused(PERM)`.
    pub fn set_project(&self, who: &Credentials, znode: &Arc<Znode>, projid: u32) -> Result<()> {
        self.check_writable()?;
        if projid == u32::MAX {
            return refuse(Errno::INVAL, "the project id");
        }
        if !self.has_projects() || !matches!(znode.kind(), mode::REGULAR | mode::DIRECTORY) {
            return refuse(Errno::NOTSUP, "project ids");
        }
        who.check_owner(znode.attributes().uid)?;
        self.put_project(znode, projid)?;
        self.sync_if_always(znode.object())
    }

    fn put_project(&self, znode: &Arc<Znode>, projid: u32) -> Result<()> {
        let _xattrs = znode.xattrs.write();
        let mut objects = self.attribute_objects(znode)?;
        objects.push(znode.clone());
        let tx = self.begin(estimate::ATTRIBUTES * objects.len() as u64)?;
        let now = self.now();
        for object in &objects {
            let mut state = object.write();
            let a = &mut state.attrs;
            a.projid = u64::from(projid);
            a.flags |= flags::PROJID;
            a.ctime = now;
            // Replay does the same to the hidden files.
            if Arc::ptr_eq(object, znode) {
                self.note_flags(&tx, object.object(), a, 0, true);
            }
            let fields = field::PROJID | field::FLAGS | field::CTIME;
            self.store
                .store(&tx, object.dnode(), &state.attrs, fields)?;
        }
        Ok(())
    }
}

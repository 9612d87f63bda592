//! Quotas and usage of users, groups and projects.
//!
//! Limits are ZAPs named in the master node, created at first use. The object set has the usage, as
//! of the last synced txg. So a limit is exceeded at most by the amount written in three txgs.

use zuse_base::sync::{Mutex, RwLock};

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::Tx;
use zuse_dmu::sa::owner_ids;
use zuse_dmu::zap::{Zap, ZapOptions, ZapValue};
use zuse_format::object_type;
use zuse_format::objset::{
    OBJSET_PROJECT_QUOTA, OBJSET_USER_ACCOUNTING, OBJSET_USEROBJ_ACCOUNTING,
};

use crate::attributes::Attributes;
use crate::credentials::Credentials;
use crate::file_system::{FileSystem, MASTER_NODE, refuse};
use crate::{estimate, flags, mode};

/// Who is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaOwner {
    /// A user id.
    User,
    /// A group id.
    Group,
    /// A project id.
    Project,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Bytes.
    Space,
    /// Objects.
    Objects,
}

/// File systems have accounting from this version on.
const ACCOUNTING_VERSION: u64 = 4;
/// Bytes charged for an object besides its blocks.
const DNODE_SIZE: u64 = 512;

use QuotaKind::{Objects, Space};
use QuotaOwner::{Group, Project, User};

const TABLES: [(QuotaOwner, QuotaKind, &str, &str); 6] = [
    (User, Space, "userquota@", "defaultuserquota"),
    (Group, Space, "groupquota@", "defaultgroupquota"),
    (Project, Space, "projectquota@", "defaultprojectquota"),
    (User, Objects, "userobjquota@", "defaultuserobjquota"),
    (Group, Objects, "groupobjquota@", "defaultgroupobjquota"),
    (
        Project,
        Objects,
        "projectobjquota@",
        "defaultprojectobjquota",
    ),
];

/// The limits of a file system, by the rows of the table.
#[derive(Default)]
pub(crate) struct Quotas {
    rows: RwLock<Rows>,
    /// Only one thread at a time counts a whole file system.
    counting: Mutex<()>,
}

#[derive(Default)]
struct Rows {
    loaded: bool,
    any: [bool; 2],
    zaps: [Option<Zap>; 6],
    defaults: [u64; 6],
}

fn row(owner: QuotaOwner, kind: QuotaKind) -> usize {
    owner as usize + 3 * (kind as usize)
}

impl FileSystem {
    fn load_quotas(&self) -> Result<()> {
        let mut rows = self.quotas.rows.write();
        if rows.loaded {
            return Ok(());
        }
        let master = Zap::open(&self.objset.dnode(MASTER_NODE)?)?;
        for (i, (_, kind, key, default)) in TABLES.into_iter().enumerate() {
            if let Some(object) = master.lookup_u64(key.as_bytes())? {
                rows.zaps[i] = Some(Zap::open(&self.objset.dnode(ObjectId(object))?)?);
            }
            rows.defaults[i] = master.lookup_u64(default.as_bytes())?.unwrap_or(0);
            rows.any[kind as usize] |= rows.zaps[i].is_some() || rows.defaults[i] != 0;
        }
        rows.loaded = true;
        Ok(())
    }

    /// The limit of an id; `None` for no limit.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn quota(&self, owner: QuotaOwner, kind: QuotaKind, id: u64) -> Result<Option<u64>> {
        self.load_quotas()?;
        let rows = self.quotas.rows.read();
        let i = row(owner, kind);
        let own = match &rows.zaps[i] {
            Some(zap) => zap.lookup_int(id)?,
            None => None,
        };
        Ok(own.or(Some(rows.defaults[i])).filter(|limit| *limit != 0))
    }

    /// Sets a limit; 0 removes it.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` where usage is not counted; `Refused(ROFS)`.
    pub fn set_quota(&self, owner: QuotaOwner, kind: QuotaKind, id: u64, limit: u64) -> Result<()> {
        self.change_limits(owner, kind, |tx, rows| {
            let i = row(owner, kind);
            let zap = match &rows.zaps[i] {
                Some(zap) => zap.clone(),
                None if limit == 0 => return Ok(()),
                None => {
                    let options = ZapOptions::default();
                    let zap =
                        Zap::create(&self.objset, tx, object_type::USERGROUP_QUOTA, &options)?;
                    let master = Zap::open(&self.objset.dnode(MASTER_NODE)?)?;
                    master.add_u64(tx, TABLES[i].2.as_bytes(), zap.dnode().object().0)?;
                    rows.zaps[i] = Some(zap.clone());
                    rows.any[kind as usize] = true;
                    zap
                }
            };
            if limit != 0 {
                return zap.update_int(tx, id, limit);
            }
            match zap.remove_int(tx, id) {
                Err(error) if error.is(Errno::NOENT) => Ok(()),
                other => other,
            }
        })
    }

    /// Sets the limit of all ids without one of their own; 0 removes it.
    ///
    /// # Errors
    /// As [`Self::set_quota`].
    pub fn set_default_quota(&self, owner: QuotaOwner, kind: QuotaKind, limit: u64) -> Result<()> {
        self.change_limits(owner, kind, |tx, rows| {
            let i = row(owner, kind);
            let master = Zap::open(&self.objset.dnode(MASTER_NODE)?)?;
            master.update(tx, TABLES[i].3.as_bytes(), &ZapValue::U64(limit))?;
            rows.defaults[i] = limit;
            rows.any[kind as usize] |= limit != 0;
            Ok(())
        })
    }

    /// Changes limits in a transaction, after making sure that the limited usage is counted.
    fn change_limits(
        &self,
        owner: QuotaOwner,
        kind: QuotaKind,
        change: impl FnOnce(&Tx, &mut Rows) -> Result<()>,
    ) -> Result<()> {
        self.check_writable()?;
        self.count_owners()?;
        self.check_counted(owner, kind)?;
        self.load_quotas()?;
        let tx = self.begin(estimate::CREATE)?;
        let mut rows = self.quotas.rows.write();
        change(&tx, &mut rows)
    }

    fn check_counted(&self, owner: QuotaOwner, kind: QuotaKind) -> Result<()> {
        let needed = match (owner, kind) {
            (Project, _) => OBJSET_PROJECT_QUOTA,
            (_, Objects) => OBJSET_USEROBJ_ACCOUNTING,
            (_, Space) => OBJSET_USER_ACCOUNTING,
        };
        if self.objset.flags() & needed == 0 {
            refuse(Errno::NOTSUP, "usage is not counted here")
        } else {
            Ok(())
        }
    }

    /// Usage of an id, in bytes or objects, as of the last synced txg.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` if it is not counted.
    pub fn usage(&self, owner: QuotaOwner, kind: QuotaKind, id: u64) -> Result<u64> {
        self.check_counted(owner, kind)?;
        let Some(dnode) = self.objset.accounting_object(owner as usize) else {
            return Ok(0);
        };
        let zap = Zap::open(&dnode)?;
        let found = match kind {
            Space => zap.lookup_int(id)?,
            Objects => zap.lookup_u64(format!("obj-{id:x}").as_bytes())?,
        };
        Ok(found.unwrap_or(0))
    }

    /// Whether nothing was ever counted, although the file system supports it: a dataset received
    /// raw, and not written since.
    fn is_uncounted(&self) -> bool {
        self.objset.flags() & OBJSET_USER_ACCOUNTING == 0 && self.version() >= ACCOUNTING_VERSION
    }

    /// Counts the usage of each owner in the object set, if it was never counted: a limit needs
    /// that. Others may write meanwhile. Writers and changes of limits wait for it first. A read
    /// does not trigger it, because it changes the dataset, and an incremental stream could not be
    /// received any more.
    ///
    /// ```text
    ///   counts of before the increment?  every object rewritten without its mark ─► sums emptied
    ///   every change is counted ─► every object rewritten with its mark ─► flags: all is counted
    /// ```
    /// A crash in between leaves the flags unset, so the next call starts again.
    fn count_owners(&self) -> Result<()> {
        if !self.is_uncounted() {
            return Ok(());
        }
        let one = &self.quotas.counting;
        let _one = one.lock();
        // Another thread may have counted while this one waited.
        if !self.is_uncounted() {
            return Ok(());
        }
        // First: sums of an interrupted count would be added to.
        self.forget_counts()?;
        let features = self.features();
        let projects = features.project_quota && self.version() >= 5;
        let flags = OBJSET_USER_ACCOUNTING
            | if features.userobj_accounting {
                OBJSET_USEROBJ_ACCOUNTING
            } else {
                0
            }
            | if projects { OBJSET_PROJECT_QUOTA } else { 0 };
        // Before the objects are rewritten: a change of another thread meanwhile is counted, too.
        self.objset.count_as(flags);
        let done = self.touch_all().and_then(|()| {
            // Only now, when all is on disk: the flags say that every object is counted.
            let tx = self.begin_freeing(0)?;
            self.objset.set_flags(&tx, self.objset.flags() | flags);
            Ok(())
        });
        // Also after a failure: without the flags on disk nothing counts as complete.
        self.objset.count_as(0);
        done
    }

    /// Clears the sums by owner, and the accounting flags of all objects.
    fn forget_counts(&self) -> Result<()> {
        let sums: Vec<_> = (0..3)
            .filter_map(|which| self.objset.accounting_object(which))
            .map(|dnode| Zap::open(&dnode))
            .collect::<Result<_>>()?;
        let names = |zap: &Zap| -> Result<Vec<Vec<u8>>> {
            let mut all = Vec::new();
            zap.list(0, &mut |name, _, _| {
                all.push(name.to_vec());
                true
            })?;
            Ok(all)
        };
        let mut stale = Vec::new();
        for zap in sums {
            let names = names(&zap)?;
            if !names.is_empty() {
                stale.push((zap, names));
            }
        }
        if stale.is_empty() {
            return Ok(());
        }
        self.touch_all()?;
        let tx = self.begin_freeing(1 << 20)?;
        for (zap, names) in stale {
            names.iter().try_for_each(|name| zap.remove(&tx, name))?;
        }
        drop(tx);
        self.backing.wait_synced(self.backing.open_txg())
    }

    /// Rewrites every object, and waits until that is on disk. An unreadable one is left unchanged.
    fn touch_all(&self) -> Result<()> {
        const AT_ONCE: usize = 256;
        let mut at = ObjectId(0);
        loop {
            let mut some = Vec::with_capacity(AT_ONCE);
            while some.len() < AT_ONCE
                && let Some(object) = self.objset.next_object(at)?
            {
                at = object;
                some.push(object);
            }
            if some.is_empty() {
                return self.backing.wait_synced(self.backing.open_txg());
            }
            let tx = self.begin_freeing(some.len() as u64 * 1024)?;
            for object in some {
                match self.objset.dnode(object).and_then(|d| d.touch(&tx)) {
                    // A free object needs no count, and a damaged one cannot have one.
                    Err(e) if !e.is(Errno::NOENT) && !matches!(e, Error::Corrupt { .. }) => {
                        return Err(e);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Counts by reading every object, for a dataset received raw: its receiver cannot see the
    /// owners.
    fn count_now(
        &self,
        owner: QuotaOwner,
        kind: QuotaKind,
        f: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let mut sums = std::collections::BTreeMap::new();
        let mut at = ObjectId(0);
        while let Some(object) = self.objset.next_object(at)? {
            at = object;
            let dnode = self.objset.dnode(object)?;
            let kind_of_bonus = dnode.bonus_type();
            let ids = dnode.with_bonus(|bonus| owner_ids(kind_of_bonus, bonus));
            let Some(ids) = ids else { continue };
            let id = match owner {
                User => ids.uid,
                Group => ids.gid,
                Project => ids.projid,
            };
            *sums.entry(id).or_insert(0) += match kind {
                Space => DNODE_SIZE + dnode.used_bytes(),
                Objects => 1,
            };
        }
        sums.into_iter().for_each(|(id, n)| f(id, n));
        Ok(())
    }

    /// Calls `f(id, usage)` for every id with any usage. For a dataset received raw it is counted
    /// now, by reading each of its objects.
    ///
    /// # Errors
    /// As [`Self::usage`].
    pub fn each_usage(
        &self,
        owner: QuotaOwner,
        kind: QuotaKind,
        f: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        if self.is_uncounted() {
            return self.count_now(owner, kind, f);
        }
        self.check_counted(owner, kind)?;
        let Some(dnode) = self.objset.accounting_object(owner as usize) else {
            return Ok(());
        };
        Zap::open(&dnode)?.list(0, &mut |name, value, _| {
            let digits = match (name.strip_prefix(b"obj-"), kind) {
                (Some(rest), Objects) => Some(rest),
                (None, Space) => Some(name),
                _ => None,
            };
            if let Some(id) = digits
                .and_then(|d| std::str::from_utf8(d).ok())
                .and_then(|d| u64::from_str_radix(d, 16).ok())
            {
                f(id, value);
            }
            true
        })?;
        Ok(())
    }

    /// Calls `f(id, limit)` for every id with a limit of its own.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn each_quota(
        &self,
        owner: QuotaOwner,
        kind: QuotaKind,
        f: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        self.load_quotas()?;
        let zap = self.quotas.rows.read().zaps[row(owner, kind)].clone();
        let Some(zap) = zap else { return Ok(()) };
        zap.list(0, &mut |name, value, _| {
            if let Some(id) = std::str::from_utf8(name)
                .ok()
                .and_then(|d| u64::from_str_radix(d, 16).ok())
            {
                f(id, value);
            }
            true
        })?;
        Ok(())
    }

    fn any_quota(&self, kind: QuotaKind) -> Result<bool> {
        {
            let rows = self.quotas.rows.read();
            if rows.loaded {
                return Ok(rows.any[kind as usize]);
            }
        }
        self.load_quotas()?;
        self.any_quota(kind)
    }

    fn check_one(&self, owner: QuotaOwner, kind: QuotaKind, id: u64) -> Result<()> {
        let Some(limit) = self.quota(owner, kind, id)? else {
            return Ok(());
        };
        self.count_owners()?;
        match self.usage(owner, kind, id) {
            // Reaching the limit is over it (03c §6).
            Ok(used) if used >= limit => Err(Error::refused(
                Errno::DQUOT,
                format!("the quota of {owner:?} {id}"),
            )),
            Err(error) if !error.is(Errno::NOTSUP) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the owners of an object may use more space.
    pub(crate) fn check_space_quota(&self, a: &Attributes) -> Result<()> {
        if !self.any_quota(Space)? {
            return Ok(());
        }
        self.check_one(User, Space, a.uid)?;
        self.check_one(Group, Space, a.gid)?;
        self.check_one(Project, Space, a.projid)
    }

    /// Whether the caller may create another object below a parent.
    pub(crate) fn check_object_quota(
        &self,
        who: &Credentials,
        parent: &Attributes,
        mode: u32,
    ) -> Result<()> {
        if !self.any_quota(Objects)? && !self.any_quota(Space)? {
            return Ok(());
        }
        let gid = if parent.mode & mode::SETGID != 0 {
            parent.gid
        } else {
            u64::from(who.gid)
        };
        // As attributes_of_new decides it.
        let inherits = parent.flags & flags::PROJINHERIT != 0
            && matches!(mode & mode::TYPE, mode::REGULAR | mode::DIRECTORY);
        let projid = if inherits { parent.projid } else { 0 };
        for kind in [Objects, Space] {
            self.check_one(User, kind, u64::from(who.uid))?;
            self.check_one(Group, kind, gid)?;
            self.check_one(Project, kind, projid)?;
        }
        Ok(())
    }

    /// Whether the new owners' quotas allow taking over an object.
    pub(crate) fn check_owner_quota(&self, old: &Attributes, new: &Attributes) -> Result<()> {
        if !self.any_quota(Objects)? && !self.any_quota(Space)? {
            return Ok(());
        }
        for kind in [Objects, Space] {
            if old.uid != new.uid {
                self.check_one(User, kind, new.uid)?;
            }
            if old.gid != new.gid {
                self.check_one(Group, kind, new.gid)?;
            }
        }
        Ok(())
    }
}

//! Making files, directories, links, devices.

use std::sync::Arc;

use zuse_base::{Errno, ObjectId, Result, Timestamp};
use zuse_dmu::zap::{Zap, ZapOptions};
use zuse_dmu::{Dnode, DnodeSpec, Tx};
use zuse_format::object_type;
use zuse_format::zil::Body;

use crate::acl::TrivialAcl;
use crate::attributes::{Attributes, field};
use crate::backing::XattrPlace;
use crate::credentials::{Credentials, MAY_EXEC, MAY_WRITE};
use crate::file_system::{FileSystem, refuse};
use crate::posix_acl::{self, PosixAcl};
use crate::znode::Znode;
use crate::{dirent, estimate, flags, mode, name};

/// Longest link target.
const TARGET_MAX: usize = 4096;
/// Most links of one object.
const LINK_MAX: u64 = (1 << 31) - 1;

/// The parameters of a new object.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewObject<'a> {
    /// Type and permission bits.
    pub mode: u32,
    /// Stored device number, for devices.
    pub rdev: u64,
    /// Target, for symbolic links.
    pub target: Option<&'a [u8]>,
    /// Its former state, if the intent log recreates it.
    pub logged: Option<LoggedObject>,
}

/// The intent log's description of an object: nothing of it is chosen or inherited.
#[derive(Clone, Copy, Debug)]
pub struct LoggedObject {
    /// Its number.
    pub object: ObjectId,
    /// Number of slots of its dnode.
    pub slots: u8,
    /// Its generation.
    pub generation: u64,
    /// All its times.
    pub time: Timestamp,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Allocate it over an object freed in memory: the txg is never written.
    pub in_memory: bool,
}

/// The POSIX ACLs of a new object.
#[derive(Default)]
struct FirstAcls {
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

impl FirstAcls {
    /// Names and values of the attributes for them.
    fn all(&self) -> Vec<(&'static [u8], &[u8])> {
        let both = [
            (posix_acl::ACCESS, &self.access),
            (posix_acl::DEFAULT, &self.default),
        ];
        let given = both.into_iter();
        given
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect()
    }
}

impl FileSystem {
    /// Makes a regular file.
    ///
    /// # Errors
    /// Those of [`Self::make`].
    pub fn create(
        &self,
        who: &Credentials,
        dir: &Arc<Znode>,
        name: &[u8],
        permissions: u32,
    ) -> Result<Arc<Znode>> {
        let mode = mode::REGULAR | permissions & mode::PERMISSIONS;
        self.make(
            who,
            dir,
            name,
            &NewObject {
                mode,
                ..NewObject::default()
            },
        )
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of [`Self::make`].
    pub fn mkdir(
        &self,
        who: &Credentials,
        dir: &Arc<Znode>,
        name: &[u8],
        permissions: u32,
    ) -> Result<Arc<Znode>> {
        let mode = mode::DIRECTORY | permissions & 0o1777;
        self.make(
            who,
            dir,
            name,
            &NewObject {
                mode,
                ..NewObject::default()
            },
        )
    }

    /// Creates a file, device, pipe or socket; `rdev` is the stored form
    /// ([`crate::device_number`]).
    ///
    /// # Errors
    /// Those of [`Self::make`].
    pub fn mknod(
        &self,
        who: &Credentials,
        dir: &Arc<Znode>,
        name: &[u8],
        mode: u32,
        rdev: u64,
    ) -> Result<Arc<Znode>> {
        if matches!(mode & mode::TYPE, mode::DIRECTORY | mode::SYMLINK) {
            return refuse(Errno::INVAL, "mknod of this type");
        }
        let mode = if mode & mode::TYPE == 0 {
            mode | mode::REGULAR
        } else {
            mode
        };
        self.make(
            who,
            dir,
            name,
            &NewObject {
                mode,
                rdev: if mode::is_device(mode) { rdev } else { 0 },
                ..NewObject::default()
            },
        )
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Those of [`Self::make`].
    pub fn symlink(
        &self,
        who: &Credentials,
        dir: &Arc<Znode>,
        name: &[u8],
        target: &[u8],
    ) -> Result<Arc<Znode>> {
        if target.is_empty() || target.contains(&0) {
            return refuse(Errno::NOENT, "a link target");
        }
        if target.len() > TARGET_MAX - 1 {
            return refuse(Errno::NAMETOOLONG, "a link target");
        }
        self.make(
            who,
            dir,
            name,
            &NewObject {
                mode: mode::SYMLINK | 0o777,
                target: Some(target),
                ..NewObject::default()
            },
        )
    }

    /// Makes an object with a name.
    ///
    /// # Errors
    /// `Refused`: `EXIST`, `NOENT` (the directory is gone), `ROFS`, `NAMETOOLONG`, `ILSEQ`,
    /// `NOSPC`, `DQUOT`, `ACCES`.
    pub fn make(
        &self,
        who: &Credentials,
        dir: &Arc<Znode>,
        name: &[u8],
        new: &NewObject<'_>,
    ) -> Result<Arc<Znode>> {
        let znode = self.make_named(who, dir, name, new)?;
        self.sync_if_always(znode.object())?;
        Ok(znode)
    }

    fn make_named(
        &self,
        who: &Credentials,
        dir: &Arc<Znode>,
        name: &[u8],
        new: &NewObject<'_>,
    ) -> Result<Arc<Znode>> {
        self.check_writable()?;
        let entries = dir.entries()?;
        self.check_new_name(dir, name)?;
        if !mode::is_valid(new.mode) {
            return refuse(Errno::INVAL, "a file type");
        }
        // The leaf is prefetched while the rest is checked; the result does not depend on it.
        let mut expected = entries.expect(name);
        self.check_access(who, dir, MAY_WRITE | MAY_EXEC)?;
        // Until the name is added: no second thread can create the name, and the directory cannot
        // be removed.
        let _names = dir.names.lock();
        self.check_alive(dir)?;
        let parent = dir.attributes();
        if parent.flags & flags::XATTR != 0 {
            return refuse(Errno::INVAL, "attribute space is not made by path");
        }
        if self.normflags != 0 && self.find(dir, name)?.is_some() {
            return refuse(Errno::EXIST, "the name");
        }
        let mut mode = new.mode;
        let acls = self.first_acls(dir, &mut mode, who.umask)?;
        // Before the transaction: a refusal must leave no object.
        self.check_object_quota(who, &parent, mode)?;
        // A prefetch: creating the object takes longer than reading the leaf from memory.
        entries.expect_version(&expected);
        let tx = self.begin(estimate::CREATE)?;
        let now = self.now();
        let (dnode, attrs) = self.make_object(&tx, &parent, dir.object(), who, mode, new, now)?;
        entries.expect_leaf(&tx, &mut expected);
        let (object, is_dir) = (dnode.object(), attrs.is_dir());
        // Before it has a name: a thread that finds the name must find this znode.
        let entry = dirent::pack(object, attrs.mode, self.version);
        let named = self.cache.insert(dnode, attrs, false).and_then(|znode| {
            entries.add_expected(&tx, name, entry, &expected)?;
            Ok(znode)
        });
        let znode = match named {
            Ok(znode) => znode,
            Err(error) => {
                // In the same transaction: no txg has an unreachable object.
                let free = || self.objset.free(&tx, object);
                self.cache.discard(object, free)?;
                return Err(error);
            }
        };
        let texts = [name, new.target.unwrap_or_default()];
        // If its ACLs cannot be noted, the next commit waits for the txg.
        let listed = self.list_first_acls(&tx, &znode, &acls).unwrap_or(false);
        if let Some(log) = self.log().filter(|_| !listed) {
            log.unlogged(&tx);
        }
        // After the name was added, which could have been refused.
        self.note_created(&tx, (znode.dnode(), &attrs), texts, &acls.all());
        self.change_dir(&tx, dir, 1, i64::from(is_dir), now)?;
        if !listed {
            self.put_first_acls(&tx, &znode, &acls)?;
        }
        if name.len() > name::NAME_MAX {
            self.backing.note_longname(&tx);
        }
        Ok(znode)
    }

    /// Creates a file without a name (`O_TMPFILE`); it is freed with its last holder unless it is
    /// linked before.
    ///
    /// # Errors
    /// Those of [`Self::make`].
    pub fn tmpfile(
        &self,
        who: &Credentials,
        dir: &Arc<Znode>,
        permissions: u32,
    ) -> Result<Arc<Znode>> {
        self.check_writable()?;
        dir.entries()?;
        self.check_access(who, dir, MAY_WRITE | MAY_EXEC)?;
        let parent = dir.attributes();
        let mut mode = mode::REGULAR | permissions & mode::PERMISSIONS;
        let acls = self.first_acls(dir, &mut mode, who.umask)?;
        self.check_object_quota(who, &parent, mode)?;
        let tx = self.begin(estimate::CREATE)?;
        let new = NewObject {
            mode,
            ..NewObject::default()
        };
        let (dnode, mut attrs) =
            self.make_object(&tx, &parent, dir.object(), who, mode, &new, self.now())?;
        attrs.links = 0;
        self.store.store(&tx, &dnode, &attrs, field::LINKS)?;
        // In the set from the start: after a crash it has no holder, and the next open frees it.
        self.unlinked_set()?
            .add_int(&tx, dnode.object().0, dnode.object().0)?;
        // It may get a name, so it is not freed while it is held.
        let znode = self.cache.insert(dnode, attrs, true)?;
        self.put_first_acls(&tx, &znode, &acls)?;
        Ok(znode)
    }

    /// The ACLs that a new object inherits; they reduce the permissions in `mode`.
    fn first_acls(&self, dir: &Arc<Znode>, mode: &mut u32, umask: u32) -> Result<FirstAcls> {
        let kind = *mode & mode::TYPE;
        if kind == mode::SYMLINK {
            return Ok(FirstAcls::default());
        }
        let inherited = if self.backing.props().posix_acl {
            self.xattr_value(dir, posix_acl::DEFAULT)?
        } else {
            None
        };
        let Some(bytes) = inherited else {
            // The umask applies only without a default ACL.
            *mode &= !(umask & 0o777);
            return Ok(FirstAcls::default());
        };
        let Some(mut acl) = PosixAcl::parse(&bytes)? else {
            *mode &= !(umask & 0o777);
            return Ok(FirstAcls::default());
        };
        let bits = acl.narrow(*mode);
        *mode = *mode & !0o777 | bits;
        Ok(FirstAcls {
            access: (!acl.is_mode()).then(|| acl.to_bytes()),
            default: (kind == mode::DIRECTORY).then_some(bytes),
        })
    }

    fn put_first_acls(&self, tx: &Tx, znode: &Arc<Znode>, acls: &FirstAcls) -> Result<()> {
        (acls.all().iter()).try_for_each(|(name, value)| self.put_xattr(tx, znode, name, value, 0))
    }

    /// Adds them to the object's own list. False if some of them do not belong there, or do not
    /// fit.
    fn list_first_acls(&self, tx: &Tx, znode: &Arc<Znode>, acls: &FirstAcls) -> Result<bool> {
        let sa = self.backing.props().xattr == XattrPlace::Sa;
        for (name, value) in acls.all() {
            if !sa || !self.put_listed(tx, znode, name, Some(value))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The attributes of a new object below a parent.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn attributes_of_new(
        &self,
        tx: &Tx,
        parent: &Attributes,
        parent_id: ObjectId,
        who: &Credentials,
        mode: u32,
        new: &NewObject<'_>,
        now: Timestamp,
    ) -> (Attributes, TrivialAcl) {
        let kind = mode & mode::TYPE;
        let is_dir = kind == mode::DIRECTORY;
        let mut mode = mode;
        let gid = if parent.mode & mode::SETGID != 0 && parent.flags & flags::XATTR == 0 {
            if is_dir {
                mode |= mode::SETGID;
            }
            parent.gid
        } else {
            u64::from(who.gid)
        };
        let mut gid = gid;
        if let Some(logged) = &new.logged {
            // Replay inherits nothing: the record has what was inherited then.
            (mode, gid) = (new.mode, logged.gid);
        }
        let acl = TrivialAcl::of(mode);
        let mut fl = flags::ACL_TRIVIAL | parent.flags & flags::XATTR;
        if acl.no_execs_denied {
            fl |= flags::NO_EXECS_DENIED;
        }
        if self.version >= 3 {
            fl |= flags::ARCHIVE | flags::AV_MODIFIED;
        }
        if is_dir {
            fl |= flags::ACL_AUTO_INHERIT;
        }
        let mut projid = 0;
        if matches!(kind, mode::DIRECTORY | mode::REGULAR) {
            if parent.flags & flags::PROJINHERIT != 0 {
                fl |= flags::PROJINHERIT;
                projid = parent.projid;
            }
            if self.has_projects() {
                fl |= flags::PROJID;
            }
        }
        let attrs = Attributes {
            mode,
            size: if is_dir {
                2
            } else {
                new.target.map_or(0, |t| t.len() as u64)
            },
            generation: new.logged.map_or(tx.txg().0, |r| r.generation),
            uid: new.logged.map_or(u64::from(who.uid), |r| r.uid),
            gid,
            parent: parent_id.0,
            flags: fl,
            links: if is_dir { 2 } else { 1 },
            projid,
            rdev: new.rdev,
            xattr: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
        };
        (attrs, acl)
    }

    /// Slots of the dnode of a new object.
    pub(crate) fn slots_of_new(&self) -> u8 {
        if self.features().large_dnode {
            self.backing.props().dnode_slots.clamp(1, 32)
        } else {
            1
        }
    }

    /// Allocates and fills an object below a parent. It has no name yet.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn make_object(
        &self,
        tx: &Tx,
        parent: &Attributes,
        parent_id: ObjectId,
        who: &Credentials,
        mode: u32,
        new: &NewObject<'_>,
        now: Timestamp,
    ) -> Result<(Arc<Dnode>, Attributes)> {
        let (attrs, acl) = self.attributes_of_new(tx, parent, parent_id, who, mode, new, now);
        let slots = new.logged.map_or_else(|| self.slots_of_new(), |r| r.slots);
        let allocate = |spec: &DnodeSpec| match &new.logged {
            None => self.objset.allocate(tx, spec),
            Some(r) if r.in_memory => self.objset.allocate_over(tx, r.object, spec),
            Some(r) => self.objset.allocate_at(tx, r.object, spec),
        };
        let dnode = if mode & mode::TYPE == mode::DIRECTORY {
            let options = ZapOptions {
                normflags: self.normflags,
                bonus_type: self.store.bonus_type(),
                bonus_len: self.store.bonus_len(),
                slots,
                ..ZapOptions::default()
            };
            let spec = DnodeSpec::new(object_type::DIRECTORY_CONTENTS)
                .bonus(self.store.bonus_type(), self.store.bonus_len())
                .slots(slots)
                .block_size(Zap::first_block_size(&options)?);
            let dnode = allocate(&spec)?;
            Zap::create_in(&dnode, tx, &options)?;
            dnode
        } else {
            let spec = DnodeSpec::new(Self::FILE_TYPE)
                .bonus(self.store.bonus_type(), self.store.bonus_len())
                .slots(slots);
            allocate(&spec)?
        };
        if let Err(error) = self.store.write_new(tx, &dnode, &attrs, &acl, new.target) {
            // In the same transaction: no txg has an unreachable object.
            self.objset.free(tx, dnode.object())?;
            return Err(error);
        }
        Ok((dnode, attrs))
    }

    /// Adds another name to an object.
    ///
    /// # Errors
    /// `Refused(PERM)` for directories, `Refused(MLINK)`, `Refused(XDEV)` into another project's
    /// directory; those of [`Self::make`].
    pub fn link(
        &self,
        who: &Credentials,
        znode: &Arc<Znode>,
        dir: &Arc<Znode>,
        name: &[u8],
    ) -> Result<()> {
        self.add_link(who, znode, dir, name)?;
        self.sync_if_always(znode.object())
    }

    fn add_link(
        &self,
        who: &Credentials,
        znode: &Arc<Znode>,
        dir: &Arc<Znode>,
        name: &[u8],
    ) -> Result<()> {
        self.check_writable()?;
        let entries = dir.entries()?;
        self.check_new_name(dir, name)?;
        if znode.is_dir() {
            return refuse(Errno::PERM, "a second name for a directory");
        }
        self.check_access(who, dir, MAY_WRITE | MAY_EXEC)?;
        let _names = dir.names.lock();
        self.check_alive(dir)?;
        let parent = dir.attributes();
        self.check_link(znode, &parent)?;
        if self.normflags != 0 && self.find(dir, name)?.is_some() {
            return refuse(Errno::EXIST, "the name");
        }
        let tx = self.begin(estimate::CREATE)?;
        let now = self.now();
        entries.add_u64(
            &tx,
            name,
            dirent::pack(znode.object(), znode.kind(), self.version),
        )?;
        {
            let mut state = znode.write();
            // It was created without a name, or its last name was removed while this one is added.
            if state.attrs.links == 0 {
                self.deferred()?.leave(&tx, znode.object())?;
                state.linkable = false;
                // Its earlier changes are not in the log.
                if let Some(log) = self.log() {
                    log.unlogged(&tx);
                }
            } else {
                // With the links locked: the removal of another name must come after this record.
                let body = Body::Link {
                    dir: dir.object().0,
                    object: znode.object().0,
                    name,
                };
                self.note_name(&tx, &body);
            }
            let a = &mut state.attrs;
            a.links += 1;
            a.parent = dir.object().0;
            a.ctime = now;
            a.flags |= if self.version >= 3 { flags::ARCHIVE } else { 0 };
            self.store.store(
                &tx,
                znode.dnode(),
                &state.attrs,
                field::LINKS | field::PARENT | field::CTIME | field::FLAGS,
            )?;
        }
        if name.len() > name::NAME_MAX {
            self.backing.note_longname(&tx);
        }
        self.change_dir(&tx, dir, 1, 0, now)
    }

    /// Whether an object may get another name, in a directory with these attributes.
    fn check_link(&self, znode: &Znode, parent: &Attributes) -> Result<()> {
        let state = znode.read();
        let a = &state.attrs;
        if znode.is_dead() || (a.links == 0 && !state.linkable) {
            return refuse(Errno::NOENT, "the object has lost its last name");
        }
        if a.links >= LINK_MAX {
            return refuse(Errno::MLINK, "links of one object");
        }
        if (a.flags | parent.flags) & flags::XATTR != 0 {
            return refuse(
                Errno::INVAL,
                "links do not lead into or out of attribute space",
            );
        }
        if parent.flags & flags::PROJINHERIT != 0 && parent.projid != a.projid {
            return refuse(Errno::XDEV, "the directory belongs to another project");
        }
        if self.forbids(a.flags, flags::IMMUTABLE | flags::APPENDONLY) {
            return refuse(Errno::PERM, "the object is immutable");
        }
        Ok(())
    }
}

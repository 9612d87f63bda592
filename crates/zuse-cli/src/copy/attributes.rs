//! Owner, mode, extended attributes and times of objects copied to the host.
//!
//! In this order: a change of owner removes set-id bits and capabilities, and everything changes
//! times. All calls use an open descriptor, or the very object that was created. They never use a
//! path, which another process could have changed.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Gid, Timespec, Timestamps, Uid, XattrFlags, chownat, fchown, fsetxattr, futimens,
    setxattr,
};
use zuse::Credentials;
use zuse::tools::FileSystem;
use zuse_zpl::{Znode, mode};

use super::below::{Made, path_of};

/// What gets attributes.
pub enum Target<'a> {
    /// A file or directory that is open.
    Open(&'a File),
    /// An object that is not opened: a link, FIFO, socket or device.
    Closed(&'a Made<'a>),
}

/// Which attributes are kept.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// Owners, and the attributes that are safe only with them: set-id bits and capabilities.
    owners: bool,
}

impl Keeping {
    /// For this process's user; owners only if they are wanted.
    pub fn new(owners: bool) -> Self {
        Self {
            owners: owners && rustix::process::geteuid().is_root(),
        }
    }

    /// Sets a target's attributes to those of an object.
    ///
    /// # Errors
    /// The object's attributes cannot be read, or the host refuses them.
    pub fn set(self, fs: &FileSystem, znode: &Arc<Znode>, target: &Target<'_>) -> io::Result<()> {
        let a = znode.attributes();
        let handle = match target {
            Target::Open(_) => None,
            Target::Closed(made) => Some(made.handle()?),
        };
        if self.owners {
            let uid = u32::try_from(a.uid).ok().map(Uid::from_raw);
            let gid = u32::try_from(a.gid).ok().map(Gid::from_raw);
            match (target, &handle) {
                (Target::Open(file), _) => fchown(file, uid, gid)?,
                (_, Some(handle)) => chownat(handle, "", uid, gid, AtFlags::EMPTY_PATH)?,
                (Target::Closed(_), None) => {}
            }
        }
        let path = handle.as_ref().and_then(path_of);
        let xattrs = self.xattrs(fs, znode, target, path.as_deref());
        let bits = match self.owners {
            true => a.mode & 0o7777,
            false => a.mode & 0o1777,
        };
        match (target, &path) {
            (Target::Open(file), _) => file.set_permissions(Permissions::from_mode(bits))?,
            (Target::Closed(_), Some(path)) if a.kind() != mode::SYMLINK => {
                std::fs::set_permissions(path, Permissions::from_mode(bits))?;
            }
            (Target::Closed(_), _) => {}
        }
        let time = |t: zuse_base::Timestamp| Timespec {
            tv_sec: t.secs,
            tv_nsec: t.nanos.into(),
        };
        let times = Timestamps {
            last_access: time(a.atime),
            last_modification: time(a.mtime),
        };
        match target {
            Target::Open(file) => futimens(file, &times)?,
            Target::Closed(made) => made.set_times(&times)?,
        }
        xattrs
    }

    fn xattrs(
        self,
        fs: &FileSystem,
        znode: &Arc<Znode>,
        target: &Target<'_>,
        path: Option<&str>,
    ) -> io::Result<()> {
        let root = Credentials::root();
        let unreadable = |e: zuse::Error| io::Error::other(e.to_string());
        for name in fs.list_xattrs(&root, znode).map_err(unreadable)? {
            let of_system = name.starts_with(b"security.") || name.starts_with(b"trusted.");
            if of_system && !self.owners {
                continue;
            }
            let value = fs.get_xattr(&root, znode, &name).map_err(unreadable)?;
            let (own, how) = (OsStr::from_bytes(&name), XattrFlags::empty());
            let set = match (target, path) {
                (Target::Open(file), _) => fsetxattr(file, own, &value, how),
                (Target::Closed(_), Some(path)) => setxattr(path, own, &value, how),
                (Target::Closed(_), None) => Ok(()),
            };
            match set {
                Ok(()) => {}
                // The host does not support that kind, or only for root.
                Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM) => {}
                Err(_) if !name.starts_with(b"user.") => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

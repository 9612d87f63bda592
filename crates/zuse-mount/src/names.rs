//! Requests about names: look up, create, remove, rename, link.

use std::sync::Arc;

use zuse_base::Errno;
use zuse_fuse::{Attr, Caller, RenameFlags};
use zuse_zpl::{FileSystem, LookedUp, Znode};

use crate::attributes;
use crate::covers::Cover;
use crate::number;
use crate::session::{Answer, Session, credentials, no};
use crate::table::{Node, What};
use crate::volume::Volume;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;

/// A directory in which a name is to be changed, with its gate passed.
fn object(node: &Node) -> Answer<(&Arc<Volume>, &Arc<Znode>)> {
    node.object()
}

impl Session {
    pub fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Answer<Attr> {
        if matches!(name, b"." | b"..") {
            return self.by_number(parent, name == b"..");
        }
        // Covers come first: as under a mount, the directory's own entry of that name is hidden.
        match self.cover(parent, name) {
            Some(Cover::Root(volume)) => return self.give_root(&volume),
            Some(Cover::Virtual(dir)) => return self.give_virtual(&dir),
            Some(Cover::Through(_)) | None => {}
        }
        let node = self.node(parent)?;
        match &node.what {
            What::Object(volume, dir) => {
                let fs = volume.enter()?;
                if parent == volume.root && name == zuse_zpl::DOT_ZFS_NAME {
                    return self.dot_zfs(&fs, volume);
                }
                match fs
                    .lookup_stat(&credentials(caller), dir, name)
                    .map_err(no)?
                {
                    LookedUp::Object(znode) => Ok(self.give(&fs, volume, &znode)),
                    LookedUp::Stored(stat) => Ok(self.give_listed(&fs, volume, &stat)),
                }
            }
            What::DotZfs(volume) => self.in_dot_zfs(volume, name),
            What::Snapshots(volume) => self.snapshot(volume, name),
            What::Virtual(_) => Err(Errno::NOENT),
            What::Listed(..) | What::Gone(..) => Err(Errno::STALE),
        }
    }

    /// An inode by its number, or its directory. The kernel asks this for file handles whose inodes
    /// it has forgotten. It compares the generations itself.
    fn by_number(&self, ino: u64, above: bool) -> Answer<Attr> {
        let (volume, znode) = match self.node(ino) {
            Ok(node) => {
                let (volume, znode) = node.object().map_err(|_| Errno::STALE)?;
                (volume.clone(), znode.clone())
            }
            // The kernel has forgotten it, but an NFS client has not.
            Err(_) => {
                let volume = self.volume_at(number::slot(ino)).ok_or(Errno::STALE)?;
                let znode = volume
                    .enter()?
                    .by_number(number::object(ino))
                    .map_err(|_| Errno::STALE)?;
                (volume, znode)
            }
        };
        let fs = volume.enter()?;
        if !above {
            return Ok(self.give(&fs, &volume, &znode));
        }
        let parent = fs.parent_of(&znode).map_err(|_| Errno::STALE)?;
        Ok(self.give(&fs, &volume, &parent))
    }

    /// Creates an object in a directory and gives the kernel a reference to it.
    fn make(
        &self,
        parent: u64,
        name: &[u8],
        make: impl FnOnce(&FileSystem, &Arc<Znode>) -> zuse_base::Result<Arc<Znode>>,
    ) -> Answer<Attr> {
        let node = self.node(parent)?;
        let (volume, dir) = object(&node)?;
        // A mount point has the name, even if the directory itself lacks it.
        if self.cover(parent, name).is_some() {
            return Err(Errno::EXIST);
        }
        let fs = volume.enter()?;
        let made = make(&fs, dir).map_err(no)?;
        Ok(self.give(&fs, volume, &made))
    }

    pub fn mknod(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Answer<Attr> {
        let who = credentials(caller);
        self.make(parent, name, |fs, dir| {
            if mode & S_IFMT == S_IFREG {
                return fs.create(&who, dir, name, mode);
            }
            let (major, minor) = attributes::split_device(rdev);
            fs.mknod(&who, dir, name, mode, zuse_zpl::device_number(major, minor))
        })
    }

    /// Creates an unlinked file and gives the kernel a reference to it.
    pub fn tmpfile(&self, caller: &Caller, parent: u64, mode: u32) -> Answer<Attr> {
        let node = self.node(parent)?;
        let (volume, dir) = object(&node)?;
        let fs = volume.enter()?;
        let made = fs.tmpfile(&credentials(caller), dir, mode).map_err(no)?;
        Ok(self.give(&fs, volume, &made))
    }

    pub fn mkdir(&self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Answer<Attr> {
        if let What::Snapshots(volume) = &self.node(parent)?.what {
            return self.make_snapshot(caller, volume, name);
        }
        let who = credentials(caller);
        self.make(parent, name, |fs, dir| fs.mkdir(&who, dir, name, mode))
    }

    pub fn symlink(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Answer<Attr> {
        let who = credentials(caller);
        self.make(parent, name, |fs, dir| fs.symlink(&who, dir, name, target))
    }

    pub fn unlink(&self, caller: &Caller, parent: u64, name: &[u8]) -> Answer<()> {
        let node = self.node(parent)?;
        let (volume, dir) = object(&node)?;
        // What is shown there is a directory, whatever the entry below it is.
        if self.cover(parent, name).is_some() {
            return Err(Errno::ISDIR);
        }
        let fs = volume.enter()?;
        fs.unlink(&credentials(caller), dir, name).map_err(no)
    }

    pub fn rmdir(&self, caller: &Caller, parent: u64, name: &[u8]) -> Answer<()> {
        let node = self.node(parent)?;
        if let What::Snapshots(volume) = &node.what {
            return self.destroy_snapshot(caller, volume, name);
        }
        let covered = self.cover(parent, name).is_some();
        let (volume, dir) = match object(&node) {
            Err(Errno::PERM) if covered => return Err(Errno::BUSY),
            other => other?,
        };
        if covered {
            return Err(Errno::BUSY);
        }
        let fs = volume.enter()?;
        fs.rmdir(&credentials(caller), dir, name).map_err(no)
    }

    pub fn rename(
        &self,
        caller: &Caller,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        flags: RenameFlags,
    ) -> Answer<()> {
        let (from, to) = (self.node(parent)?, self.node(new_parent)?);
        if let (What::Snapshots(a), What::Snapshots(b)) = (&from.what, &to.what)
            && Arc::ptr_eq(a, b)
        {
            return self.rename_snapshot(caller, a, (name, new_name));
        }
        let (volume, from_dir) = object(&from)?;
        let (to_volume, to_dir) = object(&to)?;
        // As between separate mounts: rename(2) cannot leave its file system.
        if !Arc::ptr_eq(volume, to_volume) {
            return Err(Errno::XDEV);
        }
        if self.cover(parent, name).is_some() || self.cover(new_parent, new_name).is_some() {
            return Err(Errno::BUSY);
        }
        let how = zuse_zpl::RenameFlags {
            no_replace: flags.no_replace,
            exchange: flags.exchange,
            whiteout: flags.whiteout,
        };
        let fs = volume.enter()?;
        fs.rename(&credentials(caller), from_dir, name, to_dir, new_name, how)
            .map_err(no)
    }

    pub fn link(
        &self,
        caller: &Caller,
        ino: u64,
        new_parent: u64,
        new_name: &[u8],
    ) -> Answer<Attr> {
        let (node, to) = (self.node(ino)?, self.node(new_parent)?);
        let (volume, znode) = object(&node)?;
        let (to_volume, dir) = object(&to)?;
        if !Arc::ptr_eq(volume, to_volume) {
            return Err(Errno::XDEV);
        }
        if self.cover(new_parent, new_name).is_some() {
            return Err(Errno::EXIST);
        }
        let fs = volume.enter()?;
        fs.link(&credentials(caller), znode, dir, new_name)
            .map_err(no)?;
        Ok(self.give(&fs, volume, znode))
    }
}

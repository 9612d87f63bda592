//! Attributes, space and extended attributes: converted from the file system's form to the
//! kernel's.

use std::sync::Arc;

use zuse_base::{Errno, Timestamp};
use zuse_fuse::{Attr, Caller, Replied, SetAttr, StatFs, Time, TimeSet, ValueReply, XattrMode};
use zuse_zpl::{FileSystem, Znode};

use crate::number;
use crate::session::{Answer, Session, credentials, no};
use crate::table::{Node, What};
use crate::volume::Volume;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
/// How the names of POSIX ACLs begin.
const POSIX_ACL: &[u8] = b"system.posix_acl_";
/// Owner for objects whose owner has no number.
const NOBODY: u32 = 65_534;

/// Major and minor number of a device as the kernel encodes it in 32 bits.
pub(crate) fn split_device(rdev: u32) -> (u32, u32) {
    (
        (rdev & 0xf_ff00) >> 8,
        rdev & 0xff | (rdev >> 12) & 0xf_ff00,
    )
}

fn join_device((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

fn time(t: Timestamp) -> Time {
    (t.secs, t.nanos)
}

fn id(fuid: u64) -> u32 {
    u32::try_from(fuid).unwrap_or(NOBODY)
}

/// Attributes of an object.
///
/// Its block count is as of the last txg. The kernel caches it, so it has to be notified of a
/// change.
pub(crate) fn of_object(fs: &FileSystem, ino: u64, node: &Node, znode: &Arc<Znode>) -> Attr {
    // Before the count is read: a txg that is written in between changes it, and must be noted.
    let will_grow = znode.dnode().is_dirty();
    let attr = of_stat(fs, ino, node, &fs.getattr(znode));
    if let (true, Some(volume)) = (will_grow, node.volume()) {
        volume.growing.lock().insert(ino, attr.blocks);
    }
    attr
}

/// The same from `stat` data.
pub(crate) fn of_stat(fs: &FileSystem, ino: u64, node: &Node, stat: &zuse_zpl::Attr) -> Attr {
    let a = &stat.attributes;
    let replaced = node.replaced.load(std::sync::atomic::Ordering::Relaxed);
    let mut nlink = u32::try_from(a.links).unwrap_or(u32::MAX);
    if stat.object == fs.root_id() && fs.shows_dot_zfs() {
        // `.zfs` counts as a sub-directory where it is shown (03c §7).
        nlink = nlink.saturating_add(1);
    }
    let volume = node.volume().filter(|_| ino == number::ROOT);
    Attr {
        ino,
        shown: volume.map(|v| number::of(v.slot, stat.object)),
        size: a.size,
        blocks: stat.blocks,
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
        crtime: time(a.crtime),
        mode: a.mode,
        nlink,
        uid: id(a.uid),
        gid: id(a.gid),
        rdev: join_device(stat.device()),
        blksize: stat.blksize,
        // The kernel compares the low half. Files replaced in place must get another generation.
        generation: u64::from((a.generation as u32) ^ replaced.wrapping_mul(0x9e37_79b9)),
    }
}

/// Attributes of `.zfs` and `.zfs/snapshot`: times are those of the file system's creation.
pub(crate) fn of_control(fs: &FileSystem, ino: u64, nlink: u32) -> Attr {
    let born = fs
        .root()
        .map(|root| time(root.attributes().crtime))
        .unwrap_or_default();
    virtual_directory(ino, nlink, born)
}

/// Attributes of a directory that does not exist.
pub(crate) fn of_virtual(ino: u64, volume: &Volume) -> Answer<Attr> {
    Ok(of_control(&*volume.enter()?, ino, 2))
}

fn virtual_directory(ino: u64, nlink: u32, born: Time) -> Attr {
    Attr {
        ino,
        shown: None,
        size: 2,
        blocks: 0,
        atime: born,
        mtime: born,
        ctime: born,
        crtime: born,
        mode: DIRECTORY | 0o555,
        nlink,
        blksize: 512,
        ..Attr::default()
    }
}

/// The mode of a file after a user outside of its group changes it. Linux clears the set-group-id
/// bit then, even if the group may not execute the file and the bit has no effect.
fn without_foreign_group(caller: &Caller, znode: &Znode) -> Option<u32> {
    let a = znode.attributes();
    let concerned = a.kind() == REGULAR && a.mode & 0o2010 == 0o2000;
    if !concerned || caller.uid == 0 || u32::try_from(a.gid).is_ok_and(|g| caller.in_group(g)) {
        return None;
    }
    Some(a.mode & 0o5777)
}

fn time_set(t: TimeSet) -> zuse_zpl::TimeSet {
    match t {
        TimeSet::Now => zuse_zpl::TimeSet::Now,
        TimeSet::At(t) => zuse_zpl::TimeSet::At(Timestamp::new(t.0, t.1)),
    }
}

impl Session {
    pub fn getattr(&self, ino: u64) -> Answer<Attr> {
        let node = self.node(ino)?;
        match &node.what {
            What::Object(volume, znode) => Ok(of_object(&*volume.enter()?, ino, &node, znode)),
            What::DotZfs(volume) => Ok(of_control(&*volume.enter()?, ino, 3)),
            What::Snapshots(volume) => Ok(of_control(&*volume.enter()?, ino, 2)),
            What::Virtual(dir) => of_virtual(ino, &dir.volume),
            What::Listed(..) | What::Gone(..) => Err(Errno::STALE),
        }
    }

    pub fn setattr(&self, caller: &Caller, ino: u64, set: &SetAttr) -> Answer<Attr> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let mode = match set.mode {
            None if set.kill_suidgid => without_foreign_group(caller, znode),
            mode => mode.map(|m| m & 0o7777),
        };
        let change = zuse_zpl::SetAttr {
            mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(time_set),
            mtime: set.mtime.map(time_set),
            ctime: set.ctime.map(|t| Timestamp::new(t.0, t.1)),
            kill_suidgid: set.kill_suidgid,
        };
        let fs = volume.enter()?;
        fs.setattr(&credentials(caller), znode, &change)
            .map_err(no)?;
        Ok(of_object(&fs, ino, &node, znode))
    }

    pub fn statfs(&self, ino: u64) -> Answer<StatFs> {
        let node = self.node(ino)?;
        let volume = match &node.what {
            What::Object(v, _) | What::Listed(v, _) | What::DotZfs(v) | What::Snapshots(v) => v,
            What::Virtual(dir) => &dir.volume,
            What::Gone(..) => return Err(Errno::STALE),
        };
        let s = volume.enter()?.statfs();
        Ok(StatFs {
            blocks: s.blocks,
            bfree: s.free,
            bavail: s.free,
            files: s.files,
            ffree: s.files_free,
            bsize: s.unit,
            namelen: s.name_max,
            frsize: s.unit,
        })
    }

    pub fn getxattr(
        &self,
        caller: &Caller,
        ino: u64,
        name: &[u8],
        reply: ValueReply<'_>,
    ) -> Answer<Replied> {
        let mut reply = Some(reply);
        let mut answer = |value: &[u8]| reply.take().map(|r| r.value(value));
        if let What::Listed(volume, listed) = &self.table.get(ino)?.what {
            let fs = volume.enter()?;
            // The kernel asks for the ACL of each file before it checks access. Without ACLs the
            // answer needs no object.
            if name.starts_with(POSIX_ACL) && !fs.props().posix_acl {
                return Err(Errno::NODATA);
            }
            let file = (listed.object, listed.generation);
            let replied = fs.get_stored_xattr(&credentials(caller), file, name, &mut answer);
            if let Some(replied) = replied.map_err(no)? {
                return replied.ok_or(Errno::IO);
            }
        }
        let node = self.node(ino)?;
        let Ok((volume, znode)) = node.object() else {
            return Err(Errno::NODATA);
        };
        let fs = volume.enter()?;
        let replied = fs
            .get_xattr_with(&credentials(caller), znode, name, answer)
            .map_err(no);
        replied?.ok_or(Errno::IO)
    }

    pub fn listxattr(&self, caller: &Caller, ino: u64) -> Answer<Vec<u8>> {
        let node = self.node(ino)?;
        let Ok((volume, znode)) = node.object() else {
            return Ok(Vec::new());
        };
        let fs = volume.enter()?;
        let names = fs.list_xattrs(&credentials(caller), znode).map_err(no);
        let names = names?;
        let mut out = Vec::with_capacity(names.iter().map(|n| n.len() + 1).sum());
        for name in &names {
            out.extend_from_slice(name);
            out.push(0);
        }
        Ok(out)
    }

    pub fn setxattr(
        &self,
        caller: &Caller,
        ino: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Answer<()> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let how = match mode {
            XattrMode::Any => zuse_zpl::XattrMode::Any,
            XattrMode::Create => zuse_zpl::XattrMode::Create,
            XattrMode::Replace => zuse_zpl::XattrMode::Replace,
        };
        volume
            .enter()?
            .set_xattr(&credentials(caller), znode, name, value, how)
            .map_err(no)
    }

    pub fn removexattr(&self, caller: &Caller, ino: u64, name: &[u8]) -> Answer<()> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        volume
            .enter()?
            .remove_xattr(&credentials(caller), znode, name)
            .map_err(no)
    }
}

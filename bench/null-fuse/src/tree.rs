//! The tree: names and attributes in memory, no data. Written bytes are discarded, reads are zeros.
//!
//! One lock, held for a few map accesses; nothing else is done, so that what a benchmark shows is
//! the cost of FUSE.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use zuse_fuse::{
    Attr, Caller, DirSink, Errno, Opened, Ops, ReadReply, RenameFlags, Replied, SetAttr, StatFs,
    Time, TimeSet, Whence, WriteFlags, XattrMode,
};

type Result<T> = std::result::Result<T, Errno>;

const DIR: u32 = 0o040_000;
const IFMT: u32 = 0o170_000;
const ZEROS: &[u8] = &[0; 1 << 20];

/// A cheap hash: the keys are our own.
#[derive(Default)]
struct Fast(u64);

impl Hasher for Fast {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Fast>>;

#[derive(Default)]
struct Dir {
    parent: u64,
    /// Name to place in the listing.
    places: Map<Box<[u8]>, u64>,
    listing: BTreeMap<u64, (Box<[u8]>, u64)>,
    last: u64,
}

impl Dir {
    fn find(&self, name: &[u8]) -> Option<u64> {
        self.listing
            .get(self.places.get(name)?)
            .map(|entry| entry.1)
    }

    fn insert(&mut self, name: &[u8], ino: u64) {
        self.last += 1;
        self.places.insert(name.into(), self.last);
        self.listing.insert(self.last, (name.into(), ino));
    }

    fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let place = self.places.remove(name)?;
        self.listing.remove(&place).map(|entry| entry.1)
    }
}

struct Node {
    attr: Attr,
    dir: Option<Box<Dir>>,
    target: Vec<u8>,
    /// Length of the one extended attribute that is remembered; its value reads as zeros.
    xattr: Option<usize>,
}

struct State {
    nodes: Map<u64, Node>,
    last: u64,
}

impl State {
    fn node(&mut self, ino: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    fn dir(&mut self, ino: u64) -> Result<&mut Dir> {
        self.node(ino)?.dir.as_deref_mut().ok_or(Errno::NOTDIR)
    }

    fn make(
        &mut self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<&mut Node> {
        let ino = self.last + 1;
        let dir = self.dir(parent)?;
        if dir.places.contains_key(name) {
            return Err(Errno::EXIST);
        }
        dir.insert(name, ino);
        self.last = ino;
        let is_dir = mode & IFMT == DIR;
        let time = now();
        let attr = Attr {
            ino,
            mode,
            rdev,
            nlink: 1 + u32::from(is_dir),
            uid: caller.uid,
            gid: caller.gid,
            atime: time,
            mtime: time,
            ctime: time,
            blksize: 131_072,
            ..Attr::default()
        };
        let dir = is_dir.then(|| {
            Box::new(Dir {
                parent,
                ..Dir::default()
            })
        });
        Ok(self.nodes.entry(ino).or_insert(Node {
            attr,
            dir,
            target: Vec::new(),
            xattr: None,
        }))
    }

    fn unlink(&mut self, parent: u64, name: &[u8]) -> Result<()> {
        let ino = self.dir(parent)?.remove(name).ok_or(Errno::NOENT)?;
        let attr = &mut self.node(ino)?.attr;
        attr.nlink = if attr.mode & IFMT == DIR {
            0
        } else {
            attr.nlink.saturating_sub(1)
        };
        Ok(())
    }
}

fn now() -> Time {
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    (time.as_secs() as i64, time.subsec_nanos())
}

/// The file system.
pub struct Tree(Mutex<State>);

impl Tree {
    /// An empty root.
    pub fn new() -> Self {
        let (uid, gid) = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        let attr = Attr {
            ino: 1,
            mode: DIR | 0o755,
            nlink: 2,
            uid,
            gid,
            blksize: 131_072,
            ..Attr::default()
        };
        let root = Node {
            attr,
            dir: Some(Box::new(Dir {
                parent: 1,
                ..Dir::default()
            })),
            target: Vec::new(),
            xattr: None,
        };
        let state = Mutex::new(State {
            nodes: Map::from_iter([(1, root)]),
            last: 1,
        });
        Self(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ops for Tree {
    fn lookup(&self, _caller: &Caller, parent: u64, name: &[u8]) -> Result<Attr> {
        let mut state = self.lock();
        let ino = state.dir(parent)?.find(name).ok_or(Errno::NOENT)?;
        Ok(state.node(ino)?.attr)
    }

    fn forget(&self, ino: u64, _n: u64) {
        let mut state = self.lock();
        if state.nodes.get(&ino).is_some_and(|n| n.attr.nlink == 0) {
            state.nodes.remove(&ino);
        }
    }

    fn getattr(&self, ino: u64, _fh: Option<u64>) -> Result<Attr> {
        Ok(self.lock().node(ino)?.attr)
    }

    fn setattr(&self, _caller: &Caller, ino: u64, _fh: Option<u64>, set: &SetAttr) -> Result<Attr> {
        let mut state = self.lock();
        let attr = &mut state.node(ino)?.attr;
        let time = |t: TimeSet| match t {
            TimeSet::Now => now(),
            TimeSet::At(t) => t,
        };
        attr.mode = set
            .mode
            .map_or(attr.mode, |m| attr.mode & IFMT | m & 0o7777);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.size = set.size.unwrap_or(attr.size);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = set.ctime.unwrap_or_else(now);
        Ok(*attr)
    }

    fn readlink(&self, ino: u64) -> Result<Vec<u8>> {
        Ok(self.lock().node(ino)?.target.clone())
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        Ok(self.lock().make(caller, parent, name, mode, rdev)?.attr)
    }

    fn mkdir(&self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Result<Attr> {
        Ok(self
            .lock()
            .make(caller, parent, name, DIR | mode & 0o7777, 0)?
            .attr)
    }

    fn unlink(&self, _caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.lock().unlink(parent, name)
    }

    fn rmdir(&self, _caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let ino = state.dir(parent)?.find(name).ok_or(Errno::NOENT)?;
        if !state.dir(ino)?.places.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        state.unlink(parent, name)
    }

    fn symlink(&self, caller: &Caller, parent: u64, name: &[u8], target: &[u8]) -> Result<Attr> {
        let mut state = self.lock();
        let node = state.make(caller, parent, name, 0o120_777, 0)?;
        node.target = target.to_vec();
        node.attr.size = target.len() as u64;
        Ok(node.attr)
    }

    fn rename(
        &self,
        _caller: &Caller,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        if flags != RenameFlags::default() {
            return Err(Errno::INVAL);
        }
        let mut state = self.lock();
        let ino = state.dir(parent)?.remove(name).ok_or(Errno::NOENT)?;
        let _ = state.unlink(new_parent, new_name);
        state.dir(new_parent)?.insert(new_name, ino);
        if let Ok(dir) = state.dir(ino) {
            dir.parent = new_parent;
        }
        Ok(())
    }

    fn link(&self, _caller: &Caller, ino: u64, new_parent: u64, new_name: &[u8]) -> Result<Attr> {
        let mut state = self.lock();
        state.dir(new_parent)?.insert(new_name, ino);
        let node = state.node(ino)?;
        node.attr.nlink += 1;
        Ok(node.attr)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        _flags: u32,
    ) -> Result<(Attr, Opened)> {
        Ok((
            self.lock().make(caller, parent, name, mode, 0)?.attr,
            Opened::cached(0),
        ))
    }

    fn read(
        &self,
        ino: u64,
        _fh: u64,
        offset: u64,
        size: u32,
        reply: ReadReply<'_>,
    ) -> Result<Replied> {
        let left = self.lock().node(ino)?.attr.size.saturating_sub(offset);
        let n = left.min(size.into()).min(ZEROS.len() as u64) as usize;
        Ok(reply.bytes(&ZEROS[..n]))
    }

    fn write(
        &self,
        ino: u64,
        _fh: u64,
        offset: u64,
        data: &[u8],
        _flags: WriteFlags,
    ) -> Result<u32> {
        let mut state = self.lock();
        let attr = &mut state.node(ino)?.attr;
        attr.size = attr.size.max(offset + data.len() as u64);
        attr.blocks = attr.size.div_ceil(512);
        Ok(data.len() as u32)
    }

    fn fsync(&self, _ino: u64, _fh: u64, _datasync: bool) -> Result<()> {
        Ok(())
    }

    fn readdir(
        &self,
        _caller: &Caller,
        ino: u64,
        _fh: u64,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let state = self.lock();
        let dir = state
            .nodes
            .get(&ino)
            .ok_or(Errno::STALE)?
            .dir
            .as_deref()
            .ok_or(Errno::NOTDIR)?;
        if offset < 1 && sink.add(ino, 1, DIR, b".", None)
            || offset < 2 && sink.add(dir.parent, 2, DIR, b"..", None)
        {
            return Ok(());
        }
        for (&place, (name, ino)) in dir.listing.range(offset.saturating_sub(1)..) {
            if let Some(node) = state.nodes.get(ino)
                && sink.add(*ino, place + 2, node.attr.mode, name, Some(&node.attr))
            {
                break;
            }
        }
        Ok(())
    }

    fn setxattr(
        &self,
        _caller: &Caller,
        ino: u64,
        _name: &[u8],
        value: &[u8],
        _mode: XattrMode,
    ) -> Result<()> {
        self.lock().node(ino)?.xattr = Some(value.len());
        Ok(())
    }

    fn getxattr(&self, _caller: &Caller, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        let len = self.lock().node(ino)?.xattr;
        match len {
            Some(len) if name.starts_with(b"user.") => Ok(ZEROS[..len.min(ZEROS.len())].to_vec()),
            _ => Err(Errno::NODATA),
        }
    }

    fn statfs(&self, _ino: u64) -> Result<StatFs> {
        let (blocks, files) = (1 << 32, 1 << 40);
        Ok(StatFs {
            blocks,
            bfree: blocks,
            bavail: blocks,
            files,
            ffree: files,
            bsize: 131_072,
            namelen: 255,
            frsize: 4096,
        })
    }

    fn lseek(&self, ino: u64, _fh: u64, offset: u64, whence: Whence) -> Result<u64> {
        let size = self.lock().node(ino)?.attr.size;
        match whence {
            _ if offset >= size => Err(Errno::NXIO),
            Whence::Data => Ok(offset),
            Whence::Hole => Ok(size),
        }
    }
}

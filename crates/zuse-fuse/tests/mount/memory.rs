//! A file system in memory, for the tests of the session. One lock, sparse files in 4 KiB pages.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use zuse_fuse::{
    Attr, Attributes, Caller, CopyRange, DirSink, Errno, Notifier, Opened, Ops, ReadReply,
    RenameFlags, Replied, SetAttr, StatFs, Time, TimeSet, Whence, WriteFlags, XattrMode,
};

type Result<T> = std::result::Result<T, Errno>;

const PAGE: u64 = 4096;
const DIR: u32 = 0o040_000;
const IFMT: u32 = 0o170_000;

fn now() -> Time {
    let d = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (d.as_secs() as i64, d.subsec_nanos())
}

#[derive(Default)]
struct Node {
    attr: Attr,
    parent: u64,
    names: BTreeMap<Vec<u8>, u64>,
    pages: BTreeMap<u64, Vec<u8>>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    refs: u64,
}

impl Node {
    fn is_dir(&self) -> bool {
        self.attr.mode & IFMT == DIR
    }

    fn truncate(&mut self, size: u64) {
        if size < self.attr.size {
            self.pages.retain(|&page, _| page * PAGE < size);
            if let Some(last) = self.pages.get_mut(&(size / PAGE)) {
                last[(size % PAGE) as usize..].fill(0);
            }
        }
        self.attr.size = size;
        self.touch();
    }

    fn touch(&mut self) {
        self.attr.mtime = now();
        self.attr.ctime = self.attr.mtime;
        self.attr.blocks = self.pages.len() as u64 * (PAGE / 512);
    }

    fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        self.attr.size = self.attr.size.max(offset + data.len() as u64);
        while !data.is_empty() {
            let at = (offset % PAGE) as usize;
            let n = data.len().min(PAGE as usize - at);
            let page = self
                .pages
                .entry(offset / PAGE)
                .or_insert_with(|| vec![0; PAGE as usize]);
            page[at..at + n].copy_from_slice(&data[..n]);
            (offset, data) = (offset + n as u64, &data[n..]);
        }
        self.touch();
    }

    fn read(&self, offset: u64, size: u64) -> Vec<Vec<u8>> {
        let end = self.attr.size.min(offset.saturating_add(size));
        let (mut at, mut parts) = (offset, Vec::new());
        while at < end {
            let n = (PAGE - at % PAGE).min(end - at) as usize;
            let from = (at % PAGE) as usize;
            parts.push(match self.pages.get(&(at / PAGE)) {
                Some(page) => page[from..from + n].to_vec(),
                None => vec![0; n],
            });
            at += n as u64;
        }
        parts
    }

    fn kill(&mut self) {
        if !self.is_dir() {
            self.attr.mode &= !0o4000;
            if self.attr.mode & 0o010 != 0 {
                self.attr.mode &= !0o2000;
            }
            self.xattrs.remove(&b"security.capability"[..]);
        }
    }
}

#[derive(Default)]
struct State {
    nodes: HashMap<u64, Node>,
    last_ino: u64,
    listings: HashMap<u64, Vec<(Vec<u8>, u64)>>,
    last_fh: u64,
}

impl State {
    fn node(&mut self, ino: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    fn child(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        self.node(parent)?
            .names
            .get(name)
            .copied()
            .ok_or(Errno::NOENT)
    }

    fn make(&mut self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Result<&mut Node> {
        if self.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        self.last_ino += 1;
        let (ino, time) = (self.last_ino, now());
        let attr = Attr {
            ino,
            mode,
            nlink: if mode & IFMT == DIR { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            blksize: PAGE as u32,
            generation: 1,
            ..Attr::default()
        };
        let dir = self.node(parent)?;
        dir.names.insert(name.to_vec(), ino);
        dir.touch();
        if mode & IFMT == DIR {
            dir.attr.nlink += 1;
        }
        self.nodes.insert(
            ino,
            Node {
                attr,
                parent,
                refs: 1,
                ..Node::default()
            },
        );
        self.node(ino)
    }

    fn drop_name(&mut self, parent: u64, name: &[u8]) -> Result<()> {
        let ino = self.child(parent, name)?;
        let is_dir = self.node(ino)?.is_dir();
        let dir = self.node(parent)?;
        dir.names.remove(name);
        dir.touch();
        if is_dir {
            dir.attr.nlink -= 1;
        }
        let node = self.node(ino)?;
        node.attr.nlink = if is_dir { 0 } else { node.attr.nlink - 1 };
        node.attr.ctime = now();
        self.sweep(ino);
        Ok(())
    }

    fn sweep(&mut self, ino: u64) {
        if self
            .nodes
            .get(&ino)
            .is_some_and(|n| n.refs == 0 && n.attr.nlink == 0)
        {
            self.nodes.remove(&ino);
        }
    }
}

/// Numbers of requests of the kernel.
#[derive(Default)]
pub struct RequestCounts {
    pub lookup: AtomicU64,
    pub getattr: AtomicU64,
    pub getxattr: AtomicU64,
    pub open: AtomicU64,
    pub create: AtomicU64,
    pub release: AtomicU64,
    pub read: AtomicU64,
    pub write: AtomicU64,
    pub fsync: AtomicU64,
    pub largest_write: AtomicU64,
}

pub struct MemoryFs {
    state: Mutex<State>,
    pub requests: RequestCounts,
    pub destroyed: AtomicU64,
    /// If set, each read invalidates the pages that it reads.
    pub invalidate: OnceLock<Notifier>,
}

impl MemoryFs {
    pub fn new() -> Self {
        let mut state = State {
            last_ino: 1,
            ..State::default()
        };
        let time = now();
        let attr = Attr {
            ino: 1,
            mode: DIR | 0o777,
            nlink: 2,
            atime: time,
            mtime: time,
            ctime: time,
            blksize: PAGE as u32,
            ..Attr::default()
        };
        state.nodes.insert(
            1,
            Node {
                attr,
                parent: 1,
                refs: 1,
                ..Node::default()
            },
        );
        Self {
            state: Mutex::new(state),
            requests: RequestCounts::default(),
            destroyed: AtomicU64::new(0),
            invalidate: OnceLock::new(),
        }
    }

    /// Replaces a file without the kernel, as a rollback would.
    pub fn overwrite(&self, name: &[u8], data: &[u8]) -> u64 {
        let mut state = self.state.lock().unwrap();
        let ino = state.child(1, name).unwrap();
        let node = state.node(ino).unwrap();
        node.truncate(0);
        node.write(0, data);
        node.attr.generation += 1;
        ino
    }

    /// Adds a file behind the kernel's back.
    pub fn plant(&self, name: &[u8]) {
        let mut state = self.state.lock().unwrap();
        state
            .make(&Caller::default(), 1, name, 0o100_644)
            .unwrap()
            .refs = 0;
    }

    /// Number of live inodes.
    pub fn inodes(&self) -> usize {
        self.state.lock().unwrap().nodes.len()
    }
}

impl Ops for MemoryFs {
    fn destroy(&self) {
        self.destroyed.fetch_add(1, Relaxed);
    }

    fn lookup(&self, _caller: &Caller, parent: u64, name: &[u8]) -> Result<Attr> {
        self.requests.lookup.fetch_add(1, Relaxed);
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        if name == b"panic" {
            panic!("a bug in the file system");
        }
        let mut state = self.state.lock().unwrap();
        let ino = state.child(parent, name)?;
        let node = state.node(ino)?;
        node.refs += 1;
        Ok(node.attr)
    }

    fn forget(&self, ino: u64, n: u64) {
        let mut state = self.state.lock().unwrap();
        if let Ok(node) = state.node(ino) {
            node.refs = node
                .refs
                .checked_sub(n)
                .expect("more forgotten than looked up");
        }
        state.sweep(ino);
    }

    fn getattr(&self, ino: u64, _fh: Option<u64>) -> Result<Attr> {
        self.requests.getattr.fetch_add(1, Relaxed);
        Ok(self.state.lock().unwrap().node(ino)?.attr)
    }

    fn setattr(&self, _caller: &Caller, ino: u64, _fh: Option<u64>, set: &SetAttr) -> Result<Attr> {
        let mut state = self.state.lock().unwrap();
        let node = state.node(ino)?;
        let time = |t: TimeSet| match t {
            TimeSet::Now => now(),
            TimeSet::At(t) => t,
        };
        if let Some(size) = set.size {
            node.truncate(size);
        }
        if set.kill_suidgid {
            node.kill();
        }
        let attr = &mut node.attr;
        attr.mode = set
            .mode
            .map_or(attr.mode, |m| attr.mode & IFMT | m & 0o7777);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = set.ctime.unwrap_or_else(now);
        Ok(*attr)
    }

    fn readlink(&self, ino: u64) -> Result<Vec<u8>> {
        Ok(self.state.lock().unwrap().node(ino)?.target.clone())
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        let mut state = self.state.lock().unwrap();
        let node = state.make(caller, parent, name, mode)?;
        node.attr.rdev = rdev;
        Ok(node.attr)
    }

    fn mkdir(&self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Result<Attr> {
        Ok(self
            .state
            .lock()
            .unwrap()
            .make(caller, parent, name, DIR | mode & 0o7777)?
            .attr)
    }

    fn unlink(&self, _caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.state.lock().unwrap().drop_name(parent, name)
    }

    fn rmdir(&self, _caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let ino = state.child(parent, name)?;
        if !state.node(ino)?.names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        state.drop_name(parent, name)
    }

    fn symlink(&self, caller: &Caller, parent: u64, name: &[u8], target: &[u8]) -> Result<Attr> {
        let mut state = self.state.lock().unwrap();
        let node = state.make(caller, parent, name, 0o120_777)?;
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
        let mut state = self.state.lock().unwrap();
        let ino = state.child(parent, name)?;
        let there = state.child(new_parent, new_name).ok();
        if flags.whiteout || there.is_some() && flags.no_replace {
            return Err(if flags.whiteout {
                Errno::INVAL
            } else {
                Errno::EXIST
            });
        }
        if flags.exchange {
            let other = there.ok_or(Errno::NOENT)?;
            state.node(parent)?.names.insert(name.to_vec(), other);
            state.node(new_parent)?.names.insert(new_name.to_vec(), ino);
            state.node(ino)?.parent = new_parent;
            state.node(other)?.parent = parent;
            return Ok(());
        }
        if let Some(old) = there {
            if !state.node(old)?.names.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            state.drop_name(new_parent, new_name)?;
        }
        state.node(parent)?.names.remove(name);
        state.node(new_parent)?.names.insert(new_name.to_vec(), ino);
        if state.node(ino)?.is_dir() {
            state.node(parent)?.attr.nlink -= 1;
            state.node(new_parent)?.attr.nlink += 1;
        }
        state.node(ino)?.parent = new_parent;
        Ok(())
    }

    fn link(&self, _caller: &Caller, ino: u64, new_parent: u64, new_name: &[u8]) -> Result<Attr> {
        let mut state = self.state.lock().unwrap();
        state.node(new_parent)?.names.insert(new_name.to_vec(), ino);
        let node = state.node(ino)?;
        node.attr.nlink += 1;
        node.refs += 1;
        Ok(node.attr)
    }

    fn open(&self, _caller: &Caller, _ino: u64, _flags: u32) -> Result<Opened> {
        self.requests.open.fetch_add(1, Relaxed);
        Ok(Opened::cached(7))
    }

    fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        _flags: u32,
    ) -> Result<(Attr, Opened)> {
        self.requests.create.fetch_add(1, Relaxed);
        Ok((
            self.state
                .lock()
                .unwrap()
                .make(caller, parent, name, mode)?
                .attr,
            Opened::cached(7),
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
        self.requests.read.fetch_add(1, Relaxed);
        let parts = self
            .state
            .lock()
            .unwrap()
            .node(ino)?
            .read(offset, size.into());
        if let Some(notifier) = self.invalidate.get() {
            notifier.inval_inode(ino, 0, 0).unwrap();
        }
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        Ok(reply.slices(&slices))
    }

    fn write(
        &self,
        ino: u64,
        _fh: u64,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u32> {
        self.requests.write.fetch_add(1, Relaxed);
        self.requests
            .largest_write
            .fetch_max(data.len() as u64, Relaxed);
        let mut state = self.state.lock().unwrap();
        let node = state.node(ino)?;
        node.write(offset, data);
        if flags.kill_suidgid {
            node.kill();
        }
        Ok(data.len() as u32)
    }

    fn release(&self, _ino: u64, _fh: u64) {
        self.requests.release.fetch_add(1, Relaxed);
    }

    fn fsync(&self, _ino: u64, _fh: u64, _datasync: bool) -> Result<()> {
        self.requests.fsync.fetch_add(1, Relaxed);
        Ok(())
    }

    fn opendir(&self, _caller: &Caller, ino: u64) -> Result<Opened> {
        let mut state = self.state.lock().unwrap();
        let node = state.node(ino)?;
        let mut list = vec![(b".".to_vec(), ino), (b"..".to_vec(), node.parent)];
        list.extend(node.names.iter().map(|(name, &ino)| (name.clone(), ino)));
        state.last_fh += 1;
        let fh = state.last_fh;
        state.listings.insert(fh, list);
        Ok(Opened {
            fh,
            keep_cache: false,
        })
    }

    fn readdir(
        &self,
        _caller: &Caller,
        _ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let list = state.listings.get(&fh).ok_or(Errno::BADF)?.clone();
        for (i, (name, ino)) in list.iter().enumerate().skip(offset as usize) {
            let Ok(node) = state.node(*ino) else { continue };
            let dot = name == b"." || name == b"..";
            let attr = (sink.attributes() != Attributes::No && !dot).then_some(&node.attr);
            if sink.add(*ino, i as u64 + 1, node.attr.mode, name, attr) {
                break;
            }
            node.refs += u64::from(attr.is_some());
        }
        Ok(())
    }

    fn releasedir(&self, _ino: u64, fh: u64) {
        self.state.lock().unwrap().listings.remove(&fh);
    }

    fn statfs(&self, _ino: u64) -> Result<StatFs> {
        Ok(StatFs {
            blocks: 1 << 20,
            bfree: 1 << 19,
            bavail: 1 << 18,
            files: 1000,
            ffree: 500,
            bsize: 131_072,
            namelen: 255,
            frsize: 512,
        })
    }

    fn setxattr(
        &self,
        _caller: &Caller,
        ino: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let xattrs = &mut state.node(ino)?.xattrs;
        match (mode, xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Errno::EXIST),
            (XattrMode::Replace, false) => return Err(Errno::NODATA),
            _ => xattrs.insert(name.to_vec(), value.to_vec()),
        };
        Ok(())
    }

    fn getxattr(&self, _caller: &Caller, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.requests.getxattr.fetch_add(1, Relaxed);
        self.state
            .lock()
            .unwrap()
            .node(ino)?
            .xattrs
            .get(name)
            .cloned()
            .ok_or(Errno::NODATA)
    }

    fn listxattr(&self, _caller: &Caller, ino: u64) -> Result<Vec<u8>> {
        let mut state = self.state.lock().unwrap();
        Ok(state
            .node(ino)?
            .xattrs
            .keys()
            .flat_map(|name| name.iter().copied().chain([0]))
            .collect())
    }

    fn removexattr(&self, _caller: &Caller, ino: u64, name: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state
            .node(ino)?
            .xattrs
            .remove(name)
            .map(|_| ())
            .ok_or(Errno::NODATA)
    }

    fn fallocate(
        &self,
        _caller: &Caller,
        ino: u64,
        _fh: u64,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        let mut state = self.state.lock().unwrap();
        let node = state.node(ino)?;
        match mode {
            0 => {
                node.attr.size = node.attr.size.max(offset + len);
                node.touch();
                Ok(())
            }
            m if m == KEEP_SIZE | PUNCH_HOLE => {
                let size = node.attr.size;
                node.pages
                    .retain(|&p, _| p * PAGE < offset || (p + 1) * PAGE > offset + len);
                node.attr.size = size;
                node.touch();
                Ok(())
            }
            _ => Err(Errno::NOTSUP),
        }
    }

    fn lseek(&self, ino: u64, _fh: u64, offset: u64, whence: Whence) -> Result<u64> {
        let mut state = self.state.lock().unwrap();
        let node = state.node(ino)?;
        if offset >= node.attr.size {
            return Err(Errno::NXIO);
        }
        let mut at = offset;
        while at < node.attr.size {
            if node.pages.contains_key(&(at / PAGE)) == (whence == Whence::Data) {
                return Ok(at);
            }
            at = (at / PAGE + 1) * PAGE;
        }
        if whence == Whence::Data {
            Err(Errno::NXIO)
        } else {
            Ok(node.attr.size)
        }
    }

    fn copy_file_range(&self, _caller: &Caller, range: &CopyRange) -> Result<u32> {
        let mut state = self.state.lock().unwrap();
        let parts = state.node(range.ino_in)?.read(range.offset_in, range.len);
        let all = parts.concat();
        state.node(range.ino_out)?.write(range.offset_out, &all);
        Ok(all.len() as u32)
    }
}

//! The session as [`Ops`]: one line per request. Handles are numbers that say how a file was opened
//! ([`crate::data`]). Directories have none.

use zuse_fuse::{
    Attr, Caller, CopyRange, DirSink, Opened, Ops, ReadReply, RenameFlags, Replied, SetAttr,
    StatFs, ValueReply, Whence, WriteFlags, XattrMode,
};

use crate::session::{Answer, Session};

const S_IFREG: u32 = 0o100_000;

impl Session {
    /// Opens a newly created file.
    fn made_open(&self, attr: Attr, flags: u32) -> Answer<(Attr, Opened)> {
        let node = self.table.get(attr.ino)?;
        Ok((attr, Opened::cached(self.opened(&node, flags))))
    }
}

impl Ops for Session {
    fn destroy(&self) {
        self.end();
    }

    fn panicked(&self) {
        self.tree.panicked();
    }

    fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Answer<Attr> {
        Session::lookup(self, caller, parent, name)
    }

    fn may_keep_names(&self, dir: u64) -> bool {
        Session::may_keep_names(self, dir)
    }

    fn may_lag_behind(&self, ino: u64) -> bool {
        Session::may_lag_behind(self, ino)
    }

    fn forget(&self, ino: u64, n: u64) {
        Session::forget(self, ino, n);
    }

    fn idle(&self, is_over: &dyn Fn() -> bool) {
        Session::idle(self, is_over);
    }

    fn answered(&self) {
        self.note_use();
    }

    fn getattr(&self, ino: u64, _fh: Option<u64>) -> Answer<Attr> {
        Session::getattr(self, ino)
    }

    fn setattr(&self, caller: &Caller, ino: u64, _fh: Option<u64>, set: &SetAttr) -> Answer<Attr> {
        Session::setattr(self, caller, ino, set)
    }

    fn readlink(&self, ino: u64) -> Answer<Vec<u8>> {
        Session::readlink(self, ino)
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Answer<Attr> {
        Session::mknod(self, caller, parent, name, mode, rdev)
    }

    fn mkdir(&self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Answer<Attr> {
        Session::mkdir(self, caller, parent, name, mode)
    }

    fn unlink(&self, caller: &Caller, parent: u64, name: &[u8]) -> Answer<()> {
        Session::unlink(self, caller, parent, name)
    }

    fn rmdir(&self, caller: &Caller, parent: u64, name: &[u8]) -> Answer<()> {
        Session::rmdir(self, caller, parent, name)
    }

    fn symlink(&self, caller: &Caller, parent: u64, name: &[u8], target: &[u8]) -> Answer<Attr> {
        Session::symlink(self, caller, parent, name, target)
    }

    fn rename(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Answer<()> {
        Session::rename(self, caller, (parent, name), (new_parent, new_name), flags)
    }

    fn link(&self, caller: &Caller, ino: u64, new_parent: u64, new_name: &[u8]) -> Answer<Attr> {
        Session::link(self, caller, ino, new_parent, new_name)
    }

    fn open(&self, _caller: &Caller, ino: u64, flags: u32) -> Answer<Opened> {
        Session::open(self, ino, flags).map(Opened::cached)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) -> Answer<(Attr, Opened)> {
        let attr = Session::mknod(self, caller, parent, name, S_IFREG | mode & 0o7777, 0)?;
        self.made_open(attr, flags)
    }

    fn tmpfile(&self, caller: &Caller, dir: u64, mode: u32, flags: u32) -> Answer<(Attr, Opened)> {
        let attr = Session::tmpfile(self, caller, dir, mode)?;
        self.made_open(attr, flags)
    }

    fn read(
        &self,
        ino: u64,
        fh: u64,
        offset: u64,
        size: u32,
        reply: ReadReply<'_>,
    ) -> Answer<Replied> {
        Session::read(self, (ino, fh), offset, size, reply)
    }

    fn release(&self, ino: u64, fh: u64) {
        self.released(ino, fh);
    }

    fn write(
        &self,
        ino: u64,
        _fh: u64,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Answer<u32> {
        Session::write(self, ino, offset, data, flags)
    }

    fn fsync(&self, ino: u64, _fh: u64, _datasync: bool) -> Answer<()> {
        Session::fsync(self, ino)
    }

    fn readdir(
        &self,
        _caller: &Caller,
        ino: u64,
        _fh: u64,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Answer<()> {
        Session::readdir(self, ino, offset, sink)
    }

    fn statfs(&self, ino: u64) -> Answer<StatFs> {
        Session::statfs(self, ino)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Answer<()> {
        Session::setxattr(self, caller, ino, name, value, mode)
    }

    fn getxattr_into(
        &self,
        caller: &Caller,
        ino: u64,
        name: &[u8],
        reply: ValueReply<'_>,
    ) -> Answer<Replied> {
        Session::getxattr(self, caller, ino, name, reply)
    }

    fn listxattr(&self, caller: &Caller, ino: u64) -> Answer<Vec<u8>> {
        Session::listxattr(self, caller, ino)
    }

    fn removexattr(&self, caller: &Caller, ino: u64, name: &[u8]) -> Answer<()> {
        Session::removexattr(self, caller, ino, name)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        ino: u64,
        _fh: u64,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Answer<()> {
        Session::fallocate(self, caller, ino, mode, (offset, len))
    }

    fn lseek(&self, ino: u64, _fh: u64, offset: u64, whence: Whence) -> Answer<u64> {
        Session::lseek(self, ino, offset, whence)
    }

    fn copy_file_range(&self, caller: &Caller, range: &CopyRange) -> Answer<u32> {
        self.copy(caller, range)
    }

    fn ioctl(
        &self,
        caller: &Caller,
        ino: u64,
        _fh: u64,
        cmd: u32,
        data: &[u8],
        _out_size: u32,
    ) -> Answer<Vec<u8>> {
        Session::ioctl(self, caller, ino, cmd, data)
    }
}

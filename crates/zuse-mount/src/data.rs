//! Requests about the content of files.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, ZEROS};
use zuse_dmu::SharedSlice;
use zuse_fuse::{Caller, CopyRange, OPEN_EXEC, ReadReply, Replied, Whence, WriteFlags};
use zuse_zpl::{Credentials, FileSystem, SetAttr, WriteOptions, Znode, flags as zfs_flags};

use crate::session::{Answer, Session, no};
use crate::table::{Node, What};

const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;
const O_APPEND: u32 = 0o2000;
const O_NOATIME: u32 = 0o1_000_000;
/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;
/// Most bytes of one copy: the answer is a 32-bit number, and no system call copies more. Programs
/// take a smaller result for the end of the file.
const COPY_MAX: u64 = 0x7fff_f000;

impl Session {
    pub fn read(
        &self,
        (ino, fh): (u64, u64),
        offset: u64,
        size: u32,
        reply: ReadReply<'_>,
    ) -> Answer<Replied> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let mut pieces: Vec<SharedSlice> = Vec::with_capacity(size as usize / (128 << 10) + 2);
        {
            let fs = volume.enter()?;
            let mut sink = |slice| pieces.push(slice);
            fs.read_slices(znode, offset, u64::from(size), &mut sink)
                .map_err(no)?;
            if fh & handle::NO_ATIME == 0 {
                self.accessed(&fs, znode);
            }
        }
        // Outside the gate: nothing inside may wait for the kernel, and pieces hold their blocks.
        let mut slices: Vec<&[u8]> = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            match piece {
                SharedSlice::Block(block, range) => {
                    slices.push(block.bytes().get(range.clone()).ok_or(Errno::IO)?)
                }
                SharedSlice::Copy(bytes) => slices.push(bytes),
                SharedSlice::Zeros(n) => {
                    let mut left = *n;
                    while left > 0 {
                        let take = left.min(ZEROS.len());
                        slices.push(&ZEROS[..take]);
                        left -= take;
                    }
                }
            }
        }
        Ok(reply.slices(&slices))
    }

    pub fn write(&self, ino: u64, offset: u64, data: &[u8], flags: WriteFlags) -> Answer<u32> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let options = WriteOptions {
            append: false,
            kill_suidgid: flags.kill_suidgid,
            keep_times: flags.keep_times,
            // The kernel's own write-back is followed by an fsync where the user asked for one.
            sync: flags.sync && !flags.cached,
        };
        let fs = volume.enter()?;
        let had_set_ids = flags.kill_suidgid && znode.attributes().mode & SET_IDS != 0;
        let written = fs.write(znode, offset, data, options).map_err(no)?;
        if had_set_ids {
            // The kernel caches the mode, and does not know which bits were cleared.
            self.attributes_changed(ino);
        }
        if flags.keep_times {
            // The kernel does not ask for attributes again after it has written its own pages.
            volume.growing.lock().insert(ino, u64::MAX);
        }
        u32::try_from(written).map_err(|_| Errno::OVERFLOW)
    }

    pub fn fsync(&self, ino: u64) -> Answer<()> {
        let node = self.node(ino)?;
        match &node.what {
            What::Object(volume, znode) => {
                volume.enter()?.fsync(znode).map_err(no)?;
                self.notify_block_counts(volume, Some(ino));
                Ok(())
            }
            // Success would promise that data of a lost file is on disk.
            What::Listed(..) | What::Gone(..) => Err(Errno::STALE),
            _ => Ok(()),
        }
    }

    pub fn fallocate(
        &self,
        caller: &Caller,
        ino: u64,
        mode: u32,
        (offset, len): (u64, u64),
    ) -> Answer<()> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let fs = volume.enter()?;
        fs.fallocate(znode, mode, offset, len).map_err(no)?;
        self.drop_set_ids(caller, ino, &fs, znode)
    }

    pub fn lseek(&self, ino: u64, offset: u64, whence: Whence) -> Answer<u64> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let whence = match whence {
            Whence::Data => zuse_zpl::Whence::Data,
            Whence::Hole => zuse_zpl::Whence::Hole,
        };
        volume.enter()?.seek(znode, offset, whence).map_err(no)
    }

    pub fn copy(&self, caller: &Caller, range: &CopyRange) -> Answer<u32> {
        let (from, to) = (self.node(range.ino_in)?, self.node(range.ino_out)?);
        let (volume, source) = from.object()?;
        let (to_volume, target) = to.object()?;
        if !Arc::ptr_eq(volume, to_volume) {
            // A thread may pass only one gate at a time. So the kernel reads and writes instead.
            return Err(Errno::NOTSUP);
        }
        let len = range.len.min(COPY_MAX);
        let fs = volume.enter()?;
        let copied = fs
            .copy_range(source, range.offset_in, target, range.offset_out, len)
            .map_err(no)?;
        self.drop_set_ids(caller, range.ino_out, &fs, target)?;
        u32::try_from(copied).map_err(|_| Errno::OVERFLOW)
    }

    pub fn readlink(&self, ino: u64) -> Answer<Vec<u8>> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        volume.enter()?.readlink(znode).map_err(no)
    }

    /// Opens a file; the handle stores flags that are needed later. See [`handle`].
    pub fn open(&self, ino: u64, flags: u32) -> Answer<u64> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let fs = volume.enter()?;
        // The mount allows programs as soon as one of its file systems does.
        if flags & OPEN_EXEC != 0 && !fs.props().exec {
            return Err(Errno::ACCES);
        }
        let how = flags & O_ACCMODE;
        if how != O_RDONLY && fs.is_read_only() {
            return Err(Errno::ROFS);
        }
        // The kernel does not know these flags, and does not ask again for each write to an open
        // file.
        let kept = znode.attributes().flags;
        let appends = flags & O_APPEND != 0;
        if how != O_RDONLY
            && (kept & zfs_flags::IMMUTABLE != 0 || kept & zfs_flags::APPENDONLY != 0 && !appends)
        {
            return Err(Errno::PERM);
        }
        // Reads from the kernel's cache are not reported, so opening a file for reading counts as
        // reading it.
        if how == O_RDONLY && flags & O_NOATIME == 0 && self.accessed(&fs, znode) {
            self.attributes_changed(ino);
        }
        Ok(self.opened(&node, flags))
    }

    /// Notes an open file, and returns its handle.
    pub fn opened(&self, node: &Node, flags: u32) -> u64 {
        let mut fh = 0;
        if flags & O_ACCMODE == O_RDWR || self.gathers_writes && flags & O_ACCMODE != O_RDONLY {
            node.writers.fetch_add(1, Relaxed);
            fh |= handle::WRITES_PAGES;
        }
        if flags & O_NOATIME != 0 {
            fh |= handle::NO_ATIME;
        }
        fh
    }

    /// The last descriptor and mapping of an open file is gone, and its pages are written.
    pub fn released(&self, ino: u64, fh: u64) {
        if fh & handle::WRITES_PAGES != 0
            && let Ok(node) = self.table.get(ino)
        {
            let less = |n: u32| Some(n.saturating_sub(1));
            let _ = node.writers.fetch_update(Relaxed, Relaxed, less);
        }
    }

    /// Whether the kernel may have pages of a file that are newer than what is here.
    pub fn may_lag_behind(&self, ino: u64) -> bool {
        let node = self.table.get(ino);
        node.is_ok_and(|node| node.writers.load(Relaxed) > 0)
    }

    /// The kernel leaves it to the server to clear set-id bits when an unprivileged user changes a
    /// file. Usually it has had them cleared already, by a SETATTR that changes nothing.
    fn drop_set_ids(
        &self,
        caller: &Caller,
        ino: u64,
        fs: &FileSystem,
        znode: &Arc<Znode>,
    ) -> Answer<()> {
        if caller.uid == 0 || znode.attributes().mode & SET_IDS == 0 {
            return Ok(());
        }
        let set = SetAttr {
            kill_suidgid: true,
            ..SetAttr::default()
        };
        fs.setattr(&Credentials::root(), znode, &set).map_err(no)?;
        self.attributes_changed(ino);
        Ok(())
    }
}

/// The contents of a handle. Nothing else is kept about an open file.
pub(crate) mod handle {
    /// Mappings, or the kernel's write-back cache, may have dirty pages of it.
    pub const WRITES_PAGES: u64 = 1;
    /// Reads through it do not update the access time.
    pub const NO_ATIME: u64 = 2;
}

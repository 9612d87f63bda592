//! Requests about the content of files.

use std::sync::Arc;

use zuse_base::Errno;
use zuse_dmu::SharedSlice;
use zuse_fuse::{CopyRange, ReadReply, Replied, Whence, WriteFlags};
use zuse_zpl::{Credentials, FileSystem, SetAttr, WriteOptions, Znode};

use crate::session::{Answer, Session, no};
use crate::table::What;

/// Where the bytes of holes come from.
static ZEROS: [u8; 1 << 17] = [0; 1 << 17];

/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;
/// Most bytes of one copy: the answer is a 32-bit number, and a request should end some time.
const COPY_MAX: u64 = 64 << 20;

impl Session {
    pub fn read(&self, ino: u64, offset: u64, size: u32, reply: ReadReply<'_>) -> Answer<Replied> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let mut pieces: Vec<SharedSlice> = Vec::with_capacity(size as usize / (128 << 10) + 2);
        volume
            .enter()?
            .read_slices(znode, offset, u64::from(size), &mut |slice| {
                pieces.push(slice)
            })
            .map_err(no)?;
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
        };
        let fs = volume.enter()?;
        let written = fs.write(znode, offset, data, options).map_err(no)?;
        if flags.sync && !flags.cached {
            fs.fsync(znode).map_err(no)?;
        }
        u32::try_from(written).map_err(|_| Errno::OVERFLOW)
    }

    pub fn fsync(&self, ino: u64) -> Answer<()> {
        let node = self.node(ino)?;
        match &node.what {
            What::Object(volume, znode) => volume.enter()?.fsync(znode).map_err(no),
            What::Listed(..) | What::Gone(_) => Err(Errno::STALE),
            _ => Ok(()),
        }
    }

    pub fn fallocate(&self, ino: u64, mode: u32, offset: u64, len: u64) -> Answer<()> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let fs = volume.enter()?;
        fs.fallocate(znode, mode, offset, len).map_err(no)?;
        drop_set_ids(&fs, znode)
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

    pub fn copy(&self, range: &CopyRange) -> Answer<u32> {
        let (from, to) = (self.node(range.ino_in)?, self.node(range.ino_out)?);
        let (volume, source) = from.object()?;
        let (to_volume, target) = to.object()?;
        if !Arc::ptr_eq(volume, to_volume) {
            // Two gates at once are not passed: the kernel reads and writes.
            return Err(Errno::NOTSUP);
        }
        let len = range.len.min(COPY_MAX);
        let fs = volume.enter()?;
        let copied = fs
            .copy_range(source, range.offset_in, target, range.offset_out, len)
            .map_err(no)?;
        drop_set_ids(&fs, target)?;
        u32::try_from(copied).map_err(|_| Errno::OVERFLOW)
    }

    pub fn readlink(&self, ino: u64) -> Answer<Vec<u8>> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        volume.enter()?.readlink(znode).map_err(no)
    }
}

/// The request does not tell who asks, and the kernel leaves it to the server: set-id bits do not survive.
fn drop_set_ids(fs: &FileSystem, znode: &Arc<Znode>) -> Answer<()> {
    if znode.attributes().mode & SET_IDS == 0 {
        return Ok(());
    }
    let set = SetAttr {
        kill_suidgid: true,
        ..SetAttr::default()
    };
    fs.setattr(&Credentials::root(), znode, &set)
        .map(|_| ())
        .map_err(no)
}

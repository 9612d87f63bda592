//! File data: reading, writing, sizes, holes.
//!
//! A file of one block has a block of exactly its size (a multiple of 512). If it needs more, its
//! block size becomes the record size for ever (chapter 03c §5 of the format notes). Bytes after
//! the size are zeros on disk.
//!
//! Budget: a read of cached blocks copies nothing and takes the range lock and one block look-up
//! per block. A write of whole blocks reads nothing. A partly covered block is read before the
//! transaction begins, so that a transaction does not wait for a disk.

mod clone;

use std::sync::Arc;

use zuse_base::{Errno, Result};
use zuse_dmu::{Dnode, SharedSlice, Tx};
use zuse_format::zil::{Body, SetAttr as Logged};

use crate::attributes::field;
use crate::credentials::Credentials;
use crate::file_system::{FileSystem, refuse};
use crate::znode::Znode;
use crate::{estimate, flags, mode};

/// Largest file.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Data of one transaction.
const WRITE_CHUNK: usize = 8 << 20;

/// Options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// At the end of the file at that moment; the offset is ignored.
    pub append: bool,
    /// Drop set-id bits.
    pub kill_suidgid: bool,
    /// Leave the times alone: a kernel that writes back cached pages sends the times of the writes
    /// separately.
    pub keep_times: bool,
    /// Durable before it returns.
    pub sync: bool,
}

/// What to seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file counts as one.
    Hole,
}

fn check_file(znode: &Znode) -> Result<()> {
    match znode.kind() {
        mode::REGULAR => Ok(()),
        mode::DIRECTORY => refuse(Errno::ISDIR, "data of a directory"),
        _ => refuse(Errno::INVAL, "data of something that is no file"),
    }
}

impl FileSystem {
    /// Passes up to `len` bytes from `offset` to `sink`, shared with the cache if they are clean.
    /// Ends at the end of the file. The caller notes the access time ([`Self::accessed`]).
    ///
    /// # Errors
    /// A block cannot be read; `Refused(ACCES)` for quarantined files.
    pub fn read_slices(
        &self,
        znode: &Arc<Znode>,
        offset: u64,
        len: u64,
        sink: &mut dyn FnMut(SharedSlice),
    ) -> Result<u64> {
        check_file(znode)?;
        let end = offset.saturating_add(len);
        // Until the slices are taken: size and blocks of a concurrent write or truncation stay
        // together.
        let _range = znode.content.read(offset, end);
        let (size, fl) = {
            let state = znode.read();
            (state.attrs.size, state.attrs.flags)
        };
        if fl & flags::AV_QUARANTINED != 0 {
            return refuse(Errno::ACCES, "the file is in quarantine");
        }
        let take = size.min(end).saturating_sub(offset);
        if take > 0 {
            znode.dnode().read_slices(offset, take, sink)?;
        }
        Ok(take)
    }

    /// Reads into a buffer; fewer bytes than requested mean the end of the file.
    ///
    /// # Errors
    /// Those of [`Self::read_slices`].
    pub fn read(&self, znode: &Arc<Znode>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        self.read_slices(znode, offset, buf.len() as u64, &mut |slice| {
            slice.copy_to(&mut buf[done..]);
            done += slice.len();
        })?;
        self.accessed(znode);
        Ok(done)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// `Refused`: `ROFS`, `PERM` (flags), `FBIG`, `NOSPC`, `DQUOT`; or a partly covered block
    /// cannot be read.
    pub fn write(
        &self,
        znode: &Arc<Znode>,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<u64> {
        check_file(znode)?;
        self.check_writable()?;
        let len = data.len() as u64;
        if len == 0 {
            return Ok(0);
        }
        let fits = |at: u64| at.checked_add(len).filter(|end| *end <= SIZE_MAX);
        let mut offset = offset;
        if !options.append && fits(offset).is_none() {
            return refuse(Errno::FBIG, "a write");
        }
        // Locks the whole file if its end or its block size may change, otherwise just the range.
        let range = loop {
            let size = znode.size();
            // With one block the block size may grow, which rewrites block 0 (03c §5).
            let whole = options.append || offset + len > size || znode.dnode().max_block() == 0;
            let range = if whole {
                znode.content.write(0, u64::MAX)
            } else {
                znode.content.write(offset, offset + len)
            };
            // A truncation may have shortened the file while this waited for its range.
            if whole || offset + len <= znode.size() {
                break range;
            }
            drop(range);
        };
        // Only now: the end stays where it is while the whole file is locked.
        if options.append {
            offset = znode.size();
            if fits(offset).is_none() {
                return refuse(Errno::FBIG, "a write");
            }
        }
        self.check_content_change(znode, offset, options.append)?;
        let mut done = 0;
        while done < data.len() {
            // Chunks end at block boundaries of any record size.
            let at = offset + done as u64;
            let room = WRITE_CHUNK - (at % WRITE_CHUNK as u64) as usize;
            let piece = &data[done..(done + room).min(data.len())];
            self.write_chunk(znode, at, piece, options)?;
            done += piece.len();
        }
        drop(range);
        if options.kill_suidgid {
            // Without the range: it takes `xattrs` and a transaction of its own.
            self.drop_capabilities(znode)?;
        }
        if options.sync {
            self.fsync(znode)?;
        } else {
            self.sync_if_always(znode.object())?;
        }
        Ok(len)
    }

    fn write_chunk(
        &self,
        znode: &Arc<Znode>,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<()> {
        let dnode = znode.dnode();
        let size = znode.size();
        let end = offset + data.len() as u64;
        let props = self.backing.props();
        let new_block = grown_block_size(
            dnode.block_size(),
            dnode.max_block(),
            size,
            end,
            props.record_size,
        );
        let block = u64::from(new_block);
        let partial = |blkid: u64| {
            let start = blkid * block;
            // Written from its start to its end, or to where no data was before.
            !(offset <= start && (end >= start + block || end >= size)) && start < size
        };
        let (first, last) = (offset / block, (end - 1) / block);
        if new_block == dnode.block_size() {
            // Blocks between the two are written whole, so that their old content is not needed.
            for blkid in [first, last] {
                if partial(blkid) {
                    dnode.with_block(blkid, |_| ())?;
                }
            }
        // A new block size copies the only block.
        } else if size > 0 {
            dnode.with_block(0, |_| ())?;
        }
        // Before the transaction: the first check of a limit may count the whole dataset.
        self.check_space_quota(&znode.attributes())?;
        let tx = self.begin(estimate::write(
            offset,
            data.len() as u64,
            block,
            znode.ends_dirty(offset),
        ))?;
        // In the same transaction as the data: only a file of one block may change its size.
        if new_block != dnode.block_size() {
            dnode.set_block_size(&tx, new_block)?;
        }
        put_bytes(&tx, dnode, (block, size), offset, data)?;
        znode.note_end(end, tx.txg());
        let links = self.content_changed(&tx, znode, size.max(end), options)?;
        // An unlinked file needs no record: after a crash it is freed.
        if links != 0 {
            let follows = options.sync || self.is_sync_always();
            self.note_write(&tx, dnode, offset, data, follows);
        }
        Ok(())
    }

    /// Updates size, times and flags after a change of the data. Returns how many names the file
    /// has.
    pub(crate) fn content_changed(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        size: u64,
        options: WriteOptions,
    ) -> Result<u64> {
        let now = self.now();
        let mut state = znode.write();
        let a = &mut state.attrs;
        let mut fields = 0;
        if !options.keep_times {
            fields = field::MTIME | field::CTIME;
            a.mtime = now;
            a.ctime = now;
        }
        if a.size != size {
            a.size = size;
            fields |= field::SIZE;
        }
        let new = if self.version >= 3 {
            a.flags | flags::ARCHIVE | flags::AV_MODIFIED
        } else {
            a.flags
        };
        // The rule for a truncation to nothing (03c §2).
        let new = if size == 0 { new & !flags::SPARSE } else { new };
        if new != a.flags {
            a.flags = new;
            fields |= field::FLAGS;
        }
        if options.kill_suidgid {
            let mode = without_set_ids(a.mode);
            if mode != a.mode {
                a.mode = mode;
                fields |= field::MODE;
                // Replay writes without clearing set-id bits, so the new mode has a record of its
                // own.
                self.note_attributes(tx, znode.object(), a, Logged::MODE);
            }
        }
        let links = a.links;
        if fields != 0 {
            self.store.store(tx, znode.dnode(), &state.attrs, fields)?;
        }
        Ok(links)
    }

    /// The block size that a file needs for its data to reach `end`.
    pub(crate) fn grown_block(&self, znode: &Znode, end: u64) -> u32 {
        let dnode = znode.dnode();
        grown_block_size(
            dnode.block_size(),
            dnode.max_block(),
            znode.size(),
            end,
            self.backing.props().record_size,
        )
    }

    /// Flags that forbid changing the data.
    fn check_content_change(&self, znode: &Znode, offset: u64, append: bool) -> Result<()> {
        let state = znode.read();
        if znode.is_dead() {
            return refuse(Errno::NOENT, "the file was freed");
        }
        let a = &state.attrs;
        if self.forbids(a.flags, flags::IMMUTABLE) {
            return refuse(Errno::PERM, "the file is immutable");
        }
        if self.forbids(a.flags, flags::APPENDONLY) && !append && offset < a.size {
            return refuse(Errno::PERM, "the file may only be appended to");
        }
        Ok(())
    }

    /// Sets the size.
    ///
    /// # Errors
    /// Those of [`Self::write`].
    pub fn truncate(&self, who: &Credentials, znode: &Arc<Znode>, size: u64) -> Result<()> {
        check_file(znode)?;
        self.check_writable()?;
        self.check_access(who, znode, crate::credentials::MAY_WRITE)?;
        self.resize(znode, size, who.enforce && !who.privileged)?;
        self.sync_if_always(znode.object())
    }

    pub(crate) fn resize(&self, znode: &Arc<Znode>, size: u64, kill_suidgid: bool) -> Result<()> {
        if size > SIZE_MAX {
            return refuse(Errno::FBIG, "a file size");
        }
        let _range = znode.content.write(0, u64::MAX);
        self.check_content_change(znode, size, false)?;
        let options = WriteOptions {
            kill_suidgid,
            ..WriteOptions::default()
        };
        let dnode = znode.dnode();
        let old = znode.size();
        if size < old {
            // The rest of the last block becomes zeros (03c §5), in a transaction that must not
            // wait for a disk.
            self.read_partial(znode, size)?;
            // Shrinking must work on a full dataset.
            let tx = self.begin_freeing(estimate::write(
                size,
                1,
                u64::from(dnode.block_size()),
                false,
            ))?;
            dnode.free_range(&tx, size, u64::MAX - size)?;
            self.content_changed(&tx, znode, size, options)?;
            self.note_size(&tx, znode);
            return Ok(());
        }
        let props = self.backing.props();
        let block = grown_block_size(
            dnode.block_size(),
            dnode.max_block(),
            old,
            size,
            props.record_size,
        );
        // Extending without a write follows the same rule of block sizes (03c §5).
        if block != dnode.block_size() && old > 0 {
            dnode.with_block(0, |_| ())?;
        }
        let tx = self.begin(estimate::write(0, 1, u64::from(block), false))?;
        if block != dnode.block_size() {
            dnode.set_block_size(&tx, block)?;
        }
        self.content_changed(&tx, znode, size, options)?;
        self.note_size(&tx, znode);
        Ok(())
    }

    /// Loads the block at a partly covered end of the range into the cache.
    fn read_partial(&self, znode: &Znode, offset: u64) -> Result<()> {
        let block = u64::from(znode.dnode().block_size()).max(1);
        if offset.is_multiple_of(block) {
            Ok(())
        } else {
            znode.dnode().with_block(offset / block, |_| ())
        }
    }

    /// `fallocate(2)`: mode 0 and KEEP_SIZE only check and set the size, because a copy-on-write
    /// file system cannot reserve space this way. PUNCH_HOLE and ZERO_RANGE free.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` for other modes, `Refused(NOSPC)` if there is obviously too little space;
    /// those of [`Self::write`].
    pub fn fallocate(&self, znode: &Arc<Znode>, how: u32, offset: u64, len: u64) -> Result<()> {
        self.allocate_range(znode, how, offset, len)?;
        self.sync_if_always(znode.object())
    }

    fn allocate_range(&self, znode: &Arc<Znode>, how: u32, offset: u64, len: u64) -> Result<()> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const ZERO_RANGE: u32 = 0x10;
        check_file(znode)?;
        self.check_writable()?;
        if len == 0 {
            return refuse(Errno::INVAL, "an empty range");
        }
        let Some(end) = offset.checked_add(len).filter(|e| *e <= SIZE_MAX) else {
            return refuse(Errno::FBIG, "a range");
        };
        match how {
            0 | KEEP_SIZE => {
                // A copy-on-write write needs new space each time, so this is only a hint at what
                // fits.
                if len > self.backing.space().available {
                    return refuse(Errno::NOSPC, "the range");
                }
                if how == 0 && end > znode.size() {
                    self.resize(znode, end, false)
                } else {
                    Ok(())
                }
            }
            h if h == PUNCH_HOLE | KEEP_SIZE || h & !KEEP_SIZE == ZERO_RANGE => {
                let grow = h & KEEP_SIZE == 0;
                {
                    let _range = znode.content.write(0, u64::MAX);
                    self.check_content_change(znode, offset, false)?;
                    let size = znode.size();
                    let stop = end.min(size);
                    if offset < stop {
                        self.read_partial(znode, offset)?;
                        self.read_partial(znode, stop)?;
                        let block = u64::from(znode.dnode().block_size());
                        let tx = self.begin_freeing(estimate::write(0, 2 * block, block, false))?;
                        // Up to the end of the file blocks beyond its size go as well.
                        let len = if stop == size {
                            u64::MAX - offset
                        } else {
                            stop - offset
                        };
                        znode.dnode().free_range(&tx, offset, len)?;
                        let links =
                            self.content_changed(&tx, znode, size, WriteOptions::default())?;
                        let object = znode.object();
                        let body = Body::Truncate {
                            object: object.0,
                            offset,
                            length: stop - offset,
                        };
                        self.note_object(&tx, object, links, &body);
                    }
                }
                if grow && end > znode.size() {
                    self.resize(znode, end, false)
                } else {
                    Ok(())
                }
            }
            _ => refuse(Errno::NOTSUP, "this kind of fallocate"),
        }
    }

    /// The next data or hole at or after an offset, in whole blocks.
    ///
    /// # Errors
    /// `Refused(NXIO)` at or after the end, or if there is no more data.
    pub fn seek(&self, znode: &Arc<Znode>, offset: u64, whence: Whence) -> Result<u64> {
        check_file(znode)?;
        let _range = znode.content.read(0, u64::MAX);
        let size = znode.size();
        if offset >= size {
            return refuse(Errno::NXIO, "a seek behind the end");
        }
        let found = znode.dnode().seek(offset, whence == Whence::Hole)?;
        match (found, whence) {
            (Some(at), _) if at < size => Ok(at),
            (_, Whence::Hole) => Ok(size),
            (_, Whence::Data) => refuse(Errno::NXIO, "no data behind the offset"),
        }
    }

    /// Copies a range between two files of this file system (or within one, if the ranges do not
    /// overlap), keeping holes. If clones are enabled, whole blocks that are on disk are cloned.
    /// Returns how much was copied: the source may end first.
    ///
    /// # Errors
    /// Those of [`Self::write`] and [`Self::read_slices`]; `Refused(INVAL)` for overlapping ranges.
    pub fn copy_range(
        &self,
        from: &Arc<Znode>,
        from_at: u64,
        to: &Arc<Znode>,
        to_at: u64,
        len: u64,
    ) -> Result<u64> {
        check_file(from)?;
        check_file(to)?;
        let len = len.min(from.size().saturating_sub(from_at));
        if Arc::ptr_eq(from, to)
            && from_at < to_at.saturating_add(len)
            && to_at < from_at.saturating_add(len)
        {
            return refuse(Errno::INVAL, "ranges that overlap");
        }
        let mut done = 0;
        let mut buf = vec![0; (WRITE_CHUNK as u64).min(len.max(1)) as usize];
        while done < len {
            let at = from_at + done;
            let data = match self.seek(from, at, Whence::Data) {
                Ok(data) => data.min(from_at + len),
                Err(error) if error.is(Errno::NXIO) => from_at + len,
                Err(error) => return Err(error),
            };
            if data > at {
                // Holes stay holes, whatever the target had there.
                let hole = data - at;
                let end = to_at + done + hole;
                self.fallocate(to, 3, to_at + done, hole)?;
                if to.size() < end {
                    self.resize(to, end, false)?;
                }
                done += hole;
                continue;
            }
            // No lock is held here: each step locks both files in its own order.
            let cloned = self.clone_range((from, at), (to, to_at + done), len - done)?;
            if cloned > 0 {
                done += cloned;
                continue;
            }
            let hole = self.seek(from, at, Whence::Hole)?;
            let want = (hole - at).min(len - done).min(buf.len() as u64) as usize;
            let got = self.read(from, at, &mut buf[..want])?;
            // The source was truncated meanwhile.
            if got == 0 {
                break;
            }
            self.write(to, to_at + done, &buf[..got], WriteOptions::default())?;
            done += got as u64;
        }
        self.sync_if_always(to.object())?;
        Ok(done)
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// `Refused(INVAL)` for anything else; `Corrupt` for a link without target.
    pub fn readlink(&self, znode: &Arc<Znode>) -> Result<Vec<u8>> {
        if znode.kind() != mode::SYMLINK {
            return refuse(Errno::INVAL, "the target of something that is no link");
        }
        if let Some(target) = self
            .store
            .bytes(znode.dnode(), zuse_dmu::sa::Attr::Symlink)?
        {
            return Ok(target);
        }
        // Old links that do not fit their znode.
        let size = znode.size();
        // A damaged size must not decide how much memory is taken.
        if size > 65_536 {
            return Err(zuse_base::Error::corrupt(
                znode.dnode().place(),
                format!("a link target of {size} bytes"),
            ));
        }
        let mut target = vec![0; size as usize];
        znode.dnode().read_at(0, &mut target)?;
        Ok(target)
    }
}

/// Writes bytes into blocks of this size, of a file of that size.
fn put_bytes(
    tx: &Tx,
    dnode: &Dnode,
    (block, size): (u64, u64),
    mut at: u64,
    mut rest: &[u8],
) -> Result<()> {
    while !rest.is_empty() {
        let blkid = at / block;
        let from = (at % block) as usize;
        let take = (block as usize - from).min(rest.len());
        let (now, later) = rest.split_at(take);
        let start = blkid * block;
        if from == 0 && (take == block as usize || start + take as u64 >= size) {
            let mut bytes = Vec::with_capacity(block as usize);
            bytes.extend_from_slice(now);
            bytes.resize(block as usize, 0);
            dnode.write_block(tx, blkid, bytes)?;
        } else {
            dnode.edit_block(tx, blkid, |mut b| {
                if let Some(part) = b.bytes_mut().get_mut(from..from + take) {
                    part.copy_from_slice(now);
                }
            })?;
        }
        at += take as u64;
        rest = later;
    }
    Ok(())
}

/// A mode after an unprivileged user has changed the object.
pub(crate) fn without_set_ids(mode: u32) -> u32 {
    let mut new = mode & !mode::SETUID;
    if mode & 0o010 != 0 {
        new &= !mode::SETGID;
    }
    new
}

/// The block size that a file of `size` bytes needs to reach `end`.
fn grown_block_size(block: u32, max_block: u64, size: u64, end: u64, record: u32) -> u32 {
    let can_change = max_block == 0 && size <= u64::from(block);
    let must = end > u64::from(block) && (!block.is_power_of_two() || block < record);
    if !can_change || !must {
        return block;
    }
    let limit = if block > record && !block.is_power_of_two() {
        block.next_power_of_two()
    } else {
        record
    };
    let wanted = u64::from(limit).min(end.next_multiple_of(512));
    (wanted as u32).max(block)
}

#[cfg(test)]
mod tests;

//! An open file.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_zpl::{Credentials, FileSystem, MAY_READ, MAY_WRITE, Whence, WriteOptions, Znode};

use super::{Files, Metadata, at_path};

/// How to open a file, as [`std::fs::OpenOptions`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Neither reading nor writing is allowed yet; a new file would get mode 0644.
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o644,
        }
    }

    /// Opens for reading.
    pub fn read(mut self, yes: bool) -> Self {
        self.read = yes;
        self
    }

    /// Opens for writing.
    pub fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// Opens for writing, with each write at the end of the file.
    pub fn append(mut self, yes: bool) -> Self {
        self.append = yes;
        self
    }

    /// Truncates the file.
    pub fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Creates the file, which must not exist.
    pub fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// Permission bits of a new file.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Opens it.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(NOTDIR)`, `Refused(ISDIR)`; `Refused(INVAL)` for anything else
    /// that is no regular file; `Refused(EXIST)`, `Refused(ROFS)`, `Refused(ACCES)`; or it cannot
    /// be read.
    pub fn open(&self, files: &Files, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let writes = self.write || self.append;
        if writes && files.is_read_only() {
            let what = format!("'{}' cannot be opened for writing", path.display());
            return Err(Error::refused(Errno::ROFS, what));
        }
        let (znode, is_new) = self.find(files, path)?;
        if !znode.is_file() {
            let errno = if znode.is_dir() {
                Errno::ISDIR
            } else {
                Errno::INVAL
            };
            let what = format!("'{}' is no regular file", path.display());
            return Err(Error::refused(errno, what));
        }
        let want = u32::from(self.read) * MAY_READ + u32::from(writes) * MAY_WRITE;
        // The mode of a new file is for those who open it later.
        if !is_new {
            at_path(path, files.fs.access(&files.who, &znode, want))?;
        }
        if self.truncate && self.write {
            at_path(path, files.fs.truncate(&files.who, &znode, 0))?;
        }
        Ok(File {
            fs: files.fs.clone(),
            who: files.who.clone(),
            znode,
            read: self.read,
            write: writes,
            append: self.append,
            position: 0,
        })
    }

    /// The file, and whether it was created here.
    fn find(&self, files: &Files, path: &Path) -> Result<(Arc<Znode>, bool)> {
        if !self.create && !self.create_new {
            return files.at(path).map(|found| (found, false));
        }
        let (dir, name) = files.place(path)?;
        if !self.create_new {
            match files.fs.lookup(&files.who, &dir, name) {
                Err(e) if e.is(Errno::NOENT) => {}
                found => return at_path(path, found).map(|found| (found, false)),
            }
        }
        let made = match files.fs.create(&files.who, &dir, name, self.mode) {
            // Another thread created it after it was looked up.
            Err(e) if e.is(Errno::EXIST) && !self.create_new => {
                files.fs.lookup(&files.who, &dir, name).map(|z| (z, false))
            }
            made => made.map(|z| (z, true)),
        };
        at_path(path, made)
    }
}

/// An open file with a position. It may be renamed, and may lose its last name: it stays as long as
/// it is open.
///
/// Reads come from the block cache or the devices. Writes are visible at once and on disk after
/// [`Self::sync`]. Writing beyond the end leaves a hole in between.
#[derive(Debug)]
pub struct File {
    fs: Arc<FileSystem>,
    who: Credentials,
    znode: Arc<Znode>,
    read: bool,
    write: bool,
    append: bool,
    position: u64,
}

impl File {
    /// What `fstat` shows.
    pub fn metadata(&self) -> Metadata {
        Metadata::new(self.fs.getattr(&self.znode))
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.znode.size()
    }

    fn allow(&self, yes: bool, what: &str) -> Result<()> {
        match yes {
            true => Ok(()),
            false => Err(Error::refused(
                Errno::BADF,
                format!("the file is not open for {what}"),
            )),
        }
    }

    /// Reads from an offset; fewer bytes than requested mean the end of the file. The position
    /// stays.
    ///
    /// # Errors
    /// `Refused(BADF)` if it is not open for reading; a block cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.allow(self.read, "reading")?;
        self.fs.read(&self.znode, offset, buf)
    }

    /// Writes all bytes at an offset. The position stays.
    ///
    /// # Errors
    /// `Refused`: `BADF` if it is not open for writing, `FBIG` above 2^63 − 1, `NOSPC`, `DQUOT`; or
    /// a partly changed block cannot be read.
    pub fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.allow(self.write, "writing")?;
        let options = WriteOptions {
            append: self.append,
            ..WriteOptions::default()
        };
        self.fs.write(&self.znode, offset, bytes, options).map(drop)
    }

    pub(super) fn read_all(&self) -> Result<Vec<u8>> {
        let too_large = || Error::refused(Errno::NOMEM, "the file does not fit into memory");
        let size = usize::try_from(self.len()).map_err(|_| too_large())?;
        let mut bytes = Vec::new();
        // A sparse file may claim any size: running out of memory must be an error.
        bytes.try_reserve_exact(size).map_err(|_| too_large())?;
        bytes.resize(size, 0);
        let got = self.read_at(0, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Sets its length in bytes: it is truncated, or gets a hole at its end.
    ///
    /// # Errors
    /// As [`Self::write_all_at`].
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.allow(self.write, "writing")?;
        self.fs.truncate(&self.who, &self.znode, bytes)
    }

    /// The next byte at or after an offset that is in no hole, in whole blocks; `None` if there is
    /// none.
    ///
    /// # Errors
    /// The tree of its blocks cannot be read.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.next(offset, Whence::Data)
    }

    /// The next hole at or after an offset, in whole blocks; the end of the file counts as one.
    /// `None` after it.
    ///
    /// # Errors
    /// The tree of its blocks cannot be read.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.next(offset, Whence::Hole)
    }

    fn next(&self, offset: u64, whence: Whence) -> Result<Option<u64>> {
        match self.fs.seek(&self.znode, offset, whence) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.is(Errno::NXIO) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Waits until everything written to it is on disk (`fsync`).
    ///
    /// # Errors
    /// `Suspended`: a device failed.
    pub fn sync(&self) -> Result<()> {
        self.fs.fsync(&self.znode)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.read_at(self.position, buf)?;
        self.position += got as u64;
        Ok(got)
    }
}

impl Write for File {
    /// Writes all bytes; with `append` the position is the end of the file afterwards.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_all_at(self.position, buf)?;
        self.position = match self.append {
            true => self.len(),
            false => self.position + buf.len() as u64,
        };
        Ok(buf.len())
    }

    /// Nothing is buffered here: [`File::sync`] waits for the disk.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        let before = || Error::refused(Errno::INVAL, "a place before the file's beginning");
        self.position = at.ok_or_else(before)?;
        Ok(self.position)
    }
}

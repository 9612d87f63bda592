//! Directories: the names in one, and a walk through everything below one.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zuse_base::{Error, ObjectId, Result};
use zuse_zpl::{DOT_ZFS, FileSystem, Znode};

use super::{FileType, Metadata, path_of};

/// Names that are fetched at a time.
const BATCH: usize = 256;

/// The names of a directory. It may change meanwhile: a name that exists all the time is returned
/// once.
pub struct ReadDir {
    fs: Arc<FileSystem>,
    dir: Arc<Znode>,
    ready: VecDeque<DirEntry>,
    /// The position of the next batch; `None` at the end.
    from: Option<u64>,
    /// An error, returned after the names before it.
    flaw: Option<Error>,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    fs: Arc<FileSystem>,
    name: Vec<u8>,
    object: ObjectId,
    kind: u32,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> OsString {
        path_of(&self.name).into_os_string()
    }

    /// The bytes of the name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        super::number(self.object)
    }

    /// Its type, from the directory entry: nothing is read for this.
    pub fn file_type(&self) -> FileType {
        FileType::of(self.kind)
    }

    /// Its attributes, as `lstat` gives them.
    ///
    /// # Errors
    /// `Refused(NOENT)`: it is gone. Or it cannot be read.
    pub fn metadata(&self) -> Result<Metadata> {
        let znode = self.fs.znode(self.object)?;
        Ok(Metadata::new(self.fs.getattr(&znode)))
    }
}

impl ReadDir {
    pub(super) fn new(fs: Arc<FileSystem>, dir: Arc<Znode>) -> Result<Self> {
        let mut new = Self {
            fs,
            dir,
            ready: VecDeque::new(),
            from: Some(0),
            flaw: None,
        };
        // The error that it is no directory belongs here, not to the first name.
        new.fetch();
        match new.flaw.take_if(|_| new.ready.is_empty()) {
            Some(error) => Err(error),
            None => Ok(new),
        }
    }

    fn fetch(&mut self) {
        let Some(mut from) = self.from.take() else {
            return;
        };
        let (fs, ready) = (&self.fs, &mut self.ready);
        let mut left = BATCH;
        let mut more = false;
        let listed = fs.readdir(&self.dir, from, false, &mut |entry| {
            if left == 0 {
                more = true;
                return false;
            }
            left -= 1;
            from = entry.next;
            if entry.object != DOT_ZFS && !matches!(entry.name, b"." | b"..") {
                ready.push_back(DirEntry {
                    fs: fs.clone(),
                    name: entry.name.to_vec(),
                    object: entry.object,
                    kind: entry.kind,
                });
            }
            true
        });
        // Given after the names that could be read before it.
        self.flaw = listed.err();
        self.from = (more && self.flaw.is_none()).then_some(from);
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && self.from.is_some() {
            self.fetch();
        }
        match self.ready.pop_front() {
            Some(entry) => Some(Ok(entry)),
            None => self.flaw.take().map(Err),
        }
    }
}

/// A walk through a tree. It keeps only the names of the directories on the way down in memory.
///
/// A directory that cannot be listed gives an error; the walk continues after it. It always ends,
/// even on a damaged disk.
pub struct Walk<'a> {
    fs: &'a Arc<FileSystem>,
    inner: zuse_zpl::Walk<'a>,
}

/// An object found by a walk.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: PathBuf,
    inner: DirEntry,
}

impl WalkEntry {
    /// Path from the start of the walk, without a leading slash; empty for the start itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.inner.ino()
    }

    /// Its type: nothing is read for this.
    pub fn file_type(&self) -> FileType {
        self.inner.file_type()
    }

    /// Its attributes, as `lstat` gives them.
    ///
    /// # Errors
    /// As [`DirEntry::metadata`].
    pub fn metadata(&self) -> Result<Metadata> {
        self.inner.metadata()
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(fs: &'a Arc<FileSystem>, from: &Arc<Znode>) -> Self {
        Self {
            fs,
            inner: fs.walk(from),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.inner.next() {
            Ok(found) => found?,
            Err(error) => return Some(Err(error)),
        };
        let name = entry.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        Some(Ok(WalkEntry {
            path: path_of(entry.path),
            inner: DirEntry {
                fs: self.fs.clone(),
                name: name.to_vec(),
                object: entry.object,
                kind: entry.kind,
            },
        }))
    }
}

//! Files of a dataset or snapshot, by their paths, without a mount.
//!
//! ```text
//!   Pool::files(name) ── Files ─┬─ File       Read + Write + Seek
//!                               ├─ ReadDir    names of one directory
//!                               ├─ Walk       everything below one directory
//!                               └─ Metadata   what `stat` shows
//! ```
//! - A path begins at the dataset's root; a leading slash changes nothing.
//! - `.` and `..` have their usual meaning, and `..` never leaves the dataset.
//! - Symbolic links are never followed. [`Files::read_link`] returns their target.
//! - A child dataset has files of its own: its parent shows an empty directory, or nothing.
//! - Changes are visible at once, and on disk after [`Files::sync`] or [`File::sync`].
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("tank.img");
//! # zuse::CreateOptions::new("tank").file(&image, 64 << 20).create()?.export()?;
//! use std::io::{Read, Seek, SeekFrom, Write};
//!
//! let pool = zuse::OpenOptions::new().write(true).open(&image)?;
//! let files = pool.files("tank")?;
//! let mut file = files.create("/notes.txt")?;
//! file.write_all(b"one two three")?;
//! file.seek(SeekFrom::Start(4))?;
//! let mut rest = String::new();
//! file.read_to_string(&mut rest)?;
//! assert_eq!(rest, "two three");
//! assert_eq!(files.metadata("notes.txt")?.len(), 13);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dir;
mod file;
mod metadata;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_zpl::{Credentials, FileSystem, RenameFlags, SetAttr, TimeSet, XattrMode, Znode};

use crate::Pool;

pub use dir::{DirEntry, ReadDir, Walk, WalkEntry};
pub use file::{File, OpenOptions};
pub use metadata::{FileType, Metadata};

/// The bytes of a path. On Unix any bytes; elsewhere UTF-8, if the path is.
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// A path from bytes. Names need not be UTF-8: on Unix they are kept unchanged, elsewhere invalid
/// parts become U+FFFD.
fn path_of(bytes: &[u8]) -> PathBuf {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
    }
    #[cfg(not(unix))]
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

/// A refusal names the path as the caller gave it. Other errors name their place already.
fn at_path<T>(path: &Path, result: Result<T>) -> Result<T> {
    result.map_err(|error| match error {
        Error::Refused { errno, why, what } => {
            let path = path.display();
            // The error number is enough; the detail would repeat it.
            let says_all = matches!(errno, Errno::NOENT | Errno::EXIST | Errno::NOTDIR);
            let what = match says_all {
                true => format!("'{path}'"),
                false => format!("'{path}': {what}"),
            };
            Error::refused_for(why, errno, what)
        }
        other => other,
    })
}

impl Pool {
    /// The files of a filesystem or snapshot, with the rights of the superuser. While they are in
    /// use their dataset is not rolled back or destroyed.
    ///
    /// # Errors
    /// `Refused(NOENT)` without such a dataset, `Refused(ACCES)` without its key; or it cannot be
    /// read.
    pub fn files(&self, name: &str) -> Result<Files> {
        Ok(Files {
            fs: self.file_system(name)?,
            who: Credentials::root(),
        })
    }
}

/// The files of one dataset or snapshot. A clone is another handle on the same files.
#[derive(Clone, Debug)]
pub struct Files {
    fs: Arc<FileSystem>,
    who: Credentials,
}

impl Files {
    /// The same files for another user. With [`Credentials::enforced`], forbidden operations are
    /// refused with `ACCES` or `PERM`.
    pub fn with_credentials(mut self, who: Credentials) -> Self {
        self.who = who;
        self
    }

    /// Whether nothing can be changed: a snapshot, or a pool that is open for reading.
    pub fn is_read_only(&self) -> bool {
        self.fs.is_read_only()
    }

    fn at(&self, path: &Path) -> Result<Arc<Znode>> {
        at_path(path, self.fs.resolve(&self.who, bytes(path)))
    }

    /// The directory of a path's last name, and that name.
    fn place<'a>(&self, path: &'a Path) -> Result<(Arc<Znode>, &'a [u8])> {
        let whole = bytes(path);
        let end = whole
            .iter()
            .rposition(|b| *b != b'/')
            .map_or(0, |at| at + 1);
        let whole = whole.get(..end).unwrap_or_default();
        let start = whole
            .iter()
            .rposition(|b| *b == b'/')
            .map_or(0, |at| at + 1);
        let (dir, name) = whole.split_at(start);
        if name.is_empty() {
            let what = format!("'{}' names no file", path.display());
            return Err(Error::refused(Errno::INVAL, what));
        }
        Ok((at_path(path, self.fs.resolve(&self.who, dir))?, name))
    }

    /// Opens a file for reading. Refusals of this and the other methods name the path.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("tank.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(&image, 64 << 20).create()?;
    /// let error = pool.files("tank")?.open("etc/hosts").expect_err("no such file");
    /// assert_eq!(error.to_string(), "'etc/hosts': no such file or directory");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(NOTDIR)` if a name on the way is no directory, `Refused(ISDIR)`
    /// for a directory; or it cannot be read.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for reading and writing. It is created if missing, and truncated if it exists.
    ///
    /// # Errors
    /// As [`Self::open`]; `Refused(ROFS)`, `Refused(NOSPC)`, `Refused(DQUOT)`.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        let options = OpenOptions::new().read(true).write(true);
        options.create(true).truncate(true).open(self, path)
    }

    /// All bytes of a file.
    ///
    /// # Errors
    /// As [`Self::open`]; `Refused(NOMEM)` for a file that does not fit into memory.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.open(path)?.read_all()
    }

    /// Writes a file with this content, which replaces any old content.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(path)?;
        file.write_all_at(0, contents.as_ref())
    }

    /// The attributes of a path, as `lstat` gives them.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(NOTDIR)`; or it cannot be read.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(Metadata::new(self.fs.getattr(&*self.at(path.as_ref())?)))
    }

    /// Whether a path exists.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.at(path.as_ref()) {
            Ok(_) => Ok(true),
            Err(e) if e.is(Errno::NOENT) || e.is(Errno::NOTDIR) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The names in a directory, without `.` and `..`, in an unspecified order.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(NOTDIR)`; or it cannot be read.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        at_path(path, ReadDir::new(self.fs.clone(), self.at(path)?))
    }

    /// Everything below a directory, the directory itself first, in the byte order of the paths.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("tank.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(&image, 64 << 20).create()?;
    /// let files = pool.files("tank")?;
    /// files.create_dir_all("etc/apt")?;
    /// files.write("etc/hosts", "127.0.0.1 localhost\n")?;
    /// let mut paths = Vec::new();
    /// for entry in files.walk("/")? {
    ///     paths.push(entry?.path().display().to_string());
    /// }
    /// assert_eq!(paths, ["", "etc", "etc/apt", "etc/hosts"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(NOENT)`; or it cannot be read.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk<'_>> {
        Ok(Walk::new(&self.fs, &self.at(path.as_ref())?))
    }

    /// Makes a directory with mode 0755.
    ///
    /// # Errors
    /// `Refused(EXIST)`, `Refused(NOENT)` without its parent, `Refused(ROFS)`, `Refused(NOSPC)`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.place(path)?;
        at_path(path, self.fs.mkdir(&self.who, &dir, name, 0o755)).map(drop)
    }

    /// Creates a directory, and its missing parents.
    ///
    /// # Errors
    /// As [`Self::create_dir`]; `Refused(NOTDIR)` if one of the names is not a directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut at = self.fs.root()?;
        for name in bytes(path).split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            let found = match self.fs.lookup(&self.who, &at, name) {
                Err(e) if e.is(Errno::NOENT) => self.fs.mkdir(&self.who, &at, name, 0o755),
                found => found,
            };
            at = at_path(path, found)?;
        }
        match at.is_dir() {
            true => Ok(()),
            false => at_path(path, Err(Error::refused(Errno::NOTDIR, ""))),
        }
    }

    /// Removes a name of anything except a directory. An open file stays usable until it is closed.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(ISDIR)`, `Refused(ROFS)`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.place(path)?;
        at_path(path, self.fs.unlink(&self.who, &dir, name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(NOTDIR)`, `Refused(NOTEMPTY)`, `Refused(ROFS)`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.place(path)?;
        at_path(path, self.fs.rmdir(&self.who, &dir, name))
    }

    /// Renames a file or directory. An existing file of the new name is replaced.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(ISDIR)`, `Refused(NOTDIR)`, `Refused(NOTEMPTY)`; `Refused(INVAL)`
    /// for a directory that would move into itself.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (from_dir, from_name) = self.place(from)?;
        let (to_dir, to_name) = self.place(to)?;
        let how = RenameFlags::default();
        let renamed = self
            .fs
            .rename(&self.who, &from_dir, from_name, &to_dir, to_name, how);
        // Only the old name can be missing.
        let about = match &renamed {
            Err(e) if e.is(Errno::NOENT) => from,
            _ => to,
        };
        at_path(about, renamed)
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(EXIST)`, `Refused(PERM)` for a directory.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let znode = self.at(original.as_ref())?;
        let link = link.as_ref();
        let (dir, name) = self.place(link)?;
        at_path(link, self.fs.link(&self.who, &znode, &dir, name))
    }

    /// Creates a symbolic link to a target, which is stored unchanged and need not exist.
    ///
    /// # Errors
    /// `Refused(EXIST)`, `Refused(NAMETOOLONG)` for targets above 4,095 bytes.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        let (dir, name) = self.place(link)?;
        let target = bytes(target.as_ref());
        at_path(link, self.fs.symlink(&self.who, &dir, name, target)).map(drop)
    }

    /// Where a symbolic link leads to.
    ///
    /// # Errors
    /// `Refused(INVAL)` for anything else; or it cannot be read.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let target = at_path(path, self.fs.readlink(&self.at(path)?))?;
        Ok(path_of(&target))
    }

    fn change(&self, path: &Path, set: &SetAttr) -> Result<()> {
        let znode = self.at(path)?;
        at_path(path, self.fs.setattr(&self.who, &znode, set)).map(drop)
    }

    /// Sets the permission bits (`0o7777`).
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(PERM)`, `Refused(ROFS)`.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let mode = Some(mode);
        self.change(
            path.as_ref(),
            &SetAttr {
                mode,
                ..SetAttr::default()
            },
        )
    }

    /// Sets owner and group; `None` leaves one unchanged.
    ///
    /// # Errors
    /// As [`Self::set_mode`].
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.change(
            path.as_ref(),
            &SetAttr {
                uid,
                gid,
                ..SetAttr::default()
            },
        )
    }

    /// Sets the times of the last access and the last change of the contents; `None` leaves one
    /// unchanged.
    ///
    /// # Errors
    /// As [`Self::set_mode`].
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let at = |time: SystemTime| TimeSet::At(time.into());
        let (atime, mtime) = (accessed.map(at), modified.map(at));
        self.change(
            path.as_ref(),
            &SetAttr {
                atime,
                mtime,
                ..SetAttr::default()
            },
        )
    }

    /// The value of an extended attribute, by its whole name (`user.mime_type`); `None` without
    /// one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("tank.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(&image, 64 << 20).create()?;
    /// let files = pool.files("tank")?;
    /// files.write("page", "<p>")?;
    /// files.set_xattr("page", "user.mime_type", b"text/html")?;
    /// assert_eq!(files.xattrs("page")?, ["user.mime_type"]);
    /// assert_eq!(files.xattr("page", "user.mime_type")?.as_deref(), Some(&b"text/html"[..]));
    /// files.remove_xattr("page", "user.mime_type")?;
    /// assert_eq!(files.xattr("page", "user.mime_type")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(NOENT)` without the file, `Refused(NOTSUP)` for an unknown name space; or it cannot
    /// be read.
    pub fn xattr(&self, path: impl AsRef<Path>, name: &str) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        let znode = self.at(path)?;
        match self.fs.get_xattr(&self.who, &znode, name.as_bytes()) {
            Ok(value) => Ok(Some(value)),
            Err(e) if e.is(Errno::NODATA) => Ok(None),
            Err(e) => at_path(path, Err(e)),
        }
    }

    /// Names of the extended attributes. Invalid UTF-8 is shown as U+FFFD.
    ///
    /// # Errors
    /// `Refused(NOENT)`; or it cannot be read.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let path = path.as_ref();
        let names = at_path(path, self.fs.list_xattrs(&self.who, &self.at(path)?))?;
        let text = |n: &Vec<u8>| String::from_utf8_lossy(n).into_owned();
        Ok(names.iter().map(text).collect())
    }

    /// Makes or replaces an extended attribute.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(NOTSUP)`, `Refused(NOSPC)`, `Refused(ROFS)`.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: &str, value: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let znode = self.at(path)?;
        let (name, how) = (name.as_bytes(), XattrMode::Any);
        at_path(path, self.fs.set_xattr(&self.who, &znode, name, value, how))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `Refused(NOENT)`, `Refused(NODATA)` without such an attribute, `Refused(ROFS)`.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &str) -> Result<()> {
        let path = path.as_ref();
        let znode = self.at(path)?;
        at_path(
            path,
            self.fs.remove_xattr(&self.who, &znode, name.as_bytes()),
        )
    }

    /// Waits until all changes are on disk.
    ///
    /// # Errors
    /// `Suspended`: a device failed.
    pub fn sync(&self) -> Result<()> {
        self.fs.sync()
    }
}

/// The inode number that `stat` shows.
fn number(object: ObjectId) -> u64 {
    object.0
}

//! A directory of the host below which a tree is written, and nothing outside of it.
//!
//! Names come from a disk or stream and may be hostile. Rules, each with tests that try to break
//! it:
//! - Every path consists of checked names below an open directory. Directories are opened without
//!   following links: `openat2` with `RESOLVE_BENEATH`, or, if a sandbox refuses that call, name by
//!   name with `O_NOFOLLOW`.
//! - Objects are always newly created (`O_EXCL` and its like). An existing link or file is neither
//!   followed nor written through.
//! - An existing object is replaced only if the user asked for that. Only a file or a link is
//!   replaced, by a rename.
//! - Only a disk is overwritten in place, when the user copies a volume to it by name
//!   ([`Place::disk`]).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::fs::{
    AtFlags, CWD, Dev, FileType, Mode, OFlags, ResolveFlags, Stat, Timestamps, linkat, mkdirat,
    mknodat, open, openat, openat2, renameat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

/// Longest part of a path that is resolved at once: the system accepts paths of less than 4 KiB.
const PIECE: usize = 3 << 10;
/// How often `openat2` is repeated, which fails if something is renamed meanwhile.
const ATTEMPTS: usize = 16;

/// What may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Nothing.
    Nothing,
    /// A file that the user named.
    File,
    /// Files and links.
    FilesAndLinks,
}

/// An open directory under which paths are resolved.
pub struct Below {
    top: OwnedFd,
    /// The system has `openat2`, and no sandbox refuses it.
    at_once: AtomicBool,
    /// For temporary names.
    next: AtomicU64,
}

/// The object that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(Dev, u64);

impl Identity {
    /// From file status.
    pub fn of(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }
}

/// A place for a new object: a name in an open directory.
pub struct Place<'a> {
    below: &'a Below,
    dir: &'a OwnedFd,
    name: &'a [u8],
    replace: Replace,
}

/// Whether a name is one in a directory, and leads nowhere else.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !matches!(name, b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

impl Below {
    /// Opens a directory that the user named.
    ///
    /// # Errors
    /// It is not a directory, or may not be entered.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::of(open(path, flags, Mode::empty())?))
    }

    fn of(top: OwnedFd) -> Self {
        Self {
            top,
            at_once: AtomicBool::new(true),
            next: AtomicU64::new(std::process::id().into()),
        }
    }

    /// A directory below, by names that slashes separate; the empty path is the top.
    ///
    /// # Errors
    /// It does not exist, or a component is a link or not a directory.
    pub fn dir(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.walk(path, OFlags::PATH)
    }

    /// The same, open for reading: its attributes can be set.
    ///
    /// # Errors
    /// As of [`Self::dir`].
    pub fn dir_itself(&self, path: &[u8]) -> io::Result<File> {
        let dir = self.walk(path, OFlags::PATH)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&dir, ".", flags, Mode::empty())?.into())
    }

    fn walk(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let mut at = self.top.try_clone()?;
        let mut rest = path;
        while !rest.is_empty() {
            let cut = match rest.len() > PIECE {
                true => rest
                    .get(..PIECE)
                    .and_then(|p| p.iter().rposition(|b| *b == b'/'))
                    .unwrap_or(PIECE),
                false => rest.len(),
            };
            let (piece, behind) = rest.split_at(cut);
            rest = behind.strip_prefix(b"/").unwrap_or(behind);
            at = self.step(&at, piece, flags)?;
        }
        Ok(at)
    }

    fn step(&self, from: &OwnedFd, piece: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        // Also for `openat2`: `..` would be allowed below the top.
        if !piece.split(|b| *b == b'/').all(is_name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..ATTEMPTS {
            if !self.at_once.load(Relaxed) {
                break;
            }
            match openat2(
                from,
                OsStr::from_bytes(piece),
                flags,
                Mode::empty(),
                resolve,
            ) {
                // The kernel could not exclude a rename that leads outside, and asks for another
                // attempt.
                Err(Errno::AGAIN) => {}
                // Old systems lack it, sandboxes refuse it.
                Err(Errno::NOSYS | Errno::PERM) => self.at_once.store(false, Relaxed),
                other => return Ok(other?),
            }
        }
        let mut at: Option<OwnedFd> = None;
        for name in piece.split(|b| *b == b'/') {
            let dir = at.as_ref().unwrap_or(from);
            at = Some(openat(dir, OsStr::from_bytes(name), flags, Mode::empty())?);
        }
        at.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Creates a directory with access for its owner only; false if there is one already.
    ///
    /// # Errors
    /// It cannot be created; another kind of file is there.
    pub fn make_dir(&self, dir: &OwnedFd, name: &[u8]) -> io::Result<bool> {
        if !is_name(name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match mkdirat(dir, OsStr::from_bytes(name), Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                // A link to a directory has the same error: only a real directory may be used.
                self.step(dir, name, OFlags::PATH)?;
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// A place for something new.
    pub fn place<'a>(&'a self, dir: &'a OwnedFd, name: &'a [u8], replace: Replace) -> Place<'a> {
        Place {
            below: self,
            dir,
            name,
            replace,
        }
    }
}

/// A newly created object under its temporary name. Only [`Made::keep`] makes it permanent.
pub struct Made<'a> {
    place: &'a Place<'a>,
    /// Its temporary name, if the final one belongs to another object until it is complete.
    passing: Option<String>,
    /// What it is.
    pub identity: Identity,
}

impl<'a> Place<'a> {
    /// Creates an object with `make`. That is called with a directory and a name, and fails if the
    /// name exists.
    ///
    /// # Errors
    /// It cannot be created, or an existing object may not be replaced.
    pub fn make<T>(
        &'a self,
        make: impl Fn(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T>,
    ) -> io::Result<(T, Made<'a>)> {
        if !is_name(self.name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let own = OsStr::from_bytes(self.name);
        let (made, passing) = match make(self.dir.as_fd(), own) {
            Err(Errno::EXIST) if self.may_replace()? => {
                let n = self.below.next.fetch_add(1, Relaxed);
                let name = format!(".zuse-{n:x}-{:x}", std::process::id());
                (make(self.dir.as_fd(), OsStr::new(&name))?, Some(name))
            }
            other => (other?, None),
        };
        let mut made_it = Made {
            place: self,
            passing,
            identity: Identity(0, 0),
        };
        // Noted at once: later calls by name check that it is still the same object.
        made_it.identity = Identity::of(&made_it.stat()?);
        Ok((made, made_it))
    }

    fn may_replace(&self) -> io::Result<bool> {
        let there = statat(
            self.dir,
            OsStr::from_bytes(self.name),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
        Ok(match FileType::from_raw_mode(there.st_mode) {
            FileType::RegularFile => self.replace != Replace::Nothing,
            FileType::Symlink => self.replace == Replace::FilesAndLinks,
            _ => false,
        })
    }

    /// Creates a file that only this process can write.
    ///
    /// # Errors
    /// As of [`Self::make`].
    pub fn file(&'a self) -> io::Result<(File, Made<'a>)> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let (file, made) = self.make(|dir, name| openat(dir, name, flags, mode))?;
        Ok((file.into(), made))
    }

    /// The disk with this name, open for writing; `None` if it is anything else, or nothing.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn disk(&self) -> io::Result<Option<File>> {
        if !is_name(self.name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let own = OsStr::from_bytes(self.name);
        let is_disk = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
        if !statat(self.dir, own, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| is_disk(&s)) {
            return Ok(None);
        }
        // Without waiting: if a FIFO takes the name, an open would wait for its reader.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let disk = openat(self.dir, own, flags, Mode::empty())?;
        // Something else may have taken the name meanwhile.
        match is_disk(&rustix::fs::fstat(&disk)?) {
            true => Ok(Some(disk.into())),
            false => Err(io::Error::other("another file has taken its name")),
        }
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As of [`Self::make`].
    pub fn symlink(&'a self, target: &[u8]) -> io::Result<Made<'a>> {
        let target = OsStr::from_bytes(target);
        Ok(self.make(|dir, name| symlinkat(target, dir, name))?.1)
    }

    /// Creates a FIFO, socket or device with access for its owner only.
    ///
    /// # Errors
    /// As of [`Self::make`].
    pub fn special(&'a self, kind: FileType, number: Dev) -> io::Result<Made<'a>> {
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(self
            .make(|dir, name| mknodat(dir, name, kind, mode, number))?
            .1)
    }

    /// Creates another name of an object: of that very object, even if its name leads to another
    /// one by now.
    ///
    /// # Errors
    /// As [`Self::make`]; the first name leads to something else.
    pub fn link(&'a self, from: &OwnedFd, first: &[u8], what: Identity) -> io::Result<Made<'a>> {
        let first = OsStr::from_bytes(first);
        let (_, made) = self.make(|dir, name| linkat(from, first, dir, name, AtFlags::empty()))?;
        if made.identity != what {
            made.drop_it();
            return Err(io::Error::other("another file has taken its first name"));
        }
        Ok(made)
    }
}

impl Made<'_> {
    /// The name that it has now.
    fn name(&self) -> &OsStr {
        match &self.passing {
            Some(name) => OsStr::new(name),
            None => OsStr::from_bytes(self.place.name),
        }
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(statat(
            self.place.dir,
            self.name(),
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// Opens it without following links and without read or write access, to set its attributes.
    ///
    /// # Errors
    /// The name leads to another object now.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(self.place.dir, self.name(), flags, Mode::empty())?;
        let now = Identity::of(&rustix::fs::fstat(&handle)?);
        match now == self.identity {
            true => Ok(handle),
            false => Err(io::Error::other("another file has taken its name")),
        }
    }

    /// Sets its times.
    ///
    /// # Errors
    /// The host refuses.
    pub fn set_times(&self, times: &Timestamps) -> io::Result<()> {
        let how = AtFlags::SYMLINK_NOFOLLOW;
        Ok(utimensat(self.place.dir, self.name(), times, how)?)
    }

    /// It is complete: it gets its final name.
    ///
    /// # Errors
    /// The object with that name cannot be replaced.
    pub fn keep(self) -> io::Result<()> {
        if let Some(passing) = &self.passing {
            let own = OsStr::from_bytes(self.place.name);
            let moved = match self.place.may_replace()? {
                true => renameat(self.place.dir, passing, self.place.dir, own),
                false => Err(Errno::EXIST),
            };
            if let Err(e) = moved {
                // The temporary name must not stay behind.
                self.drop_it();
                return Err(e.into());
            }
        }
        Ok(())
    }

    /// It is discarded: its name is removed, if it still leads to it.
    pub fn drop_it(&self) {
        let here = self.stat().map(|stat| Identity::of(&stat));
        if here.is_ok_and(|here| here == self.identity) {
            let _ = unlinkat(self.place.dir, self.name(), AtFlags::empty());
        }
    }
}

/// A path that leads to an open file, for calls that take no descriptor. `None` without `/proc`.
pub fn path_of(fd: &impl AsFd) -> Option<String> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    statat(CWD, path.as_str(), AtFlags::SYMLINK_NOFOLLOW)
        .is_ok()
        .then_some(path)
}

#[cfg(test)]
mod tests;

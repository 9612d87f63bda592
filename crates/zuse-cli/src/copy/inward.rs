//! Copying from the host into a dataset.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zuse_base::sync::Mutex;

use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};
use zuse::tools::FileSystem;
use zuse::{Credentials, Errno};
use zuse_base::Timestamp;
use zuse_mount::Change;
use zuse_zpl::{
    NewObject, SetAttr, TimeSet, VALUE_MAX, WriteOptions, XattrMode, Znode, device_number, mode,
};

use super::report::Report;
use super::{BATCH, CHUNK, Jobs, threads};
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::holder::Holder;
use crate::progress::Progress;

enum Job {
    /// A directory of the host and the one in the dataset; whether the latter was just created.
    Dir(PathBuf, Arc<Znode>, bool),
    /// Names in a directory that are not directories.
    Files(Arc<PathBuf>, Arc<Znode>, bool, Vec<(Vec<u8>, Metadata)>),
}

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyInOptions {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Keep the readable part of a file that cannot be read completely.
    pub keep_going: bool,
    /// Create devices, FIFOs and sockets.
    pub special: bool,
    /// The destination was written as a directory.
    pub is_dir: bool,
}

/// An object with several names.
enum Link {
    /// A thread is copying it. These names were found meanwhile: directory, name, path on the host.
    Copying(Arc<Znode>, Vec<(Arc<Znode>, Vec<u8>, PathBuf)>),
    /// It is there.
    There(Arc<Znode>),
    /// It could not be copied.
    Bad,
}

/// A copy into a dataset at work.
struct Inward<'a> {
    fs: &'a Arc<FileSystem>,
    dataset: &'a str,
    notify: Option<&'a Arc<Holder>>,
    progress: &'a Progress,
    report: &'a Report,
    options: CopyInOptions,
    /// Owners are kept.
    as_root: bool,
    me: Credentials,
    /// Objects with several names that were created already, by device and inode.
    links: Mutex<HashMap<(u64, u64), Link>>,
    /// Directories whose attributes are set at the end.
    dirs: Mutex<Vec<(Arc<Znode>, Metadata, PathBuf)>>,
}

/// Copies a file, link or (with `recursive`) tree of the host to a name in a directory of a
/// dataset. An empty name is the directory itself. Failures below the first object are reported.
pub fn copy_in(
    fs: &Arc<FileSystem>,
    dataset: &str,
    notify: Option<&Arc<Holder>>,
    (progress, report): (&Progress, &Report),
    from: &Path,
    (dir, name): (&Arc<Znode>, &[u8]),
    options: CopyInOptions,
) -> Outcome {
    let uid = rustix::process::geteuid();
    let copy = Inward {
        fs,
        dataset,
        notify: notify.filter(|h| h.serves(dataset)),
        progress,
        report,
        options,
        as_root: uid.is_root(),
        me: Credentials::checked_by_kernel(uid.as_raw(), crate::caller::group(), 0),
        links: Mutex::default(),
        dirs: Mutex::default(),
    };
    let meta =
        fs::symlink_metadata(from).or_cannot(|| format!("cannot copy '{}'", from.display()))?;
    let first = if meta.is_dir() {
        if !options.recursive {
            return Err(CommandError::new(format!(
                "cannot copy '{}': it is a directory",
                from.display()
            ))
            .hint("-r copies directories with all that is in them")
            .into());
        }
        let (target, new) = if name.is_empty() {
            (dir.clone(), false)
        } else {
            copy.make_dir(dir, false, name, &meta, from)?
        };
        copy.dirs().push((target.clone(), meta, from.to_owned()));
        Job::Dir(from.to_owned(), target, new)
    } else {
        let (parent, own) = (
            from.parent().unwrap_or(Path::new("")),
            from.file_name().unwrap_or_default(),
        );
        let mut buffer = Vec::new();
        let at = Place {
            host: parent,
            dir,
            new: false,
        };
        return copy.one(&at, own.as_bytes(), name, &meta, &mut buffer);
    };
    let copied = Jobs::new(first).run(threads(), Vec::new, |jobs, job, buffer| {
        copy.work(jobs, job, buffer)
    });
    // Deepest first: setting the times of a directory is the last change to it.
    let dirs = std::mem::take(&mut *copy.dirs());
    for (znode, meta, path) in dirs.iter().rev() {
        if let Err(stop) = report.take(copy.finish(znode, meta, path))
            && copied.is_ok()
        {
            return Err(stop);
        }
    }
    copied
}

/// A directory on both sides.
struct Place<'a> {
    host: &'a Path,
    dir: &'a Arc<Znode>,
    /// The one in the dataset was created by this copy, so it is empty.
    new: bool,
}

impl Inward<'_> {
    fn dirs(&self) -> zuse_base::sync::MutexGuard<'_, Vec<(Arc<Znode>, Metadata, PathBuf)>> {
        self.dirs.lock()
    }

    fn work(&self, jobs: &Jobs<Job>, job: Job, buffer: &mut Vec<u8>) -> Outcome {
        match job {
            Job::Dir(path, dir, new) => {
                let done = self.directory(jobs, path, &dir, new);
                self.report.take(done)
            }
            Job::Files(host, dir, new, names) => {
                let at = Place {
                    host: &host,
                    dir: &dir,
                    new,
                };
                names.iter().try_for_each(|(name, meta)| {
                    let done = self.one(&at, name, name, meta, buffer);
                    self.report.take(done)
                })
            }
        }
    }

    /// Creates the subdirectories of a directory and collects its other entries.
    fn directory(&self, jobs: &Jobs<Job>, path: PathBuf, dir: &Arc<Znode>, new: bool) -> Outcome {
        let cannot = || format!("cannot read directory '{}'", self.shown(&path));
        let mut files = Vec::new();
        let mut more = Vec::new();
        let shared = Arc::new(path.clone());
        for entry in fs::read_dir(&path).or_cannot(cannot)? {
            let entry = match entry.or_cannot(cannot) {
                Ok(entry) => entry,
                // The sources before it are copied.
                Err(stop) => {
                    self.report.take(Err(stop))?;
                    break;
                }
            };
            let (from, name) = (entry.path(), entry.file_name());
            let meta = entry.metadata();
            let meta = match meta.or_cannot(|| format!("cannot copy '{}'", self.shown(&from))) {
                Ok(meta) => meta,
                Err(stop) => {
                    self.report.take(Err(stop))?;
                    continue;
                }
            };
            if meta.is_dir() {
                match self.make_dir(dir, new, name.as_bytes(), &meta, &from) {
                    Ok((child, made)) => {
                        self.dirs().push((child.clone(), meta, from.clone()));
                        more.push(Job::Dir(from, child, made));
                    }
                    Err(stop) => self.report.take(Err(stop))?,
                }
                continue;
            }
            files.push((name.as_bytes().to_vec(), meta));
            if files.len() >= BATCH {
                let some = std::mem::take(&mut files);
                more.push(Job::Files(shared.clone(), dir.clone(), new, some));
            }
        }
        if !files.is_empty() {
            more.push(Job::Files(shared, dir.clone(), new, files));
        }
        jobs.add(more);
        Ok(())
    }

    /// A path of the host as messages have it.
    fn shown(&self, path: &Path) -> String {
        self.report.name(path.as_os_str().as_bytes())
    }

    /// The credentials for creating an object: its owner's, so that the owner need not be changed.
    fn maker(&self, meta: &Metadata) -> Credentials {
        if self.as_root {
            Credentials::checked_by_kernel(meta.uid(), meta.gid(), 0)
        } else {
            self.me.clone()
        }
    }

    fn make_dir(
        &self,
        dir: &Arc<Znode>,
        dir_is_new: bool,
        name: &[u8],
        meta: &Metadata,
        from: &Path,
    ) -> Outcome<(Arc<Znode>, bool)> {
        let cannot = || format!("cannot copy '{}'", from.display());
        match self
            .fs
            .mkdir(&self.maker(meta), dir, name, meta.mode() & 0o1777)
        {
            Ok(znode) => {
                self.notify_name(dir, dir_is_new, name);
                self.progress.object();
                Ok((znode, true))
            }
            Err(e) if e.is(Errno::EXIST) => {
                let there = self.fs.lookup(&self.me, dir, name).or_cannot(cannot)?;
                if !there.is_dir() {
                    return Err(CommandError::new(format!(
                        "{}: something that is no directory is in its place",
                        cannot()
                    ))
                    .into());
                }
                Ok((there, false))
            }
            Err(e) => Err(e).or_cannot(cannot),
        }
    }

    fn notify_name(&self, dir: &Arc<Znode>, dir_is_new: bool, name: &[u8]) {
        if let Some(holder) = self.notify.filter(|_| !dir_is_new) {
            holder.touched(
                self.dataset,
                Change::Name {
                    dir: dir.object(),
                    name,
                },
            );
        }
    }

    /// Copies an object that is not a directory.
    fn one(
        &self,
        at: &Place<'_>,
        from: &[u8],
        name: &[u8],
        meta: &Metadata,
        buffer: &mut Vec<u8>,
    ) -> Outcome {
        let path = at.host.join(OsStr::from_bytes(from));
        let cannot = || format!("cannot copy '{}'", self.shown(&path));
        let kind = meta.file_type();
        if !self.options.special && !kind.is_file() && !kind.is_symlink() {
            return Ok(());
        }
        let shared = meta.nlink() > 1;
        let key = (meta.dev(), meta.ino());
        // Held until the object exists, so that a second name finds it.
        let mut links = shared.then(|| self.links.lock());
        if let Some(link) = links.as_mut().and_then(|l| l.get_mut(&key)) {
            return self.name_again(link, at, name, &path);
        }
        let znode = self.make(at, name, meta, &path)?;
        if let Some(links) = &mut links {
            links.insert(key, Link::Copying(znode.clone(), Vec::new()));
        }
        drop(links);
        let read = match kind.is_file() {
            true => self.data(&znode, &path, meta, buffer),
            false => Ok(()),
        };
        let stays = read.is_ok() || self.options.keep_going;
        let done = match stays {
            true => self.finish(&znode, meta, &path),
            // A half file under the right name would pass for a whole one.
            false => self.fs.unlink(&self.me, at.dir, name).or_cannot(cannot),
        };
        if shared {
            self.end_links(key, &znode, stays, read.is_ok())?;
        }
        self.notify_name(at.dir, at.new, name);
        self.progress.object();
        done?;
        read.map_err(|stop| self.incomplete(&path, stop))
    }

    /// Another name of an object that exists, or that a thread is copying.
    fn name_again(&self, link: &mut Link, at: &Place<'_>, name: &[u8], path: &Path) -> Outcome {
        let cannot = || format!("cannot copy '{}'", self.shown(path));
        let there = match link {
            Link::Copying(there, _) | Link::There(there) => there.clone(),
            Link::Bad => {
                let what = format!("'{}' is incomplete: its first name is", self.shown(path));
                return Err(CommandError::new(what).into());
            }
        };
        self.clear(at, name).or_cannot(cannot)?;
        self.fs
            .link(&self.me, &there, at.dir, name)
            .or_cannot(cannot)?;
        if let Link::Copying(_, names) = link {
            names.push((at.dir.clone(), name.to_vec(), path.to_owned()));
        }
        self.notify_name(at.dir, at.new, name);
        Ok(())
    }

    /// Creates an object without its content, replacing an existing one.
    fn make(
        &self,
        at: &Place<'_>,
        name: &[u8],
        meta: &Metadata,
        path: &Path,
    ) -> Outcome<Arc<Znode>> {
        let cannot = || format!("cannot copy '{}'", self.shown(path));
        let (bits, rdev) = type_and_device(meta);
        let target = if meta.file_type().is_symlink() {
            Some(fs::read_link(path).or_cannot(cannot)?)
        } else {
            None
        };
        let new = NewObject {
            mode: bits | meta.mode() & 0o7777,
            rdev,
            target: target.as_ref().map(|t| t.as_os_str().as_bytes()),
            ..NewObject::default()
        };
        let maker = self.maker(meta);
        match self.fs.make(&maker, at.dir, name, &new) {
            Ok(znode) => Ok(znode),
            Err(e) if e.is(Errno::EXIST) => {
                self.clear(at, name).or_cannot(cannot)?;
                self.fs.make(&maker, at.dir, name, &new).or_cannot(cannot)
            }
            Err(e) => Err(e).or_cannot(cannot),
        }
    }

    /// An error in reading a file, reported for the file, which is incomplete.
    fn incomplete(&self, path: &Path, stop: Stop) -> Stop {
        let Stop::Failed(error) = stop else {
            return stop;
        };
        let kept = match self.options.keep_going {
            true => "what could be read is kept",
            false => "nothing of it is kept (-k keeps what can be read)",
        };
        let message = format!(
            "'{}' is incomplete: {}; {kept}",
            self.shown(path),
            error.message
        );
        Stop::Failed(CommandError { message, ..error })
    }

    /// An object with several names was copied, or not. Then the names found meanwhile are handled.
    fn end_links(&self, key: (u64, u64), znode: &Arc<Znode>, stays: bool, whole: bool) -> Outcome {
        let mut links = self.links.lock();
        let now = match stays {
            true => Link::There(znode.clone()),
            false => Link::Bad,
        };
        let before = links.insert(key, now);
        drop(links);
        let Some(Link::Copying(_, names)) = before else {
            return Ok(());
        };
        for (dir, name, path) in names {
            if whole {
                continue;
            }
            if !stays {
                let gone = self.fs.unlink(&self.me, &dir, &name);
                let cannot = || format!("cannot remove '{}'", self.shown(&path));
                self.report.take(gone.or_cannot(cannot))?;
                self.notify_name(&dir, false, &name);
            }
            let path = self.shown(&path);
            self.report
                .bad(&format!("'{path}' is incomplete: another name of it is"));
        }
        Ok(())
    }

    /// Makes room for a name.
    fn clear(&self, at: &Place<'_>, name: &[u8]) -> zuse::Result<()> {
        if at.new {
            return Ok(());
        }
        match self.fs.unlink(&self.me, at.dir, name) {
            Err(e) if !e.is(Errno::NOENT) => Err(e),
            _ => Ok(()),
        }
    }

    fn data(
        &self,
        znode: &Arc<Znode>,
        path: &Path,
        meta: &Metadata,
        buffer: &mut Vec<u8>,
    ) -> Outcome {
        let cannot = || format!("cannot copy '{}'", path.display());
        if meta.len() == 0 {
            return Ok(());
        }
        // The name may have become a link since it was looked at.
        let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .or_cannot(cannot)?;
        let sparse = meta.blocks() * 512 < meta.len();
        let (mut at, mut end) = (0, u64::MAX);
        let mut size = 0;
        loop {
            if sparse {
                let Some((start, stop)) = next_data(&file, at).or_cannot(cannot)? else {
                    break;
                };
                (at, end) = (start, stop);
            }
            while at < end {
                let want = (end - at)
                    .min(CHUNK as u64)
                    .min(meta.len().saturating_sub(at).max(1)) as usize;
                buffer.resize(want, 0);
                let got = file.read_at(buffer, at).or_cannot(cannot)?;
                let Some(data) = buffer.get(..got).filter(|d| !d.is_empty()) else {
                    break;
                };
                self.fs
                    .write(
                        znode,
                        at,
                        data,
                        WriteOptions {
                            // `finish` sets the source's times at the end.
                            keep_times: true,
                            ..WriteOptions::default()
                        },
                    )
                    .or_cannot(cannot)?;
                at += got as u64;
                size = at;
                self.progress.add(got as u64);
                if got < want {
                    break;
                }
                if !sparse && at >= meta.len() {
                    break;
                }
            }
            if !sparse {
                break;
            }
        }
        if size < meta.len() {
            self.fs
                .truncate(&self.me, znode, meta.len())
                .or_cannot(cannot)?;
        }
        Ok(())
    }

    /// Attributes that are set last: extended ones, the mode if it could not be set at creation,
    /// owner, times.
    fn finish(&self, znode: &Arc<Znode>, meta: &Metadata, path: &Path) -> Outcome {
        let cannot = || format!("cannot copy '{}'", path.display());
        self.xattrs(znode, path)?;
        let now = znode.attributes();
        let time = |secs: i64, nanos: i64| {
            Some(TimeSet::At(Timestamp::new(
                secs,
                nanos.clamp(0, 999_999_999) as u32,
            )))
        };
        let mut set = SetAttr {
            atime: time(meta.atime(), meta.atime_nsec()),
            mtime: time(meta.mtime(), meta.mtime_nsec()),
            ..SetAttr::default()
        };
        let wanted = meta.mode() & 0o7777;
        if now.mode & 0o7777 != wanted && !meta.file_type().is_symlink() {
            set.mode = Some(wanted);
        }
        let (uid, gid) = if self.as_root {
            (meta.uid(), meta.gid())
        } else {
            (self.me.uid, self.me.gid)
        };
        if now.uid != u64::from(uid) || now.gid != u64::from(gid) {
            (set.uid, set.gid) = (Some(uid), Some(gid));
            // A change of owner clears set-id bits.
            set.mode = (!meta.file_type().is_symlink() && wanted & 0o6000 != 0)
                .then_some(wanted)
                .or(set.mode);
        }
        self.fs
            .setattr(&Credentials::root(), znode, &set)
            .or_cannot(cannot)?;
        Ok(())
    }

    fn xattrs(&self, znode: &Arc<Znode>, path: &Path) -> Outcome {
        let mut names = [0u8; 4096];
        let mut large;
        let listed: &[u8] = match llistxattr(path, &mut names[..]) {
            Ok(0)
            | Err(
                rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM | rustix::io::Errno::ACCESS,
            ) => return Ok(()),
            Ok(n) => names.get(..n).unwrap_or_default(),
            Err(rustix::io::Errno::RANGE) => {
                large = vec![0u8; 1 << 16];
                let n = llistxattr(path, &mut large[..]).map_err(io::Error::from)?;
                large.get(..n).unwrap_or_default()
            }
            Err(e) => {
                return Err(io::Error::from(e))
                    .or_cannot(|| format!("cannot copy '{}'", path.display()));
            }
        };
        for name in listed.split(|b| *b == 0).filter(|n| !n.is_empty()) {
            let mut value = vec![0u8; VALUE_MAX];
            // It was removed since the list, or this user may not read it.
            let Ok(n) = lgetxattr(path, OsStr::from_bytes(name), &mut value[..]) else {
                continue;
            };
            let value = value.get(..n).unwrap_or_default();
            match self
                .fs
                .set_xattr(&Credentials::root(), znode, name, value, XattrMode::Any)
            {
                Ok(()) => {}
                // The dataset does not support that kind (acltype=off, xattr=off, labels of the
                // host's own).
                Err(e) if e.is(Errno::NOTSUP) || !name.starts_with(b"user.") => {}
                Err(e) => {
                    return Err(e).or_cannot(|| {
                        format!(
                            "cannot copy '{}' of '{}'",
                            String::from_utf8_lossy(name),
                            path.display()
                        )
                    });
                }
            }
        }
        Ok(())
    }
}

/// The next run of data of a sparse file.
fn next_data(file: &File, from: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let end = seek(file, SeekFrom::Hole(start))?;
    Ok((end > start).then_some((start, end)))
}

/// The type of an object that is not a directory, as in its mode, and the number of a device.
fn type_and_device(meta: &Metadata) -> (u32, u64) {
    let kind = meta.file_type();
    if kind.is_file() {
        (mode::REGULAR, 0)
    } else if kind.is_symlink() {
        (mode::SYMLINK, 0)
    } else if kind.is_fifo() {
        (mode::FIFO, 0)
    } else if kind.is_socket() {
        (mode::SOCKET, 0)
    } else {
        let number = device_number(
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        );
        (
            if kind.is_block_device() {
                mode::BLOCK
            } else {
                mode::CHARACTER
            },
            number,
        )
    }
}

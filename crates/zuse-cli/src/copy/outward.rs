//! From a dataset or snapshot to the host.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat,
    utimensat,
};
use zuse::{Credentials, Errno, FileSystem, ObjectId};
use zuse_zpl::{Whence, Znode, mode};

use super::{BATCH, CHUNK, Jobs, threads};
use crate::error::{CommandError, Explain, Outcome};
use crate::progress::Progress;

enum Job {
    Dir(Arc<Znode>, PathBuf),
    Files(Vec<(ObjectId, PathBuf)>),
}

struct Outward<'a> {
    fs: &'a Arc<FileSystem>,
    progress: &'a Progress,
    as_root: bool,
    /// Where objects with several names are already.
    links: Mutex<HashMap<u64, PathBuf>>,
    dirs: Mutex<Vec<(Arc<Znode>, PathBuf)>>,
}

/// Copies an object, with `recursive` a tree, to a path of the host.
pub fn copy_out(
    fs: &Arc<FileSystem>,
    progress: &Progress,
    from: &Arc<Znode>,
    to: &Path,
    recursive: bool,
) -> Outcome {
    let copy = Outward {
        fs,
        progress,
        as_root: rustix::process::geteuid().is_root(),
        links: Mutex::default(),
        dirs: Mutex::default(),
    };
    if !from.is_dir() {
        return copy.one(from, to, &mut Vec::new());
    }
    if !recursive {
        return Err(CommandError::new("cannot copy: it is a directory")
            .hint("-r copies directories with all that is in them")
            .into());
    }
    copy.make_dir(from, to)?;
    Jobs::new(Job::Dir(from.clone(), to.to_owned())).run(
        threads(),
        Vec::new,
        |jobs, job, buffer| copy.work(jobs, job, buffer),
    )?;
    let dirs = std::mem::take(&mut *copy.dirs.lock().unwrap_or_else(PoisonError::into_inner));
    for (znode, path) in dirs.iter().rev() {
        copy.finish(znode, path)?;
    }
    Ok(())
}

impl Outward<'_> {
    fn make_dir(&self, znode: &Arc<Znode>, path: &Path) -> Outcome {
        match fs::create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            made => made.or_cannot(|| format!("cannot make '{}'", path.display()))?,
        }
        self.dirs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((znode.clone(), path.to_owned()));
        self.progress.object();
        Ok(())
    }

    fn work(&self, jobs: &Jobs<Job>, job: Job, buffer: &mut Vec<u8>) -> Outcome {
        match job {
            Job::Dir(dir, path) => {
                let cannot = || format!("cannot read the directory for '{}'", path.display());
                let mut entries: Vec<(ObjectId, u32, Vec<u8>)> = Vec::new();
                self.fs
                    .readdir(&dir, 0, false, &mut |e| {
                        if !matches!(e.name, b"." | b".." | b".zfs") {
                            entries.push((e.object, e.kind, e.name.to_vec()));
                        }
                        true
                    })
                    .or_cannot(cannot)?;
                let mut more = Vec::new();
                let mut files = Vec::new();
                for (object, kind, name) in entries {
                    let to = path.join(OsStr::from_bytes(&name));
                    if kind == mode::DIRECTORY {
                        let child = self.fs.znode(object).or_cannot(cannot)?;
                        self.make_dir(&child, &to)?;
                        more.push(Job::Dir(child, to));
                        continue;
                    }
                    files.push((object, to));
                    if files.len() >= BATCH {
                        more.push(Job::Files(std::mem::take(&mut files)));
                    }
                }
                if !files.is_empty() {
                    more.push(Job::Files(files));
                }
                jobs.add(more);
                Ok(())
            }
            Job::Files(files) => files.iter().try_for_each(|(object, to)| {
                let znode = self
                    .fs
                    .znode(*object)
                    .or_cannot(|| format!("cannot copy to '{}'", to.display()))?;
                self.one(&znode, to, buffer)
            }),
        }
    }

    /// Copies something that is no directory.
    fn one(&self, znode: &Arc<Znode>, to: &Path, buffer: &mut Vec<u8>) -> Outcome {
        let cannot = || format!("cannot copy to '{}'", to.display());
        let a = znode.attributes();
        let mut links =
            (a.links > 1).then(|| self.links.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(first) = links.as_ref().and_then(|l| l.get(&znode.object().0)) {
            remove(to).or_cannot(cannot)?;
            return fs::hard_link(first, to).or_cannot(cannot);
        }
        let kind = match a.kind() {
            mode::REGULAR => {
                let file = create(to).or_cannot(cannot)?;
                if let Some(links) = &mut links {
                    links.insert(znode.object().0, to.to_owned());
                }
                drop(links);
                self.data(znode, &file, to, buffer)?;
                return self.finish(znode, to);
            }
            mode::SYMLINK => {
                let target = self.fs.readlink(znode).or_cannot(cannot)?;
                remove(to).or_cannot(cannot)?;
                symlink(OsStr::from_bytes(&target), to).or_cannot(cannot)?;
                None
            }
            mode::FIFO => Some(FileType::Fifo),
            mode::SOCKET => Some(FileType::Socket),
            mode::BLOCK => Some(FileType::BlockDevice),
            _ => Some(FileType::CharacterDevice),
        };
        if let Some(kind) = kind {
            remove(to).or_cannot(cannot)?;
            let (major, minor) = self.fs.getattr(znode).device();
            mknodat(
                CWD,
                to,
                kind,
                Mode::from_bits_truncate(a.mode & 0o7777),
                makedev(major, minor),
            )
            .map_err(io::Error::from)
            .or_cannot(cannot)?;
        }
        if let Some(links) = &mut links {
            links.insert(znode.object().0, to.to_owned());
        }
        drop(links);
        self.finish(znode, to)
    }

    fn data(&self, znode: &Arc<Znode>, file: &File, to: &Path, buffer: &mut Vec<u8>) -> Outcome {
        let cannot = || format!("cannot copy to '{}'", to.display());
        let size = znode.size();
        let sparse = self.fs.getattr(znode).blocks * 512 < size;
        let mut at = 0;
        if sparse {
            file.set_len(size).or_cannot(cannot)?;
        }
        while at < size {
            let mut end = size;
            if sparse {
                at = match self.fs.seek(znode, at, Whence::Data) {
                    Ok(at) => at,
                    Err(e) if e.is(Errno::NXIO) => break,
                    Err(e) => return Err(e).or_cannot(cannot),
                };
                end = self
                    .fs
                    .seek(znode, at, Whence::Hole)
                    .or_cannot(cannot)?
                    .min(size);
            }
            while at < end {
                buffer.resize((end - at).min(CHUNK as u64) as usize, 0);
                let got = self.fs.read(znode, at, buffer).or_cannot(cannot)?;
                if got == 0 {
                    return Ok(());
                }
                file.write_all_at(buffer.get(..got).unwrap_or_default(), at)
                    .or_cannot(cannot)?;
                at += got as u64;
                self.progress.add(got as u64);
            }
        }
        Ok(())
    }

    fn finish(&self, znode: &Arc<Znode>, to: &Path) -> Outcome {
        let cannot = || format!("cannot set the attributes of '{}'", to.display());
        let a = znode.attributes();
        let root = Credentials::root();
        let link = a.kind() == mode::SYMLINK;
        if self.as_root {
            let (uid, gid) = (u32::try_from(a.uid).ok(), u32::try_from(a.gid).ok());
            std::os::unix::fs::lchown(to, uid, gid).or_cannot(cannot)?;
        }
        if !link {
            // After the owner: changing it clears set-id bits.
            fs::set_permissions(to, fs::Permissions::from_mode(a.mode & 0o7777))
                .or_cannot(cannot)?;
        }
        for name in self.fs.list_xattrs(&root, znode).or_cannot(cannot)? {
            let value = self.fs.get_xattr(&root, znode, &name).or_cannot(cannot)?;
            match lsetxattr(to, OsStr::from_bytes(&name), &value, XattrFlags::empty()) {
                Ok(()) => {}
                // The host keeps none of that kind, or only for root.
                Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM) => {}
                Err(_) if !name.starts_with(b"user.") => {}
                Err(e) => return Err(io::Error::from(e)).or_cannot(cannot),
            }
        }
        let time = |t: zuse_base::Timestamp| Timespec {
            tv_sec: t.secs,
            tv_nsec: t.nanos.into(),
        };
        let times = Timestamps {
            last_access: time(a.atime),
            last_modification: time(a.mtime),
        };
        utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(io::Error::from)
            .or_cannot(cannot)?;
        self.progress.object();
        Ok(())
    }
}

/// Opens a new file, in the place of whatever had that name.
fn create(to: &Path) -> io::Result<File> {
    let open = || {
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(to)
    };
    match open() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            remove(to)?;
            open()
        }
        result => result,
    }
}

fn remove(to: &Path) -> io::Result<()> {
    match fs::remove_file(to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

//! Copying from a dataset or snapshot to the host.
//!
//! The source may be a forged disk or stream. So everything goes below one open directory
//! ([`Below`]), and a walk ends ([`FileSystem::subdirectory`]). Users other than root get no set-id
//! bits and no capabilities, as with tar.
//!
//! Other users cannot enter a new directory until its content is complete. Its final mode is set at
//! the end, deepest first, also if the copy fails. A file is complete or absent, unless
//! [`CopyOutOptions::keep_going`] keeps the readable part.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use zuse_base::sync::Mutex;

use rustix::fs::{FileType, makedev};
use zuse::tools::FileSystem;
use zuse::{Errno, ObjectId};
use zuse_zpl::{DEEPEST, Whence, Znode, mode};

use super::attributes::{Keeping, Target};
use super::below::{Below, Identity, Replace};
use super::report::Report;
use super::{BATCH, CHUNK, Jobs, threads};
use crate::error::{CommandError, Explain, Outcome};
use crate::progress::Progress;

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyOutOptions {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Keep a file that cannot be read completely, with holes for the rest.
    pub keep_going: bool,
    /// Keep owners if possible.
    pub owners: bool,
    /// Create devices, FIFOs and sockets.
    pub special: bool,
    /// What may be replaced under the name that the user gave.
    pub replace_named: Replace,
    /// What may be replaced below it.
    pub replace: Replace,
    /// Existing directories get the attributes of the copied ones.
    pub change_existing: bool,
}

/// Entries of a directory.
type Names = Vec<(ObjectId, u32, Vec<u8>)>;

enum Job {
    /// A directory, its parent, and its path below the top.
    Dir(ObjectId, Option<ObjectId>, Vec<u8>),
    /// Other entries, in the directory with that path.
    Files(Arc<Vec<u8>>, Names),
}

/// An object with several names.
enum Link {
    /// A thread is copying it; these names wait.
    Copying(Vec<(Arc<Vec<u8>>, Vec<u8>)>),
    /// It was copied: its directory, its name, and whether it is complete.
    There(Arc<Vec<u8>>, Vec<u8>, Copied),
    /// It could not be copied.
    Bad,
}

/// Something that was copied.
#[derive(Clone, Copy)]
struct Copied {
    identity: Identity,
    whole: bool,
}

/// A directory that waits for its attributes.
struct Dir {
    object: ObjectId,
    path: Vec<u8>,
    is_new: bool,
}

struct Outward<'a> {
    fs: &'a Arc<FileSystem>,
    progress: &'a Progress,
    report: &'a Report,
    options: CopyOutOptions,
    keeping: Keeping,
    below: &'a Below,
    /// How the top is called in messages.
    top: &'a Path,
    start: ObjectId,
    links: Mutex<HashMap<u64, Link>>,
    dirs: Mutex<Vec<Dir>>,
}

/// Copies an object, with `recursive` a tree, to a name in the directory `below`, which messages
/// call `top`. With an empty name its content is copied, to the directory itself. Failures are
/// reported.
///
/// # Errors
/// What ends all.
pub fn copy_out(
    fs: &Arc<FileSystem>,
    progress: &Progress,
    report: &Report,
    from: &Arc<Znode>,
    (below, top, name): (&Below, &Path, &[u8]),
    options: CopyOutOptions,
) -> Outcome {
    let copy = Outward {
        fs,
        progress,
        report,
        options,
        keeping: Keeping::new(options.owners),
        below,
        top,
        start: from.object(),
        links: Mutex::default(),
        dirs: Mutex::default(),
    };
    if !from.is_dir() {
        let entry = (from.object(), from.kind(), name.to_vec());
        let done = copy.one(
            &Arc::default(),
            &entry,
            options.replace_named,
            &mut Vec::new(),
        );
        return report.take(done);
    }
    if !options.recursive {
        return Err(CommandError::new("cannot copy: it is a directory")
            .hint("-r copies directories with all that is in them")
            .into());
    }
    let copied = Jobs::new(Job::Dir(from.object(), None, name.to_vec())).run(
        threads(),
        Vec::new,
        |jobs, job, buffer| copy.work(jobs, job, buffer),
    );
    let dirs = std::mem::take(&mut *copy.dirs.lock());
    // A directory is listed before those inside it, so in reverse nothing changes its times again.
    for dir in dirs.iter().rev() {
        if let Err(stop) = report.take(copy.finish_dir(dir))
            && copied.is_ok()
        {
            return Err(stop);
        }
    }
    copied
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        return name.to_vec();
    }
    [dir, b"/", name].concat()
}

impl Outward<'_> {
    /// A path below the top as messages have it.
    fn shown(&self, path: &[u8]) -> String {
        use std::os::unix::ffi::OsStrExt;
        let whole = match path.is_empty() {
            true => self.top.to_owned(),
            false => self.top.join(std::ffi::OsStr::from_bytes(path)),
        };
        self.report.name(whole.as_os_str().as_bytes())
    }

    fn incomplete(&self, path: &[u8], why: &str) {
        self.report
            .bad(&format!("'{}' is incomplete: {why}", self.shown(path)));
    }

    fn work(&self, jobs: &Jobs<Job>, job: Job, buffer: &mut Vec<u8>) -> Outcome {
        match job {
            Job::Dir(object, parent, path) => {
                let result = self.directory(jobs, object, parent, path);
                self.report.take(result)
            }
            Job::Files(dir, files) => files.iter().try_for_each(|entry| {
                let done = self.one(&dir, entry, self.options.replace, buffer);
                self.report.take(done)
            }),
        }
    }

    /// Creates a directory and collects its entries.
    fn directory(
        &self,
        jobs: &Jobs<Job>,
        object: ObjectId,
        parent: Option<ObjectId>,
        path: Vec<u8>,
    ) -> Outcome {
        let cannot = || format!("cannot copy to '{}'", self.shown(&path));
        let dir = match parent {
            None => self.fs.znode(object),
            // It checks the parent: a damaged tree may lead back to a directory above.
            Some(parent) => self.fs.subdirectory(parent, object, self.start),
        };
        let dir = dir.or_cannot(cannot)?;
        if path.iter().filter(|b| **b == b'/').count() >= DEEPEST {
            let what = format!("{}: directories are more than {DEEPEST} deep", cannot());
            return Err(CommandError::new(what).into());
        }
        self.make_dir(object, &path).or_cannot(cannot)?;
        let mut names: Names = Vec::new();
        let listed = self.fs.readdir(&dir, 0, false, &mut |e| {
            if !matches!(e.name, b"." | b".." | b".zfs") {
                names.push((e.object, e.kind, e.name.to_vec()));
            }
            true
        });
        if let Err(e) = listed {
            self.incomplete(&path, &format!("cannot list all of the directory: {e}"));
        }
        let mut seen = HashSet::new();
        let mut more = Vec::new();
        let mut files = Vec::new();
        let shared = Arc::new(path);
        for (child, kind, name) in names {
            if kind == mode::DIRECTORY {
                let to = joined(&shared, &name);
                // A damaged directory could list one twice, and two threads would write into it.
                if seen.insert(child) {
                    more.push(Job::Dir(child, Some(object), to));
                } else {
                    self.incomplete(&to, "its directory lists it twice");
                }
                continue;
            }
            files.push((child, kind, name));
            if files.len() >= BATCH {
                more.push(Job::Files(shared.clone(), std::mem::take(&mut files)));
            }
        }
        if !files.is_empty() {
            more.push(Job::Files(shared, files));
        }
        jobs.add(more);
        Ok(())
    }

    fn make_dir(&self, object: ObjectId, path: &[u8]) -> io::Result<()> {
        let is_new = match path.iter().rposition(|b| *b == b'/') {
            // The directory that the user named exists.
            None if path.is_empty() => false,
            at => {
                let (dir, name) = path.split_at(at.map_or(0, |at| at + 1));
                let dir = self.below.dir(dir.strip_suffix(b"/").unwrap_or(dir))?;
                self.below.make_dir(&dir, name)?
            }
        };
        self.progress.object();
        self.dirs.lock().push(Dir {
            object,
            path: path.to_vec(),
            is_new,
        });
        Ok(())
    }

    fn finish_dir(&self, dir: &Dir) -> Outcome {
        if !dir.is_new && !self.options.change_existing {
            return Ok(());
        }
        let cannot = || format!("cannot set the attributes of '{}'", self.shown(&dir.path));
        let znode = self.fs.znode(dir.object).or_cannot(cannot)?;
        let open = self.below.dir_itself(&dir.path).or_cannot(cannot)?;
        self.keeping
            .set(self.fs, &znode, &Target::Open(&open))
            .or_cannot(cannot)
    }

    /// Copies an object that is not a directory.
    fn one(
        &self,
        dir: &Arc<Vec<u8>>,
        (object, kind, name): &(ObjectId, u32, Vec<u8>),
        replace: Replace,
        buffer: &mut Vec<u8>,
    ) -> Outcome {
        let path = joined(dir, name);
        let cannot = || format!("cannot copy to '{}'", self.shown(&path));
        let not_there = |e: zuse::Error| format!("'{}' is incomplete: {e}", self.shown(&path));
        let znode = self
            .fs
            .listed_as(*object, *kind)
            .map_err(|e| CommandError::new(not_there(e)))?;
        let is_special = !matches!(znode.kind(), mode::REGULAR | mode::SYMLINK);
        if is_special && !self.options.special {
            return Ok(());
        }
        let host = self.below.dir(dir).or_cannot(cannot)?;
        let shared = znode.attributes().links > 1;
        if shared {
            let mut links = self.links.lock();
            match links.get_mut(&object.0) {
                None => {
                    links.insert(object.0, Link::Copying(Vec::new()));
                }
                Some(Link::Copying(waiting)) => {
                    waiting.push((dir.clone(), name.clone()));
                    return Ok(());
                }
                Some(Link::There(first_dir, first, copied)) => {
                    let (first_dir, first, copied) = (first_dir.clone(), first.clone(), *copied);
                    drop(links);
                    return self.link((&first_dir, &first), copied, dir, name, replace);
                }
                Some(Link::Bad) => {
                    self.incomplete(&path, "its first name is");
                    return Ok(());
                }
            }
        }
        let result = match znode.kind() {
            mode::REGULAR => self.file(&znode, &host, name, replace, &path, buffer),
            _ => self.other(&znode, &host, name, replace, &path),
        };
        if shared {
            self.links_of(*object, dir, name, result.as_ref().ok(), replace)?;
        }
        self.progress.object();
        result.map(drop)
    }

    /// Creates the other names that waited for an object.
    fn links_of(
        &self,
        object: ObjectId,
        dir: &Arc<Vec<u8>>,
        name: &[u8],
        copied: Option<&Copied>,
        replace: Replace,
    ) -> Outcome {
        let now = match copied {
            Some(copied) => Link::There(dir.clone(), name.to_vec(), *copied),
            None => Link::Bad,
        };
        let before = self.links.lock().insert(object.0, now);
        let Some(Link::Copying(waiting)) = before else {
            return Ok(());
        };
        for (other_dir, other) in waiting {
            match copied {
                Some(copied) => {
                    let made = self.link((dir, name), *copied, &other_dir, &other, replace);
                    self.report.take(made)?;
                }
                None => self.incomplete(&joined(&other_dir, &other), "its first name is"),
            }
        }
        Ok(())
    }

    fn link(
        &self,
        (first_dir, first): (&[u8], &[u8]),
        copied: Copied,
        dir: &[u8],
        name: &[u8],
        replace: Replace,
    ) -> Outcome {
        let path = joined(dir, name);
        let cannot = || format!("cannot copy to '{}'", self.shown(&path));
        let make = || {
            let (from, to) = (self.below.dir(first_dir)?, self.below.dir(dir)?);
            let place = self.below.place(&to, name, replace);
            place.link(&from, first, copied.identity)?.keep()
        };
        make().map_err(in_the_way).or_cannot(cannot)?;
        if !copied.whole {
            self.incomplete(&path, "its first name is");
        }
        Ok(())
    }

    fn file(
        &self,
        znode: &Arc<Znode>,
        host: &OwnedFd,
        name: &[u8],
        replace: Replace,
        path: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Outcome<Copied> {
        let cannot = || format!("cannot copy to '{}'", self.shown(path));
        let place = self.below.place(host, name, replace);
        let (file, made) = place.file().map_err(in_the_way).or_cannot(cannot)?;
        let mut missing = Missing::default();
        let done = self.data(znode, &file, buffer, &mut missing);
        if let Err(trouble) = done {
            // A file that was to be replaced stays: the new one has a temporary name.
            made.drop_it();
            return match trouble {
                Trouble::Here(e) => Err(e).or_cannot(cannot),
                Trouble::There(e) => Err(CommandError::new(format!(
                    "'{}' is incomplete: {e}; nothing of it is kept (-k keeps what can be read)",
                    self.shown(path)
                ))
                .into()),
            };
        }
        let set = self.keeping.set(self.fs, znode, &Target::Open(&file));
        self.report_attributes(path, set);
        let identity = made.identity;
        // A replaced file has its name until here. The new one is complete now.
        made.keep().map_err(in_the_way).or_cannot(cannot)?;
        if let Some(why) = missing.message() {
            self.incomplete(path, &why);
        }
        Ok(Copied {
            identity,
            whole: missing.bytes == 0,
        })
    }

    fn report_attributes(&self, path: &[u8], set: io::Result<()>) {
        if let Err(e) = set {
            let path = self.shown(path);
            self.report
                .bad(&format!("cannot set the attributes of '{path}': {e}"));
        }
    }

    /// A symbolic link, FIFO, socket or device.
    fn other(
        &self,
        znode: &Arc<Znode>,
        host: &OwnedFd,
        name: &[u8],
        replace: Replace,
        path: &[u8],
    ) -> Outcome<Copied> {
        let cannot = || format!("cannot copy to '{}'", self.shown(path));
        let place = self.below.place(host, name, replace);
        let kind = match znode.kind() {
            mode::SYMLINK => None,
            mode::FIFO => Some(FileType::Fifo),
            mode::SOCKET => Some(FileType::Socket),
            mode::BLOCK => Some(FileType::BlockDevice),
            _ => Some(FileType::CharacterDevice),
        };
        let made = match kind {
            None => {
                let target = self.fs.readlink(znode).map_err(|e| {
                    CommandError::new(format!("'{}' is incomplete: {e}", self.shown(path)))
                })?;
                place.symlink(&target)
            }
            Some(kind) => {
                let (major, minor) = match mode::is_device(znode.attributes().mode) {
                    true => self.fs.getattr(znode).device(),
                    false => (0, 0),
                };
                place.special(kind, makedev(major, minor))
            }
        };
        let made = made.map_err(in_the_way).or_cannot(cannot)?;
        let set = self.keeping.set(self.fs, znode, &Target::Closed(&made));
        self.report_attributes(path, set);
        let identity = made.identity;
        made.keep().map_err(in_the_way).or_cannot(cannot)?;
        Ok(Copied {
            identity,
            whole: true,
        })
    }

    fn data(
        &self,
        znode: &Arc<Znode>,
        file: &File,
        buffer: &mut Vec<u8>,
        missing: &mut Missing,
    ) -> Result<(), Trouble> {
        let size = znode.size();
        let sparse = self.fs.getattr(znode).blocks * 512 < size;
        let mut at = 0;
        // The end may be a hole, or unreadable: no write would reach it.
        if sparse || self.options.keep_going {
            file.set_len(size)?;
        }
        while at < size {
            let mut end = size;
            if sparse {
                match self.data_from(znode, at, size) {
                    Ok(Some((from, to))) => (at, end) = (from, to),
                    Ok(None) => break,
                    // Holes cannot be found here; reading will find the data.
                    Err(_) if self.options.keep_going => {}
                    Err(e) => return Err(Trouble::There(e)),
                }
            }
            while at < end {
                let want = (end - at).min(CHUNK as u64);
                at += self.piece(znode, file, at, want, buffer, missing)?;
            }
        }
        Ok(())
    }

    /// The next run of data.
    fn data_from(
        &self,
        znode: &Arc<Znode>,
        at: u64,
        size: u64,
    ) -> zuse::Result<Option<(u64, u64)>> {
        let from = match self.fs.seek(znode, at, Whence::Data) {
            Ok(from) => from,
            Err(e) if e.is(Errno::NXIO) => return Ok(None),
            Err(e) => return Err(e),
        };
        let to = self.fs.seek(znode, from, Whence::Hole)?;
        Ok(Some((from, to.min(size).max(from))).filter(|(from, to)| to > from))
    }

    /// Copies one part. Optionally skips what cannot be read of it.
    fn piece(
        &self,
        znode: &Arc<Znode>,
        file: &File,
        at: u64,
        want: u64,
        buffer: &mut Vec<u8>,
        missing: &mut Missing,
    ) -> Result<u64, Trouble> {
        buffer.resize(want as usize, 0);
        match self.fs.read(znode, at, buffer) {
            Ok(0) => return Err(io::Error::other("the file ended early").into()),
            Ok(got) => {
                file.write_all_at(buffer.get(..got).unwrap_or_default(), at)?;
                self.progress.add(got as u64);
                return Ok(got as u64);
            }
            Err(e) if !self.options.keep_going => return Err(Trouble::There(e)),
            Err(_) => {}
        }
        // Block by block: most of the part may be readable.
        let block = u64::from(znode.dnode().block_size()).max(512);
        let mut done = 0;
        while done < want {
            let step = (block - (at + done) % block).min(want - done);
            buffer.resize(step as usize, 0);
            match self.fs.read(znode, at + done, buffer) {
                Ok(got) => file.write_all_at(buffer.get(..got).unwrap_or_default(), at + done)?,
                Err(e) => missing.add(at + done, step, &e),
            }
            done += step;
        }
        Ok(want)
    }
}

/// Which side failed.
enum Trouble {
    Here(io::Error),
    There(zuse::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Here(error)
    }
}

/// The unreadable parts of a file.
#[derive(Default)]
struct Missing {
    bytes: u64,
    first: u64,
    why: String,
}

impl Missing {
    fn add(&mut self, at: u64, bytes: u64, error: &zuse::Error) {
        if self.bytes == 0 {
            (self.first, self.why) = (at, error.to_string());
        }
        self.bytes += bytes;
    }

    fn message(&self) -> Option<String> {
        let (bytes, first, why) = (self.bytes, self.first, &self.why);
        (bytes != 0).then(|| format!("{bytes} bytes are missing, the first at {first}: {why}"))
    }
}

/// The error if another object prevents it.
pub fn in_the_way(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return io::Error::other("something has that name already (-f replaces files and links)");
    }
    error
}

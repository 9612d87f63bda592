//! Walking a tree in the byte order of its paths.
//!
//! `a-b` comes before `a/b`, because `-` is less than `/`, and after `a`. So a directory has two
//! positions in its parent's order: the name `a`, and `a/`, where its content goes. All paths below
//! `a` begin with `a/` and no name has a slash, so that content is contiguous.
//!
//! Memory: the names of the directories on the way down, sorted; nothing of the objects.
//!
//! A walk always ends, even on a damaged or forged disk. It enters a directory only if the
//! directory's stored parent is the one that lists it ([`FileSystem::subdirectory`]), and only by
//! one of its names. It never enters the root or its own start. So each directory is visited once.
//! A directory that cannot be listed gives an error, and the walk continues after it.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};

use crate::file_system::FileSystem;
use crate::znode::Znode;
use crate::{dirent, flags, mode};

/// Deepest tree that is walked.
pub const DEEPEST: usize = 1 << 16;

struct Event {
    start: usize,
    end: usize,
    descend: bool,
    object: ObjectId,
    kind: u32,
}

struct Frame {
    dir: ObjectId,
    /// Length of the path of the directory, with its slash.
    path_len: usize,
    names: Vec<u8>,
    /// Sorted backwards: the next one is last.
    events: Vec<Event>,
    /// The error of the part that could not be listed.
    flaw: Option<Error>,
}

/// One step of a walk.
#[derive(Debug)]
pub struct WalkEntry<'a> {
    /// Path from the start of the walk, without a leading slash; empty for the start itself.
    pub path: &'a [u8],
    /// The object.
    pub object: ObjectId,
    /// Type bits of its mode.
    pub kind: u32,
}

/// A walk through a tree.
pub struct Walk<'a> {
    fs: &'a FileSystem,
    path: Vec<u8>,
    frames: Vec<Frame>,
    from: ObjectId,
    /// The start was not yet given.
    first: Option<u32>,
    /// The start is a directory that was not opened yet.
    enter: bool,
}

impl FileSystem {
    /// A file that is named by its number from outside of the pool: a file handle. Unlinked
    /// objects, and those of another file's extended attributes, are not found.
    ///
    /// # Errors
    /// `Refused(NOENT)`: there is no such file. Or it cannot be read.
    pub fn by_number(&self, object: ObjectId) -> Result<Arc<Znode>> {
        let znode = self.znode(object)?;
        let attributes = znode.attributes();
        // The number comes from a client, which may try any.
        if attributes.links == 0 || attributes.flags & flags::XATTR != 0 {
            return Err(Error::refused(Errno::NOENT, "a file of that number"));
        }
        Ok(znode)
    }

    /// The directory of a file, or the parent of a directory.
    ///
    /// # Errors
    /// As [`Self::by_number`].
    pub fn parent_of(&self, znode: &Znode) -> Result<Arc<Znode>> {
        self.by_number(ObjectId(znode.attributes().parent))
    }

    /// The directory of an entry of `dir`, for walking down a tree that begins at `start`. Fails if
    /// a walk might not end: the entry leads to the root, the start, or a directory that belongs
    /// elsewhere.
    ///
    /// # Errors
    /// `Corrupt` for these; or it cannot be read, or is no directory.
    pub fn subdirectory(
        &self,
        dir: ObjectId,
        object: ObjectId,
        start: ObjectId,
    ) -> Result<Arc<Znode>> {
        let znode = self.znode(object)?;
        let corrupt = |what: String| Err(Error::corrupt(znode.dnode().place(), what));
        if !znode.is_dir() {
            return corrupt("it is listed as a directory and is none".into());
        }
        let parent = znode.read().attrs.parent;
        if parent != dir.0 {
            return corrupt(format!(
                "directory {} lists it, but its parent is {parent}: directories may contain themselves",
                dir.0
            ));
        }
        if object == self.root_id() || object == start {
            return corrupt(format!(
                "directory {} lists a directory that holds it",
                dir.0
            ));
        }
        Ok(znode)
    }

    /// A walk downward from an object, in path order, beginning with the object itself.
    pub fn walk<'a>(&'a self, from: &Arc<Znode>) -> Walk<'a> {
        Walk {
            fs: self,
            path: Vec::new(),
            frames: Vec::new(),
            from: from.object(),
            first: Some(from.kind()),
            enter: from.is_dir(),
        }
    }
}

impl Walk<'_> {
    /// The path of the directory that [`Self::next`] could not list.
    pub fn unlisted(&self) -> &[u8] {
        self.path.strip_suffix(b"/").unwrap_or(&self.path)
    }

    /// The next entry.
    ///
    /// # Errors
    /// A directory cannot be listed completely ([`Self::unlisted`]). The next call continues after
    /// it.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<WalkEntry<'_>>> {
        if let Some(kind) = self.first.take() {
            return Ok(Some(WalkEntry {
                path: &[],
                object: self.from,
                kind,
            }));
        }
        if std::mem::take(&mut self.enter) {
            let start = self.fs.znode(self.from)?;
            self.open(&start)?;
        }
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return Ok(None);
            };
            self.path.truncate(frame.path_len);
            let Some(event) = frame.events.pop() else {
                self.frames.pop();
                continue;
            };
            self.path
                .extend_from_slice(&frame.names[event.start..event.end]);
            if !event.descend {
                return Ok(Some(WalkEntry {
                    path: &self.path,
                    object: event.object,
                    kind: event.kind,
                }));
            }
            let (dir, object) = (frame.dir, event.object);
            self.path.push(b'/');
            // A bound on the memory for frames and path.
            if self.frames.len() >= DEEPEST {
                return Err(Error::refused(
                    Errno::NAMETOOLONG,
                    format!("directories are more than {DEEPEST} deep"),
                ));
            }
            let dir = self.fs.subdirectory(dir, object, self.from)?;
            self.open(&dir)?;
        }
    }

    /// Enters a directory. One that can only be listed in part is entered, and the error is
    /// reported.
    fn open(&mut self, dir: &Arc<Znode>) -> Result<()> {
        let mut frame = self.list(dir)?;
        let flaw = frame.flaw.take();
        self.frames.push(frame);
        flaw.map_or(Ok(()), Err)
    }

    fn list(&self, dir: &Arc<Znode>) -> Result<Frame> {
        let mut names = Vec::new();
        let mut events = Vec::new();
        let listed = dir.each_entry(0, &mut |name, value, _| {
            let start = names.len();
            names.extend_from_slice(name);
            let (object, kind) = (dirent::object(value), dirent::kind(value));
            events.push(Event {
                start,
                end: names.len(),
                descend: false,
                object,
                kind,
            });
            true
        });
        // Entries before an unreadable block are returned.
        let mut flaw = match listed {
            Ok(_) => dir.check_listed().err(),
            Err(e) if events.is_empty() => return Err(e),
            Err(e) => Some(e),
        };
        for i in 0..events.len() {
            if events[i].kind == 0 {
                // An error is left to the user of the object.
                let znode = self.fs.znode(events[i].object);
                events[i].kind = znode.map_or(0, |z| z.kind());
            }
            let Event {
                start,
                end,
                object,
                kind,
                ..
            } = events[i];
            if kind == mode::DIRECTORY {
                events.push(Event {
                    start,
                    end,
                    descend: true,
                    object,
                    kind,
                });
            }
        }
        if let Some(twice) = only_once(&mut events) {
            flaw.get_or_insert_with(|| {
                let what = format!(
                    "several names lead to the same directory, object {}",
                    twice.0
                );
                Error::corrupt(dir.dnode().place(), what)
            });
        }
        let key = |e: &Event| {
            let slash: &[u8] = if e.descend { b"/" } else { b"" };
            (&names[e.start..e.end], slash)
        };
        events.sort_unstable_by(|a, b| {
            let ((a, a_slash), (b, b_slash)) = (key(a), key(b));
            b.iter().chain(b_slash).cmp(a.iter().chain(a_slash))
        });
        Ok(Frame {
            dir: dir.object(),
            path_len: self.path.len(),
            names,
            events,
            flaw,
        })
    }
}

/// Keeps one entry for each directory; returns a directory that had several.
fn only_once(events: &mut Vec<Event>) -> Option<ObjectId> {
    let mut down: Vec<ObjectId> = events
        .iter()
        .filter(|e| e.descend)
        .map(|e| e.object)
        .collect();
    down.sort_unstable();
    let twice = down.windows(2).find(|w| w[0] == w[1]).map(|w| w[0])?;
    let mut seen = std::collections::HashSet::new();
    events.retain(|e| !e.descend || seen.insert(e.object));
    Some(twice)
}

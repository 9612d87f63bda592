//! Walking a tree in the byte order of its paths.
//!
//! `a-b` comes before `a/b`, because `-` is less than `/`, and after `a`. So a directory is seen
//! twice in its parent's order: as the name `a`, and as `a/`, where its content goes. All paths
//! below `a` begin with `a/` and no name has a slash, so that content is one run.
//!
//! Memory: the names of the directories on the way down, sorted; nothing of the objects.
//!
//! A walk ends, whatever a damaged or forged disk says. It goes down only into a directory whose
//! stored parent is the one that lists it ([`FileSystem::subdirectory`]), by one name of it. It
//! never goes into the root or its own start. So each directory is met once. What cannot be listed
//! is an error of its own; the walk goes on behind it.

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
    /// What of it could not be listed.
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
    /// The start is a directory that was not yet opened.
    enter: bool,
}

impl FileSystem {
    /// A file that something outside of the pool names by its number: a file handle. What has no
    /// name any more, or is part of another file's extended attributes, is none.
    ///
    /// # Errors
    /// `Refused(NOENT)`: there is no such file. It cannot be read.
    pub fn by_number(&self, object: ObjectId) -> Result<Arc<Znode>> {
        let znode = self.znode(object)?;
        let attributes = znode.attributes();
        if attributes.links == 0 || attributes.flags & flags::XATTR != 0 {
            return Err(Error::refused(Errno::NOENT, "a file of that number"));
        }
        Ok(znode)
    }

    /// The directory that a file lies in, or a directory's one above.
    ///
    /// # Errors
    /// As [`Self::by_number`].
    pub fn parent_of(&self, znode: &Znode) -> Result<Arc<Znode>> {
        self.by_number(ObjectId(znode.attributes().parent))
    }

    /// The directory behind an entry of `dir`, for who walks down a tree that begins at `start`.
    /// Fails where a walk might not end: the entry leads to the root, the start, or a directory
    /// that belongs elsewhere.
    ///
    /// # Errors
    /// `Corrupt` for these; it cannot be read or is no directory.
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

    /// A walk from an object down, in path order, the object itself first.
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
    /// A directory cannot be listed, or not all of it ([`Self::unlisted`]). The next call goes on
    /// with what comes behind.
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

    /// Goes down into a directory. One of which only a part can be listed is gone into, and said.
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
        // Entries before a block that cannot be read are given.
        let mut flaw = match listed {
            Ok(_) => dir.check_listed().err(),
            Err(e) if events.is_empty() => return Err(e),
            Err(e) => Some(e),
        };
        for i in 0..events.len() {
            if events[i].kind == 0 {
                // An error is left to whoever uses the object.
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

/// Leaves one way down into each directory; a directory that had several.
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

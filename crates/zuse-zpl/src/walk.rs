//! Walking a tree in the byte order of its paths.
//!
//! `a-b` comes before `a/b`, because `-` is less than `/`, and after `a`. So a directory is seen twice in its parent's
//! order: as the name `a`, and as `a/`, where its content goes. All paths below `a` begin with `a/` and no name has a
//! slash, so that content is one run.
//!
//! Memory: the names of the directories on the way down, sorted; nothing of the objects.

use std::sync::Arc;

use zuse_base::{Error, ObjectId, Result};

use crate::file_system::FileSystem;
use crate::znode::Znode;
use crate::{dirent, mode};

/// Deepest tree that is believed: a directory that contains itself is deeper.
const DEEPEST: usize = 1 << 16;

struct Event {
    start: usize,
    end: usize,
    descend: bool,
    object: ObjectId,
    kind: u32,
}

struct Frame {
    /// Length of the path of the directory, with its slash.
    path_len: usize,
    names: Vec<u8>,
    /// Sorted backwards: the next one is last.
    events: Vec<Event>,
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
    start: Option<(ObjectId, u32)>,
}

impl FileSystem {
    /// A walk from an object down, in path order, the object itself first.
    pub fn walk<'a>(&'a self, from: &Arc<Znode>) -> Walk<'a> {
        Walk {
            fs: self,
            path: Vec::new(),
            frames: Vec::new(),
            start: Some((from.object(), from.kind())),
        }
    }
}

impl Walk<'_> {
    /// The next entry.
    ///
    /// # Errors
    /// A directory cannot be read.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<WalkEntry<'_>>> {
        if let Some((object, kind)) = self.start.take() {
            if kind == mode::DIRECTORY {
                let frame = self.open(object)?;
                self.frames.push(frame);
            }
            return Ok(Some(WalkEntry {
                path: &[],
                object,
                kind,
            }));
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
            if self.frames.len() >= DEEPEST {
                return Err(Error::corrupt(
                    self.fs.place(),
                    "directories that contain themselves",
                ));
            }
            self.path.push(b'/');
            let frame = self.open(event.object)?;
            self.frames.push(frame);
        }
    }

    fn open(&self, object: ObjectId) -> Result<Frame> {
        let dir = self.fs.znode(object)?;
        let mut names = Vec::new();
        let mut events = Vec::new();
        dir.entries()?.list(0, &mut |name, value, _| {
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
        })?;
        for i in 0..events.len() {
            if events[i].kind == 0 {
                events[i].kind = self.fs.znode(events[i].object)?.kind();
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
        let key = |e: &Event| {
            let slash: &[u8] = if e.descend { b"/" } else { b"" };
            (&names[e.start..e.end], slash)
        };
        events.sort_unstable_by(|a, b| {
            let ((a, a_slash), (b, b_slash)) = (key(a), key(b));
            b.iter().chain(b_slash).cmp(a.iter().chain(a_slash))
        });
        Ok(Frame {
            path_len: self.path.len(),
            names,
            events,
        })
    }
}

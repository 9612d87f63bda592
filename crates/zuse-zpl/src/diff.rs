//! The changes between two states of a file system: `zfs diff`.
//!
//! Changed objects are found by comparing dnodes ([`Objset::each_changed`]). Paths are found by
//! following parents upward, so no tree is walked. Names of a directory are read once, for the
//! first of its changed entries.
//!
//! [`Objset::each_changed`]: zuse_dmu::Objset::each_changed

use std::collections::HashMap;
use std::sync::Arc;

use zuse_base::{Errno, ObjectId, Result, Timestamp};
use zuse_dmu::Changed;
use zuse_dmu::zap::Zap;

use crate::attributes::Attributes;
use crate::file_system::FileSystem;
use crate::{dirent, flags, mode};

/// Names of directories that are kept, in all.
const NAMES_MAX: usize = 1 << 20;

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its content or attributes have changed.
    Modified,
    /// It has another path now.
    Renamed(Vec<u8>),
    /// It has more links, or fewer.
    Links(i64),
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// Type bits of its mode.
    pub file: u32,
    /// Its last change.
    pub ctime: Timestamp,
    /// Path below the root, with a leading slash; in the old state if it was removed or renamed.
    /// `None`: it has none.
    pub path: Option<Vec<u8>>,
}

/// One of the two states, with names of its directories.
struct Side<'a> {
    fs: &'a FileSystem,
    names: HashMap<u64, Arc<HashMap<u64, Vec<u8>>>>,
    kept: usize,
}

impl<'a> Side<'a> {
    fn new(fs: &'a FileSystem) -> Self {
        Self {
            fs,
            names: HashMap::new(),
            kept: 0,
        }
    }

    /// Attributes of an object that is a file and has a name.
    fn attributes(&self, object: ObjectId) -> Result<Option<Attributes>> {
        let dnode = match self.fs.objset.dnode(object) {
            Ok(dnode) => dnode,
            Err(e) if e.is(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        if !matches!(
            dnode.object_type(),
            zuse_format::object_type::PLAIN_FILE_CONTENTS
                | zuse_format::object_type::DIRECTORY_CONTENTS
        ) {
            return Ok(None);
        }
        let a = self.fs.store.load(&dnode)?;
        Ok((a.flags & flags::XATTR == 0 && a.links != 0).then_some(a))
    }

    /// Names of a directory by object.
    fn entries(&mut self, dir: u64) -> Result<Arc<HashMap<u64, Vec<u8>>>> {
        if let Some(there) = self.names.get(&dir) {
            return Ok(there.clone());
        }
        let mut all = HashMap::new();
        let zap = Zap::open(&self.fs.objset.dnode(ObjectId(dir))?)?;
        dirent::each(&zap, 0, &mut |name, value, _| {
            all.insert(dirent::object(value).0, name.to_vec());
            true
        })?;
        let all = Arc::new(all);
        if self.kept + all.len() > NAMES_MAX {
            // All of them: which directories come next is unknown, and reading one again is cheap.
            self.names.clear();
            self.kept = 0;
        }
        self.kept += all.len();
        self.names.insert(dir, all.clone());
        Ok(all)
    }

    /// The path of an object; `None` if no directory has it.
    fn path(&mut self, object: ObjectId, of: &Attributes) -> Result<Option<Vec<u8>>> {
        let mut parts = Vec::new();
        let (mut at, mut parent) = (object, of.parent);
        while at != self.fs.root_id() {
            // Parents come from disk, and could form a circle.
            if parts.len() > 4096 {
                return Ok(None);
            }
            let entries = match self.entries(parent) {
                Ok(entries) => entries,
                Err(e) if e.is(Errno::NOENT) => return Ok(None),
                Err(e) => return Err(e),
            };
            let Some(name) = entries.get(&at.0) else {
                return Ok(None);
            };
            parts.push(name.clone());
            at = ObjectId(parent);
            if at != self.fs.root_id() {
                match self.attributes(at)? {
                    Some(a) => parent = a.parent,
                    None => return Ok(None),
                }
            }
        }
        parts.reverse();
        let mut path = vec![b'/'];
        path.extend(parts.join(&b'/'));
        Ok(Some(path))
    }
}

/// The paths of objects, with a leading slash; `None` for an object that is no file, has no name,
/// or cannot be found.
pub fn paths_of(fs: &FileSystem, objects: &[ObjectId]) -> Vec<Option<Vec<u8>>> {
    let mut side = Side::new(fs);
    let paths = objects.iter().map(|object| {
        let attributes = side.attributes(*object).ok().flatten()?;
        side.path(*object, &attributes).ok().flatten()
    });
    paths.collect()
}

/// The changes of one object.
fn of_object(before: &mut Side<'_>, after: &mut Side<'_>, object: ObjectId) -> Result<Vec<Change>> {
    let (was, is) = (before.attributes(object)?, after.attributes(object)?);
    let change = |kind, a: &Attributes, path| Change {
        kind,
        file: a.mode & mode::TYPE,
        ctime: a.ctime,
        path,
    };
    Ok(match (was, is) {
        (None, None) => Vec::new(),
        (None, Some(a)) => vec![change(ChangeKind::Added, &a, after.path(object, &a)?)],
        (Some(a), None) => vec![change(ChangeKind::Removed, &a, before.path(object, &a)?)],
        // The number was reused: these are two objects.
        (Some(a), Some(b)) if a.generation != b.generation || a.kind() != b.kind() => vec![
            change(ChangeKind::Removed, &a, before.path(object, &a)?),
            change(ChangeKind::Added, &b, after.path(object, &b)?),
        ],
        // Nothing that a user has changed: at most its access time.
        (Some(a), Some(b)) if a.ctime == b.ctime => Vec::new(),
        (Some(a), Some(b)) => {
            let (from, to) = (before.path(object, &a)?, after.path(object, &b)?);
            if a.links != b.links && !b.is_dir() {
                let more = b.links as i64 - a.links as i64;
                // The directory recorded in the object may belong to a removed name.
                let path = if more > 0 { from.or(to) } else { to.or(from) };
                return Ok(vec![change(ChangeKind::Links(more), &b, path)]);
            }
            vec![match (from, to) {
                (Some(from), Some(to)) if from != to => {
                    change(ChangeKind::Renamed(to), &b, Some(from))
                }
                (from, to) => change(ChangeKind::Modified, &b, to.or(from)),
            }]
        }
    })
}

/// Calls `f` for every change from one state of a file system to a later one, by object number. An
/// unreadable object does not end the diff.
///
/// # Errors
/// The errors of `f`; at the end, the first error of an unreadable changed object.
pub fn diff(
    old: &FileSystem,
    new: &FileSystem,
    f: &mut dyn FnMut(Change) -> Result<()>,
) -> Result<()> {
    let (mut before, mut after) = (Side::new(old), Side::new(new));
    let mut flaw = None;
    old.objset
        .each_changed(&new.objset, &mut |Changed { object, .. }| match of_object(
            &mut before,
            &mut after,
            object,
        ) {
            Ok(changes) => changes.into_iter().try_for_each(&mut *f),
            Err(error) => {
                flaw.get_or_insert(error);
                Ok(())
            }
        })?;
    flaw.map_or(Ok(()), Err)
}

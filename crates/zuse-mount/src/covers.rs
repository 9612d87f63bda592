//! Where file systems are mounted inside the session.
//!
//! A name in a directory can be *covered*, as after `mount`. It then shows the root of another file
//! system instead of the directory's own entry.
//!
//! - A name is shown even if the directory does not have it, and nothing is written to the
//!   directory.
//! - Missing directories on the way to a mount point are virtual ([`VirtualDir`]).
//! - So is the mount point of a file system whose key is not loaded. Files written there must not
//!   go unencrypted into the parent file system.
//!
//! The map is immutable; a change creates a new one. A name on the way to a mount point can be
//! neither removed nor renamed (`BUSY`) while the map has it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use zuse_base::{Errno, ObjectId, Result};
use zuse_zpl::{Credentials, Znode};

use crate::number;
use crate::tree::Child;
use crate::volume::Volume;

/// What is at a covered name.
#[derive(Clone)]
pub(crate) enum Cover {
    /// The root of a file system.
    Root(Arc<Volume>),
    /// A directory of the same file system, on the way to a mount point.
    Through(ObjectId),
    /// A virtual directory, on the way to a mount point.
    Virtual(Arc<VirtualDir>),
}

impl Cover {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Root(a), Self::Root(b)) => Arc::ptr_eq(a, b),
            (Self::Through(a), Self::Through(b)) => a == b,
            (Self::Virtual(a), Self::Virtual(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A virtual directory, which exists only because something is mounted below it.
pub(crate) struct VirtualDir {
    pub ino: u64,
    pub parent: u64,
    /// The nearest file system above.
    pub volume: Arc<Volume>,
}

/// Covered names of each directory, by inode number.
#[derive(Default)]
pub(crate) struct Covers {
    names: HashMap<u64, BTreeMap<Vec<u8>, Cover>>,
    /// Number of virtual directories created in this map and earlier ones: no number is reused
    /// within a session.
    made_up: u64,
}

/// The current position of the way down, while the map is built.
#[derive(Clone)]
enum At {
    Dir(Arc<Volume>, Arc<Znode>),
    Virtual(Arc<VirtualDir>),
}

impl At {
    fn ino(&self) -> u64 {
        match self {
            Self::Dir(volume, znode) => volume.ino(znode.object()),
            Self::Virtual(dir) => dir.ino,
        }
    }

    fn volume(&self) -> &Arc<Volume> {
        match self {
            Self::Dir(volume, _) => volume,
            Self::Virtual(dir) => &dir.volume,
        }
    }
}

impl Covers {
    /// The cover of a name, if it is covered.
    pub fn get(&self, dir: u64, name: &[u8]) -> Option<&Cover> {
        if self.names.is_empty() {
            return None;
        }
        self.names.get(&dir)?.get(name)
    }

    /// A map without names that follows one of another process, which has created so many virtual
    /// directories.
    pub fn after(made_up: u64) -> Self {
        Self {
            names: HashMap::new(),
            made_up,
        }
    }

    /// Number of virtual directories created.
    pub fn made_up(&self) -> u64 {
        self.made_up
    }

    /// All names that are covered, with their directories.
    pub fn all(&self) -> impl Iterator<Item = (u64, &[u8], &Cover)> {
        let each = self.names.iter();
        each.flat_map(|(dir, names)| names.iter().map(|(n, cover)| (*dir, n.as_slice(), cover)))
    }

    /// Covers a name with a virtual directory of another process.
    pub fn put(&mut self, dir: u64, name: Vec<u8>, made_up: Arc<VirtualDir>) {
        let names = self.names.entry(dir).or_default();
        names.insert(name, Cover::Virtual(made_up));
    }

    /// The covered names of a directory.
    pub fn names(&self, dir: u64) -> Option<&BTreeMap<Vec<u8>, Cover>> {
        self.names.get(&dir)
    }

    /// Builds the map for file systems mounted at `children` below `root`; `volumes` has those that
    /// could be opened. Virtual directories that existed in `old` are kept.
    pub fn lay(
        root: &Arc<Volume>,
        children: &[Child],
        volumes: &HashMap<String, Arc<Volume>>,
        old: &Self,
    ) -> Result<Self, Errno> {
        let mut map = old.cleared();
        let mut sorted: Vec<&Child> = children.iter().filter(|c| !c.path.is_empty()).collect();
        // Outer mount points come before those inside them, so that each step finds the cover above
        // it.
        sorted.sort();
        let top = {
            let fs = root.enter()?;
            At::Dir(root.clone(), fs.root().map_err(|e| e.errno())?)
        };
        for child in sorted {
            let volume = volumes.get(&child.dataset);
            let Some((last, way)) = child.path.split_last() else {
                continue;
            };
            if volume.is_none() && !child.sealed {
                continue;
            }
            let mut at = top.clone();
            for name in way {
                at = map.step(&at, name, old)?;
            }
            let Some(volume) = volume else {
                map.make_up(&at, last, old);
                continue;
            };
            volume.set_above(at.ino());
            map.names
                .entry(at.ino())
                .or_default()
                .insert(last.clone(), Cover::Root(volume.clone()));
        }
        Ok(map)
    }

    fn step(&mut self, at: &At, name: &[u8], old: &Self) -> Result<At, Errno> {
        let ino = at.ino();
        match self.get(ino, name) {
            Some(Cover::Root(volume)) => {
                let volume = volume.clone();
                let root = volume.enter()?.root().map_err(|e| e.errno())?;
                return Ok(At::Dir(volume, root));
            }
            Some(Cover::Virtual(dir)) => return Ok(At::Virtual(dir.clone())),
            Some(Cover::Through(_)) | None => {}
        }
        if let At::Dir(volume, dir) = at {
            let fs = volume.enter()?;
            // Missing, unreadable or no directory: what is mounted below must be shown all the
            // same.
            match fs.lookup(&Credentials::root(), dir, name) {
                Ok(znode) if znode.is_dir() => {
                    let through = Cover::Through(znode.object());
                    self.names
                        .entry(ino)
                        .or_default()
                        .insert(name.to_vec(), through);
                    return Ok(At::Dir(volume.clone(), znode));
                }
                _ => {}
            }
        }
        Ok(At::Virtual(self.make_up(at, name, old)))
    }

    /// Covers a name with a new virtual directory.
    fn make_up(&mut self, at: &At, name: &[u8], old: &Self) -> Arc<VirtualDir> {
        let ino = at.ino();
        let dir = match old.get(ino, name) {
            // The kernel knows it by this number.
            Some(Cover::Virtual(dir)) if Arc::ptr_eq(&dir.volume, at.volume()) => dir.clone(),
            _ => {
                self.made_up += 1;
                Arc::new(VirtualDir {
                    ino: number::of(number::VIRTUAL_SLOT, ObjectId(self.made_up)),
                    parent: ino,
                    volume: at.volume().clone(),
                })
            }
        };
        self.names
            .entry(ino)
            .or_default()
            .insert(name.to_vec(), Cover::Virtual(dir.clone()));
        dir
    }

    /// A map without names that may follow this one.
    pub fn cleared(&self) -> Self {
        Self {
            names: HashMap::new(),
            made_up: self.made_up,
        }
    }

    /// Names that are covered differently in the two maps, with their directories.
    pub fn differences(&self, new: &Self) -> Vec<(u64, Vec<u8>)> {
        let mut out = Vec::new();
        let (a, b) = (self, new);
        for (one, other) in [(a, b), (b, a)] {
            for (dir, names) in &one.names {
                for (name, cover) in names {
                    if !other.get(*dir, name).is_some_and(|c| c.is_same(cover)) {
                        out.push((*dir, name.clone()));
                    }
                }
            }
        }
        out.sort();
        out.dedup();
        out
    }
}

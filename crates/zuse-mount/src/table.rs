//! The inodes that the kernel knows.
//!
//! A [`Node`] lives from the first look-up to the last forget and holds its object in memory: `getattr` and all that
//! comes without a name costs one hash look-up, and a file without a name stays usable while the kernel has it. What was
//! only listed is held from its first use on, or when its last name goes: of most entries of a listing the kernel never asks
//! again.
//!
//! Invariants
//! - `lookups` grows under the shard's lock (shared or not) and shrinks under the exclusive one, so that a node never
//!   goes while somebody is being given it.
//! - Nodes are dropped outside the locks: the last holder of an object does work when it goes.
//! - One node per number. When the object behind a number is another one (its file system was replaced in place), the new
//!   node takes over the count.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use zuse_base::{Errno, ObjectId};
use zuse_dmu::{NUMBER_SHARDS, NumberMap, shard_of};
use zuse_zpl::Znode;

use crate::covers::VirtualDir;
use crate::number;
use crate::volume::Volume;

/// What is behind an inode number.
pub(crate) enum What {
    /// An object of a file system.
    Object(Arc<Volume>, Arc<Znode>),
    /// An object that the kernel knows from a listing and has not used yet.
    Listed(Arc<Volume>, Listed),
    /// `.zfs`.
    DotZfs(Arc<Volume>),
    /// `.zfs/snapshot`.
    Snapshots(Arc<Volume>),
    /// A directory that exists only because something is mounted below it.
    Virtual(Arc<VirtualDir>),
    /// Its file system has gone. The volume keeps its slot from being used again.
    Gone(#[allow(dead_code)] Arc<Volume>),
}

/// Which object it was that was listed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    pub object: ObjectId,
    pub generation: u64,
}

impl Listed {
    fn is(&self, znode: &Znode) -> bool {
        self.object == znode.object() && self.generation == znode.generation()
    }
}

/// An inode that the kernel knows.
pub(crate) struct Node {
    pub what: What,
    lookups: AtomicU64,
    /// How often the content was replaced behind the kernel's back; part of the generation.
    pub replaced: AtomicU32,
}

impl Node {
    /// The object, if it is one.
    pub fn object(&self) -> Result<(&Arc<Volume>, &Arc<Znode>), Errno> {
        match &self.what {
            What::Object(volume, znode) => Ok((volume, znode)),
            What::Gone(_) => Err(Errno::STALE),
            // Whoever asks a session for a node gets an object.
            What::Listed(..) => Err(Errno::STALE),
            // Nothing can be changed there.
            _ => Err(Errno::PERM),
        }
    }

    fn is_same(&self, other: &What) -> bool {
        match (&self.what, other) {
            (What::Object(_, a), What::Object(_, b)) => Arc::ptr_eq(a, b),
            (What::Listed(a, old), What::Listed(b, new)) => Arc::ptr_eq(a, b) && old == new,
            (What::Object(a, znode), What::Listed(b, listed)) => {
                Arc::ptr_eq(a, b) && listed.is(znode)
            }
            (What::DotZfs(a), What::DotZfs(b)) | (What::Snapshots(a), What::Snapshots(b)) => {
                Arc::ptr_eq(a, b)
            }
            (What::Virtual(a), What::Virtual(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Whether `other` is the object that this is known to be from a listing.
    fn becomes(&self, other: &What) -> bool {
        match (&self.what, other) {
            (What::Listed(a, listed), What::Object(b, znode)) => {
                Arc::ptr_eq(a, b) && listed.is(znode)
            }
            _ => false,
        }
    }

    fn volume(&self) -> Option<&Arc<Volume>> {
        match &self.what {
            What::Object(v, _)
            | What::Listed(v, _)
            | What::DotZfs(v)
            | What::Snapshots(v)
            | What::Gone(v) => Some(v),
            What::Virtual(_) => None,
        }
    }
}

type Shard = NumberMap<Arc<Node>>;

/// The inodes that the kernel knows, by number.
pub(crate) struct Table([RwLock<Shard>; NUMBER_SHARDS]);

impl Table {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| RwLock::default()))
    }

    fn shard(&self, ino: u64) -> &RwLock<Shard> {
        // Those of different file systems are not in the same part all at once.
        let mixed = ino ^ u64::from(number::slot(ino)) << 2;
        &self.0[shard_of(mixed)]
    }

    fn read(&self, ino: u64) -> RwLockReadGuard<'_, Shard> {
        self.shard(ino)
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, ino: u64) -> RwLockWriteGuard<'_, Shard> {
        self.shard(ino)
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A known inode.
    pub fn get(&self, ino: u64) -> Result<Arc<Node>, Errno> {
        self.read(ino).get(&ino).cloned().ok_or(Errno::STALE)
    }

    /// The kernel is given a reference.
    pub fn enter(&self, ino: u64, what: What) -> Arc<Node> {
        if let Some(node) = self.read(ino).get(&ino)
            && node.is_same(&what)
        {
            node.lookups.fetch_add(1, Relaxed);
            return node.clone();
        }
        let mut shard = self.write(ino);
        let there = shard.get(&ino).cloned();
        if let Some(node) = &there
            && node.is_same(&what)
        {
            node.lookups.fetch_add(1, Relaxed);
            return node.clone();
        }
        let (lookups, replaced) = there.as_ref().map_or((0, 0), |n| {
            let other = u32::from(!n.becomes(&what));
            (
                n.lookups.load(Relaxed),
                n.replaced.load(Relaxed).wrapping_add(other),
            )
        });
        let node = Arc::new(Node {
            what,
            lookups: AtomicU64::new(lookups + 1),
            replaced: AtomicU32::new(replaced),
        });
        shard.insert(ino, node.clone());
        drop(shard);
        drop(there);
        node
    }

    /// Takes hold of an object that the kernel knows from a listing; of another one that has its number, does nothing.
    /// Returns the node, if the kernel knows the object.
    pub fn promote(&self, ino: u64, volume: &Arc<Volume>, znode: &Arc<Znode>) -> Option<Arc<Node>> {
        let mut shard = self.write(ino);
        let there = shard.get(&ino)?.clone();
        let what = What::Object(volume.clone(), znode.clone());
        if there.is_same(&what) {
            return Some(there);
        }
        if !there.becomes(&what) {
            return None;
        }
        let node = Arc::new(Node {
            what,
            lookups: AtomicU64::new(there.lookups.load(Relaxed)),
            replaced: AtomicU32::new(there.replaced.load(Relaxed)),
        });
        shard.insert(ino, node.clone());
        drop(shard);
        Some(node)
    }

    /// The kernel gives references back. Returns the node when it was the last one.
    pub fn forget(&self, ino: u64, n: u64) -> Option<Arc<Node>> {
        let mut shard = self.write(ino);
        let node = shard.get(&ino)?;
        let left = node.lookups.load(Relaxed).saturating_sub(n);
        node.lookups.store(left, Relaxed);
        if left == 0 { shard.remove(&ino) } else { None }
    }

    /// Lets go of every object of a volume whose gate is closed; the numbers stay taken until the kernel forgets.
    pub fn purge(&self, volume: &Arc<Volume>) {
        for shard in &self.0 {
            let mut dropped = Vec::new();
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            for node in shard.values_mut() {
                if node.volume().is_some_and(|v| Arc::ptr_eq(v, volume))
                    && !matches!(node.what, What::Gone(_))
                {
                    let gone = Arc::new(Node {
                        what: What::Gone(volume.clone()),
                        lookups: AtomicU64::new(node.lookups.load(Relaxed)),
                        replaced: AtomicU32::new(node.replaced.load(Relaxed)),
                    });
                    dropped.push(std::mem::replace(node, gone));
                }
            }
            drop(shard);
        }
    }

    /// Lets go of everything, at the end of the session.
    pub fn clear(&self) {
        for shard in &self.0 {
            let all = std::mem::take(&mut *shard.write().unwrap_or_else(PoisonError::into_inner));
            drop(all);
        }
    }

    /// How many inodes the kernel knows.
    pub fn len(&self) -> usize {
        self.0
            .iter()
            .map(|s| s.read().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }
}

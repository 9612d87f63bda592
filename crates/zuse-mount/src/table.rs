//! The inodes that the kernel knows.
//!
//! A [`Node`] exists from the first look-up to the last forget. The kernel may know millions of
//! files and cannot be asked to forget them. So most nodes only identify their object (about 100
//! bytes). A node holds its object in memory
//! - from the first use of the inode on, so that later requests take one hash look-up;
//! - from the moment its last name is removed, so that an open file stays usable.
//!
//! At most [`MAY_HOLD`] objects are held for the first reason. The least recently used one is
//! released first (second chance, by shard); its next use loads it again.
//!
//! Invariants
//! - An unlinked object, or one that a request is using, is never released. That is checked before
//!   ([`Node::released_state`]).
//! - `lookups` grows under the shard's lock (shared or not) and shrinks under the exclusive one. So
//!   a node is never dropped while a request is being given it. It never shrinks below 0, which is
//!   asserted.
//!
//! Nodes are dropped outside the locks, because dropping the last holder of an object does work. If
//! a number gets another object (its file system was replaced in place), the new node takes over
//! the count.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use zuse_base::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use zuse_base::{Errno, ObjectId};
use zuse_dmu::{NUMBER_SHARDS, NumberMap, shard_of};
use zuse_zpl::Znode;

use crate::covers::VirtualDir;
use crate::number;
use crate::volume::Volume;

/// Most objects that are held because they were used; about 1.1 kB each.
pub(crate) const MAY_HOLD: usize = 32 * 1024;
/// Held objects that are checked for each one that is added.
const TRIES: usize = 2;

/// The object of an inode number.
pub(crate) enum What {
    /// An object of a file system.
    Object(Arc<Volume>, Arc<Znode>),
    /// An object that is not held: it was only listed, or not used for long.
    Listed(Arc<Volume>, Listed),
    /// `.zfs`.
    DotZfs(Arc<Volume>),
    /// `.zfs/snapshot`.
    Snapshots(Arc<Volume>),
    /// A directory that exists only because something is mounted below it.
    Virtual(Arc<VirtualDir>),
    /// Its file system is gone. The volume keeps its slot reserved. If other content takes its
    /// place (a rollback) it becomes the same file there, if that still exists.
    Gone(Arc<Volume>, Option<Listed>),
}

/// Identifies an object that is not held.
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
    /// How often the content was replaced without the kernel; part of the generation.
    pub replaced: AtomicU32,
    /// Handles through which a mapping may write.
    pub writers: AtomicU32,
    /// Used since the last check for releasing objects.
    used: AtomicBool,
}

/// The former process's data about an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub lookups: u64,
    pub replaced: u32,
    pub writers: u32,
}

impl Node {
    /// Number of the kernel's references.
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Relaxed)
    }

    fn new(what: What, lookups: u64, replaced: u32, writers: u32) -> Arc<Self> {
        Arc::new(Self {
            what,
            lookups: AtomicU64::new(lookups),
            replaced: AtomicU32::new(replaced),
            writers: AtomicU32::new(writers),
            used: AtomicBool::new(false),
        })
    }

    /// The same inode with another object, to replace this one.
    fn with(&self, what: What) -> Arc<Self> {
        Self::new(
            what,
            self.lookups.load(Relaxed),
            self.replaced.load(Relaxed),
            self.writers.load(Relaxed),
        )
    }

    /// The state after its object is released, if that is allowed.
    fn released_state(&self) -> Option<What> {
        let What::Object(volume, znode) = &self.what else {
            return None;
        };
        // A request that removes its last name holds it.
        let may_go = Arc::strong_count(znode) == 1
            && znode.attributes().links > 0
            && znode.object() != volume.root_object;
        may_go.then(|| {
            let listed = Listed {
                object: znode.object(),
                generation: znode.generation(),
            };
            What::Listed(volume.clone(), listed)
        })
    }

    /// Identifies its object, if that has a name.
    fn identity(&self) -> Option<Listed> {
        match &self.what {
            What::Object(_, znode) if znode.attributes().links > 0 => Some(Listed {
                object: znode.object(),
                generation: znode.generation(),
            }),
            What::Listed(_, listed) => Some(*listed),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub fn object(&self) -> Result<(&Arc<Volume>, &Arc<Znode>), Errno> {
        match &self.what {
            What::Object(volume, znode) => Ok((volume, znode)),
            What::Gone(..) => Err(Errno::STALE),
            // Sessions load the object before they return a node.
            What::Listed(..) => Err(Errno::STALE),
            // It is read-only.
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

    /// Whether `other` is the object that a listing has noted here.
    fn becomes(&self, other: &What) -> bool {
        match (&self.what, other) {
            (What::Listed(a, listed), What::Object(b, znode)) => {
                Arc::ptr_eq(a, b) && listed.is(znode)
            }
            _ => false,
        }
    }

    /// The file system that it is in.
    pub fn volume(&self) -> Option<&Arc<Volume>> {
        match &self.what {
            What::Object(v, _)
            | What::Listed(v, _)
            | What::DotZfs(v)
            | What::Snapshots(v)
            | What::Gone(v, _) => Some(v),
            What::Virtual(_) => None,
        }
    }
}

#[derive(Default)]
struct Shard {
    nodes: NumberMap<Arc<Node>>,
    /// Numbers of nodes that hold their object, the oldest first. Some may have been forgotten
    /// since.
    held: VecDeque<u64>,
}

impl Shard {
    /// Inserts a node. Returns the replaced ones: drop them without the lock.
    #[must_use]
    fn put(
        &mut self,
        ino: u64,
        node: Arc<Node>,
        may_hold: usize,
    ) -> [Option<Arc<Node>>; TRIES + 1] {
        let is_held = matches!(node.what, What::Object(..));
        let mut old = [const { None }; TRIES + 1];
        old[TRIES] = self.nodes.insert(ino, node);
        if is_held {
            for place in &mut old[..TRIES] {
                if self.held.len() >= may_hold {
                    *place = self.release_oldest();
                }
            }
            self.held.push_back(ino);
        }
        old
    }

    /// Checks the object that is held longest, and releases it unless it is in use or was used.
    fn release_oldest(&mut self) -> Option<Arc<Node>> {
        let ino = self.held.pop_front()?;
        let node = self.nodes.get_mut(&ino)?;
        if !matches!(node.what, What::Object(..)) {
            return None;
        }
        // A request that works on it holds the node.
        let is_in_use = Arc::strong_count(node) > 1 || node.used.swap(false, Relaxed);
        match node.released_state().filter(|_| !is_in_use) {
            Some(what) => {
                let listed = node.with(what);
                Some(std::mem::replace(node, listed))
            }
            None => {
                self.held.push_back(ino);
                None
            }
        }
    }
}

/// The inodes that the kernel knows, by number.
pub(crate) struct Table {
    shards: [RwLock<Shard>; NUMBER_SHARDS],
    /// Objects that a shard holds before it releases one.
    may_hold: usize,
}

impl Table {
    /// Holds about so many objects that were used.
    pub fn new(may_hold: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            may_hold: may_hold.div_ceil(NUMBER_SHARDS),
        }
    }

    fn shard(&self, ino: u64) -> &RwLock<Shard> {
        // Consecutive numbers of different file systems are spread over different shards.
        let mixed = ino ^ u64::from(number::slot(ino)) << 2;
        &self.shards[shard_of(mixed)]
    }

    fn read(&self, ino: u64) -> RwLockReadGuard<'_, Shard> {
        self.shard(ino).read()
    }

    fn write(&self, ino: u64) -> RwLockWriteGuard<'_, Shard> {
        self.shard(ino).write()
    }

    /// A known inode.
    pub fn get(&self, ino: u64) -> Result<Arc<Node>, Errno> {
        let shard = self.read(ino);
        let node = shard.nodes.get(&ino).ok_or(Errno::STALE)?;
        // Read first: writing each time would move the cache line between the cores.
        if !node.used.load(Relaxed) {
            node.used.store(true, Relaxed);
        }
        Ok(node.clone())
    }

    /// The kernel is given a reference.
    pub fn enter(&self, ino: u64, what: What) -> Arc<Node> {
        if let Some(node) = self.read(ino).nodes.get(&ino)
            && node.is_same(&what)
        {
            node.lookups.fetch_add(1, Relaxed);
            return node.clone();
        }
        let mut shard = self.write(ino);
        // Another thread may have entered it since the look with the shared lock.
        let there = shard.nodes.get(&ino).cloned();
        if let Some(node) = &there
            && node.is_same(&what)
        {
            node.lookups.fetch_add(1, Relaxed);
            return node.clone();
        }
        let (lookups, replaced, writers) = there.as_ref().map_or((0, 0, 0), |n| {
            let other = u32::from(!n.becomes(&what));
            (
                n.lookups.load(Relaxed),
                n.replaced.load(Relaxed).wrapping_add(other),
                n.writers.load(Relaxed),
            )
        });
        let node = Node::new(what, lookups + 1, replaced, writers);
        let old = shard.put(ino, node.clone(), self.may_hold);
        drop(shard);
        // Without the lock: the last holder of an object does work when it is dropped.
        drop((there, old));
        node
    }

    /// Makes a listed inode hold its object; does nothing for another object with the same number.
    /// Returns the node, if the kernel knows the object.
    pub fn promote(&self, ino: u64, volume: &Arc<Volume>, znode: &Arc<Znode>) -> Option<Arc<Node>> {
        let mut shard = self.write(ino);
        let there = shard.nodes.get(&ino)?.clone();
        let what = What::Object(volume.clone(), znode.clone());
        if there.is_same(&what) {
            return Some(there);
        }
        if !there.becomes(&what) {
            return None;
        }
        let node = there.with(what);
        let old = shard.put(ino, node.clone(), self.may_hold);
        drop(shard);
        drop(old);
        Some(node)
    }

    /// The kernel drops references. Returns the node if it was the last one.
    pub fn forget(&self, ino: u64, n: u64) -> Option<Arc<Node>> {
        let mut shard = self.write(ino);
        let node = shard.nodes.get(&ino)?;
        let known = node.lookups.load(Relaxed);
        debug_assert!(
            known >= n,
            "inode {ino}: {n} references come back of {known}"
        );
        let left = known.saturating_sub(n);
        node.lookups.store(left, Relaxed);
        if left == 0 {
            // Returned, not dropped here: that could be the last hold on an unlinked object.
            shard.nodes.remove(&ino)
        } else {
            None
        }
    }

    /// Releases every object of a volume whose gate is closed; the numbers stay reserved until the
    /// kernel forgets them.
    pub fn purge(&self, volume: &Arc<Volume>) {
        for shard in &self.shards {
            let mut dropped = Vec::new();
            let mut shard = shard.write();
            for node in shard.nodes.values_mut() {
                if node.volume().is_some_and(|v| Arc::ptr_eq(v, volume))
                    && !matches!(node.what, What::Gone(..))
                {
                    let gone = node.with(What::Gone(volume.clone(), node.identity()));
                    dropped.push(std::mem::replace(node, gone));
                }
            }
            drop(shard);
        }
    }

    /// Moves inodes of a replaced file system to its successor. Whether that has the same file
    /// shows when it is used. Returns the numbers.
    pub fn inherit(&self, old: &Arc<Volume>, new: &Arc<Volume>) -> Vec<u64> {
        let mut all = Vec::new();
        for shard in &self.shards {
            for (ino, node) in &mut shard.write().nodes {
                if let What::Gone(volume, Some(listed)) = &node.what
                    && Arc::ptr_eq(volume, old)
                {
                    *node = node.with(What::Listed(new.clone(), *listed));
                    all.push(*ino);
                }
            }
        }
        all
    }

    /// The inodes of a file system that the kernel knows.
    pub fn of_volume(&self, volume: &Arc<Volume>) -> Vec<u64> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.read();
            let ours = |node: &Node| node.volume().is_some_and(|v| Arc::ptr_eq(v, volume));
            let inodes = shard.nodes.iter().filter(|(_, node)| ours(node));
            all.extend(inodes.map(|(ino, _)| *ino));
        }
        all
    }

    /// Releases every object of a volume whose gate is closed; they stay known by their numbers.
    /// Returns the unlinked ones.
    pub fn lay_down(&self, volume: &Arc<Volume>) -> Vec<Arc<Znode>> {
        let mut unlinked = Vec::new();
        for shard in &self.shards {
            let mut dropped = Vec::new();
            let mut shard = shard.write();
            for node in shard.nodes.values_mut() {
                let What::Object(of, znode) = &node.what else {
                    continue;
                };
                if !Arc::ptr_eq(of, volume) {
                    continue;
                }
                if znode.attributes().links == 0 {
                    unlinked.push(znode.clone());
                }
                let listed = Listed {
                    object: znode.object(),
                    generation: znode.generation(),
                };
                let listed = node.with(What::Listed(volume.clone(), listed));
                dropped.push(std::mem::replace(node, listed));
            }
            // None of them holds its object any more.
            shard.held.clear();
            drop(shard);
        }
        unlinked
    }

    /// Visits every inode that the kernel knows.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn each<E>(&self, visit: &mut dyn FnMut(u64, &Node) -> Result<(), E>) -> Result<(), E> {
        for shard in &self.shards {
            // Copied: the visitor sends to a socket, which may block.
            let some: Vec<(u64, Arc<Node>)> = {
                let shard = shard.read();
                let nodes = shard.nodes.iter();
                nodes.map(|(ino, node)| (*ino, node.clone())).collect()
            };
            some.iter().try_for_each(|(ino, node)| visit(*ino, node))?;
        }
        Ok(())
    }

    /// Visits the file system of every inode.
    pub fn each_volume(&self, visit: &mut dyn FnMut(&Arc<Volume>)) {
        for shard in &self.shards {
            for node in shard.read().nodes.values() {
                match &node.what {
                    What::Virtual(dir) => visit(&dir.volume),
                    _ => node.volume().into_iter().for_each(&mut *visit),
                }
            }
        }
    }

    /// Inserts an inode from another process.
    pub fn put(&self, ino: u64, what: What, known: Known) {
        let node = Node::new(what, known.lookups, known.replaced, known.writers);
        let old = self.write(ino).put(ino, node, self.may_hold);
        drop(old);
    }

    /// Drops everything, at the end of the session.
    pub fn clear(&self) {
        for shard in &self.shards {
            let all = std::mem::take(&mut *shard.write());
            drop(all);
        }
    }

    /// How many inodes the kernel knows.
    pub fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|s| {
                let shard = s.read();
                shard.nodes.len()
            })
            .sum()
    }
}

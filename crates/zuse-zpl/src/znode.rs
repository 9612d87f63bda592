//! An object of a file system in memory, and the cache of them.
//!
//! One [`Znode`] per object exists at a time, found through a weak map. A holder keeps the object
//! usable, even after its last name is removed ("open"). When an unlinked object loses its last
//! holder, it is queued for freeing. A drop must not begin a transaction, so the next operation
//! frees it.
//!
//! Locks, in this order; all but `state` may be held while a transaction is begun:
//! 1. the file system's rename lock
//! 2. `names` of directories, by object number
//! 3. `content` of a file (byte ranges)
//! 4. `xattrs`
//! 5. `state`, after the transaction has begun

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use zuse_base::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use zuse_base::{Errno, Error, ObjectId, Result, Txg};
use zuse_dmu::zap::Zap;
use zuse_dmu::{Dnode, NUMBER_SHARDS, NumberMap, shard_of};

use crate::attributes::Attributes;
use crate::range_lock::RangeLock;
use crate::{dirent, mode};

type Shard = NumberMap<Weak<Znode>>;

/// The changeable state of an object in memory.
pub(crate) struct State {
    pub attrs: Attributes,
    /// The access time is newer than on disk.
    pub atime_pending: bool,
    /// Created without a name, and may still get one.
    pub linkable: bool,
}

/// An object of a mounted file system.
pub struct Znode {
    cache: Arc<ZnodeCache>,
    object: ObjectId,
    generation: u64,
    kind: u32,
    dnode: Arc<Dnode>,
    state: RwLock<State>,
    /// Freed, and unusable.
    dead: AtomicBool,
    /// Entries of a directory.
    entries: Option<Zap>,
    /// A listing found impossible names.
    has_impossible: AtomicBool,
    pub(crate) names: Mutex<()>,
    pub(crate) content: RangeLock,
    pub(crate) xattrs: RwLock<()>,
    /// Where the last write ended, and its txg.
    end: AtomicU64,
    end_txg: AtomicU64,
}

impl Znode {
    /// Its object number: the inode number.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Distinguishes objects that had the same number.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The type bits of its mode, which never change.
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == mode::DIRECTORY
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == mode::REGULAR
    }

    /// The object below.
    pub fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }

    /// Its attributes now.
    pub fn attributes(&self) -> Attributes {
        self.read().attrs
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.read().attrs.size
    }

    /// Whether it was freed.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    /// Reverts [`ZnodeCache::kill_if_alone`].
    pub(crate) fn revive(&self) {
        self.dead.store(false, Relaxed);
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Whether the last write ended here, in a txg that is not written yet, so that its last block
    /// is dirty.
    pub(crate) fn ends_dirty(&self, offset: u64) -> bool {
        self.end.load(Relaxed) == offset
            && self
                .dnode
                .newest_dirty()
                .is_some_and(|txg| txg.0 == self.end_txg.load(Relaxed))
    }

    pub(crate) fn note_end(&self, end: u64, txg: Txg) {
        self.end.store(end, Relaxed);
        self.end_txg.store(txg.0, Relaxed);
    }

    /// Lists entries of a directory from a position on; returns the position after the last.
    /// Skipped entries are noted: [`Self::check_listed`] reports them at the end of the listing.
    pub(crate) fn each_entry(
        &self,
        from: u64,
        f: &mut dyn FnMut(&[u8], u64, u64) -> bool,
    ) -> Result<u64> {
        let listed = dirent::each(self.entries()?, from, f)?;
        if listed.impossible != 0 {
            self.has_impossible.store(true, Relaxed);
        }
        Ok(listed.after)
    }

    /// Fails if listings of this directory skipped entries.
    pub(crate) fn check_listed(&self) -> Result<()> {
        if self.has_impossible.load(Relaxed) {
            return Err(Error::corrupt(
                self.dnode.place(),
                "the directory holds names that no file may have; they are left out",
            ));
        }
        Ok(())
    }

    /// The ZAP of a directory.
    pub(crate) fn entries(&self) -> Result<&Zap> {
        self.entries
            .as_ref()
            .ok_or_else(|| Error::refused(Errno::NOTDIR, format!("object {}", self.object.0)))
    }
}

impl Drop for Znode {
    fn drop(&mut self) {
        self.cache.forget(self.object);
        let state = self.state.get_mut();
        // A dead znode was freed, or was never in the map: a second one stands for its object.
        let ours = !self.cache.keep_unlinked.load(Relaxed);
        if state.attrs.links == 0 && !*self.dead.get_mut() && ours {
            self.cache
                .orphans
                .lock()
                .push((self.object, self.generation));
        }
    }
}

impl fmt::Debug for Znode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Znode({}, {:?})", self.object.0, self.read().attrs)
    }
}

/// The objects in memory.
pub(crate) struct ZnodeCache {
    shards: [Mutex<Shard>; NUMBER_SHARDS],
    /// Unlinked objects without holders.
    pub orphans: Mutex<Vec<(ObjectId, u64)>>,
    /// How many may wait.
    pub orphan_limit: AtomicUsize,
    /// Unlinked objects without holders are freed by another process
    /// ([`crate::unlinked_handover`]).
    pub keep_unlinked: AtomicBool,
    /// Held by the thread that frees them.
    pub reaping: Mutex<()>,
}

impl ZnodeCache {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            orphans: Mutex::default(),
            orphan_limit: AtomicUsize::new(0),
            keep_unlinked: AtomicBool::new(false),
            reaping: Mutex::default(),
        })
    }

    fn shard(&self, object: ObjectId) -> MutexGuard<'_, Shard> {
        self.shards[shard_of(object.0)].lock()
    }

    fn forget(&self, object: ObjectId) {
        let mut shard = self.shard(object);
        // Another thread may have loaded the object since: a live entry is not this znode's.
        if shard.get(&object.0).is_some_and(|w| w.strong_count() == 0) {
            shard.remove(&object.0);
        }
    }

    /// The object, if it is in memory and not freed.
    pub fn get(&self, object: ObjectId) -> Option<Arc<Znode>> {
        self.shard(object).get(&object.0).and_then(Weak::upgrade)
    }

    fn build(
        self: &Arc<Self>,
        dnode: Arc<Dnode>,
        attrs: Attributes,
        linkable: bool,
    ) -> Result<Arc<Znode>> {
        let kind = attrs.mode & mode::TYPE;
        if !mode::is_valid(attrs.mode) {
            let what = format!("a file of mode {:o}", attrs.mode);
            return Err(Error::corrupt(dnode.place(), what));
        }
        let entries = if kind == mode::DIRECTORY {
            Some(Zap::open(&dnode)?)
        } else {
            None
        };
        Ok(Arc::new(Znode {
            cache: self.clone(),
            object: dnode.object(),
            generation: attrs.generation,
            kind,
            dnode,
            state: RwLock::new(State {
                attrs,
                atime_pending: false,
                linkable,
            }),
            dead: AtomicBool::new(false),
            entries,
            has_impossible: AtomicBool::new(false),
            names: Mutex::new(()),
            content: RangeLock::default(),
            xattrs: RwLock::new(()),
            end: AtomicU64::new(0),
            end_txg: AtomicU64::new(0),
        }))
    }

    /// Inserts an object read from disk, unless another thread was first: then returns that
    /// thread's.
    ///
    /// `load` runs with the map's shard locked, so the object cannot change between being read and
    /// being found by others. It must do no I/O. It may return `None`.
    pub fn enter(
        self: &Arc<Self>,
        dnode: &Arc<Dnode>,
        load: impl FnOnce() -> Option<Attributes>,
    ) -> Result<Option<Arc<Znode>>> {
        // Nothing may be dropped while the shard is locked, because a drop locks it.
        let mut shard = self.shard(dnode.object());
        let there = shard.get(&dnode.object().0).and_then(Weak::upgrade);
        if let Some(there) = &there
            && !there.is_dead()
        {
            drop(shard);
            return Ok(Some(there.clone()));
        }
        let made = match load() {
            Some(attrs) if attrs.generation != 0 => self.build(dnode.clone(), attrs, false),
            _ => {
                drop(shard);
                return Ok(None);
            }
        };
        if let Ok(znode) = &made {
            shard.insert(znode.object.0, Arc::downgrade(znode));
        }
        drop(shard);
        drop(there);
        made.map(Some)
    }

    /// The same if reading takes I/O: the object is inserted with its lock held, then read.
    pub fn enter_slowly(
        self: &Arc<Self>,
        dnode: &Arc<Dnode>,
        load: impl Fn() -> Result<Attributes>,
    ) -> Result<Arc<Znode>> {
        let gone = || Error::refused(Errno::NOENT, "the object is free");
        let first = load()?;
        if first.generation == 0 {
            return Err(gone());
        }
        let znode = self.build(dnode.clone(), first, false)?;
        // A thread that finds it in the map waits for this lock until the attributes are final.
        let mut state = znode.write();
        let mut shard = self.shard(znode.object);
        let there = shard.get(&znode.object.0).and_then(Weak::upgrade);
        if let Some(there) = &there
            && !there.is_dead()
        {
            drop(shard);
            // Its drop must not queue the object, which the other znode stands for.
            znode.dead.store(true, Relaxed);
            return Ok(there.clone());
        }
        shard.insert(znode.object.0, Arc::downgrade(&znode));
        drop(shard);
        // Before it was in the map the object could change, or be freed and its number be reused.
        let now = load();
        match now {
            // Type and entries were built from `first`. They stay the same within one generation.
            Ok(now) if now.generation == first.generation => {
                state.attrs = now;
                drop(state);
                Ok(znode)
            }
            other => {
                znode.dead.store(true, Relaxed);
                drop(state);
                Err(other.err().unwrap_or_else(gone))
            }
        }
    }

    /// Inserts a newly created object. Another thread may have found its number before and inserted
    /// it. Then only whether it is linkable is set there.
    pub fn insert(
        self: &Arc<Self>,
        dnode: Arc<Dnode>,
        attrs: Attributes,
        linkable: bool,
    ) -> Result<Arc<Znode>> {
        let znode = self.build(dnode, attrs, linkable)?;
        let mut shard = self.shard(znode.object);
        let there = shard.get(&znode.object.0).and_then(Weak::upgrade);
        if let Some(there) = &there
            && !there.is_dead()
            && there.generation == attrs.generation
        {
            drop(shard);
            znode.dead.store(true, Relaxed);
            // It was read after its creator had written all of it. It may have changed since.
            if linkable {
                let mut state = there.write();
                state.attrs.links = attrs.links;
                state.linkable = true;
            }
            return Ok(there.clone());
        }
        shard.insert(znode.object.0, Arc::downgrade(&znode));
        drop(shard);
        drop(there);
        Ok(znode)
    }

    /// Frees an object that never got a name. Another thread may have found its number. Its state
    /// in memory is not returned any more, and it is not read again before it is free.
    pub fn discard(&self, object: ObjectId, free: impl FnOnce() -> Result<()>) -> Result<()> {
        let shard = self.shard(object);
        let there = shard.get(&object.0).and_then(Weak::upgrade);
        if let Some(there) = &there {
            there.dead.store(true, Relaxed);
        }
        let freed = free();
        drop(shard);
        drop(there);
        freed
    }

    /// If the caller is the only holder of `znode`, marks it as freed: no other thread can get it
    /// any more.
    pub fn kill_if_alone(&self, znode: &Arc<Znode>) -> bool {
        // With the map locked no thread can get a hold between the count and the mark.
        let _shard = self.shard(znode.object);
        if Arc::strong_count(znode) != 1 {
            return false;
        }
        znode.dead.store(true, Relaxed);
        true
    }
}

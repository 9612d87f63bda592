//! A file system of the session, and its gate.
//!
//! Every request passes the gate of its file system. Replacing the file system (rollback, receive)
//! or removing it (unmount, destroy) closes the gate, and waits for the requests inside. Inodes of
//! a removed file system fail with `STALE`. Its slot is reused when the kernel has forgotten all of
//! them.
//!
//! Rules: a thread is inside at most one gate. Nothing inside may wait for the kernel.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use zuse_base::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use zuse_base::{Errno, ObjectId};
use zuse_zpl::{FileSystem, UnlinkObserver, Znode};

use crate::number;
use crate::table::Table;

/// The slots of file systems.
#[derive(Default)]
pub(crate) struct Slots {
    used: Mutex<BTreeMap<u16, Weak<Slot>>>,
    /// Whether there ever was a file system whose entries have several names.
    pub any_aliases: AtomicBool,
}

/// A slot, used by one file system after the other.
struct Slot {
    slots: Arc<Slots>,
    number: u16,
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The last volume with this slot is gone, so the kernel knows none of its inodes.
        self.slots.used.lock().remove(&self.number);
    }
}

impl Slots {
    fn take(self: &Arc<Self>) -> Result<Arc<Slot>, Errno> {
        let mut used = self.used.lock();
        let free = (0..number::VIRTUAL_SLOT).find(|slot| !used.contains_key(slot));
        // All slots are in use: ENFILE.
        let number = free.ok_or(Errno(23))?;
        Ok(self.make(&mut used, number))
    }

    fn make(self: &Arc<Self>, used: &mut BTreeMap<u16, Weak<Slot>>, number: u16) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            slots: self.clone(),
            number,
        });
        used.insert(number, Arc::downgrade(&slot));
        slot
    }

    /// A slot by its number, from another process.
    fn at(self: &Arc<Self>, number: u16) -> Arc<Slot> {
        let mut used = self.used.lock();
        let there = used.get(&number).and_then(Weak::upgrade);
        there.unwrap_or_else(|| self.make(&mut used, number))
    }
}

/// A file system of the session.
pub(crate) struct Volume {
    own: Arc<Slot>,
    /// Its part of the inode numbers.
    pub slot: u16,
    /// Inode number of its root directory.
    pub root: u64,
    /// The object of its root directory.
    pub root_object: ObjectId,
    /// Whether it is a snapshot.
    pub is_snapshot: bool,
    /// Whether its entries have several names.
    pub has_aliases: bool,
    /// Inodes whose block counts were reported while they were about to change, with the counts.
    pub growing: Mutex<HashMap<u64, u64>>,
    /// Settings at the time of the kernel's answers: whether POSIX ACLs are enabled, whether `.zfs`
    /// is shown.
    pub told_under: Mutex<(bool, bool)>,
    name: Mutex<String>,
    /// The parent (`..`) of its root.
    above: AtomicU64,
    gate: RwLock<Option<Arc<FileSystem>>>,
    /// Open snapshots, while the kernel knows them.
    pub snapshots: Mutex<HashMap<Vec<u8>, Weak<Volume>>>,
    /// Notified of objects that lose their last name, once some were returned to the kernel without
    /// being held.
    unlink_observer: OnceLock<Arc<HoldUnlinked>>,
}

/// Properties of a file system that are read once.
#[derive(Default)]
struct Facts {
    has_aliases: bool,
    told_under: (bool, bool),
    root_object: ObjectId,
}

/// Most files that wait to be freed together, or for the next tick.
const MAY_WAIT: usize = 256;

/// Holds an object known from a listing when its last name is removed, because it may be open.
struct HoldUnlinked {
    table: Weak<Table>,
    volume: Weak<Volume>,
}

impl UnlinkObserver for HoldUnlinked {
    fn on_last_unlink(&self, znode: &Arc<Znode>) {
        if let (Some(table), Some(volume)) = (self.table.upgrade(), self.volume.upgrade()) {
            table.promote(volume.ino(znode.object()), &volume, znode);
        }
    }
}

/// A request inside a file system.
pub(crate) struct Inside<'a>(RwLockReadGuard<'a, Option<Arc<FileSystem>>>);

impl std::ops::Deref for Inside<'_> {
    type Target = Arc<FileSystem>;
    fn deref(&self) -> &Arc<FileSystem> {
        match &*self.0 {
            Some(fs) => fs,
            None => unreachable!("checked when the gate was passed"),
        }
    }
}

impl Volume {
    /// A file system enters the session.
    pub fn new(
        slots: &Arc<Slots>,
        fs: Arc<FileSystem>,
        name: String,
        is_root: bool,
        is_snapshot: bool,
    ) -> Result<Arc<Self>, Errno> {
        let slot = slots.take()?;
        Ok(Self::in_slot(slot, fs, name, is_root, is_snapshot))
    }

    /// A file system's new content enters the session in its place: files in both keep their
    /// numbers.
    pub fn in_place_of(old: &Self, fs: Arc<FileSystem>) -> Arc<Self> {
        let is_root = old.root == number::ROOT;
        Self::in_slot(old.own.clone(), fs, old.name(), is_root, old.is_snapshot)
    }

    /// A file system of a session from another process: its name, whether it is the root, and
    /// whether it is a snapshot.
    pub fn handed(
        slots: &Arc<Slots>,
        slot: u16,
        fs: Arc<FileSystem>,
        (name, is_root, is_snapshot): (String, bool, bool),
    ) -> Arc<Self> {
        Self::in_slot(slots.at(slot), fs, name, is_root, is_snapshot)
    }

    /// A removed one, of which the kernel still knows inodes.
    pub fn closed(slots: &Arc<Slots>, slot: u16, root_object: ObjectId, name: String) -> Arc<Self> {
        let facts = Facts {
            root_object,
            ..Facts::default()
        };
        Self::with(slots.at(slot), facts, name, None, (false, false))
    }

    fn in_slot(
        own: Arc<Slot>,
        fs: Arc<FileSystem>,
        name: String,
        is_root: bool,
        is_snapshot: bool,
    ) -> Arc<Self> {
        // The housekeeping thread frees them, so that requests rarely do.
        fs.set_orphan_limit(MAY_WAIT);
        let facts = Facts {
            has_aliases: fs.has_aliases(),
            told_under: (fs.props().posix_acl, fs.shows_dot_zfs()),
            root_object: fs.root_id(),
        };
        // It stays set: the kernel may have cached names of a file system that is gone.
        own.slots.any_aliases.fetch_or(facts.has_aliases, Relaxed);
        Self::with(own, facts, name, Some(fs), (is_root, is_snapshot))
    }

    fn with(
        own: Arc<Slot>,
        facts: Facts,
        name: String,
        fs: Option<Arc<FileSystem>>,
        (is_root, is_snapshot): (bool, bool),
    ) -> Arc<Self> {
        let slot = own.number;
        let Facts {
            has_aliases,
            told_under,
            root_object,
        } = facts;
        let root = if is_root {
            number::ROOT
        } else {
            number::of(slot, root_object)
        };
        Arc::new(Self {
            own,
            slot,
            root,
            root_object,
            is_snapshot,
            has_aliases,
            growing: Mutex::default(),
            told_under: Mutex::new(told_under),
            name: Mutex::new(name),
            above: AtomicU64::new(root),
            gate: RwLock::new(fs),
            snapshots: Mutex::default(),
            unlink_observer: OnceLock::new(),
        })
    }

    /// Called before an object is given to the kernel without being held.
    pub fn keep(self: &Arc<Self>, fs: &FileSystem, table: &Arc<Table>) {
        self.unlink_observer.get_or_init(|| {
            let holds = Arc::new(HoldUnlinked {
                table: Arc::downgrade(table),
                volume: Arc::downgrade(self),
            });
            let weak: Weak<HoldUnlinked> = Arc::downgrade(&holds);
            fs.add_unlink_observer(weak);
            holds
        });
    }

    /// Enters the file system, until the guard is dropped.
    pub fn enter(&self) -> Result<Inside<'_>, Errno> {
        let guard = self.gate.read();
        if guard.is_some() {
            Ok(Inside(guard))
        } else {
            Err(Errno::STALE)
        }
    }

    /// The file system without passing the gate: only for comparing it.
    pub fn file_system(&self) -> Option<Arc<FileSystem>> {
        self.gate.read().clone()
    }

    /// Closes the gate: waits for requests inside, and blocks others while the guard exists.
    /// Storing `None` there makes it final.
    pub fn close(&self) -> RwLockWriteGuard<'_, Option<Arc<FileSystem>>> {
        self.gate.write()
    }

    /// The inode number of an object.
    pub fn ino(&self, object: ObjectId) -> u64 {
        if object == self.root_object {
            self.root
        } else {
            number::of(self.slot, object)
        }
    }

    /// Name of the dataset or snapshot now.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    pub fn set_name(&self, name: &str) {
        let mut now = self.name.lock();
        if *now != name {
            name.clone_into(&mut now);
        }
    }

    /// The parent (`..`) of the root.
    pub fn above(&self) -> u64 {
        self.above.load(Relaxed)
    }

    pub fn set_above(&self, ino: u64) {
        self.above.store(ino, Relaxed);
    }
}

//! State of one FUSE session.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use zuse_base::sync::{Mutex, RwLock, RwLockWriteGuard};

use zuse_base::{Errno, Error};
use zuse_fuse::{Attr, Caller, MountOptions, Notifier};
use zuse_zpl::{Credentials, FileSystem, Znode};

use crate::attributes;
use crate::covers::{Cover, Covers, VirtualDir};
use crate::number;
use crate::table::{Listed, MAY_HOLD, Node, Table, What};
use crate::tree::Tree;
use crate::volume::{Slots, Volume};
use crate::wakeup::Wakeup;

pub(crate) type Answer<T> = Result<T, Errno>;

/// The error number for a client.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn no(error: Error) -> Errno {
    error.errno()
}

/// The credentials of a request; the kernel has checked its permissions.
pub(crate) fn credentials(caller: &Caller) -> Credentials {
    Credentials::checked_by_kernel(caller.uid, caller.gid, caller.umask)
}

/// The state of a session.
pub(crate) struct Session {
    pub tree: Arc<dyn Tree>,
    pub slots: Arc<Slots>,
    pub table: Arc<Table>,
    root: RwLock<Arc<Volume>>,
    covers: RwLock<Arc<Covers>>,
    /// The mounted children, by dataset.
    pub children: Mutex<HashMap<String, Arc<Volume>>>,
    /// Where they are mounted: names from the root on.
    pub paths: Mutex<HashMap<String, Vec<Vec<u8>>>>,
    /// Held exclusively while the root of the session is replaced.
    root_gate: RwLock<()>,
    over: AtomicBool,
    /// Volumes with listings to make ready.
    to_do: Mutex<Vec<Arc<Volume>>>,
    /// Whether there are any.
    has_to_do: AtomicBool,
    /// There was a request since the last housekeeping.
    pub was_used: AtomicBool,
    /// The thread to wake then.
    pub wakeup: OnceLock<Arc<Wakeup>>,
    /// Whether the kernel has a write-back cache.
    pub gathers_writes: bool,
    /// Whether access times are kept.
    pub keeps_atime: bool,
    /// Sends notices about changes to the kernel. Empty until it is mounted.
    pub notifier: OnceLock<Notifier>,
    /// Children that belong into the session and whose keys are not loaded.
    pub sealed: Mutex<HashSet<String>>,
}

impl Session {
    pub fn new(
        tree: Arc<dyn Tree>,
        slots: Arc<Slots>,
        root: Arc<Volume>,
        options: &MountOptions,
    ) -> Self {
        Self {
            tree,
            slots,
            table: Arc::new(Table::new(MAY_HOLD)),
            root: RwLock::new(root),
            covers: RwLock::default(),
            children: Mutex::default(),
            paths: Mutex::default(),
            root_gate: RwLock::default(),
            over: AtomicBool::new(false),
            to_do: Mutex::default(),
            has_to_do: AtomicBool::new(false),
            was_used: AtomicBool::new(true),
            wakeup: OnceLock::new(),
            gathers_writes: options.writeback_cache,
            keeps_atime: options.atime,
            notifier: OnceLock::new(),
            sealed: Mutex::default(),
        }
    }

    /// The file system at the root of the session.
    pub fn root(&self) -> Arc<Volume> {
        self.root.read().clone()
    }

    pub fn set_root(&self, volume: Arc<Volume>) {
        *self.root.write() = volume;
    }

    /// The number of an inode in `stat`.
    pub fn shown_number(&self, ino: u64) -> u64 {
        if ino != number::ROOT {
            return ino;
        }
        let root = self.root();
        number::of(root.slot, root.root_object)
    }

    /// The file system or open snapshot with a slot.
    pub fn volume_at(&self, slot: u16) -> Option<Arc<Volume>> {
        let mut heads = vec![self.root()];
        heads.extend(self.children.lock().values().cloned());
        let snapshots = |head: &Arc<Volume>| {
            let all = head.snapshots.lock();
            all.values()
                .find_map(|s| s.upgrade().filter(|s| s.slot == slot))
        };
        let head = heads.iter().find(|head| head.slot == slot).cloned();
        head.or_else(|| heads.iter().find_map(snapshots))
    }

    /// Whether a snapshot is open and not destroyed.
    pub fn shows_snapshot(&self, snapshot: &Arc<Volume>) -> bool {
        let mut heads = vec![self.root()];
        heads.extend(self.children.lock().values().cloned());
        heads.iter().any(|head| {
            let all = head.snapshots.lock();
            all.values()
                .any(|weak| weak.as_ptr() == Arc::as_ptr(snapshot))
        })
    }

    /// Whether the kernel has ended the session.
    pub fn over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// The kernel has ended the session: it knows nothing any more.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
        // No forget follows the end of a session: the holds would stay for ever.
        self.table.clear();
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.wake();
        }
    }

    /// Notes a request or change: there may be housekeeping to do.
    pub fn note_use(&self) {
        // Each request comes here, so the flag is only written if it changes.
        if self.was_used.load(Relaxed) {
            return;
        }
        self.was_used.store(true, SeqCst);
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.wake();
        }
    }

    /// The map of covered names.
    pub fn covers(&self) -> Arc<Covers> {
        self.covers.read().clone()
    }

    /// The cover of a name, if it is covered.
    pub fn cover(&self, dir: u64, name: &[u8]) -> Option<Cover> {
        self.covers.read().get(dir, name).cloned()
    }

    pub fn set_covers(&self, covers: Covers) {
        let old = std::mem::replace(&mut *self.covers.write(), Arc::new(covers));
        drop(old);
    }

    /// The node of an inode.
    pub fn node(&self, ino: u64) -> Answer<Arc<Node>> {
        let node = self.table.get(ino)?;
        let node = if matches!(node.what, What::Gone(..)) {
            // A file system is being replaced: wait, because its files must not seem to be gone.
            drop(self.root_gate.read());
            self.table.get(ino)?
        } else {
            node
        };
        if let What::Listed(volume, listed) = &node.what {
            // The first use of an object that is not held in memory.
            let fs = volume.enter()?;
            let znode = fs.znode(listed.object).map_err(|error| {
                let errno = no(error);
                // An open handle to a file that was removed: clients expect ESTALE, not a missing
                // name.
                if errno == Errno::NOENT {
                    Errno::STALE
                } else {
                    errno
                }
            })?;
            return self.table.promote(ino, volume, &znode).ok_or(Errno::STALE);
        }
        Ok(node)
    }

    /// Makes requests about the root wait until the guard is dropped, while its objects are
    /// released.
    pub fn close_root(&self) -> RwLockWriteGuard<'_, ()> {
        self.root_gate.write()
    }

    /// Gives the kernel a reference on an object.
    pub fn give(&self, fs: &FileSystem, volume: &Arc<Volume>, znode: &Arc<Znode>) -> Attr {
        volume.keep(fs, &self.table);
        let ino = volume.ino(znode.object());
        let node = self
            .table
            .enter(ino, What::Object(volume.clone(), znode.clone()));
        attributes::of_object(fs, ino, &node, znode)
    }

    /// Gives the kernel a reference to an object that is not in memory.
    pub fn give_listed(
        &self,
        fs: &Arc<FileSystem>,
        volume: &Arc<Volume>,
        stat: &zuse_zpl::Attr,
    ) -> Attr {
        volume.keep(fs, &self.table);
        let ino = volume.ino(stat.object);
        let listed = Listed {
            object: stat.object,
            generation: stat.attributes.generation,
        };
        let node = self.table.enter(ino, What::Listed(volume.clone(), listed));
        attributes::of_stat(fs, ino, &node, stat)
    }

    /// Gives the kernel a reference to the root of a file system.
    pub fn give_root(&self, volume: &Arc<Volume>) -> Answer<Attr> {
        let fs = volume.enter()?;
        let root = fs.root().map_err(no)?;
        Ok(self.give(&fs, volume, &root))
    }

    /// Gives the kernel a reference to a virtual directory.
    pub fn give_virtual(&self, dir: &Arc<VirtualDir>) -> Answer<Attr> {
        self.table.enter(dir.ino, What::Virtual(dir.clone()));
        attributes::of_virtual(dir.ino, &dir.volume)
    }

    /// The kernel's attributes of an inode are outdated.
    pub fn attributes_changed(&self, ino: u64) {
        if let Some(notifier) = self.notifier.get() {
            notifier.attributes_changed(ino);
        }
    }

    /// A user has read an object.
    pub fn accessed(&self, fs: &FileSystem, znode: &Arc<Znode>) -> bool {
        self.keeps_atime && fs.accessed(znode)
    }

    /// Whether the kernel may keep names of a directory.
    pub fn may_keep_names(&self, dir: u64) -> bool {
        if !self.slots.any_aliases.load(Relaxed) {
            return true;
        }
        let node = self.table.get(dir).ok();
        !node.is_some_and(|n| n.volume().is_some_and(|v| v.has_aliases))
    }

    /// Notifies the kernel of files whose cached block counts have changed: they are known once a
    /// txg is written. Never call it for all of them from a thread that serves requests.
    pub fn notify_block_counts(&self, volume: &Arc<Volume>, only: Option<u64>) {
        let inodes: Vec<u64> = match only {
            Some(ino) => vec![ino],
            None => volume.growing.lock().keys().copied().collect(),
        };
        if inodes.is_empty() {
            return;
        }
        // The kernel is known outside of the gate: see the rules of the gate.
        for ino in self.with_other_counts(volume, inodes) {
            self.attributes_changed(ino);
        }
    }

    fn with_other_counts(&self, volume: &Arc<Volume>, inodes: Vec<u64>) -> Vec<u64> {
        let mut out = Vec::new();
        let Ok(fs) = volume.enter() else { return out };
        for ino in inodes {
            let node = self.table.get(ino).ok();
            let znode = match node.as_ref().map(|n| &n.what) {
                Some(What::Object(_, znode)) => Some(znode.clone()),
                // It was released since.
                Some(What::Listed(_, listed)) => fs.znode(listed.object).ok(),
                _ => None,
            };
            // Its count is not final before its txg is written: it stays in the list.
            if znode.as_ref().is_some_and(|z| z.dnode().is_dirty()) {
                continue;
            }
            let known = volume.growing.lock().remove(&ino);
            if let (Some(znode), Some(known)) = (znode, known)
                && fs.getattr(&znode).blocks != known
            {
                out.push(ino);
            }
        }
        out
    }

    /// Takes references back.
    pub fn forget(&self, ino: u64, n: u64) {
        // The kernel holds the root for the whole session.
        if ino == number::ROOT {
            return;
        }
        let Some(node) = self.table.forget(ino, n) else {
            return;
        };
        let volume = match &node.what {
            What::Object(volume, _) => Some(volume.clone()),
            _ => None,
        };
        drop(node);
        // It may have been the last hold on an unlinked object, which is freed later.
        if let Some(volume) = volume
            && let Ok(fs) = volume.enter()
        {
            fs.try_reap();
        }
    }

    pub fn note_work(&self, volume: &Arc<Volume>) {
        let mut volumes = self.to_do.lock();
        if !volumes.iter().any(|v| Arc::ptr_eq(v, volume)) {
            volumes.push(volume.clone());
        }
        self.has_to_do.store(true, Relaxed);
    }

    /// Prepares batches for listings, until there is a request.
    pub fn idle(&self, is_over: &dyn Fn() -> bool) {
        if !self.has_to_do.load(Relaxed) || is_over() {
            return;
        }
        let volumes = {
            let mut volumes = self.to_do.lock();
            self.has_to_do.store(false, Relaxed);
            std::mem::take(&mut *volumes)
        };
        for volume in volumes {
            let Ok(fs) = volume.enter() else { continue };
            while fs.prefetch_listing() {
                if is_over() {
                    // A request has come: the rest is done after it.
                    self.note_work(&volume);
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

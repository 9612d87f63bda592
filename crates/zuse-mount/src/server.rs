//! A mounted tree of file systems, and how it is told what happens to the pool.
//!
//! ```text
//!   mount ──> refresh, change, touched, snapshot_… ──> unmount ──> finish
//! ```
//! Whoever changes the pool while it is mounted calls in here, from a thread that serves no
//! request:
//! - [`MountServer::change`] around what gives a dataset another content (rollback, receive):
//!   requests wait meanwhile.
//! - [`MountServer::refresh`] after datasets came, went, were renamed or moved, or properties of
//!   mounting changed.
//! - [`MountServer::snapshot_made`], [`MountServer::snapshot_going`].
//! - [`MountServer::touched`] after a library user changed files of a mounted file system.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use zuse_base::sync::{Mutex, RwLockWriteGuard};

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_fuse::{Handed, MountError, MountOptions, Mounted, Notifier, QueueFull, go_on, mount};
use zuse_zpl::FileSystem;

use crate::covers::Covers;
use crate::number;
use crate::pool::is_within;
use crate::session::Session;
use crate::staff::Staff;
use crate::table::What;
use crate::tree::Tree;
use crate::volume::{Slots, Volume};

mod lay;

pub(crate) use lay::settle;
use lay::{effective, lay, root_names, shown};

/// Why a tree could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The pool says no.
    #[error(transparent)]
    Pool(#[from] Error),
    /// The host says no.
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Options of the mount itself. The properties of the dataset (`readonly`, `setuid`, `devices`,
    /// `exec`, `atime`, `acltype`) take permissions away but give none.
    pub mount: MountOptions,
    /// Properties that options of the mount were given for, with what these say: shown as temporary
    /// values.
    pub said: Vec<(&'static str, &'static str)>,
    /// The file systems below it have mounts of their own, and do not appear inside. Only the
    /// places of those whose keys are not loaded are closed.
    pub alone: bool,
    /// It is where its `mountpoint` says, and moves with it.
    pub placed: bool,
    /// The directory is made of the dataset's name, and goes when it is mounted there no more.
    pub clears: bool,
}

impl ServerOptions {
    /// What options can say about properties.
    pub const SAID: [(&'static str, &'static str); 5] = [
        ("readonly", "on"),
        ("atime", "off"),
        ("devices", "off"),
        ("exec", "off"),
        ("setuid", "off"),
    ];
}

/// A change that a library user made to a mounted file system.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A name was made, removed or now means something else.
    Name {
        /// The directory.
        dir: ObjectId,
        /// The name in it.
        name: &'a [u8],
    },
    /// The content of a file was changed.
    Content {
        /// The file.
        object: ObjectId,
        /// A directory that has it.
        dir: ObjectId,
        /// Its name there.
        name: &'a [u8],
    },
    /// Attributes (but the size) were changed.
    Attributes {
        /// The object.
        object: ObjectId,
    },
}

/// A mounted tree of file systems. Dropping it unmounts (lazily when it is busy) and does not wait.
pub struct MountServer {
    session: Arc<Session>,
    mounted: Mounted,
    /// One change of the map at a time.
    changes: Mutex<()>,
    /// Asked for with the mount.
    asked: MountOptions,
    said: Vec<(&'static str, &'static str)>,
    alone: bool,
    placed: bool,
    clears: bool,
    /// What the kernel was told last.
    told: Mutex<MountOptions>,
}

fn closed(errno: zuse_base::Errno) -> Error {
    Error::refused(errno, "a file system that is mounted")
}

impl MountServer {
    /// Mounts a dataset, and the file systems below it, on a directory.
    ///
    /// # Errors
    /// The dataset cannot be opened; the directory, the kernel or the mount helper says no. A child
    /// that cannot be opened is left out.
    pub fn mount(
        tree: Arc<dyn Tree>,
        dataset: &str,
        mountpoint: &Path,
        options: &ServerOptions,
        staff: &Staff,
    ) -> std::result::Result<Self, ServeError> {
        let slots = Arc::new(Slots::default());
        let fs = tree.open(dataset)?;
        let is_snapshot = dataset.contains('@');
        let asked = options.mount.clone();
        let said = options.said.clone();
        let root =
            Volume::new(&slots, fs, dataset.to_owned(), true, is_snapshot).map_err(closed)?;
        let session = Arc::new(Session::new(tree, slots, root.clone(), &asked));
        let root_object = root.enter().map_err(closed)?.root()?;
        session
            .table
            .enter(number::ROOT, What::Object(root, root_object));
        if !is_snapshot {
            drop(lay(&session, |_| true)?);
        }
        let shown = shown(&session);
        if asked.writeback_cache && shown.iter().any(|fs| fs.is_sync_always()) {
            return Err(Error::refused(
                Errno::INVAL,
                "with sync=always there is no '-o writeback': \
                 the kernel would keep writes that are to be durable at once",
            )
            .into());
        }
        let told = effective(&asked, &shown);
        let mounted = mount(session.clone(), mountpoint, &told, &staff.crew)?;
        let _ = session.notifier.set(mounted.notifier());
        staff.look_after(&session).map_err(MountError::Session)?;
        Ok(Self {
            session,
            mounted,
            changes: Mutex::new(()),
            asked,
            said,
            alone: options.alone,
            placed: options.placed,
            clears: options.clears,
            told: Mutex::new(told),
        })
    }

    /// Goes on with a mount that another process has handed over. It stays that one's, and rests,
    /// until [`Self::claim`].
    ///
    /// # Errors
    /// The pool cannot be read, or the connection not be served.
    pub(crate) fn go_on(
        session: Arc<Session>,
        fd: OwnedFd,
        handed: Handed,
        options: ServerOptions,
        told: MountOptions,
        staff: &Staff,
    ) -> std::result::Result<Self, ServeError> {
        if !session.root().is_snapshot && !session.root().name().contains('@') {
            let (missing, _) = lay(&session, |_| true)?;
            for volume in &missing {
                drop(volume.close().take());
                session.table.purge(volume);
            }
        }
        let mounted = go_on(session.clone(), fd, handed, &told, &staff.crew)?;
        let _ = session.notifier.set(mounted.notifier());
        staff.look_after(&session).map_err(MountError::Session)?;
        Ok(Self {
            session,
            mounted,
            changes: Mutex::new(()),
            asked: options.mount,
            said: options.said,
            alone: options.alone,
            placed: options.placed,
            clears: options.clears,
            told: Mutex::new(told),
        })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// What the kernel was told last.
    pub(crate) fn told(&self) -> MountOptions {
        self.told.lock().clone()
    }

    /// The mount is this process's from now on.
    pub(crate) fn claim(&self) {
        self.mounted.claim();
        for fs in shown(&self.session) {
            fs.free_nameless_again();
        }
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        self.mounted.mount_point()
    }

    /// `major:minor` that `stat` shows for everything below the mount.
    pub fn device(&self) -> Option<&str> {
        self.mounted.device()
    }

    /// Name of the dataset at the root.
    pub fn dataset(&self) -> String {
        self.session.root().name()
    }

    /// Whether the file systems below it have mounts of their own.
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether it was mounted where its `mountpoint` says, because that says so.
    pub fn is_placed(&self) -> bool {
        self.placed
    }

    /// Whether its directory goes when it is mounted there no more.
    pub fn clears_directory(&self) -> bool {
        self.clears
    }

    /// What the mount's options say about a property.
    pub fn said(&self, property: &str) -> Option<&'static str> {
        let said = self.said.iter().find(|(name, _)| *name == property);
        said.map(|(_, value)| *value)
    }

    /// Where a dataset is mounted, if it is.
    pub fn path_of(&self, dataset: &str) -> Option<PathBuf> {
        if self.dataset() == dataset {
            return Some(self.mount_point().to_owned());
        }
        let path = self.session.paths.lock().get(dataset).cloned()?;
        Some(path.iter().fold(self.mount_point().to_owned(), |at, name| {
            at.join(OsStr::from_bytes(name))
        }))
    }

    /// Whether a dataset is the root or mounted below it.
    pub fn serves(&self, dataset: &str) -> bool {
        let dataset = dataset.split_once('@').map_or(dataset, |(head, _)| head);
        self.dataset() == dataset || self.session.children.lock().contains_key(dataset)
    }

    /// Whether it shows this dataset or one below it, and the kernel gathers their writes.
    pub fn gathers_writes_of(&self, dataset: &str) -> bool {
        let children = self.session.children.lock();
        let mut names = children.keys();
        self.session.gathers_writes
            && (is_within(&self.dataset(), dataset) || names.any(|name| is_within(name, dataset)))
    }

    /// A dataset (and what is below it) has another name. Call [`Self::refresh`] afterwards.
    pub fn renamed(&self, from: &str, to: &str) {
        let _one = self.changes.lock();
        let root = self.session.root();
        let name = root.name();
        if let Some(rest) = name.strip_prefix(from)
            && (rest.is_empty() || rest.starts_with(['/', '@']))
        {
            root.set_name(&format!("{to}{rest}"));
        }
    }

    /// Lets go of all file systems while the session may go on: everything fails from now on.
    pub fn let_go(&self) {
        let _one = self.changes.lock();
        let children: Vec<_> = self
            .session
            .children
            .lock()
            .drain()
            .map(|(_, v)| v)
            .collect();
        self.session.set_covers(self.session.covers().cleared());
        for volume in children.iter().chain([&self.session.root()]) {
            self.retire(volume);
        }
    }

    /// The datasets that are mounted below the root.
    pub fn children(&self) -> Vec<String> {
        let mut names: Vec<String> = self.session.children.lock().keys().cloned().collect();
        names.sort();
        names
    }

    /// Whether a dataset belongs below the root and its place is closed, because its key is not
    /// loaded.
    pub fn seals(&self, dataset: &str) -> bool {
        self.session.sealed.lock().contains(dataset)
    }

    /// Those whose places are closed, because their keys are not loaded.
    pub(crate) fn sealed(&self) -> Vec<String> {
        self.session.sealed.lock().iter().cloned().collect()
    }

    /// Whether it closes the place of a dataset or of one below it.
    pub(crate) fn seals_below(&self, dataset: &str) -> bool {
        let sealed = self.session.sealed.lock();
        sealed.iter().any(|name| is_within(name, dataset))
    }

    /// Has the kernel write what it has of a dataset, and waits for that.
    pub fn write_back(&self, dataset: &str) {
        if let Some(volume) = self.head(dataset) {
            for ino in self.session.table.of_volume(&volume) {
                self.tell_inode(ino);
            }
            self.settle_cache();
        }
    }

    /// Tells the kernel of files that have other block counts than it was told, since a txg was
    /// written.
    pub fn tell_block_counts(&self) {
        let children: Vec<_> = self.session.children.lock().values().cloned().collect();
        for volume in children.iter().chain([&self.session.root()]) {
            self.session.tell_block_counts(volume, None);
        }
    }

    /// Whether the session has ended, for instance because somebody unmounted it.
    pub fn is_over(&self) -> bool {
        self.mounted.is_over()
    }

    /// How many inodes the kernel knows.
    pub fn known_inodes(&self) -> usize {
        self.session.table.len()
    }

    /// Looks at the tree again: mounts what is new, takes away what has gone, replaces file systems
    /// that are other ones now.
    ///
    /// # Errors
    /// The pool cannot be read; then nothing has changed.
    pub fn refresh(&self) -> Result<()> {
        let _one = self.changes.lock();
        self.refresh_locked(Vec::new(), None)
    }

    /// Runs something that gives datasets another content (or ends them) while nobody is inside
    /// them or their snapshots and their file systems are let go. Then looks at the tree again.
    /// Requests wait meanwhile. What the kernel knew of these datasets is forgotten, whether `work`
    /// succeeds or not.
    ///
    /// # Errors
    /// Those of `work`; the pool cannot be read.
    pub fn change<R>(&self, datasets: &[&str], work: impl FnOnce() -> Result<R>) -> Result<R> {
        let _one = self.changes.lock();
        let session = &self.session;
        let concerned = self.volumes_of(datasets);
        let root = session.root();
        let is_root = concerned.iter().any(|v| Arc::ptr_eq(v, &root));
        let names = if is_root {
            root_names(&root)
        } else {
            Vec::new()
        };
        let root_gate = Some(session.close_root());
        let result = {
            let mut gates: Vec<_> = concerned.iter().map(|v| v.close()).collect();
            for (volume, gate) in concerned.iter().zip(&mut gates) {
                session.table.purge(volume);
                if let Some(fs) = gate.take() {
                    settle(&fs);
                }
            }
            work()
        };
        let again = self.refresh_locked(names, root_gate);
        let result = result?;
        again?;
        Ok(result)
    }

    /// Frees removed files that wait for it.
    pub fn free_removed(&self, dataset: &str, recursive: bool) {
        let mut volumes: Vec<_> = self.session.children.lock().values().cloned().collect();
        volumes.push(self.session.root());
        for volume in volumes {
            let name = volume.name();
            let concerned = name == dataset || (recursive && is_within(&name, dataset));
            if concerned && let Ok(fs) = volume.enter() {
                // What cannot be freed now waits in the unlinked set.
                let _ = fs.reap();
            }
        }
    }

    /// A snapshot was made (or renamed to this name).
    pub fn snapshot_made(&self, dataset: &str, name: &[u8]) {
        let _one = self.changes.lock();
        if let Some(volume) = self.head(dataset) {
            self.tell_name(number::snapshots(volume.slot), name);
        }
    }

    /// A snapshot is about to be destroyed or renamed: nobody is inside any more when this returns.
    pub fn snapshot_going(&self, dataset: &str, name: &[u8]) {
        let _one = self.changes.lock();
        if let Some(volume) = self.head(dataset) {
            let there = volume
                .snapshots
                .lock()
                .remove(name)
                .and_then(|w| w.upgrade());
            if let Some(snapshot) = there {
                self.retire(&snapshot);
            }
            self.tell_name(number::snapshots(volume.slot), name);
        }
    }

    /// A library user changed something in a mounted file system. What the kernel has cached of it
    /// is dropped; who has the file open whose content was changed must open it again.
    pub fn touched(&self, dataset: &str, change: Change<'_>) {
        self.session.stir();
        if let Some(volume) = self.head(dataset) {
            match change {
                Change::Name { dir, name } => self.tell_name(volume.ino(dir), name),
                Change::Attributes { object } => self.tell_inode(volume.ino(object)),
                Change::Content { object, dir, name } => {
                    if let Ok(node) = self.session.node(volume.ino(object)) {
                        node.replaced
                            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    self.tell_inode(volume.ino(object));
                    self.tell_name(volume.ino(dir), name);
                }
            }
        }
    }

    /// Waits until the kernel has heard of everything so far.
    pub fn settle_cache(&self) {
        self.mounted.notifier().drain();
    }

    /// The same for a limited time: false says that the kernel has not heard of everything.
    pub fn settle_cache_for(&self, limit: std::time::Duration) -> bool {
        self.mounted.notifier().drain_for(limit)
    }

    /// Unmounts; dirty pages are written first. Call [`Self::finish`] afterwards.
    ///
    /// # Errors
    /// [`MountError::Busy`] when somebody uses the mount: then nothing has happened.
    pub fn unmount(&self) -> std::result::Result<(), MountError> {
        self.mounted.unmount()
    }

    /// Unmounts, or takes the mount out of the tree when it is busy; `true` says that it was clean.
    ///
    /// # Errors
    /// [`MountError`] of the kernel.
    pub fn unmount_or_detach(&self) -> std::result::Result<bool, MountError> {
        self.mounted.unmount_or_detach()
    }

    /// Whether the mount is gone while the session goes on, because another mount namespace has a
    /// copy.
    pub fn is_gone(&self) -> bool {
        self.mounted.is_gone()
    }

    /// Whether the mount is not at its place any more.
    pub fn is_unmounted(&self) -> bool {
        self.mounted.is_unmounted()
    }

    /// How it was asked to be mounted.
    pub(crate) fn options(&self) -> ServerOptions {
        ServerOptions {
            mount: self.asked.clone(),
            said: self.said.clone(),
            alone: self.alone,
            placed: self.placed,
            clears: self.clears,
        }
    }

    /// Ends a session that outlives its mount. Gives a sentence about who was cut off.
    ///
    /// # Errors
    /// [`MountError`]: it cannot be ended.
    pub fn cut_copies(&self) -> std::result::Result<Option<String>, MountError> {
        self.mounted.cut_copies()
    }

    /// Waits until the session has ended, then frees what was open without a name and writes what
    /// waits. The file systems are let go; the pool is still to be synced.
    ///
    /// # Errors
    /// The session broke; what waited could not be written.
    pub fn finish(&self) -> std::result::Result<(), ServeError> {
        let ended = self.mounted.join();
        let _one = self.changes.lock();
        self.session.table.clear();
        let mut result = Ok(());
        let mut all: Vec<Arc<Volume>> = self
            .session
            .children
            .lock()
            .drain()
            .map(|(_, v)| v)
            .collect();
        all.push(self.session.root());
        self.session.set_covers(self.session.covers().cleared());
        for volume in all {
            let fs = volume.close().take();
            if let Some(fs) = fs
                && !fs.is_read_only()
            {
                let done = fs.write_atimes().and_then(|()| fs.reap());
                result = result.and(done);
            }
        }
        ended?;
        Ok(result?)
    }

    /// The head of that name, if it is in the session.
    fn head(&self, dataset: &str) -> Option<Arc<Volume>> {
        let root = self.session.root();
        if root.name() == dataset {
            Some(root)
        } else {
            self.session.children.lock().get(dataset).cloned()
        }
    }

    /// The file systems behind names: heads with their open snapshots, or single snapshots.
    fn volumes_of(&self, names: &[&str]) -> Vec<Arc<Volume>> {
        let mut all: Vec<Arc<Volume>> = Vec::new();
        for name in names {
            if let Some(head) = self.head(name) {
                all.extend(head.snapshots.lock().values().filter_map(Weak::upgrade));
                all.push(head);
            } else if let Some((head, snapshot)) = name.split_once('@') {
                let there = self.head(head);
                all.extend(there.and_then(|h| {
                    h.snapshots
                        .lock()
                        .get(snapshot.as_bytes())
                        .and_then(Weak::upgrade)
                }));
            }
        }
        // Each gate is closed once.
        let mut seen = HashSet::new();
        all.retain(|v| seen.insert(Arc::as_ptr(v)));
        all
    }

    fn refresh_locked(
        &self,
        mut names: Vec<Vec<u8>>,
        root_gate: Option<RwLockWriteGuard<'_, ()>>,
    ) -> Result<()> {
        let session = &self.session;
        let old_root = session.root();
        let old_covers = session.covers();
        let fs = session.tree.open(&old_root.name())?;
        // File systems that got another content, each with its new one, and the inodes that may be
        // in both.
        let (mut heirs, mut known) = (Vec::new(), Vec::new());
        let replaced = !old_root
            .file_system()
            .is_some_and(|now| Arc::ptr_eq(&now, &fs));
        if replaced {
            if names.is_empty() {
                names = root_names(&old_root);
            }
            let root = Volume::in_place_of(&old_root, fs.clone());
            session.set_root(root.clone());
            heirs.push((old_root.clone(), root.clone()));
            known.extend(session.table.inherit(&old_root, &root));
            root.keep(&fs, &session.table);
            let object = fs.root()?;
            session
                .table
                .enter(number::ROOT, What::Object(root.clone(), object));
            names.extend(root_names(&root));
        }
        // Mount options that a new file system forbids are removed before it is shown.
        let (retired, children) = lay(session, |all| self.follow_honoured(all, true))?;
        for (old, new) in children {
            known.extend(session.table.inherit(&old, &new));
            heirs.push((old, new));
        }
        // Opened before the kernel is told anything: the kernel may wait for a request that waits
        // here.
        drop(root_gate);
        self.follow_honoured(&shown(session), false);
        self.follow_read_only(&fs);
        self.follow_properties();
        if replaced {
            self.retire(&old_root);
            names.push(zuse_zpl::DOT_ZFS_NAME.to_vec());
        }
        for volume in &retired {
            self.retire(volume);
        }
        for (old, new) in &heirs {
            known.extend(session.table.inherit(old, new));
        }
        for ino in known {
            self.tell_inode(ino);
        }
        self.tell_names(&old_covers, if replaced { names } else { Vec::new() });
        Ok(())
    }

    /// Tells the kernel which names lead elsewhere now: those at which something is mounted or was,
    /// and those of a root that was replaced.
    fn tell_names(&self, old_covers: &Covers, mut names: Vec<Vec<u8>>) {
        let session = &self.session;
        let mut dirs = BTreeSet::new();
        for (dir, name) in old_covers.differences(&session.covers()) {
            self.tell(|n| n.inval_entry(dir, &name));
            dirs.insert(dir);
        }
        if !names.is_empty() {
            names.sort_unstable();
            names.dedup();
            for name in &names {
                self.tell(|n| n.inval_entry(number::ROOT, name));
            }
            dirs.insert(number::ROOT);
        }
        // `snapdir` may have changed anywhere.
        let mut heads: Vec<u64> = session.children.lock().values().map(|v| v.root).collect();
        heads.push(number::ROOT);
        for root in heads {
            self.tell(|n| n.inval_entry(root, zuse_zpl::DOT_ZFS_NAME));
        }
        for dir in dirs {
            self.tell_inode(dir);
        }
    }

    /// Lets the kernel know whether the root may be written now. Where it cannot be told (no
    /// permission to) the file system itself refuses.
    fn follow_read_only(&self, fs: &FileSystem) {
        let mut told = self.told.lock();
        let new = MountOptions {
            read_only: self.asked.read_only || fs.is_read_only(),
            ..told.clone()
        };
        if told.read_only != new.read_only && self.mounted.set_read_only(&new).is_ok() {
            *told = new;
        }
    }

    /// Lets the kernel honour set-id bits, device nodes and programs as the properties of all that
    /// is shown say. With `before` only what takes away. Whether the kernel does not honour more
    /// than it may.
    fn follow_honoured(&self, all: &[Arc<FileSystem>], before: bool) -> bool {
        let new = effective(&self.asked, all);
        let mut told = self.told.lock();
        let less = |was: bool, is: bool| is && (was || !before);
        let next = MountOptions {
            suid: less(told.suid, new.suid),
            dev: less(told.dev, new.dev),
            exec: less(told.exec, new.exec),
            ..told.clone()
        };
        let honoured = |o: &MountOptions| (o.suid, o.dev, o.exec);
        if honoured(&next) != honoured(&told) {
            if self.mounted.set_honoured(&next).is_err() {
                return told.suid <= new.suid && told.dev <= new.dev;
            }
            *told = next;
        }
        true
    }

    /// What the kernel has been told under other properties it is told again.
    fn follow_properties(&self) {
        let session = &self.session;
        let mut volumes: Vec<_> = session.children.lock().values().cloned().collect();
        volumes.push(session.root());
        for volume in volumes {
            let Some(fs) = volume.file_system() else {
                continue;
            };
            let now = (fs.props().posix_acl, fs.shows_dot_zfs());
            let was = std::mem::replace(&mut *volume.told_under.lock(), now);
            if was.0 != now.0 {
                // The kernel caches ACLs, and their absence.
                for ino in session.table.of_volume(&volume) {
                    session.attributes_changed(ino);
                }
            } else if was.1 != now.1 {
                session.attributes_changed(volume.root);
            }
        }
    }

    /// Ends a file system and its snapshots: waits for who is inside, lets go of every object.
    ///
    /// The kernel may know the names of these snapshots. It keeps them where `.zfs` merely expires,
    /// and who opens a directory by such a name, and looks at it then, finds it stale.
    fn retire(&self, volume: &Arc<Volume>) {
        let snapshots: Vec<_> = volume
            .snapshots
            .lock()
            .drain()
            .filter_map(|(name, w)| Some((name, w.upgrade()?)))
            .collect();
        for one in snapshots.iter().map(|(_, s)| s).chain([volume]) {
            let fs = one.close().take();
            self.session.table.purge(one);
            if let Some(fs) = fs {
                settle(&fs);
            }
        }
        for (name, _) in &snapshots {
            self.tell(|n| n.inval_entry(number::snapshots(volume.slot), name));
        }
    }

    fn tell_name(&self, dir: u64, name: &[u8]) {
        self.tell(|n| n.inval_entry(dir, name));
        self.tell_inode(dir);
    }

    fn tell_inode(&self, ino: u64) {
        self.tell(|n| n.inval_inode(ino, 0, 0));
    }

    fn tell(&self, what: impl Fn(&Notifier) -> std::result::Result<(), QueueFull>) {
        let notifier = self.mounted.notifier();
        while what(&notifier).is_err() {
            notifier.drain();
        }
    }
}

impl std::fmt::Debug for MountServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "MountServer({} on {})",
            self.dataset(),
            self.mount_point().display()
        )
    }
}

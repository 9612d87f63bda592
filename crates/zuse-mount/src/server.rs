//! A mounted tree of file systems, and its methods for changes in the pool.
//!
//! ```text
//!   mount ──> refresh, change, touched, snapshot_… ──> unmount ──> finish
//! ```
//! Code that changes the pool while it is mounted calls these methods, from a thread that serves no
//! request:
//! - [`MountServer::change`] around a change of a dataset's content (rollback, receive): requests
//!   wait meanwhile.
//! - [`MountServer::refresh`] after datasets were created, destroyed, renamed or moved, or mount
//!   properties changed.
//! - [`MountServer::snapshot_made`], [`MountServer::snapshot_going`].
//! - [`MountServer::touched`] after a library user changed files of a mounted file system.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use zuse::Recursion;
use zuse_base::sync::{Mutex, RwLockWriteGuard};

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_fuse::{Handed, MountError, MountOptions, Mounted, Notifier, QueueFull, go_on, mount};
use zuse_zpl::FileSystem;

use crate::covers::Covers;
use crate::mount_threads::MountThreads;
use crate::number;
use crate::pool::is_within;
use crate::session::Session;
use crate::table::What;
use crate::tree::Tree;
use crate::volume::{Slots, Volume};

mod lay;

pub(crate) use lay::reap_and_write_atimes;
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
    /// `exec`, `atime`, `acltype`) can only restrict them.
    pub mount: MountOptions,
    /// Properties that mount options override, with these values: shown as temporary ones.
    pub overridden: Vec<(&'static str, &'static str)>,
    /// The file systems below it have their own mounts, and do not appear inside. Only the places
    /// of those without a loaded key are closed.
    pub alone: bool,
    /// It is mounted at its `mountpoint`, and follows its changes.
    pub placed: bool,
    /// The directory was created from the dataset's name, and is removed when it is not mounted
    /// there any more.
    pub clears: bool,
}

impl ServerOptions {
    /// Properties that mount options can override.
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
    /// A name was created, removed or now leads elsewhere.
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

/// A mounted tree of file systems. Dropping it unmounts (lazily if it is busy) and does not wait.
pub struct MountServer {
    session: Arc<Session>,
    mounted: Mounted,
    /// One change of the map at a time.
    changes: Mutex<()>,
    /// Asked for with the mount.
    asked: MountOptions,
    overridden: Vec<(&'static str, &'static str)>,
    alone: bool,
    placed: bool,
    clears: bool,
    /// The last options that the kernel was given.
    kernel_options: Mutex<MountOptions>,
}

fn closed(errno: zuse_base::Errno) -> Error {
    Error::refused(errno, "a file system that is mounted")
}

impl MountServer {
    /// Mounts a dataset, and the file systems below it, on a directory.
    ///
    /// # Errors
    /// The dataset cannot be opened; or the directory, the kernel or the mount helper refuses. A
    /// child that cannot be opened is left out.
    pub fn mount(
        tree: Arc<dyn Tree>,
        dataset: &str,
        mountpoint: &Path,
        options: &ServerOptions,
        threads: &MountThreads,
    ) -> std::result::Result<Self, ServeError> {
        let slots = Arc::new(Slots::default());
        let fs = tree.open(dataset)?;
        let is_snapshot = dataset.contains('@');
        let asked = options.mount.clone();
        let overridden = options.overridden.clone();
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
        let given = effective(&asked, &shown);
        let mounted = mount(session.clone(), mountpoint, &given, &threads.workers)?;
        let _ = session.notifier.set(mounted.notifier());
        threads.add_session(&session).map_err(MountError::Session)?;
        Ok(Self {
            session,
            mounted,
            changes: Mutex::new(()),
            asked,
            overridden,
            alone: options.alone,
            placed: options.placed,
            clears: options.clears,
            kernel_options: Mutex::new(given),
        })
    }

    /// Takes over a mount from another process. It belongs to that one and is not served, until
    /// [`Self::claim`].
    ///
    /// # Errors
    /// The pool cannot be read, or the connection cannot be served.
    pub(crate) fn go_on(
        session: Arc<Session>,
        fd: OwnedFd,
        handed: Handed,
        options: ServerOptions,
        given: MountOptions,
        threads: &MountThreads,
    ) -> std::result::Result<Self, ServeError> {
        if !session.root().is_snapshot && !session.root().name().contains('@') {
            let (missing, _) = lay(&session, |_| true)?;
            for volume in &missing {
                drop(volume.close().take());
                session.table.purge(volume);
            }
        }
        let mounted = go_on(session.clone(), fd, handed, &given, &threads.workers)?;
        let _ = session.notifier.set(mounted.notifier());
        threads.add_session(&session).map_err(MountError::Session)?;
        Ok(Self {
            session,
            mounted,
            changes: Mutex::new(()),
            asked: options.mount,
            overridden: options.overridden,
            alone: options.alone,
            placed: options.placed,
            clears: options.clears,
            kernel_options: Mutex::new(given),
        })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// The last options that the kernel was given.
    pub(crate) fn kernel_options(&self) -> MountOptions {
        self.kernel_options.lock().clone()
    }

    /// The mount belongs to this process from now on.
    pub(crate) fn claim(&self) {
        self.mounted.claim();
        for fs in shown(&self.session) {
            fs.free_unlinked_again();
        }
    }

    /// Its mount point.
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

    /// Whether the file systems below it have their own mounts.
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether it was mounted at its `mountpoint`, because of that property.
    pub fn is_placed(&self) -> bool {
        self.placed
    }

    /// Whether its directory is removed when it is not mounted there any more.
    pub fn clears_directory(&self) -> bool {
        self.clears
    }

    /// The value of a property that the mount's options override.
    pub fn overridden(&self, property: &str) -> Option<&'static str> {
        let overridden = self.overridden.iter().find(|(name, _)| *name == property);
        overridden.map(|(_, value)| *value)
    }

    /// The mount point of a dataset, if it is mounted.
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

    /// Whether it shows this dataset or one below it, with the kernel's write-back cache.
    pub fn gathers_writes_of(&self, dataset: &str) -> bool {
        let children = self.session.children.lock();
        let mut names = children.keys();
        self.session.gathers_writes
            && (is_within(&self.dataset(), dataset) || names.any(|name| is_within(name, dataset)))
    }

    /// A dataset (with those below it) was renamed. Call [`Self::refresh`] afterwards.
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

    /// Releases all file systems while the session may continue: all requests fail from now on.
    pub fn release_file_systems(&self) {
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

    /// Whether a dataset should be below the root and its place is closed, because its key is not
    /// loaded.
    pub fn seals(&self, dataset: &str) -> bool {
        self.session.sealed.lock().contains(dataset)
    }

    /// Datasets whose places are closed, because their keys are not loaded.
    pub(crate) fn sealed(&self) -> Vec<String> {
        self.session.sealed.lock().iter().cloned().collect()
    }

    /// Whether it closes the place of a dataset or of one below it.
    pub(crate) fn seals_below(&self, dataset: &str) -> bool {
        let sealed = self.session.sealed.lock();
        sealed.iter().any(|name| is_within(name, dataset))
    }

    /// Makes the kernel write its dirty pages of a dataset, and waits for that.
    pub fn write_back(&self, dataset: &str) {
        if let Some(volume) = self.head(dataset) {
            for ino in self.session.table.of_volume(&volume) {
                self.notify_inode(ino);
            }
            self.wait_for_notices();
        }
    }

    /// Notifies the kernel of files whose block counts have changed since a txg was written.
    pub fn notify_block_counts(&self) {
        let children: Vec<_> = self.session.children.lock().values().cloned().collect();
        for volume in children.iter().chain([&self.session.root()]) {
            self.session.notify_block_counts(volume, None);
        }
    }

    /// Whether the session has ended, for instance because it was unmounted.
    pub fn is_over(&self) -> bool {
        self.mounted.is_over()
    }

    /// How many inodes the kernel knows.
    pub fn known_inodes(&self) -> usize {
        self.session.table.len()
    }

    /// Reads the tree again: mounts new file systems, removes destroyed ones, replaces changed
    /// ones.
    ///
    /// # Errors
    /// The pool cannot be read; nothing has changed then.
    pub fn refresh(&self) -> Result<()> {
        let _one = self.changes.lock();
        self.refresh_locked(Vec::new(), None)
    }

    /// Runs `work`, which changes the contents of datasets or destroys them. Meanwhile no request
    /// is inside them or their snapshots, and their file systems are released. Then it reads the
    /// tree again. Requests wait meanwhile. The kernel's caches of these datasets are dropped,
    /// whether `work` succeeds or not.
    ///
    /// # Errors
    /// The errors of `work`; or the pool cannot be read.
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
                    reap_and_write_atimes(&fs);
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
    pub fn free_removed(&self, dataset: &str, recursion: Recursion) {
        let mut volumes: Vec<_> = self.session.children.lock().values().cloned().collect();
        volumes.push(self.session.root());
        for volume in volumes {
            let name = volume.name();
            let concerned = name == dataset || (recursion.is_below() && is_within(&name, dataset));
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
            self.notify_name(number::snapshots(volume.slot), name);
        }
    }

    /// A snapshot is about to be destroyed or renamed: no request is inside any more when this
    /// returns.
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
            self.notify_name(number::snapshots(volume.slot), name);
        }
    }

    /// A user of the library changed something in a mounted file system. The kernel's caches of it
    /// are dropped. A file whose content was changed must be opened again.
    pub fn touched(&self, dataset: &str, change: Change<'_>) {
        self.session.note_use();
        if let Some(volume) = self.head(dataset) {
            match change {
                Change::Name { dir, name } => self.notify_name(volume.ino(dir), name),
                Change::Attributes { object } => self.notify_inode(volume.ino(object)),
                Change::Content { object, dir, name } => {
                    if let Ok(node) = self.session.node(volume.ino(object)) {
                        node.replaced
                            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    self.notify_inode(volume.ino(object));
                    self.notify_name(volume.ino(dir), name);
                }
            }
        }
    }

    /// Waits until the kernel has all notices sent so far.
    pub fn wait_for_notices(&self) {
        self.mounted.notifier().drain();
    }

    /// The same for a limited time; false if some notices are still pending.
    pub fn wait_for_notices_for(&self, limit: std::time::Duration) -> bool {
        self.mounted.notifier().drain_for(limit)
    }

    /// Unmounts; dirty pages are written first. Call [`Self::finish`] afterwards.
    ///
    /// # Errors
    /// [`MountError::Busy`] if the mount is in use: then nothing has happened.
    pub fn unmount(&self) -> std::result::Result<(), MountError> {
        self.mounted.unmount()
    }

    /// Unmounts, or detaches the mount if it is busy; `true` if it was unmounted.
    ///
    /// # Errors
    /// [`MountError`] of the kernel.
    pub fn unmount_or_detach(&self) -> std::result::Result<bool, MountError> {
        self.mounted.unmount_or_detach()
    }

    /// Whether the mount was removed while the session continues, because another mount namespace
    /// has a copy.
    pub fn is_gone(&self) -> bool {
        self.mounted.is_gone()
    }

    /// Whether the mount is not at its place any more.
    pub fn is_unmounted(&self) -> bool {
        self.mounted.is_unmounted()
    }

    /// The options that it was mounted with.
    pub(crate) fn options(&self) -> ServerOptions {
        ServerOptions {
            mount: self.asked.clone(),
            overridden: self.overridden.clone(),
            alone: self.alone,
            placed: self.placed,
            clears: self.clears,
        }
    }

    /// Ends a session that outlives its mount. Returns a message about who was cut off.
    ///
    /// # Errors
    /// [`MountError`]: it cannot be ended.
    pub fn cut_copies(&self) -> std::result::Result<Option<String>, MountError> {
        self.mounted.cut_copies()
    }

    /// Waits until the session has ended, then frees open unlinked objects and writes pending
    /// changes. The file systems are released; the pool still has to be synced.
    ///
    /// # Errors
    /// The session failed; or pending changes could not be written.
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
        // File systems with new contents, each with its new one, and the inodes that may be in
        // both.
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
        // Released before the kernel is told anything: the kernel may wait for a request that waits
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
            self.notify_inode(ino);
        }
        self.notify_names(&old_covers, if replaced { names } else { Vec::new() });
        Ok(())
    }

    /// Tells the kernel which names lead elsewhere now: those with a mount, now or before, and
    /// those of a replaced root.
    fn notify_names(&self, old_covers: &Covers, mut names: Vec<Vec<u8>>) {
        let session = &self.session;
        let mut dirs = BTreeSet::new();
        for (dir, name) in old_covers.differences(&session.covers()) {
            self.notify_kernel(|n| n.inval_entry(dir, &name));
            dirs.insert(dir);
        }
        if !names.is_empty() {
            names.sort_unstable();
            names.dedup();
            for name in &names {
                self.notify_kernel(|n| n.inval_entry(number::ROOT, name));
            }
            dirs.insert(number::ROOT);
        }
        // `snapdir` may have changed anywhere.
        let mut heads: Vec<u64> = session.children.lock().values().map(|v| v.root).collect();
        heads.push(number::ROOT);
        for root in heads {
            self.notify_kernel(|n| n.inval_entry(root, zuse_zpl::DOT_ZFS_NAME));
        }
        for dir in dirs {
            self.notify_inode(dir);
        }
    }

    /// Tells the kernel whether the root is writable now. Without the permission for that the file
    /// system itself refuses.
    fn follow_read_only(&self, fs: &FileSystem) {
        let mut current = self.kernel_options.lock();
        let new = MountOptions {
            read_only: self.asked.read_only || fs.is_read_only(),
            ..current.clone()
        };
        if current.read_only != new.read_only && self.mounted.set_read_only(&new).is_ok() {
            *current = new;
        }
    }

    /// Makes the kernel honour set-id bits, device nodes and programs according to the properties
    /// of all shown file systems. With `before` it only restricts. Returns whether the kernel
    /// honours no more than allowed.
    fn follow_honoured(&self, all: &[Arc<FileSystem>], before: bool) -> bool {
        let new = effective(&self.asked, all);
        let mut current = self.kernel_options.lock();
        let less = |was: bool, is: bool| is && (was || !before);
        let next = MountOptions {
            suid: less(current.suid, new.suid),
            dev: less(current.dev, new.dev),
            exec: less(current.exec, new.exec),
            ..current.clone()
        };
        let honoured = |o: &MountOptions| (o.suid, o.dev, o.exec);
        if honoured(&next) != honoured(&current) {
            if self.mounted.set_honoured(&next).is_err() {
                return current.suid <= new.suid && current.dev <= new.dev;
            }
            *current = next;
        }
        true
    }

    /// Notifies the kernel of data that it was given under other properties.
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

    /// Ends a file system and its snapshots: waits for requests inside, and releases every object.
    ///
    /// The kernel may know the names of these snapshots. It keeps them if `.zfs` merely expires. A
    /// client that opens a directory by such a name, and then reads it, gets a stale one.
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
                reap_and_write_atimes(&fs);
            }
        }
        for (name, _) in &snapshots {
            self.notify_kernel(|n| n.inval_entry(number::snapshots(volume.slot), name));
        }
    }

    fn notify_name(&self, dir: u64, name: &[u8]) {
        self.notify_kernel(|n| n.inval_entry(dir, name));
        self.notify_inode(dir);
    }

    fn notify_inode(&self, ino: u64) {
        self.notify_kernel(|n| n.inval_inode(ino, 0, 0));
    }

    fn notify_kernel(&self, what: impl Fn(&Notifier) -> std::result::Result<(), QueueFull>) {
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

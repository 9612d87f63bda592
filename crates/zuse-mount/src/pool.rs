//! The mounted file systems of an open pool.
//!
//! [`PoolMounts`] implements the pool's notifications ([`zuse::Mounts`]) and has the mounts of its
//! trees. A dataset appears below another mounted one if its `mountpoint` is below the other's,
//! `canmount` is on and no user has unmounted it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use zuse_base::sync::Mutex;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{BusyMount, DatasetKind, DestroyOptions, ListedKinds, Mounts, Pool, Recursion};
use zuse_base::tripwire::at;
use zuse_base::{Errno, Error, Result};
use zuse_fuse::MountError;

use crate::mount_threads::MountThreads;
use crate::place::is_redacted;
use crate::server::{MountServer, ServeError, ServerOptions};
use crate::tree::{Child, SnapshotEntry, Tree};
use crate::wakeup::Wakeup;

/// Children that were unmounted by name.
type Unmounted = Arc<Mutex<HashSet<String>>>;

/// A pool as the tree behind a session. A dataset is below another one if its mount point is, or,
/// without mount points, if its name is.
pub(crate) struct PoolTree {
    pub pool: Arc<Pool>,
    pub unmounted: Unmounted,
    /// Children have their own mounts: only the places of those without a loaded key are included.
    pub alone: bool,
}

impl PoolTree {
    fn text(&self, dataset: &str, property: &str) -> Result<String> {
        let found = self.pool.dataset(dataset)?.property(property)?;
        Ok(found.map_or_else(String::new, |p| p.value))
    }
}

impl Tree for PoolTree {
    fn panicked(&self) {
        // Whether or not it had a transaction, no request should panic.
        self.pool.spa().tripwire().tear(at::REQUEST);
    }

    fn open(&self, dataset: &str) -> Result<Arc<FileSystem>> {
        self.pool.file_system(dataset)
    }

    fn children(&self, root: &str) -> Result<Vec<Child>> {
        let top = self.text(root, "mountpoint")?;
        let mut out = Vec::new();
        for listing in self.pool.list(root, None, ListedKinds::HEADS)? {
            let name = &listing.name;
            if listing.kind != DatasetKind::Filesystem || name == root {
                continue;
            }
            let encryption = self.pool.encryption(name);
            let locked = encryption.is_ok_and(|found| found.is_some_and(|e| !e.loaded));
            if self.alone && !locked {
                continue;
            }
            // A dataset that is destroyed meanwhile is not mounted.
            let (Ok(at), Ok(can)) = (self.text(name, "mountpoint"), self.text(name, "canmount"))
            else {
                continue;
            };
            // The mount point of a dataset is closed while its key is not loaded.
            let sealed = can != "off" && locked;
            let is_out = can != "on"
                || self.unmounted.lock().contains(name)
                || is_redacted(&self.pool, name).unwrap_or(true);
            if is_out && !sealed {
                continue;
            }
            let path = if top.starts_with('/') {
                below(&top, &at)
            } else {
                // Neither has a mount point: datasets are nested by their names.
                let rest = name.strip_prefix(root).filter(|_| !at.starts_with('/'));
                rest.map(names).filter(|path| !path.is_empty())
            };
            if let Some(path) = path {
                let dataset = listing.name;
                out.push(Child {
                    path,
                    dataset,
                    sealed,
                });
            }
        }
        Ok(out)
    }

    fn snapshots(&self, dataset: &str) -> Result<Vec<SnapshotEntry>> {
        let all = self.pool.dsl().snapshots(dataset)?;
        let entry = |e: zuse_dsl::DirEntry| {
            let (_, name) = e.name.split_once('@')?;
            Some(SnapshotEntry {
                name: name.as_bytes().to_vec(),
                object: e.dataset.0,
            })
        };
        Ok(all.into_iter().filter_map(entry).collect())
    }

    fn make_snapshot(&self, dataset: &str, name: &[u8]) -> Result<()> {
        let full = snapshot_name(dataset, name)?;
        self.pool.snapshot(&[full], Recursion::One, &[])
    }

    fn destroy_snapshot(&self, dataset: &str, name: &[u8]) -> Result<()> {
        let full = snapshot_name(dataset, name)?;
        self.pool.destroy_snapshots(&[full], DestroyOptions::ONE)
    }

    fn rename_snapshot(&self, dataset: &str, from: &[u8], to: &[u8]) -> Result<()> {
        let (from, to) = (snapshot_name(dataset, from)?, snapshot_name(dataset, to)?);
        self.pool.rename(&from, &to, Recursion::One)
    }

    fn open_snapshot(&self, dataset: &str, name: &[u8]) -> Result<Arc<FileSystem>> {
        let name = std::str::from_utf8(name)
            .map_err(|_| Error::refused(Errno::NOENT, "a snapshot name"))?;
        self.pool.file_system(&format!("{dataset}@{name}"))
    }
}

/// The full name of a snapshot in a request.
fn snapshot_name(dataset: &str, name: &[u8]) -> Result<String> {
    let name = std::str::from_utf8(name)
        .map_err(|_| Error::refused(Errno::INVAL, "a snapshot's name is text"))?;
    Ok(format!("{dataset}@{name}"))
}

/// The names of a path.
fn names(path: &str) -> Vec<Vec<u8>> {
    let parts = path.split('/').filter(|p| !p.is_empty());
    parts.map(|p| p.as_bytes().to_vec()).collect()
}

/// The names that lead from one mount point down to another.
fn below(top: &str, at: &str) -> Option<Vec<Vec<u8>>> {
    if !at.starts_with('/') {
        return None;
    }
    let (top, at) = (names(top), names(at));
    let rest = at.strip_prefix(top.as_slice())?;
    if rest.is_empty() {
        None
    } else {
        Some(rest.to_vec())
    }
}

/// Which file systems are shown in mounts, and which should be but are missing. For mounting many:
/// asking each mount about each of them takes too long.
#[derive(Default)]
pub struct Present {
    served: HashSet<String>,
    missing: HashSet<String>,
    /// The value of [`PoolMounts::changes`] for this state.
    as_of: u64,
}

impl Present {
    /// Whether a file system appears in some mount.
    pub fn serves(&self, dataset: &str) -> bool {
        self.served.contains(dataset)
    }

    /// As [`PoolMounts::is_missing_child`].
    pub fn lacks(&self, dataset: &str) -> bool {
        self.missing.contains(dataset)
    }

    fn take_in(&mut self, server: &MountServer) {
        self.served.insert(server.dataset());
        self.served.extend(server.children());
        self.missing.extend(server.sealed());
    }

    /// Adds a new mount. If there was another change too, everything is read again later.
    pub fn add(&mut self, server: &MountServer) {
        self.as_of += 1;
        self.take_in(server);
    }
}

/// What is mounted of a pool.
pub struct PoolMounts {
    pool: Arc<Pool>,
    unmounted: Unmounted,
    servers: Mutex<Vec<Arc<MountServer>>>,
    /// Number of changes to the contents of mounts.
    changes: AtomicU64,
    mount_threads: Mutex<Option<Arc<MountThreads>>>,
    /// Is called whenever a session has ended.
    wakeup: Arc<Wakeup>,
    /// Messages about side effects of unmounting, for the caller.
    messages: Mutex<Vec<String>>,
}

impl PoolMounts {
    /// For an open pool, which sends its notifications here from now on, until [`Self::finish`].
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        let mounts = Arc::new(Self {
            pool: pool.clone(),
            unmounted: Unmounted::default(),
            servers: Mutex::default(),
            changes: AtomicU64::new(0),
            mount_threads: Mutex::default(),
            wakeup: Arc::default(),
            messages: Mutex::default(),
        });
        pool.set_mounts(Some(mounts.clone()));
        mounts
    }

    /// Mounts a dataset or snapshot, with the file systems below it, on a directory.
    ///
    /// # Errors
    /// Those of [`MountServer::mount`].
    pub fn mount(
        &self,
        dataset: &str,
        at: &Path,
        options: &ServerOptions,
    ) -> std::result::Result<Arc<MountServer>, ServeError> {
        let tree = self.tree(options.alone);
        let mount_threads = self.mount_threads().map_err(MountError::Session)?;
        let server = Arc::new(MountServer::mount(
            tree,
            dataset,
            at,
            options,
            &mount_threads,
        )?);
        self.add(server.clone());
        Ok(server)
    }

    /// The pool as sessions see it.
    pub(crate) fn tree(&self, alone: bool) -> Arc<dyn Tree> {
        Arc::new(PoolTree {
            pool: self.pool.clone(),
            unmounted: self.unmounted.clone(),
            alone,
        })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn add(&self, server: Arc<MountServer>) {
        self.servers.lock().push(server);
        self.changed();
    }

    fn changed(&self) {
        self.changes.fetch_add(1, SeqCst);
    }

    /// Updates the known mounts, if something else has changed than was added.
    pub fn look_at(&self, present: &mut Present) {
        let now = self.changes.load(SeqCst);
        if present.as_of == now && now != 0 {
            return;
        }
        *present = Present {
            missing: self.unmounted().into_iter().collect(),
            as_of: now,
            ..Present::default()
        };
        self.servers().iter().for_each(|s| present.take_in(s));
    }

    /// Children that were unmounted by name.
    pub(crate) fn unmounted(&self) -> Vec<String> {
        self.unmounted.lock().iter().cloned().collect()
    }

    pub(crate) fn note_unmounted(&self, child: String) {
        self.unmounted.lock().insert(child);
    }

    /// Is called whenever a session has ended.
    pub fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }

    /// The threads that serve all mounts, if there are any.
    pub(crate) fn started_threads(&self) -> Option<Arc<MountThreads>> {
        self.mount_threads.lock().clone()
    }

    /// The threads that serve all mounts.
    pub(crate) fn mount_threads(&self) -> std::io::Result<Arc<MountThreads>> {
        let mut mount_threads = self.mount_threads.lock();
        if let Some(mount_threads) = &*mount_threads {
            return Ok(mount_threads.clone());
        }
        let new = Arc::new(MountThreads::new()?);
        let wakeup = self.wakeup.clone();
        new.workers.set_on_end(move || wakeup.wake());
        *mount_threads = Some(new.clone());
        Ok(new)
    }

    /// Removes a child from the mount of its parent, after everything mounted below it, until
    /// [`Self::mount_child`]. All of it is on disk afterwards.
    ///
    /// # Errors
    /// A mount below it is busy (`Refused(BUSY)` without `force`), and nothing has changed; the
    /// pool is suspended.
    pub fn unmount_child(&self, dataset: &str, force: bool) -> Result<()> {
        let servers = self.servers();
        for server in &servers {
            let Some(at) = server.path_of(dataset) else {
                continue;
            };
            // Separate mounts first, the deepest before those above it.
            let mut inside: Vec<_> = servers
                .iter()
                .filter(|s| s.mount_point() != at && s.mount_point().starts_with(&at))
                .collect();
            inside.sort_by_key(|s| std::cmp::Reverse(s.mount_point().components().count()));
            inside.into_iter().try_for_each(|s| self.end(s, force))?;
            let below = server.children().into_iter();
            let below = below.filter(|c| server.path_of(c).is_some_and(|p| p.starts_with(&at)));
            for child in below {
                // The kernel does not know this mount, so no unmount writes its dirty pages.
                server.write_back(&child);
                self.unmounted.lock().insert(child);
            }
        }
        self.refresh(dataset);
        self.pool.sync()
    }

    /// Mounts a child again that was unmounted by name, or was not mounted because its key was not
    /// loaded. Returns whether it is mounted now.
    pub fn mount_child(&self, dataset: &str) -> bool {
        self.unmounted.lock().remove(dataset);
        self.refresh(dataset);
        self.is_child(dataset)
    }

    /// Notifies the kernel of block counts that the last txg has changed.
    pub fn notify_block_counts(&self) {
        for server in self.servers() {
            server.notify_block_counts();
        }
    }

    /// The mounted trees.
    pub fn servers(&self) -> Vec<Arc<MountServer>> {
        self.servers.lock().clone()
    }

    /// Unmounts one tree, or cleans up after one that was unmounted otherwise. With `force` a busy
    /// one is detached, and its users get errors.
    ///
    /// # Errors
    /// `Refused(BUSY)` without `force`: then nothing has happened.
    pub fn end(&self, server: &Arc<MountServer>, force: bool) -> Result<()> {
        let at = server.mount_point().display();
        let busy = |e: &dyn std::fmt::Display| {
            Error::refused(Errno::BUSY, format!("cannot unmount '{at}': {e}"))
        };
        if !server.is_over() {
            let done = if force {
                server.unmount_or_detach().map(|_| ())
            } else {
                server.unmount()
            };
            done.map_err(|e| busy(&e))?;
        }
        if !force {
            // A copy in another mount namespace would keep the pool open.
            let messages = server.cut_copies().map_err(|e| busy(&e))?;
            self.messages.lock().extend(messages);
        }
        let done = if !force || server.is_over() {
            server.finish().map_err(|e| busy(&e))
        } else {
            // A detached mount ends with its last user. The pool must not wait for that.
            server.release_file_systems();
            Ok(())
        };
        self.servers.lock().retain(|s| !Arc::ptr_eq(s, server));
        self.changed();
        done
    }

    /// Ends sessions whose mounts were removed and that continue in other mount namespaces.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub fn end_gone(&self) -> Result<()> {
        let gone = self.servers().into_iter().filter(|s| s.is_gone());
        gone.collect::<Vec<_>>()
            .iter()
            .try_for_each(|server| self.end(server, false))
    }

    /// The messages about side effects of unmounting since the last call.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock())
    }

    /// Whether a dataset is a child that appears inside a mount.
    pub fn is_child(&self, dataset: &str) -> bool {
        self.servers()
            .iter()
            .any(|s| s.dataset() != dataset && s.serves(dataset))
    }

    /// Whether a dataset should be in a mount and is missing: unmounted by name, or without its
    /// key.
    pub fn is_missing_child(&self, dataset: &str) -> bool {
        self.unmounted.lock().contains(dataset) || self.servers().iter().any(|s| s.seals(dataset))
    }

    /// Unmounts everything (busy mounts are detached), waits for the sessions to end, and writes
    /// pending changes. Then it releases the pool. `true` if nothing was busy.
    ///
    /// # Errors
    /// The first failure; the rest is unmounted nevertheless.
    pub fn finish(&self) -> std::result::Result<bool, ServeError> {
        let servers = std::mem::take(&mut *self.servers.lock());
        let mut result = Ok(true);
        for server in servers {
            let ended = server
                .unmount_or_detach()
                .and_then(|clean| match clean {
                    true => server.cut_copies().map(|_| true),
                    false => Ok(false),
                })
                .map_err(ServeError::from)
                .and_then(|clean| server.finish().map(|()| clean));
            result = match (result, ended) {
                (Ok(a), Ok(b)) => Ok(a && b),
                (Err(e), _) | (_, Err(e)) => Err(e),
            };
        }
        self.pool.set_mounts(None);
        self.pool.sync()?;
        result
    }

    /// Separate mounts inside these.
    fn mounted_inside(&self, outer: &[Arc<MountServer>]) -> Vec<Arc<MountServer>> {
        let lies_in = |s: &MountServer, o: &MountServer| {
            s.mount_point() != o.mount_point() && s.mount_point().starts_with(o.mount_point())
        };
        let all = self.servers().into_iter().filter(|s| !s.is_unmounted());
        all.filter(|s| outer.iter().any(|o| lies_in(s, o)))
            .collect()
    }

    /// A kernel before 6.2 can only drop a name, which unmounts anything mounted on it: that is
    /// mounted again.
    fn mount_again(&self, outer: &[Arc<MountServer>], inside: &[Arc<MountServer>]) {
        if inside.is_empty() {
            return;
        }
        outer.iter().for_each(|server| server.wait_for_notices());
        for server in inside.iter().filter(|s| s.is_unmounted()) {
            let (dataset, at) = (server.dataset(), server.mount_point().to_owned());
            // One that cannot be mounted again is shown as not mounted.
            let _ = self.end(server, true);
            let _ = self.mount(&dataset, &at, &server.options());
        }
    }

    /// Keeps a new dataset out of its parent's mount, until [`Self::mount_child`].
    pub fn keep_out(&self, dataset: &str) {
        self.unmounted.lock().insert(dataset.to_owned());
        self.refresh(dataset);
    }

    /// Reads the pool again for mounts that show that dataset or one below it.
    ///
    /// A mount of a single dataset depends on the datasets above it, and on the closed places below
    /// it. So one of many mounts does not search everything below it for each new dataset.
    fn refresh(&self, dataset: &str) {
        self.changed();
        let encryption = self.pool.encryption(dataset);
        let locked = encryption.is_ok_and(|e| e.is_some_and(|e| !e.loaded));
        for server in self.servers() {
            let own = server.dataset();
            let closes = || is_within(dataset, &own) && (locked || server.seals_below(dataset));
            if !server.is_alone() || is_within(&own, dataset) || closes() {
                // A mount that cannot be refreshed now stays unchanged.
                let _ = server.refresh();
            }
        }
    }
}

/// Whether a dataset is another one or below it.
pub(crate) fn is_within(dataset: &str, above: &str) -> bool {
    let rest = dataset.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
}

fn suspended(
    servers: &[Arc<MountServer>],
    datasets: &[&str],
    change: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    match servers.split_first() {
        None => change(),
        Some((first, rest)) => first.change(datasets, || suspended(rest, datasets, change)),
    }
}

impl Mounts for PoolMounts {
    fn mountpoint(&self, dataset: &str) -> Option<String> {
        self.servers()
            .iter()
            .find_map(|s| s.path_of(dataset))
            .map(|p| p.to_string_lossy().into_owned())
    }

    fn overridden(&self, dataset: &str, property: &str) -> Option<&'static str> {
        let servers = self.servers();
        let server = servers.iter().find(|s| s.path_of(dataset).is_some())?;
        server.overridden(property)
    }

    fn while_suspended(
        &self,
        datasets: &[&str],
        change: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let concerned: Vec<_> = self
            .servers()
            .into_iter()
            .filter(|s| datasets.iter().any(|d| s.serves(d)))
            .collect();
        let inside = self.mounted_inside(&concerned);
        let done = suspended(&concerned, datasets, change);
        self.mount_again(&concerned, &inside);
        done
    }

    fn before_destroy(&self, dataset: &str, busy: BusyMount) -> Result<()> {
        if let Some((head, name)) = dataset.split_once('@') {
            for server in self.servers() {
                // Requests inside would read blocks that the destruction frees.
                server.snapshot_going(head, name.as_bytes());
            }
        }
        let roots: Vec<_> = self
            .servers()
            .into_iter()
            .filter(|s| s.dataset() == dataset)
            .collect();
        let force = busy == BusyMount::Detach;
        roots.iter().try_for_each(|server| self.end(server, force))
    }

    fn free_removed(&self, dataset: &str, recursion: Recursion) {
        for server in self.servers() {
            server.free_removed(dataset, recursion);
        }
    }

    fn created(&self, dataset: &str) {
        match dataset.split_once('@') {
            Some((head, name)) => self
                .servers()
                .iter()
                .for_each(|s| s.snapshot_made(head, name.as_bytes())),
            None => {
                self.unmounted.lock().remove(dataset);
                self.refresh(dataset);
            }
        }
    }

    fn destroyed(&self, dataset: &str) {
        match dataset.split_once('@') {
            Some((head, name)) => self
                .servers()
                .iter()
                .for_each(|s| s.snapshot_going(head, name.as_bytes())),
            None => {
                self.unmounted.lock().remove(dataset);
                self.refresh(dataset);
            }
        }
    }

    fn renamed(&self, from: &str, to: &str) {
        if let (Some((old_head, old)), Some((new_head, new))) =
            (from.split_once('@'), to.split_once('@'))
        {
            for server in self.servers() {
                server.snapshot_going(old_head, old.as_bytes());
                server.snapshot_made(new_head, new.as_bytes());
            }
            return;
        }
        self.servers().iter().for_each(|s| s.renamed(from, to));
        self.refresh(to);
    }

    fn properties_changed(&self, dataset: &str) {
        self.refresh(dataset);
    }
}

#[cfg(test)]
mod tests;

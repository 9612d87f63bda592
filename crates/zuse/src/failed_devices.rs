//! Maintenance of a pool's devices, which a host runs from time to time. Devices that came back are
//! brought online, new ones replace old ones (property `autoreplace`), spares replace failed
//! devices.
//!
//! - A spare replaces a failed or missing device, if the device's siblings can fill it. It does not
//!   replace a device that the user took offline.
//! - In a dRAID its own distributed spares are used first, because they are filled fastest.
//! - An unusable device is tried again when the file or disk at its path has changed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use zuse_base::sync::Mutex;
use zuse_base::{Result, Txg};
use zuse_vdev::{VdevConfig, VdevKind, VdevState};

use crate::exchange::AttachOptions;
use crate::{DeviceUse, Pool};

/// Failed attempts by place, and the last range for which a resilver was begun.
#[derive(Default)]
pub(crate) struct Tried(Mutex<HashMap<u64, Stamp>>, Mutex<Option<TriedRange>>);

/// Two txgs, and whether a checkpoint kept the resilver from completing devices. Then it is
/// repeated once the checkpoint is gone.
type TriedRange = ((Txg, Txg), bool);

/// Size, and time of the last change.
type Stamp = (u64, Option<SystemTime>);

impl Tried {
    /// Whether no resilver of that range was begun before. A resilver that could not fill
    /// everything is not repeated endlessly.
    fn is_new_range(&self, range: TriedRange) -> bool {
        *self.1.lock() != Some(range)
    }

    /// Whether there is something new at a place since the last check.
    fn is_new(&self, guid: u64, path: &Path) -> bool {
        let Ok(found) = std::fs::metadata(path) else {
            return false;
        };
        let stamp = (found.len(), found.modified().ok());
        self.0.lock().insert(guid, stamp) != Some(stamp)
    }
}

fn is_away(leaf: &&Arc<zuse_vdev::Leaf>) -> bool {
    !leaf.is_usable() && leaf.health().state != VdevState::Offline
}

impl Pool {
    /// Handles failed and missing devices. Cheap if all are healthy.
    ///
    /// # Errors
    /// The pool cannot be changed now; the next call tries again.
    pub fn handle_failed_devices(self: &Arc<Self>) -> Result<()> {
        if !self.is_writable() || self.spa().is_closed() || self.suspended().is_some() {
            return Ok(());
        }
        let leaves = self.spa().vdevs().leaves();
        for leaf in leaves.iter().filter(is_away) {
            let guid = leaf.guid();
            let gone = leaf.health().state != VdevState::Faulted;
            if gone
                && let Some(path) = leaf.path()
                && self.bring_back(guid, Path::new(&*path))?
            {
                continue;
            }
            self.step_in(guid)?;
        }
        self.resilver_waiting()
    }

    /// Begins the resilver that devices wait for, if there are any. A device may have missed writes
    /// while the last resilver ran.
    ///
    /// # Errors
    /// The pool cannot be changed now.
    pub fn resilver_waiting(&self) -> Result<()> {
        if self.suspended().is_none()
            && let Some(range) = self.waiting_range()
        {
            *self.tried().1.lock() = Some((range, self.has_checkpoint()));
            self.restart_resilver()?;
        }
        Ok(())
    }

    /// Whether a device failed or is missing, or waits for a resilver.
    pub fn needs_attention(&self) -> bool {
        let leaves = self.spa().vdevs().leaves();
        let lacks = leaves.iter().any(|leaf| is_away(&leaf)) || self.waiting_range().is_some();
        lacks && !self.spa().is_closed()
    }

    fn has_checkpoint(&self) -> bool {
        self.spa().keeps_checkpoint() || self.spa().is_discarding()
    }

    /// The range of missing txgs for which no resilver was begun.
    fn waiting_range(&self) -> Option<(Txg, Txg)> {
        // Without a resilver there is no end to wait for.
        let range = self.spa().lacking_range()?;
        let waits =
            !self.is_scanning() && self.tried().is_new_range((range, self.has_checkpoint()));
        waits.then_some(range)
    }

    /// Uses the device that is now at a device's path. Returns whether that helped.
    fn bring_back(self: &Arc<Self>, guid: u64, path: &Path) -> Result<bool> {
        if !self.tried().is_new(guid, path) {
            return Ok(false);
        }
        let own = |config: &zuse_vdev::PoolConfig| config.pool_guid == self.guid();
        match DeviceUse::of(path) {
            Ok(DeviceUse::Member(config)) if own(&config) => {
                Ok(self.online(guid)?.state.is_usable())
            }
            // Only an empty device is taken without a command, so that no data of others is lost.
            Ok(DeviceUse::Unused) if self.autoreplace()? => {
                let take = AttachOptions::default();
                Ok(self.replace(guid, None, &take).is_ok())
            }
            _ => Ok(false),
        }
    }

    fn autoreplace(&self) -> Result<bool> {
        let found = self.pool_property("autoreplace")?;
        Ok(found.is_some_and(|p| p.value.as_deref() == Some("on")))
    }

    /// Replaces a device by a spare, if there is one that fits.
    fn step_in(self: &Arc<Self>, guid: u64) -> Result<()> {
        let tree = self.config().vdev_tree;
        let (Some(parent), Some(top)) = (
            tree.parent_of(guid),
            tree.children.iter().find(|top| top.find(guid).is_some()),
        ) else {
            return Ok(());
        };
        let served = matches!(parent.kind, VdevKind::Spare | VdevKind::Replacing);
        // A replacement is under way already; or there is nothing left to fill a spare from.
        if served || !self.top_is_usable(top) {
            return Ok(());
        }
        let mut spares = self.spares()?;
        spares.retain(|spare| !spare.in_use);
        // Its own spares first; another dRAID's cannot be used.
        spares.sort_by_key(|spare| !spare.is_distributed);
        for spare in spares {
            if self.replace_by_spare(guid, &spare).is_ok() {
                break;
            }
        }
        Ok(())
    }

    fn top_is_usable(&self, top: &VdevConfig) -> bool {
        let tops = self.spa().vdevs().tops();
        let open = tops.iter().find(|open| open.guid() == top.guid);
        open.is_some_and(|open| open.health().state.is_usable())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use zuse_format::nvlist::NvList;
    use zuse_pool::{Offline, Shape, SyncCtx, TopSpec};
    use zuse_vdev::{VdevClass, VdevKind};

    use crate::{Environment, NewDevice, NewPool, Pool, PoolAccess, Search};

    const SIZE: u64 = 80 << 20;

    fn mirror(dir: &Path) -> Arc<Pool> {
        let device = |name: &str| NewDevice {
            path: dir.join(name),
            make: Some(SIZE),
        };
        let new = NewPool {
            name: "tank".into(),
            devices: vec![device("a"), device("b")],
            layout: vec![TopSpec {
                shape: Shape::Mirror,
                devices: 2,
                class: VdevClass::Normal,
            }],
            properties: vec![("autoreplace".into(), "on".into())],
            ..NewPool::default()
        };
        Pool::create(Environment::default(), &new).expect("made")
    }

    fn file(path: &Path) {
        let file = std::fs::File::create(path).expect("made");
        file.set_len(SIZE).expect("sized");
    }

    fn finish_scan(pool: &Arc<Pool>) {
        pool.finish_scan().expect("done");
        for _ in 0..3 {
            pool.sync().expect("synced");
        }
    }

    #[test]
    fn a_spare_stands_in_for_a_device_that_failed_and_not_for_one_that_is_offline() {
        let dir = tempfile::tempdir().expect("a directory");
        let pool = mirror(dir.path());
        let spare = dir.path().join("s");
        file(&spare);
        let mut list = NvList::new();
        list.insert("type", "file");
        list.insert("guid", 777u64);
        list.insert("path", spare.to_str().expect("text"));
        let write = move |ctx: &SyncCtx<'_>| ctx.pool.write_aux_devices(ctx, "spares", vec![list]);
        pool.spa().sync_task(|_| Ok(()), write).expect("listed");
        let b = dir.path().join("b");
        let b = pool.vdev_by_name(b.to_str().expect("text")).expect("b");
        let in_use = || pool.spares().expect("spares")[0].in_use;
        pool.offline(b, Offline::default()).expect("offline");
        assert!(!pool.needs_attention());
        pool.handle_failed_devices().expect("looked after");
        assert!(!in_use());
        pool.online(b).expect("online");
        finish_scan(&pool);
        let fault = Offline {
            fault: true,
            temporary: false,
        };
        pool.offline(b, fault).expect("faulted");
        assert!(pool.needs_attention());
        pool.handle_failed_devices().expect("looked after");
        assert!(in_use());
        pool.handle_failed_devices().expect("looked after");
        finish_scan(&pool);
        let mirror = pool.config().vdev_tree.children[0].clone();
        assert_eq!(mirror.children[1].kind, VdevKind::Spare);
        assert!(pool.spa().lacking().is_empty());
        pool.close().expect("closed");
    }

    /// A host ends a moment after its pool. What is at the paths then may be another pool's.
    #[test]
    fn a_closed_pool_opens_no_device() {
        let dir = tempfile::tempdir().expect("a directory");
        let pool = mirror(dir.path());
        let a = dir.path().join("a");
        let a = pool.vdev_by_name(a.to_str().expect("text")).expect("a");
        let opened = Arc::new(AtomicBool::new(false));
        let noted = opened.clone();
        pool.spa().set_reopen(move |_, _| {
            noted.store(true, Relaxed);
            None
        });
        pool.destroy().expect("destroyed");
        assert!(!pool.needs_attention());
        pool.handle_failed_devices().expect("nothing is done");
        pool.online(a).expect_err("the pool is closed");
        assert!(!opened.load(Relaxed));
    }

    #[test]
    fn a_new_device_at_the_old_place_replaces_the_old_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let pool = mirror(dir.path());
        pool.export().expect("exported");
        drop(pool);
        let b = dir.path().join("b");
        std::fs::remove_file(&b).expect("gone");
        let found = Search::new(&[dir.path().join("a")]).run().pools.remove(0);
        let access = PoolAccess {
            writable: true,
            ours: true,
            ..PoolAccess::default()
        };
        let pool = Pool::open(Environment::default(), &found, &access).expect("opened");
        pool.handle_failed_devices().expect("nothing is there");
        assert_eq!(pool.health_word(), "DEGRADED");
        file(&b);
        pool.handle_failed_devices().expect("looked after");
        finish_scan(&pool);
        assert_eq!(pool.health_word(), "ONLINE");
        let mirror = pool.config().vdev_tree.children[0].clone();
        assert!(mirror.children.iter().all(|c| c.kind.is_device()));
        pool.close().expect("closed");
    }
}

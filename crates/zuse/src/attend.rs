//! What a host does for the devices of its pool from time to time: devices that came back are
//! brought online, new ones take the place of old ones (property `autoreplace`), spares step in.
//!
//! - A spare steps in for a device that failed or is gone, not for one that the user took offline,
//!   and only where its siblings can fill it.
//! - Of a dRAID its own distributed spares come first: they are filled fastest.
//! - A place where a device cannot be used is looked at again when something changed there.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use zuse_base::sync::Mutex;
use zuse_base::{Result, Txg};
use zuse_vdev::{VdevConfig, VdevKind, VdevState};

use crate::exchange::TakeDevice;
use crate::{DeviceUse, Pool};

/// What was found at places without success, and the last range that a resilver was begun for.
#[derive(Default)]
pub(crate) struct Tried(Mutex<HashMap<u64, Stamp>>, Mutex<Option<(Txg, Txg)>>);

/// Size, and time of the last change.
type Stamp = (u64, Option<SystemTime>);

impl Tried {
    /// Whether a resilver of that range was not begun before: one that could not fill everything is
    /// not begun again and again.
    fn is_new_range(&self, range: (Txg, Txg)) -> bool {
        *self.1.lock() != Some(range)
    }

    /// Whether something is at a place that was not there at the last look.
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
    /// Looks after devices that failed or are gone. Cheap where all are well.
    ///
    /// # Errors
    /// The pool cannot be changed now; it is tried again the next time.
    pub fn attend(self: &Arc<Self>) -> Result<()> {
        if !self.is_writable() || self.suspended().is_some() {
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
        Ok(())
    }

    /// Whether a device failed or is gone.
    pub fn needs_attention(&self) -> bool {
        self.spa()
            .vdevs()
            .leaves()
            .iter()
            .any(|leaf| is_away(&leaf))
    }

    /// Takes what is now where a device was. Gives whether that has helped.
    fn bring_back(self: &Arc<Self>, guid: u64, path: &Path) -> Result<bool> {
        if !self.tried().is_new(guid, path) {
            return Ok(false);
        }
        let own = |config: &zuse_vdev::PoolConfig| config.pool_guid == self.guid();
        match DeviceUse::of(path) {
            Ok(DeviceUse::Member(config)) if own(&config) => {
                Ok(self.online(guid)?.state.is_usable())
            }
            Ok(DeviceUse::Unused) if self.autoreplace()? => {
                let take = TakeDevice::default();
                Ok(self.replace(guid, None, &take).is_ok())
            }
            _ => Ok(false),
        }
    }

    fn autoreplace(&self) -> Result<bool> {
        let found = self.pool_property("autoreplace")?;
        Ok(found.is_some_and(|p| p.value.as_deref() == Some("on")))
    }

    /// Lets a spare stand in for a device, if there is one that fits.
    fn step_in(self: &Arc<Self>, guid: u64) -> Result<()> {
        let tree = self.config().vdev_tree;
        let (Some(parent), Some(top)) = (
            tree.parent_of(guid),
            tree.children.iter().find(|top| top.find(guid).is_some()),
        ) else {
            return Ok(());
        };
        let served = matches!(parent.kind, VdevKind::Spare | VdevKind::Replacing);
        if served || !self.top_is_usable(top) {
            return Ok(());
        }
        let mut spares = self.spares()?;
        spares.retain(|spare| !spare.in_use);
        // Its own first; another dRAID's cannot stand in.
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

//! From devices to pools: which labels belong together, and what is missing.
//!
//! Labels are grouped by pool guid. For each top-level vdev the label with the greatest txg gives
//! its tree. The greatest txg of all labels gives the pool's own settings. A slot that no label
//! describes is a hole (if listed as such) or `missing`. A `missing` slot is a lost device, or a
//! removed vdev, which has no devices. Only the configuration in the MOS tells which of the two it
//! is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use zuse_base::pool::run_all_borrowed;
use zuse_device::{Access, BlockDevice, DeviceError, FileDevice};

use crate::config::{AuxLabel, LabelConfig, PoolConfig, SplitDevice, VdevConfig, VdevKind};
use crate::health::{Aux, Health, VdevState};
use crate::label::Labels;

/// Slots accepted from a label, at most.
const MAX_SLOTS: u64 = 1 << 14;

/// Devices whose labels are read at the same time.
const THREADS: usize = 16;

/// A device and its labels.
#[derive(Debug)]
pub struct Scanned {
    /// Where it is.
    pub path: String,
    /// Its labels.
    pub labels: Labels,
}

/// What the labels of some devices show.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FoundDevices {
    /// The pools, by name, then guid.
    pub pools: Vec<FoundPool>,
    /// Idle spares and cache devices, with their paths.
    pub aux: Vec<(AuxLabel, String)>,
    /// Devices that could not be opened.
    pub problems: Vec<DeviceError>,
}

/// A pool as its labels show it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundPool {
    /// The configuration with the whole tree; paths are those where the devices were found.
    pub config: PoolConfig,
    /// Path of each device found, by leaf guid.
    pub devices: BTreeMap<u64, String>,
    /// Paths of the idle spares and cache devices found, by guid. Their labels do not name a pool,
    /// so these are of any pool.
    pub aux: BTreeMap<u64, String>,
}

/// Reads the labels of devices.
pub fn read_labels(devices: &[Arc<dyn BlockDevice>]) -> Vec<Scanned> {
    run_all_borrowed(THREADS, devices.iter().collect(), |device| Scanned {
        path: device.path().to_owned(),
        labels: Labels::read(device),
    })
}

/// Reads the labels of files and disks, without disturbing their users.
pub fn scan_paths<P: AsRef<Path> + Sync>(paths: &[P]) -> FoundDevices {
    let looked = run_all_borrowed(THREADS, paths.iter().collect(), |path| {
        let device = FileDevice::open(path, Access::Probe)?;
        let whole = Scanned {
            path: device.path().to_owned(),
            labels: Labels::read(&device),
        };
        if whole.labels.good().next().is_some() {
            return Ok(vec![whole]);
        }
        // An image of a disk: its partitions may carry labels that the disk as a whole does not.
        let parts = device.partitions().into_iter().filter_map(|part| {
            let path = format!("{}#{}", device.path(), part.number);
            // A partition that cannot be opened must not hide the others.
            let device = FileDevice::open(&path, Access::Probe).ok()?;
            let labels = Labels::read(&device);
            labels.good().next()?;
            Some(Scanned { path, labels })
        });
        let mut all: Vec<Scanned> = parts.collect();
        if all.is_empty() {
            all.push(whole);
        }
        Ok(all)
    });
    let (mut scanned, mut problems) = (Vec::new(), Vec::new());
    for result in looked {
        match result {
            Ok(devices) => scanned.extend(devices),
            Err(error) => problems.push(error),
        }
    }
    FoundDevices {
        problems,
        ..assemble(&scanned)
    }
}

/// Puts labels together to pools.
pub fn assemble(scanned: &[Scanned]) -> FoundDevices {
    let mut groups: BTreeMap<u64, Group<'_>> = BTreeMap::new();
    let mut scan = FoundDevices::default();
    let sure = certain_pools(scanned);
    for device in scanned {
        if let Some(label) = meant(&device.labels, &sure) {
            let group = groups.entry(label.pool_guid).or_default();
            group.add(label, &device.path);
            // Its older labels count, too: they may name the leaf by the guid that the pool uses.
            let members = device.labels.good().filter_map(|(_, l)| l.member());
            let own = members.filter(|l| l.pool_guid == label.pool_guid && l.txg != 0);
            own.for_each(|older| group.note_leaf(older, &device.path));
        } else if let Some((_, LabelConfig::Aux(aux))) =
            device.labels.good().find(|(_, l)| l.member().is_none())
        {
            scan.aux.push((aux.clone(), device.path.clone()));
        }
    }
    // After all groups are known: the old pool's devices may come later in the list.
    for device in scanned {
        if let Some(label) = meant(&device.labels, &sure)
            && let Some(old) = label.split_guid.and_then(|guid| groups.get_mut(&guid))
        {
            old.departed.extend(SplitDevice::of(label, &device.path));
        }
    }
    scan.pools = groups.into_values().filter_map(Group::into_pool).collect();
    let aux = scan.aux.iter().map(|(label, path)| (label.guid, path));
    let aux: BTreeMap<u64, String> = aux.map(|(guid, path)| (guid, path.clone())).collect();
    for pool in &mut scan.pools {
        pool.aux.clone_from(&aux);
    }
    scan.pools.sort_by(|a, b| {
        (&a.config.name, a.config.pool_guid).cmp(&(&b.config.name, b.config.pool_guid))
    });
    scan
}

/// The pools that some device belongs to without doubt, each with its newest txg.
fn certain_pools(scanned: &[Scanned]) -> BTreeMap<u64, u64> {
    let mut sure = BTreeMap::new();
    for device in scanned {
        if let (Some(label), None) = device.labels.claims() {
            let txg = sure.entry(label.pool_guid).or_insert(0);
            *txg = label.txg.max(*txg);
        }
    }
    sure
}

/// The label that counts, of a device that may be changing its pool. It is the newer one if any
/// device has the uberblock of that txg.
fn meant<'a>(labels: &'a Labels, sure: &BTreeMap<u64, u64>) -> Option<&'a PoolConfig> {
    let (newest, other_pool) = labels.claims();
    let done = newest.is_some_and(|n| sure.get(&n.pool_guid).is_some_and(|t| *t >= n.txg));
    if done { newest } else { other_pool.or(newest) }
}

/// The labels of one pool.
#[derive(Default)]
struct Group<'a> {
    /// Newest label of each top-level vdev, by its guid.
    tops: BTreeMap<u64, &'a PoolConfig>,
    newest: Option<&'a PoolConfig>,
    /// Txg and path of each leaf.
    leaves: BTreeMap<u64, (u64, &'a str)>,
    /// Devices of pools that were split from this one.
    departed: Vec<SplitDevice>,
}

impl<'a> Group<'a> {
    fn add(&mut self, label: &'a PoolConfig, path: &'a str) {
        let Some(top) = label.top_guid else {
            return;
        };
        // The newest label says which slots are holes, and how many slots there are.
        if self.newest.is_none_or(|n| n.txg < label.txg) {
            self.newest = Some(label);
        }
        let of_top = self.tops.entry(top).or_insert(label);
        // A device that was absent has an old description of its vdev.
        if of_top.txg < label.txg {
            *of_top = label;
        }
        self.note_leaf(label, path);
    }

    /// Notes where a leaf is. A mirror that has shrunk to one device leaves that device with two
    /// guids. Only the pool's last uberblock tells which of them the pool uses.
    fn note_leaf(&mut self, label: &'a PoolConfig, path: &'a str) {
        let Some(leaf) = label.guid else { return };
        // Two devices with the same leaf: a copy of a disk, or a disk and its first partition. The
        // newer one wins.
        let newest = self.leaves.entry(leaf).or_insert((label.txg, path));
        if newest.0 < label.txg {
            *newest = (label.txg, path);
        }
    }

    fn into_pool(self) -> Option<FoundPool> {
        let newest = self.newest?;
        let mut config = newest.clone();
        let last = self
            .tops
            .values()
            .filter_map(|l| l.vdev_tree.id)
            .max()
            .map_or(0, |id| id.saturating_add(1));
        // Pools before version 23 do not record how many slots they have.
        let slots = if newest.vdev_children == 0 {
            last
        } else {
            newest.vdev_children
        }
        // Bounded: the number comes from disk, and each slot takes memory below.
        .min(MAX_SLOTS);
        let mut tops: Vec<VdevConfig> = (0..slots)
            .map(|id| {
                let hole = newest.hole_array.contains(&id);
                VdevConfig::new(
                    if hole {
                        VdevKind::Hole
                    } else {
                        VdevKind::Missing
                    },
                    id,
                    0,
                )
            })
            .collect();
        // Oldest first: if two vdevs claim a slot, the newer claim is used.
        let mut labels: Vec<_> = self.tops.into_values().collect();
        labels.sort_by_key(|l| l.txg);
        for label in labels {
            let slot = label
                .vdev_tree
                .id
                .and_then(|id| usize::try_from(id).ok())
                .and_then(|id| tops.get_mut(id));
            // The newest label says that this slot is a hole. The devices of its former vdev still
            // carry the old label.
            if let Some(slot) = slot.filter(|slot| slot.kind != VdevKind::Hole) {
                *slot = label.vdev_tree.clone();
            }
        }
        config.vdev_tree = VdevConfig::root(newest.pool_guid, tops);
        config.vdev_children = slots;
        config.top_guid = None;
        config.guid = None;
        config.is_spare = false;
        config.is_log = false;
        let is_there = |leaf: &VdevConfig| self.leaves.contains_key(&leaf.guid);
        config.vdev_tree.mark_departed(&self.departed, &is_there);
        config.departed = self.departed;
        let devices: BTreeMap<u64, String> = self
            .leaves
            .into_iter()
            .map(|(guid, (_, path))| (guid, path.to_owned()))
            .collect();
        config.vdev_tree.visit_mut(&mut |node| {
            if let Some(path) = devices.get(&node.guid).filter(|_| node.kind.is_device()) {
                // The path where it was found now, not the path in the label.
                node.path = Some(path.clone());
            }
        });
        Some(FoundPool::of(config, devices))
    }
}

/// Devices opened for an import, by leaf guid.
pub type OpenDevices = BTreeMap<u64, Arc<dyn BlockDevice>>;

impl FoundPool {
    fn of(config: PoolConfig, devices: BTreeMap<u64, String>) -> Self {
        Self {
            config,
            devices,
            aux: BTreeMap::new(),
        }
    }

    /// Where a device of the pool was found: of its tree, a spare or a cache device.
    pub fn place_of(&self, guid: u64) -> Option<&str> {
        let place = self.devices.get(&guid).or_else(|| self.aux.get(&guid));
        place.map(String::as_str)
    }

    /// Health of a node, by which devices were found.
    pub fn health_of(&self, node: &VdevConfig) -> Health {
        match &node.kind {
            VdevKind::Disk | VdevKind::File if self.devices.contains_key(&node.guid) => {
                Health::GOOD
            }
            VdevKind::Disk | VdevKind::File if node.split_off => {
                Health::new(VdevState::CantOpen, Aux::SplitPool)
            }
            VdevKind::Disk | VdevKind::File => Health::new(VdevState::CantOpen, Aux::OpenFailed),
            VdevKind::Hole | VdevKind::Indirect | VdevKind::DraidSpare { .. } => Health::GOOD,
            // A removed vdev has no labels and looks the same as a lost one.
            VdevKind::Missing if self.may_have_removed_vdevs() => Health::GOOD,
            VdevKind::Missing => Health::new(VdevState::CantOpen, Aux::OpenFailed),
            kind => {
                let children = node.children.iter().map(|c| self.health_of(c));
                Health::of_children(children, kind.spare_children(node.children.len()))
            }
        }
    }

    /// Health of the pool as an import would find it.
    pub fn health(&self) -> Health {
        self.health_of(&self.config.vdev_tree)
    }

    fn may_have_removed_vdevs(&self) -> bool {
        self.config
            .features_for_read
            .iter()
            .any(|f| f == "com.delphix:device_removal")
    }

    /// Opens every device that was found. Devices that fail are reported and left out.
    pub fn open_devices(&self, access: Access) -> (OpenDevices, Vec<DeviceError>) {
        let (mut open, mut problems) = (OpenDevices::new(), Vec::new());
        for (guid, path) in &self.devices {
            // A device that had two guids is opened once.
            let known = open.values().find(|d| d.path() == path).cloned();
            if let Some(device) = known {
                open.insert(*guid, device);
                continue;
            }
            match FileDevice::open(path, access) {
                Ok(device) => drop(open.insert(*guid, Arc::new(device))),
                Err(error) => problems.push(error),
            }
        }
        (open, problems)
    }
}

#[cfg(test)]
mod tests;

//! `zdb -CC`: the configuration that an import builds from the labels, before it has read the pool
//! itself.
//!
//! The tree is built from one label of each top-level vdev, the newest. Leaves that were found have
//! the path of their device at their end. A top-level vdev without a label is a `missing` one, or a
//! `hole` if a label says so.

use std::collections::BTreeMap;

use zuse::tools::Labels;
use zuse::{FileDevice, FoundPool};
use zuse_format::nvlist::{NvList, NvValue};

/// The content of the labels of a pool whose devices were found. `limit` is the requested txg.
pub fn of_labels(found: &FoundPool, limit: Option<u64>) -> NvList {
    let (newest, tops) = newest_labels(found);
    let mut out = NvList::new();
    for name in [
        "vdev_children",
        "version",
        "pool_guid",
        "name",
        "comment",
        "compatibility",
        "state",
        "hostid",
        "hostname",
    ] {
        if name == "hostname" && !newest.contains("hostid") {
            continue;
        }
        if let Some(value) = newest.get(name) {
            out.insert(name, value.clone());
        }
    }
    let mut root = NvList::new();
    root.insert("type", "root")
        .insert("id", 0u64)
        .insert("guid", found.config.pool_guid)
        .insert(
            "children",
            NvValue::ListArray(children(found, &newest, &tops)),
        );
    out.insert("vdev_tree", NvValue::List(root));
    let mut policy = NvList::new();
    policy
        .insert("load-request-txg", limit.unwrap_or(u64::MAX))
        .insert("load-rewind-policy", 2u64);
    out.insert("load-policy", NvValue::List(policy));
    out
}

/// The newest label of all, empty where none can be read, and the newest of each top-level vdev.
fn newest_labels(found: &FoundPool) -> (NvList, BTreeMap<u64, NvList>) {
    let mut newest: Option<NvList> = None;
    let mut tops: BTreeMap<u64, NvList> = BTreeMap::new();
    for path in found.devices.values() {
        let Some(label) = newest_label(path, found.config.pool_guid) else {
            continue;
        };
        if let Some(top) = label
            .get_list("vdev_tree")
            .and_then(|tree| tree.get_u64("id"))
        {
            let known = tops.get(&top).map_or(0, txg);
            if !tops.contains_key(&top) || txg(&label) > known {
                tops.insert(top, label.clone());
            }
        }
        if newest.as_ref().is_none_or(|n| txg(&label) > txg(n)) {
            newest = Some(label);
        }
    }
    (newest.unwrap_or_default(), tops)
}

/// All top-level vdevs, also those without a label.
fn children(found: &FoundPool, newest: &NvList, tops: &BTreeMap<u64, NvList>) -> Vec<NvList> {
    let count = newest.get_u64("vdev_children").unwrap_or(0);
    // No pool has so many; a label with such a number is wrong.
    let count = count.min(1 << 12);
    let holes = newest.get_u64s("hole_array").unwrap_or_default();
    let child = |id| match tops.get(&id).and_then(|l| l.get_list("vdev_tree")) {
        Some(tree) => placed(tree, &found.devices),
        None => {
            let kind = if holes.contains(&id) {
                "hole"
            } else {
                "missing"
            };
            let mut gone = NvList::new();
            gone.insert("type", kind)
                .insert("id", id)
                .insert("guid", 0u64);
            gone
        }
    };
    (0..count).map(child).collect()
}

fn txg(label: &NvList) -> u64 {
    label.get_u64("txg").unwrap_or(0)
}

/// The newest label of a device that belongs to the pool.
fn newest_label(path: &str, guid: u64) -> Option<NvList> {
    let device = FileDevice::open(path, zuse::DeviceAccess::Probe).ok()?;
    let labels = Labels::read(&device);
    let all = labels.slots().iter().flatten().map(|c| &c.list);
    let own = all.filter(|l| l.get_u64("pool_guid") == Some(guid));
    own.max_by_key(|l| txg(l)).cloned()
}

/// A vdev with the places where its leaves were found.
fn placed(vdev: &NvList, places: &BTreeMap<u64, String>) -> NvList {
    let mut out = vdev.clone();
    if let Some(children) = vdev.get_lists("children") {
        let children = children.iter().map(|c| placed(c, places)).collect();
        out.replace("children", NvValue::ListArray(children));
    } else if let Some(place) = vdev.get_u64("guid").and_then(|guid| places.get(&guid)) {
        out.insert("path", place.as_str());
    }
    out
}

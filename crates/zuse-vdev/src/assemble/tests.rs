use std::sync::Arc;

use zuse_device::MemDevice;

use super::*;
use crate::config::TopConfig;
use crate::label;

const SIZE: u64 = 64 << 20;

fn disk(id: u64, guid: u64) -> VdevConfig {
    let mut node = VdevConfig::new(VdevKind::Disk, id, guid);
    node.path = Some(format!("/old/{guid}"));
    node
}

fn top(mut node: VdevConfig) -> VdevConfig {
    node.top = Some(TopConfig {
        ashift: 12,
        asize: 48 << 20,
        metaslab_shift: 24,
        metaslab_array: 5,
        ..TopConfig::default()
    });
    node
}

/// Disk 10, mirror 20 of 21 and 22, hole, disk 40.
fn pool() -> PoolConfig {
    let mut mirror = VdevConfig::new(VdevKind::Mirror, 1, 20);
    mirror.children = vec![disk(0, 21), disk(1, 22)];
    let tops = vec![
        top(disk(0, 10)),
        top(mirror),
        VdevConfig::new(VdevKind::Hole, 2, 0),
        top(disk(3, 40)),
    ];
    let mut pool = PoolConfig::new("tank", 5000, VdevConfig::root(1, tops));
    pool.txg = 100;
    pool.count_children();
    pool
}

fn make(pool: &PoolConfig, leaf: u64) -> Arc<dyn BlockDevice> {
    let device = MemDevice::new(format!("/new/{leaf}"), SIZE);
    let top = pool
        .vdev_tree
        .children
        .iter()
        .find(|t| t.find(leaf).is_some())
        .unwrap();
    label::init(&device, &pool.to_label_nvlist(top, top.find(leaf).unwrap())).unwrap();
    Arc::new(device)
}

#[test]
fn a_pool_is_found_whole_with_the_paths_of_today() {
    let pool = pool();
    let devices: Vec<_> = [40, 22, 10, 21].map(|leaf| make(&pool, leaf)).into();
    let scan = assemble(&read_labels(&devices));
    let [found] = scan.pools.as_slice() else {
        panic!("{scan:?}")
    };
    assert_eq!(found.config.vdev_tree.guid_sum(), pool.vdev_tree.guid_sum());
    assert_eq!(found.config.hole_array, [2]);
    assert_eq!(
        found.config.vdev_tree.find(21).unwrap().path.as_deref(),
        Some("/new/21")
    );
    assert_eq!(found.health(), Health::GOOD);
}

#[test]
fn lost_devices_degrade_a_mirror_and_fail_a_pool() {
    let pool = pool();
    let scan = assemble(&read_labels(&[
        make(&pool, 10),
        make(&pool, 22),
        make(&pool, 40),
    ]));
    assert_eq!(scan.pools[0].health().word(), "DEGRADED");
    let scan = assemble(&read_labels(&[make(&pool, 10), make(&pool, 22)]));
    let found = &scan.pools[0];
    assert_eq!(found.health().word(), "UNAVAIL");
    assert_eq!(found.config.vdev_tree.children[3].kind, VdevKind::Missing);
}

#[test]
fn a_slot_without_label_is_no_loss_where_vdevs_can_be_removed() {
    let mut pool = pool();
    pool.features_for_read
        .push("com.delphix:device_removal".into());
    let scan = assemble(&read_labels(&[
        make(&pool, 21),
        make(&pool, 22),
        make(&pool, 40),
    ]));
    assert_eq!(scan.pools[0].health(), Health::GOOD);
}

#[test]
fn the_newest_label_decides_and_two_pools_stay_apart() {
    let old = pool();
    let mut new = pool();
    new.txg = 200;
    new.name = "renamed".into();
    let mut other = pool();
    other.pool_guid = 2;
    other.name = "aaa".into();
    let blank: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/blank", SIZE));
    let spare = MemDevice::new("/spare", SIZE);
    let aux = AuxLabel {
        version: 5000,
        is_cache: false,
        guid: 77,
        ashift: None,
        path: None,
        other: Vec::new(),
    };
    label::init(&spare, &aux.to_nvlist()).unwrap();
    let devices = [
        make(&old, 10),
        make(&new, 21),
        make(&old, 22),
        make(&other, 10),
        blank,
        Arc::new(spare),
    ];
    let scan = assemble(&read_labels(&devices));
    assert_eq!(
        scan.pools
            .iter()
            .map(|p| p.config.name.as_str())
            .collect::<Vec<_>>(),
        ["aaa", "renamed"]
    );
    assert_eq!(scan.pools[1].devices.len(), 3);
    assert_eq!(scan.aux, [(aux, "/spare".to_owned())]);
}

/// The half 22 of the mirror belongs to another pool.
fn split_off(path: &str) -> Arc<dyn BlockDevice> {
    let mut node = top(disk(1, 77));
    node.path = Some(path.to_owned());
    let hole = |id| VdevConfig::new(VdevKind::Hole, id, 0);
    let tree = VdevConfig::root(2, vec![hole(0), node, hole(2), hole(3)]);
    let mut half = PoolConfig::new("half", 5000, tree);
    (half.txg, half.split_guid) = (101, Some(1));
    make(&half, 77)
}

#[test]
fn a_device_of_a_pool_that_was_split_off_is_known_by_its_slot_and_path() {
    let pool = pool();
    let state = |device: Arc<dyn BlockDevice>, others: &[u64]| {
        let mut devices: Vec<_> = others.iter().map(|leaf| make(&pool, *leaf)).collect();
        devices.push(device);
        let scan = assemble(&read_labels(&devices));
        let found = scan.pools.iter().find(|p| p.config.name == "tank").unwrap();
        let node = found.config.vdev_tree.find(22).unwrap();
        assert_eq!(found.config.departed.len(), 1);
        (node.split_off, found.health_of(node).word())
    };
    assert_eq!(state(split_off("/old/22"), &[10, 21, 40]), (true, "SPLIT"));
    // Another path, or the pool still has the device: not a departed one.
    assert_eq!(
        state(split_off("/old/9"), &[10, 21, 40]),
        (false, "UNAVAIL")
    );
    assert_eq!(
        state(split_off("/old/22"), &[10, 21, 22, 40]),
        (false, "ONLINE")
    );
}

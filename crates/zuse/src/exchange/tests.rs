//! Devices that are added while a resilver is running.

use std::path::Path;
use std::time::Duration;

use zuse_dsl::NewScan;
use zuse_zpl::{Credentials, WriteOptions};

use super::*;
use crate::{Environment, NewDevice, NewPool};

const SIZE: u64 = 80 << 20;
/// Blocks of a batch, and of the file.
const BATCH: u64 = 1 << 10;
const BLOCKS: u64 = 3 * BATCH;
const BLOCK: u64 = 4096;

/// A pool on `a` with a resilver of `b` that nobody does anything for, and its guid of `a`.
fn resilvering(dir: &Path) -> (Arc<Pool>, u64) {
    for name in ["a", "b", "c"] {
        let file = std::fs::File::create(dir.join(name)).expect("made");
        file.set_len(SIZE).expect("sized");
    }
    let new = NewPool {
        name: "tank".into(),
        devices: vec![NewDevice {
            path: dir.join("a"),
            make: None,
        }],
        root_properties: [("recordsize", "4k"), ("compression", "off")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..NewPool::default()
    };
    let mut env = Environment::default();
    env.limits.txg_timeout = Duration::from_secs(3600);
    // As few blocks a batch as there can be.
    env.limits.scan_memory_fact = 1 << 20;
    let pool = Pool::create(env, &new).expect("made");
    let fs = pool.file_system("tank").expect("a file system");
    let user = Credentials::root();
    let file = fs.create(&user, &fs.root().expect("its root"), b"f", 0o644);
    let file = file.expect("a file");
    let bytes = vec![7; (BLOCKS * BLOCK) as usize];
    fs.write(&file, 0, &bytes, WriteOptions::default())
        .expect("written");
    drop((file, fs));
    pool.sync().expect("synced");
    let a = pool.config().vdev_tree.children[0].guid;
    let take = AttachOptions::default();
    let b = pool
        .device_to_attach(a, &dir.join("b"), &take)
        .expect("free");
    pool.spa()
        .attach_device(a, &b, Purpose::Attach, false)
        .expect("attached");
    let (from, to) = pool.spa().resilver_range().expect("all that there is");
    let resilver = NewScan::Resilver(from, to);
    pool.dsl().begin_scan(resilver).expect("begun");
    (pool, a)
}

fn finish(pool: &Pool) {
    pool.finish_scan().expect("done");
    assert!(pool.spa().deferred().is_empty());
}

#[test]
fn a_device_that_comes_early_in_a_resilver_is_filled_by_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let (pool, a) = resilvering(dir.path());
    pool.attach(a, &dir.path().join("c"), &AttachOptions::default())
        .expect("attached");
    assert!(pool.spa().deferred().is_empty(), "nothing was done yet");
    finish(&pool);
    assert!(pool.spa().lacking().is_empty());
    pool.export().expect("exported");
}

#[test]
fn a_device_that_comes_late_in_a_resilver_lets_it_go_on_and_is_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let (pool, a) = resilvering(dir.path());
    pool.scan_batches(1).expect("some");
    let before = pool.scan().expect("a resilver");
    assert!(
        before.state == zuse_dsl::ScanState::Running && before.examined > 0,
        "{before:?}"
    );
    pool.attach(a, &dir.path().join("c"), &AttachOptions::default())
        .expect("attached");
    let c = pool.spa().deferred();
    assert_eq!(c.len(), 1);
    let after = pool.scan().expect("a resilver");
    assert_eq!(after.examined, before.examined, "it does not begin again");
    finish(&pool);
    assert_eq!(pool.spa().lacking(), c);
    pool.resilver_waiting().expect("begun");
    finish(&pool);
    assert!(pool.spa().lacking().is_empty());
    pool.export().expect("exported");
}

#[test]
fn a_device_that_comes_back_late_in_a_resilver_is_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let (pool, a) = resilvering(dir.path());
    let path = dir.path().join("b").display().to_string();
    let b = pool.vdev_by_name(&path).expect("of the pool");
    finish(&pool);
    // The third one is filled while the second is away.
    let c = pool.device_to_attach(a, &dir.path().join("c"), &AttachOptions::default());
    pool.spa()
        .attach_device(a, &c.expect("free"), Purpose::Attach, false)
        .expect("attached");
    pool.offline(b, Offline::default()).expect("offline");
    let (from, to) = pool.spa().resilver_range().expect("all that there is");
    let resilver = NewScan::Resilver(from, to);
    pool.dsl().begin_scan(resilver).expect("begun");
    pool.scan_batches(1).expect("some");
    let before = pool.scan().expect("a resilver").examined;
    pool.online(b).expect("online");
    assert_eq!(pool.spa().deferred(), [b]);
    pool.online(b).expect("online already");
    let after = pool.scan().expect("a resilver").examined;
    assert_eq!(after, before, "it does not begin again");
    finish(&pool);
    assert_eq!(pool.spa().lacking(), [b]);
    pool.resilver_waiting().expect("begun");
    finish(&pool);
    assert!(pool.spa().lacking().is_empty());
    pool.export().expect("exported");
}

#[test]
fn a_resilver_that_is_asked_for_is_for_devices_that_wait_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let (pool, a) = resilvering(dir.path());
    pool.scan_batches(1).expect("some");
    pool.attach(a, &dir.path().join("c"), &AttachOptions::default())
        .expect("attached");
    assert_eq!(pool.spa().deferred().len(), 1);
    pool.restart_resilver().expect("begun");
    finish(&pool);
    assert!(pool.spa().lacking().is_empty());
    pool.export().expect("exported");
}

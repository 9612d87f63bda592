//! Devices that are added during a scrub, and scrubs of newer blocks.

use super::*;
use zuse::tools::Layers as _;

/// A pool on one disk with more blocks than a batch of a scan; some of them are scanned.
fn half_scanned(disks: &[Device], after: Txg) -> Arc<zuse::Pool> {
    let mut env = environment();
    env.limits.scan_memory_fact = 1 << 20;
    let spec = VdevSpec {
        device: disks[0].clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let small = [("recordsize".to_owned(), "4k".to_owned())];
    let pool = zuse::Pool::create_on_devices(env, "tank", vec![spec], None, &small);
    let pool = pool.expect("create");
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..60).expect("written");
    pool.sync().expect("sync");
    pool.dsl()
        .begin_scan(NewScan::Scrub(after, None))
        .expect("begun");
    pool.scan_batches(1).expect("some");
    assert!(pool.is_scanning(), "there is more");
    pool
}

/// The added device is resilvered, and alone has all data.
fn stands_alone(pool: &Arc<zuse::Pool>, disks: &[Device]) {
    pool.finish_scan().expect("done");
    assert_eq!(
        pool.spa().lacking().len(),
        1,
        "the scan came too early for it"
    );
    resilver(pool);
    let first = guid_of(pool, disks[0].path());
    pool.detach(first).expect("not needed");
    pool.drop_cache();
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..60, "from the device that came");
}

#[test]
fn a_device_that_comes_during_a_scrub_lacks_what_was_scrubbed_before() {
    let disks = [disk(0), disk(1)];
    let pool = half_scanned(&disks, Txg::ZERO);
    attach(&pool, "/d/0", &disks[1], Purpose::Attach).expect("attached");
    stands_alone(&pool, &disks);
}

#[test]
fn a_scrub_of_newer_blocks_gives_a_device_no_older_ones() {
    let disks = [disk(0), disk(1)];
    let pool = make(&disks[..1], Shape::Single);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..60).expect("written");
    pool.sync().expect("sync");
    attach(&pool, "/d/0", &disks[1], Purpose::Attach).expect("attached");
    let since = pool.spa().open_txg();
    for _ in 0..4 {
        pool.spa().sync_now().expect("sync");
    }
    pool.dsl()
        .begin_scan(NewScan::Scrub(since, None))
        .expect("begun");
    stands_alone(&pool, &disks);
}

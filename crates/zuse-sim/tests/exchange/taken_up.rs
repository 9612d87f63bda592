//! Scans that continue after the pool was opened again.

use super::*;
use zuse::tools::Layers as _;

/// A device does not take some of what it lacks, in a part of a resilver that ends before the pool
/// is closed. The process that resumes it does not come to those blocks again.
#[test]
fn what_a_device_did_not_take_before_is_filled_by_whoever_takes_the_resilver_up() {
    let faulty = Arc::new(FaultyDevice::new(disk(1)));
    let disks: [Device; 2] = [disk(0), faulty.clone()];
    let mut env = environment();
    // A batch is a part of the blocks.
    env.limits.scan_memory_fact = 1 << 20;
    let spec = VdevSpec {
        device: disks[0].clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let small = [
        ("recordsize".to_owned(), "4k".to_owned()),
        ("compression".to_owned(), "off".to_owned()),
    ];
    let pool = zuse::Pool::create_on_devices(env, "tank", vec![spec], None, &small);
    let pool = pool.expect("create");
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..60).expect("written");
    pool.sync().expect("sync");
    attach(&pool, "/d/0", &disks[1], Purpose::Attach).expect("attached");
    let (from, to) = pool.spa().resilver_range().expect("all that there is");
    pool.dsl()
        .begin_scan(NewScan::Resilver(from, to))
        .expect("begun");
    // Data of a file that comes early.
    let file = fs.resolve(&root(), b"f3").expect("the file");
    let dnode = fs.objset().dnode(file.object()).expect("its dnode");
    for at in 0..file.size() / 4096 {
        let bp = dnode.stored_pointer(at).expect("read").expect("a block");
        let dva = bp.dva(0);
        let span = Span::new(LABELS + dva.offset(), dva.asize());
        faulty.add(Rule::broken(Op::Write).within(span));
    }
    pool.scan_batches(1).expect("some");
    assert!(pool.is_scanning(), "there is more");
    assert_eq!(pool.scan().expect("a scan").errors, 0, "nothing is lost");
    faulty.clear();
    drop((dnode, file, fs));
    pool.close().expect("closed");

    let pool = open(&disks);
    pool.finish_scan().expect("done");
    wait_until_idle(&pool);
    assert!(pool.spa().lacking().is_empty());
    pool.detach(guid_of(&pool, "/d/0")).expect("not needed");
    pool.drop_cache();
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..60, "from the device that came");
    assert!(!pool.vdev_status().has_errors());
    drop(fs);
    pool.export().expect("export");
}

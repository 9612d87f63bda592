//! What remains of a pool that is dropped without being closed.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Credentials, NewVolume, Pool, PoolAccess};
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::{Environment, Limits};
use zuse_sim::golden::open_whole;
use zuse_sim::memory_pool::memory_pool;
use zuse_zpl::WriteOptions;

fn write(fs: &zuse_zpl::FileSystem, name: &[u8]) {
    let root = Credentials::root();
    let file = fs.create(&root, &fs.root().unwrap(), name, 0o644).unwrap();
    fs.write(&file, 0, b"some bytes", WriteOptions::default())
        .unwrap();
}

fn is_alone(device: &Arc<MemDevice>) {
    assert_eq!(
        Arc::strong_count(device),
        1,
        "something still has the device"
    );
}

fn names(pool: &Pool) -> usize {
    let fs = pool.file_system("tank").unwrap();
    let root = fs.root().unwrap();
    ["a", "b"]
        .iter()
        .filter(|n| fs.lookup(&Credentials::root(), &root, n.as_bytes()).is_ok())
        .count()
}

#[test]
fn what_was_written_is_there_and_nothing_keeps_the_device() {
    let (pool, device) = memory_pool("tank", 128 << 20, 9, Limits::default()).unwrap();
    let fs = pool.file_system("tank").unwrap();
    write(&fs, b"a");
    drop(pool);
    // The file system has a share of its own.
    write(&fs, b"b");
    drop(fs);
    is_alone(&device);

    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    let devices: [Arc<dyn BlockDevice>; 1] = [device.clone()];
    let pool = open_whole(Environment::default(), &devices, &access).unwrap();
    drop(devices);
    assert_eq!(names(&pool), 2);
    let new = NewVolume {
        size: 1 << 20,
        block_size: 16 << 10,
        sparse: true,
        properties: Vec::new(),
    };
    pool.create_volume("tank/v", &new).unwrap();
    let volume = pool.volume("tank/v").unwrap();
    drop(pool);
    assert!(Arc::strong_count(&device) > 1, "the volume is still open");
    drop(volume);
    is_alone(&device);
}

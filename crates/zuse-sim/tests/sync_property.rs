//! The data on disk directly after a change, for each value of `sync`.

use std::sync::Arc;
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{Credentials, NewVolume, Pool, PoolAccess};
use zuse_base::Result;
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::golden::open_whole;
use zuse_zpl::WriteOptions;

fn env(intent_log: bool) -> Environment {
    let mut env = Environment::default();
    env.limits.intent_log = intent_log;
    // A txg closes only if a thread waits for it.
    env.limits.txg_timeout = Duration::from_secs(3600);
    env.limits.threads = 1;
    env
}

/// The pool of a device as it is now, as after a crash.
fn after_a_crash(device: &MemDevice, intent_log: bool) -> Arc<Pool> {
    let image = MemDevice::from_image("sim0", &device.snapshot());
    let devices: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(image)];
    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    open_whole(env(intent_log), &devices, &access).expect("open")
}

fn read(pool: &Arc<Pool>, name: &[u8]) -> Result<Vec<u8>> {
    let fs = pool.file_system("tank/f")?;
    let znode = fs.resolve(&Credentials::root(), name)?;
    let mut bytes = vec![0; znode.size() as usize];
    let n = fs.read(&znode, 0, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// A file is created and written, and a volume is written. Then the power fails, once before the
/// commit and once after it. Returns the content of both.
fn there(sync: &str, intent_log: bool) -> [(bool, bool); 2] {
    let device = Arc::new(MemDevice::new("sim0", 64 << 20));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let pool = Pool::create_on_devices(env(intent_log), "tank", vec![spec], None, &[]);
    let pool = pool.expect("create");
    let properties = vec![("sync".to_owned(), sync.to_owned())];
    let made = pool.create_filesystem("tank/f", &properties, (0, 0));
    made.expect("file system");
    let new = NewVolume {
        size: 1 << 20,
        block_size: 16384,
        sparse: true,
        properties,
    };
    pool.create_volume("tank/v", &new).expect("volume");
    let fs = pool.file_system("tank/f").expect("file system");
    let volume = pool.volume("tank/v").expect("volume");
    // Chains begin, and are on disk.
    let root = Credentials::root();
    let top = fs.root().expect("root");
    let begun = fs.create(&root, &top, b"begun", 0o644).expect("create");
    fs.fsync(&begun).expect("fsync");
    volume.write(0, b"begun").expect("write");
    volume.sync().expect("sync");
    pool.sync().expect("sync");

    let znode = fs.create(&root, &top, b"new", 0o644).expect("create");
    fs.write(&znode, 0, b"text", WriteOptions::default())
        .expect("write");
    volume.write(0, b"again").expect("write");
    let found = || {
        let pool = after_a_crash(&device, intent_log);
        let file = read(&pool, b"new").is_ok_and(|bytes| bytes == b"text");
        let mut bytes = [0; 5];
        pool.volume("tank/v")
            .expect("volume")
            .read(0, &mut bytes)
            .expect("read");
        pool.close().expect("close");
        (file, &bytes == b"again")
    };
    let before = found();
    fs.fsync(&znode).expect("fsync");
    volume.sync().expect("sync");
    let after = found();
    drop((fs, volume));
    pool.close().expect("close");
    [before, after]
}

#[test]
fn a_change_is_on_disk_when_the_sync_property_says_so() {
    let (lost, kept) = ((false, false), (true, true));
    for intent_log in [true, false] {
        assert_eq!(there("standard", intent_log), [lost, kept], "{intent_log}");
        assert_eq!(there("always", intent_log), [kept, kept], "{intent_log}");
        assert_eq!(there("disabled", intent_log), [lost, lost], "{intent_log}");
    }
}

//! A thread panics under each lock whose data may be half changed. No uberblock is written any
//! more, and the pool on disk has its last state.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, PoolAccess, Recursion};
use zuse_base::tripwire::at;
use zuse_base::{Error, Result, Txg};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::golden::open_whole;
use zuse_zpl::WriteOptions;

/// Locks that are watched and taken by [`work`]; the locks of devices have a separate test.
const PLACES: [&str; 10] = [
    at::CONFIG,
    at::SLOT,
    at::ZAP,
    at::OBJECT,
    at::MAPS,
    at::ACCOUNTING,
    at::CLONES,
    at::DEDUP,
    at::METASLAB,
    at::LOG,
];

const SIZE: u64 = 256 << 20;
const SOON: Duration = Duration::from_secs(20);

struct Bench {
    device: Arc<MemDevice>,
    pool: Arc<zuse::Pool>,
}

fn environment() -> Environment {
    let mut environment = Environment::default();
    environment.limits.txg_timeout = Duration::from_millis(300);
    environment.limits.intent_log = true;
    environment
}

/// A pool with a file, a snapshot that keeps older blocks, and a block clone, all on disk.
fn bench() -> Bench {
    let device = Arc::new(MemDevice::new("mem", SIZE));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let pool = zuse::Pool::create_on_devices(environment(), "tank", vec![spec], None, &[])
        .expect("create");
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, "old", &[7; 300_000]).expect("write");
    write(&fs, "kept", &[8; 500_000]).expect("write");
    pool.sync().expect("sync");
    pool.snapshot(&["tank@before".into()], Recursion::One, &[])
        .expect("snapshot");
    clone(&fs, "kept", "copy").expect("clone");
    pool.sync().expect("sync");
    Bench { device, pool }
}

fn write(fs: &Arc<FileSystem>, name: &str, data: &[u8]) -> Result<()> {
    let root = Credentials::root();
    let znode = fs.create(&root, &fs.root()?, name.as_bytes(), 0o644)?;
    fs.write(&znode, 0, data, WriteOptions::default()).map(drop)
}

fn clone(fs: &Arc<FileSystem>, from: &str, to: &str) -> Result<()> {
    let root = Credentials::root();
    let source = fs.resolve(&root, from.as_bytes())?;
    let target = fs.create(&root, &fs.root()?, to.as_bytes(), 0o644)?;
    fs.copy_range(&source, 0, &target, 0, source.size())
        .map(drop)
}

fn read(pool: &Arc<zuse::Pool>, name: &str) -> Result<Vec<u8>> {
    let fs = pool.file_system("tank")?;
    let znode = fs.resolve(&Credentials::root(), name.as_bytes())?;
    let mut bytes = vec![0; znode.size() as usize];
    let n = fs.read(&znode, 0, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Everything that takes the locks: files made, changed, cloned and removed, properties, datasets,
/// snapshots, devices.
fn work(pool: &Arc<zuse::Pool>, round: u32) -> Result<()> {
    let root = Credentials::root();
    let fs = pool.file_system("tank")?;
    let name = format!("file {round}");
    write(&fs, &name, &[round as u8; 200_000])?;
    fs.unlink(&root, &fs.root()?, name.as_bytes())?;
    let old = fs.resolve(&root, b"kept")?;
    fs.write(&old, 0, &[round as u8; 140_000], WriteOptions::default())?;
    fs.fsync(&old)?;
    clone(&fs, "old", &format!("clone {round}"))?;
    fs.sync()?;
    let child = format!("tank/child{round}");
    pool.create_filesystem(&child, &[], (0, 0))?;
    pool.file_system(&child)?;
    pool.snapshot(&[format!("tank@s{round}")], Recursion::One, &[])?;
    pool.sync()
}

/// Runs something like a worker: a panic ends only its request.
fn caught<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(Error::corrupt("here", "it panicked")))
}

/// What must be true after a thread has panicked at `place` while the pool was in use.
fn must_be_left_alone(b: &Bench, place: &str) {
    let end = Instant::now() + SOON;
    while b.pool.suspended().is_none() {
        assert!(Instant::now() < end, "{place}: the pool goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    let why = b.pool.suspended().expect("suspended").to_string();
    assert!(why.contains(place) && why.contains("Zuse itself"), "{why}");
    // An uberblock that is being written may be completed; no other follows.
    std::thread::sleep(Duration::from_millis(50));
    let before = labels(&b.device);
    let refused = caught(|| write(&b.pool.file_system("tank")?, "after", &[1; 10]));
    assert!(
        matches!(refused, Err(Error::Suspended { .. })),
        "{place}: {refused:?}"
    );
    let refused = caught(|| b.pool.create_filesystem("tank/after", &[], (0, 0)));
    assert!(
        matches!(refused, Err(Error::Suspended { .. })),
        "{place}: {refused:?}"
    );
    let refused = caught(|| b.pool.sync());
    assert!(refused.is_err(), "{place}");
    assert_eq!(read(&b.pool, "old").expect(place), [7; 300_000], "{place}");
    assert!(b.pool.clear(None).is_err(), "{place}: it cannot be cleared");
    std::thread::sleep(Duration::from_millis(700));
    assert!(labels(&b.device) == before, "{place}: an uberblock came");
    let closed = caught(|| b.pool.close());
    assert!(closed.is_err(), "{place}: the loss is an error");
}

/// The labels at both ends of the device, with the rings of uberblocks.
fn labels(device: &Arc<MemDevice>) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let (front, back) = bytes.split_at_mut(512 << 10);
    device.read_at(front, 0).expect("read");
    device.read_at(back, SIZE - (512 << 10)).expect("read");
    bytes
}

/// The pool as another process opens it, from the bytes on the device.
fn is_whole(device: &Arc<MemDevice>, place: &str) {
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device.clone()];
    let access = PoolAccess {
        writable: true,
        ours: true,
        ..PoolAccess::default()
    };
    let pool = open_whole(environment(), &devices, &access).expect(place);
    assert_eq!(read(&pool, "old").expect(place), [7; 300_000], "{place}");
    work(&pool, 77).expect(place);
    pool.close().expect(place);
    let pool = open_whole(environment(), &devices, &PoolAccess::default()).expect(place);
    let report = check(pool.spa(), Depth::All).expect(place);
    assert!(report.is_clean(), "{place}: {:?}", report.problems);
    pool.close().expect(place);
}

#[test]
fn a_panic_under_any_lock_ends_the_pool_before_its_next_uberblock() {
    for place in PLACES {
        for left in [0, 3] {
            let b = bench();
            b.pool.spa().tripwire().set_trap(place, left);
            for round in 0..4 {
                let _ = caught(|| work(&b.pool, round));
                if b.pool.spa().tripwire().torn().is_some() {
                    break;
                }
            }
            if b.pool.spa().tripwire().take_trap() {
                assert!(left > 0, "nobody came to: {place}");
                let _ = b.pool.close();
                continue;
            }
            must_be_left_alone(&b, place);
            is_whole(&b.device, place);
        }
    }
}

/// Panics when the txg closes.
struct PutOff;

impl zuse_dmu::BeforeClose for PutOff {
    fn before_close(&self, _tx: &zuse_dmu::Tx) {
        panic!("put off");
    }
}

/// An action, by name.
type Way = (&'static str, fn(&Arc<zuse::Pool>) -> Result<()>);

/// Panics of threads that hold none of those locks.
fn ways() -> Vec<Way> {
    vec![
        (at::CHANGE, |pool| {
            let panics = |_: &zuse_pool::SyncCtx<'_>| -> Result<()> { panic!("in a sync task") };
            pool.spa().sync_task(|_| Ok(()), panics)
        }),
        (at::CONFIG, |pool| {
            let panics = |_: &zuse_dsl::Batch<'_>| panic!("in a channel program");
            pool.dsl().batch(true, panics)
        }),
        (at::TRANSACTION, |pool| {
            let _tx = pool.dsl().dataset("tank")?.begin(Default::default())?;
            panic!("half way through a change")
        }),
        (at::TRANSACTION, |pool| {
            let tx = pool.dsl().dataset("tank")?.begin(Default::default())?;
            assert!(tx.before_close(Arc::new(PutOff)));
            drop(tx);
            pool.sync()
        }),
        (at::WORK, |pool| {
            let job = Box::new(|| panic!("at work"));
            assert!(pool.spa().work().try_submit(job).is_ok());
            Ok(())
        }),
    ]
}

#[test]
fn a_panic_of_the_sync_thread_or_of_a_worker_ends_the_pool_and_nobody_waits_for_ever() {
    for (way, (place, panics)) in ways().into_iter().enumerate() {
        let b = bench();
        let pool = b.pool.clone();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let root = Credentials::root();
            let fs = pool.file_system("tank").expect("file system");
            let mkdir = |fs: &Arc<FileSystem>| fs.mkdir(&root, &fs.root()?, b"half", 0o755);
            mkdir(&fs).expect("a change that is not on disk yet");
            drop(fs);
            send.send(caught(|| panics(&pool)).is_err())
        });
        let ended = receive.recv_timeout(SOON);
        let ended = ended.unwrap_or_else(|_| panic!("way {way}: who asked waits for ever"));
        assert!(ended || place == at::WORK, "way {way}");
        must_be_left_alone(&b, place);
        is_whole(&b.device, place);
    }
}

#[test]
fn the_txg_of_a_change_that_panicked_is_not_waited_for() {
    let b = bench();
    let synced: Txg = b.pool.spa().synced_txg();
    let _ = caught(|| {
        let _tx = b.pool.dsl().dataset("tank")?.begin(Default::default())?;
        panic!("half way")
    }) as Result<()>;
    let waited = b.pool.spa().wait_synced(synced.plus(2));
    assert!(matches!(waited, Err(Error::Suspended { .. })), "{waited:?}");
}

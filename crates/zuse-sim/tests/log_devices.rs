//! Intent logs and the devices that they are on: what a txg waits for, devices that fail or leave.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{NewVolume, Pool, PoolAccess, VdevClass, Volume};
use zuse_base::sync::{Condvar, Mutex};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, DeviceError, FaultyDevice, MemDevice, Op, Rule};
use zuse_pool::{Environment, NewVdevs, TopSpec, VdevSpec};
use zuse_sim::golden::open_whole;

const SIZE: u64 = 64 << 20;
/// What the head of a log block has at byte 144.
const MAGIC: [u8; 8] = 0x0210_da7a_b10c_7a11_u64.to_le_bytes();

/// A device that holds log blocks back.
#[derive(Debug)]
struct Gate {
    inner: MemDevice,
    closed: Mutex<bool>,
    opened: Condvar,
    held: AtomicBool,
    /// Log blocks that came.
    logged: AtomicU64,
}

impl Gate {
    fn new(path: &str) -> Arc<Self> {
        Arc::new(Self {
            inner: MemDevice::new(path, SIZE),
            closed: Mutex::new(false),
            opened: Condvar::default(),
            held: AtomicBool::new(false),
            logged: AtomicU64::new(0),
        })
    }

    fn set(&self, closed: bool) {
        *self.closed.lock() = closed;
        self.opened.notify_all();
    }
}

impl BlockDevice for Gate {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_shift(&self) -> u32 {
        self.inner.sector_shift()
    }

    fn path(&self) -> &str {
        self.inner.path()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DeviceError> {
        if buf.get(144..152) == Some(&MAGIC[..]) {
            self.logged.fetch_add(1, Ordering::AcqRel);
            let mut closed = self.closed.lock();
            while *closed {
                self.held.store(true, Ordering::Release);
                closed = self.opened.wait(closed);
            }
        }
        self.inner.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        self.inner.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<bool, DeviceError> {
        self.inner.discard(offset, len)
    }
}

fn env() -> Environment {
    let mut env = Environment::default();
    env.limits.intent_log = true;
    env.limits.txg_timeout = Duration::from_secs(3600);
    env.limits.threads = 1;
    env
}

fn spec(device: Arc<dyn BlockDevice>) -> VdevSpec {
    VdevSpec {
        device,
        is_disk: false,
        ashift: Some(12),
    }
}

/// A pool with a volume on a device, and a log device if there is one.
fn pool(data: Arc<dyn BlockDevice>, log: Option<Arc<dyn BlockDevice>>) -> (Arc<Pool>, Volume) {
    let pool = Pool::create_on_devices(env(), "logs", vec![spec(data)], None, &[]).expect("create");
    if let Some(log) = log {
        let added = pool.spa().add_vdevs(NewVdevs {
            devices: vec![spec(log)],
            layout: vec![TopSpec {
                class: VdevClass::Log,
                ..TopSpec::SINGLE
            }],
            ..NewVdevs::default()
        });
        added.expect("add");
    }
    let new = NewVolume {
        size: 1 << 20,
        block_size: 16384,
        sparse: true,
        properties: Vec::new(),
    };
    pool.create_volume("logs/v", &new).expect("volume");
    let volume = pool.volume("logs/v").expect("volume");
    // The first one begins the chain, and waits for its txg.
    volume.write(0, b"first").expect("write");
    volume.sync().expect("sync");
    (pool, volume)
}

/// Answers of commits so far: by flush, by txg.
fn answers(pool: &Pool) -> (u64, u64) {
    let figures = &pool.spa().logs().figures;
    (figures.by_flush.get(), figures.by_txg.get())
}

fn clean(pool: &Arc<Pool>) {
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// What a copy of the devices has after replay, as after a crash.
fn after_a_crash(images: &[(&str, &MemDevice)], expected: &[u8]) {
    let devices: Vec<Arc<dyn BlockDevice>> = images
        .iter()
        .map(|(path, d)| Arc::new(MemDevice::from_image(*path, &d.snapshot())) as _)
        .collect();
    let access = PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    };
    let pool = open_whole(env(), &devices, &access).expect("open");
    let volume = pool.volume("logs/v").expect("volume");
    let mut found = vec![0; expected.len()];
    volume.read(0, &mut found).expect("read");
    assert_eq!(found, expected);
    drop(volume);
    pool.sync().expect("sync");
    clean(&pool);
    pool.close().expect("close");
}

/// A block's successor is allocated before the block is written. A txg that is on disk with the
/// one and without the other has lost a block.
#[test]
fn a_txg_waits_for_log_blocks_whose_successors_it_allocated() {
    let gate = Gate::new("sim0");
    let (pool, volume) = pool(gate.clone(), None);
    gate.set(true);
    let done = AtomicBool::new(false);
    let mut too_early = false;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            volume.write(0, b"second").expect("write");
            volume.sync().expect("sync");
        });
        while !gate.held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let (txg, done, pool) = (pool.spa().open_txg(), &done, &pool);
        scope.spawn(move || {
            pool.spa().wait_synced(txg).expect("synced");
            done.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(300));
        too_early = done.load(Ordering::Acquire);
        gate.set(false);
    });
    assert!(
        !too_early,
        "a txg was written before a log block that it leads to"
    );
    assert!(done.load(Ordering::Acquire));
    after_a_crash(&[("sim0", &gate.inner)], b"second");
    drop(volume);
    pool.close().expect("close");
}

#[test]
fn log_blocks_go_to_the_log_device_and_it_can_be_removed() {
    let (data, log) = (Gate::new("sim0"), Gate::new("sim1"));
    let (pool, volume) = pool(data.clone(), Some(log.clone()));
    for i in 0..20u8 {
        volume.write(0, &[i; 9]).expect("write");
        volume.sync().expect("sync");
    }
    let logged = log.logged.load(Ordering::Acquire);
    assert_eq!((logged, data.logged.load(Ordering::Acquire)), (20, 0));
    assert_eq!(answers(&pool).0, 20);
    after_a_crash(&[("sim0", &data.inner), ("sim1", &log.inner)], &[19; 9]);

    let guid = pool.config().vdev_tree.children[1].guid;
    volume.write(0, &[20; 9]).expect("write");
    let removable = pool.find_removable(&guid.to_string()).expect("found");
    pool.remove(&removable).expect("removed");
    volume.write(0, &[21; 9]).expect("write");
    volume.sync().expect("sync");
    volume.write(0, &[22; 9]).expect("write");
    volume.sync().expect("sync");
    assert!(data.logged.load(Ordering::Acquire) > 0);
    after_a_crash(&[("sim0", &data.inner)], &[22; 9]);
    drop(volume);
    pool.sync().expect("sync");
    clean(&pool);
    pool.close().expect("close");
}

#[test]
fn what_a_failing_log_device_does_not_take_a_txg_does() {
    let data = Gate::new("sim0");
    let log = Arc::new(FaultyDevice::new(Gate::new("sim1")));
    let (pool, volume) = pool(data.clone(), Some(log.clone()));
    volume.write(0, b"second").expect("write");
    volume.sync().expect("sync");
    assert_eq!(answers(&pool).0, 1);
    let by_txg = answers(&pool).1;
    log.add(Rule::broken(Op::Write));
    log.add(Rule::broken(Op::Flush));
    volume.write(0, b"third!").expect("write");
    volume.sync().expect("a txg answers");
    assert_eq!(answers(&pool), (1, by_txg + 1));
    // From now on blocks go elsewhere.
    volume.write(0, b"fourth").expect("write");
    volume.sync().expect("sync");
    volume.write(0, b"fifth!").expect("write");
    volume.sync().expect("sync");
    assert_eq!(answers(&pool), (2, by_txg + 2));
    assert!(data.logged.load(Ordering::Acquire) > 0);
    assert!(pool.spa().suspended().is_none());
    drop(volume);
    pool.sync().expect("sync");
    clean(&pool);
    pool.close().expect("close");
}

#[test]
fn a_failed_flush_of_the_log_is_answered_by_no_later_one() {
    let data = Gate::new("sim0");
    let log = Arc::new(FaultyDevice::new(Gate::new("sim1")));
    let (pool, volume) = pool(data, Some(log.clone()));
    log.add(Rule::broken(Op::Flush).times(1));
    let before = answers(&pool);
    volume.write(0, b"second").expect("write");
    volume.sync().expect("a txg answers");
    assert_eq!(answers(&pool), (before.0, before.1 + 1));
    drop(volume);
    pool.close().expect("close");
}

//! Intent logs and their devices: what a txg waits for, devices that fail or are removed.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse::{NewVolume, Offline, Pool, PoolAccess, Shape, VdevClass, Volume};
use zuse_base::Errno;
use zuse_base::sync::{Condvar, Mutex};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, DeviceError, FaultyDevice, MemDevice, Op, Rule};
use zuse_pool::{Environment, NewVdevs, TopSpec, VdevSpec};
use zuse_sim::golden::open_whole;

const SIZE: u64 = 64 << 20;
/// The bytes of a log block's header at offset 144.
const MAGIC: [u8; 8] = 0x0210_da7a_b10c_7a11_u64.to_le_bytes();

/// A device that delays log blocks.
#[derive(Debug)]
struct Gate {
    inner: MemDevice,
    closed: Mutex<bool>,
    opened: Condvar,
    held: AtomicBool,
    /// Log blocks that arrived.
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

/// A pool with a volume on a device, and a log vdev on the others: a mirror if there are several.
/// The only log device of a pool.
fn alone<D: BlockDevice + 'static>(log: &Arc<D>) -> [Arc<dyn BlockDevice>; 1] {
    [log.clone()]
}

fn pool(data: Arc<dyn BlockDevice>, logs: &[Arc<dyn BlockDevice>]) -> (Arc<Pool>, Volume) {
    let pool = Pool::create_on_devices(env(), "logs", vec![spec(data)], None, &[]).expect("create");
    if !logs.is_empty() {
        let shape = match logs.len() {
            1 => Shape::Single,
            _ => Shape::Mirror,
        };
        let added = pool.spa().add_vdevs(NewVdevs {
            devices: logs.iter().cloned().map(spec).collect(),
            layout: vec![TopSpec {
                shape,
                devices: logs.len(),
                class: VdevClass::Log,
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
    // The first commit begins the chain, and waits for its txg.
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

fn writable() -> PoolAccess {
    PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    }
}

/// The initial content of the volume.
fn content(pool: &Arc<Pool>, len: usize) -> Vec<u8> {
    let volume = pool.volume("logs/v").expect("volume");
    let mut found = vec![0; len];
    volume.read(0, &mut found).expect("read");
    found
}

/// Guid of the log vdev's only device.
fn log_guid(pool: &Pool) -> u64 {
    pool.config().vdev_tree.children[1].guid
}

/// The offset at which each committing thread writes.
const PLACE: u64 = 8192;

/// Three threads write and commit during `then`, which can read the number of answered commits.
/// Returns the content that the volume must have: all of it was promised.
fn while_committing(volume: &Volume, then: impl FnOnce(&AtomicU64)) -> Vec<u8> {
    let (commits, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut last = Vec::new();
    std::thread::scope(|scope| {
        // The threads end also if something fails.
        let ends = Ends(&stop);
        let work = |at: u64| {
            let (commits, stop) = (&commits, &stop);
            move || {
                let mut number = 0u64;
                while !stop.load(Ordering::Acquire) {
                    number += 1;
                    volume
                        .write(at * PLACE, &number.to_le_bytes())
                        .expect("write");
                    volume.sync().expect("sync");
                    commits.fetch_add(1, Ordering::AcqRel);
                }
                number
            }
        };
        let threads: Vec<_> = (0..3).map(|at| scope.spawn(work(at))).collect();
        then(&commits);
        drop(ends);
        for thread in threads {
            last.extend(thread.join().expect("thread").to_le_bytes());
            last.resize(last.len().next_multiple_of(PLACE as usize), 0);
        }
    });
    last
}

/// Ends the committing threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits for a number of answered commits.
fn wait_for(commits: &AtomicU64, many: u64) {
    let until = commits.load(Ordering::Acquire) + many;
    while commits.load(Ordering::Acquire) < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn break_down(device: &FaultyDevice) {
    device.add(Rule::broken(Op::Write));
    device.add(Rule::broken(Op::Flush));
    device.add(Rule::broken(Op::Read));
}

/// The content of a copy of the devices after replay, as after a crash.
fn after_a_crash(images: &[(&str, &MemDevice)], expected: &[u8]) {
    let devices: Vec<Arc<dyn BlockDevice>> = images
        .iter()
        .map(|(path, d)| Arc::new(MemDevice::from_image(*path, &d.snapshot())) as _)
        .collect();
    let pool = open_whole(env(), &devices, &writable()).expect("open");
    assert_eq!(content(&pool, expected.len()), expected);
    pool.sync().expect("sync");
    clean(&pool);
    pool.close().expect("close");
}

/// A block's successor is allocated before the block is written. If a txg on disk has the
/// allocation without the block, a block is leaked.
#[test]
fn a_txg_waits_for_log_blocks_whose_successors_it_allocated() {
    let gate = Gate::new("sim0");
    let (pool, volume) = pool(gate.clone(), &[]);
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
    let (pool, volume) = pool(data.clone(), &alone(&log));
    for i in 0..20u8 {
        volume.write(0, &[i; 9]).expect("write");
        volume.sync().expect("sync");
    }
    let logged = log.logged.load(Ordering::Acquire);
    assert_eq!((logged, data.logged.load(Ordering::Acquire)), (20, 0));
    assert_eq!(answers(&pool).0, 20);
    after_a_crash(&[("sim0", &data.inner), ("sim1", &log.inner)], &[19; 9]);

    let guid = log_guid(&pool);
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
    let (pool, volume) = pool(data.clone(), &alone(&log));
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
    let (pool, volume) = pool(data, &alone(&log));
    log.add(Rule::broken(Op::Flush).times(1));
    let before = answers(&pool);
    volume.write(0, b"second").expect("write");
    volume.sync().expect("a txg answers");
    assert_eq!(answers(&pool), (before.0, before.1 + 1));
    drop(volume);
    pool.close().expect("close");
}

#[test]
fn a_mirrored_log_goes_on_with_either_half_and_without_both_nothing_promised_is_lost() {
    let data = Gate::new("sim0");
    let gates = [Gate::new("sim1"), Gate::new("sim2")];
    let halves = gates.clone().map(|gate| Arc::new(FaultyDevice::new(gate)));
    let logs = halves.clone().map(|half| half as Arc<dyn BlockDevice>);
    let (pool, volume) = pool(data.clone(), &logs);
    let images = || {
        let [one, two] = &gates;
        [
            ("sim0", &data.inner),
            ("sim1", &one.inner),
            ("sim2", &two.inner),
        ]
    };

    let promised = while_committing(&volume, |commits| {
        wait_for(commits, 20);
        break_down(&halves[0]);
        wait_for(commits, 20);
    });
    assert_eq!(data.logged.load(Ordering::Acquire), 0);
    after_a_crash(&images(), &promised);

    let promised = while_committing(&volume, |commits| {
        wait_for(commits, 20);
        break_down(&halves[1]);
        wait_for(commits, 20);
    });
    assert!(data.logged.load(Ordering::Acquire) > 0);
    after_a_crash(&images(), &promised);
    assert!(pool.spa().suspended().is_none());
    drop(volume);
    pool.close().expect("close");
}

#[test]
fn a_lone_log_device_goes_offline_and_comes_back() {
    let (data, log) = (Gate::new("sim0"), Gate::new("sim1"));
    let (pool, volume) = pool(data.clone(), &alone(&log));
    let guid = log_guid(&pool);
    let logged = || [&data, &log].map(|d| d.logged.load(Ordering::Acquire));
    let again = log.clone();
    pool.spa().set_reopen(move |_, _| Some(again.clone()));

    let promised = while_committing(&volume, |commits| {
        wait_for(commits, 10);
        pool.offline(guid, Offline::default()).expect("offline");
        wait_for(commits, 10);
    });
    let [on_data, on_log] = logged();
    assert!(on_data > 0 && on_log > 0, "{on_data} {on_log}");
    assert_eq!(pool.health_word(), "DEGRADED");
    after_a_crash(&[("sim0", &data.inner)], &promised);
    after_a_crash(&[("sim0", &data.inner), ("sim1", &log.inner)], &promised);

    let promised = while_committing(&volume, |commits| {
        wait_for(commits, 10);
        pool.online(guid).expect("online");
        wait_for(commits, 10);
    });
    assert!(logged()[1] > on_log);
    assert_eq!(pool.health_word(), "ONLINE");
    after_a_crash(&[("sim0", &data.inner), ("sim1", &log.inner)], &promised);
    drop(volume);
    pool.sync().expect("sync");
    clean(&pool);
    pool.close().expect("close");
}

#[test]
fn a_log_device_is_removed_while_logs_are_written() {
    let (data, log) = (Gate::new("sim0"), Gate::new("sim1"));
    let (pool, volume) = pool(data.clone(), &alone(&log));
    let guid = log_guid(&pool);
    let promised = while_committing(&volume, |commits| {
        wait_for(commits, 10);
        let removable = pool.find_removable(&guid.to_string()).expect("found");
        pool.remove(&removable).expect("removed");
        wait_for(commits, 10);
    });
    assert!(log.logged.load(Ordering::Acquire) > 0);
    assert!(data.logged.load(Ordering::Acquire) > 0);
    after_a_crash(&[("sim0", &data.inner)], &promised);
    drop(volume);
    pool.sync().expect("sync");
    clean(&pool);
    pool.close().expect("close");
}

/// Refused, unless the content of the device is given up. Then the pool continues, also when its
/// own host opens it again. Another host must give it up again.
#[test]
fn what_is_on_a_missing_log_device_is_given_up_only_where_that_is_asked_for() {
    let (data, log) = (Gate::new("sim0"), Gate::new("sim1"));
    let (crashed, volume) = pool(data.clone(), &alone(&log));
    volume.write(0, b"promised").expect("write");
    volume.sync().expect("sync");
    let left: Arc<dyn BlockDevice> =
        Arc::new(MemDevice::from_image("sim0", &data.inner.snapshot()));
    drop(volume);
    crashed.close().expect("close");

    let left = [left];
    let refused = |access: &PoolAccess| match open_whole(env(), &left, access) {
        Err(error) => assert!(error.is(Errno::NXIO), "{error}"),
        Ok(_) => panic!("it was opened with {access:?}"),
    };
    let own = PoolAccess {
        ours: true,
        ..writable()
    };
    let without = PoolAccess {
        without_logs: true,
        ..writable()
    };
    refused(&writable());
    refused(&own);
    let pool = open_whole(env(), &left, &without).expect("opened without");
    assert_eq!(content(&pool, 8), b"first\0\0\0");
    assert_eq!(pool.health_word(), "DEGRADED");
    for text in [b"second", b"third!"] {
        let volume = pool.volume("logs/v").expect("volume");
        volume.write(0, text).expect("write");
        volume.sync().expect("sync");
    }
    pool.close().expect("close");
    drop(pool);

    refused(&writable());
    let pool = open_whole(env(), &left, &own).expect("opened by its host");
    assert_eq!(content(&pool, 6), b"third!");
    let removable = pool.find_removable(&log_guid(&pool).to_string());
    pool.remove(&removable.expect("found")).expect("removed");
    assert_eq!(pool.health_word(), "ONLINE");
    clean(&pool);
    pool.close().expect("close");
    drop(pool);
    let pool = open_whole(env(), &left, &writable()).expect("whole again");
    assert_eq!(content(&pool, 6), b"third!");
    pool.close().expect("close");
}

#[test]
fn with_logbias_throughput_log_devices_are_left_alone() {
    let (data, log) = (Gate::new("sim0"), Gate::new("sim1"));
    let (pool, volume) = pool(data.clone(), &alone(&log));
    let logged = || [&data, &log].map(|d| d.logged.load(Ordering::Acquire));
    let commits = |many: u8| {
        for i in 0..many {
            volume.write(0, &[i; 9]).expect("write");
            volume.sync().expect("sync");
        }
    };
    commits(5);
    assert_eq!(logged(), [0, 5]);
    let bias = |value: &str| {
        let head = pool.dataset("logs/v").expect("dataset");
        let wanted = [("logbias".to_owned(), value.to_owned())];
        head.set(&wanted).expect("set");
    };
    bias("throughput");
    // The next block is allocated already; its successors go elsewhere.
    commits(1);
    let [_, on_log] = logged();
    commits(5);
    assert_eq!(logged(), [5, on_log]);
    after_a_crash(&[("sim0", &data.inner), ("sim1", &log.inner)], &[4; 9]);
    bias("latency");
    commits(6);
    assert!(logged()[1] >= on_log + 5);
    drop(volume);
    pool.sync().expect("sync");
    clean(&pool);
    pool.close().expect("close");
}

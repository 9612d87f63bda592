//! Whole pools on a device that fails: writes, flushes, reads, discards.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, ListedKinds, PoolAccess, Shape, TopSpec, VdevClass};
use zuse_base::{Entropy, Errno, Error, Result, SeededPrng, Span};
use zuse_device::{BlockDevice, Fault, FaultyDevice, MemDevice, Op, Rule};
use zuse_pool::{Environment, FailMode, VdevSpec};
use zuse_sim::golden::open_whole;
use zuse_zpl::WriteOptions;

/// Longer than any operation that does not wait.
const SOON: Duration = Duration::from_secs(20);
/// How long a waiter is watched waiting.
const WHILE: Duration = Duration::from_millis(400);
/// Where labels end and blocks begin.
const DATA: u64 = 4 << 20;
const SIZE: u64 = 256 << 20;

struct Bench {
    device: Arc<FaultyDevice>,
    pool: Arc<zuse::Pool>,
    fs: Arc<FileSystem>,
}

fn bench(properties: &[(&str, &str)]) -> Bench {
    bench_with(properties, Environment::default())
}

/// With an intent log fsync writes that, without one it writes the txg.
fn bench_with_log(intent_log: bool) -> Bench {
    let mut env = Environment::default();
    env.limits.intent_log = intent_log;
    bench_with(&[], env)
}

fn bench_with(properties: &[(&str, &str)], env: Environment) -> Bench {
    let device = Arc::new(FaultyDevice::new(Arc::new(MemDevice::new("mem", SIZE))));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let own = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
    let mut all: Vec<_> = properties.iter().map(own).collect();
    all.push(("compression".into(), "off".into()));
    let pool = zuse::Pool::create_on_devices(env, "tank", vec![spec], None, &all).expect("create");
    let fs = pool.file_system("tank").expect("file system");
    Bench { device, pool, fs }
}

/// The pool as another process would open it after this one was killed.
fn reopened(device: &Arc<FaultyDevice>) -> Bench {
    device.clear();
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device.clone()];
    let access = PoolAccess {
        writable: true,
        ours: true,
        ..PoolAccess::default()
    };
    let pool = open_whole(Environment::default(), &devices, &access).expect("open again");
    let fs = pool.file_system("tank").expect("file system");
    Bench {
        device: device.clone(),
        pool,
        fs,
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SeededPrng::new(seed).fill(&mut bytes);
    bytes
}

/// Writes a file, not yet synced.
fn write(fs: &Arc<FileSystem>, name: &str, data: &[u8]) -> Result<()> {
    let root = Credentials::root();
    let znode = fs.create(&root, &fs.root()?, name.as_bytes(), 0o644)?;
    fs.write(&znode, 0, data, WriteOptions::default())
        .map(|n| assert_eq!(n, data.len() as u64))
}

fn fsync(fs: &Arc<FileSystem>, name: &str) -> Result<()> {
    fs.fsync(&*fs.resolve(&Credentials::root(), name.as_bytes())?)
}

fn read(fs: &Arc<FileSystem>, name: &str) -> Result<Vec<u8>> {
    let znode = fs.resolve(&Credentials::root(), name.as_bytes())?;
    let mut bytes = vec![0; znode.size() as usize];
    let n = fs.read(&znode, 0, &mut bytes)?;
    assert_eq!(n, bytes.len());
    Ok(bytes)
}

/// Runs something on a thread of its own.
fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (send, receive) = channel();
    std::thread::spawn(move || send.send(work()));
    receive
}

fn fsync_aside(fs: &Arc<FileSystem>, name: &'static str) -> Receiver<Result<()>> {
    let fs = fs.clone();
    aside(move || fsync(&fs, name))
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn still_waits<T>(waiter: &Receiver<T>) {
    assert!(matches!(
        waiter.recv_timeout(WHILE),
        Err(RecvTimeoutError::Timeout)
    ));
}

#[test]
fn a_write_that_fails_makes_everybody_wait_until_clear_and_nothing_is_lost() {
    let labels = |at| Rule::broken(Op::Write).within(Span::new(at, 512 << 10));
    for (intent_log, rules) in [
        (false, vec![Rule::broken(Op::Write)]),
        (false, vec![Rule::new(Op::Write, Fault::Fail(Errno::NOSPC))]),
        // In the middle of the txg, or of the log.
        (false, vec![Rule::broken(Op::Write).after(7)]),
        (true, vec![Rule::broken(Op::Write).after(7)]),
        // Only uberblocks.
        (false, vec![labels(0), labels(SIZE - (512 << 10))]),
    ] {
        let b = bench_with_log(intent_log);
        let (old, new) = (noise(1, 300_000), noise(2, 3_000_000));
        write(&b.fs, "old", &old).expect("write");
        fsync(&b.fs, "old").expect("fsync");
        write(&b.fs, "new", &new).expect("write");
        for rule in rules {
            b.device.add(rule);
        }
        let waiter = fsync_aside(&b.fs, "new");
        until("the suspension", || b.pool.suspended().is_some());
        still_waits(&waiter);
        assert_eq!(read(&b.fs, "old").expect("read"), old);
        // The device still fails: the pool is suspended again.
        b.pool.clear(None).expect("clear");
        still_waits(&waiter);
        until("the second suspension", || b.pool.suspended().is_some());
        b.device.clear();
        b.pool.clear(None).expect("clear");
        waiter
            .recv_timeout(SOON)
            .expect("an answer")
            .expect("fsync");
        assert!(b.pool.suspended().is_none());
        let device = b.device.clone();
        b.pool.export().expect("export");
        drop(b);
        let b = reopened(&device);
        assert_eq!(read(&b.fs, "old").expect("read"), old);
        assert_eq!(read(&b.fs, "new").expect("read"), new);
    }
}

#[test]
fn with_failmode_continue_writers_get_an_error_even_those_that_wait_already() {
    let b = bench(&[]);
    let data = noise(3, 1 << 20);
    write(&b.fs, "old", &data).expect("write");
    fsync(&b.fs, "old").expect("fsync");
    write(&b.fs, "new", &data).expect("write");
    b.device.add(Rule::broken(Op::Write));
    let waiter = fsync_aside(&b.fs, "new");
    until("the suspension", || b.pool.suspended().is_some());
    still_waits(&waiter);
    b.pool.spa().set_fail_mode(FailMode::Continue);
    let answer = waiter.recv_timeout(SOON).expect("an answer");
    assert_eq!(answer.expect_err("not on disk").errno(), Errno::IO);
    let error = write(&b.fs, "third", &data).expect_err("suspended");
    assert_eq!(error.errno(), Errno::IO, "{error}");
    assert_eq!(read(&b.fs, "old").expect("read"), data);
    assert_eq!(read(&b.fs, "new").expect("read"), data);
    b.device.clear();
    b.pool.clear(None).expect("clear");
    fsync(&b.fs, "new").expect("fsync");
    write(&b.fs, "third", &data).expect("write");
    b.pool.export().expect("export");
}

#[test]
fn a_flush_that_fails_is_final_until_the_pool_is_opened_again() {
    // The flush before the uberblock, and the one after it. Also that of a log: the data that it
    // did not flush may belong to the txg too.
    for (intent_log, skip) in [(false, 0), (false, 1), (true, 0)] {
        let b = bench_with_log(intent_log);
        let data = noise(4, 1 << 20);
        write(&b.fs, "old", &data).expect("write");
        fsync(&b.fs, "old").expect("fsync");
        write(&b.fs, "new", &data).expect("write");
        let rule = b.device.add(Rule::broken(Op::Flush).after(skip).times(1));
        let waiter = fsync_aside(&b.fs, "new");
        until("the suspension", || b.pool.suspended().is_some());
        assert_eq!(b.device.fired(rule), 1);
        if skip == 0 {
            let answer = waiter.recv_timeout(SOON).expect("an answer");
            assert!(answer.is_err(), "an fsync without a flush");
            assert!(b.pool.clear(None).is_err(), "lost writes cannot be cleared");
            assert!(write(&b.fs, "third", &data).is_err());
            assert!(b.pool.export().is_err(), "export claims success");
        } else {
            // Only the uberblock was lost: it is written again.
            still_waits(&waiter);
            b.pool.clear(None).expect("clear");
            let answer = waiter.recv_timeout(SOON).expect("an answer");
            answer.expect("fsync");
            // The device has lost a write: further calls may fail, until it is opened again.
            let _ = b.pool.export();
        }
        let device = b.device.clone();
        drop(b);
        let b = reopened(&device);
        assert_eq!(read(&b.fs, "old").expect("read"), data);
        write(&b.fs, "fourth", &data).expect("write");
        fsync(&b.fs, "fourth").expect("fsync");
        b.pool.export().expect("export");
    }
}

#[test]
fn closing_a_suspended_pool_ends_with_an_error_and_the_last_txg_is_there() {
    // Suspended before, or by the writes of closing; exported, or left active; given up by another
    // thread.
    for (before, export) in [(true, true), (true, false), (false, true), (false, false)] {
        let b = bench(&[]);
        let data = noise(5, 1 << 20);
        write(&b.fs, "old", &data).expect("write");
        fsync(&b.fs, "old").expect("fsync");
        write(&b.fs, "new", &data).expect("write");
        b.device.add(Rule::broken(Op::Write));
        let waiter = before.then(|| fsync_aside(&b.fs, "new"));
        if before {
            until("the suspension", || b.pool.suspended().is_some());
        }
        let pool = b.pool.clone();
        let closed = aside(move || if export { pool.export() } else { pool.close() });
        let error = closed
            .recv_timeout(SOON)
            .expect("closing ends")
            .expect_err("not everything is on disk");
        assert!(matches!(error, Error::Suspended { .. }), "{error}");
        if let Some(waiter) = waiter {
            assert!(waiter.recv_timeout(SOON).expect("an answer").is_err());
        }
        let device = b.device.clone();
        drop(b);
        let b = reopened(&device);
        assert_eq!(read(&b.fs, "old").expect("read"), data);
        b.pool.export().expect("export");
    }
}

#[test]
fn a_pool_that_is_given_up_or_impatient_lets_nobody_wait() {
    let b = bench(&[]);
    let data = noise(6, 1 << 20);
    write(&b.fs, "new", &data).expect("write");
    b.device.add(Rule::broken(Op::Write));
    let waiter = fsync_aside(&b.fs, "new");
    until("the suspension", || b.pool.suspended().is_some());
    b.pool.give_up();
    assert!(waiter.recv_timeout(SOON).expect("an answer").is_err());
    assert!(b.pool.close().is_err());

    let b = reopened(&b.device);
    b.pool.set_wait_for_clear(false);
    write(&b.fs, "again", &data).expect("write");
    b.device.add(Rule::broken(Op::Write));
    let answer = fsync_aside(&b.fs, "again").recv_timeout(SOON);
    assert!(answer.expect("an answer").is_err());
    assert!(b.pool.close().is_err());
}

#[test]
fn a_copy_that_cannot_be_read_is_read_elsewhere_and_repaired() {
    for fault in [Fault::Rot, Fault::Fail(Errno::IO)] {
        let b = bench(&[("copies", "2")]);
        let data = noise(7, 1 << 20);
        write(&b.fs, "file", &data).expect("write");
        b.pool.export().expect("export");
        let device = b.device.clone();
        drop(b);
        let b = reopened(&device);
        // The first half of the reads of the data fail: first copies, some metadata.
        let rule = b.device.add(
            Rule::new(Op::Read, fault)
                .within(Span::new(DATA, 1 << 30))
                .times(1),
        );
        assert_eq!(read(&b.fs, "file").expect("another copy"), data);
        assert_eq!(b.device.fired(rule), 1, "nothing was wrong");
        let status = b.pool.vdev_status();
        let counted = format!("{status:?}");
        assert!(b.pool.suspended().is_none(), "{counted}");
        b.device.clear();
        assert_eq!(read(&b.fs, "file").expect("read"), data);
        b.pool.export().expect("export");
    }
}

#[test]
fn what_no_copy_has_is_an_error_that_names_the_place() {
    let b = bench(&[]);
    let data = noise(8, 1 << 20);
    write(&b.fs, "file", &data).expect("write");
    b.pool.export().expect("export");
    let device = b.device.clone();
    drop(b);
    for fault in [Fault::Rot, Fault::Fail(Errno::IO)] {
        let b = reopened(&device);
        let znode =
            b.fs.resolve(&Credentials::root(), b"file")
                .expect("the file is found");
        let mut bytes = vec![0; data.len()];
        b.device
            .add(Rule::new(Op::Read, fault).within(Span::new(DATA, 1 << 30)));
        let error = b.fs.read(&znode, 0, &mut bytes).expect_err("unreadable");
        assert_eq!(error.errno(), Errno::IO, "{error}");
        assert!(
            matches!(error, Error::Device { .. } | Error::Corrupt { .. }),
            "{error}"
        );
        let text = error.to_string();
        let placed = text.contains("object") || text.contains("mem");
        assert!(placed, "no place in: {text}");
        assert!(b.pool.suspended().is_none(), "a read does not suspend");
        b.device.clear();
        assert_eq!(read(&b.fs, "file").expect("read"), data);
        b.pool.export().expect("export");
    }
}

/// A pool on three devices that can fail, with a file of 40 blocks, exported.
fn three(shape: Shape) -> Vec<Arc<FaultyDevice>> {
    let device = |i| {
        Arc::new(FaultyDevice::new(Arc::new(MemDevice::new(
            format!("/d/{i}"),
            SIZE,
        ))))
    };
    let devices: Vec<_> = (0..3).map(device).collect();
    let spec = |d: &Arc<FaultyDevice>| VdevSpec {
        device: d.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let top = TopSpec {
        shape,
        devices: 3,
        class: VdevClass::Normal,
    };
    let specs = devices.iter().map(spec).collect();
    let pool = zuse::Pool::create_with_layout(Environment::default(), "tank", specs, &[top], &[])
        .expect("create");
    write(
        &pool.file_system("tank").expect("file system"),
        "f",
        &noise(1, 40 << 17),
    )
    .expect("write");
    for (name, value) in [("io_n", "3"), ("checksum_n", "4")] {
        let vdev = pool.vdev_guids()[usize::from(name == "io_n") + 1];
        pool.set_vdev_property(vdev, name, value).expect("set");
    }
    pool.export().expect("export");
    devices
}

fn open_three(devices: &[Arc<FaultyDevice>]) -> Arc<zuse::Pool> {
    let devices: Vec<Arc<dyn BlockDevice>> = devices.iter().map(|d| d.clone() as _).collect();
    let access = PoolAccess {
        writable: true,
        ..PoolAccess::default()
    };
    open_whole(Environment::default(), &devices, &access).expect("open")
}

fn words(pool: &zuse::Pool) -> Vec<&'static str> {
    let top = &pool.vdev_status().children[0];
    top.children.iter().map(|c| c.health.word()).collect()
}

#[test]
fn so_many_errors_as_the_properties_of_vdevs_say_are_too_many() {
    let devices = three(Shape::Mirror);
    let data = noise(1, 40 << 17);
    let pool = open_three(&devices);
    // Three I/O errors, as set on the first device; four checksum errors, as set on its top-level
    // vdev.
    devices[0].add(Rule::broken(Op::Read).times(3));
    let rot = Rule::new(Op::Read, Fault::Rot).within(Span::new(DATA, SIZE - 2 * DATA));
    devices[1].add(rot.times(4));
    let fs = pool.file_system("tank").expect("file system");
    assert_eq!(read(&fs, "f").expect("read"), data);
    until("errors are counted", || {
        words(&pool) == ["FAULTED", "DEGRADED", "ONLINE"]
    });
    let status = pool.vdev_status();
    let why = status.children[0].children[0].health.why;
    assert_eq!(why.note(), "too many errors");
    assert_eq!(status.health.word(), "DEGRADED");
    pool.export().expect("export");
    // The next open starts with new counts.
    let pool = open_three(&devices);
    assert_eq!(words(&pool), ["ONLINE"; 3]);
    // A later setting applies at once: one error is too many. The first device lacks what was
    // written without it, so the second stays.
    let second = pool.vdev_guids()[3];
    pool.set_vdev_property(second, "io_n", "1").expect("set");
    devices[1].add(Rule::broken(Op::Read).times(1));
    let fs = pool.file_system("tank").expect("file system");
    assert_eq!(read(&fs, "f").expect("read"), data);
    assert_eq!(words(&pool), ["ONLINE", "DEGRADED", "ONLINE"]);
    pool.clear(None).expect("clear");
    assert_eq!(words(&pool), ["ONLINE"; 3]);
    pool.close().expect("close");
}

#[test]
fn a_child_of_raidz_that_sits_out_is_not_read() {
    let devices = three(Shape::Raidz { nparity: 1 });
    let pool = open_three(&devices);
    let guids = pool.vdev_guids();
    let reads = || {
        let top = &pool.vdev_status().children[0];
        top.children.iter().map(|c| c.reads).collect::<Vec<_>>()
    };
    assert!(pool.set_vdev_property(guids[1], "sit_out", "on").is_err());
    pool.set_vdev_property(guids[3], "sit_out", "on")
        .expect("set");
    let found = pool.vdev_properties(&guids[3..4], Some(&["sit_out".into()]));
    let found = found.expect("get")[0].properties[0].value.clone();
    assert_eq!(found.as_deref(), Some("on"));
    let before = reads();
    let fs = pool.file_system("tank").expect("file system");
    assert_eq!(read(&fs, "f").expect("read"), noise(1, 40 << 17));
    let after = reads();
    assert_eq!(after[1], before[1]);
    assert!(after[0] > before[0] && after[2] > before[2]);
    pool.export().expect("export");
}

#[test]
fn a_discard_that_fails_or_does_nothing_harms_nobody() {
    for fault in [Fault::Fail(Errno::IO), Fault::Lose] {
        let b = bench(&[]);
        b.pool.spa().set_autotrim(true);
        b.device.add(Rule::new(Op::Discard, fault));
        let data = noise(9, 1 << 20);
        for i in 0..8 {
            let name = format!("f{i}");
            write(&b.fs, &name, &data).expect("write");
            fsync(&b.fs, &name).expect("fsync");
            let root = Credentials::root();
            b.fs.unlink(&root, &b.fs.root().expect("root"), name.as_bytes())
                .expect("unlink");
        }
        write(&b.fs, "kept", &data).expect("write");
        b.pool.export().expect("export");
        let device = b.device.clone();
        drop(b);
        let b = reopened(&device);
        assert_eq!(read(&b.fs, "kept").expect("read"), data);
        b.pool.export().expect("export");
    }
}

#[test]
fn a_pool_that_is_suspended_anywhere_in_a_txg_can_be_looked_at() {
    // Ten records, each a write of its own; their metadata needs a few more.
    const LEN: usize = 1_300_000;
    let mut suspended = 0;
    for skip in (0..12).chain((12..60).step_by(4)) {
        let b = bench(&[]);
        let data = noise(10, LEN);
        write(&b.fs, "old", &data).expect("write");
        fsync(&b.fs, "old").expect("fsync");
        b.pool
            .create_filesystem("tank/child", &[], (0, 0))
            .expect("create");
        write(&b.fs, "new", &data).expect("write");
        b.device.add(Rule::broken(Op::Write).after(skip));
        // A sync task in the same txg: it changes what the lookers look at.
        let pool = b.pool.clone();
        let admin = aside(move || pool.create_filesystem("tank/other", &[], (0, 0)).map(drop));
        let waiter = fsync_aside(&b.fs, "new");
        until("an end", || {
            b.pool.suspended().is_some() || waiter_is_done(&b)
        });
        if b.pool.suspended().is_some() {
            suspended += 1;
        }
        let (pool, fs) = (b.pool.clone(), b.fs.clone());
        let looked = aside(move || -> Result<usize> {
            let _ = (pool.vdev_status(), pool.config(), pool.spa().space());
            let n = pool.list("tank", None, ListedKinds::WITH_SNAPSHOTS)?.len();
            pool.dataset("tank/child")?.property("compression")?;
            assert_eq!(read(&fs, "old")?.len(), LEN);
            assert_eq!(read(&fs, "new")?.len(), LEN);
            fs.getattr(&*fs.root()?);
            Ok(n)
        });
        let n = looked
            .recv_timeout(SOON)
            .unwrap_or_else(|_| panic!("write {skip}: who only looks waits, too"))
            .expect("look");
        assert!(n >= 2);
        b.device.clear();
        b.pool.clear(None).expect("clear");
        waiter
            .recv_timeout(SOON)
            .expect("an answer")
            .expect("fsync");
        if let Err(error) = admin.recv_timeout(SOON).expect("an answer") {
            // It began when the pool was suspended already.
            assert!(matches!(error, Error::Suspended { .. }), "{error}");
        }
        b.pool.export().expect("export");
    }
    assert!(suspended > 5, "only {suspended} txgs were suspended");
}

/// Whether nothing is left to write for the file.
fn waiter_is_done(b: &Bench) -> bool {
    let Ok(znode) = b.fs.resolve(&Credentials::root(), b"new") else {
        return false;
    };
    b.fs.dirty_txg(&znode).is_none()
}

#[test]
fn a_batch_that_cannot_read_the_mos_ends_its_savepoint() {
    let b = bench(&[]);
    for name in ["tank/a", "tank/b"] {
        let made = b.pool.create_filesystem(name, &[], (0, 0));
        made.expect("created");
    }
    let Bench { device, pool, fs } = b;
    drop(fs);
    pool.close().expect("closed");
    let Bench { device, pool, fs } = reopened(&device);
    pool.drop_cache();
    let broken = device.clone();
    let failed = pool.dsl().batch(true, move |batch| {
        broken.add(Rule::broken(Op::Read));
        let found = batch.entry("tank/a").map(drop);
        broken.clear();
        found
    });
    assert!(failed.is_err(), "it was not read from the device");
    let next = pool.dsl().batch(true, |batch| batch.entry("tank/b"));
    assert!(next.expect("a batch").expect("read").is_some());
    // What is freed now is freed, and not noted for the savepoint.
    pool.destroy_dataset("tank/a", Default::default())
        .expect("destroyed");
    drop(fs);
    pool.close().expect("closed");
    let checked = reopened(&device);
    let report = zuse_check::check(checked.pool.spa(), zuse_check::Depth::All).expect("check");
    assert!(
        report.not_of_labels().is_empty(),
        "{:?}",
        report.not_of_labels()
    );
}

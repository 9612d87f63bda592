//! A scrub repairs errors on any device, in real pools on files.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{
    Credentials, Environment, LastScan, NewDevice, NewPool, Pool, PoolAccess, Search, Shape,
    TopSpec, Txg, VdevClass,
};

const SIZE: u64 = 128 << 20;
const FILES: u8 = 12;

struct Place {
    dir: tempfile::TempDir,
    devices: usize,
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state ^ state >> 29).to_le_bytes()
    });
    words.take(len).collect()
}

fn content(n: u8) -> Vec<u8> {
    // Odd ones are one block.
    let len = if n % 2 == 1 { 60_000 } else { 300_000 };
    noise(u64::from(n) + 1, len + usize::from(n) * 1000)
}

impl Place {
    fn new(devices: usize) -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            devices,
        }
    }

    fn image(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("{n}.img"))
    }

    /// A pool with some files, a snapshot, and other files after it.
    fn create(&self, layout: &[TopSpec], copies: &str) -> Arc<Pool> {
        let devices = (0..self.devices).map(|n| NewDevice {
            path: self.image(n),
            make: Some(SIZE),
        });
        let new = NewPool {
            name: "tank".into(),
            devices: devices.collect(),
            layout: layout.to_vec(),
            root_properties: vec![("copies".into(), copies.into())],
            ..NewPool::default()
        };
        let pool = Pool::create(Environment::default(), &new).expect("made");
        self.write(&pool, 0..FILES / 2);
        let snapshot = ["tank@one".to_owned()];
        pool.dsl().snapshot(&snapshot, false, &[]).expect("taken");
        self.write(&pool, FILES / 2..FILES);
        pool.sync().expect("synced");
        pool
    }

    fn write(&self, pool: &Arc<Pool>, files: std::ops::Range<u8>) {
        let fs = pool.file_system("tank").expect("opens");
        let (root, top) = (Credentials::root(), fs.root().expect("a root"));
        for n in files {
            let name = format!("file{n}");
            let file = fs.create(&root, &top, name.as_bytes(), 0o644);
            let file = file.expect("made");
            fs.write(&file, 0, &content(n), Default::default())
                .expect("written");
        }
    }

    /// Overwrites most of a device with noise.
    fn spoil(&self, device: usize) {
        let file = OpenOptions::new().write(true).open(self.image(device));
        let file = file.expect("opens");
        let junk = noise(77 + device as u64, 1 << 20);
        for at in (4 << 20..SIZE - (1 << 20)).step_by(1 << 20) {
            file.write_all_at(&junk, at).expect("written");
        }
    }

    fn open(&self) -> Arc<Pool> {
        let scan = Search::new([self.dir.path()]).run();
        let access = PoolAccess {
            writable: true,
            ours: true,
            ..PoolAccess::default()
        };
        Pool::open(Environment::default(), &scan.pools[0], &access).expect("opens")
    }
}

fn scrub(pool: &Arc<Pool>) -> LastScan {
    pool.scrub(Txg::ZERO, None).expect("begun");
    pool.finish_scan().expect("done");
    let scan = pool.scan().expect("there was one");
    assert_eq!(scan.state, zuse::ScanState::Finished, "{scan:?}");
    scan
}

fn check_files(pool: &Arc<Pool>) {
    pool.drop_cache();
    let fs = pool.file_system("tank").expect("opens");
    for n in 0..FILES {
        let file = fs.resolve(&Credentials::root(), format!("file{n}").as_bytes());
        let mut buf = vec![0; content(n).len()];
        fs.read(&file.expect("there"), 0, &mut buf).expect("read");
        assert!(buf == content(n), "file{n}");
    }
}

fn top(shape: Shape, devices: usize) -> TopSpec {
    TopSpec {
        shape,
        devices,
        class: VdevClass::Normal,
    }
}

/// Devices `spoiled` are overwritten while the pool is open: one scrub repairs them all.
fn repairs(layout: &[TopSpec], spoiled: &[usize]) {
    let devices = layout.iter().map(|t| t.devices).sum();
    let place = Place::new(devices);
    let pool = place.create(layout, "1");
    let whole = scrub(&pool);
    assert_eq!((whole.processed, whole.errors), (0, 0), "{layout:?}");
    spoiled.iter().for_each(|d| place.spoil(*d));
    let first = scrub(&pool);
    assert!(
        first.processed > 0 && first.errors == 0,
        "{layout:?} {first:?}"
    );
    let second = scrub(&pool);
    assert_eq!(second.processed, 0, "{layout:?} {second:?}");
    check_files(&pool);
    assert_eq!(pool.lost_blocks().expect("a log"), 0);
    // Other devices can replace the repaired ones: no error was left.
    pool.export().expect("exported");
    let pool = place.open();
    let others = (0..devices).filter(|d| !spoiled.contains(d));
    others.take(spoiled.len()).for_each(|d| place.spoil(d));
    check_files(&pool);
    let last = scrub(&pool);
    assert_eq!(last.errors, 0, "{layout:?} {last:?}");
    pool.export().expect("exported");
}

#[test]
fn a_scrub_repairs_a_mirror() {
    repairs(&[top(Shape::Mirror, 2)], &[1]);
    repairs(&[top(Shape::Mirror, 3)], &[0]);
}

#[test]
fn a_scrub_repairs_as_many_devices_as_there_is_parity() {
    repairs(&[top(Shape::Raidz { nparity: 1 }, 4)], &[2]);
    repairs(&[top(Shape::Raidz { nparity: 2 }, 5)], &[0, 3]);
    repairs(&[top(Shape::Raidz { nparity: 3 }, 7)], &[1, 4, 6]);
}

#[test]
fn a_scrub_repairs_draid() {
    let shape = Shape::Draid {
        nparity: 1,
        ndata: Some(2),
        nspares: 1,
    };
    repairs(&[top(shape, 5)], &[1]);
}

#[test]
fn a_copy_of_a_block_repairs_the_other_and_what_has_none_is_named() {
    let place = Place::new(1);
    let pool = place.create(&[], "1");
    let file = OpenOptions::new().write(true).open(place.image(0));
    let file = file.expect("opens");
    // The data of one file of the snapshot, and of one that came later.
    for n in [1, FILES - 1] {
        let fs = pool.file_system("tank").expect("opens");
        let path = format!("file{n}");
        let znode = fs.resolve(&Credentials::root(), path.as_bytes());
        let dva = znode.expect("there").dnode().block_pointers()[0].dva(0);
        file.write_all_at(&noise(5, 4096), dva.offset() + (4 << 20))
            .expect("written");
    }
    let scan = scrub(&pool);
    assert_eq!((scan.errors, scan.processed), (2, 0), "{scan:?}");
    let named = |pool: &Arc<Pool>| {
        let found = pool.damage().expect("a log");
        let mut names: Vec<String> = found.iter().map(ToString::to_string).collect();
        names.sort();
        names
    };
    let last = format!("tank:/file{}", FILES - 1);
    let expected = ["tank:/file1", last.as_str(), "tank@one:/file1"];
    assert_eq!(named(&pool), expected);
    let again = scrub(&pool);
    assert_eq!(again.errors, 2);
    assert_eq!(named(&pool), expected);
    pool.export().expect("exported");

    let place = Place::new(1);
    let pool = place.create(&[], "2");
    let fs = pool.file_system("tank").expect("opens");
    let znode = fs.resolve(&Credentials::root(), b"file1").expect("there");
    let bp = znode.dnode().block_pointers()[0];
    let file = OpenOptions::new().write(true).open(place.image(0));
    let file = file.expect("opens");
    file.write_all_at(&noise(5, 4096), bp.dva(1).offset() + (4 << 20))
        .expect("written");
    let scan = scrub(&pool);
    assert!(scan.errors == 0 && scan.processed > 0, "{scan:?}");
    assert_eq!(scrub(&pool).processed, 0);
    pool.export().expect("exported");
}

#[test]
fn a_scrub_pauses_and_goes_on_and_is_canceled() {
    let place = Place::new(1);
    let pool = place.create(&[], "1");
    assert!(pool.pause_scrub().is_err() && pool.cancel_scan().is_err());
    pool.scrub(Txg::ZERO, None).expect("begun");
    // It may be done by now.
    if pool.pause_scrub().is_ok() {
        assert!(pool.scan().expect("one").paused);
        assert!(pool.pause_scrub().is_err(), "it pauses already");
        pool.export().expect("exported");
        let pool = place.open();
        let scan = pool.scan().expect("one");
        assert!(
            scan.paused && scan.state == zuse::ScanState::Running,
            "{scan:?}"
        );
        pool.scrub(Txg::ZERO, None).expect("goes on");
        pool.finish_scan().expect("done");
        assert_eq!(pool.scan().expect("one").state, zuse::ScanState::Finished);
        assert!(pool.last_scrubbed_txg().expect("noted") > Txg::ZERO);
        pool.export().expect("exported");
    } else {
        pool.export().expect("exported");
    }
}

/// A pool whose scrub takes several batches: 3000 blocks of a file.
fn many_blocks(place: &Place) -> Arc<Pool> {
    let mut env = Environment::default();
    // The least memory: batches of 1024 blocks.
    env.limits.scan_memory_fact = 1 << 20;
    let devices = (0..place.devices).map(|n| NewDevice {
        path: place.image(n),
        make: Some(SIZE),
    });
    let new = NewPool {
        name: "tank".into(),
        devices: devices.collect(),
        layout: vec![top(Shape::Mirror, 2)],
        root_properties: vec![("recordsize".into(), "4K".into())],
        ..NewPool::default()
    };
    let pool = Pool::create(env, &new).expect("made");
    let fs = pool.file_system("tank").expect("opens");
    let (root, dir) = (Credentials::root(), fs.root().expect("a root"));
    let file = fs.create(&root, &dir, b"large", 0o644).expect("made");
    let bytes = noise(3, 3000 * 4096);
    fs.write(&file, 0, &bytes, Default::default())
        .expect("written");
    pool.sync().expect("synced");
    pool
}

#[test]
fn a_scrub_goes_on_where_it_was_and_meets_each_block_once() {
    let place = Place::new(2);
    let pool = many_blocks(&place);
    let whole = {
        let scan = scrub(&pool);
        assert_eq!((scan.processed, scan.errors), (0, 0));
        scan.examined
    };
    place.spoil(1);
    pool.dsl()
        .begin_scan(zuse_dsl::NewScan::Scrub(Txg::ZERO, None))
        .expect("begun");
    let mut seen = vec![0];
    for round in 0..2 {
        pool.scan_batches(1).expect("a batch");
        let scan = pool.scan().expect("one");
        assert_eq!(scan.state, zuse::ScanState::Running, "{scan:?}");
        assert!(scan.examined > seen[seen.len() - 1], "{scan:?}");
        seen.push(scan.examined);
        // Concurrent changes do not affect the checked files.
        let name = format!("tank@s{}", seen.len());
        let snapshot = [name.clone()];
        pool.dsl().snapshot(&snapshot, false, &[]).expect("taken");
        if seen.len() == 3 {
            pool.dsl().destroy(&name, false, false).expect("destroyed");
        }
        place.write(&pool, round..round + 1);
        pool.sync().expect("synced");
    }
    pool.export().expect("exported");
    let pool = place.open();
    // The thread may have begun by now.
    let scan = pool.scan().expect("one");
    assert!(scan.examined >= seen[2], "{scan:?}");
    pool.finish_scan().expect("done");
    let scan = pool.scan().expect("one");
    assert!(
        scan.state == zuse::ScanState::Finished && scan.errors == 0,
        "{scan:?}"
    );
    let (low, high) = (whole - whole / 20, whole + whole / 4);
    assert!((low..high).contains(&scan.examined), "{whole}, {scan:?}");
    let second = scrub(&pool);
    assert_eq!((second.processed, second.errors), (0, 0), "{second:?}");
    pool.export().expect("exported");
}

#[test]
fn what_was_repaired_before_a_pause_is_counted() {
    let place = Place::new(2);
    let pool = many_blocks(&place);
    place.spoil(1);
    let whole = scrub(&pool).processed;
    place.spoil(1);
    pool.scrub(Txg::ZERO, None).expect("begun");
    let seen = loop {
        let scan = pool.scan().expect("one");
        if scan.processed > 0 || scan.state != zuse::ScanState::Running {
            break scan.processed;
        }
        std::thread::yield_now();
    };
    // It may be done by now.
    if pool.pause_scrub().is_ok() {
        let paused = pool.scan().expect("one");
        assert!(paused.processed >= seen, "{seen} before, {paused:?}");
        pool.scrub(Txg::ZERO, None).expect("goes on");
    }
    pool.finish_scan().expect("done");
    let scan = pool.scan().expect("one");
    assert!(scan.processed >= whole - whole / 20, "{whole}, {scan:?}");
    assert_eq!(scrub(&pool).processed, 0);
    pool.export().expect("exported");
}

#[test]
fn blocks_that_are_freed_while_a_batch_is_verified_are_no_damage() {
    let place = Place::new(2);
    let pool = many_blocks(&place);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (other, ended) = (pool.clone(), stop.clone());
    let writer = std::thread::spawn(move || {
        let fs = other.file_system("tank").expect("opens");
        let file = fs.resolve(&Credentials::root(), b"large").expect("there");
        let mut n = 0u64;
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            let at = n * 977 % 3000 * 4096;
            fs.write(&file, at, &noise(n, 64 << 10), Default::default())
                .expect("written");
            n += 1;
            if n.is_multiple_of(20) {
                other.sync().expect("synced");
            }
        }
    });
    for _ in 0..4 {
        let scan = scrub(&pool);
        assert_eq!((scan.processed, scan.errors), (0, 0), "{scan:?}");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().expect("it wrote");
    assert!(!pool.vdev_status().has_errors());
    pool.export().expect("exported");
}

//! Pools of every layout whose devices are overwritten with noise while they are written and read.
//! First as many devices as the redundancy allows, then one more.
//!
//! - Within the redundancy no read fails, one scrub repairs everything, and a second one finds
//!   nothing.
//! - With one more device the damaged files are named, and all others can be read. No read returns
//!   other bytes.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, Errno, LastScan, Offline, Pool, Shape, TopSpec, Txg};
use zuse::{PoolAccess, VdevClass};
use zuse_base::{Entropy, Error, SeededPrng, ZEROS};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::{AttachDevice, Environment, Purpose, VdevSpec};
use zuse_sim::golden::open_whole;
use zuse_zpl::WriteOptions;

const SIZE: u64 = 64 << 20;
/// Where labels end and blocks begin; two labels are at the end.
const DATA: u64 = 4 << 20;
const PIECE: usize = 4096;
/// Files from before the damage.
const FILES: u64 = 10;

type Device = Arc<MemDevice>;

fn root() -> Credentials {
    Credentials::root()
}

fn bytes_of(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; (number * number * 7919 % 200_000) as usize + 20_000];
    SeededPrng::new(number).fill(&mut bytes);
    bytes
}

fn write(fs: &Arc<FileSystem>, numbers: std::ops::Range<u64>) {
    let dir = fs.root().expect("root");
    for i in numbers {
        let name = format!("f{i}");
        let file = match fs.create(&root(), &dir, name.as_bytes(), 0o644) {
            Err(e) if e.is(Errno::EXIST) => fs.resolve(&root(), name.as_bytes()),
            made => made,
        };
        let file = file.expect("a file");
        fs.write(&file, 0, &bytes_of(i), WriteOptions::default())
            .expect("written");
    }
}

/// The content of a file; a failed read is an error.
fn read(fs: &Arc<FileSystem>, number: u64) -> zuse::Result<Vec<u8>> {
    let file = fs.resolve(&root(), format!("f{number}").as_bytes())?;
    let mut bytes = vec![0; file.size() as usize];
    let n = fs.read(&file, 0, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

fn verify(fs: &Arc<FileSystem>, numbers: std::ops::Range<u64>, what: &str) {
    for i in numbers {
        let bytes = read(fs, i).unwrap_or_else(|e| panic!("{what}, f{i}: {e}"));
        assert!(bytes == bytes_of(i), "{what}, f{i}");
    }
}

fn top(shape: Shape, devices: usize, class: VdevClass) -> TopSpec {
    TopSpec {
        shape,
        devices,
        class,
    }
}

fn make(all: &[Device], layout: &[TopSpec]) -> Arc<Pool> {
    let specs = all.iter().map(|device| VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    });
    let properties = [("compression", "off"), ("special_small_blocks", "8K")];
    let properties = properties.map(|(n, v)| (n.to_owned(), v.to_owned()));
    let env = Environment::default();
    Pool::create_with_layout(env, "tank", specs.collect(), layout, &properties).expect("made")
}

fn open(all: &[Device]) -> Arc<Pool> {
    let access = PoolAccess {
        writable: true,
        ours: true,
        ..PoolAccess::default()
    };
    let all: Vec<Arc<dyn BlockDevice>> = all
        .iter()
        .map(|d| d.clone() as Arc<dyn BlockDevice>)
        .collect();
    open_whole(Environment::default(), &all, &access).expect("opened")
}

/// Writes noise over used parts of a device that `choose` selects.
fn spoil(device: &Device, prng: &SeededPrng, choose: impl Fn(&[u8]) -> bool) -> usize {
    let (mut piece, mut count) = (vec![0; PIECE], 0);
    for at in (DATA..SIZE - (1 << 20)).step_by(PIECE) {
        device.read_at(&mut piece, at).expect("read");
        if piece[..] != ZEROS[..PIECE] && choose(&piece) {
            prng.fill(&mut piece);
            device.write_at(&piece, at).expect("written");
            count += 1;
        }
    }
    count
}

/// Two writers and a reader, while something happens.
fn while_busy(pool: &Arc<Pool>, fs: &Arc<FileSystem>, what: &str, happens: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let write_on = |first: u64| {
        let mut next = first;
        while !done.load(Relaxed) && next < first + 20 {
            write(fs, next..next + 1);
            pool.sync().expect("synced");
            next += 1;
        }
        next
    };
    std::thread::scope(|scope| {
        let writers = [100, 200].map(|first| scope.spawn(move || (first, write_on(first))));
        scope.spawn(|| {
            while !done.load(Relaxed) {
                pool.drop_cache();
                verify(fs, 0..FILES, what);
            }
        });
        happens();
        done.store(true, Relaxed);
        for writer in writers {
            let (first, next) = writer.join().expect("written");
            verify(fs, first..next, what);
        }
    });
    pool.sync().expect("synced");
}

fn scrub(pool: &Arc<Pool>) -> LastScan {
    pool.scrub(Txg::ZERO, None).expect("begun");
    pool.finish_scan().expect("done");
    let scan = pool.scan().expect("there was one");
    assert_eq!(scan.state, zuse::ScanState::Finished, "{scan:?}");
    scan
}

fn sound(pool: &Pool, what: &str) {
    // The writes that follow from the last txg are done, and the pool is idle.
    (0..3).for_each(|_| pool.sync().expect("synced"));
    let report = check(pool.spa(), Depth::All).expect("checked");
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
}

/// As many devices as the layout allows are noise, and no read fails.
fn bears(pool: &Arc<Pool>, all: &[Device], wrong: &[usize], what: &str) {
    let fs = pool.file_system("tank").expect("a file system");
    let prng = SeededPrng::new(7);
    while_busy(pool, &fs, what, || {
        for i in wrong {
            assert!(spoil(&all[*i], &prng, |_| true) > 0, "{what}: device {i}");
        }
        pool.drop_cache();
    });
    let first = scrub(pool);
    assert!(
        first.processed > 0 && first.errors == 0,
        "{what}: {first:?}"
    );
    let second = scrub(pool);
    let found = (second.processed, second.errors);
    assert_eq!(found, (0, 0), "{what}: {second:?}");
    assert!(pool.damage().expect("the log").is_empty(), "{what}");
    sound(pool, what);
    pool.drop_cache();
    verify(&fs, 0..FILES, what);
}

/// Each file can be read, or fails and is named. Returns how many fail.
fn named_or_right(pool: &Arc<Pool>, fs: &Arc<FileSystem>, what: &str) -> usize {
    let named: HashSet<String> = pool
        .damage()
        .expect("the log")
        .iter()
        .map(ToString::to_string)
        .collect();
    pool.drop_cache();
    let mut lost = 0;
    for i in 0..FILES {
        match read(fs, i) {
            Ok(bytes) => assert!(bytes == bytes_of(i), "{what}, f{i}: other bytes"),
            Err(e) => {
                let corrupt = matches!(e, Error::Corrupt { .. } | Error::Device { .. });
                assert!(corrupt, "{what}, f{i}: {e}");
                let name = format!("tank:/f{i}");
                assert!(named.contains(&name), "{what}: {name} is not in {named:?}");
                lost += 1;
            }
        }
    }
    assert!(named.len() >= lost, "{what}");
    lost
}

/// With one device more some files are lost.
fn one_more(pool: &Arc<Pool>, all: &[Device], wrong: &[usize], what: &str) {
    let prng = SeededPrng::new(9);
    for i in wrong {
        spoil(&all[*i], &prng, |_| true);
    }
    // Blocks of some files' data, so that the metadata of the others is intact.
    let some = (0..FILES).step_by(3).map(bytes_of);
    let data: HashSet<Vec<u8>> = some
        .flat_map(|bytes| bytes.chunks(PIECE).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    let mut others = all.iter().enumerate().filter(|(i, _)| !wrong.contains(i));
    let more = others.find(|(_, d)| spoil(d, &prng, |piece| data.contains(piece)) > 0);
    let (_, more) = more.expect("another device has some data");
    pool.drop_cache();
    let fs = pool.file_system("tank").expect("a file system");
    let scan = scrub(pool);
    assert!(scan.errors > 0 && scan.processed > 0, "{what}: {scan:?}");
    let lost = named_or_right(pool, &fs, what);
    assert!(lost > 0 && lost < FILES as usize, "{what}: {lost}");
    let again = scrub(pool);
    assert_eq!(again.processed, 0, "{what}: {again:?}");
    assert!(again.errors > 0, "{what}: {again:?}");
    assert_eq!(named_or_right(pool, &fs, what), lost, "{what}");
    // Other data, including metadata. No read invents bytes, and nothing panics.
    for i in wrong {
        spoil(&all[*i], &prng, |_| true);
    }
    spoil(more, &prng, |_| prng.chance(1, 30));
    pool.drop_cache();
    if pool.scrub(Txg::ZERO, None).is_ok() && pool.scan_batches(50).is_ok() {
        assert!(pool.scan().is_some_and(|scan| scan.errors > 0), "{what}");
    }
    pool.drop_cache();
    for i in 0..FILES {
        if let Ok(bytes) = read(&fs, i) {
            assert!(bytes == bytes_of(i), "{what}, f{i}: other bytes");
        }
    }
}

fn life(layout: &[TopSpec], wrong: &[usize]) {
    let what = format!("{layout:?}");
    let devices = layout.iter().map(|top| top.devices).sum();
    let all: Vec<Device> = (0..devices)
        .map(|i| Arc::new(MemDevice::new(format!("/d/{i}"), SIZE)))
        .collect();
    let pool = make(&all, layout);
    let fs = pool.file_system("tank").expect("a file system");
    write(&fs, 0..FILES);
    drop(fs);
    pool.sync().expect("synced");
    bears(&pool, &all, wrong, &what);
    pool.export().expect("exported");
    let pool = open(&all);
    assert!(!pool.vdev_status().has_errors(), "{what}");
    one_more(&pool, &all, wrong, &what);
    let _ = pool.close();
}

#[test]
fn mirrors_are_repaired_and_what_all_halves_lost_is_named() {
    life(&[top(Shape::Mirror, 2, VdevClass::Normal)], &[0]);
    life(&[top(Shape::Mirror, 3, VdevClass::Normal)], &[0, 2]);
}

#[test]
fn raidz_is_repaired_up_to_its_parity_and_what_is_lost_beyond_is_named() {
    let raidz = |nparity, n| [top(Shape::Raidz { nparity }, n, VdevClass::Normal)];
    life(&raidz(1, 3), &[1]);
    life(&raidz(2, 4), &[0, 3]);
    life(&raidz(3, 5), &[0, 2, 4]);
}

#[test]
fn each_class_of_vdevs_is_repaired_by_itself() {
    let layout = [
        top(Shape::Raidz { nparity: 1 }, 3, VdevClass::Normal),
        top(Shape::Mirror, 2, VdevClass::Special),
        top(Shape::Mirror, 2, VdevClass::Log),
    ];
    life(&layout, &[2, 3]);
}

const DRAID: Shape = Shape::Draid {
    nparity: 1,
    ndata: Some(2),
    nspares: 1,
};

#[test]
fn draid_is_repaired_up_to_its_parity() {
    life(&[top(DRAID, 5, VdevClass::Normal)], &[2]);
}

/// Resilvers. Replaced devices leave in the txgs that follow.
fn resilver(pool: &Arc<Pool>) {
    pool.restart_resilver().expect("begun");
    pool.finish_scan().expect("done");
    (0..3).for_each(|_| pool.sync().expect("synced"));
}

#[test]
fn a_distributed_spare_holds_what_a_failed_device_had() {
    let all: Vec<Device> = (0..5)
        .map(|i| Arc::new(MemDevice::new(format!("/d/{i}"), SIZE)))
        .collect();
    let pool = make(&all, &[top(DRAID, 5, VdevClass::Normal)]);
    let fs = pool.file_system("tank").expect("a file system");
    write(&fs, 0..FILES);
    pool.sync().expect("synced");
    let failed = pool.vdev_by_name("/d/1").expect("a device");
    let how = Offline {
        fault: true,
        temporary: false,
    };
    pool.offline(failed, how).expect("faulted");
    let spare = pool.spares().expect("spares").remove(0);
    assert!(spare.is_distributed && !spare.in_use, "{spare:?}");
    let stand_in = AttachDevice::Spare(spare.guid, None);
    pool.spa()
        .attach_device(failed, &stand_in, Purpose::Replace, false)
        .expect("it stands in");
    resilver(&pool);
    assert!(pool.spares().expect("spares")[0].in_use);
    // Another device can be noise now.
    bears(&pool, &all, &[3], "with a distributed spare in use");
    drop(fs);
    pool.export().expect("exported");
    let pool = open(&all);
    let fs = pool.file_system("tank").expect("a file system");
    verify(&fs, 0..FILES, "opened again");
    // The device returns and is resilvered, and the spare is free again.
    let device: Arc<dyn BlockDevice> = all[1].clone();
    pool.spa().set_reopen(move |_, _| Some(device.clone()));
    let failed = pool.vdev_by_name("/d/1").expect("a device");
    pool.online(failed).expect("online");
    resilver(&pool);
    assert!(!pool.spares().expect("spares")[0].in_use);
    assert_eq!(pool.health_word(), "ONLINE");
    bears(&pool, &all, &[3], "with the device that came back");
    drop(fs);
    pool.export().expect("exported");
}

//! Whole pools on every kind of vdev: created, filled, exported, opened with disks missing and
//! damaged, written further.

use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, PoolAccess, Shape, TopSpec, VdevClass};
use zuse_base::{Entropy, SeededPrng};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, FaultyDevice, MemDevice, Op, Rule};
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::golden::{Golden, open_whole};
use zuse_zpl::WriteOptions;

const SIZE: u64 = 128 << 20;
/// Where labels end and blocks begin.
const DATA: u64 = 4 << 20;

fn root() -> Credentials {
    Credentials::root()
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SeededPrng::new(seed).fill(&mut bytes);
    bytes
}

/// Files of many sizes; each a function of its number.
fn write(fs: &Arc<FileSystem>, numbers: std::ops::Range<u64>) {
    let dir = fs.root().expect("root");
    for i in numbers {
        let data = noise(i, (i * i * 1777 % 700_000) as usize + 1);
        let name = format!("f{i}");
        let file = fs
            .create(&root(), &dir, name.as_bytes(), 0o644)
            .expect("create");
        fs.write(&file, 0, &data, WriteOptions::default())
            .expect("write");
    }
}

fn verify(fs: &Arc<FileSystem>, numbers: std::ops::Range<u64>, what: &str) {
    for i in numbers {
        let data = noise(i, (i * i * 1777 % 700_000) as usize + 1);
        let file = fs
            .resolve(&root(), format!("f{i}").as_bytes())
            .expect("resolve");
        let mut bytes = vec![0; file.size() as usize];
        let n = fs
            .read(&file, 0, &mut bytes)
            .unwrap_or_else(|e| panic!("{what}, f{i}: {e}"));
        assert!(n == bytes.len() && bytes == data, "{what}, f{i}");
    }
}

fn disks(n: usize) -> Vec<Arc<dyn BlockDevice>> {
    (0..n)
        .map(|i| Arc::new(MemDevice::new(format!("/d/{i}"), SIZE)) as Arc<dyn BlockDevice>)
        .collect()
}

fn make(disks: &[Arc<dyn BlockDevice>], layout: &[TopSpec], ashift: u8) -> Arc<zuse::Pool> {
    let specs = disks.iter().map(|device| VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(ashift),
    });
    let properties = [("compression", "off"), ("special_small_blocks", "16K")];
    let properties = properties.map(|(n, v)| (n.to_owned(), v.to_owned()));
    let env = Environment::default();
    zuse::Pool::create_with_layout(env, "tank", specs.collect(), layout, &properties)
        .expect("create")
}

fn open(disks: &[Arc<dyn BlockDevice>], writable: bool) -> Arc<zuse::Pool> {
    let access = PoolAccess {
        writable,
        ours: true,
        ..PoolAccess::default()
    };
    open_whole(Environment::default(), disks, &access).expect("open")
}

fn sound(pool: &zuse::Pool, what: &str) {
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{what}: {flaws:?}");
}

/// Overwrites nonzero parts of the data area, except for every third part of 64 KiB.
fn spoil(disk: &Arc<dyn BlockDevice>) {
    let mut piece = vec![0; 64 << 10];
    for (i, at) in (DATA..SIZE - DATA).step_by(piece.len()).enumerate() {
        disk.read_at(&mut piece, at).expect("read");
        if i % 3 != 0 && piece.iter().any(|b| *b != 0) {
            piece.iter_mut().for_each(|b| *b ^= 0x5a);
            disk.write_at(&piece, at).expect("write");
        }
    }
}

fn top(shape: Shape, devices: usize) -> TopSpec {
    TopSpec {
        shape,
        devices,
        class: VdevClass::Normal,
    }
}

/// A pool's life; `spare` of the first disks may be lost or damaged.
fn life(layout: &[TopSpec], ashift: u8, spare: usize) {
    let what = format!("{layout:?}, ashift {ashift}");
    let all = disks(layout.iter().map(|t| t.devices).sum());
    let pool = make(&all, layout, ashift);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..24);
    drop(fs);
    pool.spa().sync_now().expect("sync");
    sound(&pool, &what);
    pool.export().expect("export");
    // Any disks up to the redundancy may be missing. Data written meanwhile is reconstructed when
    // it is read.
    let some = &all[spare..];
    let pool = open(some, true);
    assert_eq!(
        pool.health_word(),
        if spare > 0 { "DEGRADED" } else { "ONLINE" },
        "{what}"
    );
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..24, &what);
    write(&fs, 24..32);
    drop(fs);
    pool.spa().sync_now().expect("sync");
    sound(&pool, &what);
    pool.export().expect("export");
    // They return with their old content: it is read last, never trusted, and not counted as an
    // error.
    let pool = open(&all, true);
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..32, &what);
    let lacking: Vec<bool> = pool
        .spa()
        .vdevs()
        .leaves()
        .iter()
        .map(|l| l.is_outdated())
        .collect();
    assert!(
        lacking.iter().enumerate().all(|(i, l)| *l == (i < spare)),
        "{what}: {lacking:?}"
    );
    assert!(!pool.vdev_status().has_errors(), "{what}");
    drop(fs);
    pool.export().expect("export");
    if spare == 0 {
        return;
    }
    // The others are damaged instead, on a pool that lacks none.
    let all = disks(all.len());
    let pool = make(&all, layout, ashift);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..24);
    drop(fs);
    pool.export().expect("export");
    all[..spare].iter().for_each(spoil);
    let pool = open(&all, true);
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..24, &what);
    assert!(pool.vdev_status().has_errors(), "{what}");
    drop(fs);
    pool.export().expect("export");
}

#[test]
fn mirrors_raidz_and_draid_lose_disks_and_no_file() {
    life(&[top(Shape::Mirror, 3)], 12, 2);
    life(&[top(Shape::Raidz { nparity: 1 }, 3)], 9, 1);
    life(&[top(Shape::Raidz { nparity: 2 }, 5)], 12, 2);
    life(&[top(Shape::Raidz { nparity: 3 }, 7)], 9, 3);
    let draid = |nparity, ndata, nspares| Shape::Draid {
        nparity,
        ndata: Some(ndata),
        nspares,
    };
    life(&[top(draid(1, 2, 1), 7)], 12, 1);
    life(&[top(draid(2, 3, 0), 5)], 9, 2);
}

#[test]
fn a_disk_that_refuses_some_writes_is_known_to_lack_them() {
    let mut all = disks(3);
    let faulty = Arc::new(FaultyDevice::new(all[1].clone()));
    all[1] = faulty.clone();
    let pool = make(&all, &[top(Shape::Raidz { nparity: 1 }, 3)], 12);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..6);
    pool.spa().sync_now().expect("sync");
    faulty.add(Rule::broken(Op::Write).times(3));
    write(&fs, 6..12);
    drop(fs);
    pool.spa().sync_now().expect("sync");
    sound(&pool, "while it is degraded");
    pool.export().expect("export");
    let pool = open(&all, true);
    let lacking: Vec<bool> = pool
        .spa()
        .vdevs()
        .leaves()
        .iter()
        .map(|l| l.is_outdated())
        .collect();
    assert_eq!(lacking, [false, true, false]);
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..12, "after some writes were missed");
    assert!(!pool.vdev_status().has_errors());
    drop(fs);
    pool.export().expect("export");
}

#[test]
fn classes_take_what_they_are_for() {
    let single = |class| TopSpec {
        class,
        ..TopSpec::SINGLE
    };
    let layout = [
        top(Shape::Raidz { nparity: 1 }, 3),
        single(VdevClass::Special),
        single(VdevClass::Dedup),
        single(VdevClass::Log),
    ];
    life(&layout, 12, 0);
    let all = disks(6);
    let pool = make(&all, &layout, 12);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..24);
    drop(fs);
    pool.spa().sync_now().expect("sync");
    let written = |id: usize| pool.vdev_status().children[id].written_bytes;
    // The special vdev has all metadata and the small files, the normal one the large files.
    assert!(
        written(0) > 2 << 20 && written(1) > 100 << 10,
        "{} {}",
        written(0),
        written(1)
    );
    let allocator = pool.spa().allocator().expect("allocator");
    let used = |class| allocator.figures(class).allocated;
    assert!(used(zuse_io::AllocClass::Special) > 100 << 10);
    assert_eq!(
        (
            used(zuse_io::AllocClass::Dedup),
            used(zuse_io::AllocClass::Log)
        ),
        (0, 0)
    );
    pool.export().expect("export");
}

#[test]
fn golden_pools_with_redundancy_are_written_and_stay_sound() {
    for name in [
        "raidz1",
        "raidz2",
        "raidz3",
        "expanded",
        "draid",
        "mirrors",
        "deg-raidz2",
    ] {
        let golden = Golden::load(name);
        let devices = golden.block_devices();
        let access = PoolAccess {
            writable: true,
            force: true,
            ..PoolAccess::default()
        };
        let pool = open_whole(Environment::default(), &devices, &access)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let fs = pool.file_system(&pool.name()).expect("file system");
        write(&fs, 0..12);
        drop(fs);
        pool.spa().sync_now().expect("sync");
        sound(&pool, name);
        let pool_name = pool.name();
        pool.export().expect("export");
        let pool = open(&devices, false);
        let fs = pool.file_system(&pool_name).expect("file system");
        verify(&fs, 0..12, name);
        pool.close().expect("close");
    }
}

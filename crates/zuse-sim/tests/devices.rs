//! Devices come into a pool and leave it, and its guid changes, with the power cut at any moment.
//! Afterwards the pool is as before or as it was to be, whole. `ZUSE_SIM_CUTS` makes it longer.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Credentials, PoolAccess, VdevClass, VdevKind};
use zuse_base::{Entropy, ManualClock, Result, SeededPrng, Timestamp};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_pool::{Environment, Host, NewVdevs, Shape, TopSpec, VdevSpec};
use zuse_sim::memory_pool::narrow;
use zuse_vdev::assemble::{assemble, read_labels};
use zuse_zpl::WriteOptions;

type Devices = Vec<Arc<dyn BlockDevice>>;

const SIZE: u64 = 96 << 20;

/// A change of a pool's devices.
struct Act {
    name: &'static str,
    /// Devices and vdevs of the pool before; the rest of six are blank.
    devices: usize,
    layout: &'static [TopSpec],
    run: fn(&Arc<zuse::Pool>, &Devices) -> Result<()>,
    /// Whether a pool is as it was to be.
    is_done: fn(&zuse::Pool) -> bool,
}

const MIRROR: TopSpec = TopSpec {
    shape: Shape::Mirror,
    devices: 2,
    class: VdevClass::Normal,
};

const fn single(class: VdevClass) -> TopSpec {
    TopSpec {
        class,
        ..TopSpec::SINGLE
    }
}

const LONE: &[TopSpec] = &[TopSpec::SINGLE];
const PAIR: &[TopSpec] = &[MIRROR];
const MIRRORS: &[TopSpec] = &[MIRROR, single(VdevClass::Log), MIRROR];
const WITH_LOG: &[TopSpec] = &[MIRROR, single(VdevClass::Log), TopSpec::SINGLE];

fn spec(device: &Arc<dyn BlockDevice>) -> VdevSpec {
    VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    }
}

fn tops(pool: &zuse::Pool) -> usize {
    pool.config().vdev_tree.children.len()
}

const ACTS: [Act; 6] = [
    Act {
        name: "a vdev for data is added",
        devices: 1,
        layout: LONE,
        run: |pool, devices| {
            pool.spa().add_vdevs(NewVdevs {
                devices: vec![spec(&devices[1])],
                ..NewVdevs::default()
            })
        },
        is_done: |pool| tops(pool) == 2,
    },
    Act {
        name: "vdevs of all classes are added",
        devices: 2,
        layout: PAIR,
        run: |pool, devices| {
            pool.spa().add_vdevs(NewVdevs {
                devices: devices[2..5].iter().map(spec).collect(),
                layout: vec![
                    single(VdevClass::Log),
                    single(VdevClass::Special),
                    single(VdevClass::Dedup),
                ],
                spares: vec![spec(&devices[5])],
                ..NewVdevs::default()
            })
        },
        is_done: |pool| {
            let spares = pool.spa().aux_devices("spares").expect("the list");
            assert_eq!(spares.len() == 1, tops(pool) == 4, "half of it is there");
            tops(pool) == 4
        },
    },
    Act {
        name: "a log vdev is removed",
        devices: 4,
        layout: WITH_LOG,
        run: |pool, _| {
            let log = pool.config().vdev_tree.children[1].guid;
            pool.spa().remove_log(log)
        },
        is_done: |pool| pool.config().vdev_tree.children[1].kind == VdevKind::Hole,
    },
    Act {
        name: "a pool of one device gets another guid",
        devices: 1,
        layout: LONE,
        run: |pool, _| pool.reguid(Some(4711)).map(drop),
        is_done: |pool| pool.guid() == 4711,
    },
    Act {
        name: "a pool of several devices gets another guid",
        devices: 4,
        layout: WITH_LOG,
        run: |pool, _| pool.reguid(Some(4711)).map(drop),
        is_done: |pool| pool.guid() == 4711,
    },
    Act {
        name: "a pool is split",
        devices: 5,
        layout: MIRRORS,
        run: |pool, _| pool.split("half", &[], &[]),
        is_done: |pool| {
            let children = &pool.config().vdev_tree.children;
            children[0].kind == VdevKind::File && children[2].kind == VdevKind::File
        },
    },
];

fn environment(seed: u64) -> Environment {
    Environment {
        clock: Arc::new(ManualClock::new(Timestamp::new(1_700_000_000, 0))),
        entropy: Arc::new(SeededPrng::new(seed)),
        host: Host {
            id: 7,
            name: "sim".into(),
            ..Host::default()
        },
        limits: narrow(64 << 20),
    }
}

fn content() -> Vec<u8> {
    let mut bytes = vec![0; 300_000];
    SeededPrng::new(9).fill(&mut bytes);
    bytes
}

/// Six disks, of which the first ones are a pool with a file.
fn start(act: &Act) -> Vec<MemImage> {
    let disks: Vec<Arc<MemDevice>> = (0..6)
        .map(|i| Arc::new(MemDevice::new(format!("sim{i}"), SIZE)))
        .collect();
    let specs = disks[..act.devices]
        .iter()
        .map(|d| spec(&(d.clone() as Arc<dyn BlockDevice>)))
        .collect();
    let pool = zuse::Pool::create_with_layout(environment(1), "tank", specs, act.layout, &[])
        .expect("made");
    let fs = pool.file_system("tank").expect("a file system");
    let root = fs.root().expect("its root");
    let file = fs.create(&Credentials::root(), &root, b"file", 0o644);
    let file = file.expect("a file");
    fs.write(&file, 0, &content(), WriteOptions::default())
        .expect("written");
    drop((file, root, fs));
    pool.close().expect("closed");
    disks.iter().map(|d| d.snapshot()).collect()
}

/// Does it on disks whose power goes after some operations. Gives what they hold then, and whether
/// it came to its end.
fn cut(act: &Act, images: &[MemImage], after: u64, seed: u64) -> (Vec<MemImage>, bool) {
    let power = PowerSupply::new();
    let disk = |(i, image): (usize, &MemImage)| {
        Arc::new(SimDisk::with_content(
            format!("sim{i}"),
            image,
            power.clone(),
        ))
    };
    let disks: Vec<Arc<SimDisk>> = images.iter().enumerate().map(disk).collect();
    let devices: Devices = disks.iter().map(|d| d.clone() as _).collect();
    let pool = open(environment(seed), &devices, "tank", true).expect("opened");
    pool.set_patient(false);
    power.cut_after(after);
    let done = (act.run)(&pool, &devices).is_ok();
    power.cut();
    let _ = pool.close();
    let prng = SeededPrng::new(seed);
    let left = disks.iter().map(|d| d.crash(&prng).snapshot());
    (left.collect(), done)
}

fn access(writable: bool) -> PoolAccess {
    PoolAccess {
        writable,
        ours: true,
        ..PoolAccess::default()
    }
}

/// Opens the pool of that name; `None` if there is none.
fn open(
    env: Environment,
    devices: &Devices,
    name: &str,
    writable: bool,
) -> Option<Arc<zuse::Pool>> {
    let scan = assemble(&read_labels(devices));
    let found = scan.pools.iter().find(|p| p.config.name == name)?;
    let by_path = |path: &String| devices.iter().find(|d| d.path() == path).cloned();
    let own = found.devices.iter();
    let own = own.filter_map(|(guid, path)| Some((*guid, by_path(path)?)));
    let pool = zuse::Pool::open_on(env, &found.config, &own.collect(), &access(writable));
    Some(pool.unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Holds a pool against what it should be.
fn look(pool: &Arc<zuse::Pool>, what: &str) {
    let fs = pool.file_system(&pool.name()).expect("a file system");
    let file = fs.resolve(&Credentials::root(), b"file").expect("the file");
    let mut bytes = vec![0; 300_000];
    fs.read(&file, 0, &mut bytes).expect("read");
    assert!(bytes == content(), "{what}: the file is not what it was");
    let report = check(pool.spa(), Depth::All).expect("checked");
    let wrong = report.not_of_labels();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

/// Opens the pool, holds it against what it should be, and closes it. Gives whether the change is
/// in it, and what the disks hold then.
fn judge(act: &Act, images: &[MemImage], writable: bool, what: &str) -> (bool, Vec<MemImage>) {
    let disks: Vec<Arc<MemDevice>> = images
        .iter()
        .enumerate()
        .map(|(i, image)| Arc::new(MemDevice::from_image(format!("sim{i}"), image)))
        .collect();
    let devices: Devices = disks.iter().map(|d| d.clone() as _).collect();
    let pool = open(environment(3), &devices, "tank", writable);
    let pool = pool.unwrap_or_else(|| panic!("{what}: there is no pool"));
    if writable {
        pool.sync().expect("synced");
        pool.sync().expect("synced");
    }
    look(&pool, what);
    let done = (act.is_done)(&pool);
    pool.close().expect("closed");
    let half = open(environment(3), &devices, "half", writable);
    if act.name == "a pool is split" {
        assert!(half.is_some() || !done, "{what}: the other half is lost");
    }
    if let Some(half) = half {
        look(&half, what);
        half.close().expect("closed");
    }
    (done, disks.iter().map(|d| d.snapshot()).collect())
}

#[test]
fn a_change_of_devices_is_there_or_not_after_any_cut() {
    let cuts: u64 = std::env::var("ZUSE_SIM_CUTS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(4);
    for act in &ACTS {
        let images = start(act);
        // How many operations it takes.
        let (whole, done) = cut(act, &images, u64::MAX / 2, 5);
        assert!(done, "{}: it does not come to its end", act.name);
        assert!(judge(act, &whole, true, act.name).0, "{}", act.name);
        let mut within = 4;
        while !cut(act, &images, within, 5).1 {
            within *= 2;
        }
        let prng = SeededPrng::new(11);
        let mut seen = [0; 2];
        for seed in 0..cuts {
            let after = prng.below(within);
            let (left, done) = cut(act, &images, after, seed);
            let what = format!("{}, cut after {after}, seed {seed}", act.name);
            let (now, _) = judge(act, &left, false, &what);
            assert!(now || !done, "{what}: it was done, and is not there");
            seen[usize::from(now)] += 1;
            // Whoever opens it next brings it to its end, or goes on without.
            let (later, left) = judge(act, &left, true, &what);
            assert_eq!(now, later, "{what}");
            assert_eq!(judge(act, &left, false, &what).0, now, "{what}");
        }
        println!("{}: {seen:?} of {cuts} cuts within {within}", act.name);
    }
}

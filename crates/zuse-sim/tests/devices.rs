//! Devices are added to a pool, removed and exchanged, and its guid changes, with the power cut at
//! any operation. Afterwards the pool has all data. It is in the state before, in the final state,
//! or in one of the stable states between. `ZUSE_SIM_CUTS` makes it longer: with 1000 every
//! operation of every change is cut.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Credentials, Offline, PoolAccess, VdevClass, VdevKind};
use zuse_base::{Entropy, ManualClock, Result, SeededPrng, Timestamp};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, MemImage, PowerSupply, SimDisk};
use zuse_pool::{AttachDevice, Environment, Host, NewVdevs, Purpose, Shape, TopSpec, VdevSpec};
use zuse_sim::memory_pool::narrow;
use zuse_vdev::assemble::{assemble, read_labels};
use zuse_vdev::{VdevConfig, VdevState};
use zuse_zpl::WriteOptions;

type Devices = Vec<Arc<dyn BlockDevice>>;

const SIZE: u64 = 80 << 20;

/// A change of a pool's devices.
struct Act {
    name: &'static str,
    /// Devices and vdevs of the pool before; the rest of six are blank.
    devices: usize,
    layout: &'static [TopSpec],
    /// The preparation, with the power on.
    prepare: fn(&Arc<zuse::Pool>, &Devices) -> Result<()>,
    run: fn(&Arc<zuse::Pool>, &Devices) -> Result<()>,
    /// The trees of the stable states, from the first to the last.
    rests: &'static [&'static str],
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

const SPLIT: &str = "a pool is split";
const LONE: &[TopSpec] = &[TopSpec::SINGLE];
const PAIR: &[TopSpec] = &[MIRROR];
const RAIDZ: &[TopSpec] = &[TopSpec {
    shape: Shape::Raidz { nparity: 1 },
    devices: 3,
    class: VdevClass::Normal,
}];
const MIRRORS: &[TopSpec] = &[MIRROR, single(VdevClass::Log), MIRROR];
const WITH_LOG: &[TopSpec] = &[MIRROR, single(VdevClass::Log), TopSpec::SINGLE];

fn spec(device: &Arc<dyn BlockDevice>) -> VdevSpec {
    VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    }
}

/// The tree as text: kinds, devices, and their states. The guid 4711 is printed in front.
fn tree(pool: &zuse::Pool) -> String {
    let tops = pool.config().vdev_tree.children;
    let spares = pool.spa().aux_devices("spares").expect("the list");
    let tops = tops.iter().map(words).collect::<Vec<_>>().join(" ");
    let spares: Vec<_> = spares.iter().map(VdevConfig::name).collect();
    let guid = if pool.guid() == 4711 { "4711: " } else { "" };
    let spares = match spares.is_empty() {
        true => String::new(),
        false => format!(" spares {}", spares.join(" ")),
    };
    format!("{guid}{tops}{spares}")
}

fn words(node: &VdevConfig) -> String {
    let state = match node {
        node if node.faulted => "!",
        node if node.offline => "-",
        _ => "",
    };
    if node.kind.is_device() {
        return format!("{}{state}", node.name().trim_start_matches("sim"));
    }
    let children: Vec<_> = node.children.iter().map(words).collect();
    match node.kind {
        VdevKind::Hole => "hole".to_owned(),
        _ => format!("{}({})", node.kind.name(), children.join(" ")),
    }
}

fn guid_of(pool: &zuse::Pool, path: &str) -> u64 {
    let found = pool.vdev_by_name(path);
    found.unwrap_or_else(|| panic!("{path} is of the pool"))
}

fn put(pool: &zuse::Pool, beside: &str, new: &AttachDevice, purpose: Purpose) -> Result<()> {
    let guid = guid_of(pool, beside);
    pool.spa().attach_device(guid, new, purpose, false)
}

fn newcomer(device: &Arc<dyn BlockDevice>) -> AttachDevice {
    AttachDevice::Device {
        device: device.clone(),
        is_disk: false,
    }
}

/// Resilvers. Replaced devices leave in the txgs that follow.
fn resilver(pool: &zuse::Pool) -> Result<()> {
    pool.restart_resilver()?;
    pool.finish_scan()?;
    (0..3).try_for_each(|_| pool.spa().sync_now())
}

fn nothing(_: &Arc<zuse::Pool>, _: &Devices) -> Result<()> {
    Ok(())
}

fn with_spare(pool: &Arc<zuse::Pool>, devices: &Devices) -> Result<()> {
    pool.spa().add_vdevs(NewVdevs {
        spares: vec![spec(&devices[2])],
        ..NewVdevs::default()
    })
}

/// The second device fails, and the spare stands in.
fn spare_in(pool: &Arc<zuse::Pool>, devices: &Devices) -> Result<()> {
    let how = Offline {
        fault: true,
        temporary: false,
    };
    pool.offline(guid_of(pool, "sim1"), how)?;
    let spare = pool.spares()?.remove(0).guid;
    let spare = AttachDevice::Spare(spare, Some(devices[2].clone()));
    put(pool, "sim1", &spare, Purpose::Replace)?;
    resilver(pool)
}

fn come_back(pool: &Arc<zuse::Pool>, devices: &Devices) -> Result<()> {
    let known = devices.clone();
    pool.spa()
        .set_reopen(move |_, path| known.iter().find(|d| Some(d.path()) == path).cloned());
    pool.online(guid_of(pool, "sim1"))?;
    resilver(pool)
}

const ACTS: [Act; 14] = [
    Act {
        name: "a vdev for data is added",
        devices: 1,
        layout: LONE,
        prepare: nothing,
        run: |pool, devices| {
            pool.spa().add_vdevs(NewVdevs {
                devices: vec![spec(&devices[1])],
                ..NewVdevs::default()
            })
        },
        rests: &["0", "0 1"],
    },
    Act {
        name: "vdevs of all classes are added",
        devices: 2,
        layout: PAIR,
        prepare: nothing,
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
        rests: &["mirror(0 1)", "mirror(0 1) 2 3 4 spares sim5"],
    },
    Act {
        name: "a log vdev is removed",
        devices: 4,
        layout: WITH_LOG,
        prepare: nothing,
        run: |pool, _| {
            let log = pool.config().vdev_tree.children[1].guid;
            pool.spa().remove_log(log)
        },
        rests: &["mirror(0 1) 2 3", "mirror(0 1) hole 3"],
    },
    Act {
        name: "a pool of one device gets another guid",
        devices: 1,
        layout: LONE,
        prepare: nothing,
        run: |pool, _| pool.reguid(Some(4711)).map(drop),
        rests: &["0", "4711: 0"],
    },
    Act {
        name: "a pool of several devices gets another guid",
        devices: 4,
        layout: WITH_LOG,
        prepare: nothing,
        run: |pool, _| pool.reguid(Some(4711)).map(drop),
        rests: &["mirror(0 1) 2 3", "4711: mirror(0 1) 2 3"],
    },
    Act {
        name: SPLIT,
        devices: 5,
        layout: MIRRORS,
        prepare: nothing,
        run: |pool, _| pool.split("half", &[], &[]),
        rests: &["mirror(0 1) 2 mirror(3 4)", "0 2 3"],
    },
    Act {
        name: "a device is attached",
        devices: 1,
        layout: LONE,
        prepare: nothing,
        run: |pool, devices| {
            put(pool, "sim0", &newcomer(&devices[1]), Purpose::Attach)?;
            resilver(pool)
        },
        rests: &["0", "mirror(0 1)"],
    },
    Act {
        name: "a device is detached",
        devices: 2,
        layout: PAIR,
        prepare: nothing,
        run: |pool, _| pool.detach(guid_of(pool, "sim0")),
        rests: &["mirror(0 1)", "1"],
    },
    Act {
        name: "a device of a mirror is replaced",
        devices: 2,
        layout: PAIR,
        prepare: nothing,
        run: |pool, devices| {
            put(pool, "sim0", &newcomer(&devices[2]), Purpose::Replace)?;
            resilver(pool)
        },
        rests: &["mirror(0 1)", "mirror(2 1)"],
    },
    Act {
        name: "a device of a raidz is replaced",
        devices: 3,
        layout: RAIDZ,
        prepare: nothing,
        run: |pool, devices| {
            put(pool, "sim1", &newcomer(&devices[3]), Purpose::Replace)?;
            resilver(pool)
        },
        rests: &["raidz(0 1 2)", "raidz(0 3 2)"],
    },
    Act {
        name: "a device is taken offline",
        devices: 3,
        layout: RAIDZ,
        prepare: nothing,
        run: |pool, _| pool.offline(guid_of(pool, "sim1"), Offline::default()),
        rests: &["raidz(0 1 2)", "raidz(0 1- 2)"],
    },
    Act {
        name: "a device comes back",
        devices: 3,
        layout: RAIDZ,
        prepare: |pool, _| {
            pool.offline(guid_of(pool, "sim1"), Offline::default())?;
            pool.sync()
        },
        run: come_back,
        rests: &["raidz(0 1- 2)", "raidz(0 1 2)"],
    },
    Act {
        name: "a spare stands in",
        devices: 2,
        layout: PAIR,
        prepare: with_spare,
        run: spare_in,
        rests: &[
            "mirror(0 1) spares sim2",
            "mirror(0 1!) spares sim2",
            "mirror(0 spare(1! 2)) spares sim2",
        ],
    },
    Act {
        name: "a spare steps back",
        devices: 2,
        layout: PAIR,
        prepare: |pool, devices| {
            with_spare(pool, devices)?;
            spare_in(pool, devices)
        },
        run: come_back,
        rests: &[
            "mirror(0 spare(1! 2)) spares sim2",
            "mirror(0 1) spares sim2",
        ],
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
    let devices: Devices = disks.iter().map(|d| d.clone() as _).collect();
    (act.prepare)(&pool, &devices).expect("prepared");
    pool.close().expect("closed");
    disks.iter().map(|d| d.snapshot()).collect()
}

/// Runs the act on disks whose power fails after some operations. Returns their content, and
/// whether the act was completed.
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
    // Not the guids with which the pool was created.
    let env = environment(100 + seed);
    let pool = open(env, &devices, "tank", true).expect("opened");
    pool.set_wait_for_clear(false);
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

/// Compares a pool with the expectation.
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

/// Opens the pool, compares it with the expectation, and closes it. Opening it for writing
/// continues what was begun. Returns the tree, whether a half was split off, and the content of the
/// disks.
fn check_images(images: &[MemImage], writable: bool, what: &str) -> (String, bool, Vec<MemImage>) {
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
        resilver(&pool).expect("filled");
        // Each device is complete, or known to the user as missing data.
        assert!(pool.spa().resilver_range().is_none(), "{what}: not filled");
        for leaf in pool.spa().vdevs().leaves() {
            let health = leaf.health();
            let out = matches!(health.state, VdevState::Offline | VdevState::Faulted);
            assert!(
                leaf.is_usable() || out,
                "{what}: {} is {health:?}",
                leaf.guid()
            );
        }
    }
    look(&pool, what);
    let tree = tree(&pool);
    pool.close().expect("closed");
    let half = open(environment(3), &devices, "half", writable);
    let split = half.is_some();
    if let Some(half) = half {
        look(&half, what);
        half.close().expect("closed");
    }
    (tree, split, disks.iter().map(|d| d.snapshot()).collect())
}

/// Cuts an act, and examines the result: as it is, and after it was continued. Returns the stable
/// state in which the pool is then.
fn cut_and_check(act: &Act, images: &[MemImage], after: u64, seed: u64) -> usize {
    let (left, done) = cut(act, images, after, seed);
    let what = format!("{}, cut after {after}, seed {seed}", act.name);
    let at = |tree: &String| act.rests.iter().position(|rest| rest == tree);
    let (now, split, _) = check_images(&left, false, &what);
    let (later, still, left) = check_images(&left, true, &what);
    let rest = at(&later).unwrap_or_else(|| panic!("{what}: {now}, then {later}"));
    let last = rest + 1 == act.rests.len();
    assert!(
        last || !done,
        "{what}: it was done, and is not there: {later}"
    );
    let before = at(&now).unwrap_or(0);
    assert!(rest >= before, "{what}: {now}, and then {later}");
    assert_eq!(split, still, "{what}");
    if act.name == SPLIT {
        assert_eq!(
            split, last,
            "{what}: each device is of one pool: {now}, {later}"
        );
    }
    let again = check_images(&left, false, &what).0;
    assert_eq!(again, later, "{what}");
    rest
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
        let end = check_images(&whole, true, act.name).0;
        assert_eq!(Some(&end.as_str()), act.rests.last(), "{}", act.name);
        let mut within = 4;
        while !cut(act, &images, within, 5).1 {
            within *= 2;
        }
        let prng = SeededPrng::new(11);
        let mut seen = vec![0; act.rests.len()];
        // A few, distributed over all operations; or each.
        let cuts = cuts.min(within);
        for seed in 0..cuts {
            let (from, to) = (seed * within / cuts, (seed + 1) * within / cuts);
            let after = from + prng.below(to - from);
            seen[cut_and_check(act, &images, after, seed)] += 1;
        }
        println!("{}: {seen:?} of {cuts} cuts within {within}", act.name);
    }
}

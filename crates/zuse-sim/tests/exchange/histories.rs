//! Random device operations, with the power cut in each run. After each run the pool equals its
//! model, and at the end no device lacks data.

use super::*;

/// Histories that are run when nobody asks for more.
const USUAL: u64 = 200;
/// Histories at a time: they wait more than they work.
const AT_A_TIME: usize = 4;

/// A pool with power cuts: chance decides which unflushed writes the disks keep.
struct Machine {
    images: BTreeMap<usize, MemImage>,
    prng: SeededPrng,
}

impl Machine {
    /// Runs until the power fails; returns how many files are durable.
    fn run(&mut self, written: u64) -> u64 {
        let power = PowerSupply::new();
        let path = |i: &usize| format!("/d/{i}");
        let disks: BTreeMap<usize, Arc<SimDisk>> = self
            .images
            .iter()
            .map(|(i, image)| {
                (
                    *i,
                    Arc::new(SimDisk::with_content(path(i), image, power.clone())),
                )
            })
            .collect();
        let all: Vec<Device> = disks.values().map(|d| d.clone() as Device).collect();
        let pool = open(&all);
        let fs = pool.file_system("tank").expect("file system");
        verify(&fs, 0..written, "after the power went");
        pool.set_wait_for_clear(false);
        let known = all.clone();
        pool.spa()
            .set_reopen(move |_, path| known.iter().find(|d| Some(d.path()) == path).cloned());
        power.cut_after(20 + self.prng.below(600));
        let mut done = written;
        while power.is_on() {
            self.step(&pool, &all);
            if write(&fs, done..done + 1).is_err() || pool.spa().sync_now().is_err() {
                break;
            }
            done += 1;
        }
        drop(fs);
        let _ = pool.close();
        let crash = |d: &Arc<SimDisk>| d.crash(&self.prng).snapshot();
        self.images = disks.iter().map(|(i, d)| (*i, crash(d))).collect();
        done
    }

    /// A device is initialized or trimmed, or that is canceled.
    fn order_work(&self, pool: &zuse::Pool, device: u64) -> zuse::Result<()> {
        let kind = match self.prng.below(2) {
            0 => VdevWorkKind::Initialize,
            _ => VdevWorkKind::Trim,
        };
        let order = match self.prng.below(4) {
            0 => VdevWorkOrder::Cancel,
            1 => VdevWorkOrder::Suspend,
            _ => VdevWorkOrder::Start { rate: 1 << 20 },
        };
        pool.order_vdev_work(kind, order, &[device]).map(drop)
    }

    /// A spare is added, or replaces another device temporarily.
    fn spare(
        &self,
        pool: &zuse::Pool,
        one: u64,
        free: Option<&Device>,
        all: &[Device],
    ) -> zuse::Result<()> {
        let idle = pool.spares()?.into_iter().find(|spare| !spare.in_use);
        match (idle, free) {
            (Some(spare), _) => {
                let device = all.iter().find(|d| *d.path() == *spare.name).cloned();
                let spare = AttachDevice::Spare(spare.guid, device);
                pool.spa()
                    .attach_device(one, &spare, Purpose::Replace, false)
            }
            (None, Some(device)) => {
                let guid = 1 << 20 | self.prng.below(1 << 20);
                list_spare(pool, guid, device.path())
            }
            (None, None) => Ok(()),
        }
    }

    /// Something happens to a device; refusals are fine.
    fn step(&self, pool: &zuse::Pool, all: &[Device]) {
        let leaves = pool.spa().vdevs().leaves();
        let one = leaves[self.prng.below(leaves.len() as u64) as usize].guid();
        let mut taken: Vec<_> = leaves.iter().filter_map(|leaf| leaf.path()).collect();
        let spares = pool.spares().unwrap_or_default();
        taken.extend(spares.iter().map(|spare| spare.name.as_str().into()));
        let free = all.iter().find(|d| !taken.iter().any(|p| **p == *d.path()));
        let how = Offline {
            fault: self.prng.below(4) == 0,
            temporary: self.prng.below(3) == 0,
        };
        let _ = match (self.prng.below(13), free) {
            (0, Some(device)) => {
                pool.spa()
                    .attach_device(one, &newcomer(device), Purpose::Attach, false)
            }
            (1, Some(device)) => {
                pool.spa()
                    .attach_device(one, &newcomer(device), Purpose::Replace, false)
            }
            (2, _) => pool.detach(one),
            (3, _) => pool.offline(one, how),
            (4, _) => pool.online(one).map(drop),
            (5, _) => pool.restart_resilver(),
            // The power may fail during a scan, and the next run continues it.
            (6, _) => pool.dsl().begin_scan(NewScan::Scrub(Txg::ZERO, None)),
            (7, _) => pool.scan_batches(1),
            (8, _) => pool.finish_scan(),
            (9, _) => match self.prng.below(3) {
                0 => pool.cancel_scan(),
                1 => pool.pause_scrub(),
                _ => pool.scrub(Txg::ZERO, None),
            },
            (10, _) => self.order_work(pool, one),
            (11, free) => self.spare(pool, one, free, all),
            _ => Ok(()),
        };
    }
}

/// All present devices are resilvered; then any one device can be missing.
fn whole_again(pool: &Arc<zuse::Pool>, disks: &[Device], what: &str) {
    let known = disks.to_vec();
    pool.spa()
        .set_reopen(move |_, path| known.iter().find(|d| Some(d.path()) == path).cloned());
    for leaf in pool.spa().vdevs().leaves() {
        let guid = leaf.guid();
        // A complete replacement may end meanwhile. It removes a device, and the one that stays may
        // get the guid of their parent.
        if let Err(e) = pool.online(guid) {
            let left = pool.spa().vdevs().leaf(guid).is_none();
            assert!(left && e.is(Errno::NODEV), "{what}: online: {e}");
            if leaf.guid() != guid {
                pool.online(leaf.guid()).expect("under its new guid");
            }
        }
    }
    resilver(pool);
    assert!(pool.spa().lacking().is_empty(), "{what}");
    quiet(pool);
    sound(pool, what);
    let leaves = pool.spa().vdevs().leaves();
    if leaves.len() > 1 {
        let first = leaves[0].guid();
        pool.offline(first, Offline::default()).expect("not needed");
        pool.drop_cache();
    }
}

fn history(shape: Shape, devices: usize, seed: u64) {
    let all: Vec<Arc<MemDevice>> = (0..devices + 2)
        .map(|i| Arc::new(MemDevice::new(format!("/d/{i}"), SIZE)))
        .collect();
    let members: Vec<Device> = all[..devices].iter().map(|d| d.clone() as Device).collect();
    let pool = make(&members, shape);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..4).expect("written");
    drop(fs);
    pool.export().expect("export");
    let mut machine = Machine {
        images: all.iter().map(|d| d.snapshot()).enumerate().collect(),
        prng: SeededPrng::new(seed),
    };
    let mut written = 4;
    for _ in 0..4 {
        written = machine.run(written);
    }
    let disks: Vec<Device> = machine
        .images
        .iter()
        .map(|(i, image)| Arc::new(MemDevice::from_image(format!("/d/{i}"), image)) as Device)
        .collect();
    let what = format!("seed {seed}, {shape:?}");
    sound_as_left(&disks, &what);
    let pool = open(&disks);
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..written, &what);
    whole_again(&pool, &disks, &what);
    verify(&fs, 0..written, &what);
    drop(fs);
    pool.export().expect("export");
    keep(&disks, seed);
}

/// Leaves images of the members for other checkers, where `ZUSE_KEEP_POOL` says.
fn keep(disks: &[Device], seed: u64) {
    let Ok(dir) = std::env::var("ZUSE_KEEP_POOL") else {
        return;
    };
    let dir = format!("{dir}/{seed}");
    std::fs::create_dir_all(&dir).expect("a directory");
    for (i, device) in disks.iter().enumerate().filter(|(_, d)| is_member(d)) {
        let mut bytes = vec![0; SIZE as usize];
        device.read_at(&mut bytes, 0).expect("read");
        std::fs::write(format!("{dir}/{i}.img"), bytes).expect("image");
    }
}

/// `ZUSE_SIM_SEEDS=FROM..TO` selects others. A seed is always the same history.
#[test]
fn devices_are_exchanged_and_the_power_goes() {
    each(seeds(USUAL), AT_A_TIME, |seed| {
        let (shape, devices) = match seed % 4 {
            0 => (Shape::Mirror, 2),
            1 => (Shape::Single, 1),
            2 => (Shape::Raidz { nparity: 1 }, 3),
            _ => (Shape::Raidz { nparity: 2 }, 4),
        };
        history(shape, devices, seed);
    });
}

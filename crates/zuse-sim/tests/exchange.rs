//! Devices are attached, replaced, removed and brought back while the pool is written, with the
//! power cut at any moment. Acknowledged writes are there. Data that a device lacks is never read
//! from it.

mod opened;
mod scrubbed;
mod taken_up;

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, Offline, PoolAccess, Shape, TopSpec, VdevWorkKind, VdevWorkOrder};
use zuse::{VdevClass, VdevKind};
use zuse_base::{Entropy, Errno, SeededPrng, Span, Txg};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, FaultyDevice, MemDevice, MemImage, Op, PowerSupply, Rule, SimDisk};
use zuse_dsl::NewScan;
use zuse_format::nvlist::NvList;
use zuse_pool::{AttachDevice, Environment, Purpose, SyncCtx, VdevSpec};
use zuse_sim::golden::open_whole;
use zuse_sim::seeds::{each, seeds};
use zuse_vdev::Labels;
use zuse_zpl::WriteOptions;

#[path = "exchange/histories.rs"]
mod histories;

const SIZE: u64 = 64 << 20;
/// What comes before the first block of a device.
const LABELS: u64 = 4 << 20;

type Device = Arc<dyn BlockDevice>;

fn root() -> Credentials {
    Credentials::root()
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SeededPrng::new(seed).fill(&mut bytes);
    bytes
}

fn bytes_of(number: u64) -> Vec<u8> {
    noise(number, (number * number * 1777 % 200_000) as usize + 1)
}

fn write(fs: &Arc<FileSystem>, numbers: std::ops::Range<u64>) -> zuse::Result<()> {
    let dir = fs.root()?;
    for i in numbers {
        let name = format!("f{i}");
        // It may exist already, without a promise.
        let file = match fs.create(&root(), &dir, name.as_bytes(), 0o644) {
            Err(e) if e.is(Errno::EXIST) => fs.resolve(&root(), name.as_bytes())?,
            made => made?,
        };
        fs.write(&file, 0, &bytes_of(i), WriteOptions::default())?;
    }
    Ok(())
}

fn verify(fs: &Arc<FileSystem>, numbers: std::ops::Range<u64>, what: &str) {
    for i in numbers {
        let file = fs.resolve(&root(), format!("f{i}").as_bytes());
        let file = file.unwrap_or_else(|e| panic!("{what}, f{i}: {e}"));
        let mut bytes = vec![0; file.size() as usize];
        let n = fs.read(&file, 0, &mut bytes);
        let n = n.unwrap_or_else(|e| panic!("{what}, f{i}: {e}"));
        assert!(n == bytes.len() && bytes == bytes_of(i), "{what}, f{i}");
    }
}

fn disk(i: usize) -> Device {
    Arc::new(MemDevice::new(format!("/d/{i}"), SIZE))
}

/// No txg closes by itself: a scan continues only when a test requests it, however slow the machine
/// is.
fn environment() -> Environment {
    let mut env = Environment::default();
    env.limits.txg_timeout = std::time::Duration::from_secs(3600);
    env
}

fn make(disks: &[Device], shape: Shape) -> Arc<zuse::Pool> {
    let specs = disks.iter().map(|device| VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    });
    let layout = [TopSpec {
        shape,
        devices: disks.len(),
        class: VdevClass::Normal,
    }];
    let properties = [("compression".to_owned(), "off".to_owned())];
    zuse::Pool::create_with_layout(environment(), "tank", specs.collect(), &layout, &properties)
        .expect("create")
}

fn open(disks: &[Device]) -> Arc<zuse::Pool> {
    let access = PoolAccess {
        writable: true,
        ours: true,
        ..PoolAccess::default()
    };
    open_whole(environment(), disks, &access).expect("open")
}

fn sound(pool: &zuse::Pool, what: &str) {
    let report = check(pool.spa(), Depth::All).expect("check");
    let wrong = report.not_of_labels();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

/// Stops all background changes of a pool.
fn quiet(pool: &zuse::Pool) {
    let leaves = pool.spa().vdevs().leaves();
    let guids: Vec<u64> = leaves.iter().map(|leaf| leaf.guid()).collect();
    for (kind, guid) in [VdevWorkKind::Initialize, VdevWorkKind::Trim]
        .into_iter()
        .flat_map(|kind| guids.iter().map(move |guid| (kind, *guid)))
    {
        // Most of them have no effect.
        let _ = pool.order_vdev_work(kind, VdevWorkOrder::Suspend, &[guid]);
    }
    pool.finish_scan().expect("done");
    wait_until_idle(pool);
}

/// The content of the disks, before the pool is opened again.
fn sound_as_left(disks: &[Device], what: &str) {
    let access = PoolAccess {
        ours: true,
        ..PoolAccess::default()
    };
    let pool = open_whole(environment(), disks, &access).expect("open");
    sound(&pool, what);
    pool.close().expect("closed");
}

fn guid_of(pool: &zuse::Pool, path: &str) -> u64 {
    let found = pool.vdev_by_name(path);
    found.unwrap_or_else(|| panic!("{path} is of the pool"))
}

fn newcomer(device: &Device) -> AttachDevice {
    AttachDevice::Device {
        device: device.clone(),
        is_disk: false,
    }
}

fn attach(pool: &zuse::Pool, beside: &str, new: &Device, purpose: Purpose) -> zuse::Result<()> {
    let guid = guid_of(pool, beside);
    pool.spa()
        .attach_device(guid, &newcomer(new), purpose, false)
}

/// Kind and children of the only top-level vdev.
fn shape(pool: &zuse::Pool) -> (VdevKind, Vec<String>) {
    let config = pool.config();
    let top = &config.vdev_tree.children[0];
    (
        top.kind.clone(),
        top.children.iter().map(|c| c.name()).collect(),
    )
}

fn is_member(device: &Device) -> bool {
    Labels::read(&**device).newest(u64::MAX).is_some()
}

#[test]
fn a_device_that_comes_beside_another_is_not_believed_and_may_leave_again() {
    let (a, b) = (disk(0), disk(1));
    let pool = make(std::slice::from_ref(&a), Shape::Single);
    let before = pool.config().vdev_tree.children[0].guid;
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..12).expect("written");
    attach(&pool, "/d/0", &b, Purpose::Attach).expect("attached");
    let names = vec!["/d/0".to_owned(), "/d/1".to_owned()];
    assert_eq!(shape(&pool), (VdevKind::Mirror, names));
    pool.drop_cache();
    verify(&fs, 0..12, "with a new half");
    assert!(!pool.vdev_status().has_errors(), "the new half was read");
    write(&fs, 12..20).expect("written to both");
    pool.spa().sync_now().expect("sync");
    sound(&pool, "with a new half");
    let last = pool
        .detach(guid_of(&pool, "/d/0"))
        .expect_err("the only one that has all");
    assert!(last.to_string().contains("no valid replicas"), "{last}");
    assert!(
        pool.offline(guid_of(&pool, "/d/0"), Offline::default())
            .is_err()
    );
    drop(fs);
    pool.export().expect("export");

    let pool = open(&[a.clone(), b.clone()]);
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..20, "opened again");
    assert!(!pool.vdev_status().has_errors(), "the new half was read");
    assert!(
        pool.spa().resilver_range().is_some(),
        "it still lacks the most"
    );
    pool.detach(guid_of(&pool, "/d/1")).expect("detached");
    let top = pool.config().vdev_tree.children[0].clone();
    assert!(top.kind.is_device() && top.top.is_some());
    assert_ne!(top.guid, before, "it goes by the mirror's guid");
    assert!(pool.spa().resilver_range().is_none());
    assert!(!is_member(&b), "its labels say that it left");
    write(&fs, 20..24).expect("written");
    pool.spa().sync_now().expect("sync");
    sound(&pool, "alone again");
    drop(fs);
    pool.export().expect("export");
    let pool = open(&[b, a]);
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..24, "alone again");
    drop(fs);
    pool.export().expect("export");
}

#[test]
fn what_a_device_missed_while_it_was_away_is_known_and_the_last_copy_stays() {
    let all = [disk(0), disk(1), disk(2)];
    let pool = make(&all, Shape::Raidz { nparity: 1 });
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..8).expect("written");
    let (a, b) = (guid_of(&pool, "/d/0"), guid_of(&pool, "/d/1"));
    for how in [
        Offline::default(),
        Offline {
            temporary: true,
            fault: false,
        },
        Offline {
            temporary: false,
            fault: true,
        },
    ] {
        pool.offline(a, how).expect("offline");
        let refused = pool.offline(b, how).expect_err("two of a raidz1");
        assert!(
            refused.to_string().contains("no valid replicas"),
            "{refused}"
        );
        assert_eq!(pool.health_word(), "DEGRADED");
        assert!(
            pool.spa().resilver_range().is_none(),
            "nobody is there to be filled"
        );
        let device = all[0].clone();
        pool.spa().set_reopen(move |_, _| Some(device.clone()));
        pool.online(a).expect("online");
        assert_eq!(pool.health_word(), "ONLINE");
        assert!(pool.spa().resilver_range().is_some(), "{how:?}");
        assert!(
            pool.offline(b, how).is_err(),
            "the first one lacks something"
        );
    }
    write(&fs, 8..12).expect("written");
    pool.offline(a, Offline::default()).expect("offline");
    write(&fs, 12..16).expect("written");
    drop(fs);
    pool.export().expect("export");
    let pool = open(&all);
    assert_eq!(pool.health_word(), "DEGRADED", "it stays out");
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..16, "without the first");
    sound(&pool, "without the first");
    assert!(!pool.vdev_status().has_errors());
    drop(fs);
    pool.export().expect("export");
}

#[test]
fn a_replacement_is_replaced_half_way_and_either_side_may_go() {
    let all: Vec<Device> = (0..6).map(disk).collect();
    let pool = make(&all[..3], Shape::Raidz { nparity: 1 });
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..10).expect("written");
    attach(&pool, "/d/1", &all[3], Purpose::Replace).expect("replaced");
    // The old one again, as a kernel allows it; the new one stays in between.
    attach(&pool, "/d/1", &all[5], Purpose::Replace).expect("replaced half-way");
    pool.detach(guid_of(&pool, "/d/5")).expect("detached");
    attach(&pool, "/d/3", &all[4], Purpose::Replace).expect("replaced half-way");
    let place = pool.config().vdev_tree.children[0].children[1].clone();
    assert_eq!(place.kind, VdevKind::Replacing);
    assert_eq!(place.children.len(), 3);
    write(&fs, 10..14).expect("written");
    // If one of the others is missing, the old one alone has the most data.
    assert!(
        pool.detach(guid_of(&pool, "/d/1")).is_ok(),
        "parity has what it had"
    );
    assert!(
        pool.offline(guid_of(&pool, "/d/0"), Offline::default())
            .is_err()
    );
    pool.detach(guid_of(&pool, "/d/3")).expect("detached");
    let only = pool.detach(guid_of(&pool, "/d/4"));
    assert!(
        only.is_err_and(|e| e.is(Errno::NOTSUP)),
        "a raidz gives nothing up"
    );
    pool.drop_cache();
    verify(&fs, 0..14, "by parity");
    sound(&pool, "by parity");
    let small: Device = Arc::new(MemDevice::new("/d/small", SIZE / 2));
    let refused = attach(&pool, "/d/0", &small, Purpose::Replace).expect_err("too small");
    assert!(
        refused.to_string().contains("device is too small"),
        "{refused}"
    );
    assert!(!is_member(&small), "nothing was written to it");
    drop(fs);
    pool.export().expect("export");
    assert!(!is_member(&all[1]) && !is_member(&all[3]));
    let pool = open(&[all[0].clone(), all[2].clone(), all[4].clone()]);
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..14, "opened again");
    drop(fs);
    pool.export().expect("export");
}

/// Resilvers. Replaced devices leave in the txgs that follow.
fn resilver(pool: &zuse::Pool) {
    pool.restart_resilver().expect("begun");
    pool.finish_scan().expect("done");
    wait_until_idle(pool);
}

/// Waits until no device leaves any more: each needs a further txg, and the check needs a pool
/// without changes.
fn wait_until_idle(pool: &zuse::Pool) {
    let leaves = || -> Vec<u64> {
        let all = pool.spa().vdevs().leaves();
        all.iter().map(|leaf| leaf.guid()).collect()
    };
    let (mut before, mut quiet) = (leaves(), 0);
    while quiet < 3 {
        pool.spa().sync_now().expect("sync");
        let now = leaves();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
}

#[test]
fn what_was_replaced_leaves_when_the_new_device_is_whole() {
    let all: Vec<Device> = (0..4).map(disk).collect();
    let pool = make(&all[..3], Shape::Raidz { nparity: 1 });
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..20).expect("written");
    attach(&pool, "/d/1", &all[3], Purpose::Replace).expect("replaced");
    // As OpenZFS has it: the txg of its coming, three before the end of its log.
    let came = |pool: &zuse::Pool| {
        let node = pool.config().vdev_tree.find(guid_of(pool, "/d/3")).cloned();
        node.expect("it is of the pool").resilver_txg
    };
    let end = pool.spa().resilver_range().expect("it lacks everything").1;
    assert_eq!(came(&pool), Some(end.0 - 3));
    write(&fs, 20..24).expect("written");
    resilver(&pool);
    assert_eq!(came(&pool), None);
    let (_, names) = shape(&pool);
    assert_eq!(names, ["/d/0", "/d/3", "/d/2"]);
    assert!(!is_member(&all[1]) && is_member(&all[3]));
    assert!(pool.spa().resilver_range().is_none());
    sound(&pool, "after the replacement");
    // The new one is needed for every block.
    pool.offline(guid_of(&pool, "/d/0"), Offline::default())
        .expect("offline");
    pool.drop_cache();
    verify(&fs, 0..24, "with the new device");
    assert!(!pool.vdev_status().has_errors());
    drop(fs);
    pool.export().expect("export");
}

/// Bytes read from the devices so far, and bytes written to one of them.
fn traffic(pool: &zuse::Pool, new: &str) -> (u64, u64) {
    let leaves = pool.spa().vdevs().leaves();
    let given = leaves.iter().map(|leaf| leaf.counters().read_bytes.get());
    let new = leaves
        .iter()
        .find(|leaf| leaf.path().as_deref() == Some(new));
    let taken = new.map_or(0, |leaf| leaf.counters().written_bytes.get());
    (given.sum(), taken)
}

#[test]
fn a_resilver_reads_each_block_once_and_repairs_what_it_meets() {
    // Bytes read for each byte written, in tenths, including metadata.
    for (shape, devices, most) in [
        (Shape::Mirror, 2, 15),
        (Shape::Raidz { nparity: 1 }, 4, 38),
        (Shape::Raidz { nparity: 2 }, 5, 38),
    ] {
        let all: Vec<Device> = (0..devices + 1).map(disk).collect();
        let pool = make(&all[..devices], shape);
        let fs = pool.file_system("tank").expect("file system");
        write(&fs, 0..60).expect("written");
        pool.spa().sync_now().expect("sync");
        attach(&pool, "/d/1", &all[devices], Purpose::Replace).expect("replaced");
        let new = format!("/d/{devices}");
        let before = traffic(&pool, &new);
        pool.restart_resilver().expect("begun");
        pool.finish_scan().expect("done");
        let after = traffic(&pool, &new);
        let (given, taken) = (after.0 - before.0, after.1 - before.1);
        assert!(taken > 1 << 20, "{shape:?}: {taken} bytes were written");
        assert!(given * 10 <= taken * most, "{shape:?}: {given} for {taken}");
        (0..3).for_each(|_| pool.spa().sync_now().expect("sync"));
        assert!(pool.spa().lacking().is_empty(), "{shape:?}");
        sound(&pool, "after the replacement");
        // The new one is needed.
        pool.offline(guid_of(&pool, "/d/0"), Offline::default())
            .expect("offline");
        pool.drop_cache();
        verify(&fs, 0..60, "with the new device");
        assert!(!pool.vdev_status().has_errors(), "{shape:?}");
        drop(fs);
        pool.export().expect("export");
    }
}

#[test]
fn a_resilver_finds_its_way_round_a_device_that_lies() {
    let all: Vec<Device> = (0..6).map(disk).collect();
    let pool = make(&all[..5], Shape::Raidz { nparity: 2 });
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..40).expect("written");
    pool.spa().sync_now().expect("sync");
    pool.offline(guid_of(&pool, "/d/1"), Offline::default())
        .expect("offline");
    for at in (8u64 << 20..40 << 20).step_by(1 << 16) {
        all[3].write_at(&noise(at, 1 << 14), at).expect("noise");
    }
    attach(&pool, "/d/1", &all[5], Purpose::Replace).expect("replaced");
    resilver(&pool);
    assert!(pool.spa().lacking().is_empty());
    assert_eq!(shape(&pool).1, ["/d/0", "/d/5", "/d/2", "/d/3", "/d/4"]);
    // Corrupted data was found, and is repaired now.
    let errors = pool.vdev_status().has_errors();
    assert!(errors, "nobody noticed");
    pool.drop_cache();
    verify(&fs, 0..40, "with the new device");
    pool.offline(guid_of(&pool, "/d/0"), Offline::default())
        .expect("offline");
    pool.drop_cache();
    verify(&fs, 0..40, "with the new device needed");
    drop(fs);
    pool.export().expect("export");
}

/// Puts a device into the pool's list of spares.
fn add_spare(pool: &zuse::Pool, guid: u64, path: &str) {
    list_spare(pool, guid, path).expect("listed");
}

fn list_spare(pool: &zuse::Pool, guid: u64, path: &str) -> zuse::Result<()> {
    let mut list = NvList::new();
    list.insert("type", "file");
    list.insert("guid", guid);
    list.insert("path", path);
    let write = move |ctx: &SyncCtx<'_>| {
        let mut lists = ctx.pool.aux_lists("spares")?;
        lists.push(list);
        ctx.pool.write_aux_devices(ctx, "spares", lists)
    };
    pool.spa().sync_task(|_| Ok(()), write)
}

#[test]
fn a_spare_stands_in_steps_back_and_may_stay() {
    let all: Vec<Device> = (0..5).map(disk).collect();
    let pool = make(&all[..2], Shape::Mirror);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..10).expect("written");
    add_spare(&pool, 777, "/d/2");
    add_spare(&pool, 888, "/d/4");
    let use_spare = |of: &str, guid, at: usize| {
        let spare = AttachDevice::Spare(guid, Some(all[at].clone()));
        let old = guid_of(&pool, of);
        pool.spa()
            .attach_device(old, &spare, Purpose::Replace, false)
    };
    let b = guid_of(&pool, "/d/1");
    let how = Offline {
        fault: true,
        temporary: false,
    };
    pool.offline(b, how).expect("faulted");
    use_spare("/d/1", 777, 2).expect("a spare stands in");
    assert!(use_spare("/d/0", 777, 2).is_err(), "it is in use");
    write(&fs, 10..14).expect("written");
    resilver(&pool);
    let top = pool.config().vdev_tree.children[0].clone();
    assert_eq!(top.children[1].kind, VdevKind::Spare);
    assert!(top.children[1].children[1].is_spare);
    assert!(pool.spares().expect("spares")[0].in_use);
    // The device comes back, is filled, and the spare is idle again.
    let device = all[1].clone();
    pool.spa().set_reopen(move |_, _| Some(device.clone()));
    pool.online(b).expect("online");
    resilver(&pool);
    assert_eq!(shape(&pool).1, ["/d/0", "/d/1"]);
    assert!(!pool.spares().expect("spares")[0].in_use);
    assert!(!is_member(&all[2]));
    let idle = Labels::read(&*all[2]);
    assert_eq!(idle.good().count(), 4, "labels of an idle spare");
    // Another device replaces both.
    pool.offline(b, how).expect("faulted");
    use_spare("/d/1", 777, 2).expect("a spare stands in");
    attach(&pool, "/d/1", &all[3], Purpose::Replace).expect("replaced under a spare");
    resilver(&pool);
    assert_eq!(shape(&pool).1, ["/d/0", "/d/3"]);
    assert!(!pool.spares().expect("spares")[0].in_use);
    // The broken device is removed: the spare stays for good.
    let d = guid_of(&pool, "/d/3");
    use_spare("/d/3", 888, 4).expect("a spare stands in");
    resilver(&pool);
    pool.detach(d).expect("detached");
    assert_eq!(shape(&pool).1, ["/d/0", "/d/4"]);
    let spares = pool.spares().expect("spares");
    assert_eq!(spares.iter().map(|s| s.guid).collect::<Vec<_>>(), [777]);
    pool.drop_cache();
    verify(&fs, 0..14, "with spares");
    sound(&pool, "with spares");
    drop(fs);
    pool.export().expect("export");
}

#[test]
fn a_device_that_comes_during_a_resilver_waits_for_the_next_one() {
    let all: Vec<Device> = (0..3).map(disk).collect();
    let pool = make(&all[..1], Shape::Single);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..10).expect("written");
    attach(&pool, "/d/0", &all[1], Purpose::Attach).expect("attached");
    let range = pool.spa().resilver_range();
    let a = guid_of(&pool, "/d/0");
    pool.spa()
        .attach_device(a, &newcomer(&all[2]), Purpose::Attach, true)
        .expect("attached");
    let c = guid_of(&pool, "/d/2");
    assert_eq!(pool.spa().deferred(), [c]);
    assert_eq!(
        pool.spa().resilver_range(),
        range,
        "it is not for the last one"
    );
    // Commands for scrubs neither pause nor end it, as with OpenZFS.
    let (from, to) = range.expect("something is lacking");
    pool.dsl()
        .begin_scan(NewScan::Resilver(from, to))
        .expect("begun");
    for refused in [
        pool.cancel_scan(),
        pool.pause_scrub(),
        pool.scrub(Txg::ZERO, None),
    ] {
        let text = refused.expect_err("a resilver").to_string();
        assert!(text.contains("currently resilvering"), "{text}");
    }
    const DEFER: &str = "com.datto:resilver_defer";
    assert_eq!(pool.spa().features().refcount(DEFER), 1);
    pool.finish_scan().expect("done");
    wait_until_idle(&pool);
    assert!(pool.spa().deferred().is_empty());
    assert_eq!(pool.spa().features().refcount(DEFER), 0);
    assert_eq!(pool.spa().lacking(), [c]);
    resilver(&pool);
    assert!(pool.spa().lacking().is_empty());
    drop(fs);
    pool.export().expect("export");
}

/// What a device missed in the txg in which it came back is filled by the same resilver.
#[test]
fn one_resilver_fills_what_a_faulted_device_missed() {
    let all: Vec<Device> = (0..2).map(disk).collect();
    let pool = make(&all, Shape::Mirror);
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..10).expect("written");
    let how = Offline {
        fault: true,
        temporary: false,
    };
    pool.offline(guid_of(&pool, "/d/0"), how).expect("faulted");
    let device = all[0].clone();
    pool.spa().set_reopen(move |_, _| Some(device.clone()));
    pool.clear(None).expect("cleared");
    assert!(pool.is_resilvering());
    pool.finish_scan().expect("scanned");
    assert!(pool.spa().lacking().is_empty());
    drop(fs);
    pool.export().expect("export");
}

/// A device that fails for a moment hides what a scan was to copy from it.
#[test]
fn what_a_scan_cannot_reach_stays_lacking() {
    let faulty = Arc::new(FaultyDevice::new(disk(0)));
    let disks: [Device; 2] = [faulty.clone(), disk(1)];
    let pool = make(&disks[..1], Shape::Single);
    let fs = pool.file_system("tank").expect("file system");
    for first in [0, 20, 40] {
        write(&fs, first..first + 20).expect("written");
        pool.spa().sync_now().expect("sync");
    }
    attach(&pool, "/d/0", &disks[1], Purpose::Attach).expect("attached");
    let lacked = pool.spa().resilver_range().expect("all that there is");
    // The root of the tree, which is younger than most blocks below it.
    for dva in fs.objset().root().dvas() {
        let span = Span::new(LABELS + dva.offset(), dva.asize());
        faulty.add(Rule::broken(Op::Read).within(span));
    }
    resilver(&pool);
    assert_eq!(pool.scan().expect("a scan").errors, 1);
    faulty.clear();
    let left = pool.spa().resilver_range().expect("the tree was not seen");
    assert_eq!(left.0, lacked.0, "blocks older than the root");
    resilver(&pool);
    assert!(pool.spa().lacking().is_empty());
    pool.detach(guid_of(&pool, "/d/0")).expect("not needed");
    pool.drop_cache();
    verify(&fs, 0..60, "from the device that came");
}

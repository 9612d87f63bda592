//! What a refused creation leaves on devices and in files.

use std::path::Path;

use zuse_base::Span;
use zuse_device::{FaultyDevice, Op, Rule};
use zuse_vdev::Labels;

use zuse_pool::{AttachDevice, NewVdevs, Purpose};

use super::*;
use crate::{AuxList, NewDevices};

const SIZE: u64 = 80 << 20;

fn device(dir: &Path, name: &str, size: u64) -> NewDevice {
    let path = dir.join(name);
    let file = std::fs::File::create(&path).expect("made");
    file.set_len(size).expect("sized");
    NewDevice { path, make: None }
}

fn free(device: &NewDevice) {
    let used = DeviceUse::of(&device.path).expect("read");
    assert!(used.pool().is_none(), "{}: {used:?}", device.path.display());
    assert_ne!(used, DeviceUse::Aux, "{}", device.path.display());
}

/// Each is refused, by a look and in earnest, for the same reason.
#[test]
fn a_look_refuses_what_cannot_be_made_and_nothing_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let (a, b) = (device(dir.path(), "a", SIZE), device(dir.path(), "b", SIZE));
    let small = device(dir.path(), "small", 1 << 20);
    let gone = NewDevice {
        path: dir.path().join("gone"),
        make: None,
    };
    let of = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let own = |(n, v): &(&str, &str)| (n.to_string(), v.to_string());
        pairs.iter().map(own).collect()
    };
    let good = NewPool {
        name: "tank".into(),
        devices: vec![a.clone(), b.clone()],
        ..NewPool::default()
    };
    let named = |name: &str| NewPool {
        name: name.into(),
        ..good.clone()
    };
    let on = |devices: &[&NewDevice]| NewPool {
        devices: devices.iter().map(|d| (*d).clone()).collect(),
        ..good.clone()
    };
    let with = |pairs| NewPool {
        properties: of(pairs),
        ..good.clone()
    };
    let root = |pairs| NewPool {
        root_properties: of(pairs),
        ..good.clone()
    };
    let aux = |device: &NewDevice| NewPool {
        spares: vec![device.clone()],
        ..good.clone()
    };
    let refused = [
        named("1st"),
        named("mirror1"),
        on(&[&a, &small]),
        on(&[&a, &gone]),
        on(&[]),
        aux(&small),
        aux(&gone),
        with(&[("none", "1")]),
        with(&[("ashift", "99")]),
        with(&[("version", "29")]),
        with(&[("bootfs", "tank/none")]),
        root(&[("compression", "none")]),
        root(&[("keyformat", "raw")]),
    ];
    for new in &refused {
        let look = new.check().expect_err(&format!("{new:?}"));
        let real = Pool::create(Environment::default(), new).expect_err("refused");
        assert_eq!(look.to_string(), real.to_string());
        free(&a);
        free(&b);
    }
    good.check().expect("fine");
    free(&a);
    let pool = Pool::create(Environment::default(), &good).expect("made");
    pool.export().expect("exported");
}

#[test]
fn devices_of_a_pool_that_did_not_come_up_can_be_taken_again() {
    let disk = |name: &str| Arc::new(MemDevice::new(name, SIZE));
    // The labels fail, or what comes after them.
    for after in [0, 512 << 10] {
        let (whole, broken) = (disk("a"), Arc::new(FaultyDevice::new(disk("b"))));
        broken.add(Rule::broken(Op::Write).within(Span::new(after, SIZE - after)));
        let devices: [Arc<dyn BlockDevice>; 2] = [whole.clone(), broken];
        let vdevs = devices.map(|device| VdevSpec {
            is_disk: false,
            device,
            ashift: None,
        });
        let env = Environment::default();
        let made = Pool::create_on_devices(env, "tank", vdevs.into(), None, &[]);
        assert!(made.is_err(), "broken from {after} on");
        assert_eq!(Labels::read(&*whole).good().count(), 0, "{after}");
    }
}

#[test]
fn an_image_goes_with_the_command_that_made_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = device(dir.path(), "a", SIZE);
    let image = NewDevice {
        path: dir.path().join("image"),
        make: Some(SIZE),
    };
    let mut made = Made::default();
    let vdevs = made.open_all(&[a.clone(), image.clone()], None);
    assert!(vdevs.is_ok() && image.path.exists());
    drop(made);
    assert!(a.path.exists() && !image.path.exists());
}

#[test]
fn devices_that_could_not_be_added_can_be_taken_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let [a, b, c] = ["a", "b", "c"].map(|name| device(dir.path(), name, SIZE));
    let small = device(dir.path(), "small", 1 << 20);
    let new = NewPool {
        name: "tank".into(),
        devices: vec![a],
        ..NewPool::default()
    };
    let pool = Pool::create(Environment::default(), &new).expect("made");
    let one = |devices: &[&NewDevice], list: Option<AuxList>| {
        let mut new = NewDevices::default();
        let devices = devices.iter().map(|d| (*d).clone()).collect();
        match list {
            None => new.devices = devices,
            Some(AuxList::Spares) => new.spares = devices,
            Some(AuxList::Cache) => new.cache = devices,
        }
        new
    };
    for list in [None, Some(AuxList::Spares), Some(AuxList::Cache)] {
        let refused = pool.add(&one(&[&b, &c, &small], list));
        assert!(refused.is_err_and(|e| e.is(Errno::OVERFLOW)), "{list:?}");
        free(&b);
        free(&c);
    }
    pool.add(&one(&[&b], None)).expect("added");
    pool.export().expect("exported");
}

/// What a look cannot find out: a device fails while it gets its labels.
#[test]
fn devices_that_failed_on_their_way_into_a_pool_have_no_labels() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = device(dir.path(), "a", SIZE);
    let new = NewPool {
        name: "tank".into(),
        devices: vec![a],
        ..NewPool::default()
    };
    let pool = Pool::create(Environment::default(), &new).expect("made");
    let target = pool.config().vdev_tree.children[0].guid;
    let disk = |name: &str| Arc::new(MemDevice::new(name, SIZE));
    let spec = |device: Arc<dyn BlockDevice>| VdevSpec {
        is_disk: false,
        device,
        ashift: None,
    };
    // From the last two of the four labels on.
    let after = SIZE / 2;
    let broken = || {
        let broken = Arc::new(FaultyDevice::new(disk("broken")));
        broken.add(Rule::broken(Op::Write).within(Span::new(after, SIZE - after)));
        broken
    };
    let labels = |device: &FaultyDevice| {
        device.clear();
        Labels::read(device).good().count()
    };
    for place in 0..3 {
        let (whole, fails) = (disk("whole"), broken());
        let mut new = NewVdevs::default();
        let list = match place {
            0 => &mut new.devices,
            1 => &mut new.spares,
            _ => &mut new.cache,
        };
        list.extend([spec(whole.clone()), spec(fails.clone())]);
        pool.spa().add_vdevs(new).expect_err("a device is broken");
        assert_eq!(Labels::read(&*whole).good().count(), 0, "{place}");
        assert_eq!(labels(&fails), 0, "{place}");
    }
    for purpose in [Purpose::Attach, Purpose::Replace] {
        let fails = broken();
        let new = AttachDevice::Device {
            device: fails.clone(),
            is_disk: false,
        };
        let done = pool.spa().attach_device(target, &new, purpose, false);
        done.expect_err("the device is broken");
        assert_eq!(labels(&fails), 0, "{purpose:?}");
    }
    pool.export().expect("exported");
}

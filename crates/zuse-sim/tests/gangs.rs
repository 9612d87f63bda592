//! Gang headers of pools whose vdevs have sectors of different sizes. With `dynamic_gang_header` in
//! use a header is as large as the smallest sector of its own vdevs, whatever else is in the pool.

use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, Pool, PoolAccess, Shape, TopSpec, VdevClass};
use zuse_base::{Entropy, SeededPrng};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::{Environment, NewVdevs, VdevSpec};
use zuse_sim::golden::open_whole;
use zuse_zpl::WriteOptions;

const FEATURE: &str = "com.klarasystems:dynamic_gang_header";
const SIZE: u64 = 128 << 20;
/// Blocks of a file, which are 128 KiB.
const BLOCKS: usize = 12;
/// Members of a header of 512 and of 4096 bytes.
const FEW: usize = 3;
const MANY: usize = 31;

fn spec(device: &Arc<dyn BlockDevice>, ashift: u8) -> VdevSpec {
    VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(ashift),
    }
}

fn new_pool(device: &Arc<dyn BlockDevice>, ashift: u8) -> Arc<Pool> {
    let top = TopSpec {
        shape: Shape::Single,
        devices: 1,
        class: VdevClass::Normal,
    };
    let properties = [("compression".to_owned(), "off".to_owned())];
    let specs = vec![spec(device, ashift)];
    Pool::create_with_layout(Environment::default(), "tank", specs, &[top], &properties)
        .expect("create")
}

fn open(devices: &[Arc<dyn BlockDevice>]) -> Arc<Pool> {
    let access = PoolAccess {
        writable: true,
        ours: true,
        ..PoolAccess::default()
    };
    open_whole(Environment::default(), devices, &access).expect("open")
}

/// The pool as the next opener finds it.
fn again(pool: Arc<Pool>, devices: &[Arc<dyn BlockDevice>]) -> Arc<Pool> {
    pool.export().expect("export");
    drop(pool);
    open(devices)
}

fn bytes(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCKS * (128 << 10)];
    SeededPrng::new(seed).fill(&mut bytes);
    bytes
}

/// A file of gang blocks.
fn write(pool: &Pool, name: &str, seed: u64) {
    let allocator = pool.spa().allocator().expect("allocator");
    allocator.set_max_contiguous(32 << 10);
    let fs = pool.file_system("tank").expect("file system");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let file = fs.create(&who, &root, name.as_bytes(), 0o644);
    let file = file.expect("create");
    fs.write(&file, 0, &bytes(seed), WriteOptions::default())
        .expect("write");
    pool.sync().expect("sync");
    allocator.set_max_contiguous(u64::MAX);
}

/// The number of members of the gang headers of a file's blocks, by whether one copy of the header
/// is on the second vdev.
fn rooms(pool: &Pool, fs: &FileSystem, name: &str) -> Vec<(bool, usize)> {
    let file = fs.resolve(&Credentials::root(), name.as_bytes());
    let file = file.expect("resolve");
    let room = |block| {
        let bp = file.dnode().stored_pointer(block).expect("pointer");
        let bp = bp.expect("a block");
        assert!(bp.is_gang(), "{name}, block {block}");
        let members = pool.spa().io().gang_header_copy(&bp, &bp.dva(0));
        let members = members.unwrap_or_else(|| panic!("{name}, block {block}: no header"));
        (bp.dvas().any(|dva| dva.vdev() == 1), members.len())
    };
    (0..BLOCKS as u64).map(room).collect()
}

fn verify(pool: &Pool, name: &str, seed: u64) {
    let fs = pool.file_system("tank").expect("file system");
    let file = fs.resolve(&Credentials::root(), name.as_bytes());
    let mut have = vec![0; BLOCKS * (128 << 10)];
    let n = fs
        .read(&file.expect("resolve"), 0, &mut have)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(n == have.len() && have == bytes(seed), "{name}");
}

fn sound(pool: &Pool, when: &str) {
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{when}: {:#?}", report.problems);
    assert!(report.gangs > 0, "{when}");
}

/// A pool with sectors of one size that gets a second vdev with another.
fn life(first: u8, second: u8) {
    let disk = |n| Arc::new(MemDevice::new(format!("/d/{n}"), SIZE)) as Arc<dyn BlockDevice>;
    let devices = [disk(0), disk(1)];
    let pool = new_pool(&devices[0], first);
    pool.spa()
        .sync_task(|_| Ok(()), |ctx| ctx.pool.features().add(ctx, FEATURE, 1))
        .expect("in use");
    let pool = again(pool, &devices[..1]);
    let room = |ashift| if ashift == 12 { MANY } else { FEW };
    write(&pool, "before", 1);
    let fs = pool.file_system("tank").expect("file system");
    assert_eq!(rooms(&pool, &fs, "before"), [(false, room(first)); BLOCKS]);
    drop(fs);
    pool.spa()
        .add_vdevs(NewVdevs {
            devices: vec![spec(&devices[1], second)],
            ..NewVdevs::default()
        })
        .expect("add");
    write(&pool, "beside", 2);
    let pool = again(pool, &devices);
    for (name, seed) in [("before", 1), ("beside", 2)] {
        verify(&pool, name, seed);
    }
    sound(&pool, "opened again");
    write(&pool, "after", 3);
    let pool = again(pool, &devices);
    let fs = pool.file_system("tank").expect("file system");
    let (mut own, mut other) = (0, 0);
    for (name, seed) in [("before", 1), ("beside", 2), ("after", 3)] {
        verify(&pool, name, seed);
        for (on_second, members) in rooms(&pool, &fs, name) {
            // Places on both vdevs: the smaller sector counts.
            match on_second {
                true => assert!(members == FEW || first == 9 && members == MANY, "{name}"),
                false => assert_eq!(members, room(first), "{name}"),
            }
            own += usize::from(!on_second);
            other += usize::from(on_second);
        }
    }
    assert!(own >= BLOCKS && other > 0, "{own} and {other}");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    for name in ["before", "after"] {
        fs.unlink(&who, &root, name.as_bytes()).expect("unlink");
    }
    drop((fs, root));
    pool.sync().expect("sync");
    let pool = again(pool, &devices);
    sound(&pool, "some of it freed");
    pool.export().expect("export");
}

#[test]
fn a_gang_header_is_as_large_as_a_sector_of_its_own_vdevs() {
    life(12, 9);
    life(9, 12);
}

//! Initialize and trim: what is overwritten, and the progress that an export keeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zuse::tools::Layers as _;
use zuse::{Credentials, Pool, PoolAccess, VdevWorkKind, VdevWorkOrder};
use zuse_base::{Entropy, Errno, SeededPrng};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::Environment;
use zuse_sim::golden::open_whole;
use zuse_sim::memory_pool::{memory_pool, narrow};
use zuse_zpl::WriteOptions;

const SIZE: u64 = 128 << 20;
const PATTERN: u64 = 0xdead_beef_dead_beee;
const START: VdevWorkOrder = VdevWorkOrder::Start { rate: 0 };
/// So slow that it does not complete.
const SLOW: VdevWorkOrder = VdevWorkOrder::Start { rate: 1 };

fn made() -> (Arc<Pool>, Arc<MemDevice>) {
    let (pool, device) = memory_pool("tank", SIZE, 12, narrow(64 << 20)).expect("made");
    let fs = pool.file_system("tank").expect("a file system");
    let root = fs.root().expect("its root");
    let file = fs.create(&Credentials::root(), &root, b"file", 0o644);
    let file = file.expect("a file");
    fs.write(&file, 0, &content(), WriteOptions::default())
        .expect("written");
    pool.sync().expect("synced");
    (pool, device)
}

fn content() -> Vec<u8> {
    let mut bytes = vec![0; 3 << 20];
    SeededPrng::new(5).fill(&mut bytes);
    bytes
}

fn leaf(pool: &Pool) -> u64 {
    pool.config().vdev_tree.children[0].guid
}

fn order(pool: &Pool, kind: VdevWorkKind, order: VdevWorkOrder) -> zuse::Result<()> {
    let mut done = pool
        .order_vdev_work(kind, order, &[leaf(pool)])
        .expect("asked");
    done.pop().expect("an answer")
}

fn finish(pool: &Pool, kind: VdevWorkKind) {
    let end = Instant::now() + Duration::from_secs(60);
    while pool.spa().vdev_work_left(kind) > 0 {
        assert!(Instant::now() < end, "it does not come to its end");
        std::thread::sleep(Duration::from_millis(5));
    }
    pool.sync().expect("synced");
}

/// The stored state and position of a kind, from the device's ZAP.
fn noted(pool: &Pool, kind: VdevWorkKind) -> (u64, u64) {
    let work = pool.vdev_work(leaf(pool), SIZE).expect("a ZAP");
    let work = match kind {
        VdevWorkKind::Initialize => work.initialize,
        VdevWorkKind::Trim => work.trim,
    };
    (work.state.number(), work.done)
}

fn reopened(device: &Arc<MemDevice>) -> Arc<Pool> {
    let env = Environment {
        limits: narrow(64 << 20),
        ..Environment::default()
    };
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device.clone()];
    let access = PoolAccess {
        writable: true,
        ours: true,
        ..PoolAccess::default()
    };
    open_whole(env, &devices, &access).expect("opened")
}

/// Words of the device that hold the pattern.
fn patterned(device: &MemDevice) -> u64 {
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(&mut bytes, 0).expect("read");
    let words = bytes.as_chunks::<8>().0.iter();
    words.filter(|w| u64::from_le_bytes(**w) == PATTERN).count() as u64 * 8
}

fn holds_its_data(pool: &Arc<Pool>) {
    let fs = pool.file_system("tank").expect("a file system");
    let file = fs.resolve(&Credentials::root(), b"file").expect("the file");
    let mut bytes = vec![0; 3 << 20];
    pool.drop_cache();
    fs.read(&file, 0, &mut bytes).expect("read");
    assert!(bytes == content(), "the file is not what it was");
    let report = check(pool.spa(), Depth::All).expect("checked");
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn all_free_space_and_nothing_else_is_initialized() {
    let (pool, device) = made();
    assert_eq!(noted(&pool, VdevWorkKind::Initialize), (0, 0));
    order(&pool, VdevWorkKind::Initialize, START).expect("begun");
    let twice = order(&pool, VdevWorkKind::Initialize, START);
    assert!(twice.is_ok() || twice.is_err_and(|e| e.is(Errno::BUSY)));
    finish(&pool, VdevWorkKind::Initialize);
    let (state, done) = noted(&pool, VdevWorkKind::Initialize);
    assert_eq!(state, 4, "complete");
    assert!(done > SIZE / 2, "{done}");
    let space = pool.spa().space();
    let free = space.capacity - space.allocated - space.deferred;
    let written = patterned(&device);
    assert!(
        written + (1 << 20) > free && written <= space.capacity - (3 << 20),
        "{written} of {free} free bytes"
    );
    holds_its_data(&pool);
    // Trimmed space is empty.
    order(&pool, VdevWorkKind::Trim, START).expect("begun");
    finish(&pool, VdevWorkKind::Trim);
    assert!(patterned(&device) < 1 << 20, "{}", patterned(&device));
    assert_eq!(noted(&pool, VdevWorkKind::Trim).0, 4);
    holds_its_data(&pool);
    pool.close().expect("closed");
}

#[test]
fn work_goes_on_after_an_export_until_it_is_stopped() {
    let (pool, device) = made();
    order(&pool, VdevWorkKind::Trim, SLOW).expect("begun");
    let busy = order(&pool, VdevWorkKind::Trim, START).expect_err("it goes on");
    assert!(busy.to_string().contains("currently trimming"), "{busy}");
    std::thread::sleep(Duration::from_millis(50));
    pool.export().expect("exported");

    let pool = reopened(&device);
    let (state, done) = noted(&pool, VdevWorkKind::Trim);
    assert_eq!(state, 1, "active");
    assert!(pool.spa().vdev_work_left(VdevWorkKind::Trim) > 0);
    order(&pool, VdevWorkKind::Trim, VdevWorkOrder::Suspend).expect("suspended");
    assert_eq!(noted(&pool, VdevWorkKind::Trim).0, 3, "suspended");
    assert!(noted(&pool, VdevWorkKind::Trim).1 >= done, "it goes back");
    assert_eq!(pool.spa().vdev_work_left(VdevWorkKind::Trim), 0);
    let idle =
        order(&pool, VdevWorkKind::Trim, VdevWorkOrder::Suspend).expect_err("it does not go on");
    assert!(idle.to_string().contains("no active trim"), "{idle}");
    order(&pool, VdevWorkKind::Trim, VdevWorkOrder::Cancel).expect("canceled");
    assert_eq!(noted(&pool, VdevWorkKind::Trim), (2, 0), "canceled");
    assert!(order(&pool, VdevWorkKind::Trim, VdevWorkOrder::Cancel).is_err());
    order(&pool, VdevWorkKind::Initialize, VdevWorkOrder::Forget).expect("forgotten");
    holds_its_data(&pool);
    pool.close().expect("closed");
}

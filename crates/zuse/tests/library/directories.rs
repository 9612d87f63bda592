//! Device reads of directories and extended attributes, counted by a recording device. With
//! `ZUSE_LONG=1` in the environment the large directories have a million names (a minute in a
//! release build).

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _, XattrMode};
use zuse::{BlockDevice, Credentials, Environment, Pool, PoolAccess};
use zuse_base::ObjectId;
use zuse_device::{MemDevice, RecordingDevice};
use zuse_dmu::zap::{Zap, ZapOptions};
use zuse_pool::VdevSpec;

struct Bench {
    device: Arc<RecordingDevice>,
    pool: Arc<Pool>,
    fs: Arc<FileSystem>,
}

/// That many names; with `ZUSE_LONG` in the environment a million.
fn names(few: u64) -> u64 {
    if std::env::var_os("ZUSE_LONG").is_some() {
        1_000_000
    } else {
        few
    }
}

impl Bench {
    fn new() -> Self {
        let disk: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/disk", 8 << 30));
        let device = Arc::new(RecordingDevice::new(disk));
        let vdev = VdevSpec {
            device: device.clone(),
            is_disk: false,
            ashift: Some(12),
        };
        let env = Environment::default();
        let pool = Pool::create_on_devices(env, "tank", vec![vdev], None, &[]).unwrap();
        let fs = pool.file_system("tank").unwrap();
        Self { device, pool, fs }
    }

    /// The same pool, opened for reading with nothing in memory.
    fn reopened(self) -> Self {
        self.reopened_by(Environment::default().limits.threads)
    }

    /// As [`Self::reopened`], with so many threads for its work.
    fn reopened_by(self, threads: usize) -> Self {
        let mut env = Environment::default();
        env.limits.threads = threads;
        let Self { device, pool, fs } = self;
        drop(fs);
        let config = pool.config();
        pool.export().unwrap();
        drop(pool);
        let guid = config.vdev_tree.children[0].guid;
        let devices = [(guid, device.clone() as Arc<dyn BlockDevice>)].into();
        let access = PoolAccess::default();
        let pool = Pool::open_on(env, &config, &devices, &access).unwrap();
        let fs = pool.file_system("tank").unwrap();
        pool.spa().io().cache().clear();
        device.reset();
        Self { device, pool, fs }
    }

    /// Returns when the prefetches queued for the only other thread are done.
    fn wait_for_the_only_thread(&self) {
        let (done, wait) = std::sync::mpsc::channel();
        let last = Box::new(move || done.send(()).unwrap());
        assert!(self.fs.objset().work().try_submit(last).is_ok());
        wait.recv().unwrap();
    }

    /// How often each place was read since the last call, most often first.
    fn reads(&self) -> Vec<(u64, u32)> {
        let mut places = BTreeMap::new();
        for operation in self.device.take() {
            if operation.op == zuse_device::Op::Read {
                *places.entry(operation.offset).or_insert(0) += 1;
            }
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|p| std::cmp::Reverse(p.1));
        places
    }
}

#[test]
fn a_cold_walk_with_attributes_reads_each_block_once() {
    let bench = Bench::new();
    let who = Credentials::root();
    let root = bench.fs.root().unwrap();
    let (dirs, files) = (12, 400);
    for d in 0..dirs {
        let name = format!("d{d}");
        let dir = bench.fs.mkdir(&who, &root, name.as_bytes(), 0o755).unwrap();
        for f in 0..files {
            let name = format!("file-{f:08}");
            bench.fs.create(&who, &dir, name.as_bytes(), 0o644).unwrap();
        }
    }
    drop(root);
    let bench = bench.reopened();
    let fs = &bench.fs;
    let mut waiting = vec![fs.root_id()];
    let mut seen = 0;
    while let Some(object) = waiting.pop() {
        let dir = fs.znode(object).unwrap();
        fs.readdir(&dir, 2, true, &mut |entry| {
            let znode = entry.znode.expect("an object that can be read");
            assert_eq!(
                fs.getattr(znode).attributes.is_dir(),
                object == fs.root_id()
            );
            seen += 1;
            if object == fs.root_id() {
                waiting.push(entry.object);
            }
            true
        })
        .unwrap();
    }
    assert_eq!(seen, dirs * (files + 1));
    let reads = bench.reads();
    assert_eq!(reads[0].1, 1, "{reads:?}");
    // 32 objects to a dnode block, a block for each directory and the root, and the few above them.
    let blocks = (dirs * (files + 1)) / 32 + dirs + 1;
    assert!(reads.len() as u64 <= blocks + 12, "{} reads", reads.len());
    bench.pool.close().unwrap();
}

#[test]
fn a_large_directory_is_listed_in_a_few_reads() {
    let bench = Bench::new();
    let who = Credentials::root();
    let dir = bench.fs.mkdir(&who, &bench.fs.root().unwrap(), b"d", 0o755);
    let dir = dir.unwrap();
    let files: u64 = 6_000;
    for f in 0..files {
        let name = format!("file-{f:08}");
        bench.fs.create(&who, &dir, name.as_bytes(), 0o644).unwrap();
    }
    let object = dir.object();
    drop(dir);
    let mut bench = bench.reopened();
    for plus in [false, true] {
        let dir = bench.fs.znode(object).unwrap();
        // The block of the directory itself and the blocks above it.
        bench.reads();
        let mut seen = 0;
        bench
            .fs
            .readdir(&dir, 2, plus, &mut |entry| {
                assert_eq!(entry.znode.is_some(), plus);
                seen += 1;
                true
            })
            .unwrap();
        assert_eq!(seen, files);
        let reads = bench.reads();
        // Two dozen leaves; with attributes almost two hundred dnode blocks.
        assert!(reads.len() <= 20, "{} reads: {reads:?}", reads.len());
        drop(dir);
        bench = bench.reopened();
    }
    bench.pool.close().unwrap();
}

#[test]
fn a_name_of_a_huge_directory_is_two_blocks_away() {
    let bench = Bench::new();
    let count = names(210_000);
    let object = {
        let tx = bench.fs.backing().begin(0, false).unwrap();
        // Small indirect blocks, so that there are several.
        let options = ZapOptions {
            indirect_shift: 14,
            ..ZapOptions::default()
        };
        let zap = Zap::create(bench.fs.objset(), &tx, 20, &options).unwrap();
        for i in 0..count {
            zap.add_u64(&tx, format!("file-{i:08}").as_bytes(), i)
                .unwrap();
        }
        zap.dnode().object()
    };
    let bench = bench.reopened();
    let zap = Zap::open(&bench.fs.objset().dnode(ObjectId(object.0)).unwrap()).unwrap();
    let look = |i: u64| {
        let found = zap.lookup_u64(format!("file-{i:08}").as_bytes()).unwrap();
        assert_eq!(found, Some(i));
        bench.reads()
    };
    // Header and indirect blocks are read once.
    (0..8).for_each(|i| drop(look(i)));
    let mut total = 0;
    for i in 0..100 {
        let reads = look(1000 + i * 7919 % (count - 10_000));
        assert!(reads.len() <= 2, "{reads:?}");
        total += reads.len();
    }
    assert!(total >= 50, "only {total} reads: was this cold?");
    // Shortcuts lead to cached blocks; the block cache is used from time to time, so that it knows
    // which blocks are in use.
    let known: Vec<_> = (0..2000).map(|i| format!("file-{:08}", i * 101)).collect();
    let round = || {
        for name in &known {
            assert!(zap.lookup_u64(name.as_bytes()).unwrap().is_some());
        }
    };
    (0..2).for_each(|_| round());
    let cache = bench.pool.spa().io().cache();
    let before = cache.stats();
    round();
    let after = cache.stats();
    assert_eq!(after.misses, before.misses);
    let asked = after.hits - before.hits;
    assert!((50..=500).contains(&asked), "{asked} hits of the cache");
    drop(zap);
    bench.pool.close().unwrap();
}

#[test]
fn a_directory_that_was_emptied_is_small_and_listed_at_once() {
    let bench = Bench::new();
    let (fs, who) = (&bench.fs, Credentials::root());
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&who, &root, b"d", 0o755).unwrap();
    let name = |i: u64| format!("file-{i:08}");
    let count = names(12_000);
    for i in 0..count {
        fs.create(&who, &dir, name(i).as_bytes(), 0o644).unwrap();
    }
    bench.pool.sync().unwrap();
    assert!(dir.dnode().used_bytes() > 500 << 10);
    for i in 0..count {
        fs.unlink(&who, &dir, name(i).as_bytes()).unwrap();
    }
    bench.pool.sync().unwrap();
    let (used, size) = (dir.dnode().used_bytes(), dir.dnode().block_size());
    assert!(
        used <= 16 << 10 && size <= 4608,
        "{used} bytes, blocks of {size}"
    );
    bench.pool.spa().io().cache().clear();
    bench.device.reset();
    fs.readdir(&dir, 2, false, &mut |_| panic!("an entry"))
        .unwrap();
    assert!(bench.device.counts().reads <= 4);
}

/// Their objects are further apart than one read covers.
#[test]
fn the_device_is_hinted_of_directories_that_are_read_ahead() {
    let bench = Bench::new();
    let who = Credentials::root();
    let root = bench.fs.root().unwrap();
    for d in 0..24 {
        let dir = bench
            .fs
            .mkdir(&who, &root, format!("d{d:02}").as_bytes(), 0o755);
        let dir = dir.unwrap();
        for i in 0..1200 {
            let name = format!("file-{i:08}");
            let made = bench.fs.create(&who, &dir, name.as_bytes(), 0o644);
            drop(made.unwrap());
        }
    }
    drop(root);
    let bench = bench.reopened_by(1);
    let root = bench.fs.root().unwrap();
    let mut dirs = Vec::new();
    bench
        .fs
        .readdir(&root, 2, false, &mut |e| {
            dirs.push(e.object);
            true
        })
        .unwrap();
    let mut names = 0;
    for dir in dirs {
        let dir = bench.fs.znode(dir).unwrap();
        bench
            .fs
            .readdir(&dir, 2, false, &mut |_| {
                names += 1;
                true
            })
            .unwrap();
        bench.wait_for_the_only_thread();
    }
    assert_eq!(names, 24 * 1200);
    let counts = bench.device.counts();
    assert!(
        (16..=counts.reads).contains(&counts.prefetches),
        "{counts:?}"
    );
    assert!(counts.prefetched_bytes <= counts.read_bytes, "{counts:?}");
    bench.pool.close().unwrap();
}

/// 47 blocks of objects: read one by one these are 47 device reads.
#[test]
fn files_looked_up_in_the_order_of_their_making_are_read_many_at_once() {
    let bench = Bench::new();
    let who = Credentials::root();
    let count = 1500;
    let name = |i: usize| format!("file-{i:08}");
    {
        let root = bench.fs.root().unwrap();
        for i in 0..count {
            let name = name(i);
            let made = bench.fs.create(&who, &root, name.as_bytes(), 0o644);
            drop(made.unwrap());
        }
    }
    let bench = bench.reopened_by(1);
    for i in 0..count {
        drop(bench.fs.resolve(&who, name(i).as_bytes()).unwrap());
        bench.wait_for_the_only_thread();
    }
    let reads = bench.reads();
    assert_eq!(reads[0].1, 1, "{reads:?}");
    assert!(reads.len() <= 20, "{} reads", reads.len());
    bench.pool.close().unwrap();
}

/// Noise: compressible data would be embedded in block pointers.
fn value(i: usize, len: usize) -> Vec<u8> {
    let mut state = i as u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Files `file-00000000` and so on, each with these attributes.
fn files_with(
    bench: &Bench,
    count: usize,
    attributes: impl Fn(usize) -> Vec<(&'static str, usize)>,
) {
    let who = Credentials::root();
    let root = bench.fs.root().unwrap();
    for i in 0..count {
        let name = format!("file-{i:08}");
        let made = bench.fs.create(&who, &root, name.as_bytes(), 0o644);
        let file = made.unwrap();
        for (name, len) in attributes(i) {
            bench
                .fs
                .set_xattr(&who, &file, name.as_bytes(), &value(i, len), XattrMode::Any)
                .unwrap();
        }
    }
}

fn check_value(bench: &Bench, i: usize, name: &str, len: usize) {
    let who = Credentials::root();
    let file = format!("file-{i:08}");
    let file = bench.fs.resolve(&who, file.as_bytes()).unwrap();
    let got = bench.fs.get_xattr(&who, &file, name.as_bytes()).unwrap();
    assert!(got == value(i, len), "file {i}");
}

#[test]
fn extended_attributes_asked_in_order_are_read_once_each_ahead_or_not() {
    let mut bench = Bench::new();
    // In the dnode, in a spill block, in a hidden directory.
    let lengths = [8, 700, 40_000];
    let count = 300;
    let len = |i: usize| lengths[i % lengths.len()];
    files_with(&bench, count, |i| vec![("user.x", len(i))]);
    let values: u64 = (0..count).map(|i| len(i) as u64).sum();
    // How many blocks one read covers depends on timing, unless one waits for the other.
    for waiting in [false, true] {
        bench = if waiting {
            bench.reopened_by(1)
        } else {
            bench.reopened()
        };
        for i in 0..count {
            check_value(&bench, i, "user.x", len(i));
            if waiting {
                bench.wait_for_the_only_thread();
            }
        }
        let counts = bench.device.counts();
        let reads = bench.reads();
        assert_eq!(reads[0].1, 1, "{reads:?}");
        assert!(counts.read_bytes >= values, "{counts:?}");
        let few = reads.len() <= count / 4;
        assert!(!waiting || few, "{} reads", reads.len());
    }
    bench.pool.close().unwrap();
}

/// The hidden directory of such a file is named in its spill block.
#[test]
fn hidden_values_of_files_with_others_are_brought_too() {
    let bench = Bench::new();
    let (count, short, long) = (200, 700, 40_000);
    files_with(&bench, count, |_| {
        vec![("user.short", short), ("user.long", long)]
    });
    let bench = bench.reopened_by(1);
    for i in 0..count {
        check_value(&bench, i, "user.short", short);
        bench.wait_for_the_only_thread();
    }
    // From here on nothing more is prefetched.
    let mut missed = Vec::new();
    for i in 0..count {
        let before = bench.pool.spa().io().cache().misses();
        check_value(&bench, i, "user.long", long);
        if bench.pool.spa().io().cache().misses() != before {
            missed.push(i);
        }
    }
    assert!(missed.len() <= 3, "{missed:?}");
    bench.pool.close().unwrap();
}

/// The last user of a file system closes it, which takes a moment. A caller that opens it meanwhile
/// waits instead of getting an error that it is busy.
#[test]
fn a_file_system_that_is_being_closed_on_another_thread_is_waited_for() {
    let Bench { pool, fs, .. } = Bench::new();
    // The backing outlives it, and so does its being in use.
    let below = fs.backing().clone();
    drop(fs);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| pool.file_system("tank").map(drop));
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(below);
        asked.join().expect("no panic").expect("is waited for");
    });
    // A file system that is in use for longer is busy.
    let fs = pool.file_system("tank").expect("opens");
    let below = fs.backing().clone();
    drop(fs);
    let busy = pool.file_system("tank").map(drop).expect_err("in use");
    assert!(busy.is(zuse::Errno::BUSY), "{busy}");
    drop(below);
    pool.file_system("tank").expect("opens again");
}

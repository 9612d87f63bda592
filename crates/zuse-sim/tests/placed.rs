//! Data of synchronous writes that is written to its final place at once, until its txg is written.

use std::sync::Arc;
use std::time::Duration;

use zuse::stream::{SendOptions, SendProgress, StreamWriter};
use zuse::tools::Layers as _;
use zuse::{Credentials, DestroyOptions, NewVolume, NewerSnapshots, Pool, PoolAccess, Recursion};
use zuse_base::{Entropy, SeededPrng};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, FaultyDevice, MemDevice, Op, PowerSupply, Rule, SimDisk};
use zuse_format::object_type;
use zuse_format::zil::Body;
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::golden::open_whole;
use zuse_zpl::{FileSystem, WriteOptions, Znode};

const SIZE: u64 = 128 << 20;
const BLOCK: usize = 128 << 10;
const NAME: &str = "placed/f";

/// Txgs end only on request.
fn env() -> Environment {
    let mut env = Environment::default();
    env.limits.intent_log = true;
    env.limits.log_indirect = true;
    env.limits.clone_blocks = true;
    env.limits.txg_timeout = Duration::from_secs(3600);
    env.limits.threads = 1;
    env
}

fn writable() -> PoolAccess {
    PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    }
}

fn spec(device: Arc<dyn BlockDevice>) -> VdevSpec {
    VdevSpec {
        device,
        is_disk: false,
        ashift: Some(12),
    }
}

/// A pool with a file system whose log has a chain already.
fn pool(device: Arc<dyn BlockDevice>, properties: &[(&str, &str)]) -> (Arc<Pool>, Arc<FileSystem>) {
    let created = Pool::create_on_devices(env(), "placed", vec![spec(device)], None, &[]);
    let pool = created.expect("create");
    let properties: Vec<(String, String)> = properties
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    pool.create_filesystem(NAME, &properties, (0, 0))
        .expect("file system");
    let fs = pool.file_system(NAME).expect("file system");
    let first = new_file(&fs, b"first");
    put(&fs, &first, 0, b"begins the chain");
    fs.fsync(&first).expect("fsync");
    (pool, fs)
}

fn who() -> Credentials {
    Credentials::root()
}

fn new_file(fs: &Arc<FileSystem>, name: &[u8]) -> Arc<Znode> {
    let root = fs.root().expect("root");
    fs.create(&who(), &root, name, 0o644).expect("create")
}

fn put(fs: &Arc<FileSystem>, file: &Arc<Znode>, at: u64, bytes: &[u8]) {
    fs.write(file, at, bytes, WriteOptions::default())
        .expect("write");
}

fn get(fs: &Arc<FileSystem>, name: &[u8]) -> Option<Vec<u8>> {
    let file = fs.lookup(&who(), &fs.root().expect("root"), name).ok()?;
    let mut bytes = vec![0; file.size() as usize];
    fs.read(&file, 0, &mut bytes).expect("read");
    Some(bytes)
}

/// Incompressible bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let prng = SeededPrng::new(seed);
    (0..len / 8)
        .flat_map(|_| prng.u64().to_le_bytes())
        .collect()
}

fn placed(pool: &Pool) -> u64 {
    pool.spa().logs().figures.placed.get()
}

fn sound(pool: &Arc<Pool>) {
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{flaws:?}");
}

/// The content of a copy of the device, as after a crash: read-only, claimed, and replayed for
/// real. Returns how many records have their data elsewhere.
fn after_a_crash(image: &MemDevice, expected: &[(&[u8], Option<&[u8]>)]) -> usize {
    let copy: Arc<dyn BlockDevice> = Arc::new(MemDevice::from_image("sim0", &image.snapshot()));
    let compare = |pool: &Arc<Pool>, when: &str| {
        let fs = pool.file_system(NAME).expect("file system");
        for (name, bytes) in expected {
            let found = get(&fs, name);
            assert!(found.as_deref() == *bytes, "{when}: {name:?}");
        }
    };
    let pool = open_whole(env(), std::slice::from_ref(&copy), &PoolAccess::default());
    let pool = pool.expect("open");
    sound(&pool);
    let mut elsewhere = 0;
    let dataset = pool.dsl().dataset(NAME).expect("dataset");
    let header = dataset.log_header().expect("header");
    let mut visit = |met: zuse::tools::LogItem<'_>| {
        if let zuse::tools::LogItem::Record(record) = met
            && let Body::Write {
                offset,
                length,
                block,
                data: None,
                ..
            } = &record.body
        {
            // Else OpenZFS's replay may leave a longer file than there was.
            assert_eq!((offset + length) % block.lsize(), 0, "{offset}, {length}");
            elsewhere += 1;
        }
        Ok(true)
    };
    pool.dsl().visit_log(&header, &mut visit).expect("walk");
    compare(&pool, "read only");
    pool.close().expect("close");
    drop((dataset, pool));
    for when in ["claimed", "replayed"] {
        let pool = open_whole(env(), std::slice::from_ref(&copy), &writable()).expect("open");
        if when == "replayed" {
            compare(&pool, when);
        }
        pool.sync().expect("sync");
        sound(&pool);
        pool.close().expect("close");
    }
    elsewhere
}

#[test]
fn data_of_large_synchronous_writes_is_written_once() {
    let device = Arc::new(MemDevice::new("sim0", SIZE));
    let (pool, fs) = pool(device.clone(), &[]);
    let file = new_file(&fs, b"large");
    let bytes = noise(1, 16 * BLOCK);
    let before = pool.spa().io().bytes_written();
    put(&fs, &file, 0, &bytes);
    fs.fsync(&file).expect("fsync");
    assert_eq!(placed(&pool), 16);
    let logged = pool.spa().io().bytes_written() - before;
    let len = bytes.len() as u64;
    assert!((len..len + (64 << 10)).contains(&logged), "{logged} bytes");
    assert_eq!(after_a_crash(&device, &[(b"large", Some(&bytes))]), 16);

    pool.sync().expect("sync");
    let all = pool.spa().io().bytes_written() - before;
    assert!(all < len + len / 4, "{all} bytes for {len}");
    sound(&pool);
    assert!(get(&fs, b"large").is_some_and(|found| found == bytes));
    assert_eq!(after_a_crash(&device, &[(b"large", Some(&bytes))]), 0);
    drop((file, fs));
    pool.close().expect("close");
}

/// A file that ends within its last block, which is written whole and again.
#[test]
fn what_the_end_of_a_file_cuts_off_goes_through_the_log() {
    let device = Arc::new(MemDevice::new("sim0", SIZE));
    let (pool, fs) = pool(device.clone(), &[("logbias", "throughput")]);
    let (small, large) = (new_file(&fs, b"small"), new_file(&fs, b"large"));
    let (mut some, mut much) = (Vec::new(), Vec::new());
    for round in 0..3 {
        some = noise(40 + round, 100_000);
        put(&fs, &small, 0, &some);
        fs.fsync(&small).expect("fsync");
        much = noise(50 + round, 2 * BLOCK + 90_000);
        put(&fs, &large, 0, &much);
        fs.fsync(&large).expect("fsync");
        assert_eq!(placed(&pool), 2 * (round + 1));
        // A block is in one record by its pointer.
        pool.sync().expect("sync");
    }
    put(&fs, &large, 5, b"begins the log again");
    much[5..25].copy_from_slice(b"begins the log again");
    put(&fs, &large, 2 * BLOCK as u64, &much[2 * BLOCK..]);
    put(&fs, &small, 0, &some);
    fs.fsync(&small).expect("fsync");
    fs.fsync(&large).expect("fsync");
    let expected: [(&[u8], Option<&[u8]>); 2] = [(b"small", Some(&some)), (b"large", Some(&much))];
    after_a_crash(&device, &expected);
    drop((small, large, fs));
    pool.close().expect("close");
}

#[test]
fn small_and_scattered_writes_go_through_the_log() {
    let device = Arc::new(MemDevice::new("sim0", SIZE));
    let (pool, fs) = pool(device.clone(), &[("compression", "off")]);
    let file = new_file(&fs, b"file");
    let mut bytes = noise(2, 4 * BLOCK);
    put(&fs, &file, 0, &bytes);
    pool.sync().expect("sync");
    for at in [5000, BLOCK + 300, 2 * BLOCK - 20_000] {
        let new = noise(at as u64, 24_000);
        bytes[at..at + new.len()].copy_from_slice(&new);
        put(&fs, &file, at as u64, &new);
    }
    fs.fsync(&file).expect("fsync");
    assert_eq!(placed(&pool), 0);
    // Zeros have no block to which a record could point.
    put(&fs, &file, 0, &vec![0; BLOCK]);
    bytes[..BLOCK].fill(0);
    fs.fsync(&file).expect("fsync");
    assert_eq!(placed(&pool), 0);
    after_a_crash(&device, &[(b"file", Some(&bytes))]);
}

/// Every way in which a placed block differs from what its txg writes.
#[test]
fn blocks_that_change_after_they_were_placed_are_freed_in_their_txg() {
    let device = Arc::new(MemDevice::new("sim0", SIZE));
    let (pool, fs) = pool(device.clone(), &[("logbias", "throughput")]);
    let names: [&[u8]; 6] = [b"over", b"part", b"cut", b"gone", b"hole", b"twice"];
    let mut expected: Vec<(&[u8], Option<Vec<u8>>)> = Vec::new();
    for (i, name) in names.into_iter().enumerate() {
        let file = new_file(&fs, name);
        let mut bytes = noise(i as u64, 4 * BLOCK);
        put(&fs, &file, 0, &bytes);
        fs.fsync(&file).expect("fsync");
        let new = noise(100 + i as u64, 2 * BLOCK);
        match name {
            b"over" => {
                put(&fs, &file, BLOCK as u64, &new);
                bytes[BLOCK..3 * BLOCK].copy_from_slice(&new);
            }
            b"part" => {
                put(&fs, &file, 777, &new[..50]);
                bytes[777..827].copy_from_slice(&new[..50]);
            }
            b"cut" => {
                let len = BLOCK + 999;
                fs.truncate(&who(), &file, len as u64).expect("truncate");
                bytes.truncate(len);
            }
            b"gone" => {
                let root = fs.root().expect("root");
                fs.unlink(&who(), &root, name).expect("unlink");
            }
            b"hole" => {
                let at = 2 * BLOCK as u64;
                fs.fallocate(&file, 3, at, BLOCK as u64).expect("hole");
                bytes[2 * BLOCK..3 * BLOCK].fill(0);
            }
            _ => {
                for round in 0..3 {
                    bytes = noise(200 + round, 4 * BLOCK);
                    put(&fs, &file, 0, &bytes);
                    fs.fsync(&file).expect("fsync");
                }
            }
        }
        let root = fs.root().expect("root");
        fs.fsync(if name == b"gone" { &root } else { &file })
            .expect("fsync");
        expected.push((name, (name != b"gone").then_some(bytes)));
    }
    let same: Vec<(&[u8], Option<&[u8]>)> = (expected
        .iter()
        .map(|(name, bytes)| (*name, bytes.as_deref())))
    .collect();
    assert!(placed(&pool) > 30, "{}", placed(&pool));
    assert!(after_a_crash(&device, &same) > 30);
    pool.sync().expect("sync");
    sound(&pool);
    after_a_crash(&device, &same);
    drop(fs);
    pool.close().expect("close");
}

#[test]
fn placed_blocks_are_cloned_kept_by_snapshots_and_sent_as_any_other() {
    let device = Arc::new(MemDevice::new("sim0", SIZE));
    let (pool, fs) = pool(device.clone(), &[]);
    let file = new_file(&fs, b"source");
    let bytes = noise(3, 4 * BLOCK);
    put(&fs, &file, 0, &bytes);
    fs.fsync(&file).expect("fsync");
    assert_eq!(placed(&pool), 4);
    let clone = new_file(&fs, b"clone");
    let mut at = 0;
    while at < file.size() {
        let left = file.size() - at;
        at += fs
            .copy_range(&file, at, &clone, at, left)
            .expect("copy")
            .max(1);
    }
    fs.fsync(&clone).expect("fsync");
    let same: [(&[u8], Option<&[u8]>); 2] = [(b"source", Some(&bytes)), (b"clone", Some(&bytes))];
    after_a_crash(&device, &same);
    // Written, included in a snapshot and written again: the last in another txg.
    let snapshot = format!("{NAME}@s");
    let newer = noise(4, 4 * BLOCK);
    put(&fs, &file, 0, &newer);
    fs.fsync(&file).expect("fsync");
    pool.snapshot(std::slice::from_ref(&snapshot), Recursion::One, &[])
        .expect("snapshot");
    put(&fs, &file, 0, &bytes);
    fs.fsync(&file).expect("fsync");
    pool.sync().expect("sync");
    sound(&pool);
    let send = pool
        .send(&snapshot, None, SendOptions::default())
        .expect("send");
    let mut out = StreamWriter::new(Vec::new());
    send.run(&mut out, &SendProgress::default()).expect("run");
    let stream = out.into_inner().expect("stream");
    let has = |piece: &[u8]| stream.windows(64).any(|w| w == &piece[..64]);
    assert!(
        has(&newer[3 * BLOCK..]) && has(&bytes[2 * BLOCK..]),
        "the snapshot is another"
    );
    pool.destroy_snapshots(&[snapshot], DestroyOptions::ONE)
        .expect("destroy");
    (0..3).for_each(|_| pool.sync().expect("sync"));
    sound(&pool);
    after_a_crash(&device, &same);
    drop((file, clone, fs));
    pool.close().expect("close");
}

/// The file is rolled back, or its file system destroyed, in the txg in which blocks were placed.
#[test]
fn a_file_system_that_goes_takes_its_placed_blocks_along() {
    for destroys in [false, true] {
        let device = Arc::new(MemDevice::new("sim0", SIZE));
        let (pool, fs) = pool(device.clone(), &[]);
        let snapshot = format!("{NAME}@s");
        pool.snapshot(&[snapshot], Recursion::One, &[])
            .expect("snapshot");
        let file = new_file(&fs, b"file");
        put(&fs, &file, 0, &noise(5, 8 * BLOCK));
        fs.fsync(&file).expect("fsync");
        assert_eq!(placed(&pool), 8);
        drop((file, fs));
        match destroys {
            true => pool
                .destroy_dataset(NAME, DestroyOptions::RECURSIVE.force(true))
                .expect("destroy"),
            false => pool
                .rollback(&format!("{NAME}@s"), NewerSnapshots::Refuse)
                .expect("rollback"),
        }
        (0..3).for_each(|_| pool.sync().expect("sync"));
        sound(&pool);
        pool.close().expect("close");
    }
}

#[test]
fn with_a_log_device_data_goes_there_but_for_throughput() {
    for (bias, expected) in [("latency", 0), ("throughput", 8)] {
        let (data, log) = (MemDevice::new("sim0", SIZE), MemDevice::new("sim1", SIZE));
        let (pool, fs) = pool(Arc::new(data), &[("logbias", bias)]);
        let added = pool.spa().add_vdevs(zuse_pool::NewVdevs {
            devices: vec![spec(Arc::new(log))],
            layout: vec![zuse_pool::TopSpec {
                shape: zuse::Shape::Single,
                devices: 1,
                class: zuse::VdevClass::Log,
            }],
            ..zuse_pool::NewVdevs::default()
        });
        added.expect("add");
        let file = new_file(&fs, b"file");
        put(&fs, &file, 0, &noise(6, 8 * BLOCK));
        fs.fsync(&file).expect("fsync");
        assert_eq!(placed(&pool), expected, "logbias={bias}");
        pool.sync().expect("sync");
        sound(&pool);
        drop((file, fs));
        pool.close().expect("close");
    }
}

#[test]
fn blocks_that_their_device_does_not_take_are_left_to_the_log_or_the_txg() {
    let inner = Arc::new(MemDevice::new("sim0", SIZE));
    let faulty = Arc::new(FaultyDevice::new(inner.clone()));
    let (pool, fs) = pool(faulty.clone(), &[]);
    let file = new_file(&fs, b"file");
    let bytes = noise(7, 4 * BLOCK);
    put(&fs, &file, 0, &bytes);
    faulty.add(Rule::broken(Op::Write).times(2));
    fs.fsync(&file).expect("fsync");
    assert!(placed(&pool) < 4);
    after_a_crash(&inner, &[(b"file", Some(&bytes))]);
    pool.sync().expect("sync");
    sound(&pool);
    after_a_crash(&inner, &[(b"file", Some(&bytes))]);
    drop((file, fs));
    pool.close().expect("close");
}

/// Volumes, encrypted ones too.
#[test]
fn volumes_place_whole_blocks() {
    for encrypted in [false, true] {
        let device = Arc::new(MemDevice::new("sim0", SIZE));
        let created =
            Pool::create_on_devices(env(), "placed", vec![spec(device.clone())], None, &[]);
        let pool = created.expect("create");
        let mut properties = vec![("logbias".to_owned(), "throughput".to_owned())];
        let key = zuse::KeyMaterial::new(vec![7; 32]);
        if encrypted {
            for (name, value) in [
                ("encryption", "on"),
                ("keyformat", "raw"),
                ("keylocation", "prompt"),
            ] {
                properties.push((name.to_owned(), value.to_owned()));
            }
        }
        let new = NewVolume {
            size: 1 << 20,
            block_size: 16384,
            sparse: true,
            properties,
        };
        let given = encrypted.then_some(&key);
        pool.create_volume_with_key("placed/v", &new, given)
            .expect("volume");
        let volume = pool.volume("placed/v").expect("volume");
        volume.write(0, b"first").expect("write");
        volume.sync().expect("sync");
        let bytes = noise(8, 1 << 19);
        volume.write(0, &bytes).expect("write");
        volume.sync().expect("sync");
        assert_eq!(placed(&pool), 32, "encrypted: {encrypted}");
        let copy: Arc<dyn BlockDevice> =
            Arc::new(MemDevice::from_image("sim0", &device.snapshot()));
        let again = open_whole(env(), &[copy], &writable()).expect("open");
        sound(&again);
        if encrypted {
            again.load_key("placed/v", &key).expect("key");
        }
        let mut found = vec![0; bytes.len()];
        let replayed = again.volume("placed/v").expect("volume");
        replayed.read(0, &mut found).expect("read");
        assert!(found == bytes, "encrypted: {encrypted}");
        again.sync().expect("sync");
        sound(&again);
        drop((volume, replayed));
        again.close().expect("close");
        pool.sync().expect("sync");
        sound(&pool);
        pool.close().expect("close");
    }
}

/// A record leads to a placed block until its txg is on disk, although that txg does not link it.
/// Writers get other places meanwhile.
#[test]
fn what_a_record_leads_to_is_given_to_nobody_before_its_txg_is_on_disk() {
    let inner = Arc::new(MemDevice::new("sim0", SIZE / 2));
    let faulty = Arc::new(FaultyDevice::new(inner.clone()));
    let (pool, fs) = pool(faulty.clone(), &[("compression", "off")]);
    let [cut, over, gone, later] =
        [b"cut".as_slice(), b"over", b"gone", b"later"].map(|name| new_file(&fs, name));
    for (i, file) in [&cut, &over, &gone].into_iter().enumerate() {
        put(&fs, file, 0, &noise(10 + i as u64, 4 * BLOCK));
        fs.fsync(file).expect("fsync");
    }
    assert_eq!(placed(&pool), 12);
    fs.truncate(&who(), &cut, 0).expect("truncate");
    let new = noise(20, 4 * BLOCK);
    put(&fs, &over, 0, &new);
    let root = fs.root().expect("root");
    fs.unlink(&who(), &root, b"gone").expect("unlink");
    put(&fs, &later, 0, b"promised last");
    for file in [&cut, &over, &later] {
        fs.fsync(file).expect("fsync");
    }

    // The txg is written, all but its uberblock.
    let txg = pool.spa().open_txg();
    faulty.add(Rule::broken(Op::Flush));
    pool.sync().expect_err("the flush before the uberblock");
    // A writer of the next one takes all that there is.
    let dataset = pool.dsl().dataset(NAME).expect("dataset");
    let settings = dataset.objset().expect("objset").settings();
    let policy = settings.policy(object_type::PLAIN_FILE_CONTENTS, 0, false, 0, 0, 1);
    let mut taken = 0;
    for size in [BLOCK, 4096] {
        let bytes = noise(30, size);
        let place = || pool.spa().io().place(txg.next(), &policy, None, &bytes);
        while place().expect("place").is_some() {
            taken += size;
        }
    }
    assert!(taken > SIZE as usize / 4, "{taken} bytes");

    let expected: [(&[u8], Option<&[u8]>); 4] = [
        (b"cut", Some(b"")),
        (b"over", Some(&new)),
        (b"gone", None),
        (b"later", Some(b"promised last")),
    ];
    assert!(after_a_crash(&inner, &expected) >= 12);
    pool.spa().give_up();
    drop((cut, over, gone, later, fs));
    let _ = pool.close();
}

/// The log's blocks and the data lie on different devices: both are flushed before the answer.
#[test]
fn placed_data_is_on_its_device_when_it_is_promised() {
    for seed in 0..6 {
        let (prng, power) = (SeededPrng::new(seed), PowerSupply::new());
        let empty = MemDevice::new("empty", SIZE).snapshot();
        let disk = |name: &str| Arc::new(SimDisk::with_content(name, &empty, power.clone()));
        let disks = [disk("sim0"), disk("sim1")];
        let specs = disks.iter().map(|d| spec(d.clone())).collect();
        let pool = Pool::create_on_devices(env(), "placed", specs, None, &[]).expect("create");
        pool.create_filesystem(NAME, &[], (0, 0))
            .expect("file system");
        let fs = pool.file_system(NAME).expect("file system");
        let file = new_file(&fs, b"file");
        fs.fsync(&file).expect("fsync");
        let bytes = noise(seed, 12 * BLOCK);
        put(&fs, &file, 0, &bytes);
        fs.fsync(&file).expect("fsync");
        assert_eq!(placed(&pool), 12);
        power.cut();
        let left: Vec<Arc<dyn BlockDevice>> = (disks.iter())
            .map(|d| Arc::new(d.crash(&prng)) as _)
            .collect();
        let again = open_whole(env(), &left, &writable()).expect("open");
        let found = get(&again.file_system(NAME).expect("file system"), b"file");
        assert!(found.is_some_and(|f| f == bytes), "seed {seed}: it is gone");
        again.sync().expect("sync");
        sound(&again);
        again.close().expect("close");
        pool.spa().give_up();
        drop((file, fs));
        let _ = pool.close();
    }
}

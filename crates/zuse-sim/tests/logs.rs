//! Intent logs of another system: replayed for real, in memory, on volumes, in both byte orders.

use std::sync::Arc;
use zuse::NewerSnapshots;
use zuse::Recursion;

use zuse::PoolAccess;
use zuse::tools::Layers as _;
use zuse_base::ByteOrder;
use zuse_check::{Depth, check};
use zuse_device::BlockDevice;
use zuse_format::zil::ZilHeader;
use zuse_format::{BlockPointer, BpProps, Dva};
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::manifests::{differences, expected, of_dataset, of_volume};

fn writable() -> PoolAccess {
    PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    }
}

/// Compares all datasets with the manifest, except for data that is not in a log.
fn compare(golden: &Golden, pool: &Arc<zuse::Pool>) {
    for (name, mut want) in expected(&golden.manifest()) {
        let mut have = of_dataset(pool, &name).expect("manifest");
        for entry in want.values_mut().chain(have.values_mut()) {
            if let Some(fields) = entry.as_object_mut() {
                fields.remove("mtime_ns");
                fields.remove("blocks");
            }
        }
        let wrong = differences(&name, &want, &have, &[]);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

fn replay(name: &'static str) {
    let golden = Golden::load(name);
    let env = Environment::default();
    let devices = golden.block_devices();
    // Claimed, and closed before the replay, as after a crash.
    let pool = open_whole(env.clone(), &devices, &writable()).expect("open");
    let head = pool.dsl().dataset(&pool.name()).expect("dataset");
    assert!(head.needs_replay().expect("log"));
    let header = ZilHeader::parse(&head.objset().expect("objset").zil_header());
    assert!(header.is_claimed());
    drop(head);
    pool.close().expect("close");
    drop(pool);

    let pool = open_whole(env.clone(), &devices, &PoolAccess::default()).expect("open");
    compare(&golden, &pool);
    pool.close().expect("close");
    drop(pool);

    let pool = open_whole(env.clone(), &devices, &writable()).expect("open");
    compare(&golden, &pool);
    let head = pool.dsl().dataset(&pool.name()).expect("dataset");
    assert_eq!(head.log_header().expect("header"), ZilHeader::default());
    drop(head);
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
    pool.export().expect("export");
    drop(pool);

    let pool = open_whole(env, &devices, &PoolAccess::default()).expect("open");
    compare(&golden, &pool);
    pool.close().expect("close");
}

/// As OpenZFS's `zpool freeze` leaves a pool: the log goes on, and no uberblock reaches the disk.
#[test]
fn a_log_that_is_many_txgs_ahead_of_its_pool_is_replayed() {
    use zuse::Credentials;
    use zuse_base::Span;
    use zuse_device::{Fault, FaultyDevice, MemDevice, Op, Rule};
    use zuse_zpl::WriteOptions;

    const SIZE: u64 = 128 << 20;
    const LABELS: u64 = 512 << 10;
    let disk = Arc::new(MemDevice::new("sim0", SIZE));
    let faulty = Arc::new(FaultyDevice::new(disk.clone()));
    let mut env = Environment::default();
    env.limits.txg_timeout = std::time::Duration::from_secs(3600);
    let vdev = zuse_pool::VdevSpec {
        device: faulty.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let pool = zuse::Pool::create_on_devices(env.clone(), "frozen", vec![vdev], None, &[]);
    let pool = pool.expect("create");
    pool.create_filesystem("frozen/f", &[], (0, 0))
        .expect("file system");
    let fs = pool.file_system("frozen/f").expect("file system");
    let root = fs.root().expect("root");
    let put = |i: u32| {
        let name = format!("{i}").into_bytes();
        let file = fs.create(&Credentials::root(), &root, &name, 0o644);
        let file = file.expect("create");
        fs.write(&file, 0, &name, WriteOptions::default())
            .expect("write");
        fs.fsync(&file).expect("fsync");
    };
    put(0);
    pool.sync().expect("sync");
    for span in [Span::new(0, LABELS), Span::new(SIZE - LABELS, LABELS)] {
        faulty.add(Rule::new(Op::Write, Fault::Lose).within(span));
    }
    let last = pool.spa().uberblock().txg;
    for i in 1..=70 {
        put(i);
        pool.sync().expect("sync");
    }
    assert!(pool.spa().uberblock().txg >= last + 70);
    let copy: Arc<dyn BlockDevice> = Arc::new(MemDevice::from_image("sim0", &disk.snapshot()));
    let read = open_whole(
        env.clone(),
        std::slice::from_ref(&copy),
        &PoolAccess::default(),
    );
    let read = read.expect("open");
    assert_eq!(read.spa().uberblock().txg, last);
    read.close().expect("close");
    let again = open_whole(env, &[copy], &writable()).expect("open");
    let fs = again.file_system("frozen/f").expect("file system");
    let root = fs.root().expect("root");
    for i in 0..=70u32 {
        let name = format!("{i}").into_bytes();
        let file = fs.lookup(&Credentials::root(), &root, &name);
        let mut bytes = vec![0; name.len()];
        fs.read(&file.expect("file"), 0, &mut bytes).expect("read");
        assert_eq!(bytes, name);
    }
    again.sync().expect("sync");
    sound(&again);
    drop((fs, root));
    again.close().expect("close");
    pool.spa().give_up();
}

#[test]
fn a_log_in_the_pool_is_replayed() {
    replay("zil");
}

#[test]
fn a_log_on_a_log_device_is_replayed() {
    replay("zil-slog");
}

/// The changes of an interrupted channel program to a dataset with a log are undone, including
/// those of the log.
#[test]
fn a_program_that_is_undone_gives_the_log_back() {
    use zuse_dsl::Operation;

    let golden = Golden::load("zil");
    let env = Environment::default();
    let devices = golden.block_devices();
    let pool = open_whole(env.clone(), &devices, &writable()).expect("open");
    let name = pool.name();
    let log = |pool: &Arc<zuse::Pool>| {
        let head = pool.dsl().dataset(&name).expect("dataset");
        head.log_header().expect("header")
    };
    let before = log(&pool);
    assert!(before.is_claimed());
    // The snapshot contains the log in its object set.
    let kept = format!("{name}@kept");
    pool.snapshot(std::slice::from_ref(&kept), Recursion::One, &[])
        .expect("snapshot");
    let made = format!("{name}/made");
    let clone = Operation::Clone(kept.clone(), made.clone());
    for changes in [
        vec![Operation::Rollback(name.clone())],
        vec![clone.clone()],
        vec![clone, Operation::Promote(made)],
    ] {
        let what = format!("{changes:?}");
        pool.dsl()
            .batch(true, move |batch| {
                for change in changes {
                    let outcome = batch.run(&change, true).expect("run");
                    assert_eq!(outcome.errno, 0, "{change:?}");
                }
                batch.undo();
            })
            .expect("a batch");
        assert_eq!(log(&pool), before, "{what}");
    }
    assert!(pool.dsl().children(&name).expect("children").is_empty());
    sound(&pool);
    // As after a crash: the log's blocks must still be there.
    pool.close().expect("close");
    drop(pool);

    let pool = open_whole(env.clone(), &devices, &writable()).expect("open");
    compare(&golden, &pool);
    let destroyed = pool.dsl().destroy(&kept, false, false);
    destroyed.expect("destroy");
    sound(&pool);
    pool.close().expect("close");
    drop(pool);

    // A program that is not undone frees the log.
    let devices = Golden::load("zil").block_devices();
    let pool = open_whole(env, &devices, &writable()).expect("open");
    pool.snapshot(std::slice::from_ref(&kept), Recursion::One, &[])
        .expect("snapshot");
    let rolled = pool.dsl().batch(true, move |batch| {
        let outcome = batch.run(&Operation::Rollback(name), true);
        outcome.expect("run").errno
    });
    assert_eq!(rolled.expect("a batch"), 0);
    sound(&pool);
    pool.close().expect("close");
}

/// Nothing is lost or used twice.
fn sound(pool: &Arc<zuse::Pool>) {
    for _ in 0..4 {
        pool.sync().expect("sync");
    }
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn without_its_log_device_a_pool_is_read_as_of_its_last_txg_and_not_written() {
    let mut golden = Golden::load("zil-slog");
    golden.devices.truncate(1);
    let Err(error) = open_whole(Environment::default(), &golden.block_devices(), &writable())
    else {
        panic!("it was opened for writing");
    };
    assert!(error.is(zuse_base::Errno::NXIO), "{error}");
    let access = PoolAccess::default();
    let pool = open_whole(Environment::default(), &golden.block_devices(), &access).expect("open");
    let name = pool.name();
    let files = of_dataset(&pool, &name).expect("what is there");
    assert!(files.len() > 1, "{files:?}");
    pool.close().expect("close");
}

/// All bytes of the first device.
fn bytes(golden: &Golden) -> Vec<u8> {
    let device = &golden.devices[0];
    let mut all = vec![0; device.size() as usize];
    device.read_at(&mut all, 0).expect("read");
    all
}

#[test]
fn a_pool_that_is_read_is_not_touched_by_its_log() {
    let golden = Golden::load("zil");
    let before = bytes(&golden);
    let pool = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &PoolAccess::default(),
    )
    .expect("open");
    compare(&golden, &pool);
    // Opened again, it has the same content: nothing is applied twice.
    compare(&golden, &pool);
    pool.close().expect("close");
    drop(pool);
    assert!(bytes(&golden) == before, "the device was written");
    // All objects that the log had made dirty in memory are freed with the pool.
    assert_eq!(Arc::strong_count(&golden.devices[0]), 1);
}

#[test]
fn a_damaged_block_of_a_log_ends_it_without_an_error() {
    let golden = Golden::load("zil");
    let env = Environment::default();
    let pool = open_whole(env.clone(), &golden.block_devices(), &PoolAccess::default());
    let pool = pool.expect("open");
    let header = pool
        .dsl()
        .dataset(&pool.name())
        .and_then(|d| d.log_header())
        .expect("header");
    let mut blocks = Vec::new();
    pool.dsl()
        .visit_log(&header, &mut |met| {
            if let zuse::tools::LogItem::Block(bp) = met {
                blocks.push(bp.dva(0).offset());
            }
            Ok(true)
        })
        .expect("walk");
    pool.close().expect("close");
    drop(pool);
    assert!(blocks.len() > 2, "{blocks:?}");
    for offset in blocks {
        let copy = golden.copy();
        copy.devices[0]
            .write_at(&[0x5a; 512], offset + (4 << 20))
            .expect("damage");
        for access in [PoolAccess::default(), writable()] {
            let pool = open_whole(env.clone(), &copy.block_devices(), &access).expect("open");
            of_dataset(&pool, &pool.name()).expect("it reads, as far as the log goes");
            pool.close().expect("close");
        }
    }
}

/// A record of a write at an offset of object 1, in a byte order.
fn write_record(seq: u64, txg: u64, offset: u64, data: &[u8], order: ByteOrder) -> Vec<u8> {
    let len = (192 + data.len()).next_multiple_of(8);
    let mut out = vec![0; len];
    let words = [
        (0, 9),
        (8, len as u64),
        (16, txg),
        (24, seq),
        (32, 1),
        (40, offset),
        (48, data.len() as u64),
    ];
    for (at, word) in words {
        out[at..at + 8].copy_from_slice(&order.bytes_of_u64(word));
    }
    out[192..192 + data.len()].copy_from_slice(data);
    out
}

/// A log block without its checksum.
fn plain_block(records: &[Vec<u8>], verifier: [u64; 4], order: ByteOrder) -> Vec<u8> {
    let all = records.concat();
    let used = 184 + all.len();
    let mut block = vec![0; used.next_multiple_of(4096)];
    block[136..144].copy_from_slice(&order.bytes_of_u64(used as u64));
    let [a, b, c, seq] = verifier;
    for (i, word) in [a, b, c, seq + 1].into_iter().enumerate() {
        block[104 + 8 * i..112 + 8 * i].copy_from_slice(&order.bytes_of_u64(word));
    }
    block[184..used].copy_from_slice(&all);
    block
}

/// A log block with some records and no successor, in a byte order.
fn log_block(records: &[Vec<u8>], verifier: [u64; 4], order: ByteOrder) -> Vec<u8> {
    let mut block = plain_block(records, verifier, order);
    if order.is_little() {
        zuse_codec::seal_zil(&mut block, verifier).expect("seal");
    } else {
        block[144..152].copy_from_slice(&order.bytes_of_u64(0x0210_da7a_b10c_7a11));
        let sums = zuse_codec::zil_sums(&block, verifier).expect("sums");
        for (i, word) in sums.computed.into_iter().enumerate() {
            block[152 + 8 * i..160 + 8 * i].copy_from_slice(&order.bytes_of_u64(word));
        }
    }
    block
}

/// A volume of a golden pool.
const NAME: &str = "dsl/vol";

fn volume_log(order: ByteOrder) {
    let golden = Golden::load("dsl");
    let env = Environment::default();
    let devices: Vec<Arc<dyn BlockDevice>> = golden.block_devices();
    let pool = open_whole(env.clone(), &devices, &writable()).expect("open");
    let before = of_volume(&pool, NAME).expect("empty");
    let ds = pool.dsl().dataset(NAME).expect("dataset");
    // OpenZFS's log is freed.
    ds.replayed().expect("no log");
    let verifier = [7, 8, ds.object().0, 1];
    // Later than all txgs until the pool is exported.
    let birth = pool.spa().open_txg().0 + 40;
    let records = [
        write_record(1, birth, 5000, b"in the log", order),
        write_record(2, birth, 0, &[0xab; 512], order),
    ];
    let block = log_block(&records, verifier, order);
    let mut bp = pointer_to_log(block.len() as u64, order);
    // The end of the largest free span, so that later writes go elsewhere.
    let allocator = pool.spa().allocator().expect("writable");
    let spans = (0..3).flat_map(|m| allocator.free_spans(0, m).expect("spans"));
    let span = spans.max_by_key(|s| s.size).expect("free space");
    let offset = span.start + span.size - block.len() as u64;
    bp.set_dva(0, Dva::new(0, offset, block.len() as u64, false));
    bp.set_birth(birth, birth);
    bp.set_checksum(verifier);
    let header = ZilHeader {
        log: bp,
        ..ZilHeader::default()
    };
    let tx = ds.begin(zuse_dsl::Estimate::default()).expect("begin");
    let objset = ds.objset().expect("objset");
    objset.set_zil_header(&tx, header.to_bytes());
    drop((tx, objset, ds));
    pool.export().expect("export");
    drop(pool);
    golden.devices[0]
        .write_at(&block, offset + (4 << 20))
        .expect("write");

    let read = |access: &PoolAccess| {
        let pool = open_whole(env.clone(), &devices, access).expect("open");
        let volume = pool.volume(NAME).expect("volume");
        let mut buf = vec![0; 6000];
        assert_eq!(volume.read(0, &mut buf).expect("read"), 6000);
        assert_eq!(&buf[5000..5010], b"in the log");
        assert_eq!(buf[..512], [0xab; 512]);
        drop(volume);
        assert_ne!(of_volume(&pool, NAME).expect("sum"), before);
        if access.writable {
            let report = check(pool.spa(), Depth::All).expect("check");
            assert!(report.is_clean(), "{:#?}", report.problems);
            pool.export().expect("export");
        } else {
            pool.close().expect("close");
        }
    };
    read(&PoolAccess::default());
    read(&writable());
    read(&PoolAccess::default());
}

fn pointer_to_log(size: u64, order: ByteOrder) -> BlockPointer {
    BlockPointer::with_props(BpProps {
        lsize: size,
        psize: size,
        compression: 2,
        checksum: 9,
        object_type: 9,
        level: 0,
        dedup: false,
        crypt: false,
        order,
    })
}

#[test]
fn the_log_of_a_volume_is_replayed() {
    volume_log(ByteOrder::Little);
}

#[test]
fn a_log_of_the_other_byte_order_is_replayed() {
    volume_log(ByteOrder::Big);
}

/// A block of an encrypted log: sealed with the dataset's key, its MAC in the checksum.
fn sealed_block(
    key: &zuse_io::DatasetKey,
    bp: &mut BlockPointer,
    mut block: Vec<u8>,
    verifier: [u64; 4],
) -> Vec<u8> {
    let (salt, iv) = key.choose_salt_iv();
    bp.set_salt_iv(&salt, &iv);
    let mac = key.seal_zil(bp, &mut block).expect("seal");
    block[144..152].copy_from_slice(&0x0210_da7a_b10c_7a11u64.to_le_bytes());
    let sums = zuse_codec::zil_sums(&block, verifier).expect("sums");
    let [a, b, c, d] = sums.computed;
    block[152..160].copy_from_slice(&(a ^ c).to_le_bytes());
    block[160..168].copy_from_slice(&(b ^ d).to_le_bytes());
    block[168..184].copy_from_slice(&mac);
    block
}

const VOLUME: &str = "tank/a/v";

fn secret() -> zuse::KeyMaterial {
    zuse::KeyMaterial::new(vec![7; 32])
}

/// Saves a device for `tests/suites/logs.sh`, which runs OpenZFS's zdb on it, in a directory of
/// that name.
fn leave(device: &Arc<dyn BlockDevice>, name: &str) {
    let Some(dir) = std::env::var_os("ZUSE_LOG_POOLS") else {
        return;
    };
    let dir = std::path::Path::new(&dir).join(name);
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut bytes = vec![0; usize::try_from(device.size()).expect("small")];
    device.read_at(&mut bytes, 0).expect("read");
    std::fs::write(dir.join("log.img"), bytes).expect("write");
}

/// A pool, exported, whose encrypted [`VOLUME`] has an unclaimed log.
fn with_encrypted_log() -> Arc<zuse_device::MemDevice> {
    let device = Arc::new(zuse_device::MemDevice::new("/mem/log", 128 << 20));
    let env = Environment::default();
    let spec = zuse_pool::VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let pool = zuse::Pool::create_on_devices(env, "tank", vec![spec], None, &[]).expect("create");
    let pairs = [("encryption", "on"), ("keyformat", "raw")];
    let pairs: Vec<(String, String)> = pairs
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect();
    pool.create_filesystem_with_key("tank/a", &pairs, (0, 0), Some(&secret()))
        .expect("encrypted dataset");
    let new = zuse::NewVolume {
        size: 1 << 20,
        block_size: 8192,
        sparse: true,
        properties: Vec::new(),
    };
    pool.create_volume(VOLUME, &new).expect("volume");
    pool.sync().expect("sync");
    let ds = pool.dsl().dataset(VOLUME).expect("dataset");
    let objset = ds.objset().expect("objset");
    let key = objset.key().expect("key").clone();
    let verifier = [7, 8, ds.object().0, 1];
    let birth = pool.spa().open_txg().0 + 40;
    let order = ByteOrder::Little;
    let records = [
        write_record(1, birth, 5000, b"in the log", order),
        write_record(2, birth, 0, &[0xab; 512], order),
    ];
    let plain = plain_block(&records, verifier, order);
    let mut bp = BlockPointer::with_props(BpProps {
        lsize: plain.len() as u64,
        psize: plain.len() as u64,
        compression: 2,
        checksum: 9,
        object_type: 9,
        level: 0,
        dedup: false,
        crypt: true,
        order,
    });
    let allocator = pool.spa().allocator().expect("writable");
    let spans = (0..3).flat_map(|m| allocator.free_spans(0, m).expect("spans"));
    let span = spans.max_by_key(|s| s.size).expect("free space");
    let offset = span.start + span.size - plain.len() as u64;
    bp.set_dva(0, Dva::new(0, offset, plain.len() as u64, false));
    bp.set_birth(birth, birth);
    bp.set_checksum(verifier);
    let block = sealed_block(&key, &mut bp, plain, verifier);
    let header = ZilHeader {
        log: bp,
        ..ZilHeader::default()
    };
    let tx = ds.begin(zuse_dsl::Estimate::default()).expect("begin");
    objset.set_zil_header(&tx, header.to_bytes());
    drop((tx, objset, ds, key));
    pool.export().expect("export");
    drop(pool);
    device.write_at(&block, offset + (4 << 20)).expect("write");
    device
}

#[test]
fn an_encrypted_volume_with_a_log_is_rolled_back_without_its_key() {
    let devices: Vec<Arc<dyn BlockDevice>> = vec![with_encrypted_log()];
    let pool = open_whole(Environment::default(), &devices, &writable()).expect("open");
    // The log is claimed and included in a snapshot, without a key.
    let snap = format!("{VOLUME}@s");
    pool.snapshot(std::slice::from_ref(&snap), Recursion::One, &[])
        .expect("snapshot");
    let header = |name: &str| {
        let ds = pool.dsl().dataset(name).expect("dataset");
        ds.log_header().expect("header")
    };
    assert!(header(&snap).is_claimed());
    pool.rollback(&snap, NewerSnapshots::Refuse)
        .expect("rollback");
    assert_eq!(header(VOLUME), ZilHeader::default());
    pool.load_key("tank/a", &secret()).expect("load");
    let volume = pool.volume(VOLUME).expect("volume");
    let mut buf = vec![1; 6000];
    assert_eq!(volume.read(0, &mut buf).expect("read"), 6000);
    assert_eq!(buf, [0; 6000], "what was in the log only");
    volume.write(100, b"written after").expect("write");
    volume.sync().expect("flush");
    drop(volume);
    pool.rollback(&snap, NewerSnapshots::Refuse)
        .expect("rollback");
    let volume = pool.volume(VOLUME).expect("volume");
    assert_eq!(volume.read(0, &mut buf).expect("read"), 6000);
    assert_eq!(buf, [0; 6000]);
    drop(volume);
    pool.sync().expect("sync");
    pool.sync().expect("sync");
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{flaws:?}");
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
    pool.close().expect("close");
}

#[test]
fn the_log_of_an_encrypted_volume_is_replayed_with_its_key() {
    let env = Environment::default();
    let devices: Vec<Arc<dyn BlockDevice>> = vec![with_encrypted_log()];
    let read = |pool: &Arc<zuse::Pool>| {
        let closed = pool.volume(VOLUME).map(drop).expect_err("no key");
        assert!(closed.is(zuse::Errno::ACCES), "{closed}");
        pool.load_key("tank/a", &secret()).expect("load");
        let volume = pool.volume(VOLUME).expect("volume");
        let mut buf = vec![0; 6000];
        assert_eq!(volume.read(0, &mut buf).expect("read"), 6000);
        assert_eq!(&buf[5000..5010], b"in the log");
        assert_eq!(buf[..512], [0xab; 512]);
    };
    let sound = |pool: &Arc<zuse::Pool>| {
        let report = check(pool.spa(), Depth::All).expect("check");
        assert!(report.is_clean(), "{:#?}", report.problems);
    };
    let pool = open_whole(env.clone(), &devices, &PoolAccess::default()).expect("open");
    read(&pool);
    pool.close().expect("close");
    drop(pool);

    // Claimed without the key, and closed: it stays claimed and complete.
    let header = |pool: &Arc<zuse::Pool>| {
        let ds = pool.dsl().dataset(VOLUME).expect("dataset");
        ds.log_header().expect("header")
    };
    for _ in 0..2 {
        let pool = open_whole(env.clone(), &devices, &writable()).expect("open");
        assert!(header(&pool).is_claimed());
        assert_eq!(header(&pool).claim_lr_seq, 2);
        sound(&pool);
        pool.export().expect("export");
    }
    leave(&devices[0], "claimed");
    let pool = open_whole(env.clone(), &devices, &PoolAccess::default()).expect("open");
    read(&pool);
    pool.close().expect("close");
    drop(pool);

    let pool = open_whole(env.clone(), &devices, &writable()).expect("open");
    read(&pool);
    assert_eq!(header(&pool), ZilHeader::default());
    sound(&pool);
    pool.export().expect("export");
    drop(pool);
    leave(&devices[0], "replayed");
    let pool = open_whole(env, &devices, &PoolAccess::default()).expect("open");
    assert_eq!(header(&pool), ZilHeader::default());
    read(&pool);
    pool.close().expect("close");
}

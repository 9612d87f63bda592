//! Blocks with several pointers: created by copying and by log records, and freed one pointer after
//! the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zuse::tools::Layers as _;
use zuse::tools::{Zap, ZapValue};
use zuse::{Credentials, PoolAccess};
use zuse_base::{ByteOrder, Entropy, ObjectId, SeededPrng};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, PowerSupply, SimDisk};
use zuse_dmu::Dnode;
use zuse_format::feature::FEATURES;
use zuse_format::field::u64_at;
use zuse_format::zil::ZilHeader;
use zuse_format::{BlockPointer, BpProps, Dva, clone_count};
use zuse_pool::{Environment, Limits, VdevSpec};
use zuse_sim::clones;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::memory_pool::memory_pool;
use zuse_zpl::WriteOptions;

const FEATURE: &str = "com.fudosecurity:block_cloning";
const ENDIAN: &str = "com.truenas:block_cloning_endian";
const TABLE: &[u8] = b"com.fudosecurity:brt:vdev:0";

fn writable() -> PoolAccess {
    PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    }
}

/// Pools whose test writes a log have none of their own.
fn without_log() -> Limits {
    Limits {
        intent_log: false,
        ..Limits::default()
    }
}

fn sound(pool: &zuse::Pool) -> u64 {
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{flaws:?}");
    report.shared
}

/// Object of the table, its header, the flags of the ZAP of its entries.
fn table(pool: &zuse::Pool) -> Option<(u64, Vec<u8>)> {
    let object = pool.spa().directory().expect("directory");
    let object = object.lookup_u64(TABLE).expect("lookup")?;
    let dnode = pool.spa().mos().dnode(ObjectId(object)).expect("table");
    Some((object, dnode.bonus_vec()))
}

fn nothing_is_shared(pool: &zuse::Pool) {
    assert_eq!(table(pool), None);
    let features = pool.spa().features();
    assert_eq!(
        [features.refcount(FEATURE), features.refcount(ENDIAN)],
        [0, 0]
    );
    assert_eq!(sound(pool), 0);
}

#[test]
fn files_that_share_blocks_keep_their_bytes_whatever_happens_to_the_others() {
    for seed in 0..4 {
        let (pool, device) = memory_pool("tank", 256 << 20, 12, Limits::default()).expect("create");
        clones::run(&pool, "tank", seed, 150).expect("run");
        // Removed files are freed in a later txg.
        (0..4).for_each(|_| pool.sync().expect("sync"));
        assert!(sound(&pool) > 0, "seed {seed}: nothing was shared");
        pool.export().expect("export");
        drop(pool);
        let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
        let pool = open_whole(Environment::default(), &devices, &writable()).expect("open");
        clones::clear(&pool, "tank").expect("clear");
        nothing_is_shared(&pool);
        pool.export().expect("export");
    }
}

#[test]
fn a_table_is_made_as_openzfs_makes_it() {
    let golden = Golden::load("brt");
    let theirs = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &PoolAccess::default(),
    )
    .expect("open");
    let (ours, _device) = memory_pool("tank", 256 << 20, 12, Limits::default()).expect("create");
    clones::run(&ours, "tank", 1, 60).expect("run");
    let shape = |pool: &zuse::Pool| {
        let (object, header) = table(pool).expect("table");
        let entries = u64_at(&header, 0);
        let shapes = [object, entries].map(|object| {
            let dnode = pool.spa().mos().dnode(ObjectId(object)).expect("dnode");
            let raw = dnode.with_bonus(|b| b.len());
            (
                dnode.object_type(),
                dnode.block_size(),
                dnode.indirect_shift(),
                raw,
            )
        });
        let zap = Zap::open(&pool.spa().mos().dnode(ObjectId(entries)).expect("dnode"));
        let mut cursor = zap.expect("zap").cursor(0);
        let first = cursor.next().expect("walk").expect("an entry");
        let block = pool.spa().mos().dnode(ObjectId(entries)).expect("dnode");
        let mut head = vec![0; 128];
        block.read_at(0, &mut head).expect("header of the ZAP");
        let value = std::mem::discriminant(&first.value);
        (
            shapes,
            u64_at(&head, 96),
            u64_at(&header, 32),
            first.name.len(),
            value,
        )
    };
    assert_eq!(shape(&ours), shape(&theirs));
    theirs.close().expect("close");
    ours.close().expect("close");
}

/// Makes the table what a big-endian machine would have left: its ranges, its header, and every
/// second count.
fn turn_around(pool: &zuse::Pool) {
    let (object, header) = table(pool).expect("table");
    let turn = move |ctx: &zuse_pool::SyncCtx<'_>| {
        let mos = ctx.pool.mos();
        let entries = Zap::open(&mos.dnode(ObjectId(u64_at(&header, 0)))?)?;
        let mut cursor = entries.cursor(0);
        let mut counts = Vec::new();
        while let Some(entry) = cursor.next()? {
            let Some(ZapValue::Bytes(count)) = (counts.len() % 2 == 0).then_some(entry.value)
            else {
                counts.push(None);
                continue;
            };
            let offset = u64::from_be_bytes(entry.name[..8].try_into().expect("an offset"));
            counts.push(Some((offset, count.into_iter().rev().collect())));
        }
        for (offset, count) in counts.into_iter().flatten() {
            entries.update_words(ctx.tx, &[offset], &ZapValue::Bytes(count))?;
        }
        let dnode = mos.dnode(ObjectId(object))?;
        let mut ranges = vec![0; u64_at(&header, 8) as usize * 2];
        dnode.read_at(0, &mut ranges)?;
        ranges
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .for_each(|n| n.reverse());
        dnode.write_at(ctx.tx, 0, &ranges)?;
        let mut header = header.clone();
        header[16] = 1;
        dnode.set_bonus(ctx.tx, &header)
    };
    pool.spa().sync_task(|_| Ok(()), turn).expect("turned");
}

#[test]
fn counts_of_a_big_endian_machine_keep_their_order() {
    let features = FEATURES.iter().filter(|f| f.guid != ENDIAN).collect();
    let device = Arc::new(MemDevice::new("sim", 256 << 20));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let env = Environment::default;
    let pool = zuse::Pool::create_on_devices(env(), "tank", vec![spec], Some(features), &[]);
    let pool = pool.expect("create");
    clones::run(&pool, "tank", 5, 150).expect("run");
    (0..4).for_each(|_| pool.sync().expect("sync"));
    turn_around(&pool);
    let shared = sound(&pool);
    assert!(shared > 0);
    pool.export().expect("export");
    drop(pool);
    let orders = |pool: &zuse::Pool| {
        let (_, header) = table(pool).expect("table");
        let entries = pool.spa().mos().dnode(ObjectId(u64_at(&header, 0)));
        let zap = Zap::open(&entries.expect("dnode")).expect("zap");
        let (mut cursor, mut big, mut all) = (zap.cursor(0), 0, 0);
        while let Some(entry) = cursor.next().expect("walk") {
            let ZapValue::Bytes(bytes) = entry.value else {
                panic!("a count is {:?}", entry.value);
            };
            let found = clone_count::read(&bytes).expect("a count").1;
            big += u32::from(found == ByteOrder::Big);
            all += 1;
        }
        (header[16], big, all)
    };
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
    let pool = open_whole(env(), &devices, &writable()).expect("open");
    assert_eq!(sound(&pool), shared);
    let before = orders(&pool);
    assert!(before.0 == 1 && before.1 > 1 && before.2 > before.1);
    // A further pointer to each block of all files: counts of both orders change.
    clones::switch_on(&pool).expect("switch");
    let fs = pool.file_system("tank").expect("file system");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let mut copies = Vec::new();
    for n in 0..12 {
        let (name, copy) = (format!("f{n}"), format!("copy{n}"));
        if let Ok(file) = fs.lookup(&who, &root, name.as_bytes()) {
            let more = fs.create(&who, &root, copy.as_bytes(), 0o644);
            let more = more.expect("create");
            let copied = fs.copy_range(&file, 0, &more, 0, file.size());
            assert_eq!(copied.expect("copied"), file.size());
            copies.push(copy);
        }
    }
    (0..2).for_each(|_| pool.sync().expect("sync"));
    assert!(sound(&pool) > shared);
    let after = orders(&pool);
    assert_eq!((after.0, after.1), (0, before.1), "counts keep their order");
    for copy in copies {
        fs.unlink(&who, &root, copy.as_bytes()).expect("unlink");
    }
    drop((root, fs));
    clones::clear(&pool, "tank").expect("clear");
    nothing_is_shared(&pool);
    pool.export().expect("export");
}

#[test]
fn a_pool_that_openzfs_cloned_in_is_written_until_nothing_is_shared() {
    let golden = Golden::load("brt");
    let devices = golden.block_devices();
    let pool = open_whole(Environment::default(), &devices, &writable()).expect("open");
    assert!(sound(&pool) > 0);
    let before = u64_at(&table(&pool).expect("table").1, 24);
    let fs = pool.file_system("brt").expect("file system");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let mut names: Vec<Vec<u8>> = Vec::new();
    fs.readdir(&root, 0, false, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .expect("list");
    names.retain(|name| name != b"." && name != b"..");
    for name in names {
        let file = fs.lookup(&who, &root, &name).expect("lookup");
        if file.is_file() {
            // One block of its own, the rest goes with the file.
            fs.write(&file, 0, b"mine", WriteOptions::default())
                .expect("write");
            pool.sync().expect("sync");
            sound(&pool);
            fs.unlink(&who, &root, &name).expect("unlink");
            pool.sync().expect("sync");
            sound(&pool);
        }
    }
    assert!(before > 0);
    drop((root, fs));
    (0..4).for_each(|_| pool.sync().expect("sync"));
    nothing_is_shared(&pool);
    pool.export().expect("export");
}

/// A record that clones blocks into an object, from block `at` on.
fn clone_record(seq: u64, txg: u64, object: u64, at: u64, blocks: &[BlockPointer]) -> Vec<u8> {
    let size = blocks[0].lsize();
    let len = 72 + blocks.len() * 128;
    let words = [
        24,
        len as u64,
        txg,
        seq,
        object,
        at * size,
        size * blocks.len() as u64,
        size,
        blocks.len() as u64,
    ];
    let mut out: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    for bp in blocks {
        let mut bytes = [0; 128];
        bp.write_le(&mut bytes);
        out.extend_from_slice(&bytes);
    }
    out
}

/// Writes an unclaimed log of one record to a dataset; exports the pool.
fn leave_log(
    pool: &Arc<zuse::Pool>,
    device: &MemDevice,
    name: &str,
    record: impl FnOnce(u64) -> Vec<u8>,
) {
    let ds = pool.dsl().dataset(name).expect("dataset");
    let verifier = [7, 8, ds.object().0, 1];
    // Later than all txgs until the pool is exported.
    let birth = pool.spa().open_txg().0 + 40;
    let record = record(birth);
    let used = 184 + record.len();
    let mut block = vec![0; used.next_multiple_of(4096)];
    block[136..144].copy_from_slice(&(used as u64).to_le_bytes());
    for (i, word) in [7, 8, ds.object().0, 2u64].into_iter().enumerate() {
        block[104 + 8 * i..112 + 8 * i].copy_from_slice(&word.to_le_bytes());
    }
    block[184..used].copy_from_slice(&record);
    zuse_codec::seal_zil(&mut block, verifier).expect("seal");
    let mut bp = BlockPointer::with_props(BpProps {
        lsize: block.len() as u64,
        psize: block.len() as u64,
        compression: 2,
        checksum: 9,
        object_type: 9,
        level: 0,
        dedup: false,
        crypt: false,
        order: ByteOrder::Little,
    });
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
    device.write_at(&block, offset + (4 << 20)).expect("write");
}

/// Pointers to the first blocks of an object; a hole has no address.
fn pointers(dnode: &Dnode, count: u64) -> Vec<BlockPointer> {
    (0..count)
        .map(|i| dnode.stored_pointer(i).expect("pointer"))
        .map(Option::unwrap_or_default)
        .collect()
}

/// The source object of the cloned file.
const SOURCE: u64 = 7;

/// A pool with file `a` of four blocks, a hole and a block that is small when compressed, and a
/// file `b` of other bytes. An unclaimed log makes `b` a clone of `a`.
fn with_clone_in_the_log(dedup: &str) -> (Arc<MemDevice>, Vec<u8>) {
    const BLOCK: usize = 1 << 17;
    let (pool, device) = memory_pool("tank", 256 << 20, 12, without_log()).expect("create");
    let dataset = pool.dataset("tank").expect("dataset");
    let set = [("dedup".to_owned(), dedup.to_owned())];
    dataset.set(&set).expect("set");
    let fs = pool.file_system("tank").expect("file system");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let a = fs.create(&who, &root, b"a", 0o644).expect("create");
    let mut data = vec![0; 6 * BLOCK];
    SeededPrng::new(1).fill(&mut data[..4 * BLOCK]);
    data[5 * BLOCK..].fill(7);
    fs.write(&a, 0, &data[..4 * BLOCK], WriteOptions::default())
        .expect("write");
    fs.write(
        &a,
        5 * BLOCK as u64,
        &data[5 * BLOCK..],
        WriteOptions::default(),
    )
    .expect("write");
    let b = fs.create(&who, &root, b"b", 0o644).expect("create");
    fs.write(&b, 0, &vec![1; 5 * BLOCK], WriteOptions::default())
        .expect("write");
    pool.sync().expect("sync");
    let blocks = pointers(a.dnode(), 6);
    assert!(blocks[4] == BlockPointer::HOLE && !blocks[5].is_hole());
    let object = b.object().0;
    assert_eq!(a.object().0, SOURCE);
    drop((a, b, root, fs));
    leave_log(&pool, &device, "tank", |txg| {
        clone_record(1, txg, object, 0, &blocks)
    });
    (device, data)
}

fn read(pool: &Arc<zuse::Pool>, name: &str) -> Vec<u8> {
    let fs = pool.file_system("tank").expect("file system");
    let root = fs.root().expect("root");
    let file = fs
        .lookup(&Credentials::root(), &root, name.as_bytes())
        .expect("lookup");
    let mut bytes = vec![0; file.size() as usize];
    assert_eq!(fs.read(&file, 0, &mut bytes).expect("read"), bytes.len());
    bytes
}

#[test]
fn cloned_ranges_of_a_log_are_replayed_into_a_pool_that_is_written() {
    let (device, data) = with_clone_in_the_log("off");
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
    let open =
        |access: &PoolAccess| open_whole(Environment::default(), &devices, access).expect("open");
    let entries = |pool: &zuse::Pool| table(pool).map(|(_, header)| u64_at(&header, 24));

    let pool = open(&PoolAccess::default());
    assert!(read(&pool, "b") == data, "as it is read only");
    pool.close().expect("close");
    drop(pool);

    // Claimed, and closed before the replay: the record itself holds its blocks.
    for _ in 0..2 {
        let pool = open(&writable());
        pool.sync().expect("sync");
        assert_eq!(entries(&pool), Some(5));
        assert_eq!(sound(&pool), 0);
        pool.close().expect("close");
    }

    let pool = open(&writable());
    assert!(read(&pool, "b") == data, "as it is written");
    assert_eq!(
        pool.dsl()
            .dataset("tank")
            .expect("dataset")
            .log_header()
            .expect("header"),
        ZilHeader::default()
    );
    assert_eq!(entries(&pool), Some(5));
    assert_eq!(sound(&pool), 4 * (128 << 10) + (4 << 10));
    let fs = pool.file_system("tank").expect("file system");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    fs.unlink(&who, &root, b"a").expect("unlink");
    (0..4).for_each(|_| pool.sync().expect("sync"));
    nothing_is_shared(&pool);
    assert!(read(&pool, "b") == data, "it has the blocks alone now");
    fs.unlink(&who, &root, b"b").expect("unlink");
    drop((root, fs));
    (0..4).for_each(|_| pool.sync().expect("sync"));
    nothing_is_shared(&pool);
    pool.export().expect("export");
}

/// As after an interrupted replay, in which a later record freed the source.
#[test]
fn blocks_that_only_records_of_a_log_hold_are_not_lost() {
    let (device, data) = with_clone_in_the_log("off");
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
    let open = || open_whole(Environment::default(), &devices, &writable()).expect("open");
    let pool = open();
    let handle = pool.dsl().dataset("tank").expect("dataset");
    let objset = handle.objset().expect("objset");
    let freed = zuse_dsl::Estimate {
        write_bytes: 1 << 20,
        frees: true,
    };
    let source = objset.dnode(ObjectId(SOURCE)).expect("source");
    assert!(!pointers(&source, 6)[0].is_hole());
    let tx = handle.begin(freed).expect("begin");
    source.free_range(&tx, 0, u64::MAX).expect("freed");
    drop((tx, source, objset, handle));
    (0..4).for_each(|_| pool.sync().expect("sync"));
    sound(&pool);
    pool.close().expect("close");

    let pool = open();
    assert!(read(&pool, "b") == data);
    (0..4).for_each(|_| pool.sync().expect("sync"));
    nothing_is_shared(&pool);
    pool.export().expect("export");
}

/// Claiming counts each block where freeing will look: in the dedup table.
#[test]
fn cloned_ranges_of_deduplicated_blocks_are_replayed() {
    let (device, data) = with_clone_in_the_log("on");
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
    let open = || open_whole(Environment::default(), &devices, &writable()).expect("open");
    for _ in 0..2 {
        let pool = open();
        pool.sync().expect("sync");
        assert_eq!(table(&pool), None);
        sound(&pool);
        pool.close().expect("close");
    }
    let pool = open();
    assert!(read(&pool, "b") == data);
    (0..3).for_each(|_| pool.sync().expect("sync"));
    assert_eq!(table(&pool), None);
    assert!(sound(&pool) > 4 * (128 << 10));
    let fs = pool.file_system("tank").expect("file system");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    fs.unlink(&who, &root, b"a").expect("unlink");
    (0..4).for_each(|_| pool.sync().expect("sync"));
    assert!(read(&pool, "b") == data, "it has the blocks alone now");
    assert_eq!(sound(&pool), 0);
    drop((root, fs));
    pool.export().expect("export");
}

/// Blocks of the volume that are cloned, and their size.
const BLOCKS: u64 = 500;
const SIZE: u64 = 8 << 10;

/// A pool with a volume. It has noise, a hole, embedded data, and behind them a region over which
/// an unclaimed log writes clones of them. The first half as it will be.
fn with_clones_of_a_volume_in_the_log() -> (Arc<MemDevice>, Vec<u8>) {
    let (pool, device) = memory_pool("tank", 256 << 20, 12, without_log()).expect("create");
    let new = zuse::NewVolume {
        size: 2 * BLOCKS * SIZE,
        block_size: SIZE,
        sparse: true,
        properties: Vec::new(),
    };
    pool.create_volume("tank/vol", &new).expect("volume");
    let volume = pool.volume("tank/vol").expect("volume");
    let mut data = vec![0; (BLOCKS * SIZE) as usize];
    SeededPrng::new(2).fill(&mut data);
    let block = |n: usize| n * SIZE as usize..(n + 1) * SIZE as usize;
    data[block(3)].fill(0);
    data[block(5)].fill(9);
    volume.write(0, &data).expect("write");
    volume.discard(3 * SIZE, SIZE).expect("discard");
    volume
        .write(BLOCKS * SIZE, &vec![1; data.len()])
        .expect("write");
    volume.sync().expect("flush");
    let handle = pool.dsl().dataset("tank/vol").expect("dataset");
    let objset = handle.objset().expect("objset");
    let mut blocks = pointers(&objset.dnode(ObjectId(1)).expect("data"), BLOCKS);
    assert!(blocks[3].is_hole() && blocks[5].is_embedded());
    blocks[3] = BlockPointer::HOLE;
    drop((volume, objset, handle));
    leave_log(&pool, &device, "tank/vol", |txg| {
        clone_record(1, txg, 1, BLOCKS, &blocks)
    });
    (device, data)
}

/// Both halves of the volume.
fn halves(pool: &zuse::Pool) -> [Vec<u8>; 2] {
    let volume = pool.volume("tank/vol").expect("volume");
    [0, BLOCKS * SIZE].map(|at| {
        let mut bytes = vec![0; (BLOCKS * SIZE) as usize];
        assert_eq!(volume.read(at, &mut bytes).expect("read"), bytes.len());
        bytes
    })
}

#[test]
fn cloned_ranges_of_a_volumes_log_are_replayed() {
    let (device, data) = with_clones_of_a_volume_in_the_log();
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
    let open =
        |access: &PoolAccess| open_whole(Environment::default(), &devices, access).expect("open");

    let pool = open(&PoolAccess::default());
    assert!(
        halves(&pool) == [data.clone(), data.clone()],
        "as it is read only"
    );
    pool.close().expect("close");
    drop(pool);

    let pool = open(&writable());
    assert!(
        halves(&pool) == [data.clone(), data.clone()],
        "as it is written"
    );
    (0..3).for_each(|_| pool.sync().expect("sync"));
    assert_eq!(sound(&pool), (BLOCKS - 2) * SIZE);
    let volume = pool.volume("tank/vol").expect("volume");
    volume.write(0, &vec![2; data.len()]).expect("write");
    drop(volume);
    (0..4).for_each(|_| pool.sync().expect("sync"));
    nothing_is_shared(&pool);
    assert!(halves(&pool)[1] == data, "it has the blocks alone now");
    pool.export().expect("export");
}

#[test]
fn a_replay_that_the_power_cuts_short_goes_on_where_it_was() {
    let (device, data) = with_clones_of_a_volume_in_the_log();
    let image = device.snapshot();
    let prng = SeededPrng::new(3);
    let mut cut_short = 0;
    for cut in 0..20 {
        let power = PowerSupply::new();
        let disk = Arc::new(SimDisk::with_content("sim", &image, power.clone()));
        power.cut_after(20 + 5 * cut);
        let devices: Vec<Arc<dyn BlockDevice>> = vec![disk.clone()];
        // The record takes many txgs.
        let env = Environment {
            limits: Limits {
                dirty: 64 << 10,
                ..Limits::default()
            },
            ..Environment::default()
        };
        if let Ok(pool) = open_whole(env, &devices, &writable()) {
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _ = pool.volume("tank/vol");
                    over.store(true, Relaxed);
                });
                // Closing a pool without power releases the waiting threads.
                while !over.load(Relaxed) && pool.suspended().is_none() {
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
                cut_short += u64::from(!over.load(Relaxed));
                let _ = pool.close();
            });
        }
        let device = Arc::new(disk.crash(&prng));
        let devices: Vec<Arc<dyn BlockDevice>> = vec![device];
        let pool = open_whole(Environment::default(), &devices, &writable()).expect("open");
        assert!(
            halves(&pool) == [data.clone(), data.clone()],
            "cut after {cut}"
        );
        (0..3).for_each(|_| pool.sync().expect("sync"));
        assert_eq!(sound(&pool), (BLOCKS - 2) * SIZE, "cut after {cut}");
        pool.export().expect("export");
    }
    assert!(cut_short > 3, "{cut_short} replays were cut short");
}

#[test]
fn a_source_that_is_overwritten_meanwhile_gives_its_blocks_away_only_once() {
    const BLOCK: usize = 128 << 10;
    const BLOCKS: u64 = 8;
    const ENOUGH: u64 = 1000;
    let (pool, _device) = memory_pool("tank", 512 << 20, 12, Limits::default()).expect("create");
    clones::switch_on(&pool).expect("switch");
    let fs = pool.file_system("tank").expect("opens");
    let (root, who) = (fs.root().expect("root"), Credentials::root());
    let make = |name: &str| fs.create(&who, &root, name.as_bytes(), 0o644);
    let (a, b) = (make("a").expect("made"), make("b").expect("made"));
    // Every part of a block shows which write it belongs to.
    let write = |file: &Arc<zuse_zpl::Znode>, block: u64, mark: u64| {
        let bytes: Vec<u8> = (0..BLOCK as u64 / 8)
            .flat_map(|i| (mark ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes())
            .collect();
        let at = block * BLOCK as u64;
        fs.write(file, at, &bytes, WriteOptions::default())
            .expect("written");
    };
    (0..BLOCKS).for_each(|block| write(&a, block, block));
    pool.sync().expect("sync");
    let (over, mut shared) = (std::sync::atomic::AtomicBool::new(false), 0);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut mark = 100;
            while !over.load(relaxed) {
                // Once a txg: most blocks are on disk.
                let synced = pool.spa().synced_txg();
                write(&a, mark % BLOCKS, mark);
                mark += 1;
                while pool.spa().synced_txg() == synced && !over.load(relaxed) {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            while !over.load(relaxed) {
                pool.sync().expect("sync");
            }
        });
        // Long enough to meet shared blocks often.
        for turn in 0..2_000_000 {
            if shared == ENOUGH {
                break;
            }
            let at = turn % BLOCKS * BLOCK as u64;
            let copied = fs.copy_range(&a, at, &b, at, BLOCK as u64);
            assert_eq!(copied.expect("copied"), BLOCK as u64);
            shared += u64::from(pool.spa().space().cloned > 0);
        }
        over.store(true, relaxed);
    });
    (0..4).for_each(|_| pool.sync().expect("sync"));
    sound(&pool);
    assert_eq!(shared, ENOUGH, "too little was shared");
    // Every copied block belongs to one write.
    for block in 0..BLOCKS {
        let mut bytes = vec![0; BLOCK];
        fs.read(&b, block * BLOCK as u64, &mut bytes).expect("read");
        assert_is_one(block, &bytes);
    }
    pool.close().expect("close");
}

/// All words of a block come from the same write.
fn assert_is_one(block: u64, bytes: &[u8]) {
    let words = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w));
    let marks: std::collections::BTreeSet<u64> = (0..)
        .zip(words)
        .map(|(i, w)| w ^ 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i))
        .collect();
    assert_eq!(marks.len(), 1, "block {block}: {marks:?}");
}

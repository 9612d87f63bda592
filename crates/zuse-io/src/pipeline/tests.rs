use std::collections::BTreeMap;
use std::sync::Arc;
use zuse_base::sync::Mutex;

use zuse_base::{Errno, Error, Result, Txg, WorkPool};
use zuse_codec::{ChecksumKind, Compression, ZstdLevel};
use zuse_device::{BlockDevice, MemDevice, Op, Operation, PowerSupply, RecordingDevice, SimDisk};
use zuse_format::{BlockPointer, Dva};
use zuse_vdev::{OpenMode, TopConfig, VdevConfig, VdevKind, Vdevs};

use super::Pipeline;
use crate::{Ahead, AllocClass, Allocate, Allocation, Cache, METADATA_PERCENT, WritePolicy};

const SIZE: u64 = 128 << 20;

/// First fit over one vdev, with a limit on contiguous size, checking every free.
struct Ledger {
    taken: Mutex<BTreeMap<u64, u64>>,
    longest: u64,
    room: u64,
}

impl Ledger {
    fn used(&self) -> u64 {
        self.taken.lock().values().sum()
    }
}

impl Allocate for Ledger {
    fn allocate(
        &self,
        _txg: Txg,
        psize: u64,
        copies: usize,
        _class: AllocClass,
    ) -> Result<Option<Allocation>> {
        let asize = psize.next_multiple_of(4096);
        if asize > self.longest {
            return Ok(None);
        }
        let mut taken = self.taken.lock();
        if taken.values().sum::<u64>() + asize * copies as u64 > self.room {
            return Err(Error::refused(Errno::NOSPC, "full"));
        }
        let mut dvas = [Dva::EMPTY; 3];
        for dva in dvas.iter_mut().take(copies) {
            let mut at = 0;
            for (start, len) in taken.iter() {
                if start - at >= asize {
                    break;
                }
                at = start + len;
            }
            taken.insert(at, asize);
            *dva = Dva::new(0, at, asize, false);
        }
        Ok(Some(Allocation {
            dvas,
            count: copies,
        }))
    }

    fn free_dva(&self, _txg: Txg, _born: Txg, vdev: u32, offset: u64, asize: u64) -> Result<()> {
        let mut taken = self.taken.lock();
        match taken.remove(&offset) {
            Some(len) if len == asize && vdev == 0 => Ok(()),
            other => Err(Error::miscounted(
                "test",
                format!("free of {offset:#x}+{asize:#x}, there is {other:?}"),
            )),
        }
    }

    fn min_allocation(&self) -> u64 {
        4096
    }
}

struct Bench {
    io: Pipeline,
    space: Arc<Ledger>,
    device: Arc<MemDevice>,
}

fn bench(longest: u64, room: u64) -> Bench {
    let device = Arc::new(MemDevice::new("/disk", SIZE));
    let (io, space) = over(device.clone(), longest, room);
    Bench { io, space, device }
}

fn over(device: Arc<dyn BlockDevice>, longest: u64, room: u64) -> (Pipeline, Arc<Ledger>) {
    let mut top = VdevConfig::new(VdevKind::Disk, 0, 7);
    top.path = Some("/disk".into());
    top.top = Some(TopConfig {
        ashift: 12,
        asize: SIZE - (8 << 20),
        metaslab_shift: 24,
        metaslab_array: 5,
        ..TopConfig::default()
    });
    let root = VdevConfig::root(1, vec![top]);
    let vdevs = Vdevs::open(&root, &|_| Some(device.clone()), OpenMode::CREATE).expect("vdevs");
    let io = Pipeline::new(Arc::new(vdevs), Arc::new(Cache::new(1 << 20)));
    let space = Arc::new(Ledger {
        taken: Mutex::default(),
        longest,
        room,
    });
    io.set_allocator(space.clone());
    (io, space)
}

fn policy(copies: u8, compression: Compression) -> WritePolicy {
    WritePolicy {
        object_type: 19,
        level: 0,
        checksum: ChecksumKind::Fletcher4,
        compression,
        zstd_level: ZstdLevel::DEFAULT,
        copies,
        gang_copies: (copies + 1).min(3),
        embed: true,
        hole_birth: true,
        nopwrite: false,
        dedup: crate::Dedup::Off,
        class: AllocClass::Normal,
        small: 0,
        pass: 1,
    }
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

fn write(b: &Bench, policy: &WritePolicy, old: &BlockPointer, data: &[u8]) -> Result<BlockPointer> {
    b.io.write(Txg(9), policy, old, data, 1).map(|w| w.bp)
}

#[test]
fn what_is_written_is_read_back_compressed_plain_embedded_and_as_a_hole() {
    let b = bench(u64::MAX, SIZE / 2);
    let text: Vec<u8> = (0..131_072u32).map(|i| (i / 100) as u8).collect();
    let cases: [(&[u8], Compression); 4] = [
        (&text, Compression::Lz4),
        (&noise(131_072, 3), Compression::Lz4),
        (&[b'z'; 4096], Compression::Lz4),
        (&text[..3584], Compression::Off),
    ];
    for (data, compression) in cases {
        let bp = write(&b, &policy(1, compression), &BlockPointer::HOLE, data).expect("write");
        b.io.cache().clear();
        assert_eq!(b.io.read(&bp, &"test").expect("read").bytes(), data);
    }
    let embedded = write(
        &b,
        &policy(1, Compression::Lz4),
        &BlockPointer::HOLE,
        &[b'z'; 4096],
    )
    .expect("write");
    assert!(embedded.is_embedded());
    let len = embedded.lsize() as usize;
    let (mut fits, mut short) = (vec![1; len], vec![1; len - 512]);
    b.io.embedded_into(&embedded, &mut fits, &"it")
        .expect("fits");
    assert_eq!(fits, b.io.read(&embedded, &"it").expect("reads").bytes());
    let refused = b.io.embedded_into(&embedded, &mut short, &"it");
    let refused = refused.expect_err("too short").to_string();
    assert!(refused.contains("length"), "{refused}");
    let hole = write(&b, &policy(1, Compression::Lz4), &embedded, &[0; 4096]).expect("write");
    assert!(hole.is_hole() && hole.logical_birth() == 9);
    assert!(b.io.embedded_into(&hole, &mut fits, &"it").is_err());
    let kept = write(&b, &policy(1, Compression::Off), &embedded, &[0; 4096]).expect("write");
    assert!(!kept.is_hole(), "without compression zeros are data");
}

#[test]
fn a_small_directory_is_part_of_its_pointer() {
    let b = bench(u64::MAX, u64::MAX);
    let mut directory = vec![0u8; 512];
    directory[..8].copy_from_slice(&0x8000_0000_0000_0003u64.to_le_bytes());
    directory[8..16].copy_from_slice(&0x9e37_79b9_7f4a_7c15u64.to_le_bytes());
    for i in 0..2u8 {
        let slot = &mut directory[64 * (usize::from(i) + 1)..];
        slot[0] = i;
        slot[14..27].copy_from_slice(b"file-00000000");
        slot[26] += i;
    }
    let policy = WritePolicy {
        object_type: 20,
        ..policy(2, Compression::Lz4)
    };
    let bp = write(&b, &policy, &BlockPointer::HOLE, &directory).expect("room");
    assert!(bp.is_embedded());
    assert_eq!(b.space.used(), 0);
    let read = b.io.read(&bp, &"here").expect("reads");
    assert_eq!(read.bytes(), &directory[..]);

    // Cases that must not embed, and one that would not fit.
    let apart = WritePolicy {
        embed: false,
        ..policy
    };
    let bp = write(&b, &apart, &BlockPointer::HOLE, &directory).expect("room");
    assert_eq!((bp.is_embedded(), bp.psize()), (false, 512));
    assert_eq!(b.space.used(), 8192);
    let bp = write(&b, &policy, &BlockPointer::HOLE, &noise(512, 3)).expect("room");
    assert_eq!((bp.is_embedded(), bp.psize()), (false, 512));
}

#[test]
fn a_rotten_copy_is_replaced_by_a_good_one_and_healed() {
    let b = bench(u64::MAX, SIZE / 2);
    let data = noise(16_384, 5);
    let bp = write(&b, &policy(2, Compression::Lz4), &BlockPointer::HOLE, &data).expect("write");
    let first = bp.dva(0).offset() + (4 << 20);
    b.device.write_at(&[0xaa; 512], first + 1024).expect("rot");
    b.io.cache().clear();
    assert_eq!(b.io.read(&bp, &"test").expect("read").bytes(), &data[..]);
    let mut healed = vec![0; 16_384];
    b.device.read_at(&mut healed, first).expect("read");
    assert_eq!(healed, data, "the bad copy was not rewritten");
}

#[test]
fn when_every_copy_is_rotten_the_error_names_the_place() {
    let b = bench(u64::MAX, SIZE / 2);
    let bp = write(
        &b,
        &policy(2, Compression::Lz4),
        &BlockPointer::HOLE,
        &noise(16_384, 5),
    )
    .expect("write");
    for dva in bp.dvas() {
        b.device
            .write_at(&[0xaa; 512], dva.offset() + (4 << 20))
            .expect("rot");
    }
    b.io.cache().clear();
    let error =
        b.io.read(&bp, &"dataset tank/a, object 7")
            .expect_err("bad")
            .to_string();
    assert!(
        error.contains("tank/a, object 7") && error.contains("vdev 0"),
        "{error}"
    );
}

#[test]
fn a_block_without_contiguous_room_becomes_a_gang_and_is_freed_whole() {
    for longest in [64 << 10, 16 << 10, 8 << 10] {
        for copies in [1, 2] {
            let b = bench(longest, SIZE / 2);
            let data = noise(131_072, longest);
            let bp = write(
                &b,
                &policy(copies, Compression::Lz4),
                &BlockPointer::HOLE,
                &data,
            )
            .expect("write");
            assert!(bp.is_gang());
            assert_eq!(
                bp.asize(),
                b.space.used(),
                "the leader's size is not that of the tree"
            );
            b.io.cache().clear();
            assert_eq!(b.io.read(&bp, &"test").expect("read").bytes(), &data[..]);
            b.io.free(Txg(10), &bp).expect("free");
            assert_eq!(b.space.used(), 0, "something of the gang stayed allocated");
        }
    }
}

#[test]
fn a_gang_that_does_not_fit_gives_everything_back() {
    let b = bench(16 << 10, 100 << 10);
    let error = write(
        &b,
        &policy(1, Compression::Lz4),
        &BlockPointer::HOLE,
        &noise(131_072, 1),
    )
    .expect_err("full");
    assert!(error.is(Errno::NOSPC), "{error}");
    assert_eq!(b.space.used(), 0);
}

#[test]
fn a_later_pass_rewrites_in_place_whatever_the_new_size_up_to_the_old_one() {
    let b = bench(u64::MAX, SIZE / 2);
    let half: Vec<u8> = [noise(8192, 1), vec![0; 8192]].concat();
    let first = write(&b, &policy(2, Compression::Lz4), &BlockPointer::HOLE, &half).expect("write");
    let later = WritePolicy {
        pass: 2,
        ..policy(2, Compression::Lz4)
    };
    let less: Vec<u8> = [noise(4096, 2), vec![1; 12_288]].concat();
    let w =
        b.io.write(Txg(9), &later, &first, &less, 1)
            .expect("rewrite");
    assert!(w.in_place && w.bp.dva(0) == first.dva(0) && w.bp.psize() == first.psize());
    b.io.cache().clear();
    assert_eq!(b.io.read(&w.bp, &"test").expect("read").bytes(), &less[..]);
    let more = noise(16_384, 3);
    let w =
        b.io.write(Txg(9), &later, &first, &more, 1)
            .expect("rewrite");
    assert!(!w.in_place, "more bytes than the place has");
    let other =
        b.io.write(Txg(10), &later, &first, &less, 1)
            .expect("write");
    assert!(!other.in_place, "a block of an earlier txg was overwritten");
}

#[test]
fn an_unchanged_block_keeps_its_pointer_where_the_checksum_is_strong() {
    let b = bench(u64::MAX, SIZE / 2);
    let strong = WritePolicy {
        checksum: ChecksumKind::Sha256,
        nopwrite: true,
        ..policy(1, Compression::Lz4)
    };
    let data = noise(16_384, 4);
    let bp = write(&b, &strong, &BlockPointer::HOLE, &data).expect("write");
    let again = b.io.write(Txg(12), &strong, &bp, &data, 1).expect("write");
    assert_eq!(again.bp, bp);
    assert!(again.in_place);
    let changed =
        b.io.write(Txg(12), &strong, &bp, &noise(16_384, 77), 1)
            .expect("write");
    assert!(!changed.in_place);
}

#[test]
fn a_stale_reader_does_not_heal_over_the_block_that_is_there_now() {
    let b = bench(u64::MAX, SIZE / 2);
    let data = noise(16_384, 5);
    let old = write(&b, &policy(2, Compression::Lz4), &BlockPointer::HOLE, &data).expect("write");
    b.io.free(Txg(9), &old).expect("free");
    // Only the first copy's place is taken again.
    let other = noise(16_384, 7);
    let new = write(
        &b,
        &policy(1, Compression::Lz4),
        &BlockPointer::HOLE,
        &other,
    )
    .expect("write");
    assert_eq!(new.dva(0).offset(), old.dva(0).offset());
    b.io.cache().clear();
    // The reader gets the block it asked for, if that still exists.
    assert_eq!(b.io.read(&old, &"stale").expect("read").bytes(), &data[..]);
    assert_eq!(b.io.read(&new, &"new").expect("read").bytes(), &other[..]);
}

fn dataset_key(suite: zuse_codec::crypt::Suite) -> crate::DatasetKey {
    let master = zuse_codec::crypt::MasterKey::new(suite, &[1; 32], &[2; 64]);
    crate::DatasetKey::new(master, 1, Arc::new(zuse_base::SeededPrng::new(3)))
}

#[test]
fn encrypted_blocks_go_round_gangs_and_raw_copies_included() {
    use zuse_codec::crypt::Suite;
    for longest in [1 << 20, 16384] {
        let Bench { io, device, .. } = bench(longest, 64 << 20);
        for suite in [Suite::Aes128Ccm, Suite::Aes192Gcm, Suite::Aes256Gcm] {
            let key = dataset_key(suite);
            for (object_type, compression) in [
                (19, Compression::Lz4),
                (19, Compression::Off),
                (21, Compression::Lz4),
            ] {
                let policy = WritePolicy {
                    object_type,
                    ..policy(1, compression)
                };
                let mut data = vec![7u8; 60_000];
                data.extend(noise(71_072, 5));
                let written = io
                    .write_keyed(Txg(9), &policy, Some(&key), &BlockPointer::HOLE, &data, 1)
                    .expect("write")
                    .bp;
                assert!(written.uses_crypt() && written.fill() == 1);
                let read = |bp: &BlockPointer| io.read_around_keyed(bp, Some(&key), &"x");
                assert_eq!(read(&written).expect("read").bytes(), data);
                if object_type == 19 {
                    assert!(io.read(&written, &"x").unwrap_err().is(Errno::ACCES));
                }
                let stored = io.read_stored(&written, &"x").expect("stored");
                let raw = crate::RawBlock {
                    stored: &stored,
                    logical_size: written.lsize(),
                    compression: written.compression(),
                    order: written.byte_order(),
                    crypt: crate::CryptParams::of(&written),
                };
                let copy = io.write_raw(Txg(10), &policy, &raw, 1).expect("raw");
                assert_ne!(copy.dva(0), written.dva(0));
                assert_eq!(copy.checksum()[..2], written.checksum()[..2]);
                assert_eq!(read(&copy).expect("read").bytes(), data);
            }
        }
        drop(device);
    }
}

#[test]
fn long_neighbours_come_in_one_read_and_what_is_rotten_among_them_does_not() {
    let disk = Arc::new(MemDevice::new("/disk", SIZE));
    let device = Arc::new(RecordingDevice::new(disk.clone()));
    let (io, _space) = over(device.clone(), u64::MAX, SIZE / 2);
    io.cache().set_limit(16 << 20, METADATA_PERCENT);
    let (io, plain) = (Arc::new(io), policy(1, Compression::Off));
    let work = Arc::new(WorkPool::new("test", 2, 64).expect("threads"));
    let mut blocks: Vec<(BlockPointer, Vec<u8>)> = (0..8)
        .map(|i| {
            let data = noise(64 << 10, 77 + i);
            let written = io.write(Txg(9), &plain, &BlockPointer::HOLE, &data, 1);
            (written.expect("room").bp, data)
        })
        .collect();
    let (rotten, _) = blocks.remove(1);
    let start = rotten.dva(0).offset() + (4 << 20) - (64 << 10);
    disk.write_at(&[0xaa; 512], start + (64 << 10))
        .expect("rot");
    // With a gap that is read and dropped, and in another order than on disk.
    let (between, _) = blocks.remove(1);
    blocks.reverse();
    io.cache().clear();
    device.reset();
    let wanted = blocks.iter().map(|(bp, _)| *bp).chain([rotten]);
    let ahead = || Ahead::new(&io, &work);
    let mut around = ahead();
    around.prefetch(wanted);
    assert_eq!(around.prefetched(), 7 * (64 << 10));
    let read = Operation {
        op: Op::Read,
        offset: start,
        len: 8 * (64 << 10),
    };
    assert_eq!(device.take(), [read]);
    for (bp, data) in &blocks {
        assert_eq!(io.peek(bp).expect("it came").bytes(), data);
    }
    assert!(io.peek(&between).is_none());
    assert!(io.peek(&rotten).is_none());
    // No reader is left waiting; the reader that needs the block finds the error.
    assert!(io.read(&rotten, &"rotten").is_err());
    // Without direct prefetch a run is good or bad as a whole.
    io.cache().clear();
    io.set_prefetch_direct(false);
    let wanted: Vec<_> = blocks.iter().map(|(bp, _)| *bp).chain([rotten]).collect();
    ahead().prefetch(wanted);
    assert!(blocks.iter().all(|(bp, _)| io.peek(bp).is_none()));
    ahead().prefetch(blocks.iter().map(|(bp, _)| *bp));
    for (bp, data) in &blocks {
        assert_eq!(io.peek(bp).expect("it came").bytes(), data);
    }
}

/// Bytes that have reached the device after 512 KiB were put in blocks of that size.
fn written_of(block: usize, around: bool) -> u64 {
    let power = PowerSupply::new();
    let disk = Arc::new(SimDisk::new("/disk", SIZE, 9, power));
    let (io, _space) = over(disk, SIZE, SIZE);
    io.gather_writes();
    io.write_around(around);
    let before = io.bytes_written();
    let data = noise(block, 5);
    for at in (0..512 << 10).step_by(block) {
        io.put(Txg(9), &Dva::new(0, at, block as u64, false), &data)
            .expect("put");
    }
    io.bytes_written() - before
}

#[test]
fn blocks_of_more_than_eight_kib_wait_for_a_run_that_goes_around_the_cache() {
    let half = 512 << 10;
    assert_eq!(written_of(8 << 10, true), half, "two runs through it");
    assert_eq!(written_of(16 << 10, true), 0, "they wait for a longer run");
    assert_eq!(written_of(64 << 10, true), 0, "they wait for a longer run");
    assert_eq!(written_of(16 << 10, false), half, "two runs through it");
    assert_eq!(written_of(64 << 10, false), half, "each by itself");
}

// Each of the next two breaks an invariant that the code itself must keep.

#[test]
#[should_panic(expected = "an encrypted block must not be rewritten in place")]
fn an_encrypted_block_is_never_rewritten_in_place() {
    let b = bench(u64::MAX, SIZE / 2);
    let master =
        zuse_codec::crypt::MasterKey::new(zuse_codec::crypt::Suite::Aes256Gcm, &[1; 32], &[2; 64]);
    let entropy = Arc::new(zuse_base::SeededPrng::new(1));
    let key = crate::DatasetKey::new(master, 1, entropy);
    let old = write(
        &b,
        &policy(1, Compression::Off),
        &BlockPointer::HOLE,
        &[7; 4096],
    );
    let again = WritePolicy {
        pass: 2,
        ..policy(1, Compression::Off)
    };

    let _ = b.io.write_with(
        Txg(9),
        &again,
        Some(&key),
        &old.expect("written"),
        &[8; 4096],
        1,
        &mut Vec::new(),
    );
}

#[test]
#[should_panic(expected = "a block of an older txg must not be rewritten in place")]
fn what_an_older_txg_wrote_is_never_written_over() {
    let b = bench(u64::MAX, SIZE / 2);
    let policy = policy(1, Compression::Off);
    let old = write(&b, &policy, &BlockPointer::HOLE, &[7; 4096]).expect("written");
    let _ = b.io.overwrite(
        Txg(10),
        &policy,
        &old,
        &[8; 4096],
        Compression::Off,
        4096,
        1,
    );
}

#[test]
fn a_block_is_repaired_with_its_own_bytes_only() {
    let b = bench(u64::MAX, SIZE / 2);
    let data = noise(16_384, 5);
    let bp = write(&b, &policy(2, Compression::Off), &BlockPointer::HOLE, &data).expect("write");
    let places: Vec<u64> = bp.dvas().map(|d| d.offset() + (4 << 20)).collect();
    for at in &places {
        b.device.write_at(&[0xaa; 512], *at).expect("rot");
    }
    let on_disk = || {
        places.iter().all(|at| {
            let mut stored = vec![0; data.len()];
            b.device.read_at(&mut stored, *at).expect("read");
            stored == data
        })
    };
    let others = noise(16_384, 6);
    assert!(!b.io.repair(&bp, &others, &"test").expect("no error"));
    assert!(!b.io.repair(&bp, &data[..8192], &"test").expect("no error"));
    assert!(!on_disk());
    assert!(b.io.repair(&bp, &data, &"test").expect("repaired"));
    assert!(on_disk());
}

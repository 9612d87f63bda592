//! Freeing thousands of files without a name takes a few txgs, not one for each file.

use std::sync::Arc;

use zuse::Credentials;
use zuse::tools::{FileSystem, Layers as _};
use zuse_base::{Entropy, Errno, SeededPrng, Txg};
use zuse_device::{BlockDevice, MemDevice};
use zuse_dsl::Estimate;
use zuse_sim::golden::open_whole;
use zuse_sim::memory_pool::{memory_pool, narrow};
use zuse_zpl::WriteOptions;

const FILES: usize = 5000;
const SIZE: u64 = 96 << 20;

fn pool() -> (Arc<zuse::Pool>, Arc<FileSystem>) {
    let (pool, _device) = memory_pool("tank", SIZE, 12, narrow(32 << 20)).expect("pool");
    let fs = pool.file_system("tank").expect("file system");
    (pool, fs)
}

/// Space left for removals: less than twenty of them reserve, and more than one does.
const LEFT: u64 = 1 << 20;

/// Open files without a name, on disk and in the unlinked set.
fn unlinked(fs: &Arc<FileSystem>) -> Vec<Arc<zuse_zpl::Znode>> {
    let root = Credentials::root();
    let dir = fs.root().expect("root");
    let make = |_| fs.tmpfile(&root, &dir, 0o600).expect("tmpfile");
    let files = (0..FILES).map(make).collect();
    fs.sync().expect("sync");
    files
}

/// Writes until removals, too, have less than this and 128 KiB left.
fn fill(pool: &Arc<zuse::Pool>, fs: &Arc<FileSystem>, left: u64) {
    const STEP: u64 = 128 << 10;
    let root = Credentials::root();
    let file = fs
        .create(&root, &fs.root().expect("root"), b"filler", 0o600)
        .expect("create");
    fs.write(&file, 0, &vec![1; STEP as usize], WriteOptions::default())
        .expect("write");
    let dataset = pool.dsl().dataset("tank").expect("dataset");
    let objset = dataset.objset().expect("object set");
    let dnode = objset.dnode(file.object()).expect("object");
    let prng = SeededPrng::new(3);
    let (mut noise, mut quiet) = (vec![0; STEP as usize], 0);
    for step in 0.. {
        prng.fill(&mut noise);
        let room = Estimate {
            write_bytes: STEP + left,
            frees: true,
        };
        match dataset.begin(room) {
            Ok(tx) => {
                quiet = 0;
                dnode.write_at(&tx, step * STEP, &noise).expect("write");
            }
            // Freed space is available with the next txgs.
            Err(e) if e.is(Errno::NOSPC) && quiet < 4 => {
                quiet += 1;
                pool.sync().expect("sync");
                continue;
            }
            Err(e) if e.is(Errno::NOSPC) => break,
            Err(e) => panic!("{e}"),
        }
    }
}

/// The pool is so full that changes begun one by one often wait for a txg.
fn one_by_one_they_wait(pool: &zuse::Pool) {
    let dataset = pool.dsl().dataset("tank").expect("dataset");
    let before = pool.spa().synced_txg();
    for _ in 0..20 {
        let removal = Estimate {
            write_bytes: 128 << 10,
            frees: true,
        };
        drop(dataset.begin(removal).expect("begin"));
    }
    // Freeing the files one by one would take 500 txgs at this rate.
    assert!(txgs(pool, before) >= 2, "{}", txgs(pool, before));
}

fn txgs(pool: &zuse::Pool, since: Txg) -> u64 {
    pool.spa().synced_txg().0 - since.0
}

#[test]
fn at_an_unmount_with_space_they_take_no_more_txgs_than_any_change() {
    let (pool, fs) = pool();
    let files = unlinked(&fs);
    let before = pool.spa().synced_txg();
    drop(files);
    fs.close().expect("close");
    pool.sync().expect("sync");
    assert!(txgs(&pool, before) <= 4, "{}", txgs(&pool, before));
    assert_eq!(fs.drain_unlinked().expect("drain"), 0);
    pool.close().expect("close");
}

#[test]
fn at_an_unmount_of_a_full_pool_many_go_in_each_txg() {
    let (pool, fs) = pool();
    let files = unlinked(&fs);
    fill(&pool, &fs, LEFT);
    one_by_one_they_wait(&pool);
    let before = pool.spa().synced_txg();
    drop(files);
    fs.close().expect("close");
    let took = txgs(&pool, before);
    assert!(took <= FILES as u64 / 16, "{took} txgs");
    assert_eq!(fs.drain_unlinked().expect("drain"), 0);
    pool.close().expect("close");
}

#[test]
fn what_was_held_when_the_power_went_is_freed_when_its_file_system_is_opened() {
    let (pool, device) = memory_pool("tank", SIZE, 12, narrow(32 << 20)).expect("pool");
    let fs = pool.file_system("tank").expect("file system");
    let held = unlinked(&fs);
    // The power fails: only the data on disk remains.
    let left: Arc<dyn BlockDevice> = Arc::new(MemDevice::from_image("/disk", &device.snapshot()));
    let access = zuse::PoolAccess {
        writable: true,
        force: true,
        ..Default::default()
    };
    let env = zuse_pool::Environment {
        limits: narrow(32 << 20),
        ..Default::default()
    };
    let again = open_whole(env, &[left], &access).expect("opened");
    let dataset = again.dsl().dataset("tank").expect("dataset");
    let objects = dataset.objset().expect("object set");
    let there = |z: &&Arc<zuse_zpl::Znode>| objects.dnode(z.object()).is_ok();
    assert_eq!(held.iter().filter(there).count(), FILES, "before");
    let before = again.spa().synced_txg();
    let fs_again = again.file_system("tank").expect("file system");
    again.sync().expect("sync");
    assert_eq!(held.iter().filter(there).count(), 0, "after");
    assert!(txgs(&again, before) <= 8, "{}", txgs(&again, before));
    fs_again.close().expect("close");
    again.close().expect("close");
    drop((held, fs, pool));
}

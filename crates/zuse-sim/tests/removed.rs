//! Kernel pools with a removed vdev are written. Blocks there are freed at their copied location.
//! Blocks that snapshots still reference by the old address are kept, and a condensing is undone.
//! The pools are `gone`, `condensing` and `leaving` of `testdata`.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Credentials, DestroyOptions, ListedKinds, Pool, PoolAccess};
use zuse_check::{Depth, check};
use zuse_device::BlockDevice;
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, open_whole};

const COUNTS: &str = "com.delphix:obsolete_counts";

fn writable() -> PoolAccess {
    PoolAccess {
        writable: true,
        force: true,
        ..PoolAccess::default()
    }
}

/// Nothing is leaked, freed twice, or obsolete and in use, and neither after the next import.
fn check_and_reopen(pool: Arc<Pool>, devices: &[Arc<dyn BlockDevice>], what: &str) -> Arc<Pool> {
    while pool.dsl().waiting_frees().expect("queues") > 0 {
        pool.sync().expect("sync");
    }
    let clean = |pool: &Arc<Pool>| {
        let report = check(pool.spa(), Depth::All).expect("check");
        assert!(report.is_clean(), "{what}: {:#?}", report.problems);
    };
    clean(&pool);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{what}: {flaws:?}");
    pool.export().expect("export");
    drop(pool);
    let again = open_whole(Environment::default(), devices, &writable()).expect("open");
    clean(&again);
    again
}

/// Removes every second file of `gone/a`, and changes the others.
fn work(pool: &Arc<Pool>) {
    let root = Credentials::root();
    let fs = pool.file_system("gone/a").expect("a file system");
    let dir = fs.root().expect("root");
    let (mut removed, mut changed) = (0, 0);
    for number in 1..130 {
        let name = format!("f{number}");
        let Ok(file) = fs.resolve(&root, name.as_bytes()) else {
            continue;
        };
        if number % 2 == 0 {
            fs.unlink(&root, &dir, name.as_bytes()).expect("unlink");
            removed += 1;
        } else {
            fs.write(&file, 5000, b"changed here", Default::default())
                .expect("write");
            changed += 1;
        }
    }
    assert!(removed > 5 && changed > 5, "{removed} {changed}");
    pool.sync().expect("sync");
}

fn obsolete(pool: &Pool) -> u64 {
    let report = check(pool.spa(), Depth::All).expect("check");
    report.obsolete
}

fn life(image: &'static str, order: [&str; 2]) {
    let devices = Golden::load(image).block_devices();
    let pool = open_whole(Environment::default(), &devices, &writable()).expect("open");
    let before = pool.spa().features().refcount(COUNTS);
    assert!(before >= 3, "{image}: {COUNTS} is {before}");
    let record = pool.spa().directory().expect("directory");
    let record = record.lookup(b"com.delphix:condensing_indirect");
    assert!(
        record.expect("lookup").is_none(),
        "the condensing is undone"
    );
    let mut pool = check_and_reopen(pool, &devices, image);
    work(&pool);
    pool.create_filesystem("gone/b", &[], (0, 0))
        .expect("create");
    pool = check_and_reopen(pool, &devices, "files removed and changed");
    for snap in order {
        let name = format!("gone/a@{snap}");
        pool.destroy_snapshots(std::slice::from_ref(&name), DestroyOptions::ONE)
            .expect("destroy");
        pool = check_and_reopen(pool, &devices, &name);
    }
    let noted = obsolete(&pool);
    pool.destroy_dataset("gone/a", DestroyOptions::ONE)
        .expect("destroy");
    pool = check_and_reopen(pool, &devices, "nothing is left");
    let all = obsolete(&pool);
    assert!(all > noted, "{image}: obsolete {noted}, then {all} bytes");
    // Counts, precise counts, the obsolete map: no list of remapped ranges, no queue of them.
    assert_eq!(pool.spa().features().refcount(COUNTS), 3);
    pool.export().expect("export");
}

#[test]
fn blocks_on_a_removed_vdev_are_freed_where_they_are_now() {
    life("gone", ["one", "two"]);
    life("gone", ["two", "one"]);
}

#[test]
fn a_mapping_that_another_host_was_condensing_stays_as_it_was() {
    life("condensing", ["two", "one"]);
}

/// A pool that may be read and not written; the refusal changes nothing.
fn refused(image: &'static str, why: &str) {
    let devices = Golden::load(image).block_devices();
    let bytes = |d: &Arc<dyn BlockDevice>| {
        let mut all = vec![0; usize::try_from(d.size()).expect("small")];
        d.read_at(&mut all, 0).expect("read");
        all
    };
    let before: Vec<_> = devices.iter().map(bytes).collect();
    let refused = open_whole(Environment::default(), &devices, &writable());
    let error = refused.expect_err("refused").to_string();
    assert!(error.contains(why), "{error}");
    assert!(before == devices.iter().map(bytes).collect::<Vec<_>>());
    let read = open_whole(Environment::default(), &devices, &PoolAccess::default());
    assert!(read.is_ok(), "it can be read");
}

#[test]
fn a_pool_in_the_middle_of_a_removal_is_refused_by_name_and_stays_untouched() {
    refused("leaving", "vdev 0 is being removed");
}

#[test]
fn a_pool_in_the_middle_of_an_expansion_is_refused_by_name_and_stays_untouched() {
    refused("growing", "a raidz vdev is being expanded");
}

#[test]
fn the_golden_pool_with_a_removed_vdev_is_written() {
    let golden = Golden::load("removed");
    let devices = golden.block_devices();
    let pool = open_whole(Environment::default(), &devices, &writable()).expect("open");
    let names = pool
        .list("removed", None, ListedKinds::WITH_SNAPSHOTS)
        .expect("list");
    let own = names.iter().filter(|l| !l.name.contains('@')).count();
    pool.create_filesystem("removed/new", &[], (0, 0))
        .expect("create");
    for entry in names.iter().filter(|l| l.name.contains('@')) {
        let _ = pool.destroy_snapshots(std::slice::from_ref(&entry.name), DestroyOptions::ONE);
    }
    for entry in names.iter().rev().take(own.saturating_sub(1)) {
        let _ = pool.destroy_dataset(&entry.name, DestroyOptions::RECURSIVE);
    }
    let pool = check_and_reopen(pool, &devices, "removed");
    pool.export().expect("export");
}

//! Batches that are undone leave everything unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{Entropy, ObjectId, SeededPrng};
use zuse_dsl::property::{SetAs, Value};
use zuse_dsl::{Batch, Estimate, Operation};
use zuse_format::object_type as ot;
use zuse_vdev::PoolState;

use crate::bench::*;

/// Every object of the MOS by number: type, bonus and content. Excluded is what any txg changes:
/// space maps and their parents, the pool's configuration, the usage of `$MOS` and of the directory
/// above it.
fn picture(bench: &Bench) -> BTreeMap<u64, (u8, Vec<u8>, Vec<u8>)> {
    let mos = bench.pool.mos();
    let root = bench.pool.directory().expect("directory");
    let number = |name: &str| root.lookup_u64(name.as_bytes()).expect("read").unwrap_or(0);
    let root_dir = number("root_dataset");
    let busy = ["config", "com.delphix:log_spacemap_zap", "sync_bplist"].map(number);
    let mut all = BTreeMap::new();
    let mut at = ObjectId(0);
    while let Some(object) = mos.next_object(at).expect("next") {
        at = object;
        let dnode = mos.dnode(object).expect("dnode");
        let kind = dnode.object_type();
        if busy.contains(&object.0) || [ot::SPACE_MAP, ot::SPACE_MAP_HEADER].contains(&kind) {
            continue;
        }
        let mut bonus = dnode.bonus_vec();
        if dnode.bonus_type() == ot::DSL_DIR && (object.0 == root_dir || bonus.len() < 256) {
            bonus.clear();
        }
        let mut content = Vec::new();
        for blkid in 0..=dnode.max_block() {
            let read = dnode.with_block(blkid, |b| content.extend_from_slice(b.bytes()));
            read.expect("a block");
        }
        all.insert(object.0, (kind, bonus, content));
    }
    all
}

fn any_operation(
    batch: &Batch<'_>,
    rng: &SeededPrng,
    pool: &str,
    serial: &mut u32,
) -> Option<Operation> {
    let mut heads = vec![pool.to_owned()];
    let mut at = 0;
    while let Some(name) = heads.get(at).cloned() {
        at += 1;
        let entry = batch.entry(&name).expect("read").expect("a head");
        heads.extend(batch.children(&entry).expect("children"));
    }
    let head = rng.pick(&heads).cloned()?;
    let entry = batch.entry(&head).expect("read").expect("a head");
    let snaps = batch.snapshots(&entry).expect("snapshots");
    let snap = rng.pick(&snaps).cloned();
    *serial += 1;
    Some(match (rng.below(12), snap) {
        (0, Some(snap)) => Operation::Destroy(snap, rng.chance(1, 3)),
        (1, _) => Operation::Destroy(head, false),
        (2 | 3, Some(snap)) => Operation::Clone(snap, format!("{head}/u{serial}")),
        (4, _) => Operation::Promote(head),
        (5, _) => Operation::Rollback(head),
        (6, Some(snap)) => {
            let old = snap.split('@').nth(1)?.to_owned();
            Operation::RenameSnapshot(head, old, format!("m{serial}"))
        }
        (7, _) => Operation::Inherit(head, "compression".into()),
        (8, Some(snap)) => Operation::Bookmark(snap, format!("{head}#u{serial}")),
        (9, _) => Operation::SetProperty(head, "a:b".into(), format!("v{serial}")),
        _ => Operation::Snapshot(format!("{head}@u{serial}")),
    })
}

/// Runs random operations in one batch; returns how many of each kind were done.
fn random_batch(bench: &Bench, seed: u64, undone: bool) -> BTreeMap<String, u32> {
    let pool = bench.pool.name();
    let many = 1 + seed % 24;
    bench
        .dsl
        .batch(true, move |batch| {
            let rng = SeededPrng::new(seed);
            let mut serial = seed as u32 * 1000;
            let mut done = BTreeMap::new();
            for _ in 0..many {
                let Some(operation) = any_operation(batch, &rng, &pool, &mut serial) else {
                    continue;
                };
                if batch.run(&operation, true).expect("run").errno == 0 {
                    let word = format!("{operation:?}");
                    let word = word.split('(').next().unwrap_or_default().to_owned();
                    *done.entry(word).or_insert(0) += 1;
                }
            }
            if undone {
                batch.undo();
            }
            done
        })
        .expect("a batch")
}

fn holds(file: &zuse_dmu::Dnode, seed: u8) {
    let same = file.with_block(0, |b| b.bytes() == block(seed));
    assert!(same.expect("a block"), "the file holds something else");
}

fn heads(bench: &Bench, pool: &str) -> Vec<String> {
    let tree = bench.dsl.tree(pool).expect("tree");
    tree.into_iter().map(|e| e.name).collect()
}

/// Batches of random operations, some undone, some not, with files written between them.
fn undone(name: &str, seed: u64, rounds: u64) -> BTreeMap<String, u32> {
    let rng = SeededPrng::new(seed);
    let mut bench = Bench::new(name, 256 << 20);
    for i in 0..4 {
        let ds = bench.create(&format!("{name}/d{i}"));
        file(&ds, 2, i).expect("file");
    }
    let mut undone = BTreeMap::new();
    for round in 0..rounds {
        // A txg with changes of files, which stay.
        let all = heads(&bench, name);
        let written = rng.pick(&all).cloned().expect("a head");
        if let Ok(ds) = bench.dsl.dataset(&written)
            && let Ok(object) = file(&ds, 1, round as u8)
        {
            let os = ds.objset().expect("objset");
            if rng.chance(1, 2) {
                bench.pool.sync_now().expect("sync");
            }
            drop(os);
            bench.sync_all();
            let features = bench.pool.features().all();
            let (before, space) = (picture(&bench), bench.pool.space().allocated);
            for (kind, n) in random_batch(&bench, seed * 10_000 + round, true) {
                *undone.entry(kind).or_insert(0) += n;
            }
            let what = format!("seed {seed}, round {round}");
            let after = picture(&bench);
            let changed: Vec<_> = before
                .keys()
                .chain(after.keys())
                .filter(|o| before.get(o) != after.get(o))
                .map(|o| (o, before.get(o).map(|p| p.0), after.get(o).map(|p| p.0)))
                .collect();
            assert!(changed.is_empty(), "{what}: {changed:?}");
            assert_eq!(features, bench.pool.features().all(), "{what}");
            bench.sync_all();
            let grown = bench.pool.space().allocated.abs_diff(space);
            assert!(grown < 1 << 20, "{what}: {grown} bytes");
            let os = ds.objset().expect("objset");
            let there = os.dnode(object).expect("the file");
            holds(&there, round as u8);
        }
        // A batch is undone in a txg that also has changes of files.
        if let Ok(ds) = bench.dsl.dataset(&written) {
            let object = file(&ds, 1, 99);
            random_batch(&bench, seed * 20_000 + round, true);
            if let Ok(object) = object {
                let os = ds.objset().expect("objset");
                let there = os.dnode(object).expect("the file");
                holds(&there, 99);
            }
        }
        bench.sound("what was undone");
        random_batch(&bench, seed * 30_000 + round, false);
        bench.sound("what was done");
        if rng.chance(1, 4) {
            bench = bench.reopen(true);
        }
    }
    bench.close();
    undone
}

#[test]
fn a_batch_that_is_undone_leaves_everything_as_it_was() {
    let rounds = std::env::var("ZUSE_CHURN")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(12);
    let mut all = BTreeMap::new();
    for seed in 1..=4 {
        for (kind, n) in undone(&format!("undone{seed}"), seed, rounds) {
            *all.entry(kind).or_insert(0) += n;
        }
    }
    let kinds = [
        "Destroy",
        "Snapshot",
        "Clone",
        "Promote",
        "Rollback",
        "RenameSnapshot",
        "Inherit",
        "Bookmark",
        "SetProperty",
    ];
    for kind in kinds {
        assert!(all.contains_key(kind), "no {kind} was undone: {all:?}");
    }
}

#[test]
fn what_is_undone_is_not_on_disk_either() {
    let bench = Bench::new("gone", 128 << 20);
    let ds = bench.create("gone/f");
    file(&ds, 4, 1).expect("file");
    bench.snap("gone/f@s");
    drop(ds);
    bench
        .dsl
        .batch(true, |batch| {
            for operation in [
                Operation::Clone("gone/f@s".into(), "gone/c".into()),
                Operation::Promote("gone/c".into()),
                Operation::Destroy("gone/f".into(), false),
                Operation::Snapshot("gone/c@t".into()),
            ] {
                let outcome = batch.run(&operation, true).expect("run");
                assert_eq!(outcome.errno, 0, "{operation:?}");
            }
            batch.undo();
        })
        .expect("a batch");
    // As after a crash: only the state of the last uberblock is on disk.
    bench.pool.close(PoolState::Active).expect("close");
    let bench = bench.open_again();
    assert_eq!(heads(&bench, "gone"), ["gone", "gone/f"]);
    let snaps = bench.dsl.snapshots("gone/f").expect("snapshots");
    assert_eq!(snaps.len(), 1);
    bench.close();
}

#[test]
fn what_is_in_memory_follows() {
    let bench = Bench::new("known", 128 << 20);
    let above = bench.create("known/p");
    let below = bench.create("known/p/c");
    file(&below, 6, 1).expect("file");
    bench.sound("writing");
    let quota = Value::Number(bench.stat("known/p").used);
    bench
        .dsl
        .set_properties("known/p", &[("quota".to_owned(), quota)], SetAs::Local)
        .expect("quota");
    // A handle that nobody owns, with an open object set.
    let os = below.objset().expect("objset");
    let mark = |batch: &Batch<'_>| {
        let entry = batch.entry("known/p").expect("read").expect("there");
        let shown = batch.property(&entry, "a:b").expect("read");
        shown.map(|(text, _)| text.into_owned())
    };
    bench
        .dsl
        .batch(true, move |batch| {
            assert_eq!(mark(batch), None);
            for operation in [
                Operation::SetProperty("known/p".into(), "a:b".into(), "v".into()),
                Operation::Destroy("known/p/c".into(), false),
            ] {
                let outcome = batch.run(&operation, true).expect("run");
                assert_eq!(outcome.errno, 0, "{operation:?}");
            }
            assert_eq!(mark(batch).as_deref(), Some("v"));
            batch.undo();
        })
        .expect("a batch");
    let kept = bench.dsl.batch(false, move |batch| mark(batch));
    assert_eq!(kept.expect("a batch"), None, "a property is remembered");
    let again = bench.dsl.dataset("known/p/c").expect("there");
    assert!(Arc::ptr_eq(&below, &again), "a second handle");
    let admitted = above.begin(Estimate::default()).map(drop);
    assert!(
        matches!(&admitted, Err(e) if e.is(zuse_base::Errno::DQUOT)),
        "beyond the quota: {admitted:?}"
    );
    bench
        .dsl
        .set_properties(
            "known/p",
            &[("quota".to_owned(), Value::Number(0))],
            SetAs::Local,
        )
        .expect("no quota");
    // The dataset can be used as before.
    drop((os, again));
    file(&below, 1, 9).expect("file");
    bench.sound("going on");
    drop((above, below));
    bench.close();
}

#[test]
fn what_is_open_follows() {
    let bench = Bench::new("open", 128 << 20);
    let (back, other) = (bench.create("open/back"), bench.create("open/other"));
    file(&back, 2, 1).expect("file");
    bench.sound("writing");
    bench.snap("open/back@s");
    file(&back, 4, 2).expect("file");
    bench.sound("writing more");
    let set = |name: &str, property: &str, value: u64| {
        let values = [(property.to_owned(), Value::Number(value))];
        let done = bench.dsl.set_properties(name, &values, SetAs::Local);
        done.expect(property);
    };
    set("open/back", "refquota", bench.stat("open/back").referenced);
    set("open/other", "compression", 15);
    let os = other.objset().expect("objset");
    let before = format!("{:?}", os.settings());
    bench
        .dsl
        .batch(true, |batch| {
            for operation in [
                Operation::Rollback("open/back".into()),
                Operation::Inherit("open/other".into(), "compression".into()),
            ] {
                let outcome = batch.run(&operation, true).expect("run");
                assert_eq!(outcome.errno, 0, "{operation:?}");
            }
            batch.undo();
        })
        .expect("a batch");
    assert_eq!(format!("{:?}", os.settings()), before, "its settings");
    let admitted = back.begin(Estimate::default()).map(drop);
    assert!(
        matches!(&admitted, Err(e) if e.is(zuse_base::Errno::DQUOT)),
        "beyond the reference quota: {admitted:?}"
    );
    drop((os, back, other));
    bench.close();
}

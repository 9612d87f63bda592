//! Long, random and concurrent changes.

use std::sync::Arc;

use zuse_base::{Entropy, Errno, ObjectId, SeededPrng, Span};
use zuse_device::{FaultyDevice, Op, Rule};
use zuse_dsl::property::{SetAs, Value};
use zuse_dsl::{CreateOptions, Dataset, Estimate, check_accounting};
use zuse_vdev::PoolState;

use crate::bench::*;

#[test]
fn freeing_in_small_steps_goes_on_after_reopening() {
    let mut bench = Bench::new("slow", 256 << 20);
    let ds = bench.create("slow/f");
    let mut objects = Vec::new();
    for i in 0..40 {
        objects.push(file(&ds, 1 + u64::from(i) % 5, i).expect("file"));
    }
    for (i, snap) in ["a", "b", "c", "d"].iter().enumerate() {
        bench.snap(&format!("slow/f@{snap}"));
        for object in objects.iter().skip(i).step_by(3) {
            overwrite(&ds, *object, 0, i as u8);
        }
    }
    drop(ds);
    bench.sound("writing");
    bench.dsl.set_frees_per_txg(7);
    bench
        .dsl
        .destroy("slow/f@b%c", false, false)
        .expect("destroy snapshots");
    bench.sound("destroying snapshots");
    bench
        .dsl
        .destroy("slow/f", true, false)
        .expect("destroy all");
    let mut steps = 0;
    loop {
        let free_before = bench.pool.space().allocated;
        bench.sound("a step of freeing");
        bench.dsl.set_frees_per_txg(7);
        bench.pool.note_frees();
        steps += 1;
        if steps % 5 == 0 {
            bench.pool.close(PoolState::Exported).expect("close");
            if let (10, Ok(dir)) = (steps, std::env::var("ZUSE_KEEP_POOL")) {
                std::fs::copy(format!("{dir}/slow.img"), format!("{dir}/slow-paused.img"))
                    .expect("copy");
            }
            bench = bench.open_again();
            bench.dsl.set_frees_per_txg(7);
        }
        assert!(
            steps < 300,
            "freeing does not end, {free_before} bytes are left"
        );
        if steps > 20 && bench.pool.features().refcount("com.delphix:async_destroy") == 0 {
            break;
        }
    }
    assert!(bench.dsl.stuck().is_none());
    bench.sync_all();
    assert!(
        bench.pool.space().allocated < 4 << 20,
        "{:?}",
        bench.pool.space()
    );
    bench.close();
}

#[test]
fn the_checker_sees_a_wrong_counter() {
    let bench = Bench::new("wrong", 128 << 20);
    let ds = bench.create("wrong/f");
    file(&ds, 2, 1).expect("file");
    bench.sound("writing");
    let object = ds.object();
    bench
        .pool
        .sync_task(
            |_| Ok(()),
            move |ctx| {
                ctx.pool
                    .mos()
                    .dnode(object)?
                    .edit_bonus(ctx.tx, |b| b[72] ^= 1)
            },
        )
        .expect("task");
    assert!(!check_accounting(&bench.dsl).is_empty());
}

#[test]
fn writers_go_on_while_snapshots_come_and_go() {
    let bench = Bench::new("busy", 256 << 20);
    let stop = std::sync::atomic::AtomicBool::new(false);
    /// Ends the writers, also when a step fails.
    struct Stop<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let heads: Vec<Arc<Dataset>> = (0..3)
        .map(|i| bench.create(&format!("busy/w{i}")))
        .collect();
    std::thread::scope(|scope| {
        for (i, ds) in heads.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || write_on(ds, i as u8, stop));
        }
        let _stop = Stop(&stop);
        for round in 0..25 {
            bench
                .dsl
                .snapshot(&[format!("busy@r{round}")], true, &[])
                .expect("snapshot");
            let names = bench.dsl.tree("busy").expect("tree");
            assert!(names.len() >= 4);
            if round % 3 == 2 {
                bench
                    .dsl
                    .destroy(&format!("busy@r{}", round - 1), true, true)
                    .expect("destroy");
            }
            if round % 5 == 4 {
                bench
                    .dsl
                    .clone_snapshot(&format!("busy/w1@r{round}"), &format!("busy/c{round}"), &[])
                    .expect("clone");
            }
            if round % 10 == 9 {
                bench
                    .dsl
                    .promote(&format!("busy/c{round}"))
                    .expect("promote");
            }
            if round == 12 {
                bench
                    .dsl
                    .rename("busy/w2", "busy/w0/moved", false)
                    .expect("rename");
            }
        }
    });
    drop(heads);
    bench.close();
}

/// Creates files and then keeps writing to them.
fn write_on(ds: &Arc<Dataset>, first: u8, stop: &std::sync::atomic::AtomicBool) {
    let os = ds.objset().expect("objset");
    let objects: Vec<ObjectId> = (0..4).map(|n| file(ds, 2, n).expect("file")).collect();
    let mut n = first;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        n = n.wrapping_add(1);
        let tx = match ds.begin(Estimate {
            write_bytes: BLOCK as u64,
            frees: false,
        }) {
            Ok(tx) => tx,
            Err(e) if e.is(Errno::NOSPC) => continue,
            Err(e) => panic!("{e}"),
        };
        let dnode = os.dnode(objects[usize::from(n) % 4]).expect("dnode");
        dnode
            .write_block(&tx, u64::from(n % 3), block(n))
            .expect("write");
        drop(tx);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// One step of [`churn`].
struct Step<'a> {
    bench: &'a Bench,
    rng: &'a SeededPrng,
    name: &'a str,
    heads: &'a [String],
    head: &'a str,
    serial: u32,
}

impl Step<'_> {
    /// Makes a random change. Returns its name and whether it was possible; nothing if there is
    /// nothing to change.
    fn change(&self, roll: u64, snap: Option<String>) -> Option<(String, zuse_base::Result<()>)> {
        let Self {
            rng,
            name,
            heads,
            head,
            serial,
            ..
        } = *self;
        let dsl = &self.bench.dsl;
        Some(match (roll, snap) {
            (0..=1, _) if heads.len() < 12 => {
                let new = format!("{head}/n{serial}");
                let made = dsl.create_dataset(&new, CreateOptions::filesystem(fill()));
                (format!("create {new}"), made.map(|_| ()))
            }
            (2..=4, _) => {
                let new = format!("{head}@{serial}");
                let what = format!("snapshot {new}");
                (what, dsl.snapshot(&[new], rng.chance(1, 4), &[]))
            }
            (5..=7, Some(snap)) => {
                let done = dsl.destroy(&snap, false, rng.chance(1, 3));
                (format!("destroy {snap}"), done)
            }
            (8, _) if head != name => {
                let done = dsl.destroy(head, true, false);
                (format!("destroy -r {head}"), done)
            }
            (9, Some(snap)) => {
                let done = dsl.rollback(&snap, rng.chance(1, 2));
                (format!("rollback {snap}"), done)
            }
            (10..=11, Some(snap)) if heads.len() < 12 => {
                let new = format!("{head}/c{serial}");
                let made = dsl.clone_snapshot(&snap, &new, &[]).map(|_| ());
                (format!("clone {snap} {new}"), made)
            }
            (12, _) => (format!("promote {head}"), dsl.promote(head)),
            (13, _) => {
                let to = format!("{}/r{serial}", rng.pick(heads).expect("a head"));
                (format!("rename {head} {to}"), dsl.rename(head, &to, false))
            }
            (14, _) => self.set_limit(),
            (15, Some(snap)) => {
                let mark = format!("{}#{serial}", snap.split('@').next().expect("name"));
                let made = dsl.create_bookmark(&snap, &mark);
                (format!("bookmark {snap} {mark}"), made)
            }
            (16, _) => {
                let marks = dsl.bookmarks(head).expect("list");
                let mark = format!("{head}#{}", marks.first()?.0);
                (format!("destroy {mark}"), dsl.destroy_bookmark(&mark))
            }
            _ => (format!("write {head}"), self.scribble()),
        })
    }

    fn set_limit(&self) -> (String, zuse_base::Result<()>) {
        let limits = ["refreservation", "reservation", "quota"];
        let property = *self.rng.pick(&limits).expect("one");
        let value = Value::Number(self.rng.below(4) << 20);
        let what = format!("set {property} {value:?} {}", self.head);
        let pair = [(property.into(), value)];
        (
            what,
            self.bench
                .dsl
                .set_properties(self.head, &pair, SetAs::Local),
        )
    }

    /// Makes, overwrites and frees objects.
    fn scribble(&self) -> zuse_base::Result<()> {
        let ds = self.bench.dsl.dataset(self.head).expect("head");
        let os = ds.objset().expect("objset");
        let mut changed = Ok(());
        for _ in 0..self.rng.range(1..4) {
            let last = os.next_object(ObjectId(1)).expect("next");
            match last {
                Some(object) if self.rng.chance(1, 2) => {
                    overwrite_if_room(&ds, object, self.rng.below(3), self.serial as u8)
                }
                Some(object) if self.rng.chance(1, 4) => {
                    let tx = ds
                        .begin(Estimate {
                            write_bytes: 0,
                            frees: true,
                        })
                        .expect("begin");
                    os.free(&tx, object).expect("free");
                }
                _ => changed = file(&ds, self.rng.range(1..4), self.serial as u8).map(|_| ()),
            }
        }
        changed
    }
}

/// Any mix of changes keeps the sums of space right.
fn churn(name: &str, seed: u64, steps: u32) {
    let rng = SeededPrng::new(seed);
    let mut bench = Bench::new(name, 256 << 20);
    let mut log = Vec::new();
    for step in 0..steps {
        let heads: Vec<String> = bench
            .dsl
            .tree(name)
            .expect("tree")
            .into_iter()
            .map(|e| e.name)
            .collect();
        let snaps: Vec<String> = heads
            .iter()
            .flat_map(|h| bench.dsl.snapshots(h).expect("list"))
            .map(|e| e.name)
            .collect();
        let head = rng.pick(&heads).cloned().expect("a head");
        let snap = rng.pick(&snaps).cloned();
        let roll = rng.below(20);
        let one = Step {
            bench: &bench,
            rng: &rng,
            name,
            heads: &heads,
            head: &head,
            serial: step + 1,
        };
        let (what, done) = if roll == 17 {
            bench = bench.reopen(true);
            ("reopen".to_owned(), Ok(()))
        } else if let Some(change) = one.change(roll, snap) {
            change
        } else {
            continue;
        };
        let refused = matches!(&done, Err(zuse_base::Error::Refused { .. }));
        assert!(
            done.is_ok() || refused,
            "seed {seed}, step {step}, {what}: {done:?}\n{log:#?}"
        );
        log.push(format!(
            "{what}: {}",
            if refused { "refused" } else { "done" }
        ));
        bench.pool.sync_now().expect("sync");
        let flaws = check_accounting(&bench.dsl);
        assert!(
            flaws.is_empty(),
            "seed {seed}, step {step}: {flaws:#?}\n{log:#?}"
        );
    }
    bench.close();
}

fn overwrite_if_room(ds: &Arc<Dataset>, object: ObjectId, blkid: u64, seed: u8) {
    let os = ds.objset().expect("objset");
    if let Ok(tx) = ds.begin(Estimate {
        write_bytes: BLOCK as u64,
        frees: false,
    }) {
        os.dnode(object)
            .expect("dnode")
            .write_block(&tx, blkid, block(seed))
            .expect("write");
    }
}

#[test]
fn any_mix_of_changes_keeps_the_books() {
    let steps = std::env::var("ZUSE_CHURN")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(60);
    for seed in 1..=6 {
        churn(&format!("churn{seed}"), seed, steps);
    }
}

#[test]
fn a_damaged_tree_is_freed_once_as_far_as_it_can_be_read() {
    let bench = Bench::new("hurt", 256 << 20);
    let ds = bench.create("hurt/f");
    let first = file(&ds, 3, 1).expect("file");
    let second = file(&ds, 5, 9).expect("file");
    assert!(first < second, "the walk goes by number");
    bench.sync_all();
    let dnode = ds.objset().expect("objset").dnode(second).expect("dnode");
    let indirect = dnode.block_pointers()[0];
    assert_eq!(indirect.level(), 1);
    drop((dnode, ds));
    let bench = bench.reopen(true);
    for dva in indirect.dvas() {
        bench
            .device
            .write_at(&[0xaa; 512], dva.offset() + (4 << 20))
            .expect("rot");
    }
    let before = bench.pool.space().allocated;
    bench
        .dsl
        .destroy("hurt/f", false, false)
        .expect("destroy a damaged filesystem");
    bench.sync_all();
    let refcount = |b: &Bench| b.pool.features().refcount("com.delphix:async_destroy");
    assert_eq!(refcount(&bench), 0, "the queue is done");
    assert!(before - bench.pool.space().allocated >= 3 * BLOCK as u64);
    // Nothing of it is freed again when the space holds other data.
    let other = bench.create("hurt/g");
    file(&other, 8, 3).expect("file");
    bench.sync_all();
    let used = bench.pool.space().allocated;
    drop(other);
    let bench = bench.reopen(true);
    bench.sync_all();
    assert!(bench.dsl.stuck().is_none());
    assert!(bench.pool.space().allocated >= used - (1 << 20));
    bench.pool.close(PoolState::Exported).expect("close");
}

#[test]
fn freeing_that_meets_an_unreadable_block_waits_until_it_can_be_read() {
    let mut bench = Bench::new("deaf", 256 << 20);
    let ds = bench.create("deaf/f");
    file(&ds, 3, 1).expect("file");
    let second = file(&ds, 5, 9).expect("file");
    let third = file(&ds, 3, 40).expect("file");
    assert!(second < third, "the walk goes by number");
    bench.sync_all();
    let dnode = ds.objset().expect("objset").dnode(second).expect("dnode");
    let indirect = dnode.block_pointers()[0];
    assert_eq!(indirect.level(), 1);
    drop((dnode, ds));
    let deaf = Arc::new(FaultyDevice::new(bench.device.clone()));
    bench.device = deaf.clone();
    let bench = bench.reopen(true);
    for dva in indirect.dvas() {
        let at = Span::new(dva.offset() + (4 << 20), dva.asize());
        deaf.add(Rule::broken(Op::Read).within(at));
    }
    let before = bench.pool.space().allocated;
    bench
        .dsl
        .destroy("deaf/f", false, false)
        .expect("destroy a filesystem that cannot be read");
    bench.sync_all();
    assert!(bench.dsl.stuck().is_some(), "it says so");
    let refcount = |b: &Bench| b.pool.features().refcount("com.delphix:async_destroy");
    assert_eq!(refcount(&bench), 1, "the queue stands");
    let freed = before - bench.pool.space().allocated;
    assert!(
        (2 * BLOCK as u64..8 * BLOCK as u64).contains(&freed),
        "{freed}"
    );
    // The pool goes on, and so does the next open.
    let other = bench.create("deaf/g");
    file(&other, 8, 3).expect("file");
    drop(other);
    bench.sound("writing beside a queue that stands");
    let bench = bench.reopen(true);
    bench.sync_all();
    assert_eq!(refcount(&bench), 1);
    deaf.clear();
    let bench = bench.reopen(true);
    bench.sync_all();
    assert!(bench.dsl.stuck().is_none());
    assert_eq!(refcount(&bench), 0, "the queue is done");
    bench.close();
}

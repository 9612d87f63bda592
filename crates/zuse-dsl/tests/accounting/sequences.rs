//! Fixed sequences of changes.

use zuse_base::Errno;
use zuse_dsl::Estimate;
use zuse_dsl::property::{SetAs, Value};
use zuse_format::{BlockPointer, BpProps, Dva};
use zuse_vdev::PoolState;

use crate::bench::*;

#[test]
fn a_new_pool_has_its_datasets_and_survives_reopening() {
    let bench = Bench::new("fresh", 128 << 20);
    bench.sound("creation");
    bench.create("fresh/a");
    bench.create("fresh/a/b");
    bench.sound("creating");
    let bench = bench.reopen(true);
    bench.sound("reopening");
    let names: Vec<String> = bench
        .dsl
        .tree("fresh")
        .expect("tree")
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(names, ["fresh", "fresh/a", "fresh/a/b"]);
    let bench = bench.reopen(false);
    assert_eq!(
        bench.stat("fresh/a").guid,
        bench
            .dsl
            .dataset("fresh/a")
            .expect("a")
            .guid()
            .expect("guid")
    );
    assert!(
        bench
            .dsl
            .snapshot(&["fresh@s".into()], false, &[])
            .expect_err("read-only")
            .is(Errno::ROFS)
    );
    bench.pool.close(PoolState::Active).expect("close");
}

#[test]
fn deadlists_and_unique_follow_the_table_of_the_format_notes() {
    let bench = Bench::new("dead", 128 << 20);
    let ds = bench.create("dead/f");
    let object = file(&ds, 4, 1).expect("file");
    bench.sound("writing");
    let start = bench.stat("dead/f");
    assert_eq!(start.used, start.used_by_dataset);
    assert_eq!(start.unique, start.referenced);
    bench.snap("dead/f@s1");
    bench.sound("s1");
    assert_eq!(bench.stat("dead/f").unique, 0);
    overwrite(&ds, object, 0, 50);
    bench.sound("overwrite 0");
    let now = bench.stat("dead/f");
    let step = now.used_by_snapshots;
    assert_eq!((now.referenced, now.unique), (start.referenced, step));
    assert_eq!(bench.stat("dead/f@s1").used, step);
    assert!(step >= BLOCK as u64);
    bench.snap("dead/f@s2");
    overwrite(&ds, object, 1, 51);
    bench.sound("overwrite 1");
    assert_eq!(bench.stat("dead/f").used_by_snapshots, 2 * step);
    assert_eq!(bench.stat("dead/f@s2").used, step - BLOCK as u64);
    bench.snap("dead/f@s3");
    overwrite(&ds, object, 1, 52);
    bench.sound("overwrite 1 again");
    assert_eq!(bench.stat("dead/f").used_by_snapshots, 3 * step);
    assert_eq!(bench.stat("dead/f@s3").used, step);
    bench
        .dsl
        .destroy("dead/f@s2", false, false)
        .expect("destroy");
    bench.sound("destroying s2");
    assert_eq!(
        bench.stat("dead/f").used_by_snapshots,
        3 * step - (step - BLOCK as u64)
    );
    assert_eq!(bench.stat("dead/f@s1").used, step + BLOCK as u64);
    let bench = bench.reopen(true);
    bench.sound("reopening");
    bench
        .dsl
        .destroy("dead/f@s1%s3", false, false)
        .expect("destroy all");
    bench.sound("destroying all snapshots");
    assert_eq!(bench.stat("dead/f").used_by_snapshots, 0);
    bench
        .dsl
        .destroy("dead/f", false, false)
        .expect("destroy the head");
    bench.close();
}

#[test]
fn what_is_written_follows_the_deadlist_though_listings_keep_its_totals() {
    let bench = Bench::new("kept", 128 << 20);
    let ds = bench.create("kept/f");
    let object = file(&ds, 4, 1).expect("file");
    bench.snap("kept/f@s1");
    // Queried at each step, so that a stale value from the step before would show.
    let agree = |step: &str| {
        bench.sound(step);
        let stat = bench.stat("kept/f");
        assert_eq!(stat.written, stat.unique, "{step}");
        stat.written
    };
    assert_eq!(agree("s1"), 0);
    overwrite(&ds, object, 0, 50);
    let one = agree("overwriting one block");
    overwrite(&ds, object, 1, 51);
    assert!(agree("overwriting two blocks") > one && one > BLOCK as u64);
    bench.snap("kept/f@s2");
    assert_eq!(agree("s2"), 0);
    overwrite(&ds, object, 2, 52);
    let one = agree("overwriting the third");
    bench.dsl.destroy("kept/f@s2", false, false).expect("s2");
    assert!(agree("destroying s2") > one);
    bench.close();
}

#[test]
fn reservations_follow_the_table_of_the_format_notes() {
    let bench = Bench::new("rsrv", 256 << 20);
    let a = bench.create("rsrv/a");
    let b = bench.create("rsrv/a/b");
    let object = file(&b, 4, 1).expect("file");
    bench.sound("writing");
    let is = |name: &str, want: [u64; 5]| assert_eq!(parts(&bench.stat(name)), want);
    let counts = |of_filesystems: &str, of_snapshots: &str| {
        let (a, b) = (bench.stat(of_filesystems), bench.stat(of_snapshots));
        (a.filesystem_count, b.snapshot_count)
    };
    let own = bench.stat("rsrv/a").used_by_dataset;
    let head = bench.stat("rsrv/a/b").used;
    let set = |name: &str, property: &str, value: u64| {
        bench.dsl.set_properties(
            name,
            &[(property.to_owned(), Value::Number(value))],
            SetAs::Local,
        )
    };
    set("rsrv/a/b", "reservation", 1 << 20).expect("reservation");
    bench.sound("reservation");
    is("rsrv/a", [own + (1 << 20), own, 0, 1 << 20, 0]);
    set("rsrv/a/b", "refreservation", 2 << 20).expect("refreservation");
    bench.sound("refreservation");
    is("rsrv/a/b", [2 << 20, head, 0, 0, (2 << 20) - head]);
    assert_eq!(bench.stat("rsrv/a").used, own + (2 << 20));
    bench.snap("rsrv/a/b@s1");
    bench.sound("snapshot");
    is("rsrv/a/b", [head + (2 << 20), head, 0, 0, 2 << 20]);
    overwrite(&b, object, 0, 77);
    bench.sound("overwrite");
    let step = bench.stat("rsrv/a/b").used_by_snapshots;
    is(
        "rsrv/a/b",
        [head + (2 << 20), head, step, 0, (2 << 20) - step],
    );
    bench.dsl.rollback("rsrv/a/b@s1", false).expect("rollback");
    bench.sound("rollback");
    is("rsrv/a/b", [head + (2 << 20), head, 0, 0, 2 << 20]);
    set("rsrv/a", "filesystem_limit", 10).expect("limit");
    assert_eq!(counts("rsrv/a", "rsrv/a"), (Some(1), Some(1)));
    bench.snap("rsrv/a/b@s2");
    bench.create("rsrv/d");
    bench
        .dsl
        .rename("rsrv/a/b", "rsrv/d/c", false)
        .expect("rename");
    bench.sound("rename");
    assert_eq!(bench.stat("rsrv/a").used, own);
    assert_eq!(counts("rsrv/a", "rsrv/d/c"), (Some(0), Some(2)));
    assert_eq!(b.name().expect("name"), "rsrv/d/c");
    assert!(
        set("rsrv/a", "quota", 1)
            .expect_err("quota")
            .is(Errno::NOSPC)
    );
    set("rsrv/a", "quota", 8 << 20).expect("quota");
    let full = (0..200)
        .find_map(|i| file(&a, 4, i).err())
        .expect("the quota stops writing");
    assert!(full.is(Errno::DQUOT), "{full}");
    assert!(bench.stat("rsrv/a").used <= 16 << 20);
    bench.close();
}

#[test]
fn a_rolled_back_filesystem_has_its_old_content() {
    let bench = Bench::new("back", 128 << 20);
    let ds = bench.create("back/f");
    let object = file(&ds, 2, 9).expect("file");
    bench.snap("back/f@one");
    overwrite(&ds, object, 0, 10);
    bench.snap("back/f@two");
    overwrite(&ds, object, 1, 11);
    let extra = file(&ds, 3, 12).expect("file");
    assert!(
        bench
            .dsl
            .rollback("back/f@one", false)
            .expect_err("newer")
            .is(Errno::EXIST)
    );
    bench.dsl.rollback("back/f@one", true).expect("rollback");
    bench.sound("rollback");
    let os = ds.objset().expect("objset");
    let mut bytes = vec![0; BLOCK];
    os.dnode(object)
        .expect("file")
        .read_at(0, &mut bytes)
        .expect("read");
    assert!(bytes == block(9));
    assert!(os.dnode(extra).expect_err("gone").is(Errno::NOENT));
    overwrite(&ds, object, 1, 99);
    bench.sound("writing after the rollback");
    let bench = bench.reopen(true);
    bench.sound("reopening");
    bench.close();
}

#[test]
fn clones_keep_their_origin_and_go_before_it() {
    let bench = Bench::new("clones", 128 << 20);
    let refuses = |name: &str, recursive, why: &str, errno| {
        let done = bench.dsl.destroy(name, recursive, false);
        assert!(done.expect_err(why).is(errno));
    };
    let ds = bench.create("clones/f");
    let object = file(&ds, 8, 1).expect("file");
    bench.snap("clones/f@s1");
    overwrite(&ds, object, 0, 100);
    bench.snap("clones/f@s2");
    overwrite(&ds, object, 1, 101);
    let clone = bench
        .dsl
        .clone_snapshot("clones/f@s2", "clones/c", &[])
        .expect("clone");
    bench.sound("cloning");
    assert_eq!(bench.stat("clones/c").used, 0);
    assert_eq!(
        bench.stat("clones/c").origin.as_deref(),
        Some("clones/f@s2")
    );
    overwrite(&clone, object, 3, 102);
    bench.sound("writing to the clone");
    bench.snap("clones/c@x");
    overwrite(&clone, object, 3, 103);
    overwrite(&clone, object, 4, 103);
    bench.snap("clones/f@s3");
    bench.sound("snapshot of the clone");
    refuses("clones/f@s2", false, "has a clone", Errno::EXIST);
    refuses("clones/f", true, "has a clone", Errno::EXIST);
    bench
        .dsl
        .destroy("clones/f@s1", false, false)
        .expect("an older snapshot");
    bench.sound("destroying a snapshot below the branch");
    bench
        .dsl
        .destroy("clones/f@s2", false, true)
        .expect("deferred");
    bench
        .dsl
        .hold(&["clones/c@x".into()], "keep")
        .expect("hold");
    refuses("clones/c@x", false, "held", Errno::BUSY);
    bench
        .dsl
        .release(&["clones/c@x".into()], "keep")
        .expect("release");
    bench
        .dsl
        .destroy("clones/c", true, false)
        .expect("destroy the clone");
    bench.sound("destroying the clone");
    assert!(
        bench
            .dsl
            .dataset("clones/f@s2")
            .expect_err("went with its clone")
            .is(Errno::NOENT)
    );
    bench
        .dsl
        .destroy("clones/f", true, false)
        .expect("destroy all");
    bench.close();
}

#[test]
fn a_range_of_snapshots_goes_in_one_txg_below_clones_of_clones() {
    let bench = Bench::new("range", 128 << 20);
    let ds = bench.create("range/f");
    let object = file(&ds, 6, 1).expect("file");
    for snap in 1..=6u8 {
        bench.snap(&format!("range/f@s{snap}"));
        overwrite(&ds, object, u64::from(snap) % 6, 100 + snap);
    }
    // Both descend from snapshots that are newer than the destroyed ones, one of them indirectly.
    let c = bench
        .dsl
        .clone_snapshot("range/f@s5", "range/c", &[])
        .expect("clone");
    overwrite(&c, object, 2, 50);
    bench.snap("range/c@x");
    let d = bench
        .dsl
        .clone_snapshot("range/c@x", "range/d", &[])
        .expect("clone of the clone");
    overwrite(&d, object, 3, 51);
    bench.sound("cloning");
    let before = bench.stat("range/f").used_by_snapshots;
    bench
        .dsl
        .destroy("range/f@s1%s4", false, false)
        .expect("destroy");
    bench.sound("destroying the range");
    assert!(bench.stat("range/f").used_by_snapshots < before);
    for (ds, blkid) in [(&ds, 5), (&c, 4), (&d, 0)] {
        overwrite(ds, object, blkid, 60);
    }
    bench.sound("overwriting what the range had held");
    let bench = bench.reopen(true);
    bench
        .dsl
        .destroy("range/d", true, false)
        .expect("destroy the clone of the clone");
    bench
        .dsl
        .destroy("range/c", true, false)
        .expect("destroy the clone");
    bench
        .dsl
        .destroy("range/f@%", false, false)
        .expect("destroy the rest");
    bench.sound("destroying the rest");
    assert_eq!(bench.stat("range/f").used_by_snapshots, 0);
    bench.close();
}

#[test]
fn a_full_pool_can_be_emptied_and_filled_again() {
    let bench = Bench::new("full", 64 << 20);
    let ds = bench.create("full/f");
    for round in 0..3 {
        let mut files = Vec::new();
        let error = loop {
            match file(&ds, 8, round) {
                Ok(object) => files.push(object),
                Err(e) => break e,
            }
        };
        assert!(error.is(Errno::NOSPC), "{error}");
        assert!(files.len() > 10, "round {round}: {} files", files.len());
        bench.sound("filling");
        for object in files {
            let os = ds.objset().expect("objset");
            let tx = ds
                .begin(Estimate {
                    write_bytes: 0,
                    frees: true,
                })
                .expect("a remove is admitted");
            os.free(&tx, object).expect("free");
        }
        bench.sync_all();
    }
    bench.close();
}

#[test]
fn recursive_snapshots_are_of_one_txg_and_go_together() {
    let bench = Bench::new("many", 256 << 20);
    for name in ["many/a", "many/a/b", "many/a/b/c", "many/z"] {
        let ds = bench.create(name);
        file(&ds, 1, 3).expect("file");
    }
    for round in 0..4u8 {
        bench
            .dsl
            .snapshot(&[format!("many@r{round}")], true, &[])
            .expect("snapshot");
        for name in ["many/a", "many/a/b/c"] {
            file(&bench.dsl.dataset(name).expect(name), 1, round).expect("file");
        }
        bench.sound("a round");
    }
    let txgs: Vec<u64> = ["many@r2", "many/a@r2", "many/a/b/c@r2", "many/z@r2"]
        .iter()
        .map(|n| bench.stat(n).create_txg)
        .collect();
    assert!(txgs.windows(2).all(|w| w[0] == w[1]), "{txgs:?}");
    bench
        .dsl
        .rename("many@r1", "many@renamed", true)
        .expect("rename");
    bench
        .dsl
        .destroy("many@r2,renamed", true, false)
        .expect("destroy");
    bench.sound("destroying two rounds");
    let left: Vec<String> = bench
        .dsl
        .snapshots("many/a")
        .expect("list")
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(left, ["many/a@r0", "many/a@r3"]);
    bench
        .dsl
        .destroy("many/a", true, false)
        .expect("destroy a tree");
    bench.close();
}

#[test]
fn properties_are_inherited_overridden_and_reverted() {
    let bench = Bench::new("props", 128 << 20);
    bench.create("props/a");
    let b = bench.create("props/a/b");
    use zuse_dsl::property::Source;
    let get = |name: &str, property: &str| {
        bench
            .dsl
            .property(&bench.dsl.dataset(name).expect(name), property)
            .expect(property)
    };
    let set = |name: &str, property: &str, value: Value, how| {
        bench
            .dsl
            .set_properties(name, &[(property.to_owned(), value)], how)
    };
    let is = |name: &str, property: &str, value: &str, source| {
        assert_eq!(get(name, property), Some((value.into(), source)));
    };
    let local = |name: &str, property: &str, value| set(name, property, value, SetAs::Local);
    let inherit =
        |name: &str, property: &str, received| bench.dsl.inherit_property(name, property, received);
    let invalid = |name: &str, property: &str, n: u64, why: &str| {
        let done = local(name, property, Value::Number(n));
        assert!(done.expect_err(why).is(Errno::INVAL));
    };
    let above = || Source::Inherited("props/a".into());
    is("props/a/b", "atime", "on", Source::Default);
    local("props/a", "atime", Value::Number(0)).expect("set");
    is("props/a/b", "atime", "off", above());
    local("props/a/b", "org.test:x", Value::Text("hello".into())).expect("user property");
    is("props/a/b", "org.test:x", "hello", Source::Local);
    local("props/a", "redundant_metadata", Value::Number(2)).expect("iuv");
    is("props/a/b", "redundant_metadata", "some", above());
    local("props/a/b", "$hasrecvd", Value::Number(0)).expect("mark");
    set("props/a/b", "atime", Value::Number(1), SetAs::Received).expect("receive");
    is("props/a/b", "atime", "on", Source::Received);
    inherit("props/a/b", "atime", false).expect("inherit");
    is("props/a/b", "atime", "off", above());
    inherit("props/a/b", "atime", true).expect("revert");
    is("props/a/b", "atime", "on", Source::Received);
    local("props/a", "mountpoint", Value::Text("/mnt".into())).expect("mountpoint");
    assert_eq!(
        get("props/a/b", "mountpoint").map(|v| v.0).as_deref(),
        Some("/mnt/b")
    );
    invalid("props/a", "recordsize", 1000, "odd");
    invalid("props/a", "used", 1, "computed");
    local("props/a", "recordsize", Value::Number(1 << 20)).expect("recordsize");
    assert_eq!(b.objset().expect("objset").settings().record_size, 1 << 20);
    bench.snap("props/a/b@s");
    invalid("props/a/b@s", "atime", 0, "snapshot");
    local("props/a/b@s", "org.test:x", Value::Text("snap".into()))
        .expect("user property of a snapshot");
    is("props/a/b@s", "org.test:x", "snap", Source::Local);
    inherit("props/a/b@s", "org.test:x", false).expect("inherit");
    assert!(
        matches!(get("props/a/b@s", "org.test:x"), Some((v, Source::Inherited(_))) if v == "hello")
    );
    assert!(bench.dsl.history().expect("history").len() > 5);
    bench.close();
}

#[test]
fn a_promoted_clone_owns_the_shared_snapshots() {
    let bench = Bench::new("promo", 128 << 20);
    let a = bench.create("promo/a");
    let object = file(&a, 4, 1).expect("file");
    for (snap, blkid) in [("s1", 0), ("s2", 1), ("s3", 2)] {
        bench.snap(&format!("promo/a@{snap}"));
        overwrite(&a, object, blkid, 60 + blkid as u8);
    }
    bench
        .dsl
        .create_bookmark("promo/a@s1", "promo/a#b1")
        .expect("bookmark");
    bench
        .dsl
        .create_bookmark("promo/a@s2", "promo/a#b2")
        .expect("bookmark");
    let c = bench
        .dsl
        .clone_snapshot("promo/a@s2", "promo/c", &[])
        .expect("clone");
    bench
        .dsl
        .clone_snapshot("promo/a@s1", "promo/other", &[])
        .expect("another clone");
    overwrite(&c, object, 0, 90);
    bench.snap("promo/c@c1");
    overwrite(&c, object, 3, 91);
    bench.sound("before");
    let whole = bench.stat("promo").used_by_children;
    bench.dsl.promote("promo/c").expect("promote");
    bench.sound("promote");
    // Apart from the deltas of the MOS, nothing was allocated or freed.
    assert!(bench.stat("promo").used_by_children.abs_diff(whole) < 1 << 20);
    let listed = bench.dsl.snapshots("promo/c").expect("list").into_iter();
    let names: Vec<String> = listed.map(|e| e.name).collect();
    assert_eq!(names, ["promo/c@s1", "promo/c@s2", "promo/c@c1"]);
    assert_eq!(bench.stat("promo/a").origin.as_deref(), Some("promo/c@s2"));
    assert_eq!(
        bench.stat("promo/other").origin.as_deref(),
        Some("promo/c@s1")
    );
    assert_eq!(bench.stat("promo/c").origin, None);
    let listed = bench
        .dsl
        .bookmarks("promo/c")
        .expect("bookmarks")
        .into_iter();
    let marks: Vec<String> = listed.map(|b| b.0).collect();
    assert_eq!(marks, ["b1", "b2"]);
    overwrite(&a, object, 1, 92);
    overwrite(&c, object, 1, 93);
    bench.sound("writing on both sides");
    assert!(
        bench
            .dsl
            .promote("promo/c")
            .expect_err("not a clone any more")
            .is(Errno::INVAL)
    );
    bench.dsl.promote("promo/a").expect("and back");
    bench.sound("promoting back");
    bench.dsl.destroy("promo/c", true, false).expect("destroy");
    bench.dsl.destroy_bookmark("promo/a#b1").expect("bookmark");
    bench.close();
}

#[test]
fn a_bookmark_counts_what_was_freed_since_its_snapshot() {
    let bench = Bench::new("marks", 128 << 20);
    let a = bench.create("marks/a");
    let object = file(&a, 4, 1).expect("file");
    bench.snap("marks/a@s1");
    overwrite(&a, object, 0, 50);
    bench.snap("marks/a@s2");
    overwrite(&a, object, 1, 51);
    bench.snap("marks/a@s3");
    overwrite(&a, object, 1, 52);
    bench.sound("writing");
    bench
        .dsl
        .create_bookmark("marks/a@s2", "marks/a#b2")
        .expect("bookmark");
    let mark = bench.dsl.bookmarks("marks/a").expect("list")[0].1;
    assert_eq!(mark.flags, 3);
    assert!(mark.freed_before_next[0] >= BLOCK as u64);
    bench
        .dsl
        .destroy("marks/a@s2", false, false)
        .expect("destroy");
    bench.sound("destroying the snapshot");
    let mark = bench.dsl.bookmarks("marks/a").expect("list")[0].1;
    assert_eq!(mark.flags, 1);
    bench
        .dsl
        .destroy("marks/a@s3", false, false)
        .expect("destroy");
    bench.sound("destroying the next one");
    bench.snap("marks/a@s4");
    bench.dsl.destroy_bookmark("marks/a#b2").expect("destroy");
    bench.sound("destroying the bookmark");
    bench.close();
}

#[test]
fn a_log_that_is_not_replayed_is_claimed_and_goes_with_its_dataset() {
    let bench = Bench::new("log", 128 << 20);
    let ds = bench.create("log/f");
    file(&ds, 3, 1).expect("file");
    // The log's block is in free space, with the birth of a txg that did not reach the disk.
    let offset = 96 << 20;
    let verifier = [5, 6, 7, 1];
    let birth = bench.pool.open_txg().0 + 20;
    let mut bp = BlockPointer::with_props(BpProps {
        lsize: 4096,
        psize: 4096,
        compression: 2,
        checksum: 9,
        object_type: 9,
        level: 0,
        dedup: false,
        crypt: false,
        order: zuse_base::ByteOrder::Little,
    });
    bp.set_dva(0, Dva::new(0, offset, 4096, false));
    bp.set_birth(birth, birth);
    bp.set_checksum(verifier);
    let mut header = [0; 192];
    bp.write_le(&mut header[16..144]);
    let tx = ds.begin(Estimate::default()).expect("begin");
    ds.objset().expect("objset").set_zil_header(&tx, header);
    drop((tx, ds));
    let bench = bench.reopen(true); // reserved, never written: nothing to claim
    let ds = bench.dsl.dataset("log/f").expect("dataset");
    assert!(!ds.needs_replay().expect("log"));
    drop(ds);
    let device = bench.device.clone();
    bench.pool.close(PoolState::Exported).expect("close");
    drop(bench);
    let block = log_of_one_removal(birth, verifier);
    device
        .write_at(&block, offset + (4 << 20))
        .expect("write the log");
    let read = Bench::try_open(device.clone(), false).expect("it can be read");
    let ds = read.dsl.dataset("log/f").expect("dataset");
    let mut seen = 0;
    ds.each_log_record(&mut |record| {
        seen += record.seq;
        Ok(())
    })
    .expect("records");
    assert_eq!(seen, 1);
    drop(ds);
    read.pool.close(PoolState::Active).expect("close");
    drop(read);
    let bench = Bench::try_open(device, true).expect("it can be written");
    let ds = bench.dsl.dataset("log/f").expect("dataset");
    assert!(ds.needs_replay().expect("log"));
    assert!(
        bench.pool.synced_txg().0 > birth,
        "no block is of the future"
    );
    drop(ds);
    // Nothing was replayed: the log waits on.
    let bench = bench.reopen(true);
    bench.dsl.destroy("log/f", false, false).expect("destroy");
    bench.sound("destroying the dataset");
    bench.close();
}

/// A block of a log with one record: the removal of a name.
fn log_of_one_removal(birth: u64, verifier: [u64; 4]) -> Vec<u8> {
    let mut block = vec![0; 4096];
    for (i, word) in [5u64, 6, 7, 2].iter().enumerate() {
        block[104 + i * 8..112 + i * 8].copy_from_slice(&word.to_le_bytes());
    }
    let record = 184..184 + 48;
    block[136..144].copy_from_slice(&(record.end as u64).to_le_bytes());
    for (at, word) in [(0, 5u64), (8, 48), (16, birth), (24, 1), (32, 34)] {
        block[184 + at..192 + at].copy_from_slice(&word.to_le_bytes());
    }
    block[184 + 40..184 + 43].copy_from_slice(b"bye");
    zuse_codec::seal_zil(&mut block, verifier).expect("seal");
    block
}

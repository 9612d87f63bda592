//! Streams of the golden pools are, byte for byte, those that OpenZFS made of the same snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use zuse::stream::{DumpOptions, ResumeToken, SendOptions, SendProgress, StreamWriter, dump};
use zuse::tools::Layers as _;
use zuse::{ReceiveRequest, SendRequest};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, golden_stream, open_whole};
use zuse_sim::manifests::{differences, expected, of_dataset, of_volume};

fn sent(
    pool: &std::sync::Arc<zuse::Pool>,
    to: &str,
    from: Option<&str>,
    options: SendOptions,
) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new());
    let send = pool.send(to, from, options).unwrap();
    send.run(&mut out, &SendProgress::default()).unwrap();
    let bytes = out.into_inner().unwrap();
    assert_eq!(send.exact_size().unwrap(), bytes.len() as u64, "{to}");
    bytes
}

/// Says where two streams part.
fn assert_same(name: &str, ours: &[u8], theirs: &[u8]) {
    if ours == theirs {
        return;
    }
    let text = |bytes: &[u8]| {
        let mut out = Vec::new();
        let _ = dump(
            bytes,
            &DumpOptions {
                verbose: 2,
                ..DumpOptions::default()
            },
            &mut out,
        );
        String::from_utf8(out).unwrap()
    };
    let (a, b) = (text(ours), text(theirs));
    for (i, (x, y)) in a.lines().zip(b.lines()).enumerate() {
        assert_eq!(x, y, "{name}: line {i} of the dump");
    }
    panic!("{name}: the streams differ, their dumps do not");
}

#[test]
fn sent_streams_of_a_golden_pool_are_those_of_openzfs() {
    let golden = Golden::load("dsl");
    let pool = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &zuse::PoolAccess::default(),
    )
    .unwrap();
    let plain = SendOptions::default();
    let rich = SendOptions {
        large_blocks: true,
        embed: true,
        compressed: true,
        ..plain
    };
    for (name, to, from, options) in [
        ("full", "dsl/clone3@s1", None, plain),
        ("incr", "dsl/home@s5", Some("@s4"), plain),
        ("from-bookmark", "dsl/home@s5", Some("#b4"), plain),
        ("compressed-large", "dsl/home@s5", None, rich),
    ] {
        let theirs = golden_stream("dsl", name);
        assert_same(name, &sent(&pool, to, from, options), &theirs);
    }
    pool.close().unwrap();
}

#[test]
fn a_dump_says_what_openzfs_says() {
    for name in [
        "full",
        "incr",
        "from-bookmark",
        "compressed-large",
        "I-all",
        "R-props",
    ] {
        let mut out = Vec::new();
        let options = DumpOptions {
            verbose: 1,
            ..DumpOptions::default()
        };
        dump(&golden_stream("dsl", name)[..], &options, &mut out).unwrap();
        let golden = Golden::load("dsl").text(&format!("{name}.dump.txt"));
        let ours = String::from_utf8(out).unwrap();
        for (i, (x, y)) in ours.lines().zip(golden.lines()).enumerate() {
            assert_eq!(x, y, "{name}, line {i}");
        }
        assert_eq!(ours, golden, "{name}");
    }
}

fn golden_pool() -> (Golden, Arc<zuse::Pool>) {
    let golden = Golden::load("dsl");
    let pool = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &zuse::PoolAccess::default(),
    )
    .unwrap();
    (golden, pool)
}

fn new_pool() -> Arc<zuse::Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/sim/new", 512 << 20));
    let spec = zuse_pool::VdevSpec {
        device,
        is_disk: false,
        ashift: Some(12),
    };
    zuse::Pool::create_on_devices(Environment::default(), "tank", vec![spec], None, &[]).unwrap()
}

fn receive(
    pool: &Arc<zuse::Pool>,
    stream: &[u8],
    request: &ReceiveRequest,
) -> zuse::Result<Vec<String>> {
    let mut done = Vec::new();
    pool.receive(stream, request, &mut |s| {
        if s.bytes.is_some() {
            done.push(s.to.clone());
        }
    })?;
    Ok(done)
}

fn into(target: &str) -> ReceiveRequest {
    ReceiveRequest {
        target: target.into(),
        ..ReceiveRequest::default()
    }
}

/// A dataset or snapshot equals a snapshot of the golden pool.
fn assert_holds(
    pool: &Arc<zuse::Pool>,
    name: &str,
    want: &BTreeMap<String, BTreeMap<String, Value>>,
    golden: &str,
) {
    let mut want = want
        .get(golden)
        .unwrap_or_else(|| panic!("no manifest of {golden}"))
        .clone();
    let root = pool.file_system(name).unwrap().root_id().0;
    want.get_mut(".").unwrap()["ino"] = root.into();
    // The space of a block on disk depends on the receiving pool.
    for entry in want.values_mut() {
        entry.as_object_mut().unwrap().remove("blocks");
    }
    let mut have = of_dataset(pool, name).unwrap();
    for entry in have.values_mut() {
        entry.as_object_mut().unwrap().remove("blocks");
    }
    let wrong = differences(name, &want, &have, &[]);
    assert!(
        wrong.is_empty(),
        "{name} is not {golden}:\n{}",
        wrong.join("\n")
    );
}

fn assert_clean(pool: &Arc<zuse::Pool>) {
    pool.sync().unwrap();
    pool.sync().unwrap();
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{flaws:?}");
    let report = check(pool.spa(), Depth::All).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn golden_streams_are_received_as_their_manifests_say() {
    let (golden, from) = golden_pool();
    let want = expected(&golden.manifest());
    let pool = new_pool();
    let plain = SendOptions::default();

    receive(&pool, &golden_stream("dsl", "full"), &into("tank/full")).unwrap();
    assert_holds(&pool, "tank/full@s1", &want, "dsl/clone3@s1");
    assert_holds(&pool, "tank/full", &want, "dsl/clone3@s1");

    // One of our streams first, then one of OpenZFS on top of it.
    let s4 = sent(&from, "dsl/home@s4", None, plain);
    receive(&pool, &s4, &into("tank/home")).unwrap();
    assert_holds(&pool, "tank/home@s4", &want, "dsl/home@s4");
    receive(&pool, &golden_stream("dsl", "incr"), &into("tank/home")).unwrap();
    assert_holds(&pool, "tank/home@s5", &want, "dsl/home@s5");
    assert_holds(&pool, "tank/home@s4", &want, "dsl/home@s4");
    assert_clean(&pool);

    receive(
        &pool,
        &golden_stream("dsl", "compressed-large"),
        &into("tank/rich"),
    )
    .unwrap();
    assert_holds(&pool, "tank/rich@s5", &want, "dsl/home@s5");
    let s0 = sent(&from, "dsl/clone3@s0", None, plain);
    receive(&pool, &s0, &into("tank/all")).unwrap();
    let done = receive(&pool, &golden_stream("dsl", "I-all"), &into("tank/all")).unwrap();
    assert_eq!(done, ["tank/all@s1", "tank/all@s3", "tank/all@c"]);
    for snap in ["s0", "s1", "s3", "c"] {
        assert_holds(
            &pool,
            &format!("tank/all@{snap}"),
            &want,
            &format!("dsl/clone3@{snap}"),
        );
    }
    let done = receive(&pool, &golden_stream("dsl", "R-props"), &into("tank/many")).unwrap();
    assert_eq!(done.len(), 11);
    for name in &done {
        let theirs = name.replace("tank/", "dsl/");
        assert_holds(&pool, name, &want, &theirs);
        let (ours, golden) = (
            pool.dsl().dataset(name).unwrap(),
            from.dsl().dataset(&theirs).unwrap(),
        );
        assert_eq!(ours.guid().unwrap(), golden.guid().unwrap());
        assert_eq!(
            ours.phys().unwrap().creation_time,
            golden.phys().unwrap().creation_time
        );
    }
    let v = sent(&from, "dsl/vol@v", None, plain);
    receive(&pool, &v, &into("tank/vol")).unwrap();
    assert_eq!(
        of_volume(&pool, "tank/vol").unwrap(),
        of_volume(&from, "dsl/vol").unwrap()
    );
    assert_clean(&pool);

    assert_sent_again(&pool, &from);
    pool.close().unwrap();
    from.close().unwrap();
}

/// A received dataset is sent again unchanged.
fn assert_sent_again(pool: &Arc<zuse::Pool>, from: &Arc<zuse::Pool>) {
    let plain = SendOptions::default();
    for (ours, theirs, source) in [
        ("tank/full@s1", "dsl/clone3@s1", None),
        ("tank/home@s5", "dsl/home@s5", Some("@s4")),
    ] {
        let (a, b) = (
            sent(pool, ours, source, plain),
            sent(from, theirs, source, plain),
        );
        assert_eq!(bodies(&a), bodies(&b), "{ours}");
    }
}

/// The records of a stream but for its BEGIN, END and the blocks' checksums, which depend on how
/// they are stored.
fn bodies(stream: &[u8]) -> Vec<(zuse::stream::record::Record, Vec<u8>)> {
    use zuse::stream::record::Record;
    let mut reader = zuse::stream::StreamReader::new(stream);
    let mut out = Vec::new();
    while let Some(item) = reader.next_record().unwrap() {
        let mut record = item.record;
        match &mut record {
            Record::Begin(_) | Record::End { .. } => continue,
            Record::Write(w) => {
                w.key = [0; 4];
                w.key_prop = 0;
                w.checksum_type = 0;
                w.flags = 0;
            }
            _ => {}
        }
        out.push((record, item.payload));
    }
    out
}

fn package(pool: &Arc<zuse::Pool>, request: &SendRequest) -> (Vec<u8>, String) {
    let plan = pool.plan_send(request).unwrap();
    let mut out = StreamWriter::new(Vec::new());
    plan.run(&mut out, &SendProgress::default(), &mut |_| {})
        .unwrap();
    let mut text = String::new();
    for note in &plan.notes {
        text += &format!("{note}\n");
    }
    for s in &plan.streams {
        text += &match &s.from {
            None => format!("full\t{}\t{}\n", s.to, s.estimate),
            Some(from) => {
                let from = from.trim_start_matches('@');
                format!("incremental\t{from}\t{}\t{}\n", s.to, s.estimate)
            }
        };
    }
    text += &format!("size\t{}\n", plan.estimate());
    (out.into_inner().unwrap(), text)
}

#[test]
fn packages_and_estimates_are_those_of_openzfs() {
    let (golden, pool) = golden_pool();
    let request = |to: &str| SendRequest {
        to: to.into(),
        ..SendRequest::default()
    };
    let all = SendRequest {
        from: Some("@s0".into()),
        intermediate: true,
        ..request("dsl/clone3@c")
    };
    let (bytes, text) = package(&pool, &all);
    assert_same("I-all", &bytes, &golden_stream("dsl", "I-all"));
    assert_eq!(text, golden.text("I-all.dryrun.txt"));
    let recursive = SendRequest {
        recursive: true,
        ..request("dsl/many@all")
    };
    let (bytes, text) = package(&pool, &recursive);
    assert_same("R-props", &bytes, &golden_stream("dsl", "R-props"));
    assert_eq!(text, golden.text("R-props.dryrun.txt"));
    for (name, to, from) in [
        ("full", "dsl/clone3@s1", None),
        ("incr", "dsl/home@s5", Some("dsl/home@s4")),
        ("from-bookmark", "dsl/home@s5", Some("dsl/home#b4")),
    ] {
        let one = SendRequest {
            from: from.map(str::to_owned),
            ..request(to)
        };
        assert_eq!(
            package(&pool, &one).1,
            golden.text(&format!("{name}.dryrun.txt"))
        );
    }
    pool.close().unwrap();
}

fn token_of(pool: &Arc<zuse::Pool>, target: &str) -> Option<ResumeToken> {
    pool.resume_token(target).ok().flatten()
}

#[test]
fn an_interrupted_receive_goes_on_where_it_ended() {
    let (golden, from) = golden_pool();
    let want = expected(&golden.manifest());
    let rich = SendOptions {
        large_blocks: true,
        embed: true,
        compressed: true,
        ..SendOptions::default()
    };
    let pool = new_pool();
    let request = ReceiveRequest {
        resumable: true,
        ..into("tank/home")
    };
    for (to, source, options) in [
        ("dsl/home@s4", None, SendOptions::default()),
        ("dsl/home@s5", Some("@s4"), rich),
    ] {
        let mut stream = sent(&from, to, source, options);
        let mut seed = 12345u64;
        let mut cuts = 0;
        loop {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let cut = 1 + (seed >> 33) as usize % stream.len();
            if cuts == 6 {
                receive(&pool, &stream, &request).unwrap();
                break;
            }
            let error = receive(&pool, &stream[..cut], &request).unwrap_err();
            assert!(error.to_string().contains("stream"), "{error}");
            cuts += 1;
            // Users see the old state, or nothing.
            assert!(pool.dsl().dataset(&to.replace("dsl", "tank")).is_err());
            if let Some(token) = token_of(&pool, "tank/home") {
                let token = ResumeToken::parse(&token.to_text()).unwrap();
                let plan = from.plan_resume(&token).unwrap();
                let mut out = StreamWriter::new(Vec::new());
                plan.run(&mut out, &SendProgress::default(), &mut |_| {})
                    .unwrap();
                stream = out.into_inner().unwrap();
            }
        }
        assert_holds(&pool, &to.replace("dsl", "tank"), &want, to);
        assert_eq!(token_of(&pool, "tank/home"), None);
    }
    assert_clean(&pool);
    pool.close().unwrap();
    from.close().unwrap();
}

/// Where file systems of a golden pool were mounted, without the `/mnt/` in front.
fn mount_points(golden: &Golden) -> Vec<String> {
    let list = golden.text("zfs-get.txt");
    let rows = list.lines().filter_map(|l| l.split_once("\tmountpoint\t"));
    rows.filter_map(|(_, rest)| {
        rest.split('\t')
            .next()?
            .strip_prefix("/mnt/")
            .map(str::to_owned)
    })
    .collect()
}

/// Large and small blocks, large dnodes and microzaps, every codec, xattrs, holes. Each live file
/// system of three pools goes through a stream with its own set of flags.
#[test]
fn every_file_system_of_a_golden_pool_survives_a_stream() {
    let mut flags = 5usize;
    for name in ["bigblocks", "codecs", "compat07"] {
        let golden = Golden::load(name);
        let from = open_whole(
            Environment::default(),
            &golden.block_devices(),
            &zuse::PoolAccess::default(),
        )
        .unwrap();
        let manifest = golden.manifest();
        let mounts = mount_points(&golden);
        let pool = new_pool();
        for (i, (dataset, mut want)) in expected(&manifest).into_iter().enumerate() {
            if dataset.contains('@') {
                continue;
            }
            flags = flags.wrapping_mul(0x9e37_79b1) >> 1;
            let large = from.dsl().dataset(&dataset).unwrap();
            let needs = large
                .uses_feature("com.klarasystems:large_microzap")
                .unwrap();
            let options = SendOptions {
                large_blocks: flags & 8 != 0 || needs,
                embed: flags & 16 != 0,
                compressed: flags & 32 != 0,
                ..SendOptions::default()
            };
            let stream = sent(&from, &dataset, None, options);
            let target = format!("tank/{i}");
            receive(&pool, &stream, &into(&format!("{target}@x"))).unwrap();
            let mut have = of_dataset(&pool, &target).unwrap();
            for entry in want.values_mut().chain(have.values_mut()) {
                entry.as_object_mut().unwrap().remove("blocks");
            }
            let wrong = differences(&dataset, &want, &have, &mounts);
            assert!(
                wrong.is_empty(),
                "{dataset} {options:?}:\n{}",
                wrong.join("\n")
            );
        }
        assert_clean(&pool);
        pool.close().unwrap();
        from.close().unwrap();
    }
}

#[test]
fn compressed_blocks_are_stored_as_they_come() {
    use zuse::stream::record::Record;
    let golden = Golden::load("codecs");
    let access = zuse::PoolAccess::default();
    let from = open_whole(Environment::default(), &golden.block_devices(), &access).unwrap();
    let pool = new_pool();
    let options = SendOptions {
        large_blocks: true,
        compressed: true,
        ..SendOptions::default()
    };
    let packed = |stream: &[u8]| {
        let all = bodies(stream).into_iter();
        all.filter(|(r, _)| matches!(r, Record::Write(w) if w.compression != 0))
            .collect::<Vec<_>>()
    };
    let mut kinds = std::collections::BTreeSet::new();
    for (i, name) in expected(&golden.manifest()).keys().enumerate() {
        if name.contains('@') {
            continue;
        }
        let stream = sent(&from, name, None, options);
        let came = packed(&stream);
        receive(&pool, &stream, &into(&format!("tank/{i}@x"))).unwrap();
        let mut again = packed(&sent(&pool, &format!("tank/{i}@x"), None, options));
        // Uncompressed blocks were compressed here.
        let place = |r: &Record| match r {
            Record::Write(w) => (w.object, w.offset),
            _ => (0, 0),
        };
        let places: Vec<_> = came.iter().map(|(r, _)| place(r)).collect();
        again.retain(|(r, _)| places.contains(&place(r)));
        assert!(again == came, "{name}");
        kinds.extend(came.iter().map(|(r, _)| match r {
            Record::Write(w) => w.compression,
            _ => 0,
        }));
    }
    // lzjb, gzip, zle, lz4, zstd
    assert!(kinds.len() >= 5, "{kinds:?}");
    assert_clean(&pool);
    pool.close().unwrap();
    from.close().unwrap();
}

#[test]
fn a_send_leaves_the_cache_as_it_was() {
    let golden = Golden::load("dsl");
    let mut env = Environment::default();
    env.limits.threads = 1;
    let access = zuse::PoolAccess::default();
    let pool = open_whole(env, &golden.block_devices(), &access).unwrap();
    let read = || of_dataset(&pool, "dsl/home@s4").unwrap();
    let before = read();
    // What the send itself reads through the object set: the version of the file system.
    for to in ["dsl/vol@v", "dsl/clone3@c"] {
        pool.send(to, None, SendOptions::default()).unwrap();
    }
    // The other thread has read what it was asked to prefetch.
    let (done, wait) = std::sync::mpsc::channel();
    let last = Box::new(move || done.send(()).unwrap());
    assert!(pool.spa().work().try_submit(last).is_ok());
    wait.recv().unwrap();
    let cache = pool.spa().io().cache();
    let then = cache.stats();
    for to in ["dsl/vol@v", "dsl/clone3@c"] {
        sent(&pool, to, None, SendOptions::default());
    }
    let now = cache.stats();
    assert_eq!((now.used, now.misses), (then.used, then.misses));
    assert_eq!(read(), before);
    assert_eq!(
        cache.stats().misses,
        then.misses,
        "the working set is not all there"
    );

    // Without the bypass the cache is used.
    let limits = pool.limits();
    let through = zuse_pool::Limits {
        send_bypass: false,
        ..limits
    };
    pool.set_limits(through).unwrap();
    let then = cache.stats();
    sent(&pool, "dsl/clone3@c", None, SendOptions::default());
    let now = cache.stats();
    assert!(now.misses > then.misses, "{} misses", now.misses);
    pool.close().unwrap();
}

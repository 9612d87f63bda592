//! Raw streams: encrypted datasets are transferred without their keys, and are unchanged when a key
//! is loaded.

use std::sync::Arc;

use zuse::stream::record::Record;
use zuse::stream::{ResumeToken, SendOptions, SendProgress, StreamReader, StreamWriter};
use zuse::tools::Layers as _;
use zuse::{
    Credentials, Errno, KeyChange, KeyFormat, KeyMaterial, NewerSnapshots, Pool, PoolAccess,
    ReceiveRequest, Recursion,
};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice};
use zuse_format::nvlist::{NvEncoding, NvList, NvValue};
use zuse_pool::{Environment, VdevSpec};
use zuse_sim::golden::{Golden, golden_stream, open_whole};
use zuse_sim::manifests::{differences, expected, of_dataset};
use zuse_sim::round_trip;
use zuse_zpl::QuotaOwner;

const RAW: SendOptions = SendOptions {
    large_blocks: true,
    embed: true,
    compressed: true,
    raw: true,
    resume: None,
    saved: None,
    through_cache: false,
};

fn sent(pool: &Arc<Pool>, to: &str, from: Option<&str>, options: SendOptions) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new());
    let send = pool.send(to, from, options).unwrap();
    send.run(&mut out, &SendProgress::default()).unwrap();
    let bytes = out.into_inner().unwrap();
    assert_eq!(send.exact_size().unwrap(), bytes.len() as u64, "{to}");
    bytes
}

fn new_pool() -> Arc<Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/sim/raw", 512 << 20));
    let spec = VdevSpec {
        device,
        is_disk: false,
        ashift: Some(12),
    };
    Pool::create_on_devices(Environment::default(), "tank", vec![spec], None, &[]).unwrap()
}

fn into(target: &str) -> ReceiveRequest {
    ReceiveRequest {
        target: target.into(),
        ..ReceiveRequest::default()
    }
}

fn receive(pool: &Arc<Pool>, stream: &[u8], request: &ReceiveRequest) -> zuse::Result<()> {
    pool.receive(stream, request, &mut |_| {})
}

fn assert_clean(pool: &Arc<Pool>) {
    pool.sync().unwrap();
    pool.sync().unwrap();
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{flaws:?}");
    let report = check(pool.spa(), Depth::All).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// A dataset equals the golden pool's, except for the space that its blocks use.
fn assert_holds(pool: &Arc<Pool>, golden: &Golden, name: &str, theirs: &str) {
    let mut want = expected(&golden.manifest())[theirs].clone();
    let mut have = of_dataset(pool, name).unwrap();
    let root = pool.file_system(name).unwrap().root_id().0;
    want.get_mut(".").unwrap()["ino"] = root.into();
    for entry in want.values_mut().chain(have.values_mut()) {
        entry.as_object_mut().unwrap().remove("blocks");
    }
    let wrong = differences(name, &want, &have, &[]);
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

fn open_golden(golden: &Golden) -> Arc<Pool> {
    open_whole(
        Environment::default(),
        &golden.block_devices(),
        &PoolAccess::default(),
    )
    .unwrap()
}

fn snapshot_below(pool: &Pool, name: &str) {
    pool.snapshot(&[name.to_owned()], Recursion::Below, &[])
        .unwrap();
}

#[test]
fn golden_raw_streams_are_made_without_keys_and_received_as_their_manifests_say() {
    let golden = Golden::load("crypt");
    let from = open_golden(&golden);
    let pool = new_pool();
    for (name, theirs) in [
        ("raw-gcm", "crypt/aes-256-gcm@s1"),
        ("raw-ccm", "crypt/aes-256-ccm@s1"),
    ] {
        let stream = golden_stream("crypt", name);
        let ours = sent(&from, theirs, None, RAW);
        assert_eq!(ours.len(), stream.len(), "{name}");
        let first = ours.iter().zip(&stream).position(|(a, b)| a != b);
        assert_eq!(first, None, "{name}: the streams differ from there on");

        let target = format!("tank/{name}");
        receive(&pool, &stream, &into(&target)).unwrap();
        let locked = pool.file_system(&target).map(drop).unwrap_err();
        assert!(locked.is(Errno::ACCES), "{locked}");
    }
    assert_clean(&pool);
    // A dataset received without a key is sent again without a key, unchanged.
    for (name, theirs) in [
        ("raw-gcm", "crypt/aes-256-gcm@s1"),
        ("raw-ccm", "crypt/aes-256-ccm@s1"),
    ] {
        let again = sent(&pool, &format!("tank/{name}@s1"), None, RAW);
        let stream = golden_stream("crypt", name);
        // The name is in BEGIN, and everything after the first checksum depends on it.
        assert_eq!(again.len(), stream.len(), "{theirs}");
        assert_eq!(bodies(&again), bodies(&stream), "{theirs}");
    }
    let opened = pool.try_keys(&golden.keys()).unwrap();
    assert_eq!(opened.len(), 2, "{opened:?}");
    for (name, theirs) in [
        ("raw-gcm", "crypt/aes-256-gcm"),
        ("raw-ccm", "crypt/aes-256-ccm"),
    ] {
        assert_holds(
            &pool,
            &golden,
            &format!("tank/{name}@s1"),
            &format!("{theirs}@s1"),
        );
        // It can be written to like any other.
        let fs = pool.file_system(&format!("tank/{name}")).unwrap();
        let file = fs
            .create(&Credentials::root(), &fs.root().unwrap(), b"new", 0o644)
            .unwrap();
        fs.write(&file, 0, b"written here", zuse_zpl::WriteOptions::default())
            .unwrap();
        fs.sync().unwrap();
    }
    assert_clean(&pool);
    pool.close().unwrap();
    from.close().unwrap();
}

/// The records of a stream but for BEGIN and END.
fn bodies(stream: &[u8]) -> Vec<(zuse::stream::record::Record, Vec<u8>)> {
    use zuse::stream::record::Record;
    let mut reader = zuse::stream::StreamReader::new(stream);
    let mut out = Vec::new();
    while let Some(item) = reader.next_record().unwrap() {
        if !matches!(item.record, Record::Begin(_) | Record::End { .. }) {
            out.push((item.record, item.payload));
        }
    }
    out
}

#[test]
fn encrypted_datasets_are_sent_in_clear_with_their_keys() {
    let golden = Golden::load("crypt");
    let from = open_golden(&golden);
    let refused = from
        .send("crypt/aes-128-gcm@s1", None, SendOptions::default())
        .map(drop)
        .unwrap_err();
    assert!(refused.is(Errno::ACCES), "{refused}");
    from.try_keys(&golden.keys()).unwrap();
    let pool = new_pool();
    let compressed = SendOptions {
        compressed: true,
        ..SendOptions::default()
    };
    for (i, (theirs, options)) in [
        ("crypt/aes-128-gcm", SendOptions::default()),
        ("crypt/aes-256-ccm", compressed),
        ("crypt/aes-256-gcm/child", compressed),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = sent(&from, &format!("{theirs}@s1"), None, options);
        let target = format!("tank/{i}");
        let request = ReceiveRequest {
            set: vec![("acltype".into(), "posix".into())],
            ..into(&target)
        };
        receive(&pool, &stream, &request).unwrap();
        assert_holds(&pool, &golden, &target, &format!("{theirs}@s1"));
    }
    assert_clean(&pool);
    pool.close().unwrap();
    from.close().unwrap();
}

struct Seed(u64);

impl Seed {
    fn next(&mut self) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize
    }
}

/// Changes files of a dataset: some are created, some rewritten, truncated or removed.
fn churn(pool: &Arc<Pool>, dataset: &str, seed: &mut Seed) {
    let fs = pool.file_system(dataset).unwrap();
    let root = Credentials::root();
    let dir = fs.root().unwrap();
    for _ in 0..60 {
        let name = format!("f{}", seed.next() % 90);
        let file = match fs.lookup(&root, &dir, name.as_bytes()) {
            Ok(file) => file,
            Err(_) => fs.create(&root, &dir, name.as_bytes(), 0o644).unwrap(),
        };
        match seed.next() % 5 {
            0 => fs.unlink(&root, &dir, name.as_bytes()).unwrap(),
            1 => {
                let size = (seed.next() % 300_000) as u64;
                fs.truncate(&root, &file, size).unwrap();
            }
            _ => {
                let at = (seed.next() % 700_000) as u64;
                let bytes = vec![seed.next() as u8; 1 + seed.next() % 200_000];
                fs.write(&file, at, &bytes, zuse_zpl::WriteOptions::default())
                    .unwrap();
            }
        }
    }
    fs.sync().unwrap();
}

#[test]
fn raw_incrementals_are_interrupted_and_resumed_without_any_key() {
    let from = new_pool();
    let key = KeyMaterial::new(vec![7; 32]);
    let properties: Vec<(String, String)> = [("encryption", "on"), ("keyformat", "raw")]
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .to_vec();
    from.create_filesystem_with_key("tank/e", &properties, (0, 0), Some(&key))
        .unwrap();
    let pool = new_pool();
    let mut seed = Seed(41);
    let request = ReceiveRequest {
        resumable: true,
        ..into("tank/r")
    };
    for round in 0..4 {
        churn(&from, "tank/e", &mut seed);
        let to = format!("tank/e@{round}");
        from.snapshot(std::slice::from_ref(&to), Recursion::One, &[])
            .unwrap();
        let before = format!("@{}", round - 1);
        let source = (round > 0).then_some(before.as_str());
        let mut stream = sent(&from, &to, source, RAW);
        for _ in 0..4 {
            let cut = 1 + seed.next() % stream.len();
            receive(&pool, &stream[..cut], &request).unwrap_err();
            if let Some(token) = pool.resume_token("tank/r").ok().flatten() {
                let token = ResumeToken::parse(&token.to_text()).unwrap();
                let mut out = StreamWriter::new(Vec::new());
                from.plan_resume(&token)
                    .unwrap()
                    .run(&mut out, &SendProgress::default(), &mut |_| {})
                    .unwrap();
                stream = out.into_inner().unwrap();
            }
        }
        receive(&pool, &stream, &request).unwrap();
        assert_clean(&pool);
    }
    // A rollback needs no key, and the next increment can be received on it.
    pool.rollback("tank/r@2", NewerSnapshots::Destroy).unwrap();
    pool.rollback("tank/r@2", NewerSnapshots::Refuse).unwrap();
    let last = sent(&from, "tank/e@3", Some("@2"), RAW);
    receive(&pool, &last, &request).unwrap();
    assert_clean(&pool);
    // A stream for another state of the same dataset is refused.
    let wrong = sent(&from, "tank/e@3", Some("@1"), RAW);
    let late = receive(&pool, &wrong, &into("tank/r@late")).unwrap_err();
    assert!(late.is(Errno::TXTBSY), "{late}");
    pool.load_key("tank/r", &key).unwrap();
    for round in 0..4 {
        assert_eq!(
            of_dataset(&pool, &format!("tank/r@{round}")).unwrap(),
            of_dataset(&from, &format!("tank/e@{round}")).unwrap(),
            "{round}"
        );
    }
    pool.close().unwrap();
    from.close().unwrap();
}

#[test]
fn a_raw_package_brings_encryption_roots_holds_and_properties_of_snapshots() {
    let from = new_pool();
    let key = KeyMaterial::new(vec![9; 32]);
    let properties = pairs(&[("encryption", "on"), ("keyformat", "raw")]);
    from.create_filesystem_with_key("tank/e", &properties, (0, 0), Some(&key))
        .unwrap();
    from.create_filesystem_with_key("tank/e/child", &[], (0, 0), None)
        .unwrap();
    let mut seed = Seed(5);
    churn(&from, "tank/e", &mut seed);
    churn(&from, "tank/e/child", &mut seed);
    from.snapshot(
        &["tank/e@s".to_owned()],
        Recursion::Below,
        &pairs(&[("my:note", "kept")]),
    )
    .unwrap();
    from.dsl()
        .hold(&["tank/e/child@s".to_owned()], "keep")
        .unwrap();
    let request = zuse::SendRequest {
        to: "tank/e@s".into(),
        recursive: true,
        holds: true,
        options: RAW,
        ..zuse::SendRequest::default()
    };
    let send = |request: &zuse::SendRequest| round_trip::sent(&from, request);
    let clear = zuse::SendRequest {
        options: SendOptions::default(),
        ..request.clone()
    };
    let refused = send(&clear).unwrap_err();
    assert!(refused.to_string().contains("raw flag"), "{refused}");

    let pool = new_pool();
    receive(&pool, &send(&request).unwrap(), &into("tank/r")).unwrap();
    for (name, is_root) in [("tank/r", true), ("tank/r/child", false)] {
        let info = pool.dsl().encryption(name).unwrap().unwrap();
        assert_eq!(
            (info.root.as_str(), info.is_root),
            ("tank/r", is_root),
            "{name}"
        );
    }
    assert_eq!(pool.dsl().holds("tank/r/child@s").unwrap().len(), 1);
    assert_eq!(pool.dsl().holds("tank/r@s").unwrap().len(), 0);
    let note = pool
        .dataset("tank/r@s")
        .unwrap()
        .property("my:note")
        .unwrap();
    assert_eq!(note.map(|p| p.value).as_deref(), Some("kept"));
    pool.load_key("tank/r", &key).unwrap();
    for (ours, theirs) in [
        ("tank/r@s", "tank/e@s"),
        ("tank/r/child@s", "tank/e/child@s"),
    ] {
        assert_eq!(
            of_dataset(&pool, ours).unwrap(),
            of_dataset(&from, theirs).unwrap(),
            "{ours}"
        );
    }
    assert_clean(&pool);
    pool.close().unwrap();
    from.close().unwrap();
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    list.iter().map(own).collect()
}

#[test]
fn a_raw_increment_brings_which_datasets_are_encryption_roots() {
    let from = new_pool();
    let key = |n: u8| KeyMaterial::new(vec![n; 32]);
    let own = [("encryption", "on"), ("keyformat", "raw")]
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .to_vec();
    let make = |name: &str, properties: &[(String, String)], key: Option<&KeyMaterial>| {
        from.create_filesystem_with_key(name, properties, (0, 0), key)
            .unwrap();
    };
    make("tank/e", &own, Some(&key(1)));
    make("tank/e/a", &[], None);
    make("tank/e/a/below", &[], None);
    make("tank/e/b", &[], None);
    make("tank/e/c", &own, Some(&key(3)));
    let names = ["", "/a", "/a/below", "/b", "/c"];
    let mut seed = Seed(77);
    let send = |from_snap: Option<&str>, to: &str| {
        let request = zuse::SendRequest {
            to: format!("tank/e@{to}"),
            from: from_snap.map(str::to_owned),
            recursive: true,
            options: RAW,
            ..zuse::SendRequest::default()
        };
        round_trip::sent(&from, &request).unwrap()
    };
    for name in names {
        churn(&from, &format!("tank/e{name}"), &mut seed);
    }
    snapshot_below(&from, "tank/e@0");
    let pool = new_pool();
    receive(&pool, &send(None, "0"), &into("tank/r")).unwrap();
    // One becomes an encryption root, one stops being one, one is renamed; all of them are changed.
    from.change_key("tank/e/a", &KeyChange::new(&key(2), KeyFormat::Raw))
        .unwrap();
    from.inherit_key("tank/e/c").unwrap();
    let renamed = from.rename("tank/e/b", "tank/e/renamed", Recursion::One);
    renamed.unwrap();
    let names = ["", "/a", "/a/below", "/renamed", "/c"];
    for name in names {
        churn(&from, &format!("tank/e{name}"), &mut seed);
    }
    snapshot_below(&from, "tank/e@1");
    receive(&pool, &send(Some("@0"), "1"), &into("tank/r")).unwrap();
    for (name, root) in [
        ("", "tank/r"),
        ("/a", "tank/r/a"),
        ("/a/below", "tank/r/a"),
        ("/renamed", "tank/r"),
        ("/c", "tank/r"),
    ] {
        let info = pool.dsl().encryption(&format!("tank/r{name}")).unwrap();
        assert_eq!(info.unwrap().root, root, "{name}");
    }
    pool.load_key("tank/r", &key(1)).unwrap();
    pool.load_key("tank/r/a", &key(2)).unwrap();
    for name in names {
        for snap in ["0", "1"] {
            assert_eq!(
                of_dataset(&pool, &format!("tank/r{name}@{snap}")).unwrap(),
                of_dataset(&from, &format!("tank/e{name}@{snap}")).unwrap(),
                "{name}@{snap}"
            );
        }
    }
    assert_clean(&pool);
    pool.close().unwrap();
    from.close().unwrap();
}

#[test]
fn the_top_of_a_raw_package_keeps_its_key_below_a_parent_with_another_one() {
    let key = |n: u8| KeyMaterial::new(vec![n; 32]);
    let own = [("encryption", "on"), ("keyformat", "raw")]
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .to_vec();
    let from = new_pool();
    from.create_filesystem_with_key("tank/e", &own, (0, 0), Some(&key(1)))
        .unwrap();
    from.create_filesystem_with_key("tank/e/a", &[], (0, 0), None)
        .unwrap();
    from.create_filesystem_with_key("tank/e/a/below", &[], (0, 0), None)
        .unwrap();
    let mut seed = Seed(3);
    churn(&from, "tank/e/a", &mut seed);
    churn(&from, "tank/e/a/below", &mut seed);
    snapshot_below(&from, "tank/e/a@0");
    let request = zuse::SendRequest {
        to: "tank/e/a@0".into(),
        recursive: true,
        options: RAW,
        ..zuse::SendRequest::default()
    };
    let stream = round_trip::sent(&from, &request).unwrap();
    let pool = new_pool();
    pool.create_filesystem_with_key("tank/q", &own, (0, 0), Some(&key(2)))
        .unwrap();
    receive(&pool, &stream, &into("tank/q/r")).unwrap();
    for name in ["tank/q/r", "tank/q/r/below"] {
        let info = pool.dsl().encryption(name).unwrap().unwrap();
        assert_eq!(info.root, "tank/q/r", "{name}");
    }
    pool.load_key("tank/q/r", &key(1)).unwrap();
    for name in ["", "/below"] {
        assert_eq!(
            of_dataset(&pool, &format!("tank/q/r{name}@0")).unwrap(),
            of_dataset(&from, &format!("tank/e/a{name}@0")).unwrap(),
        );
    }
    assert_clean(&pool);
    pool.close().unwrap();
    from.close().unwrap();
}

fn user(id: u32) -> Credentials {
    Credentials {
        uid: id,
        gid: id,
        ..Credentials::default()
    }
}

fn open(pool: &Arc<Pool>, name: &str) -> (Arc<zuse_zpl::FileSystem>, Arc<zuse_zpl::Znode>) {
    let fs = pool.file_system(name).unwrap();
    let top = fs.root().unwrap();
    (fs, top)
}

/// Makes a file of 600,000 bytes as a user.
fn write(pool: &Arc<Pool>, name: &str, file: &str, who: u32) -> zuse::Result<()> {
    let (fs, top) = open(pool, name);
    let file = fs.create(&user(who), &top, file.as_bytes(), 0o644)?;
    fs.write(&file, 0, &vec![who as u8 | 1; 600_000], Default::default())?;
    fs.sync()
}

fn set(pool: &Arc<Pool>, name: &str, property: &str, value: &str) {
    let pair = (property.to_owned(), value.to_owned());
    pool.dataset(name).unwrap().set(&[pair]).unwrap();
}

/// Owners with bytes and objects: users, groups, projects.
fn used(pool: &Arc<Pool>, name: &str) -> [Vec<(u64, u64, u64)>; 3] {
    [QuotaOwner::User, QuotaOwner::Group, QuotaOwner::Project].map(|owner| {
        let rows = pool.space_by_owner(name, owner).unwrap();
        rows.iter()
            .map(|r| (r.id, r.used, r.objects))
            .collect::<Vec<_>>()
    })
}

fn snap(pool: &Arc<Pool>, name: &str) {
    pool.snapshot(&[name.to_owned()], Recursion::One, &[])
        .unwrap();
}

/// Limits come with a raw stream, usage does not: it is counted at the first write with the key.
#[test]
fn quotas_hold_in_what_was_received_raw() {
    let from = new_pool();
    let key = KeyMaterial::new(vec![3; 32]);
    let properties = [("encryption", "on"), ("keyformat", "raw")]
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .to_vec();
    from.create_filesystem_with_key("tank/e", &properties, (0, 0), Some(&key))
        .unwrap();
    let all = zuse_zpl::SetAttr {
        mode: Some(0o777),
        ..Default::default()
    };
    {
        let (fs, top) = open(&from, "tank/e");
        fs.setattr(&Credentials::root(), &top, &all).unwrap();
    }
    let plenty = |id: u32| format!("userquota@{id}");
    set(&from, "tank/e", &plenty(1000), "1M");
    set(&from, "tank/e", "compression", "off");
    for (file, who) in [("a", 1000), ("b", 1000), ("c", 1001)] {
        write(&from, "tank/e", file, who).unwrap();
    }
    snap(&from, "tank/e@1");
    let pool = new_pool();
    receive(&pool, &sent(&from, "tank/e@1", None, RAW), &into("tank/r")).unwrap();
    pool.load_key("tank/r", &key).unwrap();
    assert_eq!(used(&pool, "tank/r"), used(&from, "tank/e"));
    // Reading has changed nothing: an increment can be received.
    write(&from, "tank/e", "d", 1001).unwrap();
    snap(&from, "tank/e@2");
    pool.unload_key("tank/r").unwrap();
    let more = sent(&from, "tank/e@2", Some("@1"), RAW);
    receive(&pool, &more, &into("tank/r")).unwrap();
    pool.load_key("tank/r", &key).unwrap();
    let over = write(&pool, "tank/r", "over", 1000).unwrap_err();
    assert!(over.is(Errno::DQUOT), "{over}");
    write(&pool, "tank/r", "within", 1001).unwrap();
    // A limit that is set here is enforced too.
    set(&pool, "tank/r", &plenty(1001), "1M");
    let over = write(&pool, "tank/r", "more", 1001).unwrap_err();
    assert!(over.is(Errno::DQUOT), "{over}");
    let counted = used(&pool, "tank/r");
    assert_clean(&pool);
    // Sent back, onto a dataset with counts of its own: these are dropped.
    snap(&pool, "tank/r@3");
    let back = sent(&pool, "tank/r@3", Some("@2"), RAW);
    receive(&from, &back, &into("tank/e")).unwrap();
    let over = write(&from, "tank/e", "more", 1001).unwrap_err();
    assert!(over.is(Errno::DQUOT), "{over}");
    assert_eq!(used(&from, "tank/e"), counted);
    {
        // Counts change with removals.
        let (fs, top) = open(&from, "tank/e");
        for name in ["a", "b", "c", "d", "within"] {
            fs.unlink(&Credentials::root(), &top, name.as_bytes())
                .unwrap();
        }
        fs.sync().unwrap();
        fs.sync().unwrap();
    }
    for (id, bytes, objects) in &used(&from, "tank/e")[0] {
        assert_eq!((*bytes, *objects) == (0, 0), *id != 0, "{id}");
    }
    assert_clean(&from);
    from.close().unwrap();
    pool.close().unwrap();
}

type Records = Vec<(Record, Vec<u8>)>;

/// A stream with its records changed, sealed again.
fn rearranged(bytes: &[u8], change: &dyn Fn(&mut Records)) -> Vec<u8> {
    let mut reader = StreamReader::new(bytes);
    let mut records = Vec::new();
    while let Some(item) = reader.next_record().unwrap() {
        records.push((item.record, item.payload));
    }
    change(&mut records);
    let mut writer = StreamWriter::new(Vec::new());
    for (record, payload) in &records {
        match record {
            Record::End { to_guid, .. } => writer.end(*to_guid).unwrap(),
            record => writer.record(record, payload).unwrap(),
        }
    }
    writer.into_inner().unwrap()
}

/// Resuming, and the authentication of a raw stream's dnodes, rely on the order of records.
#[test]
fn records_that_are_not_in_order_are_refused() {
    let (from, to) = (new_pool(), new_pool());
    let key = KeyMaterial::new(vec![7; 32]);
    let properties: Vec<(String, String)> = [
        ("encryption", "on"),
        ("keyformat", "raw"),
        ("recordsize", "4K"),
    ]
    .map(|(a, b)| (a.to_owned(), b.to_owned()))
    .to_vec();
    from.create_filesystem_with_key("tank/e", &properties, (0, 0), Some(&key))
        .unwrap();
    let fs = from.file_system("tank/e").unwrap();
    let (root, top) = (Credentials::root(), fs.root().unwrap());
    let file = fs.create(&root, &top, b"file", 0o644).unwrap();
    let options = zuse_zpl::WriteOptions::default();
    fs.write(&file, 0, &[7; 20_000], options).unwrap();
    drop((fs, top, file));
    from.snapshot(&["tank/e@a".into()], Recursion::One, &[])
        .unwrap();
    let clear = SendOptions { raw: false, ..RAW };
    let streams = [clear, RAW].map(|options| sent(&from, "tank/e@a", None, options));
    let refused = |stream: &[u8], change: &dyn Fn(&mut Records)| {
        let bytes = rearranged(stream, change);
        let error = receive(&to, &bytes, &into("tank/new")).expect_err("it was taken");
        assert!(matches!(error, zuse::Error::Corrupt { .. }), "{error}");
        assert!(!to.exists("tank/new").unwrap(), "nothing is left");
        error.to_string()
    };
    let swap = |records: &mut Records| {
        let is_write = |r: &(Record, Vec<u8>)| matches!(r.0, Record::Write(_));
        let mut pairs = records.windows(2);
        let at = pairs.position(|two| two.iter().all(is_write));
        let at = at.expect("a file of several blocks");
        records.swap(at, at + 1);
    };
    for stream in &streams {
        let error = refused(stream, &swap);
        assert!(error.contains("not in order"), "{error}");
    }
    let error = refused(&streams[1], &|records| {
        let is_range = |r: &(Record, Vec<u8>)| matches!(r.0, Record::ObjectRange { .. });
        let at = records.iter().position(is_range).expect("a raw stream");
        let range = records.remove(at);
        let end = records.len() - 1;
        records.insert(end, range);
    });
    assert!(error.contains("outside its OBJECT_RANGE"), "{error}");
    from.close().unwrap();
    to.close().unwrap();
}

/// Snapshots from before IV set guids ("errata 4") cannot prove that they are the sender's.
#[test]
fn a_raw_increment_without_iv_sets_is_received_where_the_check_is_off() {
    let from = new_pool();
    let key = KeyMaterial::new(vec![7; 32]);
    let properties = pairs(&[("encryption", "on"), ("keyformat", "raw")]);
    from.create_filesystem_with_key("tank/e", &properties, (0, 0), Some(&key))
        .unwrap();
    let mut seed = Seed(43);
    let mut streams = Vec::new();
    for (to, source) in [("tank/e@0", None), ("tank/e@1", Some("@0"))] {
        churn(&from, "tank/e", &mut seed);
        snap(&from, to);
        let stream = sent(&from, to, source, RAW);
        streams.push(rearranged(&stream, &|records| {
            let (begin, list) = &mut records[0];
            let mut keys = NvList::decode(list).unwrap();
            for (_, value) in &mut keys.pairs {
                if let NvValue::List(inner) = value {
                    let is_other = |name: &str| !name.ends_with("ivset_guid");
                    inner.pairs.retain(|(name, _)| is_other(name));
                }
            }
            *list = keys.encode(NvEncoding::Native);
            if let Record::Begin(begin) = begin {
                begin.payload_len = list.len() as u32;
            }
        }));
    }
    for off in [false, true] {
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/sim/raw", 512 << 20));
        let spec = VdevSpec {
            device,
            is_disk: false,
            ashift: Some(12),
        };
        let mut env = Environment::default();
        env.limits.no_ivset_check = off;
        let pool = Pool::create_on_devices(env, "tank", vec![spec], None, &[]).unwrap();
        receive(&pool, &streams[0], &into("tank/r")).unwrap();
        let second = receive(&pool, &streams[1], &into("tank/r"));
        if !off {
            let error = second.unwrap_err().to_string();
            assert!(error.contains("errata 4"), "{error}");
            continue;
        }
        second.unwrap();
        assert_clean(&pool);
        assert_eq!(pool.try_keys(std::slice::from_ref(&key)).unwrap().len(), 1);
        let (theirs, ours) = ("tank/e@1", "tank/r@1");
        let have = of_dataset(&pool, ours).unwrap();
        let want = of_dataset(&from, theirs).unwrap();
        let wrong = differences(ours, &want, &have, &[]);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

//! `zfs receive -c`: corrupted blocks of a snapshot are repaired from a stream.

use std::sync::Arc;

use zuse::stream::record::Record;
use zuse::stream::{Healing, SendOptions};
use zuse::tools::Layers as _;
use zuse::{
    Credentials, Errno, KeyMaterial, ListedKinds, NewVolume, Pool, PoolAccess, ReceiveRequest,
    Recursion, SendRequest,
};
use zuse_base::{Entropy, SeededPrng};
use zuse_check::{Depth, check};
use zuse_pool::{Environment, Limits};
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::hostile_stream::Parts;
use zuse_sim::manifests::{of_dataset, of_volume};
use zuse_sim::memory_pool::memory_pool;
use zuse_sim::rot::{Place, places, spoil};
use zuse_sim::round_trip::{check_pool, sent};
use zuse_zpl::WriteOptions;

fn new_pool() -> Arc<Pool> {
    let made = memory_pool("tank", 512 << 20, 9, Limits::default());
    made.unwrap().0
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    list.iter().map(own).collect()
}

fn fill(pool: &Arc<Pool>, name: &str, prng: &SeededPrng) {
    let fs = pool.file_system(name).unwrap();
    let (root, top) = (Credentials::root(), fs.root().unwrap());
    for i in 0..20 {
        let file = fs.create(&root, &top, format!("f{i}").as_bytes(), 0o644);
        let mut data = vec![i as u8; 200_000];
        data.chunks_mut(512).for_each(|c| prng.fill(&mut c[..100]));
        let mut done = 0;
        let file = file.unwrap();
        while done < data.len() {
            let options = WriteOptions::default();
            done += fs
                .write(&file, done as u64, &data[done..], options)
                .unwrap() as usize;
        }
    }
    fs.sync().unwrap();
}

fn stream(pool: &Arc<Pool>, request: &SendRequest) -> Vec<u8> {
    sent(pool, request).unwrap()
}

fn of(name: &str, compressed: bool, raw: bool) -> SendRequest {
    SendRequest {
        to: name.to_owned(),
        options: SendOptions {
            large_blocks: true,
            compressed,
            raw,
            ..SendOptions::default()
        },
        ..SendRequest::default()
    }
}

#[test]
fn rotten_blocks_are_healed_by_a_stream_of_their_snapshot() {
    let pool = new_pool();
    let prng = SeededPrng::new(3);
    for (name, properties) in [
        (
            "tank/off",
            [
                ("compression", "off"),
                ("recordsize", "128K"),
                ("copies", "2"),
            ],
        ),
        (
            "tank/lz4",
            [
                ("compression", "lz4"),
                ("recordsize", "16K"),
                ("checksum", "sha256"),
            ],
        ),
        (
            "tank/zstd",
            [
                ("compression", "zstd-7"),
                ("recordsize", "1M"),
                ("copies", "1"),
            ],
        ),
        (
            "tank/gzip",
            [
                ("compression", "gzip"),
                ("recordsize", "64K"),
                ("checksum", "blake3"),
            ],
        ),
    ] {
        pool.create_filesystem(name, &pairs(&properties), (0, 0))
            .unwrap();
        fill(&pool, name, &prng);
        let snap = format!("{name}@s");
        pool.snapshot(std::slice::from_ref(&snap), Recursion::One, &[])
            .unwrap();
        let before = of_dataset(&pool, &snap).unwrap();
        for compressed in [true, false] {
            let bytes = stream(&pool, &of(&snap, compressed, false));
            let spoilt = spoil(&pool, &snap, 3, &prng).unwrap();
            assert!(spoilt > 2, "{name}: {spoilt}");
            of_dataset(&pool, &snap).unwrap_err();
            let done = pool.heal(&bytes[..], &snap).unwrap();
            assert_eq!((done.healed, done.bad), (spoilt, 0), "{name} {compressed}");
            assert_eq!(of_dataset(&pool, &snap).unwrap(), before);
            // A second time there is nothing to do.
            let again = pool.heal(&bytes[..], &snap).unwrap();
            assert_eq!((again.healed, again.blocks), (0, done.blocks));
        }
    }
    check_pool(&pool).unwrap();
    pool.close().unwrap();
}

#[test]
fn encrypted_blocks_are_healed_raw_without_the_key_and_in_clear_with_it() {
    let pool = new_pool();
    let prng = SeededPrng::new(4);
    let key = KeyMaterial::new(vec![7; 32]);
    let properties = pairs(&[
        ("encryption", "on"),
        ("keyformat", "raw"),
        ("compression", "lz4"),
    ]);
    pool.create_filesystem_with_key("tank/e", &properties, (0, 0), Some(&key))
        .unwrap();
    fill(&pool, "tank/e", &prng);
    pool.snapshot(&["tank/e@s".to_owned()], Recursion::One, &[])
        .unwrap();
    let before = of_dataset(&pool, "tank/e@s").unwrap();
    let clear = stream(&pool, &of("tank/e@s", false, false));
    let raw = stream(&pool, &of("tank/e@s", true, true));
    let spoilt = spoil(&pool, "tank/e@s", 2, &prng).unwrap();
    let done = pool.heal(&clear[..], "tank/e@s").unwrap();
    assert_eq!((done.healed, done.bad), (spoilt, 0));
    assert_eq!(of_dataset(&pool, "tank/e@s").unwrap(), before);
    // Another pool has it, but not the key.
    let other = new_pool();
    let request = ReceiveRequest {
        target: "tank/r".into(),
        ..ReceiveRequest::default()
    };
    other.receive(&raw[..], &request, &mut |_| {}).unwrap();
    let spoilt = spoil(&other, "tank/r@s", 2, &prng).unwrap();
    let locked = other.heal(&clear[..], "tank/r@s").unwrap_err();
    assert!(locked.is(Errno::ACCES), "{locked}");
    let done = other.heal(&raw[..], "tank/r@s").unwrap();
    assert_eq!((done.healed, done.bad), (spoilt, 0));
    other.load_key("tank/r", &key).unwrap();
    assert_eq!(of_dataset(&other, "tank/r@s").unwrap(), before);
    check_pool(&other).unwrap();
    other.close().unwrap();
    check_pool(&pool).unwrap();
    pool.close().unwrap();
}

/// The stored bytes of all copies of a snapshot's blocks.
fn lying(pool: &Arc<Pool>, places: &[Vec<Place>]) -> Vec<Vec<u8>> {
    let all = places.iter().flatten();
    all.map(|place| place.read(pool).unwrap()).collect()
}

/// A stream with other blocks of files, changed in the first or last byte, with valid checksums.
fn with_other_blocks(stream: &[u8], last: bool) -> Vec<u8> {
    Parts::of(stream).with_payloads(|record, payload| {
        let byte = if last {
            payload.last_mut()
        } else {
            payload.first_mut()
        };
        if let (Record::Write(_), Some(byte)) = (record, byte) {
            *byte ^= 0x10;
        }
    })
}

#[test]
fn bytes_that_are_not_the_blocks_are_never_written_over_bad_ones() {
    let pool = new_pool();
    let prng = SeededPrng::new(6);
    let key = KeyMaterial::new(vec![7; 32]);
    let secret = pairs(&[("encryption", "on"), ("keyformat", "raw")]);
    pool.create_filesystem_with_key("tank/e", &secret, (0, 0), Some(&key))
        .unwrap();
    let plain = pairs(&[("compression", "off")]);
    pool.create_filesystem("tank/p", &plain, (0, 0)).unwrap();
    fill(&pool, "tank/e", &prng);
    fill(&pool, "tank/p", &prng);
    // Unauthenticated data has a checksum of half the length, which does not detect some changes of
    // the last bytes.
    for (name, raw, last) in [
        ("tank/e", true, true),
        ("tank/e", false, true),
        ("tank/p", false, true),
        ("tank/e", true, false),
    ] {
        let snap = format!("{name}@{raw}{last}");
        pool.snapshot(std::slice::from_ref(&snap), Recursion::One, &[])
            .unwrap();
        let good = stream(&pool, &of(&snap, raw, raw));
        let before = of_dataset(&pool, &snap).unwrap();
        let places = places(&pool, &snap).unwrap();
        let sound = lying(&pool, &places);
        let spoilt = spoil(&pool, &snap, 3, &prng).unwrap();
        let rotten = lying(&pool, &places);
        assert_ne!(sound, rotten);
        if !last {
            pool.unload_key(name).unwrap();
        }
        let wrong = with_other_blocks(&good, last);
        let done = pool.heal(&wrong[..], &snap).unwrap();
        assert_eq!((done.healed, done.bad), (0, spoilt), "{snap}");
        assert!(lying(&pool, &places) == rotten, "{snap} was written to");
        let done = pool.heal(&good[..], &snap).unwrap();
        assert_eq!((done.healed, done.bad), (spoilt, 0), "{snap}");
        assert!(lying(&pool, &places) == sound, "{snap} has other bytes");
        if !last {
            pool.load_key(name, &key).unwrap();
        }
        assert_eq!(of_dataset(&pool, &snap).unwrap(), before);
    }
    check_pool(&pool).unwrap();
    pool.close().unwrap();
}

#[test]
fn only_what_the_stream_has_is_healed_and_nothing_else_is_written() {
    let pool = new_pool();
    let prng = SeededPrng::new(5);
    pool.create_filesystem("tank/a", &[], (0, 0)).unwrap();
    pool.create_filesystem("tank/a/b", &[], (0, 0)).unwrap();
    fill(&pool, "tank/a", &prng);
    fill(&pool, "tank/a/b", &prng);
    let volume = NewVolume {
        size: 4 << 20,
        block_size: 8192,
        sparse: true,
        properties: Vec::new(),
    };
    pool.create_volume("tank/a/v", &volume).unwrap();
    let v = pool.volume("tank/a/v").unwrap();
    v.write(8192, &[9; 300_000]).unwrap();
    v.sync().unwrap();
    drop(v);
    pool.snapshot(&["tank/a@s".to_owned()], Recursion::Below, &[])
        .unwrap();
    let package = SendRequest {
        recursive: true,
        ..of("tank/a@s", true, false)
    };
    let bytes = stream(&pool, &package);
    for (name, text) in [
        ("tank/a@none", "must specify an existing snapshot"),
        ("tank/a", "existing snapshot"),
    ] {
        let only = stream(&pool, &of("tank/a@s", true, false));
        let e = pool.heal(&only[..], name).unwrap_err();
        assert!(e.to_string().contains(text), "{e}");
    }
    let other = stream(&pool, &of("tank/a/b@s", true, false));
    let e = pool.heal(&other[..], "tank/a@s").unwrap_err();
    assert!(e.to_string().contains("doesn't match"), "{e}");

    let hash = of_volume(&pool, "tank/a/v@s").unwrap();
    let before = of_dataset(&pool, "tank/a/b@s").unwrap();
    let spoilt = spoil(&pool, "tank/a/v@s", 2, &prng).unwrap();
    let b = spoil(&pool, "tank/a/b@s", 2, &prng).unwrap();
    // A truncated stream heals the blocks that it has, and reports the truncation.
    pool.heal(&other[..other.len() / 2], "tank/a/b@s")
        .unwrap_err();
    let rest = pool.heal(&bytes[..], "tank/a/b@s").unwrap();
    assert!(
        rest.healed > 0 && rest.healed < b && rest.bad == 0,
        "{rest:?} of {b}"
    );
    assert_eq!(of_dataset(&pool, "tank/a/b@s").unwrap(), before);
    let done = pool.heal(&bytes[..], "tank/a/v@s").unwrap();
    assert_eq!(done.healed, spoilt);
    assert_eq!(of_volume(&pool, "tank/a/v@s").unwrap(), hash);
    let none = pool.heal(&bytes[..], "tank/a@s").unwrap();
    assert_eq!(
        Healing {
            blocks: 0,
            bytes: 0,
            ..none
        },
        Healing::default()
    );
    check_pool(&pool).unwrap();
    pool.close().unwrap();
}

/// Data that OpenZFS wrote in stripes, copies and gang members is corrupted on all devices at once
/// and healed in place.
#[test]
fn blocks_on_mirrors_and_raidz_and_in_gangs_are_healed() {
    let mut all = 0;
    for name in [
        "mirror", "mirrors", "raidz1", "raidz3", "expanded", "draid", "gang",
    ] {
        let golden = Golden::load(name);
        let access = PoolAccess {
            writable: true,
            ours: true,
            ..PoolAccess::default()
        };
        let devices = golden.block_devices();
        let pool = open_whole(Environment::default(), &devices, &access).unwrap();
        let prng = SeededPrng::new(7);
        let top = format!("{}@heal", pool.name());
        pool.snapshot(&[top], Recursion::Below, &[]).unwrap();
        for entry in pool
            .list(&pool.name(), None, ListedKinds::WITH_SNAPSHOTS)
            .unwrap()
        {
            let snap = entry.name;
            if !snap.ends_with("@heal") {
                continue;
            }
            let content = || match pool.dsl().dataset(&snap).unwrap().is_volume().unwrap() {
                true => of_volume(&pool, &snap).map(|hash| hash.to_string()),
                false => of_dataset(&pool, &snap).map(|files| format!("{files:?}")),
            };
            let before = content().unwrap();
            let bytes = stream(&pool, &of(&snap, true, false));
            let spoilt = spoil(&pool, &snap, 2, &prng).unwrap();
            if spoilt > 0 {
                content().unwrap_err();
            }
            let done = pool.heal(&bytes[..], &snap).unwrap();
            assert_eq!((done.healed, done.bad), (spoilt, 0), "{snap}");
            assert_eq!(content().unwrap(), before, "{snap}");
            all += spoilt;
        }
        let report = check(pool.spa(), Depth::All).unwrap();
        assert_eq!(report.gangs > 0, name == "gang", "{name}");
        check_pool(&pool).unwrap_or_else(|e| panic!("{name}: {e}"));
        pool.close().unwrap();
    }
    assert!(all > 50, "{all}");
}

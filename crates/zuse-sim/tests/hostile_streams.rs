//! Thousands of changed streams are received. Each ends with an error that names record and offset,
//! or is another valid stream. Existing data stays, resumable receives report it, and memory is
//! bounded. `ZUSE_SIM_STREAMS=FROM..TO` runs other seeds, all of them with a pool. By default three
//! of four streams that the reader refuses alone are run without one.

#[allow(dead_code)]
#[path = "support/counting.rs"]
mod counting;

use std::sync::Arc;

use counting::Counting;
use zuse::stream::record::{Header, Record};
use zuse::stream::{SendOptions, StreamError, StreamReader, examine};
use zuse::tools::{Layers as _, XattrMode};
use zuse::{
    Credentials, DestroyOptions, Errno, Error, KeyMaterial, ListedKinds, NewVolume, NewerSnapshots,
    Pool, ReceiveRequest, Recursion, SendRequest,
};
use zuse_base::{Entropy, SeededPrng};
use zuse_sim::hostile_stream::{Parts, changed};
use zuse_sim::manifests::of_dataset;
use zuse_sim::memory_pool::{memory_pool, narrow};
use zuse_sim::round_trip::{check_pool, sent};
use zuse_zpl::WriteOptions;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that two receives at a time may ask for.
const MEMORY: u64 = 512 << 20;

fn pool(name: &str) -> Arc<Pool> {
    let made = memory_pool(name, 256 << 20, 9, narrow(32 << 20));
    made.unwrap().0
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    list.iter().map(own).collect()
}

fn key() -> KeyMaterial {
    KeyMaterial::new(vec![3; 32])
}

/// A few files of every kind of block.
fn fill(pool: &Arc<Pool>, name: &str, round: u8) {
    let fs = pool.file_system(name).unwrap();
    let (root, top) = (Credentials::root(), fs.root().unwrap());
    let prng = SeededPrng::new(round.into());
    for i in 0..12u8 {
        let name = format!("f{i}");
        if round == 1 && i % 5 == 0 {
            fs.unlink(&root, &top, name.as_bytes()).unwrap();
            continue;
        }
        let file = match fs.lookup(&root, &top, name.as_bytes()) {
            Ok(file) => file,
            Err(_) => fs.create(&root, &top, name.as_bytes(), 0o644).unwrap(),
        };
        let mut data = vec![round + i; [40, 700, 5000, 20_000][usize::from(i % 4)]];
        let noise = data.len() / 4;
        prng.fill(&mut data[..noise]);
        let at = u64::from(i / 4) * 9000;
        fs.write(&file, at, &data, WriteOptions::default()).unwrap();
        if i % 3 == 0 {
            let value = vec![i; 100 + 150 * usize::from(i)];
            fs.set_xattr(&root, &file, b"user.a", &value, XattrMode::Any)
                .unwrap();
        }
    }
    fs.mkdir(&root, &top, format!("d{round}").as_bytes(), 0o755)
        .unwrap();
    fs.sync().unwrap();
}

fn stream(pool: &Arc<Pool>, request: &SendRequest) -> Vec<u8> {
    sent(pool, request).unwrap()
}

/// A stream, and the dataset it goes into; `None`: a new one.
struct Case {
    bytes: Vec<u8>,
    onto: Option<&'static str>,
}

const RICH: SendOptions = SendOptions {
    large_blocks: true,
    embed: true,
    compressed: true,
    raw: false,
    resume: None,
    saved: None,
    through_cache: false,
};

/// Sources with two snapshots; the pool that receives has the first one of each.
fn cases() -> (Arc<Pool>, Vec<Case>) {
    let from = pool("src");
    let shape = [
        ("recordsize", "4K"),
        ("compression", "lz4"),
        ("dnodesize", "auto"),
        ("xattr", "sa"),
    ];
    let plain = pairs(&shape);
    let secret = [
        plain.clone(),
        pairs(&[("encryption", "on"), ("keyformat", "raw")]),
    ]
    .concat();
    from.create_filesystem("src/d", &plain, (0, 0)).unwrap();
    from.create_filesystem("src/d/kid", &plain, (0, 0)).unwrap();
    from.create_filesystem_with_key("src/e", &secret, (0, 0), Some(&key()))
        .unwrap();
    let volume = NewVolume {
        size: 1 << 20,
        block_size: 4096,
        sparse: true,
        properties: Vec::new(),
    };
    from.create_volume("src/v", &volume).unwrap();
    for round in 0..2 {
        for name in ["src/d", "src/d/kid", "src/e"] {
            fill(&from, name, round);
        }
        let v = from.volume("src/v").unwrap();
        v.write(u64::from(round) * 8192, &[7; 20_000]).unwrap();
        v.sync().unwrap();
        drop(v);
        let (name, own) = (format!("src@s{round}"), pairs(&[("my:p", "1")]));
        from.snapshot(&[name], Recursion::Below, &own).unwrap();
    }
    let to = pool("tank");
    let request = |name: &str, from: Option<&str>, options: SendOptions| SendRequest {
        to: name.to_owned(),
        from: from.map(str::to_owned),
        options,
        ..SendRequest::default()
    };
    let raw = SendOptions { raw: true, ..RICH };
    for (name, target, options) in [("src/d@s0", "tank/d", RICH), ("src/e@s0", "tank/e", raw)] {
        let bytes = stream(&from, &request(name, None, options));
        to.receive(&bytes[..], &into(target), &mut |_| {}).unwrap();
    }
    let package = SendRequest {
        recursive: true,
        intermediate: true,
        holds: true,
        ..request("src/d@s1", None, RICH)
    };
    let case = |request: &SendRequest, onto| Case {
        bytes: stream(&from, request),
        onto,
    };
    let cases = vec![
        case(&request("src/d@s0", None, RICH), None),
        case(&request("src/d@s1", None, SendOptions::default()), None),
        case(&request("src/d@s1", Some("@s0"), RICH), Some("tank/d")),
        case(&request("src/e@s1", None, raw), None),
        case(&request("src/e@s1", Some("@s0"), raw), Some("tank/e")),
        case(&request("src/v@s1", None, RICH), None),
        case(&package, None),
    ];
    from.close().unwrap();
    (to, cases)
}

fn into(target: &str) -> ReceiveRequest {
    ReceiveRequest {
        target: target.into(),
        ..ReceiveRequest::default()
    }
}

/// Whether the reader alone detects an error. A receive detects it too; the difference is only what
/// was applied before.
fn has_flaw(bytes: &[u8]) -> bool {
    let mut reader = StreamReader::new(bytes);
    loop {
        let done = match reader.next_record() {
            Ok(None) => return false,
            Ok(Some(item)) => match &item.record {
                Record::Begin(begin) if begin.header() != Header::Package => {
                    examine(&mut reader, &item)
                }
                Record::Begin(_) | Record::End { .. } => Ok(()),
                _ => Err(item.invalid("a record outside of a substream")),
            },
            Err(e) => Err(e),
        };
        match done {
            Ok(()) => {}
            Err(StreamError::Flaw { offset, .. }) => {
                assert!(offset <= bytes.len() as u64);
                return true;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// The user-visible state of a dataset.
fn seen(pool: &Arc<Pool>, name: &str) -> Vec<(String, u64)> {
    let dsl = pool.dsl();
    let list = pool
        .list(name, None, ListedKinds::WITH_SNAPSHOTS)
        .unwrap()
        .into_iter();
    list.map(|l| {
        (
            l.name.clone(),
            dsl.dataset(&l.name).unwrap().guid().unwrap(),
        )
    })
    .collect()
}

#[derive(Debug, Default)]
struct Counts {
    streams: usize,
    flaws: usize,
    refused: usize,
    good: usize,
    kept: usize,
}

/// Receives one changed stream and puts everything back.
fn one(pool: &Arc<Pool>, case: &Case, bytes: &[u8], resumable: bool, counts: &mut Counts) {
    let target = case.onto.unwrap_or("tank/new");
    let before = case.onto.map(|name| seen(pool, name));
    let request = ReceiveRequest {
        resumable,
        ..into(target)
    };
    counts.streams += 1;
    match pool.receive(bytes, &request, &mut |_| {}) {
        Ok(()) => {
            counts.good += 1;
            // Only the names and sizes: the contents were checked as far as a stream allows.
            if pool.exists(target).unwrap() && case.onto.is_none() && counts.good.is_multiple_of(4)
            {
                let _ = of_dataset(pool, target);
            }
        }
        Err(Error::Corrupt { place, .. }) => {
            check_place(&place.to_string(), bytes.len());
            counts.flaws += 1;
        }
        // BEGIN or the package requests something impossible: no data was read.
        Err(Error::Refused { .. } | Error::Unsupported { .. }) => counts.refused += 1,
        Err(other) => panic!("{other}"),
    }
    match (case.onto, before) {
        (Some(name), Some(before)) => {
            match pool.resume_token(name).unwrap() {
                Some(_) => {
                    assert!(resumable);
                    counts.kept += 1;
                    pool.dsl().abort_receive(name).unwrap();
                }
                None => assert!(pool.dsl().temporary(name).is_err()),
            }
            let after = seen(pool, name);
            if after != before {
                assert_eq!(
                    after[..before.len()],
                    before[..],
                    "what was there is not any more"
                );
                pool.rollback(&before[before.len() - 1].0, NewerSnapshots::Destroy)
                    .unwrap();
            }
        }
        _ => {
            let left = |e: Error| e.is(Errno::NOENT);
            match pool.resume_token(target) {
                Ok(Some(_)) => {
                    assert!(resumable);
                    counts.kept += 1;
                    pool.dsl().abort_receive(target).unwrap();
                }
                Ok(None) => {}
                Err(e) => assert!(left(e)),
            }
            for entry in pool.list("tank", Some(1), ListedKinds::HEADS).unwrap() {
                if !["tank", "tank/d", "tank/e"].contains(&entry.name.as_str()) {
                    pool.destroy_dataset(&entry.name, DestroyOptions::RECURSIVE.force(true))
                        .unwrap();
                }
            }
        }
    }
}

/// Errors of a stream name a record and an offset of it.
fn check_place(place: &str, len: usize) {
    assert!(place.starts_with("stream, record "), "{place}");
    let offset = place
        .rsplit(' ')
        .next()
        .and_then(|o| o.parse::<usize>().ok());
    assert!(offset.is_some_and(|o| o <= len), "{place}");
    let number = place.split([' ', ',']).nth(3).and_then(|n| n.parse().ok());
    assert!(number.is_some_and(|n: usize| n <= len / 312), "{place}");
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("ZUSE_SIM_STREAMS") else {
        return 0..250;
    };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Half of the cases, for each of two tests, which run at the same time.
fn half(which: usize) {
    let (to, cases) = cases();
    let parts: Vec<Parts> = cases.iter().map(|c| Parts::of(&c.bytes)).collect();
    // Rolling back asks for it; receiving does not.
    to.load_key("tank/e", &key()).unwrap();
    let before = ["tank/d", "tank/e"].map(|name| (name, seen(&to, name)));
    let manifest = of_dataset(&to, "tank/d").unwrap();
    let mut counts = Counts::default();
    let mut most = 0;
    let everything = std::env::var_os("ZUSE_SIM_STREAMS").is_some();
    for seed in seeds() {
        let prng = SeededPrng::new(seed * 2 + which as u64);
        // Packages are long.
        let at = match prng.below(cases.len() as u64) as usize {
            at if at + 1 == cases.len() && prng.chance(3, 4) => 2,
            at => at,
        };
        let bytes = changed(&prng, &cases[at].bytes, &parts[at], &parts);
        let start = counting::start();
        let resumable = prng.chance(1, 3);
        if has_flaw(&bytes) && !prng.chance(1, 4) && !everything {
            counts.streams += 1;
            counts.flaws += 1;
            continue;
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            one(&to, &cases[at], &bytes, resumable, &mut counts);
        }));
        assert!(
            done.is_ok(),
            "seed {} (case {at}) failed",
            seed * 2 + which as u64
        );
        let peak = counting::peak().saturating_sub(start);
        most = most.max(peak);
        assert!(
            peak < MEMORY,
            "seed {seed}, case {at}: {peak} bytes of memory"
        );
    }
    println!("{counts:?}, {} MiB at most", most >> 20);
    assert!(
        counts.flaws > counts.streams / 3 && counts.kept > 0,
        "{counts:?}"
    );
    for (name, snaps) in before {
        assert_eq!(seen(&to, name), snaps);
    }
    assert_eq!(of_dataset(&to, "tank/d").unwrap(), manifest);
    assert_eq!(of_dataset(&to, "tank/e@s0").unwrap().len(), manifest.len());
    check_pool(&to).unwrap();
    to.close().unwrap();
}

#[test]
fn changed_streams_do_no_harm() {
    half(0);
}

#[test]
fn more_changed_streams_do_no_harm() {
    half(1);
}

//! Receives that end at any byte, by the end of the input or by its error. No thread is left,
//! existing data stays, and a resumable receive can continue. It has its own process, because it
//! counts the threads.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zuse::stream::{ResumeToken, SendOptions, SendProgress, StreamWriter};
use zuse::tools::Layers as _;
use zuse::{Credentials, Errno, Error, KeyMaterial, Pool, ReceiveRequest, Recursion, SendRequest};
use zuse_base::{Entropy, SeededPrng};
use zuse_pool::Limits;
use zuse_sim::memory_pool::memory_pool;
use zuse_sim::round_trip::{check_pool, compare, sent};

/// Cuts of each stream.
const CUTS: usize = 40;

fn pool(name: &str) -> Arc<Pool> {
    memory_pool(name, 256 << 20, 9, Limits::default())
        .unwrap()
        .0
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    list.iter().map(own).collect()
}

/// The names of all threads of this process.
fn threads() -> Vec<String> {
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut names: Vec<String> = tasks.flatten().filter_map(name).collect();
    names.sort();
    names
}

/// The threads once only `known` ones are left, or after a time limit. A thread that has ended and
/// was joined can still be listed for a moment.
fn threads_in_the_end(known: &[String]) -> Vec<String> {
    let began = Instant::now();
    let count = |list: &[String], name: &String| list.iter().filter(|n| *n == name).count();
    loop {
        let now = threads();
        let more = now.iter().any(|n| count(&now, n) > count(known, n));
        if !more || began.elapsed() > Duration::from_secs(20) {
            return now;
        }
        std::thread::yield_now();
    }
}

fn change(pool: &Arc<Pool>, name: &str, prng: &SeededPrng) {
    let fs = pool.file_system(name).unwrap();
    let (root, top) = (Credentials::root(), fs.root().unwrap());
    for i in 0..30 {
        let file = format!("f{}", prng.below(40));
        let file = match fs.lookup(&root, &top, file.as_bytes()) {
            Ok(there) => there,
            Err(_) => fs.create(&root, &top, file.as_bytes(), 0o644).unwrap(),
        };
        let mut data = vec![i; 1 + prng.below(60_000) as usize];
        let noise = data.len() / 3;
        prng.fill(&mut data[..noise]);
        let at = prng.below(50_000);
        fs.write(&file, at, &data, Default::default()).unwrap();
    }
    fs.sync().unwrap();
}

/// Bytes that end, with or without an error.
struct Cut<'a> {
    rest: &'a [u8],
    fails: bool,
}

impl Read for Cut<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() && self.fails {
            return Err(std::io::Error::other("the line is dead"));
        }
        self.rest.read(buffer)
    }
}

fn resumed(from: &Arc<Pool>, token: &ResumeToken) -> Vec<u8> {
    let token = ResumeToken::parse(&token.to_text()).unwrap();
    let mut out = StreamWriter::new(Vec::new());
    let plan = from.plan_resume(&token).unwrap();
    plan.run(&mut out, &SendProgress::default(), &mut |_| {})
        .unwrap();
    out.into_inner().unwrap()
}

#[test]
fn a_receive_that_is_cut_at_any_byte_leaves_no_thread_and_no_half_snapshot() {
    let (from, to) = (pool("src"), pool("tank"));
    let prng = SeededPrng::new(11);
    let key = KeyMaterial::new(vec![5; 32]);
    make_sources(&from, &key);
    let mut known = None;
    for round in 0..2 {
        for (name, raw) in [("p", false), ("e", true)] {
            let source = format!("src/{name}");
            change(&from, &source, &prng);
            let whole = snapshot_sent(&from, &source, round, raw);
            let mut stream = whole.clone();
            let target = format!("tank/{name}");
            let ours = format!("{target}@{round}");
            for i in 0..CUTS {
                let at = 1 + prng.below(stream.len() as u64 - 1) as usize;
                let resumable = i % 3 == 0;
                let input = Cut {
                    rest: &stream[..at],
                    fails: i % 2 == 0,
                };
                let request = ReceiveRequest {
                    target: target.clone(),
                    resumable,
                    ..ReceiveRequest::default()
                };
                let e = to.receive(input, &request, &mut |_| {}).unwrap_err();
                let dead = matches!(&e, Error::Corrupt { .. }) || e.to_string().contains("dead");
                assert!(dead, "{ours}, byte {at}: {e}");
                assert!(to.dsl().dataset(&ours).is_err(), "{ours}, byte {at}");
                // The pool's own threads are started by the first receive.
                let before = known.get_or_insert_with(threads);
                let now = threads_in_the_end(before);
                assert!(
                    now.len() <= before.len(),
                    "{ours}, byte {at}: {before:?}, then {now:?}"
                );
                *before = now;
                stream = match to.resume_token(&target) {
                    Ok(Some(token)) => resumed(&from, &token),
                    Ok(None) => whole.clone(),
                    Err(e) if e.is(Errno::NOENT) => whole.clone(),
                    Err(e) => panic!("{ours}, byte {at}: {e}"),
                };
            }
            let request = ReceiveRequest {
                target: target.clone(),
                ..ReceiveRequest::default()
            };
            to.receive(&stream[..], &request, &mut |_| {}).unwrap();
            if raw {
                let _ = to.load_key(&target, &key);
            }
            compare(&from, &format!("{source}@{round}"), &to, &ours).unwrap();
        }
    }
    check_pool(&to).unwrap();
    from.close().unwrap();
    to.close().unwrap();
}

/// A file system in clear and an encrypted one.
fn make_sources(from: &Arc<Pool>, key: &KeyMaterial) {
    let shape = pairs(&[("recordsize", "8K"), ("compression", "lz4")]);
    let secret = [
        shape.clone(),
        pairs(&[("encryption", "on"), ("keyformat", "raw")]),
    ]
    .concat();
    from.create_filesystem("src/p", &shape, (0, 0)).unwrap();
    from.create_filesystem_with_key("src/e", &secret, (0, 0), Some(key))
        .unwrap();
}

/// Takes a snapshot and sends it, from the one before if there is one.
fn snapshot_sent(from: &Arc<Pool>, source: &str, round: i32, raw: bool) -> Vec<u8> {
    let snap = format!("{source}@{round}");
    from.snapshot(std::slice::from_ref(&snap), Recursion::One, &[])
        .unwrap();
    let request = SendRequest {
        to: snap,
        from: (round > 0).then(|| "@0".to_owned()),
        options: SendOptions {
            raw,
            compressed: true,
            ..SendOptions::default()
        },
        ..SendRequest::default()
    };
    sent(from, &request).unwrap()
}

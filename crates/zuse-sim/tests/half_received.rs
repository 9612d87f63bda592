//! The result of receives after a crash. Resumable ones stay; the others are removed when the pool
//! is opened for writing. The pool is consistent after that.

use std::io::Read;
use std::sync::Arc;

use zuse::stream::{SendOptions, SendProgress, StreamWriter};
use zuse::tools::Layers as _;
use zuse::{Credentials, Pool, PoolAccess, ReceiveRequest, Recursion};
use zuse_base::{Entropy, SeededPrng};
use zuse_check::{Depth, check};
use zuse_device::{BlockDevice, MemDevice, MemImage};
use zuse_pool::{Environment, Limits};
use zuse_sim::golden::open_whole;
use zuse_sim::memory_pool::memory_pool;
use zuse_zpl::WriteOptions;

/// A stream that, in its middle, takes an image of the target disk.
struct CutInTheMiddle<'a> {
    stream: &'a [u8],
    at: usize,
    pool: &'a Pool,
    device: &'a MemDevice,
    image: Option<MemImage>,
}

impl Read for CutInTheMiddle<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let half = self.stream.len() / 2;
        if self.at >= half && self.image.is_none() {
            self.pool.sync().expect("sync");
            self.image = Some(self.device.snapshot());
        }
        let end = if self.image.is_some() {
            self.stream.len()
        } else {
            half
        };
        let from = self.stream.get(self.at..end).unwrap_or_default();
        let n = from.len().min(into.len());
        into[..n].copy_from_slice(&from[..n]);
        self.at += n;
        Ok(n)
    }
}

fn write(pool: &Arc<Pool>, name: &str) {
    let fs = pool.file_system("tank/a").expect("open");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    let file = fs
        .create(&who, &root, name.as_bytes(), 0o644)
        .expect("create");
    let mut bytes = vec![0; 700_000];
    SeededPrng::new(name.len() as u64).fill(&mut bytes);
    fs.write(&file, 0, &bytes, WriteOptions::default())
        .expect("write");
}

fn sent(pool: &Arc<Pool>, to: &str, from: Option<&str>) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new());
    let send = pool.send(to, from, SendOptions::default()).expect("send");
    send.run(&mut out, &SendProgress::default()).expect("run");
    out.into_inner().expect("stream")
}

fn request(target: &str, resumable: bool) -> ReceiveRequest {
    ReceiveRequest {
        target: target.into(),
        resumable,
        force: true,
        ..ReceiveRequest::default()
    }
}

/// Partly received heads, including those without a reachable name.
fn half_received(pool: &Pool) -> Vec<String> {
    let mut found = Vec::new();
    for name in ["tank/new", "tank/old"] {
        if pool.dsl().temporary(name).is_ok() {
            found.push(format!("{name}/%recv"));
        }
        let there = pool.dsl().dataset(name);
        if there.is_ok_and(|ds| pool.dsl().stat(&ds).expect("stat").inconsistent) {
            found.push(name.to_owned());
        }
    }
    found
}

fn sound(pool: &Pool) {
    pool.sync().expect("sync");
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
    let flaws = zuse_dsl::check_accounting(pool.dsl());
    assert!(flaws.is_empty(), "{flaws:?}");
}

fn open(image: &MemImage, writable: bool) -> Arc<Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::from_image("sim", image));
    let access = PoolAccess {
        writable,
        force: true,
        ..PoolAccess::default()
    };
    open_whole(Environment::default(), &[device], &access).expect("open")
}

#[test]
fn what_cannot_go_on_is_gone_when_the_pool_is_opened_for_writing() {
    for (resumable, target, left) in [
        (false, "tank/new", "tank/new"),
        (false, "tank/old", "tank/old/%recv"),
        (true, "tank/new", "tank/new"),
        (true, "tank/old", "tank/old/%recv"),
    ] {
        let (pool, device) = memory_pool("tank", 64 << 20, 12, Limits::default()).expect("create");
        pool.create_filesystem("tank/a", &[], (0, 0)).expect("a");
        write(&pool, "x");
        pool.snapshot(&["tank/a@s".into()], Recursion::One, &[])
            .expect("s");
        write(&pool, "yy");
        pool.snapshot(&["tank/a@t".into()], Recursion::One, &[])
            .expect("t");
        let full = sent(&pool, "tank/a@s", None);
        let received = pool.receive(full.as_slice(), &request("tank/old", false), &mut |_| {});
        received.expect("receive");
        let stream = match target {
            "tank/old" => sent(&pool, "tank/a@t", Some("@s")),
            _ => full,
        };
        let mut cut = CutInTheMiddle {
            stream: &stream,
            at: 0,
            pool: &pool,
            device: &device,
            image: None,
        };
        let done = pool.receive(&mut cut, &request(target, resumable), &mut |_| {});
        done.expect("receive");
        let image = cut.image.expect("it was read to its middle");
        let what = format!("{target}, resumable: {resumable}");
        assert_eq!(half_received(&open(&image, false)), [left], "{what}");
        let pool = open(&image, true);
        let wanted = if resumable { vec![left] } else { vec![] };
        assert_eq!(half_received(&pool), wanted, "{what}");
        let there = pool.exists("tank/new").expect("look");
        assert_eq!(there, resumable && target == "tank/new", "{what}");
        sound(&pool);
        // The place is free for what comes next.
        if resumable {
            pool.dsl().abort_receive(target).expect("abort");
        }
        let again = pool.receive(stream.as_slice(), &request(target, false), &mut |_| {});
        again.expect("receive");
        sound(&pool);
    }
}

//! Everything at once against a model, with power cuts. `ZUSE_SIM_SEEDS` asks for more histories.

use zuse::stream::{SendOptions, SendProgress, StreamWriter};
use zuse::tools::Layers as _;
use zuse::{Credentials, ReceiveRequest, Recursion};
use zuse_check::{Depth, check};
use zuse_pool::Limits;
use zuse_sim::memory_pool::memory_pool;
use zuse_sim::mixtures::{Counts, history, starts};
use zuse_sim::seeds::seeds;
use zuse_zpl::WriteOptions;

#[test]
fn a_pool_of_everything_is_its_model_after_every_cut() {
    let range = seeds(200);
    let count = range.end - range.start;
    let starts = starts().expect("pools");
    let one = |first| {
        let (range, starts) = (range.clone(), &starts);
        move || {
            let mut counts = Counts::default();
            let mut failures = Vec::new();
            for seed in range.filter(|s| s % 2 == first) {
                match history(starts, seed) {
                    Ok(done) => counts += done,
                    Err(e) => failures.push(e),
                }
            }
            (counts, failures)
        }
    };
    let done = std::thread::scope(|scope| {
        let threads = [0, 1].map(|first| scope.spawn(one(first)));
        threads.map(|t| t.join().expect("a thread"))
    });
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    for (one, wrong) in done {
        counts += one;
        failures.extend(wrong);
    }
    println!("{count} histories, {} failures: {counts:?}", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if count >= 24 {
        let all = [
            counts.newer,
            counts.rewound,
            counts.checkpoints,
            counts.lists,
        ];
        let all = [&all[..], &[counts.shared, counts.obsolete]].concat();
        assert!(all.iter().all(|n| *n > 0), "{counts:?}");
    }
}

/// A dataset that is being received has no master node at first; nothing of it is broken.
#[test]
fn the_checker_takes_a_dataset_for_sound_that_was_received_in_part() {
    let (pool, _device) = memory_pool("tank", 128 << 20, 12, Limits::default()).expect("create");
    pool.create_filesystem("tank/a", &[], (0, 0)).expect("a");
    let fs = pool.file_system("tank/a").expect("a");
    let (who, root) = (Credentials::root(), fs.root().expect("root"));
    for n in 0..40 {
        let name = format!("f{n}");
        let file = fs.create(&who, &root, name.as_bytes(), 0o644);
        let data = [n; 9000];
        fs.write(&file.expect("create"), 0, &data, WriteOptions::default())
            .expect("write");
    }
    drop((fs, root));
    pool.snapshot(&["tank/a@s".into()], Recursion::One, &[])
        .expect("snapshot");
    let mut out = StreamWriter::new(Vec::new());
    pool.send("tank/a@s", None, SendOptions::default())
        .and_then(|send| send.run(&mut out, &SendProgress::default()))
        .expect("send");
    let stream = out.into_inner().expect("stream");
    let mut partial = 0;
    for part in [2, 10, 50, 95] {
        let target = format!("tank/b{part}");
        let request = ReceiveRequest {
            target: target.clone(),
            resumable: true,
            ..ReceiveRequest::default()
        };
        let cut = &stream[..stream.len() * part / 100];
        let received = pool.receive(cut, &request, &mut |_| {});
        received.expect_err("a stream that ends early");
        partial += usize::from(pool.exists(&target).expect("look"));
    }
    assert!(partial > 1, "{partial}");
    pool.sync().expect("sync");
    let report = check(pool.spa(), Depth::All).expect("check");
    assert!(report.is_clean(), "{:#?}", report.problems);
}

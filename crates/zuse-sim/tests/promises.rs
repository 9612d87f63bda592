//! Power cuts under writes that were promised durable by an intent log.

use zuse_base::sync::Mutex;
use zuse_sim::promises::{Counts, Rules, chain};
use zuse_sim::seeds::seeds;

fn rules() -> Vec<Rules> {
    let base = Rules::default();
    vec![
        base,
        Rules {
            copied: true,
            ..base
        },
        Rules {
            shared: true,
            copied: true,
            ..base
        },
        Rules {
            encrypted: true,
            ..base
        },
        Rules {
            disks: 2,
            within: 400,
            ..base
        },
        Rules {
            throughput: true,
            disks: 2,
            ..base
        },
        Rules {
            size: 1 << 20,
            block_size: 128 << 10,
            ..base
        },
        Rules {
            throughput: true,
            encrypted: true,
            disks: 2,
            size: 1 << 20,
            block_size: 64 << 10,
            ..base
        },
        Rules {
            ashift: 9,
            within: 40,
            threads: 2,
            ..base
        },
    ]
}

fn run(seeds: std::ops::Range<u64>, ignore_flushes: bool) -> (Counts, Vec<String>) {
    let rules = rules();
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let all = Mutex::new((Counts::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let rules = Rules {
                        ignore_flushes,
                        ..rules[(seed % rules.len() as u64) as usize]
                    };
                    let done = chain(&rules, seed);
                    let mut all = all.lock();
                    match done {
                        Ok(t) => {
                            all.0.cuts += t.cuts;
                            all.0.promises += t.promises;
                            all.0.blocks += t.blocks;
                            all.0.flushes += t.flushes;
                            all.0.by_flush += t.by_flush;
                            all.0.placed += t.placed;
                        }
                        Err(e) => all.1.push(e),
                    }
                }
            });
        }
    });
    all.into_inner()
}

#[test]
fn what_was_promised_is_there_after_every_cut() {
    let (counts, failures) = run(seeds(45), false);
    println!("{counts:?}, {} failures", failures.len());
    let first: Vec<&str> = failures.iter().take(5).map(String::as_str).collect();
    assert!(failures.is_empty(), "{}", first.join("\n"));
    assert!(
        counts.by_flush > counts.cuts && counts.blocks > counts.cuts,
        "{counts:?}"
    );
    assert!(counts.placed > counts.cuts, "{counts:?}");
}

#[test]
fn without_flushes_promises_are_broken() {
    let (counts, failures) = run(0..12, true);
    println!("{counts:?}, {} failures", failures.len());
    assert!(
        !failures.is_empty(),
        "disks that ignore flushes were not noticed: the test proves nothing"
    );
}

//! Power cuts under file systems whose changes were promised durable by an intent log.

use std::sync::atomic::{AtomicU64, Ordering};

use zuse_base::sync::Mutex;
use zuse_sim::promised_files::{Counts, Rules, chain};
use zuse_sim::seeds::seeds;

fn run(seeds: std::ops::Range<u64>, ignore_flushes: bool) -> (Counts, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new((Counts::default(), Vec::new()));
    let one = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let rules = Rules {
                ignore_flushes,
                ..Rules::of_seed(seed)
            };
            let done = chain(&rules, seed);
            let mut all = all.lock();
            match done {
                Ok(t) => {
                    all.0.cuts += t.cuts;
                    all.0.promises += t.promises;
                    all.0.by_flush += t.by_flush;
                    all.0.placed += t.placed;
                }
                Err(e) => all.1.push(e),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(one);
        scope.spawn(one);
    });
    all.into_inner()
}

#[test]
fn files_are_what_fsync_promised_after_every_cut() {
    let (counts, failures) = run(seeds(36), false);
    println!("{counts:?}, {} failures", failures.len());
    let first: Vec<&str> = failures.iter().take(3).map(String::as_str).collect();
    assert!(failures.is_empty(), "{}", first.join("\n"));
    assert!(counts.by_flush > counts.cuts, "{counts:?}");
    assert!(counts.placed > counts.cuts, "{counts:?}");
}

#[test]
fn without_flushes_files_are_lost() {
    let (counts, failures) = run(0..4, true);
    println!(
        "{counts:?}, {} failures: {:?}",
        failures.len(),
        failures.first()
    );
    assert!(!failures.is_empty(), "the test proves nothing");
}

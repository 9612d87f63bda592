//! Power cuts under file systems whose changes were promised durable by an intent log.

use std::sync::atomic::{AtomicU64, Ordering};

use zuse_base::sync::Mutex;
use zuse_sim::promised_files::{Rules, Tally, chain};
use zuse_sim::seeds::seeds;

fn run(seeds: std::ops::Range<u64>, ignore_flushes: bool) -> (Tally, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new((Tally::default(), Vec::new()));
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
    let (tally, failures) = run(seeds(36), false);
    println!("{tally:?}, {} failures", failures.len());
    let first: Vec<&str> = failures.iter().take(3).map(String::as_str).collect();
    assert!(failures.is_empty(), "{}", first.join("\n"));
    assert!(tally.by_flush > tally.cuts, "{tally:?}");
    assert!(tally.placed > tally.cuts, "{tally:?}");
}

#[test]
fn without_flushes_files_are_lost() {
    let (tally, failures) = run(0..4, true);
    println!(
        "{tally:?}, {} failures: {:?}",
        failures.len(),
        failures.first()
    );
    assert!(!failures.is_empty(), "the test proves nothing");
}

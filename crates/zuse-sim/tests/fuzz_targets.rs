//! The fuzz targets over their corpora (`fuzz/corpus`) and seeded changes of them. A failure names
//! target and seed: `ZUSE_SIM_FUZZ=FROM..TO` runs other seeds, `ZUSE_SIM_FUZZ_TARGET=NAME` one
//! target.

#[path = "support/counting.rs"]
mod counting;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use counting::{Counting, processor_seconds};
use zuse_base::SeededPrng;
use zuse_sim::fuzz::{TARGETS, Target, mutated};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that one input may make a target ask for.
const MEMORY: u64 = 1 << 30;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    let all: Vec<_> = paths
        .iter()
        .map(|p| std::fs::read(p).expect("readable"))
        .collect();
    assert!(!all.is_empty(), "{target} has no corpus");
    all
}

fn seeds(target: &Target) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("ZUSE_SIM_FUZZ") else {
        // A pool is made for each stream that is received.
        return 0..if target.name == "receive" { 6 } else { 150 };
    };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Runs a target; what it is at can be seen in `at` meanwhile.
fn work(target: Target, seeds: std::ops::Range<u64>, at: &AtomicU64) {
    let corpus = corpus(target.name);
    let one = |bytes: &[u8], what: &str| {
        let before = counting::start();
        (target.run)(bytes);
        let peak = counting::peak().saturating_sub(before);
        assert!(
            peak < MEMORY,
            "{} {what}: {peak} bytes of memory",
            target.name
        );
    };
    for (i, bytes) in corpus.iter().enumerate() {
        one(bytes, &format!("input {i}"));
    }
    for seed in seeds {
        at.store(seed, Relaxed);
        let bytes = mutated(&SeededPrng::new(seed), &corpus);
        one(&bytes, &format!("seed {seed}"));
    }
}

#[test]
fn no_bytes_make_a_parser_fall() {
    let only = std::env::var("ZUSE_SIM_FUZZ_TARGET").ok();
    for target in TARGETS
        .into_iter()
        .filter(|t| only.as_deref().is_none_or(|o| o == t.name))
    {
        let range = seeds(&target);
        let count = range.end - range.start;
        let at = Arc::new(AtomicU64::new(range.start));
        let watched = at.clone();
        let name = format!("fuzz {}", target.name);
        let thread = std::thread::Builder::new().name(name);
        let thread = thread
            .spawn(move || work(target, range, &at))
            .expect("a thread");
        // Processor time counts: the machine may be busy.
        let (mut seen, mut since, mut turns) = (u64::MAX, 0.0, 0);
        while !thread.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let (now, used) = (watched.load(Relaxed), processor_seconds());
            if now != seen {
                (seen, since, turns) = (now, used, 0);
            }
            turns += 1;
            assert!(
                used - since < 20.0 && turns < 6000,
                "{} seed {now}: no end after 20 s of processor time or 120 s",
                target.name
            );
        }
        let seed = watched.load(Relaxed);
        assert!(
            thread.join().is_ok(),
            "{} seed {seed} (or an input of the corpus before) failed",
            target.name
        );
        println!("{}: {count} changed inputs", target.name);
    }
}

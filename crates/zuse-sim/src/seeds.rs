//! Which histories a test runs.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds of a test's histories: the first `usual` ones, unless `ZUSE_SIM_SEEDS` says how many
/// (`500`) or which (`500..900`).
///
/// # Panics
/// If the variable says neither.
pub fn seeds(usual: u64) -> Range<u64> {
    let Ok(text) = std::env::var("ZUSE_SIM_SEEDS") else {
        return 0..usual;
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let asked = match text.split_once("..") {
        Some((from, to)) => number(from).zip(number(to)),
        None => number(&text).map(|to| (0, to)),
    };
    let Some((from, to)) = asked else {
        panic!("ZUSE_SIM_SEEDS is neither a number nor a range: {text}");
    };
    from..to
}

/// Runs every seed once, `threads` of them at a time.
///
/// # Panics
/// If one of them does. The others end first.
pub fn each(seeds: Range<u64>, threads: usize, run: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    run(seed);
                }
            });
        }
    });
}

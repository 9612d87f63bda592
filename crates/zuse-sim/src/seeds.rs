//! Which histories a test runs.

use std::ops::Range;

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

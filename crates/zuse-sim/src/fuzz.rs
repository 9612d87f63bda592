//! What is fuzzed: one function per kind of hostile bytes, shared by `fuzz/` (cargo-fuzz) and
//! `tests/fuzz_targets.rs`.
//!
//! A target accepts any bytes and returns. It fails by a panic, a hang, or unlimited memory use.
//! Parsed data must also survive writing and parsing again, if it can be written.
//!
//! Checksums hide parsers from a fuzzer. So targets begin after their verification: decoded blocks,
//! sealed streams.

mod bytes;
mod objects;
mod streams;

use zuse_base::{Entropy, SeededPrng};

use crate::rewrite::scramble;

/// One thing to be fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of its corpus and of its binary.
    pub name: &'static str,
    /// Runs it on some bytes.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 11] = [
    target("nvlist", bytes::nvlist),
    target("label", bytes::label),
    target("block", bytes::block),
    target("dnode", bytes::dnode),
    target("space_map", bytes::space_map),
    target("zil", bytes::zil),
    target("dsl", bytes::dsl),
    target("zap", objects::zap),
    target("sa", objects::sa),
    target("stream", streams::parse),
    target("receive", streams::receive),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// Runs a target by its name.
///
/// # Panics
/// If there is none of that name, or the target fails.
pub fn run(name: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|t| t.name == name);
    (found.unwrap_or_else(|| panic!("no target {name}")).run)(bytes);
}

/// Another input, made from one or two of a corpus: fields changed, truncated, spliced.
pub fn mutated(prng: &SeededPrng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = prng.pick(corpus).cloned().unwrap_or_default();
    match prng.below(8) {
        0 => bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize),
        1 => {
            let other = prng.pick(corpus).cloned().unwrap_or_default();
            let at = prng.below(bytes.len().min(other.len()) as u64 + 1) as usize & !7;
            bytes.truncate(at);
            bytes.extend_from_slice(&other[at.min(other.len())..]);
        }
        2 => {
            let at = prng.below(bytes.len() as u64 + 1) as usize;
            let more = vec![prng.below(256) as u8; prng.range(1..64) as usize];
            bytes.splice(at..at, more);
        }
        _ => {}
    }
    for _ in 0..prng.range(1..6) {
        // Most structures describe in their first bytes how to parse the rest.
        let end = match prng.below(3) {
            0 => bytes.len().min(256),
            _ => bytes.len(),
        };
        scramble(prng, &mut bytes, 0, end);
    }
    bytes
}

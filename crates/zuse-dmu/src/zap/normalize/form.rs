//! Unicode normal forms as OpenZFS computes them: by sequences, with the data of Unicode 5.0.
//!
//! A sequence is one character and the marks (combining class ≠ 0 by itself) after it. It is
//! decomposed, its marks are ordered, and for NFC and NFKC it is composed. Ordinary text gives the
//! standard result. The known differences are kept, because a name must have the hash that its
//! writer computed:
//! - a character of class 0 that decomposes into marks starts a sequence of its own;
//! - after a composition in a sequence, later marks are tried without the "blocked" test;
//! - a sequence is cut at 31 characters, with U+034F put after them;
//! - only the first character of a sequence is upper-cased (and U+0345 anywhere).

mod assigned;

use super::upper::upper;
use assigned::is_assigned;
use unicode_normalization::char::{
    canonical_combining_class, compose, decompose_canonical, decompose_compatible,
};

const LONGEST: usize = 31;
const GRAPHEME_JOINER: char = '\u{34f}';

/// Which of the four forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Compatibility decomposition, not only canonical.
    pub compatible: bool,
    /// Compose again.
    pub compose: bool,
}

fn class(c: char) -> u8 {
    if (c as u32) < 0x300 || !is_assigned(c) {
        0
    } else {
        canonical_combining_class(c)
    }
}

fn composed(a: char, b: char) -> Option<char> {
    if !is_assigned(a) || !is_assigned(b) {
        return None;
    }
    compose(a, b).filter(|&c| is_assigned(c))
}

impl Form {
    /// The normal form of a text.
    pub(crate) fn apply(self, text: &str, fold: bool) -> String {
        let mut out = String::with_capacity(text.len() + 8);
        let mut sequence: Vec<char> = Vec::with_capacity(LONGEST + 20);
        let mut chars = text.chars().peekable();
        while let Some(first) = chars.next() {
            sequence.clear();
            self.decompose(if fold { upper(first) } else { first }, &mut sequence);
            while let Some(mark) = chars.next_if(|&c| class(c) != 0) {
                let mark = if fold && mark == '\u{345}' {
                    '\u{399}'
                } else {
                    mark
                };
                self.decompose(mark, &mut sequence);
                if sequence.len() >= LONGEST {
                    sequence.push(GRAPHEME_JOINER);
                    break;
                }
            }
            order(&mut sequence);
            if self.compose {
                compose_sequence(&mut sequence);
                // The next character may join a starter that ended the sequence: Hangul, some Indic
                // vowels.
                while let Some(&last) = sequence.last()
                    && let Some(&next) = chars.peek()
                    && !next.is_ascii()
                    && let Some(both) = composed(last, next)
                {
                    chars.next();
                    sequence.pop();
                    sequence.push(both);
                }
            }
            out.extend(&sequence);
        }
        out
    }

    fn decompose(self, c: char, out: &mut Vec<char>) {
        if c.is_ascii() || !is_assigned(c) {
            out.push(c);
        } else if self.compatible {
            decompose_compatible(c, |d| out.push(d));
        } else {
            decompose_canonical(c, |d| out.push(d));
        }
    }
}

/// Canonical order: each run of marks sorted by class, stably.
fn order(sequence: &mut [char]) {
    for run in sequence.split_mut(|&c| class(c) == 0) {
        if run.len() > 1 {
            run.sort_by_key(|&c| class(c));
        }
    }
}

fn compose_sequence(sequence: &mut Vec<char>) {
    let mut starter = None;
    let mut last_class = 0;
    let mut any = false;
    let mut kept = 0;
    for at in 0..sequence.len() {
        let c = sequence[at];
        let cc = class(c);
        if let Some(s) = starter {
            let adjacent = kept == s + 1;
            let open = adjacent || any && cc != 0 || last_class < cc;
            if open && let Some(both) = composed(sequence[s], c) {
                sequence[s] = both;
                any = true;
                continue;
            }
        }
        if cc == 0 {
            starter = Some(kept);
            any = false;
        }
        last_class = cc;
        sequence[kept] = c;
        kept += 1;
    }
    sequence.truncate(kept);
}

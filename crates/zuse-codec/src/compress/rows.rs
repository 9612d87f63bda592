//! LZ4 of small blocks that are rows of one width: micro ZAPs of a few names.
//!
//! A row is like the one before it but for a few fields. So a match is looked for in two places only, a row's width back and one
//! byte back (a run). That needs no table, and a block of a few rows becomes smaller than by the search for the latest place with
//! the same four bytes (mostly zeros somewhere, which end too early): seven names that differ in their last digit take 102 to 115
//! bytes, not 136 to 143. What comes out is a block as any other.

use super::sequences::{LITERAL_END, NO_START, SHORTEST, Sequences};

/// Compresses rows of `width` bytes (below 64 KiB) into at most `max_dst` bytes, in the stored form of lz4; gives the length.
///
/// None, with `dst` empty: it did not fit.
pub fn compress_rows(src: &[u8], width: u16, dst: &mut Vec<u8>, max_dst: usize) -> Option<usize> {
    let done = squeeze(src, width.max(1), dst, max_dst);
    dst.truncate(done.unwrap_or(0));
    done
}

#[inline]
fn word(src: &[u8], at: usize) -> Option<u32> {
    src.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// How many bytes from `at` on are as they are `back` before it, up to `end`.
#[inline]
fn alike(src: &[u8], at: usize, back: usize, end: usize) -> usize {
    let (Some(old), Some(new)) = (src.get(at - back..end - back), src.get(at..end)) else {
        return 0;
    };
    let (old_words, old_rest) = old.as_chunks::<8>();
    let (new_words, new_rest) = new.as_chunks::<8>();
    for (i, (a, b)) in old_words.iter().zip(new_words).enumerate() {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return 8 * i + differ.trailing_zeros() as usize / 8;
        }
    }
    let rest = old_rest.iter().zip(new_rest);
    8 * new_words.len() + rest.take_while(|(a, b)| a == b).count()
}

/// A match so long that no other is looked for.
const ENOUGH: usize = 16;

/// The longer one of a row back and a run: its length, 0 for neither, and how far back it is.
#[inline]
fn longest(src: &[u8], at: usize, width: u16, end: usize) -> (usize, u16) {
    let here = word(src, at);
    let of = |back: u16| {
        let from = at.wrapping_sub(usize::from(back));
        // Beyond the beginning it is beyond the end.
        if word(src, from) != here {
            return 0;
        }
        SHORTEST + alike(src, at + SHORTEST, usize::from(back), end)
    };
    let row = of(width);
    if row >= ENOUGH {
        return (row, width);
    }
    let run = of(1);
    if run > row { (run, 1) } else { (row, width) }
}

fn squeeze(src: &[u8], width: u16, dst: &mut Vec<u8>, max_dst: usize) -> Option<usize> {
    let mut out = Sequences::new(src, dst, max_dst);
    let end = src.len().saturating_sub(LITERAL_END);
    let starts = (src.len() + 1).saturating_sub(NO_START);
    let mut at = 1;
    while at < starts {
        let (mut length, mut back) = longest(src, at, width, end);
        if length < SHORTEST {
            at += 1;
            continue;
        }
        // One more literal, if that makes it longer by more.
        if length < ENOUGH && at + 1 < starts {
            let (next, its_back) = longest(src, at + 1, width, end);
            if next > length + 1 {
                (length, back) = (next, its_back);
                at += 1;
            }
        }
        out.matched(at, length, back)?;
        at += length;
    }
    out.finish()
}

#[cfg(test)]
pub(super) mod tests;

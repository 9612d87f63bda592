//! LZ4 of a table of chunks: a leaf of a fat ZAP.
//!
//! Behind a head (mostly 0xff: buckets without an entry) it has chunks of 24 bytes that say in their first byte what they are: an
//! entry, a piece of its name or its value, or free. A chunk is like the latest one of its kind but for a few fields, so that is the
//! only place where a match is looked for: one comparison of 24 bytes, no table. In the head it is the byte before.
//!
//! ```text
//!   bucket heads   entry  name  value   entry  name  value   free  free
//!    ▲─┘              ▲────────────────────┘                    ▲────┘       each looks at the latest of its kind
//! ```
//! A leaf of 16 KiB of a directory of a million takes 6 µs so, and 17 by the search for the latest place with the same four bytes; it
//! becomes 1 % longer. Names of many lengths make 10 to 30 % of that: the caller looks whether a sector more came of it.

use super::sequences::{NO_START, SHORTEST, Sequences};

/// Bytes of a chunk.
const CHUNK: usize = 24;
/// The first byte of an entry, and of a piece of a name or a value; what else there is is free.
const ENTRY: u8 = 252;
const PIECE: u8 = 251;
/// Pieces that are told apart, of a name and of a value: the first, the second, the others.
const PIECES: usize = 3;
/// The kinds: entries, pieces of names, pieces of values, free.
const KINDS: usize = 2 + 2 * PIECES;
/// Longest source: no match is from further back than a distance can say.
const LONGEST: usize = u16::MAX as usize;
/// Bytes that are compared at once.
const WIDE: usize = 32;

/// Compresses a table whose chunks begin at `first` and go to its end into at most `max_dst` bytes, in the stored form of lz4; gives
/// the length.
///
/// None, with `dst` empty: it did not fit, or is 64 KiB or longer.
pub fn compress_chunks(
    src: &[u8],
    first: usize,
    dst: &mut Vec<u8>,
    max_dst: usize,
) -> Option<usize> {
    let done = squeeze(src, first, dst, max_dst);
    dst.truncate(done.unwrap_or(0));
    done
}

/// A bit for each byte that is the same in both.
#[inline(always)]
fn alike(a: &[u8; WIDE], b: &[u8; WIDE]) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
        let ((a, _), (b, _)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
        let bits = |i: usize| {
            let (a, b) = (a[i].as_ptr().cast(), b[i].as_ptr().cast());
            // SAFETY: both are sixteen bytes that can be read, and the build is for processors with SSE2.
            unsafe {
                _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(a), _mm_loadu_si128(b))) as u32
            }
        };
        bits(0) | bits(1) << 16
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    {
        let same = a.iter().zip(b).map(|(a, b)| u32::from(a == b));
        same.enumerate().fold(0, |bits, (i, same)| bits | same << i)
    }
}

#[inline(always)]
fn wide(src: &[u8], at: usize) -> Option<&[u8; WIDE]> {
    src.get(at..).and_then(<[u8]>::first_chunk)
}

/// A match that may go on.
#[derive(Clone, Copy)]
struct Open {
    start: usize,
    back: usize,
}

/// The latest chunk of each kind, and which kind the next piece is of.
struct Kinds {
    latest: [usize; KINDS],
    next_piece: usize,
}

impl Kinds {
    /// How far back the one before it of the same kind is: 0 if there is none.
    #[inline(always)]
    fn back(&mut self, at: usize, chunk: &[u8; WIDE]) -> usize {
        let kind = match chunk[0] {
            ENTRY => {
                self.next_piece = 0;
                2 * PIECES
            }
            PIECE => {
                let kind = self.next_piece;
                // Where no more of it follows the value begins.
                if chunk[22..CHUNK] == [0xff; 2] {
                    self.next_piece = PIECES;
                } else if kind % PIECES < PIECES - 1 {
                    self.next_piece += 1;
                }
                kind
            }
            _ => 2 * PIECES + 1,
        };
        match std::mem::replace(&mut self.latest[kind], at) {
            0 => 0,
            latest => at - latest,
        }
    }
}

fn squeeze(src: &[u8], first: usize, dst: &mut Vec<u8>, max_dst: usize) -> Option<usize> {
    if src.len() > LONGEST || first == 0 {
        return None;
    }
    let mut out = Sequences::new(src, dst, max_dst);
    runs(src, first.min(src.len().saturating_sub(NO_START)), &mut out)?;
    let mut kinds = Kinds {
        latest: [0; KINDS],
        next_piece: 0,
    };
    // Where the next chunk begins there is one that may go on with it.
    let mut open: Option<Open> = None;
    let mut at = first;
    // The last chunk is literals.
    while at + 2 * CHUNK <= src.len() {
        let chunk = wide(src, at)?;
        let back = kinds.back(at, chunk);
        let mut same = match back {
            0 => 0,
            _ => alike(chunk, wide(src, at - back)?) & ((1 << CHUNK) - 1),
        };
        if let Some(before) = open {
            let more = match before.back == back {
                true => same.trailing_ones(),
                false => 0,
            };
            if more == CHUNK as u32 {
                at += CHUNK;
                continue;
            }
            close(&mut out, before, at + more as usize)?;
            open = None;
            same &= u32::MAX << more;
        }
        // Where four in a row begin.
        let mut starts = same & (same >> 1) & (same >> 2) & (same >> 3);
        while starts != 0 {
            let start = starts.trailing_zeros();
            let end = start + (same >> start).trailing_ones();
            let this = Open {
                start: at + start as usize,
                back,
            };
            if end == CHUNK as u32 {
                open = Some(this);
                break;
            }
            close(&mut out, this, at + end as usize)?;
            starts &= u32::MAX << end;
        }
        at += CHUNK;
    }
    if let Some(before) = open {
        close(&mut out, before, at)?;
    }
    out.finish()
}

#[inline(always)]
fn close(out: &mut Sequences<'_>, open: Open, end: usize) -> Option<()> {
    out.matched(open.start, end - open.start, open.back as u16)
}

/// Runs of one byte in the first `end` bytes, but for those that end beyond.
fn runs(src: &[u8], end: usize, out: &mut Sequences<'_>) -> Option<()> {
    let mut open: Option<usize> = None;
    let mut at = 1;
    while at + WIDE <= end {
        let same = alike(wide(src, at)?, wide(src, at - 1)?);
        let mut bit = 0;
        while bit < WIDE as u32 {
            let rest = same >> bit;
            if open.is_none() {
                if rest == 0 {
                    break;
                }
                bit += rest.trailing_zeros();
                open = Some(at + bit as usize);
            } else {
                bit += rest.trailing_ones();
                let here = at + bit as usize;
                if bit < WIDE as u32
                    && let Some(start) = open.take()
                    && here - start >= SHORTEST
                {
                    out.matched(start, here - start, 1)?;
                }
            }
        }
        at += WIDE;
    }
    match open {
        Some(start) if at - start >= SHORTEST => out.matched(start, at - start, 1),
        _ => Some(()),
    }
}

#[cfg(test)]
mod tests;

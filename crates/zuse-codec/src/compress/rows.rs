//! LZ4 of small blocks that are rows of one width: micro ZAPs of a few names.
//!
//! A row is like the one before it but for a few fields. So a match is looked for in two places only, a row's width back and one
//! byte back (a run). That needs no table, and a block of a few rows becomes smaller than by the search for the latest place with
//! the same four bytes (mostly zeros somewhere, which end too early): seven names that differ in their last digit take 102 to 115
//! bytes, not 136 to 143. What comes out is a block as any other.
//!
//! The rules of the format: the last five bytes are literals, and no match begins in the last twelve.

/// Bytes in front of the block that say how long it is.
const HEADER: usize = 4;
/// Shortest match.
const SHORTEST: usize = 4;
/// Bytes at the end that no match reaches, and in which none begins.
const LITERAL_END: usize = 5;
const NO_START: usize = 12;

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
    let most = HEADER + src.len() + src.len() / 255 + 16;
    let mut out = Out {
        bytes: super::room(dst, most.min(max_dst) + SPARE),
        at: HEADER,
    };
    let end = src.len().saturating_sub(LITERAL_END);
    let starts = (src.len() + 1).saturating_sub(NO_START);
    // Literals wait from here on.
    let mut from = 0;
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
        let more = length - SHORTEST;
        out.literals(src, from, at, more)?;
        out.put(&back.to_le_bytes())?;
        out.rest_of(more)?;
        at += length;
        from = at;
    }
    out.literals(src, from, src.len(), 0)?;
    let (length, body) = (out.at, out.at - HEADER);
    if length > max_dst {
        return None;
    }
    let header = u32::try_from(body).ok()?.to_be_bytes();
    out.bytes.first_chunk_mut().map(|h| *h = header)?;
    Some(length)
}

/// Room behind the limit: short literals are copied in one piece of this length.
const SPARE: usize = 16;

/// What was written, with room for no more than is of use; `None` from then on.
struct Out<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Out<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at + bytes.len();
        self.bytes.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    /// A token, and the literals behind it.
    #[inline]
    fn literals(&mut self, src: &[u8], from: usize, to: usize, matched: usize) -> Option<()> {
        let count = to - from;
        let nibble = |n: usize| n.min(15) as u8;
        self.put(&[nibble(count) << 4 | nibble(matched)])?;
        self.rest_of(count)?;
        let piece = src.get(from..).and_then(<[u8]>::first_chunk::<SPARE>);
        let place = self.bytes.get_mut(self.at..);
        match (piece, place.and_then(<[u8]>::first_chunk_mut::<SPARE>)) {
            (Some(piece), Some(place)) if count <= SPARE => {
                *place = *piece;
                self.at += count;
                Some(())
            }
            _ => self.put(src.get(from..to)?),
        }
    }

    /// What of a length its four bits do not hold.
    #[inline]
    fn rest_of(&mut self, length: usize) -> Option<()> {
        let Some(mut rest) = length.checked_sub(15) else {
            return Some(());
        };
        while rest >= 255 {
            self.put(&[255])?;
            rest -= 255;
        }
        self.put(&[rest as u8])
    }
}

#[cfg(test)]
mod tests;

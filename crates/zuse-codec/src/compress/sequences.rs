//! The sequences of an LZ4 block, written one after the other: literals, and a match behind them.
//!
//! The rules of the format: the last five bytes are literals, and no match begins in the last twelve. Who looks for matches
//! keeps them.

/// Bytes in front of the block that say how long it is.
const HEADER: usize = 4;
/// Shortest match.
pub(super) const SHORTEST: usize = 4;
/// Bytes at the end that no match reaches, and in which none begins.
pub(super) const LITERAL_END: usize = 5;
pub(super) const NO_START: usize = 12;
/// Literals that are copied as one piece, however few of them there are.
const PIECE: usize = 16;
/// Most bytes that a short sequence writes: token, piece, distance and a byte of length.
const SHORT: usize = 1 + PIECE + 3;

/// What was written, with room for no more than is of use; `None` from then on.
pub(super) struct Sequences<'a> {
    src: &'a [u8],
    out: &'a mut [u8],
    at: usize,
    /// Literals wait from here on.
    from: usize,
    max_dst: usize,
}

impl<'a> Sequences<'a> {
    /// Begins a block in `dst`, in the stored form of lz4, which is to take at most `max_dst` bytes.
    pub fn new(src: &'a [u8], dst: &'a mut Vec<u8>, max_dst: usize) -> Self {
        let most = HEADER + src.len() + src.len() / 255 + 16;
        Self {
            src,
            out: super::room(dst, most.min(max_dst) + SHORT),
            at: HEADER,
            from: 0,
            max_dst,
        }
    }

    /// A match of `length` bytes, at least [`SHORTEST`], that begins at `start`, and the literals before it.
    #[inline(always)]
    pub fn matched(&mut self, start: usize, length: usize, back: u16) -> Option<()> {
        let (literals, more) = (start - self.from, length - SHORTEST);
        let piece = self.src.get(self.from..).and_then(<[u8]>::first_chunk);
        let (Some(piece), true) = (piece, literals < 15 && more < 15 + 255) else {
            return self.long(start, length, back);
        };
        let out = self.out.get_mut(self.at..)?.first_chunk_mut::<SHORT>()?;
        out[0] = (literals << 4 | more.min(15)) as u8;
        out[1..=PIECE].copy_from_slice(piece as &[u8; PIECE]);
        [out[1 + literals], out[2 + literals]] = back.to_le_bytes();
        // Counts only where the token says so.
        out[3 + literals] = more.wrapping_sub(15) as u8;
        self.at += 3 + literals + usize::from(more >= 15);
        self.from = start + length;
        Some(())
    }

    /// The same, whatever its lengths.
    #[cold]
    fn long(&mut self, start: usize, length: usize, back: u16) -> Option<()> {
        let more = length - SHORTEST;
        self.literals(start, more)?;
        self.put(&back.to_le_bytes())?;
        self.rest_of(more)?;
        self.from = start + length;
        Some(())
    }

    /// The rest is literals. Says how long all is, if that is not too long.
    pub fn finish(mut self) -> Option<usize> {
        self.literals(self.src.len(), 0)?;
        let (length, body) = (self.at, self.at - HEADER);
        if length > self.max_dst {
            return None;
        }
        let header = u32::try_from(body).ok()?.to_be_bytes();
        self.out.first_chunk_mut().map(|h| *h = header)?;
        Some(length)
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at + bytes.len();
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    /// A token, and the literals behind it.
    fn literals(&mut self, to: usize, more: usize) -> Option<()> {
        let waiting = self.src.get(self.from..to)?;
        let nibble = |n: usize| n.min(15) as u8;
        self.put(&[nibble(waiting.len()) << 4 | nibble(more)])?;
        self.rest_of(waiting.len())?;
        self.put(waiting)
    }

    /// What of a length its four bits do not hold.
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

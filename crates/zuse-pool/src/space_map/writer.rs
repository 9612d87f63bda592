//! Appending to a space map, and condensing it.

use zuse_base::{Error, RangeTree, Result, Span};
use zuse_format::space_map::{Encoder, MapOp, RUN_MAX_ONE, RUN_MAX_TWO, SpaceMapPhys};

use super::{Histogram, MapWriter, Region, SpaceMap, Tail};

/// Words are passed to the object in chunks of about this many bytes.
const PIECE: usize = 128 << 10;

/// Parameters of an append besides the ranges.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// Pass of the sync, for the debug words.
    pub pass: u32,
    /// Feature `spacemap_v2` is active: two-word entries may be written.
    pub two_words: bool,
    /// The new histogram; `None` keeps the old one.
    pub histogram: Option<&'a Histogram>,
}

/// Size in bytes of a condensed map of these free spans; stops counting past `limit`.
pub fn optimal_length(free: &RangeTree, shift: u8, two_words: bool, limit: u64) -> u64 {
    let mut length = 8 * 4;
    for span in free.iter() {
        let run = span.size >> shift;
        let words = if two_words && run > RUN_MAX_ONE {
            2 * run.div_ceil(RUN_MAX_TWO)
        } else {
            run.div_ceil(RUN_MAX_ONE)
        };
        length += 8 * words;
        if length > limit {
            break;
        }
    }
    length
}

impl SpaceMap {
    /// Appends `allocs`, then `frees`. Returns whether anything was written.
    ///
    /// # Errors
    /// The MOS cannot be changed; the map is unchanged then.
    pub fn append(
        &mut self,
        writer: &dyn MapWriter,
        how: Append<'_>,
        allocs: &RangeTree,
        frees: &RangeTree,
    ) -> Result<bool> {
        if allocs.is_empty() && frees.is_empty() {
            return Ok(false);
        }
        let mut stream = WordStream::new(self, writer, self.header.length, how);
        // ALLOC first: a block that is born and freed in one txg is in both sets.
        stream.set(MapOp::Alloc, allocs.iter())?;
        stream.set(MapOp::Free, frees.iter())?;
        let length = stream.flush()?;
        // This txg may write only after the old length, because the rest is replayed.
        assert!(
            length > self.header.length,
            "{}: an append of nothing, or over older entries",
            self.region
        );
        let alloc = self
            .header
            .alloc
            .wrapping_add_unsigned(allocs.space())
            .wrapping_sub_unsigned(frees.space());
        // Before the header: a refused sum leaves the map as it was.
        self.check_sum(alloc)?;
        self.store_header(writer, length, alloc, how.histogram)?;
        Ok(true)
    }

    /// Rewrites the map so that exactly `free` is free: one ALLOC of all, one FREE per span.
    ///
    /// # Errors
    /// The MOS cannot be changed. The txg must not be committed then.
    pub fn condense(
        &mut self,
        writer: &dyn MapWriter,
        how: Append<'_>,
        free: &RangeTree,
    ) -> Result<()> {
        writer.truncate(self.object, 0)?;
        let mut stream = WordStream::new(self, writer, 0, how);
        stream.set(MapOp::Alloc, std::iter::once(self.region.span))?;
        stream.set(MapOp::Free, free.iter())?;
        let length = stream.flush()?;
        let alloc = (self.region.span.size - free.space()) as i64;
        self.store_header(writer, length, alloc, how.histogram)
    }

    /// Truncates the map to the end of `tail`.
    ///
    /// # Errors
    /// The MOS cannot be changed. The txg must not be committed then.
    pub(crate) fn cut(&mut self, writer: &dyn MapWriter, tail: &Tail) -> Result<()> {
        assert!(
            tail.length < self.header.length,
            "{}: a cut behind the end",
            self.region
        );
        let sum = |op| -> u64 {
            let same = tail.entries.iter().filter(|e| e.op == op);
            same.map(|e| e.run).sum()
        };
        let alloc = self
            .header
            .alloc
            .wrapping_sub_unsigned(sum(MapOp::Alloc))
            .wrapping_add_unsigned(sum(MapOp::Free));
        self.check_sum(alloc)?;
        // The last block may be cut in the middle: words after the length are ignored.
        let block = tail.length.div_ceil(u64::from(self.block_size));
        writer.truncate(self.object, block)?;
        self.store_header(writer, tail.length, alloc, None)
    }

    /// Refuses a sum that is impossible for the map's entries.
    fn check_sum(&self, alloc: i64) -> Result<()> {
        let size = self.region.span.size;
        let (sum, what) = match self.region.metaslab {
            // It has only FREE entries, so its sum is negative.
            Region::CHECKPOINT => (alloc.checked_neg(), "freed"),
            _ => (Some(alloc), "allocated"),
        };
        if sum
            .and_then(|n| u64::try_from(n).ok())
            .is_none_or(|n| n > size)
        {
            return Err(Error::miscounted(
                self.region.to_string(),
                format!("{alloc} of {size} bytes would be {what}"),
            ));
        }
        Ok(())
    }

    fn store_header(
        &mut self,
        writer: &dyn MapWriter,
        length: u64,
        alloc: i64,
        histogram: Option<&Histogram>,
    ) -> Result<()> {
        // A bonus without room for a histogram stays so.
        let histogram = self
            .header
            .histogram
            .as_ref()
            .map(|old| *histogram.unwrap_or(old));
        let header = SpaceMapPhys {
            object: self.object.0,
            length,
            alloc,
            histogram,
        };
        writer.set_bonus(self.object, &header.to_bytes())?;
        self.header = header;
        Ok(())
    }
}

/// Words being written to the object.
struct WordStream<'a> {
    map: &'a SpaceMap,
    writer: &'a dyn MapWriter,
    how: Append<'a>,
    /// Object offset of the encoder's first byte.
    base: u64,
    encoder: Encoder,
}

impl<'a> WordStream<'a> {
    fn new(map: &'a SpaceMap, writer: &'a dyn MapWriter, base: u64, how: Append<'a>) -> Self {
        Self {
            map,
            writer,
            how,
            base,
            encoder: encoder(map, how, base),
        }
    }

    fn set(&mut self, op: MapOp, spans: impl Iterator<Item = Span>) -> Result<()> {
        let mut spans = spans.peekable();
        if spans.peek().is_some() {
            self.encoder
                .debug(op, u64::from(self.how.pass), self.writer.txg().0);
        }
        for span in spans {
            self.encoder.push(op, None, span.start, span.size);
            if self.encoder.len() >= PIECE {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the encoded words; returns the offset after them.
    fn flush(&mut self) -> Result<u64> {
        // The new encoder is a placeholder: its offset is known only after the write.
        let (words, _) =
            std::mem::replace(&mut self.encoder, encoder(self.map, self.how, 0)).finish();
        if !words.is_empty() {
            self.writer.write_at(self.map.object, self.base, &words)?;
            self.base += words.len() as u64;
        }
        // By its offset the encoder knows where a block ends, and pads there.
        self.encoder = encoder(self.map, self.how, self.base);
        Ok(self.base)
    }
}

fn encoder(map: &SpaceMap, how: Append<'_>, position: u64) -> Encoder {
    Encoder::new(
        map.region.geometry(),
        u64::from(map.block_size),
        position,
        how.two_words,
    )
}

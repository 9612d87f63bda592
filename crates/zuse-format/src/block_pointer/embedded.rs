//! Payload of embedded pointers, and redacted ones.
//!
//! The payload fills words 0..6, 7..10, 11..16 in this order. Each word holds 8 bytes little-endian
//! *as a value*, so the bytes do not depend on the order of the container.

use super::{BlockPointer, EMBEDDED_BIT, EMBEDDED_MAX, LITTLE_BIT, LOGICAL, PROPS};
use crate::error::{FormatResult, bad};

const PAYLOAD_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

impl BlockPointer {
    /// Bytes of payload of an embedded pointer (compressed size); may exceed 112 in a corrupt one.
    #[inline]
    pub fn embedded_len(&self) -> usize {
        self.bits(25, 7) as usize + 1
    }

    /// The payload of an embedded pointer: all 112 bytes and how many count.
    ///
    /// # Errors
    /// Not an embedded pointer, or one that claims more than 112 bytes.
    pub fn embedded_payload(&self) -> FormatResult<([u8; EMBEDDED_MAX], usize)> {
        if !self.is_embedded() {
            return bad("block pointer has no embedded data");
        }
        let len = self.embedded_len();
        if len > EMBEDDED_MAX {
            return bad(format!("block pointer embeds {len} bytes"));
        }
        let mut payload = [0; EMBEDDED_MAX];
        for (raw, word) in payload.as_chunks_mut::<8>().0.iter_mut().zip(PAYLOAD_WORDS) {
            *raw = self.words[word].to_le_bytes();
        }
        Ok((payload, len))
    }

    /// An embedded pointer around 1..=112 bytes that decompress to `lsize` bytes; little-endian.
    ///
    /// # Errors
    /// A payload or logical size that does not fit.
    pub fn embed(
        payload: &[u8],
        lsize: u64,
        compression: u8,
        object_type: u8,
        birth: u64,
    ) -> FormatResult<Self> {
        if payload.is_empty() || payload.len() > EMBEDDED_MAX || lsize == 0 || lsize > 1 << 25 {
            return bad(format!("{} bytes cannot be embedded", payload.len()));
        }
        let mut raw = [0; EMBEDDED_MAX];
        raw[..payload.len()].copy_from_slice(payload);
        let mut bp = Self::HOLE;
        for (bytes, word) in raw.as_chunks::<8>().0.iter().zip(PAYLOAD_WORDS) {
            bp.words[word] = u64::from_le_bytes(*bytes);
        }
        bp.words[PROPS] = (lsize - 1)
            | (payload.len() as u64 - 1) << 25
            | u64::from(compression & 0x7f) << 32
            | EMBEDDED_BIT
            | u64::from(object_type) << 48
            | LITTLE_BIT;
        bp.words[LOGICAL] = birth;
        Ok(bp)
    }

    /// A pointer that says "data left out on purpose".
    pub fn redacted(lsize: u64, object_type: u8, birth: u64) -> Self {
        let mut bp = Self::HOLE;
        bp.words[PROPS] = lsize.wrapping_sub(1) & 0x1ff_ffff
            | EMBEDDED_BIT
            | 2 << 40
            | u64::from(object_type) << 48;
        bp.words[LOGICAL] = birth;
        bp
    }
}
